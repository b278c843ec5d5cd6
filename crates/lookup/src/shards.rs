//! Shards of words in one arena, found by the first bits of a digest: what query halves that are sharded stand on.
//!
//! [`Shards`] is the handle of the one writer. It puts whole shards in the place of others; readers, each with a
//! [`ShardsReader`], load the entry of a shard once a lookup and follow it to words that stay where they are until every
//! reader has been quiescent. What an entry says beside its offset, and what happens inside a shard, is the structure's.
//!
//! Limits: one writer; old shards that readers hold back are bounded by [`RETIRED_LIMIT`] and what one message replaces.

#![expect(unsafe_code, reason = "publishes a directory by pointer and frees it when readers are gone")]

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::arena::{Arena, LINE, Lines};
use crate::othello::ShardId;
use crate::publish::current::RETIRED_LIMIT;
use crate::publish::{Domain, Entry, Epoch, Pin, ReaderSlot};
use crate::traits::ApplyError;

/// The least that an arena has.
const LEAST_BYTES: usize = 4 << 20;

/// The directory that readers follow. Replaced when it doubles, never edited but by its entries.
struct Directory {
    depth: u8,
    entries: Box<[Entry]>,
}

/// What the writer and all readers share, with what the structure adds.
struct Shared<X> {
    arena: Arena,
    directory: AtomicPtr<Directory>,
    domain: Domain,
    /// Directories that a dropped writer could not free, for readers may still follow them.
    left: Mutex<Vec<OldDirectory>>,
    extra: X,
}

impl<X> Drop for Shared<X> {
    fn drop(&mut self) {
        let left = std::mem::take(self.left.get_mut().unwrap_or_else(PoisonError::into_inner));
        let current = NonNull::new(*self.directory.get_mut()).map(OldDirectory);
        for directory in left.into_iter().chain(current) {
            // SAFETY: the last owner is being dropped, so no reader is left.
            unsafe { directory.free() };
        }
    }
}

/// A directory that was replaced. Readers may still hold references to it, so it stays where it is until it is freed.
struct OldDirectory(NonNull<Directory>);

// SAFETY: a directory is atomic words; whoever owns the handle may free it from any thread.
unsafe impl Send for OldDirectory {}

impl OldDirectory {
    /// # Safety
    /// No reader follows the directory any more.
    unsafe fn free(self) {
        // SAFETY: made by Box::into_raw, and by the caller's word not referred to.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Something that readers may still use.
enum Retired {
    Lines(u32, u32),
    Directory(OldDirectory),
}

/// What the writer knows of a shard that it serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<G> {
    pub(crate) id: ShardId,
    pub(crate) version: u64,
    pub(crate) digest: u64,
    /// Where its words are, and how to read them.
    pub(crate) geometry: G,
    /// The same as readers find it in the directory.
    pub(crate) entry: u64,
    /// First line and number of lines of its block.
    pub(crate) block: (u32, u32),
}

/// What readers follow, for as long as they are pinned.
pub(crate) struct Served<'a, X> {
    pub(crate) entries: &'a [Entry],
    pub(crate) depth: u8,
    pub(crate) base: *const u8,
    pub(crate) extra: &'a X,
}

impl<X> Clone for Served<'_, X> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<X> Copy for Served<'_, X> {}

/// The writer's half: `G` describes a shard, `X` is what readers see beside all of them.
pub(crate) struct Shards<G, X> {
    shared: Arc<Shared<X>>,
    lines: Lines,
    /// By slot; the slots of the directory's entries.
    held: Vec<Option<Held<G>>>,
    slots: Vec<u32>,
    free_slots: Vec<u32>,
    retired: VecDeque<(Epoch, Retired)>,
    retired_bytes: usize,
}

impl<G: Copy, X> Shards<G, X> {
    /// A directory that points nowhere yet, over an arena of `bytes` at most.
    ///
    /// Where address space is rationed a smaller range must do; a table that outgrows it gets a typed error.
    /// # Errors
    /// [`ApplyError::ArenaFull`].
    pub(crate) fn new(bytes: usize, extra: X) -> Result<Self, ApplyError> {
        let bytes = bytes.saturating_add(LEAST_BYTES).min(u32::MAX as usize * LINE);
        let ranges =
            std::iter::successors(Some(bytes), |&bytes| Some(bytes / 2)).take_while(|&bytes| bytes >= LEAST_BYTES);
        let arena = ranges.map(Arena::reserve).find_map(Result::ok);
        let arena = arena.ok_or(ApplyError::ArenaFull { needed_bytes: bytes, limit_bytes: 0 })?;
        let lines = Lines::new(arena.bytes());
        let directory = Directory { depth: 0, entries: Box::new([Entry::new(0)]) };
        let directory = AtomicPtr::new(Box::into_raw(Box::new(directory)));
        let shared = Shared { arena, directory, domain: Domain::new(), left: Mutex::new(Vec::new()), extra };
        Ok(Self {
            shared: Arc::new(shared),
            lines,
            held: Vec::new(),
            slots: vec![u32::MAX],
            free_slots: Vec::new(),
            retired: VecDeque::new(),
            retired_bytes: 0,
        })
    }

    /// What lookups through the writer's handle follow.
    pub(crate) fn served(&self) -> Served<'_, X> {
        // SAFETY: set from Box::into_raw, and freed by this writer alone, after it is replaced.
        let directory = unsafe { &*self.shared.directory.load(Ordering::Relaxed) };
        served(&self.shared, directory)
    }

    /// Access for another thread.
    pub(crate) fn reader(&self) -> ShardsReader<X> {
        ShardsReader { slot: self.shared.domain.register(), shared: Arc::clone(&self.shared) }
    }

    /// Address of a line of the arena.
    pub(crate) fn address(&self, line: u32) -> *mut u8 {
        self.shared.arena.base().wrapping_add(line as usize * LINE)
    }

    /// Bits of a digest that the directory looks at.
    pub(crate) fn depth(&self) -> u8 {
        self.slots.len().trailing_zeros() as u8
    }

    /// What is held, in order of digests.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Held<G>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let held = self.held[*self.slots.get(at)? as usize].as_ref().expect("entries point to held shards");
            at += 1 << (self.depth() - held.id.depth);
            Some(held)
        })
    }

    /// What an entry of the directory leads to.
    pub(crate) fn held_at(&self, entry: usize) -> &Held<G> {
        self.held[self.slots[entry] as usize].as_ref().expect("entries point to held shards")
    }

    /// What is held where `id` begins, with its slot; nothing where `id` is no prefix that the directory looks at.
    pub(crate) fn held_of(&self, id: ShardId) -> Option<(u32, &Held<G>)> {
        let is_here = id.depth <= self.depth() && id.prefix >> id.depth == 0;
        let entry = is_here.then(|| id.entries(self.depth()).start)?;
        Some((self.slots[entry], self.held_at(entry)))
    }

    /// The newest version of what is held where `id` is.
    pub(crate) fn version_at(&self, id: ShardId) -> Option<u64> {
        let depth = self.depth().max(id.depth);
        let (entries, down) = (id.entries(depth), depth - self.depth());
        (entries.start >> down..=(entries.end - 1) >> down).map(|entry| self.held_at(entry).version).max()
    }

    /// Notes another version and digest of a shard that was edited in place.
    pub(crate) fn note(&mut self, slot: u32, version: u64, digest: u64) {
        let held = self.held[slot as usize].as_mut().expect("a held shard");
        (held.version, held.digest) = (version, digest);
    }

    /// Lines for `bytes`, where no reader looks yet: first line and number.
    /// # Errors
    /// [`ApplyError::ReadersStalled`], [`ApplyError::ArenaFull`].
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(u32, u32), ApplyError> {
        let n = bytes.div_ceil(LINE) as u32;
        let limit_bytes = RETIRED_LIMIT.max(2 * bytes);
        self.reclaim();
        let taken = if self.retired_bytes + bytes > limit_bytes { None } else { self.lines.take(n) };
        let arena_bytes = self.shared.arena.bytes();
        taken.map(|start| (start, n)).ok_or(match self.retired_bytes {
            0 => ApplyError::ArenaFull { needed_bytes: bytes, limit_bytes: arena_bytes },
            retired_bytes => ApplyError::ReadersStalled { retired_bytes, limit_bytes: limit_bytes.min(arena_bytes) },
        })
    }

    /// Gives back lines that no reader was led to.
    pub(crate) fn give(&mut self, (start, n): (u32, u32)) {
        self.lines.give(start, n);
    }

    /// Refuses ids that do not cover whole shards exactly once.
    /// # Errors
    /// [`ApplyError::Malformed`].
    pub(crate) fn covered(&self, ids: &[ShardId]) -> Result<(), ApplyError> {
        let malformed = ApplyError::Malformed { reason: "the shards do not replace whole shards exactly once" };
        let depth = self.deepest(ids);
        let mut ranges: Vec<_> = ids.iter().map(|id| id.entries(depth)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        if ranges.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return Err(malformed);
        }
        if self.held.is_empty() {
            let all = ranges.windows(2).all(|pair| pair[0].end == pair[1].start);
            let ends = (ranges.first().map(|range| range.start), ranges.last().map(|range| range.end));
            return if all && ends == (Some(0), Some(1 << depth)) { Ok(()) } else { Err(malformed) };
        }
        // Every held shard that a range touches must be covered to both its ends.
        let mut at = 0;
        while at < ranges.len() {
            let held = self.held_at(ranges[at].start >> (depth - self.depth())).id.entries(depth);
            let mut end = held.start.min(ranges[at].start);
            if ranges[at].start != held.start {
                return Err(malformed);
            }
            while end < held.end {
                match ranges.get(at) {
                    Some(range) if range.start == end => end = range.end,
                    _ => return Err(malformed),
                }
                at += 1;
                // A merge covers several held shards: go on to the end of the last.
                if end > held.end {
                    let last = self.held_at((end - 1) >> (depth - self.depth())).id.entries(depth);
                    if last.end != end {
                        return Err(malformed);
                    }
                }
            }
        }
        Ok(())
    }

    fn deepest(&self, ids: &[ShardId]) -> u8 {
        ids.iter().map(|id| id.depth).max().unwrap_or(0).max(self.depth())
    }

    /// Puts shards, whose words are written and which [cover](Shards::covered) whole shards, in the place of those.
    pub(crate) fn install(&mut self, shards: Vec<Held<G>>) {
        let ids: Vec<ShardId> = shards.iter().map(|held| held.id).collect();
        let depth = self.deepest(&ids);
        self.deepen(depth);
        let mut replaced = Vec::new();
        for held in shards {
            let slot = self.free_slots.pop().unwrap_or(self.held.len() as u32);
            if slot as usize == self.held.len() {
                self.held.push(None);
            }
            self.held[slot as usize] = Some(held);
            for at in held.id.entries(depth) {
                let old = std::mem::replace(&mut self.slots[at], slot);
                if old != u32::MAX && replaced.last() != Some(&old) {
                    replaced.push(old);
                }
            }
            self.publish(&held);
        }
        for slot in replaced {
            if let Some(old) = self.held[slot as usize].take() {
                self.free_slots.push(slot);
                self.retire(old.block);
            }
        }
        self.reclaim();
    }

    /// Puts a shard, whose words are written, in the place of the one in `slot`, which is of the same digests.
    pub(crate) fn replace(&mut self, slot: u32, held: Held<G>) {
        self.publish(&held);
        let old = self.held[slot as usize].replace(held).expect("a held shard");
        self.retire(old.block);
        self.reclaim();
    }

    /// Makes readers find a shard: from here on they see it, or its predecessor, whole.
    fn publish(&self, held: &Held<G>) {
        for entry in &self.served().entries[held.id.entries(self.depth())] {
            entry.publish(held.entry);
        }
    }

    fn retire(&mut self, (start, n): (u32, u32)) {
        let epoch = self.shared.domain.advance();
        self.retired_bytes += n as usize * LINE;
        self.retired.push_back((epoch, Retired::Lines(start, n)));
    }

    /// Replaces the directory by one that looks at `depth` bits.
    fn deepen(&mut self, depth: u8) {
        if depth == self.depth() {
            return;
        }
        let times = 1 << (depth - self.depth());
        let repeat = |entry: &Entry| std::iter::repeat_n(entry.load(), times);
        let entries = self.served().entries.iter().flat_map(repeat).map(Entry::new).collect();
        self.slots = self.slots.iter().flat_map(|&slot| std::iter::repeat_n(slot, times)).collect();
        let new = Box::into_raw(Box::new(Directory { depth, entries }));
        let old = self.shared.directory.swap(new, Ordering::AcqRel);
        let epoch = self.shared.domain.advance();
        let old = OldDirectory(NonNull::new(old).expect("a directory is always set"));
        self.retired.push_back((epoch, Retired::Directory(old)));
    }

    /// Takes back what every reader has left behind.
    fn reclaim(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let completed = self.shared.domain.completed();
        while let Some((_, retired)) = self.retired.pop_front_if(|(epoch, _)| *epoch <= completed) {
            match retired {
                Retired::Lines(start, n) => {
                    self.retired_bytes -= n as usize * LINE;
                    self.lines.give(start, n);
                }
                // SAFETY: it was replaced before the epoch that every reader has left behind.
                Retired::Directory(directory) => unsafe { directory.free() },
            }
        }
    }

    /// Blocks and directory, in bits.
    pub(crate) fn size_bits(&self) -> u64 {
        let blocks: u64 = self.in_order().map(|held| u64::from(held.block.1) * LINE as u64 * 8).sum();
        blocks + self.slots.len() as u64 * 64
    }

    /// Bytes of the arena in use, old shards that wait for readers included; and those alone.
    pub(crate) fn arena_bytes(&self) -> (u64, usize) {
        (self.lines.used() * LINE as u64, self.retired_bytes)
    }

    /// Bytes of the arena on huge pages, if the operating system says.
    pub(crate) fn huge_page_bytes(&self) -> Option<usize> {
        self.shared.arena.huge_page_bytes()
    }
}

impl<G, X> Drop for Shards<G, X> {
    fn drop(&mut self) {
        let mut left = self.shared.left.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, retired) in self.retired.drain(..) {
            if let Retired::Directory(directory) = retired {
                left.push(directory);
            }
        }
    }
}

fn served<'a, X>(shared: &'a Shared<X>, directory: &'a Directory) -> Served<'a, X> {
    let (entries, depth) = (&directory.entries[..], directory.depth);
    Served { entries, depth, base: shared.arena.base(), extra: &shared.extra }
}

/// A thread's access to shards beside their writer.
pub(crate) struct ShardsReader<X> {
    slot: ReaderSlot,
    shared: Arc<Shared<X>>,
}

impl<X> ShardsReader<X> {
    /// What to follow during one burst. The thread was quiescent until now: nothing from an earlier burst is in use.
    #[inline]
    pub(crate) fn pin(&mut self) -> (Served<'_, X>, Pin<'_>) {
        let pin = self.slot.pin();
        // SAFETY: a directory that is found while pinned is not freed before this reader is quiescent, that is, before
        // the borrow of `self` in the result ends and `pin` or `offline` is called.
        let directory = unsafe { &*self.shared.directory.load(Ordering::Acquire) };
        (served(&self.shared, directory), pin)
    }

    /// Says that this thread reads nothing until it pins again.
    pub(crate) fn offline(&mut self) {
        self.slot.offline();
    }
}

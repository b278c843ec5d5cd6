//! The parts of a query half: words in one arena, found by the first bits of a digest.
//!
//! [`ServedParts`] is the handle of the one writer. It replaces whole parts by others. Each reader has a
//! [`PartsReader`]. It loads the entry of a part once per lookup, and follows it to words that stay where they are
//! until every reader has been quiescent. The structure decides what else an entry says, and what happens inside a
//! part.
//!
//! Limits: one writer. Old parts that wait for readers are bounded by [`RETIRED_LIMIT`] and by what one message
//! replaces.

#![expect(unsafe_code, reason = "publishes a directory by pointer and frees it when readers are gone")]

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::arena::{Arena, LINE, Lines};
use crate::base::directory::{Directory, Part};
use crate::base::part::{HeldPart, PartId};
use crate::base::processor::{Reads, prefetch_pays};
use crate::publish::rcu::RETIRED_LIMIT;
use crate::publish::{Domain, Entry, Epoch, Pin, ReaderSlot};
use crate::traits::ApplyError;

/// The smallest arena.
const LEAST_BYTES: usize = 4 << 20;

/// The directory that readers follow. It is replaced when its size changes. Otherwise only its entries change.
struct Followed {
    depth: u8,
    entries: Box<[Entry]>,
}

/// What the writer and all readers share. The structure adds `extra`.
struct Shared<X> {
    arena: Arena,
    directory: AtomicPtr<Followed>,
    domain: Domain,
    /// Directories that a dropped writer could not free, because readers may still follow them.
    left: Mutex<Vec<OldDirectory>>,
    /// Whether so much of the arena is in use that prefetches pay.
    prefetch: AtomicBool,
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

/// A directory that was replaced. Readers may still have references to it, so it must not move until it is freed.
struct OldDirectory(NonNull<Followed>);

// SAFETY: a directory is atomic words, and the owner of the handle may free it from any thread.
unsafe impl Send for OldDirectory {}

impl OldDirectory {
    /// # Safety
    /// No reader follows the directory any more.
    unsafe fn free(self) {
        // SAFETY: made by Box::into_raw, and by the caller's contract no reference is left.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Memory that was replaced and that readers may still use.
enum Retired {
    Lines(u32, u32),
    Directory(OldDirectory),
}

/// The writer's record of a part that it serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<G> {
    pub(crate) id: PartId,
    pub(crate) version: u64,
    pub(crate) digest: u64,
    /// Where its words are, and how to read them.
    pub(crate) geometry: G,
    /// The same, as readers find it in the directory.
    pub(crate) entry: u64,
    /// First line and number of lines of its block.
    pub(crate) block: (u32, u32),
}

impl<G> Held<G> {
    /// Version and digest.
    pub(crate) fn part(&self) -> HeldPart {
        HeldPart { id: self.id, version: self.version, digest: self.digest }
    }
}

impl<G> Part for Held<G> {
    fn id(&self) -> PartId {
        self.id
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn set_version(&mut self, version: u64) {
        self.version = version;
    }
}

/// What readers follow while they are pinned.
pub(crate) struct Served<'a, X> {
    pub(crate) entries: &'a [Entry],
    pub(crate) depth: u8,
    pub(crate) base: *const u8,
    /// Whether prefetching what is at `base` pays.
    pub(crate) prefetch: bool,
    pub(crate) extra: &'a X,
}

impl<X> Clone for Served<'_, X> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<X> Copy for Served<'_, X> {}

/// The writer's half. `G` describes a part. `X` is what readers see besides all parts.
pub(crate) struct ServedParts<G, X> {
    shared: Arc<Shared<X>>,
    lines: Lines,
    parts: Directory<Held<G>>,
    reads: Reads,
    retired: VecDeque<(Epoch, Retired)>,
    retired_bytes: usize,
}

impl<G: Copy, X> ServedParts<G, X> {
    /// A table without parts, over an arena of at most `bytes`.
    ///
    /// If that much address space is not available, a smaller range is used. A table that outgrows it gets a typed
    /// error.
    /// # Errors
    /// [`ApplyError::ArenaFull`].
    pub(crate) fn new(bytes: usize, reads: Reads, extra: X) -> Result<Self, ApplyError> {
        let bytes = bytes.saturating_add(LEAST_BYTES).min(u32::MAX as usize * LINE);
        let ranges =
            std::iter::successors(Some(bytes), |&bytes| Some(bytes / 2)).take_while(|&bytes| bytes >= LEAST_BYTES);
        let arena = ranges.map(Arena::reserve).find_map(Result::ok);
        let arena = arena.ok_or(ApplyError::ArenaFull { needed_bytes: bytes, limit_bytes: 0 })?;
        let lines = Lines::new(arena.bytes());
        let directory = Followed { depth: 0, entries: Box::new([Entry::new(0)]) };
        let directory = AtomicPtr::new(Box::into_raw(Box::new(directory)));
        let shared = Shared {
            arena,
            directory,
            domain: Domain::new(),
            left: Mutex::new(Vec::new()),
            prefetch: AtomicBool::new(false),
            extra,
        };
        Ok(Self {
            shared: Arc::new(shared),
            lines,
            parts: Directory::empty(),
            reads,
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

    /// A reader for another thread.
    pub(crate) fn reader(&self) -> PartsReader<X> {
        PartsReader { slot: self.shared.domain.register(), shared: Arc::clone(&self.shared) }
    }

    /// Address of a line of the arena.
    pub(crate) fn address(&self, line: u32) -> *mut u8 {
        self.shared.arena.base().wrapping_add(line as usize * LINE)
    }

    /// The writer's records of the parts, each in its slot.
    pub(crate) fn parts(&self) -> &Directory<Held<G>> {
        &self.parts
    }

    /// The records of the parts, in order of digests.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Held<G>> {
        self.parts.iter().map(|(_, held)| held)
    }

    /// Records the version and digest of a part that was edited in place.
    pub(crate) fn note(&mut self, slot: u32, version: u64, digest: u64) {
        let held = self.parts.part_mut(slot);
        (held.version, held.digest) = (version, digest);
    }

    /// Takes lines for `bytes`, which no reader can see yet: the first line and their number.
    /// # Errors
    /// [`ApplyError::ReadersStalled`], [`ApplyError::ArenaFull`].
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(u32, u32), ApplyError> {
        let n = bytes.div_ceil(LINE) as u32;
        let limit_bytes = RETIRED_LIMIT.max(2 * bytes);
        self.reclaim();
        let taken = if self.retired_bytes + bytes > limit_bytes { None } else { self.lines.take(n) };
        let arena_bytes = self.shared.arena.bytes();
        self.note_use();
        taken.map(|start| (start, n)).ok_or(match self.retired_bytes {
            0 => ApplyError::ArenaFull { needed_bytes: bytes, limit_bytes: arena_bytes },
            retired_bytes => ApplyError::ReadersStalled { retired_bytes, limit_bytes: limit_bytes.min(arena_bytes) },
        })
    }

    /// Tells readers whether prefetches pay.
    fn note_use(&self) {
        let pays = prefetch_pays(self.reads, (self.lines.used() * LINE as u64) as usize);
        // Readers share the line of this flag: it is written only when it changes.
        if self.shared.prefetch.load(Ordering::Relaxed) != pays {
            self.shared.prefetch.store(pays, Ordering::Relaxed);
        }
    }

    /// Frees lines that no reader has seen.
    pub(crate) fn give(&mut self, (start, n): (u32, u32)) {
        self.lines.give(start, n);
    }

    /// Refuses ids that do not cover whole parts exactly once.
    /// # Errors
    /// [`ApplyError::Malformed`].
    pub(crate) fn check_cover(&self, ids: &[PartId]) -> Result<(), ApplyError> {
        let reason = "the parts do not replace whole parts exactly once";
        if self.parts.is_covered(ids) { Ok(()) } else { Err(ApplyError::Malformed { reason }) }
    }

    /// Replaces whole parts. The words of the new ones are written, and [cover](ServedParts::check_cover) the old ones.
    pub(crate) fn install(&mut self, parts: Vec<Held<G>>) {
        let mut replaced: Vec<u32> = parts.iter().flat_map(|held| self.parts.slots_of(held.id)).collect();
        replaced.sort_unstable();
        replaced.dedup();
        self.deepen(parts.iter().map(|held| held.id.depth).max().unwrap_or(0));
        for held in parts {
            self.parts.put(held);
            self.publish(&held);
        }
        for slot in replaced {
            let old = self.parts.take(slot);
            self.retire(old.block);
        }
        self.shrink();
        self.reclaim();
    }

    /// Publishes a part. Each reader sees either it or the one before it, whole.
    fn publish(&self, held: &Held<G>) {
        for entry in &self.served().entries[held.id.entries(self.parts.depth())] {
            entry.publish(held.entry);
        }
    }

    fn retire(&mut self, (start, n): (u32, u32)) {
        let epoch = self.shared.domain.advance();
        self.retired_bytes += n as usize * LINE;
        self.retired.push_back((epoch, Retired::Lines(start, n)));
    }

    /// Replaces the directory by one that looks at `depth` bits, unless it already does.
    fn deepen(&mut self, depth: u8) {
        if depth <= self.parts.depth() {
            return;
        }
        let times = 1 << (depth - self.parts.depth());
        let repeat = |entry: &Entry| std::iter::repeat_n(entry.load(), times);
        let entries = self.served().entries.iter().flat_map(repeat).map(Entry::new).collect();
        self.parts.deepen(depth);
        self.follow(Followed { depth, entries });
    }

    /// Replaces the directory by a smaller one, if its parts need no more.
    fn shrink(&mut self) {
        let (depth, deepest) = (self.parts.depth(), self.parts.deepest());
        if deepest < depth {
            let step = 1 << (depth - deepest);
            let entries = self.served().entries.iter().step_by(step).map(|entry| Entry::new(entry.load())).collect();
            self.parts.shrink();
            self.follow(Followed { depth: deepest, entries });
        }
    }

    /// Publishes a directory, and retires the one before.
    fn follow(&mut self, new: Followed) {
        let old = self.shared.directory.swap(Box::into_raw(Box::new(new)), Ordering::AcqRel);
        let epoch = self.shared.domain.advance();
        let old = OldDirectory(NonNull::new(old).expect("a directory is always set"));
        self.retired.push_back((epoch, Retired::Directory(old)));
    }

    /// Reclaims what no reader can use any more.
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

    /// Memory of blocks and directory, in bits.
    pub(crate) fn size_bits(&self) -> u64 {
        let blocks: u64 = self.in_order().map(|held| u64::from(held.block.1) * LINE as u64 * 8).sum();
        blocks + (64 << self.parts.depth())
    }

    /// Bytes of the arena in use, including old parts that wait for readers; and the bytes of those alone.
    pub(crate) fn arena_bytes(&self) -> (u64, usize) {
        (self.lines.used() * LINE as u64, self.retired_bytes)
    }

    /// Bytes of the arena on huge pages, if the operating system reports it.
    pub(crate) fn huge_page_bytes(&self) -> Option<usize> {
        self.shared.arena.huge_page_bytes()
    }
}

impl<G, X> Drop for ServedParts<G, X> {
    fn drop(&mut self) {
        let mut left = self.shared.left.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, retired) in self.retired.drain(..) {
            if let Retired::Directory(directory) = retired {
                left.push(directory);
            }
        }
    }
}

fn served<'a, X>(shared: &'a Shared<X>, directory: &'a Followed) -> Served<'a, X> {
    let (entries, depth) = (&directory.entries[..], directory.depth);
    let prefetch = shared.prefetch.load(Ordering::Relaxed);
    Served { entries, depth, base: shared.arena.base(), prefetch, extra: &shared.extra }
}

/// A reading thread's access, concurrent with the writer.
pub(crate) struct PartsReader<X> {
    slot: ReaderSlot,
    shared: Arc<Shared<X>>,
}

impl<X> PartsReader<X> {
    /// What to follow during one burst. The thread was quiescent until now: it uses nothing from an earlier burst.
    #[inline]
    pub(crate) fn pin(&mut self) -> (Served<'_, X>, Pin<'_>) {
        let pin = self.slot.pin();
        // SAFETY: a directory that is found while pinned is not freed before this reader is quiescent, that is, before
        // the borrow of `self` in the result ends and `pin` or `offline` is called.
        let directory = unsafe { &*self.shared.directory.load(Ordering::Acquire) };
        (served(&self.shared, directory), pin)
    }

    /// What to follow at the beginning of a burst. It stays until the burst is [finished](PartsReader::finish).
    #[inline]
    pub(crate) fn begin(&mut self) -> Served<'_, X> {
        self.slot.begin();
        self.current()
    }

    /// What to follow while a burst is in flight.
    #[inline]
    pub(crate) fn current(&self) -> Served<'_, X> {
        // SAFETY: as in `pin`. A burst in flight holds the directory as a pin does.
        served(&self.shared, unsafe { &*self.shared.directory.load(Ordering::Acquire) })
    }

    /// The oldest burst in flight is finished.
    #[inline]
    pub(crate) fn finish(&mut self) {
        self.slot.finish();
    }

    /// Declares that this thread reads nothing until it pins again. Bursts in flight are given up.
    pub(crate) fn offline(&mut self) {
        self.slot.offline();
    }
}

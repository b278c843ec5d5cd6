//! The parts of a query half: words in one arena, found by the first bits of a digest.
//!
//! [`ServedParts`] is the handle of the one writer. It replaces whole parts by others. Each reader has a
//! [`PartsReader`]. It loads the entry of a part once per lookup, and follows it to words that stay where they are
//! until every reader has been quiescent. The structure decides what else an entry says, and what happens inside a
//! part.
//!
//! Limits: one writer. Old parts that wait for readers are bounded by [`RETIRED_LIMIT`] and by what one message
//! replaces.

#![expect(unsafe_code, reason = "shows the directory in the arena, and writes lines that no reader follows yet")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::arena::{Arena, LINE, Lines};
use crate::base::directory::{Directory, Part};
use crate::base::part::{HeldPart, PartId};
use crate::base::processor::{Reads, prefetch_pays};
use crate::base::root::{Form, ROOT_LINES, Root};
use crate::publish::rcu::RETIRED_LIMIT;
use crate::publish::seq_lock::{Edits, Gate};
use crate::publish::{Domain, Entry, Epoch, Pin, ReaderSlot};
use crate::traits::{ApplyError, Outside};

/// The smallest arena.
const LEAST_BYTES: usize = 4 << 20;

/// An arena of at most `bytes`, in memory of this process. If that much address space is not available, a
/// smaller range is used; a table that outgrows it gets a typed error.
/// # Errors
/// [`ApplyError::ArenaFull`].
pub(crate) fn reserve(bytes: usize) -> Result<Arena, ApplyError> {
    let ranges = std::iter::successors(Some(bytes), |&bytes| Some(bytes / 2)).take_while(|&bytes| bytes >= LEAST_BYTES);
    let arena = ranges.map(Arena::reserve).find_map(Result::ok);
    arena.ok_or(ApplyError::ArenaFull { needed_bytes: bytes, limit_bytes: 0 })
}

/// The size of an arena for a table of at most `bytes`, with room for small ones.
pub(crate) fn arena_bytes(bytes: usize) -> usize {
    bytes.saturating_add(LEAST_BYTES).min(u32::MAX as usize * LINE)
}

/// What the writer writes often, apart from what readers poll.
#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

/// What the writer and all readers share. The structure adds `extra`.
struct Shared<X> {
    arena: Arena,
    domain: Domain,
    gate: Apart<Gate>,
    /// Whether enough of the arena is in use for prefetches to pay.
    prefetch: AtomicBool,
    extra: X,
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
    /// The lock behind the counter of writes in place.
    pub(crate) gate: &'a Gate,
    pub(crate) extra: &'a X,
}

impl<'a, X> Served<'a, X> {
    /// What guards writes in place.
    #[inline(always)]
    pub(crate) fn edits(&self) -> Edits<'a> {
        // SAFETY: `base` is that of an arena that lives as long.
        unsafe { edits(self.base, self.gate) }
    }
}

/// What guards writes in place to the table at `base`.
/// # Safety
/// `base` is that of an arena with a root, which lives as long as the result.
#[inline(always)]
pub(crate) unsafe fn edits<'a>(base: *const u8, gate: &'a Gate) -> Edits<'a> {
    // SAFETY: by the caller's contract.
    Edits { journal: unsafe { &Root::at(base).counters().journal }, gate }
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
    /// Lines that were replaced and that readers may still use.
    retired: VecDeque<(Epoch, (u32, u32))>,
    retired_bytes: usize,
    /// Lines from here on were never published.
    fresh: u32,
    /// The lines of the directory, and of the annex.
    directory: (u32, u32),
    annex: (u32, u32),
}

impl<G: Copy, X> ServedParts<G, X> {
    /// A table without parts, over an arena that is zero.
    /// # Errors
    /// [`ApplyError::ArenaFull`].
    pub(crate) fn new(arena: Arena, form: Form, reads: Reads, extra: X) -> Result<Self, ApplyError> {
        let mut lines = Lines::new(arena.bytes());
        let bytes = arena.bytes();
        let full = ApplyError::ArenaFull { needed_bytes: (ROOT_LINES as usize + 1) * LINE, limit_bytes: bytes };
        arena.commit((ROOT_LINES as usize + 1) * LINE).map_err(|_| full.clone())?;
        let root = lines.take(ROOT_LINES).filter(|&line| line == 0);
        let directory = lines.take(1).filter(|_| root.is_some()).ok_or(full)?;
        Root::of(&arena).describe(form, bytes);
        Root::of(&arena).follow(directory, 0);
        let prefetch = AtomicBool::new(false);
        let shared = Shared { arena, domain: Domain::new(), gate: Apart::default(), prefetch, extra };
        Ok(Self {
            shared: Arc::new(shared),
            fresh: ROOT_LINES + 1,
            lines,
            parts: Directory::empty(),
            reads,
            retired: VecDeque::new(),
            retired_bytes: 0,
            directory: (directory, 1),
            annex: (0, 0),
        })
    }

    /// What lookups through the writer's handle follow.
    pub(crate) fn served(&self) -> Served<'_, X> {
        // SAFETY: this writer alone replaces the directory.
        unsafe { served(&self.shared) }
    }

    /// The root of the table.
    pub(crate) fn root(&self) -> &Root {
        Root::of(&self.shared.arena)
    }

    /// Writes words into lines that no reader follows yet, from the first on.
    pub(crate) fn fill(&self, (start, n): (u32, u32), words: impl Iterator<Item = u64>) {
        let room = n as usize * LINE / 8;
        for (at, word) in words.enumerate() {
            assert!(at < room, "more words than there are lines for");
            // SAFETY: the lines are in the arena, and words are aligned. A reader in another program may look at them,
            // but throws away what it sees; hence the atomic store.
            unsafe { AtomicU64::from_ptr(self.address(start).cast::<u64>().add(at)) }.store(word, Ordering::Relaxed);
        }
    }

    /// Writes in place, only at `place`. Readers see all of it or nothing. `changed` are addresses in the words that
    /// `write` changes.
    pub(crate) fn edit_at(&self, place: u64, changed: impl Iterator<Item = *mut u8>, write: impl FnOnce()) {
        let edits = self.served().edits();
        if self.shared.arena.is_shared() {
            let base = self.address(0).addr();
            let note = changed.map(|address| {
                let at = (address.addr() - base) / 8;
                // SAFETY: a word of a part that is served.
                let word = unsafe { AtomicU64::from_ptr(self.address(0).cast::<u64>().add(at)) };
                (at as u64, word.load(Ordering::Relaxed))
            });
            self.root().undo().note(edits.journal, note);
        }
        edits.write_at(place, write);
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
        let taken = taken.filter(|&start| {
            let is_there = self.shared.arena.commit((start + n) as usize * LINE).is_ok();
            if !is_there {
                self.lines.give(start, n);
            }
            is_there
        });
        let arena_bytes = self.shared.arena.bytes();
        self.note_use();
        let start = taken.ok_or(match self.retired_bytes {
            0 => ApplyError::ArenaFull { needed_bytes: bytes, limit_bytes: arena_bytes },
            retired_bytes => ApplyError::ReadersStalled { retired_bytes, limit_bytes: limit_bytes.min(arena_bytes) },
        })?;
        if start < self.fresh {
            self.root().counters().reuse.announce();
        }
        self.fresh = self.fresh.max(start + n);
        Ok((start, n))
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
    /// # Errors
    /// As [`ServedParts::take`]; nothing changes, and the lines of the new parts are free.
    pub(crate) fn install(&mut self, parts: Vec<Held<G>>) -> Result<(), ApplyError> {
        if let Err(error) = self.deepen(parts.iter().map(|held| held.id.depth).max().unwrap_or(0)) {
            parts.into_iter().for_each(|held| self.give(held.block));
            return Err(error);
        }
        let mut replaced: Vec<u32> = parts.iter().flat_map(|held| self.parts.slots_of(held.id)).collect();
        replaced.sort_unstable();
        replaced.dedup();
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
        Ok(())
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
        self.retired.push_back((epoch, (start, n)));
    }

    /// Replaces the directory by one that looks at `depth` bits, unless it already does.
    fn deepen(&mut self, depth: u8) -> Result<(), ApplyError> {
        if depth <= self.parts.depth() {
            return Ok(());
        }
        let times = 1 << (depth - self.parts.depth());
        let block = self.take(8 << depth)?;
        let entries = self.served().entries.iter();
        self.fill(block, entries.flat_map(|entry| std::iter::repeat_n(entry.load(), times)));
        self.parts.deepen(depth);
        self.follow(block, depth);
        Ok(())
    }

    /// Replaces the directory by a smaller one, if its parts need no more and there is room for it.
    fn shrink(&mut self) {
        let (depth, deepest) = (self.parts.depth(), self.parts.deepest());
        if deepest < depth
            && let Ok(block) = self.take(8 << deepest)
        {
            let step = 1 << (depth - deepest);
            self.fill(block, self.served().entries.iter().step_by(step).map(Entry::load));
            self.parts.shrink();
            self.follow(block, deepest);
        }
    }

    /// Publishes a directory, and retires the one before.
    fn follow(&mut self, block: (u32, u32), depth: u8) {
        self.root().follow(block.0, depth);
        let old = std::mem::replace(&mut self.directory, block);
        self.retire(old);
    }

    /// Reclaims what no reader can use any more.
    fn reclaim(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let completed = self.shared.domain.completed();
        while let Some((_, (start, n))) = self.retired.pop_front_if(|(epoch, _)| *epoch <= completed) {
            self.retired_bytes -= n as usize * LINE;
            self.lines.give(start, n);
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

impl<G: Copy, X> Outside for ServedParts<G, X> {
    fn form(&self) -> Form {
        self.root().form()
    }

    fn complete(&self, names: [u64; 5], writer: [u64; 2]) {
        self.root().complete(names, writer);
    }

    fn set_annex(&mut self, bytes: &[u8]) -> Result<(), ApplyError> {
        let block = self.take(bytes.len().max(1))?;
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        self.fill(block, words);
        self.root().annex(block.0, bytes.len() as u32);
        let old = std::mem::replace(&mut self.annex, block);
        if old.1 > 0 {
            self.retire(old);
        }
        Ok(())
    }
}

/// # Safety
/// Until the result is dropped, the directory is not written over: the caller is the writer, or pinned.
unsafe fn served<X>(shared: &Shared<X>) -> Served<'_, X> {
    let root = Root::of(&shared.arena);
    let (line, depth) = root.directory();
    let base = shared.arena.base();
    // SAFETY: the directory has 2^depth entries from that line on, which are atomic words. By the caller's contract they
    // stay entries.
    let entries = unsafe { std::slice::from_raw_parts(base.add(line as usize * LINE).cast(), 1 << depth) };
    let prefetch = shared.prefetch.load(Ordering::Relaxed);
    Served { entries, depth, base, prefetch, gate: &shared.gate.0, extra: &shared.extra }
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
        // SAFETY: lines that are found while pinned are not written over before this reader is quiescent, that is,
        // before the borrow of `self` in the result ends and `pin` or `offline` is called.
        (unsafe { served(&self.shared) }, pin)
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
        unsafe { served(&self.shared) }
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

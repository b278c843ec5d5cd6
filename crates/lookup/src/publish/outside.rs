//! Readers that the writer does not know: other programs and the kernel, which map the memory of a table read-only.
//!
//! They announce nothing, so no writer ever waits for one, whether it sleeps or dies. Instead each burst is checked
//! afterwards by two counters of the writer, and repeated if one of them moved:
//!
//! ```text
//! writer                                            outside reader
//!   entry.publish(new), until readers inside left     r = reuse.load(Acquire)
//!   reuse.store(r + 1, Release)                       n = count.load(Acquire)
//!   fence(Release)                                    entry.load(Acquire), cells, Relaxed
//!   words of the reused memory, Relaxed               fence(Acquire)
//!   entry.publish(next)                               reuse, count, Relaxed: r and n again ?
//! ```
//! [`Reuse`] covers memory of old versions, which the writer writes again once the readers that it knows have left it. A
//! reader that saw a word of the new content sees, after its fence, that the counter moved; one that begins at the later
//! count sees what was unpublished before. `count` is that of the [`Journal`], for writes in place.
//!
//! **A writer that dies in the middle of a write in place** leaves the count odd for ever. Before each such write it
//! notes the words that it will change, in an [`Undo`]. So a reader that finds an odd count need not wait: it takes
//! these words from the note, and has everything as it was before the write.
//!
//! ```text
//! fence(Release)                                    n = count.load(Acquire), odd
//! places and old words in the note, Relaxed         words, Relaxed; those of the note from the note, Relaxed
//! write under the Journal                           fence(Acquire); count.load(Relaxed) == n ?
//! ```
//! Checked by loom, with mutants: `tests/loom_outside.rs`.

use super::Journal;
#[cfg(loom)]
use super::mutants;
use super::sync::{AtomicU64, Ordering, fence, required, step};

/// Words that a note has room for. One is enough for loom to see a note overflow.
pub const UNDO_WORDS: usize = if cfg!(loom) { 2 } else { 239 };
/// In place of a number of words: the write changes more than a note has room for.
const TOO_MANY: u64 = u64::MAX;

/// Counts how often memory that was published before is written again.
#[repr(transparent)]
#[derive(Debug)]
pub struct Reuse(AtomicU64);

impl Reuse {
    /// Nothing was written again yet.
    pub fn new() -> Reuse {
        Reuse(AtomicU64::new(0))
    }

    /// Announces that the writer writes memory that was published before, and is so no longer. It then stores the words
    /// relaxed, and publishes them.
    pub fn announce(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, required!(ReuseStoredRelaxed, Release));
        step!(ReuseUnfenced, fence(Ordering::Release));
    }
}

impl Default for Reuse {
    fn default() -> Reuse {
        Reuse::new()
    }
}

/// The words that a write in place will change, as they were before it.
#[repr(C)]
#[derive(Debug)]
pub struct Undo {
    n: AtomicU64,
    /// Place and old content.
    words: [[AtomicU64; 2]; UNDO_WORDS],
}

impl Undo {
    /// An empty note.
    pub fn new() -> Undo {
        Undo { n: AtomicU64::new(0), words: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))) }
    }

    /// Notes what the next write under `journal` will change: places and old contents. More than [`UNDO_WORDS`] are not
    /// noted; outside readers then wait until the write is over.
    pub fn note(&self, journal: &Journal, words: impl IntoIterator<Item = (u64, u64)>) {
        // Orders the end of the previous write before this note: a reader that sees the note sees that the write is over.
        step!(NoteUnfenced, fence(Ordering::Release));
        let mut n = 0;
        if journal.is_written() {
            // A write that was dropped half done becomes part of the next one, and its note is of no use.
            return self.n.store(TOO_MANY, Ordering::Relaxed);
        }
        for (place, content) in words {
            let Some(slot) = self.words.get(n as usize) else {
                n = TOO_MANY;
                break;
            };
            slot[0].store(place, Ordering::Relaxed);
            slot[1].store(content, Ordering::Relaxed);
            n += 1;
        }
        self.n.store(n, Ordering::Relaxed);
    }
}

impl Default for Undo {
    fn default() -> Undo {
        Undo::new()
    }
}

/// The counters of a table, in one cache line: outside readers poll both.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Counters {
    /// Of writes in place.
    pub journal: Journal,
    /// Of memory that is written again.
    pub reuse: Reuse,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Counters>() == 64 && size_of::<Undo>() == 8 + 16 * UNDO_WORDS);

/// What an outside reader does, for the models: real ones are written in C and for the kernel.
#[cfg(loom)]
mod reader {
    use super::mutants::Mutant;
    use super::*;

    impl Reuse {
        /// Begins to read: before the first entry is loaded.
        #[inline(always)]
        pub fn begin(&self) -> u64 {
            self.0.load(required!(ReuseBegunRelaxed, Acquire))
        }

        /// Whether everything that was loaded since [`begin`](Self::begin) returned `since` was still what was published.
        /// After an Acquire fence, which is that of [`Journal::is_at`].
        #[inline(always)]
        pub fn is_at(&self, since: u64) -> bool {
            self.0.load(Ordering::Relaxed) == since
        }
    }

    /// What a word was before a write that is under way.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Before {
        /// It is not written.
        Same,
        /// This.
        Was(u64),
        /// The write changes too many words to be noted: wait for its end.
        Unknown,
    }

    impl Undo {
        /// What the write that is under way changes of the word at `place`. It counts if the journal did not move meanwhile.
        pub fn before(&self, place: u64) -> Before {
            let n = self.n.load(Ordering::Relaxed);
            let Some(noted) = self.words.get(..n as usize) else { return Before::Unknown };
            let slot = noted.iter().find(|slot| slot[0].load(Ordering::Relaxed) == place);
            slot.map_or(Before::Same, |slot| Before::Was(slot[1].load(Ordering::Relaxed)))
        }
    }

    impl Counters {
        /// What an outside reader does: `read` gets a function that says what a word was before a write that is under way.
        /// `None` if the writer interfered: read again.
        pub fn read_outside<T>(&self, undo: &Undo, read: impl FnOnce(&dyn Fn(u64) -> Before) -> T) -> Option<T> {
            let reused = self.reuse.begin();
            let since = self.journal.begin();
            let is_written = self.journal.is_odd(since) && !Mutant::NoteIgnored.is_active();
            let found = read(&|place| if is_written { undo.before(place) } else { Before::Same });
            (self.journal.is_at(since) && self.reuse.is_at(reused)).then_some(found)
        }
    }
}

#[cfg(loom)]
pub use reader::Before;

//! A sequence counter that records where its latest writes were. A reader of many places that overlapped a write reads
//! again only the places written.
//!
//! ```text
//! write k                                          reader
//!   places[k mod N].store(place, Release)            n = count.load(Acquire)      may be odd: a write is under way
//!   fence(Release)                                   cells, Relaxed
//!   count.store(2k + 1, Relaxed)                     fence(Acquire)
//!   fence(Release)                                   count.load(Relaxed) == n, even: all of it is consistent
//!   cells of the place, Relaxed                      otherwise m = count.load(Relaxed):
//!   count.store(2k + 2, Release)                       writes n/2 to (m - 1)/2 may have been seen in part:
//!                                                      their places.load(Acquire)
//!                                                      count.load(Relaxed) < 2 (n/2 + N) ? those places : anywhere
//! ```
//! A reader that saw any cell of a write sees, after its fence, the odd count and the place of that write: the writer's
//! second fence orders these before the cells. A reader that begins at an odd count sees all writes before that one
//! complete: the first fence orders their commits before that count. Write k + N - 1 is committed before the place of
//! write k is overwritten, so a reader that saw the later place finds a count of at least 2 (k + N). Checked by loom,
//! with mutants: `tests/loom_publish.rs`.

use super::sequence::odd_is_ignored;
use super::sync::{AtomicU64, Ordering, fence, required, step};
use super::{Sequence, WriteGuard};

/// Writes whose places are recorded. One is enough for loom to see them overwritten.
const PLACES: usize = if cfg!(loom) { 1 } else { 4 };
/// In place of a place: the write may be anywhere.
pub const ANYWHERE: u64 = u64::MAX;

/// The counter and the places of its latest writes.
#[derive(Debug)]
#[repr(C)]
pub struct Journal {
    sequence: Sequence,
    places: [AtomicU64; PLACES],
}

/// The count that a reader began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since(u64);

/// Where the writer wrote while a reader read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    places: [u64; PLACES],
}

impl Written {
    /// Whether what was read at `place`, which is not [`ANYWHERE`], may be inconsistent.
    #[inline]
    pub fn is_at(&self, place: u64) -> bool {
        self.is_where(|written| written == place)
    }

    /// As [`is_at`](Self::is_at), where a place is more than a number to compare: `met` says whether the reads met a
    /// write at a place. It is not asked about [`ANYWHERE`].
    #[inline]
    pub fn is_where(&self, met: impl Fn(u64) -> bool) -> bool {
        self.places.iter().any(|&written| written == ANYWHERE || met(written))
    }
}

impl Journal {
    /// A journal without writes.
    pub fn new() -> Journal {
        Journal { sequence: Sequence::new(), places: std::array::from_fn(|_| AtomicU64::new(ANYWHERE)) }
    }

    /// The counter, for readers that do not use places.
    #[inline(always)]
    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// Begins to read. Then load the cells, relaxed.
    #[inline(always)]
    pub fn begin(&self) -> Since {
        Since(self.sequence.count(required!(JournalBegunRelaxed, Acquire)))
    }

    /// Whether everything loaded since `since` is from one moment. Otherwise call [`written`](Self::written).
    #[inline(always)]
    pub fn is_unchanged(&self, since: Since) -> bool {
        step!(JournalValidatedUnfenced, fence(Ordering::Acquire));
        (since.0.is_multiple_of(2) || odd_is_ignored()) && self.sequence.count(Ordering::Relaxed) == since.0
    }

    /// Whether a write was under way at `since`. For the models of readers in other programs.
    #[cfg(loom)]
    pub fn is_odd(&self, since: Since) -> bool {
        !since.0.is_multiple_of(2)
    }

    /// Whether the count is still that of `since`, odd or even: no write began or ended between. For readers that know
    /// what an unfinished write changes.
    #[cfg(loom)]
    pub fn is_at(&self, since: Since) -> bool {
        step!(JournalValidatedUnfenced, fence(Ordering::Acquire));
        self.sequence.count(Ordering::Relaxed) == since.0
    }

    /// Whether a write is under way. For the writer.
    pub(crate) fn is_written(&self) -> bool {
        !self.sequence.count(Ordering::Relaxed).is_multiple_of(2)
    }

    /// Where writes may have overlapped the reads since `since`. Call it if [`is_unchanged`](Self::is_unchanged) is
    /// false.
    pub fn written(&self, since: Since) -> Written {
        let anywhere = Written { places: [ANYWHERE; PLACES] };
        let first = since.0 >> 1;
        let n_begun = (self.sequence.count(Ordering::Relaxed) + 1) >> 1;
        if n_begun <= first || n_begun - first > PLACES as u64 {
            return anywhere;
        }
        // If there were fewer writes than places, the last place fills the rest.
        let place = |write: u64| self.slot(write).load(required!(PlaceLoadedRelaxed, Acquire));
        let places = std::array::from_fn(|at| place((first + at as u64).min(n_begun - 1)));
        let is_overwritten = self.sequence.count(Ordering::Relaxed) >> 1 >= first + PLACES as u64;
        if is_overwritten && !overwriting_is_ignored() { anywhere } else { Written { places } }
    }

    /// Begins to write only at `place`, which may be any number that readers use for it, or [`ANYWHERE`].
    pub fn write(&self, place: u64) -> WriteGuard<'_> {
        let count = self.sequence.count(Ordering::Relaxed);
        // A write that was dropped half done becomes part of this one, wherever it was.
        let place = if count.is_multiple_of(2) { place } else { ANYWHERE };
        self.slot(count >> 1).store(place, required!(PlaceStoredRelaxed, Release));
        step!(BegunUnfenced, fence(Ordering::Release));
        self.sequence.write()
    }

    fn slot(&self, write: u64) -> &AtomicU64 {
        &self.places[write as usize % PLACES]
    }
}

impl Default for Journal {
    fn default() -> Journal {
        Journal::new()
    }
}

/// Always false, except in the model that shows why an overwritten place must be detected.
fn overwriting_is_ignored() -> bool {
    #[cfg(loom)]
    return super::mutants::Mutant::OverwritingIgnored.is_active();
    #[cfg(not(loom))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_learns_where_the_writes_were_that_it_met() {
        let journal = Journal::new();
        journal.write(7).commit();
        let since = journal.begin();
        assert!(journal.is_unchanged(since));
        let write = journal.write(8);
        assert!(!journal.is_unchanged(since) && !journal.is_unchanged(journal.begin()));
        // Begun while that write is under way.
        let later = journal.begin();
        write.commit();
        journal.write(9).commit();
        for (since, at) in [(since, [false, true, true]), (later, [false, true, true])] {
            let written = journal.written(since);
            assert_eq!([7, 8, 9].map(|place| written.is_at(place)), at);
        }
        assert!(journal.is_unchanged(journal.begin()));
    }

    #[test]
    fn a_reader_that_slept_reads_all_again() {
        for n_writes in 1..10u64 {
            let journal = Journal::new();
            let since = journal.begin();
            (0..n_writes).for_each(|place| journal.write(place).commit());
            // The next write may already be overwriting the oldest slot.
            assert_eq!(journal.written(since).is_at(100), n_writes >= PLACES as u64, "{n_writes} writes");
        }
    }

    #[test]
    fn a_write_that_was_dropped_may_be_anywhere() {
        let journal = Journal::new();
        let since = journal.begin();
        drop(journal.write(1));
        assert!(!journal.is_unchanged(since) && journal.written(since).is_at(1) && !journal.written(since).is_at(2));
        journal.write(2).commit();
        assert!(journal.written(since).is_at(1) && journal.written(since).is_at(3));
        assert!(journal.is_unchanged(journal.begin()));
    }
}

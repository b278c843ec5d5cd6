//! A sequence counter that remembers where its latest writes were: a reader of many places that met the writer reads
//! again what was written, and not all of it.
//!
//! ```text
//! write k                                          reader
//!   places[k mod N].store(place, Release)            n = count.load(Acquire)      odd: a write is under way, never mind
//!   fence(Release)                                   cells, Relaxed
//!   count.store(2k + 1, Relaxed)                     fence(Acquire)
//!   fence(Release)                                   count.load(Relaxed) == n, even: all of it stands
//!   cells of the place, Relaxed                      otherwise m = count.load(Relaxed):
//!   count.store(2k + 2, Release)                       writes n/2 to (m - 1)/2 may have been seen in part:
//!                                                      their places.load(Acquire)
//!                                                      count.load(Relaxed) < 2 (n/2 + N) ? those places : anywhere
//! ```
//! A reader who saw any cell of a write finds, after his fence, its odd count and its place: the writer's second fence
//! stands between those and the cells. One who begins at an odd count has all writes before that one behind him: the first
//! fence stands between their commits and it. The place of write k is overwritten after write k + N - 1 was committed: who
//! met the later place finds a count of at least 2 (k + N). Checked by loom, with mutants: `tests/loom_publish.rs`.

use super::sequence::odd_is_ignored;
use super::sync::{AtomicU64, Ordering, fence, required, step};
use super::{Sequence, WriteGuard};

/// Writes whose places are remembered. One is enough for loom to see them overwritten.
const PLACES: usize = if cfg!(loom) { 1 } else { 4 };
/// Instead of a place: a write that may be anywhere.
pub const ANYWHERE: u64 = u64::MAX;

/// The counter, and the places of its latest writes beside it in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Journal {
    sequence: Sequence,
    places: [AtomicU64; PLACES],
}

/// The count that a reader began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since(u64);

/// Where was written while a reader read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    places: [u64; PLACES],
}

impl Written {
    /// Whether what was read at `place`, which is not [`ANYWHERE`], may be from no one moment.
    #[inline]
    pub fn is_at(&self, place: u64) -> bool {
        self.places.iter().any(|&written| written == place || written == ANYWHERE)
    }
}

impl Journal {
    /// A journal without a write.
    pub fn new() -> Journal {
        Journal { sequence: Sequence::new(), places: std::array::from_fn(|_| AtomicU64::new(ANYWHERE)) }
    }

    /// The counter, for readers to whom places say nothing.
    #[inline(always)]
    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// Begins to read. Then load the cells, relaxed.
    #[inline(always)]
    pub fn begin(&self) -> Since {
        Since(self.sequence.count(required!(JournalBegunRelaxed, Acquire)))
    }

    /// Whether all that was loaded since is from one moment; otherwise ask [`written`](Self::written).
    #[inline(always)]
    pub fn is_unchanged(&self, since: Since) -> bool {
        step!(JournalValidatedUnfenced, fence(Ordering::Acquire));
        (since.0.is_multiple_of(2) || odd_is_ignored()) && self.sequence.count(Ordering::Relaxed) == since.0
    }

    /// Where writes may have met the reader since, after [`is_unchanged`](Self::is_unchanged) said no.
    pub fn written(&self, since: Since) -> Written {
        let anywhere = Written { places: [ANYWHERE; PLACES] };
        let first = since.0 >> 1;
        let n_begun = (self.sequence.count(Ordering::Relaxed) + 1) >> 1;
        if n_begun <= first || n_begun - first > PLACES as u64 {
            return anywhere;
        }
        // A place that stands for the others where there were fewer writes.
        let place = |write: u64| self.slot(write).load(required!(PlaceLoadedRelaxed, Acquire));
        let places = std::array::from_fn(|at| place((first + at as u64).min(n_begun - 1)));
        let is_overwritten = self.sequence.count(Ordering::Relaxed) >> 1 >= first + PLACES as u64;
        if is_overwritten && !overwriting_is_ignored() { anywhere } else { Written { places } }
    }

    /// Begins to write at `place`, any number that readers would call it, and nowhere else; or [`ANYWHERE`].
    pub fn write(&self, place: u64) -> WriteGuard<'_> {
        let count = self.sequence.count(Ordering::Relaxed);
        // The write that was dropped half done is this one from now on, wherever it was.
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

/// Always false, but in the model that shows why an overwritten place must be noticed.
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
            // The last slot but one may be under way to another place.
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

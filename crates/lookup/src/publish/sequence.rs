//! A 64-bit sequence counter: readers detect a concurrent write, and try again.
//!
//! ```text
//! writer                                 reader
//!   s.store(n + 1, Relaxed)   odd          n = s.load(Acquire); odd: a write is under way
//!   fence(Release)                         cells, Relaxed
//!   cells, Relaxed                         fence(Acquire)
//!   s.store(n + 2, Release)                s.load(Relaxed) == n ?
//! ```
//! The release fence orders the odd count before the stores of cells: a reader that has seen one of them sees, after
//! its acquire fence, at least that count. 64 bits do not wrap: at 10^9 writes per second they last 292 years.

use super::sync::{AtomicU64, Ordering, fence, required, step};

/// Counts the writes to a group of atomic cells: odd while one is under way. One writer at a time.
///
/// The caller bounds the retries. A reader that gives up needs another way (the exact table, a drop).
#[repr(transparent)]
#[derive(Debug)]
pub struct Sequence(AtomicU64);

/// The count that a reader began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(u64);

impl Sequence {
    /// A counter at rest.
    pub fn new() -> Sequence {
        Sequence(AtomicU64::new(0))
    }

    /// The count: odd while a write is under way.
    #[inline(always)]
    pub(super) fn count(&self, ordering: Ordering) -> u64 {
        self.0.load(ordering)
    }

    /// Begins to read. Then load the cells, relaxed. `None` while a write is under way.
    #[inline(always)]
    pub fn read_begin(&self) -> Option<Stamp> {
        let count = self.0.load(required!(ReadBegunRelaxed, Acquire));
        (count.is_multiple_of(2) || odd_is_ignored()).then_some(Stamp(count))
    }

    /// Whether everything loaded since `stamp` is from one moment. Otherwise discard it and begin again.
    #[inline(always)]
    pub fn read_validate(&self, stamp: Stamp) -> bool {
        step!(ValidatedUnfenced, fence(Ordering::Acquire));
        self.0.load(Ordering::Relaxed) == stamp.0
    }

    /// Begins to write; then store the cells, relaxed, and [`commit`](WriteGuard::commit).
    ///
    /// A guard dropped without a commit (a panic, say) leaves the counter odd, so that no reader accepts a half-written
    /// group. The next write continues from there.
    pub fn write(&self) -> WriteGuard<'_> {
        let odd = self.0.load(Ordering::Relaxed) | 1;
        self.0.store(odd, Ordering::Relaxed);
        step!(WriteUnfenced, fence(Ordering::Release));
        WriteGuard { sequence: self, odd }
    }
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence::new()
    }
}

/// A write under way.
#[must_use = "a write that is not committed refuses all readers"]
#[derive(Debug)]
pub struct WriteGuard<'a> {
    sequence: &'a Sequence,
    odd: u64,
}

impl WriteGuard<'_> {
    /// Ends the write: readers that begin from now on see it whole.
    pub fn commit(self) {
        self.sequence.0.store(self.odd + 1, required!(CommittedRelaxed, Release));
    }
}

/// Always false, except in the model that shows why an odd count must be refused.
#[inline(always)]
pub(super) fn odd_is_ignored() -> bool {
    #[cfg(loom)]
    return super::mutants::Mutant::OddIgnored.is_active();
    #[cfg(not(loom))]
    false
}

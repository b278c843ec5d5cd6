//! A burst of names in a filter that is too large for the nearest caches is looked up in these steps:
//!
//! ```text
//! 1. the first two positions of every name          fetch their words
//! 2. read them; names whose bits are both one go on, collected without a branch
//! 3. the next two of those                          the same
//! 4. all others of those that are left              the same; what is left now is positive
//! ```
//! Nothing predicts whether a bit is one, so no branch depends on a bit; and no fetch waits for another.

use crate::base::prefetch::BURST;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::layout::{Layout, Places};
use super::sizing::MAX_HASHES;
use crate::base::prefetch::prefetch;
use crate::hash::Digest;

/// Positions that are read before the others are computed: in a well-filled filter each rejects half the aliens.
const FIRST: usize = 2;
/// Positions that are read before the last ones are computed: a sixteenth of the aliens remains then.
const SECOND: usize = 4;

/// The words of a filter, with or without a concurrent writer.
pub(crate) trait Memory {
    /// The word at `index`.
    fn word(&self, index: usize) -> u64;
    /// Starts fetching it.
    fn fetch(&self, index: usize);

    /// Whether all of `bits` are one. Reads them all: a branch per bit would cost more in mispredictions than it saves.
    #[inline(always)]
    fn are_ones(&self, bits: impl Iterator<Item = u64>) -> bool {
        bits.fold(1, |ones, bit| ones & self.word((bit / 64) as usize) >> (bit % 64)) & 1 != 0
    }

    /// Starts fetching the words of `bits`.
    #[inline(always)]
    fn fetch_bits(&self, bits: impl Iterator<Item = u64>) {
        bits.for_each(|bit| self.fetch((bit / 64) as usize));
    }
}

impl Memory for [u64] {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self[index]
    }

    #[inline(always)]
    fn fetch(&self, index: usize) {
        prefetch(self.as_ptr().wrapping_add(index).cast());
    }
}

impl Memory for [AtomicU64] {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self[index].load(Relaxed)
    }

    #[inline(always)]
    fn fetch(&self, index: usize) {
        prefetch(self.as_ptr().wrapping_add(index).cast());
    }
}

/// Scratch space for the positions of one burst; reused for many bursts.
pub struct Scratch([u64; BURST * MAX_HASHES as usize]);

impl Default for Scratch {
    fn default() -> Self {
        Self([0; BURST * MAX_HASHES as usize])
    }
}

/// Writes the indices of those of up to [`BURST`] names whose bits are all one to `positive`, in order; returns their
/// number.
#[inline(always)]
pub(crate) fn positives<L: Layout>(
    places: &Places<L>,
    memory: &(impl Memory + ?Sized),
    digests: &[Digest],
    scratch: &mut Scratch,
    positive: &mut [u8; BURST],
) -> usize {
    let mut first = [[0; FIRST]; BURST];
    for (first, &digest) in first.iter_mut().zip(digests) {
        // A single position is read twice.
        let mut bits = places.of(digest);
        let one = bits.next().unwrap_or(0);
        *first = [one, bits.next().unwrap_or(one)];
        memory.fetch_bits(first.iter().copied());
    }
    let mut n_waiting = 0;
    for (index, first) in first[..digests.len()].iter().enumerate() {
        positive[n_waiting] = index as u8;
        n_waiting += usize::from(memory.are_ones(first.iter().copied()));
    }
    for positions in later(places.shape().n_hashes()) {
        n_waiting = narrow(places, memory, digests, positions, scratch, &mut positive[..n_waiting]);
    }
    n_waiting
}

/// As [`positives`], for a filter that is in cache: nothing is prefetched, and no position is kept.
#[inline(always)]
pub(super) fn positives_near<L: Layout>(
    places: &Places<L>,
    memory: &(impl Memory + ?Sized),
    digests: &[Digest],
    positive: &mut [u8; BURST],
) -> usize {
    let mut n_left = 0;
    for (index, &digest) in digests.iter().enumerate() {
        positive[n_left] = index as u8;
        n_left += usize::from(memory.are_ones(places.of(digest).take(FIRST)));
    }
    for positions in later(places.shape().n_hashes()) {
        let n_waiting = std::mem::take(&mut n_left);
        for place in 0..n_waiting {
            let index = positive[place];
            let bits = places.of(digests[usize::from(index)]).skip(positions.start).take(positions.len());
            positive[n_left] = index;
            n_left += usize::from(memory.are_ones(bits));
        }
    }
    n_left
}

/// The positions after the first ones, grouped by the step that reads them.
#[inline(always)]
fn later(n_hashes: u32) -> impl Iterator<Item = Range<usize>> {
    let n_hashes = n_hashes as usize;
    [FIRST..n_hashes.min(SECOND), SECOND..n_hashes].into_iter().filter(|positions| !positions.is_empty())
}

/// Moves those of `waiting` whose bits at `positions` are all one to the front; returns their number.
#[inline(always)]
fn narrow<L: Layout>(
    places: &Places<L>,
    memory: &(impl Memory + ?Sized),
    digests: &[Digest],
    positions: Range<usize>,
    scratch: &mut Scratch,
    waiting: &mut [u8],
) -> usize {
    let n = positions.len();
    for (&index, bits) in waiting.iter().zip(scratch.0.chunks_exact_mut(n)) {
        for (to, bit) in bits.iter_mut().zip(places.of(digests[usize::from(index)]).skip(positions.start)) {
            *to = bit;
            memory.fetch((bit / 64) as usize);
        }
    }
    let mut n_left = 0;
    for (place, bits) in (0..waiting.len()).zip(scratch.0.chunks_exact(n)) {
        waiting[n_left] = waiting[place];
        n_left += usize::from(memory.are_ones(bits.iter().copied()));
    }
    n_left
}

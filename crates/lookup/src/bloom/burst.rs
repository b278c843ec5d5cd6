//! A burst of names in a filter is looked up in these steps:
//!
//! ```text
//! 1. the first positions of every name      four by vector loops, or two; in a large filter, fetch the words of two
//! 2. read them (large filter: two, then fetch and read the others of names that go on);
//!    names whose bits are all one go on, collected without a branch
//! 3. up to four positions, and then all others, of those that are left: the same; what is left now is positive
//! ```
//! Nothing predicts whether a bit is one, so no branch depends on a bit; and no fetch waits for another.

use crate::base::prefetch::BURST;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::layout::{Layout, Places};
use super::sizing::MAX_HASHES;
use crate::base::prefetch::prefetch;
use crate::hash::Digest;

/// Positions that are read before others are fetched: in a well-filled filter each rejects half the aliens.
const FIRST: usize = 2;
/// Positions that are read before the last ones are computed: a sixteenth of the aliens remains then. As many are
/// computed for all names at once where that is a vector loop.
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
    let n_hashes = places.shape().n_hashes() as usize;
    let at_once = n_hashes.min(if L::IN_VECTORS { SECOND } else { FIRST });
    let mut positions = [[0; BURST]; SECOND];
    places.of_burst(digests, at_once, &mut positions);
    let (first, second) = positions[..at_once].split_at(at_once.min(FIRST));
    for positions in first {
        memory.fetch_bits(positions[..digests.len()].iter().copied());
    }
    let mut n_waiting = all_ones(memory, first, digests.len(), positive);
    if !second.is_empty() {
        let bits = |index: u8| second.iter().map(move |positions| positions[usize::from(index)]);
        positive[..n_waiting].iter().for_each(|&index| memory.fetch_bits(bits(index)));
        n_waiting = keep(&mut positive[..n_waiting], |index| memory.are_ones(bits(index)));
    }
    for positions in later(at_once, n_hashes) {
        n_waiting = narrow(places, memory, digests, positions, scratch, &mut positive[..n_waiting]);
    }
    n_waiting
}

/// As [`positives`], for a filter that is in cache: nothing is prefetched.
#[inline(always)]
pub(super) fn positives_near<L: Layout>(
    places: &Places<L>,
    memory: &(impl Memory + ?Sized),
    digests: &[Digest],
    positive: &mut [u8; BURST],
) -> usize {
    let n_hashes = places.shape().n_hashes() as usize;
    let at_once = n_hashes.min(if L::IN_VECTORS { SECOND } else { FIRST });
    let mut positions = [[0; BURST]; SECOND];
    places.of_burst(digests, at_once, &mut positions);
    let mut n_waiting = all_ones(memory, &positions[..at_once], digests.len(), positive);
    for positions in later(at_once, n_hashes) {
        let bits = |index: u8| places.of(digests[usize::from(index)]).skip(positions.start).take(positions.len());
        n_waiting = keep(&mut positive[..n_waiting], |index| memory.are_ones(bits(index)));
    }
    n_waiting
}

/// The positions from `first` on, grouped by the step that reads them.
#[inline(always)]
fn later(first: usize, n_hashes: usize) -> impl Iterator<Item = Range<usize>> {
    let second = n_hashes.min(SECOND);
    [first..second, second..n_hashes].into_iter().filter(|positions| !positions.is_empty())
}

/// Writes to `positive` the indices of the first `n` names whose bits at `positions` are all one; returns their number.
#[inline(always)]
fn all_ones(
    memory: &(impl Memory + ?Sized),
    positions: &[[u64; BURST]],
    n: usize,
    positive: &mut [u8; BURST],
) -> usize {
    let mut ones = [1; BURST];
    for positions in positions {
        for (ones, &bit) in ones[..n].iter_mut().zip(positions) {
            *ones &= memory.word((bit / 64) as usize) >> (bit % 64);
        }
    }
    let mut n_positive = 0;
    for (index, ones) in ones[..n].iter().enumerate() {
        positive[n_positive] = index as u8;
        n_positive += (ones & 1) as usize;
    }
    n_positive
}

/// Moves those of `waiting` that `is_kept` to the front; returns their number.
#[inline(always)]
fn keep(waiting: &mut [u8], is_kept: impl Fn(u8) -> bool) -> usize {
    let mut n_left = 0;
    for place in 0..waiting.len() {
        let index = waiting[place];
        waiting[n_left] = index;
        n_left += usize::from(is_kept(index));
    }
    n_left
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

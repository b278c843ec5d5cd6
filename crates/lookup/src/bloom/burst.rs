//! Bursts of names are looked up in a filter in these steps:
//!
//! ```text
//! 1. the first positions of every name      four in cache; in a larger filter two, whose words are fetched
//! 2. read them; names whose bits are all one go on, collected without a branch
//! 3. in a larger filter, two more positions of those that are left: fetch, then read
//! 4. all others of those that are left: the same; what is left now is positive
//! ```
//! Nothing predicts whether a bit is one, so no branch depends on a bit; and no fetch waits for another. Processors with
//! AVX-512 have [loops](super::avx512) of their own for eight names at a time.
#![expect(unsafe_code, reason = "calls the loops that are compiled for another processor, on words of a filter")]

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::{Layout, Places, Rule};
use crate::base::atomic_words::AtomicWords;
use crate::base::prefetch::{BURST, prefetch};
#[cfg(target_arch = "x86_64")]
use crate::base::processor::Vectors;
use crate::base::processor::{Kernel, Reads, prefetch_pays};
use crate::base::words::Words;
use crate::hash::Digest;

/// Positions that are read before others are fetched: in a well-filled filter each rejects half the aliens.
pub(super) const FIRST: usize = 2;
/// Positions that are read before the last ones are computed: a sixteenth of the aliens remains then. As many are
/// computed for all names at once where that is a vector loop.
pub(super) const SECOND: usize = 4;
/// The most positions that are fetched at once.
pub(super) const MAX_STEP: usize = 8;

/// The words of a filter, with or without a concurrent writer.
/// # Safety
/// There are as many words as [`words`](Self::words) says while the memory is borrowed; the first starts a line of 64
/// bytes. Those of a concurrent writer are atomic.
pub(crate) unsafe trait Memory {
    /// The first word, at the start of a line, and the number of words.
    fn words(&self) -> (*const u64, usize);

    /// The word at `index`.
    fn word(&self, index: usize) -> u64;

    /// Starts fetching the word at `index`.
    #[inline(always)]
    fn fetch(&self, index: usize) {
        prefetch(self.words().0.wrapping_add(index).cast());
    }

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

// SAFETY: a slice of words, in lines.
unsafe impl Memory for Words {
    #[inline(always)]
    fn words(&self) -> (*const u64, usize) {
        (self.as_ptr(), self.len())
    }

    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self[index]
    }
}

// SAFETY: a slice of atomic words, in lines.
unsafe impl Memory for AtomicWords {
    #[inline(always)]
    fn words(&self) -> (*const u64, usize) {
        (self.as_ptr().cast(), self.len())
    }

    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self[index].load(Relaxed)
    }
}

/// Looks `digests` up, and calls `each` for each burst of them, in order, with the index of its first name and the names
/// whose bits are all one, one bit each.
#[inline]
pub(crate) fn bursts<L: Layout>(
    places: &Places<L>,
    memory: &impl Memory,
    digests: &[Digest],
    mut each: impl FnMut(usize, u32),
) {
    let (kernel, bytes) = (Kernel::get(), memory.words().1 * 8);
    bursts_by(kernel, !prefetch_pays(reads::<L>(kernel), bytes), places, memory, digests, &mut each);
}

/// As [`bursts`], by the loops of a kernel, and for a filter in cache or not.
#[inline]
pub(super) fn bursts_by<L: Layout>(
    kernel: Kernel,
    is_near: bool,
    places: &Places<L>,
    memory: &impl Memory,
    digests: &[Digest],
    each: &mut impl FnMut(usize, u32),
) {
    let (_, n_words) = memory.words();
    assert!(n_words as u64 >= places.shape().bits().div_ceil(64), "the words are those of a smaller filter");
    #[cfg(target_arch = "x86_64")]
    {
        if kernel.vectors() >= Vectors::Avx512
            // SAFETY: the processor has the instructions, and the filter this many words.
            && unsafe { super::avx512::bursts(places, memory.words(), (is_near, kernel.gathers()), digests, &mut *each) }
        {
            return;
        }
        if kernel.vectors() >= Vectors::Avx2 {
            // SAFETY: the processor has the instructions.
            return unsafe { bursts_avx2(places, memory, is_near, digests, each) };
        }
    }
    let _ = kernel;
    one_after_another(places, memory, is_near, digests, each);
}

/// Vector loops read the words of all names at known places. Others read those of a name one after the other, and some from
/// where the positions before end.
fn reads<L: Layout>(kernel: Kernel) -> Reads {
    #[cfg(target_arch = "x86_64")]
    if kernel.vectors() >= Vectors::Avx512 && !L::ONE_LINE {
        return Reads::Cells;
    }
    let _ = kernel;
    Reads::Line
}

/// The portable loops, compiled for processors with AVX2 and BMI2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn bursts_avx2<L: Layout>(
    places: &Places<L>,
    memory: &impl Memory,
    is_near: bool,
    digests: &[Digest],
    each: impl FnMut(usize, u32),
) {
    one_after_another(places, memory, is_near, digests, each);
}

/// The portable loops.
#[inline(always)]
fn one_after_another<L: Layout>(
    places: &Places<L>,
    memory: &impl Memory,
    is_near: bool,
    digests: &[Digest],
    mut each: impl FnMut(usize, u32),
) {
    for (from, digests) in (0..).step_by(BURST).zip(digests.chunks(BURST)) {
        if L::ONE_LINE && !is_near {
            // All bits of a name are in one line, so nothing is gained by reading some of them first.
            digests.iter().for_each(|&digest| memory.fetch_bits(places.of(digest).take(1)));
        }
        let fetches = !L::ONE_LINE && !is_near;
        each(from, if fetches { far(places, memory, digests) } else { near(places, memory, digests) });
    }
}

/// Which of up to [`BURST`] names are positive, in a filter that is not in cache.
#[inline(always)]
fn far<L: Layout>(places: &Places<L>, memory: &impl Memory, digests: &[Digest]) -> u32 {
    let n_hashes = places.shape().n_hashes() as usize;
    let at_once = n_hashes.min(at_once(places));
    let mut positions = [[0; BURST]; SECOND];
    places.of_burst(digests, at_once, &mut positions);
    let (first, second) = positions[..at_once].split_at(at_once.min(FIRST));
    for positions in first {
        memory.fetch_bits(positions[..digests.len()].iter().copied());
    }
    let mut positive = [0; BURST];
    let mut n_waiting = all_ones(memory, first, digests.len(), &mut positive);
    if !second.is_empty() {
        let bits = |index: u8| second.iter().map(move |positions| positions[usize::from(index)]);
        positive[..n_waiting].iter().for_each(|&index| memory.fetch_bits(bits(index)));
        n_waiting = keep(&mut positive[..n_waiting], |index| memory.are_ones(bits(index)));
    }
    let mut scratch = [0; BURST * MAX_STEP];
    for positions in later(at_once, n_hashes, MAX_STEP) {
        n_waiting = narrow(places, memory, digests, positions, &mut scratch, &mut positive[..n_waiting]);
    }
    word_of(&positive[..n_waiting])
}

/// As [`far`], for a filter that is in cache, or whose lines are fetched: nothing is prefetched.
#[inline(always)]
fn near<L: Layout>(places: &Places<L>, memory: &impl Memory, digests: &[Digest]) -> u32 {
    let n_hashes = places.shape().n_hashes() as usize;
    let at_once = n_hashes.min(at_once(places));
    let mut positions = [[0; BURST]; SECOND];
    places.of_burst(digests, at_once, &mut positions);
    let mut positive = [0; BURST];
    let mut n_waiting = all_ones(memory, &positions[..at_once], digests.len(), &mut positive);
    for positions in later(at_once, n_hashes, n_hashes) {
        let bits = |index: u8| places.of(digests[usize::from(index)]).skip(positions.start).take(positions.len());
        n_waiting = keep(&mut positive[..n_waiting], |index| memory.are_ones(bits(index)));
    }
    word_of(&positive[..n_waiting])
}

/// How many positions of a whole burst are computed at once.
#[inline(always)]
fn at_once<L: Layout>(places: &Places<L>) -> usize {
    match L::rule(places.shape(), places.plan()) {
        Rule::Draws { .. } | Rule::Block { .. } => SECOND,
        Rule::Remainders(_) | Rule::Progression { .. } => FIRST,
    }
}

/// The positions from `first` on, grouped by the step that reads them: at most `longest` in a step.
#[inline(always)]
fn later(first: usize, n_hashes: usize, longest: usize) -> impl Iterator<Item = Range<usize>> {
    let second = n_hashes.min(SECOND);
    let rest = (second..n_hashes).step_by(longest.max(1)).map(move |from| from..n_hashes.min(from + longest));
    std::iter::once(first..second).chain(rest).filter(|positions| !positions.is_empty())
}

/// A bit for each of `indices`.
#[inline(always)]
fn word_of(indices: &[u8]) -> u32 {
    indices.iter().fold(0, |word, index| word | 1 << index)
}

/// Writes to `positive` the indices of the first `n` names whose bits at `positions` are all one; returns their number.
#[inline(always)]
fn all_ones(memory: &impl Memory, positions: &[[u64; BURST]], n: usize, positive: &mut [u8; BURST]) -> usize {
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
    memory: &impl Memory,
    digests: &[Digest],
    positions: Range<usize>,
    scratch: &mut [u64; BURST * MAX_STEP],
    waiting: &mut [u8],
) -> usize {
    let n = positions.len();
    for (&index, bits) in waiting.iter().zip(scratch.chunks_exact_mut(n)) {
        for (to, bit) in bits.iter_mut().zip(places.of(digests[usize::from(index)]).skip(positions.start)) {
            *to = bit;
            memory.fetch((bit / 64) as usize);
        }
    }
    let mut n_left = 0;
    for (place, bits) in (0..waiting.len()).zip(scratch.chunks_exact(n)) {
        waiting[n_left] = waiting[place];
        n_left += usize::from(memory.are_ones(bits.iter().copied()));
    }
    n_left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::{AddressHashing, Blocked, DoubleHashing, OneHashing, Partitioned, Shape, Standard};
    use crate::testkit::{Rng, seed};

    /// Compares the loops of all kernels with single lookups, in a filter of which half the bits are one and that holds a
    /// third of the names, with and without atomic words.
    fn check<L: Layout>(bits: u64, n_hashes: u32, rng: &mut Rng) {
        let places = Places::new(Shape::<L>::new(bits, n_hashes).unwrap(), rng.next_u64());
        let bits = places.shape().bits();
        let mut words = Words::zeroed(bits.div_ceil(64) as usize);
        words.iter_mut().for_each(|word| *word = rng.next_u64());
        let mut digests: Vec<Digest> = (0..400).map(|_| Digest(rng.next_u64())).collect();
        digests.extend([0, 1, u64::MAX].map(Digest));
        for bit in digests.iter().step_by(3).flat_map(|&digest| places.of(digest)) {
            words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        let expected: Vec<bool> = digests.iter().map(|&digest| words.are_ones(places.of(digest))).collect();
        let atomic = AtomicWords::filled(&words).unwrap();
        for kernel in Kernel::available() {
            for is_near in [true, false] {
                check_by((kernel, is_near), &places, &words, &digests, &expected);
                check_by((kernel, is_near), &places, &atomic, &digests, &expected);
            }
        }
    }

    /// Looks up the last names by one kernel, for every number of them up to 100, and for all.
    fn check_by<L: Layout>(
        (kernel, is_near): (Kernel, bool),
        places: &Places<L>,
        memory: &impl Memory,
        digests: &[Digest],
        expected: &[bool],
    ) {
        let shape = places.shape();
        for n in (0..=100).chain([digests.len()]) {
            let (mut got, mut next) = (Vec::new(), 0);
            bursts_by(kernel, is_near, places, memory, &digests[digests.len() - n..], &mut |from, positive| {
                assert_eq!(from, next, "bursts in order");
                next += BURST;
                assert_eq!(positive.checked_shr((n - from) as u32).unwrap_or(0), 0, "a name that was not asked for");
                got.extend((from..n.min(next)).map(|index| positive >> (index - from) & 1 != 0));
            });
            let (bits, k) = (shape.bits(), shape.n_hashes());
            assert_eq!(got, expected[digests.len() - n..], "{}, {bits} bits, k = {k}, {kernel}, {is_near}", L::NAME);
        }
    }

    #[test]
    fn every_kernel_finds_the_names_that_single_lookups_find() {
        let mut rng = Rng::new(seed());
        println!("not run: {:?}", Kernel::unavailable().collect::<Vec<_>>());
        for (bits, hashes) in [
            (1, &[1, 3][..]),
            (600, &[1, 2, 3, 7]),
            (100_000, &[1, 3, 4, 5, 6, 7, 12, 13, 32]),
            (1 << 23, &[1, 2, 4, 7, 32]),
        ] {
            for &n_hashes in hashes {
                check::<Standard>(bits, n_hashes, &mut rng);
                check::<Partitioned>(bits, n_hashes, &mut rng);
                check::<Blocked>(bits, n_hashes, &mut rng);
                check::<OneHashing>(bits, n_hashes, &mut rng);
                check::<AddressHashing>(bits, n_hashes, &mut rng);
                check::<DoubleHashing>(bits, n_hashes, &mut rng);
            }
        }
    }
}

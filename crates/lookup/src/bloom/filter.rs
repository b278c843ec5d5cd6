//! The plain filter.

use super::layout::Layout;
use super::sizing::{MAX_HASHES, Shape};
use crate::hash::{Digest, mix64};
use crate::traits::ApplyError;
use crate::words::{Words, prefetch_word};

/// Names of a batch that are looked up together.
const BURST: usize = 32;
/// Positions that are read before the others are computed: half the aliens end at each in a filter filled as it should.
const FIRST: usize = 2;
/// Bytes of a filter from which bits are fetched ahead: what surely fits the second-level cache gains nothing by it.
const PREFETCH_FROM: usize = 512 << 10;

/// A bit of a filter and its value: what an update of a plain filter consists of.
///
/// Values are absolute, so an update that arrives twice is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitChange {
    /// Which bit.
    pub bit: u64,
    /// Its value from now on.
    pub one: bool,
}

/// A set of digests.
///
/// Filters of one shape and seed have the same positions for a name, whatever they hold.
#[derive(Clone, Debug)]
pub struct Bloom<L> {
    words: Words,
    shape: Shape<L>,
    seed: u64,
}

impl<L: Layout> Bloom<L> {
    /// An empty filter; `seed` is drawn from the table's key, so that nobody can choose aliens that are positive.
    /// # Panics
    /// When there is no memory for it.
    pub fn new(shape: Shape<L>, seed: u64) -> Self {
        Self { words: Words::zeroed(shape.bits().div_ceil(64) as usize), shape, seed }
    }

    /// Bits and positions.
    pub fn shape(&self) -> Shape<L> {
        self.shape
    }

    /// Memory that lookups need, in bits.
    pub fn size_bits(&self) -> u64 {
        self.words.size_bits()
    }

    /// The bits, 64 a word from the lowest; beyond the last they are zero.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Inserts a name.
    pub fn insert(&mut self, digest: Digest) {
        for bit in self.positions(digest) {
            self.put(bit, true);
        }
    }

    /// Takes over the changes of a counting filter of this shape, all or none.
    /// # Errors
    /// [`ApplyError::Malformed`] when a bit is not one of this filter; it is unchanged.
    pub fn apply(&mut self, changes: &[BitChange]) -> Result<(), ApplyError> {
        if changes.iter().any(|change| change.bit >= self.shape.bits()) {
            return Err(ApplyError::Malformed { reason: "a bit is beyond the end of the filter" });
        }
        for change in changes {
            self.put(change.bit, change.one);
        }
        Ok(())
    }

    /// Forgets all names.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Whether `digest` may be in: always true for a member.
    #[inline]
    pub fn lookup(&self, digest: Digest) -> bool {
        let words = &*self.words;
        self.positions(digest).all(|bit| is_one(words, bit))
    }

    /// Whether each of `digests` may be in, into `present`: hides memory latency; best in bursts of 32.
    /// # Panics
    /// When `present` is shorter than `digests`.
    pub fn lookup_batch(&self, digests: &[Digest], present: &mut [bool]) {
        let present = &mut present[..digests.len()];
        let bursts = digests.chunks(BURST).zip(present.chunks_mut(BURST));
        if L::ONE_LINE {
            bursts.for_each(|(digests, present)| self.lookup_lines(digests, present));
        } else if self.words.len() * 8 < PREFETCH_FROM {
            bursts.for_each(|(digests, present)| self.lookup_cached(digests, present));
        } else {
            let mut rest = [0; BURST * MAX_HASHES as usize];
            bursts.for_each(|(digests, present)| self.lookup_scattered(digests, present, &mut rest));
        }
    }

    /// A burst in a filter of one line a name: all lines are fetched, then read.
    #[inline]
    fn lookup_lines(&self, digests: &[Digest], present: &mut [bool]) {
        let words = &*self.words;
        for &digest in digests {
            prefetch_bits(words, self.positions(digest).take(1));
        }
        for (present, &digest) in present.iter_mut().zip(digests) {
            *present = are_ones(words, self.positions(digest));
        }
    }

    /// A burst in a filter that stands in cache: nothing is fetched ahead.
    #[inline]
    fn lookup_cached(&self, digests: &[Digest], present: &mut [bool]) {
        let words = &*self.words;
        for (present, &digest) in present.iter_mut().zip(digests) {
            let mut bits = self.positions(digest);
            *present = are_ones(words, bits.by_ref().take(FIRST)) && are_ones(words, bits);
        }
    }

    /// A burst in a large filter: the first two bits of all names are fetched and read, then the others of those names
    /// that are still in question. `rest` is room for these.
    #[inline]
    fn lookup_scattered(&self, digests: &[Digest], present: &mut [bool], rest: &mut [u64]) {
        let words = &*self.words;
        let mut first = [[0; FIRST]; BURST];
        for (first, &digest) in first.iter_mut().zip(digests) {
            // With one position a name it counts twice.
            let mut bits = self.positions(digest);
            let one = bits.next().unwrap_or(0);
            *first = [one, bits.next().unwrap_or(one)];
            prefetch_bits(words, first.iter().copied());
        }
        // Indices of the names still in question, collected without a branch.
        let (mut waiting, mut n_waiting) = ([0u8; BURST], 0);
        for (index, (present, first)) in present.iter_mut().zip(first).enumerate() {
            *present = are_ones(words, first.into_iter());
            waiting[n_waiting] = index as u8;
            n_waiting += usize::from(*present);
        }
        let n_rest = (self.shape.n_hashes() as usize).saturating_sub(FIRST);
        if n_rest == 0 {
            return;
        }
        for (&index, rest) in waiting[..n_waiting].iter().zip(rest.chunks_exact_mut(n_rest)) {
            for (rest, bit) in rest.iter_mut().zip(self.positions(digests[usize::from(index)]).skip(FIRST)) {
                *rest = bit;
                prefetch_word(words, (bit / 64) as usize);
            }
        }
        for (&index, rest) in waiting[..n_waiting].iter().zip(rest.chunks_exact(n_rest)) {
            present[usize::from(index)] = are_ones(words, rest.iter().copied());
        }
    }

    /// The probability that a random alien is positive in this filter as it stands. Reads all of it.
    pub fn false_positive_rate(&self) -> f64 {
        L::rate_of(&self.words, self.shape.bits(), self.shape.n_hashes())
    }

    #[inline(always)]
    fn start(&self, digest: Digest) -> u64 {
        mix64(digest.0 ^ self.seed)
    }

    #[inline(always)]
    fn positions_from(&self, start: u64) -> impl Iterator<Item = u64> + use<L> {
        L::positions(self.shape, start)
    }

    /// The positions of a name, the same in every filter of this shape and seed.
    #[inline(always)]
    pub(super) fn positions(&self, digest: Digest) -> impl Iterator<Item = u64> + use<L> {
        self.positions_from(self.start(digest))
    }

    pub(super) fn is_one(&self, bit: u64) -> bool {
        is_one(&self.words, bit)
    }

    pub(super) fn put(&mut self, bit: u64, one: bool) {
        let word = &mut self.words[(bit / 64) as usize];
        *word = *word & !(1 << (bit % 64)) | u64::from(one) << (bit % 64);
    }
}

/// Whether all of `bits` are one: reads them all, for a branch a bit would be mispredicted more often than it saves.
#[inline(always)]
fn are_ones(words: &[u64], bits: impl Iterator<Item = u64>) -> bool {
    bits.fold(1, |ones, bit| ones & words[(bit / 64) as usize] >> (bit % 64)) & 1 != 0
}

#[inline(always)]
fn prefetch_bits(words: &[u64], bits: impl Iterator<Item = u64>) {
    bits.for_each(|bit| prefetch_word(words, (bit / 64) as usize));
}

#[inline(always)]
fn is_one(words: &[u64], bit: u64) -> bool {
    words[(bit / 64) as usize] >> (bit % 64) & 1 != 0
}

//! The plain filter.

use super::burst::bursts;
use super::layout::{Layout, Places};
use super::sizing::{MAX_HASHES, Shape};
use crate::base::prefetch::BURST;
use crate::base::words::Words;
use crate::hash::Digest;
use crate::traits::ApplyError;

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

/// Why two filters have no union.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnionError {
    /// The shapes differ.
    #[error(
        "a filter of {bits} bits with {n_hashes} positions a name cannot take in one of {other_bits} bits with \
         {other_hashes}: build both of one shape"
    )]
    Shape {
        /// Bits of this filter.
        bits: u64,
        /// Positions per name in this filter.
        n_hashes: u32,
        /// Bits of the other filter.
        other_bits: u64,
        /// Positions per name in the other filter.
        other_hashes: u32,
    },
    /// The seeds differ.
    #[error("the two filters have other seeds, so a name has other bits in each: build both with one seed")]
    Seed,
    /// The counters differ in width.
    #[error("the two filters have counters of other widths: build both with the same")]
    Counters,
}

impl UnionError {
    pub(super) fn check<L: Layout>(one: &Places<L>, other: &Places<L>) -> Result<(), Self> {
        let (shape, second) = (one.shape(), other.shape());
        if shape != second {
            let (bits, n_hashes) = (shape.bits(), shape.n_hashes());
            return Err(Self::Shape { bits, n_hashes, other_bits: second.bits(), other_hashes: second.n_hashes() });
        }
        if one.seed() == other.seed() { Ok(()) } else { Err(Self::Seed) }
    }
}

/// A set of digests.
///
/// Filters of one shape and seed have the same positions for a name, whatever they hold.
#[derive(Clone, Debug)]
pub struct Bloom<L: Layout> {
    words: Words,
    places: Places<L>,
}

impl<L: Layout> Bloom<L> {
    /// An empty filter; `seed` is drawn from the table's key, so that no one can choose aliens that are positive.
    /// # Panics
    /// When there is no memory for it.
    pub fn new(shape: Shape<L>, seed: u64) -> Self {
        Self { words: Words::zeroed(shape.bits().div_ceil(64) as usize), places: Places::new(shape, seed) }
    }

    /// Bits and positions.
    pub fn shape(&self) -> Shape<L> {
        self.places.shape()
    }

    /// Maps names to their bits.
    pub fn places(&self) -> &Places<L> {
        &self.places
    }

    /// Memory that lookups need, in bits.
    pub fn size_bits(&self) -> u64 {
        self.words.size_bits()
    }

    /// The bits, 64 per word from the lowest; the bits after the last are zero.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Inserts a name.
    pub fn insert(&mut self, digest: Digest) {
        for bit in self.places.of(digest) {
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// Adds all names of another filter of the same shape and seed, whose names were hashed in the same way.
    /// # Errors
    /// [`UnionError`] for a filter of another geometry; this one is unchanged.
    pub fn union_with(&mut self, other: &Self) -> Result<(), UnionError> {
        UnionError::check(&self.places, &other.places)?;
        self.words.iter_mut().zip(&*other.words).for_each(|(word, other)| *word |= other);
        Ok(())
    }

    /// A filter with these words, which are untrusted.
    /// # Errors
    /// [`ApplyError::Malformed`] for a wrong number of words, or a bit after the last.
    pub fn from_words(
        shape: Shape<L>,
        seed: u64,
        words: impl ExactSizeIterator<Item = u64>,
    ) -> Result<Self, ApplyError> {
        if words.len() as u64 != shape.bits().div_ceil(64) {
            return Err(ApplyError::Malformed { reason: "the words of the filter are not those of its size" });
        }
        let mut filter = Self::new(shape, seed);
        filter.words.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        let beyond = shape.bits() % 64;
        if beyond > 0 && filter.words.last().is_some_and(|last| last >> beyond != 0) {
            return Err(ApplyError::Malformed { reason: "a bit is beyond the end of the filter" });
        }
        Ok(filter)
    }

    /// Applies the changes of a counting filter of this shape, all or none.
    /// # Errors
    /// [`ApplyError::Malformed`] when this filter has no such bit; the filter is unchanged.
    pub fn apply(&mut self, changes: &[BitChange]) -> Result<(), ApplyError> {
        if changes.iter().any(|change| change.bit >= self.shape().bits()) {
            return Err(ApplyError::Malformed { reason: "a bit is beyond the end of the filter" });
        }
        for change in changes {
            self.put(change.bit, change.one);
        }
        Ok(())
    }

    /// Removes all names.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Whether `digest` may be in: always true for a member.
    #[inline]
    pub fn lookup(&self, digest: Digest) -> bool {
        let words = &*self.words;
        self.places.of(digest).all(|bit| is_one(words, bit))
    }

    /// Writes to `present` whether each of `digests` may be in. Hides memory latency; best in bursts of 32.
    /// # Panics
    /// When `present` is shorter than `digests`.
    pub fn lookup_batch(&self, digests: &[Digest], present: &mut [bool]) {
        let present = &mut present[..digests.len()];
        bursts(&self.places, &self.words, digests, |from, positive| {
            for (place, present) in present[from..].iter_mut().take(BURST).enumerate() {
                *present = positive >> place & 1 != 0;
            }
        });
    }

    /// The probability that a random alien is positive in this filter as filled now. Reads all of it.
    pub fn false_positive_rate(&self) -> f64 {
        L::rate_of(&self.words, self.shape().bits(), self.shape().n_hashes())
    }

    /// The positions of a name, copied, so that the filter can be changed while they are in use.
    #[inline(always)]
    pub(super) fn positions(&self, digest: Digest) -> impl Iterator<Item = u64> + Clone + use<L> {
        let (mut bits, mut n) = ([0; MAX_HASHES as usize], 0);
        for (to, bit) in bits.iter_mut().zip(self.places.of(digest)) {
            (*to, n) = (bit, n + 1);
        }
        bits.into_iter().take(n)
    }

    pub(super) fn is_one(&self, bit: u64) -> bool {
        is_one(&self.words, bit)
    }

    pub(super) fn put(&mut self, bit: u64, one: bool) {
        let word = &mut self.words[(bit / 64) as usize];
        *word = *word & !(1 << (bit % 64)) | u64::from(one) << (bit % 64);
    }
}

#[inline(always)]
fn is_one(words: &[u64], bit: u64) -> bool {
    words[(bit / 64) as usize] >> (bit % 64) & 1 != 0
}

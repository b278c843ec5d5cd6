//! The counting filter: a plain filter for lookups, plus one counter per bit, so that names can be removed.
//!
//! Cost: lookups as in the plain filter; memory (1 + counter bits) times that of the plain filter.
//! Counters **saturate**: one that reaches its maximum stays there for good, because it no longer knows how often its
//! bit is used. That leaves a few ones too many, never one too few. A 4-bit counter saturates with probability 1.6e-15
//! in a well-filled filter. **Removing a name that is not in** clears bits of other names: blindly removing absent
//! names, 10 % as many as there are members, loses a fifth of the members. A filter cannot detect this, so the caller
//! must remove only what an exact table of all names has just removed. What can be detected (a counter at zero) is
//! refused.
//! Source: the counting filters of Summary Cache, and of BFW in "Re-designing Compact-structure based Forwarding for
//! Programmable Networks", section IV.A. Differs: saturates instead of having log2(n) bits a counter.

use super::filter::{BitChange, Bloom, UnionError};
use super::layout::Layout;
use super::sizing::Shape;
use crate::base::words::Words;
use crate::hash::Digest;
use crate::traits::ApplyError;

/// Width of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterBits {
    /// Counts to 15: enough for sets.
    Four = 4,
    /// Counts to 255: for filters where very many names share a bit, as in an overfull one.
    Eight = 8,
}

/// Why a name was not removed; the filter is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// One of the name's counters is zero.
    #[error("the name with digest {digest:#018x} is not in the filter: remove only names that the exact table held")]
    NotThere {
        /// The digest.
        digest: u64,
    },
}

/// A set of digests that can be removed again.
#[derive(Clone, Debug)]
pub struct Counting<L: Layout> {
    filter: Bloom<L>,
    counters: Words,
    bits: CounterBits,
}

impl<L: Layout> Counting<L> {
    /// An empty filter; see [`Bloom::new`].
    /// # Panics
    /// When there is no memory for it.
    pub fn new(shape: Shape<L>, bits: CounterBits, seed: u64) -> Self {
        let counters = Words::zeroed((shape.bits() * bits as u64).div_ceil(64) as usize);
        Self { filter: Bloom::new(shape, seed), counters, bits }
    }

    /// The plain filter of the names that are in: what lookups read. Its clone is the export; [`Bloom::apply`] keeps
    /// the clone current with the changes appended from then on.
    pub fn filter(&self) -> &Bloom<L> {
        &self.filter
    }

    /// Inserts a name that must not be in (inserted twice, it must be removed twice); appends the bits that became one.
    pub fn insert(&mut self, digest: Digest, changes: &mut Vec<BitChange>) {
        for bit in self.filter.positions(digest) {
            if self.count(bit) == 0 {
                self.filter.put(bit, true);
                changes.push(BitChange { bit, one: true });
            }
            self.increment(bit);
        }
    }

    /// Removes a name, which must be in (see the module's note), and appends the bits that became zero.
    /// # Errors
    /// [`RemoveError::NotThere`] when it cannot be in; nothing is changed.
    pub fn remove(&mut self, digest: Digest, changes: &mut Vec<BitChange>) -> Result<(), RemoveError> {
        for (index, bit) in self.filter.positions(digest).enumerate() {
            let count = self.count(bit);
            if count == 0 {
                // Undo the decrements. A saturated counter was not decremented, and stays.
                for bit in self.filter.positions(digest).take(index) {
                    self.increment(bit);
                }
                return Err(RemoveError::NotThere { digest: digest.0 });
            }
            if count < self.max() {
                self.put(bit, count - 1);
            }
        }
        for bit in self.filter.positions(digest) {
            if self.count(bit) == 0 && self.filter.is_one(bit) {
                self.filter.put(bit, false);
                changes.push(BitChange { bit, one: false });
            }
        }
        Ok(())
    }

    /// The plain filter, without its counters.
    pub fn into_filter(self) -> Bloom<L> {
        self.filter
    }

    /// Width of the counters.
    pub fn counter_bits(&self) -> CounterBits {
        self.bits
    }

    /// The counters, from the lowest bits of the first word.
    pub fn counters(&self) -> &[u64] {
        &self.counters
    }

    /// A counting filter with these words, which are untrusted.
    /// # Errors
    /// [`ApplyError::Malformed`] for a wrong number of words, a bit set after the last counter, or a counter that is
    /// zero where the bit is one, or the other way round.
    pub fn from_words(
        filter: Bloom<L>,
        bits: CounterBits,
        words: impl ExactSizeIterator<Item = u64>,
    ) -> Result<Self, ApplyError> {
        let n_counters = filter.shape().bits();
        let n_words = (n_counters * bits as u64).div_ceil(64);
        if words.len() as u64 != n_words {
            return Err(ApplyError::Malformed { reason: "the counters are not those of the filter's size" });
        }
        let mut counting = Self { filter, counters: Words::zeroed(n_words as usize), bits };
        counting.counters.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        let beyond = n_counters * bits as u64 % 64;
        if beyond > 0 && counting.counters.last().is_some_and(|last| last >> beyond != 0) {
            return Err(ApplyError::Malformed { reason: "a counter is beyond the end of the filter" });
        }
        if (0..n_counters).any(|bit| (counting.count(bit) > 0) != counting.filter.is_one(bit)) {
            return Err(ApplyError::Malformed { reason: "bits and counters of the filter contradict each other" });
        }
        Ok(counting)
    }

    /// Adds all names of another filter of the same shape, seed and width, as if each were inserted here, and appends
    /// the bits that became one. Counters saturate.
    /// # Errors
    /// [`UnionError`] for a filter of another geometry; nothing is changed.
    pub fn union_with(&mut self, other: &Self, changes: &mut Vec<BitChange>) -> Result<(), UnionError> {
        UnionError::check(self.filter.places(), other.filter.places())?;
        if self.bits != other.bits {
            return Err(UnionError::Counters);
        }
        for bit in 0..self.filter.shape().bits() {
            let (count, more) = (self.count(bit), other.count(bit));
            if more == 0 {
                continue;
            }
            if count == 0 {
                self.filter.put(bit, true);
                changes.push(BitChange { bit, one: true });
            }
            self.put(bit, (count + more).min(self.max()));
        }
        Ok(())
    }

    /// Removes all names and resets saturated counters: the start of a rebuild.
    pub fn clear(&mut self) {
        self.filter.clear();
        self.counters.fill(0);
    }

    /// Whether `digest` may be in.
    #[inline]
    pub fn lookup(&self, digest: Digest) -> bool {
        self.filter.lookup(digest)
    }

    /// As [`Bloom::lookup_batch`].
    /// # Panics
    /// When `present` is shorter than `digests`.
    pub fn lookup_batch(&self, digests: &[Digest], present: &mut [bool]) {
        self.filter.lookup_batch(digests, present);
    }

    /// Number of saturated counters, which never decrease. Reads all counters; if many are saturated, rebuild.
    pub fn n_saturated(&self) -> u64 {
        (0..self.filter.shape().bits()).filter(|&bit| self.count(bit) == self.max()).count() as u64
    }

    /// Memory of filter and counters, in bits: `(1 + l_s) m` in the papers.
    pub fn size_bits(&self) -> u64 {
        self.filter.size_bits() + self.counters.size_bits()
    }

    fn max(&self) -> u64 {
        (1 << self.bits as u64) - 1
    }

    /// Word and shift of a counter.
    fn place(&self, bit: u64) -> (usize, u64) {
        let width = self.bits as u64;
        ((bit * width / 64) as usize, bit * width % 64)
    }

    fn count(&self, bit: u64) -> u64 {
        let (word, shift) = self.place(bit);
        self.counters[word] >> shift & self.max()
    }

    fn put(&mut self, bit: u64, count: u64) {
        let (word, shift) = self.place(bit);
        self.counters[word] = self.counters[word] & !(self.max() << shift) | count << shift;
    }

    fn increment(&mut self, bit: u64) {
        self.put(bit, (self.count(bit) + 1).min(self.max()));
    }
}

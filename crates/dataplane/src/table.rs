//! The lookups of a worker for a burst of names: digests, membership, values.

use crate::exact::ExactTable;
use crate::parse::Names;
use fib::designs::{Burst, BurstNames, Reader, put_words};
use lookup::base::marked::Searches;
use lookup::hash::{Digest, Hasher, mix64};
use lookup::traits::BatchReader;
use netio::BURST;

/// The lookups of one worker. There are two: [`FibTable`], and [`EmptyTable`], which looks nothing up and so measures
/// what the rest of the loop costs.
pub trait Table: Send {
    /// The digests of all names.
    fn digests(&self, names: &Names, digests: &mut [Digest; BURST]);

    /// Begins the search for which of the names are valid.
    fn begin_members(&self, valid: &ExactTable, digests: &[Digest], searches: &mut Searches) {
        valid.begin(digests, searches);
    }

    /// Goes on with the search: see [`ExactTable::advance`].
    fn advance_members(&self, valid: &ExactTable, names: &Names, digests: &[Digest; BURST], searches: &mut Searches) {
        valid.advance(names, digests, searches);
    }

    /// Which of the names are valid: bit `i` for name `i`.
    fn members(&self, valid: &ExactTable, names: &Names, digests: &[Digest; BURST], searches: &Searches) -> u32 {
        valid.finish(names, digests, searches)
    }

    /// The hasher of digests; none if names are not looked up, and then sources are not checked.
    fn hasher(&self) -> Option<&Hasher> {
        None
    }

    /// Looks up the values of names.
    fn reader(&mut self) -> &mut Reader;
}

/// One worker's reader of a FIB.
pub struct FibTable {
    hasher: Hasher,
    reader: Box<Reader>,
    /// The length of every name, if all have the same length of at most 8 bytes.
    word_len: Option<usize>,
}

impl FibTable {
    /// A table over a reader of a FIB whose names are of `kind` and were hashed by `hasher`.
    pub fn new(kind: fib::name::NameKind, hasher: Hasher, reader: Box<Reader>) -> Self {
        use fib::name::NameKind::{FiveTuple, Fixed, Ipv4, Ipv6, Mac, Teid, Text};
        let word_len = match kind {
            Mac => Some(6),
            Ipv4 | Teid => Some(4),
            Fixed(width) if width <= 8 => Some(usize::from(width)),
            Ipv6 | FiveTuple | Fixed(_) | Text => None,
        };
        Self { hasher, reader, word_len }
    }
}

impl Table for FibTable {
    #[inline]
    fn digests(&self, names: &Names, digests: &mut [Digest; BURST]) {
        let digests = &mut digests[..names.len()];
        if let Some(len) = self.word_len {
            return self.hasher.digest_words(names.words(), len, digests);
        }
        digests_of_any_length(&self.hasher, names, digests);
    }

    #[inline]
    fn hasher(&self) -> Option<&Hasher> {
        Some(&self.hasher)
    }

    #[inline]
    fn reader(&mut self) -> &mut Reader {
        &mut *self.reader
    }
}

/// The digests of names that are not all words.
#[inline]
fn digests_of_any_length(hasher: &Hasher, names: &Names, digests: &mut [Digest]) {
    if let Some(len @ 9..=16) = names.common_len() {
        let mut pairs = [[0; 2]; BURST];
        let pairs = &mut pairs[..names.len()];
        pairs.iter_mut().enumerate().for_each(|(i, pair)| *pair = names.pair(i));
        return hasher.digest_pairs(pairs, len, digests);
    }
    for (i, digest) in digests.iter_mut().enumerate() {
        *digest = match names.name_len(i) {
            len if len <= 8 => hasher.digest(&names.word(i).to_le_bytes()[..len]),
            len => hasher.digest(&names.padded(i)[..len]),
        };
    }
}

/// Designs that hold whole names read them from here.
impl BurstNames for Names {
    fn fill(&self, width: usize, with_length: bool, out: &mut [u64]) {
        if width == 1 && !with_length {
            out.copy_from_slice(&self.words()[..out.len()]);
            return;
        }
        for (i, words) in out.chunks_exact_mut(width).enumerate() {
            match self.name_len(i) {
                len if len <= 8 => put_words(&self.word(i).to_le_bytes()[..len], with_length, words),
                len => put_words(&self.padded(i)[..len], with_length, words),
            }
        }
    }
}

/// The empty forwarder. Every name is valid. The values come from a fixed shuffled list, so the traffic spreads over
/// the ports as with a real table, and is as hard to predict. It computes no digest.
#[derive(Debug, Clone)]
pub struct EmptyTable {
    values: Box<[u8]>,
    next: usize,
}

/// The length of the list: a branch predictor cannot remember it, and it fits into the first-level cache.
const SHUFFLED_VALUES: usize = 8192;

impl EmptyTable {
    /// Returns the values 1 to `n_values`, each equally often.
    /// # Panics
    /// If `n_values` is 0 or above 255.
    pub fn new(n_values: u64) -> Self {
        assert!((1..=255).contains(&n_values), "{n_values} values; 1 to 255");
        let value = |i: usize| 1 + ((u128::from(mix64(i as u64 + 1)) * u128::from(n_values)) >> 64) as u8;
        Self { values: (0..SHUFFLED_VALUES).map(value).collect(), next: 0 }
    }
}

impl Table for EmptyTable {
    #[inline]
    fn digests(&self, _names: &Names, _digests: &mut [Digest; BURST]) {}

    #[inline]
    fn begin_members(&self, _valid: &ExactTable, _digests: &[Digest], _searches: &mut Searches) {}

    #[inline]
    fn advance_members(&self, _: &ExactTable, _names: &Names, _digests: &[Digest; BURST], _searches: &mut Searches) {}

    #[inline]
    fn members(&self, _: &ExactTable, _names: &Names, _digests: &[Digest; BURST], _searches: &Searches) -> u32 {
        u32::MAX
    }

    #[inline]
    fn reader(&mut self) -> &mut Reader {
        self
    }
}

impl BatchReader<Burst<'_>> for EmptyTable {
    #[inline]
    fn lookup_batch(&mut self, _: &Burst<'_>, values: &mut [u64]) {
        if self.next + values.len() > self.values.len() {
            self.next = 0;
        }
        for (value, &next) in values.iter_mut().zip(&self.values[self.next..]) {
            *value = next.into();
        }
        self.next += values.len();
    }

    fn offline(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::hash::{Family, SecretKey};

    #[test]
    fn names_of_one_length_and_of_several_have_the_digests_of_their_bytes() {
        let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(1));
        let bytes: Vec<u8> = (0..=255).collect();
        for lengths in [&[13][..], &[16], &[9], &[15], &[8], &[17], &[37], &[13, 37], &[13, 12], &[4, 16]] {
            for n in [1, 7, 8, 20, BURST] {
                let name = |i: usize| &bytes[i..][..lengths[i % lengths.len()]];
                let mut names = Names::default();
                // What an earlier burst left behind a name does not count.
                (0..n).for_each(|_| names.push(&bytes[100..164]).expect("a short name"));
                names.clear();
                (0..n).for_each(|i| names.push(name(i)).expect("a short name"));
                let mut digests = vec![Digest(0); n];
                digests_of_any_length(&hasher, &names, &mut digests);
                let expected: Vec<Digest> = (0..n).map(|i| hasher.digest(name(i))).collect();
                assert_eq!(digests, expected, "{n} names of {lengths:?} bytes");
            }
        }
    }
}

//! The contestants of `bench filter`: Bloom filters in the paper's configuration, and fibula's.
//!
//! The paper's filters are implemented as it describes them: BOB hash calls with different seeds, remainders by the
//! processor's division, one name at a time, and a stop at the first zero bit. They are compiled for the length of
//! the keys, so that no time is lost in loops over bytes.

use std::hash::Hash;

use fastbloom::BloomFilter;
use foldhash::fast::FixedState;
use lookup::bloom::{
    Blocked, Bloom, DoubleHashing, Layout, OneHashing, Partitioned, Shape, ShapeError, Standard, partition_sizes,
};
use lookup::hash::{Digest, Family, Hasher, SecretKey};

use crate::contestants::bursts;
use crate::hash_lab::functions::bob;
use crate::names::Random;

/// The largest batch.
pub(super) const MAX_BATCH: usize = 256;

/// Contestants, with a one-line description of each.
pub const CONTESTANTS: [(&str, &str); 9] = [
    ("sbf-paper", "SBF as published: k BOB hashes under k seeds, each modulo m; ends at the first zero bit"),
    ("lhbf-paper", "LHBF as published: two BOB hashes, h_1 + i h_2 + i^3 modulo m; ends at the first zero bit"),
    ("ohbf-paper", "OHBF as published: one BOB hash, modulo k primes by division; ends at the first zero bit"),
    ("fastbloom", "the crate fastbloom with the hasher foldhash, addresses as u32; one key at a time"),
    (OneHashing::<true>::NAME, "OHBF here: one keyed digest, modulo k primes by multiplication, in batches"),
    (DoubleHashing::NAME, "LHBF here: h_1 and h_2 from one keyed digest, in batches"),
    (Standard::NAME, "SBF under one digest: all positions from one keyed digest by mixes, in batches"),
    (Partitioned::NAME, "the same, each position in a partition of its own"),
    (Blocked::NAME, "the same, all positions in one line of the cache"),
];

/// One filter under measurement.
pub(super) trait Side: Send + Sync {
    /// Inserts packed keys.
    fn insert(&mut self, keys: &[u8]);

    /// How many of the packed `queries` are positive, over `passes` passes.
    fn count(&self, queries: &[u8], batch: usize, passes: u64) -> u64;

    /// Bits of the filter.
    fn bits(&self) -> u64;
}

/// Creates an empty filter of about `bits` bits for keys of `N` bytes.
pub(super) fn new<const N: usize>(name: &str, bits: u64, k: u32, seed: u64) -> Result<Box<dyn Side>, ShapeError> {
    let mut random = Random::new(seed);
    let seeds: Vec<u32> = (0..k).map(|_| random.next_u64() as u32).collect();
    Ok(match name {
        "sbf-paper" => Box::new(Paper::<N, Sbf> { bits: Bits::new(bits), rule: Sbf { seeds, m: bits as u32 } }),
        "lhbf-paper" => {
            let rule = Lhbf { seeds: [seeds[0], random.next_u64() as u32], m: bits, k: k.into() };
            Box::new(Paper::<N, Lhbf> { bits: Bits::new(bits), rule })
        }
        "ohbf-paper" => {
            let sizes: Vec<u32> = partition_sizes(bits, k).iter().map(|&size| size as u32).collect();
            let bits = Bits::new(sizes.iter().map(|&size| u64::from(size)).sum());
            Box::new(Paper::<N, Ohbf> { bits, rule: Ohbf { seed: seeds[0], sizes } })
        }
        "fastbloom" => Box::new(Fastbloom::<N>::new(bits, k, seed)),
        DoubleHashing::NAME => Box::new(Ours::<N, DoubleHashing>::new(bits, k, seed)?),
        Standard::NAME => Box::new(Ours::<N, Standard>::new(bits, k, seed)?),
        Partitioned::NAME => Box::new(Ours::<N, Partitioned>::new(bits, k, seed)?),
        Blocked::NAME => Box::new(Ours::<N, Blocked>::new(bits, k, seed)?),
        _ => Box::new(Ours::<N, OneHashing>::new(bits, k, seed)?),
    })
}

/// A plain array of bits.
struct Bits {
    words: Vec<u64>,
    n: u64,
}

impl Bits {
    fn new(n: u64) -> Self {
        Self { words: vec![0; n.div_ceil(64) as usize], n }
    }

    #[inline(always)]
    fn is_one(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 != 0
    }
}

/// The bit positions of a key in one of the paper's filters.
trait Rule: Send + Sync {
    fn positions<const N: usize>(&self, key: &[u8; N]) -> impl Iterator<Item = u64>;
}

struct Sbf {
    seeds: Vec<u32>,
    m: u32,
}

impl Rule for Sbf {
    #[inline(always)]
    fn positions<const N: usize>(&self, key: &[u8; N]) -> impl Iterator<Item = u64> {
        self.seeds.iter().map(move |&seed| u64::from(bob(key, seed) % self.m))
    }
}

struct Lhbf {
    seeds: [u32; 2],
    m: u64,
    k: u64,
}

impl Rule for Lhbf {
    #[inline(always)]
    fn positions<const N: usize>(&self, key: &[u8; N]) -> impl Iterator<Item = u64> {
        let [h_1, h_2] = self.seeds.map(|seed| u64::from(bob(key, seed)));
        (0..self.k).map(move |i| (h_1 + i * h_2 + i * i * i) % self.m)
    }
}

struct Ohbf {
    seed: u32,
    sizes: Vec<u32>,
}

impl Rule for Ohbf {
    #[inline(always)]
    fn positions<const N: usize>(&self, key: &[u8; N]) -> impl Iterator<Item = u64> {
        let (word, mut first) = (bob(key, self.seed), 0);
        self.sizes.iter().map(move |&size| {
            let position = first + u64::from(word % size);
            first += u64::from(size);
            position
        })
    }
}

/// One of the paper's filters.
struct Paper<const N: usize, R> {
    bits: Bits,
    rule: R,
}

impl<const N: usize, R: Rule> Side for Paper<N, R> {
    fn insert(&mut self, keys: &[u8]) {
        for key in keys.as_chunks::<N>().0 {
            for bit in self.rule.positions(key) {
                self.bits.words[(bit / 64) as usize] |= 1 << (bit % 64);
            }
        }
    }

    fn count(&self, queries: &[u8], batch: usize, passes: u64) -> u64 {
        let mut n_positive = 0;
        for _ in 0..passes {
            for key in bursts(queries.as_chunks::<N>().0, batch).flatten() {
                n_positive += u64::from(self.rule.positions(key).all(|bit| self.bits.is_one(bit)));
            }
        }
        n_positive
    }

    fn bits(&self) -> u64 {
        self.bits.n
    }
}

/// A key as its hasher takes it fastest: an address as a number, others without their length.
struct Hashed<'a, const N: usize>(&'a [u8; N]);

impl<const N: usize> Hash for Hashed<'_, N> {
    #[inline(always)]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self.0.as_slice().try_into() {
            Ok(address) => state.write_u32(u32::from_le_bytes(address)),
            Err(_) => state.write(self.0),
        }
    }
}

/// The filter of the crate `fastbloom`. It has no lookup of many keys at once.
struct Fastbloom<const N: usize>(BloomFilter<FixedState>);

impl<const N: usize> Fastbloom<N> {
    fn new(bits: u64, k: u32, seed: u64) -> Self {
        Self(BloomFilter::with_num_bits(bits as usize).hasher(FixedState::with_seed(seed)).hashes(k))
    }
}

impl<const N: usize> Side for Fastbloom<N> {
    fn insert(&mut self, keys: &[u8]) {
        for key in keys.as_chunks::<N>().0 {
            self.0.insert(&Hashed(key));
        }
    }

    fn count(&self, queries: &[u8], batch: usize, passes: u64) -> u64 {
        let mut n_positive = 0;
        for _ in 0..passes {
            for key in bursts(queries.as_chunks::<N>().0, batch).flatten() {
                n_positive += u64::from(self.0.contains(&Hashed(key)));
            }
        }
        n_positive
    }

    fn bits(&self) -> u64 {
        self.0.num_bits() as u64
    }
}

/// One of fibula's filters, with the hasher that every table uses.
struct Ours<const N: usize, L: Layout> {
    filter: Bloom<L>,
    hasher: Hasher,
}

impl<const N: usize, L: Layout> Ours<N, L> {
    fn new(bits: u64, k: u32, seed: u64) -> Result<Self, ShapeError> {
        let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(seed));
        Ok(Self { filter: Bloom::new(Shape::new(bits, k)?, seed), hasher })
    }
}

impl<const N: usize, L: Layout> Side for Ours<N, L> {
    fn insert(&mut self, keys: &[u8]) {
        for key in keys.as_chunks::<N>().0 {
            self.filter.insert(self.hasher.digest(key));
        }
    }

    fn count(&self, queries: &[u8], batch: usize, passes: u64) -> u64 {
        let (mut digests, mut present) = ([Digest(0); MAX_BATCH], [false; MAX_BATCH]);
        let mut n_positive = 0;
        for _ in 0..passes {
            for keys in bursts(queries.as_chunks::<N>().0, batch) {
                self.hasher.digest_arrays(keys, &mut digests[..keys.len()]);
                self.filter.lookup_batch(&digests[..keys.len()], &mut present);
                n_positive += present[..keys.len()].iter().map(|&present| u64::from(present)).sum::<u64>();
            }
        }
        n_positive
    }

    fn bits(&self) -> u64 {
        self.filter.shape().bits()
    }
}

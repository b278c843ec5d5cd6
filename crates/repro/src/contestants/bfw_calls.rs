//! The Bloom forwarder with a hash call for each of its k functions, as the paper counts and ran them: FarmHash under k
//! seeds, one name after the other, one filter after another, to the first match.
//!
//! Each value has a filter of k n / ln 2 bits for its n names. The k hashes of a name serve all filters, and each is computed
//! when the first filter needs it. Names that an earlier filter takes are in an exact table, which is asked first.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", sections IV.A, V, VII.
//! Differs: the paper keeps collisions at the control plane; here names that collide have entries of their own.

use std::collections::HashMap;
use std::f64::consts::LN_2;

use super::bloom::{COLLISION_RATE, MOST_BITS};
use super::{Burst, Contestant, Input, Kind, Reader};
use crate::BenchError;
use crate::names::{mix64, value_of};

pub(super) const KIND: Kind = Kind {
    name: "bfw-k-calls",
    about: "the Bloom forwarder with k calls of FarmHash a name, one name and one filter after another",
    build: |input| build(input),
    default: false,
};

/// More functions than a collision rate of 1 % needs.
const MOST_CALLS: usize = 64;

struct Forwarder {
    filters: Vec<Filter>,
    seeds: Vec<u64>,
    exceptions: HashMap<u64, u64>,
    name_len: usize,
}

struct Filter {
    words: Vec<u64>,
    bits: u64,
}

impl Filter {
    fn new(bits: u64) -> Self {
        Self { words: vec![0; bits.div_ceil(64) as usize], bits }
    }

    /// The place of a hash: the word, and the bit in it.
    #[inline(always)]
    fn place(&self, hash: u64) -> (usize, u64) {
        let at = ((u128::from(hash) * u128::from(self.bits)) >> 64) as u64;
        ((at / 64) as usize, 1 << (at % 64))
    }
}

/// The hashes of a name, as far as they were needed.
struct Calls<'a> {
    name: [u8; 8],
    len: usize,
    seeds: &'a [u64],
    hashes: [u64; MOST_CALLS],
    n: usize,
}

impl<'a> Calls<'a> {
    #[inline(always)]
    fn new(name: u64, len: usize, seeds: &'a [u64]) -> Self {
        Self { name: name.to_le_bytes(), len, seeds, hashes: [0; MOST_CALLS], n: 0 }
    }

    #[inline(always)]
    fn get(&mut self, i: usize) -> u64 {
        if i == self.n {
            self.hashes[i] = farmhash::hash64_with_seed(&self.name[..self.len], self.seeds[i]);
            self.n += 1;
        }
        self.hashes[i]
    }
}

fn build(input: &Input<'_>) -> Result<Box<dyn Contestant>, BenchError> {
    if input.value_bits > MOST_BITS {
        let reason = format!("values may have at most {MOST_BITS} bits here; use --value-bits {MOST_BITS}");
        return Err(input.build_error(KIND.name, reason));
    }
    let n_filters = 1usize << input.value_bits;
    // Half of the other filters are asked before the right one.
    let rate = 2.0 * COLLISION_RATE / (n_filters.max(2) - 1) as f64;
    let k = (-rate.log2()).ceil().max(1.0) as usize;
    let seeds: Vec<u64> = (0..k as u64).map(|i| mix64(input.seed.wrapping_add(i))).collect();
    let mut n_names = vec![0u64; n_filters];
    for &name in input.names {
        n_names[value_of(name, input.value_bits) as usize] += 1;
    }
    let bits = |n: u64| ((n * k as u64) as f64 / LN_2).ceil().max(64.0) as u64;
    let mut filters: Vec<Filter> = n_names.into_iter().map(|n| Filter::new(bits(n))).collect();
    for &name in input.names {
        let filter = &mut filters[value_of(name, input.value_bits) as usize];
        let mut calls = Calls::new(name, input.name_len, &seeds);
        for i in 0..k {
            let (word, bit) = filter.place(calls.get(i));
            filter.words[word] |= bit;
        }
    }
    let mut made = Forwarder { filters, seeds, exceptions: HashMap::new(), name_len: input.name_len };
    let exceptions = input.names.iter().map(|&name| (name, value_of(name, input.value_bits)));
    made.exceptions = exceptions.filter(|&(name, value)| made.first_match(name) != value).collect();
    Ok(Box::new(made))
}

impl Forwarder {
    /// The first value whose filter has the name; all ones if none has.
    #[inline(always)]
    fn first_match(&self, name: u64) -> u64 {
        let mut calls = Calls::new(name, self.name_len, &self.seeds);
        let has = |filter: &Filter, calls: &mut Calls<'_>| {
            (0..self.seeds.len()).all(|i| {
                let (word, bit) = filter.place(calls.get(i));
                filter.words[word] & bit != 0
            })
        };
        let first = self.filters.iter().position(|filter| has(filter, &mut calls));
        first.map_or(u64::MAX, |value| value as u64)
    }
}

impl Contestant for Forwarder {
    fn size_bits(&self) -> u64 {
        let filters = self.filters.iter().map(|filter| 64 * filter.words.len() as u64).sum::<u64>();
        filters + 128 * self.exceptions.len() as u64
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(OneByOne(self))
    }

    fn note(&self) -> String {
        format!("{} hash calls, {} exceptions", self.seeds.len(), self.exceptions.len())
    }
}

struct OneByOne<'a>(&'a Forwarder);

impl Burst for OneByOne<'_> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        for (value, name) in values.iter_mut().zip(names) {
            let exception = self.0.exceptions.get(name).copied();
            *value = exception.unwrap_or_else(|| self.0.first_match(*name));
        }
    }
}

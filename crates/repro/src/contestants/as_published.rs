//! The Othello as its authors ran it: FarmHash with a seed for each side, one name after the other, and the two bit vectors
//! that are to keep readers from an update under way.
//!
//! A lookup hashes its name twice, reads a bit of D2, a cell of each side, and the bit of D1, and begins again if the bits
//! differ. The protocol is wrong (`crates/lookup/tests/structures/papers_protocol.rs`), so nothing updates this table; what
//! it costs readers is measured all the same.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections III, IV.D
//! (Algorithm 3), VI.A; FarmHash by the crate `farmhash`. Differs as `published` does; cells have 8 bits.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU8, AtomicU64, fence};

use lookup::othello::{Option2, Sizing};

use super::published::{MAX_KEYS, check, solve};
use super::{Burst, Contestant, Input, Kind, Reader};
use crate::BenchError;
use crate::names::{mix64, value_of};

pub(super) const KIND: Kind = Kind {
    name: "othello-as-published",
    about: "the Othello of the paper as it was run: FarmHash twice, one name after the other, the bit vectors D1 and D2",
    build: |input| build(input),
    default: false,
};

/// Bits of D1 and of D2.
const STRIPES: u64 = 512;

struct AsPublished {
    cells: [Box<[AtomicU8]>; 2],
    seeds: [u64; 2],
    name_len: usize,
    d1: Stripes,
    d2: Stripes,
}

/// One bit for all cells of the first side whose number has the same remainder.
struct Stripes([AtomicU64; (STRIPES / 64) as usize]);

impl Stripes {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[inline(always)]
    fn get(&self, cell: u64) -> u64 {
        let stripe = cell % STRIPES;
        self.0[(stripe / 64) as usize].load(Relaxed) >> (stripe % 64) & 1
    }
}

/// The cells of a name. Both sides have powers of two.
#[inline(always)]
fn ends(name: u64, name_len: usize, seeds: [u64; 2], lens: [usize; 2]) -> [u64; 2] {
    let bytes = name.to_le_bytes();
    let hash = |seed| farmhash::hash64_with_seed(&bytes[..name_len], seed);
    [0, 1].map(|side| hash(seeds[side]) & (lens[side] as u64 - 1))
}

fn build(input: &Input<'_>) -> Result<Box<dyn Contestant>, BenchError> {
    check(KIND.name, input)?;
    for tries in 0..MAX_KEYS {
        let sides = Option2::sides(input.names.len(), 1, tries);
        let lens = [sides.a as usize, sides.b as usize];
        let seeds = [0, 1].map(|side| mix64(input.seed.wrapping_add(u64::from(2 * tries + side))));
        let edges: Vec<_> = input
            .names
            .iter()
            .map(|&name| {
                let [u, v] = ends(name, input.name_len, seeds, lens);
                (u as u32, sides.a + v as u32, value_of(name, input.value_bits) as u8)
            })
            .collect();
        if let Some(arrays) = solve(&edges, sides) {
            let cells = arrays.map(|array| array.iter().map(|&cell| AtomicU8::new(cell)).collect());
            let (d1, d2) = (Stripes::new(), Stripes::new());
            return Ok(Box::new(AsPublished { cells, seeds, name_len: input.name_len, d1, d2 }));
        }
    }
    Err(input.build_error(KIND.name, format!("a cycle under each of {MAX_KEYS} pairs of seeds")))
}

impl AsPublished {
    #[inline(always)]
    fn lookup_one(&self, name: u64) -> u64 {
        let [a, b] = &self.cells;
        let [u, v] = ends(name, self.name_len, self.seeds, [a.len(), b.len()]);
        loop {
            let begun = self.d2.get(u);
            fence(Acquire);
            let value = a[u as usize].load(Relaxed) ^ b[v as usize].load(Relaxed);
            fence(Acquire);
            if self.d1.get(u) == begun {
                return value.into();
            }
        }
    }
}

impl Contestant for AsPublished {
    fn size_bits(&self) -> u64 {
        self.cells.iter().map(|side| 8 * side.len() as u64).sum::<u64>() + 2 * STRIPES
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(AsPublishedReader(self))
    }
}

struct AsPublishedReader<'a>(&'a AsPublished);

impl Burst for AsPublishedReader<'_> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        for (value, &name) in values.iter_mut().zip(names) {
            *value = self.0.lookup_one(name);
        }
    }
}

//! The Othello as its authors published it: one pair of arrays, both sides powers of two, one graph over all names, and
//! nothing that lets a writer change it under readers.
//!
//! Everything but the structure is ours, in the best form that we know: keyed digests by vector instructions, bursts with
//! prefetches where they pay, huge pages, bursts in flight. The two halves of a digest are its two hash functions. So its
//! lookups are those of a floor, in arrays that hold answers. Cells have 8 bits, so that each is an integer of its own.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections III and IV.A;
//! the sizes are the smaller of its two options, 2.67 to 4 cells a name.
//! Differs: a name that closes a cycle costs a new key for all names, as published, but names are peeled off the graph at
//! once instead of one after the other, which gives the same kind of arrays.

use lookup::hash::Digest;
use lookup::othello::{Option2, Sides, Sizing};

use super::floor::{Flat, Reads};
use super::{Contestant, Input, Kind, Reader};
use crate::BenchError;
use crate::pages::Pages;

pub(super) const KIND: Kind = Kind {
    name: "othello-published",
    about: "the Othello of the paper: one pair of power-of-two arrays, no updates beside readers; digests and bursts as ours",
    build: |input| Ok(Box::new(Published(build(input)?))),
    default: false,
};

/// Keys that are tried. One in three or so closes no cycle.
pub(super) const MAX_KEYS: u32 = 64;

struct Published(Flat);

/// Whether values fit the cells.
pub(super) fn check(contestant: &'static str, input: &Input<'_>) -> Result<(), BenchError> {
    if input.value_bits <= 8 {
        return Ok(());
    }
    let reason = format!("its cells have 8 bits here, and values {}", input.value_bits);
    Err(BenchError::Unavailable { contestant, reason })
}

fn build(input: &Input<'_>) -> Result<Flat, BenchError> {
    check(KIND.name, input)?;
    for tries in 0..MAX_KEYS {
        let keyed = Input { seed: input.seed.wrapping_add(tries.into()), ..input.clone() };
        let sides = Option2::sides(input.names.len(), 1, tries);
        let at = |half: u64, side: u32| ((half * u64::from(side)) >> 32) as u32;
        let edge = |(digest, value): (Digest, u64)| {
            (at(digest.0 >> 32, sides.a), sides.a + at(digest.0 & 0xffff_ffff, sides.b), value as u8)
        };
        let edges: Vec<_> = keyed.entries().into_iter().map(edge).collect();
        if let Some(arrays) = solve(&edges, sides) {
            return Ok(Flat::new(arrays, keyed.hasher(), input.name_len, Reads::Two));
        }
    }
    Err(input.build_error(KIND.name, format!("a cycle under each of {MAX_KEYS} keys")))
}

/// Arrays in which every name finds its value; `None` if the graph has a cycle. A name has a cell of each side; those of
/// the second side are numbered after those of the first.
pub(super) fn solve(names: &[(u32, u32, u8)], Sides { a, b }: Sides) -> Option<[Pages; 2]> {
    // Of each vertex, how many edges it has, and the XOR of their numbers: the number itself if there is one.
    let mut vertices = vec![(0u32, 0u32); (a + b) as usize];
    for (edge, &(u, v, _)) in names.iter().enumerate() {
        for end in [u, v] {
            let (degree, edges) = &mut vertices[end as usize];
            (*degree, *edges) = (*degree + 1, *edges ^ edge as u32);
        }
    }
    // Leaves are taken off with their edges until nothing is left but cycles.
    let mut taken: Vec<(u32, u32)> = Vec::with_capacity(names.len());
    for vertex in 0..a + b {
        let mut leaf = vertex;
        while let (1, edge) = vertices[leaf as usize] {
            taken.push((leaf, edge));
            let (u, v, _) = names[edge as usize];
            for end in [u, v] {
                let (degree, edges) = &mut vertices[end as usize];
                (*degree, *edges) = (*degree - 1, *edges ^ edge);
            }
            leaf ^= u ^ v;
        }
    }
    if taken.len() < names.len() {
        return None;
    }
    // In the opposite order, the cell of the leaf is still free when its edge is reached.
    let mut arrays = [Pages::zeroed(a as usize), Pages::zeroed(b as usize)];
    for &(leaf, edge) in taken.iter().rev() {
        let (u, v, value) = names[edge as usize];
        let [first, second] = &mut arrays;
        let (first, second) = (&mut first[u as usize], &mut second[(v - a) as usize]);
        if leaf == u { *first = *second ^ value } else { *second = *first ^ value }
    }
    Some(arrays)
}

impl Contestant for Published {
    fn size_bits(&self) -> u64 {
        self.0.size_bits()
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        self.0.reader()
    }

    fn note(&self) -> String {
        self.0.note()
    }
}

//! Binary search over sorted whole names, as in the papers' comparison in Click.
//!
//! Cost: log2(n) / 3 lines a lookup for names of one word; 64 W bits a name and l for its value, W words a name; any
//! change sends the whole table.
//! Alien names are dropped, every one. Texts of up to 63 bytes fit.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section VI.

use super::keys::{Key, with_width};
use super::skeleton::Skeleton;
use super::table::{Table, TableError};
use super::{Aliens, Design, RestoreError, Spec, rebuilt};
use lookup::static_map::Sorted;
use lookup::traits::InsertError;

/// Binary search over whole names; static.
pub static SORTED: Design = Design {
    name: "sorted",
    summary: "binary search over whole names; static",
    aliens: |_| Aliens::Dropped,
    fingerprint_bits: |_| 0,
    fingerprints: |_| 0..=0,
    is_static: true,
    restarts_alike: true,
    skeleton,
    restore: |spec, _, names, threads| Ok::<_, RestoreError>(skeleton(spec, names, threads)?),
    table,
};

fn skeleton(spec: &Spec, names: &[(Key<'_>, u32)], threads: usize) -> Result<Box<dyn Skeleton>, InsertError> {
    with_width!(spec.kind, W => rebuilt::skeleton::<Sorted<W>>(spec, names, threads))
}

fn table(spec: &Spec, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
    with_width!(spec.kind, W => rebuilt::table::<Sorted<W>>(spec, image))
}

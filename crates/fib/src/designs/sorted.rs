//! Binary search over sorted whole names, as in the papers' comparison in Click.
//!
//! Cost: log2(n) / 3 lines per lookup for names of one word; 64 W + l bits per name of W words with a value of l bits;
//! any change sends the whole table.
//! Alien names are all dropped. A text of more than 63 bytes is an entry for every 53 bytes.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section VI.

use super::fixed::Fixed;
use super::keys::with_width;
use super::{Aliens, Design, halves_by_width};
use lookup::static_map::Sorted;

/// Binary search over whole names; static.
pub static SORTED: Design = Design {
    name: "sorted",
    summary: "binary search over whole names; static",
    aliens: |_, _| Aliens::Dropped,
    fingerprint_bits: |_| 0,
    widened: |_, _, least| least,
    fingerprints: |_| 0..=0,
    is_static: true,
    halves: halves_by_width!(FixedNames),
};

type FixedNames<const W: usize> = Fixed<Sorted<W>>;

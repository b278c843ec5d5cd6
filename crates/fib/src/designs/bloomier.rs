//! The Bloomier filter: three cells XORed, the smallest design for names that do not change.
//!
//! Cost: three reads of cells per lookup, 1.23 l bits per name; any change sends the whole table.
//! Alien names get an arbitrary action. So do removed names, which are aliens at once.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section VI.

use super::fixed::Fixed;
use super::{Aliens, Design, Halves};
use lookup::static_map::Bloomier;

/// Bloomier filter: three cells from name to action; static.
pub static BLOOMIER: Design = Design {
    name: "bloomier",
    summary: "Bloomier filter: three cells from name to action; static",
    aliens: |_, _| Aliens::Arbitrary,
    fingerprint_bits: |_| 0,
    widened: |_, _, least| least,
    fingerprints: |_| 0..=0,
    is_static: true,
    halves: Halves::of::<Fixed<Bloomier>>(),
};

//! SetSep, of ScaleBricks: one hash function per group of names and bit of the action, found by trial.
//!
//! Cost: two lines per lookup, 0.5 + 1.5 l bits per name; any change sends the whole table, after a slow build.
//! Alien names get an arbitrary action. So do removed names, which are aliens at once.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections VI, VII.B.

use super::fixed::Fixed;
use super::{Aliens, Design, Halves};
use lookup::static_map::SetSep;

/// SetSep: hash functions that happen to be right for a group of names; static.
pub static SETSEP: Design = Design {
    name: "setsep",
    summary: "SetSep: hash functions that happen to be right for a group of names; static",
    aliens: |_, _| Aliens::Arbitrary,
    fingerprint_bits: |_| 0,
    widened: |_, _, least| least,
    fingerprints: |_| 0..=0,
    is_static: true,
    halves: Halves::of::<Fixed<SetSep>>(),
};

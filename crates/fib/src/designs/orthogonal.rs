//! Orthogonal Bloom filters (OBF): one per bit of the action, and an exact table of the names they get wrong.
//!
//! Cost: 2 to 13 bits of each of l filters per lookup, 9.6 l bits per name; any change sends the whole table.
//! Alien names, including removed ones, are dropped unless a filter matches them.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section VI.

use super::fixed::Fixed;
use super::{Aliens, Design, Halves};
use lookup::static_map::{Orthogonal, orthogonal::RATE};

/// Orthogonal Bloom filters, one per bit of the action, and an exact table of their errors; static.
pub static OBF: Design = Design {
    name: "obf",
    summary: "orthogonal Bloom filters, one a bit of the action, and an exact table of their errors; static",
    aliens: |spec, _| Aliens::DroppedBut { rate: RATE * f64::from(spec.value_bits) },
    fingerprint_bits: |_| 0,
    widened: |_, _, least| least,
    fingerprints: |_| 0..=0,
    is_static: true,
    halves: Halves::of::<Fixed<Orthogonal>>(),
};

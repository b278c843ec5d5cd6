//! OFW, the Othello Forwarder: Concise with fingerprints in its cells, so that it drops most alien names.
//!
//! Cost: two reads of cells per lookup, as in Concise; every bit of the fingerprint costs as much as one of the value.
//! Alien names are dropped, except one in 2^(l_f - 1), and fewer while cells are empty. A fingerprint proves nothing,
//! so gateways also check names exactly. With l_f = 0 it is Concise.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", sections IV.C, V.

use super::concise::Othello;
use super::{Aliens, Design, checksum};
use crate::halves;
use crate::model::designs::ofw;
use std::ops::RangeInclusive;

/// The Othello Forwarder over one graph of names for all switches.
pub static OFW: Design = Design {
    aliens: |spec, _| Aliens::DroppedBut { rate: (1.0 - f64::from(spec.fingerprint_bits)).exp2() * OCCUPIED },
    fingerprint_bits: |value_bits| widened(value_bits, BITS),
    widened: |value_bits, _, least| widened(value_bits, least),
    fingerprints,
    ..Design::new(
        "ofw",
        "Othello with fingerprints in its cells: choose it where most unknown names are to be dropped, and memory is short",
        halves!(Othello),
        ofw,
    )
};

/// Share of the pairs of cells of which names touch both, at most: before a shard is resized, two sides of 1.05 cells
/// per name, each cell left empty with probability e^(-1/1.05).
const OCCUPIED: f64 = 0.38;
/// Fewest bits of a fingerprint, unless a rate is wanted.
const BITS: u8 = 8;

fn fingerprints(value_bits: u8) -> RangeInclusive<u8> {
    1..=32 - value_bits.max(2)
}

fn widened(value_bits: u8, least: u8) -> u8 {
    checksum::fill_word(value_bits, least).min(*fingerprints(value_bits).end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_take_what_cells_leave_of_a_word() {
        assert_eq!(widened(8, BITS), 8);
        assert_eq!(widened(6, BITS), 10);
        assert_eq!(widened(16, BITS), 16);
    }
}

//! OFW, the Othello Forwarder: Concise with fingerprints in its cells, so that it drops most alien names.
//!
//! Cost: two reads of cells per lookup, as in Concise; every bit of the fingerprint costs as much as one of the value.
//! Alien names are dropped, except one in 2^(l_f - 1), and fewer while cells are empty. A fingerprint proves nothing,
//! so gateways also check names exactly. With l_f = 0 it is Concise.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", sections IV.C, V.

use super::concise::Othello;
use super::{Aliens, Design, Halves};

/// The Othello Forwarder over one graph of names for all switches.
pub static OFW: Design = Design {
    name: "ofw",
    summary: "Othello with fingerprints in its cells: drops most alien names without a second lookup",
    aliens: |spec| Aliens::DroppedBut { rate: (1.0 - f64::from(spec.fingerprint_bits)).exp2() * OCCUPIED },
    fingerprint_bits,
    fingerprints: |value_bits| 1..=32 - value_bits.max(2),
    is_static: false,
    halves: Halves::of::<Othello>(),
};

/// Share of the pairs of cells of which names touch both: two sides of about 1.17 cells per name, each cell left empty
/// with probability e^(-1/1.17).
const OCCUPIED: f64 = 0.33;
/// Fewest bits of a fingerprint.
const BITS: u8 = 8;

/// Cells do not straddle words: the bits left over in a word go to the fingerprints.
fn fingerprint_bits(value_bits: u8) -> u8 {
    let cells_a_word = 64 / (value_bits + BITS);
    64 / cells_a_word - value_bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_take_what_cells_leave_of_a_word() {
        assert_eq!(fingerprint_bits(8), 8);
        assert_eq!(fingerprint_bits(6), 10);
        assert_eq!(fingerprint_bits(16), 16);
    }
}

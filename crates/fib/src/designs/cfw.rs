//! CFW, the Cuckoo Forwarder: fingerprints with their values, one word per slot, and an exact second level.
//!
//! Cost: two words per lookup; a slot of l_f + l_p bits at load 0.95, and 16 bytes for each name of level 2.
//! Alien names are dropped, except a few in 2^l_f. A fingerprint proves nothing, so gateways also check names exactly.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", sections IV.B, V.

use super::{Aliens, Design, Spec, Structure};
use crate::halves;
use crate::model::designs::cfw;
use lookup::cuckoo::filtable::{FiltableSkeleton, Settings, level1_share};

/// The Cuckoo Forwarder over one arrangement of names for all switches.
pub static CFW: Design = Design {
    aliens: |spec, _| Aliens::DroppedBut { rate: aliens(spec.fingerprint_bits) },
    fingerprint_bits: |value_bits| widened(value_bits, BITS),
    widened: |value_bits, _, least| widened(value_bits, least),
    fingerprints: |value_bits| BITS..=32 - value_bits.max(2),
    ..Design::new(
        "cfw",
        "Cuckoo Filtable, fingerprint and action in one slot: choose it where many unknown names are to be dropped",
        halves!(Cfw),
        cfw,
    )
};

/// A Filtable.
pub struct Cfw;

impl Structure for Cfw {
    type Skeleton = FiltableSkeleton<u32>;
    fn settings(spec: &Spec) -> Settings {
        Settings::new(spec.value_bits, spec.fingerprint_bits, spec.max_names, &spec.key)
    }
}

/// Fewest bits of a fingerprint.
const BITS: u8 = 4;
/// Bits of a fingerprint that fill a wide slot, unless a rate needs more: more send hardly fewer names to level 2.
const AMPLE: u8 = 24;
/// Load of level 1.
const LOAD: f64 = 0.95;
/// Slots that a lookup compares.
const SLOTS: f64 = 8.0;

/// Equation 8 of the paper, at full load.
fn aliens(fingerprint_bits: u8) -> f64 {
    1.0 - (1.0 - (-f64::from(fingerprint_bits)).exp2()).powf(SLOTS * LOAD)
}

/// Of at least `least` bits, the fingerprint that gives the smaller table, with slots of 16 or 32 bits. A short one sends
/// more names to level 2.
fn widened(value_bits: u8, least: u8) -> u8 {
    let bits_a_name = |fingerprint_bits: u8, slot_bits: f64| {
        let first = level1_share(fingerprint_bits, LOAD * SLOTS / 2.0);
        first * slot_bits / LOAD + (1.0 - first) * 128.0 / LOAD
    };
    let (short, long) = (16u8.saturating_sub(value_bits), (32 - value_bits).min(AMPLE).max(least));
    if short >= least && bits_a_name(short, 16.0) <= bits_a_name(long, 32.0) { short } else { long }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_fill_the_slot_that_pays() {
        assert_eq!(widened(6, BITS), 10);
        assert_eq!(widened(8, BITS), 8);
        assert_eq!(widened(16, BITS), 16);
        assert!(aliens(10) < 0.01);
    }
}

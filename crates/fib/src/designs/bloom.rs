//! What Bloom forwarders have in common, whatever their policy.

use super::{Aliens, Spec};
use lookup::bloom::MAX_HASHES;
use lookup::bloom_fib::{Form, Policy, Settings, sizing};
use std::ops::RangeInclusive;

/// Largest share of alien names that may match any of the filters, by default.
const FALSE_POSITIVES: f64 = 0.01;

/// Fingerprint widths. Here b bits mean a filter that matches one alien name in 2^b.
pub(super) const FINGERPRINTS: RangeInclusive<u8> = 1..=MAX_HASHES as u8;

/// The bits with which few enough alien names pass the filters of all ports that values of `value_bits` bits can name.
pub(super) fn fingerprint_bits(value_bits: u8) -> u8 {
    sizing::hashes_for_false_positives(FALSE_POSITIVES, n_ports(value_bits))
}

fn n_ports(value_bits: u8) -> usize {
    (1 << value_bits) - 1
}

/// What alien names get if all ports have names. With fewer ports, fewer pass.
pub(super) fn aliens(spec: &Spec) -> Aliens {
    let rate_of_one = (-f64::from(spec.fingerprint_bits)).exp2();
    let rate = sizing::rate_of_all(std::iter::repeat_n(rate_of_one, n_ports(spec.value_bits)));
    Aliens::DroppedBut { rate }
}

/// The settings of a forwarder with this policy.
pub(super) fn settings(spec: &Spec, policy: Policy) -> Settings {
    Settings::new(spec.value_bits, spec.max_names, policy, Form::Separate, &spec.key)
}

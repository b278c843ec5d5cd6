//! What Bloom forwarders have in common, whatever their policy.

use fib::designs::{Aliens, Spec};
use lookup::bloom::MAX_HASHES;
use lookup::bloom_fib::{Form, Policy, Settings, sizing};
use std::ops::RangeInclusive;

/// Largest share of alien names that may match any of the filters, by default.
const FALSE_POSITIVES: f64 = 0.01;

/// Fingerprint widths. Here b bits mean a filter that matches one alien name in 2^b.
pub(crate) const FINGERPRINTS: RangeInclusive<u8> = 1..=MAX_HASHES as u8;

/// The bits for which few enough alien names pass the filters of all ports, with values of `value_bits` bits.
pub(crate) fn fingerprint_bits(value_bits: u8) -> u8 {
    sizing::hashes_for_false_positives(FALSE_POSITIVES, n_ports(value_bits))
}

fn n_ports(value_bits: u8) -> usize {
    (1 << value_bits) - 1
}

/// What alien names get when `n_actions` ports have names.
pub(crate) fn aliens(spec: &Spec, n_actions: u32) -> Aliens {
    any_matches((-f64::from(spec.fingerprint_bits)).exp2(), n_actions)
}

/// What alien names get from this many filters of this rate each.
pub(crate) fn any_matches(rate: f64, n_filters: u32) -> Aliens {
    Aliens::DroppedBut { rate: rate_of_any(rate, n_filters) }
}

/// The probability that an alien matches any of this many filters.
fn rate_of_any(rate: f64, n_filters: u32) -> f64 {
    -(f64::from(n_filters) * (-rate).ln_1p()).exp_m1()
}

/// Bits of a slot of the exact table, at its load.
const EXCEPTION_BITS: f64 = 128.0 / 0.95;

/// The bits, at least `least`, for which filters of `bits_a_name` bits and their wrong names together take the least
/// memory: longer filters get fewer names wrong.
pub(crate) fn least_memory(n_actions: u32, least: u8, bits_a_name: fn(u8) -> f64) -> u8 {
    let memory = |bits: u8| {
        let (rate, n_ports) = ((-f64::from(bits)).exp2(), f64::from(n_actions));
        bits_a_name(bits) + (1.0 - rate_of_any(rate, n_actions) / (n_ports * rate)) * EXCEPTION_BITS
    };
    let widths = least..=*FINGERPRINTS.end();
    widths.min_by(|a, b| memory(*a).total_cmp(&memory(*b))).unwrap_or(least)
}

/// The settings of a forwarder with this policy.
pub(crate) fn settings(spec: &Spec, policy: Policy) -> Settings {
    Settings::new(spec.value_bits, spec.max_names, policy, Form::Separate, &spec.key)
}

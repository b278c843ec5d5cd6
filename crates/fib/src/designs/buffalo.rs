//! BUFFALO: one filter per port, with memory shared among the ports for the fewest false positives; k_max = 8.
//!
//! Cost: filters are queried in turn up to the first match; no counters in the switch; 16 bytes for each name that a
//! filter before its own matches.
//! Alien names get the first port that matches, at the rate the memory is chosen for; gateways check names exactly.
//! Source: Yu, Fabrikant, Rexford, "BUFFALO: Bloom filter forwarding architecture for large organizations", as the papers
//! compare it. Differs: no valid name is ever answered wrongly, see `lookup::bloom_fib`.

use super::{Design, Halves, Spec, Structure, bloom};
use lookup::bloom_fib::{Names, Policy, Settings, sizing};

/// BUFFALO: plain filters in the switch, the memory shared among them for the fewest false positives.
pub static BUFFALO: Design = Design {
    name: "buffalo",
    summary: "a Bloom filter a port, sized together for the fewest false positives, and what they get wrong exactly",
    aliens: bloom::aliens,
    fingerprint_bits: bloom::fingerprint_bits,
    widened: |_, n_actions, least| bloom::least_memory(n_actions, least, bits_a_name),
    fingerprints: |_| bloom::FINGERPRINTS,
    is_static: false,
    halves: Halves::of::<Buffalo>(),
};

struct Buffalo;

impl Structure for Buffalo {
    type Skeleton = Names;
    fn settings(spec: &Spec) -> Settings {
        bloom::settings(spec, policy(spec))
    }
}

fn bits_a_name(rate_bits: u8) -> f64 {
    sizing::bits_a_name((-f64::from(rate_bits)).exp2(), sizing::K_MAX).ceil()
}

/// The bits per name at which each filter, evenly filled, has its rate, with k_max = 8.
pub(super) fn policy(spec: &Spec) -> Policy {
    Policy::buffalo((-f64::from(spec.fingerprint_bits)).exp2(), 1)
}

//! BFW, the Bloom Forwarder: one filter per port, of l hash functions and l n / ln 2 bits, stored with its counters.
//!
//! Cost: filters are queried in turn up to the first match. Each bit of a filter costs five bits, since the switch
//! holds the counters, as published. Each name that a filter before its own matches costs 16 bytes.
//! Alien names get the first port that matches, at the rate for which l is chosen; gateways check names exactly.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", IV.A, V. Differs: no valid name
//! is ever answered wrongly, see `lookup::bloom_fib`.

use crate::{bloom, filters};
use fib::designs::{Design, Spec, Structure};
use fib::halves;
use fib::model;
use fib::model::designs::{Demand, Figures};
use lookup::bloom_fib::{COUNTER_BITS, Names, Policy, Settings};

/// The Bloom forwarder, with its counters in the data plane.
pub static BFW: Design = Design {
    aliens: bloom::aliens,
    fingerprint_bits: bloom::fingerprint_bits,
    widened: |_, n_actions, least| bloom::least_memory(n_actions, least, half_full_bits),
    fingerprints: |_| bloom::FINGERPRINTS,
    tries_values: true,
    ..Design::new(
        "bfw",
        "a half-full counting Bloom filter a port, counters in the switch, and what they get wrong exactly",
        halves!(Bfw),
        figures,
    )
};

struct Bfw;

impl Structure for Bfw {
    type Skeleton = Names;
    fn settings(spec: &Spec) -> Settings {
        bloom::settings(spec, policy(spec))
    }
}

/// Half-full filters: each further function halves the false positives.
pub(crate) fn policy(spec: &Spec) -> Policy {
    Policy::Bfw { hashes: spec.fingerprint_bits }
}

/// Bits per name of a filter and its counters.
pub(crate) fn half_full_bits(hashes: u8) -> f64 {
    f64::from(hashes) / std::f64::consts::LN_2 * (1 + COUNTER_BITS) as f64
}

/// What half-full filters cost, with as many functions as they are built with.
pub(crate) fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let l = spec.fingerprint_bits.into();
    let b = model::Bfw { s: demand.symbols(), l, p: 0.5 };
    let settings = bloom::settings(spec, policy(spec));
    Figures { l_f: l, ..filters::of_filters(spec, demand, &settings, format!("l={l}"), &b) }
}

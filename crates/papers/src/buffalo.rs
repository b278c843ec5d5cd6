//! BUFFALO: one filter per port, with memory shared among the ports for the fewest false positives; k_max = 8.
//!
//! Cost: filters are queried in turn up to the first match; no counters in the switch; 16 bytes for each name that a
//! filter before its own matches.
//! Alien names get the first port that matches, at the rate the memory is chosen for; gateways check names exactly.
//! Source: Yu, Fabrikant, Rexford, "BUFFALO: Bloom filter forwarding architecture for large organizations", as the papers
//! compare it. Differs: no valid name is ever answered wrongly, see `lookup::bloom_fib`.

use crate::{bloom, filters};
use fib::designs::{Design, Spec, Structure};
use fib::halves;
use fib::model::designs::{Demand, Figures};
use fib::model::{Bfw, mcq};
use lookup::bloom_fib::{Names, Policy, Settings, sizing};

/// BUFFALO: plain filters in the switch, the memory shared among them for the fewest false positives.
pub static BUFFALO: Design = Design {
    aliens: bloom::aliens,
    fingerprint_bits: bloom::fingerprint_bits,
    widened: |_, n_actions, least| bloom::least_memory(n_actions, least, bits_a_name),
    fingerprints: |_| bloom::FINGERPRINTS,
    tries_values: true,
    ..Design::new(
        "buffalo",
        "a Bloom filter a port, sized together for the fewest false positives, and what they get wrong exactly",
        halves!(Buffalo),
        figures,
    )
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
fn policy(spec: &Spec) -> Policy {
    Policy::buffalo((-f64::from(spec.fingerprint_bits)).exp2(), 1)
}

/// Filters of rate 2^-b, with at most eight functions and no counters. `lookup` queries them in turn, as in BFW.
fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let b = u32::from(spec.fingerprint_bits);
    let l = b.min(mcq::K_MAX);
    let rates = Bfw::with_rate(demand.symbols(), l, 0.5f64.powi(b as i32));
    let settings = bloom::settings(spec, policy(spec));
    Figures { l_f: b, ..filters::of_filters(spec, demand, &settings, format!("k={l}, f=2^-{b}"), &rates) }
}

//! Summary Cache: a counting filter for each neighbour that says which contents it has.
//!
//! Cost: filters are queried in turn up to the first match; 80 bits per name with the counters; 16 bytes for each name
//! that a filter before its own matches.
//! Alien names: each neighbour matches with probability 0.24 %, so with many neighbours most aliens match one. Gateways
//! check names exactly.
//! Source: Fan, Cao, Almeida, Broder, "Summary Cache", as the papers compare it. Differs: no valid name is ever answered
//! wrongly, see `lookup::bloom_fib`.

use super::{Design, Halves, Spec, Structure, bloom};
use lookup::bloom_fib::{Names, Policy, Settings};

/// Summary Cache: one counting filter per neighbour, 16 bits per name, four hash functions.
pub static SUMMARY_CACHE: Design = Design {
    name: "summary-cache",
    summary: "a counting Bloom filter a neighbour, 16 bits a name, and what they get wrong exactly",
    aliens: |_, n_actions| bloom::any_matches(RATE, n_actions),
    fingerprint_bits: |_| 0,
    widened: |_, _, least| least,
    fingerprints: |_| 0..=0,
    is_static: false,
    halves: Halves::of::<SummaryCache>(),
};

/// Rate of a filter of 16 bits per name and four functions, `(1 - e^(-4 / 16))^4`.
const RATE: f64 = 0.0024;

pub(super) struct SummaryCache;

impl Structure for SummaryCache {
    type Skeleton = Names;
    fn settings(spec: &Spec) -> Settings {
        bloom::settings(spec, policy(spec))
    }
}

pub(super) fn policy(_: &Spec) -> Policy {
    Policy::summary_cache()
}

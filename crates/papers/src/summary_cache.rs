//! Summary Cache: a counting filter for each neighbour that says which contents it has.
//!
//! Cost: filters are queried in turn up to the first match; 80 bits per name with the counters; 16 bytes for each name
//! that a filter before its own matches.
//! Alien names: each neighbour matches with probability 0.24 %, so with many neighbours most aliens match one. Gateways
//! check names exactly.
//! Source: Fan, Cao, Almeida, Broder, "Summary Cache", as the papers compare it. Differs: no valid name is ever answered
//! wrongly, see `lookup::bloom_fib`.

use crate::{bloom, filters};
use fib::designs::{Design, Spec, Structure};
use fib::halves;
use fib::model::Bfw;
use fib::model::designs::{Demand, Figures};
use lookup::bloom_fib::{Names, Policy, Settings};

/// Summary Cache: one counting filter per neighbour, 16 bits per name, four hash functions.
pub static SUMMARY_CACHE: Design = Design {
    aliens: |_, n_actions| bloom::any_matches(RATE, n_actions),
    tries_values: true,
    ..Design::new(
        "summary-cache",
        "a counting Bloom filter a neighbour, 16 bits a name, and what they get wrong exactly",
        halves!(SummaryCache),
        figures,
    )
};

/// Rate of a filter of 16 bits per name and four functions, `(1 - e^(-4 / 16))^4`.
const RATE: f64 = 0.0024;

pub(crate) struct SummaryCache;

impl Structure for SummaryCache {
    type Skeleton = Names;
    fn settings(spec: &Spec) -> Settings {
        settings(spec)
    }
}

fn settings(spec: &Spec) -> Settings {
    bloom::settings(spec, Policy::summary_cache())
}

/// Bits per name and hash functions, as its paper recommends.
const SUMMARY: (f64, u32) = (16.0, 4);

fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let (bits_a_name, l) = SUMMARY;
    let b = Bfw { s: demand.symbols(), l, p: (-f64::from(l) / bits_a_name).exp() };
    filters::of_filters(spec, demand, &settings(spec), format!("k={l}"), &b)
}

//! What holds of a network whatever its designs, against oracles: plain maps, hop-by-hop forwarding, and itself after a
//! restart.
#![cfg_attr(not(test), allow(dead_code, reason = "the tests of this crate use all of it"))]

pub(crate) mod followers;
pub(crate) mod lab;
pub(crate) mod operations;
pub(crate) mod rates;
pub(crate) mod values;

pub use rates::switches_hold_the_configured_rate;
pub use values::{
    destinations_share_where_a_lookup_asks_for_one_value_after_the_other, network_of_an_earlier_version_goes_on,
};

use crate::designs::Design;
use crate::messages::ValueMode;

/// Each design serves a network through random changes and restarts.
pub fn serves_a_network(designs: &[&'static Design]) {
    for (seed, design) in (200..).zip(designs) {
        operations::random_operations(seed, ValueMode::Port, &[[design, design]], 150);
        operations::random_operations(seed, ValueMode::Egress, &[[design, design]], 150);
    }
}

/// A restored network that is told the same changes commits the same rows.
pub fn followers_commit_the_same_rows(designs: &[&'static Design]) {
    let seed = lookup::testkit::seed();
    for design in designs.iter().copied().filter(|design| !design.is_static) {
        for mode in [ValueMode::Port, ValueMode::Egress] {
            followers::follows(design, (mode, 8), seed);
        }
    }
}

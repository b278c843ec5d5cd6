//! Othello in every sizing and value width: 10^7 operations in all against an oracle.

use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::othello::{Option1, Option2, Othello, Settings, Sharded, Sizing};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::seed;

use super::conformance::tombstones;

fn run<S: Sizing>(value_bits: u8, n_names: u64, n_operations: usize, seed: u64) {
    let settings = Settings::new(value_bits, n_names as usize * 2, &SecretKey::from_seed(seed));
    let n_values = if value_bits == 64 { u64::MAX } else { 1 << value_bits };
    let scope = Scope { n_operations, n_names, n_values, check_every: n_operations.div_ceil(5), seed };
    let mut table = Othello::<S>::new(settings);
    conformance::random(&mut table, tombstones(), |name| Digest(mix64(name ^ seed)), &scope);
}

#[test]
fn every_value_width_conforms_in_every_sizing() {
    let seed = seed();
    for value_bits in 1..=64 {
        run::<Sharded>(value_bits, 300, 3_000, seed);
        run::<Option1>(value_bits, 300, 1_500, seed);
        run::<Option2>(value_bits, 300, 1_500, seed);
    }
}

#[test]
fn shards_conform_while_they_split_and_merge() {
    let seed = seed();
    run::<Sharded>(8, 60_000, 4_000_000, seed);
}

#[test]
fn packed_cells_conform_while_shards_split_and_merge() {
    run::<Sharded>(5, 30_000, 3_500_000, seed());
}

#[test]
fn the_papers_sizes_conform_under_churn() {
    let seed = seed();
    run::<Option1>(8, 1_000, 100_000, seed);
    run::<Option2>(16, 1_000, 100_000, seed);
}

#[test]
fn few_names_conform_under_many_operations() {
    let seed = seed();
    run::<Sharded>(2, 8, 1_500_000, seed);
    run::<Option1>(2, 8, 500_000, seed);
}

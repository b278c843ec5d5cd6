//! Othello in every sizing and value width: 10^7 operations in all against an oracle.

use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::othello::{Option1, Option2, Othello, OthelloQuery, Settings, Sharded, Sizing};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, BatchReader, Control, Query};

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

/// The memory of a table whose names all went and came anew, with a reader that lets go of old versions now and then: what
/// lookups read, and what old versions still take.
#[test]
fn a_table_takes_two_and_a_half_cells_a_name_after_churn_too() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    // Of 400 seeds, 60,000 names took 2.46 cells each at most, and 2.83 with old versions: one version of its few shards is much. Of
    // 30 seeds, a million took 2.42 and 2.45.
    for (n_names, value_bits, most_cells, most_with_old) in [(60_000, 4, 2.48, 2.95), (1_000_000, 8, 2.43, 2.47)] {
        let mut table = Othello::<Sharded>::new(Settings::new(value_bits, 2 * n_names, &SecretKey::from_seed(seed)));
        let value = |name: u64| 1 + mix64(name) % ((1 << value_bits) - 1);
        let (mut names, mut updates) = ((0..n_names as u64).collect::<Vec<_>>(), Vec::new());
        let entries: Vec<_> = names.iter().map(|&name| (Digest(mix64(name ^ seed)), value(name))).collect();
        table.insert_batch(&entries, &mut updates).unwrap();
        let mut query = table.export();
        updates.clear();
        let mut reader = query.reader();
        let cells = |bits: u64| bits as f64 / f64::from(value_bits) / n_names as f64;
        let with_old = |query: &OthelloQuery<Sharded>| query.size_bits() + 8 * query.stats().retired_bytes as u64;
        let (new, mut most, mut most_old) = (query.size_bits(), query.size_bits(), with_old(&query));
        for (step, name) in (n_names as u64..2 * n_names as u64).enumerate() {
            let old = std::mem::replace(&mut names[rng.below(n_names as u64) as usize], name);
            assert!(table.remove(Digest(mix64(old ^ seed)), &mut updates));
            table.insert(Digest(mix64(name ^ seed)), value(name), &mut updates).unwrap();
            for update in updates.drain(..) {
                assert_eq!(query.apply(&update), Ok(Applied::Applied));
            }
            if step % 32 == 0 {
                let mut got = [0];
                reader.lookup_batch(&[Digest(mix64(name ^ seed))], &mut got);
                assert_eq!(got, [value(name)]);
            }
            if step % 1000 == 0 {
                (most, most_old) = (most.max(query.size_bits()), most_old.max(with_old(&query)));
            }
        }
        let [new, end, most, most_old] = [new, query.size_bits(), most, most_old].map(cells);
        let sizes = format!(
            "{new:.3} cells a name when new, {end:.3} after churn, {most:.3} at most, {most_old:.3} with old versions"
        );
        println!("{n_names} names, {value_bits} bits: {sizes}");
        assert!(
            most <= most_cells && most_old <= most_with_old,
            "{n_names} names, {value_bits} bits, seed {seed}: {sizes}"
        );
    }
}

#[test]
fn few_names_conform_under_many_operations() {
    let seed = seed();
    run::<Sharded>(2, 8, 1_500_000, seed);
    run::<Option1>(2, 8, 500_000, seed);
}

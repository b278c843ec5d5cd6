//! The Bloom filter bench runs on small filters, and every contestant holds its members. Nothing here is timed.

use fibula_repro::BenchError;
use fibula_repro::bench::Listener;
use fibula_repro::bench::filter::{CONTESTANTS, Options, run};
use fibula_repro::report::Row;

#[derive(Default)]
struct Tables(Vec<Vec<Row>>);

impl Listener for Tables {
    fn table(&mut self, rows: &[Row]) {
        self.0.push(rows.to_vec());
    }

    fn say(&mut self, _text: &str) {}
}

fn options() -> Options {
    Options {
        n: vec![1000, 3001],
        k: vec![3, 10],
        key_bytes: vec![4, 13],
        members: vec![0.0, 0.3, 1.0],
        bits_per_name: 12.0,
        contestants: vec![],
        runs: 2,
        batch: 24,
        seed: 7,
        operations: Some(3000),
    }
}

#[test]
fn all_filters_hold_their_members_and_let_as_many_aliens_pass() {
    let mut tables = Tables::default();
    run(&options(), &mut tables).unwrap();
    assert_eq!(tables.0.len(), 2 * 2 * 2 * 3, "a table a length of keys, number of names, of positions, and share");
    for rows in &tables.0 {
        assert_eq!(rows.len(), CONTESTANTS.len());
        for row in rows {
            // 12 bits per name: 1.1 % with three positions, 0.33 % with ten; there are few aliens here.
            let (rate, most) = (row.aliens_answered.unwrap(), if row.bench.contains("k = 3,") { 0.025 } else { 0.012 });
            assert!(rate < most && (11.0..13.0).contains(&row.bits_per_name.unwrap()), "{row:?}");
        }
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let mut tables = Tables::default();
    for wrong in [
        Options { n: vec![0], ..options() },
        Options { k: vec![33], ..options() },
        Options { key_bytes: vec![6], ..options() },
        Options { members: vec![1.5], ..options() },
        Options { bits_per_name: 0.5, ..options() },
        Options { batch: 257, ..options() },
        Options { runs: 0, ..options() },
        Options { operations: Some(0), ..options() },
    ] {
        assert!(matches!(run(&wrong, &mut tables), Err(BenchError::Setting(_))), "{wrong:?}");
    }
    let unknown = run(&Options { contestants: vec!["nothing".into()], ..options() }, &mut tables);
    assert!(matches!(unknown, Err(BenchError::UnknownContestant { .. })));
    assert!(tables.0.is_empty());
}

//! The flow table bench runs on small tables, and the answers of every contestant add up. Nothing here is timed.

use fibula_repro::BenchError;
use fibula_repro::bench::Listener;
use fibula_repro::bench::flow::{CONTESTANTS, Options, Part, run};
use fibula_repro::report::Row;

#[derive(Default)]
struct Tables(Vec<Vec<Row>>);

impl Listener for Tables {
    fn table(&mut self, rows: &[Row]) {
        self.0.push(rows.to_vec());
    }

    fn say(&mut self, _text: &str) {}
}

fn options(contestants: Vec<String>) -> Options {
    Options {
        capacity: vec![1024],
        load: vec![0.5, 0.9],
        absent: vec![0.0, 0.3, 1.0],
        contestants,
        threads: vec![1, 2],
        runs: 2,
        batch: 24,
        in_flight: vec![1, 2, 3, 4],
        seed: 7,
        operations: Some(3000),
        parts: vec![Part::Lookup, Part::Insert, Part::Hint, Part::Churn],
        is_small: false,
    }
}

fn answer_alike(is_small: bool) {
    let ours: Vec<String> = CONTESTANTS
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .filter(|name| !name.starts_with("rte") && (is_small || !name.starts_with("inline")))
        .collect();
    let mut tables = Tables::default();
    run(&Options { is_small, ..options(ours.clone()) }, &mut tables).unwrap();
    // Per load: one table of inserts, one of lookups per share, number of threads and number of bursts in flight, two of hints, and one of lookups
    // after turnovers per share and table of ours.
    let n_ours = ours.iter().filter(|name| *name != "floor" && *name != "hashbrown").count();
    assert_eq!(tables.0.len(), 2 * (1 + 3 * 2 * 4 + 2 + 3 * n_ours));
    for rows in &tables.0 {
        let answered: Vec<_> = rows.iter().filter_map(|row| row.checksum).collect();
        assert!(answered.windows(2).all(|pair| pair[0] == pair[1]), "{rows:?}");
        if rows[0].bench.starts_with("flow/lookup") {
            assert_eq!(rows.len(), ours.len());
        }
    }
}

#[test]
fn all_flow_tables_answer_alike() {
    answer_alike(false);
}

#[test]
fn all_tables_of_small_flows_answer_alike() {
    answer_alike(true);
}

#[test]
fn settings_out_of_range_are_refused() {
    let mut tables = Tables::default();
    let refused = |options: Options, tables: &mut Tables| matches!(run(&options, tables), Err(BenchError::Setting(_)));
    assert!(refused(Options { capacity: vec![1000], ..options(vec![]) }, &mut tables));
    assert!(refused(Options { load: vec![1.0], ..options(vec![]) }, &mut tables));
    assert!(refused(Options { absent: vec![1.5], ..options(vec![]) }, &mut tables));
    assert!(refused(Options { batch: 65, ..options(vec![]) }, &mut tables));
    assert!(refused(Options { batch: 33, ..options(vec![]) }, &mut tables));
    assert!(refused(Options { in_flight: vec![0], ..options(vec![]) }, &mut tables));
    assert!(refused(Options { in_flight: vec![5], ..options(vec![]) }, &mut tables));
    assert!(refused(options(vec!["inline".into()]), &mut tables));
    let unknown = run(&options(vec!["nothing".into()]), &mut tables);
    assert!(matches!(unknown, Err(BenchError::UnknownContestant { .. })));
    assert!(tables.0.is_empty());
}

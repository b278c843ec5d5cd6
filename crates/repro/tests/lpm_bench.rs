//! The longest prefix match bench runs on a small table, and all contestants agree. Nothing here is timed.

use fibula_repro::BenchError;
use fibula_repro::bench::Listener;
use fibula_repro::bench::lpm::{CONTESTANTS, Destinations, Options, generate, run};
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
        prefixes: generate(3000, 7),
        source: "generated".into(),
        destinations: vec![Destinations::Random, Destinations::Prefix, Destinations::Zipf, Destinations::Trace],
        trace: vec![0x0102_0304, 0x0a00_0001, u32::MAX],
        contestants,
        runs: 2,
        batch: 24,
        seed: 7,
        operations: Some(3000),
    }
}

#[test]
fn all_tables_of_prefixes_answer_alike() {
    let ours: Vec<String> =
        CONTESTANTS.iter().map(|(name, _)| (*name).to_owned()).filter(|name| !name.starts_with("rte")).collect();
    let mut tables = Tables::default();
    run(&options(ours.clone()), &mut tables).unwrap();
    assert_eq!(tables.0.len(), 1 + 4);
    for rows in &tables.0 {
        assert_eq!(rows.len(), ours.len());
        assert!(rows.windows(2).all(|pair| pair[0].checksum == pair[1].checksum), "{rows:?}");
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let mut tables = Tables::default();
    let refused = |options: Options, tables: &mut Tables| matches!(run(&options, tables), Err(BenchError::Setting(_)));
    assert!(refused(Options { prefixes: vec![], ..options(vec![]) }, &mut tables));
    assert!(refused(Options { batch: 257, ..options(vec![]) }, &mut tables));
    assert!(refused(Options { trace: vec![], ..options(vec![]) }, &mut tables));
    let unknown = run(&options(vec!["nothing".into()]), &mut tables);
    assert!(matches!(unknown, Err(BenchError::UnknownContestant { .. })));
    assert!(tables.0.is_empty());
}

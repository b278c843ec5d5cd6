//! Every bench runs on small sets, answers correctly and reports what it should. Nothing here is timed.

use fibula_repro::BenchError;
use fibula_repro::bench::lookup::{self, Asked};
use fibula_repro::bench::{Listener, Options, build, forward, spread, update};
use fibula_repro::contestants::ALL;
use fibula_repro::names::NameSet;
use fibula_repro::report::Row;

use std::collections::BTreeSet;

use ::lookup::base::processor::Kernel;

#[derive(Default)]
struct Tables(Vec<Vec<Row>>);

impl Listener for Tables {
    fn table(&mut self, rows: &[Row]) {
        self.0.push(rows.to_vec());
    }

    fn say(&mut self, _text: &str) {}
}

fn options(contestants: &[&str]) -> Options {
    Options {
        n: vec![5000],
        contestants: contestants.iter().map(|&name| name.to_owned()).collect(),
        threads: vec![1, 2],
        value_bits: 8,
        names: NameSet::Mac,
        runs: 2,
        batch: 32,
        in_flight: vec![1],
        seed: 7,
        family: Default::default(),
        operations: Some(4096),
    }
}

const OURS: [&str; 11] = [
    "floor",
    "concise",
    "concise-static",
    "concise-option1",
    "concise-option2",
    "cuckoo",
    "ogw",
    "bloomier",
    "setsep",
    "sorted",
    "hashbrown",
];

#[test]
fn tables_of_full_names_drop_every_alien_and_others_do_not() {
    let exact = ["cuckoo", "ogw", "bgw", "hashbrown"];
    for names in [NameSet::Mac, NameSet::Zipf, NameSet::Uniform] {
        let mut tables = Tables::default();
        lookup::run_asked(&Options { names, ..options(&exact) }, Asked::Aliens, &mut tables).unwrap();
        assert_eq!(tables.0.len(), 2, "a table for each number of threads");
        let rows = || tables.0.iter().flatten();
        assert_eq!(rows().count(), 2 * exact.len());
        assert!(rows().all(|row| row.bench == "lookup/aliens" && row.checksum == Some(0) && row.min > 0.0));
    }
    for asked in [Asked::Aliens, Asked::Mixed] {
        let wrong = lookup::run_asked(&options(&["concise"]), asked, &mut Tables::default());
        assert!(matches!(wrong, Err(BenchError::Checksum { .. })), "an Othello answers for any name");
    }
}

#[test]
fn the_exact_check_of_a_gateway_knows_members_from_others() {
    let options = Options { value_bits: 1, in_flight: vec![1, 2], ..options(&["valid-names", "hashbrown"]) };
    for asked in [Asked::Live, Asked::Aliens, Asked::Mixed] {
        let mut tables = Tables::default();
        lookup::run_asked(&options, asked, &mut tables).unwrap();
        assert_eq!(tables.0.iter().flatten().count(), 2 * 2 * options.threads.len());
    }
    let wide = lookup::run(&Options { value_bits: 8, ..options }, &mut Tables::default());
    assert!(wide.is_err_and(|error| error.to_string().contains("--value-bits 1")));
}

#[test]
fn all_contestants_answer_alike_for_every_set_of_names() {
    for names in NameSet::ALL {
        for (value_bits, batch) in [(8, 32), (5, 7), (64, 256)] {
            let mut tables = Tables::default();
            // A fingerprint fits only beside values of few bits.
            let ours = if value_bits < 64 {
                [&OURS[..], &["ofw", "cfw", "bgw", "othello-published"]].concat()
            } else {
                OURS.to_vec()
            };
            let options = Options { names, value_bits, batch, ..options(&ours) };
            lookup::run(&options, &mut tables).unwrap_or_else(|error| panic!("{names}, {value_bits} bits: {error}"));
            assert_eq!(tables.0.len(), 2, "a table for each number of threads");
            for rows in &tables.0 {
                let order: Vec<&str> = rows.iter().map(|row| row.contestant.as_str()).collect();
                assert_eq!(order, ours, "in the order asked for");
                assert!(rows[0].checksum.is_none() && rows[1].checksum.is_some());
                assert!(rows[2..].iter().all(|row| row.checksum == rows[1].checksum), "{names}");
                assert!(rows.iter().all(|row| row.samples.len() == 2 && row.median > 0.0));
                assert_eq!(rows[0].bits_per_name.map(f64::round), rows[1].bits_per_name.map(f64::round));
            }
        }
    }
}

/// Each holds values of 5 or 8 bits, or one for whether there is a name, whatever the names are. What it cannot hold it says.
#[test]
fn every_contestant_answers_as_a_hash_table_does() {
    let mut agreed = BTreeSet::new();
    let mut others = BTreeSet::new();
    for (names, (value_bits, batch)) in
        NameSet::ALL.iter().flat_map(|&names| [(1, 32), (5, 7), (8, 256)].map(|of| (names, of)))
    {
        for kind in ALL {
            let mut tables = Tables::default();
            let options = Options { names, value_bits, batch, threads: vec![1], ..options(&["hashbrown", kind.name]) };
            match lookup::run(&options, &mut tables) {
                Ok(()) => {
                    let [expected, row] = &tables.0[0][..] else { panic!("two rows: {:?}", tables.0[0]) };
                    match row.checksum {
                        Some(_) => {
                            assert_eq!(row.checksum, expected.checksum, "{}, {names}, {value_bits} bits", kind.name);
                            agreed.insert(kind.name);
                        }
                        None => _ = others.insert(kind.name),
                    }
                }
                Err(BenchError::Unavailable { .. }) => _ = others.insert(kind.name),
                Err(refused) => assert!(refused.to_string().contains("bits"), "{}, {names}: {refused}", kind.name),
            }
        }
    }
    let is_part = |name: &str| {
        name.starts_with("floor") || name.starts_with("digest-") || name.contains("-begin") || name == "positions"
    };
    assert!(others.iter().all(|name| is_part(name) || name.starts_with("rte_")), "{others:?}");
    let missing: Vec<_> =
        ALL.iter().map(|kind| kind.name).filter(|name| !agreed.contains(name) && !others.contains(name)).collect();
    assert!(missing.is_empty(), "refused everything: {missing:?}");
}

/// What theory gives for the spread of four million aliens: a server of a tenth gives away its tenth at least.
#[test]
fn aliens_are_spread_evenly_and_move_as_little_as_they_must() {
    let mut tables = Tables::default();
    spread::run(&Options { n: vec![2000], threads: vec![1], runs: 1, ..options(&[]) }, &mut tables).unwrap();
    let figure = |bench: &str, contestant: &str| {
        let row = tables.0.iter().flatten().find(|row| row.bench == bench && row.contestant == contestant);
        row.unwrap_or_else(|| panic!("{bench}, {contestant}")).median
    };
    for contestant in ["colours", "maglev"] {
        let (uneven, gone) = (figure("spread/uneven", contestant), figure("spread/gone", contestant));
        assert!(uneven > 0.0 && uneven < 5.0, "{contestant}: {uneven} %");
        assert!((9.5..11.5).contains(&gone), "{contestant}: {gone} % move with a server of a tenth");
    }
    assert!((80.0..95.0).contains(&figure("spread/gone", "chance")), "nothing keeps them at chance");
    assert!(figure("spread/names", "colours") > 0.5, "colours depend on the names");
    let unknown = spread::run(&options(&["dice"]), &mut Tables::default());
    assert!(matches!(unknown, Err(BenchError::UnknownContestant { .. })));
}

#[test]
fn parts_of_a_lookup_are_measured_where_they_have_something_in_flight() {
    let mut tables = Tables::default();
    lookup::run_parts(&Options { threads: vec![1], ..options(&[]) }, &mut tables).unwrap();
    let names = |rows: &[Row]| rows.iter().map(|row| row.contestant.clone()).collect::<Vec<_>>();
    let [one, two] = &tables.0[..] else { panic!("a table for each number of bursts in flight") };
    let kernels = Kernel::available().filter(|kernel| kernel.name() != "avx512-gather");
    let digests: Vec<String> = kernels.map(|kernel| format!("digest-{kernel}")).collect();
    println!("kernels that this processor lacks: {:?}", Kernel::unavailable().collect::<Vec<_>>());
    assert!(names(one).starts_with(&digests), "{:?}", names(one));
    assert_eq!(names(two), ["floor-line", "floor", "line", "concise"]);
    assert!(names(one).ends_with(&names(two)) && names(one).contains(&"concise-begin-prefetch".to_owned()));
    for row in one.iter().chain(two) {
        let ns = row.ns_per_name.expect("the time of a name");
        assert!((ns * row.median / 1e3 - 1.0).abs() < 1e-6, "{}", row.contestant);
        assert_eq!(row.checksum.is_some(), ["line", "concise"].contains(&&row.contestant[..]), "{}", row.contestant);
        assert_eq!(row.note.contains("32 names a call"), row.checksum.is_none(), "{}: {}", row.contestant, row.note);
    }
}

#[test]
fn benches_run_all_their_parts() {
    let mut tables = Tables::default();
    build::run(&options(&["concise", "hashbrown", "network"]), &mut tables).unwrap();
    update::run(
        &options(&["concise", "line", "hashbrown", "apply", "latency", "beside", "line-latency", "line-beside"]),
        &mut tables,
    )
    .unwrap();
    forward::run(&Options { contestants: vec![], n: vec![2000], ..options(&[]) }, &mut tables).unwrap();
    let captured = Options { contestants: vec![], n: vec![2000], ..options(&[]) };
    forward::run_captured(&captured, &mut tables).unwrap();
    let two = Options { contestants: vec!["concise".into(), "line".into()], ..captured };
    assert!(forward::run_captured(&two, &mut tables).unwrap_err().to_string().contains("one design"));
    let benches: Vec<&str> = tables.0.iter().map(|rows| rows[0].bench.as_str()).collect();
    for bench in [
        "build",
        "build/peak memory",
        "build/network",
        "update/insert",
        "update/alter",
        "update/remove",
        "update/insert_batch",
        "update/apply",
        "update/latency of concise",
        "update/latency of line",
        "update/lookups beside, concise",
        "update/lookups beside, line",
        "forward/core, 64 bytes",
        "forward/core, 1500 bytes",
        "forward/gateway, 64 bytes",
        "capture/core, 64 bytes",
        "capture/core, 1500 bytes, captured of all frames",
    ] {
        assert!(benches.contains(&bench), "{bench} is not in {benches:?}");
    }
}

#[test]
fn unknown_contestants_and_settings_out_of_range_are_refused() {
    let mut tables = Tables::default();
    let unknown = lookup::run(&options(&["concise", "concice"]), &mut tables).unwrap_err();
    assert!(unknown.to_string().contains("concise-option1"), "{unknown}");
    assert!(matches!(unknown, BenchError::UnknownContestant { .. }));
    for wrong in [
        Options { n: vec![0], ..options(&[]) },
        Options { n: vec![], ..options(&[]) },
        Options { threads: vec![0], ..options(&[]) },
        Options { value_bits: 0, ..options(&[]) },
        Options { value_bits: 65, ..options(&[]) },
        Options { batch: 257, ..options(&[]) },
        Options { runs: 0, ..options(&[]) },
    ] {
        assert!(matches!(lookup::run(&wrong, &mut tables), Err(BenchError::Setting(_))), "{wrong:?}");
    }
    assert!(tables.0.is_empty());
}

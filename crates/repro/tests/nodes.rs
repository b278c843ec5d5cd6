//! Two nodes on DPDK: a frame of each name through a switch from another process.

#![cfg(feature = "dpdk")]

use fibula_repro::BenchError;
use fibula_repro::bench::nodes::{Wires, check_each_name};
use fibula_repro::bench::{Listener, Options};
use fibula_repro::names::NameSet;
use fibula_repro::report::Row;
use lookup::hash::Family;
use std::path::Path;
use std::sync::Mutex;

const N_NAMES: u64 = 30_000;
/// Nodes poll, and there are few processors.
static ALONE: Mutex<()> = Mutex::new(());

struct Silent;

impl Listener for Silent {
    fn table(&mut self, _: &[Row]) {}

    fn say(&mut self, _: &str) {}
}

fn each_name(wires: Wires, contestants: &[&str], frame_bytes: &[usize], astray: bool) -> Result<(), BenchError> {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let options = Options {
        n: vec![N_NAMES],
        contestants: contestants.iter().map(|&name| name.to_owned()).collect(),
        threads: vec![1],
        value_bits: 8,
        names: NameSet::Mac,
        runs: 1,
        batch: 32,
        in_flight: vec![1],
        seed: 5,
        family: Family::MulAdd,
        operations: None,
    };
    check_each_name(Path::new(env!("CARGO_BIN_EXE_fibula-lab")), &options, wires, frame_bytes, astray, &mut Silent)
}

#[test]
fn a_frame_of_each_name_comes_out_of_its_port_with_its_bytes_and_a_hop_less() {
    for wires in Wires::ALL {
        each_name(wires, &["concise", "line", "empty"], &[64, 1500], false)
            .unwrap_or_else(|error| panic!("{wires}: {error}"));
    }
}

#[test]
fn one_name_with_another_port_in_the_table_is_found() {
    for design in ["concise", "line"] {
        let error = each_name(Wires::Vhost, &[design], &[64], true).expect_err(design).to_string();
        assert!(
            error.contains(&format!("{design}: 1 of ")) && error.contains("were wrong, the first out of port"),
            "{error}"
        );
    }
}

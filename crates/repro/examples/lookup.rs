//! The lookup bench as a library: `cargo run --release --example lookup -- 1048576 concise,floor`.

use std::io::Write;

use fibula_repro::bench::{Listener, Options, lookup};
use fibula_repro::names::NameSet;
use fibula_repro::report::{Row, table};

struct Print;

impl Listener for Print {
    fn table(&mut self, rows: &[Row]) {
        print!("{}", table(rows));
        let _ = std::io::stdout().flush();
    }

    fn say(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let n = arguments.next().map_or(Ok(1 << 20), |n| n.parse())?;
    let contestants = arguments.next().map_or(Vec::new(), |list| list.split(',').map(str::to_owned).collect());
    let options = Options {
        n: vec![n],
        contestants,
        threads: vec![1],
        value_bits: 8,
        names: NameSet::Mac,
        runs: 5,
        batch: 32,
        in_flight: vec![1],
        seed: 1,
        family: Default::default(),
        operations: None,
    };
    lookup::run(&options, &mut Print)?;
    Ok(())
}

//! The Bloom filter bench as a library: `cargo run --release --example filter -- 13 10 1000`.

use std::io::Write;

use fibula_repro::bench::{Listener, filter};
use fibula_repro::report::{Row, table};

struct Print;

impl Listener for Print {
    fn table(&mut self, rows: &[Row]) {
        println!("{}", table(rows));
        let _ = std::io::stdout().flush();
    }

    fn say(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<Vec<u64>, _>>()?;
    let [key_bytes, k, n] = numbers[..] else { return Err("give the bytes of a key, k and n".into()) };
    let options = filter::Options {
        n: vec![n],
        k: vec![k as u32],
        key_bytes: vec![key_bytes as usize],
        members: vec![0.0, 0.5, 1.0],
        bits_per_name: 16.0,
        contestants: vec![],
        runs: 7,
        batch: 32,
        seed: 1,
        operations: None,
    };
    filter::run(&options, &mut Print)?;
    Ok(())
}

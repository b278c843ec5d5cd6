//! Rules over the five fields of IPv4 flows: lookups a second, the time to build, memory, and the cost of changes.
//!
//! All contestants have the same rules with the same priorities, and answer the same flows in the same order. Each flow is
//! one of a random rule, which an earlier rule may hide. Before the timed runs every contestant answers all flows, and its
//! answers are compared one by one with those of the first contestant.

pub(crate) mod generate;
mod rte;
mod sides;

use std::time::Instant;

pub use generate::{Kind, flows, generate};
pub use sides::CONTESTANTS;

use super::{Listener, millions_per_second};
use crate::BenchError;
use crate::contestants;
use crate::report::{Row, Setting};
use sides::Side;

/// Flows that are asked for, in a loop.
const N_FLOWS: usize = 1 << 16;
/// Default flows a run.
const LOOKUPS: u64 = 1 << 22;
/// The largest batch.
const MAX_BATCH: usize = 256;
/// Rules that come and go.
const N_CHANGES: usize = 2000;

/// A flow of IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fields {
    /// Source and destination.
    pub addresses: [u32; 2],
    /// Source and destination.
    pub ports: [u16; 2],
    /// The protocol.
    pub protocol: u8,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of rules, a table each.
    pub n: Vec<u64>,
    /// What the sets resemble, a table each.
    pub kinds: Vec<Kind>,
    /// Contestants by name; if empty, all but `linear`.
    pub contestants: Vec<String>,
    /// Rounds: how often each contestant is measured.
    pub runs: u32,
    /// Flows a call.
    pub batch: u32,
    /// Seed of rules, flows and keys.
    pub seed: u64,
    /// Lookups a run, at least.
    pub operations: Option<u64>,
}

impl Options {
    fn check(&self) -> Result<(), BenchError> {
        let setting = |text: String| Err(BenchError::Setting(text));
        if let Some(n) = self.n.iter().find(|&&n| n == 0 || n > 1 << 20) {
            return setting(format!("there are {n} rules; use 1 to 1M"));
        }
        if self.batch == 0 || self.batch as usize > MAX_BATCH {
            return setting(format!("a batch has {} flows; use 1 to {MAX_BATCH}", self.batch));
        }
        if self.runs == 0 {
            return setting("there are 0 runs; use at least 1".into());
        }
        if let Some(name) = self.contestants.iter().find(|name| CONTESTANTS.iter().all(|(known, _)| known != name)) {
            let known = CONTESTANTS.map(|(name, _)| name).join(", ");
            return Err(BenchError::UnknownContestant { name: name.clone(), known });
        }
        Ok(())
    }

    fn row(&self, bench: &str, kind: Kind, n: u64, name: &str, unit: &'static str, samples: Vec<f64>) -> Row {
        let names = kind.name().to_owned();
        let setting = Setting { n, value_bits: 0, names, threads: 1, batch: self.batch, in_flight: 1 };
        Row::new(bench, name, &setting, unit, samples)
    }
}

/// Runs the bench.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    contestants::start_dpdk(1 << 30).or_else(|error| {
        listener.say(&error.to_string());
        Ok::<(), BenchError>(())
    })?;
    for &kind in &options.kinds {
        for &n in &options.n {
            of_set(options, kind, n, listener)?;
        }
    }
    Ok(())
}

fn of_set(options: &Options, kind: Kind, n: u64, listener: &mut dyn Listener) -> Result<(), BenchError> {
    let rules = generate(kind, n as usize, options.seed);
    let flows = flows(&rules, N_FLOWS, options.seed);
    let is_chosen = |name: &str| match options.contestants.is_empty() {
        true => name != "linear",
        false => options.contestants.iter().any(|chosen| chosen == name),
    };
    let mut entered: Vec<(&str, Box<dyn Side>)> = Vec::new();
    let mut built = Vec::new();
    for (name, _) in CONTESTANTS.into_iter().filter(|(name, _)| is_chosen(name)) {
        listener.say(&format!("building {name} for {n} rules"));
        let start = Instant::now();
        let side = match sides::new(name, &rules, &flows, options.seed) {
            Ok(side) => side,
            Err(error @ (BenchError::Unavailable { .. } | BenchError::Build { .. }))
                if options.contestants.is_empty() =>
            {
                listener.say(&error.to_string());
                continue;
            }
            Err(error) if listener.goes_without(name, &error) => continue,
            Err(error) => return Err(error),
        };
        let mut row = options.row("rules/build", kind, n, name, "s", vec![start.elapsed().as_secs_f64()]);
        row.bits_per_name = Some(8.0 * side.bytes() as f64 / n as f64);
        row.note = side.note();
        built.push(row);
        entered.push((name, side));
    }
    listener.table(&built);
    look_ups(options, kind, n, &entered, listener)?;
    if is_chosen("rules") {
        // Their priorities are spread over those that are there.
        let more = generate(kind, N_CHANGES, options.seed + 1).into_iter().map(|rule| {
            let priority = (u64::from(rule.priority) * n / N_CHANGES as u64) as u32;
            lookup::rules::Rule { priority, ..rule }
        });
        let times = sides::update_us(&rules, &more.collect::<Vec<_>>(), options.seed)?;
        for (what, time) in ["insert", "remove"].into_iter().zip(times) {
            listener.table(&[options.row(&format!("rules/{what}"), kind, n, "rules", "µs", vec![time])]);
        }
    }
    Ok(())
}

fn look_ups(
    options: &Options,
    kind: Kind,
    n: u64,
    entered: &[(&str, Box<dyn Side>)],
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let batch = options.batch as usize;
    let Some((_, first)) = entered.first() else { return Ok(()) };
    let answers = |side: &dyn Side| {
        let mut values = vec![0; N_FLOWS];
        for start in (0..N_FLOWS).step_by(batch) {
            let at = start..(start + batch).min(N_FLOWS);
            side.look_up(at.clone(), &mut values[at]);
        }
        values
    };
    let expected = answers(&**first);
    let sum = |values: &[u32]| values.iter().fold(0u64, |sum, &value| sum.wrapping_add(value.into()));
    for (name, side) in entered {
        let got = answers(&**side);
        if got != expected {
            let (got, expected) = (sum(&got), sum(&expected));
            return Err(BenchError::Checksum { contestant: (*name).into(), got, expected });
        }
    }
    let mut samples = vec![Vec::new(); entered.len()];
    let passes = options.operations.unwrap_or(LOOKUPS).div_ceil(N_FLOWS as u64);
    for _ in 0..options.runs {
        for ((name, side), samples) in entered.iter().zip(&mut samples) {
            // A list of all rules takes ten thousand times as long as the others.
            let passes = if *name == "linear" { 1 } else { passes };
            let start = Instant::now();
            let got = (0..passes).fold(0u64, |total, _| total.wrapping_add(sum(&answers(&**side))));
            let elapsed = start.elapsed();
            let expected = sum(&expected).wrapping_mul(passes);
            if got != expected {
                return Err(BenchError::Checksum { contestant: (*name).into(), got, expected });
            }
            samples.push(millions_per_second(passes * N_FLOWS as u64, elapsed));
        }
    }
    let rows = entered.iter().zip(samples).map(|((name, side), samples)| {
        let mut row = options.row("rules/lookup", kind, n, name, "M/s", samples);
        row.bits_per_name = Some(8.0 * side.bytes() as f64 / n as f64);
        row.checksum = Some(sum(&expected));
        row.note = side.note();
        row
    });
    listener.table(&rows.collect::<Vec<_>>());
    Ok(())
}

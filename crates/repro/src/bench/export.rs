//! The tables of a network's switches from one skeleton, against the same table built from names.
//!
//! A controller knows every name once: which cells (OFW, Concise) or slots (CFW) it has. What a switch's table holds
//! follows from that and the switch's own values, so that a switch more costs no search for places. Each figure is of
//! one thread and a switch: the first for a switch alone, the second for many at once, the last from scratch.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", section VI (CP to DP
//! construction); "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section V.A.

use std::hint::black_box;
use std::time::Instant;

use lookup::cuckoo::filtable::{Skeleton, View};
use lookup::hash::Digest;
use lookup::othello::{Colouring, Graph, Othello, Settings, Sharded};
use lookup::traits::Query;

use super::{Listener, Options};
use crate::BenchError;
use crate::contestants::{Input, filtable_settings};
use crate::names::{mix64, value_of};
use crate::report::{Row, Setting, size_text};

/// Most switches whose tables are derived at once, and about how many cells they have together at most.
const SWITCHES: usize = 100;
const CELLS: u64 = 2 << 30;
/// Places in the network, each with names.
const PLACES: u64 = 1024;
/// Bits of a fingerprint of OFW.
const FINGERPRINT_BITS: u8 = 8;

/// What the switches of the network are derived from.
struct Network<'a> {
    input: &'a Input<'a>,
    /// The place of every name.
    placed: Vec<(Digest, u32)>,
    /// The values that places have at each switch.
    routes: Vec<Vec<u64>>,
}

/// Nanoseconds a name and switch.
#[derive(Default)]
struct Samples {
    one: Vec<f64>,
    many: Vec<f64>,
    scratch: Vec<f64>,
}

/// The rows of one n, design by design.
/// # Errors
/// [`BenchError`]: a table could not be built, or answers wrongly.
pub(super) fn run(
    options: &Options,
    input: &Input<'_>,
    setting: &Setting,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let n_switches = (CELLS / (3 * setting.n)).clamp(1, SWITCHES as u64) as usize;
    let value = |switch, place| value_of(place + switch * PLACES, input.value_bits);
    let placed = input.entries().iter().map(|&(digest, _)| (digest, (mix64(digest.0) % PLACES) as u32)).collect();
    let routes = (0..n_switches as u64).map(|switch| (0..PLACES).map(|place| value(switch, place)).collect()).collect();
    let network = Network { input, placed, routes };
    let names = size_text(setting.n);
    listener.say(&format!("deriving the tables of {n_switches} switches with {names} names each"));
    let concise = Settings::new(input.value_bits, input.names.len(), &input.secret_key());
    listener.table(&rows("concise", setting, n_switches, network.othello(&concise, options.runs)?));
    if input.value_bits <= 64 - FINGERPRINT_BITS {
        let settings = concise.with_fingerprints(FINGERPRINT_BITS);
        listener.table(&rows("ofw", setting, n_switches, network.othello(&settings, options.runs)?));
    }
    if let Some(samples) = network.filtable(options.runs)? {
        listener.table(&rows("cfw", setting, 1, samples));
    }
    Ok(())
}

fn rows(design: &str, setting: &Setting, n_switches: usize, samples: Samples) -> Vec<Row> {
    let row = |who: &str, samples, note: String| {
        let mut row = Row::new("build/network", &format!("{design}, {who}"), setting, "ns/name", samples);
        row.note = note;
        row
    };
    let mut rows = vec![row("one switch", samples.one, "from the skeleton".into())];
    if n_switches > 1 {
        rows.push(row("many switches", samples.many, format!("a switch, {n_switches} at once")));
    }
    rows.push(row("from scratch", samples.scratch, "from names".into()));
    rows
}

impl Network<'_> {
    fn ns(&self, start: Instant) -> f64 {
        start.elapsed().as_nanos() as f64 / self.placed.len() as f64
    }

    /// The names with their values at a switch.
    fn valued(&self, switch: usize) -> Vec<(Digest, u64)> {
        self.placed.iter().map(|&(digest, place)| (digest, self.routes[switch][place as usize])).collect()
    }

    /// Asks tables for some names.
    fn check(&self, switch: usize, answers: &[&dyn Fn(Digest) -> u64]) -> Result<(), BenchError> {
        let step = (self.placed.len() / 10_000).max(1);
        for (&(digest, place), &name) in self.placed.iter().zip(self.input.names).step_by(step) {
            let expected = self.routes[switch][place as usize];
            if let Some(got) = answers.iter().map(|answer| answer(digest)).find(|&got| got != expected) {
                return Err(BenchError::WrongAnswer { contestant: "network".into(), name, got, expected });
            }
        }
        Ok(())
    }

    fn othello(&self, settings: &Settings, runs: u32) -> Result<Samples, BenchError> {
        let error = |error| self.input.build_error("network", error);
        let graph = Graph::<Sharded, u32>::build(settings.clone(), &self.placed, 1).map_err(error)?;
        let n_switches = self.routes.len();
        let mut samples = Samples::default();
        for round in 0..runs as usize {
            let switch = round % n_switches;
            let start = Instant::now();
            let (_, one) = black_box(Colouring::export(&graph, |place| self.routes[switch][place as usize]));
            samples.one.push(self.ns(start));

            let start = Instant::now();
            let value = |switch: usize, place| self.routes[switch][place as usize];
            let many = black_box(Colouring::export_many(&graph, n_switches, value));
            samples.many.push(self.ns(start) / n_switches as f64);
            self.check(switch, &[&|name| one.lookup(name), &|name| many[switch].1.lookup(name)])?;
            drop((one, many));

            let start = Instant::now();
            let built = Othello::<Sharded>::build(settings.clone(), &self.valued(switch), 1).map_err(error)?;
            samples.scratch.push(self.ns(start));
            self.check(switch, &[&|name| built.1.lookup(name)])?;
        }
        Ok(samples)
    }

    /// `None` where no fingerprint fits beside the values.
    fn filtable(&self, runs: u32) -> Result<Option<Samples>, BenchError> {
        let Some(settings) = filtable_settings(self.input, self.placed.len()) else { return Ok(None) };
        let error = |error| self.input.build_error("network", error);
        let mut skeleton = Skeleton::new(settings.clone(), self.placed.len());
        skeleton.insert_batch(&self.placed).1.map_err(error)?;
        let mut samples = Samples::default();
        for round in 0..runs as usize {
            let switch = round % self.routes.len();
            let start = Instant::now();
            let (_, one) = black_box(View::export(&skeleton, |place| self.routes[switch][place as usize]));
            samples.one.push(self.ns(start));

            let start = Instant::now();
            let mut alone = Skeleton::new(settings.clone(), self.placed.len());
            alone.insert_batch(&self.valued(switch)).1.map_err(error)?;
            let (_, built) = black_box(View::export(&alone, |value| value));
            samples.scratch.push(self.ns(start));
            self.check(switch, &[&|name| one.lookup(name), &|name| built.lookup(name)])?;
        }
        Ok(Some(samples))
    }
}

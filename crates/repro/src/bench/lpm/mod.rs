//! Longest prefix match: look-ups per second in a table of IPv4 prefixes, the time to build it, and its memory.
//!
//! All contestants hold the same prefixes with the same next hops. Those are drawn at random from 255, so that
//! neighbours do not share one systematically. They answer the same addresses in the same order; each timed run
//! compares the sum of all next hops, and every contestant first looks up all addresses of the first kind.

mod behind_filters;
mod generate;
mod paper;
mod rte;
mod sides;

use std::time::Instant;

use lookup::lpm::Prefix;

pub use generate::{generate, listed};
pub use sides::CONTESTANTS;

use super::{Listener, millions_per_second};
use crate::BenchError;
use crate::contestants;
use crate::names::{Random, Zipf, mix64};
use crate::report::{Row, Setting};
pub(crate) use sides::Probes;
use sides::{MAX_BATCH, Side};

/// Default addresses per run.
const LOOKUPS: u64 = 1 << 23;
/// Maximum length of the array of addresses.
const MAX_ADDRESSES: usize = 1 << 20;
/// Number of next hops.
const N_HOPS: u64 = 255;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The prefixes, each once.
    pub prefixes: Vec<Prefix<u32>>,
    /// The source of the prefixes, for the title.
    pub source: String,
    /// Which addresses are looked up.
    pub destinations: Vec<Destinations>,
    /// Addresses of a trace, for [`Destinations::Trace`].
    pub trace: Vec<u32>,
    /// Contestants by name; if empty, all but the paper's variants behind filters.
    pub contestants: Vec<String>,
    /// Rounds: how often each contestant is measured.
    pub runs: u32,
    /// Addresses per call.
    pub batch: u32,
    /// Seed of next hops and orders.
    pub seed: u64,
    /// Look-ups per run, at least.
    pub operations: Option<u64>,
}

/// Which addresses are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destinations {
    /// Any address.
    Random,
    /// An address of a random prefix.
    Prefix,
    /// An address of a prefix, with prefixes in proportion to 1/rank: a few make up most of the traffic.
    Zipf,
    /// The addresses of a trace, repeated.
    Trace,
}

impl std::str::FromStr for Destinations {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" => Ok(Self::Random),
            "prefix" => Ok(Self::Prefix),
            "zipf" => Ok(Self::Zipf),
            "trace" => Ok(Self::Trace),
            _ => Err(format!("there are no destinations {text:?}; use random, prefix, zipf or trace")),
        }
    }
}

impl Destinations {
    fn addresses(self, options: &Options) -> Vec<u32> {
        let mut random = Random::new(options.seed ^ 0x6164_6472);
        let n = MAX_ADDRESSES.min(options.operations.unwrap_or(LOOKUPS).max(1) as usize);
        let prefixes = &options.prefixes;
        let inside = |at: u64, random: &mut Random| {
            let prefix = prefixes[at as usize];
            prefix.address() | (random.next_u64() as u32 & (prefix.address() ^ prefix.last()))
        };
        let n_prefixes = prefixes.len() as u64;
        match self {
            Self::Random => (0..n).map(|_| random.next_u64() as u32).collect(),
            Self::Prefix => (0..n).map(|_| inside(random.below(n_prefixes), &mut random)).collect(),
            Self::Zipf => {
                let zipf = Zipf::new(n_prefixes);
                // Prefixes of one rank are anywhere in the table.
                let at = |rank: u64| mix64(options.seed ^ rank) % n_prefixes;
                (0..n).map(|_| inside(at(zipf.draw(&mut random)), &mut random)).collect()
            }
            Self::Trace => options.trace.iter().copied().cycle().take(n).collect(),
        }
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Prefix => "prefix",
            Self::Zipf => "zipf",
            Self::Trace => "trace",
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let setting = |text: String| Err(BenchError::Setting(text));
        if self.prefixes.is_empty() || self.prefixes.len() > 1 << 23 {
            return setting(format!("there are {} prefixes; use 1 to 8M", self.prefixes.len()));
        }
        if self.batch == 0 || self.batch as usize > MAX_BATCH {
            return setting(format!("a batch has {} addresses; use 1 to {MAX_BATCH}", self.batch));
        }
        if self.runs == 0 {
            return setting("there are 0 runs; use at least 1".into());
        }
        if self.trace.is_empty() && self.destinations.contains(&Destinations::Trace) {
            return setting(
                "destinations are to come from a trace, but there is none; name a pcap file with --pcap".into(),
            );
        }
        if let Some(name) = self.contestants.iter().find(|name| CONTESTANTS.iter().all(|(known, _)| known != name)) {
            let known = CONTESTANTS.map(|(name, _)| name).join(", ");
            return Err(BenchError::UnknownContestant { name: name.clone(), known });
        }
        Ok(())
    }

    fn row(&self, bench: &str, name: &str, unit: &'static str, samples: Vec<f64>) -> Row {
        let n = self.prefixes.len() as u64;
        let setting =
            Setting { n, value_bits: 0, names: self.source.clone(), threads: 1, batch: self.batch, in_flight: 1 };
        Row::new(bench, name, &setting, unit, samples)
    }
}

/// The prefixes with their next hops.
fn routes(options: &Options) -> Vec<(Prefix<u32>, u64)> {
    let hop = |prefix: Prefix<u32>| {
        1 + mix64(options.seed ^ (u64::from(prefix.address()) << 8 | u64::from(prefix.len()))) % N_HOPS
    };
    options.prefixes.iter().map(|&prefix| (prefix, hop(prefix))).collect()
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
    let routes = routes(options);
    let is_chosen = |name: &str| match options.contestants.is_empty() {
        true => sides::is_default(name),
        false => options.contestants.iter().any(|chosen| chosen == name),
    };
    let mut entered: Vec<(&str, Box<dyn Side>)> = Vec::new();
    let mut built = Vec::new();
    for (name, _) in CONTESTANTS.into_iter().filter(|(name, _)| is_chosen(name)) {
        listener.say(&format!("building {name}"));
        let start = Instant::now();
        let side = match sides::new(name, &routes, options.seed) {
            Ok(side) => side,
            Err(error @ BenchError::Unavailable { .. }) if options.contestants.is_empty() => {
                listener.say(&error.to_string());
                continue;
            }
            Err(error) if listener.goes_without(name, &error) => continue,
            Err(error) => return Err(error),
        };
        let seconds = start.elapsed().as_secs_f64();
        let mut row = options.row("lpm/build", name, "s", vec![seconds]);
        row.bits_per_name = Some(8.0 * side.bytes() as f64 / routes.len() as f64);
        row.note = format!("{:.2} MB for look-ups, {:.1} MB beside", mb(side.bytes()), mb(side.bytes_beside()));
        built.push(row);
        entered.push((name, side));
    }
    listener.table(&built);
    for &destinations in &options.destinations {
        let addresses = destinations.addresses(options);
        look_ups(options, destinations, &addresses, &entered, listener)?;
    }
    Ok(())
}

/// Hash probes of a successful lookup in the table of a contestant behind filters, counted, and expected by equation
/// (17) of its paper; for each kind of addresses.
/// # Errors
/// [`BenchError`]
pub(crate) fn probes(options: &Options, name: &str) -> Result<Vec<(Destinations, Probes)>, BenchError> {
    options.check()?;
    let side = sides::new(name, &routes(options), options.seed)?;
    let of_kind = |&kind: &Destinations| Some((kind, side.probes(&kind.addresses(options))?));
    options
        .destinations
        .iter()
        .map(of_kind)
        .collect::<Option<_>>()
        .ok_or_else(|| BenchError::Setting(format!("{name} stands behind no filters")))
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn look_ups(
    options: &Options,
    destinations: Destinations,
    addresses: &[u32],
    entered: &[(&str, Box<dyn Side>)],
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let batch = options.batch as usize;
    let Some((_, first)) = entered.first() else { return Ok(()) };
    let expected = first.sum(addresses, batch);
    let passes = options.operations.unwrap_or(LOOKUPS).div_ceil(addresses.len() as u64);
    let mut samples = vec![Vec::new(); entered.len()];
    for run in 0..=options.runs {
        for ((name, side), samples) in entered.iter().zip(&mut samples) {
            // Before the first run, one pass warms up the table and checks that it answers like the others.
            let passes = if run == 0 { 1 } else { passes };
            let start = Instant::now();
            let got = (0..passes).fold(0u64, |sum, _| sum.wrapping_add(side.sum(addresses, batch)));
            let elapsed = start.elapsed();
            let expected = expected.wrapping_mul(passes);
            if got != expected {
                return Err(BenchError::Checksum { contestant: (*name).into(), got, expected });
            }
            if run > 0 {
                samples.push(millions_per_second(passes * addresses.len() as u64, elapsed));
            }
        }
    }
    let rows = entered.iter().zip(samples).map(|((name, side), samples)| {
        let mut row = options.row(&format!("lpm/lookup, {} destinations", destinations.name()), name, "M/s", samples);
        row.bits_per_name = Some(8.0 * side.bytes() as f64 / options.prefixes.len() as f64);
        row.checksum = Some(expected);
        row.note = side.note(addresses);
        row
    });
    listener.table(&rows.collect::<Vec<_>>());
    Ok(())
}

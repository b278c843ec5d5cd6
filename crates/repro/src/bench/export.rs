//! The tables of a network's switches, built from one skeleton, compared with the same table built from names.
//!
//! A controller stores the place of every name once: its cells (OFW, Concise) or slots (CFW). The table of a switch
//! follows from these and the switch's own values, so a further switch needs no search for places. For BFW the
//! controller has only the names, in a cuckoo table: the filters of one switch are of no use to another. Each figure is
//! for one thread and per switch: arranging the names once in the controller; then one switch's table alone, each of
//! many switches' tables at once, and one from scratch.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", section VI (CP to DP
//! construction); "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section V.A.

use std::hint::black_box;
use std::time::Instant;

use lookup::bloom_fib::BloomFib;
use lookup::cuckoo::exact::{self, CuckooSkeleton};
use lookup::cuckoo::filtable::FiltableSkeleton;
use lookup::hash::Digest;
use lookup::othello::{Graph, Settings, Sharded};
use lookup::traits::{Query, SettingsOf, Single, Skeleton, View};

use super::{Listener, Options};
use crate::BenchError;
use crate::contestants::{Input, bloom_settings, filtable_settings};
use crate::names::{mix64, value_of};
use crate::report::{Row, Setting, size_text};

/// Most switches whose tables are derived at once, and about how many cells they have together at most.
const SWITCHES: usize = 100;
const CELLS: u64 = 2 << 30;
/// Places in the network, each with names.
const PLACES: u64 = 1024;
/// Bits of an OFW fingerprint.
const FINGERPRINT_BITS: u8 = 8;

/// What the tables of the network's switches are derived from.
struct Network<'a> {
    input: &'a Input<'a>,
    /// The place of every name.
    placed: Vec<(Digest, u32)>,
    /// For each switch, the value of every place.
    routes: Vec<Vec<u64>>,
}

/// Nanoseconds per name and switch; empty where not asked for.
#[derive(Default)]
struct Samples {
    control: Vec<f64>,
    one: Vec<f64>,
    many: Vec<f64>,
    scratch: Vec<f64>,
}

/// The parts that can be measured of a design.
const CONTROL: &str = "control half";
const ONE: &str = "one switch";
const MANY: &str = "many switches";
const SCRATCH: &str = "from scratch";
pub(crate) const PARTS: [&str; 4] = [CONTROL, ONE, MANY, SCRATCH];
/// The designs.
pub(crate) const DESIGNS: [&str; 4] = ["concise", "ofw", "cfw", "bfw"];

/// What is measured by default: not Bloom forwarders, which take minutes with many names and ports.
pub(super) fn by_default(row: &str) -> bool {
    !row.starts_with("bfw")
}

/// The rows of one n, design by design: those that `wanted` accepts, such as `ofw, one switch`.
/// # Errors
/// [`BenchError`]: a table could not be built, or answered wrongly.
pub(crate) fn run(
    options: &Options,
    input: &Input<'_>,
    setting: &Setting,
    wanted: &dyn Fn(&str) -> bool,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let wants = |design: &str, part: &str| wanted(&format!("{design}, {part}"));
    let wants_any = |design: &str| PARTS.iter().any(|part| wants(design, part));
    let wants_many = ["concise", "ofw"].iter().any(|design| wants(design, MANY));
    let most = if wants_many { SWITCHES } else { 1 };
    let n_switches = (CELLS / (3 * setting.n)).clamp(1, most as u64) as usize;
    let value = |switch, place| value_of(place + switch * PLACES, input.value_bits);
    let placed = input.entries().iter().map(|&(digest, _)| (digest, (mix64(digest.0) % PLACES) as u32)).collect();
    let routes = (0..n_switches as u64).map(|switch| (0..PLACES).map(|place| value(switch, place)).collect()).collect();
    let network = Network { input, placed, routes };
    let names = size_text(setting.n);
    listener.say(&format!("deriving the tables of {n_switches} switches with {names} names each"));
    let concise = Settings::new(input.value_bits, input.names.len(), &input.secret_key());
    let ofw = (input.value_bits <= 64 - FINGERPRINT_BITS).then(|| concise.clone().with_fingerprints(FINGERPRINT_BITS));
    for (design, settings) in [("concise", Some(concise)), ("ofw", ofw)] {
        if let Some(settings) = settings.filter(|_| wants_any(design)) {
            let samples =
                network.tables::<Graph, Graph<Sharded, u64>>(&settings, options.runs, |part| wants(design, part))?;
            listener.table(&rows(design, setting, n_switches, samples));
        }
    }
    if wants_any("cfw")
        && let Some(settings) = filtable_settings(input, input.names.len())
    {
        let wants = |part: &str| part != MANY && wants("cfw", part);
        let samples = network.tables::<FiltableSkeleton, FiltableSkeleton<u64>>(&settings, options.runs, wants)?;
        listener.table(&rows("cfw", setting, 1, samples));
    }
    if wants_any("bfw") {
        let samples = network.filters(options.runs, |part| wants("bfw", part))?;
        listener.table(&rows("bfw", setting, 1, samples));
    }
    Ok(())
}

fn rows(design: &str, setting: &Setting, n_switches: usize, samples: Samples) -> Vec<Row> {
    let parts = [
        (CONTROL, samples.control, "once for all switches".to_owned()),
        (ONE, samples.one, "from the control half".into()),
        (MANY, samples.many, format!("a switch, {n_switches} at once")),
        (SCRATCH, samples.scratch, "from names".into()),
    ];
    let measured = parts.into_iter().filter(|(_, samples, _)| !samples.is_empty());
    let row = |(part, samples, note)| {
        let mut row = Row::new("build/network", &format!("{design}, {part}"), setting, "ns/name", samples);
        row.note = note;
        row
    };
    measured.map(row).collect()
}

impl Network<'_> {
    fn ns(&self, start: Instant) -> f64 {
        start.elapsed().as_nanos() as f64 / self.placed.len() as f64
    }

    /// The names with their values at one switch.
    fn valued(&self, switch: usize) -> Vec<(Digest, u64)> {
        self.placed.iter().map(|&(digest, place)| (digest, self.routes[switch][place as usize])).collect()
    }

    /// Looks up some names in a table and checks the answers.
    fn check(&self, switch: usize, answer: &dyn Fn(Digest) -> u64) -> Result<(), BenchError> {
        let step = (self.placed.len() / 10_000).max(1);
        for (&(digest, place), &name) in self.placed.iter().zip(self.input.names).step_by(step) {
            let expected = self.routes[switch][place as usize];
            let got = answer(digest);
            if got != expected {
                return Err(BenchError::WrongAnswer { contestant: "network".into(), name, got, expected });
            }
        }
        Ok(())
    }

    /// The tables of one structure: `S` maps names to places, `T` maps names to the values of one switch.
    fn tables<S, T>(
        &self,
        settings: &SettingsOf<S>,
        runs: u32,
        wants: impl Fn(&str) -> bool,
    ) -> Result<Samples, BenchError>
    where
        S: Skeleton<Key = Digest, Payload = u32>,
        T: Skeleton<Key = Digest, Payload = u64, Query = S::Query>,
    {
        let error = |error| self.input.build_error("network", error);
        let build = || S::build(settings, &self.placed, 1).map_err(error);
        let skeleton = build()?;
        let n_switches = self.routes.len();
        let mut samples = Samples::default();
        for round in 0..runs as usize {
            let switch = round % n_switches;
            if wants(CONTROL) {
                let start = Instant::now();
                black_box(build()?);
                samples.control.push(self.ns(start));
            }
            if wants(ONE) {
                let start = Instant::now();
                let value = |place| self.routes[switch][place as usize];
                let (_, one) = black_box(S::View::open(&skeleton, value).map_err(error)?);
                samples.one.push(self.ns(start));
                self.check(switch, &|name| one.lookup(name))?;
            }
            if wants(MANY) && n_switches > 1 {
                let start = Instant::now();
                let value = |switch: usize, place| self.routes[switch][place as usize];
                let many = black_box(S::View::export_many(&skeleton, n_switches, value).map_err(error)?);
                samples.many.push(self.ns(start) / n_switches as f64);
                self.check(switch, &|name| many[switch].lookup(name))?;
            }
            if wants(SCRATCH) {
                let start = Instant::now();
                let built = Single::<T>::build(settings.clone(), &self.valued(switch), 1).map_err(error)?;
                samples.scratch.push(self.ns(start));
                self.check(switch, &|name| built.1.lookup(name))?;
            }
        }
        Ok(samples)
    }

    /// The controller's table of names and places, and the filters of one switch.
    fn filters(&self, runs: u32, wants: impl Fn(&str) -> bool) -> Result<Samples, BenchError> {
        let (input, n_names) = (self.input, self.placed.len());
        let error = |error| input.build_error("network", error);
        let settings = bloom_settings(input).map_err(|reason| input.build_error("network", reason))?;
        let named: Vec<_> = input.names.iter().zip(&self.placed).map(|(&n, &(_, place))| ([n], place)).collect();
        let mut samples = Samples::default();
        for round in 0..runs as usize {
            let switch = round % self.routes.len();
            if wants(CONTROL) {
                let key = input.secret_key();
                let settings = exact::Settings::new(input.name_len as u8, 16, n_names, input.family, &key);
                let start = Instant::now();
                black_box(CuckooSkeleton::<1>::build(&settings, &named, 1).map_err(error)?);
                samples.control.push(self.ns(start));
            }
            if wants(ONE) {
                let start = Instant::now();
                let (_, one) = black_box(BloomFib::build(settings.clone(), &self.valued(switch), 1).map_err(error)?);
                samples.one.push(self.ns(start));
                self.check(switch, &|name| one.lookup(name))?;
            }
        }
        Ok(samples)
    }
}

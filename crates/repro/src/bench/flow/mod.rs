//! Flow tables: lookups per second at a capacity, a load and a share of absent keys; inserts per second up to a load;
//! how often hints are wrong after turnovers; bytes per entry.
//!
//! Keys and values have 16 bytes each, or 4 bytes each: with 4, the form with entries in the lines takes part too. All
//! contestants hold the same keys and answer the same queries in the same order, of which a given share is absent on
//! average. Each timed run compares the sum of all values found with the correct one. With several threads each has its
//! own table, as when flows are steered to cores.

pub(crate) mod books;
mod floor;
mod phases;
mod rte;
mod sides;

use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};

pub use sides::CONTESTANTS;

use lookup::base::prefetch::BURST;
use lookup::publish::ring::IN_FLIGHT;
use sides::{Key, MAX_BATCH, Side};

use super::{Listener, millions_per_second};
use crate::BenchError;
use crate::contestants::{self, Calls};
use crate::names::{Random, mix64};
use crate::report::{Row, Setting};

/// Default queries per run and thread.
const LOOKUPS: u64 = 1 << 23;
/// Maximum length of the array of queries.
const MAX_QUERIES: usize = 1 << 22;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Slots of a table, powers of two.
    pub capacity: Vec<u64>,
    /// Shares of the slots that are filled, above 0 and below 1, ascending.
    pub load: Vec<f64>,
    /// Shares of the queries whose keys are absent, 0 to 1.
    pub absent: Vec<f64>,
    /// Contestants by name; all if empty.
    pub contestants: Vec<String>,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Rounds: how often each contestant is measured.
    pub runs: u32,
    /// Keys per call.
    pub batch: u32,
    /// Numbers of bursts in flight: see [`Calls::in_flight`]. Only lookups have several.
    pub in_flight: Vec<u32>,
    /// Seed of keys, orders and secrets.
    pub seed: u64,
    /// Lookups per run and thread, at least.
    pub operations: Option<u64>,
    /// What is measured.
    pub parts: Vec<Part>,
    /// Keys and values of 4 bytes instead of 16. Each power of two of `capacity` then counts as five eighths as many
    /// slots: those of the inline form with as many lines as the other forms have.
    pub is_small: bool,
}

/// A part of the bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Lookups per second.
    Lookup,
    /// Inserts per second into an empty table, up to the load.
    Insert,
    /// Rate at which the hint is wrong, after the fill and after 30 turnovers.
    Hint,
    /// Lookups per second after turnovers, before and after flows are moved back to their first buckets.
    Churn,
}

impl std::str::FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "lookup" => Ok(Self::Lookup),
            "insert" => Ok(Self::Insert),
            "hint" => Ok(Self::Hint),
            "churn" => Ok(Self::Churn),
            _ => Err(format!("there is no part {text:?}; use lookup, insert, hint or churn")),
        }
    }
}

/// Turnovers after which hints are measured again.
const TURNOVERS: usize = 30;
/// Turnovers after which lookups are measured: by then the number of flows in their second bucket has reached its
/// maximum.
const FEW_TURNOVERS: usize = 3;

impl Options {
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let setting = |text: String| Err(BenchError::Setting(text));
        if let Some(capacity) = self.capacity.iter().find(|n| !n.is_power_of_two() || !(1024..=1 << 30).contains(*n)) {
            return setting(format!("the capacity is {capacity}; use a power of two from 1K to 1024M"));
        }
        if let Some(load) = self.load.iter().find(|load| !(0.01..=0.98).contains(*load)) {
            return setting(format!("the load is {load}; use 0.01 to 0.98"));
        }
        if let Some(absent) = self.absent.iter().find(|absent| !(0.0..=1.0).contains(*absent)) {
            return setting(format!("the share of absent keys is {absent}; use 0 to 1"));
        }
        if self.batch == 0 || self.batch as usize > MAX_BATCH {
            return setting(format!("a batch has {} keys; use 1 to {MAX_BATCH}", self.batch));
        }
        if let Some(n) = self.in_flight.iter().find(|&&n| n == 0 || n as usize > IN_FLIGHT) {
            return setting(format!("{n} bursts are in flight; use 1 to {IN_FLIGHT}"));
        }
        if self.batch as usize > BURST && self.in_flight.iter().any(|&n| n > 1) {
            return setting(format!("a batch has {} keys; with several in flight use 1 to {BURST}", self.batch));
        }
        if self.runs == 0 || self.threads.iter().any(|&threads| threads == 0 || threads > 64) {
            return setting("the runs or threads are out of range; use at least 1 run, and 1 to 64 threads".into());
        }
        if let Some(name) = self.contestants.iter().find(|name| CONTESTANTS.iter().all(|(known, _)| known != name)) {
            let known = CONTESTANTS.map(|(name, _)| name).join(", ");
            return Err(BenchError::UnknownContestant { name: name.clone(), known });
        }
        if let Some(name) = self.contestants.iter().find(|name| !sides::takes_part(name, self.is_small)) {
            return setting(format!("{name} takes part {} --small", if self.is_small { "without" } else { "with" }));
        }
        Ok(())
    }

    fn chosen(&self) -> Vec<&'static str> {
        let all = CONTESTANTS.iter().map(|&(name, _)| name);
        let all = all.filter(|name| sides::takes_part(name, self.is_small));
        all.filter(|name| self.contestants.is_empty() || self.contestants.iter().any(|chosen| chosen == name)).collect()
    }

    fn row(&self, bench: String, name: &str, (capacity, load): (u64, f64), threads: u32, samples: Vec<f64>) -> Row {
        let setting = Setting {
            n: capacity,
            value_bits: if self.is_small { 32 } else { 128 },
            names: String::new(),
            threads,
            batch: self.batch,
            in_flight: 1,
        };
        let unit = if bench.starts_with("flow/hint") { "%" } else { "M/s" };
        Row::new(&format!("{bench}, load {load}"), name, &setting, unit, samples)
    }

    /// Key number `n` of those that are inserted, or of those that are not; the lowest bit of its second word
    /// distinguishes the two. The first four bytes of small keys are distinct.
    fn key(&self, n: u64, is_present: bool) -> Key {
        let number = 2 * n + u64::from(is_present);
        let first = if self.is_small {
            // A bijection on 32 bits: steps of MurmurHash3's finaliser.
            let mixed = (number as u32 ^ self.seed as u32).wrapping_mul(0x85EB_CA6B);
            u64::from((mixed ^ (mixed >> 13)).wrapping_mul(0xC2B2_AE35))
        } else {
            mix64(self.seed ^ mix64(number))
        };
        [first, mix64(first ^ n) & !1 | u64::from(is_present)]
    }
}

/// Runs the bench.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    let largest = options.capacity.iter().copied().max().unwrap_or(0);
    let threads = u64::from(options.threads.iter().copied().max().unwrap_or(1));
    contestants::start_dpdk((256 << 20) + threads * 120 * largest).or_else(|error| {
        listener.say(&error.to_string());
        Ok::<(), BenchError>(())
    })?;
    for &capacity in &options.capacity {
        let capacity = if options.is_small { capacity / 8 * 5 } else { capacity };
        for &load in &options.load {
            let setting = (capacity, load);
            if options.parts.contains(&Part::Insert) {
                inserts(options, setting, listener)?;
            }
            if options.parts.contains(&Part::Lookup) {
                for &threads in &options.threads {
                    lookups(options, setting, threads, listener)?;
                }
            }
            if options.parts.contains(&Part::Hint) {
                hints(options, setting, listener)?;
            }
            if options.parts.contains(&Part::Churn) {
                churned(options, setting, listener)?;
            }
        }
    }
    Ok(())
}

/// Creates a table, or reports why there is none, which is an error if it was asked for by name.
fn made(
    options: &Options,
    name: &str,
    capacity: u64,
    listener: &mut dyn Listener,
) -> Result<Option<Box<dyn Side>>, BenchError> {
    match sides::new(name, capacity as usize, options.is_small, options.seed) {
        Ok(side) => Ok(Some(side)),
        Err(error) => without(options, name, error, listener).map(|()| None),
    }
}

/// Goes on without a contestant, and reports why, unless it was asked for by name.
fn without(options: &Options, name: &str, error: BenchError, listener: &mut dyn Listener) -> Result<(), BenchError> {
    if options.contestants.is_empty() {
        listener.say(&error.to_string());
        return Ok(());
    }
    if listener.goes_without(name, &error) { Ok(()) } else { Err(error) }
}

/// Suffix of a contestant with an insert of batches, where it inserts one by one.
pub(crate) const ONE_BY_ONE: &str = ", one by one";

/// Inserts the flows with these numbers.
fn fill(options: &Options, name: &str, side: &mut dyn Side, numbers: Range<u64>) -> Result<Duration, BenchError> {
    fill_by(options, name, numbers, |keys| side.insert(keys))
}

/// Inserts the flows with these numbers by a call of `insert` for every 64K.
fn fill_by(
    options: &Options,
    name: &str,
    numbers: Range<u64>,
    mut insert: impl FnMut(&[Key]) -> Result<(), String>,
) -> Result<Duration, BenchError> {
    let n = numbers.end;
    let mut keys = Vec::with_capacity(1 << 16);
    let mut elapsed = Duration::ZERO;
    for from in numbers.step_by(1 << 16) {
        keys.clear();
        keys.extend((from..n.min(from + (1 << 16))).map(|n| options.key(n, true)));
        let start = Instant::now();
        let done = insert(&keys);
        elapsed += start.elapsed();
        done.map_err(|reason| BenchError::Build { contestant: name.into(), n, reason })?;
    }
    Ok(elapsed)
}

/// A contestant with the way in which it inserts, where it has two.
fn label((name, in_batches): (&str, bool)) -> String {
    let suffix = if in_batches || !sides::inserts_batches(name) { "" } else { ONE_BY_ONE };
    format!("{name}{suffix}")
}

fn inserts(options: &Options, setting: (u64, f64), listener: &mut dyn Listener) -> Result<(), BenchError> {
    let names = options.chosen().into_iter().filter(|&name| name != "floor");
    // In both ways, where a table has both.
    let mut ways: Vec<(&str, bool)> = names
        .flat_map(|name| sides::inserts_batches(name).then_some((name, true)).into_iter().chain([(name, false)]))
        .collect();
    let n = (setting.0 as f64 * setting.1) as u64;
    let mut rows: Vec<((&str, bool), Vec<f64>, f64)> = Vec::new();
    for run in 0..options.runs as usize {
        for way in ways.clone() {
            let (name, in_batches) = way;
            let Some(mut side) = made(options, name, setting.0, listener)? else { continue };
            let filled =
                fill_by(
                    options,
                    name,
                    0..n,
                    |keys| {
                        if in_batches { side.insert(keys) } else { side.insert_one_by_one(keys) }
                    },
                );
            let elapsed = match filled {
                Ok(elapsed) => elapsed,
                Err(error) => {
                    without(options, &label(way), error, listener)?;
                    ways.retain(|&other| other != way);
                    rows.retain(|row| row.0 != way);
                    continue;
                }
            };
            if run == 0 {
                rows.push((way, Vec::new(), 8.0 * side.bytes() as f64 / n as f64));
            }
            let row = rows.iter_mut().find(|row| row.0 == way).expect("it was entered in the first round");
            row.1.push(millions_per_second(n, elapsed));
        }
    }
    let rows = rows.into_iter().map(|((name, in_batches), samples, bits)| {
        let mut row = options.row("flow/insert".into(), &label((name, in_batches)), setting, 1, samples);
        row.batch = if in_batches { MAX_BATCH as u32 } else { 1 };
        row.bits_per_name = Some(bits);
        row
    });
    listener.table(&rows.collect::<Vec<_>>());
    Ok(())
}

fn lookups(
    options: &Options,
    setting: (u64, f64),
    threads: u32,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let (capacity, load) = setting;
    let n = (capacity as f64 * load) as u64;
    let mut entered: Vec<(&str, Vec<Box<dyn Side>>)> = Vec::new();
    'names: for name in options.chosen() {
        listener.say(&format!("filling {name} to a load of {load}"));
        let mut sides = Vec::new();
        for _ in 0..threads {
            let Some(mut side) = made(options, name, capacity, listener)? else { continue 'names };
            // DPDK's hash table refuses the last keys of some high loads.
            if let Err(error) = fill(options, name, side.as_mut(), 0..n) {
                without(options, name, error, listener)?;
                continue 'names;
            }
            sides.push(side);
        }
        entered.push((name, sides));
    }
    for &absent in &options.absent {
        let (queries, expected) = queries(options, absent, n, |n| n);
        let passes = options.operations.unwrap_or(LOOKUPS).div_ceil(queries.len() as u64);
        let expected = expected.wrapping_mul(passes).wrapping_mul(u64::from(threads));
        let patterns: Vec<Calls> = options.in_flight.iter().map(|&n| Calls::new(options.batch, n)).collect();
        let turns = || patterns.iter().flat_map(|&calls| entered.iter().map(move |entry| (calls, entry)));
        // Everything takes its turn in every round, so that a disturbance of the machine meets all alike.
        let mut samples = vec![Vec::new(); turns().count()];
        for _ in 0..options.runs {
            for ((calls, (name, sides)), samples) in turns().zip(&mut samples) {
                let (sum, elapsed) = timed_run(sides, &queries, calls, passes);
                if sides[0].answers() && sum != expected {
                    return Err(BenchError::Checksum { contestant: (*name).into(), got: sum, expected });
                }
                samples.push(millions_per_second(passes * u64::from(threads) * queries.len() as u64, elapsed));
            }
        }
        let rows = turns().zip(samples).map(|((calls, (name, sides)), samples)| {
            let mut row = options.row(format!("flow/lookup, absent {absent}"), name, setting, threads, samples);
            row.bits_per_name = Some(8.0 * sides[0].bytes() as f64 / n as f64);
            row.in_flight = calls.in_flight as u32;
            row.checksum = sides[0].answers().then_some(expected);
            row.note = sides[0].note();
            row
        });
        let rows: Vec<Row> = rows.collect();
        rows.chunks(entered.len().max(1)).for_each(|rows| listener.table(rows));
    }
    Ok(())
}

/// Queries, of which an average share is absent and the others are those of flows `name(0)` to `name(n - 1)`, and the
/// sum of the correct answers.
fn queries(options: &Options, absent: f64, n: u64, name: impl Fn(u64) -> u64) -> (Vec<Key>, u64) {
    let mut random = Random::new(options.seed);
    let n_queries = MAX_QUERIES.min(options.operations.unwrap_or(LOOKUPS) as usize);
    let threshold = (absent * (u64::MAX as f64)) as u64;
    let mut expected = 0u64;
    let queries = (0..n_queries).map(|_| {
        let is_present = absent == 0.0 || random.next_u64() >= threshold && absent < 1.0;
        let number = random.below(n);
        let key = options.key(if is_present { name(number) } else { number }, is_present);
        if is_present {
            expected = expected.wrapping_add(sides::answer(&key, options.is_small));
        }
        key
    });
    (queries.collect(), expected)
}

/// Sum of the answers, one thread per table, and the time from the first start to the last end.
fn timed_run(sides: &[Box<dyn Side>], queries: &[Key], calls: Calls, passes: u64) -> (u64, Duration) {
    if let [side] = sides {
        let start = Instant::now();
        return (side.sum(queries, calls, passes), start.elapsed());
    }
    let barrier = Barrier::new(sides.len());
    let times: Vec<(u64, Instant, Instant)> = std::thread::scope(|scope| {
        let barrier = &barrier;
        let threads: Vec<_> = sides
            .iter()
            .map(|side| {
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    (side.sum(queries, calls, passes), start, Instant::now())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a reader does not panic")).collect()
    });
    let start = times.iter().map(|time| time.1).min().expect("at least one thread");
    let end = times.iter().map(|time| time.2).max().expect("at least one thread");
    (times.iter().fold(0, |sum, time| sum.wrapping_add(time.0)), end - start)
}

/// Lookups per second after turnovers, before and after flows are moved back to their first buckets, in the same order;
/// and how many buckets per second that move visits.
fn churned(options: &Options, setting: (u64, f64), listener: &mut dyn Listener) -> Result<(), BenchError> {
    let n = (setting.0 as f64 * setting.1) as u64;
    for name in options.chosen() {
        let Some(mut side) = made(options, name, setting.0, listener)? else { continue };
        if side.second_share().is_none() {
            continue;
        }
        fill(options, name, side.as_mut(), 0..n)?;
        let held = turn_over(options, name, side.as_mut(), n, FEW_TURNOVERS)?;
        let measure = |side: &dyn Side, absent| {
            let (queries, expected) = queries(options, absent, n, |n| held[n as usize]);
            let mut samples = Vec::new();
            for _ in 0..options.runs {
                let start = Instant::now();
                let sum = side.sum(&queries, Calls::new(options.batch, 1), 1);
                samples.push(millions_per_second(queries.len() as u64, start.elapsed()));
                if sum != expected {
                    return Err(BenchError::Checksum { contestant: name.into(), got: sum, expected });
                }
            }
            Ok(samples)
        };
        let mut rows: Vec<[Row; 2]> = Vec::new();
        let mut speed = 0.0;
        for when in 0..2 {
            if when == 1 {
                let start = Instant::now();
                let n_buckets = side.rehome();
                speed = millions_per_second(n_buckets, start.elapsed());
            }
            let share = 100.0 * side.second_share().expect("it was there");
            for (i, &absent) in options.absent.iter().enumerate() {
                let bench = format!("flow/churned, {FEW_TURNOVERS} turnovers, absent {absent}");
                let what = [name.to_owned(), format!("{name}, brought home")];
                let mut row = options.row(bench, &what[when], setting, 1, measure(side.as_ref(), absent)?);
                row.note = format!("{share:.1} % in their second bucket");
                if when == 0 {
                    rows.push([row.clone(), row]);
                } else {
                    row.note += &format!("; {speed:.2} M buckets/s");
                    rows[i][1] = row;
                }
            }
        }
        rows.iter().for_each(|rows| listener.table(rows));
    }
    Ok(())
}

/// Replaces flows at random, `turnovers` times as many as there are. Returns those that are in the table then.
fn turn_over(
    options: &Options,
    name: &str,
    side: &mut dyn Side,
    n: u64,
    turnovers: usize,
) -> Result<Vec<u64>, BenchError> {
    let mut random = Random::new(options.seed);
    let mut held: Vec<u64> = (0..n).collect();
    for new in n..n + n * turnovers as u64 {
        let victim = random.below(n) as usize;
        let old = std::mem::replace(&mut held[victim], new);
        side.replace(&options.key(old, true), &options.key(new, true)).map_err(|reason| BenchError::Build {
            contestant: name.into(),
            n,
            reason,
        })?;
    }
    Ok(held)
}

fn hints(options: &Options, setting: (u64, f64), listener: &mut dyn Listener) -> Result<(), BenchError> {
    let n = (setting.0 as f64 * setting.1) as u64;
    let absent: Vec<Key> = (0..1 << 20).map(|n| options.key(n, false)).collect();
    let mut rows: [Vec<Row>; 2] = Default::default();
    for name in options.chosen() {
        let Some(mut side) = made(options, name, setting.0, listener)? else { continue };
        if side.hint_rate(&absent[..1]).is_none() {
            continue;
        }
        fill(options, name, side.as_mut(), 0..n)?;
        let note = |bench: &str, rows: &mut Vec<Row>, side: &dyn Side| {
            let percent = 100.0 * side.hint_rate(&absent).expect("it has one");
            rows.push(options.row(format!("flow/hint, {bench}"), name, setting, 1, vec![percent]));
        };
        note("filled", &mut rows[0], side.as_ref());
        turn_over(options, name, side.as_mut(), n, TURNOVERS)?;
        note("30 turnovers", &mut rows[1], side.as_ref());
    }
    rows.iter().for_each(|rows| listener.table(rows));
    Ok(())
}

//! Lookups per second: every contestant holds the same names and answers the same queries in the same order.
//!
//! The queries are in an array, in a shuffled order; a run reads through it in bursts and adds up the answers. It fetches
//! queries ahead of their use. With `in_flight`, a burst is finished after the next ones are begun, as in a switch. Before
//! the clock starts, every answer is compared with the value of its name; the sum of each timed run is compared with
//! the correct one. With several threads, each has a reader and starts at a different place in the array; the rate is
//! that of all together, from the first start to the last end.

use std::collections::HashSet;
use std::str::FromStr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::{Listener, Options, millions_per_second};
use crate::BenchError;
use crate::contestants::{self, Calls, Contestant, Input, Reader};
use crate::names::value_of;
use crate::report::{Row, Setting, size_text};

/// Default lookups per run and thread.
const LOOKUPS: u64 = 1 << 24;
/// The array of queries is at least this long, so that no branch predictor learns it, and at most 16 times it.
const MIN_QUERIES: usize = 1 << 20;

/// Runs the bench: one table for each n and number of threads.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    run_with(options, Asked::Live, listener)
}

/// Runs the bench with other names than the live ones too. Every contestant must recognise each alien.
/// # Errors
/// As [`run`]; [`BenchError::Checksum`] if an alien gets a value.
pub fn run_asked(options: &Options, asked: Asked, listener: &mut dyn Listener) -> Result<(), BenchError> {
    run_with(options, asked, listener)
}

/// Runs the bench with parts of lookups, and the whole ones, one burst after the other and with two in flight: what a
/// lookup spends its time with. `options` choose neither contestants nor bursts in flight.
/// # Errors
/// As [`run`].
pub fn run_parts(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    let options = Options { contestants: contestants::parts(), in_flight: vec![1, 2], ..options.clone() };
    run_with(&options, Asked::Parts, listener)
}

/// Which names are looked up, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Live names.
    Live,
    /// Names that are not in the table, as many as are.
    Aliens,
    /// Both, equally often, in a shuffled order.
    Mixed,
    /// Live ones, by contestants that take only the first steps.
    Parts,
}

impl Asked {
    fn bench(self) -> &'static str {
        match self {
            Self::Live => "lookup",
            Self::Aliens => "lookup/aliens",
            Self::Mixed => "lookup/mixed",
            Self::Parts => "lookup/parts",
        }
    }
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "live" => Ok(Self::Live),
            "aliens" => Ok(Self::Aliens),
            "mixed" => Ok(Self::Mixed),
            _ => Err(format!("no such names to ask for: `{text}`; there are live, aliens, mixed")),
        }
    }
}

fn run_with(options: &Options, asked: Asked, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    let kinds = contestants::choose(&options.contestants)?;
    let largest = options.n.iter().copied().max().unwrap_or(0);
    // A hash table takes 41 to 82 bytes per name, and two kinds of it and rte_efd may exist at once.
    contestants::start_dpdk((512 << 20) + 160 * largest).or_else(|error| {
        listener.say(&error.to_string());
        Ok(())
    })?;
    for &n in &options.n {
        run_size(options, asked, &kinds, n, listener)?;
    }
    Ok(())
}

fn run_size(
    options: &Options,
    asked: Asked,
    kinds: &[contestants::Kind],
    n: u64,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    // A longer set begins with the shorter one: the names after the first `n` are aliens.
    let n_aliens = if matches!(asked, Asked::Aliens | Asked::Mixed) { n } else { 0 };
    let all = options.names.generate((n + n_aliens) as usize, options.seed);
    let (names, aliens) = all.split_at(n as usize);
    let n_queries = (n as usize).clamp(MIN_QUERIES, 16 * MIN_QUERIES);
    let n_queries = options.operations.map_or(n_queries, |lookups| n_queries.min(lookups as usize));
    let asked_for = match asked {
        Asked::Live | Asked::Parts => names,
        Asked::Aliens => aliens,
        Asked::Mixed => &all,
    };
    let queries = options.names.queries(asked_for, n_queries, options.seed);
    let mut input = Input {
        names,
        name_len: options.names.name_len(),
        value_bits: options.value_bits,
        family: options.family,
        seed: options.seed,
        build_threads: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        floor_bytes: 0,
    };

    let mut built: Vec<Option<Box<dyn Contestant>>> = Vec::new();
    built.resize_with(kinds.len(), || None);
    // Floors come last: each takes the size of the structure whose floor it is.
    let floor_of = |name: &str| match name {
        "floor" | "positions" => Some("concise"),
        "floor-line" => Some("line"),
        _ => None,
    };
    let floor_last = |&i: &usize| floor_of(kinds[i].name).is_some();
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    order.sort_by_key(floor_last);
    for i in order {
        let name = kinds[i].name;
        if let Some(of) = floor_of(name) {
            let structure = kinds.iter().position(|kind| kind.name == of).and_then(|at| built[at].as_ref());
            input.floor_bytes = structure.map_or(floor_bytes(n, options.value_bits), |c| (c.size_bits() / 8) as usize);
        }
        listener.say(&format!("building {name} with {} names", size_text(n)));
        match (kinds[i].build)(&input) {
            Ok(contestant) => built[i] = Some(contestant),
            Err(error) if options.contestants.is_empty() => listener.say(&error.to_string()),
            Err(error) if listener.goes_without(name, &error) => {}
            Err(error) => return Err(error),
        }
    }
    let entered: Vec<(&str, &dyn Contestant)> =
        kinds.iter().zip(&built).filter_map(|(kind, built)| Some((kind.name, built.as_deref()?))).collect();

    let live = (asked == Asked::Mixed).then(|| {
        let names: HashSet<u64> = names.iter().copied().collect();
        queries.iter().copied().filter(|name| names.contains(name)).collect::<Vec<_>>()
    });
    let queries = Queries { asked, names: &queries, live: live.as_deref().unwrap_or(&queries) };
    side_by_side(&entered, queries, n, options, listener)
}

/// What is looked up, in this order.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    asked: Asked,
    names: &'a [u64],
    /// Those of `names` that have values, if there are any.
    live: &'a [u64],
}

impl<'a> Queries<'a> {
    /// Names that all have values.
    pub(crate) fn live(names: &'a [u64]) -> Self {
        Self { asked: Asked::Live, names, live: names }
    }
}

/// Looks up `queries` in all contestants once, checked, and then in turns: one table per number of threads.
pub(crate) fn side_by_side(
    entered: &[(&str, &dyn Contestant)],
    Queries { asked, names: queries, live }: Queries<'_>,
    n: u64,
    options: &Options,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let patterns: Vec<Calls> = options.in_flight.iter().map(|&n| Calls::new(options.batch, n)).collect();
    for ((name, contestant), &calls) in
        entered.iter().flat_map(|entry| patterns.iter().map(move |calls| (entry, calls)))
    {
        match asked {
            Asked::Live | Asked::Parts => check(name, *contestant, queries, calls, options.value_bits)?,
            Asked::Aliens => check_sum(name, *contestant, queries, calls, 0)?,
            Asked::Mixed => {
                let expected = expected_sum(live, options.value_bits, 1);
                check_sum(name, *contestant, queries, calls, expected)?;
            }
        }
    }
    for &threads in &options.threads {
        let passes = options.operations.unwrap_or(LOOKUPS).div_ceil(queries.len() as u64);
        let expected = match asked {
            Asked::Live | Asked::Parts | Asked::Mixed => {
                expected_sum(live, options.value_bits, passes * u64::from(threads))
            }
            Asked::Aliens => 0,
        };
        // Everything takes its turn in every round, so that a disturbance of the machine meets all alike.
        let mut samples = vec![vec![Vec::new(); entered.len()]; patterns.len()];
        for _ in 0..options.runs {
            for (&calls, samples) in patterns.iter().zip(&mut samples) {
                for ((name, contestant), samples) in entered.iter().zip(samples) {
                    let (sum, elapsed) = timed_run(*contestant, queries, calls, passes, threads);
                    if contestant.answers() && sum != expected {
                        return Err(BenchError::Checksum { contestant: (*name).into(), got: sum, expected });
                    }
                    samples.push(millions_per_second(passes * u64::from(threads) * queries.len() as u64, elapsed));
                }
            }
        }
        for (calls, samples) in patterns.iter().zip(samples) {
            let setting = Setting {
                n,
                value_bits: options.value_bits,
                names: options.names.to_string(),
                threads,
                batch: options.batch,
                in_flight: calls.in_flight as u32,
            };
            let row = |((name, contestant), samples): (&(&str, &dyn Contestant), Vec<f64>)| {
                let mut row = Row::new(asked.bench(), name, &setting, "M/s", samples);
                row.ns_per_name = (asked == Asked::Parts).then_some(1e3 * f64::from(threads) / row.median);
                row.bits_per_name = Some(contestant.size_bits() as f64 / n as f64);
                row.checksum = contestant.answers().then_some(expected);
                let phases = calls.in_flight == 1 || contestant.reader().has_phases();
                let pattern = match (phases, contestant.answers()) {
                    (false, _) => "one burst after the other".into(),
                    (true, true) => String::new(),
                    (true, false) => calls.to_string(),
                };
                let notes = [contestant.note(), pattern];
                row.note = notes.into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join(", ");
                row
            };
            // A part that ends before the reads has nothing in flight.
            let is_measured = |contestant: &dyn Contestant| {
                calls.in_flight == 1 || contestant.answers() || contestant.reader().has_phases()
            };
            let measured = entered.iter().zip(samples).filter(|((_, contestant), _)| is_measured(*contestant));
            listener.table(&measured.map(row).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// Size of the floor's arrays when no `concise` is measured: 2.4 cells per name.
fn floor_bytes(n: u64, value_bits: u8) -> usize {
    (2.4 * f64::from(value_bits) * n as f64 / 8.0).ceil() as usize
}

fn expected_sum(queries: &[u64], value_bits: u8, passes: u64) -> u64 {
    let pass = queries.iter().fold(0u64, |sum, &name| sum.wrapping_add(value_of(name, value_bits)));
    pass.wrapping_mul(passes)
}

/// Looks up everything once, which warms caches, and checks each answer.
fn check(
    name: &str,
    contestant: &dyn Contestant,
    queries: &[u64],
    calls: Calls,
    value_bits: u8,
) -> Result<(), BenchError> {
    let wrong = contestant.reader().first_wrong(queries, calls, value_bits);
    match wrong.filter(|_| contestant.answers()) {
        None => Ok(()),
        Some((query, got, expected)) => {
            Err(BenchError::WrongAnswer { contestant: name.into(), name: query, got, expected })
        }
    }
}

/// Looks up everything once, which warms caches, and checks the sum: the answer for an alien must be 0, which means drop.
fn check_sum(
    name: &str,
    contestant: &dyn Contestant,
    queries: &[u64],
    calls: Calls,
    expected: u64,
) -> Result<(), BenchError> {
    let got = contestant.reader().sum(queries, calls, 1);
    if contestant.answers() && got != expected {
        return Err(BenchError::Checksum { contestant: name.into(), got, expected });
    }
    Ok(())
}

/// Sum of all answers of `threads` threads, and the time from the first start to the last end.
fn timed_run(contestant: &dyn Contestant, queries: &[u64], calls: Calls, passes: u64, threads: u32) -> (u64, Duration) {
    if threads == 1 {
        let mut reader = contestant.reader();
        let start = Instant::now();
        let sum = reader.sum(queries, calls, passes);
        return (sum, start.elapsed());
    }
    let barrier = Barrier::new(threads as usize);
    let readers: Vec<Box<dyn Reader + '_>> = (0..threads).map(|_| contestant.reader()).collect();
    let results: Vec<(u64, Instant, Instant)> = std::thread::scope(|scope| {
        let spawned: Vec<_> = readers
            .into_iter()
            .enumerate()
            .map(|(i, mut reader)| {
                let barrier = &barrier;
                // A whole number of bursts, so that all threads form the same bursts.
                let from = i * queries.len() / threads as usize / calls.batch * calls.batch;
                scope.spawn(move || {
                    let (tail, head) = queries.split_at(from);
                    barrier.wait();
                    let start = Instant::now();
                    let mut sum = 0u64;
                    for _ in 0..passes {
                        sum = sum.wrapping_add(reader.sum(head, calls, 1)).wrapping_add(reader.sum(tail, calls, 1));
                    }
                    (sum, start, Instant::now())
                })
            })
            .collect();
        spawned.into_iter().map(|thread| thread.join().expect("a reader does not panic")).collect()
    });
    let sum = results.iter().fold(0u64, |sum, result| sum.wrapping_add(result.0));
    let first = results.iter().map(|result| result.1).min().expect("a thread");
    let last = results.iter().map(|result| result.2).max().expect("a thread");
    (sum, last - first)
}

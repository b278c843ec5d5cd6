//! Changes: the cost of an insert, an alter and a remove with their messages, the cost of applying them on the other
//! side, the slowest of many inserts, and the lookup rate lost while updates arrive.
//!
//! Names come in random order, so that in a large table each finds its shard cold in cache. After each phase the
//! messages are decoded from their bytes and applied to a query half, and its answers are checked. The peers have no
//! messages: their time is that of the table alone.

mod beside;
mod latency;
mod rebuilds;
mod tables;

use std::time::Instant;

use lookup::line::LineSkeleton;
use lookup::othello::{Graph, Sharded};

use super::{Listener, Options, apply};
use crate::BenchError;
use crate::contestants::Input;
use crate::names::{Random, mix64, value_of};
use crate::report::{Row, Setting, size_text};
pub(crate) use beside::at_rate as beside_at_rate;
pub(crate) use rebuilds::of_additions as rebuilds_of_additions;
use tables::Table;

/// The parts of the bench, as contestants on the command line.
pub const PARTS: [(&str, &str); 10] = [
    ("concise", "single inserts, alters and removes with messages; insert_batch"),
    ("concise-option2", "the same on one Othello in the papers' second size; only when named"),
    ("line", "the same on the line table"),
    ("hashbrown", "the same on a hash table with full names"),
    ("rte_hash", "the same on DPDK's hash table"),
    ("apply", "updates a second that the library and a switch apply: concise, ofw, line, cfw"),
    ("latency", "10M inserts one by one: quantiles, and those that rebuild a shard"),
    ("beside", "lookups while 200,000 updates a second are applied, against an idle table"),
    ("line-latency", "as latency, on the line table"),
    ("line-beside", "as beside, on the line table"),
];
/// The first parts, this many, change tables.
const TABLES: usize = 5;
/// Changes of each kind per run.
const CHANGES: u64 = 200_000;
/// Inserts of the latency part.
const INSERTS: u64 = 10_000_000;
/// Updates per second that the switch applies during lookups; at 0, its writer waits.
const UPDATES_PER_S: [u64; 2] = [0, 200_000];

/// Runs the bench: its tables for each n.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    for name in &options.contestants {
        if !PARTS.iter().any(|(part, _)| part == name) {
            let known = PARTS.map(|(part, _)| part).join(", ");
            return Err(BenchError::UnknownContestant { name: name.clone(), known });
        }
    }
    let named = |part: &str| options.contestants.iter().any(|name| name == part);
    let chosen = |part: &str| named(part) || (options.contestants.is_empty() && part != "concise-option2");
    for &n in &options.n {
        if PARTS[..TABLES].iter().any(|(part, _)| chosen(part)) {
            changes(options, n, &chosen, listener)?;
        }
        if chosen("apply") {
            let names = options.names.generate(n as usize, options.seed);
            apply::run(options, &input(options, &names), &setting(options, n, apply::BATCH as u32), listener)?;
        }
        if chosen("latency") {
            latency::run::<Graph<Sharded, u64>>(options, n, listener)?;
        }
        if chosen("beside") {
            beside::run::<Graph<Sharded, u64>>(options, n, &UPDATES_PER_S, listener)?;
        }
        if chosen("line-latency") {
            latency::run::<LineSkeleton<u64>>(options, n, listener)?;
        }
        if chosen("line-beside") {
            beside::run::<LineSkeleton<u64>>(options, n, &UPDATES_PER_S, listener)?;
        }
    }
    Ok(())
}

fn setting(options: &Options, n: u64, batch: u32) -> Setting {
    Setting { n, value_bits: options.value_bits, names: options.names.to_string(), threads: 1, batch, in_flight: 1 }
}

fn input<'a>(options: &Options, names: &'a [u64]) -> Input<'a> {
    Input {
        names,
        name_len: options.names.name_len(),
        value_bits: options.value_bits,
        family: options.family,
        seed: options.seed,
        build_threads: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        floor_bytes: 0,
    }
}

/// A value other than the name's own, for rounds of alters.
fn altered_value(name: u64, value_bits: u8, round: u32) -> u64 {
    value_of(mix64(name ^ u64::from(round)), value_bits)
}

/// Nanoseconds per change in each phase.
#[derive(Default)]
struct Samples {
    insert: Vec<f64>,
    alter: Vec<f64>,
    remove: Vec<f64>,
    batch: Vec<f64>,
    /// Message bytes per name of a batch.
    batch_bytes: Vec<f64>,
}

/// Single changes of each kind, in all chosen tables: the first of [`PARTS`].
fn changes(
    options: &Options,
    n: u64,
    chosen: &dyn Fn(&str) -> bool,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let n_changes = options.operations.unwrap_or(CHANGES).min(n);
    let all = options.names.generate((n + n_changes) as usize, options.seed);
    let (names, spare) = all.split_at(n as usize);
    let input = input(options, names);
    listener.say(&format!("building tables with {} names", size_text(n)));
    let mut sides: Vec<(&str, Box<dyn Table>, Samples)> = Vec::new();
    for (name, _) in PARTS[..TABLES].iter().filter(|(name, _)| chosen(name)) {
        match tables::build(name, &input, all.len()) {
            Ok(table) => sides.push((name, table, Samples::default())),
            Err(error @ BenchError::Unavailable { .. }) => {
                if !listener.goes_without(name, &error) {
                    listener.say(&error.to_string());
                }
            }
            Err(error) => return Err(error),
        }
    }

    let mut random = Random::new(options.seed);
    for round in 1..=options.runs {
        let [inserts, alters] = of_round(options, names, spare, round, &mut random);
        for (name, table, samples) in &mut sides {
            phases(name, &mut **table, &inserts, &alters, samples)?;
        }
    }

    let one = setting(options, n, 1);
    type Pick = fn(&Samples) -> &Vec<f64>;
    let kinds: [(&str, Pick); 3] = [
        ("update/insert", |samples| &samples.insert),
        ("update/alter", |samples| &samples.alter),
        ("update/remove", |samples| &samples.remove),
    ];
    for (bench, pick) in kinds {
        let row = |(name, _, samples): &(&str, _, Samples)| Row::new(bench, name, &one, "ns", pick(samples).clone());
        listener.table(&sides.iter().map(row).collect::<Vec<_>>());
    }
    let many = setting(options, n, n_changes as u32);
    let batched: Vec<_> = sides.iter().filter(|(_, _, samples)| !samples.batch.is_empty()).collect();
    if !batched.is_empty() {
        let row = |bench, name, unit, samples: &[f64]| Row::new(bench, name, &many, unit, samples.to_vec());
        let times = batched.iter().map(|(name, _, of)| row("update/insert_batch", name, "ns", &of.batch));
        listener.table(&times.collect::<Vec<_>>());
        let bytes =
            batched.iter().map(|(name, _, of)| row("update/insert_batch, messages", name, "bytes", &of.batch_bytes));
        listener.table(&bytes.collect::<Vec<_>>());
    }
    Ok(())
}

/// The inserts and the alters of a round.
fn of_round(options: &Options, names: &[u64], spare: &[u64], round: u32, random: &mut Random) -> [Vec<(u64, u64)>; 2] {
    let mut inserts: Vec<(u64, u64)> = spare.iter().map(|&name| (name, value_of(name, options.value_bits))).collect();
    let n_inserts = inserts.len();
    random.shuffle_front(&mut inserts, n_inserts);
    let alters = (0..spare.len())
        .map(|_| names[random.below(names.len() as u64) as usize])
        .map(|name| (name, altered_value(name, options.value_bits, round)));
    [inserts, alters.collect()]
}

/// Inserts, alters, removes, and a batch of inserts if the table has one; in the end the table is as large as before.
fn phases(
    contestant: &str,
    table: &mut dyn Table,
    inserts: &[(u64, u64)],
    alters: &[(u64, u64)],
    samples: &mut Samples,
) -> Result<(), BenchError> {
    fn timed<R>(n: usize, work: impl FnOnce() -> Result<R, BenchError>) -> Result<(f64, R), BenchError> {
        let start = Instant::now();
        let result = work()?;
        Ok((start.elapsed().as_nanos() as f64 / n as f64, result))
    }
    samples.insert.push(timed(inserts.len(), || table.put(inserts))?.0);
    check(contestant, table, inserts)?;
    samples.alter.push(timed(alters.len(), || table.put(alters))?.0);
    check(contestant, table, alters)?;
    samples.remove.push(timed(inserts.len(), || table.remove(inserts))?.0);
    check(contestant, table, alters)?;
    let (ns, bytes) = timed(inserts.len(), || table.put_batch(inserts))?;
    if let Some(bytes) = bytes {
        samples.batch.push(ns);
        samples.batch_bytes.push(bytes as f64 / inserts.len() as f64);
        check(contestant, table, inserts)?;
        table.remove(inserts)?;
        check(contestant, table, alters)?;
    }
    Ok(())
}

/// Compares the value of each name with the one it was last given.
fn check(contestant: &str, table: &mut dyn Table, changes: &[(u64, u64)]) -> Result<(), BenchError> {
    for (&(name, expected), got) in changes.iter().zip(table.values(changes)?) {
        if got != expected {
            return Err(BenchError::WrongAnswer { contestant: contestant.into(), name, got, expected });
        }
    }
    Ok(())
}

//! Time to build a structure from names and values, digests included, and the memory that its control half uses.
//!
//! `network` answers another question: building the tables of a network's switches from one skeleton, see `export`.

use std::time::Instant;

use lookup::hash::Digest;
use lookup::othello::{Option1, Option2, Othello, OthelloQuery, Settings, Sharded, Sizing};
use lookup::traits::{Query, Skeleton};

use super::{Listener, Options, export};
use crate::BenchError;
use crate::contestants::{self, Calls, Input, Kind, MAX_BATCH};
use crate::machine::PeakMemory;
use crate::names::value_of;
use crate::report::{Row, Setting};

/// The default contestants; all contestants of the lookup bench but the floor can be named.
pub const CONTESTANTS: [(&str, &str); 6] = [
    ("concise", "sharded Othello, both halves, on all threads asked for"),
    ("line", "one cache line a lookup, both halves, on all threads asked for"),
    ("hashbrown", "hash table with full names (one thread)"),
    ("rte_hash", "DPDK's hash table (one thread)"),
    ("rte_efd", "DPDK's elastic flow distributor (one thread)"),
    (NETWORK, "the tables of many switches from one skeleton, against one from scratch: concise, ofw, cfw"),
];
const NETWORK: &str = "network";

/// Runs the bench: one table for each n and number of threads.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    let by_default = options.contestants.is_empty();
    let mut chosen = options.contestants.clone();
    if by_default {
        chosen.extend(CONTESTANTS.map(|(name, _)| name.to_owned()));
    }
    let network = chosen.iter().any(|name| name == NETWORK);
    chosen.retain(|name| name != NETWORK);
    let kinds = if chosen.is_empty() { Vec::new() } else { contestants::choose(&chosen)? };
    let largest = options.n.iter().copied().max().unwrap_or(0);
    contestants::start_dpdk((512 << 20) + 160 * largest)?;
    for &n in &options.n {
        let names = options.names.generate(n as usize, options.seed);
        for &threads in &options.threads {
            let setting = setting(options, n, threads);
            let input = input(options, &names, threads as usize);
            let rows = side_by_side(&kinds, options, &input, &setting, by_default, listener)?;
            if !rows.is_empty() {
                listener.table(&rows);
            }
        }
        if kinds.iter().any(|kind| kind.name == "concise") {
            listener.table(&memory_rows(&input(options, &names, 1), &setting(options, n, 1))?);
        }
        if network {
            export::run(options, &input(options, &names, 1), &setting(options, n, 1), &export::by_default, listener)?;
        }
    }
    Ok(())
}

pub(crate) fn setting(options: &Options, n: u64, threads: u32) -> Setting {
    Setting { n, value_bits: options.value_bits, names: options.names.to_string(), threads, batch: 1, in_flight: 1 }
}

pub(crate) fn input<'a>(options: &Options, names: &'a [u64], build_threads: usize) -> Input<'a> {
    Input {
        names,
        name_len: options.names.name_len(),
        value_bits: options.value_bits,
        family: options.family,
        seed: options.seed,
        build_threads,
        floor_bytes: 0,
    }
}

/// Result of a build: nanoseconds taken, bits that lookups need, sum of the answers for all names.
struct Built {
    ns: f64,
    size_bits: u64,
    sum: u64,
}

fn side_by_side(
    kinds: &[Kind],
    options: &Options,
    input: &Input<'_>,
    setting: &Setting,
    by_default: bool,
    listener: &mut dyn Listener,
) -> Result<Vec<Row>, BenchError> {
    let expected = input.names.iter().fold(0u64, |sum, &name| sum.wrapping_add(value_of(name, input.value_bits)));
    let mut samples = vec![Vec::new(); kinds.len()];
    let mut size_bits = vec![0; kinds.len()];
    for _ in 0..options.runs {
        for (at, kind) in kinds.iter().enumerate() {
            let built = match kind.name {
                "concise" => build_othello::<Sharded>(kind.name, input),
                "concise-option1" => build_othello::<Option1>(kind.name, input),
                "concise-option2" => build_othello::<Option2>(kind.name, input),
                "line" | "line-fast" | "line-small" => build_other(kind, input),
                // The peers build on one thread only.
                _ if setting.threads > 1 || kind.name == "floor" => continue,
                _ => build_other(kind, input),
            };
            match built {
                Ok(built) if built.sum == expected => {
                    samples[at].push(built.ns / input.names.len() as f64);
                    size_bits[at] = built.size_bits;
                }
                Ok(built) => {
                    return Err(BenchError::Checksum { contestant: kind.name.into(), got: built.sum, expected });
                }
                Err(error) if by_default => listener.say(&error.to_string()),
                Err(error) if listener.goes_without(kind.name, &error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let measured = kinds.iter().zip(samples).zip(size_bits).filter(|((_, samples), _)| !samples.is_empty());
    let row = |((kind, samples), size_bits): ((&Kind, Vec<f64>), u64)| {
        let mut row = Row::new("build", kind.name, setting, "ns/name", samples);
        row.bits_per_name = Some(size_bits as f64 / setting.n as f64);
        row.checksum = Some(expected);
        row
    };
    Ok(measured.map(row).collect())
}

fn build_othello<S: Sizing>(name: &str, input: &Input<'_>) -> Result<Built, BenchError> {
    let start = Instant::now();
    let (control, query) = othello::<S>(name, input)?;
    let ns = start.elapsed().as_nanos() as f64;
    drop(control);
    Ok(Built { ns, size_bits: query.size_bits(), sum: sum_of(&query, input) })
}

fn othello<S: Sizing>(name: &str, input: &Input<'_>) -> Result<(Othello<S>, OthelloQuery<S>), BenchError> {
    let settings = Settings::new(input.value_bits, input.names.len(), &input.secret_key());
    Othello::build(settings, &input.entries(), input.build_threads).map_err(|error| input.build_error(name, error))
}

fn sum_of<S: Sizing>(query: &OthelloQuery<S>, input: &Input<'_>) -> u64 {
    let hasher = input.hasher();
    let (mut digests, mut values) = ([Digest(0); MAX_BATCH], [0; MAX_BATCH]);
    input.names.chunks(MAX_BATCH).fold(0u64, |sum, names| {
        let (digests, values) = (&mut digests[..names.len()], &mut values[..names.len()]);
        hasher.digest_words(names, input.name_len, digests);
        query.lookup_batch(digests, values);
        values.iter().fold(sum, |sum, &value| sum.wrapping_add(value))
    })
}

fn build_other(kind: &Kind, input: &Input<'_>) -> Result<Built, BenchError> {
    let start = Instant::now();
    let built = (kind.build)(input)?;
    let ns = start.elapsed().as_nanos() as f64;
    let sum = built.reader().sum(input.names, Calls::new(32, 1), 1);
    Ok(Built { ns, size_bits: built.size_bits(), sum })
}

/// Resident memory per name: the peak while both halves are built from names, then what the control half keeps.
fn memory_rows(input: &Input<'_>, setting: &Setting) -> Result<[Row; 2], BenchError> {
    let peak = PeakMemory::start();
    let (control, query) = othello::<Sharded>("concise", input)?;
    let n = input.names.len() as f64;
    let row = |name, bytes| Row::new("build/peak memory", name, setting, "B/name", vec![bytes as f64 / n]);
    let mut peak = row("concise", peak.grown_bytes());
    peak.bits_per_name = Some(query.size_bits() as f64 / n);
    Ok([peak, row("control half of it", control.skeleton().heap_bytes() as u64)])
}

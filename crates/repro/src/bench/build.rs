//! Time to build a structure from names and values, digests included, and the memory that its control half needs.
//!
//! `network` is another question: the FIBs of 100 switches, derived from one graph of names, against the same FIB
//! built from scratch; both a switch, on one thread.

use std::hint::black_box;
use std::time::Instant;

use lookup::hash::Digest;
use lookup::othello::{Colouring, Graph, Option1, Option2, Othello, OthelloQuery, Settings, Sharded, Sizing};
use lookup::traits::Query;

use super::{Listener, Options};
use crate::BenchError;
use crate::contestants::{self, Input, Kind, MAX_BATCH};
use crate::machine::PeakMemory;
use crate::names::{mix64, value_of};
use crate::report::{Row, Setting, size_text};

/// The contestants that run when none are named; all of the lookup bench but the floor can be.
pub const CONTESTANTS: [(&str, &str); 5] = [
    ("concise", "sharded Othello, both halves, on all threads asked for"),
    ("hashbrown", "hash table with full names (one thread)"),
    ("rte_hash", "DPDK's hash table (one thread)"),
    ("rte_efd", "DPDK's elastic flow distributor (one thread)"),
    (NETWORK, "the FIBs of 100 switches from one graph, against one from scratch"),
];
const NETWORK: &str = "network";
/// Switches whose FIBs are derived.
const SWITCHES: usize = 100;

/// Runs the bench: one table for each n and number of threads.
/// # Errors
/// [`BenchError`]; tables complete until then have been handed to `listener`.
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
            listener.table(&[memory_row(&input(options, &names, 1), &setting(options, n, 1))?]);
        }
        if network {
            listener.say(&format!("deriving the FIBs of {SWITCHES} switches with {} names each", size_text(n)));
            listener.table(&network_rows(options, &input(options, &names, 1), n)?);
        }
    }
    Ok(())
}

fn setting(options: &Options, n: u64, threads: u32) -> Setting {
    Setting { n, value_bits: options.value_bits, names: options.names.to_string(), threads, batch: 1 }
}

fn input<'a>(options: &Options, names: &'a [u64], build_threads: usize) -> Input<'a> {
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

/// What a build gives: nanoseconds it took, bits that lookups need, sum of the answers for all names.
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
                // The peers build on one thread.
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
    let sum = built.reader().sum(input.names, 32, 1);
    Ok(Built { ns, size_bits: built.size_bits(), sum })
}

/// Resident memory at its peak while both halves are built from names, a name; then what the control half keeps.
fn memory_row(input: &Input<'_>, setting: &Setting) -> Result<Row, BenchError> {
    let peak = PeakMemory::start();
    let (control, query) = othello::<Sharded>("concise", input)?;
    let n = input.names.len() as f64;
    let mut row = Row::new("build/peak memory", "concise", setting, "B/name", vec![peak.grown_bytes() as f64 / n]);
    row.bits_per_name = Some(query.size_bits() as f64 / n);
    row.note = format!("{:.1} B/name of it stay with the control half", control.graph().heap_bytes() as f64 / n);
    Ok(row)
}

fn network_rows(options: &Options, input: &Input<'_>, n: u64) -> Result<Vec<Row>, BenchError> {
    let entries = input.entries();
    let settings = Settings::new(input.value_bits, input.names.len(), &input.secret_key());
    // A name's payload is its attachment; a switch's route to each attachment is a table.
    let attachments = 1024;
    let attached: Vec<(Digest, u32)> =
        entries.iter().map(|&(digest, _)| (digest, (mix64(digest.0) % attachments) as u32)).collect();
    let routes: Vec<Vec<u64>> = (0..SWITCHES as u64)
        .map(|switch| (0..attachments).map(|port| value_of(port + switch * attachments, input.value_bits)).collect())
        .collect();
    let graph = Graph::<Sharded, u32>::build(settings.clone(), &attached, 1)
        .map_err(|error| input.build_error(NETWORK, error))?;

    let (mut derived, mut from_scratch) = (Vec::new(), Vec::new());
    for round in 0..options.runs {
        let start = Instant::now();
        let views = Colouring::export_many(&graph, SWITCHES, |switch, port| routes[switch][port as usize]);
        derived.push(start.elapsed().as_nanos() as f64 / n as f64 / SWITCHES as f64);

        let routes = &routes[round as usize % SWITCHES];
        let start = Instant::now();
        let valued: Vec<(Digest, u64)> =
            attached.iter().map(|&(digest, port)| (digest, routes[port as usize])).collect();
        let built = Othello::<Sharded>::build(settings.clone(), &valued, 1)
            .map_err(|error| input.build_error(NETWORK, error))?;
        from_scratch.push(start.elapsed().as_nanos() as f64 / n as f64);

        let (switch, step) = (round as usize % SWITCHES, (attached.len() / 10_000).max(1));
        for (&(digest, value), &name) in valued.iter().zip(input.names).step_by(step) {
            for got in [views[switch].1.lookup(digest), built.1.lookup(digest)] {
                if got != value {
                    let contestant = NETWORK.to_owned();
                    return Err(BenchError::WrongAnswer { contestant, name, got, expected: value });
                }
            }
        }
        black_box(views);
    }
    let setting = setting(options, n, 1);
    let mut network = Row::new("build/network", NETWORK, &setting, "ns/name", derived);
    network.note = format!("a switch, {SWITCHES} derived from one graph");
    let mut scratch = Row::new("build/network", "from scratch", &setting, "ns/name", from_scratch);
    scratch.note = "one switch".into();
    Ok(vec![network, scratch])
}

//! Frames per second through the real worker loop, between in-memory ports, with FIBs and without any lookup.
//!
//! Frames circulate between rings whose far ends the same thread fills and empties. Bare ports, which make up frames,
//! do less work besides the lookup than any port can. The empty forwarder parses, decrements hop limits and sends like
//! the other, but looks nothing up. In the core, frames come from another switch and cost one FIB lookup; at a gateway
//! they come from hosts, and the exact check of valid names precedes it. The bench compares where each frame went with
//! where its name says.
//!
//! At a gateway, the source addresses are those of 64K hosts at the port of entry. The same switch is also measured with
//! checks of sources ([`dataplane::source`]), also with few hosts, which a port remembers. Core and gateway are also measured with all
//! ports as ways of every name, of which the flow decides ([`dataplane::assembly`]), and with hellos at
//! its trunks ([`dataplane::links`]) and a port of entry that learns ([`dataplane::learn`]).
//!
//! [`run_connections`] measures what connection tracking costs the same switch: frames of open TCP connections with and
//! without the flow stage, then with as many frames of unknown connections in between, which are refused or accepted. At
//! a gateway the switch is also measured with an access list ([`dataplane::acl`]) that lets all in by its last rule.
//!
//! [`run_captured`] measures what a capture at all ports costs a core node: of drops, of which there are none, and of all frames,
//! each of which is copied as it came and as it left while a thread reads the copies. What the thread is too slow for is lost to the
//! capture, and counted.

use std::sync::Arc;

use dataplane::acl::AccessList;
use dataplane::bench::{
    Connections, Copied, Load, Measured, Place, Wiring, forward_empty, forward_tapped, forward_with_fib,
};
use dataplane::source::CheckSource;
use fib::designs::{self, CONCISE, Design, Spec, Table};
use fib::name::{Name, NameKind};

use super::rules::generate;
use super::{Listener, Options};
use crate::BenchError;
use crate::contestants::Input;
use crate::names::{NameSet, value_of};
use crate::report::{Row, Setting, size_text};

/// The contestants: the empty forwarder is always measured, and with it Concise, or the designs asked for.
pub fn contestants() -> Vec<(&'static str, &'static str)> {
    let empty = ("empty", "the same loop without digest, lookup and check of names: always measured");
    let designs = crate::designs().map(|design| (design.name, design.summary));
    std::iter::once(empty).chain(designs).collect()
}

/// Destinations that no host has.
const UNKNOWN: &str = "unknown";
/// Bits of the number of the port that a frame leaves by, and the number of those ports.
const EXIT_BITS: u8 = 3;
const EXITS: u16 = (1 << EXIT_BITS) - 1;
/// Names at the port of entry of a gateway. Their frames take turns.
const SOURCES: usize = 64 << 10;
/// The checks of sources that are measured beside a gateway without, and the number of hosts at the port.
const CHECKS: [(CheckSource, usize, &str); 3] = [
    (CheckSource::Mac, SOURCES, "source mac"),
    (CheckSource::MacAndIp, SOURCES, "source mac+ip"),
    (CheckSource::Mac, 16, "source mac, 16 hosts"),
];
/// Frames per run and worker.
const FRAMES: u64 = 8 << 20;
/// Maximum number of connections.
const MAX_CONNECTIONS: u64 = 1 << 23;
/// Frames that arrive at once.
const BURST: u64 = 32;

/// Runs the bench: one table for each n, number of workers and kind of traffic.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    run_with(options, What::Frames(None), listener)
}

/// The destinations of frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// Names of the bench's set.
    Valid,
    /// The same names, in proportion to 1/rank.
    Zipf,
    /// Names that no host has.
    Unknown,
}

/// A kind of traffic.
#[derive(Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) place: Place,
    pub(crate) wiring: Wiring,
    pub(crate) frame_bytes: usize,
    pub(crate) to: To,
}

impl Traffic {
    /// The kinds that the bench measures by default.
    const ALL: [Self; 6] = {
        const fn rings(place: Place, frame_bytes: usize, to: To) -> Traffic {
            Traffic { place, wiring: Wiring::Rings, frame_bytes, to }
        }
        [
            rings(Place::Core, 64, To::Valid),
            rings(Place::Core, 1500, To::Valid),
            Self { wiring: Wiring::Bare, ..rings(Place::Core, 64, To::Valid) },
            rings(Place::Gateway, 64, To::Valid),
            rings(Place::Gateway, 64, To::Unknown),
            rings(Place::Core, 64, To::Zipf),
        ]
    };
}

/// Runs one kind of traffic alone.
/// # Errors
/// [`BenchError`].
pub(crate) fn run_one(options: &Options, traffic: Traffic, listener: &mut dyn Listener) -> Result<(), BenchError> {
    run_with(options, What::Frames(Some(traffic)), listener)
}

/// The load of the switch.
#[derive(Clone, Copy)]
enum What<'a> {
    /// Frames of every kind, or of this one.
    Frames(Option<Traffic>),
    /// These numbers of connections.
    Connections(&'a [u64]),
    /// Frames that are captured, or are not.
    Captured,
}

/// Runs the bench of connection tracking: one table per number of connections, n, and number of workers.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run_connections(options: &Options, connections: &[u64], listener: &mut dyn Listener) -> Result<(), BenchError> {
    if let Some(n) = connections.iter().find(|&&n| n == 0 || n > MAX_CONNECTIONS) {
        return Err(BenchError::Setting(format!("there are {n} connections; use 1 to {MAX_CONNECTIONS}")));
    }
    run_with(options, What::Connections(connections), listener)
}

/// Runs the bench of captures: one table for each n, number of workers and length of frames.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run_captured(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    run_with(options, What::Captured, listener)
}

fn run_with(options: &Options, what: What<'_>, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    if options.names.name_len() != 6 {
        return Err(BenchError::Setting(format!(
            "frames carry MAC addresses and no {} names; use --names mac",
            options.names
        )));
    }
    if options.value_bits < EXIT_BITS {
        return Err(BenchError::Setting(format!(
            "values are too narrow for the {EXITS} ports of the switch; use at least --value-bits {EXIT_BITS}"
        )));
    }
    if options.batch as u64 != BURST {
        return Err(BenchError::Setting(format!("the switch takes bursts of {BURST}; use --batch {BURST}")));
    }
    let named = options.contestants.iter().filter(|name| *name != "empty");
    let designs: Result<Vec<&'static Design>, _> = named.map(|name| crate::design(name)).collect();
    let mut designs = designs.map_err(|error| BenchError::Setting(error.to_string()))?;
    if designs.is_empty() {
        designs.push(&CONCISE);
    }
    if designs.len() > 1 && !matches!(what, What::Frames(_)) {
        return Err(BenchError::Setting("--flow and --capture measure one design; name one with --contestants".into()));
    }
    for &n in &options.n {
        run_size(options, n, &designs, what, listener)?;
    }
    Ok(())
}

fn run_size(
    options: &Options,
    n: u64,
    designs: &[&'static Design],
    what: What<'_>,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let n_queries = (n as usize).clamp(1 << 20, 16 << 20);
    let all = options.names.generate(2 * n as usize + SOURCES, options.seed);
    let (names, others) = all.split_at(n as usize);
    let (unknown, at_entry) = others.split_at(n as usize);
    let at_entry: Arc<[u64]> = at_entry.into();
    let input = Input {
        names,
        name_len: options.names.name_len(),
        value_bits: EXIT_BITS,
        family: options.family,
        seed: options.seed,
        build_threads: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        floor_bytes: 0,
    };
    let hasher = input.hasher();
    let macs: Vec<Name> = names
        .iter()
        .map(|name| Name::from_bytes(NameKind::Mac, &name.to_le_bytes()[..6]))
        .collect::<Result<_, _>>()
        .map_err(|error| BenchError::Setting(error.to_string()))?;
    let mut fibs: Vec<(&'static Design, Box<dyn Table>)> = Vec::new();
    for design in designs {
        let spec =
            Spec::new(design, NameKind::Mac, options.family, input.secret_key(), options.value_bits, names.len());
        let keys = designs::keys(&hasher, macs.iter()).into_iter();
        let entries: Vec<_> = keys.zip(names).map(|(key, &name)| (key, value_of(name, EXIT_BITS) as u16)).collect();
        let fib = spec.build(&entries, input.build_threads).map_err(|error| input.build_error(design.name, error))?;
        fibs.push((design, fib));
    }

    if let (What::Connections(connections), Some((design, fib))) = (what, fibs.first()) {
        return connections.iter().try_for_each(|&n_connections| {
            let destinations: Arc<[u64]> = options.names.queries(names, n_connections as usize, options.seed).into();
            measure_connections(options, &input, design.name, &**fib, destinations, listener)
        });
    }
    if let (What::Captured, Some((design, fib))) = (what, fibs.first()) {
        let destinations: Arc<[u64]> = options.names.queries(names, n_queries, options.seed).into();
        return measure_captures(options, &input, design.name, &**fib, destinations, listener);
    }
    let traffic = match what {
        What::Frames(Some(traffic)) => vec![traffic],
        _ => Traffic::ALL
            .into_iter()
            .filter(|traffic| traffic.to != To::Zipf || options.names != NameSet::Zipf)
            .collect(),
    };
    let mut orders: Vec<(To, Arc<[u64]>)> = Vec::new();
    for to in traffic.iter().map(|traffic| traffic.to) {
        if orders.iter().all(|(done, _)| *done != to) {
            let (set, names) = match to {
                To::Valid => (options.names, names),
                To::Zipf => (NameSet::Zipf, names),
                To::Unknown => (options.names, unknown),
            };
            orders.push((to, set.queries(names, n_queries, options.seed).into()));
        }
    }
    for &workers in &options.threads {
        for &Traffic { place, wiring, frame_bytes, to } in &traffic {
            let (_, destinations) = orders.iter().find(|(done, _)| *done == to).expect("made above");
            let names_text = match to {
                To::Valid => options.names.to_string(),
                To::Zipf => NameSet::Zipf.to_string(),
                To::Unknown => UNKNOWN.to_owned(),
            };
            let is_gateway = place == Place::Gateway;
            let load = Load {
                wiring,
                frame_bytes,
                sources: if is_gateway { Arc::clone(&at_entry) } else { Arc::default() },
                ..plain_load(options, place, destinations, workers)
            };
            let place = match (place, wiring) {
                (Place::Core, Wiring::Rings) => "core",
                (Place::Core, Wiring::Bare) => "core, bare ports",
                (Place::Gateway, Wiring::Rings) => "gateway",
                (Place::Gateway, Wiring::Bare) => "gateway, bare ports",
            };
            let bench = format!("forward/{place}, {frame_bytes} bytes");
            listener.say(&format!("{bench}, {names_text} names, {} of them", size_text(n)));
            let mut empty = Vec::new();
            let checks: &[_] = if is_gateway && to == To::Valid { &CHECKS } else { &[] };
            let mut loads = vec![(String::new(), load.clone())];
            loads.extend(checks.iter().map(|&(check_source, n_hosts, text)| {
                let sources = load.sources[..n_hosts.min(load.sources.len())].into();
                (format!(", {text}"), Load { check_source, sources, ..load.clone() })
            }));
            if (wiring, frame_bytes, to) == (Wiring::Rings, 64, To::Valid) {
                loads.push((format!(", {EXITS} ways by flow"), Load { spread: true, ..load.clone() }));
                let (watched, text) = match loads.iter().find(|(_, load)| load.check_source == CheckSource::Mac) {
                    Some((text, checked)) => (checked.clone(), format!("{text}, hellos, learning")),
                    None => (load.clone(), ", hellos".to_owned()),
                };
                let forgets = Load { watched: true, forgets: true, ..watched.clone() };
                if is_gateway {
                    loads.push((format!("{text}, forgetting"), forgets));
                }
                loads.push((text, Load { watched: true, ..watched }));
            }
            let mut rates = vec![Vec::new(); fibs.len() * loads.len()];
            let mut checksum = 0;
            for _ in 0..options.runs {
                let refused = |error: dataplane::assembly::BuildError| input.build_error("forward", error);
                empty.push(forward_empty(&load, &hasher).map_err(refused)?.rate_pps() / 1e6);
                let entered = fibs.iter().flat_map(|fib| loads.iter().map(move |(_, load)| (fib, load)));
                for (((design, fib), load), rates) in entered.zip(&mut rates) {
                    let measured = forward_with_fib(load, &hasher, &**fib, names).map_err(refused)?;
                    let sum = check(design.name, load, &measured, to == To::Unknown)?;
                    // By flow they leave elsewhere.
                    checksum = if load.spread { checksum } else { sum };
                    rates.push(measured.rate_pps() / 1e6);
                }
            }
            let setting = Setting {
                n,
                value_bits: options.value_bits,
                names: names_text.clone(),
                threads: workers,
                batch: BURST as u32,
                in_flight: 1,
            };
            let mut rows = vec![Row::new(&bench, "empty", &setting, "Mpkt/s", empty)];
            let entered = fibs.iter().flat_map(|(design, _)| loads.iter().map(move |(text, _)| (design, text)));
            for ((design, text), rates) in entered.zip(rates) {
                let mut row = Row::new(&bench, &format!("{}{text}", design.name), &setting, "Mpkt/s", rates);
                row.checksum = Some(checksum);
                rows.push(row);
            }
            listener.table(&rows);
        }
    }
    Ok(())
}

/// The smallest frames over rings, with nothing checked and no connections.
fn plain_load(options: &Options, place: Place, destinations: &Arc<[u64]>, workers: u32) -> Load {
    Load {
        place,
        wiring: Wiring::Rings,
        frame_bytes: 64,
        sources: Arc::default(),
        check_source: CheckSource::Off,
        acl: None,
        destinations: Arc::clone(destinations),
        n_exits: EXITS,
        spread: false,
        watched: false,
        forgets: false,
        workers: workers as usize,
        frames: options.operations.unwrap_or(FRAMES).next_multiple_of(BURST),
        connections: None,
    }
}

/// A kind of traffic and switch: open connections, with or without a flood in between.
const CONTESTANTS: [(&str, Connections); 4] = {
    let plain = Connections { tracked: true, flood_after: None, flood_accepted: false };
    let flood = Connections { flood_after: Some(1), ..plain };
    [
        ("stateless", Connections { tracked: false, ..plain }),
        ("conntrack", plain),
        ("conntrack, flood refused", flood),
        ("conntrack, flood begins", Connections { flood_accepted: true, ..flood }),
    ]
};

/// Frames at a switch with an access list.
const LISTED: Connections = CONTESTANTS[0].1;
/// Their rules.
const ACCESS_LISTS: [usize; 2] = [1_000, 10_000];

/// A list like those of ClassBench, and a last rule that lets all in.
fn access_list(n: usize, seed: u64) -> Result<Arc<AccessList>, BenchError> {
    let rules = generate::generate(generate::Kind::Acl, n - 1, seed);
    let lines: String = rules.iter().map(|rule| generate::classbench(rule) + "\n").collect();
    AccessList::of_text(&(lines + "permit any\n")).map_err(|error| BenchError::Setting(error.to_string()))
}

fn measure_connections(
    options: &Options,
    input: &Input<'_>,
    design: &str,
    fib: &dyn Table,
    destinations: Arc<[u64]>,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let n_connections = destinations.len();
    let with_list = |n: usize| -> Result<_, BenchError> {
        Ok((format!("stateless, acl of {}", size_text(n as u64)), LISTED, Some(access_list(n, options.seed)?)))
    };
    let lists = ACCESS_LISTS.iter().map(|&n| with_list(n)).collect::<Result<Vec<_>, _>>()?;
    for &workers in &options.threads {
        for (place, text) in [(Place::Gateway, "gateway"), (Place::Core, "core")] {
            // What comes through trunks is judged by no list.
            let lists = if place == Place::Gateway { &lists[..] } else { &[] };
            let plain = CONTESTANTS.iter().map(|&(name, connections)| (name.to_owned(), connections, None));
            let contestants: Vec<_> = plain.chain(lists.iter().cloned()).collect();
            let bench = format!("connections/{text}, {} of them", size_text(n_connections as u64));
            listener.say(&format!("{bench}, {} names, {design}", size_text(input.names.len() as u64)));
            let mut rates = vec![Vec::new(); contestants.len()];
            for _ in 0..options.runs {
                for ((name, connections, acl), rates) in contestants.iter().zip(&mut rates) {
                    let load = Load {
                        acl: acl.clone(),
                        connections: Some(*connections),
                        ..plain_load(options, place, &destinations, workers)
                    };
                    let measured = forward_with_fib(&load, &input.hasher(), fib, input.names)
                        .map_err(|error| input.build_error("forward", error))?;
                    check_connections(name, &load, &measured)?;
                    rates.push(measured.rate_pps() / 1e6);
                }
            }
            let setting = Setting {
                n: n_connections as u64,
                value_bits: options.value_bits,
                names: options.names.to_string(),
                threads: workers,
                batch: BURST as u32,
                in_flight: 1,
            };
            let rows = contestants.iter().zip(rates);
            let rows = rows.map(|((name, ..), rates)| Row::new(&bench, name, &setting, "Mpkt/s", rates));
            listener.table(&rows.collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// What is captured, and whether only drops are.
const CAPTURES: [(&str, Option<bool>); 3] = [("no capture", None), ("drops", Some(true)), ("all frames", Some(false))];

fn measure_captures(
    options: &Options,
    input: &Input<'_>,
    design: &str,
    fib: &dyn Table,
    destinations: Arc<[u64]>,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    for (&workers, frame_bytes) in options.threads.iter().flat_map(|workers| [64, 1500].map(|bytes| (workers, bytes))) {
        let load = Load { frame_bytes, ..plain_load(options, Place::Core, &destinations, workers) };
        let bench = format!("capture/core, {frame_bytes} bytes");
        listener.say(&format!("{bench}, {} names, {design}", size_text(input.names.len() as u64)));
        let mut rates = vec![Vec::new(); CAPTURES.len()];
        let mut shares = Vec::new();
        for _ in 0..options.runs {
            for ((name, drops_only), rates) in CAPTURES.iter().zip(&mut rates) {
                let hasher = input.hasher();
                let outcome = match *drops_only {
                    None => forward_with_fib(&load, &hasher, fib, input.names).map(|measured| (measured, None)),
                    Some(drops_only) => forward_tapped(&load, &hasher, fib, input.names, drops_only)
                        .map(|(measured, copied)| (measured, (!drops_only).then_some(copied))),
                };
                let (measured, copied) = outcome.map_err(|error| input.build_error("forward", error))?;
                check(name, &load, &measured, false)?;
                rates.push(measured.rate_pps() / 1e6);
                shares.extend(
                    copied.map(|Copied { frames, lost }| 100.0 * frames as f64 / (frames + lost).max(1) as f64),
                );
            }
        }
        let setting = Setting {
            n: input.names.len() as u64,
            value_bits: options.value_bits,
            names: options.names.to_string(),
            threads: workers,
            batch: BURST as u32,
            in_flight: 1,
        };
        let rows = CAPTURES.iter().zip(rates);
        let rows = rows.map(|((name, _), rates)| Row::new(&bench, name, &setting, "Mpkt/s", rates));
        listener.table(&rows.collect::<Vec<_>>());
        let bench = format!("{bench}, captured of all frames");
        listener.table(&[Row::new(&bench, "all frames", &setting, "%", shares)]);
    }
    Ok(())
}

/// Every frame of an open connection must leave; of the others, those that may begin one.
fn check_connections(contestant: &str, load: &Load, measured: &Measured) -> Result<(), BenchError> {
    let counts = &measured.counts;
    let refused = load.connections.is_some_and(|all| all.flood_after.is_some() && !all.flood_accepted);
    // A worker may end between a frame of an open connection and one of the flood.
    let expected = if refused { counts.received / 2 } else { counts.received };
    if counts.sent.abs_diff(expected) > load.workers as u64 {
        return Err(BenchError::Checksum { contestant: contestant.into(), got: counts.sent, expected });
    }
    Ok(())
}

/// Compares the frames that left by each port with those whose names say so. Returns the checksum of the counts.
fn check(design: &str, load: &Load, measured: &Measured, unknown: bool) -> Result<u64, BenchError> {
    let sum = |exits: &[u64]| exits.iter().zip(1..).fold(0u64, |sum, (&n, port)| sum.wrapping_add(n * port));
    let mut expected = vec![0; usize::from(EXITS)];
    if !unknown {
        // All workers receive equally many frames, each starting at a different place in the list.
        let frames = measured.exits.iter().sum::<u64>() / load.workers as u64;
        if frames < load.frames {
            let contestant = design.into();
            return Err(BenchError::Checksum { contestant, got: frames, expected: load.frames });
        }
        let n = load.destinations.len();
        for worker in 0..load.workers {
            let from = n * worker / load.workers;
            for &name in load.destinations.iter().cycle().skip(from).take(frames as usize) {
                expected[value_of(name, EXIT_BITS) as usize - 1] += 1;
            }
        }
    }
    let is_right = match load.spread {
        true => measured.exits.iter().sum::<u64>() == expected.iter().sum::<u64>(),
        false => measured.exits == expected,
    };
    if !is_right {
        let (got, expected) = (sum(&measured.exits), sum(&expected));
        return Err(BenchError::Checksum { contestant: design.into(), got, expected });
    }
    Ok(sum(&expected))
}

//! Frames a second through the real worker loop, between ports in memory, with FIBs and without any lookup.
//!
//! Frames go round between rings whose far ends the same thread fills and empties; with bare ports, which make frames of
//! nothing, less is done beside the lookup than any port can do. The empty forwarder parses, counts hops down and sends as the other does, but looks nothing up. In the core frames
//! come from another switch and cost one FIB lookup; at a gateway they come from hosts, and the exact check of valid
//! names comes before it. Where each frame went is compared to where its name says.

use std::sync::Arc;

use fib::designs::{self, CONCISE, Design, Spec, Table};
use fib::name::{Name, NameKind};
use switch::bench::{Load, Measured, Place, Wiring, forward_empty, forward_with_fib};

use super::{Listener, Options};
use crate::BenchError;
use crate::contestants::Input;
use crate::names::{NameSet, value_of};
use crate::report::{Row, Setting, size_text};

/// The contestants: the empty forwarder is always measured, and beside it Concise, or the designs asked for.
pub fn contestants() -> Vec<(&'static str, &'static str)> {
    let empty = ("empty", "the same loop without digest, lookup and check of names: always measured");
    let designs = designs::DESIGNS.iter().map(|design| (design.name, design.summary));
    std::iter::once(empty).chain(designs).collect()
}

/// Destinations that no host has.
const UNKNOWN: &str = "unknown";
/// Bits of the number of the port that a frame leaves by, and that many ports.
const EXIT_BITS: u8 = 3;
const EXITS: u16 = (1 << EXIT_BITS) - 1;
/// Frames a run and worker.
const FRAMES: u64 = 8 << 20;
/// Frames that come at once.
const BURST: u64 = 32;

/// Runs the bench: one table for each n, number of workers and kind of traffic.
/// # Errors
/// [`BenchError`]; tables complete until then have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    if options.names.name_len() != 6 {
        return Err(BenchError::Setting(format!("frames carry MAC addresses, not {} names", options.names)));
    }
    if options.value_bits < EXIT_BITS {
        return Err(BenchError::Setting(format!("the switch has {EXITS} ports: at least {EXIT_BITS} bits a value")));
    }
    if options.batch as u64 != BURST {
        return Err(BenchError::Setting(format!("the forwarding bench runs in bursts of {BURST}")));
    }
    let named = options.contestants.iter().filter(|name| *name != "empty");
    let designs: Result<Vec<&'static Design>, _> = named.map(|name| Design::by_name(name)).collect();
    let mut designs = designs.map_err(|error| BenchError::Setting(error.to_string()))?;
    if designs.is_empty() {
        designs.push(&CONCISE);
    }
    for &n in &options.n {
        run_size(options, n, &designs, listener)?;
    }
    Ok(())
}

fn run_size(
    options: &Options,
    n: u64,
    designs: &[&'static Design],
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let n_queries = (n as usize).clamp(1 << 20, 16 << 20);
    let both = options.names.generate(2 * n as usize, options.seed);
    let (names, unknown) = both.split_at(n as usize);
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

    let order = |set: NameSet, names: &[u64]| -> Arc<[u64]> { set.queries(names, n_queries, options.seed).into() };
    let uniform = order(options.names, names);
    let own = options.names.to_string();
    let mut traffic = vec![
        (Place::Core, Wiring::Rings, 64, own.clone(), Arc::clone(&uniform)),
        (Place::Core, Wiring::Rings, 1500, own.clone(), Arc::clone(&uniform)),
        (Place::Core, Wiring::Bare, 64, own.clone(), Arc::clone(&uniform)),
        (Place::Gateway, Wiring::Rings, 64, own, uniform),
        (Place::Gateway, Wiring::Rings, 64, UNKNOWN.to_owned(), order(options.names, unknown)),
    ];
    if options.names != NameSet::Zipf {
        let zipf = order(NameSet::Zipf, names);
        traffic.push((Place::Core, Wiring::Rings, 64, NameSet::Zipf.to_string(), zipf));
    }
    for &workers in &options.threads {
        for (place, wiring, frame_bytes, names_text, destinations) in &traffic {
            let load = Load {
                place: *place,
                wiring: *wiring,
                frame_bytes: *frame_bytes,
                destinations: Arc::clone(destinations),
                n_exits: EXITS,
                workers: workers as usize,
                frames: options.operations.unwrap_or(FRAMES).next_multiple_of(BURST),
            };
            let place = match (place, wiring) {
                (Place::Core, Wiring::Rings) => "core",
                (Place::Core, Wiring::Bare) => "core, bare ports",
                (Place::Gateway, _) => "gateway",
            };
            let bench = format!("forward/{place}, {frame_bytes} bytes");
            listener.say(&format!("{bench}, {names_text} names, {} of them", size_text(n)));
            let mut empty = Vec::new();
            let mut rates = vec![Vec::new(); fibs.len()];
            let mut checksum = 0;
            for _ in 0..options.runs {
                let refused = |error: switch::dataplane::BuildError| input.build_error("forward", error);
                empty.push(forward_empty(&load, &hasher).map_err(refused)?.rate_pps() / 1e6);
                for ((design, fib), rates) in fibs.iter().zip(&mut rates) {
                    let measured = forward_with_fib(&load, &hasher, &**fib, names).map_err(refused)?;
                    checksum = check(design.name, &load, &measured, names_text == UNKNOWN)?;
                    rates.push(measured.rate_pps() / 1e6);
                }
            }
            let setting = Setting {
                n,
                value_bits: options.value_bits,
                names: names_text.clone(),
                threads: workers,
                batch: BURST as u32,
            };
            let mut rows = vec![Row::new(&bench, "empty", &setting, "Mpkt/s", empty)];
            for ((design, _), rates) in fibs.iter().zip(rates) {
                let mut row = Row::new(&bench, design.name, &setting, "Mpkt/s", rates);
                row.checksum = Some(checksum);
                rows.push(row);
            }
            listener.table(&rows);
        }
    }
    Ok(())
}

/// Compares the frames that left by each port to those whose names say so; the sum that stands for them.
fn check(design: &str, load: &Load, measured: &Measured, unknown: bool) -> Result<u64, BenchError> {
    let sum = |exits: &[u64]| exits.iter().zip(1..).fold(0u64, |sum, (&n, port)| sum.wrapping_add(n * port));
    let mut expected = vec![0; usize::from(EXITS)];
    if !unknown {
        // Workers receive equally many frames, each from its own place in the list on.
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
    if measured.exits != expected {
        let (got, expected) = (sum(&measured.exits), sum(&expected));
        return Err(BenchError::Checksum { contestant: design.into(), got, expected });
    }
    Ok(sum(&expected))
}

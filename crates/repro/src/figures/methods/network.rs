//! Whole networks of forwarders, over [`sim::network`].

use std::path::PathBuf;

use fib::designs::Design;
use fib::messages::ValueMode;
use serde::Deserialize;
use sim::network::{Graph, Report, Scenario, Stage, Tally, Traffic, Wires};

use super::{Method, Progress, Setting};
use crate::BenchError;
use crate::figures::catalogue::from_text;
use crate::figures::{Point, Series, X};
use crate::machine::PeakMemory;

pub(super) const METHODS: &[Method] = &[Method {
    name: "network",
    about: "a network of forwarders that changes: deliveries, messages, memory; a design is `concise` or `cuckoo/concise`, \
            the gateways' first",
    check: |setting| {
        setting.series.iter().try_for_each(|series| designs(series).map(drop))?;
        setting.parameters::<Parameters>().map(drop)
    },
    run: networks,
    toy: "topology = \"ring:5\"\nnames = 40\ngateways = 3\npackets = 60\nname_changes = 6\nlink_changes = 2",
}];

/// Folder of topologies unless `FIBULA_TOPOLOGIES` is set.
const FOLDER: &str = "topologies";

/// Parameters of `network`; see [`Scenario`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// A file of `scripts/topologies` without its extension, or a generated topology.
    topology: String,
    /// The generated topology to use if the file does not exist.
    #[serde(default)]
    stand_in: String,
    #[serde(default = "egress", deserialize_with = "from_text")]
    mode: ValueMode,
    names: usize,
    #[serde(default)]
    zipf: f64,
    #[serde(default)]
    gateways: usize,
    packets: usize,
    #[serde(default)]
    name_changes: usize,
    #[serde(default)]
    link_changes: usize,
    #[serde(default)]
    lost: f64,
    #[serde(default)]
    late: f64,
    #[serde(default)]
    duplicated: f64,
}

fn egress() -> ValueMode {
    ValueMode::Egress
}

/// The designs of the gateways and core nodes of a series.
fn designs(series: &Series) -> Result<(&'static Design, &'static Design), BenchError> {
    let (gateway, core) = series.contestant().split_once('/').unwrap_or((series.contestant(), series.contestant()));
    let design = |name| crate::design(name).map_err(|error| BenchError::Setting(error.to_string()));
    Ok((design(gateway)?, design(core)?))
}

/// The requested topology, or its stand-in, and its name.
fn topology(parameters: &Parameters, seed: u64) -> Result<(Graph, String), BenchError> {
    let wrong = |error: &dyn std::fmt::Display| BenchError::Setting(error.to_string());
    let wanted = &parameters.topology;
    if wanted.contains(':') {
        return Ok((Graph::generate(wanted, seed).map_err(|error| wrong(&error))?, wanted.clone()));
    }
    let folder = std::env::var_os("FIBULA_TOPOLOGIES").map_or_else(|| FOLDER.into(), PathBuf::from);
    let path = folder.join(format!("{wanted}.topology"));
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let graph = Graph::parse(&text).map_err(|error| wrong(&format!("{}: {error}", path.display())))?;
            Ok((graph, wanted.clone()))
        }
        Err(_) if !parameters.stand_in.is_empty() => {
            let graph = Graph::generate(&parameters.stand_in, seed).map_err(|error| wrong(&error))?;
            Ok((graph, format!("{}, in place of {wanted}", parameters.stand_in)))
        }
        Err(error) => {
            let path = path.display();
            Err(wrong(&format!("{path}: {error}; scripts/topologies writes it, FIBULA_TOPOLOGIES says where it is")))
        }
    }
}

fn networks(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters: Parameters = setting.parameters()?;
    let (graph, called) = topology(&parameters, setting.seed)?;
    if called != parameters.topology {
        progress.say(&format!("{called}: scripts/topologies fetches the real one"));
    }
    let mut points = Vec::new();
    for series in &setting.series {
        let (gateway, core) = designs(series)?;
        let scenario = Scenario {
            mode: parameters.mode,
            gateway,
            core,
            zipf: parameters.zipf,
            gateways: parameters.gateways.min(graph.nodes.len()),
            packets: parameters.packets,
            name_changes: parameters.name_changes,
            link_changes: parameters.link_changes,
            wires: Wires {
                lost: parameters.lost,
                late: parameters.late,
                duplicated: parameters.duplicated,
                ..Wires::default()
            },
            ..Scenario::new(parameters.names, setting.seed)
        };
        let (mut memory, mut controller) = (None, 0);
        let result = sim::network::run(&graph, &scenario, &mut |stage| match stage {
            Stage::Wired => memory = Some(PeakMemory::start()),
            Stage::Named => controller = memory.as_ref().map_or(0, PeakMemory::grown_bytes),
            Stage::Attached { switches } if switches.is_multiple_of(100) => {
                progress.say(&format!("{}: {switches} of {} switches attached", series.name, graph.nodes.len()));
            }
            Stage::Changed { changes } if changes.is_multiple_of(100) => {
                progress.say(&format!("{}: {changes} changes", series.name));
            }
            _ => {}
        });
        match result {
            Ok(report) => points.extend(
                rows(&report, controller)
                    .map(|(row, y)| Point::exact(&series.name, Some(X::Text(row.replace("TOPOLOGY", &called))), y)),
            ),
            Err(error) => progress.lacks(&series.name, &error.to_string()),
        }
    }
    Ok(points)
}

/// The rows that a table shows of a report.
fn rows(report: &Report, controller: u64) -> impl Iterator<Item = (&'static str, f64)> + use<> {
    let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
    let million = |part: u64, of: u64| 1e6 * share(part, of);
    let wrong = |tally: &Tally| million(tally.wrong(), tally.sent);
    let kib = |bytes: u64, of: u64| share(bytes, of) / 1024.0;
    let nodes = report.nodes as u64;
    let told = |traffic: &Traffic| share(traffic.bytes(), report.changes * nodes);
    let (cores, gateways) = (&report.core_fibs, &report.gateway_fibs);
    let (before, during) = (&report.before, &report.during);
    [
        ("nodes of TOPOLOGY", nodes as f64),
        ("links", report.links as f64),
        ("gateways", report.gateways as f64),
        ("names", report.names as f64),
        ("FIB of a core switch, KiB", kib(cores.total, cores.switches)),
        ("FIB of a gateway, KiB", kib(gateways.total, gateways.switches)),
        ("controller's arrangement of names, KiB", kib(report.skeleton_bytes, 1)),
        ("controller's memory while it takes the names, MiB", kib(controller, 1024)),
        ("sent to an empty switch, KiB", kib(report.first.bytes(), nodes)),
        ("sent to a switch for a change, bytes", told(&report.updates)),
        ("of which its FIB, bytes", share(report.updates.fib_bytes, report.changes * nodes)),
        ("sent to a switch in answer to reports, bytes a change", told(&report.resyncs)),
        ("hops of a valid packet", share(before.hops, before.delivered)),
        ("hops by those of the shortest path", before.stretch()),
        ("hops of an alien that no gateway saw", share(before.unchecked.hops, before.unchecked.sent)),
        (
            "aliens let in by gateways, of a million",
            million(before.checked.sent - before.checked.refused, before.checked.sent),
        ),
        ("valid packets gone wrong before changes, of a million", wrong(before)),
        ("gone wrong during changes, of a million", wrong(during)),
        ("of which to a stranger, of a million", million(during.misdelivered, during.sent)),
        ("of which looped, of a million", million(during.looped, during.sent)),
        ("gone wrong when messages have run out, of a million", wrong(&report.after)),
        ("gone wrong when all have reported, of a million", wrong(&report.healed)),
        ("switches behind when messages have run out", report.behind as f64),
    ]
    .into_iter()
}

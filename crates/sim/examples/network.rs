//! A network simulation with its memory: `network TOPOLOGY KEY=VALUE ...`, where the topology is a file of
//! `scripts/topologies` or ring:N, fat-tree:K, random:N.

use fibula_sim::network::{Graph, Scenario, Stage};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let topology = arguments.next().ok_or("name a topology: a file, ring:N, fat-tree:K or random:N")?;
    let mut scenario = Scenario::new(100_000, 1);
    for argument in arguments {
        let (key, value) = argument.split_once('=').ok_or("write arguments as KEY=VALUE")?;
        match key {
            "names" => scenario.names = value.parse()?,
            "mode" => scenario.mode = value.parse()?,
            "design" => (scenario.gateway, scenario.core) = (value.parse()?, value.parse()?),
            "gateway-design" => scenario.gateway = value.parse()?,
            "zipf" => scenario.zipf = value.parse()?,
            "gateways" => scenario.gateways = value.parse()?,
            "packets" => scenario.packets = value.parse()?,
            "changes" => scenario.name_changes = value.parse()?,
            "links" => scenario.link_changes = value.parse()?,
            "lost" => scenario.wires.lost = value.parse()?,
            "late" => scenario.wires.late = value.parse()?,
            "duplicated" => scenario.wires.duplicated = value.parse()?,
            "seed" => scenario.seed = value.parse()?,
            _ => return Err(format!("there is no parameter `{key}`; crates/sim/examples/network.rs lists them").into()),
        }
    }
    let graph = match std::fs::read_to_string(&topology) {
        Ok(text) => Graph::parse(&text)?,
        Err(_) => Graph::generate(&topology, scenario.seed)?,
    };
    let start = Instant::now();
    let mut stage = |stage| {
        let often = match stage {
            Stage::Attached { switches: n } => !n.is_multiple_of(100) && n != graph.nodes.len(),
            Stage::Changed { changes: n } => !n.is_multiple_of(100),
            _ => false,
        };
        if !often {
            let mib = |field| resident_kib(field).unwrap_or(0) / 1024;
            let seconds = start.elapsed().as_secs_f64();
            println!("{seconds:8.1} s, {:6} MiB resident, {:6} at most: {stage:?}", mib("VmRSS:"), mib("VmHWM:"));
        }
    };
    let report = fibula_sim::network::run(&graph, &scenario, &mut stage)?;
    println!("{report:#?}");
    println!("{:.1} s in all", start.elapsed().as_secs_f64());
    Ok(())
}

fn resident_kib(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

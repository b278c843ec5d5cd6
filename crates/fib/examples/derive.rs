//! Measures what a network costs its controller:
//! `cargo run --release -p fibula-fib --example derive [names] [switches]`.
//!
//! Prints the cost of deriving the FIBs of all switches from the shared graph against building one from scratch, of
//! single changes with every switch attached, of a link failure, and of a restart.

#![expect(clippy::disallowed_methods, reason = "it measures time")]

use fibula_fib::action::PortId;
use fibula_fib::durable::Tenants;
use fibula_fib::messages::{Report, ValueMode};
use fibula_fib::name::{Name, NameKind};
use fibula_fib::network::{Effects, Network, NetworkError, Settings};
use fibula_fib::rib::Attachment;
use fibula_fib::topology::{End, NodeId};
use lookup::hash::{Digest, SecretKey};
use lookup::othello::{self, Graph, Othello};
use lookup::traits::Skeleton;
use std::time::Instant;

type Change<'a> = &'a mut dyn FnMut(&mut Network, usize) -> Result<Effects, NetworkError>;

fn mac(i: usize) -> Name {
    let bytes = (0x0200_0000_0000 + i as u64).to_be_bytes();
    Name::from_bytes(NameKind::Mac, &bytes[2..]).expect("six bytes are a MAC address")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let n = arguments.next().transpose()?.unwrap_or(1_000_000);
    let n_switches = arguments.next().transpose()?.unwrap_or(100);
    for mode in [ValueMode::Port, ValueMode::Egress] {
        run(mode, n, n_switches)?;
    }
    Ok(())
}

fn run(mode: ValueMode, n: usize, n_switches: usize) -> Result<(), Box<dyn std::error::Error>> {
    println!("{mode} mode, {n} names, {n_switches} switches");
    let settings = Settings { mode, ..Settings::new(1, SecretKey::from_seed(1)) };
    let mut network = Network::new(settings.clone(), 1)?;
    let nodes: Vec<NodeId> = (0..n_switches)
        .map(|i| Ok(network.add_switch(&format!("s{i}"), Tenants::All)?.0))
        .collect::<Result<_, NetworkError>>()?;
    let end = |node, port| End { node, port: PortId(port) };
    for (i, node) in nodes.iter().enumerate() {
        // A ring with chords.
        network.add_link(end(*node, 1), end(nodes[(i + 1) % n_switches], 2), 1)?;
        if n_switches > 8 {
            network.add_link(end(*node, 3), end(nodes[(i + 7) % n_switches], 4), 2)?;
        }
        network.add_host_port(end(*node, 100))?;
    }
    let names: Vec<(Name, Attachment)> =
        (0..n).map(|i| (mac(i), Attachment::new(nodes[i % n_switches], PortId(100)))).collect();
    let start = Instant::now();
    for batch in names.chunks(100_000) {
        network.put_names(batch)?;
    }
    let each = |start: Instant, n: usize| start.elapsed().as_nanos() as f64 / n as f64;
    println!("  import, batches of 100,000, nobody attached: {:.0} ns a name", each(start, n));
    println!("  graph: {:.1} bytes a name", network.skeleton_bytes() as f64 / n as f64);

    let digests: Vec<(Digest, u64)> =
        network.rib().iter().map(|(_, digest, at)| (digest, at.switch.0.into())).collect();
    let places: Vec<(Digest, u32)> = digests.iter().map(|(digest, place)| (*digest, *place as u32)).collect();
    let table = || othello::Settings::new(8, n, &settings.key);
    let start = Instant::now();
    let built = Othello::<othello::Sharded>::build(table(), &digests, 1)?;
    let scratch = each(start, n);
    drop(built);
    let start = Instant::now();
    let graph: Graph = Graph::build(&table(), &places, 1)?;
    let phase_1 = each(start, n);
    drop(graph);
    let start = Instant::now();
    let fibs = network.derive(&nodes)?;
    let derived = each(start, n * fibs.len());
    drop(fibs);
    println!(
        "  one FIB from scratch {scratch:.1} ns a name; graph alone {phase_1:.1}; derived {derived:.1} a switch ({:.2} of scratch)",
        derived / scratch
    );

    let attached = &nodes[..n_switches.min(11)];
    let start = Instant::now();
    for node in attached {
        network.attach(*node, &Report::default())?;
    }
    println!("  attach with an empty report: {:.1} ms a switch", each(start, attached.len()) / 1e6);
    let report = |messages: usize, bytes: usize, n: usize| {
        format!("{:.1} messages, {:.0} bytes", messages as f64 / n as f64, bytes as f64 / n as f64)
    };
    let n_changes = 20_000.min(n);
    let changes: [(&str, Change<'_>); 3] = [
        ("move", &mut |net, i| net.set_name(&mac(i), Attachment::new(nodes[(i + 1) % n_switches], PortId(100)))),
        ("remove", &mut |net, i| net.remove_name(&mac(i))),
        ("add", &mut |net, i| net.add_name(&mac(i), Attachment::new(nodes[i % n_switches], PortId(100)))),
    ];
    for (what, change) in changes {
        let (mut messages, mut bytes) = (0, 0);
        let start = Instant::now();
        for i in 0..n_changes {
            let effects = change(&mut network, i)?;
            messages += effects.messages().count();
            bytes += effects.messages().map(|(_, message)| message.encode().len()).sum::<usize>();
        }
        println!("  {what}: {:.1} us, {}", each(start, n_changes) / 1e3, report(messages, bytes, n_changes));
    }
    let start = Instant::now();
    let effects = network.set_link_up(end(nodes[0], 1), false)?;
    let bytes: usize = effects.messages().map(|(_, message)| message.encode().len()).sum();
    println!("  link down: {:.1} ms, {}", each(start, 1) / 1e6, report(effects.messages().count(), bytes, 1));

    let rows: Vec<_> = network.rows().collect();
    let start = Instant::now();
    let (restored, _) = Network::restore(settings, 2, rows)?;
    println!("  restart: {:.0} ms from rows in memory", each(start, 1) / 1e6);
    assert_eq!(restored.rib().len(), n);
    Ok(())
}

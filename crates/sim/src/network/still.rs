//! A network without changes: one switch after another, then the packets.

use super::exact::{Held, Shelf};
use super::report::FibBytes;
use super::walk::{self, Switches};
use super::world::{Kind, Packet, World};
use super::{Report, Scenario, SimError, Stage};
use fib::action::{ActionId, PortId};
use fib::designs::{BURST, Burst, NameList};
use fib::messages;
use fib::name::Name;
use fib::replica::{Exact, Limits, Replica};
use lookup::hash::Digest;

pub(super) type Switch = Replica<Held>;

/// What every switch answered.
struct Answers {
    /// Ports by node and packet; 0, which is not the port of a link or host, drops.
    ports: Vec<u16>,
    n_packets: usize,
    /// Whether the ingress gateway of a packet has its name, by packet.
    admitted: Vec<bool>,
}

impl Switches for Answers {
    fn admits(&self, _: usize, packet: usize) -> bool {
        self.admitted[packet]
    }

    fn port(&self, node: usize, packet: usize) -> Option<PortId> {
        Some(PortId(self.ports[node * self.n_packets + packet])).filter(|port| port.0 != 0)
    }
}

pub(super) fn run(world: &mut World, scenario: &Scenario, stage: &mut dyn FnMut(Stage)) -> Result<Report, SimError> {
    let mut report = world.report();
    let packets = world.packets(scenario.packets, false);
    let mut answers = Answers { ports: Vec::new(), n_packets: packets.len(), admitted: vec![false; packets.len()] };
    let shelf = Shelf::default();
    for node in 0..world.nodes.len() {
        let switch = attach(world, node, &shelf, &mut report)?;
        for burst in packets.chunks(BURST) {
            answers.ports.extend(ports(&switch, burst).map(|port| port.map_or(0, |port| port.0)));
        }
        for (packet, admitted) in packets.iter().zip(&mut answers.admitted) {
            if packet.from == node && packet.kind != Kind::Unchecked {
                *admitted = switch.tables().valid.get(&packet.name).is_some();
            }
        }
        measure(&switch, world.gateways.contains(&node), &mut report);
        world.network.detach(world.nodes[node]);
        stage(Stage::Attached { switches: node + 1 });
    }
    report.before = walk::send(world, &packets, &answers, scenario.hop_limit);
    (report.after, report.healed) = (report.before, report.before);
    Ok(report)
}

/// Attaches an empty switch, and applies everything that it is sent.
pub(super) fn attach(world: &mut World, node: usize, shelf: &Shelf, report: &mut Report) -> Result<Switch, SimError> {
    let id = world.nodes[node];
    let mut switch = Replica::new(Limits::default(), Held::new(shelf));
    for message in world.network.attach(id, &messages::Report::default())? {
        let bytes = report.first.send(&message);
        switch.receive(&bytes).map_err(|source| SimError::Replica { node: id, source })?;
    }
    Ok(switch)
}

/// Adds what a switch holds to the report.
pub(super) fn measure(switch: &Switch, gateway: bool, report: &mut Report) {
    let bytes = switch.fib().map_or(0, |fib| fib.size_bits().div_ceil(8));
    let fibs: &mut FibBytes = if gateway { &mut report.gateway_fibs } else { &mut report.core_fibs };
    fibs.add(bytes);
    report.valid_names += switch.tables().valid.len() as u64;
    report.local_names += switch.tables().local.len() as u64;
}

/// The ports to which a switch sends up to [`BURST`] packets.
pub(super) fn ports(switch: &Switch, packets: &[Packet]) -> impl Iterator<Item = Option<PortId>> {
    let mut values = [0; BURST];
    let values = &mut values[..packets.len()];
    let mut digests = vec![Digest(0); packets.len()];
    if let (Some(fib), Some(hasher)) = (switch.fib(), switch.hasher()) {
        let names: Vec<&Name> = packets.iter().map(|packet| &packet.name).collect();
        digests = names.iter().map(|name| hasher.digest(name.as_bytes())).collect();
        fib.lookup_batch(&Burst { digests: &digests, names: &NameList(&names) }, values);
    }
    let port = |((packet, value), digest): ((&Packet, &mut u64), Digest)| {
        let local = switch.tables().local.get(&packet.name).copied();
        walk::port(switch.action_of(ActionId(*value as u16)), local, digest.0)
    };
    packets.iter().zip(values).zip(digests).map(port).collect::<Vec<_>>().into_iter()
}

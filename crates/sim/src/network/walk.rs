//! A packet's path through the switches.

use super::report::{Aliens, Tally};
use super::world::{HOSTS, Kind, Packet, World};
use fib::action::{Action, PortId};
use fib::topology::End;

/// What the switches do with packets.
pub(super) trait Switches {
    /// Whether the exact table of a gateway has the name of a packet that comes from a host.
    fn admits(&self, node: usize, packet: usize) -> bool;
    /// The port that a switch sends a packet out of, after the check of local names; `None` drops it.
    fn port(&self, node: usize, packet: usize) -> Option<PortId>;
}

/// What a switch does with a packet of a flow to a name that has this action in its FIB and this port in its exact table of local
/// names.
pub(super) fn port(action: Action, local: Option<PortId>, flow: u64) -> Option<PortId> {
    match action {
        Action::Local => local,
        Action::Port(port) if port.0 >= HOSTS => local.filter(|local| *local == port),
        other => other.port_for(flow),
    }
}

enum Fate {
    Refused,
    Dropped,
    Looped,
    Delivered(End),
}

/// Sends packets and counts their fates.
pub(super) fn send(world: &World, packets: &[Packet], switches: &impl Switches, hop_limit: u32) -> Tally {
    let mut tally = Tally::default();
    for (at, packet) in packets.iter().enumerate() {
        let (fate, hops) = walk(world, packet, at, switches, hop_limit);
        match packet.kind {
            Kind::Valid => count_valid(world, packet, fate, hops, &mut tally),
            Kind::Checked => count_alien(fate, hops, &mut tally.checked),
            Kind::Unchecked => count_alien(fate, hops, &mut tally.unchecked),
        }
    }
    tally
}

fn walk(world: &World, packet: &Packet, at: usize, switches: &impl Switches, hop_limit: u32) -> (Fate, u32) {
    let (mut node, mut came_in) = (packet.from, None);
    if packet.kind != Kind::Unchecked && !switches.admits(node, at) {
        return (Fate::Refused, 0);
    }
    let topology = world.network.topology();
    for hops in 0..=hop_limit {
        let Some(port) = switches.port(node, at) else { return (Fate::Dropped, hops) };
        let out = End { node: world.nodes[node], port };
        match topology.link(out) {
            Ok(link) if link.carries() && came_in != Some(port) => {
                let far = if link.a == out { link.b } else { link.a };
                (node, came_in) = (world.index(far.node), Some(far.port));
            }
            Err(_) if port.0 >= HOSTS => return (Fate::Delivered(out), hops),
            // Down, the port it came from, or a port that does not exist.
            _ => return (Fate::Dropped, hops),
        }
    }
    (Fate::Looped, hop_limit)
}

fn count_valid(world: &World, packet: &Packet, fate: Fate, hops: u32, tally: &mut Tally) {
    tally.sent += 1;
    let Some(place) = world.network.rib().get(&packet.name) else { return };
    let (from, routes) = (world.nodes[packet.from], world.network.routes());
    let shortest = routes.hops(from, place.switch);
    let count = match fate {
        Fate::Delivered(end) if end == place.end() => {
            tally.hops += u64::from(hops);
            tally.shortest_hops += u64::from(shortest.unwrap_or(0));
            tally.longest_hops += u64::from(routes.most_hops(from, place.switch).unwrap_or(0));
            &mut tally.delivered
        }
        Fate::Delivered(end) if Some(end) == packet.former => &mut tally.former,
        Fate::Delivered(_) => &mut tally.misdelivered,
        Fate::Looped => &mut tally.looped,
        Fate::Dropped | Fate::Refused if shortest.is_none() => &mut tally.unreachable,
        Fate::Dropped | Fate::Refused => &mut tally.lost,
    };
    *count += 1;
}

fn count_alien(fate: Fate, hops: u32, aliens: &mut Aliens) {
    aliens.sent += 1;
    aliens.hops += u64::from(hops);
    let count = match fate {
        Fate::Refused => &mut aliens.refused,
        Fate::Dropped => &mut aliens.dropped,
        Fate::Looped => &mut aliens.looped,
        Fate::Delivered(_) => &mut aliens.delivered,
    };
    *count += 1;
}

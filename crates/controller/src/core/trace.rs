//! The path of a frame through the network, by the tables that the switches should have.
//!
//! What a switch serves may be older, so the trace says whether it is connected and in step. What it really does with
//! a frame, its counters and captures show.
//!
//! Where there are several ways, each switch chooses by a hash of the flow with a number that only it knows. So the hops
//! after such a switch are those of its first way, and the text says so.

use crate::core::change::{Refusal, State};
use api::v1::{Hop, LinkEnd, NameRecord, Path, TraceReply};
use fib::action::{Action, PortId};
use fib::name::{Name, clip};
use fib::topology::{End, NodeId, Topology};
use std::collections::{HashMap, HashSet};

/// Paths of a reply, where no switch is named.
const MAX_PATHS: usize = 1000;

/// Why a switch may not do what its table should say, for those switches that have a reason.
pub(crate) type Doubts = HashMap<NodeId, String>;

/// The paths of frames to a name: from one switch, or from each that has hosts.
pub(crate) fn trace(
    state: &State,
    name: &Name,
    record: Option<NameRecord>,
    from: Option<NodeId>,
    doubts: &Doubts,
) -> TraceReply {
    let at = state.network.rib().get(name).map(|attachment| wire_end(state, attachment.end()));
    let with_hosts: HashSet<NodeId> = state.network.host_ports().map(|end| end.node).collect();
    let nodes: Vec<NodeId> = match from {
        Some(node) => vec![node],
        None => {
            let nodes = state.network.topology().nodes().map(|(id, _)| id);
            nodes.filter(|id| with_hosts.contains(id)).take(MAX_PATHS).collect()
        }
    };
    TraceReply {
        record,
        at,
        paths: nodes.into_iter().map(|node| path(state, name, node, (&with_hosts, doubts))).collect(),
    }
}

/// The switch at which a trace begins; none if any will do.
pub(crate) fn start(state: &State, from: &str) -> Result<Option<NodeId>, Refusal> {
    if from.is_empty() { Ok(None) } else { state.node(from).map(Some) }
}

fn wire_end(state: &State, end: End) -> LinkEnd {
    let place = state.place(end);
    LinkEnd { switch: place.switch, port: place.port.0.into() }
}

fn far_end(topology: &Topology, near: End) -> Option<End> {
    let link = topology.link(near).ok()?;
    Some(if link.a == near { link.b } else { link.a })
}

/// The switches that frames of any flow to a name reach, in order.
fn reached(state: &State, name: &Name, from: NodeId) -> Vec<NodeId> {
    let (network, topology) = (&state.network, state.network.topology());
    let (mut reached, mut at) = (vec![from], 0);
    while let Some(&node) = reached.get(at) {
        at += 1;
        let action = network.action(node, name);
        let ways = match &action {
            Action::Spread { ways, .. } => ways.to_vec(),
            other => other.port().into_iter().collect(),
        };
        for far in ways.into_iter().filter_map(|port| far_end(topology, End { node, port })) {
            if !reached.contains(&far.node) {
                reached.push(far.node);
            }
        }
    }
    reached
}

fn path(state: &State, name: &Name, from: NodeId, (with_hosts, doubts): (&HashSet<NodeId>, &Doubts)) -> Path {
    let (network, topology) = (&state.network, state.network.topology());
    let title = |node: NodeId| topology.node(node).map_or_else(|_| node.to_string(), |node| node.name.clone());
    let mut hops: Vec<Hop> = Vec::new();
    let mut passed = HashSet::new();
    let mut node = from;
    let (end, sentence) = loop {
        let here = title(node);
        if !passed.insert(node) {
            break (
                "loops",
                format!("the frame reaches {here} a second time, and loops until its hop limit is reached"),
            );
        }
        let entry = network.entry(node, name);
        let mut hop = |does: String, port: Option<u16>| {
            let (value, action) = entry.map(|(value, action)| (value.into(), action.to_string())).unzip();
            let action = action.unwrap_or_default();
            hops.push(Hop { switch: here.clone(), does, port: port.map(u32::from), value, action });
        };
        let Some(attachment) = network.rib().get(name) else {
            let sentence = if with_hosts.contains(&node) {
                hop("drops it: alien".to_owned(), None);
                format!(
                    "no host has the name {}, so {here} drops what its hosts send to it (`alien`)",
                    clip(&name.to_string())
                )
            } else {
                hop("sends it somewhere, or drops it".to_owned(), None);
                format!(
                    "no host has the name {}; switches with hosts drop frames to it before they reach {here}",
                    clip(&name.to_string())
                )
            };
            break ("dropped", sentence);
        };
        if attachment.switch == node {
            let port = attachment.port;
            let host = state.hosts.name(attachment.end()).unwrap_or_default();
            hop(format!("delivers it by port {port} to host {host}"), Some(port.0));
            break ("delivered", format!("to host {host} at {here}:{port}"));
        }
        let action = network.action(node, name);
        let Some(port) = action.port() else {
            hop("drops it: no_route".to_owned(), None);
            let to = title(attachment.switch);
            let holds = network.tenants(node).is_some_and(|tenants| tenants.holds(attachment.tenant));
            let sentence = if holds {
                format!("no path leads from {here} to {to}: `fibula link list` shows links that are cut or out of use")
            } else {
                format!("{here} holds no names of tenant {}", attachment.tenant)
            };
            break ("dropped", sentence);
        };
        let lead = |port| far_end(topology, End { node, port });
        let Some(next) = lead(port) else {
            hop(format!("sends it by port {port}, which has no link"), Some(port.0));
            break ("dropped", format!("port {port} of {here} has no link"));
        };
        let by = |port: &PortId| lead(*port).map(|far| format!("by port {port} to {}", title(far.node)));
        // A neighbour that has this switch among its ways sends the frame on by another way, or by its own alternate.
        let around = |port: &PortId| {
            let far = lead(*port)?;
            let turns = match network.action(far.node, name) {
                Action::Spread { ways, .. } if ways.contains(&far.port) => ", which turns it to another of its ways",
                Action::Protected { port, .. } if port == far.port => ", which turns it to its own alternate",
                _ => "",
            };
            Some(by(port)? + turns)
        };
        let does = match action {
            Action::Protected { port, alternate } => {
                let alternate =
                    around(&alternate).map_or_else(String::new, |by| format!(" (while that is down, {by})"));
                format!("sends it {}{alternate}", by(&port).unwrap_or_default())
            }
            Action::Spread { ways, alternate } => {
                let sum: u32 = ways.weights().iter().copied().map(u32::from).sum();
                let is_even = ways.is_even() || !network.weighs(node);
                let way = |(port, weight): (PortId, u8)| {
                    let share = if is_even { String::new() } else { format!(" ({weight} of {sum})") };
                    by(&port).map(|by| by + &share)
                };
                let ways: Vec<String> = ways.with_weights().filter_map(way).collect();
                let alternate = alternate.as_ref().and_then(around);
                let alternate = alternate.map_or_else(String::new, |by| format!(" (while these are down, {by})"));
                let ways = ways.join(" or ");
                format!("sends it {ways}, depending on its flow{alternate}; the hops below are those of port {port}")
            }
            _ => format!("sends it {}", by(&port).unwrap_or_default()),
        };
        hop(does, Some(port.0));
        node = next.node;
    };
    let passes = reached(state, name, from);
    let doubtful = passes.iter().filter_map(|node| Some(format!("{} {}", title(*node), doubts.get(node)?)));
    let doubtful: Vec<String> = doubtful.collect();
    let sentence = if doubtful.is_empty() { sentence } else { format!("{sentence}; but {}", doubtful.join(", ")) };
    Path { from: title(from), hops, end: end.to_owned(), sentence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::change::{Change, Place, Record};
    use crate::hosts::Hosts;
    use fib::messages::ValueMode;
    use fib::network::{Network, Settings};
    use fib::topology::Wanted;
    use lookup::hash::SecretKey;

    /// A spine that loses its link to a leaf sends frames to another leaf, which has both spines among its ways.
    #[test]
    fn a_trace_says_that_a_neighbour_turns_a_frame() {
        let network = Network::new(Settings::new(7, SecretKey::from_seed(1)), 1).unwrap();
        let mut state = State { network, hosts: Hosts::default() };
        let place = |switch: &str, port| Place { switch: switch.to_owned(), port: PortId(port) };
        let leaves = ["l1", "l2", "l3"];
        let names = leaves.into_iter().chain(["s1", "s2"]).map(str::to_owned).collect();
        state.carry_out(Change::AddSwitches { names }).unwrap();
        for (i, leaf) in (1..).zip(leaves) {
            for (k, spine) in (1..).zip(["s1", "s2"]) {
                let (a, b) = (place(leaf, k), place(spine, i));
                state.carry_out(Change::AddLink { a, b, wanted: Wanted::default() }).unwrap();
            }
            state.carry_out(Change::AddHosts { hosts: vec![(format!("h{leaf}"), place(leaf, 9))] }).unwrap();
        }
        let text = "02:00:00:00:00:01".to_owned();
        let record = Record { name: text.clone(), host: "hl1".to_owned(), tenant: 0, ip: None };
        state.carry_out(Change::PutNames { records: vec![record], only_new: true }).unwrap();
        let name = state.parse(&text).unwrap();
        let first_hop = |from: &str| {
            let reply = trace(&state, &name, None, state.node(from).ok(), &Doubts::new());
            reply.paths[0].hops[0].does.clone()
        };
        let (spine, leaf) = (first_hop("s1"), first_hop("l2"));
        assert!(spine.contains("while that is down, by port ") && spine.contains("turns it to another"), "{spine}");
        assert!(leaf.contains("by port 1 to s1 or by port 2 to s2") && !leaf.contains("turns"), "{leaf}");
        // Only the leaf knows which way a flow takes.
        assert!(leaf.ends_with("depending on its flow; the hops below are those of port 1"), "{leaf}");
    }

    /// The value in the FIB of each switch, and its meaning as that switch can read it; nothing for a name that the switch does not
    /// hold.
    #[test]
    fn a_hop_has_the_entry_that_its_switch_must_have() {
        for (mode, at_home) in [(ValueMode::Port, "port:9"), (ValueMode::Egress, "local")] {
            let settings = Settings { mode, ..Settings::new(7, SecretKey::from_seed(1)) };
            let mut state = State { network: Network::new(settings, 1).unwrap(), hosts: Hosts::default() };
            let place = |switch: &str, port| Place { switch: switch.to_owned(), port: PortId(port) };
            state.carry_out(Change::AddSwitches { names: ["s1", "s2"].map(str::to_owned).into() }).unwrap();
            for weight in [1, 2] {
                let (a, b) = (place("s1", weight.into()), place("s2", weight.into()));
                state.carry_out(Change::AddLink { a, b, wanted: Wanted { weight, ..Wanted::default() } }).unwrap();
            }
            state.carry_out(Change::AddHosts { hosts: vec![("h2".to_owned(), place("s2", 9))] }).unwrap();
            let text = "02:00:00:00:00:01".to_owned();
            let record = Record { name: text.clone(), host: "h2".to_owned(), tenant: 0, ip: None };
            state.carry_out(Change::PutNames { records: vec![record], only_new: true }).unwrap();
            let [name, alien] = [&text, "02:00:00:00:00:02"].map(|text| state.parse(text).unwrap());
            let s1 = state.node("s1").unwrap();
            let entries = |state: &State, name: &Name| -> Vec<(bool, String)> {
                let hops = trace(state, name, None, Some(s1), &Doubts::new()).paths.remove(0).hops;
                hops.into_iter().map(|hop| (hop.value.is_some_and(|value| value > 0), hop.action)).collect()
            };
            let entry = |action: &str| (true, action.to_owned());
            assert_eq!(entries(&state, &name), [entry("ports:1*1|2*2"), entry(at_home)], "{mode}");
            // It has reported that it does not support weights.
            state.network.set_weighs(s1, false);
            assert_eq!(entries(&state, &name), [entry("ports:1|2"), entry(at_home)], "{mode}");
            assert_eq!(entries(&state, &alien), [(false, String::new())]);
        }
    }
}

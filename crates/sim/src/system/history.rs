//! How each switch should handle each name, at every change since the beginning.

use super::operators::{NAMES, name, switch_name};
use fib::action::{Action, PortId};
use fib::messages::ValueMode;
use fib::network::Network;
use fib::topology::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// What a switch should do with a name at some change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Right {
    /// `None`: the name or the switch does not exist, and the answer does not matter.
    pub(super) action: Option<Action>,
    /// Its port, if it is attached here.
    pub(super) local: Option<PortId>,
    /// Whether the switch has hosts, and so must know whether the name is valid.
    pub(super) gateway: bool,
    /// The switch that it is attached to, whose own number the value may be.
    place: Option<NodeId>,
    /// Whether the value is a port: then the alternate is left out of `action`.
    of_port: bool,
    /// In port mode, what its cells hold.
    value: u16,
}

/// The right answers of every switch for every name, each from a change on.
#[derive(Debug)]
pub(super) struct History(Vec<OfSwitch>);

#[derive(Clone, Debug, Default)]
struct OfSwitch {
    names: Vec<Vec<(u64, Right)>>,
    /// What leads to each other switch.
    paths: BTreeMap<NodeId, Vec<(u64, Action)>>,
    /// Since when values have their meanings, and the changes that gave one another meaning.
    since: Vec<u64>,
    displaced: Vec<(u64, u16)>,
}

impl History {
    pub(super) fn new(n_switches: usize) -> History {
        let nothing = Right { action: None, local: None, gateway: false, place: None, of_port: false, value: 0 };
        let of = OfSwitch { names: vec![vec![(0, nothing)]; NAMES], ..OfSwitch::default() };
        History(vec![of; n_switches])
    }

    /// Records the state after a change.
    pub(super) fn note(&mut self, network: &Network, change: u64) {
        for (i, of) in self.0.iter_mut().enumerate() {
            let node = network.topology().node_by_name(&switch_name(i));
            if let Some(node) = node {
                of.note_paths(network, node, change);
            }
            of.note_values(node.map(|node| network.values_since(node)).unwrap_or_default(), change);
            let gateway = network.host_ports().any(|end| Some(end.node) == node);
            for (i, of) in of.names.iter_mut().enumerate() {
                let name = name(i);
                let place = node.and_then(|node| Some((node, network.rib().get(&name)?)));
                let action = place.map(|(node, _)| network.action(node, &name));
                let local = place.filter(|(node, place)| place.switch == *node).map(|(_, place)| place.port);
                let is_port_mode = network.settings().mode == ValueMode::Port;
                let (value, is_own) =
                    node.filter(|_| is_port_mode).map_or((0, false), |node| network.value_of(node, &name));
                let of_port = is_port_mode && !is_own;
                let action = if of_port { action.map(without_alternate) } else { action };
                let place = place.map(|(_, place)| place.switch);
                let right = Right { action, local, gateway, place, of_port, value };
                if of.last().is_none_or(|(_, last)| *last != right) {
                    of.push((change, right));
                }
            }
        }
    }

    /// Number of times that a value got another meaning while cells could have it, at any switch.
    pub(super) fn n_displaced(&self) -> u64 {
        self.0.iter().map(OfSwitch::n_displaced).sum()
    }

    /// Changes after this one are lost, or were never committed.
    pub(super) fn forget_after(&mut self, change: u64) {
        for of in &mut self.0 {
            of.names.iter_mut().for_each(|of| of.retain(|(at, _)| *at <= change));
            of.paths.values_mut().for_each(|of| of.retain(|(at, _)| *at <= change));
            of.displaced.retain(|(at, _)| *at <= change);
        }
    }

    /// What was right from one change to another.
    pub(super) fn between(&self, switch: usize, name: usize, since: u64, until: u64) -> &[(u64, Right)] {
        between(&self.0[switch].names[name], since, until)
    }

    /// Whether a switch may do this with a name. One that gets what it lacks, piece by piece, may know the place of a name as of
    /// one of these changes and the path there as of another. In port mode, it may also know the port as of one and the
    /// alternates of ports as of another, and drop frames while the value of the name gets another meaning, or did just before.
    pub(super) fn allows(&self, switch: usize, name: usize, got: Action, since: u64, until: u64) -> bool {
        let displaced = &self.0[switch].displaced;
        let is_displaced =
            |value: u16| displaced.iter().any(|(at, index)| *index == value && *at > since && *at <= until);
        self.between(switch, name, since, until).iter().any(|(_, right)| {
            let path = right.place.and_then(|place| self.0[switch].paths.get(&place));
            right.action == Some(got)
                || got == Action::Drop && is_displaced(right.value)
                || right.of_port && right.action == Some(without_alternate(got))
                || path.is_some_and(|path| between(path, since, until).iter().any(|(_, action)| *action == got))
        })
    }
}

impl OfSwitch {
    fn note_values(&mut self, since: Vec<u64>, change: u64) {
        let before = std::mem::replace(&mut self.since, since);
        for (index, (now, before)) in (1..).zip(self.since.iter().zip(before.iter().chain(std::iter::repeat(&0)))) {
            if now > before {
                self.displaced.push((change, index));
            }
        }
    }

    /// Number of times that a value got another meaning while cells could have it.
    fn n_displaced(&self) -> u64 {
        self.displaced.len() as u64
    }

    fn note_paths(&mut self, network: &Network, node: NodeId, change: u64) {
        let is_egress = network.settings().mode == ValueMode::Egress;
        let known = self.paths.keys().copied();
        let all: BTreeSet<NodeId> = network.topology().nodes().map(|(node, _)| node).chain(known).collect();
        // In port mode a name that is attached here has the value of its port.
        for place in all.into_iter().filter(|place| is_egress || *place != node) {
            let path = match network.topology().node(place) {
                Ok(_) if place == node => Action::Local,
                Ok(_) => network.routes().hop(node, place).map_or(Action::Drop, Action::from),
                Err(_) => Action::Drop,
            };
            let of = self.paths.entry(place).or_default();
            if of.last().is_none_or(|(_, last)| *last != path) {
                of.push((change, path));
            }
        }
    }
}

fn without_alternate(action: Action) -> Action {
    match action {
        Action::Protected { port, .. } => Action::Port(port),
        Action::Spread { ways, .. } => Action::Spread { ways, alternate: None },
        other => other,
    }
}

/// What held from one change to another.
fn between<T>(of: &[(u64, T)], since: u64, until: u64) -> &[(u64, T)] {
    let from = of.partition_point(|(at, _)| *at <= since).saturating_sub(1);
    let to = of.partition_point(|(at, _)| *at <= until);
    &of[from..to.max(from)]
}

//! What values stand for in port mode.

use super::lab::{Fate, Lab, mac, settings};
use crate::network::*;
use crate::replica::{MemoryTables, Replica};
use crate::rib::Attachment;
use std::collections::BTreeSet;

/// Switches that have a value of their own at another one.
pub(crate) fn own(lab: &Lab, at: NodeId) -> Vec<NodeId> {
    lab.network.switches.keys().copied().filter(|to| lab.network.has_own_value(at, *to)).collect()
}

pub(crate) fn without(nodes: &[NodeId], at: NodeId) -> Vec<NodeId> {
    nodes.iter().copied().filter(|node| *node != at).collect()
}

fn ports(action: Action) -> BTreeSet<PortId> {
    match action {
        Action::Port(port) => [port].into(),
        Action::Protected { port, alternate } => [port, alternate].into(),
        Action::Spread { ways, alternate } => ways.iter().copied().chain(alternate).collect(),
        _ => BTreeSet::new(),
    }
}

/// What each switch may do with each live name while a change is carried out: what it did before, or what is right.
pub(crate) struct Allowed(BTreeMap<(NodeId, Name), BTreeSet<PortId>>);

impl Allowed {
    pub(crate) fn before(lab: &Lab) -> Allowed {
        let done = |(node, replica): (&NodeId, &Replica<MemoryTables>)| {
            let done = |name: &Name| ((*node, name.clone()), ports(replica.action(name)));
            lab.live.keys().map(done).collect::<Vec<_>>()
        };
        Allowed(lab.replicas.iter().flat_map(done).collect())
    }

    pub(crate) fn add_what_is_right(&mut self, lab: &Lab) {
        self.0.iter_mut().for_each(|((node, name), allowed)| allowed.extend(ports(lab.network.action(*node, name))));
    }

    /// The name that a switch does anything else with.
    pub(crate) fn broken(&self, lab: &Lab) -> Option<(NodeId, Name, Action)> {
        self.0.iter().find_map(|((node, name), before)| {
            let (got, right) = (lab.replicas[node].action(name), ports(lab.network.action(*node, name)));
            let is_allowed = ports(got).iter().all(|port| before.contains(port) || right.contains(port));
            (!is_allowed).then(|| (*node, name.clone(), got))
        })
    }
}

/// Destinations share values where a lookup of the design asks for one value after the other, as that of a filter a value.
pub fn destinations_share_where_a_lookup_asks_for_one_value_after_the_other(design: &'static Design) {
    assert!(design.tries_values, "{design}");
    let (mut lab, nodes) = Lab::ring(Settings { gateway: design, ..settings(ValueMode::Port) }, 5);
    (0..60).for_each(|i| lab.put(&mac(i), Attachment::new(nodes[i % 5], PortId(100))));
    assert!(nodes.iter().all(|at| own(&lab, *at).is_empty()));
    lab.check();
    for (design, n_own) in [(&CONCISE, 4), (design, 0)] {
        lab.restart([design, &CONCISE]);
        nodes.iter().for_each(|node| lab.attach(*node));
        assert!(nodes.iter().all(|at| own(&lab, *at).len() == n_own), "{}", design.name);
        lab.check();
    }
}

/// A network with a store and switches of a version in which values are ports alone goes on.
pub fn network_of_an_earlier_version_goes_on(designs: &[&'static Design]) {
    for &design in designs {
        let (mut lab, nodes) = Lab::ring_of_ports(Settings { gateway: design, ..settings(ValueMode::Port) }, 5);
        for i in 0..200 {
            lab.put(&mac(i), Attachment::new(nodes[i % 5], PortId(100 + (i % 2) as u16)));
        }
        assert_eq!(own(&lab, nodes[0]), []);
        let allowed = Allowed::before(&lab);
        let before: Vec<_> = nodes.iter().map(|node| lab.replicas[node].report()).collect();
        lab.restart([design, &CONCISE]);
        for (node, before) in nodes.iter().zip(before) {
            assert_eq!(own(&lab, *node), without(&nodes, *node));
            let messages = lab.network.attach(*node, &before).unwrap();
            assert!(messages.iter().any(|message| !matches!(message.body, Body::Actions { .. })), "other cells");
            for message in messages {
                lab.replicas.get_mut(node).unwrap().apply(message).unwrap();
                assert_eq!(allowed.broken(&lab), None);
                for (name, at) in &lab.live {
                    nodes.iter().for_each(|from| assert_eq!(lab.forward(*from, name), Fate::Delivered(at.end())));
                }
            }
        }
        let rows = lab.network.take_view_rows();
        lab.write(rows);
        lab.check();
    }
}

//! The meaning of values in port mode: ports, and, while values are left, switches.
//!
//! A switch has 2^`value_bits` - 1 values, and mostly some tens of ports. A value of its own for each switch with hosts
//! (a destination) makes the action table say how to get there, with all ways and an alternate of its own, as in egress
//! mode: then a link that fails changes action tables and no cell. Destinations without a value of their own share
//! the value of the port towards them, which is the papers' model.
//!
//! * Ports come first. A destination takes a value only while [`reserve`] others stay free, and gives way to a port when
//!   none is free. So there may be as many ports as if there were no destinations.
//! * A destination gets its value with its first host port, before it has names: no cell changes. It keeps it
//!   until it has no host port, or gives way. Then it shares, and its names' cells change at that switch. It has a value of its own
//!   again when more than [`reserve`] are free and switches or ports change.
//! * With a design that asks for one value after the other ([`Design::tries_values`](crate::designs::Design::tries_values)) all destinations
//!   share: values of their own would make lookups slower.
//! * What an index means never changes under cells that hold it: see [`Indices::displace`].
//! * Nothing here depends on which switches are attached or have acknowledged, so controllers that follow do the same. A restart
//!   changes nothing, either, unless the store is of a version in which values were ports alone.
//!
//! Cost: 3 to 25 bytes of the action table for each destination, which a change of routes sends to each switch. A
//! name that moves to another switch changes cells everywhere, also where the port towards it stays.

use super::{Draft, Network, NetworkError};
use crate::action::Action;
use crate::messages::{Body, ValueMode};
use crate::mistakes::{Mistake, mistaken};
use crate::name::Name;
use crate::topology::{End, NodeId, Routes};
use crate::value_allocation::{Indices, Meaning, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// Values that destinations leave to ports that may come.
fn reserve(values: &Indices<Meaning>) -> usize {
    values.max() / 8
}

/// Destinations that have values of their own.
fn n_own(values: &Indices<Meaning>) -> usize {
    values.slots().iter().filter(|slot| slot.is_in_use() && slot.value.is_switch()).count()
}

/// The action table to send to a switch that has the one of version `held`, before the one with these actions and before any cells:
/// in it the values drop that had another meaning then. None: there are none. Its version is earlier than any of these meanings, so
/// that a switch that gets no further is sent it again.
pub(super) fn interim_actions(values: &Indices<Meaning>, actions: &[Action], held: u64) -> Option<Body> {
    let is_new = |slot: &Slot<Meaning>| slot.since > held && !mistaken(Mistake::MeaningAtOnce);
    let first = values.slots().iter().filter(|slot| is_new(slot)).map(|slot| slot.since).min()?;
    let mut actions = actions.to_vec();
    for (slot, action) in values.slots().iter().zip(&mut actions[1..]) {
        if is_new(slot) {
            *action = Action::Drop;
        }
    }
    Some(Body::Actions { version: first - 1, actions })
}

impl Network {
    /// The value of a place in the FIB of a switch (port mode) or of all (egress mode).
    pub(super) fn value(&self, of: Option<NodeId>, place: End) -> u16 {
        let index = match (self.settings.mode, of) {
            (ValueMode::Egress, _) => self.egress.get(place.node),
            (ValueMode::Port, None) => None,
            (ValueMode::Port, Some(node)) => {
                let values = &self.switches[&node].values;
                let of_port = |port| values.get(Meaning::Port(port));
                if node == place.node {
                    of_port(place.port)
                } else {
                    let own = values.get(Meaning::Switch(place.node));
                    own.or_else(|| of_port(self.routes.next_hop(node, place.node)?))
                }
            }
        };
        index.unwrap_or(0)
    }

    /// What the tables of `node` must have for a live name: the value in its FIB, and the action of this value as the switch
    /// can read it. `None` for a name that it does not hold.
    pub fn entry(&self, node: NodeId, name: &Name) -> Option<(u16, Action)> {
        let (attachment, switch) = (self.rib.get(name)?, self.switches.get(&node)?);
        if !switch.tenants.holds(attachment.tenant) {
            return None;
        }
        let action = self.action(node, name);
        Some((self.value(Some(node), attachment.end()), if switch.weighs { action } else { action.evened() }))
    }

    /// How many destinations share a value with others, at each switch at which any do, in port mode: for want of values, or because of the
    /// design. They have fewer ways and alternates there than they could have.
    ///
    /// Cost: O(host ports, and values of all switches). It changes only when [`Network::n_reroutes`] does.
    pub fn sharing(&self) -> BTreeMap<NodeId, usize> {
        if self.settings.mode != ValueMode::Port {
            return BTreeMap::new();
        }
        let destinations: BTreeSet<NodeId> = self.host_ports.iter().map(|end| end.node).collect();
        let n_sharing = |(node, switch): (&NodeId, &super::Switch)| {
            let others = destinations.len() - usize::from(destinations.contains(node));
            (*node, others.saturating_sub(n_own(&switch.values)))
        };
        self.switches.iter().map(n_sharing).filter(|(_, n)| *n > 0).collect()
    }

    /// The number of times that routes were recomputed since this network is in memory, at each change of switches,
    /// links and host ports.
    pub fn n_reroutes(&self) -> u64 {
        self.n_reroutes
    }

    /// Whether a switch has a value for another one (port mode).
    pub(super) fn has_own_value(&self, node: NodeId, to: NodeId) -> bool {
        self.switches.get(&node).is_some_and(|switch| switch.values.get(Meaning::Switch(to)).is_some())
    }

    /// Since which version of the action table each value of a switch means what it means now, by index from 1 on; port mode. For
    /// simulations.
    #[cfg(feature = "kit")]
    pub fn values_since(&self, node: NodeId) -> Vec<u64> {
        let slots = self.switches.get(&node).map(|switch| switch.values.slots());
        slots.unwrap_or_default().iter().map(|slot| slot.since).collect()
    }

    /// The value of a name in the FIB of a switch, and whether it is that of the switch that the name is attached to alone. For
    /// simulations.
    #[cfg(feature = "kit")]
    pub fn value_of(&self, node: NodeId, name: &Name) -> (u16, bool) {
        let place = self.rib.get(name).filter(|_| self.switches.contains_key(&node));
        place.map_or((0, false), |place| (self.value(Some(node), place.end()), self.has_own_value(node, place.switch)))
    }

    /// Gives a port a value, if values are ports. When all are taken, destinations share.
    pub(super) fn assign_port(&mut self, end: End, draft: &mut Draft) -> Result<(), NetworkError> {
        let (ValueMode::Port, Some(switch)) = (self.settings.mode, self.switches.get_mut(&end.node)) else {
            return Ok(());
        };
        let (port, values) = (Meaning::Port(end.port), &mut switch.values);
        if values.assign_unused(port).is_some() {
            return Ok(());
        }
        let gives_way = |slot: &Slot<Meaning>| slot.value.is_switch() || !slot.is_in_use();
        let displaced = values.displace(port, switch.actions_version + 2, gives_way);
        let (_, was_in_use) = displaced.ok_or(NetworkError::TooManyActions { id: end.node, max: values.max() })?;
        if was_in_use {
            // More ports may come: all names are recoloured for several at a time.
            draft.revalued = true;
            let latest = values.slots().iter().rev().filter(|slot| slot.is_in_use() && slot.value.is_switch());
            let others: Vec<Meaning> = latest.take(reserve(values)).map(|slot| slot.value).collect();
            others.into_iter().for_each(|other| values.retire(other, self.change + 1));
        }
        Ok(())
    }

    pub(super) fn retire_port(&mut self, end: End) {
        let change = self.change + 1;
        if let Some(switch) = self.switches.get_mut(&end.node) {
            switch.values.retire(Meaning::Port(end.port), change);
        }
    }

    /// Takes the values of switches that are no longer destinations, and gives destinations values that are left. Returns
    /// the switches at which this changed something. Unless `may_displace`, destinations take no value that something else had.
    pub(super) fn settle(&mut self, draft: &mut Draft, may_displace: bool) -> Vec<NodeId> {
        #[cfg(any(test, feature = "testkit"))]
        if self.has_ports_only {
            return Vec::new();
        }
        if self.settings.mode != ValueMode::Port {
            return Vec::new();
        }
        let mut destinations: BTreeSet<NodeId> = self.host_ports.iter().map(|end| end.node).collect();
        if [self.settings.gateway, self.settings.core].iter().any(|design| design.tries_values) {
            destinations.clear();
        }
        let change = self.change + 1;
        let (mut changed, mut with_names) = (Vec::new(), BTreeSet::new());
        // Then no switch has a value for what is none.
        let are_the_same = self.settled.as_ref() == Some(&destinations);
        for (node, switch) in &mut self.switches {
            let (values, since) = (&mut switch.values, switch.actions_version + 2);
            let n_others = destinations.len() - usize::from(destinations.contains(node));
            if are_the_same && n_own(values) == n_others {
                continue;
            }
            let is_gone = |slot: &&Slot<Meaning>| match slot.value {
                Meaning::Switch(to) => slot.is_in_use() && !destinations.contains(&to),
                Meaning::Port(_) => false,
            };
            let gone: Vec<Meaning> = values.slots().iter().filter(is_gone).map(|slot| slot.value).collect();
            gone.iter().for_each(|to| values.retire(*to, change));
            let mut has_changed = !gone.is_empty();
            // What lost its value by this change may have cells until its messages have come.
            let is_left = |slot: &Slot<Meaning>| may_displace && slot.retired_at.is_some_and(|at| at < change);
            let mut n_free = values.n_free();
            for to in destinations.iter().filter(|to| *to != node) {
                if n_free <= reserve(values) {
                    break;
                }
                let value = Meaning::Switch(*to);
                if values.get(value).is_some() {
                    continue;
                }
                if values.assign_unused(value).is_some() || values.displace(value, since, is_left).is_some() {
                    (n_free, has_changed) = (n_free - 1, true);
                    with_names.insert(*to);
                }
            }
            if has_changed {
                changed.push(*node);
            }
        }
        let has_names = |end: &End| with_names.contains(&end.node) && self.rib.len_at(*end) > 0;
        draft.revalued |= self.host_ports.iter().any(has_names);
        self.settled = Some(destinations);
        changed
    }

    /// [`Network::settle`], with the rows of the switches at which something changed.
    pub(super) fn settle_values(&mut self, draft: &mut Draft) {
        for node in self.settle(draft, true) {
            draft.row(self.switch_row(node));
        }
    }

    /// Whether new routes change the value of a destination at some switch, attached or not.
    pub(super) fn moves_values(&self, before: &Routes) -> bool {
        if self.settings.mode != ValueMode::Port || !self.routes.differs_from(before) {
            return false;
        }
        let destinations: BTreeSet<NodeId> = self.host_ports.iter().map(|end| end.node).collect();
        self.switches.iter().any(|(node, switch)| {
            let n_others = destinations.len() - usize::from(destinations.contains(node));
            if n_own(&switch.values) == n_others {
                return false;
            }
            let mut shared = destinations.iter().filter(|to| *to != node && !self.has_own_value(*node, **to));
            shared.any(|to| self.routes.next_hop(*node, *to) != before.next_hop(*node, *to))
        })
    }
}

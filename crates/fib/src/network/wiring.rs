//! Many switches and links at once: one computation of routes, however many.
//!
//! Added one by one, each would recompute the routes of all pairs, which takes minutes with a thousand switches.

use super::{Draft, Effects, Network, NetworkError};
use crate::durable::{Row, RowChange, Tenants};
use crate::mistakes::{Mistake, mistaken};
use crate::topology::{End, Link, NodeId, Wanted};
use std::collections::{BTreeMap, BTreeSet};

impl Network {
    /// As [`Network::add_switch`] for many that hold all names, all or none; their ids are in the order of `names`.
    ///
    /// Cost: as for one, plus O(V) per switch.
    /// # Errors
    /// The error of the first refused switch; the network is unchanged.
    pub fn add_switches(&mut self, names: &[&str]) -> Result<(Vec<NodeId>, Effects), NetworkError> {
        let (egress, next_node) = (self.egress.clone(), self.next_node);
        let mut draft = Draft::default();
        let mut ids = Vec::with_capacity(names.len());
        for name in names {
            match self.enter(name, Tenants::All, &mut draft) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    for id in ids {
                        self.topology.remove_node(id)?;
                        self.switches.remove(&id);
                    }
                    (self.egress, self.next_node) = (egress, next_node);
                    return Err(error);
                }
            }
        }
        self.settle_values(&mut draft);
        let effects = self.rerouted(draft, &ids);
        Ok((ids, effects))
    }

    /// As [`Network::add_link_as`] for many, all or none. Links at the ends of those that were found go if they
    /// [give way](Link::gives_way).
    ///
    /// Cost: as for one, plus O(log E) per link.
    /// # Errors
    /// The error of the first refused link; the network is unchanged.
    pub fn add_links(&mut self, links: &[(End, End, Wanted)]) -> Result<Effects, NetworkError> {
        let gone = self.that_give_way(links);
        let ends = links.iter().flat_map(|(one, other, ..)| [*one, *other]);
        let ends = ends.chain(gone.iter().flat_map(|link| [link.a, link.b]));
        let values: BTreeMap<NodeId, _> =
            ends.filter_map(|end| Some((end.node, self.switches.get(&end.node)?.values.clone()))).collect();
        let mut draft = Draft::default();
        for link in &gone {
            self.topology.remove_link(link.a)?;
            self.retire_port(link.a);
            self.retire_port(link.b);
            draft.rows.push(Row::Link(*link).delete());
        }
        let mut made: Vec<Link> = Vec::with_capacity(links.len());
        for (one, other, wanted) in links {
            match self.connect(*one, *other, *wanted, &mut draft) {
                Ok(link) => made.push(link),
                Err(error) => {
                    for link in made {
                        self.topology.remove_link(link.a)?;
                    }
                    gone.into_iter().for_each(|link| self.topology.put_back(link));
                    for (node, values) in values {
                        if let Some(switch) = self.switches.get_mut(&node) {
                            switch.values = values;
                        }
                    }
                    return Err(error);
                }
            }
        }
        if !gone.is_empty() {
            // A row is put or deleted, and not both in one change.
            let put: BTreeSet<RowChange> = made.iter().map(|link| Row::Link(*link).delete()).collect();
            draft.rows.retain(|row| !put.contains(row));
            self.settle_values(&mut draft);
        }
        let nodes: Vec<NodeId> = values.into_keys().collect();
        Ok(self.rerouted(draft, &nodes))
    }

    /// The links that go when these are added.
    fn that_give_way(&self, links: &[(End, End, Wanted)]) -> Vec<Link> {
        let ends = links.iter().filter(|(.., wanted)| wanted.found).flat_map(|(one, other, _)| [*one, *other]);
        let in_the_way = ends.filter_map(|end| self.topology.link(end).ok()).filter(|link| link.gives_way());
        // One may be at the ends of two.
        let by_end: BTreeMap<End, Link> = in_the_way.map(|link| (link.a, *link)).collect();
        by_end.into_values().collect()
    }

    /// Says whether a link was found, or declared, given one of its ends. No path changes.
    /// # Errors
    /// [`TopologyError::NoLink`](crate::topology::TopologyError::NoLink).
    pub fn set_link_found(&mut self, end: End, found: bool) -> Result<Effects, NetworkError> {
        let mut draft = Draft::default();
        draft.row(Row::Link(self.topology.set_found(end, found)?));
        Ok(self.finish(draft))
    }

    /// Takes links that carry no frames out of the paths, and others into them, as the switches at their ends found; each given
    /// by one of its ends.
    ///
    /// Cost: as for one, plus O(log E) per link.
    /// # Errors
    /// [`NetworkError::Topology`] for an end without a link; unchanged.
    pub fn set_cut(&mut self, links: &[(End, bool)]) -> Result<Effects, NetworkError> {
        for (end, _) in links {
            self.topology.link(*end)?;
        }
        let mut draft = Draft::default();
        let is_second = self.topology.links().any(|link| link.cut) && links.iter().any(|(_, cut)| *cut);
        for (end, cut) in links {
            draft.row(Row::Link(self.topology.set_cut(*end, *cut)?));
        }
        if is_second && mistaken(Mistake::SecondCutIgnored) {
            return Ok(self.finish(draft));
        }
        Ok(self.rerouted(draft, &[]))
    }
}

//! Many switches and links at once: one computation of routes, however many.
//!
//! Added one by one, each would recompute the routes of all pairs, which takes minutes with a thousand switches.

use super::{Draft, Effects, Network, NetworkError};
use crate::durable::{Row, Tenants};
use crate::mistakes::{Mistake, mistaken};
use crate::topology::{End, Link, NodeId, Wanted};
use std::collections::BTreeMap;

impl Network {
    /// As [`Network::add_switch`] for many that hold all names, all or none; their ids are in the order of `names`.
    ///
    /// Cost: as for one, plus O(V) per switch.
    /// # Errors
    /// Those of the first switch that is refused; unchanged.
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

    /// As [`Network::add_link_as`] for many, all or none.
    ///
    /// Cost: as for one, plus O(log E) per link.
    /// # Errors
    /// Those of the first link that is refused; unchanged.
    pub fn add_links(&mut self, links: &[(End, End, Wanted)]) -> Result<Effects, NetworkError> {
        let ends = links.iter().flat_map(|(one, other, ..)| [one.node, other.node]);
        let values: BTreeMap<NodeId, _> =
            ends.filter_map(|node| Some((node, self.switches.get(&node)?.values.clone()))).collect();
        let mut draft = Draft::default();
        let mut made: Vec<Link> = Vec::with_capacity(links.len());
        for (one, other, wanted) in links {
            match self.connect(*one, *other, *wanted, &mut draft) {
                Ok(link) => made.push(link),
                Err(error) => {
                    for link in made {
                        self.topology.remove_link(link.a)?;
                    }
                    for (node, values) in values {
                        if let Some(switch) = self.switches.get_mut(&node) {
                            switch.values = values;
                        }
                    }
                    return Err(error);
                }
            }
        }
        let nodes: Vec<NodeId> = values.into_keys().collect();
        Ok(self.rerouted(draft, &nodes))
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

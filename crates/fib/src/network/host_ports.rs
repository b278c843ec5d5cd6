//! Many host ports at once: one change, one action table per switch, however many ports.
//!
//! Where names are content, each port is a server, and a switch may have tens of thousands. Added one by one, each
//! would send and store the whole table of ports again.

use super::{Draft, Effects, Network, NetworkError};
use crate::topology::{End, NodeId, TopologyError};
use std::collections::BTreeSet;

impl Network {
    /// As [`Network::add_host_port`] for many, all or none.
    ///
    /// Cost: as for one, plus O(1) per port.
    /// # Errors
    /// The error of the first refused port; also [`NetworkError::PortOfHosts`] for a duplicate.
    pub fn add_host_ports(&mut self, ends: &[End]) -> Result<Effects, NetworkError> {
        let mut new = BTreeSet::new();
        for &end in ends {
            self.topology.node(end.node)?;
            if self.topology.link(end).is_ok() {
                return Err(TopologyError::PortHasLink { end }.into());
            }
            if self.host_ports.contains(&end) || !new.insert(end) {
                return Err(NetworkError::PortOfHosts { end });
            }
        }
        let nodes: BTreeSet<NodeId> = new.iter().map(|end| end.node).collect();
        let before: Vec<_> =
            nodes.iter().filter_map(|node| Some((*node, self.switches.get(node)?.values.clone()))).collect();
        let first: Vec<NodeId> = nodes.iter().copied().filter(|node| self.ports_of(*node).next().is_none()).collect();
        let mut draft = Draft::default();
        let assigned = ends.iter().try_for_each(|end| self.assign_port(*end, &mut draft));
        if let Err(error) = assigned.and_then(|()| self.become_gateways(&first, &mut draft)) {
            for (node, values) in before {
                if let Some(switch) = self.switches.get_mut(&node) {
                    switch.values = values;
                }
            }
            return Err(error);
        }
        for end in new {
            self.host_ports.insert(end);
            draft.row(crate::durable::Row::HostPort(end));
        }
        for node in first {
            self.announce_gateway(node, &mut draft)?;
        }
        self.settle_values(&mut draft);
        Ok(self.rerouted(draft, &nodes.into_iter().collect::<Vec<_>>()))
    }

    /// Moves switches to the table of gateways, all or none.
    fn become_gateways(&mut self, nodes: &[NodeId], draft: &mut Draft) -> Result<(), NetworkError> {
        for (i, node) in nodes.iter().enumerate() {
            if let Err(error) = self.retable(*node, self.settings.gateway, draft) {
                for node in &nodes[..i] {
                    self.retable(*node, self.settings.core, &mut Draft::default())?;
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

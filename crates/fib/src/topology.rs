//! The graph of switches and links; [`routes`] has the next hop of every switch to every other.
//!
//! Limits: link costs 1 to 2^32 - 1, weights 1 to [`MAX_WEIGHT`]; two switches may be joined by several links, a switch is not joined to itself.

mod drain;
mod routes;

pub use drain::{Goal, MOST_STEPS, Needed};
pub use routes::{Hop, Routes};

use crate::action::{MAX_WEIGHT, PortId};
use std::collections::BTreeMap;
use std::fmt;

/// A switch; ids are never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One end of a link, or the port that a host is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct End {
    /// The switch.
    pub node: NodeId,
    /// Its port.
    pub port: PortId,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} of switch {}", self.port, self.node)
    }
}

/// A switch in the topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Unique among the switches.
    pub name: String,
    /// Whether paths between other switches may lead through it.
    pub transit: bool,
}

/// A link, its ends ordered so that `a < b`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The lesser end: a link's identity, since a port has one link.
    pub a: End,
    /// The greater end.
    pub b: End,
    /// Length of the link in both directions, at least 1, as an operator wants it.
    pub cost: u32,
    /// The additional length, while the link is moved out of the paths or back.
    pub raised: u32,
    /// Its share of flows in both directions, relative to other links on paths of the same length: 1 to [`MAX_WEIGHT`].
    pub weight: u8,
    /// Whether an operator wants it to carry frames.
    pub up: bool,
    /// Whether the switches at its ends found that it carries none.
    pub cut: bool,
    /// Whether switches found it, and no operator has declared or changed it since.
    pub found: bool,
}

/// A link as an operator wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Its length, at least 1.
    pub cost: u32,
    /// Its weight, 1 to [`MAX_WEIGHT`].
    pub weight: u8,
    /// Whether it is to carry frames.
    pub up: bool,
    /// Whether switches found it, and it was not declared.
    pub found: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { cost: 1, weight: 1, up: true, found: false }
    }
}

impl Link {
    /// Its length in paths.
    pub fn length(&self) -> u32 {
        self.cost.saturating_add(self.raised)
    }

    /// Whether paths lead over it.
    pub fn carries(&self) -> bool {
        self.up && !self.cut
    }

    /// Whether it goes when a cable is found at one of its ends: it was found itself, carries nothing, and no operator has taken it
    /// out of use, which is to hold for what comes in its place, too.
    pub fn gives_way(&self) -> bool {
        self.found && self.cut && self.up
    }
}

/// Switches, links and the ports in use.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Topology {
    nodes: BTreeMap<NodeId, Node>,
    links: BTreeMap<End, Link>,
    /// Maps both ends of every link to the end that keys it in `links`.
    ends: BTreeMap<End, End>,
}

impl Topology {
    /// Adds a switch under the caller's id.
    /// # Errors
    /// [`TopologyError::NodeExists`], [`TopologyError::NameTaken`]; unchanged.
    pub fn add_node(&mut self, id: NodeId, node: Node) -> Result<(), TopologyError> {
        if self.nodes.contains_key(&id) {
            return Err(TopologyError::NodeExists { id });
        }
        if let Some(taken) = self.node_by_name(&node.name) {
            return Err(TopologyError::NameTaken { name: node.name, id: taken });
        }
        self.nodes.insert(id, node);
        Ok(())
    }

    /// Removes a switch without links.
    /// # Errors
    /// [`TopologyError::UnknownNode`], [`TopologyError::NodeHasLinks`]; unchanged.
    pub fn remove_node(&mut self, id: NodeId) -> Result<Node, TopologyError> {
        let links = self.links_of(id).count();
        if links > 0 {
            return Err(TopologyError::NodeHasLinks { id, links });
        }
        self.nodes.remove(&id).ok_or(TopologyError::UnknownNode { id })
    }

    /// Adds a link that is up, of weight 1; the ends may come in either order.
    /// # Errors
    /// [`TopologyError`] for unknown switches, used ports, a loop or cost 0; unchanged.
    pub fn add_link(&mut self, one: End, other: End, cost: u32) -> Result<Link, TopologyError> {
        for end in [one, other] {
            self.node(end.node)?;
            if self.ends.contains_key(&end) {
                return Err(TopologyError::PortHasLink { end });
            }
        }
        if one.node == other.node {
            return Err(TopologyError::Loop { id: one.node });
        }
        if cost == 0 {
            return Err(TopologyError::ZeroCost);
        }
        let (a, b) = (one.min(other), one.max(other));
        let link = Link { a, b, cost, raised: 0, weight: 1, up: true, cut: false, found: false };
        self.put_back(link);
        Ok(link)
    }

    /// Adds a link as it was before it was removed.
    pub(crate) fn put_back(&mut self, link: Link) {
        self.links.insert(link.a, link);
        self.ends.extend([(link.a, link.a), (link.b, link.a)]);
    }

    /// Removes the link at one of its ends.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn remove_link(&mut self, end: End) -> Result<Link, TopologyError> {
        let link = *self.link(end)?;
        self.links.remove(&link.a);
        self.ends.remove(&link.a);
        self.ends.remove(&link.b);
        Ok(link)
    }

    /// Sets the cost of the link at one of its ends.
    /// # Errors
    /// [`TopologyError::NoLink`], [`TopologyError::ZeroCost`]; unchanged.
    pub fn set_cost(&mut self, end: End, cost: u32) -> Result<Link, TopologyError> {
        if cost == 0 {
            return Err(TopologyError::ZeroCost);
        }
        self.edit(end, |link| link.cost = cost)
    }

    /// Sets how much longer than its cost the link at one of its ends counts.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn set_raised(&mut self, end: End, raised: u32) -> Result<Link, TopologyError> {
        self.edit(end, |link| link.raised = raised)
    }

    /// Sets the weight of the link at one of its ends.
    /// # Errors
    /// [`TopologyError::NoLink`], [`TopologyError::Weight`]; unchanged.
    pub fn set_weight(&mut self, end: End, weight: u8) -> Result<Link, TopologyError> {
        check_weight(weight)?;
        self.edit(end, |link| link.weight = weight)
    }

    /// Takes the link at one of its ends into or out of use.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn set_up(&mut self, end: End, up: bool) -> Result<Link, TopologyError> {
        self.edit(end, |link| link.up = up)
    }

    /// Says whether the link at one of its ends is found to carry no frames.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn set_cut(&mut self, end: End, cut: bool) -> Result<Link, TopologyError> {
        self.edit(end, |link| link.cut = cut)
    }

    /// Says whether the link at one of its ends was found, or declared.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn set_found(&mut self, end: End, found: bool) -> Result<Link, TopologyError> {
        self.edit(end, |link| link.found = found)
    }

    fn edit(&mut self, end: End, change: impl FnOnce(&mut Link)) -> Result<Link, TopologyError> {
        let link = self.ends.get(&end).and_then(|a| self.links.get_mut(a)).ok_or(TopologyError::NoLink { end })?;
        change(link);
        Ok(*link)
    }

    /// The switch of this id.
    /// # Errors
    /// [`TopologyError::UnknownNode`].
    pub fn node(&self, id: NodeId) -> Result<&Node, TopologyError> {
        self.nodes.get(&id).ok_or(TopologyError::UnknownNode { id })
    }

    /// The switch of this name. O(V).
    pub fn node_by_name(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().find(|(_, node)| node.name == name).map(|(id, _)| *id)
    }

    /// The link at one of its ends.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn link(&self, end: End) -> Result<&Link, TopologyError> {
        self.ends.get(&end).and_then(|a| self.links.get(a)).ok_or(TopologyError::NoLink { end })
    }

    /// All switches, by id.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// All links, by their lesser end.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// The links of one switch with the end on its side first, by port.
    pub fn links_of(&self, id: NodeId) -> impl Iterator<Item = (End, End, &Link)> {
        let from = End { node: id, port: PortId(0) };
        let to = End { node: id, port: PortId(u16::MAX) };
        self.ends.range(from..=to).map(|(end, a)| {
            let link = &self.links[a];
            (*end, if link.a == *end { link.b } else { link.a }, link)
        })
    }
}

/// Refuses an invalid weight.
/// # Errors
/// [`TopologyError::Weight`].
pub fn check_weight(weight: u8) -> Result<(), TopologyError> {
    if (1..=MAX_WEIGHT).contains(&weight) { Ok(()) } else { Err(TopologyError::Weight) }
}

/// Why the topology was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum TopologyError {
    /// No switch of this id.
    #[error("there is no switch {id}: add it first")]
    UnknownNode { id: NodeId },
    /// The id is in use.
    #[error("switch {id} exists already")]
    NodeExists { id: NodeId },
    /// The name is in use.
    #[error("switch {id} is called `{name}` already: choose another name")]
    NameTaken { name: String, id: NodeId },
    /// A switch with links cannot go.
    #[error("switch {id} still has {links} links: remove them first")]
    NodeHasLinks { id: NodeId, links: usize },
    /// A port carries one link.
    #[error("{end} carries a link already: choose another port or remove that link")]
    PortHasLink { end: End },
    /// No link there.
    #[error("there is no link at {end}")]
    NoLink { end: End },
    /// Both ends at one switch.
    #[error("both ends of the link are at switch {id}: a link joins two switches")]
    Loop { id: NodeId },
    /// A link without length would allow loops of equal cost.
    #[error("a link's cost is at least 1")]
    ZeroCost,
    /// A weight that is none.
    #[error("a link's weight is 1 to {MAX_WEIGHT}; to take a link out of the paths use `fibula link drain`")]
    Weight,
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn end(node: u32, port: u16) -> End {
        End { node: NodeId(node), port: PortId(port) }
    }

    pub(super) fn net(n: u32, restricted: &[u32], links: &[(u32, u32, u32)]) -> Topology {
        let mut topology = Topology::default();
        for id in 0..n {
            let node = Node { name: format!("s{id}"), transit: !restricted.contains(&id) };
            topology.add_node(NodeId(id), node).unwrap();
        }
        for (i, (a, b, cost)) in links.iter().enumerate() {
            topology.add_link(end(*a, i as u16), end(*b, i as u16), *cost).unwrap();
        }
        topology
    }

    #[test]
    fn impossible_changes_are_refused_and_change_nothing() {
        let mut topology = net(3, &[], &[(0, 1, 1)]);
        let before = topology.clone();
        let node = |name: &str| Node { name: name.to_owned(), transit: true };
        assert!(matches!(topology.add_node(NodeId(0), node("x")), Err(TopologyError::NodeExists { .. })));
        assert!(matches!(topology.add_node(NodeId(9), node("s1")), Err(TopologyError::NameTaken { .. })));
        assert!(matches!(topology.remove_node(NodeId(0)), Err(TopologyError::NodeHasLinks { links: 1, .. })));
        assert!(matches!(topology.add_link(end(0, 0), end(2, 0), 1), Err(TopologyError::PortHasLink { .. })));
        assert!(matches!(topology.add_link(end(0, 1), end(0, 2), 1), Err(TopologyError::Loop { .. })));
        assert!(matches!(topology.add_link(end(0, 1), end(7, 2), 1), Err(TopologyError::UnknownNode { .. })));
        assert!(matches!(topology.add_link(end(0, 1), end(2, 2), 0), Err(TopologyError::ZeroCost)));
        assert!(matches!(topology.set_cost(end(0, 0), 0), Err(TopologyError::ZeroCost)));
        for weight in [0, 65, 255] {
            assert!(matches!(topology.set_weight(end(0, 0), weight), Err(TopologyError::Weight)));
        }
        assert!(matches!(topology.set_weight(end(0, 5), 2), Err(TopologyError::NoLink { .. })));
        assert!(matches!(topology.remove_link(end(0, 5)), Err(TopologyError::NoLink { .. })));
        assert_eq!(topology, before);
        topology.remove_link(end(1, 0)).unwrap();
        topology.remove_node(NodeId(0)).unwrap();
        assert_eq!(topology.links().count(), 0);
    }
}

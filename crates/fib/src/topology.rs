//! The graph of switches and links, and the next hop of every switch to every other.
//!
//! Cost: routes of V switches and E links take V Dijkstra runs, O(V (V + E) log V), and 8 bytes per pair of switches.
//! A next hop is an array read.
//!
//! Equal-cost paths: of the neighbours on a shortest path, the one with the largest hash with (source, destination) is
//! taken. So the choice is a function of the ids alone: neither the order in which links arrived nor a restart
//! changes it, and a link that comes or goes moves only the destinations that use it.
//!
//! A switch that holds only some tenants' names ([`Node::transit`] false) carries no frames of others: paths start and
//! end at it and never lead through it.
//!
//! Limits: link costs 1 to 2^32 - 1; two switches may be joined by several links, a switch is not joined to itself.

use crate::action::PortId;
use lookup::hash::mix64;
use std::collections::{BTreeMap, BinaryHeap};
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
    /// Length of the link in both directions, at least 1.
    pub cost: u32,
    /// Whether it carries frames.
    pub up: bool,
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

    /// Adds a link that is up; the ends may come in either order.
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
        let link = Link { a: one.min(other), b: one.max(other), cost, up: true };
        self.links.insert(link.a, link);
        self.ends.extend([(link.a, link.a), (link.b, link.a)]);
        Ok(link)
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

    /// Takes the link at one of its ends into or out of use.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn set_up(&mut self, end: End, up: bool) -> Result<Link, TopologyError> {
        self.edit(end, |link| link.up = up)
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

    /// Shortest paths between all pairs over the links that are up.
    pub fn routes(&self) -> Routes {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let index: BTreeMap<NodeId, usize> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let transit: Vec<bool> = self.nodes.values().map(|node| node.transit).collect();
        let neighbours: Vec<Vec<(PortId, usize, u32)>> = ids
            .iter()
            .map(|id| {
                self.links_of(*id)
                    .filter(|(_, _, link)| link.up)
                    .map(|(near, far, link)| (near.port, index[&far.node], link.cost))
                    .collect()
            })
            .collect();
        let n = ids.len();
        let mut next = vec![None; n * n];
        let mut hops = vec![u32::MAX; n * n];
        let mut distance = vec![u64::MAX; n];
        let mut order = Vec::with_capacity(n);
        let mut costs = self.links.values().map(|link| link.cost);
        let first = costs.next();
        let is_uniform = costs.all(|cost| Some(cost) == first);
        for to in 0..n {
            if is_uniform {
                uniform_distances_to(to, &neighbours, &transit, &mut distance, &mut order);
            } else {
                distances_to(to, &neighbours, &transit, &mut distance, &mut order);
            }
            hops[to * n + to] = 0;
            for &from in order.iter().filter(|from| **from != to) {
                let choice = neighbours[from]
                    .iter()
                    .filter(|(_, via, cost)| {
                        (*via == to || transit[*via])
                            && distance[*via].checked_add(u64::from(*cost)) == Some(distance[from])
                    })
                    .max_by_key(|(port, via, _)| (preference(ids[from], ids[to], ids[*via], *port), *port));
                if let Some((port, via, _)) = choice {
                    next[from * n + to] = Some(*port);
                    hops[from * n + to] = hops[*via * n + to] + 1;
                }
            }
        }
        Routes { index, next, hops }
    }
}

type Neighbours = [Vec<(PortId, usize, u32)>];

/// Distances of all switches to `to`, and those with a path in the order of their distances. Links cost the same both ways, so
/// the search starts at the destination.
fn distances_to(to: usize, neighbours: &Neighbours, transit: &[bool], distance: &mut [u64], order: &mut Vec<usize>) {
    distance.fill(u64::MAX);
    distance[to] = 0;
    order.clear();
    let mut open = BinaryHeap::from([(std::cmp::Reverse(0u64), to)]);
    while let Some((std::cmp::Reverse(d), node)) = open.pop() {
        // It was reached by a shorter path since it was put there; paths of one length are put there once.
        if d > distance[node] {
            continue;
        }
        order.push(node);
        if !(node == to || transit[node]) {
            continue;
        }
        for (_, peer, cost) in &neighbours[node] {
            let through = d + u64::from(*cost);
            if through < distance[*peer] {
                distance[*peer] = through;
                open.push((std::cmp::Reverse(through), *peer));
            }
        }
    }
}

/// The same where all links cost the same: the order of discovery is that of distances.
fn uniform_distances_to(
    to: usize,
    neighbours: &Neighbours,
    transit: &[bool],
    distance: &mut [u64],
    order: &mut Vec<usize>,
) {
    distance.fill(u64::MAX);
    distance[to] = 0;
    order.clear();
    order.push(to);
    let mut at = 0;
    while let Some(&node) = order.get(at) {
        at += 1;
        if !(node == to || transit[node]) {
            continue;
        }
        for (_, peer, cost) in &neighbours[node] {
            if distance[*peer] == u64::MAX {
                distance[*peer] = distance[node] + u64::from(*cost);
                order.push(*peer);
            }
        }
    }
}

/// The weight of one equal-cost choice, from ids alone.
fn preference(from: NodeId, to: NodeId, via: NodeId, port: PortId) -> u64 {
    let ends = u64::from(from.0) << 32 | u64::from(to.0);
    let hop = u64::from(via.0) << 16 | u64::from(port.0);
    // The constant keeps (0, 0) away from the fixed point of the mix.
    mix64(mix64(ends.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ hop)
}

/// The next hops of one state of the topology.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Routes {
    index: BTreeMap<NodeId, usize>,
    next: Vec<Option<PortId>>,
    hops: Vec<u32>,
}

impl Routes {
    /// The port of `from` towards `to`; `None` when there is no path, or `from` is `to`, or one is unknown.
    pub fn next_hop(&self, from: NodeId, to: NodeId) -> Option<PortId> {
        self.next[self.pair(from, to)?]
    }

    /// Whether, between two switches that both know, a path begins elsewhere.
    pub fn differs_from(&self, other: &Routes) -> bool {
        if self.index == other.index {
            return self.next != other.next;
        }
        let (n, m) = (self.index.len(), other.index.len());
        let both: Vec<(usize, usize)> =
            self.index.iter().filter_map(|(node, at)| Some((*at, *other.index.get(node)?))).collect();
        both.iter().any(|(a, b)| both.iter().any(|(to_a, to_b)| self.next[a * n + to_a] != other.next[b * m + to_b]))
    }

    /// Hops on the path taken: 0 for the switch itself; `None` when there is no path.
    pub fn hops(&self, from: NodeId, to: NodeId) -> Option<u32> {
        Some(self.hops[self.pair(from, to)?]).filter(|hops| *hops != u32::MAX)
    }

    /// Destinations, prepared for [`Routes::next_hops`].
    pub fn prepared(&self, destinations: impl IntoIterator<Item = NodeId>) -> Vec<Option<usize>> {
        destinations.into_iter().map(|to| self.index.get(&to).copied()).collect()
    }

    /// [`Routes::next_hop`] of one switch towards prepared destinations, in their order. Cost: a read each, where a call for
    /// each searches two maps.
    pub fn next_hops(&self, from: NodeId, to: &[Option<usize>]) -> impl Iterator<Item = Option<PortId>> {
        let n = self.index.len();
        let row = self.index.get(&from).map(|row| &self.next[row * n..(row + 1) * n]);
        to.iter().map(move |to| row?[(*to)?])
    }

    fn pair(&self, from: NodeId, to: NodeId) -> Option<usize> {
        Some(self.index.get(&from)? * self.index.len() + self.index.get(&to)?)
    }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn end(node: u32, port: u16) -> End {
        End { node: NodeId(node), port: PortId(port) }
    }

    fn net(n: u32, restricted: &[u32], links: &[(u32, u32, u32)]) -> Topology {
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
    fn shortest_path_wins_and_a_cut_reroutes() {
        let mut topology = net(3, &[], &[(0, 1, 1), (1, 2, 1), (0, 2, 3)]);
        let next = |t: &Topology| t.routes().next_hop(NodeId(0), NodeId(2));
        assert_eq!(next(&topology), Some(PortId(0)));
        assert_eq!(topology.routes().hops(NodeId(0), NodeId(2)), Some(2));
        topology.set_up(end(2, 1), false).unwrap();
        assert_eq!(next(&topology), Some(PortId(2)));
        topology.set_up(end(0, 2), false).unwrap();
        assert_eq!(next(&topology), None);
        assert_eq!(topology.routes().hops(NodeId(0), NodeId(2)), None);
        topology.set_up(end(1, 1), true).unwrap();
        assert_eq!(next(&topology), Some(PortId(0)));
        topology.set_cost(end(0, 0), 9).unwrap();
        topology.set_up(end(0, 2), true).unwrap();
        assert_eq!(next(&topology), Some(PortId(2)));
    }

    #[test]
    fn restricted_switch_carries_no_transit() {
        let routes = net(4, &[1], &[(0, 1, 1), (1, 2, 1), (0, 3, 5), (3, 2, 5)]).routes();
        assert_eq!(routes.next_hop(NodeId(0), NodeId(2)), Some(PortId(2)));
        assert_eq!(routes.next_hop(NodeId(0), NodeId(1)), Some(PortId(0)));
        assert_eq!(routes.next_hop(NodeId(1), NodeId(2)), Some(PortId(1)));
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
        assert!(matches!(topology.remove_link(end(0, 5)), Err(TopologyError::NoLink { .. })));
        assert_eq!(topology, before);
        topology.remove_link(end(1, 0)).unwrap();
        topology.remove_node(NodeId(0)).unwrap();
        assert_eq!(topology.links().count(), 0);
    }

    proptest! {
        /// Distances against Floyd-Warshall; following next hops arrives, in as many hops as promised.
        #[test]
        fn next_hops_lead_to_the_destination_on_a_shortest_path(
            n in 2u32..8,
            restricted in proptest::collection::vec(0u32..8, 0..2),
            links in proptest::collection::vec((0u32..8, 0u32..8, 1u32..4, any::<bool>()), 0..16),
            same in proptest::option::of(1u32..4),
        ) {
            let link = |(a, b, cost, up)| (a % n, b % n, same.unwrap_or(cost), up);
            let links: Vec<(u32, u32, u32, bool)> = links.into_iter().map(link).filter(|l| l.0 != l.1).collect();
            let plain: Vec<_> = links.iter().map(|l| (l.0, l.1, l.2)).collect();
            let mut topology = net(n, &restricted, &plain);
            for (i, link) in links.iter().enumerate() {
                topology.set_up(end(link.0, i as u16), link.3).unwrap();
            }
            let n = n as usize;
            let transit = |i: usize| !restricted.contains(&(i as u32));
            let mut dist = vec![vec![u64::MAX / 4; n]; n];
            for (i, row) in dist.iter_mut().enumerate() {
                row[i] = 0;
            }
            for (a, b, cost, up) in &links {
                let (a, b) = (*a as usize, *b as usize);
                if *up {
                    dist[a][b] = dist[a][b].min(u64::from(*cost));
                    dist[b][a] = dist[b][a].min(u64::from(*cost));
                }
            }
            for k in (0..n).filter(|k| transit(*k)) {
                for i in 0..n {
                    for j in 0..n {
                        dist[i][j] = dist[i][j].min(dist[i][k] + dist[k][j]);
                    }
                }
            }
            let routes = topology.routes();
            for (from, row) in dist.iter().enumerate() {
                for (to, expected) in row.iter().enumerate() {
                    let (mut at, goal) = (NodeId(from as u32), NodeId(to as u32));
                    let (mut length, mut hops) = (0, 0);
                    while at != goal {
                        let Some(port) = routes.next_hop(at, goal) else { break };
                        let (_, far, link) = topology.links_of(at).find(|(near, _, _)| near.port == port).unwrap();
                        prop_assert!(link.up);
                        length += u64::from(link.cost);
                        hops += 1;
                        at = far.node;
                        prop_assert!(at == goal || transit(at.0 as usize));
                        prop_assert!(hops <= n as u32, "a loop");
                    }
                    if *expected < u64::MAX / 4 {
                        prop_assert_eq!((at, length), (goal, *expected));
                        prop_assert_eq!(routes.hops(NodeId(from as u32), goal), Some(hops));
                    } else {
                        prop_assert_eq!(routes.next_hop(NodeId(from as u32), goal), None);
                    }
                }
                let (from, all) = (NodeId(from as u32), (0..=n as u32).map(NodeId));
                let prepared: Vec<_> = routes.next_hops(from, &routes.prepared(all.clone())).collect();
                prop_assert_eq!(prepared, all.map(|to| routes.next_hop(from, to)).collect::<Vec<_>>());
            }
        }

        #[test]
        fn order_of_arrival_does_not_choose_the_path(
            mut links in proptest::collection::vec((0u32..6, 0u32..6, 1u32..3), 1..14),
            seed in any::<u64>(),
        ) {
            links.retain(|l| l.0 != l.1);
            let mut order: Vec<usize> = (0..links.len()).collect();
            order.sort_by_key(|i| (*i as u64 + 1).wrapping_mul(seed | 1));
            let mut shuffled = net(6, &[], &[]);
            for i in order {
                let (a, b, cost) = links[i];
                shuffled.add_link(end(b, i as u16), end(a, i as u16), cost).unwrap();
            }
            prop_assert_eq!(shuffled.routes(), net(6, &[], &links).routes());
        }
    }
}

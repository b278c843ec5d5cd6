//! The next hop of every switch to every other, and the one that it takes while the link to the first is down.
//!
//! Cost: routes of V switches and E links take V Dijkstra runs (twice as many if links cost differently),
//! O(V (V + E) log V), and 24 bytes per pair of switches. A next hop is an array read.
//!
//! **Equal-cost paths**: all ports on a shortest path are the [`Ways`] to a destination, over which flows are spread where a value
//! names a switch. Each way leads to a switch that is nearer to the destination, so no choice of ways makes a loop, and each is a
//! loop-free alternate of the others. Where a value names a port, one is taken: the one with the largest hash with (source,
//! destination). So that choice is a function of the ids alone: neither the order in which links arrived nor a restart changes it,
//! and a link that comes or goes moves only the destinations that use it. Of more than [`MAX_WAYS`], the first by that hash are taken,
//! among the first 64 ports of the switch.
//!
//! **Weights** of links divide flows among ways, and decide nothing else: not which ways there are, nor which one is taken where flows
//! are not spread. The weight of a way is that of its first link, whatever lies behind the neighbour.
//!
//! **Alternates** are loop-free (RFC 5286, inequality 1): a neighbour from which the shortest path to the destination does not
//! lead back. `d(N, D) < d(N, S) + d(S, D)`, so while one link of S is down and nobody else knows, what S sends to N arrives.
//! Not every pair has one: in a ring, those on the near half have none. Of several, one at another neighbour than the next hop's
//! is taken, since that one may be what is gone; then that of the shortest path; then by hash, as above. The alternate of several ways
//! is none of them: it serves when all of them are down.
//!
//! **U-turns.** In a fabric of leaves and spines, a spine that loses its link to a leaf has no such neighbour: every leaf has it among
//! its ways there. But a leaf that gets a frame from one of its ways sends it by another one. So where a pair has one way and
//! no loop-free alternate, a neighbour N with several ways will do, if all of them but the one back over this link lead to switches M
//! that are as near to the destination as S or nearer, and not to S itself: `d(M, D) <= d(S, D)`, so no shortest path from M leads
//! through S and its link that is down. (RFC 5286, section 1.1, speaks of U-turn alternates; here N is
//! a neighbour whose values name switches, and any other drops the frame.) What N itself sends to S is not sent back: no
//! frame leaves by its port of entry.
//!
//! **Several failures.** Both conditions are for one link that is down. With more of them, as when a switch dies, alternates could send a
//! frame round for good. So the shim says that a frame has taken one, and it takes no second one: it goes on to the link that is
//! down. Nor does it turn twice, or turn without that mark. So it follows shortest paths, leaves them once at most, and comes to
//! an end after fewer than two hops a switch, whatever is down.
//!
//! A switch that holds only some tenants' names ([`Node::transit`](super::Node::transit) false) carries no frames of others:
//! paths start and end at it and never lead through it.

use super::{End, NodeId, Topology};
use crate::action::{Action, MAX_WAYS, PortId, Ways};
use crate::mistakes::{Mistake, mistaken};
use lookup::hash::mix64;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Ports of a switch that can be ways, or alternates of a port as a whole: the first ones.
const MAX_COMMON: usize = 64;

/// Where frames go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The port of the shortest path; of several, the one that is taken where flows are not spread.
    pub port: PortId,
    /// The ports of all shortest paths, if there are several.
    pub ways: Option<Ways>,
    /// The port while these are down, if there is one that makes no loop.
    pub alternate: Option<PortId>,
}

impl From<Hop> for Action {
    fn from(hop: Hop) -> Action {
        match hop {
            Hop { ways: Some(ways), alternate, .. } => Action::Spread { ways, alternate },
            Hop { port, alternate: Some(alternate), .. } => Action::Protected { port, alternate },
            Hop { port, .. } => Action::Port(port),
        }
    }
}

impl Topology {
    /// Shortest paths between all pairs over the links that carry frames.
    pub fn routes(&self) -> Routes {
        self.routes_by(if mistaken(Mistake::AnyAlternate) { |_, _, _| true } else { is_loop_free }, turns)
    }

    fn routes_by(&self, is_loop_free: Condition, turns: Turn) -> Routes {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let index: BTreeMap<NodeId, usize> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let transit: Vec<bool> = self.nodes.values().map(|node| node.transit).collect();
        let neighbours: Vec<Vec<Neighbour>> = ids
            .iter()
            .map(|id| {
                self.links_of(*id)
                    .filter(|(_, _, link)| link.carries())
                    .map(|(near, far, link)| (near.port, index[&far.node], link.length()))
                    .collect()
            })
            .collect();
        let far_ports: Vec<Vec<PortId>> = ids
            .iter()
            .map(|id| self.links_of(*id).filter(|(.., link)| link.carries()).map(|(_, far, _)| far.port).collect())
            .collect();
        let weights = ids
            .iter()
            .map(|id| {
                let first = self.links_of(*id).filter(|(.., link)| link.carries()).take(MAX_COMMON);
                first.map(|(.., link)| link.weight).collect()
            })
            .collect();
        let n = ids.len();
        let mut next = vec![None; n * n];
        let mut ways = vec![0; n * n];
        let mut alternate = vec![None; n * n];
        let mut hops = vec![u32::MAX; n * n];
        let mut most_hops = hops.clone();
        let mut search = Search { distance: vec![u64::MAX; n], order: Vec::with_capacity(n) };
        let mut costs = self.links.values().map(|link| link.length());
        let first = costs.next();
        let is_uniform = costs.all(|cost| Some(cost) == first);
        let back = distances_back(&neighbours, &transit, is_uniform, &mut search);
        // Of each neighbour: those that are alternates for all that goes through it.
        let mut common: Vec<Vec<Option<u64>>> = neighbours.iter().map(|of| vec![None; of.len()]).collect();
        let (mut loop_free, mut shortest) = (Vec::new(), Vec::new());
        for to in 0..n {
            search.to(to, &neighbours, &transit, is_uniform);
            let Search { distance, order } = &search;
            (hops[to * n + to], most_hops[to * n + to]) = (0, 0);
            for &from in order.iter().filter(|from| **from != to) {
                let weight = |k: usize| {
                    let (port, via, _) = neighbours[from][k];
                    (preference(ids[from], ids[to], ids[via], port), port)
                };
                loop_free.clear();
                shortest.clear();
                for (k, (_, via, cost)) in neighbours[from].iter().enumerate() {
                    // One that carries no frames of others, or from which no path leads there.
                    if !(*via == to || transit[*via]) || distance[*via] == u64::MAX {
                        continue;
                    }
                    if is_loop_free(distance[*via], back[from][k], distance[from]) {
                        loop_free.push(k);
                    }
                    if distance[*via].checked_add(u64::from(*cost)) == Some(distance[from]) {
                        shortest.push(k);
                    }
                }
                if shortest.len() > 1 {
                    shortest.sort_by_cached_key(|k| Reverse(weight(*k)));
                }
                let Some(&chosen) = shortest.first() else { continue };
                let (port, via, _) = neighbours[from][chosen];
                next[from * n + to] = Some(port);
                hops[from * n + to] = hops[via * n + to] + 1;
                let peers = shortest.iter().map(|k| most_hops[neighbours[from][*k].1 * n + to]);
                most_hops[from * n + to] = peers.max().unwrap_or(0) + 1;
                let others = loop_free.iter().copied().filter(|k| *k != chosen);
                let here = set_of(others);
                common[from][chosen] = Some(common[from][chosen].map_or(here, |all| all & here));
                shortest.retain(|k| *k < MAX_COMMON);
                shortest.truncate(MAX_WAYS);
                if shortest.len() > 1 && shortest[0] == chosen {
                    ways[from * n + to] = set_of(shortest.iter().copied());
                } else {
                    shortest.clear();
                    shortest.push(chosen);
                }
                let is_peer = |peer: usize| shortest.iter().any(|k| neighbours[from][*k].1 == peer);
                let others = loop_free.iter().copied().filter(|k| !shortest.contains(k));
                let best = others.min_by_key(|k| {
                    let (_, peer, cost) = neighbours[from][*k];
                    (is_peer(peer), distance[peer] + u64::from(cost), Reverse(weight(*k)))
                });
                alternate[from * n + to] = best.map(|k| neighbours[from][k].0);
            }
            // The ways of all to this destination are known.
            for &from in order.iter().filter(|from| **from != to) {
                if alternate[from * n + to].is_some() || ways[from * n + to] != 0 {
                    continue;
                }
                let is_turn = |k: usize| {
                    let (port, via, _) = neighbours[from][k];
                    let (set, of) = (ways[via * n + to], &neighbours[via]);
                    if via == to || !transit[via] || set == 0 || next[from * n + to] == Some(port) {
                        return false;
                    }
                    let leads_on = |way: usize| {
                        let (port, beyond, _) = of[way];
                        turns(port == far_ports[from][k], beyond == from, distance[beyond], distance[from])
                    };
                    (0..of.len().min(MAX_COMMON)).filter(|way| set >> way & 1 != 0).all(leads_on)
                };
                let best = (0..neighbours[from].len()).filter(|k| is_turn(*k)).min_by_key(|k| {
                    let (port, via, cost) = neighbours[from][*k];
                    let weight = (preference(ids[from], ids[to], ids[via], port), port);
                    (distance[via] + u64::from(cost), Reverse(weight))
                });
                alternate[from * n + to] = best.map(|k| neighbours[from][k].0);
            }
        }
        let mut of_ports = BTreeMap::new();
        for (from, (of, common)) in neighbours.iter().zip(&common).enumerate() {
            for ((port, via, _), common) in of.iter().zip(common).filter_map(|(of, common)| Some((of, (*common)?))) {
                let others = of.iter().enumerate().take(MAX_COMMON).filter(|(k, _)| common >> k & 1 != 0);
                let best = others.min_by_key(|(_, (other, peer, cost))| {
                    (peer == via, *cost, Reverse((preference(ids[from], ids[*via], ids[*peer], *other), *other)))
                });
                if let Some((_, (alternate, ..))) = best {
                    of_ports.insert((ids[from], *port), *alternate);
                }
            }
        }
        let ports = neighbours.iter().map(|of| of.iter().take(MAX_COMMON).map(|(port, ..)| *port).collect()).collect();
        Routes { index, next, ways, ports, weights, alternate, of_ports, hops, most_hops }
    }
}

/// The ports of a switch among the first [`MAX_COMMON`], by their places in the order of ports, as a bit each.
fn set_of(places: impl Iterator<Item = usize>) -> u64 {
    places.filter(|k| *k < MAX_COMMON).fold(0, |set, k| set | 1 << k)
}

/// Of three distances: see [`is_loop_free`].
type Condition = fn(u64, u64, u64) -> bool;

/// Whether no shortest path leads from a neighbour back: by its distance to the destination, the one from there to the switch that
/// asks, and that one's distance to the destination.
fn is_loop_free(from_neighbour: u64, back: u64, from_here: u64) -> bool {
    from_neighbour < from_here.saturating_add(back)
}

/// Of a way of a neighbour: see [`turns`].
type Turn = fn(bool, bool, u64, u64) -> bool;

/// Whether a way of a neighbour leads on for frames that come to it from a switch that lost its own: whether it is the link that they
/// come by, which they do not take, or else leads to that switch by another link, or how far from the destination it leads to and
/// that switch is.
fn turns(is_entry: bool, leads_back: bool, beyond: u64, here: u64) -> bool {
    is_entry || !leads_back && beyond <= here
}

/// A port, the switch at its other end, and the cost of the link.
type Neighbour = (PortId, usize, u32);

/// The distances of all switches to one, and those with a path in the order of their distances.
struct Search {
    distance: Vec<u64>,
    order: Vec<usize>,
}

impl Search {
    /// Links cost the same both ways, so the search starts at the destination.
    fn to(&mut self, to: usize, neighbours: &[Vec<Neighbour>], transit: &[bool], is_uniform: bool) {
        self.distance.fill(u64::MAX);
        self.distance[to] = 0;
        self.order.clear();
        if is_uniform {
            self.breadth_first(to, neighbours, transit);
        } else {
            self.shortest_first(to, neighbours, transit);
        }
    }

    fn shortest_first(&mut self, to: usize, neighbours: &[Vec<Neighbour>], transit: &[bool]) {
        let mut open = BinaryHeap::from([(Reverse(0u64), to)]);
        while let Some((Reverse(d), node)) = open.pop() {
            // It was reached by a shorter path since it was put there; paths of one length are put there once.
            if d > self.distance[node] {
                continue;
            }
            self.order.push(node);
            if !(node == to || transit[node]) {
                continue;
            }
            for (_, peer, cost) in &neighbours[node] {
                let through = d + u64::from(*cost);
                if through < self.distance[*peer] {
                    self.distance[*peer] = through;
                    open.push((Reverse(through), *peer));
                }
            }
        }
    }

    /// Where all links cost the same, the order of discovery is that of distances.
    fn breadth_first(&mut self, to: usize, neighbours: &[Vec<Neighbour>], transit: &[bool]) {
        self.order.push(to);
        let mut at = 0;
        while let Some(&node) = self.order.get(at) {
            at += 1;
            if !(node == to || transit[node]) {
                continue;
            }
            for (_, peer, cost) in &neighbours[node] {
                if self.distance[*peer] == u64::MAX {
                    self.distance[*peer] = self.distance[node] + u64::from(*cost);
                    self.order.push(*peer);
                }
            }
        }
    }
}

/// How far each neighbour of a switch is from it: as far as the link to it is long, unless a detour is shorter.
fn distances_back(
    neighbours: &[Vec<Neighbour>],
    transit: &[bool],
    is_uniform: bool,
    search: &mut Search,
) -> Vec<Vec<u64>> {
    let of = |(to, of): (usize, &Vec<Neighbour>)| {
        if is_uniform {
            return of.iter().map(|(_, _, cost)| u64::from(*cost)).collect();
        }
        search.to(to, neighbours, transit, is_uniform);
        of.iter().map(|(_, via, _)| search.distance[*via]).collect()
    };
    neighbours.iter().enumerate().map(of).collect()
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
    pub(super) index: BTreeMap<NodeId, usize>,
    next: Vec<Option<PortId>>,
    /// The ways of each pair that has several, by their places among `ports`, as a bit each.
    ways: Vec<u64>,
    /// The first ports of each switch with a link that carries frames.
    ports: Vec<Box<[PortId]>>,
    /// The weights of their links.
    weights: Vec<Box<[u8]>>,
    alternate: Vec<Option<PortId>>,
    /// The alternates that ports have for all destinations together.
    of_ports: BTreeMap<(NodeId, PortId), PortId>,
    hops: Vec<u32>,
    most_hops: Vec<u32>,
}

impl Routes {
    /// The port of `from` towards `to`; `None` when there is no path, or `from` is `to`, or one is unknown.
    pub fn next_hop(&self, from: NodeId, to: NodeId) -> Option<PortId> {
        self.next[self.pair(from, to)?]
    }

    /// The ports of `from` towards `to`, and their alternate.
    pub fn hop(&self, from: NodeId, to: NodeId) -> Option<Hop> {
        self.hop_at(self.pair(from, to)?)
    }

    fn hop_at(&self, pair: usize) -> Option<Hop> {
        Some(Hop { port: self.next[pair]?, ways: self.ways_at(pair), alternate: self.alternate[pair] })
    }

    fn ways_at(&self, pair: usize) -> Option<Ways> {
        let set = self.ways[pair];
        if set == 0 {
            return None;
        }
        let at = pair / self.index.len();
        let ports = self.ports[at].iter().copied().zip(self.weights[at].iter().copied());
        Ways::weighed((0..).zip(ports).filter(|(k, _)| set >> k & 1 != 0).map(|(_, way)| way))
    }

    /// A port, with an alternate for all that leaves by it, if there is one.
    pub fn hop_by(&self, from: NodeId, port: PortId) -> Hop {
        Hop { port, ways: None, alternate: self.of_ports.get(&(from, port)).copied() }
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

    /// Whether all paths between the same switches are the same.
    pub(super) fn same_paths(&self, other: &Routes) -> bool {
        let same_ways = |pair| self.ways_at(pair) == other.ways_at(pair);
        self.index == other.index && self.next == other.next && (0..self.next.len()).all(same_ways)
    }

    /// Whether a path leads out of a port; to another switch than `except`, if that is given.
    pub fn leads(&self, from: End, except: Option<NodeId>) -> bool {
        let Some(&at) = self.index.get(&from.node) else { return false };
        let row = at * self.index.len();
        let place = self.ports[at].iter().position(|port| *port == from.port);
        let is_way = |pair: usize| place.is_some_and(|k| self.ways[pair] >> k & 1 != 0);
        let towards = |(node, to): (&NodeId, &usize)| {
            Some(*node) != except && (self.next[row + to] == Some(from.port) || is_way(row + to))
        };
        self.index.iter().any(towards)
    }

    /// Hops on the path that is taken where flows are not spread: 0 for the switch itself; `None` when there is no path.
    pub fn hops(&self, from: NodeId, to: NodeId) -> Option<u32> {
        Some(self.hops[self.pair(from, to)?]).filter(|hops| *hops != u32::MAX)
    }

    /// Hops on the longest of the paths that a frame may take, all of one cost: each next switch has fewer.
    pub fn most_hops(&self, from: NodeId, to: NodeId) -> Option<u32> {
        Some(self.most_hops[self.pair(from, to)?]).filter(|hops| *hops != u32::MAX)
    }

    /// Destinations, prepared for [`Routes::hops_to`].
    pub fn prepared(&self, destinations: impl IntoIterator<Item = NodeId>) -> Vec<Option<usize>> {
        destinations.into_iter().map(|to| self.index.get(&to).copied()).collect()
    }

    /// [`Routes::hop`] of one switch towards prepared destinations, in their order. Cost: two reads each, where a call for
    /// each searches two maps.
    pub fn hops_to(&self, from: NodeId, to: &[Option<usize>]) -> impl Iterator<Item = Option<Hop>> {
        let row = self.index.get(&from).map(|row| row * self.index.len());
        to.iter().map(move |to| self.hop_at(row? + (*to)?))
    }

    fn pair(&self, from: NodeId, to: NodeId) -> Option<usize> {
        Some(self.index.get(&from)? * self.index.len() + self.index.get(&to)?)
    }
}

#[cfg(test)]
mod rounds;

#[cfg(test)]
mod tests {
    use super::super::tests::{end, net};
    use super::rounds::{Demand, Round, Value, go_round, links_of};
    use super::*;
    use proptest::prelude::*;

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

    /// In a ring of five: two hops away the other way round is as good as loop-free, one hop away it leads back.
    #[test]
    fn alternates_exist_where_no_neighbour_sends_back() {
        let ring: Vec<_> = (0..5).map(|i| (i, (i + 1) % 5, 1)).collect();
        let routes = net(5, &[], &ring).routes();
        let hop = |to| routes.hop(NodeId(0), NodeId(to)).unwrap();
        let hop_of =
            |port, alternate: Option<u16>| Hop { port: PortId(port), ways: None, alternate: alternate.map(PortId) };
        assert_eq!((hop(1), hop(4)), (hop_of(0, None), hop_of(4, None)));
        assert_eq!((hop(2), hop(3)), (hop_of(0, Some(4)), hop_of(4, Some(0))));
        // Not all that leaves by port 0 may leave by port 4.
        assert_eq!(routes.hop_by(NodeId(0), PortId(0)).alternate, None);

        // A second link to the same neighbour serves, and a third switch serves better: the neighbour may be gone.
        let routes = net(3, &[], &[(0, 1, 1), (0, 1, 1), (0, 2, 1), (2, 1, 1)]).routes();
        let hop = routes.hop(NodeId(0), NodeId(1)).unwrap();
        assert!(hop.port <= PortId(1) && hop.alternate == Some(PortId(2)), "{hop:?}");
        assert_eq!(hop.ways, Ways::new([PortId(0), PortId(1)]));
        assert_eq!(routes.hop_by(NodeId(0), hop.port), Hop { ways: None, ..hop });
        let routes = net(3, &[2], &[(0, 1, 1), (0, 1, 1), (0, 2, 1), (2, 1, 1)]).routes();
        let hop = routes.hop(NodeId(0), NodeId(1)).unwrap();
        assert_eq!(
            (hop.ways, hop.alternate),
            (Ways::new([PortId(0), PortId(1)]), None),
            "no frames of others through it"
        );
    }

    /// One shortest path is direct, the other has three hops: a move reaches those on it before the switch where they part.
    #[test]
    fn the_longest_of_several_paths_has_fewer_hops_from_each_next_switch() {
        let routes = net(4, &[], &[(0, 3, 3), (0, 1, 1), (1, 2, 1), (2, 3, 1)]).routes();
        let most = |from| routes.most_hops(NodeId(from), NodeId(3));
        assert!(routes.hop(NodeId(0), NodeId(3)).unwrap().ways.is_some());
        assert_eq!([0, 1, 2, 3].map(most), [Some(3), Some(2), Some(1), Some(0)]);
        assert_eq!(net(2, &[], &[]).routes().most_hops(NodeId(0), NodeId(1)), None);
    }

    #[test]
    fn ports_beyond_the_first_64_are_no_ways_and_have_alternates() {
        let links: Vec<_> = (0..70).map(|_| (0, 1, 1)).collect();
        let routes = net(2, &[], &links).routes();
        for (from, to) in [(0, 1), (1, 0)] {
            let hop = routes.hop(NodeId(from), NodeId(to)).unwrap();
            match hop.ways {
                Some(ways) => assert!(ways.contains(&hop.port) && ways.iter().all(|port| port.0 < 64), "{hop:?}"),
                None => assert!(hop.port.0 >= 64, "{hop:?}"),
            }
            assert!(hop.alternate.is_some_and(|port| hop.ways.is_none_or(|ways| !ways.contains(&port))), "{hop:?}");
            assert!(routes.hop_by(NodeId(from), hop.port).alternate.is_some(), "for all that leaves there");
        }
        // Two links, of which the hash may take the one beyond: then the other is its alternate.
        for n in 1..40 {
            let mut links: Vec<_> = (0..64).map(|_| (0, 2, 9)).collect();
            links[usize::from(n)] = (0, 1, 1);
            links.push((0, 1, 1));
            let hop = net(3, &[], &links).routes().hop(NodeId(0), NodeId(1)).unwrap();
            let expected = if hop.port == PortId(64) { PortId(n) } else { PortId(64) };
            assert_eq!((hop.ways, hop.alternate), (None, Some(expected)));
        }
    }

    #[test]
    fn all_shortest_paths_are_ways_and_the_alternate_is_none_of_them() {
        // Two leaves, ten spines; one more path is longer.
        let spines = (2..12).flat_map(|spine| [(0, spine, 1), (1, spine, 1)]);
        let routes = net(13, &[], &spines.chain([(0, 12, 2), (12, 1, 2)]).collect::<Vec<_>>()).routes();
        let hop = routes.hop(NodeId(0), NodeId(1)).unwrap();
        let ways = hop.ways.unwrap();
        assert_eq!(ways.len(), MAX_WAYS);
        assert!(ways.contains(&hop.port) && hop.alternate.is_some_and(|port| !ways.contains(&port)), "{hop:?}");
        assert_eq!(routes.hop(NodeId(2), NodeId(1)).unwrap().ways, None);

        let square = |cost| net(4, &[], &[(0, 1, 1), (1, 3, 1), (0, 2, 1), (2, 3, cost)]).routes();
        let hop = |routes: &Routes| routes.hop(NodeId(0), NodeId(3)).unwrap();
        assert_eq!(hop(&square(1)).ways, Ways::new([PortId(0), PortId(2)]));
        assert_eq!(hop(&square(2)), Hop { port: PortId(0), ways: None, alternate: Some(PortId(2)) });
        assert!(!square(1).same_paths(&square(2)) && square(1).same_paths(&square(1)));
        // Both ways lead by one neighbour that may be gone, and a third path by another.
        let routes = net(3, &[], &[(0, 1, 2), (0, 1, 2), (0, 1, 3), (0, 2, 2), (2, 1, 1)]).routes();
        let hop = routes.hop(NodeId(0), NodeId(1)).unwrap();
        assert_eq!((hop.ways, hop.alternate), (Ways::new([PortId(0), PortId(1)]), Some(PortId(3))));
        let by_two = |routes: &Routes| routes.leads(end(0, 2), Some(NodeId(2)));
        assert!(by_two(&square(1)) && !by_two(&square(2)));
    }

    #[test]
    fn weights_divide_flows_among_ways_and_choose_none() {
        let mut topology = net(4, &[], &[(0, 1, 1), (1, 3, 1), (0, 2, 1), (2, 3, 1), (0, 3, 3), (0, 1, 1)]);
        let before = topology.routes();
        topology.set_weight(end(1, 0), 12).unwrap();
        topology.set_weight(end(2, 2), 4).unwrap();
        topology.set_weight(end(0, 5), 8).unwrap();
        // Beyond the neighbour, and of a longer path: both say nothing.
        topology.set_weight(end(1, 1), 60).unwrap();
        topology.set_weight(end(0, 4), 64).unwrap();
        let routes = topology.routes();
        let hop = |routes: &Routes, from, to| routes.hop(NodeId(from), NodeId(to)).unwrap();
        let ways = Ways::weighed([(PortId(0), 3), (PortId(2), 1), (PortId(5), 2)]);
        assert_eq!(hop(&routes, 0, 3).ways, ways);
        // In both directions.
        assert_eq!(hop(&routes, 1, 0).ways, Ways::weighed([(PortId(0), 3), (PortId(5), 2)]));
        for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (NodeId(from), NodeId(to)))) {
            let evened = |hop: Hop| Hop { ways: hop.ways.map(Ways::evened), ..hop };
            assert_eq!(routes.hop(from, to).map(evened), before.hop(from, to), "{from} to {to}");
        }
        assert!(!routes.same_paths(&before) && !routes.differs_from(&before));
    }

    /// Spines 0 to 3, leaves 4 to 7: each spine goes round a cut by a leaf, which goes on by another spine.
    #[test]
    fn a_spine_without_its_link_to_a_leaf_turns_at_another_leaf() {
        let links = (0..4).flat_map(|spine| (4..8).map(move |leaf| (spine, leaf, 1)));
        let topology = net(8, &[], &links.collect::<Vec<_>>());
        let routes = topology.routes();
        for (spine, leaf) in (0..4).flat_map(|spine| (4..8).map(move |leaf| (NodeId(spine), NodeId(leaf)))) {
            let hop = routes.hop(spine, leaf).unwrap();
            let at = |port| topology.links_of(spine).find(|(near, ..)| near.port == port).unwrap().1.node;
            assert!(hop.ways.is_none() && at(hop.port) == leaf, "{hop:?}");
            let other = at(hop.alternate.unwrap());
            assert!(other != leaf && routes.hop(other, leaf).unwrap().ways.is_some_and(|ways| ways.len() == 4));
            assert_eq!(routes.hop_by(spine, hop.port).alternate, None, "not for all that leaves there");
        }
        assert_eq!(go_round(&topology, &routes), Ok(()));
        // With one spine there is no other way.
        let star = net(5, &[], &(1..5).map(|leaf| (0, leaf, 1)).collect::<Vec<_>>());
        assert_eq!(star.routes().hop(NodeId(0), NodeId(1)).unwrap().alternate, None);
    }

    /// With all links of a leaf down each spine turns frames to it at another leaf, which sends them to another spine.
    #[test]
    fn frames_to_a_leaf_that_died_come_to_an_end() {
        for n_spines in 2..5 {
            let n = n_spines + 5;
            let links = (0..n_spines).flat_map(|spine| (n_spines..n).map(move |leaf| (spine, leaf, 1)));
            let topology = net(n, &[], &links.collect::<Vec<_>>());
            let routes = topology.routes();
            let round = |cut: &[End], has_flags| {
                let (cut, value, demand) = (cut.to_vec(), Value::Switch, Demand::End);
                Round { topology: &topology, routes: &routes, cut, value, demand, has_flags }.go()
            };
            let mut n_loops = 0;
            for leaf in (n_spines..n).map(NodeId) {
                let cut = links_of(&topology, leaf);
                assert_eq!(round(&cut, true), Ok(()));
                n_loops += usize::from(round(&cut, false).is_err_and(|why| why.contains("loops")));
            }
            // Where all spines turn at one leaf, it drops them.
            assert!(n_loops > 1, "without flags they go round: {n_loops}");
            let ends: Vec<[End; 2]> = topology.links().map(|link| [link.a, link.b]).collect();
            for (i, cut) in ends.iter().enumerate() {
                ends[..i].iter().for_each(|other| assert_eq!(round(&[*cut, *other].concat(), true), Ok(())));
            }
        }
    }

    #[test]
    fn conditions_that_are_not_enough_are_found() {
        let mutants: [(&str, Condition); 4] = [
            ("a path back of the same length", |near, back, here| near <= here + back),
            ("any neighbour", |_, _, _| true),
            ("the way back forgotten, and the longest taken", |near, _, here| near > here),
            ("twice the way back", |near, back, here| near < here + 2 * back),
        ];
        let turn_mutants: [(&str, Turn); 3] = [
            ("another link back", |is_entry, _, beyond, here| is_entry || beyond <= here),
            ("any switch but the one that asks", |is_entry, leads_back, _, _| is_entry || !leads_back),
            ("all of them", |_, _, _, _| true),
        ];
        let mut rng = lookup::testkit::Rng::new(7);
        let (mut found, mut turns_found) = ([false; 4], [false; 3]);
        for _ in 0..400 {
            let n = 3 + rng.below(5) as u32;
            let mut link = || (rng.below(n.into()) as u32, rng.below(n.into()) as u32, 1 + rng.below(3) as u32);
            let links: Vec<_> = (0..2 * n).map(|_| link()).filter(|(a, b, _)| a != b).collect();
            let topology = net(n, &[], &links);
            assert_eq!(go_round(&topology, &topology.routes()), Ok(()));
            for ((_, mutant), found) in mutants.iter().zip(&mut found) {
                *found |= go_round(&topology, &topology.routes_by(*mutant, turns)).is_err();
            }
            for ((_, mutant), found) in turn_mutants.iter().zip(&mut turns_found) {
                *found |= go_round(&topology, &topology.routes_by(is_loop_free, *mutant)).is_err();
            }
        }
        assert_eq!(found, [true; 4], "{:?}", mutants.map(|(name, _)| name));
        assert_eq!(turns_found, [true; 3], "{:?}", turn_mutants.map(|(name, _)| name));
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
                let prepared: Vec<_> = routes.hops_to(from, &routes.prepared(all.clone())).collect();
                prop_assert_eq!(prepared, all.map(|to| routes.hop(from, to)).collect::<Vec<_>>());
            }
            prop_assert_eq!(go_round(&topology, &routes), Ok(()));
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

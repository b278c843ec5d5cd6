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
//! lead back. `d(N, D) < d(N, S) + d(S, D)`, so while one link of S is down and only S knows, what S sends to N arrives.
//! Not every pair has one: in a ring, those on the near half have none. Of several, one is taken whose paths do not lead through the
//! next switch of a way, since that one may be what is gone, and since switches nearer by may need it to turn frames; then that of the
//! shortest path; then by hash, as above. The alternate of several ways is none of them: it serves when all of them are down.
//!
//! **U-turns.** In a fabric of leaves and spines, a spine that loses its link to a leaf has no such neighbour: every leaf has it among
//! its ways there. But a leaf that gets a frame from one of its ways sends it by another one, and a switch with one way alone by
//! its own alternate, if the frame is marked as a detour. So where a pair has no loop-free alternate, a neighbour N will do whose
//! own way leads back over this link, if what it sends the frame on by does not lead through S: see [`turns`].
//! (RFC 5286, section 1.1, speaks of U-turn alternates; here N is a neighbour whose values name switches, and any other drops
//! the frame.) What came from N itself goes back to it.
//!
//! **Several failures.** Both conditions are for one switch that has lost its ways. With more of them, as when a switch dies, alternates
//! could send a frame round for good. So the shim says that a frame has taken one, and it takes no second one: it goes on to the
//! link that is down. Nor does a frame without that mark turn. So it follows shortest paths, leaves them once at most, goes away
//! from the destination as long as it comes by the own way of who gets it, then follows shortest paths again, and comes to an end
//! after fewer than three hops a switch, whatever is down.
//!
//! A switch that holds only some tenants' names ([`Node::transit`](super::Node::transit) false) carries no frames of others:
//! paths start and end at it and never lead through it.

use super::{End, NodeId, Topology};
use crate::action::{Action, MAX_WAYS, PortId, Ways};
use crate::mistakes::{Mistake, mistaken};
use lookup::hash::mix64;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use turns::{Own, Paths, Rule, Visits};

mod turns;

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
        self.routes_by(if mistaken(Mistake::AnyAlternate) { |_, _, _| true } else { is_loop_free }, None)
    }

    fn routes_by(&self, is_loop_free: Condition, left_out: Option<Rule>) -> Routes {
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
        let mut places = BTreeMap::new();
        for (at, of) in neighbours.iter().enumerate() {
            places.extend(of.iter().enumerate().map(|(place, (port, ..))| ((at, *port), place)));
        }
        let far_places: Vec<Vec<usize>> = ids
            .iter()
            .map(|id| {
                let carrying = self.links_of(*id).filter(|(.., link)| link.carries());
                carrying.map(|(_, far, _)| places[&(index[&far.node], far.port)]).collect()
            })
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
        let (mut own, mut visits) = (vec![None; n], Visits::of(n));
        // Of each switch: the neighbours that are loop-free.
        let (mut free, mut free_of, mut others) = (Vec::new(), vec![0..0; n], Vec::new());
        for to in 0..n {
            own.fill(None);
            free.clear();
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
                free_of[from] = free.len()..free.len() + loop_free.len();
                free.extend(&loop_free);
                own[from] = Some(Own { chosen, set: ways[from * n + to], alternate: None, onward: None });
            }
            // The ways of all to this destination are known. Whoever turns a frame is farther from it than the one before.
            for &from in order.iter().rev().filter(|from| **from != to) {
                let Some(here) = own[from] else { continue };
                let paths = Paths {
                    to,
                    neighbours: &neighbours,
                    far_places: &far_places,
                    transit: &transit,
                    distance,
                    own: &own,
                    left_out,
                };
                let length = |k: usize| {
                    let (port, via, cost) = neighbours[from][k];
                    let weight = (preference(ids[from], ids[to], ids[via], port), port);
                    (distance[via] + u64::from(cost), Reverse(weight))
                };
                let free = free[free_of[from].clone()].iter().copied().filter(|k| !here.has(*k));
                others.clear();
                others.extend(free.map(|k| (length(k), k)));
                let is_free = !others.is_empty();
                if !is_free {
                    // The first of them that will do is found by trial, and mostly at once.
                    let all = (0..neighbours[from].len())
                        .filter(|k| !here.has(*k) && distance[neighbours[from][*k].1] != u64::MAX);
                    others.extend(all.map(|k| (length(k), k)));
                }
                others.sort_unstable();
                let will_do = |k: usize, visits: &mut Visits| match is_free {
                    true => !paths.meets_next(from, k, visits),
                    false => paths.turns(from, k, visits),
                };
                let best = others.iter().map(|(_, k)| *k).find(|k| will_do(*k, &mut visits));
                let best = best.or_else(|| others.first().map(|(_, k)| *k).filter(|_| is_free));
                let onward = best.and_then(|k| paths.onward(from, k));
                own[from] = Some(Own { alternate: best, onward, ..here });
            }
            for (from, own) in own.iter().enumerate() {
                alternate[from * n + to] = own.and_then(|own| Some(neighbours[from][own.alternate?].0));
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

/// The distance of each neighbour of a switch from it: the length of the link, unless a detour is shorter.
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
mod tests;

//! Taking a link, or a switch, out of the paths and back without losing a frame.
//!
//! Switches get new tables one after another. If a link left all paths at once, a switch that knows and one that does not could send
//! a frame to each other meanwhile, round and round. So the link is made longer step by step, each step is in all tables before
//! the next one begins, and after the last one no path leads over it.
//!
//! **Why no frame goes in circles.** Let one link be longer by at most `d` in the new tables than in the old ones, and `d` at most the
//! length of any link. Take one destination, distances `o(u)` in the old tables and `n(u)` in the new ones: `o(u) <= n(u) <= o(u) + d`.
//! A switch with the old table sends to one with a smaller `o`. One with the new table sends to a `v` with
//! `n(v) <= n(u) - d`, so `o(v) <= n(v) <= n(u) - d <= o(u)`: never to a larger one. In a circle `o` would have to stay the same all the
//! way, which only new tables do, and they make no circles. This holds for each of several shortest paths. It does not matter which
//! switch changes when, or whether a frame is under way meanwhile. Shorter by `d` is the same with old and new exchanged. (Increments of metrics: Francois, Shand,
//! Bonaventure, *Disruption-free topology reconfiguration in OSPF networks*, INFOCOM 2007.)
//!
//! Steps in which no path changes are left out: to find the next one that matters takes O(log) computations of routes. All shortest
//! paths count, also in port mode, which takes one of them: there a step may change nothing, which costs its time and no frame.

use super::{End, NodeId, Routes, Topology};

/// More steps than this do not count as a drain: link costs differ too much.
pub const MOST_STEPS: u32 = 10_000;

/// The object to be moved out of the paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// The link at this end: no path leads over it.
    Link(End),
    /// The switch: no path of others leads through it.
    Switch(NodeId),
}

/// Some paths have no other way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needed {
    /// A switch that reaches
    pub from: NodeId,
    /// another one only over what was to be taken out.
    pub to: NodeId,
}

impl Topology {
    /// The next step of taking something out of the paths: a link, and how much longer than its cost it is to be. None: no path
    /// leads there any more.
    /// # Errors
    /// [`Needed`].
    pub fn next_raise(&self, goal: Goal) -> Result<Option<(End, u32)>, Needed> {
        let routes = self.routes();
        let used: Vec<(End, u32)> = self.used(goal, &routes);
        // The one that was raised least: of several each has its turn.
        let Some(&(end, raised)) = used.iter().min_by_key(|(end, raised)| (*raised, *end)) else { return Ok(None) };
        self.without(goal).map_or(Ok(()), |without| lost(&routes, &without.routes()).map_or(Ok(()), Err))?;
        let step = self.step();
        let most = self.links.values().map(|link| link.cost).fold(step, u32::saturating_add).min(u32::MAX >> 2);
        let n_steps = (most.max(raised) - raised).div_ceil(step).max(1);
        let at = |k: u32| raised.saturating_add(k.saturating_mul(step));
        let k = self.first_that_matters(end, n_steps, &routes, at);
        Ok(Some((end, at(k))))
    }

    /// The next step of taking something back into the paths. None: nothing is longer than its cost any more.
    pub fn next_lower(&self, goal: Goal) -> Option<(End, u32)> {
        let raised = self.links_at(goal).into_iter().filter(|(_, raised)| *raised > 0);
        let (end, raised) = raised.max_by_key(|(end, raised)| (*raised, *end))?;
        let step = self.step();
        let at = |k: u32| raised.saturating_sub(k.saturating_mul(step));
        let k = self.first_that_matters(end, raised.div_ceil(step), &self.routes(), at);
        Some((end, at(k)))
    }

    /// How much longer than its cost a link has to be so that no path would lead over it if it were up; 0 if that is impossible.
    pub fn raise_to_begin(&self, end: End) -> u32 {
        let mut topology = self.clone();
        if topology.set_up(end, true).is_err() {
            return 0;
        }
        for _ in 0..MOST_STEPS {
            let Ok(Some((end, raised))) = topology.next_raise(Goal::Link(end)) else { break };
            if topology.set_raised(end, raised).is_err() {
                break;
            }
        }
        topology
            .link(end)
            .ok()
            .filter(|_| topology.used(Goal::Link(end), &topology.routes()).is_empty())
            .map_or(0, |link| link.raised)
    }

    /// Maximum lengthening in one step: the length of the shortest link.
    fn step(&self) -> u32 {
        self.links.values().filter(|link| link.carries()).map(|link| link.cost).min().unwrap_or(1)
    }

    /// The smallest number of steps, up to `most`, after which a path is another one; `most`, if none is.
    fn first_that_matters(&self, end: End, most: u32, routes: &Routes, at: impl Fn(u32) -> u32) -> u32 {
        let mut topology = self.clone();
        let mut differs = |k: u32| topology.set_raised(end, at(k)).is_ok() && !topology.routes().same_paths(routes);
        // Paths that left do not come back when the link gets longer still, so the search is for a border.
        let (mut same, mut other) = (0, 1);
        while !differs(other) {
            if other >= most {
                return most;
            }
            (same, other) = (other, other.saturating_mul(2).min(most));
        }
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if differs(middle) {
                other = middle;
            } else {
                same = middle;
            }
        }
        other
    }

    /// The links, by one end, and by how much they are longer than their cost.
    fn links_at(&self, goal: Goal) -> Vec<(End, u32)> {
        match goal {
            Goal::Link(end) => self.link(end).map(|link| (link.a, link.raised)).into_iter().collect(),
            Goal::Switch(node) => self.links_of(node).map(|(_, _, link)| (link.a, link.raised)).collect(),
        }
    }

    /// Those of them over which paths lead that must not.
    fn used(&self, goal: Goal, routes: &Routes) -> Vec<(End, u32)> {
        let is_used = |(end, _): &(End, u32)| {
            let Ok(link) = self.link(*end) else { return false };
            let passes = |from: End, to: NodeId| match goal {
                Goal::Link(_) => routes.leads(from, None),
                Goal::Switch(node) => to == node && routes.leads(from, Some(node)),
            };
            passes(link.a, link.b.node) || passes(link.b, link.a.node)
        };
        self.links_at(goal).into_iter().filter(is_used).collect()
    }

    fn without(&self, goal: Goal) -> Option<Topology> {
        let mut without = self.clone();
        match goal {
            Goal::Link(end) => _ = without.set_up(end, false).ok()?,
            Goal::Switch(node) => without.nodes.get_mut(&node)?.transit = false,
        }
        Some(without)
    }
}

/// A pair that has a path only before.
fn lost(before: &Routes, after: &Routes) -> Option<Needed> {
    let nodes = || before.index.keys().copied();
    let mut pairs = nodes().flat_map(|from| nodes().map(move |to| Needed { from, to }));
    pairs.find(|Needed { from, to }| before.next_hop(*from, *to).is_some() && after.next_hop(*from, *to).is_none())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{end, net};
    use super::*;
    use crate::action::PortId;
    use lookup::testkit::{Rng, seed};

    /// Follows frames through every mixture of old and new tables, by all ways: whether each arrives.
    fn mixtures_arrive(topology: &Topology, old: &Routes, new: &Routes) -> Result<(), String> {
        let nodes: Vec<NodeId> = topology.nodes().map(|(node, _)| node).collect();
        for has_new in 0..1_u32 << nodes.len() {
            for goal in &nodes {
                let next = |at: NodeId| {
                    let routes = if has_new >> at.0 & 1 != 0 { new } else { old };
                    let hop = routes.hop(at, *goal).filter(|_| at != *goal);
                    let ways =
                        hop.iter().flat_map(|hop| hop.ways.as_deref().unwrap_or(std::slice::from_ref(&hop.port)));
                    let far =
                        |port: &PortId| topology.links_of(at).find(|(near, ..)| near.port == *port).unwrap().1.node;
                    ways.map(far).collect::<Vec<_>>()
                };
                // Those from which all ways arrive, nearest first: the others lead in circles, or end.
                let mut arriving = vec![*goal];
                while let Some(one) = nodes.iter().find(|at| {
                    let next = next(**at);
                    !arriving.contains(at) && !next.is_empty() && next.iter().all(|far| arriving.contains(far))
                }) {
                    arriving.push(*one);
                }
                let lost = |from: &&NodeId| !arriving.contains(from) && old.next_hop(**from, *goal).is_some();
                if let Some(from) = nodes.iter().find(lost) {
                    return Err(format!("{from} to {goal} goes in circles or ends with {has_new:b}"));
                }
            }
        }
        Ok(())
    }

    fn random(rng: &mut Rng) -> Topology {
        let n = 3 + rng.below(4) as u32;
        let most_cost = 1 + rng.below(6);
        let mut link = || (rng.below(n.into()) as u32, rng.below(n.into()) as u32, 1 + rng.below(most_cost) as u32);
        let links: Vec<_> = (0..2 * n).map(|_| link()).filter(|(a, b, _)| a != b).collect();
        let restricted = if rng.below(4) == 0 { vec![rng.below(n.into()) as u32] } else { vec![] };
        net(n, &restricted, &links)
    }

    fn goals(topology: &Topology) -> Vec<Goal> {
        let links = topology.links().map(|link| Goal::Link(link.b));
        links.chain(topology.nodes().map(|(node, _)| Goal::Switch(node))).collect()
    }

    #[test]
    fn every_mixture_of_two_tables_delivers_on_the_way_out_and_back() {
        let mut rng = Rng::new(seed());
        let (mut n_drained, mut n_needed, mut n_steps) = (0, 0, 0);
        for _ in 0..60 {
            let whole = random(&mut rng);
            for goal in goals(&whole) {
                let mut topology = whole.clone();
                let drained = loop {
                    match topology.next_raise(goal) {
                        Ok(None) => break true,
                        Err(Needed { from, to }) => {
                            assert!(whole.without(goal).unwrap().routes().next_hop(from, to).is_none());
                            break false;
                        }
                        Ok(Some((end, raised))) => {
                            let old = topology.routes();
                            topology.set_raised(end, raised).unwrap();
                            mixtures_arrive(&topology, &old, &topology.routes()).unwrap();
                            n_steps += 1;
                        }
                    }
                };
                if !drained {
                    assert_eq!(topology, whole, "what is needed is found before anything is changed");
                    n_needed += 1;
                    continue;
                }
                n_drained += 1;
                if let Goal::Link(end) = goal {
                    // Nobody notices that it goes.
                    let old = topology.routes();
                    topology.set_up(end, false).unwrap();
                    topology.set_raised(end, 0).unwrap();
                    assert!(topology.routes().same_paths(&old));
                    let raised = topology.raise_to_begin(end);
                    topology.set_raised(end, raised).unwrap();
                    topology.set_up(end, true).unwrap();
                    assert!(topology.routes().same_paths(&old));
                }
                while let Some((end, raised)) = topology.next_lower(goal) {
                    let old = topology.routes();
                    topology.set_raised(end, raised).unwrap();
                    mixtures_arrive(&topology, &old, &topology.routes()).unwrap();
                }
                assert_eq!(topology, whole);
            }
        }
        assert!(n_drained > 100 && n_needed > 10 && n_steps > n_drained / 2, "{n_drained} {n_needed} {n_steps}");
    }

    #[test]
    fn longer_steps_are_found_to_go_in_circles() {
        let mut rng = Rng::new(seed());
        let mut found = [false; 3];
        for _ in 0..200 {
            let whole = random(&mut rng);
            for link in whole.links().copied().collect::<Vec<_>>() {
                let step = whole.step();
                // At once; by two steps; by one more than a step.
                for (raised, found) in [1000, 2 * step, step + 1].into_iter().zip(&mut found) {
                    let mut topology = whole.clone();
                    for k in 1..=1000 / raised {
                        let old = topology.routes();
                        topology.set_raised(link.a, k * raised).unwrap();
                        *found |= mixtures_arrive(&topology, &old, &topology.routes()).is_err();
                        if *found || k > 20 {
                            break;
                        }
                    }
                }
            }
            if found == [true; 3] {
                return;
            }
        }
        panic!("{found:?}");
    }

    #[test]
    fn a_ring_is_drained_in_few_steps_and_a_bridge_is_not() {
        let ring: Vec<_> = (0..8).map(|i| (i, (i + 1) % 8, 100)).collect();
        let mut topology = net(8, &[], &ring);
        let mut raised = Vec::new();
        while let Some((at, by)) = topology.next_raise(Goal::Link(end(1, 0))).unwrap() {
            topology.set_raised(at, by).unwrap();
            raised.push(by);
        }
        assert_eq!(raised.last(), Some(&700), "the way round is 700 long, and a tie takes both: {raised:?}");
        assert!(raised.len() <= 7);
        let chain = net(3, &[], &[(0, 1, 1), (1, 2, 1)]);
        assert!(chain.next_raise(Goal::Link(end(0, 0))).is_err());
        assert_eq!(chain.next_raise(Goal::Switch(NodeId(1))), Err(Needed { from: NodeId(0), to: NodeId(2) }));
        assert_eq!(chain.next_raise(Goal::Switch(NodeId(0))), Ok(None), "nothing leads through an end");
    }
}

//! What frames do while links are down and their ends alone know: the rules of switches, followed through every choice of ways.

use super::{Hop, Routes};
use crate::action::PortId;
use crate::topology::{End, NodeId, Topology};
use std::collections::BTreeSet;

/// What the value of the destination is at the switches: itself, the port towards it, or at some the one and at some the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Switch,
    Port,
    Either,
}

/// Whether frames must arrive, also where there is no alternate; or what takes one must; or they only come to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Demand {
    All,
    Arrival,
    End,
}

/// The contents of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Flags {
    detour: bool,
    turned: bool,
}

pub(super) struct Round<'a> {
    pub(super) topology: &'a Topology,
    pub(super) routes: &'a Routes,
    pub(super) cut: Vec<End>,
    pub(super) value: Value,
    pub(super) demand: Demand,
    /// Whether switches heed the flags.
    pub(super) has_flags: bool,
}

impl Round<'_> {
    /// Follows what all switches send to all others.
    /// # Errors
    /// A forbidden action of a frame.
    pub(super) fn go(&self) -> Result<(), String> {
        let nodes = || self.topology.nodes().map(|(node, _)| node);
        for (from, goal) in nodes().flat_map(|from| nodes().map(move |to| (from, to))) {
            self.follow((from, goal), None, Flags::default(), 0).map_err(|why| {
                format!("{from} to {goal} with {:?} cut, values are {:?}: {why}", self.cut, self.value)
            })?;
        }
        Ok(())
    }

    pub(super) fn follow(
        &self,
        (at, goal): (NodeId, NodeId),
        entered: Option<PortId>,
        flags: Flags,
        n_hops: usize,
    ) -> Result<(), String> {
        let Some(hop) = self.routes.hop(at, goal).filter(|_| at != goal) else { return Ok(()) };
        let mut out = BTreeSet::new();
        if self.value != Value::Port {
            out.extend(self.taken((at, goal), hop, entered, flags)?);
        }
        if self.value != Value::Switch {
            out.extend(self.taken((at, goal), self.routes.hop_by(at, hop.port), entered, flags)?);
        }
        for (port, flags) in out {
            let (near, far, link) = self.topology.links_of(at).find(|(near, ..)| near.port == port).unwrap();
            if self.cut.contains(&near) || !link.carries() {
                return Err(format!("a dead link is taken at {near}"));
            }
            if far.node != goal && !self.topology.node(far.node).unwrap().transit {
                return Err(format!("it goes through one that carries nothing for others at {near}"));
            }
            if n_hops > 3 * self.topology.nodes().count() {
                return Err(format!("it loops at {near}"));
            }
            self.follow((far.node, goal), Some(far.port), flags, n_hops + 1)?;
        }
        Ok(())
    }

    /// All ways out that a frame may take at a switch with this hop, by its flow.
    fn taken(
        &self,
        (at, goal): (NodeId, NodeId),
        hop: Hop,
        entered: Option<PortId>,
        flags: Flags,
    ) -> Result<Vec<(PortId, Flags)>, String> {
        let is_cut = |port: PortId| self.cut.contains(&End { node: at, port });
        let ways = hop.ways.as_deref().unwrap_or(std::slice::from_ref(&hop.port));
        let open: Vec<PortId> = ways.iter().copied().filter(|port| !is_cut(*port)).collect();
        // One whose value is a port has other alternates, or none, and what comes to it on a detour may be lost.
        let lost = |why: String| match self.value == Value::Either && flags.detour {
            true => Ok(Vec::new()),
            false => self.lost(why),
        };
        let alternate = hop.alternate.filter(|port| !is_cut(*port));
        if open.is_empty() {
            return match alternate {
                // It goes on to the link that is down.
                None if self.demand == Demand::All => Err(format!("{at} has no alternate")),
                None => Ok(Vec::new()),
                Some(_) if flags.detour && self.has_flags => lost(format!("{at} would take a second alternate")),
                Some(port) if entered == Some(port) && !self.has(at, port, goal) => {
                    lost(format!("the alternate of {at} leads back"))
                }
                Some(port) => Ok(vec![(port, Flags { detour: true, ..flags })]),
            };
        }
        let mut taken = Vec::new();
        let far = |port: PortId| self.behind(at, port).node;
        let leads_back = |port: PortId| entered.is_some_and(|entered| far(entered) == far(port));
        for port in &open {
            // Which of parallel links a frame came by is known where flows are spread.
            let is_back = if hop.ways.is_some() && open.len() > 1 { leads_back(*port) } else { entered == Some(*port) };
            if !is_back {
                taken.push((*port, flags));
                continue;
            }
            let others: Vec<PortId> = open.iter().copied().filter(|other| !leads_back(*other)).collect();
            if flags != (Flags { detour: true, turned: false }) && self.has_flags {
                lost(format!("it comes back to {at}"))?;
            } else if !others.is_empty() {
                taken.extend(others.into_iter().map(|other| (other, Flags { turned: true, ..flags })));
            } else if let Some(alternate) = alternate.filter(|alternate| !leads_back(*alternate)) {
                taken.push((alternate, flags));
            } else {
                lost(format!("it comes back to {at}, which has no other way"))?;
            }
        }
        Ok(taken)
    }

    /// The other end of the link at a port.
    fn behind(&self, at: NodeId, port: PortId) -> End {
        self.topology.links_of(at).find(|(near, ..)| near.port == port).unwrap().1
    }

    /// Whether the switch behind a port has that link among its own ways to the destination.
    fn has(&self, at: NodeId, port: PortId, goal: NodeId) -> bool {
        let far = self.behind(at, port);
        let is_way = |hop: Hop| hop.port == far.port || hop.ways.is_some_and(|ways| ways.contains(&far.port));
        self.routes.hop(far.node, goal).is_some_and(is_way)
    }

    fn lost(&self, why: String) -> Result<Vec<(PortId, Flags)>, String> {
        if self.demand == Demand::End { Ok(Vec::new()) } else { Err(why) }
    }
}

/// Cuts each link, lets its ends alone know, and demands that all arrives that has a way or an alternate, without leaving by
/// the port of entry; and all ways of a switch at once. Then has each switch die, and demands that frames come to an end.
pub(super) fn go_round(topology: &Topology, routes: &Routes) -> Result<(), String> {
    let round = |cut, value, demand| Round { topology, routes, cut, value, demand, has_flags: true };
    for link in topology.links().filter(|link| link.carries()) {
        for value in [Value::Switch, Value::Port, Value::Either] {
            round(vec![link.a, link.b], value, Demand::Arrival).go()?;
        }
    }
    let nodes = || topology.nodes().map(|(node, _)| node);
    for (from, goal) in nodes().flat_map(|from| nodes().map(move |to| (from, to))) {
        let Some(ways) = routes.hop(from, goal).and_then(|hop| hop.ways) else { continue };
        let links = topology.links_of(from).filter(|(near, ..)| ways.contains(&near.port));
        let cut: Vec<End> = links.flat_map(|(near, far, _)| [near, far]).collect();
        let round = round(cut, Value::Switch, Demand::Arrival);
        for from in nodes() {
            round.follow((from, goal), None, Flags::default(), 0).map_err(|why| format!("{from} to {goal}: {why}"))?;
        }
    }
    for dead in nodes() {
        for value in [Value::Switch, Value::Either] {
            round(links_of(topology, dead), value, Demand::End).go()?;
        }
    }
    Ok(())
}

/// Both ends of all links of a switch.
pub(super) fn links_of(topology: &Topology, node: NodeId) -> Vec<End> {
    topology.links_of(node).flat_map(|(near, far, _)| [near, far]).collect()
}

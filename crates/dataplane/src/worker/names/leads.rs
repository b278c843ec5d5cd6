//! Where values lead: the action table, with everything that does not depend on the frame resolved before frames come.

use crate::counters::DropReason;
use crate::links::Links;
use crate::spread::{Slots, Times, Way};
use crate::worker::ports::Ports;
use crate::worker::rules::Rules;
use arrayvec::ArrayVec;
use fib::action::{Action, MAX_WAYS, PortId, Ways};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a value leads.
#[derive(Clone, Copy)]
pub(super) enum Lead {
    /// To the trunk with this index.
    Trunk(u8),
    /// To the trunk with this index while those of the shortest paths are down. A frame that has been on such a detour goes to the other,
    /// if it is a trunk: that may still work.
    Alternate(u8, Option<u8>),
    /// To one of several trunks, which the slots with this number choose by flow.
    Spread(u16),
    /// To another port, which the exact table of local names must confirm.
    Port(PortId),
    /// To the port that the exact table of local names has.
    Local,
    Drop(DropReason),
}

/// The leads of one action table.
pub(super) struct Leads {
    of: Option<Arc<[Action]>>,
    /// The version of the trunks and ports that were down when the leads were found.
    version: u32,
    leads: Box<[Lead]>,
    /// The trunk of each value's alternate, if that is up: even while its own ways are.
    alternates: Box<[Option<u8>]>,
    spreads: Vec<Slots>,
    /// For each port the first one that leads to the same switch; where that is unknown, itself.
    twins: [u8; 256],
}

impl Default for Leads {
    fn default() -> Self {
        let twins = std::array::from_fn(|index| index as u8);
        Self { of: None, version: 0, leads: Box::default(), alternates: Box::default(), spreads: Vec::new(), twins }
    }
}

impl Leads {
    /// Finds the leads of a table, unless it is the previous table, no trunk or port went down or came up, and bundles have as many
    /// members that send.
    #[inline]
    pub(super) fn follow<R: Rules>(&mut self, actions: &Arc<[Action]>, links: &Links, ports: &Ports) {
        // Both only grow.
        let version = links.version().wrapping_add(ports.n_changes());
        // The previous table is kept, so no other table has its address.
        if version != self.version || self.of.as_ref().is_none_or(|of| !Arc::ptr_eq(of, actions)) {
            let mut finder =
                Finder { links, ports, spreads: BTreeMap::new(), slots: Vec::new(), times: Times::default() };
            self.leads = actions.iter().map(|action| finder.lead::<R>(action)).collect();
            self.alternates = actions.iter().map(|action| finder.alternate(action)).collect();
            self.spreads = finder.slots;
            let mut first_to = BTreeMap::new();
            for index in (0..ports.len()).map(|index| index as u8) {
                let neighbour = links.neighbour(index);
                let twin = if neighbour == 0 { index } else { *first_to.entry(neighbour).or_insert(index) };
                self.twins[usize::from(index)] = twin;
            }
            (self.of, self.version) = (Some(actions.clone()), version);
        }
    }

    #[inline]
    pub(super) fn get(&self, value: u64) -> Lead {
        self.leads.get(value as usize).copied().unwrap_or(Lead::Drop(DropReason::NoAction))
    }

    /// The trunk of a flow.
    #[inline]
    pub(super) fn trunk_of(&self, spread: u16, flow: u64) -> u8 {
        self.spreads[usize::from(spread)].port(flow)
    }

    /// Whether two trunks lead to one switch, according to hellos; a trunk and itself do.
    #[inline]
    pub(super) fn are_parallel(&self, one: usize, other: u8) -> bool {
        self.twins[one & 255] == self.twins[usize::from(other)]
    }

    /// The trunk of a flow that may not take one to the switch that it came from, if there is another.
    #[cold]
    pub(super) fn other_trunk_of(&self, spread: u16, flow: u64, entry: usize) -> Option<u8> {
        self.spreads[usize::from(spread)].other(flow, |exit| !self.are_parallel(entry, exit))
    }

    /// The alternate of a value, if that is up.
    #[cold]
    pub(super) fn alternate_of(&self, value: u64) -> Option<u8> {
        self.alternates.get(value as usize).copied().flatten()
    }
}

fn trunk_in(lead: &Lead) -> Option<u8> {
    match lead {
        Lead::Trunk(index) => Some(*index),
        _ => None,
    }
}

/// The inputs from which leads are found.
struct Finder<'a> {
    links: &'a Links,
    ports: &'a Ports,
    /// Many actions have the same ways.
    spreads: BTreeMap<ArrayVec<Way, MAX_WAYS>, Lead>,
    slots: Vec<Slots>,
    times: Times,
}

impl Finder<'_> {
    fn lead<R: Rules>(&mut self, action: &Action) -> Lead {
        match action {
            Action::Port(id) => self.to(*id),
            // If neither leads on, that of the shortest path may still work.
            Action::Protected { port, alternate } => {
                let (port, alternate) = (self.to(*port), self.to(*alternate));
                match alternate {
                    Lead::Trunk(alternate) if R::takes_alternate(self.leads_on(&port), self.is_up(alternate)) => {
                        Lead::Alternate(alternate, trunk_in(&port))
                    }
                    _ => port,
                }
            }
            Action::Spread { ways, alternate } => self.spread::<R>(*ways, *alternate),
            Action::Local => Lead::Local,
            Action::Drop => Lead::Drop(DropReason::NoRoute),
            Action::Tunnel { .. } | Action::Punt => Lead::Drop(DropReason::Unsupported),
        }
    }

    fn alternate(&self, action: &Action) -> Option<u8> {
        let alternate = match action {
            Action::Protected { alternate, .. } => *alternate,
            Action::Spread { alternate, .. } => (*alternate)?,
            _ => return None,
        };
        trunk_in(&self.to(alternate)).filter(|index| self.is_up(*index))
    }

    fn to(&self, id: PortId) -> Lead {
        match self.ports.index_of(id) {
            Some(index) if self.ports.is_trunk(index) => Lead::Trunk(index),
            _ => Lead::Port(id),
        }
    }

    fn is_up(&self, index: u8) -> bool {
        self.ports[usize::from(index)].health.is_up() && !self.links.is_down(index)
    }

    fn leads_on(&self, lead: &Lead) -> bool {
        matches!(lead, Lead::Trunk(index) if self.is_up(*index))
    }

    /// The link state is read once for each port: its keeper changes it at any time.
    fn spread<R: Rules>(&mut self, ways: Ways, alternate: Option<PortId>) -> Lead {
        let trunk = |(id, weight): (PortId, u8)| match self.to(id) {
            // A bundle counts as often as it has members that send.
            Lead::Trunk(index) => Some(Way { id, index, weight: u16::from(weight) * self.links.n_members(index) }),
            _ => None,
        };
        let mut trunks: ArrayVec<Way, MAX_WAYS> = ways.with_weights().filter_map(trunk).collect();
        let is_open = |way: &Way| R::spreads_over(self.is_up(way.index));
        let open: ArrayVec<_, MAX_WAYS> = trunks.iter().copied().filter(is_open).collect();
        if open.is_empty() {
            let alternate = alternate.and_then(|id| trunk_in(&self.to(id))).filter(|index| self.is_up(*index));
            if let Some(alternate) = alternate {
                return Lead::Alternate(alternate, trunks.first().map(|way| way.index));
            }
            // Each may still work.
        } else {
            trunks = open;
        }
        match trunks[..] {
            // A way that is not a trunk is a mistake of the controller: the port of a host, or none.
            [] => self.to(ways[0]),
            [way] => Lead::Trunk(way.index),
            _ => *self.spreads.entry(trunks).or_insert_with_key(|trunks| {
                self.slots.push(Slots::weighed(trunks, &mut self.times));
                Lead::Spread((self.slots.len() - 1) as u16)
            }),
        }
    }
}

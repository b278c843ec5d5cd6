//! Where values lead: the action table, with what does not depend on the frame found before frames come.

use super::PortIndex;
use crate::counters::DropReason;
use crate::links::Links;
use crate::port::{Port, Role};
use fib::action::{Action, PortId};
use std::sync::Arc;

/// Where a value leads.
#[derive(Clone, Copy)]
pub(super) enum Lead {
    /// To the trunk with this index.
    Trunk(u8),
    /// To another port, which the exact table of local names must confirm.
    Port(PortId),
    /// To the port that the exact table of local names has.
    Local,
    Drop(DropReason),
}

/// The leads of one action table.
#[derive(Default)]
pub(super) struct Leads {
    of: Option<Arc<[Action]>>,
    /// Of the trunks that were down when the leads were found.
    version: u32,
    leads: Box<[Lead]>,
}

impl Leads {
    /// Finds the leads of a table, unless it is the table of before and no trunk went down or came up.
    #[inline]
    pub(super) fn follow(&mut self, actions: &Arc<[Action]>, links: &Links, ports: &[Port], port_index: &PortIndex) {
        let version = links.version();
        // The table of before is kept, so no other table is where it is.
        if version != self.version || self.of.as_ref().is_none_or(|of| !Arc::ptr_eq(of, actions)) {
            self.leads = actions.iter().map(|action| lead(action, links, ports, port_index)).collect();
            (self.of, self.version) = (Some(actions.clone()), version);
        }
    }

    /// Has them found again: a port of this worker failed, or works again.
    pub(super) fn forget(&mut self) {
        self.of = None;
    }

    #[inline]
    pub(super) fn get(&self, value: u64) -> Lead {
        self.leads.get(value as usize).copied().unwrap_or(Lead::Drop(DropReason::NoAction))
    }
}

fn lead(action: &Action, links: &Links, ports: &[Port], port_index: &PortIndex) -> Lead {
    let to = |id: PortId| match port_index.get(id) {
        Some(index) if ports[usize::from(index)].role == Role::Trunk => Lead::Trunk(index),
        _ => Lead::Port(id),
    };
    let leads_on = |lead: &Lead| match lead {
        Lead::Trunk(index) => ports[usize::from(*index)].health.is_up() && !links.is_down(*index),
        _ => false,
    };
    match action {
        Action::Port(id) => to(*id),
        // If neither leads on, the one of the shortest path may still do.
        Action::Protected { port, alternate } => {
            let (port, alternate) = (to(*port), to(*alternate));
            if !leads_on(&port) && leads_on(&alternate) { alternate } else { port }
        }
        Action::Local => Lead::Local,
        Action::Drop => Lead::Drop(DropReason::NoRoute),
        Action::Tunnel { .. } | Action::Punt => Lead::Drop(DropReason::Unsupported),
    }
}

//! Where values lead: the action table, with what does not depend on the frame found before frames come.

use super::PortIndex;
use crate::counters::DropReason;
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
    leads: Box<[Lead]>,
}

impl Leads {
    /// Finds the leads of a table, unless it is the table of before.
    #[inline]
    pub(super) fn follow(&mut self, actions: &Arc<[Action]>, ports: &[Port], port_index: &PortIndex) {
        // The table of before is kept, so no other table is where it is.
        if self.of.as_ref().is_none_or(|of| !Arc::ptr_eq(of, actions)) {
            self.leads = actions.iter().map(|action| lead(action, ports, port_index)).collect();
            self.of = Some(actions.clone());
        }
    }

    #[inline]
    pub(super) fn get(&self, value: u64) -> Lead {
        self.leads.get(value as usize).copied().unwrap_or(Lead::Drop(DropReason::NoAction))
    }
}

fn lead(action: &Action, ports: &[Port], port_index: &PortIndex) -> Lead {
    match action {
        Action::Port(id) => match port_index.get(*id) {
            Some(index) if ports[usize::from(index)].role == Role::Trunk => Lead::Trunk(index),
            _ => Lead::Port(*id),
        },
        Action::Local => Lead::Local,
        Action::Drop => Lead::Drop(DropReason::NoRoute),
        Action::Tunnel { .. } | Action::Punt => Lead::Drop(DropReason::Unsupported),
    }
}

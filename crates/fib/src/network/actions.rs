//! Consequences of changed routes, or of changed meanings of values: action tables and cells, in this order of phases:
//!
//! | phase | |
//! |---|---|
//! | 0 | action tables; where values get another meaning, those in which they drop |
//! | 1 | cells |
//! | 2 | action tables in which values have another meaning |
//!
//! When cells cannot be made, a table of phase 2 waits for the change that makes them, and is the last message of that.

use super::values::interim_actions;
use super::{Draft, Effects, Network};
use crate::designs::ViewUpdates;
use crate::topology::NodeId;

impl Network {
    /// Routes, action tables and FIBs after the topology changed; `named` are switches whose rows changed anyway.
    pub(super) fn rerouted(&mut self, mut draft: Draft, named: &[NodeId]) -> Effects {
        self.refresh_routes(&mut draft);
        for node in named {
            draft.row(self.switch_row(*node));
        }
        self.finish(draft)
    }

    pub(super) fn refresh_routes(&mut self, draft: &mut Draft) {
        let before = std::mem::replace(&mut self.routes, self.topology.routes());
        self.n_reroutes += 1;
        // Places without names may change otherwise, which changes no table.
        let moved = draft.revalued || self.moves_values(&before);
        let mut tables = std::mem::take(&mut self.tables);
        for (id, table) in &mut tables {
            let mut out = ViewUpdates::new();
            table.control.catch_up(&mut out);
            let values = table.views.iter().map(|view| self.values(view.of)).enumerate();
            let stale: Vec<_> = values.filter(|(i, values)| table.control.values(*i) != values).collect();
            table.control.revalue(moved, stale, &mut out);
            table.send(*id, out, draft, |_| 1);
        }
        self.tables = tables;
        let nodes: Vec<NodeId> = self.switches.keys().copied().collect();
        let egress = self.egress_prepared();
        for node in nodes {
            let actions = self.action_table_to(node, &egress);
            let Some(switch) = self.switches.get_mut(&node) else { continue };
            let before = switch.actions_version;
            let is_displaced = interim_actions(&switch.values, &actions, before).is_some();
            if switch.actions == actions && !is_displaced {
                continue;
            }
            switch.actions = actions;
            switch.actions_version += if is_displaced { 2 } else { 1 };
            if switch.attached {
                // Where values get another meaning, they drop until no cells have them with the former one.
                let held = switch.held_back.take().unwrap_or(before);
                let interim = interim_actions(&switch.values, &switch.actions, held);
                let phase = if interim.is_some() { 2 } else { 0 };
                if interim.is_some() && self.tables[&switch.table].control.is_behind() {
                    switch.held_back = Some(held);
                    self.holds_back = true;
                } else {
                    draft.send(phase, node, switch.actions_body());
                }
                interim.into_iter().for_each(|interim| draft.send(0, node, switch.known(interim)));
            }
            draft.row(self.switch_row(node));
        }
    }

    /// Sends the action tables that waited for cells which are made now, after these.
    pub(super) fn send_held_back(&mut self, draft: &mut Draft) {
        if !std::mem::take(&mut self.holds_back) {
            return;
        }
        for (node, switch) in self.switches.iter_mut().filter(|(_, switch)| switch.held_back.is_some()) {
            if self.tables[&switch.table].control.is_behind() {
                self.holds_back = true;
            } else {
                switch.held_back = None;
                draft.send(u32::MAX, *node, switch.actions_body());
            }
        }
    }
}

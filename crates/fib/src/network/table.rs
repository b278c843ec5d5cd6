//! The names of some tenants in one design, and the views of them: what each switch must hold.
//!
//! A table is shared by all switches that hold the names of the same tenants in the same design. In port mode every
//! attached switch has a view of its own; in egress mode one view serves them all.

use super::Draft;
use crate::codec::PART_BYTES;
use crate::designs::{Emitted, Outbox, Skeleton, Spec};
use crate::durable::{Row, RowChange, Tenants};
use crate::messages::{Body, Held};
use crate::replica::image_parts;
use crate::topology::NodeId;
use lookup::traits::InsertError;
use std::collections::BTreeSet;

/// The names of some tenants in one design.
pub(super) struct Table {
    pub(super) tenants: Tenants,
    pub(super) spec: Spec,
    pub(super) skeleton: Box<dyn Skeleton>,
    /// Version and digest of the valid names.
    pub(super) valid: Held,
    /// Whom the views of the skeleton are for, in their order.
    pub(super) views: Vec<View>,
}

/// Whom a view is for.
pub(super) struct View {
    /// The switch; `None` when the view serves all switches of its table.
    pub(super) of: Option<NodeId>,
    /// Attached switches.
    pub(super) switches: BTreeSet<NodeId>,
}

impl Table {
    pub(super) fn new(tenants: Tenants, spec: Spec, skeleton: Box<dyn Skeleton>, valid: Held) -> Table {
        Table { tenants, spec, skeleton, valid, views: Vec::new() }
    }

    /// Adds a view without switches; its index.
    pub(super) fn add_view(
        &mut self,
        of: Option<NodeId>,
        values: Vec<u16>,
        report: &[crate::messages::HeldShard],
    ) -> Result<usize, InsertError> {
        self.skeleton.add_view(values, report)?;
        self.views.push(View { of, switches: BTreeSet::new() });
        Ok(self.views.len() - 1)
    }

    /// Lets a switch go; views without switches go too.
    pub(super) fn detach(&mut self, node: NodeId) {
        for index in (0..self.views.len()).rev() {
            self.views[index].switches.remove(&node);
            if self.views[index].switches.is_empty() {
                self.views.remove(index);
                self.skeleton.remove_view(index);
            }
        }
    }

    /// Sends what the skeleton emitted, each view's in order.
    pub(super) fn send(&self, id: u32, out: Outbox, draft: &mut Draft, phase: impl Fn(NodeId) -> u32) {
        let mut bodies: Vec<Vec<Body>> = self.views.iter().map(|_| Vec::new()).collect();
        for (view, emitted) in out {
            let bodies = &mut bodies[view];
            match emitted {
                Emitted::Update(bytes) => match bodies.last_mut() {
                    Some(Body::Updates { updates, .. })
                        if updates.iter().map(Vec::len).sum::<usize>() + bytes.len() <= PART_BYTES =>
                    {
                        updates.push(bytes);
                    }
                    _ => bodies.push(Body::Updates { table: id, updates: vec![bytes] }),
                },
                // What came before is in it.
                Emitted::Whole(bytes) => *bodies = image_parts(id, bytes).collect(),
            }
        }
        for (view, bodies) in self.views.iter().zip(bodies) {
            for body in bodies {
                view.switches.iter().for_each(|node| draft.send(phase(*node), *node, body.clone()));
            }
        }
    }

    /// The durable rows of the parts that changed; the next mutation starts afresh.
    pub(super) fn take_rows(&mut self, id: u32, rows: &mut Vec<RowChange>) {
        let changed = self.skeleton.take_rows().into_iter();
        rows.extend(changed.map(|row| Row::part(id, row.key, row.value)));
    }

    /// The durable rows of all parts.
    pub(super) fn all_rows(&self, id: u32) -> impl Iterator<Item = RowChange> {
        self.skeleton.all_rows().map(move |row| Row::part(id, row.key, row.value))
    }

    pub(super) fn row(&self, id: u32) -> Row {
        let design = (self.spec.design.name.to_owned(), self.spec.fingerprint_bits);
        Row::Table { id, tenants: self.tenants.clone(), valid_version: self.valid.version, design }
    }
}

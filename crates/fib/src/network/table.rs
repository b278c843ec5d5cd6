//! The names of some tenants in one design, and the views of them: what each switch must hold.
//!
//! A table is shared by all switches that hold the names of the same tenants in the same design. In port mode every
//! attached switch has a view of its own; in egress mode one view serves them all.

use super::{Draft, Network};
use crate::codec::PART_BYTES;
use crate::designs::{Emitted, FibControl, Spec, ViewUpdates};
use crate::durable::{Row, RowChange, Tenants};
use crate::messages::{Body, Held, Updates};
use crate::replica::image_parts;
use crate::topology::NodeId;
use lookup::base::part::HeldPart;
use lookup::traits::InsertError;
use lookup::traits::Row as PartRow;
use std::collections::{BTreeMap, BTreeSet};

/// The names of some tenants in one design.
pub(super) struct Table {
    pub(super) tenants: Tenants,
    pub(super) spec: Spec,
    pub(super) control: Box<dyn FibControl>,
    /// Version and digest of the valid names.
    pub(super) valid: Held,
    /// The switches of each view of the skeleton, in the order of the views.
    pub(super) views: Vec<View>,
    /// The rows of views that do not exist, of switches that are not attached.
    pub(super) absent: BTreeMap<Option<NodeId>, Vec<PartRow>>,
    /// Rows of views that changed outside mutations.
    pending: Vec<(Option<NodeId>, PartRow)>,
}

/// The switches that a view serves.
pub(super) struct View {
    /// The switch; `None` when the view serves all switches of its table.
    pub(super) of: Option<NodeId>,
    /// Attached switches.
    pub(super) switches: BTreeSet<NodeId>,
}

impl Table {
    pub(super) fn new(tenants: Tenants, spec: Spec, control: Box<dyn FibControl>, valid: Held) -> Table {
        let (absent, pending) = (BTreeMap::new(), Vec::new());
        Table { tenants, spec, control, valid, views: Vec::new(), absent, pending }
    }

    /// Adds a view without switches; returns its index.
    pub(super) fn add_view(
        &mut self,
        of: Option<NodeId>,
        values: Vec<u16>,
        report: &[HeldPart],
    ) -> Result<usize, InsertError> {
        let rows = self.absent.remove(&of).unwrap_or_default();
        self.control.add_view(values, &rows, report)?;
        let index = self.views.len();
        self.views.push(View { of, switches: BTreeSet::new() });
        if !rows.is_empty() {
            let kept: BTreeSet<Vec<u8>> = self.control.view_rows(index).into_iter().map(|row| row.key).collect();
            let gone = rows.into_iter().filter(|row| !kept.contains(&row.key));
            self.pending.extend(gone.map(|row| (of, PartRow { value: None, ..row })));
        }
        Ok(index)
    }

    /// Detaches a switch; removes views without switches, except their rows.
    pub(super) fn detach(&mut self, node: NodeId) {
        for index in (0..self.views.len()).rev() {
            self.views[index].switches.remove(&node);
            if self.views[index].switches.is_empty() {
                let of = self.views.remove(index).of;
                let rows = self.control.view_rows(index);
                self.pending.extend(self.control.take_view_rows(index).into_iter().map(|row| (of, row)));
                if !rows.is_empty() {
                    self.absent.insert(of, rows);
                }
                self.control.remove_view(index);
            }
        }
    }

    /// Forgets a switch that is not attached.
    pub(super) fn forget(&mut self, node: NodeId) {
        let rows = self.absent.remove(&Some(node)).unwrap_or_default();
        self.pending.extend(rows.into_iter().map(|row| (Some(node), PartRow { value: None, ..row })));
    }

    /// Sends what the skeleton emitted, each view's in order.
    pub(super) fn send(&self, id: u32, out: ViewUpdates, draft: &mut Draft, phase: impl Fn(NodeId) -> u32) {
        let mut bodies: Vec<Vec<Body>> = self.views.iter().map(|_| Vec::new()).collect();
        for (view, emitted) in out {
            let bodies = &mut bodies[view];
            match emitted {
                Emitted::Update(bytes) => match bodies.last_mut() {
                    Some(Body::Updates { updates, .. }) if updates.as_bytes().len() + bytes.len() <= PART_BYTES => {
                        updates.push(&bytes);
                    }
                    _ => bodies.push(Body::Updates { table: id, updates: Updates::from_iter([bytes]) }),
                },
                // It includes everything before it.
                Emitted::Whole(bytes) => *bodies = image_parts(id, bytes).collect(),
            }
        }
        for (view, bodies) in self.views.iter().zip(bodies) {
            for body in bodies {
                view.switches.iter().for_each(|node| draft.send(phase(*node), *node, body.clone()));
            }
        }
    }

    /// The durable rows of the parts and views that changed; the next mutation starts afresh.
    pub(super) fn take_rows(&mut self, id: u32, rows: &mut Vec<RowChange>) {
        let changed = self.control.take_rows().into_iter();
        rows.extend(changed.map(|row| Row::part(id, row.key, row.value)));
        self.take_view_rows(id, rows);
    }

    /// The durable rows of the views that changed.
    pub(super) fn take_view_rows(&mut self, id: u32, rows: &mut Vec<RowChange>) {
        rows.extend(self.pending.drain(..).map(|(of, row)| Row::view(id, of, row)));
        for (index, view) in self.views.iter().enumerate() {
            rows.extend(self.control.take_view_rows(index).into_iter().map(|row| Row::view(id, view.of, row)));
        }
    }

    /// The durable rows of all parts and views.
    pub(super) fn all_rows(&self, id: u32) -> impl Iterator<Item = RowChange> {
        self.control.all_rows().map(move |row| Row::part(id, row.key, row.value)).chain(self.view_rows(id))
    }

    /// The durable rows of all views.
    pub(super) fn view_rows(&self, id: u32) -> impl Iterator<Item = RowChange> {
        let views = self.views.iter().enumerate().flat_map(move |(index, view)| {
            self.control.view_rows(index).into_iter().map(move |row| Row::view(id, view.of, row))
        });
        let absent =
            self.absent.iter().flat_map(move |(of, rows)| rows.iter().map(move |row| Row::view(id, *of, row.clone())));
        views.chain(absent)
    }

    pub(super) fn row(&self, id: u32) -> Row {
        let design = (self.spec.design.name.to_owned(), self.spec.fingerprint_bits);
        Row::Table { id, tenants: self.tenants.clone(), valid_version: self.valid.version, design }
    }
}

impl Network {
    /// Parts that changes of names made anew, split or merged, by design, as long as this network is in memory.
    pub fn parts_rebuilt(&self) -> BTreeMap<&'static str, u64> {
        let mut all = self.rebuilt_before.clone();
        for table in self.tables.values() {
            *all.entry(table.spec.design.name).or_default() += table.control.n_rebuilt();
        }
        all
    }

    /// Keeps the count of a table that goes.
    pub(super) fn keep_rebuilt(&mut self, table: &Table) {
        *self.rebuilt_before.entry(table.spec.design.name).or_default() += table.control.n_rebuilt();
    }
}

//! One graph of names, and the views of it: what the cells of each switch must hold.
//!
//! A table is shared by all switches that hold the names of the same tenants. In port mode every attached switch has
//! a view of its own; in egress mode one view serves them all.

use crate::codec::PART_BYTES;
use crate::durable::{Row, RowChange, Tenants};
use crate::messages::{Body, Held, HeldShard};
use crate::topology::NodeId;
use lookup::hash::Digest;
use lookup::othello::{Change, Colouring, Graph, ShardId, ShardImage, Update};
use lookup::traits::InsertError;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The names of some tenants as one graph.
pub(super) struct Table {
    pub(super) tenants: Tenants,
    pub(super) graph: Graph,
    /// Version and digest of the valid names.
    pub(super) valid: Held,
    pub(super) views: Vec<View>,
    /// Shards changed by the mutation at hand, and those that they replaced.
    changed: BTreeMap<u32, ShardId>,
    replaced: BTreeSet<ShardId>,
}

/// The colouring that one switch has, or all switches of a table.
pub(super) struct View {
    /// The switch; `None` when the view serves all switches of its table.
    pub(super) of: Option<NodeId>,
    pub(super) colouring: Colouring,
    /// Values by index of the place that a name hangs off.
    pub(super) values: Vec<u16>,
    /// Attached switches.
    pub(super) switches: BTreeSet<NodeId>,
}

impl Table {
    pub(super) fn new(tenants: Tenants, graph: Graph, valid: Held) -> Table {
        Table { tenants, graph, valid, views: Vec::new(), changed: BTreeMap::new(), replaced: BTreeSet::new() }
    }

    /// Whether changes are noted that no view has been told: an earlier mutation was undone half way.
    pub(super) fn is_behind(&self) -> bool {
        !self.changed.is_empty()
    }

    pub(super) fn insert(&mut self, digest: Digest, place: u32) -> Result<Change, InsertError> {
        let change = self.graph.insert(digest, place)?;
        self.note(&change);
        Ok(change)
    }

    pub(super) fn insert_batch(&mut self, entries: &[(Digest, u32)]) -> Result<(), InsertError> {
        let change = self.graph.insert_batch(entries)?;
        self.note(&change);
        Ok(())
    }

    pub(super) fn remove(&mut self, digest: Digest) -> Change {
        let change = self.graph.remove(digest);
        self.note(&change);
        change
    }

    fn note(&mut self, change: &Change) {
        match change {
            Change::None => {}
            Change::Cells { slot } => _ = self.changed.insert(*slot, self.graph.shard_state(*slot).id),
            Change::Shards { slots, replaced } => {
                self.changed.retain(|_, id| !replaced.contains(id));
                self.replaced.extend(replaced);
                for slot in slots {
                    self.changed.insert(*slot, self.graph.shard_state(*slot).id);
                }
            }
        }
    }

    /// Appends the encoded updates of every view after `change`, which must be the latest mutation of the graph.
    pub(super) fn emit(&mut self, change: &Change, encoded: &mut Vec<(usize, Vec<u8>)>) {
        let bits = self.graph.settings().value_bits;
        let mut updates = Vec::new();
        for (index, view) in self.views.iter_mut().enumerate() {
            let values = &view.values;
            view.colouring.updates(&self.graph, change, |place: u32| values[place as usize].into(), &mut updates);
            encoded.extend(updates.drain(..).map(|update| (index, encode(&update, bits))));
        }
    }

    /// The updates of every view after any number of mutations: all changed shards, whole.
    pub(super) fn emit_changed(&mut self, id: u32) -> Vec<(usize, Body)> {
        let bits = self.graph.settings().value_bits;
        let mut slots: Vec<(u32, ShardId)> = self.changed.iter().map(|(slot, id)| (*slot, *id)).collect();
        slots.sort_unstable_by_key(|(_, id)| span(*id).start);
        let inside = |at: u64| self.replaced.iter().any(|old| span(*old).start < at && at < span(*old).end);
        let mut bodies = Vec::new();
        for (index, view) in self.views.iter_mut().enumerate() {
            let images = slots.iter().map(|(slot, _)| view.image(&self.graph, *slot));
            let cut = |image: &ShardImage| !inside(span(image.id).start);
            bodies.extend(in_parts(images, cut).map(|part| (index, shards_body(id, part, bits))));
        }
        bodies
    }

    /// Gives the view other values, under a new version of every shard; the shards whose cells change.
    /// The graph must have been touched.
    pub(super) fn revalue(&mut self, id: u32, view: usize, values: Vec<u16>) -> Vec<Body> {
        let bits = self.graph.settings().value_bits;
        let view = &mut self.views[view];
        view.values = values;
        let held: Vec<_> = view.colouring.held(&self.graph).collect();
        let mut images = Vec::new();
        for (slot, _, version, digest) in held {
            let image = view.image(&self.graph, slot);
            if image.digest == digest {
                view.colouring.set_version(slot, version);
            } else {
                images.push(image);
            }
        }
        in_parts(images, |_| true).map(|part| shards_body(id, part, bits)).collect()
    }

    /// Gives every shard a new version.
    pub(super) fn touch(&mut self) {
        let change = self.graph.touch();
        self.note(&change);
    }

    /// The durable rows of the shards that the mutation at hand changed; the next mutation starts afresh.
    pub(super) fn take_rows(&mut self, id: u32, rows: &mut Vec<RowChange>) {
        let changed = std::mem::take(&mut self.changed);
        let gone = std::mem::take(&mut self.replaced);
        rows.extend(
            gone.into_iter().filter(|old| !changed.values().any(|id| id == old)).map(|old| Row::delete_shard(id, old)),
        );
        rows.extend(changed.keys().map(|slot| self.shard_row(id, *slot).encode()));
    }

    fn shard_row(&self, table: u32, slot: u32) -> Row {
        let mut tombstones: Vec<Digest> = self.graph.tombstones_of(slot).collect();
        tombstones.sort_unstable();
        Row::Shard { table, state: self.graph.shard_state(slot), tombstones }
    }

    /// The durable rows of all shards.
    pub(super) fn all_rows(&self, table: u32) -> impl Iterator<Item = Row> {
        // Both come in the order of shards.
        let mut tombstones = self.graph.tombstones().peekable();
        self.graph.shard_states().map(move |state| {
            let mut own = Vec::new();
            while let Some(digest) = tombstones.next_if(|digest| self.graph.shard_of(*digest) == state.id) {
                own.push(digest);
            }
            own.sort_unstable();
            Row::Shard { table, state, tombstones: own }
        })
    }

    pub(super) fn row(&self, id: u32) -> Row {
        Row::Table { id, tenants: self.tenants.clone(), valid_version: self.valid.version }
    }
}

impl View {
    /// A view of the graph as it stands, and all its shards.
    pub(super) fn new(graph: &Graph, of: Option<NodeId>, values: Vec<u16>) -> (View, Vec<ShardImage>) {
        let (colouring, query) = Colouring::export(graph, |place: u32| values[place as usize].into());
        (View { of, colouring, values, switches: BTreeSet::new() }, query.shards())
    }

    /// One shard, noted as sent under its version in the graph.
    fn image(&mut self, graph: &Graph, slot: u32) -> ShardImage {
        let values = &self.values;
        self.colouring.image(graph, slot, |place: u32| values[place as usize].into())
    }

    /// All shards, each under the version that the attached switches have.
    pub(super) fn images(&mut self, graph: &Graph) -> Vec<ShardImage> {
        let held: Vec<_> = self.colouring.held(graph).collect();
        held.into_iter()
            .map(|(slot, _, version, _)| {
                let image = self.image(graph, slot);
                self.colouring.set_version(slot, version);
                ShardImage { version, ..image }
            })
            .collect()
    }
}

/// The digests of a shard as an interval of the first 32 bits.
pub(super) fn span(id: ShardId) -> Range<u64> {
    let width = 32 - u32::from(id.depth);
    u64::from(id.prefix) << width..(u64::from(id.prefix) + 1) << width
}

/// The parts of a table in which a switch differs: runs of our shards, each run covering whole shards of both sides.
///
/// `None` when the report does not cover all digests once: then it says nothing.
pub(super) fn differing(report: &[HeldShard], ours: &[HeldShard]) -> Option<Vec<Range<usize>>> {
    let mut runs = Vec::new();
    let (mut theirs_at, mut at) = (0, 0);
    while at < ours.len() {
        let start = at;
        let (mut end, mut their_end) = (span(ours[at].id).start, span(report.get(theirs_at)?.id).start);
        if end != their_end {
            return None;
        }
        let alike = ours[at] == report[theirs_at];
        // Take shards from whichever side is behind until both end at one digest.
        loop {
            if end <= their_end {
                let next = span(ours.get(at)?.id);
                (at, end) = (at + 1, next.end);
            } else {
                let next = span(report.get(theirs_at)?.id);
                if next.start != their_end {
                    return None;
                }
                (theirs_at, their_end) = (theirs_at + 1, next.end);
            }
            if end == their_end {
                break;
            }
        }
        if !(alike && at == start + 1) {
            runs.push(start..at);
        }
    }
    (theirs_at == report.len()).then_some(runs)
}

/// Shards in parts of about [`PART_BYTES`], cut only before shards where `may_cut`.
pub(super) fn in_parts(
    images: impl IntoIterator<Item = ShardImage>,
    may_cut: impl Fn(&ShardImage) -> bool,
) -> impl Iterator<Item = Vec<ShardImage>> {
    let mut images = images.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut part = vec![images.next()?];
        let mut bytes = part[0].words.len() * 8;
        while let Some(image) = images.next_if(|next| bytes < PART_BYTES || !may_cut(next)) {
            bytes += image.words.len() * 8;
            part.push(image);
        }
        Some(part)
    })
}

/// Encoded updates as messages of bounded size, each view's in order.
pub(super) fn bodies(table: u32, encoded: Vec<(usize, Vec<u8>)>) -> Vec<(usize, Body)> {
    let mut views: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
    encoded.into_iter().for_each(|(view, bytes)| views.entry(view).or_default().push(bytes));
    let mut bodies = Vec::new();
    for (view, updates) in views {
        let (mut part, mut size) = (Vec::new(), 0);
        for bytes in updates {
            if size > 0 && size + bytes.len() > PART_BYTES {
                bodies.push((view, Body::Updates { table, updates: std::mem::take(&mut part) }));
                size = 0;
            }
            size += bytes.len();
            part.push(bytes);
        }
        bodies.push((view, Body::Updates { table, updates: part }));
    }
    bodies
}

fn encode(update: &Update, value_bits: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    update.encode(value_bits, &mut bytes);
    bytes
}

fn shards_body(table: u32, shards: Vec<ShardImage>, value_bits: u8) -> Body {
    Body::Updates { table, updates: vec![encode(&Update::Shards(shards), value_bits)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(prefix: u32, depth: u8, version: u64) -> HeldShard {
        HeldShard { id: ShardId { prefix, depth }, version, digest: 0 }
    }

    #[test]
    fn differing_runs_cover_whole_shards_of_both_sides() {
        let ours = [held(0, 2, 1), held(1, 2, 1), held(1, 1, 5)];
        assert_eq!(differing(&ours, &ours), Some(vec![]));
        // A split that the switch missed.
        let one_run = |range| Some(Vec::from([range]));
        assert_eq!(differing(&[held(0, 1, 1), held(1, 1, 5)], &ours), one_run(0..2));
        // A merge that it missed, and an older version.
        let theirs = [held(0, 2, 1), held(1, 2, 0), held(2, 2, 5), held(3, 2, 5)];
        assert_eq!(differing(&theirs, &ours), Some(vec![1..2, 2..3]));
        assert_eq!(differing(&[held(0, 0, 1)], &ours), one_run(0..3));
    }

    #[test]
    fn reports_that_do_not_cover_all_digests_say_nothing() {
        let ours = [held(0, 1, 1), held(1, 1, 5)];
        for report in [
            vec![],
            vec![held(0, 1, 1)],
            vec![held(1, 1, 5)],
            vec![held(0, 1, 1), held(0, 1, 1)],
            vec![held(0, 1, 1), held(1, 1, 5), held(1, 1, 5)],
            vec![held(0, 2, 1), held(1, 1, 5)],
        ] {
            assert_eq!(differing(&report, &ours), None, "{report:?}");
        }
    }
}

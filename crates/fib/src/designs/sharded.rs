//! The control half of designs whose names are arranged in shards by their digests, whatever names mean at each switch:
//! one arrangement for all switches, and a view of it for each.

use super::keys::Key;
use super::skeleton::{Emitted, Lacking, Outbox, PartRow, Skeleton};
use super::table::Table;
use crate::codec::{DecodeError, Input, PART_BYTES};
use crate::messages::HeldShard;
use lookup::hash::Digest;
use lookup::othello::{Change, ShardId};
use lookup::traits::InsertError;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Names in shards, each with its place; a mutation says which shards it changed, or which cells of one.
pub(super) trait Arrangement: Send + Sized + 'static {
    /// What one switch has of it.
    type View: Send;
    /// A whole shard of a view.
    type Image: Image;
    /// With so many names a shard, on average over all shards, a batch builds shards anew and sends them whole.
    const BATCH_A_SHARD: usize;

    fn insert(&mut self, digest: Digest, place: u32) -> Result<Change, InsertError>;
    fn insert_batch(&mut self, entries: &[(Digest, u32)]) -> Result<Change, InsertError>;
    fn remove(&mut self, digest: Digest) -> Change;
    /// Gives every shard a new version.
    fn touch(&mut self) -> Change;
    fn n_shards(&self) -> usize;
    fn shard_id(&self, slot: u32) -> ShardId;
    /// The row that the store keeps of a shard.
    fn row(&self, slot: u32) -> PartRow;
    /// Those of all shards.
    fn rows(&self) -> Box<dyn Iterator<Item = PartRow> + '_>;
    fn heap_bytes(&self) -> usize;
    #[cfg(test)]
    fn must_drop(&self, digest: Digest) -> bool;

    /// A view with these values, by place, and all of its shards.
    fn view(&self, values: &[u16]) -> (Self::View, Vec<Self::Image>);
    /// Appends the bytes of the updates that bring a view along after the latest mutation.
    fn updates(&self, view: &mut Self::View, change: &Change, values: &[u16], out: &mut Vec<Vec<u8>>);
    /// One shard, noted as sent under its version in the arrangement.
    fn image(&self, view: &mut Self::View, slot: u32, values: &[u16]) -> Self::Image;
    /// What a switch that is up to date has of every shard, by slot, in order of digests.
    fn held(&self, view: &Self::View) -> Vec<(u32, HeldShard)>;
    /// Notes that the switch has another version of a shard.
    fn set_version(view: &mut Self::View, slot: u32, version: u64);
    /// Whole shards as one update.
    fn encode(&self, images: Vec<Self::Image>) -> Vec<u8>;
    /// Tables with these values, beside all views.
    fn tables(&self, values: &[Vec<u16>]) -> Vec<Box<dyn Table>>;
}

/// A whole shard of a view.
pub(super) trait Image: Send {
    fn id(&self) -> ShardId;
    fn digest(&self) -> u64;
    fn n_bytes(&self) -> usize;
    /// The same under another version.
    fn under(self, version: u64) -> Self;
}

/// One arrangement, and its views.
pub(super) struct Sharded<A: Arrangement> {
    arrangement: A,
    views: Vec<View<A>>,
    /// Shards changed since rows were taken last, and those that they replaced.
    changed: BTreeMap<u32, ShardId>,
    replaced: BTreeSet<ShardId>,
    /// Whether the views were not told of `changed`.
    behind: bool,
}

/// A view, with what it was made of.
struct View<A: Arrangement> {
    view: A::View,
    values: Vec<u16>,
    /// The shards as they were when the view was made, until somebody asks for them.
    fresh: Option<Vec<A::Image>>,
}

impl<A: Arrangement> Sharded<A> {
    pub(super) fn new(arrangement: A) -> Sharded<A> {
        let (changed, replaced) = (BTreeMap::new(), BTreeSet::new());
        Sharded { arrangement, views: Vec::new(), changed, replaced, behind: false }
    }

    fn note(&mut self, change: &Change) {
        match change {
            Change::None => {}
            Change::Cells { slot } => _ = self.changed.insert(*slot, self.arrangement.shard_id(*slot)),
            Change::Shards { slots, replaced } => {
                self.changed.retain(|_, id| !replaced.contains(id));
                self.replaced.extend(replaced);
                for slot in slots {
                    self.changed.insert(*slot, self.arrangement.shard_id(*slot));
                }
            }
        }
    }

    /// Appends the updates of every view after `change`, which must be the latest mutation of the arrangement.
    fn emit(&mut self, change: &Change, out: &mut Outbox) {
        self.note(change);
        let mut updates = Vec::new();
        for (index, view) in self.views.iter_mut().enumerate() {
            self.arrangement.updates(&mut view.view, change, &view.values, &mut updates);
            view.fresh = None;
            out.extend(updates.drain(..).map(|update| (index, Emitted::Update(update))));
        }
    }

    /// The updates of every view after any number of mutations: all changed shards, whole.
    fn emit_changed(&mut self, out: &mut Outbox) {
        let mut slots: Vec<(u32, ShardId)> = self.changed.iter().map(|(slot, id)| (*slot, *id)).collect();
        slots.sort_unstable_by_key(|(_, id)| span(*id).start);
        let inside = |at: u64| self.replaced.iter().any(|old| span(*old).start < at && at < span(*old).end);
        for (index, view) in self.views.iter_mut().enumerate() {
            let images = slots.iter().map(|(slot, _)| view.image(&self.arrangement, *slot));
            let cut = |image: &A::Image| !inside(span(image.id()).start);
            out.extend(in_parts(images, cut).map(|part| (index, Emitted::Update(self.arrangement.encode(part)))));
        }
        self.behind = false;
    }
}

impl<A: Arrangement> Skeleton for Sharded<A> {
    fn change(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>], out: &mut Outbox) -> Result<(), InsertError> {
        if self.is_bulk(put.len() + remove.len()) || self.behind {
            let entries: Vec<(Digest, u32)> = put.iter().map(|(key, place)| (key.digest, *place)).collect();
            if !entries.is_empty() {
                let change = self.arrangement.insert_batch(&entries)?;
                self.note(&change);
            }
            for key in remove {
                let change = self.arrangement.remove(key.digest);
                self.note(&change);
            }
            self.emit_changed(out);
            return Ok(());
        }
        for (key, place) in put {
            let change = self.arrangement.insert(key.digest, *place)?;
            self.emit(&change, out);
        }
        for key in remove {
            let change = self.arrangement.remove(key.digest);
            self.emit(&change, out);
        }
        Ok(())
    }

    fn undo(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>]) {
        for (key, place) in put {
            // The name was there a moment ago: what may fail here is a shard that was solved with it.
            if let Ok(change) = self.arrangement.insert(key.digest, *place) {
                self.note(&change);
            }
        }
        for key in remove {
            let change = self.arrangement.remove(key.digest);
            self.note(&change);
        }
        self.behind |= !self.changed.is_empty();
    }

    fn catch_up(&mut self, out: &mut Outbox) {
        if self.behind {
            self.emit_changed(out);
        }
    }

    fn add_view(&mut self, values: Vec<u16>, report: &[HeldShard]) -> Result<(), InsertError> {
        let (mut made, images) = self.arrangement.view(&values);
        // The versions that its switch has of shards that are as they should be: later ones changed no cell of it, so
        // it was told of none.
        let theirs: HashMap<ShardId, &HeldShard> = report.iter().map(|shard| (shard.id, shard)).collect();
        for (slot, ours) in self.arrangement.held(&made) {
            let same = |shard: &&&HeldShard| shard.digest == ours.digest && shard.version < ours.version;
            if let Some(shard) = theirs.get(&ours.id).filter(same) {
                A::set_version(&mut made, slot, shard.version);
            }
        }
        self.views.push(View { view: made, values, fresh: Some(images) });
        Ok(())
    }

    fn remove_view(&mut self, view: usize) {
        self.views.remove(view);
    }

    fn values(&self, view: usize) -> &[u16] {
        &self.views[view].values
    }

    fn learn_place(&mut self, view: usize, value: u16) {
        self.views[view].values.push(value);
    }

    fn revalue(&mut self, changed: Vec<(usize, Vec<u16>)>, out: &mut Outbox) {
        if changed.is_empty() {
            return;
        }
        // Under a new version of every shard.
        let change = self.arrangement.touch();
        self.note(&change);
        for (index, values) in changed {
            let view = &mut self.views[index];
            view.values = values;
            let mut images = Vec::new();
            for (slot, held) in self.arrangement.held(&view.view) {
                let image = view.image(&self.arrangement, slot);
                if image.digest() == held.digest {
                    A::set_version(&mut view.view, slot, held.version);
                } else {
                    images.push(image);
                }
            }
            let parts = in_parts(images, |_| true);
            out.extend(parts.map(|part| (index, Emitted::Update(self.arrangement.encode(part)))));
        }
    }

    fn image(&mut self, view: usize) -> Vec<u8> {
        let images = self.views[view].images(&self.arrangement);
        self.arrangement.encode(images)
    }

    fn held(&self, view: usize) -> Vec<HeldShard> {
        self.arrangement.held(&self.views[view].view).into_iter().map(|(_, held)| held).collect()
    }

    fn lacking(&mut self, view: usize, report: &[HeldShard]) -> Lacking {
        let ours = self.held(view);
        let runs = differing(report, &ours);
        if runs.as_ref().is_some_and(Vec::is_empty) {
            self.views[view].fresh = None;
            return Lacking::Nothing;
        }
        let images = self.views[view].images(&self.arrangement);
        let Some(runs) = runs else { return Lacking::Whole(self.arrangement.encode(images)) };
        let starts: BTreeSet<u64> = runs.iter().map(|run| span(ours[run.start].id).start).collect();
        let mut lacking = vec![false; images.len()];
        runs.into_iter().for_each(|run| lacking[run].fill(true));
        let images = images.into_iter().zip(lacking).filter(|(_, lacks)| *lacks).map(|(image, _)| image);
        let may_cut = |image: &A::Image| starts.contains(&span(image.id()).start);
        Lacking::Parts(in_parts(images, may_cut).map(|part| self.arrangement.encode(part)).collect())
    }

    fn export_many(&self, values: &[Vec<u16>]) -> Result<Vec<Box<dyn Table>>, InsertError> {
        Ok(self.arrangement.tables(values))
    }

    fn take_rows(&mut self) -> Vec<PartRow> {
        if self.behind {
            // They will be told, and the rows be taken, with the next change.
            return Vec::new();
        }
        let changed = std::mem::take(&mut self.changed);
        let gone = std::mem::take(&mut self.replaced);
        let gone = gone.into_iter().filter(|old| !changed.values().any(|id| id == old));
        let gone = gone.map(|old| PartRow { key: row_key(old), value: None });
        gone.chain(changed.keys().map(|slot| self.arrangement.row(*slot))).collect()
    }

    fn all_rows(&self) -> Box<dyn Iterator<Item = PartRow> + '_> {
        self.arrangement.rows()
    }

    fn is_bulk(&self, n: usize) -> bool {
        n >= A::BATCH_A_SHARD * self.arrangement.n_shards()
    }

    fn heap_bytes(&self) -> usize {
        self.arrangement.heap_bytes()
    }

    #[cfg(test)]
    fn is_behind(&self) -> bool {
        self.behind
    }

    #[cfg(test)]
    fn must_drop(&self, key: Key<'_>) -> bool {
        self.arrangement.must_drop(key.digest)
    }
}

impl<A: Arrangement> View<A> {
    /// One shard, noted as sent under its version in the arrangement.
    fn image(&mut self, arrangement: &A, slot: u32) -> A::Image {
        self.fresh = None;
        arrangement.image(&mut self.view, slot, &self.values)
    }

    /// All shards, each under the version that the attached switches have.
    fn images(&mut self, arrangement: &A) -> Vec<A::Image> {
        let held = arrangement.held(&self.view);
        if let Some(images) = self.fresh.take() {
            return images.into_iter().zip(held).map(|(image, (_, held))| image.under(held.version)).collect();
        }
        held.into_iter()
            .map(|(slot, held)| {
                let image = self.image(arrangement, slot);
                A::set_version(&mut self.view, slot, held.version);
                image.under(held.version)
            })
            .collect()
    }
}

/// The digests of a shard as an interval of the first 32 bits.
pub(super) fn span(id: ShardId) -> Range<u64> {
    let width = 32 - u32::from(id.depth);
    u64::from(id.prefix) << width..(u64::from(id.prefix) + 1) << width
}

/// Left-aligned, so that keys sort in the order of digests.
pub(super) fn row_key(id: ShardId) -> Vec<u8> {
    let aligned = (u64::from(id.prefix) << (32 - u32::from(id.depth))) as u32;
    let mut key = aligned.to_be_bytes().to_vec();
    key.push(id.depth);
    key
}

/// The shard that [`row_key`] made a key of.
pub(super) fn shard_of_key(key: &[u8]) -> Result<ShardId, DecodeError> {
    let mut input = Input::raw(key);
    let aligned = u32::from_be_bytes(input.array()?);
    let depth = input.u8()?;
    if depth > 32 {
        return Err(DecodeError::Unknown { field: "depth of a shard", got: depth.into() });
    }
    input.end()?;
    Ok(ShardId { prefix: (u64::from(aligned) >> (32 - u32::from(depth))) as u32, depth })
}

/// The parts of a table in which a switch differs: runs of our shards, each run covering whole shards of both sides.
///
/// `None` when the report does not cover all digests once: then it says nothing.
fn differing(report: &[HeldShard], ours: &[HeldShard]) -> Option<Vec<Range<usize>>> {
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
fn in_parts<I: Image>(
    images: impl IntoIterator<Item = I>,
    may_cut: impl Fn(&I) -> bool,
) -> impl Iterator<Item = Vec<I>> {
    let mut images = images.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut part = vec![images.next()?];
        let mut bytes = part[0].n_bytes();
        while let Some(image) = images.next_if(|next| bytes < PART_BYTES || !may_cut(next)) {
            bytes += image.n_bytes();
            part.push(image);
        }
        Some(part)
    })
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

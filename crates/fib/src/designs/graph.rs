//! Both halves of the designs made of an Othello: one graph for all switches, coloured for each.

use super::keys::{Burst, Key};
use super::skeleton::{Emitted, Lacking, Outbox, PartRow, Skeleton};
use super::table::{Reader, Table, TableError};
use super::{RestoreError, Spec};
use crate::codec::{DecodeError, Input, PART_BYTES, put_u32, put_u64};
use crate::messages::HeldShard;
use lookup::hash::Digest;
use lookup::othello::{self, Change, Colouring, Graph, OthelloQuery, ShardId, ShardImage, ShardState, Sides, Update};
use lookup::traits::{Applied, InsertError, Query};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// With this many names a shard, on average over all shards, a batch solves shards anew and sends them whole: 25 ns for
/// every name of a shard against 1 us, and 10 KB against 60 bytes, for every name of the batch.
const BATCH_A_SHARD: usize = 50;

fn settings(spec: &Spec) -> othello::Settings {
    othello::Settings::new(spec.value_bits, spec.max_names, &spec.key).with_fingerprints(spec.fingerprint_bits)
}

/// The table in an image.
pub(super) fn table(spec: &Spec, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
    let settings = settings(spec);
    let Update::Shards(shards) = Update::decode(image, settings.cell_bits())? else {
        return Err(TableError::NotWhole);
    };
    Ok(Box::new(Cells(OthelloQuery::from_shards(&settings, &shards)?)))
}

/// The graph of `names` with their places.
pub(super) fn skeleton(
    spec: &Spec,
    names: &[(Key<'_>, u32)],
    threads: usize,
) -> Result<Box<dyn Skeleton>, InsertError> {
    let names: Vec<(Digest, u32)> = names.iter().map(|(key, place)| (key.digest, *place)).collect();
    Ok(Box::new(SharedGraph::new(Graph::build(settings(spec), &names, threads)?)))
}

/// The graph that its rows describe.
pub(super) fn restore(
    spec: &Spec,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    names: &[(Key<'_>, u32)],
    _threads: usize,
) -> Result<Box<dyn Skeleton>, RestoreError> {
    let (mut states, mut tombstones) = (Vec::new(), Vec::new());
    for (key, value) in rows {
        let (state, own) = decode_row(&key, &value)?;
        tombstones.extend(own.into_iter().map(|digest| (digest, 0)));
        states.push(state);
    }
    states.sort_by_key(|state| span(state.id).start);
    let names: Vec<(Digest, u32)> = names.iter().map(|(key, place)| (key.digest, *place)).collect();
    Ok(Box::new(SharedGraph::new(Graph::restore(settings(spec), &states, &names, &tombstones)?)))
}

/// An Othello in a switch.
struct Cells(OthelloQuery);

impl Table for Cells {
    fn lookup_batch(&self, burst: &Burst<'_>, values: &mut [u64]) {
        self.0.lookup_batch(burst.digests, values);
    }

    fn apply(&mut self, update: &[u8]) -> Result<Applied, TableError> {
        let update = Update::decode(update, self.0.settings().cell_bits())?;
        Ok(self.0.apply(&update)?)
    }

    fn overwrite(&mut self, parts: &[u8]) -> Result<(), TableError> {
        match Update::decode(parts, self.0.settings().cell_bits())? {
            Update::Shards(shards) => Ok(self.0.overwrite(&shards)?),
            Update::Cells(_) => Err(TableError::NotWhole),
        }
    }

    fn image(&self) -> Vec<u8> {
        encode(&Update::Shards(self.0.shards()), self.0.settings().cell_bits())
    }

    fn held(&self) -> Vec<HeldShard> {
        self.0.held().map(|(id, version, digest)| HeldShard { id, version, digest }).collect()
    }

    fn size_bits(&self) -> u64 {
        self.0.size_bits()
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(self.0.reader())
    }
}

impl Reader for othello::Reader {
    #[inline]
    fn lookup_batch(&mut self, burst: &Burst<'_>, values: &mut [u64]) {
        self.pin().lookup_batch(burst.digests, values);
    }

    fn offline(&mut self) {
        othello::Reader::offline(self);
    }
}

/// One graph, and its colourings.
struct SharedGraph {
    graph: Graph,
    views: Vec<View>,
    /// Shards changed since rows were taken last, and those that they replaced.
    changed: BTreeMap<u32, ShardId>,
    replaced: BTreeSet<ShardId>,
    /// Whether the views were not told of `changed`.
    behind: bool,
}

/// A colouring, with what it was made of.
struct View {
    colouring: Colouring,
    values: Vec<u16>,
    /// The shards as they were coloured when the view was made, until somebody asks for them.
    fresh: Option<Vec<ShardImage>>,
}

impl SharedGraph {
    fn new(graph: Graph) -> SharedGraph {
        SharedGraph { graph, views: Vec::new(), changed: BTreeMap::new(), replaced: BTreeSet::new(), behind: false }
    }

    fn cell_bits(&self) -> u8 {
        self.graph.settings().cell_bits()
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

    /// Appends the updates of every view after `change`, which must be the latest mutation of the graph.
    fn emit(&mut self, change: &Change, out: &mut Outbox) {
        self.note(change);
        let bits = self.cell_bits();
        let mut updates = Vec::new();
        for (index, view) in self.views.iter_mut().enumerate() {
            let values = &view.values;
            view.colouring.updates(&self.graph, change, |place: u32| values[place as usize].into(), &mut updates);
            view.fresh = None;
            out.extend(updates.drain(..).map(|update| (index, Emitted::Update(encode(&update, bits)))));
        }
    }

    /// The updates of every view after any number of mutations: all changed shards, whole.
    fn emit_changed(&mut self, out: &mut Outbox) {
        let bits = self.cell_bits();
        let mut slots: Vec<(u32, ShardId)> = self.changed.iter().map(|(slot, id)| (*slot, *id)).collect();
        slots.sort_unstable_by_key(|(_, id)| span(*id).start);
        let inside = |at: u64| self.replaced.iter().any(|old| span(*old).start < at && at < span(*old).end);
        for (index, view) in self.views.iter_mut().enumerate() {
            let images = slots.iter().map(|(slot, _)| view.image(&self.graph, *slot));
            let cut = |image: &ShardImage| !inside(span(image.id).start);
            out.extend(in_parts(images, cut).map(|part| (index, Emitted::Update(encode(&Update::Shards(part), bits)))));
        }
        self.behind = false;
    }

    fn row(&self, slot: u32) -> PartRow {
        let mut tombstones: Vec<Digest> = self.graph.tombstones_of(slot).collect();
        tombstones.sort_unstable();
        encode_row(&self.graph.shard_state(slot), &tombstones)
    }
}

impl Skeleton for SharedGraph {
    fn change(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>], out: &mut Outbox) -> Result<(), InsertError> {
        if self.is_bulk(put.len() + remove.len()) || self.behind {
            let entries: Vec<(Digest, u32)> = put.iter().map(|(key, place)| (key.digest, *place)).collect();
            if !entries.is_empty() {
                let change = self.graph.insert_batch(&entries)?;
                self.note(&change);
            }
            for key in remove {
                let change = self.graph.remove(key.digest);
                self.note(&change);
            }
            self.emit_changed(out);
            return Ok(());
        }
        for (key, place) in put {
            let change = self.graph.insert(key.digest, *place)?;
            self.emit(&change, out);
        }
        for key in remove {
            let change = self.graph.remove(key.digest);
            self.emit(&change, out);
        }
        Ok(())
    }

    fn undo(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>]) {
        for (key, place) in put {
            // The name was there a moment ago: what may fail here is a shard that was solved with it.
            if let Ok(change) = self.graph.insert(key.digest, *place) {
                self.note(&change);
            }
        }
        for key in remove {
            let change = self.graph.remove(key.digest);
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
        let (mut colouring, query) = Colouring::export(&self.graph, |place: u32| values[place as usize].into());
        // The versions that its switch has of shards that are as they should be: later ones changed no cell of it, so
        // it was told of none.
        let theirs: HashMap<ShardId, &HeldShard> = report.iter().map(|shard| (shard.id, shard)).collect();
        let ours: Vec<_> = colouring.held(&self.graph).collect();
        for (slot, id, version, digest) in ours {
            if let Some(shard) = theirs.get(&id).filter(|shard| shard.digest == digest && shard.version < version) {
                colouring.set_version(slot, shard.version);
            }
        }
        self.views.push(View { colouring, values, fresh: Some(query.shards()) });
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
        let change = self.graph.touch();
        self.note(&change);
        let bits = self.cell_bits();
        for (index, values) in changed {
            let view = &mut self.views[index];
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
            let parts = in_parts(images, |_| true);
            out.extend(parts.map(|part| (index, Emitted::Update(encode(&Update::Shards(part), bits)))));
        }
    }

    fn image(&mut self, view: usize) -> Vec<u8> {
        let bits = self.cell_bits();
        encode(&Update::Shards(self.views[view].images(&self.graph)), bits)
    }

    fn held(&self, view: usize) -> Vec<HeldShard> {
        let held = self.views[view].colouring.held(&self.graph);
        held.map(|(_, id, version, digest)| HeldShard { id, version, digest }).collect()
    }

    fn lacking(&mut self, view: usize, report: &[HeldShard]) -> Lacking {
        let ours = self.held(view);
        let runs = differing(report, &ours);
        if runs.as_ref().is_some_and(Vec::is_empty) {
            self.views[view].fresh = None;
            return Lacking::Nothing;
        }
        let bits = self.cell_bits();
        let images = self.views[view].images(&self.graph);
        let Some(runs) = runs else { return Lacking::Whole(encode(&Update::Shards(images), bits)) };
        let starts: BTreeSet<u64> = runs.iter().map(|run| span(ours[run.start].id).start).collect();
        let mut lacking = vec![false; images.len()];
        runs.into_iter().for_each(|run| lacking[run].fill(true));
        let images = images.into_iter().zip(lacking).filter(|(_, lacks)| *lacks).map(|(image, _)| image);
        let may_cut = |image: &ShardImage| starts.contains(&span(image.id).start);
        Lacking::Parts(in_parts(images, may_cut).map(|part| encode(&Update::Shards(part), bits)).collect())
    }

    fn export_many(&self, values: &[Vec<u16>]) -> Result<Vec<Box<dyn Table>>, InsertError> {
        let value = |view: usize, place: u32| u64::from(values[view][place as usize]);
        let queries = Colouring::export_many(&self.graph, values.len(), value);
        Ok(queries.into_iter().map(|(_, query)| Box::new(Cells(query)) as Box<dyn Table>).collect())
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
        gone.chain(changed.keys().map(|slot| self.row(*slot))).collect()
    }

    fn all_rows(&self) -> Box<dyn Iterator<Item = PartRow> + '_> {
        // Both come in the order of shards.
        let mut tombstones = self.graph.tombstones().peekable();
        Box::new(self.graph.shard_states().map(move |state| {
            let mut own = Vec::new();
            while let Some(digest) = tombstones.next_if(|digest| self.graph.shard_of(*digest) == state.id) {
                own.push(digest);
            }
            own.sort_unstable();
            encode_row(&state, &own)
        }))
    }

    fn is_bulk(&self, n: usize) -> bool {
        n >= BATCH_A_SHARD * self.graph.n_shards()
    }

    fn heap_bytes(&self) -> usize {
        self.graph.heap_bytes()
    }

    #[cfg(test)]
    fn is_behind(&self) -> bool {
        self.behind
    }

    #[cfg(test)]
    fn must_drop(&self, key: Key<'_>) -> bool {
        self.graph.has_tombstone(key.digest)
    }
}

impl View {
    /// One shard, noted as sent under its version in the graph.
    fn image(&mut self, graph: &Graph, slot: u32) -> ShardImage {
        let values = &self.values;
        self.fresh = None;
        self.colouring.image(graph, slot, |place: u32| values[place as usize].into())
    }

    /// All shards, each under the version that the attached switches have.
    fn images(&mut self, graph: &Graph) -> Vec<ShardImage> {
        let held: Vec<_> = self.colouring.held(graph).collect();
        if let Some(images) = self.fresh.take() {
            let versions = held.into_iter().map(|(_, _, version, _)| version);
            return images.into_iter().zip(versions).map(|(image, version)| ShardImage { version, ..image }).collect();
        }
        held.into_iter()
            .map(|(slot, _, version, _)| {
                let image = self.image(graph, slot);
                self.colouring.set_version(slot, version);
                ShardImage { version, ..image }
            })
            .collect()
    }
}

fn encode(update: &Update, cell_bits: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    update.encode(cell_bits, &mut bytes);
    bytes
}

/// The digests of a shard as an interval of the first 32 bits.
fn span(id: ShardId) -> Range<u64> {
    let width = 32 - u32::from(id.depth);
    u64::from(id.prefix) << width..(u64::from(id.prefix) + 1) << width
}

/// Left-aligned, so that keys sort in the order of digests.
fn row_key(id: ShardId) -> Vec<u8> {
    let aligned = (u64::from(id.prefix) << (32 - u32::from(id.depth))) as u32;
    let mut key = aligned.to_be_bytes().to_vec();
    key.push(id.depth);
    key
}

fn encode_row(state: &ShardState, tombstones: &[Digest]) -> PartRow {
    let mut value = Vec::new();
    put_u32(&mut value, state.sides.a);
    put_u32(&mut value, state.sides.b);
    value.extend_from_slice(&state.tweak.to_le_bytes());
    put_u64(&mut value, state.version);
    for digests in [&state.stash[..], tombstones] {
        put_u32(&mut value, digests.len() as u32);
        digests.iter().for_each(|digest| put_u64(&mut value, digest.0));
    }
    PartRow { key: row_key(state.id), value: Some(value) }
}

fn decode_row(key: &[u8], value: &[u8]) -> Result<(ShardState, Vec<Digest>), DecodeError> {
    let (mut key_input, mut input) = (Input::raw(key), Input::raw(value));
    let aligned = u32::from_be_bytes(key_input.array()?);
    let depth = key_input.u8()?;
    if depth > 32 {
        return Err(DecodeError::Unknown { field: "depth of a shard", got: depth.into() });
    }
    let prefix = (u64::from(aligned) >> (32 - u32::from(depth))) as u32;
    let sides = Sides { a: input.u32()?, b: input.u32()? };
    let (tweak, version) = (input.u16()?, input.u64()?);
    let mut digests = || {
        let count = input.count(8)?;
        (0..count).map(|_| Ok(Digest(input.u64()?))).collect::<Result<Vec<_>, DecodeError>>()
    };
    let (stash, tombstones) = (digests()?, digests()?);
    key_input.end()?;
    input.end()?;
    Ok((ShardState { id: ShardId { prefix, depth }, sides, tweak, version, stash }, tombstones))
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
fn in_parts(
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

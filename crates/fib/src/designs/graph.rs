//! Both halves of the designs made of an Othello: one graph for all switches, coloured for each.

use super::keys::{Burst, Key};
use super::sharded::{self, Arrangement, Sharded, row_key, shard_of_key, span};
use super::skeleton::{PartRow, Skeleton};
use super::table::{Reader, Table, TableError};
use super::{RestoreError, Spec};
use crate::codec::{DecodeError, Input, put_u32, put_u64};
use crate::messages::HeldShard;
use lookup::hash::Digest;
use lookup::othello::{self, Change, Colouring, Graph, OthelloQuery, ShardId, ShardImage, ShardState, Sides, Update};
use lookup::traits::{Applied, InsertError, Query};

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
    Ok(Box::new(Sharded::new(Graph::build(settings(spec), &names, threads)?)))
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
    Ok(Box::new(Sharded::new(Graph::restore(settings(spec), &states, &names, &tombstones)?)))
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

impl Arrangement for Graph {
    type View = Colouring;
    type Image = ShardImage;
    // 25 ns for every name of a shard against 1 us, and 10 KB against 60 bytes, for every name of the batch.
    const BATCH_A_SHARD: usize = 50;

    fn insert(&mut self, digest: Digest, place: u32) -> Result<Change, InsertError> {
        Graph::insert(self, digest, place)
    }

    fn insert_batch(&mut self, entries: &[(Digest, u32)]) -> Result<Change, InsertError> {
        Graph::insert_batch(self, entries)
    }

    fn remove(&mut self, digest: Digest) -> Change {
        Graph::remove(self, digest)
    }

    fn touch(&mut self) -> Change {
        Graph::touch(self)
    }

    fn n_shards(&self) -> usize {
        Graph::n_shards(self)
    }

    fn shard_id(&self, slot: u32) -> ShardId {
        self.shard_state(slot).id
    }

    fn row(&self, slot: u32) -> PartRow {
        let mut tombstones: Vec<Digest> = self.tombstones_of(slot).collect();
        tombstones.sort_unstable();
        encode_row(&self.shard_state(slot), &tombstones)
    }

    fn rows(&self) -> Box<dyn Iterator<Item = PartRow> + '_> {
        // Both come in the order of shards.
        let mut tombstones = self.tombstones().peekable();
        Box::new(self.shard_states().map(move |state| {
            let mut own = Vec::new();
            while let Some(digest) = tombstones.next_if(|digest| self.shard_of(*digest) == state.id) {
                own.push(digest);
            }
            own.sort_unstable();
            encode_row(&state, &own)
        }))
    }

    fn heap_bytes(&self) -> usize {
        Graph::heap_bytes(self)
    }

    #[cfg(test)]
    fn must_drop(&self, digest: Digest) -> bool {
        self.has_tombstone(digest)
    }

    fn view(&self, values: &[u16]) -> (Colouring, Vec<ShardImage>) {
        let (colouring, query) = Colouring::export(self, |place: u32| values[place as usize].into());
        (colouring, query.shards())
    }

    fn updates(&self, view: &mut Colouring, change: &Change, values: &[u16], out: &mut Vec<Vec<u8>>) {
        let (mut updates, bits) = (Vec::new(), self.settings().cell_bits());
        view.updates(self, change, |place: u32| values[place as usize].into(), &mut updates);
        out.extend(updates.iter().map(|update| encode(update, bits)));
    }

    fn image(&self, view: &mut Colouring, slot: u32, values: &[u16]) -> ShardImage {
        view.image(self, slot, |place: u32| values[place as usize].into())
    }

    fn held(&self, view: &Colouring) -> Vec<(u32, HeldShard)> {
        let held = |(slot, id, version, digest)| (slot, HeldShard { id, version, digest });
        view.held(self).map(held).collect()
    }

    fn set_version(view: &mut Colouring, slot: u32, version: u64) {
        view.set_version(slot, version);
    }

    fn encode(&self, images: Vec<ShardImage>) -> Vec<u8> {
        encode(&Update::Shards(images), self.settings().cell_bits())
    }

    fn tables(&self, values: &[Vec<u16>]) -> Vec<Box<dyn Table>> {
        let value = |view: usize, place: u32| u64::from(values[view][place as usize]);
        let queries = Colouring::export_many(self, values.len(), value);
        queries.into_iter().map(|(_, query)| Box::new(Cells(query)) as Box<dyn Table>).collect()
    }
}

impl sharded::Image for ShardImage {
    fn id(&self) -> ShardId {
        self.id
    }

    fn digest(&self) -> u64 {
        self.digest
    }

    fn n_bytes(&self) -> usize {
        self.words.len() * 8
    }

    fn under(self, version: u64) -> Self {
        Self { version, ..self }
    }
}

fn encode(update: &Update, cell_bits: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    update.encode(cell_bits, &mut bytes);
    bytes
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
    let id = shard_of_key(key)?;
    let mut input = Input::raw(value);
    let sides = Sides { a: input.u32()?, b: input.u32()? };
    let (tweak, version) = (input.u16()?, input.u64()?);
    let mut digests = || {
        let count = input.count(8)?;
        (0..count).map(|_| Ok(Digest(input.u64()?))).collect::<Result<Vec<_>, DecodeError>>()
    };
    let (stash, tombstones) = (digests()?, digests()?);
    input.end()?;
    Ok((ShardState { id, sides, tweak, version, stash }, tombstones))
}

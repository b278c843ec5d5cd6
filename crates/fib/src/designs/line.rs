//! The line design: one cache line a lookup, over one skeleton of names for all switches.
//!
//! Cost: one line a lookup, a second one for one name in fifty (`line-small`: eighteen); 9.4 to 10.9 bits a name for values of 8 bits, by the
//! trade of memory against speed that the design's name says. A change of a name is a message of one line.
//! Alien names get an arbitrary action, so gateways check names exactly at the ingress, and every switch checks the
//! names of its own hosts at the egress.
//! Source: none of the papers; docs/derivations/line.md.

use super::keys::{Burst, Key};
use super::sharded::{self, Arrangement, Sharded, row_key, shard_of_key, span};
use super::skeleton::{PartRow, Skeleton};
use super::table::{Reader, Table, TableError};
use super::{Aliens, Design, RestoreError, Rows, Spec};
use crate::codec::{DecodeError, Input, put_u64};
use crate::messages::HeldShard;
use lookup::hash::Digest;
use lookup::line::{self, Change, GroupImage, GroupState, LineQuery, Lines, ShardId, Trade, Update, View};
use lookup::traits::{Applied, BatchReader, InsertError, Query};

macro_rules! design {
    ($static:ident, $name:literal, $trade:ident, $summary:literal) => {
        #[doc = $summary]
        pub static $static: Design = Design {
            name: $name,
            summary: $summary,
            aliens: |_| Aliens::Arbitrary,
            fingerprint_bits: |_| 0,
            fingerprints: |_| 0..=0,
            is_static: false,
            restarts_alike: true,
            skeleton: |spec, names, threads| skeleton(&settings(spec, Trade::$trade), names, threads),
            restore: |spec, rows, names, _| restore(&settings(spec, Trade::$trade), rows, names),
            table: |spec, image| table(settings(spec, Trade::$trade), image),
        };
    };
}

design!(LINE, "line", Balanced, "one cache line a lookup, half the memory of concise; exact checks at the edge");
design!(LINE_FAST, "line-fast", Fast, "line with emptier lines: a little more memory, the cheapest changes");
design!(LINE_SMALL, "line-small", Small, "line with fuller lines and four cells a name: the least memory");

fn settings(spec: &Spec, trade: Trade) -> line::Settings {
    line::Settings::new(spec.value_bits, spec.max_names, &spec.key).with_trade(trade)
}

fn skeleton(
    settings: &line::Settings,
    names: &[(Key<'_>, u32)],
    threads: usize,
) -> Result<Box<dyn Skeleton>, InsertError> {
    Ok(Box::new(Sharded::new(Lines::build(settings.clone(), &digests(names), threads)?)))
}

fn digests(names: &[(Key<'_>, u32)]) -> Vec<(Digest, u32)> {
    names.iter().map(|(key, place)| (key.digest, *place)).collect()
}

fn restore(settings: &line::Settings, rows: Rows, names: &[(Key<'_>, u32)]) -> Result<Box<dyn Skeleton>, RestoreError> {
    let states = rows.iter().map(|(key, value)| decode_row(key, value)).collect::<Result<Vec<_>, _>>();
    let mut states = states.map_err(RestoreError::Row)?;
    states.sort_by_key(|state| span(state.id).start);
    Ok(Box::new(Sharded::new(Lines::restore(settings.clone(), &states, &digests(names))?)))
}

fn table(settings: line::Settings, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
    let Update::Groups(groups) = Update::decode(&settings, image)? else { return Err(TableError::NotWhole) };
    Ok(Box::new(Groups { query: LineQuery::from_groups(&settings, &groups)?, settings }))
}

/// A line table in a switch.
struct Groups {
    query: LineQuery,
    settings: line::Settings,
}

impl Table for Groups {
    fn lookup_batch(&self, burst: &Burst<'_>, values: &mut [u64]) {
        self.query.lookup_batch(burst.digests, values);
    }

    fn apply(&mut self, update: &[u8]) -> Result<Applied, TableError> {
        Ok(self.query.apply(&Update::decode(&self.settings, update)?)?)
    }

    fn overwrite(&mut self, parts: &[u8]) -> Result<(), TableError> {
        match Update::decode(&self.settings, parts)? {
            Update::Groups(groups) => Ok(self.query.overwrite(&groups)?),
            Update::Buckets(_) | Update::Levels(_) => Err(TableError::NotWhole),
        }
    }

    fn image(&self) -> Vec<u8> {
        encode(&Update::Groups(self.query.groups()))
    }

    fn held(&self) -> Vec<HeldShard> {
        self.query.held().map(|(id, version, digest)| HeldShard { id, version, digest }).collect()
    }

    fn size_bits(&self) -> u64 {
        self.query.size_bits()
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(self.query.reader())
    }
}

impl Reader for line::Reader {
    #[inline]
    fn lookup_batch(&mut self, burst: &Burst<'_>, values: &mut [u64]) {
        self.pin().lookup_batch(burst.digests, values);
    }

    fn offline(&mut self) {
        BatchReader::offline(self);
    }
}

impl Arrangement for Lines {
    type View = View;
    type Image = GroupImage;
    // 80 ns for every name of a group of thousands against 4 us, and 8 KB against 64 bytes, for every name of the batch.
    const BATCH_A_SHARD: usize = 120;

    fn insert(&mut self, digest: Digest, place: u32) -> Result<Change, InsertError> {
        Lines::insert(self, digest, place)
    }

    fn insert_batch(&mut self, entries: &[(Digest, u32)]) -> Result<Change, InsertError> {
        Lines::insert_batch(self, entries)
    }

    fn remove(&mut self, digest: Digest) -> Change {
        Lines::remove(self, digest)
    }

    fn touch(&mut self) -> Change {
        Lines::touch(self)
    }

    fn n_shards(&self) -> usize {
        self.n_groups()
    }

    fn shard_id(&self, slot: u32) -> ShardId {
        self.group_id(slot)
    }

    fn row(&self, slot: u32) -> PartRow {
        encode_row(&self.group_state(slot))
    }

    fn rows(&self) -> Box<dyn Iterator<Item = PartRow> + '_> {
        Box::new(self.group_states().map(|state| encode_row(&state)))
    }

    fn heap_bytes(&self) -> usize {
        Lines::heap_bytes(self)
    }

    #[cfg(test)]
    fn must_drop(&self, _digest: Digest) -> bool {
        false
    }

    fn view(&self, values: &[u16]) -> (View, Vec<GroupImage>) {
        View::images(self, |place: u32| values[place as usize].into())
    }

    fn updates(&self, view: &mut View, change: &Change, values: &[u16], out: &mut Vec<Vec<u8>>) {
        let mut updates = Vec::new();
        view.updates(self, change, |place: u32| values[place as usize].into(), &mut updates);
        out.extend(updates.iter().map(encode));
    }

    fn image(&self, view: &mut View, slot: u32, values: &[u16]) -> GroupImage {
        view.image(self, slot, |place: u32| values[place as usize].into())
    }

    fn held(&self, view: &View) -> Vec<(u32, HeldShard)> {
        let held = |(slot, id, version, digest)| (slot, HeldShard { id, version, digest });
        view.held(self).map(held).collect()
    }

    fn set_version(view: &mut View, slot: u32, version: u64) {
        view.set_version(slot, version);
    }

    fn encode(&self, images: Vec<GroupImage>) -> Vec<u8> {
        encode(&Update::Groups(images))
    }

    fn tables(&self, values: &[Vec<u16>]) -> Vec<Box<dyn Table>> {
        let table = |values: &Vec<u16>| -> Box<dyn Table> {
            let query = View::export(self, |place: u32| values[place as usize].into()).1;
            Box::new(Groups { query, settings: self.settings().clone() })
        };
        values.iter().map(table).collect()
    }
}

impl sharded::Image for GroupImage {
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

fn encode(update: &Update) -> Vec<u8> {
    let mut bytes = Vec::new();
    update.encode(&mut bytes);
    bytes
}

fn encode_row(state: &GroupState) -> PartRow {
    let mut value = Vec::with_capacity(14 + 2 * state.headers.len());
    put_u64(&mut value, state.version);
    state.n_buckets.iter().for_each(|n| value.extend_from_slice(&n.to_le_bytes()));
    state.headers.iter().for_each(|&(tweak, threshold)| value.extend_from_slice(&[tweak, threshold]));
    PartRow { key: row_key(state.id), value: Some(value) }
}

fn decode_row(key: &[u8], value: &[u8]) -> Result<GroupState, DecodeError> {
    let id = shard_of_key(key)?;
    let mut input = Input::raw(value);
    let version = input.u64()?;
    let n_buckets = [input.u16()?, input.u16()?, input.u16()?];
    let n_all: usize = n_buckets.iter().map(|&n| usize::from(n)).sum();
    let mut headers = Vec::with_capacity(n_all.min(value.len()));
    for _ in 0..n_all {
        let [tweak, threshold] = input.array()?;
        headers.push((tweak, threshold));
    }
    input.end()?;
    Ok(GroupState { id, version, n_buckets, headers })
}

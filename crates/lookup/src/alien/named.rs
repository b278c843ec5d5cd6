//! A table of digests that is looked up by names, so that it can stand behind an exact filter of names.
//!
//! Cost: the key conversion only, which hashes each name once more than the filter does. Equal digests: the table
//! cannot distinguish two names with one digest. The owner of the names must prevent that (a RIB refuses the second
//! name and rekeys).

use super::filtered::Filter;
use crate::base::prefetch::BURST;
use crate::hash::{Digest, Family, Hasher, SecretKey};
use crate::traits::{
    Applied, ApplyError, BatchReader, Change, DecodeError, HeldPart, ImageOf, InsertError, PartId, Query, Replicated,
    RestoreError, Row, SettingsOf, Skeleton, UpdateOf, View,
};

/// Maps names of `W` words to digests.
#[derive(Clone, Debug)]
pub struct NameHash<const W: usize> {
    hasher: Hasher,
    name_bytes: usize,
}

impl<const W: usize> NameHash<W> {
    /// For names of `name_bytes` bytes, zero-padded.
    /// # Panics
    /// When they do not fit into `W` words.
    pub fn new(name_bytes: u8, family: Family, key: &SecretKey) -> Self {
        assert!(usize::from(name_bytes) <= 8 * W, "a name of {name_bytes} bytes does not fit {W} words");
        Self { hasher: Hasher::new(family, key), name_bytes: name_bytes.into() }
    }
}

impl<const W: usize> NameHash<W> {
    #[inline]
    fn map(&self, name: [u64; W]) -> Digest {
        self.hasher.digest_padded(&name, self.name_bytes)
    }

    /// Calls `look_up` with the digests of a burst of names.
    #[inline]
    fn burst<R>(&self, names: &[[u64; W]], look_up: impl FnOnce(&[Digest]) -> R) -> R {
        let mut digests = [Digest(0); BURST];
        let digests = &mut digests[..names.len()];
        self.hasher.digest_all_padded(names, self.name_bytes, digests);
        look_up(digests)
    }

    /// Calls `look_up` with the digests of the names, one burst at a time.
    #[inline]
    fn bursts(&self, names: &[[u64; W]], values: &mut [u64], mut look_up: impl FnMut(&[Digest], &mut [u64])) {
        let values = &mut values[..names.len()];
        for (names, values) in names.chunks(BURST).zip(values.chunks_mut(BURST)) {
            self.burst(names, |digests| look_up(digests, values));
        }
    }
}

/// A skeleton of digests, with names of `W` words as keys.
pub struct Named<S: Skeleton, const W: usize> {
    table: S,
    settings: Settings<SettingsOf<S>, W>,
}

impl<S: Skeleton<Key = Digest>, const W: usize> Skeleton for Named<S, W> {
    type Key = [u64; W];
    type Payload = S::Payload;
    type Query = NamedQuery<S::Query, W>;
    type View = NamedView<S::View>;

    fn build(
        settings: &SettingsOf<Self>,
        entries: &[([u64; W], S::Payload)],
        threads: usize,
    ) -> Result<Self, InsertError> {
        let table = S::build(&settings.table, &mapped(&settings.map, entries), threads)?;
        Ok(Self { table, settings: settings.clone() })
    }

    fn restore(
        settings: &SettingsOf<Self>,
        rows: &[Row],
        entries: &[([u64; W], S::Payload)],
    ) -> Result<Self, RestoreError> {
        let table = S::restore(&settings.table, rows, &mapped(&settings.map, entries))?;
        Ok(Self { table, settings: settings.clone() })
    }

    fn settings(&self) -> &SettingsOf<Self> {
        &self.settings
    }

    fn check(settings: &SettingsOf<Self>, key: [u64; W], value: u64) -> Result<(), InsertError> {
        S::check(&settings.table, settings.map.map(key), value)
    }

    fn insert(&mut self, key: [u64; W], payload: S::Payload) -> Result<Change, InsertError> {
        self.table.insert(self.settings.map.map(key), payload)
    }

    fn insert_batch(&mut self, entries: &[([u64; W], S::Payload)]) -> Result<Change, InsertError> {
        self.table.insert_batch(&mapped(&self.settings.map, entries))
    }

    fn remove(&mut self, key: [u64; W]) -> Change {
        self.table.remove(self.settings.map.map(key))
    }

    fn touch(&mut self) -> Change {
        self.table.touch()
    }

    fn get(&self, key: [u64; W]) -> Option<S::Payload> {
        self.table.get(self.settings.map.map(key))
    }

    fn must_drop(&self, key: [u64; W]) -> bool {
        self.table.must_drop(self.settings.map.map(key))
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn is_bulk(&self, n_changes: usize) -> bool {
        self.table.is_bulk(n_changes)
    }

    fn is_bulk_alone(&self, n_changes: usize) -> bool {
        self.table.is_bulk_alone(n_changes)
    }

    fn part_id(&self, slot: u32) -> PartId {
        self.table.part_id(slot)
    }

    fn take_rows(&mut self, slots: &[u32], gone: &[PartId]) -> Vec<Row> {
        self.table.take_rows(slots, gone)
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        self.table.rows()
    }

    fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
    }
}

fn mapped<const W: usize, P: Copy>(map: &NameHash<W>, entries: &[([u64; W], P)]) -> Vec<(Digest, P)> {
    entries.iter().map(|&(key, payload)| (map.map(key), payload)).collect()
}

/// What one switch has of a skeleton of digests, with names as keys: the view of that skeleton.
pub struct NamedView<V>(V);

impl<S: Skeleton<Key = Digest>, const W: usize> View<Named<S, W>> for NamedView<S::View> {
    const MAY_FAIL: bool = S::View::MAY_FAIL;

    fn export(
        skeleton: &Named<S, W>,
        value: impl Fn(S::Payload) -> u64,
    ) -> Result<(Self, Vec<ImageOf<S>>), InsertError> {
        let (view, images) = S::View::export(&skeleton.table, value)?;
        Ok((Self(view), images))
    }

    fn updates(
        &mut self,
        skeleton: &Named<S, W>,
        change: &Change,
        value: impl Fn(S::Payload) -> u64,
        updates: &mut Vec<UpdateOf<S>>,
    ) -> Result<(), InsertError> {
        self.0.updates(&skeleton.table, change, value, updates)
    }

    fn image(
        &self,
        skeleton: &Named<S, W>,
        slot: u32,
        value: impl Fn(S::Payload) -> u64,
    ) -> Result<ImageOf<S>, InsertError> {
        self.0.image(&skeleton.table, slot, value)
    }

    fn note(&mut self, skeleton: &Named<S, W>, slot: u32, image: &ImageOf<S>) {
        self.0.note(&skeleton.table, slot, image);
    }

    fn held(&self, skeleton: &Named<S, W>) -> Vec<(u32, HeldPart)> {
        self.0.held(&skeleton.table)
    }

    fn set_version(&mut self, slot: u32, version: u64) {
        self.0.set_version(slot, version);
    }

    fn renew(
        &mut self,
        skeleton: &Named<S, W>,
        slot: u32,
        value: impl Fn(S::Payload) -> u64,
    ) -> Result<ImageOf<S>, InsertError> {
        self.0.renew(&skeleton.table, slot, value)
    }

    fn take_rows(&mut self) -> Vec<Row> {
        self.0.take_rows()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        self.0.rows()
    }

    fn restore(
        skeleton: &Named<S, W>,
        rows: &[Row],
        value: impl Fn(S::Payload) -> u64,
    ) -> Result<(Self, Vec<ImageOf<S>>), RestoreError> {
        let (view, images) = S::View::restore(&skeleton.table, rows, value)?;
        Ok((Self(view), images))
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

/// Query half.
pub struct NamedQuery<Q, const W: usize> {
    table: Q,
    map: NameHash<W>,
}

/// The build parameters of both halves.
#[derive(Clone, Debug)]
pub struct Settings<S, const W: usize> {
    /// Settings of the table.
    pub table: S,
    /// How names are hashed.
    pub map: NameHash<W>,
}

impl<Q: Query<Key = Digest>, const W: usize> Query for NamedQuery<Q, W> {
    type Key = [u64; W];
    type Update = Q::Update;

    fn lookup(&self, key: [u64; W]) -> u64 {
        self.table.lookup(self.map.map(key))
    }

    fn lookup_batch(&self, keys: &[[u64; W]], values: &mut [u64]) {
        self.map.bursts(keys, values, |keys, values| self.table.lookup_batch(keys, values));
    }

    fn apply(&mut self, update: &Q::Update) -> Result<Applied, ApplyError> {
        self.table.apply(update)
    }

    fn prefetch_update(&self, update: &Q::Update) {
        self.table.prefetch_update(update);
    }

    fn size_bits(&self) -> u64 {
        self.table.size_bits()
    }
}

impl<Q: Replicated<Key = Digest>, const W: usize> Replicated for NamedQuery<Q, W> {
    const DIVIDED: bool = Q::DIVIDED;

    type Settings = Settings<Q::Settings, W>;
    type Image = Q::Image;
    type Reader = Reader<Q::Reader, W>;

    fn settings(&self) -> Settings<Q::Settings, W> {
        Settings { table: self.table.settings(), map: self.map.clone() }
    }

    fn encode_update(settings: &Settings<Q::Settings, W>, update: &Q::Update, out: &mut Vec<u8>) {
        Q::encode_update(&settings.table, update, out);
    }

    fn decode_update(settings: &Settings<Q::Settings, W>, bytes: &[u8]) -> Result<Q::Update, DecodeError> {
        Q::decode_update(&settings.table, bytes)
    }

    fn decode_update_over(
        settings: &Settings<Q::Settings, W>,
        bytes: &[u8],
        update: &mut Q::Update,
    ) -> Result<(), DecodeError> {
        Q::decode_update_over(&settings.table, bytes, update)
    }

    fn update_of(images: Vec<Q::Image>) -> Q::Update {
        Q::update_of(images)
    }

    fn images_of(update: &Q::Update) -> Option<&[Q::Image]> {
        Q::images_of(update)
    }

    fn from_images(settings: &Settings<Q::Settings, W>, images: &[Q::Image]) -> Result<Self, ApplyError> {
        Ok(Self { table: Q::from_images(&settings.table, images)?, map: settings.map.clone() })
    }

    fn overwrite(&mut self, images: &[Q::Image]) -> Result<(), ApplyError> {
        self.table.overwrite(images)
    }

    fn images(&self) -> Vec<Q::Image> {
        self.table.images()
    }

    fn held(&self) -> Vec<HeldPart> {
        self.table.held()
    }

    fn reader(&self) -> Reader<Q::Reader, W> {
        Reader { table: self.table.reader(), map: self.map.clone() }
    }
}

impl<Q: Filter<Key = Digest>, const W: usize> Filter for NamedQuery<Q, W> {
    fn digest_after(update: &Q::Update) -> u64 {
        Q::digest_after(update)
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<R, const W: usize> {
    table: R,
    map: NameHash<W>,
}

impl<R: BatchReader<[Digest]>, const W: usize> BatchReader<[[u64; W]]> for Reader<R, W> {
    #[inline]
    fn lookup_batch(&mut self, keys: &[[u64; W]], values: &mut [u64]) {
        let table = &mut self.table;
        self.map.bursts(keys, values, |keys, values| table.lookup_batch(keys, values));
    }

    fn has_phases(&self) -> bool {
        self.table.has_phases()
    }

    #[inline]
    fn begin(&mut self, keys: &[[u64; W]]) {
        let table = &mut self.table;
        if table.has_phases() {
            self.map.burst(keys, |keys| table.begin(keys));
        }
    }

    #[inline]
    fn finish(&mut self, keys: &[[u64; W]], values: &mut [u64]) {
        let table = &mut self.table;
        self.map.burst(keys, |keys| table.finish(keys, values));
    }

    fn offline(&mut self) {
        self.table.offline();
    }
}

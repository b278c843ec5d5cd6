//! A checksum next to the value: an alien is detected unless the checksum that it finds happens to match its own.
//!
//! ```text
//! value in the table:  | value, l | checksum of the digest, r |
//! ```
//! The checksum is a keyed mix of the digest, independent of where the table looks. So an alien passes with probability
//! 2^-r, whatever the table returns for it. It is the same in all switches that have the same key. A removed name has
//! the value 0, checksum included, while the table keeps its tombstone. That is drop, whether its own checksum is 0 or
//! not.
//!
//! Cost: r bits per value, times the table's cells per name; one more multiplication per lookup, and no read.
//! Updates: the table's own.
//! Source: "Concise with checksums", section VII.A of "Memory-efficient and Ultra-fast Network Lookup and Forwarding
//! using Othello Hashing". Limits: l + r is at most the table's value width.

use crate::base::cells::value_mask;
use crate::hash::{Digest, Purpose, SecretKey, mix64};
use crate::traits::{
    Applied, ApplyError, BatchReader, Change, Crowd, DecodeError, HeldPart, ImageOf, InsertError, PartId, Payload,
    Query, Replicated, RestoreError, Row, SettingsOf, Skeleton, UpdateOf, View,
};

/// Width and key of the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    bits: u8,
    seed: u64,
}

impl Checksum {
    /// The most bits of a checksum: controllers keep one per name.
    pub const MAX_BITS: u8 = 32;

    /// Checksums of `bits` bits, 1 to [`Checksum::MAX_BITS`].
    /// # Panics
    /// When `bits` is out of range.
    pub fn new(bits: u8, key: &SecretKey) -> Self {
        assert!((1..=Self::MAX_BITS).contains(&bits), "a checksum has 1 to {} bits, not {bits}", Self::MAX_BITS);
        Self { bits, seed: key.derive(Purpose::Structure, 3) }
    }

    /// The probability that an alien passes.
    pub fn false_positive_rate(self) -> f64 {
        0.5f64.powi(self.bits.into())
    }

    #[inline(always)]
    fn of(self, digest: Digest) -> u64 {
        mix64(digest.0 ^ self.seed) >> (64 - self.bits)
    }

    fn mark<P>(self, digest: Digest, payload: P) -> Marked<P> {
        Marked { payload, checksum: self.of(digest) as u32 }
    }

    fn mark_all<P: Copy>(self, entries: &[(Digest, P)]) -> Vec<(Digest, Marked<P>)> {
        entries.iter().map(|&(digest, payload)| (digest, self.mark(digest, payload))).collect()
    }

    /// What the table stores for a name.
    fn join<P>(self, marked: Marked<P>, value: impl Fn(P) -> u64) -> u64 {
        value(marked.payload) << self.bits | u64::from(marked.checksum)
    }

    /// Restates an error of the table in terms of the values that the caller passed.
    fn explain(self, error: InsertError) -> InsertError {
        match error {
            InsertError::ValueTooWide { value, value_bits } => InsertError::ValueTooWide {
                value: value >> self.bits,
                value_bits: value_bits.saturating_sub(self.bits),
            },
            other => other,
        }
    }

    /// The value, or 0 for a detected alien.
    #[inline(always)]
    fn split(self, digest: Digest, found: u64) -> u64 {
        let right = (found ^ self.of(digest)) & value_mask(self.bits) == 0;
        std::hint::select_unpredictable(right, found >> self.bits, 0)
    }

    fn split_all(self, digests: &[Digest], values: &mut [u64]) {
        for (value, &digest) in values.iter_mut().zip(digests) {
            *value = self.split(digest, *value);
        }
    }
}

/// The payload of a name in a table with checksums: its own payload, and its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marked<P> {
    payload: P,
    checksum: u32,
}

/// A skeleton whose values carry checksums.
pub struct Checked<S: Skeleton> {
    table: S,
    settings: Settings<SettingsOf<S>>,
}

impl<S, P> Skeleton for Checked<S>
where
    S: Skeleton<Key = Digest, Payload = Marked<P>>,
    P: Payload,
{
    type Key = Digest;
    type Payload = P;
    type Query = CheckedQuery<S::Query>;
    type View = CheckedView<S::View>;

    fn build(settings: &SettingsOf<Self>, entries: &[(Digest, P)], threads: usize) -> Result<Self, InsertError> {
        let table = S::build(&settings.table, &settings.checksum.mark_all(entries), threads)?;
        Ok(Self { table, settings: settings.clone() })
    }

    fn restore(settings: &SettingsOf<Self>, rows: &[Row], entries: &[(Digest, P)]) -> Result<Self, RestoreError> {
        let table = S::restore(&settings.table, rows, &settings.checksum.mark_all(entries))?;
        Ok(Self { table, settings: settings.clone() })
    }

    fn settings(&self) -> &SettingsOf<Self> {
        &self.settings
    }

    fn check(settings: &SettingsOf<Self>, digest: Digest, value: u64) -> Result<(), InsertError> {
        let checksum = settings.checksum;
        let value_bits = 64 - checksum.bits;
        if value > value_mask(value_bits) {
            return Err(InsertError::ValueTooWide { value, value_bits });
        }
        let joined = checksum.join(checksum.mark(digest, value), |value| value);
        S::check(&settings.table, digest, joined).map_err(|error| checksum.explain(error))
    }

    fn insert(&mut self, digest: Digest, payload: P) -> Result<Change, InsertError> {
        let marked = self.settings.checksum.mark(digest, payload);
        self.table.insert(digest, marked)
    }

    fn insert_batch(&mut self, entries: &[(Digest, P)]) -> Result<Change, InsertError> {
        self.table.insert_batch(&self.settings.checksum.mark_all(entries))
    }

    fn crowds(&self, digests: &[Digest]) -> Vec<Crowd> {
        self.table.crowds(digests)
    }

    fn remove(&mut self, digest: Digest) -> Change {
        self.table.remove(digest)
    }

    fn touch(&mut self) -> Change {
        self.table.touch()
    }

    fn get(&self, digest: Digest) -> Option<P> {
        Some(self.table.get(digest)?.payload)
    }

    fn must_drop(&self, digest: Digest) -> bool {
        self.table.must_drop(digest)
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

/// What one switch has of a skeleton with checksums.
pub struct CheckedView<V>(V);

impl<S, P> View<Checked<S>> for CheckedView<S::View>
where
    S: Skeleton<Key = Digest, Payload = Marked<P>>,
    P: Payload,
{
    const MAY_FAIL: bool = S::View::MAY_FAIL;

    fn export(skeleton: &Checked<S>, value: impl Fn(P) -> u64) -> Result<(Self, Vec<ImageOf<S>>), InsertError> {
        let checksum = skeleton.settings.checksum;
        let (view, images) = S::View::export(&skeleton.table, |marked| checksum.join(marked, &value))?;
        Ok((Self(view), images))
    }

    fn without_parts() -> Option<Self> {
        S::View::without_parts().map(Self)
    }

    fn export_many(
        skeleton: &Checked<S>,
        n: usize,
        value: impl Fn(usize, P) -> u64,
    ) -> Result<Vec<CheckedQuery<S::Query>>, InsertError> {
        let checksum = skeleton.settings.checksum;
        let joined = |switch, marked| checksum.join(marked, |payload| value(switch, payload));
        let tables = S::View::export_many(&skeleton.table, n, joined)?;
        Ok(tables.into_iter().map(|table| CheckedQuery { table, checksum }).collect())
    }

    fn updates(
        &mut self,
        skeleton: &Checked<S>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<UpdateOf<S>>,
    ) -> Result<(), InsertError> {
        let checksum = skeleton.settings.checksum;
        self.0.updates(&skeleton.table, change, |marked| checksum.join(marked, &value), updates)
    }

    fn image(&self, skeleton: &Checked<S>, slot: u32, value: impl Fn(P) -> u64) -> Result<ImageOf<S>, InsertError> {
        let checksum = skeleton.settings.checksum;
        self.0.image(&skeleton.table, slot, |marked| checksum.join(marked, &value))
    }

    fn note(&mut self, skeleton: &Checked<S>, slot: u32, image: &ImageOf<S>) {
        self.0.note(&skeleton.table, slot, image);
    }

    fn held(&self, skeleton: &Checked<S>) -> Vec<(u32, HeldPart)> {
        self.0.held(&skeleton.table)
    }

    fn set_version(&mut self, slot: u32, version: u64) {
        self.0.set_version(slot, version);
    }

    fn renew(&mut self, skeleton: &Checked<S>, slot: u32, value: impl Fn(P) -> u64) -> Result<ImageOf<S>, InsertError> {
        let checksum = skeleton.settings.checksum;
        self.0.renew(&skeleton.table, slot, |marked| checksum.join(marked, &value))
    }

    fn take_rows(&mut self) -> Vec<Row> {
        self.0.take_rows()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        self.0.rows()
    }

    fn restore(
        skeleton: &Checked<S>,
        rows: &[Row],
        value: impl Fn(P) -> u64,
    ) -> Result<(Self, Vec<ImageOf<S>>), RestoreError> {
        let checksum = skeleton.settings.checksum;
        let (view, images) = S::View::restore(&skeleton.table, rows, |marked| checksum.join(marked, &value))?;
        Ok((Self(view), images))
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

/// Query half of a table whose values carry checksums.
pub struct CheckedQuery<Q> {
    table: Q,
    checksum: Checksum,
}

/// The build parameters of both halves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings<S> {
    /// Settings of the table.
    pub table: S,
    /// Settings of the checksums.
    pub checksum: Checksum,
}

impl<Q: Query<Key = Digest>> CheckedQuery<Q> {
    /// The value of `digest`, or none for a detected alien.
    pub fn get(&self, digest: Digest) -> Option<u64> {
        let found = self.table.lookup(digest);
        let right = found & value_mask(self.checksum.bits) == self.checksum.of(digest);
        right.then_some(found >> self.checksum.bits)
    }
}

impl<Q: Query<Key = Digest>> Query for CheckedQuery<Q> {
    type Key = Digest;
    type Update = Q::Update;

    #[inline]
    fn lookup(&self, digest: Digest) -> u64 {
        self.checksum.split(digest, self.table.lookup(digest))
    }

    #[inline]
    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        let values = &mut values[..digests.len()];
        self.table.lookup_batch(digests, values);
        self.checksum.split_all(digests, values);
    }

    fn apply(&mut self, update: &Q::Update) -> Result<Applied, ApplyError> {
        self.table.apply(update)
    }

    fn prefetch_update(&self, update: &Q::Update) {
        self.table.prefetch_update(update);
    }

    fn prefetches(&self) -> bool {
        self.table.prefetches()
    }

    fn size_bits(&self) -> u64 {
        self.table.size_bits()
    }
}

impl<Q: Replicated<Key = Digest>> Replicated for CheckedQuery<Q> {
    const DIVIDED: bool = Q::DIVIDED;

    type Settings = Settings<Q::Settings>;
    type Image = Q::Image;
    type Reader = Reader<Q::Reader>;

    fn settings(&self) -> Settings<Q::Settings> {
        Settings { table: self.table.settings(), checksum: self.checksum }
    }

    fn encode_update(settings: &Settings<Q::Settings>, update: &Q::Update, out: &mut Vec<u8>) {
        Q::encode_update(&settings.table, update, out);
    }

    fn decode_update(settings: &Settings<Q::Settings>, bytes: &[u8]) -> Result<Q::Update, DecodeError> {
        Q::decode_update(&settings.table, bytes)
    }

    fn decode_update_over(
        settings: &Settings<Q::Settings>,
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

    fn from_images(settings: &Settings<Q::Settings>, images: &[Q::Image]) -> Result<Self, ApplyError> {
        Ok(Self { table: Q::from_images(&settings.table, images)?, checksum: settings.checksum })
    }

    fn from_own(settings: &Settings<Q::Settings>, images: &[Q::Image]) -> Self {
        Self { table: Q::from_own(&settings.table, images), checksum: settings.checksum }
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

    fn reader(&self) -> Reader<Q::Reader> {
        Reader { table: self.table.reader(), checksum: self.checksum }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<R> {
    table: R,
    checksum: Checksum,
}

impl<R: BatchReader<[Digest]>> BatchReader<[Digest]> for Reader<R> {
    #[inline]
    fn lookup_batch(&mut self, digests: &[Digest], values: &mut [u64]) {
        let values = &mut values[..digests.len()];
        self.table.lookup_batch(digests, values);
        self.checksum.split_all(digests, values);
    }

    fn has_phases(&self) -> bool {
        self.table.has_phases()
    }

    #[inline]
    fn begin(&mut self, digests: &[Digest]) {
        self.table.begin(digests);
    }

    #[inline]
    fn finish(&mut self, digests: &[Digest], values: &mut [u64]) {
        self.table.finish(digests, values);
        self.checksum.split_all(digests, values);
    }

    fn offline(&mut self) {
        self.table.offline();
    }
}

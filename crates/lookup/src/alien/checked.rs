//! A checksum beside the value: an alien is noticed unless it happens to find its own.
//!
//! ```text
//! value in the table:  | value, l | checksum of the digest, r |
//! ```
//! The checksum is a keyed mix of the digest, independent of where the table looks, so an alien passes with probability
//! 2^-r whatever the table answers it. It is the same in every switch that has the same key.
//! A removed name has the value 0, checksum and all, as long as the table has a tombstone for it: that is drop, whether
//! its checksum is 0 or not.
//!
//! Cost: r bits a value, as many cells as the table has a name; one multiplication more a lookup, and no read.
//! Updates: the table's own.
//! Source: "Concise with checksums", section VII.A of "Memory-efficient and Ultra-fast Network Lookup and Forwarding
//! using Othello Hashing". Limits: l + r bits are what the table's values have.

use std::any::Any;
use std::cell::OnceCell;

use crate::cells::value_mask;
use crate::hash::{Digest, Purpose, SecretKey, mix64};
use crate::othello::update::DecodeError;
use crate::testkit::Subject;
use crate::traits::{Applied, ApplyError, BatchReader, Control, InsertError, Query, Replicated};

/// Width and key of the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    bits: u8,
    seed: u64,
}

impl Checksum {
    /// Checksums of `bits` bits, 1 to 63.
    /// # Panics
    /// When `bits` is out of range.
    pub fn new(bits: u8, key: &SecretKey) -> Self {
        assert!((1..=63).contains(&bits), "a checksum has 1 to 63 bits, not {bits}");
        Self { bits, seed: key.derive(Purpose::Structure, 3) }
    }

    /// The probability with which an alien passes.
    pub fn false_positive_rate(self) -> f64 {
        0.5f64.powi(self.bits.into())
    }

    #[inline(always)]
    fn of(self, digest: Digest) -> u64 {
        mix64(digest.0 ^ self.seed) >> (64 - self.bits)
    }

    /// What the table has for a name.
    fn join(self, digest: Digest, value: u64) -> Result<u64, InsertError> {
        let value_bits = 64 - self.bits;
        if value > value_mask(value_bits) {
            return Err(InsertError::ValueTooWide { value, value_bits });
        }
        Ok(value << self.bits | self.of(digest))
    }

    /// An error of the table, in terms of the values it was asked for.
    fn explain(self, error: InsertError) -> InsertError {
        match error {
            InsertError::ValueTooWide { value, value_bits } => InsertError::ValueTooWide {
                value: value >> self.bits,
                value_bits: value_bits.saturating_sub(self.bits),
            },
            other => other,
        }
    }

    /// The value, or 0 for an alien that is noticed.
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

/// Control half of a table whose values carry checksums.
pub struct Checked<C> {
    table: C,
    checksum: Checksum,
}

impl<C> Checked<C> {
    /// Puts checksums into the values of an empty `table`.
    pub fn new(table: C, checksum: Checksum) -> Self {
        Self { table, checksum }
    }

    /// The table.
    pub fn table(&self) -> &C {
        &self.table
    }
}

impl<C: Control<Key = Digest>> Control for Checked<C>
where
    C::Query: Query<Key = Digest>,
{
    type Key = Digest;
    type Query = CheckedQuery<C::Query>;

    fn insert(
        &mut self,
        digest: Digest,
        value: u64,
        updates: &mut Vec<<C::Query as Query>::Update>,
    ) -> Result<(), InsertError> {
        let joined = self.checksum.join(digest, value)?;
        self.table.insert(digest, joined, updates).map_err(|error| self.checksum.explain(error))
    }

    fn insert_batch(
        &mut self,
        entries: &[(Digest, u64)],
        updates: &mut Vec<<C::Query as Query>::Update>,
    ) -> Result<(), InsertError> {
        let join = |&(digest, value): &(Digest, u64)| Ok((digest, self.checksum.join(digest, value)?));
        let joined = entries.iter().map(join).collect::<Result<Vec<_>, InsertError>>()?;
        self.table.insert_batch(&joined, updates).map_err(|error| self.checksum.explain(error))
    }

    fn remove(&mut self, digest: Digest, updates: &mut Vec<<C::Query as Query>::Update>) -> bool {
        self.table.remove(digest, updates)
    }

    fn get(&self, digest: Digest) -> Option<u64> {
        self.table.get(digest).map(|joined| joined >> self.checksum.bits)
    }

    fn export(&self) -> CheckedQuery<C::Query> {
        CheckedQuery::new(self.table.export(), self.checksum)
    }

    fn len(&self) -> usize {
        self.table.len()
    }
}

impl<C: Subject<Key = Digest>> Subject for Checked<C>
where
    C::Query: Query<Key = Digest>,
{
    fn must_drop(&self, digest: Digest) -> bool {
        self.table.must_drop(digest)
    }

    fn may_forget(update: &<C::Query as Query>::Update) -> bool {
        C::may_forget(update)
    }
}

/// Query half of a table whose values carry checksums.
pub struct CheckedQuery<Q> {
    table: Q,
    checksum: Checksum,
    /// [`Settings`] of this table, once somebody asks.
    settings: OnceCell<Box<dyn Any + Send>>,
}

/// What both halves were built with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings<S> {
    /// The table's.
    pub table: S,
    /// Of the checksums.
    pub checksum: Checksum,
}

impl<Q: Query<Key = Digest>> CheckedQuery<Q> {
    fn new(table: Q, checksum: Checksum) -> Self {
        Self { table, checksum, settings: OnceCell::new() }
    }

    /// The value of `digest`, or none for an alien that is noticed.
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

    fn size_bits(&self) -> u64 {
        self.table.size_bits()
    }
}

impl<Q: Replicated<Key = Digest>> Replicated for CheckedQuery<Q> {
    type Settings = Settings<Q::Settings>;
    type Reader = Reader<Q::Reader>;

    fn settings(&self) -> &Settings<Q::Settings> {
        let made = || -> Box<dyn Any + Send> {
            Box::new(Settings { table: self.table.settings().clone(), checksum: self.checksum })
        };
        self.settings.get_or_init(made).downcast_ref().expect("nothing else is stored")
    }

    fn encode_update(settings: &Settings<Q::Settings>, update: &Q::Update, out: &mut Vec<u8>) {
        Q::encode_update(&settings.table, update, out);
    }

    fn decode_update(settings: &Settings<Q::Settings>, bytes: &[u8]) -> Result<Q::Update, DecodeError> {
        Q::decode_update(&settings.table, bytes)
    }

    fn is_whole(update: &Q::Update) -> bool {
        Q::is_whole(update)
    }

    fn held_after(update: &Q::Update) -> (u64, u64) {
        Q::held_after(update)
    }

    fn from_whole(settings: &Settings<Q::Settings>, update: &Q::Update) -> Result<Self, ApplyError> {
        Ok(Self::new(Q::from_whole(&settings.table, update)?, settings.checksum))
    }

    fn overwrite(&mut self, update: &Q::Update) -> Result<(), ApplyError> {
        self.table.overwrite(update)
    }

    fn whole(&self) -> Q::Update {
        self.table.whole()
    }

    fn held(&self) -> (u64, u64) {
        self.table.held()
    }

    fn reader(&self) -> Reader<Q::Reader> {
        Reader { table: self.table.reader(), checksum: self.checksum }
    }
}

/// A thread's access beside the writer.
pub struct Reader<R> {
    table: R,
    checksum: Checksum,
}

impl<R: BatchReader<Key = Digest>> BatchReader for Reader<R> {
    type Key = Digest;

    #[inline]
    fn lookup_batch(&mut self, digests: &[Digest], values: &mut [u64]) {
        let values = &mut values[..digests.len()];
        self.table.lookup_batch(digests, values);
        self.checksum.split_all(digests, values);
    }

    fn offline(&mut self) {
        self.table.offline();
    }
}

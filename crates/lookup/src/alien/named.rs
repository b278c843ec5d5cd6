//! A table of digests under full names: what it takes to put an exact filter of names before a compact table.
//!
//! Cost: a hash a name, beside that of the filter. Equal digests: two names with one digest are one name to the table,
//! which whoever holds the names must not let happen (a RIB refuses the second and rekeys).

use std::any::Any;
use std::cell::OnceCell;

use super::BURST;
use crate::hash::{Digest, Family, Hasher, SecretKey};
use crate::othello::update::DecodeError;
use crate::testkit::Subject;
use crate::traits::{Applied, ApplyError, BatchReader, Control, InsertError, Query, Replicated};

/// How names of `W` words become digests.
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

    #[inline]
    fn digest(&self, name: &[u64; W]) -> Digest {
        if W == 1 {
            self.hasher.digest_word(name[0], self.name_bytes)
        } else {
            self.hasher.digest(&bytemuck::cast_slice::<u64, u8>(name)[..self.name_bytes])
        }
    }

    /// Calls `look_up` with the digests of every burst.
    #[inline]
    fn bursts(&self, names: &[[u64; W]], values: &mut [u64], mut look_up: impl FnMut(&[Digest], &mut [u64])) {
        let values = &mut values[..names.len()];
        for (names, values) in names.chunks(BURST).zip(values.chunks_mut(BURST)) {
            let mut digests = [Digest(0); BURST];
            let digests = &mut digests[..names.len()];
            if W == 1 {
                self.hasher.digest_words(names.as_flattened(), self.name_bytes, digests);
            } else {
                digests.iter_mut().zip(names).for_each(|(digest, name)| *digest = self.digest(name));
            }
            look_up(digests, values);
        }
    }
}

/// Control half.
pub struct Named<C, const W: usize> {
    table: C,
    hash: NameHash<W>,
}

impl<C, const W: usize> Named<C, W> {
    /// `table` under names.
    pub fn new(table: C, hash: NameHash<W>) -> Self {
        Self { table, hash }
    }
}

impl<C: Control<Key = Digest>, const W: usize> Control for Named<C, W>
where
    C::Query: Query<Key = Digest>,
{
    type Key = [u64; W];
    type Query = NamedQuery<C::Query, W>;

    fn insert(
        &mut self,
        name: [u64; W],
        value: u64,
        updates: &mut Vec<<C::Query as Query>::Update>,
    ) -> Result<(), InsertError> {
        self.table.insert(self.hash.digest(&name), value, updates)
    }

    fn insert_batch(
        &mut self,
        entries: &[([u64; W], u64)],
        updates: &mut Vec<<C::Query as Query>::Update>,
    ) -> Result<(), InsertError> {
        let digests: Vec<_> = entries.iter().map(|(name, value)| (self.hash.digest(name), *value)).collect();
        self.table.insert_batch(&digests, updates)
    }

    fn remove(&mut self, name: [u64; W], updates: &mut Vec<<C::Query as Query>::Update>) -> bool {
        self.table.remove(self.hash.digest(&name), updates)
    }

    fn get(&self, name: [u64; W]) -> Option<u64> {
        self.table.get(self.hash.digest(&name))
    }

    fn export(&self) -> NamedQuery<C::Query, W> {
        NamedQuery::new(self.table.export(), self.hash.clone())
    }

    fn len(&self) -> usize {
        self.table.len()
    }
}

impl<C: Subject<Key = Digest>, const W: usize> Subject for Named<C, W>
where
    C::Query: Query<Key = Digest>,
{
    fn must_drop(&self, name: [u64; W]) -> bool {
        self.table.must_drop(self.hash.digest(&name))
    }

    fn may_forget(update: &<C::Query as Query>::Update) -> bool {
        C::may_forget(update)
    }
}

/// Query half.
pub struct NamedQuery<Q, const W: usize> {
    table: Q,
    hash: NameHash<W>,
    /// [`Settings`] of this table, once somebody asks.
    settings: OnceCell<Box<dyn Any + Send>>,
}

/// What both halves were built with.
#[derive(Clone, Debug)]
pub struct Settings<S, const W: usize> {
    /// The table's.
    pub table: S,
    /// How names become digests.
    pub hash: NameHash<W>,
}

impl<Q, const W: usize> NamedQuery<Q, W> {
    fn new(table: Q, hash: NameHash<W>) -> Self {
        Self { table, hash, settings: OnceCell::new() }
    }
}

impl<Q: Query<Key = Digest>, const W: usize> Query for NamedQuery<Q, W> {
    type Key = [u64; W];
    type Update = Q::Update;

    fn lookup(&self, name: [u64; W]) -> u64 {
        self.table.lookup(self.hash.digest(&name))
    }

    fn lookup_batch(&self, names: &[[u64; W]], values: &mut [u64]) {
        self.hash.bursts(names, values, |digests, values| self.table.lookup_batch(digests, values));
    }

    fn apply(&mut self, update: &Q::Update) -> Result<Applied, ApplyError> {
        self.table.apply(update)
    }

    fn size_bits(&self) -> u64 {
        self.table.size_bits()
    }
}

impl<Q: Replicated<Key = Digest>, const W: usize> Replicated for NamedQuery<Q, W> {
    type Settings = Settings<Q::Settings, W>;
    type Reader = Reader<Q::Reader, W>;

    fn settings(&self) -> &Settings<Q::Settings, W> {
        let made = || -> Box<dyn Any + Send> {
            Box::new(Settings { table: self.table.settings().clone(), hash: self.hash.clone() })
        };
        self.settings.get_or_init(made).downcast_ref().expect("nothing else is stored")
    }

    fn encode_update(settings: &Settings<Q::Settings, W>, update: &Q::Update, out: &mut Vec<u8>) {
        Q::encode_update(&settings.table, update, out);
    }

    fn decode_update(settings: &Settings<Q::Settings, W>, bytes: &[u8]) -> Result<Q::Update, DecodeError> {
        Q::decode_update(&settings.table, bytes)
    }

    fn is_whole(update: &Q::Update) -> bool {
        Q::is_whole(update)
    }

    fn held_after(update: &Q::Update) -> (u64, u64) {
        Q::held_after(update)
    }

    fn from_whole(settings: &Settings<Q::Settings, W>, update: &Q::Update) -> Result<Self, ApplyError> {
        Ok(Self::new(Q::from_whole(&settings.table, update)?, settings.hash.clone()))
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

    fn reader(&self) -> Reader<Q::Reader, W> {
        Reader { table: self.table.reader(), hash: self.hash.clone() }
    }
}

/// A thread's access beside the writer.
pub struct Reader<R, const W: usize> {
    table: R,
    hash: NameHash<W>,
}

impl<R: BatchReader<Key = Digest>, const W: usize> BatchReader for Reader<R, W> {
    type Key = [u64; W];

    #[inline]
    fn lookup_batch(&mut self, names: &[[u64; W]], values: &mut [u64]) {
        let table = &mut self.table;
        self.hash.bursts(names, values, |digests, values| table.lookup_batch(digests, values));
    }

    fn offline(&mut self) {
        self.table.offline();
    }
}

//! A table under other keys: one of digests under full names, or one of words under digests.
//!
//! [`Named`] is what it takes to put an exact filter of names before a compact table, [`Digested`] the other way round.
//!
//! Cost: nothing but the new key; for [`Named`] a hash a name, beside that of the filter. Equal digests: two names with
//! one digest are one name to the table, which whoever holds the names must not let happen (a RIB refuses the second and
//! rekeys).

use std::any::Any;
use std::cell::OnceCell;

use super::BURST;
use crate::hash::{Digest, Family, Hasher, SecretKey};
use crate::othello::update::DecodeError;
use crate::testkit::Subject;
use crate::traits::{Applied, ApplyError, BatchReader, Control, InsertError, Query, Replicated};

/// How keys become those of the table: one to one, but for digests that are equal by chance.
pub trait KeyMap: Clone + Send + 'static {
    /// The keys of lookups.
    type From: Copy;
    /// The table's.
    type To: Copy;

    /// The table's key.
    fn map(&self, key: Self::From) -> Self::To;

    /// Calls `look_up` with the keys of every burst.
    fn bursts(&self, keys: &[Self::From], values: &mut [u64], look_up: impl FnMut(&[Self::To], &mut [u64]));
}

/// Names of `W` words become digests.
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

impl<const W: usize> KeyMap for NameHash<W> {
    type From = [u64; W];
    type To = Digest;

    #[inline]
    fn map(&self, name: [u64; W]) -> Digest {
        if W == 1 {
            self.hasher.digest_word(name[0], self.name_bytes)
        } else {
            self.hasher.digest(&bytemuck::cast_slice::<u64, u8>(&name)[..self.name_bytes])
        }
    }

    #[inline]
    fn bursts(&self, names: &[[u64; W]], values: &mut [u64], mut look_up: impl FnMut(&[Digest], &mut [u64])) {
        let values = &mut values[..names.len()];
        for (names, values) in names.chunks(BURST).zip(values.chunks_mut(BURST)) {
            let mut digests = [Digest(0); BURST];
            let digests = &mut digests[..names.len()];
            if W == 1 {
                self.hasher.digest_words(names.as_flattened(), self.name_bytes, digests);
            } else {
                digests.iter_mut().zip(names).for_each(|(digest, &name)| *digest = self.map(name));
            }
            look_up(digests, values);
        }
    }
}

/// Digests become names of `W` words: themselves, and zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestWords<const W: usize>;

impl<const W: usize> KeyMap for DigestWords<W> {
    type From = Digest;
    type To = [u64; W];

    #[inline]
    fn map(&self, digest: Digest) -> [u64; W] {
        std::array::from_fn(|word| if word == 0 { digest.0 } else { 0 })
    }

    #[inline]
    fn bursts(&self, digests: &[Digest], values: &mut [u64], mut look_up: impl FnMut(&[[u64; W]], &mut [u64])) {
        let values = &mut values[..digests.len()];
        for (digests, values) in digests.chunks(BURST).zip(values.chunks_mut(BURST)) {
            let mut names = [[0; W]; BURST];
            names.iter_mut().zip(digests).for_each(|(name, &digest)| *name = self.map(digest));
            look_up(&names[..digests.len()], values);
        }
    }
}

/// A table of digests under names of `W` words.
pub type Named<C, const W: usize> = Keyed<C, NameHash<W>>;
/// A table of names of `W` words under digests.
pub type Digested<C, const W: usize> = Keyed<C, DigestWords<W>>;

/// Control half.
pub struct Keyed<C, M> {
    table: C,
    map: M,
}

impl<C, M> Keyed<C, M> {
    /// `table` under the keys that `map` takes.
    pub fn new(table: C, map: M) -> Self {
        Self { table, map }
    }
}

impl<C, M> Control for Keyed<C, M>
where
    M: KeyMap,
    C: Control<Key = M::To>,
    C::Query: Query<Key = M::To>,
{
    type Key = M::From;
    type Query = KeyedQuery<C::Query, M>;

    fn insert(
        &mut self,
        key: M::From,
        value: u64,
        updates: &mut Vec<<C::Query as Query>::Update>,
    ) -> Result<(), InsertError> {
        self.table.insert(self.map.map(key), value, updates)
    }

    fn insert_batch(
        &mut self,
        entries: &[(M::From, u64)],
        updates: &mut Vec<<C::Query as Query>::Update>,
    ) -> Result<(), InsertError> {
        let mapped: Vec<_> = entries.iter().map(|&(key, value)| (self.map.map(key), value)).collect();
        self.table.insert_batch(&mapped, updates)
    }

    fn remove(&mut self, key: M::From, updates: &mut Vec<<C::Query as Query>::Update>) -> bool {
        self.table.remove(self.map.map(key), updates)
    }

    fn get(&self, key: M::From) -> Option<u64> {
        self.table.get(self.map.map(key))
    }

    fn export(&self) -> KeyedQuery<C::Query, M> {
        KeyedQuery::new(self.table.export(), self.map.clone())
    }

    fn len(&self) -> usize {
        self.table.len()
    }
}

impl<C, M> Subject for Keyed<C, M>
where
    M: KeyMap,
    C: Subject<Key = M::To>,
    C::Query: Query<Key = M::To>,
{
    fn must_drop(&self, key: M::From) -> bool {
        self.table.must_drop(self.map.map(key))
    }

    fn may_forget(update: &<C::Query as Query>::Update) -> bool {
        C::may_forget(update)
    }
}

/// Query half.
pub struct KeyedQuery<Q, M> {
    table: Q,
    map: M,
    /// [`Settings`] of this table, once somebody asks.
    settings: OnceCell<Box<dyn Any + Send>>,
}

/// What both halves were built with.
#[derive(Clone, Debug)]
pub struct Settings<S, M> {
    /// The table's.
    pub table: S,
    /// How keys become the table's.
    pub map: M,
}

impl<Q, M> KeyedQuery<Q, M> {
    fn new(table: Q, map: M) -> Self {
        Self { table, map, settings: OnceCell::new() }
    }
}

impl<M: KeyMap, Q: Query<Key = M::To>> Query for KeyedQuery<Q, M> {
    type Key = M::From;
    type Update = Q::Update;

    fn lookup(&self, key: M::From) -> u64 {
        self.table.lookup(self.map.map(key))
    }

    fn lookup_batch(&self, keys: &[M::From], values: &mut [u64]) {
        self.map.bursts(keys, values, |keys, values| self.table.lookup_batch(keys, values));
    }

    fn apply(&mut self, update: &Q::Update) -> Result<Applied, ApplyError> {
        self.table.apply(update)
    }

    fn size_bits(&self) -> u64 {
        self.table.size_bits()
    }
}

impl<M: KeyMap, Q: Replicated<Key = M::To>> Replicated for KeyedQuery<Q, M> {
    type Settings = Settings<Q::Settings, M>;
    type Reader = Reader<Q::Reader, M>;

    fn settings(&self) -> &Settings<Q::Settings, M> {
        let made = || -> Box<dyn Any + Send> {
            Box::new(Settings { table: self.table.settings().clone(), map: self.map.clone() })
        };
        self.settings.get_or_init(made).downcast_ref().expect("nothing else is stored")
    }

    fn encode_update(settings: &Settings<Q::Settings, M>, update: &Q::Update, out: &mut Vec<u8>) {
        Q::encode_update(&settings.table, update, out);
    }

    fn decode_update(settings: &Settings<Q::Settings, M>, bytes: &[u8]) -> Result<Q::Update, DecodeError> {
        Q::decode_update(&settings.table, bytes)
    }

    fn is_whole(update: &Q::Update) -> bool {
        Q::is_whole(update)
    }

    fn held_after(update: &Q::Update) -> (u64, u64) {
        Q::held_after(update)
    }

    fn from_whole(settings: &Settings<Q::Settings, M>, update: &Q::Update) -> Result<Self, ApplyError> {
        Ok(Self::new(Q::from_whole(&settings.table, update)?, settings.map.clone()))
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

    fn reader(&self) -> Reader<Q::Reader, M> {
        Reader { table: self.table.reader(), map: self.map.clone() }
    }
}

/// A thread's access beside the writer.
pub struct Reader<R, M> {
    table: R,
    map: M,
}

impl<M: KeyMap, R: BatchReader<Key = M::To>> BatchReader for Reader<R, M> {
    type Key = M::From;

    #[inline]
    fn lookup_batch(&mut self, keys: &[M::From], values: &mut [u64]) {
        let table = &mut self.table;
        self.map.bursts(keys, values, |keys, values| table.lookup_batch(keys, values));
    }

    fn offline(&mut self) {
        self.table.offline();
    }
}

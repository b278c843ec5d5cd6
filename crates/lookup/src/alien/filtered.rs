//! A filter in front of a table: what it does not know is an alien and gets 0, the rest goes on to the table.
//!
//! Both are ordinary structures with one kind of key; the filter's value is 1 for its names, which are those of the
//! table. A new name goes into the table first, a removed one out of the filter first, so that what passes the filter
//! is in the table.
//!
//! Cost: the filter's and the table's; an alien that is noticed costs the filter's alone. Updates: those of both, each
//! wrapped with a version of the pair, so that a lost one shows.
//! Readers: each half is read beside its writer as it is anywhere. A burst that began before a name was removed may
//! find it in the filter and its place in the table taken already, and gets the answer of an alien that passes.
//! ```text
//! | from 8 | to 8 | digest 8 | kind 1: 0 filter, 1 table, 2 both whole | bytes of the filter's or the table's update |
//! kind 2: | bytes of the filter 8 | the filter's | the table's |
//! ```
//! The digest is the filter's, mixed with the version; the table checks its own.

use std::any::Any;
use std::cell::OnceCell;

use super::BURST;
use crate::bytes::Bytes;
use crate::hash::mix64;
use crate::othello::update::{DecodeError, at_most};
use crate::testkit::Subject;
use crate::traits::{Applied, ApplyError, BatchReader, Control, InsertError, Query, Replicated};

/// An update of filter and table, as a pair of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<F, T> {
    from: u64,
    to: u64,
    digest: u64,
    part: Part<F, T>,
}

/// What an update is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<F, T> {
    Filter(F),
    Table(T),
    Whole(F, T),
}

/// The update of a control structure's query half.
type UpdateOf<C> = <<C as Control>::Query as Query>::Update;

/// Control half.
pub struct Filtered<F, C> {
    filter: F,
    table: C,
    version: u64,
    filter_digest: u64,
}

/// The digest of the pair.
fn joined(filter_digest: u64, version: u64) -> u64 {
    filter_digest ^ mix64(version)
}

impl<F, C> Filtered<F, C>
where
    F: Control,
    C: Control<Key = F::Key>,
    F::Query: Replicated<Key = F::Key>,
    C::Query: Query<Key = F::Key>,
{
    /// Puts `filter` in front of `table`; both are empty, and the filter takes as many names as the table.
    /// # Panics
    /// When one of them has names.
    pub fn new(filter: F, table: C) -> Self {
        assert!(filter.is_empty() && table.is_empty(), "filter and table start empty");
        let filter_digest = filter.export().held().1;
        Self { filter, table, version: 0, filter_digest }
    }

    /// The filter.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// The table.
    pub fn table(&self) -> &C {
        &self.table
    }

    fn emit(
        &mut self,
        parts: impl Iterator<Item = Part<UpdateOf<F>, UpdateOf<C>>>,
        updates: &mut Vec<Update<UpdateOf<F>, UpdateOf<C>>>,
    ) {
        for part in parts {
            if let Part::Filter(update) = &part {
                self.filter_digest = F::Query::held_after(update).1;
            }
            let from = self.version;
            self.version += 1;
            updates.push(Update { from, to: self.version, digest: joined(self.filter_digest, self.version), part });
        }
    }

    /// Brings the filter along for names that have come into the table.
    fn admit(
        &mut self,
        keys: &[F::Key],
        updates: &mut Vec<Update<UpdateOf<F>, UpdateOf<C>>>,
    ) -> Result<(), InsertError> {
        let new: Vec<_> = keys.iter().filter(|&&key| self.filter.get(key).is_none()).map(|&key| (key, 1)).collect();
        let mut written = Vec::new();
        let admitted = if new.len() == 1 {
            self.filter.insert(new[0].0, 1, &mut written)
        } else {
            self.filter.insert_batch(&new, &mut written)
        };
        self.emit(written.into_iter().map(Part::Filter), updates);
        // What found no place in the filter must not stay in the table.
        let mut taken_back = Vec::new();
        if admitted.is_err() {
            for (key, _) in new {
                if self.filter.get(key).is_none() {
                    self.table.remove(key, &mut taken_back);
                }
            }
        }
        self.emit(taken_back.into_iter().map(Part::Table), updates);
        admitted
    }
}

impl<F, C> Control for Filtered<F, C>
where
    F: Control,
    C: Control<Key = F::Key>,
    F::Query: Replicated<Key = F::Key>,
    C::Query: Query<Key = F::Key>,
{
    type Key = F::Key;
    type Query = FilteredQuery<F::Query, C::Query>;

    /// Where the filter is full and the table is not, which has room for as many, the name is taken out of the table
    /// again: then there are updates that leave all as it was.
    fn insert(
        &mut self,
        key: F::Key,
        value: u64,
        updates: &mut Vec<Update<UpdateOf<F>, UpdateOf<C>>>,
    ) -> Result<(), InsertError> {
        let mut written = Vec::new();
        self.table.insert(key, value, &mut written)?;
        self.emit(written.into_iter().map(Part::Table), updates);
        self.admit(&[key], updates)
    }

    fn insert_batch(
        &mut self,
        entries: &[(F::Key, u64)],
        updates: &mut Vec<Update<UpdateOf<F>, UpdateOf<C>>>,
    ) -> Result<(), InsertError> {
        let mut written = Vec::new();
        let inserted = self.table.insert_batch(entries, &mut written);
        self.emit(written.into_iter().map(Part::Table), updates);
        let keys = entries.iter().map(|&(key, _)| key).filter(|&key| self.table.get(key).is_some());
        let keys: Vec<_> = keys.collect();
        self.admit(&keys, updates)?;
        inserted
    }

    fn remove(&mut self, key: F::Key, updates: &mut Vec<Update<UpdateOf<F>, UpdateOf<C>>>) -> bool {
        let (mut of_filter, mut of_table) = (Vec::new(), Vec::new());
        self.filter.remove(key, &mut of_filter);
        let was_there = self.table.remove(key, &mut of_table);
        self.emit(of_filter.into_iter().map(Part::Filter), updates);
        self.emit(of_table.into_iter().map(Part::Table), updates);
        was_there
    }

    fn get(&self, key: F::Key) -> Option<u64> {
        self.table.get(key)
    }

    fn export(&self) -> FilteredQuery<F::Query, C::Query> {
        FilteredQuery::new(self.filter.export(), self.table.export(), self.version)
    }

    fn len(&self) -> usize {
        self.table.len()
    }
}

impl<F, C> Subject for Filtered<F, C>
where
    F: Subject,
    C: Subject<Key = F::Key>,
    F::Query: Replicated<Key = F::Key>,
    C::Query: Query<Key = F::Key>,
{
    fn must_drop(&self, key: F::Key) -> bool {
        self.filter.must_drop(key) || self.table.must_drop(key)
    }

    fn may_forget(update: &Update<UpdateOf<F>, UpdateOf<C>>) -> bool {
        matches!(&update.part, Part::Table(update) | Part::Whole(_, update) if C::may_forget(update))
    }
}

/// Query half.
pub struct FilteredQuery<F, T> {
    filter: F,
    table: T,
    version: u64,
    /// [`Settings`] of the pair, once somebody asks.
    settings: OnceCell<Box<dyn Any + Send>>,
}

/// What both halves were built with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings<F, T> {
    /// The filter's.
    pub filter: F,
    /// The table's.
    pub table: T,
}

impl<F: Replicated, T: Query<Key = F::Key>> FilteredQuery<F, T> {
    fn new(filter: F, table: T, version: u64) -> Self {
        Self { filter, table, version, settings: OnceCell::new() }
    }

    /// Replaces the filter, and the table by `write`: both or none.
    fn replace(
        &mut self,
        filter: &F::Update,
        write: impl FnOnce(&mut Self) -> Result<(), ApplyError>,
    ) -> Result<(), ApplyError> {
        let before = self.filter.whole();
        self.filter.overwrite(filter)?;
        write(self).inspect_err(|_| {
            // It was held a moment ago, so there is nothing wrong with it.
            let _ = self.filter.overwrite(&before);
        })
    }

    /// The filter: 1 for what passes.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// The table.
    pub fn table(&self) -> &T {
        &self.table
    }
}

/// Looks `keys` up in the table where `passes` is not 0, and leaves 0 elsewhere.
#[inline]
fn look_up_passed<K: Copy>(keys: &[K], values: &mut [u64], mut look_up: impl FnMut(&[K], &mut [u64])) {
    // What passes is moved together without a branch, looked up as one burst, and moved back.
    let Some(&first) = keys.first() else { return };
    let (mut passed, mut at, mut n_passed) = ([first; BURST], [0u8; BURST], 0);
    for (index, (&key, &passes)) in keys.iter().zip(&*values).enumerate() {
        (passed[n_passed], at[n_passed]) = (key, index as u8);
        n_passed += usize::from(passes != 0);
    }
    if n_passed == keys.len() {
        return look_up(keys, values);
    }
    let mut found = [0; BURST];
    look_up(&passed[..n_passed], &mut found[..n_passed]);
    values.fill(0);
    for (&found, &index) in found[..n_passed].iter().zip(&at) {
        values[usize::from(index)] = found;
    }
}

impl<F: Replicated, T: Query<Key = F::Key>> Query for FilteredQuery<F, T> {
    type Key = F::Key;
    type Update = Update<F::Update, T::Update>;

    fn lookup(&self, key: F::Key) -> u64 {
        if self.filter.lookup(key) == 0 { 0 } else { self.table.lookup(key) }
    }

    fn lookup_batch(&self, keys: &[F::Key], values: &mut [u64]) {
        let values = &mut values[..keys.len()];
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            self.filter.lookup_batch(keys, values);
            look_up_passed(keys, values, |keys, values| self.table.lookup_batch(keys, values));
        }
    }

    fn apply(&mut self, update: &Self::Update) -> Result<Applied, ApplyError> {
        let Update { from, to, digest: expected, part } = update;
        let current = self.version;
        if *to <= current {
            return Ok(Applied::AlreadyThere);
        }
        if *from != current && !matches!(part, Part::Whole(..)) {
            return Err(ApplyError::Gap { prefix: 0, depth: 0, current, from: *from });
        }
        let filter_digest = match part {
            Part::Filter(update) | Part::Whole(update, _) => F::held_after(update).1,
            Part::Table(_) => self.filter.held().1,
        };
        let got = joined(filter_digest, *to);
        if got != *expected {
            return Err(ApplyError::WrongDigest { prefix: 0, depth: 0, got, expected: *expected });
        }
        match part {
            Part::Filter(update) => drop(self.filter.apply(update)?),
            Part::Table(update) => drop(self.table.apply(update)?),
            Part::Whole(filter, table) => self.replace(filter, |pair| pair.table.apply(table).map(drop))?,
        }
        self.version = *to;
        Ok(Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        self.filter.size_bits() + self.table.size_bits()
    }
}

impl<F: Replicated, T: Replicated<Key = F::Key>> Replicated for FilteredQuery<F, T> {
    type Settings = Settings<F::Settings, T::Settings>;
    type Reader = Reader<F::Reader, T::Reader>;

    fn settings(&self) -> &Self::Settings {
        let made = || -> Box<dyn Any + Send> {
            Box::new(Settings { filter: self.filter.settings().clone(), table: self.table.settings().clone() })
        };
        self.settings.get_or_init(made).downcast_ref().expect("nothing else is stored")
    }

    fn encode_update(settings: &Self::Settings, update: &Self::Update, out: &mut Vec<u8>) {
        out.extend([update.from, update.to, update.digest].map(u64::to_le_bytes).as_flattened());
        match &update.part {
            Part::Filter(update) => {
                out.push(0);
                F::encode_update(&settings.filter, update, out);
            }
            Part::Table(update) => {
                out.push(1);
                T::encode_update(&settings.table, update, out);
            }
            Part::Whole(filter, table) => {
                out.push(2);
                let length_at = out.len();
                out.extend([0; 8]);
                F::encode_update(&settings.filter, filter, out);
                let length = (out.len() - length_at - 8) as u64;
                out[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
                T::encode_update(&settings.table, table, out);
            }
        }
    }

    fn decode_update(settings: &Self::Settings, bytes: &[u8]) -> Result<Self::Update, DecodeError> {
        let mut bytes = Bytes(bytes);
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let part = match at_most("kind of update", bytes.u8()?.into(), 2)? {
            0 => Part::Filter(F::decode_update(&settings.filter, bytes.0)?),
            1 => Part::Table(T::decode_update(&settings.table, bytes.0)?),
            _ => {
                let length = usize::try_from(bytes.u64()?).unwrap_or(usize::MAX);
                let filter = F::decode_update(&settings.filter, bytes.take(length)?)?;
                Part::Whole(filter, T::decode_update(&settings.table, bytes.0)?)
            }
        };
        Ok(Update { from, to, digest, part })
    }

    fn is_whole(update: &Self::Update) -> bool {
        matches!(update.part, Part::Whole(..))
    }

    fn held_after(update: &Self::Update) -> (u64, u64) {
        (update.to, update.digest)
    }

    fn from_whole(settings: &Self::Settings, update: &Self::Update) -> Result<Self, ApplyError> {
        let (filter, table) = whole_parts::<F, T>(update)?;
        let (filter, table) = (F::from_whole(&settings.filter, filter)?, T::from_whole(&settings.table, table)?);
        Ok(Self::new(filter, table, update.to))
    }

    fn overwrite(&mut self, update: &Self::Update) -> Result<(), ApplyError> {
        let (filter, table) = whole_parts::<F, T>(update)?;
        self.replace(filter, |pair| pair.table.overwrite(table))?;
        self.version = update.to;
        Ok(())
    }

    fn whole(&self) -> Self::Update {
        let (version, digest) = self.held();
        Update { from: 0, to: version, digest, part: Part::Whole(self.filter.whole(), self.table.whole()) }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, joined(self.filter.held().1, self.version))
    }

    fn reader(&self) -> Self::Reader {
        Reader { filter: self.filter.reader(), table: self.table.reader() }
    }
}

/// Filter and table of a whole update that has its digest.
fn whole_parts<F: Replicated, T: Query>(
    update: &Update<F::Update, T::Update>,
) -> Result<(&F::Update, &T::Update), ApplyError> {
    let Part::Whole(filter, table) = &update.part else {
        return Err(ApplyError::Malformed { reason: "a part came where filter and table were due" });
    };
    let (got, expected) = (joined(F::held_after(filter).1, update.to), update.digest);
    if got != expected {
        return Err(ApplyError::WrongDigest { prefix: 0, depth: 0, got, expected });
    }
    Ok((filter, table))
}

/// A thread's access beside the writer.
pub struct Reader<F, T> {
    filter: F,
    table: T,
}

impl<F: BatchReader, T: BatchReader<Key = F::Key>> BatchReader for Reader<F, T> {
    type Key = F::Key;

    fn lookup_batch(&mut self, keys: &[F::Key], values: &mut [u64]) {
        let values = &mut values[..keys.len()];
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            self.filter.lookup_batch(keys, values);
            look_up_passed(keys, values, |keys, values| self.table.lookup_batch(keys, values));
        }
    }

    fn offline(&mut self) {
        self.filter.offline();
        self.table.offline();
    }
}

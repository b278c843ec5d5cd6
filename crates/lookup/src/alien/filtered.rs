//! A filter in front of a table: names that it rejects are aliens and get 0; all others are looked up in the table.
//!
//! Both are ordinary structures with the same key type. The filter's value is 1 for its names, and filter and table
//! hold the same names. An insert changes the table first, a removal the filter first, so that what passes the filter
//! is in the table.
//!
//! Cost: filter plus table; a rejected alien costs the filter lookup only. Updates: those of both halves, each wrapped
//! with a version of the pair, so that a lost one is noticed.
//! Readers: each half is read concurrently with its writer as usual. A burst that began before a name was removed may
//! find the name in the filter and its place in the table already reused. It then gets the answer of an alien that
//! passes.
//! ```text
//! | from 8 | to 8 | digest 8 | kind 1: 0 filter, 1 table, 2 both whole | bytes of the filter's or the table's update |
//! kind 2: | bytes of the filter 8 | the filter's | the table's |
//! ```
//! The digest in an update is the filter's, mixed with the version; the table checks its own. The digest of the pair's
//! state combines both.
//! Limits: only undivided halves can be kept in a durable store.

use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::prefetch::BURST;
use crate::cuckoo::exact::{self, CuckooQuery};
use crate::hash::mix64;
use crate::traits::{
    Applied, ApplyError, BatchReader, Change, HeldPart, Image, ImageOf, InsertError, PartId, Query, Replicated,
    RestoreError, Row, SettingsOf, Skeleton, Undivided, UpdateOf, View,
};

/// A query structure that can be put in front of another: its value is 1 for its names, 0 for others.
pub trait Filter: Replicated {
    /// The digest of a filter that has applied `update`.
    fn digest_after(update: &Self::Update) -> u64;
}

impl<const W: usize> Filter for CuckooQuery<W> {
    fn digest_after(update: &exact::Update<W>) -> u64 {
        match update {
            exact::Update::Slots(update) => update.digest,
            exact::Update::Table(image) => image.digest,
        }
    }
}

/// An update of a pair, under one version: `F` and `T` are the updates of filter and table, `I` and `J` their images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<F, T, I, J> {
    from: u64,
    to: u64,
    digest: u64,
    what: What<F, T, I, J>,
}

impl<F, T, I, J> Update<F, T, I, J> {
    /// The table's update, if this carries one; none if it carries the filter's update, or images of both.
    pub fn of_table(&self) -> Option<&T> {
        match &self.what {
            What::Table(update) => Some(update),
            What::Filter(_) | What::Both(_) => None,
        }
    }
}

/// What an update changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What<F, T, I, J> {
    Filter(F),
    Table(T),
    Both(Pair<I, J>),
}

/// Filter and table, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair<I, J> {
    version: u64,
    filter: Vec<I>,
    table: Vec<J>,
}

impl<I: Image, J: Image> Image for Pair<I, J> {
    fn held(&self) -> HeldPart {
        let digest = both(self.filter.iter().map(Image::held), self.table.iter().map(Image::held));
        HeldPart { id: PartId::WHOLE, version: self.version, digest }
    }

    fn under(self, version: u64) -> Self {
        Self { version, ..self }
    }

    fn n_bytes(&self) -> usize {
        let filter: usize = self.filter.iter().map(Image::n_bytes).sum();
        filter + self.table.iter().map(Image::n_bytes).sum::<usize>()
    }
}

/// The digest stated in an update: the filter's, mixed with the version.
fn named(filter_digest: u64, version: u64) -> u64 {
    filter_digest ^ mix64(version)
}

/// The digest of the state of a pair.
fn both(filter: impl Iterator<Item = HeldPart>, table: impl Iterator<Item = HeldPart>) -> u64 {
    filter.chain(table).fold(0, |sum: u64, part| mix64(sum.rotate_left(1) ^ part.digest))
}

/// The updates of a pair.
type PairUpdate<F, T> = Update<UpdateOf<F>, UpdateOf<T>, ImageOf<F>, ImageOf<T>>;

/// A skeleton whose names are in a filter, too.
pub struct Filtered<F: Skeleton, T: Skeleton> {
    filter: F,
    table: T,
    settings: Settings<SettingsOf<F>, SettingsOf<T>>,
    /// Incremented by [`STEP`] at every change.
    version: u64,
    /// The latest change.
    latest: Latest,
    /// Whether views must send everything, since a change of one half was undone.
    is_lost: bool,
}

/// A change of both halves, in the order in which switches must learn of it.
enum Latest {
    /// An insert: the table first.
    Come { table: Change, filter: Change },
    /// A removal: the filter first.
    Gone { filter: Change, table: Change },
}

impl<F, T> Filtered<F, T>
where
    F: Skeleton<Payload = ()>,
    F::Query: Filter,
    T: Skeleton<Key = F::Key>,
{
    /// The filter.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// The table.
    pub fn table(&self) -> &T {
        &self.table
    }

    fn changed(&mut self, latest: Latest) -> Change {
        let (Latest::Come { table, filter } | Latest::Gone { filter, table }) = &latest;
        if std::mem::take(&mut self.is_lost) {
            return self.touch();
        }
        if (table, filter) == (&Change::None, &Change::None) {
            return Change::None;
        }
        self.latest = latest;
        self.version += STEP;
        Change::Part { slot: 0 }
    }
}

/// Versions that one change may use: one update per half, more where a half is itself a pair.
const STEP: u64 = 16;

/// Refuses an update that a half has already applied: by the versions of the pair it must be new.
fn part_applied(applied: Applied) -> Result<(), ApplyError> {
    match applied {
        Applied::Applied => Ok(()),
        Applied::AlreadyThere => Err(ApplyError::Malformed { reason: "an update of a pair whose half has it already" }),
    }
}

/// Marks rows as those of one half.
fn marked(mark: u8, row: Row) -> Row {
    Row { key: [&[mark], &row.key[..]].concat(), ..row }
}

/// The rows with this mark, with the mark removed.
fn of_half(rows: &[Row], mark: u8) -> Vec<Row> {
    let own = rows.iter().filter(|row| row.key.first() == Some(&mark));
    own.map(|row| Row { key: row.key[1..].to_vec(), value: row.value.clone() }).collect()
}

const OF_PAIR: u8 = 0;
const OF_FILTER: u8 = 1;
const OF_TABLE: u8 = 2;

impl<F, T> Skeleton for Filtered<F, T>
where
    F: Skeleton<Payload = ()>,
    F::Query: Filter,
    T: Skeleton<Key = F::Key>,
{
    type Key = F::Key;
    type Payload = T::Payload;
    type Query = FilteredQuery<F::Query, T::Query>;
    type View = FilteredView<F::View, T::View>;

    fn build(
        settings: &SettingsOf<Self>,
        entries: &[(F::Key, T::Payload)],
        threads: usize,
    ) -> Result<Self, InsertError> {
        let names: Vec<_> = entries.iter().map(|&(key, _)| (key, ())).collect();
        let filter = F::build(&settings.filter, &names, threads)?;
        let table = T::build(&settings.table, entries, threads)?;
        let latest = Latest::Come { table: Change::None, filter: Change::None };
        Ok(Self { filter, table, settings: settings.clone(), version: 0, latest, is_lost: false })
    }

    fn restore(
        settings: &SettingsOf<Self>,
        rows: &[Row],
        entries: &[(F::Key, T::Payload)],
    ) -> Result<Self, RestoreError> {
        let names: Vec<_> = entries.iter().map(|&(key, _)| (key, ())).collect();
        let filter = F::restore(&settings.filter, &of_half(rows, OF_FILTER), &names)?;
        let table = T::restore(&settings.table, &of_half(rows, OF_TABLE), entries)?;
        let [row] = &of_half(rows, OF_PAIR)[..] else { return Err(RestoreError::Parts) };
        let mut bytes = Bytes(row.value.as_deref().unwrap_or_default());
        let version = bytes.u64()?;
        bytes.end()?;
        let latest = Latest::Come { table: Change::None, filter: Change::None };
        Ok(Self { filter, table, settings: settings.clone(), version, latest, is_lost: false })
    }

    fn settings(&self) -> &SettingsOf<Self> {
        &self.settings
    }

    fn check(settings: &SettingsOf<Self>, key: F::Key, value: u64) -> Result<(), InsertError> {
        F::check(&settings.filter, key, 1)?;
        T::check(&settings.table, key, value)
    }

    fn insert(&mut self, key: F::Key, payload: T::Payload) -> Result<Change, InsertError> {
        let old = self.table.get(key);
        let table = self.table.insert(key, payload)?;
        match self.filter.insert(key, ()) {
            Ok(filter) => Ok(self.changed(Latest::Come { table, filter })),
            Err(error) => {
                // A name that the filter cannot hold must not stay in the table.
                self.is_lost = true;
                _ = match old {
                    Some(old) => self.table.insert(key, old)?,
                    None => self.table.remove(key),
                };
                Err(error)
            }
        }
    }

    fn insert_batch(&mut self, entries: &[(F::Key, T::Payload)]) -> Result<Change, InsertError> {
        let names: Vec<_> = entries.iter().map(|&(key, _)| (key, ())).collect();
        let new: Vec<F::Key> = names.iter().map(|name| name.0).filter(|&key| self.filter.get(key).is_none()).collect();
        let filter = self.filter.insert_batch(&names)?;
        match self.table.insert_batch(entries) {
            Ok(table) => Ok(self.changed(Latest::Come { table, filter })),
            Err(error) => {
                self.is_lost = true;
                new.into_iter().for_each(|key| _ = self.filter.remove(key));
                Err(error)
            }
        }
    }

    fn remove(&mut self, key: F::Key) -> Change {
        let (filter, table) = (self.filter.remove(key), self.table.remove(key));
        self.changed(Latest::Gone { filter, table })
    }

    fn touch(&mut self) -> Change {
        _ = (self.filter.touch(), self.table.touch());
        self.version += STEP;
        Change::Parts { slots: vec![0], replaced: Vec::new() }
    }

    fn get(&self, key: F::Key) -> Option<T::Payload> {
        self.table.get(key)
    }

    fn must_drop(&self, key: F::Key) -> bool {
        self.filter.must_drop(key) || self.table.must_drop(key)
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

    fn part_id(&self, _: u32) -> PartId {
        PartId::WHOLE
    }

    fn take_rows(&mut self, _: &[u32], _: &[PartId]) -> Vec<Row> {
        debug_assert!(!F::Query::DIVIDED && !T::Query::DIVIDED, "what is stored is of halves without parts");
        let filter = self.filter.take_rows(&[0], &[]);
        let table = self.table.take_rows(&[0], &[]);
        let filter = filter.into_iter().map(|row| marked(OF_FILTER, row));
        let table = table.into_iter().map(|row| marked(OF_TABLE, row));
        std::iter::once(self.row()).chain(filter).chain(table).collect()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        let filter = self.filter.rows().map(|row| marked(OF_FILTER, row));
        let table = self.table.rows().map(|row| marked(OF_TABLE, row));
        Box::new(std::iter::once(self.row()).chain(filter).chain(table))
    }

    fn heap_bytes(&self) -> usize {
        self.filter.heap_bytes() + self.table.heap_bytes()
    }
}

impl<F: Skeleton, T: Skeleton> Filtered<F, T> {
    /// The row of the pair.
    fn row(&self) -> Row {
        Row { key: vec![OF_PAIR], value: Some(self.version.to_le_bytes().to_vec()) }
    }
}

/// What one switch has of a pair.
pub struct FilteredView<F, T> {
    filter: F,
    table: T,
    version: u64,
    /// Whether the next update must send everything: the versions of the halves at the switch are unknown.
    is_lost: bool,
    /// For filter and table: whether its latest change gave no update, as it changed no word of this switch.
    lags: [bool; 2],
    /// Versions of filter and table at the switch, if one of them lags.
    versions: [u64; 2],
    is_row_stored: bool,
}

impl<F, T> View<Filtered<F, T>> for FilteredView<F::View, T::View>
where
    F: Skeleton<Payload = ()>,
    F::Query: Filter,
    T: Skeleton<Key = F::Key>,
{
    const MAY_FAIL: bool = T::View::MAY_FAIL;

    fn export(
        skeleton: &Filtered<F, T>,
        value: impl Fn(T::Payload) -> u64,
    ) -> Result<(Self, Vec<ImageOf<Filtered<F, T>>>), InsertError> {
        let (filter, filter_images) = F::View::export(&skeleton.filter, |()| 1)?;
        let (table, table_images) = T::View::export(&skeleton.table, value)?;
        let version = skeleton.version;
        let pair = Pair { version, filter: filter_images, table: table_images };
        Ok((Self::of(filter, table, version), vec![pair]))
    }

    fn updates(
        &mut self,
        skeleton: &Filtered<F, T>,
        change: &Change,
        value: impl Fn(T::Payload) -> u64,
        updates: &mut Vec<PairUpdate<F, T>>,
    ) -> Result<(), InsertError> {
        if *change == Change::None {
            return Ok(());
        }
        if *change != (Change::Part { slot: 0 }) || self.is_lost {
            let pair = self.renew(skeleton, 0, value)?;
            updates.push(<FilteredQuery<F::Query, T::Query> as Undivided>::update_of(pair));
            return Ok(());
        }
        let (mut of_filter, mut of_table) = (Vec::new(), Vec::new());
        let (Latest::Come { table, filter } | Latest::Gone { filter, table }) = &skeleton.latest;
        let filter_before = self.filter_digest(skeleton);
        self.table.updates(&skeleton.table, table, value, &mut of_table)?;
        self.filter.updates(&skeleton.filter, filter, |()| 1, &mut of_filter)?;
        debug_assert!(of_filter.len() + of_table.len() <= STEP as usize, "a change has few updates");
        let filter_after = self.filter_digest(skeleton);
        let (n_of_filter, n_of_table) = (of_filter.len(), of_table.len());
        let of_filter = of_filter.into_iter().map(What::Filter);
        let of_table = of_table.into_iter().map(What::Table);
        let whats: Vec<_> = match skeleton.latest {
            Latest::Come { .. } => of_table.chain(of_filter).collect(),
            Latest::Gone { .. } => of_filter.chain(of_table).collect(),
        };
        let (n, mut filter_digest) = (whats.len() as u64, filter_before);
        for (what, to) in whats.into_iter().zip(skeleton.version + 1 - n..) {
            if matches!(what, What::Filter(_)) {
                filter_digest = filter_after;
            }
            let from = std::mem::replace(&mut self.version, to);
            updates.push(Update { from, to, digest: named(filter_digest, to), what });
        }
        self.note_lags(skeleton, [(filter, n_of_filter), (table, n_of_table)]);
        Ok(())
    }

    fn image(
        &self,
        skeleton: &Filtered<F, T>,
        _: u32,
        value: impl Fn(T::Payload) -> u64,
    ) -> Result<ImageOf<Filtered<F, T>>, InsertError> {
        // Each half carries the version that the switch has, since its next update builds on that one.
        let filter = self.filter.held(&skeleton.filter).into_iter();
        let filter =
            filter.map(|(slot, held)| Ok(self.filter.image(&skeleton.filter, slot, |()| 1)?.under(held.version)));
        let table = self.table.held(&skeleton.table).into_iter();
        let table = table.map(|(slot, held)| Ok(self.table.image(&skeleton.table, slot, &value)?.under(held.version)));
        Ok(Pair {
            version: skeleton.version,
            filter: filter.collect::<Result<_, _>>()?,
            table: table.collect::<Result<_, _>>()?,
        })
    }

    fn renew(
        &mut self,
        skeleton: &Filtered<F, T>,
        _: u32,
        value: impl Fn(T::Payload) -> u64,
    ) -> Result<ImageOf<Filtered<F, T>>, InsertError> {
        // One half may be renewed before the other one fails.
        self.is_lost = true;
        let filter = self.filter.held(&skeleton.filter).into_iter();
        let filter = filter.map(|(slot, _)| self.filter.renew(&skeleton.filter, slot, |()| 1));
        let filter = filter.collect::<Result<_, _>>()?;
        let table = self.table.held(&skeleton.table).into_iter();
        let table = table.map(|(slot, _)| self.table.renew(&skeleton.table, slot, &value));
        let table = table.collect::<Result<_, _>>()?;
        (self.version, self.is_lost) = (skeleton.version, false);
        (self.lags, self.is_row_stored) = ([false; 2], false);
        Ok(Pair { version: skeleton.version, filter, table })
    }

    fn take_rows(&mut self) -> Vec<Row> {
        let own = (!std::mem::replace(&mut self.is_row_stored, true)).then(|| self.row());
        let filter = self.filter.take_rows().into_iter().map(|row| marked(OF_FILTER, row));
        let table = self.table.take_rows().into_iter().map(|row| marked(OF_TABLE, row));
        own.into_iter().chain(filter).chain(table).collect()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        let own = Some(self.row()).filter(|row| row.value.is_some());
        let filter = self.filter.rows().map(|row| marked(OF_FILTER, row));
        Box::new(own.into_iter().chain(filter).chain(self.table.rows().map(|row| marked(OF_TABLE, row))))
    }

    fn restore(
        skeleton: &Filtered<F, T>,
        rows: &[Row],
        value: impl Fn(T::Payload) -> u64,
    ) -> Result<(Self, Vec<ImageOf<Filtered<F, T>>>), RestoreError> {
        let (filter, filter_images) = F::View::restore(&skeleton.filter, &of_half(rows, OF_FILTER), |()| 1)?;
        let (table, table_images) = T::View::restore(&skeleton.table, &of_half(rows, OF_TABLE), value)?;
        let mut pair = Pair { version: skeleton.version, filter: filter_images, table: table_images };
        let mut view = Self { is_row_stored: true, ..Self::of(filter, table, pair.version) };
        let newest = view.versions(skeleton);
        if let Some(row) = of_half(rows, OF_PAIR).first() {
            let mut bytes = Bytes(row.value.as_deref().unwrap_or_default());
            let [version, of_filter, of_table] = [bytes.u64()?, bytes.u64()?, bytes.u64()?];
            bytes.end()?;
            if version > skeleton.version || of_filter > newest[0] || of_table > newest[1] {
                return Err(RestoreError::OutOfRange { part: PartId::WHOLE });
            }
            (view.version, view.versions) = (version, [of_filter, of_table]);
            view.lags = [of_filter < newest[0], of_table < newest[1]];
            view.filter.set_version(0, of_filter);
            view.table.set_version(0, of_table);
            pair.filter = pair.filter.into_iter().map(|image| image.under(of_filter)).collect();
            pair.table = pair.table.into_iter().map(|image| image.under(of_table)).collect();
        }
        Ok((view, vec![pair]))
    }

    fn note(&mut self, skeleton: &Filtered<F, T>, _: u32, pair: &ImageOf<Filtered<F, T>>) {
        for ((slot, _), image) in self.filter.held(&skeleton.filter).into_iter().zip(&pair.filter) {
            self.filter.note(&skeleton.filter, slot, image);
        }
        for ((slot, _), image) in self.table.held(&skeleton.table).into_iter().zip(&pair.table) {
            self.table.note(&skeleton.table, slot, image);
        }
        (self.version, self.is_lost) = (pair.version, false);
        // These may differ from the skeletons' versions.
        (self.lags, self.versions, self.is_row_stored) = ([true; 2], self.versions(skeleton), false);
    }

    fn held(&self, skeleton: &Filtered<F, T>) -> Vec<(u32, HeldPart)> {
        let filter = self.filter.held(&skeleton.filter).into_iter().map(|(_, held)| held);
        let table = self.table.held(&skeleton.table).into_iter().map(|(_, held)| held);
        vec![(0, HeldPart { id: PartId::WHOLE, version: self.version, digest: both(filter, table) })]
    }

    /// The switch has the right words under an earlier version. Its versions of the halves are unknown, so the next
    /// change sends everything.
    fn set_version(&mut self, _: u32, version: u64) {
        self.is_lost |= self.version != version;
        self.version = version;
    }

    fn heap_bytes(&self) -> usize {
        self.filter.heap_bytes() + self.table.heap_bytes()
    }
}

impl<F, T> FilteredView<F, T> {
    fn of(filter: F, table: T, version: u64) -> Self {
        Self { filter, table, version, is_lost: false, lags: [false; 2], versions: [0; 2], is_row_stored: false }
    }

    fn filter_digest<S: Skeleton<View = F>, U: Skeleton>(&self, skeleton: &Filtered<S, U>) -> u64
    where
        F: View<S>,
    {
        digest_of_all(self.filter.held(&skeleton.filter).into_iter().map(|(_, held)| held))
    }

    /// The versions of filter and table at the switch.
    fn versions<S: Skeleton<View = F>, U: Skeleton<View = T>>(&self, skeleton: &Filtered<S, U>) -> [u64; 2]
    where
        F: View<S>,
        T: View<U>,
    {
        let of_one = |held: Vec<(u32, HeldPart)>| held[0].1.version;
        [of_one(self.filter.held(&skeleton.filter)), of_one(self.table.held(&skeleton.table))]
    }

    /// Updates which halves lag after a change; `told` has the change and the number of updates of filter and table.
    fn note_lags<S: Skeleton<View = F>, U: Skeleton<View = T>>(
        &mut self,
        skeleton: &Filtered<S, U>,
        told: [(&Change, usize); 2],
    ) where
        F: View<S>,
        T: View<U>,
    {
        let lagged = self.lags.contains(&true);
        for (lags, (change, n_updates)) in self.lags.iter_mut().zip(told) {
            *lags = if *change == Change::None { *lags } else { n_updates == 0 };
        }
        if self.lags.contains(&true) {
            self.versions = self.versions(skeleton);
        }
        self.is_row_stored &= !lagged && !self.lags.contains(&true);
    }

    /// The row of a pair: the versions at the switch. Omitted if they equal the skeletons' versions.
    /// ```text
    /// | pair 8 | filter 8 | table 8 |
    /// ```
    fn row(&self) -> Row {
        let [filter, table] = self.versions;
        let versions = [self.version, filter, table].map(u64::to_le_bytes).concat();
        Row { key: vec![OF_PAIR], value: self.lags.contains(&true).then_some(versions) }
    }
}

/// The digest of a filter, which has one part.
fn digest_of_all(parts: impl Iterator<Item = HeldPart>) -> u64 {
    parts.fold(0, |sum, part| sum ^ part.digest)
}

/// Query half.
pub struct FilteredQuery<F, T> {
    filter: F,
    table: T,
    version: u64,
}

/// The build parameters of both halves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings<F, T> {
    /// Settings of the filter.
    pub filter: F,
    /// Settings of the table.
    pub table: T,
}

impl<F: Filter, T: Replicated<Key = F::Key>> FilteredQuery<F, T> {
    /// The filter: its value is 1 for names that pass.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// The table.
    pub fn table(&self) -> &T {
        &self.table
    }
}

/// Looks up in the table those `keys` whose value is not 0, and leaves 0 for the others.
#[inline]
fn look_up_passed<K: Copy>(keys: &[K], values: &mut [u64], mut look_up: impl FnMut(&[K], &mut [u64])) {
    // Compacts the keys that passed without a branch, looks them up as one burst, and scatters the answers.
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

impl<F: Filter, T: Replicated<Key = F::Key>> Query for FilteredQuery<F, T> {
    type Key = F::Key;
    type Update = Update<F::Update, T::Update, F::Image, T::Image>;

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
        let Update { from, to, digest: expected, what } = update;
        let current = self.version;
        if *to <= current {
            return Ok(Applied::AlreadyThere);
        }
        if !matches!(what, What::Both(_)) {
            ApplyError::check_version(PartId::WHOLE, current, *from)?;
        }
        let filter_digest = match what {
            What::Filter(update) => F::digest_after(update),
            What::Both(pair) => digest_of_all(pair.filter.iter().map(Image::held)),
            What::Table(_) => digest_of_all(self.filter.held().into_iter()),
        };
        ApplyError::check_digest(PartId::WHOLE, named(filter_digest, *to), *expected)?;
        match what {
            What::Filter(update) => part_applied(self.filter.apply(update)?)?,
            What::Table(update) => part_applied(self.table.apply(update)?)?,
            What::Both(pair) => return Undivided::overwrite(self, pair).map(|()| Applied::Applied),
        }
        self.version = *to;
        Ok(Applied::Applied)
    }

    fn prefetch_update(&self, update: &Self::Update) {
        match &update.what {
            What::Filter(update) => self.filter.prefetch_update(update),
            What::Table(update) => self.table.prefetch_update(update),
            What::Both(_) => {}
        }
    }

    fn size_bits(&self) -> u64 {
        self.filter.size_bits() + self.table.size_bits()
    }
}

impl<F: Filter, T: Replicated<Key = F::Key>> Undivided for FilteredQuery<F, T> {
    type Settings = Settings<F::Settings, T::Settings>;
    type Image = Pair<F::Image, T::Image>;
    type Reader = Reader<F::Reader, T::Reader>;

    fn settings(&self) -> Self::Settings {
        Settings { filter: self.filter.settings(), table: self.table.settings() }
    }

    fn encode_update(settings: &Self::Settings, update: &Self::Update, out: &mut Vec<u8>) {
        out.extend([update.from, update.to, update.digest].map(u64::to_le_bytes).as_flattened());
        match &update.what {
            What::Filter(update) => {
                out.push(0);
                F::encode_update(&settings.filter, update, out);
            }
            What::Table(update) => {
                out.push(1);
                T::encode_update(&settings.table, update, out);
            }
            What::Both(pair) => {
                out.push(2);
                let length_at = out.len();
                out.extend([0; 8]);
                F::encode_update(&settings.filter, &F::update_of(pair.filter.clone()), out);
                let length = (out.len() - length_at - 8) as u64;
                out[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
                T::encode_update(&settings.table, &T::update_of(pair.table.clone()), out);
            }
        }
    }

    fn decode_update(settings: &Self::Settings, bytes: &[u8]) -> Result<Self::Update, DecodeError> {
        let mut bytes = Bytes(bytes);
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let what = match at_most("kind of update", bytes.u8()?.into(), 2)? {
            0 => What::Filter(F::decode_update(&settings.filter, bytes.0)?),
            1 => What::Table(T::decode_update(&settings.table, bytes.0)?),
            _ => {
                let length = usize::try_from(bytes.u64()?).unwrap_or(usize::MAX);
                let filter = F::decode_update(&settings.filter, bytes.take(length)?)?;
                let table = T::decode_update(&settings.table, bytes.0)?;
                let not_whole = DecodeError::OutOfRange { field: "kind of update", value: 2, max: 1 };
                let (Some(filter), Some(table)) = (F::images_of(&filter), T::images_of(&table)) else {
                    return Err(not_whole);
                };
                What::Both(Pair { version: to, filter: filter.to_vec(), table: table.to_vec() })
            }
        };
        Ok(Update { from, to, digest, what })
    }

    fn update_of(pair: Self::Image) -> Self::Update {
        let digest = named(digest_of_all(pair.filter.iter().map(Image::held)), pair.version);
        Update { from: 0, to: pair.version, digest, what: What::Both(pair) }
    }

    fn image_of(update: &Self::Update) -> Option<&Self::Image> {
        if let What::Both(pair) = &update.what { Some(pair) } else { None }
    }

    fn from_image(settings: &Self::Settings, pair: &Self::Image) -> Result<Self, ApplyError> {
        let filter = F::from_images(&settings.filter, &pair.filter)?;
        let table = T::from_images(&settings.table, &pair.table)?;
        Ok(Self { filter, table, version: pair.version })
    }

    /// Overwrites both halves or neither.
    fn overwrite(&mut self, pair: &Self::Image) -> Result<(), ApplyError> {
        let before = self.filter.images();
        self.filter.overwrite(&pair.filter)?;
        self.table.overwrite(&pair.table).inspect_err(|_| {
            // The filter's own earlier image is valid, so this cannot fail.
            _ = self.filter.overwrite(&before);
        })?;
        self.version = pair.version;
        Ok(())
    }

    fn image(&self) -> Self::Image {
        Pair { version: self.version, filter: self.filter.images(), table: self.table.images() }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, both(self.filter.held().into_iter(), self.table.held().into_iter()))
    }

    fn reader(&self) -> Self::Reader {
        Reader { filter: self.filter.reader(), table: self.table.reader() }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<F, T> {
    filter: F,
    table: T,
}

impl<K: Copy, F: BatchReader<[K]>, T: BatchReader<[K]>> BatchReader<[K]> for Reader<F, T> {
    fn lookup_batch(&mut self, keys: &[K], values: &mut [u64]) {
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

//! Names that are in a filter and in a table.

use super::{Filter, FilteredQuery, FilteredView, OF_FILTER, OF_PAIR, OF_TABLE, STEP, Settings, marked, of_half};
use crate::base::bytes::Bytes;
use crate::base::touched::Touched;
use crate::traits::{Change, Crowd, InsertError, PartId, Replicated, RestoreError, Row, SettingsOf, Skeleton};

/// A skeleton whose names are in a filter, too.
pub struct Filtered<F: Skeleton, T: Skeleton> {
    pub(super) filter: F,
    pub(super) table: T,
    settings: Settings<SettingsOf<F>, SettingsOf<T>>,
    /// Incremented by [`STEP`] at every change.
    pub(super) version: u64,
    /// The latest change.
    pub(super) latest: Latest,
    /// Parts of the table since rows were last taken.
    touched: Touched,
    /// Whether views must send everything, since a change of one half was undone.
    is_lost: bool,
}

/// A change of both halves, in the order in which switches must learn of it.
pub(super) enum Latest {
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
        self.touched.note(&self.table, table);
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
        Ok(Self {
            filter,
            table,
            settings: settings.clone(),
            version: 0,
            latest,
            touched: Touched::default(),
            is_lost: false,
        })
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
        Ok(Self {
            filter,
            table,
            settings: settings.clone(),
            version,
            latest,
            touched: Touched::default(),
            is_lost: false,
        })
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
                self.touched.note(&self.table, &table);
                let undone = match old {
                    Some(old) => self.table.insert(key, old)?,
                    None => self.table.remove(key),
                };
                self.touched.note(&self.table, &undone);
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

    fn crowds(&self, keys: &[F::Key]) -> Vec<Crowd> {
        self.table.crowds(keys)
    }

    fn remove(&mut self, key: F::Key) -> Change {
        let (filter, table) = (self.filter.remove(key), self.table.remove(key));
        self.changed(Latest::Gone { filter, table })
    }

    fn touch(&mut self) -> Change {
        _ = self.filter.touch();
        let table = self.table.touch();
        self.touched.note(&self.table, &table);
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
        debug_assert!(!F::Query::DIVIDED, "the filter that is stored has no parts");
        let filter = self.filter.take_rows(&[0], &[]);
        let (slots, gone) = self.touched.take();
        let table = self.table.take_rows(&slots, &gone);
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

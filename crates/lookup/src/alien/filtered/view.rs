//! What one switch has of a filter and a table.

use super::skeleton::Latest;
use super::{
    Filter, Filtered, FilteredQuery, OF_FILTER, OF_PAIR, OF_TABLE, Pair, PairUpdate, STEP, Update, What, both,
    digest_of_all, marked, named, of_half,
};
use crate::base::bytes::Bytes;
use crate::traits::{
    Change, HeldPart, Image, ImageOf, InsertError, PartId, Replicated, RestoreError, Row, Skeleton, Undivided, View,
};
use std::collections::BTreeSet;

/// What one switch has of a pair.
pub struct FilteredView<F, T> {
    filter: F,
    table: T,
    version: u64,
    /// Whether the next update must send everything: what the switch has of the halves is unknown.
    is_lost: bool,
    /// What the switch has right, but under versions that are unknown. The next change of each sends it whole.
    unsure: Unsure,
    /// Whether the table has parts, with versions that no row holds.
    is_divided: bool,
    /// For filter and table: whether its latest change gave no update, as it changed no word of this switch.
    lags: [bool; 2],
    /// Versions of filter and table at the switch, if one of them lags.
    versions: [u64; 2],
    is_row_stored: bool,
}

/// What of a pair a switch has under unknown versions.
#[derive(Debug, Default)]
struct Unsure {
    filter: bool,
    /// The slots of the parts of the table that are known; `None`: all are.
    known: Option<BTreeSet<u32>>,
}

impl Unsure {
    /// The filter, and all parts of the table.
    fn all() -> Self {
        Self { filter: true, ..Self::of_table() }
    }

    fn of_table() -> Self {
        Self { filter: false, known: Some(BTreeSet::new()) }
    }

    /// The part in this slot is sent whole. Whether it was unknown.
    fn learn(&mut self, slot: u32) -> bool {
        self.known.as_mut().is_some_and(|known| known.insert(slot))
    }
}

impl<F, T> View<Filtered<F, T>> for FilteredView<F::View, T::View>
where
    F: Skeleton<Payload = ()>,
    F::Query: Filter,
    T: Skeleton<Key = F::Key>,
{
    const MAY_FAIL: bool = F::View::MAY_FAIL || T::View::MAY_FAIL;

    fn export(
        skeleton: &Filtered<F, T>,
        value: impl Fn(T::Payload) -> u64,
    ) -> Result<(Self, Vec<ImageOf<Filtered<F, T>>>), InsertError> {
        let (filter, filter_images) = F::View::export(&skeleton.filter, |()| 1)?;
        let (table, table_images) = T::View::export(&skeleton.table, value)?;
        let version = skeleton.version;
        let pair = Pair { version, filter: filter_images, table: table_images };
        Ok((Self::of(filter, table, version, T::Query::DIVIDED), vec![pair]))
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
        match table {
            Change::Part { slot } if self.unsure.learn(*slot) => {
                let part = self.table.renew(&skeleton.table, *slot, value).inspect_err(|_| self.is_lost = true)?;
                of_table.push(T::Query::update_of(vec![part]));
            }
            change => self.table.updates(&skeleton.table, change, value, &mut of_table)?,
        }
        if let Change::Parts { slots, .. } = table {
            slots.iter().for_each(|slot| _ = self.unsure.learn(*slot));
        }
        let followed = match filter {
            Change::None => Ok(()),
            _ if std::mem::take(&mut self.unsure.filter) => {
                let whole = self.filter.renew(&skeleton.filter, 0, |()| 1);
                whole.map(|whole| of_filter.push(F::Query::update_of(vec![whole])))
            }
            change => self.filter.updates(&skeleton.filter, change, |()| 1, &mut of_filter),
        };
        // The table's half is ahead of what is sent then.
        followed.inspect_err(|_| self.is_lost = true)?;
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
        (self.unsure, self.lags, self.is_row_stored) = (Unsure::default(), [false; 2], false);
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
        let mut view = Self { is_row_stored: true, ..Self::of(filter, table, pair.version, T::Query::DIVIDED) };
        let newest = view.versions(skeleton);
        if T::Query::DIVIDED {
            view.unsure = Unsure::of_table();
        }
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
            pair.filter = pair.filter.into_iter().map(|image| image.under(of_filter)).collect();
            if !T::Query::DIVIDED {
                view.table.set_version(0, of_table);
                pair.table = pair.table.into_iter().map(|image| image.under(of_table)).collect();
            }
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
        self.unsure = Unsure::default();
        // These may differ from the skeletons' versions.
        (self.lags, self.versions, self.is_row_stored) = ([true; 2], self.versions(skeleton), false);
    }

    fn held(&self, skeleton: &Filtered<F, T>) -> Vec<(u32, HeldPart)> {
        let filter = self.filter.held(&skeleton.filter).into_iter().map(|(_, held)| held);
        let table = self.table.held(&skeleton.table).into_iter().map(|(_, held)| held);
        vec![(0, HeldPart { id: PartId::WHOLE, version: self.version, digest: both(filter, table) })]
    }

    /// The switch has the right words under an earlier version. Its versions of the halves are unknown.
    fn set_version(&mut self, _: u32, version: u64) {
        if std::mem::replace(&mut self.version, version) != version {
            // Without a row, a restart comes to the same by the report of the switch.
            (self.unsure, self.lags, self.is_row_stored) = (Unsure::all(), [false; 2], false);
        }
    }

    fn heap_bytes(&self) -> usize {
        self.filter.heap_bytes() + self.table.heap_bytes()
    }
}

impl<F, T> FilteredView<F, T> {
    fn of(filter: F, table: T, version: u64, is_divided: bool) -> Self {
        let (lags, versions, unsure) = ([false; 2], [0; 2], Unsure::default());
        Self { filter, table, version, is_lost: false, unsure, is_divided, lags, versions, is_row_stored: false }
    }

    fn filter_digest<S: Skeleton<View = F>, U: Skeleton>(&self, skeleton: &Filtered<S, U>) -> u64
    where
        F: View<S>,
    {
        digest_of_all(self.filter.held(&skeleton.filter).into_iter().map(|(_, held)| held))
    }

    /// The versions of filter and table at the switch. A table of parts has none of its own.
    fn versions<S: Skeleton<View = F>, U: Skeleton<View = T>>(&self, skeleton: &Filtered<S, U>) -> [u64; 2]
    where
        F: View<S>,
        T: View<U>,
    {
        let of_one = |held: Vec<(u32, HeldPart)>| held[0].1.version;
        let table = if U::Query::DIVIDED { 0 } else { of_one(self.table.held(&skeleton.table)) };
        [of_one(self.filter.held(&skeleton.filter)), table]
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

    /// The row of a pair: the versions at the switch. Omitted if they equal the skeletons' versions, or are unknown. The
    /// version of a table of parts is 0.
    /// ```text
    /// | pair 8 | filter 8 | table 8 |
    /// ```
    fn row(&self) -> Row {
        let [filter, table] = self.versions;
        let versions = [self.version, filter, table].map(u64::to_le_bytes).concat();
        let are_known = !self.unsure.filter && (self.is_divided || self.unsure.known.is_none());
        Row { key: vec![OF_PAIR], value: (are_known && self.lags.contains(&true)).then_some(versions) }
    }
}

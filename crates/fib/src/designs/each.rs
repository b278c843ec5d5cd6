//! The control half of designs whose arrangement depends on values: every view has one of its own.
//!
//! Cost: memory and work of the control half once a view, where a shared skeleton has them once. A switch that comes
//! back, and after a restart of the controller every switch, is sent its whole table.

use super::keys::{Key, StructureKey};
use super::skeleton::{Emitted, Lacking, Outbox, PartRow, Skeleton};
use super::table::{Served, Table, one_shard};
use crate::messages::HeldShard;
use crate::name::NameKind;
use lookup::hash::Digest;
use lookup::traits::{Control, InsertError, Query, Replicated};
use std::collections::HashMap;

/// A batch of at least this share of the names that are in makes every view anew.
const BULK_SHARE: usize = 4;

type KeyOf<C> = <C as Control>::Key;
type SettingsOf<C> = <<C as Control>::Query as Replicated>::Settings;
type UpdateOf<C> = <<C as Control>::Query as Query>::Update;

/// Makes the control half of entries with different keys.
type Make<C> = fn(&SettingsOf<C>, &[(KeyOf<C>, u64)]) -> Result<C, InsertError>;

/// How views of a design are made.
#[derive(Clone)]
pub(super) struct Maker<C: Control>
where
    C::Query: Replicated,
{
    /// Kind of the names.
    pub(super) kind: NameKind,
    /// What both halves are built with.
    pub(super) settings: SettingsOf<C>,
    /// The control half of a view.
    pub(super) make: Make<C>,
    /// Whether any change makes the whole structure anew, so that a change of many names is best made at once.
    pub(super) is_static: bool,
}

/// Names with their places, and a control half a view.
struct EachView<C: Control>
where
    C::Query: Replicated,
{
    maker: Maker<C>,
    names: HashMap<Digest, (KeyOf<C>, u32)>,
    views: Vec<View<C>>,
    behind: bool,
}

struct View<C> {
    control: C,
    values: Vec<u16>,
    held: (u64, u64),
}

/// The names with their places.
pub(super) fn skeleton<C>(maker: Maker<C>, names: &[(Key<'_>, u32)]) -> Result<Box<dyn Skeleton>, InsertError>
where
    C: Control<Key = <<C as Control>::Query as Query>::Key> + Send + 'static,
    C::Query: Replicated,
    C::Key: StructureKey,
{
    let mut own = HashMap::with_capacity(names.len());
    for (key, place) in names {
        if own.insert(key.digest, (StructureKey::of(maker.kind, *key)?, *place)).is_some() {
            return Err(InsertError::DuplicateDigest { digest: key.digest.0 });
        }
    }
    Ok(Box::new(EachView { maker, names: own, views: Vec::new(), behind: false }))
}

impl<C> EachView<C>
where
    C: Control<Key = <<C as Control>::Query as Query>::Key> + Send + 'static,
    C::Query: Replicated,
    C::Key: StructureKey,
{
    fn control(&self, values: &[u16]) -> Result<C, InsertError> {
        let mut entries: Vec<(Digest, C::Key, u64)> =
            self.names.iter().map(|(digest, (key, place))| (*digest, *key, values[*place as usize].into())).collect();
        // So that the same names make the same structure.
        entries.sort_unstable_by_key(|(digest, ..)| *digest);
        let entries: Vec<(C::Key, u64)> = entries.into_iter().map(|(_, key, value)| (key, value)).collect();
        (self.maker.make)(&self.maker.settings, &entries)
    }

    fn encode(&self, update: &UpdateOf<C>) -> Vec<u8> {
        let mut bytes = Vec::new();
        C::Query::encode_update(&self.maker.settings, update, &mut bytes);
        bytes
    }

    /// Appends what a view is to be told, and notes it as told.
    fn emit(&mut self, index: usize, updates: &mut Vec<UpdateOf<C>>, out: &mut Outbox) {
        for update in updates.drain(..) {
            let bytes = self.encode(&update);
            self.views[index].held = C::Query::held_after(&update);
            let whole = C::Query::is_whole(&update);
            out.push((index, if whole { Emitted::Whole(bytes) } else { Emitted::Update(bytes) }));
        }
    }

    /// Makes a view anew.
    fn make(&mut self, index: usize) -> Result<(), InsertError> {
        let control = self.control(&self.views[index].values)?;
        let view = &mut self.views[index];
        view.held = control.export().held();
        view.control = control;
        Ok(())
    }

    fn make_all(&mut self, out: &mut Outbox) -> Result<(), InsertError> {
        for index in 0..self.views.len() {
            self.make(index)?;
            out.push((index, Emitted::Whole(self.image(index))));
        }
        self.behind = false;
        Ok(())
    }
}

impl<C> Skeleton for EachView<C>
where
    C: Control<Key = <<C as Control>::Query as Query>::Key> + Send + 'static,
    C::Query: Replicated,
    C::Key: StructureKey,
{
    fn change(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>], out: &mut Outbox) -> Result<(), InsertError> {
        let bulk = self.is_bulk(put.len() + remove.len());
        for (key, place) in put {
            self.names.insert(key.digest, (StructureKey::of(self.maker.kind, *key)?, *place));
        }
        let gone: Vec<_> = remove.iter().filter_map(|key| self.names.remove(&key.digest)).collect();
        if self.behind || self.maker.is_static || bulk {
            let any = self.behind || !put.is_empty() || !gone.is_empty();
            return if any { self.make_all(out) } else { Ok(()) };
        }
        let mut updates = Vec::new();
        for index in 0..self.views.len() {
            let View { control, values, .. } = &mut self.views[index];
            for (key, place) in put {
                control.insert(self.names[&key.digest].0, values[*place as usize].into(), &mut updates)?;
            }
            for (key, _) in &gone {
                control.remove(*key, &mut updates);
            }
            self.emit(index, &mut updates, out);
        }
        Ok(())
    }

    fn undo(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>]) {
        for (key, place) in put {
            if let Ok(own) = StructureKey::of(self.maker.kind, *key) {
                self.names.insert(key.digest, (own, *place));
            }
        }
        for key in remove {
            self.names.remove(&key.digest);
        }
        // Where a view fails to be made of names that it had a moment ago, the next change makes it.
        for index in 0..self.views.len() {
            _ = self.make(index);
        }
        self.behind = true;
    }

    fn catch_up(&mut self, out: &mut Outbox) {
        if self.behind {
            // A failure stays to be caught up with.
            _ = self.make_all(out);
        }
    }

    fn add_view(&mut self, values: Vec<u16>, _report: &[HeldShard]) -> Result<(), InsertError> {
        let control = self.control(&values)?;
        let held = control.export().held();
        self.views.push(View { control, values, held });
        Ok(())
    }

    fn remove_view(&mut self, view: usize) {
        self.views.remove(view);
    }

    fn values(&self, view: usize) -> &[u16] {
        &self.views[view].values
    }

    fn learn_place(&mut self, view: usize, value: u16) {
        self.views[view].values.push(value);
    }

    fn revalue(&mut self, changed: Vec<(usize, Vec<u16>)>, out: &mut Outbox) {
        for (index, values) in changed {
            let old = std::mem::replace(&mut self.views[index].values, values);
            let View { control, values, .. } = &mut self.views[index];
            let moved: Vec<(C::Key, u64)> = self
                .names
                .values()
                .filter(|(_, place)| old[*place as usize] != values[*place as usize])
                .map(|(key, place)| (*key, values[*place as usize].into()))
                .collect();
            if moved.is_empty() {
                continue;
            }
            let mut updates = Vec::new();
            if self.maker.is_static || control.insert_batch(&moved, &mut updates).is_err() {
                self.behind |= self.make(index).is_err();
                out.push((index, Emitted::Whole(self.image(index))));
            } else {
                self.emit(index, &mut updates, out);
            }
        }
    }

    fn image(&mut self, view: usize) -> Vec<u8> {
        self.encode(&self.views[view].control.export().whole())
    }

    fn held(&self, view: usize) -> Vec<HeldShard> {
        vec![one_shard(self.views[view].held)]
    }

    fn lacking(&mut self, view: usize, report: &[HeldShard]) -> Lacking {
        if report == self.held(view) { Lacking::Nothing } else { Lacking::Whole(self.image(view)) }
    }

    fn export_many(&self, values: &[Vec<u16>]) -> Result<Vec<Box<dyn Table>>, InsertError> {
        let kind = self.maker.kind;
        let table = |values: &Vec<u16>| -> Result<Box<dyn Table>, InsertError> {
            Ok(Box::new(Served { kind, query: self.control(values)?.export() }))
        };
        values.iter().map(table).collect()
    }

    fn take_rows(&mut self) -> Vec<PartRow> {
        Vec::new()
    }

    fn all_rows(&self) -> Box<dyn Iterator<Item = PartRow> + '_> {
        Box::new(std::iter::empty())
    }

    fn is_bulk(&self, n: usize) -> bool {
        n >= BULK_SHARE && n * BULK_SHARE >= self.names.len()
    }

    fn heap_bytes(&self) -> usize {
        self.names.capacity() * (size_of::<(Digest, (C::Key, u32))>() + 1)
    }

    #[cfg(test)]
    fn is_behind(&self) -> bool {
        self.behind
    }

    #[cfg(test)]
    fn must_drop(&self, _: Key<'_>) -> bool {
        false
    }
}

//! The control half of every design: one skeleton of names for all switches, and one view per switch.

use super::control::{Emitted, FibControl, Lacking, ViewUpdates};
use super::keys::{Key, StructureKey};
use super::making::Making;
use super::parts::{differing, in_messages};
use super::table::{Served, Table};
use super::{Names, Spec};
use crate::name::NameKind;
use lookup::base::touched::Touched;
use lookup::traits::{
    Change, Crowd, HeldPart, Image, ImageOf, InsertError, PartId, Replicated, RestoreError, Row, SettingsOf, Skeleton,
    UpdateOf, View,
};
use std::collections::BTreeSet;

/// The key of a name in a skeleton, and its place.
type Entry<S> = (<S as Skeleton>::Key, u32);

/// Slices of a bulk change. Parts at their borders are made twice, of some 500 with a million names.
const BULK_SLICES: usize = 8;

/// One skeleton, and its views.
pub(super) struct Shared<S: Skeleton<Payload = u32>> {
    kind: NameKind,
    skeleton: S,
    views: Vec<SwitchView<S>>,
    /// Parts since rows were last taken.
    touched: Touched,
    /// Whether the views lack the updates of `touched`.
    behind: bool,
    /// The view that is made a few parts at a time.
    making: Option<Making<S>>,
    /// Number of parts rebuilt by changes of names.
    n_rebuilt: u64,
}

/// A view with its values.
struct SwitchView<S: Skeleton<Payload = u32>> {
    view: S::View,
    values: Vec<u16>,
    /// The parts as of the view's creation, until they are read or change.
    fresh: Option<Vec<ImageOf<S>>>,
}

/// Maps a place to its value at a switch.
pub(super) fn value_at(values: &[u16]) -> impl Fn(u32) -> u64 {
    |place| values[place as usize].into()
}

fn entries<K: StructureKey>(kind: NameKind, names: Names<'_>) -> Result<Vec<(K, u32)>, InsertError> {
    let (mut entries, mut refused) = (Vec::new(), Ok(()));
    names(&mut |key, place| match K::of(kind, key) {
        Ok(first) => entries.extend(K::further(kind, key).chain([first]).map(|key| (key, place))),
        Err(error) => refused = Err(error),
    });
    refused.map(|()| entries)
}

/// The keys of names to put, with their places.
fn to_put<K: StructureKey>(kind: NameKind, names: &[(Key<'_>, u32)]) -> Result<Vec<(K, u32)>, InsertError> {
    entries(kind, &|each| names.iter().for_each(|&(key, place)| each(key, place)))
}

/// The keys of names to remove.
fn to_remove<K: StructureKey>(kind: NameKind, names: &[Key<'_>]) -> Result<Vec<K>, InsertError> {
    let mut keys = Vec::with_capacity(names.len());
    for &key in names {
        keys.push(K::of(kind, key)?);
        keys.extend(K::further(kind, key));
    }
    Ok(keys)
}

impl<S> Shared<S>
where
    S: Skeleton<Payload = u32>,
    S::Key: StructureKey,
{
    /// The control half of names with their places.
    pub(super) fn build(
        spec: &Spec,
        settings: &SettingsOf<S>,
        names: Names<'_>,
        threads: usize,
    ) -> Result<Box<dyn FibControl>, InsertError> {
        let skeleton = S::build(settings, &entries(spec.kind, names)?, threads)?;
        Ok(Box::new(Self::new(spec.kind, skeleton)))
    }

    /// The control half restored from rows and names. A store from a version that kept no rows for structures of one
    /// part has none.
    pub(super) fn restore(
        spec: &Spec,
        settings: &SettingsOf<S>,
        rows: &[Row],
        names: Names<'_>,
    ) -> Result<Box<dyn FibControl>, RestoreError> {
        if rows.is_empty() && !S::Query::DIVIDED {
            return Ok(Self::build(spec, settings, names, 1)?);
        }
        let skeleton = S::restore(settings, rows, &entries(spec.kind, names)?)?;
        Ok(Box::new(Self::new(spec.kind, skeleton)))
    }

    fn new(kind: NameKind, skeleton: S) -> Self {
        let (views, touched) = (Vec::new(), Touched::default());
        Shared { kind, skeleton, views, touched, behind: false, making: None, n_rebuilt: 0 }
    }

    /// Notes a change of names.
    fn note(&mut self, change: &Change) {
        if let Change::Parts { slots, .. } = change {
            self.n_rebuilt += slots.len() as u64;
        }
        self.note_touched(change);
    }

    fn note_touched(&mut self, change: &Change) {
        if let Some(making) = &mut self.making {
            making.note(change);
        }
        self.touched.note(&self.skeleton, change);
    }

    fn encode(&self, update: &UpdateOf<S>) -> Vec<u8> {
        let mut bytes = Vec::new();
        S::Query::encode_update(self.skeleton.settings(), update, &mut bytes);
        bytes
    }

    fn encode_images(&self, images: Vec<ImageOf<S>>) -> Vec<u8> {
        self.encode(&S::Query::update_of(images))
    }

    /// An update as it is sent. The whole of an undivided structure may be too long for one message.
    fn emitted(&self, update: &UpdateOf<S>) -> Emitted {
        let bytes = self.encode(update);
        let is_all = !S::Query::DIVIDED && S::Query::images_of(update).is_some();
        if is_all { Emitted::Whole(bytes) } else { Emitted::Update(bytes) }
    }

    /// Whether a view, made from the present values, would be the one that the switch has.
    fn is_in_step(&self, view: usize) -> bool {
        let SwitchView { view, values, .. } = &self.views[view];
        let is_same = |(slot, held): (u32, HeldPart)| {
            view.image(&self.skeleton, slot, value_at(values)).is_ok_and(|image| image.held().digest == held.digest)
        };
        self.behind || view.held(&self.skeleton).into_iter().all(is_same)
    }

    /// Appends the updates of every view after `change`, which must be the latest mutation of the skeleton.
    fn emit(&mut self, change: &Change, out: &mut ViewUpdates) -> Result<(), InsertError> {
        self.note(change);
        let mut updates = Vec::new();
        for index in 0..self.views.len() {
            let SwitchView { view, values, fresh } = &mut self.views[index];
            view.updates(&self.skeleton, change, value_at(values), &mut updates)?;
            *fresh = None;
            out.extend(updates.drain(..).map(|update| (index, self.emitted(&update))));
        }
        Ok(())
    }

    /// Inserts many names, a few parts at a time: the new parts are in memory beside those that they replace. After an
    /// error, some names are there.
    fn put_bulk(&mut self, mut put: Vec<Entry<S>>) -> Result<(), InsertError> {
        // Of few names, those of one slice would be crowded.
        let in_slices = S::Query::DIVIDED && S::Key::ORDERS_PARTS && self.skeleton.len() / 2 >= put.len();
        let n_slices = if in_slices { BULK_SLICES } else { 1 };
        if in_slices {
            put.sort_by_key(|(key, _)| *key);
        }
        for slice in put.chunks(put.len().div_ceil(n_slices).max(1)) {
            let inserted = self.skeleton.insert_batch(slice);
            if inserted.is_err() && !S::Query::DIVIDED {
                let change = self.skeleton.touch();
                self.note(&change);
            }
            self.note(&inserted?);
        }
        Ok(())
    }

    /// The updates of every view after any number of mutations: all changed parts, whole.
    fn emit_changed(&mut self, out: &mut ViewUpdates) -> Result<(), InsertError> {
        let mut slots: Vec<(u32, PartId)> = self.touched.parts().collect();
        slots.sort_unstable_by_key(|(_, id)| id.span().start);
        let may_cut = |image: &ImageOf<S>| !self.touched.was_inside(image.held().id.span().start);
        let mut sent = Vec::new();
        for (index, view) in self.views.iter_mut().enumerate() {
            let images = slots.iter().map(|(slot, _)| view.renew(&self.skeleton, *slot)).collect::<Result<_, _>>()?;
            sent.extend(in_messages(images, may_cut).map(|images| (index, S::Query::update_of(images))));
        }
        out.extend(sent.iter().map(|(index, update)| (*index, self.emitted(update))));
        self.behind = false;
        Ok(())
    }
}

impl<S> FibControl for Shared<S>
where
    S: Skeleton<Payload = u32>,
    S::Key: StructureKey,
{
    fn change(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>], out: &mut ViewUpdates) -> Result<(), InsertError> {
        let (put, remove) = (to_put::<S::Key>(self.kind, put)?, to_remove::<S::Key>(self.kind, remove)?);
        if self.is_bulk(put.len() + remove.len()) || self.behind {
            self.put_bulk(put)?;
            for key in remove {
                let change = self.skeleton.remove(key);
                self.note(&change);
            }
            return self.emit_changed(out);
        }
        for (key, place) in put {
            let change = self.skeleton.insert(key, place)?;
            self.emit(&change, out)?;
        }
        for key in remove {
            let change = self.skeleton.remove(key);
            self.emit(&change, out)?;
        }
        Ok(())
    }

    fn crowds(&self, keys: &[Key<'_>]) -> Vec<Crowd> {
        // A name that is not a key of this structure is refused by the change.
        let keys: Vec<S::Key> = keys.iter().filter_map(|key| S::Key::of(self.kind, *key).ok()).collect();
        self.skeleton.crowds(&keys)
    }

    fn undo(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>]) {
        let kind = self.kind;
        // A name that is not a key of this structure was refused before anything changed.
        for (key, place) in put.iter().filter_map(|name| to_put::<S::Key>(kind, &[*name]).ok()).flatten() {
            // The name was present before the change, so only a part that was built with it may fail here.
            if let Ok(change) = self.skeleton.insert(key, place) {
                self.note(&change);
            }
        }
        for key in remove.iter().filter_map(|name| to_remove::<S::Key>(kind, &[*name]).ok()).flatten() {
            let change = self.skeleton.remove(key);
            self.note(&change);
        }
        self.behind |= !self.touched.is_empty();
    }

    fn catch_up(&mut self, out: &mut ViewUpdates) {
        if self.behind {
            // After a failure the views stay behind.
            _ = self.emit_changed(out);
        }
    }

    fn prepare_view(&mut self, values: &[u16], n_names: &mut usize) -> Result<bool, InsertError> {
        if self.making.is_none() {
            self.making = Making::begin();
        }
        self.making.as_mut().map_or(Ok(true), |making| making.go_on(&self.skeleton, values, n_names))
    }

    fn forget_prepared(&mut self) {
        self.making = None;
    }

    fn add_view(&mut self, values: Vec<u16>, rows: &[Row], report: &[HeldPart]) -> Result<(), InsertError> {
        let restored = match rows {
            [] => self.making.take().and_then(|making| making.finish(&self.skeleton, &values)),
            // Rows from before the names or values changed: the switch is sent another table.
            rows => S::View::restore(&self.skeleton, rows, value_at(&values)).ok(),
        };
        let (mut view, images) = match restored {
            Some(restored) => restored,
            None => S::View::export(&self.skeleton, value_at(&values))?,
        };
        // Parts with the right digest keep the version that the switch has: later versions changed no word of them, so
        // it was sent none. A report is in the order of digests, and may be much longer than our list.
        let start = |part: &HeldPart| part.id.span().start;
        for (slot, ours) in view.held(&self.skeleton) {
            let theirs = report.binary_search_by_key(&start(&ours), start).ok().map(|at| report[at]);
            let same =
                |part: &HeldPart| part.id == ours.id && part.digest == ours.digest && part.version < ours.version;
            if let Some(part) = theirs.filter(same) {
                view.set_version(slot, part.version);
            }
        }
        self.views.push(SwitchView { view, values, fresh: Some(images) });
        Ok(())
    }

    fn take_view_rows(&mut self, view: usize) -> Vec<Row> {
        self.views[view].view.take_rows()
    }

    fn view_rows(&self, view: usize) -> Vec<Row> {
        self.views[view].view.rows().collect()
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

    fn revalue(&mut self, moved: bool, changed: Vec<(usize, Vec<u16>)>, out: &mut ViewUpdates) {
        let mut views = Vec::with_capacity(changed.len());
        for (index, values) in changed {
            self.views[index].values = values;
            views.push(index);
        }
        if !moved {
            // Making the parts again would not be the same: a view that sizes its table by the names may find another size.
            debug_assert!(views.iter().all(|view| self.is_in_step(*view)), "the switch would not take another table");
            return;
        }
        let change = self.skeleton.touch();
        self.note_touched(&change);
        let mut sent = Vec::new();
        for index in views {
            let view = &mut self.views[index];
            let mut images = Vec::new();
            for (slot, held) in view.view.held(&self.skeleton) {
                match view.renew(&self.skeleton, slot) {
                    Ok(image) if image.held().digest == held.digest => view.view.set_version(slot, held.version),
                    Ok(image) => images.push(image),
                    // The next change tries again.
                    Err(_) => self.behind = true,
                }
            }
            sent.extend(in_messages(images, |_| true).map(|images| (index, S::Query::update_of(images))));
        }
        out.extend(sent.iter().map(|(index, update)| (*index, self.emitted(update))));
    }

    fn image(&mut self, view: usize) -> Result<Vec<u8>, InsertError> {
        let images = self.views[view].images(&self.skeleton, self.behind)?;
        Ok(self.encode_images(images))
    }

    fn held(&self, view: usize) -> Vec<HeldPart> {
        self.views[view].view.held(&self.skeleton).into_iter().map(|(_, held)| held).collect()
    }

    fn lacking(&mut self, view: usize, report: &[HeldPart]) -> Result<Lacking, InsertError> {
        let ours = self.held(view);
        let runs = differing(report, &ours);
        if runs.as_ref().is_some_and(Vec::is_empty) {
            self.views[view].fresh = None;
            return Ok(Lacking::Nothing);
        }
        let images = self.views[view].images(&self.skeleton, self.behind)?;
        let Some(runs) = runs.filter(|_| S::Query::DIVIDED) else {
            return Ok(Lacking::Whole(self.encode_images(images)));
        };
        let starts: BTreeSet<u64> = runs.iter().map(|run| ours[run.start].id.span().start).collect();
        let mut lacking = vec![false; images.len()];
        runs.into_iter().for_each(|run| lacking[run].fill(true));
        let images = images.into_iter().zip(lacking).filter(|(_, lacks)| *lacks).map(|(image, _)| image).collect();
        let may_cut = |image: &ImageOf<S>| starts.contains(&image.held().id.span().start);
        Ok(Lacking::Parts(in_messages(images, may_cut).map(|images| self.encode_images(images)).collect()))
    }

    fn export_many(&self, values: &[Vec<u16>]) -> Result<Vec<Box<dyn Table>>, InsertError> {
        let value = |view: usize, place: u32| u64::from(values[view][place as usize]);
        let queries = S::View::export_many(&self.skeleton, values.len(), value)?;
        let table = |query| Box::new(Served::new(self.kind, query)) as Box<dyn Table>;
        Ok(queries.into_iter().map(table).collect())
    }

    fn take_rows(&mut self) -> Vec<Row> {
        if self.behind || self.touched.is_empty() {
            // The next change updates the views that are behind, and takes the rows.
            return Vec::new();
        }
        let (slots, gone) = self.touched.take();
        self.skeleton.take_rows(&slots, &gone)
    }

    fn all_rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        self.skeleton.rows()
    }

    fn is_bulk(&self, n: usize) -> bool {
        self.skeleton.is_bulk(n)
    }

    fn n_rebuilt(&self) -> u64 {
        self.n_rebuilt
    }

    fn heap_bytes(&self) -> usize {
        self.skeleton.heap_bytes() + self.views.iter().map(|view| view.view.heap_bytes()).sum::<usize>()
    }

    fn is_behind(&self) -> bool {
        self.behind
    }

    #[cfg(any(test, feature = "testkit"))]
    fn must_drop(&self, key: Key<'_>) -> bool {
        S::Key::of(self.kind, key).is_ok_and(|key| self.skeleton.must_drop(key))
    }
}

impl<S: Skeleton<Payload = u32>> SwitchView<S> {
    /// One part, rebuilt and recorded as sent under its version in the skeleton.
    fn renew(&mut self, skeleton: &S, slot: u32) -> Result<ImageOf<S>, InsertError> {
        #[cfg(test)]
        if no_renewals::are_set() {
            return Err(InsertError::TooManyNames { max: 0 });
        }
        self.fresh = None;
        self.view.renew(skeleton, slot, value_at(&self.values))
    }

    /// All parts, each under the version that the attached switches have. A view that is `behind` is rebuilt.
    fn images(&mut self, skeleton: &S, behind: bool) -> Result<Vec<ImageOf<S>>, InsertError> {
        let held = self.view.held(skeleton);
        if let Some(images) = self.fresh.take() {
            return Ok(images.into_iter().zip(held).map(|(image, (_, held))| image.under(held.version)).collect());
        }
        let image = |(slot, held): (u32, HeldPart)| {
            let image = if behind {
                let image = self.renew(skeleton, slot)?;
                self.view.set_version(slot, held.version);
                image
            } else {
                self.view.image(skeleton, slot, value_at(&self.values))?
            };
            Ok(image.under(held.version))
        };
        held.into_iter().map(image).collect()
    }
}

/// Parts of views that cannot be made, as if the names had no arrangement.
#[cfg(test)]
pub(crate) mod no_renewals {
    use std::cell::Cell;

    thread_local! {
        static ARE_SET: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn set(are: bool) {
        ARE_SET.set(are);
    }

    pub(super) fn are_set() -> bool {
        ARE_SET.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::{Burst, CONCISE, NameList};
    use crate::name::Name;
    use lookup::hash::{Digest, Family, Rng, SecretKey};

    fn value(table: &dyn Table, key: &Key<'_>) -> u64 {
        let mut value = [0];
        table.lookup_batch(&Burst { digests: &[key.digest], names: &NameList(&[key.name]) }, &mut value);
        value[0]
    }

    /// A bulk change that is refused in its last slice, when the others are done.
    #[test]
    fn bulk_change_that_is_refused_half_way_is_undone() {
        let seed = lookup::testkit::seed();
        let mut rng = Rng::new(seed);
        let spec = Spec::new(&CONCISE, NameKind::Mac, Family::default(), SecretKey::from_seed(seed), 8, 1 << 20);
        let name = Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, 1]).unwrap();
        let mut keys = |n: u32, digest: fn(u64) -> u64| -> Vec<(Key<'_>, u32)> {
            (0..n).map(|i| (Key { digest: Digest(digest(rng.next_u64())), name: &name }, i % 200)).collect()
        };
        let (held, mut put) = (keys(150_000, |digest| digest), keys(40_000, |digest| digest));
        // These share their first 24 bits: more than a part can have.
        put.extend(keys(30_000, |digest| 0xFF_FFFF << 40 | digest >> 24));
        let each = |each: &mut dyn FnMut(Key<'_>, u32)| held.iter().for_each(|(key, place)| each(*key, *place));
        let mut control = spec.control(&each, 1).unwrap();
        let values: Vec<u16> = (1..=200).collect();
        control.add_view(values.clone(), &[], &[]).unwrap();
        let right = |table: &dyn Table, (key, place): &(Key<'_>, u32)| value(table, key) == u64::from(*place) + 1;

        let mut out = ViewUpdates::new();
        let refused = control.change(&put, &[], &mut out);
        assert!(matches!(refused, Err(InsertError::Crowded { .. })) && out.is_empty(), "{refused:?} seed {seed}");
        let new: Vec<Key<'_>> = put.iter().map(|(key, _)| *key).collect();
        control.undo(&[], &new);
        control.catch_up(&mut out);
        assert!(!out.is_empty() && !control.is_behind());
        let table = control.export_many(std::slice::from_ref(&values)).unwrap().remove(0);
        assert!(held.iter().all(|entry| right(&*table, entry)), "seed {seed}");
        let gone: Vec<&Key<'_>> = new.iter().filter(|key| control.must_drop(**key)).collect();
        assert!(!gone.is_empty() && gone.iter().all(|key| value(&*table, key) == 0), "seed {seed}");

        put.truncate(40_000);
        control.change(&put, &[], &mut out).unwrap();
        let table = control.export_many(std::slice::from_ref(&values)).unwrap().remove(0);
        assert!(held.iter().chain(&put).all(|entry| right(&*table, entry)), "seed {seed}");
    }
}

//! Both halves of CFW: one arrangement of names in slots for all switches, filled for each with its values.

use super::keys::Key;
use super::skeleton::{Emitted, Lacking, Outbox, PartRow, Skeleton};
use super::table::{Served, Table, TableError, one_shard};
use super::{RestoreError, Spec};
use crate::messages::HeldShard;
use lookup::cuckoo::filtable::{self, Change, FiltableQuery, Update, View as Slots};
use lookup::hash::Digest;
use lookup::traits::InsertError;
use std::collections::HashSet;

/// A batch of at least this share of the names that are in is one rebuild.
const REBUILD_SHARE: usize = 4;

type Arrangement = filtable::Skeleton<u32>;

fn settings(spec: &Spec) -> filtable::Settings {
    filtable::Settings::new(spec.value_bits, spec.fingerprint_bits, spec.max_names, &spec.key)
}

/// The table in an image.
pub(super) fn table(spec: &Spec, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
    Served::<FiltableQuery>::from_image(spec.kind, &settings(spec), image)
}

/// The arrangement of `names` with their places.
pub(super) fn skeleton(
    spec: &Spec,
    names: &[(Key<'_>, u32)],
    _threads: usize,
) -> Result<Box<dyn Skeleton>, InsertError> {
    let mut seen = HashSet::with_capacity(names.len());
    if let Some((key, _)) = names.iter().find(|(key, _)| !seen.insert(key.digest)) {
        return Err(InsertError::DuplicateDigest { digest: key.digest.0 });
    }
    let mut arrangement = Arrangement::new(settings(spec), names.len());
    let names: Vec<(Digest, u32)> = names.iter().map(|(key, place)| (key.digest, *place)).collect();
    arrangement.insert_batch(&names).1?;
    Ok(Box::new(SharedPlaces { arrangement, views: Vec::new(), behind: false }))
}

/// An arrangement depends on the order in which names came, so the one of a restarted controller is another.
pub(super) fn restore(
    spec: &Spec,
    _rows: Vec<(Vec<u8>, Vec<u8>)>,
    names: &[(Key<'_>, u32)],
    threads: usize,
) -> Result<Box<dyn Skeleton>, RestoreError> {
    Ok(skeleton(spec, names, threads)?)
}

struct SharedPlaces {
    arrangement: Arrangement,
    views: Vec<View>,
    /// Whether the views were not told of all changes.
    behind: bool,
}

struct View {
    slots: Slots,
    values: Vec<u16>,
    /// The table as it was when the view was made, until somebody asks for it.
    fresh: Option<Vec<u8>>,
}

impl View {
    fn image(&mut self, arrangement: &Arrangement) -> Vec<u8> {
        let values = &self.values;
        self.fresh = None;
        let image = self.slots.image(arrangement, |place: u32| values[place as usize].into());
        encode(arrangement, &Update::Table(image))
    }

    fn held(&self) -> HeldShard {
        one_shard(self.slots.held())
    }
}

fn encode(arrangement: &Arrangement, update: &Update) -> Vec<u8> {
    let mut bytes = Vec::new();
    update.encode(arrangement.settings(), &mut bytes);
    bytes
}

impl SharedPlaces {
    fn emit(&mut self, change: &Change<u32>, out: &mut Outbox) {
        let mut updates = Vec::new();
        for (index, view) in self.views.iter_mut().enumerate() {
            let values = &view.values;
            let value = |place: u32| values[place as usize].into();
            view.slots.updates(&self.arrangement, change, value, &mut updates);
            view.fresh = None;
            out.extend(updates.drain(..).map(|update| {
                let bytes = encode(&self.arrangement, &update);
                let whole = matches!(update, Update::Table(_));
                (index, if whole { Emitted::Whole(bytes) } else { Emitted::Update(bytes) })
            }));
        }
    }

    fn emit_all(&mut self, out: &mut Outbox) {
        for (index, view) in self.views.iter_mut().enumerate() {
            out.push((index, Emitted::Whole(view.image(&self.arrangement))));
        }
        self.behind = false;
    }
}

impl Skeleton for SharedPlaces {
    fn change(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>], out: &mut Outbox) -> Result<(), InsertError> {
        if self.behind || self.is_bulk(put.len() + remove.len()) {
            let entries: Vec<(Digest, u32)> = put.iter().map(|(key, place)| (key.digest, *place)).collect();
            self.arrangement.insert_batch(&entries).1?;
            for key in remove {
                _ = self.arrangement.remove(key.digest);
            }
            self.emit_all(out);
            return Ok(());
        }
        for (key, place) in put {
            let change = self.arrangement.insert(key.digest, *place)?;
            self.emit(&change, out);
        }
        for key in remove {
            let (change, _) = self.arrangement.remove(key.digest);
            self.emit(&change, out);
        }
        Ok(())
    }

    fn undo(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>]) {
        for (key, place) in put {
            _ = self.arrangement.insert(key.digest, *place);
        }
        for key in remove {
            _ = self.arrangement.remove(key.digest);
        }
        self.behind = true;
    }

    fn catch_up(&mut self, out: &mut Outbox) {
        if self.behind {
            self.emit_all(out);
        }
    }

    fn add_view(&mut self, values: Vec<u16>, report: &[HeldShard]) -> Result<(), InsertError> {
        let mut view = View { slots: Slots::default(), values, fresh: None };
        let image = view.image(&self.arrangement);
        // Later versions changed no slot of its switch, so it was told of none.
        if let [theirs] = report {
            let ours = view.held();
            if theirs.digest == ours.digest && theirs.version < ours.version {
                view.slots.set_version(theirs.version);
            }
        }
        view.fresh = Some(image);
        self.views.push(view);
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
        if changed.is_empty() {
            return;
        }
        self.arrangement.touch();
        for (index, values) in changed {
            let view = &mut self.views[index];
            let before = view.held();
            view.values = values;
            let image = view.image(&self.arrangement);
            if view.held().digest == before.digest {
                view.slots.set_version(before.version);
            } else {
                out.push((index, Emitted::Whole(image)));
            }
        }
    }

    fn image(&mut self, view: usize) -> Vec<u8> {
        match self.views[view].fresh.take() {
            Some(image) => image,
            None => self.views[view].image(&self.arrangement),
        }
    }

    fn held(&self, view: usize) -> Vec<HeldShard> {
        vec![self.views[view].held()]
    }

    fn lacking(&mut self, view: usize, report: &[HeldShard]) -> Lacking {
        if report == self.held(view) {
            self.views[view].fresh = None;
            return Lacking::Nothing;
        }
        Lacking::Whole(self.image(view))
    }

    fn export_many(&self, values: &[Vec<u16>]) -> Result<Vec<Box<dyn Table>>, InsertError> {
        let table = |values: &Vec<u16>| -> Box<dyn Table> {
            let (_, query) = Slots::export(&self.arrangement, |place: u32| values[place as usize].into());
            // A query by digest does not ask for the kind of the names.
            Box::new(Served { kind: crate::name::NameKind::Mac, query })
        };
        Ok(values.iter().map(table).collect())
    }

    fn take_rows(&mut self) -> Vec<PartRow> {
        Vec::new()
    }

    fn all_rows(&self) -> Box<dyn Iterator<Item = PartRow> + '_> {
        Box::new(std::iter::empty())
    }

    fn is_bulk(&self, n: usize) -> bool {
        n >= 4 && n * REBUILD_SHARE >= self.arrangement.len()
    }

    fn heap_bytes(&self) -> usize {
        self.arrangement.heap_bytes()
    }

    #[cfg(test)]
    fn is_behind(&self) -> bool {
        self.behind
    }

    #[cfg(test)]
    fn must_drop(&self, key: Key<'_>) -> bool {
        self.arrangement.has_tombstone(key.digest)
    }
}

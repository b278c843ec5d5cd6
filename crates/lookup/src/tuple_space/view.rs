//! What one switch has of a tuple space: the hash table's slots with that switch's values, and the tuples.

use super::Settings;
use super::skeleton::{Ranked, TupleSpaceSkeleton};
use super::update::{self, Image, Update};
use crate::base::part::{Change, HeldPart, Payload};
use crate::cuckoo::exact::{self, CuckooSkeleton, CuckooView};
use crate::traits::{InsertError, Skeleton, View};

/// What the data plane holds, as far as the control side knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TupleSpaceView {
    table: CuckooView,
    tuples_digest: u64,
}

type Table<P> = CuckooSkeleton<2, Ranked<P>>;

/// The value that the hash table stores for a rule.
fn stored<P>(settings: &Settings, value: impl Fn(P) -> u64) -> impl Fn(Ranked<P>) -> u64 {
    move |rule| settings.stored(rule.priority, value(rule.payload))
}

impl<P: Payload> View<TupleSpaceSkeleton<P>> for TupleSpaceView {
    fn export(skeleton: &TupleSpaceSkeleton<P>, value: impl Fn(P) -> u64) -> Result<(Self, Vec<Image>), InsertError> {
        let mut view = Self::default();
        let image = view.image(skeleton, 0, value)?;
        view.note(skeleton, 0, &image);
        Ok((view, vec![image]))
    }

    fn updates(
        &mut self,
        skeleton: &TupleSpaceSkeleton<P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update>,
    ) -> Result<(), InsertError> {
        if let Change::Parts { .. } = change {
            let image = self.image(skeleton, 0, value)?;
            self.note(skeleton, 0, &image);
            updates.push(Update::Whole(image));
            return Ok(());
        }
        let mut written = Vec::new();
        self.table.updates(&skeleton.table, change, stored(skeleton.settings(), value), &mut written)?;
        // A slot contains the priority of its rule, so no tuple changes without a slot change.
        for table in written {
            let exact::Update::Slots(slots) = &table else { unreachable!("some slots changed") };
            self.tuples_digest = skeleton.tuples_digest;
            let (from, to, digest) = (slots.from, slots.to, slots.digest ^ self.tuples_digest);
            let tuples = skeleton.changed.clone();
            updates.push(Update::Change(update::Change { from, to, digest, tuples, table: Some(table) }));
        }
        Ok(())
    }

    fn image(
        &self,
        skeleton: &TupleSpaceSkeleton<P>,
        slot: u32,
        value: impl Fn(P) -> u64,
    ) -> Result<Image, InsertError> {
        let table = self.table.image(&skeleton.table, slot, stored(skeleton.settings(), value))?;
        let (version, digest) = (table.version, table.digest ^ skeleton.tuples_digest);
        Ok(Image { version, digest, tuples: skeleton.tuples().collect(), table })
    }

    fn note(&mut self, skeleton: &TupleSpaceSkeleton<P>, slot: u32, image: &Image) {
        self.table.note(&skeleton.table, slot, &image.table);
        self.tuples_digest = image.digest ^ image.table.digest;
    }

    fn held(&self, skeleton: &TupleSpaceSkeleton<P>) -> Vec<(u32, HeldPart)> {
        let whole = |held: HeldPart| HeldPart { digest: held.digest ^ self.tuples_digest, ..held };
        self.table.held(&skeleton.table).into_iter().map(|(slot, held)| (slot, whole(held))).collect()
    }

    fn set_version(&mut self, slot: u32, version: u64) {
        View::<Table<P>>::set_version(&mut self.table, slot, version);
    }
}

//! The contents of one switch's slots: a skeleton, with the value of each name at that switch.
//!
//! Cost: 16 bytes per switch; one pass over the slots for a whole table; an update costs the slots of its change.

use super::query::digest_of;
use super::skeleton::CuckooSkeleton;
use super::update::{SlotWrite, SlotsUpdate, TableImage, Update};
use crate::base::part::{Change, HeldPart, PartId, Payload};
use crate::cuckoo::slot_prf;
use crate::traits::{InsertError, Skeleton, View};

/// What the data plane holds, as far as the control side knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CuckooView {
    version: u64,
    digest: u64,
}

impl<const W: usize, P: Payload> View<CuckooSkeleton<W, P>> for CuckooView {
    fn export(
        skeleton: &CuckooSkeleton<W, P>,
        value: impl Fn(P) -> u64,
    ) -> Result<(Self, Vec<TableImage>), InsertError> {
        let image = Self::default().image(skeleton, 0, value)?;
        Ok((Self { version: image.version, digest: image.digest }, vec![image]))
    }

    fn updates(
        &mut self,
        skeleton: &CuckooSkeleton<W, P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update<W>>,
    ) -> Result<(), InsertError> {
        match change {
            Change::None => {}
            Change::Part { .. } => {
                let (layout, seed) = (skeleton.settings().layout::<W>(), skeleton.places.seed());
                let mut writes = Vec::with_capacity(skeleton.writes.len());
                for write in &skeleton.writes {
                    let [old, new] = [write.old, write.new]
                        .map(|entry| entry.map_or(([0; W], 0), |entry| (entry.name, value(entry.payload))));
                    if old == new {
                        continue;
                    }
                    for (name, value) in [old, new] {
                        let words = layout.words(&name, value);
                        self.digest ^= slot_prf(seed, write.slot, &words[..layout.slot_words]);
                    }
                    writes.push(SlotWrite { slot: write.slot, name: new.0, value: new.1 });
                }
                if !writes.is_empty() {
                    let from = std::mem::replace(&mut self.version, skeleton.version);
                    updates.push(Update::Slots(SlotsUpdate { from, to: self.version, digest: self.digest, writes }));
                }
            }
            Change::Parts { .. } => {
                let image = self.image(skeleton, 0, value)?;
                self.note(skeleton, 0, &image);
                updates.push(Update::Table(image));
            }
        }
        Ok(())
    }

    fn image(
        &self,
        skeleton: &CuckooSkeleton<W, P>,
        _slot: u32,
        value: impl Fn(P) -> u64,
    ) -> Result<TableImage, InsertError> {
        let (layout, places) = (skeleton.settings().layout::<W>(), &skeleton.places);
        let mut words = Vec::with_capacity(places.n_slots() * layout.slot_words);
        for slot in 0..places.n_slots() as u32 {
            let (name, value) = places.at(slot).map_or(([0; W], 0), |entry| (entry.name, value(entry.payload)));
            layout.encode(&name, value, &mut words);
        }
        let digest = digest_of(&words, layout, places.seed());
        let (tweak, n_buckets) = (places.tweak(), places.n_buckets());
        Ok(TableImage { version: skeleton.version, digest, tweak, n_buckets, words })
    }

    fn note(&mut self, _: &CuckooSkeleton<W, P>, _: u32, image: &TableImage) {
        (self.version, self.digest) = (image.version, image.digest);
    }

    fn held(&self, _skeleton: &CuckooSkeleton<W, P>) -> Vec<(u32, HeldPart)> {
        vec![(0, HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest })]
    }

    fn set_version(&mut self, _slot: u32, version: u64) {
        self.version = version;
    }
}

//! OGW, the view of one switch: the digests of its shards. Cells are the same at every switch; slots hold its values.

use std::collections::HashMap;

use super::skeleton::{GatewaySkeleton, Latest, NameChange};
use super::slot_digest;
use super::update::{NameUpdate, SlotShard, Update, WholeShards};
use crate::base::part::{Change, HeldPart, PartId, Payload};
use crate::traits::{Image, InsertError, View};

/// The view of one switch: 16 bytes per shard.
pub struct GatewayView {
    seed: u64,
    slot_words: usize,
    version: u64,
    digest: u64,
    /// Digests of cells and slots.
    shards: HashMap<PartId, u64>,
}

impl GatewayView {
    /// Notes that these shards replace those of the ids `replaced` at the switch.
    fn put(&mut self, shards: &[SlotShard], replaced: &[PartId]) {
        for id in replaced {
            self.digest ^= self.shards.remove(id).unwrap_or(0);
        }
        for shard in shards {
            let digest = shard.digest(self.seed, self.slot_words);
            self.digest ^= digest ^ self.shards.insert(shard.cells.id, digest).unwrap_or(0);
        }
    }

    /// The update after a change of one name, or none if neither its slot nor a cell changed.
    fn name_update<const W: usize, P: Payload>(
        &mut self,
        skeleton: &GatewaySkeleton<W, P>,
        change: &NameChange<W, P>,
        value: impl Fn(P) -> u64,
    ) -> Option<Update<W>> {
        let &NameChange { id, slot, name, old, new, ref cells, cells_digest } = change;
        let (old, new) = (old.map(&value), new.map(&value));
        if old == new && cells.is_empty() {
            return None;
        }
        let of_slot = |value| {
            let mut words = Vec::with_capacity(self.slot_words);
            skeleton.layout.encode(&name, value, &mut words);
            slot_digest(self.seed, id, slot, &words)
        };
        let delta = [old, new].into_iter().flatten().fold(cells_digest, |delta, value| delta ^ of_slot(value));
        *self.shards.entry(id).or_default() ^= delta;
        self.digest ^= delta;
        let from = std::mem::replace(&mut self.version, skeleton.version);
        let (name, value) = new.map_or(([0; W], 0), |value| (name, value));
        let (to, digest, cells) = (self.version, self.digest, cells.clone());
        Some(Update::Name(NameUpdate { id, from, to, digest, slot, name, value, cells }))
    }
}

impl<const W: usize, P: Payload> View<GatewaySkeleton<W, P>> for GatewayView {
    fn export(
        skeleton: &GatewaySkeleton<W, P>,
        value: impl Fn(P) -> u64,
    ) -> Result<(Self, Vec<WholeShards>), InsertError> {
        let (seed, slot_words, version) = (skeleton.seed, skeleton.layout.slot_words, skeleton.version);
        let mut view = Self { seed, slot_words, version, digest: 0, shards: HashMap::new() };
        let shard = |(slot, _)| skeleton.with_slots(slot, skeleton.cells(slot), &value);
        let shards: Vec<_> = skeleton.graph.shards().iter().map(shard).collect();
        view.put(&shards, &[]);
        let image = WholeShards { from: version, to: version, digest: view.digest, shards };
        Ok((view, vec![image]))
    }

    fn updates(
        &mut self,
        skeleton: &GatewaySkeleton<W, P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update<W>>,
    ) -> Result<(), InsertError> {
        match (change, &skeleton.latest) {
            (Change::None, _) => {}
            (Change::Part { .. }, Latest::Name(change)) => updates.extend(self.name_update(skeleton, change, value)),
            (Change::Part { .. }, Latest::Shards(shards, replaced)) => {
                let shard = |(slot, cells): &(u32, _)| skeleton.with_slots(*slot, Clone::clone(cells), &value);
                let shards: Vec<_> = shards.iter().map(shard).collect();
                self.put(&shards, replaced);
                let from = std::mem::replace(&mut self.version, skeleton.version);
                updates.push(Update::Shards(WholeShards { from, to: self.version, digest: self.digest, shards }));
            }
            (Change::Parts { .. }, _) => {
                let (view, images) = Self::export(skeleton, value)?;
                *self = view;
                updates.extend(images.into_iter().map(Update::Table));
            }
        }
        Ok(())
    }

    fn image(
        &self,
        skeleton: &GatewaySkeleton<W, P>,
        _slot: u32,
        value: impl Fn(P) -> u64,
    ) -> Result<WholeShards, InsertError> {
        let (_, mut images) = Self::export(skeleton, value)?;
        Ok(images.remove(0))
    }

    fn note(&mut self, _: &GatewaySkeleton<W, P>, _slot: u32, image: &WholeShards) {
        self.shards.clear();
        self.digest = 0;
        self.put(&image.shards, &[]);
        self.version = image.to;
    }

    fn held(&self, _skeleton: &GatewaySkeleton<W, P>) -> Vec<(u32, HeldPart)> {
        vec![(0, HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest })]
    }

    fn set_version(&mut self, _slot: u32, version: u64) {
        self.version = version;
    }

    fn heap_bytes(&self) -> usize {
        self.shards.capacity() * size_of::<(PartId, u64)>()
    }
}

impl Image for WholeShards {
    fn held(&self) -> HeldPart {
        HeldPart { id: PartId::WHOLE, version: self.to, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { from: version, to: version, ..self }
    }

    fn n_bytes(&self) -> usize {
        self.shards.iter().map(|shard| (shard.slots.len() + shard.cells.words.len()) * 8).sum()
    }
}

//! The parts of a skeleton that a store must be told of.

use crate::traits::{Change, PartId, Skeleton};
use std::collections::{BTreeMap, BTreeSet};

/// Parts that changed since rows were last taken, by slot, and those that they replaced.
#[derive(Debug, Default)]
pub struct Touched {
    changed: BTreeMap<u32, PartId>,
    replaced: BTreeSet<PartId>,
}

impl Touched {
    /// The skeleton made this change, the latest.
    pub fn note(&mut self, skeleton: &impl Skeleton, change: &Change) {
        match change {
            Change::None => {}
            Change::Part { slot } => _ = self.changed.insert(*slot, skeleton.part_id(*slot)),
            Change::Parts { slots, replaced } => {
                self.changed.retain(|_, id| !replaced.contains(id));
                self.replaced.extend(replaced);
                for slot in slots {
                    self.changed.insert(*slot, skeleton.part_id(*slot));
                }
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// The changed parts, by slot.
    pub fn parts(&self) -> impl Iterator<Item = (u32, PartId)> {
        self.changed.iter().map(|(slot, id)| (*slot, *id))
    }

    /// Whether a part that was replaced has digests below and above `at`.
    pub fn was_inside(&self, at: u64) -> bool {
        self.replaced.iter().any(|old| old.span().start < at && at < old.span().end)
    }

    /// The slots of the changed parts, and the parts that are gone. Then there are none.
    pub fn take(&mut self) -> (Vec<u32>, Vec<PartId>) {
        let Touched { changed, replaced } = std::mem::take(self);
        let gone = replaced.into_iter().filter(|old| !changed.values().any(|id| id == old)).collect();
        (changed.into_keys().collect(), gone)
    }
}

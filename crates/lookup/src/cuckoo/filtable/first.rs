//! Level 1 of a skeleton: which slot of fingerprints holds which name.

use super::slots::NameSlots;
use super::{Settings, Spots};
use crate::cuckoo::SLOTS;
use crate::cuckoo::path::{Buckets, Search};
use crate::hash::Digest;

/// Load of level 1 from which it is rebuilt: slightly above what it is sized for.
const FULL: f64 = 0.96;

/// Where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Without a place: not placed yet, or forgotten.
    Free,
    /// Removed; the number is its slot among the tombstones.
    Tombstone(u32),
    First(u32),
    Second,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Name<P> {
    pub(super) digest: Digest,
    pub(super) payload: P,
    pub(super) state: State,
}

impl<P> Name<P> {
    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, State::First(_) | State::Second)
    }
}

/// Level 1: which slot holds which name.
#[derive(Clone, Debug)]
pub(super) struct First {
    pub(super) slots: NameSlots,
    pub(super) n_names: usize,
    pub(super) tweak: u64,
    pub(super) fingerprint_bits: u8,
}

impl First {
    /// Empty slots.
    pub(super) fn new(n_buckets: u32, tweak: u64, settings: &Settings) -> Self {
        let slots = NameSlots::new(n_buckets as usize * SLOTS);
        Self { slots, n_names: 0, tweak, fingerprint_bits: settings.fingerprint_bits }
    }

    pub(super) fn n_buckets(&self) -> u32 {
        (self.slots.len() / SLOTS) as u32
    }

    #[inline]
    pub(super) fn spots(&self, digest: Digest) -> Spots {
        Spots::of(digest, self.tweak, self.n_buckets(), self.fingerprint_bits.into())
    }

    pub(super) fn is_full(&self) -> bool {
        (self.n_names + 1) as f64 > self.slots.len() as f64 * FULL
    }

    /// Inserts a name into level 1, and reports every slot written; false, with nothing changed, if there is no path.
    pub(super) fn insert<P: Copy>(
        &mut self,
        names: &mut [Name<P>],
        name: u32,
        search: &mut Search,
        mut written: impl FnMut(u32, Option<u32>, u32),
    ) -> bool {
        let own = self.spots(names[name as usize].digest).buckets;
        if !search.run(&Level { first: self, names }, own) {
            return false;
        }
        for (at, &slot) in search.chain.iter().enumerate() {
            let comes = search.chain.get(at + 1).and_then(|&from| self.slots.get(from)).unwrap_or(name);
            written(slot, self.slots.set(slot, Some(comes)), comes);
            names[comes as usize].state = State::First(slot);
        }
        self.n_names += 1;
        true
    }

    /// Empties a slot, and returns the name that it held.
    pub(super) fn clear(&mut self, slot: u32) -> Option<u32> {
        self.n_names -= 1;
        self.slots.set(slot, None)
    }
}

/// Level 1 with its names, for searches.
struct Level<'a, P> {
    first: &'a First,
    names: &'a [Name<P>],
}

impl<P> Buckets for Level<'_, P> {
    const SLOTS: u32 = SLOTS as u32;

    fn free_slot(&self, bucket: u32) -> Option<u32> {
        let start = bucket * SLOTS as u32;
        (start..start + SLOTS as u32).find(|&slot| self.first.slots.get(slot).is_none())
    }

    fn other_bucket(&self, slot: u32) -> u32 {
        let name = self.first.slots.get(slot).expect("a slot of a full bucket");
        let [first, second] = self.first.spots(self.names[name as usize].digest).buckets;
        if first == slot / SLOTS as u32 { second } else { first }
    }
}

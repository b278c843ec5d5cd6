//! Slots that hold names by number: those of level 1, and the ring of tombstones.

use crate::cuckoo::rows::{self, DirtyPages};
use crate::hash::Digest;
use crate::traits::Row;

/// The reciprocal of the tombstones' share of the slots of level 1.
pub(super) const TOMBSTONES: usize = 20;

/// A slot of either level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// A slot of fingerprints.
    First(u32),
    /// A slot of digests.
    Second(u32),
}

/// A slot that changed: its old and new names with their payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotChange<P> {
    pub(super) place: Place,
    pub(super) old: Option<(Digest, P)>,
    pub(super) new: Option<(Digest, P)>,
}

/// A table of names by number.
#[derive(Clone, Debug)]
pub(super) struct NameSlots {
    /// A name's number plus one, zero where empty.
    slots: Vec<u32>,
    dirty: DirtyPages,
}

impl NameSlots {
    pub(super) fn new(n_slots: usize) -> Self {
        Self { slots: vec![0; n_slots], dirty: DirtyPages::default().replaced(n_slots) }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<u32> {
        self.slots[slot as usize].checked_sub(1)
    }

    /// Puts a name into a slot, or empties it; returns the name that it held.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, name: Option<u32>) -> Option<u32> {
        self.dirty.mark(slot);
        let new = name.map_or(0, |name| name + 1);
        std::mem::replace(&mut self.slots[slot as usize], new).checked_sub(1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Option<u32>> + '_ {
        self.slots.iter().map(|slot| slot.checked_sub(1))
    }

    /// Notes that this table replaces `old`, whose rows a store has.
    pub(super) fn replace(&mut self, old: &Self) {
        self.dirty = old.dirty.replaced(self.len());
    }

    /// Notes that a store has, or will be given, all rows.
    pub(super) fn forget_dirty(&mut self) {
        _ = self.dirty.take(self.len());
    }

    /// Appends the rows of the pages that changed since the last call; `digest` maps a name's number to its digest.
    pub(super) fn take_rows(&mut self, table: u8, digest: impl Fn(u32) -> u64, rows: &mut Vec<Row>) {
        let pages = self.dirty.take(self.len());
        let digest_at = |slot| self.get(slot).map(&digest);
        rows.extend(pages.into_iter().map(|page| rows::page(table, page, self.len(), digest_at)));
    }

    /// The rows of all pages.
    pub(super) fn rows(&self, table: u8, digest: impl Fn(u32) -> u64) -> impl Iterator<Item = Row> {
        rows::pages(table, self.len(), move |slot| self.get(slot).map(&digest))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }
}

/// Removed names, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Tombstones {
    /// A ring buffer; a slot is empty if its name was inserted again.
    pub(super) ring: NameSlots,
    /// The oldest slot.
    pub(super) oldest: u32,
    /// Slots in use, including empty ones.
    pub(super) len: u32,
}

impl Tombstones {
    /// No tombstones, for a level 1 of `n_slots`.
    pub(super) fn new(n_slots: usize) -> Self {
        // One more than are kept, for the name that is being removed.
        Self { ring: NameSlots::new(n_slots / TOMBSTONES + 2), oldest: 0, len: 0 }
    }

    /// The slot that is `at` slots after the oldest.
    fn slot(&self, at: u32) -> u32 {
        ((u64::from(self.oldest) + u64::from(at)) % self.ring.len() as u64) as u32
    }

    /// Appends a removed name, and returns its slot.
    pub(super) fn push(&mut self, name: u32) -> u32 {
        let slot = self.slot(self.len);
        self.ring.set(slot, Some(name));
        self.len += 1;
        slot
    }

    /// Removes the oldest if the ring is full; `Some(None)` if that name was inserted again.
    pub(super) fn pop_overdue(&mut self) -> Option<Option<u32>> {
        if (self.len as usize) < self.ring.len() {
            return None;
        }
        let oldest = self.oldest;
        (self.oldest, self.len) = (self.slot(1), self.len - 1);
        Some(self.ring.set(oldest, None))
    }

    /// Whether a tombstone may be in `slot`.
    pub(super) fn covers(&self, slot: u32) -> bool {
        let n_slots = self.ring.len() as u64;
        (u64::from(slot) + n_slots - u64::from(self.oldest)) % n_slots < u64::from(self.len)
    }
}

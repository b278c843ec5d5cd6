//! One word through which a version is published.

use super::sync::{AtomicU64, Ordering, required};

/// A 64-bit word that refers to immutable data: an index or offset, and whatever describes the data there.
///
/// A reader that [`load`](Entry::load)s the published value sees everything that the writer stored before
/// [`publish`](Entry::publish). Load **once** per lookup and derive the rest from the value: two loads may see two
/// versions. Cost: that of a plain load and store on x86.
#[repr(transparent)]
#[derive(Debug)]
pub struct Entry(AtomicU64);

impl Entry {
    /// An entry that is not yet shared.
    pub fn new(value: u64) -> Entry {
        Entry(AtomicU64::new(value))
    }

    /// The published value, for readers.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        self.0.load(required!(EntryLoadedRelaxed, Acquire))
    }

    /// Replaces the value. For the one writer.
    #[inline]
    pub fn publish(&self, value: u64) {
        self.0.store(value, required!(EntryPublishedRelaxed, Release));
    }
}

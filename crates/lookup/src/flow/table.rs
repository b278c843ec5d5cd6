//! [`FlowTable`]: the store, its clock, its scan and its growth.

use std::num::NonZeroU32;

use super::bucket::Line;
use super::clock::{Clock, MAX_LIFETIME};
use super::error::{CapacityError, InsertError};
use super::inline::Inline;
use super::layout::{Layout, Memory, lanes};
use super::policy::{Policy, Timed};
use super::report::Counters;
use super::split::Split;
use super::store::{Store, at};
use crate::cuckoo::path::Search;
use crate::hash::{Digest, Family, Hasher, SecretKey};

/// Maximum number of slots of a table: in a slot's 32 bits the highest is the generation, and the lowest is set.
const MAX_SLOTS: usize = 1 << 30;
/// Bit of a slot number: the slot is in the old generation.
const OLD: u32 = 1 << 31;

/// The place of an entry. Valid until the next insert, upsert, [`rehome`](Table::rehome), [`migrate`](Table::migrate)
/// or [`grow`](Table::grow), which may move entries; a removal or a scan empties slots, but moves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot(pub(super) NonZeroU32);

impl Slot {
    #[inline(always)]
    pub(super) fn new(slot: u32, is_old: bool) -> Self {
        Self(NonZeroU32::MIN | slot << 1 | if is_old { OLD } else { 0 })
    }

    /// The number in its generation, and whether that is the old one.
    #[inline(always)]
    fn parts(self) -> (u32, bool) {
        ((self.0.get() & !OLD) >> 1, self.0.get() & OLD != 0)
    }
}

/// Build parameters of a table.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Initial slots; rounded up to a power of two of buckets, at least two.
    pub capacity: usize,
    /// Slots that the table may grow to.
    pub max_capacity: usize,
    /// How keys are hashed.
    pub family: Family,
    /// The secret that they are hashed with; anyone who knows it can crowd buckets.
    pub key: SecretKey,
    /// The caller's clock at the start; the caller chooses the unit of time.
    pub now: u64,
}

impl Settings {
    /// A table of a fixed capacity with a random key, whose clock starts at 0.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, max_capacity: capacity, family: Family::default(), key: SecretKey::random(), now: 0 }
    }
}

/// A flow table: `K` words of key, `V` words of value, lookup policy `P`. See [`super`](crate::flow).
pub type FlowTable<const K: usize, const V: usize, P = Timed> = Table<Split<K, V>, P>;

/// A flow table for small flows: `K` bytes of key and `V` bytes of value, at most 8 together, lookup policy `P` (not
/// [`Horton`](super::Horton)). A hit reads one line like a miss; a line has five slots, of 12.8 bytes each.
pub type InlineTable<const K: usize, const V: usize, P = Timed> = Table<Inline<K, V>, P>;

/// A flow table with the entry layout `L`: [`FlowTable`] or [`InlineTable`].
#[derive(Debug)]
pub struct Table<L: Layout, P: Policy = Timed> {
    pub(super) store: Store<L, P>,
    /// The old generation while the table grows.
    pub(super) old: Option<Store<L, P>>,
    /// The next bucket of `old` to migrate.
    pub(super) migrated: usize,
    pub(super) clock: Clock,
    /// The next bucket of `store`, then of `old`, to scan.
    pub(super) scanned: usize,
    /// The next bucket of `store` whose entries may move to their first bucket.
    pub(super) homed: usize,
    pub(super) search: Search,
    pub(super) hasher: Hasher,
    pub(super) max_capacity: usize,
    pub(super) counters: Counters,
    /// Rises when an entry is inserted, moves or is removed, and when time passes.
    pub(super) version: u64,
}

impl<L: Layout, P: Policy> Table<L, P> {
    /// An empty table. Memory is taken as it is touched.
    /// # Errors
    /// [`CapacityError`]
    pub fn new(settings: &Settings) -> Result<Self, CapacityError> {
        let max_capacity = capacity_of::<L>(settings.max_capacity.max(settings.capacity))?;
        let hasher = Hasher::new(settings.family, &settings.key);
        Ok(Self {
            store: store(capacity_of::<L>(settings.capacity)?, &hasher)?,
            old: None,
            migrated: 0,
            clock: Clock::new(settings.now),
            scanned: 0,
            homed: 0,
            search: Search::default(),
            hasher,
            max_capacity,
            counters: Counters::default(),
            version: 0,
        })
    }

    /// The digest of a key under this table's secret. All operations take digests from here, or from a [`Hasher`] with
    /// the same family and secret over the key's bytes (words little-endian).
    #[inline]
    pub fn digest(&self, key: &L::Key) -> Digest {
        L::digest(&self.hasher, key)
    }

    /// Makes all memory resident now, so that no operation waits for the operating system later. Uses huge pages that
    /// the operator has reserved if enough are free. Best right after [`new`](Self::new): memory that moves to reserved
    /// pages is copied.
    pub fn touch(&mut self) {
        self.store.memory.touch();
    }

    /// Entries stored: live ones, and ended ones that no scan or insert has found yet.
    pub fn len(&self) -> usize {
        self.store.n_entries() + self.old.as_ref().map_or(0, Store::n_entries)
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots of the current generation.
    pub fn capacity(&self) -> usize {
        self.store.n_slots()
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The caller's clock as of the latest [`advance`](Self::advance), in units.
    pub fn now(&self) -> u64 {
        self.clock.caller()
    }

    /// The flow with this key, if it is there and has not ended. A miss reads one cache line of metadata; a hit reads
    /// one more, with the key and the value.
    #[inline]
    pub fn lookup(&self, key: &L::Key, digest: Digest) -> Option<Slot> {
        let now = self.clock.low();
        if let Some(slot) = self.store.find(key, self.store.place(digest), now) {
            return Some(Slot::new(slot, false));
        }
        let old = self.old.as_ref()?;
        old.find(key, old.place(digest), now).map(|slot| Slot::new(slot, true))
    }

    /// As [`lookup`](Self::lookup), and sets the entry's lifetime to `lifetime` units from now.
    /// # Errors
    /// [`InsertError::Lifetime`]
    pub fn lookup_refresh(&mut self, key: &L::Key, digest: Digest, lifetime: u16) -> Result<Option<Slot>, InsertError> {
        let slot = self.lookup(key, digest);
        if let Some(slot) = slot {
            self.refresh(slot, lifetime)?;
        }
        Ok(slot)
    }

    /// Sets an entry's lifetime to `lifetime` units from now. Writes nothing if nothing changes: many packets of a flow
    /// within one unit leave its line of metadata unmodified.
    /// # Errors
    /// [`InsertError::Lifetime`]
    #[inline]
    pub fn refresh(&mut self, slot: Slot, lifetime: u16) -> Result<(), InsertError> {
        let end = self.end(lifetime)?;
        let now = self.clock.low();
        let (slot, is_old) = slot.parts();
        let (bucket, lane) = at::<L>(slot);
        let line = self.generation_mut(is_old).memory.line_mut(bucket);
        if line.end(lane) != end {
            let has_ended = line.live::<P>(now) >> lane & 1 == 0;
            line.set_end(lane, end);
            // From now on lookups find it again.
            self.version += u64::from(has_ended);
        }
        Ok(())
    }

    /// The key of an entry.
    #[inline]
    pub fn key(&self, slot: Slot) -> &L::Key {
        let (slot, is_old) = slot.parts();
        self.generation(is_old).memory.key(slot)
    }

    /// The value of an entry.
    #[inline]
    pub fn value(&self, slot: Slot) -> &L::Value {
        let (slot, is_old) = slot.parts();
        self.generation(is_old).memory.value(slot)
    }

    /// The value of an entry, mutably.
    #[inline]
    pub fn value_mut(&mut self, slot: Slot) -> &mut L::Value {
        let (slot, is_old) = slot.parts();
        self.generation_mut(is_old).memory.value_mut(slot)
    }

    /// Units that an entry has left; `None` if it has ended, no longer exists, or the policy has no timers.
    pub fn remaining(&self, slot: Slot) -> Option<u16> {
        let (slot, is_old) = slot.parts();
        let (bucket, lane) = at::<L>(slot);
        let line = self.generation(is_old).bucket(bucket);
        let runs = P::TIMED && line.live::<P>(self.clock.low()) >> lane & 1 != 0;
        runs.then(|| line.end(lane).wrapping_sub(self.clock.low()))
    }

    /// Inserts a flow that lives `lifetime` units (ignored without timers). `ended` receives the key and value of an
    /// ended entry whose slot is reused.
    /// # Errors
    /// [`InsertError`]; the table is then unchanged.
    pub fn insert(
        &mut self,
        key: &L::Key,
        digest: Digest,
        value: &L::Value,
        lifetime: u16,
        mut ended: impl FnMut(&L::Key, &L::Value),
    ) -> Result<Slot, InsertError> {
        let end = self.end(lifetime)?;
        if let Some(slot) = self.lookup(key, digest) {
            self.counters.refused_exists += 1;
            return Err(InsertError::Exists { slot });
        }
        self.insert_absent(key, digest, value, end, &mut ended)
    }

    /// Inserts a flow, or replaces its value and lifetime. Also returns whether it was there.
    /// # Errors
    /// As [`insert`](Self::insert), but never [`InsertError::Exists`].
    pub fn upsert(
        &mut self,
        key: &L::Key,
        digest: Digest,
        value: &L::Value,
        lifetime: u16,
        mut ended: impl FnMut(&L::Key, &L::Value),
    ) -> Result<(Slot, bool), InsertError> {
        let end = self.end(lifetime)?;
        if let Some(slot) = self.lookup(key, digest) {
            self.refresh(slot, lifetime)?;
            *self.value_mut(slot) = *value;
            return Ok((slot, true));
        }
        Ok((self.insert_absent(key, digest, value, end, &mut ended)?, false))
    }

    fn insert_absent(
        &mut self,
        key: &L::Key,
        digest: Digest,
        value: &L::Value,
        end: u16,
        ended: &mut impl FnMut(&L::Key, &L::Value),
    ) -> Result<Slot, InsertError> {
        let place = self.store.place(digest);
        match self.store.insert(&mut self.search, (key, value), place, (self.clock.low(), end), ended) {
            Ok(done) => {
                self.version += 1;
                self.counters.inserted += 1;
                self.counters.moved += done.n_moved as u64;
                self.counters.ended_reused += u64::from(done.reused);
                Ok(Slot::new(done.slot, false))
            }
            Err(no_way) if no_way.is_crowded => {
                self.counters.refused_crowded += 1;
                Err(InsertError::Crowded)
            }
            Err(_) => {
                self.counters.refused_full += 1;
                Err(InsertError::Full { n_entries: self.store.n_entries(), n_slots: self.store.n_slots() })
            }
        }
    }

    /// Removes a flow, and returns its value.
    pub fn remove(&mut self, key: &L::Key, digest: Digest) -> Option<L::Value> {
        let slot = self.lookup(key, digest)?;
        let value = *self.value(slot);
        self.remove_at(slot);
        Some(value)
    }

    /// Removes the entry in a slot; false if there is none.
    pub fn remove_at(&mut self, slot: Slot) -> bool {
        let (slot, is_old) = slot.parts();
        let (bucket, lane) = at::<L>(slot);
        let store = self.generation_mut(is_old);
        let is_there = store.bucket(bucket).occupied() >> lane & 1 != 0;
        if is_there {
            store.remove(slot);
            self.version += 1;
            self.counters.removed += 1;
        }
        is_there
    }

    /// Removes everything. O(slots).
    pub fn clear(&mut self) {
        self.version += 1;
        self.old = None;
        for bucket in 0..self.store.n_buckets() as u32 {
            self.store.clear(bucket, u8::MAX, &mut |_, _| {});
        }
    }

    /// All flows that have not ended, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &L::Key, &L::Value)> {
        let now = self.clock.low();
        let of = move |store: &'_ Store<L, P>, is_old| {
            let lines = store.memory.lines().iter().zip(0u32..);
            lines
                .flat_map(move |(line, bucket)| {
                    let live = line.live::<P>(now);
                    (0..lanes::<L>())
                        .filter(move |&lane| live >> lane & 1 != 0)
                        .map(move |lane| bucket * lanes::<L>() + lane)
                })
                .map(move |slot| Slot::new(slot, is_old))
                .collect::<Vec<_>>()
        };
        let mut slots = of(&self.store, false);
        slots.extend(self.old.as_ref().map(|old| of(old, true)).unwrap_or_default());
        slots.into_iter().map(|slot| (slot, self.key(slot), self.value(slot)))
    }

    fn end(&mut self, lifetime: u16) -> Result<u16, InsertError> {
        if P::TIMED && !(1..=MAX_LIFETIME).contains(&lifetime) {
            self.counters.refused_lifetime += 1;
            return Err(InsertError::Lifetime { got: lifetime, max: MAX_LIFETIME });
        }
        Ok(self.clock.end(lifetime))
    }

    #[inline(always)]
    fn generation(&self, is_old: bool) -> &Store<L, P> {
        match &self.old {
            Some(old) if is_old => old,
            _ => &self.store,
        }
    }

    #[inline(always)]
    fn generation_mut(&mut self, is_old: bool) -> &mut Store<L, P> {
        match &mut self.old {
            Some(old) if is_old => old,
            _ => &mut self.store,
        }
    }
}

/// Slots for `n` entries, as a power of two of buckets.
fn capacity_of<M: Memory>(n: usize) -> Result<usize, CapacityError> {
    match n.max(2 * M::Line::SLOTS).div_ceil(M::Line::SLOTS).checked_next_power_of_two() {
        Some(buckets) if buckets <= MAX_SLOTS / M::Line::SLOTS => Ok(buckets * M::Line::SLOTS),
        _ => Err(CapacityError::Limit { wanted: n, max: MAX_SLOTS }),
    }
}

pub(super) fn store<M: Memory, P: Policy>(n_slots: usize, hasher: &Hasher) -> Result<Store<M, P>, CapacityError> {
    Store::new(n_slots / M::Line::SLOTS, hasher).map_err(|source| CapacityError::Memory { n_slots, source })
}

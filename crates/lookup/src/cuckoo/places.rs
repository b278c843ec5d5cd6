//! Which slot of an exact cuckoo table holds which name: the basis of (2,4)-Cuckoo and of second levels.
//!
//! Every mutation appends its writes, in the order in which readers may see them: a name in its new slot before its
//! old slot is overwritten.

use super::path::{Buckets, Search};
use super::rows::{self, DirtyPages};
use super::{GROWTH, MAX_TRIES, SHRINK_FROM, SLOTS, buckets_for, buckets_of, more_buckets, most_buckets};
use crate::base::bytes::Bytes;
use crate::base::part::PartId;
use crate::hash::{Digest, mix64};
use crate::traits::{InsertError, RestoreError, Row};

/// How the names of a table are hashed.
pub(crate) trait Hash<const W: usize>: Clone {
    fn digest(&self, name: &[u64; W]) -> Digest;
}

/// Names that are digests already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Itself;

impl Hash<1> for Itself {
    #[inline]
    fn digest(&self, name: &[u64; 1]) -> Digest {
        Digest(name[0])
    }
}

/// A name and its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<const W: usize, P> {
    pub(crate) name: [u64; W],
    pub(crate) payload: P,
}

/// A slot write: the contents before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<const W: usize, P> {
    pub(crate) slot: u32,
    pub(crate) old: Option<Entry<W, P>>,
    pub(crate) new: Option<Entry<W, P>>,
}

/// The slots of one table.
#[derive(Clone, Debug)]
pub(crate) struct Places<const W: usize, P, H> {
    entries: Vec<Entry<W, P>>,
    /// One bit per slot.
    occupied: Vec<u8>,
    n_names: usize,
    tweak: u64,
    /// The number of rebuilds so far, from which the tweak is derived.
    n_tweaks: u64,
    seed: u64,
    /// Minimum capacity in names, however few there are.
    capacity: usize,
    hash: H,
    dirty: DirtyPages,
    search: Search,
}

impl<const W: usize, P: Copy + Default, H: Hash<W>> Places<W, P, H> {
    pub(crate) fn new(capacity: usize, seed: u64, hash: H) -> Self {
        Self::empty(buckets_for(capacity), capacity, seed, 0, hash)
    }

    fn empty(n_buckets: u32, capacity: usize, seed: u64, n_tweaks: u64, hash: H) -> Self {
        Self {
            entries: vec![Entry { name: [0; W], payload: P::default() }; n_buckets as usize * SLOTS],
            occupied: vec![0; n_buckets as usize],
            n_names: 0,
            tweak: super::tweak(seed, n_tweaks),
            n_tweaks,
            seed,
            capacity,
            hash,
            dirty: DirtyPages::default().replaced(n_buckets as usize * SLOTS),
            search: Search::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.n_names
    }

    pub(crate) fn n_slots(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn n_buckets(&self) -> u32 {
        self.occupied.len() as u32
    }

    pub(crate) fn tweak(&self) -> u64 {
        self.tweak
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    #[inline]
    pub(crate) fn digest(&self, name: &[u64; W]) -> u64 {
        self.hash.digest(name).0
    }

    #[inline]
    fn buckets(&self, name: &[u64; W]) -> [u32; 2] {
        buckets_of(mix64(self.digest(name) ^ self.tweak), self.n_buckets())
    }

    #[inline]
    pub(crate) fn at(&self, slot: u32) -> Option<Entry<W, P>> {
        let bit = 1 << (slot as usize % SLOTS);
        (self.occupied[slot as usize / SLOTS] & bit != 0).then(|| self.entries[slot as usize])
    }

    /// Occupied slots, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Entry<W, P>)> + '_ {
        (0..self.entries.len() as u32).filter_map(|slot| Some((slot, self.at(slot)?)))
    }

    pub(crate) fn find(&self, name: &[u64; W]) -> Option<u32> {
        let slots = self.buckets(name).into_iter().flat_map(|bucket| (0..SLOTS as u32).map(move |i| bucket * 4 + i));
        slots.into_iter().find(|&slot| self.entries[slot as usize].name == *name && self.at(slot).is_some())
    }

    /// Sets a slot, and returns the write.
    pub(crate) fn set(&mut self, slot: u32, new: Option<Entry<W, P>>) -> Write<W, P> {
        self.dirty.mark(slot);
        let old = self.at(slot);
        let bit = 1 << (slot as usize % SLOTS);
        match new {
            Some(entry) => {
                self.entries[slot as usize] = entry;
                self.occupied[slot as usize / SLOTS] |= bit;
            }
            None => self.occupied[slot as usize / SLOTS] &= !bit,
        }
        self.n_names = self.n_names + usize::from(new.is_some()) - usize::from(old.is_some());
        Write { slot, old, new }
    }

    /// Inserts a name that is not in; false, with nothing changed, if there is no path.
    pub(crate) fn insert(&mut self, entry: Entry<W, P>, writes: &mut Vec<Write<W, P>>) -> bool {
        let own = self.buckets(&entry.name);
        let mut search = std::mem::take(&mut self.search);
        let found = search.run(self, own);
        if found {
            for pair in search.chain.windows(2) {
                let moved = self.at(pair[1]);
                writes.push(self.set(pair[0], moved));
            }
            let last = *search.chain.last().expect("a chain has a slot");
            // Between two steps of a chain a name is in two slots, until its old slot is overwritten.
            writes.push(self.set(last, Some(entry)));
        }
        self.search = search;
        found
    }

    pub(crate) fn remove(&mut self, name: &[u64; W]) -> Option<Write<W, P>> {
        let slot = self.find(name)?;
        Some(self.set(slot, None))
    }

    /// Whether one more name would exceed [`LOAD`](super::LOAD).
    pub(crate) fn is_full(&self) -> bool {
        (self.n_names + 1) as f64 > self.n_slots() as f64 * super::LOAD
    }

    /// Whether less than a third of the slots are used, and a table with a third fewer slots would be enough.
    pub(crate) fn is_sparse(&self) -> bool {
        self.n_slots() > SHRINK_FROM.max(buckets_for(self.capacity) as usize * SLOTS * 3 / 2)
            && self.n_names * 3 < self.n_slots()
    }

    /// An empty table that replaces this one.
    pub(crate) fn emptied(&self) -> Self {
        let mut empty = Self::new(self.capacity, self.seed, self.hash.clone());
        empty.dirty = self.dirty.replaced(empty.n_slots());
        empty
    }

    /// A table of the same names and those of `more`, with spare capacity up to `max_names` and a new tweak.
    /// # Errors
    /// As [`Places::sized`].
    pub(crate) fn rebuilt(&self, more: &[Entry<W, P>], max_names: usize) -> Result<Self, InsertError> {
        let n_names = self.n_names + more.len();
        self.sized(more, ((n_names as f64 * GROWTH) as usize).min(max_names))
    }

    /// A table of the same names and those of `more`, with at least this `capacity` and a new tweak.
    /// # Errors
    /// [`InsertError::NoPlace`] after [`MAX_TRIES`] tries.
    pub(crate) fn sized(&self, more: &[Entry<W, P>], capacity: usize) -> Result<Self, InsertError> {
        let n_names = self.n_names + more.len();
        let mut n_buckets = buckets_for(capacity.max(n_names).max(self.capacity));
        let mut unused = Vec::new();
        for tries in 1..=MAX_TRIES {
            let n_tweaks = self.n_tweaks + u64::from(tries);
            let mut made = Self::empty(n_buckets, self.capacity, self.seed, n_tweaks, self.hash.clone());
            let mut names = self.iter().map(|(_, entry)| entry).chain(more.iter().copied());
            let fits = names.all(|entry| {
                unused.clear();
                made.insert(entry, &mut unused)
            });
            if fits {
                made.replace(self);
                return Ok(made);
            }
            n_buckets = more_buckets(n_buckets);
        }
        Err(InsertError::NoPlace { n_names, n_slots: n_buckets as usize * SLOTS, tries: MAX_TRIES })
    }

    /// Appends what [`Places::decode`] reads.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.n_buckets().to_le_bytes());
        out.extend(self.n_tweaks.to_le_bytes());
        out.extend((self.capacity as u64).to_le_bytes());
    }

    /// An empty table of the size and tweak that [`Places::encode`] wrote, for at most `max_names`.
    pub(crate) fn decode(bytes: &mut Bytes, seed: u64, hash: H, max_names: usize) -> Result<Self, RestoreError> {
        let (n_buckets, n_tweaks, capacity) = (bytes.u32()?, rows::read_count(bytes)?, bytes.u64()?);
        if n_buckets == 0 || n_buckets > most_buckets(buckets_for(max_names)) || capacity > max_names as u64 {
            return Err(RestoreError::OutOfRange { part: PartId::WHOLE });
        }
        Ok(Self::empty(n_buckets, capacity as usize, seed, n_tweaks, hash))
    }

    /// Puts a name into the slot that it had; false if the slot is not in one of its buckets or is occupied.
    pub(crate) fn put_back(&mut self, slot: u32, entry: Entry<W, P>) -> bool {
        let is_own = self.buckets(&entry.name).contains(&(slot / SLOTS as u32));
        is_own && self.set(slot, Some(entry)).old.is_none()
    }

    /// Notes that this table replaces `old`, whose rows a store has.
    pub(crate) fn replace(&mut self, old: &Self) {
        self.dirty = old.dirty.replaced(self.n_slots());
    }

    /// Notes that a store has, or will be given, all rows.
    pub(crate) fn forget_dirty(&mut self) {
        _ = self.dirty.take(self.n_slots());
    }

    /// The rows of the pages that changed since the last call.
    pub(crate) fn take_rows(&mut self, table: u8) -> impl Iterator<Item = Row> {
        let pages = self.dirty.take(self.n_slots());
        pages.into_iter().map(move |page| rows::page(table, page, self.n_slots(), |slot| self.digest_at(slot)))
    }

    /// The rows of all pages.
    pub(crate) fn rows(&self, table: u8) -> impl Iterator<Item = Row> {
        rows::pages(table, self.n_slots(), |slot| self.digest_at(slot))
    }

    fn digest_at(&self, slot: u32) -> Option<u64> {
        self.at(slot).map(|entry| self.digest(&entry.name))
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<W, P>>() + self.occupied.capacity()
    }
}

impl<const W: usize, P: Copy + Default, H: Hash<W>> Buckets for Places<W, P, H> {
    const SLOTS: u32 = SLOTS as u32;

    #[inline]
    fn free_slot(&self, bucket: u32) -> Option<u32> {
        let free = (!self.occupied[bucket as usize]).trailing_zeros();
        (free < SLOTS as u32).then(|| bucket * SLOTS as u32 + free)
    }

    #[inline]
    fn other_bucket(&self, slot: u32) -> u32 {
        let [first, second] = self.buckets(&self.entries[slot as usize].name);
        if first == slot / SLOTS as u32 { second } else { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives every name one digest.
    #[derive(Clone)]
    struct Constant;

    impl Hash<1> for Constant {
        fn digest(&self, _name: &[u64; 1]) -> Digest {
            Digest(7)
        }
    }

    #[test]
    fn names_of_one_digest_fill_two_buckets_and_the_next_is_an_error_with_numbers() {
        let mut places = Places::new(100, 1, Constant);
        let mut writes = Vec::new();
        let entry = |n: u64| Entry { name: [n], payload: n };
        let n_fit = (0..).find(|&n| !places.insert(entry(n), &mut writes)).unwrap();
        assert_eq!((n_fit, writes.len()), (8, 8), "a search that fails writes nothing");
        let error = places.rebuilt(&[entry(8)], 1_000).err().unwrap();
        assert!(matches!(error, InsertError::NoPlace { n_names: 9, tries: MAX_TRIES, .. }), "{error}");
        assert!((0..8).all(|n| places.find(&[n]).is_some()));
    }
}

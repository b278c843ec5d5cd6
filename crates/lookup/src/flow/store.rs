//! One generation of a table: buckets and entries of a fixed number, a power of two.

use super::bucket::{Bucket, CHOICES, SLOTS, offset};
use super::policy::{Policy, Second};
use super::slab::Slab;
use crate::cuckoo::path::{Buckets, Search};
use crate::hash::Digest;

/// A search for a free slot sees hundreds of buckets; flows that it sees in fewer than this share buckets and tags.
const CROWD: usize = 16;

/// Where a flow may live, from its digest: `| bucket, from bit 32 up | steering, bits 16 to 31 | tag, 16 bits |`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) first: u32,
    pub(super) tag: u16,
}

/// Buckets with their entries.
#[derive(Debug)]
pub(super) struct Store<const K: usize, const V: usize, P> {
    pub(super) slab: Slab<K, V>,
    mask: u32,
    /// Slots that hold an entry, ended or not.
    n_entries: usize,
    _policy: std::marker::PhantomData<P>,
}

/// What an insert did beside writing its entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inserted {
    pub(super) slot: u32,
    /// Entries that were moved for it.
    pub(super) n_moved: usize,
    /// Whether an entry that had ended made place.
    pub(super) reused: bool,
}

/// No slot could be freed.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoWay {
    /// The flow's entries can only move between few buckets, all full.
    pub(super) is_crowded: bool,
}

impl<const K: usize, const V: usize, P: Policy> Store<K, V, P> {
    /// Room for `n_buckets`, a power of two, at least 2.
    pub(super) fn new(n_buckets: usize) -> std::io::Result<Self> {
        debug_assert!(n_buckets.is_power_of_two() && n_buckets >= 2);
        let mask = (n_buckets - 1) as u32;
        Ok(Self { slab: Slab::new(n_buckets)?, mask, n_entries: 0, _policy: std::marker::PhantomData })
    }

    pub(super) fn n_buckets(&self) -> usize {
        self.mask as usize + 1
    }

    pub(super) fn n_slots(&self) -> usize {
        self.n_buckets() * SLOTS
    }

    pub(super) fn n_entries(&self) -> usize {
        self.n_entries
    }

    #[inline(always)]
    pub(super) fn place(&self, digest: Digest) -> Place {
        Place { first: (digest.0 >> 32) as u32 & self.mask, tag: digest.0 as u16 }
    }

    #[inline(always)]
    pub(super) fn bucket(&self, bucket: u32) -> &Bucket {
        &self.slab.buckets()[bucket as usize]
    }

    /// A bucket of a lookup, whose number is masked.
    #[inline(always)]
    pub(super) fn masked(&self, bucket: u32) -> &Bucket {
        self.slab.bucket(bucket & self.mask)
    }

    /// The bucket at an offset of `first`.
    #[inline(always)]
    pub(super) fn apart(&self, first: u32, offset: u32) -> u32 {
        (first ^ offset) & self.mask
    }

    /// The second bucket of a flow that is not in its first, if it can be there.
    #[inline(always)]
    pub(super) fn second(&self, place: Place) -> Option<u32> {
        self.masked(place.first).hint::<P>(place.tag).map(|offset| (place.first ^ offset) & self.mask)
    }

    /// The second bucket of a flow whose policy has one such bucket a flow.
    #[inline(always)]
    pub(super) fn away(&self, place: Place) -> u32 {
        (place.first ^ offset(place.tag, 0)) & self.mask
    }

    #[inline(always)]
    fn find_in(&self, bucket: u32, tag: u16, key: &[u64; K], now: u16) -> Option<u32> {
        let mut matches = self.masked(bucket).matches::<P>(tag, now);
        while matches != 0 {
            let slot = bucket * SLOTS as u32 + matches.trailing_zeros();
            if self.slab.entry(slot).key == *key {
                return Some(slot);
            }
            matches &= matches - 1;
        }
        None
    }

    /// The slot of a flow that has not ended.
    #[inline(always)]
    pub(super) fn find(&self, key: &[u64; K], place: Place, now: u16) -> Option<u32> {
        self.find_in(place.first, place.tag, key, now)
            .or_else(|| self.find_in(self.second(place)?, place.tag, key, now))
    }

    /// Inserts a flow that is not there. `ended` hears of an entry that had ended and makes place.
    pub(super) fn insert(
        &mut self,
        search: &mut Search,
        (key, value): (&[u64; K], &[u64; V]),
        place: Place,
        (now, end): (u16, u16),
        ended: &mut impl FnMut(&[u64; K], &[u64; V]),
    ) -> Result<Inserted, NoWay> {
        let view = View { store: self, now };
        let second = view.away(place.first, place.tag);
        if !search.run(&view, [place.first, second]) {
            let n_seen = search.n_buckets_seen::<View<K, V, P>>(CROWD);
            return Err(NoWay { is_crowded: n_seen < CROWD.min(self.n_buckets()) });
        }
        let chain = std::mem::take(&mut search.chain);
        let free = chain[0];
        let reused = self.bucket_of(free).occupied() >> (free as usize % SLOTS) & 1 != 0;
        if reused {
            let entry = self.slab.entry(free);
            ended(&entry.key, &entry.value);
            self.remove(free);
        }
        for pair in chain.windows(2) {
            self.shift(pair[1], pair[0]);
        }
        let slot = chain[chain.len() - 1];
        let n_moved = chain.len() - 1;
        search.chain = chain;
        self.fill(slot, place.tag, end, place.first);
        let entry = self.slab.entry_mut(slot);
        (entry.key, entry.value) = (*key, *value);
        self.n_entries += 1;
        Ok(Inserted { slot, n_moved, reused })
    }

    /// Takes the entry of a slot out. Its key and value stay to be read until the slot is used again.
    pub(super) fn remove(&mut self, slot: u32) {
        self.leave(slot);
        self.n_entries -= 1;
    }

    /// Takes out the entries of a bucket that `slots` tells; `gone` hears of each. Returns how many there were.
    pub(super) fn clear(&mut self, bucket: u32, slots: u8, gone: &mut impl FnMut(&[u64; K], &[u64; V])) -> usize {
        let mut left = self.bucket(bucket).occupied() & slots;
        let n_gone = left.count_ones() as usize;
        while left != 0 {
            let slot = bucket * SLOTS as u32 + left.trailing_zeros();
            let entry = self.slab.entry(slot);
            gone(&entry.key, &entry.value);
            self.remove(slot);
            left &= left - 1;
        }
        n_gone
    }

    /// The first bucket of an entry that stands in its second.
    pub(super) fn owner(&self, bucket: u32, lane: usize) -> u32 {
        (bucket ^ self.bucket(bucket).home::<P>(lane)) & self.mask
    }

    fn bucket_of(&self, slot: u32) -> &Bucket {
        self.bucket(slot / SLOTS as u32)
    }

    /// Moves an entry to a free slot of its other bucket.
    fn shift(&mut self, from: u32, to: u32) {
        let (bucket, lane) = (self.bucket_of(from), from as usize % SLOTS);
        let (tag, end) = (bucket.tags[lane], bucket.ends[lane]);
        let first = if bucket.is_secondary(lane) { to / SLOTS as u32 } else { from / SLOTS as u32 };
        self.leave(from);
        self.fill(to, tag, end, first);
        let entry = self.slab.entry(from);
        let (key, value) = (entry.key, entry.value);
        let entry = self.slab.entry_mut(to);
        (entry.key, entry.value) = (key, value);
    }

    /// Writes the metadata of an entry whose first bucket is `first`, and tells that bucket if it is another.
    fn fill(&mut self, slot: u32, tag: u16, end: u16, first: u32) {
        let (bucket, lane) = (slot / SLOTS as u32, slot as usize % SLOTS);
        let mut choice = 0;
        if bucket != first {
            if P::SECOND == Second::Remap {
                let way = |choice: &u32| (first ^ offset(tag, *choice)) & self.mask == bucket;
                choice = match self.bucket(first).choice(tag) {
                    0 => (1..=CHOICES).find(way).expect("an entry moves to one of its second buckets only"),
                    choice => choice,
                };
                debug_assert!(way(&choice));
            }
            self.slab.bucket_mut(first).moved_out::<P>(tag, choice);
        }
        self.slab.bucket_mut(bucket).put(lane, tag, end, bucket != first, choice);
    }

    /// Clears the metadata of an entry, and tells its owner if it stood in its second bucket.
    fn leave(&mut self, slot: u32) {
        let (bucket, lane) = (slot / SLOTS as u32, slot as usize % SLOTS);
        let line = *self.bucket(bucket);
        if line.is_secondary(lane) && matches!(P::SECOND, Second::Filter | Second::Remap) {
            self.slab.bucket_mut(self.owner(bucket, lane)).moved_back::<P>(line.tags[lane]);
        }
        self.slab.bucket_mut(bucket).take(lane);
    }
}

/// A store as a search for a free slot sees it at one moment: what has ended is free.
struct View<'a, const K: usize, const V: usize, P> {
    store: &'a Store<K, V, P>,
    now: u16,
}

impl<const K: usize, const V: usize, P: Policy> View<'_, K, V, P> {
    /// Where a flow whose first bucket is `first` goes if not there; `first` itself if it cannot.
    fn away(&self, first: u32, tag: u16) -> u32 {
        let store = self.store;
        let line = store.bucket(first);
        if !line.has_room_to_move::<P>(tag) {
            return first;
        }
        let at = |choice| (first ^ offset(tag, choice)) & store.mask;
        if P::SECOND != Second::Remap {
            return at(0);
        }
        match line.choice(tag) {
            // The least loaded of those that a function leads to.
            0 => (1..=CHOICES)
                .map(at)
                .min_by_key(|&bucket| store.bucket(bucket).live::<P>(self.now).count_ones())
                .expect("there are several functions"),
            choice => at(choice),
        }
    }
}

impl<const K: usize, const V: usize, P: Policy> Buckets for View<'_, K, V, P> {
    const SLOTS: u32 = SLOTS as u32;

    fn free_slot(&self, bucket: u32) -> Option<u32> {
        let line = self.store.bucket(bucket);
        let live = line.live::<P>(self.now);
        // One that never was or is empty goes before one that has ended, whose owner would have to hear of it.
        let free = if line.occupied() == u8::MAX { !live } else { !line.occupied() };
        (free != 0).then(|| bucket * SLOTS as u32 + free.trailing_zeros())
    }

    fn other_bucket(&self, slot: u32) -> u32 {
        let (bucket, lane) = (slot / SLOTS as u32, slot as usize % SLOTS);
        let line = self.store.bucket(bucket);
        if line.is_secondary(lane) { self.store.owner(bucket, lane) } else { self.away(bucket, line.tags[lane]) }
    }
}

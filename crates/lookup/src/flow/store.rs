//! One generation of a table: buckets and entries; the number of buckets is a fixed power of two.

use super::bucket::{CHOICES, Line, offset};
use super::layout::{Memory, lanes};
use super::policy::{Policy, Second};
use crate::cuckoo::path::{Buckets, Search};
use crate::hash::{Digest, Hasher};

/// A search for a free slot visits hundreds of buckets; if it visits fewer than this, flows share buckets and tags.
const CROWD: usize = 16;

/// The place of a flow, from its digest: `| bucket, from bit 32 up | steering, bits 16 to 31 | tag, 16 bits |`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) first: u32,
    pub(super) tag: u16,
}

/// Buckets with their entries.
#[derive(Debug)]
pub(super) struct Store<M, P> {
    pub(super) memory: M,
    mask: u32,
    /// Slots that hold an entry, ended or not.
    n_entries: usize,
    _policy: std::marker::PhantomData<P>,
}

/// The side effects of an insert.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inserted {
    pub(super) slot: u32,
    /// Entries that were moved for it.
    pub(super) n_moved: usize,
    /// Whether the slot of an ended entry was reused.
    pub(super) reused: bool,
}

/// No slot could be freed.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoWay {
    /// The flow's entries can only move between a few buckets, all full.
    pub(super) is_crowded: bool,
}

impl<M: Memory, P: Policy> Store<M, P> {
    const KNOWS_THE_WAY: () = assert!(
        !matches!(P::SECOND, Second::Remap) || M::Line::HAS_FUNCTIONS,
        "the layout has no room for Horton's functions"
    );

    /// A store of `n_buckets`, a power of two, at least 2.
    pub(super) fn new(n_buckets: usize, hasher: &Hasher) -> std::io::Result<Self> {
        let () = Self::KNOWS_THE_WAY;
        debug_assert!(n_buckets.is_power_of_two() && n_buckets >= 2);
        let mask = (n_buckets - 1) as u32;
        Ok(Self { memory: M::new(n_buckets, hasher)?, mask, n_entries: 0, _policy: std::marker::PhantomData })
    }

    pub(super) fn n_buckets(&self) -> usize {
        self.mask as usize + 1
    }

    pub(super) fn n_slots(&self) -> usize {
        self.n_buckets() * M::Line::SLOTS
    }

    pub(super) fn n_entries(&self) -> usize {
        self.n_entries
    }

    #[inline(always)]
    pub(super) fn place(&self, digest: Digest) -> Place {
        Place { first: (digest.0 >> 32) as u32 & self.mask, tag: digest.0 as u16 }
    }

    #[inline(always)]
    pub(super) fn bucket(&self, bucket: u32) -> &M::Line {
        &self.memory.lines()[bucket as usize]
    }

    /// A bucket for a lookup; its number is masked.
    #[inline(always)]
    pub(super) fn masked(&self, bucket: u32) -> &M::Line {
        self.memory.line(bucket & self.mask)
    }

    /// Slots of a lookup's bucket whose entry may have this key.
    #[inline(always)]
    pub(super) fn matches(&self, bucket: u32, key: &M::Key, tag: u16, now: u16) -> u8 {
        self.memory.matches::<P>(bucket & self.mask, key, tag, now)
    }

    /// The bucket at an XOR offset from `first`.
    #[inline(always)]
    fn apart(&self, first: u32, offset: u32) -> u32 {
        (first ^ offset) & self.mask
    }

    /// The second bucket of a flow that is not in its first, if it can be there.
    #[inline(always)]
    pub(super) fn second(&self, place: Place) -> Option<u32> {
        self.masked(place.first).hint::<P>(place.tag).map(|offset| self.apart(place.first, offset))
    }

    /// The second bucket of a flow if the hint of the first has its tag.
    #[inline(always)]
    pub(super) fn told(&self, place: Place) -> u32 {
        self.apart(place.first, self.masked(place.first).way::<P>(place.tag))
    }

    /// The second bucket of a flow, for policies with only one per flow.
    #[inline(always)]
    pub(super) fn away(&self, place: Place) -> u32 {
        self.apart(place.first, offset(place.tag, 0))
    }

    /// The buckets besides the first that an insert of an absent flow reads: the second if the check whether the flow is
    /// there looks in it, which the policy decides; those that it may choose from if the first is full.
    #[inline(always)]
    pub(super) fn read_by_insert(&self, place: Place) -> impl Iterator<Item = u32> + use<M, P> {
        let second = self.second(place);
        let is_full = self.masked(place.first).occupied() == M::Line::ALL;
        let all = if P::SECOND == Second::Remap { 1..CHOICES + 1 } else { 0..1 };
        let choices = if is_full && second.is_none() { all } else { 0..0 };
        let mask = self.mask;
        second.into_iter().chain(choices.map(move |choice| (place.first ^ offset(place.tag, choice)) & mask))
    }

    #[inline(always)]
    fn find_in(&self, bucket: u32, tag: u16, key: &M::Key, now: u16) -> Option<u32> {
        let mut matches = self.matches(bucket, key, tag, now);
        while matches != 0 {
            let slot = bucket * lanes::<M>() + matches.trailing_zeros();
            if self.memory.key(slot) == key {
                return Some(slot);
            }
            matches &= matches - 1;
        }
        None
    }

    /// The slot of a flow that has not ended.
    #[inline(always)]
    pub(super) fn find(&self, key: &M::Key, place: Place, now: u16) -> Option<u32> {
        self.find_in(place.first, place.tag, key, now)
            .or_else(|| self.find_in(self.second(place)?, place.tag, key, now))
    }

    /// Inserts an absent flow. `ended` receives an ended entry whose slot is reused.
    pub(super) fn insert(
        &mut self,
        search: &mut Search,
        (key, value): (&M::Key, &M::Value),
        place: Place,
        (now, end): (u16, u16),
        ended: &mut impl FnMut(&M::Key, &M::Value),
    ) -> Result<Inserted, NoWay> {
        let view = View { store: self, now };
        // A second bucket is needed only if the first is full: Horton reads seven buckets to choose it.
        let is_room = view.free_slot(place.first).is_some();
        let second = if is_room { place.first } else { view.away(place.first, place.tag) };
        if !search.run(&view, [place.first, second]) {
            let n_seen = search.n_buckets_seen::<View<M, P>>(CROWD);
            return Err(NoWay { is_crowded: n_seen < CROWD.min(self.n_buckets()) });
        }
        let chain = std::mem::take(&mut search.chain);
        let free = chain[0];
        let reused = self.bucket_of(free).occupied() >> (free % lanes::<M>()) & 1 != 0;
        if reused {
            ended(self.memory.key(free), self.memory.value(free));
            self.remove(free);
        }
        for pair in chain.windows(2) {
            self.shift(pair[1], pair[0]);
        }
        let slot = chain[chain.len() - 1];
        let n_moved = chain.len() - 1;
        search.chain = chain;
        self.fill(slot, place.tag, end, place.first);
        self.memory.write(slot, key, value);
        self.n_entries += 1;
        Ok(Inserted { slot, n_moved, reused })
    }

    /// Removes the entry of a slot. Its key and value remain readable until the slot is reused.
    pub(super) fn remove(&mut self, slot: u32) {
        self.leave(slot);
        self.n_entries -= 1;
    }

    /// Removes the entries of a bucket that are in `slots`; `gone` receives each. Returns their number.
    pub(super) fn clear(&mut self, bucket: u32, slots: u8, gone: &mut impl FnMut(&M::Key, &M::Value)) -> usize {
        let mut left = self.bucket(bucket).occupied() & slots;
        let n_gone = left.count_ones() as usize;
        while left != 0 {
            let slot = bucket * lanes::<M>() + left.trailing_zeros();
            gone(self.memory.key(slot), self.memory.value(slot));
            self.remove(slot);
            left &= left - 1;
        }
        n_gone
    }

    /// Moves entries of a bucket that are here for lack of space in their first bucket, and have not ended, back to it
    /// if it has a free slot. Returns their number.
    pub(super) fn rehome(&mut self, bucket: u32, now: u16) -> usize {
        let line = self.bucket(bucket);
        let away = line.secondary() & line.live::<P>(now);
        let slots = (0..lanes::<M>()).filter(|lane| away >> lane & 1 != 0).map(|lane| bucket * lanes::<M>() + lane);
        for slot in slots.clone() {
            self.memory.prefetch_line(self.owner(slot));
        }
        let mut n_moved = 0;
        for slot in slots {
            let owner = self.owner(slot);
            let free = M::Line::ALL & !self.bucket(owner).occupied();
            if free != 0 {
                self.shift(slot, owner * lanes::<M>() + free.trailing_zeros());
                n_moved += 1;
            }
        }
        n_moved
    }

    /// The first bucket of an entry that is in its second.
    pub(super) fn owner(&self, slot: u32) -> u32 {
        let (bucket, lane) = at::<M>(slot);
        let choice = if P::SECOND == Second::Remap { self.bucket(bucket).function_of(lane) } else { 0 };
        self.apart(bucket, offset(self.memory.tag(slot), choice))
    }

    fn bucket_of(&self, slot: u32) -> &M::Line {
        self.bucket(slot / lanes::<M>())
    }

    /// Moves an entry to a free slot of its other bucket.
    fn shift(&mut self, from: u32, to: u32) {
        let (bucket, lane) = at::<M>(from);
        let line = self.bucket(bucket);
        let (tag, end) = (self.memory.tag(from), line.end(lane));
        let first = if line.is_secondary(lane) { to } else { from } / lanes::<M>();
        let (key, value) = (*self.memory.key(from), *self.memory.value(from));
        self.leave(from);
        self.fill(to, tag, end, first);
        self.memory.write(to, &key, &value);
    }

    /// Writes the metadata of an entry whose first bucket is `first`, and updates that bucket's books if it is another.
    fn fill(&mut self, slot: u32, tag: u16, end: u16, first: u32) {
        let (bucket, lane) = at::<M>(slot);
        let mut choice = 0;
        if bucket != first {
            if P::SECOND == Second::Remap {
                let way = |choice: &u32| self.apart(first, offset(tag, *choice)) == bucket;
                choice = match self.bucket(first).choice(tag) {
                    0 => (1..=CHOICES).find(way).expect("an entry moves to one of its second buckets only"),
                    choice => choice,
                };
                debug_assert!(way(&choice));
            }
            self.memory.line_mut(first).moved_out::<P>(tag, choice);
        }
        self.memory.line_mut(bucket).put(lane, tag, end, bucket != first, choice);
    }

    /// Clears the metadata of an entry, and updates its owner's books if it was in its second bucket.
    fn leave(&mut self, slot: u32) {
        let (bucket, lane) = at::<M>(slot);
        if self.bucket(bucket).is_secondary(lane) && !matches!(P::SECOND, Second::Always | Second::Fetched) {
            let (owner, tag) = (self.owner(slot), self.memory.tag(slot));
            self.memory.line_mut(owner).moved_back::<P>(tag);
        }
        self.memory.line_mut(bucket).take(lane);
    }
}

/// The bucket of a slot, and the lane in it.
pub(super) fn at<M: Memory>(slot: u32) -> (u32, usize) {
    (slot / lanes::<M>(), (slot % lanes::<M>()) as usize)
}

/// A store at one moment, as a search for a free slot sees it: ended entries are free.
struct View<'a, M, P> {
    store: &'a Store<M, P>,
    now: u16,
}

impl<M: Memory, P: Policy> View<'_, M, P> {
    /// Where a flow whose first bucket is `first` goes if not there; `first` itself if nowhere.
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
            // The least loaded of the buckets that the functions lead to.
            0 => (1..=CHOICES)
                .map(at)
                .min_by_key(|&bucket| store.bucket(bucket).live::<P>(self.now).count_ones())
                .expect("there are several functions"),
            choice => at(choice),
        }
    }
}

impl<M: Memory, P: Policy> Buckets for View<'_, M, P> {
    const SLOTS: u32 = lanes::<M>();

    fn free_slot(&self, bucket: u32) -> Option<u32> {
        let line = self.store.bucket(bucket);
        let live = line.live::<P>(self.now);
        // Empty slots are preferred to ended entries, whose owners' books would have to be updated.
        let free = M::Line::ALL & if line.occupied() == M::Line::ALL { !live } else { !line.occupied() };
        (free != 0).then(|| bucket * Self::SLOTS + free.trailing_zeros())
    }

    fn other_bucket(&self, slot: u32) -> u32 {
        let (bucket, lane) = at::<M>(slot);
        let is_secondary = self.store.bucket(bucket).is_secondary(lane);
        if is_secondary { self.store.owner(slot) } else { self.away(bucket, self.store.memory.tag(slot)) }
    }
}

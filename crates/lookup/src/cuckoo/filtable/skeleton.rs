//! Cuckoo Filtable, names and their places in both levels: what all switches share, independent of their values.
//!
//! Invariant, at every step of every mutation: a name in level 1 collides with no other live name and no tombstone.
//! * **Insert**: if the newcomer collides with nothing, it goes to level 1. Otherwise each name of level 1 that it
//!   collides with is written to level 2 and then cleared from level 1, and then the newcomer is written to level 2.
//! * **Remove**: the slot is cleared; the name stays as a tombstone. When it is forgotten, each name of level 2 that
//!   now collides with nothing is written to level 1 and then cleared from level 2.
//!
//! So the levels follow from the names alone, and level 2 keeps its share under any churn. Every mutation ends:
//! searches for a slot are bounded, and a name that finds no slot in time is placed by a rebuild.
//!
//! Cost: amortised O(1), about 60 bytes per name with 8-byte payloads. Source: "Re-designing Compact-structure based
//! Forwarding for Programmable Networks", IV.B, control plane; see [`super`] for differences.

use super::first::{First, Name, State};
use super::index::Index;
use super::query::FiltableQuery;
use super::slots::{Place, SlotChange, TOMBSTONES, Tombstones};
use super::view::FiltableView;
use super::{Settings, first_buckets, rows};
use crate::base::part::{Change, PartId, Payload};
use crate::base::undivided::is_bulk;
use crate::cuckoo::path::Search;
use crate::cuckoo::places::{Entry, Itself, Places};
use crate::cuckoo::{GROWTH, MAX_TRIES, SHRINK_FROM, SLOTS, more_buckets, tweak};
use crate::hash::{Digest, mix64};
use crate::traits::{InsertError, RestoreError, Row, Skeleton};

/// Level 2 identifies names by their digests.
pub(super) type Second = Places<1, u32, Itself>;

/// Names with one payload each, and their places in both levels.
#[derive(Clone, Debug)]
pub struct FiltableSkeleton<P: Payload = u32> {
    pub(super) settings: Settings,
    pub(super) names: Vec<Name<P>>,
    free: Vec<u32>,
    pub(super) tombstones: Tombstones,
    pub(super) n_live: usize,
    /// Minimum capacity in names, however few there are.
    pub(super) capacity: usize,
    pub(super) index: Index,
    pub(super) first: First,
    pub(super) second: Second,
    pub(super) version: u64,
    /// The number of rebuilds so far, from which tweaks are derived.
    pub(super) n_tweaks: u64,
    search: Search,
    /// The slots that the latest mutation changed, in the order in which readers may see them.
    pub(super) slots: Vec<SlotChange<P>>,
    /// Whether that mutation resized level 2: all its slots are new; `slots` then has the later writes to level 1.
    pub(super) second_rebuilt: bool,
}

impl<P: Payload> FiltableSkeleton<P> {
    /// An empty skeleton with this `capacity`: the table does not grow until there are more names.
    pub fn with_capacity(settings: Settings, capacity: usize) -> Self {
        let capacity = capacity.min(settings.max_names);
        let first = First::new(first_buckets(capacity, settings.fingerprint_bits), tweak(settings.seed, 0), &settings);
        let second = Places::new(second_capacity(&first), second_seed(&settings, 0), Itself);
        Self::empty(settings, first, second, capacity, Index::new(capacity))
    }

    /// An empty skeleton.
    pub(super) fn empty(settings: Settings, first: First, second: Second, capacity: usize, index: Index) -> Self {
        Self {
            settings,
            names: Vec::new(),
            free: Vec::new(),
            tombstones: Tombstones::new(first.slots.len()),
            n_live: 0,
            capacity,
            index,
            first,
            second,
            version: 0,
            n_tweaks: 0,
            search: Search::default(),
            slots: Vec::new(),
            second_rebuilt: false,
        }
    }

    /// Live names in level 2.
    pub fn n_second(&self) -> usize {
        self.second.len()
    }

    /// Slots of level 1.
    pub fn n_first_slots(&self) -> usize {
        self.first.slots.len()
    }

    /// Slots of level 2.
    pub fn n_second_slots(&self) -> usize {
        self.second.n_slots()
    }

    /// Live names with their payloads, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (Digest, P)> + '_ {
        self.names.iter().filter(|name| name.is_live()).map(|name| (name.digest, name.payload))
    }

    /// Tweak of level 1, and the name in each slot, in order.
    pub(super) fn first(&self) -> (u64, impl Iterator<Item = Option<(Digest, P)>> + '_) {
        (self.first.tweak, self.first.slots.iter().map(|name| name.map(|name| self.content(name))))
    }

    /// Tweak of level 2, and the name in each slot, in order.
    pub(super) fn second(&self) -> (u64, impl Iterator<Item = Option<(Digest, P)>> + '_) {
        let content = |slot| self.second.at(slot).map(|entry| self.content(entry.payload));
        (self.second.tweak(), (0..self.second.n_slots() as u32).map(content))
    }

    /// The current fingerprint of a digest.
    pub(super) fn fingerprint(&self, digest: Digest) -> u32 {
        self.first.spots(digest).fingerprint
    }

    fn content(&self, name: u32) -> (Digest, P) {
        let name = &self.names[name as usize];
        (name.digest, name.payload)
    }

    /// The index in `names` of a live name or a tombstone.
    pub(super) fn find(&self, digest: Digest) -> Option<u32> {
        let spots = self.first.spots(digest);
        self.index.candidates(&spots).find(|&name| self.names[name as usize].digest == digest)
    }

    /// Other names, including tombstones, that collide with `name`; some are listed twice.
    pub(super) fn colliders(&self, name: u32) -> impl Iterator<Item = u32> + '_ {
        let spots = self.first.spots(self.names[name as usize].digest);
        self.index
            .candidates(&spots)
            .filter(move |&other| other != name && self.first.spots(self.names[other as usize].digest).collide(&spots))
    }

    /// The same, each once, in an order that is independent of the history.
    fn colliders_in_order(&self, name: u32) -> Vec<u32> {
        let mut colliders: Vec<u32> = self.colliders(name).collect();
        colliders.sort_unstable_by_key(|&other| self.names[other as usize].digest);
        colliders.dedup();
        colliders
    }

    fn alter(&mut self, name: u32, payload: P) -> Change {
        let known = &mut self.names[name as usize];
        if known.payload == payload {
            return Change::None;
        }
        let digest = known.digest;
        let old = Some((digest, std::mem::replace(&mut known.payload, payload)));
        let place = match known.state {
            State::First(slot) => Place::First(slot),
            _ => Place::Second(self.second.find(&[digest.0]).expect("a live name has a slot")),
        };
        self.slots.push(SlotChange { place, old, new: Some((digest, payload)) });
        self.edited()
    }

    /// The change after some slots were written, or level 2 was rebuilt.
    fn edited(&mut self) -> Change {
        self.version += 1;
        Change::Part { slot: 0 }
    }

    /// Whether less than a third of the slots are used, and a table with a third fewer slots would be enough.
    fn is_sparse(&self) -> bool {
        let n_slots = self.first.slots.len();
        let ample = || first_buckets(self.capacity, self.settings.fingerprint_bits) as usize * SLOTS * 3 / 2;
        n_slots > SHRINK_FROM && self.n_live * 3 < n_slots && n_slots > ample()
    }

    /// Forgets a removed name, and moves names that collided only with it back to level 1.
    fn expire(&mut self, name: u32) {
        let freed = self.colliders_in_order(name);
        self.forget(name);
        for other in freed {
            let stays = self.names[other as usize].state != State::Second || self.colliders(other).next().is_some();
            // A name that finds no slot in level 1 stays in level 2, which is also correct, until the next rebuild.
            if !stays && !self.first.is_full() && self.insert_first(other) {
                self.clear_second(other);
            }
        }
    }

    /// Adds an unknown name, without a place.
    pub(super) fn remember(&mut self, digest: Digest, payload: P) -> u32 {
        let known = Name { digest, payload, state: State::Free };
        let name = match self.free.pop() {
            Some(name) => {
                self.names[name as usize] = known;
                name
            }
            None => {
                self.names.push(known);
                self.names.len() as u32 - 1
            }
        };
        self.index.insert(&self.first.spots(digest), name);
        name
    }

    fn forget(&mut self, name: u32) {
        self.index.remove(&self.first.spots(self.names[name as usize].digest), name);
        self.names[name as usize].state = State::Free;
        self.free.push(name);
    }

    fn insert_first(&mut self, name: u32) -> bool {
        let Self { first, names, search, slots, .. } = self;
        let mut written = Vec::new();
        let done = first.insert(names, name, search, |slot, old, new| written.push((slot, old, new)));
        let content = |name: u32| (names[name as usize].digest, names[name as usize].payload);
        slots.extend(written.into_iter().map(|(slot, old, new)| SlotChange {
            place: Place::First(slot),
            old: old.map(content),
            new: Some(content(new)),
        }));
        done
    }

    fn clear_first(&mut self, slot: u32) {
        let name = self.first.clear(slot);
        let old = name.map(|name| self.content(name));
        self.slots.push(SlotChange { place: Place::First(slot), old, new: None });
    }

    fn clear_second(&mut self, name: u32) {
        let write = self.second.remove(&[self.names[name as usize].digest.0]).expect("the name is in level 2");
        self.slots.push(SlotChange { place: Place::Second(write.slot), old: Some(self.content(name)), new: None });
    }

    /// Places a name that is not live in level 1 if it collides with nothing, otherwise in level 2.
    fn place(&mut self, name: u32) -> Result<Change, InsertError> {
        let mut colliders = self.colliders_in_order(name);
        if !colliders.is_empty() {
            colliders.retain(|&other| matches!(self.names[other as usize].state, State::First(_)));
            self.insert_second(name, &colliders)?;
        } else if self.first.is_full() || !self.insert_first(name) {
            self.rebuild(&[name])?;
            return Ok(self.touch());
        }
        Ok(self.edited())
    }

    /// Writes `name` and those of level 1 that it collides with to level 2: each of those is written and then cleared
    /// from level 1; the newcomer comes last.
    fn insert_second(&mut self, name: u32, colliders: &[u32]) -> Result<(), InsertError> {
        let coming = colliders.iter().chain([&name]);
        let coming: Vec<_> =
            coming.map(|&name| Entry { name: [self.names[name as usize].digest.0], payload: name }).collect();
        let (mut journal, mut writes) = (Vec::new(), Vec::new());
        for (at, &entry) in coming.iter().enumerate() {
            writes.clear();
            if self.second.is_full() || !self.second.insert(entry, &mut writes) {
                self.second_rebuilt = true;
                break;
            }
            journal.extend_from_slice(&writes);
            for write in &writes {
                let [old, new] = [write.old, write.new].map(|entry| entry.map(|entry| self.content(entry.payload)));
                self.slots.push(SlotChange { place: Place::Second(write.slot), old, new });
            }
            colliders.get(at).into_iter().for_each(|&collider| self.leave_first(collider));
        }
        if self.second_rebuilt {
            // Restores level 2, then rebuilds it larger with all of them.
            for write in journal.iter().rev() {
                self.second.set(write.slot, write.old);
            }
            self.second = self.second.rebuilt(&coming, usize::MAX)?;
            self.slots.clear();
            colliders.iter().for_each(|&collider| self.leave_first(collider));
        }
        for &collider in colliders {
            let State::First(slot) = self.names[collider as usize].state else { unreachable!("as selected") };
            self.first.clear(slot);
            self.names[collider as usize].state = State::Second;
        }
        self.names[name as usize].state = State::Second;
        Ok(())
    }

    /// Notes that the level 1 slot of a name will be cleared.
    fn leave_first(&mut self, name: u32) {
        let State::First(slot) = self.names[name as usize].state else { unreachable!("a name of level 1") };
        self.slots.push(SlotChange { place: Place::First(slot), old: Some(self.content(name)), new: None });
    }

    /// Places all live names and those of `more` from scratch, under another tweak, with spare capacity.
    fn rebuild(&mut self, more: &[u32]) -> Result<(), InsertError> {
        // In order of their slots, not of their numbers, which differ in a restored skeleton.
        let second = self.second.iter().map(|(_, entry)| entry.payload);
        let live: Vec<u32> = self.first.slots.iter().flatten().chain(second).chain(more.iter().copied()).collect();
        let max_names = self.settings.max_names;
        let ample = ((live.len() as f64 * GROWTH) as usize).min(max_names).max(live.len()).max(self.capacity);
        let mut n_buckets = first_buckets(ample, self.settings.fingerprint_bits);
        for tries in 1..=MAX_TRIES {
            let n_tweaks = self.n_tweaks + u64::from(tries);
            if let Some(made) = self.placed(&live, n_buckets, ample, n_tweaks) {
                *self = made;
                return Ok(());
            }
            n_buckets = more_buckets(n_buckets);
        }
        Err(InsertError::NoPlace { n_names: live.len(), n_slots: n_buckets as usize * SLOTS, tries: MAX_TRIES })
    }

    /// The skeleton of only the names `live`, if they fit.
    fn placed(&self, live: &[u32], n_buckets: u32, ample: usize, n_tweaks: u64) -> Option<Self> {
        let first = First::new(n_buckets, tweak(self.settings.seed, n_tweaks), &self.settings);
        // Level 2 gets a new tweak too, in case names were chosen against the old one.
        let second = Places::new(0, second_seed(&self.settings, n_tweaks), Itself);
        let mut made = Self::empty(self.settings.clone(), first, second, self.capacity, Index::new(ample));
        made.names.reserve_exact(live.len());
        for &name in live {
            let Name { digest, payload, .. } = self.names[name as usize];
            made.remember(digest, payload);
        }
        let mut second = Vec::new();
        for name in 0..live.len() as u32 {
            if made.colliders(name).next().is_some() {
                made.names[name as usize].state = State::Second;
                second.push(Entry { name: [made.names[name as usize].digest.0], payload: name });
            } else {
                let Self { first, names, search, .. } = &mut made;
                if first.is_full() || !first.insert(names, name, search, |_, _, _| ()) {
                    return None;
                }
            }
        }
        let capacity = second_capacity(&made.first).max(second.len());
        made.second =
            Places::new(capacity, second_seed(&self.settings, n_tweaks), Itself).rebuilt(&second, usize::MAX).ok()?;
        made.first.slots.replace(&self.first.slots);
        made.second.replace(&self.second);
        made.tombstones.ring.replace(&self.tombstones.ring);
        (made.n_live, made.version, made.n_tweaks) = (self.n_live, self.version, n_tweaks);
        Some(made)
    }
}

impl<P: Payload> Skeleton for FiltableSkeleton<P> {
    type Key = Digest;
    type Payload = P;
    type Query = FiltableQuery;
    type View = FiltableView;

    fn build(settings: &Settings, entries: &[(Digest, P)], _threads: usize) -> Result<Self, InsertError> {
        let mut made = Self::with_capacity(settings.clone(), entries.len());
        for &(digest, payload) in entries {
            if made.find(digest).is_some() {
                return Err(InsertError::DuplicateDigest { digest: digest.0 });
            }
            _ = made.insert(digest, payload)?;
        }
        made.forget_dirty();
        Ok(made)
    }

    fn restore(settings: &Settings, rows: &[Row], entries: &[(Digest, P)]) -> Result<Self, RestoreError> {
        rows::restore(settings, rows, entries)
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn check(settings: &Settings, _: Digest, value: u64) -> Result<(), InsertError> {
        let value_bits = settings.value_bits;
        if value > settings.max_value() { Err(InsertError::ValueTooWide { value, value_bits }) } else { Ok(()) }
    }

    fn insert(&mut self, digest: Digest, payload: P) -> Result<Change, InsertError> {
        self.slots.clear();
        self.second_rebuilt = false;
        let found = self.find(digest);
        if let Some(name) = found.filter(|&name| self.names[name as usize].is_live()) {
            return Ok(self.alter(name, payload));
        }
        let max = self.settings.max_names;
        if self.n_live >= max {
            return Err(InsertError::TooManyNames { max });
        }
        let name = found.unwrap_or_else(|| self.remember(digest, payload));
        let Name { payload: old, state, .. } = self.names[name as usize];
        self.names[name as usize].payload = payload;
        let placed = self.place(name);
        match (&placed, state) {
            (Ok(Change::Part { .. }), State::Tombstone(slot)) => _ = self.tombstones.ring.set(slot, None),
            (Ok(_), _) => {}
            (Err(_), State::Tombstone(_)) => self.names[name as usize].payload = old,
            (Err(_), _) => self.forget(name),
        }
        self.n_live += usize::from(placed.is_ok());
        placed
    }

    /// Reserves capacity once, and places all names from scratch.
    fn insert_batch(&mut self, entries: &[(Digest, P)]) -> Result<Change, InsertError> {
        let capacity = self.capacity;
        self.capacity = (self.n_live + entries.len()).min(self.settings.max_names).max(capacity);
        let made_room = self.rebuild(&[]);
        self.capacity = capacity;
        made_room?;
        for &(digest, payload) in entries {
            _ = self.insert(digest, payload)?;
        }
        Ok(self.touch())
    }

    fn remove(&mut self, digest: Digest) -> Change {
        let Some(name) = self.find(digest).filter(|&name| self.names[name as usize].is_live()) else {
            return Change::None;
        };
        self.slots.clear();
        self.second_rebuilt = false;
        match self.names[name as usize].state {
            State::First(slot) => self.clear_first(slot),
            _ => self.clear_second(name),
        }
        self.names[name as usize].state = State::Tombstone(self.tombstones.push(name));
        self.n_live -= 1;
        if self.is_sparse() && self.rebuild(&[]).is_ok() {
            return self.touch();
        }
        if let Some(Some(oldest)) = self.tombstones.pop_overdue() {
            self.expire(oldest);
        }
        self.edited()
    }

    fn touch(&mut self) -> Change {
        self.version += 1;
        Change::whole()
    }

    fn get(&self, digest: Digest) -> Option<P> {
        let name = &self.names[self.find(digest)? as usize];
        name.is_live().then_some(name.payload)
    }

    fn must_drop(&self, digest: Digest) -> bool {
        self.find(digest).is_some_and(|name| !self.names[name as usize].is_live())
    }

    fn len(&self) -> usize {
        self.n_live
    }

    fn is_bulk(&self, n_changes: usize) -> bool {
        is_bulk(n_changes, self.n_live)
    }

    fn part_id(&self, _slot: u32) -> PartId {
        PartId::WHOLE
    }

    fn take_rows(&mut self, slots: &[u32], _gone: &[PartId]) -> Vec<Row> {
        if slots.is_empty() { Vec::new() } else { self.take_changed_rows() }
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(self.all_rows())
    }

    fn heap_bytes(&self) -> usize {
        let names = self.names.capacity() * size_of::<Name<P>>() + self.free.capacity() * size_of::<u32>();
        let slots = self.first.slots.heap_bytes() + self.tombstones.ring.heap_bytes() + self.second.heap_bytes();
        names + self.index.heap_bytes() + slots
    }
}

/// The seed of level 2, which differs after every rebuild.
pub(super) fn second_seed(settings: &Settings, n_tweaks: u64) -> u64 {
    let seed = settings.second_seed();
    if n_tweaks == 0 { seed } else { mix64(seed ^ n_tweaks) }
}

/// Capacity of level 2 when level 1 is full: the expected number of names plus six standard deviations.
pub(super) fn second_capacity(first: &First) -> usize {
    let n_names = first.slots.len() as f64;
    let names_per_bucket = SLOTS as f64 * (1.0 + 1.0 / TOMBSTONES as f64);
    let expected = n_names * (1.0 - super::level1_share(first.fingerprint_bits, names_per_bucket));
    // Colliding names come in pairs, which doubles the variance.
    (expected + 6.0 * (2.0 * expected).sqrt()) as usize + 2
}

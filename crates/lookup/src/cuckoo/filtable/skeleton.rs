//! Names and their places in both levels: what all switches of a network share, whatever a name means at each.
//!
//! Invariant, at every step of every mutation: a name in level 1 collides with no other live name and no tombstone.
//! * **Insert**: if the newcomer collides with nothing, it goes to level 1. Otherwise each name of level 1 that it
//!   collides with is written to level 2 and then cleared from level 1, and then the newcomer is written to level 2.
//! * **Remove**: the slot is cleared; the name stays as a tombstone. When it is forgotten, each name of level 2 that
//!   now collides with nothing is written to level 1 and then cleared from level 2.
//!
//! So the levels follow from the names alone, and level 2 stays at its share however long names come and go.
//! Every mutation ends: searches for a slot are bounded, and what has no slot in time is placed by a rebuild.
//!
//! Cost: amortised O(1), about 60 bytes a name with 8-byte payloads. Source: "Re-designing Compact-structure based
//! Forwarding for Programmable Networks", IV.B, control plane; see [`super`] for differences.

use std::collections::VecDeque;

use super::first::{First, Name, State};
use super::index::Index;
use super::{Settings, first_buckets};
use crate::cuckoo::path::Search;
use crate::cuckoo::places::{self, Itself, Places};
use crate::cuckoo::{MAX_BUCKETS, SLOTS};
use crate::hash::{Digest, mix64};
use crate::traits::InsertError;

/// Tombstones, as a share of the slots.
const TOMBSTONES: usize = 20;
/// Names that a rebuild makes room for, a name.
const GROWTH: f64 = 1.25;
/// Slots below which a table does not shrink.
const SHRINK_FROM: usize = 64;
/// Rebuilds with another tweak, each with a sixteenth more buckets, before an insert gives up.
const MAX_TRIES: u32 = 32;

/// Level 2 knows names by their digests.
type Second = Places<1, u32, Itself>;

/// A slot of either level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Of the fingerprints.
    First(u32),
    /// Of the digests.
    Second(u32),
}

/// A slot that changed: whose it was and is, with what the name carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotChange<P> {
    /// The slot.
    pub place: Place,
    /// Before.
    pub old: Option<(Digest, P)>,
    /// After.
    pub new: Option<(Digest, P)>,
}

/// What a mutation changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<P> {
    /// Nothing.
    None,
    /// Some slots, in the order in which readers may see them.
    Slots {
        /// Level 2 has another size and all its slots are new; no slot of it is in `slots` then. Level 1 follows it.
        second_rebuilt: bool,
        /// The slots.
        slots: Vec<SlotChange<P>>,
    },
    /// Everything.
    Rebuilt,
}

/// Names with a payload each, and their places in both levels.
#[derive(Clone, Debug)]
pub struct Skeleton<P> {
    settings: Settings,
    names: Vec<Name<P>>,
    free: Vec<u32>,
    /// Removed names, oldest first; some may be back.
    tombstones: VecDeque<u32>,
    n_live: usize,
    /// Names that the table keeps room for, however few there are.
    room: usize,
    index: Index,
    first: First,
    second: Second,
    version: u64,
    n_tweaks: u64,
    search: Search,
    slots: Vec<SlotChange<P>>,
}

impl<P: Copy + PartialEq> Skeleton<P> {
    /// An empty skeleton with room for `room` names, so that it does not grow before.
    pub fn new(settings: Settings, room: usize) -> Self {
        let room = room.min(settings.max_names);
        let first = First {
            slots: vec![0; first_buckets(room, settings.fingerprint_bits) as usize * SLOTS],
            n_names: 0,
            tweak: tweak(&settings, 0),
            fingerprint_bits: settings.fingerprint_bits,
        };
        let second = Places::new(second_room(&first), settings.second_seed(), Itself);
        Self {
            settings,
            names: Vec::new(),
            free: Vec::new(),
            tombstones: VecDeque::new(),
            n_live: 0,
            room,
            index: Index::new(room),
            first,
            second,
            version: 0,
            n_tweaks: 0,
            search: Search::default(),
            slots: Vec::new(),
        }
    }

    /// Settings of the table.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Live names.
    pub fn len(&self) -> usize {
        self.n_live
    }

    /// Whether no name is live.
    pub fn is_empty(&self) -> bool {
        self.n_live == 0
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

    /// Counts the mutations that changed something.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Gives the table a new version: what names mean at some switch is to be sent again.
    pub fn touch(&mut self) {
        self.version += 1;
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        let names =
            self.names.capacity() * size_of::<Name<P>>() + (self.free.capacity() + self.tombstones.capacity()) * 4;
        // A slot of level 2 holds name, digest and payload.
        names + self.index.heap_bytes() + self.first.slots.capacity() * 4 + self.second.n_slots() * 24
    }

    /// What a live name carries.
    pub fn get(&self, digest: Digest) -> Option<P> {
        let name = &self.names[self.find(digest)? as usize];
        name.is_live().then_some(name.payload)
    }

    /// Whether the name was removed and must still answer drop.
    pub fn has_tombstone(&self, digest: Digest) -> bool {
        self.find(digest).is_some_and(|name| self.names[name as usize].state == State::Tombstone)
    }

    /// Live names with what they carry, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (Digest, P)> + '_ {
        self.names.iter().filter(|name| name.is_live()).map(|name| (name.digest, name.payload))
    }

    /// Tweak and slots of level 1: whose they are, in order.
    pub(super) fn first(&self) -> (u64, impl Iterator<Item = Option<(Digest, P)>> + '_) {
        let content = |&slot: &u32| slot.checked_sub(1).map(|name| self.content(name));
        (self.first.tweak, self.first.slots.iter().map(content))
    }

    /// Tweak and slots of level 2.
    pub(super) fn second(&self) -> (u64, impl Iterator<Item = Option<(Digest, P)>> + '_) {
        let content = |slot| self.second.at(slot).map(|entry| self.content(entry.payload));
        (self.second.tweak(), (0..self.second.n_slots() as u32).map(content))
    }

    /// The fingerprint of a digest as of now.
    pub(super) fn fingerprint(&self, digest: Digest) -> u32 {
        self.first.spots(digest).fingerprint
    }

    fn content(&self, name: u32) -> (Digest, P) {
        let name = &self.names[name as usize];
        (name.digest, name.payload)
    }

    /// The place in `names` of a live name or a tombstone.
    fn find(&self, digest: Digest) -> Option<u32> {
        let spots = self.first.spots(digest);
        self.index.candidates(&spots).find(|&name| self.names[name as usize].digest == digest)
    }

    /// Other names, tombstones among them, that collide with `name`; some may be listed twice.
    fn colliders(&self, name: u32) -> impl Iterator<Item = u32> + '_ {
        let spots = self.first.spots(self.names[name as usize].digest);
        self.index
            .candidates(&spots)
            .filter(move |&other| other != name && self.first.spots(self.names[other as usize].digest).collide(&spots))
    }

    /// Inserts a name, or changes what it carries.
    /// # Errors
    /// [`InsertError::TooManyNames`] and [`InsertError::NoPlace`]; nothing changed.
    pub fn insert(&mut self, digest: Digest, payload: P) -> Result<Change<P>, InsertError> {
        let found = self.find(digest);
        if let Some(name) = found.filter(|&name| self.names[name as usize].is_live()) {
            return Ok(self.alter(name, payload));
        }
        let max = self.settings.max_names;
        if self.n_live >= max {
            return Err(InsertError::TooManyNames { max });
        }
        let name = found.unwrap_or_else(|| self.remember(digest, payload));
        self.names[name as usize].payload = payload;
        self.slots.clear();
        let mut colliders: Vec<u32> = self.colliders(name).collect();
        let change = if colliders.is_empty() {
            if !self.first.is_full() && self.insert_first(name) {
                Ok(Change::Slots { second_rebuilt: false, slots: std::mem::take(&mut self.slots) })
            } else {
                self.rebuild(&[name]).map(|()| Change::Rebuilt)
            }
        } else {
            colliders.sort_unstable();
            colliders.dedup();
            colliders.retain(|&other| matches!(self.names[other as usize].state, State::First(_)));
            self.insert_second(name, &colliders)
        };
        match change {
            Ok(_) => {
                self.n_live += 1;
                self.version += 1;
            }
            Err(_) if found.is_none() => self.forget(name),
            Err(_) => {}
        }
        change
    }

    fn alter(&mut self, name: u32, payload: P) -> Change<P> {
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
        self.version += 1;
        Change::Slots { second_rebuilt: false, slots: vec![SlotChange { place, old, new: Some((digest, payload)) }] }
    }

    /// Inserts many; of equal digests the last wins. Makes room once, and is one change; so it is for many names.
    ///
    /// With an error comes what changed before: the names before the one that failed are in.
    pub fn insert_batch(&mut self, entries: &[(Digest, P)]) -> (Change<P>, Result<(), InsertError>) {
        let room = std::mem::replace(&mut self.room, (self.n_live + entries.len()).min(self.settings.max_names));
        self.room = self.room.max(room);
        let made_room = self.rebuild(&[]);
        self.room = room;
        if made_room.is_err() {
            return (Change::None, made_room);
        }
        let inserted = entries.iter().try_for_each(|&(digest, payload)| self.insert(digest, payload).map(|_| ()));
        self.version += 1;
        (Change::Rebuilt, inserted)
    }

    /// Removes a name, and says whether it was there.
    pub fn remove(&mut self, digest: Digest) -> (Change<P>, bool) {
        let Some(name) = self.find(digest).filter(|&name| self.names[name as usize].is_live()) else {
            return (Change::None, false);
        };
        self.slots.clear();
        match self.names[name as usize].state {
            State::First(slot) => self.clear_first(slot),
            _ => self.clear_second(name),
        }
        self.names[name as usize].state = State::Tombstone;
        self.n_live -= 1;
        self.version += 1;
        self.tombstones.push_back(name);
        if self.is_sparse() && self.rebuild(&[]).is_ok() {
            return (Change::Rebuilt, true);
        }
        let n_slots = self.first.slots.len();
        while self.tombstones.len() > n_slots / TOMBSTONES + 1 {
            let oldest = self.tombstones.pop_front().expect("it is not empty");
            self.expire(oldest);
        }
        (Change::Slots { second_rebuilt: false, slots: std::mem::take(&mut self.slots) }, true)
    }

    /// Whether less than a third of the slots is used, and a table with a third fewer would do.
    fn is_sparse(&self) -> bool {
        let n_slots = self.first.slots.len();
        let roomy = || first_buckets(self.room, self.settings.fingerprint_bits) as usize * SLOTS * 3 / 2;
        n_slots > SHRINK_FROM && self.n_live * 3 < n_slots && n_slots > roomy()
    }

    /// Forgets a removed name, unless it is back, and lets names return to level 1 that collided with it alone.
    fn expire(&mut self, name: u32) {
        if self.names[name as usize].state != State::Tombstone {
            return;
        }
        let freed: Vec<u32> = self.colliders(name).collect();
        self.forget(name);
        for other in freed {
            let stays = self.names[other as usize].state != State::Second || self.colliders(other).next().is_some();
            // Without a slot in level 1 it stays where it is, which is right too, until the next rebuild.
            if !stays && !self.first.is_full() && self.insert_first(other) {
                self.clear_second(other);
            }
        }
    }

    fn remember(&mut self, digest: Digest, payload: P) -> u32 {
        let known = Name { digest, payload, state: State::Tombstone };
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
        let name = std::mem::take(&mut self.first.slots[slot as usize]) - 1;
        self.first.n_names -= 1;
        self.slots.push(SlotChange { place: Place::First(slot), old: Some(self.content(name)), new: None });
    }

    fn clear_second(&mut self, name: u32) {
        let write = self.second.remove(&[self.names[name as usize].digest.0]).expect("the name is in level 2");
        self.slots.push(SlotChange { place: Place::Second(write.slot), old: Some(self.content(name)), new: None });
    }

    /// Writes `name` and those of level 1 that it collides with to level 2: each of these first there, then cleared from
    /// level 1, and the newcomer last.
    fn insert_second(&mut self, name: u32, colliders: &[u32]) -> Result<Change<P>, InsertError> {
        let entry = |skeleton: &Self, name: u32| places::Entry {
            name: [skeleton.names[name as usize].digest.0],
            payload: name,
        };
        let coming: Vec<_> = colliders.iter().chain([&name]).map(|&name| entry(self, name)).collect();
        let (mut journal, mut writes) = (Vec::new(), Vec::new());
        let mut placed = true;
        for (at, &entry) in coming.iter().enumerate() {
            writes.clear();
            placed = !self.second.is_full() && self.second.insert(entry, &mut writes);
            if !placed {
                break;
            }
            journal.extend_from_slice(&writes);
            let content = |entry: places::Entry<1, u32>| self.content(entry.payload);
            let changes = writes.iter().map(|write| SlotChange {
                place: Place::Second(write.slot),
                old: write.old.map(content),
                new: write.new.map(content),
            });
            let changes: Vec<_> = changes.collect();
            self.slots.extend(changes);
            if let Some(&collider) = colliders.get(at) {
                let State::First(slot) = self.names[collider as usize].state else { unreachable!("as selected") };
                self.slots.push(SlotChange { place: Place::First(slot), old: Some(self.content(collider)), new: None });
            }
        }
        if !placed {
            // Level 2 as it was, and then with all of them, in a larger table.
            for write in journal.iter().rev() {
                self.second.set(write.slot, write.old);
            }
            self.second = self.second.rebuilt(&coming, usize::MAX)?;
            self.slots.clear();
            for &collider in colliders {
                let State::First(slot) = self.names[collider as usize].state else { unreachable!("as selected") };
                self.slots.push(SlotChange { place: Place::First(slot), old: Some(self.content(collider)), new: None });
            }
        }
        for &collider in colliders {
            let State::First(slot) = self.names[collider as usize].state else { unreachable!("as selected") };
            self.first.slots[slot as usize] = 0;
            self.first.n_names -= 1;
            self.names[collider as usize].state = State::Second;
        }
        self.names[name as usize].state = State::Second;
        Ok(Change::Slots { second_rebuilt: !placed, slots: std::mem::take(&mut self.slots) })
    }

    /// Places all live names and those of `more` anew, under another tweak, with room for some more.
    fn rebuild(&mut self, more: &[u32]) -> Result<(), InsertError> {
        let placed = |name: &u32| self.names[*name as usize].is_live() || more.contains(name);
        let live: Vec<u32> = (0..self.names.len() as u32).filter(placed).collect();
        let max_names = self.settings.max_names;
        let roomy = ((live.len() as f64 * GROWTH) as usize).min(max_names).max(live.len()).max(self.room);
        let mut n_buckets = first_buckets(roomy, self.settings.fingerprint_bits);
        for tries in 1..=MAX_TRIES {
            let n_tweaks = self.n_tweaks + u64::from(tries);
            if let Some(made) = self.placed(&live, n_buckets, roomy, n_tweaks) {
                *self = made;
                return Ok(());
            }
            n_buckets = (n_buckets + n_buckets / 16 + 1).min(MAX_BUCKETS);
        }
        Err(InsertError::NoPlace { n_names: live.len(), n_slots: n_buckets as usize * SLOTS, tries: MAX_TRIES })
    }

    /// The skeleton of the names `live` alone, if they fit.
    fn placed(&self, live: &[u32], n_buckets: u32, roomy: usize, n_tweaks: u64) -> Option<Self> {
        let mut made = Self::new(self.settings.clone(), 0);
        made.first.slots = vec![0; n_buckets as usize * SLOTS];
        made.first.tweak = tweak(&self.settings, n_tweaks);
        made.index = Index::new(roomy);
        made.names.reserve_exact(live.len());
        for &name in live {
            let Name { digest, payload, .. } = self.names[name as usize];
            made.remember(digest, payload);
        }
        let mut second = Vec::new();
        for name in 0..live.len() as u32 {
            if made.colliders(name).next().is_some() {
                made.names[name as usize].state = State::Second;
                second.push(places::Entry { name: [made.names[name as usize].digest.0], payload: name });
            } else {
                let Self { first, names, search, .. } = &mut made;
                if first.is_full() || !first.insert(names, name, search, |_, _, _| ()) {
                    return None;
                }
            }
        }
        let room = second_room(&made.first).max(second.len());
        // Another tweak for level 2 also, should names be chosen against it.
        let empty = Places::new(room, mix64(self.settings.second_seed() ^ n_tweaks), Itself);
        made.second = empty.rebuilt(&second, usize::MAX).ok()?;
        (made.n_live, made.room) = (self.n_live, self.room);
        (made.version, made.n_tweaks) = (self.version, n_tweaks);
        Some(made)
    }
}

fn tweak(settings: &Settings, n_tweaks: u64) -> u64 {
    mix64(settings.seed ^ (n_tweaks + 1).wrapping_mul(0xA076_1D64_78BD_642F))
}

/// Names that level 2 is to have room for when level 1 is full: the expected number and six standard deviations.
fn second_room(first: &First) -> usize {
    let n_names = first.slots.len() as f64;
    let names_per_bucket = SLOTS as f64 * (1.0 + 1.0 / TOMBSTONES as f64);
    let expected = n_names * (1.0 - super::level1_share(first.fingerprint_bits, names_per_bucket));
    // Colliding names come in pairs, which doubles the variance.
    (expected + 6.0 * (2.0 * expected).sqrt()) as usize + 2
}

//! (2,4)-Cuckoo, control half: which name stands in which slot, and the messages that moves cause.

use super::query::{CuckooQuery, digest_of};
use super::update::{SlotWrite, SlotsUpdate, TableImage, Update};
use super::{Layout, NameHash, Settings, words_of};
use crate::cuckoo::places::{Entry, Places, Write};
use crate::cuckoo::{LOAD, SLOTS, slot_prf};
use crate::testkit::Subject;
use crate::traits::{Control, InsertError};

/// A batch of at least this share of the names that are in is one image instead of messages.
const IMAGE_SHARE: usize = 4;

/// Control half of one table; `8 W + 8` bytes a slot.
///
/// ```
/// use fibula_lookup::cuckoo::exact::{Cuckoo, Settings, name};
/// use fibula_lookup::hash::{Family, SecretKey};
/// use fibula_lookup::traits::{Control, Query};
///
/// let settings = Settings::new(6, 16, 1000, Family::MulAdd, &SecretKey::from_seed(1));
/// let mut table = Cuckoo::<1>::new(settings);
/// let mut switch = table.export();
///
/// let mac = name(b"\x02\0\0\0\0\x07")?;
/// let mut updates = Vec::new();
/// table.insert(mac, 42, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!(switch.lookup(mac), 42);
/// assert_eq!(switch.lookup([1]), 0); // an alien name
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cuckoo<const W: usize> {
    settings: Settings,
    layout: Layout,
    places: Places<W, u64, NameHash>,
    seed: u64,
    version: u64,
    digest: u64,
    writes: Vec<Write<W, u64>>,
    words: Vec<u64>,
}

impl<const W: usize> Cuckoo<W> {
    /// An empty table.
    /// # Panics
    /// When names of `settings.name_bytes` do not fit into `W` words.
    pub fn new(settings: Settings) -> Self {
        Self::with_room(settings, 0)
    }

    /// An empty table with room for `n_names`, so that it does not grow before.
    /// # Panics
    /// As [`Cuckoo::new`].
    pub fn with_room(settings: Settings, n_names: usize) -> Self {
        let (layout, seed, hash) = (settings.layout::<W>(), settings.seed(), NameHash::new(&settings));
        let places = Places::new(n_names.min(settings.max_names), seed, hash);
        Self { settings, layout, places, seed, version: 0, digest: 0, writes: Vec::new(), words: Vec::new() }
    }

    /// Settings of the table.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Slots of the table.
    pub fn n_slots(&self) -> usize {
        self.places.n_slots()
    }

    /// The names that are in, with their values, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = ([u64; W], u64)> + '_ {
        self.places.iter().map(|(_, entry)| (entry.name, entry.payload))
    }

    /// The whole table as a message: the answer to a switch that asks for it.
    pub fn image(&self) -> TableImage {
        let mut words = Vec::with_capacity(self.places.n_slots() * self.layout.slot_words);
        let mut slot_words = Vec::new();
        for slot in 0..self.places.n_slots() as u32 {
            words_of(self.layout, self.places.at(slot), &mut slot_words);
            words.extend_from_slice(&slot_words);
        }
        let (version, digest) = (self.version, self.digest);
        TableImage { version, digest, tweak: self.places.tweak(), n_buckets: self.places.n_buckets(), words }
    }

    fn check(&self, name: &[u64; W], value: u64) -> Result<(), InsertError> {
        if !self.layout.fits(name) {
            return Err(InsertError::NameTooLong { name_bytes: self.settings.name_bytes.into() });
        }
        if value > self.layout.value_max() {
            return Err(InsertError::ValueTooWide { value, value_bits: self.settings.value_bits });
        }
        Ok(())
    }

    /// Inserts without a message: the slots written, or none where the table was rebuilt instead.
    fn place(&mut self, entry: Entry<W, u64>) -> Result<bool, InsertError> {
        self.writes.clear();
        if let Some(slot) = self.places.find(&entry.name) {
            if self.places.at(slot) != Some(entry) {
                self.writes.push(self.places.set(slot, Some(entry)));
            }
            return Ok(true);
        }
        let max = self.settings.max_names;
        if self.places.len() >= max {
            return Err(InsertError::TooManyNames { max });
        }
        if !self.places.is_full() && self.places.insert(entry, &mut self.writes) {
            return Ok(true);
        }
        self.places = self.places.rebuilt(&[entry], max)?;
        Ok(false)
    }

    /// Counts the version, and appends the writes of the latest mutation.
    fn emit_writes(&mut self, updates: &mut Vec<Update<W>>) {
        if self.writes.is_empty() {
            return;
        }
        let mut writes = Vec::with_capacity(self.writes.len());
        for Write { slot, old, new } in &self.writes {
            words_of(self.layout, *old, &mut self.words);
            self.digest ^= slot_prf(self.seed, *slot, &self.words);
            words_of(self.layout, *new, &mut self.words);
            self.digest ^= slot_prf(self.seed, *slot, &self.words);
            let (name, value) = new.map_or(([0; W], 0), |entry| (entry.name, entry.payload));
            writes.push(SlotWrite { slot: *slot, name, value });
        }
        let from = self.version;
        self.version += 1;
        updates.push(Update::Slots(SlotsUpdate { from, to: self.version, digest: self.digest, writes }));
    }

    /// Counts the version, and appends the whole table.
    fn emit_image(&mut self, updates: &mut Vec<Update<W>>) {
        self.version += 1;
        let mut image = self.image();
        self.digest = digest_of(&image.words, self.layout, self.seed);
        image.digest = self.digest;
        updates.push(Update::Table(image));
    }
}

impl<const W: usize> Control for Cuckoo<W> {
    type Key = [u64; W];
    type Query = CuckooQuery<W>;

    fn insert(&mut self, name: [u64; W], value: u64, updates: &mut Vec<Update<W>>) -> Result<(), InsertError> {
        self.check(&name, value)?;
        if self.place(Entry { name, payload: value })? {
            self.emit_writes(updates);
        } else {
            self.emit_image(updates);
        }
        Ok(())
    }

    fn insert_batch(&mut self, entries: &[([u64; W], u64)], updates: &mut Vec<Update<W>>) -> Result<(), InsertError> {
        for (name, value) in entries {
            self.check(name, *value)?;
        }
        if entries.len() * IMAGE_SHARE < self.places.len() || entries.len() < SLOTS {
            return entries.iter().try_for_each(|&(name, value)| self.insert(name, value, updates));
        }
        let expected = (self.places.len() + entries.len()).min(self.settings.max_names);
        if expected as f64 > self.places.n_slots() as f64 * LOAD {
            self.places = self.places.sized(&[], expected)?;
        }
        let placed = entries.iter().try_for_each(|&(name, payload)| self.place(Entry { name, payload }).map(|_| ()));
        self.emit_image(updates);
        placed
    }

    fn remove(&mut self, name: [u64; W], updates: &mut Vec<Update<W>>) -> bool {
        self.writes.clear();
        let Some(write) = self.places.remove(&name) else { return false };
        let sparse = self.places.is_sparse();
        let shrunk = sparse.then(|| self.places.rebuilt(&[], self.settings.max_names).ok()).flatten();
        match shrunk {
            Some(places) => {
                self.places = places;
                self.emit_image(updates);
            }
            None => {
                self.writes.push(write);
                self.emit_writes(updates);
            }
        }
        true
    }

    fn get(&self, name: [u64; W]) -> Option<u64> {
        let slot = self.places.find(&name)?;
        self.places.at(slot).map(|entry| entry.payload)
    }

    fn export(&self) -> CuckooQuery<W> {
        CuckooQuery::from_image(&self.settings, &self.image())
            .unwrap_or_else(|error| panic!("no memory for a query structure of {} slots: {error}", self.n_slots()))
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

impl<const W: usize> Subject for Cuckoo<W> {
    fn must_drop(&self, name: [u64; W]) -> bool {
        self.get(name).is_none()
    }

    fn may_forget(_update: &Update<W>) -> bool {
        false
    }
}

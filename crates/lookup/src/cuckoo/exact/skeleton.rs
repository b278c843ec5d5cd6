//! (2,4)-Cuckoo, names and their places: which slot holds which name, independent of the values at each switch.
//!
//! Cost: `8 W` bytes per slot plus a payload; an insert at load 0.95 writes 2.1 slots.

use super::query::CuckooQuery;
use super::view::CuckooView;
use super::{NameHash, Settings};
use crate::base::part::{Change, PartId, Payload};
use crate::base::undivided::is_bulk;
use crate::cuckoo::LOAD;
use crate::cuckoo::places::{Entry, Places, Write};
use crate::cuckoo::rows::{find_header, header, join, misplaced, read_count, read_pages};
use crate::traits::{InsertError, RestoreError, Row, Skeleton};

/// The table number of the pages among the rows.
const SLOTS_TABLE: u8 = 1;

/// Names with one payload each, and their slots.
#[derive(Clone)]
pub struct CuckooSkeleton<const W: usize, P: Payload = u32> {
    settings: Settings,
    pub(super) places: Places<W, P, NameHash>,
    pub(super) version: u64,
    /// The slots that the latest mutation wrote, in the order in which readers may see them.
    pub(super) writes: Vec<Write<W, P>>,
}

impl<const W: usize, P: Payload> CuckooSkeleton<W, P> {
    /// An empty skeleton with capacity for `n_names`: the table does not grow until there are more.
    /// # Panics
    /// When names of `settings.name_bytes` do not fit into `W` words.
    pub fn with_capacity(settings: Settings, n_names: usize) -> Self {
        _ = settings.layout::<W>();
        let places = Places::new(n_names.min(settings.max_names), settings.seed(), NameHash::new(&settings));
        Self { settings, places, version: 0, writes: Vec::new() }
    }

    /// Slots of the table.
    pub fn n_slots(&self) -> usize {
        self.places.n_slots()
    }

    /// The names that are in, with their payloads, in order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = ([u64; W], P)> + '_ {
        self.places.iter().map(|(_, entry)| (entry.name, entry.payload))
    }

    /// Inserts a name, or changes its payload. True if that wrote some slots; false if all slots are new.
    fn place(&mut self, entry: Entry<W, P>) -> Result<bool, InsertError> {
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

    fn header(&self) -> Row {
        let mut value = Vec::new();
        self.places.encode(&mut value);
        value.extend(self.version.to_le_bytes());
        header(value)
    }

    /// The change after slots were written in place, or all slots are new.
    fn changed(&mut self, in_place: bool) -> Change {
        if !in_place {
            return self.touch();
        }
        if self.writes.is_empty() {
            return Change::None;
        }
        self.version += 1;
        Change::Part { slot: 0 }
    }
}

impl<const W: usize, P: Payload> Skeleton for CuckooSkeleton<W, P> {
    type Key = [u64; W];
    type Payload = P;
    type Query = CuckooQuery<W>;
    type View = CuckooView;

    fn build(settings: &Settings, entries: &[([u64; W], P)], _threads: usize) -> Result<Self, InsertError> {
        let mut made = Self::with_capacity(settings.clone(), entries.len());
        for &(name, payload) in entries {
            if made.places.find(&name).is_some() {
                return Err(InsertError::DuplicateName { first_word: name[0] });
            }
            made.place(Entry { name, payload })?;
        }
        made.places.forget_dirty();
        Ok(made)
    }

    fn restore(settings: &Settings, rows: &[Row], entries: &[([u64; W], P)]) -> Result<Self, RestoreError> {
        let mut bytes = find_header(rows)?;
        let hash = NameHash::new(settings);
        let places = Places::decode(&mut bytes, settings.seed(), hash, settings.max_names)?;
        let version = read_count(&mut bytes)?;
        bytes.end()?;
        let mut made = Self { settings: settings.clone(), places, version, writes: Vec::new() };
        let slots = read_pages(rows, &[made.n_slots()])?;
        let names = entries.iter().map(|entry| (made.places.digest(&entry.0), entry)).collect();
        for (stored, &(name, payload)) in join(slots, names)? {
            if !made.places.put_back(stored.slot, Entry { name, payload }) {
                return Err(misplaced(entries.len()));
            }
        }
        made.places.forget_dirty();
        Ok(made)
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn check(settings: &Settings, name: [u64; W], value: u64) -> Result<(), InsertError> {
        let layout = settings.layout::<W>();
        if !layout.fits(&name) {
            return Err(InsertError::NameTooLong { name_bytes: settings.name_bytes.into() });
        }
        if value > layout.value_max() {
            return Err(InsertError::ValueTooWide { value, value_bits: settings.value_bits });
        }
        Ok(())
    }

    fn insert(&mut self, name: [u64; W], payload: P) -> Result<Change, InsertError> {
        let in_place = self.place(Entry { name, payload })?;
        Ok(self.changed(in_place))
    }

    /// Reserves capacity once, and gives all slots a new version.
    fn insert_batch(&mut self, entries: &[([u64; W], P)]) -> Result<Change, InsertError> {
        let expected = (self.places.len() + entries.len()).min(self.settings.max_names);
        if expected as f64 > self.places.n_slots() as f64 * LOAD {
            self.places = self.places.sized(&[], expected)?;
        }
        for &(name, payload) in entries {
            self.place(Entry { name, payload })?;
        }
        Ok(self.touch())
    }

    fn remove(&mut self, name: [u64; W]) -> Change {
        self.writes.clear();
        self.writes.extend(self.places.remove(&name));
        let is_sparse = !self.writes.is_empty() && self.places.is_sparse();
        // If that fails, the table keeps its size.
        let shrunk = is_sparse.then(|| self.places.rebuilt(&[], self.settings.max_names).ok()).flatten();
        let in_place = shrunk.is_none();
        if let Some(places) = shrunk {
            self.places = places;
        }
        self.changed(in_place)
    }

    fn touch(&mut self) -> Change {
        self.version += 1;
        Change::whole()
    }

    fn get(&self, name: [u64; W]) -> Option<P> {
        let slot = self.places.find(&name)?;
        self.places.at(slot).map(|entry| entry.payload)
    }

    fn must_drop(&self, name: [u64; W]) -> bool {
        self.places.find(&name).is_none()
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    fn is_bulk(&self, n_changes: usize) -> bool {
        is_bulk(n_changes, self.len())
    }

    fn part_id(&self, _slot: u32) -> PartId {
        PartId::WHOLE
    }

    fn take_rows(&mut self, slots: &[u32], _gone: &[PartId]) -> Vec<Row> {
        if slots.is_empty() {
            return Vec::new();
        }
        let header = self.header();
        std::iter::once(header).chain(self.places.take_rows(SLOTS_TABLE)).collect()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(std::iter::once(self.header()).chain(self.places.rows(SLOTS_TABLE)))
    }

    fn heap_bytes(&self) -> usize {
        self.places.heap_bytes()
    }
}

//! The names that the filters get wrong, control half: their slots in the exact table, and the writes to them.

use super::Settings;
use crate::base::bytes::Bytes;
use crate::cuckoo::exact::{SlotWrite, TableImage, digest_of};
use crate::cuckoo::places::{Entry, Itself, Places, Write};
use crate::cuckoo::rows::{is_in, join, misplaced, read_pages};
use crate::cuckoo::{SLOTS, slot_prf};
use crate::hash::Digest;
use crate::traits::{InsertError, RestoreError, Row};

/// The table number of the pages among the rows.
const PAGES: u8 = 1;

/// An exact table of digests and payloads (values + 1).
pub(super) struct Exceptions {
    settings: Settings,
    places: Places<1, u64, Itself>,
    /// Digest of the slots.
    digest: u64,
    /// What the data plane has not been sent yet: slot writes, or the whole table if `rebuilt`.
    writes: Vec<Write<1, u64>>,
    rebuilt: bool,
    scratch: Vec<Write<1, u64>>,
}

impl Exceptions {
    pub(super) fn new(settings: &Settings) -> Self {
        Self::of(settings, Places::new(0, settings.second_seed(), Itself))
    }

    fn of(settings: &Settings, places: Places<1, u64, Itself>) -> Self {
        let settings = settings.clone();
        let mut made = Self { settings, places, digest: 0, writes: Vec::new(), rebuilt: false, scratch: Vec::new() };
        made.digest = made.image(0).digest;
        made
    }

    /// A new table that holds `names`, with spare capacity.
    /// # Errors
    /// [`InsertError::NoPlace`].
    pub(super) fn holding(&self, names: &[(Digest, u64)]) -> Result<Self, InsertError> {
        let entries: Vec<Entry<1, u64>> = names.iter().map(|&(name, value)| entry(name, value)).collect();
        Ok(Self::of(&self.settings, self.places.emptied().rebuilt(&entries, self.settings.max_names)?))
    }

    /// The table of `names` in the slots given by `rows` and a header.
    pub(super) fn restore(
        settings: &Settings,
        header: &mut Bytes,
        rows: &[Row],
        names: &[(Digest, u64)],
    ) -> Result<Self, RestoreError> {
        let mut places = Places::decode(header, settings.second_seed(), Itself, settings.max_names)?;
        let n_slots = places.n_slots();
        let rows: Vec<Row> = rows.iter().filter(|row| is_in(row, n_slots)).cloned().collect();
        let entries = names.iter().map(|&(name, value)| (name.0, entry(name, value))).collect();
        for (stored, entry) in join(read_pages(&rows, &[n_slots])?, entries)? {
            if !places.put_back(stored.slot, entry) {
                return Err(misplaced(names.len()));
            }
        }
        places.forget_dirty();
        Ok(Self::of(settings, places))
    }

    /// Appends the header that [`Exceptions::restore`] reads.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.places.encode(out);
    }

    /// The rows of the pages that changed since the last call.
    pub(super) fn take_rows(&mut self) -> impl Iterator<Item = Row> {
        self.places.take_rows(PAGES)
    }

    /// The rows of all pages.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        self.places.rows(PAGES)
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.places.heap_bytes()
    }

    pub(super) fn n_slots(&self) -> usize {
        self.places.n_slots()
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn holds(&self, name: Digest) -> bool {
        self.places.find(&[name.0]).is_some()
    }

    /// Inserts a name, or changes its value.
    /// # Errors
    /// [`InsertError::NoPlace`]; nothing is changed.
    pub(super) fn put(&mut self, name: Digest, value: u64) -> Result<(), InsertError> {
        let entry = entry(name, value);
        self.scratch.clear();
        if let Some(slot) = self.places.find(&entry.name) {
            let write = self.places.set(slot, Some(entry));
            self.scratch.push(write);
        } else if self.places.is_full() || !self.places.insert(entry, &mut self.scratch) {
            self.replace(self.places.rebuilt(&[entry], self.settings.max_names)?);
            return Ok(());
        }
        self.note();
        Ok(())
    }

    /// Removes a name, if it is in.
    pub(super) fn take(&mut self, name: Digest) {
        self.scratch.clear();
        self.scratch.extend(self.places.remove(&[name.0]));
        self.note();
        if self.places.is_sparse() {
            // If that fails, the table keeps its size.
            if let Ok(places) = self.places.rebuilt(&[], self.settings.max_names) {
                self.replace(places);
            }
        }
    }

    fn replace(&mut self, places: Places<1, u64, Itself>) {
        self.places = places;
        self.rebuilt = true;
        self.writes.clear();
    }

    /// Records the latest writes.
    fn note(&mut self) {
        if self.rebuilt {
            return;
        }
        let seed = self.settings.second_seed();
        for write in &self.scratch {
            let [old, new] = [write.old, write.new].map(|entry| slot_prf(seed, write.slot, &self.words(entry)));
            self.digest ^= old ^ new;
        }
        self.writes.append(&mut self.scratch);
    }

    fn words(&self, entry: Option<Entry<1, u64>>) -> [u64; 2] {
        entry.map_or([0; 2], |entry| self.settings.second_slot(Digest(entry.name[0]), entry.payload))
    }

    /// What the data plane has not been sent yet: slots, or the whole table.
    pub(super) fn drain(&mut self, version: u64, most: usize) -> (Vec<SlotWrite<1>>, Option<TableImage>) {
        if self.rebuilt || self.writes.len() > most {
            let image = self.image(version);
            (self.digest, self.rebuilt) = (image.digest, false);
            self.writes.clear();
            return (Vec::new(), Some(image));
        }
        let slot = |write: Write<1, u64>| {
            let (name, value) = write.new.map_or(([0], 0), |entry| (entry.name, entry.payload));
            SlotWrite { slot: write.slot, name, value }
        };
        (self.writes.drain(..).map(slot).collect(), None)
    }

    /// The whole table.
    pub(super) fn image(&self, version: u64) -> TableImage {
        let words: Vec<u64> =
            (0..self.places.n_slots() as u32).flat_map(|slot| self.words(self.places.at(slot))).collect();
        let digest = digest_of(&words, self.settings.second_layout(), self.settings.second_seed());
        let n_buckets = (self.places.n_slots() / SLOTS) as u32;
        TableImage { version, digest, tweak: self.places.tweak(), n_buckets, words }
    }
}

fn entry(name: Digest, value: u64) -> Entry<1, u64> {
    Entry { name: [name.0], payload: value + 1 }
}

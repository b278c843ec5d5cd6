//! Bloom forwarder, query half: filters and exact table without names, in the version that readers follow.
//!
//! [`BloomFibQuery`] is the handle of the one writer; each reading thread has a [`Reader`]. An update of cells and
//! slots is stored in place under the table's sequence counter. An update that changes the size of filters or exact
//! table publishes a new version of both.

use super::table::Tables;
use super::update::{CellsUpdate, Image, MAX_CELL_WRITES, MAX_SLOT_WRITES, Update};
use super::{Plan, Settings, cell_prf};
use crate::base::bytes::DecodeError;
use crate::base::part::PartId;
use crate::cuckoo::exact::{TableImage, digest_of};
use crate::cuckoo::slot_prf;
use crate::hash::Digest;
use crate::publish::Pin;
use crate::publish::rcu::{RcuCell, RcuReader};
use crate::traits::{Applied, ApplyError, BatchReader, Query, Undivided};

/// Query half of a table, and the handle of its one writer.
///
/// [`Query::lookup`] looks one name up as published: one filter after another, one position after another, to the first
/// match. [`Query::lookup_batch`] gives the same answers and hides memory latency.
pub struct BloomFibQuery {
    current: RcuCell<Tables>,
    settings: Settings,
    version: u64,
    /// Digests of the cells and of the exact table.
    cells: u64,
    second: u64,
}

/// Figures of a query structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BloomFibStats {
    /// Bits of all filters.
    pub filter_bits: u64,
    /// Bits of all counters.
    pub counter_bits: u64,
    /// Slots of the exact table.
    pub n_exact_slots: usize,
    /// Filters, counters and exact table, in bits.
    pub size_bits: u64,
    /// Bytes of old versions that readers may still use.
    pub retired_bytes: usize,
    /// Bytes on huge pages, if the operating system reports it.
    pub huge_page_bytes: Option<usize>,
}

impl BloomFibQuery {
    /// The filters of all ports.
    pub fn plan(&self) -> &Plan {
        &self.tables().filters.plan
    }

    /// Figures; reads the operating system's page accounts.
    pub fn stats(&self) -> BloomFibStats {
        let tables = self.tables();
        BloomFibStats {
            filter_bits: tables.filters.bits().len() as u64 * 64,
            counter_bits: tables.filters.counters().map_or(0, |counters| counters.len() as u64 * 64),
            n_exact_slots: tables.second.n_slots(),
            size_bits: self.size_bits(),
            retired_bytes: self.current.retired_bytes(),
            huge_page_bytes: tables.huge_page_bytes(),
        }
    }

    fn tables(&self) -> &Tables {
        self.current.get()
    }

    fn apply_cells(&mut self, update: &CellsUpdate) -> Result<Applied, ApplyError> {
        let current = self.version;
        if update.to <= current {
            return Ok(Applied::AlreadyThere);
        }
        ApplyError::check_version(PartId::WHOLE, current, update.from)?;
        let cells = self.cells_after(update)?;
        let second = match &update.second {
            Some(table) => table_digest(table, &self.settings)?,
            None => self.second_after(update)?,
        };
        if cells ^ second != update.digest {
            let (got, expected) = (cells ^ second, update.digest);
            return Err(ApplyError::WrongDigest { part: PartId::WHOLE, got, expected });
        }
        match &update.second {
            Some(table) => self.replace_second(table, update)?,
            None => {
                let tables = self.tables();
                let closed = tables.close();
                let guard = tables.write();
                self.write(tables, update);
                guard.commit();
                drop(closed);
            }
        }
        (self.version, self.cells, self.second) = (update.to, cells, second);
        Ok(Applied::Applied)
    }

    /// Publishes a version with a new exact table, and with the cells changed in a copy of the filters.
    fn replace_second(&mut self, table: &TableImage, update: &CellsUpdate) -> Result<(), ApplyError> {
        self.current.may_replace()?;
        let image = Image { second: table.clone(), ..self.image() };
        let tables = Tables::new(&image, &self.settings)?;
        self.write(&tables, update);
        let bytes = self.tables().size_bytes();
        self.current.replace(tables, bytes)
    }

    fn write(&self, tables: &Tables, update: &CellsUpdate) {
        for write in &update.slots {
            tables.second.write(write.slot, &self.settings.second_slot(Digest(write.name[0]), write.value));
        }
        update.cells.iter().for_each(|write| tables.filters.put(write.cell, write.count));
    }

    /// Checks the cells of an update, and returns their digest after it.
    fn cells_after(&self, update: &CellsUpdate) -> Result<u64, ApplyError> {
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        let (filters, seed) = (&self.tables().filters, self.settings.seed);
        if update.cells.len() > MAX_CELL_WRITES {
            return malformed("more cells than a mutation has");
        }
        if !update.cells.is_sorted_by(|a, b| a.cell < b.cell) {
            return malformed("the cells are not in rising order");
        }
        update.cells.iter().for_each(|write| filters.prefetch(write.cell));
        let mut digest = self.cells;
        for write in &update.cells {
            let is_there =
                write.cell < filters.plan.n_cells() && filters.plan.used_bits() >> (write.cell % 64) & 1 != 0;
            if !is_there || write.count > self.settings.max_count() {
                return malformed("a cell is not in the filters, or too wide for them");
            }
            digest ^= cell_prf(seed, write.cell, filters.count(write.cell)) ^ cell_prf(seed, write.cell, write.count);
        }
        Ok(digest)
    }

    /// Checks the slots of an update, and returns the digest of the exact table after it.
    fn second_after(&self, update: &CellsUpdate) -> Result<u64, ApplyError> {
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        let (second, seed) = (&self.tables().second, self.settings.second_seed());
        if update.slots.len() > MAX_SLOT_WRITES {
            return malformed("more slots than a mutation has");
        }
        let words = |name: u64, payload: u64| self.settings.second_slot(Digest(name), payload);
        let mut digest = self.second;
        for (at, write) in update.slots.iter().enumerate() {
            if write.slot as usize >= second.n_slots() || write.value > self.settings.max_value() + 1 {
                return malformed("a slot is not in the exact table, or too wide for it");
            }
            let before = update.slots[..at].iter().rev().find(|earlier| earlier.slot == write.slot);
            digest ^= match before {
                Some(before) => slot_prf(seed, write.slot, &words(before.name[0], before.value)),
                None => second.prf(seed, write.slot),
            };
            digest ^= slot_prf(seed, write.slot, &words(write.name[0], write.value));
        }
        Ok(digest)
    }
}

fn table_digest(table: &TableImage, settings: &Settings) -> Result<u64, ApplyError> {
    let got = digest_of(&table.words, settings.second_layout(), settings.second_seed());
    let expected = table.digest;
    ApplyError::check_digest(PartId::WHOLE, got, expected)
}

/// The digests of cells and exact table, if they match the image's.
fn digests(tables: &Tables, image: &Image, settings: &Settings) -> Result<(u64, u64), ApplyError> {
    let second = table_digest(&image.second, settings)?;
    let cells = tables.filters.digest(settings.max_count());
    let (got, expected) = (cells ^ second, image.digest);
    if got == expected {
        Ok((cells, second))
    } else {
        Err(ApplyError::WrongDigest { part: PartId::WHOLE, got, expected })
    }
}

impl Query for BloomFibQuery {
    type Key = Digest;
    type Update = Update;

    fn lookup(&self, key: Digest) -> u64 {
        self.tables().lookup(key)
    }

    fn lookup_batch(&self, keys: &[Digest], values: &mut [u64]) {
        self.tables().lookup_batch(keys, values);
    }

    fn apply(&mut self, update: &Update) -> Result<Applied, ApplyError> {
        match update {
            Update::Cells(update) => self.apply_cells(update),
            Update::Table(image) if image.version <= self.version => Ok(Applied::AlreadyThere),
            Update::Table(image) => self.overwrite(image).map(|()| Applied::Applied),
        }
    }

    fn alien_rate(&self) -> Option<f64> {
        Some(self.tables().filters.alien_rate())
    }

    fn size_bits(&self) -> u64 {
        self.tables().size_bytes() as u64 * 8
    }
}

impl Undivided for BloomFibQuery {
    type Settings = Settings;
    type Image = Image;
    type Reader = Reader;

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn encode_update(_settings: &Settings, update: &Update, out: &mut Vec<u8>) {
        update.encode(out);
    }

    fn decode_update(settings: &Settings, bytes: &[u8]) -> Result<Update, DecodeError> {
        Update::decode(bytes, settings)
    }

    fn update_of(image: Image) -> Update {
        Update::Table(image)
    }

    fn image_of(update: &Update) -> Option<&Image> {
        if let Update::Table(image) = update { Some(image) } else { None }
    }

    fn from_image(settings: &Settings, image: &Image) -> Result<Self, ApplyError> {
        let tables = Tables::new(image, settings)?;
        let (cells, second) = digests(&tables, image, settings)?;
        let (current, settings) = (RcuCell::new(tables), settings.clone());
        Ok(Self { current, settings, version: image.version, cells, second })
    }

    fn overwrite(&mut self, image: &Image) -> Result<(), ApplyError> {
        self.current.may_replace()?;
        let tables = Tables::new(image, &self.settings)?;
        let (cells, second) = digests(&tables, image, &self.settings)?;
        let bytes = self.tables().size_bytes();
        self.current.replace(tables, bytes)?;
        (self.version, self.cells, self.second) = (image.version, cells, second);
        Ok(())
    }

    fn image(&self) -> Image {
        let filters = &self.tables().filters;
        Image {
            version: self.version,
            digest: self.cells ^ self.second,
            plan: filters.plan.clone(),
            bits: filters.bits().to_vec(),
            counters: filters.counters().map(|counters| counters.to_vec()).unwrap_or_default(),
            second: self.tables().second.image(self.version, self.second),
        }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.cells ^ self.second)
    }

    fn reader(&self) -> Reader {
        Reader { reader: self.current.reader() }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader {
    reader: RcuReader<Tables>,
}

impl Reader {
    /// Opens the table for a burst. The thread was quiescent until now: nothing from an earlier burst is in use.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_> {
        let (tables, pin) = self.reader.pin();
        Pinned { tables, _pin: pin }
    }

    /// Declares that this thread reads nothing until it pins again: call it before sleeping.
    pub fn offline(&mut self) {
        self.reader.offline();
    }
}

/// The table during one burst.
pub struct Pinned<'a> {
    tables: &'a Tables,
    _pin: Pin<'a>,
}

impl Pinned<'_> {
    /// As [`Query::lookup`].
    #[inline]
    pub fn lookup(&self, digest: Digest) -> u64 {
        self.tables.lookup(digest)
    }

    /// As [`Query::lookup_batch`].
    #[inline]
    pub fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        self.tables.lookup_batch(digests, values);
    }
}

impl BatchReader<[Digest]> for Reader {
    #[inline]
    fn lookup_batch(&mut self, digests: &[Digest], values: &mut [u64]) {
        self.pin().lookup_batch(digests, values);
    }

    fn offline(&mut self) {
        Reader::offline(self);
    }
}

//! Cuckoo Filtable, query half: two levels of slots without names, in the version that readers follow.
//!
//! [`FiltableQuery`] is the handle of the one writer; each reading thread has a [`Reader`]. An update of slots is
//! stored in place under the counters of their buckets. A change of size or tweak, in either level, publishes a new
//! version of both, so that no reader combines one version of level 1 with another of level 2.

use super::Settings;
use super::table::{self, Tables};
use super::update::{Image, MAX_WRITES, SlotsUpdate, Update, Write};
use crate::base::bytes::DecodeError;
use crate::base::part::PartId;
use crate::cuckoo::exact::{TableImage, digest_of};
use crate::cuckoo::slot_prf;
use crate::hash::Digest;
use crate::publish::rcu::{RcuCell, RcuReader};
use crate::traits::{Applied, ApplyError, BatchReader, Query, Undivided};

/// Query half of a table, and the handle of its one writer.
pub struct FiltableQuery {
    current: RcuCell<Tables>,
    settings: Settings,
    version: u64,
    first: u64,
    second: u64,
}

/// Figures of a query structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiltableStats {
    /// Slots of level 1.
    pub n_first_slots: usize,
    /// Slots of level 2.
    pub n_second_slots: usize,
    /// Slots and counters, in bits.
    pub size_bits: u64,
    /// Bytes of old versions that readers may still use.
    pub retired_bytes: usize,
    /// Bytes on huge pages, if the operating system reports it.
    pub huge_page_bytes: Option<usize>,
}

impl FiltableQuery {
    /// Figures; reads the operating system's page accounts.
    pub fn stats(&self) -> FiltableStats {
        let tables = self.tables();
        FiltableStats {
            n_first_slots: tables.n_slots(),
            n_second_slots: tables.second.n_slots(),
            size_bits: self.size_bits(),
            retired_bytes: self.current.retired_bytes(),
            huge_page_bytes: tables.huge_page_bytes(),
        }
    }

    fn tables(&self) -> &Tables {
        self.current.get()
    }

    fn apply_slots(&mut self, update: &SlotsUpdate) -> Result<Applied, ApplyError> {
        let current = self.version;
        if update.to <= current {
            return Ok(Applied::AlreadyThere);
        }
        ApplyError::check_version(PartId::WHOLE, current, update.from)?;
        let (first, mut second) = self.digests_after(&update.writes, update.second.is_some())?;
        if let Some(table) = &update.second {
            second = table_digest(table, &self.settings)?;
        }
        if first ^ second != update.digest {
            let (got, expected) = (first ^ second, update.digest);
            return Err(ApplyError::WrongDigest { part: PartId::WHOLE, got, expected });
        }
        match &update.second {
            Some(table) => self.replace_second(table, &update.writes)?,
            None => {
                let tables = self.tables();
                let is_second = |write: &Write| matches!(write, Write::Second { .. });
                let closed = tables.close(update.writes.iter().any(is_second));
                self.write(tables, &update.writes);
                drop(closed);
            }
        }
        (self.version, self.first, self.second) = (update.to, first, second);
        Ok(Applied::Applied)
    }

    /// Publishes a version with another level 2, and with `writes` applied to a copy of level 1.
    fn replace_second(&mut self, table: &TableImage, writes: &[Write]) -> Result<(), ApplyError> {
        self.current.may_replace()?;
        let image = Image { second: table.clone(), ..self.image() };
        let tables = Tables::new(&image, &self.settings)?;
        self.write(&tables, writes);
        let bytes = self.tables().size_bytes();
        self.current.replace(tables, bytes)
    }

    fn write(&self, tables: &Tables, writes: &[Write]) {
        for write in writes {
            match *write {
                Write::First { slot, word } => tables.write(slot, word),
                Write::Second { slot, name, value } => {
                    tables.second.write(slot, &self.settings.second_slot(name, value));
                }
            }
        }
    }

    /// Checks the writes, and returns the digests of both levels after them.
    fn digests_after(&self, writes: &[Write], second_is_new: bool) -> Result<(u64, u64), ApplyError> {
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        if writes.len() > MAX_WRITES {
            return malformed("more writes than a mutation has");
        }
        let (tables, settings) = (self.tables(), &self.settings);
        let second_seed = settings.second_seed();
        let (mut first, mut second) = (self.first, self.second);
        let prf = |write: &Write| match *write {
            Write::First { slot, word } => slot_prf(settings.seed, slot, &[word.into()]),
            Write::Second { slot, name, value } => slot_prf(second_seed, slot, &settings.second_slot(name, value)),
        };
        for (at, write) in writes.iter().enumerate() {
            let earlier =
                |is_it: &dyn Fn(&Write) -> bool| writes[..at].iter().rev().find(|write| is_it(write)).copied();
            match *write {
                Write::First { slot, word } => {
                    if slot as usize >= tables.n_slots() || u64::from(word) > settings.format().max_slot() {
                        return malformed("a slot is not in level 1, or too wide for it");
                    }
                    let before = earlier(&|other| matches!(other, Write::First { slot: same, .. } if *same == slot));
                    first ^= before.map_or_else(|| tables.first_prf(settings.seed, slot), |before| prf(&before));
                    first ^= prf(write);
                }
                Write::Second { slot, value, .. } => {
                    if second_is_new || slot as usize >= tables.second.n_slots() || value > settings.max_value() {
                        return malformed("a slot is not in level 2, or too wide for it");
                    }
                    let before = earlier(&|other| matches!(other, Write::Second { slot: same, .. } if *same == slot));
                    second ^= before.map_or_else(|| tables.second.prf(second_seed, slot), |before| prf(&before));
                    second ^= prf(write);
                }
            }
        }
        Ok((first, second))
    }
}

fn table_digest(table: &TableImage, settings: &Settings) -> Result<u64, ApplyError> {
    let got = digest_of(&table.words, settings.second_layout(), settings.second_seed());
    let expected = table.digest;
    ApplyError::check_digest(PartId::WHOLE, got, expected)
}

/// The digests of both levels, if they match the image's.
fn digests(tables: &Tables, image: &Image, settings: &Settings) -> Result<(u64, u64), ApplyError> {
    let slots = 0..tables.n_slots() as u32;
    let first = slots.fold(0, |digest, slot| digest ^ tables.first_prf(settings.seed, slot));
    let second = table_digest(&image.second, settings)?;
    let (got, expected) = (first ^ second, image.digest);
    if got == expected {
        Ok((first, second))
    } else {
        Err(ApplyError::WrongDigest { part: PartId::WHOLE, got, expected })
    }
}

impl Query for FiltableQuery {
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
            Update::Slots(update) => self.apply_slots(update),
            Update::Table(image) if image.version <= self.version => Ok(Applied::AlreadyThere),
            Update::Table(image) => self.overwrite(image).map(|()| Applied::Applied),
        }
    }

    fn prefetch_update(&self, update: &Update) {
        let Update::Slots(update) = update else { return };
        for write in update.writes.iter().take(MAX_WRITES) {
            if let Write::First { slot, .. } = *write {
                self.tables().prefetch_slot(slot);
            }
        }
    }

    fn size_bits(&self) -> u64 {
        self.tables().size_bytes() as u64 * 8
    }
}

impl Undivided for FiltableQuery {
    type Settings = Settings;
    type Image = Image;
    type Reader = Reader;

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn encode_update(settings: &Settings, update: &Update, out: &mut Vec<u8>) {
        update.encode(settings, out);
    }

    fn decode_update(settings: &Settings, bytes: &[u8]) -> Result<Update, DecodeError> {
        Update::decode(bytes, settings)
    }

    fn decode_update_over(settings: &Settings, bytes: &[u8], update: &mut Update) -> Result<(), DecodeError> {
        update.decode_over(bytes, settings)
    }

    fn update_of(image: Image) -> Update {
        Update::Table(image)
    }

    fn image_of(update: &Update) -> Option<&Image> {
        if let Update::Table(image) = update { Some(image) } else { None }
    }

    fn from_image(settings: &Settings, image: &Image) -> Result<Self, ApplyError> {
        let tables = Tables::new(image, settings)?;
        let (first, second) = digests(&tables, image, settings)?;
        let (current, settings) = (RcuCell::new(tables), settings.clone());
        Ok(Self { current, settings, version: image.version, first, second })
    }

    fn overwrite(&mut self, image: &Image) -> Result<(), ApplyError> {
        self.current.may_replace()?;
        let tables = Tables::new(image, &self.settings)?;
        let (first, second) = digests(&tables, image, &self.settings)?;
        let bytes = self.tables().size_bytes();
        self.current.replace(tables, bytes)?;
        (self.version, self.first, self.second) = (image.version, first, second);
        Ok(())
    }

    fn image(&self) -> Image {
        self.tables().image(self.version, self.first ^ self.second, self.second)
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.first ^ self.second)
    }

    fn reader(&self) -> Reader {
        Reader { reader: self.current.reader() }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader {
    reader: RcuReader<Tables, table::Burst>,
}

impl BatchReader<[Digest]> for Reader {
    #[inline]
    fn lookup_batch(&mut self, digests: &[Digest], values: &mut [u64]) {
        let (tables, _pin) = self.reader.pin();
        tables.lookup_batch(digests, values);
    }

    fn has_phases(&self) -> bool {
        true
    }

    #[inline]
    fn begin(&mut self, digests: &[Digest]) {
        self.reader.begin(digests.len(), |tables, burst| tables.begin(digests, burst));
    }

    #[inline]
    fn finish(&mut self, digests: &[Digest], values: &mut [u64]) {
        self.reader.finish([digests.len(), values.len()], |tables, burst| tables.finish(digests, burst, values));
    }

    fn offline(&mut self) {
        self.reader.offline();
    }
}

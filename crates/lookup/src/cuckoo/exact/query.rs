//! (2,4)-Cuckoo, query half: a table of slots, in the version that readers follow.
//!
//! [`CuckooQuery`] is the handle of the one writer; each reading thread has a [`Reader`]. An update of slots is stored
//! in place under the counters of their buckets. A new size or tweak is a new version of the table; the old one is
//! never written again, and is freed when its readers are gone.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls the loops that are compiled for another processor")
)]

use super::table::{self, Table};
use super::update::{MAX_WRITES, SlotsUpdate, TableImage, Update};
use super::{Layout, NameHash, Settings};
use crate::base::bytes::DecodeError;
use crate::base::part::PartId;
use crate::base::prefetch::{BURST, in_bursts};
#[cfg(target_arch = "x86_64")]
use crate::base::processor::{Kernel, Vectors};
use crate::base::touches::{Touch, Touches};
use crate::cuckoo::places::Hash;
use crate::cuckoo::slot_prf;
use crate::hash::Digest;
use crate::publish::Pin;
use crate::publish::rcu::{RcuCell, RcuReader};
use crate::traits::{Applied, ApplyError, BatchReader, Query, Undivided};

/// What readers share: a table, and how its names are hashed.
struct Hashed<const W: usize> {
    hash: NameHash,
    table: Table<W>,
}

impl<const W: usize> Hashed<W> {
    #[inline]
    fn lookup(&self, name: &[u64; W]) -> u64 {
        self.table.lookup(name, self.table.buckets(self.hash.digest(name)))
    }

    fn lookup_batch(&self, names: &[[u64; W]], values: &mut [u64]) {
        let values = &mut values[..names.len()];
        #[cfg(target_arch = "x86_64")]
        if Kernel::get().vectors() >= Vectors::Avx2 {
            // SAFETY: the processor has AVX2 and BMI2.
            unsafe { self.bursts_avx2(names, values) };
            return;
        }
        self.bursts(names, values);
    }

    /// The same loops, compiled for processors with AVX2 and BMI2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn bursts_avx2(&self, names: &[[u64; W]], values: &mut [u64]) {
        self.bursts(names, values);
    }

    #[inline(always)]
    fn bursts(&self, names: &[[u64; W]], values: &mut [u64]) {
        in_bursts(
            names,
            values,
            |names, burst| self.locate(names, burst),
            |names, burst, values| self.table.finish(names, burst, values),
        );
    }

    /// Begins a burst.
    fn begin(&self, names: &[[u64; W]], burst: &mut table::Burst) {
        #[cfg(target_arch = "x86_64")]
        if Kernel::get().vectors() >= Vectors::Avx2 {
            // SAFETY: the processor has AVX2 and BMI2.
            unsafe { self.begin_avx2(names, burst) };
            return;
        }
        self.locate(names, burst);
    }

    /// Finishes a burst that was begun with the same names.
    fn finish(&self, names: &[[u64; W]], burst: &table::Burst, values: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        if Kernel::get().vectors() >= Vectors::Avx2 {
            // SAFETY: the processor has AVX2 and BMI2.
            unsafe { self.finish_avx2(names, burst, values) };
            return;
        }
        self.table.finish(names, burst, values);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn begin_avx2(&self, names: &[[u64; W]], burst: &mut table::Burst) {
        self.locate(names, burst);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn finish_avx2(&self, names: &[[u64; W]], burst: &table::Burst, values: &mut [u64]) {
        self.table.finish(names, burst, values);
    }

    #[inline(always)]
    fn locate(&self, names: &[[u64; W]], burst: &mut table::Burst) {
        let mut digests = [Digest(0); BURST];
        let digests = &mut digests[..names.len()];
        self.hash.digests(names, digests);
        self.table.begin(digests, burst);
    }
}

/// Query half of a table, and the handle of its one writer.
pub struct CuckooQuery<const W: usize> {
    current: RcuCell<Hashed<W>>,
    settings: Settings,
    layout: Layout,
    seed: u64,
    version: u64,
    digest: u64,
}

/// Figures of a query structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CuckooStats {
    /// Slots.
    pub n_slots: usize,
    /// Slots and counters, in bits.
    pub size_bits: u64,
    /// Bytes of old versions that readers may still use.
    pub retired_bytes: usize,
    /// Bytes on huge pages, if the operating system reports it.
    pub huge_page_bytes: Option<usize>,
}

impl<const W: usize> CuckooQuery<W> {
    /// Figures; reads the operating system's page accounts.
    pub fn stats(&self) -> CuckooStats {
        CuckooStats {
            n_slots: self.table().n_slots(),
            size_bits: self.size_bits(),
            retired_bytes: self.current.retired_bytes(),
            huge_page_bytes: self.table().huge_page_bytes(),
        }
    }

    /// As [`Touches::touches`], for a lookup that reads the second bucket only if the first does not hold the name.
    /// Ours always reads both, without a branch.
    pub fn touches_until_found(&self, name: [u64; W], touch: &mut dyn FnMut(Touch)) {
        let Hashed { hash, table } = self.current.get();
        let [first, second] = table.buckets(hash.digest(&name));
        table.touches(first, 0, touch);
        if !table.holds(&name, first) {
            table.touches(second, 1, touch);
        }
    }

    fn table(&self) -> &Table<W> {
        &self.current.get().table
    }

    fn apply_slots(&mut self, update: &SlotsUpdate<W>) -> Result<Applied, ApplyError> {
        let current = self.version;
        if update.to <= current {
            return Ok(Applied::AlreadyThere);
        }
        ApplyError::check_version(PartId::WHOLE, current, update.from)?;
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        let (table, writes) = (self.table(), &update.writes);
        if writes.len() > MAX_WRITES {
            return malformed("more writes than a chain of moves has");
        }
        let mut words = Vec::with_capacity(writes.len() * self.layout.slot_words);
        let mut got = self.digest;
        for (at, write) in writes.iter().enumerate() {
            if write.slot as usize >= table.n_slots() {
                return malformed("a slot is not in the table");
            }
            if !self.layout.fits(&write.name) || write.value > self.layout.value_max() {
                return malformed("a name or a value is too long");
            }
            let before = writes[..at].iter().rposition(|earlier| earlier.slot == write.slot);
            got ^= match before {
                Some(earlier) => slot_prf(self.seed, write.slot, contents(&words, earlier, self.layout)),
                None => table.prf(self.seed, write.slot),
            };
            self.layout.encode(&write.name, write.value, &mut words);
            got ^= slot_prf(self.seed, write.slot, contents(&words, at, self.layout));
        }
        ApplyError::check_digest(PartId::WHOLE, got, update.digest)?;
        let closed = table.close();
        for (at, write) in writes.iter().enumerate() {
            table.write(write.slot, contents(&words, at, self.layout));
        }
        drop(closed);
        (self.version, self.digest) = (update.to, got);
        Ok(Applied::Applied)
    }
}

fn contents(words: &[u64], at: usize, layout: Layout) -> &[u64] {
    &words[at * layout.slot_words..(at + 1) * layout.slot_words]
}

fn check_digest(image: &TableImage, layout: Layout, seed: u64) -> Result<(), ApplyError> {
    let got = digest_of(&image.words, layout, seed);
    let expected = image.digest;
    ApplyError::check_digest(PartId::WHOLE, got, expected).map(drop)
}

/// The digest of the slots in `words`.
pub(crate) fn digest_of(words: &[u64], layout: Layout, seed: u64) -> u64 {
    let slots = (0..).zip(words.chunks_exact(layout.slot_words));
    slots.fold(0, |digest, (slot, words)| digest ^ slot_prf(seed, slot, words))
}

impl<const W: usize> Touches for CuckooQuery<W> {
    fn touches(&self, key: [u64; W], touch: &mut dyn FnMut(Touch)) {
        let Hashed { hash, table } = self.current.get();
        for bucket in table.buckets(hash.digest(&key)) {
            table.touches(bucket, 0, touch);
        }
    }
}

#[cfg(test)]
impl<const W: usize> crate::base::touches::Memory for CuckooQuery<W> {
    fn memory(&self) -> (*mut u8, usize) {
        self.table().memory()
    }
}

impl<const W: usize> Query for CuckooQuery<W> {
    type Key = [u64; W];
    type Update = Update<W>;

    fn lookup(&self, name: [u64; W]) -> u64 {
        self.current.get().lookup(&name)
    }

    fn lookup_batch(&self, names: &[[u64; W]], values: &mut [u64]) {
        self.current.get().lookup_batch(names, values);
    }

    fn apply(&mut self, update: &Update<W>) -> Result<Applied, ApplyError> {
        match update {
            Update::Slots(update) => self.apply_slots(update),
            Update::Table(image) if image.version <= self.version => Ok(Applied::AlreadyThere),
            Update::Table(image) => self.overwrite(image).map(|()| Applied::Applied),
        }
    }

    fn size_bits(&self) -> u64 {
        self.table().size_bytes() as u64 * 8
    }
}

impl<const W: usize> Undivided for CuckooQuery<W> {
    type Settings = Settings;
    type Image = TableImage;
    type Reader = Reader<W>;

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn encode_update(settings: &Settings, update: &Update<W>, out: &mut Vec<u8>) {
        update.encode(settings, out);
    }

    fn decode_update(settings: &Settings, bytes: &[u8]) -> Result<Update<W>, DecodeError> {
        Update::decode(bytes, settings)
    }

    fn decode_update_over(settings: &Settings, bytes: &[u8], update: &mut Update<W>) -> Result<(), DecodeError> {
        update.decode_over(bytes, settings)
    }

    fn update_of(image: TableImage) -> Update<W> {
        Update::Table(image)
    }

    fn image_of(update: &Update<W>) -> Option<&TableImage> {
        if let Update::Table(image) = update { Some(image) } else { None }
    }

    fn from_image(settings: &Settings, image: &TableImage) -> Result<Self, ApplyError> {
        let (layout, seed) = (settings.layout::<W>(), settings.seed());
        check_digest(image, layout, seed)?;
        let hashed = Hashed { hash: NameHash::new(settings), table: Table::new(image, layout)? };
        Ok(Self {
            current: RcuCell::new(hashed),
            settings: settings.clone(),
            layout,
            seed,
            version: image.version,
            digest: image.digest,
        })
    }

    fn overwrite(&mut self, image: &TableImage) -> Result<(), ApplyError> {
        check_digest(image, self.layout, self.seed)?;
        self.current.may_replace()?;
        let hashed = Hashed { hash: self.current.get().hash.clone(), table: Table::new(image, self.layout)? };
        let bytes = self.table().size_bytes();
        self.current.replace(hashed, bytes)?;
        (self.version, self.digest) = (image.version, image.digest);
        Ok(())
    }

    fn image(&self) -> TableImage {
        self.table().image(self.version, self.digest)
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    fn reader(&self) -> Reader<W> {
        Reader { reader: self.current.reader() }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<const W: usize> {
    reader: RcuReader<Hashed<W>, table::Burst>,
}

impl<const W: usize> Reader<W> {
    /// Opens the table for a burst. The thread was quiescent until now: nothing from an earlier burst is in use.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_, W> {
        let (hashed, pin) = self.reader.pin();
        Pinned { hashed, _pin: pin }
    }

    /// Declares that this thread reads nothing until it pins again: call it before sleeping.
    pub fn offline(&mut self) {
        self.reader.offline();
    }
}

/// The table during one burst.
pub struct Pinned<'a, const W: usize> {
    hashed: &'a Hashed<W>,
    _pin: Pin<'a>,
}

impl<const W: usize> Pinned<'_, W> {
    /// As [`Query::lookup`].
    #[inline]
    pub fn lookup(&self, name: [u64; W]) -> u64 {
        self.hashed.lookup(&name)
    }

    /// As [`Query::lookup_batch`].
    #[inline]
    pub fn lookup_batch(&self, names: &[[u64; W]], values: &mut [u64]) {
        self.hashed.lookup_batch(names, values);
    }
}

impl<const W: usize> BatchReader<[[u64; W]]> for Reader<W> {
    #[inline]
    fn lookup_batch(&mut self, names: &[[u64; W]], values: &mut [u64]) {
        self.pin().lookup_batch(names, values);
    }

    fn has_phases(&self) -> bool {
        true
    }

    #[inline]
    fn begin(&mut self, names: &[[u64; W]]) {
        self.reader.begin(names.len(), |hashed, burst| hashed.begin(names, burst));
    }

    #[inline]
    fn finish(&mut self, names: &[[u64; W]], values: &mut [u64]) {
        self.reader.finish([names.len(), values.len()], |hashed, burst| hashed.finish(names, burst, values));
    }

    fn offline(&mut self) {
        Reader::offline(self);
    }
}

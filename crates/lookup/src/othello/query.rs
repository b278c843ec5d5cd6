//! Othello, query half: a directory and cells, no names. A lookup is `a[h_a(k)] ^ b[h_b(k)]`.
//!
//! [`OthelloQuery`] is the handle of the one writer. Each reading thread has a [`Reader`]. There are three kinds of
//! changes:
//!
//! * A shard that is rebuilt, split or merged is written elsewhere, and published by one store of its entry: arena
//!   offset, size and tweak in 64 bits. A reader loads the entry once per name and uses it for the whole burst. The
//!   memory of the old version is reused once every reader has been quiescent.
//! * Cells of live names are edited in place: all cells of an update between two increments of the table's counter,
//!   whose journal records their lines. If the counter moved while a burst was read, the reader asks the journal, and
//!   reads again the names that read one of these lines.
//! * Cells that belong to no name but the new one are stored in place: an insert onto an isolated cell, and its
//!   emptiness indicator.
//!
//! The table has one counter, which is checked once per burst. That costs two loads per 32 names, of a line that stays
//! in the reader's cache unless the writer wrote.
//!
//! Cost: 2 cell reads per lookup; (m_a + m_b) * (l_p + l_f) bits and 8 bytes per shard. Alien names: an arbitrary
//! value, or drop except for [`Settings::false_positive_rate`].
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections IV.C, V.C.
//! Differs: no D1/D2 bit vectors, which give wrong answers: see `tests/structures/papers_protocol.rs`.
//! Limits: one writer; `base::served` bounds old versions that readers hold back.

#![expect(
    unsafe_code,
    reason = "writes shards into the arena that readers hold, and publishes the directory by pointer"
)]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::Settings;
use super::fingerprint::CellFormat;
use super::kernel::{self, Spots, Words};
use super::sizing::{Geometry, Sharded, Sides, Sizing};
use super::update::{MAX_STASH, ShardImage, Update};
use crate::base::arena::Arena;
use crate::base::cells::value_mask;
use crate::base::part::PartId;
use crate::base::prefetch::BURST;
use crate::base::processor::{Kernel, Reads};
use crate::base::root::Form;
use crate::base::served::{self, PartsReader, Served, ServedParts};
use crate::base::touches::{Touch, Touches};
use crate::hash::Digest;
use crate::publish::ring::Ring;
use crate::traits::{Applied, ApplyError, BatchReader, Query};

/// Bytes of a stash in the arena: a count, then the digest and the value of each name.
const STASH_BYTES: usize = 8 + 16 * MAX_STASH;

/// The writer's record of a shard that it serves.
pub(super) type Held = served::Held<Geometry>;

fn words(served: Served<'_, CellFormat>) -> Words<'_> {
    Words {
        entries: served.entries,
        depth: served.depth,
        base: served.base,
        format: *served.extra,
        gate: served.gate,
        prefetch: served.prefetch,
    }
}

/// The query half of a table, and the handle of its one writer.
pub struct OthelloQuery<S: Sizing = Sharded> {
    pub(super) shards: ServedParts<Geometry, CellFormat>,
    pub(super) settings: Settings,
    sizing: PhantomData<S>,
}

/// Statistics of a query structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryStats {
    /// Shards served.
    pub n_shards: usize,
    /// Cells, stashes and directory, in bits.
    pub size_bits: u64,
    /// Bytes of the arena in use. Old versions that wait for readers are included.
    pub arena_bytes: u64,
    /// Bytes of old versions that wait for readers.
    pub retired_bytes: usize,
    /// Bytes of the arena on huge pages, if the operating system reports it.
    pub huge_page_bytes: Option<usize>,
    /// Names in stashes.
    pub n_stashed: usize,
}

impl<S: Sizing> OthelloQuery<S> {
    /// The structure of these shards. Their digests are checked, unless they are `proved`.
    pub(super) fn of(settings: &Settings, shards: &[ShardImage], proved: bool) -> Result<Self, ApplyError> {
        Self::on(served::reserve(Self::most_bytes(settings))?, settings, shards, proved)
    }

    /// The size of the arena: two versions of everything at the largest size that a sizing allows.
    pub(super) fn most_bytes(settings: &Settings) -> usize {
        let max_names = settings.max_names.min(Settings::MAX_NAMES) as u64;
        let words = (max_names * 16 / 3 * 4).div_ceil(settings.cells_per_word().into());
        served::arena_bytes(usize::try_from(words * 8).unwrap_or(usize::MAX))
    }

    /// As [`OthelloQuery::of`], in an arena that is zero.
    pub(super) fn on(
        arena: Arena,
        settings: &Settings,
        shards: &[ShardImage],
        proved: bool,
    ) -> Result<Self, ApplyError> {
        let format = settings.format();
        let form = Form {
            structure: 2,
            value_bits: format.value_bits,
            fingerprint_bits: format.fingerprint_bits,
            cells_of_name: 2,
        };
        let mut query = Self {
            shards: ServedParts::new(arena, form, Reads::Cells, format)?,
            settings: settings.clone(),
            sizing: PhantomData,
        };
        shards.iter().try_for_each(|shard| query.check(shard, !proved))?;
        query.install(shards)?;
        Ok(query)
    }

    /// A reader for another thread.
    pub fn reader(&self) -> Reader<S> {
        Reader { shards: self.shards.reader(), in_flight: Ring::new(|_| Spots::unwritten()), sizing: PhantomData }
    }

    /// Statistics. Reads the page accounts of the operating system.
    pub fn stats(&self) -> QueryStats {
        let (arena_bytes, retired_bytes) = self.shards.arena_bytes();
        QueryStats {
            n_shards: self.shards.parts().n_parts(),
            size_bits: self.size_bits(),
            arena_bytes,
            retired_bytes,
            huge_page_bytes: self.shards.huge_page_bytes(),
            n_stashed: self.shards.in_order().map(|held| self.stash_of(held).len()).sum(),
        }
    }

    /// The address of a shard's cells.
    fn cells(&self, geometry: Geometry) -> *mut u8 {
        self.shards.address(geometry.offset_lines)
    }

    pub(super) fn n_words(&self, sides: Sides) -> usize {
        (sides.cells() / self.settings.cells_per_word()) as usize
    }

    /// A copy of the shard's words. Only the writer writes them, so its own plain reads do not race.
    fn words_of(&self, held: &Held) -> Vec<u64> {
        let mut words = vec![0; self.n_words(held.geometry.sides)];
        // SAFETY: the block holds this many words, and they do not overlap with a new vector.
        unsafe {
            let cells = self.cells(held.geometry).cast::<u64>();
            std::ptr::copy_nonoverlapping(cells, words.as_mut_ptr(), words.len());
        }
        words
    }

    fn stash_of(&self, held: &Held) -> Vec<(Digest, u64)> {
        if !held.geometry.stash {
            return Vec::new();
        }
        let start = self.cells(held.geometry).wrapping_add(self.n_words(held.geometry.sides) * 8).cast::<u64>();
        // SAFETY: the block of a shard with a stash has STASH_BYTES after its words.
        let word = |index: usize| unsafe { start.add(index).read() };
        (0..word(0) as usize).map(|at| (Digest(word(1 + 2 * at)), word(2 + 2 * at))).collect()
    }

    pub(super) fn image_of(&self, held: &Held) -> ShardImage {
        ShardImage {
            id: held.id,
            version: held.version,
            sides: held.geometry.sides,
            tweak: held.geometry.tweak,
            digest: held.digest,
            stash: self.stash_of(held),
            words: self.words_of(held),
        }
    }

    /// Replaces the shards that hold the digests of `images`, all of them or none.
    pub(super) fn install(&mut self, images: &[ShardImage]) -> Result<(), ApplyError> {
        let ids: Vec<PartId> = images.iter().map(|image| image.id).collect();
        self.shards.check_cover(&ids)?;
        let mut written: Vec<Held> = Vec::with_capacity(images.len());
        for image in images {
            match self.write_block(image) {
                Ok(held) => written.push(held),
                Err(error) => {
                    written.into_iter().for_each(|held| self.shards.give(held.block));
                    return Err(error);
                }
            }
        }
        self.shards.install(written)
    }

    /// Writes a shard into free lines, which no reader can see yet.
    fn write_block(&mut self, image: &ShardImage) -> Result<Held, ApplyError> {
        let stash_bytes = if image.stash.is_empty() { 0 } else { STASH_BYTES };
        let block = self.shards.take(self.n_words(image.sides) * 8 + stash_bytes)?;
        let geometry =
            Geometry { offset_lines: block.0, sides: image.sides, tweak: image.tweak, stash: !image.stash.is_empty() };
        let count = geometry.stash.then_some(image.stash.len() as u64);
        let stash = count.into_iter().chain(image.stash.iter().flat_map(|&(digest, value)| [digest.0, value]));
        self.shards.fill(block, image.words.iter().copied().chain(stash));
        let (id, version, digest) = (image.id, image.version, image.digest);
        // As readers find it in the directory.
        let entry = S::pack(geometry, self.settings.cells_per_word());
        Ok(Held { id, version, digest, geometry, entry, block })
    }

    /// Edits cells of a shard that readers see. They see all of the edit or nothing.
    pub(super) fn edit_in_place(&self, held: &Held, cells: &[(u32, u64)]) {
        let start = self.cells(held.geometry) as usize;
        let offsets = cells.iter().map(|&(cell, _)| self.place(held.geometry, cell).0 as usize - start);
        let place = kernel::place_of(held.geometry.offset_lines, offsets);
        let words = cells.iter().map(|&(cell, _)| self.place(held.geometry, cell).0);
        self.shards.edit_at(place, words, || {
            cells.iter().for_each(|&cell| self.store(held.geometry, cell));
        });
    }

    /// The place of a cell: the address of its integer or word, and its shift in it.
    #[inline]
    pub(super) fn place(&self, geometry: Geometry, cell: u32) -> (*mut u8, u32) {
        let bits = u32::from(self.settings.cell_bits());
        let cells = self.cells(geometry);
        match bits {
            8 | 16 | 32 | 64 => (cells.wrapping_add(cell as usize * (bits as usize / 8)), 0),
            _ => {
                let cells_per_word = self.settings.cells_per_word();
                (cells.wrapping_add((cell / cells_per_word) as usize * 8), cell % cells_per_word * bits)
            }
        }
    }

    #[inline]
    pub(super) fn cell(&self, held: &Held, cell: u32) -> u64 {
        let (address, shift) = self.place(held.geometry, cell);
        // SAFETY: the cell is in range. Readers and the writer use the same atomic type for it.
        unsafe {
            match self.settings.cell_bits() {
                8 => AtomicU8::from_ptr(address).load(Ordering::Relaxed).into(),
                16 => AtomicU16::from_ptr(address.cast()).load(Ordering::Relaxed).into(),
                32 => AtomicU32::from_ptr(address.cast()).load(Ordering::Relaxed).into(),
                bits => AtomicU64::from_ptr(address.cast()).load(Ordering::Relaxed) >> shift & value_mask(bits),
            }
        }
    }

    /// Stores one cell by one store.
    pub(super) fn store(&self, geometry: Geometry, (cell, value): (u32, u64)) {
        let (address, shift) = self.place(geometry, cell);
        // SAFETY: as for `cell`. This is the only writer, so reading a word and storing it loses no other change.
        unsafe {
            match self.settings.cell_bits() {
                8 => AtomicU8::from_ptr(address).store(value as u8, Ordering::Relaxed),
                16 => AtomicU16::from_ptr(address.cast()).store(value as u16, Ordering::Relaxed),
                32 => AtomicU32::from_ptr(address.cast()).store(value as u32, Ordering::Relaxed),
                bits => {
                    let word = AtomicU64::from_ptr(address.cast());
                    let others = word.load(Ordering::Relaxed) & !(value_mask(bits) << shift);
                    word.store(others | value << shift, Ordering::Relaxed);
                }
            }
        }
    }
}

impl<S: Sizing> Query for OthelloQuery<S> {
    type Key = Digest;
    type Update = Update;

    fn lookup(&self, key: Digest) -> u64 {
        kernel::lookup::<S>(&words(self.shards.served()), key)
    }

    fn lookup_batch(&self, keys: &[Digest], values: &mut [u64]) {
        kernel::lookup_batch::<S>(Kernel::get(), &words(self.shards.served()), keys, values);
    }

    fn apply(&mut self, update: &Update) -> Result<Applied, ApplyError> {
        match update {
            Update::Cells(update) => self.apply_cells(update),
            Update::Shards(images) => self.apply_shards(images),
        }
    }

    fn prefetch_update(&self, update: &Update) {
        if let Update::Cells(update) = update {
            self.prefetch_cells(update);
        }
    }

    fn size_bits(&self) -> u64 {
        self.shards.size_bits()
    }

    fn prefetches(&self) -> bool {
        self.shards.served().prefetch
    }
}

impl<S: Sizing> Touches for OthelloQuery<S> {
    fn touches(&self, key: Digest, touch: &mut dyn FnMut(Touch)) {
        kernel::touches::<S>(&words(self.shards.served()), key, touch);
    }
}

#[cfg(test)]
impl<S: Sizing> crate::testkit::kernels::ByKernel for OthelloQuery<S> {
    fn by_batch(&self, kernel: Kernel, digests: &[Digest], values: &mut [u64]) {
        kernel::lookup_batch::<S>(kernel, &words(self.shards.served()), digests, values);
    }

    fn by_phases(&self, kernel: Kernel, digests: &[Digest], values: &mut [u64]) {
        let words = words(self.shards.served());
        let mut spots = Spots::unwritten();
        kernel::begin::<S>(kernel, &words, digests, &mut spots);
        // SAFETY: begun just now, and no one writes meanwhile.
        unsafe { kernel::finish::<S>(&words, digests, &spots, values) };
    }
}

#[cfg(test)]
impl<S: Sizing> crate::base::touches::Memory for OthelloQuery<S> {
    fn memory(&self) -> (*mut u8, usize) {
        (self.shards.address(0), self.shards.arena_bytes().0 as usize)
    }

    fn is_word(&self, byte: usize) -> bool {
        self.shards.in_order().any(|held| {
            (held.block.0..held.block.0 + held.block.1).contains(&((byte / crate::base::arena::LINE) as u32))
        })
    }
}

/// A reading thread's access, concurrent with the writer.
///
/// ```
/// # use fibula_lookup::{hash::*, othello::*, traits::*};
/// # let key = SecretKey::from_seed(1);
/// # let table: Othello = Othello::new(Settings::new(8, 1000, &key));
/// let query = table.export();
/// let mut reader = query.reader();
/// std::thread::spawn(move || {
///     let mut values = [0; 32];
///     for _burst in 0..10 {
///         reader.pin().lookup_batch(&[Digest(7); 32], &mut values); // quiescent between bursts
///     }
///     reader.offline(); // before sleeping, so that the writer need not wait for this thread
/// })
/// .join()
/// .unwrap();
/// ```
pub struct Reader<S: Sizing = Sharded> {
    shards: PartsReader<CellFormat>,
    in_flight: Ring<Spots>,
    sizing: PhantomData<S>,
}

impl<S: Sizing> Reader<S> {
    /// Opens the table for a burst. The thread was quiescent until now: it uses nothing from an earlier burst.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_, S> {
        let (served, pin) = self.shards.pin();
        Pinned { words: words(served), _pin: pin, sizing: PhantomData }
    }

    /// Declares that this thread reads nothing until it pins again. Call it before sleeping.
    pub fn offline(&mut self) {
        self.in_flight.clear();
        self.shards.offline();
    }
}

impl<S: Sizing> BatchReader<[Digest]> for Reader<S> {
    #[inline]
    fn lookup_batch(&mut self, digests: &[Digest], values: &mut [u64]) {
        self.pin().lookup_batch(digests, values);
    }

    fn has_phases(&self) -> bool {
        true
    }

    #[inline]
    fn begin(&mut self, digests: &[Digest]) {
        assert!(digests.len() <= BURST, "a burst has at most {BURST} names");
        let spots = self.in_flight.push();
        kernel::begin::<S>(Kernel::get(), &words(self.shards.begin()), digests, spots);
    }

    #[inline]
    fn finish(&mut self, digests: &[Digest], values: &mut [u64]) {
        let spots = self.in_flight.pop();
        // SAFETY: the spots are those of the oldest burst. It was begun on this table, and is in flight until the
        // reader's slot is told.
        unsafe { kernel::finish::<S>(&words(self.shards.current()), digests, spots, values) };
        self.shards.finish();
    }

    fn offline(&mut self) {
        Reader::offline(self);
    }
}

/// The table during one burst.
pub struct Pinned<'a, S: Sizing = Sharded> {
    words: Words<'a>,
    _pin: crate::publish::Pin<'a>,
    sizing: PhantomData<S>,
}

impl<S: Sizing> Pinned<'_, S> {
    /// As [`Query::lookup`].
    pub fn lookup(&self, digest: Digest) -> u64 {
        kernel::lookup::<S>(&self.words, digest)
    }

    /// As [`Query::lookup_batch`].
    #[inline]
    pub fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        kernel::lookup_batch::<S>(Kernel::get(), &self.words, digests, values);
    }

    /// The first half of the lookup of a burst alone, to measure it: finds cells, prefetches them or not, reads none.
    pub fn locate(&self, digests: &[Digest], prefetch: bool) {
        let mut spots = Spots::unwritten();
        kernel::begin::<S>(Kernel::get(), &Words { prefetch, ..self.words }, digests, &mut spots);
        std::hint::black_box(&spots);
    }
}

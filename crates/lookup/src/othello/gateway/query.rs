//! OGW, query half: cells that yield slot indices, and slots with full names.
//!
//! [`GatewayQuery`] is the handle of the one writer. Each reading thread has a [`Reader`]. A burst goes through three
//! waves: cells, slots, comparison. What it read from a shard is valid only if the shard's counter did not move
//! meanwhile. Otherwise the name is read again, and after a bounded number of tries with the writer locked out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::update::{NameUpdate, SlotShard, Update, WholeShards};
use super::{Settings, n_edges, othello_settings, slot_digest};
use crate::base::atomic_words::AtomicWords;
use crate::base::bytes::DecodeError;
use crate::base::part::{PartId, prefix_of};
use crate::base::prefetch::{BURST, in_bursts, prefetch};
use crate::cuckoo::exact::{Layout, NameHash};
use crate::cuckoo::places::Hash;
use crate::hash::Digest;
use crate::othello::apply::Earlier;
use crate::othello::{ShardImage, Sharded, Sides, cell_prf, validate};
use crate::publish::Sequence;
use crate::publish::rcu::{RcuCell, RcuReader};
use crate::publish::seq_lock::Gate;
use crate::traits::{Applied, ApplyError, BatchReader, Query, Undivided};

/// Cells per word.
const CELLS: u32 = 64 / super::INDEX_BITS as u32;

impl SlotShard {
    /// Digest of cells and slots.
    pub(super) fn digest(&self, seed: u64, slot_words: usize) -> u64 {
        let slots = (0..).zip(self.slots.chunks_exact(slot_words));
        slots.fold(self.cells.digest, |digest, (slot, words)| digest ^ slot_digest(seed, self.cells.id, slot, words))
    }
}

/// A shard that readers see.
struct Shard {
    id: PartId,
    sides: Sides,
    tweak: u16,
    sequence: Sequence,
    stash: Vec<(Digest, u64)>,
    cells: AtomicWords,
    slots: AtomicWords,
    /// Digest of cells and slots, for the writer.
    digest: AtomicU64,
}

impl Shard {
    #[inline(always)]
    fn cell(&self, cell: u32) -> u64 {
        let word = self.cells[(cell / CELLS) as usize].load(Ordering::Relaxed);
        word >> (cell % CELLS * u32::from(super::INDEX_BITS)) & 0xFFFF
    }

    fn store(&self, cell: u32, index: u64) {
        let shift = cell % CELLS * u32::from(super::INDEX_BITS);
        let word = &self.cells[(cell / CELLS) as usize];
        let others = word.load(Ordering::Relaxed) & !(0xFFFF << shift);
        word.store(others | index << shift, Ordering::Relaxed);
    }

    /// The slot index that the two cells yield.
    #[inline(always)]
    fn slot(&self, digest: Digest, (u, v): (u32, u32)) -> u32 {
        if !self.stash.is_empty()
            && let Some(&(_, slot)) = self.stash.iter().find(|entry| entry.0 == digest)
        {
            return slot as u32;
        }
        (self.cell(u) ^ self.cell(v)) as u32
    }

    /// The value of `name` if it is in `slot`.
    #[inline(always)]
    fn value<const W: usize>(&self, layout: Layout, name: &[u64; W], slot: u32) -> u64 {
        let first = slot as usize * layout.slot_words;
        match self.slots.get(first..first + layout.slot_words) {
            Some(words) => layout.value_of(name, |at| words[at].load(Ordering::Relaxed)),
            // An alien's cells may yield any index.
            None => 0,
        }
    }

    fn image(&self) -> SlotShard {
        let words = self.cells.to_vec();
        let cells = ShardImage {
            id: self.id,
            version: 0,
            sides: self.sides,
            tweak: self.tweak,
            digest: 0,
            stash: self.stash.clone(),
            words,
        };
        SlotShard { cells, slots: self.slots.to_vec() }
    }
}

/// What readers hold.
struct Table<const W: usize> {
    hash: NameHash,
    layout: Layout,
    depth: u8,
    /// The shard for every prefix of `depth` bits.
    directory: Vec<Arc<Shard>>,
    /// Held by the writer while it edits a shard.
    gate: Arc<Gate>,
}

/// A burst after its first wave.
#[derive(Default)]
struct Burst {
    digests: [Digest; BURST],
    /// The two cells of each name.
    spots: [(u32, u32); BURST],
}

impl<const W: usize> Table<W> {
    #[inline(always)]
    fn shard(&self, digest: Digest) -> &Shard {
        &self.directory[prefix_of(digest.0, self.depth)]
    }

    /// The value of one name, from one consistent state of its shard.
    fn one(&self, name: &[u64; W], digest: Digest) -> u64 {
        let shard = self.shard(digest);
        let read = || shard.value(self.layout, name, shard.slot(digest, shard.sides.endpoints(digest.0, shard.tweak)));
        let attempt = || {
            let stamp = shard.sequence.read_begin()?;
            let value = read();
            shard.sequence.read_validate(stamp).then_some(value)
        };
        self.gate.retry(attempt).unwrap_or_else(|_closed| read())
    }

    fn lookup_batch(&self, names: &[[u64; W]], values: &mut [u64]) {
        in_bursts(
            names,
            values,
            |names, burst| self.begin(names, burst),
            |names, burst, values| self.finish(names, burst, values),
        );
    }

    /// The first wave of a burst: cells.
    fn begin(&self, names: &[[u64; W]], burst: &mut Burst) {
        self.hash.digests(names, &mut burst.digests[..names.len()]);
        for (&digest, spot) in burst.digests[..names.len()].iter().zip(&mut burst.spots) {
            let shard = self.shard(digest);
            *spot = shard.sides.endpoints(digest.0, shard.tweak);
            for cell in [spot.0, spot.1] {
                prefetch(shard.cells.as_ptr().wrapping_add((cell / CELLS) as usize).cast());
            }
        }
    }

    /// The second and the third wave: slots and comparison.
    fn finish(&self, names: &[[u64; W]], burst: &Burst, values: &mut [u64]) {
        let digests = &burst.digests[..names.len()];
        let mut slots = [(None, 0); BURST];
        for ((&digest, &spot), slot) in digests.iter().zip(&burst.spots).zip(&mut slots) {
            let shard = self.shard(digest);
            *slot = (shard.sequence.read_begin(), shard.slot(digest, spot));
            prefetch(shard.slots.as_ptr().wrapping_add(slot.1 as usize * self.layout.slot_words).cast());
        }
        for (((name, &digest), &(stamp, slot)), value) in names.iter().zip(digests).zip(&slots).zip(values) {
            let shard = self.shard(digest);
            *value = shard.value(self.layout, name, slot);
            if !stamp.is_some_and(|stamp| shard.sequence.read_validate(stamp)) {
                *value = self.one(name, digest);
            }
        }
    }

    /// The shards, in order of digests.
    fn shards(&self) -> impl Iterator<Item = &Shard> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let shard = self.directory.get(at)?;
            at += 1 << (self.depth - shard.id.depth);
            Some(&**shard)
        })
    }
}

/// Query half of a table, and the handle of its one writer.
pub struct GatewayQuery<const W: usize> {
    current: RcuCell<Table<W>>,
    settings: Settings,
    layout: Layout,
    seed: u64,
    othello: crate::othello::Settings,
    version: u64,
    digest: u64,
}

impl<const W: usize> GatewayQuery<W> {
    fn table(&self) -> &Table<W> {
        self.current.get()
    }

    /// The table that consists of `whole` if `alone`, otherwise with `whole` in place of the shards that hold its
    /// digests. Checks all of it.
    fn with(&self, whole: &WholeShards, alone: bool) -> Result<Table<W>, ApplyError> {
        let old = self.table();
        let malformed = Err(ApplyError::Malformed { reason: "the shards do not replace whole shards exactly once" });
        let deepest = whole.shards.iter().map(|shard| shard.cells.id.depth).max().unwrap_or(0);
        let mut directory: Vec<Option<Arc<Shard>>>;
        let depth = if alone { deepest } else { deepest.max(old.depth) };
        for shard in &whole.shards {
            self.check(shard)?;
        }
        directory = match alone {
            true => vec![None; 1 << depth],
            false => {
                let times = 1 << (depth - old.depth);
                old.directory.iter().flat_map(|shard| std::iter::repeat_n(Some(Arc::clone(shard)), times)).collect()
            }
        };
        for shard in &whole.shards {
            let made = Arc::new(self.made(shard)?);
            directory[shard.cells.id.entries(depth)].fill(Some(made));
        }
        let Some(directory) = directory.into_iter().collect::<Option<Vec<_>>>() else { return malformed };
        let (mut at, mut digest) = (0, 0);
        while at < directory.len() {
            let entries = directory[at].id.entries(depth);
            let one = entries.start == at && directory[entries.clone()].iter().all(|s| Arc::ptr_eq(s, &directory[at]));
            if !one {
                return malformed;
            }
            digest ^= directory[at].digest.load(Ordering::Relaxed);
            at = entries.end;
        }
        ApplyError::check_digest(PartId::WHOLE, digest, whole.digest)?;
        Ok(Table { hash: old.hash.clone(), layout: self.layout, depth, directory, gate: Arc::clone(&old.gate) })
    }

    fn check(&self, shard: &SlotShard) -> Result<(), ApplyError> {
        validate::check::<Sharded>(&self.othello, &shard.cells, true)?;
        let n_slots = n_edges(shard.cells.sides) + shard.cells.stash.len();
        if shard.slots.len() != n_slots * self.layout.slot_words {
            return Err(ApplyError::Malformed { reason: "a shard has another number of slots than its cells say" });
        }
        Ok(())
    }

    fn made(&self, shard: &SlotShard) -> Result<Shard, ApplyError> {
        let ShardImage { id, sides, tweak, stash, words, .. } = &shard.cells;
        Ok(Shard {
            id: *id,
            sides: *sides,
            tweak: *tweak,
            sequence: Sequence::new(),
            stash: stash.clone(),
            cells: AtomicWords::filled(words)?,
            slots: AtomicWords::filled(&shard.slots)?,
            digest: AtomicU64::new(shard.digest(self.seed, self.layout.slot_words)),
        })
    }

    fn replace(&mut self, whole: &WholeShards, alone: bool) -> Result<(), ApplyError> {
        self.current.may_replace()?;
        let table = self.with(whole, alone)?;
        // What readers may keep from being freed: the replaced shards and the old directory.
        let slots: usize = whole.shards.iter().map(|shard| (shard.slots.len() + shard.cells.words.len()) * 8).sum();
        let bytes = slots + self.table().directory.len() * 8;
        self.current.replace(table, bytes)?;
        (self.version, self.digest) = (whole.to, whole.digest);
        Ok(())
    }

    fn apply_name(&mut self, update: &NameUpdate<W>) -> Result<Applied, ApplyError> {
        if update.to <= self.version {
            return Ok(Applied::AlreadyThere);
        }
        ApplyError::check_version(PartId::WHOLE, self.version, update.from)?;
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        let (table, id) = (self.table(), update.id);
        if id.depth > table.depth || id.prefix >> id.depth != 0 {
            return malformed("the update is for a shard that is not here");
        }
        let shard = &table.directory[id.entries(table.depth).start];
        let first = update.slot as usize * self.layout.slot_words;
        let Some(old) = shard.slots.get(first..first + self.layout.slot_words).filter(|_| shard.id == id) else {
            return malformed("the update is for a shard or a slot that is not here");
        };
        if update.cells.iter().any(|&(cell, index)| cell >= shard.sides.cells() || index > 0xFFFF)
            || !self.layout.fits(&update.name)
            || update.value > self.layout.value_max()
        {
            return malformed("a cell, a name or a value is out of range");
        }
        let mut words = Vec::with_capacity(self.layout.slot_words);
        self.layout.encode(&update.name, update.value, &mut words);
        let before: Vec<u64> = old.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let of_slot = |words: &[u64]| slot_digest(self.seed, id, update.slot, words);
        let mut delta = of_slot(&before) ^ of_slot(&words);
        let mut earlier = Earlier::new(&update.cells);
        for (at, &(cell, index)) in update.cells.iter().enumerate() {
            let old = earlier.value(at).unwrap_or_else(|| shard.cell(cell));
            delta ^= cell_prf(self.othello.seed, cell, old) ^ cell_prf(self.othello.seed, cell, index);
        }
        let got = self.digest ^ delta;
        ApplyError::check_digest(id, got, update.digest)?;
        let gate = table.gate.close();
        let guard = shard.sequence.write();
        for (to, &from) in old.iter().zip(&words) {
            to.store(from, Ordering::Relaxed);
        }
        update.cells.iter().for_each(|&(cell, index)| shard.store(cell, index));
        guard.commit();
        drop(gate);
        shard.digest.fetch_xor(delta, Ordering::Relaxed);
        (self.version, self.digest) = (update.to, got);
        Ok(Applied::Applied)
    }
}

impl<const W: usize> Query for GatewayQuery<W> {
    type Key = [u64; W];
    type Update = Update<W>;

    fn lookup(&self, name: [u64; W]) -> u64 {
        self.table().one(&name, self.table().hash.digest(&name))
    }

    fn lookup_batch(&self, names: &[[u64; W]], values: &mut [u64]) {
        self.table().lookup_batch(names, values);
    }

    fn apply(&mut self, update: &Update<W>) -> Result<Applied, ApplyError> {
        match update {
            Update::Name(update) => self.apply_name(update),
            Update::Shards(whole) | Update::Table(whole) if whole.to <= self.version => Ok(Applied::AlreadyThere),
            Update::Shards(whole) => {
                ApplyError::check_version(PartId::WHOLE, self.version, whole.from)?;
                self.replace(whole, false).map(|()| Applied::Applied)
            }
            Update::Table(whole) => self.replace(whole, true).map(|()| Applied::Applied),
        }
    }

    fn size_bits(&self) -> u64 {
        let words: usize = self.table().shards().map(|shard| shard.cells.len() + shard.slots.len()).sum();
        (words + self.table().directory.len()) as u64 * 64
    }
}

/// A thread's access to the table, concurrent with its writer.
pub struct Reader<const W: usize> {
    reader: RcuReader<Table<W>, Burst>,
}

impl<const W: usize> BatchReader<[[u64; W]]> for Reader<W> {
    #[inline]
    fn lookup_batch(&mut self, names: &[[u64; W]], values: &mut [u64]) {
        let (table, _pin) = self.reader.pin();
        table.lookup_batch(names, values);
    }

    fn has_phases(&self) -> bool {
        true
    }

    #[inline]
    fn begin(&mut self, names: &[[u64; W]]) {
        self.reader.begin(names.len(), |table, burst| table.begin(names, burst));
    }

    #[inline]
    fn finish(&mut self, names: &[[u64; W]], values: &mut [u64]) {
        self.reader.finish([names.len(), values.len()], |table, burst| table.finish(names, burst, values));
    }

    fn offline(&mut self) {
        self.reader.offline();
    }
}

impl<const W: usize> Undivided for GatewayQuery<W> {
    type Settings = Settings;
    type Image = WholeShards;
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

    fn update_of(image: WholeShards) -> Update<W> {
        Update::Table(image)
    }

    fn image_of(update: &Update<W>) -> Option<&WholeShards> {
        if let Update::Table(image) = update { Some(image) } else { None }
    }

    fn from_image(settings: &Settings, image: &WholeShards) -> Result<Self, ApplyError> {
        let (layout, seed, othello) = (settings.layout::<W>(), settings.seed(), othello_settings(settings));
        let empty =
            Table { hash: NameHash::new(settings), layout, depth: 0, directory: Vec::new(), gate: Arc::default() };
        let mut query = Self {
            current: RcuCell::new(empty),
            settings: settings.clone(),
            layout,
            seed,
            othello,
            version: image.to,
            digest: image.digest,
        };
        let table = query.with(image, true)?;
        query.current.replace(table, 0)?;
        Ok(query)
    }

    fn overwrite(&mut self, image: &WholeShards) -> Result<(), ApplyError> {
        self.replace(image, true)
    }

    fn image(&self) -> WholeShards {
        let shards = self.table().shards().map(|shard| {
            let mut image = shard.image();
            // The digest of the cells alone: that of the shard without its slots.
            image.cells.digest = shard.digest.load(Ordering::Relaxed) ^ image.digest(self.seed, self.layout.slot_words);
            image
        });
        WholeShards { from: self.version, to: self.version, digest: self.digest, shards: shards.collect() }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    fn reader(&self) -> Reader<W> {
        Reader { reader: self.current.reader() }
    }
}

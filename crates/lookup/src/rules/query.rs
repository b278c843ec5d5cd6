//! Rules, query half: slots and rules as words, the order in which tables are tried, and readers of all of it.
//!
//! A burst is looked up in one table after the other. In each, all flows that a rule of it could still answer are masked and
//! hashed, their lines are fetched, and the runs that were found are compared.
//!
//! The writer changes a run in its place or elsewhere, and then its slot, and may reuse an old place at once. A reader that
//! overlaps a write repeats its burst (`SeqLock`), and eventually waits for the writer.

#![expect(unsafe_code, reason = "calls loops that are compiled for a processor")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::kernel::{Compare, Scalar};
use super::layout::{BLOCK, Columns, LINE_SLOTS, Slot, decode_run, home, next_line, rule_words, tag};
use super::mask::Mask;
use super::rule::{Flow, PRIORITY_AT, Rule, value_of};
use super::update::{Change, Image, Update};
use super::{Settings, table_prf};
use crate::base::atomic_words::AtomicWords;
use crate::base::part::PartId;
use crate::base::prefetch::{BURST, prefetch};
#[cfg(target_arch = "x86_64")]
use crate::base::processor::Vectors;
use crate::base::processor::{Kernel, Reads, prefetch_pays};
use crate::hash::{Digest, Hasher};
use crate::publish::rcu::{RcuCell, RcuReader};
use crate::publish::seq_lock::SeqLock;
use crate::traits::{Applied, ApplyError, BatchReader, Query};

/// Slots and rules.
struct Memory {
    slots: AtomicWords,
    words: AtomicWords,
}

/// A table in the form that lookups need.
#[derive(Clone, Copy)]
struct Probe<const W: usize> {
    bits: Flow<W>,
    /// The highest priority of its rules.
    highest: u32,
    id: u16,
    mask: Mask,
}

impl<const W: usize> Probe<W> {
    fn new(id: u16, mask: Mask, highest: u32) -> Self {
        Self { bits: mask.flow(), highest, id, mask }
    }
}

/// What readers see at one moment.
struct Version<const W: usize> {
    memory: Arc<Memory>,
    /// In the order in which they are tried.
    probes: Vec<Probe<W>>,
    hasher: Hasher,
    /// Whether slots and runs are fetched before they are read.
    prefetches: bool,
}

impl<const W: usize> Version<W> {
    fn new(memory: Arc<Memory>, probes: impl Iterator<Item = Probe<W>>, hasher: &Hasher) -> Self {
        let mut probes: Vec<_> = probes.collect();
        probes.sort_unstable_by_key(|probe| std::cmp::Reverse((probe.highest, probe.mask)));
        let bytes = (memory.slots.len() + memory.words.len()) * 8;
        Self { memory, probes, hasher: hasher.clone(), prefetches: prefetch_pays(Reads::Line, bytes) }
    }

    fn size_bytes(&self) -> usize {
        size_of_val(&self.probes[..])
    }

    /// Finds the values of up to a burst of flows. Returns the numbers of slots searched and of rules compared.
    #[inline]
    fn search(&self, kernel: Kernel, flows: &[Flow<W>], values: &mut [u64]) -> [usize; 2] {
        match kernel.vectors() {
            // SAFETY: the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 | Vectors::Avx512Ifma => unsafe { search_avx512(self, flows, values) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { search_avx2(self, flows, values) },
            _ => self.search_by::<Scalar>(flows, values),
        }
    }

    #[inline(always)]
    fn search_by<C: Compare>(&self, flows: &[Flow<W>], values: &mut [u64]) -> [usize; 2] {
        let (slots, words): (&[AtomicU64], &[AtomicU64]) = (&self.memory.slots, &self.memory.words);
        let n_lines = slots.len() / LINE_SLOTS;
        let mut open = Open::new(flows);
        let (mut digests, mut lines) = ([Digest(0); BURST], [0usize; BURST]);
        let (mut found, mut counts) = ([(0u32, 0u32); BURST], [0; 2]);
        for probe in &self.probes {
            open.close(probe.highest, values);
            let n_open = open.n;
            if n_open == 0 {
                break;
            }
            open.flows.digests(&self.hasher, probe.id, &probe.bits, n_open, &mut digests);
            for (line, &digest) in lines.iter_mut().zip(&digests[..n_open]) {
                *line = home(digest, n_lines);
            }
            if self.prefetches {
                // The first miss of a probe. Those of a burst are in flight together.
                lines[..n_open].iter().for_each(|&line| prefetch(slots.as_ptr().wrapping_add(line).cast()));
            }
            let mut n_found = 0;
            for (at, (&digest, &line)) in digests[..n_open].iter().zip(&lines).enumerate() {
                let (is_found, slot) = Self::slot::<C>(slots, line, tag(digest));
                found[n_found % BURST] = (at as u32, slot as u32);
                n_found += usize::from(is_found);
            }
            let found = &found[..n_found];
            let run = |slot: u32| slots.get(slot as usize).map_or(Slot(0), |slot| Slot(slot.load(Relaxed)));
            if self.prefetches {
                // The second miss: the first line of a run; the processor fetches the later ones on its own.
                let block = |run: Slot| words.as_ptr().wrapping_add(run.first() * rule_words::<W>());
                found.iter().for_each(|&(_, slot)| prefetch(block(run(slot)).cast()));
            }
            for &(at, slot) in found {
                let (at, run) = (at as usize % BURST, run(slot));
                let n_compared;
                (open.best[at], n_compared) = Self::best_match::<C>(words, run, &open.flows.flow(at), open.best[at]);
                counts[1] += n_compared;
            }
            counts[0] += n_open;
        }
        open.close_all(values);
        counts
    }

    /// Whether a slot from a line on has a tag, and its number.
    #[inline(always)]
    fn slot<C: Compare>(slots: &[AtomicU64], mut line: usize, tag: u64) -> (bool, usize) {
        // Mostly once: lines are half full.
        for _ in 0..slots.len() / LINE_SLOTS {
            // Digests are scaled to the lines, so there is one.
            let Some(of_line) = slots[line..].first_chunk::<LINE_SLOTS>() else { break };
            // SAFETY: a line; the caller has found that the processor has the instructions.
            let at = unsafe { C::find(of_line.as_ptr(), tag) };
            // Slots of a line are used in their order, so the search ends where the last one is empty. One condition of
            // both words: whether there is a slot cannot be predicted.
            let last = of_line[LINE_SLOTS - 1].load(Relaxed);
            if last & ((at / LINE_SLOTS) as u64).wrapping_neg() == 0 {
                return (at < LINE_SLOTS, line + at % LINE_SLOTS);
            }
            line = next_line(line, slots.len());
        }
        (false, 0)
    }

    /// The last word of the rule that answers a flow: of a run, or that of another one which is `best` so far; and how many
    /// rules were compared.
    #[inline(always)]
    fn best_match<C: Compare>(words: &[AtomicU64], slot: Slot, flow: &Flow<W>, best: u64) -> (u64, usize) {
        let (mut first, mut left) = (slot.words::<W>().start, slot.n_rules());
        loop {
            let n_rules = left.min(BLOCK);
            // A slot that is written meanwhile may point anywhere; then the burst is repeated.
            let end = first + n_rules * rule_words::<W>();
            let Some(block) = words.get(first..end + BLOCK) else { return (best, 0) };
            // SAFETY: there are this many rules, and eight words behind them.
            let last = unsafe { C::first_match(block.as_ptr(), n_rules, flow) };
            left -= n_rules;
            // The rules of a run are in the order in which they win: those behind this one do not, and the first of the next
            // block says whether any there could.
            let next = words.get(end + (2 * W + 1) * left.min(BLOCK)).map_or(0, |last| last.load(Relaxed));
            if (left == 0) | (last != 0) | (next <= best) {
                return (best.max(last), slot.n_rules() - left);
            }
            first = end;
        }
    }
}

/// The flows of a burst for which a rule of the tables that are left could still win.
struct Open<const W: usize> {
    flows: Columns<W>,
    /// The last word of the best rule of each, 0 for none.
    best: [u64; BURST],
    /// Their places in the burst.
    places: [u8; BURST],
    n: usize,
}

impl<const W: usize> Open<W> {
    #[inline(always)]
    fn new(flows: &[Flow<W>]) -> Self {
        let places = std::array::from_fn(|at| at as u8);
        Self { flows: Columns::of(flows), best: [0; BURST], places, n: flows.len() }
    }

    /// Answers the flows whose best rule has a priority above `highest`, and moves the others together.
    #[inline(always)]
    fn close(&mut self, highest: u32, values: &mut [u64]) {
        let has_won = |best: u64| best >> PRIORITY_AT > highest.into();
        // Mostly none has, and nothing is moved.
        if self.best[..self.n].iter().fold(0, |n, &best| n + u64::from(has_won(best))) == 0 {
            return;
        }
        let mut n_left = 0;
        for at in 0..self.n {
            let (best, place) = (self.best[at], self.places[at]);
            values[usize::from(place)] = value_of(best).into();
            self.flows.shift(at, n_left);
            (self.best[n_left], self.places[n_left]) = (best, place);
            n_left += usize::from(!has_won(best));
        }
        self.n = n_left;
    }

    /// Answers all flows that are left.
    #[inline(always)]
    fn close_all(&self, values: &mut [u64]) {
        for (&best, &place) in self.best[..self.n].iter().zip(&self.places) {
            values[usize::from(place)] = value_of(best).into();
        }
    }
}

/// Query half of rules, and the handle of its one writer.
pub struct RulesQuery<const W: usize> {
    cell: RcuCell<Version<W>>,
    seq_lock: Arc<SeqLock>,
    hasher: Hasher,
    settings: Settings,
    version: u64,
    digest: u64,
}

impl<const W: usize> RulesQuery<W> {
    /// The rules of an image.
    /// # Errors
    /// [`ApplyError`].
    pub fn from_image(settings: &Settings, image: &Image) -> Result<Self, ApplyError> {
        let hasher = Hasher::new(settings.family, &settings.key);
        let version = Self::version_of(settings, &hasher, image)?;
        Ok(Self {
            cell: RcuCell::new(version),
            seq_lock: Arc::default(),
            hasher,
            settings: settings.clone(),
            version: image.version,
            digest: image.digest,
        })
    }

    fn version_of(settings: &Settings, hasher: &Hasher, image: &Image) -> Result<Version<W>, ApplyError> {
        image.check::<W>().map_err(|reason| ApplyError::Malformed { reason })?;
        let seed = settings.seed();
        let slots = image.slots.iter().enumerate().fold(0, |digest, (index, &slot)| {
            digest
                ^ Slot(slot).prf(
                    seed,
                    index,
                    image.words.get(Slot(slot).words::<W>()).unwrap_or_default().iter().copied(),
                )
        });
        let tables = image.tables.iter();
        let got = tables.fold(slots, |digest, &(id, mask, highest)| digest ^ table_prf(seed, id, mask, highest));
        ApplyError::check_digest(PartId::WHOLE, got, image.digest)?;
        let words = AtomicWords::zeroed(image.capacity as usize * rule_words::<W>() + BLOCK)?;
        for (to, &from) in words.iter().zip(&image.words) {
            to.store(from, Relaxed);
        }
        let memory = Memory { slots: AtomicWords::filled(&image.slots)?, words };
        let probes = image.tables.iter().map(|&(id, mask, highest)| Probe::new(id, mask, highest));
        Ok(Version::new(Arc::new(memory), probes, hasher))
    }

    /// The number of rules that can answer, each counted once: not those that others hide.
    pub fn n_rules(&self) -> usize {
        let memory = &self.cell.get().memory;
        let words: Vec<u64> = memory.words.iter().map(|word| word.load(Relaxed)).collect();
        let slots = memory.slots.iter().map(|slot| Slot(slot.load(Relaxed)));
        let rules: HashSet<Rule> = slots.flat_map(|slot| decode_run::<W>(&words[slot.words::<W>()])).collect();
        rules.len()
    }

    /// Tables that have rules.
    pub fn n_tables(&self) -> usize {
        self.cell.get().probes.len()
    }

    /// The version and the digest.
    pub fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    /// As [`Query::lookup_batch`]; returns the numbers of slots searched and of rules compared.
    /// # Panics
    /// When `values` is shorter than `flows`.
    pub fn lookup_counted(&self, flows: &[Flow<W>], values: &mut [u64]) -> [usize; 2] {
        self.lookup_with(Kernel::get(), flows, values)
    }

    /// As [`lookup_counted`](Self::lookup_counted), by the loops of a kernel.
    /// # Panics
    /// When `values` is shorter than `flows`.
    pub fn lookup_with(&self, kernel: Kernel, flows: &[Flow<W>], values: &mut [u64]) -> [usize; 2] {
        let values = &mut values[..flows.len()];
        let bursts = flows.chunks(BURST).zip(values.chunks_mut(BURST));
        bursts.fold([0; 2], |[slots, rules], (flows, values)| {
            let [more_slots, more_rules] = self.cell.get().search(kernel, flows, values);
            [slots + more_slots, rules + more_rules]
        })
    }

    /// A reader for another thread.
    pub fn reader(&self) -> Reader<W> {
        Reader { version: self.cell.reader(), seq_lock: Arc::clone(&self.seq_lock) }
    }

    fn change(&mut self, change: &Change) -> Result<(), ApplyError> {
        let malformed = |reason| ApplyError::Malformed { reason };
        let (version, seed) = (self.cell.get(), self.settings.seed());
        let Memory { slots, words } = &*version.memory;
        let mut got = self.digest;
        if !change.slots.is_sorted_by(|a, b| a.index < b.index) {
            return Err(malformed("slots are out of order"));
        }
        for write in &change.slots {
            let index = write.index as usize;
            let old = Slot(slots.get(index).ok_or(malformed("there are fewer slots"))?.load(Relaxed));
            let (new, room) = (Slot(write.slot), words.get(Slot(write.slot).words::<W>()));
            if room.is_none_or(|room| room.len() != write.run.len()) {
                return Err(malformed("there is no room for a run"));
            }
            let before = words.get(old.words::<W>()).unwrap_or_default().iter().map(|word| word.load(Relaxed));
            got ^= old.prf(seed, index, before) ^ new.prf(seed, index, write.run.iter().copied());
        }
        let mut probes = None;
        for &(id, mask, highest) in &change.tables {
            let probes: &mut Vec<Probe<W>> = probes.get_or_insert_with(|| version.probes.clone());
            if let Some(at) = probes.iter().position(|probe| probe.id == id) {
                let old = probes.swap_remove(at);
                got ^= table_prf(seed, id, old.mask, old.highest);
            }
            if let Some(highest) = highest {
                probes.push(Probe::new(id, mask, highest));
                got ^= table_prf(seed, id, mask, highest);
            }
        }
        ApplyError::check_digest(PartId::WHOLE, got, change.digest)?;
        let next = probes.map(|probes| Version::new(Arc::clone(&version.memory), probes.into_iter(), &self.hasher));
        if next.is_some() {
            self.cell.may_replace()?;
        }
        let memory = Arc::clone(&self.cell.get().memory);
        let seq_lock = Arc::clone(&self.seq_lock);
        seq_lock.write(|| {
            for write in &change.slots {
                let places = &memory.words[Slot(write.slot).words::<W>()];
                places.iter().zip(&write.run).for_each(|(to, &from)| to.store(from, Relaxed));
                memory.slots[write.index as usize].store(write.slot, Relaxed);
            }
            if let Some(next) = next {
                let bytes = self.cell.get().size_bytes();
                self.cell.replace_now(next, bytes);
            }
        });
        (self.version, self.digest) = (change.to, change.digest);
        Ok(())
    }
}

impl<const W: usize> Query for RulesQuery<W> {
    type Key = Flow<W>;
    type Update = Update;

    fn lookup(&self, flow: Flow<W>) -> u64 {
        let mut value = [0];
        self.lookup_counted(&[flow], &mut value);
        value[0]
    }

    fn lookup_batch(&self, flows: &[Flow<W>], values: &mut [u64]) {
        self.lookup_counted(flows, values);
    }

    fn apply(&mut self, update: &Update) -> Result<Applied, ApplyError> {
        let current = self.version;
        match update {
            Update::Change(change) if change.to <= current => return Ok(Applied::AlreadyThere),
            Update::Whole(image) if image.version <= current => return Ok(Applied::AlreadyThere),
            Update::Change(change) => {
                ApplyError::check_version(PartId::WHOLE, current, change.from)?;
                self.change(change)?;
            }
            Update::Whole(image) => {
                self.cell.may_replace()?;
                let next = Self::version_of(&self.settings, &self.hasher, image)?;
                let memory = &self.cell.get().memory;
                let bytes = (memory.slots.len() + memory.words.len()) * 8;
                let seq_lock = Arc::clone(&self.seq_lock);
                seq_lock.write(|| self.cell.replace_now(next, bytes));
                (self.version, self.digest) = (image.version, image.digest);
            }
        }
        Ok(Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        let version = self.cell.get();
        let memory = &version.memory;
        ((memory.slots.len() + memory.words.len()) * 64 + version.size_bytes() * 8) as u64
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<const W: usize> {
    version: RcuReader<Version<W>>,
    seq_lock: Arc<SeqLock>,
}

impl<const W: usize> BatchReader<[Flow<W>]> for Reader<W> {
    fn lookup_batch(&mut self, flows: &[Flow<W>], values: &mut [u64]) {
        let values = &mut values[..flows.len()];
        let Self { version, seq_lock } = self;
        for (flows, values) in flows.chunks(BURST).zip(values.chunks_mut(BURST)) {
            seq_lock.read(|| {
                let (version, _pin) = version.pin();
                version.search(Kernel::get(), flows, values);
            });
        }
    }

    fn offline(&mut self) {
        self.version.offline();
    }
}

#[cfg(target_arch = "x86_64")]
use x86::*;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::kernel::{Avx2, Avx512};
    use super::{Flow, Version};

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
    pub(super) fn search_avx512<const W: usize>(
        version: &Version<W>,
        flows: &[Flow<W>],
        values: &mut [u64],
    ) -> [usize; 2] {
        version.search_by::<Avx512>(flows, values)
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn search_avx2<const W: usize>(
        version: &Version<W>,
        flows: &[Flow<W>],
        values: &mut [u64],
    ) -> [usize; 2] {
        version.search_by::<Avx2>(flows, values)
    }
}

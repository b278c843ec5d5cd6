//! Tuple Space Search, query half: the hash table, the order in which tuples are tried, and readers of both.
//!
//! A lookup reads several places, so a reader that overlaps an update could see one rule gone and its successor not yet
//! there. A counter of writes (`SeqLock`) detects that; the reader repeats the burst, and eventually waits for the
//! writer. A hash table of a new size is published outside of that lock: meanwhile the tuples of both tables are tried.

use std::sync::Arc;

use super::tuple::Tuple;
use super::update::{Change, Image, Update};
use super::{Settings, tuple_prf};
use crate::base::bytes::DecodeError;
use crate::base::cells::value_mask;
use crate::base::part::PartId;
use crate::base::prefetch::BURST;
use crate::cuckoo::exact::{self, CuckooQuery};
use crate::publish::rcu::{RcuCell, RcuReader};
use crate::publish::seq_lock::SeqLock;
use crate::traits::{Applied, ApplyError, BatchReader, Query, Undivided};

/// A tuple in the form that lookups need.
#[derive(Clone, Copy)]
struct Probe {
    mask: [u64; 2],
    code_word: u64,
    /// The highest priority of its rules.
    highest: u32,
    rank: u32,
    tuple: Tuple,
}

impl Probe {
    fn new(tuple: Tuple, highest: u32) -> Self {
        Self { mask: tuple.mask(), code_word: tuple.code_word(), highest, rank: tuple.rank(), tuple }
    }

    #[inline(always)]
    fn name(&self, key: [u64; 2]) -> [u64; 2] {
        [key[0] & self.mask[0], key[1] & self.mask[1] | self.code_word]
    }
}

/// The tuples that have rules, in the order in which they are tried.
#[derive(Clone)]
struct Directory {
    probes: Vec<Probe>,
    digest: u64,
}

impl Directory {
    fn new(tuples: impl Iterator<Item = (Tuple, u32)>, seed: u64) -> Self {
        let mut probes: Vec<_> = tuples.map(|(tuple, highest)| Probe::new(tuple, highest)).collect();
        probes.sort_unstable_by_key(|probe| std::cmp::Reverse((probe.highest, probe.rank)));
        let digest = probes.iter().fold(0, |digest, probe| digest ^ tuple_prf(seed, probe.tuple, probe.highest));
        Self { probes, digest }
    }

    fn tuples(&self) -> impl Iterator<Item = (Tuple, u32)> + '_ {
        self.probes.iter().map(|probe| (probe.tuple, probe.highest))
    }

    /// The directory with the tuples of `change` applied.
    fn after(&self, change: &Change, seed: u64) -> Self {
        let changed = |tuple: Tuple| change.tuples.iter().any(|&(other, _)| other == tuple);
        let kept = self.tuples().filter(|&(tuple, _)| !changed(tuple));
        Self::new(kept.chain(change.tuples.iter().filter_map(|&(tuple, highest)| Some((tuple, highest?)))), seed)
    }

    /// All tuples of both, each with the higher of its priorities: right for the rules of both.
    fn or(&self, other: &Self) -> Self {
        let mut tuples: Vec<_> = self.tuples().chain(other.tuples()).collect();
        tuples.sort_unstable_by_key(|&(tuple, highest)| (tuple.code(), std::cmp::Reverse(highest)));
        tuples.dedup_by_key(|&mut (tuple, _)| tuple);
        Self::new(tuples.into_iter(), 0)
    }

    fn size_bytes(&self) -> usize {
        size_of_val(&self.probes[..])
    }

    /// Finds the values of up to a burst of flows; `look_up` is the hash table. Returns the number of table lookups.
    #[inline]
    fn search(
        &self,
        keys: &[[u64; 2]],
        values: &mut [u64],
        value_bits: u8,
        priority_bits: u8,
        mut look_up: impl FnMut(&[[u64; 2]], &mut [u64]),
    ) -> usize {
        // Per flow: the stored value of the best rule so far, and the rank of its tuple.
        let (mut best, mut ranks) = ([0u64; BURST], [0u32; BURST]);
        let mut open: [u8; BURST] = std::array::from_fn(|index| index as u8);
        let (mut n_open, mut n_asked) = (keys.len(), 0);
        for probe in &self.probes {
            // The flows for which a rule of this or a later tuple could still win.
            let at_most = 1u64 << priority_bits | u64::from(probe.highest);
            let mut n_left = 0;
            for at in 0..n_open {
                let index = open[at];
                open[n_left] = index;
                n_left += usize::from(best[usize::from(index)] >> value_bits <= at_most);
            }
            n_open = n_left;
            if n_open == 0 {
                break;
            }
            let (mut names, mut found) = ([[0; 2]; BURST], [0; BURST]);
            for (name, &index) in names.iter_mut().zip(&open[..n_open]) {
                *name = probe.name(keys[usize::from(index)]);
            }
            look_up(&names[..n_open], &mut found[..n_open]);
            n_asked += n_open;
            for (&found, &index) in found.iter().zip(&open[..n_open]) {
                let (best, rank) = (&mut best[usize::from(index)], &mut ranks[usize::from(index)]);
                if (found >> value_bits, probe.rank) > (*best >> value_bits, *rank) && found != 0 {
                    (*best, *rank) = (found, probe.rank);
                }
            }
        }
        for (value, best) in values.iter_mut().zip(best) {
            *value = best & value_mask(value_bits);
        }
        n_asked
    }
}

/// Query half of a tuple space, and the handle of its one writer.
pub struct TupleSpaceQuery {
    table: CuckooQuery<2>,
    directory: RcuCell<Directory>,
    seq_lock: Arc<SeqLock>,
    settings: Settings,
    seed: u64,
    version: u64,
}

impl TupleSpaceQuery {
    /// Tuples that have rules.
    pub fn n_tuples(&self) -> usize {
        self.directory.get().probes.len()
    }

    /// As [`Query::lookup_batch`]; returns the number of table lookups, each of which reads two buckets.
    /// # Panics
    /// When `values` is shorter than `keys`.
    pub fn lookup_counted(&self, keys: &[[u64; 2]], values: &mut [u64]) -> usize {
        let values = &mut values[..keys.len()];
        let Settings { value_bits, priority_bits, .. } = self.settings;
        let directory = self.directory.get();
        let bursts = keys.chunks(BURST).zip(values.chunks_mut(BURST));
        let ask = |names: &[[u64; 2]], found: &mut [u64]| self.table.lookup_batch(names, found);
        bursts.map(|(keys, values)| directory.search(keys, values, value_bits, priority_bits, ask)).sum()
    }

    /// Publishes tuples and, atomically with them, what `write` does to the hash table.
    fn publish(
        &mut self,
        directory: Option<Directory>,
        write: impl FnOnce(&mut CuckooQuery<2>) -> Result<(), ApplyError>,
    ) -> Result<(), ApplyError> {
        let seq_lock = Arc::clone(&self.seq_lock);
        seq_lock.write(|| {
            let written = write(&mut self.table);
            if let (Ok(()), Some(directory)) = (&written, directory) {
                let bytes = self.directory.get().size_bytes();
                self.directory.replace_now(directory, bytes);
            }
            written
        })
    }

    /// Applies a whole hash table, and then its tuples.
    fn replace_table(
        &mut self,
        directory: Directory,
        write: impl FnOnce(&mut CuckooQuery<2>) -> Result<(), ApplyError>,
    ) -> Result<(), ApplyError> {
        let before = self.directory.get().clone();
        self.publish(Some(before.or(&directory)), |_| Ok(()))?;
        let written = write(&mut self.table);
        let after = if written.is_ok() { directory } else { before };
        self.publish(Some(after), |_| Ok(()))?;
        written
    }

    fn change(&mut self, change: &Change) -> Result<(), ApplyError> {
        let directory = (!change.tuples.is_empty()).then(|| self.directory.get().after(change, self.seed));
        let tuples_digest = directory.as_ref().unwrap_or(self.directory.get()).digest;
        let table_digest = match &change.table {
            Some(exact::Update::Slots(slots)) => slots.digest,
            Some(exact::Update::Table(image)) => image.digest,
            None => self.table.held().1,
        };
        let (got, expected) = (tuples_digest ^ table_digest, change.digest);
        ApplyError::check_digest(PartId::WHOLE, got, expected)?;
        self.directory.may_replace()?;
        match &change.table {
            Some(table @ exact::Update::Table(_)) => {
                let directory = directory.unwrap_or_else(|| self.directory.get().clone());
                self.replace_table(directory, |query| query.apply(table).map(drop))
            }
            Some(table) => self.publish(directory, |query| query.apply(table).map(drop)),
            None => self.publish(directory, |_| Ok(())),
        }
    }
}

fn check_digest(settings: &Settings, image: &Image) -> Result<(), ApplyError> {
    let (got, expected) = (image.computed_digest(settings), image.digest);
    ApplyError::check_digest(PartId::WHOLE, got, expected).map(drop)
}

impl Query for TupleSpaceQuery {
    type Key = [u64; 2];
    type Update = Update;

    fn lookup(&self, key: [u64; 2]) -> u64 {
        let mut value = [0];
        self.lookup_counted(&[key], &mut value);
        value[0]
    }

    fn lookup_batch(&self, keys: &[[u64; 2]], values: &mut [u64]) {
        self.lookup_counted(keys, values);
    }

    fn apply(&mut self, update: &Update) -> Result<Applied, ApplyError> {
        let current = self.version;
        match update {
            Update::Change(change) if change.to <= current => return Ok(Applied::AlreadyThere),
            Update::Whole(image) if image.version <= current => return Ok(Applied::AlreadyThere),
            Update::Change(change) => {
                ApplyError::check_version(PartId::WHOLE, current, change.from)?;
                self.change(change)?;
                self.version = change.to;
            }
            Update::Whole(image) => self.overwrite(image)?,
        }
        Ok(Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        self.table.size_bits() + self.directory.get().size_bytes() as u64 * 8
    }
}

impl Undivided for TupleSpaceQuery {
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
        Update::decode(settings, bytes)
    }

    fn update_of(image: Image) -> Update {
        Update::Whole(image)
    }

    fn image_of(update: &Update) -> Option<&Image> {
        if let Update::Whole(image) = update { Some(image) } else { None }
    }

    fn from_image(settings: &Settings, image: &Image) -> Result<Self, ApplyError> {
        check_digest(settings, image)?;
        let directory = Directory::new(image.tuples.iter().copied(), settings.seed());
        Ok(Self {
            table: CuckooQuery::from_image(&settings.table, &image.table)?,
            directory: RcuCell::new(directory),
            seq_lock: Arc::default(),
            settings: settings.clone(),
            seed: settings.seed(),
            version: image.version,
        })
    }

    fn overwrite(&mut self, image: &Image) -> Result<(), ApplyError> {
        check_digest(&self.settings, image)?;
        let directory = Directory::new(image.tuples.iter().copied(), self.seed);
        self.directory.may_replace()?;
        self.replace_table(directory, |query| query.overwrite(&image.table))?;
        self.version = image.version;
        Ok(())
    }

    fn image(&self) -> Image {
        let mut tuples: Vec<_> = self.directory.get().tuples().collect();
        tuples.sort_unstable_by_key(|(tuple, _)| tuple.code());
        let (version, digest) = self.held();
        Image { version, digest, tuples, table: self.table.image() }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.table.held().1 ^ self.directory.get().digest)
    }

    fn reader(&self) -> Reader {
        let Settings { value_bits, priority_bits, .. } = self.settings;
        let (table, directory) = (self.table.reader(), self.directory.reader());
        Reader { table, directory, seq_lock: Arc::clone(&self.seq_lock), value_bits, priority_bits }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader {
    table: exact::Reader<2>,
    directory: RcuReader<Directory>,
    seq_lock: Arc<SeqLock>,
    value_bits: u8,
    priority_bits: u8,
}

impl BatchReader<[[u64; 2]]> for Reader {
    fn lookup_batch(&mut self, keys: &[[u64; 2]], values: &mut [u64]) {
        let values = &mut values[..keys.len()];
        let Self { table, directory, seq_lock, value_bits, priority_bits } = self;
        let mut look_up = |keys: &[[u64; 2]], values: &mut [u64]| {
            // The table first: the tuples tried belong to it, or to it and a later one, unless the counter detects a
            // write.
            let table = table.pin();
            let (directory, _pin) = directory.pin();
            let ask = |names: &[[u64; 2]], found: &mut [u64]| table.lookup_batch(names, found);
            directory.search(keys, values, *value_bits, *priority_bits, ask);
        };
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            seq_lock.read(|| look_up(keys, values));
        }
    }

    fn offline(&mut self) {
        self.table.offline();
        self.directory.offline();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Family, SecretKey};
    use crate::traits::Control;
    use crate::tuple_space::{Pattern, Rule, TupleSpace};

    /// The schedule that the counter is for: a rule is replaced by one of another tuple while a reader is between the
    /// two. The search finds neither, and the counter detects it.
    #[test]
    fn a_burst_that_falls_between_two_rules_is_noticed() {
        let mut space = TupleSpace::new(Settings::new(8, 8, 100, Family::MulAdd, &SecretKey::from_seed(1)));
        let key = [7, 6];
        let rule = |tuple, value: u64| Rule { pattern: Pattern::new(tuple, key), priority: value as u32, value };
        let mut updates = Vec::new();
        // Both tuples have rules throughout.
        for (tuple, priority) in [(Tuple::ANY, 3), (Tuple::EXACT, 2)] {
            let pattern = Pattern::new(tuple, [u64::MAX, 1 << 56 | 9]);
            space.insert_rule(&Rule { pattern, priority, value: 99 }, &mut updates).unwrap();
        }
        space.insert_rule(&rule(Tuple::EXACT, 1), &mut updates).unwrap();
        let mut query = space.export();
        let mut reader = query.reader();
        updates.clear();
        space.insert_rule(&rule(Tuple::ANY, 2), &mut updates).unwrap();
        space.remove_rule(&rule(Tuple::EXACT, 1).pattern, &mut updates);

        let seq_lock = Arc::clone(&query.seq_lock);
        let stamp = seq_lock.sequence().read_begin().unwrap();
        let table = reader.table.pin();
        let (directory, _pin) = reader.directory.pin();
        let (mut value, mut n_calls) = ([u64::MAX], 0);
        directory.search(&[key], &mut value, 8, 8, |names, found| {
            if n_calls == 1 {
                updates.iter().for_each(|update| _ = query.apply(update).unwrap());
            }
            n_calls += 1;
            table.lookup_batch(names, found);
        });
        assert_eq!((value, n_calls), ([0], 2), "the schedule has lost its sting");
        assert!(!seq_lock.sequence().read_validate(stamp));
        let mut value = [0];
        reader.lookup_batch(&[key], &mut value);
        assert_eq!(value, [2]);
    }
}

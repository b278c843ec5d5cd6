//! All names of a table, shared by all switches: digests with payloads, found by digest and by the positions that they
//! may have.
//!
//! Cost: 17 bytes per name, 17 bytes for each of 1.14 to 2.3 hash table places per name, and the index.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", IV.A: a table of all keys in
//! the control plane, from which filters can be rebuilt.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::Settings;
use super::index::Index;
use super::plan::{Numbers, numbers};
use super::query::BloomFibQuery;
use super::view::BloomView;
use crate::base::part::{Change, PartId, Payload};
use crate::base::prefetch::prefetch;
use crate::base::undivided::is_bulk;
use crate::cuckoo::rows::{find_header, header, read_count};
use crate::hash::Digest;
use crate::traits::{InsertError, RestoreError, Row, Skeleton};

/// Minimum capacity of the index, in names.
const LEAST_CAPACITY: usize = 1000;

/// A name.
#[derive(Clone, Copy, Debug)]
struct Name<P> {
    digest: Digest,
    payload: P,
}

/// What the latest mutation did to a name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest<P> {
    pub(super) digest: Digest,
    /// Its payload before; `None` if it was not in.
    pub(super) old: Option<P>,
    /// Its payload now; `None` if it is gone.
    pub(super) new: Option<P>,
}

/// Digests are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only digests are hashed, as one word");
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// Names with one payload each, and an index of which depend on a position.
#[derive(Clone)]
pub struct Names<P: Payload = u32> {
    settings: Settings,
    /// Names by their numbers.
    list: Vec<Name<P>>,
    /// Whether the number is in use.
    is_in: Vec<bool>,
    free: Vec<u32>,
    ids: HashMap<u64, u32, BuildHasherDefault<PassThrough>>,
    index: Index,
    version: u64,
    latest: Latest<P>,
}

impl<P: Payload> Names<P> {
    fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            list: Vec::new(),
            is_in: Vec::new(),
            free: Vec::new(),
            ids: HashMap::default(),
            index: Index::new(0, settings.policy.max_hashes().into()),
            version: 0,
            latest: Latest::default(),
        }
    }

    /// A table of `entries`, whose names are distinct.
    fn of(settings: &Settings, entries: &[(Digest, P)]) -> Result<Self, InsertError> {
        let mut names = Self::new(settings);
        names.reserve(entries.len());
        for &(digest, payload) in entries {
            if names.put(digest, payload)?.is_some() {
                return Err(InsertError::DuplicateDigest { digest: digest.0 });
            }
        }
        Ok(names)
    }

    /// The names that are in, with their payloads, in memory order.
    pub fn iter(&self) -> impl Iterator<Item = (Digest, P)> + '_ {
        self.numbered().map(|(_, name)| (name.digest, name.payload))
    }

    fn numbered(&self) -> impl Iterator<Item = (u32, &Name<P>)> {
        (0..).zip(&self.list).zip(&self.is_in).filter_map(|(name, is_in)| is_in.then_some(name))
    }

    /// A name that [`Names::candidates`] found, with its payload.
    pub(super) fn at(&self, id: u32) -> (Digest, P) {
        let Name { digest, payload } = self.list[id as usize];
        (digest, payload)
    }

    /// The number of mutations so far.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// What the latest mutation did, if it concerned one name.
    pub(super) fn latest(&self) -> Latest<P> {
        self.latest
    }

    /// Collects the names with a number in `first..=last`, some twice, and a few others; starts fetching them.
    pub(super) fn candidates(&self, (first, last): (u32, u32), ids: &mut Vec<u32>) {
        ids.clear();
        self.index.candidates(first, last, ids);
        ids.iter().for_each(|&id| prefetch(self.list.as_ptr().wrapping_add(id as usize).cast()));
    }

    /// The numbers that index a name and give its positions: as many as any plan of the policy needs.
    pub(super) fn numbers(&self, digest: Digest) -> Numbers {
        numbers(digest, self.settings.seed, self.n_numbers())
    }

    fn n_numbers(&self) -> usize {
        self.settings.policy.max_hashes().into()
    }

    /// Reserves capacity for `more` names at once.
    fn reserve(&mut self, more: usize) {
        let n_names = (self.len() + more).min(self.settings.max_names);
        self.list.reserve(n_names.saturating_sub(self.list.len()));
        self.ids.reserve(n_names - self.len());
        if n_names > self.index.capacity() {
            self.index_anew(n_names);
        }
    }

    /// Inserts a name, or changes its payload. Returns the payload before.
    fn put(&mut self, digest: Digest, payload: P) -> Result<Option<P>, InsertError> {
        if let Some(&id) = self.ids.get(&digest.0) {
            return Ok(Some(std::mem::replace(&mut self.list[id as usize].payload, payload)));
        }
        let max = self.settings.max_names;
        if self.len() >= max {
            return Err(InsertError::TooManyNames { max });
        }
        let (numbers, n_numbers) = (self.numbers(digest), self.n_numbers());
        self.index.prefetch(&numbers[..n_numbers]);
        let name = Name { digest, payload };
        let id = self.free.pop().unwrap_or(self.list.len() as u32);
        if id as usize == self.list.len() {
            self.list.push(name);
            self.is_in.push(true);
        } else {
            (self.list[id as usize], self.is_in[id as usize]) = (name, true);
        }
        self.ids.insert(digest.0, id);
        self.index.insert(&numbers[..n_numbers], id);
        self.fit_index();
        Ok(None)
    }

    /// Rebuilds the index when there are more names than its capacity, or far fewer.
    fn fit_index(&mut self) {
        let (capacity, wanted) = (self.index.capacity(), self.len().max(LEAST_CAPACITY));
        if self.len() > capacity || capacity > wanted * 4 {
            self.index_anew(wanted * 3 / 2);
        }
    }

    fn index_anew(&mut self, capacity: usize) {
        let n_numbers = self.n_numbers();
        let mut index = Index::new(capacity, n_numbers);
        for (id, name) in self.numbered() {
            index.insert(&self.numbers(name.digest)[..n_numbers], id);
        }
        self.index = index;
    }

    fn changed(&mut self, latest: Latest<P>) -> Change {
        self.version += 1;
        self.latest = latest;
        Change::Part { slot: 0 }
    }

    fn header(&self) -> Row {
        header(self.version.to_le_bytes().to_vec())
    }
}

impl<P: Payload> Skeleton for Names<P> {
    type Key = Digest;
    type Payload = P;
    type Query = BloomFibQuery;
    type View = BloomView;

    fn build(settings: &Settings, entries: &[(Digest, P)], _threads: usize) -> Result<Self, InsertError> {
        Self::of(settings, entries)
    }

    fn restore(settings: &Settings, rows: &[Row], entries: &[(Digest, P)]) -> Result<Self, RestoreError> {
        let mut bytes = find_header(rows)?;
        let version = read_count(&mut bytes)?;
        bytes.end()?;
        Ok(Self { version, ..Self::of(settings, entries)? })
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn check(settings: &Settings, _: Digest, value: u64) -> Result<(), InsertError> {
        let value_bits = settings.value_bits;
        if value > settings.max_value() { Err(InsertError::ValueTooWide { value, value_bits }) } else { Ok(()) }
    }

    fn insert(&mut self, digest: Digest, payload: P) -> Result<Change, InsertError> {
        let (old, new) = (self.put(digest, payload)?, Some(payload));
        Ok(if old == new { Change::None } else { self.changed(Latest { digest, old, new }) })
    }

    fn insert_batch(&mut self, entries: &[(Digest, P)]) -> Result<Change, InsertError> {
        self.reserve(entries.len());
        for &(digest, payload) in entries {
            self.put(digest, payload)?;
        }
        Ok(self.touch())
    }

    fn remove(&mut self, digest: Digest) -> Change {
        let Some(id) = self.ids.remove(&digest.0) else { return Change::None };
        self.is_in[id as usize] = false;
        self.free.push(id);
        self.index.remove(&self.numbers(digest)[..self.n_numbers()], id);
        self.fit_index();
        self.changed(Latest { digest, old: Some(self.list[id as usize].payload), new: None })
    }

    fn touch(&mut self) -> Change {
        self.version += 1;
        Change::whole()
    }

    fn get(&self, digest: Digest) -> Option<P> {
        Some(self.at(*self.ids.get(&digest.0)?).1)
    }

    /// A removed name is an alien, and aliens may match.
    fn must_drop(&self, _: Digest) -> bool {
        false
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn is_bulk(&self, n_changes: usize) -> bool {
        is_bulk(n_changes, self.len())
    }

    fn part_id(&self, _slot: u32) -> PartId {
        PartId::WHOLE
    }

    fn take_rows(&mut self, slots: &[u32], _gone: &[PartId]) -> Vec<Row> {
        slots.iter().map(|_| self.header()).collect()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(std::iter::once(self.header()))
    }

    fn heap_bytes(&self) -> usize {
        let places = (self.ids.capacity() * 8 / 7).next_power_of_two();
        self.list.capacity() * (size_of::<Name<P>>() + 1) + places * 17 + self.index.size_bytes()
    }
}

//! All names of a table: digests with values, found by digest, and by what positions they may have.
//!
//! Cost: 16 bytes a name, 17 bytes for each of 1.14 to 2.3 places a name in the hash table, and the index.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::Settings;
use super::index::Index;
use super::plan::{Numbers, numbers};
use crate::hash::Digest;
use crate::othello::prefetch;

/// Names that the index has room for at least.
const LEAST_ROOM: usize = 1000;

/// A name that is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub(super) digest: Digest,
    pub(super) value: u16,
    /// Whether it stands in the exact table.
    pub(super) excepted: bool,
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

/// Names, by number.
pub(super) struct Names {
    list: Vec<Name>,
    free: Vec<u32>,
    ids: HashMap<u64, u32, BuildHasherDefault<PassThrough>>,
    index: Index,
    /// Names of each value.
    n_of: Vec<u64>,
    /// Names that there is always room for.
    room: usize,
    /// Numbers that a name is indexed by: as many as any plan of the policy needs.
    n_numbers: usize,
    seed: u64,
}

impl Names {
    pub(super) fn new(settings: &Settings, room: usize) -> Self {
        let n_numbers = settings.policy.max_hashes().into();
        Self {
            list: Vec::new(),
            free: Vec::new(),
            ids: HashMap::default(),
            index: Index::new(room, n_numbers),
            n_of: Vec::new(),
            room,
            n_numbers,
            seed: settings.seed,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn find(&self, digest: Digest) -> Option<u32> {
        self.ids.get(&digest.0).copied()
    }

    pub(super) fn at(&self, id: u32) -> &Name {
        &self.list[id as usize]
    }

    pub(super) fn at_mut(&mut self, id: u32) -> &mut Name {
        &mut self.list[id as usize]
    }

    /// The numbers of all names, in the order in which they lie in memory.
    pub(super) fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.ids.values().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Name> + '_ {
        self.ids.values().map(|&id| self.at(id))
    }

    /// Names of a value.
    pub(super) fn n_of(&self, value: u64) -> u64 {
        self.n_of.get(value as usize).copied().unwrap_or(0)
    }

    /// The largest value of any name.
    pub(super) fn max_value(&self) -> usize {
        self.n_of.iter().rposition(|&n| n > 0).unwrap_or(0)
    }

    /// The numbers of a name that positions are made of.
    pub(super) fn numbers(&self, digest: Digest) -> Numbers {
        numbers(digest, self.seed, self.n_numbers)
    }

    /// Makes room for so many names more at once.
    pub(super) fn reserve(&mut self, more: usize) {
        self.list.reserve(more.saturating_sub(self.free.len()));
        self.ids.reserve(more);
        let n_names = self.len() + more;
        if n_names > self.index.room() {
            self.index_anew(n_names);
        }
    }

    /// Enters a name that is not there.
    pub(super) fn enter(&mut self, digest: Digest, value: u64) -> u32 {
        let numbers = self.numbers(digest);
        let numbers = &numbers[..self.n_numbers];
        self.index.prefetch(numbers);
        let name = Name { digest, value: value as u16, excepted: false };
        let id = match self.free.pop() {
            Some(id) => {
                self.list[id as usize] = name;
                id
            }
            None => {
                self.list.push(name);
                self.list.len() as u32 - 1
            }
        };
        self.ids.insert(digest.0, id);
        self.count(value, 1);
        self.index.insert(numbers, id);
        self.fit_index();
        id
    }

    /// Forgets a name. Its number is good until the next one enters.
    pub(super) fn forget(&mut self, id: u32) {
        let Name { digest, value, .. } = *self.at(id);
        let numbers = self.numbers(digest);
        self.index.remove(&numbers[..self.n_numbers], id);
        self.ids.remove(&digest.0);
        self.free.push(id);
        self.count(value.into(), -1);
        self.fit_index();
    }

    /// Gives a name another value, and says which it had.
    pub(super) fn alter(&mut self, id: u32, value: u64) -> u64 {
        let old = std::mem::replace(&mut self.at_mut(id).value, value as u16).into();
        self.count(old, -1);
        self.count(value, 1);
        old
    }

    fn count(&mut self, value: u64, change: i64) {
        if self.n_of.len() <= value as usize {
            self.n_of.resize(value as usize + 1, 0);
        }
        let count = &mut self.n_of[value as usize];
        *count = count.strict_add_signed(change);
    }

    /// Collects the names with a number in `first..=last`, and a few more, some twice; starts fetching them.
    pub(super) fn candidates(&self, (first, last): (u32, u32), names: &mut Vec<u32>) {
        names.clear();
        self.index.candidates(first, last, names);
        names.iter().for_each(|&id| prefetch(self.list.as_ptr().wrapping_add(id as usize).cast()));
    }

    /// Makes the index anew where names are more than it was made for, or far fewer.
    fn fit_index(&mut self) {
        let (n_names, room) = (self.ids.len(), self.index.room());
        let least = self.room.max(LEAST_ROOM);
        if n_names <= room && room <= n_names.max(least) * 4 {
            return;
        }
        self.index_anew(n_names.max(least) * 3 / 2);
    }

    fn index_anew(&mut self, room: usize) {
        let mut index = Index::new(room, self.n_numbers);
        for &id in self.ids.values() {
            index.insert(&self.numbers(self.at(id).digest)[..self.n_numbers], id);
        }
        self.index = index;
    }

    pub(super) fn size_bytes(&self) -> usize {
        let places = (self.ids.capacity() * 8 / 7).next_power_of_two();
        self.list.capacity() * size_of::<Name>() + places * 17 + self.index.size_bytes()
    }
}

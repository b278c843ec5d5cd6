//! Entries that no frame can use, for programs that ask for whole names, especially texts.
//!
//! The entries are in several maps, each with a lock. A reader waits at most for one entry to be put into one map, or for one map
//! to grow, but never for all entries. A name that is among both the old and the new entries is found throughout
//! [`Others::replace`].

use fib::name::Name;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// With 2^7 maps, a map of a table of ten million names grows in about ten milliseconds.
const PART_BITS: u32 = 7;

type Part<V> = HashMap<Name, V>;

/// Entries by name, one writer, any number of readers.
#[derive(Debug)]
pub(crate) struct Others<V> {
    parts: Box<[RwLock<Part<V>>]>,
    hasher: RandomState,
    /// Lets the writer skip the maps while they are empty, as they are in most networks.
    n_names: AtomicUsize,
    /// Bytes of the names that are too long to be in the maps themselves.
    boxed_bytes: AtomicUsize,
}

impl<V: Copy> Others<V> {
    pub(crate) fn new() -> Self {
        let parts = (0..1 << PART_BITS).map(|_| RwLock::default()).collect();
        Self { parts, hasher: RandomState::new(), n_names: AtomicUsize::new(0), boxed_bytes: AtomicUsize::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.n_names.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, name: &Name) -> Option<V> {
        if self.len() == 0 {
            return None;
        }
        read(&self.parts[self.part_of(name)]).get(name).copied()
    }

    pub(crate) fn put(&self, name: Name, value: V) {
        let (part, bytes) = (self.part_of(&name), name.heap_bytes());
        if write(&self.parts[part]).insert(name, value).is_none() {
            self.n_names.fetch_add(1, Ordering::Relaxed);
            self.boxed_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, name: &Name) {
        if self.len() > 0 && write(&self.parts[self.part_of(name)]).remove(name).is_some() {
            self.n_names.fetch_sub(1, Ordering::Relaxed);
            self.boxed_bytes.fetch_sub(name.heap_bytes(), Ordering::Relaxed);
        }
    }

    /// Replaces all entries, one map after another.
    pub(crate) fn replace(&self, entries: Vec<(Name, V)>) {
        if self.len() == 0 && entries.is_empty() {
            return;
        }
        let mut parts: Vec<Part<V>> = self.parts.iter().map(|_| Part::new()).collect();
        let mut boxed_bytes = 0;
        for (name, value) in entries {
            let bytes = name.heap_bytes();
            if parts[self.part_of(&name)].insert(name, value).is_none() {
                boxed_bytes += bytes;
            }
        }
        // Readers must not take the entries for empty while they are replaced.
        self.n_names.fetch_add(parts.iter().map(HashMap::len).sum(), Ordering::Relaxed);
        for (part, new) in self.parts.iter().zip(parts) {
            let old = std::mem::replace(&mut *write(part), new);
            self.n_names.fetch_sub(old.len(), Ordering::Relaxed);
        }
        self.boxed_bytes.store(boxed_bytes, Ordering::Relaxed);
    }

    pub(crate) fn for_each(&self, mut each: impl FnMut(&Name, V)) {
        for part in &self.parts {
            read(part).iter().for_each(|(name, &value)| each(name, value));
        }
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        let maps = self.parts.iter().map(|part| {
            // The standard library's map has a power of two of places, at most 7/8 full, and a byte for each.
            let places = match read(part).capacity() {
                0 => 0,
                capacity => (capacity * 8 / 7).next_power_of_two(),
            };
            places * (size_of::<(Name, V)>() + 1)
        });
        maps.sum::<usize>() + self.boxed_bytes.load(Ordering::Relaxed)
    }

    fn part_of(&self, name: &Name) -> usize {
        (self.hasher.hash_one(name.as_bytes()) >> (u64::BITS - PART_BITS)) as usize
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

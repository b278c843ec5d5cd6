//! What `bench flow` compares: tables of 16-byte keys and 16-byte values, and the floor.

use lookup::flow::{CuckooPlusPlus, FlowTable, Horton, Optimistic, Pessimistic, Policy, Settings, Timed};
use lookup::hash::{Digest, Family, Hasher, SecretKey};

use super::floor::Floor;
use super::rte;

/// A key: what a 5-tuple of IPv4 is padded to.
pub(super) type Key = [u64; 2];
/// A value.
pub(super) type Value = [u64; 2];
/// The largest batch.
pub(super) const MAX_BATCH: usize = 64;

/// Contestants, with a line about each.
pub const CONTESTANTS: [(&str, &str); 9] = [
    ("floor", "the same loop and digests that reads one random line for a miss and two for a hit, and nothing else"),
    (CuckooPlusPlus::NAME, "a Bloom filter in the first bucket's line tells whether to read the second"),
    (Timed::NAME, "the same with timers"),
    (Optimistic::NAME, "the second bucket is fetched when the first had nothing"),
    (Pessimistic::NAME, "both buckets are fetched at once"),
    (Horton::NAME, "a remap array in the first bucket's line tells which of seven buckets is the second"),
    ("hashbrown", "Rust's hash map (SwissTable), the same digests, one key at a time"),
    ("rte_hash", "DPDK, bulk lookup, 16-byte keys; 8 bytes of value only, within the entry (needs DPDK)"),
    ("rte_hash-pointer", "the same with a pointer to the 16-byte value, in memory of its own (needs DPDK)"),
];

/// The value of a key, which its answers are compared with. The second word follows from the first, so that tables with
/// 8 bytes of value can take part.
#[inline(always)]
pub(super) fn value_of(key: &Key) -> Value {
    let first = key[0] ^ (key[1] << 1);
    [first, first.rotate_left(23)]
}

/// One table under measurement.
pub(super) trait Side: Send + Sync {
    /// Inserts keys with their values.
    fn insert(&mut self, keys: &[Key]) -> Result<(), String>;

    /// Removes a key and inserts another; false where that cannot be done.
    fn replace(&mut self, _old: &Key, _new: &Key) -> Result<bool, String> {
        Ok(false)
    }

    /// Sum of both words of all values found, over `passes` passes.
    fn sum(&self, queries: &[Key], batch: usize, passes: u64) -> u64;

    /// Bytes of the table.
    fn bytes(&self) -> u64;

    /// Share of absent keys for which a hint sends a lookup to a second bucket.
    fn hint_rate(&self, _absent: &[Key]) -> Option<f64> {
        None
    }

    /// Whether it answers; only the floor does not.
    fn answers(&self) -> bool {
        true
    }

    /// A remark for the table.
    fn note(&self) -> String {
        String::new()
    }
}

/// Makes an empty table for `capacity` entries.
pub(super) fn new(name: &str, capacity: usize, seed: u64) -> Result<Box<dyn Side>, crate::BenchError> {
    fn ours<P: Policy>(capacity: usize, seed: u64) -> Result<Box<dyn Side>, String> {
        let (family, key) = (Family::default(), SecretKey::from_seed(seed));
        let settings = Settings { capacity, max_capacity: capacity, family, key, now: 0 };
        let mut table = FlowTable::<2, 2, P>::new(&settings).map_err(|error| error.to_string())?;
        table.touch();
        Ok(Box::new(table))
    }
    let made = match name {
        "floor" => Ok(Box::new(Floor::new(capacity, seed)) as Box<dyn Side>),
        "hashbrown" => Ok(Box::new(Map::new(capacity, seed)) as Box<dyn Side>),
        "rte_hash" | "rte_hash-pointer" => return rte::new(name == "rte_hash-pointer", capacity),
        CuckooPlusPlus::NAME => ours::<CuckooPlusPlus>(capacity, seed),
        Timed::NAME => ours::<Timed>(capacity, seed),
        Optimistic::NAME => ours::<Optimistic>(capacity, seed),
        Pessimistic::NAME => ours::<Pessimistic>(capacity, seed),
        _ => ours::<Horton>(capacity, seed),
    };
    made.map_err(|reason| crate::BenchError::Build { contestant: name.into(), n: capacity as u64, reason })
}

/// A lifetime that no bench outlasts.
const LIFETIME: u16 = 1000;

impl<P: Policy> Side for FlowTable<2, 2, P> {
    fn insert(&mut self, keys: &[Key]) -> Result<(), String> {
        let mut digests = [Digest(0); MAX_BATCH];
        for keys in keys.chunks(MAX_BATCH) {
            let digests = &mut digests[..keys.len()];
            self.digests(keys, digests);
            self.prefetch(digests);
            for (key, &digest) in keys.iter().zip(digests.iter()) {
                let done = FlowTable::insert(self, key, digest, &value_of(key), LIFETIME, |_, _| {});
                done.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn replace(&mut self, old: &Key, new: &Key) -> Result<bool, String> {
        let digest = self.digest(old);
        self.remove(old, digest).ok_or("a key is lost")?;
        Side::insert(self, &[*new])?;
        Ok(true)
    }

    fn sum(&self, queries: &[Key], batch: usize, passes: u64) -> u64 {
        let mut digests = [Digest(0); MAX_BATCH];
        let mut sum = 0u64;
        for _ in 0..passes {
            for keys in queries.chunks(batch) {
                let digests = &mut digests[..keys.len()];
                self.digests(keys, digests);
                self.for_each_found(keys, digests, |_, _, [first, second]| {
                    sum = sum.wrapping_add(*first).wrapping_add(*second);
                });
            }
        }
        sum
    }

    fn bytes(&self) -> u64 {
        let memory = self.memory();
        (memory.buckets_bytes + memory.entries_bytes) as u64
    }

    fn hint_rate(&self, absent: &[Key]) -> Option<f64> {
        let n = absent.iter().filter(|key| self.reads_second(self.digest(key))).count();
        Some(n as f64 / absent.len() as f64)
    }

    fn note(&self) -> String {
        let memory = self.memory();
        let all = memory.buckets_bytes + memory.entries_bytes;
        match memory.huge_page_bytes {
            Some(huge) if huge * 10 < all * 9 => format!("{} % on huge pages", huge * 100 / all),
            _ => String::new(),
        }
    }
}

struct Map {
    table: hashbrown::HashTable<(Key, Value)>,
    hasher: Hasher,
}

impl Map {
    fn new(capacity: usize, seed: u64) -> Self {
        let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(seed));
        // 7/8 of the slots are filled at most: the same number of slots as the others have.
        Self { table: hashbrown::HashTable::with_capacity(capacity / 8 * 7), hasher }
    }
}

impl Side for Map {
    fn insert(&mut self, keys: &[Key]) -> Result<(), String> {
        let Self { table, hasher } = self;
        for key in keys {
            let digest = hasher.digest_key(key).0;
            table
                .entry(digest, |(other, _)| other == key, |(other, _)| hasher.digest_key(other).0)
                .insert((*key, value_of(key)));
        }
        Ok(())
    }

    fn sum(&self, queries: &[Key], _batch: usize, passes: u64) -> u64 {
        let mut sum = 0u64;
        for _ in 0..passes {
            for key in queries {
                let digest = self.hasher.digest_key(key).0;
                if let Some((_, [first, second])) = self.table.find(digest, |(other, _)| other == key) {
                    sum = sum.wrapping_add(*first).wrapping_add(*second);
                }
            }
        }
        sum
    }

    fn bytes(&self) -> u64 {
        self.table.allocation_size() as u64
    }
}

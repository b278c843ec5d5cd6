//! The contestants of `bench flow`: tables of 16-byte keys and 16-byte values, or of 4 and 4 bytes, and the floor.

use lookup::base::prefetch::BURST;
use lookup::flow::{
    CuckooPlusPlus, Horton, InFlight, Inline, Layout, Optimistic, Pessimistic, Policy, Published, Settings, Split,
    Table, Timed,
};
use lookup::hash::{Digest, Family, Hasher, SecretKey};

use super::floor::Floor;
use super::phases::{Phases, sum_in_flight};
use super::rte;
use crate::contestants::{Calls, fetch_ahead};

/// A key: a padded IPv4 5-tuple. Of a small key only the first four bytes count.
pub(super) type Key = [u64; 2];
/// A value.
pub(super) type Value = [u64; 2];
/// The largest batch.
pub(super) const MAX_BATCH: usize = 64;

/// Contestants, with a one-line description of each.
pub const CONTESTANTS: [(&str, &str); 12] = [
    ("floor", "the same loop and digests that reads one random line for a miss and two for a hit, and nothing else"),
    (CuckooPlusPlus::NAME, "a Bloom filter in the first bucket's line tells whether to read the second"),
    (Timed::NAME, "the same with timers"),
    (Published::NAME, "cuckoo++ with the published filter: two bits a tag, not counted, so that it forgets too late"),
    (Optimistic::NAME, "the second bucket is fetched when the first had nothing"),
    (Pessimistic::NAME, "both buckets are fetched at once"),
    (Horton::NAME, "a remap array in the first bucket's line tells which of seven buckets is the second"),
    (INLINE, "cuckoo++ with the entries in the lines: one line a hit too (with --small)"),
    (INLINE_TIMED, "the same with timers (with --small)"),
    ("hashbrown", "Rust's hash map (SwissTable), the same digests, one key at a time"),
    ("rte_hash", "DPDK, bulk lookup; 8 bytes of value in its entry of 32 bytes, where 16 would fit (needs DPDK)"),
    ("rte_hash-pointer", "the same with a pointer to the 16-byte value, in memory of its own (needs DPDK)"),
];

const INLINE: &str = "inline";
const INLINE_TIMED: &str = "inline timed";

/// Whether a contestant takes part with keys and values of 4 bytes if `is_small`, otherwise of 16.
pub(super) fn takes_part(name: &str, is_small: bool) -> bool {
    match name {
        INLINE | INLINE_TIMED => is_small,
        "rte_hash-pointer" => !is_small,
        _ => true,
    }
}

/// How a layout represents keys and values.
pub(super) trait Flow: Layout {
    /// The keys of a batch, built in `scratch` if the layout needs another form.
    fn keys<'a>(keys: &'a [Key], scratch: &'a mut [Self::Key; MAX_BATCH]) -> &'a [Self::Key];
    /// Initial scratch space for one batch of keys.
    const SCRATCH: [Self::Key; MAX_BATCH];
    /// The value of a key.
    fn value(key: &Key) -> Self::Value;
    /// What is added to the sum of answers for a value that was found.
    fn sum(value: &Self::Value) -> u64;
}

impl Flow for Split<2, 2> {
    const SCRATCH: [Key; MAX_BATCH] = [[0; 2]; MAX_BATCH];

    #[inline(always)]
    fn keys<'a>(keys: &'a [Key], _scratch: &'a mut [Key; MAX_BATCH]) -> &'a [Key] {
        keys
    }

    #[inline(always)]
    fn value(key: &Key) -> Value {
        // The second word follows from the first, so that tables with 8 bytes of value can take part.
        let first = key[0] ^ (key[1] << 1);
        [first, first.rotate_left(23)]
    }

    #[inline(always)]
    fn sum(value: &Value) -> u64 {
        value[0].wrapping_add(value[1])
    }
}

/// A small key.
#[inline(always)]
pub(super) fn small(key: &Key) -> u32 {
    key[0] as u32
}

/// The value of a small key.
#[inline(always)]
pub(super) fn small_value(key: &Key) -> u32 {
    small(key).wrapping_mul(0x2C1B_3C6D).rotate_left(9)
}

impl Flow for Split<1, 1> {
    const SCRATCH: [[u64; 1]; MAX_BATCH] = [[0]; MAX_BATCH];

    #[inline(always)]
    fn keys<'a>(keys: &'a [Key], scratch: &'a mut [[u64; 1]; MAX_BATCH]) -> &'a [[u64; 1]] {
        scratch.iter_mut().zip(keys).for_each(|(scratch, key)| *scratch = [small(key).into()]);
        &scratch[..keys.len()]
    }

    #[inline(always)]
    fn value(key: &Key) -> [u64; 1] {
        [small_value(key).into()]
    }

    #[inline(always)]
    fn sum(value: &[u64; 1]) -> u64 {
        value[0]
    }
}

impl Flow for Inline<4, 4> {
    const SCRATCH: [[u8; 4]; MAX_BATCH] = [[0; 4]; MAX_BATCH];

    #[inline(always)]
    fn keys<'a>(keys: &'a [Key], scratch: &'a mut [[u8; 4]; MAX_BATCH]) -> &'a [[u8; 4]] {
        scratch.iter_mut().zip(keys).for_each(|(scratch, key)| *scratch = small(key).to_le_bytes());
        &scratch[..keys.len()]
    }

    #[inline(always)]
    fn value(key: &Key) -> [u8; 4] {
        small_value(key).to_le_bytes()
    }

    #[inline(always)]
    fn sum(value: &[u8; 4]) -> u64 {
        u32::from_le_bytes(*value).into()
    }
}

/// What is added to the sum of answers for a key that is found.
pub(super) fn answer(key: &Key, is_small: bool) -> u64 {
    if is_small { small_value(key).into() } else { Wide::sum(&Wide::pair(key).1) }
}

/// One table under measurement.
pub(super) trait Side: Send + Sync {
    /// Inserts keys with their values, in batches if the table has such a call.
    fn insert(&mut self, keys: &[Key]) -> Result<(), String>;

    /// Inserts keys with their values, one by one.
    fn insert_one_by_one(&mut self, keys: &[Key]) -> Result<(), String> {
        self.insert(keys)
    }

    /// Removes a key and inserts another; false where that cannot be done.
    fn replace(&mut self, _old: &Key, _new: &Key) -> Result<bool, String> {
        Ok(false)
    }

    /// Sum of both words of all values found, over `passes` passes. A contestant without phases has one burst in flight.
    fn sum(&self, queries: &[Key], calls: Calls, passes: u64) -> u64;

    /// Bytes of the table.
    fn bytes(&self) -> u64;

    /// Share of absent keys for which a hint sends a lookup to a second bucket.
    fn hint_rate(&self, _absent: &[Key]) -> Option<f64> {
        None
    }

    /// Share of the entries that are in their second bucket.
    fn second_share(&self) -> Option<f64> {
        None
    }

    /// How many buckets have 0, 1, 2 ... entries that are in their second bucket.
    fn moved_counts(&self) -> Option<Vec<u64>> {
        None
    }

    /// Entries that were moved so far to make space for others.
    fn n_moved(&self) -> Option<u64> {
        None
    }

    /// Moves entries to their first bucket if it has a free slot. Returns how many buckets were visited.
    fn rehome(&mut self) -> u64 {
        0
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

/// Creates an empty table for `capacity` entries.
pub(super) fn new(name: &str, capacity: usize, is_small: bool, seed: u64) -> Result<Box<dyn Side>, crate::BenchError> {
    fn ours<L: Flow + 'static, P: Policy>(capacity: usize, seed: u64) -> Result<Box<dyn Side>, String> {
        let (family, key) = (Family::default(), SecretKey::from_seed(seed));
        let settings = Settings { capacity, max_capacity: capacity, family, key, now: 0 };
        let mut table = Table::<L, P>::new(&settings).map_err(|error| error.to_string())?;
        table.touch();
        Ok(Box::new(table))
    }
    fn of_entry<P: Policy>(capacity: usize, is_small: bool, seed: u64) -> Result<Box<dyn Side>, String> {
        if is_small { ours::<Split<1, 1>, P>(capacity, seed) } else { ours::<Split<2, 2>, P>(capacity, seed) }
    }
    let made = match name {
        "floor" => Ok(Box::new(Floor::new(capacity, is_small, seed)) as Box<dyn Side>),
        "hashbrown" if is_small => Ok(Box::new(Map::<Small>::new(capacity, seed)) as Box<dyn Side>),
        "hashbrown" => Ok(Box::new(Map::<Wide>::new(capacity, seed)) as Box<dyn Side>),
        "rte_hash" | "rte_hash-pointer" => return rte::new(name == "rte_hash-pointer", is_small, capacity),
        INLINE => ours::<Inline<4, 4>, CuckooPlusPlus>(capacity, seed),
        INLINE_TIMED => ours::<Inline<4, 4>, Timed>(capacity, seed),
        CuckooPlusPlus::NAME => of_entry::<CuckooPlusPlus>(capacity, is_small, seed),
        Timed::NAME => of_entry::<Timed>(capacity, is_small, seed),
        Published::NAME => of_entry::<Published>(capacity, is_small, seed),
        Optimistic::NAME => of_entry::<Optimistic>(capacity, is_small, seed),
        Pessimistic::NAME => of_entry::<Pessimistic>(capacity, is_small, seed),
        _ => of_entry::<Horton>(capacity, is_small, seed),
    };
    made.map_err(|reason| crate::BenchError::Build { contestant: name.into(), n: capacity as u64, reason })
}

/// Whether a contestant has a call that inserts a batch; the others insert one by one only.
pub(super) fn inserts_batches(name: &str) -> bool {
    !matches!(name, "floor" | "hashbrown" | "rte_hash" | "rte_hash-pointer")
}

/// How many of `capacity` slots a contestant may fill.
pub(super) fn usable_slots(name: &str, capacity: u64) -> u64 {
    if name == "hashbrown" { capacity / 8 * 7 } else { capacity }
}

/// A lifetime longer than any bench.
const LIFETIME: u16 = 1000;

impl<L: Flow, P: Policy> Side for Table<L, P> {
    fn insert(&mut self, keys: &[Key]) -> Result<(), String> {
        let (mut digests, mut scratch) = ([Digest(0); MAX_BATCH], L::SCRATCH);
        let mut values = [<L as Flow>::value(&[0; 2]); MAX_BATCH];
        for burst in keys.chunks(MAX_BATCH) {
            let (keys, digests) = (L::keys(burst, &mut scratch), &mut digests[..burst.len()]);
            self.digests(keys, digests);
            for (value, key) in values.iter_mut().zip(burst) {
                *value = <L as Flow>::value(key);
            }
            let mut failed = None;
            let flows = (keys, &*digests);
            self.insert_batch(
                flows,
                &values[..burst.len()],
                LIFETIME,
                |_, _| {},
                |_, done| failed = done.err().or(failed),
            );
            failed.map_or(Ok(()), |error| Err(error.to_string()))?;
        }
        Ok(())
    }

    fn insert_one_by_one(&mut self, keys: &[Key]) -> Result<(), String> {
        let mut scratch = L::SCRATCH;
        for burst in keys.chunks(MAX_BATCH) {
            for (key, own) in burst.iter().zip(L::keys(burst, &mut scratch)) {
                let done = Table::insert(self, own, self.digest(own), &<L as Flow>::value(key), LIFETIME, |_, _| {});
                done.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn replace(&mut self, old: &Key, new: &Key) -> Result<bool, String> {
        let mut scratch = L::SCRATCH;
        let [old] = L::keys(std::slice::from_ref(old), &mut scratch) else { unreachable!("one key makes one") };
        self.remove(old, self.digest(old)).ok_or("a key is lost")?;
        Side::insert(self, &[*new])?;
        Ok(true)
    }

    fn sum(&self, queries: &[Key], calls: Calls, passes: u64) -> u64 {
        if calls.in_flight > 1 {
            return sum_in_flight(self, queries, calls, passes);
        }
        let (mut digests, mut scratch) = ([Digest(0); MAX_BATCH], L::SCRATCH);
        let mut sum = 0u64;
        for _ in 0..passes {
            for keys in queries.chunks(calls.batch) {
                fetch_ahead(keys);
                let (keys, digests) = (L::keys(keys, &mut scratch), &mut digests[..keys.len()]);
                self.digests(keys, digests);
                self.for_each_found(keys, digests, |_, _, value| sum = sum.wrapping_add(<L as Flow>::sum(value)));
            }
        }
        sum
    }

    fn bytes(&self) -> u64 {
        let memory = self.memory();
        (memory.buckets_bytes + memory.entries_bytes) as u64
    }

    fn hint_rate(&self, absent: &[Key]) -> Option<f64> {
        let mut scratch = L::SCRATCH;
        let reads_second = |keys: &[L::Key]| keys.iter().filter(|key| self.reads_second(self.digest(key))).count();
        let n: usize = absent.chunks(MAX_BATCH).map(|keys| reads_second(L::keys(keys, &mut scratch))).sum();
        Some(n as f64 / absent.len() as f64)
    }

    fn second_share(&self) -> Option<f64> {
        let audit = self.audit().expect("the books are right");
        Some(audit.n_secondary as f64 / audit.n_entries.max(1) as f64)
    }

    fn moved_counts(&self) -> Option<Vec<u64>> {
        Table::moved_counts(self)
    }

    fn n_moved(&self) -> Option<u64> {
        Some(self.counters().moved)
    }

    fn rehome(&mut self) -> u64 {
        let mut n_buckets = 1;
        while Table::rehome(self, 1).n_buckets_left > 0 {
            n_buckets += 1;
        }
        n_buckets
    }

    fn note(&self) -> String {
        let memory = self.memory();
        let all = memory.buckets_bytes + memory.entries_bytes;
        match memory.huge_page_bytes {
            _ if memory.reserved_page_bytes == all => "on reserved huge pages".into(),
            Some(huge) if huge * 10 < all * 9 => format!("{} % on huge pages", huge * 100 / all),
            _ => String::new(),
        }
    }
}

/// A burst of lookups in flight.
pub(super) struct Begun<L: Flow> {
    digests: [Digest; BURST],
    scratch: [L::Key; MAX_BATCH],
    in_flight: InFlight,
}

impl<L: Flow, P: Policy> Phases for Table<L, P> {
    type Begun = Begun<L>;

    fn new_burst(&self) -> Begun<L> {
        Begun { digests: [Digest(0); BURST], scratch: L::SCRATCH, in_flight: InFlight::default() }
    }

    #[inline(always)]
    fn begin(&self, keys: &[Key], begun: &mut Begun<L>) {
        let digests = &mut begun.digests[..keys.len()];
        self.digests(L::keys(keys, &mut begun.scratch), digests);
        self.begin_batch(digests);
    }

    #[inline(always)]
    fn advance(&self, keys: &[Key], begun: &mut Begun<L>) {
        let (keys, digests) = (L::keys(keys, &mut begun.scratch), &begun.digests[..keys.len()]);
        self.advance_batch(keys, digests, &mut begun.in_flight);
    }

    #[inline(always)]
    fn finish(&self, keys: &[Key], begun: &mut Begun<L>) -> u64 {
        let (keys, digests) = (L::keys(keys, &mut begun.scratch), &begun.digests[..keys.len()]);
        let mut sum = 0u64;
        self.finish_batch(keys, digests, &mut begun.in_flight, |_, _, value| {
            sum = sum.wrapping_add(<L as Flow>::sum(value));
        });
        sum
    }
}

/// A key-value pair for hashbrown.
trait Pair: Send + Sync {
    type Key: PartialEq + Copy + Send + Sync;
    type Value: Copy + Send + Sync;

    fn digest(hasher: &Hasher, key: &Self::Key) -> u64;
    fn pair(key: &Key) -> (Self::Key, Self::Value);
    fn sum(value: &Self::Value) -> u64;
}

struct Wide;
struct Small;

impl Pair for Wide {
    type Key = Key;
    type Value = Value;

    #[inline(always)]
    fn digest(hasher: &Hasher, key: &Key) -> u64 {
        hasher.digest_key(key).0
    }

    #[inline(always)]
    fn pair(key: &Key) -> (Key, Value) {
        (*key, <Split<2, 2> as Flow>::value(key))
    }

    #[inline(always)]
    fn sum(value: &Value) -> u64 {
        <Split<2, 2> as Flow>::sum(value)
    }
}

impl Pair for Small {
    type Key = u32;
    type Value = u32;

    #[inline(always)]
    fn digest(hasher: &Hasher, &key: &u32) -> u64 {
        hasher.digest_word(key.into(), 4).0
    }

    #[inline(always)]
    fn pair(key: &Key) -> (u32, u32) {
        (small(key), small_value(key))
    }

    #[inline(always)]
    fn sum(&value: &u32) -> u64 {
        value.into()
    }
}

struct Map<E: Pair> {
    table: hashbrown::HashTable<(E::Key, E::Value)>,
    hasher: Hasher,
}

impl<E: Pair> Map<E> {
    fn new(capacity: usize, seed: u64) -> Self {
        let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(seed));
        // The same number of slots as the other contestants have.
        let usable = usable_slots("hashbrown", capacity as u64) as usize;
        Self { table: hashbrown::HashTable::with_capacity(usable), hasher }
    }
}

impl<E: Pair> Side for Map<E> {
    fn insert(&mut self, keys: &[Key]) -> Result<(), String> {
        let Self { table, hasher } = self;
        for key in keys {
            let (key, value) = E::pair(key);
            table
                .entry(E::digest(hasher, &key), |(other, _)| *other == key, |(other, _)| E::digest(hasher, other))
                .insert((key, value));
        }
        Ok(())
    }

    fn sum(&self, queries: &[Key], calls: Calls, passes: u64) -> u64 {
        let mut sum = 0u64;
        for _ in 0..passes {
            for keys in queries.chunks(calls.batch) {
                fetch_ahead(keys);
                for key in keys {
                    let (key, _) = E::pair(key);
                    let digest = E::digest(&self.hasher, &key);
                    if let Some((_, value)) = self.table.find(digest, |(other, _)| *other == key) {
                        sum = sum.wrapping_add(E::sum(value));
                    }
                }
            }
        }
        sum
    }

    fn bytes(&self) -> u64 {
        self.table.allocation_size() as u64
    }
}

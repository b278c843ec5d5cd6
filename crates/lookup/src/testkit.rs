//! The law, written once: what every pair of control and query structure must hold to.
//!
//! For any sequence of operations, `export()` at the start with all emitted updates applied answers exactly like
//! `export()` at the end, and like a `HashMap` for every live name; a removed name answers drop (0) as long as its
//! tombstone stands. [`law`] runs a random, seeded sequence, biased to what breaks tables: duplicates, re-inserts of
//! removed names, removals of names that are not there, batches with repeats.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;

use crate::hash::mix64;
use crate::traits::{Applied, Control, Query};

/// A control structure that the law can be run over.
pub trait Subject: Control {
    /// Whether `key` was removed and must still answer drop.
    fn must_drop(&self, key: Self::Key) -> bool;

    /// Whether `update` may be one with which tombstones go: until such a one, removed names must drop whatever
    /// [`Subject::must_drop`] says.
    fn may_forget(update: &<Self::Query as Query>::Update) -> bool;
}

impl<S: crate::othello::Sizing> Subject for crate::othello::Othello<S> {
    fn must_drop(&self, key: Self::Key) -> bool {
        self.graph().has_tombstone(key)
    }

    fn may_forget(update: &crate::othello::Update) -> bool {
        matches!(update, crate::othello::Update::Shards(_))
    }
}

impl Subject for crate::line::LineTable {
    /// A removed name is an alien at once.
    fn must_drop(&self, _key: Self::Key) -> bool {
        false
    }

    fn may_forget(_update: &crate::line::Update) -> bool {
        true
    }
}

/// A small seeded generator; the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator; print the seed where a test fails.
    pub fn new(seed: u64) -> Self {
        Self(mix64(seed ^ 0x5DEE_CE66))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// The seed of a random test: `FIBULA_SEED` where set, the clock otherwise; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let seed = std::env::var("FIBULA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64)
    });
    println!("FIBULA_SEED={seed}");
    seed
}

/// What [`law`] runs.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Operations in all.
    pub n_operations: usize,
    /// Names drawn from; few names make many re-inserts.
    pub n_names: u64,
    /// Values are below this (saturating at 64 bits).
    pub n_values: u64,
    /// Operations between two full comparisons.
    pub check_every: usize,
    /// Seed of the sequence.
    pub seed: u64,
}

/// One batch in so many is as large as the scope has names.
const BULK_RARITY: u64 = 5_000;

/// Runs the law over `control`; `key` makes the key of a name's number, one to one.
/// # Panics
/// When the law is broken, with the seed and the operation.
pub fn law<C>(control: &mut C, key: impl Fn(u64) -> C::Key, scope: &Scope)
where
    C: Subject,
    C::Key: Eq + Hash + Debug,
    C::Query: Query<Key = C::Key>,
    <C::Query as Query>::Update: Debug,
{
    let mut rng = Rng::new(scope.seed);
    let mut oracle: HashMap<C::Key, u64> = HashMap::new();
    // One follows from the start, the other joins again and again with a fresh export.
    let (mut follower, mut late) = (control.export(), control.export());
    let mut removed = HashSet::new();
    let mut updates = Vec::new();
    for operation in 0..scope.n_operations {
        let context = || format!("seed {}, operation {operation}", scope.seed);
        updates.clear();
        // In waves, so that tables grow and shrink by much.
        let growing = (operation / (1 + scope.n_names as usize * 2)).is_multiple_of(2);
        let name = key(rng.below(scope.n_names));
        match rng.below(100) {
            0..2 => {
                // Now and then a batch so large that tables solve it in one go.
                let n = if rng.below(BULK_RARITY) == 0 { scope.n_names } else { rng.below(64) };
                let batch: Vec<_> =
                    (0..n).map(|_| (key(rng.below(scope.n_names)), rng.below(scope.n_values))).collect();
                control.insert_batch(&batch, &mut updates).unwrap_or_else(|error| panic!("{}: {error}", context()));
                for (name, _) in &batch {
                    removed.remove(name);
                }
                oracle.extend(batch);
            }
            roll => {
                let insert = if growing { roll < 80 } else { roll < 30 };
                if insert {
                    let value = rng.below(scope.n_values);
                    control.insert(name, value, &mut updates).unwrap_or_else(|error| panic!("{}: {error}", context()));
                    oracle.insert(name, value);
                } else {
                    let was_there = control.remove(name, &mut updates);
                    assert_eq!(was_there, oracle.remove(&name).is_some(), "{}: remove {name:?}", context());
                }
            }
        }
        for update in &updates {
            if C::may_forget(update) {
                removed.clear();
            }
            let applied = late.apply(update).unwrap_or_else(|error| panic!("{}: late: {error}: {update:?}", context()));
            assert_eq!(applied, Applied::Applied, "{}: late: {update:?}", context());
            let applied = follower.apply(update).unwrap_or_else(|error| panic!("{}: {error}: {update:?}", context()));
            assert_eq!(applied, Applied::Applied, "{}: {update:?}", context());
            // A duplicated message is harmless.
            assert_eq!(follower.apply(update), Ok(Applied::AlreadyThere), "{}: {update:?}", context());
        }
        assert_eq!(control.len(), oracle.len(), "{}", context());
        assert_eq!(control.get(name), oracle.get(&name).copied(), "{}", context());
        if oracle.contains_key(&name) {
            removed.remove(&name);
        } else if control.must_drop(name) {
            removed.insert(name);
        }
        if rng.below(scope.check_every as u64 / 4 + 1) == 0 {
            late = control.export();
        }
        match oracle.get(&name) {
            Some(&value) => assert_eq!(follower.lookup(name), value, "{}: {name:?}", context()),
            None if control.must_drop(name) => assert_eq!(follower.lookup(name), 0, "{}: {name:?}", context()),
            None => {}
        }
        if operation % scope.check_every == scope.check_every - 1 || operation + 1 == scope.n_operations {
            compare(control, &follower, &oracle, &key, scope, &context());
            compare(control, &late, &oracle, &key, scope, &context());
            for &name in &removed {
                assert_eq!(follower.lookup(name), 0, "{}: {name:?} was removed", context());
            }
        }
    }
}

/// Compares the follower of all updates, a fresh export and the oracle, on every name and on aliens.
fn compare<C>(
    control: &C,
    follower: &C::Query,
    oracle: &HashMap<C::Key, u64>,
    key: &impl Fn(u64) -> C::Key,
    scope: &Scope,
    context: &str,
) where
    C: Subject,
    C::Key: Eq + Hash + Debug,
    C::Query: Query<Key = C::Key>,
{
    let exported = control.export();
    let keys: Vec<_> = (0..scope.n_names * 2).map(key).collect();
    let (mut followed, mut fresh) = (vec![0; keys.len()], vec![0; keys.len()]);
    follower.lookup_batch(&keys, &mut followed);
    exported.lookup_batch(&keys, &mut fresh);
    for ((&key, &followed), &fresh) in keys.iter().zip(&followed).zip(&fresh) {
        assert_eq!(followed, fresh, "{context}: {key:?} after all updates and after a fresh export");
        assert_eq!(follower.lookup(key), followed, "{context}: {key:?} alone and in a batch");
        match oracle.get(&key) {
            Some(&value) => assert_eq!(followed, value, "{context}: {key:?}"),
            None if control.must_drop(key) => assert_eq!(followed, 0, "{context}: {key:?} was removed"),
            None => {}
        }
    }
}

//! The conformance test, written once: the contract of every pair of control and query structure.
//!
//! For any sequence of operations, an export of the initial state with all later updates applied answers exactly like
//! an export of the final state, and as the [`Oracle`] says. A duplicated update is harmless. One that comes too early
//! or too late is refused or harmless.
//!
//! [`random`] runs a long seeded sequence, biased towards what breaks tables: duplicates, re-inserts of removed names,
//! removals of absent names, batches with repeats. [`exhaustive`] runs every short sequence over few names, and
//! reorders its updates.

use std::fmt::Debug;

use super::Rng;
use super::oracle::{Live, Oracle, ProbeOf, Subject, UpdateOf};
use crate::traits::{Applied, Query};

/// What [`random`] runs.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Operations in all.
    pub n_operations: usize,
    /// The number of names to draw from; few names make many re-inserts.
    pub n_names: u64,
    /// Values are below this (saturating at 64 bits).
    pub n_values: u64,
    /// Operations between two full comparisons.
    pub check_every: usize,
    /// Seed of the sequence.
    pub seed: u64,
}

impl Scope {
    /// One batch in this many is as large as the scope has names: some in every run, not many in a long one.
    fn bulk_rarity(&self) -> u64 {
        (self.n_operations as u64 / 200 + 1).min(5_000)
    }
}

/// Runs a random sequence on `control`, which is empty; `key` makes the key of a number. Returns the live names.
/// # Panics
/// When the structure does not conform, with the seed and the operation.
pub fn random<C: Subject>(
    control: &mut C,
    mut oracle: impl Oracle<C>,
    key: impl Fn(u64) -> C::Key,
    scope: &Scope,
) -> Live<C> {
    let mut rng = Rng::new(scope.seed);
    let mut live = Live::<C>::new();
    // One follower follows from the start; the other is repeatedly replaced by a fresh export.
    let (mut follower, mut late) = (control.export(), control.export());
    let mut updates = Vec::new();
    for operation in 0..scope.n_operations {
        let context = || format!("seed {}, operation {operation}", scope.seed);
        updates.clear();
        // In waves, so that tables grow and shrink a lot.
        let growing = (operation / (1 + scope.n_names as usize * 2)).is_multiple_of(2);
        let name = key(rng.below(scope.n_names));
        let mut changed = vec![name];
        match rng.below(100) {
            0..2 => {
                // Occasionally a batch so large that tables solve it in one go.
                let n = if rng.below(scope.bulk_rarity()) == 0 { scope.n_names } else { rng.below(64) };
                let entry = |_| (key(rng.below(scope.n_names)), rng.below(scope.n_values));
                let batch: Vec<_> = (0..n).map(entry).collect();
                insert_batch(control, &mut live, &batch, &mut updates, &context);
                changed.extend(batch.iter().map(|entry| entry.0));
            }
            roll => {
                let insert = if growing { roll < 80 } else { roll < 30 };
                let value = insert.then(|| rng.below(scope.n_values));
                change(control, &mut live, name, value, &mut updates, &context);
            }
        }
        oracle.note(control, &live, &changed, &updates);
        for update in &updates {
            let carried = oracle.carried(&follower, update);
            let update = carried.as_ref().unwrap_or(update);
            for query in [&mut follower, &mut late] {
                apply(query, update, Applied::Applied, &context);
                // A duplicated message is harmless.
                apply(query, update, Applied::AlreadyThere, &context);
            }
        }
        assert_eq!(control.len(), live.len(), "{}", context());
        assert_eq!(control.get(name), live.get(&name).copied(), "{}", context());
        if rng.below(scope.check_every as u64 / 4 + 1) == 0 {
            late = control.export();
        }
        for probe in oracle.probes(name, &mut rng) {
            if let Some(expected) = oracle.expected(control, &live, probe) {
                assert_eq!(follower.lookup(probe), expected, "{}: {probe:?}", context());
            }
        }
        if operation % scope.check_every == scope.check_every - 1 || operation + 1 == scope.n_operations {
            let probes = probes(&oracle, &key, scope.n_names, &mut rng);
            compare(control, &oracle, &live, &[&follower, &late], &probes, &context);
        }
    }
    live
}

/// One operation of [`exhaustive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// The number of a name, and its new value, or none if it is removed.
    Change(u64, Option<u64>),
    /// All names at once, and the first of them once more with another value.
    Batch,
}

impl Operation {
    /// The number of operations.
    fn n_all(n_names: u64, n_values: u64) -> u64 {
        n_names * (n_values + 1) + 1
    }

    fn of(number: u64, n_names: u64, n_values: u64) -> Self {
        let (name, value) = (number / (n_values + 1), number % (n_values + 1));
        if name == n_names { Self::Batch } else { Self::Change(name, value.checked_sub(1)) }
    }
}

/// Runs every sequence of `depth` operations on `n_names` names, which are inserted with `n_values` values and removed.
/// `new` makes an empty structure of one part, and `key` the key of a number.
///
/// One follower gets every update in order. Another gets each update early, on time, twice, and once more after the
/// next one. At any time it must answer as the first did after the same updates.
/// # Panics
/// When the structure does not conform, with the sequence of operations.
pub fn exhaustive<C: Subject, O: Oracle<C>>(
    new: impl Fn() -> (C, O),
    key: impl Fn(u64) -> C::Key,
    n_names: u64,
    n_values: u64,
    depth: u32,
) {
    let n_all = Operation::n_all(n_names, n_values);
    let mut before: Vec<Operation> = Vec::new();
    for number in 0..n_all.pow(depth) {
        let digits = (0..depth).rev().map(|place| number / n_all.pow(place) % n_all);
        let operations: Vec<_> = digits.map(|digit| Operation::of(digit, n_names, n_values)).collect();
        // The prefix that a sequence shares with the one before was compared there.
        let n_known = operations.iter().zip(&before).take_while(|(now, before)| now == before).count();
        let (mut control, oracle) = new();
        sequence(&mut control, oracle, &operations, n_known, &key, (n_names, n_values));
        before = operations;
    }
}

fn sequence<C: Subject>(
    control: &mut C,
    mut oracle: impl Oracle<C>,
    operations: &[Operation],
    n_known: usize,
    key: &impl Fn(u64) -> C::Key,
    (n_names, n_values): (u64, u64),
) {
    let probes = probes(&oracle, key, n_names, &mut Rng::new(0));
    let mut live = Live::<C>::new();
    let mut follower = control.export();
    let mut disordered = Disordered { query: control.export(), n_taken: 0 };
    // All updates so far, and what the follower answered before the first and after each.
    let (mut sent, mut answers) = (Vec::new(), vec![look_up(&follower, &probes)]);
    for (step, &operation) in operations.iter().enumerate() {
        let context = || format!("{:?}", &operations[..=step]);
        let mut updates = Vec::new();
        let changed = match operation {
            Operation::Change(name, value) => {
                change(control, &mut live, key(name), value, &mut updates, &context);
                vec![key(name)]
            }
            Operation::Batch => {
                let value = |n| (n % n_names + n / n_names) % n_values;
                let batch: Vec<_> = (0..=n_names).map(|n| (key(n % n_names), value(n))).collect();
                insert_batch(control, &mut live, &batch, &mut updates, &context);
                batch.into_iter().map(|entry| entry.0).collect()
            }
        };
        oracle.note(control, &live, &changed, &updates);
        for update in updates {
            apply(&mut follower, &update, Applied::Applied, &context);
            apply(&mut follower, &update, Applied::AlreadyThere, &context);
            sent.push(update);
            answers.push(look_up(&follower, &probes));
            let newest = sent.len();
            for number in [newest, newest - 1, newest - 1, newest.saturating_sub(2)] {
                if newest > 1 && number > 0 {
                    disordered.deliver(&sent, number, &context);
                    let expected = &answers[disordered.n_taken];
                    assert_eq!(&look_up(&disordered.query, &probes), expected, "{}: update {number}", context());
                }
            }
        }
        assert_eq!(control.len(), live.len(), "{}", context());
        if step >= n_known {
            compare(control, &oracle, &live, &[&follower], &probes, &context);
        }
    }
}

/// A follower that gets updates out of order.
struct Disordered<Q> {
    query: Q,
    /// The number of the last update that it has applied; the first is 1.
    n_taken: usize,
}

impl<Q: Query<Update: Debug>> Disordered<Q> {
    fn deliver(&mut self, sent: &[Q::Update], number: usize, context: &impl Fn() -> String) {
        let next = self.n_taken + 1;
        let update = &sent[number - 1];
        match self.query.apply(update) {
            Ok(Applied::Applied) => {
                assert!(number >= next, "{}: update {number} took effect again: {update:?}", context());
                self.n_taken = number;
            }
            Ok(Applied::AlreadyThere) => {
                assert!(number < next, "{}: update {number} is new, and was passed over: {update:?}", context());
            }
            Err(error) => assert!(number != next, "{}: update {number}: {error}: {update:?}", context()),
        }
    }
}

fn change<C: Subject>(
    control: &mut C,
    live: &mut Live<C>,
    name: C::Key,
    value: Option<u64>,
    updates: &mut Vec<UpdateOf<C>>,
    context: &impl Fn() -> String,
) {
    if let Some(value) = value {
        control.insert(name, value, updates).unwrap_or_else(|error| panic!("{}: {error}", context()));
        live.insert(name, value);
    } else {
        let was_there = control.remove(name, updates);
        assert_eq!(was_there, live.remove(&name).is_some(), "{}: remove {name:?}", context());
    }
}

fn insert_batch<C: Subject>(
    control: &mut C,
    live: &mut Live<C>,
    batch: &[(C::Key, u64)],
    updates: &mut Vec<UpdateOf<C>>,
    context: &impl Fn() -> String,
) {
    control.insert_batch(batch, updates).unwrap_or_else(|error| panic!("{}: {error}", context()));
    live.extend(batch.iter().copied());
}

fn apply<Q: Query<Update: Debug>>(query: &mut Q, update: &Q::Update, expected: Applied, context: &impl Fn() -> String) {
    let applied = query.apply(update).unwrap_or_else(|error| panic!("{}: {error}: {update:?}", context()));
    assert_eq!(applied, expected, "{}: {update:?}", context());
}

/// Lookups of `n_names` names and of as many aliens.
fn probes<C: Subject>(
    oracle: &impl Oracle<C>,
    key: &impl Fn(u64) -> C::Key,
    n_names: u64,
    rng: &mut Rng,
) -> Vec<ProbeOf<C>> {
    (0..n_names * 2).flat_map(|number| oracle.probes(key(number), rng)).collect()
}

/// The answers to `probes`, in one batch.
fn look_up<Q: Query>(query: &Q, probes: &[Q::Key]) -> Vec<u64> {
    let mut values = vec![u64::MAX; probes.len() + 1];
    query.lookup_batch(probes, &mut values);
    assert_eq!(values.pop(), Some(u64::MAX), "a value behind the batch was written");
    values
}

/// Compares followers of all updates, a fresh export and the oracle.
fn compare<C: Subject>(
    control: &C,
    oracle: &impl Oracle<C>,
    live: &Live<C>,
    followers: &[&C::Query],
    probes: &[ProbeOf<C>],
    context: &impl Fn() -> String,
) {
    let exported = control.export();
    let fresh = look_up(&exported, probes);
    for (&probe, &value) in probes.iter().zip(&fresh) {
        if let Some(expected) = oracle.expected(control, live, probe) {
            assert_eq!(value, expected, "{}: {probe:?}", context());
        }
    }
    for follower in followers {
        let followed = look_up(*follower, probes);
        for ((&probe, &followed), &fresh) in probes.iter().zip(&followed).zip(&fresh) {
            assert_eq!(followed, fresh, "{}: {probe:?} after all updates and after a fresh export", context());
            assert_eq!(follower.lookup(probe), followed, "{}: {probe:?} alone and in a batch", context());
        }
        assert_eq!(oracle.in_flight(follower, probes), followed, "{}: bursts in flight", context());
        assert_eq!(oracle.state(follower), oracle.state(&exported), "{}: all updates and a fresh export", context());
    }
}

//! Flow tables: every policy against an oracle, churn at full load, growth, hostile keys.

use std::collections::HashMap;

use fibula_lookup::flow::{
    CuckooPlusPlus, Horton, Inline, InsertError, Optimistic, Pessimistic, Policy, Settings, Split, Table, Timed,
};
use fibula_lookup::hash::{Digest, Family, SecretKey};
use fibula_lookup::testkit::{Rng, seed};
use flow_names::Named;

use super::flow_names;

fn is_deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

fn settings(capacity: usize, seed: u64) -> Settings {
    let key = SecretKey::from_seed(seed);
    Settings { capacity, max_capacity: capacity << 6, family: Family::default(), key, now: 0 }
}

/// What an oracle stores for a flow: the number of its value, and the first unit in which it has ended.
type Oracle = HashMap<u64, (u64, u64)>;

/// Operations in which the table fills.
const N_FILL: u64 = 20_000;

/// Random operations on a table and on a map, over enough names to keep the table at a load of 0.95.
fn against_an_oracle<L: Named, P: Policy>(n_operations: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut table = Table::<L, P>::new(&settings(1 << 12, seed)).unwrap();
    let mut oracle: Oracle = HashMap::new();
    let (mut now, mut n_at_full_load) = (0, 0);
    let n_names = 8_000;
    for operation in 0..n_operations {
        let context = || format!("{} {}, seed {seed}, operation {operation}", P::NAME, L::LAYOUT);
        let name = rng.below(n_names);
        let (key, digest) = (L::key_of(name), table.digest(&L::key_of(name)));
        let new = rng.next_u64() >> 8;
        let lifetime = 1 + rng.below(4000) as u16;
        let end = if P::TIMED { now + u64::from(lifetime) } else { u64::MAX };
        let known = oracle.get(&name).copied().filter(|&(_, end)| end > now);
        let is = |value: Option<&L::Value>, known: Option<u64>| match (value, known) {
            (Some(value), Some(known)) => L::is_equal(value, &L::value_of(known)),
            (value, known) => value.is_none() && known.is_none(),
        };
        let known_value = known.map(|(value, _)| value);
        let slot = table.lookup(&key, digest);
        assert!(is(slot.map(|slot| table.value(slot)), known_value), "{}", context());
        match rng.below(100) {
            0..40 if (oracle.len() as f64) < 0.95 * table.capacity() as f64 || known.is_some() => {
                match table.insert(&key, digest, &L::value_of(new), lifetime, |_, _| {}) {
                    Ok(_) => {
                        assert!(oracle.insert(name, (new, end)).is_none_or(|(_, end)| end <= now), "{}", context())
                    }
                    Err(InsertError::Exists { slot }) => {
                        assert!(is(Some(table.value(slot)), known_value), "{}", context());
                    }
                    Err(error) => panic!("{}: {error}", context()),
                }
            }
            40..60 if (oracle.len() as f64) < 0.95 * table.capacity() as f64 || known.is_some() => {
                let (slot, was_there) = table.upsert(&key, digest, &L::value_of(new), lifetime, |_, _| {}).unwrap();
                assert_eq!(
                    (is(Some(table.value(slot)), Some(new)), was_there),
                    (true, known.is_some()),
                    "{}",
                    context()
                );
                oracle.insert(name, (new, end));
            }
            60..70 => {
                if let Some(slot) = table.lookup_refresh(&key, digest, lifetime).unwrap() {
                    *table.value_mut(slot) = L::value_of(new);
                    *oracle.get_mut(&name).unwrap() = (new, end);
                }
            }
            70..90 => {
                assert!(is(table.remove(&key, digest).as_ref(), known_value), "{}", context());
                oracle.remove(&name);
            }
            90..95 => {
                now += rng.below(3);
                table.advance(now);
                table.scan(8, |_, _| {});
                table.rehome(rng.below(8) as usize);
            }
            _ => {}
        }
        if operation % 1000 == 999 {
            oracle.retain(|_, (_, end)| *end > now);
            assert_eq!(table.iter().count(), oracle.len(), "{}", context());
            let audit = table.audit().unwrap_or_else(|error| panic!("{}: {error}", context()));
            assert_eq!(audit.n_entries, table.len(), "{}", context());
            let counters = table.counters();
            let n_gone = counters.removed + counters.ended_reused + counters.ended_scanned;
            assert_eq!(counters.inserted - n_gone, table.len() as u64, "{}", context());
            n_at_full_load += usize::from(operation >= N_FILL && table.len() * 100 >= table.capacity() * 94);
            let names: Vec<u64> = (0..n_names).collect();
            let keys: Vec<_> = names.iter().map(|&name| L::key_of(name)).collect();
            let (mut digests, mut slots) = (vec![Digest(0); keys.len()], vec![None; keys.len()]);
            table.digests(&keys, &mut digests);
            table.lookup_batch(&keys, &digests, &mut slots);
            for (name, slot) in names.iter().zip(&slots) {
                let known = oracle.get(name).map(|&(value, _)| value);
                assert!(is(slot.map(|slot| table.value(slot)), known), "{}: {name}", context());
            }
        }
    }
    let n_checks = n_operations.saturating_sub(N_FILL) as usize / 1000;
    assert!(2 * n_at_full_load >= n_checks, "{}: at full load in {n_at_full_load} of {n_checks} checks", P::NAME);
}

/// Batches of any length, with duplicate keys, against the same operations one by one on a second table.
fn batches_against_single_operations<L: Named, P: Policy>(seed: u64) {
    let mut rng = Rng::new(seed);
    let [mut batched, mut single] = [(); 2].map(|()| Table::<L, P>::new(&settings(1 << 12, seed)).unwrap());
    for n in (0..150).chain([1000]) {
        let context = format!("{} {}, seed {seed}, a batch of {n}", P::NAME, L::LAYOUT);
        let keys: Vec<_> = (0..n).map(|_| L::key_of(rng.below(3000))).collect();
        let values: Vec<_> = (0..n).map(|_| L::value_of(rng.next_u64() >> 8)).collect();
        let mut digests = vec![Digest(0); n];
        batched.digests(&keys, &mut digests);
        let flows = (keys.as_slice(), digests.as_slice());
        let mut outcomes = Vec::new();
        batched.insert_batch(flows, &values, 100, |_, _| {}, |i, done| outcomes.push((i, done.is_ok())));
        let mut singly = Vec::new();
        for ((key, &digest), value) in keys.iter().zip(&digests).zip(&values) {
            let is_new = single.insert(key, digest, value, 100, |_, _| {}).is_ok();
            singly.push((singly.len(), is_new));
        }
        assert_eq!(outcomes, singly, "{context}");
        let mut slots = vec![None; n];
        batched.lookup_batch(&keys, &digests, &mut slots);
        for ((key, &digest), slot) in keys.iter().zip(&digests).zip(&slots) {
            assert_eq!(*slot, single.lookup(key, digest), "{context}");
        }
        if n % 2 == 0 {
            let mut removed = vec![None; n];
            batched.remove_batch(&keys, &digests, |i, value| removed[i] = Some(*value));
            for ((key, &digest), removed) in keys.iter().zip(&digests).zip(&removed) {
                let value = single.remove(key, digest);
                let is_same = match (&value, removed) {
                    (Some(value), Some(removed)) => L::is_equal(value, removed),
                    (value, removed) => value.is_none() && removed.is_none(),
                };
                assert!(is_same, "{context}");
            }
        }
        assert_eq!(batched.len(), single.len(), "{context}");
    }
    batched.audit().unwrap();
}

#[test]
fn batches_of_any_length_do_what_single_operations_do() {
    let seed = seed();
    batches_against_single_operations::<Split<2, 2>, Timed>(seed);
    batches_against_single_operations::<Split<2, 2>, Pessimistic>(seed);
    batches_against_single_operations::<Split<1, 1>, Optimistic>(seed);
    batches_against_single_operations::<Split<2, 2>, Horton>(seed);
    batches_against_single_operations::<Inline<4, 4>, CuckooPlusPlus>(seed);
}

fn n_operations() -> u64 {
    if is_deep() { 10_000_000 } else { 100_000 }
}

#[test]
fn cuckoo_plus_plus_agrees_with_an_oracle() {
    against_an_oracle::<Split<2, 2>, CuckooPlusPlus>(n_operations(), seed());
}

#[test]
fn timed_agrees_with_an_oracle() {
    against_an_oracle::<Split<2, 2>, Timed>(n_operations(), seed());
    against_an_oracle::<Split<5, 8>, Timed>(n_operations() / 10, seed());
}

#[test]
fn optimistic_agrees_with_an_oracle() {
    against_an_oracle::<Split<1, 1>, Optimistic>(n_operations(), seed());
}

#[test]
fn pessimistic_agrees_with_an_oracle() {
    against_an_oracle::<Split<2, 2>, Pessimistic>(n_operations(), seed());
}

#[test]
fn horton_agrees_with_an_oracle() {
    against_an_oracle::<Split<2, 2>, Horton>(n_operations(), seed());
}

#[test]
fn inline_entries_agree_with_an_oracle() {
    against_an_oracle::<Inline<4, 4>, Timed>(n_operations(), seed());
    against_an_oracle::<Inline<6, 2>, CuckooPlusPlus>(n_operations(), seed());
    against_an_oracle::<Inline<3, 4>, Optimistic>(n_operations() / 10, seed());
    against_an_oracle::<Inline<8, 0>, Pessimistic>(n_operations() / 10, seed());
}

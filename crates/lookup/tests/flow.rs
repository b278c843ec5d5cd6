//! Flow tables: every policy against an oracle, churn at full load, growth, hostile keys.

use std::collections::HashMap;

use fibula_lookup::flow::{
    CuckooPlusPlus, FlowTable, Horton, InsertError, Optimistic, Pessimistic, Policy, Settings, Timed,
};
use fibula_lookup::hash::{Digest, Family, SecretKey};
use fibula_lookup::testkit::{Rng, seed};

fn is_deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

fn settings(capacity: usize, seed: u64) -> Settings {
    let key = SecretKey::from_seed(seed);
    Settings { capacity, max_capacity: capacity << 6, family: Family::default(), key, now: 0 }
}

fn key<const K: usize>(n: u64) -> [u64; K] {
    std::array::from_fn(|word| if word + 1 == K { n } else { word as u64 })
}

fn value<const V: usize>(n: u64) -> [u64; V] {
    std::array::from_fn(|word| n + word as u64)
}

/// What an oracle remembers of a flow: its value, and the first unit in which it is no more.
type Oracle<const V: usize> = HashMap<u64, ([u64; V], u64)>;

/// Operations in which the table fills.
const N_FILL: u64 = 20_000;

/// Random operations on a table and on a map, over so many names that the table is kept at a load of 0.95.
fn against_an_oracle<const K: usize, const V: usize, P: Policy>(n_operations: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut table = FlowTable::<K, V, P>::new(&settings(1 << 12, seed)).unwrap();
    let mut oracle: Oracle<V> = HashMap::new();
    let (mut now, mut n_at_full_load) = (0, 0);
    let n_names = 8_000;
    for operation in 0..n_operations {
        let context = || format!("{}, seed {seed}, operation {operation}", P::NAME);
        let name = rng.below(n_names);
        let (key, digest) = (key::<K>(name), table.digest(&key::<K>(name)));
        let new = value::<V>(rng.next_u64() >> 8);
        let lifetime = 1 + rng.below(4000) as u16;
        let end = if P::TIMED { now + u64::from(lifetime) } else { u64::MAX };
        let known = oracle.get(&name).copied().filter(|&(_, end)| end > now);
        assert_eq!(
            table.lookup(&key, digest).map(|slot| *table.value(slot)),
            known.map(|(value, _)| value),
            "{}",
            context()
        );
        match rng.below(100) {
            0..40 if (oracle.len() as f64) < 0.95 * table.capacity() as f64 || known.is_some() => {
                match table.insert(&key, digest, &new, lifetime, |_, _| {}) {
                    Ok(_) => {
                        assert!(oracle.insert(name, (new, end)).is_none_or(|(_, end)| end <= now), "{}", context())
                    }
                    Err(InsertError::Exists { slot }) => {
                        assert_eq!(Some(*table.value(slot)), known.map(|(value, _)| value), "{}", context());
                    }
                    Err(error) => panic!("{}: {error}", context()),
                }
            }
            40..60 if (oracle.len() as f64) < 0.95 * table.capacity() as f64 || known.is_some() => {
                let (slot, was_there) = table.upsert(&key, digest, &new, lifetime, |_, _| {}).unwrap();
                assert_eq!((*table.value(slot), was_there), (new, known.is_some()), "{}", context());
                oracle.insert(name, (new, end));
            }
            60..70 => {
                if let Some(slot) = table.lookup_refresh(&key, digest, lifetime).unwrap() {
                    table.value_mut(slot)[0] += 1;
                    let entry = oracle.get_mut(&name).unwrap();
                    entry.0[0] += 1;
                    entry.1 = end;
                }
            }
            70..90 => {
                assert_eq!(table.remove(&key, digest), known.map(|(value, _)| value), "{}", context());
                oracle.remove(&name);
            }
            90..95 => {
                now += rng.below(3);
                table.advance(now);
                table.scan(8, |_, _| {});
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
            let keys: Vec<_> = names.iter().map(|&name| self::key::<K>(name)).collect();
            let (mut digests, mut slots) = (vec![Digest(0); keys.len()], vec![None; keys.len()]);
            table.digests(&keys, &mut digests);
            table.lookup_batch(&keys, &digests, &mut slots);
            for (name, slot) in names.iter().zip(&slots) {
                let known = oracle.get(name).map(|(value, _)| value);
                assert_eq!(slot.map(|slot| table.value(slot)), known, "{}: {name}", context());
            }
        }
    }
    let n_checks = n_operations.saturating_sub(N_FILL) as usize / 1000;
    assert!(2 * n_at_full_load >= n_checks, "{}: at full load in {n_at_full_load} of {n_checks} checks", P::NAME);
}

fn n_operations() -> u64 {
    if is_deep() { 10_000_000 } else { 100_000 }
}

#[test]
fn cuckoo_plus_plus_agrees_with_an_oracle() {
    against_an_oracle::<2, 2, CuckooPlusPlus>(n_operations(), seed());
}

#[test]
fn timed_agrees_with_an_oracle() {
    against_an_oracle::<2, 2, Timed>(n_operations(), seed());
    against_an_oracle::<5, 8, Timed>(n_operations() / 10, seed());
}

#[test]
fn optimistic_agrees_with_an_oracle() {
    against_an_oracle::<1, 1, Optimistic>(n_operations(), seed());
}

#[test]
fn pessimistic_agrees_with_an_oracle() {
    against_an_oracle::<2, 2, Pessimistic>(n_operations(), seed());
}

#[test]
fn horton_agrees_with_an_oracle() {
    against_an_oracle::<2, 2, Horton>(n_operations(), seed());
}

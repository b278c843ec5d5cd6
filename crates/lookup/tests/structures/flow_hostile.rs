//! Flow tables under names that collide, at their limits, and while they grow.

use std::collections::HashMap;

use fibula_lookup::flow::{
    CapacityError, CuckooPlusPlus, FlowTable, Horton, Inline, InlineTable, InsertError, Optimistic, Pessimistic,
    Policy, Settings, Split, Table, Timed,
};
use fibula_lookup::hash::{Digest, Family, SecretKey};
use fibula_lookup::testkit::{Rng, seed};
use flow_names::Named;

use super::flow_names;

fn table<P: Policy>(capacity: usize, max_capacity: usize, seed: u64) -> FlowTable<2, 2, P> {
    table_of(capacity, max_capacity, seed)
}

fn table_of<L: Named, P: Policy>(capacity: usize, max_capacity: usize, seed: u64) -> Table<L, P> {
    let (family, key) = (Family::default(), SecretKey::from_seed(seed));
    Table::new(&Settings { capacity, max_capacity, family, key, now: 0 }).unwrap()
}

/// Inserts flows with digests that an attacker would choose into a table that has other flows already. Returns how many are
/// refused.
fn collide<P: Policy>(digest_of: impl Fn(u64) -> Digest) -> u64 {
    let seed = seed();
    let mut table = table::<P>(1 << 14, 1 << 14, seed);
    let others: Vec<[u64; 2]> = (0..12_000).map(|name| [name, 1]).collect();
    for key in &others {
        table.insert(key, table.digest(key), key, 1000, |_, _| {}).unwrap();
    }
    let (mut lived, mut n_refused) = (Vec::new(), 0);
    for name in 0..1_000 {
        let key = [name, 2];
        match table.insert(&key, digest_of(name), &key, 1000, |_, _| panic!("nothing has ended")) {
            Ok(_) => lived.push(name),
            Err(InsertError::Crowded) => n_refused += 1,
            Err(error) => panic!("{}, seed {seed}: {error}", P::NAME),
        }
    }
    assert!(lived.len() >= 8, "{}: {} live, {n_refused} are refused", P::NAME, lived.len());
    assert_eq!(table.counters().refused_crowded, n_refused);
    for key in &others {
        let slot = table.lookup(key, table.digest(key));
        assert_eq!(slot.map(|slot| *table.value(slot)), Some(*key), "{}, seed {seed}: lost", P::NAME);
    }
    for &name in &lived {
        let key = [name, 2];
        assert_eq!(table.remove(&key, digest_of(name)), Some(key), "{}, seed {seed}: lost", P::NAME);
    }
    assert_eq!(table.audit().unwrap().n_entries, others.len());
    n_refused
}

#[test]
fn flows_of_one_bucket_and_one_tag_end_in_an_error() {
    let digest = |_| Digest(0x1234_5678_9ABC_DEF0);
    let refused = [
        collide::<CuckooPlusPlus>(digest),
        collide::<Timed>(digest),
        collide::<Optimistic>(digest),
        collide::<Pessimistic>(digest),
        collide::<Horton>(digest),
    ];
    assert!(refused.iter().all(|&n| n > 900), "{refused:?} of 1,000");
}

#[test]
fn flows_of_one_bucket_and_many_tags_end_in_an_error_or_find_a_place() {
    let digest = |name: u64| Digest(0x1234_5678_0000_0000 | name.wrapping_mul(0x9E37) & 0xFFFF);
    let refused = [collide::<CuckooPlusPlus>(digest), collide::<Timed>(digest), collide::<Horton>(digest)];
    assert!(refused.iter().all(|&n| n > 0), "{refused:?} of 1,000");
    assert_eq!([collide::<Optimistic>(digest), collide::<Pessimistic>(digest)], [0; 2]);
}

#[test]
fn inline_flows_of_two_buckets_end_in_an_error() {
    let seed = seed();
    let mut table: InlineTable<6, 2> = table_of(5 << 4, 5 << 4, seed);
    // Keys are compared whole, and tags are derived from them, so collisions must be searched for.
    let mut keys = (0..).map(Inline::<6, 2>::key_of).filter(|key| table.digest(key).0 & 0xF_0000_FFFF == 0x7_0000_1234);
    let keys: Vec<_> = keys.by_ref().take(12).collect();
    for (n, key) in keys.iter().enumerate() {
        let done = table.insert(key, table.digest(key), &[n as u8; 2], 9, |_, _| {});
        assert_eq!(done.err(), (n >= 10).then_some(InsertError::Crowded), "seed {seed}: {n}");
    }
    assert_eq!(table.audit().unwrap().n_secondary, 5);
    for (n, key) in keys[..10].iter().enumerate() {
        assert_eq!(table.remove(key, table.digest(key)), Some([n as u8; 2]), "seed {seed}: {n}");
        table.audit().unwrap();
    }
    assert!(table.is_empty());
}

#[test]
fn a_full_table_refuses_and_loses_nothing() {
    let mut table = table::<Timed>(1 << 10, 1 << 10, seed());
    let mut stored = Vec::new();
    for name in 0..3_000 {
        let key = [name, name];
        match table.insert(&key, table.digest(&key), &key, 5, |_, _| {}) {
            Ok(_) => stored.push(name),
            Err(InsertError::Full { n_entries, n_slots }) => {
                assert_eq!((n_entries, n_slots), (table.len(), 1 << 10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(stored.len() > 1_000, "{} of 1,024 slots were filled", stored.len());
    assert!(stored.iter().all(|&name| table.lookup(&[name, name], table.digest(&[name, name])).is_some()));
    assert_eq!(table.counters().refused_full, 3_000 - stored.len() as u64);
    table.audit().unwrap();
    // When they have ended, there is room for as many.
    table.advance(5);
    for name in 10_000..10_000 + stored.len() as u64 / 10 * 9 {
        table.insert(&[name, 0], table.digest(&[name, 0]), &[0; 2], 5, |_, _| {}).unwrap();
    }
    table.audit().unwrap();
}

#[test]
fn a_flow_that_is_there_is_not_inserted_twice() {
    let mut table = table::<Timed>(64, 64, 1);
    let digest = table.digest(&[1, 2]);
    let slot = table.insert(&[1, 2], digest, &[3, 4], 5, |_, _| {}).unwrap();
    assert_eq!(table.insert(&[1, 2], digest, &[5, 6], 5, |_, _| {}), Err(InsertError::Exists { slot }));
    assert_eq!(table.upsert(&[1, 2], digest, &[7, 8], 9, |_, _| {}), Ok((slot, true)));
    assert_eq!((table.value(slot), table.remaining(slot), table.len()), (&[7, 8], Some(9), 1));
    assert!(table.remove_at(slot) && !table.remove_at(slot));
    assert_eq!((table.lookup(&[1, 2], digest), table.is_empty()), (None, true));
}

fn grow<L: Named, P: Policy>() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut table = table_of::<L, P>(1 << 9, 1 << 13, seed);
    let end = table.capacity() << 4;
    let mut oracle: HashMap<u64, u64> = HashMap::new();
    let mut next = 0;
    let mut n_growths = 0;
    while n_growths < 4 || table.is_growing() {
        if !table.is_growing() && oracle.len() * 10 > table.capacity() * 9 {
            table.grow().unwrap();
            n_growths += 1;
            assert!(matches!(table.grow(), Err(CapacityError::Growing)));
        }
        for _ in 0..3 {
            let key = L::key_of(next);
            table.insert(&key, table.digest(&key), &L::value_of(next), 9, |_, _| {}).unwrap();
            oracle.insert(next, next);
            next += 1;
        }
        let name = rng.below(next);
        let key = L::key_of(name);
        let is = |value: Option<&L::Value>, known: Option<&u64>| match (value, known) {
            (Some(value), Some(&known)) => L::is_equal(value, &L::value_of(known)),
            (value, known) => value.is_none() && known.is_none(),
        };
        if rng.below(2) == 0 {
            let value = table.remove(&key, table.digest(&key));
            assert!(is(value.as_ref(), oracle.remove(&name).as_ref()), "seed {seed}: {name}");
        } else if let Some(value) = oracle.get_mut(&name) {
            *value += 1 << 16;
            let done = table.upsert(&key, table.digest(&key), &L::value_of(*value), 9, |_, _| {}).unwrap();
            assert!(done.1, "seed {seed}: {name}");
        }
        table.migrate(1, |_, _| {});
        if rng.below(30) == 0 {
            let keys: Vec<_> = (0..next).map(L::key_of).collect();
            let (mut digests, mut slots) = (vec![Digest(0); keys.len()], vec![None; keys.len()]);
            table.digests(&keys, &mut digests);
            table.lookup_batch(&keys, &digests, &mut slots);
            for (name, slot) in (0..next).zip(slots) {
                assert!(is(slot.map(|slot| table.value(slot)), oracle.get(&name)), "seed {seed}: {name}");
            }
            assert_eq!((table.iter().count(), table.len()), (oracle.len(), oracle.len()));
            table.audit().unwrap();
        }
    }
    assert_eq!(table.capacity(), end, "{}", L::LAYOUT);
    assert!(matches!(table.grow(), Err(CapacityError::Limit { .. })));
}

#[test]
fn a_table_grows_beside_its_use() {
    grow::<Split<2, 2>, CuckooPlusPlus>();
    grow::<Split<2, 2>, Timed>();
    grow::<Split<2, 2>, Horton>();
    grow::<Inline<4, 4>, Timed>();
}

#[test]
fn what_finds_no_place_in_the_new_generation_stays_in_the_old() {
    let mut table = table::<CuckooPlusPlus>(16, 32, 1);
    let insert = |table: &mut FlowTable<2, 2, CuckooPlusPlus>, name| {
        table.insert(&[name, 0], table.digest(&[name, 0]), &[name; 2], 0, |_, _| {}).is_ok()
    };
    let first: Vec<u64> = (0..100).filter(|&name| insert(&mut table, name)).collect();
    assert_eq!(first.len(), 16);
    table.grow().unwrap();
    let second: Vec<u64> = (100..400).filter(|&name| insert(&mut table, name)).collect();
    assert!(second.len() > 28);
    table.migrate(usize::MAX, |_, _| {});
    let is_there = |table: &FlowTable<2, 2, _>, name: &u64| {
        let key = [*name, 0];
        table.lookup(&key, table.digest(&key)).is_some()
    };
    assert!(table.is_growing() && first.iter().chain(&second).all(|name| is_there(&table, name)));
    for &name in &second {
        table.remove(&[name, 0], table.digest(&[name, 0])).unwrap();
    }
    table.migrate(usize::MAX, |_, _| {});
    assert!(!table.is_growing() && first.iter().all(|name| is_there(&table, name)));
    table.audit().unwrap();
}

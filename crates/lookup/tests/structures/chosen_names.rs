//! Names that someone who has the hash key chose, so that their digests begin alike.

use fibula_lookup::hash::{Digest, SecretKey};
use fibula_lookup::line::LineTable;
use fibula_lookup::othello::Othello;
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Control, InsertError, Query};
use fibula_lookup::{line, othello};

/// Digests with the same first 24 bits, the most that a directory looks at.
fn chosen(rng: &mut Rng, n: usize) -> Vec<Digest> {
    (0..n).map(|_| Digest(0xAB_CDEF << 40 | rng.next_u64() >> 24)).collect()
}

/// Inserts chosen names into a table of random ones, and removes them.
fn stays_small<C: Control<Key = Digest>>(mut table: C, random: &[(Digest, u64)], names: &[Digest])
where
    C::Query: Query<Key = Digest>,
{
    let mut switch = table.export();
    let (before, mut updates) = (switch.size_bits(), Vec::new());
    let n_names = (random.len() + names.len()) as u64;
    for (i, &name) in names.iter().enumerate() {
        table.insert(name, i as u64 & 255, &mut updates).unwrap();
        updates.drain(..).for_each(|update| _ = switch.apply(&update).unwrap());
    }
    let after = switch.size_bits();
    // Half as much again is for parts that grew and did not fill yet.
    assert!(after * random.len() as u64 * 2 < before * n_names * 3, "{before} bits before, {after} after");
    assert!(random.iter().all(|&(name, value)| switch.lookup(name) == value));
    assert!(names.iter().enumerate().all(|(i, &name)| switch.lookup(name) == i as u64 & 255));
    for &name in names {
        assert!(table.remove(name, &mut updates));
        updates.drain(..).for_each(|update| _ = switch.apply(&update).unwrap());
    }
    let gone = switch.size_bits();
    assert!(gone * 4 < before * 5, "{before} bits before, {gone} when the names are gone");
    assert!(random.iter().all(|&(name, value)| switch.lookup(name) == value));
}

#[test]
fn chosen_names_do_not_inflate_a_table_and_leave_nothing_behind() {
    let seed = seed();
    let (rng, key) = (&mut Rng::new(seed), &SecretKey::from_seed(seed));
    let random: Vec<(Digest, u64)> = (0..20_000).map(|i| (Digest(rng.next_u64()), i & 255)).collect();
    let names = chosen(rng, 14_000);
    let table = <Othello>::build(othello::Settings::new(8, 100_000, key), &random, 1).unwrap().0;
    stays_small(table, &random, &names[..4000]);
    let table = <Othello>::build(othello::Settings::new(8, 100_000, key), &random, 1).unwrap().0;
    stays_small(table, &random, &names);
    let table = LineTable::build(line::Settings::new(8, 100_000, key), &random, 1).unwrap().0;
    stays_small(table, &random, &names);
}

#[test]
fn more_chosen_names_than_a_shard_can_have_are_refused_and_others_are_not() {
    let seed = seed();
    let (rng, key) = (&mut Rng::new(seed), &SecretKey::from_seed(seed));
    let mut table = <Othello>::new(othello::Settings::new(8, 100_000, key));
    let (mut updates, mut n_chosen) = (Vec::new(), 0);
    let refused = chosen(rng, 40_000).into_iter().find_map(|name| {
        n_chosen += 1;
        table.insert(name, 1, &mut updates).err()
    });
    let Some(InsertError::Crowded { part, n_names }) = refused else { panic!("not refused: {refused:?}") };
    assert!(n_names > 20_000 && part.depth == 11, "{part:?} with {n_names} names");
    let batch: Vec<(Digest, u64)> = chosen(rng, 20_000).into_iter().map(|name| (name, 2)).collect();
    let before = table.len();
    assert!(matches!(table.insert_batch(&batch, &mut updates), Err(InsertError::Crowded { .. })));
    assert_eq!(table.len(), before, "a refused batch changes nothing");
    let others: Vec<Digest> = (0..10_000).map(|_| Digest(rng.next_u64())).collect();
    let mut n_refused = 0;
    for &name in &others {
        match table.insert(name, 3, &mut updates) {
            Ok(()) => assert_eq!(table.get(name), Some(3)),
            Err(error) => {
                assert!(matches!(error, InsertError::Crowded { .. }) && table.get(name).is_none(), "{error}");
                n_refused += 1;
            }
        }
    }
    // One name of others in 2048 shares the crowded part.
    assert!(n_refused < 40, "{n_refused} names of others are refused");
}

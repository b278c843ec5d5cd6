//! Conformance, exactness, bytes, readers and restarts of an OGW.

use std::sync::atomic::{AtomicBool, Ordering};

use super::restart::{damaged_rows_are_refused, restored_skeleton_has_the_same_words};
use fibula_lookup::hash::{Family, SecretKey};
use fibula_lookup::othello::gateway::{Gateway, GatewayQuery, GatewaySkeleton, Settings, Update, WholeShards};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::Names;
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{
    Applied, ApplyError, BatchReader, Control, InsertError, Query, Replicated, Skeleton, Undivided,
};

fn settings(name_bytes: u8, value_bits: u8, max_names: usize, seed: u64) -> Settings {
    Settings::new(name_bytes, value_bits, max_names, Family::MulAdd, &SecretKey::from_seed(seed))
}

/// The name of a number: the number in its last word.
fn name<const W: usize>(number: u64) -> [u64; W] {
    std::array::from_fn(|word| if word == W - 1 { number } else { number & 1 })
}

#[test]
fn names_and_values_of_every_shape_conform() {
    fn run<const W: usize>(name_bytes: u8, value_bits: u8, n_names: u64, n_operations: usize, seed: u64) {
        let scope = Scope { n_operations, n_names, n_values: 1 << value_bits, check_every: n_operations / 4, seed };
        let mut table = Gateway::<W>::new(settings(name_bytes, value_bits, n_names as usize, seed));
        conformance::random(&mut table, Names::exact().in_bytes(), name, &scope);
    }
    let seed = seed();
    run::<1>(6, 16, 300, 5_000, seed);
    run::<1>(8, 8, 300, 5_000, seed);
    run::<2>(16, 12, 300, 5_000, seed);
    run::<3>(24, 40, 100, 2_000, seed);
    run::<1>(6, 16, 8, 20_000, seed);
    run::<1>(6, 16, 9_000, 60_000, seed);
}

#[test]
fn an_alien_drops_for_certain_and_a_name_takes_little_more_than_itself() {
    let entries: Vec<_> = (0..40_000).map(|n| (name::<1>(n), 1 + n % 60_000)).collect();
    let (table, query) = Gateway::<1>::build(settings(6, 16, 50_000, 3), &entries, 2).unwrap();
    let names: Vec<_> = (0..1_000_000).map(name::<1>).collect();
    let mut values = vec![0; names.len()];
    query.lookup_batch(&names, &mut values);
    for (n, &value) in values.iter().enumerate() {
        assert_eq!(value, entries.get(n).map_or(0, |entry| entry.1), "name {n}");
    }
    // 2.40 cells of 16 bits and 8/7 slots of 64 when new, and the directory.
    let bits = query.size_bits() as f64 / entries.len() as f64;
    assert!((111.0..113.0).contains(&bits), "{bits} bits a name");
    assert_eq!(table.skeleton().iter().count(), 40_000);
}

#[test]
fn thirty_turnovers_at_capacity_lose_no_name_and_find_no_removed_one() {
    let seed = seed();
    let n_names = 4_000;
    let mut table = Gateway::<1>::new(settings(6, 16, n_names as usize, seed));
    let mut query = table.export();
    let mut updates = Vec::new();
    for n in 0..n_names * 31 {
        if n >= n_names {
            assert!(table.remove(name(n - n_names), &mut updates));
        }
        table.insert(name(n), 1 + n % 65_000, &mut updates).unwrap();
        updates.drain(..).for_each(|update| assert_eq!(query.apply(&update), Ok(Applied::Applied), "seed {seed}"));
    }
    for n in 0..n_names * 31 {
        let expected = if n >= n_names * 30 { 1 + n % 65_000 } else { 0 };
        assert_eq!(query.lookup(name(n)), expected, "seed {seed}, name {n}");
    }
    assert_eq!(query.image(), table.export().image());
}

#[test]
fn updates_come_back_from_bytes_damaged_ones_are_refused_or_harmless_and_lost_ones_are_noticed() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let settings = settings(16, 12, 20_000, seed);
    let mut table = Gateway::<2>::new(settings.clone());
    let mut query = table.export();
    let mut updates = Vec::new();
    for _ in 0..12_000 {
        let number = rng.below(6_000);
        if rng.below(4) == 0 {
            table.remove(name(number), &mut updates);
        } else {
            table.insert(name(number), rng.below(4_096), &mut updates).unwrap();
        }
    }
    assert!(updates.iter().any(|update| matches!(update, Update::Shards(whole) if whole.shards.len() == 2)));
    for (at, update) in updates.iter().enumerate() {
        let mut bytes = Vec::new();
        update.encode(&settings, &mut bytes);
        assert_eq!(Update::decode(&bytes, &settings).as_ref(), Ok(update));
        assert!(Update::<2>::decode(&bytes[..bytes.len() - 1], &settings).is_err());
        let bit = rng.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        if at % 16 == 0
            && let Ok(damaged) = Update::<2>::decode(&bytes, &settings)
        {
            let mut copy = GatewayQuery::from_image(&settings, &query.image()).unwrap();
            let before = Undivided::held(&copy);
            // The bit may belong to a version; the digest covers all others.
            match copy.apply(&damaged) {
                Ok(Applied::Applied) => assert_eq!(Undivided::held(&copy).1, digest_after(update)),
                _ => assert_eq!(Undivided::held(&copy), before),
            }
        }
        if let Some(next) = updates.get(at + 1) {
            assert!(matches!(query.apply(next), Err(ApplyError::Gap { .. })));
        }
        assert_eq!(query.apply(update), Ok(Applied::Applied));
    }
    assert_eq!(query.image(), table.export().image());
    assert!(GatewayQuery::images_of(&updates[0]).is_none(), "a name is no table");
}

/// The digest of the table after an update.
fn digest_after(update: &Update<2>) -> u64 {
    match update {
        Update::Name(update) => update.digest,
        Update::Shards(whole) | Update::Table(whole) => whole.digest,
    }
}

#[test]
fn a_resync_replaces_what_is_held_whatever_its_version_and_readers_follow() {
    let settings = settings(6, 16, 10_000, 4);
    let table = |value: u64| {
        let entries: Vec<_> = (0..5_000).map(|n| (name::<1>(n), value)).collect();
        Gateway::<1>::build(settings.clone(), &entries, 1).unwrap().1
    };
    let mut query = table(7);
    let mut reader = Undivided::reader(&query);
    let mut values = [0; 2];
    reader.lookup_batch(&[name(3), name(9_000)], &mut values);
    assert_eq!(values, [7, 0]);
    let image: WholeShards = table(8).image();
    assert_eq!(query.apply(&Update::Table(image.clone())), Ok(Applied::AlreadyThere), "of no higher version");
    Undivided::overwrite(&mut query, &image).unwrap();
    reader.lookup_batch(&[name(3), name(9_000)], &mut values);
    assert_eq!(values, [8, 0]);
    let mut half = table(9).image();
    half.shards.pop();
    assert!(matches!(Undivided::overwrite(&mut query, &half), Err(ApplyError::Malformed { .. })));
    assert_eq!(query.lookup(name(3)), 8);
}

#[test]
fn readers_beside_the_writer_find_every_name_that_stays_and_no_alien() {
    let seed = seed();
    let settings = settings(6, 16, 20_000, seed);
    // The even ones stay; the odd ones come, go and change.
    let entries: Vec<_> = (0..3_000).map(|n| (name::<1>(2 * n), 1 + n)).collect();
    let (mut table, mut query) = Gateway::<1>::build(settings, &entries, 1).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|_| Undivided::reader(&query)).collect();
        for mut reader in readers {
            let (done, entries) = (&done, &entries);
            scope.spawn(move || {
                let mut round = 0;
                while !done.load(Ordering::Acquire) || round < 2 {
                    for (at, chunk) in entries.chunks(32).enumerate() {
                        let mut names: Vec<_> = chunk.iter().map(|entry| entry.0).collect();
                        let mut values = vec![0; names.len()];
                        reader.lookup_batch(&names, &mut values);
                        assert!(values.iter().zip(chunk).all(|(value, entry)| *value == entry.1), "chunk {at}");
                        names.iter_mut().for_each(|name| name[0] += 1 << 40);
                        reader.lookup_batch(&names, &mut values);
                        assert!(values.iter().all(|&value| value == 0));
                    }
                    round += 1;
                }
                reader.offline();
            });
        }
        let mut rng = Rng::new(seed);
        let mut updates = Vec::new();
        for _ in 0..30_000 {
            let number = 2 * rng.below(3_000) + 1;
            if rng.below(3) == 0 {
                table.remove(name(number), &mut updates);
            } else {
                table.insert(name(number), rng.below(65_000), &mut updates).unwrap();
            }
            for update in updates.drain(..) {
                while let Err(error) = query.apply(&update) {
                    assert!(matches!(error, ApplyError::ReadersStalled { .. }), "{error}");
                    std::thread::yield_now();
                }
            }
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn names_and_values_that_do_not_fit_and_names_twice_are_typed_errors() {
    let mut table = Gateway::<1>::new(settings(6, 8, 2, 1));
    let mut updates = Vec::new();
    assert!(matches!(table.insert([1 << 48], 1, &mut updates), Err(InsertError::NameTooLong { name_bytes: 6 })));
    assert!(matches!(table.insert([1], 256, &mut updates), Err(InsertError::ValueTooWide { .. })));
    table.insert([1], 255, &mut updates).unwrap();
    table.insert([2], 0, &mut updates).unwrap();
    assert!(matches!(table.insert([3], 1, &mut updates), Err(InsertError::TooManyNames { max: 2 })));
    assert_eq!((updates.len(), table.len(), table.get([2])), (2, 2, Some(0)));
    let twice = Gateway::<1>::build(settings(6, 8, 10, 1), &[([5], 1), ([5], 2)], 1);
    assert!(matches!(twice.err(), Some(InsertError::DuplicateDigest { .. })));
    assert_eq!(table.export().lookup([1 << 48 | 1]), 0, "bytes behind the name");
}

#[test]
fn a_restored_gateway_has_the_same_words() {
    let seed = seed();
    restored_skeleton_has_the_same_words::<GatewaySkeleton<1>>(&settings(6, 16, 20_000, seed), name, 5_000, seed);
    restored_skeleton_has_the_same_words::<GatewaySkeleton<2>>(&settings(16, 12, 500, seed), name, 300, seed);
}

#[test]
fn damaged_rows_of_a_gateway_are_refused() {
    let seed = seed();
    damaged_rows_are_refused::<GatewaySkeleton<1>>(&settings(6, 16, 20_000, seed), name, 6_000, 600, seed);
}

#[test]
fn a_change_of_one_name_writes_few_bytes_of_rows() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let entries: Vec<_> = (0..50_000).map(|n| (name::<1>(n), n as u32)).collect();
    let mut skeleton = GatewaySkeleton::<1>::build(&settings(6, 16, 60_000, seed), &entries, 1).unwrap();
    let (mut n_bytes, n_changes) = (0, 40_000);
    for at in 0..n_changes {
        _ = skeleton.remove(name(at));
        _ = skeleton.insert(name(50_000 + at), rng.below(100) as u32).unwrap();
        let rows = skeleton.take_rows(&[0], &[]);
        n_bytes += rows.iter().map(|row| row.key.len() + row.value.as_ref().map_or(0, Vec::len)).sum::<usize>();
    }
    let mean = n_bytes / n_changes as usize;
    println!("{mean} bytes of rows for a name removed and one inserted");
    assert!(mean < 3_000, "{mean} bytes");
}

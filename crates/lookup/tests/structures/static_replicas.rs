//! Static maps as replicas: encoding, the conformance test of control structures, and concurrent readers.

use std::sync::atomic::{AtomicBool, Ordering};

use super::restart::{damaged_rows_are_refused, restored_skeleton_has_the_same_words};
use fibula_lookup::base::bytes::Bytes;
use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::static_map::rebuilt::Version;
use fibula_lookup::static_map::{
    Bloomier, Entries, Orthogonal, Rebuilt, RebuiltQuery, SetSep, Settings, Sorted, StaticMap,
};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::Names;
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, BatchReader, Control, InsertError, Query, Undivided};

fn settings(value_bits: u8, seed: u64) -> Settings {
    Settings::new(value_bits, &SecretKey::from_seed(seed))
}

fn digest(number: u64) -> Digest {
    Digest(mix64(number + 1))
}

fn entries(n_names: u64, value_bits: u8) -> Vec<(Digest, u64)> {
    (0..n_names).map(|number| (digest(number), mix64(number) >> (64 - value_bits))).collect()
}

fn conforms<M>(key: impl Fn(u64) -> M::Key)
where
    M: StaticMap<Key: Ord + Send + Sync + std::hash::Hash + std::fmt::Debug> + Send + Sync + 'static,
{
    let seed = seed();
    for (value_bits, n_names, n_operations) in [(1, 6, 300), (8, 50, 600), (20, 50, 300)] {
        let mut table = Rebuilt::<M>::new(settings(value_bits, seed));
        let scope = Scope { n_operations, n_names, n_values: 1 << value_bits, check_every: 100, seed };
        let oracle = if M::EXACT { Names::exact() } else { Names::aliens() };
        conformance::random(&mut table, oracle.in_bytes(), |number| key(number ^ seed << 8), &scope);
    }
}

#[test]
fn a_bloomier_filter_that_is_rebuilt_conforms() {
    conforms::<Bloomier>(digest);
}

#[test]
fn a_setsep_that_is_rebuilt_conforms() {
    conforms::<SetSep>(digest);
}

#[test]
fn orthogonal_filters_that_are_rebuilt_conform() {
    conforms::<Orthogonal>(digest);
}

#[test]
fn a_sorted_map_that_is_rebuilt_conforms() {
    conforms::<Sorted<1>>(|number| [number]);
    conforms::<Sorted<3>>(|number| [number % 2, 0, number]);
}

#[test]
fn a_batch_is_one_version_and_what_changes_nothing_is_none() {
    let mut table = Rebuilt::<Bloomier>::new(settings(8, 1));
    let mut updates = Vec::new();
    table.insert_batch(&entries(100, 8), &mut updates).unwrap();
    assert_eq!((updates.len(), updates[0].version()), (1, 1));
    table.insert_batch(&entries(100, 8), &mut updates).unwrap();
    assert!(!table.remove(digest(200), &mut updates));
    assert_eq!(updates.len(), 1);
    assert!(table.remove(digest(77), &mut updates));
    assert_eq!((updates.len(), updates[1].version(), table.len()), (2, 2, 99));
    assert_eq!(table.export().lookup(digest(76)), entries(100, 8)[76].1);
}

#[test]
fn a_batch_that_is_refused_changes_nothing() {
    let mut table = Rebuilt::<SetSep>::new(settings(8, 1));
    let mut updates = Vec::new();
    table.insert_batch(&entries(90, 8), &mut updates).unwrap();
    let wide = [(digest(3), 5), (digest(91), 256), (digest(3), 6)];
    let refused = InsertError::ValueTooWide { value: 256, value_bits: 8 };
    assert_eq!(table.insert_batch(&wide, &mut updates), Err(refused));
    assert_eq!(updates.len(), 1);
    assert!(table.skeleton().iter().eq({
        let mut sorted = entries(90, 8);
        sorted.sort_unstable();
        sorted
    }));
}

/// Encodes and decodes, intact and in every damaged form: nothing panics, and a wrong digest is refused.
fn travels<M>(key: impl Fn(u64) -> M::Key)
where
    M: StaticMap<Key: Ord + Send + Sync> + Send + Sync + 'static,
{
    let seed = seed();
    let mut rng = Rng::new(seed);
    for (value_bits, n_names) in [(1, 0), (4, 1), (8, 700), (20, 700), (64, 100), (5, 20_000)] {
        let settings = settings(value_bits, seed);
        let mut table = Rebuilt::<M>::new(settings.clone());
        let filled: Vec<_> =
            entries(n_names, value_bits).iter().enumerate().map(|(i, e)| (key(i as u64), e.1)).collect();
        table.insert_batch(&filled, &mut Vec::new()).unwrap();
        let query = table.export();
        let mut bytes = Vec::new();
        query.image().encode(&mut bytes);
        let decoded = Version::<M>::decode(&settings, &bytes).unwrap();
        let copy = RebuiltQuery::from_image(&settings, &decoded).unwrap();
        assert_eq!((copy.held(), copy.size_bits()), (query.held(), query.size_bits()));
        // Aliens too: the structure is the same, not only the answers for names.
        let keys: Vec<_> = (0..n_names * 2 + 50).map(&key).collect();
        let (mut there, mut here) = (vec![0; keys.len()], vec![1; keys.len()]);
        query.lookup_batch(&keys, &mut there);
        copy.lookup_batch(&keys, &mut here);
        assert_eq!(there, here, "seed {seed}");
        for _ in 0..40 {
            let mut damaged = bytes.clone();
            match rng.below(3) {
                0 => damaged.truncate(rng.below(bytes.len() as u64) as usize),
                1 => damaged.push(0),
                _ => damaged[8 + rng.below(bytes.len() as u64 - 8) as usize] ^= 1 << rng.below(8),
            }
            assert!(Version::<M>::decode(&settings, &damaged).is_err(), "seed {seed}");
            // Beyond the digest the structure must be safe by itself: if it decodes, lookups stay inside it.
            if let Some(body) = damaged.get(16..)
                && let Ok(map) = M::decode(&settings, &mut Bytes(body))
            {
                map.lookup_batch(&keys, &mut here);
                keys.iter().for_each(|&key| _ = map.lookup(key));
            }
        }
    }
}

#[test]
fn a_bloomier_filter_travels_as_bytes() {
    travels::<Bloomier>(digest);
}

#[test]
fn a_setsep_travels_as_bytes() {
    travels::<SetSep>(digest);
}

#[test]
fn orthogonal_filters_travel_as_bytes() {
    travels::<Orthogonal>(digest);
}

#[test]
fn a_sorted_map_travels_as_bytes() {
    travels::<Sorted<1>>(|number| [number]);
    travels::<Sorted<2>>(|number| [number, !number]);
}

#[test]
fn readers_see_one_version_a_burst_and_the_newest_in_the_end() {
    const N_NAMES: u64 = 200;
    let seed = seed();
    let mut table = Rebuilt::<Bloomier>::new(settings(16, seed));
    let all = |value: u64| (0..N_NAMES).map(|number| (digest(number), value)).collect::<Vec<_>>();
    let mut updates = Vec::new();
    table.insert_batch(&all(1), &mut updates).unwrap();
    let mut query = RebuiltQuery::from_image(&settings(16, seed), &updates[0]).unwrap();
    let (done, started) = (AtomicBool::new(false), AtomicBool::new(false));
    let digests: Vec<_> = (0..N_NAMES).map(digest).collect();
    std::thread::scope(|scope| {
        let mut reader = query.reader();
        let (done, started, digests) = (&done, &started, &digests);
        scope.spawn(move || {
            let mut values = vec![0; digests.len()];
            let mut last = 1;
            loop {
                let over = done.load(Ordering::Acquire);
                reader.lookup_batch(digests, &mut values);
                started.store(true, Ordering::Release);
                assert!(values.iter().all(|&value| value == values[0]), "two versions in a burst");
                assert!(values[0] >= last, "back from version {last} to {}", values[0]);
                last = values[0];
                if over {
                    assert_eq!(last, 300);
                    return;
                }
            }
        });
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        for value in 2..=300 {
            updates.clear();
            table.insert_batch(&all(value), &mut updates).unwrap();
            assert_eq!(query.apply(&updates[0]), Ok(Applied::Applied));
            assert_eq!(query.apply(&updates[0]), Ok(Applied::AlreadyThere));
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn restored_names_make_the_same_maps() {
    let seed = seed();
    restored_skeleton_has_the_same_words::<Entries<Bloomier>>(&settings(16, seed), digest, 60, seed);
    restored_skeleton_has_the_same_words::<Entries<SetSep>>(&settings(5, seed), digest, 30, seed);
    restored_skeleton_has_the_same_words::<Entries<Orthogonal>>(&settings(5, seed), digest, 30, seed);
    restored_skeleton_has_the_same_words::<Entries<Sorted<1>>>(&settings(16, seed), |n| [n], 60, seed);
}

#[test]
fn damaged_rows_of_a_static_map_are_refused() {
    let seed = seed();
    damaged_rows_are_refused::<Entries<Bloomier>>(&settings(16, seed), digest, 500, 600, seed);
}

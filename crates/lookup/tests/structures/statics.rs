//! Static maps: every name gets its value, alone and in batches, whatever the names and the width of values.

use fibula_lookup::bloom::{Blocked, Standard};
use fibula_lookup::hash::{Digest, Family, Hasher, SecretKey};
use fibula_lookup::static_map::{Bloomier, Orthogonal, SetSep, Settings, Sorted, StaticMap};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Build, InsertError};

const WIDTHS: [u8; 6] = [1, 4, 8, 16, 20, 64];
const SIZES: [usize; 12] = [0, 1, 2, 3, 7, 8, 31, 100, 1_000, 5_000, 16_385, 100_000];

fn settings(value_bits: u8, seed: u64) -> Settings {
    Settings::new(value_bits, &SecretKey::from_seed(seed))
}

/// How names are derived from their numbers.
type Naming = (&'static str, fn(u64) -> u64);

/// Ordinary names, and names that break tables which hash badly.
const NAMINGS: [Naming; 4] = [
    ("sequential", |name| name),
    ("one a /24", |name| name << 8),
    ("in the high bytes", |name| name.reverse_bits()),
    ("in clusters of 16", |name| ((name / 16) << 32) | (name % 16)),
];

fn values(rng: &mut Rng, value_bits: u8, n: usize) -> Vec<u64> {
    (0..n).map(|_| rng.next_u64() >> (64 - value_bits)).collect()
}

/// Builds a map and looks up every name, alone and in a batch whose last burst is not full.
fn every_key_gets_its_value<M: StaticMap>(settings: &Settings, entries: &[(M::Key, u64)], context: &str) -> M {
    let map = M::build(settings, entries, 2).unwrap_or_else(|error| panic!("{context}: {error}"));
    let keys: Vec<_> = entries.iter().map(|&(key, _)| key).collect();
    let mut found = vec![u64::MAX; keys.len() + 1];
    map.lookup_batch(&keys, &mut found);
    assert_eq!(found[keys.len()], u64::MAX, "{context}: a value beyond the batch was written");
    for (index, (&(key, value), &found)) in entries.iter().zip(&found).enumerate() {
        assert_eq!(found, value, "{context}: entry {index} in a batch");
        assert_eq!(map.lookup(key), value, "{context}: entry {index} alone");
    }
    map
}

/// Over all widths, sizes and kinds of names; `key` makes a key of a name.
fn every_entry_is_answered<M: StaticMap>(key: impl Fn(&Hasher, u64) -> M::Key) {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(seed));
    for value_bits in WIDTHS {
        for (index, n_names) in SIZES.into_iter().enumerate() {
            // The large ones under one naming each, to save time.
            let (kind, name) = NAMINGS[(index + usize::from(value_bits)) % NAMINGS.len()];
            let keys = (0..n_names as u64).map(|number| key(&hasher, name(number)));
            let entries: Vec<_> = keys.zip(values(&mut rng, value_bits, n_names)).collect();
            let context = format!("{n_names} names, {kind}, {value_bits} bits, seed {seed}");
            every_key_gets_its_value::<M>(&settings(value_bits, seed), &entries, &context);
        }
    }
}

fn digest(hasher: &Hasher, name: u64) -> Digest {
    hasher.digest_word(name, 8)
}

#[test]
fn every_name_of_a_bloomier_filter_gets_its_value() {
    every_entry_is_answered::<Bloomier>(digest);
}

#[test]
fn every_name_of_a_setsep_gets_its_value() {
    every_entry_is_answered::<SetSep>(digest);
}

#[test]
fn every_name_of_orthogonal_bloom_filters_gets_its_value() {
    every_entry_is_answered::<Orthogonal>(digest);
}

#[test]
fn every_name_of_a_sorted_map_gets_its_value() {
    every_entry_is_answered::<Sorted<1>>(|_, name| [name]);
    every_entry_is_answered::<Sorted<1>>(|hasher, name| [digest(hasher, name).0]);
    every_entry_is_answered::<Sorted<3>>(|_, name| [name % 2, name / 7, name]);
    every_entry_is_answered::<Sorted<9>>(|_, name| [0, 0, 0, 0, 0, 0, 0, 0, name]);
}

#[test]
fn digests_that_are_not_random_at_all_get_their_values() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for (kind, name) in NAMINGS {
        let values = values(&mut rng, 8, 40_000);
        let entries: Vec<_> = (0..40_000).map(|number| Digest(name(number))).zip(values).collect();
        every_key_gets_its_value::<Bloomier>(&settings(8, seed), &entries, kind);
        every_key_gets_its_value::<SetSep>(&settings(8, seed), &entries, kind);
        every_key_gets_its_value::<Orthogonal<Blocked>>(&settings(8, seed), &entries, kind);
    }
}

fn what_cannot_be_is_refused<M: StaticMap>(key: impl Fn(u64) -> M::Key, duplicate: InsertError) {
    let build = |entries: &[(M::Key, u64)]| M::build(&settings(4, 1), entries, 2).map(|_| ());
    let mut entries: Vec<_> = (0..40_000).map(|number| (key(number + 1_000), number % 16)).collect();
    assert_eq!(build(&entries), Ok(()));
    let wide = InsertError::ValueTooWide { value: 16, value_bits: 4 };
    entries.push((key(77), 16));
    assert_eq!(build(&entries), Err(wide));
    // The same key with another value, with the same value, and as the only entries.
    for value in [1, 2] {
        entries.truncate(40_000);
        entries.extend([(key(77), 1), (key(77), value)]);
        assert_eq!(build(&entries), Err(duplicate.clone()));
        assert_eq!(build(&entries[40_000..]), Err(duplicate.clone()));
    }
}

#[test]
fn equal_digests_and_wide_values_are_refused() {
    let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(5));
    let duplicate = InsertError::DuplicateDigest { digest: digest(&hasher, 77).0 };
    what_cannot_be_is_refused::<Bloomier>(|name| digest(&hasher, name), duplicate.clone());
    what_cannot_be_is_refused::<SetSep>(|name| digest(&hasher, name), duplicate.clone());
    what_cannot_be_is_refused::<Orthogonal>(|name| digest(&hasher, name), duplicate);
    what_cannot_be_is_refused::<Sorted<2>>(|name| [name, !name], InsertError::DuplicateName { first_word: 77 });
}

/// 10^5 random entries, for the figures that a module states.
fn random_entries(value_bits: u8, n_names: usize, seed: u64) -> Vec<(Digest, u64)> {
    let mut rng = Rng::new(seed);
    let values = values(&mut rng, value_bits, n_names);
    values.into_iter().map(|value| (Digest(rng.next_u64()), value)).collect()
}

#[test]
fn a_bloomier_filter_has_1_23_cells_a_name() {
    for value_bits in [1, 8, 64] {
        let entries = random_entries(value_bits, 100_000, u64::from(value_bits));
        let map = Bloomier::build(&settings(value_bits, 1), &entries, 2).unwrap();
        let cells_a_name = map.n_cells() as f64 / map.len() as f64;
        assert!((1.23..1.245).contains(&cells_a_name), "{value_bits} bits: {cells_a_name}");
        let bits = map.size_bits() as f64 / entries.len() as f64;
        assert!(bits < 1.245 * f64::from(value_bits) + 0.02, "{value_bits} bits: {bits} bits a name");
    }
}

#[test]
fn a_setsep_has_half_a_bit_and_one_and_a_half_a_bit_of_value_a_name() {
    for value_bits in [1, 8] {
        let entries = random_entries(value_bits, 100 * 1_024, u64::from(value_bits));
        let map = SetSep::build(&settings(value_bits, 1), &entries, 2).unwrap();
        assert!(map.n_exact() * 1_000 < map.len(), "{} of {} names have no group", map.n_exact(), map.len());
        let bits = map.size_bits() as f64 / entries.len() as f64;
        let stated = 0.5 + 1.5 * f64::from(value_bits);
        assert!((stated..stated + 0.1).contains(&bits), "{value_bits} bits: {bits} bits a name, {stated} stated");
    }
}

#[test]
fn orthogonal_filters_are_wrong_about_few_names_and_those_are_in_the_exact_table() {
    let entries = random_entries(8, 100_000, 8);
    let map = Orthogonal::<Standard>::build(&settings(8, 1), &entries, 2).unwrap();
    // Half of eight bits are zero, and each is wrong in one name of 10,000: 40 names in 100,000.
    assert!((10..100).contains(&map.n_exact()), "{} names are in the exact table", map.n_exact());
    let bits = map.size_bits() as f64 / entries.len() as f64;
    assert!((76.0..78.0).contains(&bits), "{bits} bits a name, 9.6 a bit of value stated");
}

#[test]
fn a_build_is_the_same_on_any_number_of_threads() {
    let entries = random_entries(8, 50_000, 3);
    let aliens: Vec<_> = random_entries(8, 5_000, 4).into_iter().map(|(digest, _)| digest).collect();
    fn answers<M: StaticMap<Key = Digest>>(entries: &[(Digest, u64)], aliens: &[Digest], threads: usize) -> Vec<u64> {
        let map = M::build(&settings(8, 1), entries, threads).unwrap();
        let mut values = vec![0; aliens.len()];
        map.lookup_batch(aliens, &mut values);
        values
    }
    for threads in [2, 7] {
        assert_eq!(answers::<Bloomier>(&entries, &aliens, 1), answers::<Bloomier>(&entries, &aliens, threads));
        assert_eq!(answers::<SetSep>(&entries, &aliens, 1), answers::<SetSep>(&entries, &aliens, threads));
        assert_eq!(answers::<Orthogonal>(&entries, &aliens, 1), answers::<Orthogonal>(&entries, &aliens, threads));
    }
}

#[test]
fn a_sorted_map_knows_every_alien() {
    for n_names in (0..70).chain([1_000, 4_095, 4_096, 4_097]) {
        let entries: Vec<_> = (0..n_names).map(|number| ([2 * number + 1], number % 7 + 1)).collect();
        let map = Sorted::<1>::build(&settings(3, 1), &entries, 1).unwrap();
        let keys: Vec<_> = (0..=2 * n_names + 1).map(|name| [name]).chain([[u64::MAX]]).collect();
        let mut values = vec![u64::MAX; keys.len()];
        map.lookup_batch(&keys, &mut values);
        for (key, value) in keys.iter().zip(values) {
            let expected = (key[0] % 2 == 1 && key[0] < 2 * n_names).then_some(key[0] / 2 % 7 + 1);
            assert_eq!(map.get(key), expected, "{key:?} of {n_names}");
            assert_eq!(value, expected.unwrap_or(0), "{key:?} of {n_names} in a batch");
        }
    }
}

//! Alien names: the wrappers conform, and aliens pass at the stated rates, after a fill, after churn, and if they are
//! removed names.

use fibula_lookup::alien::checked::{self, Checksum, Marked};
use fibula_lookup::alien::named::{self, NameHash};
use fibula_lookup::alien::{BloomSet, Checked, Filter, Filtered, Named, bloom_set, filtered};
use fibula_lookup::bloom::{Blocked, Layout, Partitioned, Standard};
use fibula_lookup::cuckoo::exact::{self, CuckooSkeleton};
use fibula_lookup::hash::{Digest, Family, SecretKey, mix64};
use fibula_lookup::line::{self, LineSkeleton};
use fibula_lookup::othello::{self, Graph, Sharded};
use fibula_lookup::static_map::{self, Bloomier, Entries};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::{Names, Subject};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{
    Applied, ApplyError, BatchReader, Control, InsertError, Query, Replicated, SettingsOf, Single, Skeleton,
};

use super::conformance::{behind_bloom, tombstones};
use super::rates::{Judge, Mean, judge};

/// Filters and tables over which every rate is averaged.
const N_TABLES: usize = 1_000;

/// Whether the long suites run.
fn deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

fn key(seed: u64) -> SecretKey {
    SecretKey::from_seed(seed)
}

/// Names with values, those with values and checksums, and names alone.
type Values = Graph<Sharded, u64>;
type MarkedValues = Graph<Sharded, Marked<u64>>;
type Exact = CuckooSkeleton<1, ()>;

fn othello(value_bits: u8, max_names: usize, seed: u64) -> othello::Settings {
    othello::Settings::new(value_bits, max_names, &key(seed))
}

fn bloom<L: Layout>(max_names: usize, rate: f64, seed: u64) -> bloom_set::Settings<L> {
    bloom_set::Settings::new(max_names, rate, &key(seed))
}

fn exact(max_names: usize, seed: u64) -> exact::Settings {
    exact::Settings::new(6, 1, max_names, Family::MulAdd, &key(seed))
}

fn fixed(value_bits: u8, seed: u64) -> static_map::Settings {
    static_map::Settings::new(value_bits, &key(seed))
}

fn named<S>(table: S, seed: u64) -> named::Settings<S, 1> {
    named::Settings { table, map: NameHash::new(6, Family::MulAdd, &key(seed)) }
}

/// A table behind a filter.
pub(crate) fn filtered<F, T>(filter: SettingsOf<F>, table: SettingsOf<T>) -> Single<Filtered<F, T>>
where
    F: Skeleton<Payload = ()>,
    F::Query: Filter,
    T: Skeleton<Key = F::Key, Payload = u64>,
{
    Single::new(filtered::Settings { filter, table })
}

/// A table with checksums.
pub(crate) fn checked<S: Skeleton<Key = Digest, Payload = Marked<u64>>>(
    table: SettingsOf<S>,
    checksum: Checksum,
) -> Single<Checked<S>> {
    Single::new(checked::Settings { table, checksum })
}

fn digest(number: u64) -> Digest {
    Digest(mix64(number + 1))
}

fn name(number: u64) -> [u64; 1] {
    [number]
}

fn conforms<C>(
    mut control: C,
    oracle: Names<C>,
    key: impl Fn(u64) -> C::Key,
    n_names: u64,
    n_operations: usize,
    seed: u64,
) where
    C: Subject,
    C::Query: Query<Key = C::Key>,
{
    let scope = Scope { n_operations, n_names, n_values: 16, check_every: n_operations.div_ceil(8), seed };
    conformance::random(&mut control, oracle, key, &scope);
}

#[test]
fn tables_conform_behind_a_bloom_filter() {
    let seed = seed();
    let table = filtered::<BloomSet<Standard>, Values>(bloom(2_000, 0.1, seed), othello(4, 2_000, seed));
    conforms(table, behind_bloom(), digest, 900, 60_000, seed);
    let table = filtered::<BloomSet<Partitioned>, Values>(bloom(64, 0.5, seed), othello(4, 64, seed));
    conforms(table, behind_bloom(), digest, 12, 40_000, seed);
    let rebuilt = filtered::<BloomSet<Blocked>, Entries<Bloomier, u64>>(bloom(100, 0.01, seed), fixed(4, seed));
    conforms(rebuilt, Names::aliens().in_bytes(), digest, 40, 600, seed);
}

#[test]
fn tables_conform_with_checksums() {
    let seed = seed();
    let check = |bits| Checksum::new(bits, &key(seed));
    conforms(checked::<MarkedValues>(othello(12, 2_000, seed), check(8)), tombstones(), digest, 900, 60_000, seed);
    conforms(checked::<MarkedValues>(othello(5, 64, seed), check(1)), tombstones(), digest, 12, 40_000, seed);
    let rebuilt = checked::<Entries<Bloomier, Marked<u64>>>(fixed(7, seed), check(3));
    conforms(rebuilt, Names::aliens().in_bytes(), digest, 40, 600, seed);
}

#[test]
fn tables_conform_behind_an_exact_filter_of_names() {
    let seed = seed();
    let table = filtered::<Exact, Named<Values, 1>>(exact(2_000, seed), named(othello(4, 2_000, seed), seed));
    conforms(table, Names::exact().in_bytes(), name, 900, 60_000, seed);
}

#[test]
fn lines_conform_with_checksums_and_behind_an_exact_filter_of_names() {
    let seed = seed();
    let lines = |value_bits| line::Settings::new(value_bits, 2_000, &key(seed));
    let checked = checked::<LineSkeleton<Marked<u64>>>(lines(12), Checksum::new(8, &key(seed)));
    conforms(checked, Names::aliens().in_bytes(), digest, 900, 8_000, seed);
    let behind = filtered::<Exact, Named<LineSkeleton<u64>, 1>>(exact(2_000, seed), named(lines(4), seed));
    conforms(behind, Names::exact().in_bytes(), name, 900, 8_000, seed);
}

#[test]
fn wrappers_round_each_other_conform() {
    let seed = seed();
    let table = checked::Settings { table: othello(9, 600, seed), checksum: Checksum::new(5, &key(seed)) };
    let bloom = filtered::Settings { filter: bloom(600, 0.2, seed), table };
    type Inner = Filtered<BloomSet<Blocked>, Checked<MarkedValues>>;
    let all = filtered::<Exact, Named<Inner, 1>>(exact(600, seed), named(bloom, seed));
    conforms(all, Names::exact().in_bytes(), name, 250, 30_000, seed);
}

/// Fills tables, turns their names over twice, and hands each, with its live and its removed names, to `measure`.
fn after_fill_and_churn<C: Control<Key = Digest>>(
    n_names: usize,
    seed: u64,
    mut make: impl FnMut(u64) -> C,
    mut measure: impl FnMut(usize, &C, &C::Query, &[Digest], &mut Rng),
) where
    C::Query: Query<Key = Digest>,
{
    let mut rng = Rng::new(seed);
    let random = |rng: &mut Rng| (Digest(rng.next_u64()), 1 + rng.below(15));
    for _ in 0..N_TABLES {
        let mut control = make(rng.next_u64());
        let mut query = control.export();
        let mut updates = Vec::new();
        let mut live: Vec<_> = (0..n_names).map(|_| random(&mut rng)).collect();
        control.insert_batch(&live, &mut updates).unwrap();
        for stage in 0..2 {
            let mut removed = Vec::new();
            for _ in 0..stage * 2 * n_names {
                let index = rng.below(n_names as u64) as usize;
                assert!(control.remove(live[index].0, &mut updates));
                removed.push(live[index].0);
                live[index] = random(&mut rng);
                control.insert(live[index].0, live[index].1, &mut updates).unwrap();
            }
            updates.drain(..).for_each(|update| assert_eq!(query.apply(&update), Ok(Applied::Applied)));
            for &(digest, value) in &live {
                assert_eq!(query.lookup(digest), value);
            }
            measure(stage, &control, &query, &removed, &mut rng);
        }
    }
}

const STAGES: [&str; 2] = ["after a fill", "after two turnovers"];

/// The share of `digests` that pass.
fn share(digests: &[Digest], passes: impl Fn(Digest) -> bool) -> f64 {
    digests.iter().filter(|&&digest| passes(digest)).count() as f64 / digests.len() as f64
}

fn aliens(rng: &mut Rng) -> Vec<Digest> {
    (0..500).map(|_| Digest(rng.next_u64())).collect()
}

fn bloom_rates<L: Layout>(n_names: usize, rate: f64) {
    judge(|seed, judge| bloom_rates_under::<L>(n_names, rate, seed, judge));
}

fn bloom_rates_under<L: Layout>(n_names: usize, rate: f64, seed: u64, judge: &mut Judge) {
    let (mut rates, mut of_removed) = ([vec![], vec![]], vec![]);
    let mut answered = vec![];
    let settings = bloom_set::Settings::<L>::new(n_names, rate, &key(0));
    let bloom = |seed| bloom_set::Settings { seed, ..settings.clone() };
    let make = |seed| filtered::<BloomSet<L>, Values>(bloom(seed), othello(4, 2 * n_names, seed));
    after_fill_and_churn(n_names, seed, make, |stage, control, query, removed, rng| {
        let aliens = aliens(rng);
        rates[stage].push(share(&aliens, |alien| query.filter().lookup(alien) != 0));
        if stage == 1 {
            of_removed.push(share(removed, |name| query.filter().lookup(name) != 0));
            answered.push(share(&aliens, |alien| query.lookup(alien) != 0));
            assert!(
                removed.iter().filter(|&&name| control.skeleton().must_drop(name)).all(|&name| query.lookup(name) == 0)
            );
        }
    });
    let expected = settings.shape.expected_fp(n_names as u64);
    for (rates, stage) in rates.iter().zip(STAGES) {
        judge.is(&Mean::of(rates), expected, &format!("{} of {n_names}, {stage}", L::NAME));
    }
    judge.is(&Mean::of(&of_removed), expected, &format!("{} of {n_names}, removed names", L::NAME));
    // Some of those that pass find a 0 in the table.
    let answered = answered.iter().sum::<f64>() / answered.len() as f64;
    println!("{}: {answered:.6} of the aliens get an answer other than drop", L::NAME);
    assert!(answered < expected, "{answered} of the aliens are answered");
}

#[test]
fn aliens_pass_a_bloom_filter_as_often_as_the_formula_says() {
    bloom_rates::<Standard>(120, 0.05);
    if deep() {
        bloom_rates::<Blocked>(120, 0.05);
    }
}

#[test]
fn aliens_pass_a_checksum_of_r_bits_once_in_two_to_the_r() {
    judge(|seed, judge| {
        for bits in if deep() { vec![3, 6] } else { vec![4] } {
            let (mut rates, mut answered) = ([vec![], vec![]], vec![]);
            let make = |seed| checked::<MarkedValues>(othello(4 + bits, 240, seed), Checksum::new(bits, &key(seed)));
            after_fill_and_churn(120, seed, make, |stage, control, query, removed, rng| {
                let aliens = aliens(rng);
                rates[stage].push(share(&aliens, |alien| query.get(alien).is_some()));
                if stage == 1 {
                    answered.push(share(&aliens, |alien| query.lookup(alien) != 0));
                    let (tombstones, forgotten): (Vec<_>, Vec<_>) =
                        removed.iter().copied().partition(|&name| control.skeleton().must_drop(name));
                    assert!(tombstones.iter().all(|&name| query.lookup(name) == 0));
                    if !forgotten.is_empty() {
                        rates[stage].push(share(&forgotten, |name| query.get(name).is_some()));
                    }
                }
            });
            let expected = 0.5f64.powi(bits.into());
            assert_eq!(Checksum::new(bits, &key(0)).false_positive_rate(), expected);
            for (rates, stage) in rates.iter().zip(STAGES) {
                judge.is(&Mean::of(rates), expected, &format!("{bits} bits {stage}"));
            }
            let answered = answered.iter().sum::<f64>() / answered.len() as f64;
            println!("{bits} bits: {answered:.6} of the aliens get an answer other than drop");
            assert!(answered <= expected);
        }
    });
}

#[test]
fn no_alien_and_no_removed_name_passes_an_exact_filter() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for _ in 0..50 {
        let table = named(othello(4, 400, seed), seed);
        let mut control = filtered::<Exact, Named<Values, 1>>(exact(400, seed), table);
        let mut updates = Vec::new();
        let mut live: Vec<_> = (0..300).map(|_| [rng.below(1 << 48)]).collect();
        control
            .insert_batch(&live.iter().map(|&name| (name, 1 + rng.below(15))).collect::<Vec<_>>(), &mut updates)
            .unwrap();
        let mut removed = Vec::new();
        for _ in 0..600 {
            let index = rng.below(300) as usize;
            removed.push(live[index]);
            assert!(control.remove(live[index], &mut updates));
            live[index] = [rng.below(1 << 48)];
            control.insert(live[index], 1 + rng.below(15), &mut updates).unwrap();
        }
        let query = control.export();
        let aliens = (0..2_000).map(|_| [rng.below(1 << 48)]);
        for name in removed.into_iter().chain(aliens) {
            assert_eq!(query.lookup(name), control.get(name).unwrap_or(0), "seed {seed}");
        }
    }
}

/// Thirty turnovers at full capacity: every name is answered right, and nothing grows.
fn churn<C: Control>(control: &mut C, key: impl Fn(u64) -> C::Key, n_names: u64)
where
    C::Query: Query<Key = C::Key>,
{
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut updates = Vec::new();
    let mut live: Vec<u64> = (0..n_names).collect();
    let value = |number: u64| 1 + mix64(number) % 15;
    control
        .insert_batch(&live.iter().map(|&number| (key(number), value(number))).collect::<Vec<_>>(), &mut updates)
        .unwrap();
    updates.clear();
    let mut query = control.export();
    let (mut next, mut most_bits) = (n_names, query.size_bits());
    for turn in 1..=30 {
        for _ in 0..n_names {
            let index = rng.below(n_names) as usize;
            assert!(control.remove(key(live[index]), &mut updates), "seed {seed}, turnover {turn}");
            live[index] = next;
            control.insert(key(next), value(next), &mut updates).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            next += 1;
            for update in updates.drain(..) {
                assert_eq!(query.apply(&update), Ok(Applied::Applied), "seed {seed}, turnover {turn}");
            }
        }
        let keys: Vec<_> = live.iter().map(|&number| key(number)).collect();
        let mut values = vec![0; keys.len()];
        query.lookup_batch(&keys, &mut values);
        for (&number, found) in live.iter().zip(values) {
            assert_eq!(found, value(number), "seed {seed}, turnover {turn}: {number}");
        }
        most_bits = most_bits.max(query.size_bits());
    }
    assert_eq!(control.len() as u64, n_names);
    assert!(most_bits <= query.size_bits() * 2, "from {} to {most_bits} bits", query.size_bits());
}

#[test]
fn thirty_turnovers_leave_every_wrapper_right_and_as_large_as_it_was() {
    const N: usize = 1_500;
    let checksum = Checksum::new(4, &key(1));
    churn(&mut filtered::<BloomSet<Standard>, Values>(bloom(N, 0.01, 1), othello(4, N, 1)), digest, N as u64);
    churn(&mut checked::<MarkedValues>(othello(8, N, 1), checksum), digest, N as u64);
    churn(&mut filtered::<Exact, Named<Values, 1>>(exact(N, 1), named(othello(4, N, 1), 1)), name, N as u64);
}

#[test]
fn what_the_table_refuses_is_not_in_the_filter() {
    let mut control = filtered::<BloomSet<Standard>, Values>(bloom(3, 0.01, 1), othello(4, 3, 1));
    let mut updates = Vec::new();
    control.insert_batch(&[(digest(1), 1), (digest(2), 2), (digest(3), 3)], &mut updates).unwrap();
    let n_updates = updates.len();
    assert_eq!(control.insert(digest(4), 4, &mut updates), Err(InsertError::TooManyNames { max: 3 }));
    let wide = Err(InsertError::ValueTooWide { value: 16, value_bits: 4 });
    assert_eq!(control.insert(digest(1), 16, &mut updates), wide);
    assert_eq!((updates.len(), control.skeleton().filter().len()), (n_updates, 3));
    // If the filter is smaller than its table, the name is removed from the table again.
    let mut control = filtered::<BloomSet<Standard>, Values>(bloom(1, 0.01, 1), othello(4, 9, 1));
    let mut query = control.export();
    let mut updates = Vec::new();
    control.insert(digest(1), 1, &mut updates).unwrap();
    assert_eq!(control.insert(digest(2), 2, &mut updates), Err(InsertError::TooManyNames { max: 1 }));
    assert_eq!((control.len(), control.get(digest(2))), (1, None));
    updates.iter().for_each(|update| _ = query.apply(update).unwrap());
    assert_eq!((query.lookup(digest(1)), query.lookup(digest(2))), (1, 0));
}

#[test]
fn values_that_leave_no_room_for_the_checksum_are_refused_in_their_own_terms() {
    let mut control = checked::<MarkedValues>(othello(12, 10, 1), Checksum::new(8, &key(1)));
    let wide = Err(InsertError::ValueTooWide { value: 17, value_bits: 4 });
    assert_eq!(control.insert(digest(1), 17, &mut Vec::new()), wide);
    assert_eq!(control.insert_batch(&[(digest(1), 17)], &mut Vec::new()), wide);
    let mut control = checked::<MarkedValues>(othello(64, 10, 1), Checksum::new(Checksum::MAX_BITS, &key(1)));
    let wide = Err(InsertError::ValueTooWide { value: 1 << 32, value_bits: 32 });
    assert_eq!(control.insert(digest(1), 1 << 32, &mut Vec::new()), wide);
}

type Travelling = Single<Filtered<BloomSet<Standard>, Checked<Entries<Bloomier, Marked<u64>>>>>;

fn travelling(seed: u64) -> Travelling {
    let table = checked::Settings { table: fixed(12, seed), checksum: Checksum::new(8, &key(seed)) };
    filtered(bloom(500, 0.05, seed), table)
}

#[test]
fn wrappers_travel_as_bytes_and_refuse_what_is_lost_or_damaged() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut control = travelling(seed);
    let mut query = control.export();
    let settings = Replicated::settings(&query);
    let mut updates = Vec::new();
    for number in 0..60 {
        control.insert(digest(number), number % 16, &mut updates).unwrap();
    }
    control.insert_batch(&(100..400).map(|number| (digest(number), 3)).collect::<Vec<_>>(), &mut updates).unwrap();
    for number in 0..30 {
        control.remove(digest(number), &mut updates);
    }
    assert!(matches!(query.apply(&updates[2]), Err(ApplyError::Gap { .. })));
    for update in &updates {
        let mut bytes = Vec::new();
        Of::<Travelling>::encode_update(&settings, update, &mut bytes);
        for _ in 0..4 {
            let mut damaged = bytes.clone();
            match rng.below(3) {
                0 => damaged.truncate(rng.below(bytes.len() as u64) as usize),
                1 => damaged.push(0),
                // After the versions, which the digest does not cover.
                _ => damaged[16 + rng.below(bytes.len() as u64 - 16) as usize] ^= 1 << rng.below(8),
            }
            // What decodes as an update of another kind or version is refused, or changes nothing.
            if let Ok(damaged) = Of::<Travelling>::decode_update(&settings, &damaged) {
                let held = query.held();
                let _ = query.apply(&damaged);
                if query.held() == held {
                    continue;
                }
                query = Replicated::from_images(&settings, &query_at(&updates, update, seed).images()).unwrap();
            }
        }
        let decoded = Of::<Travelling>::decode_update(&settings, &bytes).unwrap();
        query.apply(&decoded).unwrap();
        assert_eq!(query.held(), query_at(&updates, update, seed).held());
    }
    assert_eq!(query.held(), control.export().held());
    let mut bytes = Vec::new();
    Of::<Travelling>::encode_update(&settings, &Of::<Travelling>::update_of(query.images()), &mut bytes);
    let whole = Of::<Travelling>::decode_update(&settings, &bytes).unwrap();
    let images = Of::<Travelling>::images_of(&whole).unwrap();
    let copy = Of::<Travelling>::from_images(&settings, images).unwrap();
    let mut late = travelling(seed).export();
    late.overwrite(images).unwrap();
    let keys: Vec<_> = (0..2_000).map(digest).collect();
    let [mut a, mut b, mut c] = [0, 1, 2].map(|value| vec![value; keys.len()]);
    query.lookup_batch(&keys, &mut a);
    copy.lookup_batch(&keys, &mut b);
    late.reader().lookup_batch(&keys, &mut c);
    assert_eq!((&a, copy.held(), late.held()), (&b, query.held(), query.held()));
    assert_eq!(a, c);
}

/// A query structure that has applied `updates` up to and including `last`.
fn query_at(
    updates: &[<Of<Travelling> as Query>::Update],
    last: &<Of<Travelling> as Query>::Update,
    seed: u64,
) -> Of<Travelling> {
    let mut query = travelling(seed).export();
    for update in updates {
        query.apply(update).unwrap();
        if std::ptr::eq(update, last) {
            break;
        }
    }
    query
}

type Of<C> = <C as Control>::Query;

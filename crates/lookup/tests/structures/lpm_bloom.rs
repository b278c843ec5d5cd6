//! Longest prefix match behind Bloom filters: right with every filter and in both configurations, and what the filters
//! cost and reveal.

use super::prefixes;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fibula_lookup::bloom::theory::expected_probes;
use fibula_lookup::bloom::{DoubleHashing, Layout, OneHashing, Shape, Standard};
use fibula_lookup::hash::{Family, SecretKey};
use fibula_lookup::lpm::bloom::{BloomLpm, BloomLpmQuery, Keyed, Membership, OwnHash, Settings, Steps, Update};
use fibula_lookup::lpm::prefix::{Address, Prefix};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, ApplyError, BatchReader, Control, InsertError, Query};
use prefixes::{LongestPrefix, StopAtEnd, deep, numbered};

/// Positions per entry: the number of the paper's experiments.
const K: u32 = 10;

/// A filter with as many bits as make k = 10 optimal for this many entries.
fn shape<L: Layout>(n_entries: usize) -> Shape<L> {
    Shape::new((n_entries as f64 * f64::from(K) / std::f64::consts::LN_2) as u64, K).unwrap()
}

fn keyed<L: Layout>(n_entries: usize, key: &SecretKey) -> Keyed<L> {
    Keyed::new(shape(n_entries), Family::MulAdd, key)
}

fn settings<F>(steps: Steps, filter: F, max_entries: usize, key: &SecretKey) -> Settings<F> {
    Settings { steps, filter, max_entries, family: Family::MulAdd, key: key.clone() }
}

/// The oracle of a table. Two tables of the same prefixes have the same digests and the same bits.
pub(crate) fn oracle<A: Address, F: Membership<A>, const W: usize>(
    settings: &Settings<F>,
) -> LongestPrefix<BloomLpm<A, F, W>> {
    let table = settings.table::<A>();
    let carried = move |_: &BloomLpmQuery<A, F, W>, update: &Update<W>| {
        let mut bytes = Vec::new();
        update.encode(&table, &mut bytes);
        let carried = Update::decode(&bytes, &table).unwrap();
        assert_eq!(&carried, update);
        Some(carried)
    };
    let state = |query: &BloomLpmQuery<A, F, W>| format!("{:?} {}", query.held(), query.fill_rate()).into_bytes();
    LongestPrefix { state, carried: Box::new(carried) }
}

fn conforms<A: Address, F: Membership<A>, const W: usize>(settings: Settings<F>, seed: u64) {
    let n_operations = if deep() { 20_000 } else { 500 };
    for (n_names, n_values) in [(100, 3), (300, 1 << 15)] {
        let mut control = BloomLpm::<A, F, W>::new(settings.clone());
        let scope = Scope { n_operations, n_names, n_values, check_every: n_operations.div_ceil(4), seed };
        let oracle = oracle(&settings);
        let live = conformance::random(&mut control, oracle, |number| numbered(number, seed), &scope);
        assert_eq!(settings.steps.count_entries(live.into_keys()), control.n_entries(), "seed {seed}");
    }
}

fn every_filter_conforms<A: Address, const W: usize>() {
    let seed = seed();
    let (n, key) = (60_000, &SecretKey::from_seed(seed));
    for steps in [Steps::every::<A>(), Steps::few::<A>()] {
        conforms::<A, _, W>(settings(steps.clone(), keyed::<OneHashing>(n, key), n, key), seed);
        conforms::<A, _, W>(settings(steps.clone(), keyed::<DoubleHashing>(n, key), n, key), seed);
        conforms::<A, _, W>(settings(steps.clone(), keyed::<Standard>(n, key), n, key), seed);
        conforms::<A, _, W>(settings(steps, OwnHash::new(shape(n)), n, key), seed);
    }
}

#[test]
fn ipv4_tables_conform_with_every_filter() {
    every_filter_conforms::<u32, 1>();
}

#[test]
fn ipv6_tables_conform_with_every_filter() {
    every_filter_conforms::<u128, 3>();
}

#[test]
fn gaps_duplicates_and_damage_are_noticed_and_change_nothing() {
    fn whole<A: Address, const W: usize>() {
        let key = &SecretKey::from_seed(1);
        let settings = settings(Steps::few::<A>(), keyed::<OneHashing>(300, key), 300, key);
        let table = settings.table::<A>();
        let mut control = BloomLpm::<A, _, W>::new(settings);
        let mut query = control.export();
        let prefix = |number, len| Prefix::of(A::from_first(number, 32), len);
        let mut updates = Vec::new();
        control.insert(prefix(0x0a01_0203, 30), 5, &mut updates).unwrap();
        control.insert(prefix(0x0a01_0000, 16), 6, &mut updates).unwrap();
        // Some bits go, and the length with them.
        control.remove(prefix(0x0a01_0203, 30), &mut updates);
        let (last, first) = updates.split_last().unwrap();
        assert!(!last.clear.is_empty() && first.iter().all(|update| update.clear.is_empty()));
        assert!(matches!(query.apply(last), Err(ApplyError::Gap { current: 0, from: 2, .. })));
        for update in first {
            assert_eq!(query.apply(update), Ok(Applied::Applied));
            assert_eq!(query.apply(update), Ok(Applied::AlreadyThere));
        }
        let state = |query: &BloomLpmQuery<A, Keyed<OneHashing>, W>| {
            let answers = [0x0a01_0202, 0x0a01_0300, 0x0b00_0000].map(|ip| query.lookup(A::from_first(ip, 32)));
            (query.held(), query.fill_rate(), query.n_lengths(), answers)
        };
        let before = state(&query);
        assert_eq!(before.3, [5, 6, 0]);
        let mut bytes = Vec::new();
        last.encode(&table, &mut bytes);
        // Every byte except those of the versions: another digest, or no update at all.
        for at in (0..bytes.len()).filter(|at| !(0..16).contains(at)) {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(update) = Update::<W>::decode(&damaged, &table) {
                    assert!(query.apply(&update).is_err(), "IPv{}, byte {at}, bit {bit}", A::VERSION);
                    assert_eq!(state(&query), before, "IPv{}, byte {at}, bit {bit}", A::VERSION);
                }
            }
            assert!(Update::<W>::decode(&bytes[..at], &table).is_err(), "{at} bytes");
        }
        bytes.push(0);
        assert!(Update::<W>::decode(&bytes, &table).is_err(), "a byte too many");
        assert_eq!(query.apply(last), Ok(Applied::Applied));
        assert_eq!((state(&query).0, state(&query).3), (control.export().held(), [6, 6, 0]));
    }
    whole::<u32, 1>();
    whole::<u128, 3>();
}

#[test]
fn entries_are_counted_once_and_one_too_many_is_refused() {
    let prefixes = ["10.0.0.0/9", "10.0.0.0/8", "10.64.0.0/10", "10.1.0.0/16", "1.2.3.0/31", "0.0.0.0/0"];
    let prefixes = prefixes.map(|text| text.parse::<Prefix<u32>>().unwrap());
    assert_eq!(Steps::every::<u32>().count_entries(prefixes), 6);
    // A /8, half of its /16s, two hosts and the default route.
    assert_eq!(Steps::few::<u32>().count_entries(prefixes), 1 + 128 + 2 + 1);
    let key = SecretKey::from_seed(1);
    let few = settings(Steps::few::<u32>(), keyed::<OneHashing>(200, &key), 131, &key);
    let mut control = BloomLpm::<u32, _, 1>::new(few);
    let mut updates = Vec::new();
    for prefix in &prefixes[..5] {
        control.insert(*prefix, 1, &mut updates).unwrap();
    }
    assert_eq!(control.n_entries(), 131);
    updates.clear();
    let refused = control.insert(prefixes[5], 1, &mut updates);
    assert_eq!((refused, updates.len(), control.len()), (Err(InsertError::TooManyNames { max: 131 }), 0, 5));
    // A prefix that is already covered does not count as a new entry.
    control.insert("10.2.0.0/16".parse().unwrap(), 2, &mut updates).unwrap();
}

/// `n` prefixes of 25 lengths, from 8 to 32, and addresses in them.
fn scattered(rng: &mut Rng, n: usize) -> (Vec<Prefix<u32>>, Vec<u32>) {
    let prefix =
        |at: usize, rng: &mut Rng| Prefix::of(rng.next_u64() as u32, if at < 50 { 8 } else { 16 } + (at % 17) as u8);
    let prefixes: Vec<_> = (0..n).map(|at| prefix(at, rng)).collect();
    let inside = |rng: &mut Rng| {
        let prefix = prefixes[rng.below(n as u64) as usize];
        prefix.address() | (rng.next_u64() as u32 & (prefix.last() ^ prefix.address()))
    };
    let addresses = (0..4 * n).map(|_| inside(rng)).collect();
    (prefixes, addresses)
}

/// Equation (17): a look-up that finds its prefix probes once for it, and at most `W f` times in vain.
#[test]
fn probes_are_as_many_as_the_equation_says() {
    let seed = seed();
    let (mut rng, key) = (Rng::new(seed), SecretKey::from_seed(seed));
    let (prefixes, addresses) = scattered(&mut rng, 30_000);
    let expected = expected_probes(25, 0.5f64.powi(K as i32));
    fn measure<F: Membership<u32>>(prefixes: &[Prefix<u32>], addresses: &[u32], filter: F, key: &SecretKey) -> f64 {
        let mut control = BloomLpm::<u32, F, 1>::new(settings(Steps::every::<u32>(), filter, prefixes.len(), key));
        for (at, &prefix) in prefixes.iter().enumerate() {
            control.insert(prefix, 1 + at as u64 % 100, &mut Vec::new()).unwrap();
        }
        let query = control.export();
        assert_eq!(query.n_lengths(), 25);
        let n_probes = query.lookup_counted(addresses, &mut vec![0; addresses.len()]);
        n_probes as f64 / addresses.len() as f64
    }
    let n = prefixes.len();
    for (name, measured) in [
        ("one-hashing", measure(&prefixes, &addresses, keyed::<OneHashing>(n, &key), &key)),
        ("double hashing", measure(&prefixes, &addresses, keyed::<DoubleHashing>(n, &key), &key)),
        ("standard", measure(&prefixes, &addresses, keyed::<Standard>(n, &key), &key)),
    ] {
        println!("{name}: {measured:.5} probes a look-up, {expected:.5} by equation (17)");
        // Three standard deviations of the vain probes, of which there are at most W f per look-up.
        let slack = 3.0 * ((expected - 1.0) / addresses.len() as f64).sqrt();
        assert!((1.0..expected + slack).contains(&measured), "seed {seed}, {name}: {measured}, {expected}");
    }
}

/// The paper pads prefixes with zeros: as their own words, 10.0.0.0/8 and 0.10.0.0/16 are equal. Digests include the
/// length.
#[test]
fn prefixes_of_other_lengths_are_positive_only_where_the_address_is_its_own_hash() {
    fn share<F: Membership<u32>>(filter: F, key: &SecretKey) -> usize {
        let mut control = BloomLpm::<u32, F, 1>::new(settings(Steps::every::<u32>(), filter, 1000, key));
        let prefix = |n: u32| Prefix::of((10 + n) << 24, 8);
        (0..100).for_each(|n| control.insert(prefix(n), 1, &mut Vec::new()).unwrap());
        let query = control.export();
        (0..100).filter(|n| query.may_hold(Prefix::of((10 + n) << 16, 16))).count()
    }
    let key = SecretKey::from_seed(seed());
    assert_eq!(share(OwnHash::new(shape(1000)), &key), 100);
    assert!(share(keyed::<OneHashing>(1000, &key), &key) < 3);
}

/// An attacker who knows the partitions announces the k hosts `y + m_i`, and every look-up of y probes in vain.
#[test]
fn ten_chosen_hosts_make_a_victim_positive_only_where_the_address_is_its_own_hash() {
    fn positive<F: Membership<u32>>(filter: F, partitions: &[u64], key: &SecretKey) -> usize {
        let mut control = BloomLpm::<u32, F, 1>::new(settings(Steps::every::<u32>(), filter, 5000, key));
        let victim = |n: u32| 0x0a00_0000 + n * 0x1_0001;
        for n in 0..50 {
            for &m_i in partitions {
                let host = Prefix::of(victim(n) + m_i as u32, 32);
                control.insert(host, 1, &mut Vec::new()).unwrap();
            }
        }
        let query = control.export();
        (0..50).filter(|&n| query.may_hold(Prefix::of(victim(n), 32))).count()
    }
    let key = SecretKey::from_seed(seed());
    let own = OwnHash::new(shape(5000));
    let partitions = own.partitions();
    assert_eq!(partitions.len(), K as usize);
    assert_eq!(positive(own, &partitions, &key), 50);
    assert!(positive(keyed::<OneHashing>(5000, &key), &partitions, &key) < 3);
}

/// A prefix that stays is always found, while others next to, above and below it come and go.
#[test]
fn no_answer_is_wrong_beside_a_writer() {
    const N: u64 = 64;
    let n_answers: u64 = if deep() { 20_000_000 } else { 200_000 };
    let seed = seed();
    let key = SecretKey::from_seed(seed);
    let all = settings(Steps::few::<u32>(), keyed::<OneHashing>(20_000, &key), 20_000, &key);
    let mut control = BloomLpm::<u32, _, 1>::new(all);
    let net = |n: u64| 0x0a00_0000u32 + ((n as u32) << 8);
    let mut updates = Vec::new();
    for n in 0..N {
        control.insert(Prefix::of(net(n), 24), 100 + n, &mut updates).unwrap();
    }
    // Hosts in them have the answer of the net, or one of their own.
    let mut query = control.export();
    let mut reader = query.reader();
    let (done, n_updates) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (done, n_updates) = (&done, &n_updates);
        let _stop = StopAtEnd(done);
        let writer = scope.spawn(move || {
            let mut rng = Rng::new(seed);
            while !done.load(Ordering::Relaxed) {
                updates.clear();
                let n = rng.below(N);
                let prefix = match rng.below(3) {
                    0 => Prefix::of(net(n), 16 + rng.below(8) as u8),
                    1 => Prefix::of(net(n) + 200, 30),
                    _ => Prefix::of(net(n) + 7, 32),
                };
                if rng.below(2) == 0 {
                    control.insert(prefix, 7, &mut updates).unwrap();
                } else {
                    control.remove(prefix, &mut updates);
                }
                for update in &updates {
                    query.apply(update).unwrap();
                }
                n_updates.fetch_add(updates.len() as u64, Ordering::Relaxed);
            }
        });
        let mut rng = Rng::new(seed ^ 1);
        let (mut numbers, mut addresses, mut values) = ([0; 32], [0; 32], [0; 32]);
        let mut n_answered = 0;
        // Without a second idle core the writer may be scheduled late: the lookups go on until it has made some
        // updates.
        let too_few = || n_updates.load(Ordering::Relaxed) < n_answers / 1000 && !writer.is_finished();
        while n_answered < n_answers || too_few() {
            n_answered += 32;
            for (number, address) in numbers.iter_mut().zip(&mut addresses) {
                *number = rng.below(2 * N);
                *address = net(*number / 2) + if *number % 2 == 0 { 50 } else { 7 };
            }
            reader.lookup_batch(&addresses, &mut values);
            for (&n, &value) in numbers.iter().zip(&values) {
                let right = value == 100 + n / 2 || n % 2 == 1 && value == 7;
                assert!(right, "seed {seed}: {n} answers {value}");
            }
        }
        reader.offline();
    });
}

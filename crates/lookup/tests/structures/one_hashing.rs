//! Tables VII to X of "Low Computational Cost Bloom Filters": how often one-hashing and double-hashing filters with
//! 1000 names take an alien for a member, compared with the formulas. And the configuration in which one-hashing fails.
//!
//! By default 1,000 filters per row, whose rates follow from their bits, and a few thousand aliens each. With
//! `FIBULA_DEEP` set, 4,000 filters and as many aliens as a precision of 1 % needs, up to 10^9 per row.

use super::rates;

use fibula_lookup::bloom::theory::{f_o, f_s};
use fibula_lookup::bloom::{AddressHashing, Bloom, DoubleHashing, Layout, OneHashing, Shape, partition_sizes};
use fibula_lookup::hash::{Digest, Family, Hasher, SecretKey};
use fibula_lookup::testkit::{Rng, seed};
use rates::{Judge, Mean, judge};

const N_NAMES: u64 = 1000;

/// Rows of Tables VII and VIII (k = 3), IX and X (k = 10): m.
const TABLES: [(&str, usize, u32, [u64; 10]); 4] = [
    ("VII", 4, 3, [10003, 11003, 11993, 13003, 13993, 14995, 16003, 17011, 18005, 19009]),
    ("VIII", 13, 3, [10003, 11993, 13993, 16003, 18005, 19993, 22013, 24013, 26009, 28001]),
    ("IX", 4, 10, [10012, 11018, 11978, 12990, 14002, 14968, 16000, 16974, 18008, 18974]),
    ("X", 13, 10, [10012, 11978, 14002, 16000, 18008, 19986, 21956, 24010, 25998, 28014]),
];

fn is_deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

/// Digests of the addresses, or 5-tuples, from number `from` on: sequential clients, as in one network.
fn digests(hasher: &Hasher, key_bytes: usize, from: u64, digests: &mut [Digest]) {
    if key_bytes == 4 {
        let words: Vec<u64> = (from..from + digests.len() as u64).map(|number| number & 0xffff_ffff).collect();
        hasher.digest_words(&words, 4, digests);
        return;
    }
    for (number, digest) in (from..).zip(digests) {
        let mut key = *b"CLNTSERV\x80\x00\x01\xbb\x06";
        key[..4].copy_from_slice(&(number as u32).to_be_bytes());
        *digest = hasher.digest(&key);
    }
}

/// Rates of many filters: as the bits say, and as counted with aliens.
struct Measured {
    computed: Mean,
    counted: Mean,
    n_positive: u64,
}

fn measure<L: Layout>(key_bytes: usize, k: u32, m: u64, rate: f64, seed: u64) -> Measured {
    let n_filters = if is_deep() { 4_000 } else { 1_000 };
    let n_aliens = if is_deep() { (160_000.0 / rate).min(1e9) as u64 / n_filters } else { 3_000 };
    let shape = Shape::<L>::new(m, k).unwrap();
    assert_eq!(shape.bits(), m);
    let mut rng = Rng::new(seed ^ m);
    let (mut computed, mut counted, mut n_positive) = (vec![], vec![], 0);
    let (mut names, mut present) = (vec![Digest(0); N_NAMES as usize], vec![false; 4096]);
    for _ in 0..n_filters {
        let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(rng.next_u64()));
        let mut filter = Bloom::<L>::new(shape, rng.next_u64());
        digests(&hasher, key_bytes, 0, &mut names);
        names.iter().for_each(|&name| filter.insert(name));
        let (mut aliens, mut n_here) = (vec![Digest(0); 4096], 0);
        for from in (0..n_aliens).step_by(4096) {
            let n = (n_aliens - from).min(4096) as usize;
            digests(&hasher, key_bytes, N_NAMES + from, &mut aliens[..n]);
            filter.lookup_batch(&aliens[..n], &mut present);
            n_here += present[..n].iter().filter(|&&present| present).count() as u64;
        }
        n_positive += n_here;
        counted.push(n_here as f64 / n_aliens as f64);
        computed.push(filter.false_positive_rate());
    }
    Measured { computed: Mean::of(&computed), counted: Mean::of(&counted), n_positive }
}

fn table(index: usize) {
    judge(|seed, judge| table_under(index, seed, judge));
}

fn table_under(index: usize, seed: u64, judge: &mut Judge) {
    let (name, key_bytes, k, rows) = TABLES[index];
    println!("Table {name}: {key_bytes}-byte keys, k = {k}; differences to the standard filter's formula in %");
    for m in rows {
        let sizes = partition_sizes(m, k);
        assert_eq!(sizes.iter().sum::<u64>(), m, "the sizes of the paper's tables are sums of consecutive primes");
        let (standard, theory) = (f_s(m, N_NAMES, k), f_o(&sizes, N_NAMES));
        let one = measure::<OneHashing>(key_bytes, k, m, theory, seed);
        let two = measure::<DoubleHashing>(key_bytes, k, m, theory, seed);
        let percent = |rate: f64| (rate / standard - 1.0) * 100.0;
        println!(
            "m = {m}: {standard:.3e}, one-hashing theory {:+.3}, computed {:+.3}, counted {:+.3} ({} aliens), double-hashing {:+.3}",
            percent(theory),
            percent(one.computed.mean),
            percent(one.counted.mean),
            one.n_positive,
            percent(two.counted.mean)
        );
        let context = format!("Table {name}, m = {m}");
        judge.is(&one.computed, theory, &format!("{context}, computed"));
        let is_near = |rate: f64| (rate / theory - 1.0).abs() < 0.01;
        judge.holds(is_near(one.computed.mean), &format!("{context}: computed within 1 % of theory"));
        // Few positive aliens are not normally distributed.
        if one.n_positive >= 100 {
            judge.is(&one.counted, theory, &format!("{context}, counted"));
        }
        if one.n_positive >= 100_000 {
            judge.holds(is_near(one.counted.mean), &format!("{context}: counted within 1 % of theory"));
        }
        let noise = one.counted.error.hypot(two.counted.error);
        let is_worse = one.counted.mean > two.counted.mean + 3.0 * noise;
        judge.holds(!is_worse, &format!("{context}: no worse than double hashing"));
    }
}

#[test]
fn table_vii() {
    table(0);
}

#[test]
fn table_viii() {
    table(1);
}

#[test]
fn table_ix() {
    table(2);
}

#[test]
fn table_x() {
    table(3);
}

/// The paper's case study uses a prefix, as a number, as its own hash value. Prefixes come in runs. If one is as far
/// from an alien as a partition is large, it is nearly as far as the other partitions are large, and is hit in all.
#[test]
fn prefixes_as_their_own_words_fail_where_they_come_in_runs_and_digests_do_not() {
    fn rate<L: Layout>(runs: &[u64], shape: Shape<L>, seed: u64, word: impl Fn(u64) -> Digest) -> f64 {
        let mut filter = Bloom::new(shape, seed);
        runs.iter().for_each(|run| (0..256).for_each(|net| filter.insert(word(run << 8 | net))));
        let mut rng = Rng::new(!seed);
        let aliens = std::iter::repeat_with(|| rng.below(1 << 24)).filter(|alien| !runs.contains(&(alien >> 8)));
        let n_aliens = 100_000;
        aliens.take(n_aliens).filter(|&alien| filter.lookup(word(alien))).count() as f64 / n_aliens as f64
    }
    // 2,500 /16s of which every /24 is announced; sizes are those of the case study.
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut runs: Vec<u64> = (0..2_500).map(|_| rng.below(1 << 16)).collect();
    runs.sort_unstable();
    runs.dedup();
    let (n_names, m, k) = (runs.len() as u64 * 256, 9_400_000, 10);
    let theory = f_o(&partition_sizes(m, k), n_names);
    let itself = rate(&runs, Shape::<AddressHashing>::new(m, k).unwrap(), seed, Digest);
    let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(seed));
    let keyed = rate(&runs, Shape::<OneHashing>::new(m, k).unwrap(), seed, |prefix| hasher.digest_word(prefix, 4));
    println!("{n_names} prefixes: theory {theory:.5}, prefixes as words {itself:.5}, digests {keyed:.5}");
    assert!(itself > 20.0 * theory, "{itself} and {theory}");
    assert!(keyed < 1.5 * theory, "{keyed} and {theory}");
}

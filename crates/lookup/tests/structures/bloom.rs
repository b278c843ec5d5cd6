//! Bloom filters: no member is missed, and aliens are positive at the rates of the formulas, before and after churn.

use super::rates;

use fibula_lookup::bloom::{
    AddressHashing, BitChange, Blocked, Bloom, CounterBits, Counting, DoubleHashing, Layout, OneHashing, Partitioned,
    RemoveError, Shape, Standard, UnionError, optimal_hashes,
};
use fibula_lookup::hash::{Digest, Family, Hasher, SecretKey};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::ApplyError;
use rates::{Judge, Mean, judge};

/// Filters over which every rate is averaged.
const N_FILTERS: usize = 1_000;
/// Inserts into a counting filter, and removes from one, ignoring the changes.
trait Quiet {
    fn add(&mut self, digest: Digest);
    fn take(&mut self, digest: Digest) -> Result<(), RemoveError>;
}

impl<L: Layout> Quiet for Counting<L> {
    fn add(&mut self, digest: Digest) {
        self.insert(digest, &mut Vec::new());
    }
    fn take(&mut self, digest: Digest) -> Result<(), RemoveError> {
        self.remove(digest, &mut Vec::new())
    }
}

fn random_digests(rng: &mut Rng, n: usize) -> Vec<Digest> {
    (0..n).map(|_| Digest(rng.next_u64())).collect()
}

/// How many digests are positive. Single and batched lookups must agree, whatever the batch's length.
fn n_positive<L: Layout>(filter: &Bloom<L>, digests: &[Digest]) -> usize {
    let mut present = vec![false; digests.len() + 1];
    filter.lookup_batch(digests, &mut present);
    for (&digest, &present) in digests.iter().zip(&present) {
        assert_eq!(filter.lookup(digest), present, "{digest:?} alone and in a batch");
    }
    present.iter().filter(|&&present| present).count()
}

fn no_member_is_missed<L: Layout>() {
    let mut rng = Rng::new(seed());
    for n_names in [0, 1, 31, 32, 33, 1_000, 20_000] {
        for (bits_a_name, n_hashes) in [(1, 1), (10, 7), (20, 14), (40, 32)] {
            let shape = Shape::<L>::new((n_names as u64 * bits_a_name).max(1), n_hashes).unwrap();
            let mut filter = Bloom::new(shape, rng.next_u64());
            let names = random_digests(&mut rng, n_names);
            names.iter().for_each(|&name| filter.insert(name));
            assert_eq!(n_positive(&filter, &names), n_names, "{} {bits_a_name} bits a name, {n_hashes}", L::NAME);
            filter.clear();
            assert_eq!(n_positive(&filter, &names), 0);
        }
    }
}

#[test]
fn no_member_is_missed_in_any_layout() {
    no_member_is_missed::<Standard>();
    no_member_is_missed::<Partitioned>();
    no_member_is_missed::<Blocked>();
    no_member_is_missed::<OneHashing>();
    no_member_is_missed::<AddressHashing>();
    no_member_is_missed::<DoubleHashing>();
}

fn batches_agree_with_single_lookups_in_a_large_filter<L: Layout>() {
    let mut rng = Rng::new(seed());
    for n_hashes in [1, 2, 3, 7, 32] {
        let mut filter = Bloom::new(Shape::<L>::new(8 << 20, n_hashes).unwrap(), rng.next_u64());
        // Half the bits are one, so that names are undecided at every step.
        let names = random_digests(&mut rng, (8 << 20) * 7 / 10 / n_hashes as usize);
        names.iter().for_each(|&name| filter.insert(name));
        assert_eq!(n_positive(&filter, &names), names.len(), "{} {n_hashes}", L::NAME);
        let mixed: Vec<_> = names.into_iter().zip(random_digests(&mut rng, 40_007)).flat_map(<[_; 2]>::from).collect();
        for from in 0..40 {
            n_positive(&filter, &mixed[from..from * 3]);
        }
        assert!(n_positive(&filter, &mixed) >= mixed.len() / 2);
    }
}

#[test]
fn batches_agree_with_single_lookups_where_filters_do_not_fit_the_cache() {
    batches_agree_with_single_lookups_in_a_large_filter::<Standard>();
    batches_agree_with_single_lookups_in_a_large_filter::<Partitioned>();
    batches_agree_with_single_lookups_in_a_large_filter::<Blocked>();
    batches_agree_with_single_lookups_in_a_large_filter::<OneHashing>();
    batches_agree_with_single_lookups_in_a_large_filter::<AddressHashing>();
    batches_agree_with_single_lookups_in_a_large_filter::<DoubleHashing>();
}

/// Fills counting filters, turns all their names over, and compares the rate of aliens with the formula: as counted,
/// and as the filter computes it from its bits, which is free of the noise of counting.
fn rates_are_those_of_the_formula<L: Layout>(n_names: usize, bits: u64, n_hashes: u32) {
    judge(|seed, judge| rates_under::<L>(n_names, bits, n_hashes, seed, judge));
}

fn rates_under<L: Layout>(n_names: usize, bits: u64, n_hashes: u32, seed: u64, judge: &mut Judge) {
    const N_ALIENS: usize = 1_000;
    let shape = Shape::<L>::new(bits, n_hashes).unwrap();
    let mut rng = Rng::new(seed);
    let (mut counted, mut computed) = ([vec![], vec![]], [vec![], vec![]]);
    for _ in 0..N_FILTERS {
        let mut filter = Counting::new(shape, CounterBits::Four, rng.next_u64());
        let mut names = random_digests(&mut rng, n_names);
        names.iter().for_each(|&name| filter.add(name));
        for turnover in 0..2 {
            let aliens = random_digests(&mut rng, N_ALIENS);
            counted[turnover].push(n_positive(filter.filter(), &aliens) as f64 / N_ALIENS as f64);
            computed[turnover].push(filter.filter().false_positive_rate());
            assert_eq!(n_positive(filter.filter(), &names), n_names);
            // Three turnovers, one name at a time, in an order that mixes old names with new ones.
            for _ in 0..if turnover == 0 { 3 * n_names } else { 0 } {
                let index = rng.below(n_names as u64) as usize;
                filter.take(names[index]).expect("a live name can be removed");
                names[index] = Digest(rng.next_u64());
                filter.add(names[index]);
            }
        }
    }
    let expected = shape.expected_fp(n_names as u64);
    for (turnover, when) in ["filled", "after churn"].into_iter().enumerate() {
        let context = format!("{}, n = {n_names}, m = {}, k = {n_hashes}, {when}", L::NAME, shape.bits());
        judge.is(&Mean::of(&counted[turnover]), expected, &format!("{context}, counted"));
        judge.is(&Mean::of(&computed[turnover]), expected, &format!("{context}, computed"));
    }
}

#[test]
fn a_thousand_standard_filters_have_the_false_positives_of_the_formula_before_and_after_churn() {
    rates_are_those_of_the_formula::<Standard>(200, 2_000, 7);
    rates_are_those_of_the_formula::<Standard>(1_000, 5_003, 3);
    rates_are_those_of_the_formula::<Standard>(64, 512, 1);
}

#[test]
fn a_thousand_partitioned_filters_have_the_false_positives_of_the_formula_before_and_after_churn() {
    rates_are_those_of_the_formula::<Partitioned>(200, 2_000, 7);
    rates_are_those_of_the_formula::<Partitioned>(1_000, 5_003, 3);
}

#[test]
fn a_thousand_one_hashing_filters_have_the_false_positives_of_equation_7_before_and_after_churn() {
    rates_are_those_of_the_formula::<OneHashing>(200, 2_000, 7);
    rates_are_those_of_the_formula::<OneHashing>(300, 3_000, 10);
}

#[test]
fn a_thousand_blocked_filters_have_the_false_positives_of_the_mixture_before_and_after_churn() {
    rates_are_those_of_the_formula::<Blocked>(500, 5_000, 7);
    rates_are_those_of_the_formula::<Blocked>(1_000, 6_000, 4);
    rates_are_those_of_the_formula::<Blocked>(200, 3_072, 10);
}

#[test]
fn sequential_and_clustered_names_have_no_more_false_positives_than_random_ones() {
    let (n_names, n_aliens) = (2_000u64, 2_000);
    let shape = Shape::<Standard>::for_names(n_names, 0.02).unwrap();
    judge(|seed, judge| {
        let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(seed));
        for (kind, stride) in [("sequential", 1), ("one a /24", 256), ("in the high bytes", 1 << 32)] {
            let digest = |name: u64| hasher.digest_word(name.wrapping_mul(stride), 8);
            let rates: Vec<f64> = (0..200)
                .map(|number| {
                    let mut filter = Bloom::new(shape, seed ^ number);
                    (0..n_names).for_each(|name| filter.insert(digest(name)));
                    let aliens: Vec<_> = (n_names..n_names + n_aliens).map(digest).collect();
                    n_positive(&filter, &aliens) as f64 / n_aliens as f64
                })
                .collect();
            judge.is(&Mean::of(&rates), shape.expected_fp(n_names), kind);
        }
    });
}

#[test]
fn the_optimal_number_of_positions_has_the_fewest_false_positives() {
    for bits_a_name in 1..40 {
        let rate = |n_hashes| Shape::<Standard>::new(bits_a_name * 1_000, n_hashes).unwrap().expected_fp(1_000);
        let best = (1..=32).min_by(|&a, &b| rate(a).total_cmp(&rate(b))).unwrap();
        assert_eq!(optimal_hashes(bits_a_name * 1_000, 1_000), best, "{bits_a_name} bits a name");
    }
}

#[test]
fn filters_of_one_shape_and_seed_hold_the_same_names_in_the_same_bits() {
    let shape = Shape::<Partitioned>::new(5_120, 5).unwrap();
    let names = random_digests(&mut Rng::new(seed()), 200);
    let (mut plain, mut counting) = (Bloom::new(shape, 3), Counting::new(shape, CounterBits::Eight, 3));
    names.iter().for_each(|&name| plain.insert(name));
    names.iter().rev().for_each(|&name| counting.add(name));
    let aliens = random_digests(&mut Rng::new(1), 20_000);
    assert!(aliens.iter().all(|&alien| plain.lookup(alien) == counting.lookup(alien)));
    assert_eq!(plain.false_positive_rate(), counting.filter().false_positive_rate());
    assert_eq!(counting.size_bits(), 9 * plain.size_bits());
}

fn a_union_holds_the_names_of_both<L: Layout>() {
    let mut rng = Rng::new(seed());
    let (shape, filter_seed) = (Shape::<L>::new(6_000, 5).unwrap(), rng.next_u64());
    let (one, other) = (random_digests(&mut rng, 300), random_digests(&mut rng, 400));
    let filled = |names: &[&[Digest]]| {
        let mut filter = Bloom::new(shape, filter_seed);
        names.concat().iter().for_each(|&name| filter.insert(name));
        filter
    };
    let mut union = filled(&[&one]);
    union.union_with(&filled(&[&other])).unwrap();
    assert_eq!(union.words(), filled(&[&one, &other]).words());
    let before = union.clone();
    assert_eq!(union.union_with(&Bloom::new(shape, !filter_seed)), Err(UnionError::Seed));
    for other in [Shape::new(12_000, 5).unwrap(), Shape::new(6_000, 6).unwrap()] {
        let refused = union.union_with(&Bloom::new(other, filter_seed));
        assert!(matches!(refused, Err(UnionError::Shape { .. })), "{refused:?}");
    }
    assert_eq!(union.words(), before.words(), "a refused union has no effect");

    // With counters the names of both can be removed, and those in both twice.
    let filled = |names: &[&[Digest]], bits| {
        let mut filter = Counting::new(shape, bits, filter_seed);
        names.concat().iter().for_each(|&name| filter.add(name));
        filter
    };
    let (mut counting, mut follower) =
        (filled(&[&one], CounterBits::Four), filled(&[&one], CounterBits::Four).filter().clone());
    let mut changes = Vec::new();
    counting.union_with(&filled(&[&other, &one[..100]], CounterBits::Four), &mut changes).unwrap();
    follower.apply(&changes).unwrap();
    assert_eq!(follower.words(), counting.filter().words());
    let eight = filled(&[&other], CounterBits::Eight);
    assert_eq!(counting.union_with(&eight, &mut changes), Err(UnionError::Counters));
    [&one[..], &other].concat().iter().for_each(|&name| counting.take(name).unwrap());
    assert_eq!(n_positive(counting.filter(), &one[..100]), 100);
    one[..100].iter().for_each(|&name| counting.take(name).unwrap());
    assert!(counting.filter().words().iter().all(|&word| word == 0));
}

#[test]
fn filters_of_one_geometry_unite_and_others_are_refused() {
    a_union_holds_the_names_of_both::<Standard>();
    a_union_holds_the_names_of_both::<Partitioned>();
    a_union_holds_the_names_of_both::<Blocked>();
    a_union_holds_the_names_of_both::<OneHashing>();
    a_union_holds_the_names_of_both::<DoubleHashing>();
}

/// Trap of one-hashing: if an attacker chooses words and knows the sizes, k names `y + m_i` have all bits of y.
#[test]
fn names_chosen_by_partition_sizes_break_unmixed_words_and_not_mixed_ones() {
    fn n_victims<L: Layout>(sizes: &[u64], seed: u64) -> usize {
        let mut rng = Rng::new(seed);
        let shape = Shape::<L>::new(sizes.iter().sum(), sizes.len() as u32).unwrap();
        let is_positive = |victim: u64| {
            let mut filter = Bloom::<L>::new(shape, seed);
            sizes.iter().for_each(|size| filter.insert(Digest(victim + size)));
            filter.lookup(Digest(victim))
        };
        (0..1000).filter(|_| is_positive(rng.next_u64() >> 32)).count()
    }
    let (sizes, seed) = (fibula_lookup::bloom::partition_sizes(9_400_000, 10), seed());
    assert_eq!(n_victims::<AddressHashing>(&sizes, seed), 1000);
    assert_eq!(n_victims::<OneHashing>(&sizes, seed), 0);
}

/// An export with all changes applied is the export of the end, bit by bit.
fn changes_bring_an_export_along<L: Layout>() {
    let mut rng = Rng::new(seed());
    let mut filter = Counting::new(Shape::<L>::new(4_000, 6).unwrap(), CounterBits::Four, rng.next_u64());
    let (mut follower, mut late) = (filter.filter().clone(), filter.filter().clone());
    let mut names = Vec::new();
    for operation in 0..20_000 {
        let mut changes = Vec::new();
        // In waves between none and some 700 names, so that bits go both ways.
        if names.is_empty() || rng.below(100) < if operation / 2_000 % 2 == 0 { 65 } else { 35 } {
            names.push(Digest(rng.next_u64()));
            filter.insert(names[names.len() - 1], &mut changes);
        } else {
            let name = names.swap_remove(rng.below(names.len() as u64) as usize);
            filter.remove(name, &mut changes).unwrap();
        }
        let mut bits: Vec<_> = changes.iter().map(|change| change.bit).collect();
        bits.sort_unstable();
        bits.dedup();
        assert_eq!(bits.len(), changes.len(), "a bit changes once");
        for _ in 0..2 {
            follower.apply(&changes).unwrap();
        }
        late.apply(&changes).unwrap();
        if operation % 3_000 == 0 {
            late = filter.filter().clone();
        }
    }
    assert_eq!(follower.words(), filter.filter().words());
    assert_eq!(late.words(), filter.filter().words());
    assert_eq!(n_positive(&follower, &names), names.len());
    let beyond = [BitChange { bit: 0, one: true }, BitChange { bit: filter.filter().shape().bits(), one: true }];
    assert!(matches!(follower.apply(&beyond), Err(ApplyError::Malformed { .. })));
    assert_eq!(follower.words(), filter.filter().words(), "a refused update has no effect");
}

#[test]
fn an_export_with_all_changes_applied_is_the_export_of_the_end() {
    changes_bring_an_export_along::<Standard>();
    changes_bring_an_export_along::<Partitioned>();
    changes_bring_an_export_along::<Blocked>();
    changes_bring_an_export_along::<OneHashing>();
    changes_bring_an_export_along::<AddressHashing>();
    changes_bring_an_export_along::<DoubleHashing>();
}

#[test]
fn an_emptied_counting_filter_has_no_bit_left() {
    let mut rng = Rng::new(seed());
    let shape = Shape::<Standard>::new(3_000, 6).unwrap();
    let mut filter = Counting::new(shape, CounterBits::Four, rng.next_u64());
    let mut names = random_digests(&mut rng, 300);
    names.iter().for_each(|&name| filter.add(name));
    while let Some(name) = names.pop() {
        filter.take(name).unwrap();
        assert_eq!(n_positive(filter.filter(), &names), names.len());
    }
    assert_eq!(filter.filter().false_positive_rate(), 0.0);
}

#[test]
fn counters_saturate_and_never_wrap() {
    for (bits, max) in [(CounterBits::Four, 15), (CounterBits::Eight, 255)] {
        let mut rng = Rng::new(seed());
        // Every counter is hit about three times as often as it can count.
        let n_names = 3 * max * 16;
        let mut filter = Counting::new(Shape::<Standard>::new(64, 4).unwrap(), bits, rng.next_u64());
        let (names, kept) = (random_digests(&mut rng, n_names), random_digests(&mut rng, 8));
        names.iter().chain(&kept).for_each(|&name| filter.add(name));
        assert_eq!(filter.n_saturated(), 64, "{bits:?}");
        names.iter().for_each(|&name| filter.take(name).unwrap());
        assert_eq!(filter.n_saturated(), 64, "{bits:?}: what saturated stays");
        assert_eq!(n_positive(filter.filter(), &kept), kept.len(), "{bits:?}");
        filter.clear();
        assert_eq!((filter.n_saturated(), n_positive(filter.filter(), &kept)), (0, 0));
    }
}

#[test]
fn members_survive_churn_in_an_overfull_filter_whose_counters_saturate() {
    let mut rng = Rng::new(seed());
    let shape = Shape::<Blocked>::new(2_048, 8).unwrap();
    let mut filter = Counting::new(shape, CounterBits::Four, rng.next_u64());
    let mut names = random_digests(&mut rng, 2_500);
    names.iter().for_each(|&name| filter.add(name));
    assert!(filter.n_saturated() > 100);
    for _ in 0..30 * names.len() {
        let index = rng.below(names.len() as u64) as usize;
        filter.take(names[index]).unwrap();
        names[index] = Digest(rng.next_u64());
        filter.add(names[index]);
    }
    assert_eq!(n_positive(filter.filter(), &names), names.len());
}

#[test]
fn a_removal_that_is_refused_changes_nothing() {
    let mut rng = Rng::new(seed());
    let shape = Shape::<Standard>::new(1_000, 7).unwrap();
    let mut filter = Counting::new(shape, CounterBits::Four, rng.next_u64());
    let names = random_digests(&mut rng, 100);
    names.iter().for_each(|&name| filter.add(name));
    let aliens: Vec<_> = random_digests(&mut rng, 5_000).into_iter().filter(|&alien| !filter.lookup(alien)).collect();
    for &alien in &aliens {
        assert_eq!(filter.take(alien), Err(RemoveError::NotThere { digest: alien.0 }));
    }
    assert_eq!(n_positive(filter.filter(), &names), names.len());
    names.iter().for_each(|&name| filter.take(name).unwrap());
    assert_eq!(filter.filter().false_positive_rate(), 0.0, "a counter was changed by a refused removal");
}

#[test]
fn deletes_of_absent_names_lose_members_unless_an_exact_table_gates_them() {
    let mut rng = Rng::new(seed());
    let n_names = 2_000;
    // One false positive in five aliens: the filter is overfull, so positive aliens are plenty.
    let shape = Shape::<Standard>::new(n_names * 4, 3).unwrap();
    let mut gated = Counting::new(shape, CounterBits::Four, 1);
    let names = random_digests(&mut rng, n_names as usize);
    names.iter().for_each(|&name| gated.add(name));
    let mut ungated = gated.clone();
    let mut exact: std::collections::HashSet<Digest> = names.iter().copied().collect();
    for absent in random_digests(&mut rng, n_names as usize) {
        // A name that is detectably absent is refused; other absent names take the bits of members away.
        let _ = ungated.take(absent);
        if exact.remove(&absent) {
            gated.take(absent).unwrap();
        }
    }
    assert_eq!(n_positive(gated.filter(), &names), names.len());
    assert!(n_positive(ungated.filter(), &names) < names.len());
}

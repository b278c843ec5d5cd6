//! Small filters against strangers: what is printed of a filter is how often it is wrong, in every layout.
//!
//! Few names are where formulas for many fail: positions coincide, and a stranger may have all positions of a name.

use fibula_lookup::bloom::named::LAYOUTS;
use fibula_lookup::bloom::{Bloom, Layout, Shape};
use fibula_lookup::hash::Digest;
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::with_layout;

/// Strangers of a layout and rate: so many over all numbers of names, and with `FIBULA_DEEP` for each of them.
const N_STRANGERS: usize = 10_000_000;
/// Filters among which they are divided.
const N_FILTERS: usize = 50;
/// How far the rate that is expected before the names are known may be off: double hashing of more than 2,048 bits has the
/// largest error that is known, 28 %.
const OFF: f64 = 0.3;

fn is_deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

/// The number of names for which a layout is tried, and the strangers for each.
fn tried() -> (Vec<usize>, usize) {
    if is_deep() {
        return ((1..=64).collect(), N_STRANGERS);
    }
    let some = vec![1, 2, 3, 5, 8, 16, 33, 64];
    let n = N_STRANGERS / some.len();
    (some, n)
}

fn printed_rates<L: Layout>(fp: f64, rng: &mut Rng, wrong: &mut Vec<String>) {
    let (some, n_strangers) = tried();
    for n_names in some {
        let shape = Shape::<L>::for_names(n_names as u64, fp).unwrap();
        let expected = shape.expected_fp(n_names as u64);
        let context =
            format!("{}, {n_names} names at {fp}: {} bits, {} positions", L::NAME, shape.bits(), shape.n_hashes());
        if expected > fp * 1.05 {
            wrong.push(format!("{context}: {expected:.3e} is expected of the shape for {fp:.3e}"));
        }
        let (mut n_positive, mut printed) = (0, 0.0);
        let n = n_strangers / N_FILTERS;
        for _ in 0..N_FILTERS {
            let mut filter = Bloom::<L>::new(shape, rng.next_u64());
            (0..n_names).for_each(|_| filter.insert(Digest(rng.next_u64())));
            printed += filter.false_positive_rate() * n as f64;
            n_positive += (0..n).filter(|_| filter.lookup(Digest(rng.next_u64()))).count();
        }
        let (got, n) = (n_positive as f64, (n * N_FILTERS) as f64);
        // Five standard errors, and one hit more or less.
        let error = 5.0 * printed.sqrt() + 5.0;
        if (got - printed).abs() > error + if shape.bits() > 2048 { OFF * printed } else { 0.0 } {
            wrong.push(format!("{context}: {got} of {n} strangers are positive, {printed:.1} by what is printed"));
        }
        // Filters differ among each other: by a few of their own standard errors, which are largest with few names.
        let between = 5.0 * (expected * n) / (N_FILTERS as f64 * n_names as f64).sqrt();
        if (got - expected * n).abs() > 5.0 * (expected * n).sqrt() + 5.0 + OFF * expected * n + between {
            wrong.push(format!("{context}: {got} of {n} strangers are positive, {:.1} expected", expected * n));
        }
    }
}

#[test]
fn printed_rates_are_those_of_strangers_in_every_layout() {
    let seed = seed();
    let (mut rng, mut wrong) = (Rng::new(seed), Vec::new());
    for layout in LAYOUTS {
        for fp in [0.1, 1e-3, 1e-6] {
            with_layout!(layout, L => printed_rates::<L>(fp, &mut rng, &mut wrong));
        }
    }
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
}

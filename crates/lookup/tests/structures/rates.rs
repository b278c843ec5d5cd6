//! Rates averaged over many filters, with their standard errors, and what is said of them.
//!
//! Of many figures at three standard errors, some are further off by chance. So what is too far off under one seed is
//! measured again under another, and must hold then. A defect of three standard errors and more is found nevertheless: it is
//! off both times.

use fibula_lookup::hash::mix64;
use fibula_lookup::testkit::seed;
use std::collections::BTreeSet;

/// Mean and standard error of one number per filter. The standard error includes the spread between filters.
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) error: f64,
}

impl Mean {
    pub(crate) fn of(samples: &[f64]) -> Self {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { mean, error: (variance / n).sqrt() }
    }
}

/// The figures that are too far off under one seed, by what is said of them.
#[derive(Default)]
pub(crate) struct Judge(BTreeSet<String>);

impl Judge {
    /// The mean is that expected, within three standard errors.
    pub(crate) fn is(&mut self, figure: &Mean, expected: f64, context: &str) {
        let sigmas = (figure.mean - expected) / figure.error;
        println!("{context}: {:.6} +- {:.6}, expected {expected:.6}: {sigmas:+.2} sigma", figure.mean, figure.error);
        self.holds((figure.mean - expected).abs() <= 3.0 * figure.error, context);
    }

    /// Something that by chance does not hold for a few seeds in a thousand. `context` is the same under every seed.
    pub(crate) fn holds(&mut self, holds: bool, context: &str) {
        if !holds {
            self.0.insert(context.to_owned());
        }
    }
}

/// Judges what `measure` finds under one seed, and if something does not hold, under another.
pub(crate) fn judge(measure: impl Fn(u64, &mut Judge)) {
    let under = |seed: u64| {
        let mut judge = Judge::default();
        measure(seed, &mut judge);
        judge.0
    };
    let seed = seed();
    let first = under(seed);
    if first.is_empty() {
        return;
    }
    println!("measured again under another seed, for what did not hold: {first:?}");
    let second = under(mix64(seed ^ 1));
    let both: Vec<_> = first.intersection(&second).collect();
    assert!(both.is_empty(), "under two seeds, {seed} the first, these do not hold: {both:?}");
}

#[test]
fn what_is_off_under_every_seed_is_found_and_what_is_off_under_one_is_not() {
    let off_by = |errors: f64, seed: u64| Mean { mean: 1.0 + errors * 0.1 + 0.01 * (seed % 7) as f64, error: 0.1 };
    judge(|seed, judge| judge.is(&off_by(1.0, seed), 1.0, "near"));
    let defect = || judge(|seed, judge| judge.is(&off_by(4.0, seed), 1.0, "far"));
    assert!(std::panic::catch_unwind(defect).is_err());
    let first = std::cell::Cell::new(true);
    judge(|seed, judge| judge.is(&off_by(if first.replace(false) { 9.0 } else { 0.0 }, seed), 1.0, "by chance"));
}

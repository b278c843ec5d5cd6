//! The equations of `fibula_fib::model` against structures in the papers' configuration that count what they do: one
//! hash function per position, called when it is needed; lines read as they are reached. They live here because they
//! are built to be counted, not to be used.
//!
//! Each comparison is of means over independent instances, within three standard errors of those means, so that the
//! spread between instances counts. The names are always the same unless FIBULA_SEED is set: three sigma are exceeded
//! once in 370 comparisons.

mod bloom;
mod built;
mod cuckoo;
mod messages;
mod othello;

use std::cell::Cell;

use lookup::hash::mix64;
use lookup::testkit::Rng;

/// The seed of all tests here, printed where one fails.
fn seed() -> u64 {
    let seed = std::env::var("FIBULA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("FIBULA_SEED={seed}");
    seed
}

/// What lookups cost.
#[derive(Default)]
struct Counts {
    hashes: Cell<u64>,
    lines: Cell<u64>,
}

impl Counts {
    /// The hash function number `function`, below `range`.
    fn hash(&self, name: u64, function: u64, range: u64) -> u64 {
        self.hashes.set(self.hashes.get() + 1);
        hash(name, function, range)
    }

    fn read(&self, n_lines: u64) {
        self.lines.set(self.lines.get() + n_lines);
    }
}

/// A random function: another one for each `function`, all independent.
fn hash(name: u64, function: u64, range: u64) -> u64 {
    let word = mix64(mix64(name ^ mix64(function ^ 0x243F_6A88_85A3_08D3)));
    ((u128::from(word) * u128::from(range)) >> 64) as u64
}

/// What one instance has measured: means over its lookups.
#[derive(Clone, Copy, Default)]
struct Measured {
    hashes: f64,
    lines: f64,
    /// Share of lookups that gave a wrong answer.
    wrong: f64,
}

/// Looks up all `names`; `lookup` says whether the answer was wrong. `name_lines` is for reading the name itself.
fn measure(names: &[u64], name_lines: f64, counts: &Counts, lookup: impl Fn(u64) -> bool) -> Measured {
    let (hashes, lines) = (counts.hashes.get(), counts.lines.get());
    let wrong = names.iter().filter(|&&name| lookup(name)).count();
    let a_name = |count: u64| count as f64 / names.len() as f64;
    Measured {
        hashes: a_name(counts.hashes.get() - hashes),
        lines: name_lines + a_name(counts.lines.get() - lines),
        wrong: a_name(wrong as u64),
    }
}

/// Checks the mean of `measured` against `computed`.
fn holds(what: &str, measured: impl Iterator<Item = f64>, computed: f64) {
    let measured: Vec<f64> = measured.collect();
    let n = measured.len() as f64;
    let mean = measured.iter().sum::<f64>() / n;
    let variance = measured.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // Where all instances agree, floating point is the only error left.
    let error = (variance / n).sqrt() + computed.abs() * 1e-9;
    let sigmas = (mean - computed) / error;
    println!("{what}: {mean:.6} +- {error:.6} measured, {computed:.6} computed: {sigmas:+.2} sigma");
    assert!(sigmas.abs() <= 3.0, "{what}: {mean} +- {error} measured, {computed} computed, {sigmas:.1} sigma");
}

/// Checks hash calls and lines.
fn costs_hold(what: &str, measured: &[Measured], c_h: f64, c_m: f64) {
    holds(&format!("{what}, hash calls"), measured.iter().map(|one| one.hashes), c_h);
    holds(&format!("{what}, lines"), measured.iter().map(|one| one.lines), c_m);
}

/// `n` names, and `n_aliens` others.
fn names(rng: &mut Rng, n: usize, n_aliens: usize) -> (Vec<u64>, Vec<u64>) {
    let mut draw = |n: usize| (0..n).map(|_| rng.next_u64()).collect();
    (draw(n), draw(n_aliens))
}

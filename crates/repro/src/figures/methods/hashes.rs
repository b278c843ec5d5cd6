//! Hash functions: the tests of [`crate::hash_lab`], and the cost of a hash compared with a remainder.

use std::hint::black_box;
use std::time::Instant;

use lookup::bloom::modulus::Modulus;
use lookup::hash::{Family, Hasher, SecretKey};
use serde::Deserialize;

use super::{Method, Progress, Setting};
use crate::BenchError;
use crate::figures::{Point, X};
use crate::hash_lab::Table;
use crate::hash_lab::chi_squared::LEAST_VALUES;
use crate::hash_lab::functions::TABLE_IV;
use crate::hash_lab::keys::Keys;
use crate::names::Random;
use crate::stats::Summary;

pub(super) const METHODS: &[Method] = &[
    Method {
        name: "hash-random",
        about: "1 where a function passes the randomness test on keys of a length, 0 where it does not",
        check: |setting| setting.parameters::<Randomness>()?.check(),
        run: |setting, _| randomness(setting),
        toy: "keys = 2000",
    },
    Method {
        name: "hash-independent",
        about: "1 where two functions pass the independence test, 0 where they do not; x is one of them, the series the other",
        check: |setting| setting.parameters::<Independence>()?.check(),
        run: |setting, _| independence(setting),
        toy: "keys = 2000",
    },
    Method {
        name: "hash-cost",
        about: "cycles of hash functions over keys of a length, and of a remainder",
        check: |setting| setting.parameters::<Costs>()?.check(setting),
        run: costs,
        toy: "runs = 1\noperations = 100",
    },
];

fn check_keys(keys: usize, key_bytes: usize, alpha: f64) -> Result<(), BenchError> {
    let wrong = |text: String| Err(BenchError::Setting(text));
    if !(LEAST_VALUES as usize..=1 << 26).contains(&keys) {
        return wrong(format!("there are {keys} keys; use {LEAST_VALUES} to 64M"));
    }
    if ![Keys::ADDRESS, Keys::TUPLE].contains(&key_bytes) {
        return wrong(format!("keys have {key_bytes} bytes; use 4 or 13"));
    }
    if !(alpha > 0.0 && alpha < 1.0) {
        return wrong(format!("the level is {alpha}; use more than 0 and less than 1"));
    }
    Ok(())
}

fn keys(n: usize, key_bytes: usize, seed: u64) -> Keys {
    if key_bytes == Keys::ADDRESS { Keys::addresses(n, seed) } else { Keys::tuples(n, seed) }
}

fn is_true(passes: bool) -> f64 {
    f64::from(u8::from(passes))
}

/// The number of a function in Table IV, from 0.
fn number_of(contestant: &str) -> Option<usize> {
    TABLE_IV.iter().position(|function| function.name == contestant)
}

fn unknown<T>(contestant: &str) -> Result<T, BenchError> {
    Err(BenchError::Setting(format!(
        "no series {contestant}: there are the functions of Table IV, and sums of verdicts"
    )))
}

/// Parameters of `hash-random`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Randomness {
    keys: usize,
    key_bytes: usize,
    alpha: f64,
}

impl Randomness {
    fn check(&self) -> Result<(), BenchError> {
        check_keys(self.keys, self.key_bytes, self.alpha)
    }
}

fn randomness(setting: &Setting) -> Result<Vec<Point>, BenchError> {
    let Randomness { keys: n, key_bytes, alpha } = setting.parameters()?;
    let keys = keys(n, key_bytes, setting.seed);
    let passing = |table: &Table| -> Vec<bool> { table.randomness.iter().map(|v| v.passes(alpha)).collect() };
    let papers = passing(&Table::of_the_paper(&keys));
    let ours = passing(&Table::of_families(&keys, setting.seed));
    let n_of = |verdicts: &[bool]| verdicts.iter().filter(|&&passes| passes).count() as f64;
    let point = |series: &crate::figures::Series| {
        let y = match series.contestant() {
            "accepted" => n_of(&papers),
            "digests" => n_of(&ours),
            name => match number_of(name) {
                Some(number) => is_true(papers[number]),
                None => return unknown(name),
            },
        };
        Ok(Point::exact(&series.name, None, y))
    };
    setting.series.iter().map(point).collect()
}

/// Parameters of `hash-independent`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Independence {
    keys: usize,
    alpha: f64,
}

impl Independence {
    fn check(&self) -> Result<(), BenchError> {
        check_keys(self.keys, Keys::ADDRESS, self.alpha)
    }
}

/// Verdicts on pairs, and their summary.
struct Pairs {
    /// By row, then column, i < j.
    accepted: Vec<(usize, usize, bool)>,
    /// Whether each function passes alone.
    random: Vec<bool>,
    digests: f64,
}

impl Pairs {
    fn new(keys: &Keys, alpha: f64, seed: u64) -> Self {
        let (table, ours) = (Table::of_the_paper(keys), Table::of_families(keys, seed));
        Self {
            accepted: table.pairs.iter().map(|&(i, j, verdict)| (i, j, verdict.passes(alpha))).collect(),
            random: table.randomness.iter().map(|verdict| verdict.passes(alpha)).collect(),
            digests: ours.pairs.iter().filter(|pair| pair.2.passes(alpha)).count() as f64,
        }
    }

    fn n_accepted(&self) -> f64 {
        self.accepted.iter().filter(|pair| pair.2).count() as f64
    }

    /// The share of accepted pairs among the pairs of two functions that are both rejected alone, or among the others.
    fn share(&self, both_rejected: bool) -> f64 {
        let of_kind = |&&(i, j, _): &&(usize, usize, bool)| (!self.random[i] && !self.random[j]) == both_rejected;
        let verdicts: Vec<f64> = self.accepted.iter().filter(of_kind).map(|pair| is_true(pair.2)).collect();
        verdicts.iter().sum::<f64>() / (verdicts.len() as f64).max(1.0)
    }
}

fn independence(setting: &Setting) -> Result<Vec<Point>, BenchError> {
    let Independence { keys: n, alpha } = setting.parameters()?;
    let pairs = [Keys::ADDRESS, Keys::TUPLE]
        .map(|bytes| (bytes, Pairs::new(&keys(n, bytes, setting.seed), alpha, setting.seed)));
    let mut points = Vec::new();
    for series in &setting.series {
        let mut sums = |value: &dyn Fn(&Pairs) -> f64| {
            for (bytes, pairs) in &pairs {
                let x = X::Text(format!("{bytes}-byte keys"));
                points.push(Point::exact(&series.name, Some(x), value(pairs)));
            }
        };
        match series.contestant() {
            "accepted" => sums(&Pairs::n_accepted),
            "both rejected" => sums(&|pairs| pairs.share(true)),
            "others" => sums(&|pairs| pairs.share(false)),
            "digests" => sums(&|pairs| pairs.digests),
            name => {
                // As in the paper: short keys above the diagonal, in the column of the greater number; long ones below.
                let Some(column) = number_of(name) else { return unknown(name) };
                let [(_, short), (_, long)] = &pairs;
                let above = short.accepted.iter().filter(|pair| pair.1 == column).map(|pair| (pair.0, pair.2));
                let below = long.accepted.iter().filter(|pair| pair.0 == column).map(|pair| (pair.1, pair.2));
                points.extend(above.chain(below).map(|(row, passes)| {
                    Point::exact(&series.name, Some(X::Text(format!("h{}", row + 1))), is_true(passes))
                }));
            }
        }
    }
    Ok(points)
}

/// Parameters of `hash-cost`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Costs {
    key_bytes: usize,
    runs: u32,
    operations: u64,
}

/// Keys that a run hashes repeatedly: they stay in the first-level cache.
const N_KEYS: usize = 64;

impl Costs {
    fn check(&self, setting: &Setting) -> Result<(), BenchError> {
        if !(1..=1024).contains(&self.key_bytes) || self.runs == 0 || self.operations == 0 {
            return Err(BenchError::Setting(
                "a parameter is out of range; use keys of 1 to 1024 bytes, and at least 1 run and 1 operation".into(),
            ));
        }
        let known =
            |name: &String| ["modulo", "multiplication", "digest"].contains(&name.as_str()) || function(name).is_some();
        match setting.contestants().iter().find(|name| !known(name)) {
            Some(name) => unknown(name),
            None => Ok(()),
        }
    }
}

/// A function of Table IV.
fn function(name: &str) -> Option<fn(&[u8]) -> u32> {
    TABLE_IV.iter().find(|function| function.name == name).map(|function| function.hash)
}

fn costs(setting: &Setting, _progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters: Costs = setting.parameters()?;
    parameters.check(setting)?;
    let Costs { key_bytes, runs, operations } = parameters;
    let mut random = Random::new(setting.seed);
    let keys: Vec<u8> = (0..N_KEYS * key_bytes).map(|_| random.next_u64() as u8).collect();
    let words: Vec<u32> = (0..N_KEYS).map(|_| random.next_u64() as u32).collect();
    let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(setting.seed));
    let divisor = black_box(1009u32);
    let modulus = Modulus::new(divisor.into());
    let passes = operations.div_ceil(N_KEYS as u64);
    let mut samples = vec![Vec::new(); setting.series.len()];
    for _ in 0..runs {
        let cycle = nanoseconds_a_cycle();
        for (series, samples) in setting.series.iter().zip(&mut samples) {
            let hash = function(series.contestant()).unwrap_or(|_| 0);
            let start = Instant::now();
            for _ in 0..passes {
                black_box(match series.contestant() {
                    "modulo" => black_box(&words).iter().map(|&word| u64::from(word % divisor)).sum(),
                    "multiplication" => black_box(&words).iter().map(|&word| modulus.remainder(word.into())).sum(),
                    "digest" => sum_of(&keys, key_bytes, |key| hasher.digest(key).0),
                    _ => sum_of(&keys, key_bytes, |key| hash(key).into()),
                });
            }
            samples.push(start.elapsed().as_nanos() as f64 / (passes as f64 * N_KEYS as f64) / cycle);
        }
    }
    let points = setting.series.iter().zip(&samples).map(|(series, samples)| {
        let Summary { median, min, max } = Summary::of(samples);
        Point { series: series.name.clone(), x: None, y: median, min, max }
    });
    Ok(points.collect())
}

fn sum_of(keys: &[u8], key_bytes: usize, hash: impl Fn(&[u8]) -> u64) -> u64 {
    black_box(keys).chunks_exact(key_bytes).fold(0, |sum, key| sum.wrapping_add(hash(key)))
}

/// Nanoseconds per cycle: a quarter of an exclusive or (1 cycle) and a multiplication (3) that each wait for the
/// previous one, on the x86 processors of the last ten years. No compiler can merge several steps, as it could with
/// sums.
fn nanoseconds_a_cycle() -> f64 {
    const STEPS: u32 = 1 << 18;
    let start = Instant::now();
    let chain = (0..STEPS).fold(black_box(1u64), |x, _| (x ^ 12_345).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    black_box(chain);
    start.elapsed().as_nanos() as f64 / f64::from(4 * STEPS)
}

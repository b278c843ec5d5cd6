//! How often Bloom filters are wrong: counted over many small filters, and compared with theory.

use lookup::bloom::double_hashing::extended_double_hashing;
use lookup::bloom::{AddressHashing, Bloom, Layout, MAX_HASHES, OneHashing, Shape, Standard, partition_sizes, theory};
use lookup::hash::{Digest, Family, Hasher, SecretKey};
use md5::Md5;
use serde::Deserialize;
use sha1::Sha1;

use super::{Method, Progress, Setting};
use crate::BenchError;
use crate::figures::Point;
use crate::hash_lab::keys::Keys;

pub(super) const METHODS: &[Method] = &[Method {
    name: "filter-rate",
    about: "rate of false positives of a standard filter in theory, and how far others are from it, in %",
    check: |setting| setting.parameters::<Parameters>()?.check(setting),
    run: rates,
    toy: "filters = 8\naliens = 2000",
}];

/// Parameters of `filter-rate`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Bits of a filter.
    m: u64,
    /// Names in each.
    n: usize,
    k: u32,
    key_bytes: usize,
    /// Filters, each with different names.
    filters: usize,
    /// Aliens that each filter is queried with.
    aliens: usize,
}

const SERIES: [&str; 7] = ["sbf-theory", "ohbf-theory", "ohbf-paper", "lhbf-paper", "error", "one-hashing", "standard"];

impl Parameters {
    fn check(&self, setting: &Setting) -> Result<(), BenchError> {
        let wrong = |text: String| Err(BenchError::Setting(text));
        if let Some(unknown) = setting.contestants().iter().find(|name| !SERIES.contains(&name.as_str())) {
            return wrong(format!("there is no series {unknown}; use {}", SERIES.join(", ")));
        }
        if ![Keys::ADDRESS, Keys::TUPLE].contains(&self.key_bytes) {
            return wrong(format!("keys have {} bytes; use 4 or 13", self.key_bytes));
        }
        if !(1..=MAX_HASHES).contains(&self.k) || !(1000..1 << 32).contains(&self.m) {
            return wrong(format!(
                "m is {} bits and k is {}; use at least 1000 bits, and k from 1 to {MAX_HASHES}",
                self.m, self.k
            ));
        }
        if self.filters < 2 || self.n == 0 || self.aliens == 0 || self.filters * self.n + self.aliens > 1 << 26 {
            return wrong("at least two filters, one name, one alien, and 64M names in all".into());
        }
        Ok(())
    }
}

/// A rate and its standard error.
#[derive(Clone, Copy, Debug)]
struct Rate {
    mean: f64,
    error: f64,
}

/// The rate over filters that each hold the next `n` members; `count` fills one and counts positive aliens.
fn rate<T>(members: &[T], n: usize, aliens: &[T], mut count: impl FnMut(&[T], &[T]) -> usize) -> Rate {
    let rates: Vec<f64> =
        members.chunks_exact(n).map(|names| count(names, aliens) as f64 / aliens.len() as f64).collect();
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Rate { mean, error: (variance / n).sqrt() }
}

/// The rate of one of our filters over digests, or words.
fn of_layout<L: Layout>(parameters: &Parameters, words: &[Digest], seed: u64) -> Result<Rate, BenchError> {
    let shape = Shape::<L>::new(parameters.m, parameters.k).map_err(|error| BenchError::Setting(error.to_string()))?;
    let mut filter = Bloom::new(shape, seed);
    let (members, aliens) = words.split_at(parameters.filters * parameters.n);
    Ok(rate(members, parameters.n, aliens, |names, aliens| {
        filter.clear();
        names.iter().for_each(|&name| filter.insert(name));
        aliens.iter().filter(|&&alien| filter.lookup(alien)).count()
    }))
}

/// The rate of the paper's LHBF: two hash functions, and an arithmetic progression with cubes derived from them.
fn of_double_hashing(parameters: &Parameters, words: &[[u64; 2]]) -> Rate {
    let (m, k) = (parameters.m, parameters.k);
    let words: Vec<[u64; 2]> = words.iter().map(|word| word.map(|hash| hash % m)).collect();
    let (members, aliens) = words.split_at(parameters.filters * parameters.n);
    let mut bits = vec![false; m as usize];
    let positions = |[h_1, h_2]: [u64; 2]| extended_double_hashing(h_1, h_2, m, k);
    rate(members, parameters.n, aliens, |names, aliens| {
        bits.fill(false);
        names.iter().flat_map(|&name| positions(name)).for_each(|bit| bits[bit as usize] = true);
        aliens.iter().filter(|&&alien| positions(alien).all(|bit| bits[bit as usize])).count()
    })
}

/// The first 64 bits of a digest.
fn word<D: md5::Digest>(key: &[u8]) -> u64 {
    u64::from_le_bytes(*D::digest(key).first_chunk().expect("digests have 16 bytes and more"))
}

fn rates(setting: &Setting, _progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters: Parameters = setting.parameters()?;
    parameters.check(setting)?;
    let Parameters { m, n, k, .. } = parameters;
    let n_keys = parameters.filters * n + parameters.aliens;
    let keys = match parameters.key_bytes {
        Keys::ADDRESS => Keys::addresses(n_keys, setting.seed),
        _ => Keys::tuples(n_keys, setting.seed),
    };
    let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(setting.seed));
    let of_md5: Vec<Digest> = keys.iter().map(|key| Digest(word::<Md5>(key))).collect();
    let pairs: Vec<[u64; 2]> = keys.iter().zip(&of_md5).map(|(key, md5)| [md5.0, word::<Sha1>(key)]).collect();
    let keyed: Vec<Digest> = keys.iter().map(|key| hasher.digest(key)).collect();
    let f_s = theory::f_s(m, n as u64, k);
    let one_hashing = of_layout::<AddressHashing>(&parameters, &of_md5, setting.seed)?;
    let mut points = Vec::new();
    for series in &setting.series {
        let counted = match series.contestant() {
            "sbf-theory" => {
                points.push(Point::exact(&series.name, None, f_s));
                continue;
            }
            "ohbf-theory" => {
                let f_o = theory::f_o(&partition_sizes(m, k), n as u64);
                points.push(Point::exact(&series.name, None, 100.0 * (f_o - f_s).abs() / f_s));
                continue;
            }
            "error" => {
                points.push(Point::exact(&series.name, None, 100.0 * one_hashing.error / f_s));
                continue;
            }
            "ohbf-paper" => one_hashing,
            "lhbf-paper" => of_double_hashing(&parameters, &pairs),
            "one-hashing" => of_layout::<OneHashing>(&parameters, &keyed, setting.seed)?,
            _ => of_layout::<Standard>(&parameters, &keyed, setting.seed)?,
        };
        let (y, error) = (100.0 * (counted.mean - f_s).abs() / f_s, 100.0 * counted.error / f_s);
        points.push(Point { series: series.name.clone(), x: None, y, min: (y - error).max(0.0), max: y + error });
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_rates_are_those_of_theory() {
        let parameters = Parameters { m: 10_003, n: 1000, k: 3, key_bytes: 4, filters: 60, aliens: 20_000 };
        let keys = Keys::addresses(80_000, 5);
        let words: Vec<Digest> = keys.iter().map(|key| Digest(word::<Md5>(key))).collect();
        let pairs: Vec<[u64; 2]> = keys.iter().map(|key| [word::<Md5>(key), word::<Sha1>(key)]).collect();
        let f_o = theory::f_o(&partition_sizes(10_003, 3), 1000);
        let counted = [
            of_layout::<AddressHashing>(&parameters, &words, 1).unwrap(),
            of_layout::<Standard>(&parameters, &words, 1).unwrap(),
            of_double_hashing(&parameters, &pairs),
        ];
        for rate in counted {
            assert!(rate.error > 0.0 && rate.error < 0.01 * f_o, "{rate:?}");
            assert!((rate.mean - f_o).abs() < 5.0 * rate.error, "{rate:?}, {f_o} in theory");
        }
    }
}

//! Bloom filters: formulas and partitions over [`lookup::bloom`], times over [`crate::bench::filter`].

use lookup::bloom::{MAX_HASHES, partition_sizes, theory};
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::filter::{self, Options};
use crate::figures::{Point, X};

pub(super) const METHODS: &[Method] = &[
    Method {
        name: "filter-theory",
        about: "rates of false positives by equations (1) and (7), and how far they are apart",
        check: |setting| setting.parameters::<Theory>()?.check(),
        run: |setting, _| theory(setting),
        toy: "",
    },
    Method {
        name: "filter-partitions",
        about: "sizes of the partitions of a one-hashing filter",
        check: |setting| setting.parameters::<Partitions>()?.check(),
        run: |setting, _| partitions(setting),
        toy: "",
    },
    Method {
        name: "filter-spread",
        about: "standard deviation of partition sizes, and the largest distance from the planned size so far",
        check: |setting| setting.parameters::<Partitions>()?.check(),
        run: |setting, _| spread(setting),
        toy: "",
    },
    Method {
        name: "filter-cost",
        about: "bits of the partition sizes, equation (10); x is the size of the filter",
        check: |setting| setting.parameters::<Cost>()?.check(),
        run: |setting, _| cost(setting),
        toy: "",
    },
    Method {
        name: "filter-time",
        about: "nanoseconds of a query; contestants of `fibula bench filter`",
        check: |setting| setting.parameters::<Time>()?.options(setting).check(),
        run: time,
        toy: "runs = 1\noperations = 2000",
    },
];

/// The points of series, each computed from the name of its contestant.
fn computed(setting: &Setting, value: impl Fn(&str) -> Option<f64>) -> Result<Vec<Point>, BenchError> {
    let point = |series: &crate::figures::Series| match value(series.contestant()) {
        Some(y) => Ok(Point::exact(&series.name, None, y)),
        None => Err(BenchError::Setting(format!("{} is not computed here", series.contestant()))),
    };
    setting.series.iter().map(point).collect()
}

fn check_k(k: u32, m: u64) -> Result<(), BenchError> {
    if (1..=MAX_HASHES).contains(&k) && (u64::from(k)..=1 << 40).contains(&m) {
        return Ok(());
    }
    Err(BenchError::Setting(format!("m is {m} bits and k is {k}; use at least k bits, and k from 1 to {MAX_HASHES}")))
}

/// Parameters of `filter-theory`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Theory {
    m: u64,
    n: u64,
    k: u32,
}

impl Theory {
    fn check(&self) -> Result<(), BenchError> {
        check_k(self.k, self.m)
    }
}

fn theory(setting: &Setting) -> Result<Vec<Point>, BenchError> {
    let Theory { m, n, k } = setting.parameters()?;
    let (f_s, f_o) = (theory::f_s(m, n, k), theory::f_o(&partition_sizes(m, k), n));
    computed(setting, |name| match name {
        "f_s" => Some(f_s),
        "f_o" => Some(f_o),
        "difference" => Some(100.0 * (f_o - f_s).abs() / f_s),
        _ => None,
    })
}

/// Parameters of `filter-partitions` and `filter-spread`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Partitions {
    m_p: u64,
    k: u32,
}

impl Partitions {
    fn check(&self) -> Result<(), BenchError> {
        check_k(self.k, self.m_p)
    }
}

fn partitions(setting: &Setting) -> Result<Vec<Point>, BenchError> {
    let Partitions { m_p, k } = setting.parameters()?;
    let sizes = partition_sizes(m_p, k);
    let m_f: u64 = sizes.iter().sum();
    computed(setting, |name| match name {
        "m_f" => Some(m_f as f64),
        "difference" => Some(m_f.abs_diff(m_p) as f64 / m_p as f64),
        _ => Some(*sizes.get(name.strip_prefix("m_")?.parse::<usize>().ok()?.checked_sub(1)?)? as f64),
    })
}

fn spread(setting: &Setting) -> Result<Vec<Point>, BenchError> {
    let Partitions { m_p, k } = setting.parameters()?;
    let sizes = partition_sizes(m_p, k);
    let mean = sizes.iter().sum::<u64>() as f64 / f64::from(k);
    let variance = sizes.iter().map(|&size| (size as f64 - mean).powi(2)).sum::<f64>() / f64::from(k);
    computed(setting, |name| match name {
        "deviation" => Some(variance.sqrt()),
        "largest" => Some(largest_distance(m_p, k as usize) as f64),
        _ => None,
    })
}

/// Maximum distance of a filter's size from a planned one that is at most `m_p` and not below the smallest possible
/// one.
fn largest_distance(m_p: u64, k: usize) -> u64 {
    // Beyond m_p / k, a larger window begins within a few hundred numbers.
    let primes = primes_below(m_p as usize / k + 1000 * k);
    let sums = primes.windows(k).map(|window| window.iter().sum::<u64>());
    let (mut before, mut largest) = (None, 0);
    for sum in sums {
        if let Some(before) = before {
            // The planned size halfway between two possible ones is the farthest from both.
            let middle = m_p.min((before + sum) / 2);
            largest = largest.max(middle.saturating_sub(before));
            if sum >= m_p {
                break;
            }
        }
        before = Some(sum);
    }
    largest
}

fn primes_below(bound: usize) -> Vec<u64> {
    let mut is_composite = vec![false; bound];
    let mut primes = Vec::new();
    for n in 2..bound {
        if !is_composite[n] {
            primes.push(n as u64);
            is_composite.iter_mut().skip(n * n).step_by(n).for_each(|composite| *composite = true);
        }
    }
    primes
}

/// Parameters of `filter-cost`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cost {
    m: Vec<u64>,
    k: u32,
}

impl Cost {
    fn check(&self) -> Result<(), BenchError> {
        self.m.iter().try_for_each(|&m| check_k(self.k, m))
    }
}

fn cost(setting: &Setting) -> Result<Vec<Point>, BenchError> {
    let Cost { m, k } = setting.parameters()?;
    let of_size = |m: u64| (Some(X::Number(m as f64)), theory::partition_cost_bits(&partition_sizes(m, k)));
    let of_series = |name: &str| -> Vec<Point> {
        m.iter().map(|&m| of_size(m)).map(|(x, bits)| Point::exact(name, x, bits)).collect()
    };
    Ok(setting.series.iter().flat_map(|series| of_series(&series.name)).collect())
}

/// Parameters of `filter-time`; see [`Options`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Time {
    m: u64,
    n: u64,
    k: u32,
    key_bytes: usize,
    members: f64,
    runs: u32,
    operations: u64,
}

impl Time {
    fn options(&self, setting: &Setting) -> Options {
        Options {
            n: vec![self.n],
            k: vec![self.k],
            key_bytes: vec![self.key_bytes],
            members: vec![self.members],
            bits_per_name: self.m as f64 / self.n as f64,
            contestants: setting.contestants(),
            runs: self.runs,
            batch: 32,
            seed: setting.seed,
            operations: Some(self.operations),
        }
    }
}

fn time(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let mut rows = Rows::new(setting, progress);
    filter::run(&setting.parameters::<Time>()?.options(setting), &mut rows)?;
    Ok(setting.points(&rows.rows, |millions_a_second| 1e3 / millions_a_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_distance_is_that_of_some_planned_size() {
        for k in [1, 3, 10] {
            let smallest: u64 = primes_below(100).iter().take(k).sum();
            for limit in [200, 1000, 3000] {
                let distance = |m_p: u64| partition_sizes(m_p, k as u32).iter().sum::<u64>().abs_diff(m_p);
                let largest = (smallest..=limit).map(distance).max().unwrap();
                assert_eq!(largest_distance(limit, k), largest, "k = {k}, up to {limit}");
            }
        }
    }
}

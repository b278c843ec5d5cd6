//! Prefixes in a hash table behind Bloom filters.

use lookup::bloom::theory::expected_probes;
use lookup::bloom::{DoubleHashing, Layout, OneHashing, Shape, Standard};
use lookup::hash::{Family, SecretKey};
use lookup::lpm::Prefix;
use lookup::lpm::bloom::{BloomLpm, BloomLpmQuery, Keyed, Membership, OwnHash, Settings, Steps};
use lookup::traits::{Control, Query};

use super::paper::{Lhbf, Sbf};
use super::sides::{MAX_BATCH, Probes, Side, heap_bytes};
use crate::BenchError;
use crate::contestants::bursts;

/// Positions per entry, as in the paper.
const K: u32 = 10;

struct Filtered<F> {
    query: BloomLpmQuery<u32, F, 1>,
    n_entries: usize,
    control_bytes: u64,
}

/// Bits for which k = 10 positions are optimal: `k n / ln 2`.
fn bits(n_entries: usize) -> u64 {
    (n_entries as f64 * f64::from(K) / std::f64::consts::LN_2) as u64
}

fn shape<L: Layout>(n_entries: usize) -> Shape<L> {
    Shape::new(bits(n_entries), K).expect("from 1 to 32 positions, and a few megabits")
}

/// Builds the table of a contestant.
pub(super) fn build(name: &str, routes: &[(Prefix<u32>, u64)], seed: u64) -> Result<Box<dyn Side>, BenchError> {
    let (kind, steps) = match name.strip_suffix("-basic") {
        Some(kind) => (kind, Steps::every::<u32>()),
        None => (name, Steps::few::<u32>()),
    };
    let n = steps.count_entries(routes.iter().map(|&(prefix, _)| prefix));
    let key = &SecretKey::from_seed(seed);
    let family = Family::MulAdd;
    let (n_bits, n_hashes) = (bits(n), K);
    match kind {
        "ohbf" => filled(name, Keyed::<OneHashing>::new(shape(n), family, key), steps, n, routes, key),
        "lhbf" => filled(name, Keyed::<DoubleHashing>::new(shape(n), family, key), steps, n, routes, key),
        "sbf" => filled(name, Keyed::<Standard>::new(shape(n), family, key), steps, n, routes, key),
        "ohbf-own" => filled(name, OwnHash::new(shape(n)), steps, n, routes, key),
        "lhbf-paper" => filled(name, Lhbf { n_bits, n_hashes }, steps, n, routes, key),
        "sbf-paper" => filled(name, Sbf { n_bits, n_hashes }, steps, n, routes, key),
        _ => unreachable!("names were checked"),
    }
}

fn filled<F: Membership<u32>>(
    name: &str,
    filter: F,
    steps: Steps,
    n_entries: usize,
    routes: &[(Prefix<u32>, u64)],
    key: &SecretKey,
) -> Result<Box<dyn Side>, BenchError> {
    let before = heap_bytes();
    let settings = Settings { steps, filter, max_entries: n_entries, family: Family::MulAdd, key: key.clone() };
    let mut control = BloomLpm::<u32, F, 1>::new(settings);
    let mut updates = Vec::new();
    for &(prefix, hop) in routes {
        control.insert(prefix, hop, &mut updates).map_err(|error| BenchError::Build {
            contestant: name.into(),
            n: routes.len() as u64,
            reason: error.to_string(),
        })?;
        updates.clear();
    }
    let control_bytes = heap_bytes().saturating_sub(before);
    let query = control.export();
    Ok(Box::new(Filtered { query, n_entries: control.n_entries(), control_bytes }))
}

impl<F: Membership<u32>> Side for Filtered<F> {
    fn sum(&self, addresses: &[u32], batch: usize) -> u64 {
        let mut values = [0; MAX_BATCH];
        bursts(addresses, batch).fold(0, |sum, addresses| {
            self.query.lookup_batch(addresses, &mut values);
            sum + values[..addresses.len()].iter().sum::<u64>()
        })
    }

    fn bytes(&self) -> u64 {
        self.query.size_bits() / 8
    }

    fn bytes_beside(&self) -> u64 {
        self.control_bytes
    }

    /// Vain probes per filter look-up are the filter's false positive rate.
    fn probes(&self, addresses: &[u32]) -> Option<Probes> {
        let mut values = vec![0; addresses.len()];
        self.query.lookup_batch(addresses, &mut values);
        let found: Vec<u32> =
            addresses.iter().zip(&values).filter(|(_, value)| **value != 0).map(|(a, _)| *a).collect();
        let n_probes = self.query.lookup_counted(&found, &mut values);
        Some(Probes {
            counted: n_probes as f64 / found.len().max(1) as f64,
            expected: expected_probes(self.query.n_lengths(), 0.5f64.powi(K as i32)),
        })
    }

    fn note(&self, addresses: &[u32]) -> String {
        let Some(Probes { counted, expected }) = self.probes(addresses) else { return String::new() };
        format!(
            "{} entries, filter {:.2} MB; {counted:.4} probes a match, at most {expected:.4} by equation (17)",
            self.n_entries,
            self.query.filter_bytes() as f64 / 1e6,
        )
    }
}

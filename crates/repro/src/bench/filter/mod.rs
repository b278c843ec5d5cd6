//! Bloom filters: queries per second, by number of names, number of positions, key length and share of members.
//!
//! All contestants hold the same keys and answer the same queries in the same order. Before timing, every member must
//! be positive, and the positive aliens are counted; each timed run must count the same again.

mod sides;

use std::time::Instant;

use lookup::bloom::MAX_HASHES;

pub use sides::CONTESTANTS;

use sides::{MAX_BATCH, Side};

use super::{Listener, millions_per_second};
use crate::BenchError;
use crate::hash_lab::keys::Keys;
use crate::names::Random;
use crate::report::{Row, Setting};

/// Default queries per run.
const QUERIES: u64 = 1 << 20;
/// Maximum length of the array of queries: longer than a branch predictor can learn.
const MAX_QUERIES: usize = 1 << 18;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names in a filter.
    pub n: Vec<u64>,
    /// Positions per name.
    pub k: Vec<u32>,
    /// Bytes of a key: 4 (addresses) or 13 (5-tuples).
    pub key_bytes: Vec<usize>,
    /// Shares of the queries that are members, 0 to 1.
    pub members: Vec<f64>,
    /// Bits of a filter per name.
    pub bits_per_name: f64,
    /// Contestants by name; all if empty.
    pub contestants: Vec<String>,
    /// Rounds: how often each contestant is measured.
    pub runs: u32,
    /// Keys per call.
    pub batch: u32,
    /// Seed of keys, orders and secrets.
    pub seed: u64,
    /// Queries per run, at least.
    pub operations: Option<u64>,
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let setting = |text: String| Err(BenchError::Setting(text));
        if let Some(n) = self.n.iter().find(|n| !(1..=1 << 26).contains(*n)) {
            return setting(format!("there are {n} names; use 1 to 64M"));
        }
        if let Some(k) = self.k.iter().find(|k| !(1..=MAX_HASHES).contains(*k)) {
            return setting(format!("a name has {k} positions; use 1 to {MAX_HASHES}"));
        }
        if let Some(bytes) = self.key_bytes.iter().find(|bytes| ![Keys::ADDRESS, Keys::TUPLE].contains(bytes)) {
            return setting(format!("keys have {bytes} bytes; use 4 or 13"));
        }
        if let Some(share) = self.members.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            return setting(format!("the share is {share}; use 0 to 1"));
        }
        if !(1.0..=60.0).contains(&self.bits_per_name) {
            return setting(format!("a name has {} bits; use 1 to 60", self.bits_per_name));
        }
        if self.batch == 0 || self.batch as usize > MAX_BATCH {
            return setting(format!("a batch has {} names; use 1 to {MAX_BATCH}", self.batch));
        }
        if self.runs == 0 || self.operations == Some(0) {
            return setting("there are no runs or no queries; use at least 1 of each".into());
        }
        if let Some(name) = self.contestants.iter().find(|name| CONTESTANTS.iter().all(|(known, _)| known != name)) {
            let known = CONTESTANTS.map(|(name, _)| name).join(", ");
            return Err(BenchError::UnknownContestant { name: name.clone(), known });
        }
        Ok(())
    }

    fn chosen(&self) -> Vec<&'static str> {
        let all = CONTESTANTS.iter().map(|&(name, _)| name);
        all.filter(|name| self.contestants.is_empty() || self.contestants.iter().any(|chosen| chosen == name)).collect()
    }
}

/// Runs the bench: one table per setting.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    for &key_bytes in &options.key_bytes {
        for &n in &options.n {
            // Members first, then as many aliens.
            let keys = if key_bytes == Keys::ADDRESS {
                Keys::addresses(2 * n as usize, options.seed)
            } else {
                Keys::tuples(2 * n as usize, options.seed)
            };
            for &k in &options.k {
                queries(options, &keys, n, k, listener)?;
            }
        }
    }
    Ok(())
}

/// A filter with its name, and the share of aliens that are positive.
type Entered = (&'static str, Box<dyn Side>, f64);

fn queries(options: &Options, keys: &Keys, n: u64, k: u32, listener: &mut dyn Listener) -> Result<(), BenchError> {
    let (members, aliens) = keys.packed().split_at(n as usize * keys.key_bytes());
    let entered = filled(options, keys.key_bytes(), members, aliens, k)?;
    for &share in &options.members {
        let queries = order(options, keys, n, share);
        let n_queries = (queries.len() / keys.key_bytes()) as u64;
        let passes = options.operations.unwrap_or(QUERIES).div_ceil(n_queries);
        let batch = options.batch as usize;
        let expected: Vec<u64> = entered.iter().map(|(_, side, _)| side.count(&queries, batch, 1) * passes).collect();
        let mut samples = vec![Vec::new(); entered.len()];
        for _ in 0..options.runs {
            for (((name, side, _), samples), &expected) in entered.iter().zip(&mut samples).zip(&expected) {
                let start = Instant::now();
                let got = side.count(&queries, batch, passes);
                samples.push(millions_per_second(passes * n_queries, start.elapsed()));
                if got != expected {
                    return Err(BenchError::Checksum { contestant: (*name).into(), got, expected });
                }
            }
        }
        let names = format!("{}-byte", keys.key_bytes());
        let setting = Setting { n, value_bits: 0, names, threads: 1, batch: options.batch, in_flight: 1 };
        let rows = entered.iter().zip(samples).map(|((name, side, rate), samples)| {
            let mut row = Row::new(&format!("filter, k = {k}, members {share}"), name, &setting, "M/s", samples);
            row.bits_per_name = Some(side.bits() as f64 / n as f64);
            row.aliens_answered = Some(*rate);
            row.note = format!("{:.4} % of aliens", rate * 100.0);
            row
        });
        listener.table(&rows.collect::<Vec<_>>());
    }
    Ok(())
}

/// The contestants, filled with all members, each checked.
fn filled(
    options: &Options,
    key_bytes: usize,
    members: &[u8],
    aliens: &[u8],
    k: u32,
) -> Result<Vec<Entered>, BenchError> {
    let n = (members.len() / key_bytes) as u64;
    let bits = (n as f64 * options.bits_per_name).round() as u64;
    let make = |name| {
        let made = if key_bytes == Keys::ADDRESS {
            sides::new::<{ Keys::ADDRESS }>(name, bits, k, options.seed)
        } else {
            sides::new::<{ Keys::TUPLE }>(name, bits, k, options.seed)
        };
        let mut side =
            made.map_err(|error| BenchError::Build { contestant: name.into(), n, reason: error.to_string() })?;
        side.insert(members);
        let found = side.count(members, options.batch as usize, 1);
        if found != n {
            return Err(BenchError::Checksum { contestant: name.into(), got: found, expected: n });
        }
        let rate = side.count(aliens, options.batch as usize, 1) as f64 / n as f64;
        Ok((name, side, rate))
    };
    options.chosen().into_iter().map(make).collect()
}

/// Packed queries, of which a share are members, each drawn at random.
fn order(options: &Options, keys: &Keys, n: u64, share: f64) -> Vec<u8> {
    let mut random = Random::new(options.seed ^ 0x6f72_6465);
    let n_queries = MAX_QUERIES.min(options.operations.unwrap_or(QUERIES) as usize);
    let threshold = (share * (1u64 << 32) as f64) as u64;
    let mut queries = Vec::with_capacity(n_queries * keys.key_bytes());
    for _ in 0..n_queries {
        let is_member = random.next_u64() >> 32 < threshold;
        let index = random.below(n) + if is_member { 0 } else { n };
        let at = index as usize * keys.key_bytes();
        queries.extend_from_slice(&keys.packed()[at..at + keys.key_bytes()]);
    }
    queries
}

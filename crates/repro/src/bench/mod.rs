//! The benches, one module each.

pub mod aliens;
mod apply;
pub mod build;
pub mod click;
pub(crate) mod export;
pub mod filter;
pub mod flow;
pub mod forward;
pub mod lookup;
pub mod lpm;
pub mod message;
pub mod network;
pub mod nodes;
pub mod processes;
pub mod rules;
pub mod spread;
pub mod update;
pub mod wires;

use std::time::Duration;

use crate::BenchError;
use crate::contestants::MAX_BATCH;
use crate::names::NameSet;
use ::lookup::base::prefetch::BURST;
use ::lookup::hash::Family;
use ::lookup::publish::ring::IN_FLIGHT;

/// The options that all benches take.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of names, one table each.
    pub n: Vec<u64>,
    /// Contestants by name; the defaults of the bench if empty.
    pub contestants: Vec<String>,
    /// Numbers of threads, one table each.
    pub threads: Vec<u32>,
    /// Bits of a value, 1 to 64.
    pub value_bits: u8,
    /// The set of names.
    pub names: NameSet,
    /// Rounds: how often each contestant is measured.
    pub runs: u32,
    /// Names per call.
    pub batch: u32,
    /// Numbers of bursts in flight, one table each: contestants may begin a burst before they finish the last one.
    pub in_flight: Vec<u32>,
    /// Seed of names, orders, keys and tweaks.
    pub seed: u64,
    /// Digest family.
    pub family: Family,
    /// Operations per run and thread, at least; `None` for the default of the bench.
    pub operations: Option<u64>,
}

impl Options {
    /// Checks what the types do not guarantee.
    /// # Errors
    /// [`BenchError::Setting`], which says what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        let setting = |text: String| Err(BenchError::Setting(text));
        if let Some(n) = self.n.iter().find(|&&n| n == 0 || n > 1 << 30) {
            return setting(format!("n is {n}; use 1 to 1024M names"));
        }
        if self.n.is_empty() || self.threads.is_empty() {
            return setting("the list of n or of threads is empty; give at least one of each".into());
        }
        if let Some(threads) = self.threads.iter().find(|&&threads| threads == 0 || threads > 256) {
            return setting(format!("there are {threads} threads; use 1 to 256"));
        }
        if !(1..=64).contains(&self.value_bits) {
            return setting(format!("values have {} bits; use 1 to 64", self.value_bits));
        }
        if self.batch == 0 || self.batch as usize > MAX_BATCH {
            return setting(format!("a burst has {} names; use 1 to {MAX_BATCH}", self.batch));
        }
        if let Some(n) = self.in_flight.iter().find(|&&n| n == 0 || n as usize > IN_FLIGHT) {
            return setting(format!("there are {n} bursts in flight; use 1 to {IN_FLIGHT}"));
        }
        if self.in_flight.iter().any(|&n| n > 1) && self.batch as usize > BURST {
            return setting(format!("bursts in flight have at most {BURST} names, not {}", self.batch));
        }
        if self.runs == 0 || self.runs > 10_000 {
            return setting(format!("there are {} runs; use 1 to 10000", self.runs));
        }
        if self.operations == Some(0) {
            return setting("there are 0 operations; use at least 1".into());
        }
        Ok(())
    }

    /// The contestants asked for, of those that a bench has; all if none are named.
    /// # Errors
    /// [`BenchError::UnknownContestant`].
    pub(crate) fn chosen(&self, known: &[(&'static str, &str)]) -> Result<Vec<String>, BenchError> {
        let all = || known.iter().map(|(name, _)| (*name).to_owned());
        match self.contestants.iter().find(|name| all().all(|known| known != **name)) {
            Some(name) => {
                Err(BenchError::UnknownContestant { name: name.clone(), known: all().collect::<Vec<_>>().join(", ") })
            }
            None if self.contestants.is_empty() => Ok(all().collect()),
            None => Ok(self.contestants.clone()),
        }
    }
}

/// What could not be done, and why.
fn failed(what: &str, error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Setting(format!("{what}: {error}"))
}

/// Receives what a bench reports while it runs.
pub trait Listener {
    /// A table is complete.
    fn table(&mut self, rows: &[crate::report::Row]);
    /// Reports progress, or why a contestant does not take part.
    fn say(&mut self, text: &str);
    /// Whether the bench continues without a contestant that was asked for by name but is not available.
    fn goes_without(&mut self, _contestant: &str, _error: &BenchError) -> bool {
        false
    }
}

/// Millions per second.
fn millions_per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64() / 1e6
}

//! Bursts in flight: the loop around tables whose lookups have phases.

use super::sides::Key;
use crate::contestants::{Calls, fetch_ahead};

/// A table whose lookups have three phases. Methods take the keys of a burst, and its record.
pub(super) trait Phases {
    /// The record of a burst in flight.
    type Begun;

    /// An unused record.
    fn new_burst(&self) -> Self::Begun;
    /// Computes digests, and starts fetching the lines.
    fn begin(&self, keys: &[Key], begun: &mut Self::Begun);
    /// Reads the lines, and starts fetching the entries.
    fn advance(&self, keys: &[Key], begun: &mut Self::Begun);
    /// Reads the entries. Returns the sum of the values found.
    fn finish(&self, keys: &[Key], begun: &mut Self::Begun) -> u64;
}

/// Sum of all values found. A step of the loop advances the burst that is in the middle of those in flight, begins the
/// next one, and finishes the oldest. With two in flight, these are three phases of two bursts, as in a switch.
pub(super) fn sum_in_flight<T: Phases>(table: &T, queries: &[Key], calls: Calls, passes: u64) -> u64 {
    let mut ring: Vec<T::Begun> = (0..calls.in_flight).map(|_| table.new_burst()).collect();
    let (middle, oldest) = (calls.in_flight / 2, calls.in_flight - 1);
    let n_bursts = queries.len().div_ceil(calls.batch);
    let keys = |burst: usize| &queries[burst * calls.batch..queries.len().min((burst + 1) * calls.batch)];
    let mut sum = 0u64;
    for _ in 0..passes {
        for step in 0..n_bursts + oldest {
            let at = |lag: usize| step.checked_sub(lag).filter(|&burst| burst < n_bursts);
            if let Some(burst) = at(middle) {
                table.advance(keys(burst), &mut ring[burst % calls.in_flight]);
            }
            if let Some(burst) = at(0) {
                fetch_ahead(keys(burst));
                table.begin(keys(burst), &mut ring[burst % calls.in_flight]);
            }
            if let Some(burst) = at(oldest) {
                sum = sum.wrapping_add(table.finish(keys(burst), &mut ring[burst % calls.in_flight]));
            }
        }
    }
    sum
}

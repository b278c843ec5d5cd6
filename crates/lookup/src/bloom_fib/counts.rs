//! Filters with the number of names on every position.
//!
//! A counter counts up to [`MAX_COUNT`]; the excess is kept separately. So the messages to a switch depend only on the
//! names that are in, not on earlier ones.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::plan::Plan;
use super::table::Filters;
use super::{MAX_COUNT, Settings};
use crate::hash::Digest;

/// Names whose cells are fetched together.
const AHEAD: usize = 16;

/// Filters and their counts.
pub(super) struct Counts {
    pub(super) filters: Filters,
    /// By cell: the number of names in excess of its counter.
    beyond: HashMap<u64, u32>,
}

impl Counts {
    /// Empty filters.
    pub(super) fn new(plan: Plan, settings: &Settings) -> Self {
        let n_cells = plan.n_cells();
        let filters = Filters::new(plan, true, settings.seed)
            .unwrap_or_else(|error| panic!("no memory for filters of {n_cells} bits and their counters: {error}"));
        Self { filters, beyond: HashMap::new() }
    }

    /// The filters of names with these values, and the names for which they give a wrong value.
    pub(super) fn filled(plan: Plan, settings: &Settings, names: &[(Digest, u64)]) -> (Self, Vec<(Digest, u64)>) {
        let mut made = Self::new(plan, settings);
        let mut cells = Vec::new();
        for names in names.chunks(AHEAD) {
            cells.clear();
            for &(name, value) in names {
                if let Some(port) = (value as usize).checked_sub(1) {
                    cells.extend(made.filters.plan.cells(port, &made.filters.numbers(name)));
                }
            }
            cells.iter().for_each(|&cell| made.filters.prefetch(cell));
            for &cell in &cells {
                made.count(cell, true);
            }
        }
        let digests: Vec<Digest> = names.iter().map(|&(name, _)| name).collect();
        let mut matches = vec![0; digests.len()];
        made.filters.all_first_matches(&digests, &mut matches);
        let wrong = names.iter().zip(matches).filter(|((_, value), first)| value != first).map(|(name, _)| *name);
        let wrong = wrong.collect();
        (made, wrong)
    }

    /// Counts one name more or less on a cell. Returns the counter before and after.
    #[inline]
    pub(super) fn count(&mut self, cell: u64, up: bool) -> (u8, u8) {
        let old = self.filters.count(cell);
        let new = match (up, old) {
            (true, MAX_COUNT) => {
                *self.beyond.entry(cell).or_default() += 1;
                old
            }
            (false, MAX_COUNT) if self.take_beyond(cell) => old,
            (true, count) => count + 1,
            (false, count) => count.checked_sub(1).expect("only names that are in are taken out"),
        };
        if new != old {
            self.filters.put(cell, new);
        }
        (old, new)
    }

    /// Takes one name off the excess of a counter; false if there is none.
    fn take_beyond(&mut self, cell: u64) -> bool {
        let Entry::Occupied(mut entry) = self.beyond.entry(cell) else { return false };
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
        true
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let words = self.filters.bits().len() + self.filters.counters().map_or(0, |counters| counters.len());
        words * 8 + self.beyond.capacity() * size_of::<(u64, u32)>()
    }
}

//! When all filters are made anew, and of what sizes.

use super::control::BloomFib;
use super::plan::{Numbers, Plan};
use super::table::Filters;
use super::{Form, MAX_COUNT, Settings};
use crate::hash::Digest;
use crate::traits::InsertError;

/// Names that a rebuild makes room for, a name.
pub(super) const GROWTH: f64 = 1.25;
/// Names that every filter has room for.
const LEAST_NAMES: u64 = 64;
/// Every filter has room for this share of an even share of the names, so that a port that fills up does not make all
/// filters anew again and again.
const LEAST_SHARE: u64 = 16;
/// Filters made for so many times the names that are left are made anew.
const SHRINK: usize = 4;
/// Names whose cells are fetched together.
const AHEAD: usize = 16;

impl BloomFib {
    /// Names to make the filter of each port for: those of the largest port there is or ever was, with `growth`.
    pub(super) fn wanted(&self, growth: f64) -> Vec<u64> {
        let total = (self.names.len() as f64 * growth) as u64;
        let used = self.names.max_value();
        // In powers of two, so that the first name of a new port seldom makes all filters anew.
        let n_ports = used.max(self.made_for.len());
        let n_ports = if n_ports > self.room.1 { n_ports.next_power_of_two() } else { self.room.1 };
        let n_ports = n_ports.min(self.settings.max_value() as usize);
        let least = LEAST_NAMES.max(total / (LEAST_SHARE * n_ports.max(1) as u64));
        let of_port = |port: usize| {
            let own = self.names.n_of(port as u64);
            let room = if port <= self.room.1 { self.room.0.div_ceil(self.room.1 as u64) } else { 0 };
            ((own as f64 * growth) as u64).max(own).max(room).max(least)
        };
        let mut wanted: Vec<u64> = (1..=n_ports).map(of_port).collect();
        if self.settings.form == Form::Sliced {
            // Side by side all have the room of the fullest.
            let fullest = wanted.iter().copied().max().unwrap_or(0);
            wanted.fill(fullest);
        }
        wanted
    }

    /// Whether a name more of this value asks for larger filters.
    pub(super) fn is_full_for(&self, value: u64) -> bool {
        value > 0 && self.made_for.get(value as usize - 1).is_none_or(|&room| self.names.n_of(value) >= room)
    }

    /// Whether most of the names that the filters were made for are gone.
    pub(super) fn is_sparse(&self) -> bool {
        let least = self.room.0.max(self.made_for.len() as u64 * LEAST_NAMES) as usize;
        self.made_with > least && self.names.len() * SHRINK < self.made_with
    }

    /// Makes all filters and the exact table anew, for the names that are in.
    /// # Errors
    /// [`InsertError::NoPlace`]; nothing changed.
    pub(super) fn rebuild(&mut self, growth: f64) -> Result<(), InsertError> {
        let made_for = self.wanted(growth);
        let made = filters(Plan::for_names(&self.settings, &made_for), &self.settings);
        let live = self.names.ids();
        for names in live.chunks(AHEAD) {
            let cells = |&id: &u32| {
                let name = self.names.at(id);
                let numbers = made.numbers(name.digest);
                (name.value.checked_sub(1).map(usize::from), numbers)
            };
            let all: Vec<(Option<usize>, Numbers)> = names.iter().map(cells).collect();
            let cells = || all.iter().filter_map(|(port, numbers)| Some(made.plan.cells((*port)?, numbers))).flatten();
            cells().for_each(|cell| made.prefetch(cell));
            cells().for_each(|cell| made.put(cell, (made.count(cell) + 1).min(MAX_COUNT)));
        }
        let digests: Vec<Digest> = live.iter().map(|&id| self.names.at(id).digest).collect();
        let mut values = vec![0; digests.len()];
        made.all_first_matches(&digests, &mut values);
        let wrong = |(&id, value): (&u32, u64)| u64::from(self.names.at(id).value) != value;
        let excepted: Vec<u32> =
            live.iter().zip(values).filter(|&(id, value)| wrong((id, value))).map(|(&id, _)| id).collect();
        let entry = |&id: &u32| (self.names.at(id).digest, self.names.at(id).value.into());
        self.exceptions = self.exceptions.holding(&excepted.iter().map(entry).collect::<Vec<_>>())?;
        self.digest = made.digest(self.settings.max_count());
        (self.filters, self.made_for, self.made_with) = (made, made_for, live.len());
        live.iter().for_each(|&id| self.names.at_mut(id).excepted = false);
        excepted.iter().for_each(|&id| self.names.at_mut(id).excepted = true);
        self.touched.clear();
        self.turned.clear();
        Ok(())
    }
}

/// Empty filters, with counters.
pub(super) fn filters(plan: Plan, settings: &Settings) -> Filters {
    let n_cells = plan.n_cells();
    Filters::new(plan, true, settings.seed)
        .unwrap_or_else(|error| panic!("no memory for filters of {n_cells} bits and their counters: {error}"))
}

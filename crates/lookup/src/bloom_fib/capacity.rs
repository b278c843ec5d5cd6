//! The number of names that a view's filters are sized for: when they are rebuilt, and with which sizes.

use super::plan::{LINE_BITS, Plan, PortShape};
use super::sizing::expected_exceptions;
use super::{COUNTER_BITS, Form, Settings};
use crate::base::bytes::{Bytes, at_most};
use crate::traits::DecodeError;

/// Capacity that a rebuild reserves, as a multiple of the number of names.
pub(super) const GROWTH: f64 = 1.25;
/// Room that a filter with few names is given at most beside them, and that filters side by side have at least: with
/// tens of thousands of ports, more would be most of the table.
const ROOM: u64 = 64;
/// Names that come to a port by chance before the filters are rebuilt: this many and three standard deviations.
const MORE_NAMES: f64 = 8.0;
/// Every filter has at least 1/16 of an even share of the capacity, so that a port that fills up does not cause one
/// rebuild after another.
const LEAST_SHARE: u64 = 16;
/// Filters are rebuilt when they were sized for more than this multiple of the names that remain.
const SHRINK: u64 = 4;

/// Names that a filter has room for at least, where about `typical` are in it. A filter has a line to itself, so it may
/// as well have room for the names that fit a line. BUFFALO shares bits so that small filters have more per name.
fn room(settings: &Settings, typical: f64, growth: f64) -> u64 {
    if settings.form == Form::Sliced {
        return ROOM;
    }
    let share = if settings.policy.has_counters() { 1.0 } else { 0.75 };
    let of_line = LINE_BITS as f64 * share / settings.policy.bits_a_name();
    let by_chance = if growth > 1.0 { typical + 3.0 * typical.sqrt() + MORE_NAMES } else { 0.0 };
    (of_line.max(by_chance) as u64).clamp(1, ROOM)
}

/// What is expected of a new table.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Bits of all filters and their counters.
    pub bits: u64,
    /// Names in the exact table.
    pub n_exceptions: f64,
    /// The logarithm of the probability that no filter matches an alien.
    pub ln_none: f64,
}

/// What is expected of a new table of `n_of` names of each value.
pub fn expected(settings: &Settings, n_of: &[u64]) -> Expected {
    let plan = Capacity::default().wanted(settings, n_of, 1.0).plan(settings);
    let cell = if settings.policy.has_counters() { 1 + COUNTER_BITS } else { 1 };
    let names = |port: usize| n_of.get(port).copied().unwrap_or(0);
    let rate = |(port, shape): (usize, &PortShape)| (names(port), shape.expected_fp(names(port)));
    let rates = || (1..).zip(plan.ports()).map(rate);
    Expected {
        bits: plan.n_cells() * cell,
        n_exceptions: expected_exceptions(rates(), names(0)),
        ln_none: rates().map(|(_, rate)| (-rate).ln_1p()).sum(),
    }
}

/// What filters were sized for.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    /// Capacity of each port's filter, from port 1 on.
    of_ports: Vec<u32>,
    /// The number of names at that time.
    n_names: u64,
}

impl Capacity {
    /// The capacity for `n_of` names of each value with `growth`, for all ports up to the largest that was ever used.
    pub(super) fn wanted(&self, settings: &Settings, n_of: &[u64], growth: f64) -> Self {
        let grown = |n: u64| (n as f64 * growth) as u64;
        let n_names = n_of.iter().sum();
        let used = n_of.iter().rposition(|&n| n > 0).unwrap_or(0);
        // Powers of two, so that the first name of a new port seldom causes a rebuild.
        let n_ports = match used.max(self.of_ports.len()) {
            0 => 0,
            n_ports => n_ports.next_power_of_two().min(settings.max_value() as usize),
        };
        let least = grown(n_names) / (LEAST_SHARE * n_ports.max(1) as u64);
        let mean = n_names as f64 / n_ports.max(1) as f64;
        let of_port = |value: usize| {
            let own = n_of.get(value).copied().unwrap_or(0);
            grown(own).max(own).max(least).max(room(settings, mean.max(own as f64), growth)) as u32
        };
        let mut of_ports: Vec<u32> = (1..=n_ports).map(of_port).collect();
        if settings.form == Form::Sliced {
            // Filters side by side all have the capacity of the fullest.
            let fullest = of_ports.iter().copied().max().unwrap_or(0);
            of_ports.fill(fullest);
        }
        Self { of_ports, n_names }
    }

    /// The plan of filters of this capacity.
    pub(super) fn plan(&self, settings: &Settings) -> Plan {
        Plan::for_names(settings, &self.of_ports.iter().map(|&names| names.into()).collect::<Vec<_>>())
    }

    /// Whether the filters have capacity for `n` names of a value.
    pub(super) fn is_enough(&self, value: u64, n: u64) -> bool {
        value == 0 || self.of_ports.get(value as usize - 1).is_some_and(|&capacity| n <= capacity.into())
    }

    /// Whether most of the names that the filters were sized for are gone, now that `n_names` remain.
    pub(super) fn is_sparse(&self, n_names: usize) -> bool {
        self.n_names > self.of_ports.len() as u64 * ROOM && n_names as u64 * SHRINK < self.n_names
    }

    /// Appends what [`Capacity::decode`] reads.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.n_names.to_le_bytes());
        out.extend((self.of_ports.len() as u32).to_le_bytes());
        self.of_ports.iter().for_each(|capacity| out.extend(capacity.to_le_bytes()));
    }

    /// # Errors
    /// [`DecodeError`]: no table with these settings has this capacity.
    pub(super) fn decode(bytes: &mut Bytes, settings: &Settings) -> Result<Self, DecodeError> {
        let n_names = at_most("names of all filters", bytes.u64()?, settings.max_names as u64)?;
        let n_ports = at_most("filters", bytes.count(4)? as u64, settings.max_value())?;
        let most = ROOM.max((n_names as f64 * GROWTH) as u64);
        let capacity = |_| Ok(at_most("names of a filter", bytes.u32()?.into(), most)? as u32);
        let of_ports = (0..n_ports).map(capacity).collect::<Result<_, DecodeError>>()?;
        Ok(Self { of_ports, n_names })
    }
}

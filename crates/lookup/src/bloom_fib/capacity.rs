//! How many names the filters of a view have room for: when they are made anew, and of what sizes.

use super::plan::Plan;
use super::{Form, Settings};
use crate::base::bytes::{Bytes, at_most};
use crate::traits::DecodeError;

/// Names that a rebuild makes room for, a name.
pub(super) const GROWTH: f64 = 1.25;
/// Names that every filter has room for.
const LEAST_NAMES: u64 = 64;
/// Every filter has room for this share of an even share of the names, so that a port that fills up does not make all
/// filters anew again and again.
const LEAST_SHARE: u64 = 16;
/// Filters made for so many times the names that are left are made anew.
const SHRINK: u64 = 4;

/// What filters were made for.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    /// Names of each port, from port 1 on.
    of_ports: Vec<u32>,
    /// Names that there were.
    n_names: u64,
}

impl Capacity {
    /// Room for names of each value, with `growth`, and for the largest port there is or ever was.
    pub(super) fn wanted(&self, settings: &Settings, n_of: &[u64], growth: f64) -> Self {
        let grown = |n: u64| (n as f64 * growth) as u64;
        let n_names = n_of.iter().sum();
        let used = n_of.iter().rposition(|&n| n > 0).unwrap_or(0);
        // In powers of two, so that the first name of a new port seldom makes all filters anew.
        let n_ports = match used.max(self.of_ports.len()) {
            0 => 0,
            n_ports => n_ports.next_power_of_two().min(settings.max_value() as usize),
        };
        let least = LEAST_NAMES.max(grown(n_names) / (LEAST_SHARE * n_ports.max(1) as u64));
        let of_port = |value: usize| {
            let own = n_of.get(value).copied().unwrap_or(0);
            grown(own).max(own).max(least) as u32
        };
        let mut of_ports: Vec<u32> = (1..=n_ports).map(of_port).collect();
        if settings.form == Form::Sliced {
            // Side by side all have the room of the fullest.
            let fullest = of_ports.iter().copied().max().unwrap_or(0);
            of_ports.fill(fullest);
        }
        Self { of_ports, n_names }
    }

    /// The filters.
    pub(super) fn plan(&self, settings: &Settings) -> Plan {
        Plan::for_names(settings, &self.of_ports.iter().map(|&names| names.into()).collect::<Vec<_>>())
    }

    /// Whether there is room for `n` names of a value.
    pub(super) fn is_enough(&self, value: u64, n: u64) -> bool {
        value == 0 || self.of_ports.get(value as usize - 1).is_some_and(|&capacity| n <= capacity.into())
    }

    /// Whether most of the names that the filters were made for are gone, where so many are left.
    pub(super) fn is_sparse(&self, n_names: usize) -> bool {
        self.n_names > self.of_ports.len() as u64 * LEAST_NAMES && n_names as u64 * SHRINK < self.n_names
    }

    /// Appends what [`Capacity::decode`] reads.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.n_names.to_le_bytes());
        out.extend((self.of_ports.len() as u32).to_le_bytes());
        self.of_ports.iter().for_each(|capacity| out.extend(capacity.to_le_bytes()));
    }

    /// # Errors
    /// [`DecodeError`]: no table with these settings has it.
    pub(super) fn decode(bytes: &mut Bytes, settings: &Settings) -> Result<Self, DecodeError> {
        let n_names = at_most("names of all filters", bytes.u64()?, settings.max_names as u64)?;
        let n_ports = at_most("filters", bytes.count(4)? as u64, settings.max_value())?;
        let most = LEAST_NAMES.max((n_names as f64 * GROWTH) as u64);
        let capacity = |_| Ok(at_most("names of a filter", bytes.u32()?.into(), most)? as u32);
        let of_ports = (0..n_ports).map(capacity).collect::<Result<_, DecodeError>>()?;
        Ok(Self { of_ports, n_names })
    }
}

//! The positions of a name's bits: the sizes of all filters, and the numbers that positions are derived from.
//!
//! A name has up to [`MAX_HASHES`] numbers u_j of 32 bits, the same for all ports. Its j-th position in a filter of m
//! bits is `floor(u_j m / 2^32)`. So a position of one filter corresponds to an interval of u in every other.

use super::sizing::{self, Demand, MAX_BITS, MIN_BITS};
use super::{Form, Policy, Settings};
use crate::bloom::{MAX_HASHES, Shape, Standard, optimal_hashes};
use crate::hash::{Digest, mix64};
use crate::traits::ApplyError;

/// Increment between the mixes of one name: the 64-bit golden ratio, odd.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
/// Filters begin at cache line boundaries.
pub(super) const LINE_BITS: u64 = 512;
/// Maximum number of cells of a table.
pub(super) const MAX_CELLS: u64 = 1 << 36;

/// The numbers that the positions of a name derive from.
pub(super) type Numbers = [u32; MAX_HASHES as usize];

/// The first `n` numbers of a name, possibly one more.
#[inline(always)]
pub(super) fn numbers(digest: Digest, seed: u64, n: usize) -> Numbers {
    let mut numbers = [0; MAX_HASHES as usize];
    let (pairs, _) = numbers.as_chunks_mut::<2>();
    for (pair, step) in pairs[..n.div_ceil(2)].iter_mut().zip(1..) {
        let mixed = mix64((digest.0 ^ seed).wrapping_add(STEP.wrapping_mul(step)));
        *pair = [(mixed >> 32) as u32, mixed as u32];
    }
    numbers
}

/// The filter of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortShape {
    /// Its bits: m.
    pub bits: u32,
    /// Its hash functions: l, or k.
    pub hashes: u8,
}

impl PortShape {
    /// The position that a number maps to.
    #[inline(always)]
    pub(super) fn position(self, number: u32) -> u32 {
        ((u64::from(number) * u64::from(self.bits)) >> 32) as u32
    }

    /// The first and the last number that map to a position.
    pub(super) fn numbers_of(self, position: u32) -> (u32, u32) {
        let first = |position: u64| (position << 32).div_ceil(self.bits.into());
        (first(position.into()) as u32, (first(u64::from(position) + 1) - 1) as u32)
    }

    /// The false-positive rate expected with `names` names.
    pub fn expected_fp(self, names: u64) -> f64 {
        Shape::<Standard>::new(self.bits.into(), self.hashes.into()).map_or(1.0, |shape| shape.expected_fp(names))
    }
}

/// The filters of all ports, 1 to [`Plan::n_ports`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    form: Form,
    ports: Vec<PortShape>,
    /// The first cell of each port's filter.
    bases: Vec<u64>,
    /// Side by side: the logarithm of the cells per position.
    stride_log: u32,
    n_cells: u64,
    max_hashes: u8,
}

impl Plan {
    /// The plan of these filters; side by side they must be equal.
    pub(super) fn new(form: Form, ports: Vec<PortShape>) -> Self {
        let max_hashes = ports.iter().map(|port| port.hashes).max().unwrap_or(0);
        let stride = ports.len().next_power_of_two().max(8);
        let (mut bases, mut n_cells) = (Vec::with_capacity(ports.len()), 0);
        for (port, shape) in (0..).zip(&ports) {
            match form {
                Form::Separate => {
                    bases.push(n_cells);
                    n_cells += u64::from(shape.bits).next_multiple_of(LINE_BITS);
                }
                Form::Sliced => {
                    bases.push(port);
                    n_cells = (u64::from(shape.bits) * stride as u64).next_multiple_of(LINE_BITS);
                }
            }
        }
        let stride_log = if form == Form::Sliced { stride.ilog2() } else { 0 };
        Self { form, ports, bases, stride_log, n_cells, max_hashes }
    }

    /// The plan for ports with this many names each, by the policy of `settings`.
    pub(super) fn for_names(settings: &Settings, names: &[u64]) -> Self {
        let clamped = |bits: u64| bits.clamp(MIN_BITS, MAX_BITS) as u32;
        let fullest = names.iter().copied().max().unwrap_or(0);
        // Side by side, all filters have the size of the fullest port's.
        let sized: Vec<u64> = match settings.form {
            Form::Separate => names.to_vec(),
            Form::Sliced => vec![fullest; names.len()],
        };
        let shapes = match settings.policy {
            Policy::Bfw { hashes } => {
                let shape = |&n| PortShape { bits: clamped(sizing::half_full_bits(n, hashes)), hashes };
                sized.iter().map(shape).collect()
            }
            Policy::SummaryCache { bits_a_name, hashes } => {
                let shape = |&n: &u64| PortShape { bits: clamped(n * u64::from(bits_a_name)), hashes };
                sized.iter().map(shape).collect()
            }
            Policy::Buffalo { bits_a_name, max_hashes } => {
                let demands: Vec<Demand> = sized.iter().map(|&names| Demand { names, weight: 1.0 }).collect();
                let total = sized.iter().sum::<u64>().saturating_mul(bits_a_name.into());
                let bits = sizing::share_bits(&demands, total, max_hashes);
                let shape = |(&n, bits): (&u64, u64)| {
                    let hashes = optimal_hashes(bits, n).min(max_hashes.into()) as u8;
                    PortShape { bits: clamped(bits), hashes }
                };
                sized.iter().zip(bits).map(shape).collect()
            }
        };
        Self::new(settings.form, shapes)
    }

    /// Whether a query structure with these settings can have these filters.
    /// # Errors
    /// [`ApplyError::Malformed`].
    pub(super) fn check(&self, settings: &Settings) -> Result<(), ApplyError> {
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        if self.form != settings.form || self.ports.len() as u64 > settings.max_value() {
            return malformed("the filters are arranged otherwise, or more than there are values");
        }
        let fits = |port: &PortShape| {
            (1..=MAX_BITS).contains(&port.bits.into()) && (1..=settings.policy.max_hashes()).contains(&port.hashes)
        };
        if !self.ports.iter().all(fits) || self.n_cells > MAX_CELLS {
            return malformed("a filter has no bit, or too many, or other functions than the policy allows");
        }
        if self.form == Form::Sliced && self.ports.iter().any(|port| Some(port) != self.ports.first()) {
            return malformed("filters side by side are not alike");
        }
        Ok(())
    }

    /// The bits of a word that may be one.
    pub(super) fn used_bits(&self) -> u64 {
        let stride = 1 << self.stride_log;
        match self.form {
            Form::Separate => u64::MAX,
            Form::Sliced => {
                let of_one = (1u64 << self.ports.len()) - 1;
                (0..64).step_by(stride).fold(0, |word, shift| word | of_one << shift)
            }
        }
    }

    /// How the bits are arranged.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The number of filters.
    pub fn n_ports(&self) -> usize {
        self.ports.len()
    }

    /// The filter of each port, from port 1 on.
    pub fn ports(&self) -> &[PortShape] {
        &self.ports
    }

    /// Bits of all filters.
    pub(super) fn n_cells(&self) -> u64 {
        self.n_cells
    }

    /// The largest number of functions of any filter.
    #[inline(always)]
    pub(super) fn max_hashes(&self) -> usize {
        self.max_hashes.into()
    }

    /// The first cell of each port's filter.
    #[inline(always)]
    pub(super) fn bases(&self) -> &[u64] {
        &self.bases
    }

    #[inline(always)]
    pub(super) fn stride_log(&self) -> u32 {
        self.stride_log
    }

    /// The cell of a position of a port; ports count from 0.
    #[inline(always)]
    pub(super) fn cell(&self, port: usize, position: u32) -> u64 {
        self.bases[port] + (u64::from(position) << self.stride_log)
    }

    /// The positions of a name in the filter of a port; ports count from 0.
    #[inline(always)]
    pub(super) fn positions<'a>(&self, port: usize, numbers: &'a Numbers) -> impl Iterator<Item = u32> + use<'a> {
        let shape = self.ports[port];
        numbers[..shape.hashes.into()].iter().map(move |&number| shape.position(number))
    }

    /// The cells of a name in the filter of a port; ports count from 0.
    #[inline(always)]
    pub(super) fn cells<'a>(&self, port: usize, numbers: &'a Numbers) -> impl Iterator<Item = u64> + use<'a> {
        let (base, stride_log) = (self.bases[port], self.stride_log);
        self.positions(port, numbers).map(move |position| base + (u64::from(position) << stride_log))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_position_are_those_that_lead_to_it() {
        for bits in [64, 100, 511, 1 << 20, 1_000_003, 1 << 30] {
            let shape = PortShape { bits, hashes: 1 };
            for position in [0, 1, 7, bits / 2, bits - 2, bits - 1] {
                let (first, last) = shape.numbers_of(position);
                assert_eq!((shape.position(first), shape.position(last)), (position, position), "{bits}");
                assert!(first == 0 || shape.position(first - 1) == position - 1, "{bits}");
                assert!(last == u32::MAX || shape.position(last + 1) == position + 1, "{bits}");
            }
        }
    }

    #[test]
    fn no_two_ports_share_a_cell() {
        for form in [Form::Separate, Form::Sliced] {
            let ports = match form {
                Form::Separate => [64u32, 700, 512, 1].map(|bits| PortShape { bits, hashes: 3 }).to_vec(),
                Form::Sliced => vec![PortShape { bits: 300, hashes: 3 }; 9],
            };
            let plan = Plan::new(form, ports);
            let mut seen = std::collections::HashSet::new();
            for (port, shape) in plan.ports().iter().enumerate() {
                for position in 0..shape.bits {
                    let cell = plan.cell(port, position);
                    assert!(cell < plan.n_cells() && seen.insert(cell));
                }
            }
        }
    }
}

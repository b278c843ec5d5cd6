//! Bloom forwarder, control half of one table: names that carry their values, and their filters.

use super::names::Names;
use super::plan::{Plan, PortShape};
use super::view::BloomView;
use super::{MAX_COUNT, sizing};
use crate::base::part::Payload;
use crate::traits::{Single, Skeleton, View};

/// Control half of one table; see [`Figures::size_bytes`] for its memory.
///
/// ```
/// use fibula_lookup::bloom_fib::{BloomFib, Form, Policy, Settings};
/// use fibula_lookup::hash::{Family, Hasher, SecretKey};
/// use fibula_lookup::traits::{Control, Query};
///
/// let key = SecretKey::from_seed(1);
/// let hasher = Hasher::new(Family::MulAdd, &key);
/// let policy = Policy::buffalo(0.001, 32);
/// let mut table = BloomFib::new(Settings::new(6, 1000, policy, Form::Separate, &key));
/// let mut switch = table.export();
///
/// let mut updates = Vec::new();
/// let name = hasher.digest(b"\x02\0\0\0\0\x07");
/// table.insert(name, 32, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!(switch.lookup(name), 32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type BloomFib = Single<Names<u64>>;

/// Figures of a control half.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Live names.
    pub n_names: usize,
    /// Names in the exact table.
    pub n_exceptions: usize,
    /// The number of exceptions expected of these filters with that many names.
    pub expected_exceptions: f64,
    /// Slots of the exact table.
    pub n_exact_slots: usize,
    /// Counters at their maximum. Reads all of them.
    pub n_saturated: u64,
    /// The expected rate of false positives for aliens: equation 7, with the rates of the filters as sized and filled.
    pub expected_fp: f64,
    /// Bytes of the control half: names, index, counters and exact table.
    pub size_bytes: usize,
}

impl BloomView {
    /// Figures of this view and of its names; reads all counters.
    pub fn figures<P: Payload>(&self, names: &Names<P>) -> Figures {
        let rate =
            |(value, port): (u64, &PortShape)| (self.n_names_of(value), port.expected_fp(self.n_names_of(value)));
        let rates = || (1..).zip(self.plan().ports()).map(rate);
        let filters = &self.counts().filters;
        Figures {
            n_names: names.len(),
            n_exceptions: self.exceptions().len(),
            expected_exceptions: sizing::expected_exceptions(rates(), self.n_names_of(0)),
            n_exact_slots: self.exceptions().n_slots(),
            n_saturated: (0..self.plan().n_cells()).filter(|&cell| filters.count(cell) == MAX_COUNT).count() as u64,
            expected_fp: sizing::rate_of_all(rates().map(|(_, rate)| rate)),
            size_bytes: names.heap_bytes() + View::<Names<P>>::heap_bytes(self),
        }
    }
}

impl BloomFib {
    /// The filters of all ports.
    pub fn plan(&self) -> &Plan {
        self.view().plan()
    }

    /// Names in the exact table.
    pub fn n_exceptions(&self) -> usize {
        self.view().exceptions().len()
    }

    /// Figures; reads all counters.
    pub fn figures(&self) -> Figures {
        self.view().figures(self.skeleton())
    }
}

//! One cache line a lookup: each name's value is the XOR of three or four cells of one bucket.
//!
//! | room | what |
//! |---|---|
//! | [`control`] | [`LineTable`], the control half of one table |
//! | [`lines`], `group` | the names in groups of buckets; shared by all switches of a network |
//! | `settle`, `solve`, `words`, `avx512` | names settled in buckets: which one keeps whom, and the linear system of one |
//! | [`view`], `paint` | what one switch's cells must hold, as images and updates, from the skeleton and its values |
//! | [`update`] | the message: what crosses the seam |
//! | [`query`], `kernel` | [`LineQuery`], the half of words; [`Reader`]s beside its writer |
//! | `layout` | which bits of a digest mean what, and where things stand in a bucket |
//!
//! The idea, why it works and what it costs: docs/derivations/line.md.
//! Cost: one line a lookup, a second one for 1 name in 30 to 60; 10.2 to 10.4 bits a name with 8-bit values. Alien names
//! get an arbitrary value, removed ones, too. Updates: one bucket is edited, now and then solved anew, in about 2 us, and
//! sent: 64 bytes.
//! Source: none of the papers; bumping as in Dillinger, Hübschle-Schneider, Sanders, Walzer, "Fast succinct retrieval and
//! approximate membership using ribbon".
//! Limits: values of up to 32 bits, 2^24 groups; two names with one digest cannot both be in.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod control;
mod group;
mod kernel;
mod layout;
pub mod lines;
mod paint;
mod processor;
pub mod query;
mod settle;
mod solve;
#[cfg(test)]
mod tests;
pub mod update;
pub mod view;
mod words;

pub use crate::othello::{Change, ShardId};
pub use control::LineTable;
pub use lines::{GroupState, Lines, RestoreError, Stats};
pub use query::{LineQuery, Reader};
pub use settle::Payload;
pub use update::{BucketsUpdate, GroupImage, LevelsUpdate, Update};
pub use view::View;

use crate::hash::{Purpose, SecretKey};
use layout::Layout;

/// Names that a group may hold outside its buckets: a bound of the format.
pub const MAX_STASH: usize = 8;
/// First-level buckets of a group, at most: from there on it splits.
const MAX_BUCKETS: f64 = 192.0;

/// Memory against speed: how full buckets are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trade {
    /// 3 cells a name, some 48 names to a line of 62 cells: lookups and updates cost least.
    Fast,
    /// 3 cells a name, some 52 to a line.
    #[default]
    Balanced,
    /// 4 cells a name, some 58 to a line.
    Small,
}

impl Trade {
    /// All trades.
    pub const ALL: [Trade; 3] = [Trade::Fast, Trade::Balanced, Trade::Small];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Balanced => "balanced",
            Self::Small => "small",
        }
    }

    /// Cells of a name: 3 or 4.
    pub const fn cells_a_name(self) -> u8 {
        match self {
            Self::Fast | Self::Balanced => 3,
            Self::Small => 4,
        }
    }

    /// Lines of a bucket for values of so many bits.
    pub fn lines(value_bits: u8) -> u32 {
        1 << Layout::new(value_bits, Self::default()).log_lines
    }

    /// Memory of a name in a large table, in bits: buckets at their mean load, and 1.6 % for the second level and the
    /// directory.
    pub fn bits_a_name(self, value_bits: u8) -> f64 {
        let layout = Layout::new(value_bits, self);
        layout.bytes() as f64 * 8.0 / self.mean(layout.n_cells() as f64) * 1.016
    }

    /// Names that a bucket of `n_cells` is to get on average: so many standard deviations (of about the square root of the
    /// cells) below what random systems of 3 or 4 ones a row can have (0.918 and 0.977 of the cells).
    fn mean(self, n_cells: f64) -> f64 {
        let (threshold, deviations) = match self {
            Self::Fast => (0.918, 1.13),
            Self::Balanced => (0.918, 0.62),
            Self::Small => (0.977, 0.33),
        };
        threshold * n_cells - deviations * n_cells.sqrt()
    }
}

/// What a table is built with; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// l: bits of a value, 1 to 32.
    pub value_bits: u8,
    /// How full buckets are.
    pub trade: Trade,
    /// Names that the table takes at most.
    pub max_names: usize,
    /// Keys the digests of groups, and the first tweaks.
    pub seed: u64,
}

impl Settings {
    /// The largest `max_names`: beyond what any arena holds.
    pub const MAX_NAMES: usize = 1 << 36;

    /// Settings whose seed is derived from the table's key; `max_names` is capped at [`Settings::MAX_NAMES`].
    /// # Panics
    /// When `value_bits` is not in 1 to 32.
    pub fn new(value_bits: u8, max_names: usize, key: &SecretKey) -> Self {
        assert!((1..=32).contains(&value_bits), "a value has 1 to 32 bits, not {value_bits}");
        let max_names = max_names.min(Self::MAX_NAMES);
        Self { value_bits, trade: Trade::default(), max_names, seed: key.derive(Purpose::Structure, 16) }
    }

    /// The same with another trade.
    #[must_use]
    pub fn with_trade(self, trade: Trade) -> Self {
        Self { trade, ..self }
    }

    fn layout(&self) -> Layout {
        Layout::new(self.value_bits, self.trade)
    }

    /// Names of a group, at most: of narrow values a bucket has so many that groups have fewer buckets.
    fn max_group(&self) -> usize {
        let mean = self.trade.mean(self.layout().n_cells() as f64);
        (mean * MAX_BUCKETS).min(12_000.0) as usize
    }
}

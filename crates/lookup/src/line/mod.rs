//! One cache line per lookup: the value of a name is the XOR of three or four cells of one bucket.
//!
//! | module | content |
//! |---|---|
//! | [`skeleton`], `group`, `before` | the names in groups of buckets, shared by all switches of a network |
//! | `rows` | what a store keeps for the skeleton |
//! | `assign`, `solve`, `words`, `avx512` | which bucket keeps which names, and the linear system of a bucket |
//! | [`view`], `fill` | what the cells of one switch hold, as images and updates, from the skeleton and the switch's values |
//! | [`update`] | the messages that cross the seam |
//! | [`query`], `kernel` | [`LineQuery`], the query half, and the [`Reader`]s concurrent with its writer |
//! | `layout` | which bits of a digest mean what, and where things are in a bucket |
//!
//! The idea, the reason why it works, and its cost: docs/derivations/line.md.
//! Cost: one line per lookup, and a second one for 1 name in 30 to 60; 10.2 to 10.4 bits per name with 8-bit values.
//! Alien names and removed names get an arbitrary value. An update edits one bucket, or occasionally solves it again,
//! in about 3 us with 4M names, and sends one line of 64 bytes and some more.
//! Source: none of the papers. Bumping is as in Dillinger, Hübschle-Schneider, Sanders, Walzer, "Fast succinct
//! retrieval and approximate membership using ribbon".
//! Limits: values of up to 32 bits, 2^24 groups. Two names with the same digest cannot both be in.

mod assign;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod before;
mod fill;
mod group;
mod kernel;
mod layout;
mod processor;
pub mod query;
mod rows;
pub mod skeleton;
mod solve;
#[cfg(test)]
mod tests;
pub mod update;
pub mod view;
mod words;

pub use query::{LineQuery, Reader};
pub use skeleton::{LineSkeleton, Stats};
pub use update::{BucketsUpdate, GroupImage, LevelsUpdate, Update};
pub use view::LineView;

use crate::hash::{Purpose, SecretKey};
use crate::traits::Single;
use layout::Layout;

/// Control half of one table whose payloads are the values. It takes about 29 bytes per name.
///
/// ```
/// use fibula_lookup::hash::{Family, Hasher, SecretKey};
/// use fibula_lookup::line::{LineTable, Settings};
/// use fibula_lookup::traits::{Control, Query};
///
/// let key = SecretKey::from_seed(1);
/// let hasher = Hasher::new(Family::MulAdd, &key);
/// let mut table = LineTable::new(Settings::new(8, 1000, &key));
/// let mut switch = table.export();
///
/// let mut updates = Vec::new();
/// let name = hasher.digest(b"\x02\0\0\0\0\x07");
/// table.insert(name, 42, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!(switch.lookup(name), 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type LineTable = Single<LineSkeleton<u64>>;

/// The most names that a group holds outside its buckets. The message format has the same bound.
pub const MAX_STASH: usize = 8;
/// The most first-level buckets of a group. A larger group splits, and that is what the slowest inserts do.
const MAX_BUCKETS: f64 = 128.0;

/// The trade of memory against speed: how full buckets are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trade {
    /// 3 cells per name, about 48 names in a line of 62 cells. Lookups and updates cost least.
    Fast,
    /// 3 cells per name, about 52 names in a line.
    #[default]
    Balanced,
    /// 4 cells per name, about 58 names in a line.
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

    /// Cells per name: 3 or 4.
    pub const fn cells_a_name(self) -> u8 {
        match self {
            Self::Fast | Self::Balanced => 3,
            Self::Small => 4,
        }
    }

    /// Cache lines of a bucket for values of `value_bits` bits.
    pub fn lines(value_bits: u8) -> u32 {
        1 << Layout::new(value_bits, Self::default()).log_lines
    }

    /// Memory per name in a large table, in bits: buckets at their mean load, and 1.6 % for the second level and the
    /// directory.
    pub fn bits_a_name(self, value_bits: u8) -> f64 {
        let layout = Layout::new(value_bits, self);
        layout.bytes() as f64 * 8.0 / self.mean(layout.n_cells() as f64) * 1.016
    }

    /// The mean number of names in a bucket of `n_cells` cells. Random systems with 3 or 4 ones per row are solvable up
    /// to a load of 0.918 or 0.977 of the cells. The mean lies some standard deviations (each about the square root of
    /// the cells) below that.
    fn mean(self, n_cells: f64) -> f64 {
        let (threshold, deviations) = match self {
            Self::Fast => (0.918, 1.13),
            Self::Balanced => (0.918, 0.62),
            Self::Small => (0.977, 0.33),
        };
        threshold * n_cells - deviations * n_cells.sqrt()
    }
}

/// What a table is built with. Both halves have the same settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// l: bits of a value, 1 to 32.
    pub value_bits: u8,
    /// How full buckets are.
    pub trade: Trade,
    /// The most names that the table takes.
    pub max_names: usize,
    /// Keys the digests of groups, and chooses the first tweaks.
    pub seed: u64,
}

impl Settings {
    /// The largest `max_names`: no arena holds more.
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

    /// The most names of a group. Buckets of narrow values have many names, so their groups have fewer buckets.
    fn max_group(&self) -> usize {
        let mean = self.trade.mean(self.layout().n_cells() as f64);
        (mean * MAX_BUCKETS).min(12_000.0) as usize
    }
}

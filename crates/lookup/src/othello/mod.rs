//! Othello hashing and its l-POG: a few cells per name, two reads per lookup, constant-time updates.
//!
//! | module | content |
//! |---|---|
//! | [`graph`], `shard` | the names as an acyclic graph, shared by all switches of a network |
//! | [`colouring`] | what the cells of one switch hold, as images and updates, from a graph and the switch's values |
//! | `rows` | what a store keeps for the graph |
//! | [`update`] | the messages that cross the seam |
//! | [`query`], `kernel`, `apply` | [`OthelloQuery`], the query half, and the [`Reader`]s concurrent with its writer |
//! | [`sizing`] | how many cells: sharded and exact, or the papers' powers of two |
//! | [`fingerprint`] | OFW: cells that distinguish alien names from live ones |
//! | [`spread`] | alien names distributed over servers by weight |
//! | [`gateway`] | OGW: full names in slots that the Othello leads to |
//!
//! Cost: 2 cell reads per lookup; 2.10 to 2.40 cells of l bits per name (l dividing 64) and 8 bytes per shard.
//! Alien names get an arbitrary value, or drop where cells have fingerprints, or an evenly spread value. Value 0 means
//! drop. Updates are amortised O(1), and rebuild at most one shard.
//! Source: Yu, Belazzougui, Qian, Zhang, "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello
//! Hashing", sections IV and V. Differs: sharded, exact sizes, one keyed 64-bit digest per name, canonical colouring,
//! tombstones for removed names, versioned publication instead of the D1/D2 bit vectors.
//! Limits: values of up to 64 bits, 2^24 shards. Two names with the same digest cannot both be in.

mod apply;
mod build;
pub mod colouring;
pub mod fingerprint;
pub mod gateway;
pub mod graph;
mod index;
mod kernel;
pub mod query;
mod replicated;
mod rows;
mod shard;
pub mod sizing;
pub mod spread;
#[cfg(test)]
mod tests;
pub mod update;
mod validate;

pub use colouring::Colouring;
pub use graph::Graph;
pub use query::{OthelloQuery, Pinned, QueryStats, Reader};
pub use sizing::{Option1, Option2, Sharded, Sides, Sizing};
pub use update::{CellsUpdate, ShardImage, Update};

use crate::hash::tweak::MIX;
use crate::traits::Single;
use fingerprint::{CellFormat, Check};

use crate::base::cells::{cells_per_word, value_mask};
use crate::hash::{Purpose, SecretKey, mix64};

/// Control half of one table whose payloads are the values. It takes about 44 bytes per name with 16-bit indices.
///
/// ```
/// use fibula_lookup::hash::{Family, Hasher, SecretKey};
/// use fibula_lookup::othello::{Othello, OthelloQuery, Settings};
/// use fibula_lookup::traits::{Control, Query};
///
/// let key = SecretKey::from_seed(1);
/// let hasher = Hasher::new(Family::MulAdd, &key);
/// let mut table = Othello::new(Settings::new(8, 1000, &key));
/// let mut switch: OthelloQuery = table.export();
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
pub type Othello<S = Sharded> = Single<Graph<S, u64>>;

/// What a table is built with. Both halves have the same settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bits of a value, 1 to 64: l in the paper, or l_p where there are fingerprints.
    pub value_bits: u8,
    /// Bits of a cell besides the value, by which aliens get drop: l_f in the paper. The highest bit is the emptiness
    /// indicator. 0 is Concise. A cell has at most 64 bits.
    pub fingerprint_bits: u8,
    /// Whether aliens get evenly spread values ([`spread`]) instead of arbitrary ones.
    pub spread: bool,
    /// The most names that the table takes.
    pub max_names: usize,
    /// Keys tweaks and cell digests.
    pub seed: u64,
}

impl Settings {
    /// The largest `max_names`: no arena holds more.
    pub const MAX_NAMES: usize = 1 << 36;

    /// Settings whose seed is derived from the table's key; `max_names` is capped at [`Settings::MAX_NAMES`].
    /// # Panics
    /// When `value_bits` is not in 1 to 64.
    pub fn new(value_bits: u8, max_names: usize, key: &SecretKey) -> Self {
        assert!((1..=64).contains(&value_bits), "a value has 1 to 64 bits, not {value_bits}");
        let max_names = max_names.min(Self::MAX_NAMES);
        Self { value_bits, fingerprint_bits: 0, spread: false, max_names, seed: key.derive(Purpose::Structure, 0) }
    }

    /// The same with `fingerprint_bits` of fingerprint, which include the emptiness indicator.
    /// # Panics
    /// When a cell would have more than 64 bits.
    #[must_use]
    pub fn with_fingerprints(self, fingerprint_bits: u8) -> Self {
        let value_bits = self.value_bits;
        let fits = fingerprint_bits <= 64 - value_bits;
        assert!(fits, "a value of {value_bits} bits and {fingerprint_bits} of fingerprint: a cell has at most 64");
        assert!(fingerprint_bits == 0 || !self.spread, "aliens are either spread or dropped");
        Self { fingerprint_bits, ..self }
    }

    /// The same with aliens spread evenly over all values.
    /// # Panics
    /// When cells have fingerprints, by which aliens get drop.
    #[must_use]
    pub fn with_spread(self) -> Self {
        assert!(self.fingerprint_bits == 0, "aliens are either spread or dropped");
        Self { spread: true, ..self }
    }

    /// The least number of names for which a shard of `depth` is sized.
    fn least_names(&self, depth: u8) -> usize {
        if self.spread && depth == 0 { spread::LEAST_NAMES } else { 0 }
    }

    /// Bits of a cell: value and fingerprint. The bytes of messages depend on it.
    pub fn cell_bits(&self) -> u8 {
        self.format().cell_bits()
    }

    fn format(&self) -> CellFormat {
        CellFormat { value_bits: self.value_bits, fingerprint_bits: self.fingerprint_bits }
    }

    fn check(&self) -> Check {
        self.format().check()
    }

    pub(crate) fn cells_per_word(&self) -> u32 {
        cells_per_word(self.cell_bits())
    }

    pub(crate) fn value_mask(&self) -> u64 {
        value_mask(self.value_bits)
    }
}

/// The pseudo-random function whose XOR over all cells is the digest of a shard. Zero cells contribute nothing, so an
/// empty shard costs nothing. Sizes are checked apart.
#[inline]
fn cell_prf(seed: u64, cell: u32, value: u64) -> u64 {
    // Half of the cells of a shard are zero, in no order. A branch on that would cost more than the mixing.
    let counts = 0u64.wrapping_sub(u64::from(value != 0));
    mix64(value.wrapping_mul(MIX) ^ mix_cell(seed, cell)) & counts
}

#[inline]
fn mix_cell(seed: u64, cell: u32) -> u64 {
    seed.wrapping_add((u64::from(cell) + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

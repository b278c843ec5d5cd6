//! Othello hashing and its l-POG: a few cells a name, two reads a lookup, constant-time updates.
//!
//! | room | what |
//! |---|---|
//! | [`control`] | [`Othello`], the control half of one table |
//! | [`graph`], `shard` | the names as an acyclic graph; shared by all switches of a network |
//! | [`colouring`] | what one switch's cells must hold, as images and updates, from a graph and its values |
//! | [`update`] | the message: what crosses the seam |
//! | [`query`], `kernel`, `apply` | [`OthelloQuery`], the half of words; [`Reader`]s beside its writer |
//! | [`sizing`] | how many cells: sharded and exact, or the papers' powers of two |
//! | [`fingerprint`] | OFW: cells that tell alien names from live ones |
//! | [`spread`] | aliens over servers, by weight |
//! | [`gateway`] | OGW: full names in slots that the Othello leads to |
//!
//! Cost: 2 cell reads a lookup; 2.10 to 2.40 cells of l bits a name (l dividing 64) and 8 bytes a shard.
//! Alien names get an arbitrary value, drop where cells have fingerprints, or an evenly spread one. Value 0 means drop. Updates: amortised O(1), one shard at most is rebuilt.
//! Source: Yu, Belazzougui, Qian, Zhang, "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello
//! Hashing", sections IV and V. Differs: sharded, exact sizes, one keyed 64-bit digest a name, canonical colouring,
//! tombstones for removed names, versioned publication instead of the D1/D2 bit vectors.
//! Limits: values of up to 64 bits, 2^24 shards; two names with one digest cannot both be in.

mod apply;
mod build;
pub mod colouring;
pub mod control;
pub mod fingerprint;
pub mod gateway;
pub mod graph;
mod index;
mod kernel;
pub mod query;
mod shard;
pub mod sizing;
pub mod spread;
#[cfg(test)]
mod tests;
pub mod update;
mod validate;

pub use build::RestoreError;
pub use colouring::Colouring;
pub use control::Othello;
pub use graph::{Change, Graph, ShardState};
pub(crate) use kernel::prefetch;
pub use query::{OthelloQuery, Pinned, Publication, QueryStats, Reader};
pub use sizing::{Option1, Option2, Sharded, Sides, Sizing};
pub use update::{CellsUpdate, ShardImage, Update};

use fingerprint::{CellFormat, Check};

use crate::cells::{cells_per_word, value_mask};
use crate::hash::{Purpose, SecretKey, mix64};

/// What a table is built with; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bits of a value, 1 to 64: l in the paper, l_p where there are fingerprints.
    pub value_bits: u8,
    /// Bits of a cell beside the value, by which aliens get drop: l_f in the paper, its last one the emptiness
    /// indicator. 0 is Concise; with the value at most 64.
    pub fingerprint_bits: u8,
    /// Whether aliens get values spread evenly over all there are ([`spread`]) instead of arbitrary ones.
    pub spread: bool,
    /// Names that the table takes at most.
    pub max_names: usize,
    /// Keys tweaks and cell digests.
    pub seed: u64,
}

impl Settings {
    /// The largest `max_names`: beyond what any arena holds.
    pub const MAX_NAMES: usize = 1 << 36;

    /// Settings whose seed is derived from the table's key; `max_names` is capped at [`Settings::MAX_NAMES`].
    /// # Panics
    /// When `value_bits` is not in 1 to 64.
    pub fn new(value_bits: u8, max_names: usize, key: &SecretKey) -> Self {
        assert!((1..=64).contains(&value_bits), "a value has 1 to 64 bits, not {value_bits}");
        let max_names = max_names.min(Self::MAX_NAMES);
        Self { value_bits, fingerprint_bits: 0, spread: false, max_names, seed: key.derive(Purpose::Structure, 0) }
    }

    /// The same with fingerprints of `fingerprint_bits`, the emptiness indicator among them.
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

    /// How many names a shard of `depth` is sized for at least.
    fn least_names(&self, depth: u8) -> usize {
        if self.spread && depth == 0 { spread::LEAST_NAMES } else { 0 }
    }

    /// Bits of a cell: value and fingerprint. Messages depend on it.
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

/// Which digests belong to a shard: those whose first `depth` bits are `prefix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId {
    /// The bits.
    pub prefix: u32,
    /// How many.
    pub depth: u8,
}

impl ShardId {
    /// The directory entries of the shard in a directory that looks at `depth` bits.
    pub(crate) fn entries(self, depth: u8) -> std::ops::Range<usize> {
        let width = depth - self.depth;
        (self.prefix as usize) << width..(self.prefix as usize + 1) << width
    }
}

/// The pseudo-random function whose XOR over all cells is the digest of a shard. Zero cells count for nothing, so that
/// an empty shard costs nothing; sizes are checked apart.
#[inline]
fn cell_prf(seed: u64, cell: u32, value: u64) -> u64 {
    // Half of the cells of a shard are zero, in no order: a branch on that would cost more than the mixing.
    let counts = 0u64.wrapping_sub(u64::from(value != 0));
    mix64(value.wrapping_mul(sizing::MIX) ^ mix_cell(seed, cell)) & counts
}

#[inline]
fn mix_cell(seed: u64, cell: u32) -> u64 {
    seed.wrapping_add((u64::from(cell) + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

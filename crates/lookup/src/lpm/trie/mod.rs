//! A compressed trie of prefixes: two reads per lookup for prefixes of up to 24 bits, two more for every 8 bits beyond.
//!
//! ```text
//! bits of the address    | 0 .. 18 | 18 .. 24 | 24 25 | 26 .. 32 | 32 33 | 34 .. 40 | ...
//!                             |         |         |        |
//!     top: 2^18 nodes  <------+         |         |        |
//!     node: starts 64 | leaves 32 | children 32   |        |
//!             | popcount of the starts up to here |        |
//!             v                                   |        |
//!     leaf:    a next hop, or "go to child k" ----> chunk: 4 nodes, one line; and so on
//! ```
//! A **node** covers 64 ranges of equal length. Neighbours with the same next hop form one run; bit `i` of `starts`
//! says that a run starts at range `i` (implied for the first range, so a node of zeros has one run). The next hops of
//! the runs are stored consecutively, from `leaves` on. A range with longer prefixes is a separate run, whose leaf is
//! 2^15 (of leaves of 4 bytes 2^31) plus the number of its child among those of the node; child `k` is the chunk `children + k`. Nodes with one run
//! share the leaf of their next hop.
//!
//! | module | what |
//! |---|---|
//! | [`control`] | [`PrefixTrie`]: the prefixes in order, and what a change of one changes |
//! | [`Leaf`] | leaves of 2 bytes for up to 32,767 next hops, and of 4 bytes for up to 2^24 |
//! | `expand` | from prefixes to nodes |
//! | [`update`] | the message: nodes by their runs |
//! | [`query`], `write` | [`PrefixTrieQuery`], words only, and its concurrent [`Reader`]s; how it applies an update |
//! | `tables`, `kernel` | nodes, leaves and chunks in memory; lookups in them |
//!
//! Cost: 4 MiB for the top, 64 bytes per chunk, 2 or 4 bytes per run: a full table of 900 thousand IPv4 prefixes takes about
//! 6 MB. A table of a few prefixes takes the 4 MiB too.
//! An address without a route gets 0, like one whose prefix was inserted with 0.
//! Updates: the nodes that a prefix covers are expanded again from the prefixes in them. A short prefix costs more (the
//! default route all of the top, some 10 ms). They are written in place under a counter, one chunk or one node of the
//! top with new descendants at a time: each address gets its answer from before or from after an update, but an update
//! does not take effect for all its addresses at once.
//! Source: Asai, Ohara, "Poptrie: A Compressed Trie with Population Count for Fast and Scalable Software IP Routing
//! Table Lookup", SIGCOMM 2015: direct pointing, leaf vectors, nodes of 64. Differs: the first node is read without a
//! pointer to it, so a route of up to 24 bits costs two dependent reads and no branch; a run's leaf, not a second bit
//! vector, says that it has a child; equal next hops merge over neighbours, not only along a path.
//! Limits: next hops below 2^15, or up to 2^24 with leaves of 4 bytes ([`PrefixTrie::wide`]); at most [`Settings::MAX_PREFIXES`] prefixes.

mod content;
pub mod control;
mod expand;
mod kernel;
mod leaf;
pub mod query;
mod tables;
pub mod update;
mod write;

pub use control::PrefixTrie;
pub use leaf::Leaf;
pub use query::{PrefixTrieQuery, Reader};
pub use update::Update;

use super::prefix::Address;
use crate::hash::{Purpose, SecretKey};

/// Bits that index the top.
const TOP_BITS: u32 = 18;
/// Nodes of the top.
const TOP_NODES: u32 = 1 << TOP_BITS;
/// Ranges per node.
const RANGES: usize = 64;
/// Nodes per chunk: one cache line.
const CHUNK_NODES: usize = 4;
/// Bits of an address before those that level `level` reads.
const fn bits_before(level: u8) -> u32 {
    if level == 0 { TOP_BITS } else { 16 + 8 * level as u32 }
}

/// Bits that level `level` reads: a node of the top, or a chunk.
const fn bits_of(level: u8) -> u32 {
    if level == 0 { 6 } else { 8 }
}

/// Levels of a table of addresses.
const fn levels<A: Address>() -> u8 {
    ((A::BITS - 16) / 8) as u8
}

/// Build parameters of a table; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of prefixes, for which address space is reserved.
    pub max_prefixes: usize,
    /// Seed of the digests.
    pub seed: u64,
}

impl Settings {
    /// The largest [`Settings::max_prefixes`].
    pub const MAX_PREFIXES: usize = 1 << 24;

    /// Settings for at most `max_prefixes` prefixes.
    /// # Panics
    /// When that is over [`Settings::MAX_PREFIXES`].
    pub fn new(max_prefixes: usize, key: &SecretKey) -> Self {
        assert!(max_prefixes <= Self::MAX_PREFIXES, "{max_prefixes} prefixes");
        Self { max_prefixes, seed: key.derive(Purpose::Structure, 3) }
    }
}

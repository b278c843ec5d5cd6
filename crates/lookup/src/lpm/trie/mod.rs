//! A compressed trie of prefixes: two reads a look-up for prefixes of up to 24 bits, two more for every 8 bits beyond.
//!
//! ```text
//! bits of the address    | 0 .. 18 | 18 .. 24 | 24 25 | 26 .. 32 | 32 33 | 34 .. 40 | ...
//!                             |         |         |        |
//!     top: 2^18 nodes  <------+         |         |        |
//!     node: starts 64 | leaves 32 | children 32   |        |
//!             | popcount of the starts up to here |        |
//!             v                                   |        |
//!     leaf 16: a next hop, or "go to child k" ----> chunk: 4 nodes, one line; and so on
//! ```
//! A **node** answers for 64 ranges of equal length. Neighbours with the same next hop are one run; bit `i` of `starts`
//! says that a run starts at range `i` (of the first it goes without saying, so a node of zeros has one run). The next
//! hops of the runs stand one after another, from `leaves` on. A range with longer prefixes has a run of its own, whose
//! leaf is 2^15 plus the number of its child among those of the node; child `k` is the chunk `children + k`. Nodes with
//! one run share the leaf of their next hop.
//!
//! | module | what |
//! |---|---|
//! | [`control`] | [`PrefixTrie`]: the prefixes in order, and what a change of one makes different |
//! | `expand` | from prefixes to the ranges of nodes |
//! | [`update`] | the message: nodes by their ranges |
//! | [`query`], `write` | [`PrefixTrieQuery`], words only, and [`Reader`]s beside its writer; how it takes over an update |
//! | `tables`, `kernel` | nodes, leaves and chunks in memory; look-ups in them |
//!
//! Cost: 4 MiB for the top, 64 bytes a chunk, 2 bytes a run: a full table of 900 thousand IPv4 prefixes takes about
//! 6 MB. A table of a few prefixes takes the 4 MiB too.
//! An address without a route gets 0, as one whose prefix was inserted with 0 does.
//! Updates: the nodes that a prefix covers, expanded anew from the prefixes in them; a short prefix costs more (the
//! default route all of the top, some 10 ms). Written in place under a counter, a chunk or a node of the top with new
//! descendants at a time: an address gets its answer from before an update or from after it, addresses of one update
//! one by one.
//! Source: Asai, Ohara, "Poptrie: A Compressed Trie with Population Count for Fast and Scalable Software IP Routing
//! Table Lookup", SIGCOMM 2015: direct pointing, leaf vectors, nodes of 64. Differs: the first node is read without a
//! pointer to it, so a route of up to 24 bits costs two dependent reads and no branch; a run says by its leaf that it
//! goes on, and no second bit vector does; next hops that are equal merge over neighbours and not only along a path.
//! Limits: next hops below 2^15; at most [`Settings::MAX_PREFIXES`] prefixes.

mod content;
pub mod control;
mod expand;
mod kernel;
pub mod query;
mod tables;
pub mod update;
mod write;

pub use control::PrefixTrie;
pub use query::{PrefixTrieQuery, Reader};
pub use update::Update;

use super::prefix::Address;
use crate::hash::{Purpose, SecretKey};

/// Bits that the top is read by.
const TOP_BITS: u32 = 18;
/// Nodes of the top.
const TOP_NODES: u32 = 1 << TOP_BITS;
/// Ranges of a node.
const RANGES: usize = 64;
/// Nodes of a chunk: a line.
const CHUNK_NODES: usize = 4;
/// A leaf from here on is no next hop.
const DEEP: u16 = 1 << 15;
/// In a message: the run goes on in a child that comes with it.
const NEW: u16 = DEEP | DEEP >> 1;

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

/// What a table is built with; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Prefixes at most: what address space is reserved for.
    pub max_prefixes: usize,
    /// What digests follow from.
    pub seed: u64,
}

impl Settings {
    /// What [`Settings::max_prefixes`] may be at most.
    pub const MAX_PREFIXES: usize = 1 << 24;

    /// Settings for at most `max_prefixes` prefixes.
    /// # Panics
    /// When that is over [`Settings::MAX_PREFIXES`].
    pub fn new(max_prefixes: usize, key: &SecretKey) -> Self {
        assert!(max_prefixes <= Self::MAX_PREFIXES, "{max_prefixes} prefixes");
        Self { max_prefixes, seed: key.derive(Purpose::Structure, 3) }
    }
}

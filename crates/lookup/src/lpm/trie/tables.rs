//! Nodes, leaves and chunks in memory: words that one writer stores while readers load them.

#![expect(unsafe_code, reason = "hands out atomic words of arenas by index")]

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::leaf::Leaf;
use super::{CHUNK_NODES, RANGES, Settings, TOP_NODES, levels};
use crate::base::arena::{Arena, LINE, Lines};
use crate::base::prefetch::prefetch;
use crate::lpm::prefix::Address;

/// Bytes of a node.
const NODE: usize = 16;

/// The index of a node: in the top below [`TOP_NODES`]; in chunk `c` from `TOP_NODES + 4 c` on.
pub(super) type At = usize;

/// The words of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) starts: u64,
    pub(super) leaves: u32,
    pub(super) children: u32,
}

impl Words {
    /// The index of the leaf for a range.
    #[inline(always)]
    pub(super) fn leaf_of(self, range: u32) -> usize {
        self.leaves as usize + (self.starts << (63 - range)).count_ones() as usize
    }

    pub(super) fn n_leaves(self) -> usize {
        self.starts.count_ones() as usize + 1
    }
}

/// The first node of a chunk.
#[inline(always)]
pub(super) fn chunk(index: u32) -> At {
    TOP_NODES as usize + index as usize * CHUNK_NODES
}

/// The memory of a table. Nodes of the top and of chunks are one array. After the end there is space for a node's
/// leaves or children, so that a reader that combines the words of two moments stays in bounds.
pub(super) struct Tables<L> {
    nodes: Arena,
    leaves: Arena,
    leaf: PhantomData<L>,
}

impl<L: Leaf> Tables<L> {
    /// Memory for the settings' maximum number of prefixes, without routes, with the leaves that plain nodes share; and
    /// the free leaves and chunks.
    /// # Errors
    /// As [`Arena::reserve`].
    pub(super) fn reserve<A: Address>(settings: &Settings) -> io::Result<(Self, Lines, Lines)> {
        // A prefix needs at most one chunk per level below the top, and splits two runs on each level. Twice that,
        // since new contents are written before old ones are freed, and for gaps.
        let per_prefix = 2 * usize::from(levels::<A>() - 1);
        let n_chunks = (1024 + settings.max_prefixes * per_prefix).min(u32::MAX as usize / CHUNK_NODES);
        let n_leaves = (L::MAX_HOP + 1) as usize + (1 << 16) + settings.max_prefixes * 4 * (per_prefix + 2);
        let n_leaves = n_leaves.min(u32::MAX as usize - RANGES);
        let tables = Self {
            nodes: Arena::reserve(TOP_NODES as usize * NODE + (n_chunks + RANGES) * LINE)?,
            leaves: Arena::reserve((n_leaves + RANGES) * L::BYTES)?,
            leaf: PhantomData,
        };
        (0..L::N_FILLED).for_each(|hop| tables.store_leaf(hop as usize, L::of(hop)));
        let mut leaves = Lines::new(n_leaves * LINE);
        leaves.take(L::MAX_HOP + 1);
        Ok((tables, leaves, Lines::new(n_chunks * LINE)))
    }

    /// The two words of a node.
    #[inline(always)]
    fn node(&self, at: At) -> &[AtomicU64; 2] {
        debug_assert!((at + 1) * NODE <= self.nodes.bytes());
        // SAFETY: `at` comes from an address's first bits, or from a node that the writer stored: it is inside of the
        // arena, which is zeroed, aligned to lines and read and written through atomics only.
        unsafe { &*self.nodes.base().cast::<[AtomicU64; 2]>().add(at) }
    }

    #[inline(always)]
    fn leaf(&self, index: usize) -> &L::Atomic {
        debug_assert!((index + 1) * L::BYTES <= self.leaves.bytes());
        // SAFETY: as above; the leaves of a node end at most `RANGES` behind the last that can be its first.
        unsafe { &*self.leaves.base().cast::<L::Atomic>().add(index) }
    }

    #[inline(always)]
    pub(super) fn load(&self, at: At) -> Words {
        let [starts, rest] = self.node(at);
        let rest = rest.load(Relaxed);
        Words { starts: starts.load(Relaxed), leaves: rest as u32, children: (rest >> 32) as u32 }
    }

    #[inline(always)]
    pub(super) fn load_leaf(&self, index: usize) -> L {
        L::load(self.leaf(index))
    }

    /// Stores a node: concurrently with readers only inside of a write.
    pub(super) fn store(&self, at: At, words: Words) {
        let [starts, rest] = self.node(at);
        starts.store(words.starts, Relaxed);
        rest.store(u64::from(words.leaves) | u64::from(words.children) << 32, Relaxed);
    }

    /// As [`Tables::store`].
    pub(super) fn store_leaf(&self, index: usize, leaf: L) {
        leaf.store(self.leaf(index));
    }

    /// Stores the leaves of a node from index `first` on. Those of children get their numbers. As [`Tables::store`].
    pub(super) fn store_leaves(&self, first: u32, leaves: &[L]) {
        let mut numbers = L::DEEP.bits()..;
        for (index, &leaf) in (first as usize..).zip(leaves) {
            let leaf = if leaf < L::DEEP { leaf } else { L::of(numbers.next().expect("at most 64 go on")) };
            self.store_leaf(index, leaf);
        }
    }

    #[inline(always)]
    pub(super) fn prefetch_node(&self, at: At) {
        prefetch(self.nodes.base().wrapping_add(at * NODE));
    }

    #[inline(always)]
    pub(super) fn prefetch_leaf(&self, index: usize) {
        prefetch(self.leaves.base().wrapping_add(index * L::BYTES));
    }

    /// Bytes on huge pages, if the operating system reports it.
    pub(super) fn huge_page_bytes(&self) -> Option<usize> {
        Some(self.nodes.huge_page_bytes()? + self.leaves.huge_page_bytes()?)
    }
}

//! Binary search over sorted names: exact, with full names of W words.
//!
//! Names are in Eytzinger order (the root first, then its children, and so on), not sorted consecutively. The search is
//! `i = 2 i + (name[i] < key)` without a branch, and the first levels share a few lines that stay in cache. The eight
//! great-grandchildren of a 64-bit name share one line, which is fetched three levels before it is read. In a plain
//! sorted array every level is another line until the last three. A batch descends level by level, so that 32 searches
//! wait for memory together.
//!
//! Cost: log2(n) + 1 comparisons, about log2(n) / 3 lines for names of one word (log2(n) for 8 or more), and one for
//! the value; 64 W bits per name and a value of l bits, l rounded up to a power of two.
//! Alien names: 0 (drop) from [`StaticMap::lookup`], none from [`Sorted::get`]: no false positives.
//! Names are compared as words, the first word first; any order works. A digest is a name of one word.
//! Source: the binary search of the comparison in Click, "Memory-efficient and Ultra-fast Network Lookup and Forwarding
//! using Othello Hashing", section VI; the order is that of Khuong and Morin, "Array layouts for comparison-based
//! searching".
//! Limits: building sorts on one thread. Updates: none.

use super::{MAX_NAMES, Settings, StaticMap, put_words, take_words};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::cells::value_mask;
use crate::base::prefetch::BURST;
use crate::base::words::{Words, prefetch_word};
use crate::traits::{Build, InsertError};

/// A static map from names of `W` words to values.
#[derive(Clone, Debug)]
pub struct Sorted<const W: usize> {
    /// Name i, from 1 on, is the words i W to (i + 1) W.
    names: Words,
    /// Value i is the i-th cell of `1 << log_bits` bits.
    values: Words,
    log_bits: u32,
    n_names: usize,
}

impl<const W: usize> Sorted<W> {
    /// Descendants on one level that share a line: how far ahead a search fetches.
    const AHEAD: usize = if W <= 1 {
        8
    } else if W <= 2 {
        4
    } else {
        2
    };

    /// Number of names.
    pub fn len(&self) -> usize {
        self.n_names
    }

    /// Whether no name is in.
    pub fn is_empty(&self) -> bool {
        self.n_names == 0
    }

    /// The value of `name`, or none if it is not in.
    pub fn get(&self, name: &[u64; W]) -> Option<u64> {
        let (names, _) = self.names.as_chunks::<W>();
        let mut node = 1;
        while node <= self.n_names {
            node = 2 * node + usize::from(names[node] < *name);
        }
        self.value_at(names, node, name)
    }

    /// The value of `name`, whose search ended below the leaves at `end`.
    ///
    /// The last node at which the search went left is the first name that is not less. Its index is `end` without the
    /// right turns after it, and without that left turn.
    #[inline]
    fn value_at(&self, names: &[[u64; W]], end: usize, name: &[u64; W]) -> Option<u64> {
        let node = end.checked_shr(end.trailing_ones() + 1).unwrap_or(0);
        if node == 0 || names[node] != *name {
            return None;
        }
        let bit = node << self.log_bits;
        Some(self.values[bit / 64] >> (bit % 64) & value_mask(1 << self.log_bits))
    }
}

/// Logarithm of the width at which a value is stored.
fn log_bits(settings: &Settings) -> u32 {
    settings.value_bits.next_power_of_two().trailing_zeros()
}

impl<const W: usize> StaticMap for Sorted<W> {
    const EXACT: bool = true;

    #[inline]
    fn lookup(&self, name: [u64; W]) -> u64 {
        self.get(&name).unwrap_or(0)
    }

    fn lookup_batch(&self, keys: &[[u64; W]], values: &mut [u64]) {
        let words = &*self.names;
        let (names, _) = words.as_chunks::<W>();
        let values = &mut values[..keys.len()];
        // All searches descend this many levels; the next level exists for some of them only.
        let full_levels = (self.n_names + 1).ilog2();
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            let mut nodes = [1usize; BURST];
            for _ in 0..full_levels {
                for (node, key) in nodes.iter_mut().zip(keys) {
                    prefetch_word(words, *node * Self::AHEAD * W);
                    *node = 2 * *node + usize::from(names[*node] < *key);
                }
            }
            for (node, key) in nodes.iter_mut().zip(keys) {
                if *node <= self.n_names {
                    *node = 2 * *node + usize::from(names[*node] < *key);
                }
                let found = node.checked_shr(node.trailing_ones() + 1).unwrap_or(0);
                prefetch_word(&self.values, (found << self.log_bits) / 64);
            }
            for ((value, key), &node) in values.iter_mut().zip(keys).zip(&nodes) {
                *value = self.value_at(names, node, key).unwrap_or(0);
            }
        }
    }

    fn size_bits(&self) -> u64 {
        self.names.size_bits() + self.values.size_bits()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.n_names as u64).to_le_bytes());
        put_words(&self.names, out);
        put_words(&self.values, out);
    }

    fn decode(settings: &Settings, bytes: &mut Bytes) -> Result<Self, DecodeError> {
        let n_names = at_most("names", bytes.u64()?, MAX_NAMES)?;
        let log_bits = log_bits(settings);
        let names = take_words(bytes, (n_names + 1) * W as u64)?;
        let values = take_words(bytes, ((n_names + 1) << log_bits).div_ceil(64))?;
        Ok(Self { names, values, log_bits, n_names: n_names as usize })
    }
}

impl<const W: usize> Build for Sorted<W> {
    type Key = [u64; W];
    type Settings = Settings;

    fn build(settings: &Settings, entries: &[([u64; W], u64)], _threads: usize) -> Result<Self, InsertError> {
        settings.check(entries)?;
        let n_names = entries.len();
        let mut order: Vec<_> = entries.iter().collect();
        order.sort_unstable_by_key(|(name, _)| name);
        if let Some(pair) = order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(InsertError::DuplicateName { first_word: pair[0].0.first().copied().unwrap_or(0) });
        }
        let log_bits = log_bits(settings);
        let mut names = Words::zeroed((n_names + 1) * W);
        let mut values = Words::zeroed(((n_names + 1) << log_bits).div_ceil(64));
        let (nodes, _) = names.as_chunks_mut::<W>();
        let mut node = leftmost(1, n_names);
        for (name, value) in order {
            nodes[node] = *name;
            let bit = node << log_bits;
            values[bit / 64] |= value << (bit % 64);
            node = successor(node, n_names);
        }
        Ok(Self { names, values, log_bits, n_names })
    }
}

/// The node of the smallest name below `node`.
fn leftmost(mut node: usize, n_names: usize) -> usize {
    while 2 * node <= n_names {
        node *= 2;
    }
    node
}

/// The node of the next larger name; 0 after the last.
fn successor(node: usize, n_names: usize) -> usize {
    if 2 * node < n_names {
        return leftmost(2 * node + 1, n_names);
    }
    // Up, through all right turns and one left turn.
    node >> (node.trailing_ones() + 1)
}

//! Nodes as lists of runs, the form that messages use, and their contribution to a table's digest.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::update::child_path;
use super::{CHUNK_NODES, DEEP, NEW, RANGES, levels};
use crate::hash::mix64;
use crate::lpm::prefix::Address;
use crate::traits::ApplyError;

/// A node: where its runs start, and the leaf of each; the leaf of a run with a child is [`DEEP`] or [`NEW`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) starts: u64,
    pub(super) leaves: Vec<u16>,
}

/// A node of the top, or a chunk, with its new children.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) nodes: Vec<Node>,
    /// The contents of the new children, in the order of their runs.
    pub(super) children: Vec<Content>,
}

impl Node {
    /// One run.
    pub(super) fn plain(value: u16) -> Self {
        Self { starts: 0, leaves: vec![value] }
    }

    /// From the leaves of all ranges: equal neighbours form one run, unless they have children.
    pub(super) fn of_ranges(ranges: &[u16]) -> Self {
        let (mut starts, mut leaves) = (0, vec![ranges[0]]);
        for range in 1..RANGES {
            if ranges[range] != ranges[range - 1] || ranges[range] >= DEEP {
                starts |= 1 << range;
                leaves.push(ranges[range]);
            }
        }
        Self { starts, leaves }
    }

    /// The leaf of every range.
    pub(super) fn ranges(&self) -> impl Iterator<Item = u16> + '_ {
        let run_of = |range: usize| (self.starts << (63 - range)).count_ones() as usize;
        (0..RANGES).map(move |range| self.leaves[run_of(range)])
    }

    /// The ranges whose runs have a child, each with its leaf.
    pub(super) fn deep(&self) -> impl Iterator<Item = (u8, u16)> + '_ {
        let mut rest = self.starts | 1;
        self.leaves.iter().filter_map(move |&leaf| {
            let range = rest.trailing_zeros() as u8;
            rest &= rest - 1;
            (leaf >= DEEP).then_some((range, leaf))
        })
    }

    pub(super) fn encode(&self, words: &mut Vec<u16>) {
        words.extend((0..4).map(|part| (self.starts >> (16 * part)) as u16));
        words.extend(&self.leaves);
    }

    fn decode(words: &mut &[u16]) -> Result<Self, ApplyError> {
        let starts = take(words, 4)?.iter().rev().fold(0, |starts, &word| starts << 16 | u64::from(word));
        let leaves = take(words, starts.count_ones() as usize + 1)?.to_vec();
        let node = Self { starts, leaves };
        let ends = starts >> 1 | 1 << 63;
        let is_known = |leaf: u16| leaf <= DEEP || leaf == NEW;
        let in_one_range = |(range, _): (u8, u16)| ends >> range & 1 == 1;
        // Neighbours with the same next hop must be one run.
        let is_merged = node.leaves.windows(2).all(|pair| pair[0] != pair[1] || pair[0] >= DEEP);
        if starts & 1 != 0
            || !is_merged
            || !node.leaves.iter().all(|&leaf| is_known(leaf))
            || !node.deep().all(in_one_range)
        {
            return Err(ApplyError::Malformed { reason: "a node has runs that no node can have" });
        }
        Ok(node)
    }
}

impl Content {
    /// Reads a content of level `level` from `words`.
    pub(super) fn decode<A: Address>(level: u8, words: &mut &[u16]) -> Result<Self, ApplyError> {
        let n_nodes = if level == 0 { 1 } else { CHUNK_NODES };
        let nodes = (0..n_nodes).map(|_| Node::decode(words)).collect::<Result<Vec<_>, _>>()?;
        if level + 1 == levels::<A>() && nodes.iter().flat_map(Node::deep).next().is_some() {
            return Err(ApplyError::Malformed { reason: "a range goes on behind the last bit" });
        }
        let n_new = nodes.iter().flat_map(Node::deep).filter(|&(_, leaf)| leaf == NEW).count();
        let children = (0..n_new).map(|_| Self::decode::<A>(level + 1, words)).collect::<Result<_, _>>()?;
        Ok(Self { nodes, children })
    }

    /// The ranges that have a child, each with that child if it is new.
    pub(super) fn deep(&self) -> impl Iterator<Item = (u8, Option<&Self>)> + '_ {
        let mut children = self.children.iter();
        let deep = self
            .nodes
            .iter()
            .zip(0u8..)
            .flat_map(|(node, at)| node.deep().map(move |(range, leaf)| (at * RANGES as u8 + range, leaf)));
        deep.map(move |(range, leaf)| (range, if leaf == NEW { children.next() } else { None }))
    }
}

/// The contribution to the digest of a content and its children, all of which are new.
pub(super) fn content_digest<A: Address>(seed: u64, level: u8, path: A, content: &Content) -> u64 {
    content.deep().fold(prf(seed, level, path, &content.nodes), |digest, (range, child)| match child {
        Some(child) => digest ^ content_digest(seed, level + 1, child_path(level, path, range), child),
        None => digest,
    })
}

fn take<'a>(words: &mut &'a [u16], n: usize) -> Result<&'a [u16], ApplyError> {
    let missing = ApplyError::Malformed { reason: "the words of a node are missing" };
    let (head, tail) = words.split_at_checked(n).ok_or(missing)?;
    *words = tail;
    Ok(head)
}

/// The pseudo-random function whose XOR over all nodes of the top and all chunks is the digest of a table. It does not
/// distinguish new children from others; a node of the top without a route contributes nothing.
pub(super) fn prf<A: Address>(seed: u64, level: u8, path: A, nodes: &[Node]) -> u64 {
    let wide = path.widened();
    let place = mix64(mix64(seed ^ wide as u64).wrapping_add((wide >> 64) as u64) ^ u64::from(level));
    if level == 0 && nodes[0].starts == 0 {
        let value = nodes[0].leaves[0];
        return if value == 0 { 0 } else { mix64(place ^ u64::from(value)) };
    }
    let mut bytes = [0; CHUNK_NODES * (8 + 2 * RANGES)];
    let mut end = 0;
    for node in nodes {
        bytes[end..end + 8].copy_from_slice(&node.starts.to_le_bytes());
        end += 8;
        for &leaf in &node.leaves {
            bytes[end..end + 2].copy_from_slice(&leaf.min(DEEP).to_le_bytes());
            end += 2;
        }
    }
    mix64(xxh3_64_with_seed(&bytes[..end], place))
}

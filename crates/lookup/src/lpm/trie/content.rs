//! Nodes as lists of runs, the form that messages use, and their contribution to a table's digest.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::leaf::Leaf;
use super::update::child_path;
use super::{CHUNK_NODES, RANGES, levels};
use crate::hash::mix64;
use crate::lpm::prefix::Address;
use crate::traits::ApplyError;

/// A node: where its runs start, and the leaf of each; the leaf of a run with a child is [`Leaf::DEEP`] or [`Leaf::NEW`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node<L> {
    pub(super) starts: u64,
    pub(super) leaves: Vec<L>,
}

/// A node of the top, or a chunk, with its new children.
#[derive(Clone, Debug)]
pub(super) struct Content<L> {
    pub(super) nodes: Vec<Node<L>>,
    /// The contents of the new children, in the order of their runs.
    pub(super) children: Vec<Content<L>>,
}

impl<L: Leaf> Node<L> {
    /// One run.
    pub(super) fn plain(value: L) -> Self {
        Self { starts: 0, leaves: vec![value] }
    }

    /// The ranges whose runs have a child, each with its leaf.
    pub(super) fn deep(&self) -> impl Iterator<Item = (u8, L)> + '_ {
        let mut rest = self.starts | 1;
        self.leaves.iter().filter_map(move |&leaf| {
            let range = rest.trailing_zeros() as u8;
            rest &= rest - 1;
            (leaf >= L::DEEP).then_some((range, leaf))
        })
    }

    pub(super) fn encode(&self, words: &mut Vec<L>) {
        words.extend_from_slice(bytemuck::cast_slice(&[self.starts]));
        words.extend_from_slice(&self.leaves);
    }

    fn decode(words: &mut &[L]) -> Result<Self, ApplyError> {
        let (starts, leaves) = take_node(words)?;
        let leaves = leaves.to_vec();
        let node = Self { starts, leaves };
        let ends = starts >> 1 | 1 << 63;
        let is_known = |leaf: L| leaf.bits() <= L::MAX_HOP || leaf == L::DEEP || leaf == L::NEW;
        let in_one_range = |(range, _): (u8, L)| ends >> range & 1 == 1;
        // Neighbours with the same next hop must be one run.
        let is_merged = node.leaves.windows(2).all(|pair| pair[0] != pair[1] || pair[0] >= L::DEEP);
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

impl<L: Leaf> Content<L> {
    /// The new child of a range.
    pub(super) fn child(&self, range: u8) -> Option<&Self> {
        self.deep().find(|&(at, _)| at == range)?.1
    }

    /// Reads a content of level `level` from `words`.
    pub(super) fn decode<A: Address>(level: u8, words: &mut &[L]) -> Result<Self, ApplyError> {
        let n_nodes = if level == 0 { 1 } else { CHUNK_NODES };
        let nodes = (0..n_nodes).map(|_| Node::decode(words)).collect::<Result<Vec<_>, _>>()?;
        if level + 1 == levels::<A>() && nodes.iter().flat_map(Node::deep).next().is_some() {
            return Err(ApplyError::Malformed { reason: "a range goes on behind the last bit" });
        }
        let n_new = nodes.iter().flat_map(Node::deep).filter(|&(_, leaf)| leaf == L::NEW).count();
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
        deep.map(move |(range, leaf)| (range, if leaf == L::NEW { children.next() } else { None }))
    }
}

/// The contribution to the digest of a content and its children, all of which are new.
pub(super) fn content_digest<A: Address, L: Leaf>(seed: u64, level: u8, path: A, content: &Content<L>) -> u64 {
    content.deep().fold(nodes_prf(seed, level, path, &content.nodes), |digest, (range, child)| match child {
        Some(child) => digest ^ content_digest(seed, level + 1, child_path(level, path, range), child),
        None => digest,
    })
}

fn take<'a, L>(words: &mut &'a [L], n: usize) -> Result<&'a [L], ApplyError> {
    let missing = ApplyError::Malformed { reason: "the words of a node are missing" };
    let (head, tail) = words.split_at_checked(n).ok_or(missing)?;
    *words = tail;
    Ok(head)
}

/// Takes the starts and leaves of a node from `words`.
/// # Errors
/// [`ApplyError::Malformed`]: some are missing.
pub(super) fn take_node<'a, L: Leaf>(words: &mut &'a [L]) -> Result<(u64, &'a [L]), ApplyError> {
    let starts = bytemuck::pod_read_unaligned(bytemuck::cast_slice(take(words, L::START_WORDS)?));
    Ok((starts, take(words, u64::count_ones(starts) as usize + 1)?))
}

/// Appends the nodes in `words` as the digest has them: without a difference between new children and others.
pub(super) fn put_hashed<L: Leaf>(mut words: &[L], out: &mut Vec<L>) {
    while let Ok((starts, leaves)) = take_node(&mut words) {
        out.extend_from_slice(bytemuck::cast_slice(&[starts]));
        out.extend(leaves.iter().map(|&leaf| leaf.min(L::DEEP)));
    }
}

/// The pseudo-random function whose XOR over all nodes of the top and all chunks is the digest of a table, of nodes as
/// [`put_hashed`] makes them. A node of the top without a route contributes nothing.
pub(super) fn prf<A: Address, L: Leaf>(seed: u64, level: u8, path: A, words: &[L]) -> u64 {
    let wide = path.widened();
    let place = mix64(mix64(seed ^ wide as u64).wrapping_add((wide >> 64) as u64) ^ u64::from(level));
    if level == 0 && words.len() == L::START_WORDS + 1 {
        let value = u64::from(words[L::START_WORDS].bits());
        return if value == 0 { 0 } else { mix64(place ^ value) };
    }
    mix64(xxh3_64_with_seed(bytemuck::cast_slice(words), place))
}

/// The [`prf`] of nodes, with or without new children.
pub(super) fn nodes_prf<A: Address, L: Leaf>(seed: u64, level: u8, path: A, nodes: &[Node<L>]) -> u64 {
    let mut words = Vec::with_capacity(CHUNK_NODES * (L::START_WORDS + RANGES));
    for node in nodes {
        words.extend_from_slice(bytemuck::cast_slice(&[node.starts]));
        words.extend(node.leaves.iter().map(|&leaf| leaf.min(L::DEEP)));
    }
    prf(seed, level, path, &words)
}

/// The contribution to the digest of a node of the top whose only answer is `value`.
pub(super) fn plain_prf<A: Address, L: Leaf>(seed: u64, path: A, value: L) -> u64 {
    // No word of starts is set, and there are at most four.
    let mut words = [L::default(); 5];
    words[L::START_WORDS] = value;
    prf(seed, 0, path, &words[..=L::START_WORDS])
}

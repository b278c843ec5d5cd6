//! How the query half applies an update: first checked as a whole, then written place by place.
//!
//! Every store is part of a write under the counter of [`SeqLock`](crate::publish::seq_lock::SeqLock), including stores
//! to leaves and chunks that no reader can reach yet. So the next write may reuse what one write frees: a reader that
//! still reads it sees, before it returns an answer, that the counter changed.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::content::{Content, Node, content_digest, nodes_prf, take_node};
use super::expand::{Expanded, Split};
use super::leaf::Leaf;
use super::query::PrefixTrieQuery;
use super::tables::{At, Words, chunk};
use super::update::{Changes, Record, Update, child_path};
use super::{CHUNK_NODES, RANGES, TOP_BITS, TOP_NODES, bits_before, bits_of};
use crate::base::arena::{LINE, Lines};
use crate::base::part::PartId;
use crate::lpm::prefix::{Address, Prefix};
use crate::traits::ApplyError;

/// The leaves and chunks that the writes of an update use, in order; unused ones are freed.
#[derive(Default)]
struct Taken {
    leaves: VecDeque<u32>,
    chunks: VecDeque<u32>,
}

fn malformed(reason: &'static str) -> ApplyError {
    ApplyError::Malformed { reason }
}

impl<A: Address, L: Leaf> PrefixTrieQuery<A, L> {
    /// Applies an update to the current version, or a whole one; all or nothing.
    pub(super) fn take_over(&mut self, update: &Update<A, L>) -> Result<(), ApplyError> {
        let contents = self.check(update)?;
        let mut taken = self.take(update, &contents)?;
        let mut next = 0;
        for (record, content) in update.records.iter().zip(&contents) {
            let first = record.path.bits_at(0, TOP_BITS);
            if update.whole {
                self.clear(next..first, &mut taken);
                next = first + record.count;
            }
            let at = self.find(record.path, record.level).expect("it was there when the update was checked");
            for at in at..at + record.count as usize {
                self.write(at, content, false, &mut taken);
            }
        }
        if update.whole {
            self.clear(next..TOP_NODES, &mut taken);
        }
        debug_assert!(taken.leaves.is_empty() && taken.chunks.is_empty());
        Ok(())
    }

    /// The contents of all records, after checking everything about them: places, order, digest.
    fn check(&self, update: &Update<A, L>) -> Result<Vec<Content<L>>, ApplyError> {
        let mut words = &update.words[..];
        let mut contents = Vec::with_capacity(update.records.len());
        // Chunks that an earlier record removes.
        let mut gone: Vec<Prefix<A>> = Vec::new();
        let mut digest = if update.whole { 0 } else { self.digest };
        let (mut last, mut end_of_row) = (None, 0);
        for &Record { path, level, count } in &update.records {
            let content = Content::decode::<A>(level, &mut words)?;
            let first = path.bits_at(0, TOP_BITS);
            if last >= Some((path, level)) || level == 0 && first < end_of_row || count == 0 {
                return Err(malformed("records are out of order"));
            }
            if gone.last().is_some_and(|last| path > last.last()) {
                gone.clear();
            }
            if gone.iter().any(|prefix| prefix.covers(path)) {
                return Err(malformed("a record is about a chunk that the update takes away"));
            }
            let at = self.find(path, level).ok_or(malformed("a record is about a chunk that is not there"))?;
            if level > 0 && update.whole || count > 1 && content.deep().next().is_some() {
                return Err(malformed("a record is of no use in such an update"));
            }
            let is_kept = |(_, child): (u8, Option<&Content<L>>)| child.is_none();
            if update.whole && content.deep().any(is_kept) {
                return Err(malformed("a whole update goes on in what was there"));
            }
            for step in 0..count {
                let path = if step == 0 { path } else { A::from_first(first + step, TOP_BITS) };
                digest ^= match update.whole {
                    true => content_digest(self.settings.seed, level, path, &content),
                    false => self.digest_change(at + step as usize, level, path, &content, &mut gone)?,
                };
            }
            (last, end_of_row) = (Some((path, level)), first + count);
            contents.push(content);
        }
        if !words.is_empty() {
            return Err(malformed("words are left over"));
        }
        ApplyError::check_digest(PartId::WHOLE, digest, update.digest)?;
        Ok(contents)
    }

    /// The change of the digest by a content; notes the chunks that it removes.
    fn digest_change(
        &self,
        at: At,
        level: u8,
        path: A,
        content: &Content<L>,
        gone: &mut Vec<Prefix<A>>,
    ) -> Result<u64, ApplyError> {
        let seed = self.settings.seed;
        let mut digest =
            nodes_prf(seed, level, path, &self.nodes_at(at, level)) ^ content_digest(seed, level, path, content);
        let children = self.children_at(at, level);
        let kept: Vec<u8> = content.deep().filter(|(_, child)| child.is_none()).map(|(range, _)| range).collect();
        if !kept.iter().all(|range| children.iter().any(|(there, _)| there == range)) {
            return Err(malformed("a range goes on in a chunk that is not there"));
        }
        for &(range, child) in children.iter().filter(|(range, _)| !kept.contains(range)) {
            let path = child_path(level, path, range);
            digest ^= self.digest_below(child, level + 1, path);
            gone.push(Prefix::of(path, bits_before(level + 1) as u8));
        }
        Ok(digest)
    }

    /// Allocates the leaves and chunks that all writes need, or none.
    fn take(&mut self, update: &Update<A, L>, contents: &[Content<L>]) -> Result<Taken, ApplyError> {
        let (mut leaves, mut chunks) = (Vec::new(), Vec::new());
        for (record, content) in update.records.iter().zip(contents) {
            let at = self.find(record.path, record.level).expect("it was there when the update was checked");
            // Consecutive nodes have one next hop, and need nothing.
            if record.count == 1 {
                self.count(Some(at), content, &mut leaves, &mut chunks);
            }
        }
        let leaves = take_all(&mut self.free_leaves, &leaves).ok_or_else(|| self.full())?;
        match take_all(&mut self.free_chunks, &chunks) {
            Some(chunks) => {
                let starts = |taken: Vec<(u32, u32)>| taken.into_iter().map(|(start, _)| start).collect();
                Ok(Taken { leaves: starts(leaves), chunks: starts(chunks) })
            }
            None => {
                leaves.into_iter().for_each(|(start, n)| self.free_leaves.give(start, n));
                Err(self.full())
            }
        }
    }

    fn full(&self) -> ApplyError {
        let limit_bytes = self.size_bytes().iter().sum::<u64>() as usize;
        ApplyError::ArenaFull { needed_bytes: LINE, limit_bytes }
    }

    /// What writing a content at a place needs, in the order of [`PrefixTrieQuery::write`]; without a place it is new.
    fn count(&self, at: Option<At>, content: &Content<L>, leaves: &mut Vec<u32>, chunks: &mut Vec<u32>) {
        let mut children = content.children.iter();
        for (index, node) in content.nodes.iter().enumerate() {
            let deep: Vec<_> = node.deep().collect();
            if !deep.is_empty() && !self.keeps_group(at.map(|at| at + index), &deep) {
                chunks.push(deep.len() as u32);
                for child in deep.iter().filter(|(_, leaf)| *leaf == L::NEW).zip(&mut children).map(|(_, child)| child)
                {
                    self.count(None, child, leaves, chunks);
                }
            }
            if node.leaves.len() > 1 {
                leaves.push(node.leaves.len() as u32);
            }
        }
    }

    /// Whether the children of a node stay in place: none is added or removed.
    fn keeps_group(&self, at: Option<At>, deep: &[(u8, L)]) -> bool {
        let Some(at) = at else { return false };
        let old = self.node_at(at);
        deep.iter().all(|&(_, leaf)| leaf == L::DEEP) && old.deep().eq(deep.iter().copied())
    }

    /// Writes a content at a place, and frees what was there; if `fresh`, the old words are garbage.
    fn write(&mut self, at: At, content: &Content<L>, fresh: bool, taken: &mut Taken) {
        let shared = Arc::clone(&self.shared);
        let (tables, seq_lock) = (&shared.tables, &shared.seq_lock);
        let mut children = content.children.iter();
        for (here, node) in (at..).zip(&content.nodes) {
            let deep: Vec<_> = node.deep().collect();
            let old = if fresh { Words::default() } else { tables.load(here) };
            let old_children = if fresh { Vec::new() } else { self.children_of(here) };
            let keeps_group = !deep.is_empty() && self.keeps_group((!fresh).then_some(here), &deep);
            let group = match (deep.is_empty(), keeps_group) {
                (true, _) => 0,
                (_, true) => old.children,
                _ => taken.chunks.pop_front().expect("it was counted"),
            };
            for (&(range, leaf), number) in deep.iter().zip(group..).filter(|_| !keeps_group) {
                if leaf == L::NEW {
                    let child = children.next().expect("a content has all its new children");
                    self.write(chunk(number), child, true, taken);
                } else {
                    let (_, from) = old_children.iter().find(|child| child.0 == range).expect("it was checked");
                    seq_lock.write(|| {
                        (0..CHUNK_NODES).for_each(|node| tables.store(chunk(number) + node, tables.load(from + node)));
                    });
                }
            }
            let leaves = match node.leaves[..] {
                [value] => value.bits(),
                _ => taken.leaves.pop_front().expect("it was counted"),
            };
            seq_lock.write(|| {
                match node.leaves[..] {
                    [value] => self.share(value),
                    _ => tables.store_leaves(leaves, &node.leaves),
                }
                tables.store(here, Words { starts: node.starts, leaves, children: group });
            });
            if old.n_leaves() > 1 {
                self.free_leaves.give(old.leaves, old.n_leaves() as u32);
            }
            for &(_, child) in old_children.iter().filter(|(range, _)| !deep.contains(&(*range, L::DEEP))) {
                self.give_below(child);
            }
            if !old_children.is_empty() && !keeps_group {
                self.free_chunks.give(old.children, old_children.len() as u32);
            }
        }
    }

    /// Frees the leaves of a chunk, and all chunks below it.
    fn give_below(&mut self, at: At) {
        for node in at..at + CHUNK_NODES {
            let (words, children) = (self.shared.tables.load(node), self.children_of(node));
            children.iter().for_each(|&(_, child)| self.give_below(child));
            if !children.is_empty() {
                self.free_chunks.give(words.children, children.len() as u32);
            }
            if words.n_leaves() > 1 {
                self.free_leaves.give(words.leaves, words.n_leaves() as u32);
            }
        }
    }

    /// Removes the routes of nodes of the top.
    fn clear(&mut self, nodes: Range<u32>, taken: &mut Taken) {
        let none = Content { nodes: vec![Node::plain(L::default())], children: Vec::new() };
        for at in nodes.start as usize..nodes.end as usize {
            if self.shared.tables.load(at) != Words::default() {
                self.write(at, &none, false, taken);
            }
        }
    }

    /// A node in the form of a message.
    fn node_at(&self, at: At) -> Node<L> {
        let tables = &self.shared.tables;
        let words = tables.load(at);
        let leaf = |index| tables.load_leaf(words.leaves as usize + index).min(L::DEEP);
        Node { starts: words.starts, leaves: (0..words.n_leaves()).map(leaf).collect() }
    }

    /// The next hop of a node with one run.
    fn plain_at(&self, at: At) -> Option<L> {
        let words = self.shared.tables.load(at);
        (words.starts == 0).then(|| self.shared.tables.load_leaf(words.leaves as usize))
    }

    /// The children of a node, with their ranges in it.
    fn children_of(&self, at: At) -> Vec<(u8, At)> {
        if self.plain_at(at).is_some() {
            return Vec::new();
        }
        let children = self.shared.tables.load(at).children;
        self.node_at(at).deep().zip(children..).map(|((range, _), number)| (range, chunk(number))).collect()
    }

    /// The nodes at a place.
    fn nodes_at(&self, at: At, level: u8) -> Vec<Node<L>> {
        let n_nodes = if level == 0 { 1 } else { CHUNK_NODES };
        (at..at + n_nodes).map(|at| self.node_at(at)).collect()
    }

    /// The children at a place, with their ranges.
    fn children_at(&self, at: At, level: u8) -> Vec<(u8, At)> {
        let nodes = if level == 0 { 0..1 } else { 0..CHUNK_NODES };
        let children = nodes.flat_map(|node| {
            let children = self.children_of(at + node).into_iter();
            children.map(move |(range, child)| ((node * RANGES) as u8 + range, child))
        });
        children.collect()
    }

    /// The contribution to the digest of a place and everything below it.
    fn digest_below(&self, at: At, level: u8, path: A) -> u64 {
        let own = nodes_prf(self.settings.seed, level, path, &self.nodes_at(at, level));
        self.children_at(at, level).iter().fold(own, |digest, &(range, child)| {
            digest ^ self.digest_below(child, level + 1, child_path(level, path, range))
        })
    }

    /// The place of a path.
    fn find(&self, path: A, level: u8) -> Option<At> {
        let mut at = path.bits_at(0, TOP_BITS) as usize;
        for above in 0..level {
            let range = path.bits_at(bits_before(above), bits_of(above));
            let words = self.shared.tables.load(at + range as usize / RANGES);
            let leaf = self.shared.tables.load_leaf(words.leaf_of(range % RANGES as u32));
            at = chunk(words.children + leaf.bits().checked_sub(L::DEEP.bits())?);
        }
        Some(at)
    }

    /// The whole table as an update.
    pub(super) fn read_whole(&self, version: u64) -> Update<A, L> {
        let mut changes = Changes::new(self.settings.seed);
        let nothing = Expanded::Plain(L::default());
        for index in 0..TOP_NODES {
            let at = index as usize;
            let expanded = match self.plain_at(at) {
                Some(value) => Expanded::Plain(value),
                None => {
                    let mut split = Split::default();
                    self.put_at(at, 0, &mut split.words);
                    Expanded::Split(split)
                }
            };
            changes.top(index, &nothing, &expanded);
        }
        changes.into_update(true, 0, version, self.digest)
    }

    /// Appends the content at a place, with all children as new ones.
    fn put_at(&self, at: At, level: u8, words: &mut Vec<L>) {
        for mut node in self.nodes_at(at, level) {
            node.leaves.iter_mut().filter(|leaf| **leaf == L::DEEP).for_each(|leaf| *leaf = L::NEW);
            node.encode(words);
        }
        self.children_at(at, level).iter().for_each(|&(_, child)| self.put_at(child, level + 1, words));
    }

    /// Writes the shared leaf of a next hop, if it was not written with the table.
    fn share(&mut self, value: L) {
        if value.bits() >= L::N_FILLED {
            self.shared.tables.store_leaf(value.bits() as usize, value);
            self.n_shared = self.n_shared.max(value.bits() + 1);
        }
    }

    /// Writes a whole update to an empty table that has no readers, and trusts it.
    pub(super) fn fill(&mut self, update: &Update<A, L>) -> Result<(), ApplyError> {
        let mut words = &update.words[..];
        for record in &update.records {
            let at = record.path.bits_at(0, TOP_BITS) as usize;
            self.fill_at(at, 1, &mut words)?;
            let first = self.shared.tables.load(at);
            (at + 1..at + record.count as usize).for_each(|at| self.shared.tables.store(at, first));
        }
        Ok(())
    }

    fn fill_at(&mut self, at: At, n_nodes: usize, words: &mut &[L]) -> Result<(), ApplyError> {
        let mut groups = [(0, 0); CHUNK_NODES];
        for (here, group) in (at..at + n_nodes).zip(&mut groups) {
            let (starts, runs) = take_node(words)?;
            let n_deep = runs.iter().filter(|&&leaf| leaf >= L::DEEP).count() as u32;
            if n_deep > 0 {
                *group = (self.free_chunks.take(n_deep).ok_or_else(|| self.full())?, n_deep);
            }
            let leaves = match *runs {
                [value] => {
                    self.share(value);
                    value.bits()
                }
                _ => {
                    let leaves = self.free_leaves.take(runs.len() as u32).ok_or_else(|| self.full())?;
                    self.shared.tables.store_leaves(leaves, runs);
                    leaves
                }
            };
            self.shared.tables.store(here, Words { starts, leaves, children: group.0 });
        }
        let children = groups.iter().flat_map(|&(first, n)| first..first + n);
        children.into_iter().try_for_each(|child| self.fill_at(chunk(child), CHUNK_NODES, words))
    }
}

/// Allocates ranges of these lengths, all or none.
fn take_all(free: &mut Lines, lengths: &[u32]) -> Option<Vec<(u32, u32)>> {
    let mut taken = Vec::with_capacity(lengths.len());
    for &n in lengths {
        match free.take(n) {
            Some(start) => taken.push((start, n)),
            None => {
                taken.into_iter().for_each(|(start, n)| free.give(start, n));
                return None;
            }
        }
    }
    Some(taken)
}

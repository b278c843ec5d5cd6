//! The message that crosses the seam: nodes, by the answers of their ranges.
//!
//! A record is a node of the top, several consecutive ones with one answer, or a chunk. Contents are absolute; versions
//! reveal a gap; the digest is that of the whole table after the update, the XOR of a PRF of every node of the top and
//! of every chunk. Nodes without a record are unchanged, except in a whole update, where they become "no route".
//! ```text
//! | whole 1 | from 8 | to 8 | digest 8 | records 4 | words 4 | records ... | words ... |
//! record:  | path, 4 or 16 | level 1 | consecutive nodes of the top 4 |        its content is the next of the words
//! content: | of each node: starts 4 words, one word per run | new children, in order |  1 node on level 0, 4 below
//! run:     next hop below 2^15; 2^15: continues in the existing child; 2^15 + 2^14: in a new child, whose
//!          content follows when that of all nodes here is complete
//! ```
//! All integers are little-endian, words have 16 bits.

use super::content::{Node, prf};
use super::expand::{Expanded, Split};
use super::{NEW, RANGES, TOP_BITS, TOP_NODES, bits_before, bits_of, levels};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::lpm::prefix::Address;
use crate::traits::{HeldPart, Image, PartId};
/// Bytes of a record, without its path.
const RECORD_BYTES: usize = 5;

/// An update of a trie of prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<A> {
    /// Whether this is the whole table: then `from` is meaningless.
    pub whole: bool,
    /// The version that this update builds on.
    pub from: u64,
    /// The version after this update.
    pub to: u64,
    /// The digest of the table after this update.
    pub digest: u64,
    pub(super) records: Vec<Record<A>>,
    pub(super) words: Vec<u16>,
}

impl<A: Address> Image for Update<A> {
    fn held(&self) -> HeldPart {
        HeldPart { id: PartId::WHOLE, version: self.to, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { to: version, ..self }
    }

    fn n_bytes(&self) -> usize {
        self.words.len() * 2 + self.records.len() * size_of::<Record<A>>()
    }
}

/// The place of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<A> {
    /// The bits that lead to it.
    pub(super) path: A,
    pub(super) level: u8,
    /// Nodes of the top with this content; 1 elsewhere.
    pub(super) count: u32,
}

impl<A: Address> Update<A> {
    /// Nodes of the top and chunks that change, not counting the children that come with them.
    pub fn n_records(&self) -> usize {
        self.records.len()
    }

    /// Appends the bytes of the update.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.whole.into());
        out.extend([self.from, self.to, self.digest].map(u64::to_le_bytes).as_flattened());
        out.extend([self.records.len() as u32, self.words.len() as u32].map(u32::to_le_bytes).as_flattened());
        for record in &self.records {
            out.extend(&record.path.widened().to_le_bytes()[..A::BITS as usize / 8]);
            out.push(record.level);
            out.extend(record.count.to_le_bytes());
        }
        out.extend_from_slice(bytemuck::cast_slice(&self.words));
    }

    /// Reads an update.
    /// # Errors
    /// [`DecodeError`]; lengths are checked against the remaining bytes before anything is allocated. Contents are
    /// checked where they are applied.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let whole = at_most("kind of update", bytes.u8()?.into(), 1)? == 1;
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let n_path = A::BITS as usize / 8;
        let n_records = bytes.count(n_path + RECORD_BYTES)?;
        let n_words = bytes.count(2)?;
        let mut records = Vec::with_capacity(n_records);
        for _ in 0..n_records {
            let mut wide = [0; 16];
            wide[..n_path].copy_from_slice(bytes.take(n_path)?);
            let path = A::narrowed(u128::from_le_bytes(wide));
            let level = at_most("level", bytes.u8()?.into(), u64::from(levels::<A>()) - 1)? as u8;
            at_most("bits behind a path", u64::from(path.truncated(bits_before(level)) != path), 0)?;
            let most = if level == 0 { TOP_NODES - path.bits_at(0, TOP_BITS) } else { 1 };
            let count = at_most("nodes in a row", bytes.u32()?.into(), most.into())? as u32;
            records.push(Record { path, level, count });
        }
        let words = bytes.take(n_words * 2)?.chunks_exact(2).map(|word| u16::from_le_bytes([word[0], word[1]]));
        let update = Self { whole, from, to, digest, records, words: words.collect() };
        bytes.end()?;
        Ok(update)
    }
}

/// An update under construction, and its effect on the digest.
pub(super) struct Changes<A> {
    records: Vec<Record<A>>,
    words: Vec<u16>,
    /// The XOR of the old and the new digest.
    pub(super) digest: u64,
    seed: u64,
    /// The end and the next hop of the last record, if it is about nodes of the top with one next hop.
    row: Option<(u32, u16)>,
}

impl<A: Address> Changes<A> {
    pub(super) fn new(seed: u64) -> Self {
        Self { records: Vec::new(), words: Vec::new(), digest: 0, seed, row: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn into_update(self, whole: bool, from: u64, to: u64, digest: u64) -> Update<A> {
        Update { whole, from, to, digest, records: self.records, words: self.words }
    }

    /// Records a node of the top that changes from `old` to `new`.
    pub(super) fn top(&mut self, index: u32, old: &Expanded, new: &Expanded) {
        if old == new {
            return;
        }
        let path = A::from_first(index, TOP_BITS);
        match old {
            Expanded::Plain(value) => self.digest ^= plain_prf(self.seed, path, *value),
            Expanded::Split(_) if matches!(new, Expanded::Split(_)) => {}
            Expanded::Split(split) => self.digest ^= deep_digest(self.seed, 0, path, split),
        }
        match (old, new) {
            (_, &Expanded::Plain(value)) => {
                self.digest ^= plain_prf(self.seed, path, value);
                if let (Some((end, of_row)), Some(last)) = (self.row, self.records.last_mut())
                    && (end, of_row) == (index, value)
                {
                    last.count += 1;
                } else {
                    self.records.push(Record { path, level: 0, count: 1 });
                    Node::plain(value).encode(&mut self.words);
                }
                self.row = Some((index + 1, value));
            }
            (Expanded::Plain(_), Expanded::Split(new)) => {
                self.digest ^= deep_digest(self.seed, 0, path, new);
                self.row = None;
                self.records.push(Record { path, level: 0, count: 1 });
                put(new, None, &mut self.words);
            }
            (Expanded::Split(old), Expanded::Split(new)) => self.split(0, path, old, new),
        }
    }

    /// Records that the split at `path` changes from `old` to `new`.
    pub(super) fn split(&mut self, level: u8, path: A, old: &Split, new: &Split) {
        self.row = None;
        if old.ranges != new.ranges {
            self.digest ^= prf(self.seed, level, path, &nodes_of(old)) ^ prf(self.seed, level, path, &nodes_of(new));
            self.records.push(Record { path, level, count: 1 });
            put(new, Some(old), &mut self.words);
        }
        let path_of = |range: u8| child_path(level, path, range);
        for (range, gone) in old.children.iter().filter(|(range, _)| new.child(*range).is_none()) {
            self.digest ^= deep_digest(self.seed, level + 1, path_of(*range), gone);
        }
        for (range, child) in &new.children {
            match old.child(*range) {
                Some(old) => self.split(level + 1, path_of(*range), old, child),
                None => self.digest ^= deep_digest(self.seed, level + 1, path_of(*range), child),
            }
        }
    }
}

/// The path of a child.
pub(super) fn child_path<A: Address>(level: u8, path: A, range: u8) -> A {
    let bits = bits_before(level) + bits_of(level);
    A::narrowed(path.widened() | u128::from(range) << (A::BITS - bits))
}

/// The nodes of a split; their children are marked as existing ones.
fn nodes_of(split: &Split) -> Vec<Node> {
    split.ranges.chunks(RANGES).map(Node::of_ranges).collect()
}

/// Appends the content of `new`, with the children that `old` does not have.
fn put(new: &Split, old: Option<&Split>, words: &mut Vec<u16>) {
    let is_new = |range: u8| old.is_none_or(|old| old.child(range).is_none());
    let mut ranges = new.ranges.clone();
    for &(range, _) in new.children.iter().filter(|&&(range, _)| is_new(range)) {
        ranges[usize::from(range)] = NEW;
    }
    ranges.chunks(RANGES).for_each(|ranges| Node::of_ranges(ranges).encode(words));
    new.children.iter().filter(|&&(range, _)| is_new(range)).for_each(|(_, child)| put(child, None, words));
}

/// The contribution to the digest of a split and everything below it.
fn deep_digest<A: Address>(seed: u64, level: u8, path: A, split: &Split) -> u64 {
    split.children.iter().fold(prf(seed, level, path, &nodes_of(split)), |digest, (range, child)| {
        digest ^ deep_digest(seed, level + 1, child_path(level, path, *range), child)
    })
}

/// The contribution to the digest of a node of the top whose only answer is `value`.
fn plain_prf<A: Address>(seed: u64, path: A, value: u16) -> u64 {
    prf(seed, 0, path, &[Node::plain(value)])
}

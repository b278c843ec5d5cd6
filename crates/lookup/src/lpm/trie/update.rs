//! The message that crosses the seam: nodes, by the answers of their ranges.
//!
//! A record is a node of the top, several consecutive ones with one answer, or a chunk. Contents are absolute; versions
//! reveal a gap; the digest is that of the whole table after the update, the XOR of a PRF of every node of the top and
//! of every chunk. Nodes without a record are unchanged, except in a whole update, where they become "no route".
//! ```text
//! | kind 1 | from 8 | to 8 | digest 8 | records 4 | words 4 | records ... | words ... |
//! record:  | path, 4 or 16 | level 1 | consecutive nodes of the top 4 |        its content is the next of the words
//! content: | of each node: starts 8 bytes, one word per run | new children, in order |  1 node on level 0, 4 below
//! run:     a next hop; 2^15: continues in the existing child; 2^15 + 2^14: in a new child, whose
//!          content follows when that of all nodes here is complete
//! ```
//! All integers are little-endian. Words have 16 bits, and the kind is 1 for a whole table, 0 for a change. With leaves of 4
//! bytes, words have 32 bits, the two numbers of runs are 2^31 and 2^31 + 2^30, and the kind is 2 more.

use super::content::{Content, Node, plain_prf};
use super::expand::{Expanded, Split};
use super::leaf::Leaf;
use super::{TOP_BITS, TOP_NODES, bits_before, bits_of, levels};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::lpm::prefix::Address;
use crate::traits::{HeldPart, Image, PartId};
/// Bytes of a record, without its path.
const RECORD_BYTES: usize = 5;

/// An update of a trie of prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<A, L = u16> {
    /// Whether this is the whole table: then `from` is meaningless.
    pub whole: bool,
    /// The version that this update builds on.
    pub from: u64,
    /// The version after this update.
    pub to: u64,
    /// The digest of the table after this update.
    pub digest: u64,
    pub(super) records: Vec<Record<A>>,
    pub(super) words: Vec<L>,
}

impl<A: Address, L: Leaf> Image for Update<A, L> {
    fn held(&self) -> HeldPart {
        HeldPart { id: PartId::WHOLE, version: self.to, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { to: version, ..self }
    }

    fn n_bytes(&self) -> usize {
        self.words.len() * L::BYTES + self.records.len() * size_of::<Record<A>>()
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

impl<A: Address, L: Leaf> Update<A, L> {
    /// Nodes of the top and chunks that change, not counting the children that come with them.
    pub fn n_records(&self) -> usize {
        self.records.len()
    }

    /// Appends the bytes of the update.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(L::KIND + u8::from(self.whole));
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
        let kind = bytes.u8()?;
        // A message of the other width has a kind that is out of range here.
        let whole = at_most("kind of update", kind.wrapping_sub(L::KIND).into(), 1)? == 1;
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let n_path = A::BITS as usize / 8;
        let n_records = bytes.count(n_path + RECORD_BYTES)?;
        let n_words = bytes.count(L::BYTES)?;
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
        let words = bytes.take(n_words * L::BYTES)?.chunks_exact(L::BYTES).map(bytemuck::pod_read_unaligned);
        let update = Self { whole, from, to, digest, records, words: words.collect() };
        bytes.end()?;
        Ok(update)
    }
}

/// An update under construction, and its effect on the digest.
pub(super) struct Changes<A, L> {
    records: Vec<Record<A>>,
    words: Vec<L>,
    /// The XOR of the old and the new digest.
    pub(super) digest: u64,
    seed: u64,
    /// The end and the next hop of the last record, if it is about nodes of the top with one next hop.
    row: Option<(u32, L)>,
}

impl<A: Address, L: Leaf> Changes<A, L> {
    pub(super) fn new(seed: u64) -> Self {
        Self { records: Vec::new(), words: Vec::new(), digest: 0, seed, row: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn into_update(self, whole: bool, from: u64, to: u64, digest: u64) -> Update<A, L> {
        Update { whole, from, to, digest, records: self.records, words: self.words }
    }

    /// Records a node of the top that changes from `old` to `new`.
    pub(super) fn top(&mut self, index: u32, old: &Expanded<L>, new: &Expanded<L>) {
        if old == new {
            return;
        }
        let path = A::from_first(index, TOP_BITS);
        for expanded in [old, new] {
            self.digest ^= match expanded {
                Expanded::Plain(value) => plain_prf(self.seed, path, *value),
                Expanded::Split(split) => split.digest,
            };
        }
        match (old, new) {
            (_, &Expanded::Plain(value)) => {
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
                self.row = None;
                self.records.push(Record { path, level: 0, count: 1 });
                self.words.extend_from_slice(&new.words);
            }
            (Expanded::Split(old), Expanded::Split(new)) => {
                self.content(0, path, &old.content::<A>(0), &new.content::<A>(0));
            }
        }
    }

    /// Records that the chunk at `path` changes from `old` to `new`.
    pub(super) fn chunk(&mut self, level: u8, path: A, old: &Split<L>, new: &Split<L>) {
        self.digest ^= old.digest ^ new.digest;
        self.content(level, path, &old.content::<A>(level), &new.content::<A>(level));
    }

    /// Records the parts of a content that change.
    fn content(&mut self, level: u8, path: A, old: &Content<L>, new: &Content<L>) {
        self.row = None;
        if old.nodes != new.nodes {
            self.records.push(Record { path, level, count: 1 });
            put(new, Some(old), &mut self.words);
        }
        for (range, child) in new.deep() {
            if let (Some(old), Some(new)) = (old.child(range), child) {
                self.content(level + 1, child_path(level, path, range), old, new);
            }
        }
    }
}

/// The path of a child.
pub(super) fn child_path<A: Address>(level: u8, path: A, range: u8) -> A {
    let bits = bits_before(level) + bits_of(level);
    A::narrowed(path.widened() | u128::from(range) << (A::BITS - bits))
}

/// Appends the content of `new`, with the children that `old` does not have. All children of both are new ones.
fn put<L: Leaf>(new: &Content<L>, old: Option<&Content<L>>, words: &mut Vec<L>) {
    let is_new = |range: u8| old.is_none_or(|old| old.child(range).is_none());
    let mut deep = new.deep();
    for node in &new.nodes {
        let mut node = node.clone();
        for leaf in node.leaves.iter_mut().filter(|leaf| **leaf == L::NEW) {
            let (range, _) = deep.next().expect("each new child has a range");
            *leaf = if is_new(range) { L::NEW } else { L::DEEP };
        }
        node.encode(words);
    }
    for (range, child) in new.deep().filter(|&(range, _)| is_new(range)) {
        put(child.unwrap_or_else(|| panic!("range {range} has no child")), None, words);
    }
}

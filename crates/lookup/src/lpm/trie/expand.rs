//! From prefixes to nodes: the answer of each range, and which ranges have longer prefixes.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;

use super::content::{Content, prf, put_hashed};
use super::leaf::Leaf;
use super::update::child_path;
use super::{CHUNK_NODES, RANGES, TOP_BITS, bits_before, bits_of};
use crate::lpm::prefix::{Address, Prefix};

/// The prefixes of a table, each with its next hop; a prefix comes before those that it covers.
pub(super) type Prefixes<A, L> = BTreeMap<Prefix<A>, L>;

/// The answer for all addresses with the same first bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expanded<L> {
    /// One next hop.
    Plain(L),
    /// Depends on their next bits.
    Split(Split<L>),
}

/// A node of the top, or a chunk, with everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Split<L> {
    /// Its content, as in a message, with all children as new ones.
    pub(super) words: Vec<L>,
    /// The contribution to the digest.
    pub(super) digest: u64,
}

impl<L: Leaf> Split<L> {
    /// The content of a split of level `level`.
    pub(super) fn content<A: Address>(&self, level: u8) -> Content<L> {
        Content::decode::<A>(level, &mut &self.words[..]).expect("the words are those of an expansion")
    }
}

/// The ranges of a node of the top, or of a chunk, while its prefixes are read.
struct Ranges<L> {
    /// The next hop of every range; [`Leaf::NEW`] where it is split.
    leaves: [L; RANGES * CHUNK_NODES],
    /// A superset of the ranges whose leaf is not that of the range before.
    marks: [u64; CHUNK_NODES + 1],
    /// The contents of the ranges that are split.
    children: Vec<L>,
}

impl<L: Leaf> Ranges<L> {
    fn fill(&mut self, from: usize, n: usize, leaf: L) {
        self.leaves[from..from + n].fill(leaf);
        for end in [from, from + n] {
            self.marks[end / RANGES] |= 1 << (end % RANGES);
        }
    }

    /// Appends the runs of a node. Equal neighbours form one run, unless they have children.
    fn put_node(&self, node: usize, words: &mut Vec<L>) {
        let leaves = &self.leaves[node * RANGES..][..RANGES];
        let (first, mut last, mut starts) = (words.len(), leaves[0], 0u64);
        words.extend([L::default(); 4].iter().take(L::START_WORDS));
        words.push(last);
        let mut marks = self.marks[node] & !1;
        while marks != 0 {
            let range = marks.trailing_zeros();
            marks &= marks - 1;
            let leaf = leaves[range as usize];
            if leaf != last || leaf >= L::DEEP {
                starts |= 1 << range;
                words.push(leaf);
                last = leaf;
            }
        }
        words[first..first + L::START_WORDS].copy_from_slice(bytemuck::cast_slice(&[starts]));
    }
}

/// Expands prefixes. Keeps its memory from one expansion to the next.
pub(super) struct Expander<L> {
    seed: u64,
    free: Vec<Box<Ranges<L>>>,
    /// The words of a content with its children as existing ones, which the digest is made of.
    hashed: Vec<L>,
}

impl<L: Leaf> Expander<L> {
    /// For a table whose digests have this seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, free: Vec::new(), hashed: Vec::new() }
    }

    /// Expands the range of `path` on level `level`; `inherited` is the next hop of its own prefix. Consumes the
    /// prefixes below it from `prefixes`, which must be in order. Returns the next hop if there is only one; otherwise
    /// appends to `words` and `digest` what a [`Split`] has.
    fn expand<A: Address>(
        &mut self,
        prefixes: &mut Peekable<impl Iterator<Item = (Prefix<A>, L)>>,
        (level, path, inherited): (u8, A, L),
        words: &mut Vec<L>,
        digest: &mut u64,
    ) -> Option<L> {
        let (before, width) = (bits_before(level), bits_of(level));
        let mut ranges = self.free.pop().unwrap_or_else(|| {
            Box::new(Ranges {
                leaves: [inherited; RANGES * CHUNK_NODES],
                marks: [0; CHUNK_NODES + 1],
                children: Vec::new(),
            })
        });
        ranges.leaves[..1 << width].fill(inherited);
        ranges.marks = [0; CHUNK_NODES + 1];
        ranges.children.clear();
        while let Some(&(prefix, value)) = prefixes.peek() {
            if prefix.address().truncated(before) != path {
                break;
            }
            let range = prefix.address().bits_at(before, width) as usize;
            if let Some(ends) = (before + width).checked_sub(prefix.len().into()) {
                prefixes.next();
                ranges.fill(range, 1 << ends, value);
                continue;
            }
            // The prefixes that cover the whole range come before.
            let below = (level + 1, child_path(level, path, range as u8), ranges.leaves[range]);
            let value = self.expand(prefixes, below, &mut ranges.children, digest);
            ranges.fill(range, 1, value.unwrap_or(L::NEW));
        }
        let first = words.len();
        let n_nodes = (1 << width) / RANGES;
        (0..n_nodes).for_each(|node| ranges.put_node(node, words));
        let own = &words[first..];
        let plain = ranges.leaves[0];
        let is_plain = own.len() == n_nodes * (L::START_WORDS + 1)
            && (1..n_nodes).all(|node| ranges.leaves[node * RANGES] == plain);
        if is_plain {
            words.truncate(first);
        } else {
            let own = if ranges.children.is_empty() {
                own
            } else {
                self.hashed.clear();
                put_hashed(own, &mut self.hashed);
                &self.hashed
            };
            *digest ^= prf(self.seed, level, path, own);
            words.extend_from_slice(&ranges.children);
        }
        self.free.push(ranges);
        is_plain.then_some(plain)
    }

    /// The expansion of the range of `path` on level `level`, whose own prefix has the next hop `inherited`.
    pub(super) fn one<A: Address>(
        &mut self,
        prefixes: &Prefixes<A, L>,
        level: u8,
        path: A,
        inherited: L,
    ) -> Expanded<L> {
        let bits = bits_before(level);
        let mut entries = below(prefixes, path, bits, path.filled(bits)).peekable();
        let mut split = Split::default();
        match self.expand(&mut entries, (level, path, inherited), &mut split.words, &mut split.digest) {
            Some(value) => Expanded::Plain(value),
            None => Expanded::Split(split),
        }
    }

    /// Expands the `nodes` of the top, and hands them to `each` in order. They share their first `bits` bits, whose next
    /// hop is `inherited`.
    pub(super) fn top<A: Address>(
        &mut self,
        prefixes: &Prefixes<A, L>,
        nodes: &Range<u32>,
        (bits, inherited): (u32, L),
        mut each: impl FnMut(u32, &Expanded<L>),
    ) {
        let path = A::from_first(nodes.start, TOP_BITS);
        let last = A::from_first(nodes.end - 1, TOP_BITS).filled(TOP_BITS);
        let index_of = |address: A| (address.bits_at(0, TOP_BITS) - nodes.start) as usize;
        // The next hop of each node, as far as its prefixes were read.
        let mut plain = vec![inherited; nodes.len()];
        let mut entries = below(prefixes, path, bits, last).peekable();
        let (mut next, mut split) = (nodes.start, Split::default());
        while let Some(&(prefix, value)) = entries.peek() {
            let index = index_of(prefix.address());
            if u32::from(prefix.len()) <= TOP_BITS {
                plain[index..=index_of(prefix.last())].fill(value);
                entries.next();
                continue;
            }
            // Shorter prefixes of this node and of those before it come before.
            let at = nodes.start + index as u32;
            (next..at).for_each(|at| each(at, &Expanded::Plain(plain[(at - nodes.start) as usize])));
            next = at + 1;
            split.words.clear();
            split.digest = 0;
            let place = (0, prefix.address().truncated(TOP_BITS), plain[index]);
            match self.expand(&mut entries, place, &mut split.words, &mut split.digest) {
                Some(value) => each(at, &Expanded::Plain(value)),
                None => {
                    let expanded = Expanded::Split(split);
                    each(at, &expanded);
                    let Expanded::Split(used) = expanded else { unreachable!("it was made so") };
                    split = used;
                }
            }
        }
        (next..nodes.end).for_each(|at| each(at, &Expanded::Plain(plain[(at - nodes.start) as usize])));
    }
}

/// The prefixes of more than `bits` bits from `path` to `last`.
fn below<A: Address, L: Leaf>(
    prefixes: &Prefixes<A, L>,
    path: A,
    bits: u32,
    last: A,
) -> impl Iterator<Item = (Prefix<A>, L)> {
    let range = prefixes.range(Prefix::of(path, bits as u8 + 1)..=Prefix::of(last, A::BITS as u8));
    range.map(|(&prefix, &value)| (prefix, value))
}

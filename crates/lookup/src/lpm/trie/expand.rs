//! From prefixes to the ranges of nodes: the answer of each range, and which ranges have longer prefixes.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;

use super::{DEEP, TOP_BITS, bits_before, bits_of};
use crate::lpm::prefix::{Address, Prefix};

/// The prefixes of a table, each with its next hop; a prefix comes before those that it covers.
pub(super) type Prefixes<A> = BTreeMap<Prefix<A>, u16>;

/// The answer for all addresses with the same first bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expanded {
    /// One next hop.
    Plain(u16),
    /// Depends on their next bits.
    Split(Box<Split>),
}

/// The ranges of a node of the top, or of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// The next hop of every range, [`DEEP`] where the range is split.
    pub(super) ranges: Vec<u16>,
    /// The ranges that are split, ascending.
    pub(super) children: Vec<(u8, Split)>,
}

impl Split {
    pub(super) fn child(&self, range: u8) -> Option<&Self> {
        let at = self.children.binary_search_by_key(&range, |&(range, _)| range).ok()?;
        Some(&self.children[at].1)
    }
}

/// Expands the range of `path` on level `level`; `inherited` is the next hop of its own prefix. Consumes the prefixes
/// below it from `prefixes`, which must be in order.
fn expand<A: Address>(
    prefixes: &mut Peekable<impl Iterator<Item = (Prefix<A>, u16)>>,
    level: u8,
    path: A,
    inherited: u16,
) -> Expanded {
    let (before, width) = (bits_before(level), bits_of(level));
    let mut ranges = vec![inherited; 1 << width];
    let mut children = Vec::new();
    while let Some(&(prefix, value)) = prefixes.peek() {
        if prefix.address().truncated(before) != path {
            break;
        }
        let range = prefix.address().bits_at(before, width) as usize;
        if let Some(ends) = (before + width).checked_sub(prefix.len().into()) {
            prefixes.next();
            ranges[range..range + (1 << ends)].fill(value);
            continue;
        }
        // The prefixes that cover the whole range come before.
        match expand(prefixes, level + 1, prefix.address().truncated(before + width), ranges[range]) {
            Expanded::Plain(value) => ranges[range] = value,
            Expanded::Split(child) => {
                ranges[range] = DEEP;
                children.push((range as u8, *child));
            }
        }
    }
    match ranges.iter().all(|&value| value == ranges[0]) && children.is_empty() {
        true => Expanded::Plain(ranges[0]),
        false => Expanded::Split(Box::new(Split { ranges, children })),
    }
}

/// The prefixes of more than `bits` bits from `path` to `last`.
fn below<A: Address>(prefixes: &Prefixes<A>, path: A, bits: u32, last: A) -> impl Iterator<Item = (Prefix<A>, u16)> {
    let range = prefixes.range(Prefix::of(path, bits as u8 + 1)..=Prefix::of(last, A::BITS as u8));
    range.map(|(&prefix, &value)| (prefix, value))
}

/// The expansion of the range of `path` on level `level`, whose own prefix has the next hop `inherited`.
pub(super) fn expand_one<A: Address>(prefixes: &Prefixes<A>, level: u8, path: A, inherited: u16) -> Expanded {
    let bits = bits_before(level);
    expand(&mut below(prefixes, path, bits, path.filled(bits)).peekable(), level, path, inherited)
}

/// Expands the `nodes` of the top, which share their first `bits` bits; `inherited` is the next hop of these bits.
pub(super) fn expand_top<A: Address>(
    prefixes: &Prefixes<A>,
    nodes: &Range<u32>,
    bits: u32,
    inherited: u16,
) -> Vec<Expanded> {
    let path = A::from_first(nodes.start, TOP_BITS);
    let last = A::from_first(nodes.end - 1, TOP_BITS).filled(TOP_BITS);
    let index_of = |address: A| (address.bits_at(0, TOP_BITS) - nodes.start) as usize;
    let is_long = |&(prefix, _): &(Prefix<A>, u16)| u32::from(prefix.len()) > TOP_BITS;
    let mut plain = vec![inherited; nodes.len()];
    for (prefix, value) in below(prefixes, path, bits, last).filter(|entry| !is_long(entry)) {
        plain[index_of(prefix.address())..=index_of(prefix.last())].fill(value);
    }
    let mut expanded: Vec<_> = plain.into_iter().map(Expanded::Plain).collect();
    let mut long = below(prefixes, path, bits, last).filter(is_long).peekable();
    while let Some(&(prefix, _)) = long.peek() {
        let node = &mut expanded[index_of(prefix.address())];
        // Each is expanded once: this consumes its prefixes from the list.
        if let Expanded::Plain(inherited) = *node {
            *node = expand(&mut long, 0, prefix.address().truncated(TOP_BITS), inherited);
        }
    }
    expanded
}

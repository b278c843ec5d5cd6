//! Where runs of rules are: slots in lines of the cache, and rules one after the other.
//!
//! ```text
//! slot:  | tag 16 | rules of the run 16 | first rule 32 |        0: empty; a run of 0 rules: one that was removed
//! run:   | block | block | ... |                                 all but the last one have 8 rules
//! block: | word 1 of each rule | word 2 of each rule | ... |
//! ```
//! The rules of a run are in the order in which they win. So the first that matches answers. Vectors of eight words begin at
//! any word of a run; so the last rules have eight words behind them.
//!
//! A masked flow has a digest: its high half says in which line its slot is, and its low bits are the tag, which is never
//! 0. If a line is full, the search goes on in the next one. Two masked flows with one tag in one line share a run: a
//! lookup compares whole rules.

use super::rule::{Flow, Rule};
use crate::base::prefetch::BURST;
use crate::hash::{Digest, Hasher, mix64};

/// Slots of a line.
pub(super) const LINE_SLOTS: usize = 8;

/// The most rules of a block.
pub(super) const BLOCK: usize = 8;

/// Words of a rule.
pub(super) const fn rule_words<const W: usize>() -> usize {
    2 * W + 2
}

/// The words of a run: the rule that wins against the others first.
pub(super) fn encode_run<const W: usize>(run: &[Rule]) -> Vec<u64> {
    let mut rules: Vec<Vec<u64>> = run.iter().map(Rule::encode::<W>).collect();
    rules.sort_unstable_by_key(|rule| std::cmp::Reverse(rule[2 * W + 1]));
    let words = |block: &[Vec<u64>]| {
        (0..rule_words::<W>()).flat_map(|at| block.iter().map(|rule| rule[at]).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    rules.chunks(BLOCK).flat_map(words).collect()
}

/// The rules of a run.
pub(super) fn decode_run<const W: usize>(words: &[u64]) -> impl Iterator<Item = Rule> + '_ {
    words.chunks(BLOCK * rule_words::<W>()).flat_map(|block| {
        let n_rules = block.len() / rule_words::<W>();
        let words = |rule| (0..rule_words::<W>()).map(|at| block[at * n_rules + rule]).collect::<Vec<_>>();
        (0..n_rules).map(move |rule| Rule::decode::<W>(&words(rule))).collect::<Vec<_>>()
    })
}

/// A slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

impl Slot {
    pub(super) fn new(tag: u64, n_rules: usize, first: u32) -> Self {
        Self(tag << 48 | (n_rules as u64) << 32 | u64::from(first))
    }

    pub(super) fn tag(self) -> u64 {
        self.0 >> 48
    }

    #[inline(always)]
    pub(super) fn n_rules(self) -> usize {
        (self.0 >> 32) as usize & 0xFFFF
    }

    #[inline(always)]
    pub(super) fn first(self) -> usize {
        self.0 as u32 as usize
    }

    /// The words of its run.
    #[inline(always)]
    pub(super) fn words<const W: usize>(self) -> std::ops::Range<usize> {
        self.first() * rule_words::<W>()..(self.first() + self.n_rules()) * rule_words::<W>()
    }

    /// Its share of the digest of all rules.
    pub(super) fn prf(self, seed: u64, index: usize, run: impl Iterator<Item = u64>) -> u64 {
        if self.0 == 0 {
            return 0;
        }
        run.fold(mix64(mix64(seed ^ index as u64) ^ self.0), |prf, word| mix64(prf ^ word))
    }
}

/// The tag of a digest.
#[inline(always)]
pub(super) fn tag(digest: Digest) -> u64 {
    (digest.0 & 0xFFFF).max(1)
}

/// The first slot of the line of a digest.
#[inline(always)]
pub(super) fn home(digest: Digest, n_lines: usize) -> usize {
    (((digest.0 >> 32) * n_lines as u64) >> 32) as usize * LINE_SLOTS
}

/// The first slot of the line behind one.
#[inline(always)]
pub(super) fn next_line(line: usize, n_slots: usize) -> usize {
    if line + LINE_SLOTS == n_slots { 0 } else { line + LINE_SLOTS }
}

/// The number of the slot of a digest, or of the empty slot where the search ends. None: no slot is empty.
pub(super) fn find(slots: &[u64], digest: Digest) -> Option<usize> {
    let (tag, mut line) = (tag(digest), home(digest, slots.len() / LINE_SLOTS));
    for _ in 0..slots.len() / LINE_SLOTS {
        let of_line = &slots[line..][..LINE_SLOTS];
        let found = of_line.iter().position(|&slot| Slot(slot).tag() == tag);
        if let Some(at) = found.or_else(|| of_line.iter().position(|&slot| slot == 0)) {
            return Some(line + at);
        }
        line = next_line(line, slots.len());
    }
    None
}

/// The number of a table beside the rest of a masked flow, where there is room above the protocol.
fn numbered(table: u16, rest: u64) -> u64 {
    rest | u64::from(table) << 40
}

/// The digest of a masked flow in the table with this number.
#[inline(always)]
pub(super) fn digest<const W: usize>(hasher: &Hasher, table: u16, flow: &Flow<W>) -> Digest {
    if W == 1 {
        return hasher.digest_key(&[flow.addresses[0], numbered(table, flow.rest)]);
    }
    let mut key = [0; 5];
    key[..W].copy_from_slice(&flow.addresses);
    key[4] = numbered(table, flow.rest);
    hasher.digest_key(&key)
}

/// The flows of a burst, word by word: one column for each word of the addresses, and one for the rest.
#[derive(Clone, Copy)]
pub(super) struct Columns<const W: usize> {
    pub(super) addresses: [[u64; BURST]; W],
    pub(super) rest: [u64; BURST],
}

impl<const W: usize> Columns<W> {
    /// Up to a burst of flows; behind them, zeros.
    #[inline(always)]
    pub(super) fn of(flows: &[Flow<W>]) -> Self {
        let mut columns = Self { addresses: [[0; BURST]; W], rest: [0; BURST] };
        for (at, flow) in flows.iter().enumerate().take(BURST) {
            columns.addresses.iter_mut().zip(flow.addresses).for_each(|(column, word)| column[at] = word);
            columns.rest[at] = flow.rest;
        }
        columns
    }

    #[inline(always)]
    pub(super) fn flow(&self, at: usize) -> Flow<W> {
        // Not by `map`, which copies the columns.
        Flow { addresses: std::array::from_fn(|i| self.addresses[i][at]), rest: self.rest[at] }
    }

    /// Puts the flow at `from` to `to`.
    #[inline(always)]
    pub(super) fn shift(&mut self, from: usize, to: usize) {
        self.addresses.iter_mut().for_each(|column| column[to] = column[from]);
        self.rest[to] = self.rest[from];
    }

    /// The digests of the first `n` flows, masked by the bits of the table with this number. Digests behind them are of no
    /// use.
    #[inline(always)]
    pub(super) fn digests(&self, hasher: &Hasher, table: u16, bits: &Flow<W>, n: usize, out: &mut [Digest; BURST]) {
        if W > 1 {
            for (at, out) in out.iter_mut().enumerate().take(n) {
                *out = digest(hasher, table, &self.flow(at).masked(bits));
            }
            return;
        }
        let [mut addresses, mut rest] = [[0; BURST]; 2];
        for (to, word) in addresses.iter_mut().zip(self.addresses[0]) {
            *to = word & bits.addresses[0];
        }
        for (to, word) in rest.iter_mut().zip(self.rest) {
            *to = numbered(table, word & bits.rest);
        }
        hasher.digest_columns([&addresses, &rest], n, out);
    }
}

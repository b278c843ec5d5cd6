//! Tuple Space Search: rules over the fields of a five-tuple, a hash table look-up for every tuple of mask lengths.
//!
//! | room | what |
//! |---|---|
//! | [`tuple`] | [`Tuple`], which bits of a flow a rule looks at; [`Pattern`] and [`Rule`] |
//! | [`control`] | [`TupleSpace`], the control half: rules in, messages out |
//! | [`update`] | the message |
//! | [`query`] | [`TupleSpaceQuery`], the half of words; [`Reader`]s beside its writer |
//!
//! A rule has a prefix of either address, protocol and ports exact or any, a priority and a value. Rules with the same
//! mask lengths are a tuple, in which a flow matches one rule at most: the flow is masked and looked up. The answer is
//! that of the highest priority over all tuples; of two with the same priority the rule that looks at more bits wins,
//! then the tuple with the larger code, so the answer follows from the set of rules alone. Tuples are tried from the
//! highest priority that one of their rules has downwards, and the search ends when no tuple left can win.
//! ```text
//! name in the hash table, 16 bytes:                               value, 1 + p + l bits:
//! | source 4 | destination 4 | protocol 1 | ports 2 + 2 | code 2 | tag 1 |      | 1 | priority p | value l |
//! ```
//! All tuples share one (2,4)-Cuckoo [table](crate::cuckoo::exact): the masked flow carries the code of its tuple, so a
//! tuple costs no memory of its own, comes and goes without a table, and the whole is one version for its readers. The
//! tag is part of every name and never masked.
//!
//! Cost: two buckets for each tuple that could win: `t` of them in the papers' O(t), one where all rules are exact.
//! A slot has 192 bits, 202 bits a rule at a load of 0.95; 40 bytes a tuple.
//! Updates: one slot write or a chain of moves, and the tuple's new highest priority where it changed.
//! Alien names, flows without a rule: 0 (drop); rules are exact. Removed rules match no more, at once.
//! As a FIB of flat names every rule is exact, and there is one tuple: [`Control`](crate::traits::Control) of
//! [`TupleSpace`] is that, with names of up to 13 bytes.
//! Source: Srinivasan, Suri, Varghese, "Packet Classification using Tuple Space Search", 1999; Table I of "Memory-
//! efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing". Differs: one table for all tuples;
//! tuples in order of their priorities, as Open vSwitch has them; port ranges must be split by the caller.
//! Limits: IPv4; at most 8,712 tuples, which is all there are.

pub mod control;
pub mod query;
pub mod tuple;
pub mod update;

pub use control::TupleSpace;
pub use query::{Reader, TupleSpaceQuery};
pub use tuple::{Flow, Pattern, Rule, Tuple};
pub use update::{Change, Image, Update};

use crate::cells::value_mask;
use crate::cuckoo::exact;
use crate::hash::{Family, Purpose, SecretKey, mix64};

/// What a tuple space is built with; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bits of a value.
    pub value_bits: u8,
    /// Bits of a priority.
    pub priority_bits: u8,
    /// The hash table of masked flows.
    table: exact::Settings,
}

impl Settings {
    /// Settings for at most `max_rules` rules, whose priorities are below `1 << priority_bits`.
    /// # Panics
    /// When `value_bits` is 0, `priority_bits` over 32, or both together over 63.
    pub fn new(value_bits: u8, priority_bits: u8, max_rules: usize, family: Family, key: &SecretKey) -> Self {
        assert!(value_bits >= 1 && priority_bits <= 32, "values of {value_bits}, priorities of {priority_bits} bits");
        assert!(value_bits + priority_bits <= 63, "value and priority have {} bits", value_bits + priority_bits);
        let table = exact::Settings::new(16, 1 + priority_bits + value_bits, max_rules, family, key);
        Self { value_bits, priority_bits, table }
    }

    fn seed(&self) -> u64 {
        self.table.key.derive(Purpose::Structure, 2)
    }

    fn priority_max(&self) -> u32 {
        ((1u64 << self.priority_bits) - 1) as u32
    }

    /// The value of a rule as the hash table holds it: never 0, and larger for a higher priority.
    fn stored(&self, rule: &Rule) -> u64 {
        (1 << self.priority_bits | u64::from(rule.priority)) << self.value_bits | rule.value
    }

    fn rule(&self, pattern: Pattern, stored: u64) -> Rule {
        let priority = (stored >> self.value_bits) as u32 & self.priority_max();
        Rule { pattern, priority, value: stored & value_mask(self.value_bits) }
    }
}

/// The pseudo-random function whose XOR over all tuples is the directory's share of the digest.
fn tuple_prf(seed: u64, tuple: Tuple, highest: u32) -> u64 {
    mix64(mix64(seed ^ u64::from(tuple.code())).wrapping_add(u64::from(highest)))
}

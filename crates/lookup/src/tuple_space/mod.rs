//! Tuple Space Search: rules over the fields of a five-tuple, one hash table lookup per tuple of mask lengths.
//!
//! | module | what |
//! |---|---|
//! | [`mod@tuple`] | [`Tuple`], the bits of a flow that a rule looks at; [`Pattern`] and [`Rule`] |
//! | `skeleton` | [`TupleSpaceSkeleton`]: rules and places, shared by all switches of a network |
//! | `view` | [`TupleSpaceView`]: the contents of one switch's slots, as images and updates |
//! | [`update`] | the message |
//! | [`query`] | [`TupleSpaceQuery`], the half of words; its concurrent [`Reader`]s |
//!
//! A rule has a prefix of each address, protocol and ports exact or any, a priority and a value. Rules with the same
//! mask lengths are a tuple, in which a flow matches at most one rule: the flow is masked and looked up. The answer is
//! the match of highest priority over all tuples. Of two with the same priority the rule that looks at more bits wins,
//! then the tuple with the larger code, so the answer follows from the set of rules alone. Tuples are tried in
//! descending order of the highest priority of their rules, and the search ends when no remaining tuple can win.
//! ```text
//! name in the hash table, 16 bytes:                               value, 1 + p + l bits:
//! | source 4 | destination 4 | protocol 1 | ports 2 + 2 | code 2 | tag 1 |      | 1 | priority p | value l |
//! ```
//! All tuples share one (2,4)-Cuckoo [table](crate::cuckoo::exact): the masked flow contains the code of its tuple. So
//! a tuple needs no memory and no table of its own, and readers see one version of the whole. The tag is part of every
//! name and never masked.
//!
//! Cost: two buckets for each tuple that could win: `t` of them in the papers' O(t), one if all rules are exact.
//! A slot has 192 bits, 202 bits per rule at a load of 0.95; 40 bytes per tuple.
//! Updates: one slot write or a chain of moves, and the tuple's highest priority if it changed.
//! Alien names, flows without a rule: 0 (drop); rules are exact. Removed rules stop matching at once.
//! In a FIB of flat names every rule is exact, and there is one tuple: that is the [`Skeleton`] of
//! [`TupleSpaceSkeleton`], with names of up to 13 bytes.
//! Source: Srinivasan, Suri, Varghese, "Packet Classification using Tuple Space Search", 1999; Table I of "Memory-
//! efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing". Differs: one table for all tuples;
//! tuples in order of their priorities, as in Open vSwitch; the caller must split port ranges.
//! Limits: IPv4; at most 8,712 tuples, which is all there are.

pub mod query;
mod skeleton;
pub mod tuple;
pub mod update;
mod view;

pub use query::{Reader, TupleSpaceQuery};
pub use skeleton::TupleSpaceSkeleton;
pub use tuple::{Flow, Pattern, Rule, Tuple};
pub use update::{Change, Image, Update};
pub use view::TupleSpaceView;

use crate::base::cells::value_mask;
use crate::cuckoo::exact;
use crate::hash::{Family, Purpose, SecretKey, mix64};
use crate::traits::{Control, InsertError, Single, Skeleton};
use skeleton::Ranked;

/// Control half of one tuple space: 32 bytes per slot, and some for every tuple and each of its priorities.
///
/// ```
/// use fibula_lookup::hash::{Family, SecretKey};
/// use fibula_lookup::traits::{Control, Query};
/// use fibula_lookup::tuple_space::{Flow, Pattern, Rule, Settings, Tuple, TupleSpace};
///
/// let settings = Settings::new(8, 16, 1_000, Family::MulAdd, &SecretKey::from_seed(1));
/// let mut rules = TupleSpace::new(settings);
/// let flow = Flow {
///     source: [10, 0, 0, 1].into(), destination: [192, 0, 2, 7].into(), protocol: 6, source_port: 9, destination_port: 80,
/// };
/// let web = Pattern::new(Tuple::ANY.destination(24).protocol(true).ports(false, true), flow.key());
/// let mut updates = Vec::new();
/// rules.insert_rule(&Rule { pattern: web, priority: 10, value: 3 }, &mut updates)?;
/// rules.insert_rule(&Rule { pattern: Pattern::new(Tuple::ANY, flow.key()), priority: 1, value: 4 }, &mut updates)?;
///
/// let switch = rules.export();
/// assert_eq!(switch.lookup(flow.key()), 3);
/// assert_eq!(switch.lookup(Flow { destination_port: 22, ..flow }.key()), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type TupleSpace = Single<TupleSpaceSkeleton<u64>>;

impl TupleSpace {
    /// The rules, in no useful order.
    pub fn rules(&self) -> impl Iterator<Item = Rule> + '_ {
        let of = |(name, rule)| Pattern::of_name(name).map(|pattern| rule_of(pattern, rule));
        self.skeleton().table.iter().filter_map(of)
    }

    /// The rule of a pattern.
    pub fn rule(&self, pattern: &Pattern) -> Option<Rule> {
        self.skeleton().table.get(pattern.name()).map(|rule| rule_of(*pattern, rule))
    }

    /// Inserts a rule, or replaces the one with its pattern, and appends the update.
    /// # Errors
    /// [`InsertError`], [`InsertError::ValueTooWide`] also for the priority; nothing is changed.
    pub fn insert_rule(&mut self, rule: &Rule, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.settings().check(rule)?;
        self.mutate(|rules| rules.put(&rule.pattern, ranked(rule)), updates)
    }

    /// Inserts many rules; of equal patterns the last takes effect.
    /// # Errors
    /// [`InsertError`] of the first that failed; those before it are in.
    pub fn insert_rules(&mut self, rules: &[Rule], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        rules.iter().try_for_each(|rule| self.settings().check(rule))?;
        if !self.skeleton().is_bulk(rules.len()) {
            return rules.iter().try_for_each(|rule| self.insert_rule(rule, updates));
        }
        let rules: Vec<_> = rules.iter().map(|rule| (rule.pattern.name(), ranked(rule))).collect();
        self.mutate_batch(|skeleton| skeleton.put_batch(&rules), updates)
    }

    /// Removes the rule of a pattern; false when there was none.
    pub fn remove_rule(&mut self, pattern: &Pattern, updates: &mut Vec<Update>) -> bool {
        let before = self.len();
        let removed = self.mutate(|rules| Ok(rules.take(pattern)), updates);
        removed.unwrap_or_else(|error| panic!("a removal that fails: {error}"));
        self.len() < before
    }
}

fn ranked(rule: &Rule) -> Ranked<u64> {
    Ranked { priority: rule.priority, payload: rule.value }
}

fn rule_of(pattern: Pattern, rule: Ranked<u64>) -> Rule {
    Rule { pattern, priority: rule.priority, value: rule.payload }
}

/// Build parameters of a tuple space; the same on both sides of the seam.
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

    /// The value of a rule as stored in the hash table: never 0, and larger for a higher priority.
    fn stored(&self, priority: u32, value: u64) -> u64 {
        (1 << self.priority_bits | u64::from(priority)) << self.value_bits | value
    }

    fn check(&self, rule: &Rule) -> Result<(), InsertError> {
        let (value, value_bits) = (rule.value, self.value_bits);
        if value > value_mask(value_bits) {
            return Err(InsertError::ValueTooWide { value, value_bits });
        }
        if rule.priority > self.priority_max() {
            return Err(InsertError::ValueTooWide { value: rule.priority.into(), value_bits: self.priority_bits });
        }
        Ok(())
    }
}

/// The pseudo-random function whose XOR over all tuples is the directory's contribution to the digest.
fn tuple_prf(seed: u64, tuple: Tuple, highest: u32) -> u64 {
    mix64(mix64(seed ^ u64::from(tuple.code())).wrapping_add(u64::from(highest)))
}

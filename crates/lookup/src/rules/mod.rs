//! Rules over the five fields of a flow, by merged tuples: few hash lookups for many kinds of rules.
//!
//! | module | what |
//! |---|---|
//! | `rule` | [`Rule`], [`Prefix`]; [`Flow`], what is looked up |
//! | `mask` | the bits of a flow that a table hashes |
//! | `choice` | the choice of tables for a whole set of rules |
//! | `control` | [`Rules`]: every rule, and the choice among layouts |
//! | `places` | where each rule is: its table, its slots, its words |
//! | `update` | [`Update`], the message |
//! | [`query`] | [`RulesQuery`], the half of words; its concurrent [`Reader`]s |
//! | `layout` | slots, runs, and the search for a slot |
//! | `kernel` | comparing a line of slots and eight rules, by vector instructions |
//!
//! A rule has a prefix of each address, a range of each port, a protocol or any, a priority and a value. Tuple Space Search
//! ([`tuple_space`](crate::tuple_space)) has a table for each combination of mask lengths, so it splits ranges, and looks a
//! flow up in as many tables as there are combinations. Here a table hashes *some* of the bits that its rules compare. So
//! rules with different masks share a table, and ranges stay whole. What a flow finds is a *run*: the few rules with the
//! same hashed bits, which are compared whole.
//! ```text
//!            masked by each table          slots, one line a probe       rules, one after the other
//!  flow ──►  source, destination, ──► digest ──► | tag, number, first | ──► | rule | rule | rule |
//!            ports, protocol
//! rule of IPv4, four words; a block of up to eight has the first words of all, then their second words:
//! | addresses 8 | their masks 8 | first port, first port, span, span 8 | priority 24 b, bits 9 b, value 22 b, protocol 9 b |
//! ```
//! Of the rules that match, one with the highest priority answers. Of two with the same priority the one with more bits
//! wins, then the one with the larger value: the answer follows from the set of rules alone. Tables are tried in descending
//! order of their highest priorities, and the search ends when no remaining table can win. Masks are chosen for a whole set
//! of rules, greedily; a rule that comes later goes to the first table with room.
//!
//! Rules that differ in ranges of ports alone would all be in one run. So a table may hash the first bits of a port: a range
//! lies in at most two aligned blocks of a power of two that is no smaller, and its rule is in the runs of both. A rule that
//! matches all flows of a run ends it, and hides those behind it.
//!
//! Bounds: the choice looks at each rule a bounded number of times, so a set of n rules is laid out in O(n log n) steps, whatever
//! it is ([`Rules::steps`] counts them); changes take O(log n) each, and the length of a run, on average. At most
//! [`MAX_COMPARED`] rules are compared in one table. Sets that need more are refused: ranges of ports that overlap so
//! often, at the same addresses.
//!
//! Cost: a digest and a line for each table that could win, and some 15 vector instructions for eight rules of a run.
//! Memory: 32 bytes a rule (IPv6: 80), and 16 a run; a quarter more as room for changes. [`RulesQuery::size_bits`] says it.
//! Updates: the runs of up to four slots, and these slots. Readers that overlap a write read again.
//! Flows without a rule: value 0. Rules are exact; there are no wrong answers.
//! Source: merged tuples are those of Daly, Bruschi, Linguaglossa, Pontarelli, Rossi, Tollet, Torng, Yourtchenko, "TupleMerge:
//! Fast Software Packet Processing for Online Packet Classification", 2019. Differs: one array of slots for all tables, masks
//! over ports too, a greedy choice for a whole set.
//! Limits: 2^22 - 1 rules and values, 2^24 priorities.

mod choice;
mod control;
mod kernel;
mod layout;
mod mask;
mod places;
pub mod query;
mod rule;
mod update;

pub use control::{MAX_RULES, Rules};
pub use places::MAX_COMPARED;
pub use query::{Reader, RulesQuery};
pub use rule::{ALL_PORTS, Flow, PRIORITY_BITS, Prefix, Rule, VALUE_BITS};
pub use update::{Image, Update};

use crate::hash::{Family, Purpose, SecretKey, mix64};
use mask::Mask;

/// What both halves were made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The family of digests.
    pub family: Family,
    /// The key of digests: those who choose rules must not know it.
    pub key: SecretKey,
}

impl Settings {
    /// Settings with this key.
    pub fn new(family: Family, key: &SecretKey) -> Self {
        Self { family, key: key.clone() }
    }

    fn seed(&self) -> u64 {
        self.key.derive(Purpose::Structure, 3)
    }
}

/// Why a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A prefix is longer than addresses are.
    #[error("a prefix of IPv6 in rules of IPv4: keep the rules of each in a table of their own")]
    Family,
    /// A range of ports ends before it starts.
    #[error("a range of ports has none: give the smaller port first")]
    NoPorts,
    /// The value cannot be stored.
    #[error("the value is {0}: use 1 to {max}", max = (1 << VALUE_BITS) - 1)]
    Value(u32),
    /// The priority cannot be stored.
    #[error("the priority is {0}: use 0 to {max}", max = (1 << PRIORITY_BITS) - 1)]
    Priority(u32),
    /// There are too many rules that no table can tell apart.
    #[error(
        "more than {MAX_COMPARED} rules have the same prefixes and protocol and ranges of ports that overlap, and each packet \
         there would be compared with all of them: merge ranges, or split the rules by address"
    )]
    Alike {
        /// The value of one of these rules.
        value: u32,
    },
    /// There are too many rules.
    #[error("there are {MAX_RULES} rules: remove some")]
    Full,
}

/// The pseudo-random function whose XOR over all tables is their share of the digest.
fn table_prf(seed: u64, id: u16, mask: Mask, highest: u32) -> u64 {
    let [a, b, c, d, e] = mask.bytes();
    let mask = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
    mix64(mix64(mix64(seed ^ u64::from(id)).wrapping_add(mask)).wrapping_add(u64::from(highest)))
}

//! Longest prefix match by Bloom filters: one hash table of all prefixes, and a filter that decides which lengths to
//! look up in it.
//!
//! ```text
//! address --> its prefix of each length that some prefix has, the longest first
//!                 | filter: is it one?  no: the next length
//!                 v yes, or a false positive with rate f
//!             hash table: prefix and length --> next hop, or no such prefix: the next length
//! ```
//! All lengths share one filter and one table, as in the paper's experiments; the length is part of the key of both.
//! Zero padding after (or before) a prefix would make 10.0.0.0/8 and 0.10.0.0/16 one name.
//!
//! | [`Steps`] | lengths looked up | |
//! |---|---|---|
//! | [`Steps::every`] | all: the basic configuration | a prefix is one entry |
//! | [`Steps::few`] | IPv4: 8, 16, 24 and 32, the optimised configuration; IPv6: 16, 20, 24 to 64, and each one below 16 and above 64 | a prefix expands to all prefixes of the next such length that it covers: up to 128 entries |
//!
//! For IPv6, steps of 8 would also expand a prefix to up to 128 entries. Steps of 4 match the lengths in use (32, 36,
//! 40, 44, 48) and give at most 8; host routes above 64 are few and are not expanded.
//!
//! | filter | cost per prefix |
//! |---|---|
//! | [`Keyed`]`<`[`OneHashing`](crate::bloom::OneHashing)`>` | a keyed digest, k remainders: the one to use here |
//! | [`Keyed`]`<`[`DoubleHashing`](crate::bloom::DoubleHashing)`>` | a keyed digest, two draws, k additions |
//! | [`Keyed`]`<`[`Standard`](crate::bloom::Standard)`>` | a keyed digest, k draws: Bloom's filter as built today |
//! | [`OwnHash`] | k remainders of the prefix itself, the paper's option: no bound on its rate, no protection from adversaries |
//! | your own [`Membership`] | k hash functions, as the paper's standard filter |
//!
//! Cost: on average two bits for a length without an entry; k bits and two buckets of the table for a match. A burst
//! tests all its addresses in the filter, with several lengths each as fewer remain, then looks all up in the table at
//! once. [`expected_probes`](crate::bloom::theory::expected_probes) counts the buckets. Memory: `k / ln 2` bits per
//! filter entry, 67 bits per table entry for IPv4, 202 for IPv6. The control half has a byte per bit of the filter.
//! An address without a route gets 0.
//! Source: Lu et al., "Low Computational Cost Bloom Filters", section VI; Dharmapurikar et al., "Longest Prefix Matching
//! using Bloom Filters". Differs: prefixes are expanded to the next length only, and shorter ones remain entries of
//! their own length, so the answer is the longest entry and no expansion cascades. No probe is saved on the default
//! route, which is looked up last and without a filter.
//! Limits: next hops below 2^15; the filter is sized once, and excess entries are refused. This module is for
//! comparison: [`trie`](super::trie) is faster and smaller.

pub mod control;
pub mod image;
pub mod membership;
pub mod query;
pub mod update;

pub use control::{BloomLpm, Settings};
pub use image::Pushed;
pub use membership::{Keyed, Membership, OwnHash};
pub use query::{BloomLpmQuery, Reader};
pub use update::Update;

use super::prefix::{Address, Prefix};

/// IPv4 prefixes, behind a one-hashing filter.
pub type BloomLpm4<F = Keyed<crate::bloom::OneHashing>> = BloomLpm<u32, F, 1>;
/// IPv6 prefixes, behind a one-hashing filter.
pub type BloomLpm6<F = Keyed<crate::bloom::OneHashing>> = BloomLpm<u128, F, 3>;

/// The lengths that entries may have; prefixes of other lengths expand to several of the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// For each length, the length that its prefixes are expanded to.
    up: Vec<u8>,
}

impl Steps {
    /// Every length: prefixes are not expanded.
    pub fn every<A: Address>() -> Self {
        Self { up: (0..=A::BITS as u8).collect() }
    }

    /// Few lengths, for few filter lookups.
    pub fn few<A: Address>() -> Self {
        let up = |len: u8| match A::VERSION {
            4 => len.next_multiple_of(8),
            _ if (16..=64).contains(&len) => len.next_multiple_of(4),
            _ => len,
        };
        Self { up: (0..=A::BITS as u8).map(up).collect() }
    }

    /// The length that a prefix of `len` bits is expanded to.
    pub fn of(&self, len: u8) -> u8 {
        self.up[usize::from(len)]
    }

    /// The shortest length that is expanded to the same length.
    fn first_of(&self, len: u8) -> u8 {
        (0..=len).rev().take_while(|&shorter| self.of(shorter) == self.of(len)).last().unwrap_or(len)
    }

    /// The number of distinct entries that these prefixes expand to.
    pub fn count_entries<A: Address>(&self, prefixes: impl IntoIterator<Item = Prefix<A>>) -> usize {
        let mut ranges: Vec<(u8, u128, u128)> = prefixes
            .into_iter()
            .map(|prefix| {
                let step = self.of(prefix.len());
                let index = |address: A| if step == 0 { 0 } else { address.widened() >> (A::BITS - u32::from(step)) };
                (step, index(prefix.address()), index(prefix.last()))
            })
            .collect();
        ranges.sort_unstable();
        let (mut n_entries, mut end) = (0, (0, 0));
        for (step, first, last) in ranges {
            let from = if end.0 == step { first.max(end.1) } else { first };
            if from <= last {
                n_entries += (last - from + 1) as usize;
                end = (step, last + 1);
            }
        }
        n_entries
    }
}

/// A prefix as a name of the hash table: address and length.
#[inline(always)]
fn name<A: Address, const W: usize>(prefix: Prefix<A>) -> [u64; W] {
    let (wide, len) = (prefix.address().widened(), u64::from(prefix.len()));
    if W == 1 {
        [wide as u64 | len << 32; W]
    } else {
        std::array::from_fn(|word| [wide as u64, (wide >> 64) as u64, len][word])
    }
}

//! The contestants of `bench lpm`.

use lookup::hash::SecretKey;
use lookup::lpm::Prefix;
use lookup::lpm::trie::{PrefixTrie, PrefixTrieQuery, Settings};
use lookup::traits::{Control, Query};
use prefix_trie::PrefixMap;

use super::{behind_filters, rte};
use crate::BenchError;
use crate::contestants::bursts;

/// The largest batch.
pub(super) const MAX_BATCH: usize = 256;

/// Contestants, with a one-line description of each.
pub const CONTESTANTS: [(&str, &str); 16] = [
    ("trie", "fibula's compressed trie: nodes of 64 ranges, two reads for prefixes of up to 24 bits"),
    ("rte_lpm", "DPDK, DIR-24-8, bulk look-up; inserts take minutes for a full table (needs DPDK)"),
    ("rte_fib", "DPDK, DIR-24-8 with next hops of 2 bytes, its own RIB beside it (needs DPDK)"),
    ("prefix-trie", "the crate of that name, one address at a time"),
    ("ohbf", "one-hashing filter, keyed digest, lengths 8, 16, 24 and 32"),
    ("lhbf", "double-hashing filter, keyed digest, the same lengths"),
    ("sbf", "standard filter, keyed digest, the same lengths"),
    ("ohbf-own", "one-hashing filter, the address as its own hash, the same lengths: the paper's optimised OHBF"),
    ("lhbf-paper", "double hashing from two hash functions, the same lengths: the paper's LHBF"),
    ("sbf-paper", "ten hash functions, one after another until a bit is zero, the same lengths: the paper's SBF"),
    ("ohbf-basic", "one-hashing filter, keyed digest, every length"),
    ("lhbf-basic", "double-hashing filter, keyed digest, every length"),
    ("sbf-basic", "standard filter, keyed digest, every length"),
    ("ohbf-own-basic", "one-hashing filter, the address as its own hash, every length"),
    ("lhbf-paper-basic", "double hashing from two hash functions, every length: the paper's LHBF"),
    ("sbf-paper-basic", "ten hash functions, every length: the paper's SBF"),
];

/// Whether a contestant takes part by default: those behind filters take half a minute each to build a full table.
pub(super) fn is_default(name: &str) -> bool {
    ["trie", "rte_lpm", "rte_fib", "prefix-trie"].contains(&name)
}

/// Hash probes per successful lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probes {
    pub(crate) counted: f64,
    /// The maximum by equation (17).
    pub(crate) expected: f64,
}

/// One table under measurement.
pub(super) trait Side {
    /// Sum of the next hops of all addresses, 0 for no route.
    fn sum(&self, addresses: &[u32], batch: usize) -> u64;

    /// Bytes that look-ups read.
    fn bytes(&self) -> u64;

    /// Further bytes that changes need.
    fn bytes_beside(&self) -> u64;

    /// Probes of hash tables behind filters.
    fn probes(&self, _addresses: &[u32]) -> Option<Probes> {
        None
    }

    /// A remark for the table of results.
    fn note(&self, _addresses: &[u32]) -> String {
        String::new()
    }
}

/// Builds the table of a contestant.
pub(super) fn new(name: &str, routes: &[(Prefix<u32>, u64)], seed: u64) -> Result<Box<dyn Side>, BenchError> {
    match name {
        "trie" => Ok(Box::new(Trie::build(routes, seed))),
        "prefix-trie" => Ok(Box::new(Crate::build(routes))),
        "rte_lpm" => rte::lpm(routes),
        "rte_fib" => rte::fib(routes),
        _ => behind_filters::build(name, routes, seed),
    }
}

/// Bytes currently allocated from the heap.
pub(super) fn heap_bytes() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "asks the allocator")]
    {
        // SAFETY: it fills a plain struct.
        let info = unsafe { libc::mallinfo2() };
        (info.uordblks + info.hblkhd) as u64
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    0
}

struct Trie {
    query: PrefixTrieQuery<u32>,
    _control: PrefixTrie<u32>,
    control_bytes: u64,
}

impl Trie {
    fn build(routes: &[(Prefix<u32>, u64)], seed: u64) -> Self {
        let before = heap_bytes();
        let mut control = PrefixTrie::new(Settings::new(routes.len().max(1), &SecretKey::from_seed(seed)));
        let mut updates = Vec::new();
        control.insert_batch(routes, &mut updates).expect("next hops below 256, and room for all");
        drop(updates);
        let control_bytes = heap_bytes().saturating_sub(before);
        Self { query: control.export(), _control: control, control_bytes }
    }
}

impl Side for Trie {
    fn sum(&self, addresses: &[u32], batch: usize) -> u64 {
        let mut values = [0; MAX_BATCH];
        bursts(addresses, batch).fold(0, |sum, addresses| {
            self.query.lookup_batch(addresses, &mut values);
            sum + values[..addresses.len()].iter().sum::<u64>()
        })
    }

    fn bytes(&self) -> u64 {
        self.query.size_bits() / 8
    }

    fn bytes_beside(&self) -> u64 {
        self.control_bytes
    }

    fn note(&self, _addresses: &[u32]) -> String {
        let huge = self.query.huge_page_bytes().unwrap_or(0);
        format!("{:.0} MB on huge pages", huge as f64 / 1e6)
    }
}

struct Crate {
    map: PrefixMap<(u32, u8), u16>,
    bytes: u64,
}

impl Crate {
    fn build(routes: &[(Prefix<u32>, u64)]) -> Self {
        let before = heap_bytes();
        let map: PrefixMap<(u32, u8), u16> =
            routes.iter().map(|(prefix, hop)| ((prefix.address(), prefix.len()), *hop as u16)).collect();
        Self { map, bytes: heap_bytes().saturating_sub(before) }
    }
}

impl Side for Crate {
    fn sum(&self, addresses: &[u32], batch: usize) -> u64 {
        let hop = |&address| self.map.get_lpm(&(address, 32)).map_or(0, |(_, &hop)| u64::from(hop));
        bursts(addresses, batch).flatten().map(hop).sum()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bytes_beside(&self) -> u64 {
        0
    }
}

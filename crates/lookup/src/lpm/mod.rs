//! Longest prefix match: the next hop of the longest prefix that an address begins with, for IPv4 and IPv6.
//!
//! | module | what |
//! |---|---|
//! | [`prefix`] | [`Address`] and [`Prefix`], in their usual notation |
//! | [`trie`] | [`PrefixTrie`], the table to use: a compressed trie, two reads per lookup for up to 24 bits |
//! | [`file`](mod@file) | tables as a file, with the names of their next hops |
//! | [`bloom`] | [`BloomLpm`]: a hash table of all prefixes, and a Bloom filter that selects the lengths to look up |

pub mod bloom;
pub mod file;
pub mod prefix;
pub mod trie;

pub use bloom::{BloomLpm, BloomLpmQuery};
pub use prefix::{Address, Prefix, PrefixError};
pub use trie::{PrefixTrie, PrefixTrieQuery};

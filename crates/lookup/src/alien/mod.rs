//! Alien names, which were never inserted: three ways to detect them, in front of or inside any table.
//!
//! | mechanism | what | probability that an alien passes | bits per name | cost for a live name |
//! |---|---|---|---|---|
//! | Bloom filter in front | [`Filtered`] by a [`BloomSet`], or by [`Names`](crate::bloom_fib::Names), which grow | the filter's rate p | 1.44 log2(1/p) | k bits of the filter, in 1 to k lines |
//! | checksum in the value | [`Checked`] | 2^-r | r cells' worth: 2.33 r in an Othello | wider cells only |
//! | exact filter in front | [`Filtered`] by a [`Cuckoo`](crate::cuckoo::exact::Cuckoo) of full names, the table [`Named`] | 0 | 67 for MAC addresses | two lines of the filter |
//!
//! Which to use: the checksum where a few bits are enough. (All switches compute the same checksum, so a frame that
//! passes one passes the next, too.) The Bloom filter where aliens are many: most are rejected by its second bit,
//! without a table lookup. The exact filter at the ingress of a network: only it revokes a name for good. All three
//! wrap a [`Skeleton`](crate::traits::Skeleton) and its [`Query`](crate::traits::Query), so they can be nested. A
//! fingerprint with an emptiness indicator in the cells of an Othello is cheaper than a checksum, thanks to that
//! indicator: see [`othello::Settings`](crate::othello::Settings).
//!
//! A detected alien gets 0 (drop), an undetected one whatever the table answers. A removed name drops as it does in the
//! table, and is an alien afterwards.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section VII.A.
//! Differs: filters count, in the control half, so that names can be removed from them.

pub mod bloom_set;
pub mod checked;
pub mod filtered;
pub mod named;

pub use bloom_set::{BloomSet, BloomSetQuery};
pub use checked::{Checked, CheckedQuery};
pub use filtered::{Filter, Filtered, FilteredQuery};
pub use named::{Named, NamedQuery};

//! Alien names, those that nobody inserted: three ways to tell them from live ones, in front of or inside any table.
//!
//! | mechanism | what | an alien passes with | bits a name | a live name pays |
//! |---|---|---|---|---|
//! | Bloom filter in front | [`Filtered`] by a [`BloomSet`] | the filter's rate p | 1.44 log2(1/p) | k bits of the filter, in 1 to k lines |
//! | checksum in the value | [`Checked`] | 2^-r | r cells' worth: 2.33 r in an Othello | nothing but wider cells |
//! | exact filter in front | [`Filtered`] by a [`Cuckoo`](crate::cuckoo::exact::Cuckoo) of full names, the table [`Named`] | 0: never | 67 for MAC addresses | two lines of the filter |
//!
//! Which to take: the checksum where a few bits do (a frame that passes meets the next switch's checksum, which is the
//! same one: it does not get rarer on the way); the Bloom filter where aliens are many, for most of them end at its
//! second bit without a look at the table; the exact filter at the ingress of a network, for it is the only one that
//! revokes a name for good. All are wrappers over a
//! [`Skeleton`](crate::traits::Skeleton) and its [`Query`](crate::traits::Query): they can be put around each other. What is inside the cells of an Othello already, a fingerprint with an emptiness indicator, is
//! cheaper than a checksum by that indicator: see [`othello::Settings`](crate::othello::Settings).
//!
//! An alien that is noticed gets 0 (drop), one that is not what the table says. A removed name drops as it does in the
//! table, and is an alien then.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section VII.A.
//! Differs: filters count, in the control half, so that names can be removed from them.

pub mod bloom_set;
pub mod checked;
pub mod filtered;
pub mod keyed;

pub use bloom_set::{BloomSet, BloomSetQuery};
pub use checked::{Checked, CheckedQuery};
pub use filtered::{Filter, Filtered, FilteredQuery};
pub use keyed::{Digested, Keyed, KeyedQuery, Named};

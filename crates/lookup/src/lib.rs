//! Tables from flat names to small values: 10 to 20 bits per name, looked up in batches at memory speed during changes.
//!
//! **The trade.** A compact table holds no names. It takes a fifth to a tenth of the memory of a hash table, so more of
//! it stays in the cache. But another component must store the names, and a name that was never inserted (an *alien*)
//! gets an arbitrary value. If one process owns the names and looks them up, and memory does not matter, use a hash
//! table. If names are owned in one place and looked up in many, use the *two halves* of a structure from this crate:
//!
//! * a **skeleton** stores every name and its place; it allocates, and may refuse a name ([`Skeleton`]);
//! * a **query structure** owns words only: a lookup neither allocates nor fails, and runs concurrently with the one
//!   writer ([`Query`], [`BatchReader`]);
//! * **updates** of tens of bytes carry absolute words, versions and a digest from the skeleton to the query structure.
//!
//! # Which structure
//!
//! Values of 8 bits, MAC addresses. *Lines* are the cache lines that a lookup of a live name reads. Bytes are
//! those of the message to a switch when the value of a name changes (`fibula bench message`, 64K names).
//!
//! | structure | use | bits per name | lines | a change | an alien gets | source |
//! |---|---|---|---|---|---|---|
//! | [`othello`] | the default: any values to 64 bits, cheapest changes | 19.4 | 2 | 1 us, 91 bytes | any value | Othello hashing, Concise |
//! | [`mod@line`] | the least memory of the mutable ones; large tables | 9.0 to 10.8 | 1.02 to 1.18 | 4 to 6 us, 144 bytes | any value | none of the papers |
//! | [`othello`] with fingerprints | drops most aliens without a second lookup | 38.7 | 2 | 1 us, 93 bytes | drop, except 1 in 390 | OFW |
//! | [`cuckoo::filtable`] | drops nearly all aliens | 18 to 34 | 2 | 1 us, 79 bytes | drop, except 1 in 2^l_f | CFW |
//! | [`cuckoo::exact`] | whole names: no alien passes | 68 | 2 | 1 us, 82 bytes | drop | CuckooSwitch |
//! | [`othello::gateway`] | whole names behind an Othello | 112 | 3 | 2 us, 87 bytes | drop | OGW |
//! | [`bloom_fib`] | one Bloom filter per value; for comparison | 26 to 109 | 100 or more | 10 us or more, 135 to 223 bytes | mostly drop | BFW, BUFFALO |
//! | [`static_map`] | names that never change | 9.8 (Bloomier) | 3 | a full rebuild | any value | Bloomier, SetSep |
//! | [`tuple_space`] | rules over five-tuples, with prefixes and priorities | 203 | 2 per tuple | 123 bytes | no rule: 0 | Tuple Space Search |
//! | [`flow`] | connections with timers, on one core | 320 | 1 to 2 | 0.1 us, no message | absent | Cuckoo++ |
//! | [`lpm`] | longest prefix match, IPv4 and IPv6 | 55 per prefix | 1 to 3 | one subtree | no route: 0 | Poptrie |
//! | [`bloom`] | sets: is this name a member? | 1.44 log2(1/rate) | 1 to k | k bits | yes, at the rate | Bloom, one-hashing |
//! | [`alien`] | any of the above with a filter or a checksum in front | more | more | both | drop, at a rate | Othello, VII.A |
//!
//! `fibula fib compare` computes this table for other names, values and rates, and measures it. `docs/benchmarks.md`
//! compares lookup rates with those of hash tables. Value 0 means drop.
//!
//! # Ten lines
//!
//! ```
//! use fibula_lookup::{Control, Digest, Family, Hasher, Othello, Query, SecretKey, othello::Settings};
//!
//! let key = SecretKey::from_seed(1); // SecretKey::random() in earnest
//! let hasher = Hasher::new(Family::MulAdd, &key);
//! let names: Vec<(Digest, u64)> = (0..1000).map(|mac: u64| (hasher.digest(&mac.to_be_bytes()[2..]), mac % 200)).collect();
//! let (mut control, mut table) = Othello::<fibula_lookup::Sharded>::build(Settings::new(8, 1 << 20, &key), &names, 2)?;
//!
//! let burst: Vec<Digest> = names[..32].iter().map(|name| name.0).collect();
//! let mut values = [0; 32];
//! table.lookup_batch(&burst, &mut values);
//! assert_eq!(values[31], 31);
//!
//! let mut updates = Vec::new();
//! control.insert(burst[31], 99, &mut updates)?; // tens of bytes, for every switch that follows
//! for update in &updates {
//!     table.apply(update)?;
//! }
//! assert_eq!(table.lookup(burst[31]), 99);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A name is hashed once, to a keyed 64-bit [`Digest`] ([`hash`]); everything else is derived from it. Each thread that
//! looks up concurrently with the writer has its own reader: [`Replicated::reader`]. For hundreds of switches that give
//! the same names different values, use one [`Skeleton`] and one [`View`] per switch. [`traits`] states what every
//! structure promises, and [`testkit`] tests it; `docs/how-to/add-a-structure.md` adds one.
//!
//! Typed figures on this page are of commit `a19d5e03` (2026-11-23) or older code, on the machines named beside them.

// The seam, and the modules that structures are built on.
pub mod base;
pub mod hash;
pub mod publish;
pub mod testkit;
pub mod traits;

// The structures.
pub mod alien;
pub mod bloom;
pub mod bloom_fib;
pub mod cuckoo;
pub mod flow;
pub mod line;
pub mod lpm;
pub mod othello;
pub mod rules;
pub mod static_map;
pub mod tuple_space;

pub use hash::{Digest, Family, Hasher, SecretKey};
pub use line::LineTable;
pub use othello::{Othello, Sharded};
pub use traits::{BatchReader, Control, Query, Replicated, Single, Skeleton, View};

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

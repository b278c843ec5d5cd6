//! Bloom filters: sets in a few bits per name, without false negatives and with few false positives.
//!
//! | module | what |
//! |---|---|
//! | [`filter`] | [`Bloom`], the plain filter; single and batched lookups |
//! | [`burst`], `avx512` | the batched lookup; its loops for eight names at a time |
//! | [`counting`] | [`Counting`], a plain filter plus counters, from which names can be removed |
//! | [`layout`] | the positions of a name's bits: [`Standard`], [`Partitioned`], [`Blocked`] |
//! | [`one_hashing`] | one more layout, [`OneHashing`]: remainders of one word by primes |
//! | [`double_hashing`] | another, [`DoubleHashing`]: an arithmetic progression plus cubes |
//! | [`modulus`] | remainders by a fixed divisor without a division; primes |
//! | [`named`] | layouts by their names, and what they take for a name |
//! | [`image`] | serialised filters, with the hash family and key of their names |
//! | [`theory`] | the formulas of "Low Computational Cost Bloom Filters" |
//! | [`sizing`] | [`Shape`]: bits and hash functions from a number of names and a false-positive rate, and back |
//!
//! | layout | lines read for a member | lines read for an alien at half fill | false positives at equal bits |
//! |---|---|---|---|
//! | [`Standard`] | k | 2 | fewest |
//! | [`Partitioned`] | k | 2 | slightly more: a partition has more ones than the whole would |
//! | [`OneHashing`] | k | 2 | as [`Partitioned`] |
//! | [`DoubleHashing`] | k | 2 | up to a quarter more in small filters with many bits per name |
//! | [`Blocked`] | 1 | 1 | 1.1 times at 8 bits per name, 2.8 times at 20: blocks fill unevenly |
//!
//! Cost: `n * log2(1 / rate) * 1.44` bits for all but the last, which takes 2 % more at a rate of 2 %, 8 % at 0.1 %,
//! and 35 % at one in a million. Updates: one [`BitChange`] per flipped bit, at most k per name.
//! Alien names: true with the false-positive rate, false otherwise. [`Shape::expected_fp`] computes the expected rate;
//! [`Bloom::false_positive_rate`] measures that of a filter as filled now.
//! Sources: those of the layouts; Bloom filters as in Shi et al., "Re-designing Compact-structure based Forwarding for
//! Programmable Networks", sections II and IV.A: a filter is the frequently accessed part of BFW, separate from its
//! counters. Differs: the k positions are drawn from one keyed digest by bijective mixes, several from each, not by k
//! hashes of the name. Filters with k hashes, as published, are contestants of `fibula bench filter`.
//! Limits: at most [`MAX_BITS`] bits and [`MAX_HASHES`] positions per name; one writer, no concurrent readers.

#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod burst;
pub mod counting;
pub mod double_hashing;
pub mod filter;
pub mod image;
pub mod layout;
pub mod modulus;
pub mod named;
pub mod one_hashing;
pub mod sizing;
pub mod theory;

pub use counting::{CounterBits, Counting, RemoveError};
pub use double_hashing::DoubleHashing;
pub use filter::{BitChange, Bloom, UnionError};
pub use layout::{Blocked, Layout, Partitioned, Places, Standard};
pub use one_hashing::{AddressHashing, OneHashing, partition_sizes};
pub use sizing::{MAX_BITS, MAX_HASHES, Shape, ShapeError, optimal_hashes};

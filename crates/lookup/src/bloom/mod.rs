//! Bloom filters: sets of names in a few bits a name, that never miss a member and take few aliens for one.
//!
//! | module | what |
//! |---|---|
//! | [`filter`] | [`Bloom`], the plain filter; single and batched lookups |
//! | [`burst`] | the lookup of a batch in a large one |
//! | [`counting`] | [`Counting`], a plain filter with counters beside it, from which names can be removed |
//! | [`layout`] | where the bits of a name stand: [`Standard`], [`Partitioned`], [`Blocked`] |
//! | [`one_hashing`] | one more layout, [`OneHashing`]: remainders of one word by primes |
//! | [`double_hashing`] | and one, [`DoubleHashing`]: an arithmetic progression plus cubes |
//! | [`modulus`] | remainders by a fixed divisor without a division; primes |
//! | [`image`] | filters as bytes, with what names were hashed by |
//! | [`theory`] | the formulas of "Low Computational Cost Bloom Filters" |
//! | [`sizing`] | [`Shape`]: bits and hash functions for a number of names and a false-positive rate, and back |
//!
//! | layout | lines a member costs | lines an alien costs at half fill | false positives at equal bits |
//! |---|---|---|---|
//! | [`Standard`] | k | 2 | least |
//! | [`Partitioned`] | k | 2 | little more: a partition has more ones than the whole would |
//! | [`OneHashing`] | k | 2 | as [`Partitioned`] |
//! | [`DoubleHashing`] | k | 2 | up to a quarter more in small filters with many bits a name |
//! | [`Blocked`] | 1 | 1 | 1.1 times at 8 bits a name, 2.8 times at 20: blocks fill unevenly |
//!
//! Cost: `n * log2(1 / rate) * 1.44` bits for all but the last; for that 2 % more at a rate of 2 %, 8 % at 0.1 %, 35
//! % at one in a million. Updates: one [`BitChange`] for every bit that turns, k a name at most.
//! Alien names: true with the false-positive rate, which [`Shape::expected_fp`] computes and
//! [`Bloom::false_positive_rate`] tells of a filter as it stands; false otherwise.
//! Sources: those of the layouts; Bloom filters as in Shi et al., "Re-designing Compact-structure based Forwarding for Programmable
//! Networks", sections II and IV.A: a filter is the frequently accessed part of BFW, counters stand beside it. Differs:
//! the k positions are drawn from one keyed digest by bijective mixes, one for every few, not by k hashes of the name;
//! filters with k hashes, as published, are contestants of `fibula bench filter`.
//! Limits: at most [`MAX_BITS`] bits and [`MAX_HASHES`] positions a name; one writer, no reader beside it.

pub mod burst;
pub mod counting;
pub mod double_hashing;
pub mod filter;
pub mod image;
pub mod layout;
pub mod modulus;
pub mod one_hashing;
pub mod sizing;
pub mod theory;

pub use counting::{CounterBits, Counting, RemoveError};
pub use double_hashing::DoubleHashing;
pub use filter::{BitChange, Bloom, UnionError};
pub use layout::{Blocked, Layout, Partitioned, Places, Standard};
pub use one_hashing::{AddressHashing, OneHashing, partition_sizes};
pub use sizing::{MAX_BITS, MAX_HASHES, Shape, ShapeError, optimal_hashes};

//! How many cells an Othello has, and how its geometry fits into the one word that a reader loads.
//!
//! [`Sharded`] is the default: a shard of a few thousand names has exactly the cells that it needs. [`Option1`] and
//! [`Option2`] are the papers' sizes (powers of two, one graph for all names). They exist for the reproduction. Source:
//! "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section IV.A.

use super::index::Index;
use crate::hash::tweak::{TWEAKS, mix};

/// The cells of the two sides. Both are multiples of the number of cells in a 64-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides {
    /// Cells of the first array (m_a in the paper).
    pub a: u32,
    /// Cells of the second array (m_b in the paper).
    pub b: u32,
}

impl Sides {
    /// Cells of both sides.
    pub fn cells(self) -> u32 {
        self.a + self.b
    }

    /// The two vertices of `digest`: one in `0..a`, one in `a..a + b`.
    #[inline]
    pub(super) fn endpoints(self, digest: u64, tweak: u16) -> (u32, u32) {
        let x = mix(digest, tweak);
        let u = ((x >> 32) * u64::from(self.a)) >> 32;
        let v = ((x & 0xFFFF_FFFF) * u64::from(self.b)) >> 32;
        (u as u32, self.a + v as u32)
    }
}

/// What a reader needs to know about a shard. It has 64 bits, so that one atomic load reads all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Where the cells start, in lines of 64 bytes from the base of the arena.
    pub offset_lines: u32,
    /// Cells of the two sides.
    pub sides: Sides,
    /// The shard's tweak.
    pub tweak: u16,
    /// Whether a stash of exact entries follows the cells.
    pub stash: bool,
}

/// The most cells of a side.
pub(super) const MAX_SIDE: u32 = 1 << 30;
/// The most words of a side of a [`Sharded`] shard.
pub(super) const MAX_SIDE_WORDS: u32 = (1 << 16) - 1;

/// A rule for sizes. It is sealed, because the lookup loops depend on each rule.
pub trait Sizing: Copy + Default + Send + Sync + 'static + sealed::Sealed {
    /// The integer that holds indices of edges and vertices of one shard.
    type Index: Index;
    /// The name used in images and in benchmarks.
    const NAME: &'static str;
    /// The number used in images.
    const ID: u8;
    /// Whether the table splits into shards.
    const SHARDED: bool;
    /// A shard with fewer cells per name, in thousandths, is enlarged. 0 if only a cycle enlarges it.
    const MIN_MILLICELLS: u64;

    /// Whether the sides of a shard that comes from outside can be packed.
    fn allows(sides: Sides, cells_per_word: u32) -> bool;
    /// The sides for `n_names` after `tries` tweaks have failed.
    fn sides(n_names: usize, cells_per_word: u32, tries: u32) -> Sides;
    /// Packs what a reader needs into one word.
    fn pack(geometry: Geometry, cells_per_word: u32) -> u64;
    /// The inverse of [`Sizing::pack`].
    fn unpack(word: u64, cells_per_word: u32) -> Geometry;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Sharded {}
    impl Sealed for super::Option1 {}
    impl Sealed for super::Option2 {}
    #[cfg(test)]
    impl Sealed for super::Tiny {}
}

/// Exact sizes: 2.40 cells per name when a shard is built, filled down to 2.10. A shard of more than 3,000 names splits
/// when it is next solved.
///
/// At 2.40 a random bipartite graph is acyclic with probability sqrt(1 - (2/2.4)^2) = 0.55.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sharded;

/// The papers' Option 1: both sides are the smallest power of two from 1.33 n on. That is 2.67 to 5.33 cells per name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Option1;

/// The papers' Option 2: the first side is as in Option 1, the second is the smallest power of two from n on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Option2;

/// The smallest side. With fewer cells a handful of names could never be acyclic.
const MIN_SIDE: u32 = 8;
/// A shard grows by a twentieth after this many failed tweaks. The module doc of `shard` has the evidence.
pub(super) const TRIES_A_SIZE: u32 = 16;

impl Sizing for Sharded {
    type Index = u16;
    const NAME: &'static str = "sharded";
    const ID: u8 = 0;
    const SHARDED: bool = true;
    const MIN_MILLICELLS: u64 = 2100;

    fn allows(sides: Sides, cells_per_word: u32) -> bool {
        sides.a == sides.b
            && sides.a > 0
            && sides.a.is_multiple_of(cells_per_word)
            && sides.a / cells_per_word <= MAX_SIDE_WORDS
    }

    fn sides(n_names: usize, cells_per_word: u32, tries: u32) -> Sides {
        let millicells = 2400 + 120 * u64::from(tries / TRIES_A_SIZE);
        let side = (n_names as u64 * millicells).div_ceil(2000) as u32;
        let side = side.max(MIN_SIDE).next_multiple_of(cells_per_word);
        Sides { a: side, b: side }
    }

    // words of a side:16 | tweak:15 | stash:1 | offset:32
    // The vector loop masks the low half and shifts the high one.
    fn pack(g: Geometry, cells_per_word: u32) -> u64 {
        let words = g.sides.a / cells_per_word;
        debug_assert!(g.sides.a == g.sides.b && words <= MAX_SIDE_WORDS && g.tweak < TWEAKS);
        u64::from(words) | u64::from(g.tweak) << 16 | u64::from(g.stash) << 31 | u64::from(g.offset_lines) << 32
    }

    #[inline]
    fn unpack(word: u64, cells_per_word: u32) -> Geometry {
        let side = (word & 0xFFFF) as u32 * cells_per_word;
        Geometry {
            offset_lines: (word >> 32) as u32,
            sides: Sides { a: side, b: side },
            tweak: ((word >> 16) & 0x7FFF) as u16,
            stash: word >> 31 & 1 != 0,
        }
    }
}

/// The smallest power of two of words that have `cells` cells. Where the width divides 64, it is also a power of two of
/// cells.
fn power_of_two_words(cells: u64, cells_per_word: u32) -> u32 {
    cells.max(u64::from(MIN_SIDE)).div_ceil(u64::from(cells_per_word)).next_power_of_two() as u32 * cells_per_word
}

// words a, exponent:5 | words b, exponent:5 | spare:6 | tweak:15 | stash:1 | offset:32
fn pack_powers(g: Geometry, cells_per_word: u32) -> u64 {
    let (a, b) = (g.sides.a / cells_per_word, g.sides.b / cells_per_word);
    debug_assert!(a.is_power_of_two() && b.is_power_of_two() && g.tweak < TWEAKS);
    u64::from(a.trailing_zeros())
        | u64::from(b.trailing_zeros()) << 5
        | u64::from(g.tweak) << 16
        | u64::from(g.stash) << 31
        | u64::from(g.offset_lines) << 32
}

#[inline]
fn unpack_powers(word: u64, cells_per_word: u32) -> Geometry {
    Geometry {
        offset_lines: (word >> 32) as u32,
        sides: Sides { a: cells_per_word << (word & 31), b: cells_per_word << (word >> 5 & 31) },
        tweak: ((word >> 16) & 0x7FFF) as u16,
        stash: word >> 31 & 1 != 0,
    }
}

macro_rules! power_of_two_sizing {
    ($kind:ty, $name:literal, $id:literal, $second_side:expr) => {
        impl Sizing for $kind {
            type Index = u32;
            const NAME: &'static str = $name;
            const ID: u8 = $id;
            const SHARDED: bool = false;
            const MIN_MILLICELLS: u64 = 0;

            fn allows(sides: Sides, cells_per_word: u32) -> bool {
                [sides.a, sides.b].into_iter().all(|side| {
                    side <= MAX_SIDE && side.is_multiple_of(cells_per_word) && (side / cells_per_word).is_power_of_two()
                })
            }

            fn sides(n_names: usize, cells_per_word: u32, tries: u32) -> Sides {
                let n = n_names as u64;
                let grown = u32::from(tries >= TRIES_A_SIZE);
                let second_side: fn(u64) -> u64 = $second_side;
                Sides {
                    a: power_of_two_words((n * 133).div_ceil(100), cells_per_word) << grown,
                    b: power_of_two_words(second_side(n), cells_per_word) << grown,
                }
            }
            fn pack(g: Geometry, cells_per_word: u32) -> u64 {
                pack_powers(g, cells_per_word)
            }
            #[inline]
            fn unpack(word: u64, cells_per_word: u32) -> Geometry {
                unpack_powers(word, cells_per_word)
            }
        }
    };
}
power_of_two_sizing!(Option1, "option1", 1, |n| (n * 133).div_ceil(100));
power_of_two_sizing!(Option2, "option2", 2, |n| n);

/// Four cells per side for any number of names. Every graph soon has cycles, and every shard a stash.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tiny;

#[cfg(test)]
impl Sizing for Tiny {
    type Index = u16;
    const NAME: &'static str = "tiny";
    const ID: u8 = 255;
    const SHARDED: bool = true;
    const MIN_MILLICELLS: u64 = 0;

    fn allows(sides: Sides, _cells_per_word: u32) -> bool {
        sides == Sides { a: 4, b: 4 }
    }
    fn sides(_n_names: usize, _cells_per_word: u32, _tries: u32) -> Sides {
        Sides { a: 4, b: 4 }
    }
    fn pack(g: Geometry, cells_per_word: u32) -> u64 {
        Sharded::pack(g, cells_per_word)
    }
    fn unpack(word: u64, cells_per_word: u32) -> Geometry {
        Sharded::unpack(word, cells_per_word)
    }
}

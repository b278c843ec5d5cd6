//! Leaves of two widths: 2 bytes for up to 32,767 next hops, 4 bytes for up to 2^24.
//!
//! Few tables have many next hops, but one of them is common: a full routing table with the origin AS of each prefix.
//! Leaves of 4 bytes double the memory of the runs, so tables of few next hops keep their 2 bytes, and loops of their
//! own.

use std::fmt::Debug;
use std::ops::BitOr;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

/// A leaf: a next hop, or the number of a child.
pub trait Leaf: Copy + Ord + Default + Debug + BitOr<Output = Self> + bytemuck::Pod + Send + Sync + 'static {
    /// A leaf in memory.
    type Atomic: Send + Sync;
    /// Its bytes.
    const BYTES: usize;
    /// Words of this size that hold the starts of a node in a message.
    const START_WORDS: usize = 8 / Self::BYTES;
    /// The largest next hop.
    const MAX_HOP: u32;
    /// Leaves from here on are not next hops.
    const DEEP: Self;
    /// In a message: the run has a child that the message contains.
    const NEW: Self;
    /// Next hops whose shared leaves are written when a table is made; others are written when a node needs them.
    const N_FILLED: u32;
    /// Of the first byte of a message.
    const KIND: u8;

    /// A leaf from its bits.
    fn of(bits: u32) -> Self;
    /// Its bits.
    fn bits(self) -> u32;
    /// Reads a leaf.
    fn load(from: &Self::Atomic) -> Self;
    /// Writes a leaf.
    fn store(self, to: &Self::Atomic);
}

macro_rules! leaf {
    ($int:ty, $atomic:ty, $max_hop:expr, $n_filled:expr, $kind:literal) => {
        impl Leaf for $int {
            type Atomic = $atomic;
            const BYTES: usize = size_of::<$int>();
            const MAX_HOP: u32 = $max_hop;
            const DEEP: Self = 1 << (<$int>::BITS - 1);
            const NEW: Self = Self::DEEP | Self::DEEP >> 1;
            const N_FILLED: u32 = $n_filled;
            const KIND: u8 = $kind;

            #[inline(always)]
            fn of(bits: u32) -> Self {
                bits as Self
            }

            #[inline(always)]
            fn bits(self) -> u32 {
                self.into()
            }

            #[inline(always)]
            fn load(from: &$atomic) -> Self {
                from.load(Relaxed)
            }

            #[inline(always)]
            fn store(self, to: &$atomic) {
                to.store(self, Relaxed);
            }
        }
    };
}
leaf!(u16, AtomicU16, (1 << 15) - 1, 1 << 15, 0);
leaf!(u32, AtomicU32, 1 << 24, 1, 2);

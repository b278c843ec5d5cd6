//! Zeroed 64-bit words, aligned to lines of 64 bytes, and on huge pages if they fill one. Static structures use this
//! memory.
//!
//! A structure that is read at random and never moves needs nothing else. Words smaller than a huge page are on the
//! heap, so that thousands of small filters need no mapping each. Larger ones are in an [`Arena`].

#![expect(unsafe_code, reason = "views lines of the heap and pages of an arena as words")]

use std::ops::{Deref, DerefMut};

use crate::base::arena::{Arena, LINE};
use crate::base::prefetch::prefetch;

/// Words of at least this many bytes have pages of their own.
const PAGES_FROM: usize = 2 << 20;

/// A line of words.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u64; LINE / 8]);

/// The memory of words.
enum Memory {
    Heap(Vec<Line>),
    Pages(Arena),
}

/// Words, zero at first. The first one is at the start of a line.
pub struct Words {
    memory: Memory,
    len: usize,
}

impl Words {
    /// `len` words, all zero.
    /// # Panics
    /// When there is no memory for them, as any allocation does.
    pub fn zeroed(len: usize) -> Self {
        let memory = if len * 8 < PAGES_FROM {
            Memory::Heap(vec![Line([0; LINE / 8]); (len * 8).div_ceil(LINE)])
        } else {
            Memory::Pages(Arena::reserve(len * 8).unwrap_or_else(|error| panic!("no memory for {len} words: {error}")))
        };
        Self { memory, len }
    }

    /// Memory of the words, in bits.
    pub fn size_bits(&self) -> u64 {
        self.len as u64 * 64
    }

    /// Bytes on huge pages, if the operating system reports it.
    pub fn huge_page_bytes(&self) -> Option<usize> {
        match &self.memory {
            Memory::Heap(_) => Some(0),
            Memory::Pages(arena) => arena.huge_page_bytes(),
        }
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        let base: *const u64 = match &self.memory {
            Memory::Heap(lines) => lines.as_ptr().cast(),
            Memory::Pages(arena) => arena.base().cast(),
        };
        // SAFETY: both hold at least `len` words, initialised to zero and aligned to lines, which `self` owns.
        unsafe { std::slice::from_raw_parts(base, self.len) }
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u64] {
        let base: *mut u64 = match &mut self.memory {
            Memory::Heap(lines) => lines.as_mut_ptr().cast(),
            Memory::Pages(arena) => arena.base().cast(),
        };
        // SAFETY: as above, and borrowed for as long as `self` is.
        unsafe { std::slice::from_raw_parts_mut(base, self.len) }
    }
}

impl Clone for Words {
    fn clone(&self) -> Self {
        let mut words = Self::zeroed(self.len);
        words.copy_from_slice(self);
        words
    }
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Words({})", self.len)
    }
}

/// Starts fetching the line of `words[index]`. It is harmless for any index.
#[inline(always)]
pub(crate) fn prefetch_word(words: &[u64], index: usize) {
    prefetch(words.as_ptr().wrapping_add(index).cast());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_aligned_and_writable_to_their_end_whatever_their_memory() {
        for len in [0, 1, 9, PAGES_FROM / 8 - 1, PAGES_FROM / 8, PAGES_FROM / 4 + 3] {
            let mut words = Words::zeroed(len);
            assert_eq!((words.len(), words.size_bits()), (len, len as u64 * 64));
            assert!(words.as_ptr().cast::<u8>().addr().is_multiple_of(LINE));
            assert!(words.iter().all(|&word| word == 0));
            words.fill(u64::MAX);
            let copy = words.clone();
            words.fill(0);
            assert!(copy.iter().all(|&word| word == u64::MAX));
        }
    }
}

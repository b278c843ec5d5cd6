//! The words of a table: on huge pages, or on the heap where a huge page would be mostly empty.

#![expect(unsafe_code, reason = "shows memory as atomic words, without a branch on where it came from")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::arena::Zeroed;
use crate::traits::ApplyError;

/// Atomic words, initially zero; the first is at the start of a cache line.
pub(crate) struct Words {
    base: NonNull<AtomicU64>,
    n_words: usize,
    memory: Zeroed,
}

// SAFETY: the words are atomic, and the memory is owned and stays where it is.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// # Errors
    /// [`ApplyError::ArenaFull`] when the operating system has no memory.
    pub(crate) fn zeroed(n_words: usize) -> Result<Self, ApplyError> {
        let needed_bytes = n_words.saturating_mul(8);
        let memory = Zeroed::new(needed_bytes).map_err(|_| ApplyError::ArenaFull { needed_bytes, limit_bytes: 0 })?;
        let base = NonNull::new(memory.base().cast()).expect("neither a box nor a mapping is null");
        Ok(Self { base, n_words, memory })
    }

    /// # Errors
    /// As [`Words::zeroed`].
    pub(crate) fn filled(words: &[u64]) -> Result<Self, ApplyError> {
        let made = Self::zeroed(words.len())?;
        for (to, &from) in made.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        Ok(made)
    }

    /// A copy of the words; for the writer.
    pub(crate) fn to_vec(&self) -> Vec<u64> {
        self.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn huge_page_bytes(&self) -> Option<usize> {
        self.memory.huge_page_bytes()
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the memory holds so many words, aligned and initialised (zero), lives as long as the result, and is
        // only ever accessed through it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.n_words) }
    }
}

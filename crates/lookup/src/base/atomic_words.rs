//! Atomic words of a table that readers share with one writer: on huge pages, or on the heap where a huge page would be mostly empty.

#![expect(unsafe_code, reason = "shows memory as atomic words, without a branch on where it came from")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::arena::Zeroed;
use crate::traits::ApplyError;

/// Atomic words, initially zero; the first is at the start of a cache line.
pub struct AtomicWords {
    base: NonNull<AtomicU64>,
    n_words: usize,
    memory: Zeroed,
}

// SAFETY: the words are atomic, and the memory is owned and stays where it is.
unsafe impl Send for AtomicWords {}
// SAFETY: as above.
unsafe impl Sync for AtomicWords {}

impl AtomicWords {
    /// `n_words` words, all zero.
    /// # Errors
    /// [`ApplyError::ArenaFull`] when the operating system has no memory.
    pub fn zeroed(n_words: usize) -> Result<Self, ApplyError> {
        let needed_bytes = n_words.saturating_mul(8);
        let memory = Zeroed::new(needed_bytes).map_err(|_| ApplyError::ArenaFull { needed_bytes, limit_bytes: 0 })?;
        let base = NonNull::new(memory.base().cast()).expect("neither a box nor a mapping is null");
        Ok(Self { base, n_words, memory })
    }

    /// Words with these values.
    /// # Errors
    /// As [`AtomicWords::zeroed`].
    pub fn filled(words: &[u64]) -> Result<Self, ApplyError> {
        let made = Self::zeroed(words.len())?;
        for (to, &from) in made.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        Ok(made)
    }

    /// A copy of the words; for the writer.
    pub fn to_vec(&self) -> Vec<u64> {
        self.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Bytes on huge pages, if the operating system reports it.
    pub fn huge_page_bytes(&self) -> Option<usize> {
        self.memory.huge_page_bytes()
    }
}

impl std::fmt::Debug for AtomicWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AtomicWords({})", self.n_words)
    }
}

impl Deref for AtomicWords {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the memory holds this many words, aligned and initialised (zero), lives as long as the result, and is
        // only ever accessed through it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.n_words) }
    }
}

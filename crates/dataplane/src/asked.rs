//! Readers of the workers' FIB, through which the [directory](crate::directory) looks names up.

use fib::designs::Reader;
use fib::name::NameKind;
use lookup::hash::Hasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The lookups of one FIB for the directory.
pub(crate) struct Asked {
    pub(crate) kind: NameKind,
    pub(crate) hasher: Hasher,
    readers: Box<[Mutex<Box<Reader>>]>,
    next: AtomicUsize,
}

impl Asked {
    pub(crate) fn new(kind: NameKind, hasher: Hasher, readers: impl Iterator<Item = Box<Reader>>) -> Self {
        Self { kind, hasher, readers: readers.map(Mutex::new).collect(), next: AtomicUsize::new(0) }
    }

    /// Takes a free reader, or waits for one.
    pub(crate) fn reader(&self) -> MutexGuard<'_, Box<Reader>> {
        let first = self.next.fetch_add(1, Relaxed);
        let reader = |i: usize| &self.readers[(first.wrapping_add(i)) % self.readers.len()];
        let free = (0..self.readers.len()).find_map(|i| match reader(i).try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        free.unwrap_or_else(|| reader(0).lock().unwrap_or_else(PoisonError::into_inner))
    }
}

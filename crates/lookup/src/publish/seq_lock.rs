//! Reads of memory that one writer changes in place. A reader that overlaps a write reads again, and eventually waits.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ANYWHERE, Journal, Sequence};

/// Reads that overlap a write before a reader waits for the end of the update.
const SPINS: u32 = 16;

/// The lock on which a reader waits after too many overlaps. The writer holds it during an update.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<()>);

impl Gate {
    /// The result of `attempt`, which returns nothing if it overlaps a write. After too many overlaps, the closed gate,
    /// which excludes the writer.
    #[inline(always)]
    pub(crate) fn retry<T>(&self, mut attempt: impl FnMut() -> Option<T>) -> Result<T, MutexGuard<'_, ()>> {
        for _ in 0..SPINS {
            if let Some(found) = attempt() {
                return Ok(found);
            }
            std::hint::spin_loop();
        }
        Err(self.close())
    }

    /// Excludes the writer, and readers that overlapped it too often, until the result is dropped.
    pub(crate) fn close(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counter that guards every write, and the lock behind it.
#[derive(Debug, Default)]
pub(crate) struct SeqLock {
    // On a cache line of its own: readers do not poll what the holder of the lock writes.
    journal: Line<Journal>,
    gate: Gate,
}

/// What has cache lines of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Line<T>(T);

impl SeqLock {
    /// The counter and the lock.
    #[inline(always)]
    pub(crate) fn edits(&self) -> Edits<'_> {
        Edits { journal: &self.journal.0, gate: &self.gate }
    }

    /// As [`Edits::read`].
    #[inline(always)]
    pub(crate) fn read<T>(&self, read: impl FnMut() -> T) -> T {
        self.edits().read(read)
    }

    /// As [`Edits::write`].
    pub(crate) fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        self.edits().write(write)
    }

    /// The counter.
    #[cfg(test)]
    pub(crate) fn sequence(&self) -> &Sequence {
        self.journal.0.sequence()
    }
}

/// A [`SeqLock`] whose counter and lock may be in different memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edits<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) gate: &'a Gate,
}

impl<'a> Edits<'a> {
    /// The result of `read` without a concurrent write. `read` is repeated until then, and must tolerate half-written
    /// data.
    #[inline(always)]
    pub(crate) fn read<T>(self, mut read: impl FnMut() -> T) -> T {
        let attempt = || {
            let stamp = self.sequence().read_begin()?;
            let found = read();
            self.sequence().read_validate(stamp).then_some(found)
        };
        self.gate.retry(attempt).unwrap_or_else(|_closed| read())
    }

    /// As [`read`](Self::read), for data of which each write changes one place. `read` also returns a function, which
    /// says whether it read at a place. Writes elsewhere do not matter.
    #[inline(always)]
    pub(crate) fn read_at<T, P: Fn(u64) -> bool>(self, mut read: impl FnMut() -> (T, P)) -> T {
        let attempt = || {
            let since = self.journal.begin();
            let (found, is_there) = read();
            (self.journal.is_unchanged(since) || !self.journal.written(since).is_where(is_there)).then_some(found)
        };
        self.gate.retry(attempt).unwrap_or_else(|_closed| read().0)
    }

    /// Writes, so that readers see all of it or nothing.
    pub(crate) fn write<T>(self, write: impl FnOnce() -> T) -> T {
        self.write_at(ANYWHERE, write)
    }

    /// As [`write`](Self::write), only at `place`.
    pub(crate) fn write_at<T>(self, place: u64, write: impl FnOnce() -> T) -> T {
        let _closed = self.gate.close();
        let guard = self.journal.write(place);
        let written = write();
        guard.commit();
        written
    }

    /// The counter.
    #[inline(always)]
    pub(crate) fn sequence(self) -> &'a Sequence {
        self.journal.sequence()
    }
}

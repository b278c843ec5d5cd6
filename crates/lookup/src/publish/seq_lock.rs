//! Readers beside the writer of memory that is changed in place: they read again while they meet it, and wait in the end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ANYWHERE, Journal, Sequence};

/// Reads that met the writer before a reader waits for the end of its update.
const SPINS: u32 = 16;

/// The lock on which a reader waits that met the writer too often. The writer holds it during an update.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<()>);

impl Gate {
    /// What `attempt` finds, which finds nothing where it meets the writer; or, when that happened too often, the closed
    /// gate, behind which nobody writes.
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

    /// Keeps the writer, and readers that met it too often, from passing until the result is dropped.
    pub(crate) fn close(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counter round every write, and the lock behind it.
#[derive(Debug, Default)]
pub(crate) struct SeqLock {
    // On a cache line of its own: what the lock's holder writes is nothing that readers poll.
    journal: Journal,
    gate: Gate,
}

impl SeqLock {
    /// What `read` finds while nobody writes; it is repeated until that was so. It must bear with what is half written.
    #[inline(always)]
    pub(crate) fn read<T>(&self, mut read: impl FnMut() -> T) -> T {
        let attempt = || {
            let stamp = self.sequence().read_begin()?;
            let found = read();
            self.sequence().read_validate(stamp).then_some(found)
        };
        self.gate.retry(attempt).unwrap_or_else(|_closed| read())
    }

    /// For readers of many places: what tells them which of these the writer wrote meanwhile.
    #[inline(always)]
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Writes, so that readers see all of it or nothing.
    pub(crate) fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        self.write_at(ANYWHERE, write)
    }

    /// As [`write`](Self::write), at one place and nowhere else.
    pub(crate) fn write_at<T>(&self, place: u64, write: impl FnOnce() -> T) -> T {
        let _closed = self.gate.close();
        let guard = self.journal.write(place);
        let written = write();
        guard.commit();
        written
    }

    /// The counter.
    #[inline(always)]
    pub(crate) fn sequence(&self) -> &Sequence {
        self.journal.sequence()
    }
}

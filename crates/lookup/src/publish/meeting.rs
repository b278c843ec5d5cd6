//! Readers and a writer of a structure that is changed in place and read at several places.

use std::sync::{Mutex, PoisonError};

use super::{ANYWHERE, Journal, Sequence};

/// Reads that met the writer before a reader lines up behind it.
const SPINS: u32 = 16;

/// A counter round every write, and the lock behind which readers line up that met the writer too often.
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    // On a cache line of its own: what the lock's holder writes is nothing that readers poll.
    journal: Journal,
    gate: Mutex<()>,
}

impl Meeting {
    /// What `read` finds while nobody writes; it is repeated until that was so. It must bear with what is half written.
    #[inline(always)]
    pub(crate) fn read<T>(&self, mut read: impl FnMut() -> T) -> T {
        for _ in 0..SPINS {
            if let Some(stamp) = self.sequence().read_begin() {
                let found = read();
                if self.sequence().read_validate(stamp) {
                    return found;
                }
            }
            std::hint::spin_loop();
        }
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        read()
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
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
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

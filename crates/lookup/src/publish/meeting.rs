//! Readers and a writer of a structure that is changed in place and read at several places.

use std::sync::{Mutex, PoisonError};

use super::{Sequence, Stamp};

/// Reads that met the writer before a reader lines up behind it.
const SPINS: u32 = 16;

/// A counter round every write, and the lock behind which readers line up that met the writer too often.
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    sequence: Sequence,
    gate: Mutex<()>,
}

impl Meeting {
    /// What `read` finds while nobody writes; it is repeated until that was so. It must bear with what is half written.
    #[inline(always)]
    pub(crate) fn read<T>(&self, mut read: impl FnMut() -> T) -> T {
        for _ in 0..SPINS {
            if let Some(stamp) = self.sequence.read_begin() {
                let found = read();
                if self.sequence.read_validate(stamp) {
                    return found;
                }
            }
            std::hint::spin_loop();
        }
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        read()
    }

    /// Begins to read, or `None` while a write is under way.
    #[inline(always)]
    pub(crate) fn begin(&self) -> Option<Stamp> {
        self.sequence.read_begin()
    }

    /// Whether nothing was written since.
    #[inline(always)]
    pub(crate) fn is_unchanged(&self, stamp: Stamp) -> bool {
        self.sequence.read_validate(stamp)
    }

    /// Writes, so that readers see all of it or nothing.
    pub(crate) fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = self.sequence.write();
        let written = write();
        guard.commit();
        written
    }

    /// The counter, for schedules of a test.
    #[cfg(test)]
    pub(crate) fn sequence(&self) -> &Sequence {
        &self.sequence
    }
}

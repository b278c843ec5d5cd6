//! The limit of a replica's memory, how near its tables are to it, and how much of them came whole.

use super::{Replica, ReplicaError, Tables};

impl<T: Tables> Replica<T> {
    /// Parts of the FIB that came whole since the start: those that the controller made anew, those whose values changed, and
    /// those that were asked for.
    pub fn parts_received(&self) -> u64 {
        self.parts_before + self.fib.as_ref().map_or(0, |fib| fib.parts_received())
    }

    /// Bytes of the FIB that is served.
    fn fib_bytes(&self) -> usize {
        self.fib.as_ref().map_or(0, |fib| fib.size_bits().div_ceil(8) as usize)
    }

    /// Bytes that a table may have, apart from others.
    pub(super) fn room(&self, others: usize) -> usize {
        self.limits.max_table_bytes.saturating_sub(others)
    }

    /// The most bytes that the FIB can have: those of the last count, and of all updates since. Counting takes a step for
    /// each part, so it is done anew only where tables fill half of what they may have.
    pub(super) fn fib_at_most(&mut self) -> usize {
        let others = self.valid.bytes + self.local.bytes;
        let few = |most: &usize| most.saturating_add(others) <= self.limits.max_table_bytes / 2;
        let most = self.fib_most.filter(few).unwrap_or_else(|| self.fib_bytes());
        self.fib_most = Some(most);
        most
    }

    /// Whether updates with this many bytes may be applied: the FIB grows by less than they have.
    pub(super) fn check_growth(&mut self, len: usize) -> Result<(), ReplicaError> {
        let got = self.fib_at_most() + len;
        let max = self.room(self.valid.bytes + self.local.bytes);
        if got > max {
            return Err(ReplicaError::TooLarge { got, max });
        }
        self.fib_most = Some(got);
        Ok(())
    }
}

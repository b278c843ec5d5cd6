//! The bursts that a reader has in flight: begun, and not yet finished.

/// Bursts that a batch lookup begins before it finishes the first. With two, the processor always has requests for
/// memory under way. More gain little.
pub const AHEAD: usize = 2;
/// The most bursts that a reader has in flight.
pub const IN_FLIGHT: usize = 4;

/// A record for each burst in flight, oldest first.
#[derive(Debug)]
pub struct Ring<T> {
    slots: [T; IN_FLIGHT],
    oldest: usize,
    len: usize,
}

impl<T> Ring<T> {
    /// No burst in flight. The slots are reused; `slot` makes them.
    pub fn new(slot: impl FnMut(usize) -> T) -> Self {
        Self { slots: std::array::from_fn(slot), oldest: 0, len: 0 }
    }

    /// Whether no burst is in flight.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a burst. Its slot holds what an earlier burst left there.
    /// # Panics
    /// When [`IN_FLIGHT`] bursts are in flight.
    #[inline]
    pub fn push(&mut self) -> &mut T {
        assert!(self.len < IN_FLIGHT, "at most {IN_FLIGHT} bursts are in flight: finish one first");
        self.len += 1;
        &mut self.slots[(self.oldest + self.len - 1) % IN_FLIGHT]
    }

    /// Removes the oldest burst.
    /// # Panics
    /// When none is in flight.
    #[inline]
    pub fn pop(&mut self) -> &mut T {
        assert!(self.len > 0, "no burst is in flight: begin one first");
        let slot = self.oldest;
        self.oldest = (self.oldest + 1) % IN_FLIGHT;
        self.len -= 1;
        &mut self.slots[slot]
    }

    /// The oldest burst.
    #[inline]
    pub fn oldest(&self) -> Option<&T> {
        (self.len > 0).then(|| &self.slots[self.oldest])
    }

    /// Gives up all bursts.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

//! Sets of up to 32 frames or names of a burst, and of up to 256 ports of a worker, with one bit each.

pub(crate) use lookup::base::bits::{first, ones};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A set of ports, by their indices in a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortSet([u64; 4]);

impl PortSet {
    /// Adds a port.
    #[inline]
    pub fn insert(&mut self, index: u8) {
        self.0[usize::from(index >> 6)] |= 1 << (index & 63);
    }

    /// Removes a port.
    #[inline]
    pub fn remove(&mut self, index: u8) {
        self.0[usize::from(index >> 6)] &= !(1 << (index & 63));
    }

    /// Whether a port is in the set.
    #[inline]
    pub fn contains(&self, index: u8) -> bool {
        self.0[usize::from(index >> 6)] >> (index & 63) & 1 != 0
    }

    /// Removes the first port and returns it.
    #[inline]
    pub fn pop(&mut self) -> Option<u8> {
        let (at, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let index = 64 * at + word.trailing_zeros() as usize;
        *word &= *word - 1;
        Some(index as u8)
    }
}

/// Ports, by their indices in a worker, that workers note and one reader takes.
#[derive(Debug, Default)]
pub(crate) struct NotedPorts([AtomicU64; 4]);

impl NotedPorts {
    /// Notes a port. For a port that is noted already, this costs a load of an unmodified word.
    #[inline]
    pub(crate) fn note(&self, index: u8) {
        let (word, bit) = (&self.0[usize::from(index >> 6)], 1 << (index & 63));
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// The ports that were noted since the last call, in order.
    pub(crate) fn take(&self) -> impl Iterator<Item = u8> + use<> {
        let mut ports = PortSet(self.0.each_ref().map(|word| word.swap(0, Relaxed)));
        std::iter::from_fn(move || ports.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_leave_a_set_in_order_and_once() {
        let mut set = PortSet::default();
        for index in [255, 64, 3, 64, 0, 63, 200] {
            set.insert(index);
        }
        set.remove(200);
        assert!(set.contains(64) && !set.contains(65));
        assert_eq!(std::iter::from_fn(|| set.pop()).collect::<Vec<_>>(), [0, 3, 63, 64, 255]);
        assert!(!set.contains(64));
    }

    #[test]
    fn ports_that_were_noted_are_taken_once() {
        let noted = NotedPorts::default();
        [200, 3, 64, 3].into_iter().for_each(|index| noted.note(index));
        assert_eq!(noted.take().collect::<Vec<_>>(), [3, 64, 200]);
        assert_eq!(noted.take().count(), 0);
    }
}

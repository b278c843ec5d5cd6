//! Memory on huge pages if available, like the tables', for arrays that stand in for a structure's cells.

#![expect(unsafe_code, reason = "shows owned memory as bytes")]

use std::ops::{Deref, DerefMut};

use lookup::base::arena::Zeroed;

/// A fixed array of bytes, initially 0, that starts on a page boundary.
pub(crate) struct Pages {
    memory: Zeroed,
    len: usize,
}

impl Pages {
    /// `len` bytes, resident.
    pub(crate) fn zeroed(len: usize) -> Self {
        let mut memory = Zeroed::new(len.next_multiple_of(HUGE)).expect("an array of a bench fits the address space");
        memory.touch();
        Self { memory, len }
    }
}

/// Size of a huge page; shorter arrays also start on one.
const HUGE: usize = 2 << 20;

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: at least `len` initialised bytes, owned.
        unsafe { std::slice::from_raw_parts(self.memory.base(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_zeroed_and_writable() {
        let mut pages = Pages::zeroed(3 << 20);
        assert_eq!(pages.as_ptr() as usize % HUGE, 0);
        assert!(pages.iter().all(|&b| b == 0));
        pages[(3 << 20) - 1] = 7;
        assert_eq!(pages.last(), Some(&7));
    }
}

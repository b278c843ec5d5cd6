//! Memory on huge pages where the kernel gives them, for arrays that stand in for a structure's cells.

#![expect(unsafe_code, reason = "allocates with an alignment and advises the kernel")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Size and alignment of a huge page.
const HUGE: usize = 2 << 20;

/// A fixed array of bytes, initially 0, that starts on a huge page.
pub(crate) struct Pages {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: `Pages` owns its memory like a `Box<[u8]>` does.
unsafe impl Send for Pages {}
// SAFETY: shared references only read.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` bytes. Huge pages are asked for before the first touch.
    pub(crate) fn zeroed(len: usize) -> Self {
        let size = len.max(1).next_multiple_of(HUGE);
        let layout = Layout::from_size_align(size, HUGE).expect("a size below isize::MAX");
        // SAFETY: the layout has a size above 0.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        #[cfg(target_os = "linux")]
        // SAFETY: the range is this allocation, whole pages of it; the advice changes no content.
        unsafe {
            libc::madvise(start.as_ptr().cast(), size, libc::MADV_HUGEPAGE);
        }
        // SAFETY: `size` bytes, owned. Zeroed here and not by the allocator, whose touch would fix the pages' size.
        unsafe { start.as_ptr().write_bytes(0, size) };
        #[cfg(target_os = "linux")]
        // SAFETY: as above. Where no huge page was at hand on the first touch, the kernel makes one now (Linux 6.1 on).
        unsafe {
            libc::madvise(start.as_ptr().cast(), size, libc::MADV_COLLAPSE);
        }
        Self { start, len, layout }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes, owned.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes, owned and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
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

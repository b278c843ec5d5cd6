//! The memory of a table: an array of buckets, and one of entries beside it.

#![expect(unsafe_code, reason = "shows zeroed lines as buckets and entries, and asks for lines ahead")]

use std::marker::PhantomData;

use super::bucket::{Bucket, SLOTS};
use crate::arena::{LINE, Zeroed};
use crate::othello::prefetch;

/// The memory of `n_buckets` buckets and their entries.
#[derive(Debug)]
pub(super) struct Slab<const K: usize, const V: usize> {
    buckets: Zeroed,
    entries: Zeroed,
    n_buckets: usize,
    _entries: PhantomData<Entry<K, V>>,
}

/// A key with its value; what stands in slot `i` of the table stands at index `i`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Entry<const K: usize, const V: usize> {
    pub(super) key: [u64; K],
    pub(super) value: [u64; V],
}

impl<const K: usize, const V: usize> Slab<K, V> {
    /// Bytes from entry to entry: no entry of up to a line straddles two, and a larger one starts a line.
    pub(super) const STRIDE: usize = {
        assert!(K > 0, "a flow has a key");
        let bytes = 8 * (K + V);
        if bytes <= LINE { bytes.next_power_of_two() } else { bytes.next_multiple_of(LINE) }
    };

    /// Room for so many buckets, all empty.
    pub(super) fn new(n_buckets: usize) -> std::io::Result<Self> {
        let buckets = Zeroed::new(n_buckets * size_of::<Bucket>())?;
        let entries = Zeroed::new(n_buckets * SLOTS * Self::STRIDE)?;
        Ok(Self { buckets, entries, n_buckets, _entries: PhantomData })
    }

    #[inline(always)]
    pub(super) fn buckets(&self) -> &[Bucket] {
        // SAFETY: so many buckets were allocated, at a line; zero is a bucket, and all are written as buckets only.
        unsafe { std::slice::from_raw_parts(self.buckets.base().cast(), self.n_buckets) }
    }

    /// A bucket that is there, without a check in release builds: its number is masked by the store. See `buckets` for the
    /// checked way.
    #[inline(always)]
    pub(super) fn bucket(&self, bucket: u32) -> &Bucket {
        debug_assert!((bucket as usize) < self.n_buckets);
        // SAFETY: as in `buckets`; the store asks for numbers below theirs only, which are a power of two.
        unsafe { &*self.buckets.base().cast::<Bucket>().add(bucket as usize) }
    }

    #[inline(always)]
    pub(super) fn bucket_mut(&mut self, bucket: u32) -> &mut Bucket {
        assert!((bucket as usize) < self.n_buckets);
        // SAFETY: as in `buckets`; the index is below their number, and `self` is borrowed mutably.
        unsafe { &mut *self.buckets.base().cast::<Bucket>().add(bucket as usize) }
    }

    #[inline(always)]
    fn address(&self, slot: u32) -> *mut Entry<K, V> {
        self.entries.base().wrapping_add(slot as usize * Self::STRIDE).cast()
    }

    #[inline(always)]
    pub(super) fn entry(&self, slot: u32) -> &Entry<K, V> {
        assert!((slot as usize) < self.n_buckets * SLOTS);
        // SAFETY: so many entries were allocated, a stride apart, which is at least an entry and a multiple of its
        // alignment; zero is an entry.
        unsafe { &*self.address(slot) }
    }

    #[inline(always)]
    pub(super) fn entry_mut(&mut self, slot: u32) -> &mut Entry<K, V> {
        assert!((slot as usize) < self.n_buckets * SLOTS);
        // SAFETY: as in `entry`, and `self` is borrowed mutably.
        unsafe { &mut *self.address(slot) }
    }

    #[inline(always)]
    pub(super) fn prefetch_bucket(&self, bucket: u32) {
        prefetch(self.buckets.base().wrapping_add(bucket as usize * size_of::<Bucket>()));
    }

    /// As [`prefetch_bucket`](Self::prefetch_bucket) if `holds`; if not, for `held`, a bucket that is at hand, rather than
    /// branch.
    #[inline(always)]
    pub(super) fn prefetch_bucket_if(&self, bucket: u32, holds: bool, held: u32) {
        self.prefetch_bucket(if holds { bucket } else { held });
    }

    /// Asks for all lines of the entry in `slot` if `holds`; if not, for the line of bucket `held`, which is at hand.
    #[inline(always)]
    pub(super) fn prefetch_entry_if(&self, slot: u32, holds: bool, held: u32) {
        let held = self.buckets.base().wrapping_add(held as usize * size_of::<Bucket>());
        for line in 0..Self::STRIDE.div_ceil(LINE) {
            let entry = self.address(slot).cast::<u8>().wrapping_add(line * LINE);
            prefetch(if holds { entry } else { held });
        }
    }

    pub(super) fn touch(&mut self) {
        self.buckets.touch();
        self.entries.touch();
    }

    /// Bytes reserved: buckets, then entries.
    pub(super) fn bytes(&self) -> [usize; 2] {
        [self.buckets.bytes(), self.entries.bytes()]
    }

    pub(super) fn huge_page_bytes(&self) -> Option<usize> {
        Some(self.buckets.huge_page_bytes()? + self.entries.huge_page_bytes()?)
    }
}

//! The layout for keys and values of any size: an array of lines of metadata, and a separate array of entries.

#![expect(unsafe_code, reason = "shows zeroed lines as buckets and entries, and asks for lines ahead")]

use std::marker::PhantomData;

use super::bucket::{Bucket, Line};
use super::layout::Memory;
use super::policy::Policy;
use crate::base::arena::{LINE, Zeroed};
use crate::base::prefetch::prefetch;
use crate::hash::{Digest, Hasher};

const SLOTS: usize = <Bucket as Line>::SLOTS;

/// Keys of `K` words and values of `V` words, separate from the metadata: see [`FlowTable`](super::FlowTable).
#[derive(Debug)]
pub struct Split<const K: usize, const V: usize> {
    buckets: Zeroed,
    entries: Zeroed,
    n_buckets: usize,
    _entries: PhantomData<Entry<K, V>>,
}

/// A key with its value; slot `i` of the table is at index `i`.
#[repr(C)]
#[derive(Debug)]
struct Entry<const K: usize, const V: usize> {
    key: [u64; K],
    value: [u64; V],
}

impl<const K: usize, const V: usize> Split<K, V> {
    /// Bytes between entries: no entry of up to a line crosses a line boundary, and a larger one starts a line.
    const STRIDE: usize = {
        assert!(K > 0, "a flow has a key");
        let bytes = 8 * (K + V);
        if bytes <= LINE { bytes.next_power_of_two() } else { bytes.next_multiple_of(LINE) }
    };

    #[inline(always)]
    fn address(&self, slot: u32) -> *mut Entry<K, V> {
        self.entries.base().wrapping_add(slot as usize * Self::STRIDE).cast()
    }

    #[inline(always)]
    fn entry_mut(&mut self, slot: u32) -> &mut Entry<K, V> {
        assert!((slot as usize) < self.n_buckets * SLOTS);
        // SAFETY: as in `entry`, and `self` is borrowed mutably.
        unsafe { &mut *self.address(slot) }
    }
}

impl<const K: usize, const V: usize> Memory for Split<K, V> {
    type Key = [u64; K];
    type Value = [u64; V];
    type Line = Bucket;

    fn new(n_buckets: usize, _hasher: &Hasher) -> std::io::Result<Self> {
        let buckets = Zeroed::new(n_buckets * size_of::<Bucket>())?;
        let entries = Zeroed::new(n_buckets * SLOTS * Self::STRIDE)?;
        Ok(Self { buckets, entries, n_buckets, _entries: PhantomData })
    }

    #[inline]
    fn digest(hasher: &Hasher, key: &[u64; K]) -> Digest {
        hasher.digest_key(key)
    }

    #[inline]
    fn digests(hasher: &Hasher, keys: &[[u64; K]], out: &mut [Digest]) {
        hasher.digest_keys(keys, out);
    }

    #[inline(always)]
    fn lines(&self) -> &[Bucket] {
        // SAFETY: this many buckets were allocated, at a line; zero is a bucket, and all are written as buckets only.
        unsafe { std::slice::from_raw_parts(self.buckets.base().cast(), self.n_buckets) }
    }

    #[inline(always)]
    fn line(&self, bucket: u32) -> &Bucket {
        debug_assert!((bucket as usize) < self.n_buckets);
        // SAFETY: as in `lines`; the store asks for numbers below theirs only, which are a power of two.
        unsafe { &*self.buckets.base().cast::<Bucket>().add(bucket as usize) }
    }

    #[inline(always)]
    fn line_mut(&mut self, bucket: u32) -> &mut Bucket {
        assert!((bucket as usize) < self.n_buckets);
        // SAFETY: as in `lines`; the index is below their number, and `self` is borrowed mutably.
        unsafe { &mut *self.buckets.base().cast::<Bucket>().add(bucket as usize) }
    }

    #[inline(always)]
    fn matches<P: Policy>(&self, bucket: u32, _key: &[u64; K], tag: u16, now: u16) -> u8 {
        self.line(bucket).matches::<P>(tag, now)
    }

    #[inline(always)]
    fn tag(&self, slot: u32) -> u16 {
        self.lines()[slot as usize / SLOTS].tag(slot as usize % SLOTS)
    }

    #[inline(always)]
    fn entry(&self, slot: u32) -> (&[u64; K], &[u64; V]) {
        assert!((slot as usize) < self.n_buckets * SLOTS);
        // SAFETY: this many entries were allocated, a stride apart, which is at least an entry and a multiple of its
        // alignment; zero is an entry.
        let entry = unsafe { &*self.address(slot) };
        (&entry.key, &entry.value)
    }

    #[inline(always)]
    fn value_mut(&mut self, slot: u32) -> &mut [u64; V] {
        &mut self.entry_mut(slot).value
    }

    #[inline(always)]
    fn write(&mut self, slot: u32, key: &[u64; K], value: &[u64; V]) {
        let entry = self.entry_mut(slot);
        (entry.key, entry.value) = (*key, *value);
    }

    #[inline(always)]
    fn prefetch_line(&self, bucket: u32) {
        prefetch(self.buckets.base().wrapping_add(bucket as usize * size_of::<Bucket>()));
    }

    #[inline(always)]
    fn prefetch_entry_if(&self, slot: u32, holds: bool, held: u32) {
        let held = self.buckets.base().wrapping_add(held as usize * size_of::<Bucket>());
        for line in 0..Self::STRIDE.div_ceil(LINE) {
            let entry = self.address(slot).cast::<u8>().wrapping_add(line * LINE);
            prefetch(if holds { entry } else { held });
        }
    }

    fn touch(&mut self) {
        self.buckets.touch();
        self.entries.touch();
    }

    fn bytes(&self) -> [usize; 2] {
        [self.buckets.bytes(), self.entries.bytes()]
    }

    fn reserved_page_bytes(&self) -> usize {
        self.buckets.reserved_page_bytes() + self.entries.reserved_page_bytes()
    }

    fn huge_page_bytes(&self) -> Option<usize> {
        Some(self.buckets.huge_page_bytes()? + self.entries.huge_page_bytes()?)
    }
}

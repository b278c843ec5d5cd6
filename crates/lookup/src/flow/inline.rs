//! The layout for keys and values of up to 8 bytes together: entries are in the lines, so a hit also reads only one
//! line, and a slot costs 12.8 bytes.
//!
//! ```text
//! | entries 5 x (key, value; 64) | ends 5 x 16 | occupied 5, secondary 5, moved 6 | hint 32 | counts 2 x 32 |
//! ```
//! Keys are compared whole, so no tags are kept: the first bucket of an entry in its second one follows from the digest
//! of its key, which only moves and removals need. Source: Le Scouarnec, Figure 1a. Differs: also has timers and a
//! counted filter. Limits: no remap array of Horton; at most 63 entries of a bucket live elsewhere.

#![expect(unsafe_code, reason = "shows zeroed lines as buckets, and asks for lines ahead")]

use super::bucket::{Books, Line};
use super::layout::Memory;
use super::policy::Policy;
use super::simd;
use crate::base::arena::Zeroed;
use crate::base::prefetch::prefetch;
use crate::hash::{Digest, Hasher};

/// Slots per line: with timers and the filter they fill it.
const SLOTS: usize = 5;
/// Where the ends start, as 16-bit words of the line; the masks follow.
const ENDS: usize = 4 * SLOTS;
const MASKS: usize = ENDS + SLOTS;
/// Where the filter starts, as 32-bit words of the line.
const FILTER: usize = 13;
/// Bits of the masks: one per slot.
const SLOT_BITS: u16 = (1 << SLOTS) - 1;

/// Keys of `K` and values of `V` bytes, at most 8 together, in the lines: see [`InlineTable`](super::InlineTable).
#[derive(Debug)]
pub struct Inline<const K: usize, const V: usize> {
    lines: Zeroed,
    n_buckets: usize,
    hasher: Hasher,
}

impl<const K: usize, const V: usize> Inline<K, V> {
    const FITS: () = assert!(K > 0 && K + V <= 8, "key and value fit 8 bytes together");

    /// A key as stored in an entry whose other bytes are zero.
    #[inline(always)]
    fn word(key: &[u8; K]) -> u64 {
        let mut bytes = [0; 8];
        bytes[..K].copy_from_slice(key);
        u64::from_ne_bytes(bytes)
    }

    #[inline(always)]
    fn entry_mut(&mut self, slot: u32) -> &mut [u8; 8] {
        &mut self.line_mut(slot / SLOTS as u32).entries_mut()[slot as usize % SLOTS]
    }
}

/// A bucket with its entries.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default, Debug)]
pub struct InlineBucket([u64; 8]);

impl InlineBucket {
    #[inline(always)]
    fn entries(&self) -> &[[u8; 8]; 8] {
        bytemuck::cast_ref(&self.0)
    }

    #[inline(always)]
    fn entries_mut(&mut self) -> &mut [[u8; 8]; 8] {
        bytemuck::cast_mut(&mut self.0)
    }

    #[inline(always)]
    fn halves(&self) -> &[u16; 32] {
        bytemuck::cast_ref(&self.0)
    }

    #[inline(always)]
    fn halves_mut(&mut self) -> &mut [u16; 32] {
        bytemuck::cast_mut(&mut self.0)
    }
}

impl Line for InlineBucket {
    const SLOTS: usize = SLOTS;
    const FILTER_BITS: u32 = 32;
    const MAX_MOVED: u8 = 63;
    const HAS_FUNCTIONS: bool = false;

    #[inline(always)]
    fn occupied(&self) -> u8 {
        (self.halves()[MASKS] & SLOT_BITS) as u8
    }

    #[inline(always)]
    fn secondary(&self) -> u8 {
        (self.halves()[MASKS] >> SLOTS & SLOT_BITS) as u8
    }

    #[inline(always)]
    fn set_slots(&mut self, occupied: u8, secondary: u8) {
        let masks = &mut self.halves_mut()[MASKS];
        *masks = *masks >> (2 * SLOTS) << (2 * SLOTS) | u16::from(secondary) << SLOTS | u16::from(occupied);
    }

    #[inline(always)]
    fn moved(&self) -> u8 {
        (self.halves()[MASKS] >> (2 * SLOTS)) as u8
    }

    #[inline(always)]
    fn set_moved(&mut self, moved: u8) {
        debug_assert!(moved <= Self::MAX_MOVED);
        let masks = &mut self.halves_mut()[MASKS];
        *masks = *masks & ((1 << (2 * SLOTS)) - 1) | u16::from(moved) << (2 * SLOTS);
    }

    #[inline(always)]
    fn books(&self) -> Books {
        let words: &[u32; 16] = bytemuck::cast_ref(&self.0);
        Books { hint: words[FILTER].into(), counts: [words[FILTER + 1].into(), words[FILTER + 2].into()] }
    }

    #[inline(always)]
    fn set_books(&mut self, books: Books) {
        let words: &mut [u32; 16] = bytemuck::cast_mut(&mut self.0);
        [words[FILTER], words[FILTER + 1], words[FILTER + 2]] =
            [books.hint as u32, books.counts[0] as u32, books.counts[1] as u32];
    }

    #[inline(always)]
    fn end(&self, slot: usize) -> u16 {
        self.halves()[ENDS + slot]
    }

    #[inline(always)]
    fn set_end(&mut self, slot: usize, end: u16) {
        self.halves_mut()[ENDS + slot] = end;
    }

    #[inline(always)]
    fn set_tag(&mut self, _slot: usize, _tag: u16) {}

    #[inline(always)]
    fn running(&self, now: u16) -> u8 {
        simd::running(self.halves()[ENDS..].first_chunk().expect("eight halves from the ends on"), now)
    }

    #[inline(always)]
    fn functions(&self) -> u32 {
        0
    }

    #[inline(always)]
    fn set_functions(&mut self, _functions: u32) {}
}

impl<const K: usize, const V: usize> Memory for Inline<K, V> {
    type Key = [u8; K];
    type Value = [u8; V];
    type Line = InlineBucket;

    fn new(n_buckets: usize, hasher: &Hasher) -> std::io::Result<Self> {
        let () = Self::FITS;
        Ok(Self { lines: Zeroed::new(n_buckets * size_of::<InlineBucket>())?, n_buckets, hasher: hasher.clone() })
    }

    #[inline]
    fn digest(hasher: &Hasher, key: &[u8; K]) -> Digest {
        hasher.digest_word(u64::from_le_bytes(Self::word(key).to_ne_bytes()), K)
    }

    fn digests(hasher: &Hasher, keys: &[[u8; K]], out: &mut [Digest]) {
        assert_eq!(keys.len(), out.len(), "one digest a key");
        let mut words = [0; 32];
        for (keys, out) in keys.chunks(words.len()).zip(out.chunks_mut(words.len())) {
            let words = &mut words[..keys.len()];
            for (word, key) in words.iter_mut().zip(keys) {
                *word = u64::from_le_bytes(Self::word(key).to_ne_bytes());
            }
            hasher.digest_words(words, K, out);
        }
    }

    #[inline(always)]
    fn lines(&self) -> &[InlineBucket] {
        // SAFETY: this many lines were allocated, aligned; zero is a bucket, and all are written as buckets only.
        unsafe { std::slice::from_raw_parts(self.lines.base().cast(), self.n_buckets) }
    }

    #[inline(always)]
    fn line(&self, bucket: u32) -> &InlineBucket {
        debug_assert!((bucket as usize) < self.n_buckets);
        // SAFETY: as in `lines`; the store asks for numbers below theirs only, which are a power of two.
        unsafe { &*self.lines.base().cast::<InlineBucket>().add(bucket as usize) }
    }

    #[inline(always)]
    fn line_mut(&mut self, bucket: u32) -> &mut InlineBucket {
        assert!((bucket as usize) < self.n_buckets);
        // SAFETY: as in `lines`; the index is below their number, and `self` is borrowed mutably.
        unsafe { &mut *self.lines.base().cast::<InlineBucket>().add(bucket as usize) }
    }

    #[inline(always)]
    fn matches<P: Policy>(&self, bucket: u32, key: &[u8; K], _tag: u16, now: u16) -> u8 {
        let line = self.line(bucket);
        let words = line.0.first_chunk().expect("a line has more words");
        simd::equal_words(words, Self::word(key), Self::word(&[u8::MAX; K])) & line.live::<P>(now)
    }

    fn tag(&self, slot: u32) -> u16 {
        Self::digest(&self.hasher, self.key(slot)).0 as u16
    }

    #[inline(always)]
    fn entry(&self, slot: u32) -> (&[u8; K], &[u8; V]) {
        let entry = &self.lines()[slot as usize / SLOTS].entries()[slot as usize % SLOTS];
        let key = entry.first_chunk().expect("a key fits an entry");
        (key, entry[K..].first_chunk().expect("key and value fit an entry"))
    }

    #[inline(always)]
    fn value_mut(&mut self, slot: u32) -> &mut [u8; V] {
        self.entry_mut(slot)[K..].first_chunk_mut().expect("key and value fit an entry")
    }

    #[inline(always)]
    fn write(&mut self, slot: u32, key: &[u8; K], value: &[u8; V]) {
        let entry = self.entry_mut(slot);
        entry[..K].copy_from_slice(key);
        entry[K..K + V].copy_from_slice(value);
    }

    #[inline(always)]
    fn prefetch_line(&self, bucket: u32) {
        prefetch(self.lines.base().wrapping_add(bucket as usize * size_of::<InlineBucket>()));
    }

    #[inline(always)]
    fn prefetch_entry_if(&self, _slot: u32, _holds: bool, _held: u32) {}

    fn touch(&mut self) {
        self.lines.touch();
    }

    fn bytes(&self) -> [usize; 2] {
        [self.lines.bytes(), 0]
    }

    fn reserved_page_bytes(&self) -> usize {
        self.lines.reserved_page_bytes()
    }

    fn huge_page_bytes(&self) -> Option<usize> {
        self.lines.huge_page_bytes()
    }
}

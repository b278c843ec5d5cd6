//! One version of a (2,4)-Cuckoo table as words: the lookup loops, and the concurrent writes.
//!
//! ```text
//! 1. digest[i]              of the name, four at a time
//! 2. a, b = buckets(mix(digest ^ tweak))       prefetch both
//! 3. value[i] = OR over the 8 slots of (slot's name == name ? slot's value : 0), under the counters of a and b
//! ```
//! At most one slot holds a name, or two with the same contents during a move, so OR selects the value.

use std::hint::select_unpredictable;
use std::sync::atomic::Ordering;

use super::update::TableImage;
use super::{Layout, MAX_SLOT_WORDS};
use crate::base::atomic_words::AtomicWords;
use crate::base::prefetch::{BURST, prefetch};
use crate::base::touches::{Region, Touch};
use crate::cuckoo::{MAX_BUCKETS, SLOTS, Stripes, buckets_of, slot_prf};
use crate::hash::{Digest, mix64};
use crate::traits::ApplyError;

/// Words per cache line.
const LINE_WORDS: usize = crate::base::arena::LINE / 8;

/// The buckets of the names of a burst.
pub(crate) type Burst = [[u32; 2]; BURST];

/// Slots, counters, and how to find them. Knows digests, not how names are hashed.
pub(crate) struct Table<const W: usize> {
    words: AtomicWords,
    n_buckets: u32,
    tweak: u64,
    layout: Layout,
    stripes: Stripes,
}

impl<const W: usize> Table<W> {
    /// # Errors
    /// [`ApplyError`]: the image is malformed, or memory ran out. The caller checks its digest.
    pub(crate) fn new(image: &TableImage, layout: Layout) -> Result<Self, ApplyError> {
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        if image.n_buckets == 0 || image.n_buckets > MAX_BUCKETS {
            return malformed("a table has 1 to 2^28 buckets");
        }
        if image.words.len() != image.n_buckets as usize * SLOTS * layout.slot_words {
            return malformed("the words of a table are not those of its buckets");
        }
        if !image.words.chunks_exact(layout.slot_words).all(|slot| layout.is_slot::<W>(slot)) {
            return malformed("a slot has bits between name and value");
        }
        let (n_buckets, tweak) = (image.n_buckets, image.tweak);
        Ok(Self {
            words: AtomicWords::filled(&image.words)?,
            n_buckets,
            tweak,
            layout,
            stripes: Stripes::new(n_buckets),
        })
    }

    pub(crate) fn image(&self, version: u64, digest: u64) -> TableImage {
        TableImage { version, digest, tweak: self.tweak, n_buckets: self.n_buckets, words: self.words.to_vec() }
    }

    pub(crate) fn n_slots(&self) -> usize {
        self.n_buckets as usize * SLOTS
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.words.len() * 8 + self.stripes.counters.len() * 8
    }

    pub(crate) fn huge_page_bytes(&self) -> Option<usize> {
        self.words.huge_page_bytes()
    }

    /// The words as bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> (*mut u8, usize) {
        (self.words.as_ptr().cast_mut().cast(), self.words.len() * 8)
    }

    /// The digest contribution of a slot as it is.
    pub(crate) fn prf(&self, seed: u64, slot: u32) -> u64 {
        let at = slot as usize * self.layout.slot_words;
        let mut words = [0; MAX_SLOT_WORDS];
        for (to, from) in words.iter_mut().zip(&self.words[at..at + self.layout.slot_words]) {
            *to = from.load(Ordering::Relaxed);
        }
        slot_prf(seed, slot, &words[..self.layout.slot_words])
    }

    /// Writes one slot; readers see it whole or not at all. Called by the one writer only.
    pub(crate) fn write(&self, slot: u32, contents: &[u64]) {
        let at = slot as usize * self.layout.slot_words;
        let guard = self.stripes.of(slot / SLOTS as u32).write();
        for (to, &from) in self.words[at..at + self.layout.slot_words].iter().zip(contents) {
            to.store(from, Ordering::Relaxed);
        }
        guard.commit();
    }

    /// Makes readers that keep meeting the writer wait for the end of an update.
    pub(crate) fn close(&self) -> std::sync::MutexGuard<'_, ()> {
        self.stripes.close()
    }

    #[inline(always)]
    pub(crate) fn buckets(&self, digest: Digest) -> [u32; 2] {
        buckets_of(mix64(digest.0 ^ self.tweak), self.n_buckets)
    }

    /// The words of a bucket: the first, and their number.
    #[inline(always)]
    fn place(slot_words: usize, bucket: u32) -> (usize, usize) {
        let bucket_words = SLOTS * slot_words;
        (bucket as usize * bucket_words, bucket_words)
    }

    /// Reports to `touch` what a search of `bucket` reads.
    pub(crate) fn touches(&self, bucket: u32, stage: u8, touch: &mut dyn FnMut(Touch)) {
        touch(Touch { region: Region::Counters, offset: self.stripes.index(bucket) * 8, bytes: 8, stage });
        let (first, n_words) = Self::place(self.layout.slot_words, bucket);
        touch(Touch { region: Region::Words, offset: first * 8, bytes: n_words * 8, stage });
    }

    /// Whether `bucket` holds `name`.
    pub(crate) fn holds(&self, name: &[u64; W], bucket: u32) -> bool {
        let (first, n_words) = Self::place(self.layout.slot_words, bucket);
        self.words[first..][..n_words].chunks_exact(self.layout.slot_words).any(|slot| {
            let last = slot[W - 1].load(Ordering::Relaxed) & self.layout.name_mask;
            let before = slot[..W - 1].iter().zip(name).all(|(word, &of_name)| word.load(Ordering::Relaxed) == of_name);
            before && last == name[W - 1]
        })
    }

    /// Starts fetching both buckets.
    #[inline(always)]
    pub(crate) fn prefetch(&self, buckets: [u32; 2]) {
        let bucket_words = SLOTS * self.layout.slot_words;
        let [a, b] = buckets.map(|bucket| {
            let (first, _) = Self::place(self.layout.slot_words, bucket);
            self.words.as_ptr().wrapping_add(first)
        });
        prefetch(a.cast());
        prefetch(b.cast());
        if bucket_words > LINE_WORDS {
            // Buckets of 12 words, for example, begin in the middle of a line: also fetch the line of the last word.
            for start in [a, b] {
                for word in (LINE_WORDS..bucket_words).step_by(LINE_WORDS).chain([bucket_words - 1]) {
                    prefetch(start.wrapping_add(word).cast());
                }
            }
        }
    }

    #[inline]
    pub(crate) fn lookup(&self, name: &[u64; W], buckets: [u32; 2]) -> u64 {
        if self.layout.together::<W>() {
            self.lookup_in::<true>(name, buckets)
        } else {
            self.lookup_in::<false>(name, buckets)
        }
    }

    #[inline(always)]
    fn lookup_in<const TOGETHER: bool>(&self, name: &[u64; W], buckets: [u32; 2]) -> u64 {
        self.stripes.at_one_moment(buckets, || {
            self.scan::<TOGETHER>(name, buckets[0]) | self.scan::<TOGETHER>(name, buckets[1])
        })
    }

    #[inline(always)]
    fn scan<const TOGETHER: bool>(&self, name: &[u64; W], bucket: u32) -> u64 {
        let slot_words = if TOGETHER { W } else { W + 1 };
        let (first, n_words) = Self::place(slot_words, bucket);
        let words = &self.words[first..][..n_words];
        let mut value = 0;
        for slot in words.chunks_exact(slot_words) {
            let last = slot[W - 1].load(Ordering::Relaxed);
            let mask = if TOGETHER { self.layout.name_mask } else { u64::MAX };
            let mut differs = last & mask ^ name[W - 1];
            for (word, of_name) in slot[..W - 1].iter().zip(name) {
                differs |= word.load(Ordering::Relaxed) ^ of_name;
            }
            let holder = if TOGETHER { last } else { slot[W].load(Ordering::Relaxed) };
            value |= select_unpredictable(differs == 0, holder >> self.layout.value_shift, 0);
        }
        value
    }

    /// Finds the buckets of a burst of names, and starts fetching them.
    #[inline(always)]
    pub(crate) fn begin(&self, digests: &[Digest], burst: &mut Burst) {
        for (&digest, buckets) in digests.iter().zip(burst) {
            *buckets = self.buckets(digest);
            // Both buckets are read, whichever holds the name. They come while those of the whole burst are on their way.
            self.prefetch(*buckets);
        }
    }

    /// The values of a burst that was begun.
    #[inline(always)]
    pub(crate) fn finish(&self, names: &[[u64; W]], burst: &Burst, values: &mut [u64]) {
        if self.layout.together::<W>() {
            for ((name, value), &buckets) in names.iter().zip(values).zip(burst) {
                *value = self.lookup_in::<true>(name, buckets);
            }
        } else {
            for ((name, value), &buckets) in names.iter().zip(values).zip(burst) {
                *value = self.lookup_in::<false>(name, buckets);
            }
        }
    }
}

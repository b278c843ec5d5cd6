//! One version of a Cuckoo Filtable as words: the lookup loops, and the concurrent writes.
//!
//! ```text
//! 1. a, b, f = spots(mix(digest ^ tweak))                  prefetch both words
//! 2. slots whose fingerprint is f and whose value is not 0, all four of a word at once; the value of the first
//! 3. for names without a hit: prefetch their buckets of level 2
//! 4. for names without a hit: both levels again, under the counters of a and b
//! ```
//! A hit needs no counter: at any moment at most one live name matches the slot, and a bucket's word is loaded whole. A
//! miss may be a name that moved, within level 1 or from level 2, so a miss is answered only from a consistent view of
//! both buckets. A bucket's word is stored with Release and loaded with Acquire, so that a reader that sees a name gone
//! from level 1 finds it in level 2.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls the loops that are compiled for another processor")
)]

#[cfg(target_arch = "x86_64")]
use crate::base::processor::{Kernel, Vectors};
use std::hint::select_unpredictable;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use super::update::Image;
use super::{Format, Settings, Spots};
use crate::base::atomic_words::AtomicWords;
use crate::base::prefetch::{BURST, in_bursts, prefetch};
use crate::cuckoo::exact::table::Table as Second;
use crate::cuckoo::{MAX_BUCKETS, SLOTS, Stripes, slot_prf};
use crate::hash::Digest;
use crate::traits::ApplyError;

/// Both levels of one version.
pub(super) struct Tables {
    first: AtomicWords,
    n_buckets: u32,
    tweak: u64,
    format: Format,
    stripes: Stripes,
    pub(super) second: Second<1>,
}

/// The places of the names of a burst in level 1.
pub(super) type Burst = [Spots; BURST];

/// Masks of the fields of all slots of a word, for comparing them at once.
#[derive(Clone, Copy)]
struct Lanes {
    /// A one in the lowest bit of each slot.
    ones: u64,
    /// The top bit of each slot.
    tops: u64,
    fingerprints: u64,
    values: u64,
}

impl Lanes {
    #[inline(always)]
    fn of(format: Format) -> Self {
        let ones = if format.slot_bits == 16 { 0x0001_0001_0001_0001 } else { 0x0000_0001_0000_0001 };
        let value = (1 << format.value_bits) - 1;
        let fingerprint = ((1 << format.fingerprint_bits) - 1) << format.value_bits;
        Self {
            ones,
            tops: ones << (format.slot_bits - 1),
            fingerprints: ones.wrapping_mul(fingerprint),
            values: ones.wrapping_mul(value),
        }
    }

    /// The top bit of each slot that is not zero.
    #[inline(always)]
    fn not_zero(self, word: u64) -> u64 {
        ((word & !self.tops).wrapping_add(!self.tops) | word) & self.tops
    }

    /// The top bit of each slot of `word` with this fingerprint and a value that is not 0.
    #[inline(always)]
    fn hits(self, word: u64, wanted: u64) -> u64 {
        let differs = (word ^ wanted) & self.fingerprints;
        !self.not_zero(differs) & self.not_zero(word & self.values)
    }

    /// The value of the first slot of `word` among `hits`; 0 if there is none.
    #[inline(always)]
    fn value(self, word: u64, hits: u64, format: Format) -> u64 {
        let shift = hits.trailing_zeros() & 63 & !(format.slot_bits - 1);
        let value = word >> shift & ((1 << format.value_bits) - 1);
        select_unpredictable(hits == 0, 0, value)
    }
}

impl Tables {
    /// # Errors
    /// [`ApplyError`]: the image is malformed, or memory ran out. The caller checks its digest.
    pub(super) fn new(image: &Image, settings: &Settings) -> Result<Self, ApplyError> {
        let format = settings.format();
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        if image.n_buckets == 0 || image.n_buckets > MAX_BUCKETS {
            return malformed("level 1 has 1 to 2^28 buckets");
        }
        if image.first.len() != image.n_buckets as usize * format.bucket_words() {
            return malformed("the words of level 1 are not those of its buckets");
        }
        let lanes = Lanes::of(format);
        if image.first.iter().any(|&word| word & !(lanes.fingerprints | lanes.values) != 0) {
            return malformed("a slot has bits above its fingerprint");
        }
        let second = Second::new(&image.second, settings.second_layout())?;
        let stripes = Stripes::new(image.n_buckets);
        let (n_buckets, tweak) = (image.n_buckets, image.tweak);
        Ok(Self { first: AtomicWords::filled(&image.first)?, n_buckets, tweak, format, stripes, second })
    }

    pub(super) fn image(&self, version: u64, digest: u64, second_digest: u64) -> Image {
        let second = self.second.image(version, second_digest);
        Image { version, digest, tweak: self.tweak, n_buckets: self.n_buckets, first: self.first.to_vec(), second }
    }

    pub(super) fn n_slots(&self) -> usize {
        self.n_buckets as usize * SLOTS
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.first.len() * 8 + self.stripes.counters.len() * 8 + self.second.size_bytes()
    }

    pub(super) fn huge_page_bytes(&self) -> Option<usize> {
        Some(self.first.huge_page_bytes()? + self.second.huge_page_bytes()?)
    }

    /// The current contents of a slot of level 1.
    pub(super) fn slot(&self, slot: u32) -> u32 {
        let (at, shift) = self.format.spot(slot);
        (self.first[at].load(Ordering::Relaxed) >> shift & ((1 << self.format.slot_bits) - 1)) as u32
    }

    pub(super) fn first_prf(&self, seed: u64, slot: u32) -> u64 {
        slot_prf(seed, slot, &[self.slot(slot).into()])
    }

    /// Writes one slot of level 1. Called by the one writer only.
    pub(super) fn write(&self, slot: u32, contents: u32) {
        let (at, shift) = self.format.spot(slot);
        let others = self.first[at].load(Ordering::Relaxed) & !(((1 << self.format.slot_bits) - 1) << shift);
        let guard = self.stripes.of(slot / SLOTS as u32).write();
        self.first[at].store(others | u64::from(contents) << shift, Ordering::Release);
        guard.commit();
    }

    /// Makes readers that keep meeting the writer wait for the end of an update; locks level 2, too, if it is written.
    /// Locks level 1 before level 2, as readers do.
    pub(super) fn close(&self, second: bool) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        (self.stripes.close(), second.then(|| self.second.close()))
    }

    /// Starts fetching what an update of a slot of level 1 touches.
    pub(super) fn prefetch_slot(&self, slot: u32) {
        prefetch(self.first.as_ptr().wrapping_add(self.format.spot(slot).0).cast());
    }

    #[inline(always)]
    fn spots(&self, digest: Digest) -> Spots {
        Spots::of(digest, self.tweak, self.n_buckets, self.format.fingerprint_bits)
    }

    /// The value in level 1, or 0.
    #[inline(always)]
    fn in_first<const BUCKET_WORDS: usize>(&self, spots: &Spots, lanes: Lanes) -> u64 {
        let wanted = lanes.ones.wrapping_mul(u64::from(spots.fingerprint) << self.format.value_bits);
        let (mut found, mut hits) = (0, 0);
        let first: &[AtomicU64] = &self.first;
        // The last hit is taken, which is the first slot of the first bucket if there are several. Which bucket holds a
        // name is unpredictable: selected, not branched on.
        for bucket in spots.buckets.into_iter().rev() {
            for word in first[bucket as usize * BUCKET_WORDS..][..BUCKET_WORDS].iter().rev() {
                let word = word.load(Ordering::Acquire);
                let here = lanes.hits(word, wanted);
                found = select_unpredictable(here == 0, found, word);
                hits = select_unpredictable(here == 0, hits, here);
            }
        }
        lanes.value(found, hits, self.format)
    }

    /// The value from both levels at one moment.
    #[inline(never)]
    fn in_both<const BUCKET_WORDS: usize>(&self, digest: Digest, spots: &Spots, lanes: Lanes) -> u64 {
        self.stripes.at_one_moment(spots.buckets, || match self.in_first::<BUCKET_WORDS>(spots, lanes) {
            0 => self.second.lookup(&[digest.0], self.second.buckets(digest)),
            value => value,
        })
    }

    pub(super) fn lookup(&self, digest: Digest) -> u64 {
        let mut value = [0];
        self.bursts(&[digest], &mut value);
        value[0]
    }

    pub(super) fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        let values = &mut values[..digests.len()];
        #[cfg(target_arch = "x86_64")]
        if Kernel::get().vectors() >= Vectors::Avx2 {
            // SAFETY: the processor has AVX2 and BMI2.
            unsafe { self.bursts_avx2(digests, values) };
            return;
        }
        self.bursts(digests, values);
    }

    /// The same loops, compiled for processors with AVX2: 64-bit shifts by a register, and four digests mixed at once.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn bursts_avx2(&self, digests: &[Digest], values: &mut [u64]) {
        self.bursts(digests, values);
    }

    #[inline(always)]
    fn bursts(&self, digests: &[Digest], values: &mut [u64]) {
        in_bursts(
            digests,
            values,
            |digests, burst| self.locate_all(digests, burst),
            |digests, burst, values| self.read_all(digests, burst, values),
        );
    }

    /// Begins a burst.
    pub(super) fn begin(&self, digests: &[Digest], burst: &mut Burst) {
        #[cfg(target_arch = "x86_64")]
        if Kernel::get().vectors() >= Vectors::Avx2 {
            // SAFETY: the processor has AVX2 and BMI2.
            unsafe { self.begin_avx2(digests, burst) };
            return;
        }
        self.locate_all(digests, burst);
    }

    /// Finishes a burst that was begun with the same digests.
    pub(super) fn finish(&self, digests: &[Digest], burst: &Burst, values: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        if Kernel::get().vectors() >= Vectors::Avx2 {
            // SAFETY: the processor has AVX2 and BMI2.
            unsafe { self.finish_avx2(digests, burst, values) };
            return;
        }
        self.read_all(digests, burst, values);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn begin_avx2(&self, digests: &[Digest], burst: &mut Burst) {
        self.locate_all(digests, burst);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn finish_avx2(&self, digests: &[Digest], burst: &Burst, values: &mut [u64]) {
        self.read_all(digests, burst, values);
    }

    /// Step 1.
    #[inline(always)]
    fn locate_all(&self, digests: &[Digest], burst: &mut Burst) {
        let bucket_words = self.format.bucket_words();
        for (&digest, spots) in digests.iter().zip(burst) {
            *spots = self.spots(digest);
            // These two words are the only misses of a hit. They are read when those of the whole burst are in flight.
            for bucket in spots.buckets {
                prefetch(self.first.as_ptr().wrapping_add(bucket as usize * bucket_words).cast());
            }
        }
    }

    /// Steps 2 to 4.
    #[inline(always)]
    fn read_all(&self, digests: &[Digest], burst: &Burst, values: &mut [u64]) {
        match self.format.bucket_words() {
            1 => self.read::<1>(digests, burst, values),
            _ => self.read::<2>(digests, burst, values),
        }
    }

    #[inline(always)]
    fn read<const BUCKET_WORDS: usize>(&self, digests: &[Digest], burst: &Burst, values: &mut [u64]) {
        let lanes = Lanes::of(self.format);
        let mut missing = 0u32;
        for (at, (value, spots)) in values.iter_mut().zip(burst).enumerate() {
            *value = self.in_first::<BUCKET_WORDS>(spots, lanes);
            missing |= u32::from(*value == 0) << at;
        }
        let each = |mut set: u32| {
            std::iter::from_fn(move || {
                let at = set.trailing_zeros();
                set &= set.wrapping_sub(1);
                (at < 32).then_some(at as usize)
            })
        };
        each(missing).for_each(|at| self.second.prefetch(self.second.buckets(digests[at])));
        each(missing).for_each(|at| values[at] = self.in_both::<BUCKET_WORDS>(digests[at], &burst[at], lanes));
    }
}

/// Searches one word of slots; for the test against comparing slots one by one.
#[cfg(test)]
pub(super) fn find(format: Format, word: u64, fingerprint: u32) -> u64 {
    let lanes = Lanes::of(format);
    let hits = lanes.hits(word, lanes.ones.wrapping_mul(u64::from(fingerprint) << format.value_bits));
    lanes.value(word, hits, format)
}

//! The floor of flow tables: only the memory accesses that a lookup must make.
//!
//! Per key: its digest, one random line of the array of buckets, and for a hit one random 32-byte entry whose number
//! depends on that line, or for small keys one word of the line. The lowest bit of a key's second word says whether it
//! is a hit. Answers mean nothing.

#![expect(unsafe_code, reason = "unchecked reads and prefetches, as the tables it is the floor of have them")]

use lookup::hash::{Digest, Family, Hasher, SecretKey};

use super::sides::{Key, MAX_BATCH, Side, small};
use crate::pages::Pages;

pub(super) struct Floor {
    buckets: Pages,
    entries: Pages,
    hasher: Hasher,
    mask: usize,
    is_small: bool,
}

impl Floor {
    /// As for tables of `capacity` slots: eight per line, or five for small entries, which are stored in the lines.
    pub(super) fn new(capacity: usize, is_small: bool, seed: u64) -> Self {
        let n_buckets = if is_small { capacity.div_ceil(5) } else { capacity / 8 }.next_power_of_two();
        let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(seed));
        Self {
            buckets: Pages::zeroed(n_buckets * 64),
            entries: Pages::zeroed(if is_small { 0 } else { n_buckets * 8 * 32 }),
            hasher,
            mask: n_buckets - 1,
            is_small,
        }
    }

    fn burst(&self, keys: &[Key]) -> u64 {
        let (mut digests, mut hits) = ([Digest(0); MAX_BATCH], [0usize; MAX_BATCH]);
        let digests = &mut digests[..keys.len()];
        self.hasher.digest_keys(keys, digests);
        let bucket = |digest: Digest| self.buckets.as_ptr().wrapping_add(((digest.0 >> 32) as usize & self.mask) * 64);
        for &digest in digests.iter() {
            prefetch(bucket(digest));
        }
        let (mut n_hits, mut sum) = (0, 0u64);
        for (key, &digest) in keys.iter().zip(digests.iter()) {
            // SAFETY: the masked number is one of a line in the array. All bytes are zero, which the compiler cannot know.
            let line = u64::from(unsafe { bucket(digest).read() });
            let slot = ((digest.0 >> 32) as usize & self.mask) * 8 + (digest.0 & 7 | line & 7) as usize;
            hits[n_hits] = slot * 32;
            // SAFETY: as above, and eight entries a bucket.
            prefetch(unsafe { self.entries.as_ptr().add(slot * 32 * (key[1] & 1) as usize) });
            n_hits += (key[1] & 1) as usize;
            sum = sum.wrapping_add(line);
        }
        for &at in &hits[..n_hits] {
            // SAFETY: as above; an entry has 32 bytes, and the array starts on a page.
            let [a, b, c, d] = unsafe { self.entries.as_ptr().add(at).cast::<[u64; 4]>().read() };
            sum = sum.wrapping_add(a ^ b).wrapping_add(c).wrapping_add(d);
        }
        sum
    }
}

impl Floor {
    fn burst_of_small(&self, keys: &[Key]) -> u64 {
        let (mut digests, mut words) = ([Digest(0); MAX_BATCH], [0; MAX_BATCH]);
        let (digests, words) = (&mut digests[..keys.len()], &mut words[..keys.len()]);
        words.iter_mut().zip(keys).for_each(|(word, key)| *word = small(key).into());
        self.hasher.digest_words(words, 4, digests);
        let line = |digest: Digest| self.buckets.as_ptr().wrapping_add(((digest.0 >> 32) as usize & self.mask) * 64);
        for &digest in digests.iter() {
            prefetch(line(digest));
        }
        digests.iter().fold(0, |sum, &digest| {
            // SAFETY: the masked number is one of a line in the array, which has eight words.
            let word = unsafe { line(digest).cast::<u64>().add((digest.0 & 7) as usize).read() };
            sum.wrapping_add(word)
        })
    }
}

#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl Side for Floor {
    fn insert(&mut self, _keys: &[Key]) -> Result<(), String> {
        Ok(())
    }

    fn sum(&self, queries: &[Key], batch: usize, passes: u64) -> u64 {
        let bursts = (0..passes).flat_map(|_| queries.chunks(batch));
        let burst = |keys| if self.is_small { self.burst_of_small(keys) } else { self.burst(keys) };
        bursts.fold(0, |sum, keys| sum.wrapping_add(burst(keys)))
    }

    fn bytes(&self) -> u64 {
        (self.buckets.len() + self.entries.len()) as u64
    }

    fn answers(&self) -> bool {
        false
    }
}

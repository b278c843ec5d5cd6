//! The floor of flow tables: what a lookup must touch and no more.
//!
//! Per key its digest, one random line of the array of buckets, and for a hit one random entry of 32 bytes whose number
//! depends on that line. Which keys are hits stands in the lowest bit of their second word. Answers mean nothing.

#![expect(unsafe_code, reason = "unchecked reads and prefetches, as the tables it is the floor of have them")]

use lookup::hash::{Digest, Family, Hasher, SecretKey};

use super::sides::{Key, MAX_BATCH, Side};
use crate::pages::Pages;

pub(super) struct Floor {
    buckets: Pages,
    entries: Pages,
    hasher: Hasher,
    mask: usize,
}

impl Floor {
    pub(super) fn new(capacity: usize, seed: u64) -> Self {
        let n_buckets = capacity.next_power_of_two() / 8;
        let hasher = Hasher::new(Family::default(), &SecretKey::from_seed(seed));
        Self {
            buckets: Pages::zeroed(n_buckets * 64),
            entries: Pages::zeroed(n_buckets * 8 * 32),
            hasher,
            mask: n_buckets - 1,
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
        (0..passes).flat_map(|_| queries.chunks(batch)).fold(0, |sum, keys| sum.wrapping_add(self.burst(keys)))
    }

    fn bytes(&self) -> u64 {
        (self.buckets.len() + self.entries.len()) as u64
    }

    fn answers(&self) -> bool {
        false
    }
}

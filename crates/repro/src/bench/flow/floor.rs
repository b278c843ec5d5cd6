//! The floor of flow tables: only the memory accesses that a lookup must make.
//!
//! Per key: its digest, one random line of the array of buckets, and for a hit one random 32-byte entry whose number
//! depends on that line, or for small keys one word of the line. The lowest bit of a key's second word says whether it
//! is a hit. Answers mean nothing.

#![expect(unsafe_code, reason = "unchecked reads and prefetches, as the tables it is the floor of have them")]

use lookup::hash::{Digest, Family, Hasher, SecretKey};

use super::phases::{Phases, sum_in_flight};
use super::sides::{Key, MAX_BATCH, Side, small};
use crate::contestants::{Calls, fetch_ahead};
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

    fn bucket(&self, digest: Digest) -> *const u8 {
        self.buckets.as_ptr().wrapping_add(((digest.0 >> 32) as usize & self.mask) * 64)
    }
}

/// A burst of lookups in flight.
pub(super) struct Begun {
    digests: [Digest; MAX_BATCH],
    words: [u64; MAX_BATCH],
    /// Where the entries of the hits are.
    hits: [usize; MAX_BATCH],
    n_hits: usize,
    /// The sum of what was read in the lines.
    sum: u64,
}

impl Phases for Floor {
    type Begun = Begun;

    fn new_burst(&self) -> Begun {
        Begun { digests: [Digest(0); MAX_BATCH], words: [0; MAX_BATCH], hits: [0; MAX_BATCH], n_hits: 0, sum: 0 }
    }

    #[inline(always)]
    fn begin(&self, keys: &[Key], begun: &mut Begun) {
        let digests = &mut begun.digests[..keys.len()];
        if self.is_small {
            let words = &mut begun.words[..keys.len()];
            words.iter_mut().zip(keys).for_each(|(word, key)| *word = small(key).into());
            self.hasher.digest_words(words, 4, digests);
        } else {
            self.hasher.digest_keys(keys, digests);
        }
        digests.iter().for_each(|&digest| prefetch(self.bucket(digest)));
    }

    #[inline(always)]
    fn advance(&self, keys: &[Key], begun: &mut Begun) {
        (begun.n_hits, begun.sum) = (0, 0);
        for (key, &digest) in keys.iter().zip(&begun.digests) {
            if self.is_small {
                // SAFETY: the masked number is one of a line in the array, which has eight words.
                let word = unsafe { self.bucket(digest).cast::<u64>().add((digest.0 & 7) as usize).read() };
                begun.sum = begun.sum.wrapping_add(word);
                continue;
            }
            // SAFETY: as above. All bytes are zero, which the compiler cannot know.
            let line = u64::from(unsafe { self.bucket(digest).read() });
            let slot = ((digest.0 >> 32) as usize & self.mask) * 8 + (digest.0 & 7 | line & 7) as usize;
            begun.hits[begun.n_hits] = slot * 32;
            // SAFETY: as above, and eight entries a bucket.
            prefetch(unsafe { self.entries.as_ptr().add(slot * 32 * (key[1] & 1) as usize) });
            begun.n_hits += (key[1] & 1) as usize;
            begun.sum = begun.sum.wrapping_add(line);
        }
    }

    #[inline(always)]
    fn finish(&self, _keys: &[Key], begun: &mut Begun) -> u64 {
        begun.hits[..begun.n_hits].iter().fold(begun.sum, |sum, &at| {
            // SAFETY: as above; an entry has 32 bytes, and the array starts on a page.
            let [a, b, c, d] = unsafe { self.entries.as_ptr().add(at).cast::<[u64; 4]>().read() };
            sum.wrapping_add(a ^ b).wrapping_add(c).wrapping_add(d)
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

    fn sum(&self, queries: &[Key], calls: Calls, passes: u64) -> u64 {
        if calls.in_flight > 1 {
            return sum_in_flight(self, queries, calls, passes);
        }
        let (mut burst, mut sum) = (self.new_burst(), 0u64);
        for keys in (0..passes).flat_map(|_| queries.chunks(calls.batch)) {
            fetch_ahead(keys);
            self.begin(keys, &mut burst);
            self.advance(keys, &mut burst);
            sum = sum.wrapping_add(self.finish(keys, &mut burst));
        }
        sum
    }

    fn bytes(&self) -> u64 {
        (self.buckets.len() + self.entries.len()) as u64
    }

    fn answers(&self) -> bool {
        false
    }
}

//! Compares eight 16-bit lanes at once (which tags are equal, which timers run), or six words (which keys are equal).
//! The results are bit masks, bit `i` for lane `i`.
//!
//! A timer runs while `1 <= expiry - now <= WINDOW`, modulo 2^16 and **unsigned**. SSE2 compares signed words only, so
//! the difference goes through a saturating subtraction, which is zero exactly up to the window. Every x86-64 has SSE2
//! and every AArch64 has NEON, so nothing is detected at run time; eight lanes fill one register, so AVX2 gains
//! nothing. [`scalar`] is the twin for other machines, and the reference of the tests.

#![cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(unsafe_code, reason = "loads arrays into vector registers")
)]

use super::clock::WINDOW;

/// Lanes of a compare.
pub(super) const LANES: usize = 8;
/// Words of a compare.
const WORDS: usize = 6;

/// The same without vectors.
pub mod scalar {
    use super::{LANES, WINDOW, WORDS};

    /// Lanes of `tags` that equal `tag`.
    pub fn equal(tags: &[u16; LANES], tag: u16) -> u8 {
        mask(|lane| tags[lane] == tag)
    }

    /// Lanes of `expiry` whose timer runs at `now`.
    pub fn running(expiry: &[u16; LANES], now: u16) -> u8 {
        mask(|lane| expiry[lane].wrapping_sub(now).wrapping_sub(1) < WINDOW)
    }

    /// Words that equal `wanted` in the bits of `mask`; `wanted` has no other bits.
    pub fn equal_words(words: &[u64; WORDS], wanted: u64, mask: u64) -> u8 {
        (0..WORDS).fold(0, |found, word| found | (u8::from(words[word] & mask == wanted) << word))
    }

    fn mask(holds: impl Fn(usize) -> bool) -> u8 {
        (0..LANES).fold(0, |mask, lane| mask | (u8::from(holds(lane)) << lane))
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use scalar::{equal, equal_words, running};

/// Lanes of `tags` that equal `tag`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn equal(tags: &[u16; LANES], tag: u16) -> u8 {
    use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_loadu_si128, _mm_set1_epi16};
    // SAFETY: SSE2 is there on x86-64, and the array has the 16 bytes that are loaded, aligned or not.
    unsafe {
        let tags = _mm_loadu_si128(tags.as_ptr().cast());
        bits(_mm_cmpeq_epi16(tags, _mm_set1_epi16(tag.cast_signed())))
    }
}

/// Lanes of `expiry` whose timer runs at `now`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn running(expiry: &[u16; LANES], now: u16) -> u8 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_loadu_si128, _mm_set1_epi16, _mm_setzero_si128, _mm_sub_epi16, _mm_subs_epu16,
    };
    // SAFETY: as in `equal`.
    unsafe {
        let expiry = _mm_loadu_si128(expiry.as_ptr().cast());
        let left = _mm_sub_epi16(expiry, _mm_set1_epi16(now.wrapping_add(1).cast_signed()));
        let beyond = _mm_subs_epu16(left, _mm_set1_epi16((WINDOW - 1).cast_signed()));
        bits(_mm_cmpeq_epi16(beyond, _mm_setzero_si128()))
    }
}

/// Words that equal `wanted` in the bits of `mask`; `wanted` has no other bits.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn equal_words(words: &[u64; WORDS], wanted: u64, mask: u64) -> u8 {
    use std::arch::x86_64::{
        _mm_and_si128, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_ps,
        _mm_set1_epi64x, _mm_shuffle_ps,
    };
    // SAFETY: SSE2 is there on x86-64, and the array has the three times 16 bytes that are loaded.
    unsafe {
        let (wanted, mask) = (_mm_set1_epi64x(wanted.cast_signed()), _mm_set1_epi64x(mask.cast_signed()));
        // SSE2 compares halves of words; both must be equal.
        let halves = |pair: usize| {
            let words = _mm_loadu_si128(words.as_ptr().add(2 * pair).cast());
            _mm_castsi128_ps(_mm_cmpeq_epi32(_mm_and_si128(words, mask), wanted))
        };
        let both = |a, b| {
            let low = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(a, b));
            let high = _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(a, b));
            _mm_movemask_ps(_mm_castsi128_ps(_mm_and_si128(low, high))) as u8
        };
        let last = halves(2);
        both(halves(0), halves(1)) | (both(last, last) & 3) << 4
    }
}

/// One bit per 16-bit lane, all of whose bits are equal.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn bits(lanes: std::arch::x86_64::__m128i) -> u8 {
    use std::arch::x86_64::{_mm_movemask_epi8, _mm_packs_epi16, _mm_setzero_si128};
    // SAFETY: SSE2 is there on x86-64. Saturation packs 0 and -1 unchanged.
    unsafe { _mm_movemask_epi8(_mm_packs_epi16(lanes, _mm_setzero_si128())) as u8 }
}

/// Lanes of `tags` that equal `tag`.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn equal(tags: &[u16; LANES], tag: u16) -> u8 {
    use std::arch::aarch64::{vceqq_u16, vdupq_n_u16, vld1q_u16};
    // SAFETY: NEON is there on AArch64, and the array has the 16 bytes that are loaded.
    unsafe { bits(vceqq_u16(vld1q_u16(tags.as_ptr()), vdupq_n_u16(tag))) }
}

/// Lanes of `expiry` whose timer runs at `now`.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn running(expiry: &[u16; LANES], now: u16) -> u8 {
    use std::arch::aarch64::{vcltq_u16, vdupq_n_u16, vld1q_u16, vsubq_u16};
    // SAFETY: as in `equal`.
    unsafe {
        let left = vsubq_u16(vld1q_u16(expiry.as_ptr()), vdupq_n_u16(now.wrapping_add(1)));
        bits(vcltq_u16(left, vdupq_n_u16(WINDOW)))
    }
}

/// Words that equal `wanted` in the bits of `mask`; `wanted` has no other bits.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn equal_words(words: &[u64; WORDS], wanted: u64, mask: u64) -> u8 {
    use std::arch::aarch64::{vaddvq_u64, vandq_u64, vceqq_u64, vdupq_n_u64, vld1q_u64, vorrq_u64};
    const PLACES: [u64; WORDS] = [1, 2, 4, 8, 16, 32];
    // SAFETY: NEON is there on AArch64, and the arrays have the 16 bytes from each even place on.
    unsafe {
        let (wanted, mask) = (vdupq_n_u64(wanted), vdupq_n_u64(mask));
        let pair = |at: usize| {
            let equal = vceqq_u64(vandq_u64(vld1q_u64(words.as_ptr().add(at)), mask), wanted);
            vandq_u64(equal, vld1q_u64(PLACES.as_ptr().add(at)))
        };
        vaddvq_u64(vorrq_u64(vorrq_u64(pair(0), pair(2)), pair(4))) as u8
    }
}

/// One bit per 16-bit lane, all of whose bits are equal.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn bits(lanes: std::arch::aarch64::uint16x8_t) -> u8 {
    use std::arch::aarch64::{vaddvq_u16, vandq_u16, vld1q_u16};
    const PLACES: [u16; LANES] = [1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: as in `equal`.
    unsafe { vaddvq_u16(vandq_u16(lanes, vld1q_u16(PLACES.as_ptr()))) as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{Rng, seed};

    /// Compares eight ends from `first` on at `now`, and both with the definition in whole numbers.
    fn compare(first: u16, now: u16) {
        let ends: [u16; LANES] = std::array::from_fn(|lane| first.wrapping_add(lane as u16));
        let expected = scalar::running(&ends, now);
        assert_eq!(running(&ends, now), expected, "ends from {first} at {now}");
        for (lane, &end) in ends.iter().enumerate() {
            let ahead = (u32::from(end) + 0x1_0000 - u32::from(now)) & 0xFFFF;
            let runs = (1..=u32::from(WINDOW)).contains(&ahead);
            assert_eq!(expected >> lane & 1 != 0, runs, "end {end} at {now}");
        }
    }

    #[test]
    fn vectors_and_scalars_agree_on_which_timers_run() {
        // All 2^32 pairs take seconds and are for the deep run; other runs check every end at a few times, and the
        // edges of the window at every time.
        let step = if std::env::var_os("FIBULA_DEEP").is_some() { 1 } else { 257 };
        for now in (0..=u16::MAX).step_by(step) {
            for first in (0..=u16::MAX).step_by(LANES) {
                compare(first, now);
            }
        }
        for now in 0..=u16::MAX {
            for ahead in [0u16, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, WINDOW - 1, WINDOW, WINDOW + 1] {
                compare(now.wrapping_add(ahead).wrapping_sub(4), now);
            }
        }
    }

    #[test]
    fn an_entry_is_not_served_when_a_signed_compare_would_serve_it() {
        // End 100, and every later time until the difference wraps.
        for now in 100..=u16::MAX {
            assert_eq!(running(&[100; LANES], now) != 0, now >= 0u16.wrapping_sub(WINDOW - 100), "at {now}");
        }
        assert_eq!(running(&[100; LANES], 99), u8::MAX);
    }

    #[test]
    fn vectors_and_scalars_agree_on_which_words_are_equal() {
        let mut rng = Rng::new(seed());
        for round in 0..200_000 {
            let mask = u64::MAX >> (8 * (round % 8));
            let wanted = rng.next_u64() & mask;
            let chosen = rng.next_u64() as u8 & 0x3F;
            let words = std::array::from_fn(|word| {
                let other = if chosen >> word & 1 != 0 { 0 } else { 1 << rng.below(64 - 8 * (round % 8)) };
                wanted ^ other ^ (rng.next_u64() & !mask)
            });
            let found = (equal_words(&words, wanted, mask), scalar::equal_words(&words, wanted, mask));
            assert_eq!(found, (chosen, chosen), "{words:x?} {wanted:x} {mask:x}");
        }
    }

    #[test]
    fn vectors_and_scalars_agree_on_which_tags_are_equal() {
        let mut rng = Rng::new(seed());
        for _ in 0..100_000 {
            let tag = rng.next_u64() as u16;
            let chosen = rng.next_u64() as u8;
            let tags =
                std::array::from_fn(
                    |lane| {
                        if chosen >> lane & 1 != 0 { tag } else { tag ^ (1 << rng.below(16)) as u16 }
                    },
                );
            assert_eq!((equal(&tags, tag), scalar::equal(&tags, tag)), (chosen, chosen), "{tags:?} {tag}");
        }
    }
}

//! Loops 1 and 2 with AVX2, four digests at a time.
//!
//! ```text
//! s = tweak * SPREAD;  x = (digest ^ s) * MIX (low 64 bits);  low half of x ^= high half
//! first = (x >> 32) * side >> 32;  second = (x & mask32) * side >> 32
//! ```
//! AVX2 has no 64-bit multiplication, so the product is composed of three 32-bit products.

#![expect(unsafe_code, reason = "loads from and stores into arrays of a burst by vectors")]

use std::arch::x86_64::*;

use super::super::sizing::Sizing;
use super::{Cell, Layout, Locate, Spots, Words, entry_of, locate_from};
use crate::hash::Digest;
use crate::hash::tweak::{MIX, TWEAK_SPREAD};

const LANES: usize = 4;

pub(super) struct Avx2;

impl Locate for Avx2 {
    // SAFETY: the caller has checked that the processor has AVX2.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    unsafe fn locate<S: Sizing, L: Layout>(words: &Words<'_>, layout: L, digests: &[Digest], spots: &mut Spots) {
        let whole = digests.len() - digests.len() % LANES;
        spots.n = digests.len();
        spots.flags = locate_whole::<L>(words, &digests[..whole], spots);
        locate_from::<S, L>(whole, words, layout, digests, spots);
        if words.prefetch {
            spots.prefetch(words.base);
        }
    }
}

/// As [`super::bursts`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn bursts<S: Sizing, C: Cell>(words: &Words<'_>, cell: C, digests: &[Digest], values: &mut [u64]) {
    super::bursts::<Avx2, S, C>(words, cell, digests, values);
}

/// The spots of a multiple of four digests. Returns the OR of the entries.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn locate_whole<L: Layout>(words: &Words<'_>, digests: &[Digest], spots: &mut Spots) -> u64 {
    let log_bytes = L::NATIVE.expect("the vector loop is for cells that are integers");
    let mix_low = _mm256_set1_epi64x((MIX & 0xFFFF_FFFF) as i64);
    let mix_high = _mm256_set1_epi64x((MIX >> 32) as i64);
    let spread = _mm256_set1_epi64x(TWEAK_SPREAD as i64);
    let mask15 = _mm256_set1_epi64x(0x7FFF);
    let mask16 = _mm256_set1_epi64x(0xFFFF);
    let cells_shift = _mm_cvtsi64_si128(3 - i64::from(log_bytes));
    let bytes_shift = _mm_cvtsi64_si128(i64::from(log_bytes));
    let mut flags = _mm256_setzero_si256();
    let (digests, _) = digests.as_chunks::<LANES>();
    let (entries, _) = spots.entries.as_chunks_mut::<LANES>();
    let (firsts, _) = spots.first.as_chunks_mut::<LANES>();
    let (seconds, _) = spots.second.as_chunks_mut::<LANES>();
    for (((digests, entries), firsts), seconds) in digests.iter().zip(entries).zip(firsts).zip(seconds) {
        // Assembled in a register: a vector load of words that were just stored one by one would wait for the stores.
        let entry = |index: usize| entry_of(words, digests[index]).cast_signed();
        let entry = _mm256_set_epi64x(entry(3), entry(2), entry(1), entry(0));
        // SAFETY: four digests, entries and offsets are 32 bytes each. Unaligned loads and stores.
        unsafe {
            let digest = _mm256_loadu_si256(digests.as_ptr().cast());
            _mm256_storeu_si256(entries.as_mut_ptr().cast(), entry);
            flags = _mm256_or_si256(flags, entry);
            let side_words = _mm256_and_si256(entry, mask16);
            let tweak = _mm256_and_si256(_mm256_srli_epi64::<16>(entry), mask15);
            let shard = _mm256_slli_epi64::<6>(_mm256_srli_epi64::<32>(entry));
            let side = _mm256_sll_epi64(side_words, cells_shift);

            let y = _mm256_xor_si256(digest, _mm256_mul_epu32(tweak, spread));
            let low = _mm256_mul_epu32(y, mix_low);
            let cross =
                _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64::<32>(y), mix_low), _mm256_mul_epu32(y, mix_high));
            let x = _mm256_add_epi64(low, _mm256_slli_epi64::<32>(cross));
            let high_half = _mm256_srli_epi64::<32>(x);
            let low_half = _mm256_xor_si256(x, high_half);
            let first = _mm256_srli_epi64::<32>(_mm256_mul_epu32(high_half, side));
            let second = _mm256_srli_epi64::<32>(_mm256_mul_epu32(low_half, side));

            let second_side = _mm256_add_epi64(shard, _mm256_slli_epi64::<3>(side_words));
            let first = _mm256_add_epi64(shard, _mm256_sll_epi64(first, bytes_shift));
            let second = _mm256_add_epi64(second_side, _mm256_sll_epi64(second, bytes_shift));
            _mm256_storeu_si256(firsts.as_mut_ptr().cast(), first);
            _mm256_storeu_si256(seconds.as_mut_ptr().cast(), second);
        }
    }
    let mut flag_words = [0u64; LANES];
    // SAFETY: 32 bytes, unaligned store.
    unsafe { _mm256_storeu_si256(flag_words.as_mut_ptr().cast(), flags) };
    flag_words.iter().fold(0, |all, word| all | word)
}

//! The two comparisons of a lookup, by vector instructions: a line of slots with a tag, and eight rules with a flow.
//!
//! The words are those that a writer may change meanwhile. Each is loaded whole; a reader that overlaps a write begins again.

#![expect(unsafe_code, reason = "loads lines and blocks as vectors")]

use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{BLOCK, LINE_SLOTS};
use super::rule::{Flow, matches};

/// How slots and rules are compared.
pub(super) trait Compare {
    /// The place of the first slot of the line that has the tag; [`LINE_SLOTS`] or more if none has it.
    /// # Safety
    /// There is a line, and the processor has the instructions.
    unsafe fn find(line: *const AtomicU64, tag: u64) -> usize;

    /// The last word of the first of the `n` rules of a block that matches a flow, 0 if none does.
    /// # Safety
    /// There is a block of this many rules, eight words are behind it, and the processor has the instructions.
    unsafe fn first_match<const W: usize>(block: *const AtomicU64, n: usize, flow: &Flow<W>) -> u64;
}

/// Without vector instructions.
pub(super) struct Scalar;

impl Compare for Scalar {
    // SAFETY: the caller keeps the contract.
    #[inline(always)]
    unsafe fn find(line: *const AtomicU64, tag: u64) -> usize {
        let found = (0..LINE_SLOTS).fold(0, |found, at| {
            // SAFETY: by the caller's contract.
            let word = unsafe { (*line.add(at)).load(Ordering::Relaxed) };
            found | u32::from(word >> 48 == tag) << at
        });
        found.trailing_zeros() as usize
    }

    // SAFETY: the caller keeps the contract.
    #[inline(always)]
    unsafe fn first_match<const W: usize>(block: *const AtomicU64, n: usize, flow: &Flow<W>) -> u64 {
        let found = (0..n).fold(0, |found, lane| {
            // SAFETY: by the caller's contract.
            let word = |at: usize| unsafe { (*block.add(at * n + lane)).load(Ordering::Relaxed) };
            found | u32::from(matches(word, flow)) << lane
        });
        // SAFETY: by the caller's contract.
        unsafe { last_word::<W>(block, n, found) }
    }
}

/// The last word of the first of the rules of a block that have a bit in `found`, 0 if none has.
/// # Safety
/// There is a block of `n` rules, and eight words are behind it.
#[inline(always)]
// SAFETY: the caller keeps the contract.
unsafe fn last_word<const W: usize>(block: *const AtomicU64, n: usize, found: u32) -> u64 {
    let lane = found.trailing_zeros() as usize % BLOCK;
    // SAFETY: by the caller's contract.
    let last = unsafe { (*block.add((2 * W + 1) * n + lane)).load(Ordering::Relaxed) };
    select_unpredictable(found == 0, 0, last)
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{AtomicU64, Compare, Flow, last_word};
    use crate::rules::rule::ANY_PROTOCOL;
    use std::arch::x86_64::*;

    pub(in super::super) struct Avx2;
    pub(in super::super) struct Avx512;

    /// Four words.
    #[inline]
    #[target_feature(enable = "avx2")]
    // SAFETY: the caller keeps the contract: there are four words.
    unsafe fn load(words: *const AtomicU64) -> __m256i {
        let loaded;
        // SAFETY: 32 bytes, which are there by the caller's contract. They may be written meanwhile, so this is not a load
        // of the compiler's.
        unsafe {
            std::arch::asm!("vmovdqu {}, ymmword ptr [{}]", out(ymm_reg) loaded, in(reg) words,
                options(readonly, nostack, preserves_flags));
        }
        loaded
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn all(word: u64) -> __m256i {
        _mm256_set1_epi64x(word.cast_signed())
    }

    /// Which of the four words are zero.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn zeros(words: __m256i) -> __m256i {
        _mm256_cmpeq_epi64(words, _mm256_setzero_si256())
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn mask(words: __m256i) -> u32 {
        _mm256_movemask_pd(_mm256_castsi256_pd(words)).cast_unsigned()
    }

    impl Compare for Avx2 {
        // SAFETY: the caller keeps the contract.
        #[inline]
        #[target_feature(enable = "avx2,bmi1")]
        unsafe fn find(line: *const AtomicU64, tag: u64) -> usize {
            // SAFETY: by the caller's contract.
            let [low, high] = unsafe { [load(line), load(line.add(4))] };
            // The tag is in the upper quarter of a word, whose highest bit counts.
            let found = |half| mask(_mm256_cmpeq_epi16(half, _mm256_set1_epi16((tag as u16).cast_signed())));
            (found(low) | found(high) << 4).trailing_zeros() as usize
        }

        // SAFETY: the caller keeps the contract.
        #[inline]
        #[target_feature(enable = "avx2,bmi1")]
        unsafe fn first_match<const W: usize>(block: *const AtomicU64, n: usize, flow: &Flow<W>) -> u64 {
            let half = |from: usize| {
                // SAFETY: these words of the rules, and what is behind them.
                let word = |at: usize| unsafe { load(block.add(at * n + from)) };
                let mut differs = _mm256_setzero_si256();
                for (at, &address) in flow.addresses.iter().enumerate() {
                    let other = _mm256_and_si256(_mm256_xor_si256(word(at), all(address)), word(W + at));
                    differs = _mm256_or_si256(differs, other);
                }
                let (ports, last) = (word(2 * W), word(2 * W + 1));
                // How far each port is above the first one, and how far above the last one: in the low half of a word.
                let above = _mm256_sub_epi16(all(flow.rest), ports);
                let beyond = _mm256_subs_epu16(above, _mm256_srli_epi64::<32>(ports));
                differs = _mm256_or_si256(differs, _mm256_and_si256(beyond, all(0xFFFF_FFFF)));
                let other = _mm256_and_si256(_mm256_xor_si256(last, all(flow.rest >> 32)), all(0xFF));
                let any = _mm256_cmpeq_epi64(_mm256_and_si256(last, all(ANY_PROTOCOL)), all(ANY_PROTOCOL));
                mask(_mm256_and_si256(zeros(differs), _mm256_or_si256(any, zeros(other))))
            };
            let found = (half(0) | half(4) << 4) & ((1 << n) - 1);
            // SAFETY: by the caller's contract.
            unsafe { last_word::<W>(block, n, found) }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn every(word: u64) -> __m512i {
        _mm512_set1_epi64(word.cast_signed())
    }

    /// Eight words.
    #[inline]
    #[target_feature(enable = "avx512f")]
    // SAFETY: the caller keeps the contract: there are eight words.
    unsafe fn load_512(words: *const AtomicU64) -> __m512i {
        let loaded;
        // SAFETY: as in `load`, 64 bytes.
        unsafe {
            std::arch::asm!("vmovdqu64 {}, zmmword ptr [{}]", out(zmm_reg) loaded, in(reg) words,
                options(readonly, nostack, preserves_flags));
        }
        loaded
    }

    impl Compare for Avx512 {
        // SAFETY: the caller keeps the contract.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
        unsafe fn find(line: *const AtomicU64, tag: u64) -> usize {
            // SAFETY: by the caller's contract.
            let words = unsafe { load_512(line) };
            // The tag is in the upper quarter of a word.
            let found = _mm512_cmpeq_epi16_mask(words, _mm512_set1_epi16((tag as u16).cast_signed())) & 0x8888_8888;
            found.trailing_zeros() as usize / 4
        }

        // SAFETY: the caller keeps the contract.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
        unsafe fn first_match<const W: usize>(block: *const AtomicU64, n: usize, flow: &Flow<W>) -> u64 {
            // SAFETY: these words of the rules, and what is behind them.
            let word = |at: usize| unsafe { load_512(block.add(at * n)) };
            let (ports, last, rest) = (word(2 * W), word(2 * W + 1), every(flow.rest));
            // As above.
            let beyond = _mm512_subs_epu16(_mm512_sub_epi16(rest, ports), _mm512_srli_epi64::<32>(ports));
            let n_first = _bzhi_u32(0xFF, n as u32) as u8;
            let mut matches = _mm512_mask_testn_epi64_mask(n_first, beyond, every(0xFFFF_FFFF));
            for (at, &address) in flow.addresses.iter().enumerate() {
                let differs = _mm512_xor_si512(word(at), every(address));
                matches = _mm512_mask_testn_epi64_mask(matches, differs, word(W + at));
            }
            let differs = _mm512_xor_si512(last, _mm512_srli_epi64::<32>(rest));
            let same = _mm512_testn_epi64_mask(differs, every(0xFF));
            let any = _mm512_test_epi64_mask(last, every(ANY_PROTOCOL));
            // The first that matches comes to the front; without one, zeros do.
            let first = _mm512_maskz_compress_epi64(matches & (same | any), last);
            _mm_cvtsi128_si64(_mm512_castsi512_si128(first)).cast_unsigned()
        }
    }
}

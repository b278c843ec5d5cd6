//! Lines of marked words: eight keys of 48 bits, each with a mark of 16 bits, that are searched at once.
//!
//! ```text
//! word:  | key, 48 bits | mark, 16 bits |      mark 0: empty, 1: removed, otherwise a value
//! ```
//! A batch is searched without a branch that depends on a name. Each word is written by one store, so a search sees
//! each word whole. That a word was empty and is filled while its line is read is harmless: the name came meanwhile.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "loads lines as vectors, by loops for the processor"))]

use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::LINE;
use super::processor::Kernel;
#[cfg(target_arch = "x86_64")]
use super::processor::Vectors;

/// Words of a line.
pub const WORDS: usize = LINE / 8;
/// Bits of a mark.
pub const MARK_BITS: u32 = 16;
/// The least mark that is a value.
pub const FIRST_VALUE: u64 = 2;

/// A line of words.
pub type Line = [AtomicU64; WORDS];

/// The result of a search, a bit for each key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The key is in its line, with a value.
    pub live: u32,
    /// The key is not in its line, and the line has no empty word: the search must go on in the next line.
    pub undecided: u32,
}

/// The most keys of one search.
const MOST: usize = 32;

/// Searches for up to 32 keys, each in the line with its number in `lines`.
/// # Panics
/// When there are more than 32 keys, or fewer numbers than keys, or no line with a number.
#[inline]
pub fn search(kernel: Kernel, lines: &[Line], numbers: &[u32], keys: &[u64]) -> Found {
    assert!(keys.len() <= MOST, "at most {MOST} keys");
    let numbers = &numbers[..keys.len()];
    match kernel.vectors() {
        // SAFETY: the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512 | Vectors::Avx512Ifma => unsafe { avx512(lines, numbers, keys) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2 => unsafe { avx2(lines, numbers, keys) },
        _ => all(lines, numbers, keys, any),
    }
}

#[inline(always)]
fn all(lines: &[Line], numbers: &[u32], keys: &[u64], one: impl Fn(&Line, u64) -> (bool, bool)) -> Found {
    let mut found = Found::default();
    for (bit, (&number, &key)) in numbers.iter().zip(keys).enumerate() {
        let (live, undecided) = one(&lines[number as usize], key);
        found.live |= u32::from(live) << bit;
        found.undecided |= u32::from(undecided) << bit;
    }
    found
}

/// Whether a line has the key with a value, and whether the search must go on.
#[inline(always)]
fn any(line: &Line, key: u64) -> (bool, bool) {
    let (mut live, mut ended) = (false, false);
    for word in line {
        let word = word.load(Ordering::Acquire);
        let (is_key, mark) = (word >> MARK_BITS == key, word & ((1 << MARK_BITS) - 1));
        live |= is_key & (mark >= FIRST_VALUE);
        ended |= (is_key & (mark != 0)) | (mark == 0);
    }
    (live, !ended)
}

/// The difference of a word and the key, with mark 0, is the mark if the word has the key, and above every mark otherwise.
/// So one comparison finds the key with a value: marks from [`FIRST_VALUE`] on, less [`FIRST_VALUE`].
///
/// What the comparisons give is stored as bytes, one per key, and made into bits for all keys at once: a bit at a time would
/// take as many instructions as the search.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512(lines: &[Line], numbers: &[u32], keys: &[u64]) -> Found {
    use std::arch::x86_64::*;
    const N_MARKS: u64 = 1 << MARK_BITS;
    let marks = _mm512_set1_epi64(N_MARKS.cast_signed() - 1);
    let first_value = _mm512_set1_epi64(FIRST_VALUE.cast_signed());
    let n_marks = _mm512_set1_epi64(N_MARKS.cast_signed());
    let n_values = _mm512_set1_epi64((N_MARKS - FIRST_VALUE).cast_signed());
    let (mut live, mut ended) = ([0u8; MOST], [0u8; MOST]);
    for (at, (&number, &key)) in numbers.iter().zip(keys).enumerate() {
        let words;
        // SAFETY: 64 bytes of a line. A part of them may be written meanwhile, so this is no load of the compiler's. Each
        // aligned word is loaded whole. Loads of x86 are acquiring ones.
        unsafe {
            std::arch::asm!("vmovdqu64 {}, zmmword ptr [{}]", out(zmm_reg) words, in(reg) lines[number as usize].as_ptr(),
                options(readonly, nostack, preserves_flags));
        }
        let key = _mm512_set1_epi64((key << MARK_BITS).cast_signed());
        let mark_or_more = _mm512_xor_si512(words, key);
        live[at] = _mm512_cmplt_epu64_mask(_mm512_sub_epi64(mark_or_more, first_value), n_values);
        ended[at] = _mm512_cmplt_epu64_mask(mark_or_more, n_marks) | _mm512_testn_epi64_mask(words, marks);
    }
    // SAFETY: arrays of 32 bytes.
    let [live, ended] = [live, ended].map(|bytes| unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) });
    let asked = ((1u64 << keys.len()) - 1) as u32;
    Found { live: _mm256_test_epi8_mask(live, live), undecided: !_mm256_test_epi8_mask(ended, ended) & asked }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(lines: &[Line], numbers: &[u32], keys: &[u64]) -> Found {
    use std::arch::x86_64::*;
    let marks = _mm256_set1_epi64x((1 << MARK_BITS) - 1);
    let removed = _mm256_set1_epi64x(FIRST_VALUE as i64 - 1);
    all(lines, numbers, keys, |line, key| {
        let (low, high): (__m256i, __m256i);
        // SAFETY: as above, in two halves.
        unsafe {
            std::arch::asm!("vmovdqu {0}, ymmword ptr [{2}]", "vmovdqu {1}, ymmword ptr [{2} + 32]",
                out(ymm_reg) low, out(ymm_reg) high, in(reg) line.as_ptr(), options(readonly, nostack, preserves_flags));
        }
        let key = _mm256_set1_epi64x(key.cast_signed());
        let half = |words: __m256i| {
            let mark = _mm256_and_si256(words, marks);
            let empty = _mm256_cmpeq_epi64(mark, _mm256_setzero_si256());
            let is_key =
                _mm256_andnot_si256(empty, _mm256_cmpeq_epi64(_mm256_srli_epi64::<{ MARK_BITS as i32 }>(words), key));
            let live = _mm256_and_si256(is_key, _mm256_cmpgt_epi64(mark, removed));
            (live, _mm256_or_si256(is_key, empty))
        };
        let ((live, ended), (live_high, ended_high)) = (half(low), half(high));
        let (live, ended) = (_mm256_or_si256(live, live_high), _mm256_or_si256(ended, ended_high));
        (_mm256_testz_si256(live, live) == 0, _mm256_testz_si256(ended, ended) == 1)
    })
}

/// Which of up to 32 words are in their lines, as they are: a bit for each word.
/// # Panics
/// As [`search`].
#[inline]
pub fn contained(kernel: Kernel, lines: &[Line], numbers: &[u32], words: &[u64]) -> u32 {
    assert!(words.len() <= MOST, "at most {MOST} words");
    let numbers = &numbers[..words.len()];
    match kernel.vectors() {
        // SAFETY: the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512 | Vectors::Avx512Ifma => unsafe { contained_avx512(lines, numbers, words) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2 => unsafe { contained_avx2(lines, numbers, words) },
        _ => each_contained(lines, numbers, words, |line, wanted| {
            line.iter().fold(false, |found, word| found | (word.load(Ordering::Acquire) == wanted))
        }),
    }
}

#[inline(always)]
fn each_contained(lines: &[Line], numbers: &[u32], words: &[u64], one: impl Fn(&Line, u64) -> bool) -> u32 {
    let each = numbers.iter().zip(words).enumerate();
    each.fold(0, |found, (bit, (&number, &word))| found | u32::from(one(&lines[number as usize], word)) << bit)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn contained_avx512(lines: &[Line], numbers: &[u32], words: &[u64]) -> u32 {
    use std::arch::x86_64::*;
    each_contained(lines, numbers, words, |line, wanted| {
        let words;
        // SAFETY: as in `avx512`.
        unsafe {
            std::arch::asm!("vmovdqu64 {}, zmmword ptr [{}]", out(zmm_reg) words, in(reg) line.as_ptr(),
                options(readonly, nostack, preserves_flags));
        }
        _mm512_cmpeq_epi64_mask(words, _mm512_set1_epi64(wanted.cast_signed())) != 0
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn contained_avx2(lines: &[Line], numbers: &[u32], words: &[u64]) -> u32 {
    use std::arch::x86_64::*;
    each_contained(lines, numbers, words, |line, wanted| {
        let (low, high): (__m256i, __m256i);
        // SAFETY: as in `avx2`.
        unsafe {
            std::arch::asm!("vmovdqu {0}, ymmword ptr [{2}]", "vmovdqu {1}, ymmword ptr [{2} + 32]",
                out(ymm_reg) low, out(ymm_reg) high, in(reg) line.as_ptr(), options(readonly, nostack, preserves_flags));
        }
        let wanted = _mm256_set1_epi64x(wanted.cast_signed());
        let found = _mm256_or_si256(_mm256_cmpeq_epi64(low, wanted), _mm256_cmpeq_epi64(high, wanted));
        _mm256_testz_si256(found, found) == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{Rng, seed};

    #[test]
    fn every_kernel_finds_what_the_words_say() {
        let mut rng = Rng::new(seed());
        // Few keys, and all kinds of marks, so that everything occurs: key 0 in an empty word too.
        let word = |rng: &mut Rng| rng.below(20) << MARK_BITS | [0, 1, 2, 3, 0xFFFF][rng.below(5) as usize];
        let full = |rng: &mut Rng| rng.below(20) << MARK_BITS | [1, 2][rng.below(2) as usize];
        let line = |rng: &mut Rng| {
            let is_full = rng.below(2) == 0;
            std::array::from_fn(|_| AtomicU64::new(if is_full { full(rng) } else { word(rng) }))
        };
        let lines: Vec<Line> = (0..500).map(|_| line(&mut rng)).collect();
        println!("not run, for want of a processor: {:?}", Kernel::unavailable().collect::<Vec<_>>());
        for round in 0..2_000 {
            let n = round % 33;
            let numbers: Vec<u32> = (0..n).map(|_| rng.below(500) as u32).collect();
            let keys: Vec<u64> = (0..n).map(|_| rng.below(25)).collect();
            let mut expected = Found::default();
            for (bit, (&number, &key)) in numbers.iter().zip(&keys).enumerate() {
                let words = lines[number as usize].iter().map(|word| word.load(Ordering::Relaxed));
                let mark = |word: u64| word & 0xFFFF;
                let own: Vec<u64> = words.clone().filter(|&w| w >> MARK_BITS == key && mark(w) > 0).map(mark).collect();
                let ended = !own.is_empty() || words.clone().any(|word| mark(word) == 0);
                expected.live |= u32::from(own.iter().any(|&mark| mark >= FIRST_VALUE)) << bit;
                expected.undecided |= u32::from(!ended) << bit;
            }
            let words: Vec<u64> = keys.iter().map(|key| key << MARK_BITS | 2).collect();
            let holds = |(&number, word): (&u32, &u64)| {
                lines[number as usize].iter().any(|held| held.load(Ordering::Relaxed) == *word)
            };
            let bits = numbers.iter().zip(&words).map(holds).enumerate();
            let contains = bits.fold(0, |bits, (bit, holds)| bits | u32::from(holds) << bit);
            for kernel in Kernel::available() {
                assert_eq!(search(kernel, &lines, &numbers, &keys), expected, "{kernel}");
                assert_eq!(contained(kernel, &lines, &numbers, &words), contains, "{kernel}");
            }
        }
    }
}

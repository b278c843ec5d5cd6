//! Eight words in a vector: the mix of digests, and loads of words that are scattered over memory and that a writer may
//! change, straight into vector registers.
//!
//! The limit of a lookup loop is often the one execution port that moves values from general registers to vector
//! registers. So words must be loaded from memory into vector registers. The compiler does not do that for atomic loads;
//! hence the assembly. A gather does it too; whether it is faster or takes several times as long depends on the processor: see
//! [`Kernel::gathers`](super::processor::Kernel::gathers).

#![expect(unsafe_code, reason = "loads by assembly")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::hash::{MIX_1, MIX_2, MIX_SHIFT};
use crate::publish::Entry;

/// Stores eight words that are read one by one soon afterwards.
///
/// Two stores of 32 bytes. After one of 64, Intel processors (seen on Sapphire Rapids) pass on words of its first half at
/// once, but let a load of a word of its second half wait until the store has reached the cache.
/// # Safety
/// There is room for eight words at `to`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
// SAFETY: the caller keeps the contract.
pub(crate) unsafe fn store_words(to: *mut u64, words: __m512i) {
    // SAFETY: 64 bytes, which are there by the caller's contract. Unaligned stores. It is assembly because the compiler makes
    // one store of two halves. The first half is extracted, too: names of half registers are wrong from the 16th on.
    unsafe {
        std::arch::asm!(
            "vextracti64x4 ymmword ptr [{to}], {words}, 0",
            "vextracti64x4 ymmword ptr [{to} + 32], {words}, 1",
            words = in(zmm_reg) words, to = in(reg) to,
            options(nostack, preserves_flags)
        );
    }
}

/// The entries at eight indices. Each is loaded at once, as [`Entry::load`] does.
/// # Safety
/// The indices are in range.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
// SAFETY: the caller keeps the contract.
pub(crate) unsafe fn load_entries<const GATHERS: bool>(entries: &[Entry], indices: __m512i) -> __m512i {
    // SAFETY: an entry is a word, and the indices are in range by the caller's contract.
    unsafe { load_words::<GATHERS>(entries.as_ptr().cast(), indices) }
}

/// The words at eight indices from `base`, which a writer may change. Each is loaded at once, by an acquiring load.
/// # Safety
/// There are words at these indices.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
// SAFETY: the caller keeps the contract.
pub(crate) unsafe fn load_words<const GATHERS: bool>(base: *const u64, indices: __m512i) -> __m512i {
    if GATHERS {
        // SAFETY: by the caller's contract.
        unsafe { gather_words(base, indices) }
    } else {
        // SAFETY: as above.
        unsafe { load_each(base, indices) }
    }
}

/// [`load_words`] by one instruction. It loads each aligned word at once: elements of a gather are loads of their own.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
// SAFETY: the caller keeps the contract.
unsafe fn gather_words(base: *const u64, indices: __m512i) -> __m512i {
    let words;
    // SAFETY: eight bytes each are loaded at indices that are in range by the caller's contract.
    unsafe {
        std::arch::asm!(
            "kxnorw {all}, {all}, {all}",
            "vpxorq {words}, {words}, {words}",
            "vpgatherqq {words}{{{all}}}, [{base} + 8*{indices}]",
            words = out(zmm_reg) words, all = out(kreg) _, indices = in(zmm_reg) indices, base = in(reg) base,
            options(readonly, nostack, preserves_flags)
        );
    }
    words
}

/// [`load_words`] one by one.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
// SAFETY: the caller keeps the contract.
unsafe fn load_each(base: *const u64, indices: __m512i) -> __m512i {
    #[repr(align(64))]
    struct Indices(MaybeUninit<[u64; 8]>);
    let mut index = Indices(MaybeUninit::uninit());
    let index: *mut u64 = index.0.as_mut_ptr().cast();
    let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
    // SAFETY: the indices are stored to an array of eight words, and read from there. Eight bytes each are loaded at
    // indices that are in range by the caller's contract. Loads of x86 are acquiring ones.
    unsafe {
        store_words(index, indices);
        std::arch::asm!(
            "mov {i}, qword ptr [{at}]",
            "mov {j}, qword ptr [{at} + 8]",
            "vmovq {a}, qword ptr [{base} + 8*{i}]",
            "vmovhps {a}, {a}, qword ptr [{base} + 8*{j}]",
            "mov {i}, qword ptr [{at} + 16]",
            "mov {j}, qword ptr [{at} + 24]",
            "vmovq {b}, qword ptr [{base} + 8*{i}]",
            "vmovhps {b}, {b}, qword ptr [{base} + 8*{j}]",
            "mov {i}, qword ptr [{at} + 32]",
            "mov {j}, qword ptr [{at} + 40]",
            "vmovq {c}, qword ptr [{base} + 8*{i}]",
            "vmovhps {c}, {c}, qword ptr [{base} + 8*{j}]",
            "mov {i}, qword ptr [{at} + 48]",
            "mov {j}, qword ptr [{at} + 56]",
            "vmovq {d}, qword ptr [{base} + 8*{i}]",
            "vmovhps {d}, {d}, qword ptr [{base} + 8*{j}]",
            a = out(xmm_reg) a, b = out(xmm_reg) b, c = out(xmm_reg) c, d = out(xmm_reg) d,
            i = out(reg) _, j = out(reg) _, at = in(reg) index, base = in(reg) base,
            options(readonly, nostack, preserves_flags)
        );
    }
    let half = |low, high| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(half(a, b)), half(c, d))
}

/// A line, which a writer may change. Each of its words is loaded at once, by an acquiring load.
/// # Safety
/// There are 64 bytes, and they are aligned to their size.
#[inline]
#[target_feature(enable = "avx512f")]
// SAFETY: the caller keeps the contract.
pub(crate) unsafe fn load_line(line: *const u8) -> __m512i {
    let words;
    // SAFETY: 64 bytes that are there by the caller's contract, and aligned. It is assembly because the compiler may
    // assume of its own loads that no one writes at the same time.
    unsafe {
        std::arch::asm!(
            "vmovdqa64 {words}, zmmword ptr [{line}]",
            words = out(zmm_reg) words, line = in(reg) line,
            options(readonly, nostack, preserves_flags)
        );
    }
    words
}

/// [`mix64`](crate::hash::mix64) in each lane. The steps of one vector follow those of the others, so that all are under
/// way: the product of a vector takes 15 cycles, and the next may begin every second cycle.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(crate) fn mix<const N: usize>(mut vectors: [__m512i; N]) -> [__m512i; N] {
    for factor in [MIX_1, MIX_2] {
        vectors.iter_mut().for_each(|vector| *vector = _mm512_mullo_epi64(fold(*vector), set(factor)));
    }
    vectors.iter_mut().for_each(|vector| *vector = fold(*vector));
    vectors
}

/// `x ^ (x >> 33)`.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(x: __m512i) -> __m512i {
    _mm512_xor_si512(x, _mm512_srli_epi64::<{ MIX_SHIFT }>(x))
}

/// A word in all lanes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn set(word: u64) -> __m512i {
    _mm512_set1_epi64(word.cast_signed())
}

/// Eight words, one a lane.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load(words: &[u64; 8]) -> __m512i {
    // SAFETY: eight words are 64 bytes. An unaligned load.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

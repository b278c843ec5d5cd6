//! Loads of words that are scattered over memory and that a writer may change, straight into vector registers.
//!
//! The limit of a lookup loop is often the one execution port that moves values from general registers to vector
//! registers. So words must be loaded from memory into vector registers. The compiler does not do that for atomic loads;
//! hence the assembly. A gather would do it too, but takes several times as long on some processors.

#![expect(unsafe_code, reason = "loads by assembly")]

use std::arch::x86_64::*;

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
    // one store of two halves.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 ymmword ptr [{to}], {words:y}",
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
pub(crate) unsafe fn load_entries(entries: &[Entry], indices: __m512i) -> __m512i {
    #[repr(align(64))]
    struct Indices([u64; 8]);
    let mut index = Indices([0; 8]);
    let words;
    // SAFETY: the indices are stored to an array of eight words, and read from there. Eight bytes each are loaded at
    // indices that are in range by the caller's contract. Loads of x86 are acquiring ones.
    unsafe {
        store_words(index.0.as_mut_ptr(), indices);
        std::arch::asm!(
            "mov {i}, qword ptr [{at}]",
            "mov {j}, qword ptr [{at} + 8]",
            "vmovq {a:x}, qword ptr [{base} + 8*{i}]",
            "vmovhps {a:x}, {a:x}, qword ptr [{base} + 8*{j}]",
            "mov {i}, qword ptr [{at} + 16]",
            "mov {j}, qword ptr [{at} + 24]",
            "vmovq {b:x}, qword ptr [{base} + 8*{i}]",
            "vmovhps {b:x}, {b:x}, qword ptr [{base} + 8*{j}]",
            "mov {i}, qword ptr [{at} + 32]",
            "mov {j}, qword ptr [{at} + 40]",
            "vmovq {c:x}, qword ptr [{base} + 8*{i}]",
            "vmovhps {c:x}, {c:x}, qword ptr [{base} + 8*{j}]",
            "mov {i}, qword ptr [{at} + 48]",
            "mov {j}, qword ptr [{at} + 56]",
            "vmovq {d:x}, qword ptr [{base} + 8*{i}]",
            "vmovhps {d:x}, {d:x}, qword ptr [{base} + 8*{j}]",
            "vinserti128 {a:y}, {a:y}, {b:x}, 1",
            "vinserti128 {c:y}, {c:y}, {d:x}, 1",
            "vinserti64x4 {a:z}, {a:z}, {c:y}, 1",
            a = out(zmm_reg) words, b = out(zmm_reg) _, c = out(zmm_reg) _, d = out(zmm_reg) _,
            i = out(reg) _, j = out(reg) _, at = in(reg) index.0.as_ptr(), base = in(reg) entries.as_ptr(),
            options(readonly, nostack, preserves_flags)
        );
    }
    words
}

//! Steps of a burst's lookup with AVX2, for four names at a time. The scalar functions in [`kernel`](super)
//! give the same results.
//!
//! The limit is the one execution port that moves values from general registers to vector registers. So words must be
//! loaded from memory straight into vector registers. The compiler does not do that for atomic loads; hence the
//! assembly.

#![expect(unsafe_code, reason = "loads from and stores into arrays of a burst by vectors")]

use std::arch::x86_64::*;

use super::super::layout::{Layout, MAX_PARTS};
use super::{Cells, Served, Spots, Steps, finish_burst, locate_from, read_cells, slots_from};
use crate::base::arena::LINE;
use crate::base::part::prefix_of;
use crate::base::prefetch::BURST;
use crate::hash::Digest;
use crate::hash::tweak::{MIX, TWEAK_SPREAD};
use crate::publish::Entry;

const LANES: usize = 4;

pub(super) struct Avx2;

impl Steps for Avx2 {
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    // SAFETY: the caller has checked the processor.
    unsafe fn locate(served: &Served<'_>, cells: impl Cells, digests: &[Digest], spots: &mut Spots) {
        let whole = digests.len() - digests.len() % LANES;
        spots.n = digests.len();
        locate_whole(served, cells, &digests[..whole], spots);
        locate_from(whole, served, cells, digests, spots);
        if served.prefetch {
            // A separate loop: in the loop above the compiler would extract the addresses from the vector register one
            // by one.
            spots.prefetch(cells);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    // SAFETY: the caller keeps the contract.
    unsafe fn read<C: Cells, const PARTS: usize>(
        layout: &Layout,
        cells: C,
        digests: &[Digest],
        spots: &Spots,
        values: &mut [u64],
    ) -> u32 {
        let whole = digests.len() - digests.len() % LANES;
        let mut slots = [[0; MAX_PARTS]; BURST];
        // SAFETY: by the caller's contract; slots are inside a bucket for any digest and tweak.
        unsafe {
            let kept = slots_whole(layout, &digests[..whole], spots, &mut slots);
            let rest = slots_from(whole, layout, cells, digests, spots, &mut slots);
            read_cells::<C, PARTS>(cells, spots, &slots, values);
            kept | rest
        }
    }
}

/// As [`super::bursts`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn bursts<C: Cells, const PARTS: usize>(
    served: &Served<'_>,
    layout: &Layout,
    cells: C,
    digests: &[Digest],
    values: &mut [u64],
) {
    super::bursts::<Avx2, C, PARTS>(served, layout, cells, digests, values);
}

/// As [`finish_burst`].
/// # Safety
/// As for [`finish_burst`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
// SAFETY: the caller keeps the contract.
pub(super) unsafe fn finish<C: Cells, const PARTS: usize>(
    served: &Served<'_>,
    layout: &Layout,
    cells: C,
    digests: &[Digest],
    spots: &Spots,
    values: &mut [u64],
) {
    // SAFETY: by the caller's contract.
    unsafe { finish_burst::<Avx2, C, PARTS>(served, layout, cells, digests, spots, values) };
}

/// Step 1 for a multiple of four digests.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn locate_whole(served: &Served<'_>, cells: impl Cells, digests: &[Digest], spots: &mut Spots) {
    let base = _mm256_set1_epi64x(served.base as i64);
    let mask16 = _mm256_set1_epi64x(0xFFFF);
    let log_lines = _mm_cvtsi64_si128(cells.log_lines().into());
    let (digests, _) = digests.as_chunks::<LANES>();
    let (buckets, _) = spots.buckets.as_chunks_mut::<LANES>();
    for (digests, buckets) in digests.iter().zip(buckets) {
        let index = digests.map(|digest| prefix_of(digest.0, served.depth));
        // SAFETY: the directory has 2^depth entries, and each index has depth bits.
        let entry = unsafe { entries(served.entries, index) };
        // SAFETY: four digests and four addresses are 32 bytes each. Unaligned loads and stores.
        unsafe {
            let digest = _mm256_loadu_si256(digests.as_ptr().cast());
            let product = _mm256_mul_epu32(_mm256_srli_epi64::<8>(digest), _mm256_and_si256(entry, mask16));
            let index = _mm256_sll_epi64(_mm256_srli_epi64::<32>(product), log_lines);
            let line = _mm256_add_epi64(_mm256_srli_epi64::<32>(entry), index);
            let spot = _mm256_add_epi64(base, _mm256_slli_epi64::<{ LINE.ilog2() as i32 }>(line));
            _mm256_storeu_si256(buckets.as_mut_ptr().cast(), spot);
        }
    }
}

/// Loads four entries of the directory. Each is loaded at once, as [`Entry::load`] does.
/// # Safety
/// The indices are in range.
#[inline]
#[target_feature(enable = "avx2")]
// SAFETY: the caller keeps the contract.
unsafe fn entries(entries: &[Entry], index: [usize; 4]) -> __m256i {
    let words;
    // SAFETY: eight bytes each at indices that are in range by the caller's contract. Loads of x86 are acquiring ones.
    unsafe {
        std::arch::asm!(
            "vmovq {low:x}, qword ptr [{base} + 8*{i0}]",
            "vmovhps {low:x}, {low:x}, qword ptr [{base} + 8*{i1}]",
            "vmovq {high:x}, qword ptr [{base} + 8*{i2}]",
            "vmovhps {high:x}, {high:x}, qword ptr [{base} + 8*{i3}]",
            "vinserti128 {low:y}, {low:y}, {high:x}, 1",
            low = out(ymm_reg) words, high = out(ymm_reg) _, base = in(reg) entries.as_ptr(),
            i0 = in(reg) index[0], i1 = in(reg) index[1], i2 = in(reg) index[2], i3 = in(reg) index[3],
            options(readonly, nostack, preserves_flags)
        );
    }
    words
}

/// Loads the headers of four buckets, one per 64-bit lane. The two bytes of a header are read and written at once.
/// # Safety
/// The buckets are still there.
#[inline]
#[target_feature(enable = "avx2")]
// SAFETY: the caller keeps the contract.
unsafe fn headers(bucket: [*const u8; 4]) -> __m256i {
    let words;
    // SAFETY: the first two bytes of lines that are there by the caller's contract.
    unsafe {
        std::arch::asm!(
            "vpxor {words:x}, {words:x}, {words:x}",
            "vpinsrw {words:x}, {words:x}, word ptr [{p0}], 0",
            "vpinsrw {words:x}, {words:x}, word ptr [{p1}], 1",
            "vpinsrw {words:x}, {words:x}, word ptr [{p2}], 2",
            "vpinsrw {words:x}, {words:x}, word ptr [{p3}], 3",
            "vpmovzxwq {words:y}, {words:x}",
            words = out(ymm_reg) words,
            p0 = in(reg) bucket[0], p1 = in(reg) bucket[1], p2 = in(reg) bucket[2], p3 = in(reg) bucket[3],
            options(readonly, nostack, preserves_flags)
        );
    }
    words
}

/// Steps 2 and 3 for a multiple of four digests. AVX2 has no 64-bit multiplication, so the product is composed of three
/// 32-bit products. One instruction reduces its four 16-bit numbers.
/// # Safety
/// The spots are written, and their buckets are still there.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
// SAFETY: the caller keeps the contract.
unsafe fn slots_whole(
    layout: &Layout,
    digests: &[Digest],
    spots: &Spots,
    slots: &mut [[u16; MAX_PARTS]; BURST],
) -> u32 {
    let mix_low = _mm256_set1_epi64x((MIX & 0xFFFF_FFFF) as i64);
    let mix_high = _mm256_set1_epi64x((MIX >> 32) as i64);
    let spread = _mm256_set1_epi64x(TWEAK_SPREAD as i64);
    let byte = _mm256_set1_epi64x(0xFF);
    let bit = _mm256_set1_epi64x(1);
    let lengths = _mm256_set1_epi64x(layout.lengths.cast_signed());
    let starts = _mm256_set1_epi64x(layout.starts.cast_signed());
    let (digests, _) = digests.as_chunks::<LANES>();
    let (slots, _) = slots.as_chunks_mut::<LANES>();
    let mut kept = 0;
    for (at, (digests, slots)) in (0..).step_by(LANES).zip(digests.iter().zip(slots)) {
        // SAFETY: four digests and the slots of four names are 32 bytes each. Unaligned loads and stores. The spots are
        // written by the caller's contract.
        unsafe {
            let spot = |name: usize| spots.bucket(at + name);
            let header = headers([spot(0), spot(1), spot(2), spot(3)]);
            let digest = _mm256_loadu_si256(digests.as_ptr().cast());
            let tweak = _mm256_and_si256(header, byte);
            let y = _mm256_xor_si256(digest, _mm256_mul_epu32(tweak, spread));
            let low = _mm256_mul_epu32(y, mix_low);
            let cross =
                _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64::<32>(y), mix_low), _mm256_mul_epu32(y, mix_high));
            let x = _mm256_add_epi64(low, _mm256_slli_epi64::<32>(cross));
            let x = _mm256_xor_si256(x, _mm256_srli_epi64::<32>(x));
            let slot = _mm256_add_epi16(multiply_high(x, lengths), starts);
            _mm256_storeu_si256(slots.as_mut_ptr().cast(), slot);
            // As `rank`: a byte minus its highest bit.
            let highest = _mm256_and_si256(_mm256_srli_epi64::<7>(digest), bit);
            let rank = _mm256_sub_epi64(_mm256_and_si256(digest, byte), highest);
            let keeps = _mm256_castsi256_pd(_mm256_cmpgt_epi64(_mm256_srli_epi64::<8>(header), rank));
            kept |= _mm256_movemask_pd(keeps).cast_unsigned() << at;
        }
    }
    kept
}

/// The upper halves of sixteen 16-bit products. LLVM replaces the intrinsic by six instructions, so this is assembly.
#[inline]
#[target_feature(enable = "avx2")]
fn multiply_high(a: __m256i, b: __m256i) -> __m256i {
    let product;
    // SAFETY: one instruction on registers.
    unsafe {
        std::arch::asm!("vpmulhuw {0}, {1}, {2}", out(ymm_reg) product, in(ymm_reg) a, in(ymm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    product
}

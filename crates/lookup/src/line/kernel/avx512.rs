//! Steps of a burst's lookup with AVX-512, for eight names at a time, where a bucket is one line of bytes.
//!
//! A register holds a whole line. So the three or four cells of a name are picked by one byte permutation (`vpermb`),
//! whose indices are the name's slots, and eight names need eight loads. The scalar functions in [`kernel`](super) give
//! the same results.
//!
//! The last vector of a burst may have lanes without a name. Their digest is 0, so their spots are lines of the first
//! group. They are read, and nothing is stored for them.

#![expect(unsafe_code, reason = "loads from and stores into arrays of a burst by vectors")]

use std::arch::x86_64::*;

use super::super::layout::Layout;
use super::{Bumped, Cells, Served, Spots, Steps, finish_burst};
use crate::base::arena::LINE;
use crate::base::vectors::{load_entries, load_line, store_words};
use crate::hash::Digest;
use crate::hash::tweak::{MIX, TWEAK_SPREAD};

const LANES: usize = 8;
/// Every lane has a name.
const ALL: __mmask8 = 0xFF;

/// With entries that are loaded by gathers, or one by one.
pub(super) struct Avx512<const GATHERS: bool>;

impl<const GATHERS: bool> Steps for Avx512<GATHERS> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,popcnt")]
    // SAFETY: the caller has checked the processor.
    unsafe fn locate(served: &Served<'_>, cells: impl Cells, digests: &[Digest], spots: &mut Spots) {
        spots.n = digests.len();
        locate_all::<GATHERS>(served, digests, spots);
        if served.prefetch {
            spots.prefetch(cells);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,popcnt")]
    // SAFETY: the caller keeps the contract.
    unsafe fn read<C: Cells, const PARTS: usize>(
        layout: &Layout,
        _cells: C,
        digests: &[Digest],
        spots: &Spots,
        values: &mut [u64],
    ) -> u32 {
        // SAFETY: by the caller's contract.
        unsafe { read_lines::<PARTS>(layout, digests, spots, values) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,popcnt")]
    // SAFETY: the caller has checked the processor.
    unsafe fn note(bumped: u32, from: usize, list: &mut Bumped) {
        let numbers: [u16; 32] = std::array::from_fn(|number| number as u16);
        let room = &mut list.names[list.n..][..numbers.len()];
        // SAFETY: 32 numbers are 64 bytes, and so is the room. Unaligned load and store.
        unsafe {
            let all = _mm512_add_epi16(_mm512_loadu_si512(numbers.as_ptr().cast()), _mm512_set1_epi16(from as i16));
            _mm512_storeu_si512(room.as_mut_ptr().cast(), _mm512_maskz_compress_epi16(bumped, all));
        }
        list.n += bumped.count_ones() as usize;
    }
}

/// As [`super::bursts`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,popcnt")]
pub(super) fn bursts<const GATHERS: bool, C: Cells, const PARTS: usize>(
    served: &Served<'_>,
    layout: &Layout,
    cells: C,
    digests: &[Digest],
    values: &mut [u64],
) {
    super::bursts::<Avx512<GATHERS>, C, PARTS>(served, layout, cells, digests, values);
}

/// As [`finish_burst`].
/// # Safety
/// As for [`finish_burst`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,popcnt")]
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
    unsafe { finish_burst::<Avx512<false>, C, PARTS>(served, layout, cells, digests, spots, values) };
}

/// Hands eight digests at a time to `each`, with the index of the first and the lanes that have a name.
///
/// Whole vectors are loaded without a mask: digests are stored shortly before, and a load by a mask would wait until they
/// are in the cache.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,popcnt")]
fn by_eight(digests: &[Digest], mut each: impl FnMut(__m512i, usize, __mmask8)) {
    let (eights, rest) = digests.as_chunks::<LANES>();
    for (at, eight) in (0..).step_by(LANES).zip(eights) {
        // SAFETY: eight digests are 64 bytes.
        each(unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) }, at, ALL);
    }
    if !rest.is_empty() {
        let lanes = ALL >> (LANES - rest.len());
        // SAFETY: as many digests are loaded as there are.
        each(unsafe { _mm512_maskz_loadu_epi64(lanes, rest.as_ptr().cast()) }, digests.len() - rest.len(), lanes);
    }
}

/// Step 1.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,popcnt")]
fn locate_all<const GATHERS: bool>(served: &Served<'_>, digests: &[Digest], spots: &mut Spots) {
    let base = _mm512_set1_epi64(served.base as i64);
    let mask16 = _mm512_set1_epi64(0xFFFF);
    let depth_shift = _mm_cvtsi64_si128(64 - i64::from(served.depth));
    by_eight(digests, |digest, at, _| {
        // SAFETY: the index of an entry has `depth` bits, and the directory 2^depth entries. The spots are an array of a
        // multiple of eight words.
        unsafe {
            let entry = load_entries::<GATHERS>(served.entries, _mm512_srl_epi64(digest, depth_shift));
            let product = _mm512_mul_epu32(_mm512_srli_epi64::<8>(digest), _mm512_and_si512(entry, mask16));
            let line = _mm512_add_epi64(_mm512_srli_epi64::<32>(entry), _mm512_srli_epi64::<32>(product));
            let spot = _mm512_add_epi64(base, _mm512_slli_epi64::<{ LINE.ilog2() }>(line));
            store_words(spots.buckets.as_mut_ptr().add(at).cast(), spot);
        }
    });
}

/// Steps 2 to 4.
/// # Safety
/// The spots are written, and their buckets are still there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,popcnt")]
// SAFETY: the caller keeps the contract.
unsafe fn read_lines<const PARTS: usize>(
    layout: &Layout,
    digests: &[Digest],
    spots: &Spots,
    values: &mut [u64],
) -> u32 {
    let mix = _mm512_set1_epi64(MIX.cast_signed());
    let spread = _mm512_set1_epi64(TWEAK_SPREAD.cast_signed());
    let byte = _mm512_set1_epi64(0xFF);
    let bit = _mm512_set1_epi64(1);
    let lengths = _mm512_set1_epi64(layout.lengths.cast_signed());
    let starts = _mm512_set1_epi64(layout.starts.cast_signed());
    let mut kept = 0;
    by_eight(digests, |digest, at, lanes| {
        // SAFETY: by the caller's contract; `locate_all` writes eight spots at a time.
        let load = |lane: usize| unsafe { load_line(spots.bucket(at + lane)) };
        // Not by `array::from_fn`, which is compiled without these instructions.
        let line = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];

        let header = first_words(line);
        let tweak = _mm512_and_si512(header, byte);
        let x = _mm512_mullo_epi64(_mm512_xor_si512(digest, _mm512_mul_epu32(tweak, spread)), mix);
        let x = _mm512_xor_si512(x, _mm512_srli_epi64::<32>(x));
        let slots = _mm512_add_epi16(multiply_high(x, lengths), starts);
        // As `rank`: a byte minus its highest bit.
        let highest = _mm512_and_si512(_mm512_srli_epi64::<7>(digest), bit);
        let rank = _mm512_sub_epi64(_mm512_and_si512(digest, byte), highest);
        let threshold = _mm512_and_si512(_mm512_srli_epi64::<8>(header), byte);
        kept |= u32::from(_mm512_cmpgt_epu64_mask(threshold, rank)) << at;

        // Each lane takes the bytes of its own line. The odd bytes of the slots are 0, and so fetch byte 0.
        let pick = |first: usize| {
            let own = _mm512_permutexvar_epi8(slots, line[first]);
            _mm512_mask_permutexvar_epi8(own, 0xFF << (8 * (first + 1)), slots, line[first + 1])
        };
        let low = _mm512_mask_blend_epi64(0b0000_1100, pick(0), pick(2));
        let high = _mm512_mask_blend_epi64(0b1100_0000, pick(4), pick(6));
        let cells = _mm512_mask_blend_epi64(0b1111_0000, low, high);
        let two = _mm512_srli_epi64::<16>(cells);
        // 0x96 is the XOR of three.
        let three = _mm512_ternarylogic_epi64::<0x96>(cells, two, _mm512_srli_epi64::<32>(cells));
        let sum = if PARTS == 4 { _mm512_xor_si512(three, _mm512_srli_epi64::<48>(cells)) } else { three };
        let sum = _mm512_and_si512(sum, byte);
        let to: *mut i64 = values[at..].as_mut_ptr().cast();
        // SAFETY: there are as many values as digests, and this many lanes are stored. A store by a mask would delay the
        // next read of the values.
        unsafe {
            match lanes {
                ALL => _mm512_storeu_si512(to.cast(), sum),
                _ => _mm512_mask_storeu_epi64(to, lanes, sum),
            }
        }
    });
    kept
}

/// The first word of each line.
#[inline]
#[target_feature(enable = "avx512f")]
fn first_words(line: [__m512i; LANES]) -> __m512i {
    let pair = |first: usize| _mm512_castsi512_si128(_mm512_unpacklo_epi64(line[first], line[first + 1]));
    let four = |first: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(pair(first)), pair(first + 2));
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(four(0)), four(4))
}

/// The upper halves of 32 16-bit products. LLVM replaces the intrinsic by several instructions, so this is assembly.
#[inline]
#[target_feature(enable = "avx512bw")]
fn multiply_high(a: __m512i, b: __m512i) -> __m512i {
    let product;
    // SAFETY: one instruction on registers.
    unsafe {
        std::arch::asm!("vpmulhuw {0}, {1}, {2}", out(zmm_reg) product, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    product
}

//! Loops 1 and 2 with AVX-512, eight digests at a time. The product with MIX is one instruction (`vpmullq`).
//!
//! The last vector of a burst may have lanes without a name. Their digest is 0, so their spots are inside the first
//! shard, and they are not read.

#![expect(unsafe_code, reason = "loads from and stores into arrays of a burst by vectors")]

use std::arch::x86_64::*;

use super::super::sizing::Sizing;
use super::{Cell, Layout, Locate, Spots, Words};
use crate::base::prefetch::BURST;
use crate::base::vectors::{load_entries, store_words};
use crate::hash::Digest;
use crate::hash::tweak::{MIX, TWEAK_SPREAD};

const LANES: usize = 8;

/// With entries that are loaded by gathers, or one by one.
pub(super) struct Avx512<const GATHERS: bool>;

impl<const GATHERS: bool> Locate for Avx512<GATHERS> {
    // SAFETY: the caller has checked that the processor has AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
    unsafe fn locate<S: Sizing, L: Layout>(words: &Words<'_>, _layout: L, digests: &[Digest], spots: &mut Spots) {
        spots.n = digests.len();
        spots.flags = locate_all::<GATHERS, L>(words, digests, spots);
        if words.prefetch {
            spots.prefetch(words.base);
        }
    }
}

/// As [`super::bursts`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn bursts<const GATHERS: bool, S: Sizing, C: Cell>(
    words: &Words<'_>,
    cell: C,
    digests: &[Digest],
    values: &mut [u64],
) {
    super::bursts::<Avx512<GATHERS>, S, C>(words, cell, digests, values);
}

/// The spots of up to [`BURST`] digests. Returns the OR of the entries.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
fn locate_all<const GATHERS: bool, L: Layout>(words: &Words<'_>, digests: &[Digest], spots: &mut Spots) -> u64 {
    debug_assert!(digests.len() <= BURST);
    let log_bytes = L::NATIVE.expect("the vector loop is for cells that are integers");
    let mix = _mm512_set1_epi64(MIX.cast_signed());
    let spread = _mm512_set1_epi64(TWEAK_SPREAD.cast_signed());
    let mask15 = _mm512_set1_epi64(0x7FFF);
    let mask16 = _mm512_set1_epi64(0xFFFF);
    let depth_shift = _mm_cvtsi64_si128(64 - i64::from(words.depth));
    let cells_shift = _mm_cvtsi64_si128(3 - i64::from(log_bytes));
    let bytes_shift = _mm_cvtsi64_si128(i64::from(log_bytes));
    let mut flags = _mm512_setzero_si512();
    let mut locate = |digest: __m512i, at: usize| {
        // SAFETY: the index of an entry has `depth` bits, and the directory 2^depth entries. The spots are arrays of BURST
        // words, of which eight are stored at a multiple of eight.
        unsafe {
            let entry = load_entries::<GATHERS>(words.entries, _mm512_srl_epi64(digest, depth_shift));
            _mm512_storeu_si512(spots.entries.as_mut_ptr().add(at).cast(), entry);
            flags = _mm512_or_si512(flags, entry);
            let side_words = _mm512_and_si512(entry, mask16);
            let tweak = _mm512_and_si512(_mm512_srli_epi64::<16>(entry), mask15);
            let shard = _mm512_slli_epi64::<6>(_mm512_srli_epi64::<32>(entry));
            let side = _mm512_sll_epi64(side_words, cells_shift);

            let x = _mm512_mullo_epi64(_mm512_xor_si512(digest, _mm512_mul_epu32(tweak, spread)), mix);
            let high_half = _mm512_srli_epi64::<32>(x);
            let low_half = _mm512_xor_si512(x, high_half);
            let first = _mm512_srli_epi64::<32>(_mm512_mul_epu32(high_half, side));
            let second = _mm512_srli_epi64::<32>(_mm512_mul_epu32(low_half, side));

            let second_side = _mm512_add_epi64(shard, _mm512_slli_epi64::<3>(side_words));
            let first = _mm512_add_epi64(shard, _mm512_sll_epi64(first, bytes_shift));
            let second = _mm512_add_epi64(second_side, _mm512_sll_epi64(second, bytes_shift));
            store_words(spots.first.as_mut_ptr().add(at).cast(), first);
            store_words(spots.second.as_mut_ptr().add(at).cast(), second);
        }
    };
    let (eights, rest) = digests.as_chunks::<LANES>();
    for (at, eight) in (0..).step_by(LANES).zip(eights) {
        // Not by a mask: the digests were stored just now, and a load by a mask would wait until they are in the cache.
        // SAFETY: eight digests are 64 bytes.
        locate(unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) }, at);
    }
    if !rest.is_empty() {
        let lanes = 0xFF >> (LANES - rest.len());
        // SAFETY: as many digests are loaded as there are.
        locate(unsafe { _mm512_maskz_loadu_epi64(lanes, rest.as_ptr().cast()) }, digests.len() - rest.len());
    }
    _mm512_reduce_or_epi64(flags).cast_unsigned()
}

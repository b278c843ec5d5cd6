//! Eight names per vector. There are 64-bit products of the lower halves (`vpmullq`), so only the upper half of
//! `low64(a) * word` needs work:
//! ```text
//! high64(a * word) = high64(low64(a) * word) + high64(a) * word                        modulo 2^64
//! ```
//! * Names of up to 6 bytes, with IFMA, which multiplies 52-bit numbers: with `low64(a) = l1 * 2^52 + l0`,
//!   `high64(low64(a) * word) = (l1 * word + (l0 * word >> 52)) >> 12`. One instruction adds the upper part of the
//!   second product.
//! * Other names: four products of 32-bit limbs, as in the AVX2 loop.

#![expect(unsafe_code, reason = "loads names and stores digests as vectors")]

use std::arch::x86_64::*;

use super::{Batch, MulAdd, second_mask};
use crate::base::vectors::{load, mix, set};
use crate::hash::Digest;

/// The longest names of the loop with IFMA. A word of 6 bytes is below 2^52.
pub(super) const MAX_IFMA_LEN: usize = 6;
/// Names per vector.
const LANES: usize = 8;

/// The digests of names of up to [`MAX_IFMA_LEN`] bytes.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
pub(super) fn digest_52(batch: &Batch, names: &[u64], out: &mut [Digest]) {
    let by = By52::new(batch);
    let (bursts, names) = names.as_chunks::<{ ABREAST * LANES }>();
    let (out_bursts, out) = out.as_chunks_mut::<{ ABREAST * LANES }>();
    for (names, out) in bursts.iter().zip(out_bursts) {
        let mut words = [set(0); ABREAST];
        for (word, names) in words.iter_mut().zip(names.as_chunks().0) {
            *word = load(names);
        }
        for (digests, out) in by.digests(words).into_iter().zip(out.as_chunks_mut().0) {
            store(out, digests);
        }
    }
    let (names, names_rest) = names.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for (names, out) in names.iter().zip(out) {
        store(out, by.digests([load(names)])[0]);
    }
    batch.digest_all(names_rest, out_rest);
}

/// Vectors whose steps are taken in turn, so that the products of one hide the latency of those of the others.
const ABREAST: usize = 4;

/// The constants of [`digest_52`], in all lanes.
#[derive(Clone, Copy)]
struct By52 {
    l0: __m512i,
    l1: __m512i,
    high: __m512i,
    addend: __m512i,
    mask: __m512i,
}

impl By52 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(batch: &Batch) -> Self {
        let [low, high] = halves(batch.a);
        Self {
            l0: set(low & ((1 << 52) - 1)),
            l1: set(low >> 52),
            high: set(high),
            addend: set(batch.addend),
            mask: set(batch.mask),
        }
    }

    /// The digests of `N` vectors of words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
    fn digests<const N: usize>(&self, mut words: [__m512i; N]) -> [__m512i; N] {
        words.iter_mut().for_each(|word| *word = _mm512_and_si512(*word, self.mask));
        let mut carried = words;
        carried.iter_mut().for_each(|word| *word = _mm512_mullo_epi64(*word, self.l1));
        let mut sums = words;
        sums.iter_mut().for_each(|word| *word = _mm512_mullo_epi64(*word, self.high));
        for (carried, word) in carried.iter_mut().zip(words) {
            *carried = _mm512_madd52hi_epu64(*carried, word, self.l0);
        }
        for (sum, carried) in sums.iter_mut().zip(carried) {
            *sum = _mm512_add_epi64(_mm512_add_epi64(*sum, self.addend), _mm512_srli_epi64::<12>(carried));
        }
        mix(sums)
    }
}

/// The digests of names of up to 8 bytes.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
pub(super) fn digest_64(batch: &Batch, names: &[u64], out: &mut [Digest]) {
    let factor = Factor::new(batch.a);
    let (addend, mask) = (set(batch.addend), set(batch.mask));
    let (names, names_rest) = names.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for (names, out) in names.iter().zip(out) {
        let word = _mm512_and_si512(load(names), mask);
        let (_, high) = factor.times(word);
        store(out, mix([_mm512_add_epi64(high, addend)])[0]);
    }
    batch.digest_all(names_rest, out_rest);
}

/// The digests of names of 9 to 16 bytes, each as two words.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
pub(super) fn digest_pairs(hash: &MulAdd, names: &[[u64; 2]], len: usize, out: &mut [Digest]) {
    let by = ByTwo::new(hash, len);
    let mask = set(second_mask(len));
    let first = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    let second = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
    let (names, names_rest) = names.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for (names, out) in names.iter().zip(out) {
        let [four, others] = names.as_flattened().as_chunks::<LANES>().0 else { unreachable!("eight pairs of words") };
        let (four, others) = (load(four), load(others));
        let w1 = _mm512_and_si512(_mm512_permutex2var_epi64(four, second, others), mask);
        store(out, by.digests(_mm512_permutex2var_epi64(four, first, others), w1));
    }
    hash.digest_pairs_one_by_one(names_rest, len, out_rest);
}

/// The digests of the first `n` of names of 16 bytes in two columns, and of those that share a vector with the last one.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
pub(super) fn digest_columns<const N: usize>(hash: &MulAdd, columns: [&[u64; N]; 2], n: usize, out: &mut [Digest; N]) {
    let by = ByTwo::new(hash, 16);
    let [first, second] = columns.map(|column| column.as_chunks::<LANES>().0);
    let vectors = first.iter().zip(second).zip(out.as_chunks_mut().0);
    for ((first, second), out) in vectors.take(n.div_ceil(LANES)) {
        store(out, by.digests(load(first), load(second)));
    }
}

/// The digests of names of 9 to 16 bytes that follow one another. Eight names are in two vectors, the first and the last
/// 64 of their bytes; two permutations of bytes make words of them.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512vbmi")]
pub(super) fn digest_long_arrays<const N: usize>(hash: &MulAdd, names: &[[u8; N]], out: &mut [Digest]) {
    assert!(8 < N && N <= 16, "names of two words");
    let by = ByTwo::new(hash, N);
    let [first, second] = const { [places::<N>(0), places::<N>(8)] };
    // SAFETY: 64 bytes each.
    let (first, second) =
        unsafe { (_mm512_loadu_si512((&raw const first).cast()), _mm512_loadu_si512((&raw const second).cast())) };
    // The bytes of second words that belong to their names.
    let lanes = u64::MAX / 0xFF * (0xFF >> (16 - N));
    let (names, names_rest) = names.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for (names, out) in names.iter().zip(out) {
        let bytes = names.as_flattened();
        // SAFETY: there are 8 N bytes, which is more than 64.
        let (begin, end) = unsafe {
            (_mm512_loadu_si512(bytes.as_ptr().cast()), _mm512_loadu_si512(bytes.as_ptr().add(bytes.len() - 64).cast()))
        };
        let w0 = _mm512_permutex2var_epi8(begin, first, end);
        let w1 = _mm512_maskz_permutex2var_epi8(lanes, begin, second, end);
        store(out, by.digests(w0, w1));
    }
    hash.digest_arrays_one_by_one(names_rest, out_rest);
}

/// Where the bytes of eight words are, that at `offset` in each of eight names of `N` bytes: in the first 64 bytes, or, from
/// 64 on, in the last 64. Bytes behind a name are anywhere.
const fn places<const N: usize>(offset: usize) -> [u8; 64] {
    let mut places = [0; 64];
    let mut byte = 0;
    while byte < 64 {
        let place = byte / 8 * N + offset + byte % 8;
        places[byte] = if place < 64 { place as u8 } else { 64 + (place + 64).wrapping_sub(8 * N) as u8 % 64 };
        byte += 1;
    }
    places
}

/// The constants of names of two words, in all lanes.
struct ByTwo {
    a: Factor,
    c: Factor,
    addend: __m512i,
}

impl ByTwo {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(hash: &MulAdd, len: usize) -> Self {
        Self { a: Factor::new(hash.a), c: Factor::new(hash.c), addend: set(hash.addend[len]) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
    fn digests(&self, w0: __m512i, w1: __m512i) -> __m512i {
        let (low, high) = self.a.times(w0);
        let (other_low, other_high) = self.c.times(w1);
        let carries = _mm512_cmplt_epu64_mask(_mm512_add_epi64(low, other_low), low);
        let sum = _mm512_add_epi64(_mm512_add_epi64(high, other_high), self.addend);
        mix([_mm512_mask_add_epi64(sum, carries, sum, set(1))])[0]
    }
}

/// A 128-bit factor, in all lanes.
struct Factor {
    /// The two 32-bit limbs of the lower half, and that half.
    limbs: [__m512i; 2],
    low: __m512i,
    high: __m512i,
}

impl Factor {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(factor: u128) -> Self {
        let [low, high] = halves(factor);
        Self { limbs: [set(low & 0xffff_ffff), set(low >> 32)], low: set(low), high: set(high) }
    }

    /// The two lower words of the products with `word`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn times(&self, word: __m512i) -> (__m512i, __m512i) {
        let [a0, a1] = self.limbs;
        let (x0, x1) = (word, _mm512_srli_epi64::<32>(word));
        let t = _mm512_add_epi64(_mm512_mul_epu32(a1, x0), _mm512_srli_epi64::<32>(_mm512_mul_epu32(a0, x0)));
        let u = _mm512_add_epi64(_mm512_mul_epu32(a0, x1), _mm512_and_si512(t, set(0xffff_ffff)));
        let carries = _mm512_add_epi64(_mm512_srli_epi64::<32>(t), _mm512_srli_epi64::<32>(u));
        let products = _mm512_add_epi64(_mm512_mullo_epi64(word, self.high), _mm512_mul_epu32(a1, x1));
        (_mm512_mullo_epi64(word, self.low), _mm512_add_epi64(products, carries))
    }
}

/// Lower and upper word.
#[inline]
fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(out: &mut [Digest; LANES], digests: __m512i) {
    // SAFETY: a `Digest` is a transparent u64, so eight of them are 64 bytes. An unaligned store.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), digests) };
}

//! Four names per vector, two vectors per round. AVX2 multiplies 32 x 32 -> 64 bits only, so with
//! `a = a3 a2 a1 a0` and `word = x1 x0` in 32-bit limbs:
//! ```text
//! t    = a1*x0 + (a0*x0 >> 32)                     cannot overflow
//! u    = a0*x1 + (t & 0xffffffff)                  cannot overflow
//! high = a2*x0 + a1*x1 + (t >> 32) + (u >> 32) + ((a3*x0 + a2*x1) << 32) + addend
//! ```
//! and a 64-bit product by a constant `k = k1 k0` is `k0*x0 + ((k1*x0 + k0*x1) << 32)`.

#![expect(unsafe_code, reason = "loads names and stores digests as vectors")]

use std::arch::x86_64::*;

use super::Batch;
use crate::hash::{Digest, MIX_1, MIX_2, MIX_SHIFT};

/// The limbs of the constants, one copy per lane.
struct Lanes {
    a: [__m256i; 4],
    addend: __m256i,
    mask: __m256i,
}

#[target_feature(enable = "avx2")]
pub(super) fn digest_all(batch: &Batch, names: &[u64], out: &mut [Digest]) {
    let limb = |i: u32| _mm256_set1_epi64x((batch.a >> (32 * i)) as u32 as i64);
    let lanes = Lanes {
        a: [limb(0), limb(1), limb(2), limb(3)],
        addend: _mm256_set1_epi64x(batch.addend as i64),
        mask: _mm256_set1_epi64x(batch.mask as i64),
    };
    let (names, names_rest) = names.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (names, out) in names.iter().zip(out) {
        // SAFETY: eight words are 64 bytes: two unaligned vectors of 32.
        let (n0, n1) = unsafe {
            let from = names.as_ptr().cast::<__m256i>();
            (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)))
        };
        let d0 = lanes.digest(n0);
        let d1 = lanes.digest(n1);
        // SAFETY: `Digest` is a transparent u64, so eight of them are two unaligned vectors too.
        unsafe {
            let to = out.as_mut_ptr().cast::<__m256i>();
            _mm256_storeu_si256(to, d0);
            _mm256_storeu_si256(to.add(1), d1);
        }
    }
    batch.digest_all(names_rest, out_rest);
}

impl Lanes {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn digest(&self, names: __m256i) -> __m256i {
        let [a0, a1, a2, a3] = self.a;
        let x0 = _mm256_and_si256(names, self.mask);
        let x1 = upper(x0);
        let t = _mm256_add_epi64(_mm256_mul_epu32(a1, x0), _mm256_srli_epi64::<32>(_mm256_mul_epu32(a0, x0)));
        let lower = _mm256_blend_epi32::<0b1010_1010>(t, _mm256_setzero_si256());
        let u = _mm256_add_epi64(_mm256_mul_epu32(a0, x1), lower);
        let shifted = _mm256_add_epi64(_mm256_mul_epu32(a3, x0), _mm256_mul_epu32(a2, x1));
        let products = _mm256_add_epi64(_mm256_mul_epu32(a2, x0), _mm256_mul_epu32(a1, x1));
        let carries = _mm256_add_epi64(_mm256_srli_epi64::<32>(t), _mm256_srli_epi64::<32>(u));
        let high = _mm256_add_epi64(_mm256_add_epi64(products, carries), _mm256_slli_epi64::<32>(shifted));
        mix(_mm256_add_epi64(high, self.addend))
    }
}

/// `mix64` in four lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn mix(x: __m256i) -> __m256i {
    fold(times::<{ MIX_2 as i64 }>(fold(times::<{ MIX_1 as i64 }>(fold(x)))))
}

/// `x ^ (x >> 33)`.
#[inline]
#[target_feature(enable = "avx2")]
fn fold(x: __m256i) -> __m256i {
    _mm256_xor_si256(x, _mm256_srli_epi64::<{ MIX_SHIFT as i32 }>(x))
}

/// `x * K` modulo 2^64.
#[inline]
#[target_feature(enable = "avx2")]
fn times<const K: i64>(x: __m256i) -> __m256i {
    let k0 = _mm256_set1_epi64x(K & 0xffff_ffff);
    let k1 = _mm256_set1_epi64x((K as u64 >> 32) as i64);
    let cross = _mm256_add_epi64(_mm256_mul_epu32(k1, x), _mm256_mul_epu32(k0, upper(x)));
    _mm256_add_epi64(_mm256_mul_epu32(k0, x), _mm256_slli_epi64::<32>(cross))
}

/// Moves the upper halves to where a multiplication reads them. It is a shuffle, to leave the shifters free.
#[inline]
#[target_feature(enable = "avx2")]
fn upper(x: __m256i) -> __m256i {
    _mm256_shuffle_epi32::<0b11_11_01_01>(x)
}

//! Multiply-add over 128 bits for names of up to 16 bytes, with vector loops for batches of one length.
//!
//! ```text
//! digest = mix64(high64(a * w0 + c * w1) + addend[length])      a, c: 128 secret bits; addend: 64, one per length
//! ```
//! where `w0` and `w1` are the name as little-endian words, zero-padded, and the sum is modulo 2^128. For names of up
//! to 8 bytes, `w1` is 0 and its product is not computed. Names above 16 bytes use the folded-multiply chain.
//!
//! Cost of a 6-byte name at 2.6 GHz: one full and one low multiplication and the mix, 1.8 ns in batches, 1.0 with
//! AVX2, 3.3 one by one.
//!
//! Why the sum alone is not a digest: it maps sequential names to an arithmetic progression, whose high bits are far
//! more even than random ones. Structures that assume random positions then fail (measured: 1,373 names close cycles in
//! an Othello of 65,536 sequential MACs, against 0.6 with the mix).

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls vector loops after detecting the processor"))]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use super::wy::Wy;
use super::{Digest, Purpose, SecretKey, mix64, word_of, words_of};
use crate::base::processor::Kernel;
#[cfg(target_arch = "x86_64")]
use crate::base::processor::Vectors;

/// Names up to this length are multiplied and added; longer ones use the chain.
const MAX_LEN: usize = 16;

/// The expanded key.
#[derive(Clone)]
pub(super) struct MulAdd {
    a: u128,
    c: u128,
    addend: [u64; MAX_LEN + 1],
    long: Wy,
}

/// The constants of a batch of names of one length of up to 8 bytes.
#[derive(Clone, Copy)]
pub(super) struct Batch {
    a: u128,
    addend: u64,
    mask: u64,
}

impl MulAdd {
    pub(super) fn new(key: &SecretKey) -> MulAdd {
        let word = |index| key.derive(Purpose::MulAdd, index);
        let double = |low| (u128::from(word(low + 1)) << 64) | u128::from(word(low));
        MulAdd {
            a: double(0),
            c: double(2),
            addend: std::array::from_fn(|len| word(16 + len as u64)),
            long: Wy::new(key),
        }
    }

    /// The factor, low word first, and the addend of names of `len` bytes.
    pub(super) fn constants(&self, len: usize) -> [u64; 3] {
        [self.a as u64, (self.a >> 64) as u64, self.addend[len]]
    }

    #[inline]
    pub(super) fn digest(&self, name: &[u8]) -> u64 {
        let len = name.len();
        if len <= 8 {
            multiply_add(self.a, word_of(name), self.addend[len])
        } else if len <= MAX_LEN {
            let (w0, w1) = words_of(name);
            self.sum_of_two(w0, w1, len)
        } else {
            self.long.digest(name)
        }
    }

    /// The digest of a name of 9 to 16 bytes, as two words.
    #[inline(always)]
    pub(super) fn digest_pair(&self, [w0, w1]: [u64; 2], len: usize) -> Digest {
        Digest(self.sum_of_two(w0, w1 & second_mask(len), len))
    }

    #[inline(always)]
    fn sum_of_two(&self, w0: u64, w1: u64, len: usize) -> u64 {
        let sum = self.a.wrapping_mul(u128::from(w0)).wrapping_add(self.c.wrapping_mul(u128::from(w1)));
        mix64(((sum >> 64) as u64).wrapping_add(self.addend[len]))
    }

    /// The constants for names of `len` bytes.
    #[inline]
    pub(super) fn batch(&self, len: usize) -> Batch {
        assert!(len <= 8, "a word holds names of at most 8 bytes, not {len}");
        let mask = u64::MAX.checked_shr(64 - 8 * len as u32).unwrap_or(0);
        Batch { a: self.a, addend: self.addend[len], mask }
    }

    #[inline]
    pub(super) fn digest_words(&self, kernel: Kernel, names: &[u64], len: usize, out: &mut [Digest]) {
        let batch = self.batch(len);
        match kernel.vectors() {
            // SAFETY: the processor has the kernel.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512Ifma if len <= avx512::MAX_IFMA_LEN => unsafe { avx512::digest_52(&batch, names, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 | Vectors::Avx512Ifma => unsafe { avx512::digest_64(&batch, names, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { avx2::digest_all(&batch, names, out) },
            _ => batch.digest_all(names, out),
        }
    }

    /// The digests of names of 9 to 16 bytes, each as two words.
    #[inline]
    pub(super) fn digest_pairs(&self, kernel: Kernel, names: &[[u64; 2]], len: usize, out: &mut [Digest]) {
        #[cfg(target_arch = "x86_64")]
        if kernel.vectors() >= Vectors::Avx512 {
            // SAFETY: the processor has the kernel.
            unsafe { avx512::digest_pairs(self, names, len, out) };
            return;
        }
        let _ = kernel;
        self.digest_pairs_one_by_one(names, len, out);
    }

    /// The digests of the first `n` of names of 16 bytes that stand in two columns; some behind them are written, too.
    #[inline]
    pub(super) fn digest_columns<const N: usize>(
        &self,
        kernel: Kernel,
        columns: [&[u64; N]; 2],
        n: usize,
        out: &mut [Digest; N],
    ) {
        #[cfg(target_arch = "x86_64")]
        if kernel.vectors() >= Vectors::Avx512 && N.is_multiple_of(8) {
            // SAFETY: the processor has the kernel.
            unsafe { avx512::digest_columns(self, columns, n, out) };
            return;
        }
        let _ = kernel;
        for ((out, &first), &second) in out[..n].iter_mut().zip(columns[0]).zip(columns[1]) {
            *out = self.digest_pair([first, second], MAX_LEN);
        }
    }

    #[inline]
    fn digest_pairs_one_by_one(&self, names: &[[u64; 2]], len: usize, out: &mut [Digest]) {
        names.iter().zip(out).for_each(|(&name, out)| *out = self.digest_pair(name, len));
    }

    /// The digests of names of `N` bytes.
    #[inline]
    pub(super) fn digest_arrays<const N: usize>(&self, kernel: Kernel, names: &[[u8; N]], out: &mut [Digest]) {
        for (names, out) in names.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
            self.digest_piece(kernel, names, out);
        }
    }

    #[inline]
    fn digest_piece<const N: usize>(&self, kernel: Kernel, names: &[[u8; N]], out: &mut [Digest]) {
        let n = names.len();
        match kernel.vectors() {
            Vectors::Scalar => self.digest_arrays_one_by_one(names, out),
            _ if N <= 8 => {
                let mut words = [0; PIECE];
                words.iter_mut().zip(names).for_each(|(word, name)| *word = word_of(name));
                self.digest_words(kernel, &words[..n], N, out);
            }
            // SAFETY: the processor has the kernel.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512Ifma if N <= MAX_LEN => unsafe { avx512::digest_long_arrays(self, names, out) },
            Vectors::Avx512 if N <= MAX_LEN => {
                let mut pairs = [[0; 2]; PIECE];
                pairs.iter_mut().zip(names).for_each(|(pair, name)| *pair = words_of(name).into());
                self.digest_pairs(kernel, &pairs[..n], N, out);
            }
            _ => self.digest_arrays_one_by_one(names, out),
        }
    }

    #[inline]
    fn digest_arrays_one_by_one<const N: usize>(&self, names: &[[u8; N]], out: &mut [Digest]) {
        names.iter().zip(out).for_each(|(name, out)| *out = Digest(self.digest(name)));
    }
}

/// Names of one step of [`MulAdd::digest_arrays`].
const PIECE: usize = 64;

/// The bytes of the second word that belong to a name of 9 to 16 bytes.
#[inline(always)]
fn second_mask(len: usize) -> u64 {
    debug_assert!((9..=MAX_LEN).contains(&len));
    u64::MAX >> (8 * (MAX_LEN - len) as u32 % 64)
}

impl Batch {
    #[inline(always)]
    pub(super) fn digest(&self, name: u64) -> u64 {
        multiply_add(self.a, name & self.mask, self.addend)
    }

    #[inline]
    pub(super) fn digest_all(&self, names: &[u64], out: &mut [Digest]) {
        for (name, out) in names.iter().zip(out) {
            *out = Digest(self.digest(*name));
        }
    }
}

/// `mix64(high64(a * word) + addend)`.
#[inline(always)]
fn multiply_add(a: u128, word: u64, addend: u64) -> u64 {
    let high = (a.wrapping_mul(u128::from(word)) >> 64) as u64;
    mix64(high.wrapping_add(addend))
}

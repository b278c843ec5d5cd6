//! CRC32c made valid: two CRCs over words that are multiplied by secrets.
//!
//! ```text
//! for word i of the name (little-endian, the last one zero-padded), for each of the two halves h:
//!     p = (word ^ offset[h]) * (factor[h] + 2 * i * step[h])        128-bit product, the right factor is odd
//!     crc[h] = crc32c(crc[h], low(p) ^ high(p))
//! digest = mix64((crc[1] << 32 | crc[0]) * last + length * LENGTH_STEP)
//! ```
//! The details avoid two traps. A plain product would pass the top bit of a word through unchanged, where it stays
//! linear and known: hence the fold of the high half. With one factor for all places, an attacker who writes names of
//! more than 32 words could choose *places* at which any one change cancels in the CRC, whatever the factor (a test
//! lists them): hence the step. The halves are still 32-bit CRCs of one polynomial, so this is a heuristic. It is here
//! for comparison, and [`Family::MulAdd`](super::Family::MulAdd) is faster. Cost: two multiplications and two CRC
//! instructions (3 cycles each) per 8 bytes.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls the SSE4.2 path after detecting it"))]

use super::wy::LENGTH_STEP;
use super::{Purpose, SecretKey, mix64, word_of};

/// The secrets of the two halves.
#[derive(Clone)]
pub(super) struct Crc {
    halves: [Half; 2],
    last: u64,
    /// Whether the processor has the CRC instruction, detected once.
    #[cfg(target_arch = "x86_64")]
    sse42: bool,
}

#[derive(Clone)]
struct Half {
    start: u32,
    offset: u64,
    factor: u64,
    step: u64,
}

impl Crc {
    pub(super) fn new(key: &SecretKey) -> Crc {
        let word = |index| key.derive(Purpose::Crc32c, index);
        let half = |h: u64| Half {
            start: word(4 * h) as u32,
            offset: word(4 * h + 1),
            factor: word(4 * h + 2) | 1,
            step: word(4 * h + 3),
        };
        Crc {
            halves: [half(0), half(1)],
            last: word(8) | 1,
            #[cfg(target_arch = "x86_64")]
            sse42: std::arch::is_x86_feature_detected!("sse4.2"),
        }
    }

    #[inline]
    pub(super) fn digest(&self, name: &[u8]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self.sse42 {
            // SAFETY: `sse42` is set only where the processor has SSE4.2.
            return unsafe { sse42::digest(self, name) };
        }
        self.digest_by_table(name)
    }

    /// Without the CRC instruction: the twin that the fast path is tested against.
    fn digest_by_table(&self, name: &[u8]) -> u64 {
        let append = |crc, word: u64| crc32c::crc32c_append(crc, &word.to_le_bytes());
        let [mut low, mut high] = self.halves.each_ref().map(|half| half.start);
        for (i, word) in name.chunks(8).map(word_of).enumerate() {
            low = append(low, self.halves[0].hide(word, i));
            high = append(high, self.halves[1].hide(word, i));
        }
        self.join(low, high, name.len())
    }

    #[inline(always)]
    fn join(&self, low: u32, high: u32, len: usize) -> u64 {
        let joined = (u64::from(high) << 32) | u64::from(low);
        mix64(joined.wrapping_mul(self.last).wrapping_add((len as u64).wrapping_mul(LENGTH_STEP)))
    }
}

impl Half {
    /// Word `i` of the name, multiplied and folded: the input of the CRC.
    #[inline(always)]
    fn hide(&self, word: u64, i: usize) -> u64 {
        let factor = self.factor.wrapping_add(self.step.wrapping_mul(2 * i as u64));
        let product = u128::from(word ^ self.offset) * u128::from(factor);
        product as u64 ^ (product >> 64) as u64
    }
}

#[cfg(target_arch = "x86_64")]
mod sse42 {
    //! The CRC instruction inline: five times as fast on short names as one call of the crate per word.

    use std::arch::x86_64::_mm_crc32_u64;

    use super::{Crc, word_of};

    #[target_feature(enable = "sse4.2")]
    pub(super) fn digest(crc: &Crc, name: &[u8]) -> u64 {
        let [first, second] = &crc.halves;
        // The instruction works on the register, of which a CRC is the complement.
        let (mut low, mut high) = (u64::from(!first.start), u64::from(!second.start));
        let (words, rest) = name.as_chunks::<8>();
        for (i, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            low = _mm_crc32_u64(low, first.hide(word, i));
            high = _mm_crc32_u64(high, second.hide(word, i));
        }
        if !rest.is_empty() {
            let word = word_of(rest);
            low = _mm_crc32_u64(low, first.hide(word, words.len()));
            high = _mm_crc32_u64(high, second.hide(word, words.len()));
        }
        crc.join(!low as u32, !high as u32, name.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_instruction_and_the_crate_agree() {
        let crc = Crc::new(&SecretKey::from_seed(1));
        let name: Vec<u8> = (0..200).map(|i| mix64(i) as u8).collect();
        for len in 0..=name.len() {
            assert_eq!(crc.digest(&name[..len]), crc.digest_by_table(&name[..len]), "length {len}");
        }
    }
}

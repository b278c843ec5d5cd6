//! CRC32c made valid: two CRCs over secretly multiplied words.
//!
//! ```text
//! for word i of the name (little-endian, the last one zero-padded), for each of the two halves h:
//!     p = (word ^ offset[h]) * (factor[h] + 2 * i * step[h])        128-bit product, the right factor is odd
//!     crc[h] = crc32c(crc[h], low(p) ^ high(p))
//! digest = mix64((crc[1] << 32 | crc[0]) * last + length * LENGTH_STEP)
//! ```
//! Two traps are closed by the details. A plain product would pass the top bit of a word through unchanged, where
//! it stays linear and known: hence the fold of the high half. One factor for all places would let whoever writes
//! names of more than 32 words choose the *places* of two words so that the CRC polynomial cancels, whatever the
//! factor: hence the step. The halves are still 32-bit CRCs of one polynomial, so this is a heuristic; it is here
//! to be compared, and [`Family::MulAdd`](super::Family::MulAdd) is faster.

use super::wy::LENGTH_STEP;
use super::{Domain, SecretKey, mix64, word_of};

/// The secrets of the two halves.
#[derive(Clone)]
pub(super) struct Crc {
    halves: [Half; 2],
    last: u64,
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
        let word = |index| key.derive(Domain::Crc32c, index);
        let half = |h: u64| Half {
            start: word(4 * h) as u32,
            offset: word(4 * h + 1),
            factor: word(4 * h + 2) | 1,
            step: word(4 * h + 3),
        };
        Crc { halves: [half(0), half(1)], last: word(8) | 1 }
    }

    #[inline]
    pub(super) fn digest(&self, name: &[u8]) -> u64 {
        let crc = self.halves.each_ref().map(|half| half.crc(name));
        let joined = (u64::from(crc[1]) << 32) | u64::from(crc[0]);
        let length = (name.len() as u64).wrapping_mul(LENGTH_STEP);
        mix64(joined.wrapping_mul(self.last).wrapping_add(length))
    }
}

impl Half {
    #[inline(always)]
    fn crc(&self, name: &[u8]) -> u32 {
        let mut crc = self.start;
        let mut factor = self.factor;
        for word in name.chunks(8).map(word_of) {
            let product = u128::from(word ^ self.offset) * u128::from(factor);
            let folded = product as u64 ^ (product >> 64) as u64;
            crc = crc32c::crc32c_append(crc, &folded.to_le_bytes());
            factor = factor.wrapping_add(self.step << 1);
        }
        crc
    }
}

//! The keyed folded-multiply chain: any length, 16 bytes per step.
//!
//! ```text
//! state = s0 ^ (length * LENGTH_STEP)
//! while more than 16 bytes are left: state = fold(w0 ^ s1, w1 ^ state)          (two little-endian words)
//! the last 0 to 16 bytes, zero-padded: (lo, hi) = (w0 ^ s2) * (w1 ^ state)
//! digest = mix64(fold(lo ^ w0 ^ s3, hi ^ w1 ^ state))
//! ```
//! where `fold(a, b) = a ^ b ^ low(a * b) ^ high(a * b)`. The fold keeps the operands so that a factor of zero, which
//! wipes a plain product, loses nothing. Cost: one multiplication (5 cycles) per 16 bytes, serial.
//!
//! Source: the scheme of wyhash and rapidhash. Differs: no unrolled lanes, all four secrets come from the key, and a
//! bijective mix at the end, because shards are taken from the top bits of the digest.

use super::{Purpose, SecretKey, mix64, words_of};

/// Spreads the length over the state: the golden ratio, odd, so that lengths never coincide.
pub(super) const LENGTH_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The secrets of the chain.
#[derive(Clone)]
pub(super) struct Wy {
    secret: [u64; 4],
}

impl Wy {
    pub(super) fn new(key: &SecretKey) -> Wy {
        Wy { secret: std::array::from_fn(|i| key.derive(Purpose::Wy, i as u64)) }
    }

    #[inline]
    pub(super) fn digest(&self, name: &[u8]) -> u64 {
        let [s0, s1, s2, s3] = self.secret;
        let mut state = s0 ^ (name.len() as u64).wrapping_mul(LENGTH_STEP);
        let mut rest = name;
        while rest.len() > 16 {
            let (block, after) = rest.split_at(16);
            let (w0, w1) = words_of(block);
            state = fold(w0 ^ s1, w1 ^ state);
            rest = after;
        }
        let (w0, w1) = words_of(rest);
        let product = u128::from(w0 ^ s2) * u128::from(w1 ^ state);
        mix64(fold(product as u64 ^ w0 ^ s3, (product >> 64) as u64 ^ w1 ^ state))
    }
}

/// The two halves of the product, and the factors, in one word.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    a ^ b ^ product as u64 ^ (product >> 64) as u64
}

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

use super::{Digest, Purpose, SecretKey, mix64, words_of};

/// Bytes of a step.
const BLOCK: usize = 16;

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
        let [digest] = Wy::digests([self], name);
        digest
    }

    /// The digests of the same bytes by several keys. A chain waits for its multiplications; those of others go on
    /// meanwhile.
    #[inline(always)]
    fn digests<const N: usize>(keyed: [&Wy; N], name: &[u8]) -> [u64; N] {
        let mut states = keyed.map(|wy| wy.begin(name.len() as u64));
        let mut rest = name;
        while rest.len() > BLOCK {
            let (block, after) = rest.split_at(BLOCK);
            states.iter_mut().zip(keyed).for_each(|(state, wy)| *state = wy.step(*state, block));
            rest = after;
        }
        std::array::from_fn(|i| keyed[i].end(states[i], rest))
    }

    #[inline(always)]
    fn begin(&self, n_bytes: u64) -> u64 {
        self.secret[0] ^ n_bytes.wrapping_mul(LENGTH_STEP)
    }

    #[inline(always)]
    fn step(&self, state: u64, block: &[u8]) -> u64 {
        let (w0, w1) = words_of(block);
        fold(w0 ^ self.secret[1], w1 ^ state)
    }

    #[inline(always)]
    fn end(&self, state: u64, rest: &[u8]) -> u64 {
        let [_, _, s2, s3] = self.secret;
        let (w0, w1) = words_of(rest);
        let product = u128::from(w0 ^ s2) * u128::from(w1 ^ state);
        mix64(fold(product as u64 ^ w0 ^ s3, (product >> 64) as u64 ^ w1 ^ state))
    }
}

/// The digests that [`Family::Wy`](super::Family::Wy) gives the same bytes by two keys, in little more than the time of one.
#[derive(Clone)]
pub struct WyPair([Wy; 2]);

impl WyPair {
    /// By these keys.
    pub fn new(keys: [&SecretKey; 2]) -> WyPair {
        WyPair(keys.map(Wy::new))
    }

    /// The digest by each key.
    pub fn digest(&self, bytes: &[u8]) -> [Digest; 2] {
        Wy::digests(self.0.each_ref(), bytes).map(Digest)
    }
}

/// The digest that [`Family::Wy`](super::Family::Wy) gives bytes, for bytes that come in pieces and whose number is known
/// before.
#[derive(Clone)]
pub struct WyChain {
    wy: Wy,
    state: u64,
    /// The last bytes so far: those at the end are mixed in another way.
    rest: [u8; BLOCK],
    n_rest: usize,
}

impl WyChain {
    /// The chain for `n_bytes` bytes.
    pub fn new(key: &SecretKey, n_bytes: u64) -> WyChain {
        let wy = Wy::new(key);
        WyChain { state: wy.begin(n_bytes), wy, rest: [0; BLOCK], n_rest: 0 }
    }

    /// Adds the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.n_rest == BLOCK {
                self.state = self.wy.step(self.state, &self.rest);
                self.n_rest = 0;
            }
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.n_rest));
            self.rest[self.n_rest..][..now.len()].copy_from_slice(now);
            self.n_rest += now.len();
            bytes = later;
        }
    }

    /// The digest of all bytes.
    pub fn finish(self) -> Digest {
        Digest(self.wy.end(self.state, &self.rest[..self.n_rest]))
    }
}

/// The two halves of the product, and the factors, in one word.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    a ^ b ^ product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{Rng, seed};

    #[test]
    fn digests_by_two_keys_are_those_by_each() {
        let seed = seed();
        let mut rng = Rng::new(seed);
        let keys = [SecretKey::from_seed(seed), SecretKey::from_seed(seed + 1)];
        let pair = WyPair::new(keys.each_ref());
        for n_bytes in (0..70).chain([1000, 4096]) {
            let bytes: Vec<u8> = (0..n_bytes).map(|_| rng.next_u64() as u8).collect();
            let each = keys.each_ref().map(|key| Digest(Wy::new(key).digest(&bytes)));
            assert_eq!(pair.digest(&bytes), each, "{n_bytes} bytes");
        }
    }

    #[test]
    fn bytes_in_pieces_have_the_digest_of_all_at_once() {
        let seed = seed();
        let (mut rng, key) = (Rng::new(seed), SecretKey::from_seed(seed));
        for n_bytes in (0..70).chain([1000, 4096]) {
            let bytes: Vec<u8> = (0..n_bytes).map(|_| rng.next_u64() as u8).collect();
            for _ in 0..10 {
                let (mut chain, mut rest) = (WyChain::new(&key, n_bytes as u64), &bytes[..]);
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(rest.len().min(rng.below(40) as usize));
                    chain.push(piece);
                    rest = after;
                }
                assert_eq!(chain.finish(), Digest(Wy::new(&key).digest(&bytes)), "{n_bytes} bytes");
            }
        }
    }
}

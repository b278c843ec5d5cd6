//! The secret key of a table, and how every secret constant is derived from it.

use std::fmt;

use siphasher::sip::SipHasher13;

use super::mix64;

/// 256 secret bits from which every hash constant of a table is derived.
///
/// Anyone who knows the key can choose names that collide. It is part of the durable state and is sent with images to the
/// switches, over a trusted channel only. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

/// The purpose of a derived word. Words of different purposes are independent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Purpose {
    /// Constants of the multiply-add family: `a` (0 low, 1 high), `c` (2, 3), addend of length `n` (16 + n).
    MulAdd,
    /// Secrets of the folded-multiply chain (0 to 3).
    Wy,
    /// The two key words of SipHash-1-3 (0, 1).
    SipHash13,
    /// Secrets of the repaired CRC32c (0 to 8).
    Crc32c,
    /// Tweaks of shards, the PRF of shard digests and whatever else a structure derives from the key.
    Structure,
}

impl Purpose {
    /// The byte that identifies this purpose in [`SecretKey::derive`].
    pub const fn id(self) -> u8 {
        match self {
            Purpose::MulAdd => 1,
            Purpose::Wy => 2,
            Purpose::SipHash13 => 3,
            Purpose::Crc32c => 4,
            Purpose::Structure => 16,
        }
    }
}

impl SecretKey {
    /// A key from the operating system's random source.
    /// # Panics
    /// If the operating system has none, in which case no keyed structure could be safe.
    pub fn random() -> SecretKey {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the operating system gives no random bytes for a secret key");
        SecretKey(bytes)
    }

    /// A reproducible key for tests and benches. Never for a real table: 64 bits that someone typed are no secret.
    pub fn from_seed(seed: u64) -> SecretKey {
        let mut bytes = [0; 32];
        for (i, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            let step = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i as u64 + 1);
            chunk.copy_from_slice(&mix64(seed.wrapping_add(step)).to_le_bytes());
        }
        SecretKey(bytes)
    }

    /// The key made of these bytes, as stored by [`as_bytes`](SecretKey::as_bytes).
    pub const fn from_bytes(bytes: [u8; 32]) -> SecretKey {
        SecretKey(bytes)
    }

    /// The bytes of the key, for the store and for images.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The derived secret word `index` of `purpose`.
    ///
    /// SipHash-1-3, keyed with bytes 0 to 16 of the key, over
    /// ```text
    /// | key bytes 16..32 | purpose id, 1 byte | index, 8 bytes little-endian |     25 bytes in all
    /// ```
    pub fn derive(&self, purpose: Purpose, index: u64) -> u64 {
        let mut message = [0; 25];
        message[..16].copy_from_slice(&self.0[16..]);
        message[16] = purpose.id();
        message[17..].copy_from_slice(&index.to_le_bytes());
        let (key, _) = self.0.split_first_chunk::<16>().expect("the key has 32 bytes");
        SipHasher13::new_with_key(key).hash(&message)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

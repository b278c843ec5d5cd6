//! From a name to its digest: one keyed 64-bit hash per name, from which everything else is derived.
//!
//! A name is hashed once. Shard, cell positions, fingerprint, bucket and tag are all taken from the digest by a
//! bijective mix with a local tweak ([`mix64`]), never from the name. So everything behind the seam is independent of
//! the kind of name, and one digest serves several structures.
//!
//! | family | id | for | ns for 6 bytes (2.6 GHz) | for 64 | guarantee |
//! |---|---|---|---|---|---|
//! | [`Family::MulAdd`] | 1 | MACs, addresses, labels (up to 16 bytes) | 3.3, in batches 1.0 | 7 | universal, then mixed |
//! | [`Family::Wy`] | 2 | any length, paths and URLs | 3.8 | 7 | heuristic |
//! | [`Family::SipHash13`] | 3 | names chosen by an attacker who sees answers | 8 | 21 | a pseudo-random function |
//! | [`Family::Crc32c`] | 4 | comparison with hardware that has only CRC | 8 | 15 | heuristic, repaired (see there) |
//!
//! Equal digests: `n^2 / 2^65` pairs of names are expected to share a digest (3e-8 at a million names). No structure
//! behind the seam can distinguish such a pair. The RIB refuses the second name and rekeys.
//!
//! Every family includes the length of the name in the digest, so that `b"a"` and `b"a\0"` differ. Every family is a
//! function of ([`Family`], [`SecretKey`], name) alone: the same on every machine and in every language.
//! `vectors/hash.csv` and `vectors/key.csv` hold golden values, and `vectors/README.md` the recipe for other readers.
//!
//! Source: the multiply-add family is Dietzfelbinger's multiply-shift over 128 bits. The finaliser is that of
//! MurmurHash3. The chain for long names follows the folded multiplications of wyhash. The papers use
//! `CRC32c(name, seed_a)` and `CRC32c(name, seed_b)` as the two positions, which cannot work: see [`Family::Crc32c`].

mod crc;
mod key;
mod muladd;
mod rng;
pub(crate) mod tweak;
mod wy;

use std::fmt;
use std::str::FromStr;

use siphasher::sip::SipHasher13;

pub use key::{Purpose, SecretKey};
pub use rng::Rng;
pub use wy::{WyChain, WyPair};

use crate::base::processor::Kernel;
use crc::Crc;
use muladd::MulAdd;
use wy::Wy;

/// Multiplier of the first step of [`mix64`].
pub const MIX_1: u64 = 0xff51_afd7_ed55_8ccd;
/// Multiplier of the second step of [`mix64`].
pub const MIX_2: u64 = 0xc4ce_b9fe_1a85_ec53;
/// Every step of [`mix64`] starts or ends with `x ^= x >> MIX_SHIFT`.
pub const MIX_SHIFT: u32 = 33;

/// A bijection of 64-bit words in which every output bit depends on every input bit (MurmurHash3's finaliser).
///
/// It has no key: apply it to `digest ^ tweak` with a tweak against which names cannot be chosen.
/// Cost: two multiplications, about 9 cycles of latency. `mix64(0) == 0`.
#[inline(always)]
pub const fn mix64(mut x: u64) -> u64 {
    x ^= x >> MIX_SHIFT;
    x = x.wrapping_mul(MIX_1);
    x ^= x >> MIX_SHIFT;
    x = x.wrapping_mul(MIX_2);
    x ^ (x >> MIX_SHIFT)
}

/// The keyed 64-bit hash of a name; the key of every compact structure.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Digest(pub u64);

/// A way of computing digests. Its id is written in every image, so that all readers agree.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Family {
    /// Up to 16 bytes: one 128-bit multiply-add per 8 bytes, the high half, then [`mix64`]. Longer names as [`Wy`].
    ///
    /// Two names of up to 16 bytes share a digest with probability at most `2^-63` over the choice of the key. The mix
    /// after it destroys the arithmetic progressions that sequential names would otherwise leave, which close thousands
    /// of cycles in an Othello of 65,536 sequential MACs.
    ///
    /// [`Wy`]: Family::Wy
    #[default]
    MulAdd,
    /// A chain of folded 64 x 64 -> 128-bit multiplications over 16 bytes per step, keyed with 256 bits.
    Wy,
    /// SipHash-1-3 with a 128-bit key derived from the secret key.
    SipHash13,
    /// Two CRC32c over secretly multiplied words, joined to 64 bits, then a keyed multiplication and [`mix64`].
    ///
    /// A plain pair of CRCs is invalid. CRC is affine over GF(2): for names of one length,
    /// `crc(name, s1) ^ crc(name, s2)` is a constant. So the "second" hash function is the first with a mask, the same
    /// names close cycles under every pair of seeds, and reseeding never helps. Mixing one CRC afterwards does not help
    /// either: 32 bits are too few, and anyone who knows the polynomial can write down any number of names with one
    /// CRC. Here each 8-byte word is first multiplied, with carries, by a secret odd number that depends on its place,
    /// and the 128-bit product is folded. That is not linear over GF(2), so no set of names has a known relation
    /// between its CRCs. The two CRCs use different secrets.
    Crc32c,
}

impl Family {
    /// All families, in the order of their ids.
    pub const ALL: [Family; 4] = [Family::MulAdd, Family::Wy, Family::SipHash13, Family::Crc32c];

    /// The number that images and messages carry; never reused.
    pub const fn id(self) -> u8 {
        match self {
            Family::MulAdd => 1,
            Family::Wy => 2,
            Family::SipHash13 => 3,
            Family::Crc32c => 4,
        }
    }

    /// The family with this id.
    /// # Errors
    /// [`FamilyError::UnknownId`] for an id this version does not know.
    pub fn from_id(id: u8) -> Result<Family, FamilyError> {
        Family::ALL.into_iter().find(|f| f.id() == id).ok_or(FamilyError::UnknownId { id })
    }

    /// The name used in configuration files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Family::MulAdd => "muladd",
            Family::Wy => "wy",
            Family::SipHash13 => "siphash13",
            Family::Crc32c => "crc32c",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Family {
    type Err = FamilyError;

    fn from_str(name: &str) -> Result<Family, FamilyError> {
        let known = Family::ALL.into_iter().find(|f| f.name() == name);
        known.ok_or_else(|| FamilyError::UnknownName { name: name.chars().take(64).collect() })
    }
}

/// A hash family that this version does not have.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FamilyError {
    /// An image or message names its family by an unknown number.
    #[error("hash family id {id} is not known (1 to 4 are): the data was written by a newer version, or is damaged")]
    UnknownId {
        /// The id that was found.
        id: u8,
    },
    /// A configuration names its family by an unknown name.
    #[error("hash family {name:?} is not known: use muladd, wy, siphash13 or crc32c")]
    UnknownName {
        /// The name that was found, cut to 64 characters.
        name: String,
    },
}

/// Computes digests of one [`Family`] under one [`SecretKey`]. Cheap to clone (224 bytes, no allocation).
#[derive(Clone)]
pub struct Hasher {
    keyed: Keyed,
    family: Family,
}

/// The family with its secrets expanded.
#[derive(Clone)]
enum Keyed {
    MulAdd(MulAdd),
    Wy(Wy),
    SipHash13(SipHasher13),
    Crc32c(Crc),
}

impl Hasher {
    /// Expands `key` for `family`. It takes about a microsecond: keep the hasher, do not make one per name.
    pub fn new(family: Family, key: &SecretKey) -> Hasher {
        let keyed = match family {
            Family::MulAdd => Keyed::MulAdd(MulAdd::new(key)),
            Family::Wy => Keyed::Wy(Wy::new(key)),
            Family::SipHash13 => Keyed::SipHash13(SipHasher13::new_with_keys(
                key.derive(Purpose::SipHash13, 0),
                key.derive(Purpose::SipHash13, 1),
            )),
            Family::Crc32c => Keyed::Crc32c(Crc::new(key)),
        };
        Hasher { keyed, family }
    }

    /// The family of this hasher.
    pub fn family(&self) -> Family {
        self.family
    }

    /// What a program elsewhere needs for digests of names of `len` bytes, at most 8, of [`Family::MulAdd`]: the two
    /// words of the factor and the addend, as `vectors/README.md` has them. None for other families.
    pub fn constants(&self, len: usize) -> Option<[u64; 3]> {
        match &self.keyed {
            Keyed::MulAdd(h) if len <= 8 => Some(h.constants(len)),
            _ => None,
        }
    }

    /// The digest of a name of any length.
    #[inline]
    pub fn digest(&self, name: &[u8]) -> Digest {
        Digest(match &self.keyed {
            Keyed::MulAdd(h) => h.digest(name),
            Keyed::Wy(h) => h.digest(name),
            Keyed::SipHash13(h) => h.hash(name),
            Keyed::Crc32c(h) => h.digest(name),
        })
    }

    /// The digest of the name `name.to_le_bytes()[..len]`; the bytes of `name` above `len` are ignored.
    /// # Panics
    /// If `len > 8`.
    #[inline]
    pub fn digest_word(&self, name: u64, len: usize) -> Digest {
        match &self.keyed {
            Keyed::MulAdd(h) => Digest(h.batch(len).digest(name)),
            _ => self.digest(&name.to_le_bytes()[..len]),
        }
    }

    /// The digests of names of one length of up to 8 bytes, each given as a little-endian integer:
    /// `out[i] == digest(&names[i].to_le_bytes()[..len])`. Bytes above `len` are ignored, so a six-byte address may
    /// be read with an eight-byte load.
    ///
    /// For [`Family::MulAdd`] vector instructions compute 4 or 8 digests at once where the processor has them.
    /// # Panics
    /// If `len > 8`, or `names` and `out` differ in length.
    #[inline]
    pub fn digest_words(&self, names: &[u64], len: usize, out: &mut [Digest]) {
        self.digest_words_with(Kernel::get(), names, len, out);
    }

    /// As [`digest_words`](Hasher::digest_words), by the loop of a kernel.
    /// # Panics
    /// If `len > 8`, or `names` and `out` differ in length.
    #[inline]
    pub fn digest_words_with(&self, kernel: Kernel, names: &[u64], len: usize, out: &mut [Digest]) {
        assert!(len <= 8, "digest_words takes names of at most 8 bytes, not {len}");
        assert_eq!(names.len(), out.len(), "one digest a name");
        match &self.keyed {
            Keyed::MulAdd(h) => h.digest_words(kernel, names, len, out),
            _ => {
                for (name, out) in names.iter().zip(out) {
                    *out = self.digest(&name.to_le_bytes()[..len]);
                }
            }
        }
    }

    /// The digest of a name of `K` words: that of its bytes, each word little-endian.
    #[inline]
    pub fn digest_key<const K: usize>(&self, key: &[u64; K]) -> Digest {
        match &self.keyed {
            Keyed::MulAdd(h) if K == 2 => h.digest_pair([key[0], key[1]], 16),
            _ if cfg!(target_endian = "little") => self.digest(bytemuck::cast_slice(key)),
            _ => self.digest(bytemuck::cast_slice(&key.map(u64::to_le))),
        }
    }

    /// `out[i] = digest_key(&keys[i])`.
    /// # Panics
    /// If `keys` and `out` differ in length.
    pub fn digest_keys<const K: usize>(&self, keys: &[[u64; K]], out: &mut [Digest]) {
        self.digest_keys_with(Kernel::get(), keys, out);
    }

    /// As [`digest_keys`](Hasher::digest_keys), by the loop of a kernel. Keys of two words have vector loops.
    /// # Panics
    /// If `keys` and `out` differ in length.
    pub fn digest_keys_with<const K: usize>(&self, kernel: Kernel, keys: &[[u64; K]], out: &mut [Digest]) {
        assert_eq!(keys.len(), out.len(), "one digest a key");
        match &self.keyed {
            Keyed::MulAdd(h) if K == 2 => h.digest_pairs(kernel, keys.as_flattened().as_chunks().0, 16, out),
            _ => keys.iter().zip(out).for_each(|(key, out)| *out = self.digest_key(key)),
        }
    }

    /// `out[i] = digest_key(&[columns[0][i], columns[1][i]])` for the first `n`. Digests behind them are of no use.
    /// # Panics
    /// If `n > N`.
    #[inline]
    pub fn digest_columns<const N: usize>(&self, columns: [&[u64; N]; 2], n: usize, out: &mut [Digest; N]) {
        self.digest_columns_with(Kernel::get(), columns, n, out);
    }

    /// As [`digest_columns`](Hasher::digest_columns), by the loop of a kernel.
    /// # Panics
    /// If `n > N`.
    #[inline]
    pub fn digest_columns_with<const N: usize>(
        &self,
        kernel: Kernel,
        columns: [&[u64; N]; 2],
        n: usize,
        out: &mut [Digest; N],
    ) {
        assert!(n <= N, "{n} keys in columns of {N}");
        match &self.keyed {
            Keyed::MulAdd(h) => h.digest_columns(kernel, columns, n, out),
            _ => {
                for ((out, &first), &second) in out[..n].iter_mut().zip(columns[0]).zip(columns[1]) {
                    *out = self.digest_key(&[first, second]);
                }
            }
        }
    }

    /// The digests of names of one length of 9 to 16 bytes, each given as two little-endian integers:
    /// `out[i] == digest(&bytes_of(names[i])[..len])`. Bytes above `len` are ignored.
    ///
    /// For [`Family::MulAdd`] vector instructions compute 8 digests at once where the processor has them.
    /// # Panics
    /// If `len` is not 9 to 16, or `names` and `out` differ in length.
    pub fn digest_pairs(&self, names: &[[u64; 2]], len: usize, out: &mut [Digest]) {
        self.digest_pairs_with(Kernel::get(), names, len, out);
    }

    /// As [`digest_pairs`](Hasher::digest_pairs), by the loop of a kernel.
    /// # Panics
    /// If `len` is not 9 to 16, or `names` and `out` differ in length.
    pub fn digest_pairs_with(&self, kernel: Kernel, names: &[[u64; 2]], len: usize, out: &mut [Digest]) {
        assert!((9..=16).contains(&len), "digest_pairs takes names of 9 to 16 bytes, not {len}");
        assert_eq!(names.len(), out.len(), "one digest a name");
        match &self.keyed {
            Keyed::MulAdd(h) => h.digest_pairs(kernel, names, len, out),
            _ => {
                for (name, out) in names.iter().zip(out) {
                    let name: [u8; 16] = bytemuck::cast(name.map(u64::to_le));
                    *out = self.digest(&name[..len]);
                }
            }
        }
    }

    /// `out[i] = digest(&names[i])`, for names that follow one another.
    ///
    /// For [`Family::MulAdd`] and up to 16 bytes vector instructions compute several digests at once.
    /// # Panics
    /// If `names` and `out` differ in length.
    pub fn digest_arrays<const N: usize>(&self, names: &[[u8; N]], out: &mut [Digest]) {
        self.digest_arrays_with(Kernel::get(), names, out);
    }

    /// As [`digest_arrays`](Hasher::digest_arrays), by the loop of a kernel.
    /// # Panics
    /// If `names` and `out` differ in length.
    pub fn digest_arrays_with<const N: usize>(&self, kernel: Kernel, names: &[[u8; N]], out: &mut [Digest]) {
        assert_eq!(names.len(), out.len(), "one digest a name");
        match &self.keyed {
            Keyed::MulAdd(h) => h.digest_arrays(kernel, names, out),
            _ => names.iter().zip(out).for_each(|(name, out)| *out = self.digest(name)),
        }
    }

    /// The digest of the first `len` bytes of `W` words: of a name that is padded to them.
    /// # Panics
    /// If `len > 8 * W`.
    #[inline]
    pub fn digest_padded<const W: usize>(&self, name: &[u64; W], len: usize) -> Digest {
        match W {
            1 => self.digest_word(name[0], len),
            _ => self.digest(&bytemuck::cast_slice(&name.map(u64::to_le))[..len]),
        }
    }

    /// `out[i] = digest_padded(&names[i], len)`.
    /// # Panics
    /// If `len > 8 * W`, or `names` and `out` differ in length.
    #[inline]
    pub fn digest_all_padded<const W: usize>(&self, names: &[[u64; W]], len: usize, out: &mut [Digest]) {
        assert_eq!(names.len(), out.len(), "one digest a name");
        match W {
            1 => self.digest_words(names.as_flattened(), len, out),
            2 if len > 8 => self.digest_pairs(names.as_flattened().as_chunks().0, len, out),
            _ => names.iter().zip(out).for_each(|(name, out)| *out = self.digest_padded(name, len)),
        }
    }

    /// The digests of names of any lengths: `out[i] == digest(names[i])`.
    /// # Panics
    /// If `names` and `out` differ in length.
    pub fn digest_batch(&self, names: &[&[u8]], out: &mut [Digest]) {
        assert_eq!(names.len(), out.len(), "one digest a name");
        let pairs = names.iter().zip(out);
        match &self.keyed {
            Keyed::MulAdd(h) => pairs.for_each(|(name, out)| *out = Digest(h.digest(name))),
            Keyed::Wy(h) => pairs.for_each(|(name, out)| *out = Digest(h.digest(name))),
            Keyed::SipHash13(h) => pairs.for_each(|(name, out)| *out = Digest(h.hash(name))),
            Keyed::Crc32c(h) => pairs.for_each(|(name, out)| *out = Digest(h.digest(name))),
        }
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").field("family", &self.family).finish_non_exhaustive()
    }
}

/// The bytes of `name` (at most 8) as a little-endian integer, zero-padded.
///
/// Two overlapping loads instead of a byte loop or a call of `memcpy`: 4 to 8 bytes are the first four and the last
/// four, the overlap written twice with the same bits.
#[inline(always)]
fn word_of(name: &[u8]) -> u64 {
    let len = name.len();
    debug_assert!(len <= 8);
    if let Some(first) = name.first_chunk::<4>()
        && let Some(last) = name.last_chunk::<4>()
    {
        u64::from(u32::from_le_bytes(*first)) | (u64::from(u32::from_le_bytes(*last)) << (8 * (len - 4)))
    } else if len > 0 {
        let middle = len / 2;
        u64::from(name[0]) | (u64::from(name[middle]) << (8 * middle)) | (u64::from(name[len - 1]) << (8 * (len - 1)))
    } else {
        0
    }
}

/// The bytes of `name` (at most 16) as two little-endian integers, zero-padded.
#[inline(always)]
fn words_of(name: &[u8]) -> (u64, u64) {
    match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        // The last eight bytes hold the second word in their upper part; at len = 8 the shift is 64.
        (Some(first), Some(last)) => {
            let second = u64::from_le_bytes(*last);
            (u64::from_le_bytes(*first), second.checked_shr(8 * (16 - name.len()) as u32).unwrap_or(0))
        }
        _ => (word_of(name), 0),
    }
}

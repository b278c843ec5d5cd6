//! Which bits of the filter a prefix has.

use crate::bloom::{AddressHashing, Layout, Places, Shape};
use crate::hash::{Digest, Family, Hasher, Purpose, SecretKey};
use crate::lpm::prefix::{Address, Prefix};

/// How a filter finds the bits of a prefix.
pub trait Membership<A>: Clone + Send + Sync + 'static {
    /// Bits of the filter.
    fn n_bits(&self) -> u64;
    /// Bits of a prefix: k.
    fn n_hashes(&self) -> u32;
    /// The bits of a prefix, below [`Membership::n_bits`]; taken one by one, as long as they are one.
    fn bits_of(&self, prefix: Prefix<A>) -> impl Iterator<Item = u64>;
}

/// By a keyed digest of address and length.
#[derive(Clone, Debug)]
pub struct Keyed<L: Layout> {
    hasher: Hasher,
    places: Places<L>,
}

impl<L: Layout> Keyed<L> {
    /// Bits as `shape` says, of digests of `family` under `key`.
    pub fn new(shape: Shape<L>, family: Family, key: &SecretKey) -> Self {
        Self { hasher: Hasher::new(family, key), places: Places::new(shape, key.derive(Purpose::Structure, 4)) }
    }
}

impl<A: Address, L: Layout> Membership<A> for Keyed<L> {
    fn n_bits(&self) -> u64 {
        self.places.shape().bits()
    }

    fn n_hashes(&self) -> u32 {
        self.places.shape().n_hashes()
    }

    #[inline(always)]
    fn bits_of(&self, prefix: Prefix<A>) -> impl Iterator<Item = u64> {
        let wide = prefix.address().widened();
        let digest = if A::BITS == 32 {
            self.hasher.digest_word(wide as u64 | u64::from(prefix.len()) << 32, 5)
        } else {
            let mut bytes = [0; 17];
            bytes[..16].copy_from_slice(&wide.to_le_bytes());
            bytes[16] = prefix.len();
            self.hasher.digest(&bytes)
        };
        self.places.of(digest)
    }
}

/// By the bits of the prefix as a number, zeros before them: the paper's option to save the hash function.
///
/// **Not for tables that anybody else can write to, nor ask.** Prefixes of different lengths share their bits (10.0.0.0/8
/// is 0.10.0.0/16), clustered prefixes share remainders, so the rate is above the formula's; and whoever knows the sizes
/// m_i of the partitions makes any address positive by announcing k prefixes `y + m_i`.
#[derive(Clone, Debug)]
pub struct OwnHash(Places<AddressHashing>);

impl OwnHash {
    /// Bits as `shape` says.
    pub fn new(shape: Shape<AddressHashing>) -> Self {
        Self(Places::new(shape, 0))
    }

    /// Sizes of the partitions: m_i.
    pub fn partitions(&self) -> Vec<u64> {
        self.0.plan().iter().map(|partition| partition.size()).collect()
    }
}

impl<A: Address> Membership<A> for OwnHash {
    fn n_bits(&self) -> u64 {
        self.0.shape().bits()
    }

    fn n_hashes(&self) -> u32 {
        self.0.shape().n_hashes()
    }

    #[inline(always)]
    fn bits_of(&self, prefix: Prefix<A>) -> impl Iterator<Item = u64> {
        let wide = prefix.address().widened().checked_shr(A::BITS - u32::from(prefix.len())).unwrap_or(0);
        self.0.of(Digest(wide as u64 ^ (wide >> 64) as u64))
    }
}

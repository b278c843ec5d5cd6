//! The bits that a prefix has in the filter.

use crate::base::atomic_words::AtomicWords;
use crate::base::prefetch::BURST;
use crate::bloom::burst::{Memory, bursts};
use crate::bloom::{AddressHashing, Layout, Places, Shape};
use crate::hash::{Digest, Family, Hasher, Purpose, SecretKey};
use crate::lpm::prefix::{Address, Prefix};

/// Maps prefixes to bits of the filter.
pub trait Membership<A: Address>: Clone + Send + Sync + 'static {
    /// Maximum number of lengths tested at once per address: one, if [`Membership::positives`] gains nothing by more.
    const AT_ONCE: usize = 1;

    /// Bits of the filter.
    fn n_bits(&self) -> u64;
    /// Bits per prefix: k.
    fn n_hashes(&self) -> u32;
    /// The bits of a prefix, below [`Membership::n_bits`]; consumed one by one while they are one.
    fn bits_of(&self, prefix: Prefix<A>) -> impl Iterator<Item = u64>;

    /// Which of up to [`BURST`] prefixes have ones at all their bits in `words`, one bit each. The default tests one
    /// prefix after another, each up to its first zero bit.
    #[inline(always)]
    fn positives(&self, words: &AtomicWords, prefixes: &[Prefix<A>]) -> u32 {
        let is_in = |prefix| self.bits_of(prefix).all(|bit| words.are_ones(std::iter::once(bit)));
        (0..).zip(prefixes).fold(0, |positive, (index, &prefix)| positive | u32::from(is_in(prefix)) << index)
    }
}

/// Which of up to [`BURST`] names are positive, one bit each.
#[inline(always)]
fn positives<L: Layout>(places: &Places<L>, words: &AtomicWords, digests: &[Digest]) -> u32 {
    let mut positive = 0;
    bursts(places, words, digests, |_, burst| positive = burst);
    positive
}

/// Bits from a keyed digest of address and length.
#[derive(Clone, Debug)]
pub struct Keyed<L: Layout> {
    hasher: Hasher,
    places: Places<L>,
}

impl<L: Layout> Keyed<L> {
    /// Bits as `shape` says, from digests of `family` under `key`.
    pub fn new(shape: Shape<L>, family: Family, key: &SecretKey) -> Self {
        Self { hasher: Hasher::new(family, key), places: Places::new(shape, key.derive(Purpose::Structure, 4)) }
    }

    #[inline(always)]
    fn digest<A: Address>(&self, prefix: Prefix<A>) -> Digest {
        if A::BITS == 32 {
            return self.hasher.digest_word(word_of(prefix), WORD_BYTES);
        }
        let mut bytes = [0; 17];
        bytes[..16].copy_from_slice(&prefix.address().widened().to_le_bytes());
        bytes[16] = prefix.len();
        self.hasher.digest(&bytes)
    }
}

/// Bytes of an IPv4 prefix, address and length.
const WORD_BYTES: usize = 5;

#[inline(always)]
fn word_of<A: Address>(prefix: Prefix<A>) -> u64 {
    prefix.address().widened() as u64 | u64::from(prefix.len()) << 32
}

impl<A: Address, L: Layout> Membership<A> for Keyed<L> {
    const AT_ONCE: usize = BURST;

    fn n_bits(&self) -> u64 {
        self.places.shape().bits()
    }

    fn n_hashes(&self) -> u32 {
        self.places.shape().n_hashes()
    }

    #[inline(always)]
    fn bits_of(&self, prefix: Prefix<A>) -> impl Iterator<Item = u64> {
        self.places.of(self.digest(prefix))
    }

    #[inline(always)]
    fn positives(&self, words: &AtomicWords, prefixes: &[Prefix<A>]) -> u32 {
        let mut digests = [Digest(0); BURST];
        if A::BITS == 32 {
            let mut names = [0; BURST];
            names.iter_mut().zip(prefixes).for_each(|(name, &prefix)| *name = word_of(prefix));
            // Whole vectors: one that is half full costs less than hashing its names one by one.
            let n = prefixes.len().next_multiple_of(8).min(BURST);
            self.hasher.digest_words(&names[..n], WORD_BYTES, &mut digests[..n]);
        } else {
            digests.iter_mut().zip(prefixes).for_each(|(digest, &prefix)| *digest = self.digest(prefix));
        }
        positives(&self.places, words, &digests[..prefixes.len()])
    }
}

/// Bits from the prefix itself as a zero-extended number: the paper's option to save the hash function.
///
/// **Not for tables that anyone else can write to or query.** Prefixes of different lengths share their bits
/// (10.0.0.0/8 is 0.10.0.0/16), and clustered prefixes share remainders, so the rate is above the formula's. And
/// anyone who knows the sizes m_i of the partitions makes any address positive by announcing k prefixes `y + m_i`.
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
    const AT_ONCE: usize = BURST;

    fn n_bits(&self) -> u64 {
        self.0.shape().bits()
    }

    fn n_hashes(&self) -> u32 {
        self.0.shape().n_hashes()
    }

    #[inline(always)]
    fn bits_of(&self, prefix: Prefix<A>) -> impl Iterator<Item = u64> {
        self.0.of(own(prefix))
    }

    #[inline(always)]
    fn positives(&self, words: &AtomicWords, prefixes: &[Prefix<A>]) -> u32 {
        let mut digests = [Digest(0); BURST];
        digests.iter_mut().zip(prefixes).for_each(|(digest, &prefix)| *digest = own(prefix));
        positives(&self.0, words, &digests[..prefixes.len()])
    }
}

/// The bits of a prefix as a number.
#[inline(always)]
fn own<A: Address>(prefix: Prefix<A>) -> Digest {
    let wide = prefix.address().widened().checked_shr(A::BITS - u32::from(prefix.len())).unwrap_or(0);
    Digest(wide as u64 ^ (wide >> 64) as u64)
}

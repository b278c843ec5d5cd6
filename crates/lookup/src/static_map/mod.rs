//! Static maps: built once from all names, then only read; any change needs another build.
//!
//! | module | what | bits per name (values of l bits) | reads per lookup | an alien gets |
//! |---|---|---|---|---|
//! | [`bloomier`] | [`Bloomier`], the Bloomier filter: three cells XORed | 1.23 l | 3, independent | an arbitrary value |
//! | [`setsep`] | [`SetSep`]: one hash function per group and bit, found by trying | 0.5 + 1.5 l | 2, dependent | an arbitrary value |
//! | [`sorted`] | [`Sorted`]: binary search over full names | 64 words + l | log2(n) / 3 lines and the value | 0, or none: it is exact |
//! | [`orthogonal`] | [`Orthogonal`] Bloom filters, one per bit, and an exact table of what they get wrong | 9.6 l | 2 to 13 per bit | mostly 0 |
//!
//! Which to use: Bloomier if memory matters most and l is small; SetSep to reproduce what it was compared with, as its
//! builds are some forty times slower; Sorted if aliens must be detected and nothing else is needed. Names that change
//! belong in an [`Othello`](crate::othello::Othello). [`Rebuilt`] makes a control structure of any static map all the
//! same, at the cost of a build and a whole structure sent for every batch of changes.
//! Bytes: `docs/formats/static-maps.md`.

pub mod bloomier;
pub mod orthogonal;
pub mod rebuilt;
pub mod setsep;
pub mod sorted;

pub use bloomier::Bloomier;
pub use orthogonal::Orthogonal;
pub use rebuilt::{Entries, MapView, Rebuilt, RebuiltQuery};
pub use setsep::SetSep;
pub use sorted::Sorted;

use crate::base::bytes::{Bytes, DecodeError};
use crate::base::cells::value_mask;
use crate::base::words::Words;
use crate::hash::{Digest, Purpose, SecretKey};
use crate::traits::{Build, InsertError};

/// Build parameters of a static map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bits of a value, 1 to 64.
    pub value_bits: u8,
    /// Seed of the random choices.
    pub seed: u64,
}

impl Settings {
    /// Settings whose seed is derived from the table's key.
    /// # Panics
    /// When `value_bits` is not in 1 to 64.
    pub fn new(value_bits: u8, key: &SecretKey) -> Self {
        assert!((1..=64).contains(&value_bits), "a value has 1 to 64 bits, not {value_bits}");
        Self { value_bits, seed: key.derive(Purpose::Structure, 0) }
    }

    /// Refuses values that do not fit.
    fn check<K>(&self, entries: &[(K, u64)]) -> Result<(), InsertError> {
        let mask = value_mask(self.value_bits);
        match entries.iter().find(|(_, value)| value & !mask != 0) {
            Some(&(_, value)) => Err(InsertError::ValueTooWide { value, value_bits: self.value_bits }),
            None => Ok(()),
        }
    }
}

/// A map that is built once and then only read.
pub trait StaticMap: Build<Settings = Settings> {
    /// The value of `key`; for a key that was not built in, see the structure's module.
    fn lookup(&self, key: Self::Key) -> u64;

    /// Writes the values of `keys` to `values`, in order. Hides memory latency; best in bursts of 32.
    /// # Panics
    /// When `values` is shorter than `keys`.
    fn lookup_batch(&self, keys: &[Self::Key], values: &mut [u64]);

    /// Memory that lookups need, in bits.
    fn size_bits(&self) -> u64;

    /// Whether aliens are detected, and get 0.
    const EXACT: bool = false;

    /// Appends the bytes of the map, which include neither the kind of structure nor its settings.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads the map from `bytes`, which may continue after it. Checks what lookups rely on, and lengths against the
    /// remaining bytes before anything is allocated; only a checksum can tell whether the values are right.
    /// # Errors
    /// [`DecodeError`].
    fn decode(settings: &Settings, bytes: &mut Bytes) -> Result<Self, DecodeError>;
}

/// A digest and its value.
type Entry = (u64, u64);

/// Makes an [`Entry`].
fn entry(digest: Digest, value: u64) -> Entry {
    (digest.0, value)
}

/// Sorts `entries`, and refuses two with the same digest.
fn sort_distinct(entries: &mut [Entry]) -> Result<(), InsertError> {
    entries.sort_unstable();
    match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(InsertError::DuplicateDigest { digest: pair[0].0 }),
        None => Ok(()),
    }
}

/// Maximum number of names of a map: memory cannot hold more.
const MAX_NAMES: u64 = 1 << 40;

/// Appends words, little-endian as in memory.
fn put_words(words: &[u64], out: &mut Vec<u8>) {
    out.extend_from_slice(bytemuck::cast_slice(words));
}

/// Reads `n_words` words.
fn take_words(bytes: &mut Bytes, n_words: u64) -> Result<Words, DecodeError> {
    let n_bytes = usize::try_from(n_words).ok().and_then(|n_words| n_words.checked_mul(8)).unwrap_or(usize::MAX);
    let taken = bytes.take(n_bytes)?;
    let mut words = Words::zeroed(n_bytes / 8);
    bytemuck::cast_slice_mut(&mut words).copy_from_slice(taken);
    Ok(words)
}

/// Maps a uniform word to `0..bound` without a division; also returns the uniform word that remains.
#[inline(always)]
fn reduce(word: u64, bound: u64) -> (u64, u64) {
    let product = u128::from(word) * u128::from(bound);
    ((product >> 64) as u64, product as u64)
}

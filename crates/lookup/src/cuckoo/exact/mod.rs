//! (2,4)-Cuckoo: full names with their values, two buckets of four slots per name; the FIB of CuckooSwitch.
//!
//! | module | what |
//! |---|---|
//! | `skeleton` | [`CuckooSkeleton`]: names and places, shared by all switches of a network |
//! | `view` | [`CuckooView`]: what one switch's slots hold, as images and updates |
//! | [`update`] | the message: slots by their new contents, or the whole table |
//! | [`query`], `table` | [`CuckooQuery`], the half of words; its concurrent [`Reader`]s |
//!
//! A name is `W` words, zero-padded; its length in bytes is fixed per table: `W` = 1 for MAC and IPv4 addresses and
//! tunnel ids, 2 for five-tuples and IPv6 addresses, up to 8.
//! ```text
//! slot, if the value fits after the name:           slot, if it does not (8, 16, 24, … bytes):
//! | name, name_bytes | 0 … | value, value_bits |    | name, W words | value, one word |
//! ```
//! Cost: two buckets per lookup, read completely without a branch on the name. A MAC with a 16-bit value is one word: a
//! bucket is half a cache line, 67.4 bits per name at load 0.95. An 8-byte name takes two words: a bucket is one line,
//! 134.7 bits per name. Plus four loads of the buckets' counters (see [`super`]).
//! Alien names, and removed ones: 0 (drop). An empty slot is zero: no name, or the zero name with value drop.
//! Source: Zhou, Fan, Lim, Kaminsky, Andersen, "Scalable, High Performance Ethernet Forwarding with CuckooSwitch",
//! section 3; Shi, Qian, Wang, "Re-designing Compact-structure based Forwarding for Programmable Networks", section II.
//! Differs: both buckets follow from one keyed digest of the full name. (In CuckooSwitch the second follows from the
//! first by XOR with a tag, which needs powers of two.) Counters have 64 bits; a reader takes a lock after a bounded
//! number of tries; the table grows and shrinks.
//! Limits: values of 1 to 64 bits, 2^28 buckets; at most eight names with one digest, which a keyed hash never exceeds
//! in practice.

pub mod query;
mod skeleton;
pub(crate) mod table;
pub mod update;
mod view;

pub use query::{CuckooQuery, CuckooStats, Pinned, Reader};
pub use skeleton::CuckooSkeleton;
pub use update::{SlotWrite, SlotsUpdate, TableImage, Update};
pub use view::CuckooView;

pub(crate) use query::digest_of;

use super::places::Hash;
use crate::hash::{Digest, Family, Hasher, Purpose, SecretKey};
use crate::traits::{InsertError, Single};

/// Control half of one table whose names carry their values; `8 W + 8` bytes per slot.
///
/// ```
/// use fibula_lookup::cuckoo::exact::{Cuckoo, Settings, name};
/// use fibula_lookup::hash::{Family, SecretKey};
/// use fibula_lookup::traits::{Control, Query};
///
/// let settings = Settings::new(6, 16, 1000, Family::MulAdd, &SecretKey::from_seed(1));
/// let mut table = Cuckoo::<1>::new(settings);
/// let mut switch = table.export();
///
/// let mac = name(b"\x02\0\0\0\0\x07")?;
/// let mut updates = Vec::new();
/// table.insert(mac, 42, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!(switch.lookup(mac), 42);
/// assert_eq!(switch.lookup([1]), 0); // an alien name
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Cuckoo<const W: usize> = Single<CuckooSkeleton<W, u64>>;

impl<const W: usize> Cuckoo<W> {
    /// An empty table with capacity for `n_names`: it does not grow until there are more.
    /// # Panics
    /// When names of `settings.name_bytes` do not fit into `W` words.
    pub fn with_capacity(settings: Settings, n_names: usize) -> Self {
        Self::of(CuckooSkeleton::with_capacity(settings, n_names), CuckooView::default())
    }
}

/// Build parameters of a table; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a name, 1 to 8 `W`; the bytes after them are zero.
    pub name_bytes: u8,
    /// Bits of a value, 1 to 64.
    pub value_bits: u8,
    /// The most names that the table takes; it is then filled to [`LOAD`](super::LOAD).
    pub max_names: usize,
    /// How names are hashed.
    pub family: Family,
    /// The key that they are hashed with.
    pub key: SecretKey,
}

impl Settings {
    /// The largest `max_names`.
    pub const MAX_NAMES: usize = (super::MAX_BUCKETS as usize) * super::SLOTS / 20 * 19;

    /// Checked settings; `max_names` is capped at [`Settings::MAX_NAMES`].
    /// # Panics
    /// When `value_bits` is not in 1 to 64 or `name_bytes` not in 1 to 64.
    pub fn new(name_bytes: u8, value_bits: u8, max_names: usize, family: Family, key: &SecretKey) -> Self {
        assert!((1..=64).contains(&value_bits), "a value has 1 to 64 bits, not {value_bits}");
        assert!((1..=64).contains(&name_bytes), "a name has 1 to 64 bytes, not {name_bytes}");
        Self { name_bytes, value_bits, max_names: max_names.min(Self::MAX_NAMES), family, key: key.clone() }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.key.derive(Purpose::Structure, 1)
    }

    /// # Panics
    /// When names of this length do not fit into `W` words.
    pub(crate) fn layout<const W: usize>(&self) -> Layout {
        assert!(usize::from(self.name_bytes) <= 8 * W, "a name of {} bytes does not fit {W} words", self.name_bytes);
        Layout::new::<W>(self.name_bytes, self.value_bits)
    }
}

/// Maximum number of words of a slot.
pub(crate) const MAX_SLOT_WORDS: usize = 9;

/// The layout of name and value in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Words per slot: W, or W + 1.
    pub(crate) slot_words: usize,
    /// Shift of the value, which is in the top bits of the last word.
    value_shift: u32,
    /// The bits of a name's last word that belong to the name.
    name_mask: u64,
}

impl Layout {
    pub(crate) fn new<const W: usize>(name_bytes: u8, value_bits: u8) -> Self {
        let last_bits = (u32::from(name_bytes) * 8).saturating_sub(64 * (W as u32 - 1));
        let name_mask = if last_bits == 0 { 0 } else { u64::MAX >> (64 - last_bits) };
        let together = last_bits + u32::from(value_bits) <= 64;
        let (slot_words, value_shift) =
            if together { (W, 64 - u32::from(value_bits)) } else { (W + 1, 64 - u32::from(value_bits)) };
        Self { slot_words, value_shift, name_mask }
    }

    /// Whether the value is in the last word of the name.
    #[inline(always)]
    fn together<const W: usize>(self) -> bool {
        self.slot_words == W
    }

    pub(crate) fn value_max(self) -> u64 {
        u64::MAX >> self.value_shift
    }

    /// Whether a name has no bits after its bytes.
    pub(crate) fn fits<const W: usize>(self, name: &[u64; W]) -> bool {
        name[W - 1] & !self.name_mask == 0
    }

    /// Appends the words of a slot; an empty one is all zero.
    pub(crate) fn encode<const W: usize>(self, name: &[u64; W], value: u64, words: &mut Vec<u64>) {
        words.extend_from_slice(&self.words(name, value)[..self.slot_words]);
    }

    /// The words of a slot, then zeros.
    #[inline]
    pub(crate) fn words<const W: usize>(self, name: &[u64; W], value: u64) -> [u64; MAX_SLOT_WORDS] {
        let mut words = [0; MAX_SLOT_WORDS];
        words[..W].copy_from_slice(name);
        words[self.slot_words - 1] |= value << self.value_shift;
        words
    }

    /// The value of `name` if a slot with these words holds it; 0 otherwise.
    #[inline(always)]
    pub(crate) fn value_of<const W: usize>(self, name: &[u64; W], word: impl Fn(usize) -> u64) -> u64 {
        let last = word(W - 1);
        let (own, value) = if self.together::<W>() {
            (last & !(u64::MAX << self.value_shift), last >> self.value_shift)
        } else {
            (last, word(W) >> self.value_shift)
        };
        let wrong = (0..W - 1).fold(own ^ name[W - 1], |wrong, at| wrong | word(at) ^ name[at]);
        value & u64::from(wrong != 0).wrapping_sub(1)
    }

    /// Whether a slot may hold these words: no bit is set between name and value.
    fn is_slot<const W: usize>(self, words: &[u64]) -> bool {
        let value_mask = u64::MAX << self.value_shift;
        if self.together::<W>() {
            words[W - 1] & !(self.name_mask | value_mask) == 0
        } else {
            words[W - 1] & !self.name_mask == 0 && words[W] & !value_mask == 0
        }
    }
}

/// Hashes names of one length.
#[derive(Clone, Debug)]
pub(crate) struct NameHash {
    hasher: Hasher,
    name_bytes: usize,
}

impl NameHash {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { hasher: Hasher::new(settings.family, &settings.key), name_bytes: settings.name_bytes.into() }
    }

    /// Digests of up to one burst of names.
    #[inline]
    pub(crate) fn digests<const W: usize>(&self, names: &[[u64; W]], digests: &mut [Digest]) {
        self.hasher.digest_all_padded(names, self.name_bytes, digests);
    }
}

impl<const W: usize> Hash<W> for NameHash {
    #[inline]
    fn digest(&self, name: &[u64; W]) -> Digest {
        self.hasher.digest_padded(name, self.name_bytes)
    }
}

/// The words of a name given as bytes, zero-padded.
/// # Errors
/// [`InsertError::NameTooLong`] when it has more than `8 W` bytes.
pub fn name<const W: usize>(bytes: &[u8]) -> Result<[u64; W], InsertError> {
    if bytes.len() > 8 * W {
        return Err(InsertError::NameTooLong { name_bytes: 8 * W });
    }
    let mut words = [0; W];
    bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
    Ok(words)
}

//! Cuckoo Filtable: fingerprints with their values in 16- or 32-bit slots, and an exact second level for names that
//! collide; the structure of the Cuckoo Forwarder (CFW).
//!
//! | module | what |
//! |---|---|
//! | `skeleton`, `first`, `slots`, `index` | [`FiltableSkeleton`]: names, places, collision avoidance sets; shared by all switches |
//! | `rows` | what a store keeps of a skeleton |
//! | `view` | [`FiltableView`]: the contents of one switch's slots, as images and updates |
//! | [`update`] | the message: what crosses the seam |
//! | [`query`], `table` | [`FiltableQuery`], the half of words; its concurrent [`Reader`]s |
//!
//! ```text
//! level 1: a bucket is one 64-bit word of four 16-bit slots (or two of two 32-bit slots)
//!          slot = | 0 | fingerprint, l_f bits | value, l_p bits |
//! level 2: (2,4)-Cuckoo of whole digests, 16 bytes per slot
//! ```
//! A name is in level 1 unless another name collides with it, that is, has its fingerprint and one of its two buckets.
//! All four pairs of potential buckets count, since moves go anywhere. So no live name ever gets the answer of another.
//! Cost: two words per lookup; for names of level 2 (and aliens) two more cache lines. `l_f + l_p` bits per slot at
//! load 0.95, and 16 bytes for each of the `1 - E_eta` names in level 2, see [`level1_share`]: 19 bits per name in
//! total for l_f = 10, l_p = 6, with 1.5 % of the names in level 2.
//! Alien names: another name's value at the rate `1 - (1 - 2^-l_f)^(8 load)`, equation 8 of the paper, drop (0)
//! otherwise. A removed name drops as long as it has a tombstone: it stays in the avoidance sets, without a slot, until
//! as many names as 5 % of the slots were removed after it, or the table is rebuilt.
//! Source: Shi, Qian, Wang, "Re-designing Compact-structure based Forwarding for Programmable Networks", IV.B, V.
//! Differs: both levels identify names by their digests. Fingerprint 0 needs no exception, since an empty slot is a
//! slot of value drop. Inserts are upserts. Level 2 grows. The survivor of a collision returns to level 1 when the last
//! name it collides with is forgotten. A name is written to level 2 before it leaves level 1, and the other way round.
//! Limits: `l_f + l_p` at most 32 bits, l_f 4 to 30; two names with one digest cannot both be in.

mod first;
mod index;
pub mod query;
mod rows;
mod skeleton;
mod slots;
mod table;
#[cfg(test)]
mod tests;
pub mod update;
mod view;

pub use query::{FiltableQuery, FiltableStats, Reader};
pub use skeleton::FiltableSkeleton;
pub use update::{Image, SlotsUpdate, Update, Write};
pub use view::FiltableView;

use super::{LOAD, MAX_BUCKETS, SLOTS, buckets_of};
use crate::cuckoo::exact::Layout;
use crate::hash::{Digest, Purpose, SecretKey, mix64};
use crate::traits::Single;

/// Control half of one table whose names carry their values; about 60 bytes per name.
///
/// ```
/// use fibula_lookup::cuckoo::filtable::{Filtable, Settings};
/// use fibula_lookup::hash::{Family, Hasher, SecretKey};
/// use fibula_lookup::traits::{Control, Query};
///
/// let key = SecretKey::from_seed(1);
/// let hasher = Hasher::new(Family::MulAdd, &key);
/// let mut table = Filtable::new(Settings::new(6, 10, 1000, &key));
/// let mut switch = table.export();
///
/// let mut updates = Vec::new();
/// let name = hasher.digest(b"\x02\0\0\0\0\x07");
/// table.insert(name, 42, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!(switch.lookup(name), 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Filtable = Single<FiltableSkeleton<u64>>;

impl Filtable {
    /// An empty table with capacity for `n_names`: it does not grow until there are more.
    pub fn with_capacity(settings: Settings, n_names: usize) -> Self {
        Self::of(FiltableSkeleton::with_capacity(settings, n_names), FiltableView::default())
    }
}

/// Build parameters of a table; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bits of a value: l_p in the paper.
    pub value_bits: u8,
    /// Bits of a fingerprint: l_f in the paper.
    pub fingerprint_bits: u8,
    /// The most names that the table takes.
    pub max_names: usize,
    /// Seed of the tweaks and of the slots' digests.
    pub seed: u64,
}

impl Settings {
    /// The largest `max_names`.
    pub const MAX_NAMES: usize = (MAX_BUCKETS as usize) * SLOTS / 2;

    /// Settings whose seed is derived from the table's key; `max_names` is capped at [`Settings::MAX_NAMES`].
    /// # Panics
    /// When `fingerprint_bits` is not in 4 to 30, `value_bits` is 0, or both are over 32.
    pub fn new(value_bits: u8, fingerprint_bits: u8, max_names: usize, key: &SecretKey) -> Self {
        assert!((4..=30).contains(&fingerprint_bits), "a fingerprint has 4 to 30 bits, not {fingerprint_bits}");
        assert!(
            value_bits > 0 && value_bits + fingerprint_bits <= 32,
            "a value of {value_bits} bits and a fingerprint of {fingerprint_bits} do not make a slot of 32 bits"
        );
        let max_names = max_names.min(Self::MAX_NAMES);
        Self { value_bits, fingerprint_bits, max_names, seed: key.derive(Purpose::Structure, 2) }
    }

    fn format(&self) -> Format {
        let bits = self.value_bits + self.fingerprint_bits;
        Format {
            value_bits: self.value_bits.into(),
            fingerprint_bits: self.fingerprint_bits.into(),
            slot_bits: if bits <= 16 { 16 } else { 32 },
        }
    }

    /// Seed of level 2's digest; that of level 1 is `seed` itself.
    fn second_seed(&self) -> u64 {
        mix64(self.seed ^ 0x9FB2_1C65_1E98_DF25)
    }

    fn second_layout(&self) -> Layout {
        Layout::new::<1>(8, self.value_bits)
    }

    /// The words of a slot of level 2.
    fn second_slot(&self, name: Digest, value: u64) -> [u64; 2] {
        [name.0, value << (64 - u32::from(self.value_bits))]
    }

    fn max_value(&self) -> u64 {
        (1 << self.value_bits) - 1
    }
}

/// The layout of fingerprint and value in a slot of level 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Format {
    value_bits: u32,
    fingerprint_bits: u32,
    slot_bits: u32,
}

impl Format {
    #[inline(always)]
    fn slot(self, fingerprint: u32, value: u64) -> u32 {
        fingerprint << self.value_bits | value as u32
    }

    fn max_slot(self) -> u64 {
        (1 << (self.value_bits + self.fingerprint_bits)) - 1
    }

    /// Words per bucket.
    #[inline(always)]
    fn bucket_words(self) -> usize {
        self.slot_bits as usize / 16
    }

    /// Word and shift of a slot.
    #[inline(always)]
    fn spot(self, slot: u32) -> (usize, u32) {
        let bit = slot as usize * self.slot_bits as usize;
        (bit / 64, (bit % 64) as u32)
    }
}

/// The buckets and the fingerprint of a name in level 1.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Spots {
    buckets: [u32; 2],
    fingerprint: u32,
}

impl Spots {
    #[inline(always)]
    fn of(digest: Digest, tweak: u64, n_buckets: u32, fingerprint_bits: u32) -> Self {
        let mixed = mix64(digest.0 ^ tweak);
        // Buckets take the top bits of each half; the fingerprint depends on all bits, mainly on the others.
        let fingerprint = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> (64 - fingerprint_bits);
        Self { buckets: buckets_of(mixed, n_buckets), fingerprint: fingerprint as u32 }
    }

    /// Whether a lookup of one could find the slot of the other, wherever moves put it.
    fn collide(&self, other: &Self) -> bool {
        let common = self.buckets.iter().any(|bucket| other.buckets.contains(bucket));
        self.fingerprint == other.fingerprint && common
    }
}

/// The share of names in level 1 (E_eta in the paper) of a table with `names_per_bucket` names per bucket.
///
/// Two names, each with two buckets out of n_b, have four pairs of buckets. They share a bucket with probability 4/n_b,
/// and collide with probability `4 / (n_b 2^l_f)`. So the number of names that a name collides with is Poisson with
/// mean `4 names_per_bucket / 2^l_f`. The name is in level 1 when that number is zero: with probability `exp` of minus
/// the mean. At load 0.95 of level 1 that is 0.985 for l_f = 10 and 0.998 for l_f = 13, for any number of names, as the
/// paper measured. Tombstones count as names.
pub fn level1_share(fingerprint_bits: u8, names_per_bucket: f64) -> f64 {
    (-4.0 * names_per_bucket / f64::from(1u32 << fingerprint_bits)).exp()
}

/// Buckets with which level 1 of `n_names` is filled to [`LOAD`].
fn first_buckets(n_names: usize, fingerprint_bits: u8) -> u32 {
    // Fewer buckets collide more, so even fewer are needed: with 5 bits of fingerprint or more that converges.
    let full = LOAD * SLOTS as f64;
    let share = (0..20).fold(1.0, |share: f64, _| level1_share(fingerprint_bits, full / share).max(0.5));
    ((n_names as f64 * share / full).ceil() as u32).clamp(4, MAX_BUCKETS)
}

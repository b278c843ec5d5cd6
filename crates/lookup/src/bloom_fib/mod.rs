//! Bloom forwarders: one Bloom filter per port, and an exact table of the names that the filters get wrong.
//!
//! | module | what |
//! |---|---|
//! | [`sizing`] | bits and hash functions of each port, and the resulting false positives |
//! | `plan` | the positions of a name's bits: one filter after another, or all ports side by side |
//! | [`names`], `index` | [`Names`], the skeleton: all names, and which of them depend on a position |
//! | [`view`], `counts`, `capacity` | [`BloomView`], one switch's filters; names on each position; when filters are rebuilt |
//! | `exceptions` | the names in a switch's exact table |
//! | [`control`] | [`BloomFib`], the control half of one table; its figures |
//! | [`update`] | the message: bits or counters and exact slots by their new contents, or the whole table |
//! | [`query`], `table` | [`BloomFibQuery`], the half of words; its concurrent [`Reader`]s |
//!
//! Three policies of one structure, see [`Policy`]: **BUFFALO** (plain filters in the data plane, sized together for
//! the fewest false positives in the given memory), **BFW** (l hash functions per port, counters also in the data
//! plane) and **Summary Cache** (counting filters with a fixed number of bits per name). Each has two [`Form`]s:
//! ```text
//! separate: | filter of port 1, m_1 bits | filter of port 2, m_2 bits | …       a lookup: one after another
//! sliced:   | position 0: 1 bit per port | position 1: 1 bit per port | …       a lookup: k words, ANDed
//! ```
//! **No live name is answered wrongly.** A name whose first matching filter is not its own is an *exception*: it is in
//! a (2,4)-Cuckoo table of whole digests, which takes precedence. An insert can make exceptions of other names, and a
//! removal can undo that. The control half finds them by an inverted index from positions to names, and sends them in
//! the same message as the bits. A lookup that overlaps an update is repeated, by one
//! [`Sequence`](crate::publish::Sequence) per table, so it never combines old bits with new exceptions.
//! Cost: filters as the policy says, twice two cache lines for the exact table, 16 bytes per exception. With n names
//! evenly over d ports with rate f each, `n (1 - (1 - (1 - f)^d) / (d f))` are exceptions, about `n f (d - 1) / 2`.
//! Alien names: the first port whose filter is positive, with probability `1 - (1 - f)^d` (equation 7 of the paper);
//! drop (0) otherwise. A name of value 0 is in no filter. A removed name is an alien. The gateway form (BGW) puts an
//! exact table of full names in front, [`Filtered`](crate::alien::Filtered), and drops every alien.
//! Source: Shi, Qian, Wang, "Re-designing Compact-structure based Forwarding for Programmable Networks", II and IV.A;
//! Yu, Fabrikant, Rexford, "BUFFALO: Bloom filter forwarding architecture for large organizations"; Fan, Cao, Almeida,
//! Broder, "Summary Cache". Differs: exceptions; positions come from one keyed digest: a name has the same numbers in
//! 0..1 for all ports, scaled by the size of each filter, so one index serves all; a counter stores 15 at most.
//! Limits: ports 1 to 65,535 (63 side by side), 2^30 bits per filter, [`MAX_HASHES`] positions; two names with one
//! digest cannot both be in.

mod capacity;
pub mod control;
mod counts;
mod exceptions;
mod index;
pub mod names;
mod plan;
pub mod query;
pub mod sizing;
mod table;
pub mod update;
pub mod view;

pub use capacity::{Expected, expected};
pub use control::{BloomFib, Figures};
pub use names::Names;
pub use plan::{Plan, PortShape};
pub use query::{BloomFibQuery, BloomFibStats, Pinned, Reader};
pub use update::{CellWrite, CellsUpdate, Image, Update};
pub use view::BloomView;

use crate::bloom::MAX_HASHES;
use crate::cuckoo::exact::Layout;
use crate::hash::{Digest, Purpose, SecretKey, mix64};

/// Bits per counter.
pub const COUNTER_BITS: u64 = 4;
/// The maximum of a counter.
pub const MAX_COUNT: u8 = (1 << COUNTER_BITS) - 1;

/// How filters are sized, and whether the data plane has counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `hashes` functions (l) and `l n / ln 2` bits for the n names of a port; counters in the data plane.
    Bfw {
        /// Hash functions of every filter.
        hashes: u8,
    },
    /// A total of `bits_a_name` bits per name of the table, shared among ports so that the sum of their false-positive
    /// rates is least, with at most `max_hashes` functions (k_max); no counters in the data plane.
    Buffalo {
        /// Bits per name, over all ports.
        bits_a_name: u16,
        /// Maximum number of hash functions of a filter.
        max_hashes: u8,
    },
    /// A fixed number of bits per name of a port and of functions; counters in the data plane.
    SummaryCache {
        /// Bits per name: the load factor.
        bits_a_name: u16,
        /// Hash functions of every filter.
        hashes: u8,
    },
}

impl Policy {
    /// The Bloom forwarder with the fewest functions whose collision rate is at most `collision_rate` by equation 7.
    pub fn bfw(collision_rate: f64, n_ports: usize) -> Self {
        Self::Bfw { hashes: sizing::hashes_for_collision_rate(collision_rate, n_ports) }
    }

    /// BUFFALO with `k_max` = 8, and the bits with which evenly filled ports have a combined rate of `fp` for aliens.
    pub fn buffalo(fp: f64, n_ports: usize) -> Self {
        let bits = sizing::bits_a_name(sizing::rate_of_one(fp, n_ports), sizing::K_MAX);
        Self::Buffalo { bits_a_name: (bits.ceil() as u16).max(1), max_hashes: sizing::K_MAX }
    }

    /// One counting filter per neighbour, as its paper recommends: 16 bits per name, four functions, 4-bit counters.
    pub fn summary_cache() -> Self {
        Self::SummaryCache { bits_a_name: 16, hashes: 4 }
    }

    /// Whether the data plane has counters.
    pub fn has_counters(self) -> bool {
        !matches!(self, Self::Buffalo { .. })
    }

    /// Bits per name of a filter.
    fn bits_a_name(self) -> f64 {
        match self {
            Self::Bfw { hashes } => f64::from(hashes) / std::f64::consts::LN_2,
            Self::Buffalo { bits_a_name, .. } | Self::SummaryCache { bits_a_name, .. } => bits_a_name.into(),
        }
    }

    fn max_hashes(self) -> u8 {
        match self {
            Self::Bfw { hashes } | Self::SummaryCache { hashes, .. } => hashes,
            Self::Buffalo { max_hashes, .. } => max_hashes,
        }
    }
}

/// How the bits of the ports are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One filter after another, each with its own size; a lookup stops at the first match. As published.
    Separate,
    /// All filters have the size that the fullest needs, and the bits of one position are in one word: a lookup reads k
    /// words for all ports together. Values of at most 6 bits.
    Sliced,
}

/// Build parameters of a table; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bits of a value, 1 to 16: ports are 1 to `2^value_bits - 1`.
    pub value_bits: u8,
    /// The most names that the table takes.
    pub max_names: usize,
    /// How filters are sized.
    pub policy: Policy,
    /// How their bits are arranged.
    pub form: Form,
    /// Seed of the positions and digests.
    pub seed: u64,
}

impl Settings {
    /// The largest `max_names`.
    pub const MAX_NAMES: usize = 1 << 28;

    /// Settings whose seed is derived from the table's key; `max_names` is capped at [`Settings::MAX_NAMES`].
    /// # Panics
    /// When `value_bits` is not in 1 to 16 (6 for [`Form::Sliced`]), the policy has no bit, or its functions are not 1
    /// to [`MAX_HASHES`].
    pub fn new(value_bits: u8, max_names: usize, policy: Policy, form: Form, key: &SecretKey) -> Self {
        let most = if form == Form::Sliced { 6 } else { 16 };
        assert!((1..=most).contains(&value_bits), "a value has 1 to {most} bits here, not {value_bits}");
        let hashes = policy.max_hashes();
        assert!((1..=MAX_HASHES).contains(&hashes.into()), "a filter has 1 to {MAX_HASHES} functions, not {hashes}");
        if let Policy::Buffalo { bits_a_name, .. } | Policy::SummaryCache { bits_a_name, .. } = policy {
            assert!(bits_a_name > 0, "a filter has a bit a name at least");
        }
        let (max_names, seed) = (max_names.min(Self::MAX_NAMES), key.derive(Purpose::Structure, 5));
        Self { value_bits, max_names, policy, form, seed }
    }

    /// The largest value, which is the largest number of ports.
    fn max_value(&self) -> u64 {
        (1 << self.value_bits) - 1
    }

    /// Seed of the exact table's digest.
    fn second_seed(&self) -> u64 {
        mix64(self.seed ^ 0x9FB2_1C65_1E98_DF25)
    }

    /// The exact table holds value + 1, since a value may be 0.
    fn second_layout(&self) -> Layout {
        Layout::new::<1>(8, self.value_bits + 1)
    }

    /// The words of a slot of the exact table for `payload`, a value + 1; 0 in an empty slot.
    fn second_slot(&self, name: Digest, payload: u64) -> [u64; 2] {
        [name.0, payload << (64 - u32::from(self.value_bits + 1))]
    }

    /// The highest count that the data plane stores.
    fn max_count(&self) -> u8 {
        if self.policy.has_counters() { MAX_COUNT } else { 1 }
    }
}

/// The pseudo-random function whose XOR over all cells is the digest of the filters; a zero contributes nothing.
#[inline]
fn cell_prf(seed: u64, cell: u64, count: u8) -> u64 {
    if count == 0 {
        return 0;
    }
    mix64(mix64(seed.wrapping_add((cell + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93))).wrapping_add(count.into()))
}

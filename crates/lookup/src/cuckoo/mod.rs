//! Cuckoo tables: two buckets of four slots per name, one or two cache lines per lookup, constant-time updates.
//!
//! | module | what |
//! |---|---|
//! | [`exact`] | (2,4)-Cuckoo: full names and values, the FIB of CuckooSwitch |
//! | [`filtable`] | Cuckoo Filtable: fingerprints and values, with an exact second level for names that collide |
//! | `places` | which slot of one exact table holds which name |
//! | `rows` | what a store keeps of slots |
//! | `path` | the shortest chain of moves that frees a slot, breadth first |
//!
//! **Positions.** There is one keyed digest per name; `mix64(digest ^ tweak)` is split into two halves, each reduced to
//! a bucket by a multiplication and a shift. Any number of buckets works, so memory follows the number of names.
//!
//! **Why readers never miss a moved name.** A chain of moves is written from its free end. Every name is in its new
//! slot before its old slot is overwritten, so at any moment it is in one of its two buckets. A reader that reads the
//! new bucket too early and the old one too late sees, before it answers "absent", that the counter of one of them
//! changed, and retries. The counters ([`Sequence`], up to 8,192 stripes) are in the second-level cache; a lookup with
//! an idle writer costs four loads of them. Immutable versions as in the Othello would copy a shard for each of the
//! four or five slots of a chain; here an update stores a few words in place. A table with a new size or tweak is a new
//! version, published by one pointer.

pub mod exact;
pub mod filtable;
pub(crate) mod path;
pub(crate) mod places;
pub(crate) mod rows;

use std::sync::MutexGuard;

use crate::hash::mix64;
use crate::publish::{Sequence, seq_lock::Gate};

/// Slots per bucket: n_s in the papers.
pub const SLOTS: usize = 4;
/// Share of the slots that a table is filled to: r_l in the papers. Breadth-first paths exist up to 0.976.
pub const LOAD: f64 = 0.95;
/// Maximum number of buckets of a table: with more, 32 bits per half would favour some of them.
pub const MAX_BUCKETS: u32 = 1 << 28;

/// Rebuilds, each with another tweak and more buckets, before a table gives up.
const MAX_TRIES: u32 = 32;
/// Capacity that a rebuild reserves, as a multiple of the number of names; makes growth amortised.
const GROWTH: f64 = 1.25;
/// Tables of at most this many slots do not shrink.
const SHRINK_FROM: usize = 64;

/// Maximum number of counters of a table: 64 KiB, so that they stay in the second-level cache.
const MAX_STRIPES: usize = 1 << 13;

/// The two buckets of a mixed digest.
#[inline(always)]
fn buckets_of(mixed: u64, n_buckets: u32) -> [u32; 2] {
    let n_buckets = u64::from(n_buckets);
    [(((mixed >> 32) * n_buckets) >> 32) as u32, (((mixed & 0xFFFF_FFFF) * n_buckets) >> 32) as u32]
}

/// Buckets that hold `n_names` at [`LOAD`]; at least a few, without which chains find no path.
fn buckets_for(n_names: usize) -> u32 {
    ((n_names as f64 / LOAD / SLOTS as f64).ceil() as u32).clamp(4, MAX_BUCKETS)
}

/// Buckets of the next try after one with `n_buckets` failed: a sixteenth more.
fn more_buckets(n_buckets: u32) -> u32 {
    (n_buckets + n_buckets / 16 + 1).min(MAX_BUCKETS)
}

/// Buckets of the last of the tries that begin with `n_buckets`.
fn most_buckets(n_buckets: u32) -> u32 {
    (1..MAX_TRIES).fold(n_buckets, |n_buckets, _| more_buckets(n_buckets))
}

/// The tweak after `n_tweaks` rebuilds of a table with this seed.
fn tweak(seed: u64, n_tweaks: u64) -> u64 {
    mix64(seed ^ (n_tweaks + 1).wrapping_mul(0xA076_1D64_78BD_642F))
}

/// The pseudo-random function whose XOR over all slots is the digest of a table. Empty slots (all words zero)
/// contribute nothing.
#[inline]
pub(crate) fn slot_prf(seed: u64, slot: u32, words: &[u64]) -> u64 {
    if words.iter().all(|&word| word == 0) {
        return 0;
    }
    let start = seed.wrapping_add((u64::from(slot) + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
    words.iter().fold(start, |hash, &word| mix64(hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// The counters of the buckets of one table, and the gate for readers that retry too often.
pub(crate) struct Stripes {
    counters: Box<[Sequence]>,
    gate: Gate,
}

impl Stripes {
    pub(crate) fn new(n_buckets: u32) -> Self {
        let n = (n_buckets as usize).next_power_of_two().min(MAX_STRIPES);
        Self { counters: (0..n).map(|_| Sequence::new()).collect(), gate: Gate::default() }
    }

    /// The index of a bucket's counter.
    #[inline(always)]
    pub(crate) fn index(&self, bucket: u32) -> usize {
        bucket as usize & (self.counters.len() - 1)
    }

    #[inline(always)]
    pub(crate) fn of(&self, bucket: u32) -> &Sequence {
        &self.counters[self.index(bucket)]
    }

    /// The result of `read` over both buckets at one moment: `read` is repeated until no write overlaps it.
    #[inline(always)]
    pub(crate) fn at_one_moment<T>(&self, [first, second]: [u32; 2], read: impl Fn() -> T) -> T {
        let (first, second) = (self.of(first), self.of(second));
        let attempt = || {
            let (a, b) = (first.read_begin()?, second.read_begin()?);
            let found = read();
            (first.read_validate(a) && second.read_validate(b)).then_some(found)
        };
        self.gate.retry(attempt).unwrap_or_else(|_closed| read())
    }

    /// The writer holds this while it edits a published table.
    pub(crate) fn close(&self) -> MutexGuard<'_, ()> {
        self.gate.close()
    }
}

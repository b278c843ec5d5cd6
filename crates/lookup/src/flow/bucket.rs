//! The metadata of a bucket: one cache line for eight slots.
//!
//! ```text
//! | tags 8 x 16 | ends 8 x 16 | hint 64 | counts 2 x 64 | functions 32 | moved 8 | occupied 8 | secondary 8 | 0 8 |
//! ```
//! `occupied`: slots that hold an entry. `secondary`: those whose entry has its first bucket elsewhere, its *owner*. Of
//! the owner's own part: `moved`, how many of its entries live in their second bucket; `hint`, which tags they have. The
//! hint is a Bloom filter with [`PROBES`] bits a tag, or Horton's remap array (21 functions of 3 bits); `counts` keeps it
//! exact when entries go: for the filter two bit planes which say how many entries beyond the first need a bit, so that
//! adding and removing a tag are a few operations on words, for the remap array 21 nibbles. `functions` is, for Horton
//! only, the function (3 bits) with which the entry of a slot came to its second bucket.
//!
//! The other bucket of a slot is its own XOR a function of the tag: moves, and the end of an entry in its second bucket,
//! need no key and no hash. Source: Le Scouarnec, section 4.3; the XOR is that of MemC3 and `rte_hash`. Differs: the
//! published filter is only ever added to until `moved` is zero, and after churn is wrong 50 times more often.

use super::policy::{Policy, Second};
use super::simd::{self, LANES};

/// Slots of a bucket.
pub(super) const SLOTS: usize = LANES;
/// Bits of the Bloom filter that a tag sets.
const PROBES: u32 = 4;
/// Functions of the remap array, and nibbles of its counts.
const FUNCTIONS: u32 = 21;
/// Values of a function but 0, which is none.
pub(super) const CHOICES: u32 = 7;
/// Odd constants that spread tags (the golden ratio; that of MurmurHash2).
const SPREAD: u32 = 0x9E37_79B1;
const SPREAD_FILTER: u32 = 0x5BD1_E995;

/// One line of metadata.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Bucket {
    pub(super) tags: [u16; SLOTS],
    pub(super) ends: [u16; SLOTS],
    hint: u64,
    counts: [u64; 2],
    functions: u32,
    moved: u8,
    occupied: u8,
    secondary: u8,
    _zero: u8,
}

/// From a bucket to the other one of a tag, by XOR: odd, so that they differ. `choice` is Horton's function, 0 else.
#[inline(always)]
pub(super) fn offset(tag: u16, choice: u32) -> u32 {
    (((u32::from(tag) | (choice << 16)).wrapping_add(1).wrapping_mul(SPREAD)).rotate_left(16) << 1) | 1
}

/// The bits of a tag in the Bloom filter.
#[inline(always)]
fn bits(tag: u16) -> u64 {
    let spread = (u32::from(tag) + 1).wrapping_mul(SPREAD_FILTER);
    (0..PROBES).fold(0, |bits, probe| bits | (1 << ((spread >> (26 - 6 * probe)) & 63)))
}

/// The function of the remap array that a tag goes by.
#[inline(always)]
fn function(tag: u16) -> u32 {
    (((u32::from(tag) + 1).wrapping_mul(SPREAD_FILTER) >> 16) * FUNCTIONS) >> 16
}

impl Bucket {
    /// Slots whose entry has `tag` and, if timed, has not ended.
    #[inline(always)]
    pub(super) fn matches<P: Policy>(&self, tag: u16, now: u16) -> u8 {
        simd::equal(&self.tags, tag) & self.live::<P>(now)
    }

    /// Slots that hold an entry which has not ended.
    #[inline(always)]
    pub(super) fn live<P: Policy>(&self, now: u16) -> u8 {
        if P::TIMED { self.occupied & simd::running(&self.ends, now) } else { self.occupied }
    }

    /// Slots that hold an entry, ended or not.
    pub(super) fn occupied(&self) -> u8 {
        self.occupied
    }

    /// Whether the entry of a slot has its first bucket elsewhere.
    pub(super) fn is_secondary(&self, slot: usize) -> bool {
        self.secondary >> slot & 1 != 0
    }

    /// From this bucket to where an entry with `tag` may live if it is not here; none if there cannot be one.
    #[inline(always)]
    pub(super) fn hint<P: Policy>(&self, tag: u16) -> Option<u32> {
        match P::SECOND {
            Second::Always | Second::Fetched => Some(offset(tag, 0)),
            Second::Filter => {
                let bits = bits(tag);
                (self.hint & bits == bits).then(|| offset(tag, 0))
            }
            Second::Remap => match self.choice(tag) {
                0 => None,
                choice => Some(offset(tag, choice)),
            },
        }
    }

    /// From this bucket to the other one of the entry in `slot`, which lives in its second bucket here.
    pub(super) fn home<P: Policy>(&self, slot: usize) -> u32 {
        let choice = if P::SECOND == Second::Remap { self.function_of(slot) } else { 0 };
        offset(self.tags[slot], choice)
    }

    /// Horton's function with which the entry of a slot came here.
    pub(super) fn function_of(&self, slot: usize) -> u32 {
        self.functions >> (3 * slot) & 7
    }

    /// Whether the hint and its counts are those of `recounted`, in which every move was noted afresh. A count of the
    /// filter may have stopped at its limit since.
    pub(super) fn has_books_of<P: Policy>(&self, recounted: &Self) -> bool {
        let stuck = if P::SECOND == Second::Filter { self.counts[0] & self.counts[1] } else { 0 };
        let same = |mine: u64, other: u64| (mine ^ other) & !stuck == 0;
        self.moved == recounted.moved
            && same(self.hint, recounted.hint)
            && (0..2).all(|plane| same(self.counts[plane], recounted.counts[plane]))
            && recounted.hint & !self.hint == 0
    }

    /// Horton's function for `tag` in this bucket, 0 if none.
    #[inline(always)]
    pub(super) fn choice(&self, tag: u16) -> u32 {
        (self.hint >> (3 * function(tag))) as u32 & 7
    }

    /// Whether one more entry with `tag` may move out.
    pub(super) fn has_room_to_move<P: Policy>(&self, tag: u16) -> bool {
        match P::SECOND {
            Second::Always | Second::Fetched => true,
            Second::Filter => self.moved < u8::MAX,
            Second::Remap => self.moved < u8::MAX && self.count(function(tag)) < 15,
        }
    }

    /// Puts an entry into a free slot. `choice` is 0 but for an entry that Horton's function brought here.
    #[inline(always)]
    pub(super) fn put(&mut self, slot: usize, tag: u16, end: u16, secondary: bool, choice: u32) {
        debug_assert_eq!(self.occupied >> slot & 1, 0, "the slot is free");
        self.tags[slot] = tag;
        self.ends[slot] = end;
        self.occupied |= 1 << slot;
        self.secondary |= u8::from(secondary) << slot;
        self.functions |= choice << (3 * slot);
    }

    /// Takes the entry of a slot out.
    pub(super) fn take(&mut self, slot: usize) {
        debug_assert_eq!(self.occupied >> slot & 1, 1, "the slot holds an entry");
        self.occupied &= !(1 << slot);
        self.secondary &= !(1 << slot);
        self.functions &= !(7 << (3 * slot));
    }

    /// Notes that an entry of this bucket went to its second one.
    pub(super) fn moved_out<P: Policy>(&mut self, tag: u16, choice: u32) {
        match P::SECOND {
            Second::Always | Second::Fetched => return,
            Second::Filter => self.add(bits(tag)),
            Second::Remap => {
                let function = function(tag);
                debug_assert!(self.choice(tag) == choice || self.choice(tag) == 0 && self.count(function) == 0);
                self.hint |= u64::from(choice) << (3 * function);
                self.set_count(function, self.count(function) + 1);
            }
        }
        self.moved += 1;
    }

    /// Notes that an entry of this bucket left its second one.
    pub(super) fn moved_back<P: Policy>(&mut self, tag: u16) {
        match P::SECOND {
            Second::Always | Second::Fetched => return,
            Second::Filter => self.subtract(bits(tag)),
            Second::Remap => {
                let function = function(tag);
                let count = self.count(function) - 1;
                self.set_count(function, count);
                if count == 0 {
                    self.hint &= !(7 << (3 * function));
                }
            }
        }
        self.moved -= 1;
        if self.moved == 0 {
            (self.hint, self.counts) = (0, [0; 2]);
        }
    }

    /// Counts each of `bits` once more: 0 (not in the hint) to 4, where it stays until `moved` is zero.
    fn add(&mut self, bits: u64) {
        let [low, high] = self.counts;
        let again = bits & self.hint & !(low & high);
        self.hint |= bits;
        self.counts = [low ^ again, high ^ (low & again)];
    }

    /// Counts each of `bits` once less.
    fn subtract(&mut self, bits: u64) {
        let [low, high] = self.counts;
        let counted = bits & !(low & high);
        let beyond = counted & (low | high);
        self.hint &= !(counted & !beyond);
        self.counts = [low ^ beyond, high ^ (!low & beyond)];
    }

    fn count(&self, function: u32) -> u64 {
        self.counts[(function >> 4) as usize] >> (4 * (function & 15)) & 15
    }

    fn set_count(&mut self, function: u32, count: u64) {
        let (word, shift) = (&mut self.counts[(function >> 4) as usize], 4 * (function & 15));
        *word = *word & !(15 << shift) | count << shift;
    }
}

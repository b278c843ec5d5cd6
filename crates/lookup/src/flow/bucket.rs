//! The metadata of a bucket: what a [`Line`] keeps of its slots, and the books of its entries that live elsewhere.
//!
//! ```text
//! Bucket, for entries in a separate array:
//! | tags 8 x 16 | ends 8 x 16 | hint 64 | counts 2 x 64 | functions 32 | moved 8 | occupied 8 | secondary 8 | 0 8 |
//! ```
//! `occupied`: slots that hold an entry. `secondary`: those whose entry has its first bucket elsewhere, its *owner*.
//! The owner has in turn: `moved`, the number of its entries that live in their second bucket, and `hint`, their tags.
//! The hint is a Bloom filter with [`PROBES`] bits per tag, or Horton's remap array (21 functions of 3 bits). `counts`
//! keeps it exact when entries leave. For the filter these are two bit planes that count how many entries beyond the
//! first need a bit, so adding and removing a tag takes a few operations on words; for the remap array, 21 nibbles.
//! `functions`, used by Horton only, has the function (3 bits) with which the entry of a slot came to its second
//! bucket.
//!
//! The other bucket of a slot is its own XOR a function of the tag. So moves, and the expiry of an entry in its second
//! bucket, need no key and no hash. Source: Le Scouarnec, section 4.3; the XOR is that of MemC3 and `rte_hash`.
//! Differs: bits are only ever added to the published filter until `moved` is zero; after churn it is wrong 50 times
//! more often.

use super::policy::{Policy, Second};
use super::simd;

/// Bits of the Bloom filter that a tag sets.
const PROBES: u32 = 4;
/// The same of the published filter.
const PROBES_UNCOUNTED: u32 = 2;
/// Functions of the remap array, and nibbles of its counts.
const FUNCTIONS: u32 = 21;
/// Values of a function except 0, which is none.
pub(super) const CHOICES: u32 = 7;
/// Odd constants that spread tags (the golden ratio; that of MurmurHash2).
const SPREAD: u32 = 0x9E37_79B1;
const SPREAD_FILTER: u32 = 0x5BD1_E995;

/// The XOR from a bucket to a tag's other one: odd, so that they differ. `choice` is Horton's function, otherwise 0.
#[inline(always)]
pub(super) fn offset(tag: u16, choice: u32) -> u32 {
    (((u32::from(tag) | (choice << 16)).wrapping_add(1).wrapping_mul(SPREAD)).rotate_left(16) << 1) | 1
}

/// The bits of a tag, `probes` of them at most, in a Bloom filter of `filter_bits`, a power of two up to 64.
#[inline(always)]
fn bits(tag: u16, probes: u32, filter_bits: u32) -> u64 {
    let spread = (u32::from(tag) + 1).wrapping_mul(SPREAD_FILTER);
    (0..probes).fold(0, |bits, probe| bits | (1 << ((spread >> (26 - 6 * probe)) & (filter_bits - 1))))
}

/// The function of the remap array that applies to a tag.
#[inline(always)]
fn function(tag: u16) -> u32 {
    (((u32::from(tag) + 1).wrapping_mul(SPREAD_FILTER) >> 16) * FUNCTIONS) >> 16
}

/// The entries of a bucket that live in their second one: the hint, and the counts that keep it exact.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Books {
    pub(super) hint: u64,
    pub(super) counts: [u64; 2],
}

impl Books {
    /// Increments the count of each of `bits`: 0 (not in the hint) to 4, where it stays until `moved` is zero.
    fn add(&mut self, bits: u64) {
        let [low, high] = self.counts;
        let again = bits & self.hint & !(low & high);
        self.hint |= bits;
        self.counts = [low ^ again, high ^ (low & again)];
    }

    /// Decrements the count of each of `bits`.
    fn subtract(&mut self, bits: u64) {
        let [low, high] = self.counts;
        let counted = bits & !(low & high);
        let beyond = counted & (low | high);
        self.hint &= !(counted & !beyond);
        self.counts = [low ^ beyond, high ^ (!low & beyond)];
    }

    /// Horton's function for `tag` in this bucket, 0 if none.
    #[inline(always)]
    fn choice(&self, tag: u16) -> u32 {
        (self.hint >> (3 * function(tag))) as u32 & 7
    }

    fn count(&self, function: u32) -> u64 {
        self.counts[(function >> 4) as usize] >> (4 * (function & 15)) & 15
    }

    fn set_count(&mut self, function: u32, count: u64) {
        let (word, shift) = (&mut self.counts[(function >> 4) as usize], 4 * (function & 15));
        *word = *word & !(15 << shift) | count << shift;
    }
}

/// The metadata of a bucket: stored fields, and what follows from them in all layouts.
pub trait Line: Copy + Default + std::fmt::Debug {
    /// Slots per bucket, up to 8.
    const SLOTS: usize;
    /// Bits of the filter.
    const FILTER_BITS: u32;
    /// The largest `moved` count.
    const MAX_MOVED: u8;
    /// Whether it stores which of Horton's functions brought an entry.
    const HAS_FUNCTIONS: bool;

    /// Slots that hold an entry, ended or not.
    fn occupied(&self) -> u8;
    /// Slots whose entry has its first bucket elsewhere.
    fn secondary(&self) -> u8;
    /// Sets both.
    fn set_slots(&mut self, occupied: u8, secondary: u8);
    /// Entries of this bucket that live in their second one.
    fn moved(&self) -> u8;
    /// Sets `moved`.
    fn set_moved(&mut self, moved: u8);
    /// The hint and its counts.
    fn books(&self) -> Books;
    /// Sets the hint and its counts.
    fn set_books(&mut self, books: Books);
    /// The end of a slot's entry.
    fn end(&self, slot: usize) -> u16;
    /// Sets the end of a slot's entry.
    fn set_end(&mut self, slot: usize, end: u16);
    /// Stores the tag of a slot, in layouts with tags.
    fn set_tag(&mut self, slot: usize, tag: u16);
    /// Slots whose timer runs, and possibly others that hold no entry.
    fn running(&self, now: u16) -> u8;
    /// Horton's functions with which the entries of the slots came here, 3 bits each.
    fn functions(&self) -> u32;
    /// Sets the functions.
    fn set_functions(&mut self, functions: u32);

    /// All slots.
    const ALL: u8 = u8::MAX >> (8 - Self::SLOTS);

    /// Slots that hold an entry that has not ended.
    #[inline(always)]
    fn live<P: Policy>(&self, now: u16) -> u8 {
        if P::TIMED { self.occupied() & self.running(now) } else { self.occupied() }
    }

    /// Whether the entry of a slot has its first bucket elsewhere.
    fn is_secondary(&self, slot: usize) -> bool {
        self.secondary() >> slot & 1 != 0
    }

    /// The XOR from this bucket to where an entry with `tag` may live if it is not here; none if there cannot be one.
    #[inline(always)]
    fn hint<P: Policy>(&self, tag: u16) -> Option<u32> {
        self.tells::<P>(Self::asked::<P>(tag)).then(|| self.way::<P>(tag))
    }

    /// The bits of the hint for `tag`. They are the same in all lines, so a batch computes them as vectors.
    #[inline(always)]
    fn asked<P: Policy>(tag: u16) -> u64 {
        match P::SECOND {
            Second::Always | Second::Fetched => 0,
            Second::Filter => bits(tag, PROBES, Self::FILTER_BITS),
            Second::Uncounted => bits(tag, PROBES_UNCOUNTED, Self::FILTER_BITS),
            Second::Remap => 7 << (3 * function(tag)),
        }
    }

    /// Whether an entry with the tag of these bits may live elsewhere.
    #[inline(always)]
    fn tells<P: Policy>(&self, asked: u64) -> bool {
        match P::SECOND {
            Second::Always | Second::Fetched => true,
            Second::Filter => self.books().hint & asked == asked,
            Second::Uncounted => self.books().hint & asked == asked,
            Second::Remap => self.books().hint & asked != 0,
        }
    }

    /// The XOR from this bucket to where an entry with `tag` lives if the hint has the tag.
    #[inline(always)]
    fn way<P: Policy>(&self, tag: u16) -> u32 {
        offset(tag, if P::SECOND == Second::Remap { self.choice(tag) } else { 0 })
    }

    /// Horton's function for `tag` in this bucket, 0 if none.
    #[inline(always)]
    fn choice(&self, tag: u16) -> u32 {
        self.books().choice(tag)
    }

    /// Horton's function that brought the entry of a slot here.
    fn function_of(&self, slot: usize) -> u32 {
        self.functions() >> (3 * slot) & 7
    }

    /// Whether the hint and its counts equal those of `recounted`, in which every move was noted again. A count of the
    /// filter may have saturated since.
    fn has_books_of<P: Policy>(&self, recounted: &Self) -> bool {
        let (mine, other) = (self.books(), recounted.books());
        let stuck = match P::SECOND {
            Second::Filter => mine.counts[0] & mine.counts[1],
            Second::Uncounted => mine.hint & !other.hint,
            _ => 0,
        };
        let same = |mine: u64, other: u64| (mine ^ other) & !stuck == 0;
        self.moved() == recounted.moved()
            && same(mine.hint, other.hint)
            && (0..2).all(|plane| same(mine.counts[plane], other.counts[plane]))
            && other.hint & !mine.hint == 0
    }

    /// Whether one more entry with `tag` may move out.
    fn has_room_to_move<P: Policy>(&self, tag: u16) -> bool {
        match P::SECOND {
            Second::Always | Second::Fetched => true,
            Second::Filter => self.moved() < Self::MAX_MOVED,
            Second::Uncounted => self.moved() < Self::MAX_MOVED,
            Second::Remap => self.moved() < Self::MAX_MOVED && self.books().count(function(tag)) < 15,
        }
    }

    /// Puts an entry into a free slot. `choice` is 0 unless Horton's function brought the entry here.
    #[inline(always)]
    fn put(&mut self, slot: usize, tag: u16, end: u16, secondary: bool, choice: u32) {
        debug_assert_eq!(self.occupied() >> slot & 1, 0, "the slot is free");
        self.set_tag(slot, tag);
        self.set_end(slot, end);
        self.set_slots(self.occupied() | 1 << slot, self.secondary() | u8::from(secondary) << slot);
        self.set_functions(self.functions() | choice << (3 * slot));
    }

    /// Removes the entry of a slot.
    fn take(&mut self, slot: usize) {
        debug_assert_eq!(self.occupied() >> slot & 1, 1, "the slot holds an entry");
        self.set_slots(self.occupied() & !(1 << slot), self.secondary() & !(1 << slot));
        self.set_functions(self.functions() & !(7 << (3 * slot)));
    }

    /// Notes that an entry of this bucket moved to its second one.
    fn moved_out<P: Policy>(&mut self, tag: u16, choice: u32) {
        let mut books = self.books();
        match P::SECOND {
            Second::Always | Second::Fetched => return,
            Second::Filter => books.add(bits(tag, PROBES, Self::FILTER_BITS)),
            Second::Uncounted => books.hint |= bits(tag, PROBES_UNCOUNTED, Self::FILTER_BITS),
            Second::Remap => {
                let function = function(tag);
                debug_assert!(books.choice(tag) == choice || books.choice(tag) == 0 && books.count(function) == 0);
                books.hint |= u64::from(choice) << (3 * function);
                books.set_count(function, books.count(function) + 1);
            }
        }
        self.set_books(books);
        self.set_moved(self.moved() + 1);
    }

    /// Notes that an entry of this bucket left its second one.
    fn moved_back<P: Policy>(&mut self, tag: u16) {
        let mut books = self.books();
        match P::SECOND {
            Second::Always | Second::Fetched => return,
            Second::Filter => books.subtract(bits(tag, PROBES, Self::FILTER_BITS)),
            Second::Uncounted => {}
            Second::Remap => {
                let function = function(tag);
                let count = books.count(function) - 1;
                books.set_count(function, count);
                if count == 0 {
                    books.hint &= !(7 << (3 * function));
                }
            }
        }
        self.set_moved(self.moved() - 1);
        self.set_books(if self.moved() == 0 { Books::default() } else { books });
    }
}

/// The line of a bucket whose entries are in a separate array.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default, Debug)]
pub struct Bucket {
    tags: [u16; simd::LANES],
    ends: [u16; simd::LANES],
    books: Books,
    functions: u32,
    moved: u8,
    occupied: u8,
    secondary: u8,
    _zero: u8,
}

impl Bucket {
    /// Slots whose entry has `tag` and, if timed, has not ended.
    #[inline(always)]
    pub(super) fn matches<P: Policy>(&self, tag: u16, now: u16) -> u8 {
        simd::equal(&self.tags, tag) & self.live::<P>(now)
    }

    /// The tag of the entry in a slot.
    #[inline(always)]
    pub(super) fn tag(&self, slot: usize) -> u16 {
        self.tags[slot]
    }
}

impl Line for Bucket {
    const SLOTS: usize = simd::LANES;
    const FILTER_BITS: u32 = 64;
    const MAX_MOVED: u8 = u8::MAX;
    const HAS_FUNCTIONS: bool = true;

    #[inline(always)]
    fn occupied(&self) -> u8 {
        self.occupied
    }

    #[inline(always)]
    fn secondary(&self) -> u8 {
        self.secondary
    }

    #[inline(always)]
    fn set_slots(&mut self, occupied: u8, secondary: u8) {
        (self.occupied, self.secondary) = (occupied, secondary);
    }

    #[inline(always)]
    fn moved(&self) -> u8 {
        self.moved
    }

    #[inline(always)]
    fn set_moved(&mut self, moved: u8) {
        self.moved = moved;
    }

    #[inline(always)]
    fn books(&self) -> Books {
        self.books
    }

    #[inline(always)]
    fn set_books(&mut self, books: Books) {
        self.books = books;
    }

    #[inline(always)]
    fn end(&self, slot: usize) -> u16 {
        self.ends[slot]
    }

    #[inline(always)]
    fn set_end(&mut self, slot: usize, end: u16) {
        self.ends[slot] = end;
    }

    #[inline(always)]
    fn set_tag(&mut self, slot: usize, tag: u16) {
        self.tags[slot] = tag;
    }

    #[inline(always)]
    fn running(&self, now: u16) -> u8 {
        simd::running(&self.ends, now)
    }

    #[inline(always)]
    fn functions(&self) -> u32 {
        self.functions
    }

    #[inline(always)]
    fn set_functions(&mut self, functions: u32) {
        self.functions = functions;
    }
}

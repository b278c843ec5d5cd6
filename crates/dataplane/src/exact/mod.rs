//! Exact tables: from whole names to 16-bit values, with one writer and any number of readers that never wait.
//!
//! ```text
//!  slot, 1 + R words:   | the name's first 6 bytes, 48 bits | mark, 16 bits |  the name's other bytes, R words |
//!  mark:                0 empty, 1 removed, else value + 2
//! ```
//! A slot of a MAC address, an IPv4 address or a TEID is one word. Such a table is one of [marked words](marked), whose lines
//! are compared with names eight words at a time. Longer slots are probed one by one from the slot that the digest gives.
//!
//! Lookups compare full names, so two names with one digest are two entries. The
//! name of a slot is written once in the life of a table, its first word last, with a Release store. Later only the
//! mark changes (removed, put again, another value). So a reader that sees a mark sees the whole name that belongs to
//! it. Removed slots keep their name until the table is rebuilt, which happens when it is full. The writer builds the
//! new table beside the old one, and the caller publishes it with one store.
//!
//! Cost: 10.2 to 12.8 bytes of table a name of up to 6 bytes. A lookup of one reads one cache line, unless that line is full
//! and the bit is set, and has no branch that depends on the name before that. A batch fetches the first line of every name
//! before it reads any, and the second lines that it needs before it reads them. An update is O(1), amortised over rebuilds. Source: open addressing as in
//! Knuth, vol. 3, 6.4, algorithm L, without deletion by shifting, which readers would notice. Limits: values up to
//! [`MAX_VALUE`].

mod addresses;
mod entries;
mod others;
mod writer;

pub(crate) use addresses::{Addresses, value_of as value_of_address};
pub(crate) use entries::Entries;
pub use entries::Loading as LoadingEntries;
pub(crate) use others::Others;
pub use writer::{ExactWriter, Replacement};

use crate::parse::{MAX_NAME, Names};
use fib::name::{Name, NameKind};
use lookup::base::atomic_words::AtomicWords;
use lookup::base::marked::{self, EMPTY, FIRST_VALUE, MARK_BITS, Searches, VALUES};
use lookup::base::prefetch::prefetch;
use lookup::base::processor::Kernel;
use lookup::hash::Digest;
use std::alloc::{Layout, handle_alloc_error};
use std::io::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const REMOVED: u64 = 1;
/// The largest value of an entry.
pub const MAX_VALUE: u16 = u16::MAX - FIRST_VALUE as u16;

const PREFIX_BYTES: usize = 6;
const MARK: u64 = (1 << MARK_BITS) - 1;
const MAX_REST: usize = (MAX_NAME - PREFIX_BYTES).div_ceil(8);

const MIN_SLOTS: usize = 64;

/// How full a table is.
struct Fill {
    /// Names in a hundred slots of a new table.
    new: usize,
    /// Used slots in a hundred when a table is rebuilt.
    full: usize,
}

/// Slots of one word. A search reads a line at a time, and up to this fill nearly all names are in their first line.
const NARROW: Fill = Fill { new: 70, full: 80 };
/// Longer slots: a search reads slot by slot, so it must end after a few.
const WIDE: Fill = Fill { new: 50, full: 70 };

/// The readers' half: the slots, and how to find a name in them.
#[derive(Debug)]
pub struct ExactTable {
    slots: AtomicWords,
    kind: NameKind,
    n_slots: usize,
    /// Words of a slot.
    stride: usize,
    /// The overflow bits of each line. None if slots are longer than words.
    overflow: Box<[AtomicU8]>,
    /// See [`ExactTable::version`].
    version: AtomicU64,
}

/// The next version of any table.
static NEXT_VERSION: AtomicU64 = AtomicU64::new(0);

fn next_version() -> u64 {
    NEXT_VERSION.fetch_add(1, Ordering::Relaxed)
}

fn rest_words_of(kind: NameKind) -> usize {
    match kind {
        NameKind::Mac | NameKind::Ipv4 | NameKind::Teid => 0,
        NameKind::Ipv6 => 2,
        NameKind::FiveTuple => 4,
        NameKind::Fixed(width) => usize::from(width).saturating_sub(PREFIX_BYTES).div_ceil(8),
        // Frames do not carry texts, so none is ever put.
        NameKind::Text => 0,
    }
}

/// A name as the words that are compared. Names of one kind have one length, except 5-tuples: their last byte, which no
/// name uses, holds the length.
#[derive(Clone, Copy)]
struct Key {
    prefix: u64,
    rest: [u64; MAX_REST],
}

impl Key {
    #[inline]
    fn new(name: &[u8]) -> Self {
        let mut padded = [0; PREFIX_BYTES + 8 * MAX_REST];
        padded[..name.len()].copy_from_slice(name);
        if matches!(name.len(), FIVE_TUPLE_V4 | FIVE_TUPLE_V6) {
            padded[FIVE_TUPLE_V6] = name.len() as u8;
        }
        let mut prefix = [0; 8];
        prefix[..PREFIX_BYTES].copy_from_slice(&padded[..PREFIX_BYTES]);
        let mut rest = [0; MAX_REST];
        for (word, bytes) in rest.iter_mut().zip(padded[PREFIX_BYTES..].chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Self { prefix: u64::from_le_bytes(prefix), rest }
    }
}

const FIVE_TUPLE_V4: usize = 13;
const FIVE_TUPLE_V6: usize = 37;

impl ExactTable {
    /// An empty table for names of a kind.
    pub fn empty(kind: NameKind) -> Self {
        Self::with_capacity(kind, 0)
    }

    fn with_capacity(kind: NameKind, n_names: usize) -> Self {
        let stride = 1 + rest_words_of(kind);
        let n_slots = n_names.saturating_mul(100).div_ceil(Self::fill(stride).new);
        let n_slots = n_slots.max(MIN_SLOTS).next_multiple_of(2 * marked::WORDS);
        let n_words = n_slots * stride;
        // Like any allocation, it ends the process when there is no memory: a panic would end one thread, and the switch would
        // go on without it. After a restart it serves its saved image.
        let slots = AtomicWords::zeroed(n_words).unwrap_or_else(|_| end_without_memory(n_words));
        let n_lines = if stride == 1 { n_slots / marked::WORDS } else { 0 };
        let overflow = (0..n_lines).map(|_| AtomicU8::new(0)).collect();
        Self { slots, kind, n_slots, stride, overflow, version: AtomicU64::new(next_version()) }
    }

    fn fill(stride: usize) -> Fill {
        if stride == 1 { NARROW } else { WIDE }
    }

    /// Whether it is too full with `n_used` slots in use.
    fn is_full_at(&self, n_used: usize) -> bool {
        n_used * 100 > self.n_slots * Self::fill(self.stride).full
    }

    /// The kind of its names.
    pub(crate) fn kind(&self) -> NameKind {
        self.kind
    }

    /// A number that changes whenever a name goes or gets another value, and differs between tables. So what was read under a version is
    /// true for as long as the version is the same.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that a name has gone, or has another value, so that what readers know of it is out of date.
    fn changed(&self) {
        self.version.store(next_version(), Ordering::Release);
    }

    /// The number of slots: of live, removed and no names.
    pub(crate) fn n_slots(&self) -> usize {
        self.n_slots
    }

    /// The name that is or was in a slot; none if the slot was never used.
    pub(crate) fn name_at(&self, index: usize) -> Option<Name> {
        let slot = self.slot(index);
        let mut padded = [0; PREFIX_BYTES + 8 * MAX_REST];
        let first = slot[0].load(Ordering::Acquire);
        if first & MARK == EMPTY {
            return None;
        }
        padded[..PREFIX_BYTES].copy_from_slice(&(first >> MARK_BITS).to_le_bytes()[..PREFIX_BYTES]);
        for (bytes, word) in padded[PREFIX_BYTES..].chunks_exact_mut(8).zip(&slot[1..]) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let len = match self.kind {
            NameKind::Mac => 6,
            NameKind::Ipv4 | NameKind::Teid => 4,
            NameKind::Ipv6 => 16,
            NameKind::FiveTuple => usize::from(padded[FIVE_TUPLE_V6]),
            NameKind::Fixed(width) => usize::from(width),
            NameKind::Text => return None,
        };
        Name::from_bytes(self.kind, padded.get(..len)?).ok()
    }

    /// The value of the name in a slot; none if no live name is there.
    pub(crate) fn value_at(&self, index: usize) -> Option<u16> {
        value_of(self.slot(index)[0].load(Ordering::Acquire) & MARK)
    }

    /// The table of words, if slots are words.
    #[inline]
    fn words(&self) -> marked::Table<'_> {
        marked::Table::new(&self.slots, &self.overflow)
    }

    #[inline]
    fn slot(&self, index: usize) -> &[AtomicU64] {
        &self.slots[index * self.stride..(index + 1) * self.stride]
    }

    /// Searches for a name. Returns the slot with the name, or the empty slot where the search ended, and the mark of
    /// that slot.
    fn find(&self, digest: Digest, key: &Key) -> (usize, u64) {
        if self.stride == 1 {
            return self.words().find(digest, key.prefix);
        }
        let mut index = scaled(digest, self.n_slots) as usize;
        loop {
            let slot = self.slot(index);
            let first = slot[0].load(Ordering::Acquire);
            // The loop ends: the writer keeps some slots empty.
            if first & MARK == EMPTY
                || (first >> MARK_BITS == key.prefix
                    && slot[1..].iter().zip(&key.rest).all(|(word, &wanted)| word.load(Ordering::Relaxed) == wanted))
            {
                return (index, first & MARK);
            }
            index = if index + 1 == self.n_slots { 0 } else { index + 1 };
        }
    }

    /// Records that a name will be in the slot, if that is outside its home.
    fn note_overflow(&self, slot: usize, digest: Digest) {
        if self.stride == 1 {
            self.words().note(slot, digest);
        }
    }

    #[inline]
    fn get_key(&self, digest: Digest, key: &Key) -> Option<u16> {
        value_of(self.find(digest, key).1)
    }

    /// The value of a name of the table's kind. Texts are in no table.
    pub(crate) fn get_name(&self, name: &Name, digest: Digest) -> Option<u16> {
        if name.kind() == NameKind::Text { None } else { self.get_bytes(name.as_bytes(), digest) }
    }

    /// The slot of a live name.
    fn slot_of(&self, digest: Digest, name: &[u8]) -> Option<usize> {
        let (slot, mark) = self.find(digest, &Key::new(name));
        value_of(mark).map(|_| slot)
    }

    /// [`ExactTable::slot_of`] for a name as a word, if slots are words.
    #[inline]
    fn slot_of_word(&self, digest: Digest, word: u64) -> Option<usize> {
        self.words().find_value(digest, word)
    }

    /// The value of a name, given by its bytes, at most [`MAX_NAME`].
    pub(crate) fn get_bytes(&self, name: &[u8], digest: Digest) -> Option<u16> {
        self.get_key(digest, &Key::new(name))
    }

    /// Which of the names of a search that was [begun](ExactTable::begin) in this table, given as words, have the value:
    /// bit `i` for name `i`. For tables with slots of one word only; others have none of them.
    #[inline]
    pub(crate) fn hold(&self, searches: &mut Searches, words: &[u64], digests: &[Digest], value: u16) -> u32 {
        if self.stride > 1 {
            return 0;
        }
        let (mark, burst) = (u64::from(value) + FIRST_VALUE, marked::Burst::new(digests, words));
        let marks = mark..mark + 1;
        self.words().advance(Kernel::get(), burst, &marks, searches);
        self.words().finish(Kernel::get(), burst, &marks, searches)
    }

    /// The value of the `i`th name of a burst.
    #[inline]
    pub fn get(&self, names: &Names, i: usize, digest: Digest) -> Option<u16> {
        match names.name_len(i) {
            len if len > 8 => self.get_key(digest, &Key::new(&names.padded(i)[..len])),
            _ if self.stride == 1 => self.get_word(digest, names.word(i)),
            len => self.get_key(digest, &Key::new(&names.word(i).to_le_bytes()[..len])),
        }
    }

    #[inline]
    fn get_word(&self, digest: Digest, prefix: u64) -> Option<u16> {
        value_of(self.words().find(digest, prefix).1)
    }

    /// Begins the search for the names of a burst: where it starts, and fetching what is there.
    #[inline]
    pub fn begin(&self, digests: &[Digest], searches: &mut Searches) {
        if self.stride == 1 {
            self.words().begin(Kernel::get(), digests, searches);
            return;
        }
        for &digest in digests {
            let slot = scaled(digest, self.n_slots) as usize;
            prefetch(self.slots.as_ptr().wrapping_add(slot * self.stride).cast());
        }
    }

    /// Reads what was fetched for the search, which was [begun](ExactTable::begin) in this table, and begins to fetch the
    /// second lines of the few names that need them.
    #[inline]
    pub fn advance(&self, names: &Names, digests: &[Digest], searches: &mut Searches) {
        if self.stride == 1 {
            let burst = marked::Burst::new(&digests[..names.len()], names.words());
            self.words().advance(Kernel::get(), burst, &VALUES, searches);
        }
    }

    /// Which of the names are in the table: bit `i` for name `i`. Their search has [advanced](ExactTable::advance).
    #[inline]
    pub fn finish(&self, names: &Names, digests: &[Digest], searches: &Searches) -> u32 {
        let digests = &digests[..names.len()];
        if self.stride == 1 {
            let burst = marked::Burst::new(digests, names.words());
            return self.words().finish(Kernel::get(), burst, &VALUES, searches);
        }
        let each = digests.iter().enumerate();
        each.fold(0, |found, (i, &digest)| found | u32::from(self.get(names, i, digest).is_some()) << i)
    }

    /// Bytes of the table.
    pub fn size_bytes(&self) -> usize {
        self.slots.len() * 8 + self.overflow.len()
    }

    /// The slots of live names, with their values.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, u16)> {
        (0..self.n_slots).filter_map(|index| Some((index, self.value_at(index)?)))
    }
}

fn end_without_memory(n_words: usize) -> ! {
    let layout = Layout::array::<u64>(n_words).unwrap_or(Layout::new::<u64>());
    // The log is bypassed: it needs memory itself.
    let _ = writeln!(
        std::io::stderr(),
        "there is no memory for {} MiB of an exact table, so the switch ends; after a restart, it serves its saved image. Allow \
         it more (ulimit -v, MemoryMax), or set max_table_bytes to a third of what it may have: then it refuses a table that \
         is too large, and keeps serving the previous one",
        layout.size() >> 20
    );
    handle_alloc_error(layout)
}

/// The low half of a digest, scaled to `0..n`. The high bits choose shards; a table of the names of one shard would be
/// crowded.
#[inline]
fn scaled(digest: Digest, n: usize) -> u32 {
    (((digest.0 & 0xFFFF_FFFF) * n as u64) >> 32) as u32
}

#[inline]
fn value_of(mark: u64) -> Option<u16> {
    (mark >= FIRST_VALUE).then(|| (mark - FIRST_VALUE) as u16)
}

//! Exact tables: whole names to 16-bit values, one writer, any number of readers that never wait.
//!
//! ```text
//!  slot, 1 + R words:   | the name's first 6 bytes, 48 bits | mark, 16 bits |  the name's other bytes, R words |
//!  mark:                0 empty, 1 removed, else value + 2
//! ```
//! A slot of a MAC address, an IPv4 address or a TEID is one word. Open addressing with linear probing from a place that
//! the digest gives; the full name is compared, so two names of one digest are two entries. A slot's name is written
//! once in the life of a table, its first word last and with Release; afterwards only the mark changes (removed, put
//! again, another value). So a reader that sees a mark sees the whole name, and never half of either. Removed slots keep
//! their name until the table is rebuilt, beside the old one, when seven slots in ten are used; the new table goes live
//! by the caller's one store.
//!
//! Cost: 11 to 16 bytes of table a name of up to 6 bytes; a lookup reads 1.3 cache lines at the mean, and a batch asks
//! for all first lines before it waits for any. An update is O(1), amortised over rebuilds.
//! Source: open addressing as in the textbooks (Knuth, vol. 3, 6.4, algorithm L); no deletion by shifting, because of
//! the readers. Limits: values up to [`MAX_VALUE`].

use crate::parse::{MAX_NAME, Names};
use fib::name::{Name, NameKind};
use lookup::hash::{Digest, Hasher, mix64};
use netio::BURST;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const EMPTY: u64 = 0;
const REMOVED: u64 = 1;
const FIRST_VALUE: u64 = 2;
/// The largest value an entry can have.
pub const MAX_VALUE: u16 = u16::MAX - FIRST_VALUE as u16;

const PREFIX_BYTES: usize = 6;
const MARK_BITS: u32 = 16;
const MARK: u64 = (1 << MARK_BITS) - 1;
const MAX_REST: usize = (MAX_NAME - PREFIX_BYTES).div_ceil(8);

const MIN_SLOTS: usize = 64;
/// A fresh table is half full: a search for a name that is not there then ends after 2.5 slots at the mean.
const SLOTS_PER_NAME: usize = 2;

/// What readers hold: slots, and how to find a name in them.
#[derive(Debug)]
pub struct ExactTable {
    slots: Box<[AtomicU64]>,
    n_slots: usize,
    /// Words of a slot.
    stride: usize,
}

fn rest_words_of(kind: NameKind) -> usize {
    match kind {
        NameKind::Mac | NameKind::Ipv4 | NameKind::Teid => 0,
        NameKind::Ipv6 => 2,
        NameKind::FiveTuple => 4,
        NameKind::Fixed(width) => usize::from(width).saturating_sub(PREFIX_BYTES).div_ceil(8),
        // No frame carries them, so none is ever put.
        NameKind::Text => 0,
    }
}

/// A name as the words that are compared. Names of one kind have one length, but for 5-tuples: there the last byte,
/// which no name uses, is the length.
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

/// The name in a slot.
fn name_of(kind: NameKind, slot: &[AtomicU64]) -> Option<Name> {
    let mut padded = [0; PREFIX_BYTES + 8 * MAX_REST];
    let first = slot[0].load(Ordering::Relaxed) >> MARK_BITS;
    padded[..PREFIX_BYTES].copy_from_slice(&first.to_le_bytes()[..PREFIX_BYTES]);
    for (bytes, word) in padded[PREFIX_BYTES..].chunks_exact_mut(8).zip(&slot[1..]) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    let len = match kind {
        NameKind::Mac => 6,
        NameKind::Ipv4 | NameKind::Teid => 4,
        NameKind::Ipv6 => 16,
        NameKind::FiveTuple => usize::from(padded[FIVE_TUPLE_V6]),
        NameKind::Fixed(width) => usize::from(width),
        NameKind::Text => return None,
    };
    Name::from_bytes(kind, padded.get(..len)?).ok()
}

impl ExactTable {
    /// An empty table for names of a kind.
    pub fn empty(kind: NameKind) -> Self {
        Self::with_room(kind, 0)
    }

    fn with_room(kind: NameKind, n_names: usize) -> Self {
        let n_slots = (n_names * SLOTS_PER_NAME).max(MIN_SLOTS);
        let stride = 1 + rest_words_of(kind);
        let slots = (0..n_slots * stride).map(|_| AtomicU64::new(0)).collect();
        Self { slots, n_slots, stride }
    }

    /// Where the search for a digest starts. Mixed once more, since the digest's own high bits choose shards elsewhere
    /// and tables of one shard's names would crowd.
    #[inline]
    fn home(&self, digest: Digest) -> usize {
        ((u128::from(mix64(digest.0)) * self.n_slots as u128) >> 64) as usize
    }

    #[inline]
    fn slot(&self, index: usize) -> &[AtomicU64] {
        &self.slots[index * self.stride..(index + 1) * self.stride]
    }

    /// The slot of a name: with the name, or the empty one where the search ends; and its mark.
    #[inline]
    fn find(&self, digest: Digest, key: &Key) -> (usize, u64) {
        let mut index = self.home(digest);
        loop {
            let slot = self.slot(index);
            let first = slot[0].load(Ordering::Acquire);
            // A table is never full: the writer keeps three slots in ten empty.
            if first & MARK == EMPTY
                || (first >> MARK_BITS == key.prefix
                    && slot[1..].iter().zip(&key.rest).all(|(word, &wanted)| word.load(Ordering::Relaxed) == wanted))
            {
                return (index, first & MARK);
            }
            index = if index + 1 == self.n_slots { 0 } else { index + 1 };
        }
    }

    #[inline]
    fn get_key(&self, digest: Digest, key: &Key) -> Option<u16> {
        value_of(self.find(digest, key).1)
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

    /// [`ExactTable::get_key`] for slots of one word, which is what most networks have.
    #[inline]
    fn get_word(&self, digest: Digest, prefix: u64) -> Option<u16> {
        let mut index = self.home(digest);
        loop {
            let first = self.slots[index].load(Ordering::Acquire);
            if first & MARK == EMPTY || first >> MARK_BITS == prefix {
                return value_of(first & MARK);
            }
            index = if index + 1 == self.n_slots { 0 } else { index + 1 };
        }
    }

    /// Which of the names are in the table: bit `i` for name `i`.
    #[inline]
    pub fn contains_batch(&self, names: &Names, digests: &[Digest]) -> u32 {
        // Every first line is asked for before any is waited for.
        let n = names.len().min(BURST);
        let digests = &digests[..n];
        let mut touched = 0;
        for &digest in digests {
            touched ^= self.slots[self.home(digest) * self.stride].load(Ordering::Relaxed);
        }
        std::hint::black_box(touched);
        let mut members = 0;
        for (i, &digest) in digests.iter().enumerate() {
            members |= u32::from(self.get(names, i, digest).is_some()) << i;
        }
        members
    }

    /// Bytes of the table.
    pub fn size_bytes(&self) -> usize {
        self.slots.len() * 8
    }

    fn live(&self) -> impl Iterator<Item = (&[AtomicU64], u16)> {
        (0..self.n_slots).filter_map(|index| {
            let slot = self.slot(index);
            Some((slot, value_of(slot[0].load(Ordering::Relaxed) & MARK)?))
        })
    }
}

#[inline]
fn value_of(mark: u64) -> Option<u16> {
    (mark >= FIRST_VALUE).then(|| (mark - FIRST_VALUE) as u16)
}

/// A table that its readers must be given, since it takes the place of the one they have.
pub type Replacement = Arc<ExactTable>;

/// The writer of an exact table.
#[derive(Debug)]
pub struct ExactWriter {
    table: Arc<ExactTable>,
    kind: NameKind,
    hasher: Hasher,
    n_live: usize,
    /// Live and removed: what a search has to walk over.
    n_used: usize,
}

impl ExactWriter {
    /// An empty table of names of `kind`, found by the digests of `hasher`.
    pub fn new(kind: NameKind, hasher: Hasher) -> Self {
        Self { table: Arc::new(ExactTable::empty(kind)), kind, hasher, n_live: 0, n_used: 0 }
    }

    /// What readers read.
    pub fn table(&self) -> &Arc<ExactTable> {
        &self.table
    }

    /// Names in the table.
    pub fn len(&self) -> usize {
        self.n_live
    }

    /// Whether it holds no name.
    pub fn is_empty(&self) -> bool {
        self.n_live == 0
    }

    /// The kind of name it holds.
    pub fn kind(&self) -> NameKind {
        self.kind
    }

    /// Whether a name can be put: of the table's kind, and one that frames carry.
    pub fn accepts(&self, name: &Name) -> bool {
        name.kind() == self.kind && self.kind != NameKind::Text
    }

    /// The value of a name. None also for a name that it does not accept.
    pub fn get(&self, name: &Name) -> Option<u16> {
        if !self.accepts(name) {
            return None;
        }
        self.table.get_key(self.hasher.digest(name.as_bytes()), &Key::new(name.as_bytes()))
    }

    /// Puts a name or changes its value. Returns a table if the one that readers have grew too full for it.
    /// # Panics
    /// For a value above [`MAX_VALUE`] or a name that the table does not accept.
    pub fn put(&mut self, name: &Name, value: u16) -> Option<Replacement> {
        assert!(self.accepts(name), "a {} name for a table of {} names", name.kind(), self.kind);
        assert!(value <= MAX_VALUE, "value {value}; at most {MAX_VALUE}");
        let mut replacement = None;
        if (self.n_used + 1) * 10 > self.table.n_slots * 7 {
            self.rebuild(self.n_live + 1);
            replacement = Some(self.table.clone());
        }
        self.store(self.hasher.digest(name.as_bytes()), &Key::new(name.as_bytes()), value);
        replacement
    }

    fn store(&mut self, digest: Digest, key: &Key, value: u16) {
        let (index, old) = self.table.find(digest, key);
        let slot = self.table.slot(index);
        if old == EMPTY {
            for (word, &wanted) in slot[1..].iter().zip(&key.rest) {
                word.store(wanted, Ordering::Relaxed);
            }
            self.n_used += 1;
        }
        self.n_live += usize::from(old < FIRST_VALUE);
        slot[0].store(key.prefix << MARK_BITS | (u64::from(value) + FIRST_VALUE), Ordering::Release);
    }

    /// Removes a name; false if it was not there.
    pub fn remove(&mut self, name: &Name) -> bool {
        if !self.accepts(name) {
            return false;
        }
        let key = Key::new(name.as_bytes());
        let (index, old) = self.table.find(self.hasher.digest(name.as_bytes()), &key);
        if old < FIRST_VALUE {
            return false;
        }
        self.table.slot(index)[0].store(key.prefix << MARK_BITS | REMOVED, Ordering::Release);
        self.n_live -= 1;
        true
    }

    /// A table of these entries alone. Of equal names the last counts; names that it does not accept are left out.
    /// # Panics
    /// For a value above [`MAX_VALUE`].
    pub fn replace<'a>(&mut self, entries: impl ExactSizeIterator<Item = (&'a Name, u16)>) -> Replacement {
        self.table = Arc::new(ExactTable::with_room(self.kind, entries.len()));
        (self.n_live, self.n_used) = (0, 0);
        for (name, value) in entries {
            assert!(value <= MAX_VALUE, "value {value}; at most {MAX_VALUE}");
            if self.accepts(name) {
                self.store(self.hasher.digest(name.as_bytes()), &Key::new(name.as_bytes()), value);
            }
        }
        self.table.clone()
    }

    /// A table found by the digests of another hasher: with the same entries, or empty if the kind is another.
    pub fn rekey(&mut self, kind: NameKind, hasher: &Hasher) -> Replacement {
        self.hasher = hasher.clone();
        if kind == self.kind {
            self.rebuild(self.n_live);
        } else {
            self.kind = kind;
            self.table = Arc::new(ExactTable::empty(kind));
            (self.n_live, self.n_used) = (0, 0);
        }
        self.table.clone()
    }

    fn rebuild(&mut self, room: usize) {
        let old = std::mem::replace(&mut self.table, Arc::new(ExactTable::with_room(self.kind, room)));
        (self.n_live, self.n_used) = (0, 0);
        for (slot, value) in old.live() {
            if let Some(name) = name_of(self.kind, slot) {
                self.store(self.hasher.digest(name.as_bytes()), &Key::new(name.as_bytes()), value);
            }
        }
    }

    /// Calls `each` for every name, in no order.
    pub fn for_each(&self, mut each: impl FnMut(&Name, u16)) {
        for (slot, value) in self.table.live() {
            if let Some(name) = name_of(self.kind, slot) {
                each(&name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::hash::{Family, SecretKey};
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;

    fn hasher(seed: u64) -> Hasher {
        Hasher::new(Family::default(), &SecretKey::from_seed(seed))
    }

    fn mac(i: u64) -> Name {
        Name::from_bytes(NameKind::Mac, &i.to_le_bytes()[..6]).unwrap()
    }

    fn batch(hasher: &Hasher, of: &[Name]) -> (Names, Vec<Digest>) {
        let mut names = Names::default();
        of.iter().for_each(|name| names.push_name(name.as_bytes()));
        (names, of.iter().map(|name| hasher.digest(name.as_bytes())).collect())
    }

    #[test]
    fn every_kind_of_name_is_found_and_its_neighbours_are_not() {
        let kinds = [
            (NameKind::Mac, 6),
            (NameKind::Ipv4, 4),
            (NameKind::Ipv6, 16),
            (NameKind::FiveTuple, 13),
            (NameKind::FiveTuple, 37),
            (NameKind::Teid, 4),
            (NameKind::Fixed(1), 1),
            (NameKind::Fixed(8), 8),
            (NameKind::Fixed(9), 9),
            (NameKind::Fixed(64), 64),
        ];
        for (kind, len) in kinds {
            let hasher = hasher(1);
            let mut table = ExactWriter::new(kind, hasher.clone());
            let name = |last: u8| {
                let mut bytes = vec![3; len];
                bytes[len - 1] = last;
                Name::from_bytes(kind, &bytes).unwrap()
            };
            (0..100).for_each(|i| drop(table.put(&name(i), u16::from(i) * 300)));
            let (names, digests) = batch(&hasher, &[name(7), name(100), name(99)]);
            assert_eq!(table.table().contains_batch(&names, &digests), 0b101, "{kind}");
            assert_eq!(table.table().get(&names, 2, digests[2]), Some(99 * 300));
            assert_eq!(table.len(), 100);
        }
    }

    #[test]
    fn two_names_of_one_digest_are_two_entries() {
        let mut table = ExactWriter::new(NameKind::Mac, hasher(1));
        let (key, other) = (Key::new(&[1; 6]), Key::new(&[2; 6]));
        table.store(Digest(42), &key, 1);
        table.store(Digest(42), &other, 2);
        assert_eq!(
            (table.table.get_key(Digest(42), &key), table.table.get_key(Digest(42), &other)),
            (Some(1), Some(2))
        );
        assert_eq!(table.table.get_key(Digest(42), &Key::new(&[3; 6])), None);
    }

    #[test]
    fn a_name_s_length_belongs_to_it() {
        let mut table = ExactWriter::new(NameKind::FiveTuple, hasher(1));
        let short = Name::from_bytes(NameKind::FiveTuple, &[0; 13]).unwrap();
        let long = Name::from_bytes(NameKind::FiveTuple, &[0; 37]).unwrap();
        table.put(&short, 4);
        assert_eq!((table.get(&short), table.get(&long)), (Some(4), None));
        table.put(&long, 6);
        assert_eq!((table.get(&short), table.get(&long)), (Some(4), Some(6)));
    }

    #[test]
    fn names_that_come_and_go_for_ever_do_not_fill_the_table() {
        let mut table = ExactWriter::new(NameKind::Mac, hasher(1));
        for i in 0..100_000 {
            table.put(&mac(i), i as u16 & 1023);
            assert!(table.remove(&mac(i)));
            assert!(!table.remove(&mac(i)));
        }
        assert!(table.is_empty());
        assert_eq!(table.table.n_slots, MIN_SLOTS);
    }

    #[test]
    fn a_rehashed_table_has_the_same_entries() {
        let mut table = ExactWriter::new(NameKind::Mac, hasher(1));
        (0..1000).for_each(|i| drop(table.put(&mac(i), i as u16)));
        table.remove(&mac(500));
        table.rekey(NameKind::Mac, &hasher(2));
        assert_eq!(table.len(), 999);
        assert!((0..1000).all(|i| table.get(&mac(i)) == (i != 500).then_some(i as u16)));
    }

    /// A reader on another thread looks stable names up while names around them come and go and the table grows.
    #[test]
    fn readers_find_what_stays_whatever_the_writer_does() {
        let hasher = hasher(3);
        let mut writer = ExactWriter::new(NameKind::Mac, hasher.clone());
        (0..32).for_each(|i| drop(writer.put(&mac(i), i as u16)));
        let live = arc_swap::ArcSwap::new(writer.table().clone());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let stable: Vec<_> = (0..32).map(mac).collect();
                let (names, digests) = batch(&hasher, &stable);
                let (mut rounds, mut last) = (0u64, false);
                while !last {
                    last = stop.load(Ordering::Acquire);
                    let table = live.load();
                    assert_eq!(table.contains_batch(&names, &digests), u32::MAX);
                    assert!((0..32).all(|i| table.get(&names, i, digests[i]) == Some(i as u16)));
                    rounds += 1;
                }
                rounds
            });
            for i in 32..200_000u64 {
                if let Some(table) = writer.put(&mac(i), i as u16 & 1023) {
                    live.store(table);
                }
                if i % 3 != 0 {
                    writer.remove(&mac(i));
                }
            }
            stop.store(true, Ordering::Release);
            assert!(reader.join().unwrap() > 0);
        });
    }

    proptest! {
        #[test]
        fn it_answers_like_a_map(operations in prop::collection::vec((0..3u8, 0..40u64, 0..=MAX_VALUE), 0..400)) {
            let mut table = ExactWriter::new(NameKind::Mac, hasher(9));
            let mut oracle = HashMap::new();
            for (operation, name, value) in operations {
                let name = mac(name);
                match operation {
                    0 => prop_assert_eq!(table.remove(&name), oracle.remove(&name).is_some()),
                    _ => {
                        table.put(&name, value);
                        oracle.insert(name.clone(), value);
                    }
                }
                prop_assert_eq!(table.get(&name), oracle.get(&name).copied());
                prop_assert_eq!(table.len(), oracle.len());
            }
            let mut seen = HashMap::new();
            table.for_each(|name, value| { seen.insert(name.clone(), value); });
            prop_assert_eq!(seen, oracle);
        }
    }
}

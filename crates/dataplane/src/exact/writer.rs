//! The writing half of exact tables. It changes entries in place while others read, and builds larger tables beside the
//! old one.

use super::{EMPTY, ExactTable, FIRST_VALUE, Key, MARK_BITS, MAX_VALUE, REMOVED, value_of};
use fib::name::{Name, NameKind};
use lookup::hash::{Digest, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A table that the caller must publish to readers in place of the one they have.
pub type Replacement = Arc<ExactTable>;

/// The writer of an exact table.
#[derive(Debug)]
pub struct ExactWriter {
    table: Arc<ExactTable>,
    kind: NameKind,
    hasher: Hasher,
    n_live: usize,
    /// Slots of live and of removed names: those that a search passes over.
    n_used: usize,
    /// Counts changes of the kind or the hasher.
    n_rekeys: u64,
}

impl ExactWriter {
    /// An empty table of names of `kind`, found by the digests of `hasher`.
    pub fn new(kind: NameKind, hasher: Hasher) -> Self {
        Self::with_capacity(kind, hasher, 0)
    }

    /// [`ExactWriter::new`], with room for `n_names`.
    pub fn with_capacity(kind: NameKind, hasher: Hasher, n_names: usize) -> Self {
        let table = Arc::new(ExactTable::with_capacity(kind, n_names));
        Self { table, kind, hasher, n_live: 0, n_used: 0, n_rekeys: 0 }
    }

    /// The table that readers have.
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

    /// Whether a name can be put: it is of the table's kind, and frames carry it.
    pub fn accepts(&self, name: &Name) -> bool {
        name.kind() == self.kind && self.kind != NameKind::Text
    }

    /// The value of a name; none for a name that the table does not accept.
    pub fn get(&self, name: &Name) -> Option<u16> {
        self.slot_of(name).map(|(_, value)| value)
    }

    /// The slot of a name, and its value. The name keeps its slot as long as the table is not replaced.
    pub(crate) fn slot_of(&self, name: &Name) -> Option<(usize, u16)> {
        if !self.accepts(name) {
            return None;
        }
        let (slot, mark) = self.table.find(self.hasher.digest(name.as_bytes()), &Key::new(name.as_bytes()));
        Some((slot, value_of(mark)?))
    }

    /// Puts a name or changes its value. Returns a new table if the present one was too full.
    /// # Panics
    /// For a value above [`MAX_VALUE`] or a name that the table does not accept.
    pub fn put(&mut self, name: &Name, value: u16) -> Option<Replacement> {
        assert!(self.accepts(name), "a {} name for a table of {} names", name.kind(), self.kind);
        assert!(value <= MAX_VALUE, "value {value}; at most {MAX_VALUE}");
        let mut replacement = None;
        if self.table.is_full_at(self.n_used + 1) {
            // A tenth more than there are, so that the next rebuild is not soon.
            self.rebuild(self.n_live + self.n_live / 10 + 1);
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
            // This comes before the name, so that every reader that knows of the name sees it.
            self.table.note_overflow(index, digest);
        }
        self.n_live += usize::from(old < FIRST_VALUE);
        slot[0].store(key.prefix << MARK_BITS | (u64::from(value) + FIRST_VALUE), Ordering::Release);
        if old >= FIRST_VALUE {
            self.table.changed();
        }
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
        self.table.changed();
        self.n_live -= 1;
        true
    }

    /// An empty table with the kind and the hasher of this one, and room for `n_names`.
    pub(crate) fn like(&self, n_names: usize) -> Self {
        let table = Arc::new(ExactTable::with_capacity(self.kind, n_names));
        Self { table, hasher: self.hasher.clone(), n_live: 0, n_used: 0, ..*self }
    }

    /// Whether `other` was made [`like`](ExactWriter::like) this one, and the hasher has not changed since.
    pub(crate) fn is_keyed_like(&self, other: &Self) -> bool {
        self.n_rekeys == other.n_rekeys
    }

    /// Changes the hasher. The entries stay if the kind is the same; otherwise the new table is empty.
    pub fn rekey(&mut self, kind: NameKind, hasher: &Hasher) -> Replacement {
        self.hasher = hasher.clone();
        self.n_rekeys += 1;
        if kind == self.kind {
            self.rebuild(self.n_live);
        } else {
            self.kind = kind;
            self.table = Arc::new(ExactTable::empty(kind));
            (self.n_live, self.n_used) = (0, 0);
        }
        self.table.clone()
    }

    fn rebuild(&mut self, capacity: usize) {
        let old = std::mem::replace(&mut self.table, Arc::new(ExactTable::with_capacity(self.kind, capacity)));
        (self.n_live, self.n_used) = (0, 0);
        for (slot, value) in old.live() {
            if let Some(name) = old.name_at(slot) {
                self.store(self.hasher.digest(name.as_bytes()), &Key::new(name.as_bytes()), value);
            }
        }
    }

    /// Calls `each` for every name, in no order.
    pub fn for_each(&self, mut each: impl FnMut(&Name, u16)) {
        for (slot, value) in self.table.live() {
            if let Some(name) = self.table.name_at(slot) {
                each(&name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::MIN_SLOTS;
    use crate::parse::Names;
    use lookup::base::marked::Searches;
    use lookup::hash::{Family, Rng, SecretKey};
    use lookup::testkit;
    use netio::BURST;
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

    fn members(table: &ExactTable, names: &Names, digests: &[Digest]) -> u32 {
        let mut searches = Searches::default();
        table.begin(digests, &mut searches);
        table.advance(names, digests, &mut searches);
        table.finish(names, digests, &searches)
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
            assert_eq!(members(table.table(), &names, &digests), 0b101, "{kind}");
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

    /// At the highest fill some names are in the third line of their search and beyond, and the last lines overflow into
    /// the first.
    #[test]
    fn names_that_overflow_their_lines_are_found_and_others_are_not() {
        let mut rng = Rng::new(testkit::seed());
        for n in [16, 90, 1_000, 20_000] {
            let hasher = hasher(rng.below(u64::MAX));
            let mut writer = ExactWriter::with_capacity(NameKind::Mac, hasher.clone(), n);
            let mut live: Vec<Name> = Vec::new();
            while !writer.table().is_full_at(writer.n_used + 1) {
                let name = mac(2 * rng.below(1 << 40));
                assert!(writer.put(&name, 1).is_none());
                live.push(name);
            }
            let n_overflows = writer.table().overflow.iter().filter(|bits| bits.load(Ordering::Relaxed) > 0).count();
            assert!(n_overflows > 0 || n < 90, "{n}");
            for names in live.chunks(BURST) {
                let (burst, digests) = batch(&hasher, names);
                assert_eq!(members(writer.table(), &burst, &digests), ((1u64 << names.len()) - 1) as u32);
                let aliens: Vec<Name> = names.iter().map(|_| mac(2 * rng.below(1 << 40) + 1)).collect();
                let (burst, digests) = batch(&hasher, &aliens);
                assert_eq!(members(writer.table(), &burst, &digests), 0);
            }
        }
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
    fn a_version_ends_when_a_name_goes_or_moves_and_not_when_one_comes() {
        let mut table = ExactWriter::new(NameKind::Mac, hasher(1));
        table.put(&mac(1), 1);
        let first = table.table().version();
        table.put(&mac(2), 1);
        assert_eq!(table.table().version(), first);
        table.put(&mac(1), 2);
        let moved = table.table().version();
        table.remove(&mac(1));
        let removed = table.table().version();
        let another = table.like(10).table().version();
        let rekeyed = table.rekey(NameKind::Mac, &hasher(2)).version();
        let versions = std::collections::BTreeSet::from([first, moved, removed, another, rekeyed]);
        assert_eq!(versions.len(), 5, "{versions:?}");
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

    /// A reader on another thread looks up names that stay, while other names come and go and the table grows.
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
                    assert_eq!(members(&table, &names, &digests), u32::MAX);
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

//! The conformance test must be able to fail: it finds each of several defects in a small table.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use fibula_lookup::base::part::PartId;
use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::lpm::trie::{PrefixTrie, Settings};
use fibula_lookup::othello::{self, Othello};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::{Names, ProbeOf, UpdateOf};
use fibula_lookup::traits::{Applied, ApplyError, Control, InsertError, Query};

use super::super::prefixes::{LongestPrefix, numbered};

/// What can be wrong with a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    Nothing,
    /// A removed name keeps its value where a tombstone is promised.
    TombstoneForgotten,
    /// Only the first cell of an update is stored.
    HalfApplied,
    /// An update is applied whatever version it builds on.
    GapIgnored,
    /// An update that comes again, or late, is applied again.
    OldTakenBack,
    /// An update that is refused has stored its first cell.
    RefusedButStored,
    /// An export lacks the latest update.
    ExportStale,
    /// Of equal names in a batch, the first wins.
    FirstOfBatchWins,
    /// A batch of lookups gives a name the value of its neighbour.
    BatchShifted,
}

/// The value of a name is the XOR of its two cells, as in an Othello. The contents of the first change with every
/// version.
type Cells = BTreeMap<(u64, bool), u64>;

/// Changed cells with their new values. Cells are never deleted.
#[derive(Clone, Debug)]
struct Update {
    from: u64,
    to: u64,
    cells: Vec<((u64, bool), u64)>,
}

struct Table {
    defect: Defect,
    names: BTreeMap<u64, u64>,
    tombstones: BTreeSet<u64>,
    query: TableQuery,
    /// The query structure before the latest update.
    before: TableQuery,
}

#[derive(Clone)]
struct TableQuery {
    defect: Defect,
    cells: Cells,
    version: u64,
}

impl Table {
    fn new(defect: Defect) -> Self {
        let query = TableQuery { defect, cells: Cells::new(), version: 0 };
        Self { defect, names: BTreeMap::new(), tombstones: BTreeSet::new(), before: query.clone(), query }
    }

    fn emit(&mut self, name: u64, value: u64, updates: &mut Vec<Update>) {
        let (from, to) = (self.query.version, self.query.version + 1);
        let first = mix64(to);
        let update = Update { from, to, cells: vec![((name, false), first), ((name, true), first ^ value)] };
        self.before = self.query.clone();
        self.query.store(&update, 2);
        updates.push(update);
    }
}

impl Control for Table {
    type Key = u64;
    type Query = TableQuery;

    fn insert(&mut self, name: u64, value: u64, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.tombstones.remove(&name);
        if self.names.insert(name, value) != Some(value) {
            self.emit(name, value, updates);
        }
        Ok(())
    }

    fn insert_batch(&mut self, entries: &[(u64, u64)], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        let mut entries: Vec<_> = entries.to_vec();
        if self.defect == Defect::FirstOfBatchWins {
            entries.reverse();
        }
        entries.iter().try_for_each(|&(name, value)| self.insert(name, value, updates))
    }

    fn remove(&mut self, name: u64, updates: &mut Vec<Update>) -> bool {
        let Some(value) = self.names.remove(&name) else { return false };
        self.tombstones.insert(name);
        self.emit(name, if self.defect == Defect::TombstoneForgotten { value } else { 0 }, updates);
        true
    }

    fn get(&self, name: u64) -> Option<u64> {
        self.names.get(&name).copied()
    }

    fn export(&self) -> TableQuery {
        let stale = TableQuery { version: self.query.version, ..self.before.clone() };
        if self.defect == Defect::ExportStale { stale } else { self.query.clone() }
    }

    fn len(&self) -> usize {
        self.names.len()
    }
}

impl TableQuery {
    fn store(&mut self, update: &Update, n_cells: usize) {
        self.cells.extend(update.cells.iter().take(n_cells).copied());
        self.version = update.to;
    }
}

impl Query for TableQuery {
    type Key = u64;
    type Update = Update;

    fn lookup(&self, name: u64) -> u64 {
        [false, true].iter().fold(0, |value, &second| value ^ self.cells.get(&(name, second)).unwrap_or(&0))
    }

    fn lookup_batch(&self, names: &[u64], values: &mut [u64]) {
        let shift = u64::from(self.defect == Defect::BatchShifted);
        names.iter().zip(values).for_each(|(&name, value)| *value = self.lookup(name + shift));
    }

    fn apply(&mut self, update: &Update) -> Result<Applied, ApplyError> {
        if update.to <= self.version {
            if self.defect == Defect::OldTakenBack {
                self.store(update, 2);
                return Ok(Applied::Applied);
            }
            return Ok(Applied::AlreadyThere);
        }
        if update.from != self.version && self.defect != Defect::GapIgnored {
            if self.defect == Defect::RefusedButStored {
                self.cells.extend(update.cells.first().copied());
            }
            return Err(ApplyError::Gap { part: PartId::WHOLE, current: self.version, from: update.from });
        }
        self.store(update, if self.defect == Defect::HalfApplied { 1 } else { 2 });
        Ok(Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        128 * self.cells.len() as u64
    }
}

fn names() -> Names<Table> {
    Names::until(|table: &Table, name| table.tombstones.contains(&name), |_| false)
}

fn random(defect: Defect) {
    let scope = Scope { n_operations: 2_000, n_names: 20, n_values: 4, check_every: 100, seed: 1 };
    conformance::random(&mut Table::new(defect), names(), |number| number, &scope);
}

fn exhaustive(defect: Defect) {
    conformance::exhaustive(|| (Table::new(defect), names()), |number| number, 2, 2, 4);
}

/// The message of a run that fails.
fn failure(run: fn(Defect), defect: Defect) -> Option<String> {
    catch_unwind(|| run(defect)).err().map(|panic| *panic.downcast::<String>().expect("a message with numbers"))
}

#[test]
fn a_table_without_a_defect_conforms() {
    random(Defect::Nothing);
    exhaustive(Defect::Nothing);
}

#[test]
fn every_defect_is_found_and_for_what_it_is() {
    let both: [(Defect, &str); 6] = [
        (Defect::TombstoneForgotten, "right: 0"),
        (Defect::HalfApplied, "left: "),
        (Defect::OldTakenBack, "right: AlreadyThere"),
        (Defect::ExportStale, "left: "),
        (Defect::FirstOfBatchWins, "left: "),
        (Defect::BatchShifted, "left: "),
    ];
    let out_of_order = [(Defect::GapIgnored, "update 2"), (Defect::RefusedButStored, "update 2")];
    for (defect, reason) in both.into_iter().chain(out_of_order) {
        let found = failure(exhaustive, defect).unwrap_or_else(|| panic!("short sequences do not find {defect:?}"));
        assert!(found.contains(reason), "{defect:?}: {found}");
    }
    for (defect, reason) in both {
        let found = failure(random, defect).unwrap_or_else(|| panic!("random sequences do not find {defect:?}"));
        assert!(found.contains(reason), "{defect:?}: {found}");
    }
}

/// A real structure with a defective query structure.
struct Spoilt<C: Control> {
    control: C,
    /// The key that is looked up instead.
    instead: fn(ProbeOf<C>) -> ProbeOf<C>,
    gap_ignored: bool,
}

struct SpoiltQuery<Q: Query> {
    query: Q,
    instead: fn(Q::Key) -> Q::Key,
    gap_ignored: bool,
}

impl<C: Control> Control for Spoilt<C> {
    type Key = C::Key;
    type Query = SpoiltQuery<C::Query>;

    fn insert(&mut self, key: C::Key, value: u64, updates: &mut Vec<UpdateOf<C>>) -> Result<(), InsertError> {
        self.control.insert(key, value, updates)
    }

    fn insert_batch(&mut self, entries: &[(C::Key, u64)], updates: &mut Vec<UpdateOf<C>>) -> Result<(), InsertError> {
        self.control.insert_batch(entries, updates)
    }

    fn remove(&mut self, key: C::Key, updates: &mut Vec<UpdateOf<C>>) -> bool {
        self.control.remove(key, updates)
    }

    fn get(&self, key: C::Key) -> Option<u64> {
        self.control.get(key)
    }

    fn export(&self) -> SpoiltQuery<C::Query> {
        SpoiltQuery { query: self.control.export(), instead: self.instead, gap_ignored: self.gap_ignored }
    }

    fn len(&self) -> usize {
        self.control.len()
    }
}

impl<Q: Query> Query for SpoiltQuery<Q> {
    type Key = Q::Key;
    type Update = Q::Update;

    fn lookup(&self, key: Q::Key) -> u64 {
        self.query.lookup((self.instead)(key))
    }

    fn lookup_batch(&self, keys: &[Q::Key], values: &mut [u64]) {
        let keys: Vec<_> = keys.iter().copied().map(self.instead).collect();
        self.query.lookup_batch(&keys, values);
    }

    fn apply(&mut self, update: &Q::Update) -> Result<Applied, ApplyError> {
        let applied = self.query.apply(update);
        if self.gap_ignored { applied.or(Ok(Applied::Applied)) } else { applied }
    }

    fn size_bits(&self) -> u64 {
        self.query.size_bits()
    }
}

#[test]
fn a_trie_that_overlooks_the_last_bit_does_not_conform() {
    let run = |instead: fn(u32) -> u32| {
        let control = PrefixTrie::<u32>::new(Settings::new(1_000, &SecretKey::from_seed(1)));
        let oracle = LongestPrefix { state: |_| Vec::new(), carried: Box::new(|_, _| None) };
        let scope = Scope { n_operations: 100, n_names: 50, n_values: 1 << 15, check_every: 50, seed: 1 };
        let mut spoilt = Spoilt { control, instead, gap_ignored: false };
        conformance::random(&mut spoilt, oracle, |number| numbered(number, 1), &scope);
    };
    run(|address| address);
    assert!(catch_unwind(|| run(|address| address & !1)).is_err());
}

#[test]
fn an_othello_that_swallows_a_gap_does_not_conform() {
    let run = |gap_ignored| {
        let new = || {
            let control: Othello = Othello::new(othello::Settings::new(8, 100, &SecretKey::from_seed(1)));
            (Spoilt { control, instead: |name| name, gap_ignored }, Names::aliens())
        };
        conformance::exhaustive(new, |number| Digest(mix64(number)), 2, 2, 3);
    };
    run(false);
    assert!(catch_unwind(|| run(true)).is_err());
}

//! Tuple Space Search, rules and their places: the hash table's slots, and the priorities in each tuple.

use std::collections::BTreeMap;

use super::query::TupleSpaceQuery;
use super::tuple::{Pattern, Tuple};
use super::view::TupleSpaceView;
use super::{Settings, tuple_prf};
use crate::base::cells::value_mask;
use crate::base::part::{Change, PartId, Payload};
use crate::cuckoo::exact::CuckooSkeleton;
use crate::traits::{InsertError, RestoreError, Row, Skeleton};

/// The number of rules of a tuple with each priority.
type Priorities = BTreeMap<u32, u32>;

/// What a rule has besides its pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranked<P> {
    pub(super) priority: u32,
    pub(super) payload: P,
}

/// A rule as stored in the hash table: the name of its pattern, and the rest.
pub(super) type Entry<P> = ([u64; 2], Ranked<P>);

/// Rules with one payload each, and their slots. As a [`Skeleton`] of flat names, these are exact rules of priority 0.
///
/// A store keeps the names and not the rules, so it restores a skeleton of flat names.
#[derive(Clone)]
pub struct TupleSpaceSkeleton<P: Payload = u32> {
    settings: Settings,
    pub(super) table: CuckooSkeleton<2, Ranked<P>>,
    tuples: BTreeMap<u16, Priorities>,
    seed: u64,
    pub(super) tuples_digest: u64,
    /// The tuples whose highest priority the latest mutation changed, if it changed some slots only.
    pub(super) changed: Vec<(Tuple, Option<u32>)>,
}

impl<P: Payload> TupleSpaceSkeleton<P> {
    fn of(settings: &Settings, table: CuckooSkeleton<2, Ranked<P>>) -> Self {
        let (settings, seed) = (settings.clone(), settings.seed());
        let mut made = Self { settings, table, tuples: BTreeMap::new(), seed, tuples_digest: 0, changed: Vec::new() };
        made.count_tuples();
        made
    }

    /// Tuples that have rules.
    pub fn n_tuples(&self) -> usize {
        self.tuples.len()
    }

    /// The tuples that have rules, each with its highest priority, in order of their codes.
    pub(super) fn tuples(&self) -> impl Iterator<Item = (Tuple, u32)> {
        let tuples = self.tuples.keys().copied().filter_map(Tuple::from_code);
        tuples.filter_map(|tuple| Some((tuple, self.highest(tuple)?)))
    }

    /// Inserts a rule, or changes its priority and payload.
    /// # Errors
    /// As [`Skeleton::insert`].
    pub(super) fn put(&mut self, pattern: &Pattern, rule: Ranked<P>) -> Result<Change, InsertError> {
        let old = self.table.get(pattern.name());
        let change = self.table.insert(pattern.name(), rule)?;
        let before = self.highest(pattern.tuple());
        if let Some(old) = old {
            self.forget(pattern.tuple(), old.priority);
        }
        self.count(pattern.tuple(), rule.priority);
        self.note(pattern.tuple(), before);
        Ok(change)
    }

    /// As [`Skeleton::insert_batch`], for rules.
    pub(super) fn put_batch(&mut self, rules: &[Entry<P>]) -> Result<Change, InsertError> {
        let inserted = self.table.insert_batch(rules);
        self.count_tuples();
        inserted
    }

    /// Removes the rule of a pattern.
    pub(super) fn take(&mut self, pattern: &Pattern) -> Change {
        let Some(old) = self.table.get(pattern.name()) else { return Change::None };
        let change = self.table.remove(pattern.name());
        let before = self.highest(pattern.tuple());
        self.forget(pattern.tuple(), old.priority);
        self.note(pattern.tuple(), before);
        change
    }

    /// The highest priority of a tuple's rules.
    fn highest(&self, tuple: Tuple) -> Option<u32> {
        self.tuples.get(&tuple.code())?.last_key_value().map(|(&priority, _)| priority)
    }

    /// Adds a rule to the counts.
    fn count(&mut self, tuple: Tuple, priority: u32) {
        *self.tuples.entry(tuple.code()).or_default().entry(priority).or_default() += 1;
    }

    /// Removes a rule from the counts.
    fn forget(&mut self, tuple: Tuple, priority: u32) {
        let Some(priorities) = self.tuples.get_mut(&tuple.code()) else { return };
        if let Some(count) = priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                priorities.remove(&priority);
            }
        }
        if priorities.is_empty() {
            self.tuples.remove(&tuple.code());
        }
    }

    /// Recounts all rules.
    fn count_tuples(&mut self) {
        self.tuples.clear();
        let rules: Vec<_> = self.table.iter().collect();
        for (name, rule) in rules {
            if let Some(pattern) = Pattern::of_name(name) {
                self.count(pattern.tuple(), rule.priority);
            }
        }
        self.tuples_digest =
            self.tuples().fold(0, |digest, (tuple, highest)| digest ^ tuple_prf(self.seed, tuple, highest));
    }

    /// Records the change of a tuple whose highest priority was `before`.
    fn note(&mut self, tuple: Tuple, before: Option<u32>) {
        self.changed.clear();
        let after = self.highest(tuple);
        if before != after {
            for highest in [before, after].into_iter().flatten() {
                self.tuples_digest ^= tuple_prf(self.seed, tuple, highest);
            }
            self.changed.push((tuple, after));
        }
    }
}

/// The pattern of a flat name.
fn flat(key: [u64; 2]) -> Result<Pattern, InsertError> {
    Pattern::exact(key).ok_or(InsertError::NameTooLong { name_bytes: 13 })
}

/// The rules for flat names.
fn flat_rules<P: Payload>(entries: &[([u64; 2], P)]) -> Result<Vec<Entry<P>>, InsertError> {
    let rule = |&(key, payload)| Ok((flat(key)?.name(), Ranked { priority: 0, payload }));
    entries.iter().map(rule).collect()
}

impl<P: Payload> Skeleton for TupleSpaceSkeleton<P> {
    type Key = [u64; 2];
    type Payload = P;
    type Query = TupleSpaceQuery;
    type View = TupleSpaceView;

    fn build(settings: &Settings, entries: &[([u64; 2], P)], threads: usize) -> Result<Self, InsertError> {
        Ok(Self::of(settings, CuckooSkeleton::build(&settings.table, &flat_rules(entries)?, threads)?))
    }

    fn restore(settings: &Settings, rows: &[Row], entries: &[([u64; 2], P)]) -> Result<Self, RestoreError> {
        Ok(Self::of(settings, CuckooSkeleton::restore(&settings.table, rows, &flat_rules(entries)?)?))
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn check(settings: &Settings, key: [u64; 2], value: u64) -> Result<(), InsertError> {
        let value_bits = settings.value_bits;
        if value > value_mask(value_bits) {
            return Err(InsertError::ValueTooWide { value, value_bits });
        }
        flat(key).map(drop)
    }

    fn insert(&mut self, key: [u64; 2], payload: P) -> Result<Change, InsertError> {
        self.put(&flat(key)?, Ranked { priority: 0, payload })
    }

    fn insert_batch(&mut self, entries: &[([u64; 2], P)]) -> Result<Change, InsertError> {
        self.put_batch(&flat_rules(entries)?)
    }

    fn remove(&mut self, key: [u64; 2]) -> Change {
        Pattern::exact(key).map_or(Change::None, |pattern| self.take(&pattern))
    }

    fn touch(&mut self) -> Change {
        self.table.touch()
    }

    fn get(&self, key: [u64; 2]) -> Option<P> {
        Some(self.table.get(Pattern::exact(key)?.name())?.payload)
    }

    /// Only valid if all rules are exact.
    fn must_drop(&self, key: [u64; 2]) -> bool {
        self.get(key).is_none()
    }

    /// The number of rules.
    fn len(&self) -> usize {
        self.table.len()
    }

    fn is_bulk(&self, n_changes: usize) -> bool {
        self.table.is_bulk(n_changes)
    }

    fn part_id(&self, slot: u32) -> PartId {
        self.table.part_id(slot)
    }

    fn take_rows(&mut self, slots: &[u32], gone: &[PartId]) -> Vec<Row> {
        self.table.take_rows(slots, gone)
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        self.table.rows()
    }

    fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
    }
}

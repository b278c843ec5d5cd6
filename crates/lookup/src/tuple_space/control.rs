//! Tuple Space Search, control half: the rules, and which tuple has which priorities.

use std::collections::BTreeMap;

use super::query::TupleSpaceQuery;
use super::tuple::{Pattern, Rule, Tuple};
use super::update::{Change, Image, Update};
use super::{Settings, tuple_prf};
use crate::cells::value_mask;
use crate::cuckoo::exact::{self, Cuckoo};
use crate::testkit::Subject;
use crate::traits::{Control, InsertError};

/// A batch of at least this share of the rules that are in is put into the hash table as one.
const BATCH_SHARE: usize = 4;

/// How many rules of a tuple have which priority.
type Priorities = BTreeMap<u32, u32>;

/// Control half of a tuple space: 24 bytes a slot, and some for every tuple and priority in it.
///
/// ```
/// use fibula_lookup::hash::{Family, SecretKey};
/// use fibula_lookup::traits::{Control, Query};
/// use fibula_lookup::tuple_space::{Flow, Pattern, Rule, Settings, Tuple, TupleSpace};
///
/// let settings = Settings::new(8, 16, 1_000, Family::MulAdd, &SecretKey::from_seed(1));
/// let mut rules = TupleSpace::new(settings);
/// let flow = Flow {
///     source: [10, 0, 0, 1].into(), destination: [192, 0, 2, 7].into(), protocol: 6, source_port: 9, destination_port: 80,
/// };
/// let web = Pattern::new(Tuple::ANY.destination(24).protocol(true).ports(false, true), flow.key());
/// let mut updates = Vec::new();
/// rules.insert_rule(&Rule { pattern: web, priority: 10, value: 3 }, &mut updates)?;
/// rules.insert_rule(&Rule { pattern: Pattern::new(Tuple::ANY, flow.key()), priority: 1, value: 4 }, &mut updates)?;
///
/// let switch = rules.export();
/// assert_eq!(switch.lookup(flow.key()), 3);
/// assert_eq!(switch.lookup(Flow { destination_port: 22, ..flow }.key()), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TupleSpace {
    settings: Settings,
    table: Cuckoo<2>,
    tuples: BTreeMap<u16, Priorities>,
    seed: u64,
    version: u64,
    table_digest: u64,
    tuples_digest: u64,
}

impl TupleSpace {
    /// No rules.
    pub fn new(settings: Settings) -> Self {
        let (table, seed) = (Cuckoo::new(settings.table.clone()), settings.seed());
        Self { settings, table, tuples: BTreeMap::new(), seed, version: 0, table_digest: 0, tuples_digest: 0 }
    }

    /// Settings of the tuple space.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tuples that have rules.
    pub fn n_tuples(&self) -> usize {
        self.tuples.len()
    }

    /// The rules, in no useful order.
    pub fn rules(&self) -> impl Iterator<Item = Rule> + '_ {
        let of = |(name, stored)| Pattern::of_name(name).map(|pattern| self.settings.rule(pattern, stored));
        self.table.iter().filter_map(of)
    }

    /// The rule of a pattern.
    pub fn rule(&self, pattern: &Pattern) -> Option<Rule> {
        self.table.get(pattern.name()).map(|stored| self.settings.rule(*pattern, stored))
    }

    /// Inserts a rule, or replaces the one with its pattern, and appends the update.
    /// # Errors
    /// [`InsertError`], [`InsertError::ValueTooWide`] also for the priority; nothing is changed.
    pub fn insert_rule(&mut self, rule: &Rule, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.check(rule)?;
        let (old, mut written) = (self.rule(&rule.pattern), Vec::new());
        self.table.insert(rule.pattern.name(), self.settings.stored(rule), &mut written)?;
        let tuple = rule.pattern.tuple();
        let before = self.highest(tuple);
        if let Some(old) = old {
            self.forget(tuple, old.priority);
        }
        *self.tuples.entry(tuple.code()).or_default().entry(rule.priority).or_default() += 1;
        self.emit(&[(tuple, before)], written, updates);
        Ok(())
    }

    /// Inserts many; of equal patterns the last wins.
    /// # Errors
    /// [`InsertError`] of the first that failed; those before it, in an order of the structure's choosing, are in.
    pub fn insert_rules(&mut self, rules: &[Rule], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        rules.iter().try_for_each(|rule| self.check(rule))?;
        if rules.len() * BATCH_SHARE < self.table.len() || rules.len() < BATCH_SHARE {
            return rules.iter().try_for_each(|rule| self.insert_rule(rule, updates));
        }
        let entries: Vec<_> = rules.iter().map(|rule| (rule.pattern.name(), self.settings.stored(rule))).collect();
        let mut written = Vec::new();
        let outcome = self.table.insert_batch(&entries, &mut written);
        let mut tuples = BTreeMap::<u16, Priorities>::new();
        for rule in self.rules() {
            *tuples.entry(rule.pattern.tuple().code()).or_default().entry(rule.priority).or_default() += 1;
        }
        let codes: std::collections::BTreeSet<_> = tuples.keys().chain(self.tuples.keys()).copied().collect();
        let before = codes.into_iter().filter_map(Tuple::from_code).map(|tuple| (tuple, self.highest(tuple)));
        let before: Vec<_> = before.collect();
        self.tuples = tuples;
        self.emit(&before, written, updates);
        outcome
    }

    /// Removes the rule of a pattern; false when there was none.
    pub fn remove_rule(&mut self, pattern: &Pattern, updates: &mut Vec<Update>) -> bool {
        let Some(rule) = self.rule(pattern) else { return false };
        let mut written = Vec::new();
        self.table.remove(pattern.name(), &mut written);
        let tuple = pattern.tuple();
        let before = self.highest(tuple);
        self.forget(tuple, rule.priority);
        self.emit(&[(tuple, before)], written, updates);
        true
    }

    /// All of it as a message.
    pub fn image(&self) -> Image {
        let tuples = self.tuples.keys().copied().filter_map(Tuple::from_code);
        let tuples = tuples.filter_map(|tuple| self.highest(tuple).map(|highest| (tuple, highest))).collect();
        let digest = self.table_digest ^ self.tuples_digest;
        Image { version: self.version, digest, tuples, table: self.table.image() }
    }

    fn check(&self, rule: &Rule) -> Result<(), InsertError> {
        let Settings { value_bits, priority_bits, .. } = self.settings;
        if rule.value > value_mask(value_bits) {
            return Err(InsertError::ValueTooWide { value: rule.value, value_bits });
        }
        if rule.priority > self.settings.priority_max() {
            return Err(InsertError::ValueTooWide { value: rule.priority.into(), value_bits: priority_bits });
        }
        Ok(())
    }

    /// The highest priority of a tuple's rules.
    fn highest(&self, tuple: Tuple) -> Option<u32> {
        self.tuples.get(&tuple.code())?.last_key_value().map(|(&priority, _)| priority)
    }

    /// Counts a rule less.
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

    /// Appends what was written to the hash table and became of tuples, whose highest priorities before are given.
    fn emit(&mut self, before: &[(Tuple, Option<u32>)], written: Vec<exact::Update<2>>, updates: &mut Vec<Update>) {
        let mut tuples = Vec::new();
        for &(tuple, before) in before {
            let after = self.highest(tuple);
            if before != after {
                for highest in [before, after].into_iter().flatten() {
                    self.tuples_digest ^= tuple_prf(self.seed, tuple, highest);
                }
                tuples.push((tuple, after));
            }
        }
        for table in written {
            self.table_digest = match &table {
                exact::Update::Slots(slots) => slots.digest,
                exact::Update::Table(image) => image.digest,
            };
            let (from, digest) = (self.version, self.table_digest ^ self.tuples_digest);
            self.version += 1;
            let tuples = std::mem::take(&mut tuples);
            updates.push(Update::Change(Change { from, to: self.version, digest, tuples, table: Some(table) }));
        }
    }
}

/// The tuple space as a table of flat names of up to 13 bytes: exact rules of the lowest priority.
impl Control for TupleSpace {
    type Key = [u64; 2];
    type Query = TupleSpaceQuery;

    fn insert(&mut self, key: [u64; 2], value: u64, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.insert_rule(&exact_rule(key, value)?, updates)
    }

    fn insert_batch(&mut self, entries: &[([u64; 2], u64)], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        let rules = entries.iter().map(|&(key, value)| exact_rule(key, value)).collect::<Result<Vec<_>, _>>()?;
        self.insert_rules(&rules, updates)
    }

    fn remove(&mut self, key: [u64; 2], updates: &mut Vec<Update>) -> bool {
        Pattern::exact(key).is_some_and(|pattern| self.remove_rule(&pattern, updates))
    }

    fn get(&self, key: [u64; 2]) -> Option<u64> {
        self.rule(&Pattern::exact(key)?).map(|rule| rule.value)
    }

    fn export(&self) -> TupleSpaceQuery {
        TupleSpaceQuery::from_image(&self.settings, &self.image())
            .unwrap_or_else(|error| panic!("no memory for a query structure of {} rules: {error}", self.table.len()))
    }

    /// Rules.
    fn len(&self) -> usize {
        self.table.len()
    }
}

fn exact_rule(key: [u64; 2], value: u64) -> Result<Rule, InsertError> {
    let pattern = Pattern::exact(key).ok_or(InsertError::NameTooLong { name_bytes: 13 })?;
    Ok(Rule { pattern, priority: 0, value })
}

impl Subject for TupleSpace {
    /// Where there are exact rules only.
    fn must_drop(&self, key: [u64; 2]) -> bool {
        self.get(key).is_none()
    }

    fn may_forget(_update: &Update) -> bool {
        false
    }
}

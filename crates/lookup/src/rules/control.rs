//! Rules, control half: every rule and its place.

use std::collections::{BTreeMap, HashMap};

use super::layout::{LINE_SLOTS, Slot, decode_run, digest, encode_run, find, rule_words, tag};
use super::mask::{Mask, choose, step};
use super::query::RulesQuery;
use super::rule::{Flow, PRIORITY_BITS, Rule, VALUE_BITS};
use super::update::{Change, Image, SlotWrite, Update};
use super::{RuleError, Settings, table_prf};
use crate::hash::{Digest, Hasher};

/// The rules that a run should have at most: one of these, by the set. With more there are fewer tables and longer runs; from 4
/// to 32 no number was best on all sets of `fibula bench rules`.
const RUNS: [usize; 2] = [8, 24];
/// How many rules compared in a lookup cost as much as a slot searched: fitted to the rates of `fibula bench rules`.
const SLOT_COST: usize = 19;
/// Rules whose flows are looked up to choose.
const SAMPLE: usize = 2048;
/// A run with so many times as many rules makes the next rule open a table with more bits, if it has more.
const CROWDED: usize = 4;
/// The most tables, which have numbers of 16 bits.
const MAX_TABLES: usize = 1 << 12;
/// The most rules: each may need a value of its own.
pub const MAX_RULES: usize = (1 << VALUE_BITS) - 1;
/// The most rules of a run.
const MAX_RUN: usize = 0xFFFF;
/// Rules and slots that there is room for in any case.
const SPARE_RULES: usize = 64;
/// Tables that may come to those of the last choice until all are chosen again: as many, and these.
const SPARE_TABLES: usize = 8;

/// A table: the rules that are found by the same bits of a flow.
#[derive(Clone, Debug)]
struct Table<const W: usize> {
    id: u16,
    mask: Mask,
    bits: Flow<W>,
    /// The number of its rules with each priority.
    priorities: BTreeMap<u32, u32>,
}

impl<const W: usize> Table<W> {
    fn new(id: usize, mask: Mask) -> Self {
        Self { id: id as u16, mask, bits: mask.flow(), priorities: BTreeMap::new() }
    }

    fn highest(&self) -> Option<u32> {
        self.priorities.last_key_value().map(|(&priority, _)| priority)
    }

    fn count(&mut self, priority: u32) {
        *self.priorities.entry(priority).or_default() += 1;
    }

    fn forget(&mut self, priority: u32) {
        if let Some(n) = self.priorities.get_mut(&priority) {
            *n -= 1;
            if *n == 0 {
                self.priorities.remove(&priority);
            }
        }
    }
}

/// Control half of rules over flows with `W` words of addresses: 1 for IPv4, 4 for IPv6.
#[derive(Clone)]
pub struct Rules<const W: usize> {
    settings: Settings,
    hasher: Hasher,
    tables: Vec<Table<W>>,
    /// The rules that a run should have at most: one of [`RUNS`].
    run: usize,
    /// Tables after the last choice.
    n_chosen: usize,
    slots: Vec<u64>,
    n_used: usize,
    /// Words of rules, up to the first rule that was never used.
    words: Vec<u64>,
    /// How many rules there is room for.
    capacity: usize,
    /// Runs that are free, by the number of their rules.
    free: BTreeMap<usize, Vec<u32>>,
    n_rules: usize,
    version: u64,
    digest: u64,
}

impl<const W: usize> Rules<W> {
    /// No rules.
    pub fn new(settings: Settings) -> Self {
        let mut made = Self {
            hasher: Hasher::new(settings.family, &settings.key),
            settings,
            tables: Vec::new(),
            run: RUNS[0],
            n_chosen: 0,
            slots: Vec::new(),
            n_used: 0,
            words: Vec::new(),
            capacity: 0,
            free: BTreeMap::new(),
            n_rules: 0,
            version: 0,
            digest: 0,
        };
        made.arrange(&[], &[]).unwrap_or_else(|error| unreachable!("no rules: {error}"));
        made
    }

    /// These rules.
    /// # Errors
    /// [`RuleError`]; of two rules with the same pattern and priority the last one is taken.
    pub fn build(settings: Settings, rules: &[Rule]) -> Result<Self, RuleError> {
        rules.iter().try_for_each(check::<W>)?;
        let mut made = Self::new(settings);
        made.arrange_well(rules)?;
        Ok(made)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.n_rules
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.n_rules == 0
    }

    /// All rules, in no useful order.
    pub fn rules(&self) -> impl Iterator<Item = Rule> + '_ {
        self.slots.iter().flat_map(|&slot| decode_run::<W>(&self.words[Slot(slot).words::<W>()]))
    }

    /// Inserts a rule, or changes the value of the rule with its pattern and priority, and appends the update.
    /// # Errors
    /// [`RuleError`]; nothing is changed.
    pub fn insert(&mut self, rule: &Rule, updates: &mut Vec<Update>) -> Result<(), RuleError> {
        check::<W>(rule)?;
        if let Some((table, slot, at)) = self.place_of(rule) {
            let mut run = self.run(slot);
            run[at] = rule.clone();
            let highest = self.tables[table].highest();
            return self.write(table, highest, slot, Slot(self.slots[slot]).tag(), run, updates);
        }
        if self.n_rules == MAX_RULES {
            return Err(RuleError::Full);
        }
        if self.tables.len() > 2 * self.n_chosen + SPARE_TABLES {
            let rules: Vec<Rule> = self.rules().chain([rule.clone()]).collect();
            self.arrange_well(&rules)?;
            updates.push(Update::Whole(self.image()));
            return Ok(());
        }
        let run_len = |table: &Table<W>| Slot(self.slots[self.slot_of(table, rule).0]).n_rules();
        let table = match pick(&self.tables, rule.mask(), self.run, run_len) {
            Pick::Table(table) => table,
            Pick::New(mask) => {
                self.tables.push(Table::new(self.tables.len(), mask));
                self.tables.len() - 1
            }
        };
        let (slot, digest) = self.slot_of(&self.tables[table], rule);
        let table = self.first_table(slot, tag(digest), rule).unwrap_or(table);
        if self.slots[slot] == 0 && (self.n_used + 1) * 5 > self.slots.len() * 3 {
            let rules: Vec<Rule> = self.rules().chain([rule.clone()]).collect();
            return self.arrange_again(&rules, updates);
        }
        let mut run = self.run(slot);
        if run.len() == MAX_RUN {
            return Err(RuleError::Alike);
        }
        run.push(rule.clone());
        let highest = self.tables[table].highest();
        self.n_rules += 1;
        self.n_used += usize::from(self.slots[slot] == 0);
        self.tables[table].count(rule.priority);
        self.write(table, highest, slot, tag(digest), run, updates)
    }

    /// Removes the rule with the pattern and priority of `rule`, and appends the update; false if there is none.
    pub fn remove(&mut self, rule: &Rule, updates: &mut Vec<Update>) -> bool {
        let Some((table, slot, at)) = self.place_of(rule) else { return false };
        let mut run = self.run(slot);
        run.remove(at);
        let highest = self.tables[table].highest();
        self.n_rules -= 1;
        self.tables[table].forget(rule.priority);
        let tag = Slot(self.slots[slot]).tag();
        self.write(table, highest, slot, tag, run, updates)
            .unwrap_or_else(|error| panic!("a removal that fails: {error}"));
        true
    }

    /// The query half.
    pub fn export(&self) -> RulesQuery<W> {
        RulesQuery::from_image(&self.settings, &self.image()).unwrap_or_else(|error| panic!("no memory: {error}"))
    }

    /// All rules, as a message.
    pub fn image(&self) -> Image {
        let tables = self.tables.iter().filter_map(|table| Some((table.id, table.mask, table.highest()?))).collect();
        let Self { version, digest, .. } = *self;
        let capacity = self.capacity as u32;
        Image { version, digest, tables, capacity, slots: self.slots.clone(), words: self.words.clone() }
    }

    /// Table, slot, and place in its run, of the rule with this pattern and priority.
    fn place_of(&self, rule: &Rule) -> Option<(usize, usize, usize)> {
        let mask = rule.mask();
        let tables = self.tables.iter().enumerate().filter(|(_, table)| table.mask.is_in(mask));
        for (at, table) in tables {
            let (slot, _) = self.slot_of(table, rule);
            if let Some(place) = self.run(slot).iter().position(|other| other.is_like(rule)) {
                return Some((at, slot, place));
            }
        }
        None
    }

    /// The first table in which a rule has this slot: the one that counts it. Mostly there is only one.
    fn first_table(&self, slot: usize, tag_wanted: u64, rule: &Rule) -> Option<usize> {
        let mask = rule.mask();
        self.tables.iter().position(|table| {
            table.mask.is_in(mask) && {
                let (at, digest) = self.slot_of(table, rule);
                (at, tag(digest)) == (slot, tag_wanted)
            }
        })
    }

    /// The slot of a rule in a table, or the empty one for it, and the digest.
    fn slot_of(&self, table: &Table<W>, rule: &Rule) -> (usize, Digest) {
        let digest = digest(&self.hasher, table.id, &rule.first_flow::<W>().masked(&table.bits));
        (find(&self.slots, digest).expect("some slots are empty"), digest)
    }

    fn run(&self, slot: usize) -> Vec<Rule> {
        decode_run::<W>(self.run_words(slot)).collect()
    }

    fn run_words(&self, slot: usize) -> &[u64] {
        &self.words[Slot(self.slots[slot]).words::<W>()]
    }

    fn prf(&self, slot: usize) -> u64 {
        Slot(self.slots[slot]).prf(self.settings.seed(), slot, self.run_words(slot).iter().copied())
    }

    /// Writes the run of a slot elsewhere, and then the slot. The highest priority of its table was `highest`.
    fn write(
        &mut self,
        table: usize,
        highest: Option<u32>,
        slot: usize,
        tag: u64,
        run: Vec<Rule>,
        updates: &mut Vec<Update>,
    ) -> Result<(), RuleError> {
        let words = encode_run::<W>(&run);
        let Some(first) = self.allocate(words.len() / rule_words::<W>()) else {
            // The run that was there goes, and this one comes.
            let others = (0..self.slots.len()).filter(|&other| other != slot).flat_map(|other| self.run(other));
            let rules: Vec<Rule> = others.chain(run).collect();
            return self.arrange_again(&rules, updates);
        };
        let seed = self.settings.seed();
        self.digest ^= self.prf(slot);
        let old = Slot(self.slots[slot]);
        if old.n_rules() > 0 {
            self.free.entry(old.n_rules()).or_default().push(old.first() as u32);
        }
        let new = Slot::new(tag, run.len(), first);
        self.words[new.words::<W>()].copy_from_slice(&words);
        self.slots[slot] = new.0;
        self.digest ^= self.prf(slot);
        let Table { id, mask, .. } = self.tables[table];
        let after = self.tables[table].highest();
        let mut tables = Vec::new();
        if after != highest {
            for highest in [highest, after].into_iter().flatten() {
                self.digest ^= table_prf(seed, id, mask, highest);
            }
            tables.push((id, mask, after));
        }
        let from = self.version;
        self.version += 1;
        let slots = vec![SlotWrite { index: slot as u32, slot: new.0, run: words }];
        updates.push(Update::Change(Change { from, to: self.version, digest: self.digest, tables, slots }));
        Ok(())
    }

    /// The first of so many rules in a row that are free; none if all are in use.
    fn allocate(&mut self, n_rules: usize) -> Option<u32> {
        if n_rules == 0 {
            return Some(0);
        }
        if let Some(first) = self.free.get_mut(&n_rules).and_then(Vec::pop) {
            return Some(first);
        }
        let end = self.words.len() / rule_words::<W>();
        if end + n_rules > self.capacity {
            return None;
        }
        self.words.resize((end + n_rules) * rule_words::<W>(), 0);
        Some(end as u32)
    }

    /// Lays these rules out anew in tables that are chosen for them: with longer runs if lookups then cost less.
    fn arrange_well(&mut self, rules: &[Rule]) -> Result<(), RuleError> {
        let mut best: Option<(usize, Self)> = None;
        for run in RUNS {
            let mut made = Self { run, ..self.clone() };
            made.arrange(&choose::<W>(rules, run), rules)?;
            made.n_chosen = made.tables.len();
            let cost = made.cost(rules);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, made));
            }
        }
        *self = best.expect("there are lengths to choose from").1;
        Ok(())
    }

    /// What lookups of flows that these rules match cost, about and in all.
    fn cost(&self, rules: &[Rule]) -> usize {
        let flows: Vec<Flow<W>> =
            rules.iter().step_by(rules.len().div_ceil(SAMPLE).max(1)).map(Rule::first_flow).collect();
        let [slots, compared] = self.export().lookup_counted(&flows, &mut vec![0; flows.len()]);
        SLOT_COST * slots + compared
    }

    /// Lays these rules out anew in the same tables.
    fn arrange_again(&mut self, rules: &[Rule], updates: &mut Vec<Update>) -> Result<(), RuleError> {
        let masks: Vec<Mask> = self.tables.iter().map(|table| table.mask).collect();
        self.arrange(&masks, rules)?;
        updates.push(Update::Whole(self.image()));
        Ok(())
    }

    fn arrange(&mut self, masks: &[Mask], rules: &[Rule]) -> Result<(), RuleError> {
        let rules = last_of_each(rules);
        let mut tables: Vec<Table<W>> = masks.iter().enumerate().map(|(at, &mask)| Table::new(at, mask)).collect();
        let mut runs: HashMap<(u16, Flow<W>), Vec<Rule>> = HashMap::new();
        for rule in &rules {
            let key = |table: &Table<W>| (table.id, rule.first_flow::<W>().masked(&table.bits));
            let run_len = |table: &Table<W>| runs.get(&key(table)).map_or(0, Vec::len);
            let table = match pick(&tables, rule.mask(), self.run, run_len) {
                Pick::Table(table) => table,
                Pick::New(mask) => {
                    tables.push(Table::new(tables.len(), mask));
                    tables.len() - 1
                }
            };
            runs.entry(key(&tables[table])).or_default().push(rule.clone());
        }
        let mut runs: Vec<_> = runs.into_iter().collect();
        runs.sort_unstable_by_key(|&(key, _)| key);
        let mut slots = vec![0; (2 * runs.len() + SPARE_RULES).next_multiple_of(LINE_SLOTS)];
        let mut at_slot: BTreeMap<usize, Vec<Rule>> = BTreeMap::new();
        for ((id, key), run) in runs {
            let digest = digest(&self.hasher, id, &key);
            let slot = find(&slots, digest).expect("half of the slots are empty");
            slots[slot] = Slot::new(tag(digest), 0, 0).0;
            // Another run with the same tag in this line becomes one with it.
            at_slot.entry(slot).or_default().extend(run);
        }
        if at_slot.values().any(|run| run.len() > MAX_RUN) {
            return Err(RuleError::Alike);
        }
        let mut words = Vec::new();
        self.n_used = at_slot.len();
        for (slot, run) in at_slot {
            let first = (words.len() / rule_words::<W>()) as u32;
            slots[slot] = Slot::new(Slot(slots[slot]).tag(), run.len(), first).0;
            words.extend(encode_run::<W>(&run));
        }
        (self.tables, self.slots, self.words, self.free) = (tables, slots, words, BTreeMap::new());
        (self.n_rules, self.capacity) = (rules.len(), room_for(rules.len()));
        for rule in &rules {
            let (table, ..) = self.place_of(rule).expect("it was placed");
            self.tables[table].count(rule.priority);
        }
        let seed = self.settings.seed();
        let slots = (0..self.slots.len()).fold(0, |digest, slot| digest ^ self.prf(slot));
        let tables = self.tables.iter().filter_map(|table| Some((table, table.highest()?)));
        self.digest =
            tables.fold(slots, |digest, (table, highest)| digest ^ table_prf(seed, table.id, table.mask, highest));
        self.version += 1;
        Ok(())
    }
}

/// How many rules there is room for when this many are laid out.
pub(super) fn room_for(n_rules: usize) -> usize {
    n_rules + n_rules / 4 + SPARE_RULES
}

/// The rules in descending order of their priorities; of those with the same pattern and priority the last one.
fn last_of_each(rules: &[Rule]) -> Vec<Rule> {
    let pattern = |rule: &Rule| Rule { value: 0, ..rule.clone() };
    let last: HashMap<Rule, usize> = rules.iter().enumerate().map(|(at, rule)| (pattern(rule), at)).collect();
    let is_last = |at: usize, rule: &Rule| last.get(&pattern(rule)) == Some(&at);
    let mut kept: Vec<Rule> =
        rules.iter().enumerate().filter(|&(at, rule)| is_last(at, rule)).map(|(_, rule)| rule.clone()).collect();
    // Rules with high priorities come to the first tables, which are tried first.
    kept.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
    kept
}

/// Where a new rule goes.
enum Pick {
    Table(usize),
    New(Mask),
}

/// The first table with room in the run of a rule with this mask, or else the one where the run is shortest, unless all
/// are crowded and a table with more bits can be made.
fn pick<const W: usize>(tables: &[Table<W>], mask: Mask, run: usize, run_len: impl Fn(&Table<W>) -> usize) -> Pick {
    let mut least = (usize::MAX, 0);
    for (at, table) in tables.iter().enumerate().filter(|(_, table)| table.mask.is_in(mask)) {
        let n_rules = run_len(table);
        if n_rules < run {
            return Pick::Table(at);
        }
        least = least.min((n_rules, at));
    }
    let is_new = |mask: Mask| tables.len() < MAX_TABLES && tables.iter().all(|table| table.mask != mask);
    let relaxed = mask.relaxed(step::<W>());
    match least.0 {
        usize::MAX => Pick::New(relaxed),
        n_rules if n_rules >= CROWDED * run && is_new(relaxed) => Pick::New(relaxed),
        n_rules if n_rules >= CROWDED * run && is_new(mask) => Pick::New(mask),
        _ => Pick::Table(least.1),
    }
}

fn check<const W: usize>(rule: &Rule) -> Result<(), RuleError> {
    let most = if W == 1 { 32 } else { 128 };
    if rule.source.len().max(rule.destination.len()) > most {
        return Err(RuleError::Family);
    }
    if rule.source_ports.is_empty() || rule.destination_ports.is_empty() {
        return Err(RuleError::NoPorts);
    }
    if rule.value == 0 || rule.value >> VALUE_BITS != 0 {
        return Err(RuleError::Value(rule.value));
    }
    if rule.priority >> PRIORITY_BITS != 0 {
        return Err(RuleError::Priority(rule.priority));
    }
    Ok(())
}

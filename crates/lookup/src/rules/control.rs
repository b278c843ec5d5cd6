//! Rules, control half: every rule, and the choice among layouts.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::choice::{Way, choose};
use super::places::{Added, Context, MAX_COMPARED, Places};
use super::query::RulesQuery;
use super::rule::{Flow, PRIORITY_BITS, Rule, VALUE_BITS};
use super::update::{Change, Image, Update};
use super::{RuleError, Settings};
use crate::hash::Hasher;

/// The rules that a run should have at most: one of these, by the set. With more there are fewer tables and longer runs; from 4
/// to 32 no number was best on all sets of `fibula bench rules`.
const RUNS: [usize; 2] = [8, 24];
/// Longer runs, which pay where rules need many tables: down to one table, whose rules are compared one after the other.
const LONG_RUNS: [usize; 2] = [128, MAX_COMPARED];
/// How many rules compared in a lookup cost as much as a slot searched: fitted to the rates of `fibula bench rules`.
const SLOT_COST: usize = 19;
/// Rules whose flows are looked up to choose.
const SAMPLE: usize = 2048;
/// Of this many flows that match a rule, one is followed by a flow that takes its fields from several.
const MATCHING: usize = 4;
/// The most rules: each may need a value of its own.
pub const MAX_RULES: usize = (1 << VALUE_BITS) - 1;
/// Tables that may come to those of the last choice until all are chosen again: as many, and these.
const SPARE_TABLES: usize = 8;
/// Rules that may come before tables are chosen again, if tables did not become many: as many as there were, and these.
const SPARE_RULES: usize = 64;
/// Of this many rules, one must have changed before tables are chosen again.
const RULES_A_CHOICE: usize = 16;

/// Every rule, by its number, and the numbers.
#[derive(Clone, Default)]
struct List {
    rules: Vec<Rule>,
    /// Numbers without a rule.
    free: Vec<u32>,
    /// By pattern and priority.
    numbers: HashMap<Rule, u32>,
}

impl List {
    /// Of rules with the same pattern and priority, the last one.
    fn of(rules: &[Rule]) -> Self {
        let mut list = Self::default();
        for rule in rules {
            match list.numbers.get(&rule.without_value()) {
                Some(&number) => list.rules[number as usize].value = rule.value,
                None => _ = list.add(rule),
            }
        }
        list
    }

    fn add(&mut self, rule: &Rule) -> u32 {
        let number = self.free.pop().unwrap_or(self.rules.len() as u32);
        match self.rules.get_mut(number as usize) {
            Some(place) => place.clone_from(rule),
            None => self.rules.push(rule.clone()),
        }
        self.numbers.insert(rule.without_value(), number);
        number
    }

    fn remove(&mut self, number: u32) {
        self.numbers.remove(&self.rules[number as usize].without_value());
        self.free.push(number);
    }

    /// All numbers, in the order in which their rules win.
    fn order(&self) -> Vec<u32> {
        let mut order: Vec<(u64, u32)> =
            self.numbers.values().map(|&number| (self.rules[number as usize].rank(), number)).collect();
        order.sort_unstable_by_key(|&key| Reverse(key));
        order.into_iter().map(|(_, number)| number).collect()
    }
}

/// Control half of rules over flows with `W` words of addresses: 1 for IPv4, 4 for IPv6.
#[derive(Clone)]
pub struct Rules<const W: usize> {
    settings: Settings,
    hasher: Hasher,
    list: List,
    places: Places<W>,
    /// Tables and rules after the last choice, and changes since.
    n_chosen: usize,
    n_at_choice: usize,
    n_changes: usize,
    version: u64,
    digest: u64,
    /// Of layouts that were given up.
    steps: u64,
}

impl<const W: usize> Rules<W> {
    /// No rules.
    pub fn new(settings: Settings) -> Self {
        Self::build(settings, &[]).unwrap_or_else(|error| unreachable!("no rules: {error}"))
    }

    /// These rules, in tables that are chosen for them; of those with the same pattern and priority the last one.
    /// # Errors
    /// [`RuleError`] of the first rule that is refused.
    pub fn build(settings: Settings, rules: &[Rule]) -> Result<Self, RuleError> {
        rules.iter().try_for_each(check::<W>)?;
        let list = List::of(rules);
        if list.numbers.len() > MAX_RULES {
            return Err(RuleError::Full);
        }
        let hasher = Hasher::new(settings.family, &settings.key);
        let cx = Context { hasher: &hasher, seed: settings.seed(), rules: &list.rules };
        let (places, steps) = chosen::<W>(&settings, cx, &list.order())?;
        let mut made = Self {
            n_chosen: 0,
            n_at_choice: 0,
            n_changes: 0,
            version: 0,
            digest: 0,
            steps,
            settings,
            hasher: hasher.clone(),
            list,
            places,
        };
        made.was_laid_out();
        made.was_chosen();
        Ok(made)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.list.numbers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.numbers.is_empty()
    }

    /// All rules, in no useful order.
    pub fn rules(&self) -> impl Iterator<Item = Rule> + '_ {
        self.list.numbers.values().map(|&number| self.list.rules[number as usize].clone())
    }

    /// The version and the digest.
    pub fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    /// The steps that all changes so far took: a rule that was looked at for a table, or moved. It is what a bound on the time
    /// of changes is held against, on any machine.
    pub fn steps(&self) -> u64 {
        self.steps + self.places.steps
    }

    /// Inserts a rule, or changes the value of the rule with its pattern and priority, and appends the update.
    /// # Errors
    /// [`RuleError`]; nothing is changed.
    pub fn insert(&mut self, rule: &Rule, updates: &mut Vec<Update>) -> Result<(), RuleError> {
        check::<W>(rule)?;
        if let Some(&number) = self.list.numbers.get(&rule.without_value()) {
            self.revalue(number, rule.value, updates);
            return Ok(());
        }
        if self.len() == MAX_RULES {
            return Err(RuleError::Full);
        }
        let number = self.list.add(rule);
        let has_many_tables = self.places.tables.len() > 2 * self.n_chosen + SPARE_TABLES
            && (self.n_changes + 1) * RULES_A_CHOICE >= self.len();
        let has_grown = self.len() > 2 * self.n_at_choice + SPARE_RULES;
        if (has_many_tables || has_grown) && self.choose_again(updates).is_ok() {
            return Ok(());
        }
        let Self { hasher, settings, list, places, .. } = self;
        let mut must_lay_out = false;
        let done = match places.add(number, Context { hasher, seed: settings.seed(), rules: &list.rules }) {
            Ok(Added::Done(change)) => {
                self.push(change, updates);
                Ok(())
            }
            Ok(Added::NoRoom { is_torn }) => {
                must_lay_out = is_torn;
                self.lay_out_again(MAX_COMPARED, updates)
            }
            Err(error) => Err(error),
        };
        if done.is_ok() {
            self.n_changes += 1;
            return done;
        }
        self.list.remove(number);
        if must_lay_out {
            self.close(None, updates);
        }
        done
    }

    /// Removes the rule with the pattern and priority of `rule`, and appends the update; false if there is none.
    pub fn remove(&mut self, rule: &Rule, updates: &mut Vec<Update>) -> bool {
        let Some(&number) = self.list.numbers.get(&rule.without_value()) else { return false };
        let Self { hasher, settings, list, places, .. } = self;
        let change = places.take_out(number, Context { hasher, seed: settings.seed(), rules: &list.rules });
        self.list.remove(number);
        self.n_changes += 1;
        self.close(change, updates);
        true
    }

    fn revalue(&mut self, number: u32, value: u32, updates: &mut Vec<Update>) {
        let Self { hasher, settings, list, places, .. } = self;
        let seed = settings.seed();
        let edit = places.taken_out(number, Context { hasher, seed, rules: &list.rules });
        list.rules[number as usize].value = value;
        let change = places.put_back(number, edit, Context { hasher, seed, rules: &list.rules });
        self.close(change, updates);
    }

    /// The query half.
    pub fn export(&self) -> RulesQuery<W> {
        RulesQuery::from_image(&self.settings, &self.image()).unwrap_or_else(|error| panic!("no memory: {error}"))
    }

    /// All rules, as a message.
    pub fn image(&self) -> Image {
        image(&self.places, self.version, self.digest)
    }

    /// Sends a change, or lays the rules out anew if there was no room for it.
    fn close(&mut self, change: Option<Change>, updates: &mut Vec<Update>) {
        match change {
            Some(change) => self.push(change, updates),
            // Rules that were hidden may come to more than a new rule may make.
            None => self
                .lay_out_again(usize::MAX, updates)
                .unwrap_or_else(|error| panic!("fewer rules that do not fit: {error}")),
        }
    }

    fn push(&mut self, change: Change, updates: &mut Vec<Update>) {
        let from = self.version;
        self.version += 1;
        self.digest ^= change.digest;
        updates.push(Update::Change(Change { from, to: self.version, digest: self.digest, ..change }));
    }

    /// Lays the rules out anew in the same tables.
    fn lay_out_again(&mut self, most: usize, updates: &mut Vec<Update>) -> Result<(), RuleError> {
        let masks: Vec<_> = self.places.tables.iter().map(|table| table.mask).collect();
        let Self { hasher, settings, list, places, .. } = self;
        let cx = Context { hasher, seed: settings.seed(), rules: &list.rules };
        let made = Places::arrange(places.way, &masks, &list.order(), cx, most)?;
        self.steps += std::mem::replace(&mut self.places, made).steps;
        self.was_laid_out();
        updates.push(Update::Whole(self.image()));
        Ok(())
    }

    /// Lays the rules out anew in tables that are chosen for them.
    fn choose_again(&mut self, updates: &mut Vec<Update>) -> Result<(), RuleError> {
        let Self { hasher, settings, list, .. } = self;
        let cx = Context { hasher, seed: settings.seed(), rules: &list.rules };
        let made = chosen(settings, cx, &list.order());
        // One that cannot be laid out so is not tried again at each change.
        (self.n_chosen, self.n_at_choice, self.n_changes) = (self.places.tables.len(), self.len(), 0);
        let (made, steps) = made?;
        self.steps += steps + std::mem::replace(&mut self.places, made).steps;
        self.was_laid_out();
        self.was_chosen();
        updates.push(Update::Whole(self.image()));
        Ok(())
    }

    fn was_laid_out(&mut self) {
        self.digest = self.places.digest(self.settings.seed());
        self.version += 1;
    }

    fn was_chosen(&mut self) {
        (self.n_chosen, self.n_at_choice, self.n_changes) = (self.places.tables.len(), self.len(), 0);
    }
}

fn image<const W: usize>(places: &Places<W>, version: u64, digest: u64) -> Image {
    let tables = places.tables.iter().filter_map(|table| Some((table.id, table.mask, table.highest()?))).collect();
    let capacity = places.capacity as u32;
    Image { version, digest, tables, capacity, slots: places.slots.clone(), words: places.words.clone() }
}

/// The layout of these rules, which are in the order in which they win, in which lookups cost least; and the steps that the
/// others took.
fn chosen<const W: usize>(settings: &Settings, cx: Context<'_>, order: &[u32]) -> Result<(Places<W>, u64), RuleError> {
    // Of rules with one pattern only the first can win; the others are found behind it and need no table of their own.
    let mut patterns = HashSet::with_capacity(order.len());
    let rules = order.iter().map(|&number| &cx.rules[number as usize]);
    let rules: Vec<&Rule> =
        rules.filter(|rule| patterns.insert(Rule { priority: 0, ..rule.without_value() })).collect();
    let flows = sample::<W>(&rules);
    let is_part = |len: u8| 0 < len && len < 16;
    let has_parts =
        rules.iter().map(|rule| rule.finest()).any(|mask| is_part(mask.source_port) || is_part(mask.destination_port));
    let (mut best, mut error): (Option<(usize, Places<W>)>, _) = (None, None);
    let mut steps = order.len() as u64;
    let ports = if has_parts { &[false, true][..] } else { &[false] };
    for run in RUNS.into_iter().chain(LONG_RUNS) {
        for &parts_ports in ports {
            // A lookup in as many tables as there are costs more than these runs, or they cannot pay.
            let costs_more = best.as_ref().is_none_or(|(_, best)| best.tables.len() * SLOT_COST > run);
            if LONG_RUNS.contains(&run) && !costs_more {
                continue;
            }
            let way = Way { run, step: Way::step::<W>(), parts_ports };
            let masks = choose::<W>(&rules, way, &mut steps);
            match Places::arrange(way, &masks, order, cx, MAX_COMPARED) {
                Ok(made) => {
                    let cost = cost(settings, &made, cx.seed, &flows);
                    let made = match &best {
                        Some((least, _)) if *least <= cost => made,
                        _ => match best.replace((cost, made)) {
                            Some((_, before)) => before,
                            None => continue,
                        },
                    };
                    steps += made.steps;
                }
                Err(refused) => error = Some(refused),
            }
        }
    }
    let (_, made) = best.ok_or_else(|| error.expect("there are ways to lay rules out"))?;
    Ok((made, steps))
}

/// What lookups of these flows cost, about and in all.
fn cost<const W: usize>(settings: &Settings, places: &Places<W>, seed: u64, flows: &[Flow<W>]) -> usize {
    let image = image(places, 0, places.digest(seed));
    let query = RulesQuery::<W>::from_image(settings, &image).unwrap_or_else(|error| panic!("no memory: {error}"));
    let [slots, compared] = query.lookup_counted(flows, &mut vec![0; flows.len()]);
    SLOT_COST * slots + compared
}

/// Flows that some of these rules match, and a few that have their fields from several rules, and may match none.
fn sample<const W: usize>(rules: &[&Rule]) -> Vec<Flow<W>> {
    let step = rules.len().div_ceil(SAMPLE).max(1);
    let mut flows: Vec<Flow<W>> = rules.iter().step_by(step).map(|rule| rule.first_flow()).collect();
    let n = flows.len();
    let crossed = (0..n / MATCHING).map(|at| flows[at].crossed(&flows[(at * 7 + 1) % n], &flows[(at * 13 + 2) % n]));
    let crossed: Vec<_> = crossed.collect();
    flows.extend(crossed);
    flows
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

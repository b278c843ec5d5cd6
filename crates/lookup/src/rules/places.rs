//! Where each rule is: its table, its slots, its words.
//!
//! A rule is in the runs of all its keys, mostly one. A run has its rules in the order in which they win, and ends with the
//! first that matches every flow of its key: the rules behind that one can win no flow here. Nor can a rule of which one of
//! the first [`HIDING`] rules of its run matches all flows. Such rules are *hidden*, kept without words, and come back when
//! what hides them is removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::choice::Way;
use super::layout::{LINE_SLOTS, Slot, digest, encode_run, find, rule_words, tag};
use super::mask::Mask;
use super::rule::{Flow, Rule};
use super::update::{Change, SlotWrite};
use super::{RuleError, table_prf};
use crate::hash::{Digest, Hasher};

/// A run with this many times as many rules makes the next rule open a table with more bits, if it has more.
const CROWDED: usize = 4;
/// The most tables, which have numbers of 16 bits.
const MAX_TABLES: usize = 1 << 12;
/// How many tables that could hold a rule are looked at for it.
const MOST_TRIED: usize = 64;
/// The most rules of a run, hidden ones among them: they have a number of 16 bits when they come back.
const MAX_RUN: usize = 0xFFFF;
/// The most rules that a change may leave to be compared for one flow in one table: some 128 blocks of eight.
pub const MAX_COMPARED: usize = 1024;
/// The first rules of a run, each of which may hide later ones that it contains. More would find few more, and make each
/// change of a long run slower.
const HIDING: usize = 16;
/// Rules and slots that there is room for in any case.
const SPARE_RULES: usize = 64;

/// A table: the rules that are found by the same bits of a flow.
#[derive(Clone, Debug)]
pub(super) struct Table<const W: usize> {
    pub(super) id: u16,
    pub(super) mask: Mask,
    bits: Flow<W>,
    /// The number of its rules with each priority.
    priorities: BTreeMap<u32, u32>,
}

impl<const W: usize> Table<W> {
    fn new(id: usize, mask: Mask) -> Self {
        Self { id: id as u16, mask, bits: mask.flow(), priorities: BTreeMap::new() }
    }

    pub(super) fn highest(&self) -> Option<u32> {
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

/// A rule under one of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    rule: u32,
    table: u16,
    piece: u8,
}

/// The rules of a slot, hidden ones too, in the order in which they win.
#[derive(Clone, Debug, Default)]
struct Run {
    entries: Vec<Entry>,
    /// How many rules there is room for where its words are.
    room: usize,
    /// Whether it may have several keys, which have one tag in one line.
    is_mixed: bool,
}

/// What a layout needs of the rules around it.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) hasher: &'a Hasher,
    pub(super) seed: u64,
    /// Every rule, by its number.
    pub(super) rules: &'a [Rule],
}

/// The tables of rules, their slots and words.
#[derive(Clone)]
pub(super) struct Places<const W: usize> {
    pub(super) way: Way,
    pub(super) tables: Vec<Table<W>>,
    pub(super) slots: Vec<u64>,
    runs: HashMap<usize, Run>,
    n_used: usize,
    /// Words of rules, up to the first rule that was never used.
    pub(super) words: Vec<u64>,
    /// How many rules there is room for.
    pub(super) capacity: usize,
    /// Places of runs that are free, by the number of rules that they have room for.
    free: BTreeMap<usize, Vec<u32>>,
    /// The table of each rule, by its number.
    table_of: Vec<u16>,
    /// Steps taken so far: a key that was searched for, a rule that was moved.
    pub(super) steps: u64,
}

/// The outcome of adding a rule.
pub(super) enum Added {
    /// It has its places.
    Done(Change),
    /// There is no room: lay the rules out anew. Nothing is changed, unless the runs are torn.
    NoRoom {
        /// Whether the rule is already in some runs: in any case the rules must be laid out anew.
        is_torn: bool,
    },
}

impl<const W: usize> Places<W> {
    /// Lays out the rules with these numbers, which are in the order in which they win, in tables with these masks and
    /// others that it needs.
    pub(super) fn arrange(
        way: Way,
        masks: &[Mask],
        order: &[u32],
        cx: Context<'_>,
        most: usize,
    ) -> Result<Self, RuleError> {
        let mut tables: Vec<Table<W>> = masks.iter().enumerate().map(|(at, &mask)| Table::new(at, mask)).collect();
        let (mut table_of, mut steps) = (vec![0; cx.rules.len()], 0);
        let mut runs: HashMap<(u16, Flow<W>), Key> = HashMap::new();
        for &number in order {
            let rule = &cx.rules[number as usize];
            let run_len = |table: &Table<W>| {
                steps += 1;
                let of_key = |key| runs.get(&(table.id, key)).map_or(0, |run| run.n_shown);
                rule.keys(&table.bits).map(|(_, key)| of_key(key)).max().unwrap_or(0)
            };
            let at = match pick(&tables, way, way.finest(rule), run_len) {
                Pick::Table(table) => table,
                Pick::New(mask) => {
                    tables.push(Table::new(tables.len(), mask));
                    tables.len() - 1
                }
            };
            let table = &mut tables[at];
            table.count(rule.priority);
            table_of[number as usize] = table.id;
            for (piece, key) in rule.keys(&table.bits) {
                steps += 1;
                let run = runs.entry((table.id, key)).or_default();
                run.entries.push(Entry { rule: number, table: table.id, piece });
                if run.is_covered || run.hiding.iter().any(|&first| cx.rules[first as usize].contains(rule)) {
                    continue;
                }
                run.n_shown += 1;
                run.is_covered = rule.covers(table.mask, &key);
                if run.hiding.len() < HIDING {
                    run.hiding.push(number);
                }
            }
        }
        let mut runs: Vec<_> = runs.into_iter().collect();
        runs.sort_unstable_by_key(|&(key, _)| key);
        let mut slots = vec![0; (2 * runs.len() + SPARE_RULES).next_multiple_of(LINE_SLOTS)];
        let mut at_slot: BTreeMap<usize, Run> = BTreeMap::new();
        for ((id, key), key_run) in runs {
            let digest = digest(cx.hasher, id, &key);
            let slot = find(&slots, digest).expect("half of the slots are empty");
            slots[slot] = Slot::new(tag(digest), 0, 0).0;
            let run = at_slot.entry(slot).or_default();
            // Another run with the same tag in this line becomes one with it.
            run.is_mixed = !run.entries.is_empty();
            run.entries.extend(key_run.entries);
            if run.is_mixed {
                run.entries.sort_by_key(|entry| std::cmp::Reverse(order_of(entry, cx)));
            }
            if key_run.n_shown > most || run.entries.len() > MAX_RUN {
                let last = run.entries.last().map_or(0, |entry| cx.rules[entry.rule as usize].value);
                return Err(RuleError::Alike { value: last });
            }
        }
        let mut made = Self {
            way,
            tables,
            n_used: at_slot.len(),
            slots,
            runs: HashMap::with_capacity(at_slot.len()),
            words: Vec::new(),
            capacity: 0,
            free: BTreeMap::new(),
            table_of,
            steps,
        };
        for (slot, mut run) in at_slot {
            let shown = made.shown(&run, cx);
            let first = made.words.len() / rule_words::<W>();
            run.room = room_of_run(shown.len());
            made.slots[slot] = Slot::new(Slot(made.slots[slot]).tag(), shown.len(), first as u32).0;
            made.words.extend(encode_run::<W>(&shown));
            made.words.resize((first + run.room) * rule_words::<W>(), 0);
            made.runs.insert(slot, run);
        }
        made.capacity = room_for(made.words.len() / rule_words::<W>());
        Ok(made)
    }

    /// The digest of all slots and tables.
    pub(super) fn digest(&self, seed: u64) -> u64 {
        let slots = (0..self.slots.len()).fold(0, |digest, slot| digest ^ self.prf(seed, slot));
        let tables = self.tables.iter().filter_map(|table| Some((table, table.highest()?)));
        tables.fold(slots, |digest, (table, highest)| digest ^ table_prf(seed, table.id, table.mask, highest))
    }

    fn prf(&self, seed: u64, slot: usize) -> u64 {
        let words = &self.words[Slot(self.slots[slot]).words::<W>()];
        Slot(self.slots[slot]).prf(seed, slot, words.iter().copied())
    }

    /// The rules of a run that are not hidden.
    fn shown(&mut self, run: &Run, cx: Context<'_>) -> Vec<Rule> {
        let mut covered: Vec<(u16, Flow<W>)> = Vec::new();
        let (mut shown, mut last) = (Vec::new(), None);
        for entry in &run.entries {
            self.steps += 1;
            let rule = &cx.rules[entry.rule as usize];
            let table = &self.tables[usize::from(entry.table)];
            let key = (table.id, key_of(rule, &table.bits, entry.piece));
            if covered.contains(&key) {
                continue;
            }
            // Two keys of a rule may have one slot.
            if last != Some(entry.rule) {
                if shown.iter().take(HIDING).any(|first: &Rule| first.contains(rule)) {
                    continue;
                }
                shown.push(rule.clone());
                last = Some(entry.rule);
            }
            if rule.covers(table.mask, &key.1) {
                if !run.is_mixed {
                    break;
                }
                covered.push(key);
            }
        }
        shown
    }

    /// Adds a rule, unless a flow would be compared with more than [`MAX_COMPARED`].
    pub(super) fn add(&mut self, number: u32, cx: Context<'_>) -> Result<Added, RuleError> {
        let rule = &cx.rules[number as usize];
        let mut tried = 0;
        let run_len = |table: &Table<W>| {
            tried += 1;
            let len = |key| Slot(self.slots[self.slot_of(table, &key, cx).0]).n_rules();
            rule.keys(&table.bits).map(|(_, key)| len(key)).max().unwrap_or(0)
        };
        let picked = pick(&self.tables, self.way, self.way.finest(rule), run_len);
        self.steps += tried;
        let (id, mask, is_new) = match picked {
            Pick::Table(at) => (at as u16, self.tables[at].mask, false),
            Pick::New(mask) => (self.tables.len() as u16, mask, true),
        };
        let bits = mask.flow::<W>();
        // Slots are taken one after the other, so that two keys do not take the same empty one.
        let mut entries: Vec<(usize, Entry)> = Vec::new();
        let mut taken: Vec<usize> = Vec::new();
        let mut fits = Ok(true);
        for (piece, key) in rule.keys(&bits) {
            let digest = digest(cx.hasher, id, &key);
            let slot = find(&self.slots, digest).expect("some slots are empty");
            if self.slots[slot] == 0 {
                if (self.n_used + taken.len() + 1) * 5 > self.slots.len() * 3 {
                    fits = Ok(false);
                    break;
                }
                self.slots[slot] = Slot::new(tag(digest), 0, 0).0;
                taken.push(slot);
            }
            let n_rules = Slot(self.slots[slot]).n_rules();
            let n_entries = self.runs.get(&slot).map_or(0, |run| run.entries.len());
            // A rule that covers the key hides others, and adds none to them.
            if n_rules >= MAX_COMPARED && !rule.covers(mask, &key)
                || n_entries + usize::from(super::rule::PIECES) > MAX_RUN
            {
                fits = Err(RuleError::Alike { value: rule.value });
                break;
            }
            entries.push((slot, Entry { rule: number, table: id, piece }));
        }
        let mut places = BTreeMap::new();
        if fits == Ok(true) {
            for &(slot, _) in &entries {
                let n_after = Slot(self.slots[slot]).n_rules() + entries.iter().filter(|entry| entry.0 == slot).count();
                let room = self.runs.get(&slot).map_or(0, |run| run.room);
                if n_after > room && !places.contains_key(&slot) {
                    let room = room_of_run(n_after);
                    match self.allocate(room) {
                        Some(first) => _ = places.insert(slot, (first, room)),
                        None => fits = Ok(false),
                    }
                }
            }
        }
        if fits != Ok(true) {
            taken.iter().for_each(|&slot| self.slots[slot] = 0);
            places.into_values().for_each(|(first, room)| self.release(first, room));
            return fits.map(|_| Added::NoRoom { is_torn: false });
        }
        // From here on it is seldom that something fails. The digest counts what a slot was before.
        taken.iter().for_each(|&slot| self.slots[slot] = 0);
        let mut edit = Edit::default();
        entries.iter().for_each(|&(slot, _)| self.open(&mut edit, slot, cx));
        for &slot in &taken {
            let entry = entries.iter().find(|entry| entry.0 == slot).expect("it was taken for a key").1;
            self.slots[slot] = Slot::new(tag(digest(cx.hasher, id, &key_of(rule, &bits, entry.piece))), 0, 0).0;
        }
        self.n_used += taken.len();
        if is_new {
            self.tables.push(Table::new(usize::from(id), mask));
        }
        edit.tables.insert(usize::from(id), self.tables[usize::from(id)].highest());
        self.tables[usize::from(id)].count(rule.priority);
        if self.table_of.len() <= number as usize {
            self.table_of.resize(number as usize + 1, 0);
        }
        self.table_of[number as usize] = id;
        for (slot, entry) in entries {
            self.put(slot, entry, cx);
        }
        // A rule that comes before those that hide others may let some of these come back, for which there may be no room.
        Ok(self.close(edit, places, cx).map_or(Added::NoRoom { is_torn: true }, Added::Done))
    }

    fn put(&mut self, slot: usize, entry: Entry, cx: Context<'_>) {
        let run = self.runs.entry(slot).or_default();
        let key = |entry: &Entry| {
            let table = &self.tables[usize::from(entry.table)];
            (entry.table, key_of(&cx.rules[entry.rule as usize], &table.bits, entry.piece))
        };
        run.is_mixed |= run.entries.first().is_some_and(|first| key(first) != key(&entry));
        let order = order_of(&entry, cx);
        let at = run.entries.partition_point(|other| order_of(other, cx) >= order);
        run.entries.insert(at, entry);
    }

    /// Takes a rule out, as it is in `cx`. None: there is no room for what was hidden behind it; lay the rules out anew.
    pub(super) fn take_out(&mut self, number: u32, cx: Context<'_>) -> Option<Change> {
        let edit = self.taken_out(number, cx);
        let id = usize::from(self.table_of[number as usize]);
        self.tables[id].forget(cx.rules[number as usize].priority);
        self.close(edit, BTreeMap::new(), cx)
    }

    /// Puts a rule that was taken out back, with another value. None: as with [`take_out`](Self::take_out).
    pub(super) fn put_back(&mut self, number: u32, edit: Edit, cx: Context<'_>) -> Option<Change> {
        let id = self.table_of[number as usize];
        let bits = self.tables[usize::from(id)].bits;
        for (piece, key) in cx.rules[number as usize].keys(&bits) {
            let slot = self.slot_of(&self.tables[usize::from(id)], &key, cx).0;
            self.put(slot, Entry { rule: number, table: id, piece }, cx);
        }
        self.close(edit, BTreeMap::new(), cx)
    }

    /// Takes a rule out of its runs; to be closed.
    pub(super) fn taken_out(&mut self, number: u32, cx: Context<'_>) -> Edit {
        let id = usize::from(self.table_of[number as usize]);
        let mut edit = Edit::default();
        edit.tables.insert(id, self.tables[id].highest());
        let bits = self.tables[id].bits;
        for (piece, key) in cx.rules[number as usize].keys(&bits) {
            let slot = self.slot_of(&self.tables[id], &key, cx).0;
            self.open(&mut edit, slot, cx);
            let entry = Entry { rule: number, table: id as u16, piece };
            let order = order_of(&entry, cx);
            let run = self.runs.get_mut(&slot).expect("the run of a rule");
            let from = run.entries.partition_point(|other| order_of(other, cx) > order);
            let at = run.entries[from..].iter().position(|other| *other == entry).expect("a rule is in its run");
            run.entries.remove(from + at);
        }
        edit
    }

    /// Begins the change of a slot.
    fn open(&self, edit: &mut Edit, slot: usize, cx: Context<'_>) {
        if edit.slots.insert(slot) {
            edit.digest ^= self.prf(cx.seed, slot);
        }
    }

    /// Writes the runs of the slots that an edit began, at `places` where they must move. None: there is no room.
    fn close(&mut self, mut edit: Edit, mut places: BTreeMap<usize, (u32, usize)>, cx: Context<'_>) -> Option<Change> {
        let mut slots = Vec::with_capacity(edit.slots.len());
        for slot in edit.slots {
            let mut run = self.runs.remove(&slot).unwrap_or_default();
            let shown = self.shown(&run, cx);
            let mut first = Slot(self.slots[slot]).first() as u32;
            if shown.len() > run.room || shown.is_empty() {
                let place = match places.remove(&slot) {
                    Some(place) if shown.len() <= place.1 => place,
                    too_small => {
                        too_small.into_iter().for_each(|(first, room)| self.release(first, room));
                        let room = room_of_run(shown.len());
                        (if room == 0 { 0 } else { self.allocate(room)? }, room)
                    }
                };
                self.release(first, run.room);
                (first, run.room) = place;
            }
            let words = encode_run::<W>(&shown);
            self.slots[slot] = Slot::new(Slot(self.slots[slot]).tag(), shown.len(), first).0;
            self.words[Slot(self.slots[slot]).words::<W>()].copy_from_slice(&words);
            if !run.entries.is_empty() {
                self.runs.insert(slot, run);
            }
            edit.digest ^= self.prf(cx.seed, slot);
            slots.push(SlotWrite { index: slot as u32, slot: self.slots[slot], run: words });
        }
        // A rule that came to be hidden needs no new place.
        places.into_values().for_each(|(first, room)| self.release(first, room));
        let mut tables = Vec::new();
        for (at, before) in edit.tables {
            let Table { id, mask, .. } = self.tables[at];
            let after = self.tables[at].highest();
            if before != after {
                for highest in [before, after].into_iter().flatten() {
                    edit.digest ^= table_prf(cx.seed, id, mask, highest);
                }
                tables.push((id, mask, after));
            }
        }
        // Versions and the whole digest are the caller's matter.
        Some(Change { from: 0, to: 0, digest: edit.digest, tables, slots })
    }

    /// The slot of a key in a table, or the empty one for it, and the digest.
    fn slot_of(&self, table: &Table<W>, key: &Flow<W>, cx: Context<'_>) -> (usize, Digest) {
        let digest = digest(cx.hasher, table.id, key);
        (find(&self.slots, digest).expect("some slots are empty"), digest)
    }

    /// The first of `n_rules` free rules in a row; none if all are in use.
    fn allocate(&mut self, n_rules: usize) -> Option<u32> {
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

    fn release(&mut self, first: u32, room: usize) {
        if room > 0 {
            self.free.entry(room).or_default().push(first);
        }
    }
}

/// The rules of a key while they are laid out.
#[derive(Default)]
struct Key {
    entries: Vec<Entry>,
    /// How many of them are not hidden.
    n_shown: usize,
    is_covered: bool,
    /// The first of them that are not hidden.
    hiding: Vec<u32>,
}

/// A change that has begun.
#[derive(Default)]
pub(super) struct Edit {
    slots: BTreeSet<usize>,
    /// The highest priority of each table before.
    tables: BTreeMap<usize, Option<u32>>,
    /// The XOR of all that changes in the digest.
    digest: u64,
}

/// Entries with a larger one come first.
fn order_of(entry: &Entry, cx: Context<'_>) -> (u64, u32) {
    (cx.rules[entry.rule as usize].rank(), entry.rule)
}

fn key_of<const W: usize>(rule: &Rule, bits: &Flow<W>, piece: u8) -> Flow<W> {
    let mut keys = rule.keys(bits);
    keys.find(|&(other, _)| other == piece).expect("a rule has the keys that it was found by").1
}

/// The number of rules that a run of `n_rules` has room for: long runs grow without moving at each rule.
fn room_of_run(n_rules: usize) -> usize {
    if n_rules <= super::layout::BLOCK { n_rules } else { n_rules + n_rules / 4 }
}

/// How many rules there is room for when this many are laid out.
pub(super) fn room_for(n_rules: usize) -> usize {
    n_rules + n_rules / 4 + SPARE_RULES
}

/// Where a new rule goes.
enum Pick {
    Table(usize),
    New(Mask),
}

/// The first table with room in the run of a rule that has these bits, or else the one where the run is shortest, unless
/// all are crowded and a table with more bits can be made.
fn pick<const W: usize>(
    tables: &[Table<W>],
    way: Way,
    finest: Mask,
    mut run_len: impl FnMut(&Table<W>) -> usize,
) -> Pick {
    let mut least = (usize::MAX, 0);
    let fitting = tables.iter().enumerate().filter(|(_, table)| table.mask.is_in(finest));
    for (at, table) in fitting.take(MOST_TRIED) {
        let n_rules = run_len(table);
        if n_rules < way.run {
            return Pick::Table(at);
        }
        least = least.min((n_rules, at));
    }
    let is_new = |mask: Mask| tables.len() < MAX_TABLES && tables.iter().all(|table| table.mask != mask);
    let relaxed = way.relaxed(finest);
    match least.0 {
        // A table without bits holds every rule.
        usize::MAX if tables.len() >= MAX_TABLES => Pick::New(Mask::default()),
        usize::MAX => Pick::New(relaxed),
        n_rules if n_rules >= CROWDED * way.run && is_new(relaxed) => Pick::New(relaxed),
        n_rules if n_rules >= CROWDED * way.run && is_new(finest) => Pick::New(finest),
        _ => Pick::Table(least.1),
    }
}

//! Bloom forwarder, control half: all names, the counters of all filters, and which names stand in the exact table.
//!
//! Invariant after every mutation: a live name stands in the exact table if the first matching filter is not its own
//! (or, for value 0, if any matches).
//! * **Insert**: counters up. A position that became one can make a filter match other names, which are found by the
//!   index and put into the exact table.
//! * **Remove**: counters down. A position that became zero can take a false match away; names that are right again
//!   leave the exact table. Only what is exactly known to be in is removed, so no counter falls below its names.
//! * **Move**: up in the new filter, then down in the old one, in one message.
//!
//! A counter that reached [`MAX_COUNT`](super::MAX_COUNT) stays until the next rebuild; its bit is a one like others,
//! and the index sees bits, not counters. A port that gets more names than its filter was made for makes all filters
//! anew, with a quarter to spare: amortised O(1), and every loop ends.

use super::exceptions::Exceptions;
use super::names::{Name, Names};
use super::plan::{Numbers, Plan, PortShape};
use super::query::BloomFibQuery;
use super::rebuild::{GROWTH, filters};
use super::table::Filters;
use super::update::{CellWrite, CellsUpdate, Image, MAX_SLOT_WRITES, Update};
use super::{MAX_COUNT, Settings, cell_prf};
use crate::hash::Digest;
use crate::testkit::Subject;
use crate::traits::{Control, InsertError};

/// A batch of at least this share of the names that are in is one rebuild instead of messages.
const REBUILD_SHARE: usize = 4;
/// Control half of one table; see [`BloomFib::size_bytes`] for its memory.
///
/// ```
/// use fibula_lookup::bloom_fib::{BloomFib, Form, Policy, Settings};
/// use fibula_lookup::hash::{Family, Hasher, SecretKey};
/// use fibula_lookup::traits::{Control, Query};
///
/// let key = SecretKey::from_seed(1);
/// let hasher = Hasher::new(Family::MulAdd, &key);
/// let policy = Policy::buffalo(0.001, 32);
/// let mut table = BloomFib::new(Settings::new(6, 1000, policy, Form::Separate, &key));
/// let mut switch = table.export();
///
/// let mut updates = Vec::new();
/// let name = hasher.digest(b"\x02\0\0\0\0\x07");
/// table.insert(name, 32, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!(switch.lookup(name), 32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BloomFib {
    pub(super) settings: Settings,
    pub(super) names: Names,
    /// Names that each filter was made for, from port 1 on.
    pub(super) made_for: Vec<u64>,
    /// Names when they were made.
    pub(super) made_with: usize,
    /// Names and ports that there is always room for.
    pub(super) room: (u64, usize),
    pub(super) filters: Filters,
    pub(super) exceptions: Exceptions,
    version: u64,
    /// Digest of the cells.
    pub(super) digest: u64,
    /// Cells that the data plane has not been told of, with what it has.
    pub(super) touched: Vec<(u64, u8)>,
    /// Positions whose bit turned in the mutation under way, by port from 0 on.
    pub(super) turned: Vec<(usize, u32)>,
    candidates: Vec<u32>,
}

/// Figures of a control half.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Live names.
    pub n_names: usize,
    /// Names that stand in the exact table.
    pub n_exceptions: usize,
    /// The number expected of these filters with so many names.
    pub expected_exceptions: f64,
    /// Slots of the exact table.
    pub n_exact_slots: usize,
    /// Counters that stay where they are until the next rebuild. Reads all of them.
    pub n_saturated: u64,
    /// The rate expected for aliens: equation 7, with the rates of the filters as they are sized and filled.
    pub expected_fp: f64,
    /// Bytes of the control half.
    pub size_bytes: usize,
}

impl BloomFib {
    /// An empty table.
    pub fn new(settings: Settings) -> Self {
        Self::with_room(settings, 0, 0)
    }

    /// An empty table with room for `n_names` evenly over `n_ports`, so that it does not grow before.
    /// # Panics
    /// When there is no memory for it.
    pub fn with_room(settings: Settings, n_names: usize, n_ports: usize) -> Self {
        let n_ports = n_ports.min(settings.max_value() as usize);
        let room = (n_names.min(settings.max_names) as u64, n_ports);
        let mut made = Self {
            names: Names::new(&settings, room.0 as usize),
            filters: filters(Plan::for_names(&settings, &[]), &settings),
            exceptions: Exceptions::new(&settings),
            settings,
            made_for: Vec::new(),
            made_with: 0,
            room,
            version: 0,
            digest: 0,
            touched: Vec::new(),
            turned: Vec::new(),
            candidates: Vec::new(),
        };
        made.made_for = made.wanted(1.0);
        made.filters = filters(Plan::for_names(&made.settings, &made.made_for), &made.settings);
        made
    }

    /// Settings of the table.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The filters of all ports.
    pub fn plan(&self) -> &Plan {
        &self.filters.plan
    }

    /// Live names with their values, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (Digest, u64)> + '_ {
        self.names.iter().map(|name| (name.digest, name.value.into()))
    }

    /// Names that stand in the exact table.
    pub fn n_exceptions(&self) -> usize {
        self.exceptions.len()
    }

    /// Names of a port.
    pub fn n_names_of(&self, port: u64) -> u64 {
        self.names.n_of(port)
    }

    /// Figures; reads all counters.
    pub fn figures(&self) -> Figures {
        let rate =
            |(value, port): (u64, &PortShape)| (self.names.n_of(value), port.expected_fp(self.names.n_of(value)));
        let rates = || (1..).zip(self.plan().ports()).map(rate);
        let n_cells = self.plan().n_cells();
        Figures {
            n_names: self.names.len(),
            n_exceptions: self.exceptions.len(),
            expected_exceptions: super::sizing::expected_exceptions(rates(), self.names.n_of(0)),
            n_exact_slots: self.exceptions.n_slots(),
            n_saturated: (0..n_cells).filter(|&cell| self.filters.count(cell) == MAX_COUNT).count() as u64,
            expected_fp: super::sizing::rate_of_all(rates().map(|(_, rate)| rate)),
            size_bytes: self.size_bytes(),
        }
    }

    /// Memory of the control half, in bytes: names, index, counters and exact table.
    pub fn size_bytes(&self) -> usize {
        let words = self.filters.bits().len() + self.filters.counters().map_or(0, |counters| counters.len());
        self.names.size_bytes() + words * 8 + self.exceptions.n_slots() * 17
    }

    /// The whole table as a message: the answer to a switch that asks for it.
    pub fn image(&self) -> Image {
        let second = self.exceptions.image(self.version);
        let counters = match self.filters.counters() {
            Some(counters) if self.settings.policy.has_counters() => counters.to_vec(),
            _ => Vec::new(),
        };
        Image {
            version: self.version,
            digest: self.digest ^ second.digest,
            plan: self.filters.plan.clone(),
            bits: self.filters.bits().to_vec(),
            counters,
            second,
        }
    }

    /// Counts the positions of a name in the filter of `value` up or down, and notes which bits turned.
    fn count(&mut self, numbers: &Numbers, value: u64, up: bool) {
        let Some(port) = (value as usize).checked_sub(1) else { return };
        let most = self.settings.max_count();
        let positions: Vec<u32> = self.filters.plan.positions(port, numbers).collect();
        for position in positions {
            let cell = self.filters.plan.cell(port, position);
            let old = self.filters.count(cell);
            let new = match (up, old) {
                (_, MAX_COUNT) => MAX_COUNT,
                (true, count) => count + 1,
                (false, count) => count.checked_sub(1).expect("only names that are in are taken out"),
            };
            if new == old {
                continue;
            }
            self.filters.put(cell, new);
            if (old == 0) != (new == 0) {
                self.turned.push((port, position));
            }
            self.touched.push((cell, old.min(most)));
            let seed = self.settings.seed;
            self.digest ^= cell_prf(seed, cell, old.min(most)) ^ cell_prf(seed, cell, new.min(most));
        }
    }

    /// Puts names that the turned bits made wrong into the exact table, then takes out those that are right again.
    /// # Errors
    /// [`InsertError::NoPlace`]; some may be in then that need not be, which does no harm.
    fn settle(&mut self) -> Result<(), InsertError> {
        let mut candidates = std::mem::take(&mut self.candidates);
        let turned = std::mem::take(&mut self.turned);
        let settled = self.settle_turned(&turned, &mut candidates);
        (self.candidates, self.turned) = (candidates, turned);
        self.turned.clear();
        settled
    }

    fn settle_turned(&mut self, turned: &[(usize, u32)], candidates: &mut Vec<u32>) -> Result<(), InsertError> {
        // Names that may have become right leave once all that became wrong are in.
        let mut leaving = Vec::new();
        for &(port, position) in turned {
            let shape = self.filters.plan.ports()[port];
            self.names.candidates(shape.numbers_of(position), candidates);
            for &id in &*candidates {
                let name = *self.names.at(id);
                // A filter behind a name's own does not matter.
                let own = usize::from(name.value);
                if own != 0 && own <= port + 1 {
                    continue;
                }
                let numbers = self.filters.numbers(name.digest);
                let mut matched = false;
                let concerned = self.filters.plan.positions(port, &numbers).all(|at| {
                    matched |= at == position;
                    self.filters.is_one(self.filters.plan.cell(port, at)) || turned.contains(&(port, at))
                });
                if !concerned || !matched {
                    continue;
                }
                if self.is_wrong(&name, &numbers) {
                    self.except(id)?;
                } else if name.excepted {
                    leaving.push(id);
                }
            }
        }
        for id in leaving {
            self.release(id);
        }
        Ok(())
    }

    /// Whether the filters give a name another value than its own.
    fn is_wrong(&self, name: &Name, numbers: &Numbers) -> bool {
        let n_before = if name.value == 0 { self.plan().n_ports() } else { usize::from(name.value) - 1 };
        (0..n_before).any(|port| self.filters.matches(port, numbers))
    }

    fn except(&mut self, id: u32) -> Result<(), InsertError> {
        let Name { digest, value, excepted } = *self.names.at(id);
        if !excepted {
            self.exceptions.put(digest, value.into())?;
            self.names.at_mut(id).excepted = true;
        }
        Ok(())
    }

    fn release(&mut self, id: u32) {
        let name = self.names.at_mut(id);
        if name.excepted {
            name.excepted = false;
            let digest = name.digest;
            self.exceptions.take(digest);
        }
    }

    /// Inserts a name that is not there. True when the table was rebuilt.
    fn add(&mut self, digest: Digest, value: u64) -> Result<bool, InsertError> {
        let max = self.settings.max_names;
        if self.names.len() >= max {
            return Err(InsertError::TooManyNames { max });
        }
        let is_full = self.is_full_for(value);
        let id = self.names.enter(digest, value);
        if is_full {
            return self.rebuild(GROWTH).map(|()| true).inspect_err(|_| self.names.forget(id));
        }
        let numbers = self.names.numbers(digest);
        self.count(&numbers, value, true);
        let wrong = self.is_wrong(self.names.at(id), &numbers);
        let excepted = if wrong { self.except(id) } else { Ok(()) };
        excepted.and_then(|()| self.settle()).map(|()| false).inspect_err(|_| {
            self.count(&numbers, value, false);
            self.turned.clear();
            self.release(id);
            self.names.forget(id);
        })
    }

    /// Gives a name another value. True when the table was rebuilt.
    fn alter(&mut self, id: u32, value: u64) -> Result<bool, InsertError> {
        let Name { digest, excepted, .. } = *self.names.at(id);
        let is_full = self.is_full_for(value);
        let old = self.names.alter(id, value);
        let back = |table: &mut Self| _ = table.names.alter(id, old);
        if is_full {
            return self.rebuild(GROWTH).map(|()| true).inspect_err(|_| back(self));
        }
        let numbers = self.names.numbers(digest);
        self.count(&numbers, value, true);
        self.count(&numbers, old, false);
        // First whatever needs a place in the exact table, which can fail; then what leaves it.
        let wrong = self.is_wrong(self.names.at(id), &numbers);
        let entered = if wrong { self.exceptions.put(digest, value) } else { Ok(()) };
        self.names.at_mut(id).excepted |= wrong && entered.is_ok();
        if let Err(error) = entered.and_then(|()| self.settle()) {
            self.count(&numbers, old, true);
            self.count(&numbers, value, false);
            self.turned.clear();
            back(self);
            if excepted {
                // It has its slot, so this needs no place.
                self.exceptions.put(digest, old)?;
            } else {
                self.release(id);
            }
            return Err(error);
        }
        if !wrong {
            self.release(id);
        }
        Ok(false)
    }

    /// Inserts without a message. True when the table was rebuilt.
    fn upsert(&mut self, key: Digest, value: u64) -> Result<bool, InsertError> {
        match self.names.find(key) {
            Some(id) if u64::from(self.names.at(id).value) == value => Ok(false),
            Some(id) => self.alter(id, value),
            None => self.add(key, value),
        }
    }

    fn check(&self, value: u64) -> Result<(), InsertError> {
        if value > self.settings.max_value() {
            return Err(InsertError::ValueTooWide { value, value_bits: self.settings.value_bits });
        }
        Ok(())
    }

    /// Counts the version, and appends what changed since the last message.
    fn emit(&mut self, rebuilt: bool, updates: &mut Vec<Update>) {
        if rebuilt {
            self.version += 1;
            let _ = self.exceptions.drain(self.version, 0);
            updates.push(Update::Table(self.image()));
            return;
        }
        let most = self.settings.max_count();
        let mut touched = std::mem::take(&mut self.touched);
        // Of the states of a cell the first is what the data plane has.
        touched.sort_by_key(|&(cell, _)| cell);
        touched.dedup_by_key(|&mut (cell, _)| cell);
        let write = |&(cell, old): &(u64, u8)| {
            let count = self.filters.count(cell).min(most);
            (count != old).then_some(CellWrite { cell, count })
        };
        let cells: Vec<CellWrite> = touched.iter().filter_map(write).collect();
        touched.clear();
        self.touched = touched;
        let (slots, second) = self.exceptions.drain(self.version + 1, MAX_SLOT_WRITES);
        if cells.is_empty() && slots.is_empty() && second.is_none() {
            return;
        }
        let from = self.version;
        self.version += 1;
        let digest = self.digest ^ self.exceptions.digest();
        updates.push(Update::Cells(CellsUpdate { from, to: self.version, digest, cells, slots, second }));
    }
}

impl Control for BloomFib {
    type Key = Digest;
    type Query = BloomFibQuery;

    fn insert(&mut self, key: Digest, value: u64, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.check(value)?;
        let rebuilt = self.upsert(key, value)?;
        self.emit(rebuilt, updates);
        Ok(())
    }

    fn insert_batch(&mut self, entries: &[(Digest, u64)], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        for &(_, value) in entries {
            self.check(value)?;
        }
        if entries.len() < 4 || entries.len() * REBUILD_SHARE < self.names.len() {
            return entries.iter().try_for_each(|&(key, value)| self.insert(key, value, updates));
        }
        let max = self.settings.max_names;
        self.names.reserve(entries.len().min(max - self.names.len()));
        let mut before = Vec::new();
        let mut entered = Ok(());
        for &(key, value) in entries {
            if let Some(id) = self.names.find(key) {
                before.push((id, Some(self.names.alter(id, value))));
            } else if self.names.len() < max {
                before.push((self.names.enter(key, value), None));
            } else {
                entered = Err(InsertError::TooManyNames { max });
                break;
            }
        }
        if let Err(error) = self.rebuild(1.0) {
            for (id, old) in before.into_iter().rev() {
                match old {
                    Some(old) => _ = self.names.alter(id, old),
                    None => self.names.forget(id),
                }
            }
            return Err(error);
        }
        self.emit(true, updates);
        entered
    }

    fn remove(&mut self, key: Digest, updates: &mut Vec<Update>) -> bool {
        let Some(id) = self.names.find(key) else { return false };
        let (numbers, value) = (self.names.numbers(key), self.names.at(id).value);
        self.names.forget(id);
        let shrunk = self.is_sparse() && self.rebuild(GROWTH).is_ok();
        if !shrunk {
            self.count(&numbers, value.into(), false);
            self.release(id);
            // Only bits that became zero: nothing enters the exact table, so nothing can fail.
            let settled = self.settle();
            debug_assert!(settled.is_ok());
        }
        self.emit(shrunk, updates);
        true
    }

    fn get(&self, key: Digest) -> Option<u64> {
        self.names.find(key).map(|id| self.names.at(id).value.into())
    }

    fn export(&self) -> BloomFibQuery {
        BloomFibQuery::from_image(&self.settings, &self.image())
            .unwrap_or_else(|error| panic!("no memory for a query structure: {error}"))
    }

    fn len(&self) -> usize {
        self.names.len()
    }
}

impl Subject for BloomFib {
    fn must_drop(&self, _key: Digest) -> bool {
        // A removed name is an alien, and aliens may match.
        false
    }

    fn may_forget(_update: &Update) -> bool {
        true
    }
}

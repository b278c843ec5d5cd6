//! What one switch has of a Bloom forwarder: its filters with their counts, and the names in its exact table.
//!
//! Invariant after every update: a live name is in the exact table if the first filter that matches is not its own (or,
//! for value 0, if any matches), and no other name is.
//! * **Insert**: counters up. A position that became one can make a filter match other names. The index finds them, and
//!   they enter the exact table.
//! * **Remove**: counters down. A position that became zero can remove a false match. Names that are right again leave
//!   the exact table.
//! * **Move**: up in the new filter, then down in the old one, in one message.
//!
//! When a port exceeds its filter's capacity, all filters of the view are rebuilt with a quarter to spare: amortised
//! O(1). The sizes of filters and the slots of the exact table depend on earlier names, so they are in the view's rows;
//! everything else follows from names and values.
//! view's rows, all else follows from names and values.
//! ```text
//! header: | names 8 | ports 4 | names of each port 4 | buckets 4 | tweaks 8 | room 8 |     little-endian
//! pages:  see `cuckoo::rows`
//! ```

use super::capacity::{Capacity, GROWTH};
use super::counts::Counts;
use super::exceptions::Exceptions;
use super::names::{Latest, Names};
use super::plan::{Numbers, Plan};
use super::update::{CellWrite, CellsUpdate, Image, MAX_SLOT_WRITES, Update};
use super::{Settings, cell_prf};
use crate::base::part::{Change, HeldPart, PartId, Payload};
use crate::cuckoo::rows::{self, find_header, misplaced};
use crate::hash::Digest;
use crate::traits::{InsertError, RestoreError, Row, Skeleton, View};

/// One switch's filters and exact table.
pub struct BloomView {
    counts: Counts,
    exceptions: Exceptions,
    /// Names of each value.
    n_of: Vec<u64>,
    capacity: Capacity,
    /// Digest of the cells.
    cells: u64,
    /// Version and digest of what the switch holds.
    sent: (u64, u64),
    /// Whether this view matches neither what the switch has nor what it should have: the next update rebuilds
    /// everything.
    is_stale: bool,
    is_header_stored: bool,
    /// Cells changed since the last message, with the counts that the switch has.
    touched: Vec<(u64, u8)>,
    /// Positions whose bit flipped in the current change, by port from 0 on.
    turned: Vec<(usize, u32)>,
    candidates: Vec<u32>,
}

impl BloomView {
    fn of(settings: &Settings, counts: Counts, exceptions: Exceptions, capacity: Capacity, n_of: Vec<u64>) -> Self {
        Self {
            cells: counts.filters.digest(settings.max_count()),
            counts,
            exceptions,
            n_of,
            capacity,
            sent: (0, 0),
            is_stale: false,
            is_header_stored: false,
            touched: Vec::new(),
            turned: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// The filters of all ports.
    pub fn plan(&self) -> &Plan {
        &self.counts.filters.plan
    }

    /// Names of a value.
    pub fn n_names_of(&self, value: u64) -> u64 {
        self.n_of.get(value as usize).copied().unwrap_or(0)
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(super) fn exceptions(&self) -> &Exceptions {
        &self.exceptions
    }

    /// Rebuilds filters and exact table for the names that are in.
    fn rebuild<P: Payload>(
        &mut self,
        names: &Names<P>,
        value: impl Fn(P) -> u64,
        growth: f64,
    ) -> Result<(), InsertError> {
        self.is_stale = true;
        let settings = names.settings();
        let (entries, n_of) = valued(names, value);
        let capacity = self.capacity.wanted(settings, &n_of, growth);
        let (counts, mut wrong) = Counts::filled(capacity.plan(settings), settings, &entries);
        // In an order that a restarted controller reproduces.
        wrong.sort_unstable();
        let exceptions = self.exceptions.holding(&wrong)?;
        *self = Self::of(settings, counts, exceptions, capacity, n_of);
        Ok(())
    }

    /// The update for the latest mutation of `names`, which concerned one name.
    fn follow<P: Payload>(
        &mut self,
        names: &Names<P>,
        value: impl Fn(P) -> u64,
    ) -> Result<Option<Update>, InsertError> {
        let Latest { digest, old, new } = names.latest();
        let (old, new) = (old.map(&value), new.map(&value));
        if old == new && !self.is_stale {
            return Ok(None);
        }
        let is_enough = match new {
            Some(value) => self.capacity.is_enough(value, self.n_names_of(value) + 1),
            None => !self.capacity.is_sparse(names.len()),
        };
        if self.is_stale || !is_enough {
            return match self.rebuild(names, value, GROWTH) {
                Ok(()) => Ok(Some(Update::Table(self.whole(names)))),
                // A removal must not fail: the next change tries again.
                Err(_) if new.is_none() => Ok(None),
                Err(error) => Err(error),
            };
        }
        let numbers = names.numbers(digest);
        if let Some(value) = new {
            self.count(names.settings(), &numbers, value, true);
        }
        if let Some(value) = old {
            self.count(names.settings(), &numbers, value, false);
        }
        let (mut entering, mut leaving) = self.turned_names(names, value);
        match new {
            Some(value) if self.is_wrong(value, &numbers) => entering.push((digest, value)),
            _ if old.is_some() => leaving.push(digest),
            _ => {}
        }
        // In an order that a restarted controller reproduces. Some names were found twice.
        entering.sort_unstable();
        entering.dedup();
        leaving.sort_unstable();
        // First the names that enter the exact table, which can fail; then those that leave it.
        for (name, value) in entering {
            self.exceptions.put(name, value).inspect_err(|_| self.is_stale = true)?;
        }
        leaving.into_iter().for_each(|name| self.exceptions.take(name));
        Ok(self.cells_update(names))
    }

    /// Adds a name of `value` to the counts or subtracts it, and notes which bits flipped.
    fn count(&mut self, settings: &Settings, numbers: &Numbers, value: u64, up: bool) {
        if self.n_of.len() <= value as usize {
            self.n_of.resize(value as usize + 1, 0);
        }
        let n = &mut self.n_of[value as usize];
        *n = if up { *n + 1 } else { *n - 1 };
        let Some(port) = (value as usize).checked_sub(1) else { return };
        let (seed, most) = (settings.seed, settings.max_count());
        for position in self.plan().positions(port, numbers) {
            let cell = self.plan().cell(port, position);
            let (old, new) = self.counts.count(cell, up);
            if (old == 0) != (new == 0) {
                self.turned.push((port, position));
            }
            let (old, new) = (old.min(most), new.min(most));
            if old != new {
                self.touched.push((cell, old));
                self.cells ^= cell_prf(seed, cell, old) ^ cell_prf(seed, cell, new);
            }
        }
    }

    /// The names that the flipped bits made wrong, with their values, and those that they may have made right; some
    /// twice.
    fn turned_names<P: Payload>(
        &mut self,
        names: &Names<P>,
        value: impl Fn(P) -> u64,
    ) -> (Vec<(Digest, u64)>, Vec<Digest>) {
        let (mut entering, mut leaving) = (Vec::new(), Vec::new());
        let mut candidates = std::mem::take(&mut self.candidates);
        let (filters, turned) = (&self.counts.filters, &self.turned);
        for &(port, position) in turned {
            names.candidates(filters.plan.ports()[port].numbers_of(position), &mut candidates);
            for &id in &candidates {
                let (digest, payload) = names.at(id);
                let value = value(payload);
                // A filter after a name's own does not matter.
                if value != 0 && value as usize <= port + 1 {
                    continue;
                }
                let numbers = filters.numbers(digest);
                let mut matched = false;
                let concerned = filters.plan.positions(port, &numbers).all(|at| {
                    matched |= at == position;
                    filters.is_one(filters.plan.cell(port, at)) || turned.contains(&(port, at))
                });
                if !concerned || !matched {
                    continue;
                }
                if !self.is_wrong(value, &numbers) {
                    leaving.push(digest);
                } else if !self.exceptions.holds(digest) {
                    entering.push((digest, value));
                }
            }
        }
        self.candidates = candidates;
        self.turned.clear();
        (entering, leaving)
    }

    /// Whether the filters give a wrong answer for a name of `value`.
    fn is_wrong(&self, value: u64, numbers: &Numbers) -> bool {
        let n_before = if value == 0 { self.plan().n_ports() } else { value as usize - 1 };
        (0..n_before).any(|port| self.counts.filters.matches(port, numbers))
    }

    /// What changed since the last message.
    fn cells_update<P: Payload>(&mut self, names: &Names<P>) -> Option<Update> {
        let most = names.settings().max_count();
        // Of several states of a cell, the first is what the switch has.
        self.touched.sort_by_key(|&(cell, _)| cell);
        self.touched.dedup_by_key(|&mut (cell, _)| cell);
        let filters = &self.counts.filters;
        let write = |(cell, old): (u64, u8)| {
            let count = filters.count(cell).min(most);
            (count != old).then_some(CellWrite { cell, count })
        };
        let cells: Vec<CellWrite> = self.touched.drain(..).filter_map(write).collect();
        let (slots, second) = self.exceptions.drain(names.version(), MAX_SLOT_WRITES);
        if cells.is_empty() && slots.is_empty() && second.is_none() {
            return None;
        }
        self.is_header_stored &= second.is_none();
        let (from, _) = self.sent;
        let (to, digest) = self.note_sent(names);
        Some(Update::Cells(CellsUpdate { from, to, digest, cells, slots, second }))
    }

    fn note_sent<P: Payload>(&mut self, names: &Names<P>) -> (u64, u64) {
        self.sent = (names.version(), self.cells ^ self.exceptions.digest());
        self.sent
    }

    /// The whole table, noted as sent.
    fn whole<P: Payload>(&mut self, names: &Names<P>) -> Image {
        self.note_sent(names);
        self.sent_image(names.settings())
    }

    fn sent_image(&self, settings: &Settings) -> Image {
        let (version, digest) = self.sent;
        let filters = &self.counts.filters;
        let counters = filters.counters().filter(|_| settings.policy.has_counters());
        Image {
            version,
            digest,
            plan: filters.plan.clone(),
            bits: filters.bits().to_vec(),
            counters: counters.map(|counters| counters.to_vec()).unwrap_or_default(),
            second: self.exceptions.image(version),
        }
    }

    fn header(&self) -> Row {
        let mut value = Vec::new();
        self.capacity.encode(&mut value);
        self.exceptions.encode(&mut value);
        rows::header(value)
    }
}

/// Names with their values, and the number of names of each value.
fn valued<P: Payload>(names: &Names<P>, value: impl Fn(P) -> u64) -> (Vec<(Digest, u64)>, Vec<u64>) {
    let mut n_of = Vec::new();
    let entry = |(digest, payload): (Digest, P)| {
        let value = value(payload);
        if n_of.len() <= value as usize {
            n_of.resize(value as usize + 1, 0);
        }
        n_of[value as usize] += 1;
        (digest, value)
    };
    let entries = names.iter().map(entry).collect();
    (entries, n_of)
}

impl<P: Payload> View<Names<P>> for BloomView {
    /// The exact table may be unsolvable.
    const MAY_FAIL: bool = true;

    fn export(names: &Names<P>, value: impl Fn(P) -> u64) -> Result<(Self, Vec<Image>), InsertError> {
        let settings = names.settings();
        let counts = Counts::new(Capacity::default().plan(settings), settings);
        let mut view = Self::of(settings, counts, Exceptions::new(settings), Capacity::default(), Vec::new());
        let image = view.renew(names, 0, value)?;
        Ok((view, vec![image]))
    }

    fn updates(
        &mut self,
        names: &Names<P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update>,
    ) -> Result<(), InsertError> {
        match change {
            Change::None => {}
            Change::Part { .. } => updates.extend(self.follow(names, value)?),
            Change::Parts { .. } => updates.push(Update::Table(self.renew(names, 0, value)?)),
        }
        Ok(())
    }

    fn image(&self, names: &Names<P>, _slot: u32, value: impl Fn(P) -> u64) -> Result<Image, InsertError> {
        if !self.is_stale {
            return Ok(self.sent_image(names.settings()));
        }
        let (_, mut images) = Self::export(names, value)?;
        Ok(images.remove(0))
    }

    /// The counts behind another view's image are unknown: the next update rebuilds everything.
    fn note(&mut self, _: &Names<P>, _slot: u32, image: &Image) {
        self.is_stale |= image.digest != self.sent.1;
        self.sent = (image.version, image.digest);
    }

    fn renew(&mut self, names: &Names<P>, _slot: u32, value: impl Fn(P) -> u64) -> Result<Image, InsertError> {
        self.rebuild(names, value, 1.0)?;
        Ok(self.whole(names))
    }

    fn held(&self, _names: &Names<P>) -> Vec<(u32, HeldPart)> {
        let (version, digest) = self.sent;
        vec![(0, HeldPart { id: PartId::WHOLE, version, digest })]
    }

    fn set_version(&mut self, _slot: u32, version: u64) {
        self.sent.0 = version;
    }

    fn take_rows(&mut self) -> Vec<Row> {
        let is_stored = std::mem::replace(&mut self.is_header_stored, true);
        let header = (!is_stored).then(|| self.header());
        header.into_iter().chain(self.exceptions.take_rows()).collect()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(std::iter::once(self.header()).chain(self.exceptions.rows()))
    }

    fn restore(names: &Names<P>, rows: &[Row], value: impl Fn(P) -> u64) -> Result<(Self, Vec<Image>), RestoreError> {
        let settings = names.settings();
        let mut header = find_header(rows)?;
        let capacity = Capacity::decode(&mut header, settings)?;
        let (entries, n_of) = valued(names, value);
        if !(0..).zip(&n_of).all(|(value, &n)| capacity.is_enough(value, n)) {
            return Err(misplaced(names.len()));
        }
        let (counts, wrong) = Counts::filled(capacity.plan(settings), settings, &entries);
        let exceptions = Exceptions::restore(settings, &mut header, rows, &wrong)?;
        header.end()?;
        let mut view = Self::of(settings, counts, exceptions, capacity, n_of);
        view.is_header_stored = true;
        let image = view.whole(names);
        Ok((view, vec![image]))
    }

    fn heap_bytes(&self) -> usize {
        self.counts.heap_bytes() + self.exceptions.heap_bytes()
    }
}

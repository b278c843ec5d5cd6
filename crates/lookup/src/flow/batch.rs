//! Operations on many flows: pipelines over the groups of a call, and lookups in [phases](super::phases) that the caller
//! keeps in flight.
//!
//! In a call, what a phase asks for comes while another group has its own:
//! ```text
//! group g: begin    group g-1: advance    group g-2: second buckets    group g-3: compare keys
//! ```
//! A call of many groups always has requests for memory under way, but at its end it waits for the last ones. A caller
//! that has the next burst already begins that one first: see [`Table::begin_batch`].

use super::bucket::Line;
use super::error::InsertError;
use super::layout::{Layout, Memory, lanes};
use super::phases::{Flows, Group, begin, by_kernel};
use super::policy::Policy;
use super::store::Store;
use super::table::{Slot, Table};
use crate::base::prefetch::BURST;
use crate::base::processor::Kernel;
use crate::hash::Digest;

/// Keys per group. Hits are slower with 8, misses with 32, by some percent; batches of 32 are two groups.
const GROUP: usize = 16;
/// Groups in a call between two phases of one group. With two, batches of 256 were slower by some percent.
const AHEAD: usize = 1;
/// Groups between their second phase and their last, as a power of two.
const RING: usize = (2 * AHEAD + 1).next_power_of_two();

/// A burst of lookups in flight, of at most [`BURST`] keys: see [`Table::begin_batch`]. Once it is advanced, finish it,
/// with the same keys in the same table, before you use it for another burst: otherwise flows that are there may not be
/// found.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    group: Group<BURST>,
    /// The version of the table when the tags were compared, and the number of keys. None before.
    advanced: Option<(u64, usize)>,
}

impl<L: Layout, P: Policy> Table<L, P> {
    /// The digests of `keys`.
    /// # Panics
    /// If `keys` and `out` differ in length.
    pub fn digests(&self, keys: &[L::Key], out: &mut [Digest]) {
        L::digests(&self.hasher, keys, out);
    }

    /// The first phase of lookups: starts fetching the lines that they read first. It also helps any other operation on
    /// these flows.
    ///
    /// [`advance_batch`](Self::advance_batch) compares the tags, and starts fetching the entries;
    /// [`finish_batch`](Self::finish_batch) compares the keys. Between two phases of a burst the caller does something
    /// else, such as a phase of another burst:
    /// ```
    /// # use fibula_lookup::flow::{FlowTable, InFlight, Settings};
    /// # use fibula_lookup::hash::Digest;
    /// # let table: FlowTable<2, 1> = FlowTable::new(&Settings::new(1 << 10))?;
    /// # let keys = [[0u64; 2]; 96];
    /// # let mut digests = [Digest(0); 96];
    /// # table.digests(&keys, &mut digests);
    /// let mut in_flight = InFlight::default();
    /// table.begin_batch(&digests[..32]);
    /// for (keys, (digests, next)) in keys.chunks(32).zip(digests.chunks(32).zip(digests[32..].chunks(32).chain([&[][..]]))) {
    ///     table.advance_batch(keys, digests, &mut in_flight);
    ///     table.begin_batch(next);
    ///     table.finish_batch(keys, digests, &mut in_flight, |index, slot, value| {});
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn begin_batch(&self, digests: &[Digest]) {
        begin(&self.store, digests);
    }

    /// The second phase of lookups. The table may change before the third.
    /// # Panics
    /// If there are more than [`BURST`] keys, or not as many digests.
    #[inline]
    pub fn advance_batch(&self, keys: &[L::Key], digests: &[Digest], in_flight: &mut InFlight) {
        self.advance_by(Kernel::get(), (keys, digests), in_flight);
    }

    /// The third phase of lookups: calls `found(index, slot, value)` for each flow that is there now, not in order. If
    /// the table has changed since the second phase, that phase is repeated.
    /// # Panics
    /// As [`advance_batch`](Self::advance_batch).
    #[inline]
    pub fn finish_batch(
        &self,
        keys: &[L::Key],
        digests: &[Digest],
        in_flight: &mut InFlight,
        found: impl FnMut(usize, Slot, &L::Value),
    ) {
        self.finish_by(Kernel::get(), (keys, digests), in_flight, found);
    }

    #[inline(always)]
    pub(super) fn advance_by(&self, kernel: Kernel, flows: Flows<'_, L>, in_flight: &mut InFlight) {
        let n = flows.0.len();
        assert!(n == flows.1.len() && n <= BURST, "one digest a key, and at most {BURST} keys");
        let (store, now) = (&self.store, self.clock.low());
        by_kernel(kernel, || in_flight.group.advance(store, flows, now));
        in_flight.advanced = Some((self.version, n));
    }

    #[inline(always)]
    pub(super) fn finish_by(
        &self,
        kernel: Kernel,
        flows: Flows<'_, L>,
        in_flight: &mut InFlight,
        mut found: impl FnMut(usize, Slot, &L::Value),
    ) {
        if in_flight.advanced != Some((self.version, flows.0.len())) {
            self.advance_by(kernel, flows, in_flight);
        }
        in_flight.advanced = None;
        let (store, now, group) = (&self.store, self.clock.low(), &mut in_flight.group);
        let mut is_found = 0u32;
        by_kernel(kernel, || {
            group.finish(store, flows, now, |i, slot, value| {
                is_found |= 1 << i;
                found(i, Slot::new(slot, false), value);
            });
        });
        if let Some(old) = &self.old
            && !flows.0.is_empty()
        {
            look_back(kernel, old, flows, now, is_found, |i, slot, value| found(i, Slot::new(slot, true), value));
        }
    }

    /// Looks up a batch, hides memory latency, and calls `found(index, slot, value)` for each flow that is there, not
    /// in order. Faster than [`lookup_batch`](Self::lookup_batch) if some are absent: the caller needs no branch.
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn for_each_found(&self, keys: &[L::Key], digests: &[Digest], mut found: impl FnMut(usize, Slot, &L::Value)) {
        assert_eq!(keys.len(), digests.len(), "one digest a key");
        if self.is_growing() {
            let mut in_flight = InFlight::default();
            for (from, (keys, digests)) in (0..).step_by(BURST).zip(keys.chunks(BURST).zip(digests.chunks(BURST))) {
                self.begin_batch(digests);
                self.finish_batch(keys, digests, &mut in_flight, |i, slot, value| found(from + i, slot, value));
            }
            return;
        }
        self.found_by(Kernel::get(), (keys, digests), found);
    }

    /// As [`for_each_found`](Self::for_each_found), in the new generation only.
    #[inline(always)]
    pub(super) fn found_by(&self, kernel: Kernel, flows: Flows<'_, L>, mut found: impl FnMut(usize, Slot, &L::Value)) {
        let (store, now) = (&self.store, self.clock.low());
        pipeline(kernel, store, flows, now, |i, slot, value| found(i, Slot::new(slot, false), value));
    }

    /// `out[i] = lookup(&keys[i], digests[i])`; hides memory latency.
    /// # Panics
    /// If the slices differ in length.
    pub fn lookup_batch(&self, keys: &[L::Key], digests: &[Digest], out: &mut [Option<Slot>]) {
        assert_eq!(keys.len(), out.len(), "one answer a key");
        out.fill(None);
        self.for_each_found(keys, digests, |index, slot, _| out[index] = Some(slot));
    }

    /// Inserts flows, and hides memory latency: `insert(&keys[i], digests[i], &values[i], lifetime, ended)` for each in
    /// order; `done(i, ..)` receives the outcome.
    /// # Panics
    /// If the slices differ in length.
    pub fn insert_batch(
        &mut self,
        (keys, digests): (&[L::Key], &[Digest]),
        values: &[L::Value],
        lifetime: u16,
        mut ended: impl FnMut(&L::Key, &L::Value),
        mut done: impl FnMut(usize, Result<(), InsertError>),
    ) {
        assert!(keys.len() == digests.len() && keys.len() == values.len(), "one digest and one value a key");
        self.begin_batch(burst_from(digests, 0));
        for from in (0..digests.len()).step_by(BURST) {
            let burst = burst_from(digests, from);
            self.prefetch_inserts(burst);
            self.begin_batch(burst_from(digests, from + BURST));
            for (i, &digest) in (from..).zip(burst) {
                done(i, self.insert(&keys[i], digest, &values[i], lifetime, &mut ended).map(|_slot| ()));
            }
        }
    }

    /// Removes flows, and hides memory latency; calls `removed(i, value)` for each that was there.
    /// # Panics
    /// If the slices differ in length.
    pub fn remove_batch(&mut self, keys: &[L::Key], digests: &[Digest], mut removed: impl FnMut(usize, &L::Value)) {
        assert_eq!(keys.len(), digests.len(), "one digest a key");
        let mut in_flight = InFlight::default();
        self.begin_batch(burst_from(digests, 0));
        for from in (0..keys.len()).step_by(BURST) {
            let (keys, burst) = (burst_from(keys, from), burst_from(digests, from));
            self.advance_batch(keys, burst, &mut in_flight);
            self.begin_batch(burst_from(digests, from + BURST));
            let mut slots = [None; BURST];
            self.finish_batch(keys, burst, &mut in_flight, |i, slot, _| slots[i] = Some(slot));
            for (i, slot) in (from..).zip(slots) {
                // A key that occurs twice in a burst yields the same slot twice.
                if let Some(slot) = slot
                    && self.remove_at(slot)
                {
                    removed(i, self.value(slot));
                }
            }
        }
    }

    /// The second phase of inserts of absent flows: prefetches the entry of a free slot, and the other lines that they
    /// read.
    fn prefetch_inserts(&self, digests: &[Digest]) {
        let store = &self.store;
        for place in digests.iter().map(|&digest| store.place(digest)) {
            let free = L::Line::ALL & !store.masked(place.first).occupied();
            let slot = place.first * lanes::<L>() + free.trailing_zeros();
            store.memory.prefetch_entry_if(slot, free != 0, place.first);
            store.read_by_insert(place).for_each(|bucket| store.memory.prefetch_line(bucket));
        }
    }
}

/// The burst that begins at an index; empty after the end.
fn burst_from<T>(items: &[T], from: usize) -> &[T] {
    let n = items.len();
    &items[n.min(from)..n.min(from + BURST)]
}

/// Looks up in the old generation what a burst did not find in the new one.
#[cold]
#[inline(never)]
fn look_back<M: Memory, P: Policy>(
    kernel: Kernel,
    old: &Store<M, P>,
    (keys, digests): Flows<'_, M>,
    now: u16,
    is_found: u32,
    mut found: impl FnMut(usize, u32, &M::Value),
) {
    let (mut missed_keys, mut missed_digests) = ([keys[0]; BURST], [Digest(0); BURST]);
    let mut indices = [0; BURST];
    let mut n = 0;
    for index in (0..keys.len()).filter(|&index| is_found >> index & 1 == 0) {
        (missed_keys[n], missed_digests[n], indices[n]) = (keys[index], digests[index], index);
        n += 1;
    }
    let missed = (&missed_keys[..n], &missed_digests[..n]);
    pipeline(kernel, old, missed, now, |index, slot, value| found(indices[index], slot, value));
}

/// Looks up flows group by group, and calls `found(index, slot, value)`.
#[inline(always)]
fn pipeline<M: Memory, P: Policy>(
    kernel: Kernel,
    store: &Store<M, P>,
    (keys, digests): Flows<'_, M>,
    now: u16,
    mut found: impl FnMut(usize, u32, &M::Value),
) {
    let n = keys.len().min(digests.len());
    let part = |group: usize| {
        let range = n.min(group * GROUP)..n.min((group + 1) * GROUP);
        (&keys[range.clone()], &digests[range])
    };
    by_kernel(kernel, || {
        let mut ring: [Group<GROUP>; RING] = Default::default();
        for step in 0..n.div_ceil(GROUP) + 3 * AHEAD {
            begin(store, part(step).1);
            if let Some(group) = step.checked_sub(AHEAD) {
                ring[group % RING].advance(store, part(group), now);
            }
            if let Some(group) = step.checked_sub(2 * AHEAD) {
                ring[group % RING].look_in_second(store, part(group), now);
            }
            if let Some(group) = step.checked_sub(3 * AHEAD) {
                let found = |i, slot, value: &M::Value| found(group * GROUP + i, slot, value);
                ring[group % RING].finish(store, part(group), now, found);
            }
        }
    });
}

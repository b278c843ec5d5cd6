//! Lookups in batches of any length: a pipeline of groups, in which every line is prefetched one group before it is
//! read.
//!
//! ```text
//! group g+1:  bucket = first(digest)                         prefetch its line (pessimistic: the second one's too)
//! group g:    matches = tags == tag (& timers run)           prefetch the entry of the first match, or
//!             if none: the hint                              prefetch the line of the second bucket
//! group g-1:  for the latter: matches in the second bucket   prefetch the entry
//! group g-2:  compare keys; if a tag matched by chance (1 in 8,000): look up alone
//! ```
//! Bits of a word record which keys matched and which continue, so no stage branches on what was found: for mixed
//! traffic such branches are unpredictable.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls the AVX2 and BMI form after detecting both"))]

use super::bucket::Line;
use super::error::InsertError;
use super::layout::{Layout, Memory, lanes};
use super::policy::{Policy, Second};
use super::store::{Place, Store};
use super::table::{Slot, Table};
use crate::base::prefetch::BURST;
#[cfg(target_arch = "x86_64")]
use crate::base::processor::{Kernel, Vectors};
use crate::hash::Digest;

/// Keys per group. Hits are slower with 8, misses with 32, by some percent; batches of 32 are two groups.
const GROUP: usize = 16;

impl<L: Layout, P: Policy> Table<L, P> {
    /// The digests of `keys`.
    /// # Panics
    /// If `keys` and `out` differ in length.
    pub fn digests(&self, keys: &[L::Key], out: &mut [Digest]) {
        L::digests(&self.hasher, keys, out);
    }

    /// Prefetches the first lines that operations on these flows will read: some time before a batch of any kind.
    pub fn prefetch(&self, digests: &[Digest]) {
        ask(&self.store, digests);
    }

    /// Inserts flows, and hides memory latency: `insert(&keys[i], digests[i], &values[i], lifetime, ended)` for each in
    /// order; `done(i, ..)` receives the outcome. Twice as fast as one by one if the table is larger than the caches.
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
        for (from, burst) in (0..).step_by(BURST).zip(digests.chunks(BURST)) {
            self.prefetch_inserts(burst);
            for (i, &digest) in (from..).zip(burst) {
                done(i, self.insert(&keys[i], digest, &values[i], lifetime, &mut ended).map(|_slot| ()));
            }
        }
    }

    /// Removes flows, and hides memory latency; calls `removed(i, value)` for each that was there, not in order.
    /// # Panics
    /// If the slices differ in length.
    pub fn remove_batch(&mut self, keys: &[L::Key], digests: &[Digest], mut removed: impl FnMut(usize, &L::Value)) {
        assert_eq!(keys.len(), digests.len(), "one digest a key");
        for (from, (keys, digests)) in (0..).step_by(BURST).zip(keys.chunks(BURST).zip(digests.chunks(BURST))) {
            let mut slots = [None; BURST];
            let slots = &mut slots[..keys.len()];
            self.lookup_batch(keys, digests, slots);
            for (i, slot) in (from..).zip(slots) {
                // A key that occurs twice in a burst yields the same slot twice.
                if let Some(slot) = *slot
                    && self.remove_at(slot)
                {
                    removed(i, self.value(slot));
                }
            }
        }
    }

    /// Prefetches the lines that inserts of absent flows will touch. Waits for the first line of each, and prefetches
    /// the entry of a free slot, or the second line.
    fn prefetch_inserts(&self, digests: &[Digest]) {
        let store = &self.store;
        ask(store, digests);
        for place in digests.iter().map(|&digest| store.place(digest)) {
            let free = L::Line::ALL & !store.masked(place.first).occupied();
            let slot = place.first * lanes::<L>() + free.trailing_zeros();
            store.memory.prefetch_entry_if(slot, free != 0, place.first);
            store.memory.prefetch_line(if free == 0 { store.away(place) } else { place.first });
        }
    }

    /// `out[i] = lookup(&keys[i], digests[i])`; hides memory latency.
    /// # Panics
    /// If the slices differ in length.
    pub fn lookup_batch(&self, keys: &[L::Key], digests: &[Digest], out: &mut [Option<Slot>]) {
        assert_eq!(keys.len(), out.len(), "one answer a key");
        out.fill(None);
        self.for_each_found(keys, digests, |index, slot, _| out[index] = Some(slot));
    }

    /// Looks up a batch, hides memory latency, and calls `found(index, slot, value)` for each flow that is there, not
    /// in order. Faster than [`lookup_batch`](Self::lookup_batch) if some are absent: the caller needs no branch.
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn for_each_found(&self, keys: &[L::Key], digests: &[Digest], mut found: impl FnMut(usize, Slot, &L::Value)) {
        assert_eq!(keys.len(), digests.len(), "one digest a key");
        let now = self.clock.low();
        let Some(old) = &self.old else {
            return groups(&self.store, (keys, digests), now, |i, slot, value| found(i, Slot::new(slot, false), value));
        };
        for (n, (keys, digests)) in keys.chunks(BURST).zip(digests.chunks(BURST)).enumerate() {
            let mut is_missed = [true; BURST];
            groups(&self.store, (keys, digests), now, |i, slot, value| {
                is_missed[i] = false;
                found(n * BURST + i, Slot::new(slot, false), value);
            });
            look_back(old, (keys, digests), now, &is_missed, |i, slot, value| {
                found(n * BURST + i, Slot::new(slot, true), value);
            });
        }
    }
}

/// Looks up in the old generation what a burst did not find in the new one.
#[cold]
#[inline(never)]
fn look_back<M: Memory, P: Policy>(
    old: &Store<M, P>,
    (keys, digests): (&[M::Key], &[Digest]),
    now: u16,
    is_missed: &[bool; BURST],
    mut found: impl FnMut(usize, u32, &M::Value),
) {
    let (mut missed_keys, mut missed_digests) = ([keys[0]; BURST], [Digest(0); BURST]);
    let mut indices = [0; BURST];
    let mut n = 0;
    for index in (0..keys.len()).filter(|&index| is_missed[index]) {
        (missed_keys[n], missed_digests[n], indices[n]) = (keys[index], digests[index], index);
        n += 1;
    }
    let missed = (&missed_keys[..n], &missed_digests[..n]);
    groups(old, missed, now, |index, slot, value| found(indices[index], slot, value));
}

/// Prefetches the lines that lookups read first.
#[inline(always)]
fn ask<M: Memory, P: Policy>(store: &Store<M, P>, digests: &[Digest]) {
    for &digest in digests {
        let place = store.place(digest);
        store.memory.prefetch_line(place.first);
        if P::SECOND == Second::Fetched {
            store.memory.prefetch_line(store.away(place));
        }
    }
}

/// Looks up flows, and calls `found(index, slot, value)`.
#[inline(always)]
fn groups<M: Memory, P: Policy>(
    store: &Store<M, P>,
    flows: (&[M::Key], &[Digest]),
    now: u16,
    found: impl FnMut(usize, u32, &M::Value),
) {
    #[cfg(target_arch = "x86_64")]
    if Kernel::get().vectors() >= Vectors::Avx2 {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { pipeline_avx2(store, flows, now, found) };
    }
    pipeline(store, flows, now, found);
}

/// The same pipeline with three-operand vectors, the filter bits of four tags at a time, and single-operation shifts
/// and bit scans.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn pipeline_avx2<M: Memory, P: Policy>(
    store: &Store<M, P>,
    flows: (&[M::Key], &[Digest]),
    now: u16,
    found: impl FnMut(usize, u32, &M::Value),
) {
    pipeline(store, flows, now, found);
}

#[inline(always)]
fn pipeline<M: Memory, P: Policy>(
    store: &Store<M, P>,
    (keys, digests): (&[M::Key], &[Digest]),
    now: u16,
    mut found: impl FnMut(usize, u32, &M::Value),
) {
    let n = keys.len().min(digests.len());
    let part = |group: usize| {
        let range = n.min(group * GROUP)..n.min((group + 1) * GROUP);
        (&keys[range.clone()], &digests[range])
    };
    // Three groups are in progress at a time; a ring of four avoids a division.
    let mut ring: [Group; 4] = Default::default();
    ask(store, part(0).1);
    for group in 0..n.div_ceil(GROUP) + 2 {
        ask(store, part(group + 1).1);
        ring[group % 4].look_in_first(store, part(group), now);
        if let Some(group) = group.checked_sub(1) {
            ring[group % 4].look_in_second(store, part(group), now);
        }
        if let Some(group) = group.checked_sub(2) {
            let found = |i, slot, value: &M::Value| found(group * GROUP + i, slot, value);
            ring[group % 4].compare(store, part(group), now, found);
        }
    }
}

/// A group in the pipeline. Methods take its keys and digests, up to [`GROUP`].
#[derive(Default)]
struct Group {
    /// The slot of a flow whose tag matched; the second bucket of a flow that continues.
    places: [u32; GROUP],
    /// The flows whose tags matched, one bit each.
    met: u32,
    /// The other flows that may be in their second bucket.
    goes_on: u32,
}

impl Group {
    #[inline(always)]
    fn look_in_first<M: Memory, P: Policy>(
        &mut self,
        store: &Store<M, P>,
        (keys, digests): (&[M::Key], &[Digest]),
        now: u16,
    ) {
        let mut asked = [0; GROUP];
        for (asked, digest) in asked.iter_mut().zip(digests) {
            *asked = M::Line::asked::<P>(digest.0 as u16);
        }
        let (mut met, mut told) = (0, 0);
        for (i, (&digest, key)) in digests.iter().zip(keys).enumerate() {
            let Place { first, tag } = store.place(digest);
            let matches = store.matches(first, key, tag, now);
            // Without a match the slot is one of another bucket; it is neither fetched nor read.
            let slot = first * lanes::<M>() + u32::from(matches).trailing_zeros();
            store.memory.prefetch_entry_if(slot, matches != 0, first);
            self.places[i % GROUP] = slot;
            met |= u32::from(matches != 0) << i;
            told |= u32::from(store.masked(first).tells::<P>(asked[i % GROUP])) << i;
        }
        (self.met, self.goes_on) = (met, told & !met);
        for i in each(self.goes_on) {
            let second = store.told(store.place(digests[i]));
            self.places[i] = second;
            if P::SECOND != Second::Fetched {
                store.memory.prefetch_line(second);
            }
        }
    }

    #[inline(always)]
    fn look_in_second<M: Memory, P: Policy>(
        &mut self,
        store: &Store<M, P>,
        (keys, digests): (&[M::Key], &[Digest]),
        now: u16,
    ) {
        for i in each(self.goes_on) {
            let second = self.places[i];
            let matches = store.matches(second, &keys[i], store.place(digests[i]).tag, now);
            let slot = second * lanes::<M>() + u32::from(matches).trailing_zeros();
            store.memory.prefetch_entry_if(slot, matches != 0, second);
            self.places[i] = slot;
            self.met |= u32::from(matches != 0) << i;
        }
    }

    /// Compares the keys of those whose tags matched, and reports those that are equal.
    #[inline(always)]
    fn compare<M: Memory, P: Policy>(
        &self,
        store: &Store<M, P>,
        (keys, digests): (&[M::Key], &[Digest]),
        now: u16,
        mut found: impl FnMut(usize, u32, &M::Value),
    ) {
        for i in each(self.met) {
            let slot = self.places[i];
            let (key, value) = store.memory.entry(slot);
            if *key == keys[i] {
                found(i, slot, value);
            } else if let Some(slot) = alone(store, &keys[i], digests[i], now) {
                found(i, slot, store.memory.value(slot));
            }
        }
    }
}

/// The indices of the bits that are set in a group's word.
#[inline(always)]
fn each(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let i = bits.trailing_zeros() as usize % GROUP;
        let is_set = bits != 0;
        bits &= bits.wrapping_sub(1);
        is_set.then_some(i)
    })
}

#[cold]
#[inline(never)]
fn alone<M: Memory, P: Policy>(store: &Store<M, P>, key: &M::Key, digest: Digest, now: u16) -> Option<u32> {
    store.find(key, store.place(digest), now)
}

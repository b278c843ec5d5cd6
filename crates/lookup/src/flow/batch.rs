//! Lookups in batches of any length: the latency of memory is waited for once a stage, not once a key.
//!
//! ```text
//! 1. for all:           bucket = first(digest)                        prefetch its line (pessimistic: the second one's too)
//! 2. for all:           matches = tags == tag (& timers run)          prefetch the entry of the first match, or
//!                       if none: the hint                             prefetch the line of the second bucket
//! 3. for the latter:    matches in the second bucket                  prefetch the entry
//! 4. for those of 2:    compare keys; a tag alike by chance (1 in 8,000): look alone
//! 5. for those of 3:    the same
//! ```
//! Stages 2 and 3 sort keys into lists without a branch on what was found: for mixed traffic no predictor would guess it.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls the AVX2 and BMI form after detecting both"))]

use super::bucket::Line;
use super::layout::{Layout, Memory, lanes};
use super::policy::{Policy, Second};
use super::store::{Place, Store};
use super::table::{Slot, Table};
use crate::cuckoo::BURST;
use crate::hash::Digest;

impl<L: Layout, P: Policy> Table<L, P> {
    /// The digests of `keys`.
    /// # Panics
    /// If `keys` and `out` differ in length.
    pub fn digests(&self, keys: &[L::Key], out: &mut [Digest]) {
        L::digests(&self.hasher, keys, out);
    }

    /// Asks for the first lines that operations on these flows will read: some time before a batch of any kind.
    pub fn prefetch(&self, digests: &[Digest]) {
        for &digest in digests {
            self.store.memory.prefetch_line(self.store.place(digest).first);
        }
    }

    /// Asks for the lines that inserts of flows that are not there will touch: right before a batch of them. Waits for the
    /// first line of each, and asks for the entry of a free slot, or for the second line.
    pub fn prefetch_inserts(&self, digests: &[Digest]) {
        let store = &self.store;
        for digests in digests.chunks(BURST) {
            for &digest in digests {
                store.memory.prefetch_line(store.place(digest).first);
            }
            for place in digests.iter().map(|&digest| store.place(digest)) {
                let free = L::Line::ALL & !store.masked(place.first).occupied();
                let slot = place.first * lanes::<L>() + free.trailing_zeros();
                store.memory.prefetch_entry_if(slot, free != 0, place.first);
                store.memory.prefetch_line(if free == 0 { store.away(place) } else { place.first });
            }
        }
    }

    /// `out[i] = lookup(&keys[i], digests[i])`, with memory latency hidden.
    /// # Panics
    /// If the slices differ in length.
    pub fn lookup_batch(&self, keys: &[L::Key], digests: &[Digest], out: &mut [Option<Slot>]) {
        assert_eq!(keys.len(), out.len(), "one answer a key");
        out.fill(None);
        self.for_each_found(keys, digests, |index, slot, _| out[index] = Some(slot));
    }

    /// Looks up a batch, with memory latency hidden, and calls `found(index, slot, value)` for each flow that is there,
    /// not in order. Faster than [`lookup_batch`](Self::lookup_batch) where some are absent: the caller needs no branch.
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn for_each_found(&self, keys: &[L::Key], digests: &[Digest], mut found: impl FnMut(usize, Slot, &L::Value)) {
        assert_eq!(keys.len(), digests.len(), "one digest a key");
        let now = self.clock.low();
        for (n, (keys, digests)) in keys.chunks(BURST).zip(digests.chunks(BURST)).enumerate() {
            let mut is_missed = [true; BURST];
            let is_growing = self.old.is_some();
            burst(&self.store, keys, digests, now, |index, slot| {
                if is_growing {
                    is_missed[index] = false;
                }
                found(n * BURST + index, Slot::new(slot, false), self.store.memory.value(slot));
            });
            if let Some(old) = &self.old {
                look_back(old, keys, digests, now, &is_missed, |index, slot| {
                    found(n * BURST + index, Slot::new(slot, true), old.memory.value(slot));
                });
            }
        }
    }
}

/// Looks up what a burst did not find in the generation that is being left.
#[cold]
#[inline(never)]
fn look_back<M: Memory, P: Policy>(
    old: &Store<M, P>,
    keys: &[M::Key],
    digests: &[Digest],
    now: u16,
    is_missed: &[bool; BURST],
    mut found: impl FnMut(usize, u32),
) {
    let (mut missed_keys, mut missed_digests) = ([keys[0]; BURST], [Digest(0); BURST]);
    let mut indices = [0; BURST];
    let mut n = 0;
    for index in (0..keys.len()).filter(|&index| is_missed[index]) {
        (missed_keys[n], missed_digests[n], indices[n]) = (keys[index], digests[index], index);
        n += 1;
    }
    burst(old, &missed_keys[..n], &missed_digests[..n], now, |index, slot| found(indices[index], slot));
}

/// Keys of a burst whose tag was met, with the slot where.
struct Met {
    keys: [u8; BURST],
    slots: [u32; BURST],
    n: usize,
}

impl Met {
    #[inline(always)]
    fn new() -> Self {
        Self { keys: [0; BURST], slots: [0; BURST], n: 0 }
    }

    /// Adds a key if it has any matches in `bucket`, and asks for the entry.
    #[inline(always)]
    fn add<M: Memory>(&mut self, memory: &M, key: u8, bucket: u32, matches: u8) {
        // Of no matches the number is that of another bucket's slot, not fetched and overwritten by the next key.
        let slot = bucket * lanes::<M>() + matches.trailing_zeros();
        self.keys[self.n] = key;
        self.slots[self.n] = slot;
        self.n += usize::from(matches != 0);
        memory.prefetch_entry_if(slot, matches != 0, bucket);
    }

    /// Compares the keys, and tells of those that are equal.
    #[inline(always)]
    fn compare<M: Memory, P: Policy>(
        &self,
        store: &Store<M, P>,
        (keys, digests, now): (&[M::Key], &[Digest], u16),
        found: &mut impl FnMut(usize, u32),
    ) {
        for (&index, &slot) in self.keys[..self.n].iter().zip(&self.slots[..self.n]) {
            let index = usize::from(index);
            if *store.memory.key(slot) == keys[index] {
                found(index, slot);
            } else if let Some(slot) = alone(store, &keys[index], digests[index], now) {
                found(index, slot);
            }
        }
    }
}

#[cold]
#[inline(never)]
fn alone<M: Memory, P: Policy>(store: &Store<M, P>, key: &M::Key, digest: Digest, now: u16) -> Option<u32> {
    store.find(key, store.place(digest), now)
}

/// Looks up a burst, and calls `found(index, slot)`.
#[inline(always)]
fn burst<M: Memory, P: Policy>(
    store: &Store<M, P>,
    keys: &[M::Key],
    digests: &[Digest],
    now: u16,
    found: impl FnMut(usize, u32),
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("bmi2")
    {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { burst_avx2(store, keys, digests, now, found) };
    }
    stages(store, keys, digests, now, found);
}

/// The same stages with three-operand vectors, and shifts and bit scans that take one operation each.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn burst_avx2<M: Memory, P: Policy>(
    store: &Store<M, P>,
    keys: &[M::Key],
    digests: &[Digest],
    now: u16,
    found: impl FnMut(usize, u32),
) {
    stages(store, keys, digests, now, found);
}

#[inline(always)]
fn stages<M: Memory, P: Policy>(
    store: &Store<M, P>,
    keys: &[M::Key],
    digests: &[Digest],
    now: u16,
    mut found: impl FnMut(usize, u32),
) {
    let digests = &digests[..keys.len().min(BURST)];
    for &digest in digests {
        let place = store.place(digest);
        store.memory.prefetch_line(place.first);
        if P::SECOND == Second::Fetched {
            store.memory.prefetch_line(store.away(place));
        }
    }
    let (mut here, mut there) = (Met::new(), Met::new());
    let mut seconds = [(0u8, 0u32, 0u16); BURST];
    let mut n_seconds = 0;
    for ((index, &digest), key) in (0u8..).zip(digests).zip(keys) {
        let Place { first, tag } = store.place(digest);
        let matches = store.matches(first, key, tag, now);
        here.add(&store.memory, index, first, matches);
        let hint = store.masked(first).hint::<P>(tag);
        let second = store.apart(first, hint.unwrap_or(0));
        let goes_on = (matches == 0) & hint.is_some();
        seconds[n_seconds] = (index, second, tag);
        n_seconds += usize::from(goes_on);
        if P::SECOND != Second::Fetched {
            store.memory.prefetch_line(if goes_on { second } else { first });
        }
    }
    for &(index, second, tag) in &seconds[..n_seconds] {
        let matches = store.matches(second, &keys[usize::from(index)], tag, now);
        there.add(&store.memory, index, second, matches);
    }
    here.compare(store, (keys, digests, now), &mut found);
    there.compare(store, (keys, digests, now), &mut found);
}

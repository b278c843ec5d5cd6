//! The phases of lookups: each reads what the one before has asked for.
//!
//! ```text
//! begin:    bucket = first(digest)                       prefetch its line (pessimistic: the second one's too)
//! advance:  matches = tags == tag (& timers run)         prefetch the entry of the first match, or
//!           if none: the hint                            prefetch the line of the second bucket
//! finish:   for the latter: matches in the second bucket prefetch the entry
//!           compare keys, those in second buckets last; if a tag matched by chance (1 in 8,000): look up alone
//! ```
//! Bits of a word record which keys matched and which continue, so no phase branches on what was found: for mixed
//! traffic such branches are unpredictable.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls the AVX2 and BMI form after detecting both"))]

use super::bucket::Line;
use super::layout::{Memory, lanes};
use super::policy::{Policy, Second};
use super::store::{Place, Store};
use crate::base::processor::Kernel;
#[cfg(target_arch = "x86_64")]
use crate::base::processor::Vectors;
use crate::hash::Digest;

/// The keys and digests of flows, as many of one as of the other.
pub(super) type Flows<'a, M> = (&'a [<M as Memory>::Key], &'a [Digest]);

/// Calls a loop, compiled for the vector instructions of a kernel: three-operand vectors, the filter bits of four tags
/// at a time, and single-operation shifts and bit scans.
#[inline(always)]
pub(super) fn by_kernel<R>(kernel: Kernel, run: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if kernel.vectors() >= Vectors::Avx2 {
        // SAFETY: there is no such kernel unless the processor has what the function is compiled for.
        return unsafe { by_avx2(run) };
    }
    let _ = kernel;
    run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn by_avx2<R>(run: impl FnOnce() -> R) -> R {
    run()
}

/// Begins lookups: prefetches the lines that they read first.
#[inline(always)]
pub(super) fn begin<M: Memory, P: Policy>(store: &Store<M, P>, digests: &[Digest]) {
    for &digest in digests {
        let place = store.place(digest);
        store.memory.prefetch_line(place.first);
        if P::SECOND == Second::Fetched {
            store.memory.prefetch_line(store.away(place));
        }
    }
}

/// What the lookups of up to `N` keys have found so far. Methods take these keys and their digests.
#[derive(Clone, Debug)]
pub(super) struct Group<const N: usize> {
    /// The slot of a flow whose tag matched; the second bucket of a flow that continues.
    places: [u32; N],
    /// The flows whose tags matched, one bit each.
    met: u32,
    /// The other flows that may be in their second bucket.
    goes_on: u32,
}

impl<const N: usize> Default for Group<N> {
    fn default() -> Self {
        Self { places: [0; N], met: 0, goes_on: 0 }
    }
}

impl<const N: usize> Group<N> {
    /// Compares the tags of the first buckets.
    #[inline(always)]
    pub(super) fn advance<M: Memory, P: Policy>(
        &mut self,
        store: &Store<M, P>,
        (keys, digests): Flows<'_, M>,
        now: u16,
    ) {
        let mut asked = [0; N];
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
            self.places[i % N] = slot;
            met |= u32::from(matches != 0) << i;
            told |= u32::from(store.masked(first).tells::<P>(asked[i % N])) << i;
        }
        (self.met, self.goes_on) = (met, told & !met);
        for i in each::<N>(self.goes_on) {
            let second = store.told(store.place(digests[i]));
            self.places[i] = second;
            if P::SECOND != Second::Fetched {
                store.memory.prefetch_line(second);
            }
        }
        if P::SECOND == Second::Fetched {
            // Their second lines were prefetched with the first ones.
            self.look_in_second(store, (keys, digests), now);
        }
    }

    /// Compares the tags of the second buckets of those that continue.
    #[inline(always)]
    pub(super) fn look_in_second<M: Memory, P: Policy>(
        &mut self,
        store: &Store<M, P>,
        (keys, digests): Flows<'_, M>,
        now: u16,
    ) {
        for i in each::<N>(self.goes_on) {
            let second = self.places[i];
            let matches = store.matches(second, &keys[i], store.place(digests[i]).tag, now);
            let slot = second * lanes::<M>() + u32::from(matches).trailing_zeros();
            store.memory.prefetch_entry_if(slot, matches != 0, second);
            self.places[i] = slot;
            self.met |= u32::from(matches != 0) << i;
        }
        self.goes_on = 0;
    }

    /// Compares the tags of the second buckets, if that was not done, and the keys of all whose tags matched. Reports
    /// those that are equal.
    #[inline(always)]
    pub(super) fn finish<M: Memory, P: Policy>(
        &mut self,
        store: &Store<M, P>,
        flows: Flows<'_, M>,
        now: u16,
        mut found: impl FnMut(usize, u32, &M::Value),
    ) {
        let met_in_first = self.met;
        self.look_in_second(store, flows, now);
        self.compare(store, flows, now, met_in_first, &mut found);
        // Their entries came meanwhile.
        self.compare(store, flows, now, self.met & !met_in_first, &mut found);
    }

    #[inline(always)]
    fn compare<M: Memory, P: Policy>(
        &self,
        store: &Store<M, P>,
        (keys, digests): Flows<'_, M>,
        now: u16,
        which: u32,
        found: &mut impl FnMut(usize, u32, &M::Value),
    ) {
        for i in each::<N>(which) {
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
fn each<const N: usize>(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let i = bits.trailing_zeros() as usize % N;
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

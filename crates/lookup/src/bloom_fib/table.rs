//! One version of a Bloom forwarder as words: the lookup loops, and the concurrent writes.
//!
//! ```text
//! separate:  for each port: the first two bits of all names still unmatched, then the other bits of those where both
//!            are one; the next port's bits are fetched while one port's are read
//! sliced:    all k words of all names are fetched; AND them; the lowest port of the mask
//! both:      the exact table for the same names; its answer takes precedence
//! ```
//! A burst is read under the table's sequence counter. If it overlaps an update, its names are looked up one by one,
//! each repeated until no update overlaps. A reader that meets the writer too often queues behind it.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls the loops that are compiled for another processor")
)]

#[cfg(target_arch = "x86_64")]
use crate::base::processor::{Kernel, Vectors};
use std::hint::select_unpredictable;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use super::plan::{Numbers, Plan, PortShape, numbers};
use super::update::Image;
use super::{Form, MAX_COUNT, Settings, cell_prf};
use crate::base::atomic_words::AtomicWords;
use crate::base::prefetch::{BURST, prefetch};
use crate::bloom::MAX_HASHES;
use crate::cuckoo::Stripes;
use crate::cuckoo::exact::table::Table as Second;
use crate::hash::Digest;
use crate::publish::WriteGuard;
use crate::traits::ApplyError;

/// Bits of a name that are read in a filter before the others: an alien seldom has more ones.
const FIRST: usize = 2;
/// Filters of at least this many bytes prefetch bits: smaller ones fit the second-level cache and gain nothing.
const PREFETCH_FROM: usize = 512 << 10;
/// Counters per word.
const COUNTS: u64 = 64 / super::COUNTER_BITS;

/// The filters of all ports, and their counters, if any.
pub(super) struct Filters {
    pub(super) plan: Plan,
    bits: AtomicWords,
    counters: Option<AtomicWords>,
    seed: u64,
}

impl Filters {
    /// # Errors
    /// [`ApplyError::ArenaFull`] when there is no memory.
    pub(super) fn new(plan: Plan, counted: bool, seed: u64) -> Result<Self, ApplyError> {
        let bits = AtomicWords::zeroed(plan.n_cells().div_ceil(64) as usize)?;
        let counters = counted.then(|| AtomicWords::zeroed(plan.n_cells().div_ceil(COUNTS) as usize)).transpose()?;
        Ok(Self { plan, bits, counters, seed })
    }

    /// The share of aliens that some filter matches, by the bits that are one.
    pub(super) fn alien_rate(&self) -> f64 {
        let rate = |(port, shape): (usize, &PortShape)| {
            let ones = (0..shape.bits).filter(|&bit| self.is_one(self.plan.cell(port, bit))).count();
            (ones as f64 / f64::from(shape.bits)).powi(shape.hashes.into())
        };
        let ln_none: f64 = (0..).zip(self.plan.ports()).map(|port| (-rate(port)).ln_1p()).sum();
        -ln_none.exp_m1()
    }

    /// # Errors
    /// [`ApplyError`]: the image is malformed, or memory ran out.
    fn of(image: &Image, settings: &Settings) -> Result<Self, ApplyError> {
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        image.plan.check(settings)?;
        let n_cells = image.plan.n_cells();
        if image.bits.len() as u64 != n_cells.div_ceil(64) {
            return malformed("the words of the filters are not those of their sizes");
        }
        let counted = settings.policy.has_counters();
        let n_counters = if counted { n_cells.div_ceil(COUNTS) } else { 0 };
        if image.counters.len() as u64 != n_counters {
            return malformed("the counters are not those of the filters");
        }
        if image.bits.iter().any(|&word| word & !image.plan.used_bits() != 0) {
            return malformed("a bit is set for a port that is not there");
        }
        let counters = counted.then(|| AtomicWords::filled(&image.counters)).transpose()?;
        let filters =
            Self { plan: image.plan.clone(), bits: AtomicWords::filled(&image.bits)?, counters, seed: settings.seed };
        if counted && (0..n_cells).any(|cell| filters.is_one(cell) != (filters.count(cell) != 0)) {
            return malformed("a bit is not what its counter says");
        }
        Ok(filters)
    }

    pub(super) fn bits(&self) -> &AtomicWords {
        &self.bits
    }

    pub(super) fn counters(&self) -> Option<&AtomicWords> {
        self.counters.as_ref()
    }

    pub(super) fn numbers(&self, digest: Digest) -> Numbers {
        numbers(digest, self.seed, self.plan.max_hashes())
    }

    #[inline(always)]
    pub(super) fn is_one(&self, cell: u64) -> bool {
        bit(&self.bits, cell) & 1 != 0
    }

    /// The counter of a cell; its bit if there are no counters.
    #[inline]
    pub(super) fn count(&self, cell: u64) -> u8 {
        match &self.counters {
            Some(counters) => {
                let word = counters[(cell / COUNTS) as usize].load(Ordering::Relaxed);
                (word >> (cell % COUNTS * super::COUNTER_BITS)) as u8 & MAX_COUNT
            }
            None => self.is_one(cell).into(),
        }
    }

    /// Sets the counter of a cell, and its bit. Called by the one writer only.
    #[inline]
    pub(super) fn put(&self, cell: u64, count: u8) {
        if let Some(counters) = &self.counters {
            let (word, shift) = (&counters[(cell / COUNTS) as usize], cell % COUNTS * super::COUNTER_BITS);
            let others = word.load(Ordering::Relaxed) & !(u64::from(MAX_COUNT) << shift);
            word.store(others | u64::from(count) << shift, Ordering::Relaxed);
        }
        let (word, shift) = (&self.bits[(cell / 64) as usize], cell % 64);
        let others = word.load(Ordering::Relaxed) & !(1 << shift);
        word.store(others | u64::from(count != 0) << shift, Ordering::Relaxed);
    }

    /// Starts fetching a cell that will be changed.
    #[inline]
    pub(super) fn prefetch(&self, cell: u64) {
        prefetch(self.bits.as_ptr().wrapping_add((cell / 64) as usize).cast());
        if let Some(counters) = &self.counters {
            prefetch(counters.as_ptr().wrapping_add((cell / COUNTS) as usize).cast());
        }
    }

    /// The digest of all cells.
    pub(super) fn digest(&self, max_count: u8) -> u64 {
        let mut digest = 0;
        for (at, word) in (0..).zip(self.bits.iter()) {
            let mut ones = word.load(Ordering::Relaxed);
            while ones != 0 {
                let cell = at * 64 + u64::from(ones.trailing_zeros());
                digest ^= cell_prf(self.seed, cell, self.count(cell).min(max_count));
                ones &= ones - 1;
            }
        }
        digest
    }

    /// Whether the filter of a port matches; ports count from 0.
    pub(super) fn matches(&self, port: usize, numbers: &Numbers) -> bool {
        self.plan.cells(port, numbers).all(|cell| self.is_one(cell))
    }

    /// The first port whose filter matches; 0 if none does. One filter after another, one position after another, as
    /// published.
    #[inline]
    fn first_match(&self, digest: Digest) -> u64 {
        if self.plan.form() == Form::Sliced {
            let numbers = self.numbers(digest);
            return self.lowest_of(&numbers);
        }
        let (bits, bases): (&[AtomicU64], _) = (&self.bits, self.plan.bases());
        // Two numbers are computed at once; the others when a filter first needs them.
        let mut numbers = numbers(digest, self.seed, FIRST);
        let mut n_numbers = FIRST;
        for ((port, shape), &base) in (1..).zip(self.plan.ports()).zip(bases) {
            let is_one = |number: &u32| bit(bits, base + u64::from(shape.position(*number))) & 1 != 0;
            let n_hashes = usize::from(shape.hashes);
            if !numbers[..FIRST.min(n_hashes)].iter().all(is_one) {
                continue;
            }
            if n_numbers < n_hashes {
                n_numbers = self.plan.max_hashes();
                numbers = self::numbers(digest, self.seed, n_numbers);
            }
            if n_hashes <= FIRST || numbers[FIRST..n_hashes].iter().all(is_one) {
                return port;
            }
        }
        0
    }

    /// The first matching port of each of up to [`BURST`] names.
    #[inline(always)]
    fn first_matches(&self, digests: &[Digest], values: &mut [u64]) {
        match self.plan.form() {
            Form::Separate => self.one_after_another(digests, values),
            Form::Sliced => self.side_by_side(digests, values),
        }
    }

    /// [`Filters::first_match`] for many names: used by the control half after a rebuild.
    pub(super) fn all_first_matches(&self, digests: &[Digest], values: &mut [u64]) {
        for (digests, values) in digests.chunks(BURST).zip(values.chunks_mut(BURST)) {
            self.first_matches(digests, values);
        }
    }

    #[inline(always)]
    fn one_after_another(&self, digests: &[Digest], values: &mut [u64]) {
        let (bits, bases, ports): (&[AtomicU64], _, _) = (&self.bits, self.plan.bases(), self.plan.ports());
        let n_numbers = self.plan.max_hashes();
        let ahead = bits.len() * 8 >= PREFETCH_FROM;
        let mut all = [[0; MAX_HASHES as usize]; BURST];
        for (&digest, numbers) in digests.iter().zip(&mut all) {
            *numbers = self::numbers(digest, self.seed, n_numbers);
        }
        values.fill(0);
        let mut left = u32::MAX >> (BURST - digests.len());
        for (port, shape) in ports.iter().enumerate() {
            if left == 0 {
                break;
            }
            let base = bases[port];
            let at = |number: u32| base + u64::from(shape.position(number));
            // A single function's bit is read twice.
            let second = usize::from(shape.hashes > 1);
            let next = ports.get(port + 1).filter(|_| ahead);
            let mut waiting = 0u32;
            for name in each(left) {
                let [first, other] = [all[name][0], all[name][second]];
                if let Some(next) = next {
                    let fetch = |number: u32| prefetch_bit(bits, bases[port + 1] + u64::from(next.position(number)));
                    fetch(first);
                    fetch(other);
                }
                let ones = bit(bits, at(first)) & bit(bits, at(other)) & 1;
                waiting |= (ones as u32) << name;
            }
            let rest = FIRST.min(shape.hashes.into())..usize::from(shape.hashes);
            for name in each(if ahead { waiting } else { 0 }) {
                all[name][rest.clone()].iter().for_each(|&number| prefetch_bit(bits, at(number)));
            }
            for name in each(waiting) {
                if all[name][rest.clone()].iter().fold(1, |ones, &number| ones & bit(bits, at(number))) & 1 != 0 {
                    values[name] = port as u64 + 1;
                    left &= !(1 << name);
                }
            }
        }
    }

    #[inline(always)]
    fn side_by_side(&self, digests: &[Digest], values: &mut [u64]) {
        let Some(&shape) = self.plan.ports().first() else { return values.fill(0) };
        let (bits, stride_log): (&[AtomicU64], _) = (&self.bits, self.plan.stride_log());
        let mut all = [[0; MAX_HASHES as usize]; BURST];
        for (&digest, numbers) in digests.iter().zip(&mut all) {
            *numbers = self::numbers(digest, self.seed, shape.hashes.into());
            for &number in &numbers[..shape.hashes.into()] {
                prefetch_bit(bits, u64::from(shape.position(number)) << stride_log);
            }
        }
        for (value, numbers) in values.iter_mut().zip(&all) {
            *value = self.lowest_of(numbers);
        }
    }

    /// The lowest port whose bit is one in all the words of a name; 0 if there is none.
    #[inline(always)]
    fn lowest_of(&self, numbers: &Numbers) -> u64 {
        let Some(shape) = self.plan.ports().first() else { return 0 };
        let (bits, stride_log): (&[AtomicU64], _) = (&self.bits, self.plan.stride_log());
        let mut mask = u64::MAX >> (64 - (1u32 << stride_log));
        for &number in &numbers[..shape.hashes.into()] {
            mask &= bit(bits, u64::from(shape.position(number)) << stride_log);
        }
        let port = u64::from(mask.trailing_zeros()) + 1;
        select_unpredictable(mask == 0, 0, port)
    }
}

/// The indices of the bits that are set, ascending.
#[inline(always)]
fn each(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (at < 32).then_some(at as usize)
    })
}

/// A cell's bit in bit 0, with the bits above it in its word.
#[inline(always)]
fn bit(bits: &[AtomicU64], cell: u64) -> u64 {
    bits[(cell / 64) as usize].load(Ordering::Relaxed) >> (cell % 64)
}

#[inline(always)]
fn prefetch_bit(bits: &[AtomicU64], cell: u64) {
    prefetch(bits.as_ptr().wrapping_add((cell / 64) as usize).cast());
}

/// Filters and exact table, and the sequence counter of both.
pub(super) struct Tables {
    pub(super) filters: Filters,
    pub(super) second: Second<1>,
    sequence: Stripes,
}

impl Tables {
    /// # Errors
    /// [`ApplyError`]: the image is malformed, or memory ran out. The caller checks its digest.
    pub(super) fn new(image: &Image, settings: &Settings) -> Result<Self, ApplyError> {
        let second = Second::new(&image.second, settings.second_layout())?;
        Ok(Self { filters: Filters::of(image, settings)?, second, sequence: Stripes::new(1) })
    }

    pub(super) fn size_bytes(&self) -> usize {
        let counters = self.filters.counters.as_ref().map_or(0, |counters| counters.len());
        (self.filters.bits.len() + counters + 1) * 8 + self.second.size_bytes()
    }

    pub(super) fn huge_page_bytes(&self) -> Option<usize> {
        let counters = self.filters.counters.as_ref().map_or(Some(0), AtomicWords::huge_page_bytes)?;
        Some(self.filters.bits.huge_page_bytes()? + counters + self.second.huge_page_bytes()?)
    }

    /// Begins an update: lookups that overlap it are repeated. Lock first, see [`Tables::close`].
    pub(super) fn write(&self) -> WriteGuard<'_> {
        self.sequence.of(0).write()
    }

    /// Makes readers that keep meeting the writer wait for the end of an update. Locks this table before the exact one,
    /// as readers do.
    pub(super) fn close(&self) -> (MutexGuard<'_, ()>, MutexGuard<'_, ()>) {
        (self.sequence.close(), self.second.close())
    }

    #[inline(always)]
    fn exact(&self, digest: Digest, matched: u64) -> u64 {
        let payload = self.second.lookup(&[digest.0], self.second.buckets(digest));
        select_unpredictable(payload == 0, matched, payload.wrapping_sub(1))
    }

    /// The answer for one name, without batching: one filter after another as published.
    #[inline]
    pub(super) fn lookup(&self, digest: Digest) -> u64 {
        self.sequence.at_one_moment([0; 2], || self.exact(digest, self.filters.first_match(digest)))
    }

    pub(super) fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        let values = &mut values[..digests.len()];
        #[cfg(target_arch = "x86_64")]
        if Kernel::get().vectors() >= Vectors::Avx2 {
            // SAFETY: the processor has AVX2, BMI1 (which comes with BMI2) and BMI2.
            unsafe { self.bursts_avx2(digests, values) };
            return;
        }
        self.bursts(digests, values);
    }

    /// The same loops, compiled for processors with AVX2 and BMI2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn bursts_avx2(&self, digests: &[Digest], values: &mut [u64]) {
        self.bursts(digests, values);
    }

    #[inline(always)]
    fn bursts(&self, digests: &[Digest], values: &mut [u64]) {
        let sequence = self.sequence.of(0);
        for (digests, values) in digests.chunks(BURST).zip(values.chunks_mut(BURST)) {
            let begun = sequence.read_begin();
            digests.iter().for_each(|&digest| self.second.prefetch(self.second.buckets(digest)));
            self.filters.first_matches(digests, values);
            for (&digest, value) in digests.iter().zip(&mut *values) {
                *value = self.exact(digest, *value);
            }
            if !begun.is_some_and(|stamp| sequence.read_validate(stamp)) {
                for (&digest, value) in digests.iter().zip(&mut *values) {
                    *value = self.lookup(digest);
                }
            }
        }
    }
}

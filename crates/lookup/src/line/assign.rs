//! How full buckets may be, and which names each one keeps. Building, inserting and removing share this.
//!
//! A bucket takes the first tweak under which its names have a solution. If it has too many names, or if [`TRIES`]
//! tweaks fail, it bumps the names of the highest rank.

use super::Settings;
use super::layout::{self, KEEP_ALL, LEVELS, Layout, MAX_SECOND};
use super::solve::{self, Solution};
use crate::base::arena::LINE;
use crate::base::part::Payload;
use crate::base::prefetch::prefetch;
use crate::hash::mix64;

/// Tweaks that a bucket tries before it lowers its threshold.
const TRIES: u8 = 16;
/// The same for one more name. Most buckets whose own tweak fails are at their limit, and bumping one name costs less than
/// trying more tweaks.
const INSERT_TRIES: u8 = 8;

/// A name: 12 bytes with a 32-bit payload, 16 with a value.
#[derive(Clone, Copy)]
#[repr(Rust, packed)]
pub(super) struct Entry<P> {
    pub(super) digest: u64,
    pub(super) payload: P,
}

/// The names that a bucket keeps, and their solution.
pub(super) struct Bucket<P: Payload> {
    pub(super) tweak: u8,
    pub(super) threshold: u8,
    pub(super) names: Vec<Entry<P>>,
    pub(super) solution: Solution,
}

impl<P: Payload> Clone for Bucket<P> {
    fn clone(&self) -> Self {
        let mut copy = Self::empty();
        copy.clone_from(self);
        copy
    }

    /// Reuses the memory of `self`.
    fn clone_from(&mut self, other: &Self) {
        (self.tweak, self.threshold) = (other.tweak, other.threshold);
        self.names.clear();
        self.names.extend_from_slice(&other.names);
        self.solution.clear();
        self.solution.extend_from_slice(&other.solution);
    }
}

impl<P: Payload> Bucket<P> {
    /// A bucket without memory of its own.
    pub(super) const fn empty() -> Self {
        Self { tweak: 0, threshold: KEEP_ALL, names: Vec::new(), solution: Vec::new() }
    }

    /// Prefetches everything that a change of the bucket reads: about twenty lines of two vectors, mostly not in a
    /// cache.
    #[inline]
    pub(super) fn prefetch(&self) {
        let lines = |start: *const u8, bytes: usize| {
            (0..bytes.div_ceil(LINE)).for_each(|line| prefetch(start.wrapping_add(line * LINE)));
        };
        lines(self.names.as_ptr().cast(), size_of_val(&self.names[..]));
        lines(self.solution.as_ptr().cast(), size_of_val(&self.solution[..]));
    }

    /// Gives it memory for as many names as a bucket may have, unless it has that. All buckets have the same, so that memory
    /// of old ones suits new ones.
    pub(super) fn make_room(&mut self, rules: Rules) {
        let limit = rules.load.limit;
        self.names.reserve_exact(limit.saturating_sub(self.names.len()));
        let n_words = (1 + limit) * rules.layout.row_words();
        self.solution.reserve_exact(n_words.saturating_sub(self.solution.len()));
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.names.capacity() * size_of::<Entry<P>>() + self.solution.capacity() * 8
    }

    /// Removes a name. The rows of the others stay independent.
    pub(super) fn remove(&mut self, layout: Layout, at: usize) {
        solve::remove(layout, &mut self.solution, at, self.names.len());
        self.names.swap_remove(at);
    }
}

/// Buckets without names, whose memory new ones use.
#[derive(Clone)]
pub(super) struct Spare<P: Payload>(Vec<Bucket<P>>);

/// The most spare buckets: some more than a group has.
const MAX_SPARE: usize = 160;

impl<P: Payload> Spare<P> {
    /// None.
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// A bucket without names, with memory if there is any.
    pub(super) fn take(&mut self) -> Bucket<P> {
        self.0.pop().unwrap_or_else(Bucket::empty)
    }

    /// Adds buckets that are not needed any more.
    pub(super) fn add(&mut self, buckets: impl IntoIterator<Item = Bucket<P>>) {
        for mut bucket in buckets {
            if self.0.len() < MAX_SPARE {
                bucket.names.clear();
                self.0.push(bucket);
            }
        }
    }

    /// Bytes of their memory.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.iter().map(Bucket::heap_bytes).sum::<usize>() + self.0.capacity() * size_of::<Bucket<P>>()
    }
}

/// Digests of names. Those of a bucket of one line are not allocated.
struct Digests {
    n_few: usize,
    few: [u64; FEW],
    many: Vec<u64>,
}

/// Names of a bucket of one line, at most.
const FEW: usize = 64;

impl Digests {
    fn of<P: Payload>(names: &[Entry<P>]) -> Self {
        let mut digests = Self { n_few: 0, few: [0; FEW], many: Vec::new() };
        let all = names.iter().map(|name| name.digest);
        if names.len() <= FEW {
            digests.n_few = names.len();
            digests.few.iter_mut().zip(all).for_each(|(to, digest)| *to = digest);
        } else {
            digests.many.extend(all);
        }
        digests
    }
}

impl std::ops::Deref for Digests {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        if self.many.is_empty() { &self.few[..self.n_few] } else { &self.many }
    }
}

/// How full buckets may be. It follows from the layout and the trade.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Names per bucket for which a group is built.
    pub(super) mean: f64,
    /// The most names that a bucket tries to keep.
    limit: usize,
    /// A bucket takes bumped names back until it has this many.
    pub(super) comfortable: usize,
}

/// A group whose buckets hold more than this share of the mean is rebuilt with more buckets.
const GROW_AT: f64 = 1.05;
/// The share of the mean for which such a group is built. The inserts up to its next rebuild share the cost of one, and
/// the groups of a growing table are at the mean on average.
const GROW_TO: f64 = 0.97;
/// A group whose buckets hold less than this share of the mean is rebuilt for the mean.
const SHRINK_AT: f64 = 0.94;

impl Load {
    pub(super) fn new(settings: &Settings) -> Self {
        let n_cells = settings.layout().n_cells();
        let mean = settings.trade.mean(n_cells as f64);
        let (limit, comfortable) = match settings.layout().n_parts {
            3 => (n_cells * 12 / 13, n_cells * 8 / 9),
            _ => (n_cells * 24 / 25, n_cells * 11 / 12),
        };
        Self { mean, limit, comfortable }
    }

    /// First-level buckets of a new group of `n_names`.
    pub(super) fn buckets_for(self, n_names: usize) -> usize {
        ((n_names as f64 / self.mean).ceil() as usize).max(1)
    }

    /// Whether a group of `n_first` buckets has too many names.
    pub(super) fn is_full(self, n_names: usize, n_first: usize) -> bool {
        n_names as f64 > (n_first as f64 * self.mean * GROW_AT).max(self.comfortable as f64)
    }

    /// Buckets of the second level for `n_names` names. They are less full than first-level buckets, because a name
    /// that does not fit there causes a rebuild of the whole level.
    fn upper_buckets_for(self, n_names: usize) -> usize {
        n_names.div_ceil(self.comfortable * 9 / 10).min(MAX_SECOND.into())
    }

    /// Whether the upper levels have more buckets than `n_names` bumped names, and some more, need.
    pub(super) fn are_spare(self, n_names: usize, n_upper: usize) -> bool {
        self.upper_buckets_for(n_names + n_names / 8 + 2) < n_upper
    }

    /// Whether a group of `n_first` buckets has too few names: it needs at least one bucket fewer, even after growth
    /// has rounded up.
    pub(super) fn is_sparse(self, n_names: usize, n_first: usize) -> bool {
        n_first > 1
            && (n_names as f64)
                < (n_first as f64 * self.mean * SHRINK_AT).min(n_first as f64 * self.mean - self.mean * 2.0)
    }
}

/// What solving needs besides names.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) layout: Layout,
    pub(super) load: Load,
    pub(super) seed: u64,
}

impl Rules {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { layout: settings.layout(), load: Load::new(settings), seed: settings.seed }
    }

    /// The rules for a group that grows: it gets capacity for more names.
    pub(super) fn growing(self) -> Self {
        Self { load: Load { mean: self.load.mean * GROW_TO, ..self.load }, ..self }
    }

    /// Adds names to a bucket under its tweak. Returns false, and changes nothing, if there is no solution.
    pub(super) fn join<P: Payload>(self, bucket: &mut Bucket<P>, more: &[Entry<P>]) -> bool {
        let n_before = bucket.names.len();
        if n_before + more.len() > self.load.limit {
            return false;
        }
        bucket.make_room(self);
        bucket.names.extend_from_slice(more);
        let digests = Digests::of(&bucket.names);
        for n in n_before..digests.len() {
            if !solve::append(self.layout, &mut bucket.solution, &digests[..=n], bucket.tweak) {
                for n in (n_before..n).rev() {
                    solve::remove(self.layout, &mut bucket.solution, n, n + 1);
                }
                bucket.names.truncate(n_before);
                return false;
            }
        }
        true
    }

    /// Adds names to a bucket under one of the `n` tweaks after its own. Returns false, and changes nothing, if there is
    /// no solution.
    pub(super) fn resolve<P: Payload>(self, bucket: &mut Bucket<P>, more: &[Entry<P>], n: u8) -> bool {
        let n_before = bucket.names.len();
        if n_before + more.len() > self.load.limit {
            return false;
        }
        bucket.make_room(self);
        bucket.names.extend_from_slice(more);
        match self.search(&bucket.names, bucket.tweak.wrapping_add(1), n, &mut bucket.solution) {
            Some(tweak) => bucket.tweak = tweak,
            None => bucket.names.truncate(n_before),
        }
        bucket.names.len() > n_before
    }

    /// The first of `n` tweaks, beginning with `tweak`, under which `names` have a solution, which it writes.
    fn search<P: Payload>(self, names: &[Entry<P>], tweak: u8, n: u8, solution: &mut Solution) -> Option<u8> {
        let digests = Digests::of(names);
        let tweak = solve::find_tweak(self.layout, &digests, tweak, n)?;
        solve::solve(self.layout, &digests, tweak, solution).then_some(tweak)
    }

    /// Adds a name to a bucket that keeps names of its rank. Bumps the names of the highest rank where it has to.
    pub(super) fn insert<P: Payload>(
        self,
        level: usize,
        bucket: &mut Bucket<P>,
        name: Entry<P>,
        bumped: &mut Vec<Entry<P>>,
    ) {
        let rank = |name: &Entry<P>| layout::rank(name.digest, level);
        while !self.join(bucket, &[name]) && !self.resolve(bucket, &[name], INSERT_TRIES) {
            // Without the bumped names, the solution that there was mostly takes the new one, and need not be replaced.
            let threshold = bucket.names.iter().chain([&name]).map(rank).max().expect("there is a name");
            for at in (0..bucket.names.len()).rev() {
                if rank(&bucket.names[at]) >= threshold {
                    bumped.push(bucket.names[at]);
                    bucket.remove(self.layout, at);
                }
            }
            bucket.threshold = threshold;
            if rank(&name) >= threshold {
                bumped.push(name);
                return;
            }
        }
    }

    /// Fills a bucket with as many of `names` as it can keep. Bumps the rest.
    fn assign<P: Payload>(
        self,
        level: usize,
        names: &mut Vec<Entry<P>>,
        tweak: u8,
        bucket: &mut Bucket<P>,
        bumped: &mut Vec<Entry<P>>,
    ) {
        bucket.make_room(self);
        bucket.threshold = KEEP_ALL;
        loop {
            if names.len() <= self.load.limit
                && let Some(tweak) = self.search(names, tweak, TRIES, &mut bucket.solution)
            {
                bucket.tweak = tweak;
                bucket.names.extend_from_slice(names);
                return;
            }
            let threshold =
                names.iter().map(|name| layout::rank(name.digest, level)).max().expect("no names have a solution");
            names.retain(|name| {
                let keeps = layout::rank(name.digest, level) < threshold;
                if !keeps {
                    bumped.push(*name);
                }
                keeps
            });
            bucket.threshold = threshold;
        }
    }

    /// The buckets of one level for `names`. The names that they bump are appended to `bumped`.
    pub(super) fn assign_all<P: Payload>(
        self,
        level: usize,
        n_buckets: usize,
        names: &[Entry<P>],
        first_tweak: u64,
        bumped: &mut Vec<Entry<P>>,
        spare: &mut Spare<P>,
    ) -> Vec<Bucket<P>> {
        // Sorted by bucket, each with its names in their order.
        let of = |name: &Entry<P>| layout::bucket(name.digest, level, n_buckets as u32) as usize;
        let mut ends = vec![0u32; n_buckets + 1];
        names.iter().for_each(|name| ends[of(name) + 1] += 1);
        (1..=n_buckets).for_each(|index| ends[index] += ends[index - 1]);
        let mut sorted = names.to_vec();
        for name in names {
            let end = &mut ends[of(name)];
            sorted[*end as usize] = *name;
            *end += 1;
        }
        let (mut start, mut list) = (0, Vec::new());
        let assign = |(index, &end): (usize, &u32)| {
            list.clear();
            list.extend_from_slice(&sorted[start..end as usize]);
            start = end as usize;
            let mut bucket = spare.take();
            let tweak = (mix64(first_tweak ^ index as u64) >> 56) as u8;
            self.assign(level, &mut list, tweak, &mut bucket, bumped);
            bucket
        };
        ends[..n_buckets].iter().enumerate().map(assign).collect()
    }

    /// The buckets above the first level, for the names that it bumps.
    pub(super) fn assign_bumped<P: Payload>(
        self,
        mut names: Vec<Entry<P>>,
        first_tweak: u64,
        spare: &mut Spare<P>,
    ) -> Upper<P> {
        let (mut n_buckets, mut buckets) = ([0; LEVELS - 1], Vec::new());
        for level in 1..LEVELS {
            let n = match level {
                1 => self.load.upper_buckets_for(names.len()),
                _ => names.len().min(1),
            };
            let mut bumped = Vec::new();
            let first_tweak = first_tweak ^ (level as u64) << 20;
            buckets.extend(self.assign_all(level, n, &names, first_tweak, &mut bumped, spare));
            n_buckets[level - 1] = n as u16;
            names = bumped;
        }
        names.sort_unstable_by_key(|name| name.digest);
        Upper { n_buckets, buckets, left: names }
    }
}

/// The levels above the first.
pub(super) struct Upper<P: Payload> {
    pub(super) n_buckets: [u16; LEVELS - 1],
    pub(super) buckets: Vec<Bucket<P>>,
    /// The names that the last level bumps, in the order of digests.
    pub(super) left: Vec<Entry<P>>,
}

#[cfg(test)]
mod tests {
    use super::super::Trade;
    use super::*;
    use crate::hash::SecretKey;

    #[test]
    fn a_group_that_has_grown_is_neither_full_nor_sparse() {
        for value_bits in [1, 4, 8, 11, 16, 32] {
            for trade in [Trade::Fast, Trade::Balanced, Trade::Small] {
                let settings = Settings { trade, ..Settings::new(value_bits, 1 << 20, &SecretKey::from_seed(1)) };
                let rules = Rules::new(&settings);
                for n_first in 1..200 {
                    let full = |n: &usize| rules.load.is_full(*n, n_first);
                    let n_names = (0..).find(full).expect("a group gets full");
                    let n_grown = rules.growing().load.buckets_for(n_names);
                    assert!(
                        !rules.load.is_full(n_names, n_grown),
                        "{value_bits} bits, {trade:?}: {n_first} to {n_grown}"
                    );
                    // The next two removals do not undo it either.
                    assert!(
                        !rules.load.is_sparse(n_names - 2, n_grown),
                        "{value_bits} bits, {trade:?}: {n_first} to {n_grown}"
                    );
                }
            }
        }
    }
}

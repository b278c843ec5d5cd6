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
#[derive(Clone)]
pub(super) struct Bucket<P: Payload> {
    pub(super) tweak: u8,
    pub(super) threshold: u8,
    pub(super) names: Vec<Entry<P>>,
    pub(super) solution: Solution,
}

impl<P: Payload> Bucket<P> {
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

    /// Removes a name. The rows of the others stay independent.
    pub(super) fn remove(&mut self, layout: Layout, at: usize) {
        solve::remove(layout, &mut self.solution, at, self.names.len());
        self.names.swap_remove(at);
    }
}

fn digests<P: Payload>(names: &[Entry<P>]) -> Vec<u64> {
    names.iter().map(|name| name.digest).collect()
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

    /// The bucket with `more` names under the same tweak. If there is no solution, all of its names.
    pub(super) fn join<P: Payload>(self, bucket: &Bucket<P>, more: &[Entry<P>]) -> Result<Bucket<P>, Vec<Entry<P>>> {
        let mut names = Vec::with_capacity(bucket.names.len() + more.len() + 1);
        names.extend_from_slice(&bucket.names);
        names.extend_from_slice(more);
        if names.len() > self.load.limit {
            return Err(names);
        }
        let digests = digests(&names);
        let mut solution = Vec::with_capacity(bucket.solution.len() + (more.len() + 1) * self.layout.row_words());
        solution.extend_from_slice(&bucket.solution);
        let joined = (bucket.names.len()..names.len())
            .all(|n| solve::append(self.layout, &mut solution, &digests[..=n], bucket.tweak));
        match joined {
            true => Ok(Bucket { tweak: bucket.tweak, threshold: bucket.threshold, names, solution }),
            false => Err(names),
        }
    }

    /// The first of `n` tweaks, beginning with `tweak`, under which `names` have a solution.
    pub(super) fn search<P: Payload>(self, names: &[Entry<P>], tweak: u8, n: u8) -> Option<(u8, Solution)> {
        let digests = digests(names);
        let tweak = solve::find_tweak(self.layout, &digests, tweak, n)?;
        Some((tweak, solve::solve(self.layout, &digests, tweak)?))
    }

    /// The bucket with one more name, of whose rank it keeps names. It bumps the names of the highest rank where it has to.
    pub(super) fn insert<P: Payload>(
        self,
        level: usize,
        bucket: &Bucket<P>,
        name: Entry<P>,
        bumped: &mut Vec<Entry<P>>,
    ) -> Bucket<P> {
        let mut names = match self.join(bucket, &[name]) {
            Ok(joined) => return joined,
            Err(names) => names,
        };
        let rank = |name: &Entry<P>| layout::rank(name.digest, level);
        let mut edited = bucket.clone();
        loop {
            if names.len() <= self.load.limit
                && let Some((tweak, solution)) = self.search(&names, bucket.tweak.wrapping_add(1), INSERT_TRIES)
            {
                return Bucket { tweak, threshold: edited.threshold, names, solution };
            }
            // Without the bumped names, the solution that there was mostly takes the new one, and need not be replaced.
            let threshold = names.iter().map(rank).max().expect("no names have a solution");
            bumped.extend(names.iter().filter(|name| rank(name) >= threshold));
            for at in
                (0..edited.names.len()).rev().filter(|&at| rank(&edited.names[at]) >= threshold).collect::<Vec<_>>()
            {
                edited.remove(self.layout, at);
            }
            edited.threshold = threshold;
            if rank(&name) >= threshold {
                return edited;
            }
            names = match self.join(&edited, &[name]) {
                Ok(joined) => return joined,
                Err(names) => names,
            };
        }
    }

    /// A bucket of as many of `names` as it can keep. It bumps the rest.
    pub(super) fn assign<P: Payload>(
        self,
        level: usize,
        mut names: Vec<Entry<P>>,
        tweak: u8,
        bumped: &mut Vec<Entry<P>>,
    ) -> Bucket<P> {
        let mut threshold = KEEP_ALL;
        loop {
            if names.len() <= self.load.limit
                && let Some((tweak, solution)) = self.search(&names, tweak, TRIES)
            {
                return Bucket { tweak, threshold, names, solution };
            }
            threshold =
                names.iter().map(|name| layout::rank(name.digest, level)).max().expect("no names have a solution");
            names.retain(|name| {
                let keeps = layout::rank(name.digest, level) < threshold;
                if !keeps {
                    bumped.push(*name);
                }
                keeps
            });
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
    ) -> Vec<Bucket<P>> {
        let mut counts = vec![0u32; n_buckets];
        let of = |name: &Entry<P>| layout::bucket(name.digest, level, n_buckets as u32) as usize;
        names.iter().for_each(|name| counts[of(name)] += 1);
        // Capacity for a few more names, so that the first inserts need not allocate.
        let mut lists: Vec<Vec<Entry<P>>> = counts.iter().map(|&n| Vec::with_capacity(n as usize + 2)).collect();
        names.iter().for_each(|name| lists[of(name)].push(*name));
        let tweak = |index: usize| (mix64(first_tweak ^ index as u64) >> 56) as u8;
        let assign = |(index, list)| self.assign(level, list, tweak(index), bumped);
        lists.into_iter().enumerate().map(assign).collect()
    }

    /// The buckets above the first level, for the names that it bumps.
    pub(super) fn assign_bumped<P: Payload>(self, mut names: Vec<Entry<P>>, first_tweak: u64) -> Upper<P> {
        let (mut n_buckets, mut buckets) = ([0; LEVELS - 1], Vec::new());
        for level in 1..LEVELS {
            let n = match level {
                1 => self.load.upper_buckets_for(names.len()),
                _ => names.len().min(1),
            };
            let mut bumped = Vec::new();
            buckets.extend(self.assign_all(level, n, &names, first_tweak ^ (level as u64) << 20, &mut bumped));
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

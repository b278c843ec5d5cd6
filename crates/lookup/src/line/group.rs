//! One group of the control half: a few thousand names in buckets of up to three levels, and an exact stash.
//!
//! The digest of a name points to one bucket of each level. A bucket keeps the names whose rank is below its threshold,
//! and *bumps* the others to the next level. The names that the last level bumps are stashed. Every bucket has a tweak
//! under which the rows of its names are independent.
//!
//! A bucket that gains a name is solved again if necessary: under its tweak if possible, otherwise under another one.
//! If several tweaks fail it lowers its threshold. A bucket that has lost names raises its threshold again, so that
//! churn does not bump more and more names. If the upper levels have too few buckets for the bumped names, these levels
//! are rebuilt. If the group has too many or too few names for its buckets, the whole group is rebuilt.
//!
//! Cost (8-bit values): 24 bytes per name. An insert or a removal takes less than 1 us if the solution is edited.
//! Solving a bucket again takes about 3 us.
//! Limits: names with equal digests cannot both be in a group; [`MAX_TRIES`] bounds a build.

use super::MAX_STASH;
use super::assign::{Bucket, Entry, Rules, Spare};
use super::before::{Before, Levels};
use super::layout::{self, KEEP_ALL, LEVELS};
use super::solve;
use crate::base::directory::Part;
use crate::base::part::{PartId, Payload};
use crate::hash::mix64;

/// Tweaks that a bucket tries to take a bumped name back.
const RAISE_TRIES: u8 = 4;
/// Sizes that a build tries before it gives up.
pub(super) const MAX_TRIES: u32 = 16;
/// The most buckets of a first level.
const MAX_FIRST: usize = u16::MAX as usize;

/// Where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    Bucket { index: usize, at: usize },
    Stash(usize),
}

/// The group has no room for the names that its buckets bump. It must be rebuilt.
#[derive(Debug)]
pub(super) struct NoRoom;

/// No arrangement was found within the bounds.
#[derive(Debug)]
pub(super) struct NoSolution {
    /// The digest that two names share, if that is the reason.
    pub(super) duplicate: Option<u64>,
}

/// The names whose digests have one prefix.
#[derive(Clone)]
pub(super) struct Group<P: Payload> {
    pub(super) id: PartId,
    pub(super) version: u64,
    /// Buckets of each level. The third level has at most one.
    pub(super) n_buckets: [u16; LEVELS],
    /// The buckets of all levels, in the order of levels.
    pub(super) buckets: Vec<Bucket<P>>,
    pub(super) stash: Vec<Entry<P>>,
    pub(super) n_names: usize,
}

impl<P: Payload> Part for Group<P> {
    fn id(&self) -> PartId {
        self.id
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn set_version(&mut self, version: u64) {
        self.version = version;
    }
}

/// The number from which the first tweaks of a group's buckets are derived.
fn first_tweak(rules: Rules, id: PartId, version: u64) -> u64 {
    mix64(rules.seed ^ u64::from(id.prefix) << 8 ^ u64::from(id.depth)) ^ version << 32
}

impl<P: Payload> Group<P> {
    /// The group of `names`, with as many first-level buckets as they need.
    /// # Errors
    /// [`NoSolution`]: two names are equal, or [`MAX_TRIES`] sizes failed because too many names are alike.
    pub(super) fn build(
        rules: Rules,
        id: PartId,
        version: u64,
        names: &[Entry<P>],
        spare: &mut Spare<P>,
    ) -> Result<Self, NoSolution> {
        let n_names = names.len();
        let mut n_first = rules.load.buckets_for(n_names);
        let first_tweak = first_tweak(rules, id, version);
        for _ in 0..MAX_TRIES {
            let mut bumped = Vec::new();
            let mut buckets = rules.assign_all(0, n_first, names, first_tweak, &mut bumped, spare);
            let upper = rules.assign_bumped(bumped, first_tweak, spare);
            // Equal names cannot both be kept by a bucket, so the last level bumps them.
            if let Some(two) = upper.left.windows(2).find(|two| two[0].digest == two[1].digest) {
                return Err(NoSolution { duplicate: Some(two[0].digest) });
            }
            if upper.left.len() <= MAX_STASH {
                let [second, third] = upper.n_buckets;
                buckets.extend(upper.buckets);
                return Ok(Self {
                    id,
                    version,
                    n_buckets: [n_first as u16, second, third],
                    buckets,
                    stash: upper.left,
                    n_names,
                });
            }
            n_first = (n_first + n_first.div_ceil(16)).min(MAX_FIRST);
        }
        Err(NoSolution { duplicate: None })
    }

    /// The bucket of `digest` at a level, if the level has buckets.
    fn home(&self, level: usize, digest: u64) -> Option<usize> {
        let n = self.n_buckets[level];
        let before: usize = self.n_buckets[..level].iter().map(|&n| usize::from(n)).sum();
        (n > 0).then(|| before + layout::bucket(digest, level, n.into()) as usize)
    }

    fn level_of(&self, index: usize) -> usize {
        let [first, second, _] = self.n_buckets.map(usize::from);
        usize::from(index >= first) + usize::from(index >= first + second)
    }

    /// The bucket that keeps `digest`, or would keep it. `None` if the stash does.
    fn keeper(&self, digest: u64) -> Option<usize> {
        (0..LEVELS).find_map(|level| {
            let home = self.home(level, digest)?;
            (layout::rank(digest, level) < self.buckets[home].threshold).then_some(home)
        })
    }

    pub(super) fn find(&self, digest: u64) -> Option<Spot> {
        let is_it = |name: &Entry<P>| name.digest == digest;
        match self.keeper(digest) {
            Some(index) => {
                let bucket = &self.buckets[index];
                bucket.prefetch();
                bucket.names.iter().position(is_it).map(|at| Spot::Bucket { index, at })
            }
            None => self.stash.iter().position(is_it).map(Spot::Stash),
        }
    }

    pub(super) fn entry(&self, spot: Spot) -> Entry<P> {
        match spot {
            Spot::Bucket { index, at } => self.buckets[index].names[at],
            Spot::Stash(at) => self.stash[at],
        }
    }

    /// Appends every name, bucket by bucket.
    pub(super) fn append_names(&self, names: &mut Vec<Entry<P>>) {
        self.buckets.iter().for_each(|bucket| names.extend_from_slice(&bucket.names));
        names.extend_from_slice(&self.stash);
    }

    /// A bucket to be changed. It is noted as it is.
    fn edit(&mut self, index: usize, before: &mut Before<P>) -> &mut Bucket<P> {
        let bucket = &mut self.buckets[index];
        before.note(index, bucket);
        bucket
    }

    /// Changes the payload of a name.
    pub(super) fn alter(&mut self, spot: Spot, payload: P, before: &mut Before<P>) {
        match spot {
            Spot::Bucket { index, at } => self.edit(index, before).names[at].payload = payload,
            Spot::Stash(at) => {
                before.levels = Some(self.levels());
                self.stash[at].payload = payload;
            }
        }
    }

    /// A copy of the levels above the first.
    fn levels(&self) -> Levels<P> {
        let buckets = self.buckets[self.n_buckets[0].into()..].to_vec();
        Levels { n_buckets: self.n_buckets, buckets, stash: self.stash.clone() }
    }

    /// Adds a name that is not there. `before` is empty.
    /// # Errors
    /// [`NoRoom`]; the group is unchanged.
    pub(super) fn insert(&mut self, rules: Rules, name: Entry<P>, before: &mut Before<P>) -> Result<(), NoRoom> {
        let mut pending = Vec::new();
        self.insert_at(rules, 0, name, &mut pending, before);
        for level in 1..LEVELS {
            // In the order of digests, which is the same after a restart.
            pending.sort_unstable_by_key(|name| name.digest);
            for name in std::mem::take(&mut pending) {
                self.insert_at(rules, level, name, &mut pending, before);
            }
        }
        pending.sort_unstable_by_key(|name| name.digest);
        // The upper levels may be too small for all bumped names.
        if !pending.is_empty() && !self.make_upper_levels(rules, pending, before) {
            for (index, bucket) in before.buckets.drain(..) {
                self.buckets[index] = bucket;
            }
            return Err(NoRoom);
        }
        self.n_names += 1;
        Ok(())
    }

    /// Adds a name to its bucket at a level, or to `bumped`, with the names that the bucket bumps for it.
    fn insert_at(
        &mut self,
        rules: Rules,
        level: usize,
        name: Entry<P>,
        bumped: &mut Vec<Entry<P>>,
        before: &mut Before<P>,
    ) {
        let Some(home) = self.home(level, name.digest) else { return bumped.push(name) };
        if layout::rank(name.digest, level) < self.buckets[home].threshold {
            return rules.insert(level, self.edit(home, before), name, bumped);
        }
        // The bucket may have lost names since it bumped others. Then it takes this one.
        if level > 0 || !self.take_back(rules, home, Some(name), before) {
            bumped.push(name);
        }
    }

    /// Rebuilds the levels above the first for their names and `more`. Returns false, and changes nothing, if they do
    /// not fit.
    fn make_upper_levels(&mut self, rules: Rules, more: Vec<Entry<P>>, before: &mut Before<P>) -> bool {
        let n_first = usize::from(self.n_buckets[0]);
        let mut names = more;
        names.extend(self.buckets[n_first..].iter().flat_map(|bucket| &bucket.names).chain(&self.stash));
        let upper = rules.assign_bumped(names, first_tweak(rules, self.id, self.version + 1), &mut before.spare);
        if upper.left.len() > MAX_STASH {
            return false;
        }
        let mut old = Levels { n_buckets: self.n_buckets, buckets: self.buckets.split_off(n_first), stash: Vec::new() };
        self.buckets.extend(upper.buckets);
        self.n_buckets[1..].copy_from_slice(&upper.n_buckets);
        old.stash = std::mem::replace(&mut self.stash, upper.left);
        // This mutation may have changed some of them before.
        for (index, bucket) in before.buckets.extract_if(.., |before| before.0 >= n_first) {
            old.buckets[index - n_first] = bucket;
        }
        before.levels = Some(old);
        true
    }

    /// Removes a name. `before` is empty.
    pub(super) fn remove(&mut self, rules: Rules, spot: Spot, before: &mut Before<P>) {
        self.n_names -= 1;
        let (index, at) = match spot {
            Spot::Bucket { index, at } => (index, at),
            Spot::Stash(at) => {
                before.levels = Some(self.levels());
                self.stash.remove(at);
                return;
            }
        };
        self.drop_from(rules, index, at, before);
        if self.level_of(index) == 0 {
            self.take_back(rules, index, None, before);
        }
        let [n_first, second, third] = self.n_buckets.map(usize::from);
        let n_upper = self.stash.len() + self.buckets[n_first..].iter().map(|bucket| bucket.names.len()).sum::<usize>();
        if rules.load.are_spare(n_upper, second + third) {
            // If the names do not fit, the levels stay as they are.
            self.make_upper_levels(rules, Vec::new(), before);
        }
    }

    /// Removes a name from a bucket. The remaining rows stay independent.
    fn drop_from(&mut self, rules: Rules, index: usize, at: usize, before: &mut Before<P>) {
        self.edit(index, before).remove(rules.layout, at);
    }

    /// Raises the threshold of a first-level bucket that has room. The bumped names of the lowest rank come back, and
    /// `extra` may be one of them (it is not in the group yet). Returns whether `extra` came back.
    fn take_back(&mut self, rules: Rules, index: usize, extra: Option<Entry<P>>, before: &mut Before<P>) -> bool {
        let bucket = &self.buckets[index];
        let room = rules.load.comfortable.saturating_sub(bucket.names.len());
        if bucket.threshold == KEEP_ALL || room == 0 {
            return false;
        }
        let n_first = self.n_buckets[0];
        let away = |name: &Entry<P>| layout::bucket(name.digest, 0, n_first.into()) as usize == index;
        let mut bumped: Vec<(u8, Entry<P>)> = self.buckets[n_first.into()..]
            .iter()
            .flat_map(|bucket| &bucket.names)
            .chain(&self.stash)
            .filter(|name| away(name))
            .chain(&extra)
            .map(|name| (layout::rank(name.digest, 0), *name))
            .collect();
        bumped.sort_unstable_by_key(|&(rank, name)| (rank, name.digest));
        // All names of one rank come back together.
        let lowest = bumped.first().map_or(KEEP_ALL, |&(rank, _)| rank);
        let n_back = bumped.iter().take_while(|&&(rank, _)| rank == lowest).count();
        let threshold = bumped.get(n_back).map_or(KEEP_ALL, |&(rank, _)| rank);
        let back: Vec<Entry<P>> = bumped[..n_back].iter().map(|&(_, name)| name).collect();
        if n_back > room || back.iter().any(|name| self.stash.iter().any(|stashed| stashed.digest == name.digest)) {
            return false;
        }
        let is_new = before.note(index, bucket);
        let bucket = &mut self.buckets[index];
        if !rules.join(bucket, &back) && !rules.resolve(bucket, &back, RAISE_TRIES) {
            if is_new {
                before.forget();
            }
            return false;
        }
        // The names are found by the old threshold.
        let is_extra = |name: &Entry<P>| extra.is_some_and(|extra| extra.digest == name.digest);
        for name in back.iter().filter(|name| !is_extra(name)) {
            let Some(Spot::Bucket { index, at }) = self.find(name.digest) else {
                unreachable!("it was found in a bucket")
            };
            self.drop_from(rules, index, at, before);
        }
        self.buckets[index].threshold = threshold;
        back.iter().any(is_extra)
    }

    /// The group of stored names, tweaks and thresholds. Solves its buckets; `headers` are in their order.
    /// # Errors
    /// A bucket's names have no solution under its tweak, too many names are left for the stash, or a name comes twice.
    pub(super) fn resume(
        rules: Rules,
        (id, version, n_buckets): (PartId, u64, [u16; LEVELS]),
        headers: &[[u8; 2]],
        names: &[Entry<P>],
    ) -> Result<Self, NoSolution> {
        let empty = |&[tweak, threshold]: &[u8; 2]| Bucket { tweak, threshold, ..Bucket::empty() };
        let buckets = headers.iter().map(empty).collect();
        let mut group = Self { id, version, n_buckets, buckets, stash: Vec::new(), n_names: names.len() };
        for name in names {
            match group.keeper(name.digest) {
                Some(index) => group.buckets[index].names.push(*name),
                None => group.stash.push(*name),
            }
        }
        group.stash.sort_unstable_by_key(|name| name.digest);
        // Equal names in one bucket have no solution, so only the stash is searched for them.
        if group.stash.len() > MAX_STASH || group.stash.windows(2).any(|two| two[0].digest == two[1].digest) {
            return Err(NoSolution { duplicate: None });
        }
        for bucket in &mut group.buckets {
            let digests: Vec<u64> = bucket.names.iter().map(|name| name.digest).collect();
            if !solve::solve(rules.layout, &digests, bucket.tweak, &mut bucket.solution) {
                return Err(NoSolution { duplicate: None });
            }
        }
        Ok(group)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let buckets: usize = self.buckets.iter().map(Bucket::heap_bytes).sum();
        buckets + self.buckets.capacity() * size_of::<Bucket<P>>()
    }
}

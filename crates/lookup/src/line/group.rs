//! One group of the control half: a few thousand names in buckets of up to three levels, and an exact stash.
//!
//! A name belongs to the first bucket that its digest points to. A bucket keeps the names whose rank is below its
//! threshold, and *bumps* the others to the next level; what the last level bumps is stashed. Every bucket has a tweak
//! under which the rows of the names that it keeps are independent.
//!
//! Names that come and go make a bucket solve itself anew: under its tweak if that does, under another one otherwise, and
//! with a lower threshold when [`TRIES`] of them do not. A bucket that has lost names raises its threshold again, so
//! that bumping does not creep up under churn. When the group has too many or too few names for its buckets it is built
//! anew with more or fewer.
//!
//! Cost (8-bit values): 22 bytes a name; a bucket is solved in about 2 us.
//! Limits: names with equal digests cannot both be in; see [`MAX_TRIES`] for what bounds a build.

use super::Settings;
use super::layout::{self, KEEP_ALL, LEVELS, Layout, MAX_PARTS, MAX_SECOND};
use super::solve::{self, Solution};
use super::{MAX_STASH, ShardId};
use crate::hash::mix64;

/// Tweaks that a bucket tries before it lowers its threshold.
const TRIES: u8 = 24;
/// Tweaks that a bucket tries to take a bumped name back.
const RAISE_TRIES: u8 = 4;
/// Sizes that a build tries before it gives up.
pub(super) const MAX_TRIES: u32 = 16;
/// Most buckets of a first level.
const MAX_FIRST: usize = u16::MAX as usize;

/// What a name carries: its value, or an index to something that yields a value a switch.
pub trait Payload: Copy + Eq + Send + Sync + 'static {}
impl<T: Copy + Eq + Send + Sync + 'static> Payload for T {}

/// A name: 12 bytes with a 32-bit payload, 16 with a value.
#[derive(Clone, Copy)]
#[repr(Rust, packed)]
pub(super) struct Entry<P> {
    pub(super) digest: u64,
    pub(super) payload: P,
}

/// The names that a bucket keeps, and how it was solved for them.
#[derive(Clone)]
pub(super) struct Bucket<P: Payload> {
    pub(super) tweak: u8,
    pub(super) threshold: u8,
    pub(super) names: Vec<Entry<P>>,
    pub(super) solution: Solution,
}

/// A bucket as it was before the latest mutation.
#[derive(Clone)]
pub(super) struct Before<P: Payload> {
    pub(super) index: usize,
    pub(super) bucket: Bucket<P>,
}

/// Where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    Bucket { index: usize, at: usize },
    Stash(usize),
}

/// The group has no room for what its buckets bump: build it anew.
#[derive(Debug)]
pub(super) struct NoRoom;

/// No arrangement within the bounds.
#[derive(Debug)]
pub(super) struct NoSolution {
    /// A digest that two names share, when that is why.
    pub(super) duplicate: Option<u64>,
}

/// The names of one prefix of digests.
#[derive(Clone)]
pub(super) struct Group<P: Payload> {
    pub(super) id: ShardId,
    pub(super) version: u64,
    /// Buckets of each level; the third has at most one.
    pub(super) n_buckets: [u16; LEVELS],
    /// First those of the first level.
    pub(super) buckets: Vec<Bucket<P>>,
    pub(super) stash: Vec<Entry<P>>,
    pub(super) n_names: usize,
}

/// How full buckets may be, from the layout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Names a bucket that a group is built for.
    pub(super) mean: f64,
    /// Names that a bucket tries to keep, at most.
    limit: usize,
    /// Names up to which a bucket takes bumped ones back.
    comfortable: usize,
}

/// A group is built anew when it has so many more or fewer names than it was built for: 1.5 %.
const SLACK: f64 = 0.015;

impl Load {
    pub(super) fn new(settings: &Settings) -> Self {
        let n_cells = settings.layout().n_cells();
        let mean = settings.trade.mean(n_cells as f64);
        let (limit, comfortable) = match settings.layout().n_parts {
            3 => (n_cells * 15 / 16, n_cells * 7 / 8),
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
        n_names as f64 > (n_first as f64 * self.mean * (1.0 + SLACK)).max(self.comfortable as f64)
    }

    /// Whether it has too few: a bucket less would do, with some room.
    pub(super) fn is_empty(self, n_names: usize, n_first: usize) -> bool {
        n_first > 1
            && (n_names as f64)
                < (n_first as f64 * self.mean * (1.0 - SLACK)).min(n_first as f64 * self.mean - self.mean * 1.5)
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

    fn slots<P: Payload>(self, names: &[Entry<P>], tweak: u8) -> Vec<[u16; MAX_PARTS]> {
        names.iter().map(|name| self.layout.slots(name.digest, tweak)).collect()
    }

    /// The solution of `names` under `tweak`, if their rows are independent.
    fn solve<P: Payload>(self, names: &[Entry<P>], tweak: u8) -> Option<Solution> {
        let slots = self.slots(names, tweak);
        if !solve::has_full_rank(self.layout, &slots) {
            return None;
        }
        solve::solve(self.layout, &slots)
    }

    /// The first of `n` tweaks from `tweak` on under which `names` have a solution.
    fn search<P: Payload>(self, names: &[Entry<P>], tweak: u8, n: u8) -> Option<(u8, Solution)> {
        (0..n).map(|step| tweak.wrapping_add(step)).find_map(|tweak| Some((tweak, self.solve(names, tweak)?)))
    }

    /// A bucket of as many of `names` as it can keep, whose ranks are all below `threshold`; the others are bumped.
    fn settle<P: Payload>(
        self,
        level: usize,
        mut names: Vec<Entry<P>>,
        (tweak, mut threshold): (u8, u8),
        bumped: &mut Vec<Entry<P>>,
    ) -> Bucket<P> {
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

    /// Buckets of one level for `names`; what they bump is appended.
    fn settle_all<P: Payload>(
        self,
        level: usize,
        n_buckets: usize,
        names: Vec<Entry<P>>,
        first_tweak: u64,
        bumped: &mut Vec<Entry<P>>,
    ) -> Vec<Bucket<P>> {
        let mut counts = vec![0u32; n_buckets];
        let of = |name: &Entry<P>| layout::bucket(name.digest, level, n_buckets as u32) as usize;
        names.iter().for_each(|name| counts[of(name)] += 1);
        // Room for a few more, so that inserts need not allocate at once.
        let mut lists: Vec<Vec<Entry<P>>> = counts.iter().map(|&n| Vec::with_capacity(n as usize + 2)).collect();
        names.iter().for_each(|name| lists[of(name)].push(*name));
        let tweak = |index: usize| (mix64(first_tweak ^ index as u64) >> 56) as u8;
        let settle = |(index, list)| self.settle(level, list, (tweak(index), KEEP_ALL), bumped);
        lists.into_iter().enumerate().map(settle).collect()
    }
}

impl<P: Payload> Group<P> {
    /// The group of `names`, with first-level buckets for them.
    /// # Errors
    /// [`NoSolution`]: two names are equal, or so many are alike that [`MAX_TRIES`] sizes did not do.
    pub(super) fn build(rules: Rules, id: ShardId, version: u64, names: Vec<Entry<P>>) -> Result<Self, NoSolution> {
        let n_names = names.len();
        let mut n_first = rules.load.buckets_for(n_names);
        let first_tweak = mix64(rules.seed ^ u64::from(id.prefix) << 8 ^ u64::from(id.depth)) ^ version << 32;
        for _ in 0..MAX_TRIES {
            let mut levels = Vec::with_capacity(n_first + 4);
            let mut n_buckets = [0; LEVELS];
            let mut names = names.clone();
            for (level, n_level) in n_buckets.iter_mut().enumerate() {
                let n = match level {
                    0 => n_first,
                    // Not as full as a first one, for a name that does not fit there makes the group larger.
                    1 => names.len().div_ceil(rules.load.comfortable * 9 / 10),
                    _ => names.len().min(1),
                };
                let mut bumped = Vec::new();
                levels.extend(rules.settle_all(
                    level,
                    n.min(MAX_SECOND.into()),
                    names,
                    first_tweak ^ (level as u64) << 20,
                    &mut bumped,
                ));
                *n_level = n.min(MAX_SECOND.into()) as u16;
                names = bumped;
            }
            // Only names that every level bumps can be equal.
            names.sort_unstable_by_key(|name| name.digest);
            if let Some(two) = names.windows(2).find(|two| two[0].digest == two[1].digest) {
                return Err(NoSolution { duplicate: Some(two[0].digest) });
            }
            if names.len() <= MAX_STASH {
                return Ok(Self { id, version, n_buckets, buckets: levels, stash: names, n_names });
            }
            n_first = (n_first + n_first.div_ceil(16)).min(MAX_FIRST);
        }
        Err(NoSolution { duplicate: None })
    }

    /// The bucket of `digest` at a level that has any.
    fn home(&self, level: usize, digest: u64) -> Option<usize> {
        let n = self.n_buckets[level];
        let before: usize = self.n_buckets[..level].iter().map(|&n| usize::from(n)).sum();
        (n > 0).then(|| before + layout::bucket(digest, level, n.into()) as usize)
    }

    fn level_of(&self, index: usize) -> usize {
        let [first, second, _] = self.n_buckets.map(usize::from);
        usize::from(index >= first) + usize::from(index >= first + second)
    }

    /// The bucket that keeps `digest`, or would; none where it is for the stash.
    fn keeper(&self, digest: u64) -> Option<usize> {
        (0..LEVELS).find_map(|level| {
            let home = self.home(level, digest)?;
            (layout::rank(digest, level) < self.buckets[home].threshold).then_some(home)
        })
    }

    pub(super) fn find(&self, digest: u64) -> Option<Spot> {
        let is_it = |name: &Entry<P>| name.digest == digest;
        match self.keeper(digest) {
            Some(index) => self.buckets[index].names.iter().position(is_it).map(|at| Spot::Bucket { index, at }),
            None => self.stash.iter().position(is_it).map(Spot::Stash),
        }
    }

    pub(super) fn entry(&self, spot: Spot) -> Entry<P> {
        match spot {
            Spot::Bucket { index, at } => self.buckets[index].names[at],
            Spot::Stash(at) => self.stash[at],
        }
    }

    /// Every name.
    pub(super) fn names(&self) -> impl Iterator<Item = &Entry<P>> {
        self.buckets.iter().flat_map(|bucket| &bucket.names).chain(&self.stash)
    }

    /// Puts a bucket in the place of another, and notes that one unless it is noted.
    fn replace(&mut self, index: usize, bucket: Bucket<P>, before: &mut Vec<Before<P>>) {
        let old = std::mem::replace(&mut self.buckets[index], bucket);
        if before.iter().all(|before| before.index != index) {
            before.push(Before { index, bucket: old });
        }
    }

    /// Changes the payload of a name.
    pub(super) fn alter(&mut self, spot: Spot, payload: P, before: &mut Vec<Before<P>>) {
        match spot {
            Spot::Bucket { index, at } => {
                let mut bucket = self.buckets[index].clone();
                bucket.names[at].payload = payload;
                self.replace(index, bucket, before);
            }
            Spot::Stash(at) => self.stash[at].payload = payload,
        }
    }

    /// Adds a name that is not there. `before` is empty.
    /// # Errors
    /// [`NoRoom`]; the group is unchanged.
    pub(super) fn insert(&mut self, rules: Rules, name: Entry<P>, before: &mut Vec<Before<P>>) -> Result<(), NoRoom> {
        let mut pending = vec![name];
        for level in 0..LEVELS {
            let mut bumped = Vec::new();
            for name in std::mem::take(&mut pending) {
                let Some(home) = self.home(level, name.digest) else {
                    bumped.push(name);
                    continue;
                };
                let bucket = &self.buckets[home];
                if layout::rank(name.digest, level) >= bucket.threshold {
                    // The bucket may have lost names since it bumped others.
                    if level > 0 || !self.take_back(rules, home, Some(name), before) {
                        bumped.push(name);
                    }
                    continue;
                }
                let mut names = Vec::with_capacity(bucket.names.len() + 3);
                names.extend_from_slice(&bucket.names);
                names.push(name);
                let settled = rules.settle(level, names, (bucket.tweak, bucket.threshold), &mut bumped);
                self.replace(home, settled, before);
            }
            pending = bumped;
        }
        if !pending.is_empty() {
            // Nothing is stashed that a larger group can keep.
            for Before { index, bucket } in before.drain(..) {
                self.buckets[index] = bucket;
            }
            return Err(NoRoom);
        }
        self.n_names += 1;
        Ok(())
    }

    /// Removes a name from a bucket. `before` is empty.
    pub(super) fn remove(&mut self, rules: Rules, index: usize, at: usize, before: &mut Vec<Before<P>>) {
        self.drop_from(rules, index, at, before);
        self.n_names -= 1;
        if self.level_of(index) == 0 {
            self.take_back(rules, index, None, before);
        }
    }

    /// Solves a bucket without one of its names: fewer rows are as independent as before.
    fn drop_from(&mut self, rules: Rules, index: usize, at: usize, before: &mut Vec<Before<P>>) {
        let bucket = &self.buckets[index];
        let mut names = bucket.names.clone();
        names.swap_remove(at);
        let solution = solve::solve(rules.layout, &rules.slots(&names, bucket.tweak));
        let solution = solution.expect("independent rows stay so without one of them");
        let bucket = Bucket { tweak: bucket.tweak, threshold: bucket.threshold, names, solution };
        self.replace(index, bucket, before);
    }

    /// Raises the threshold of a first-level bucket that has room, over the bumped names of the lowest rank, `extra`
    /// (which is not in the group yet) among them; whether `extra` is in now.
    fn take_back(&mut self, rules: Rules, index: usize, extra: Option<Entry<P>>, before: &mut Vec<Before<P>>) -> bool {
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
        // All of one rank come back together.
        let lowest = bumped.first().map_or(KEEP_ALL, |&(rank, _)| rank);
        let n_back = bumped.iter().take_while(|&&(rank, _)| rank == lowest).count();
        let threshold = bumped.get(n_back).map_or(KEEP_ALL, |&(rank, _)| rank);
        let back = &bumped[..n_back];
        if n_back > room || back.iter().any(|(_, name)| self.stash.iter().any(|stashed| stashed.digest == name.digest))
        {
            return false;
        }
        let mut names = Vec::with_capacity(bucket.names.len() + n_back + 2);
        names.extend_from_slice(&bucket.names);
        names.extend(back.iter().map(|&(_, name)| name));
        let Some((tweak, solution)) = rules.search(&names, bucket.tweak, RAISE_TRIES) else { return false };
        let is_extra = |name: &Entry<P>| extra.is_some_and(|extra| extra.digest == name.digest);
        for (_, name) in back.iter().filter(|(_, name)| !is_extra(name)) {
            let Some(Spot::Bucket { index, at }) = self.find(name.digest) else {
                unreachable!("it was found in a bucket")
            };
            self.drop_from(rules, index, at, before);
        }
        self.replace(index, Bucket { tweak, threshold, names, solution }, before);
        back.iter().any(|(_, name)| is_extra(name))
    }

    /// Solves the buckets of a group whose names, tweaks and thresholds are known; `headers` in their order.
    /// # Errors
    /// The names of a bucket have no solution under its tweak, or there are more stashed than there may be.
    pub(super) fn resume(
        rules: Rules,
        (id, version, n_buckets): (ShardId, u64, [u16; LEVELS]),
        headers: &[(u8, u8)],
        names: &[Entry<P>],
    ) -> Result<Self, NoSolution> {
        let empty =
            |&(tweak, threshold): &(u8, u8)| Bucket { tweak, threshold, names: Vec::new(), solution: Vec::new() };
        let buckets = headers.iter().map(empty).collect();
        let mut group = Self { id, version, n_buckets, buckets, stash: Vec::new(), n_names: names.len() };
        for name in names {
            match group.keeper(name.digest) {
                Some(index) => group.buckets[index].names.push(*name),
                None => group.stash.push(*name),
            }
        }
        group.stash.sort_unstable_by_key(|name| name.digest);
        if group.stash.len() > MAX_STASH {
            return Err(NoSolution { duplicate: None });
        }
        for bucket in &mut group.buckets {
            let solution = solve::solve(rules.layout, &rules.slots(&bucket.names, bucket.tweak));
            bucket.solution = solution.ok_or(NoSolution { duplicate: None })?;
        }
        Ok(group)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let of = |bucket: &Bucket<P>| bucket.names.capacity() * size_of::<Entry<P>>() + bucket.solution.capacity() * 8;
        let buckets: usize = self.buckets.iter().map(of).sum();
        buckets + self.buckets.capacity() * size_of::<Bucket<P>>()
    }
}

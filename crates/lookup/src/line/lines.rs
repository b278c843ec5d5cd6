//! The shared skeleton: every name of a table in groups, solved once for all switches of a network.
//!
//! It knows which cells make up the value of a name, not the values: those belong to a [`View`](super::View), one a
//! switch. A mutation returns a [`Change`], from which each view derives its own update message.
//!
//! Cost: 23 bytes a name with 8-bit values (12 of digest and payload, 8 of its row of the solution); insert, alter and
//! remove edit one bucket, now and then two or three; `fibula bench update --contestants latency` tells how long that
//! takes. A group whose buckets are too full by 5 % or too empty by 6 % is built anew; above [`Settings::max_group`]
//! names it splits, and neighbours that fit half of that merge.

use super::group::{Before, Group, MAX_TRIES, NoRoom, NoSolution};
use super::layout::{LEVELS, MAX_SECOND};
use super::settle::{Entry, Payload, Rules};
use super::{MAX_STASH, Settings, ShardId};
use crate::hash::Digest;
use crate::othello::graph::{Change, MAX_DEPTH, prefix_of};
use crate::partition;
use crate::traits::InsertError;

/// What a controller must keep to derive the same cells after a restart, besides names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// Which digests belong to the group.
    pub id: ShardId,
    /// Its version.
    pub version: u64,
    /// Buckets of each level.
    pub n_buckets: [u16; LEVELS],
    /// Tweak and threshold of every bucket.
    pub headers: Vec<(u8, u8)>,
}

/// The names of a table in groups of buckets.
#[derive(Clone)]
pub struct Lines<P: Payload = u32> {
    settings: Settings,
    rules: Rules,
    depth: u8,
    /// Slot of the group of every prefix of `depth` bits.
    directory: Vec<u32>,
    groups: Vec<Option<Group<P>>>,
    free_slots: Vec<u32>,
    n_names: usize,
    /// What the latest mutation changed in a group that it edited.
    before: Before<P>,
}

impl<P: Payload> Lines<P> {
    /// An empty table.
    pub fn new(settings: Settings) -> Self {
        let rules = Rules::new(&settings);
        let root = Group::build(rules, ShardId { prefix: 0, depth: 0 }, 0, Vec::new());
        Self::assemble(settings, vec![root.expect("no names, no rows")])
    }

    /// Builds the table of `entries` on up to `threads` threads.
    /// # Errors
    /// [`InsertError::TooManyNames`], [`InsertError::DuplicateDigest`], [`InsertError::Unsolvable`].
    pub fn build(settings: Settings, entries: &[(Digest, P)], threads: usize) -> Result<Self, InsertError> {
        Ok(Self::build_with(settings, entries, threads, |_| ())?.0)
    }

    /// As [`Lines::build`], and what `each` makes of every group, in order of digests.
    pub(super) fn build_with<T: Send>(
        settings: Settings,
        entries: &[(Digest, P)],
        threads: usize,
        each: impl Fn(&Group<P>) -> T + Sync,
    ) -> Result<(Self, Vec<T>), InsertError> {
        if entries.len() > settings.max_names {
            return Err(InsertError::TooManyNames { max: settings.max_names });
        }
        // Half way between splitting and merging.
        let depth = partition::depth(entries.len(), settings.max_group() * 2 / 3);
        let rules = Rules::new(&settings);
        let entry = |digest: Digest, payload| Entry { digest: digest.0, payload };
        let solved = partition::solve(entries, depth, threads, entry, |prefix, names, ()| {
            let mut made = Vec::with_capacity(1);
            Self::build_or_split(&settings, rules, (ShardId { prefix, depth }, 0), names, &mut |group| {
                let value = each(&group);
                made.push((group, value));
            })?;
            Ok(made)
        })?;
        let (groups, made) = solved.into_iter().flatten().unzip();
        Ok((Self::assemble(settings, groups), made))
    }

    /// Builds the group `id`, or the groups below it where it has too many names.
    fn build_or_split(
        settings: &Settings,
        rules: Rules,
        (id, version): (ShardId, u64),
        names: Vec<Entry<P>>,
        done: &mut impl FnMut(Group<P>),
    ) -> Result<(), InsertError> {
        if names.len() > settings.max_group() && id.depth < MAX_DEPTH {
            let one = |name: &Entry<P>| name.digest >> (63 - u32::from(id.depth)) & 1 != 0;
            let (right, left) = names.into_iter().partition(one);
            for (bit, half) in [left, right].into_iter().enumerate() {
                let half_id = ShardId { prefix: id.prefix * 2 + bit as u32, depth: id.depth + 1 };
                Self::build_or_split(settings, rules, (half_id, version), half, done)?;
            }
            return Ok(());
        }
        let n_names = names.len();
        match Group::build(rules, id, version, names) {
            Ok(group) => {
                done(group);
                Ok(())
            }
            Err(NoSolution { duplicate: Some(digest) }) => Err(InsertError::DuplicateDigest { digest }),
            Err(NoSolution { duplicate: None }) => Err(InsertError::Unsolvable { n_names, tries: MAX_TRIES }),
        }
    }

    /// Puts groups that cover all digests behind a directory.
    fn assemble(settings: Settings, groups: Vec<Group<P>>) -> Self {
        let depth = groups.iter().map(|group| group.id.depth).max().unwrap_or(0);
        let mut lines = Self {
            rules: Rules::new(&settings),
            settings,
            depth,
            directory: vec![0; 1 << depth],
            n_names: groups.iter().map(|group| group.n_names).sum(),
            groups: groups.into_iter().map(Some).collect(),
            free_slots: Vec::new(),
            before: Before::new(),
        };
        for slot in 0..lines.groups.len() {
            lines.point_to(slot as u32);
        }
        lines
    }

    /// Puts together what a controller stored: the same buckets, so that every view has the same cells.
    ///
    /// `states` in order of digests, `names` in any order.
    /// # Errors
    /// [`RestoreError`]: the parts do not belong together.
    pub fn restore(settings: Settings, states: &[GroupState], names: &[(Digest, P)]) -> Result<Self, RestoreError> {
        let depth = states.iter().map(|state| state.id.depth).max().ok_or(RestoreError::Directory)?;
        let mut owner = Vec::new();
        for (index, state) in states.iter().enumerate() {
            let ends = (depth <= MAX_DEPTH && state.id.prefix >> state.id.depth == 0).then(|| state.id.entries(depth));
            match ends {
                Some(entries) if entries.start == owner.len() => owner.resize(entries.end, index),
                _ => return Err(RestoreError::Directory),
            }
        }
        if owner.len() != 1 << depth {
            return Err(RestoreError::Directory);
        }
        let mut lists = vec![Vec::new(); states.len()];
        for &(digest, payload) in names {
            lists[owner[prefix_of(digest.0, depth)]].push(Entry { digest: digest.0, payload });
        }
        let rules = Rules::new(&settings);
        let mut groups = Vec::with_capacity(states.len());
        for (state, names) in states.iter().zip(&lists) {
            let ShardId { prefix, depth } = state.id;
            let [first, second, third] = state.n_buckets;
            let n_all = usize::from(first) + usize::from(second) + usize::from(third);
            if first == 0 || second > MAX_SECOND || third > 1 || n_all != state.headers.len() {
                return Err(RestoreError::OutOfRange { prefix, depth });
            }
            let group = Group::resume(rules, (state.id, state.version, state.n_buckets), &state.headers, names);
            groups.push(group.map_err(|_| RestoreError::NoSolution { prefix, depth, n_names: names.len() })?);
        }
        Ok(Self::assemble(settings, groups))
    }

    /// Settings of the table.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Names that are in.
    pub fn len(&self) -> usize {
        self.n_names
    }

    /// Whether no name is in.
    pub fn is_empty(&self) -> bool {
        self.n_names == 0
    }

    /// The payload of a name.
    pub fn get(&self, digest: Digest) -> Option<P> {
        let group = self.group(self.slot(digest.0));
        Some(group.entry(group.find(digest.0)?).payload)
    }

    /// Inserts a name, or changes its payload.
    /// # Errors
    /// [`InsertError::TooManyNames`], [`InsertError::Unsolvable`]; the table is unchanged.
    pub fn insert(&mut self, digest: Digest, payload: P) -> Result<Change, InsertError> {
        let slot = self.slot(digest.0);
        let (rules, max) = (self.rules, self.settings.max_names);
        self.before.clear();
        let group = self.groups[slot as usize].as_mut().expect("the directory points to live slots");
        if let Some(spot) = group.find(digest.0) {
            if { group.entry(spot).payload } == payload {
                return Ok(Change::None);
            }
            group.version += 1;
            group.alter(spot, payload, &mut self.before);
            return Ok(Change::Cells { slot });
        }
        if self.n_names >= max {
            return Err(InsertError::TooManyNames { max });
        }
        let name = Entry { digest: digest.0, payload };
        let is_full = rules.load.is_full(group.n_names + 1, group.n_buckets[0].into());
        let inserted = if is_full { Err(NoRoom) } else { group.insert(rules, name, &mut self.before) };
        let Ok(()) = inserted else { return self.rebuild(&[slot], &[name]) };
        group.version += 1;
        self.n_names += 1;
        Ok(Change::Cells { slot })
    }

    /// Removes a name. It is an alien from then on: its answer is arbitrary.
    pub fn remove(&mut self, digest: Digest) -> Change {
        let slot = self.slot(digest.0);
        let rules = self.rules;
        self.before.clear();
        let group = self.groups[slot as usize].as_mut().expect("the directory points to live slots");
        let Some(spot) = group.find(digest.0) else { return Change::None };
        group.version += 1;
        self.n_names -= 1;
        group.remove(rules, spot, &mut self.before);
        if rules.load.is_empty(group.n_names, group.n_buckets[0].into()) {
            let neighbour = self.mergeable(slot);
            let slots = [slot, neighbour.unwrap_or(slot)];
            // A build may fail; then the group stays as it is, and the next removal tries again.
            if let Ok(change) = self.rebuild(&slots[..1 + usize::from(neighbour.is_some())], &[]) {
                return change;
            }
        }
        Change::Cells { slot }
    }

    /// The neighbour that `slot` should merge with: both small, of one depth and one parent.
    fn mergeable(&self, slot: u32) -> Option<u32> {
        let group = self.group(slot);
        if group.id.depth == 0 {
            return None;
        }
        let neighbour = self.directory[(group.id.prefix as usize ^ 1) << (self.depth - group.id.depth)];
        let other = self.group(neighbour);
        let fits = group.n_names + other.n_names < self.settings.max_group() / 2;
        (other.id.depth == group.id.depth && fits).then_some(neighbour)
    }

    /// Builds anew the group of one slot, or of two that merge, with names that are not in.
    fn rebuild(&mut self, slots: &[u32], extra: &[Entry<P>]) -> Result<Change, InsertError> {
        let olds = slots.iter().map(|&slot| self.group(slot));
        let mut names = Vec::with_capacity(olds.clone().map(|group| group.n_names).sum::<usize>() + extra.len());
        olds.clone().for_each(|group| group.append_names(&mut names));
        names.extend_from_slice(extra);
        let version = olds.map(|group| group.version + 1).max().unwrap_or(1);
        let rules = if extra.is_empty() { self.rules } else { self.rules.growing() };
        let built = self.plan(rules, slots, names, version)?;
        self.before.clear();
        self.n_names += extra.len();
        Ok(self.commit(vec![(slots.to_vec(), built)]))
    }

    /// The groups of `names` in the place of those in `slots`, which stay as they are.
    fn plan(
        &self,
        rules: Rules,
        slots: &[u32],
        names: Vec<Entry<P>>,
        version: u64,
    ) -> Result<Vec<Group<P>>, InsertError> {
        let first = self.group(slots[0]).id;
        let up = slots.len() as u8 - 1;
        let id = ShardId { prefix: first.prefix >> up, depth: first.depth - up };
        let mut built = Vec::with_capacity(1);
        Self::build_or_split(&self.settings, rules, (id, version), names, &mut |group| built.push(group))?;
        Ok(built)
    }

    /// Puts groups in the place of others.
    fn commit(&mut self, plans: Vec<(Vec<u32>, Vec<Group<P>>)>) -> Change {
        let (mut slots, mut replaced) = (Vec::new(), Vec::new());
        for (old_slots, built) in plans {
            for slot in old_slots {
                replaced.push(self.groups[slot as usize].take().expect("a live slot").id);
                self.free_slots.push(slot);
            }
            let first_new = slots.len();
            for group in built {
                while self.depth < group.id.depth {
                    self.directory = self.directory.iter().flat_map(|&slot| [slot, slot]).collect();
                    self.depth += 1;
                }
                replaced.retain(|&old| old != group.id);
                let slot = self.free_slots.pop().unwrap_or(self.groups.len() as u32);
                if slot as usize == self.groups.len() {
                    self.groups.push(None);
                }
                self.groups[slot as usize] = Some(group);
                slots.push(slot);
            }
            for &slot in &slots[first_new..] {
                self.point_to(slot);
            }
        }
        Change::Shards { slots, replaced }
    }

    /// Inserts many names, or changes their payloads, by building anew every group that one of them belongs to; of
    /// equal digests the last wins.
    /// # Errors
    /// As for [`Lines::insert`]; the table is unchanged.
    pub fn insert_batch(&mut self, entries: &[(Digest, P)]) -> Result<Change, InsertError> {
        if entries.is_empty() {
            return Ok(Change::None);
        }
        self.before.clear();
        let mut sorted: Vec<&(Digest, P)> = entries.iter().collect();
        sorted.sort_by_key(|entry| entry.0);
        let (mut plans, mut added) = (Vec::new(), 0);
        for list in sorted.chunk_by(|a, b| self.slot(a.0.0) == self.slot(b.0.0)) {
            let slot = self.slot(list[0].0.0);
            let group = self.group(slot);
            let mut names = Vec::with_capacity(group.n_names + list.len());
            group.append_names(&mut names);
            names.sort_unstable_by_key(|name| name.digest);
            let n_old = names.len();
            for run in list.chunk_by(|a, b| a.0 == b.0) {
                let &(digest, payload) = *run.last().expect("runs are not empty");
                match names[..n_old].binary_search_by_key(&digest.0, |name| name.digest) {
                    Ok(at) => names[at].payload = payload,
                    Err(_) => names.push(Entry { digest: digest.0, payload }),
                }
            }
            added += names.len() - n_old;
            let version = group.version + 1;
            plans.push((vec![slot], self.plan(self.rules, &[slot], names, version)?));
        }
        let max = self.settings.max_names;
        if self.n_names + added > max {
            return Err(InsertError::TooManyNames { max });
        }
        self.n_names += added;
        Ok(self.commit(plans))
    }

    /// Gives every group a new version, so that views whose values changed can send them all.
    pub fn touch(&mut self) -> Change {
        let slots: Vec<u32> = self.slots().map(|(slot, _)| slot).collect();
        for &slot in &slots {
            self.groups[slot as usize].as_mut().expect("a live slot").version += 1;
        }
        Change::Shards { slots, replaced: Vec::new() }
    }

    fn point_to(&mut self, slot: u32) {
        let entries = self.group(slot).id.entries(self.depth);
        self.directory[entries].fill(slot);
    }

    #[inline]
    fn slot(&self, digest: u64) -> u32 {
        self.directory[prefix_of(digest, self.depth)]
    }

    pub(super) fn group(&self, slot: u32) -> &Group<P> {
        self.groups[slot as usize].as_ref().expect("a live slot")
    }

    /// Slots in use, each with its group, in order of digests.
    pub(super) fn slots(&self) -> impl Iterator<Item = (u32, &Group<P>)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let slot = *self.directory.get(at)?;
            let group = self.group(slot);
            at += 1 << (self.depth - group.id.depth);
            Some((slot, group))
        })
    }

    /// Slots are below this.
    pub(super) fn slot_limit(&self) -> usize {
        self.groups.len()
    }

    /// What the latest mutation changed in a group that it edited, as it was.
    pub(super) fn before(&self) -> &Before<P> {
        &self.before
    }

    /// Every name and its payload, group by group.
    pub fn iter(&self) -> impl Iterator<Item = (Digest, P)> {
        self.slots().flat_map(|(_, group)| group.names().map(|name| (Digest(name.digest), name.payload)))
    }

    /// Which group is in a slot, as slots name them in a [`Change`].
    pub fn group_id(&self, slot: u32) -> ShardId {
        self.group(slot).id
    }

    /// The state of one group, as slots name them in a [`Change`].
    pub fn group_state(&self, slot: u32) -> GroupState {
        let group = self.group(slot);
        let headers = group.buckets.iter().map(|bucket| (bucket.tweak, bucket.threshold)).collect();
        GroupState { id: group.id, version: group.version, n_buckets: group.n_buckets, headers }
    }

    /// The states of all groups, in order of digests: with the names, what [`Lines::restore`] takes.
    pub fn group_states(&self) -> impl Iterator<Item = GroupState> {
        self.slots().map(|(slot, _)| self.group_state(slot))
    }

    /// Groups of the table.
    pub fn n_groups(&self) -> usize {
        self.groups.len() - self.free_slots.len()
    }

    /// How names stand.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for (_, group) in self.slots() {
            let [first, second, third] = group.n_buckets.map(usize::from);
            let names =
                |buckets: &[super::settle::Bucket<P>]| buckets.iter().map(|bucket| bucket.names.len()).sum::<usize>();
            stats.n_groups += 1;
            for (level, n) in [first, second, third].into_iter().enumerate() {
                stats.n_buckets[level] += n;
            }
            stats.n_names[0] += names(&group.buckets[..first]);
            stats.n_names[1] += names(&group.buckets[first..first + second]);
            stats.n_names[2] += names(&group.buckets[first + second..]);
            stats.n_stashed += group.stash.len();
        }
        stats
    }

    /// Heap memory of the table, in bytes.
    pub fn heap_bytes(&self) -> usize {
        let groups: usize = self.groups.iter().flatten().map(Group::heap_bytes).sum();
        groups + self.groups.capacity() * size_of::<Option<Group<P>>>() + self.directory.capacity() * 4
    }
}

/// Figures of the control half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Groups.
    pub n_groups: usize,
    /// Buckets of each level.
    pub n_buckets: [usize; LEVELS],
    /// Names that the buckets of each level keep.
    pub n_names: [usize; LEVELS],
    /// Names in stashes.
    pub n_stashed: usize,
}

/// Why stored parts make no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Groups overlap, or leave a gap.
    #[error("the stored groups do not cover all digests exactly once: restore the store from a backup")]
    Directory,
    /// A group's buckets are not what a group can have.
    #[error("group {prefix:#x}/{depth} has no such number of buckets: restore the store from a backup")]
    OutOfRange {
        /// Prefix of the group.
        prefix: u32,
        /// Bits of the prefix.
        depth: u8,
    },
    /// The stored names have no solution under the stored tweaks.
    #[error(
        "the {n_names} stored names of group {prefix:#x}/{depth} do not fit its tweaks (at most {MAX_STASH} may be left \
         over): restore the store from a backup"
    )]
    NoSolution {
        /// Prefix of the group.
        prefix: u32,
        /// Bits of the prefix.
        depth: u8,
        /// Names found for it.
        n_names: usize,
    },
}

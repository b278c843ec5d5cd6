//! The shared skeleton: every name of a table, in groups that are solved once for all switches of a network.
//!
//! The skeleton determines which cells make up the value of a name. It does not store the values: each switch has a
//! [`LineView`] for those. A mutation returns a [`Change`], from which each view derives its own update message.
//!
//! Cost: 24 bytes per name with 8-bit values: 12 for digest and payload, 8 for its row of the solution, and the rest
//! because every bucket has memory for as many names as it may ever keep. An insert, a change or a removal edits one
//! bucket, sometimes two or three; `fibula bench update --contestants latency` measures the time. A group is rebuilt when
//! its buckets are 5 % too full or 6 % too empty. A group of more than `Settings::max_group` names splits. Two neighbours
//! whose names fit in half of that merge.

use super::assign::{Bucket, Entry, Rules, Spare};
use super::before::Before;
use super::group::{Group, MAX_TRIES, NoRoom, NoSolution};
use super::layout::LEVELS;
use super::query::LineQuery;
use super::view::{LineView, image};
use super::{Settings, rows};
use crate::base::cells::value_mask;
use crate::base::crowd::{Crowd, Rule};
use crate::base::directory::{Directory, Plan, most_depth};
use crate::base::part::{Change, PartId, Payload};
use crate::base::partition;
use crate::hash::Digest;
use crate::traits::{InsertError, Replicated, RestoreError, Row, Skeleton};

/// A batch with at least this many changes per group (on average over all groups) rebuilds groups and sends them whole.
/// A build costs 80 ns for every name of a group of thousands, and 8 KB. A single insert costs about 3 us and 64 bytes.
const BULK: usize = 120;
/// The same threshold where only time counts, and not the length of messages.
const BULK_ALONE: usize = 100;

/// A group that may not split any more should have the names of at most this many groups, or it takes long to build.
const MOST_GROUPS: usize = 4;

/// The names of a table in groups of buckets.
#[derive(Clone)]
pub struct LineSkeleton<P: Payload = u32> {
    settings: Settings,
    rules: Rules,
    groups: Directory<Group<P>>,
    n_names: usize,
    /// What the latest mutation changed in a group that it edited.
    before: Before<P>,
}

impl<P: Payload> LineSkeleton<P> {
    /// The skeleton of `entries`, and the result of `each` for every group, in the order of digests.
    fn build_with<T: Send>(
        settings: &Settings,
        entries: &[(Digest, P)],
        threads: usize,
        each: impl Fn(&Group<P>) -> T + Sync,
    ) -> Result<(Self, Vec<T>), InsertError> {
        if entries.len() > settings.max_names {
            return Err(InsertError::TooManyNames { max: settings.max_names });
        }
        // Half way between the sizes at which groups split and merge.
        let depth = partition::depth(entries.len(), settings.max_group() * 2 / 3);
        let rules = Rules::new(settings);
        let entry = |digest: Digest, payload| Entry { digest: digest.0, payload };
        let most = most_depth(entries.len(), settings.max_group() / 4);
        let solved = partition::solve(entries, depth, threads, entry, |prefix, names, ()| {
            let mut made = Vec::with_capacity(1);
            let part = (PartId { prefix, depth }, 0, most);
            Self::build_or_split(settings, rules, part, names, &mut Spare::new(), &mut |group| {
                let value = each(&group);
                made.push((group, value));
            })?;
            Ok(made)
        })?;
        let (groups, made) = solved.into_iter().flatten().unzip();
        Ok((Self::assemble(settings, groups), made))
    }

    /// Builds the group `id`. Where it has too many names, builds groups of longer prefixes instead, up to `most` bits.
    fn build_or_split(
        settings: &Settings,
        rules: Rules,
        (id, version, most): (PartId, u64, u8),
        names: Vec<Entry<P>>,
        spare: &mut Spare<P>,
        done: &mut impl FnMut(Group<P>),
    ) -> Result<(), InsertError> {
        if names.len() > settings.max_group() && id.depth < most {
            let (right, left) = names.into_iter().partition(|name: &Entry<P>| id.next_bit(name.digest));
            Self::build_or_split(settings, rules, (id.half(0), version, most), left, spare, done)?;
            return Self::build_or_split(settings, rules, (id.half(1), version, most), right, spare, done);
        }
        let n_names = names.len();
        match Group::build(rules, id, version, &names, spare) {
            Ok(group) => {
                done(group);
                Ok(())
            }
            Err(NoSolution { duplicate: Some(digest) }) => Err(InsertError::DuplicateDigest { digest }),
            Err(NoSolution { duplicate: None }) if n_names > settings.max_group() => {
                Err(InsertError::Crowded { part: id, n_names })
            }
            Err(NoSolution { duplicate: None }) => Err(InsertError::Unsolvable { n_names, tries: MAX_TRIES }),
        }
    }

    /// The skeleton of groups that cover all digests.
    pub(super) fn assemble(settings: &Settings, groups: Vec<Group<P>>) -> Self {
        let n_names = groups.iter().map(|group| group.n_names).sum();
        let (settings, rules) = (settings.clone(), Rules::new(settings));
        Self { settings, rules, groups: Directory::of(groups), n_names, before: Before::new() }
    }

    /// The neighbour that the group in `slot` should merge with: both are small, and differ in the last bit of their
    /// prefixes.
    fn mergeable(&self, slot: u32) -> Option<u32> {
        let (neighbour, other) = self.groups.neighbour(slot)?;
        (self.group(slot).n_names + other.n_names < self.settings.max_group() / 2).then_some(neighbour)
    }

    /// Rebuilds the group in one slot, or merges those in two. The names in `extra` are added; none of them is in a
    /// group.
    fn rebuild(&mut self, slots: &[u32], extra: &[Entry<P>]) -> Result<Change, InsertError> {
        let mut names =
            Vec::with_capacity(slots.iter().map(|&slot| self.group(slot).n_names).sum::<usize>() + extra.len());
        slots.iter().for_each(|&slot| self.group(slot).append_names(&mut names));
        names.extend_from_slice(extra);
        let rules = if extra.is_empty() { self.rules } else { self.rules.growing() };
        let mut spare = std::mem::replace(&mut self.before.spare, Spare::new());
        let plan = self.plan(rules, slots, names, self.n_names + extra.len(), &mut spare);
        self.before.spare = spare;
        let plan = plan?;
        self.n_names += extra.len();
        for &slot in slots {
            self.before.spare.add(std::mem::take(&mut self.groups.part_mut(slot).buckets));
        }
        Ok(self.groups.replace(vec![plan]))
    }

    /// Builds the groups of `names` that can replace those in `slots`, in a table of `n_names`. The old groups stay as
    /// they are.
    fn plan(
        &self,
        rules: Rules,
        slots: &[u32],
        names: Vec<Entry<P>>,
        n_names: usize,
        spare: &mut Spare<P>,
    ) -> Result<Plan<Group<P>>, InsertError> {
        let most = most_depth(n_names, self.settings.max_group() / 4);
        let joined = (self.groups.joined(slots), self.groups.next_version(slots), most);
        let mut parts = Vec::with_capacity(1);
        Self::build_or_split(&self.settings, rules, joined, names, spare, &mut |group| parts.push(group))?;
        Ok(Plan { slots: slots.to_vec(), parts })
    }

    pub(super) fn group(&self, slot: u32) -> &Group<P> {
        self.groups.part(slot)
    }

    /// The groups, each in its slot.
    pub(super) fn groups(&self) -> &Directory<Group<P>> {
        &self.groups
    }

    /// What the latest mutation changed in a group that it edited, as it was.
    pub(super) fn before(&self) -> &Before<P> {
        &self.before
    }

    /// How many names are on each level.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for (_, group) in self.groups.iter() {
            stats.n_groups += 1;
            stats.n_stashed += group.stash.len();
            let mut buckets = group.buckets.iter();
            for (level, &n) in group.n_buckets.iter().enumerate() {
                let of_level = buckets.by_ref().take(n.into());
                stats.n_buckets[level] += usize::from(n);
                stats.n_names[level] += of_level.map(|bucket: &Bucket<P>| bucket.names.len()).sum::<usize>();
            }
        }
        stats
    }
}

impl<P: Payload> Skeleton for LineSkeleton<P> {
    type Key = Digest;
    type Payload = P;
    type Query = LineQuery;
    type View = LineView;

    fn build(settings: &Settings, entries: &[(Digest, P)], threads: usize) -> Result<Self, InsertError> {
        Ok(Self::build_with(settings, entries, threads, |_| ())?.0)
    }

    fn build_filled(
        settings: &Settings,
        entries: &[(Digest, P)],
        threads: usize,
        value: impl Fn(P) -> u64 + Sync,
    ) -> Result<(Self, LineView, LineQuery), InsertError> {
        // The cells of a group are filled while its names are in the cache.
        let (skeleton, images) = Self::build_with(settings, entries, threads, |group| image(settings, group, &value))?;
        let query = LineQuery::from_own(settings, &images);
        let view = LineView::of_images(&skeleton, &images);
        Ok((skeleton, view, query))
    }

    fn restore(settings: &Settings, rows: &[Row], entries: &[(Digest, P)]) -> Result<Self, RestoreError> {
        rows::restore(settings, rows, entries)
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn check(settings: &Settings, _: Digest, value: u64) -> Result<(), InsertError> {
        let value_bits = settings.value_bits;
        if value > value_mask(value_bits) {
            return Err(InsertError::ValueTooWide { value, value_bits });
        }
        Ok(())
    }

    fn insert(&mut self, digest: Digest, payload: P) -> Result<Change, InsertError> {
        let slot = self.groups.slot(digest);
        let (rules, max) = (self.rules, self.settings.max_names);
        self.before.clear();
        let group = self.groups.part_mut(slot);
        if let Some(spot) = group.find(digest.0) {
            if { group.entry(spot).payload } == payload {
                return Ok(Change::None);
            }
            group.version += 1;
            group.alter(spot, payload, &mut self.before);
            return Ok(Change::Part { slot });
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
        Ok(Change::Part { slot })
    }

    /// Rebuilds every group that one of the names belongs to. After an error the skeleton is unchanged.
    fn insert_batch(&mut self, entries: &[(Digest, P)]) -> Result<Change, InsertError> {
        let n_after = self.n_names + entries.len();
        let (plans, added) = self.groups.plan_batch(entries, |slot, group, entries| {
            let mut names = Vec::with_capacity(group.n_names + entries.len());
            group.append_names(&mut names);
            names.sort_unstable_by_key(|name| name.digest);
            let n_old = names.len();
            for &(digest, payload) in entries {
                match names[..n_old].binary_search_by_key(&digest.0, |name| name.digest) {
                    Ok(at) => names[at].payload = payload,
                    Err(_) => names.push(Entry { digest: digest.0, payload }),
                }
            }
            let added = names.len() - n_old;
            Ok((self.plan(self.rules, &[slot], names, n_after, &mut Spare::new())?, added))
        })?;
        let max = self.settings.max_names;
        if self.n_names + added > max {
            return Err(InsertError::TooManyNames { max });
        }
        self.n_names += added;
        Ok(self.groups.replace(plans))
    }

    fn crowds(&self, digests: &[Digest]) -> Vec<Crowd> {
        let few = self.settings.max_group();
        let most_depth = most_depth(self.n_names + digests.len(), few / 4);
        let rule = Rule { few, most_depth, deeper: None, max: MOST_GROUPS * few };
        let names = |group: &Group<P>, digests: &mut Vec<u64>| {
            let mut names = Vec::with_capacity(group.n_names);
            group.append_names(&mut names);
            digests.extend(names.iter().map(|name| name.digest));
        };
        self.groups.crowds(digests, rule, |group| group.n_names, names)
    }

    /// A removed name is an alien at once: its answer is arbitrary.
    fn remove(&mut self, digest: Digest) -> Change {
        let slot = self.groups.slot(digest);
        let rules = self.rules;
        self.before.clear();
        let group = self.groups.part_mut(slot);
        let Some(spot) = group.find(digest.0) else { return Change::None };
        group.version += 1;
        self.n_names -= 1;
        group.remove(rules, spot, &mut self.before);
        if rules.load.is_sparse(group.n_names, group.n_buckets[0].into()) {
            let slots = [Some(slot), self.mergeable(slot)];
            // The build may fail. Then the group stays as it is, and the next removal tries again.
            if let Ok(change) = self.rebuild(&slots.into_iter().flatten().collect::<Vec<_>>(), &[]) {
                return change;
            }
        }
        Change::Part { slot }
    }

    fn touch(&mut self) -> Change {
        self.groups.touch()
    }

    fn get(&self, digest: Digest) -> Option<P> {
        let group = self.group(self.groups.slot(digest));
        Some(group.entry(group.find(digest.0)?).payload)
    }

    fn must_drop(&self, _: Digest) -> bool {
        false
    }

    fn len(&self) -> usize {
        self.n_names
    }

    fn is_bulk(&self, n_changes: usize) -> bool {
        n_changes >= BULK * self.groups.n_parts()
    }

    fn is_bulk_alone(&self, n_changes: usize) -> bool {
        n_changes > BULK_ALONE * self.groups.n_parts()
    }

    fn part_id(&self, slot: u32) -> PartId {
        self.group(slot).id
    }

    fn take_rows(&mut self, slots: &[u32], gone: &[PartId]) -> Vec<Row> {
        let changed = slots.iter().map(|&slot| rows::encode(self.group(slot)));
        gone.iter().map(|&id| Row { key: id.to_key(), value: None }).chain(changed).collect()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(self.groups.iter().map(|(_, group)| rows::encode(group)))
    }

    fn heap_bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(|(_, group)| group.heap_bytes()).sum();
        groups + self.groups.heap_bytes() + self.before.spare.heap_bytes()
    }
}

/// Statistics of the control half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Groups.
    pub n_groups: usize,
    /// Buckets of each level.
    pub n_buckets: [usize; LEVELS],
    /// Names in the buckets of each level.
    pub n_names: [usize; LEVELS],
    /// Names in stashes.
    pub n_stashed: usize,
}

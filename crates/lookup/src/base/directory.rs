//! Parts behind a directory of digest prefixes. This is extendible hashing with parts in place of buckets.
//!
//! The directory looks at the first `depth` bits of a digest. A part with a shorter prefix is at every entry that
//! begins with that prefix. Parts split and merge by being replaced: [`Directory::replace`]. A part keeps its *slot*, a
//! small number, until it is replaced.
//!
//! **Depth.** [`most_depth`] bounds it by what the number of names explains. Digests are random under a secret key, so
//! parts never get there by chance; names that were chosen with the key would otherwise make the directory as large as
//! it can be. Parts that may not split any more grow. When the deepest parts are gone, the directory is halved again.
//!
//! Cost: 4 bytes per entry. A lookup is a shift and two loads.
//! Limits: [`MAX_DEPTH`] bits.

use super::part::{Change, HeldPart, MAX_DEPTH, PartId, prefix_of};
use crate::hash::Digest;
use crate::traits::InsertError;

/// What a directory refers to.
pub(crate) trait Part {
    /// Which names belong to it.
    fn id(&self) -> PartId;
    /// Counts its changes.
    fn version(&self) -> u64;
    fn set_version(&mut self, version: u64);
}

/// An entry that leads nowhere.
const NOWHERE: u32 = u32::MAX;

/// Bits beyond those at which parts of random digests have as few names as they may.
const SPARE_DEPTH: u8 = 2;

/// The most bits that a directory of `n_names` looks at, where parts with fewer than `least` names merge.
///
/// So it has at most 8 entries for every `least` names. A part with a prefix of this length has `least / 4` names on
/// average: that it has several times `least` by chance is as good as impossible (Chernoff: below 2^-1000 for 12 times
/// 250).
pub(crate) fn most_depth(n_names: usize, least: usize) -> u8 {
    let explained = n_names.div_ceil(least.max(1)).next_power_of_two().trailing_zeros() as u8;
    (explained + SPARE_DEPTH).min(MAX_DEPTH)
}

/// Parts by the first bits of digests.
#[derive(Clone)]
pub(crate) struct Directory<P> {
    depth: u8,
    /// Parts by the length of their prefixes.
    n_at_depth: [u32; MAX_DEPTH as usize + 1],
    /// The slot of the part for every prefix of `depth` bits.
    entries: Vec<u32>,
    /// By slot.
    parts: Vec<Option<P>>,
    free: Vec<u32>,
}

/// New parts, and the slots of the parts that they are to replace.
pub(crate) struct Plan<P> {
    pub(crate) slots: Vec<u32>,
    pub(crate) parts: Vec<P>,
}

impl<P: Part> Directory<P> {
    /// A directory without parts.
    pub(crate) fn empty() -> Self {
        Self::looking_at(0)
    }

    fn looking_at(depth: u8) -> Self {
        let (entries, n_at_depth) = (vec![NOWHERE; 1 << depth], [0; MAX_DEPTH as usize + 1]);
        Self { depth, n_at_depth, entries, parts: Vec::new(), free: Vec::new() }
    }

    /// A directory of parts that cover all digests once.
    pub(crate) fn of(parts: Vec<P>) -> Self {
        let depth = parts.iter().map(|part| part.id().depth).max().unwrap_or(0);
        let mut directory = Self::looking_at(depth);
        for part in parts {
            directory.put(part);
        }
        debug_assert!(!directory.entries.contains(&NOWHERE), "the parts cover all digests");
        directory
    }

    /// Bits of a digest that the directory looks at.
    #[inline]
    pub(crate) fn depth(&self) -> u8 {
        self.depth
    }

    /// The slot of a digest's part.
    #[inline]
    pub(crate) fn slot(&self, digest: Digest) -> u32 {
        self.entries[prefix_of(digest.0, self.depth)]
    }

    #[inline]
    pub(crate) fn part(&self, slot: u32) -> &P {
        self.parts[slot as usize].as_ref().expect("a slot in use")
    }

    #[inline]
    pub(crate) fn part_mut(&mut self, slot: u32) -> &mut P {
        self.parts[slot as usize].as_mut().expect("a slot in use")
    }

    /// Slots in use, each with its part, in order of digests.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &P)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let slot = self.entries.get(at).copied().filter(|&slot| slot != NOWHERE)?;
            let part = self.part(slot);
            at = part.id().entries(self.depth).end;
            Some((slot, part))
        })
    }

    /// Parts.
    pub(crate) fn n_parts(&self) -> usize {
        self.parts.len() - self.free.len()
    }

    /// The part that holds the first digest of `id`, with its slot. `None` if `id` is longer than the directory looks.
    pub(crate) fn find(&self, id: PartId) -> Option<(u32, &P)> {
        let is_here = id.depth <= self.depth && id.prefix >> id.depth == 0;
        let slot = is_here.then(|| self.entries[id.entries(self.depth).start]).filter(|&slot| slot != NOWHERE)?;
        Some((slot, self.part(slot)))
    }

    /// The slots of the parts that share digests with `id`. A slot may come more than once.
    pub(crate) fn slots_of(&self, id: PartId) -> impl Iterator<Item = u32> {
        let depth = self.depth.max(id.depth);
        let (entries, down) = (id.entries(depth), depth - self.depth);
        let slots = self.entries[entries.start >> down..=(entries.end - 1) >> down].iter().copied();
        slots.filter(|&slot| slot != NOWHERE)
    }

    /// The newest version of the parts that share digests with `id`.
    pub(crate) fn newest(&self, id: PartId) -> Option<u64> {
        self.slots_of(id).map(|slot| self.part(slot).version()).max()
    }

    /// Whether `ids` together cover whole parts, each digest once. If there are no parts yet, they must cover all
    /// digests.
    pub(crate) fn is_covered(&self, ids: &[PartId]) -> bool {
        let depth = ids.iter().map(|id| id.depth).max().unwrap_or(0).max(self.depth);
        let mut ranges: Vec<_> = ids.iter().map(|id| id.entries(depth)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        // Whether a part begins at this entry, or the last one ends there.
        let is_border = |at: usize| {
            let slot = self.entries.get(at >> (depth - self.depth)).copied().filter(|&slot| slot != NOWHERE);
            slot.map_or(at == 0 || at == 1 << depth, |slot| self.part(slot).id().entries(depth).start == at)
        };
        ranges.windows(2).all(|two| two[0].end <= two[1].start)
            && ranges
                .chunk_by(|a, b| a.end == b.start)
                .all(|run| is_border(run[0].start) && is_border(run[run.len() - 1].end))
            && !(ids.is_empty() && self.parts.is_empty())
    }

    /// The part whose prefix differs from that of `slot` in the last bit only.
    pub(crate) fn neighbour(&self, slot: u32) -> Option<(u32, &P)> {
        let id = self.part(slot).id();
        if id.depth == 0 {
            return None;
        }
        let other = PartId { prefix: id.prefix ^ 1, ..id };
        let neighbour = self.entries[other.entries(self.depth).start];
        Some((neighbour, self.part(neighbour))).filter(|(_, part)| part.id() == other)
    }

    /// The id of the part that has the names of `slots`: one part, or a [chain](Directory::chain).
    pub(crate) fn joined(&self, slots: &[u32]) -> PartId {
        let (first, up) = (self.part(slots[0]).id(), slots.len() as u8 - 1);
        PartId { prefix: first.prefix >> up, depth: first.depth - up }
    }

    /// The version of a part that replaces those in `slots`.
    pub(crate) fn next_version(&self, slots: &[u32]) -> u64 {
        slots.iter().map(|&slot| self.part(slot).version() + 1).max().unwrap_or(1)
    }

    /// Gives every part a new version, so that views whose values changed can send them all.
    pub(crate) fn touch(&mut self) -> Change {
        let slots: Vec<u32> = self.iter().map(|(slot, _)| slot).collect();
        for &slot in &slots {
            let part = self.part_mut(slot);
            part.set_version(part.version() + 1);
        }
        Change::Parts { slots, replaced: Vec::new() }
    }

    /// Replaces parts by others that have the same names.
    pub(crate) fn replace(&mut self, plans: Vec<Plan<P>>) -> Change {
        if plans.is_empty() {
            return Change::None;
        }
        let (mut slots, mut replaced) = (Vec::new(), Vec::new());
        for Plan { slots: old, parts } in plans {
            for slot in old {
                replaced.push(self.take(slot).id());
            }
            for part in parts {
                replaced.retain(|&id| id != part.id());
                slots.push(self.put(part));
            }
        }
        self.shrink();
        Change::Parts { slots, replaced }
    }

    /// Removes a part. Entries that still lead to its slot must be given to another part.
    pub(crate) fn take(&mut self, slot: u32) -> P {
        self.free.push(slot);
        let part = self.parts[slot as usize].take().expect("a slot in use");
        self.n_at_depth[part.id().depth as usize] -= 1;
        part
    }

    /// Adds a part, and points every entry of its names to it. Returns its slot.
    pub(crate) fn put(&mut self, part: P) -> u32 {
        let id = part.id();
        self.deepen(id.depth);
        self.n_at_depth[id.depth as usize] += 1;
        let slot = self.free.pop().unwrap_or(self.parts.len() as u32);
        if slot as usize == self.parts.len() {
            self.parts.push(None);
        }
        self.parts[slot as usize] = Some(part);
        self.entries[id.entries(self.depth)].fill(slot);
        slot
    }

    /// Doubles the directory until it looks at `depth` bits.
    pub(crate) fn deepen(&mut self, depth: u8) {
        if depth > self.depth {
            let times = 1 << (depth - self.depth);
            self.entries = self.entries.iter().flat_map(|&slot| std::iter::repeat_n(slot, times)).collect();
            self.depth = depth;
        }
    }

    /// The longest prefix of a part.
    pub(crate) fn deepest(&self) -> u8 {
        self.n_at_depth.iter().rposition(|&n| n > 0).unwrap_or(0) as u8
    }

    /// Halves the directory until it looks at no more bits than its parts need.
    pub(crate) fn shrink(&mut self) {
        let deepest = self.deepest();
        if deepest < self.depth {
            self.entries = self.entries.iter().copied().step_by(1 << (self.depth - deepest)).collect();
            self.depth = deepest;
        }
    }

    /// The slots of parts that can be merged into one with the part in `slot`, from the inside out and with it: each
    /// differs from those before it together in the last bit of the prefix. `is_small` gets the names so far, and a part.
    pub(crate) fn chain(&self, slot: u32, mut is_small: impl FnMut(&P) -> bool) -> Vec<u32> {
        let mut slots = vec![slot];
        let mut id = self.part(slot).id();
        if !is_small(self.part(slot)) {
            return slots;
        }
        while id.depth > 0 {
            let sibling = PartId { prefix: id.prefix ^ 1, ..id };
            let Some((other, _)) = self.find(sibling).filter(|(_, part)| part.id() == sibling && is_small(part)) else {
                break;
            };
            slots.push(other);
            id = PartId { prefix: id.prefix >> 1, depth: id.depth - 1 };
        }
        slots
    }

    /// Plans for entries that belong to several parts. `plan` gets a part and its entries in the order of digests, and
    /// returns the parts that replace it and a count. Of equal digests only the last entry is passed on. The counts are
    /// added up.
    pub(crate) fn plan_batch<T: Copy>(
        &self,
        entries: &[(Digest, T)],
        mut plan: impl FnMut(u32, &P, &[(Digest, T)]) -> Result<(Plan<P>, usize), InsertError>,
    ) -> Result<(Vec<Plan<P>>, usize), InsertError> {
        let mut sorted = entries.to_vec();
        sorted.sort_by_key(|entry| entry.0);
        let (mut plans, mut count) = (Vec::new(), 0);
        let mut last_of_each = Vec::new();
        for list in sorted.chunk_by(|a, b| self.slot(a.0) == self.slot(b.0)) {
            last_of_each.clear();
            last_of_each.extend(list.chunk_by(|a, b| a.0 == b.0).filter_map(<[_]>::last));
            let slot = self.slot(list[0].0);
            let (planned, n) = plan(slot, self.part(slot), &last_of_each)?;
            plans.push(planned);
            count += n;
        }
        Ok((plans, count))
    }

    /// Heap memory of the directory and of the parts, in bytes, without what the parts own.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Option<P>>() + self.entries.capacity() * 4
    }
}

/// The depth of the deepest of `ids`, and for every prefix of that length the index of the id that it belongs to. `ids`
/// are in the order of digests. `None` if they do not cover all digests exactly once.
pub(crate) fn owners(ids: &[PartId]) -> Option<(u8, Vec<usize>)> {
    let depth = ids.iter().map(|id| id.depth).max().filter(|&depth| depth <= MAX_DEPTH)?;
    let mut owners = Vec::with_capacity(1 << depth);
    for (index, id) in ids.iter().enumerate() {
        if id.prefix >> id.depth != 0 || id.entries(depth).start != owners.len() {
            return None;
        }
        owners.resize(id.entries(depth).end, index);
    }
    (owners.len() == 1 << depth).then_some((depth, owners))
}

/// Version and digest of every part on the other side of the seam, as far as this side knows: 16 bytes per part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    /// Version and digest, by slot.
    by_slot: Vec<(u64, u64)>,
}

impl Sent {
    /// Version and digest last sent for the part in `slot`, or zeros if nothing was sent.
    pub(crate) fn get(&self, slot: u32) -> (u64, u64) {
        self.by_slot.get(slot as usize).copied().unwrap_or_default()
    }

    /// Notes that the other side has or will have this version and digest of the part.
    pub(crate) fn note(&mut self, slot: u32, version: u64, digest: u64) {
        if self.by_slot.len() <= slot as usize {
            self.by_slot.resize(slot as usize + 1, (0, 0));
        }
        self.by_slot[slot as usize] = (version, digest);
    }

    /// Version and digest of every part at a switch that is up to date, with the slots, in the order of digests. The
    /// version is that of the last message. Later versions changed no word of this switch.
    pub(crate) fn held<P: Part>(&self, directory: &Directory<P>) -> Vec<(u32, HeldPart)> {
        let held = |(slot, part): (u32, &P)| {
            let (version, digest) = self.get(slot);
            (slot, HeldPart { id: part.id(), version, digest })
        };
        directory.iter().map(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name(PartId);

    impl Part for Name {
        fn id(&self) -> PartId {
            self.0
        }

        fn version(&self) -> u64 {
            0
        }

        fn set_version(&mut self, _: u64) {}
    }

    /// The first three bits of the digests of a part.
    fn leaves(id: PartId) -> std::ops::Range<usize> {
        id.entries(3)
    }

    #[test]
    fn depth_is_bounded_by_the_number_of_names() {
        assert_eq!([0, 1, 1000, 1001, 100_000, usize::MAX].map(|n| most_depth(n, 1000)), [2, 2, 2, 3, 9, MAX_DEPTH]);
    }

    #[test]
    fn directory_is_halved_when_its_deepest_parts_are_gone() {
        let id = |prefix, depth| PartId { prefix, depth };
        let mut directory = Directory::of(vec![Name(id(0, 1)), Name(id(2, 2)), Name(id(6, 3)), Name(id(7, 3))]);
        let slot = directory.find(id(7, 3)).unwrap().0;
        assert_eq!(directory.chain(slot, |_| true).len(), 4, "all of them in one");
        let slots = directory.chain(slot, |part| part.0.depth == 3);
        assert_eq!((directory.joined(&slots), directory.depth()), (id(3, 2), 3));
        let _ = directory.replace(vec![Plan { slots, parts: vec![Name(id(3, 2))] }]);
        assert_eq!(directory.depth(), 2);
        let found: Vec<PartId> = (0..4).map(|prefix| directory.find(id(prefix, 2)).unwrap().1.0).collect();
        assert_eq!(found, [id(0, 1), id(0, 1), id(2, 2), id(3, 2)]);
    }

    #[test]
    fn ids_cover_whole_parts_when_every_part_is_covered_all_or_not_at_all() {
        let ids: Vec<PartId> =
            (0..=3).flat_map(|depth| (0..1 << depth).map(move |prefix| PartId { prefix, depth })).collect();
        let id = |prefix, depth| PartId { prefix, depth };
        let held: [&[PartId]; 4] =
            [&[], &[PartId::WHOLE], &[id(0, 2), id(1, 2), id(1, 1)], &[id(0, 1), id(4, 3), id(5, 3), id(3, 2)]];
        for held in held {
            let mut directory = Directory::empty();
            for &id in held {
                directory.put(Name(id));
            }
            // Every set of ids.
            for set in 0..1u32 << ids.len() {
                let chosen: Vec<PartId> =
                    (0..ids.len()).rev().filter(|at| set >> at & 1 != 0).map(|at| ids[at]).collect();
                let mut times = [0; 8];
                chosen.iter().flat_map(|&id| leaves(id)).for_each(|leaf| times[leaf] += 1);
                let whole = |times: &[i32]| times.iter().all(|&n| n == times[0]);
                let expected = times.iter().all(|&n| n <= 1)
                    && if held.is_empty() { times == [1; 8] } else { held.iter().all(|&id| whole(&times[leaves(id)])) };
                assert_eq!(directory.is_covered(&chosen), expected, "{chosen:?} over {held:?}");
            }
        }
    }
}

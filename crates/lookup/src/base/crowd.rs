//! Parts with far more names than random digests put into one.
//!
//! A part splits when it has too many names, down to the length of prefix that the number of names explains
//! ([`most_depth`](super::directory::most_depth)). Random digests leave no part above its size then. So a part that is
//! there and may not split has names that someone chose, and has room for a limited number of them. Who may use that room is
//! up to the caller, who knows whose names they are.

use super::directory::{Directory, Part};
use super::part::{MAX_DEPTH, PartId};
use crate::hash::Digest;

/// A part that is crowded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// The part.
    pub part: PartId,
    /// Its names.
    pub n_names: usize,
    /// The most names that it can surely have.
    pub max: usize,
}

/// When the parts of a structure are crowded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// A part with more names splits, if it may.
    pub(crate) few: usize,
    /// The longest prefix of a part.
    pub(crate) most_depth: u8,
    /// A part with more names than the first may have a prefix that is longer by the second.
    pub(crate) deeper: Option<(usize, u8)>,
    /// The most names that a part can surely have.
    pub(crate) max: usize,
}

impl Rule {
    /// Whether this many names with one prefix of `depth` bits are a part that does not split.
    fn is_part(&self, n_names: usize, depth: u8) -> bool {
        let more = self.deeper.filter(|&(many, _)| n_names > many).map_or(0, |(_, more)| more);
        n_names <= self.few || depth >= (self.most_depth + more).min(MAX_DEPTH)
    }

    /// The crowded parts of the names with these digests, which are sorted and have the prefix `id`.
    fn crowds(&self, id: PartId, digests: &[u64], found: &mut Vec<Crowd>) {
        let n_names = digests.len();
        if !self.is_part(n_names, id.depth) {
            let (left, right) = digests.split_at(digests.partition_point(|&digest| !id.next_bit(digest)));
            self.crowds(id.half(0), left, found);
            self.crowds(id.half(1), right, found);
        } else if n_names > self.few {
            found.push(Crowd { part: id, n_names, max: self.max });
        }
    }
}

impl<P: Part> Directory<P> {
    /// The parts that would be crowded if names with these digests, which are not in the table, came into it. `n_names`
    /// counts the names of a part, `digests_of` appends their digests.
    pub(crate) fn crowds(
        &self,
        digests: &[Digest],
        rule: Rule,
        n_names: impl Fn(&P) -> usize,
        digests_of: impl Fn(&P, &mut Vec<u64>),
    ) -> Vec<Crowd> {
        let (mut found, mut slots) = (Vec::new(), Vec::new());
        match digests {
            [] => {}
            [digest] => {
                let slot = self.slot(*digest);
                let part = self.part(slot);
                let (id, n_names) = (part.id(), n_names(part) + 1);
                match rule.is_part(n_names, id.depth) {
                    true if n_names > rule.few => found.push(Crowd { part: id, n_names, max: rule.max }),
                    true => {}
                    false => slots.push(slot),
                }
            }
            _ => {
                let mut n_new = std::collections::HashMap::<u32, usize>::new();
                digests.iter().for_each(|&digest| *n_new.entry(self.slot(digest)).or_default() += 1);
                let is_large = |&(slot, n): &(u32, usize)| n_names(self.part(slot)) + n > rule.few;
                slots.extend(n_new.into_iter().filter(is_large).map(|(slot, _)| slot));
                slots.sort_unstable();
            }
        }
        for slot in slots {
            let mut all: Vec<u64> = digests.iter().filter(|&&digest| self.slot(digest) == slot).map(|d| d.0).collect();
            digests_of(self.part(slot), &mut all);
            all.sort_unstable();
            rule.crowds(self.part(slot).id(), &all, &mut found);
        }
        found
    }
}

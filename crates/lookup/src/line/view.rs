//! What one switch's cells hold: a skeleton of names, with what each name means at that switch.
//!
//! The values of names come from a function of their payload, so that hundreds of switches share one skeleton and keep,
//! a group, only the digest of their cells and the last version sent. Cells are a pure function of (skeleton, values), so
//! a restarted controller derives the same.
//!
//! Cost: about 5 ns a name and switch for whole groups; an update paints what changed, as it was and as it is.

use super::group::Group;
use super::layout::Layout;
use super::lines::Lines;
use super::query::LineQuery;
use super::settle::{Bucket, Entry, Payload};
use super::update::{BucketsUpdate, GroupImage, LevelsUpdate, Update, bucket_prf, geometry_prf, stash_prf};
use super::{Settings, ShardId, paint};
use crate::hash::Digest;
use crate::othello::Change;

/// What the other side of the seam has of one group, as far as this side knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sent {
    version: u64,
    digest: u64,
}

/// One switch's view of a skeleton: 16 bytes a group.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// By slot of the skeleton.
    sent: Vec<Sent>,
}

impl View {
    /// The view of all names, and the query structure that it describes.
    ///
    /// `value` gives the value of a name's payload at this switch; it must fit into a cell.
    pub fn export<P: Payload>(lines: &Lines<P>, value: impl Fn(P) -> u64) -> (Self, LineQuery) {
        let (view, images) = Self::images(lines, value);
        (view, LineQuery::from_own(lines.settings(), &images))
    }

    /// As [`View::export`], with the groups of the query structure, in order.
    pub fn images<P: Payload>(lines: &Lines<P>, value: impl Fn(P) -> u64) -> (Self, Vec<GroupImage>) {
        let images: Vec<_> = lines.slots().map(|(_, group)| image(lines.settings(), group, &value)).collect();
        (Self::of_images(lines, &images), images)
    }

    /// A view of which the other side has `images`: the groups of the skeleton, in order.
    pub(super) fn of_images<P: Payload>(lines: &Lines<P>, images: &[GroupImage]) -> Self {
        let mut view = Self { sent: vec![Sent::default(); lines.slot_limit()] };
        for ((slot, _), image) in lines.slots().zip(images) {
            view.sent[slot as usize] = Sent { version: image.version, digest: image.digest };
        }
        view
    }

    /// Appends the update that brings this switch along after `change`, the latest mutation of `lines`.
    ///
    /// Where buckets changed but none of their cells at this switch, nothing is appended; new levels always are. `value` is the one that the
    /// view was made with.
    pub fn updates<P: Payload>(
        &mut self,
        lines: &Lines<P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update>,
    ) {
        match change {
            Change::None => {}
            Change::Cells { slot } => updates.extend(self.edit(lines, *slot, value)),
            Change::Shards { slots, .. } => {
                updates.push(Update::Groups(slots.iter().map(|&slot| self.image(lines, slot, &value)).collect()));
            }
        }
    }

    /// What the latest mutation changed in a group that it edited.
    fn edit<P: Payload>(&mut self, lines: &Lines<P>, slot: u32, value: impl Fn(P) -> u64) -> Option<Update> {
        let (group, before, seed, layout) =
            (lines.group(slot), lines.before(), lines.settings().seed, lines.settings().layout());
        let n_words = layout.n_words();
        let sent = &mut self.sent[slot as usize];
        let (mut indices, mut words) = (Vec::new(), Vec::new());
        let (mut old, mut values) = (vec![0; n_words], Vec::new());
        for (index, bucket) in &before.buckets {
            old.fill(0);
            paint(layout, bucket, &value, &mut values, &mut old);
            let start = words.len();
            words.resize(start + n_words, 0);
            paint(layout, &group.buckets[*index], &value, &mut values, &mut words[start..]);
            if words[start..] == old {
                words.truncate(start);
                continue;
            }
            sent.digest ^= bucket_prf(seed, *index, &old) ^ bucket_prf(seed, *index, &words[start..]);
            indices.push(*index as u32);
        }
        let levels = before.levels.as_ref().map(|before| {
            let n_first = usize::from(group.n_buckets[0]);
            // What is above the first level has a share of the digest like a group's.
            let mut upper = |n_buckets, buckets: &[Bucket<P>], stash: &[Entry<P>]| {
                let mut words = vec![0; buckets.len() * n_words];
                let mut share = geometry_prf(seed, group.id, n_buckets);
                for (at, (bucket, words)) in buckets.iter().zip(words.chunks_exact_mut(n_words)).enumerate() {
                    paint(layout, bucket, &value, &mut values, words);
                    share ^= bucket_prf(seed, n_first + at, words);
                }
                let stash = stashed(stash, &value);
                share ^= stash.iter().fold(0, |sum, &(name, value)| sum ^ stash_prf(seed, name, value));
                (share, stash, words)
            };
            let (old, ..) = upper(before.n_buckets, &before.buckets, &before.stash);
            let (new, stash, words) = upper(group.n_buckets, &group.buckets[n_first..], &group.stash);
            sent.digest ^= old ^ new;
            (stash, words)
        });
        if indices.is_empty() && levels.is_none() {
            return None;
        }
        let from = std::mem::replace(&mut sent.version, group.version);
        let first = BucketsUpdate { id: group.id, from, to: group.version, digest: sent.digest, indices, words };
        let [_, second, third] = group.n_buckets;
        Some(match levels {
            None => Update::Buckets(first),
            Some((stash, words)) => Update::Levels(LevelsUpdate { first, n_upper: [second, third], stash, words }),
        })
    }

    /// The whole group in `slot` for this switch, noted as sent.
    pub fn image<P: Payload>(&mut self, lines: &Lines<P>, slot: u32, value: impl Fn(P) -> u64) -> GroupImage {
        let image = image(lines.settings(), lines.group(slot), value);
        if self.sent.len() < lines.slot_limit() {
            self.sent.resize(lines.slot_limit(), Sent::default());
        }
        self.sent[slot as usize] = Sent { version: image.version, digest: image.digest };
        image
    }

    /// What a switch that is up to date has of every group, in order of digests: (slot, group, version, digest). The
    /// version is that of the last message; later versions of the group changed no cell of this switch.
    pub fn held<'a, P: Payload>(&'a self, lines: &'a Lines<P>) -> impl Iterator<Item = (u32, ShardId, u64, u64)> + 'a {
        lines.slots().map(|(slot, group)| {
            // Should an undo leave a group that was never painted here: of it nothing was sent.
            let Sent { version, digest } = self.sent.get(slot as usize).copied().unwrap_or_default();
            (slot, group.id, version, digest)
        })
    }

    /// Notes that the switch has `version` of the group in `slot`: it reported so, with the digest that is due.
    pub fn set_version(&mut self, slot: u32, version: u64) {
        self.sent[slot as usize].version = version;
    }
}

/// Writes a bucket into words that are zero; `values` is room for its values.
fn paint<P: Payload>(
    layout: Layout,
    bucket: &Bucket<P>,
    value: impl Fn(P) -> u64,
    values: &mut Vec<u64>,
    words: &mut [u64],
) {
    values.clear();
    values.extend(bucket.names.iter().map(|name| value(name.payload)));
    paint::paint(layout, &bucket.solution, values, words);
    words[0] |= u64::from(bucket.threshold) << 8 | u64::from(bucket.tweak);
}

/// Names of a stash, as a switch has them.
fn stashed<P: Payload>(stash: &[Entry<P>], value: impl Fn(P) -> u64) -> Vec<(Digest, u64)> {
    stash.iter().map(|name| (Digest(name.digest), value(name.payload))).collect()
}

/// A whole group.
pub(super) fn image<P: Payload>(settings: &Settings, group: &Group<P>, value: impl Fn(P) -> u64) -> GroupImage {
    let layout = settings.layout();
    let n_words = layout.n_words();
    let (mut words, mut values) = (vec![0; group.buckets.len() * n_words], Vec::new());
    for (bucket, words) in group.buckets.iter().zip(words.chunks_exact_mut(n_words)) {
        paint(layout, bucket, &value, &mut values, words);
    }
    let stash = stashed(&group.stash, value);
    let (id, version, n_buckets) = (group.id, group.version, group.n_buckets);
    let image = GroupImage { id, version, n_buckets, digest: 0, stash, words };
    GroupImage { digest: image.prove(settings), ..image }
}

//! What the cells of one switch hold. They follow from a skeleton of names and from what each name means at that
//! switch.
//!
//! The value of a name is a function of its payload. So hundreds of switches share one skeleton, and a view keeps only
//! the digest of the cells of each group and the last version that was sent. Cells are a pure function of the skeleton
//! and the values, so a restarted controller derives the same cells.
//!
//! Cost: about 5 ns per name and switch for whole groups. An update fills each changed bucket twice, as it was and as
//! it is.

use super::assign::{Bucket, Entry};
use super::group::Group;
use super::layout::{Layout, MAX_WORDS};
use super::skeleton::LineSkeleton;
use super::update::{BucketsUpdate, GroupImage, LevelsUpdate, Update, bucket_prf, geometry_prf, stash_prf};
use super::{Settings, fill};
use crate::base::directory::Sent;
use crate::base::part::{Change, HeldPart, Payload};
use crate::hash::Digest;
use crate::traits::{InsertError, Skeleton, View};

/// The view of one switch: 16 bytes per group.
#[derive(Clone, Debug, Default)]
pub struct LineView {
    sent: Sent,
}

impl LineView {
    /// The view of a switch that holds `images`, which are the groups of the skeleton in order.
    pub(super) fn of_images<P: Payload>(skeleton: &LineSkeleton<P>, images: &[GroupImage]) -> Self {
        let mut sent = Sent::default();
        for ((slot, _), image) in skeleton.groups().iter().zip(images) {
            sent.note(slot, image.version, image.digest);
        }
        Self { sent }
    }

    /// The update for a group that the latest mutation edited.
    fn edit<P: Payload>(&mut self, skeleton: &LineSkeleton<P>, slot: u32, value: impl Fn(P) -> u64) -> Option<Update> {
        let (group, before) = (skeleton.group(slot), skeleton.before());
        let (seed, layout) = (skeleton.settings().seed, skeleton.settings().layout());
        let n_words = layout.n_words();
        let (from, mut digest) = self.sent.get(slot);
        let (mut indices, mut words) = (Vec::new(), Vec::new());
        let (mut old, mut values) = ([0; MAX_WORDS], Vec::new());
        let old = &mut old[..n_words];
        for (index, bucket) in &before.buckets {
            old.fill(0);
            fill_bucket(layout, bucket, &value, &mut values, old);
            let start = words.len();
            words.resize(start + n_words, 0);
            fill_bucket(layout, &group.buckets[*index], &value, &mut values, &mut words[start..]);
            if words[start..] == *old {
                words.truncate(start);
                continue;
            }
            digest ^= bucket_prf(seed, *index, old) ^ bucket_prf(seed, *index, &words[start..]);
            indices.push(*index as u32);
        }
        let levels = before.levels.as_ref().map(|before| {
            let n_first = usize::from(group.n_buckets[0]);
            // The upper levels contribute to the digest as a whole group does.
            let mut upper = |n_buckets, buckets: &[Bucket<P>], stash: &[Entry<P>]| {
                let mut words = vec![0; buckets.len() * n_words];
                let mut share = geometry_prf(seed, group.id, n_buckets);
                for (at, (bucket, words)) in buckets.iter().zip(words.chunks_exact_mut(n_words)).enumerate() {
                    fill_bucket(layout, bucket, &value, &mut values, words);
                    share ^= bucket_prf(seed, n_first + at, words);
                }
                let stash = stashed(stash, &value);
                share ^= stash.iter().fold(0, |sum, &(name, value)| sum ^ stash_prf(seed, name, value));
                (share, stash, words)
            };
            let (old, ..) = upper(before.n_buckets, &before.buckets, &before.stash);
            let (new, stash, words) = upper(group.n_buckets, &group.buckets[n_first..], &group.stash);
            digest ^= old ^ new;
            (stash, words)
        });
        if indices.is_empty() && levels.is_none() {
            return None;
        }
        self.sent.note(slot, group.version, digest);
        let first = BucketsUpdate { id: group.id, from, to: group.version, digest, indices, words };
        let [_, second, third] = group.n_buckets;
        Some(match levels {
            None => Update::Buckets(first),
            Some((stash, words)) => Update::Levels(LevelsUpdate { first, n_upper: [second, third], stash, words }),
        })
    }
}

impl<P: Payload> View<LineSkeleton<P>> for LineView {
    fn export(skeleton: &LineSkeleton<P>, value: impl Fn(P) -> u64) -> Result<(Self, Vec<GroupImage>), InsertError> {
        let images: Vec<_> =
            skeleton.groups().iter().map(|(_, group)| image(skeleton.settings(), group, &value)).collect();
        Ok((Self::of_images(skeleton, &images), images))
    }

    fn without_parts() -> Option<Self> {
        Some(Self::default())
    }

    /// Nothing is appended if buckets changed but none of their cells at this switch. New upper levels are always sent.
    fn updates(
        &mut self,
        skeleton: &LineSkeleton<P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update>,
    ) -> Result<(), InsertError> {
        match change {
            Change::None => {}
            Change::Part { slot } => updates.extend(self.edit(skeleton, *slot, value)),
            Change::Parts { slots, .. } => {
                let mut sent = |&slot: &u32| {
                    let image = image(skeleton.settings(), skeleton.group(slot), &value);
                    self.sent.note(slot, image.version, image.digest);
                    image
                };
                updates.push(Update::Groups(slots.iter().map(&mut sent).collect()));
            }
        }
        Ok(())
    }

    fn image(
        &self,
        skeleton: &LineSkeleton<P>,
        slot: u32,
        value: impl Fn(P) -> u64,
    ) -> Result<GroupImage, InsertError> {
        Ok(image(skeleton.settings(), skeleton.group(slot), value))
    }

    fn note(&mut self, _: &LineSkeleton<P>, slot: u32, image: &GroupImage) {
        self.sent.note(slot, image.version, image.digest);
    }

    fn held(&self, skeleton: &LineSkeleton<P>) -> Vec<(u32, HeldPart)> {
        self.sent.held(skeleton.groups())
    }

    fn set_version(&mut self, slot: u32, version: u64) {
        let (_, digest) = self.sent.get(slot);
        self.sent.note(slot, version, digest);
    }
}

/// Writes a bucket into words that are zero. `values` is scratch memory.
fn fill_bucket<P: Payload>(
    layout: Layout,
    bucket: &Bucket<P>,
    value: impl Fn(P) -> u64,
    values: &mut Vec<u64>,
    words: &mut [u64],
) {
    values.clear();
    values.extend(bucket.names.iter().map(|name| value(name.payload)));
    fill::fill_cells(layout, &bucket.solution, values, words);
    words[0] |= u64::from(bucket.threshold) << 8 | u64::from(bucket.tweak);
}

/// The names of a stash with their values at a switch.
fn stashed<P: Payload>(stash: &[Entry<P>], value: impl Fn(P) -> u64) -> Vec<(Digest, u64)> {
    stash.iter().map(|name| (Digest(name.digest), value(name.payload))).collect()
}

/// A whole group.
pub(super) fn image<P: Payload>(settings: &Settings, group: &Group<P>, value: impl Fn(P) -> u64) -> GroupImage {
    let layout = settings.layout();
    let n_words = layout.n_words();
    let (mut words, mut values) = (vec![0; group.buckets.len() * n_words], Vec::new());
    for (bucket, words) in group.buckets.iter().zip(words.chunks_exact_mut(n_words)) {
        fill_bucket(layout, bucket, &value, &mut values, words);
    }
    let stash = stashed(&group.stash, value);
    let (id, version, n_buckets) = (group.id, group.version, group.n_buckets);
    let image = GroupImage { id, version, n_buckets, digest: 0, stash, words };
    GroupImage { digest: image.prove(settings), ..image }
}

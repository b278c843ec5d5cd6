//! What a mutation changed in a group, as it was before: from it, each view derives what its switch must be told.
//!
//! A bucket is copied here before it is edited in place. The memory of the copies, and that of buckets that were replaced, is
//! used again, so that most mutations do not allocate.

use super::assign::{Bucket, Entry, Spare};
use super::layout::LEVELS;
use crate::base::part::Payload;

/// What the latest mutation of a group changed, as it was before.
#[derive(Clone)]
pub(super) struct Before<P: Payload> {
    /// Buckets with their numbers. Where the upper levels are new, only buckets of the first level.
    pub(super) buckets: Vec<(usize, Bucket<P>)>,
    /// The upper levels as they were, if they were rebuilt or the stash changed.
    pub(super) levels: Option<Levels<P>>,
    /// Memory for copies of buckets, and for new ones.
    pub(super) spare: Spare<P>,
}

/// The levels above the first, and the stash.
#[derive(Clone)]
pub(super) struct Levels<P: Payload> {
    pub(super) n_buckets: [u16; LEVELS],
    pub(super) buckets: Vec<Bucket<P>>,
    pub(super) stash: Vec<Entry<P>>,
}

impl<P: Payload> Before<P> {
    /// Nothing changed.
    pub(super) fn new() -> Self {
        Self { buckets: Vec::new(), levels: None, spare: Spare::new() }
    }

    pub(super) fn clear(&mut self) {
        self.spare.add(self.buckets.drain(..).map(|(_, bucket)| bucket));
        self.spare.add(self.levels.take().into_iter().flat_map(|levels| levels.buckets));
    }

    /// Notes a bucket that is about to change, unless it is noted already. Returns whether it was not.
    pub(super) fn note(&mut self, index: usize, bucket: &Bucket<P>) -> bool {
        if self.buckets.iter().any(|noted| noted.0 == index) {
            return false;
        }
        let mut copy = self.spare.take();
        copy.clone_from(bucket);
        self.buckets.push((index, copy));
        true
    }

    /// Forgets the bucket that was noted last. It did not change.
    pub(super) fn forget(&mut self) {
        self.spare.add(self.buckets.pop().map(|(_, bucket)| bucket));
    }
}

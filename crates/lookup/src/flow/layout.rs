//! Where a table stores its entries: in an array separate from the lines of metadata ([`Split`](super::Split)), or in
//! the lines themselves ([`Inline`](super::Inline)).

use super::bucket::Line;
use super::policy::Policy;
use crate::hash::{Digest, Hasher};

/// Where a table stores its entries; sealed.
pub trait Layout: sealed::Memory {}

impl<M: sealed::Memory> Layout for M {}

/// Keeps [`Layout`] to this module.
pub(super) mod sealed {
    use super::{Digest, Hasher, Line, Policy};

    /// The memory of a table: buckets with [`Line::SLOTS`] slots each, slot `i` in bucket `i / SLOTS`.
    pub trait Memory: Sized + Send + Sync + std::fmt::Debug {
        /// Identifies a flow.
        type Key: Copy + PartialEq + std::fmt::Debug;
        /// The data stored per flow.
        type Value: Copy;
        /// The metadata of a bucket.
        type Line: Line;

        /// Memory for `n_buckets` empty buckets of flows whose digests come from `hasher`.
        fn new(n_buckets: usize, hasher: &Hasher) -> std::io::Result<Self>;
        /// The digest of a key.
        fn digest(hasher: &Hasher, key: &Self::Key) -> Digest;
        /// The digests of keys.
        fn digests(hasher: &Hasher, keys: &[Self::Key], out: &mut [Digest]);

        /// All lines.
        fn lines(&self) -> &[Self::Line];
        /// An existing line, unchecked in release builds: the store masks its number. See `lines` for the checked
        /// way.
        fn line(&self, bucket: u32) -> &Self::Line;
        /// A line, mutably.
        fn line_mut(&mut self, bucket: u32) -> &mut Self::Line;
        /// Slots of a bucket whose entry may have this key: its tag is equal, and, if timed, it has not ended.
        fn matches<P: Policy>(&self, bucket: u32, key: &Self::Key, tag: u16, now: u16) -> u8;

        /// The tag of an entry.
        fn tag(&self, slot: u32) -> u16;
        /// An entry.
        fn entry(&self, slot: u32) -> (&Self::Key, &Self::Value);
        /// The key of an entry.
        #[inline(always)]
        fn key(&self, slot: u32) -> &Self::Key {
            self.entry(slot).0
        }
        /// Its value.
        #[inline(always)]
        fn value(&self, slot: u32) -> &Self::Value {
            self.entry(slot).1
        }
        /// Its value, mutably.
        fn value_mut(&mut self, slot: u32) -> &mut Self::Value;
        /// Writes an entry.
        fn write(&mut self, slot: u32, key: &Self::Key, value: &Self::Value);

        /// Prefetches a line.
        fn prefetch_line(&self, bucket: u32);
        /// Prefetches all lines of the entry in `slot` if `holds`. If not, prefetches the line of bucket `held`, which
        /// is in cache, to avoid a branch.
        fn prefetch_entry_if(&self, slot: u32, holds: bool, held: u32);

        /// Makes all memory resident, on reserved huge pages if there are enough.
        fn touch(&mut self);
        /// Bytes reserved: lines, then separate entries.
        fn bytes(&self) -> [usize; 2];
        /// Bytes on huge pages that the operator has reserved.
        fn reserved_page_bytes(&self) -> usize;
        /// Bytes on huge pages, if the operating system reports it.
        fn huge_page_bytes(&self) -> Option<usize>;
    }
}

pub(super) use sealed::Memory;

/// Slots of a bucket of a memory.
pub(super) const fn lanes<M: Memory>() -> u32 {
    <M::Line as Line>::SLOTS as u32
}

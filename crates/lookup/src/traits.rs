//! The one seam: what the two halves of every structure promise.
//!
//! ```text
//!   names, once for all switches      one switch, control side        update messages        one switch, data plane
//!   Skeleton                     ──►  View                       ──►  Query::Update     ──►  Query, Replicated
//!   insert, remove: a Change          a Change and the switch's       absolute words,        words: no name, no
//!                                     values: its updates             versions, a digest     allocation, no failure
//! ```
//! Left of the updates, code stores every name, allocates and may fail. Right of them it owns words only: a lookup
//! neither allocates nor fails, and an update takes effect whole or is refused.
//!
//! In a skeleton, a name carries a *payload*. Each view maps payloads to its own *values*. A [`Single`] table is a
//! skeleton whose payloads are the values, with its one view: a [`Control`].
//!
//! A *part* is what has a version of its own: a shard, a group, or the whole structure.

pub use crate::base::bytes::DecodeError;
pub use crate::base::crowd::Crowd;
pub use crate::base::error::{ApplyError, InsertError, RestoreError, ShareError};
pub use crate::base::part::{Change, HeldPart, PartId, Payload};
pub use crate::base::single::Single;
pub use crate::base::undivided::Undivided;

use std::io;

use crate::base::arena::Arena;
use crate::base::processor::{Reads, prefetch_pays};
use crate::base::root::Form;

/// The half that a data plane holds: words, no names.
pub trait Query {
    /// What a lookup takes: a [`Digest`](crate::hash::Digest) for compact structures, the name for exact ones.
    type Key: Copy;
    /// The message that takes this structure from one version to the next.
    type Update: Send;

    /// The value of `key`. A key that was never inserted (an alien) gets what the structure's module says.
    fn lookup(&self, key: Self::Key) -> u64;

    /// Writes the values of `keys`, in order, to `values`. This form hides memory latency, best in bursts of 32.
    /// # Panics
    /// When `values` is shorter than `keys`.
    fn lookup_batch(&self, keys: &[Self::Key], values: &mut [u64]);

    /// Applies one update, whole or not at all.
    /// # Errors
    /// [`ApplyError`]; the structure answers as before.
    fn apply(&mut self, update: &Self::Update) -> Result<Applied, ApplyError>;

    /// Starts fetching the words that `update` changes. It may be malformed.
    fn prefetch_update(&self, update: &Self::Update) {
        let _ = update;
    }

    /// Applies updates in order, and fetches the words of later ones meanwhile. Returns how many took effect: fewer than
    /// there are if some had been applied before, or one was refused.
    /// # Errors
    /// As [`Query::apply`], of the first update that was refused; those after it are not applied.
    fn apply_batch(&mut self, updates: &[Self::Update]) -> (usize, Result<(), ApplyError>) {
        /// Updates between the prefetch of words and their use. A core has 10 to 48 cache misses in flight, and an
        /// update has two or three.
        const AHEAD: usize = 12;
        updates.iter().take(AHEAD).for_each(|update| self.prefetch_update(update));
        let mut n_applied = 0;
        for (at, update) in updates.iter().enumerate() {
            if let Some(later) = updates.get(at + AHEAD) {
                self.prefetch_update(later);
            }
            match self.apply(update) {
                Ok(applied) => n_applied += usize::from(applied == Applied::Applied),
                Err(error) => return (n_applied, Err(error)),
            }
        }
        (n_applied, Ok(()))
    }

    /// The share of aliens that get a value from the table as it is, if its words say so; none where it is a matter of widths
    /// alone.
    fn alien_rate(&self) -> Option<f64> {
        None
    }

    /// Memory that lookups need, in bits: cells, directory and headers, not the writer's bookkeeping.
    fn size_bits(&self) -> u64;

    /// Whether lookups prefetch what they read, at the size that it has now.
    fn prefetches(&self) -> bool {
        prefetch_pays(Reads::Line, self.size_bits().div_ceil(8) as usize)
    }
}

/// A query structure as a switch holds it. It arrives as bytes, applies updates that arrive as bytes, reports its
/// versions and digests, and is read by other threads concurrently with its one writer.
pub trait Replicated: Query + Sized + Send + 'static {
    /// Whether it is divided into parts. Otherwise it is a single part.
    const DIVIDED: bool = true;

    /// What both halves were built with.
    type Settings: Clone + Send + 'static;
    /// A part, whole.
    type Image: Image;
    /// A thread's access to the structure, concurrent with its writer.
    type Reader: BatchReader<[Self::Key]> + 'static;

    /// The settings that it was built with.
    fn settings(&self) -> Self::Settings;

    /// Appends the bytes of an update.
    fn encode_update(settings: &Self::Settings, update: &Self::Update, out: &mut Vec<u8>);

    /// Decodes an update. Lengths are checked against the bytes present before anything is allocated.
    /// # Errors
    /// [`DecodeError`].
    fn decode_update(settings: &Self::Settings, bytes: &[u8]) -> Result<Self::Update, DecodeError>;

    /// As [`Replicated::decode_update`], in place of an update that is no longer needed. A structure that reuses the
    /// memory of that one decodes a stream of small updates without an allocation for each.
    /// # Errors
    /// [`DecodeError`]; then `update` is any update.
    fn decode_update_over(
        settings: &Self::Settings,
        bytes: &[u8],
        update: &mut Self::Update,
    ) -> Result<(), DecodeError> {
        *update = Self::decode_update(settings, bytes)?;
        Ok(())
    }

    /// The update that installs whole parts in place of those that hold their names.
    fn update_of(images: Vec<Self::Image>) -> Self::Update;

    /// The parts of an update of whole parts; `None` for any other.
    fn images_of(update: &Self::Update) -> Option<&[Self::Image]>;

    /// Builds the structure from these parts.
    /// # Errors
    /// [`ApplyError`]: they are malformed, or do not cover all names once, or have other digests, or memory ran out.
    fn from_images(settings: &Self::Settings, images: &[Self::Image]) -> Result<Self, ApplyError>;

    /// As [`Replicated::from_images`], for parts that this process made itself: their digests need not be checked.
    /// # Panics
    /// When there is no memory for it, as any allocation does.
    fn from_own(settings: &Self::Settings, images: &[Self::Image]) -> Self {
        Self::from_images(settings, images).unwrap_or_else(|error| panic!("no memory for a query structure: {error}"))
    }

    /// Installs whole parts whatever their versions. They answer a request for a resync, where the sender is
    /// authoritative. Readers see the new parts.
    /// # Errors
    /// As [`Replicated::from_images`], and [`ApplyError::ReadersStalled`]; nothing changes.
    fn overwrite(&mut self, images: &[Self::Image]) -> Result<(), ApplyError>;

    /// All parts, in order of digests.
    fn images(&self) -> Vec<Self::Image>;

    /// Version and digest of every part, in order of digests.
    fn held(&self) -> Vec<HeldPart>;

    /// A reader for another thread.
    fn reader(&self) -> Self::Reader;

    /// The same structure in an arena that other programs map. `make` makes one of the given number of bytes, all zero.
    /// # Errors
    /// [`ShareError`].
    fn moved_to(&self, make: &mut dyn FnMut(usize) -> io::Result<Arena>) -> Result<Self, ShareError> {
        let _ = make;
        Err(ShareError::Unsupported)
    }

    /// What other programs are told, if they can read this structure.
    fn outside(&mut self) -> Option<&mut dyn Outside> {
        None
    }
}

/// What a structure tells readers in other programs besides its words: `docs/formats/table-in-memory.md`.
pub trait Outside {
    /// What the table is.
    fn form(&self) -> Form;

    /// Sets what the names are (the five words of the root), and who writes: a process and its start time. Readers
    /// refuse a table before that.
    fn complete(&self, names: [u64; 5], writer: [u64; 2]);

    /// Replaces what the table's owner tells: what its values mean.
    /// # Errors
    /// [`ApplyError`]; readers have the former.
    fn set_annex(&mut self, bytes: &[u8]) -> Result<(), ApplyError>;
}

/// A part of a query structure, whole.
pub trait Image: Clone + Send + 'static {
    /// The part, its version and its digest.
    fn held(&self) -> HeldPart;

    /// The same part with another version.
    #[must_use]
    fn under(self, version: u64) -> Self;

    /// Its approximate size in bytes.
    fn n_bytes(&self) -> usize;
}

/// A thread's access to a table, concurrent with its writer. `Keys` is the type of a burst of keys: a slice, or any
/// other form in which a caller of several structures has them.
///
/// A lookup has two halves. [`begin`](Self::begin) computes where the words of a burst are, and starts fetching them.
/// [`finish`](Self::finish) reads them. A caller that begins the next burst before it finishes the last one never waits
/// for all of its memory at once; docs/benchmarks.md says what that gains. Bursts are finished in the order in which they
/// were begun. At most [`IN_FLIGHT`](crate::publish::ring::IN_FLIGHT) are in flight. The structure stays pinned
/// meanwhile: old versions are not freed before the burst is finished.
pub trait BatchReader<Keys: ?Sized>: Send {
    /// As [`Query::lookup_batch`], on one version of the structure. Unless bursts are in flight, the thread is quiescent
    /// before.
    fn lookup_batch(&mut self, keys: &Keys, values: &mut [u64]);

    /// Whether [`begin`](Self::begin) does half of the work.
    fn has_phases(&self) -> bool {
        false
    }

    /// Begins to look up a burst of at most [`BURST`](crate::base::prefetch::BURST) keys. A structure without
    /// phases does everything in [`finish`](Self::finish).
    /// # Panics
    /// When there are more keys, or too many bursts in flight.
    fn begin(&mut self, keys: &Keys) {
        let _ = keys;
    }

    /// Finishes the oldest burst in flight, which was begun with the same `keys`. Each value is that of a moment
    /// between `begin` and now.
    /// # Panics
    /// When no burst is in flight, or the numbers of keys and values are not that of the burst.
    fn finish(&mut self, keys: &Keys, values: &mut [u64]) {
        self.lookup_batch(keys, values);
    }

    /// Declares that this thread reads nothing until the next lookup. Call it before sleeping. Bursts in flight are
    /// given up.
    fn offline(&mut self);
}

/// Settings of both halves of a structure.
pub type SettingsOf<S> = <<S as Skeleton>::Query as Replicated>::Settings;
/// The messages of a structure.
pub type UpdateOf<S> = <<S as Skeleton>::Query as Query>::Update;
/// The parts of a structure.
pub type ImageOf<S> = <<S as Skeleton>::Query as Replicated>::Image;

/// The control half, as far as all switches share it: every name, with its payload and its place.
///
/// A skeleton determines which words make up the answer for a name. The answers themselves belong to [`View`]s, one per
/// switch. A mutation returns a [`Change`]; until the next mutation, the skeleton keeps what views need to know of it.
pub trait Skeleton: Sized + Send + 'static {
    /// As [`Query::Key`].
    type Key: Copy + Ord + Send + Sync;
    /// What a name carries.
    type Payload: Payload;
    /// The half on the other side of the seam.
    type Query: Replicated<Key = Self::Key>;
    /// The record of what one switch holds of it.
    type View: View<Self>;

    /// Builds the skeleton of `entries`, on up to `threads` threads.
    /// # Errors
    /// [`InsertError`].
    fn build(
        settings: &SettingsOf<Self>,
        entries: &[(Self::Key, Self::Payload)],
        threads: usize,
    ) -> Result<Self, InsertError>;

    /// As [`Skeleton::build`], with the view and the query half in which `value` maps payloads to values.
    /// # Errors
    /// [`InsertError`].
    fn build_filled(
        settings: &SettingsOf<Self>,
        entries: &[(Self::Key, Self::Payload)],
        threads: usize,
        value: impl Fn(Self::Payload) -> u64 + Sync,
    ) -> Result<(Self, Self::View, Self::Query), InsertError> {
        let skeleton = Self::build(settings, entries, threads)?;
        let (view, query) = Self::View::open(&skeleton, value)?;
        Ok((skeleton, view, query))
    }

    /// Restores the skeleton that a controller stored. Names have the same places, so every view has the same words.
    ///
    /// `rows` are those that [`Skeleton::rows`] and [`Skeleton::take_rows`] returned, `entries` the live names, both in
    /// any order.
    /// # Errors
    /// [`RestoreError`]: the rows do not belong to these names.
    fn restore(
        settings: &SettingsOf<Self>,
        rows: &[Row],
        entries: &[(Self::Key, Self::Payload)],
    ) -> Result<Self, RestoreError>;

    /// Settings of the table.
    fn settings(&self) -> &SettingsOf<Self>;

    /// Whether a table with these settings can hold `key` with `value`.
    /// # Errors
    /// [`InsertError::ValueTooWide`], [`InsertError::NameTooLong`].
    fn check(settings: &SettingsOf<Self>, key: Self::Key, value: u64) -> Result<(), InsertError>;

    /// Inserts `key`, or changes its payload.
    /// # Errors
    /// [`InsertError`]; the skeleton is unchanged.
    fn insert(&mut self, key: Self::Key, payload: Self::Payload) -> Result<Change, InsertError>;

    /// Inserts many names, or changes their payloads, as one change; of equal keys the last wins.
    /// # Errors
    /// [`InsertError`]. A structure with parts is unchanged. In one without, some of the names may be inserted without
    /// an update of any view; then [`Skeleton::touch`] makes views send everything.
    fn insert_batch(&mut self, entries: &[(Self::Key, Self::Payload)]) -> Result<Change, InsertError>;

    /// The parts that would be crowded if `keys`, which are not in the skeleton, were inserted: someone who has the hash key
    /// chose names for them. O(1) a key; where parts are crowded or split, their names are sorted.
    fn crowds(&self, keys: &[Self::Key]) -> Vec<Crowd> {
        let _ = keys;
        Vec::new()
    }

    /// Removes `key`. It answers drop as long as it has a tombstone, and is an alien afterwards.
    fn remove(&mut self, key: Self::Key) -> Change;

    /// Gives every part a new version, so that views whose values changed can send them all.
    fn touch(&mut self) -> Change;

    /// The payload of `key`.
    fn get(&self, key: Self::Key) -> Option<Self::Payload>;

    /// Whether `key` was removed and still answers drop. Exact structures return true for every absent name.
    fn must_drop(&self, key: Self::Key) -> bool;

    /// The number of names.
    fn len(&self) -> usize;

    /// Whether there are no names.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `n_changes` changes are better made as one batch, because most parts are then sent whole.
    fn is_bulk(&self, n_changes: usize) -> bool;

    /// The same for one view, where only time counts and not the length of messages.
    fn is_bulk_alone(&self, n_changes: usize) -> bool {
        self.is_bulk(n_changes)
    }

    /// The part in a slot, as a [`Change`] names it.
    fn part_id(&self, slot: u32) -> PartId;

    /// The rows that a store must have after the mutations since the last call. These touched the parts in `slots` and
    /// replaced the parts `gone`. With rows and names, a restarted controller has the same places.
    fn take_rows(&mut self, slots: &[u32], gone: &[PartId]) -> Vec<Row>;

    /// All rows.
    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_>;

    /// Bytes of heap memory.
    fn heap_bytes(&self) -> usize;
}

/// The control side's record of what one switch holds of a skeleton: versions, digests, and whatever follows from
/// values.
///
/// Every argument `value` maps a payload to its value at this switch. The value must fit into a cell.
pub trait View<S: Skeleton>: Sized + Send + 'static {
    /// Whether names may have no arrangement with some values, although all have places.
    const MAY_FAIL: bool = false;

    /// The view of all names, and all parts, in order of digests.
    /// # Errors
    /// [`InsertError`]: the names have no arrangement with these values.
    fn export(skeleton: &S, value: impl Fn(S::Payload) -> u64) -> Result<(Self, Vec<ImageOf<S>>), InsertError>;

    /// A view without parts. [`View::image`] and [`View::note`] of every part then make the same view as
    /// [`View::export`], a few parts at a time. `None`: it is only made at once.
    fn without_parts() -> Option<Self> {
        None
    }

    /// The view of all names, and the query structure that it describes.
    /// # Errors
    /// As [`View::export`].
    fn open(skeleton: &S, value: impl Fn(S::Payload) -> u64) -> Result<(Self, S::Query), InsertError> {
        let (view, images) = Self::export(skeleton, value)?;
        Ok((view, S::Query::from_own(skeleton.settings(), &images)))
    }

    /// The query structures of `n` switches at once; `value` also takes the number of the switch.
    /// # Errors
    /// As [`View::export`].
    fn export_many(
        skeleton: &S,
        n: usize,
        value: impl Fn(usize, S::Payload) -> u64,
    ) -> Result<Vec<S::Query>, InsertError> {
        (0..n).map(|switch| Ok(Self::open(skeleton, |payload| value(switch, payload))?.1)).collect()
    }

    /// Appends the updates that this switch needs after `change`, the latest mutation of `skeleton`: none if no word of
    /// this switch changed.
    /// # Errors
    /// As [`View::export`], where [`View::MAY_FAIL`] says so; nothing is appended, and the view is unchanged.
    fn updates(
        &mut self,
        skeleton: &S,
        change: &Change,
        value: impl Fn(S::Payload) -> u64,
        updates: &mut Vec<UpdateOf<S>>,
    ) -> Result<(), InsertError>;

    /// The part in `slot`, whole, as it is now. The record of what was sent does not change. Call it while the view is
    /// up to date. If the view missed a change of names or values, call [`View::renew`].
    /// # Errors
    /// As [`View::export`].
    fn image(&self, skeleton: &S, slot: u32, value: impl Fn(S::Payload) -> u64) -> Result<ImageOf<S>, InsertError>;

    /// Records that the switch has or will have `image` of the part in `slot`.
    fn note(&mut self, skeleton: &S, slot: u32, image: &ImageOf<S>);

    /// Makes the part in `slot`, whole, from the present names and values, and records it as sent. It replaces updates
    /// that the view missed, or a part of another view with other values.
    /// # Errors
    /// As [`View::export`]; the record of what was sent is unchanged.
    fn renew(&mut self, skeleton: &S, slot: u32, value: impl Fn(S::Payload) -> u64) -> Result<ImageOf<S>, InsertError> {
        let image = self.image(skeleton, slot, value)?;
        self.note(skeleton, slot, &image);
        Ok(image)
    }

    /// Version and digest of every part at a switch that is up to date, in order of digests, with the slots. The
    /// version is that of the last message: later versions changed no word of this switch.
    fn held(&self, skeleton: &S) -> Vec<(u32, HeldPart)>;

    /// Records that the switch has `version` of the part in `slot`, which it reported with the expected digest.
    fn set_version(&mut self, slot: u32, version: u64);

    /// The rows that a store must have after the updates since the last call. With rows, skeleton and values, a
    /// restarted controller has the same view. Most views follow from skeleton and values alone, and have no rows.
    fn take_rows(&mut self) -> Vec<Row> {
        Vec::new()
    }

    /// All rows.
    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(std::iter::empty())
    }

    /// Restores the view of `rows`, in any order, and all its parts. Rows of an earlier view of the switch may be among
    /// them.
    /// # Errors
    /// [`RestoreError`]: the rows do not belong to these names with these values. Then [`View::export`] makes another view.
    fn restore(
        skeleton: &S,
        rows: &[Row],
        value: impl Fn(S::Payload) -> u64,
    ) -> Result<(Self, Vec<ImageOf<S>>), RestoreError> {
        let _ = rows;
        Ok(Self::export(skeleton, value)?)
    }

    /// Bytes of heap memory beyond versions and digests.
    fn heap_bytes(&self) -> usize {
        0
    }

    /// Starts fetching what an insert of `key` reads.
    fn prefetch(&self, skeleton: &S, key: S::Key) {
        let _ = (skeleton, key);
    }
}

/// A row that the store keeps for a skeleton.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its key among the rows of the skeleton.
    pub key: Vec<u8>,
    /// Its value; `None` deletes it.
    pub value: Option<Vec<u8>>,
}

/// The control half of one table. It stores every key with its value, and emits the updates of one [`Query`].
pub trait Control {
    /// As [`Query::Key`], borrowed or by value.
    type Key: Copy;
    /// The half on the other side of the seam.
    type Query: Query;

    /// Inserts `key`, or changes its value, and appends the updates for a query structure.
    /// # Errors
    /// [`InsertError`]; the structure and `updates` are unchanged.
    fn insert(
        &mut self,
        key: Self::Key,
        value: u64,
        updates: &mut Vec<<Self::Query as Query>::Update>,
    ) -> Result<(), InsertError>;

    /// Inserts many entries, in an order that the structure chooses; of equal keys the last wins.
    /// # Errors
    /// [`InsertError`] of the first that failed; those before it (in that order) are inserted, their updates appended.
    fn insert_batch(
        &mut self,
        entries: &[(Self::Key, u64)],
        updates: &mut Vec<<Self::Query as Query>::Update>,
    ) -> Result<(), InsertError>;

    /// Removes `key`; false when it was not there.
    fn remove(&mut self, key: Self::Key, updates: &mut Vec<<Self::Query as Query>::Update>) -> bool;

    /// The value of `key`, as the control half stores it.
    fn get(&self, key: Self::Key) -> Option<u64>;

    /// A query structure with the present value of every key.
    fn export(&self) -> Self::Query;

    /// The number of keys.
    fn len(&self) -> usize;

    /// Whether there are no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Builds a structure from a set of keys and values, once: all that static structures offer.
pub trait Build: Sized {
    /// As [`Query::Key`].
    type Key: Copy;
    /// What a build needs besides the entries.
    type Settings;

    /// Builds the structure of `entries` on up to `threads` threads.
    /// # Errors
    /// [`InsertError`] when two keys are equal or no solution is found within the structure's bounds.
    fn build(settings: &Self::Settings, entries: &[(Self::Key, u64)], threads: usize) -> Result<Self, InsertError>;
}

/// What [`Query::apply`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The update took effect.
    Applied,
    /// The structure had it already: a duplicate, which is harmless.
    AlreadyThere,
}

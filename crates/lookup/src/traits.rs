//! The one seam: what the two halves of every structure promise.
//!
//! ```text
//!   names, once for all switches      one switch, control side        update messages        one switch, data plane
//!   Skeleton                     ──►  View                       ──►  Query::Update     ──►  Query, Replicated
//!   insert, remove: a Change          a Change and the switch's       absolute words,        words: no name, no
//!                                     values: its updates             versions, a digest     allocation, no failure
//! ```
//! Left of the updates code knows every name, allocates and may fail. Right of them it owns words only: a lookup neither
//! allocates nor fails, and an update takes effect whole or is refused.
//!
//! A name carries a *payload* in a skeleton; what the payload means is a *value*, which every view has its own of. A
//! [`Single`] table is a skeleton whose payloads are the values, with its one view: a [`Control`].
//!
//! A *part* is what has a version of its own: a shard, a group, or the whole structure.

pub use crate::base::bytes::DecodeError;
pub use crate::base::error::{ApplyError, InsertError, RestoreError};
pub use crate::base::part::{Change, HeldPart, PartId, Payload};
pub use crate::base::single::Single;
pub use crate::base::undivided::Undivided;

/// The half that a data plane holds: words, no names.
pub trait Query {
    /// What a lookup takes: a [`Digest`](crate::hash::Digest) for compact structures, the name for exact ones.
    type Key: Copy;
    /// The message that brings this structure from one version to the next.
    type Update;

    /// The value of `key`. A key that was never inserted (an alien) gets what the structure's module says.
    fn lookup(&self, key: Self::Key) -> u64;

    /// The values of `keys`, in order, into `values`: the form that hides memory latency; best in bursts of 32.
    /// # Panics
    /// When `values` is shorter than `keys`.
    fn lookup_batch(&self, keys: &[Self::Key], values: &mut [u64]);

    /// Takes over one update, whole or not at all.
    /// # Errors
    /// [`ApplyError`]; the structure answers as before.
    fn apply(&mut self, update: &Self::Update) -> Result<Applied, ApplyError>;

    /// Memory that lookups need, in bits: cells, directory and headers, not the writer's bookkeeping.
    fn size_bits(&self) -> u64;
}

/// A query structure as a switch holds it: it comes as bytes, follows updates that come as bytes, says what it holds,
/// and is read by other threads beside its one writer.
pub trait Replicated: Query + Sized + Send + 'static {
    /// Whether it has parts: otherwise it is one.
    const DIVIDED: bool = true;

    /// What both halves were built with.
    type Settings: Clone + Send + 'static;
    /// A part, whole.
    type Image: Image;
    /// A thread's access to the structure beside its writer.
    type Reader: BatchReader<[Self::Key]> + 'static;

    /// The settings that it was built with.
    fn settings(&self) -> Self::Settings;

    /// Appends the bytes of an update.
    fn encode_update(settings: &Self::Settings, update: &Self::Update, out: &mut Vec<u8>);

    /// Reads an update; lengths are checked against the bytes that are there before anything is allocated.
    /// # Errors
    /// [`DecodeError`].
    fn decode_update(settings: &Self::Settings, bytes: &[u8]) -> Result<Self::Update, DecodeError>;

    /// The update that puts whole parts in the place of what has their names.
    fn update_of(images: Vec<Self::Image>) -> Self::Update;

    /// The parts of an update of whole parts; `None` for any other.
    fn images_of(update: &Self::Update) -> Option<&[Self::Image]>;

    /// The structure of these parts.
    /// # Errors
    /// [`ApplyError`]: they are malformed, or do not cover all names once, or have other digests, or memory ran out.
    fn from_images(settings: &Self::Settings, images: &[Self::Image]) -> Result<Self, ApplyError>;

    /// The structure of parts that this process made itself, whose digests need no proof.
    /// # Panics
    /// When there is no memory for it, as any allocation does.
    fn from_own(settings: &Self::Settings, images: &[Self::Image]) -> Self {
        Self::from_images(settings, images).unwrap_or_else(|error| panic!("no memory for a query structure: {error}"))
    }

    /// Takes over whole parts whatever their versions: the answer to a request for a resync, where the sender's word
    /// counts. Readers follow.
    /// # Errors
    /// As [`Replicated::from_images`], and [`ApplyError::ReadersStalled`]; nothing changes.
    fn overwrite(&mut self, images: &[Self::Image]) -> Result<(), ApplyError>;

    /// All parts, in order of digests.
    fn images(&self) -> Vec<Self::Image>;

    /// Version and digest of every part, in order of digests.
    fn held(&self) -> Vec<HeldPart>;

    /// A reader for another thread.
    fn reader(&self) -> Self::Reader;
}

/// A part of a query structure, whole.
pub trait Image: Clone + Send + 'static {
    /// The part, its version and its digest.
    fn held(&self) -> HeldPart;

    /// The same under another version.
    #[must_use]
    fn under(self, version: u64) -> Self;

    /// About how many bytes it has.
    fn n_bytes(&self) -> usize;
}

/// A thread's access to a table beside its writer. `Keys` are those of a burst: a slice of keys, or whatever a caller of
/// several structures has them in.
pub trait BatchReader<Keys: ?Sized>: Send {
    /// As [`Query::lookup_batch`], on one version of the structure. The thread is quiescent before.
    fn lookup_batch(&mut self, keys: &Keys, values: &mut [u64]);

    /// Says that this thread reads nothing until the next lookup: call it before sleeping.
    fn offline(&mut self);
}

/// Settings of both halves of a structure.
pub type SettingsOf<S> = <<S as Skeleton>::Query as Replicated>::Settings;
/// The messages of a structure.
pub type UpdateOf<S> = <<S as Skeleton>::Query as Query>::Update;
/// The parts of a structure.
pub type ImageOf<S> = <<S as Skeleton>::Query as Replicated>::Image;

/// The half that a controller holds, as far as all switches share it: every name, with its payload and its place.
///
/// A skeleton knows which words make up the answer for a name, not the answers: those are a [`View`]'s, one a switch. A
/// mutation returns a [`Change`], and keeps what views need to know of it until the next mutation.
pub trait Skeleton: Sized + Send + 'static {
    /// As [`Query::Key`].
    type Key: Copy + Ord + Send + Sync;
    /// What a name carries.
    type Payload: Payload;
    /// The half on the other side of the seam.
    type Query: Replicated<Key = Self::Key>;
    /// What one switch has of it.
    type View: View<Self>;

    /// The skeleton of `entries`, on up to `threads` threads.
    /// # Errors
    /// [`InsertError`].
    fn build(
        settings: &SettingsOf<Self>,
        entries: &[(Self::Key, Self::Payload)],
        threads: usize,
    ) -> Result<Self, InsertError>;

    /// As [`Skeleton::build`], with the view and the query half of names whose payload stands for `value`.
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

    /// Puts together what a controller stored: the same places, so that every view has the same words.
    ///
    /// `rows` are those that [`Skeleton::rows`] and [`Skeleton::take_rows`] gave, `entries` the live names, both in any
    /// order.
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
    /// [`InsertError`]. A structure with parts is unchanged. In one without, some of the names may be in, of which no view
    /// was told: [`Skeleton::touch`] tells them all.
    fn insert_batch(&mut self, entries: &[(Self::Key, Self::Payload)]) -> Result<Change, InsertError>;

    /// Removes `key`. It answers drop as long as it has a tombstone, and is an alien afterwards.
    fn remove(&mut self, key: Self::Key) -> Change;

    /// Gives every part a new version, so that views whose values changed can send them all.
    fn touch(&mut self) -> Change;

    /// The payload of `key`.
    fn get(&self, key: Self::Key) -> Option<Self::Payload>;

    /// Whether `key` was removed and still answers drop. Exact structures drop every name that is not in, and say so.
    fn must_drop(&self, key: Self::Key) -> bool;

    /// Names that are in.
    fn len(&self) -> usize;

    /// Whether no name is in.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether so many changes are better made at once, since most parts are sent whole then.
    fn is_bulk(&self, n_changes: usize) -> bool;

    /// The same where there is one view, and only time counts, not the length of messages.
    fn is_bulk_alone(&self, n_changes: usize) -> bool {
        self.is_bulk(n_changes)
    }

    /// The part in a slot, as a [`Change`] names it.
    fn part_id(&self, slot: u32) -> PartId;

    /// The rows that a store must have after the mutations since the last call, which touched the parts in `slots` and
    /// replaced those of the ids `gone`: what a restarted controller needs besides the names to have the same places.
    fn take_rows(&mut self, slots: &[u32], gone: &[PartId]) -> Vec<Row>;

    /// All rows.
    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_>;

    /// Bytes of heap memory.
    fn heap_bytes(&self) -> usize;
}

/// What one switch has of a skeleton, as far as the control side knows: versions and digests, and whatever follows from
/// values.
///
/// `value` is everywhere the same: what a payload means at this switch. It must fit into a cell.
pub trait View<S: Skeleton>: Sized + Send + 'static {
    /// Whether names that have places may still have no arrangement with some values.
    const MAY_FAIL: bool = false;

    /// The view of all names, and all parts, in order of digests.
    /// # Errors
    /// [`InsertError`]: the names have no arrangement with these values.
    fn export(skeleton: &S, value: impl Fn(S::Payload) -> u64) -> Result<(Self, Vec<ImageOf<S>>), InsertError>;

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

    /// Appends the updates that bring this switch along after `change`, the latest mutation of `skeleton`. None where
    /// no word of this switch changed.
    /// # Errors
    /// As [`View::export`], where [`View::MAY_FAIL`] says so; nothing is appended, and the view is unchanged.
    fn updates(
        &mut self,
        skeleton: &S,
        change: &Change,
        value: impl Fn(S::Payload) -> u64,
        updates: &mut Vec<UpdateOf<S>>,
    ) -> Result<(), InsertError>;

    /// The part in `slot`, whole, as it is now. What the view was sent stays. Call it while the view is up to date:
    /// [`View::renew`] brings along a view that was not told of a change of names or values.
    /// # Errors
    /// As [`View::export`].
    fn image(&self, skeleton: &S, slot: u32, value: impl Fn(S::Payload) -> u64) -> Result<ImageOf<S>, InsertError>;

    /// Notes that the switch has or will have `image` of the part in `slot`.
    fn note(&mut self, skeleton: &S, slot: u32, image: &ImageOf<S>);

    /// The part in `slot`, made of the names and values as they are now, whole, and noted as sent. It takes the place of
    /// updates that the view missed, or of another view with other values.
    /// # Errors
    /// As [`View::export`]; what the view was sent stays.
    fn renew(&mut self, skeleton: &S, slot: u32, value: impl Fn(S::Payload) -> u64) -> Result<ImageOf<S>, InsertError> {
        let image = self.image(skeleton, slot, value)?;
        self.note(skeleton, slot, &image);
        Ok(image)
    }

    /// What a switch that is up to date has of every part, in order of digests, with the slots. The version is that of
    /// the last message: later ones changed no word of this switch.
    fn held(&self, skeleton: &S) -> Vec<(u32, HeldPart)>;

    /// Notes that the switch has `version` of the part in `slot`: it reported so, with the digest that is due.
    fn set_version(&mut self, slot: u32, version: u64);

    /// The rows that a store must have after the updates since the last call: what a restarted controller needs besides
    /// skeleton and values to have the same view. Most views follow from these alone, and have no rows.
    fn take_rows(&mut self) -> Vec<Row> {
        Vec::new()
    }

    /// All rows.
    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(std::iter::empty())
    }

    /// The view that gave `rows`, in any order, and all its parts. Rows of an earlier view of the switch may be among them.
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

/// A row that the store keeps of a skeleton.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its key among the rows of the skeleton.
    pub key: Vec<u8>,
    /// Its value; `None` deletes it.
    pub value: Option<Vec<u8>>,
}

/// The control half of one table: it knows every key with its value, and emits the updates of one [`Query`].
pub trait Control {
    /// As [`Query::Key`], borrowed or by value.
    type Key: Copy;
    /// The half on the other side of the seam.
    type Query: Query;

    /// Inserts `key`, or changes its value, and appends the updates that bring a query structure along.
    /// # Errors
    /// [`InsertError`]; the structure and `updates` are unchanged.
    fn insert(
        &mut self,
        key: Self::Key,
        value: u64,
        updates: &mut Vec<<Self::Query as Query>::Update>,
    ) -> Result<(), InsertError>;

    /// Inserts many, in an order of the structure's choosing; of equal keys the last wins.
    /// # Errors
    /// [`InsertError`] of the first that failed; those before it (in that order) are in, their updates appended.
    fn insert_batch(
        &mut self,
        entries: &[(Self::Key, u64)],
        updates: &mut Vec<<Self::Query as Query>::Update>,
    ) -> Result<(), InsertError>;

    /// Removes `key`; false when it was not there.
    fn remove(&mut self, key: Self::Key, updates: &mut Vec<<Self::Query as Query>::Update>) -> bool;

    /// The value of `key`, from the control half's own knowledge.
    fn get(&self, key: Self::Key) -> Option<u64>;

    /// A query structure that answers for every key as of now.
    fn export(&self) -> Self::Query;

    /// Keys that are in.
    fn len(&self) -> usize;

    /// Whether no key is in.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A set of keys and values to a structure, once: all that static structures offer.
pub trait Build: Sized {
    /// As [`Query::Key`].
    type Key: Copy;
    /// What a build needs to know besides the entries.
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

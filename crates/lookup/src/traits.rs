//! The one seam: what the two halves of every structure promise.
//!
//! Left of the seam a [`Control`] structure knows every name, allocates and may fail. Right of it a [`Query`]
//! structure owns words only: a lookup neither allocates nor fails, an update takes effect whole or is refused.
//! What crosses the seam is the update message. Static structures implement only [`Build`].

use crate::othello::update::DecodeError;

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

/// The half that a controller holds: it knows every key and emits the updates of a [`Query`].
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

/// A query structure as a switch holds it: it comes as bytes, follows updates that come as bytes, says what it holds,
/// and is read by other threads beside its one writer.
///
/// A *whole* update carries the entire structure: an image of it.
pub trait Replicated: Query + Sized + Send + 'static {
    /// What both halves were built with.
    type Settings: Clone + Send + 'static;
    /// A thread's access to the structure beside its writer.
    type Reader: BatchReader<Key = Self::Key>;

    /// The settings that it was built with.
    fn settings(&self) -> &Self::Settings;

    /// Appends the bytes of an update.
    fn encode_update(settings: &Self::Settings, update: &Self::Update, out: &mut Vec<u8>);

    /// Reads an update; lengths are checked against the bytes that are there before anything is allocated.
    /// # Errors
    /// [`DecodeError`].
    fn decode_update(settings: &Self::Settings, bytes: &[u8]) -> Result<Self::Update, DecodeError>;

    /// Whether the update carries the entire structure.
    fn is_whole(update: &Self::Update) -> bool;

    /// Version and digest of a structure that has just taken over `update`.
    fn held_after(update: &Self::Update) -> (u64, u64);

    /// The structure of a whole update.
    /// # Errors
    /// [`ApplyError`]: the update is not whole, or malformed, or has another digest, or memory ran out.
    fn from_whole(settings: &Self::Settings, update: &Self::Update) -> Result<Self, ApplyError>;

    /// Takes over a whole update whatever its version: the answer to a request for a resync, where the sender's word
    /// counts. Readers follow.
    /// # Errors
    /// As [`Replicated::from_whole`], and [`ApplyError::ReadersStalled`]; nothing changes.
    fn overwrite(&mut self, update: &Self::Update) -> Result<(), ApplyError>;

    /// The entire structure as an update.
    fn whole(&self) -> Self::Update;

    /// Version and digest held.
    fn held(&self) -> (u64, u64);

    /// A reader for another thread.
    fn reader(&self) -> Self::Reader;
}

/// A thread's access to a query structure beside its writer.
pub trait BatchReader: Send + 'static {
    /// As [`Query::Key`].
    type Key: Copy;

    /// As [`Query::lookup_batch`], on one version of the structure. The thread is quiescent before.
    fn lookup_batch(&mut self, keys: &[Self::Key], values: &mut [u64]);

    /// Says that this thread reads nothing until the next lookup: call it before sleeping.
    fn offline(&mut self);
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

/// Why an update was refused; the query structure is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// An update in between was lost.
    #[error("shard {prefix:#x}/{depth} is at version {current}, the update starts from {from}: ask for the shard")]
    Gap {
        /// The first bits of the digests of the shard.
        prefix: u32,
        /// How many bits `prefix` has.
        depth: u8,
        /// The version held.
        current: u64,
        /// The version that the update builds on.
        from: u64,
    },
    /// The cells after the update would not be those that the control half has.
    #[error(
        "shard {prefix:#x}/{depth}: digest {got:#018x} after the update, {expected:#018x} expected: ask for the shard"
    )]
    WrongDigest {
        /// The first bits of the digests of the shard.
        prefix: u32,
        /// How many bits `prefix` has.
        depth: u8,
        /// Digest of the cells as the update would leave them.
        got: u64,
        /// Digest that the update names.
        expected: u64,
    },
    /// The update does not fit this structure at all.
    #[error("update refused: {reason}: ask for an image")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
    },
    /// Old versions cannot be reclaimed, because a reader stays pinned; retry once readers move on.
    #[error(
        "{retired_bytes} bytes of old versions wait for readers (limit {limit_bytes}): let readers unpin, then retry"
    )]
    ReadersStalled {
        /// Bytes that wait.
        retired_bytes: usize,
        /// The bound.
        limit_bytes: usize,
    },
    /// The arena of the query structure is full.
    #[error("the table needs {needed_bytes} bytes more and its arena ends at {limit_bytes}: raise the table's limit")]
    ArenaFull {
        /// Bytes asked for.
        needed_bytes: usize,
        /// Bytes reserved in all.
        limit_bytes: usize,
    },
}

/// Why a name was not inserted; the control structure is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// The configured maximum is reached.
    #[error("the table is full: {max} names configured: raise max_names")]
    TooManyNames {
        /// The configured maximum.
        max: usize,
    },
    /// The value does not fit into a cell.
    #[error("value {value:#x} needs more than the {value_bits} bits of a cell: build the table with wider values")]
    ValueTooWide {
        /// The value.
        value: u64,
        /// Width of a cell.
        value_bits: u8,
    },
    /// Two entries of a build have the same digest.
    #[error("two names have the digest {digest:#018x}: choose another key (rekey) or remove the duplicate")]
    DuplicateDigest {
        /// The digest.
        digest: u64,
    },
    /// Two entries of a build have the same name.
    #[error("two entries have the same name, whose first word is {first_word:#018x}: remove one of them")]
    DuplicateName {
        /// The first 64 bits of the name.
        first_word: u64,
    },
    /// No acyclic graph was found.
    #[error("no acyclic graph for {n_names} names of one shard after {tries} tries: rekey the table")]
    Unsolvable {
        /// Names of the shard.
        n_names: usize,
        /// Tries made.
        tries: u32,
    },
    /// No arrangement of names in slots was found.
    #[error("no place for {n_names} names in {n_slots} slots after {tries} tries: rekey the table")]
    NoPlace {
        /// Names of the table.
        n_names: usize,
        /// Slots of the last try.
        n_slots: usize,
        /// Tries made.
        tries: u32,
    },
    /// The name has bytes behind those of the table's names.
    #[error("names of this table have {name_bytes} bytes, and zeros behind them: cut the name, or build another table")]
    NameTooLong {
        /// Bytes of a name.
        name_bytes: usize,
    },
}

//! Why an update or a name is refused.

use super::bytes::{BytesError, DecodeError};
use super::part::PartId;

/// Why an update was refused; the query structure is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// An update before this one was lost.
    #[error("{part} is at version {current}, the update starts from version {from}: ask for {part}")]
    Gap {
        /// The part.
        part: PartId,
        /// The version held.
        current: u64,
        /// The version that the update builds on.
        from: u64,
    },
    /// The words after the update would differ from those of the control half.
    #[error("{part} has digest {got:#018x} after the update, {expected:#018x} expected: ask for {part}")]
    WrongDigest {
        /// The part.
        part: PartId,
        /// Digest of the words as the update would leave them.
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
    /// Old versions cannot be reclaimed, because a reader stays pinned. Retry when readers have moved on.
    #[error(
        "{retired_bytes} bytes of old versions wait for readers (limit {limit_bytes}): let readers unpin, then retry"
    )]
    ReadersStalled {
        /// Bytes that wait for readers.
        retired_bytes: usize,
        /// The bound.
        limit_bytes: usize,
    },
    /// The arena of the query structure is full.
    #[error("the table needs {needed_bytes} bytes more and its arena ends at {limit_bytes}: raise the table's limit")]
    ArenaFull {
        /// Bytes that the update needs.
        needed_bytes: usize,
        /// Bytes reserved in all.
        limit_bytes: usize,
    },
}

/// Why a table cannot be where other programs read it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// Its words are not in one range of memory.
    #[error("other programs cannot read this structure from memory: concise, ofw and the lines can be read so")]
    Unsupported,
    /// The operating system has no memory for it there.
    #[error("no memory for a table that other programs can read: {0}")]
    Memory(#[from] std::io::Error),
    /// The table does not fit there.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl ApplyError {
    /// Refuses an update that does not build on the `current` version of `part`.
    /// # Errors
    /// [`ApplyError::Gap`].
    pub(crate) fn check_version(part: PartId, current: u64, from: u64) -> Result<(), Self> {
        if from == current { Ok(()) } else { Err(Self::Gap { part, current, from }) }
    }

    /// Refuses an update after which the words of `part` would not have the digest that it names. Returns the digest.
    /// # Errors
    /// [`ApplyError::WrongDigest`].
    pub(crate) fn check_digest(part: PartId, got: u64, expected: u64) -> Result<u64, Self> {
        if got == expected { Ok(got) } else { Err(Self::WrongDigest { part, got, expected }) }
    }
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
    /// One part would have more names than it can, and far more than chance explains.
    #[error(
        "{part} would have {n_names} names, far more than random digests would put there: someone who has the hash key chose them; remove them, and choose another key (rekey)"
    )]
    Crowded {
        /// The part.
        part: PartId,
        /// Its names.
        n_names: usize,
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
    /// The name has non-zero bytes beyond the length of the table's names.
    #[error("names of this table have {name_bytes} bytes, and zeros behind them: cut the name, or build another table")]
    NameTooLong {
        /// Bytes of a name.
        name_bytes: usize,
    },
}

/// Why no skeleton can be restored from the rows and names that a controller stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// A row cannot be read.
    #[error("a row of the table's parts cannot be read ({0}): restore the store from a backup")]
    Row(#[from] DecodeError),
    /// Parts overlap or leave a gap.
    #[error("the stored parts do not cover all names exactly once: restore the store from a backup")]
    Parts,
    /// A part has sizes, tweaks or a stash that this table cannot have.
    #[error("{part} has sizes or tweaks out of range: restore the store from a backup")]
    OutOfRange {
        /// The part.
        part: PartId,
    },
    /// The names do not fit the stored places.
    #[error("the {n_names} stored names of {part} do not fit its stored places: restore the store from a backup")]
    Places {
        /// The part.
        part: PartId,
        /// Names found for it.
        n_names: usize,
    },
    /// The names have no arrangement.
    #[error(transparent)]
    Build(#[from] InsertError),
}

impl From<BytesError> for RestoreError {
    fn from(error: BytesError) -> Self {
        Self::Row(error.into())
    }
}

//! The controller's durable state: rows of (kind, key, value), changed many at a time in one transaction.
//!
//! [`fib::durable`] defines what the rows mean; the controller adds its own rows, under kinds that the network does not
//! use. SQLite is the store of one controller; a store shared by several would be another implementation of [`Store`].

mod sqlite;

pub use fib::durable::RowChange;
use rusqlite::ErrorCode;
pub use sqlite::SqliteStore;
use std::path::PathBuf;

/// Durable rows. One owner at a time: opening a store that another process has open is refused.
pub trait Store: Send {
    /// Every row, in any order. Cost: reads the whole store; memory for a few thousand rows.
    fn rows(&self) -> Box<dyn Iterator<Item = Result<RowChange, StoreError>> + '_>;

    /// Applies all changes in one transaction: after success they survive a crash; after a failure none is applied.
    /// A later change of a row wins over an earlier one.
    /// # Errors
    /// [`StoreError::Failed`]; the store is as before.
    fn commit(&mut self, changes: &[RowChange]) -> Result<(), StoreError>;

    /// The term of this owner: greater than that of every owner of this store before. The owner of a copy may have had a
    /// greater one: see [`Store::raise_term`].
    fn term(&self) -> u64;

    /// Raises the term, durably, to at least this.
    /// # Errors
    /// [`StoreError::Failed`]; the term is as before.
    fn raise_term(&mut self, term: u64) -> Result<(), StoreError>;
}

/// What can go wrong with the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another controller has it open.
    #[error("{path} is in use by another controller; stop that one, or set store to another file")]
    InUse {
        /// The store.
        path: PathBuf,
    },
    /// The file is not a fibula store, or is one of a later version.
    #[error("{path} has format {got:?}, but this version of fibula reads {expected:?}; run the version that wrote it")]
    WrongFormat {
        /// The store.
        path: PathBuf,
        /// What the file says.
        got: String,
        /// What this version writes.
        expected: &'static str,
    },
    /// The file cannot be opened or created.
    #[error("cannot open the store {path}: {error}; {}", advice(error))]
    Open {
        /// The store.
        path: PathBuf,
        /// Why.
        error: rusqlite::Error,
    },
    /// Reading or writing failed: a full disk, a damaged file.
    #[error("the store {path} failed: {error}; {}", advice(error))]
    Failed {
        /// The store.
        path: PathBuf,
        /// Why.
        error: rusqlite::Error,
    },
}

impl StoreError {
    fn code(&self) -> Option<ErrorCode> {
        match self {
            StoreError::Open { error, .. } | StoreError::Failed { error, .. } => error.sqlite_error_code(),
            _ => None,
        }
    }

    /// Whether the file does not hold a store, or no longer does.
    pub fn is_damaged(&self) -> bool {
        let damaged = matches!(self.code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase));
        damaged || matches!(self, StoreError::WrongFormat { .. })
    }

    /// Whether the file or its directory may not be opened or written.
    pub fn is_denied(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied))
    }
}

/// What to do about a failure of SQLite.
fn advice(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "make room on the disk and start again: nothing acknowledged is lost",
        Some(ErrorCode::DatabaseCorrupt) => "the file is damaged: restore it from a backup",
        Some(ErrorCode::NotADatabase) => "this is no store, or it is damaged: name another file, or restore a backup",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "see that file and directory are there and may be written by this user"
        }
        _ => "check the disk and start again: nothing acknowledged is lost",
    }
}

//! The controller's durable state: rows of (kind, key, value), changed many at a time in one transaction.
//!
//! [`fib::durable`] defines what the rows mean; the controller adds its own rows, under kinds that the network does not
//! use. [`SqliteStore`] is the store of one controller, [`EtcdStore`] that of several, one of which leads.

#[cfg(test)]
mod damage;
mod etcd;
mod log;
mod moving;
mod place;
mod salvage;
mod seal;
mod sqlite;

pub use etcd::{
    Candidate, Commit, EtcdAddress, EtcdOptions, EtcdStore, EtcdTls, Fault, Follower, Leader, Position, Watching,
};
#[cfg(feature = "kit")]
pub use etcd::{Failure, Followed, Model};
pub use fib::durable::RowChange;
pub use moving::copy;
pub use place::Place;
use rusqlite::ErrorCode;
pub use salvage::{Repaired, repair};
pub use seal::Sum;
pub use sqlite::{Checked, Copy, SqliteStore, put_back};
use std::path::{Path, PathBuf};

/// The entry in the replication log of a commit that changes nothing for followers: see `follow.proto`.
pub const NOTHING: &[u8] = &[8, 1];

/// Durable rows. One owner at a time: opening a store that another process has open is refused.
pub trait Store: Send {
    /// Every row, in the order of kind and key; an error if they are not those that were committed. Cost: reads the whole
    /// store; memory for a few thousand rows.
    fn rows(&self) -> Box<dyn Iterator<Item = Result<RowChange, StoreError>> + '_>;

    /// At most `n_rows` rows after the one of this kind and key, or from the first on, as they were committed last.
    /// # Errors
    /// As of [`Store::rows`].
    fn rows_after(&self, after: Option<(u8, &[u8])>, n_rows: usize) -> Result<Vec<RowChange>, StoreError> {
        let is_after =
            |row: &Result<RowChange, _>| row.as_ref().is_ok_and(|row| Some((row.kind, &row.key[..])) <= after);
        self.rows().skip_while(is_after).take(n_rows).collect()
    }

    /// The term and the sum of all rows as of the last commit.
    /// # Errors
    /// As of [`Store::rows`].
    fn sealed(&self) -> Result<(u64, Sum), StoreError> {
        let (mut sum, mut scratch) = (Sum::default(), Vec::new());
        for row in self.rows() {
            sum.add_row(&row?, &mut scratch);
        }
        Ok((self.term(), sum))
    }

    /// Applies all changes in one transaction: after success they survive a crash; after a failure none is applied.
    /// A later change of a row wins over an earlier one.
    /// # Errors
    /// [`StoreError::Failed`]; the store is as before.
    fn commit(&mut self, changes: &[RowChange]) -> Result<(), StoreError>;

    /// As [`Store::commit`]. `told`, in a store with followers, is the entry in the replication log: see [`Store::has_followers`].
    /// Without it followers read all rows again.
    /// # Errors
    /// As of [`Store::commit`].
    fn commit_told(&mut self, changes: &[RowChange], told: &[u8]) -> Result<(), StoreError> {
        let _ = told;
        self.commit(changes)
    }

    /// Whether other controllers may follow the commits.
    fn has_followers(&self) -> bool {
        false
    }

    /// The number of the last commit, as followers count.
    fn n_commits(&self) -> u64 {
        0
    }

    /// The term of this owner: greater than that of every owner of this store before. The owner of a copy may have had a
    /// greater one: see [`Store::raise_term`].
    fn term(&self) -> u64;

    /// The owner stops in order: everything durable is brought together, so that the store can be copied.
    /// # Errors
    /// [`StoreError::Failed`]; nothing is lost.
    fn close(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Sets the term that the next commit makes durable.
    fn set_term(&mut self, term: u64);

    /// Raises the term, durably, to at least this.
    /// # Errors
    /// [`StoreError::Failed`]; the term is as before.
    fn raise_term(&mut self, term: u64) -> Result<(), StoreError> {
        let before = self.term();
        self.set_term(before.max(term));
        self.commit_told(&[], NOTHING).inspect_err(|_| self.set_term(before))
    }
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
    /// A copy would replace something that exists.
    #[error("{path} exists; name a file that does not")]
    Exists {
        /// What exists.
        path: PathBuf,
    },
    /// The file does not hold what was written.
    #[error(
        "the store {path} is damaged: {what}. `fibula store check` lists the damage; restore it from a backup, or see what `fibula store repair` can save"
    )]
    Damaged {
        /// The store.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The remaining rows make no network.
    #[error("nothing can be saved from the remains of {path}: {what}; restore a backup")]
    BeyondRepair {
        /// The store.
        path: PathBuf,
        /// What is lost.
        what: String,
    },
    /// Transactions that were acknowledged are neither in the file nor in its log.
    #[error(
        "the store {path} has {has} transactions and {expected} were acknowledged: {missing} are missing, and its log {path}-log cannot bring them back. Restore the newest backup, or see what `fibula store repair` can save; if this file is an older copy that you put here on purpose, remove that log"
    )]
    Behind {
        /// The store.
        path: PathBuf,
        /// Transactions in the file.
        has: u64,
        /// Transactions acknowledged.
        expected: u64,
        /// How many are missing.
        missing: u64,
    },
    /// SQLite's file is missing or empty, and what lies beside it belongs to a former store.
    #[error(
        "the store {path} is {}, and its {beside} still exists: put the file back, or restore a backup with `fibula store restore`. To start with an empty store, move that file away: the contents of the store are then lost",
        if path.exists() { "empty" } else { "missing" }
    )]
    FileMissing {
        /// The store.
        path: PathBuf,
        /// One of its other files.
        beside: PathBuf,
    },
    /// The log is missing, and the file alone may not be all of the store.
    #[error(
        "the store {path} was not closed properly, and its log {path}-log is missing, so acknowledged changes may be missing: put the log back, or restore a backup"
    )]
    LogMissing {
        /// The store.
        path: PathBuf,
    },
    /// The log is damaged, or belongs to another store or another state of it.
    #[error(
        "the log {path}-log does not belong to the store {path}, or is damaged, so acknowledged changes may be missing: put the right one back, or restore a backup with `fibula store restore`"
    )]
    WrongLog {
        /// The store.
        path: PathBuf,
    },
    /// etcd refuses, or does not answer.
    #[error("{store} failed: {what}; {}", fault.advice())]
    Etcd {
        /// The store.
        store: String,
        /// The kind of failure.
        fault: Fault,
        /// etcd's words, and which member's.
        what: String,
    },
    /// Another controller leads: this one may not write.
    #[error("this controller does not lead on {store}: {leader}. Start it again, and it follows")]
    NotLeader {
        /// The store.
        store: String,
        /// Who leads, as far as is known.
        leader: String,
    },
    /// This controller led and may no longer.
    #[error("this controller no longer leads on {store}: {why}. Start it again, and it follows")]
    LostLead {
        /// The store.
        store: String,
        /// How it was noticed.
        why: String,
    },
    /// The contents of the store cannot be used.
    #[error("the contents of the store cannot be used: {what}")]
    Unusable {
        /// Why.
        what: String,
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

    /// What an error of SQLite means while a store is read: a disk's error, or another owner; otherwise damage.
    fn reading(path: &Path, error: rusqlite::Error) -> StoreError {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse { path },
            Some(
                ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied,
            ) => StoreError::Open { path, error },
            _ => StoreError::Damaged { path, what: error.to_string() },
        }
    }

    /// Whether the file does not hold a store, or no longer does, or not all of it.
    pub fn is_damaged(&self) -> bool {
        let damaged = matches!(self.code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase));
        damaged
            || matches!(
                self,
                StoreError::WrongFormat { .. }
                    | StoreError::Damaged { .. }
                    | StoreError::BeyondRepair { .. }
                    | StoreError::Behind { .. }
                    | StoreError::FileMissing { .. }
                    | StoreError::LogMissing { .. }
                    | StoreError::WrongLog { .. }
            )
    }

    /// Whether the file or its directory may not be opened or written.
    pub fn is_denied(&self) -> bool {
        matches!(self, StoreError::Etcd { fault: Fault::Denied, .. })
            || matches!(self.code(), Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied))
    }
}

/// What to do about a failure of SQLite.
fn advice(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "make room on the disk and start again: nothing acknowledged is lost",
        Some(ErrorCode::DatabaseCorrupt) => "the file is damaged: restore it from a backup",
        Some(ErrorCode::NotADatabase) => {
            "this is not a store, or it is damaged: name another file, restore a backup, or see what `fibula store repair` can save"
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "check that file and directory exist and are writable for this user"
        }
        _ => "check the disk (the kernel's log); the next start finds out whether anything acknowledged is missing",
    }
}

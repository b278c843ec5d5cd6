//! A store that is written whole, in one file, and gets its name when it is complete and synced.

use super::super::{RowChange, Store, StoreError};
use super::{FORMAT, SqliteStore, of_io};
use crate::store::log;
use crate::store::seal::Sum;
use api::crash::step;
use api::seam::{Mistake, mistaken};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The format of a copy that is not complete.
const PARTIAL: &str = "fibula rib, incomplete";

/// Rows in one transaction.
const COPIED_ROWS: usize = 20_000;

/// A copy in the making, beside the place where it goes. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub struct Copy {
    to: PathBuf,
    partial: PathBuf,
    /// Until it is finished.
    store: Option<SqliteStore>,
    rows: Vec<RowChange>,
    is_finished: bool,
}

impl Copy {
    /// Begins a copy at `to`.
    /// # Errors
    /// [`StoreError::Exists`]; the file cannot be created.
    pub fn begin(to: &Path) -> Result<Copy, StoreError> {
        if to.exists() {
            return Err(StoreError::Exists { path: to.to_owned() });
        }
        let partial = with_suffix(to, if mistaken(Mistake::CopyInPlace) { "" } else { ".partial" });
        let to = to.to_owned();
        let mut copy = Copy { to, partial, store: None, rows: Vec::new(), is_finished: false };
        copy.remove()?;
        // A part of the rows must not open as a store, in case a controller is started with it.
        let format = if mistaken(Mistake::PartsLookWhole) { FORMAT } else { PARTIAL };
        copy.store = Some(SqliteStore::open_as(&copy.partial, Duration::ZERO, format)?);
        Ok(copy)
    }

    /// Puts or deletes a row. A later change of a row wins over an earlier one.
    /// # Errors
    /// [`StoreError::Failed`].
    pub fn put(&mut self, row: RowChange) -> Result<(), StoreError> {
        self.rows.push(row);
        if self.rows.len() >= COPIED_ROWS { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.store.as_mut().map_or(Ok(()), |store| store.commit(&self.rows))?;
        self.rows.clear();
        Ok(())
    }

    /// Gives the copy its name if it has the rows of `sum`. Returns their number.
    /// # Errors
    /// [`StoreError::Damaged`] unless its rows are those of `sum`; it cannot be written.
    pub fn finish(mut self, term: u64, sum: Sum) -> Result<u64, StoreError> {
        if let Some(store) = &mut self.store {
            store.term = term;
        }
        self.write()?;
        if let Some(mut store) = self.store.take() {
            step("copy.complete", || store.put_format(FORMAT)).map_err(|error| self.of_sqlite(error))?;
            store.close()?;
            let got = store.seal.sum;
            if got != sum {
                let what =
                    format!("{} rows arrived and {} were sent, or their contents differ", got.n_rows, sum.n_rows);
                return Err(StoreError::Damaged { path: self.partial.clone(), what });
            }
        }
        self.remove_beside()?;
        step("copy.rename", || std::fs::rename(&self.partial, &self.to))
            .and_then(|()| step("copy.directory.sync", || File::open(directory_of(&self.to))?.sync_all()))
            .map_err(|error| self.failed(&error))?;
        self.is_finished = true;
        Ok(sum.n_rows)
    }

    fn remove(&self) -> Result<(), StoreError> {
        self.remove_beside()?;
        self.remove_one(&self.partial)
    }

    fn remove_beside(&self) -> Result<(), StoreError> {
        let beside = [with_suffix(&self.partial, "-wal"), log::path_of(&self.partial)];
        beside.iter().try_for_each(|path| self.remove_one(path))
    }

    fn remove_one(&self, path: &Path) -> Result<(), StoreError> {
        match step("copy.remove", || std::fs::remove_file(path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.failed(&error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, error: &std::io::Error) -> StoreError {
        self.of_sqlite(of_io(error))
    }

    fn of_sqlite(&self, error: rusqlite::Error) -> StoreError {
        StoreError::Failed { path: self.to.clone(), error }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.store = None;
        if !self.is_finished {
            let _ = self.remove();
        }
    }
}

pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(path.as_os_str());
    path.push(suffix);
    path.into()
}

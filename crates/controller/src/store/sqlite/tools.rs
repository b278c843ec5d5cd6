//! Checking, copying and putting back a store whose controller is stopped.

use super::super::{Store, StoreError};
use super::copy::{Copy, directory_of, with_suffix};
use super::{Connection, RowHash, SqliteStore, Sum, cannot_open, hex, of_io};
use crate::store::log;
use api::crash::step;
use serde::Serialize;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Damaged rows that are listed.
const LISTED: usize = 1000;

/// The contents of a store, and its damage.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Checked {
    /// Rows that are there.
    pub rows: u64,
    /// Rows that were committed.
    pub committed_rows: u64,
    /// Transactions since the store was made.
    pub transactions: u64,
    /// The rows whose checksums are wrong, by kind and key; 1,000 at most.
    pub damaged_rows: Vec<String>,
    /// Whether rows are missing, or older than they were.
    pub differs_from_seal: bool,
    /// What SQLite finds wrong with its file; empty if nothing is.
    pub file: Vec<String>,
}

impl Checked {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.damaged_rows.is_empty() && !self.differs_from_seal && self.file.is_empty()
    }
}

impl SqliteStore {
    /// Opens the store of a stopped controller; unlike [`SqliteStore::open`] it must be there.
    /// # Errors
    /// As there.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        File::open(path).map_err(|error| StoreError::Open { path: path.to_owned(), error: cannot_open(&error) })?;
        SqliteStore::open(path, Duration::ZERO)
    }

    /// Reads everything, and goes on where something is damaged. Writes nothing.
    /// # Errors
    /// [`StoreError`] when not even that is possible.
    pub fn check(&self) -> Result<Checked, StoreError> {
        let check = || -> rusqlite::Result<Checked> {
            let mut sum = Sum::default();
            let mut damaged_rows: Vec<String> = Vec::new();
            let mut damaged = |row: String| {
                if damaged_rows.len() < LISTED {
                    damaged_rows.push(row);
                }
            };
            let rows = "SELECT kind, key, value, sum FROM rows WHERE (kind, key) > (0, x'')";
            let mut statement = self.connection.prepare(rows)?;
            let mut rows = statement.query([])?;
            let mut scratch = Vec::new();
            let stopped = loop {
                let row = match rows.next() {
                    Ok(Some(row)) => row,
                    Ok(None) => break None,
                    Err(error) => break Some(error.to_string()),
                };
                let row = || -> rusqlite::Result<(u8, Vec<u8>, Vec<u8>, i64)> {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                };
                let (kind, key, value, checksum) = match row() {
                    Ok(row) => row,
                    Err(error) => {
                        damaged(format!("another type: {error}"));
                        continue;
                    }
                };
                let hash = RowHash::of(kind, &key, &value, &mut scratch);
                sum.add(hash);
                if hash.checksum() != checksum {
                    damaged(format!("kind {kind}, key {}", hex(&key)));
                }
            };
            let mut file = integrity(&self.connection)?;
            file.extend(stopped);
            Ok(Checked {
                rows: sum.n_rows,
                committed_rows: self.seal.sum.n_rows,
                transactions: self.seal.n_commits,
                damaged_rows,
                differs_from_seal: sum != self.seal.sum,
                file,
            })
        };
        check().map_err(|error| StoreError::reading(&self.path, error))
    }

    /// Writes a copy to `to`, which must not exist: one file, verified while it is read, and synced. Returns the number
    /// of rows.
    /// # Errors
    /// [`StoreError::Exists`]; the store is damaged; the copy cannot be written. There is no copy then.
    pub fn copy_to(&self, to: &Path) -> Result<u64, StoreError> {
        let mut copy = Copy::begin(to)?;
        for row in self.rows() {
            copy.put(row?)?;
        }
        copy.finish(self.seal.term, self.seal.sum)
    }
}

/// Puts a copy in the place of a store. What was there is renamed to `….replaced`, with a number if that exists. Returns
/// the number of rows.
/// # Errors
/// A controller has the store, or the copy is damaged: nothing changed. It cannot be written: what was there may have its
/// new names.
pub fn put_back(from: &Path, path: &Path) -> Result<u64, StoreError> {
    let failed = |error: &std::io::Error| StoreError::Failed { path: path.to_owned(), error: of_io(error) };
    let directory = directory_of(path);
    std::fs::create_dir_all(directory).map_err(|error| failed(&error))?;
    // Held until all files have their new names.
    let log_path = log::path_of(path);
    let had_log = log_path.exists();
    let held = log::Log::open(&log_path).map_err(|error| failed(&error))?;
    if held.is_none() {
        return Err(StoreError::InUse { path: path.to_owned() });
    }
    let restored = with_suffix(path, ".restored");
    let n_rows = match verified_copy(from, &restored) {
        Ok(n_rows) => n_rows,
        Err(error) => {
            if !had_log {
                step("copy.remove", || std::fs::remove_file(&log_path)).map_err(|error| failed(&error))?;
            }
            return Err(error);
        }
    };
    let names = (1..).map(|i| if i == 1 { ".replaced".to_owned() } else { format!(".replaced.{i}") });
    let mut free = names.map(|name| with_suffix(path, &name));
    let is_free = |base: &PathBuf| ["", "-wal", "-log"].iter().all(|suffix| !with_suffix(base, suffix).exists());
    let replaced = free.find(is_free).unwrap_or_else(|| with_suffix(path, ".replaced"));
    let rename = |suffix: &str| {
        let old = with_suffix(path, suffix);
        if !old.exists() {
            return Ok(());
        }
        step("restore.rename", || std::fs::rename(&old, with_suffix(&replaced, suffix)))
    };
    // The log last: a start in between is refused, since the log is not that of the file.
    ["", "-wal", "-shm"]
        .iter()
        .try_for_each(|suffix| rename(suffix))
        .and_then(|()| step("restore.rename", || std::fs::rename(&restored, path)))
        .and_then(|()| rename("-log"))
        .and_then(|()| step("restore.directory.sync", || File::open(directory)?.sync_all()))
        .map_err(|error| failed(&error))?;
    Ok(n_rows)
}

/// Copies a copy, and leaves no logs beside it that were not there.
fn verified_copy(from: &Path, to: &Path) -> Result<u64, StoreError> {
    let failed =
        |path: &Path, error: &std::io::Error| StoreError::Failed { path: path.to_owned(), error: of_io(error) };
    let logs = [with_suffix(from, "-wal"), log::path_of(from)].map(|path| (path.exists(), path));
    let copied = SqliteStore::open_existing(from).and_then(|copy| {
        if to.exists() {
            step("copy.remove", || std::fs::remove_file(to)).map_err(|error| failed(to, &error))?;
        }
        copy.copy_to(to)
    });
    for (_, log) in logs.iter().filter(|(was_there, log)| !was_there && log.exists()) {
        step("copy.remove", || std::fs::remove_file(log)).map_err(|error| failed(log, &error))?;
    }
    copied
}

fn integrity(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA integrity_check(100)")?;
    let found = statement.query_map([], |r| r.get::<_, String>(0))?;
    found.filter(|line| !matches!(line.as_deref(), Ok("ok"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::RowChange;

    #[test]
    fn copy_is_the_store_in_one_file_and_goes_back() {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["rib.sqlite", "copy"].map(|name| directory.path().join(name));
        let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
        let row = |i: u32| RowChange { kind: 5, key: i.to_be_bytes().to_vec(), value: Some(vec![i as u8; 50]) };
        store.commit(&(0..50_000).map(row).collect::<Vec<_>>()).unwrap();
        store.raise_term(77).unwrap();
        assert!(store.check().unwrap().is_sound());
        assert_eq!(store.copy_to(&copy).unwrap(), 50_000);
        assert!(matches!(store.copy_to(&copy), Err(StoreError::Exists { .. })));
        store.commit(&[row(99_999)]).unwrap();
        assert!(matches!(put_back(&copy, &path), Err(StoreError::InUse { .. })));
        drop(store);

        assert_eq!(put_back(&copy, &path).unwrap(), 50_000);
        assert!(directory.path().join("rib.sqlite.replaced-log").exists(), "nothing is thrown away");
        assert!(!log::path_of(&copy).exists() && !with_suffix(&copy, "-wal").exists());
        let store = SqliteStore::open(&path, Duration::ZERO).unwrap();
        assert_eq!((store.rows().map(Result::unwrap).count(), store.term()), (50_000, 78));
        drop(store);
        assert_eq!(put_back(&copy, &path).unwrap(), 50_000);
        assert!(directory.path().join("rib.sqlite.replaced.2").exists(), "nothing is thrown away");
    }

    #[test]
    fn check_names_the_damaged_row_and_a_copy_of_it_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rib.sqlite");
        let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
        let row = |i: u8| RowChange { kind: 5, key: vec![0xab, i], value: Some(vec![i; 50]) };
        store.commit(&(0..200).map(row).collect::<Vec<_>>()).unwrap();
        store.close().unwrap();
        drop(store);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(50).position(|window| window == [123; 50]).unwrap();
        bytes[at + 7] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        let store = SqliteStore::open_existing(&path).unwrap();
        let checked = store.check().unwrap();
        assert_eq!(checked.damaged_rows, ["kind 5, key ab7b"]);
        assert!(checked.differs_from_seal && checked.file.is_empty() && !checked.is_sound());
        let copy = directory.path().join("copy");
        assert!(store.copy_to(&copy).unwrap_err().is_damaged());
        assert!(!copy.exists());
        assert!(SqliteStore::open_existing(&directory.path().join("missing")).unwrap_err().is_denied());
    }
}

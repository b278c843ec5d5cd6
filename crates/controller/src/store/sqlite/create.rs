//! A new store, which gets its name when it is whole and synced: a power cut leaves none, or one that can be opened.

use super::copy::{directory_of, with_suffix};
use super::{Seal, StoreError, Sum, cannot_open, checkpoint, of_io, open_connection, put_seal};
use api::crash::step;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates a store without rows where there is none, readable by its owner only. The caller must hold its log.
/// # Errors
/// [`StoreError`]; there is none then.
pub(super) fn create(path: &Path, format: &str) -> Result<(), StoreError> {
    // A link to where the store is to be stays one.
    let path = &std::fs::read_link(path).map_or_else(|_| path.to_owned(), |to| directory_of(path).join(to));
    let new = with_suffix(path, ".new");
    let open = |error: &io::Error| StoreError::Open { path: path.to_owned(), error: cannot_open(error) };
    let failed = |error| StoreError::Failed { path: path.to_owned(), error };
    // What a power cut left.
    let beside = ["", "-wal", "-journal"].map(|suffix| with_suffix(&new, suffix));
    beside.iter().try_for_each(|path| remove(path)).map_err(|error| open(&error))?;
    // SQLite gives its files the mode of this one.
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    step("store.create", || options.open(&new)).map_err(|error| open(&error))?;
    step("sqlite.commit", || put_tables(&new, format)).map_err(failed)?;
    let [_, wal, _] = &beside;
    remove(wal)
        .and_then(|()| step("store.sync", || File::open(&new)?.sync_all()))
        .and_then(|()| step("store.rename", || std::fs::rename(&new, path)))
        .and_then(|()| step("store.directory.sync", || File::open(directory_of(path))?.sync_all()))
        .map_err(|error| failed(of_io(&error)))
}

/// The tables and the seal, all in one file.
fn put_tables(path: &Path, format: &str) -> rusqlite::Result<()> {
    let connection = open_connection(path)?;
    connection.execute_batch(
        "BEGIN IMMEDIATE;
         CREATE TABLE store (item TEXT PRIMARY KEY, value) WITHOUT ROWID;
         CREATE TABLE rows (
             kind INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL,
             PRIMARY KEY (kind, key)
         ) WITHOUT ROWID;",
    )?;
    connection.execute("INSERT INTO store VALUES ('format', ?)", [format])?;
    put_seal(&connection, &Seal { store: rand::random(), term: 0, n_commits: 0, sum: Sum::default(), closed: true })?;
    connection.execute_batch("COMMIT")?;
    checkpoint(&connection).map(drop)
}

fn remove(path: &Path) -> io::Result<()> {
    match step("store.remove", || std::fs::remove_file(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

//! The store in one SQLite file: WAL, `synchronous=FULL`, exclusive.
//!
//! Cost: one fsync per transaction, plus about 2 µs per row, in a B-tree ordered by (kind, key).
//! The exclusive lock is the kernel's and ends with the process: a killed controller leaves none behind.

use super::{RowChange, Store, StoreError};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FORMAT: &str = "fibula rib 1";

/// Rows fetched at a time by [`Store::rows`].
const PAGE_ROWS: usize = 4096;

/// Interval between attempts to open a store that is in use.
const RETRY: Duration = Duration::from_millis(50);

/// Page cache. Pages that are not in it are in the file cache of the operating system, which gives them back when
/// memory is short.
const CACHE_KIB: i64 = 16 << 10;

/// A store in a file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    term: u64,
}

impl SqliteStore {
    /// Opens the store at `path`, or creates it, readable by its owner only since it holds the secret hash key. Waits
    /// for up to `patience` for another owner to end: one that was just killed holds it a moment longer.
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::WrongFormat`], [`StoreError::Open`].
    pub fn open(path: &Path, patience: Duration) -> Result<Self, StoreError> {
        let open_error = |error| StoreError::Open { path: path.to_owned(), error };
        create_private(path).map_err(open_error)?;
        let start = Instant::now();
        loop {
            match Self::open_connection(path) {
                Ok(store) => return Ok(store),
                Err(OpenError::Sqlite(source)) if !is_busy(&source) => return Err(open_error(source)),
                Err(OpenError::Format(got)) => {
                    return Err(StoreError::WrongFormat { path: path.to_owned(), got, expected: FORMAT });
                }
                Err(_) if start.elapsed() >= patience => return Err(StoreError::InUse { path: path.to_owned() }),
                #[expect(clippy::disallowed_methods, reason = "a lock of the file system has no wait with a timeout")]
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    fn open_connection(path: &Path) -> Result<Self, OpenError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.execute_batch(
            "BEGIN IMMEDIATE;
             CREATE TABLE IF NOT EXISTS store (item TEXT PRIMARY KEY, value) WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS rows (
                 kind INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)
             ) WITHOUT ROWID;",
        )?;
        let format: Option<String> =
            connection.query_row("SELECT value FROM store WHERE item = 'format'", [], |r| r.get(0)).optional()?;
        match format {
            None => drop(connection.execute("INSERT INTO store VALUES ('format', ?)", [FORMAT])?),
            Some(format) if format == FORMAT => {}
            Some(format) => return Err(OpenError::Format(format)),
        }
        // A count, not the clock: a clock that was ahead once would be ahead of every later start.
        connection.execute("INSERT INTO store VALUES ('term', 1) ON CONFLICT DO UPDATE SET value = value + 1", [])?;
        let term: i64 = connection.query_row("SELECT value FROM store WHERE item = 'term'", [], |r| r.get(0))?;
        connection.execute_batch("COMMIT")?;
        Ok(Self { connection, path: path.to_owned(), term: term.cast_unsigned() })
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        StoreError::Failed { path: self.path.clone(), error }
    }

    /// The rows after `last`, at most [`PAGE_ROWS`], in order.
    fn page(&self, last: Option<&RowChange>) -> rusqlite::Result<Vec<RowChange>> {
        let (kind, key) = last.map_or((-1, &[][..]), |row| (i64::from(row.kind), &row.key));
        let mut statement = self.connection.prepare_cached(
            "SELECT kind, key, value FROM rows WHERE (kind, key) > (?, ?) ORDER BY kind, key LIMIT ?",
        )?;
        let rows = statement.query_map(params![kind, key, PAGE_ROWS as i64], |r| {
            Ok(RowChange { kind: r.get(0)?, key: r.get(1)?, value: Some(r.get(2)?) })
        })?;
        rows.collect()
    }

    fn try_commit(&mut self, changes: &[RowChange]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached(
                "INSERT INTO rows VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value",
            )?;
            let mut delete = transaction.prepare_cached("DELETE FROM rows WHERE kind = ? AND key = ?")?;
            for change in changes {
                match &change.value {
                    Some(value) => put.execute(params![change.kind, change.key, value])?,
                    None => delete.execute(params![change.kind, change.key])?,
                };
            }
        }
        transaction.commit()
    }
}

impl Store for SqliteStore {
    fn rows(&self) -> Box<dyn Iterator<Item = Result<RowChange, StoreError>> + '_> {
        let mut page = Vec::new().into_iter();
        let mut last: Option<RowChange> = None;
        let mut ended = false;
        Box::new(std::iter::from_fn(move || {
            if page.len() == 0 && !ended {
                match self.page(last.as_ref()) {
                    Ok(rows) => {
                        ended = rows.len() < PAGE_ROWS;
                        last = rows.last().cloned();
                        page = rows.into_iter();
                    }
                    Err(source) => {
                        ended = true;
                        return Some(Err(self.failed(source)));
                    }
                }
            }
            page.next().map(Ok)
        }))
    }

    fn commit(&mut self, changes: &[RowChange]) -> Result<(), StoreError> {
        self.try_commit(changes).map_err(|source| self.failed(source))
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn raise_term(&mut self, term: u64) -> Result<(), StoreError> {
        let stored = "UPDATE store SET value = max(value, ?) WHERE item = 'term'";
        self.connection.execute(stored, [term.cast_signed()]).map_err(|source| self.failed(source))?;
        self.term = self.term.max(term);
        Ok(())
    }
}

enum OpenError {
    Sqlite(rusqlite::Error),
    Format(String),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        OpenError::Sqlite(error)
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Creates the file, and its directory, if need be; only the owner can read it. SQLite gives its log the same mode.
fn create_private(path: &Path) -> Result<(), rusqlite::Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let create = || {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
    };
    create().map(drop).map_err(|e| {
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN), Some(e.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(kind: u8, key: &[u8], value: &[u8]) -> RowChange {
        RowChange { kind, key: key.to_vec(), value: Some(value.to_vec()) }
    }

    fn delete(kind: u8, key: &[u8]) -> RowChange {
        RowChange { kind, key: key.to_vec(), value: None }
    }

    fn all(store: &SqliteStore) -> Vec<RowChange> {
        store.rows().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn committed_rows_are_there_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sub/rib.sqlite");
        let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
        let term = store.term();
        store.commit(&[put(1, b"a", b"1"), put(2, b"a", b"2"), put(1, b"b", b""), put(1, b"a", b"3")]).unwrap();
        store.commit(&[delete(2, b"a"), delete(9, b"missing")]).unwrap();
        drop(store);
        let store = SqliteStore::open(&path, Duration::ZERO).unwrap();
        assert_eq!(all(&store), [put(1, b"a", b"3"), put(1, b"b", b"")]);
        assert!(store.term() > term);
    }

    #[test]
    fn rows_come_whole_over_several_pages() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(&directory.path().join("rib.sqlite"), Duration::ZERO).unwrap();
        let n_rows = 2 * PAGE_ROWS + 1;
        let rows: Vec<RowChange> = (0..n_rows as u32).map(|i| put((i % 3) as u8, &i.to_be_bytes(), b"v")).collect();
        store.commit(&rows).unwrap();
        let mut expected = rows.clone();
        expected.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
        assert!(all(&store) == expected);
    }

    #[test]
    fn second_owner_is_refused_while_the_first_lives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rib.sqlite");
        let first = SqliteStore::open(&path, Duration::ZERO).unwrap();
        assert!(matches!(SqliteStore::open(&path, Duration::ZERO), Err(StoreError::InUse { .. })));
        drop(first);
        SqliteStore::open(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn other_files_are_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        let text = "these are somebody's notes, long enough for a header of one hundred bytes.".repeat(20);
        std::fs::write(&path, &text).unwrap();
        let error = SqliteStore::open(&path, Duration::ZERO).unwrap_err();
        assert!(matches!(error, StoreError::Open { .. }) && error.to_string().contains("name another file"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn full_disk_says_so_and_keeps_what_was_committed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rib.sqlite");
        let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
        store.connection.pragma_update(None, "max_page_count", 40).unwrap();
        let mut committed = Vec::new();
        let error = loop {
            let rows: Vec<RowChange> = (0..10).map(|i| put(1, &[committed.len() as u8, i], &[7; 1000])).collect();
            match store.commit(&rows) {
                Ok(()) => committed.extend(rows),
                Err(error) => break error,
            }
        };
        assert!(!committed.is_empty() && error.to_string().contains("make room on the disk"), "{error}");
        drop(store);
        let mut kept = all(&SqliteStore::open(&path, Duration::ZERO).unwrap());
        committed.sort_by(|a, b| a.key.cmp(&b.key));
        kept.sort_by(|a, b| a.key.cmp(&b.key));
        assert!(kept == committed);
    }

    #[test]
    fn damaged_file_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rib.sqlite");
        let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
        let rows: Vec<RowChange> = (0..1000_u32).map(|i| put(1, &i.to_be_bytes(), &[7; 100])).collect();
        store.commit(&rows).unwrap();
        drop(store);
        let whole = std::fs::read(&path).unwrap();
        let read =
            || SqliteStore::open(&path, Duration::ZERO).and_then(|store| store.rows().collect::<Result<Vec<_>, _>>());
        assert_eq!(read().unwrap().len(), 1000);
        for at in [0, 4096, whole.len() / 2 / 4096 * 4096] {
            let mut damaged = whole.clone();
            damaged[at..at + 64].fill(0xa5);
            std::fs::write(&path, damaged).unwrap();
            let error = read().unwrap_err();
            assert!(error.is_damaged() && error.to_string().contains("backup"), "{at}: {error}");
        }
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(read().unwrap_err().is_damaged());
    }

    #[test]
    fn store_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rib.sqlite");
        let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
        store.commit(&[put(1, b"key", b"secret")]).unwrap();
        for file in std::fs::read_dir(directory.path()).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o077, 0);
        }
    }
}

//! The store in a SQLite file, with a [log](super::log) beside it.
//!
//! SQLite has the rows, each with a checksum, and the [seal](super::seal) over them. The log has the transactions since
//! SQLite's file was last complete, and is what makes a transaction durable: it is synced before SQLite commits. SQLite
//! itself syncs at checkpoints only (WAL, `synchronous=NORMAL`).
//!
//! A start reads all rows, and compares them with their checksums and with the seal, and the seal with the log. What
//! SQLite lost and the log has is carried out again. Otherwise the start is refused, and the files stay as they are.
//!
//! Cost: one fsync per transaction, plus about 2 µs per row, in a B-tree ordered by (kind, key).
//! The lock on the log is the kernel's and ends with the process: a killed controller leaves none behind.

mod connection;
mod copy;
mod create;
#[cfg(feature = "crash-points")]
mod system_calls;
mod tools;

pub use copy::Copy;
pub use tools::{Checked, put_back};

use connection::{add_functions, apply, checkpoint, lock, open_connection, put_seal};

use super::log::{self, Contents, Log, Record};
use super::seal::{RowHash, SEAL_ROW, Seal, Sum};
use super::{RowChange, Store, StoreError};
use api::crash::step;
use api::seam::{Mistake, mistaken};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const FORMAT: &str = "fibula rib 2";

/// Without checksums, seal and log.
const FORMAT_1: &str = "fibula rib 1";

/// Rows fetched at a time by [`Store::rows`].
const PAGE_ROWS: usize = 4096;

/// Interval between attempts to open a store that is in use.
const RETRY: Duration = Duration::from_millis(50);

/// A store in a file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    log: Log,
    /// As of the last commit.
    seal: Seal,
    /// The sum of the rows in a transaction, which SQL functions keep.
    sum: Arc<Mutex<Sum>>,
    /// The generation that the log begins before the next transaction: it has no header yet, or damaged or torn blocks.
    next_log: Option<u32>,
    /// The term of this owner.
    term: u64,
}

impl SqliteStore {
    /// Opens the store at `path`, or creates it, readable by its owner only since it holds the secret hash key. Waits
    /// for up to `patience` for another owner to end: one that was just killed holds it a moment longer.
    ///
    /// Rows are compared with their checksums by [`Store::rows`].
    /// # Errors
    /// [`StoreError`]; the files are as they were, unless the store was of an earlier format.
    pub fn open(path: &Path, patience: Duration) -> Result<Self, StoreError> {
        Self::open_as(path, patience, FORMAT)
    }

    /// As [`SqliteStore::open`], in this format.
    fn open_as(path: &Path, patience: Duration, format: &str) -> Result<Self, StoreError> {
        let start = Instant::now();
        let wait = || {
            if start.elapsed() >= patience {
                return Err(StoreError::InUse { path: path.to_owned() });
            }
            #[expect(clippy::disallowed_methods, reason = "a lock of the file system has no wait with a timeout")]
            std::thread::sleep(RETRY);
            Ok(())
        };
        let opened = |error| StoreError::Open { path: path.to_owned(), error };
        check_head(path).map_err(opened)?;
        let log_path = log::path_of(path);
        let log = loop {
            match Log::open(&log_path).map_err(|error| opened(cannot_open(&error)))? {
                Some(log) => break log,
                None => wait()?,
            }
        };
        let found = log.read().map_err(|error| opened(cannot_open(&error)))?;
        // Only the holder of the log creates the store.
        if is_empty(path) {
            // SQLite's log, too, would be taken for the new store's.
            let wal = copy::with_suffix(path, "-wal");
            let beside = if found.is_some() { Some(log_path) } else { Some(wal).filter(|wal| !is_empty(wal)) };
            if let Some(beside) = beside {
                return Err(StoreError::FileMissing { path: path.to_owned(), beside });
            }
            create::create(path, format)?;
        }
        let connection = loop {
            match open_connection(path) {
                Ok(connection) => break connection,
                Err(error) if is_busy(&error) => wait()?,
                Err(error) => return Err(StoreError::reading(path, error)),
            }
        };
        let sum = Arc::default();
        add_functions(&connection, &sum).map_err(opened)?;
        let seal = Seal { store: 0, term: 0, n_commits: 0, sum: Sum::default(), closed: true };
        let mut store = Self { connection, path: path.to_owned(), log, seal, sum, next_log: None, term: 0 };
        store.read_format(found.is_none(), format)?;
        store.compare_with_log(found)?;
        store.term = store.seal.term + 1;
        Ok(store)
    }

    /// Reads the seal; brings a store of an earlier format up to date.
    fn read_format(&mut self, no_log: bool, expected: &str) -> Result<(), StoreError> {
        let reading = |error| StoreError::reading(&self.path, error);
        let tables = "SELECT count(*) FROM sqlite_schema";
        if self.connection.query_row(tables, [], |r| r.get::<_, i64>(0)).map_err(reading)? == 0 {
            return Err(self.damaged("it has no tables"));
        }
        let format: Option<String> = self
            .connection
            .query_row("SELECT value FROM store WHERE item = 'format'", [], |r| r.get(0))
            .optional()
            .map_err(reading)?;
        match format.as_deref() {
            Some(got) if got == expected => {}
            Some(FORMAT_1) if no_log => return self.upgrade(),
            Some(FORMAT_1) => return Err(StoreError::WrongLog { path: self.path.clone() }),
            got => {
                let got = got.unwrap_or_default().to_owned();
                return Err(StoreError::WrongFormat { path: self.path.clone(), got, expected: FORMAT });
            }
        }
        let seal: Option<Vec<u8>> = self
            .connection
            .query_row("SELECT value FROM rows WHERE kind = 0 AND key = x''", [], |r| r.get(0))
            .optional()
            .map_err(reading)?;
        self.seal = seal.and_then(|seal| Seal::decode(&seal)).ok_or_else(|| self.damaged("its seal cannot be read"))?;
        Ok(())
    }

    /// Adds checksums and a seal to a store of the version before.
    fn upgrade(&mut self) -> Result<(), StoreError> {
        tracing::info!(path = %self.path.display(), "the store is of an earlier version; its rows get checksums");
        let sound: String = self
            .connection
            .query_row("PRAGMA quick_check(1)", [], |r| r.get(0))
            .map_err(|error| StoreError::reading(&self.path, error))?;
        if sound != "ok" {
            return Err(self.damaged(&sound));
        }
        *lock(&self.sum) = Sum::default();
        self.seal.store = rand::random();
        let upgrade = || -> rusqlite::Result<Seal> {
            let transaction = self.connection.unchecked_transaction()?;
            let term: Option<i64> =
                transaction.query_row("SELECT value FROM store WHERE item = 'term'", [], |r| r.get(0)).optional()?;
            transaction.execute_batch(
                "ALTER TABLE rows ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
                 UPDATE rows SET sum = come(kind, key, value);
                 DELETE FROM store WHERE item = 'term';",
            )?;
            transaction.execute("UPDATE store SET value = ? WHERE item = 'format'", [FORMAT])?;
            let (term, sum) = (term.unwrap_or(0).cast_unsigned(), *lock(&self.sum));
            let seal = Seal { term, sum, ..self.seal };
            put_seal(&transaction, &seal)?;
            transaction.commit()?;
            checkpoint(&self.connection)?;
            Ok(seal)
        };
        self.seal = upgrade().map_err(|error| self.failed(error))?;
        tracing::info!(rows = self.seal.sum.n_rows, "the rows have checksums now");
        Ok(())
    }

    /// Compares the seal with the log, and carries out what SQLite lost. Does not write the log: rows are yet to be read.
    fn compare_with_log(&mut self, found: Option<Contents>) -> Result<(), StoreError> {
        let has = self.seal.n_commits;
        let Some(found) = found else {
            // The log of a store that was closed in order may be left behind when the file is copied.
            if !self.seal.closed {
                return Err(StoreError::LogMissing { path: self.path.clone() });
            }
            self.next_log = Some(1);
            return Ok(());
        };
        if found.generation == 0 || found.store != self.seal.store {
            return Err(StoreError::WrongLog { path: self.path.clone() });
        }
        if has < found.base.max(found.last) {
            self.carry_out_again(&found)?;
        } else if has > found.last && !self.seal.closed {
            return Err(StoreError::WrongLog { path: self.path.clone() });
        }
        if found.damaged {
            tracing::warn!(path = %self.path.display(), "the log of the store is damaged; nothing is missing, and a new log is started");
        }
        self.log.go_on(&found);
        // Blocks of a torn record must not be taken for some of the next one in its place.
        if has > found.last || found.damaged || found.leftover {
            self.next_log = Some(found.generation + 1);
        }
        Ok(())
    }

    /// Carries out the transactions of the log that SQLite does not have, on rows that are whole.
    fn carry_out_again(&mut self, found: &Contents) -> Result<(), StoreError> {
        let has = self.seal.n_commits;
        let records: Vec<&Record> = found.records.iter().filter(|record| record.number > has).collect();
        let is_all = records.iter().map(|record| record.number).eq(has + 1..=found.last);
        if !is_all {
            let expected = found.last.max(found.base);
            return Err(StoreError::Behind { path: self.path.clone(), has, expected, missing: expected - has });
        }
        for row in self.rows() {
            row?;
        }
        // In one transaction: a start that is refused changes nothing.
        let transaction = self.connection.unchecked_transaction().map_err(|error| self.failed(error))?;
        *lock(&self.sum) = self.seal.sum;
        let mut last = self.seal;
        for record in &records {
            let (seal, rows) = record.rows.split_last().ok_or_else(|| self.damaged("an empty record of its log"))?;
            let seal = seal.value.as_deref().and_then(Seal::decode);
            last = seal.ok_or_else(|| self.damaged("a record of its log has no seal"))?;
            apply(&transaction, rows, &self.sum).map_err(|error| self.failed(error))?;
            if *lock(&self.sum) != last.sum {
                return Err(self.damaged("its rows are not those that its log goes on from"));
            }
        }
        put_seal(&transaction, &last)
            .and_then(|()| step("sqlite.commit", || transaction.commit()))
            .map_err(|error| self.failed(error))?;
        self.seal = last;
        tracing::warn!(path = %self.path.display(), transactions = records.len(), "the log has transactions that SQLite lacks; they are applied again");
        Ok(())
    }

    /// Writes its format, in a transaction of its own.
    fn put_format(&self, format: &str) -> rusqlite::Result<()> {
        self.connection.execute("UPDATE store SET value = ? WHERE item = 'format'", [format]).map(drop)
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        StoreError::Failed { path: self.path.clone(), error }
    }

    fn damaged(&self, what: &str) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), what: what.to_owned() }
    }

    /// The rows after the one of this kind and key, at most `n_rows`, in order. Each is compared with its checksum and
    /// added to `sum`.
    fn page(&self, after: Option<(u8, &[u8])>, n_rows: usize, sum: &mut Sum) -> Result<Vec<RowChange>, StoreError> {
        let reading = |error| StoreError::reading(&self.path, error);
        let (kind, key) = after.unwrap_or((SEAL_ROW, &[]));
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT kind, key, value, sum FROM rows WHERE (kind, key) > (?, ?) ORDER BY kind, key LIMIT ?",
            )
            .map_err(reading)?;
        let rows = statement.query_map(params![kind, key, n_rows as i64], |r| {
            Ok((RowChange { kind: r.get(0)?, key: r.get(1)?, value: Some(r.get(2)?) }, r.get::<_, i64>(3)?))
        });
        let (mut page, mut scratch) = (Vec::<RowChange>::with_capacity(n_rows), Vec::new());
        for row in rows.map_err(reading)? {
            let (row, checksum) = row.map_err(reading)?;
            let hash = RowHash::of(row.kind, &row.key, row.value.as_deref().unwrap_or_default(), &mut scratch);
            let place = || format!("the row of kind {} with key {}", row.kind, hex(&row.key));
            if hash.checksum() != checksum {
                return Err(self.damaged(&format!("{} has another checksum", place())));
            }
            // A damaged tree could lead in a circle.
            let before = page.last().map(|row| (row.kind, &row.key[..])).or(after);
            if before.is_some_and(|before| before >= (row.kind, &row.key)) {
                return Err(self.damaged(&format!("{} is out of order", place())));
            }
            sum.add(hash);
            page.push(row);
        }
        Ok(page)
    }

    /// The transaction in SQLite, with its record in the log before it is committed.
    fn try_commit(&mut self, changes: &[RowChange], seal: &mut Seal) -> rusqlite::Result<()> {
        *lock(&self.sum) = self.seal.sum;
        if mistaken(Mistake::CommittedInHalves) {
            let transaction = self.connection.transaction()?;
            apply(&transaction, &changes[..changes.len() / 2], &self.sum)?;
            step("sqlite.commit", || transaction.commit())?;
        }
        let transaction = self.connection.transaction()?;
        apply(&transaction, changes, &self.sum)?;
        seal.sum = *lock(&self.sum);
        if !mistaken(Mistake::SealedAfterCommit) {
            put_seal(&transaction, seal)?;
        }
        if !mistaken(Mistake::LogNotWritten) {
            let row = seal.row();
            self.log.append(seal.n_commits, changes.iter().chain([&row])).map_err(|error| of_io(&error))?;
        }
        step("sqlite.commit", || transaction.commit())?;
        if mistaken(Mistake::SealedAfterCommit) {
            put_seal(&self.connection, seal)?;
        }
        Ok(())
    }

    /// Brings everything into SQLite's file and begins the log anew.
    fn complete_file(&mut self) -> rusqlite::Result<()> {
        if mistaken(Mistake::LogBegunEarly) {
            let generation = self.next_log.unwrap_or(self.log.generation() + 1);
            self.log.begin(self.seal.store, generation, self.seal.n_commits).map_err(|error| of_io(&error))?;
        }
        if checkpoint(&self.connection)? {
            let generation = self.next_log.unwrap_or(self.log.generation() + 1);
            let begun = self.log.begin(self.seal.store, generation, self.seal.n_commits);
            begun.map_err(|error| of_io(&error))?;
            self.next_log = None;
        }
        Ok(())
    }
}

impl Store for SqliteStore {
    /// An error, as the last item, also tells of rows that are missing.
    fn rows(&self) -> Box<dyn Iterator<Item = Result<RowChange, StoreError>> + '_> {
        let mut page = Vec::new().into_iter();
        let mut last: Option<RowChange> = None;
        let mut ended = false;
        let mut sum = Sum::default();
        Box::new(std::iter::from_fn(move || {
            if page.len() == 0 && !ended {
                let after = last.as_ref().map(|row| (row.kind, &row.key[..]));
                match self.page(after, PAGE_ROWS, &mut sum) {
                    Ok(rows) => {
                        ended = rows.len() < PAGE_ROWS;
                        last = rows.last().cloned();
                        page = rows.into_iter();
                    }
                    Err(error) => {
                        ended = true;
                        return Some(Err(error));
                    }
                }
                if ended && sum != self.seal.sum {
                    page = Vec::new().into_iter();
                    let (got, expected) = (sum.n_rows, self.seal.sum.n_rows);
                    return Some(Err(
                        self.damaged(&format!("its {got} rows are not the {expected} rows that were committed"))
                    ));
                }
            }
            page.next().map(Ok)
        }))
    }

    fn rows_after(&self, after: Option<(u8, &[u8])>, n_rows: usize) -> Result<Vec<RowChange>, StoreError> {
        self.page(after, n_rows, &mut Sum::default())
    }

    fn sealed(&self) -> Result<(u64, Sum), StoreError> {
        Ok((self.seal.term, self.seal.sum))
    }

    fn commit(&mut self, changes: &[RowChange]) -> Result<(), StoreError> {
        if self.next_log.is_some() {
            self.complete_file().map_err(|error| self.failed(error))?;
            if self.next_log.is_some() {
                return Err(StoreError::InUse { path: self.path.clone() });
            }
        }
        let n_commits = self.seal.n_commits + 1;
        let mut seal = Seal { n_commits, term: self.term, closed: false, ..self.seal };
        if let Err(error) = self.try_commit(changes, &mut seal) {
            if let Err(error) = self.log.void_last() {
                tracing::error!(%error, "the log cannot be written: the change that failed may be there after a restart");
            }
            return Err(self.failed(error));
        }
        self.log.settle();
        self.seal = seal;
        if self.log.is_full()
            && let Err(error) = self.complete_file()
        {
            tracing::warn!(%error, "the log of the store grows: its changes cannot be brought into the file yet");
        }
        Ok(())
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn set_term(&mut self, term: u64) {
        self.term = term;
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.seal.closed = true;
        let closed = put_seal(&self.connection, &self.seal).and_then(|()| self.complete_file());
        closed.map_err(|error| self.failed(error))
    }
}

pub(super) fn of_io(error: &std::io::Error) -> rusqlite::Error {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => rusqlite::ffi::SQLITE_FULL,
        _ => rusqlite::ffi::SQLITE_IOERR,
    };
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(error.to_string()))
}

pub(super) fn cannot_open(error: &std::io::Error) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN), Some(error.to_string()))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(64).map(|byte| format!("{byte:02x}")).collect()
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether there is no file, or nothing in it.
fn is_empty(path: &Path) -> bool {
    std::fs::metadata(path).map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |file| file.len() == 0)
}

/// Whether this may be a store, or become one. Creates its directory, if need be.
fn check_head(path: &Path) -> Result<(), rusqlite::Error> {
    use std::io::Read as _;
    let mut head = Vec::new();
    let mut read = || {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        match std::fs::File::open(path) {
            Ok(file) => file.take(20).read_to_end(&mut head).map(drop),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    };
    read().map_err(|error| cannot_open(&error))?;
    // A version of the format that SQLite does not know would make it read-only.
    let is_known = |versions: &[u8]| versions.iter().all(|version| [1, 2].contains(version));
    if head.is_empty() || head.starts_with(b"SQLite format 3\0") && head.get(18..).is_some_and(is_known) {
        return Ok(());
    }
    let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB);
    Err(rusqlite::Error::SqliteFailure(error, Some("it is not an SQLite database".to_owned())))
}

#[cfg(test)]
mod tests;

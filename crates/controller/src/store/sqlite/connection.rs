//! A connection to SQLite: how it is set, and how rows change with their sum.

use super::super::RowChange;
use super::super::seal::{RowHash, Seal, Sum};
use api::crash::step;
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OptionalExtension, params};
use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Page cache. Pages that are not in it are in the file cache of the operating system, which gives them back when
/// memory is short.
const CACHE_KIB: i64 = 16 << 10;

/// Changes rows in a transaction, and keeps their sum.
pub(super) fn apply(connection: &Connection, changes: &[RowChange], sum: &Mutex<Sum>) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached(
        "INSERT INTO rows VALUES (?1, ?2, ?3, ?4) ON CONFLICT (kind, key)
         DO UPDATE SET value = excluded.value, sum = gone(kind, key, value, excluded.sum)",
    )?;
    let mut delete = connection.prepare_cached("DELETE FROM rows WHERE kind = ? AND key = ? RETURNING value")?;
    let mut scratch = Vec::new();
    // In the order of the tree, whose pages then come one after the other. Changes of one row keep their order.
    let mut in_order: Vec<&RowChange> = changes.iter().collect();
    in_order.sort_by_key(|change| (change.kind, &change.key));
    for RowChange { kind, key, value } in in_order {
        match value {
            Some(value) => {
                let hash = RowHash::of(*kind, key, value, &mut scratch);
                put.execute(params![kind, key, value, hash.checksum()])?;
                lock(sum).add(hash);
            }
            None => {
                let gone: Option<Vec<u8>> = delete.query_row(params![kind, key], |r| r.get(0)).optional()?;
                if let Some(value) = gone {
                    lock(sum).remove(RowHash::of(*kind, key, &value, &mut scratch));
                }
            }
        }
    }
    Ok(())
}

/// Adds the SQL functions that keep the sum: `gone` takes a row out and returns its last argument, so that replacing a
/// row costs no other search; `come` adds a row and returns its checksum.
pub(super) fn add_functions(connection: &Connection, sum: &Arc<Mutex<Sum>>) -> rusqlite::Result<()> {
    let hash = |context: &rusqlite::functions::Context<'_>| -> rusqlite::Result<RowHash> {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let (key, value) = (context.get_raw(1).as_blob()?, context.get_raw(2).as_blob()?);
        let kind = context.get(0)?;
        Ok(SCRATCH.with_borrow_mut(|scratch| RowHash::of(kind, key, value, scratch)))
    };
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
    let of_gone = Arc::clone(sum);
    connection.create_scalar_function("gone", 4, flags, move |context| {
        lock(&of_gone).remove(hash(context)?);
        context.get::<i64>(3)
    })?;
    let of_come = Arc::clone(sum);
    connection.create_scalar_function("come", 3, flags, move |context| {
        let hash = hash(context)?;
        lock(&of_come).add(hash);
        Ok(hash.checksum())
    })
}

pub(super) fn lock(sum: &Mutex<Sum>) -> std::sync::MutexGuard<'_, Sum> {
    sum.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn put_seal(connection: &Connection, seal: &Seal) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached("INSERT OR REPLACE INTO rows VALUES (0, x'', ?, 0)")?;
    step("sqlite.seal", || put.execute([seal.row().value])).map(drop)
}

/// Brings all of SQLite's log into its file, synced. False: something else reads it.
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<bool> {
    step("sqlite.checkpoint", || {
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| Ok(r.get::<_, i64>(0)? == 0))
    })
}

pub(super) fn open_connection(path: &Path) -> rusqlite::Result<Connection> {
    #[cfg(feature = "crash-points")]
    super::system_calls::watch();
    let connection = Connection::open(path)?;
    // A file that is refused stays as it is.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cell_size_check", "ON")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(connection)
}

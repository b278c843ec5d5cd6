//! Damage in any file of a store: a start has exactly what was acknowledged, or is refused as damaged.

use super::{RowChange, SqliteStore, Store, StoreError};
use lookup::testkit::{Rng, seed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;
type Files = BTreeMap<String, Vec<u8>>;

fn rows_of(store: &SqliteStore) -> Result<Rows, StoreError> {
    store.rows().map(|row| row.map(|row| ((row.kind, row.key), row.value.unwrap()))).collect()
}

fn open(path: &Path) -> Result<Rows, StoreError> {
    rows_of(&SqliteStore::open(path, Duration::ZERO)?)
}

fn files(directory: &Path) -> Files {
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
    };
    std::fs::read_dir(directory).unwrap().map(entry).collect()
}

/// Replaces everything in the directory.
fn put(directory: &Path, files: &Files) -> PathBuf {
    std::fs::remove_dir_all(directory).unwrap();
    std::fs::create_dir(directory).unwrap();
    files.iter().for_each(|(name, bytes)| std::fs::write(directory.join(name), bytes).unwrap());
    directory.join("rib.sqlite")
}

/// Commits random changes to a store, which is closed after `closed_after` of them, and opened again for the others.
fn churn(path: &Path, rng: &mut Rng, closed_after: usize, n_commits: usize) -> (SqliteStore, Rows) {
    let mut store = SqliteStore::open(path, Duration::ZERO).unwrap();
    let mut rows = Rows::new();
    for i in 0..n_commits {
        if i == closed_after {
            store.close().unwrap();
            drop(store);
            store = SqliteStore::open(path, Duration::ZERO).unwrap();
        }
        let many = if rng.below(8) == 0 { 60 } else { 5 };
        let n_changes = 1 + rng.below(many);
        let mut changes = Vec::new();
        for _ in 0..n_changes {
            let (kind, key) = (1 + rng.below(9) as u8, rng.below(40).to_be_bytes().to_vec());
            let value = (rng.below(4) > 0).then(|| vec![rng.next_u64() as u8; rng.below(60) as usize]);
            match &value {
                Some(value) => drop(rows.insert((kind, key.clone()), value.clone())),
                None => drop(rows.remove(&(kind, key.clone()))),
            }
            changes.push(RowChange { kind, key, value });
        }
        store.commit(&changes).unwrap();
    }
    (store, rows)
}

/// Exactly what was acknowledged, or a refusal that speaks of damage and changes nothing.
fn judge(path: &Path, damaged: &Files, acknowledged: &Rows, what: &str) -> bool {
    match open(path) {
        Ok(rows) => {
            assert!(rows == *acknowledged, "{what}: silently other");
            true
        }
        Err(error) => {
            assert!(error.is_damaged(), "{what}: {error:?}");
            assert!(!error.to_string().contains("nothing acknowledged is lost"), "{what}: {error}");
            let mut left = files(path.parent().unwrap());
            left.retain(|name, _| damaged.contains_key(name));
            assert!(left == *damaged, "{what}: a refused store stays as it is");
            false
        }
    }
}

#[test]
fn flipped_bit_in_any_file_is_mended_or_refused() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let flips = if std::env::var_os("FIBULA_DEEP").is_some() { 20_000 } else { 150 };
    let directory = tempfile::tempdir().unwrap();
    let (site, trial) = (directory.path().join("site"), directory.path().join("trial"));
    std::fs::create_dir(&trial).unwrap();
    for closed in [false, true] {
        let _ = std::fs::remove_dir_all(&site);
        let (mut store, acknowledged) = churn(&site.join("rib.sqlite"), &mut rng, 20, 60);
        if closed {
            store.close().unwrap();
        }
        drop(store);
        let mut whole = files(&site);
        // Most of the log is room for later.
        let log = whole.get_mut("rib.sqlite-log").unwrap();
        assert!(log[128 << 10..].iter().all(|byte| *byte == 0));
        log.truncate(128 << 10);
        assert!(open(&put(&trial, &whole)).unwrap() == acknowledged);
        for (name, bytes) in whole.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let mut n_served = 0;
            for _ in 0..flips {
                let bit = rng.below(bytes.len() as u64 * 8);
                let mut damaged = whole.clone();
                damaged.get_mut(name).unwrap()[(bit / 8) as usize] ^= 1 << (bit % 8);
                let what = format!("bit {bit} of {name}, closed {closed}");
                n_served += usize::from(judge(&put(&trial, &damaged), &damaged, &acknowledged, &what));
            }
            println!("{name}, closed {closed}: {n_served} of {flips} served, the others refused");
            // SQLite drops what follows a damaged page of its log. It is carried out again.
            assert!(!name.ends_with("-wal") || n_served == flips);
        }
    }
}

#[test]
fn lost_or_older_files_are_noticed() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let (site, trial) = (directory.path().join("site"), directory.path().join("trial"));
    std::fs::create_dir(&trial).unwrap();
    let (mut store, _) = churn(&site.join("rib.sqlite"), &mut rng, 20, 40);
    let older = files(&site);
    store.commit(&[RowChange { kind: 1, key: b"new".to_vec(), value: Some(vec![1]) }]).unwrap();
    let acknowledged = rows_of(&store).unwrap();
    drop(store);
    let whole = files(&site);
    let with = |changes: &[(&str, Option<&Files>)]| {
        let mut files = whole.clone();
        for (name, from) in changes {
            match from {
                Some(from) => drop(files.insert((*name).to_owned(), from[*name].clone())),
                None => drop(files.remove(*name)),
            }
        }
        open(&put(&trial, &files))
    };
    let (db, wal, log) = ("rib.sqlite", "rib.sqlite-wal", "rib.sqlite-log");
    assert!(with(&[]).unwrap() == acknowledged);
    assert!(with(&[(wal, None)]).unwrap() == acknowledged, "the log has it all");
    assert!(with(&[(wal, Some(&older))]).unwrap() == acknowledged, "the log has the last change");
    assert!(matches!(with(&[(log, None)]), Err(StoreError::LogMissing { .. })));
    assert!(matches!(with(&[(log, Some(&older))]), Err(StoreError::WrongLog { .. })));
    // An empty store is not begun beside the log of one that was.
    for (gone, beside) in [(&[db, wal][..], log), (&[db], log), (&[db, log], wal)] {
        let error = with(&gone.iter().map(|name| (*name, None)).collect::<Vec<_>>()).unwrap_err();
        assert!(matches!(error, StoreError::FileMissing { .. }) && error.is_damaged(), "{error:?}");
        let (text, beside) = (error.to_string(), trial.join(beside));
        assert!(text.contains("rib.sqlite is missing") && text.contains(beside.to_str().unwrap()), "{text}");
    }

    // Closed, changed and closed again: the older file lacks what its log does not have any more.
    let path = put(&trial, &whole);
    let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
    store.close().unwrap();
    let closed = files(&trial);
    store.commit(&[RowChange { kind: 1, key: b"newer".to_vec(), value: Some(vec![2]) }]).unwrap();
    store.close().unwrap();
    drop(store);
    let mut mixed = files(&trial);
    mixed.insert(db.to_owned(), closed[db].clone());
    let error = open(&put(&trial, &mixed)).unwrap_err();
    assert!(matches!(error, StoreError::Behind { missing: 1, .. }), "{error}");
    mixed.remove(log);
    assert!(open(&put(&trial, &mixed)).unwrap() == acknowledged, "an older copy that was closed, put here on purpose");
}

/// The files before a transaction, but for those blocks of its record in the log that a power cut let through.
fn torn(before: &Files, after: &Files, is_written: impl Fn(usize) -> bool) -> Files {
    let log = "rib.sqlite-log";
    let changed = before[log].chunks(512).zip(after[log].chunks(512)).enumerate().filter(|(_, (old, new))| old != new);
    let changed: Vec<usize> = changed.map(|(block, _)| block).collect();
    assert!(changed.len() > 3);
    let mut files = before.clone();
    for (_, block) in changed.iter().enumerate().filter(|(i, _)| is_written(*i)) {
        let bytes = 512 * block..512 * (block + 1);
        files.get_mut(log).unwrap()[bytes.clone()].copy_from_slice(&after[log][bytes]);
    }
    files
}

#[test]
fn second_power_cut_in_the_same_place_of_the_log_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let row = |len| RowChange { kind: 1, key: vec![1], value: Some(vec![len as u8; len]) };
    let mut store = SqliteStore::open(&directory.path().join("rib.sqlite"), Duration::ZERO).unwrap();
    store.commit(&[row(10)]).unwrap();
    let (acknowledged, before) = (rows_of(&store).unwrap(), files(directory.path()));
    store.commit(&[row(4000)]).unwrap();
    drop(store);
    let once = torn(&before, &files(directory.path()), |block| block > 0);
    let path = put(directory.path(), &once);
    let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
    assert!(rows_of(&store).unwrap() == acknowledged);
    store.commit(&[]).unwrap();
    let before = files(directory.path());
    store.commit(&[row(2000)]).unwrap();
    drop(store);
    let twice = torn(&before, &files(directory.path()), |block| block == 0);
    assert!(open(&put(directory.path(), &twice)).unwrap() == acknowledged);
}

#[test]
fn store_of_the_version_before_gets_its_checksums() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rib.sqlite");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE store (item TEXT PRIMARY KEY, value) WITHOUT ROWID;
             CREATE TABLE rows (
                 kind INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)
             ) WITHOUT ROWID;
             INSERT INTO store VALUES ('format', 'fibula rib 1'), ('term', 1900000000);",
        )
        .unwrap();
    for i in 0..500_u32 {
        let row = (1 + i % 3, i.to_be_bytes(), [i as u8; 20]);
        connection.execute("INSERT INTO rows VALUES (?, ?, ?)", row).unwrap();
    }
    drop(connection);
    let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
    assert_eq!((rows_of(&store).unwrap().len(), store.term()), (500, 1_900_000_001));
    store.commit(&[RowChange { kind: 1, key: 0_u32.to_be_bytes().to_vec(), value: None }]).unwrap();
    drop(store);
    let store = SqliteStore::open(&path, Duration::ZERO).unwrap();
    assert_eq!((rows_of(&store).unwrap().len(), store.term()), (499, 1_900_000_002));
}

#[test]
fn log_begins_anew_when_it_is_long_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rib.sqlite");
    let mut store = SqliteStore::open(&path, Duration::ZERO).unwrap();
    let mut expected = Rows::new();
    for i in 0..30_u8 {
        let row = RowChange { kind: 5, key: vec![i % 7], value: Some(vec![i; 400_000]) };
        expected.insert((row.kind, row.key.clone()), row.value.clone().unwrap());
        store.commit(&[row]).unwrap();
    }
    drop(store);
    let len = std::fs::metadata(super::log::path_of(&path)).unwrap().len();
    assert!(len <= super::log::LOG_BYTES + (1 << 20), "{len}");
    assert!(open(&path).unwrap() == expected);
}

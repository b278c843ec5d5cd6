//! A store in a file.

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
    store.close().unwrap();
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

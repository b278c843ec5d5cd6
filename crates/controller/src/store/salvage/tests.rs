//! What is left of damaged stores: nothing wrong is served, and losses are reported.

use super::tree::is_within;
use super::*;
use crate::core::change::{Change, Place, Record, State};
use crate::store::{SqliteStore, Store};
use fib::action::PortId;
use fib::topology::Wanted;
use lookup::hash::SecretKey;
use lookup::testkit::{Rng, seed};
use std::path::PathBuf;
use std::time::Duration;

type Rows = BTreeMap<Key, Vec<u8>>;

/// The store of a network whose every acknowledged row is known.
struct Site {
    directory: tempfile::TempDir,
    state: State,
    store: Box<dyn Store>,
    rows: Rows,
}

impl Site {
    fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("rib.sqlite"), Duration::ZERO).unwrap();
        let settings = Settings::new(7, SecretKey::from_seed(1));
        let (state, store) = crate::shell::restore::restore(settings, Box::new(store)).unwrap();
        let rows = rows_of(&*store);
        let mut site = Site { directory, state, store, rows };
        let place = |switch: usize, port| Place { switch: format!("s{switch}"), port: PortId(port) };
        for switch in 0..4 {
            site.change(Change::AddSwitch { name: format!("s{switch}"), tenants: vec![] });
        }
        for switch in 1..4 {
            site.change(Change::AddLink { a: place(switch - 1, 1), b: place(switch, 2), wanted: Wanted::default() });
        }
        let hosts = (0..12).map(|i| (format!("h{i}"), place(i % 4, 10 + i as u16))).collect();
        site.change(Change::AddHosts { hosts });
        site
    }

    fn change(&mut self, change: Change) {
        let outcome = self.state.carry_out(change).unwrap();
        let rows = outcome.rows.into_iter().chain(outcome.effects.into_iter().flat_map(|effects| effects.durable));
        let rows: Vec<RowChange> = rows.collect();
        self.store.commit(&rows).unwrap();
        for RowChange { kind, key, value } in rows {
            match value {
                Some(value) => drop(self.rows.insert((kind, key), value)),
                None => drop(self.rows.remove(&(kind, key))),
            }
        }
    }

    /// Names come, move and go; at times most of them go, so that pages of the file become free.
    fn churn(&mut self, rng: &mut Rng, n_changes: usize) {
        let name = |i: u64| format!("02:00:00:00:{:02x}:{:02x}", i >> 8, i & 0xff);
        for i in 0..n_changes {
            if i % 10 == 9 {
                let first = rng.below(1000);
                let names = (first..first + 1500).map(name).collect();
                self.change(Change::RemoveNames { names, ignore_missing: true });
                continue;
            }
            let most = if rng.below(3) == 0 { 600 } else { 4 };
            let (first, n_names) = (rng.below(3000), 1 + rng.below(most));
            let record = |i| Record { name: name(i), host: format!("h{}", rng.below(12)), tenant: 0, ip: None };
            let records = (first..first + n_names).map(record).collect();
            self.change(Change::PutNames { records, only_new: false });
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("rib.sqlite")
    }
}

fn rows_of(store: &dyn Store) -> Rows {
    store.rows().map(|row| row.map(|row| ((row.kind, row.key), row.value.unwrap())).unwrap()).collect()
}

const FILES: [&str; 3] = ["rib.sqlite", "rib.sqlite-wal", "rib.sqlite-log"];

/// What is in a directory after a kill.
fn files(directory: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    FILES.iter().filter_map(|name| Some((*name, std::fs::read(directory.join(name)).ok()?))).collect()
}

/// The rows of a new store, which a controller starts with.
fn started(path: &Path) -> Rows {
    let rows = rows_of(&SqliteStore::open(path, Duration::ZERO).unwrap());
    let store = SqliteStore::open(path, Duration::ZERO).unwrap();
    let (state, _store) =
        crate::shell::restore::restore(Settings::new(7, SecretKey::from_seed(1)), Box::new(store)).unwrap();
    for (end, host) in state.network.host_ports().map(|end| (end, state.hosts.name(end))) {
        assert!(host.is_some(), "{end} has a host");
    }
    rows
}

fn is_said(kind: u8) -> bool {
    KINDS.iter().any(|(of, _)| *of == kind)
}

#[test]
fn sound_store_is_repaired_to_an_equal_one_and_stays_as_it_is() {
    let mut rng = Rng::new(seed());
    for closed in [false, true] {
        let mut site = Site::new();
        site.churn(&mut rng, 60);
        site.store.raise_term(1234).unwrap();
        // A long row, over many pages.
        let long = RowChange { kind: 7, key: vec![0, 0, 0, 9], value: Some(vec![5; 50_000]) };
        site.store.commit(std::slice::from_ref(&long)).unwrap();
        site.rows.insert((7, long.key), long.value.unwrap());
        let (path, to) = (site.path(), site.directory.path().join("new"));
        assert!(matches!(repair(&path, &to), Err(StoreError::InUse { .. })) && !to.exists());
        if closed {
            site.store.close().unwrap();
        }
        let Site { directory, store, rows, .. } = site;
        drop(store);
        let before = files(directory.path());
        let repaired = repair(&path, &to).unwrap();
        assert!(repaired.whole && repaired.lost.is_empty() && repaired.missing_rows == Some(0), "{repaired:?}");
        let store = SqliteStore::open(&to, Duration::ZERO).unwrap();
        assert!(rows_of(&store) == rows && store.term() == 1235);
        assert!(files(directory.path()) == before);
        assert!(matches!(repair(&path, &to), Err(StoreError::Exists { .. })));
    }
}

#[test]
fn damaged_root_loses_only_the_rows_in_it() {
    let mut site = Site::new();
    site.churn(&mut Rng::new(1), 60);
    site.store.close().unwrap();
    let (path, to) = (site.path(), site.directory.path().join("new"));
    let Site { directory: _directory, store, rows, .. } = site;
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[2 * pages::PAGE], 2, "the root is an inner page");
    bytes[2 * pages::PAGE] ^= 8;
    std::fs::write(&path, bytes).unwrap();
    let repaired = repair(&path, &to).unwrap();
    let (n_lost, n_rows) = (repaired.missing_rows.unwrap(), rows.len() as u64);
    assert!(!repaired.whole && n_lost > 0 && n_lost * 20 < n_rows, "{n_lost} of {n_rows}");
    let new = started(&to);
    assert!(new.iter().filter(|(key, _)| key.0 == 5).all(|(key, value)| rows.get(key) == Some(value)));
}

/// Damages a file, or takes it away.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) -> &'static str {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last as u64 + 1);
    let at = rng.below(used) as usize;
    match rng.below(8) {
        0 => {
            bytes.truncate(at);
            "cut"
        }
        1 => {
            let page = at / pages::PAGE * pages::PAGE;
            let end = (page + pages::PAGE).min(bytes.len());
            bytes[page..end].fill(0);
            "a page of zeros"
        }
        2 => {
            let sector = at / 512 * 512;
            let end = (sector + 512).min(bytes.len());
            bytes[sector..end].iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
            "a sector of noise"
        }
        _ => {
            bytes[at] ^= 1 << rng.below(8);
            "a flipped bit"
        }
    }
}

#[test]
fn what_a_repaired_store_serves_is_right_and_what_is_missing_is_reported() {
    let seed = seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let n_trials = if std::env::var_os("FIBULA_DEEP").is_some() { 3000 } else { 120 };
    let (mut n_whole, mut n_less, mut n_beyond) = (0, 0, 0);
    for closed in [false, true] {
        let mut site = Site::new();
        site.churn(&mut rng, 25);
        site.store.close().unwrap();
        site.churn(&mut rng, 25);
        if closed {
            site.store.close().unwrap();
        }
        let Site { directory, store, rows: acknowledged, .. } = site;
        drop(store);
        let whole = files(directory.path());
        let trial = directory.path().join("trial");
        for i in 0..n_trials {
            let mut damaged = whole.clone();
            let names: Vec<&str> = whole.iter().filter(|(_, bytes)| !bytes.is_empty()).map(|(name, _)| *name).collect();
            let mut what = Vec::new();
            // Mostly one fault in one file; at times several.
            for _ in 0..1 + u64::from(i % 6 == 0) * rng.below(4) {
                let name = names[rng.below(names.len() as u64) as usize];
                let bytes = damaged.get_mut(name).unwrap();
                what.push((name, if bytes.is_empty() { "gone" } else { damage(&mut rng, bytes) }));
            }
            let what = format!("closed {closed}, trial {i}, {what:?}");
            let _ = std::fs::remove_dir_all(&trial);
            std::fs::create_dir(&trial).unwrap();
            damaged.iter().for_each(|(name, bytes)| std::fs::write(trial.join(name), bytes).unwrap());
            let (path, to) = (trial.join("rib.sqlite"), trial.join("new"));

            let left = Left::read(&path, Some(&std::fs::File::open(trial.join(FILES[2])).unwrap())).unwrap();
            // What neither log has any more cannot be known to have been.
            let both_logs = FILES[1..].iter().all(|name| damaged.get(name) != whole.get(name));
            let may_be_older = left.may_be_older || both_logs;
            if !may_be_older {
                for (key, value) in &left.rows {
                    assert!(acknowledged.get(key) == Some(value), "{what}: {key:?} is wrong");
                }
                let missing: Vec<&Key> = acknowledged.keys().filter(|key| !left.rows.contains_key(*key)).collect();
                if let Some(seal) = left.seal {
                    assert_eq!(seal.sum.n_rows - left.rows.len() as u64, missing.len() as u64, "{what}");
                }
                for key in missing {
                    assert!(left.gaps.iter().any(|gap| is_within(key, gap)), "{what}: {key:?} is in no gap");
                }
            }
            match repair(&path, &to) {
                Err(error) => {
                    assert!(matches!(error, StoreError::BeyondRepair { .. }), "{what}: {error}");
                    assert!(!to.exists() && !left.rows.contains_key(&(1, vec![])), "{what}: {error}");
                    n_beyond += 1;
                }
                Ok(repaired) => {
                    let new = started(&to);
                    assert!(!repaired.whole || both_logs || new == acknowledged, "{what}: not whole");
                    (n_whole, n_less) = (n_whole + i32::from(repaired.whole), n_less + i32::from(!repaired.whole));
                    let n_names = new.keys().filter(|key| key.0 == 5).count() as u64;
                    assert_eq!(repaired.saved.get("names").copied().unwrap_or(0), n_names, "{what}");
                    if may_be_older {
                        continue;
                    }
                    for (key, value) in new.iter().filter(|(key, _)| is_said(key.0) && key.0 != 2) {
                        let made = key.0 == HOST_ROW && key.1.starts_with(b"recovered-");
                        assert!(made || acknowledged.get(key) == Some(value), "{what}: {key:?} is wrong");
                    }
                    for key in acknowledged.keys().filter(|key| is_said(key.0) && !new.contains_key(*key)) {
                        let is_named = repaired.lost.iter().any(|lost| lost.contains(&name_of(key)));
                        let is_in_gap = left.gaps.iter().any(|gap| is_within(key, gap)) && !repaired.gaps.is_empty();
                        assert!(is_named || is_in_gap, "{what}: nothing tells of {key:?}: {repaired:?}");
                    }
                }
            }
            assert!(files(&trial) == damaged, "{what}: the damaged files stay as they are");
        }
    }
    println!("{n_whole} whole, {n_less} with losses, {n_beyond} beyond repair");
    assert!(n_whole > n_trials / 4 && n_less > n_trials / 10);
}

/// What a sentence about the row has in it.
fn name_of(key: &Key) -> String {
    describe(key, NameKind::Mac).trim_start_matches("the link at ").to_owned()
}

//! Copies beside seeded changes.

use super::*;
use crate::store::{Copy, SqliteStore};
use lookup::testkit::{Rng, seed};
use std::collections::BTreeMap;
use std::time::Duration;

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

const KEYS: u64 = 4000;

fn apply(rows: &mut Rows, changes: &[RowChange]) {
    for RowChange { kind, key, value } in changes.iter().cloned() {
        match value {
            Some(value) => drop(rows.insert((kind, key), value)),
            None => drop(rows.remove(&(kind, key))),
        }
    }
}

fn changes(random: &mut Rng, n: usize) -> Vec<RowChange> {
    let change = |_| RowChange {
        kind: 1 + random.below(3) as u8,
        key: (random.below(KEYS) as u16).to_be_bytes().to_vec(),
        value: (random.below(5) > 0).then(|| vec![random.below(256) as u8; 40]),
    };
    (0..n).map(change).collect()
}

struct Bench {
    directory: tempfile::TempDir,
    copied: Copied,
    rows: Rows,
    random: Rng,
}

fn bench(seed: u64, n_rows: usize) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("rib.sqlite"), Duration::ZERO).unwrap();
    let mut bench =
        Bench { directory, copied: Copied::new(Box::new(store)), rows: Rows::new(), random: Rng::new(seed) };
    bench.change(n_rows);
    bench
}

impl Bench {
    fn change(&mut self, n: usize) {
        let changes = changes(&mut self.random, n);
        self.copied.commit(&changes, &[]).unwrap();
        apply(&mut self.rows, &changes);
    }

    fn copy(&self, name: &str) -> Copy {
        Copy::begin(&self.directory.path().join(name)).unwrap()
    }

    /// The rows of a copy, which must open as a store does.
    fn opened(&self, name: &str) -> (u64, Rows) {
        let store = SqliteStore::open_existing(&self.directory.path().join(name)).unwrap();
        assert!(store.check().unwrap().is_sound());
        let rows = store.rows().map(Result::unwrap).map(|row| ((row.kind, row.key), row.value.unwrap()));
        (store.term(), rows.collect())
    }
}

/// Receives what is there; the number of rows of the copy once it is finished.
fn receive(parts: &mut Parts, copy: &mut Option<Copy>, most: usize) -> Option<u64> {
    for _ in 0..most {
        let Part { rows, end } = parts.try_recv().ok()?.unwrap();
        let receiving = copy.as_mut().unwrap();
        rows.into_iter().for_each(|row| receiving.put(row).unwrap());
        if let Some((term, sum)) = end {
            return Some(copy.take().unwrap().finish(term, sum).unwrap());
        }
    }
    None
}

/// The writer reads at most so many rows a turn, and a copy is what the store was when its last part was made.
#[test]
fn copies_beside_changes_are_the_store_at_some_moment_meanwhile() {
    let seed = seed();
    let mut bench = bench(seed, 6000);
    for round in 0..12 {
        let name = format!("copy-{round}");
        let mut copy = Some(bench.copy(&name));
        let mut parts = bench.copied.begin().unwrap();
        let (mut n_changes, mut at_the_end) = (0, None);
        let n_rows = (0..10_000).find_map(|_| {
            // Fewer than are sent in a turn: then a copy ends.
            let n = bench.random.below(90) as usize;
            bench.change(n);
            n_changes += n;
            bench.copied.go_on(100);
            if bench.copied.backups.is_empty() && at_the_end.is_none() {
                at_the_end = Some(bench.rows.clone());
            }
            let most = bench.random.below(4) as usize;
            receive(&mut parts, &mut copy, most)
        });
        assert!(n_changes > 1000, "changes went on: {n_changes}");
        let (term, rows) = bench.opened(&name);
        assert_eq!(n_rows, Some(rows.len() as u64));
        assert!(term > 1 && Some(rows) == at_the_end, "seed {seed}, round {round}");
    }
}

#[test]
fn a_turn_reads_a_bounded_number_of_rows_for_all_receivers_that_have_room() {
    let mut bench = bench(1, 9000);
    let mut parts = [(); 3].map(|()| bench.copied.begin().unwrap());
    assert!(bench.copied.may_go_on());
    for _ in 0..4 {
        bench.copied.go_on(TURN_ROWS);
        let came: usize =
            parts.iter_mut().flat_map(|parts| parts.try_recv()).map(|part| part.unwrap().rows.len()).sum();
        assert_eq!(came, TURN_ROWS);
    }
    while bench.copied.may_go_on() {
        bench.copied.go_on(TURN_ROWS);
    }
    assert_eq!(
        parts.each_ref().map(|parts| parts.len()),
        [WAITING_PARTS; 3],
        "whoever does not receive is sent no more"
    );
    drop(parts);
    assert!(bench.copied.may_go_on(), "to forget the receivers");
    bench.copied.go_on(TURN_ROWS);
    assert!(bench.copied.backups.is_empty());
}

#[test]
fn a_receiver_that_is_too_slow_is_told_and_others_are_not_given_up() {
    let mut bench = bench(2, 9000);
    let mut slow = bench.copied.begin().unwrap();
    bench.copied.waiting_bytes = 50_000;
    for _ in 0..3 {
        bench.copied.go_on(TURN_ROWS);
    }
    for _ in 0..20 {
        bench.change(100);
    }
    assert!(bench.copied.backups.is_empty());
    let last = std::iter::from_fn(|| slow.try_recv().ok()).last().unwrap();
    assert!(matches!(last, Err(Refusal::BackupTooSlow { bytes: 50_000 })), "{last:?}");

    let _waiting: Vec<Parts> = (0..MAX_COPIES).map(|_| bench.copied.begin().unwrap()).collect();
    assert!(matches!(bench.copied.begin(), Err(Refusal::TooManyBackups { max: MAX_COPIES })));
}

#[test]
fn a_copy_that_lacks_a_part_gets_no_name() {
    let mut bench = bench(3, 3000);
    let mut parts = bench.copied.begin().unwrap();
    let mut copy = bench.copy("copy");
    let to = bench.directory.path().join("copy");
    for n in 0.. {
        bench.copied.go_on(100);
        let Part { rows, end } = parts.try_recv().unwrap().unwrap();
        if let Some((term, sum)) = end {
            assert!(copy.finish(term, sum).unwrap_err().is_damaged());
            break;
        }
        if n != 5 {
            rows.into_iter().for_each(|row| copy.put(row).unwrap());
        }
        assert!(!to.exists());
    }
    let left: Vec<_> =
        std::fs::read_dir(bench.directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(left.iter().all(|file| file.to_string_lossy().starts_with("rib.sqlite")), "{left:?}");
}

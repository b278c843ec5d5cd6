//! A flipped bit in any file that a daemon goes on from: the next start has exactly what there was, or refuses.

use api::audit;
use controller::store::{RowChange, SqliteStore, Store, StoreError};
use fib::replica::{Limits, MemoryTables, Replica};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Flips, and those of them after which everything was there.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Flips {
    pub(crate) flips: u64,
    pub(crate) unharmed: u64,
}

/// The rows of a store.
pub(crate) fn rows(store: &Path) -> Result<Vec<RowChange>, StoreError> {
    SqliteStore::open(store, Duration::ZERO)?.rows().collect()
}

/// What a file says, by what reads it; the error says that it is damaged.
fn read(trial: &Path, name: &str) -> Result<Vec<u8>, String> {
    let path = trial.join(name);
    match name {
        "image" => {
            let replica = Replica::load(Limits::default(), MemoryTables::default(), &std::fs::read(&path).unwrap());
            let answers = |replica: Replica<MemoryTables>| {
                let valid = replica.tables().valid.keys().map(|name| format!("{name}: {:?}", replica.action(name)));
                let mut answers: Vec<String> = valid.collect();
                answers.sort();
                format!("{:?} {answers:?}", replica.report()).into_bytes()
            };
            replica.map(answers).map_err(|error| error.to_string())
        }
        "rib.audit.jsonl" => {
            let records = audit::records(&path).unwrap();
            let records: Result<Vec<_>, _> = records.collect();
            records.map(|records| format!("{records:?}").into_bytes()).map_err(|error| error.to_string())
        }
        _ => {
            let rows = rows(&trial.join("rib.sqlite"));
            assert!(rows.as_ref().err().is_none_or(StoreError::is_damaged), "{name}: {rows:?}");
            rows.map(|rows| format!("{rows:?}").into_bytes()).map_err(|error| error.to_string())
        }
    }
}

/// Flips `n` bits of each file of a controller, and of the image of a switch, one at a time.
pub(crate) fn flip(site: &Path, image: &Path, n: usize, rng: &mut StdRng) -> Flips {
    let trial = tempfile::tempdir().unwrap();
    let trial = trial.path();
    let mut files = BTreeMap::from([("image", std::fs::read(image).unwrap())]);
    for name in ["rib.sqlite", "rib.sqlite-wal", "rib.sqlite-log", "rib.audit.jsonl"] {
        if let Ok(bytes) = std::fs::read(site.join(name))
            && !bytes.is_empty()
        {
            files.insert(name, bytes);
        }
    }
    // A reader changes the files of a store.
    let put = || {
        for name in ["rib.sqlite", "rib.sqlite-wal", "rib.sqlite-log", "rib.audit.jsonl", "image"] {
            let path = trial.join(name);
            match files.get(name) {
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
                None => drop(std::fs::remove_file(path)),
            }
        }
    };
    let mut flips = Flips::default();
    for (name, bytes) in &files {
        put();
        let whole = read(trial, name).unwrap();
        // Most of the log is room for later.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        for _ in 0..n {
            let bit = rng.random_range(0..used * 8);
            put();
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(trial.join(name), damaged).unwrap();
            flips.flips += 1;
            match read(trial, name) {
                Ok(got) => {
                    assert!(got == whole, "bit {bit} of {name}: another answer");
                    flips.unharmed += 1;
                }
                Err(error) => assert!(!error.is_empty()),
            }
        }
    }
    flips
}

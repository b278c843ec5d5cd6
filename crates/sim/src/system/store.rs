//! A store on a disk that loses or tears what was not synced, and fills up.

use super::Mutant;
use super::watch::Watched;
use controller::kit::disk_full;
use controller::store::{RowChange, Store, StoreError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

/// A transaction: its rows, and the term of its owner.
type Transaction = (Vec<RowChange>, u64);

/// The synced content, and the transactions that are not synced.
#[derive(Clone, Default)]
pub(super) struct Disk {
    rows: Rows,
    term: u64,
    unsynced: VecDeque<Transaction>,
    pub(super) full: bool,
    mutant: Option<Mutant>,
}

impl Disk {
    fn sync(&mut self) {
        while let Some(transaction) = self.unsynced.pop_front() {
            self.apply(transaction);
        }
    }

    fn apply(&mut self, (changes, term): Transaction) {
        self.term = term;
        for RowChange { kind, key, value } in changes {
            match value {
                Some(value) => _ = self.rows.insert((kind, key), value),
                None if self.mutant == Some(Mutant::DeletionsNotStored) => {}
                None => _ = self.rows.remove(&(kind, key)),
            }
        }
    }

    /// Of the transactions that are not synced, the first ones survive or none; nothing is taken of a torn one.
    pub(super) fn crash(&mut self, n_there: u64) {
        for _ in 0..n_there {
            let Some(transaction) = self.unsynced.pop_front() else { break };
            self.apply(transaction);
        }
        if self.mutant == Some(Mutant::HalfTransactions)
            && let Some((mut rows, term)) = self.unsynced.pop_front()
        {
            rows.truncate(rows.len() / 2);
            self.apply((rows, term));
        }
        self.unsynced.clear();
    }

    /// A copy of what is synced.
    pub(super) fn backup(&self) -> Disk {
        Disk { unsynced: VecDeque::new(), full: false, ..self.clone() }
    }
}

/// The disk, which outlives the controllers.
#[derive(Clone)]
pub(super) struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    pub(super) fn new(mutant: Option<Mutant>) -> SharedDisk {
        SharedDisk(Arc::new(Mutex::new(Disk { mutant, ..Disk::default() })))
    }

    /// Another disk, with a copy.
    pub(super) fn with(copy: Disk) -> SharedDisk {
        SharedDisk(Arc::new(Mutex::new(copy)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the store, as a start of the controller does.
    pub(super) fn open(&self, watched: &Watched) -> Box<dyn Store> {
        let term = self.lock().term + 1;
        Box::new(DiskStore { disk: self.clone(), watched: watched.clone(), term })
    }
}

struct DiskStore {
    disk: SharedDisk,
    watched: Watched,
    term: u64,
}

impl Store for DiskStore {
    fn rows(&self) -> Box<dyn Iterator<Item = Result<RowChange, StoreError>> + '_> {
        let rows = self.disk.lock().rows.clone();
        Box::new(rows.into_iter().map(|((kind, key), value)| Ok(RowChange { kind, key, value: Some(value) })))
    }

    fn commit(&mut self, changes: &[RowChange]) -> Result<(), StoreError> {
        let is_lazy = {
            let mut disk = self.disk.lock();
            if disk.full {
                let ignored = disk.mutant == Some(Mutant::FullDiskIgnored);
                return if ignored { Ok(()) } else { Err(disk_full("store")) };
            }
            disk.unsynced.push_back((changes.to_vec(), self.term));
            disk.mutant == Some(Mutant::CommitNotSynced) && disk.unsynced.len() < 4
        };
        self.watched.pass("store written");
        if !is_lazy {
            self.disk.lock().sync();
        }
        self.watched.pass("store synced");
        Ok(())
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn set_term(&mut self, term: u64) {
        self.term = term;
    }
}

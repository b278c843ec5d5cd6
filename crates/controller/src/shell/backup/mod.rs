//! Copies of the store, sent while changes go on.
//!
//! A copy is sent in the order of the keys, some rows in each turn of the writer, so that changes go on between. A change
//! of rows that were sent already is sent after them; the others are read later, as they are by then. When no row is left to read
//! and no change to send, the copy is the store as of the last commit, and its last part says the term and the sum of the
//! rows then. The receiver compares: see [`Copy`](crate::store::Copy).
//!
//! Cost: each row is read once, by its key, and compared with its checksum. If a receiver is slow, changed rows wait
//! here, up to [`WAITING_BYTES`]; beyond, the copy is given up. Nothing waits for a receiver.

use crate::core::change::Refusal;
use crate::store::{RowChange, Store, StoreError, Sum};
use api::v1;
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// Rows that are read for copies in one turn of the writer, unless more were changed in it.
pub(crate) const TURN_ROWS: usize = 1024;

/// Rows of a part.
const PART_ROWS: usize = 1024;

/// Parts that wait for a receiver.
const WAITING_PARTS: usize = 4;

/// Most bytes of changed rows that wait for a receiver.
const WAITING_BYTES: usize = 64 << 20;

/// Copies made at the same time.
const MAX_COPIES: usize = 4;

/// One part of a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Part {
    /// Rows to put or to delete.
    pub(crate) rows: Vec<RowChange>,
    /// In the last part: the term, and the sum of all rows.
    pub(crate) end: Option<(u64, Sum)>,
}

impl From<Part> for v1::BackupPart {
    fn from(Part { rows, end }: Part) -> v1::BackupPart {
        let row = |RowChange { kind, key, value }: RowChange| v1::BackupRow {
            kind: kind.into(),
            key: key.into(),
            value: value.map(Into::into),
        };
        let end = end.map(|(term, Sum { n_rows, digest })| v1::BackupEnd {
            term,
            rows: n_rows,
            digest: digest.to_le_bytes().to_vec().into(),
        });
        v1::BackupPart { rows: rows.into_iter().map(row).collect(), end }
    }
}

pub(crate) type Parts = mpsc::Receiver<Result<Part, Refusal>>;

struct Backup {
    parts: mpsc::Sender<Result<Part, Refusal>>,
    /// The key of the last row that was read.
    last: Option<(u8, Vec<u8>)>,
    is_read: bool,
    /// Changes of rows that were read.
    changed: VecDeque<RowChange>,
    changed_bytes: usize,
}

/// A store, and the copies of it that are in progress.
pub(crate) struct Copied {
    store: Box<dyn Store>,
    backups: Vec<Backup>,
    waiting_bytes: usize,
}

impl Copied {
    pub(crate) fn new(store: Box<dyn Store>) -> Self {
        Self { store, backups: Vec::new(), waiting_bytes: WAITING_BYTES }
    }

    /// Like [`Store::commit_told`], but also for the copies.
    pub(crate) fn commit(&mut self, rows: &[RowChange], told: &[u8]) -> Result<(), StoreError> {
        self.store.commit_told(rows, told)?;
        let most = self.waiting_bytes;
        self.backups.retain_mut(|backup| {
            backup.change(rows);
            let fits = backup.changed_bytes <= most;
            if !fits {
                let refusal = Refusal::BackupTooSlow { bytes: most };
                tracing::warn!(reason = %refusal, "a backup is given up");
                // Without room for it, the receiver notices that the end is missing.
                let _ = backup.parts.try_send(Err(refusal));
            }
            fits
        });
        Ok(())
    }

    /// The number of the last commit.
    pub(crate) fn n_commits(&self) -> u64 {
        self.store.n_commits()
    }

    /// [`Store::has_followers`].
    pub(crate) fn has_followers(&self) -> bool {
        self.store.has_followers()
    }

    /// [`Store::raise_term`].
    pub(crate) fn raise_term(&mut self, term: u64) -> Result<(), StoreError> {
        self.store.raise_term(term)
    }

    /// [`Store::close`].
    pub(crate) fn close(&mut self) -> Result<(), StoreError> {
        self.store.close()
    }

    /// Begins a copy.
    pub(crate) fn begin(&mut self) -> Result<Parts, Refusal> {
        self.backups.retain(|backup| !backup.parts.is_closed());
        if self.backups.len() >= MAX_COPIES {
            return Err(Refusal::TooManyBackups { max: MAX_COPIES });
        }
        let (parts, receiver) = mpsc::channel(WAITING_PARTS);
        let (changed, changed_bytes) = (VecDeque::new(), 0);
        self.backups.push(Backup { parts, last: None, is_read: false, changed, changed_bytes });
        Ok(receiver)
    }

    /// Whether a part can be sent, or a receiver has gone.
    pub(crate) fn may_go_on(&self) -> bool {
        self.backups.iter().any(|backup| backup.parts.is_closed() || backup.parts.capacity() > 0)
    }

    /// Sends parts with at most `n_rows` rows in all, to receivers that have room.
    pub(crate) fn go_on(&mut self, mut n_rows: usize) {
        let store = &*self.store;
        self.backups.retain_mut(|backup| {
            while n_rows > 0 {
                let Some(part) = backup.part(store, n_rows.min(PART_ROWS)).transpose() else { break };
                n_rows = n_rows.saturating_sub(part.as_ref().map_or(0, |part| part.rows.len()).max(1));
                let goes_on = part.as_ref().is_ok_and(|part| part.end.is_none());
                if backup.parts.try_send(part).is_err() || !goes_on {
                    return false;
                }
            }
            !backup.parts.is_closed()
        });
        // The next turn begins with the copy that got the least of this one.
        if self.backups.len() > 1 {
            self.backups.rotate_left(1);
        }
    }
}

impl Backup {
    /// Remembers changes of rows that were read.
    fn change(&mut self, rows: &[RowChange]) {
        for row in rows {
            if self.is_read || Some((row.kind, &row.key[..])) <= self.last() {
                self.changed_bytes += bytes_of(row);
                self.changed.push_back(row.clone());
            }
        }
    }

    /// The next part, if there is room for it.
    fn part(&mut self, store: &dyn Store, n_rows: usize) -> Result<Option<Part>, Refusal> {
        if self.parts.capacity() == 0 {
            return Ok(None);
        }
        if !self.changed.is_empty() {
            let rows: Vec<RowChange> = self.changed.drain(..n_rows.min(self.changed.len())).collect();
            self.changed_bytes -= rows.iter().map(bytes_of).sum::<usize>();
            return Ok(Some(Part { rows, end: None }));
        }
        let failed = |error: StoreError| Refusal::BackupFailed { reason: error.to_string() };
        if !self.is_read {
            let rows = store.rows_after(self.last(), n_rows).map_err(failed)?;
            if let Some(last) = rows.last() {
                self.last = Some((last.kind, last.key.clone()));
                return Ok(Some(Part { rows, end: None }));
            }
            self.is_read = true;
        }
        Ok(Some(Part { rows: Vec::new(), end: Some(store.sealed().map_err(failed)?) }))
    }

    fn last(&self) -> Option<(u8, &[u8])> {
        self.last.as_ref().map(|(kind, key)| (*kind, &key[..]))
    }
}

fn bytes_of(row: &RowChange) -> usize {
    size_of::<RowChange>() + row.key.len() + row.value.as_ref().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests;

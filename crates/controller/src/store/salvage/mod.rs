//! `fibula store repair`: a new store from what is left of a damaged one, whose files are only read.
//!
//! Three sources are put together: the rows that can be read, without SQLite ([`tree`]); SQLite's log, as far as its
//! checksums go ([`pages`]); and the transactions in the log of the store, which win. If the sum of all that is the seal's,
//! every acknowledged change is there, and the new store has these rows. Otherwise what operators declared is kept, as far as it
//! makes a network, and the rest is made again: see [`fib::durable::salvage`].
//!
//! Cost: reads each file once, and holds all rows in memory.

mod pages;
#[cfg(test)]
mod tests;
mod tree;

use super::log::{self, Contents};
use super::seal::{RowHash, Seal, Sum};
use super::sqlite::{Copy, cannot_open, hex, of_io};
use super::{RowChange, StoreError};
use crate::hosts::names::LEARNT_ROW;
use crate::hosts::{HOST_ROW, Hosts};
use fib::durable::{Lost, salvage, settings_of};
use fib::name::{Name, NameKind};
use fib::network::{Network, Settings};
use fib::topology::{End, NodeId};
use pages::{Key, Pages};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tree::{Found, Gap};

/// The kinds of rows that hold operators' declarations, with their names.
const KINDS: [(u8, &str); 6] = [
    (2, "switches"),
    (3, "links"),
    (4, "host ports"),
    (HOST_ROW, "hosts"),
    (5, "names"),
    (LEARNT_ROW, "names that are learnt"),
];

/// The result of a repair: what it saved, and what is lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Repaired {
    /// Whether every acknowledged change is in the new store.
    pub whole: bool,
    /// Whether rows may be as they were before later acknowledged changes: the log does not say that there were none.
    pub may_be_older: bool,
    /// Rows in the new store, by kind.
    pub saved: BTreeMap<&'static str, u64>,
    /// Rows that were committed and are not found, of all kinds; `None`: how many there were is not known.
    pub missing_rows: Option<u64>,
    /// Acknowledged transactions that are known to be in no file.
    pub missing_transactions: u64,
    /// The rows that are known to be lost: a sentence for each.
    pub lost: Vec<String>,
    /// How many of these, by kind.
    pub lost_by_kind: BTreeMap<&'static str, u64>,
    /// Where other rows are missing, if any are.
    pub gaps: Vec<String>,
    /// What the files say about themselves.
    pub notes: Vec<String>,
}

/// Writes a new store to `to`, which must not exist, from what is left of the store at `path`.
/// # Errors
/// A controller has the store; the disk; what is left makes no network. There is no new store then.
pub fn repair(path: &Path, to: &Path) -> Result<Repaired, StoreError> {
    let failed = |error: &std::io::Error| StoreError::Failed { path: path.to_owned(), error: of_io(error) };
    // Held until the end.
    let log = match std::fs::File::open(log::path_of(path)) {
        Ok(log) => Some(log),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(StoreError::Open { path: path.to_owned(), error: cannot_open(&error) }),
    };
    match log.as_ref().map(std::fs::File::try_lock) {
        Some(Err(std::fs::TryLockError::WouldBlock)) => return Err(StoreError::InUse { path: path.to_owned() }),
        Some(Err(std::fs::TryLockError::Error(error))) => return Err(failed(&error)),
        _ => {}
    }
    let copy = Copy::begin(to)?;
    Left::read(path, log.as_ref())?.write(path, copy)
}

/// The combined contents of the files.
struct Left {
    rows: BTreeMap<Key, Vec<u8>>,
    gaps: Vec<Gap>,
    damaged: Vec<Key>,
    /// The last one.
    seal: Option<Seal>,
    /// The greatest number that is known.
    term: u64,
    may_be_older: bool,
    missing_transactions: u64,
    notes: Vec<String>,
}

impl Left {
    fn read(path: &Path, log: Option<&std::fs::File>) -> Result<Left, StoreError> {
        let failed = |error: &std::io::Error| StoreError::Failed { path: path.to_owned(), error: of_io(error) };
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let pages = Pages::open(path, wal.as_ref())
            .map_err(|error| StoreError::Open { path: path.to_owned(), error: cannot_open(&error) })?;
        let found = tree::read(&pages).map_err(|error| failed(&error))?;
        let log = log.map(Contents::read).transpose().map_err(|error| failed(&error))?.flatten();
        Ok(Left::of(found, log))
    }

    /// Carries out the transactions of the log on what was found in SQLite's file.
    fn of(found: Found, log: Option<Contents>) -> Left {
        let Found { rows, seal, gaps, damaged } = found;
        let term = seal.map_or(0, |seal| seal.term);
        let (may_be_older, missing_transactions, notes) = (false, 0, Vec::new());
        let mut left = Left { rows, gaps, damaged, seal, term, may_be_older, missing_transactions, notes };
        if seal.is_none() {
            left.notes.push("the seal of the file cannot be read".to_owned());
        }
        let Some(log) = log else {
            if seal.is_none_or(|seal| !seal.closed) {
                left.may_be_older = true;
                left.notes.push("there is no log, so the last acknowledged changes may be missing".to_owned());
            }
            return left;
        };
        if log.generation == 0 || seal.is_some_and(|seal| seal.store != log.store) {
            left.may_be_older = true;
            left.notes.push("the log cannot be read, or belongs to another store: it is not used".to_owned());
            return left;
        }
        // SQLite has at least what it had when this log began, unless its file is an older one.
        let has = seal.map_or(log.base, |seal| seal.n_commits);
        let top = log.last.max(log.base);
        if log.cut && seal.is_none_or(|seal| !seal.closed) {
            left.may_be_older = true;
            left.notes.push("the log is cut off, so the last acknowledged changes may be missing".to_owned());
        }
        if log.damaged {
            left.notes.push("the log is damaged".to_owned());
        }
        // Records up to what SQLite has say what lost rows were, if none between them and that is missing.
        let mut first = has;
        let by_number: BTreeMap<u64, _> = log.records.iter().map(|record| (record.number, record)).collect();
        if seal.is_none() {
            let hole = (has + 1..=top).rfind(|number| !by_number.contains_key(number));
            first = hole.unwrap_or(has);
            left.may_be_older |= hole.is_some();
        }
        while seal.is_some() && by_number.contains_key(&first) {
            first -= 1;
        }
        let later = by_number.range(first + 1..);
        let n_later = by_number.range(has + 1..).count() as u64;
        left.missing_transactions = top.saturating_sub(has).saturating_sub(n_later);
        left.may_be_older |= left.missing_transactions > 0;
        for (_, record) in later {
            for RowChange { kind, key, value } in &record.rows {
                match value {
                    Some(value) if *kind == super::seal::SEAL_ROW => {
                        left.seal = Seal::decode(value).or(left.seal);
                        left.term = left.term.max(left.seal.map_or(0, |seal| seal.term));
                    }
                    Some(value) => _ = left.rows.insert((*kind, key.clone()), value.clone()),
                    None => _ = left.rows.remove(&(*kind, key.clone())),
                }
            }
        }
        left
    }

    /// Writes the rows themselves, if they are all that were committed; otherwise a network of what is left.
    fn write(self, path: &Path, mut copy: Copy) -> Result<Repaired, StoreError> {
        let mut sum = Sum::default();
        let mut scratch = Vec::new();
        self.rows.iter().for_each(|((kind, key), value)| sum.add(RowHash::of(*kind, key, value, &mut scratch)));
        let (term, is_sealed) = (self.term, self.seal.is_some_and(|seal| seal.sum == sum));
        let mut repaired = Repaired {
            whole: is_sealed && !self.may_be_older,
            may_be_older: self.may_be_older,
            missing_rows: self.seal.map(|seal| seal.sum.n_rows.saturating_sub(sum.n_rows)),
            missing_transactions: self.missing_transactions,
            notes: self.notes.clone(),
            ..Repaired::default()
        };
        let rows: Vec<RowChange> = if is_sealed {
            let row = |((kind, key), value)| RowChange { kind, key, value: Some(value) };
            self.rows.into_iter().map(row).collect()
        } else {
            self.network(path, &mut repaired)?
        };
        let mut sum = Sum::default();
        for row in rows {
            sum.add(RowHash::of(row.kind, &row.key, row.value.as_deref().unwrap_or_default(), &mut scratch));
            if let Some((_, kind)) = KINDS.iter().find(|(kind, _)| *kind == row.kind) {
                *repaired.saved.entry(kind).or_default() += 1;
            }
            copy.put(row)?;
        }
        copy.finish(term, sum)?;
        Ok(repaired)
    }

    fn network(self, path: &Path, repaired: &mut Repaired) -> Result<Vec<RowChange>, StoreError> {
        let beyond = |what: String| StoreError::BeyondRepair { path: path.to_owned(), what };
        let settings = self.rows.get(&(1, Vec::new())).and_then(|row| settings_of(row));
        let lost_key = || beyond("the row of the network itself, with the hash key, is lost".to_owned());
        let settings = Settings { max_names: self.rows.len(), ..settings.ok_or_else(lost_key)? };
        let settings_kind = settings.kind;
        let text = |key: &Key| describe(key, settings_kind);
        let said = |key: &&Key| KINDS.iter().any(|(kind, _)| *kind == key.0) && !self.rows.contains_key(*key);
        let mut lost: Vec<Lost> = self
            .damaged
            .iter()
            .filter(said)
            .map(|key| Lost { kind: key.0, what: format!("{}, as far as its damaged row can be read", text(key)) })
            .collect();
        // Rows of other kinds are made again.
        let matters = |gap: &&Gap| {
            let first = gap.0.as_ref().map_or(0, |key| key.0);
            let last = gap.1.as_ref().map_or(u8::MAX, |key| key.0);
            first <= 5 || last == u8::MAX || last >= HOST_ROW
        };
        let end = |key: &Option<Key>, none: &str| key.as_ref().map_or(none.to_owned(), &text);
        let between =
            |gap: &Gap| format!("between {} and {}", end(&gap.0, "the first row"), end(&gap.1, "the last row"));
        repaired.gaps = self.gaps.iter().filter(matters).map(between).collect();

        let (mut hosts, mut learnt) = (Hosts::default(), Vec::new());
        let mut network_rows = Vec::with_capacity(self.rows.len());
        for ((kind, key), value) in self.rows {
            if kind == LEARNT_ROW {
                learnt.push(RowChange { kind, key, value: Some(value) });
            } else if kind != HOST_ROW {
                network_rows.push(RowChange { kind, key, value: Some(value) });
            } else if let Err(error) = hosts.restore(&key, &value) {
                lost.push(Lost { kind, what: error.to_string() });
            }
        }
        let ends: Vec<End> = hosts.iter().map(|(_, end)| end).collect();
        let salvaged = salvage(network_rows, ends).map_err(|error| beyond(error.to_string()))?;
        lost.extend(salvaged.lost);
        let (restored, _) = Network::restore(settings, self.term + 1, salvaged.rows.iter().cloned())
            .map_err(|error| beyond(error.to_string()))?;
        let mut rows = salvaged.rows;
        let kept: BTreeSet<End> = salvaged.host_ports.iter().copied().collect();
        let switch = |node: NodeId| restored.topology().node(node).map_or(node.to_string(), |node| node.name.clone());
        for (name, end) in hosts.clone().iter() {
            if kept.contains(&end) {
                rows.push(Hosts::default().insert(name, end));
            } else {
                let what = format!("the host {name} at {end}: its switch is lost, or the port has a link");
                lost.push(Lost { kind: HOST_ROW, what });
            }
        }
        for end in kept {
            if hosts.name(end).is_some() {
                continue;
            }
            let name = free_name(&hosts, &format!("recovered-{}-{}", end.node, end.port));
            let what = format!("the name of the host at port {} of {}: it is {name} now", end.port, switch(end.node));
            lost.push(Lost { kind: HOST_ROW, what });
            rows.push(hosts.insert(&name, end));
        }
        // If a name is lost, it does not matter that it was learnt.
        let is_known = |row: &RowChange| {
            Name::from_bytes(settings_kind, &row.key).is_ok_and(|name| restored.rib().get(&name).is_some())
        };
        rows.extend(learnt.into_iter().filter(is_known));
        for Lost { kind, what } in lost {
            let (_, kind) = KINDS.iter().find(|(of, _)| *of == kind).unwrap_or(&(0, "rows of no known kind"));
            *repaired.lost_by_kind.entry(kind).or_default() += 1;
            repaired.lost.push(what);
        }
        Ok(rows)
    }
}

fn free_name(hosts: &Hosts, name: &str) -> String {
    let names = (1..).map(|i| if i == 1 { name.to_owned() } else { format!("{name}-{i}") });
    let mut free = names.filter(|name| hosts.end(name).is_err());
    free.next().unwrap_or_else(|| name.to_owned())
}

fn describe((kind, key): &Key, names: NameKind) -> String {
    let number = |at: usize| key.get(at..).and_then(|rest| rest.first_chunk()).map(|n| u32::from_be_bytes(*n));
    let end = || Some((number(0)?, u16::from_be_bytes(*key.get(4..)?.first_chunk()?)));
    let known = match *kind {
        2 => number(0).map(|id| format!("the switch with the id {id}")),
        3 => end().map(|(node, port)| format!("the link at port {port} of switch {node}")),
        4 => end().map(|(node, port)| format!("the host port {port} of switch {node}")),
        5 => Name::from_bytes(names, key).ok().map(|name| format!("the name {name}")),
        LEARNT_ROW => crate::hosts::names::describe(names, key),
        HOST_ROW => std::str::from_utf8(key).ok().map(|name| format!("the host {}", name.escape_debug())),
        _ => None,
    };
    known.unwrap_or_else(|| format!("the row of kind {kind} with key {}", hex(key)))
}

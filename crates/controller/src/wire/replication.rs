//! The replication log: the leader's record of each commit for its followers, with its changes and the sum of their rows.
//!
//! The changes are messages of the northbound service, so a new field of a request is included as well.

use super::change_of;
use crate::core::change::Change;
use crate::core::owner::{Followable, Followed, Told};
use crate::store::{Commit, NOTHING, RowChange, Sum};
use crate::wire::record_of;
use api::v1;
use fib::durable::VIEW;
use prost::Message;

/// Changes that are carried out, to be recorded.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    record: v1::Told,
    sum: Sum,
    scratch: Vec<u8>,
}

/// The record of a commit.
#[derive(Debug)]
pub(crate) enum Record {
    /// Nothing that another controller needs.
    Nothing,
    /// These changes, and the [sum](sum_of) of their rows.
    Changes(Vec<Change>, [u8; 16]),
}

impl Recording {
    /// Adds a change.
    pub(crate) fn add(&mut self, change: v1::ToldChange, rows: &[RowChange]) {
        self.record.changes.push(change);
        add_rows(&mut self.sum, rows, &mut self.scratch);
    }

    /// The size in bytes.
    pub(crate) fn encode(mut self) -> Vec<u8> {
        if self.record.changes.is_empty() {
            return NOTHING.to_vec();
        }
        self.record.rows_sum = self.sum.digest.to_le_bytes().to_vec().into();
        self.record.encode_to_vec()
    }
}

impl Record {
    /// The record in these bytes; `None` if they do not say what the commit changed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Record> {
        let v1::Told { nothing, changes, rows_sum } = v1::Told::decode(bytes).ok()?;
        if nothing {
            return Some(Record::Nothing);
        }
        let changes = changes.into_iter().map(change_of).collect::<Option<Vec<_>>>()?;
        Some(Record::Changes(changes, (&*rows_sum).try_into().ok()?))
    }
}

/// The record of the changes of these rows for followers; `None`: nothing.
#[cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations use it"))]
pub fn told(changes: &[Told], rows: &[RowChange]) -> Option<Vec<u8>> {
    let mut recording: Option<Recording> = None;
    for Told { change, rows: of_it } in changes {
        if let Some(record) = record_of(change) {
            recording.get_or_insert_default().add(record, &rows[of_it.clone()]);
        }
    }
    recording.map(Recording::encode)
}

/// A commit of the leader, as the owner of this controller's network follows it.
#[cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations use it"))]
pub fn followed(commit: Commit) -> Followed {
    let what = match Record::decode(&commit.told) {
        Some(Record::Nothing) => Followable::Nothing,
        Some(Record::Changes(changes, expected)) => Followable::Changes(
            changes,
            Box::new(move |rows| {
                let mut sum = Sum::default();
                add_rows(&mut sum, rows, &mut Vec::new());
                sum.digest.to_le_bytes() == expected
            }),
        ),
        None => Followable::Unknown,
    };
    Followed { number: commit.number, term: commit.term, what }
}

/// Adds the rows of a change to a sum.
pub(crate) fn add_rows(sum: &mut Sum, rows: &[RowChange], scratch: &mut Vec<u8>) {
    rows.iter().filter(|row| row.kind != VIEW).for_each(|row| sum.add_change(row, scratch));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::change::{Place, Record as NameRecord};
    use crate::wire::record_of;
    use fib::action::PortId;
    use fib::topology::Wanted;

    #[test]
    fn what_is_told_comes_back() {
        let place = |switch: &str, port| Place { switch: switch.to_owned(), port: PortId(port) };
        let name = || "x".to_owned();
        let record = |ip: Option<&str>| NameRecord {
            name: "02:00:00:00:00:01".to_owned(),
            host: "h1".to_owned(),
            tenant: 7,
            ip: ip.map(|ip| ip.parse().unwrap()),
        };
        let (a, b) = (place("a", 1), place("b", u16::MAX));
        let changes = [
            Change::AddSwitch { name: name(), tenants: vec![1, 5] },
            Change::AddSwitches { names: vec![name(), "y".to_owned()] },
            Change::RemoveSwitch { name: name() },
            Change::AddHosts { hosts: vec![(name(), a.clone())] },
            Change::RenameHost { name: name(), to: "y".to_owned() },
            Change::RemoveHost { name: name() },
            Change::AddLink {
                a: a.clone(),
                b: b.clone(),
                wanted: Wanted { cost: 3, weight: 1, up: false, found: false },
            },
            Change::AddLinks {
                links: vec![
                    (a.clone(), b.clone(), Wanted { cost: 3, weight: 64, up: true, found: true }),
                    (b.clone(), a.clone(), Wanted { up: false, ..Wanted::default() }),
                ],
            },
            Change::SetLink { end: a.clone(), cost: Some(4), weight: None, raised: Some(7), up: None },
            Change::SetLink { end: a.clone(), cost: None, weight: Some(9), raised: None, up: None },
            Change::SetLink { end: a.clone(), cost: None, weight: None, raised: None, up: Some(false) },
            Change::SeeLinks { links: vec![(a.clone(), true), (b.clone(), false)] },
            Change::RemoveLink { end: b },
            Change::PutNames {
                records: vec![record(None), record(Some("10.0.0.7")), record(Some("fd00::7"))],
                only_new: true,
            },
            Change::Learn {
                records: vec![record(Some("10.0.0.7"))],
                at_ms: 1_700_000_000_000,
                more: vec![("x".to_owned(), vec!["10.0.0.8".parse().unwrap(), "fd00::8".parse().unwrap()])],
            },
            Change::RemoveNames { names: vec![name()], ignore_missing: true },
            Change::AlterNames { remove: vec![name(), "y".to_owned()], records: vec![record(None)] },
        ];
        let rows = [
            RowChange { kind: 4, key: vec![1], value: Some(Vec::new()) },
            RowChange { kind: VIEW, key: vec![2], value: Some(vec![9]) },
        ];
        let mut recording = Recording::default();
        changes.iter().for_each(|change| recording.add(record_of(change).unwrap(), &rows));
        let Some(Record::Changes(got, sum)) = Record::decode(&recording.encode()) else { panic!("changes") };
        assert_eq!(format!("{got:?}"), format!("{changes:?}"));

        let sum_of = |rows: &[RowChange]| {
            let mut sum = Sum::default();
            changes.iter().for_each(|_| add_rows(&mut sum, rows, &mut Vec::new()));
            sum.digest.to_le_bytes()
        };
        assert_eq!(sum, sum_of(&rows[..1]), "rows of views do not count");
        assert_ne!(sum, sum_of(&[rows[0].clone().delete()]));
        assert_ne!(sum, sum_of(&[]));
    }

    #[test]
    fn nothing_is_told_as_nothing_and_unknown_bytes_as_unknown() {
        assert!(matches!(Record::decode(&Recording::default().encode()), Some(Record::Nothing)));
        // Nothing, an unknown field, a cut message.
        for bytes in [&[][..], &[0x7a, 1, 0], &[0x12, 9, 1]] {
            assert!(Record::decode(bytes).is_none(), "{bytes:?}");
        }
    }
}

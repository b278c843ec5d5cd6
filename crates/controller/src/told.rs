//! What the controller that leads tells those that follow: the changes of a commit, and the sum of their rows.
//!
//! The changes are those of the northbound service, in its words, so a new field of a request is told as well.

use crate::change::{Change, Place, Record};
use crate::store::{NOTHING, RowChange, Sum};
use api::v1;
use api::v1::told_change::Change as Wire;
use fib::durable::VIEW;
use fib::topology::Wanted;
use prost::Message;

/// Changes that are carried out, to be told.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    told: v1::Told,
    sum: Sum,
    scratch: Vec<u8>,
}

/// What is told of a commit.
#[derive(Debug)]
pub(crate) enum Told {
    /// Nothing that another controller needs.
    Nothing,
    /// These changes, and the [sum](sum_of) of their rows.
    Changes(Vec<Change>, [u8; 16]),
}

impl Telling {
    /// Adds a change.
    pub(crate) fn add(&mut self, change: v1::ToldChange, rows: &[RowChange]) {
        self.told.changes.push(change);
        add_rows(&mut self.sum, rows, &mut self.scratch);
    }

    /// In bytes.
    pub(crate) fn encode(mut self) -> Vec<u8> {
        if self.told.changes.is_empty() {
            return NOTHING.to_vec();
        }
        self.told.rows_sum = self.sum.digest.to_le_bytes().to_vec().into();
        self.told.encode_to_vec()
    }
}

impl Told {
    /// What these bytes say; `None`: they do not say what the commit changed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Told> {
        let v1::Told { nothing, changes, rows_sum } = v1::Told::decode(bytes).ok()?;
        if nothing {
            return Some(Told::Nothing);
        }
        let changes = changes.into_iter().map(change_of).collect::<Option<Vec<_>>>()?;
        Some(Told::Changes(changes, (&*rows_sum).try_into().ok()?))
    }
}

/// Adds the rows of a change to a sum.
pub(crate) fn add_rows(sum: &mut Sum, rows: &[RowChange], scratch: &mut Vec<u8>) {
    rows.iter().filter(|row| row.kind != VIEW).for_each(|row| sum.add_change(row, scratch));
}

/// A change as it is told.
pub(crate) fn wire_of(change: &Change) -> v1::ToldChange {
    let change = match change.clone() {
        Change::AddSwitch { name, tenants } => Wire::AddSwitch(v1::AddSwitchRequest { name, tenants }),
        Change::AddSwitches { names } => Wire::AddSwitches(v1::AddSwitchesRequest { names }),
        Change::RemoveSwitch { name } => Wire::RemoveSwitch(v1::RemoveSwitchRequest { name }),
        Change::AddHosts { hosts } => {
            let host =
                |(name, Place { switch, port })| v1::Host { name, switch, port: port.0.into(), ..v1::Host::default() };
            let hosts = hosts.into_iter().map(host).collect();
            Wire::AddHosts(v1::HostList { hosts, ..v1::HostList::default() })
        }
        Change::RenameHost { name, to } => Wire::RenameHost(v1::RenameHostRequest { name, to }),
        Change::RemoveHost { name } => Wire::RemoveHost(v1::RemoveHostRequest { name }),
        Change::AddLink { a, b, wanted } => Wire::AddLink(link((a, b, wanted))),
        Change::AddLinks { links } => {
            let links = links.into_iter().map(link).collect();
            Wire::AddLinks(v1::LinkList { links, ..v1::LinkList::default() })
        }
        Change::SetLink { end: one, cost, weight, raised, up } => {
            let weight = weight.map(u32::from);
            Wire::SetLink(v1::SetLinkRequest { end: end(one), cost, raised, up, weight })
        }
        Change::SeeLinks { links } => {
            let link = |(one, cut)| v1::SeenLink { end: end(one), cut };
            Wire::SeeLinks(v1::SeenLinks { links: links.into_iter().map(link).collect() })
        }
        Change::RemoveLink { end: one } => Wire::RemoveLink(v1::RemoveLinkRequest { end: end(one) }),
        Change::PutNames { records, only_new } => {
            let names = records.into_iter().map(Record::into).collect();
            Wire::PutNames(v1::PutNamesRequest { names, only_new })
        }
        Change::Learn { records, at_ms, more } => {
            let names = records.into_iter().map(Record::into).collect();
            let more = more.into_iter().map(|(name, ips)| {
                let ips = ips.iter().map(ToString::to_string).collect();
                v1::MoreAddresses { name, ips }
            });
            Wire::Learn(v1::LearntNames { names, at_ms, more: more.collect() })
        }
        Change::RemoveNames { names, ignore_missing } => {
            Wire::RemoveNames(v1::RemoveNamesRequest { names, ignore_missing })
        }
        Change::AlterNames { remove, records } => {
            let put = records.into_iter().map(Record::into).collect();
            Wire::ChangeNames(v1::ChangedNames { remove, put })
        }
        Change::ReplaceNames(_) => unreachable!("it is settled before it is told"),
    };
    v1::ToldChange { change: Some(change) }
}

fn link((a, b, wanted): (Place, Place, Wanted)) -> v1::Link {
    let Wanted { cost, weight, up, found } = wanted;
    // As told before there were weights, where there is none.
    let weight = (weight != 1).then_some(weight.into());
    v1::Link { a: end(a), b: end(b), cost, up, weight, found, ..v1::Link::default() }
}

fn end(Place { switch, port }: Place) -> Option<v1::LinkEnd> {
    Some(v1::LinkEnd { switch, port: port.0.into() })
}

/// The change that was told; `None` if it is one of a later version.
fn change_of(told: v1::ToldChange) -> Option<Change> {
    Some(match told.change? {
        Wire::AddSwitch(request) => request.into(),
        Wire::AddSwitches(v1::AddSwitchesRequest { names }) => Change::AddSwitches { names },
        Wire::RemoveSwitch(request) => request.into(),
        Wire::AddHosts(hosts) => hosts.try_into().ok()?,
        Wire::RenameHost(request) => request.into(),
        Wire::RemoveHost(request) => request.into(),
        Wire::AddLink(link) => link.try_into().ok()?,
        Wire::AddLinks(links) => links.try_into().ok()?,
        Wire::SetLink(request) => request.try_into().ok()?,
        Wire::RemoveLink(request) => request.try_into().ok()?,
        Wire::SeeLinks(v1::SeenLinks { links }) => {
            let link = |v1::SeenLink { end, cut }| Some((crate::north::end(end).ok()?, cut));
            Change::SeeLinks { links: links.into_iter().map(link).collect::<Option<_>>()? }
        }
        Wire::PutNames(request) => request.try_into().ok()?,
        Wire::Learn(v1::LearntNames { names, at_ms, more }) => {
            let records = names.into_iter().map(crate::north::from_wire).collect::<Result<_, _>>().ok()?;
            let more = more.into_iter().map(|v1::MoreAddresses { name, ips }| {
                let ips: Vec<std::net::IpAddr> = ips.iter().map(|ip| ip.parse().ok()).collect::<Option<_>>()?;
                Some((name, ips))
            });
            Change::Learn { records, at_ms, more: more.collect::<Option<_>>()? }
        }
        Wire::RemoveNames(request) => request.into(),
        Wire::ChangeNames(v1::ChangedNames { remove, put }) => {
            let records = put.into_iter().map(crate::north::from_wire).collect::<Result<_, _>>().ok()?;
            Change::AlterNames { remove, records }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::action::PortId;

    #[test]
    fn what_is_told_comes_back() {
        let place = |switch: &str, port| Place { switch: switch.to_owned(), port: PortId(port) };
        let name = || "x".to_owned();
        let record = |ip: Option<&str>| Record {
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
        let mut telling = Telling::default();
        changes.iter().for_each(|change| telling.add(wire_of(change), &rows));
        let Some(Told::Changes(got, sum)) = Told::decode(&telling.encode()) else { panic!("changes") };
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
        assert!(matches!(Told::decode(&Telling::default().encode()), Some(Told::Nothing)));
        // Nothing, an unknown field, a cut message.
        for bytes in [&[][..], &[0x7a, 1, 0], &[0x12, 9, 1]] {
            assert!(Told::decode(bytes).is_none(), "{bytes:?}");
        }
    }
}

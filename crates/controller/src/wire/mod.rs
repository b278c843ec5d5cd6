//! Converts between the messages of `api::v1` and the values here: requests and records as changes, changes as records, and what is listed
//! as operators read it. An error names the field that makes no sense.

pub(crate) mod replication;
pub(crate) mod status;

use crate::core::change::{Change, Place, Record, State, is_drained};
use api::v1;
use api::v1::told_change::Change as Wire;
use fib::action::PortId;
use fib::durable::Tenants;
use fib::name::Name;
use fib::network::Network;
use fib::rib::Attachment;
use fib::topology::{End, Node, NodeId, Wanted};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tonic::Status;

impl TryFrom<v1::PutNamesRequest> for Change {
    type Error = Status;
    fn try_from(v1::PutNamesRequest { names, only_new }: v1::PutNamesRequest) -> Result<Change, Status> {
        let records = names.into_iter().map(from_wire).collect::<Result<_, _>>()?;
        Ok(Change::PutNames { records, only_new })
    }
}

impl TryFrom<v1::NameBatch> for Change {
    type Error = Status;
    fn try_from(v1::NameBatch { names }: v1::NameBatch) -> Result<Change, Status> {
        v1::PutNamesRequest { names, only_new: false }.try_into()
    }
}

impl From<v1::RemoveNamesRequest> for Change {
    fn from(v1::RemoveNamesRequest { names, ignore_missing }: v1::RemoveNamesRequest) -> Change {
        Change::RemoveNames { names, ignore_missing }
    }
}

impl From<v1::AddSwitchRequest> for Change {
    fn from(v1::AddSwitchRequest { name, tenants }: v1::AddSwitchRequest) -> Change {
        Change::AddSwitch { name, tenants }
    }
}

impl From<v1::RemoveSwitchRequest> for Change {
    fn from(v1::RemoveSwitchRequest { name }: v1::RemoveSwitchRequest) -> Change {
        Change::RemoveSwitch { name }
    }
}

impl TryFrom<v1::HostList> for Change {
    type Error = Status;
    fn try_from(v1::HostList { hosts, .. }: v1::HostList) -> Result<Change, Status> {
        let host = |v1::Host { name, switch, port, .. }| Ok((name, place(switch, port)?));
        Ok(Change::AddHosts { hosts: hosts.into_iter().map(host).collect::<Result<_, Status>>()? })
    }
}

impl From<v1::RenameHostRequest> for Change {
    fn from(v1::RenameHostRequest { name, to }: v1::RenameHostRequest) -> Change {
        Change::RenameHost { name, to }
    }
}

impl From<v1::RemoveHostRequest> for Change {
    fn from(v1::RemoveHostRequest { name }: v1::RemoveHostRequest) -> Change {
        Change::RemoveHost { name }
    }
}

impl TryFrom<v1::Link> for Change {
    type Error = Status;
    fn try_from(link: v1::Link) -> Result<Change, Status> {
        let (a, b, wanted) = wanted(link)?;
        Ok(Change::AddLink { a, b, wanted })
    }
}

/// A link as it is asked for.
fn wanted(v1::Link { a, b, cost, up, weight, found, .. }: v1::Link) -> Result<(Place, Place, Wanted), Status> {
    Ok((end(a)?, end(b)?, Wanted { cost, weight: weight_of(weight), up, found }))
}

/// A weight as it is asked for; an invalid one is refused where it is set.
pub(crate) fn weight_of(weight: Option<u32>) -> u8 {
    u8::try_from(weight.unwrap_or(1)).unwrap_or(u8::MAX)
}

impl TryFrom<v1::LinkList> for Change {
    type Error = Status;
    fn try_from(v1::LinkList { links, .. }: v1::LinkList) -> Result<Change, Status> {
        Ok(Change::AddLinks { links: links.into_iter().map(wanted).collect::<Result<_, Status>>()? })
    }
}

impl TryFrom<v1::SetLinkRequest> for Change {
    type Error = Status;
    fn try_from(request: v1::SetLinkRequest) -> Result<Change, Status> {
        let v1::SetLinkRequest { end: one, cost, raised, up, weight } = request;
        let weight = weight.map(|weight| weight_of(Some(weight)));
        Ok(Change::SetLink { end: end(one)?, cost, weight, raised, up })
    }
}

impl TryFrom<v1::RemoveLinkRequest> for Change {
    type Error = Status;
    fn try_from(v1::RemoveLinkRequest { end: one }: v1::RemoveLinkRequest) -> Result<Change, Status> {
        Ok(Change::RemoveLink { end: end(one)? })
    }
}

/// A switch, as the network has it.
pub(crate) fn switch(
    network: &Network,
    id: NodeId,
    node: &Node,
    hosts: u64,
    sharing: &BTreeMap<NodeId, usize>,
) -> v1::Switch {
    let (sharing, drained) = (sharing.get(&id).map_or(0, |n| *n as u64), is_drained(network.topology(), id));
    let (name, transit) = (node.name.clone(), node.transit);
    let tenants = match network.tenants(id) {
        Some(Tenants::Only(tenants)) => tenants.iter().copied().collect(),
        _ => Vec::new(),
    };
    v1::Switch { name, id: id.0, hosts, transit, sharing, drained, tenants, ..v1::Switch::default() }
}

/// A host, as it is listed.
pub(crate) fn host(state: &State, (name, end): (&str, End)) -> v1::Host {
    let Place { switch, port } = state.place(end);
    let (name, learnt) = (name.to_owned(), state.hosts.learnt.count(end));
    v1::Host { name, switch, port: port.0.into(), learnt, ..v1::Host::default() }
}

/// A name, as it is listed.
pub(crate) fn listed(state: &State, name: &Name, attachment: &Attachment) -> v1::NameRecord {
    let learnt_ms = state.hosts.learnt.since_ms(name).unwrap_or(0);
    let more_ips = state.hosts.learnt.more_of(name).iter().map(ToString::to_string).collect();
    v1::NameRecord { learnt_ms, more_ips, ..state.record(name, attachment).into() }
}

impl From<Record> for v1::NameRecord {
    fn from(Record { name, host, tenant, ip }: Record) -> v1::NameRecord {
        let ip = ip.map(|ip| ip.to_string()).unwrap_or_default();
        v1::NameRecord { name, host, tenant, ip, ..v1::NameRecord::default() }
    }
}

pub(crate) fn from_wire(record: v1::NameRecord) -> Result<Record, Status> {
    let v1::NameRecord { name, host, tenant, ip, .. } = record;
    let ip = match &ip[..] {
        "" => None,
        text => Some(text.parse::<IpAddr>().map_err(|_| {
            Status::invalid_argument(format!(
                "name `{name}`: `{text}` is not an IP address; write it like 10.0.0.7 or fd00::7"
            ))
        })?),
    };
    Ok(Record { name, host, tenant, ip })
}

fn place(switch: String, port: u32) -> Result<Place, Status> {
    let port = u16::try_from(port)
        .map_err(|_| Status::invalid_argument(format!("port {port} is too large; give at most 65535")))?;
    Ok(Place { switch, port: PortId(port) })
}

pub(crate) fn end(end: Option<v1::LinkEnd>) -> Result<Place, Status> {
    let v1::LinkEnd { switch, port } =
        end.ok_or_else(|| Status::invalid_argument("the link has no end; give switch and port of both"))?;
    place(switch, port)
}

/// A change as a record of the replication log; none for a change that is not [settled](State::settle).
pub(crate) fn record_of(change: &Change) -> Option<v1::ToldChange> {
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
        Change::AddLink { a, b, wanted } => Wire::AddLink(wire_link((a, b, wanted))),
        Change::AddLinks { links } => {
            let links = links.into_iter().map(wire_link).collect();
            Wire::AddLinks(v1::LinkList { links, ..v1::LinkList::default() })
        }
        Change::SetLink { end: one, cost, weight, raised, up } => {
            let weight = weight.map(u32::from);
            Wire::SetLink(v1::SetLinkRequest { end: wire_end(one), cost, raised, up, weight })
        }
        Change::SeeLinks { links } => {
            let link = |(one, cut)| v1::SeenLink { end: wire_end(one), cut };
            Wire::SeeLinks(v1::SeenLinks { links: links.into_iter().map(link).collect() })
        }
        Change::RemoveLink { end: one } => Wire::RemoveLink(v1::RemoveLinkRequest { end: wire_end(one) }),
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
        Change::ReplaceNames(_) => return None,
    };
    Some(v1::ToldChange { change: Some(change) })
}

fn wire_link((a, b, wanted): (Place, Place, Wanted)) -> v1::Link {
    let Wanted { cost, weight, up, found } = wanted;
    // As told before there were weights, where there is none.
    let weight = (weight != 1).then_some(weight.into());
    v1::Link { a: wire_end(a), b: wire_end(b), cost, up, weight, found, ..v1::Link::default() }
}

fn wire_end(Place { switch, port }: Place) -> Option<v1::LinkEnd> {
    Some(v1::LinkEnd { switch, port: port.0.into() })
}

/// The change in a record of the replication log; none for a record of a later version.
pub(crate) fn change_of(told: v1::ToldChange) -> Option<Change> {
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
            let link = |seen: v1::SeenLink| Some((end(seen.end).ok()?, seen.cut));
            Change::SeeLinks { links: links.into_iter().map(link).collect::<Option<_>>()? }
        }
        Wire::PutNames(request) => request.try_into().ok()?,
        Wire::Learn(v1::LearntNames { names, at_ms, more }) => {
            let records = names.into_iter().map(from_wire).collect::<Result<_, _>>().ok()?;
            let more = more.into_iter().map(|v1::MoreAddresses { name, ips }| {
                let ips: Vec<std::net::IpAddr> = ips.iter().map(|ip| ip.parse().ok()).collect::<Option<_>>()?;
                Some((name, ips))
            });
            Change::Learn { records, at_ms, more: more.collect::<Option<_>>()? }
        }
        Wire::RemoveNames(request) => request.into(),
        Wire::ChangeNames(v1::ChangedNames { remove, put }) => {
            let records = put.into_iter().map(from_wire).collect::<Result<_, _>>().ok()?;
            Change::AlterNames { remove, records }
        }
    })
}

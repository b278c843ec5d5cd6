//! Changes in the operator's terms, applied to the network.
//!
//! Operators speak of hosts and switches by name; [`fib::network`] knows ends and ids. [`State`] holds the network and
//! the host names, and applies each [`Change`] as a whole or not at all.

mod names;
mod refusal;
mod replacement;

pub use refusal::Refusal;
pub use replacement::{Others, Replacement};

use crate::hosts::{HostError, Hosts};
use fib::action::PortId;
use fib::durable::RowChange;
use fib::durable::Tenants;
use fib::name::{Name, NameKind, clip, is_label};
use fib::network::{Effects, Network, NetworkError};
use fib::rib::Attachment;
use fib::topology::{End, Link, NodeId, Topology, TopologyError, Wanted, check_weight};
use refusal::subject;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Added to the length of a drained link. The link is down, so no path counts this; it marks the link as drained until it is used again.
pub(crate) const DRAINED: u32 = u32::MAX;

/// The length added to a link, as far as paths are concerned.
pub(crate) fn raised(link: &Link) -> u32 {
    if link.raised == DRAINED { 0 } else { link.raised }
}

/// Whether a switch is drained, so that no path between other switches leads through it.
pub(crate) fn is_drained(topology: &Topology, node: NodeId) -> bool {
    let mut in_use = topology.links_of(node).map(|(_, _, link)| link).filter(|link| link.up).peekable();
    in_use.peek().is_some() && in_use.all(|link| link.raised > 0)
}

/// Most names of one request; imports send several requests.
pub const MAX_BATCH: usize = 100_000;

/// A name as an operator writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The text of the name, of the network's kind.
    pub name: String,
    /// The host it is attached to.
    pub host: String,
    /// The tenant.
    pub tenant: u32,
    /// The address that ARP and ND requests for this name ask for.
    pub ip: Option<IpAddr>,
}

/// A port of a switch, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The switch's name.
    pub switch: String,
    /// Its port.
    pub port: PortId,
}

/// One request for a change. `ReplaceNames` is [settled](State::settle) as `AlterNames` before followers are told of it. Two come from
/// switches: `SeeLinks` has ends of links and whether these are cut; `Learn` has the names that a switch saw, the moment in
/// milliseconds since 1970, and the further addresses of names.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are the request's words")]
pub enum Change {
    AddSwitch { name: String, tenants: Vec<u32> },
    AddSwitches { names: Vec<String> },
    RemoveSwitch { name: String },
    AddHosts { hosts: Vec<(String, Place)> },
    RenameHost { name: String, to: String },
    RemoveHost { name: String },
    AddLink { a: Place, b: Place, wanted: Wanted },
    AddLinks { links: Vec<(Place, Place, Wanted)> },
    SetLink { end: Place, cost: Option<u32>, weight: Option<u8>, raised: Option<u32>, up: Option<bool> },
    SeeLinks { links: Vec<(Place, bool)> },
    RemoveLink { end: Place },
    PutNames { records: Vec<Record>, only_new: bool },
    Learn { records: Vec<Record>, at_ms: u64, more: Vec<(String, Vec<IpAddr>)> },
    RemoveNames { names: Vec<String>, ignore_missing: bool },
    AlterNames { remove: Vec<String>, records: Vec<Record> },
    ReplaceNames(Arc<Replacement>),
}

impl Change {
    /// The number of names in it.
    pub fn n_names(&self) -> usize {
        match self {
            Change::PutNames { records, .. } | Change::Learn { records, .. } => records.len(),
            Change::RemoveNames { names, .. } => names.len(),
            Change::AlterNames { remove, records } => remove.len() + records.len(),
            Change::ReplaceNames(replacement) => replacement.len(),
            _ => 0,
        }
    }
}

/// What a change did: objects changed, and objects that were already as requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changed {
    /// Added, altered or removed.
    pub changed: u64,
    /// Already as requested.
    pub unchanged: u64,
}

/// The network and the names of its hosts.
pub struct State {
    /// RIB, topology, graph.
    pub network: Network,
    /// Host names.
    pub hosts: Hosts,
}

/// What a change caused: rows to commit, then messages to push, one list per inner network change.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) changed: Changed,
    pub(crate) rows: Vec<RowChange>,
    pub(crate) effects: Vec<Effects>,
}

impl Outcome {
    fn one(effects: Effects) -> Self {
        Outcome { changed: Changed { changed: 1, unchanged: 0 }, rows: Vec::new(), effects: vec![effects] }
    }

    fn many(n: usize, effects: Effects) -> Self {
        Outcome { changed: Changed { changed: n as u64, unchanged: 0 }, ..Self::one(effects) }
    }

    fn unchanged(n: usize) -> Self {
        Outcome { changed: Changed { changed: 0, unchanged: n as u64 }, ..Outcome::default() }
    }
}

impl State {
    /// Counts the names of each tenant in a change: at their new places, or at their current ones if the change removes them.
    pub(crate) fn tenants_of(&self, change: &Change) -> HashMap<u32, usize> {
        let mut n_names = HashMap::new();
        match change {
            Change::PutNames { records, .. } | Change::Learn { records, .. } => {
                records.iter().for_each(|record| *n_names.entry(record.tenant).or_default() += 1);
            }
            Change::RemoveNames { names, .. } => self.count_known(names, &mut n_names),
            Change::AlterNames { remove, records } => {
                records.iter().for_each(|record| *n_names.entry(record.tenant).or_default() += 1);
                self.count_known(remove, &mut n_names);
            }
            _ => {}
        }
        n_names
    }

    fn count_known(&self, names: &[String], n_names: &mut HashMap<u32, usize>) {
        let known = names.iter().filter_map(|text| self.network.rib().get(&self.parse(text).ok()?));
        known.for_each(|attachment| *n_names.entry(attachment.tenant).or_default() += 1);
    }

    /// Applies `change`, whole or not at all.
    pub(crate) fn carry_out(&mut self, change: Change) -> Result<Outcome, Refusal> {
        self.try_carry_out(change).map_err(|refusal| self.explain(refusal))
    }

    /// Adds the name of the switch to an error that has its id only.
    pub(crate) fn explain(&self, mut refusal: Refusal) -> Refusal {
        if let Refusal::Item { source, .. } = &mut refusal {
            let inner = std::mem::replace(&mut **source, Refusal::Stopping);
            **source = self.explain(inner);
        }
        if let Refusal::Network { source, switch } = &mut refusal
            && let Some(Ok(node)) = subject(source).map(|id| self.network.topology().node(id))
        {
            switch.clone_from(&node.name);
        }
        refusal
    }

    fn try_carry_out(&mut self, change: Change) -> Result<Outcome, Refusal> {
        match change {
            Change::AddSwitch { name, tenants } => {
                check_label(&name)?;
                let tenants =
                    if tenants.is_empty() { Tenants::All } else { Tenants::Only(tenants.into_iter().collect()) };
                let (_, effects) = self.network.add_switch(&name, tenants)?;
                Ok(Outcome::one(effects))
            }
            Change::AddSwitches { names } => {
                check_batch(names.len())?;
                let label = |(index, name): (usize, &String)| check_label(name).map_err(|refusal| refusal.at(index));
                names.iter().enumerate().try_for_each(label)?;
                if names.is_empty() {
                    return Ok(Outcome::unchanged(0));
                }
                let all: Vec<&str> = names.iter().map(String::as_str).collect();
                let (_, effects) = self.network.add_switches(&all)?;
                Ok(Outcome::many(all.len(), effects))
            }
            Change::RemoveSwitch { name } => {
                let node = self.node(&name)?;
                Ok(Outcome::one(self.network.remove_switch(node)?))
            }
            Change::AddHosts { hosts } => self.add_hosts(&hosts),
            Change::RenameHost { name, to } => {
                let end = self.hosts.end(&name)?;
                if name == to {
                    return Ok(Outcome::unchanged(1));
                }
                check_label(&to)?;
                if self.hosts.end(&to).is_ok() {
                    return Err(HostError::NameTaken { name: to }.into());
                }
                let rows = vec![self.hosts.remove(&name, end), self.hosts.insert(&to, end)];
                Ok(Outcome { changed: Changed { changed: 1, unchanged: 0 }, rows, effects: Vec::new() })
            }
            Change::RemoveHost { name } => {
                let end = self.hosts.end(&name)?;
                let mut outcome = Outcome::one(self.network.remove_host_port(end)?);
                outcome.rows.push(self.hosts.remove(&name, end));
                Ok(outcome)
            }
            Change::AddLink { a, b, wanted } => {
                let (a, b) = (self.end(&a)?, self.end(&b)?);
                Ok(Outcome::one(self.network.add_link_as(a, b, wanted)?))
            }
            Change::AddLinks { links } => {
                check_batch(links.len())?;
                if links.is_empty() {
                    return Ok(Outcome::unchanged(0));
                }
                let numbers = self.numbers();
                let end = |place: &Place| -> Result<End, Refusal> {
                    let node = numbers.get(&*place.switch).copied();
                    let unknown = || Refusal::UnknownSwitch { name: place.switch.clone() };
                    Ok(End { node: node.ok_or_else(unknown)?, port: place.port })
                };
                let link = |(index, (a, b, wanted)): (usize, &(Place, Place, Wanted))| {
                    let ends = || Ok((end(a)?, end(b)?, *wanted));
                    ends().map_err(|refusal: Refusal| refusal.at(index))
                };
                let links = links.iter().enumerate().map(link).collect::<Result<Vec<_>, Refusal>>()?;
                Ok(Outcome::many(links.len(), self.network.add_links(&links)?))
            }
            Change::SetLink { end, cost, weight, raised, up } => {
                let end = self.end(&end)?;
                let link = *self.network.topology().link(end).map_err(NetworkError::from)?;
                let mut effects = Vec::new();
                // Links go down first and come up last, so that no path uses a link meanwhile.
                let (cost, up) = (cost.filter(|&cost| cost != link.cost), up.filter(|&up| up != link.up));
                if cost == Some(0) {
                    return Err(NetworkError::from(TopologyError::ZeroCost).into());
                }
                let weight = weight.filter(|&weight| weight != link.weight);
                weight.map_or(Ok(()), check_weight).map_err(NetworkError::from)?;
                let is_drain = raised.is_some();
                // Putting a drained link into use means that it should carry frames.
                let is_back = up == Some(true) && link.raised == DRAINED;
                let raised = raised.or(is_back.then_some(0));
                if up == Some(false) {
                    effects.push(self.network.set_link_up(end, false)?);
                }
                if let Some(cost) = cost {
                    effects.push(self.network.set_link_cost(end, cost)?);
                }
                if let Some(weight) = weight {
                    effects.push(self.network.set_link_weight(end, weight)?);
                }
                if let Some(raised) = raised.filter(|&raised| raised != link.raised) {
                    effects.push(self.network.set_link_raised(end, raised)?);
                }
                if up == Some(true) {
                    effects.push(self.network.set_link_up(end, true)?);
                }
                // What an operator sets belongs to the operator from then on. A drain does not count: cables are moved during drains.
                if link.found && !is_drain {
                    effects.push(self.network.set_link_found(end, false)?);
                }
                if effects.is_empty() {
                    return Ok(Outcome::unchanged(1));
                }
                Ok(Outcome { changed: Changed { changed: 1, unchanged: 0 }, rows: Vec::new(), effects })
            }
            Change::SeeLinks { links } => {
                let link = |(place, cut): &(Place, bool)| Ok((self.end(place)?, *cut));
                let links = links.iter().map(link).collect::<Result<Vec<_>, Refusal>>()?;
                Ok(Outcome::many(links.len(), self.network.set_cut(&links)?))
            }
            Change::RemoveLink { end } => {
                let end = self.end(&end)?;
                Ok(Outcome::one(self.network.remove_link(end)?))
            }
            Change::PutNames { records, only_new } => self.put_names(records, only_new, None),
            Change::Learn { records, at_ms, more } => {
                let more = more.into_iter().map(|(name, ips)| Ok((self.parse(&name)?, ips)));
                let more = more.collect::<Result<Vec<_>, Refusal>>()?;
                let mut outcome = self.put_names(records, false, Some(at_ms))?;
                let rows = more.into_iter().filter_map(|(name, ips)| self.hosts.learnt.set_more(&name, ips));
                let before = outcome.rows.len();
                outcome.rows.extend(rows);
                outcome.changed.changed = outcome.changed.changed.max((outcome.rows.len() - before) as u64);
                Ok(outcome)
            }
            Change::RemoveNames { names, ignore_missing } => self.remove_names(&names, ignore_missing),
            Change::AlterNames { remove, records } => self.change_names(&remove, records),
            Change::ReplaceNames(_) => {
                let settled = self.settle(change)?;
                self.try_carry_out(settled)
            }
        }
    }

    /// The switches by name: finding one by its name takes a search of all.
    fn numbers(&self) -> HashMap<&str, NodeId> {
        self.network.topology().nodes().map(|(id, node)| (&*node.name, id)).collect()
    }

    fn add_hosts(&mut self, hosts: &[(String, Place)]) -> Result<Outcome, Refusal> {
        check_batch(hosts.len())?;
        let (mut names, mut taken) = (HashSet::with_capacity(hosts.len()), HashSet::with_capacity(hosts.len()));
        let (mut ends, mut new) = (Vec::with_capacity(hosts.len()), Vec::with_capacity(hosts.len()));
        // Hosts that were found, not declared, take the names that a request gives them now.
        let mut found = Vec::new();
        for (index, (name, place)) in hosts.iter().enumerate() {
            let at = |refusal: Refusal| refusal.at(index);
            check_label(name).map_err(at)?;
            let end = self.end(place).map_err(at)?;
            if !names.insert(name) || self.hosts.end(name).is_ok() {
                return Err(at(HostError::NameTaken { name: name.clone() }.into()));
            }
            match self.hosts.name(end) {
                _ if !taken.insert(end) => return Err(at(self.explain(NetworkError::PortOfHosts { end }.into()))),
                Some(there) if found_name(place) == there => found.push((there.to_owned(), end)),
                Some(there) => return Err(at(HostError::PortTaken { name: there.to_owned() }.into())),
                None => new.push(end),
            }
            ends.push(end);
        }
        if ends.is_empty() {
            return Ok(Outcome::unchanged(0));
        }
        let effects = if new.is_empty() { Vec::new() } else { vec![self.network.add_host_ports(&new)?] };
        let mut rows: Vec<RowChange> = found.iter().map(|(name, end)| self.hosts.remove(name, *end)).collect();
        rows.extend(hosts.iter().zip(&ends).map(|((name, _), end)| self.hosts.insert(name, *end)));
        Ok(Outcome { changed: Changed { changed: ends.len() as u64, unchanged: 0 }, rows, effects })
    }

    /// Parses a name of the network's kind.
    /// # Errors
    /// [`Refusal::BadName`].
    pub fn parse(&self, text: &str) -> Result<Name, Refusal> {
        let kind: NameKind = self.network.settings().kind;
        Name::parse(kind, text).map_err(|source| Refusal::BadName { name: clip(text), source })
    }

    /// The name with this text, or the one that has the text as its IP address.
    /// # Errors
    /// [`Refusal::BadName`] for a text that is neither, [`Refusal::UnknownAddress`] for an address that no name has.
    pub fn find(&self, text: &str) -> Result<Name, Refusal> {
        let parsed = self.parse(text);
        let is_there = parsed.as_ref().is_ok_and(|name| self.network.rib().get(name).is_some());
        let Some(ip) = text.trim().parse::<IpAddr>().ok().filter(|_| !is_there) else { return parsed };
        match (self.holder(ip), parsed) {
            (Some(name), _) => Ok(name),
            (None, Ok(name)) => Ok(name),
            (None, Err(_)) => Err(Refusal::UnknownAddress { ip }),
        }
    }

    /// The name that has an IP address, in its record or as a further address that was learnt.
    pub fn holder(&self, ip: IpAddr) -> Option<Name> {
        self.network.rib().by_ip(ip).or_else(|| self.hosts.learnt.holder(ip).cloned())
    }

    /// The id of a switch.
    /// # Errors
    /// [`Refusal::UnknownSwitch`].
    pub fn node(&self, name: &str) -> Result<NodeId, Refusal> {
        self.network.topology().node_by_name(name).ok_or_else(|| Refusal::UnknownSwitch { name: clip(name) })
    }

    fn end(&self, place: &Place) -> Result<End, Refusal> {
        Ok(End { node: self.node(&place.switch)?, port: place.port })
    }

    /// The place of a port, by name.
    pub fn place(&self, end: End) -> Place {
        let name = self.network.topology().node(end.node).map(|node| node.name.clone());
        Place { switch: name.unwrap_or_else(|_| end.node.to_string()), port: end.port }
    }

    /// The other end of the link at a place, in words; none if there is no link.
    pub(crate) fn far_end(&self, place: &Place) -> Option<String> {
        let near = self.end(place).ok()?;
        let link = self.network.topology().link(near).ok()?;
        let Place { switch, port } = self.place(if link.a == near { link.b } else { link.a });
        Some(format!("{switch}:{port}"))
    }

    /// The host that a name is attached to; none if there is no such name.
    pub(crate) fn host_of(&self, name: &str) -> Option<&str> {
        let at = self.network.rib().get(&self.parse(name).ok()?)?;
        self.hosts.name(at.end())
    }

    /// A name's record, in text.
    pub fn record(&self, name: &Name, attachment: &Attachment) -> Record {
        let host = self.hosts.name(attachment.end()).unwrap_or_default().to_owned();
        Record { name: name.to_string(), host, tenant: attachment.tenant, ip: attachment.ip }
    }
}

/// The name of a host that was found, not declared: after its port.
pub(crate) fn found_name(Place { switch, port }: &Place) -> String {
    format!("{switch}.{port}")
}

fn check_batch(got: usize) -> Result<(), Refusal> {
    if got > MAX_BATCH { Err(Refusal::BatchTooBig { got, max: MAX_BATCH }) } else { Ok(()) }
}

pub(crate) fn check_label(name: &str) -> Result<(), Refusal> {
    if is_label(name) { Ok(()) } else { Err(Refusal::BadLabel { name: clip(name) }) }
}

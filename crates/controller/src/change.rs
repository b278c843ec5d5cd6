//! Changes in the operator's terms, applied to the network.
//!
//! Operators speak of hosts and switches by name; [`fib::network`] knows ends and ids. [`State`] holds the network and
//! the host names, and does one [`Change`] whole or not at all.

use crate::hosts::{HostError, Hosts};
use crate::store::RowChange;
use fib::action::PortId;
use fib::durable::Tenants;
use fib::name::{Name, NameError, NameKind, clip, is_label};
use fib::network::{Effects, Network, NetworkError};
use fib::rib::Attachment;
use fib::topology::{End, NodeId, TopologyError, Wanted, check_weight};
use fib::unicast::{NotUnicast, check_unicast};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// How much longer a link is that was drained: it is down, so no path counts it, and it stays known as drained until it is in use again.
pub(crate) const DRAINED: u32 = u32::MAX;

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

/// One request for a change. Two are of switches: `SeeLinks`, ends of links, and whether these are cut; `Learn`, names that they
/// saw, the moment in milliseconds since 1970, and the addresses that names have beside that of their record.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are the request's words")]
pub enum Change {
    AddSwitch { name: String, tenants: Vec<u32> },
    AddSwitches { names: Vec<String> },
    RemoveSwitch { name: String },
    AddHosts { hosts: Vec<(String, Place)> },
    RemoveHost { name: String },
    AddLink { a: Place, b: Place, wanted: Wanted },
    AddLinks { links: Vec<(Place, Place, Wanted)> },
    SetLink { end: Place, cost: Option<u32>, weight: Option<u8>, raised: Option<u32>, up: Option<bool> },
    SeeLinks { links: Vec<(Place, bool)> },
    RemoveLink { end: Place },
    PutNames { records: Vec<Record>, only_new: bool },
    Learn { records: Vec<Record>, at_ms: u64, more: Vec<(String, Vec<IpAddr>)> },
    RemoveNames { names: Vec<String>, ignore_missing: bool },
}

impl Change {
    /// The number of names in it.
    pub fn n_names(&self) -> usize {
        match self {
            Change::PutNames { records, .. } | Change::Learn { records, .. } => records.len(),
            Change::RemoveNames { names, .. } => names.len(),
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

/// Why a change was refused; nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A switch says that it has seen a term that no controller reaches.
    #[error(
        "switch `{switch}` has seen term {got}, and a controller reaches {max} at most: remove its saved image and start it again"
    )]
    TermTooLate {
        /// Its name.
        switch: String,
        /// As it says.
        got: u64,
        /// The latest that is believed.
        max: u64,
    },
    /// No switch of this name.
    #[error("there is no switch `{name}`; `fibula switch list` lists all")]
    UnknownSwitch {
        /// As asked.
        name: String,
    },
    /// No name like this.
    #[error("there is no name `{name}`; `fibula name list` lists all")]
    UnknownName {
        /// As asked.
        name: String,
    },
    /// The name is there and should be new.
    #[error("the name `{name}` exists already; use `fibula name set` to change it")]
    NameExists {
        /// As asked.
        name: String,
    },
    /// One request names it twice.
    #[error("the name `{name}` is in the request twice; keep one of the two")]
    Duplicate {
        /// As asked.
        name: String,
    },
    /// Too many names in one request.
    #[error("{got} objects are too many for one request; send at most {max} in each")]
    BatchTooBig {
        /// Names in the request.
        got: usize,
        /// The limit.
        max: usize,
    },
    /// An empty or overlong name of a switch or host.
    #[error(
        "`{name}` is no name for a switch or host: 1 to 63 of letters, digits, `-`, `_` and `.`, not `-` or `.` first"
    )]
    BadLabel {
        /// As asked.
        name: String,
    },
    /// The host table refuses.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The text is not a name of the network's kind.
    #[error("name `{name}`: {source}")]
    BadName {
        /// As asked.
        name: String,
        /// Why.
        source: NameError,
    },
    /// A name or an IP address that no host can have.
    #[error("name `{name}`: {source}")]
    NotUnicast {
        /// As asked.
        name: String,
        /// What it is.
        source: NotUnicast,
    },
    /// A tenant's names change faster than they may.
    #[error(
        "more than {per_second} {what} a second of tenant {tenant}: wait {wait_ms} ms, or raise rates.{what}_per_second"
    )]
    TooFast {
        /// Whose.
        tenant: u32,
        /// `names` or `changes`.
        what: &'static str,
        /// The limit.
        per_second: u32,
        /// How long until it may go on.
        wait_ms: u128,
    },
    /// Too many backups at the same time.
    #[error("{max} backups are being made; wait until one is done")]
    TooManyBackups {
        /// The most.
        max: usize,
    },
    /// Rows change faster than a backup is received.
    #[error(
        "more than {bytes} bytes of changes wait for the backup: try again where it is written faster, or when less changes"
    )]
    BackupTooSlow {
        /// The most.
        bytes: usize,
    },
    /// The store cannot be read.
    #[error("there is no backup: {reason}")]
    BackupFailed {
        /// Why.
        reason: String,
    },
    /// Another rekey is not done yet.
    #[error("a rekey is in progress; the log says when it is done")]
    RekeyInProgress,
    /// A rekey soon after another.
    #[error("the last rekey was less than {every_s} s ago: wait {wait_s} s, or lower rates.rekey_pause_s")]
    RekeyTooSoon {
        /// How long to wait.
        wait_s: u64,
        /// The setting.
        every_s: u64,
    },
    /// The network refuses.
    #[error("{}", named(source, switch))]
    Network {
        /// Why; it identifies switches by their ids.
        source: NetworkError,
        /// The name of the switch that it concerns, if any.
        switch: String,
    },
    /// The store failed; the controller stops and must be started again.
    #[error("the store failed, so the controller stops: {reason}")]
    StoreFailed {
        /// Why.
        reason: String,
    },
    /// The controller is stopping.
    #[error("the controller is stopping; try again when it runs")]
    Stopping,
    /// Another controller leads.
    #[error(
        "{leader} leads, and this controller follows: it answers questions and serves switches. Name all controllers, as in --controller URL,URL,URL, and the one that leads is asked"
    )]
    NotLeader {
        /// Who, and where it listens.
        leader: String,
    },
    /// This controller follows, and is not up to date.
    #[error("this controller has yet to learn what another has committed; try again, or go on to another one")]
    NotUpToDate,
}

impl From<NetworkError> for Refusal {
    fn from(source: NetworkError) -> Self {
        Refusal::Network { source, switch: String::new() }
    }
}

/// An error of the network in words, with the name of a switch in place of its id, which no operator knows.
fn named(error: &NetworkError, switch: &str) -> String {
    let text = error.to_string();
    match subject(error) {
        _ if switch.is_empty() => text,
        _ if matches!(error, NetworkError::Topology(TopologyError::NameTaken { .. })) => {
            format!("there is a switch `{switch}` already: choose another name")
        }
        Some(id) if text.contains(&format!("switch {id}")) => {
            text.replacen(&format!("switch {id}"), &format!("switch `{switch}`"), 1)
        }
        _ => format!("{text} (that switch is `{switch}`)"),
    }
}

/// The switch that an error of the network concerns.
fn subject(error: &NetworkError) -> Option<NodeId> {
    use TopologyError::{Loop, NameTaken, NoLink, NodeHasLinks, PortHasLink};
    match error {
        NetworkError::Topology(NodeHasLinks { id, .. } | Loop { id } | NameTaken { id, .. }) => Some(*id),
        NetworkError::Topology(PortHasLink { end } | NoLink { end }) => Some(end.node),
        NetworkError::NoHostPort { end } | NetworkError::PortOfHosts { end } => Some(end.node),
        NetworkError::HasNames { end, .. } => Some(end.node),
        NetworkError::HasHostPorts { id, .. } | NetworkError::TenantNotHeld { id, .. } => Some(*id),
        NetworkError::TooManyActions { id, .. } | NetworkError::WrongCluster { id, .. } => Some(*id),
        NetworkError::Batch { source, .. } => subject(source),
        _ => None,
    }
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
    /// How many names of each tenant a change has: where they will be, or where they are if it removes them.
    pub(crate) fn tenants_of(&self, change: &Change) -> HashMap<u32, usize> {
        let mut n_names = HashMap::new();
        match change {
            Change::PutNames { records, .. } | Change::Learn { records, .. } => {
                records.iter().for_each(|record| *n_names.entry(record.tenant).or_default() += 1);
            }
            Change::RemoveNames { names, .. } => {
                let known = names.iter().filter_map(|text| self.network.rib().get(&self.parse(text).ok()?));
                known.for_each(|attachment| *n_names.entry(attachment.tenant).or_default() += 1);
            }
            _ => {}
        }
        n_names
    }

    /// Applies `change`, whole or not at all.
    pub(crate) fn carry_out(&mut self, change: Change) -> Result<Outcome, Refusal> {
        self.try_carry_out(change).map_err(|refusal| self.explain(refusal))
    }

    /// Adds the name of the switch to an error that has its id only.
    pub(crate) fn explain(&self, mut refusal: Refusal) -> Refusal {
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
                names.iter().try_for_each(|name| check_label(name))?;
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
                let link = |(a, b, wanted): &(Place, Place, Wanted)| Ok((end(a)?, end(b)?, *wanted));
                let links = links.iter().map(link).collect::<Result<Vec<_>, Refusal>>()?;
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
                // Whoever puts a drained link into use wants it used.
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
                // What an operator sets is his from then on. A drain does not make it so: cables are moved while they are drained.
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
        }
    }

    /// The switches by their names: to find one takes a search of all.
    fn numbers(&self) -> HashMap<&str, NodeId> {
        self.network.topology().nodes().map(|(id, node)| (&*node.name, id)).collect()
    }

    fn add_hosts(&mut self, hosts: &[(String, Place)]) -> Result<Outcome, Refusal> {
        check_batch(hosts.len())?;
        let (mut names, mut ends) = (HashSet::with_capacity(hosts.len()), Vec::with_capacity(hosts.len()));
        for (name, place) in hosts {
            check_label(name)?;
            let end = self.end(place)?;
            self.hosts.check_new(name, end)?;
            if !names.insert(name) {
                return Err(HostError::NameTaken { name: name.clone() }.into());
            }
            ends.push(end);
        }
        if ends.is_empty() {
            return Ok(Outcome::unchanged(0));
        }
        let mut outcome = Outcome::one(self.network.add_host_ports(&ends)?);
        outcome.changed.changed = ends.len() as u64;
        let rows = hosts.iter().zip(ends).map(|((name, _), end)| self.hosts.insert(name, end));
        outcome.rows.extend(rows);
        Ok(outcome)
    }

    /// `learnt`: they were found by switches at this moment; otherwise they are an operator's from now on.
    fn put_names(&mut self, records: Vec<Record>, only_new: bool, learnt: Option<u64>) -> Result<Outcome, Refusal> {
        check_batch(records.len())?;
        let mut seen = HashSet::with_capacity(records.len());
        let mut put = Vec::with_capacity(records.len());
        // The item of the request for each of `put`.
        let mut items = Vec::with_capacity(records.len());
        let n_records = records.len();
        // Names of which it changes whether they are learnt, and where.
        let mut found = Vec::new();
        for (item, record) in records.into_iter().enumerate() {
            let name = self.parse(&record.name)?;
            let checked = name.check_unicast().and_then(|()| record.ip.map_or(Ok(()), check_unicast));
            checked.map_err(|source| Refusal::NotUnicast { name: record.name.clone(), source })?;
            let end = self.hosts.end(&record.host)?;
            let attachment = Attachment { switch: end.node, port: end.port, tenant: record.tenant, ip: record.ip };
            if !seen.insert(name.clone()) {
                return Err(Refusal::Duplicate { name: record.name });
            }
            let is_learnt = self.hosts.learnt.since_ms(&name).is_some();
            if learnt.is_some() && !is_learnt && self.network.rib().get(&name).is_some() {
                // An operator declared it meanwhile, and his word stands.
                continue;
            }
            if learnt.is_some() || is_learnt {
                found.push((name.clone(), end));
            }
            match self.network.rib().get(&name) {
                Some(_) if only_new => return Err(Refusal::NameExists { name: record.name }),
                Some(before) if before == attachment => {}
                _ => {
                    put.push((name, attachment));
                    items.push(item);
                }
            }
        }
        drop(seen);
        let effects = match &put[..] {
            [] if found.is_empty() => return Ok(Outcome::unchanged(n_records)),
            [] => Effects::default(),
            [(name, attachment)] => self.network.set_name(name, *attachment)?,
            put => self.network.put_names(put).map_err(|error| match error {
                NetworkError::Batch { index, source } => NetworkError::Batch { index: items[index], source },
                other => other,
            })?,
        };
        let known = &mut self.hosts.learnt;
        let row = |(name, end): (Name, End)| match learnt {
            Some(at_ms) => known.insert(&name, at_ms, end),
            None => known.remove(&name),
        };
        let rows: Vec<RowChange> = found.into_iter().filter_map(row).collect();
        let n_changed = put.len().max(rows.len());
        let changed = Changed { changed: n_changed as u64, unchanged: (n_records - n_changed) as u64 };
        Ok(Outcome { changed, rows, effects: vec![effects] })
    }

    fn remove_names(&mut self, texts: &[String], ignore_missing: bool) -> Result<Outcome, Refusal> {
        check_batch(texts.len())?;
        let mut seen = HashSet::with_capacity(texts.len());
        let mut names = Vec::with_capacity(texts.len());
        for text in texts {
            let name = self.parse(text)?;
            let present = self.network.rib().get(&name).is_some();
            if !present && !ignore_missing {
                return Err(Refusal::UnknownName { name: text.clone() });
            }
            if present && seen.insert(name.clone()) {
                names.push(name);
            }
        }
        let effects = match &names[..] {
            [] => return Ok(Outcome::unchanged(texts.len())),
            [name] => self.network.remove_name(name)?,
            names => self.network.remove_names(names)?,
        };
        let changed = Changed { changed: names.len() as u64, unchanged: (texts.len() - names.len()) as u64 };
        let rows = names.iter().filter_map(|name| self.hosts.learnt.remove(name)).collect();
        Ok(Outcome { changed, rows, effects: vec![effects] })
    }

    /// Parses a name of the network's kind.
    /// # Errors
    /// [`Refusal::BadName`].
    pub fn parse(&self, text: &str) -> Result<Name, Refusal> {
        let kind: NameKind = self.network.settings().kind;
        Name::parse(kind, text).map_err(|source| Refusal::BadName { name: clip(text), source })
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

fn check_batch(got: usize) -> Result<(), Refusal> {
    if got > MAX_BATCH { Err(Refusal::BatchTooBig { got, max: MAX_BATCH }) } else { Ok(()) }
}

pub(crate) fn check_label(name: &str) -> Result<(), Refusal> {
    if is_label(name) { Ok(()) } else { Err(Refusal::BadLabel { name: clip(name) }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_switch_and_not_its_number() {
        let (id, end) = (NodeId(1), End { node: NodeId(1), port: PortId(2) });
        let taken = TopologyError::NameTaken { name: "s1".to_owned(), id };
        let text = named(&taken.into(), "s1");
        assert_eq!(text, "there is a switch `s1` already: choose another name");
        let text = named(&NetworkError::PortOfHosts { end }, "s1");
        assert_eq!(text, "port 2 of switch `s1` is a host port already: choose another port or remove that one");
        let batch = NetworkError::Batch { index: 1, source: Box::new(NetworkError::PortOfHosts { end }) };
        assert!(named(&batch, "s1").contains("port 2 of switch `s1` is"), "{}", named(&batch, "s1"));
        // Of one that is gone there is no name.
        assert!(named(&NetworkError::PortOfHosts { end }, "").starts_with("port 2 of switch 1 is"));
    }
}

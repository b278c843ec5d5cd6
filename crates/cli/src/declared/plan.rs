//! The steps that make the network match the lists, except for names.

use super::files::{Host, Link, Lists};
use crate::remote::{Client, PortOf, answer};
use crate::rib::replace::Counts;
use api::v1;
use api::words::counted;
use command::output::{Exit, Failure, Output, write_out};
use command::visible::visible;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What to remove if the lists lack it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pruning {
    pub(super) others: bool,
    /// Also remove what was learnt or found.
    pub(super) learnt: bool,
}

/// The network as the controller has it, except for names.
pub(super) struct There {
    switches: Vec<v1::Switch>,
    pub(super) hosts: Vec<v1::Host>,
    links: Vec<v1::Link>,
}

impl There {
    /// # Errors
    /// Those of the controller.
    pub(super) async fn ask(client: &mut Client) -> anyhow::Result<There> {
        let switches = answer(client.list_switches(v1::ListSwitchesRequest {}).await)?.switches;
        let hosts = answer(client.list_hosts(v1::ListHostsRequest {}).await)?.hosts;
        let links = answer(client.list_links(v1::ListLinksRequest {}).await)?.links;
        Ok(There { switches, hosts, links })
    }
}

/// The name of an undeclared host, after its port.
pub(super) fn found_name(PortOf { switch, port }: &PortOf) -> String {
    format!("{switch}.{port}")
}

pub(super) fn port_of(host: &v1::Host) -> PortOf {
    PortOf { switch: host.switch.clone(), port: u16::try_from(host.port).unwrap_or(u16::MAX) }
}

fn end_of(end: Option<&v1::LinkEnd>) -> PortOf {
    let (switch, port) = end.map_or((String::new(), 0), |end| (end.switch.clone(), end.port));
    PortOf { switch, port: u16::try_from(port).unwrap_or(u16::MAX) }
}

/// A change to an existing link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetLink {
    pub(super) end: PortOf,
    pub(super) cost: Option<u32>,
    pub(super) weight: Option<u32>,
    pub(super) up: Option<bool>,
}

/// The steps, in this order; names come after the hosts are added.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Name and tenants.
    pub(super) add_switches: Vec<(String, Vec<u32>)>,
    /// Links whose ports are needed for something else.
    pub(super) free_links: Vec<PortOf>,
    /// Hosts that give up their names to others, or are renamed.
    pub(super) rename_hosts: Vec<(String, String)>,
    pub(super) add_hosts: Vec<(String, PortOf)>,
    pub(super) remove_hosts: Vec<String>,
    pub(super) add_links: Vec<Link>,
    pub(super) set_links: Vec<SetLink>,
    pub(super) remove_links: Vec<PortOf>,
    pub(super) remove_switches: Vec<String>,
    /// Hosts that move: name, from, to.
    moves: Vec<(String, PortOf, PortOf)>,
    /// All hosts that exist when the names are applied.
    hosts: BTreeMap<String, PortOf>,
    /// Where the hosts are before the plan.
    before: HashMap<String, PortOf>,
    lines: Vec<Line>,
}

/// A line of the plan.
#[derive(Debug, Serialize)]
struct Line {
    change: &'static str,
    what: &'static str,
    name: String,
    /// The difference.
    why: String,
}

impl Plan {
    fn say(&mut self, change: &'static str, what: &'static str, name: impl Into<String>, why: impl Into<String>) {
        self.lines.push(Line { change, what, name: name.into(), why: why.into() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// All hosts that exist when the names are applied.
    pub(super) fn hosts(&self) -> HashSet<String> {
        self.hosts.keys().cloned().collect()
    }

    pub(super) fn moves(&self) -> impl Iterator<Item = &(String, PortOf, PortOf)> {
        self.moves.iter()
    }

    /// Whether a name differs only because its host is being renamed.
    pub(super) fn explains(&self, v1::NameDifference { before, after }: &v1::NameDifference) -> bool {
        let (Some(before), Some(after)) = (before, after) else { return false };
        let is_same = (before.tenant, &before.ip, before.learnt_ms) == (after.tenant, &after.ip, 0);
        let (from, to) = (self.before.get(&before.host), self.hosts.get(&after.host));
        is_same && from.is_some() && from == to
    }

    /// Prints lines that begin with `+`, `~` or `-`.
    pub(super) fn print(&self, out: &Output) -> anyhow::Result<()> {
        if out.is_json() {
            return out.rows(&self.lines);
        }
        let line = |Line { change, what, name, why }: &Line| {
            let sign = match *change {
                "add" => '+',
                "remove" => '-',
                _ => '~',
            };
            let why = if why.is_empty() { String::new() } else { format!(": {}", visible(why)) };
            format!("{sign} {what} {}{why}\n", visible(name))
        };
        write_out(&self.lines.iter().map(line).collect::<String>())
    }

    /// The plan as a summary.
    pub(super) fn sentence(&self, names: Counts) -> String {
        let n = |change: &str| self.lines.iter().filter(|line| line.change == change).count() as u64;
        let (add, change, remove) = (n("add"), n("change"), n("remove"));
        let objects = format!("{add} to be added, {change} to be changed, {remove} to be removed");
        let names = match names.n_differ() {
            0 => String::new(),
            n => format!(", and {}: {}", counted(n, "name", "names"), names.sentence()),
        };
        format!("{objects} of switches, hosts and links{names}")
    }
}

/// Computes the plan.
/// # Errors
/// An impossible change: other tenants for an existing switch.
pub(super) fn plan(lists: &Lists, there: &There, pruning: Pruning) -> anyhow::Result<Plan> {
    let mut plan = Plan::default();
    plan.plan_switches(lists, there, pruning)?;
    // Before hosts, which may need the ports; links are decided once it is known which hosts go.
    plan.plan_hosts(lists, there, pruning);
    plan.plan_links(lists, there, pruning);
    Ok(plan)
}

impl Plan {
    fn plan_switches(&mut self, lists: &Lists, there: &There, pruning: Pruning) -> anyhow::Result<()> {
        let Some(wanted) = &lists.switches else { return Ok(()) };
        let known: HashMap<&str, &v1::Switch> = there.switches.iter().map(|one| (&*one.name, one)).collect();
        for switch in wanted {
            let tenants: Vec<u32> = switch.tenants.iter().copied().collect();
            let words = |tenants: &[u32]| match tenants {
                [] => "all tenants".to_owned(),
                some => format!("tenants {}", some.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")),
            };
            match known.get(&*switch.name) {
                None => {
                    self.say(
                        "add",
                        "switch",
                        &switch.name,
                        if tenants.is_empty() { String::new() } else { words(&tenants) },
                    );
                    self.add_switches.push((switch.name.clone(), tenants));
                }
                Some(there) if there.tenants != tenants => {
                    let why = format!(
                        "switch {} holds the names of {}, but switches.csv says {}: tenants cannot be changed; remove the switch and add it again",
                        switch.name,
                        words(&there.tenants),
                        words(&tenants)
                    );
                    return Err(Failure::new(Exit::Refused, why));
                }
                Some(_) => {}
            }
        }
        if pruning.others {
            let wanted: HashSet<&str> = wanted.iter().map(|switch| &*switch.name).collect();
            for switch in there.switches.iter().filter(|switch| !wanted.contains(&*switch.name)) {
                self.say("remove", "switch", &switch.name, "");
                self.remove_switches.push(switch.name.clone());
            }
        }
        Ok(())
    }

    fn plan_hosts(&mut self, lists: &Lists, there: &There, pruning: Pruning) {
        self.before = there.hosts.iter().map(|host| (host.name.clone(), port_of(host))).collect();
        let mut now: BTreeMap<String, PortOf> = self.before.clone().into_iter().collect();
        let Some(wanted) = &lists.hosts else {
            self.hosts = now;
            return;
        };
        let names: HashSet<&str> = wanted.iter().map(|host| &*host.name).collect();
        let mut at: HashMap<PortOf, String> = now.iter().map(|(name, port)| (port.clone(), name.clone())).collect();
        // Hosts at the wrong port leave it first, so that others can come.
        for Host { name, port } in wanted {
            if let Some(from) = now.get(name).filter(|from| *from != port).cloned() {
                self.say("change", "host", name, format!("moves from {from} to {port}"));
                self.moves.push((name.clone(), from.clone(), port.clone()));
                let left = found_name(&from);
                self.rename_hosts.push((name.clone(), left.clone()));
                now.remove(name);
                now.insert(left.clone(), from.clone());
                at.insert(from, left);
            }
        }
        for Host { name, port } in wanted {
            if now.get(name) == Some(port) {
                continue;
            }
            let is_move = self.moves.iter().any(|(moved, ..)| moved == name);
            match at.get(port).cloned() {
                // It is undeclared, so its name has the suffix.
                Some(found) if found == found_name(port) => {
                    if !is_move {
                        self.say("change", "host", name, format!("is {found} so far, which is not declared"));
                    }
                    self.add_hosts.push((name.clone(), port.clone()));
                    now.remove(&found);
                }
                Some(other) => {
                    self.say("change", "host", &other, format!("is renamed to {name}"));
                    // A host that moves there leaves the name of its port in between.
                    if is_move {
                        self.rename_hosts.push((other.clone(), found_name(port)));
                        self.add_hosts.push((name.clone(), port.clone()));
                    } else {
                        self.rename_hosts.push((other.clone(), name.clone()));
                    }
                    now.remove(&other);
                }
                None => {
                    if !is_move {
                        self.say("add", "host", name, format!("at {port}"));
                    }
                    self.add_hosts.push((name.clone(), port.clone()));
                }
            }
            now.insert(name.clone(), port.clone());
            at.insert(port.clone(), name.clone());
        }
        self.hosts = now.clone();
        let learnt: HashMap<PortOf, u32> = there.hosts.iter().map(|host| (port_of(host), host.learnt)).collect();
        for (name, port) in now.iter().filter(|(name, _)| !names.contains(&***name)) {
            let is_left = self.moves.iter().any(|(_, from, _)| from == port);
            let is_found = *name == found_name(port);
            let n_learnt = learnt.get(port).copied().unwrap_or(0);
            match () {
                // Learnt names there need a host.
                () if is_left && n_learnt == 0 => self.remove_hosts.push(name.clone()),
                () if !pruning.others || is_left => {}
                () if is_found && !pruning.learnt => {}
                () if n_learnt > 0 && !pruning.learnt => {
                    let why = format!("no longer declared; {n_learnt} names are learnt there");
                    self.say("change", "host", name, why);
                    self.rename_hosts.push((name.clone(), found_name(port)));
                    self.hosts.remove(name);
                    self.hosts.insert(found_name(port), port.clone());
                }
                () => {
                    self.say("remove", "host", name, format!("at {port}"));
                    self.remove_hosts.push(name.clone());
                }
            }
        }
    }

    fn plan_links(&mut self, lists: &Lists, there: &There, pruning: Pruning) {
        // Ports of new hosts that a link may occupy.
        let of_hosts: HashSet<&PortOf> = self.add_hosts.iter().map(|(_, port)| port).collect();
        let known: Vec<(PortOf, PortOf, &v1::Link)> =
            there.links.iter().map(|link| (end_of(link.a.as_ref()), end_of(link.b.as_ref()), link)).collect();
        let wanted: &[Link] = lists.links.as_deref().unwrap_or_default();
        let by_end: HashMap<&PortOf, &Link> =
            wanted.iter().flat_map(|link| [(&link.a, link), (&link.b, link)]).collect();
        let (mut lines, mut same) = (Vec::new(), HashSet::new());
        let (mut free, mut removed, mut set) = (Vec::new(), Vec::new(), Vec::new());
        for (a, b, link) in &known {
            let pair = format!("{a} – {b}");
            match (by_end.get(a), by_end.get(b)) {
                (Some(one), Some(other)) if std::ptr::eq(*one, *other) => {
                    same.insert((&one.a, &one.b));
                    if let Some((change, why)) = difference(a, link, one) {
                        lines.push(("change", pair, why));
                        set.push(change);
                    }
                }
                (None, None) if of_hosts.contains(a) || of_hosts.contains(b) => {
                    lines.push(("remove", pair, "a host needs one of its ports".to_owned()));
                    free.push(a.clone());
                }
                (None, None) => {
                    let goes = lists.links.is_some() && pruning.others && (pruning.learnt || !link.found);
                    if goes {
                        lines.push(("remove", pair, String::new()));
                        removed.push(a.clone());
                    }
                }
                _ => {
                    lines.push(("remove", pair, "another link needs one of its ports".to_owned()));
                    free.push(a.clone());
                }
            }
        }
        let mut added = Vec::new();
        for link in wanted.iter().filter(|link| !same.contains(&(&link.a, &link.b))) {
            let down = if link.up == Some(false) { ", down" } else { "" };
            let why = format!("cost {}, weight {}{down}", link.cost, link.weight);
            lines.push(("add", format!("{} – {}", link.a, link.b), why));
            added.push(link.clone());
        }
        // A switch is removed with its links.
        let gone: BTreeSet<&str> = self.remove_switches.iter().map(String::as_str).collect();
        for (a, b, _) in &known {
            let is_of_gone = gone.contains(&*a.switch) || gone.contains(&*b.switch);
            if is_of_gone && !free.contains(a) && !removed.contains(a) && lists.links.is_some() {
                lines.push(("remove", format!("{a} – {b}"), "its switch is removed".to_owned()));
                removed.push(a.clone());
            }
        }
        (self.free_links, self.remove_links, self.set_links, self.add_links) = (free, removed, set, added);
        lines.into_iter().for_each(|(change, pair, why)| self.say(change, "link", pair, why));
    }
}

/// How an existing link differs. Whether a drained link is up is left to the operator who drained it.
fn difference(end: &PortOf, there: &v1::Link, wanted: &Link) -> Option<(SetLink, String)> {
    let weight = there.weight.unwrap_or(1);
    let is_drained = there.drained || there.raised > 0;
    let change = SetLink {
        end: end.clone(),
        cost: (there.cost != wanted.cost || there.found).then_some(wanted.cost),
        weight: (weight != wanted.weight).then_some(wanted.weight),
        up: wanted.up.filter(|up| *up != there.up && !is_drained),
    };
    let mut words = Vec::new();
    if there.cost != wanted.cost {
        words.push(format!("cost {} -> {}", there.cost, wanted.cost));
    }
    words.extend(change.weight.map(|to| format!("weight {weight} -> {to}")));
    words.extend(change.up.map(|up| if up { "put into use" } else { "taken out of use" }.to_owned()));
    if there.found {
        words.push("declared, no longer only found".to_owned());
    }
    (!words.is_empty()).then(|| (change, words.join(", ")))
}

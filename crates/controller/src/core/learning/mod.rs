//! Decides what to do with names seen at a port where they are not registered.
//!
//! | seen | known as | result |
//! |---|---|---|
//! | anywhere | declared | nothing: the operator's declaration takes precedence |
//! | where it is | learnt | it gets the address that it claims, besides those that it has |
//! | elsewhere | learnt | it moves |
//! | anywhere | new | it becomes a name, if the port accepts names and has room for one more; otherwise it is listed |
//!
//! After [`MOST_MOVES`] moves, or changes of address, within [`MOVES_WITHIN`] a name stays for [`FROZEN`] where it was before these
//! moves, so a host cannot take another's name that way.
//!
//! An address of a declared name is never given away. That of a learnt one goes to another learnt name of its tenant that announces it
//! to everyone, as hosts do that take over an address after a failure (RFC 5227, section 3; RFC 5798); merely using it is not enough.
//! An address that goes back and forth stays where it was before. So a host that makes up names fills the quota of its own port, and
//! takes nothing from names that an operator declared. It can take the place of a learnt name for as long as that name's host is
//! silent, as in any network that learns.
//!
//! Where a port is configured to, a learnt name is forgotten after it has been silent for a time.
//!
//! Everything here is lost with this process; what followed from it is in the store.

use crate::core::change::{Place, Record, State};
use api::v1::{ForgetfulPort, HostConflict, LinkEnd, SeenHost, UnknownHost};
use fib::action::PortId;
use fib::name::Name;
use fib::network::Network;
use fib::topology::{End, NodeId};
use fib::unicast::check_unicast;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

mod decided;
mod judge;
mod settings;

pub(crate) use decided::Decided;
use decided::add_address;
use judge::{Judged, Room};
pub use settings::Settings;

/// Moves of a name within [`MOVES_WITHIN`] after which it flaps: two hosts have it, or frames go round in a loop.
const MOST_MOVES: usize = 5;
/// Time within which the moves of a name are counted.
const MOVES_WITHIN: Duration = Duration::from_secs(10);
/// How long a name that flaps stays where it was.
const FROZEN: Duration = Duration::from_secs(60);

/// The most names that are listed and not learnt, and the most names whose moves are known.
pub(crate) const MAX_UNKNOWN: usize = 10_000;
const MAX_MOVED: usize = 100_000;

/// Sentences that are kept for each port, and for how long they are reported.
const MAX_TROUBLES: usize = 8;
const SAID_FOR: Duration = Duration::from_secs(60);

/// Ports of a switch that may forget names, and how long what a switch reports of them holds.
const MAX_FORGETFUL: usize = 1024;
const TERMS_FOR: Duration = Duration::from_secs(100);

/// Names of a port that are listed and not learnt, and ports of which sentences are kept.
const MAX_UNKNOWN_OF_PORT: usize = 256;
const MAX_TROUBLED: usize = 10_000;

/// The most conflicting claims that are listed: in all, and at one port.
const MAX_CONFLICTS: usize = 1000;
const MAX_CONFLICTS_OF_PORT: usize = 100;

/// A name that was not seen for this long is no longer listed.
const LISTED_FOR: Duration = Duration::from_secs(3600);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Learning {
    settings: Settings,
    seen: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    unknown: HashMap<Name, Unknown>,
    /// The turn of the next name that is listed.
    next_turn: u64,
    moves: HashMap<Name, Moves>,
    /// Ports that forget silent names after a time, and when names at them were last seen.
    forgetful: HashMap<End, Patience>,
    last: HashMap<Name, Instant>,
    troubles: BTreeMap<End, Vec<Trouble>>,
    conflicts: BTreeMap<Name, Conflict>,
    counts: Counts,
}

/// What was decided, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// New names, moves, and new addresses of names.
    pub(crate) learnt: u64,
    pub(crate) moved: u64,
    pub(crate) addresses: u64,
    /// Names that were silent for as long as their port waits.
    pub(crate) forgotten: u64,
    /// Sightings without effect: the port is full; the name is declared elsewhere; the address belongs to another; the name
    /// moves too often; anything else.
    pub(crate) full: u64,
    pub(crate) declared: u64,
    pub(crate) taken: u64,
    pub(crate) flapping: u64,
    pub(crate) refused: u64,
}

/// How long a port waits for its names.
#[derive(Clone, Copy, Debug)]
struct Patience {
    time: Duration,
    /// When its switch last reported that.
    said: Instant,
}

/// Why a name is listed: its port only reports; or there was no room when all were accepted, which holds even when there is room
/// room again.
const REPORTED: &str = "the port, or the controller, only reports";
const LEFT: &str = "the port, or its switch, was at its limit of learnt names when the others were accepted; `host accept NAME` learns it";

#[derive(Clone, Debug)]
struct Unknown {
    end: End,
    ip: Option<IpAddr>,
    tenant: u32,
    first_ms: u64,
    last_ms: u64,
    /// Counts up in the order in which names are listed first: dates may step back.
    turn: u64,
    seen: Instant,
    /// Learnt names that its port may have.
    max_names: u32,
    why: &'static str,
}

#[derive(Debug, Default)]
struct Moves {
    at: VecDeque<Instant>,
    /// Where it was before the first of these.
    home: Option<End>,
    frozen_until: Option<Instant>,
}

#[derive(Debug)]
struct Trouble {
    sentence: String,
    seen: Instant,
}

/// A conflicting claim to a name: where it was seen, how, and why it has no effect.
#[derive(Debug)]
struct Conflict {
    end: End,
    tenant: u32,
    is: &'static str,
    why: String,
    first_ms: u64,
    last_ms: u64,
    seen: Instant,
}

/// Kind of a conflict: the name changes again and again, and stays as it was for a while.
const FROZEN_STATE: &str = "frozen";
/// Kind of a conflict: the name belongs to another place or tenant.
const ELSEWHERE: &str = "elsewhere";
/// Kind of a conflict: the name claims an address that belongs to another.
const ADDRESS: &str = "address";

/// A sighting by a switch that makes sense.
struct Sight {
    name: Name,
    end: End,
    ip: Option<IpAddr>,
    tenant: u32,
    accepts: bool,
    max_names: u32,
    announces: bool,
}

impl Learning {
    /// Says, once, what may be learnt.
    pub(crate) fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Notes which of its ports a switch says forget names.
    pub(crate) fn set_forgetful(&mut self, node: NodeId, ports: &[ForgetfulPort], now: Instant) {
        let seen = &mut self.seen;
        seen.forgetful.retain(|end, _| end.node != node);
        for port in ports.iter().take(MAX_FORGETFUL).filter(|port| port.forget_s > 0) {
            let Ok(number) = u16::try_from(port.port) else { continue };
            let patience = Patience { time: Duration::from_secs(port.forget_s.into()), said: now };
            seen.forgetful.insert(End { node, port: PortId(number) }, patience);
        }
    }

    /// Decides what to do with what a switch saw.
    pub(crate) fn decide(
        &mut self,
        state: &State,
        node: NodeId,
        hosts: &[SeenHost],
        now: Instant,
        now_ms: u64,
    ) -> Decided {
        let settings = self.settings.clone();
        let seen = &mut self.seen;
        let mut decided = Decided::default();
        // What this report adds to ports, and whose addresses it has given away.
        let (mut added, mut given, mut made) = (HashMap::new(), HashSet::new(), HashMap::new());
        let (mut judged, mut n_added) = (HashMap::<Name, usize>::new(), 0);
        for host in hosts {
            let Some(mut sight) = sight(&state.network, node, host) else {
                seen.counts.refused += 1;
                continue;
            };
            sight.accepts &= settings.accept;
            sight.max_names = sight.max_names.min(settings.max_names_per_port);
            let end = sight.end;
            if seen.forgetful.contains_key(&end) {
                seen.last.insert(sight.name.clone(), now);
            }
            // Its own claims count once it has lost what another one took over.
            if decided.losers.contains_key(&sight.name) {
                continue;
            }
            if let Some(ip) = sight.ip {
                let owner = state.holder(ip);
                let owner = owner.filter(|owner| *owner != sight.name);
                let taken = owner.as_ref().filter(|_| !given.contains(&ip));
                let taken = taken.is_some_and(|owner| seen.may_take_over(state, &sight, owner, ip, now));
                if let Some(owner) = owner.as_ref().filter(|_| taken) {
                    decided.lose(state, owner, ip);
                    let from = state.network.rib().get(owner).map(|at| text(state, at.end())).unwrap_or_default();
                    let told =
                        format!("took over {ip} from {owner} at {from}: it announced it at {}", text(state, end));
                    decided.taken.push((sight.name.to_string(), told));
                } else if owner.is_some() || given.contains(&ip) {
                    let owner = owner.map_or_else(|| "another name".to_owned(), |owner| owner.to_string());
                    seen.counts.taken += 1;
                    let place = text(state, end);
                    let why = format!("{} at {place} claims {ip}, which {owner} has", sight.name);
                    seen.conflict(&sight, ADDRESS, why, (now, now_ms));
                    sight.ip = None;
                }
            }
            // It said more than one thing since the last report.
            if let Some(before) = judged.get(&sight.name).and_then(|i: &usize| decided.records.get_mut(*i)) {
                if let Some(ip) = sight.ip.filter(|ip| before.ip != Some(*ip)) {
                    given.insert(ip);
                    let more = decided.more.entry(sight.name.clone());
                    let more = more.or_insert_with(|| state.hosts.learnt.more_of(&sight.name).to_vec());
                    add_address(&mut before.ip, more, ip);
                }
                continue;
            }
            let room = Room {
                port: sight.max_names.saturating_sub(added.get(&end).copied().unwrap_or(0)),
                switch: settings.max_names_per_switch.saturating_sub(n_added),
            };
            let Some(record) = seen.judge(state, &sight, room, now, now_ms) else { continue };
            let known = state.hosts.name(end).or_else(|| made.get(&end).map(String::as_str));
            let host = match known.map(str::to_owned).map_or_else(|| free_host(state, end), Ok) {
                Ok(host) => host,
                Err(sentence) => {
                    seen.counts.refused += 1;
                    seen.trouble(end, now, sentence);
                    continue;
                }
            };
            if state.hosts.name(end).is_none() && made.insert(end, host.clone()).is_none() {
                decided.hosts.push((host.clone(), state.place(end)));
            }
            if state.hosts.learnt.since_ms(&sight.name).is_none() || record.moves {
                *added.entry(end).or_default() += 1;
                n_added += 1;
            }
            given.extend(sight.ip);
            let Judged { ip, tenant, more, .. } = record;
            if let Some(more) = more {
                decided.more.insert(sight.name.clone(), more);
            }
            judged.insert(sight.name.clone(), decided.records.len());
            decided.records.push(Record { name: sight.name.to_string(), host, tenant, ip });
        }
        decided
    }

    /// The names that were silent for as long as their port waits. A name that was not heard since this process leads counts as
    /// heard now.
    pub(crate) fn silent(&mut self, state: &State, now: Instant) -> Vec<String> {
        let seen = &mut self.seen;
        if seen.forgetful.is_empty() {
            return Vec::new();
        }
        let mut last = std::mem::take(&mut seen.last);
        let mut silent = Vec::new();
        for (name, end) in state.hosts.learnt.iter() {
            // A port's report from long ago may no longer hold: its switch is away, or configured differently.
            let holds = |patience: &&Patience| now.saturating_duration_since(patience.said) < TERMS_FOR;
            let Some(patience) = seen.forgetful.get(&end).filter(holds) else { continue };
            let heard = last.remove(name).unwrap_or(now);
            if now.saturating_duration_since(heard) >= patience.time {
                silent.push(name.to_string());
            }
            seen.last.insert(name.clone(), heard);
        }
        silent
    }

    /// They are forgotten.
    pub(crate) fn forgotten(&mut self, n: usize) {
        self.seen.counts.forgotten += n as u64;
    }

    /// The network refused what was decided.
    pub(crate) fn refused(&mut self, state: &State, end: End, name: &str, why: &str, now: Instant) {
        let seen = &mut self.seen;
        seen.counts.refused += 1;
        let place = text(state, end);
        seen.trouble(end, now, format!("{name} at {place} is not learnt: {why}"));
    }

    /// Notes that the decision was carried out.
    pub(crate) fn done(&mut self, state: &State, records: &[Record]) {
        let seen = &mut self.seen;
        for name in records.iter().filter_map(|record| state.parse(&record.name).ok()) {
            seen.unknown.remove(&name);
        }
    }

    /// Counts since the start, and the names that are listed and not learnt.
    pub(crate) fn counts(&self) -> (Counts, usize) {
        let seen = &self.seen;
        (seen.counts, seen.unknown.len())
    }

    /// What was seen and not learnt, by port and name: the first `most`, and how many there are.
    pub(crate) fn unknown(&mut self, state: &State, now: Instant, most: usize) -> (Vec<UnknownHost>, usize) {
        let seen = &mut self.seen;
        let is_known = |name: &Name| state.network.rib().get(name).is_some();
        seen.unknown.retain(|name, unknown| now.duration_since(unknown.seen) < LISTED_FOR && !is_known(name));
        let mut all: Vec<(&Name, &Unknown)> = seen.unknown.iter().collect();
        all.sort_unstable_by(|a, b| (a.1.end, a.0).cmp(&(b.1.end, b.0)));
        let wire = |(name, unknown): (&Name, &Unknown)| {
            let Place { switch, port } = state.place(unknown.end);
            UnknownHost {
                name: name.to_string(),
                ip: unknown.ip.map(|ip| ip.to_string()).unwrap_or_default(),
                at: Some(LinkEnd { switch, port: port.0.into() }),
                tenant: unknown.tenant,
                first_ms: unknown.first_ms,
                last_ms: unknown.last_ms,
                why: unknown.why.to_owned(),
            }
        };
        let n = all.len();
        (all.into_iter().take(most).map(wire).collect(), n)
    }

    /// Names with conflicting claims, by name.
    pub(crate) fn conflicts(&mut self, state: &State, now: Instant) -> Vec<HostConflict> {
        let seen = &mut self.seen;
        let moves = &seen.moves;
        seen.conflicts.retain(|name, conflict| {
            let is_frozen = || moves.get(name).and_then(|moves| moves.frozen_until).is_some_and(|until| now < until);
            now.saturating_duration_since(conflict.seen) < SAID_FOR && (conflict.is != FROZEN_STATE || is_frozen())
        });
        let wire = |(name, conflict): (&Name, &Conflict)| {
            let Conflict { end, tenant, is, why, first_ms, last_ms, .. } = conflict;
            let Place { switch, port } = state.place(*end);
            HostConflict {
                name: name.to_string(),
                at: Some(LinkEnd { switch, port: port.0.into() }),
                state: (*is).to_owned(),
                why: why.clone(),
                first_ms: *first_ms,
                last_ms: *last_ms,
                tenant: *tenant,
            }
        };
        seen.conflicts.iter().map(wire).collect()
    }

    /// The changes that learn what was seen: these names, or, without any, all that their ports and switches have room for.
    /// # Errors
    /// The name that was not seen, or why there can be no host.
    pub(crate) fn accept(&mut self, state: &State, names: &[Name], now: Instant) -> Result<Decided, String> {
        let settings = self.settings.clone();
        let seen = &mut self.seen;
        let mut decided = Decided::default();
        let (mut made, mut given): (HashMap<End, String>, HashSet<IpAddr>) = Default::default();
        let names =
            if names.is_empty() { seen.allowed(state, &settings, now, &mut decided.left) } else { names.to_vec() };
        for name in names {
            let none =
                || format!("no switch has seen `{name}` at a learning port; `fibula host seen` lists what was seen");
            let unknown = seen.unknown.get(&name).ok_or_else(none)?;
            if state.network.rib().get(&name).is_some() && state.hosts.learnt.since_ms(&name).is_none() {
                return Err(format!("`{name}` is already declared; `fibula name set` moves it"));
            }
            let host = match state.hosts.name(unknown.end).or_else(|| made.get(&unknown.end).map(String::as_str)) {
                Some(host) => host.to_owned(),
                None => {
                    let host = free_host(state, unknown.end)?;
                    decided.hosts.push((host.clone(), state.place(unknown.end)));
                    made.insert(unknown.end, host.clone());
                    host
                }
            };
            let is_free = |ip: &IpAddr| state.network.rib().by_ip(*ip).is_none() && given.insert(*ip);
            let ip = unknown.ip.filter(is_free);
            decided.records.push(Record { name: name.to_string(), host, tenant: unknown.tenant, ip });
        }
        Ok(decided)
    }

    /// A sentence for each recent problem.
    pub(crate) fn troubles(&self, now: Instant) -> Vec<String> {
        let seen = &self.seen;
        let lately = |trouble: &&Trouble| now.duration_since(trouble.seen) < SAID_FOR;
        seen.troubles.values().flatten().filter(lately).map(|trouble| trouble.sentence.clone()).collect()
    }
}

/// A sighting that a switch reports; none if it is not a name that a host can have, or its port has a link.
fn sight(network: &Network, node: NodeId, host: &SeenHost) -> Option<Sight> {
    let name = Name::from_bytes(network.settings().kind, &host.name).ok()?;
    name.check_unicast().ok()?;
    let end = End { node, port: PortId(host.port.try_into().ok()?) };
    if network.topology().link(end).is_ok() {
        return None;
    }
    let SeenHost { tenant, max_names, accept, announces, .. } = *host;
    Some(Sight { name, end, ip: address(&host.ip), tenant, accepts: accept, max_names, announces })
}

/// An address that a host has for others.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let ip = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    let is_own = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    (!is_own && check_unicast(ip).is_ok()).then_some(ip)
}

fn text(state: &State, end: End) -> String {
    let Place { switch, port } = state.place(end);
    format!("{switch}:{port}")
}

/// A name for the host at a port that has none.
fn free_host(state: &State, end: End) -> Result<String, String> {
    let place = state.place(end);
    let (name, Place { switch, port }) = (crate::core::change::found_name(&place), place);
    crate::core::change::check_label(&name)
        .map_err(|_| format!("{switch}:{port} needs a host with a name; `fibula host add` adds one"))?;
    match state.hosts.end(&name) {
        Ok(_) => {
            Err(format!("a host `{name}` exists elsewhere; give {switch}:{port} another one with `fibula host add`"))
        }
        Err(_) => Ok(name),
    }
}

#[cfg(test)]
mod tests;

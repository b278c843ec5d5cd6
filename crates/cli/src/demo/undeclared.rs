//! A network in which nothing is declared but the controller and the ports of the switches: it finds itself, is cut with and
//! without a sign, and a host of it moves.
//!
//! The switches wait at the controller and are accepted by one request; the cables between them become links by the controller's
//! policy; hosts become names when they speak, and get their addresses by DHCP, by which these are known as well. The server has its
//! address by hand, and announces it (RFC 5227, section 2.3): the demo does that for the stack of Linux, which leaves it to the
//! program that configures it.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use api::v1::{LinkEnd, NameRecord};

use super::backend::{Control, Fault, Stop, pause};
use super::controller::{RemoteControl, link_end};
use super::dhcp::{Clients, SERVER};
use super::frames::arp_request;
use super::hosts::Pings;
use super::judge::{Judge, Phase, mac_text};
use super::layout::{Host, Layout};
use super::phases::{Findings, PROBE_RATE_PPS, Run, outage};
use super::privileged::Namespaced;
use super::prober::Targets;
use super::processes::Processes;
use super::wire::{RawSenders, Wires};

/// Everything is found within this, and so is a host that moved.
const FIND_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between checks of what is known, and of whether a host is known elsewhere.
const FIND_POLL: Duration = Duration::from_millis(5);
const MOVE_POLL: Duration = Duration::from_millis(1);
/// A server that is not known says again where it is.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);
/// What a host sends waits until it has an answer to its ARP request, which Linux repeats after a second.
const ARP_AGAIN: Duration = Duration::from_millis(1200);
/// The cable that a host uses at first, of two.
const FIRST_CABLE: usize = 0;
/// The host that moves; not the server.
const MOVER: usize = SERVER + 1;

/// From the start of the switches until what they are, and what they see, was known and in their tables.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Found {
    pub(super) switches: Duration,
    pub(super) links: Duration,
    /// With their addresses.
    pub(super) hosts: Duration,
}

/// A host that moved.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Move {
    pub(super) host: String,
    /// The port where it is now, as switch and number.
    pub(super) to: String,
    /// From the move until every switch had confirmed it.
    pub(super) followed: Duration,
    /// From the move until the last probe that did not arrive was sent; 0 if none was lost.
    pub(super) outage: Duration,
}

/// What a run is made of.
pub(super) struct Parts<'a> {
    /// Of configuration files and logs.
    pub(super) directory: &'a Path,
    pub(super) wires: &'a Wires,
    pub(super) judge: &'a Judge,
    pub(super) stop: &'a Stop,
    /// Total seconds of traffic.
    pub(super) seconds: f64,
    pub(super) progress: &'a dyn Fn(String),
}

/// Starts the switches, lets the network find itself, and runs all phases.
pub(super) fn run(layout: &Layout, control: &mut RemoteControl<'_>, parts: &Parts<'_>) -> Result<Findings> {
    let Parts { wires, judge, stop, seconds, progress, .. } = *parts;
    judge.add(layout.hosts.iter().enumerate().map(|(index, host)| (host.mac, index)));
    judge.forbid_groups();
    judge.enter(Phase::Find);
    progress(format!("{} switches and a DHCP server start; the controller knows nothing", layout.n_switches()));
    let (found, addresses) = Search::begin(layout, control, parts)?.finish(control, stop)?;
    progress("all switches, links and hosts are known".to_owned());
    let layout = &layout.with_addresses(&addresses);
    let backend = &Namespaced::new(layout, wires)?;
    let run = Run { layout, backend, control, judge, stop, n_names: 0, seconds, progress };
    Ok(Findings { found: Some(found), ..run.undeclared()? })
}

/// The network while it finds itself.
struct Search<'a> {
    layout: &'a Layout,
    wires: &'a Wires,
    clients: Clients,
    raw: RawSenders,
    begun: Instant,
    addresses: Vec<Option<Ipv4Addr>>,
    /// When the server said last where it is.
    announced: Option<Instant>,
}

impl<'a> Search<'a> {
    fn begin(layout: &'a Layout, control: &mut RemoteControl<'_>, parts: &Parts<'a>) -> Result<Self> {
        let raw = RawSenders::open(parts.wires, layout)?;
        let clients = Clients::start(parts.directory, layout, parts.wires, control.site.processes)?;
        let begun = Instant::now();
        control.start_switches(parts.stop)?;
        let mut addresses = vec![None; layout.hosts.len()];
        addresses[SERVER] = Some(layout.hosts[SERVER].ip);
        Ok(Self { layout, wires: parts.wires, clients, raw, begun, addresses, announced: None })
    }

    /// Waits until all is known, and every switch has confirmed it. Returns when that was, and the addresses of the hosts.
    fn finish(mut self, control: &mut RemoteControl<'_>, stop: &Stop) -> Result<(Found, Vec<Ipv4Addr>)> {
        let mut found = [None; 3];
        loop {
            self.take_leases(control.site.processes)?;
            let has_switches = control.accept_switches()?;
            let missing_links = self.missing_links(&control.links()?);
            let missing_hosts = self.missing_hosts(&control.learnt()?);
            let behind = control.behind()?;
            let known = [has_switches, missing_links.is_empty(), missing_hosts.is_empty()];
            for (found, known) in found.iter_mut().zip(known) {
                // What was there before it was asked who is behind is in the tables of all who are not.
                if found.is_none() && known && behind.is_empty() {
                    *found = Some(self.begun.elapsed());
                }
            }
            let addresses: Option<Vec<Ipv4Addr>> = self.addresses.iter().copied().collect();
            // What was found may be gone again, so all of it is there at once.
            let is_all = known == [true; 3] && behind.is_empty();
            if let ([Some(switches), Some(links), Some(hosts)], Some(addresses), true) = (found, addresses, is_all) {
                return Ok((Found { switches, links, hosts }, addresses));
            }
            control.check(stop)?;
            if self.begun.elapsed() > FIND_TIMEOUT {
                let seconds = FIND_TIMEOUT.as_secs();
                let missing = [behind, missing_links, missing_hosts].concat().join(", ");
                bail!("after {seconds} s this is not known, or not in the tables: {missing}");
            }
            pause(FIND_POLL, stop);
        }
    }

    fn take_leases(&mut self, processes: &Processes) -> Result<()> {
        for host in (0..self.addresses.len()).filter(|host| self.addresses[*host].is_none()).collect::<Vec<_>>() {
            // Asked in this order: a client ends after it has said what it has to say.
            let ended = !processes.is_running(&Clients::name(host));
            if let Some(ip) = self.clients.lease(host, ended)? {
                if self.addresses.contains(&Some(ip)) {
                    bail!("h{host} got the address {ip}, which another host has");
                }
                self.wires.set_address(host, ip)?;
                self.addresses[host] = Some(ip);
            }
        }
        Ok(())
    }

    /// The links that the controller does not know, and those that are none.
    fn missing_links(&self, links: &[[LinkEnd; 2]]) -> Vec<String> {
        let text = |end: &LinkEnd| format!("{}:{}", end.switch, end.port);
        let name = |[a, b]: &[LinkEnd; 2]| {
            let mut ends = [text(a), text(b)];
            ends.sort();
            ends.join(" - ")
        };
        let trunks = self.layout.trunks.iter().map(|ends| name(&ends.map(|end| link_end(self.layout, end))));
        let trunks: HashSet<String> = trunks.collect();
        let known: HashSet<String> = links.iter().map(name).collect();
        trunks.symmetric_difference(&known).cloned().collect()
    }

    /// The hosts that are not known with port and address. The server says again where it is.
    fn missing_hosts(&mut self, names: &[NameRecord]) -> Vec<String> {
        let mut missing = Vec::new();
        for (index, host) in self.layout.hosts.iter().enumerate() {
            let Some(ip) = self.addresses[index] else {
                missing.push(format!("the address of h{index}"));
                continue;
            };
            let is_known = |name: &NameRecord| {
                name.name == mac_text(&host.mac)
                    && name.host == place(self.layout, host, FIRST_CABLE)
                    && name.ip == ip.to_string()
            };
            if names.iter().any(is_known) {
                continue;
            }
            missing.push(format!("h{index}"));
            if index == SERVER && self.announced.is_none_or(|at| at.elapsed() >= ANNOUNCE_AGAIN) {
                self.announced = Some(Instant::now());
                // One that the kernel refuses is sent again.
                let _ = self.raw.send(index, FIRST_CABLE, &arp_request((host.mac, ip), ip));
            }
        }
        let is_host = |name: &&NameRecord| self.layout.hosts.iter().any(|host| mac_text(&host.mac) == name.name);
        let strangers = names.iter().filter(|name| !is_host(name));
        missing.extend(strangers.map(|name| format!("{}, which is no host", name.name)));
        missing
    }
}

/// The port of a host's cable, as the controller names a host that it found there.
fn place(layout: &Layout, host: &Host, cable: usize) -> String {
    let end = host.ends[cable];
    format!("{}.{}", layout.topology.switches[end.switch], end.port)
}

impl Run<'_, RemoteControl<'_>> {
    /// Runs the phases of a network that has found itself.
    fn undeclared(mut self) -> Result<Findings> {
        let nothing_else = Mutex::new(Targets::default());
        let mut findings = Findings::default();

        self.begin(Phase::Ping, "every host pings every other")?;
        findings.pings = self.backend.ping_all(self.stop)?;

        // Four phases; a cut and a move rest twice as long as they are told, a drain three times.
        let rest = Duration::from_secs_f64(self.seconds / 8.0);
        if let [pulled, silent, ..] = self.layout.topology.redundant_links()[..] {
            self.begin(Phase::Cut, "a cable is pulled and plugged in again, without telling the controller")?;
            findings.cut = Some(self.cut(&nothing_else, (pulled, Fault::Pulled), rest)?);

            self.begin(Phase::Silent, "another drops every frame, and its ends keep their carriers")?;
            findings.silent = Some(self.cut(&nothing_else, (silent, Fault::Silent), rest)?);
        }

        self.begin(Phase::Move, "a host is plugged in at another port, without telling the controller")?;
        findings.moved = Some(self.follow(&nothing_else, rest)?);

        self.begin(Phase::Drain, "a switch is drained, and lets paths through again")?;
        findings.drain = self.drain(&nothing_else, rest * 2 / 3)?;

        // After all that, too.
        let Pings { pairs, answered, at_first_try, .. } = self.backend.ping_all(self.stop)?;
        findings.pings.pairs += pairs;
        findings.pings.answered += answered;
        findings.pings.at_first_try += at_first_try;
        Ok(findings)
    }

    /// Moves a host under probes, and waits until it is known where it is.
    fn follow(&mut self, targets: &Mutex<Targets>, rest: Duration) -> Result<Move> {
        let (layout, host) = (self.layout, &self.layout.hosts[MOVER]);
        let (times, log) = self.under_probes(targets, PROBE_RATE_PPS, ARP_AGAIN, |run| {
            pause(rest / 2, run.stop);
            let begun = Instant::now();
            let cable = run.backend.carry_over(MOVER)?;
            let to = place(layout, host, cable);
            while !run.control.learnt()?.iter().any(|name| name.name == mac_text(&host.mac) && name.host == to) {
                run.control.check(run.stop)?;
                if begun.elapsed() > FIND_TIMEOUT {
                    bail!("{} s after h{MOVER} moved to {to}, the controller does not know", FIND_TIMEOUT.as_secs());
                }
                pause(MOVE_POLL, run.stop);
            }
            run.control.wait_in_step(run.stop)?;
            let followed = begun.elapsed();
            if !run.control.learnt()?.iter().any(|name| name.name == mac_text(&host.mac) && name.host == to) {
                bail!("h{MOVER} was known at {to}, and is known elsewhere again");
            }
            pause(rest * 3 / 2, run.stop);
            Ok((begun, followed, to))
        })?;
        let (begun, followed, to) = times;
        let outage = outage(&log, self.judge, begun, Instant::now());
        Ok(Move { host: format!("h{MOVER}"), to, followed, outage })
    }
}

//! The switch's `/metrics` and `/status`.

use crate::daemon::agent::{Answering, LinkStatus, Shared};
use crate::daemon::links::Trunk;
use crate::daemon::saved::Saver;
use api::audit::Audit;
use api::gate::Gate;
use api::memory;
use api::status::{MetricsText, StatusSource, plain};
use api::v1::{Ask, Counters, DropCount, MemoryUse, PortCounters};
use dataplane::acl::AclStatus;
use dataplane::assembly::{Dataplane, PortStatus};
use dataplane::bundle::MemberStatus;
use dataplane::counters::DropReason;
use dataplane::directory::{Directory, DirectoryCounts};
use dataplane::flow::Flows;
use dataplane::flow::balance::{Member, endpoint_text};
use dataplane::flow::state::protocol_name;
use dataplane::kernel::KernelStatus;
use dataplane::learn;
use dataplane::links::lldp::{Neighbour, Shown};
use dataplane::links::{OwnFrames, Tally};
use dataplane::mac::Mac;
use dataplane::plane::PlaneWriter;
use dataplane::port::Role;
use dataplane::subscriptions;
use fib::action::PortId;
use fib::designs::Table;
use fib::name::{Name, NameKind};
use fib::replica::{Replica, Tables};
use lookup::base::processor::Kernel;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

pub(super) struct Page {
    pub(super) name: String,
    pub(super) shared: Arc<Shared<PlaneWriter>>,
    pub(super) saver: Saver,
    pub(super) plane: Weak<Dataplane>,
    pub(super) directory: Option<Arc<Directory>>,
    pub(super) flows: Option<Flows>,
    pub(super) gate: Arc<Gate>,
    pub(super) audit: Arc<Audit>,
}

/// Bytes by part.
type Parts = [(&'static str, u64); 4];

/// What is served, and how much of it.
struct Served {
    valid_names: u64,
    local_names: u64,
    fib_bytes: u64,
    /// Parts of the FIB that came whole.
    parts_received: u64,
    /// Bytes by part; see [`memory::usage`].
    parts: Parts,
    shards: u64,
    /// How names are looked up.
    lookups: Option<String>,
    name_kind: Option<NameKind>,
    field_error: Option<String>,
    /// Where other programs can read the table; whether they can, or why not.
    share: Option<(PathBuf, Result<bool, String>)>,
}

impl Page {
    fn served(&self) -> Served {
        let replica = self.shared.replica();
        let (valid, local) = replica.tables().shared();
        Served {
            valid_names: valid.len() as u64,
            local_names: local.len() as u64,
            fib_bytes: fib_bytes(&replica),
            parts_received: replica.parts_received(),
            parts: parts(&replica),
            shards: replica.fib().map_or(0, |fib| fib.held().len() as u64),
            lookups: replica.fib().map(lookups),
            name_kind: replica.header().map(|header| header.spec.kind),
            field_error: replica.tables().field_error().map(|error| error.to_string()),
            share: replica.tables().shown_to().share().map(|share| {
                (share.path().to_owned(), share.error().map_or(Ok(share.is_shown()), |error| Err(error.to_owned())))
            }),
        }
    }

    /// The groups that names here want.
    fn wanted(&self) -> Value {
        let groups = self.shared.groups();
        let all = groups.subscriptions().map(subscriptions::Subscriptions::all).unwrap_or_default();
        let of_name = |(mac, groups): (Mac, Vec<IpAddr>)| {
            let name = Name::from_bytes(NameKind::Mac, &mac).map(|name| name.to_string()).unwrap_or_default();
            (name, groups.into_iter().map(|group| group.to_string()).collect())
        };
        Value::Object(all.into_iter().map(of_name).collect())
    }
}

/// What this switch says of itself to its controller.
pub(super) struct About {
    pub(super) shared: Arc<Shared<PlaneWriter>>,
    pub(super) plane: Weak<Dataplane>,
    pub(super) checks: Option<Arc<super::checks::Checks>>,
    pub(super) relay: Arc<super::relay::Relay>,
}

impl super::agent::About for About {
    fn answers(&self) -> bool {
        true
    }

    fn answer(&self, switch: &str, ask: Ask) -> Option<Answering> {
        let (relay, switch) = (Arc::clone(&self.relay), switch.to_owned());
        Some(Box::pin(async move { relay.answer(switch, ask).await }))
    }

    fn memory(&self) -> MemoryUse {
        let replica = self.shared.replica();
        let (valid, local) = replica.tables().shared();
        memory::usage(valid.len().max(local.len()) as u64, &parts(&replica))
    }

    fn counters(&self) -> Option<Counters> {
        let plane = self.plane.upgrade()?;
        // What neighbours say to each other is no traffic. It is read before the frames that it is among. Members of bundles count
        // it themselves.
        let links = Arc::clone(plane.monitor().links());
        let own: Vec<OwnFrames> = (0..=u8::MAX).map(|index| links.own_frames(index)).collect();
        let cables = plane.monitor().links().lldp().shown();
        let (hellos, plane) = (hellos(&plane), plane.status());
        let lost = |id: PortId| hellos.iter().find(|(port, ..)| *port == id).map_or(0, |(.., tally)| tally.lost());
        let there = |index: usize| {
            let of_port = cables.iter().filter(|cable| usize::from(cable.index) == index);
            of_port.flat_map(|cable| &cable.neighbours).next().map(ToString::to_string).unwrap_or_default()
        };
        let counted =
            |(reason, total): (&str, u64)| DropCount { reason: reason.to_owned(), total, ..DropCount::default() };
        let (mut came, mut left) = (0, 0);
        let port = |(index, port): (usize, &PortStatus)| {
            let of_port = own.get(index).copied().unwrap_or_default();
            came += of_port.came[0];
            left += of_port.left[0];
            PortCounters {
                losses: lost_at(port).filter(|(_, n)| *n > 0).map(counted).collect(),
                mtu: port.mtu,
                mtu_needed: port.mtu_needed,
                port: port.id.0.into(),
                device: port.device.clone(),
                role: role_name(port.role).to_owned(),
                up: port.up,
                frames_in: port.counters.rx_frames.saturating_sub(of_port.came[0]),
                bytes_in: port.counters.rx_bytes.saturating_sub(of_port.came[1]),
                frames_out: port.counters.tx_frames.saturating_sub(of_port.left[0]),
                bytes_out: port.counters.tx_bytes.saturating_sub(of_port.left[1]),
                rates: None,
                hellos_lost: lost(port.id),
                device_there: there(index),
            }
        };
        let ports = plane.ports.iter().enumerate().map(port).collect();
        Some(Counters {
            ports,
            checked_servers: self.checks.as_ref().map(|checks| checks.told()).unwrap_or_default(),
            drops: plane.drops().filter(|(_, n)| *n > 0).map(counted).collect(),
            received: plane.total.received.saturating_sub(came),
            sent: plane.total.sent.saturating_sub(left),
            age_ms: 0,
        })
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Host => "host",
        Role::Trunk => "trunk",
        Role::Outside => "outside",
    }
}

/// The trunks that are watched by hellos: the number of each, its device, and its hellos.
fn hellos(plane: &Dataplane) -> Vec<(PortId, String, Arc<Tally>)> {
    let tallies = plane.monitor().links().tallies();
    let of = |(index, port, device): (u8, PortId, &str)| {
        let (_, tally) = tallies.iter().find(|(trunk, _)| *trunk == index)?;
        Some((port, device.to_owned(), Arc::clone(tally)))
    };
    plane.monitor().trunks().filter_map(of).collect()
}

fn fib_bytes(replica: &Replica<PlaneWriter>) -> u64 {
    replica.fib().map_or(0, |fib| fib.size_bits().div_ceil(8))
}

fn parts(replica: &Replica<PlaneWriter>) -> Parts {
    let (valid, local) = replica.tables().shared();
    let (valid_bytes, address_bytes) = valid.heap_bytes();
    [
        ("fib", fib_bytes(replica)),
        ("valid_names", valid_bytes as u64),
        ("addresses", address_bytes as u64),
        ("local_names", local.heap_bytes() as u64),
    ]
}

/// The loops for this processor, whether they prefetch, and the bursts that a busy worker has in flight.
fn lookups(fib: &dyn Table) -> String {
    let prefetch = if fib.prefetches() { "on" } else { "off" };
    let in_flight = if fib.reader().has_phases() { 2 } else { 1 };
    format!("{}, prefetch {prefetch}, {in_flight} in flight", Kernel::get())
}

impl StatusSource for Page {
    fn status_json(&self) -> String {
        let LinkStatus { connected, since, last_error, serving_change, .. } = self.shared.status();
        let (link, saved) = (self.shared.status(), self.saver.status());
        let Served {
            valid_names,
            local_names,
            fib_bytes,
            parts_received,
            parts,
            shards,
            lookups,
            name_kind,
            field_error,
            share,
        } = self.served();
        let kind = name_kind;
        let name_kind = kind.map(|kind| kind.to_string());
        let mut status = json!({
            "name": self.name,
            "version": env!("CARGO_PKG_VERSION"),
            "controller": {
                "connected": connected, "since_unix_seconds": unix_seconds(since), "last_error": last_error,
                "connects": link.connects, "applied": link.applied, "duplicates": link.duplicates,
                "cannot_follow": link.cannot_follow, "refused": link.refused, "resyncs": link.resyncs, "received_bytes": link.received_bytes,
                "verifications": link.verifications, "damaged_tables": link.damaged_tables,
            },
            "serving_version": serving_change, "name_kind": name_kind, "field_error": field_error,
            "valid_names": valid_names, "local_names": local_names, "fib_bytes": fib_bytes, "shards": shards,
            "parts_received": parts_received, "lookups": lookups,
            "saved_image": {
                "saves": saved.saves, "failures": saved.failures, "failures_in_a_row": saved.failures_in_a_row,
                "last_error": saved.last_error, "saved_unix_seconds": saved.saved_at.map(unix_seconds),
            },
            "memory": memory::json(&memory::usage(valid_names.max(local_names), &parts)),
            "turned_away": self.gate.turned_away().into_iter().collect::<BTreeMap<_, _>>(),
        });
        if let Some((path, shown)) = share {
            let is_shown = matches!(shown, Ok(true));
            status["share"] = json!({"file": path, "shown": is_shown, "error": shown.err()});
        }
        if let Some(DirectoryCounts { requests, refused, answers }) = self.directory.as_ref().map(|d| d.counts()) {
            let answers: Map<String, Value> =
                answers.iter().map(|(name, n)| ((*name).to_owned(), (*n).into())).collect();
            status["lookup"] = json!({"requests": requests, "refused": refused, "answers": answers});
        }
        if let Some(flows) = &self.flows {
            let stats = super::flows::stats(flows).into_iter();
            status["flows"] = Value::Object(stats.map(|(name, n)| (name.to_owned(), n.into())).collect());
        }
        if let Some(plane) = self.plane.upgrade() {
            let (workers_running, hellos) = (plane.workers_running(), hellos(&plane));
            let cables = plane.monitor().links().lldp().shown();
            let plane = plane.status();
            status["workers"] = json!({"configured": plane.workers.len(), "running": workers_running});
            let drops = plane.drops().filter(|(_, n)| *n > 0).map(|(why, n)| (why.to_owned(), n.into()));
            status["frames"] = json!({
                "received": plane.total.received, "sent": plane.total.sent,
                "answered": plane.total.answered, "originated": plane.total.originated, "aliens": plane.total.aliens,
                "hellos": plane.total.hellos, "lookups": plane.total.lookups,
                "groups": plane.total.groups, "copies": plane.total.copies,
                "dropped": plane.total.dropped_total(),
            });
            status["drops"] = Value::Object(drops.collect());
            if let Some(subscriptions::Counts { reports, refused, questions, subscriptions }) = plane.subscriptions {
                let is_snooping = self.shared.groups().snooping().is_some();
                status["subscriptions"] = json!({
                    "snooping": is_snooping, "reports": reports, "refused": refused, "questions": questions,
                    "subscriptions": subscriptions, "by_name": self.wanted(),
                });
            }
            if let Some(KernelStatus { memory, error, forwarded, not_taking }) = plane.kernel {
                let not_taking: Vec<u16> = not_taking.iter().map(|port| port.0).collect();
                status["kernel"] =
                    json!({"table": memory, "forwarded": forwarded, "error": error, "not_taking": not_taking});
            }
            let trunks = self.shared.trunks();
            let link_of = |port: &PortStatus| trunks.iter().find(|trunk| trunk.port == port.id);
            let hellos_of = |port: &PortStatus| Some(&*hellos.iter().find(|(trunk, ..)| *trunk == port.id)?.2);
            let of = |(index, port): (usize, &PortStatus)| {
                let mut page = port_json(port, kind, link_of(port), hellos_of(port));
                put_cables(&mut page, cables.iter().filter(|cable| usize::from(cable.index) == index));
                page
            };
            status["ports"] = plane.ports.iter().enumerate().map(of).collect();
        }
        status.to_string()
    }

    fn metrics_text(&self) -> String {
        let link = self.shared.status();
        let Served { valid_names, local_names, fib_bytes, parts_received, parts, share, .. } = self.served();
        let mut text = MetricsText::default();
        text.gauge("fibula_switch_connected", "1: a controller is connected.", plain(link.connected.into()));
        text.gauge(
            "fibula_switch_version",
            "The latest change of the network that the switch serves.",
            plain(link.serving_change),
        );
        text.counter("fibula_switch_connects_total", "Streams opened to a controller.", plain(link.connects));
        text.counter(
            "fibula_switch_updates_total",
            "Messages from the controller that were applied.",
            plain(link.applied),
        );
        text.counter(
            "fibula_switch_refused_total",
            "Messages from the controller that did not apply.",
            plain(link.refused),
        );
        let cannot = plain((!link.cannot_follow.is_empty()).into());
        text.gauge("fibula_switch_cannot_follow", "1: the controller's tables exceed this switch's limits.", cannot);
        text.counter(
            "fibula_switch_resyncs_total",
            "Reports sent to resynchronise after messages that did not apply.",
            plain(link.resyncs),
        );
        text.counter("fibula_switch_verifications_total", "Verifications of the tables.", plain(link.verifications));
        let damaged = plain(link.damaged_tables);
        text.counter("fibula_switch_damaged_tables_total", "Tables found damaged in memory.", damaged);
        let saved = self.saver.status();
        text.counter("fibula_switch_saves_total", "Times the image was saved.", plain(saved.saves));
        text.counter("fibula_switch_save_failures_total", "Times the image could not be saved.", plain(saved.failures));
        let behind = plain(saved.failures_in_a_row.into());
        text.gauge("fibula_switch_saves_failing", "Consecutive failed saves; 0: the last save succeeded.", behind);
        text.gauge("fibula_switch_valid_names", "Names in the table of the ingress check.", plain(valid_names));
        text.gauge("fibula_switch_local_names", "Names in the table of the egress check.", plain(local_names));
        text.gauge("fibula_switch_fib_bytes", "Size of the FIB in bytes.", plain(fib_bytes));
        let whole = "Parts of the FIB received whole: rebuilt, with new values, or requested.";
        text.counter("fibula_switch_parts_received_total", whole, plain(parts_received));
        if let Some((_, shown)) = share {
            let shown = plain(matches!(shown, Ok(true)).into());
            text.gauge("fibula_switch_table_shown", "1: other programs can read the table.", shown);
        }
        text.memory(&parts);
        self.gate.metrics(&mut text);
        self.audit.metrics(&mut text);
        if let Some(DirectoryCounts { requests, refused, answers }) = self.directory.as_ref().map(|d| d.counts()) {
            text.counter("fibula_lookup_requests_total", "Requests of the look-up service.", plain(requests));
            text.counter("fibula_lookup_refused_total", "Requests that the look-up service refused.", plain(refused));
            let answers = answers.map(|(name, n)| (format!("answer=\"{name}\""), n));
            text.counter("fibula_lookup_names_total", "Names looked up through the service, by answer.", answers);
        }
        if let Some(flows) = &self.flows {
            flow_metrics(flows, &mut text);
        }
        let Some(plane) = self.plane.upgrade() else { return text.finish() };
        let (workers_running, hellos) = (plane.workers_running() as u64, hellos(&plane));
        let cables = plane.monitor().links().lldp().shown();
        let plane = plane.status();
        text.gauge("fibula_workers_running", "Running workers.", plain(workers_running));
        text.counter("fibula_frames_received_total", "Frames received.", plain(plane.total.received));
        text.counter("fibula_frames_sent_total", "Frames forwarded or answered.", plain(plane.total.sent));
        text.counter("fibula_frames_answered_total", "ARP and ND requests answered.", plain(plane.total.answered));
        let originated = plain(plane.total.originated);
        text.counter(
            "fibula_frames_originated_total",
            "Frames that the switch itself generates: copies, hellos, and a gateway's queries and errors.",
            originated,
        );
        let lookups = plain(plane.total.lookups);
        text.counter("fibula_lookups_total", "Lookups of frames' names in the FIB by workers.", lookups);
        let aliens = plain(plane.total.aliens);
        text.counter("fibula_frames_aliens_total", "Frames to unknown names that were forwarded.", aliens);
        if let Some(KernelStatus { memory, forwarded, .. }) = &plane.kernel {
            let is_on = plain(memory.is_some().into());
            text.gauge("fibula_kernel_forwarding", "1: the kernel forwards frames from trunks.", is_on);
            text.counter("fibula_kernel_frames_total", "Frames forwarded in the kernel.", plain(*forwarded));
        }
        let drops = plane.drops().map(|(why, n)| (format!("reason=\"{why}\""), n));
        text.counter(
            "fibula_frames_dropped_total",
            "Frames dropped by the switch or discarded by devices, by reason.",
            drops,
        );
        let label = |port: &PortStatus| format!("port=\"{}\",device=\"{}\"", port.id, port.device);
        let up = plane.ports.iter().map(|port| (label(port), port.up.into()));
        text.gauge("fibula_port_up", "1: the port works.", up);
        let lost = plane
            .ports
            .iter()
            .flat_map(|port| lost_at(port).map(move |(why, n)| (format!("{},reason=\"{why}\"", label(port)), n)));
        text.counter(
            "fibula_port_lost_total",
            "Frames that the port's device or interface discarded, or could not send because of their length, by reason.",
            lost,
        );
        let known = || plane.ports.iter().filter(|port| port.mtu > 0);
        let mtus = known().map(|port| (label(port), port.mtu.into()));
        text.gauge("fibula_port_mtu", "MTU of the port's interface.", mtus);
        let needed = known().filter(|port| port.mtu_needed > 0).map(|port| (label(port), port.mtu_needed.into()));
        text.gauge("fibula_port_mtu_needed", "MTU that a trunk needs to carry the longest packets of hosts.", needed);
        let learn::Counts { noted, left_out } = plane.learnt;
        let noted = [("event=\"noted\"".to_owned(), noted), ("event=\"left_out\"".to_owned(), left_out)];
        text.counter(
            "fibula_sources_noted_total",
            "Frame sources reported to the controller, and those left out because of the rate limit.",
            noted,
        );
        if let Some(subscriptions::Counts { reports, refused, questions, subscriptions }) = plane.subscriptions {
            text.gauge(
                "fibula_group_subscriptions",
                "Multicast subscriptions of names at this switch: groups, counted for each name.",
                plain(subscriptions),
            );
            let events = [("report", reports), ("refused", refused), ("question", questions)];
            let events = events.map(|(event, n)| (format!("event=\"{event}\""), n));
            text.counter(
                "fibula_group_reports_total",
                "Multicast reports of hosts, and queries to them, by event.",
                events,
            );
        }
        text.counter(
            "fibula_hellos_total",
            "Hellos received at trunks, and LLDP frames received.",
            plain(plane.total.hellos),
        );
        text.counter(
            "fibula_group_frames_total",
            "Broadcast and multicast frames that were copied.",
            plain(plane.total.groups),
        );
        text.counter(
            "fibula_group_copies_total",
            "Copies made of broadcast and multicast frames.",
            plain(plane.total.copies),
        );
        let by_trunk = |count: fn(&Tally) -> u64| {
            let trunks = hellos.iter();
            trunks.map(move |(port, device, tally)| (format!("port=\"{port}\",device=\"{device}\""), count(tally)))
        };
        text.counter("fibula_hellos_heard_total", "Hellos received at a trunk.", by_trunk(Tally::heard));
        text.counter(
            "fibula_hellos_lost_total",
            "Expected hellos that a trunk did not receive.",
            by_trunk(Tally::lost),
        );
        text.counter(
            "fibula_hellos_unread_total",
            "Hellos at a trunk discarded because they exceed the rate of neighbours.",
            by_trunk(Tally::unread),
        );
        text.counter("fibula_link_falls_total", "Times that the link of a trunk went down.", by_trunk(Tally::falls));
        let trunks = self.shared.trunks();
        let of_trunks = plane.ports.iter().filter(|port| port.role == Role::Trunk);
        let linked = of_trunks.filter_map(|port| {
            let trunk = trunks.iter().find(|trunk| trunk.port == port.id)?;
            Some((format!("{},state=\"{}\"", label(port), trunk.state.name()), (!trunk.is_down).into()))
        });
        text.gauge("fibula_link_up", "1: the link of the trunk carries frames, as far as the switch knows.", linked);
        bundle_metrics(&plane.ports, &mut text);
        lldp_metrics(&plane.ports, &cables, &mut text);
        let with_acl = || plane.ports.iter().filter_map(|port| Some((label(port), port.acl.as_ref()?)));
        if with_acl().next().is_some() {
            let rules = with_acl().map(|(label, (list, _))| (label, list.rules as u64));
            text.gauge("fibula_port_acl_rules", "Rules of the port's access list.", rules);
            let failing = with_acl().map(|(label, (list, _))| (label, list.error.is_some().into()));
            text.gauge(
                "fibula_port_acl_failing",
                "1: the file of the port's access list changed and cannot be used.",
                failing,
            );
            for (at, verdict) in ["permitted", "denied"].into_iter().enumerate() {
                let packets = with_acl().map(|(label, (_, counts))| (label, counts[at]));
                text.counter(
                    &format!("fibula_port_acl_{verdict}_total"),
                    "Packets judged by the port's access list.",
                    packets,
                );
            }
        }
        for (index, (name, _)) in netio::DeviceSnapshot::default().fields().enumerate() {
            let samples =
                plane.ports.iter().filter_map(|port| Some((label(port), port.counters.fields().nth(index)?.1)));
            text.counter(&format!("fibula_port_{name}_total"), "Counter of the port's device.", samples);
        }
        text.finish()
    }
}

fn flow_metrics(flows: &Flows, text: &mut MetricsText) {
    let all = flows.occupancy();
    text.gauge("fibula_flows", "Tracked flows.", plain(all.flows));
    text.gauge("fibula_flow_entries", "Entries of the flow tables; a translated flow has two.", plain(all.entries));
    text.gauge("fibula_flow_slots", "Current slots for entries of the flow tables.", plain(all.slots));
    text.gauge("fibula_flow_nat_ports", "Outside ports of address translation in use.", plain(all.nat_ports));
    let events = flows.counts().fields().map(|(name, n)| (format!("event=\"{name}\""), n));
    text.counter("fibula_flow_events_total", "Events of the flow stage, by event.", events);
    let servers = flows.servers().into_iter().flat_map(|(service, protocol, members)| {
        let service = format!("service=\"{}\",protocol=\"{}\"", endpoint_text(service), protocol_name(protocol));
        let label = move |member: Member| format!("{service},server=\"{}\"", endpoint_text(member.server.endpoint));
        members.into_iter().map(move |member| (label(member), member))
    });
    let servers: Vec<(String, Member)> = servers.collect();
    let of_each = |value: fn(&Member) -> u64| servers.iter().map(move |(label, member)| (label.clone(), value(member)));
    text.gauge("fibula_flow_server_flows", "Flows of a server.", of_each(|member| member.flows));
    text.gauge(
        "fibula_flow_server_up",
        "1: the server has no health check, or passes it.",
        of_each(|member| u64::from(!member.is_down)),
    );
    let checks = flows.checks().into_iter().map(|(result, n)| (format!("result=\"{result}\""), n));
    text.counter("fibula_flow_checks_total", "Health checks of servers, by result.", checks);
}

/// Frames that a port lost: those that no worker sees, and those that its device could not send because of their length.
fn lost_at(port: &PortStatus) -> impl Iterator<Item = (&'static str, u64)> {
    port.losses().chain([(DropReason::TxRefused.name(), port.counters.tx_refused)])
}

/// A port as JSON; names are of `kind`, once that is known.
fn port_json(port: &PortStatus, kind: Option<NameKind>, link: Option<&Trunk>, hellos: Option<&Tally>) -> Value {
    let check_source = port.check_source.with_names(kind.unwrap_or(NameKind::Mac)).text();
    let counters: Map<String, Value> = port.counters.fields().map(|(name, n)| (name.to_owned(), n.into())).collect();
    let mut page = json!({
        "id": port.id.0, "role": role_name(port.role), "device": port.device, "driver": port.driver, "up": port.up,
        "last_error": port.last_failure.as_ref().map(|failure| &failure.error),
        "failures": port.last_failure.as_ref().map_or(0, |failure| failure.times),
        "retry_seconds": port.last_failure.as_ref().filter(|_| !port.up).map(|failure| failure.wait.as_secs()),
        "check_source": check_source, "counters": counters,
        "lost": lost_at(port).filter(|(_, n)| *n > 0).map(|(why, n)| (why.to_owned(), n.into())).collect::<Map<_, _>>(),
    });
    if port.mtu > 0 {
        page["mtu"] = port.mtu.into();
    }
    if port.mtu_needed > 0 {
        page["mtu_needed"] = port.mtu_needed.into();
    }
    if let Some(Trunk { state, since, is_down, neighbour, device, .. }) = link {
        let neighbour = neighbour.as_ref().map(ToString::to_string);
        let seconds = since.elapsed().as_secs_f64();
        page["link"] = json!({"state": state.name(), "down": is_down, "for_seconds": seconds, "neighbour": neighbour});
        if let Some(device) = device {
            page["link"]["device_there"] = device.clone().into();
        }
    }
    if !port.members.is_empty() {
        page["members"] = port.members.iter().map(member_json).collect();
    }
    if let Some(hellos) = hellos {
        page["hellos"] = json!({"heard": hellos.heard(), "lost": hellos.lost(), "unread": hellos.unread()});
    }
    if let Some((AclStatus { path, rules, read_at, error }, [permitted, denied])) = &port.acl {
        page["acl"] = json!({
            "file": path, "rules": rules, "read_unix_seconds": unix_seconds(*read_at), "error": error,
            "permitted": permitted, "denied": denied,
        });
    }
    page
}

/// Adds LLDP sent and received to a port, or to its members.
fn put_cables<'a>(page: &mut Value, cables: impl Iterator<Item = &'a Shown>) {
    for cable in cables {
        let part = match cable.place {
            None => Some(&mut *page),
            Some(place) => page.get_mut("members").and_then(|members| members.get_mut(usize::from(place))),
        };
        let Some(part) = part else { continue };
        part["lldp"] = json!({"does": cable.manner});
        for (name, n) in cable.tally.counts() {
            part["lldp"][name] = n.into();
        }
        part["neighbours"] = cable.neighbours.iter().map(|neighbour| neighbour_json(neighbour)).collect();
    }
}

/// A neighbour heard through LLDP, in its own words; texts have no control characters.
fn neighbour_json(neighbour: &Neighbour) -> Value {
    let Neighbour { said, since, heard } = neighbour;
    let source = said.source.map(|byte| format!("{byte:02x}")).join(":");
    let (able, on) = (said.capabilities.iter(), said.capabilities.iter().filter(|one| one.is_on));
    json!({
        "chassis": said.chassis.text, "chassis_kind": said.chassis.kind,
        "port": said.port.text, "port_kind": said.port.kind, "port_description": said.port_text,
        "name": said.name, "description": said.description,
        "capabilities": able.map(|one| one.name).collect::<Vec<_>>(),
        "enabled": on.map(|one| one.name).collect::<Vec<_>>(),
        "addresses": said.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "source": source, "ttl_seconds": said.ttl_s,
        "for_seconds": since.elapsed().as_secs_f64(), "heard_seconds_ago": heard.elapsed().as_secs_f64(),
    })
}

/// Metrics of LLDP: frames and neighbours.
fn lldp_metrics(ports: &[PortStatus], cables: &[Shown], text: &mut MetricsText) {
    let of = |cable: &Shown| {
        let port = ports.get(usize::from(cable.index))?;
        let member = cable.place.and_then(|place| port.members.get(usize::from(place)));
        Some(format!("port=\"{}\",device=\"{}\"", port.id, member.map_or(&port.device, |member| &member.device)))
    };
    let frames = cables.iter().filter_map(|cable| Some((of(cable)?, cable.tally.counts())));
    let frames = frames.flat_map(|(label, counts)| counts.map(|(event, n)| (format!("{label},event=\"{event}\""), n)));
    text.counter("fibula_lldp_frames_total", "LLDP frames sent, received and discarded unread, by event.", frames);
    let neighbours = cables.iter().filter_map(|cable| Some((of(cable)?, cable.neighbours.len() as u64)));
    text.gauge("fibula_lldp_neighbours", "Neighbours that a port hears through LLDP.", neighbours);
}

/// A member of a bundle.
fn member_json(member: &MemberStatus) -> Value {
    let MemberStatus { device, told, collects, distributes, error, counters, counts } = member;
    let counters: Map<String, Value> = counters.fields().map(|(name, n)| (name.to_owned(), n.into())).collect();
    json!({
        "device": device, "state": told.state, "partner": told.partner, "takes": collects, "sends": distributes,
        "last_error": error, "counters": counters,
        "lacp": {"heard": counts.heard, "malformed": counts.malformed, "own": counts.own},
        "flooded": counts.flooded, "not_taken": counts.not_taken,
    })
}

/// The members of bundles.
fn bundle_metrics(ports: &[PortStatus], text: &mut MetricsText) {
    let members = || ports.iter().flat_map(|port| port.members.iter().map(move |member| (port, member)));
    if members().next().is_none() {
        return;
    }
    let label = |port: &PortStatus, member: &MemberStatus| format!("port=\"{}\",member=\"{}\"", port.id, member.device);
    let up = members().map(|(port, member)| {
        (format!("{},state=\"{}\"", label(port, member), member.told.state), member.distributes.into())
    });
    text.gauge("fibula_member_up", "1: this member of a bundle sends frames.", up);
    type Count = fn(&MemberStatus) -> u64;
    let counts: [(&str, &str, Count); 7] = [
        ("rx_frames", "Frames received by a member, including PDUs and hellos.", |member| member.counters.rx_frames),
        ("tx_frames", "Frames sent by a member, including PDUs and hellos.", |member| member.counters.tx_frames),
        ("lacp_heard", "LACP PDUs and markers received.", |member| member.counts.heard),
        ("lacp_malformed", "Malformed LACP frames.", |member| member.counts.malformed),
        ("lacp_own", "PDUs of this switch that came back to it.", |member| member.counts.own),
        ("flooded", "PDUs and hellos discarded because they exceed a partner's rate.", |member| member.counts.flooded),
        ("not_taken", "Frames received while the member accepted none.", |member| member.counts.not_taken),
    ];
    for (name, help, count) in counts {
        let samples = members().map(|(port, member)| (label(port, member), count(member)));
        text.counter(&format!("fibula_member_{name}_total"), help, samples);
    }
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64())
}

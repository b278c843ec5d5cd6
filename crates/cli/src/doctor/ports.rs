//! Checks a switch's ports: interfaces that exist and are up, trunks with room for the shim, capabilities, queues.

use super::Findings;
use super::address::owners;
use super::service::{Process, Service, Unit};
use crate::machine::{self, BPF, Capability, Interface, Master, NET_ADMIN, NET_RAW, PERFMON};
use dataplane::shim;
use netio::backend::af_packet::joining_offloads;
use netio::takers::Takers;
use std::path::PathBuf;
use switch::daemon::config::{Config, Driver, Port, Role};
use switch::daemon::lost_offloads;

/// Maximum MTU of AF_XDP in bytes: a page holds the frame and its metadata.
const LONGEST_XDP_MTU: u32 = 3502;

/// `others`: configurations of other switches of this machine, by their files.
pub(super) fn look_at_ports(config: &Config, service: &Service, others: &[(PathBuf, Config)], findings: &mut Findings) {
    if config.ports.is_empty() {
        findings.ok("ports", "none: it only answers programs");
        return;
    }
    look_at_capabilities(config, service.unit(), findings);
    let mut there = Vec::new();
    let with_dpdk = config.ports.iter().filter(|port| config.driver_of(port) == Driver::Dpdk);
    for (port, lost) in with_dpdk.filter_map(|port| Some((port, lost_offloads(Driver::Dpdk, &port.device)?))) {
        findings.warn(format!("port {}", port.id), lost);
    }
    let ports = config.ports.iter().filter(|port| config.driver_of(port) != Driver::Dpdk);
    for (port, device) in ports.flat_map(|port| port.devices().map(move |device| (port, device))) {
        let what = format!("port {}", port.id);
        match machine::interface(device) {
            None => {
                let there: Vec<String> =
                    machine::interfaces().into_iter().filter(Interface::is_free).map(|one| one.name).collect();
                let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
                findings.bad(
                    what,
                    format!("there is no interface {device}; `ip link` lists all (suitable as ports: {there})"),
                );
            }
            Some(interface) => {
                look_at_port(config, port, &interface, findings);
                look_at_users(&what, &interface, service, others, findings);
                there.push((port, interface));
            }
        }
    }
    look_at_mtus(&there, findings);
}

/// Checks whether another process forwards there.
fn look_at_users(
    what: &str,
    interface: &Interface,
    service: &Service,
    others: &[(PathBuf, Config)],
    findings: &mut Findings,
) {
    let name = &interface.name;
    let own = service.process().map(|process| process.pid);
    let users = owners(&machine::packet_sockets(interface)).into_iter().filter(|pid| Some(*pid) != own);
    for Process { pid, .. } in users.filter_map(Process::of).filter(|process| process.name.starts_with("fibula")) {
        findings.bad(
            what,
            format!("process {pid} already forwards at {name}, so every frame would be forwarded twice; systemctl status {pid}; stop it, or choose another device"),
        );
    }
    let has_it =
        |(_, other): &&(PathBuf, Config)| other.ports.iter().any(|port| port.devices().any(|device| device == name));
    for (path, _) in others.iter().filter(has_it) {
        findings.warn(
            what,
            format!(
                "{name} is also a port in {}, so every frame would be forwarded twice; remove it from one of them",
                path.display()
            ),
        );
    }
}

/// `unit`: the unit that runs the switch; without it, this process stands for the switch.
fn look_at_capabilities(config: &Config, unit: Option<&Unit>, findings: &mut Findings) {
    let uses = |driver| config.ports.iter().any(|port| config.driver_of(port) == driver);
    let mut wanted: Vec<Capability> = vec![NET_RAW, NET_ADMIN];
    if uses(Driver::AfXdp) || uses(Driver::Xdp) {
        wanted.push(BPF);
    }
    if uses(Driver::Xdp) {
        wanted.push(PERFMON);
    }
    let names: Vec<_> = wanted.iter().map(|Capability { 1: name, .. }| *name).collect();
    if let Some(unit) = unit.filter(|unit| !matches!(unit.get("User"), "" | "root")) {
        let has: Vec<_> = unit.get("AmbientCapabilities").split_whitespace().map(str::to_uppercase).collect();
        let lacking: Vec<_> = names.iter().filter(|name| !has.iter().any(|has| has == *name)).copied().collect();
        let unit = &unit.name;
        if lacking.is_empty() {
            findings.ok("capabilities", format!("{unit} gives the switch what its ports need: {}", names.join(" ")));
        } else {
            findings.bad(
                "capabilities",
                format!("{unit} does not give the switch {}; install -D /usr/share/doc/fibula/examples/xdp.conf /etc/systemd/system/{unit}.d/xdp.conf; systemctl daemon-reload; systemctl restart {unit}", lacking.join(" ")),
            );
        }
        return;
    }
    let (names, lacking) = (names.join(" "), machine::lacking(&wanted).join(" "));
    if lacking.is_empty() {
        findings.ok("capabilities", format!("{names}: this process has what the ports need"));
    } else {
        findings.untried(
            "capabilities",
            format!("this process lacks {lacking}: run this command as root. A switch needs {names}"),
        );
    }
}

fn look_at_port(config: &Config, port: &Port, interface: &Interface, findings: &mut Findings) {
    let (what, name) = (format!("port {}", port.id), &interface.name);
    if interface.is_bridge {
        findings.bad(&what, format!("{name} is a bridge, and a switch replaces one; use the interfaces that are in it (ip link show master {name})"));
        return;
    }
    if !interface.is_ethernet {
        findings.bad(&what, format!("{name} is not an Ethernet interface; choose another device"));
        return;
    }
    if let Some(Master { name: master, kind }) = &interface.master {
        findings.bad(
            &what,
            format!("{name} is a part of {kind} {master}, which receives its frames, too; ip link set {name} nomaster, and remove it from this machine's network configuration"),
        );
        return;
    }
    let addresses = machine::addresses(interface).join(" ");
    if !addresses.is_empty() {
        findings.warn(
            &what,
            format!("{name} has the address {addresses}, so this machine's own stack answers there, too; ip address flush dev {name}, and remove the address from this machine's network configuration, or choose another device"),
        );
    } else if interface.has_routes {
        findings.warn(
            &what,
            format!("routes of this machine lead out of {name}, so its own stack answers there, too; remove them (ip route show dev {name}), or choose another device"),
        );
    }
    if !interface.is_up {
        findings.bad(&what, format!("{name} is down; ip link set {name} up"));
        return;
    }
    if interface.has_carrier {
        findings.ok(&what, format!("{name} is up, with an MTU of {}", interface.mtu));
    } else {
        findings.warn(&what, format!("{name} has no carrier; plug in the cable, or check the other end"));
    }
    match joining_offloads(name) {
        Ok(on) if on.contains(&"lro") => {
            findings.bad(&what, format!("lro merges frames before {name} delivers them; ethtool -K {name} lro off"));
        }
        Ok(on) => match lost_offloads(config.driver_of(port), name) {
            Some(lost) => findings.warn(&what, lost),
            None if on.is_empty() => findings.ok(&what, format!("{name} merges no frames")),
            None => {
                let on = on.join(", ");
                findings.ok(
                    &what,
                    format!("{name} has {on} enabled, which is fine: the switch carries merged frames whole"),
                );
            }
        },
        Err(error) => {
            findings.warn(&what, format!("the offloads of {name} cannot be read: {error}; ethtool -k {name}"))
        }
    }
    if matches!(config.driver_of(port), Driver::AfXdp | Driver::Xdp) {
        look_at_xdp(config, &what, interface, findings);
    }
    let takes = || Takers::open().ok().flatten().and_then(|mut takers| takers.takes(interface.index).ok());
    if config.driver_of(port) == Driver::Xdp && takes() == Some(false) {
        findings.warn(
            &what,
            format!("{name} accepts no frames from a program in the kernel now, so the workers send there; if it is a veth: ethtool -K IF gro on at its other end, unless a switch with driver = \"xdp\" will be there"),
        );
    }
}

fn look_at_xdp(config: &Config, what: &str, interface: &Interface, findings: &mut Findings) {
    let Interface { name, mtu, receive_queues, .. } = interface;
    let workers = config.workers;
    if machine::kernel().0 < (5, 9) {
        findings.warn(what, "this kernel has no AF_XDP, which needs 5.9: packet sockets are used instead");
    }
    if *mtu > LONGEST_XDP_MTU {
        findings.warn(
            what,
            format!("an MTU of {mtu} is more than AF_XDP supports: packet sockets are used instead; ip link set {name} mtu {LONGEST_XDP_MTU}"),
        );
    }
    if *receive_queues != workers {
        findings.warn(
            what,
            format!("{name} has {receive_queues} receive queues for {workers} workers: packet sockets are used instead; ethtool -L {name} combined {workers}"),
        );
    }
}

/// Frames of hosts must fit a trunk together with the shim.
fn look_at_mtus(there: &[(&Port, Interface)], findings: &mut Findings) {
    let hosts = there.iter().filter(|(port, _)| port.role != Role::Trunk);
    let Some(longest) = hosts.map(|(_, interface)| interface.mtu).max() else { return };
    let needed = longest + shim::LEN as u32;
    for (port, Interface { name, mtu, .. }) in there.iter().filter(|(port, _)| port.role == Role::Trunk) {
        let what = format!("port {}", port.id);
        if *mtu >= needed {
            findings.ok(what, format!("trunk {name} has room for frames of hosts and the shim"));
        } else {
            findings.bad(
                what,
                format!("trunk {name} has an MTU of {mtu}, but frames of hosts need {needed} with the shim; ip link set {name} mtu {needed}, at both ends"),
            );
        }
    }
}

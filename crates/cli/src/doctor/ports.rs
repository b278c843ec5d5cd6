//! What a switch needs for its ports: interfaces that are there and up, trunks that take the shim, capabilities, queues.

use super::Findings;
use crate::machine::{self, BPF, Capability, Interface, NET_ADMIN, NET_RAW, PERFMON};
use netio::backend::af_packet::joining_offloads;
use netio::takers::Takers;
use switch::daemon::config::{Config, Driver, Port, Role};
use switch::shim;

/// What AF_XDP takes, in bytes of MTU: a page holds the frame with what belongs to it.
const LONGEST_XDP_MTU: u32 = 3502;

pub(super) fn look_at_ports(config: &Config, findings: &mut Findings) {
    if config.ports.is_empty() {
        findings.ok("ports", "none: it answers programs alone");
        return;
    }
    look_at_capabilities(config, findings);
    let mut there = Vec::new();
    let ports = config.ports.iter().filter(|port| config.driver_of(port) != Driver::Dpdk);
    for (port, device) in ports.flat_map(|port| port.devices().map(move |device| (port, device))) {
        let what = format!("port {}", port.id);
        match machine::interface(device) {
            None => {
                findings.bad(what, format!("there is no interface {device}; `ip link` lists those that there are"));
            }
            Some(interface) => {
                look_at_port(config, port, &interface, findings);
                there.push((port, interface));
            }
        }
    }
    look_at_mtus(&there, findings);
}

fn look_at_capabilities(config: &Config, findings: &mut Findings) {
    let uses = |driver| config.ports.iter().any(|port| config.driver_of(port) == driver);
    let mut wanted: Vec<Capability> = vec![NET_RAW, NET_ADMIN];
    if uses(Driver::AfXdp) || uses(Driver::Xdp) {
        wanted.push(BPF);
    }
    if uses(Driver::Xdp) {
        wanted.push(PERFMON);
    }
    let names: Vec<_> = wanted.iter().map(|Capability { 1: name, .. }| *name).collect();
    let (names, lacking) = (names.join(" "), machine::lacking(&wanted).join(" "));
    if lacking.is_empty() {
        let unit =
            if wanted.len() > 2 { "; the service has them by /usr/share/doc/fibula/examples/xdp.conf" } else { "" };
        findings.ok("capabilities", format!("{names}: this process has what the ports take{unit}"));
    } else {
        findings.warn(
            "capabilities",
            format!("this process lacks {lacking}, so it cannot tell; run this as root. A switch takes {names}"),
        );
    }
}

fn look_at_port(config: &Config, port: &Port, interface: &Interface, findings: &mut Findings) {
    let (what, name) = (format!("port {}", port.id), &interface.name);
    if !interface.is_ethernet {
        findings.bad(&what, format!("{name} is no Ethernet interface; choose another device"));
        return;
    }
    if !interface.is_up {
        findings.bad(&what, format!("{name} is down; ip link set {name} up"));
        return;
    }
    if interface.has_carrier {
        findings.ok(&what, format!("{name} is up, with an MTU of {}", interface.mtu));
    } else {
        findings.warn(&what, format!("{name} has no carrier; plug the cable in, or see to the other end"));
    }
    if interface.has_routes {
        findings.warn(
            &what,
            format!("routes of this machine lead out of {name}, so its own stack answers there, too; take its addresses away, or choose another device"),
        );
    }
    match joining_offloads(name) {
        Ok(on) if on.contains(&"lro") => {
            findings.bad(&what, format!("lro joins frames before {name} has them; ethtool -K {name} lro off"));
        }
        Ok(on) if on.is_empty() => findings.ok(&what, format!("{name} joins no frames")),
        Ok(on) => findings.ok(&what, format!("{}: the switch turns this off at {name} when it starts", on.join(", "))),
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
            format!("{name} takes no frames from a program in the kernel now, so the workers send there; if it is a veth: ethtool -K IF gro on at its other end, unless a switch with driver = \"xdp\" will be there"),
        );
    }
}

fn look_at_xdp(config: &Config, what: &str, interface: &Interface, findings: &mut Findings) {
    let Interface { name, mtu, receive_queues, .. } = interface;
    let workers = config.workers;
    if machine::kernel().0 < (5, 9) {
        findings.warn(what, "this kernel has no AF_XDP, which takes 5.9: packet sockets are used instead");
    }
    if *mtu > LONGEST_XDP_MTU {
        findings.warn(
            what,
            format!("an MTU of {mtu} is more than AF_XDP takes: packet sockets are used instead; ip link set {name} mtu {LONGEST_XDP_MTU}"),
        );
    }
    if *receive_queues != workers {
        findings.warn(
            what,
            format!("{name} has {receive_queues} receive queues for {workers} workers: packet sockets are used instead; ethtool -L {name} combined {workers}"),
        );
    }
}

/// Frames of hosts have to fit a trunk with the shim.
fn look_at_mtus(there: &[(&Port, Interface)], findings: &mut Findings) {
    let hosts = there.iter().filter(|(port, _)| port.role != Role::Trunk);
    let Some(longest) = hosts.map(|(_, interface)| interface.mtu).max() else { return };
    let needed = longest + shim::LEN as u32;
    for (port, Interface { name, mtu, .. }) in there.iter().filter(|(port, _)| port.role == Role::Trunk) {
        let what = format!("port {}", port.id);
        if *mtu >= needed {
            findings.ok(what, format!("trunk {name} takes the frames of hosts with the shim"));
        } else {
            findings.bad(
                what,
                format!("trunk {name} has an MTU of {mtu}, and frames of hosts take {needed} with the shim; ip link set {name} mtu {needed}, at both ends"),
            );
        }
    }
}

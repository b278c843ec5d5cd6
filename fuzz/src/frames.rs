//! Frames on the ports of a switch, as its configuration file sets it up.

use crate::pieces::{pieces, put};
use crate::southbound::name;
use dataplane::assembly::{Monitor, PortSpec, Settings, build};
use dataplane::dhcp;
use dataplane::flow::{self, Flows};
use dataplane::gateway;
use dataplane::groups::{Snooping, Told, Wanted};
use dataplane::links::Hello;
use dataplane::links::lldp::{self, Ear};
use dataplane::plane::PlaneWriter;
use dataplane::port::Role;
use dataplane::shim;
use dataplane::source::CheckSource;
use dataplane::subscriptions::{Timing, query};
use dataplane::table::FibTable;
use dataplane::worker::Worker;
use etherparse::PacketBuilder;
use fib::action::PortId;
use fib::durable::Tenants;
use fib::messages::Report;
use fib::name::NameKind;
use fib::network::{self, Network};
use fib::replica::{Limits, Replica};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use lookup::hash::SecretKey;
use netio::backend::loopback::{self, Loopback};
use netio::checksum::{fold, sum};
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Instant;
use switch::daemon::config::{self, Config};

const CONFIG: &str = include_str!("../seeds/switch.toml");
/// Host ports, a trunk, and the port outside of the configuration.
const PORTS: [u16; 4] = [1, 2, 8, 3];

/// What frames pass through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stages {
    None,
    Flows,
    Gateway,
    /// Ports whose sources are checked, that learn, and whose hosts may ask a server of DHCP.
    Dhcp,
}

/// Frames through the switch alone; the kind of name depends on the first byte.
pub(crate) fn plain(data: &[u8]) {
    let kinds =
        [NameKind::Mac, NameKind::Ipv4, NameKind::Ipv6, NameKind::FiveTuple, NameKind::Teid, NameKind::Fixed(6)];
    let Some((kind, frames)) = data.split_first() else { return };
    run(Rig::new(kinds[usize::from(*kind) % kinds.len()], Stages::None), frames);
}

/// Frames through connection tracking, load balancer and source NAT.
pub(crate) fn flows(data: &[u8]) {
    run(Rig::new(NameKind::Mac, Stages::Flows), data);
}

/// Frames through the gateway behind connection tracking.
pub(crate) fn gateway(data: &[u8]) {
    run(Rig::new(NameKind::Mac, Stages::Gateway), data);
}

/// Frames through ports that check sources, learn, and lead DHCP to a server.
pub(crate) fn dhcp(data: &[u8]) {
    run(Rig::new(NameKind::Mac, Stages::Dhcp), data);
}

fn run(mut rig: Rig, data: &[u8]) {
    for (n, (what, frame)) in pieces(data).take(200).enumerate() {
        let (_, end) = &mut rig.ends[usize::from(what) % PORTS.len()];
        // Some are too long for the port, or the ring is full: nothing was received then.
        let _ = end.send(frame);
        // Bursts of all sizes.
        if n % 7 == usize::from(what >> 4) % 7 {
            rig.settle();
        }
    }
    rig.settle();
}

/// What is the same for all inputs: to make it takes longer than most inputs.
struct Configured {
    config: Config,
    flows: Option<flow::Settings>,
    gateway: Option<gateway::Settings>,
}

static CONFIGURED: LazyLock<Configured> = LazyLock::new(|| {
    let config = Config::parse(CONFIG).expect("the seed is a configuration");
    let flows = config.flow_settings().expect("the seed has good flows");
    let gateway = config.gateway_settings().expect("the seed has a good gateway");
    Configured { config, flows, gateway }
});

struct Rig {
    worker: Worker<FibTable>,
    monitor: Monitor,
    ends: Vec<(u16, Loopback)>,
    _replica: Replica<PlaneWriter>,
}

impl Rig {
    fn new(kind: NameKind, stages: Stages) -> Rig {
        let Configured { config, flows, gateway } = &*CONFIGURED;
        let flows = flows.as_ref().filter(|_| matches!(stages, Stages::Flows | Stages::Gateway));
        let flows = flows.map(|flows| Flows::new(flows.clone(), 1).expect("the seed has good flows"));
        let gateway = gateway.clone().filter(|_| stages == Stages::Gateway);
        let settings = Settings {
            flows,
            gateway,
            fixed_offset: Some(6).filter(|_| matches!(kind, NameKind::Fixed(_))),
            ..Settings::default()
        };
        let (mut ends, mut specs) = (vec![], vec![]);
        for port in &config.ports {
            let role = match port.role {
                config::Role::Host => Role::Host,
                config::Role::Trunk => Role::Trunk,
                config::Role::Outside if stages != Stages::Gateway => continue,
                config::Role::Outside => Role::Outside,
            };
            let sizes = loopback::Settings { ring_frames: 64, ..loopback::Settings::default() };
            let (near, far) = loopback::pair("near", "far", &sizes).expect("ports in memory");
            let mut spec = PortSpec::new(port.id.0, role, near);
            if stages == Stages::Dhcp && role == Role::Host {
                spec.dhcp = dhcp::Settings { server: Some(mac(3)), trusted: None, requests_per_second: 1000 };
                (spec.check_source, spec.learns) = (CheckSource::MacAndIp, true);
            }
            specs.push(spec);
            ends.push((port.id.0, far));
        }
        while ends.len() < PORTS.len() {
            let sizes = loopback::Settings { ring_frames: 64, ..loopback::Settings::default() };
            let (_, far) = loopback::pair("nowhere", "far", &sizes).expect("ports in memory");
            ends.push((0, far));
        }
        let (mut workers, monitor, writer) = build(&settings, specs).expect("the seed is a configuration");
        if kind == NameKind::Mac {
            let snooping = Snooping { timing: Timing::new(30), floods_unknown: false, mdns_for_all: true };
            let by_group = [(IpAddr::from([239, 1, 2, 3]), vec![mac(2), mac(3)])].into();
            let wanted = Some(Wanted { by_group, of_all: vec![] });
            monitor.groups().tell(Some(snooping), [Told { id: 7, names: [1, 2, 3].map(mac).to_vec(), wanted }]);
        }
        let ears = monitor.ports().map(|(index, ..)| (index, Ear::new(Default::default(), Instant::now())));
        monitor.links().lldp().listen(ears.collect());
        let mut replica = Replica::new(Limits::default(), writer);
        let (mut network, node) = wired(kind);
        for message in network.attach(node, &Report::default()).expect("the switch is known") {
            replica.apply(message).expect("messages in order are applied");
        }
        Rig { worker: workers.remove(0), monitor, ends, _replica: replica }
    }

    /// Runs the worker until nothing comes any more. Every frame is sent, copied, a hello, or counted as dropped.
    fn settle(&mut self) {
        while self.worker.poll_once() > 0 {}
        for (_, end) in &mut self.ends {
            while let Ok(Some(frame)) = end.recv(<[u8]>::to_vec) {
                assert!(frame.len() >= 12, "a frame of {} bytes was sent", frame.len());
            }
        }
        let counts = self.monitor.status().total;
        let all = counts.received + counts.originated;
        let went = counts.sent + counts.hellos + counts.groups + counts.dropped_total();
        assert_eq!(all, went, "a frame is not accounted for: {counts:?}");
        for (_, hello) in self.monitor.links().take_heard().0 {
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
        self.monitor.links().lldp().take_heard();
    }
}

/// A network in which the switch has hosts, its gateway, and another switch at port 8.
fn wired(kind: NameKind) -> (Network, NodeId) {
    let settings = network::Settings::new(7, SecretKey::from_seed(3));
    let mut network = Network::new(network::Settings { kind, max_names: 100, ..settings }, 1).expect("good settings");
    let nodes = ["s1", "s2"].map(|name| network.add_switch(name, Tenants::All).expect("a new switch").0);
    let end = |node: usize, port| End { node: nodes[node], port: PortId(port) };
    network.add_link(end(0, 8), end(1, 8), 1).expect("a new link");
    let ends = [end(0, 1), end(0, 2), end(1, 1), end(0, 100)];
    network.add_host_ports(&ends).expect("new ports");
    for (i, end) in (1..).zip(&ends[..3]) {
        let ip = Some(IpAddr::from([10, 0, 0, i]));
        let name = name(kind, i).expect("a name of every kind");
        network.set_name(&name, Attachment { ip, ..Attachment::new(end.node, end.port) }).expect("a new name");
    }
    if kind == NameKind::Mac {
        let gateway = name(kind, 0xfe).expect("a MAC address");
        let ip = Some(IpAddr::from([10, 0, 0, 254]));
        network.set_name(&gateway, Attachment { ip, ..Attachment::new(nodes[0], PortId(100)) }).expect("a new name");
    }
    (network, nodes[0])
}

fn mac(i: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, i]
}

/// Frames between hosts, to the gateway, and from outside.
fn frames() -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut add = |port, write: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        write(&mut frame);
        frames.push((port, frame));
    };
    let v6 = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    for (port, from, to, source, destination) in [
        (0, 1, 2, [10, 0, 0, 1], [10, 0, 0, 2]),
        (1, 2, 3, [10, 0, 0, 2], [10, 0, 0, 3]),
        (0, 1, 0xfe, [10, 0, 0, 1], [198, 51, 100, 9]),
        (0, 1, 2, [10, 0, 0, 1], [10, 0, 0, 100]),
        (3, 0x99, 0xfe, [198, 51, 100, 9], [192, 0, 2, 7]),
        (3, 0x99, 0xfe, [198, 51, 100, 9], [10, 0, 0, 1]),
    ] {
        let ip = || PacketBuilder::ethernet2(mac(from), mac(to)).ipv4(source, destination, 9);
        let reply = || PacketBuilder::ethernet2(mac(to), mac(from)).ipv4(destination, source, 9);
        let good = "a slice takes every byte";
        add(port, &|out| ip().udp(4000, 53).write(out, b"question").expect(good));
        add(port, &|out| ip().tcp(4000, 80, 1, 100).syn().write(out, b"").expect(good));
        add(port ^ 1, &|out| reply().tcp(80, 4000, 7, 100).syn().ack(2).write(out, b"").expect(good));
        add(port, &|out| ip().tcp(4000, 80, 2, 100).ack(8).write(out, b"hello").expect(good));
        add(port, &|out| ip().tcp(4000, 80, 7, 100).fin().ack(8).write(out, b"").expect(good));
        add(port, &|out| ip().tcp(4000, 80, 7, 100).rst().write(out, b"").expect(good));
        add(port, &|out| ip().icmpv4_echo_request(7, 1).write(out, b"ping").expect(good));
        add(port ^ 1, &|out| reply().icmpv4_echo_reply(7, 1).write(out, b"ping").expect(good));
        // Unreachable: the packet that caused it, inside.
        let mut inner = Vec::new();
        ip().udp(4000, 53).write(&mut inner, b"question").expect(good);
        add(port ^ 1, &|out| reply().icmpv4_raw(3, 1, [0; 4]).write(out, &inner[14..]).expect(good));
        let long = || PacketBuilder::ethernet2(mac(from), mac(to)).ipv6(v6(from), v6(to), 9);
        add(port, &|out| long().udp(4000, 2152).write(out, &[0x30, 0xff, 0, 4, 0, 0, 0, 1, 1, 2, 3, 4]).expect(good));
        add(port, &|out| {
            long().icmpv6_raw(135, 0, [0; 4]).write(out, &[&v6(to)[..], &[1, 1], &mac(from)].concat()).expect(good)
        });
    }
    for (operation, port) in [(1, 0), (2, 1), (1, 3), (2, 3)] {
        let mut frame = [&[0xff; 6][..], &mac(1), &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation], &mac(1)].concat();
        frame.extend([10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        frames.push((port, frame));
    }
    frames.extend(of_groups());
    frames
}

/// What hosts send to groups, and say and ask of them.
fn of_groups() -> Vec<(u8, Vec<u8>)> {
    let ip = PacketBuilder::ethernet2(mac(1), [1, 0, 0x5e, 1, 2, 3]).ipv4([10, 0, 0, 1], [239, 1, 2, 3], 9);
    let mut data = Vec::new();
    ip.udp(4000, 5000).write(&mut data, b"to those who want it").expect("a slice takes every byte");
    let mut frames = vec![(0, data)];
    let record = [4, 0, 0, 0, 239, 1, 2, 3, 6, 0, 0, 1, 239, 1, 2, 4, 10, 0, 0, 2];
    let v3 = [&[0x22, 0, 0, 0, 0, 0, 0, 2][..], &record].concat();
    for message in [&[0x16, 0, 0, 0, 239, 1, 2, 3][..], &[0x17, 0, 0, 0, 239, 1, 2, 3], &v3] {
        let len = 20 + message.len() as u8;
        let header = [0x45, 0, 0, len, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 1, 224, 0, 0, 22];
        let head = [&[1, 0, 0x5e, 0, 0, 22][..], &mac(1), &[8, 0]].concat();
        frames.push((0, [head, summed(&header, 10, 0), summed(message, 2, 0)].concat()));
    }
    let group = [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let of_two = [&[143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0][..], &group].concat();
    for message in [[&[131, 0, 0, 0, 0, 0, 0, 0][..], &group].concat(), of_two] {
        let addresses = [[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], group].concat();
        let more = sum(&addresses) + message.len() as u64 + 58;
        let head = [&[0x33, 0x33, 0, 0, 0, 7][..], &mac(1), &[0x86, 0xdd, 0x60, 0, 0, 0, 0]].concat();
        let lengths = vec![8 + message.len() as u8, 0, 1];
        frames.push((0, [head, lengths, addresses, vec![58, 0, 5, 2, 0, 0, 1, 0], summed(&message, 2, more)].concat()));
    }
    frames.extend(query::general(Timing::new(30)).map(|mut frame| {
        frame[6..12].copy_from_slice(&mac(1));
        (0, frame)
    }));
    frames
}

fn summed(bytes: &[u8], at: usize, more: u64) -> Vec<u8> {
    let (mut bytes, checksum) = (bytes.to_vec(), !fold(sum(bytes) + more));
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// The same with a VLAN tag, and as they look between switches.
fn varied() -> Vec<(u8, Vec<u8>)> {
    let mut all = frames();
    let hears = Some((5, PortId(8)));
    let (cluster, interval_ms, multiplier) = (7, 100, 3);
    let hello = Hello { switch: "s2".to_owned(), port: PortId(8), session: 9, hears, cluster, interval_ms, multiplier };
    all.push((2, hello.encode()));
    let (switch, device) = ("s2".to_owned(), "eth1".to_owned());
    let source = mac(9);
    let own = lldp::Own { switch, source, port: PortId(8), role: "trunk", device, address: None };
    all.extend((0..4).map(|port| (port, own.encode(121, None))));
    for (port, frame) in frames() {
        all.push((port, [&frame[..12], &[0x81, 0, 0x20, 7], &frame[12..]].concat()));
        all.push((2, [&frame[..12], &shim::ETHER_TYPE[..], &[5, 0], &frame[12..]].concat()));
    }
    all
}

/// What clients of DHCP and servers say: good and forged, to everybody and to the server, cut and repeated options.
fn of_dhcp() -> Vec<(u8, Vec<u8>)> {
    let message = |operation: u8, client: [u8; 6], options: &[u8]| {
        let head = [operation, 1, 6, 0, 1, 2, 3, 4];
        [&head[..], &[0; 20], &client, &[0; 202], &[99, 130, 83, 99], options].concat()
    };
    let asks = [53, 1, 3, 50, 4, 10, 0, 0, 1, 255];
    let relayed = [53, 1, 3, 82, 4, 1, 2, 9, 9, 50, 4, 10, 0, 0, 1, 255];
    let mut frames = Vec::new();
    for options in [&[53, 1, 1, 255][..], &asks, &asks[..7], &[&asks[..9], &asks].concat(), &[52, 1, 3, 255], &relayed]
    {
        for (port, from, to, operation, client, ports) in [
            (0, mac(1), [0xff; 6], 1, mac(1), (68, 67)),
            (0, mac(1), mac(3), 1, mac(1), (68, 67)),
            (1, mac(9), [0xff; 6], 1, mac(9), (68, 67)),
            (1, mac(2), [0xff; 6], 1, mac(1), (68, 67)),
            (1, mac(2), [0xff; 6], 2, mac(1), (67, 68)),
            (2, mac(3), mac(1), 2, mac(1), (67, 68)),
        ] {
            let mut frame = Vec::new();
            PacketBuilder::ethernet2(from, to)
                .ipv4([0; 4], [255; 4], 9)
                .udp(ports.0, ports.1)
                .write(&mut frame, &message(operation, client, options))
                .expect("a slice takes every byte");
            frames.push((port, frame));
        }
    }
    frames
}

fn seed(prefix: &[u8], frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = prefix.to_vec();
    frames.iter().for_each(|(port, frame)| put(&mut out, *port, frame));
    out
}

pub(crate) fn plain_seeds() -> Vec<Vec<u8>> {
    (0..6).flat_map(|kind| varied().chunks(15).map(|frames| seed(&[kind], frames)).collect::<Vec<_>>()).collect()
}

pub(crate) fn flow_seeds() -> Vec<Vec<u8>> {
    varied().chunks(11).map(|frames| seed(&[], frames)).collect()
}

pub(crate) fn dhcp_seeds() -> Vec<Vec<u8>> {
    [frames(), of_dhcp()].concat().chunks(11).map(|frames| seed(&[], frames)).collect()
}

pub(crate) fn gateway_seeds() -> Vec<Vec<u8>> {
    flow_seeds()
}

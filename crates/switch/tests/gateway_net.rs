//! The use case of the papers: an enterprise network of name switches with two gateways, in network namespaces.
//!
//! ```text
//!   h1 ── a ══ core ══ b ── h2        a, b: gateways (10.0.0.251, 10.0.0.252), trunks to the core
//!         │            │
//!    192.0.2.1    198.51.100.1
//!         └── outside ─┘              a host with 203.0.113.1, which routes 10.0.0.1 by a and 10.0.0.2 by b
//! ```
//! Every host is in a namespace of its own. Switches are in the namespace of the test.

#[path = "../../dataplane/tests/common/mod.rs"]
mod common;

use common::PATIENCE;
use common::netns::{Namespace, ip, veth};
use dataplane::counters::DropReason;
use fib::action::PortId;
use fib::durable::Tenants;
use fib::name::{Name, NameKind};
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use fibula_switch::daemon::config::{Config, Driver};
use fibula_switch::daemon::saved::SavedImage;
use fibula_switch::daemon::{Switch, lost_offloads};
use lookup::hash::SecretKey;
use netio::testkit::in_namespace;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

struct Host(Namespace);

impl Host {
    /// With an interface to each of `devices`, called eth0, eth1, ...
    fn new(devices: &[&str]) -> Self {
        let namespace = Namespace::new();
        for (i, device) in devices.iter().enumerate() {
            namespace.link(&format!("eth{i}"), device);
        }
        Self(namespace)
    }

    /// Runs `ip` with each of these arguments.
    fn run(&self, commands: &[&str]) {
        let commands: Vec<_> = commands.iter().map(|&command| command.to_owned()).collect();
        self.0.inside(move || commands.iter().for_each(|command| ip(command)));
    }

    /// Echoes every byte of every connection.
    fn serve(&self, at: &str) {
        let at: SocketAddr = at.parse().unwrap();
        let listener = self.0.inside(move || TcpListener::bind(at).unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || drop(std::io::copy(&mut stream.try_clone().unwrap(), &mut stream)));
            }
        });
    }

    /// Connects, sends a good deal, and has all of it echoed.
    #[track_caller]
    fn talk_to(&self, to: &str) {
        let to: SocketAddr = to.parse().unwrap();
        // The first packet to a new neighbour is lost and sent again after a second.
        let mut stream = self.0.inside(move || TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (mut writer, bytes) = (stream.try_clone().unwrap(), sent.clone());
        let writing = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
        let mut got = vec![0; sent.len()];
        stream.read_exact(&mut got).unwrap();
        writing.join().unwrap();
        assert!(got == sent, "what came back differs");
    }

    fn datagram(&self, to: &str) {
        let to: SocketAddr = to.parse().unwrap();
        self.0.inside(move || UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"?", to).unwrap());
    }
}

fn mac(last: u8) -> Name {
    Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, last]).unwrap()
}

/// Names: two hosts at port 1 of the gateways, and the gateways' own at port 100, where there is no device.
fn network() -> (Network, [NodeId; 3]) {
    let settings = Settings { kind: NameKind::Mac, max_names: 1000, ..Settings::new(7, SecretKey::from_seed(3)) };
    let mut network = Network::new(settings, 1).unwrap();
    let nodes = ["a", "core", "b"].map(|name| network.add_switch(name, Tenants::All).unwrap().0);
    let [a, core, b] = nodes;
    let end = |node, port| End { node, port: PortId(port) };
    network.add_link(end(a, 8), end(core, 8), 1).unwrap();
    network.add_link(end(core, 9), end(b, 9), 1).unwrap();
    let at = [(a, 1, 1, "10.0.0.1"), (b, 1, 2, "10.0.0.2"), (a, 100, 0xfa, "10.0.0.251"), (b, 100, 0xfb, "10.0.0.252")];
    for (node, port, last, address) in at {
        network.add_host_port(end(node, port)).unwrap();
        let attachment = Attachment { ip: Some(address.parse().unwrap()), ..Attachment::new(node, PortId(port)) };
        network.add_name(&mac(last), attachment).unwrap();
    }
    (network, nodes)
}

fn image(network: &mut Network, node: NodeId) -> Vec<u8> {
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    for message in network.attach(node, &replica.report()).unwrap() {
        replica.apply(message).unwrap();
    }
    replica.save()
}

/// A gateway's section: its last byte, its address inside, that outside, and the router there.
fn gateway(last: u8, inside: &str, outside: &str, router: &str) -> String {
    format!(
        "[[port]]\nid = 3\ndevice = 'out{last:x}'\nrole = 'outside'\n\
         [gateway]\nmac = '02:00:00:00:00:{last:x}'\nport = 100\naddresses = ['{inside}']\n\
         [[gateway.outside]]\nport = 3\naddresses = ['{outside}/24']\n\
         [[gateway.route]]\nprefix = '10.0.0.0/24'\nvia = 'inside'\n\
         [[gateway.route]]\nprefix = '0.0.0.0/0'\nvia = '{router}'\n"
    )
}

fn an_enterprise_network_talks_by_name_inside_and_by_prefix_outside() {
    in_namespace(|| {
        ip("link set lo up");
        let hosts = [Host::new(&["h1"]), Host::new(&["h2"])];
        for (host, last, by) in [(&hosts[0], 1, "10.0.0.251"), (&hosts[1], 2, "10.0.0.252")] {
            host.run(&[
                &format!("link set eth0 address 02:00:00:00:00:{last:02x}"),
                &format!("addr add 10.0.0.{last}/24 dev eth0"),
                &format!("route add default via {by}"),
            ]);
        }
        let outside = Host::new(&["outfa", "outfb"]);
        outside.run(&[
            "addr add 192.0.2.99/24 dev eth0",
            "addr add 198.51.100.99/24 dev eth1",
            "addr add 203.0.113.1/32 dev lo",
            "route add 10.0.0.1/32 via 192.0.2.1 src 203.0.113.1",
            "route add 10.0.0.0/24 via 198.51.100.1 src 203.0.113.1",
        ]);
        veth("a8", "core8", 1504);
        veth("b9", "core9", 1504);

        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (mut network, nodes) = network();
        let port = |id: u8, device: &str, role| format!("[[port]]\nid = {id}\ndevice = '{device}'\nrole = '{role}'\n");
        let sections = [
            (
                "a",
                port(1, "h1", "host")
                    + &port(8, "a8", "trunk")
                    + &gateway(0xfa, "10.0.0.251", "192.0.2.1", "192.0.2.99"),
            ),
            ("core", port(8, "core8", "trunk") + &port(9, "core9", "trunk")),
            (
                "b",
                port(1, "h2", "host")
                    + &port(9, "b9", "trunk")
                    + &gateway(0xfb, "10.0.0.252", "198.51.100.1", "198.51.100.99"),
            ),
        ];
        let switches = sections.map(|(name, ports)| {
            let state = directory.path().join(name);
            std::fs::create_dir(&state).unwrap();
            let node = nodes[["a", "core", "b"].iter().position(|&other| other == name).unwrap()];
            SavedImage::new(&state).unwrap().write(&image(&mut network, node)).unwrap();
            let head = format!(
                "name = '{name}'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{}'\nstatus = '127.0.0.1:0'\n",
                state.display()
            );
            let path = state.join("switch.toml");
            std::fs::write(&path, head + &ports).unwrap();
            runtime.block_on(Switch::start(Config::load(Path::new(&path)).unwrap())).unwrap()
        });
        let status = |switch: &Switch| -> serde_json::Value {
            let mut stream = TcpStream::connect(switch.status_address().unwrap().tcp().unwrap()).unwrap();
            stream.write_all(b"GET /status HTTP/1.0\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap()
        };
        let dropped =
            |switch: &Switch, reason: DropReason| status(switch)["drops"][reason.name()].as_u64().unwrap_or(0);
        let [a, core, b] = &switches;

        hosts[0].serve("10.0.0.1:80");
        hosts[1].serve("10.0.0.2:80");
        outside.serve("203.0.113.1:80");
        // Inside by name, across the core.
        hosts[0].talk_to("10.0.0.2:80");
        // Out by each gateway, and in by each.
        hosts[0].talk_to("203.0.113.1:80");
        hosts[1].talk_to("203.0.113.1:80");
        outside.talk_to("10.0.0.1:80");
        outside.talk_to("10.0.0.2:80");

        // The hosts left checksums and long segments to hardware that is not there. Nothing is lost of that: trunks and ports outside
        // have what they take.
        let count = |switch: &Switch, name: &str| -> u64 {
            status(switch)["ports"]
                .as_array()
                .unwrap()
                .iter()
                .map(|port| port["counters"][name].as_u64().unwrap())
                .sum()
        };
        for switch in [a, core, b] {
            for lost in ["rx_oversized", "rx_malformed", "tx_refused"] {
                assert_eq!(count(switch, lost), 0, "{lost}");
            }
        }
        assert!(count(a, "rx_super") > 0 && count(b, "rx_super") > 0, "a stack sends long segments as one frame");
        assert!(count(a, "tx_segments") > 0, "a trunk has segments");
        assert!(count(a, "tx_super") > 0, "a port outside has them whole");

        // What is for nobody stops at the gateway, and a host's frame to a stranger at its first switch.
        let wait_for = |switch: &Switch, reason| {
            let began = Instant::now();
            while dropped(switch, reason) == 0 {
                assert!(began.elapsed() < PATIENCE, "no frame dropped as {}", reason.name());
                #[expect(clippy::disallowed_methods, reason = "the counters of a running switch can only be polled")]
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        assert_eq!(dropped(b, DropReason::Alien), 0);
        outside.datagram("10.0.0.77:9");
        wait_for(b, DropReason::Alien);
        let before = dropped(a, DropReason::Alien);
        hosts[0].run(&["neigh add 10.0.0.66 lladdr 02:00:00:00:00:66 dev eth0"]);
        hosts[0].datagram("10.0.0.66:9");
        assert_eq!(before, 0);
        wait_for(a, DropReason::Alien);
        for switch in switches {
            runtime.block_on(switch.stop());
        }
    });
}

/// Where a driver loses what hosts leave to hardware, the log at the start and `fibula doctor` say what to do.
fn ports_that_lose_what_hosts_leave_to_hardware_are_named_with_the_command() {
    in_namespace(|| {
        ip("tuntap add dev tap0 mode tap");
        ip("link add veth0 type veth peer name veth1");
        for driver in [Driver::AfXdp, Driver::Xdp] {
            let lost = lost_offloads(driver, "tap0").unwrap();
            assert!(lost.contains("gso=off") && lost.contains(driver.name()), "{lost}");
            assert_eq!(lost_offloads(driver, "veth0"), None, "the kernel cuts there, and checksums are completed");
        }
        let lost = lost_offloads(Driver::Dpdk, "net_af_packet0,iface=veth0").unwrap();
        assert!(lost.contains("ethtool -K IF tx off tso off gso off"), "{lost}");
        assert_eq!(lost_offloads(Driver::Dpdk, "0000:03:00.0"), None);
        for device in ["tap0", "veth0"] {
            assert_eq!(lost_offloads(Driver::AfPacket, device), None, "packet sockets carry it");
        }
    });
}

netio::tests! {
    namespaces: [
        ports_that_lose_what_hosts_leave_to_hardware_are_named_with_the_command,
        an_enterprise_network_talks_by_name_inside_and_by_prefix_outside,
    ],
    anywhere: []
}

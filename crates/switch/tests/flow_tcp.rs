//! Real TCP, UDP and ping between network namespaces, through a switch that tracks connections.
//!
//! Every host is in a namespace of its own. The switch is in the namespace of the test, and forwards by MAC addresses
//! that it answers ARP with.

#[path = "../../dataplane/tests/common/mod.rs"]
mod common;

use api::v1;
use api::v1::change_server_request::Change;
use common::PATIENCE;
use common::netns::{Namespace, ip};
use fib::action::PortId;
use fib::durable::Tenants;
use fib::name::{Name, NameKind};
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::rib::Attachment;
use fib::topology::End;
use fibula_switch::daemon::Switch;
use fibula_switch::daemon::config::Config;
use fibula_switch::daemon::saved::SavedImage;
use lookup::hash::SecretKey;
use netio::testkit::in_namespace;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// A network namespace with one interface.
struct Host {
    namespace: Namespace,
    address: IpAddr,
}

impl Host {
    /// `port` of the switch is at the other end of its interface.
    fn new(port: u16, address: &str) -> Self {
        let namespace = Namespace::new();
        namespace.link("eth0", &format!("sw{port}"));
        let host = Self { namespace, address: address.parse().unwrap() };
        let set_up = format!("addr add {address}/8 dev eth0");
        host.inside(move || {
            ip(&format!("link set eth0 address {}", mac_text(port)));
            ip(&set_up);
            ip("route add default dev eth0");
        });
        host
    }

    /// Runs `work` in its namespace.
    fn inside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        self.namespace.inside(work)
    }

    /// Serves `name` on a port: answers every line with its name, and where the connection seems to come from.
    fn serve(&self, port: u16, name: &'static str) {
        let address = SocketAddr::new(self.address, port);
        let listener = self.inside(move || TcpListener::bind(address).unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let peer = stream.peer_addr().unwrap();
                    let mut byte = [0];
                    while stream.read(&mut byte).is_ok_and(|n| n == 1) {
                        if byte == *b"\n" && stream.write_all(format!("{name} {}\n", peer.ip()).as_bytes()).is_err() {
                            break;
                        }
                    }
                });
            }
        });
    }

    /// Answers what health checks ask on a port, with a status that the test may change.
    fn serve_health(&self, port: u16, status: &Arc<AtomicU16>) {
        let address = SocketAddr::new(self.address, port);
        let listener = self.inside(move || TcpListener::bind(address).unwrap());
        let status = Arc::clone(status);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let (mut request, mut byte) = (vec![], [0]);
                while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    request.extend(byte);
                }
                let is_asked = request.starts_with(b"GET /healthz HTTP/1.1\r\n");
                let status = if is_asked { status.load(Ordering::Relaxed) } else { 404 };
                let _ = stream.write_all(format!("HTTP/1.1 {status} as asked\r\n\r\n").as_bytes());
            }
        });
    }

    fn connect(&self, to: &str) -> std::io::Result<TcpStream> {
        let to: SocketAddr = to.parse().unwrap();
        let stream = self.inside(move || TcpStream::connect_timeout(&to, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Tries to connect where no answer can come.
    #[track_caller]
    fn cannot_connect(&self, to: &str) {
        let to: SocketAddr = to.parse().unwrap();
        let result = self.inside(move || TcpStream::connect_timeout(&to, Duration::from_millis(300)));
        assert!(result.is_err(), "connected to {to}");
    }
}

fn mac_text(port: u16) -> String {
    format!("02:00:00:00:00:{port:02x}")
}

/// Asks the server at the other end who it is, and whom it sees.
fn ask(stream: &mut TcpStream) -> (String, String) {
    stream.write_all(b"who?\n").unwrap();
    let (mut line, mut byte) = (String::new(), [0]);
    while byte != *b"\n" {
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0].into());
    }
    let (name, peer) = line.trim().split_once(' ').unwrap();
    (name.to_owned(), peer.to_owned())
}

/// Sends a good deal, of which every line is answered.
fn send_much(stream: &mut TcpStream) {
    let lines = 200;
    let mut writer = stream.try_clone().unwrap();
    let text = [vec![b'x'; 5000], vec![b'\n']].concat().repeat(lines);
    let writing = std::thread::spawn(move || writer.write_all(&text).unwrap());
    let (mut n, mut bytes) = (0, [0; 4096]);
    while n < lines {
        let got = stream.read(&mut bytes).unwrap();
        assert!(got > 0, "the connection ended");
        n += bytes[..got].iter().filter(|&&byte| byte == b'\n').count();
    }
    writing.join().unwrap();
}

struct Network4 {
    _directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    switch: Option<Switch>,
    hosts: Vec<Host>,
}

impl Network4 {
    /// Hosts at ports 1, 2, ... of a switch with this `[flow]`; `FILE` in it is a path in a directory of its own.
    fn new(addresses: &[&str], flow: &str) -> Self {
        Self::with_own(addresses, None, flow)
    }

    /// As [`Network4::new`]; the machine of the switch has an address behind a last port, if one is given.
    fn with_own(addresses: &[&str], own: Option<&str>, flow: &str) -> Self {
        ip("link set lo up");
        let directory = tempfile::tempdir().unwrap();
        let hosts: Vec<Host> = addresses.iter().zip(1..).map(|(address, port)| Host::new(port, address)).collect();
        let path = |file: &str| directory.path().join(file).display().to_string();
        let mut toml = format!(
            "name = 's1'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{}'\nstatus = '127.0.0.1:0'\n",
            directory.path().display()
        );
        let mut all = addresses.to_vec();
        if let Some(own) = own {
            all.push(own);
            let port = all.len() as u16;
            ip(&format!("link add own0 address {} type veth peer name sw{port}", mac_text(port)));
            ip(&format!("addr add {own}/8 dev own0"));
            ip("link set own0 up");
            ip(&format!("link set sw{port} up"));
            // The machine answers for its address behind that port alone.
            std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").unwrap();
        }
        for port in 1..=all.len() {
            toml += &format!("[[port]]\nid = {port}\ndevice = 'sw{port}'\nrole = 'host'\n");
        }
        toml += "[flow]\ncontrol = '127.0.0.1:0'\n";
        toml += &flow.replace("FILE", &path("flows.jsonl"));
        SavedImage::new(directory.path()).unwrap().write(&image(&all)).unwrap();
        std::fs::write(path("switch.toml"), toml).unwrap();
        let config = Config::load(Path::new(&path("switch.toml"))).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let switch = runtime.block_on(Switch::start(config)).unwrap();
        Self { _directory: directory, runtime, switch: Some(switch), hosts }
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self._directory.path().join("flows.jsonl")).unwrap_or_default()
    }

    fn client(&self) -> api::v1::flows_client::FlowsClient<tonic::transport::Channel> {
        let address = self.switch.as_ref().unwrap().flow_address().unwrap();
        let url = format!("http://{address}");
        let channel = api::client::connect(&url, PATIENCE);
        api::client::flows(self.runtime.block_on(channel).unwrap())
    }

    fn flows(&self) -> Vec<v1::Flow> {
        let mut client = self.client();
        let shown = self.runtime.block_on(client.show(v1::ShowFlowsRequest::default()));
        shown.unwrap().into_inner().flows
    }

    fn stat(&self, name: &str) -> u64 {
        let mut client = self.client();
        let stats = self.runtime.block_on(client.stats(v1::FlowStatsRequest::default())).unwrap().into_inner().stats;
        stats.iter().find(|stat| stat.name == name).unwrap().value
    }

    /// Each server with its state and flows.
    fn servers(&self) -> Vec<(String, String, u64)> {
        let mut client = self.client();
        let listed = self.runtime.block_on(client.list_servers(v1::ListServersRequest::default())).unwrap();
        listed.into_inner().servers.into_iter().map(|s| (s.server, s.state, s.flows)).collect()
    }

    fn change(&self, server: &str, change: Change) {
        let mut client = self.client();
        let request = v1::ChangeServerRequest {
            service: "10.0.0.100:80".to_owned(),
            protocol: "tcp".to_owned(),
            server: server.to_owned(),
            change: Some(change),
            ..v1::ChangeServerRequest::default()
        };
        self.runtime.block_on(client.change_server(request)).unwrap();
    }

    #[track_caller]
    fn eventually(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            #[expect(clippy::disallowed_methods, reason = "a running daemon can only be polled")]
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(&mut self) {
        self.runtime.block_on(self.switch.take().unwrap().stop());
    }
}

fn image(addresses: &[&str]) -> Vec<u8> {
    let settings = Settings { kind: NameKind::Mac, max_names: 1000, ..Settings::new(7, SecretKey::from_seed(3)) };
    let mut network = Network::new(settings, 1).unwrap();
    let (s1, _) = network.add_switch("s1", Tenants::All).unwrap();
    for (address, port) in addresses.iter().zip(1u16..) {
        let end = End { node: s1, port: PortId(port) };
        network.add_host_port(end).unwrap();
        let name = Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, port as u8]).unwrap();
        let attachment = Attachment { ip: Some(address.parse().unwrap()), ..Attachment::new(s1, PortId(port)) };
        network.add_name(&name, attachment).unwrap();
    }
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    for message in network.attach(s1, &replica.report()).unwrap() {
        replica.apply(message).unwrap();
    }
    replica.save()
}

fn connections_begin_by_rule_only_and_go_both_ways_then() {
    in_namespace(|| {
        let mut network = Network4::new(
            &["10.0.0.1", "10.0.0.2"],
            "[[flow.rule]]\naction = 'accept'\nprotocol = 'tcp'\ndestination = '10.0.0.2'\nports = 80\n",
        );
        let [client, server] = &network.hosts[..] else { panic!("two hosts") };
        server.serve(80, "allowed");
        server.serve(81, "forbidden");
        client.serve(80, "client");
        let mut stream = client.connect("10.0.0.2:80").unwrap();
        assert_eq!(ask(&mut stream), ("allowed".to_owned(), "10.0.0.1".to_owned()));
        send_much(&mut stream);
        client.cannot_connect("10.0.0.2:81");
        server.cannot_connect("10.0.0.1:80");
        assert!(network.stat("refused_rule") >= 2);
        let flows = network.flows();
        assert_eq!(flows.len(), 1, "{flows:?}");
        assert_eq!((&flows[0].state[..], &flows[0].destination[..]), ("established", "10.0.0.2:80"));
        assert!(flows[0].bytes > 1_000_000 && flows[0].reply_packets > 1, "{flows:?}");

        // Without its flow a connection is cut, for the switch takes none up in the middle.
        let flushed = network.runtime.block_on(network.client().flush(v1::FlushFlowsRequest::default()));
        assert_eq!(flushed.unwrap().into_inner().flushed, 1);
        let invalid = network.stat("refused_invalid");
        stream.write_all(b"anybody there?\n").unwrap();
        network.eventually("the segment is refused", |network| network.stat("refused_invalid") > invalid);
        let mut stream = network.hosts[0].connect("10.0.0.2:80").unwrap();
        assert_eq!(ask(&mut stream).0, "allowed");
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        drop(stream);
        network.eventually("both ends have closed it", |network| {
            network.flows().iter().any(|flow| flow.state == "time_wait")
        });
        network.stop();
    });
}

fn a_server_that_is_removed_keeps_its_connections_and_gets_no_new_ones() {
    in_namespace(|| {
        let mut network = Network4::new(
            &["10.0.0.1", "10.0.0.11", "10.0.0.12"],
            "timeouts = { time_wait = 1, last_ack = 1, closed = 1, close_wait = 1, fin_wait = 1 }\n\
             [[flow.rule]]\naction = 'accept'\nprotocol = 'tcp'\ndestination = '10.0.0.100'\nports = 80\n\
             [[flow.virtual]]\naddress = '10.0.0.100'\nport = 80\n\
             servers = [{ address = '10.0.0.11', port = 8080 }, { address = '10.0.0.12', weight = 2 }]\n",
        );
        network.hosts[1].serve(8080, "one");
        network.hosts[2].serve(80, "two");
        let open = |network: &Network4| {
            let mut stream = network.hosts[0].connect("10.0.0.100:80").unwrap();
            let (server, peer) = ask(&mut stream);
            assert_eq!(peer, "10.0.0.1", "the server sees the client");
            (stream, server)
        };
        let mut streams = vec![];
        let have = |streams: &[(TcpStream, String)], name: &str| streams.iter().filter(|(_, n)| n == name).count();
        // 64 connections without one of the servers: once in 10^11.
        while streams.len() < 64 && (have(&streams, "one") < 2 || have(&streams, "two") < 2) {
            streams.push(open(&network));
        }
        assert!(have(&streams, "one") >= 2 && have(&streams, "two") >= 2);
        send_much(&mut streams[0].0);

        network.change("10.0.0.12:80", Change::Remove(v1::RemoveServer { keep: false }));
        for (stream, server) in &mut streams {
            assert_eq!(ask(stream).0, *server, "a connection changed its server");
        }
        for (stream, _) in streams.iter_mut().filter(|(_, server)| server == "two") {
            send_much(stream);
        }
        let new: Vec<_> = (0..20).map(|_| open(&network)).collect();
        assert_eq!(have(&new, "one"), 20);
        let n_two = have(&streams, "two") as u64;
        let removed = ("10.0.0.12:80".to_owned(), "removed".to_owned(), n_two);
        assert!(network.servers().contains(&removed), "{:?}", network.servers());
        streams.retain(|(_, server)| server == "one");
        network.eventually("the server is forgotten with its last connection", |network| network.servers().len() == 1);

        // It comes back, the other is drained, and a third one has no address that anybody knows.
        network.change("10.0.0.12:80", Change::Add(v1::AddServer { weight: 1, mac: String::new() }));
        network.change("10.0.0.11:8080", Change::Drain(v1::DrainServer {}));
        assert_eq!(open(&network).1, "two");
        for (stream, _) in &mut streams {
            assert_eq!(ask(stream).0, "one");
        }
        network.change("10.0.0.12:80", Change::Remove(v1::RemoveServer { keep: false }));
        network.hosts[0].cannot_connect("10.0.0.100:80");
        assert!(network.stat("refused_no_server") >= 1);
        network.stop();
    });
}

fn servers_that_fail_their_checks_get_no_new_connections_until_they_pass_again() {
    in_namespace(|| {
        let mut network = Network4::with_own(
            &["10.0.0.1", "10.0.0.11", "10.0.0.12"],
            Some("10.0.0.250"),
            "[[flow.rule]]\naction = 'accept'\nprotocol = 'tcp'\ndestination = '10.0.0.100'\nports = 80\n\
             [[flow.rule]]\naction = 'accept'\nprotocol = 'tcp'\nsource = '10.0.0.250'\n\
             [[flow.virtual]]\naddress = '10.0.0.100'\nport = 80\n\
             servers = [{ address = '10.0.0.11' }, { address = '10.0.0.12' }]\n\
             check = { kind = 'http', path = '/healthz', port = 8081, interval_s = 1, timeout_s = 1, rise = 2, fall = 2, \
             source = '10.0.0.250' }\n",
        );
        network.hosts[1].serve(80, "one");
        network.hosts[2].serve(80, "two");
        let one = Arc::new(AtomicU16::new(200));
        network.hosts[1].serve_health(8081, &one);
        let is = |network: &Network4, last: u8, state: &str| {
            let server = format!("10.0.0.{last}:80");
            network.servers().iter().any(|(name, found, _)| *name == server && found == state)
        };
        // Nobody listens at the second one.
        network.eventually("a server that refuses is down", |network| is(network, 12, "down"));
        let mut held = network.hosts[0].connect("10.0.0.100:80").unwrap();
        assert_eq!(ask(&mut held).0, "one");
        network.hosts[2].serve_health(8081, &Arc::new(AtomicU16::new(204)));
        network.eventually("a server that answers is up", |network| is(network, 12, "active"));
        one.store(503, Ordering::Relaxed);
        network.eventually("a server with a wrong status is down", |network| is(network, 11, "down"));
        for _ in 0..10 {
            let mut stream = network.hosts[0].connect("10.0.0.100:80").unwrap();
            assert_eq!(ask(&mut stream).0, "two");
        }
        assert_eq!(ask(&mut held).0, "one", "a connection keeps its server");
        one.store(200, Ordering::Relaxed);
        network.eventually("it is up again", |network| is(network, 11, "active"));
        // 64 connections without it: once in 10^19.
        let is_one = |network: &Network4| ask(&mut network.hosts[0].connect("10.0.0.100:80").unwrap()).0 == "one";
        assert!((0..64).any(|_| is_one(&network)), "it is used again");
        network.stop();
    });
}

fn inside_hosts_reach_others_from_an_outside_address_and_what_ends_is_exported() {
    in_namespace(|| {
        let mut network = Network4::new(
            &["10.0.0.1", "198.51.100.1"],
            "default = 'drop'\nexport = 'FILE'\ntimeouts = { udp_new = 1, udp_replied = 1 }\n\
             [[flow.rule]]\naction = 'accept'\nsource = '10.0.0.0/8'\n\
             [flow.nat]\ninside = ['10.0.0.0/8']\naddresses = ['192.0.2.1']\nports = '20000-29999'\n",
        );
        let [inside, outside] = &network.hosts[..] else { panic!("two hosts") };
        outside.serve(80, "outside");
        inside.serve(80, "inside");
        let mut stream = inside.connect("198.51.100.1:80").unwrap();
        assert_eq!(ask(&mut stream), ("outside".to_owned(), "192.0.2.1".to_owned()));
        send_much(&mut stream);
        let flows = network.flows();
        assert!(flows[0].reply_destination.starts_with("192.0.2.1:2"), "{flows:?}");
        outside.cannot_connect("192.0.2.1:80");
        outside.cannot_connect("10.0.0.1:80");

        let server = outside.inside(|| UdpSocket::bind("198.51.100.1:53").unwrap());
        let client = inside.inside(|| UdpSocket::bind("10.0.0.1:0").unwrap());
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        client.send_to(b"question", "198.51.100.1:53").unwrap();
        let mut bytes = [0; 100];
        let (n, from) = server.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..n], from.ip().to_string()), (&b"question"[..], "192.0.2.1".to_owned()));
        server.send_to(b"the answer", from).unwrap();
        assert_eq!(client.recv_from(&mut bytes).unwrap(), (10, "198.51.100.1:53".parse().unwrap()));

        network.eventually("the flow is exported", |network| network.file().contains("\"udp\""));
        let line = network.file().lines().find(|line| line.contains("\"udp\"")).unwrap().to_owned();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["source"], client.local_addr().unwrap().to_string());
        assert_eq!(
            (&line["destination"], &line["reply_destination"]),
            (&"198.51.100.1:53".into(), &from.to_string().into())
        );
        assert_eq!(line["packets"], serde_json::json!([1, 1]));
        assert_eq!(line["bytes"], serde_json::json!([28 + 8, 28 + 10]));
        assert_eq!((&line["ended"], &line["state"]), (&"expired".into(), &"udp_replied".into()));

        // Nobody listens there: the error comes back as one about what was sent.
        client.connect("198.51.100.1:54").unwrap();
        client.send(b"anybody?").unwrap();
        let refused = client.recv(&mut bytes).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        network.stop();
        // What was there at the end is exported, too.
        let tcp = network.file().lines().filter(|line| line.contains("\"tcp\"")).count();
        assert_eq!(tcp, 1, "{}", network.file());
    });
}

netio::tests! {
    namespaces: [
        connections_begin_by_rule_only_and_go_both_ways_then,
        a_server_that_is_removed_keeps_its_connections_and_gets_no_new_ones,
        servers_that_fail_their_checks_get_no_new_connections_until_they_pass_again,
        inside_hosts_reach_others_from_an_outside_address_and_what_ends_is_exported,
    ],
    anywhere: []
}

//! The look-up service of a switch without ports: over gRPC and HTTP, for texts and for fixed fields, at a gateway and
//! inside, in both value modes.

use api::v1::{LookupAnswer, LookupOutcome, LookupRequest};
use dataplane::assembly::{Settings as PlaneSettings, build};
use dataplane::directory::{Answer, Directory, DirectoryError};
use dataplane::plane::PlaneWriter;
use dataplane::table::FibTable;
use fib::action::PortId;
use fib::designs::Design;
use fib::durable::Tenants;
use fib::messages::ValueMode;
use fib::name::{Name, NameKind};
use fib::network::{Effects, Network, Settings};
use fib::replica::{Limits, Replica};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use fibula_switch::daemon::Switch;
use fibula_switch::daemon::config::Config;
use fibula_switch::daemon::saved::SavedImage;
use lookup::hash::{Family, SecretKey};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

fn url(i: u32) -> Name {
    // Some longer than a batch of words, all within what every design takes.
    Name::parse(NameKind::Text, &format!("http://cdn.example/{}/{i}", "v/".repeat(i as usize % 15))).unwrap()
}

/// A switch without ports beside the network that it belongs to: `s1`, whose neighbour is `s2` at port 9.
struct Rig {
    network: Network,
    node: NodeId,
    peer: NodeId,
    replica: Replica<PlaneWriter>,
    directory: Directory,
}

impl Rig {
    fn new(kind: NameKind, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            kind,
            value_bits: 16,
            family: Family::Wy,
            max_names: 100_000,
            ..Settings::new(7, SecretKey::from_seed(3))
        };
        change(&mut settings);
        let mut network = Network::new(settings, 1).unwrap();
        let (node, _) = network.add_switch("s1", Tenants::All).unwrap();
        let (peer, _) = network.add_switch("s2", Tenants::All).unwrap();
        let end = |node| End { node, port: PortId(9) };
        network.add_link(end(node), end(peer), 1).unwrap();
        let (_, _, mut writer) = build::<FibTable>(&PlaneSettings::default(), Vec::new()).unwrap();
        let directory = writer.directory(2);
        let mut rig = Self { network, node, peer, replica: Replica::new(Limits::default(), writer), directory };
        assert_eq!(rig.ask(&["a"]), Err(DirectoryError::NoFib));
        for message in rig.network.attach(rig.node, &rig.replica.report()).unwrap() {
            rig.replica.apply(message).unwrap();
        }
        rig
    }

    fn tell(&mut self, effects: Effects) {
        for (node, message) in effects.messages() {
            if *node == self.node {
                self.replica.apply(message.clone()).unwrap();
            }
        }
    }

    fn servers(&mut self, node: NodeId, ports: impl Iterator<Item = u16>) {
        let ends: Vec<End> = ports.map(|port| End { node, port: PortId(port) }).collect();
        let effects = self.network.add_host_ports(&ends).unwrap();
        self.tell(effects);
    }

    fn put(&mut self, names: &[(Name, Attachment)]) {
        let effects = self.network.put_names(names).unwrap();
        self.tell(effects);
    }

    fn ask(&self, names: &[&str]) -> Result<Vec<Answer>, DirectoryError> {
        self.directory.lookup(names)
    }

    fn one(&self, name: &str) -> Answer {
        self.ask(&[name]).unwrap()[0]
    }
}

#[test]
fn more_servers_than_any_switch_has_ports_are_told_apart() {
    for design in ["concise", "ofw", "cfw", "cuckoo"] {
        let design = Design::by_name(design).unwrap();
        let mut rig = Rig::new(NameKind::Text, |settings| (settings.gateway, settings.core) = (design, design));
        let here = rig.node;
        // As many as there are values besides that of the link; the highest two have no place in a frame's tables.
        rig.servers(here, (1..=u16::MAX).filter(|port| *port != 9));
        let n = 3000;
        let port_of = |i: u32| PortId(u16::MAX - (i * 21) as u16 % 65_000);
        let names: Vec<_> = (0..n).map(|i| (url(i), Attachment::new(here, port_of(i)))).collect();
        rig.put(&names);
        let texts: Vec<String> = (0..n).map(|i| url(i).to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let expected: Vec<Answer> = (0..n).map(|i| Answer::Found(port_of(i))).collect();
        assert_eq!(rig.ask(&texts).unwrap(), expected, "{design}");
        assert_eq!(rig.one("http://cdn.example/never"), Answer::Unknown);
        assert!(rig.replica.tables().field_error().is_none(), "no frame needs a field where there are no ports");

        let effects = rig.network.set_name(&url(1), Attachment::new(here, PortId(1))).unwrap();
        rig.tell(effects);
        let effects = rig.network.remove_name(&url(2)).unwrap();
        rig.tell(effects);
        assert_eq!(rig.ask(&texts[1..4]).unwrap(), [Answer::Found(PortId(1)), Answer::Unknown, expected[3]]);
        let full = rig.network.add_host_ports(&[End { node: rig.peer, port: PortId(9) }]);
        assert!(full.is_err(), "the port of a link is no server");
    }
}

#[test]
fn without_the_valid_names_an_answer_is_not_checked() {
    let mut rig = Rig::new(NameKind::Fixed(20), |_| ());
    let there = rig.peer;
    rig.servers(there, 100..200);
    let name = |i: u8| Name::from_bytes(NameKind::Fixed(20), &[i; 20]).unwrap();
    rig.put(&[(name(1), Attachment::new(there, PortId(100)))]);
    assert_eq!(rig.one(&name(1).to_string()), Answer::Unchecked(PortId(9)));
    // The first server makes it a gateway, which knows the names.
    let here = rig.node;
    rig.servers(here, 5000..5002);
    rig.put(&[(name(2), Attachment::new(here, PortId(5001)))]);
    assert_eq!(rig.one(&name(1).to_string()), Answer::Found(PortId(9)));
    assert_eq!(rig.one(&name(2).to_string()), Answer::Found(PortId(5001)));
    assert_eq!(rig.one(&name(3).to_string()), Answer::Unknown);
    let effects = rig.network.set_link_up(End { node: here, port: PortId(9) }, false).unwrap();
    rig.tell(effects);
    assert_eq!(rig.one(&name(1).to_string()), Answer::Unreachable);
    let error = rig.ask(&[&name(1).to_string(), "0x00ff"]).unwrap_err().to_string();
    assert!(error.contains("name 1 of the request") && error.contains("40 hexadecimal digits"), "{error}");
    let counts = rig.directory.counts();
    assert_eq!((counts.requests, counts.refused), (7, 2), "{counts:?}");
    assert_eq!(counts.answers, [("unknown", 1), ("found", 2), ("unchecked", 1), ("unreachable", 1)]);
}

#[test]
fn in_egress_mode_local_names_give_the_port() {
    let mut rig = Rig::new(NameKind::Text, |settings| settings.mode = ValueMode::Egress);
    let (here, there) = (rig.node, rig.peer);
    rig.servers(here, [7, u16::MAX].into_iter());
    rig.servers(there, 40_000..40_002);
    let at = |node, port| Attachment::new(node, PortId(port));
    rig.put(&[(url(1), at(here, 7)), (url(2), at(here, u16::MAX)), (url(3), at(there, 40_001))]);
    for (i, port) in [(1, 7), (2, u16::MAX), (3, 9)] {
        assert_eq!(rig.one(&url(i).to_string()), Answer::Found(PortId(port)));
    }
}

#[test]
fn answers_stay_right_while_names_come_and_go() {
    let mut rig = Rig::new(NameKind::Text, |_| ());
    let here = rig.node;
    rig.servers(here, 1000..2000);
    let n = 500;
    let fixed: Vec<_> = (0..n).map(|i| (url(i), Attachment::new(here, PortId(1000 + i as u16)))).collect();
    rig.put(&fixed);
    let Rig { mut network, mut replica, directory, node, .. } = rig;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let texts: Vec<String> = (0..n).map(|i| url(i).to_string()).collect();
        let (directory, done) = (&directory, &done);
        for _ in 0..2 {
            let texts = texts.clone();
            scope.spawn(move || {
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                while !done.load(Ordering::Relaxed) {
                    for (i, answer) in directory.lookup(&texts).unwrap().into_iter().enumerate() {
                        assert_eq!(answer, Answer::Found(PortId(1000 + i as u16)));
                    }
                }
            });
        }
        for round in 0..20u32 {
            let others: Vec<_> =
                (0..1000).map(|i| (url(n + i + round * 1000), Attachment::new(here, PortId(1999)))).collect();
            let put = network.put_names(&others).unwrap();
            let names: Vec<Name> = others.into_iter().map(|(name, _)| name).collect();
            let removed = network.remove_names(&names).unwrap();
            let rekeyed = network.rekey(SecretKey::from_seed(round.into())).unwrap();
            for effects in [put, removed, rekeyed] {
                for (_, message) in effects.messages().filter(|(to, _)| *to == node) {
                    replica.apply(message.clone()).unwrap();
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A switch as its file says, with the image that it had when it was last told anything.
struct Site {
    directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Site {
    fn new(image: Option<&[u8]>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        if let Some(image) = image {
            SavedImage::new(directory.path()).unwrap().write(image).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { directory, runtime }
    }

    fn start(&self) -> Switch {
        let path = self.directory.path().join("switch.toml");
        let toml = format!(
            "name = 's1'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{}'\nstatus = '127.0.0.1:0'\n\
             lookup = '127.0.0.1:0'\n",
            self.directory.path().display()
        );
        std::fs::write(&path, toml).unwrap();
        self.runtime.block_on(Switch::start(Config::load(&path).unwrap())).unwrap()
    }

    fn grpc(&self, switch: &Switch, names: &[&str]) -> Result<Vec<LookupAnswer>, tonic::Status> {
        self.runtime.block_on(async {
            let url = format!("http://{}", switch.lookup_address().unwrap());
            let channel = api::client::connect(&url, std::time::Duration::from_secs(60)).await.unwrap();
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Ok(api::client::lookup(channel).lookup(LookupRequest { names }).await?.into_inner().answers)
        })
    }
}

fn http(address: SocketAddr, request: &str) -> (u16, serde_json::Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

fn get(address: SocketAddr, path: &str) -> (u16, serde_json::Value) {
    http(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

fn post(address: SocketAddr, body: &str) -> (u16, serde_json::Value) {
    let n = body.len();
    let head = format!("POST /lookup HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {n}\r\n\r\n");
    http(address, &(head + body))
}

fn image(n: u32) -> Vec<u8> {
    let mut rig = Rig::new(NameKind::Text, |_| ());
    let here = rig.node;
    rig.servers(here, 1..9);
    let effects = rig.network.add_host_ports(&[End { node: here, port: PortId(60_000) }]).unwrap();
    rig.tell(effects);
    let names: Vec<_> = (0..n).map(|i| (url(i), Attachment::new(here, PortId([60_000, 7][i as usize % 2])))).collect();
    rig.put(&names);
    rig.replica.save()
}

#[test]
fn grpc_and_http_answer_from_the_saved_image() {
    let n = 2000;
    let site = Site::new(Some(&image(n)));
    let switch = site.start();
    let address = switch.lookup_address().unwrap().tcp().unwrap();
    let texts: Vec<String> = (0..n).map(|i| url(i).to_string()).collect();
    let mut names: Vec<&str> = texts.iter().map(String::as_str).collect();
    names.push("http://cdn.example/gone?x=1&y=ü");
    let answers = site.grpc(&switch, &names).unwrap();
    assert_eq!(answers.len(), names.len());
    for (i, answer) in answers[..n as usize].iter().enumerate() {
        assert_eq!((answer.outcome(), answer.port), (LookupOutcome::Found, [60_000, 7][i % 2]));
    }
    assert_eq!(answers[n as usize].outcome(), LookupOutcome::Unknown);

    let expected = serde_json::json!({"answers": [
        {"name": names[0], "outcome": "found", "port": 60_000},
        {"name": names[n as usize], "outcome": "unknown"},
        {"name": names[3], "outcome": "found", "port": 7},
    ]});
    let query = "name=http%3A%2F%2Fcdn.example%2F%2F0&name=http://cdn.example/gone?x%3D1%26y%3D%C3%BC&other=1&name=";
    assert_eq!(get(address, &format!("/lookup?{query}{}", names[3])), (200, expected.clone()));
    assert_eq!(post(address, &[names[0], names[n as usize], names[3]].join("\n")), (200, expected));
    let (code, all) = post(address, &texts.join("\r\n"));
    assert_eq!((code, all["answers"].as_array().unwrap().len()), (200, n as usize));

    for (code, error) in [
        (get(address, "/lookup"), "name=NAME"),
        (get(address, "/lookup?name=%zz"), "percent-encoded"),
        (post(address, "a\u{7}b"), "control character"),
    ]
    .map(|((code, body), part)| (code, (body["error"].as_str().unwrap().to_owned(), part)))
    {
        assert!(code == 400 && error.0.contains(error.1), "{code}: {error:?}");
    }
    let (code, body) = post(address, &"x\n".repeat(65_537));
    assert!(code == 413 && body["error"].as_str().unwrap().contains("65536"), "{code}: {body}");
    assert_eq!(post(address, &"x\n".repeat(65_536)).0, 200);
    let long = "x".repeat(4097);
    let status = site.grpc(&switch, &[names[0], &long]).unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().contains("name 1") && status.message().contains("4096"), "{}", status.message());
    assert_eq!(site.grpc(&switch, &vec!["x"; 65_537]).unwrap_err().code(), tonic::Code::ResourceExhausted);

    let (_, status) = get(switch.status_address().unwrap().tcp().unwrap(), "/status");
    assert_eq!(status["lookup"]["answers"]["found"], 2 * n + 4, "{status:#}");
    assert_eq!(status["lookup"]["refused"], 6, "{status:#}");
    assert!(status["field_error"].is_null(), "{status:#}");
    site.runtime.block_on(switch.stop());
}

#[test]
fn a_switch_without_a_table_says_so() {
    let site = Site::new(None);
    let switch = site.start();
    let status = site.grpc(&switch, &["a"]).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().contains("no table yet"), "{}", status.message());
    let address = switch.lookup_address().unwrap().tcp().unwrap();
    assert_eq!(get(address, "/lookup?name=a").0, 503);
    // A name that somebody else gave to this machine: it may be a page of elsewhere that asks.
    let of_a_page = "GET /lookup?name=a HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let (status, answer) = http(address, of_a_page);
    assert!(status == 403 && answer["error"].as_str().unwrap().contains("localhost"), "{answer}");
    site.runtime.block_on(switch.stop());
}

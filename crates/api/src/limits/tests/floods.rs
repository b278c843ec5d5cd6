//! One listener is flooded while all others are asked; answers that no one reads.

use super::super::table::Kind;
use super::*;
use crate::address::{Address, Origin};
use crate::gate::Gate;
use crate::identity::{Identity, Kind as HolderKind, Role};
use crate::limits::connections::Connection;
use crate::pki::Authority;
use crate::status::StatusSource;
use crate::tls::{Files, Tls};
use axum::Router;
use axum::http::Request;
use axum::routing::get;
use std::task::Waker;

const TLS: Kind = Kind { has_certificates: true, for_pages: false };

fn from(ip: [u8; 4], port: u16) -> Origin {
    Origin::Tcp((ip, port).into())
}

fn holder(kind: HolderKind, number: usize) -> Identity {
    Identity::new(kind, &format!("n{number}")).unwrap()
}

fn is_open(connection: &Arc<Connection>) -> bool {
    !connection.is_closed(Waker::noop())
}

#[test]
fn strangers_from_a_few_addresses_keep_no_holder_of_a_certificate_out() {
    let guard = Guard::new(Limits::default());
    let listening = guard.new_listener(TLS);
    let switch = |i: usize| {
        let connection = guard.admit(&listening, from([10, 1, (i / 200) as u8, (i % 200) as u8], 7)).unwrap();
        assert!(guard.prove(&connection, &holder(HolderKind::Switch, i)));
        connection
    };
    let mut switches: Vec<_> = (0..500).map(switch).collect();
    // Three addresses with as many connections as each may have, and more again and again.
    let flood = |from_port: u16| {
        for port in from_port..from_port + 250 {
            for host in 0..3 {
                let stranger = guard.admit(&listening, from([10, 2, 0, host], port));
                assert!(stranger.is_some(), "strangers close each other");
            }
        }
    };
    (0..8).for_each(|round| flood(1000 + 250 * round));
    assert!(switches.iter().all(is_open));
    assert!(guard.connections() <= 500 + 512, "half of them are for those with a certificate");
    // An operator and a switch that starts anew are strangers for as long as a handshake takes.
    let operator = guard.admit(&listening, from([10, 3, 0, 1], 7)).unwrap();
    flood(9000);
    assert!(is_open(&operator) && guard.prove(&operator, &holder(HolderKind::Operator(Role::Admin), 1)));
    switches.extend((500..1000).map(switch));
    flood(9000);
    assert!(switches.iter().all(is_open) && is_open(&operator));
    assert_eq!(guard.refused(Limit::Connections), 0);
}

#[test]
fn the_holder_of_one_certificate_has_so_many_connections_wherever_they_come_from() {
    let guard = Guard::new(Limits { connections_per_peer: 3, ..Limits::default() });
    let [one, other] = [guard.new_listener(TLS), guard.new_listener(TLS)];
    let me = holder(HolderKind::Operator(Role::Reader), 1);
    let connect = |host: u8| {
        let connection =
            guard.admit(if host.is_multiple_of(2) { &one } else { &other }, from([10, 0, 0, host], 7)).unwrap();
        (guard.prove(&connection, &me), connection)
    };
    let idle: Vec<_> = (0..3).map(connect).collect();
    let (is_admitted, busy) = connect(3);
    assert!(is_admitted && !is_open(&idle[0].1) && is_open(&idle[1].1), "the one that is idle for longest makes room");
    let connections = [&idle[1].1, &idle[2].1, &busy];
    let requests: Vec<_> = connections.iter().map(|connection| guard.begin(connection.key).unwrap()).collect();
    assert!(!connect(4).0, "each of them is waited for");
    assert!(guard.refused(Limit::PeerConnections) == 1 && connections.into_iter().all(is_open));
    let other_holder = guard.admit(&one, from([10, 0, 0, 5], 7)).unwrap();
    assert!(guard.prove(&other_holder, &holder(HolderKind::Operator(Role::Reader), 2)));
    drop(requests);
    assert!(connect(6).0);
}

#[test]
fn all_addresses_of_this_machine_are_one_peer() {
    let guard = Guard::new(Limits { connections_per_peer: 10, ..Limits::default() });
    let listening = guard.new_listener(Kind { has_certificates: false, for_pages: true });
    for host in 0..100 {
        guard.admit(&listening, from([127, 0, host, 1], 7)).unwrap();
        guard
            .admit(&listening, Origin::Tcp(("::1".parse::<std::net::IpAddr>().unwrap(), u16::from(host)).into()))
            .unwrap();
    }
    assert_eq!(guard.connections(), 10);
}

struct Large(usize);

impl StatusSource for Large {
    fn status_json(&self) -> String {
        "x".repeat(self.0)
    }
    fn metrics_text(&self) -> String {
        "fine\n".to_owned()
    }
}

async fn http1(address: &Address, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address.tcp().unwrap()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The first line of an answer.
async fn first_line(mut stream: TcpStream) -> String {
    let mut answer = vec![0; 64];
    let n = stream.read(&mut answer).await.unwrap_or(0);
    String::from_utf8_lossy(&answer[..n]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_listener_answers_while_any_of_them_is_flooded() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(&directory.path().join("pki")).unwrap();
    let tls = |kind, name: &str| {
        let files = authority.make(&Identity::new(kind, name).unwrap(), &[], 30).unwrap();
        Tls::load(&Files::in_directory(files)).unwrap()
    };
    let (server, operator) = (tls(HolderKind::Switch, "s1"), tls(HolderKind::Operator(Role::Reader), "me"));
    let guard = Guard::new(Limits { connections: 16, connections_per_peer: 16, ..Limits::default() });
    let gate = Gate::new(Some(server), false, Arc::clone(&guard), None);
    let any = || "127.0.0.1:0".parse::<Address>().unwrap();
    let lookup = crate::lookup::serve(&any(), &gate, Arc::new(Nothing)).await.unwrap();
    // As the events of a page, and its other pages.
    let endless = || async { axum::body::Body::new(Unfinished(None)) };
    let pages = Router::new().route("/ui/events", get(endless));
    let status = crate::status::serve_with(&any(), &gate, false, Arc::new(Large(10)), pages).await.unwrap();
    let socket = format!("unix:{}/s", directory.path().display()).parse().unwrap();
    let local = crate::status::serve(&socket, &gate, false, Arc::new(Large(10))).await.unwrap();

    let ask_all = async |what: &str| {
        let url = format!("https://{lookup}");
        let patience = Duration::from_secs(60);
        let channel = crate::client::connect_to(HolderKind::Switch, &url, Some(&operator), patience).await.unwrap();
        let answer = LookupClient::new(channel).lookup(LookupRequest { names: vec!["x".to_owned()] }).await;
        assert_eq!(answer.unwrap().into_inner().answers.len(), 1, "{what}");
        assert_eq!(first_line(http1(&status, "/metrics").await).await, "HTTP/1.1 200 OK", "{what}");
        let Address::Unix { path, .. } = &local else { panic!("{local}") };
        let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK", "{what}");
    };
    for (what, address, request) in [
        ("connections without a handshake", &lookup, None),
        ("connections to the page", &status, None),
        ("streams of events", &status, Some("/ui/events")),
    ] {
        let mut flood = Vec::new();
        for _ in 0..60 {
            flood.push(match request {
                None => TcpStream::connect(address.tcp().unwrap()).await.unwrap(),
                Some(path) => {
                    let stream = http1(address, path).await;
                    // It has begun.
                    stream.readable().await.unwrap();
                    stream
                }
            });
        }
        ask_all(what).await;
    }
    assert!(guard.refused(Limit::Replaced) > 100);
    assert_eq!(guard.refused(Limit::Connections), 0);
}

/// A connection that has room for little of what comes.
async fn narrow(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535).connect().await.unwrap()
}

/// Asks for a path over HTTP/2. Returns the status of the answer, whose body has not been read.
async fn unread(channel: &Channel, path: &str) -> axum::http::Response<tonic::body::Body> {
    let mut channel = channel.clone();
    let request = Request::get(format!("http://127.0.0.1{path}")).body(tonic::body::Body::default()).unwrap();
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    channel.call(request).await.unwrap()
}

#[tokio::test]
async fn answers_that_nobody_reads_are_bounded_by_connection_peer_and_listener() {
    const MIB: usize = 1 << 20;
    let limits = Limits {
        message_bytes: MIB,
        connection_bytes: 3 * MIB,
        peer_bytes: 5 * MIB,
        total_bytes: 5 * MIB,
        ..Limits::default()
    };
    let guard = Guard::new(limits);
    let gate = Gate::new(None, false, Arc::clone(&guard), None);
    let serve = async || {
        let address = "127.0.0.1:0".parse().unwrap();
        crate::status::serve(&address, &gate, false, Arc::new(Large(MIB))).await.unwrap().tcp().unwrap()
    };
    let (address, other) = (serve().await, serve().await);
    let [one, two] = [narrow(address).await, narrow(address).await];
    let mut held = Vec::new();
    for (by, fits) in [(&one, 3), (&two, 2)] {
        for _ in 0..fits {
            held.push(unread(by, "/status").await);
            assert_eq!(held.last().unwrap().status(), 200);
        }
        assert_eq!(unread(by, "/status").await.status(), 429);
        // At another listener there is room.
        assert_eq!(unread(&narrow(other).await, "/status").await.status(), 200);
    }
    assert!(guard.refused(Limit::ConnectionBytes) == 1 && guard.refused(Limit::PeerBytes) == 1, "{guard:?}");
    // Small answers count as well, until they are read.
    drop(held);
    drop((one, two));
    until(|| guard.answer_bytes() == 0).await;
    let third = narrow(address).await;
    let small: Vec<_> = [unread(&third, "/metrics").await, unread(&third, "/status").await].into();
    until(|| (MIB..=MIB + 5).contains(&guard.answer_bytes())).await;
    drop((third, small));
    until(|| guard.answer_bytes() == 0).await;
    assert_eq!(unread(&channel(address).await, "/status").await.status(), 200);
}

#[tokio::test]
async fn an_answer_larger_than_the_limits_is_given_when_it_is_the_only_one() {
    let limits = Limits {
        message_bytes: 1 << 16,
        connection_bytes: 1 << 16,
        peer_bytes: 1 << 16,
        total_bytes: 1 << 16,
        ..Limits::default()
    };
    let guard = Guard::new(limits);
    let gate = Gate::new(None, false, Arc::clone(&guard), None);
    let address = "127.0.0.1:0".parse().unwrap();
    let address = crate::status::serve(&address, &gate, false, Arc::new(Large(1 << 20))).await.unwrap().tcp().unwrap();
    let channel = narrow(address).await;
    let first = unread(&channel, "/status").await;
    assert_eq!((first.status().as_u16(), unread(&channel, "/status").await.status().as_u16()), (200, 429));
}

#[tokio::test]
async fn every_listener_says_how_many_requests_may_be_in_progress() {
    let guard = Guard::new(Limits { streams: 7, ..Limits::default() });
    let gate = Gate::new(None, false, guard, None);
    let any = || "127.0.0.1:0".parse::<Address>().unwrap();
    let lookup = crate::lookup::serve(&any(), &gate, Arc::new(Nothing)).await.unwrap();
    let status = crate::status::serve(&any(), &gate, false, Arc::new(Large(1))).await.unwrap();
    for address in [lookup, status] {
        let mut stream = TcpStream::connect(address.tcp().unwrap()).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!(header[3], 4, "its first frame has its settings (RFC 9113, section 3.4)");
        let mut settings = vec![0; usize::from(u16::from_be_bytes([header[1], header[2]]))];
        stream.read_exact(&mut settings).await.unwrap();
        let most = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).map(|setting| setting[2..].to_vec());
        assert_eq!(most, Some(vec![0, 0, 0, 7]), "SETTINGS_MAX_CONCURRENT_STREAMS");
    }
}

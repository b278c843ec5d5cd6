//! Load balancer, source NAT, checksums.

use super::*;
use crate::flow::balance::{Balancer, Server, ServerState, endpoint_text};
use crate::flow::key::Keys;
use crate::flow::nat::NatSettings;
use crate::flow::packet::TCP;
use crate::flow::packet::{self, Address, Tuple, parse};
use crate::flow::rewrite::rewrite;
use crate::flow::{Virtual, VirtualId};
use lookup::testkit::{Rng, seed};
use proptest::prelude::*;
use std::collections::HashSet;

pub(super) const VIRTUAL: &str = "10.0.0.100:80";

fn server(text: &str, weight: u16, mac: Option<Mac>) -> Server {
    Server { endpoint: end(text), weight, mac }
}

pub(super) fn balanced() -> Rig {
    let servers = vec![server("10.0.0.11:80", 1, Some([2, 0, 0, 0, 0, 11])), server("10.0.0.12:8080", 3, None)];
    let balancer = Balancer::new(end(VIRTUAL).address, &servers).unwrap();
    let service = Virtual { endpoint: end(VIRTUAL), protocol: TCP, mac: [2; 6], balancer, check: None };
    Rig::new(Settings { rules: to_port_80(), virtuals: vec![service], max_flows: 1 << 16, ..Settings::default() })
}

/// Where a frame goes to, and where it comes from.
pub(super) fn ends(frame: &[u8]) -> (Endpoint, Endpoint) {
    let tuple = parse(frame, 12).unwrap().tuple;
    (tuple.destination, tuple.source)
}

#[test]
fn a_connection_to_a_virtual_address_is_one_to_a_server_and_its_answers_come_from_the_virtual_one() {
    let mut rig = balanced();
    let mut given = HashMap::new();
    for i in 0..4000u16 {
        let client = format!("10.1.0.1:{}", 1000 + i);
        let frame = rig.send(&tcp(&client, VIRTUAL, SYN, (1, 0), b"")).unwrap();
        assert!(is_whole(&frame));
        let (server, source) = ends(&frame);
        assert_eq!((source, frame[5]), (end(&client), server.address.0 as u8), "MAC of the server");
        *given.entry(server).or_insert(0u32) += 1;
        let server = endpoint_text(server);
        rig.expect(&tcp(&server, &client, SYN_ACK, (7, 2), b""), &tcp(VIRTUAL, &client, SYN_ACK, (7, 2), b""));
        rig.expect(&tcp(&client, VIRTUAL, ACK, (2, 8), b"GET"), &tcp(&client, &server, ACK, (2, 8), b"GET"));
        rig.expect(&tcp(&server, &client, ACK, (8, 5), b"OK!"), &tcp(VIRTUAL, &client, ACK, (8, 5), b"OK!"));
    }
    // Weights 1 and 3; binomial, 27 is one sigma.
    assert!(given[&end("10.0.0.11:80")].abs_diff(1000) < 5 * 27, "{given:?}");
    // No host sends it as it looks after the translation.
    rig.refuse(&tcp(VIRTUAL, "10.1.0.1:1000", ACK, (8, 5), b""), DropReason::FlowInvalid);
}

#[test]
fn a_connection_keeps_its_server_while_servers_come_and_go() {
    let mut rig = balanced();
    let ids = |rig: &mut Rig, from: u16| -> Vec<Endpoint> {
        let frame = |i| tcp(&format!("10.1.0.1:{}", from + i), VIRTUAL, ACK, (2, 8), b"x");
        (0..200).map(|i| ends(&rig.send(&frame(i)).unwrap()).0).collect()
    };
    let open = |rig: &mut Rig, from: u16| {
        for i in 0..200 {
            let client = format!("10.1.0.1:{}", from + i);
            let frame = rig.send(&tcp(&client, VIRTUAL, SYN, (1, 0), b"")).unwrap();
            let server = endpoint_text(ends(&frame).0);
            rig.send(&tcp(&server, &client, SYN_ACK, (7, 2), b"")).unwrap();
        }
    };
    open(&mut rig, 1000);
    let before = ids(&mut rig, 1000);
    let gone = end("10.0.0.12:8080");
    let n_there = before.iter().filter(|&&server| server == gone).count() as u64;
    rig.stage.balancer(VirtualId(0)).unwrap().drain(gone, true).unwrap();
    assert_eq!(ids(&mut rig, 1000), before);
    open(&mut rig, 2000);
    assert!(ids(&mut rig, 2000).iter().all(|&server| server == end("10.0.0.11:80")));
    let balancer = rig.stage.balancer(VirtualId(0)).unwrap();
    let member = *balancer.members().find(|member| member.server.endpoint == gone).unwrap();
    assert_eq!((member.state, member.flows), (ServerState::Removed, n_there));
    balancer.add(server("10.0.0.13:80", 5, Some([2, 0, 0, 0, 0, 13]))).unwrap();
    assert_eq!(ids(&mut rig, 1000), before);
    // With its last connection it is forgotten; a connection that is begun anew gets another server.
    let client = |i: usize| format!("10.1.0.1:{}", 1000 + i);
    for i in (0..200).filter(|&i| before[i] == gone) {
        rig.send(&tcp(&client(i), VIRTUAL, RST, (2, 0), b"")).unwrap();
        let again = rig.send(&tcp(&client(i), VIRTUAL, SYN, (9, 0), b"")).unwrap();
        assert_ne!(ends(&again).0, gone);
    }
    let balancer = rig.stage.balancer(VirtualId(0)).unwrap();
    assert!(balancer.members().all(|member| member.server.endpoint != gone));
    let members: Vec<_> = balancer.members().map(|member| member.server.endpoint).collect();
    for member in members {
        balancer.drain(member, false).unwrap();
    }
    rig.refuse(&tcp("10.1.0.2:1", VIRTUAL, SYN, (1, 0), b""), DropReason::FlowNoServer);
    rig.stage.balancer(VirtualId(0)).unwrap().add(server("10.0.0.14:80", 1, None)).unwrap();
    rig.refuse(&tcp("10.1.0.2:1", VIRTUAL, SYN, (1, 0), b""), DropReason::FlowNoServer);
    let counts = rig.stage.counts();
    assert_eq!((counts.refused_no_server, counts.refused_no_server_mac), (1, 1));
}

pub(super) fn translated(ports: std::ops::RangeInclusive<u16>) -> Rig {
    let nat = NatSettings {
        inside: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/16".parse().unwrap()],
        addresses: vec![end("192.0.2.1:0").address, end("[2001:db8::1]:0").address],
        ports,
        mac: [2; 6],
    };
    let rules = Rules { rules: vec![], accept_others: true };
    Rig::new(Settings { rules, nat: Some(nat), max_flows: 1 << 17, ..Settings::default() })
}

#[test]
fn a_flow_from_inside_gets_an_outside_address_and_its_answers_come_back() {
    for (client, server, outside) in [
        ("10.0.0.1:5000", "198.51.100.1:80", "192.0.2.1:5000"),
        ("[fd00::1]:5000", "[2001:db8:1::1]:80", "[2001:db8::1]:5000"),
    ] {
        let mut rig = translated(1024..=65_535);
        rig.expect(&tcp(client, server, SYN, (1, 0), b""), &tcp(outside, server, SYN, (1, 0), b""));
        let answer = tcp(server, outside, SYN_ACK, (7, 2), b"");
        let back = rig.send(&answer).unwrap();
        assert_eq!(back[..6], CLIENT_MAC, "the MAC address that the first packet came from");
        assert_eq!(back[12..], tcp(server, client, SYN_ACK, (7, 2), b"")[12..]);
        rig.expect(&udp(client, server, b"odd"), &udp(outside, server, b"odd"));
        rig.expect(&udp(server, outside, b"ok"), &udp(server, client, b"ok"));
        let (ping, pong) = (client.replace("5000", "77"), server.replace(":80", ":0"));
        let ours = outside.replace("5000", "1030");
        let echoed = rig.send(&echo(&ping, &pong, b"ping")).unwrap();
        assert!(is_whole(&echoed));
        let ours = ours.replace("1030", &ends(&echoed).1.port.to_string());
        rig.expect(&echo(&pong, &ours, b"ping"), &echo(&pong, &ping, b"ping"));
        // It belongs to no flow.
        assert!(rig.send(&tcp(server, &outside.replace("5000", "5001"), SYN_ACK, (1, 2), b"")).is_err());
        // Between inside hosts nothing changes.
        rig.pass(&udp(client, &client.replace(".1:", ".9:").replace("::1]", "::9]"), b"x"));
        assert_eq!(rig.stage.nat_ports(), 3);
        rig.wait(10_000);
        assert_eq!((rig.stage.nat_ports(), rig.stage.len()), (0, 0));
    }
}

#[test]
fn both_directions_of_a_translated_flow_live_as_long_as_one_has_packets() {
    let mut rig = translated(1024..=65_535);
    let (client, server, outside) = ("10.0.0.1:5000", "198.51.100.1:80", "192.0.2.1:5000");
    rig.send(&udp(client, server, b"x")).unwrap();
    rig.send(&udp(server, outside, b"x")).unwrap();
    for _ in 0..40 {
        rig.wait(200);
        rig.send(&udp(client, server, b"x")).unwrap();
    }
    rig.expect(&udp(server, outside, b"x"), &udp(server, client, b"x"));
    rig.wait(302);
    assert!(rig.stage.is_empty());
    let ended = rig.stage.take_ended(9);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].flow.packets, [41, 2]);
    assert_eq!(ended[0].flow.reply.destination, end(outside));
}

#[test]
fn ports_run_out_by_name_and_are_used_again_when_their_flow_has_ended() {
    let mut rig = translated(2000..=2009);
    let from = |i: u16| udp(&format!("10.0.0.{}:{}", 1 + i, 100 + i), "198.51.100.1:53", b"x");
    let mut open = |i: u16| {
        let outside = ends(&rig.send(&from(i)).unwrap()).1;
        rig.send(&udp("198.51.100.1:53", &endpoint_text(outside), b"x")).unwrap();
        outside.port
    };
    let given: HashSet<u16> = (0..10).map(&mut open).collect();
    assert_eq!(given, (2000..=2009).collect());
    rig.refuse(&from(10), DropReason::FlowNoPort);
    rig.send(&from(3)).unwrap();
    assert_eq!(rig.stage.counts().refused_nat_exhausted, 1);
    rig.wait(302);
    rig.send(&from(10)).unwrap();
    assert_eq!(rig.stage.nat_ports(), 1);
    // A flow from outside that answers would be taken for has its port to itself.
    let mut rig = translated(2000..=2001);
    rig.pass(&udp("198.51.100.1:53", "192.0.2.1:2000", b"x"));
    for i in 0..20 {
        let out = rig.send(&from(i));
        assert!(out.is_err() || ends(&out.unwrap()).1.port == 2001);
    }
    let mut gre = from(1);
    gre[23] = 47;
    rig.refuse(&gre, DropReason::FlowNoPort);
    let mut timestamp = from(1);
    (timestamp[23], timestamp[34]) = (1, 13);
    rig.refuse(&timestamp, DropReason::FlowNoPort);
    assert_eq!(rig.stage.counts().refused_nat_impossible, 2);
}

#[test]
fn errors_about_translated_flows_are_translated_inside_and_out() {
    for (client, server, outside, router) in [
        ("10.0.0.1:5000", "198.51.100.1:80", "192.0.2.1:5000", "203.0.113.9:0"),
        ("[fd00::1]:5000", "[2001:db8:1::1]:80", "[2001:db8::1]:5000", "[2001:db8:9::9]:0"),
    ] {
        for quoted in [64, 1000] {
            let mut rig = translated(1024..=65_535);
            let sent = udp(client, server, b"payload of some length, odd");
            let out = rig.send(&sent).unwrap();
            // With an answer the flow stays.
            rig.send(&udp(server, outside, b"x")).unwrap();
            for from in [router, server] {
                let back = rig.send(&unreachable(from, outside, &out, quoted)).unwrap();
                assert!(is_whole(&back), "{from}");
                assert_eq!(back[14..], unreachable(from, client, &sent, quoted)[14..], "{from}");
            }
            let mut wrong = unreachable(router, outside, &out, quoted);
            let last = wrong.len() - 1;
            wrong[last] ^= 1;
            rig.refuse(&wrong, DropReason::FlowInvalid);
        }
    }
    // From a server behind a virtual address.
    let mut rig = balanced();
    let sent = tcp("10.1.0.1:99", VIRTUAL, SYN, (1, 0), b"");
    let out = rig.send(&sent).unwrap();
    let server = endpoint_text(ends(&out).0);
    let answer = tcp(&server, "10.1.0.1:99", SYN_ACK, (7, 2), b"");
    let seen = rig.send(&answer).unwrap();
    let back = rig.send(&unreachable(&server, "10.1.0.1:99", &out, 64)).unwrap();
    assert_eq!(back[14..], unreachable(VIRTUAL, "10.1.0.1:99", &sent, 64)[14..]);
    // From a client about what the server sent.
    let back = rig.send(&unreachable("10.1.0.1:99", VIRTUAL, &seen, 64)).unwrap();
    assert_eq!(back[14..], unreachable("10.1.0.1:99", &server, &answer, 64)[14..]);
}

#[test]
fn an_outside_address_is_for_what_inside_hosts_begin_and_for_a_port_that_is_forwarded() {
    let nat = translated(1024..=65_535).stage.settings().nat.clone();
    let (ours, inside, outside) = ("192.0.2.1:8443", "10.0.0.11:443", "198.51.100.1:5000");
    let server = Server { endpoint: end(inside), weight: 1, mac: Some([2, 0, 0, 0, 0, 11]) };
    let balancer = Balancer::new(end(ours).address, &[server]).unwrap();
    let service = Virtual { endpoint: end(ours), protocol: TCP, mac: [2; 6], balancer, check: None };
    let rules = Rules { rules: vec![], accept_others: true };
    let mut rig = Rig::new(Settings { rules, virtuals: vec![service], nat, max_flows: 100, ..Settings::default() });
    rig.expect(&tcp(outside, ours, SYN, (1, 0), b""), &tcp(outside, inside, SYN, (1, 0), b""));
    rig.expect(&tcp(inside, outside, SYN_ACK, (7, 2), b""), &tcp(ours, outside, SYN_ACK, (7, 2), b""));
    rig.expect(&tcp(outside, ours, ACK, (2, 8), b"GET"), &tcp(outside, inside, ACK, (2, 8), b"GET"));
    // Other flows of the same host leave by the same address.
    let (asks, there, as_ours) = ("10.0.0.11:6000", "198.51.100.1:80", "192.0.2.1:6000");
    rig.expect(&tcp(asks, there, SYN, (1, 0), b""), &tcp(as_ours, there, SYN, (1, 0), b""));
    rig.expect(&tcp(there, as_ours, SYN_ACK, (7, 2), b""), &tcp(there, asks, SYN_ACK, (7, 2), b""));
    // A port that is not forwarded belongs to no flow.
    let rest = tcp(outside, "192.0.2.1:8444", SYN, (1, 0), b"");
    rig.pass(&rest);
}

/// Random traffic against invariants of a switch: everything that was taken is given back.
#[test]
fn servers_ports_and_places_are_conserved_under_random_traffic() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let nat = translated(3000..=3100).stage.settings().nat.clone();
    let service = balanced().stage.settings().virtuals.clone();
    let rules = Rules { rules: vec![], accept_others: true };
    let settings = Settings { rules, nat, virtuals: service, max_flows: 150, ..Settings::default() };
    let mut rig = Rig::new(settings);
    for round in 0..3000 {
        let frames: Vec<_> = (0..rng.below(32))
            .map(|_| {
                let inside = format!("10.0.0.{}:{}", 1 + rng.below(4), 3000 + rng.below(40));
                let outside = ["198.51.100.1:80", "198.51.100.2:99", "192.0.2.1:3005"][rng.below(3) as usize];
                let server = ["10.0.0.11:80", "10.0.0.12:8080"][rng.below(2) as usize];
                let ours = format!("192.0.2.1:{}", 3000 + rng.below(110));
                let (from, to) = match rng.below(4) {
                    0 => (inside.as_str(), outside),
                    1 => (outside, ours.as_str()),
                    2 => (inside.as_str(), VIRTUAL),
                    _ => (server, inside.as_str()),
                };
                match rng.below(3) {
                    0 => udp(from, to, b"x"),
                    _ => {
                        let flags = [SYN, SYN_ACK, ACK, 17, RST][rng.below(5) as usize];
                        tcp(from, to, flags, (rng.below(3) as u32, rng.below(3) as u32), b"")
                    }
                }
            })
            .collect();
        for frame in rig.burst(&frames).into_iter().flatten() {
            assert!(is_whole(&frame), "seed {seed}");
        }
        rig.now += rng.below(3);
        if rng.below(4) == 0 {
            rig.stage.scan(rig.now, 1 << rng.below(12));
        }
        if rng.below(50) == 0 {
            let odd = rng.below(2) == 0;
            rig.stage.flush(0, usize::MAX, |ends| ends.original.source.port % 2 == u16::from(odd));
        }
        if round % 100 == 0 {
            let flows = rig.stage.balancer(VirtualId(0)).unwrap().members().map(|m| m.flows).sum::<u64>();
            let all = rig.stage.len() as u64;
            assert!(flows + rig.stage.nat_ports() <= all && all <= 150, "seed {seed}");
        }
    }
    let counts = rig.stage.counts();
    assert!(counts.balanced > 100 && counts.translated > 100 && counts.evicted > 0, "seed {seed}: {counts:?}");
    rig.wait(16_000);
    rig.wait(2);
    let flows = rig.stage.balancer(VirtualId(0)).unwrap().members().map(|m| m.flows).sum::<u64>();
    assert_eq!((rig.stage.len(), rig.stage.nat_ports(), flows, rig.stage.table().1), (0, 0, 0, 0), "seed {seed}");
    let counts = rig.stage.counts();
    let ended = counts.expired + counts.reopened + counts.flushed + counts.unreachable + counts.evicted;
    assert_eq!(counts.begun, ended, "seed {seed}");
}

fn any_end(v4: bool) -> impl Strategy<Value = Endpoint> {
    (any::<u128>(), 1..=u16::MAX).prop_map(move |(bits, port)| {
        let address = if v4 { Address::v4((bits as u32).to_be_bytes()) } else { Address(bits | 1 << 127) };
        Endpoint { address, port }
    })
}

/// The fast reader of packets says what the other does, or nothing.
fn agrees(frame: &[u8]) {
    let Some(usual) = packet::usual(frame, 12) else { return };
    let headers = parse(frame, 12).unwrap();
    let key = Keys::short(usual.source, usual.destination, usual.protocol, 0);
    assert_eq!((key, usual.brief), (Keys::new().key(&headers.tuple), packet::Brief::from(&headers)));
}

proptest! {
    #[test]
    fn a_rewritten_packet_has_right_checksums_and_a_wrong_one_stays_wrong(
        v4 in any::<bool>(),
        kind in 0..3,
        ends in any::<bool>().prop_flat_map(|v4| (Just(v4), [any_end(v4), any_end(v4), any_end(v4), any_end(v4)])),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        damage in any::<prop::sample::Index>(),
    ) {
        let _ = v4;
        let (_, [a, b, c, d]) = ends;
        let text = endpoint_text;
        let zero = |end: Endpoint| Endpoint { port: 0, ..end };
        let (frame, new) = match kind {
            0 => (tcp(&text(a), &text(b), ACK, (7, 9), &payload), (c, d)),
            1 => (udp(&text(a), &text(b), &payload), (c, d)),
            _ => (echo(&text(a), &text(zero(b)), &payload), (c, zero(d))),
        };
        let headers = parse(&frame, 12).unwrap();
        let new = Tuple { source: new.0, destination: new.1, ..headers.tuple };
        let mut out = frame.clone();
        rewrite(&mut out, &headers, &new);
        prop_assert!(is_whole(&out));
        prop_assert_eq!(parse(&out, 12).unwrap().tuple, new);
        // Back again it is what it was.
        rewrite(&mut out, &headers, &headers.tuple);
        prop_assert_eq!(&out, &frame);
        let mut wrong = frame;
        let at = usize::from(headers.transport) + if kind == 0 { 20 } else { 8 };
        if let Some(n) = wrong.len().checked_sub(at).filter(|&n| n > 0) {
            wrong[at + damage.index(n)] ^= 1;
            rewrite(&mut wrong, &headers, &new);
            prop_assert!(!is_whole(&wrong));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 14..120),
        kind in 0..6usize,
        protocol in prop::sample::select(vec![1u8, 6, 17, 58, 44, 0]),
    ) {
        let base = [tcp(C, S, SYN, (1, 2), b"x"), echo(C, "10.0.0.9:0", b"x"), udp("[fd00::1]:1", "[fd00::2]:2", b"abc")];
        if let Some(base) = base.get(kind) {
            let n = base.len().min(bytes.len()).min(14 + kind * 7 + 20);
            bytes[..n].copy_from_slice(&base[..n]);
            let at = if kind == 2 { 20 } else { 23 };
            if let Some(place) = bytes.get_mut(at) {
                *place = protocol;
            }
        }
        let mut rig = translated(1..=65_535);
        let _ = rig.send(&bytes);
        let about = unreachable("198.51.100.1:0", "192.0.2.1:0", &bytes, 100);
        let _ = rig.send(&about);
        agrees(&bytes);
        agrees(&base[kind % 3]);
    }
}

fn balancer(address: &str, servers: &[&str]) -> Balancer {
    let servers: Vec<Server> = servers.iter().map(|text| server(text, 1, Some([2, 0, 0, 0, 0, 11]))).collect();
    Balancer::new(end(address).address, &servers).unwrap()
}

fn services(of: &[(&str, &[&str])]) -> Rig {
    let service = |(address, servers): &(&str, &[&str])| Virtual {
        endpoint: end(address),
        protocol: packet::UDP,
        mac: [2; 6],
        balancer: balancer(address, servers),
        check: None,
    };
    let virtuals = of.iter().map(service).collect();
    let rules = Rules { rules: vec![], accept_others: true };
    Rig::new(Settings { rules, virtuals, max_flows: 100, ..Settings::default() })
}

#[test]
fn a_server_that_spoke_first_does_not_hold_up_what_its_client_begins() {
    let (address, client) = ("10.0.0.100:53", "10.1.0.1:5000");
    let mut rig = services(&[(address, &["10.0.0.11:53"])]);
    rig.pass(&udp("10.0.0.11:53", client, b"x"));
    assert!(rig.send(&udp(client, address, b"x")).is_ok());
    rig.expect(&udp("10.0.0.11:53", client, b"x"), &udp(address, client, b"x"));
    assert_eq!((rig.stage.len(), rig.stage.counts().reopened, rig.stage.counts().refused_server_taken), (1, 1, 0));
    // A flow of both is no way to a server that can be told apart.
    let mut rig = services(&[(address, &["10.0.0.11:53"])]);
    rig.pass(&udp("10.0.0.11:53", client, b"x"));
    rig.pass(&udp(client, "10.0.0.11:53", b"x"));
    rig.refuse(&udp(client, address, b"x"), DropReason::FlowNoServer);
    rig.pass(&udp("10.0.0.11:53", client, b"x"));
    let counts = rig.stage.counts();
    assert_eq!((counts.refused_server_taken, counts.refused_nat_taken, rig.stage.len()), (1, 0, 1));
}

#[test]
fn two_virtual_addresses_of_a_server_are_two_servers_to_one_client_if_there_are_two() {
    let (first, second, client) = ("10.0.0.100:53", "10.0.0.101:53", "10.1.0.1:5000");
    let mut rig = services(&[(first, &["10.0.0.11:53"]), (second, &["10.0.0.11:53"])]);
    assert!(rig.send(&udp(client, first, b"x")).is_ok());
    rig.refuse(&udp(client, second, b"x"), DropReason::FlowNoServer);
    assert_eq!(rig.stage.counts().refused_server_taken, 1);
    let mut rig = services(&[(first, &["10.0.0.11:53"]), (second, &["10.0.0.11:53", "10.0.0.12:53"])]);
    for port in 5000..5030 {
        let client = format!("10.1.0.1:{port}");
        assert!(rig.send(&udp(&client, first, b"x")).is_ok());
        let frame = rig.send(&udp(&client, second, b"x"));
        // Eight places, each the taken server's with one half.
        assert!(frame.is_err() || ends(&frame.unwrap()).0 == end("10.0.0.12:53"));
    }
    assert!(rig.stage.counts().refused_server_taken < 5);
}

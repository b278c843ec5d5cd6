//! A gateway between names inside and prefixes outside, frame by frame.

use crate::common::frames::{arp, solicitation};
use crate::common::{HOST_1, HOST_2, OUTSIDE_3, Rig, TRUNK_8, ethernet, mac, mac_bytes};
use dataplane::assembly::{BuildError, PortSpec, Settings, build};
use dataplane::counters::DropReason;
use dataplane::flow::nat::NatSettings;
use dataplane::flow::rules::{Rule, Rules};
use dataplane::flow::{self, Flows};
use dataplane::gateway::{Hop, Outside, Route, Settings as Gateway};
use dataplane::links::lldp::{Ear, Own};
use dataplane::port::Role;
use dataplane::shim;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket};
use fib::action::PortId;
use fib::name::NameKind;
use fib::replica::Exact;
use fib::text::address::AnyPrefix;
use lookup::testkit;
use std::net::IpAddr;
use std::time::Instant;

const GATEWAY: u64 = 0xfe;
const HOST: u64 = 1;
const FAR_HOST: u64 = 8;
const ROUTER: u64 = 0x99;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn route(prefix: &str, len: u8, hop: Hop) -> Route {
    Route { prefix: AnyPrefix::of(ip(prefix), len), hop }
}

fn settings() -> Gateway {
    let via = |via: &str| Hop::Outside { port: PortId(OUTSIDE_3), via: Some(ip(via)) };
    Gateway {
        mac: mac_bytes(GATEWAY),
        port: PortId(100),
        addresses: vec![ip("10.0.0.254"), ip("fd00::fe")],
        outside: vec![Outside {
            port: PortId(OUTSIDE_3),
            addresses: vec![(ip("192.0.2.1"), 24), (ip("2001:db8::1"), 64)],
        }],
        routes: vec![
            route("10.0.0.0", 8, Hop::Inside),
            route("fd00::", 16, Hop::Inside),
            route("0.0.0.0", 0, via("192.0.2.99")),
            route("::", 0, via("2001:db8::99")),
            route("198.51.100.0", 24, Hop::Discard),
        ],
    }
}

/// Two hosts, at port 1 and behind trunk 8, and the gateway's own name.
fn rig() -> Rig {
    rig_with(None)
}

fn rig_with(flows: Option<Flows>) -> Rig {
    let gateway = Some(settings());
    let mut rig = Rig::with_settings(NameKind::Mac, &Settings { gateway, flows, ..Settings::default() });
    for (host, address, value) in [(HOST, "10.0.0.1", 1), (FAR_HOST, "10.0.0.8", 3), (GATEWAY, "10.0.0.254", 5)] {
        rig.add(&mac(host), value);
        rig.writer.valid().put(mac(host), Some(ip(address)));
    }
    rig.writer.local().put(mac(GATEWAY), PortId(100));
    rig
}

fn udp(from: (u64, &str), to: (u64, &str), ttl: u8) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(mac_bytes(from.0), mac_bytes(to.0));
    let octets = |text: &str| match ip(text) {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (source, destination) = (octets(from.1), octets(to.1));
    let builder = match (<[u8; 4]>::try_from(&source[..]), <[u8; 4]>::try_from(&destination[..])) {
        (Ok(source), Ok(destination)) => builder.ipv4(source, destination, ttl),
        _ => builder.ipv6(source.try_into().unwrap(), destination.try_into().unwrap(), ttl),
    };
    let mut frame = vec![];
    builder.udp(4000, 4000).write(&mut frame, b"payload").unwrap();
    frame
}

fn shimmed(frame: &[u8], hops: u8) -> Vec<u8> {
    [&frame[..12], &shim::ETHER_TYPE, &[hops, 0], &frame[12..]].concat()
}

/// An ARP reply, or a neighbour advertisement, of the router outside to the gateway.
fn told(router: &str) -> Vec<u8> {
    match ip(router) {
        IpAddr::V4(router) => {
            let mut reply = arp(2, (ROUTER, router.octets()), [192, 0, 2, 1]);
            reply[..6].copy_from_slice(&mac_bytes(GATEWAY));
            reply
        }
        IpAddr::V6(router) => {
            let mut body = vec![0x60, 0, 0, 0];
            body.extend(router.octets());
            let mut frame = vec![];
            PacketBuilder::ethernet2(mac_bytes(ROUTER), mac_bytes(GATEWAY))
                .ipv6(router.octets(), "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets(), 255)
                .icmpv6_raw(136, 0, body[..4].try_into().unwrap())
                .write(&mut frame, &router.octets())
                .unwrap();
            frame
        }
    }
}

/// The frame as the next link sees it: other addresses, one hop less, and checksums that a receiver accepts.
fn hop_further(frame: &[u8], source: u64, destination: u64) -> Vec<u8> {
    let mut further = frame.to_vec();
    further[..6].copy_from_slice(&mac_bytes(destination));
    further[6..12].copy_from_slice(&mac_bytes(source));
    if frame[12] == 8 {
        further[14 + 8] -= 1;
        let parsed = etherparse::Ipv4HeaderSlice::from_slice(&further[14..]).unwrap().to_header();
        further[24..26].copy_from_slice(&parsed.calc_header_checksum().to_be_bytes());
    } else {
        further[14 + 7] -= 1;
    }
    further
}

fn dropped(rig: &mut Rig, port: u16, frame: &[u8]) -> DropReason {
    let before = rig.counts();
    // Its sender may be told, or asked for.
    let is_of_gateway =
        |frame: &[u8]| icmp_error(frame).is_some() || frame[12..14] == [8, 6] || frame[54..].first() == Some(&135);
    let out = rig.exchange(port, frame);
    assert!(out.iter().all(|(_, frame)| is_of_gateway(frame)), "{out:?}");
    let after = rig.counts();
    let mut reasons = DropReason::ALL.iter().filter(|&&why| after.dropped(why) != before.dropped(why));
    let reason = *reasons.next().unwrap();
    assert_eq!(reasons.next(), None);
    reason
}

#[test]
fn the_first_packet_asks_for_the_next_hop_and_those_after_the_answer_go_there() {
    for (host, far, router) in [("10.0.0.1", "203.0.113.5", "192.0.2.99"), ("fd00::1", "2001:db9::5", "2001:db8::99")] {
        let mut rig = rig();
        let frame = udp((HOST, host), (GATEWAY, far), 64);
        let out = rig.exchange(HOST_1, &frame);
        let [(OUTSIDE_3, question)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(question[6..12], mac_bytes(GATEWAY));
        assert_eq!((rig.counts().dropped(DropReason::NoNeighbour), rig.counts().originated), (1, 1));
        if question[12..14] == [8, 6] {
            assert_eq!((&question[..6], &question[38..42]), (&[0xff; 6][..], &[192, 0, 2, 99][..]));
        } else {
            let parsed = SlicedPacket::from_ethernet(question).unwrap();
            let Some(NetSlice::Ipv6(ip)) = &parsed.net else { panic!() };
            assert_eq!(ip.header().destination_addr(), "ff02::1:ff00:99".parse::<std::net::Ipv6Addr>().unwrap());
        }
        assert_eq!(dropped(&mut rig, HOST_1, &frame), DropReason::NoNeighbour, "and asks once a second");
        assert_eq!(dropped(&mut rig, OUTSIDE_3, &told(router)), DropReason::NeighbourLearnt);
        let further = hop_further(&frame, GATEWAY, ROUTER);
        assert_eq!(rig.exchange(HOST_1, &frame), [(OUTSIDE_3, further.clone())]);
        assert_eq!(rig.exchange(TRUNK_8, &shimmed(&frame, 3)), [(OUTSIDE_3, further)], "without its shim");
        assert_eq!(dropped(&mut rig, TRUNK_8, &shimmed(&frame, 0)), DropReason::HopLimit);
    }
}

#[test]
fn packets_from_outside_reach_hosts_by_name_and_no_others() {
    let mut rig = rig();
    let from = (ROUTER, "203.0.113.5");
    let frame = udp(from, (GATEWAY, "10.0.0.1"), 2);
    assert_eq!(rig.exchange(OUTSIDE_3, &frame), [(HOST_1, hop_further(&frame, GATEWAY, HOST))]);
    let far = udp(from, (GATEWAY, "10.0.0.8"), 64);
    let expected = shimmed(&hop_further(&far, GATEWAY, FAR_HOST), shim::INITIAL_HOPS);
    assert_eq!(rig.exchange(OUTSIDE_3, &far), [(TRUNK_8, expected)]);

    let to = |address| udp(from, (GATEWAY, address), 64);
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &to("10.0.0.77")), DropReason::Alien);
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &udp(from, (HOST, "10.0.0.1"), 64)), DropReason::NotForGateway);
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &udp(from, (GATEWAY, "10.0.0.1"), 1)), DropReason::TtlExpired);
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &to("198.51.100.1")), DropReason::NoRoute);
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &to("203.0.113.9")), DropReason::InputPort, "outside to outside");
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &to("127.0.0.1")), DropReason::NotRoutable);
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &to("192.0.2.1")), DropReason::NotRoutable, "to the gateway, no echo");
    let mut damaged = frame.clone();
    damaged[20] ^= 1;
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &damaged), DropReason::BadHeader);

    rig.writer.valid().remove(&mac(HOST));
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &frame), DropReason::Alien, "a name that is gone, at once");
    rig.writer.valid().put(mac(HOST), None);
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &frame), DropReason::Alien, "a name without the address");
}

#[test]
fn routes_that_are_replaced_hold_from_the_next_burst_on_and_neighbours_stay() {
    let mut rig = rig();
    let frame = udp((HOST, "10.0.0.1"), (GATEWAY, "198.51.100.1"), 64);
    assert_eq!(dropped(&mut rig, HOST_1, &frame), DropReason::NoRoute);
    rig.exchange(HOST_1, &udp((HOST, "10.0.0.1"), (GATEWAY, "203.0.113.5"), 64));
    dropped(&mut rig, OUTSIDE_3, &told("192.0.2.99"));
    let mut changed = settings();
    let via = Hop::Outside { port: PortId(OUTSIDE_3), via: Some(ip("192.0.2.99")) };
    changed.routes = vec![route("10.0.0.0", 8, Hop::Inside), route("198.51.100.0", 24, via)];
    rig.monitor.reroute(&changed).unwrap();
    assert_eq!(rig.exchange(HOST_1, &frame), [(OUTSIDE_3, hop_further(&frame, GATEWAY, ROUTER))]);
    let to_default = udp((HOST, "10.0.0.1"), (GATEWAY, "203.0.113.5"), 64);
    assert_eq!(dropped(&mut rig, HOST_1, &to_default), DropReason::NoRoute, "the default route is gone");
}

#[test]
fn a_host_reaches_another_by_its_address_through_the_gateway() {
    let mut rig = rig();
    let frame = udp((FAR_HOST, "10.0.0.8"), (GATEWAY, "10.0.0.1"), 64);
    assert_eq!(rig.exchange(TRUNK_8, &shimmed(&frame, 9)), [(HOST_1, hop_further(&frame, GATEWAY, HOST))]);
    let back = udp((HOST, "10.0.0.1"), (GATEWAY, "10.0.0.8"), 64);
    let expected = shimmed(&hop_further(&back, GATEWAY, FAR_HOST), shim::INITIAL_HOPS);
    assert_eq!(rig.exchange(HOST_1, &back), [(TRUNK_8, expected)]);
    let itself = udp((HOST, "10.0.0.1"), (GATEWAY, "10.0.0.254"), 64);
    assert_eq!(dropped(&mut rig, HOST_1, &itself), DropReason::NotRoutable);
    // Without the local name the gateway is not here, whatever the FIB says.
    rig.writer.local().remove(&mac(GATEWAY));
    assert_eq!(dropped(&mut rig, HOST_1, &back), DropReason::NotLocal);
}

#[test]
fn the_gateway_answers_for_its_own_addresses_and_no_others() {
    let mut rig = rig();
    let request = arp(1, (ROUTER, [192, 0, 2, 99]), [192, 0, 2, 1]);
    for to in [[0xff; 6], mac_bytes(GATEWAY)] {
        let mut request = request.clone();
        request[..6].copy_from_slice(&to);
        let out = rig.exchange(OUTSIDE_3, &request);
        let [(OUTSIDE_3, reply)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((&reply[..6], reply[21]), (&mac_bytes(ROUTER)[..], 2));
        assert_eq!(reply[22..28], mac_bytes(GATEWAY));
    }
    let of_a_host = arp(1, (ROUTER, [192, 0, 2, 99]), [10, 0, 0, 1]);
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &of_a_host), DropReason::ArpUnknown);
    let asker = "2001:db8::99".parse().unwrap();
    let out = rig.exchange(OUTSIDE_3, &solicitation(ROUTER, asker, "2001:db8::1".parse().unwrap()));
    assert!(matches!(&out[..], [(OUTSIDE_3, frame)] if frame[54] == 136), "{out:?}");

    // A host that checks on the gateway, by its name: the answer goes back by the host's.
    let mut unicast = arp(1, (FAR_HOST, [10, 0, 0, 8]), [10, 0, 0, 254]);
    unicast[..6].copy_from_slice(&mac_bytes(GATEWAY));
    let out = rig.exchange(TRUNK_8, &shimmed(&unicast, 9));
    assert!(matches!(&out[..], [(TRUNK_8, frame)] if frame[..6] == mac_bytes(FAR_HOST)[..]), "{out:?}");
}

#[test]
fn pings_to_the_gateway_are_answered_inside_and_outside() {
    let mut rig = rig();
    let ping = |from: (u64, [u8; 4]), to: [u8; 4]| {
        let mut frame = vec![];
        PacketBuilder::ethernet2(mac_bytes(from.0), mac_bytes(GATEWAY))
            .ipv4(from.1, to, 5)
            .icmpv4_echo_request(7, 9)
            .write(&mut frame, b"abc")
            .unwrap();
        frame
    };
    let out = rig.exchange(TRUNK_8, &shimmed(&ping((FAR_HOST, [10, 0, 0, 8]), [10, 0, 0, 254]), 9));
    assert!(matches!(&out[..], [(TRUNK_8, frame)] if frame[..6] == mac_bytes(FAR_HOST)[..]), "{out:?}");
    let (_, question) = rig.exchange(OUTSIDE_3, &ping((ROUTER, [192, 0, 2, 99]), [192, 0, 2, 1])).pop().unwrap();
    assert_eq!(question[12..14], [8, 6]);
    dropped(&mut rig, OUTSIDE_3, &told("192.0.2.99"));
    let out = rig.exchange(OUTSIDE_3, &ping((ROUTER, [192, 0, 2, 99]), [192, 0, 2, 1]));
    let [(OUTSIDE_3, answer)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((&answer[..6], &answer[26..34]), (&mac_bytes(ROUTER)[..], &[192, 0, 2, 1, 192, 0, 2, 99][..]));
    assert_eq!((answer[22], answer[34], &answer[42..]), (64, 0, &b"abc"[..]));
}

#[test]
fn what_nobody_asked_for_is_not_learnt_and_a_learnt_address_follows_its_owner() {
    let mut rig = rig();
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &told("192.0.2.99")), DropReason::ArpUnknown);
    let frame = udp((HOST, "10.0.0.1"), (GATEWAY, "203.0.113.5"), 64);
    rig.exchange(HOST_1, &frame);
    dropped(&mut rig, OUTSIDE_3, &told("192.0.2.99"));
    let mut moved = told("192.0.2.99");
    for at in [6, 22] {
        moved[at..at + 6].copy_from_slice(&mac_bytes(0x98));
    }
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &moved), DropReason::NeighbourLearnt);
    assert_eq!(rig.exchange(HOST_1, &frame), [(OUTSIDE_3, hop_further(&frame, GATEWAY, 0x98))]);
    let mut liar = told("192.0.2.99");
    liar[6..12].copy_from_slice(&mac_bytes(0x97));
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &liar), DropReason::ArpUnknown, "the frame and what it says differ");
}

#[test]
fn a_gateway_that_translates_lets_answers_in_and_nothing_else() {
    let nat = NatSettings {
        inside: vec!["10.0.0.0/8".parse().unwrap()],
        addresses: vec![ip("192.0.2.1").into()],
        ports: 1024..=65535,
        mac: mac_bytes(GATEWAY),
    };
    // What begins outside begins nothing.
    let from = |in_port, accept| Rule { in_port: Some(PortId(in_port)), accept, ..Rule::default() };
    let rules = Rules { rules: vec![from(OUTSIDE_3, false)], accept_others: true };
    let flows = flow::Settings { nat: Some(nat), rules, max_flows: 1000, ..flow::Settings::default() };
    let mut rig = rig_with(Some(Flows::new(flows, 1).unwrap()));
    for (port, frame) in [
        (HOST_1, udp((HOST, "10.0.0.1"), (GATEWAY, "203.0.113.5"), 64)),
        (TRUNK_8, shimmed(&udp((FAR_HOST, "10.0.0.8"), (GATEWAY, "203.0.113.5"), 64), 9)),
    ] {
        rig.exchange(port, &frame);
        rig.exchange(OUTSIDE_3, &told("192.0.2.99"));
        for _ in 0..3 {
            let out = rig.exchange(port, &frame);
            let [(OUTSIDE_3, sent)] = &out[..] else { panic!("{out:?}") };
            assert_eq!((&sent[..6], &sent[26..34]), (&mac_bytes(ROUTER)[..], &[192, 0, 2, 1, 203, 0, 113, 5][..]));
            let outside_port = u16::from_be_bytes([sent[34], sent[35]]);
            let mut answer = vec![];
            PacketBuilder::ethernet2(mac_bytes(ROUTER), mac_bytes(GATEWAY))
                .ipv4([203, 0, 113, 5], [192, 0, 2, 1], 7)
                .udp(4000, outside_port)
                .write(&mut answer, b"answer")
                .unwrap();
            let out = rig.exchange(OUTSIDE_3, &answer);
            let [(back, got)] = &out[..] else { panic!("{out:?}") };
            let at = if *back == TRUNK_8 { 4 } else { 0 };
            assert_eq!((*back, &got[..6], &got[30 + at..34 + at]), (port, &frame[6..12], &frame[26 + at..30 + at]));
        }
    }
    let stranger = udp((ROUTER, "203.0.113.6"), (GATEWAY, "192.0.2.1"), 64);
    assert_eq!(dropped(&mut rig, OUTSIDE_3, &stranger), DropReason::FlowRefused);
}

#[test]
fn a_burst_of_all_sorts_is_accounted_for_and_keeps_its_order() {
    let mut rig = rig();
    let frame = udp((HOST, "10.0.0.1"), (GATEWAY, "203.0.113.5"), 64);
    rig.exchange(HOST_1, &frame);
    dropped(&mut rig, OUTSIDE_3, &told("192.0.2.99"));
    let direct = ethernet(mac_bytes(FAR_HOST), mac_bytes(HOST), 0x88b6, &[7; 50]);
    let (mut expected_outside, mut expected_trunk) = (vec![], vec![]);
    for i in 0..32u8 {
        let mut frame = if i % 3 == 0 { direct.clone() } else { frame.clone() };
        *frame.last_mut().unwrap() = i;
        if i % 3 == 0 {
            expected_trunk.push(shimmed(&frame, shim::INITIAL_HOPS));
        } else {
            expected_outside.push(hop_further(&frame, GATEWAY, ROUTER));
        }
        rig.send(HOST_1, &frame);
    }
    let out = rig.run();
    let of = |port| out.iter().filter(|(id, _)| *id == port).map(|(_, frame)| frame.clone()).collect::<Vec<_>>();
    assert_eq!((of(OUTSIDE_3), of(TRUNK_8)), (expected_outside, expected_trunk));
}

#[test]
fn no_frame_makes_a_gateway_fall() {
    let seed = testkit::seed();
    let mut random = testkit::Rng::new(seed);
    let mut rig = rig();
    let ipv4 = udp((ROUTER, "203.0.113.5"), (GATEWAY, "10.0.0.1"), 64);
    let ipv6 = udp((ROUTER, "2001:db9::5"), (GATEWAY, "fd00::1"), 64);
    let mut base = vec![ipv4, ipv6, told("192.0.2.99"), told("2001:db8::99")];
    base.push(arp(1, (ROUTER, [192, 0, 2, 99]), [192, 0, 2, 1]));
    for round in 0..20_000 {
        let mut frame = base[round % base.len()].clone();
        for _ in 0..random.below(4) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = random.next_u64() as u8;
        }
        frame.truncate(frame.len() - random.below(frame.len() as u64 / 2) as usize * (round / 7 % 2));
        let port = [HOST_1, HOST_2, OUTSIDE_3][round % 3];
        rig.exchange(port, &frame);
    }
}

#[test]
fn gateways_that_do_not_fit_their_ports_are_refused() {
    let device = |id, role| {
        let (near, _) = netio::backend::loopback::pair("near", "far", &Default::default()).unwrap();
        PortSpec::new(id, role, near)
    };
    let refused = |gateway, ports: Vec<PortSpec>| {
        let settings = Settings { gateway, ..Settings::default() };
        build::<dataplane::table::FibTable>(&settings, ports).map(drop).unwrap_err()
    };
    assert!(matches!(refused(None, vec![device(3, Role::Outside)]), BuildError::Outside(PortId(3))));
    assert!(matches!(refused(Some(settings()), vec![]), BuildError::Outside(PortId(3))));
    let taken = vec![device(3, Role::Outside), device(100, Role::Host)];
    assert!(matches!(refused(Some(settings()), taken), BuildError::GatewayPort(PortId(100))));
}

/// At hosts, at trunks and outside, whatever else is done with frames there.
#[test]
fn lldp_is_heard_at_every_port_that_listens_and_goes_no_further() {
    let flows = || Flows::new(flow::Settings::default(), 1).unwrap();
    for mut rig in [rig(), rig_with(Some(flows()))] {
        let source = mac_bytes(0x777);
        let (switch, device) = ("foreign".to_owned(), "eth1".to_owned());
        let frame = Own { switch, source, port: PortId(1), role: "host", device, address: None }.encode(121, None);
        let expected = [(HOST_1, DropReason::LinkLocal), (OUTSIDE_3, DropReason::NoName)];
        for (port, reason) in expected {
            rig.assert_dropped(port, &frame, reason);
        }
        let ears = rig.monitor.ports().map(|(index, ..)| (index, Ear::new(Default::default(), Instant::now())));
        rig.monitor.links().lldp().listen(ears.collect());
        let before = rig.counts();
        for port in [HOST_1, HOST_2, TRUNK_8, OUTSIDE_3] {
            assert_eq!(rig.exchange(port, &frame), []);
        }
        assert_eq!((rig.counts().hellos - before.hellos, rig.counts().dropped_total()), (4, before.dropped_total()));
        let heard = rig.monitor.links().lldp().take_heard();
        let heard: Vec<_> = heard.iter().map(|(index, said)| (*index, said.name.as_deref())).collect();
        assert_eq!(heard, [0, 1, 2, 4].map(|index| (index, Some("foreign"))));
    }
}

/// An error of ICMP: its type and code, the word after its checksum, its source and destination, and what it quotes.
#[derive(Debug, PartialEq)]
struct IcmpError {
    kind: [u8; 2],
    word: u32,
    source: IpAddr,
    destination: IpAddr,
    quote: Vec<u8>,
}

/// Reads an error, and checks it as a receiver does.
fn icmp_error(frame: &[u8]) -> Option<IcmpError> {
    let parsed = SlicedPacket::from_ethernet(frame).ok()?;
    let (source, destination, message) = match (parsed.net?, parsed.transport?) {
        (NetSlice::Ipv4(ip), etherparse::TransportSlice::Icmpv4(icmp)) => {
            let header = ip.header();
            assert_eq!(header.to_header().calc_header_checksum(), header.header_checksum());
            assert!(icmp.is_checksum_valid() && ip.header().total_len() <= 576);
            (header.source_addr().into(), header.destination_addr().into(), icmp.slice().to_vec())
        }
        (NetSlice::Ipv6(ip), etherparse::TransportSlice::Icmpv6(icmp)) => {
            let header = ip.header();
            assert!(icmp.is_checksum_valid(header.source(), header.destination()) && frame.len() <= 14 + 1280);
            (header.source_addr().into(), header.destination_addr().into(), icmp.slice().to_vec())
        }
        _ => return None,
    };
    let is_error = if frame[12] == 8 { matches!(message[0], 3 | 11) } else { message[0] < 128 };
    let word = u32::from_be_bytes(message[4..8].try_into().unwrap());
    let kind = [message[0], message[1]];
    is_error.then(|| IcmpError { kind, word, source, destination, quote: message[8..].to_vec() })
}

trait Checked {
    fn is_checksum_valid(&self) -> bool;
}

impl Checked for etherparse::Icmpv4Slice<'_> {
    fn is_checksum_valid(&self) -> bool {
        netio::checksum::fold(netio::checksum::sum(self.slice())) == 0xffff
    }
}

/// A rig whose gateway knows both routers outside.
fn settled(flows: Option<Flows>) -> Rig {
    let mut rig = rig_with(flows);
    rig.writer.valid().put(mac(2), Some(ip("fd00::2")));
    rig.route(&mac(2), 2);
    rig.writer.local().put(mac(2), PortId(HOST_2));
    for (host, far, router) in
        [((HOST, "10.0.0.1"), "203.0.113.5", "192.0.2.99"), ((2, "fd00::2"), "2001:db9::5", "2001:db8::99")]
    {
        rig.exchange(if host.0 == HOST { HOST_1 } else { HOST_2 }, &udp(host, (GATEWAY, far), 64));
        rig.exchange(OUTSIDE_3, &told(router));
    }
    rig
}

/// Senders are told why their packets do not arrive, as RFC 1812 and RFC 4443 want it.
#[test]
fn senders_are_told_of_packets_that_the_gateway_does_not_send_on() {
    let (inside, outside) = ((HOST, "10.0.0.1"), (ROUTER, "203.0.113.5"));
    let (inside_v6, outside_v6) = ((2, "fd00::2"), (ROUTER, "2001:db9::5"));
    let to = |address| (GATEWAY, address);
    for (port, frame, reason, kind, own) in [
        (HOST_1, udp(inside, to("203.0.113.5"), 1), DropReason::TtlExpired, [11, 0], "10.0.0.254"),
        (HOST_2, udp(inside_v6, to("2001:db9::5"), 1), DropReason::TtlExpired, [3, 0], "fd00::fe"),
        (OUTSIDE_3, udp(outside, to("10.0.0.1"), 1), DropReason::TtlExpired, [11, 0], "192.0.2.1"),
        (OUTSIDE_3, udp(outside_v6, to("fd00::2"), 1), DropReason::TtlExpired, [3, 0], "2001:db8::1"),
        (HOST_1, udp(inside, to("10.0.0.77"), 9), DropReason::Alien, [3, 1], "10.0.0.254"),
        (OUTSIDE_3, udp(outside_v6, to("fd00::77"), 9), DropReason::Alien, [1, 3], "2001:db8::1"),
        (HOST_1, udp(inside, to("10.0.0.254"), 9), DropReason::NotRoutable, [3, 3], "10.0.0.254"),
        (OUTSIDE_3, udp(outside_v6, to("2001:db8::1"), 9), DropReason::NotRoutable, [1, 4], "2001:db8::1"),
    ] {
        let mut rig = settled(None);
        let before = rig.counts();
        let out = rig.exchange(port, &frame);
        let [(back, sent)] = &out[..] else { panic!("{reason:?} {out:?}") };
        let error = icmp_error(sent).unwrap();
        let (source, to_mac) = match port {
            OUTSIDE_3 => (if frame[12] == 8 { outside.1 } else { outside_v6.1 }, mac_bytes(ROUTER)),
            _ => (if frame[12] == 8 { inside.1 } else { inside_v6.1 }, frame[6..12].try_into().unwrap()),
        };
        assert_eq!((*back, &sent[..12]), (port, &[to_mac, mac_bytes(GATEWAY)].concat()[..]), "{reason:?}");
        let mut quote = frame[14..].to_vec();
        if error.quote != quote {
            // What did not arrive has passed this router.
            quote = hop_further(&frame, 0, 0)[14..].to_vec();
        }
        let expected = IcmpError { kind, word: 0, source: ip(own), destination: ip(source), quote };
        assert_eq!(error, expected, "{reason:?}");
        let after = rig.counts();
        assert_eq!(after.dropped(reason), before.dropped(reason) + 1);
        assert_eq!((after.originated, after.sent), (before.originated + 1, before.sent + 1));
    }
    // Behind a trunk as well.
    let mut rig = settled(None);
    let out = rig.exchange(TRUNK_8, &shimmed(&udp((FAR_HOST, "10.0.0.8"), to("203.0.113.5"), 1), 9));
    let [(TRUNK_8, sent)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((&sent[..6], sent[14]), (&mac_bytes(FAR_HOST)[..], shim::INITIAL_HOPS));
}

#[test]
fn a_sender_is_told_how_long_its_packets_may_be() {
    for (host, far, port, kind) in
        [((HOST, "10.0.0.1"), "203.0.113.5", HOST_1, [3, 4]), ((2, "fd00::2"), "2001:db9::5", HOST_2, [2, 0])]
    {
        let mut rig = settled(None);
        let long = |len: usize| {
            let mut frame = udp(host, (GATEWAY, far), 64);
            let headers = frame.len() - 14;
            frame.resize(14 + len, 7);
            let (at, total) = if frame[12] == 8 { (16, len) } else { (18, len - 40) };
            frame[at..at + 2].copy_from_slice(&(total as u16).to_be_bytes());
            assert!(headers < len);
            if frame[12] == 8 {
                let header = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap().to_header();
                frame[24..26].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
            }
            frame
        };
        let out = rig.exchange(port, &long(1500));
        assert!(matches!(&out[..], [(OUTSIDE_3, _)]), "{out:?}");
        let out = rig.exchange(port, &long(1501));
        let [(back, sent)] = &out[..] else { panic!("{out:?}") };
        let error = icmp_error(sent).unwrap();
        assert_eq!((*back, error.kind, error.word), (port, kind, 1500));
        let longest = if frame_is_v4(sent) { 576 } else { 1280 };
        assert_eq!((sent.len(), rig.counts().dropped(DropReason::TooBig)), (14 + longest, 1));
    }
}

fn frame_is_v4(frame: &[u8]) -> bool {
    frame[12] == 8
}

#[test]
fn there_is_no_error_about_errors_fragments_and_packets_of_nobody_or_to_many() {
    let mut rig = settled(None);
    let expiring = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = udp((HOST, "10.0.0.1"), (GATEWAY, "203.0.113.5"), 1);
        change(&mut frame);
        let header = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap().to_header();
        frame[24..26].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
        frame
    };
    let silent = |rig: &mut Rig, port, frame: &[u8], what: &str| {
        assert_eq!(rig.exchange(port, frame), [], "{what}");
    };
    for kind in [3, 4, 5, 11, 12] {
        let error = expiring(&|frame| (frame[23], frame[34]) = (1, kind));
        silent(&mut rig, HOST_1, &error, "an error of ICMP");
    }
    let ping = expiring(&|frame| (frame[23], frame[34]) = (1, 8));
    assert_eq!(rig.exchange(HOST_1, &ping).len(), 1, "another message is told of");
    let fragment = |offset: u16| expiring(&|frame| frame[20..22].copy_from_slice(&offset.to_be_bytes()));
    silent(&mut rig, HOST_1, &fragment(1), "a later fragment");
    assert_eq!(rig.exchange(HOST_1, &fragment(0x2000)).len(), 1, "the first fragment");
    for source in [[0; 4], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4], [10, 0, 0, 99]] {
        let frame = expiring(&|frame| frame[26..30].copy_from_slice(&source));
        silent(&mut rig, HOST_1, &frame, "a source that is no host");
    }
    let of_all = expiring(&|frame| {
        frame[6..12].copy_from_slice(&mac_bytes(ROUTER));
        frame[26..30].copy_from_slice(&[192, 0, 2, 255]);
    });
    silent(&mut rig, OUTSIDE_3, &of_all, "from the broadcast address of the link");
    silent(&mut rig, OUTSIDE_3, &udp((ROUTER, "203.0.113.5"), (GATEWAY, "198.51.100.1"), 9), "a route that discards");
    let mut to_group = udp((ROUTER, "203.0.113.5"), (GATEWAY, "10.0.0.1"), 1);
    to_group[..6].copy_from_slice(&[0xff; 6]);
    silent(&mut rig, OUTSIDE_3, &to_group, "a frame to many");
}

#[test]
fn errors_are_bounded_by_destination() {
    let mut rig = settled(None);
    let mut told = |host, source| {
        let frame = udp((host, source), (GATEWAY, "203.0.113.5"), 1);
        (0..500).filter(|_| rig.exchange(HOST_1, &frame).len() == 1).count()
    };
    let n = told(HOST, "10.0.0.1");
    // As many as at once, and what comes back meanwhile.
    assert!((20..400).contains(&n), "{n}");
}

#[test]
fn an_error_about_a_translated_packet_reaches_the_host_that_sent_it_with_what_it_sent() {
    let nat = NatSettings {
        inside: vec!["10.0.0.0/8".parse().unwrap()],
        addresses: vec![ip("192.0.2.1").into()],
        ports: 1024..=65535,
        mac: mac_bytes(GATEWAY),
    };
    let rules = Rules { rules: vec![], accept_others: true };
    let flows = flow::Settings { nat: Some(nat), rules, max_flows: 1000, ..flow::Settings::default() };
    let mut rig = settled(Some(Flows::new(flows, 1).unwrap()));
    let frame = udp((HOST, "10.0.0.1"), (GATEWAY, "203.0.113.5"), 1);
    let out = rig.exchange(HOST_1, &frame);
    let [(HOST_1, sent)] = &out[..] else { panic!("{out:?}") };
    let error = icmp_error(sent).unwrap();
    assert_eq!((error.kind, error.destination), ([11, 0], ip("10.0.0.1")));
    assert_eq!(error.quote[12..24], frame[26..38], "its own address and port");
    // A neighbour outside that answers nothing.
    let silent = udp((HOST, "10.0.0.1"), (GATEWAY, "192.0.2.77"), 9);
    let out = rig.exchange(HOST_1, &silent);
    assert!(matches!(&out[..], [(OUTSIDE_3, question)] if question[12..14] == [8, 6]), "{out:?}");
}

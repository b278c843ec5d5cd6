//! Hosts that ask for addresses: what they claim by it, what those gain who ask for others, and who advertises routers.

use crate::common::*;
use dataplane::assembly::PortSpec;
use dataplane::counters::DropReason;
use dataplane::dhcp;
use dataplane::shim::INITIAL_HOPS;
use dataplane::source::CheckSource;
use etherparse::PacketBuilder;
use fib::action::PortId;
use fib::replica::Exact;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// At port 1; at port 2; behind trunk 8, the server.
const HOST: u64 = 1;
const OTHER: u64 = 2;
const SERVER: u64 = 3;

const ALL: [u8; 6] = [0xff; 6];
const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;

const PER_SECOND: u32 = 1;

fn rig_with(change: impl Fn(&mut PortSpec)) -> Rig {
    let mut rig = Rig::with_ports(CheckSource::Mac, |spec| {
        spec.dhcp = dhcp::Settings { server: Some(mac_bytes(SERVER)), trusted: None, requests_per_second: PER_SECOND };
        change(spec);
    });
    for (name, value) in [(HOST, 1), (OTHER, 2), (SERVER, 3)] {
        rig.add(&mac(name), value);
    }
    rig
}

fn rig() -> Rig {
    rig_with(|_| ())
}

/// A message of `source`, in the name of `client`, that asks for 10.0.0.`asked`; if it is to one, as who has that address.
fn message(kind: u8, source: u64, to: [u8; 6], client: u64, asked: u8) -> Vec<u8> {
    let (address, is_to_all) = ([10, 0, 0, asked], to == ALL);
    let mut message = [&[1, 1, 6, 0][..], &[0; 8]].concat();
    message.extend(if is_to_all { [0; 4] } else { address });
    message.resize(28, 0);
    message.extend(mac_bytes(client));
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, kind]);
    if is_to_all {
        message.extend([50, 4]);
        message.extend(address);
    }
    message.push(255);
    let (from, to_ip) = if is_to_all { ([0; 4], [255; 4]) } else { (address, [10, 0, 0, 99]) };
    let mut frame = vec![];
    let headers = PacketBuilder::ethernet2(mac_bytes(source), to).ipv4(from, to_ip, 64);
    headers.udp(68, 67).write(&mut frame, &message).unwrap();
    frame
}

/// What was noted at ports since: the bytes of names, and addresses.
fn noted(rig: &Rig) -> Vec<([u8; 6], Option<IpAddr>)> {
    let taken = rig.monitor.learner().take(usize::MAX);
    taken.iter().map(|(_, claim)| (claim.name().try_into().unwrap(), claim.ip)).collect()
}

#[test]
fn the_address_that_a_client_asks_for_is_noted_as_one_that_arp_claims() {
    let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
    for (to, what) in [(ALL, "it has none"), (mac_bytes(SERVER), "it renews")] {
        let mut rig = rig_with(|spec| spec.dhcp.requests_per_second = 1000);
        let sent = rig.exchange(HOST_1, &message(DISCOVER, HOST, to, HOST, 7));
        assert_eq!((sent.len(), noted(&rig)), (1, vec![]), "{what}: it only looks for servers");
        assert_eq!(rig.exchange(HOST_1, &message(REQUEST, HOST, to, HOST, 7)).len(), 1);
        assert_eq!(noted(&rig), [(mac_bytes(HOST), Some(ip(7)))], "{what}");
        // What is known is not said again, and what another name has is: the controller tells the operator.
        rig.writer.valid().put(mac(HOST), Some(ip(8)));
        rig.writer.valid().put(mac(OTHER), Some(ip(9)));
        rig.exchange(HOST_1, &message(REQUEST, HOST, to, HOST, 8));
        assert_eq!(noted(&rig), [], "{what}");
        rig.exchange(HOST_1, &message(REQUEST, HOST, to, HOST, 9));
        assert_eq!(noted(&rig), [(mac_bytes(HOST), Some(ip(9)))], "{what}");
        // In the name of another, nothing is claimed and nothing asked.
        rig.assert_dropped(HOST_1, &message(REQUEST, HOST, to, OTHER, 10), DropReason::Dhcp);
        assert_eq!(noted(&rig), []);
        // One that is not known here yet.
        rig.assert_dropped(HOST_1, &message(REQUEST, 77, to, 77, 11), DropReason::SourceMac);
        assert_eq!(noted(&rig), [(mac_bytes(77), Some(ip(11)))]);
        rig.assert_dropped(HOST_1, &message(REQUEST, 77, to, HOST, 12), DropReason::SourceMac);
        assert_eq!(noted(&rig), [(mac_bytes(77), None)]);
    }
    // At a port that does not learn, of what waited, and of a relay, nothing is.
    let mut rig = rig_with(|spec| spec.learns = false);
    assert_eq!(rig.exchange(HOST_1, &message(REQUEST, HOST, ALL, HOST, 7)).len(), 1);
    assert_eq!(noted(&rig), []);
    let mut rig = rig_with(|spec| spec.dhcp.trusted = Some(true));
    rig.waits.store(true, Ordering::Relaxed);
    assert_eq!(rig.exchange(HOST_1, &message(REQUEST, HOST, ALL, HOST, 7)).len(), 1);
    rig.waits.store(false, Ordering::Relaxed);
    assert_eq!(rig.exchange(HOST_1, &message(REQUEST, HOST, ALL, 77, 8)).len(), 1);
    assert_eq!(noted(&rig), []);
}

#[test]
fn who_makes_up_clients_takes_no_more_by_asking_the_server_itself() {
    let mut rig = rig();
    let (began, server) = (Instant::now(), mac_bytes(SERVER));
    let (mut forged, mut asked, mut got) = (0_u64, 0_u64, 0_u64);
    for i in 0..500 {
        for to in [ALL, server] {
            for (client, n) in [(1000 + i, &mut forged), (HOST, &mut asked)] {
                *n += 1;
                let out = rig.exchange(HOST_1, &message(DISCOVER, HOST, to, client, 7));
                assert!(out.iter().all(|(port, frame)| *port == TRUNK_8 && frame[..6] == server));
                assert!(out.is_empty() || client == HOST, "one that is made up gets there");
                got += out.len() as u64;
            }
        }
    }
    let most = u64::from(PER_SECOND) * (u64::from(dhcp::BURST) + began.elapsed().as_secs() + 1);
    assert!(got >= u64::from(PER_SECOND * dhcp::BURST) && got <= most, "{got} of {most} get there");
    let counts = rig.counts();
    let dropped = [DropReason::Dhcp, DropReason::DhcpRate].map(|reason| counts.dropped(reason));
    assert_eq!((dropped, counts.dropped_total()), ([forged, asked - got], forged + asked - got));
    // The host is served in everything else, and so is another one in this.
    assert_eq!(rig.exchange(HOST_1, &between(HOST, SERVER)).len(), 1);
    for to in [ALL, server] {
        for kind in [DISCOVER, REQUEST] {
            let out = rig.exchange(HOST_2, &message(kind, OTHER, to, OTHER, 8));
            let expected = to_name(SERVER, message(kind, OTHER, to, OTHER, 8));
            assert_eq!(out, [(TRUNK_8, with_shim(&expected, INITIAL_HOPS))]);
        }
    }
}

fn to_name(name: u64, mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&mac_bytes(name));
    frame
}

#[test]
fn a_trusted_port_and_one_without_a_server_forward_what_is_to_one_as_anything_else() {
    for (server, trusted) in [(None, None), (None, Some(false)), (Some(mac_bytes(SERVER)), Some(true))] {
        let mut rig = rig_with(|spec| spec.dhcp = dhcp::Settings { server, trusted, requests_per_second: 0 });
        for client in [HOST, 77] {
            assert_eq!(rig.exchange(HOST_1, &message(DISCOVER, HOST, mac_bytes(SERVER), client, 7)).len(), 1);
        }
    }
}

#[test]
fn that_nobody_hears_a_client_is_noted_of_its_port() {
    let mut rig = rig_with(|spec| spec.dhcp = dhcp::Settings::default());
    let request = message(DISCOVER, OTHER, ALL, OTHER, 7);
    rig.assert_dropped(HOST_2, &request, DropReason::Broadcast);
    let index = 1;
    assert_eq!((rig.monitor.groups().take_unheard(), rig.monitor.groups().take_unheard()), (vec![index], vec![]));
    // What is no request, or dropped for another reason, says nothing of a server that is missing.
    rig.assert_dropped(HOST_2, &ethernet(ALL, mac_bytes(OTHER), 0x88b7, b"x"), DropReason::Broadcast);
    rig.assert_dropped(HOST_2, &message(DISCOVER, OTHER, ALL, HOST, 7), DropReason::Dhcp);
    assert!(rig.monitor.groups().take_unheard().is_empty());
    rig.monitor.groups().set([(0, [HOST, OTHER].map(mac_bytes).to_vec())]);
    assert_eq!(rig.exchange(HOST_2, &request).len(), 1);
    assert!(rig.monitor.groups().take_unheard().is_empty(), "its tenant hears it");
}

/// What a router says, or a host asks for one: the type, the bytes before options, and a MAC address in an option.
fn of_routers(kind: u8, body: &[u8], source: u64, from: [u8; 16], named: u64) -> Vec<u8> {
    let group = [0x33, 0x33, 0, 0, 0, if kind == 133 { 2 } else { 1 }];
    let to = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, group[5]];
    let payload = [body, &[1, 1], &mac_bytes(named)].concat();
    let mut frame = vec![];
    let headers = PacketBuilder::ethernet2(mac_bytes(source), group).ipv6(from, to, 255);
    headers.icmpv6_raw(kind, 0, [0; 4]).write(&mut frame, &payload).unwrap();
    frame
}

/// The link-local address that is made from the address of a name.
fn link_local(name: u64) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac_bytes(name);
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

#[test]
fn a_router_is_heard_where_one_is_to_be_and_asked_by_all_of_its_tenant() {
    for check in [CheckSource::Mac, CheckSource::MacAndIp] {
        let mut rig = Rig::with_ports(check, |spec| spec.ra_trusted = spec.id == PortId(HOST_1));
        for (name, value) in [(HOST, 1), (OTHER, 2), (SERVER, 3)] {
            rig.add(&mac(name), value);
        }
        let says = |source, from, named| of_routers(134, &[0; 8], source, from, named);
        let asks = of_routers(133, &[], OTHER, link_local(OTHER), OTHER);
        // Nobody is to hear each other, and so nobody hears this.
        rig.assert_dropped(HOST_1, &says(HOST, link_local(HOST), HOST), DropReason::Multicast);
        rig.assert_dropped(HOST_2, &asks, DropReason::RouterSolicitation);
        rig.monitor.groups().set([(0, [HOST, OTHER].map(mac_bytes).to_vec())]);
        let said = says(HOST, link_local(HOST), HOST);
        assert_eq!(rig.exchange(HOST_1, &said), [(HOST_2, to_name(OTHER, said.clone()))]);
        assert_eq!(rig.exchange(HOST_2, &asks), [(HOST_1, to_name(HOST, asks.clone()))]);
        let to_one = to_name(OTHER, said.clone());
        assert_eq!(rig.exchange(HOST_1, &to_one), [(HOST_2, to_one.clone())], "an answer to the one that asked");
        // Elsewhere nobody is a router, and a router is nobody else.
        let rogue = says(OTHER, link_local(OTHER), OTHER);
        rig.assert_dropped(HOST_2, &rogue, DropReason::SourceNd);
        rig.assert_dropped(HOST_2, &to_name(HOST, rogue), DropReason::SourceNd);
        let of_another = if check == CheckSource::Mac { DropReason::SourceNd } else { DropReason::SourceIp };
        rig.assert_dropped(HOST_1, &says(HOST, link_local(OTHER), HOST), of_another);
        rig.assert_dropped(HOST_1, &says(HOST, link_local(HOST), OTHER), DropReason::SourceNd);
        rig.assert_dropped(HOST_1, &of_routers(137, &[0; 32], HOST, link_local(HOST), HOST), DropReason::SourceNd);
    }
}

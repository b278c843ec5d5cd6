//! ARP answered from what the RIB knows, while that changes. What else must become of ARP, neighbour discovery and group
//! traffic, over every driver: `drivers/fixtures/hosts.rs`.

use crate::common::frames::arp;
use crate::common::*;
use dataplane::assembly::Settings;
use dataplane::counters::DropReason;
use dataplane::flow::nat::NatSettings;
use dataplane::flow::{self, Flows};
use etherparse::PacketBuilder;
use fib::name::NameKind;
use fib::replica::Exact;
use netio::checksum::{fold, sum};
use std::net::IpAddr;

const ASKER: u64 = 1;
const OWNER: u64 = 2;

fn rig() -> Rig {
    let mut rig = Rig::new(NameKind::Mac);
    for (i, ip) in [(ASKER, "10.0.0.1"), (OWNER, "10.0.0.2")] {
        rig.writer.valid().put(mac(i), Some(ip.parse().unwrap()));
    }
    rig
}

#[test]
fn an_address_whose_host_is_removed_is_not_answered() {
    let mut rig = rig();
    let request = arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]);
    assert_eq!(rig.exchange(HOST_1, &request).len(), 1);
    rig.writer.valid().remove(&mac(OWNER));
    rig.assert_dropped(HOST_1, &request, DropReason::ArpUnknown);
}

#[test]
fn an_address_that_moves_to_another_host_is_answered_with_the_new_one() {
    let mut rig = rig();
    let ip: IpAddr = "10.0.0.2".parse().unwrap();
    rig.writer.valid().put(mac(50), Some(ip));
    // The old owner goes afterwards: the address stays with the new one.
    rig.writer.valid().remove(&mac(OWNER));
    let out = rig.exchange(HOST_1, &arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]));
    assert_eq!(out[0].1[6..12], mac_bytes(50));
    rig.writer.valid().put(mac(50), None);
    rig.assert_dropped(HOST_1, &arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]), DropReason::ArpUnknown);
}

#[test]
fn addresses_that_hosts_have_beside_those_of_the_tables_are_answered_until_they_go() {
    let mut rig = rig();
    let question = arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 100]);
    rig.assert_dropped(HOST_1, &question, DropReason::ArpUnknown);
    for holder in [OWNER, 50] {
        rig.monitor.groups().set_addresses([("10.0.0.100".parse().unwrap(), mac_bytes(holder))]);
        let out = rig.exchange(HOST_1, &question);
        assert_eq!((out.len(), &out[0].1[6..12]), (1, &mac_bytes(holder)[..]), "who holds it now");
    }
    // What the tables say comes first.
    rig.monitor.groups().set_addresses([("10.0.0.2".parse().unwrap(), mac_bytes(50))]);
    let out = rig.exchange(HOST_1, &arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]));
    assert_eq!(out[0].1[6..12], mac_bytes(OWNER));
    rig.assert_dropped(HOST_1, &question, DropReason::ArpUnknown);
}

/// Whatever the rules say, and without a connection.
#[test]
fn an_address_of_the_switch_itself_answers_pings_and_nothing_else() {
    const OWN: u64 = 0x77;
    let nat = NatSettings {
        inside: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
        addresses: ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse::<IpAddr>().unwrap().into()).to_vec(),
        ports: 1024..=65535,
        mac: mac_bytes(OWN),
    };
    let flows = flow::Settings { nat: Some(nat), max_flows: 1000, ..flow::Settings::default() };
    let flows = Flows::new(flows, 1).unwrap();
    let mut rig = Rig::with_settings(NameKind::Mac, &Settings { flows: Some(flows.clone()), ..Settings::default() });
    rig.add(&mac(ASKER), 1);
    let v4 = |to: u64, ip: [u8; 4]| {
        let mut frame = vec![];
        let headers = PacketBuilder::ethernet2(mac_bytes(ASKER), mac_bytes(to)).ipv4([10, 0, 0, 1], ip, 7);
        headers.icmpv4_echo_request(7, 9).write(&mut frame, b"abc").unwrap();
        frame
    };
    let v6 = |ip: &str| {
        let (from, to): (std::net::Ipv6Addr, std::net::Ipv6Addr) = ("fd00::1".parse().unwrap(), ip.parse().unwrap());
        let mut frame = vec![];
        let headers = PacketBuilder::ethernet2(mac_bytes(ASKER), mac_bytes(OWN)).ipv6(from.octets(), to.octets(), 7);
        headers.icmpv6_echo_request(7, 9).write(&mut frame, b"abc").unwrap();
        frame
    };
    for (port, frame) in [
        (HOST_1, v4(OWN, [192, 0, 2, 1])),
        (HOST_1, v6("2001:db8::1")),
        (TRUNK_8, with_shim(&v4(OWN, [192, 0, 2, 1]), 3)),
    ] {
        let out = rig.exchange(port, &frame);
        let [(back, answer)] = &out[..] else { panic!("{out:?}") };
        let at = if port == TRUNK_8 { 4 } else { 0 };
        assert_eq!((*back, &answer[..12]), (port, &[mac_bytes(ASKER), mac_bytes(OWN)].concat()[..]));
        let is_v4 = answer[12 + at] == 8;
        let (addresses, len, kind) = if is_v4 { (26 + at, 4, answer[34 + at]) } else { (22 + at, 16, answer[54 + at]) };
        assert_eq!(answer[addresses..addresses + len], frame[addresses + len..addresses + 2 * len]);
        assert_eq!(answer[addresses + len..addresses + 2 * len], frame[addresses..addresses + len]);
        assert_eq!((kind, answer.ends_with(b"abc")), (if is_v4 { 0 } else { 129 }, true));
        if is_v4 {
            assert_eq!([fold(sum(&answer[14 + at..34 + at])), fold(sum(&answer[34 + at..]))], [0xffff; 2]);
        }
        assert!(port != TRUNK_8 || answer[14] > 3, "it goes back as far as any frame");
    }
    assert_eq!((rig.counts().answered, flows.occupancy().flows), (3, 0));
    // To another address, or to the MAC address of a host.
    for frame in [v4(OWN, [192, 0, 2, 2]), v4(OWNER, [192, 0, 2, 1])] {
        let answered = rig.counts().answered;
        rig.exchange(HOST_1, &frame);
        assert_eq!(rig.counts().answered, answered);
    }
}

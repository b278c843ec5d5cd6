//! ARP and neighbour discovery, answered from what the RIB knows; all other group traffic dropped.

mod common;

use common::frames::{arp, solicitation};
use common::*;
use etherparse::{Icmpv6Slice, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use fib::name::NameKind;
use fib::replica::Exact;
use fibula_switch::counters::DropReason;
use std::net::{IpAddr, Ipv6Addr};

const ASKER: u64 = 1;
const OWNER: u64 = 2;

fn rig() -> Rig {
    let mut rig = Rig::new(NameKind::Mac);
    for (i, ip) in [(ASKER, "10.0.0.1"), (OWNER, "10.0.0.2"), (3, "fd00::3"), (4, "fd00::4")] {
        rig.writer.valid().put(mac(i), Some(ip.parse().unwrap()));
    }
    rig
}

#[test]
fn an_arp_request_is_answered_with_the_owner_s_address_to_the_asker_alone() {
    let mut rig = rig();
    let request = arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]);
    let out = rig.exchange(HOST_1, &request);
    let mut expected = ethernet(mac_bytes(ASKER), mac_bytes(OWNER), 0x0806, &[0, 1, 8, 0, 6, 4, 0, 2]);
    expected.truncate(22);
    expected.extend(mac_bytes(OWNER));
    expected.extend([10, 0, 0, 2]);
    expected.extend(mac_bytes(ASKER));
    expected.extend([10, 0, 0, 1]);
    expected.resize(60, 0);
    assert_eq!(out, [(HOST_1, expected)]);
    assert_eq!(rig.counts().answered, 1);
}

#[test]
fn an_arp_request_behind_a_vlan_tag_is_answered_behind_the_same() {
    let mut rig = rig();
    let request = arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]);
    let tagged = [&request[..12], &[0x81, 0, 0x60, 9], &request[12..]].concat();
    let out = rig.exchange(HOST_1, &tagged);
    assert_eq!(out[0].1[12..18], [0x81, 0, 0x60, 9, 8, 6]);
    assert_eq!(out[0].1[25], 2, "a reply");
}

#[test]
fn requests_for_unknown_or_own_addresses_and_replies_are_not_answered() {
    let mut rig = rig();
    let changed = |at: usize, to: u8| {
        let mut frame = arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]);
        frame[at] = to;
        frame
    };
    let cases = [
        (arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 77]), DropReason::ArpUnknown),
        // An announcement and a probe of one's own address.
        (arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 1]), DropReason::ArpOwn),
        (arp(1, (ASKER, [0; 4]), [10, 0, 0, 1]), DropReason::ArpOwn),
        (arp(2, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]), DropReason::ArpUnknown),
        (arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2])[..40].to_vec(), DropReason::Truncated),
        // Not RFC 826 over Ethernet and IPv4: another protocol, other lengths.
        (changed(16, 0x86), DropReason::ArpUnknown),
        (changed(18, 8), DropReason::ArpUnknown),
        (changed(19, 16), DropReason::ArpUnknown),
        // The answer would go to everybody.
        (changed(6, 0xff), DropReason::ArpUnknown),
    ];
    for (frame, reason) in cases {
        rig.assert_dropped(HOST_1, &frame, reason);
    }
    rig.writer.valid().remove(&mac(OWNER));
    rig.assert_dropped(HOST_1, &arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]), DropReason::ArpUnknown);
}

#[test]
fn a_probe_for_another_host_s_address_is_told_that_it_is_taken() {
    let mut rig = rig();
    assert_eq!(rig.exchange(HOST_1, &arp(1, (ASKER, [0; 4]), [10, 0, 0, 2])).len(), 1);
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

fn ip(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)
}

/// Checks an advertisement with an independent parser; returns (IP destination, flags, target, link-layer address).
fn advertisement(frame: &[u8]) -> (Ipv6Addr, u8, Ipv6Addr, [u8; 6]) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let (Some(NetSlice::Ipv6(net)), Some(TransportSlice::Icmpv6(icmp))) = (&packet.net, &packet.transport) else {
        panic!("no ICMPv6: {packet:?}")
    };
    let header = net.header();
    assert!(icmp.is_checksum_valid(header.source(), header.destination()));
    assert_eq!((header.hop_limit(), icmp.type_u8(), icmp.code_u8()), (255, 136, 0));
    let bytes = Icmpv6Slice::slice(icmp);
    assert_eq!(bytes[24..26], [2, 1]);
    let target = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[8..24]).unwrap());
    assert_eq!(header.source_addr(), target);
    (header.destination_addr(), bytes[4], target, bytes[26..32].try_into().unwrap())
}

#[test]
fn a_neighbour_solicitation_is_answered_with_a_valid_advertisement() {
    let mut rig = rig();
    let out = rig.exchange(HOST_2, &solicitation(3, ip(3), ip(4)));
    assert_eq!(out.len(), 1);
    let (port, frame) = &out[0];
    assert_eq!((*port, &frame[..6], &frame[6..12]), (HOST_2, &mac_bytes(3)[..], &mac_bytes(4)[..]));
    // Solicited and override; not a router.
    assert_eq!(advertisement(frame), (ip(3), 0x60, ip(4), mac_bytes(4)));
}

#[test]
fn duplicate_address_detection_fails_for_another_s_address_and_succeeds_for_one_s_own() {
    let mut rig = rig();
    rig.assert_dropped(HOST_1, &solicitation(3, Ipv6Addr::UNSPECIFIED, ip(3)), DropReason::NdOwn);
    let out = rig.exchange(HOST_1, &solicitation(3, Ipv6Addr::UNSPECIFIED, ip(4)));
    let all_nodes = "ff02::1".parse().unwrap();
    assert_eq!(advertisement(&out[0].1), (all_nodes, 0x20, ip(4), mac_bytes(4)));
}

#[test]
fn solicitations_that_are_unknown_or_wrong_are_dropped() {
    let mut rig = rig();
    let good = solicitation(3, ip(3), ip(4));
    rig.assert_dropped(HOST_1, &solicitation(3, ip(3), ip(9)), DropReason::NdUnknown);
    let changed = |at: usize, to: u8| {
        let mut frame = good.clone();
        frame[at] = to;
        frame
    };
    rig.assert_dropped(HOST_1, &changed(14 + 7, 254), DropReason::NdUnknown); // routed
    rig.assert_dropped(HOST_1, &changed(14 + 42, !good[14 + 42]), DropReason::NdUnknown); // checksum
    rig.assert_dropped(HOST_1, &good[..70], DropReason::Truncated);
    rig.assert_dropped(HOST_1, &changed(6, 0x33), DropReason::Multicast); // from a group of stations
    let from_group = solicitation(3, "ff02::1".parse().unwrap(), ip(4));
    rig.assert_dropped(HOST_1, &from_group, DropReason::NdUnknown);
    assert_eq!(rig.exchange(HOST_1, &good).len(), 1);
}

#[test]
fn all_other_group_traffic_is_dropped_by_kind() {
    let mut rig = rig();
    let icmp = |kind: u8| {
        let mut frame = vec![];
        PacketBuilder::ethernet2(mac_bytes(3), [0x33, 0x33, 0, 0, 0, 2])
            .ipv6(ip(3).octets(), "ff02::2".parse::<Ipv6Addr>().unwrap().octets(), 255)
            .icmpv6_raw(kind, 0, [0; 4])
            .write(&mut frame, &[0; 16])
            .unwrap();
        frame
    };
    rig.assert_dropped(HOST_1, &icmp(133), DropReason::RouterSolicitation);
    rig.assert_dropped(HOST_1, &icmp(143), DropReason::ListenerReport);
    rig.assert_dropped(HOST_1, &icmp(134), DropReason::Multicast);
    // As Linux sends it: ICMPv6 behind a hop-by-hop header with a router alert.
    let mut report = vec![0x60, 0, 0, 0, 0, 36, 0, 1];
    report.extend(ip(3).octets());
    report.extend("ff02::16".parse::<Ipv6Addr>().unwrap().octets());
    report.extend([58, 0, 5, 2, 0, 0, 1, 0, 143]);
    report.resize(76, 0);
    let report = ethernet([0x33, 0x33, 0, 0, 0, 0x16], mac_bytes(3), 0x86dd, &report);
    rig.assert_dropped(HOST_1, &report, DropReason::ListenerReport);
    rig.assert_dropped(HOST_1, &ethernet([0xff; 6], mac_bytes(3), 0x0800, &[0x45; 40]), DropReason::Broadcast);
    rig.assert_dropped(HOST_1, &ethernet([1, 0x80, 0xc2, 0, 0, 0], mac_bytes(3), 38, &[0; 38]), DropReason::Multicast);
}

#[test]
fn nothing_to_a_group_comes_through_a_trunk() {
    let mut rig = rig();
    let request = arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]);
    rig.assert_dropped(TRUNK_8, &with_shim(&request, 9), DropReason::Broadcast);
    rig.assert_dropped(TRUNK_8, &with_shim(&solicitation(3, ip(3), ip(4)), 9), DropReason::Multicast);
}

#[test]
fn a_unicast_probe_goes_to_the_host_itself() {
    let mut rig = rig();
    rig.add(&mac(OWNER), 2);
    let mut probe = arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]);
    probe[..6].copy_from_slice(&mac_bytes(OWNER));
    assert_eq!(rig.exchange(HOST_1, &probe), [(HOST_2, probe.clone())]);
}

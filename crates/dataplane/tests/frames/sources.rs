//! Hosts are kept in their place: a frame from a host port leaves only if it says truly who sent it.

use crate::common::frames::{any_kind, arp, extended, nearly_a_frame, solicitation, tagged, udp4, udp6, v6};
use crate::common::*;
use dataplane::assembly::Settings;
use dataplane::counters::DropReason;
use dataplane::flow::rules::Rules;
use dataplane::flow::{self, Flows};
use dataplane::links::Hello;
use dataplane::links::lldp::{Ear, Own};
use dataplane::source::CheckSource;
use dataplane::subscriptions::{Timing, query};
use etherparse::PacketBuilder;
use fib::action::PortId;
use fib::name::{Name, NameKind};
use fib::replica::Exact;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// At port 1, with 10.0.0.1 and another name without an address.
const HOST: u64 = 1;
const SECOND: u64 = 11;
/// At port 1 too, with fd00::12.
const MODERN: u64 = 12;
/// At port 2, with 10.0.0.2.
const VICTIM: u64 = 2;
/// At port 2, with fd00::4.
const MODERN_VICTIM: u64 = 4;
/// Behind a trunk, with 10.0.0.3.
const FAR: u64 = 3;

fn rig(check: CheckSource) -> Rig {
    rig_with(check, &Settings::default())
}

fn rig_with(check: CheckSource, settings: &Settings) -> Rig {
    let mut rig = Rig::with_check(NameKind::Mac, settings, check);
    let names = [
        (HOST, 1, Some("10.0.0.1")),
        (SECOND, 1, None),
        (MODERN, 1, Some("fd00::12")),
        (VICTIM, 2, Some("10.0.0.2")),
        (MODERN_VICTIM, 2, Some("fd00::4")),
        (FAR, 3, Some("10.0.0.3")),
    ];
    for (name, value, ip) in names {
        rig.add(&mac(name), value);
        rig.writer.valid().put(mac(name), ip.map(|ip| ip.parse().unwrap()));
    }
    rig
}

/// The frame, to the victim at port 2.
fn to(name: u64, mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&mac_bytes(name));
    frame
}

fn from(name: u64, mut frame: Vec<u8>) -> Vec<u8> {
    frame[6..12].copy_from_slice(&mac_bytes(name));
    frame
}

#[track_caller]
fn assert_passes(rig: &mut Rig, frame: &[u8]) {
    assert_eq!(rig.exchange(HOST_1, frame), [(HOST_2, frame.to_vec())]);
}

#[test]
fn a_frame_leaves_only_if_its_source_is_a_name_at_its_port() {
    let mut rig = rig(CheckSource::Mac);
    for name in [HOST, SECOND, MODERN] {
        assert_passes(&mut rig, &between(name, VICTIM));
    }
    for name in [VICTIM, FAR, 99] {
        rig.assert_dropped(HOST_1, &between(name, MODERN_VICTIM), DropReason::SourceMac);
        rig.assert_dropped(HOST_1, &arp(1, (name, [10, 0, 0, 1]), [10, 0, 0, 2]), DropReason::SourceMac);
    }
    // Too short to have a source, and so dropped as before.
    rig.assert_dropped(HOST_1, &between(HOST, VICTIM)[..13], DropReason::Runt);
    // Frames from trunks were checked where they entered.
    let frame = between(FAR, VICTIM);
    assert_eq!(rig.exchange(TRUNK_8, &with_shim(&frame, 9)), [(HOST_2, frame)]);
}

#[test]
fn a_name_that_moves_is_believed_at_its_new_port_alone() {
    let mut rig = rig(CheckSource::Mac);
    // So often that the port knows it.
    (0..5).for_each(|_| assert_passes(&mut rig, &between(HOST, VICTIM)));
    rig.writer.local().put(mac(HOST), PortId(HOST_2));
    rig.assert_dropped(HOST_1, &between(HOST, VICTIM), DropReason::SourceMac);
    (0..5).for_each(|_| assert_eq!(rig.exchange(HOST_2, &between(HOST, FAR)).len(), 1));
    rig.writer.local().remove(&mac(HOST));
    rig.assert_dropped(HOST_2, &between(HOST, FAR), DropReason::SourceMac);
}

/// A port knows its host, and what the host sends with it is checked nevertheless.
#[test]
fn a_known_source_speaks_for_nothing_but_itself() {
    let mut rig = rig(CheckSource::Mac);
    (0..5).for_each(|_| assert_passes(&mut rig, &between(HOST, VICTIM)));
    rig.assert_dropped(HOST_1, &arp(1, (HOST, [10, 0, 0, 2]), [10, 0, 0, 3]), DropReason::SourceArp);
    rig.assert_dropped(HOST_1, &between(VICTIM, MODERN_VICTIM), DropReason::SourceMac);
    rig.assert_dropped(HOST_2, &between(HOST, FAR), DropReason::SourceMac);
    rig.assert_dropped(HOST_1, &between(HOST, VICTIM)[..13], DropReason::Runt);
    // True frames and others in one burst, whichever comes first.
    for order in [[HOST, VICTIM], [VICTIM, HOST]] {
        order.iter().for_each(|name| rig.send(HOST_1, &between(*name, MODERN_VICTIM)));
        assert_eq!(rig.run(), [(HOST_2, between(HOST, MODERN_VICTIM))]);
    }
}

#[test]
fn of_a_burst_the_true_frames_leave_in_their_order() {
    let mut rig = rig(CheckSource::Mac);
    let frames: Vec<Vec<u8>> = (0..200u8)
        .map(|i| {
            let mut frame = between(if i % 3 == 0 { VICTIM } else { HOST }, MODERN_VICTIM);
            frame[59] = i;
            frame
        })
        .collect();
    frames.iter().for_each(|frame| rig.send(HOST_1, frame));
    let expected: Vec<_> = (0..).zip(&frames).filter(|(i, _)| i % 3 != 0).map(|(_, f)| (HOST_2, f.clone())).collect();
    assert_eq!(rig.run(), expected);
    assert_eq!(rig.counts().dropped(DropReason::SourceMac), 67);
}

#[test]
fn an_arp_packet_speaks_for_its_own_port_alone() {
    for check in [CheckSource::Mac, CheckSource::MacAndIp] {
        let mut rig = rig(check);
        // A unicast reply reaches its victim: this is how a host would take another's traffic.
        let reply = |sender, ip| to(VICTIM, from(HOST, arp(2, (sender, ip), [10, 0, 0, 2])));
        for frame in [
            reply(HOST, [10, 0, 0, 3]),
            reply(HOST, [10, 0, 0, 2]),
            reply(FAR, [10, 0, 0, 3]),
            reply(VICTIM, [10, 0, 0, 9]),
            reply(99, [10, 0, 0, 1]),
        ] {
            rig.assert_dropped(HOST_1, &frame, DropReason::SourceArp);
            rig.assert_dropped(HOST_1, &tagged(&tagged(&tagged(&frame, 0x8100), 0x8100), 0x88a8), DropReason::VlanTags);
            rig.assert_dropped(HOST_1, &tagged(&tagged(&frame, 0x8100), 0x88a8), DropReason::SourceArp);
        }
        assert_passes(&mut rig, &reply(HOST, [10, 0, 0, 1]));
        // A host may have several names at its port, and answer for one with another.
        assert_passes(&mut rig, &reply(SECOND, [10, 0, 0, 1]));
        let mut other_lengths = reply(HOST, [10, 0, 0, 1]);
        other_lengths[18] = 8;
        rig.assert_dropped(HOST_1, &other_lengths, DropReason::SourceArp);
        rig.assert_dropped(HOST_1, &reply(HOST, [10, 0, 0, 1])[..41], DropReason::Truncated);
    }
}

#[test]
fn arp_requests_probes_and_announcements_of_a_host_work_as_before() {
    for check in [CheckSource::Mac, CheckSource::MacAndIp] {
        let mut rig = rig(check);
        let answers = |rig: &mut Rig, frame: &[u8]| rig.exchange(HOST_1, frame).len() == 1;
        assert!(answers(&mut rig, &arp(1, (HOST, [10, 0, 0, 1]), [10, 0, 0, 2])));
        assert!(answers(&mut rig, &arp(1, (HOST, [0; 4]), [10, 0, 0, 2])), "a probe for an address that is taken");
        rig.assert_dropped(HOST_1, &arp(1, (HOST, [0; 4]), [10, 0, 0, 1]), DropReason::ArpOwn);
        rig.assert_dropped(HOST_1, &arp(1, (HOST, [10, 0, 0, 1]), [10, 0, 0, 1]), DropReason::ArpOwn);
        rig.assert_dropped(HOST_1, &arp(1, (HOST, [10, 0, 0, 2]), [10, 0, 0, 2]), DropReason::SourceArp);
        // An address that the RIB does not know belongs to nobody. With mac+ip, a name with an address has no other.
        let unknown = arp(1, (HOST, [10, 9, 9, 9]), [10, 0, 0, 2]);
        match check {
            CheckSource::MacAndIp => rig.assert_dropped(HOST_1, &unknown, DropReason::SourceArp),
            _ => assert!(answers(&mut rig, &unknown)),
        }
        assert!(answers(&mut rig, &arp(1, (SECOND, [10, 9, 9, 9]), [10, 0, 0, 2])));
    }
}

/// A neighbour advertisement to the victim, with the link-layer address of `mac` if it is not 0.
fn advertisement(source: u64, target: Ipv6Addr, mac: u64) -> Vec<u8> {
    discovery(136, source, ip6("fd00::12"), target, 2, mac)
}

fn discovery(kind: u8, source: u64, ip: Ipv6Addr, target: Ipv6Addr, option: u8, mac: u64) -> Vec<u8> {
    let mut body = if kind == 133 { vec![] } else { target.octets().to_vec() };
    if mac != 0 {
        body.extend([option, 1]);
        body.extend(mac_bytes(mac));
    }
    let mut frame = vec![];
    PacketBuilder::ethernet2(mac_bytes(source), mac_bytes(VICTIM))
        .ipv6(ip.octets(), v6(4), 255)
        .icmpv6_raw(kind, 0, [0; 4])
        .write(&mut frame, &body)
        .unwrap();
    frame
}

fn ip6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn neighbour_discovery_speaks_for_its_own_port_alone() {
    for check in [CheckSource::Mac, CheckSource::MacAndIp] {
        let mut rig = rig(check);
        let (own, victims) = (ip6("fd00::12"), ip6("fd00::4"));
        let link_local = ip6("fe80::1");
        let false_ones = [
            advertisement(MODERN, victims, MODERN),
            advertisement(MODERN, victims, 0),
            advertisement(MODERN, own, MODERN_VICTIM),
            advertisement(MODERN, link_local, FAR),
            discovery(135, MODERN, own, victims, 1, VICTIM),
            discovery(133, MODERN, own, victims, 1, VICTIM),
        ];
        for frame in &false_ones {
            rig.assert_dropped(HOST_1, frame, DropReason::SourceNd);
            rig.assert_dropped(HOST_1, &tagged(frame, 0x8100), DropReason::SourceNd);
            // Behind other headers, and behind more than are skipped.
            let pad = [0u8, 0, 1, 4, 0, 0, 0, 0];
            let behind = extended(&extended(frame, 60, &pad), 0, &pad);
            rig.assert_dropped(HOST_1, &behind, DropReason::SourceNd);
            let first_fragment = extended(frame, 44, &[0, 0, 0, 1, 0, 0, 0, 1]);
            rig.assert_dropped(HOST_1, &first_fragment, DropReason::SourceNd);
        }
        let many = (0..12).fold(udp6(b"", 9), |frame, _| extended(&frame, 60, &[0, 0, 1, 4, 0, 0, 0, 0]));
        let many = to(VICTIM, from(HOST, many));
        let mut from_own = many.clone();
        from_own[22..38].copy_from_slice(&own.octets());
        rig.assert_dropped(HOST_1, &from(MODERN, from_own), DropReason::SourceNd);
        // Of a claim by IP source alone: that of the frame is another host's.
        let stolen = discovery(135, MODERN, victims, own, 1, MODERN);
        let reason = if check == CheckSource::Mac { DropReason::SourceNd } else { DropReason::SourceIp };
        rig.assert_dropped(HOST_1, &stolen, reason);
        for kind in [134, 137] {
            rig.assert_dropped(HOST_1, &discovery(kind, MODERN, own, own, 2, MODERN), DropReason::SourceNd);
        }
        // Link-local addresses are nobody's, unless they were made from a valid name elsewhere.
        let made_from = |name: u64| {
            let [a, b, c, d, e, f] = mac_bytes(name);
            Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
        };
        rig.assert_dropped(HOST_1, &advertisement(MODERN, made_from(FAR), MODERN), DropReason::SourceNd);
        for frame in [
            advertisement(MODERN, own, MODERN),
            advertisement(MODERN, own, 0),
            advertisement(HOST, own, HOST),
            advertisement(MODERN, link_local, MODERN),
            advertisement(MODERN, made_from(HOST), HOST),
            advertisement(MODERN, made_from(77), MODERN),
            discovery(135, MODERN, own, victims, 1, MODERN),
            discovery(135, MODERN, link_local, victims, 1, MODERN),
            discovery(135, MODERN, Ipv6Addr::UNSPECIFIED, victims, 1, MODERN),
            // An echo request.
            discovery(128, MODERN, own, own, 0, 0),
        ] {
            assert_passes(&mut rig, &frame);
        }
        let cut = advertisement(MODERN, own, MODERN);
        let mut empty_option = cut.clone();
        empty_option[14 + 40 + 25] = 0;
        rig.assert_dropped(HOST_1, &empty_option, DropReason::Truncated);
        rig.assert_dropped(HOST_1, &cut[..70], DropReason::Truncated);
        let mut not_ip = cut;
        not_ip[14] = 0x40;
        rig.assert_dropped(HOST_1, &not_ip, DropReason::SourceIp);
    }
}

#[test]
fn duplicate_address_detection_works_as_before() {
    for check in [CheckSource::Mac, CheckSource::MacAndIp] {
        let mut rig = rig(check);
        let own = solicitation(MODERN, Ipv6Addr::UNSPECIFIED, ip6("fd00::12"));
        rig.assert_dropped(HOST_1, &own, DropReason::NdOwn);
        assert_eq!(rig.exchange(HOST_1, &solicitation(MODERN, Ipv6Addr::UNSPECIFIED, ip6("fd00::4"))).len(), 1);
        assert_eq!(rig.exchange(HOST_1, &solicitation(MODERN, ip6("fd00::12"), ip6("fd00::4"))).len(), 1);
        rig.assert_dropped(HOST_1, &solicitation(VICTIM, ip6("fd00::12"), ip6("fd00::4")), DropReason::SourceMac);
    }
}

fn packet(source: u64, ip: [u8; 4]) -> Vec<u8> {
    let mut frame = to(VICTIM, from(source, udp4(b"hello", 9)));
    frame[26..30].copy_from_slice(&ip);
    frame
}

fn packet6(source: u64, ip: &str) -> Vec<u8> {
    let mut frame = to(VICTIM, from(source, udp6(b"hello", 9)));
    frame[22..38].copy_from_slice(&ip6(ip).octets());
    frame
}

#[test]
fn ip_sources_are_checked_if_asked_for() {
    let true_ones = [
        packet(HOST, [10, 0, 0, 1]),
        // Another name at the port has it.
        packet(SECOND, [10, 0, 0, 1]),
        // DHCP.
        packet(HOST, [0; 4]),
        // The RIB gives these names no address of that family.
        packet(SECOND, [10, 7, 7, 7]),
        packet(MODERN, [10, 7, 7, 7]),
        packet6(HOST, "fd00::77"),
        packet6(MODERN, "fd00::12"),
        packet6(MODERN, "fe80::77"),
        packet6(MODERN, "::"),
    ];
    let false_ones = [
        packet(HOST, [10, 0, 0, 2]),
        packet(SECOND, [10, 0, 0, 3]),
        packet(HOST, [10, 7, 7, 7]),
        packet(HOST, [255; 4]),
        tagged(&packet(HOST, [10, 0, 0, 3]), 0x8100),
        packet6(MODERN, "fd00::4"),
        packet6(HOST, "fd00::4"),
        packet6(MODERN, "fd00::77"),
    ];
    let mut rig_by_mac = rig(CheckSource::Mac);
    let mut rig = rig(CheckSource::MacAndIp);
    for frame in &true_ones {
        assert_passes(&mut rig, frame);
    }
    for frame in &false_ones {
        rig.assert_dropped(HOST_1, frame, DropReason::SourceIp);
        assert_passes(&mut rig_by_mac, frame);
    }
    // An address that moves to another name moves its owner's right.
    let ip: IpAddr = "10.0.0.1".parse().unwrap();
    rig.writer.valid().put(mac(VICTIM), Some(ip));
    rig.assert_dropped(HOST_1, &packet(HOST, [10, 0, 0, 1]), DropReason::SourceIp);
}

#[test]
fn names_that_are_ip_addresses_allow_a_check_of_ip_sources() {
    let name = |ip: [u8; 4]| Name::from_bytes(NameKind::Ipv4, &ip).unwrap();
    for (check, is_checked) in [(CheckSource::Mac, false), (CheckSource::MacAndIp, true)] {
        let mut rig = Rig::with_check(NameKind::Ipv4, &Settings::default(), check);
        rig.add(&name([10, 0, 0, 1]), 1);
        rig.add(&name([10, 0, 0, 2]), 2);
        assert_passes(&mut rig, &packet(HOST, [10, 0, 0, 1]));
        for ip in [[10, 0, 0, 2], [10, 0, 0, 9]] {
            match is_checked {
                true => rig.assert_dropped(HOST_1, &packet(HOST, ip), DropReason::SourceIp),
                false => assert_passes(&mut rig, &packet(HOST, ip)),
            }
        }
    }
    let name = |last: u8| Name::from_bytes(NameKind::Ipv6, &v6(last)).unwrap();
    let mut rig = Rig::with_check(NameKind::Ipv6, &Settings::default(), CheckSource::MacAndIp);
    rig.add(&name(1), 1);
    rig.add(&name(4), 2);
    let own = discovery(136, HOST, v6(1).into(), v6(1).into(), 2, HOST);
    assert_passes(&mut rig, &own);
    rig.assert_dropped(HOST_1, &discovery(136, HOST, v6(1).into(), v6(4).into(), 2, HOST), DropReason::SourceNd);
    rig.assert_dropped(HOST_1, &discovery(136, HOST, v6(4).into(), v6(4).into(), 2, HOST), DropReason::SourceIp);
}

#[test]
fn a_forged_packet_begins_no_flow() {
    let rules = Rules { rules: vec![], accept_others: true };
    let flows = Flows::new(flow::Settings { rules, max_flows: 1000, ..flow::Settings::default() }, 1).unwrap();
    let settings = Settings { flows: Some(flows.clone()), ..Settings::default() };
    let mut rig = rig_with(CheckSource::Mac, &settings);
    rig.assert_dropped(HOST_1, &packet(FAR, [10, 0, 0, 3]), DropReason::SourceMac);
    assert_eq!(flows.occupancy().flows, 0);
    assert_eq!(rig.exchange(HOST_1, &packet(HOST, [10, 0, 0, 1])).len(), 1);
    assert_eq!(flows.occupancy().flows, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_comes_in_no_name_of_another_port_comes_out(
        kind in any_kind(),
        by_ip in any::<bool>(),
        frames in prop::collection::vec((nearly_a_frame(), 0..6u64), 1..60),
    ) {
        let check = if by_ip { CheckSource::MacAndIp } else { CheckSource::Mac };
        let mut rig = Rig::with_check(kind, &Settings { fixed_offset: Some(0), ..Settings::default() }, check);
        if kind == NameKind::Mac {
            (1..5u64).for_each(|i| rig.add(&mac(i), 1 + i % 4));
        }
        for (mut frame, source) in frames {
            if frame.len() >= 12 {
                frame[6..12].copy_from_slice(&mac_bytes(source));
            }
            let at_port_1 = source == 4;
            let before = rig.counts();
            let out = rig.exchange(HOST_1, &frame);
            prop_assert!(kind != NameKind::Mac || at_port_1 || out.is_empty(), "{:?}", out);
            let forged = rig.counts().dropped(DropReason::SourceMac) - before.dropped(DropReason::SourceMac);
            prop_assert_eq!(forged == 1, kind == NameKind::Mac && !at_port_1 && frame.len() >= 14);
        }
    }
}

/// What was noted at ports since: the bytes of names, and addresses.
fn noted(rig: &Rig) -> Vec<(Vec<u8>, Option<IpAddr>)> {
    rig.monitor.learner().take(usize::MAX).iter().map(|(_, claim)| (claim.name().to_vec(), claim.ip)).collect()
}

#[test]
fn who_is_not_known_is_noted_and_so_is_an_address_that_nobody_has() {
    for check in [CheckSource::Mac, CheckSource::MacAndIp] {
        let mut rig = rig(check);
        rig.exchange(HOST_1, &to(FAR, from(HOST, udp4(b"x", 9))));
        assert_eq!(noted(&rig), [], "{check:?}: a name that is here");
        rig.exchange(HOST_1, &to(FAR, from(77, udp4(b"x", 9))));
        rig.exchange(HOST_1, &to(FAR, from(VICTIM, udp4(b"x", 9))));
        let macs = [77, VICTIM].map(|name| (mac_bytes(name).to_vec(), None));
        assert_eq!(noted(&rig), macs, "{check:?}: a stranger, and a name of another port");
        // One that is known says in ARP that it has an address: one that is free, and its own.
        rig.exchange(HOST_1, &from(SECOND, arp(1, (SECOND, [10, 0, 0, 77]), [10, 0, 0, 9])));
        rig.exchange(HOST_1, &from(HOST, arp(1, (HOST, [10, 0, 0, 1]), [10, 0, 0, 9])));
        let free = IpAddr::from([10, 0, 0, 77]);
        assert_eq!(noted(&rig), [(mac_bytes(SECOND).to_vec(), Some(free))], "{check:?}");
    }
    let mut rig = Rig::with_check(NameKind::Ipv4, &Settings::default(), CheckSource::MacAndIp);
    rig.exchange(HOST_1, &udp4(b"x", 9));
    assert_eq!(noted(&rig), [(vec![10, 0, 0, 1], None)], "where names are addresses, the source is one");
}

#[test]
fn what_waited_is_forwarded_and_nobody_is_learnt_from_it() {
    let mut rig = rig(CheckSource::Mac);
    rig.waits.store(true, Ordering::Relaxed);
    assert_passes(&mut rig, &to(VICTIM, from(HOST, udp4(b"x", 9))));
    let stranger = to(FAR, from(77, udp4(b"x", 9)));
    rig.assert_dropped(HOST_1, &stranger, DropReason::SourceMac);
    rig.exchange(HOST_1, &from(SECOND, arp(1, (SECOND, [10, 0, 0, 77]), [10, 0, 0, 9])));
    assert_eq!(noted(&rig), [], "they were here; who knows where they are");
    rig.waits.store(false, Ordering::Relaxed);
    rig.assert_dropped(HOST_1, &stranger, DropReason::SourceMac);
    assert_eq!(noted(&rig), [(mac_bytes(77).to_vec(), None)]);
}

#[test]
fn a_stranger_who_says_lldp_is_heard_and_neither_learnt_nor_taken_for_a_forger() {
    for check in [CheckSource::Mac, CheckSource::MacAndIp] {
        let mut rig = rig(check);
        let (switch, device) = ("foreign".to_owned(), "eth1".to_owned());
        let own = Own { switch, source: mac_bytes(99), port: PortId(1), role: "host", device, address: None };
        let lldp = own.encode(121, None);
        // Where nobody listens it is for the other end of the cable all the same.
        rig.assert_dropped(HOST_1, &from(97, lldp.clone()), DropReason::LinkLocal);
        assert_eq!(noted(&rig), []);
        rig.monitor.links().lldp().listen(vec![(0, Ear::new(Default::default(), Instant::now()))]);
        // Beside forged and true frames, in bursts of all sizes.
        let (forged, good) = (between(98, VICTIM), to(VICTIM, from(HOST, udp4(b"x", 9))));
        for n in [1, 5, 40, 64] {
            let before = rig.counts();
            for _ in 0..n {
                [&lldp, &forged, &good].into_iter().for_each(|frame| rig.send(HOST_1, frame));
            }
            assert_eq!(rig.run(), vec![(HOST_2, good.clone()); n]);
            let counts = rig.counts();
            assert_eq!(counts.hellos - before.hellos, n as u64);
            assert_eq!(counts.dropped(DropReason::SourceMac) - before.dropped(DropReason::SourceMac), n as u64);
            assert!(noted(&rig).iter().all(|(name, _)| name[..] != mac_bytes(99)), "it is learnt");
        }
        assert_eq!(rig.monitor.links().lldp().take_heard()[0].1.source, mac_bytes(99));
        // A forger does not hide behind its EtherType, nor behind its group.
        let mut other = lldp.clone();
        other[..6].copy_from_slice(&mac_bytes(VICTIM));
        rig.assert_dropped(HOST_1, &other, DropReason::SourceMac);
        let mut other = lldp;
        other[12..14].copy_from_slice(&[8, 0]);
        rig.assert_dropped(HOST_1, &other, DropReason::LinkLocal);
    }
}

/// What a switch sends at its own ports, if a cable of it leads to a host port of this one.
fn of_a_switch() -> Vec<Vec<u8>> {
    let hello = |switch: &str| Hello {
        switch: switch.to_owned(),
        port: PortId(6),
        session: 0x77,
        hears: None,
        cluster: 0,
        interval_ms: 100,
        multiplier: 3,
    };
    let to_group = |last, ether| ethernet([1, 0x80, 0xc2, 0, 0, last], mac_bytes(96), ether, &[1, 1]);
    let mut frames = vec![hello("s1").encode(), to_group(2, 0x8809), to_group(0, 0x0027), to_group(1, 0x8808)];
    frames.extend(query::general(Timing::new(30)));
    frames.push(query::of_group("239.1.2.3".parse().unwrap(), Timing::new(30)));
    // A host's frame, on its way between switches.
    frames.push(with_shim(&from(95, udp4(b"x", 9)), 60));
    frames
}

#[test]
fn what_a_switch_says_at_a_host_port_is_dropped_and_tells_nobodys_place() {
    for check in [CheckSource::Mac, CheckSource::MacAndIp] {
        let mut rig = rig(check);
        for frame in of_a_switch() {
            rig.assert_dropped(HOST_1, &frame, DropReason::LinkLocal);
            assert_eq!(noted(&rig), [], "{check:?}: {frame:02x?}");
        }
        let strays = rig.monitor.links().take_strays();
        assert!(matches!(&strays[..], [(0, hello)] if hello.switch == "s1" && hello.port == PortId(6)), "{strays:?}");
        // Beside a stranger, who is noted, and a true frame, which leaves.
        let (stranger, good) = (from(77, udp4(b"x", 9)), to(VICTIM, from(HOST, udp4(b"x", 9))));
        of_a_switch().iter().chain([&stranger, &good]).for_each(|frame| rig.send(HOST_1, frame));
        assert_eq!(rig.run(), [(HOST_2, good)]);
        assert_eq!(noted(&rig), [(mac_bytes(77).to_vec(), None)]);
    }
}

#[test]
fn what_a_switch_says_is_copied_for_nobody_though_its_source_is_a_name() {
    for check in [CheckSource::Off, CheckSource::Mac] {
        let mut rig = rig(check);
        let sources: Vec<[u8; 6]> =
            of_a_switch().iter().map(|frame| <[u8; 6]>::try_from(&frame[6..12]).unwrap()).collect();
        for source in &sources {
            rig.add(&Name::from_bytes(NameKind::Mac, source).unwrap(), 1);
        }
        let names = sources.into_iter().chain([mac_bytes(HOST), mac_bytes(VICTIM)]);
        rig.monitor.groups().set([(0, names.collect::<BTreeSet<_>>().into_iter().collect())]);
        let multicasts = of_a_switch().into_iter().filter(|frame| frame[0] & 1 != 0);
        multicasts.for_each(|frame| rig.assert_dropped(HOST_1, &frame, DropReason::LinkLocal));
        assert_eq!(rig.monitor.links().take_strays().len(), 1);
        let broadcast = ethernet([0xff; 6], mac_bytes(HOST), 0x88b7, b"x");
        assert!(!rig.exchange(HOST_1, &broadcast).is_empty(), "others are");
    }
}

/// A host that names a group of one link gains nothing: no flow begins, and no frame leaves.
#[test]
fn nothing_begins_with_a_forged_packet_to_a_group_of_one_link() {
    let rules = Rules { rules: vec![], accept_others: true };
    let flows = Flows::new(flow::Settings { rules, max_flows: 1000, ..flow::Settings::default() }, 1).unwrap();
    let mut rig = rig_with(CheckSource::Mac, &Settings { flows: Some(flows.clone()), ..Settings::default() });
    for group in [[1, 0x80, 0xc2, 0, 0, 2], [0x03, b'f', b'i', b'b', b'u', b'l']] {
        let mut forged = from(77, udp4(b"x", 9));
        forged[..6].copy_from_slice(&group);
        rig.assert_dropped(HOST_1, &forged, DropReason::LinkLocal);
    }
    assert_eq!(flows.occupancy().flows, 0);
}

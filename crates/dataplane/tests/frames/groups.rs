//! Frames to everybody: each other name of the sender's tenant gets one copy, and nobody else hears anything.

use crate::common::*;
use dataplane::acl::AccessList;
use dataplane::alien::Policy;
use dataplane::assembly::Settings;
use dataplane::counters::DropReason;
use dataplane::flow::Flows;
use dataplane::groups::{COPIES_PER_SECOND, FRAMES_PER_SECOND, Snooping, Told, Wanted};
use dataplane::shim::{COPY, INITIAL_HOPS};
use dataplane::source::CheckSource;
use dataplane::subscriptions::{Limits, Timing, query};
use etherparse::PacketBuilder;
use fib::action::PortId;
use fib::name::NameKind;
use fib::replica::Exact;
use netio::checksum::{fold, sum};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const PORT: u16 = 5353;
const ALL: [u8; 6] = [0xff; 6];
const MDNS: [u8; 6] = [1, 0, 0x5e, 0, 0, 0xfb];

/// Names 1 and 5 at host port 1, 2 at host port 2, 3 behind trunk 8, 4 behind trunk 9. 1, 2, 3 and 5 are of tenant 7, 4 is of 8.
fn rig() -> Rig {
    let mut rig = Rig::with_check(NameKind::Mac, &Settings::default(), CheckSource::Mac);
    for (name, value) in [(1, 1), (5, 1), (2, 2), (3, 3), (4, 4)] {
        rig.add(&mac(name), value);
    }
    rig.monitor.groups().set([(7, [1, 2, 3, 5].map(mac_bytes).to_vec()), (8, vec![mac_bytes(4)])]);
    rig
}

/// A packet of UDP to everybody; `to` is the destination of the frame.
fn from(source: u64, to: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![];
    let headers = PacketBuilder::ethernet2(mac_bytes(source), to).ipv4([10, 0, 0, source as u8], [255; 4], 64);
    headers.udp(4000, PORT).write(&mut frame, &[7; 20]).unwrap();
    frame
}

fn sorted(mut frames: Vec<(u16, Vec<u8>)>) -> Vec<(u16, Vec<u8>)> {
    frames.sort();
    frames
}

#[test]
fn each_other_name_of_the_tenant_gets_one_copy_and_nobody_else_hears_it() {
    let mut rig = rig();
    for to in [ALL, MDNS] {
        // 5 is behind the same port, and heard the frame itself.
        let out = sorted(rig.exchange(HOST_1, &from(1, to)));
        let mut to_3 = with_shim(&from(1, mac_bytes(3)), INITIAL_HOPS);
        to_3[15] = COPY;
        assert_eq!(out, [(HOST_2, from(1, mac_bytes(2))), (TRUNK_8, to_3)]);
    }
    let counts = rig.counts();
    assert_eq!((counts.groups, counts.copies, counts.originated), (2, 4, 4));
    let out = sorted(rig.exchange(HOST_2, &from(2, ALL)));
    assert_eq!(out.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [HOST_1, HOST_1, TRUNK_8]);
}

#[test]
fn what_comes_from_a_trunk_or_a_stranger_and_what_is_for_one_link_is_dropped_as_before() {
    let mut rig = rig();
    rig.assert_dropped(TRUNK_8, &with_shim(&from(3, ALL), 9), DropReason::Broadcast);
    rig.assert_dropped(HOST_2, &from(1, ALL), DropReason::SourceMac);
    rig.assert_dropped(HOST_1, &from(1, [1, 0x80, 0xc2, 0, 0, 0]), DropReason::LinkLocal);
    rig.monitor.groups().set([(7, vec![mac_bytes(2)])]);
    rig.assert_dropped(HOST_1, &from(1, ALL), DropReason::Broadcast);
    rig.monitor.groups().set([]);
    rig.assert_dropped(HOST_2, &from(2, MDNS), DropReason::Multicast);
}

/// A request of DHCP from `source` to everybody, for the client of this name.
fn dhcp(source: u64, client: u64) -> Vec<u8> {
    let mut message = [&[1, 1, 6, 0][..], &[0; 24], &mac_bytes(client)].concat();
    message.resize(300, 0);
    let mut frame = vec![];
    let headers = PacketBuilder::ethernet2(mac_bytes(source), ALL).ipv4([0; 4], [255; 4], 64);
    headers.udp(68, 67).write(&mut frame, &message).unwrap();
    frame
}

#[test]
fn a_host_asks_for_no_address_of_another_and_not_for_ever() {
    let mut rig = rig();
    rig.assert_dropped(HOST_1, &dhcp(1, 77), DropReason::Dhcp);
    assert_eq!(rig.exchange(HOST_1, &dhcp(1, 1)).len(), 2, "each other name of the tenant hears it");
    while rig.counts().dropped(DropReason::DhcpRate) == 0 {
        rig.exchange(HOST_1, &dhcp(1, 1));
        assert_eq!(rig.counts().dropped(DropReason::GroupRate), 0, "it may send no more of these than that");
    }
    assert_eq!(rig.exchange(HOST_2, &dhcp(2, 2)).len(), 3, "another port may");
}

#[test]
fn a_question_for_a_known_address_is_answered_and_one_for_another_is_heard() {
    let mut rig = rig();
    let ip = |i: u8| [10, 0, 0, i];
    rig.writer.valid().put(mac(2), Some(std::net::IpAddr::from(ip(2))));
    let question = |wanted| frames::arp(1, (1, ip(1)), wanted);
    let answered = rig.exchange(HOST_1, &question(ip(2)));
    assert!(answered.len() == 1 && answered[0].0 == HOST_1, "{answered:?}");
    let heard = sorted(rig.exchange(HOST_1, &question(ip(9))));
    assert_eq!(heard.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [HOST_2, TRUNK_8]);
    let reply = frames::arp(2, (1, ip(1)), ip(9));
    rig.assert_dropped(HOST_1, &reply, DropReason::ArpUnknown);
    // An announcement of one's own needs no answer and no hearers.
    rig.assert_dropped(HOST_1, &question(ip(1)), DropReason::ArpOwn);
}

#[test]
fn without_a_check_of_sources_a_name_speaks_to_all_from_its_own_port_alone() {
    let mut rig = Rig::new(NameKind::Mac);
    rig.add(&mac(1), 1);
    rig.add(&mac(2), 2);
    rig.monitor.groups().set([(0, [1, 2].map(mac_bytes).to_vec())]);
    assert_eq!(rig.exchange(HOST_1, &from(1, ALL)), [(HOST_2, from(1, mac_bytes(2)))]);
    rig.assert_dropped(HOST_2, &from(1, ALL), DropReason::SourceMac);
}

#[test]
fn nobody_spends_the_copies_of_another_tenant() {
    // Sources are not checked: whoever is at port 2 sends as name 1, which is at port 1, and whose tenant has 1,000 names.
    let mut rig = Rig::new(NameKind::Mac);
    rig.add(&mac(1), 1);
    rig.add(&mac(2), 3);
    let many = (1..=2).chain(1000..1998).map(mac_bytes).collect();
    rig.monitor.groups().set([(7, many)]);
    for _ in 0..20 {
        rig.assert_dropped(HOST_2, &from(1, ALL), DropReason::SourceMac);
    }
    assert_eq!(rig.exchange(HOST_1, &from(1, ALL)).len(), 1, "name 2 hears it");
    assert_eq!((rig.counts().groups, rig.counts().copies), (1, 999));
}

#[test]
fn a_storm_stays_within_the_port_and_the_tenant() {
    let mut rig = rig();
    let (n, begun) = (u64::from(FRAMES_PER_SECOND), Instant::now());
    for _ in 0..10 * n {
        rig.send(HOST_1, &from(1, ALL));
        rig.run();
    }
    let counts = rig.counts();
    let earned = n * begun.elapsed().as_micros() as u64 / 1_000_000;
    assert!((n..=n + earned + 1).contains(&counts.groups), "{counts:?}");
    assert_eq!(counts.copies, 2 * counts.groups);
    assert_eq!(counts.dropped(DropReason::GroupRate), 10 * n - counts.groups);
    // Frames to names go on.
    assert_eq!(rig.exchange(HOST_1, &between(1, 2)), [(HOST_2, between(1, 2))]);
}

#[test]
fn a_large_tenant_hears_everything_once_and_others_do_not_wait_for_it() {
    let mut rig = rig();
    let names: Vec<u64> = (100..1100).collect();
    names.iter().for_each(|&name| rig.add(&mac(name), 3));
    let members = names.iter().chain(&[1]).map(|&name| mac_bytes(name)).collect();
    rig.monitor.groups().set([(7, members), (8, [2, 3].map(mac_bytes).to_vec())]);
    let begun = Instant::now();
    rig.send(HOST_1, &from(1, ALL));
    rig.worker.poll_once();
    rig.send(HOST_2, &between(2, 5));
    rig.worker.poll_once();
    assert!(rig.counts().copies < 100, "a burst between two polls");
    // More than waits at once, and more copies than the tenant may have.
    for _ in 0..32 {
        rig.send(HOST_1, &from(1, MDNS));
    }
    let mut heard: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut goes_on = true;
    while goes_on {
        goes_on = rig.worker.poll_once() > 0;
        for (port, end) in &mut rig.ends {
            while let Ok(Some(frame)) = end.recv(<[u8]>::to_vec) {
                match *port {
                    HOST_1 => assert_eq!(frame, between(2, 5)),
                    _ => *heard.entry(frame[..6].to_vec()).or_default() += 1,
                }
            }
        }
    }
    let counts = rig.counts();
    let most = u64::from(COPIES_PER_SECOND);
    let earned = most * begun.elapsed().as_micros() as u64 / 1_000_000;
    assert!((9..=(most + earned) / 1000 + 1).contains(&counts.groups), "{counts:?}");
    assert_eq!((counts.copies, counts.dropped(DropReason::GroupRate)), (1000 * counts.groups, 33 - counts.groups));
    // All copies of a frame are made, or none.
    assert!(heard.len() == 1000 && heard.values().all(|&n| u64::from(n) == counts.groups), "{heard:?}");
}

#[test]
fn copies_are_judged_by_the_access_list_of_the_port() {
    for (rules, n_heard) in [(format!("deny udp to any port {PORT}\npermit any\n"), 0), ("permit any\n".to_owned(), 2)]
    {
        let acl = AccessList::of_text(&rules).unwrap();
        let mut rig = Rig::with_acl(NameKind::Mac, &Settings::default(), CheckSource::Mac, acl);
        (1..=3).for_each(|i| rig.add(&mac(i), i));
        rig.monitor.groups().set([(7, [1, 2, 3].map(mac_bytes).to_vec())]);
        assert_eq!(rig.exchange(HOST_1, &from(1, ALL)).len(), n_heard, "{rules}");
        assert_eq!(rig.counts().dropped(DropReason::Acl), 2 - n_heard as u64);
    }
}

#[test]
fn no_copy_goes_to_those_who_have_unknown_names() {
    let settings = Settings { aliens: Policy::Punt(PortId(HOST_2)), ..Settings::default() };
    let mut rig = Rig::with_check(NameKind::Mac, &settings, CheckSource::Mac);
    // As a switch that has all names.
    fib::replica::Tables::valid_held(&mut rig.writer, true);
    rig.add(&mac(1), 1);
    rig.monitor.groups().set([(7, [1, 6].map(mac_bytes).to_vec())]);
    assert_eq!(rig.exchange(HOST_1, &between(1, 6)).len(), 1, "another frame does");
    assert!(rig.exchange(HOST_1, &from(1, ALL)).is_empty());
    assert_eq!((rig.counts().dropped(DropReason::Alien), rig.counts().aliens), (1, 1));
}

/// As [`rig`], with connections tracked, and no connection that a rule accepts.
fn tracking_rig() -> Rig {
    let settings = Settings { flows: Some(Flows::new(Default::default(), 1).unwrap()), ..Settings::default() };
    let mut rig = Rig::with_check(NameKind::Mac, &settings, CheckSource::Mac);
    for (name, value) in [(1, 1), (5, 1), (2, 2), (3, 3), (4, 4)] {
        rig.add(&mac(name), value);
    }
    rig.monitor.groups().set([(7, [1, 2, 3, 5].map(mac_bytes).to_vec()), (8, vec![mac_bytes(4)])]);
    rig
}

/// A frame of IPv6 to a group, with a payload after its header.
fn v6(source: u64, to: &str, hop_limit: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to): (std::net::Ipv6Addr, std::net::Ipv6Addr) = ("fe80::77".parse().unwrap(), to.parse().unwrap());
    let mut frame = [&[0x33, 0x33][..], &to.octets()[12..], &mac_bytes(source), &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([protocol, hop_limit]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend(payload);
    if protocol == 58 {
        let sums = sum(&frame[22..]) + 58 + payload.len() as u64;
        frame[56..58].copy_from_slice(&(!fold(sums)).to_be_bytes());
    }
    frame
}

#[test]
fn where_connections_are_tracked_what_is_said_to_everybody_is_heard_as_elsewhere() {
    let wanted: std::net::Ipv6Addr = "fd00::9".parse().unwrap();
    let solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &wanted.octets()].concat();
    let asked_for_routers = [133, 0, 0, 0, 0, 0, 0, 0];
    let of_dhcpv6 = [&[2, 34, 2, 35, 0, 12, 0, 0][..], &[1, 0, 0, 1]].concat();
    let all = [
        ("an ARP request for an unknown address", frames::arp(1, (1, [10, 0, 0, 1]), [10, 0, 0, 9])),
        ("a neighbour solicitation for one", v6(1, "ff02::1:ff00:9", 255, 58, &solicitation)),
        ("a router solicitation", v6(1, "ff02::2", 255, 58, &asked_for_routers)),
        ("DHCPv6", v6(1, "ff02::1:2", 1, 17, &of_dhcpv6)),
        ("DHCP", dhcp(1, 1)),
        ("mDNS", from(1, MDNS)),
        ("a broadcast", from(1, ALL)),
    ];
    for (what, frame) in all {
        let (mut plain, mut tracking) = (rig(), tracking_rig());
        let expected = sorted(plain.exchange(HOST_1, &frame));
        assert_eq!(expected.len(), 2, "{what}");
        assert_eq!(sorted(tracking.exchange(HOST_1, &frame)), expected, "{what}");
        // The copy for a host behind a trunk passes the stage of its switch.
        let mut copy = expected.iter().find(|(port, _)| *port == TRUNK_8).unwrap().1.clone();
        copy[..6].copy_from_slice(&mac_bytes(2));
        assert_eq!(tracking.exchange(TRUNK_8, &copy).len(), 1, "{what}");
        let dropped = tracking.counts().dropped_total();
        assert_eq!(dropped, 0, "{what}");
    }
    // To one host, a packet needs a rule as before, anyone who claims that it is a copy.
    let mut rig = tracking_rig();
    rig.assert_dropped(HOST_1, &from(1, mac_bytes(2)), DropReason::FlowRefused);
    rig.assert_dropped(TRUNK_8, &with_shim(&from(3, mac_bytes(2)), 9), DropReason::FlowRefused);
}

#[test]
fn what_is_in_flight_when_a_worker_stops_is_copied() {
    let mut rig = rig();
    // A full burst, whose check of sources waits for the next one.
    (0..31).for_each(|_| rig.send(HOST_1, &between(1, 2)));
    rig.send(HOST_1, &from(1, ALL));
    rig.worker.poll_once();
    assert_eq!(rig.counts().groups, 0);
    rig.worker.run(&AtomicBool::new(true), 0).unwrap();
    let counts = rig.counts();
    assert_eq!((counts.received, counts.sent, counts.groups, counts.copies), (32, 33, 1, 2));
    rig.run();
}

#[test]
fn a_copy_to_a_name_that_is_gone_is_dropped_like_any_frame() {
    let mut rig = rig();
    rig.writer.valid().remove(&mac(2));
    let out = rig.exchange(HOST_1, &from(1, ALL));
    assert_eq!(out.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [TRUNK_8]);
    assert_eq!(rig.counts().dropped(DropReason::Alien), 1);
}

const GROUP: [u8; 4] = [239, 1, 2, 3];

/// Multicasts are for subscribers; name 3 wants the group.
fn snooping_rig(check: CheckSource, floods_unknown: bool) -> Rig {
    snooping_rig_with(&Settings::default(), check, floods_unknown)
}

fn snooping_rig_with(settings: &Settings, check: CheckSource, floods_unknown: bool) -> Rig {
    let mut rig = Rig::with_check(NameKind::Mac, settings, check);
    for (name, value) in [(1, 1), (5, 1), (2, 2), (3, 3), (4, 4)] {
        rig.add(&mac(name), value);
    }
    let snooping = Snooping { timing: Timing::new(30), floods_unknown, mdns_for_all: true };
    let told = |id, names: &[u64], wanted| Told { id, names: names.iter().map(|&i| mac_bytes(i)).collect(), wanted };
    let wanted = Wanted { by_group: [(IpAddr::from(GROUP), vec![mac_bytes(3)])].into(), of_all: vec![] };
    rig.monitor.groups().tell(Some(snooping), [told(7, &[1, 2, 3, 5], Some(wanted)), told(8, &[4], None)]);
    rig
}

fn to_group(source: u64, group: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![];
    let to = [1, 0, 0x5e, group[1] & 0x7f, group[2], group[3]];
    let headers = PacketBuilder::ethernet2(mac_bytes(source), to).ipv4([10, 0, 0, source as u8], group, 64);
    headers.udp(4000, PORT).write(&mut frame, &[7; 20]).unwrap();
    frame
}

/// A report of IGMPv2, or a leave.
fn igmp(source: u64, kind: u8, group: [u8; 4]) -> Vec<u8> {
    let summed = |mut bytes: Vec<u8>, at: usize| {
        let checksum = !fold(sum(&bytes));
        bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        bytes
    };
    let header = vec![0x46, 0xc0, 0, 32, 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 0, 0, 1, 224, 0, 0, 2, 0x94, 4, 0, 0];
    let [a, b, c, d] = group;
    let ethernet = [&[1, 0, 0x5e, 0, 0, 2][..], &mac_bytes(source), &[8, 0]].concat();
    let mut frame = [ethernet, summed(header, 10), summed(vec![kind, 0, 0, 0, a, b, c, d], 2)].concat();
    frame.resize(60, 0);
    frame
}

#[test]
fn a_multicast_is_heard_by_those_who_want_its_group_and_by_nobody_else() {
    let mut rig = snooping_rig(CheckSource::Mac, false);
    let shimmed = |frame: &[u8], to: u64| {
        let mut copy = with_shim(&[&mac_bytes(to)[..], &frame[6..]].concat(), INITIAL_HOPS);
        copy[15] = COPY;
        copy
    };
    let frame = to_group(1, GROUP);
    assert_eq!(rig.exchange(HOST_1, &frame), [(TRUNK_8, shimmed(&frame, 3))]);
    // One that nobody wants takes nothing from what the port may send.
    for _ in 0..2 * FRAMES_PER_SECOND {
        rig.assert_dropped(HOST_1, &to_group(1, [239, 1, 2, 4]), DropReason::NoSubscriber);
    }
    // What stays on a link, broadcasts and what is no packet of IP are for all.
    let other = to_group(1, [239, 1, 2, 4]);
    // Nor are hosts asked behind a VLAN tag.
    let tagged = [&other[..12], &[0x81, 0, 0, 5], &other[12..]].concat();
    for frame in [to_group(1, [224, 0, 0, 251]), from(1, ALL), tagged] {
        let out = sorted(rig.exchange(HOST_1, &frame));
        assert_eq!(out.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [HOST_2, TRUNK_8]);
    }
    assert_eq!((rig.counts().groups, rig.counts().copies), (4, 7));

    let mut rig = snooping_rig(CheckSource::Mac, true);
    assert_eq!(rig.exchange(HOST_1, &to_group(1, GROUP)).len(), 1);
    assert_eq!(rig.exchange(HOST_1, &to_group(1, [239, 1, 2, 4])).len(), 2, "the tenant hears what nobody wants");
}

#[test]
fn a_report_is_kept_for_its_name_and_goes_no_further() {
    for check in [CheckSource::Mac, CheckSource::Off] {
        let mut rig = snooping_rig(check, false);
        rig.assert_dropped(HOST_1, &igmp(1, 0x16, GROUP), DropReason::ListenerReport);
        let wanted = |rig: &Rig| rig.monitor.groups().subscriptions().unwrap().all();
        let expected = BTreeMap::from([(mac_bytes(1), vec![IpAddr::from(GROUP)])]);
        assert_eq!(wanted(&rig), expected);
        // Of another name than those at the port, of no tenant, from a trunk; of what everybody hears; a question.
        rig.assert_dropped(HOST_1, &igmp(2, 0x16, GROUP), DropReason::SourceMac);
        rig.assert_dropped(TRUNK_8, &with_shim(&igmp(3, 0x16, GROUP), 9), DropReason::Multicast);
        rig.assert_dropped(HOST_1, &igmp(5, 0x16, [224, 0, 0, 251]), DropReason::ListenerReport);
        rig.assert_dropped(HOST_1, &igmp(5, 0x11, [0; 4]), DropReason::ListenerQuery);
        rig.assert_dropped(HOST_1, &igmp(5, 0x16, [10, 0, 0, 1]), DropReason::ListenerRefused);
        rig.add(&mac(9), 1);
        rig.assert_dropped(HOST_1, &igmp(9, 0x16, GROUP), DropReason::Multicast);
        assert_eq!(wanted(&rig), expected);
        rig.assert_dropped(HOST_1, &igmp(1, 0x17, GROUP), DropReason::ListenerReport);
        assert!(wanted(&rig).is_empty());
        let status = rig.monitor.status().subscriptions.unwrap();
        assert_eq!((status.reports, status.refused, status.subscriptions), (3, 1, 0));
        // A flood is refused.
        let refused = |rig: &Rig| rig.counts().dropped(DropReason::ListenerRefused);
        for i in 0..1000_u16 {
            let [c, d] = i.to_be_bytes();
            assert!(rig.exchange(HOST_1, &igmp(1, 0x16, [239, 9, c, d])).is_empty());
        }
        assert_eq!(wanted(&rig)[&mac_bytes(1)].len(), 64);
        assert!(refused(&rig) > 900, "{}", refused(&rig));
        rig.assert_dropped(HOST_2, &igmp(2, 0x16, GROUP), DropReason::ListenerReport);
    }
}

#[test]
fn reports_above_the_rate_of_a_port_are_refused_whatever_they_say() {
    let subscriptions = Limits { groups_per_name: 5, groups_per_port: 10, reports_per_second: 1 };
    let settings = Settings { subscriptions, ..Settings::default() };
    let mut rig = snooping_rig_with(&settings, CheckSource::Mac, false);
    // It says the same again and again, which changes nothing.
    for _ in 0..1000 {
        assert!(rig.exchange(HOST_1, &igmp(1, 0x16, GROUP)).is_empty());
    }
    let count = |rig: &Rig, reason| rig.counts().dropped(reason);
    let taken = count(&rig, DropReason::ListenerReport);
    assert!((10..100).contains(&taken), "{taken}");
    assert_eq!(count(&rig, DropReason::ListenerRefused), 1000 - taken);
    assert_eq!(rig.monitor.status().subscriptions.unwrap().refused, 1000 - taken);
    rig.assert_dropped(HOST_2, &igmp(2, 0x16, GROUP), DropReason::ListenerReport);
}

#[test]
fn questions_leave_by_host_ports_alone_and_without_snooping_reports_are_heard_like_other_multicasts() {
    let mut rig = snooping_rig(CheckSource::Mac, false);
    let ports: Vec<_> = rig.monitor.host_ports().map(|(index, port, is_up)| (index, port.0, is_up)).collect();
    assert_eq!(ports, [(0, HOST_1, true), (1, HOST_2, true)]);
    let frames = query::general(Timing::new(30));
    rig.monitor.links().send(frames.iter().map(|frame| (1, frame.clone())));
    rig.worker.poll_once();
    assert_eq!(rig.run(), frames.map(|frame| (HOST_2, frame)));
    rig.monitor.groups().set([(7, [1, 2, 3, 5].map(mac_bytes).to_vec())]);
    assert_eq!(rig.exchange(HOST_1, &igmp(1, 0x16, GROUP)).len(), 2);
    assert!(rig.monitor.groups().subscriptions().unwrap().all().is_empty());
    // A switch that tracks connections hears what hosts want as well.
    let mut rig = tracking_rig();
    rig.exchange(HOST_1, &igmp(1, 0x16, GROUP));
    assert!(rig.monitor.groups().subscriptions().is_some());
}

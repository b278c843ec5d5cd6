//! Frames to everybody: each other name of the sender's tenant gets one copy, and nobody else hears anything.

mod common;

use common::*;
use etherparse::PacketBuilder;
use fib::action::PortId;
use fib::name::NameKind;
use fib::replica::Exact;
use fibula_switch::acl::AccessList;
use fibula_switch::alien::Policy;
use fibula_switch::counters::DropReason;
use fibula_switch::dataplane::Settings;
use fibula_switch::flow::Flows;
use fibula_switch::groups::{COPIES_PER_SECOND, FRAMES_PER_SECOND};
use fibula_switch::shim::INITIAL_HOPS;
use fibula_switch::source::CheckSource;
use std::collections::BTreeMap;
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
        let to_3 = with_shim(&from(1, mac_bytes(3)), INITIAL_HOPS);
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
    rig.assert_dropped(HOST_1, &from(1, [1, 0x80, 0xc2, 0, 0, 0]), DropReason::Multicast);
    rig.monitor.groups().set([(7, vec![mac_bytes(2)])]);
    rig.assert_dropped(HOST_1, &from(1, ALL), DropReason::Broadcast);
    rig.monitor.groups().set([]);
    rig.assert_dropped(HOST_2, &from(2, MDNS), DropReason::Multicast);
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
    for (rules, n_heard) in [(format!("deny udp to any port {PORT}\npermit\n"), 0), ("permit\n".to_owned(), 2)] {
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

#[test]
fn a_switch_that_tracks_connections_carries_nothing_to_everybody() {
    let flows = Flows::new(Default::default(), 1).unwrap();
    let settings = Settings { flows: Some(flows), ..Settings::default() };
    let mut rig = Rig::with_check(NameKind::Mac, &settings, CheckSource::Mac);
    (1..=2).for_each(|i| rig.add(&mac(i), i));
    rig.monitor.groups().set([(7, [1, 2].map(mac_bytes).to_vec())]);
    assert!(rig.exchange(HOST_1, &from(1, ALL)).is_empty());
    assert_eq!(rig.counts().originated, 0);
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

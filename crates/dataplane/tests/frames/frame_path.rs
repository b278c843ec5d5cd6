//! Packets in, packets out: the frame path of a switch while its tables and ports change, one rule a test. What must become of
//! which frame, over every driver: `drivers/fixtures`.

use crate::common::*;
use dataplane::assembly::Settings;
use dataplane::counters::DropReason;
use dataplane::links::Neighbour;
use dataplane::shim::{DETOUR, INITIAL_HOPS, TURNED};
use fib::action::{Action, PortId, Ways};
use fib::name::NameKind;
use fib::replica::Exact;
use fib::topology::NodeId;
use lookup::hash::{Family, Hasher, SecretKey};

#[test]
fn an_alien_name_is_stopped_where_it_enters_whatever_the_fib_says() {
    let mut rig = Rig::new(NameKind::Mac);
    rig.route(&mac(5), 3);
    rig.assert_dropped(HOST_1, &to_mac(5), DropReason::Alien);
    rig.writer.valid().put(mac(5), None);
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)).len(), 1);
    rig.writer.valid().remove(&mac(5));
    rig.assert_dropped(HOST_1, &to_mac(5), DropReason::Alien);
}

#[test]
fn ten_thousand_aliens_reach_nobody() {
    let mut rig = Rig::new(NameKind::Mac);
    for i in 0..100 {
        rig.add(&mac(i), 1 + i % 4);
    }
    for i in 1000..11_000u64 {
        rig.send(HOST_1, &to_mac(i));
        // From a trunk aliens are not checked: they may go astray, but to no host.
        rig.send(TRUNK_8, &with_shim(&to_mac(i), 9));
        let out = rig.run();
        assert!(out.iter().all(|(port, _)| *port == TRUNK_9), "{out:?}");
    }
    assert_eq!(rig.counts().dropped(DropReason::Alien), 10_000);
}

#[test]
fn a_wrong_fib_cannot_make_a_frame_reach_the_wrong_host() {
    let mut rig = Rig::new(NameKind::Mac);
    rig.add(&mac(5), 1);
    // The FIB now sends it to the other host's port.
    rig.route(&mac(5), 2);
    rig.assert_dropped(TRUNK_8, &with_shim(&to_mac(5), 9), DropReason::NotLocal);
    rig.assert_dropped(HOST_1, &to_mac(5), DropReason::NotLocal);
    // And a name of another switch to a host here.
    rig.add(&mac(6), 3);
    rig.route(&mac(6), 1);
    rig.assert_dropped(TRUNK_8, &with_shim(&to_mac(6), 9), DropReason::NotLocal);
}

#[test]
fn every_value_of_the_fib_that_names_no_way_is_a_counted_drop() {
    let mut rig = Rig::new(NameKind::Mac);
    let tunnel = Action::Tunnel { node: NodeId(3), remote: "10.0.0.1".parse().unwrap() };
    rig.writer.set_actions(&[Action::Drop, Action::Port(PortId(500)), Action::Punt, tunnel, Action::Port(PortId(3))]);
    for (i, reason) in [
        (0, DropReason::NoRoute),
        (1, DropReason::NoPort),
        (2, DropReason::Unsupported),
        (3, DropReason::Unsupported),
        (4, DropReason::NoPort),
        (5, DropReason::NoAction),
        (255, DropReason::NoAction),
    ] {
        rig.writer.valid().put(mac(i), None);
        rig.route(&mac(i), i);
        rig.assert_dropped(HOST_1, &to_mac(i), reason);
    }
}

#[test]
fn a_removed_name_is_dropped_everywhere() {
    let mut rig = Rig::new(NameKind::Mac);
    rig.add(&mac(5), 3);
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)).len(), 1);
    rig.unroute(&mac(5));
    rig.assert_dropped(HOST_1, &to_mac(5), DropReason::NoRoute);
    rig.assert_dropped(TRUNK_9, &with_shim(&to_mac(5), 9), DropReason::NoRoute);
}

#[test]
fn in_egress_mode_local_means_the_exact_table_and_other_values_a_port() {
    let mut rig = Rig::new(NameKind::Mac);
    // Values are switches here: 1 is this one, 2 and 3 are behind the trunks.
    rig.writer.set_actions(&[
        Action::Drop,
        Action::Local,
        Action::Port(PortId(TRUNK_8)),
        Action::Port(PortId(TRUNK_9)),
    ]);
    for (i, value) in [(5, 1), (6, 2), (7, 3), (8, 1)] {
        rig.writer.valid().put(mac(i), None);
        rig.route(&mac(i), value);
    }
    rig.writer.local().put(mac(5), PortId(HOST_2));
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)), [(HOST_2, to_mac(5))]);
    assert_eq!(rig.exchange(TRUNK_9, &with_shim(&to_mac(5), 3)), [(HOST_2, to_mac(5))]);
    assert_eq!(rig.exchange(HOST_1, &to_mac(6)), [(TRUNK_8, with_shim(&to_mac(6), INITIAL_HOPS))]);
    assert_eq!(rig.exchange(TRUNK_8, &with_shim(&to_mac(7), 3)), [(TRUNK_9, with_shim(&to_mac(7), 2))]);
    rig.assert_dropped(HOST_1, &to_mac(8), DropReason::NotLocal);
    rig.assert_dropped(HOST_2, &to_mac(5), DropReason::InputPort);
    // A link is cut: the rows change, not a cell of the FIB.
    rig.writer.set_actions(&[
        Action::Drop,
        Action::Local,
        Action::Port(PortId(TRUNK_9)),
        Action::Port(PortId(TRUNK_9)),
    ]);
    assert_eq!(rig.exchange(HOST_1, &to_mac(6)), [(TRUNK_9, with_shim(&to_mac(6), INITIAL_HOPS))]);
}

#[test]
fn while_a_trunk_is_down_frames_take_the_alternate_and_no_longer() {
    let mut rig = Rig::new(NameKind::Mac);
    let protected = |port, alternate| Action::Protected { port: PortId(port), alternate: PortId(alternate) };
    rig.writer.set_actions(&[
        Action::Drop,
        protected(TRUNK_8, TRUNK_9),
        protected(TRUNK_9, 77),
        protected(TRUNK_8, HOST_2),
    ]);
    for (i, value) in [(5, 1), (6, 2), (7, 3)] {
        rig.writer.valid().put(mac(i), None);
        rig.route(&mac(i), value);
    }
    let links = rig.monitor.links().clone();
    let index = |id| rig.monitor.trunks().find(|(_, port, _)| *port == PortId(id)).unwrap().0;
    let (eight, nine) = (index(TRUNK_8), index(TRUNK_9));
    let go =
        |rig: &mut Rig, i: u64| rig.exchange(HOST_1, &to_mac(i)).into_iter().map(|(port, _)| port).collect::<Vec<_>>();
    assert_eq!([5, 6, 7].map(|i| go(&mut rig, i)), [[TRUNK_8], [TRUNK_9], [TRUNK_8]]);
    links.set_down(eight, true);
    // What has no alternate goes where it may still arrive; a host is no alternate.
    assert_eq!([5, 6, 7].map(|i| go(&mut rig, i)), [[TRUNK_9], [TRUNK_9], [TRUNK_8]]);
    // The shim says that it goes by an alternate, and no second switch sends it by another: it goes where it may still arrive.
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)), [(TRUNK_9, with_flags(&to_mac(5), INITIAL_HOPS, DETOUR))]);
    assert_eq!(rig.exchange(TRUNK_8, &with_flags(&to_mac(5), 9, 0x80)), [(TRUNK_9, with_flags(&to_mac(5), 8, 0x81))]);
    // It came from there: the neighbour has this switch among its ways, and turns it. Once.
    assert_eq!(rig.exchange(TRUNK_9, &with_shim(&to_mac(5), 9)), [(TRUNK_9, with_flags(&to_mac(5), 8, DETOUR))]);
    // One that comes on a detour by the link that is down this way goes on, and is not marked: who gets it may have to turn it, too.
    assert_eq!(
        rig.exchange(TRUNK_8, &with_flags(&to_mac(5), 9, DETOUR)),
        [(TRUNK_9, with_flags(&to_mac(5), 8, DETOUR))]
    );
    links.set_down(nine, true);
    assert_eq!([5, 6].map(|i| go(&mut rig, i)), [[TRUNK_8], [TRUNK_9]]);
    links.set_down(eight, false);
    assert_eq!(go(&mut rig, 5), [TRUNK_8]);
    // Its neighbour has lost its own ways: the alternate serves if it is up, and no frame without the mark.
    rig.assert_dropped(TRUNK_8, &with_flags(&to_mac(5), 9, DETOUR), DropReason::InputPort);
    links.set_down(nine, false);
    assert_eq!(
        rig.exchange(TRUNK_8, &with_flags(&to_mac(5), 9, DETOUR)),
        [(TRUNK_9, with_flags(&to_mac(5), 8, DETOUR))]
    );
    for flags in [0, TURNED, DETOUR | TURNED] {
        rig.assert_dropped(TRUNK_8, &with_flags(&to_mac(5), 9, flags), DropReason::InputPort);
    }
    // By a parallel link none goes back.
    let neighbour = |switch: &str| Neighbour { switch: switch.to_owned(), port: PortId(1) };
    links.set_neighbour(eight, Some(&neighbour("s2")));
    links.set_neighbour(nine, Some(&neighbour("s2")));
    rig.assert_dropped(TRUNK_8, &with_flags(&to_mac(5), 9, DETOUR), DropReason::InputPort);
}

/// Flows between two hosts, of numbered frames.
fn frame_of(flow: u16, number: u8) -> Vec<u8> {
    let mut frame = frames::udp4(&[number], 4789);
    frame[..6].copy_from_slice(&mac_bytes(5));
    frame[34..36].copy_from_slice(&flow.to_be_bytes());
    frame
}

/// The trunk by which each flow left. Its frames left by no other, in their order.
fn trunks_of_flows(rig: &mut Rig, n_flows: u16) -> Vec<u16> {
    const FRAMES: u8 = 8;
    let mut out = Vec::new();
    for number in 0..FRAMES {
        for flows in (0..n_flows).collect::<Vec<_>>().chunks(60) {
            flows.iter().for_each(|flow| rig.send(HOST_1, &frame_of(*flow, number)));
            out.extend(rig.run());
        }
    }
    let of = |flow: u16| {
        let mut left = out.iter().filter(|(_, frame)| frame[38..40] == flow.to_be_bytes());
        let (trunk, _) = left.clone().next().unwrap();
        assert!(
            left.clone().map(|(_, frame)| frame[46]).eq(0..FRAMES),
            "flow {flow}: frames are lost, or out of order"
        );
        assert!(left.all(|(by, _)| by == trunk), "flow {flow} takes several ways");
        *trunk
    };
    (0..n_flows).map(of).collect()
}

#[test]
fn flows_are_spread_over_ways_and_only_those_of_a_trunk_that_is_down_move() {
    const FLOWS: u16 = 600;
    let mut rig = Rig::new(NameKind::Mac);
    let spread = |ways: [u16; 2], alternate: Option<u16>| Action::Spread {
        ways: Ways::new(ways.map(PortId)).unwrap(),
        alternate: alternate.map(PortId),
    };
    rig.writer.set_actions(&[
        Action::Drop,
        spread([TRUNK_8, TRUNK_9], None),
        spread([TRUNK_8, HOST_2], Some(TRUNK_9)),
        spread([HOST_2, 77], None),
    ]);
    for (i, value) in [(5, 1), (6, 2), (7, 3)] {
        rig.writer.valid().put(mac(i), None);
        rig.route(&mac(i), value);
    }
    let links = rig.monitor.links().clone();
    let index = |id| rig.monitor.trunks().find(|(_, port, _)| *port == PortId(id)).unwrap().0;
    let (eight, nine) = (index(TRUNK_8), index(TRUNK_9));
    let whole = trunks_of_flows(&mut rig, FLOWS);
    // Six standard deviations, of the slots and of the flows together.
    let by_eight = whole.iter().filter(|trunk| **trunk == TRUNK_8).count();
    assert!((190..=410).contains(&by_eight), "{by_eight} of {FLOWS}");
    // From a trunk, behind its shim, a flow takes the same way, but never back: then the other, if it is on a detour.
    assert!(whole[..20].contains(&TRUNK_8) && whole[..20].contains(&TRUNK_9));
    for flow in 0..20 {
        for (entry, other) in [(TRUNK_8, TRUNK_9), (TRUNK_9, TRUNK_8)] {
            let with = |hops, flags| with_flags(&frame_of(flow, 0), hops, flags);
            let is_own = whole[usize::from(flow)] == entry;
            let turned = if is_own { DETOUR | TURNED } else { DETOUR };
            assert_eq!(rig.exchange(entry, &with(9, DETOUR)), [(other, with(8, turned))]);
            // One that is on no detour comes back by tables that do not agree, and one that has turned does not turn again.
            for flags in [0, TURNED, DETOUR | TURNED] {
                if is_own {
                    rig.assert_dropped(entry, &with(9, flags), DropReason::InputPort);
                } else {
                    assert_eq!(rig.exchange(entry, &with(9, flags)), [(other, with(8, flags))]);
                }
            }
        }
    }
    links.set_down(eight, true);
    assert_eq!(trunks_of_flows(&mut rig, FLOWS), vec![TRUNK_9; FLOWS.into()]);
    rig.assert_dropped(TRUNK_9, &with_shim(&frame_of(0, 0), 9), DropReason::InputPort);
    // While all ways are down there is the alternate; a host's port is no way.
    assert_eq!(rig.exchange(HOST_1, &to_mac(6))[0].0, TRUNK_9);
    links.set_down(nine, true);
    assert_eq!(trunks_of_flows(&mut rig, FLOWS), whole, "each may still do");
    links.set_down(eight, false);
    assert_eq!(rig.exchange(HOST_1, &to_mac(6))[0].0, TRUNK_8);
    links.set_down(nine, false);
    assert_eq!(trunks_of_flows(&mut rig, FLOWS), whole, "they come back");
    rig.assert_dropped(HOST_1, &to_mac(7), DropReason::NotLocal);
}

#[test]
fn ways_have_flows_as_they_weigh_and_a_bundle_as_often_as_it_has_members() {
    const FLOWS: u16 = 600;
    let mut rig = Rig::new(NameKind::Mac);
    let weigh = |rig: &mut Rig, eight, nine| {
        let ways = Ways::weighed([(PortId(TRUNK_8), eight), (PortId(TRUNK_9), nine)]).unwrap();
        rig.writer.set_actions(&[Action::Drop, Action::Spread { ways, alternate: None }]);
        trunks_of_flows(rig, FLOWS)
    };
    rig.writer.valid().put(mac(5), None);
    rig.route(&mac(5), 1);
    let links = rig.monitor.links().clone();
    let index = |id| rig.monitor.trunks().find(|(_, port, _)| *port == PortId(id)).unwrap().0;
    let (eight, nine) = (index(TRUNK_8), index(TRUNK_9));
    let by_eight = |trunks: &[u16]| trunks.iter().filter(|trunk| **trunk == TRUNK_8).count();
    /// Flows that moved, all of them to this trunk.
    #[track_caller]
    fn moved(before: &[u16], after: &[u16], to: u16) -> usize {
        let moved: Vec<u16> = before.iter().zip(after).filter(|(a, b)| a != b).map(|(_, to)| *to).collect();
        assert!(moved.iter().all(|trunk| *trunk == to), "{moved:?}");
        moved.len()
    }

    let even = weigh(&mut rig, 1, 1);
    assert_eq!(weigh(&mut rig, 64, 64), even);
    // Three quarters of 600, and six standard deviations, of the slots and of the flows together.
    let three = weigh(&mut rig, 3, 1);
    assert!((355..=545).contains(&by_eight(&three)), "{} of {FLOWS}", by_eight(&three));
    assert!(moved(&even, &three, TRUNK_8) > 30);
    // The other one is a bundle now: 3 to 3.
    links.set_members(nine, 3);
    let bundle = trunks_of_flows(&mut rig, FLOWS);
    assert_eq!(bundle, even);
    // One of its members goes, and comes back.
    links.set_members(nine, 2);
    let two = trunks_of_flows(&mut rig, FLOWS);
    assert!(moved(&bundle, &two, TRUNK_8) > 10 && by_eight(&two) < by_eight(&three));
    links.set_members(nine, 3);
    assert_eq!(trunks_of_flows(&mut rig, FLOWS), even);
    // A way that is down, and one that is a bundle of one.
    links.set_down(eight, true);
    assert_eq!(trunks_of_flows(&mut rig, FLOWS), vec![TRUNK_9; FLOWS.into()]);
    links.set_down(eight, false);
    links.set_members(nine, 1);
    assert_eq!(trunks_of_flows(&mut rig, FLOWS), three);
}

#[test]
fn hellos_leave_by_their_trunk_and_go_no_further_when_they_come() {
    use dataplane::links::Hello;
    let mut rig = Rig::new(NameKind::Mac);
    let links = rig.monitor.links().clone();
    let index = |id| rig.monitor.trunks().find(|(_, port, _)| *port == PortId(id)).unwrap().0;
    let nine = index(TRUNK_9);
    let (hears, cluster, interval_ms, multiplier) = (None, 0, 100, 3);
    let hello = Hello { switch: "s2".to_owned(), port: PortId(4), session: 9, hears, cluster, interval_ms, multiplier };
    links.send([(nine, hello.encode()), (250, hello.encode())]);
    assert_eq!(rig.run(), [(TRUNK_9, hello.encode())]);
    assert_eq!((rig.counts().originated, rig.counts().sent), (1, 1));

    // One that waited while there was no switch is no sign of life.
    rig.waits.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(rig.exchange(TRUNK_9, &hello.encode()).is_empty());
    assert_eq!((links.take_heard().0, rig.counts().hellos), (vec![], 1));
    rig.waits.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(rig.exchange(TRUNK_9, &hello.encode()).is_empty());
    assert_eq!((links.take_heard().0, rig.counts().hellos), (vec![(nine, hello.clone())], 2));
    // A host says nothing as a switch, and what is no hello is a multicast as before.
    rig.assert_dropped(HOST_1, &hello.encode(), DropReason::LinkLocal);
    let mut wrong = hello.encode();
    wrong[18] = 99;
    rig.assert_dropped(TRUNK_9, &wrong, DropReason::Multicast);
    assert!(links.take_heard().0.is_empty());
    // A flood is bounded.
    for _ in 0..20_000 {
        assert!(rig.exchange(TRUNK_9, &hello.encode()).is_empty());
    }
    let (heard, unread) = links.take_heard();
    assert_eq!(heard.len() as u64 + unread[&nine], 20_000);
    assert!(unread[&nine] > 0 && rig.counts().hellos == 20_002);
}

#[test]
fn a_name_that_moves_is_delivered_at_its_new_port() {
    let mut rig = Rig::new(NameKind::Mac);
    rig.add(&mac(5), 1);
    rig.add(&mac(5), 2);
    assert_eq!(rig.exchange(TRUNK_8, &with_shim(&to_mac(5), 9)), [(HOST_2, to_mac(5))]);
    rig.writer.local().remove(&mac(5));
    rig.assert_dropped(TRUNK_8, &with_shim(&to_mac(5), 9), DropReason::NotLocal);
}

#[test]
fn without_a_fib_everything_is_dropped_and_the_reason_is_told() {
    let mut rig = Rig::without_fib(NameKind::Mac, &Settings::default());
    rig.assert_dropped(HOST_1, &to_mac(5), DropReason::NoFib);
    rig.add(&mac(5), 2);
    rig.publish_fib();
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)), [(HOST_2, to_mac(5))]);
}

#[test]
fn another_hash_key_and_kind_take_over_between_two_bursts() {
    let mut rig = Rig::new(NameKind::Mac);
    rig.add(&mac(5), 2);
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)).len(), 1);
    // The names stay valid and local; only how they are hashed changes. The FIB holds the name under both digests.
    rig.hasher = Hasher::new(Family::Wy, &SecretKey::from_seed(99));
    rig.route(&mac(5), 2);
    rig.publish_fib();
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)), [(HOST_2, to_mac(5))]);
    rig.kind = NameKind::Ipv4;
    rig.publish_fib();
    rig.assert_dropped(HOST_1, &to_mac(5), DropReason::Truncated);
}

#[test]
fn a_full_queue_and_a_closed_port_lose_frames_by_name_and_nothing_else() {
    let mut rig = Rig::new(NameKind::Mac);
    rig.add(&mac(5), 2);
    rig.add(&mac(6), 3);
    for _ in 0..300 {
        rig.send(HOST_1, &to_mac(5));
        while rig.worker.poll_once() > 0 {}
    }
    assert_eq!(rig.counts().dropped(DropReason::TxFull), 300 - 256);
    assert_eq!(rig.run().len(), 256);
    rig.ends.retain(|(id, _)| *id != HOST_2);
    rig.assert_dropped(HOST_1, &to_mac(5), DropReason::PortDown);
    let status = rig.monitor.status();
    let port = status.ports.iter().find(|port| port.id == PortId(HOST_2)).unwrap();
    assert!(!port.up && port.last_failure.as_ref().unwrap().error.contains("closed"));
    rig.assert_dropped(HOST_1, &to_mac(5), DropReason::PortDown);
    assert_eq!(rig.exchange(HOST_1, &to_mac(6)).len(), 1, "the other ports work on");
}

#[test]
fn a_burst_of_everything_at_once_is_sorted_out_frame_by_frame() {
    let mut rig = Rig::new(NameKind::Mac);
    (1..=4).for_each(|i| rig.add(&mac(i), i));
    let frames: Vec<_> = (0..96u64)
        .map(|i| match i % 6 {
            5 => vec![0; 3],
            4 => ethernet([0xff; 6], mac_bytes(9), 0x0800, &[]),
            _ => to_mac(1 + i % 6),
        })
        .collect();
    frames.iter().for_each(|frame| rig.send(HOST_1, frame));
    let out = rig.run();
    let to = |port| out.iter().filter(|(id, _)| *id == port).count();
    assert_eq!((to(HOST_1), to(HOST_2), to(TRUNK_8), to(TRUNK_9)), (0, 16, 16, 16));
    let counts = rig.counts();
    let dropped = [DropReason::InputPort, DropReason::Broadcast, DropReason::Runt].map(|r| counts.dropped(r));
    assert_eq!(dropped, [16, 16, 16]);
}

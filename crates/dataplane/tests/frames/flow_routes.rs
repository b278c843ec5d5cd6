//! Flows remember where their packets leave, and every change of that takes effect with the next packet.

use crate::common::frames::{GATEWAY, udp4};
use crate::common::*;
use crate::moving::{self, tracking};
use dataplane::alien::Policy;
use dataplane::assembly::Settings;
use dataplane::counters::DropReason;
use dataplane::shim::INITIAL_HOPS;
use fib::action::{Action, PortId};
use fib::designs::{CFW, CONCISE, CUCKOO, OFW};
use fib::name::{Name, NameKind};
use fib::replica::{Exact, Tables};
use netio::BURST;

fn settle(rig: &mut Rig, frame: &[u8], port: u16) {
    for _ in 0..3 {
        assert_eq!(rig.exchange(HOST_1, frame), [(port, out_of(port, frame))]);
    }
}

fn out_of(port: u16, frame: &[u8]) -> Vec<u8> {
    if port >= TRUNK_8 { with_shim(frame, INITIAL_HOPS) } else { frame.to_vec() }
}

#[test]
fn a_flow_remembers_its_port_of_exit_until_it_hears_of_a_change() {
    let frame = udp4(b"hello there, this is long enough", 53);
    let address = Name::from_bytes(NameKind::Ipv4, &[10, 0, 0, 2]).unwrap();
    for (kind, name) in [(NameKind::Mac, Name::from_bytes(NameKind::Mac, &GATEWAY).unwrap()), (NameKind::Ipv4, address)]
    {
        let mut rig = Rig::with_settings(kind, &tracking());
        rig.add(&name, 3);
        settle(&mut rig, &frame, TRUNK_8);
        // A change behind the writer's back is not seen: the name is not looked up.
        rig.route(&name, 4);
        settle(&mut rig, &frame, TRUNK_8);
        rig.writer.fib_changed();
        settle(&mut rig, &frame, TRUNK_9);
    }
}

/// A flow to an unknown name goes to the port for these, and with its next packet to the name once that is known.
#[test]
fn a_flow_to_an_unknown_name_remembers_no_port() {
    let frame = udp4(b"hello there, this is long enough", 53);
    let name = Name::from_bytes(NameKind::Mac, &GATEWAY).unwrap();
    let aliens = Policy::Punt(PortId(HOST_2));
    let mut rig = Rig::with_settings(NameKind::Mac, &Settings { aliens, ..tracking() });
    rig.writer.valid_held(true);
    settle(&mut rig, &frame, HOST_2);
    assert_eq!(rig.counts().aliens, 3);
    // The route alone, behind the writer's back: had the flow learnt the port, it would go on to use it.
    rig.route(&name, 3);
    rig.writer.valid().put(name.clone(), None);
    settle(&mut rig, &frame, TRUNK_8);
    rig.writer.valid().remove(&name);
    settle(&mut rig, &frame, HOST_2);
    assert_eq!(rig.counts().aliens, 6);
}

#[test]
fn every_change_takes_effect_with_the_next_packet_of_a_flow() {
    let mut rig = Rig::with_settings(NameKind::Mac, &tracking());
    let (name, frame) = (Name::from_bytes(NameKind::Mac, &GATEWAY).unwrap(), udp4(b"x", 53));
    let frame = &frame[..];
    rig.add(&name, 3);
    settle(&mut rig, frame, TRUNK_8);

    rig.writer.valid().remove(&name);
    rig.assert_dropped(HOST_1, frame, DropReason::Alien);
    rig.writer.valid().put(name.clone(), None);
    settle(&mut rig, frame, TRUNK_8);
    rig.writer.valid().replace_with(vec![]);
    rig.assert_dropped(HOST_1, frame, DropReason::Alien);
    rig.writer.valid().replace_with(vec![(name.clone(), None)]);
    settle(&mut rig, frame, TRUNK_8);

    let to = |id| Action::Port(PortId(id));
    rig.writer.set_actions(&[Action::Drop, to(HOST_1), to(HOST_2), to(TRUNK_9), to(TRUNK_8)]);
    settle(&mut rig, frame, TRUNK_9);
    rig.writer.set_actions(&[Action::Drop, Action::Drop, Action::Drop, Action::Drop]);
    rig.assert_dropped(HOST_1, frame, DropReason::NoRoute);
    rig.writer.set_actions(&[Action::Drop, to(HOST_1), Action::Local, Action::Local]);
    rig.assert_dropped(HOST_1, frame, DropReason::NotLocal);
    rig.writer.local().put(name.clone(), PortId(HOST_2));
    settle(&mut rig, frame, HOST_2);
    rig.writer.local().put(name.clone(), PortId(HOST_1));
    rig.assert_dropped(HOST_1, frame, DropReason::InputPort);
    rig.writer.local().put(name.clone(), PortId(HOST_2));
    settle(&mut rig, frame, HOST_2);
    rig.writer.local().remove(&name);
    rig.assert_dropped(HOST_1, frame, DropReason::NotLocal);
    rig.writer.local().replace_with(vec![(name.clone(), PortId(HOST_2))]);
    settle(&mut rig, frame, HOST_2);
    rig.writer.local().replace_with(vec![]);
    rig.assert_dropped(HOST_1, frame, DropReason::NotLocal);

    // Another FIB, which knows nothing.
    rig.writer.set_actions(&[Action::Drop, to(HOST_1), to(HOST_2), to(TRUNK_8), to(TRUNK_9)]);
    settle(&mut rig, frame, TRUNK_8);
    let other = Rig::without_fib(NameKind::Mac, &Settings::default());
    rig.take_fib_of(other);
    rig.assert_dropped(HOST_1, frame, DropReason::NoRoute);
}

#[test]
fn what_is_remembered_is_only_for_the_same_name_from_the_same_kind_of_port() {
    let mut rig = Rig::with_settings(NameKind::Mac, &tracking());
    let (name, frame) = (Name::from_bytes(NameKind::Mac, &GATEWAY).unwrap(), udp4(b"x", 53));
    rig.add(&name, 3);
    settle(&mut rig, &frame, TRUNK_8);
    // The same addresses and ports to another name, and by another port.
    let mut other = frame.clone();
    other[..6].copy_from_slice(&mac_bytes(7));
    rig.assert_dropped(HOST_1, &other, DropReason::Alien);
    rig.add(&mac(7), 2);
    settle(&mut rig, &other, HOST_2);
    settle(&mut rig, &frame, TRUNK_8);
    rig.assert_dropped(TRUNK_8, &with_shim(&frame, 9), DropReason::InputPort);
    for _ in 0..3 {
        assert_eq!(rig.exchange(TRUNK_9, &with_shim(&frame, 9)), [(TRUNK_8, with_shim(&frame, 8))]);
        // From a trunk a name need not be valid, from a host it must.
        rig.writer.valid().remove(&name);
        assert_eq!(rig.exchange(TRUNK_9, &with_shim(&frame, 9)).len(), 1);
        assert_eq!(rig.exchange(TRUNK_9, &with_shim(&frame, 9)).len(), 1);
        rig.assert_dropped(HOST_1, &frame, DropReason::Alien);
        rig.writer.valid().put(name.clone(), None);
        settle(&mut rig, &frame, TRUNK_8);
    }
}

#[test]
fn frames_of_flows_leave_in_order_while_two_bursts_are_in_flight() {
    const N_FLOWS: usize = 40;
    let settings = tracking();
    let stage = settings.flows.as_ref().unwrap().stage(0);
    let mut rig = Rig::with_settings(NameKind::Mac, &settings);
    rig.add(&Name::from_bytes(NameKind::Mac, &GATEWAY).unwrap(), 3);
    // The second frame of each flow is in the burst after that of the first, or in the same.
    let frame = |i: usize| udp4(format!("number {i}, and this is long enough").as_bytes(), (53 + i % N_FLOWS) as u16);
    let sent: Vec<Vec<u8>> = (0..6 * BURST + 5).map(frame).collect();
    sent.iter().for_each(|frame| rig.send(HOST_1, frame));
    let left = |rig: &Rig| rig.counts().sent as usize;
    for bursts in 0..6 {
        assert_eq!(rig.worker.poll_once(), BURST);
        assert_eq!(left(&rig), BURST * [0, 0, 1, 2, 3, 4][bursts], "of one burst the flows come, of one the names");
    }
    assert_eq!((rig.worker.poll_once(), left(&rig)), (5, sent.len()), "a burst that is not full waits for nothing");
    let expected: Vec<_> = sent.iter().map(|frame| (TRUNK_8, out_of(TRUNK_8, frame))).collect();
    assert_eq!(rig.run(), expected);
    let counts = stage.lock().unwrap().counts();
    assert_eq!((counts.begun as usize, counts.tracked as usize), (N_FLOWS, sent.len() - N_FLOWS));
    // Without a following burst, full ones are finished by a poll that receives nothing.
    sent[..2 * BURST].iter().for_each(|frame| rig.send(HOST_1, frame));
    assert_eq!((rig.worker.poll_once(), rig.worker.poll_once(), left(&rig)), (BURST, BURST, sent.len()));
    assert_eq!((rig.worker.poll_once(), left(&rig)), (0, sent.len() + 2 * BURST));
    assert_eq!(rig.run(), expected[..2 * BURST]);
}

#[test]
fn a_name_that_moves_through_the_network_takes_its_open_flows_along() {
    moving::takes_its_open_flows_along(&[&CONCISE, &OFW, &CFW, &CUCKOO]);
}

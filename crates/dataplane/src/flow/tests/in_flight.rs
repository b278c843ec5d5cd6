//! Bursts in flight: the lookups of a burst begin before the burst before it has changed any flow.

use super::*;
use crate::flow::nat::NatSettings;
use lookup::testkit::{Rng, seed};
use std::slice::from_ref;

/// Two bursts, of which the second begins, and may advance, before the first is finished.
fn overlapped(rig: &mut Rig, bursts: [&[Vec<u8>]; 2], advances: bool) -> [Vec<Result<Vec<u8>, DropReason>>; 2] {
    let mut packets = bursts.map(|frames| frames.iter().map(|frame| Packet::from_frame(frame)).collect::<Burst>());
    let mut trackings = [Tracking::default(), Tracking::default()];
    for (tracking, burst) in trackings.iter_mut().zip(&packets) {
        rig.stage.begin(tracking, burst, false, 1);
        if advances {
            rig.stage.advance(tracking);
        }
    }
    for (tracking, burst) in trackings.iter_mut().zip(&mut packets) {
        rig.stage.finish(tracking, burst, PortId(1), rig.now, &rig.neighbours);
    }
    std::array::from_fn(|i| fates(&packets[i], &trackings[i]))
}

#[test]
fn the_second_frame_of_a_new_flow_belongs_to_it_although_its_lookup_began_before_the_first() {
    for advances in [false, true] {
        let mut rig = Rig::filter();
        let (syn, answer) = (tcp(C, S, SYN, (1, 0), b""), tcp(S, C, SYN_ACK, (7, 2), b""));
        let got = overlapped(&mut rig, [from_ref(&syn), from_ref(&answer)], advances);
        assert_eq!(got, [[Ok(syn)], [Ok(answer)]]);
        let again = tcp(C, S, ACK, (2, 8), b"");
        let data = tcp(C, S, ACK, (2, 8), b"hello");
        assert_eq!(overlapped(&mut rig, [from_ref(&again), from_ref(&data)], advances), [[Ok(again)], [Ok(data)]]);
        let view = rig.views().remove(0);
        assert_eq!((view.state, view.packets, rig.stage.counts().begun), (State::Established, [3, 1], 1));
    }
}

#[test]
fn both_bursts_may_have_the_first_frame_of_a_flow() {
    for advances in [false, true] {
        let mut rig = Rig::filter();
        let frame = udp(C, S, b"x");
        let got = overlapped(&mut rig, [from_ref(&frame), &[frame.clone(), frame.clone()]], advances);
        assert!(got.iter().flatten().all(|fate| fate.as_deref() == Ok(&frame[..])));
        assert_eq!((rig.stage.counts().begun, rig.views()[0].packets), (1, [3, 0]));
    }
}

#[test]
fn a_frame_of_a_flow_that_the_burst_before_began_anew_belongs_to_the_new_flow() {
    for advances in [false, true] {
        let mut rig = Rig::filter();
        for frame in [tcp(C, S, SYN, (1, 0), b""), tcp(S, C, SYN_ACK, (7, 2), b""), tcp(C, S, ACK, (2, 8), b"")] {
            rig.pass(&frame);
        }
        rig.pass(&tcp(C, S, RST | ACK, (2, 8), b""));
        let (syn, answer) = (tcp(C, S, SYN, (9_000_000, 0), b""), tcp(S, C, SYN_ACK, (70, 9_000_001), b""));
        let got = overlapped(&mut rig, [from_ref(&syn), from_ref(&answer)], advances);
        assert_eq!(got, [[Ok(syn)], [Ok(answer)]]);
        assert_eq!((rig.stage.counts().reopened, rig.stage.counts().begun, rig.views()[0].packets), (1, 2, [1, 1]));
    }
}

#[test]
fn the_answer_to_a_translated_frame_is_translated_back_although_its_lookup_began_before() {
    for advances in [false, true] {
        let nat = NatSettings {
            inside: vec!["10.0.0.0/8".parse().unwrap()],
            addresses: vec![end("192.0.2.1:0").address],
            ports: 3000..=3000,
            mac: GATEWAY_MAC,
        };
        let mut rig = Rig::new(Settings { rules: to_port_80(), max_flows: 9, nat: Some(nat), ..Settings::default() });
        let (peer, outside) = ("198.51.100.7:80", "192.0.2.1:3000");
        let got = overlapped(&mut rig, [&[udp(C, peer, b"question")], &[udp(peer, outside, b"answer")]], advances);
        assert_eq!(got[0][0].as_ref().unwrap()[14..], udp(outside, peer, b"question")[14..]);
        assert_eq!(got[1][0].as_ref().unwrap()[14..], udp(peer, C, b"answer")[14..]);
    }
}

/// Random frames of a few flows, so that most bursts begin, end or renew flows of their neighbours.
#[test]
fn overlapped_bursts_are_treated_as_bursts_one_by_one() {
    let mut rng = Rng::new(seed());
    let [mut in_order, mut overlapping] = [(); 2].map(|()| Rig::filter());
    let mut n_refused = 0;
    for round in 0..6000 {
        let frame = |rng: &mut Rng| {
            let client = format!("10.0.0.1:{}", 5000 + rng.below(6));
            let (from, to) = if rng.below(2) == 0 { (&client[..], S) } else { (S, &client[..]) };
            match rng.below(3) {
                0 => udp(from, to, b"x"),
                _ => tcp(from, to, [SYN, SYN_ACK, ACK, RST][rng.below(4) as usize], (1, 2), b""),
            }
        };
        let [one, two] = [(); 2].map(|()| (0..1 + rng.below(4)).map(|_| frame(&mut rng)).collect::<Vec<_>>());
        let expected = [in_order.burst(&one), in_order.burst(&two)];
        let got = overlapped(&mut overlapping, [&one, &two], rng.below(2) == 0);
        n_refused += expected.iter().flatten().filter(|fate| fate.is_err()).count();
        assert_eq!(got, expected, "round {round}");
        if rng.below(10) == 0 {
            let seconds = rng.below(1000);
            in_order.wait(seconds);
            overlapping.wait(seconds);
        }
        let all = |rig: &Rig| {
            let mut views: Vec<String> = rig.views().iter().map(|view| format!("{view:?}")).collect();
            views.sort();
            views
        };
        assert_eq!(all(&overlapping), all(&in_order), "round {round}");
    }
    assert_eq!(format!("{:?}", overlapping.stage.counts()), format!("{:?}", in_order.stage.counts()));
    let counts = in_order.stage.counts();
    assert!(n_refused > 100 && counts.begun > 100 && counts.reopened > 0 && counts.expired > 10, "{counts:?}");
}

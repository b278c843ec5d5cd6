//! One port does not take the table, and one host not the outside ports, from the others.

use super::translation::{ends, translated};
use super::*;
use crate::flow::export::Why;

fn open(max_flows: u32) -> Rig {
    let rules = Rules { accept_others: true, ..Rules::default() };
    Rig::new(Settings { rules, max_flows, ..Settings::default() })
}

/// A flow that is answered, and so stays.
fn answered(rig: &mut Rig, client: &str) -> bool {
    rig.send(&udp(client, S, b"x")).is_ok_and(|_| rig.send(&udp(S, client, b"x")).is_ok())
}

fn host(i: u32) -> String {
    format!("10.{}.{}.{}:9", 1 + (i >> 16), i >> 8 & 255, i & 255)
}

#[test]
fn a_flood_of_syns_pushes_out_itself_and_nobody_else() {
    let mut rig = open(1000);
    for i in 0..50 {
        rig.port = PortId(2 + i);
        assert!(answered(&mut rig, &host(i.into())));
        // A handshake that is under way.
        rig.pass(&tcp(&host(100 + u32::from(i)), S, SYN, (1, 0), b""));
    }
    for i in 0..20_000u32 {
        rig.port = PortId(1);
        rig.pass(&tcp(&host(1000 + i), S, SYN, (1, 0), b""));
        if i % 500 == 0 {
            rig.port = PortId(60);
            assert!(answered(&mut rig, &host(70_000 + i)), "another host begins a flow");
        }
    }
    assert!(rig.stage.len() <= 1000);
    let ended = rig.stage.take_ended(usize::MAX);
    assert!(ended.len() > 18_000 && ended.iter().all(|ended| ended.why == Why::Evicted));
    assert_eq!(rig.stage.counts().evicted, ended.len() as u64);
    let is_of_flood = |source: Endpoint| (1000..70_000).contains(&((source.address.0 as u32) - 0x0a01_0000));
    assert!(ended.iter().all(|ended| is_of_flood(ended.flow.original.source)), "another's flow made room");
    // The newest of the flood are left, not the oldest.
    rig.pass(&tcp(S, &host(20_999), SYN_ACK, (7, 2), b""));
    rig.refuse(&tcp(S, &host(1000), SYN_ACK, (7, 2), b""), DropReason::FlowInvalid);
    for i in 0..50 {
        rig.pass(&udp(S, &host(i), b"x"));
        rig.pass(&tcp(S, &host(100 + i), SYN_ACK, (7, 2), b""));
    }
}

#[test]
fn connections_that_are_open_take_no_more_than_a_share_of_the_table() {
    let mut rig = open(900);
    let mut fill = |port: u16, from: u32| {
        rig.port = PortId(port);
        let n = (from..from + 900).take_while(|&i| answered(&mut rig, &host(i))).count();
        (n, rig.stage.counts())
    };
    // 8/9 of the table, 8/9 of what is left, and so on, each rounded up.
    let (first, counts) = fill(1, 0);
    assert_eq!((first, counts.refused_share, counts.refused_limit), (800, 1, 0));
    let (second, counts) = fill(2, 1000);
    assert_eq!((second, counts.refused_share), (89, 2));
    let (third, counts) = fill(3, 2000);
    assert_eq!((third, counts.refused_share), (10, 3));
    let (fourth, counts) = fill(4, 3000);
    assert_eq!((fourth, counts.refused_limit), (1, 1));
    // A port whose flows end may begin others.
    rig.port = PortId(1);
    assert_eq!(rig.stage.flush(0, 1000, |ends| ends.original.source == end(&host(5))), None);
    rig.port = PortId(5);
    assert!(answered(&mut rig, &host(5000)));
}

#[test]
fn flows_that_are_over_make_room_and_open_ones_do_not() {
    for is_closed in [true, false] {
        let mut rig = open(9);
        for i in 0..8 {
            let client = host(i);
            rig.pass(&tcp(&client, S, SYN, (1, 0), b""));
            rig.pass(&tcp(S, &client, SYN_ACK, (7, 2), b""));
            rig.pass(&tcp(&client, S, ACK, (2, 8), b""));
            if is_closed && i == 3 {
                rig.pass(&tcp(&client, S, RST, (2, 0), b""));
            }
        }
        let next = rig.send(&udp(&host(100), S, b"x"));
        if is_closed {
            assert!(next.is_ok());
            assert_eq!(rig.stage.take_ended(9)[0].flow.original.source, end(&host(3)));
        } else {
            assert_eq!(next, Err(DropReason::FlowTable));
        }
    }
}

#[test]
fn a_host_takes_no_more_than_a_share_of_the_outside_ports() {
    let mut rig = translated(2000..=2089);
    let begin = |rig: &mut Rig, host: u8, from: u16| {
        let client = format!("10.0.0.{host}:{from}");
        let out = rig.send(&udp(&client, "198.51.100.1:53", b"x"))?;
        let outside = crate::flow::balance::endpoint_text(ends(&out).1);
        rig.send(&udp("198.51.100.1:53", &outside, b"x")).map(|_| outside)
    };
    let held = (0..90).take_while(|i| begin(&mut rig, 1, 100 + i).is_ok()).count();
    assert_eq!((held, rig.stage.counts().refused_nat_share), (80, 1));
    for other in 2..12 {
        begin(&mut rig, other, 100).unwrap();
    }
    assert_eq!(begin(&mut rig, 12, 100), Err(DropReason::FlowNoPort));
    assert_eq!((rig.stage.nat_ports(), rig.stage.counts().refused_nat_exhausted), (90, 1));
    // Of the unanswered flows, the oldest makes room.
    let mut rig = translated(2000..=2089);
    for i in 0..1000 {
        rig.send(&udp(&format!("10.0.0.1:{}", 100 + i), "198.51.100.1:53", b"x")).unwrap();
        if i % 100 == 50 {
            begin(&mut rig, 2, 5000 + i).unwrap();
        }
    }
    let of_other = |view: &&FlowView| view.original.source.address == end("10.0.0.2:1").address;
    assert_eq!(rig.views().iter().filter(of_other).count(), 10);
}

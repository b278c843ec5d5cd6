//! Unanswered flows, and flows of servers that are gone.

use super::translation::{VIRTUAL, balanced, ends, translated};
use super::*;
use crate::flow::balance::{Balancer, Server};
use crate::flow::export::Why;
use crate::flow::packet::UDP;
use crate::flow::{Virtual, VirtualId};

const CLIENT: &str = "10.1.0.1:5000";

#[test]
fn what_may_begin_a_flow_does_not_renew_it_until_there_is_an_answer() {
    for (first, answer, seconds) in [
        (tcp(C, S, SYN, (1, 0), b""), tcp(S, C, SYN_ACK, (7, 2), b""), 30),
        (udp(C, S, b"x"), udp(S, C, b"x"), 30),
        (echo("10.0.0.1:7", "10.0.0.9:0", b"x"), echo("10.0.0.9:0", "10.0.0.1:7", b"x"), 60),
    ] {
        let mut rig = Rig::filter();
        for _ in 0..=seconds / 10 {
            rig.pass(&first);
            rig.wait(10);
        }
        assert!(rig.views().iter().all(|view| view.age_s <= 10), "{:?}", rig.views());
        assert_eq!(rig.stage.counts().expired, 1);
        // With an answer it goes on for as long as packets come.
        let mut rig = Rig::filter();
        rig.pass(&first);
        rig.pass(&answer);
        for _ in 0..=seconds / 10 {
            rig.wait(10);
            rig.pass(&if first[23] == 6 { tcp(C, S, ACK, (2, 8), b"") } else { first.clone() });
        }
        assert_eq!((rig.stage.counts().expired, rig.stage.counts().begun), (0, 1));
    }
}

#[test]
fn a_syn_renews_no_flow_whatever_its_state() {
    let mut rig = Rig::filter();
    rig.pass(&tcp(C, S, SYN, (1, 0), b""));
    rig.pass(&tcp(S, C, SYN_ACK, (7, 2), b""));
    rig.pass(&tcp(C, S, ACK, (2, 8), b""));
    rig.wait(7000);
    for i in 0..4 {
        rig.pass(&tcp(C, S, SYN, (90_000 + i, 0), b""));
        rig.wait(100);
    }
    assert_eq!(rig.states(), [State::Established]);
    rig.wait(42);
    assert!(rig.stage.is_empty());
}

#[test]
fn an_outside_port_of_udp_is_kept_by_what_comes_from_inside() {
    let mut rig = translated(1024..=65_535);
    let frame = udp("10.0.0.1:5000", "198.51.100.1:53", b"x");
    for _ in 0..10 {
        rig.send(&frame).unwrap();
        rig.wait(20);
    }
    assert_eq!((rig.stage.counts().begun, rig.stage.counts().expired), (1, 0));
}

#[test]
fn an_unreachable_ends_a_flow_that_nobody_has_answered_and_no_other() {
    for (client, server) in [(C, S), ("[fd00::1]:5000", "[fd00::9]:80")] {
        for (sent, answer) in [
            (udp(client, server, b"x"), udp(server, client, b"x")),
            (tcp(client, server, SYN, (1, 0), b""), tcp(server, client, SYN_ACK, (7, 2), b"")),
        ] {
            let mut rig = Rig::filter();
            let error = unreachable(server, client, &sent, 64);
            rig.pass(&sent);
            rig.pass(&error);
            assert!(rig.stage.is_empty());
            assert_eq!((rig.stage.counts().unreachable, rig.stage.take_ended(9)[0].why), (1, Why::Unreachable));
            rig.refuse(&error, DropReason::FlowInvalid);
            // All in one burst: the answer was first, or there was none.
            for (frames, n) in
                [(vec![sent.clone(), answer.clone(), error.clone()], 1), (vec![sent.clone(), error.clone()], 0)]
            {
                let mut rig = Rig::filter();
                assert!(rig.burst(&frames).iter().all(Result::is_ok));
                assert_eq!(rig.stage.len(), n);
            }
            // An error that comes with the answer finds a flow that was looked up as unanswered.
            let mut rig = Rig::filter();
            rig.pass(&sent);
            assert!(rig.burst(&[error.clone(), answer.clone()]).iter().all(Result::is_ok));
            assert_eq!(rig.stage.len(), 1);
        }
        // A SYN of another number was not sent; "too large" is no end; an error about an answer is not about the flow.
        let mut rig = Rig::filter();
        let sent = tcp(client, server, SYN, (1, 0), b"");
        rig.pass(&sent);
        rig.pass(&unreachable(server, client, &tcp(client, server, SYN, (2, 0), b""), 64));
        let mut too_large = unreachable(server, client, &sent, 64);
        let at = if client == C { 34 } else { 54 };
        if client == C {
            too_large[at + 1] = 4;
        } else {
            too_large[at] = 2;
        }
        rig.pass(&too_large);
        rig.pass(&unreachable(client, server, &tcp(server, client, SYN_ACK, (7, 2), b""), 64));
        assert_eq!((rig.stage.len(), rig.stage.counts().related), (1, 3));
    }
}

#[test]
fn an_unreachable_of_the_server_ends_a_translated_flow_with_its_port() {
    let mut rig = translated(1024..=65_535);
    let sent = udp("10.0.0.1:5000", "198.51.100.1:53", b"x");
    let out = rig.send(&sent).unwrap();
    rig.send(&unreachable("198.51.100.1:53", "192.0.2.1:5000", &out, 64)).unwrap();
    assert!(rig.stage.is_empty());
    assert_eq!((rig.stage.nat_ports(), rig.stage.table().1), (0, 0));
}

/// Brings a connection to a virtual address into a state, and returns its server.
fn bring(rig: &mut Rig, client: &str, state: State) -> Endpoint {
    let out = rig.send(&tcp(client, VIRTUAL, SYN, (100, 0), b"")).unwrap();
    let server = ends(&out).0;
    let text = crate::flow::balance::endpoint_text(server);
    let steps: &[(bool, u8, (u32, u32))] = &[
        (false, SYN_ACK, (500, 101)),
        (true, ACK, (101, 501)),
        (true, 1 | ACK, (101, 501)),
        (false, ACK, (501, 102)),
        (false, 1 | ACK, (501, 102)),
        (true, ACK, (102, 502)),
    ];
    let n = match state {
        State::SynSent => 0,
        State::SynReceived => 1,
        State::Established => 2,
        State::FinWait => 3,
        State::CloseWait => 4,
        State::LastAck => 5,
        _ => 6,
    };
    for &(is_client, flags, numbers) in &steps[..n] {
        let (from, to) = if is_client { (client, VIRTUAL) } else { (&text[..], client) };
        rig.send(&tcp(from, to, flags, numbers, b"")).unwrap();
    }
    server
}

#[test]
fn a_syn_on_a_connection_of_a_server_that_takes_no_new_flows_goes_to_another_in_every_state() {
    for forget in [true, false] {
        for state in [
            State::SynSent,
            State::SynReceived,
            State::Established,
            State::FinWait,
            State::CloseWait,
            State::LastAck,
            State::TimeWait,
        ] {
            let mut rig = balanced();
            let server = bring(&mut rig, CLIENT, state);
            assert_eq!(rig.states(), [state]);
            rig.stage.balancer(VirtualId(0)).unwrap().drain(server, forget).unwrap();
            let again = rig.send(&tcp(CLIENT, VIRTUAL, SYN, (0x7000_0000, 0), b"")).unwrap();
            assert_ne!(ends(&again).0, server, "{state:?}");
            assert_eq!(rig.states(), [State::SynSent]);
            let is_there = rig.stage.balancer(VirtualId(0)).unwrap().members().any(|m| m.server.endpoint == server);
            assert_eq!(is_there, !forget, "it is forgotten with its last flow");
        }
    }
}

#[test]
fn a_connection_that_begins_anew_at_a_living_server_is_the_new_one() {
    for state in [State::Established, State::FinWait, State::CloseWait, State::LastAck] {
        let mut rig = balanced();
        let server = bring(&mut rig, CLIENT, state);
        let text = crate::flow::balance::endpoint_text(server);
        let syn = rig.send(&tcp(CLIENT, VIRTUAL, SYN, (70_000, 0), b"")).unwrap();
        assert_eq!((ends(&syn).0, rig.states()), (server, vec![state]));
        rig.send(&tcp(&text, CLIENT, SYN_ACK, (90_000, 70_001), b"")).unwrap();
        rig.send(&tcp(CLIENT, VIRTUAL, ACK, (70_001, 90_001), b"")).unwrap();
        assert_eq!(rig.states(), [State::Established]);
        rig.wait(300);
        assert_eq!(rig.states(), [State::Established], "it has the timeout of an open connection");
        rig.send(&tcp(CLIENT, VIRTUAL, 1 | ACK, (70_001, 90_001), b"")).unwrap();
        assert_eq!(rig.states(), [State::FinWait], "its FIN is noticed");
    }
}

#[test]
fn the_side_that_answers_begins_a_connection_only_if_a_rule_accepts_it() {
    let open = |rig: &mut Rig| {
        rig.pass(&tcp(C, S, SYN, (1, 0), b""));
        rig.pass(&tcp(S, C, SYN_ACK, (7, 2), b""));
        rig.pass(&tcp(C, S, ACK, (2, 8), b""));
    };
    let mut rig = Rig::filter();
    open(&mut rig);
    rig.refuse(&tcp(S, C, SYN, (70_000, 0), b""), DropReason::FlowRefused);
    rig.pass(&tcp(C, S, SYN_ACK, (90_000, 70_001), b""));
    assert_eq!((rig.states(), rig.stage.counts().refused_rule), (vec![State::Established], 1));
    let rules = Rules { accept_others: true, ..Rules::default() };
    let mut rig = Rig::new(Settings { rules, max_flows: 9, ..Settings::default() });
    open(&mut rig);
    rig.pass(&tcp(S, C, SYN, (70_000, 0), b""));
    rig.pass(&tcp(C, S, SYN_ACK, (90_000, 70_001), b""));
    assert_eq!(rig.states(), [State::SynReceived]);
    rig.pass(&tcp(S, C, ACK, (70_001, 90_001), b""));
    assert_eq!(rig.states(), [State::Established]);
}

#[test]
fn flows_are_found_by_the_address_of_their_server() {
    let server =
        |last| Server { endpoint: end(&format!("10.0.0.{last}:53")), weight: 1, mac: Some([2, 0, 0, 0, 0, last]) };
    let virtual_ = end("10.0.0.100:53");
    let balancer = Balancer::new(virtual_.address, &[server(11), server(12)]).unwrap();
    let service = Virtual { endpoint: virtual_, protocol: UDP, mac: [2; 6], balancer, check: None };
    let rules = Rules { accept_others: true, ..Rules::default() };
    let mut rig = Rig::new(Settings { rules, virtuals: vec![service], max_flows: 1000, ..Settings::default() });
    let mut of_11 = 0;
    for i in 0..100 {
        let out = rig.send(&udp(&format!("10.1.0.1:{}", 1000 + i), "10.0.0.100:53", b"x")).unwrap();
        of_11 += usize::from(ends(&out).0 == end("10.0.0.11:53"));
    }
    rig.stage.flush(0, 1000, |ends| ends.reply.source == end("10.0.0.11:53"));
    assert!(of_11 > 0);
    assert_eq!(rig.stage.len(), 100 - of_11);
}

//! The stateful filter.

use super::*;
use crate::flow::export::Why;
use crate::flow::nat::NatSettings;
use crate::flow::packet::{TCP, UDP};

#[test]
fn a_connection_passes_both_ways_once_a_rule_accepted_its_first_packet() {
    let mut rig = Rig::filter();
    rig.refuse(&tcp(S, C, SYN_ACK, (1, 2), b""), DropReason::FlowInvalid);
    rig.refuse(&tcp(C, S, ACK, (1, 2), b""), DropReason::FlowInvalid);
    rig.refuse(&tcp(S, C, SYN, (1, 0), b""), DropReason::FlowRefused);
    assert!(rig.stage.is_empty());
    rig.pass(&tcp(C, S, SYN, (1, 0), b""));
    rig.refuse(&tcp(S, "10.0.0.1:5001", SYN_ACK, (7, 2), b""), DropReason::FlowInvalid);
    rig.refuse(&tcp(S, C, SYN_ACK, (7, 3), b""), DropReason::FlowInvalid);
    rig.pass(&tcp(S, C, SYN_ACK, (7, 2), b""));
    rig.pass(&tcp(C, S, ACK, (2, 8), b""));
    rig.pass(&tcp(S, C, ACK, (8, 2), b"hello"));
    rig.refuse(&tcp(C, S, SYN | RST, (2, 13), b""), DropReason::FlowInvalid);
    let view = rig.views().remove(0);
    assert_eq!((view.state, view.packets, view.bytes), (State::Established, [2, 2], [80, 85]));
    // The same addresses in a VLAN are another flow.
    let plain = tcp(C, S, ACK, (2, 13), b"");
    let tagged = [&plain[..12], &[0x81, 0, 0, 7], &plain[12..]].concat();
    rig.refuse(&tagged, DropReason::FlowInvalid);
    assert_eq!(rig.stage.counts().refused_invalid, 6);
}

#[test]
fn changed_rules_judge_new_flows_and_those_that_are_there_go_on() {
    let mut rig = Rig::filter();
    rig.pass(&tcp(C, S, SYN, (1, 0), b""));
    rig.pass(&udp(C, S, b"x"));
    let settings = Settings { rules: Rules::default(), ..rig.stage.settings().clone() };
    rig.stage.retune(&settings);
    rig.refuse(&tcp("10.0.0.1:5001", S, SYN, (1, 0), b""), DropReason::FlowRefused);
    rig.pass(&tcp(S, C, SYN_ACK, (7, 2), b""));
    rig.pass(&udp(S, C, b"x"));
    let mut settings = Settings { rules: to_port_80(), ..settings };
    settings.timeouts.set(State::UdpReplied, 5);
    rig.stage.retune(&settings);
    rig.pass(&tcp("10.0.0.1:5001", S, SYN, (1, 0), b""));
    // From its next packet on a flow has the timeout of now.
    rig.pass(&udp(S, C, b"x"));
    let udp = rig.views().into_iter().find(|view| view.state == State::UdpReplied).unwrap();
    // The clock of a flow ticks in whole seconds.
    assert!(udp.remaining_s <= 6, "{}", udp.remaining_s);
}

#[test]
fn other_protocols_are_tracked_as_far_as_they_go() {
    for (client, server) in [(C, S), ("[fd00::1]:5000", "[fd00::9]:80")] {
        let mut rig = Rig::filter();
        rig.refuse(&udp(server, client, b"x"), DropReason::FlowRefused);
        rig.pass(&udp(client, server, b"x"));
        assert_eq!(rig.states(), [State::UdpNew]);
        rig.pass(&udp(server, client, b"x"));
        assert_eq!(rig.states(), [State::UdpReplied]);
        // An echo, a reply to it, and one to nothing.
        let (a, b) = (client.replace("5000", "77"), server.replace(":80", ":0"));
        rig.refuse(&echo(&b, &a, b"ping"), DropReason::FlowInvalid);
        rig.pass(&echo(&a, &b, b"ping"));
        rig.pass(&echo(&b, &a, b"ping"));
        rig.refuse(&echo(&b, &a.replace("77", "78"), b"ping"), DropReason::FlowInvalid);
        // Each side may ask the other with the same identifier.
        rig.pass(&echo(&b.replace(":0", ":77"), &a.replace(":77", ":0"), b"ping"));
        assert_eq!(rig.stage.len(), 3);
        assert!(rig.views().iter().all(|view| view.state != State::Echo || view.packets[0] == 1));
    }
    let mut rig = Rig::filter();
    let mut gre = udp(C, S, b"1234567890");
    gre[23] = 47;
    rig.pass(&gre);
    assert_eq!(rig.states(), [State::OtherNew]);
    gre[26..34].rotate_left(4);
    rig.pass(&gre);
    assert_eq!(rig.states(), [State::OtherReplied]);
}

#[test]
fn what_is_no_ip_passes_and_what_is_broken_or_a_fragment_does_not() {
    let mut rig = Rig::filter();
    let mut arp = udp(C, S, b"");
    arp[12..14].copy_from_slice(&[8, 6]);
    rig.pass(&arp);
    // Hosts strip more tags than a switch looks behind.
    for tag in [[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]] {
        let mut tagged = udp(S, C, b"x");
        for _ in 0..3 {
            tagged.splice(12..12, [tag[0], tag[1], 0, 0]);
        }
        rig.refuse(&tagged, DropReason::VlanTags);
    }
    let mut group = udp(C, S, b"");
    group[0] |= 1;
    rig.pass(&group);
    let mut solicitation = echo("[fd00::1]:7", "[fd00::9]:0", b"");
    solicitation[54] = 135;
    rig.pass(&solicitation);
    for offset in [0x20, 0x1f] {
        let mut fragment = udp(C, S, b"12345678");
        fragment[20] = offset;
        rig.refuse(&fragment, DropReason::FlowFragment);
    }
    for (at, value) in [(14, 0x44), (14, 0x65), (17, 200), (38, 77)] {
        let mut broken = udp(C, S, b"");
        broken[at] = value;
        rig.refuse(&broken, DropReason::FlowInvalid);
    }
    rig.refuse(&tcp(S, S, SYN, (1, 0), b""), DropReason::FlowInvalid);
    assert_eq!((rig.stage.counts().passed, rig.stage.counts().refused_fragment), (3, 2));
}

#[test]
fn errors_pass_only_about_flows_that_are_there() {
    for (client, server, router) in [(C, S, "10.9.9.9:0"), ("[fd00::1]:5000", "[fd00::9]:80", "[fd09::9]:0")] {
        let mut rig = Rig::filter();
        let sent = udp(client, server, b"some payload");
        let error = unreachable(router, client, &sent, 64);
        rig.refuse(&error, DropReason::FlowInvalid);
        rig.pass(&sent);
        // With an answer the flow stays in spite of errors.
        rig.pass(&udp(server, client, b"x"));
        rig.pass(&error);
        rig.pass(&unreachable(server, client, &sent, 64));
        let stranger = udp(&client.replace("5000", "5001"), server, b"x");
        rig.refuse(&unreachable(router, client, &stranger, 64), DropReason::FlowInvalid);
        assert_eq!((rig.stage.counts().related, rig.views()[0].packets), (2, [1, 1]));
    }
}

#[test]
fn flows_end_after_the_time_of_their_state_and_are_exported_with_their_counts() {
    let mut rig = Rig::filter();
    rig.pass(&tcp(C, S, SYN, (1, 0), b""));
    rig.pass(&udp(C, S, b"x"));
    rig.wait(30);
    rig.pass(&tcp(S, C, SYN_ACK, (7, 2), b""));
    rig.wait(2);
    assert_eq!(rig.states(), [State::SynReceived], "that of UDP has ended");
    rig.pass(&tcp(C, S, ACK, (2, 8), b""));
    rig.wait(7440);
    assert_eq!(rig.states(), [State::Established]);
    rig.wait(2);
    assert!(rig.stage.is_empty());
    let ended = rig.stage.take_ended(10);
    assert_eq!(
        ended.iter().map(|e| (e.flow.state, e.why)).collect::<Vec<_>>(),
        [(State::UdpNew, Why::Expired), (State::Established, Why::Expired)]
    );
    assert_eq!((ended[1].flow.packets, ended[1].flow.bytes, ended[1].flow.age_s), ([2, 1], [80, 40], 7474));
    // What comes now belongs to no flow.
    rig.refuse(&tcp(C, S, ACK, (2, 8), b""), DropReason::FlowInvalid);
}

#[test]
fn a_connection_that_has_ended_may_be_begun_again_at_once() {
    let mut rig = Rig::filter();
    rig.pass(&tcp(C, S, SYN, (1, 0), b""));
    rig.pass(&tcp(S, C, RST | ACK, (0, 2), b""));
    assert_eq!(rig.states(), [State::Closed]);
    rig.pass(&tcp(C, S, SYN, (100, 0), b""));
    assert_eq!((rig.states(), rig.stage.counts().reopened), (vec![State::SynSent], 1));
    // Not by the other side, unless a rule says so.
    rig.pass(&tcp(S, C, RST | ACK, (0, 101), b""));
    rig.refuse(&tcp(S, C, SYN, (100, 0), b""), DropReason::FlowRefused);
    assert_eq!((rig.states(), rig.stage.counts().reopened), (vec![State::Closed], 1));
}

#[test]
fn an_echo_of_identifier_0_goes_one_way_and_its_reply_the_other() {
    let (a, b) = ("10.0.0.1:0", "10.0.0.9:0");
    let mut rig = Rig::filter();
    let (mut asks, mut answers) = (echo("10.0.0.1:1", b, b"ping"), echo(b, "10.0.0.1:1", b"ping"));
    let (mut asked, mut replies) = (echo("10.0.0.9:1", a, b"ping"), echo(a, "10.0.0.9:1", b"ping"));
    for frame in [&mut asks, &mut answers, &mut asked, &mut replies] {
        frame[38..40].fill(0);
    }
    rig.pass(&asks);
    rig.pass(&answers);
    rig.refuse(&asked, DropReason::FlowInvalid);
    rig.refuse(&replies, DropReason::FlowInvalid);
}

#[test]
fn several_packets_of_a_new_flow_in_one_burst_are_one_flow() {
    let mut rig = Rig::filter();
    let frames: Vec<_> = (0..BURST).map(|i| udp(C, &format!("10.0.0.{}:80", 9 + i % 3), b"x")).collect();
    assert!(rig.burst(&frames).iter().all(Result::is_ok));
    let mut packets: Vec<_> = rig.views().iter().map(|view| view.packets[0]).collect();
    packets.sort_unstable();
    assert_eq!(packets, [10, 11, 11]);
}

#[test]
fn flows_beyond_the_limit_are_refused_and_room_comes_back() {
    let mut rig = Rig::new(Settings { rules: to_port_80(), max_flows: 5, ..Settings::default() });
    let client = |i: u32| format!("10.0.{}.{}:9", i / 256, i % 256);
    let from = |i: u32| udp(&client(i), S, b"x");
    for i in 0..5 {
        rig.pass(&from(i));
        rig.pass(&udp(S, &client(i), b"x"));
    }
    rig.refuse(&from(5), DropReason::FlowTable);
    assert_eq!(rig.stage.counts().refused_limit, 1);
    rig.pass(&from(3));
    rig.wait(302);
    rig.pass(&from(5));
    assert_eq!(rig.stage.flush(0, 100, |ends| ends.original.protocol == TCP), None);
    assert_eq!(rig.stage.len(), 1);
    rig.stage.flush(0, 100, |ends| ends.original.protocol == UDP);
    assert!(rig.stage.is_empty());
}

#[test]
fn the_table_grows_under_traffic_and_loses_no_flow() {
    let mut rig = Rig::new(Settings { rules: to_port_80(), max_flows: 200_000, ..Settings::default() });
    let from = |i: u32| udp(&format!("10.{}.{}.{}:9", i >> 16, i >> 8 & 255, i & 255), S, b"x");
    for first in (0..100_000).step_by(BURST) {
        let frames: Vec<_> = (first..first + BURST as u32).map(from).collect();
        assert!(rig.burst(&frames).iter().all(Result::is_ok));
    }
    assert_eq!((rig.stage.len(), rig.stage.counts().begun), (100_000, 100_000));
    assert!(rig.stage.table().2 >= 1 << 17);
    for i in (0..100_000).step_by(997) {
        rig.pass(&from(i));
    }
    assert_eq!(rig.stage.counts().begun, 100_000);
    rig.wait(32);
    assert!(rig.stage.is_empty());
}

#[test]
fn packets_and_bytes_are_counted_beyond_what_an_entry_holds() {
    let nat = NatSettings {
        inside: vec!["10.0.0.1/32".parse().unwrap()],
        addresses: vec![end("192.0.2.1:0").address],
        ports: 1024..=65_535,
        mac: [2; 6],
    };
    let nat = Settings { nat: Some(nat), ..Settings::default() };
    for settings in [Settings::default(), nat] {
        let mut rig = Rig::new(Settings { rules: to_port_80(), max_flows: 10, ..settings });
        rig.send(&udp(C, S, b"x")).unwrap();
        let back = rig.views()[0].reply;
        let text = |end: Endpoint| crate::flow::balance::endpoint_text(end);
        let answer = udp(&text(back.source), &text(back.destination), &[7; 1000]);
        let frames: Vec<_> = (0..BURST).map(|i| if i % 4 == 0 { answer.clone() } else { udp(C, S, b"x") }).collect();
        let n = 3 * (1 << 16) / BURST as u64;
        for _ in 0..n {
            assert!(rig.burst(&frames).iter().all(Result::is_ok));
        }
        let view = rig.views().remove(0);
        assert_eq!(view.packets, [1 + n * 24, n * 8]);
        assert_eq!(view.bytes, [29 * (1 + n * 24), 1028 * n * 8]);
        rig.wait(302);
        let ended = rig.stage.take_ended(9);
        assert_eq!((ended[0].flow.packets, ended[0].flow.bytes), (view.packets, view.bytes));
    }
}

//! One connection, step by step.

use super::*;
use Direction::{Original, Reply};

const SYN_ACK: u8 = SYN | ACK;

fn segment(flags: u8, sequence: u32, acknowledgement: u32, payload: u32) -> Segment {
    Segment { flags, sequence, acknowledgement, payload }
}

/// One connection under test. The numbers of its first side begin at 999 and do not wrap; those of its second side
/// begin at the top and do.
struct Connection(Tcp, State, LastSyn);

const CLIENT: u32 = 999;
const SERVER: u32 = u32::MAX;

impl Connection {
    fn new() -> Self {
        let (tcp, state) = Tcp::open(&segment(SYN, CLIENT, 0, 0), false).unwrap();
        Self(tcp, state, LastSyn::opening(&segment(SYN, CLIENT, 0, 0)))
    }

    fn established() -> Self {
        let mut connection = Self::new();
        connection.step(Reply, segment(SYN_ACK, SERVER, CLIENT + 1, 0), State::SynReceived);
        connection.step(Original, segment(ACK, CLIENT + 1, 0, 0), State::Established);
        connection.step(Reply, segment(ACK, 0, CLIENT + 1, 100), State::Established);
        connection.step(Original, segment(ACK, CLIENT + 1, 100, 50), State::Established);
        connection
    }

    #[track_caller]
    fn step(&mut self, direction: Direction, segment: Segment, then: State) {
        assert_eq!(self.judge(direction, segment), Judgement::Pass);
        assert_eq!(self.1, then);
    }

    fn judge(&mut self, direction: Direction, segment: Segment) -> Judgement {
        self.0.advance(&mut self.1, direction, &segment, &mut self.2)
    }

    #[track_caller]
    fn refuse(&mut self, direction: Direction, segment: Segment) {
        let before = self.1;
        assert_eq!(self.judge(direction, segment), Judgement::Invalid);
        assert_eq!(self.1, before);
    }
}

#[test]
fn data_with_the_first_segment_may_be_acknowledged_with_it() {
    for (acknowledged, is_right) in [(0, true), (7, true), (100, true), (101, false), (u32::MAX, false)] {
        let (tcp, state) = Tcp::open(&segment(SYN, CLIENT, 0, 100), false).unwrap();
        let mut connection = Connection(tcp, state, LastSyn::opening(&segment(SYN, CLIENT, 0, 100)));
        let answer = segment(SYN_ACK, SERVER, (CLIENT + 1).wrapping_add(acknowledged), 0);
        if is_right {
            connection.step(Reply, answer, State::SynReceived);
            connection.step(Original, segment(ACK, CLIENT + 1 + acknowledged, 0, 0), State::Established);
        } else {
            connection.refuse(Reply, answer);
            connection.refuse(Reply, segment(RST | ACK, 0, (CLIENT + 1).wrapping_add(acknowledged), 0));
        }
    }
}

#[test]
fn a_connection_is_opened_used_and_closed_by_either_side_first() {
    for first in [Original, Reply] {
        let mut connection = Connection::established();
        let second = if first == Original { Reply } else { Original };
        let at = |side| if side == Original { (CLIENT + 51, 100) } else { (100, CLIENT + 51) };
        let (sequence, acknowledged) = at(first);
        connection.step(first, segment(FIN | ACK, sequence, acknowledged, 0), State::FinWait);
        // A retransmitted FIN is not the FIN of the other side.
        connection.step(first, segment(FIN | ACK, sequence, acknowledged, 0), State::FinWait);
        // It acknowledges data, but not the FIN yet.
        connection.step(second, segment(ACK, acknowledged, sequence, 0), State::FinWait);
        connection.step(second, segment(ACK, acknowledged, sequence + 1, 7), State::CloseWait);
        connection.step(first, segment(ACK, sequence + 1, acknowledged + 7, 0), State::CloseWait);
        connection.step(second, segment(FIN | ACK, acknowledged + 7, sequence + 1, 0), State::LastAck);
        connection.step(first, segment(ACK, sequence + 1, acknowledged + 8, 0), State::TimeWait);
        connection.step(second, segment(FIN | ACK, acknowledged + 7, sequence + 1, 0), State::TimeWait);
        assert_eq!(connection.judge(Original, segment(SYN, 5, 0, 0)), Judgement::Reopen);
    }
}

#[test]
fn fins_that_cross_are_both_to_be_acknowledged() {
    let mut connection = Connection::established();
    connection.step(Original, segment(FIN | ACK, CLIENT + 51, 100, 0), State::FinWait);
    connection.step(Reply, segment(FIN | ACK, 100, CLIENT + 51, 0), State::LastAck);
    connection.step(Original, segment(ACK, CLIENT + 52, 101, 0), State::LastAck);
    connection.step(Reply, segment(ACK, 101, CLIENT + 52, 0), State::TimeWait);
}

#[test]
fn both_sides_may_open_at_once() {
    let mut connection = Connection::new();
    connection.step(Reply, segment(SYN, SERVER, 0, 0), State::SynReceived);
    connection.step(Original, segment(SYN_ACK, CLIENT, 0, 0), State::SynReceived);
    connection.step(Reply, segment(SYN_ACK, SERVER, CLIENT + 1, 0), State::SynReceived);
    connection.step(Original, segment(ACK, CLIENT + 1, 0, 0), State::Established);
}

#[test]
fn what_no_tcp_sends_is_invalid() {
    for flags in [0, FIN, SYN | FIN, SYN | RST, FIN | RST, SYN_ACK | FIN, SYN_ACK | RST, FIN | RST | ACK, 8, 0x3f] {
        Connection::established().refuse(Original, segment(flags, CLIENT + 51, 100, 0));
        assert!(Tcp::open(&segment(flags, 1, 0, 0), true).is_none(), "{flags:#x}");
    }
    let mut connection = Connection::new();
    connection.refuse(Original, segment(ACK, CLIENT + 1, 5, 0));
    connection.refuse(Original, segment(SYN_ACK, CLIENT, 5, 0));
    connection.refuse(Original, segment(FIN | ACK, CLIENT + 1, 5, 0));
    connection.refuse(Reply, segment(SYN_ACK, SERVER, CLIENT + 2, 0));
    connection.refuse(Reply, segment(FIN | ACK, SERVER, CLIENT + 1, 0));
    connection.refuse(Reply, segment(RST | ACK, 0, CLIENT, 0));
    connection.refuse(Reply, segment(RST, 0, 0, 0));
}

#[test]
fn only_a_syn_opens_unless_connections_are_picked_up() {
    for flags in [ACK, SYN_ACK, FIN | ACK, RST, RST | ACK] {
        assert!(Tcp::open(&segment(flags, 1, 2, 0), false).is_none());
        let picked_up = Tcp::open(&segment(flags, 1, 2, 0), true);
        assert_eq!(picked_up.map(|(_, state)| state), (flags == ACK).then_some(State::Established));
    }
}

#[test]
fn a_reset_closes_where_it_fits_and_a_challenge_opens_again() {
    let mut connection = Connection::established();
    // The second side expects CLIENT + 1, the first side expects 100.
    for outside in [CLIENT, CLIENT.wrapping_sub(5000), CLIENT + 1 + WINDOW, CLIENT ^ 0x8000_0000] {
        connection.step(Original, segment(RST, outside, 0, 0), State::Established);
    }
    for outside in [99, u32::MAX, 100 + WINDOW] {
        connection.step(Reply, segment(RST | ACK, outside, 0, 0), State::Established);
    }
    // The number is in the window, but not the expected one. The receiver will say so, and no new connection may
    // begin before.
    for guess in [CLIENT + 2, CLIENT + 50_000, CLIENT + WINDOW] {
        connection.step(Original, segment(RST, guess, 0, 0), State::Closed);
        connection.step(Original, segment(SYN, 5, 0, 0), State::Closed);
        connection.step(Reply, segment(ACK, 100, CLIENT + 1, 0), State::Established);
    }
    // While data is under way the expected number is not known here. Segments that were sent before the reset
    // arrived are answered with a reset.
    connection.step(Reply, segment(ACK, 100, CLIENT + 51, 500), State::Established);
    connection.step(Reply, segment(RST | ACK, 600, CLIENT + 51, 0), State::Closed);
    connection.step(Original, segment(ACK, CLIENT + 51, 100, 40), State::Established);
    connection.step(Reply, segment(RST, 100, 0, 0), State::Closed);
    assert_eq!(connection.judge(Original, segment(SYN, 5, 0, 0)), Judgement::Reopen);
    // An invalid segment does not reopen it.
    connection.step(Original, segment(ACK, CLIENT + 51, 99, 0), State::Closed);
}

#[test]
fn fins_and_acknowledgements_far_from_what_is_expected_change_nothing() {
    for (sequence, acknowledged) in [(CLIENT - 70, 100), (CLIENT + 1 + WINDOW, 100), (CLIENT ^ 0x8000_0000, 100)] {
        let mut connection = Connection::established();
        connection.step(Original, segment(FIN | ACK, sequence, acknowledged, 0), State::Established);
        connection.step(Original, segment(ACK, CLIENT + 51, 100 + WINDOW, 0), State::Established);
        // The first side expects the same number as before.
        connection.step(Reply, segment(RST, 100 + WINDOW, 0, 0), State::Established);
        connection.step(Original, segment(FIN | ACK, CLIENT + 51, 100, 0), State::FinWait);
        // Only its own number acknowledges a FIN.
        connection.step(Reply, segment(ACK, 100, CLIENT + 53, 0), State::FinWait);
        connection.step(Reply, segment(ACK, 100, CLIENT + 52, 0), State::CloseWait);
    }
}

#[test]
fn a_refused_connection_is_closed_and_may_be_tried_again() {
    let mut connection = Connection::new();
    connection.step(Reply, segment(RST | ACK, 0, CLIENT + 1, 0), State::Closed);
    connection.step(Reply, segment(ACK, 5, CLIENT + 1, 0), State::Closed);
    assert_eq!(connection.judge(Original, segment(SYN, 5, 0, 0)), Judgement::Reopen);
}

#[test]
fn a_side_that_forgot_an_open_connection_can_begin_anew() {
    // RFC 9293, figure 9: the side that crashed answers the challenge of the other side with a reset.
    let mut connection = Connection::established();
    connection.step(Original, segment(SYN, 40_000, 0, 0), State::Established);
    connection.step(Reply, segment(ACK, 100, CLIENT + 51, 0), State::Established);
    connection.step(Original, segment(RST, CLIENT + 51, 0, 0), State::Closed);
    assert_eq!(connection.judge(Original, segment(SYN, 40_000, 0, 0)), Judgement::Reopen);
}

#[test]
fn an_acknowledgement_of_nothing_does_not_complete_a_handshake() {
    let mut connection = Connection::new();
    connection.step(Reply, segment(SYN_ACK, 7000, CLIENT + 1, 0), State::SynReceived);
    connection.step(Original, segment(ACK, CLIENT + 1, 7000, 0), State::SynReceived);
    connection.step(Original, segment(ACK, CLIENT + 1, 9, 0), State::SynReceived);
    connection.step(Original, segment(ACK, CLIENT + 1, 7001, 0), State::Established);
}

//! The states of a TCP connection, as a device between its two sides sees them.
//!
//! ```text
//!            SYN              SYN-ACK                ACK                FIN            ACK of it
//!   (none) ─────► syn_sent ─────────► syn_received ─────► established ─────► fin_wait ─────► close_wait
//!                                                                               │ FIN           │ FIN
//!                                                                               ▼               ▼
//!                                     time_wait ◄──── ACKs of both FINs ──── last_ack ◄─────────┘
//!   any ── RST ──► closed ── anything else but a SYN ──► as before
//! ```
//! The last states follow from which FINs were sent and acknowledged. FINs are told apart by sequence number, so a
//! retransmitted FIN is not counted twice. The numbers of acknowledgements, FINs and resets are compared with what the
//! other side said last. A segment with an old number, or with one further ahead than the largest window (2^30), passes
//! but changes nothing. Both ends judge the data themselves.
//!
//! A reset closes the connection. The receiver accepts a reset only with exactly the number that it expects. While data
//! is under way that number is not known here. A receiver that does not accept it answers with a challenge. So any
//! valid segment after a reset reopens the connection: a host that still has the connection sends the challenge; a host
//! that has lost it answers everything with another reset.
//!
//! Sources: RFC 9293 (section 3.3.2, simultaneous open, half-open connections), RFC 5961 (section 3, resets).

use super::packet::Segment;
use super::state::{Direction, State};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The verdict on a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// It passes.
    Pass,
    /// No TCP sends it, or none in this state.
    Invalid,
    /// It begins another connection between the same endpoints.
    Reopen,
}

/// What is known of a connection besides its state: 9 bytes, which the flow keeps. Sides are numbered as directions:
/// side 0 opened the connection, side 1 answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tcp {
    /// A mark for each side; that of side 0 is the lower half. Until a side sends its FIN, its mark is the number that
    /// it expects next, as it said last or will have to say in answer to the other side's SYN. Afterwards the mark is
    /// the number after its FIN.
    pub(super) marks: u64,
    /// Bits, such as [`SAID`], for side 0, and shifted by one for side 1.
    pub(super) bits: u8,
}

/// The side has said which number it expects.
const SAID: u8 = 1;
const FIN_SENT: u8 = 1 << 2;
const FIN_ACKNOWLEDGED: u8 = 1 << 4;
/// Both sent a SYN of their own.
const SIMULTANEOUS: u8 = 1 << 6;
/// The number of the reset that closed it was not the expected one.
const DOUBTED: u8 = 1 << 7;

/// The largest window (RFC 7323, section 2.3).
const WINDOW: u32 = 1 << 30;

/// Whether `a` is `b`, or is ahead of it by less than a window.
#[inline]
fn is_within(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < WINDOW
}

/// Whether any TCP sends these flags.
fn is_possible(flags: u8) -> bool {
    matches!(flags & (SYN | FIN | RST | ACK), SYN | RST | ACK | 0x12 | 0x14 | 0x11)
}

impl Tcp {
    /// The connection that a segment opens, and its state. With `pick_up` the connection may be older than the switch.
    pub fn open(segment: &Segment, pick_up: bool) -> Option<(Self, State)> {
        let mut tcp = Self::default();
        match segment.flags & (SYN | FIN | RST | ACK) {
            SYN => {
                tcp.set_mark(0, segment.payload);
                tcp.set_mark(1, segment.sequence.wrapping_add(1));
                Some((tcp, State::SynSent))
            }
            ACK if pick_up => {
                tcp.acknowledge(0, segment);
                Some((tcp, State::Established))
            }
            _ => None,
        }
    }

    /// Updates the connection with a segment of `direction`.
    #[inline]
    pub fn advance(&mut self, state: &mut State, direction: Direction, segment: &Segment) -> Judgement {
        if *state == State::Established && self.advance_open(direction, segment) {
            return Judgement::Pass;
        }
        if !is_possible(segment.flags) {
            return Judgement::Invalid;
        }
        let side = direction as usize;
        if segment.flags & RST != 0 {
            return self.reset(state, side, segment);
        }
        match segment.flags & (SYN | ACK) {
            SYN => self.synchronise(state, side, segment),
            0x12 => self.answer(state, side, segment),
            _ => self.go_on(state, side, segment),
        }
    }

    /// Updates an open connection with a segment of the most common kind: data or an acknowledgement, without SYN, FIN
    /// or RST. Returns false and changes nothing for other segments.
    #[inline]
    pub(super) fn advance_open(&mut self, direction: Direction, segment: &Segment) -> bool {
        let is_usual = segment.flags & (SYN | FIN | RST | ACK) == ACK;
        if is_usual {
            self.acknowledge(direction as usize, segment);
        }
        is_usual
    }

    #[inline]
    fn has(&self, what: u8, side: usize) -> bool {
        self.bits & what << side != 0
    }

    #[inline]
    fn mark(&self, side: usize) -> u32 {
        (self.marks >> (32 * side)) as u32
    }

    #[inline]
    fn set_mark(&mut self, side: usize, mark: u32) {
        self.marks ^= u64::from(self.mark(side) ^ mark) << (32 * side);
    }

    #[inline]
    fn acknowledge(&mut self, side: usize, segment: &Segment) {
        if !self.has(SAID, side) || is_within(segment.acknowledgement, self.mark(side)) {
            self.set_mark(side, segment.acknowledgement);
            self.bits |= SAID << side;
        }
    }

    /// A SYN without an acknowledgement.
    fn synchronise(&mut self, state: &mut State, side: usize, segment: &Segment) -> Judgement {
        match *state {
            // If the connection is still open, the other side answers with a challenge.
            State::Closed if self.bits & DOUBTED != 0 => {}
            State::TimeWait | State::Closed => return Judgement::Reopen,
            State::SynSent => {
                self.set_mark(1 - side, segment.sequence.wrapping_add(1));
                if side == 0 {
                    self.set_mark(0, segment.payload);
                } else {
                    self.bits |= SIMULTANEOUS;
                    *state = State::SynReceived;
                }
            }
            // On an open connection it is old, or a probe. The other side answers it.
            _ => {}
        }
        Judgement::Pass
    }

    /// Whether an answer acknowledges the SYN that was sent, with all, some or none of the data in it (RFC 7413). Until
    /// then the first mark is the length of that data.
    fn takes_up(&self, segment: &Segment) -> bool {
        segment.acknowledgement.wrapping_sub(self.mark(1)) <= self.mark(0)
    }

    /// A SYN with an acknowledgement.
    fn answer(&mut self, state: &mut State, side: usize, segment: &Segment) -> Judgement {
        match *state {
            State::SynSent if side == 1 && self.takes_up(segment) => {
                self.bits |= SAID << 1;
                self.set_mark(0, segment.sequence.wrapping_add(1));
                self.set_mark(1, segment.acknowledgement);
                *state = State::SynReceived;
            }
            State::SynSent | State::TimeWait | State::Closed => return Judgement::Invalid,
            // It is a retransmission.
            _ => {}
        }
        Judgement::Pass
    }

    /// An acknowledgement, with data, a FIN, or nothing.
    fn go_on(&mut self, state: &mut State, side: usize, segment: &Segment) -> Judgement {
        let fin = segment.flags & FIN != 0;
        match *state {
            // The sender still has an old connection, which the first side then resets.
            State::SynSent if side == 1 && !fin => return Judgement::Pass,
            State::SynSent => return Judgement::Invalid,
            State::SynReceived if side == 0 || self.bits & SIMULTANEOUS != 0 => {
                // The segment that completes the handshake acknowledges at least the other side's SYN.
                let beyond = segment.acknowledgement.wrapping_sub(self.mark(side));
                if !self.has(SAID, side) && beyond >= 1 << 30 {
                    return Judgement::Pass;
                }
                *state = State::Established;
            }
            State::TimeWait => return Judgement::Pass,
            State::Closed => {
                if !self.revives(side, segment) {
                    return Judgement::Pass;
                }
                self.bits &= !DOUBTED;
                *state = State::Established;
            }
            _ => {}
        }
        let (other, end) = (1 - side, segment.sequence.wrapping_add(segment.payload));
        if !self.has(FIN_SENT, side) {
            self.acknowledge(side, segment);
            // The number that the other side expects is known until that side has sent its FIN.
            if fin && (!self.has(SAID, other) || self.has(FIN_SENT, other) || is_within(end, self.mark(other))) {
                self.bits |= FIN_SENT << side;
                self.set_mark(side, end.wrapping_add(1));
            }
        }
        // Nothing after a FIN can be acknowledged.
        if self.has(FIN_SENT, other) && segment.acknowledgement == self.mark(other) {
            self.bits |= FIN_ACKNOWLEDGED << other;
        }
        *state = match ((self.bits / FIN_SENT) & 3, (self.bits / FIN_ACKNOWLEDGED) & 3) {
            (0, _) => *state,
            (3, 3) => State::TimeWait,
            (3, _) => State::LastAck,
            (_, 0) => State::FinWait,
            _ => State::CloseWait,
        };
        Judgement::Pass
    }

    /// Whether a segment proves that a connection is open in spite of a reset. The connection was open before the
    /// reset.
    fn revives(&self, side: usize, segment: &Segment) -> bool {
        let both_said = self.bits & (SAID | SAID << 1) == SAID | SAID << 1;
        let fits = self.has(FIN_SENT, side) || is_within(segment.acknowledgement, self.mark(side));
        both_said && fits
    }

    fn reset(&mut self, state: &mut State, side: usize, segment: &Segment) -> Judgement {
        let other = 1 - side;
        let ahead = segment.sequence.wrapping_sub(self.mark(other));
        match *state {
            // The endpoint does not listen.
            State::SynSent if side == 1 => {
                if segment.flags & ACK == 0 || !self.takes_up(segment) {
                    return Judgement::Invalid;
                }
            }
            State::SynSent => {}
            // The number that the other side expects is not known, or no longer.
            _ if !self.has(SAID, other) || self.has(FIN_SENT, other) || ahead == 0 => self.bits &= !DOUBTED,
            State::Closed => return Judgement::Pass,
            _ if ahead < WINDOW => self.bits |= DOUBTED,
            _ => return Judgement::Pass,
        }
        *state = State::Closed;
        Judgement::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Original, Reply};

    const SYN_ACK: u8 = SYN | ACK;

    fn segment(flags: u8, sequence: u32, acknowledgement: u32, payload: u32) -> Segment {
        Segment { flags, sequence, acknowledgement, payload }
    }

    /// One connection under test. The numbers of its first side begin at 999 and do not wrap; those of its second side
    /// begin at the top and do.
    struct Connection(Tcp, State);

    const CLIENT: u32 = 999;
    const SERVER: u32 = u32::MAX;

    impl Connection {
        fn new() -> Self {
            let (tcp, state) = Tcp::open(&segment(SYN, CLIENT, 0, 0), false).unwrap();
            Self(tcp, state)
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
            self.0.advance(&mut self.1, direction, &segment)
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
            let mut connection = Connection(tcp, state);
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
}

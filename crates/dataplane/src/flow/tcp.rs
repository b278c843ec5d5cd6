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
//! Two hosts may begin another connection between the same ports while the old one is still known here, because one of
//! them or both have forgotten it. A SYN alone proves nothing: it may be old, or forged, and a host that still has the
//! connection answers it with a challenge. So it passes, and only [`LastSyn`] changes. A SYN-ACK that acknowledges it
//! proves that both ends begin anew. The connection then starts again in `syn_received`, with the numbers of the new
//! SYN and SYN-ACK, and nothing of the old one. A reset that acknowledges it proves that the old one is gone.
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
    /// No TCP sends it, or no TCP in this state.
    Invalid,
    /// It begins another connection between the same endpoints.
    Reopen,
}

/// What is known of a connection besides its state: 10 bytes, which the flow keeps. Sides are numbered as directions:
/// side 0 opened the flow, side 1 answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tcp {
    /// A mark for each side; that of side 0 is the lower half. Until a side sends its FIN, its mark is the number that
    /// it expects next, as it said last or will have to say in answer to the other side's SYN. Afterwards the mark is
    /// the number after its FIN.
    pub(super) marks: u64,
    /// Bits, such as [`SAID`], for side 0, and shifted by one for side 1.
    pub(super) bits: u16,
}

/// The bits of a [`Tcp`] that are in use.
pub(super) const BITS: u32 = 9;
/// The side has said which number it expects.
const SAID: u16 = 1;
const FIN_SENT: u16 = 1 << 2;
const FIN_ACKNOWLEDGED: u16 = 1 << 4;
/// Both sent a SYN of their own.
const SIMULTANEOUS: u16 = 1 << 6;
/// The number of the reset that closed it was not the expected one.
const DOUBTED: u16 = 1 << 7;
/// Side 1 opened the connection, on the ports of one that side 0 had opened.
const INVERTED: u16 = 1 << 8;

/// The last SYN without an acknowledgement. The flow keeps it beside its entry: only SYNs, their answers and resets
/// read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastSyn {
    /// The number after it, without its data.
    next: u32,
    /// Bytes of its data (RFC 7413).
    payload: u16,
    from: Direction,
    /// It is not the one that opened the connection as it is known here.
    is_new: bool,
}

impl LastSyn {
    /// The SYN that opens a connection. Of other packets it is never read.
    pub fn opening(segment: &Segment) -> Self {
        Self::of(Direction::Original, segment, false)
    }

    fn of(from: Direction, segment: &Segment, is_new: bool) -> Self {
        let payload = segment.payload.min(u16::MAX.into()) as u16;
        Self { next: segment.sequence.wrapping_add(1), payload, from, is_new }
    }

    /// Whether a segment of `direction` acknowledges it, with all, some or none of its data.
    fn is_taken_up(&self, direction: Direction, segment: &Segment) -> bool {
        let beyond = segment.acknowledgement.wrapping_sub(self.next);
        self.from != direction && segment.flags & ACK != 0 && beyond <= self.payload.into()
    }
}

impl Default for LastSyn {
    fn default() -> Self {
        Self { next: 0, payload: 0, from: Direction::Original, is_new: false }
    }
}

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
    pub fn advance(
        &mut self,
        state: &mut State,
        direction: Direction,
        segment: &Segment,
        last: &mut LastSyn,
    ) -> Judgement {
        if *state == State::Established && self.advance_open(direction, segment) {
            return Judgement::Pass;
        }
        if !is_possible(segment.flags) {
            return Judgement::Invalid;
        }
        let side = direction as usize;
        if segment.flags & RST != 0 {
            return self.reset(state, direction, segment, last);
        }
        match segment.flags & (SYN | ACK) {
            SYN => self.synchronise(state, direction, segment, last),
            0x12 => self.answer(state, direction, segment, last),
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
    fn has(&self, what: u16, side: usize) -> bool {
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
    fn synchronise(
        &mut self,
        state: &mut State,
        direction: Direction,
        segment: &Segment,
        last: &mut LastSyn,
    ) -> Judgement {
        let side = direction as usize;
        let next = segment.sequence.wrapping_add(1);
        match *state {
            State::TimeWait => return Judgement::Reopen,
            State::Closed if self.bits & DOUBTED == 0 => return Judgement::Reopen,
            State::SynSent if side == 0 => {
                self.set_mark(1, next);
                self.set_mark(0, segment.payload);
                *last = LastSyn::opening(segment);
            }
            State::SynSent => {
                self.set_mark(0, next);
                self.bits |= SIMULTANEOUS;
                *state = State::SynReceived;
                // If the first side has forgotten its own, it answers with another number.
                *last = LastSyn::of(direction, segment, true);
            }
            // Of a handshake in which both sent a SYN, the other one again.
            State::SynReceived if self.bits & SIMULTANEOUS != 0 && next == self.mark(1 - side) => {}
            // The side that answers does not open as well.
            State::SynReceived if side != self.opener() => return Judgement::Invalid,
            // The same once more.
            _ if last.from == direction && last.next == next => {}
            // On an open connection it is old, or a probe, or the first of another connection. The other side knows.
            _ => *last = LastSyn::of(direction, segment, true),
        }
        Judgement::Pass
    }

    /// The side that opened the connection.
    #[inline]
    fn opener(&self) -> usize {
        usize::from(self.bits & INVERTED != 0)
    }

    /// Whether an answer acknowledges the SYN that was sent, with all, some or none of the data in it (RFC 7413). Until
    /// then the first mark is the length of that data.
    fn takes_up(&self, segment: &Segment) -> bool {
        segment.acknowledgement.wrapping_sub(self.mark(1)) <= self.mark(0)
    }

    /// A SYN with an acknowledgement.
    fn answer(&mut self, state: &mut State, direction: Direction, segment: &Segment, last: &mut LastSyn) -> Judgement {
        let side = direction as usize;
        let begins_anew = last.is_new && last.is_taken_up(direction, segment);
        match *state {
            _ if begins_anew => {
                last.is_new = false;
                let both_open = if *state == State::SynReceived { self.bits & SIMULTANEOUS } else { 0 };
                self.bits = both_open | if side == 0 { INVERTED } else { 0 };
            }
            State::SynSent if side == 1 && self.takes_up(segment) => {}
            State::SynSent | State::TimeWait | State::Closed => return Judgement::Invalid,
            // It is a retransmission.
            _ => return Judgement::Pass,
        }
        self.bits |= SAID << side;
        self.set_mark(1 - side, segment.sequence.wrapping_add(1));
        self.set_mark(side, segment.acknowledgement);
        *state = State::SynReceived;
        Judgement::Pass
    }

    /// An acknowledgement, with data, a FIN, or nothing.
    fn go_on(&mut self, state: &mut State, side: usize, segment: &Segment) -> Judgement {
        let fin = segment.flags & FIN != 0;
        match *state {
            // The sender still has an old connection, which the first side then resets.
            State::SynSent if side == 1 && !fin => return Judgement::Pass,
            State::SynSent => return Judgement::Invalid,
            State::SynReceived if side == self.opener() || self.bits & SIMULTANEOUS != 0 => {
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

    fn reset(&mut self, state: &mut State, direction: Direction, segment: &Segment, last: &LastSyn) -> Judgement {
        let side = direction as usize;
        let other = 1 - side;
        let ahead = segment.sequence.wrapping_sub(self.mark(other));
        match *state {
            // The endpoint has forgotten the connection, and refuses the next.
            _ if last.is_new && last.is_taken_up(direction, segment) => self.bits &= !DOUBTED,
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
mod lives;
#[cfg(test)]
mod tests;

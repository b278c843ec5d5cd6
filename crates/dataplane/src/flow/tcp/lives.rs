//! Two lives of one pair of ports: every state that an old connection leaves behind, and every packet of a new one.
//!
//! The model is a table, written from RFC 9293 (3.5.1, half-open connections; 3.10.7, the reaction of a host in each state to
//! a segment) and from what Linux's connection tracking does: a SYN in an open connection changes nothing, the SYN-ACK or
//! the reset that acknowledges it does, and a connection that has ended begins anew at once. The numbers of the new life
//! are behind those of the old one, ahead of them, equal, far away, and around the wrap.

use super::*;
use Direction::{Original, Reply};

const SYN_ACK: u8 = SYN | ACK;

/// The numbers of one life: the first of side 0 and of side 1.
#[derive(Clone, Copy, Debug)]
struct Life {
    first: [u32; 2],
    /// The side that opens it.
    opener: Direction,
}

/// A packet of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packet {
    Syn,
    /// The SYN once more.
    SynAgain,
    /// A SYN-ACK that acknowledges the SYN.
    SynAck,
    /// A reset that acknowledges the SYN.
    Refusal,
    /// The third packet of the handshake.
    Ack,
    /// Data of the opener, then of the side that answers, each acknowledged.
    Data,
    /// FIN of the opener, then of the other side, then the last acknowledgement.
    Fin,
    FinOfOther,
    LastAck,
}

/// The required result of a tracker for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// It passes, and the state is this.
    To(State),
    /// It passes, and the state is the one before.
    Stays,
    Invalid,
    /// A new flow begins with it.
    Reopens,
}

fn other(direction: Direction) -> Direction {
    if direction == Original { Reply } else { Original }
}

impl Life {
    /// The number that a side says in its `n`-th byte after the SYN.
    fn at(&self, side: Direction, n: u32) -> u32 {
        self.first[side as usize].wrapping_add(n)
    }

    fn segments(&self, packet: Packet) -> Vec<(Direction, Segment)> {
        let (a, b) = (self.opener, other(self.opener));
        let make = |from: Direction, flags, n, acknowledged, payload| {
            let acknowledgement = if flags & ACK == 0 { 0 } else { self.at(other(from), acknowledged) };
            (from, Segment { flags, sequence: self.at(from, n), acknowledgement, payload })
        };
        match packet {
            Packet::Syn | Packet::SynAgain => vec![make(a, SYN, 0, 0, 0)],
            Packet::SynAck => vec![make(b, SYN_ACK, 0, 1, 0)],
            Packet::Refusal => {
                let (from, segment) = make(b, RST | ACK, 0, 1, 0);
                vec![(from, Segment { sequence: 0, ..segment })]
            }
            Packet::Ack => vec![make(a, ACK, 1, 1, 0)],
            Packet::Data => vec![make(a, ACK, 1, 1, 10), make(b, ACK, 1, 11, 20), make(a, ACK, 11, 21, 0)],
            Packet::Fin => vec![make(a, FIN | ACK, 11, 21, 0)],
            Packet::FinOfOther => vec![make(b, FIN | ACK, 21, 12, 0)],
            Packet::LastAck => vec![make(a, ACK, 12, 22, 0)],
        }
    }
}

#[derive(Clone)]
struct Tracked(Tcp, State, LastSyn);

impl Tracked {
    fn open(life: &Life) -> Self {
        let (_, syn) = life.segments(Packet::Syn)[0];
        let (tcp, state) = Tcp::open(&syn, false).unwrap();
        Self(tcp, state, LastSyn::opening(&syn))
    }

    fn judge(&mut self, (direction, segment): (Direction, Segment)) -> Then {
        let before = self.1;
        match self.0.advance(&mut self.1, direction, &segment, &mut self.2) {
            Judgement::Invalid => Then::Invalid,
            Judgement::Reopen => Then::Reopens,
            Judgement::Pass if self.1 == before => Then::Stays,
            Judgement::Pass => Then::To(self.1),
        }
    }

    fn all(&mut self, segments: Vec<(Direction, Segment)>) {
        for segment in segments {
            let then = self.judge(segment);
            assert!(matches!(then, Then::Stays | Then::To(_)), "{segment:?}: {then:?}");
        }
    }
}

/// What an old life left behind: its last state, and whether the reset that closed it is doubted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Left {
    state: State,
    is_doubted: bool,
}

/// Every way to leave a connection behind.
fn left_behind(old: &Life) -> Vec<(Left, Tracked)> {
    let mut tracked = Tracked::open(old);
    let mut all = vec![];
    let mut keep = |tracked: &Tracked, is_doubted| all.push((Left { state: tracked.1, is_doubted }, tracked.clone()));
    keep(&tracked, false);
    tracked.all(old.segments(Packet::SynAck));
    keep(&tracked, false);
    tracked.all(old.segments(Packet::Ack));
    tracked.all(old.segments(Packet::Data));
    keep(&tracked, false);
    for (ahead, is_doubted) in [(0, false), (5, true)] {
        for side in [Original, Reply] {
            let mut reset = tracked.clone();
            let sequence = old.at(side, if side == Original { 11 } else { 21 } + ahead);
            reset.all(vec![(side, Segment { flags: RST, sequence, acknowledgement: 0, payload: 0 })]);
            keep(&reset, is_doubted);
        }
    }
    // Either side is the first to close.
    for side in [Original, Reply] {
        let mut closing = tracked.clone();
        let (n, of_other) = if side == Original { (11, 21) } else { (21, 11) };
        let make = |from, flags, n, acknowledged| {
            let acknowledgement = old.at(other(from), acknowledged);
            vec![(from, Segment { flags, sequence: old.at(from, n), acknowledgement, payload: 0 })]
        };
        closing.all(make(side, FIN | ACK, n, of_other));
        keep(&closing, false);
        let mut crossing = closing.clone();
        crossing.all(make(other(side), FIN | ACK, of_other, n));
        keep(&crossing, false);
        closing.all(make(other(side), ACK, of_other, n + 1));
        keep(&closing, false);
        closing.all(make(other(side), FIN | ACK, of_other, n + 1));
        keep(&closing, false);
        closing.all(make(side, ACK, n + 1, of_other + 1));
        keep(&closing, false);
    }
    all
}

/// The model: the fate of a packet of the new life, if those before it (`seen`) have passed.
fn model(left: Left, opener: Direction, seen: &[Packet], packet: Packet) -> Then {
    use State::{Closed, Established, FinWait, LastAck, SynReceived, SynSent, TimeWait};
    let is_over = left.state == TimeWait || left.state == Closed && !left.is_doubted;
    // In `syn_sent` a SYN of the same side takes the place of the first, and one of the other side meets it (RFC 9293,
    // figure 8). In `syn_received` the side that answers sends no SYN of its own.
    let replaces = left.state == SynSent && opener == Original;
    let meets = left.state == SynSent && opener == Reply;
    let has_syn = seen.contains(&Packet::Syn);
    let is_open = seen.contains(&Packet::SynAck);
    match packet {
        Packet::Syn | Packet::SynAgain if is_over => Then::Reopens,
        Packet::Syn if meets => Then::To(SynReceived),
        Packet::Syn if left.state == SynReceived && opener == Reply => Then::Invalid,
        Packet::Syn | Packet::SynAgain => Then::Stays,
        Packet::SynAck if has_syn && left.state == SynReceived => Then::Stays,
        Packet::SynAck if has_syn => Then::To(SynReceived),
        Packet::SynAck if replaces || meets || is_over || left.state == Closed => Then::Invalid,
        // Without its SYN it is taken for a retransmission.
        Packet::SynAck => Then::Stays,
        Packet::Refusal if has_syn && left.state == Closed => Then::Stays,
        Packet::Refusal => Then::To(Closed),
        Packet::Ack if is_open => Then::To(Established),
        Packet::Fin => Then::To(FinWait),
        Packet::FinOfOther => Then::To(LastAck),
        Packet::LastAck => Then::To(TimeWait),
        Packet::Ack | Packet::Data => Then::Stays,
    }
}

/// First numbers of the new life, seen from those of the old one.
const OFFSETS: [u32; 12] =
    [0, 1, 12, 22, 1000, WINDOW - 1, WINDOW + 5, 1 << 31, (1 << 31) + 7, u32::MAX - WINDOW, u32::MAX - 500, u32::MAX];

/// Every old life with everything that it leaves behind, and every new one.
fn each(mut check: impl FnMut(Left, &Tracked, &Life, &Life)) {
    for base in [[1000, 500_000], [u32::MAX - 5, 3], [0x8000_0000, 0x7fff_ffff]] {
        let old = Life { first: base, opener: Original };
        for (left, tracked) in left_behind(&old) {
            for opener in [Original, Reply] {
                for (a, b) in OFFSETS.iter().flat_map(|&a| OFFSETS.map(|b| (a, b))) {
                    let first = [base[0].wrapping_add(a), base[1].wrapping_add(b)];
                    // A SYN with the number of the one before is the one before.
                    if a != 0 && b != 0 {
                        check(left, &tracked, &old, &Life { first, opener });
                    }
                }
            }
        }
    }
}

#[test]
fn every_state_is_left_behind_by_an_old_life() {
    let old = Life { first: [7, 9], opener: Original };
    let left: Vec<Left> = left_behind(&old).into_iter().map(|(left, _)| left).collect();
    for state in [
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait,
        State::CloseWait,
        State::LastAck,
        State::TimeWait,
        State::Closed,
    ] {
        assert!(left.iter().any(|left| left.state == state), "{state:?}");
    }
    assert!(left.contains(&Left { state: State::Closed, is_doubted: true }));
}

#[test]
fn a_new_life_is_followed_from_its_first_packet_to_its_last_whatever_the_old_one_left_behind() {
    let mut n = 0;
    each(|left, tracked, _, new| {
        let mut tracked = tracked.clone();
        let mut seen = vec![];
        for packet in [
            Packet::Syn,
            Packet::SynAgain,
            Packet::SynAck,
            Packet::Ack,
            Packet::Data,
            Packet::Fin,
            Packet::FinOfOther,
            Packet::LastAck,
        ] {
            let expected = model(left, new.opener, &seen, packet);
            for segment in new.segments(packet) {
                let then = tracked.judge(segment);
                // In a handshake that both sides began, the state is there already.
                let is_there =
                    expected == Then::To(tracked.1) && then == Then::Stays && tracked.1 == State::SynReceived;
                assert!(
                    then == expected || is_there,
                    "{left:?}, {new:?}, {packet:?} after {seen:?}: {then:?}, not {expected:?}"
                );
            }
            // A flow of its own begins then, which the other tests follow.
            if matches!(expected, Then::Reopens | Then::Invalid) {
                return;
            }
            seen.push(packet);
            n += 1;
        }
        assert_eq!(tracked.1, State::TimeWait);
    });
    assert!(n > 10_000, "{n}");
}

#[test]
fn the_windows_are_those_of_the_new_life_once_it_is_open() {
    each(|left, tracked, old, new| {
        let mut tracked = tracked.clone();
        for packet in [Packet::Syn, Packet::SynAck, Packet::Ack, Packet::Data] {
            for segment in new.segments(packet) {
                if matches!(tracked.judge(segment), Then::Reopens | Then::Invalid) {
                    return;
                }
            }
        }
        assert_eq!(tracked.1, State::Established, "{left:?}, {new:?}");
        // A reset with the exact number of the new life closes it without doubt, from either side.
        for (side, n) in [(new.opener, 11), (other(new.opener), 21)] {
            let mut reset = tracked.clone();
            reset.all(vec![(side, Segment { flags: RST, sequence: new.at(side, n), acknowledgement: 0, payload: 0 })]);
            assert_eq!(reset.1, State::Closed);
            assert_eq!(reset.judge(new.segments(Packet::Syn)[0]), Then::Reopens, "{left:?}, {new:?}");
        }
        // Those of the old life mean nothing, if they are out of its window.
        for (side, n) in [(Original, 11), (Reply, 21)] {
            let mut late = tracked.clone();
            let expected = new.at(side, if side == new.opener { 11 } else { 21 });
            if old.at(side, n).wrapping_sub(expected) >= WINDOW {
                let segment = Segment { flags: RST, sequence: old.at(side, n), acknowledgement: 0, payload: 0 };
                assert_eq!(late.judge((side, segment)), Then::Stays, "{left:?}, {new:?}");
            }
        }
    });
}

#[test]
fn a_new_life_that_is_refused_closes_what_the_old_one_left_behind() {
    each(|left, tracked, _, new| {
        let mut tracked = tracked.clone();
        let syn = tracked.judge(new.segments(Packet::Syn)[0]);
        // If both open at once there is no refusal: the other side does not listen, but knows the connection.
        if matches!(syn, Then::Reopens | Then::Invalid) || left.state == State::SynSent && new.opener == Reply {
            return;
        }
        let expected = model(left, new.opener, &[Packet::Syn], Packet::Refusal);
        assert_eq!(tracked.judge(new.segments(Packet::Refusal)[0]), expected, "{left:?}, {new:?}");
        assert_eq!(tracked.judge(new.segments(Packet::Syn)[0]), Then::Reopens, "{left:?}, {new:?}");
    });
}

#[test]
fn nothing_but_the_answer_to_a_new_syn_begins_a_new_life() {
    each(|left, tracked, _, new| {
        let may_stay = matches!(left.state, State::Established | State::FinWait | State::CloseWait | State::LastAck);
        if !may_stay {
            return;
        }
        let mut with_syn = tracked.clone();
        assert_eq!(with_syn.judge(new.segments(Packet::Syn)[0]), Then::Stays);
        assert_eq!(with_syn.0, tracked.0, "{left:?}, {new:?}: a SYN changed the connection");
        // An answer that acknowledges something else, or comes from the side that asks, or was not asked for.
        let (from, segment) = new.segments(Packet::SynAck)[0];
        for (wrong, direction, after_syn) in
            [(1, from, true), (u32::MAX, from, true), (0, other(from), true), (0, from, false)]
        {
            let mut tracked = if after_syn { with_syn.clone() } else { tracked.clone() };
            let before = tracked.0;
            let acknowledgement = segment.acknowledgement.wrapping_add(wrong);
            assert_eq!(tracked.judge((direction, Segment { acknowledgement, ..segment })), Then::Stays);
            assert_eq!(tracked.0, before, "{left:?}, {new:?}");
        }
        // The host that still has the connection says so, and the old life goes on.
        let mut closing = with_syn.clone();
        closing.all(new.segments(Packet::SynAgain));
        assert_eq!(closing.1, left.state);
    });
}

#[test]
fn data_in_the_new_syn_may_be_acknowledged_in_part() {
    let old = Life { first: [1000, 2000], opener: Original };
    let new = Life { first: [70_000, 80_000], opener: Original };
    for (left, tracked) in left_behind(&old) {
        for (acknowledged, is_taken) in [(0, true), (60, true), (100, true), (101, false)] {
            let mut tracked = tracked.clone();
            let (_, syn) = new.segments(Packet::Syn)[0];
            if tracked.judge((Original, Segment { payload: 100, ..syn })) != Then::Stays {
                continue;
            }
            let (_, answer) = new.segments(Packet::SynAck)[0];
            let acknowledgement = answer.acknowledgement + acknowledged;
            tracked.judge((Reply, Segment { acknowledgement, ..answer }));
            let is_new = tracked.0.mark(1) == acknowledgement;
            assert_eq!(is_new, is_taken, "{left:?}, {acknowledged}");
        }
    }
}

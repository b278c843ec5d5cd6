//! State transitions of flows, for every protocol.

use super::packet::{Body, TCP, UDP};
use super::state::{Direction, State};
use super::tcp::{Judgement, LastSyn, Tcp};

/// The state after the first packet of a flow; none if the packet cannot be the first.
pub(super) fn open(protocol: u8, body: &Body, pick_up: bool) -> Option<(Tcp, State)> {
    let state = match body {
        Body::Tcp(segment) => return Tcp::open(segment, pick_up),
        Body::Udp => State::UdpNew,
        Body::Echo { reply: false } => State::Echo,
        Body::Echo { reply: true } | Body::Error { .. } => return None,
        // The caller has refused malformed TCP, UDP and echo packets.
        Body::Other if matches!(protocol, TCP | UDP) => return None,
        Body::Other => State::OtherNew,
    };
    Some((Tcp::default(), state))
}

/// Updates the state with a packet. Errors belong to a flow, but do not change its state.
#[inline]
pub(super) fn advance(
    tcp: &mut Tcp,
    state: &mut State,
    direction: Direction,
    body: &Body,
    last: &mut LastSyn,
) -> Judgement {
    match (body, direction) {
        (Body::Tcp(segment), _) => return tcp.advance(state, direction, segment, last),
        (Body::Udp, Direction::Reply) => *state = State::UdpReplied,
        (Body::Other, Direction::Reply) => *state = State::OtherReplied,
        // With the identifier 0 both ends have the same number, so the type of the message tells which side asks.
        (Body::Echo { reply }, _) if *reply != (direction == Direction::Reply) => return Judgement::Invalid,
        (Body::Echo { reply: true }, _) => tcp.bits = ANSWERED,
        _ => {}
    }
    Judgement::Pass
}

/// The bit of an echo flow that has had a reply.
const ANSWERED: u16 = 1;

/// Whether the packets of a flow are still unanswered.
#[inline]
pub(super) fn is_unanswered(tcp: Tcp, state: State) -> bool {
    match state {
        State::SynSent | State::UdpNew | State::OtherNew => true,
        State::Echo => tcp.bits & ANSWERED == 0,
        _ => false,
    }
}

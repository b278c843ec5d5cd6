//! A flow in the table, and beside it.

use crate::flow::VirtualId;
use crate::flow::packet::{Brief, Endpoint, Tuple};
use crate::flow::state::{self, Direction, State};
use crate::flow::tcp::{Judgement, Tcp};
use crate::plane::Mac;

/// Words of a flow's state: see [`Hot`].
pub(super) const HOT: usize = 6;

/// The state of a flow as its entry holds it.
///
/// ```text
///  word 0  place of its Cold (32 bits) | state (8) | bits of Tcp (8) | flags (2) | turn of that place (14)
///  word 1  marks of Tcp
///  word 2, 3  packets of each direction
///  word 4, 5  bytes of each direction
/// ```
pub(super) type Hot = [u64; HOT];

/// The packets of the first direction go downwards: see `Key`.
pub(super) const DOWNWARDS: u64 = 1 << 48;
/// It is translated: the state is with the cold part.
pub(super) const TRANSLATED: u64 = 1 << 49;
pub(super) const TURN_SHIFT: u32 = 50;

/// Where the cold part of a flow is. Of a translated flow one entry may be left a while after the other was reported, when
/// another flow has the place already: it is told by the turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) index: u32,
    pub(super) turn: u16,
}

impl Place {
    pub(super) fn of(hot: &Hot) -> Self {
        Self { index: hot[0] as u32, turn: (hot[0] >> TURN_SHIFT) as u16 }
    }

    fn bits(self) -> u64 {
        u64::from(self.index) | u64::from(self.turn) << TURN_SHIFT
    }
}

pub(super) fn state_of(hot: &Hot) -> State {
    State::ALL[usize::from((hot[0] >> 32) as u8).min(State::ALL.len() - 1)]
}

pub(super) fn hot(place: Place, flags: u64, tcp: Tcp, state: State) -> Hot {
    let mut hot = [place.bits() | flags, 0, 0, 0, 0, 0];
    set(&mut hot, tcp, state);
    hot
}

#[inline]
fn set(hot: &mut Hot, tcp: Tcp, state: State) {
    hot[0] = hot[0] & !(0xffff << 32) | (state as u64) << 32 | u64::from(tcp.bits) << 40;
    hot[1] = u64::from(tcp.marks[0]) | u64::from(tcp.marks[1]) << 32;
}

/// Takes a packet into account.
#[inline]
pub(super) fn advance(hot: &mut Hot, direction: Direction, packet: &Brief) -> Judgement {
    let mut state = state_of(hot);
    let mut tcp = Tcp { marks: [hot[1] as u32, (hot[1] >> 32) as u32], bits: (hot[0] >> 40) as u8 };
    let judgement = state::advance(&mut tcp, &mut state, direction, &packet.body);
    if judgement == Judgement::Pass {
        set(hot, tcp, state);
        hot[2 + direction as usize] += 1;
        hot[4 + direction as usize] += u64::from(packet.ip_bytes);
    }
    judgement
}

/// Room for a cold part.
#[derive(Default)]
pub(super) struct Room {
    pub(super) turn: u16,
    pub(super) cold: Option<Cold>,
}

/// What a flow is beside its state.
pub(super) struct Cold {
    pub(super) original: Tuple,
    /// Seconds of the stage's clock.
    pub(super) began: u32,
    pub(super) translation: Option<Box<Translation>>,
}

/// How a flow is translated.
pub(super) struct Translation {
    /// What answers look like as they come in.
    pub(super) reply: Tuple,
    pub(super) shared: Hot,
    /// Whom packets of each direction are for, if their destination changes.
    pub(super) macs: [Option<Mac>; 2],
    pub(super) server: Option<(VirtualId, u16)>,
    /// The port is to be given back.
    pub(super) outside: Option<Endpoint>,
    /// When both entries were renewed last.
    pub(super) renewed: u64,
}

/// A flow as people see it.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// What its first packets look like as they come in.
    pub original: Tuple,
    /// What answers look like as they come in: the other way round, unless it is translated.
    pub reply: Tuple,
    /// Its state.
    pub state: State,
    /// Packets of each direction.
    pub packets: [u64; 2],
    /// Bytes of each direction, IP headers included.
    pub bytes: [u64; 2],
    /// Since it began.
    pub age_s: u64,
    /// Seconds that it has to live without a packet.
    pub remaining_s: u64,
}

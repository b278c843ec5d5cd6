//! A flow in the table, and its data beside the table.

use super::loose::Loose;
use super::tracking::Route;
use crate::flow::VirtualId;
use crate::flow::course;
use crate::flow::packet::{Body, Brief, Endpoint, Tuple};
use crate::flow::state::{Direction, State};
use crate::flow::tcp::{BITS, Judgement, LastSyn, Tcp};
use crate::mac::Mac;

/// Words of a flow's state: see [`Hot`].
pub(super) const HOT: usize = 6;

/// The state of a flow in its entry.
///
/// ```text
///  word 0     place of its Cold (32 bits) | state (4) | bits of Tcp (12) | flags (2) | generation of that place (14)
///  word 1     marks of Tcp
///  word 2     packets of each direction (16, 16) | epoch of words 4 and 5 (32)
///  word 3     bytes of each direction (32, 32)
///  word 4, 5  the Route of each direction
/// ```
/// Packets and bytes are those since the last time they were added to the cold part, which happens when the packets of
/// a direction fill their 16 bits. So many packets have fewer than 2^32 bytes.
pub(super) type Hot = [u64; HOT];

/// Packets of the first direction go downwards: see `Key`.
pub(super) const DOWNWARDS: u64 = 1 << 48;
/// The flow is translated: its state is in the cold part.
pub(super) const TRANSLATED: u64 = 1 << 49;
pub(super) const GENERATION_SHIFT: u32 = 50;
const STATE_SHIFT: u32 = 32;
const TCP_SHIFT: u32 = 36;
const _: () = assert!(State::ALL.len() <= 16 && BITS <= 12);

const MOST_PACKETS: u64 = 0xffff;

/// The place of a flow's cold part. One entry of a translated flow may outlive the other, when another flow has the
/// place already; the generation tells them apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) index: u32,
    pub(super) generation: u16,
}

impl Place {
    #[inline]
    pub(super) fn of(hot: &Hot) -> Self {
        Self { index: hot[0] as u32, generation: (hot[0] >> GENERATION_SHIFT) as u16 }
    }

    fn bits(self) -> u64 {
        u64::from(self.index) | u64::from(self.generation) << GENERATION_SHIFT
    }
}

#[inline]
pub(super) fn state_of(hot: &Hot) -> State {
    State::ALL[((hot[0] >> STATE_SHIFT) as usize & 0xf).min(State::ALL.len() - 1)]
}

/// The state of a flow after its first packet.
pub(super) fn hot(place: Place, flags: u64, tcp: Tcp, state: State, ip_bytes: u16) -> Hot {
    let mut hot = [place.bits() | flags, 0, 1, u64::from(ip_bytes), 0, 0];
    set(&mut hot, tcp, state);
    hot
}

#[inline]
fn set(hot: &mut Hot, tcp: Tcp, state: State) {
    hot[0] = hot[0] & !(0xffff << STATE_SHIFT) | (state as u64) << STATE_SHIFT | u64::from(tcp.bits) << TCP_SHIFT;
    hot[1] = tcp.marks;
}

#[inline]
fn tcp_of(hot: &Hot) -> Tcp {
    Tcp { marks: hot[1], bits: (hot[0] >> TCP_SHIFT) as u16 & 0xfff }
}

#[inline]
fn count(hot: &mut Hot, direction: Direction, packet: &Brief) {
    hot[2] += 1 << (16 * direction as u32);
    hot[3] += u64::from(packet.ip_bytes) << (32 * direction as u32);
}

/// Whether the packets of a direction fill their bits. They must be [taken](take_counts) before the next packet.
#[inline]
pub(super) fn is_full(hot: &Hot, direction: Direction) -> bool {
    hot[2] >> (16 * direction as u32) & MOST_PACKETS == MOST_PACKETS
}

/// Updates an entry with a packet. The entry is not [full](is_full).
#[inline]
pub(super) fn advance(hot: &mut Hot, direction: Direction, packet: &Brief, last: &mut LastSyn) -> Judgement {
    let (mut tcp, mut state) = (tcp_of(hot), state_of(hot));
    let judgement = course::advance(&mut tcp, &mut state, direction, &packet.body, last);
    if judgement == Judgement::Pass {
        set(hot, tcp, state);
        count(hot, direction, packet);
    }
    judgement
}

/// The fast form of [`advance`], for an untranslated TCP connection that is open and stays open, as for most packets.
/// Returns false and changes nothing for all others.
#[inline]
pub(super) fn advance_open(hot: &mut Hot, direction: Direction, packet: &Brief) -> bool {
    const OPEN: u64 = (State::Established as u64) << STATE_SHIFT;
    let Body::Tcp(segment) = &packet.body else { return false };
    if hot[0] & (0xf << STATE_SHIFT | TRANSLATED) != OPEN || is_full(hot, direction) {
        return false;
    }
    let mut tcp = tcp_of(hot);
    let is_usual = tcp.advance_open(direction, segment);
    if is_usual {
        set(hot, tcp, State::Established);
        count(hot, direction, packet);
    }
    is_usual
}

/// Whether the packets of a flow are still unanswered.
#[inline]
pub(super) fn is_unanswered(hot: &Hot) -> bool {
    course::is_unanswered(tcp_of(hot), state_of(hot))
}

/// The number after the SYN of a flow that is in `syn_sent`.
pub(super) fn after_syn(hot: &Hot) -> u32 {
    (hot[1] >> 32) as u32
}

/// The route of a direction, if it is still valid.
#[inline]
pub(super) fn route(hot: &Hot, direction: Direction, epoch: u32) -> Route {
    if (hot[2] >> 32) as u32 == epoch { Route(hot[4 + direction as usize]) } else { Route::NONE }
}

/// Records the route of a direction.
pub(super) fn set_route(hot: &mut Hot, direction: Direction, epoch: u32, route: Route) {
    if (hot[2] >> 32) as u32 != epoch {
        hot[2] = hot[2] & u64::from(u32::MAX) | u64::from(epoch) << 32;
        (hot[4], hot[5]) = (0, 0);
    }
    hot[4 + direction as usize] = route.0;
}

/// Packets and bytes of each direction.
#[derive(Clone, Copy, Default)]
pub(super) struct Volume {
    pub(super) packets: [u64; 2],
    pub(super) bytes: [u64; 2],
}

impl Volume {
    /// Adds the counts of an entry.
    pub(super) fn add(&mut self, hot: &Hot) {
        for direction in 0..2 {
            self.packets[direction] += hot[2] >> (16 * direction) & MOST_PACKETS;
            self.bytes[direction] += hot[3] >> (32 * direction) & u64::from(u32::MAX);
        }
    }
}

/// Moves the counts of an entry to the cold part.
#[cold]
pub(super) fn take_counts(hot: &mut Hot, volume: &mut Volume) {
    volume.add(hot);
    hot[2] &= u64::from(u32::MAX) << 32;
    hot[3] = 0;
}

/// A place for a cold part.
#[derive(Default)]
pub(super) struct ColdSlot {
    pub(super) generation: u16,
    pub(super) cold: Option<Cold>,
}

/// The data of a flow that is not in its entry.
pub(super) struct Cold {
    pub(super) original: Tuple,
    /// The beginning, in seconds of the stage's clock.
    pub(super) began: u32,
    /// See [`LastSyn`].
    pub(super) syn: LastSyn,
    /// See [`Loose`].
    pub(super) loose: Loose,
    /// Counts that were moved here from its entry.
    pub(super) volume: Volume,
    pub(super) translation: Option<Box<Translation>>,
}

impl Cold {
    /// The addresses of answers as they come in.
    pub(super) fn reply(&self) -> Tuple {
        self.translation.as_ref().map_or(self.original.reversed(), |translation| translation.reply)
    }
}

/// How a flow is translated.
pub(super) struct Translation {
    /// The addresses of answers as they come in.
    pub(super) reply: Tuple,
    pub(super) shared: Hot,
    /// The MAC address for packets of each direction, if their destination changes.
    pub(super) macs: [Option<Mac>; 2],
    pub(super) server: Option<(VirtualId, u16)>,
    /// The flow has a port of source NAT, which is released at its end.
    pub(super) outside: Option<Endpoint>,
    /// When both entries were last renewed.
    pub(super) renewed: u64,
}

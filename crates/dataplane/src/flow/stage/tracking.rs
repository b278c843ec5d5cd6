//! What a worker knows of a burst between the flow stage and the lookup of names.

use crate::counters::DropReason;
use crate::flow::key::WORDS;
use crate::flow::packet::{Body, Brief};
use lookup::flow::{InFlight, Slot};
use lookup::hash::Digest;
use netio::BURST;

/// The port by which the packets of a flow's direction leave, and their name: `| name 48 | exit 8 | 0 (6) | host |
/// there |`.
///
/// A route is valid in the epoch in which it was found. It saves a packet three checks: the lookup of its name, that
/// the name is valid if the packet comes from a host, and that the name is local if the packet leaves to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Route(pub(super) u64);

impl Route {
    /// No route is known.
    pub(crate) const NONE: Self = Self(0);
    /// Bytes of the longest name in a route.
    pub(crate) const NAME_BYTES: usize = 6;
    const EXIT: u64 = 0xff << 8;

    /// The route of a name that came from a trunk or from a host, and leaves by the port with index `exit`.
    #[inline]
    pub(crate) fn new(name: u64, from_trunk: bool, exit: u8) -> Self {
        Self(name << 16 | u64::from(exit) << 8 | u64::from(!from_trunk) << 1 | 1)
    }

    /// The port of exit, if this is the route of `name`.
    #[inline]
    pub(crate) fn exit_of(self, name: u64, from_trunk: bool) -> Option<u8> {
        let same = (self.0 ^ Self::new(name, from_trunk, 0).0) & !Self::EXIT == 0;
        same.then_some((self.0 >> 8) as u8)
    }
}

/// See the module.
pub(crate) struct Tracking {
    /// Bit `i` is set if packet `i` is to be dropped, for `reasons[i]`.
    pub(crate) refused: u32,
    pub(crate) reasons: [DropReason; BURST],
    /// The route of packet `i`, if its flow knows it.
    pub(crate) routes: [Route; BURST],
    /// The index of packet `i` in the arrays below, if its flow is to learn its route.
    pub(super) flow_of: [u8; BURST],
    /// Packets that belong to flows: the length of the arrays below.
    pub(super) n: usize,
    pub(super) briefs: [Brief; BURST],
    /// The offset of the EtherType in the frames of the burst.
    pub(super) type_at: usize,
    pub(super) keys: [[u64; WORDS]; BURST],
    pub(super) digests: [Digest; BURST],
    /// The lookups of the flows, while they are in flight.
    pub(super) in_flight: InFlight,
    pub(super) slots: [Option<Slot>; BURST],
    pub(super) owners: [u8; BURST],
    pub(super) downwards: u32,
    /// See [`Shared::epoch`](crate::plane::Shared::epoch).
    pub(super) epoch: u32,
}

pub(super) const NO_FLOW: u8 = u8::MAX;

impl Default for Tracking {
    fn default() -> Self {
        Self {
            refused: 0,
            reasons: [DropReason::FlowRefused; BURST],
            routes: [Route::NONE; BURST],
            flow_of: [NO_FLOW; BURST],
            n: 0,
            briefs: [Brief { body: Body::Other, ip_bytes: 0 }; BURST],
            type_at: 0,
            keys: [[0; WORDS]; BURST],
            digests: [Digest(0); BURST],
            in_flight: InFlight::default(),
            slots: [None; BURST],
            owners: [0; BURST],
            downwards: 0,
            epoch: 0,
        }
    }
}

impl Tracking {
    /// Resets to: no packet is dropped, and no route is known.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.refused = 0;
        self.routes = [Route::NONE; BURST];
        self.flow_of = [NO_FLOW; BURST];
        self.downwards = 0;
    }

    /// Resets to: no packet of the burst belongs to a flow.
    pub(crate) fn pass(&mut self, epoch: u32) {
        self.clear();
        (self.epoch, self.n) = (epoch, 0);
    }

    #[inline]
    pub(super) fn refuse(&mut self, i: usize, reason: DropReason) {
        self.refused |= 1 << i;
        self.reasons[i] = reason;
    }

    /// Whether the flow of packet `i` is to learn its route.
    #[inline]
    pub(crate) fn learns(&self, i: usize) -> bool {
        self.flow_of[i] != NO_FLOW
    }

    /// Records that packet `j` of the flows passes, and its route.
    #[inline]
    pub(super) fn set_route(&mut self, j: usize, route: Route) {
        let owner = usize::from(self.owners[j]);
        self.routes[owner] = route;
        self.flow_of[owner] = j as u8;
    }

    #[inline]
    pub(super) fn is_downwards(&self, j: usize) -> bool {
        self.downwards >> j & 1 != 0
    }
}

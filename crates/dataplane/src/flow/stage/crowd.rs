//! Chooses the flow that makes room, so that no port takes the table from the others.
//!
//! A flow counts for the port by which its first packet came in: a host can forge addresses, but not its port. A port
//! may have eight times as many flows as there are places left (Choudhury and Hahne, "Dynamic Queue Length Thresholds
//! for Shared-Memory Packet Switches"). So one port alone may fill 8/9 of the table, two may fill 8/17 each, and there
//! is always room for another one.
//!
//! A flow is *loose* while its handshake is not finished, it is not answered, or it is over. Loose flows of a port
//! are in a list, the oldest first. A flow that finds no room takes the place of the oldest loose flow of its own port
//! if that has its share, otherwise of the port with most flows. So a flood of SYNs pushes out itself.
//!
//! Cost: a flow that begins, is answered, or ends changes two neighbours in the list. The links are in the cold parts.

use super::Stage;
use super::loose::{Loose, NONE};
use super::record::{Cold, ColdSlot, Hot, is_unanswered, state_of};
use crate::flow::export::Why;
use crate::flow::share::SHARE;
use crate::flow::state::State;
use fib::action::PortId;
use std::collections::HashMap;

/// The most loose flows that are looked at for one that makes room.
const ATTEMPTS: usize = 64;

/// The flows of a port.
#[derive(Clone, Copy, Debug)]
struct OfPort {
    flows: u64,
    first: u32,
    last: u32,
}

impl Default for OfPort {
    fn default() -> Self {
        Self { flows: 0, first: NONE, last: NONE }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Crowd(HashMap<PortId, OfPort>);

/// Whether a flow may make room for others.
#[inline]
pub(super) fn is_loose(hot: &Hot) -> bool {
    is_unanswered(hot) || matches!(state_of(hot), State::SynReceived | State::TimeWait | State::Closed)
}

fn loose_of(slots: &mut [ColdSlot], index: u32) -> Option<&mut Loose> {
    slots.get_mut(index as usize)?.cold.as_mut().map(|cold| &mut cold.loose)
}

impl Crowd {
    /// Counts a flow that has begun, and is loose.
    pub(super) fn enter(&mut self, slots: &mut [ColdSlot], index: u32) {
        let Some(loose) = loose_of(slots, index) else { return };
        self.0.entry(loose.port).or_default().flows += 1;
        self.set(slots, index, true);
    }

    /// Removes a flow that has ended: its cold part, which is no longer in its place.
    pub(super) fn leave(&mut self, slots: &mut [ColdSlot], cold: &Cold) {
        if cold.loose.is_in {
            self.unlink(slots, cold.loose);
        }
        if let Some(of_port) = self.0.get_mut(&cold.loose.port) {
            of_port.flows -= 1;
            if of_port.flows == 0 {
                self.0.remove(&cold.loose.port);
            }
        }
    }

    /// Puts a flow at the end of the list of its port, or takes it out.
    pub(super) fn set(&mut self, slots: &mut [ColdSlot], index: u32, is_in: bool) {
        let Some(loose) = loose_of(slots, index) else { return };
        if loose.is_in == is_in {
            return;
        }
        loose.is_in = is_in;
        let was = *loose;
        if !is_in {
            self.unlink(slots, was);
            return;
        }
        let of_port = self.0.entry(was.port).or_default();
        let last = std::mem::replace(&mut of_port.last, index);
        if last == NONE {
            of_port.first = index;
        }
        if let Some(loose) = loose_of(slots, index) {
            (loose.before, loose.after) = (last, NONE);
        }
        if let Some(before) = loose_of(slots, last) {
            before.after = index;
        }
    }

    fn unlink(&mut self, slots: &mut [ColdSlot], was: Loose) {
        if let Some(before) = loose_of(slots, was.before) {
            before.after = was.after;
        }
        if let Some(after) = loose_of(slots, was.after) {
            after.before = was.before;
        }
        let Some(of_port) = self.0.get_mut(&was.port) else { return };
        if was.before == NONE {
            of_port.first = was.after;
        }
        if was.after == NONE {
            of_port.last = was.before;
        }
    }

    /// Flows that a port has.
    pub(super) fn flows(&self, port: PortId) -> u64 {
        self.0.get(&port).map_or(0, |of_port| of_port.flows)
    }

    /// The port with most flows among those that have loose ones. `port` itself comes last.
    fn most_crowded(&self, port: PortId) -> Option<PortId> {
        let own = self.flows(port);
        let loose = self.0.iter().filter(|(_, of_port)| of_port.first != NONE);
        let most = loose.max_by_key(|(id, of_port)| (of_port.flows, id.0))?;
        if most.1.flows >= own { Some(*most.0) } else { Some(port).filter(|own| self.first(*own) != NONE) }
    }

    fn first(&self, port: PortId) -> u32 {
        self.0.get(&port).map_or(NONE, |of_port| of_port.first)
    }
}

impl Stage {
    /// Makes room for a flow that came in by a port. Returns whether there is room, or the counter of what is missing.
    pub(super) fn make_room(&mut self, port: PortId) -> bool {
        let free = u64::from(self.settings.max_flows).saturating_sub(self.len() as u64);
        if free > 0 && self.crowd.flows(port) < SHARE * free {
            return true;
        }
        let from = if free > 0 { Some(port) } else { self.crowd.most_crowded(port) };
        if from.is_some_and(|from| self.evict(from, |_| true)) {
            return true;
        }
        *if free > 0 { &mut self.counts.refused_share } else { &mut self.counts.refused_limit } += 1;
        false
    }

    /// Makes an outside port free: by the end of a loose flow for which `which` returns true, of the port with most
    /// flows or of `port`.
    pub(super) fn make_room_outside(&mut self, port: PortId, which: impl Fn(&Cold) -> bool) -> bool {
        let most = self.crowd.most_crowded(port).filter(|most| *most != port);
        most.into_iter().chain([port]).any(|from| self.evict(from, &which))
    }

    /// Ends the oldest loose flow of a port for which `which` returns true.
    fn evict(&mut self, from: PortId, which: impl Fn(&Cold) -> bool) -> bool {
        let mut next = self.crowd.first(from);
        for _ in 0..ATTEMPTS {
            let index = next;
            let Some(ColdSlot { cold: Some(cold), .. }) = self.cold_slots.get(index as usize) else { return false };
            next = cold.loose.after;
            if !which(cold) {
                continue;
            }
            let key = self.keys.key(&cold.original).words;
            if let Some(hot) = self.table.remove(&key, self.table.digest(&key)) {
                self.end(&hot, Why::Evicted);
                return true;
            }
            // It has timed out, and the scan ends it.
            self.crowd.set(&mut self.cold_slots, index, false);
        }
        false
    }
}

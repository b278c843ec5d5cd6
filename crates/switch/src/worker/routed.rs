//! What a worker does beside the gateway: frames from outside get names before they are parsed, frames to the gateway's
//! own name get routes when all names have been looked up.

use super::{Fate, NO_PORT, Worker, change_shim};
use crate::counters::DropReason;
use crate::gateway::{Outcome, Question, Side};
use crate::plane::Plane;
use crate::shim;
use crate::table::Table;

/// The entry of frames that the gateway sends in, which is no port.
const NO_ENTRY: usize = usize::MAX;

impl<T: Table> Worker<T> {
    /// Shows a burst from outside to the gateway. Returns which fates are settled; the other frames have names now.
    /// Those in `to_us` came to the gateway's address.
    pub(super) fn enter(&mut self, entry: usize, to_us: u32) -> u32 {
        let Some(router) = &mut self.router else { return 0 };
        let refused = if self.stage.is_some() { self.tracking.refused } else { 0 };
        let which = (((1u64 << self.burst.len()) - 1) as u32) & !refused;
        let from = Side::Outside(self.ports[entry].id);
        router.route(&mut self.burst, (which, to_us), from, &self.shared.neighbours);
        let mut settled = 0;
        for i in ones(which) {
            if let Some(fate) = fate_of(router.outcomes[i], &self.port_index) {
                self.fates[i] = fate;
                settled |= 1 << i;
            }
        }
        settled
    }

    /// Takes the shims off the frames to the gateway's name and routes them: out of a port outside, or to another name.
    /// Returns which frames have no shim any more.
    pub(super) fn leave(&mut self, plane: &Plane<T>, from_trunk: bool) -> u32 {
        let Some(router) = &mut self.router else { return 0 };
        let fates = self.fates[..self.burst.len()].iter().enumerate();
        let to_gateway = fates.fold(0u32, |bits, (i, &fate)| bits | u32::from(fate == Fate::Route) << i);
        if to_gateway == 0 {
            return 0;
        }
        let mut bare = 0;
        for i in ones(to_gateway) {
            match change_shim(&mut self.burst[i], from_trunk, false) {
                Ok(()) => bare |= 1 << i,
                Err(reason) => self.fates[i] = Fate::Drop(reason),
            }
        }
        router.route(&mut self.burst, (bare, bare), Side::Inside, &self.shared.neighbours);
        self.names.clear();
        for i in ones(bare) {
            let n = self.names.len();
            self.fates[i] = fate_of(router.outcomes[i], &self.port_index).unwrap_or_else(|| {
                let named =
                    plane.field.and_then(|field| field.extract(self.burst[i].frame(), shim::AT, &mut self.names));
                self.owners[n] = i as u8;
                // By its name, once more; what comes back to the gateway goes in a circle.
                named.map_or_else(Fate::Drop, |()| Fate::Drop(DropReason::InputPort))
            });
        }
        if !self.names.is_empty() {
            self.decide(plane, NO_ENTRY, false);
            for i in ones(bare) {
                if self.fates[i] == Fate::Route {
                    self.fates[i] = Fate::Drop(DropReason::InputPort);
                }
            }
        }
        bare
    }

    /// Stages the gateway's questions for its neighbours.
    pub(super) fn ask_outside(&mut self) {
        let Some(router) = &mut self.router else { return };
        for Question { port, frame } in router.questions.drain(..) {
            let Some(mut packet) = self.pool.take() else { return };
            let exit = usize::from(self.port_index.get(usize::from(port.0)).copied().unwrap_or(NO_PORT));
            // Where the staging is full, it is asked again later.
            let staged = self.ports.get_mut(exit).filter(|exit| !exit.staged.is_full() && packet.fill(&frame).is_ok());
            let Some(port) = staged else {
                self.pool.put(packet);
                continue;
            };
            if port.staged.is_empty() {
                self.dirty.push(exit as u8);
            }
            port.staged.push(packet);
            self.counters.originated.add(1);
        }
    }
}

/// The places of the bits that are set.
fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(at)
    })
}

/// What becomes of a routed packet; nothing yet, if it goes to a name inside.
fn fate_of(outcome: Outcome, port_index: &[u8]) -> Option<Fate> {
    match outcome {
        Outcome::Inside => None,
        Outcome::Outside(port) => Some(match port_index.get(usize::from(port.0)) {
            Some(&exit) if exit != NO_PORT => Fate::Forward(exit),
            _ => Fate::Drop(DropReason::NoPort),
        }),
        Outcome::Answer => Some(Fate::Answer),
        Outcome::Drop(reason) => Some(Fate::Drop(reason)),
    }
}

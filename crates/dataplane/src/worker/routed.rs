//! What a worker does with the gateway: packets from outside are routed before names are parsed; packets to the
//! gateway's own name are routed after all names were looked up.

use super::exits::change_shim;
use super::{Fate, PortIndex, Worker};
use crate::bits::{first, ones};
use crate::counters::DropReason;
use crate::gateway::{Outcome, Question, Side};
use crate::links::lldp;
use crate::plane::Plane;
use crate::shim;
use crate::table::Table;

impl<T: Table> Worker<T> {
    /// Routes a burst that came from outside; the frames in `to_us` came to the gateway's MAC address. Returns which
    /// frames have a fate now. The others go to names inside.
    pub(super) fn route_inbound(&mut self, entry: usize, to_us: u32) -> u32 {
        let Some(router) = &mut self.router else { return 0 };
        let refused = if self.stage.is_some() { self.work.tracking.refused } else { 0 };
        let which = first(self.work.burst.len()) & !refused;
        let from = Side::Outside(self.ports[entry].id);
        let (ports, index) = (&self.ports, &self.port_index);
        let longest = |port| index.get(port).map_or(0, |exit| ports[usize::from(exit)].device.max_frame());
        router.route(&mut self.work.burst, (which, to_us), from, &self.shared.neighbours, longest);
        if router.troubled != 0 {
            self.complain(which, from);
        }
        let Some(router) = &self.router else { return 0 };
        let mut decided = 0;
        let is_heard = |frame: &[u8]| lldp::is_lldp(frame) && self.shared.links.lldp().listens(entry as u8);
        for i in ones(which) {
            let fate = fate_of(router.outcomes[i], &self.port_index);
            // For no gateway, and read all the same.
            let fate = fate.filter(|fate| !matches!(fate, Fate::Drop(_)) || !is_heard(self.work.burst[i].frame()));
            if let Some(fate) = fate {
                self.work.fates[i] = fate;
                decided |= 1 << i;
            }
        }
        decided
    }

    /// Takes the shims off the frames `to_gateway` and routes them: out of a port outside, or to a name inside. Returns
    /// which frames have no shim any more.
    pub(super) fn route_outbound(&mut self, plane: &Plane<T>, to_gateway: u32, from_trunk: bool) -> u32 {
        let mut bare = 0;
        for i in ones(to_gateway) {
            match change_shim(&mut self.work.burst[i], from_trunk, false) {
                Ok(()) => bare |= 1 << i,
                Err(reason) => self.work.fates[i] = Fate::Drop(reason),
            }
        }
        let Some(router) = &mut self.router else { return bare };
        let (ports, index) = (&self.ports, &self.port_index);
        let longest = |port| index.get(port).map_or(0, |exit| ports[usize::from(exit)].device.max_frame());
        router.route(&mut self.work.burst, (bare, bare), Side::Inside, &self.shared.neighbours, longest);
        if router.troubled != 0 {
            self.complain(bare, Side::Inside);
        }
        let Some(router) = &self.router else { return bare };
        self.work.names.clear();
        for i in ones(bare) {
            if let Some(fate) = fate_of(router.outcomes[i], &self.port_index) {
                self.work.fates[i] = fate;
                continue;
            }
            let n = self.work.names.len();
            match plane
                .field
                .and_then(|field| field.extract(self.work.burst[i].frame(), shim::AT, &mut self.work.names))
            {
                Ok(()) => self.work.owners[n] = i as u8,
                Err(reason) => self.work.fates[i] = Fate::Drop(reason),
            }
        }
        if !self.work.names.is_empty() {
            self.begin_lookups(plane, false);
            // A packet that leads to the gateway again would go in a circle. `decide` has set it to be dropped.
            self.decide(plane, None, false);
        }
        bare
    }

    /// Stages the gateway's questions for its neighbours.
    pub(super) fn ask_outside(&mut self) {
        let Some(router) = &mut self.router else { return };
        for Question { port, frame } in router.questions.drain(..) {
            let Some(mut packet) = self.pool.take() else { return };
            let exit = self.port_index.get(port);
            let port = exit.map(|exit| &mut self.ports[usize::from(exit)]);
            // If the staging is full, a later packet asks again.
            let staged = port.filter(|port| !port.staged.is_full() && packet.fill(&frame).is_ok());
            let (Some(exit), Some(port)) = (exit, staged) else {
                self.pool.put(packet);
                continue;
            };
            self.dirty.insert(exit);
            port.staged.push(packet);
            self.counters.originated.add(1);
        }
    }
}

/// The fate of a routed packet; none yet if it goes to a name inside.
fn fate_of(outcome: Outcome, port_index: &PortIndex) -> Option<Fate> {
    match outcome {
        Outcome::Inside => None,
        Outcome::Outside(port) => Some(port_index.get(port).map_or(Fate::Drop(DropReason::NoPort), Fate::Forward)),
        Outcome::Answer => Some(Fate::Answer),
        Outcome::Drop(reason) => Some(Fate::Drop(reason)),
    }
}

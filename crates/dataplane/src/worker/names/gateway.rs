//! The fate of packets that the gateway routes: those from outside before names are parsed, those to its own name after all names
//! are looked up.

use super::{Names, begin_lookups};
use crate::bits::{first, ones};
use crate::counters::DropReason;
use crate::gateway::{Outcome, Side};
use crate::links::lldp;
use crate::plane::Plane;
use crate::shim;
use crate::table::Table;
use crate::worker::act::change_shim;
use crate::worker::context::Context;
use crate::worker::ports::Ports;
use crate::worker::rules::Rules;
use crate::worker::work::{Fate, Work};

impl<R: Rules> Names<R> {
    /// Routes a burst that came from outside; the frames in `to_us` came to the gateway's MAC address. Returns which
    /// frames have a fate now. The others go to names inside.
    pub(super) fn route_inbound<T>(&self, context: &mut Context<T>, work: &mut Work, to_us: u32) -> u32 {
        let Context { router: Some(router), ports, shared, .. } = context else { return 0 };
        let refused = if self.flows.is_some() { work.tracking.refused } else { 0 };
        let which = first(work.burst.len()) & !refused;
        let from = Side::Outside(ports[work.entry].id);
        router.route(&mut work.burst, (which, to_us), from, &shared.neighbours, |port| ports.longest(port));
        if router.troubled != 0 {
            self.complain(context, work, which, from);
        }
        let Context { router: Some(router), ports, shared, .. } = context else { return 0 };
        let mut decided = 0;
        let is_heard = |frame: &[u8]| lldp::is_lldp(frame) && shared.links.lldp().listens(work.entry as u8);
        for i in ones(which) {
            let fate = fate_of(router.outcomes[i], ports);
            // It is for no gateway, but read nevertheless.
            let fate = fate.filter(|fate| !matches!(fate, Fate::Drop(_)) || !is_heard(work.burst[i].frame()));
            if let Some(fate) = fate {
                work.fates[i] = fate;
                decided |= 1 << i;
            }
        }
        decided
    }

    /// Takes the shims off the frames `to_gateway` and routes them: out of a port outside, or to a name inside. Returns
    /// which frames have no shim any more.
    pub(super) fn route_outbound<T: Table>(
        &mut self,
        context: &mut Context<T>,
        plane: &Plane<T>,
        work: &mut Work,
        to_gateway: u32,
    ) -> u32 {
        let mut bare = 0;
        for i in ones(to_gateway) {
            match change_shim::<R>(&mut work.burst[i], work.from_trunk, false) {
                Ok(()) => bare |= 1 << i,
                Err(reason) => work.fates[i] = Fate::Drop(reason),
            }
        }
        let Context { router: Some(router), ports, shared, .. } = context else { return bare };
        router.route(&mut work.burst, (bare, bare), Side::Inside, &shared.neighbours, |port| ports.longest(port));
        if router.troubled != 0 {
            self.complain(context, work, bare, Side::Inside);
        }
        let Context { router: Some(router), ports, .. } = &*context else { return bare };
        work.names.clear();
        for i in ones(bare) {
            if let Some(fate) = fate_of(router.outcomes[i], ports) {
                work.fates[i] = fate;
                continue;
            }
            let n = work.names.len();
            match plane.field.and_then(|field| field.extract(work.burst[i].frame(), shim::AT, &mut work.names)) {
                Ok(()) => work.owners[n] = i as u8,
                Err(reason) => work.fates[i] = Fate::Drop(reason),
            }
        }
        if !work.names.is_empty() {
            begin_lookups(context, plane, work, false);
            // A packet that leads to the gateway again would go in a circle. `decide` has set it to be dropped.
            self.decide(context, plane, work, None, false);
        }
        bare
    }
}

/// The fate of a routed packet; none yet if it goes to a name inside.
fn fate_of(outcome: Outcome, ports: &Ports) -> Option<Fate> {
    match outcome {
        Outcome::Inside => None,
        Outcome::Outside(port) => Some(ports.index_of(port).map_or(Fate::Drop(DropReason::NoPort), Fate::Forward)),
        Outcome::Answer => Some(Fate::Answer),
        Outcome::Drop(reason) => Some(Fate::Drop(reason)),
    }
}

//! A worker's handling of names: it reads them from frames, looks them up, and decides where each frame leaves.
//!
//! ```text
//!  begin                                            finish
//!  frames ─► names ─► digests ─► lines of the FIB ─ ─ ► values ─► leads ─► local at that port? ─► fates
//!                           └──► lines of valid names ─ ► valid? ──────────────────────────────────┘
//! ```

mod complaints;
mod gateway;
mod leads;
mod parse;
mod turns;

use super::context::{Context, Flight};
use super::pipeline::Stage;
use super::rules::Rules;
use super::work::{Fate, Work};
use crate::alien::Aliens;
use crate::counters::DropReason;
use crate::flow::Route;
use crate::flow::control::{SharedStage, lock};
use crate::plane::Plane;
use crate::port::Role;
use crate::shim;
use crate::spread;
use crate::table::Table;
use fib::action::PortId;
use fib::designs;
use leads::{Lead, Leads};
use parse::parse;
use std::marker::PhantomData;

/// Where the name of a frame leads.
#[derive(Clone, Copy)]
enum Exit {
    /// To the port with this index.
    Port(u8),
    /// To the trunk with this index, with these [`shim::flags`].
    Marked(u8, u8),
    /// To this switch's own gateway.
    Gateway,
}

/// The stage that looks names up.
pub(super) struct Names<R> {
    leads: Leads,
    aliens: Aliens,
    /// Connection tracking, if frames go through it: flows learn by which port their packets leave.
    flows: Option<SharedStage>,
    rules: PhantomData<R>,
}

impl<T: Table, R: Rules> Stage<Context<T>, Flight<T>> for Names<R> {
    fn begin(&mut self, context: &mut Context<T>, burst: &mut Flight<T>, _: Option<&mut Flight<T>>) -> bool {
        let Flight { plane, work } = burst;
        let decided = work.to_us.map_or(0, |to_us| self.route_inbound(context, work, to_us));
        if self.flows.is_some() {
            parse::<T, true>(context, plane, work, decided);
        } else {
            parse::<T, false>(context, plane, work, decided);
        }
        if work.from_trunk && !work.names.is_empty() && !work.has_waited {
            context.shared.links.come(work.entry as u8);
        }
        begin_lookups(context, plane, work, work.from_trunk);
        context.table.as_mut().is_some_and(|table| table.reader().has_phases())
    }

    fn finish(&mut self, context: &mut Context<T>, burst: &mut Flight<T>) {
        let Flight { plane, work } = burst;
        let mut to_gateway = 0;
        if !work.names.is_empty() {
            to_gateway = self.decide(context, plane, work, Some(work.entry), work.from_trunk);
            self.record_routes(work);
        }
        work.bare = if to_gateway != 0 { self.route_outbound(context, plane, work, to_gateway) } else { 0 };
    }
}

/// Begins the lookups of all names: their memory is fetched meanwhile.
fn begin_lookups<T: Table>(context: &mut Context<T>, plane: &Plane<T>, work: &mut Work, from_trunk: bool) {
    let Some(table) = context.table.as_mut().filter(|_| !work.names.is_empty()) else { return };
    table.digests(&work.names, &mut work.digests);
    if !from_trunk {
        table.begin_members(&plane.valid, &work.digests[..work.names.len()], &mut work.searches);
    }
    table.reader().begin(&work.keys());
}

/// Whether the exact table, if there is one, has the `i`th name.
fn is_valid<T>(plane: &Plane<T>, work: &Work, i: usize) -> bool {
    plane.valid_held && plane.valid.get(&work.names, i, work.digests[i]).is_some()
}

/// The flow of the frame with the `i`th name. What the gateway sends has no shim any more. Outlined, so that frames with one way
/// do not pay for it.
#[inline(never)]
fn flow_of(work: &Work, entry: Option<usize>, i: usize, seed: u64) -> u64 {
    let has_shim = work.from_trunk && entry.is_some();
    let frame = work.burst[usize::from(work.owners[i])].frame();
    spread::flow(frame, shim::AT + if has_shim { shim::LEN } else { 0 }, seed)
}

impl<R: Rules> Names<R> {
    pub(super) fn new(aliens: Aliens, flows: Option<SharedStage>) -> Self {
        Self { leads: Leads::default(), aliens, flows, rules: PhantomData }
    }

    /// Finishes the lookups, and sets the fates of all frames with a name; `entry` is none for frames that the gateway
    /// sends. Returns the frames that lead to the gateway, as a bit each. Their fate is to be dropped unless the gateway
    /// changes it.
    fn decide<T: Table>(
        &mut self,
        context: &mut Context<T>,
        plane: &Plane<T>,
        work: &mut Work,
        entry: Option<usize>,
        from_trunk: bool,
    ) -> u32 {
        let Some(table) = &mut context.table else { return 0 };
        let n = work.names.len();
        let keys = designs::Burst { digests: &work.digests[..n], names: &work.names };
        let mut advance = |table: &T| {
            if !from_trunk {
                table.advance_members(&plane.valid, &work.names, &work.digests, &mut work.searches);
            }
        };
        // The first lines of the valid names have come if the burst was in flight. Their second lines come while the FIB is
        // read. A FIB without phases does all its work here, and then the first lines come meanwhile.
        let has_phases = table.reader().has_phases();
        if has_phases {
            advance(table);
        }
        table.reader().finish(&keys, &mut work.values[..n]);
        context.counters.lookups.add(n as u64);
        if !has_phases {
            advance(table);
        }
        let valid = match from_trunk {
            true => u32::MAX,
            false => table.members(&plane.valid, &work.names, &work.digests, &work.searches),
        };
        self.leads.follow::<R>(&plane.actions, &context.shared.links, &context.ports);
        let mut to_gateway = 0;
        for i in 0..n {
            let owner = usize::from(work.owners[i]);
            work.fates[owner] = if valid >> i & 1 == 0 {
                // A switch without the exact table cannot tell, and a copy is for its own name only.
                let is_alien = plane.valid_held && !work.is_copied;
                self.fate_of_alien(context, work, entry.filter(|_| is_alien), i, DropReason::Alien)
            } else {
                match self.exit_of(context, plane, work, entry, i) {
                    Ok(Exit::Port(exit)) => Fate::Forward(exit),
                    Ok(Exit::Marked(exit, flags)) => Fate::Marked(exit, flags),
                    Ok(Exit::Gateway) => {
                        to_gateway |= 1 << owner;
                        Fate::Drop(DropReason::InputPort)
                    }
                    // A frame from a trunk was checked elsewhere. A name that the FIB drops may still be unknown.
                    Err(reason) if from_trunk && work.values[i] == 0 && !is_valid(plane, work, i) => {
                        self.fate_of_alien(context, work, entry, i, reason)
                    }
                    Err(reason) => Fate::Drop(reason),
                }
            };
        }
        to_gateway
    }

    /// The fate of a frame to the `i`th name, which is unknown; `reason` is why it is dropped, if it is.
    #[cold]
    fn fate_of_alien<T>(
        &self,
        context: &Context<T>,
        work: &Work,
        entry: Option<usize>,
        i: usize,
        reason: DropReason,
    ) -> Fate {
        // Frames from networks outside and the gateway's own are for names of hosts.
        let entry = entry.filter(|&entry| context.ports[entry].role != Role::Outside);
        let is_up = |exit: u8| context.ports[usize::from(exit)].health.is_up();
        match entry.zip(self.aliens.exit(work.digests[i], is_up)) {
            None => Fate::Drop(reason),
            Some((entry, exit)) if entry == usize::from(exit) => Fate::Drop(DropReason::InputPort),
            Some((_, exit)) => Fate::Alien(exit),
        }
    }

    /// Where the `i`th name leads.
    #[inline]
    fn exit_of<T>(
        &self,
        context: &Context<T>,
        plane: &Plane<T>,
        work: &Work,
        entry: Option<usize>,
        i: usize,
    ) -> Result<Exit, DropReason> {
        let local = || plane.local.get(&work.names, i, work.digests[i]).map(PortId);
        let id = match self.leads.get(work.values[i]) {
            Lead::Trunk(exit) => {
                return match entry == Some(usize::from(exit)) && !R::may_go_back() {
                    true => self.turn(work, usize::from(exit), None, i),
                    false => Ok(Exit::Port(exit)),
                };
            }
            Lead::Spread(spread) => {
                let flow = flow_of(work, entry, i, context.shared.spread_seed);
                let exit = self.leads.trunk_of(spread, flow);
                return match entry {
                    Some(entry) if self.leads.are_parallel(entry, exit) => {
                        self.turn(work, entry, Some((spread, flow)), i)
                    }
                    _ => Ok(Exit::Port(exit)),
                };
            }
            Lead::Alternate(alternate, own) => return self.detour(work, entry, alternate, own, i),
            Lead::Port(id) => id,
            Lead::Local => local().ok_or(DropReason::NotLocal)?,
            Lead::Drop(reason) => return Err(reason),
        };
        let Some(exit) = context.ports.index_of(id) else {
            let router = context.router.as_ref().filter(|router| router.port == id).ok_or(DropReason::NoPort)?;
            return if local() == Some(router.port) { Ok(Exit::Gateway) } else { Err(DropReason::NotLocal) };
        };
        if entry == Some(usize::from(exit)) {
            return Err(DropReason::InputPort);
        }
        match context.ports[usize::from(exit)].role {
            Role::Trunk => Ok(Exit::Port(exit)),
            Role::Host if local() == Some(id) => Ok(Exit::Port(exit)),
            Role::Host | Role::Outside => Err(DropReason::NotLocal),
        }
    }

    /// Records in the flow stage by which port the packets of each flow leave, so that later ones need no lookup.
    fn record_routes(&self, work: &Work) {
        let Some(stage) = &self.flows else { return };
        let Work { names, owners, fates, tracking, from_trunk, .. } = work;
        let mut routes = (0..names.len()).filter_map(|i| {
            let owner = usize::from(owners[i]);
            let learns = tracking.learns(owner) && names.name_len(i) <= Route::NAME_BYTES;
            match fates[owner] {
                Fate::Forward(exit) if learns => Some((owner, Route::new(names.word(i), *from_trunk, exit))),
                _ => None,
            }
        });
        if let Some(first) = routes.next() {
            lock(stage).learn(tracking, std::iter::once(first).chain(routes));
        }
    }
}

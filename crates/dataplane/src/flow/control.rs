//! Control of the stages outside the workers: keeps time; shows, counts and flushes flows; changes servers.
//!
//! There is one stage for each worker if frames are steered to workers by their pair of MAC addresses, which brings
//! both directions of a flow to the same worker. Translation gives the directions different addresses, so then all
//! workers share one stage. A stage has a lock that a worker takes once a burst. The functions here take it for a
//! bounded number of flows at a time, so that no burst waits long.

use super::balance::{Member, Server, ServerError};
use super::check::Outcome;
use super::export::Ended;
use super::packet::{Endpoint, TCP};
use super::stage::{Ends, Stage, StageError};
use super::view::FlowView;
use super::{FlowCounts, Settings, VirtualId};
use crate::mac::Mac;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Flows or buckets that are handled under one lock: it takes some ten microseconds.
const STEP: usize = 512;

/// A stage, shared.
pub type SharedStage = Arc<Mutex<Stage>>;

pub(crate) fn lock(stage: &SharedStage) -> MutexGuard<'_, Stage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stages of a switch.
#[derive(Clone)]
pub struct Flows {
    stages: Arc<[SharedStage]>,
    settings: Arc<Settings>,
    /// Held while servers are changed, so that one change follows the other.
    changes: Arc<Mutex<()>>,
    /// Ended flows that were not exported, because the writer had no room.
    blocked: Arc<AtomicU64>,
    /// Health checks: good, bad, and those that could not be sent.
    checks: Arc<[AtomicU64; 3]>,
}

impl fmt::Debug for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flows").field("stages", &self.stages.len()).finish_non_exhaustive()
    }
}

/// The position of a walk over all flows. The walk sees every flow that lives from its beginning to its end exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor {
    /// Index of the stage.
    pub stage: u32,
    /// Index of the place in the stage.
    pub place: u64,
}

/// How full a table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// The number of flows, including those that ended a moment ago.
    pub flows: u64,
    /// The number of entries: a translated flow has two.
    pub entries: u64,
    /// The present number of slots for entries.
    pub slots: u64,
    /// Outside ports in use.
    pub nat_ports: u64,
}

/// The reason why servers were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// There is no such virtual address.
    #[error("this switch has no virtual address {0}; switch.toml lists them in [[flow.virtual]]")]
    Virtual(String),
    /// The change of the server was refused.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// A change of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It gets new flows, with this weight and MAC address.
    Add(Server),
    /// It gets no new flows.
    Drain(Endpoint),
    /// Its health check says whether it works.
    Health {
        /// The server.
        server: Endpoint,
        /// Whether it is down. Then it gets no new flows, and its flows that are no TCP connections end.
        is_down: bool,
        /// Whether its connections also end.
        ends_connections: bool,
    },
    /// It gets no new flows, and is removed when its last flow ends. Its flows that are no TCP connections end at once,
    /// unless they are kept.
    Remove {
        /// The server.
        server: Endpoint,
        /// Whether it keeps all its flows.
        keep: bool,
    },
}

impl Flows {
    /// Makes stages for a number of workers.
    /// # Errors
    /// [`StageError`]
    pub fn new(settings: Settings, workers: usize) -> Result<Self, StageError> {
        let n = if settings.is_plain() { workers.max(1) } else { 1 };
        let stage = || Ok(Arc::new(Mutex::new(Stage::new(settings.clone())?)));
        let stages = (0..n).map(|_| stage()).collect::<Result<_, StageError>>()?;
        Ok(Self {
            stages,
            settings: Arc::new(settings),
            changes: Arc::default(),
            blocked: Arc::default(),
            checks: Arc::default(),
        })
    }

    /// The stage of a worker.
    pub fn stage(&self, worker: usize) -> SharedStage {
        self.stages[worker % self.stages.len()].clone()
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes the rules, the timeouts and `pick_up` of other settings: new flows are judged by them from the next burst on.
    pub fn retune(&self, settings: &Settings) {
        self.stages.iter().for_each(|stage| lock(stage).retune(settings));
    }

    /// The virtual and outside addresses, each with the MAC address with which the switch answers for it.
    pub fn own_addresses(&self) -> impl Iterator<Item = (IpAddr, Mac)> {
        let virtuals = self.settings.virtuals.iter().map(|service| (service.endpoint.address.into(), service.mac));
        let nat = self.settings.nat.iter();
        virtuals.chain(nat.flat_map(|nat| nat.addresses.iter().map(|&address| (address.into(), nat.mac))))
    }

    /// Advances the clocks, and visits `1 / parts` of each table to remove entries that have ended. `ended` gets the
    /// flows to export.
    pub fn keep(&self, parts: usize, mut ended: impl FnMut(Vec<Ended>)) {
        for stage in &*self.stages {
            let mut visited = 0;
            loop {
                let mut locked = lock(stage);
                let now = locked.clock();
                let all = locked.scan(now, STEP);
                let out = locked.take_ended(STEP * 8);
                drop(locked);
                visited += STEP;
                let n = out.len();
                if n > 0 {
                    ended(out);
                }
                if visited >= all.div_ceil(parts) && n < STEP * 8 {
                    break;
                }
            }
        }
    }

    /// The counts of all stages together.
    pub fn counts(&self) -> FlowCounts {
        let mut counts = FlowCounts::default();
        self.stages.iter().for_each(|stage| counts += lock(stage).counts());
        counts.export_blocked += self.blocked.load(Ordering::Relaxed);
        counts
    }

    /// Counts ended flows that were not exported because the writer had no room.
    pub fn count_blocked(&self, n: usize) {
        self.blocked.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Counts a health check.
    pub fn count_check(&self, outcome: &Outcome) {
        let index = match outcome {
            Outcome::Good => 0,
            Outcome::Bad(_) => 1,
            Outcome::Unasked(_) => 2,
        };
        self.checks[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Health checks so far, by their result.
    pub fn checks(&self) -> [(&'static str, u64); 3] {
        let count = |index: usize| self.checks[index].load(Ordering::Relaxed);
        [("good", count(0)), ("bad", count(1)), ("unasked", count(2))]
    }

    /// How full all tables are together.
    pub fn occupancy(&self) -> Occupancy {
        let mut all = Occupancy::default();
        for stage in &*self.stages {
            let stage = lock(stage);
            let (_, entries, slots) = stage.table();
            all.flows += stage.len() as u64;
            all.entries += entries as u64;
            all.slots += slots as u64;
            all.nat_ports += stage.nat_ports();
        }
        all
    }

    /// Shows flows, starting at a cursor, until `each` returns false. Returns the cursor to go on from, if there may be
    /// more.
    pub fn show(&self, from: Cursor, mut each: impl FnMut(FlowView) -> bool) -> Option<Cursor> {
        self.walk(from, |stage, place| {
            let mut views = vec![];
            let next = lock(stage).show(place, STEP, |flow| views.push(flow));
            // `each` runs after the lock is released.
            (next, views.into_iter().fold(true, |more, flow| more & each(flow)))
        })
    }

    /// Ends the flows of a server. Returns their number.
    pub fn flush_server(&self, service: Endpoint, protocol: u8, server: Endpoint) -> u64 {
        self.flush(|ends| {
            ends.original.protocol == protocol && ends.original.destination == service && ends.reply.source == server
        })
    }

    /// Ends the flows for which `which` returns true. Returns their number.
    pub fn flush(&self, which: impl Fn(&Ends) -> bool) -> u64 {
        let before = self.counts().flushed;
        self.walk(Cursor::default(), |stage, place| (lock(stage).flush(place, STEP, &which), true));
        self.counts().flushed - before
    }

    fn walk(&self, from: Cursor, mut step: impl FnMut(&SharedStage, usize) -> (Option<usize>, bool)) -> Option<Cursor> {
        let mut at = from;
        while let Some(stage) = self.stages.get(at.stage as usize) {
            let (next, more) = step(stage, at.place as usize);
            at = match next {
                Some(place) => Cursor { place: place as u64, ..at },
                None => Cursor { stage: at.stage + 1, place: 0 },
            };
            if !more {
                break;
            }
        }
        ((at.stage as usize) < self.stages.len()).then_some(at)
    }

    /// The virtual addresses with their servers.
    pub fn servers(&self) -> Vec<(Endpoint, u8, Vec<Member>)> {
        let virtuals = self.settings.virtuals.iter().zip(0..);
        let members = |id| {
            let mut stage = lock(&self.stages[0]);
            stage.balancer(VirtualId(id)).map_or(vec![], |balancer| balancer.members().copied().collect())
        };
        virtuals.map(|(service, id)| (service.endpoint, service.protocol, members(id))).collect()
    }

    /// Changes a server of a virtual address.
    /// # Errors
    /// [`ChangeError`]; nothing changes then.
    pub fn change(&self, service: Endpoint, protocol: u8, change: Change) -> Result<(), ChangeError> {
        let is_it = |each: &super::Virtual| each.endpoint == service && each.protocol == protocol;
        let id = self.settings.virtuals.iter().position(is_it).map(|id| VirtualId(id as u16));
        let unknown = || {
            let protocol = super::state::protocol_name(protocol);
            ChangeError::Virtual(format!("{protocol} {}", super::balance::endpoint_text(service)))
        };
        let id = id.ok_or_else(unknown)?;
        let _turn = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // The slots are filled on a copy, while packets are forwarded.
            let before = lock(&self.stages[0]).balancer(id).ok_or_else(unknown)?.clone();
            let mut planned = before.clone();
            match change {
                Change::Add(server) => planned.add(server)?,
                Change::Drain(server) => planned.drain(server, false)?,
                Change::Health { server, is_down, .. } => planned.set_down(server, is_down)?,
                Change::Remove { server, .. } => planned.drain(server, true)?,
            }
            // This fails only if the last flow of a removed server ended meanwhile, which happens at most once for each
            // server.
            if lock(&self.stages[0]).balancer(id).ok_or_else(unknown)?.adopt(&before, &mut planned) {
                break;
            }
        }
        let ends = match change {
            Change::Remove { server, keep: false } if protocol != TCP => Some(server),
            Change::Health { server, is_down: true, ends_connections } => {
                Some(server).filter(|_| ends_connections || protocol != TCP)
            }
            _ => None,
        };
        if let Some(server) = ends {
            self.flush_server(service, protocol, server);
        }
        Ok(())
    }
}

//! A switch whose ports end in the caller's hands, for simulations: its worker, its replica, and its watch over trunks, without
//! threads, sockets and a clock. The product is built without.
//!
//! What a daemon's threads do in turn, the caller has done: [`Rig::poll`] is a turn of the worker, [`Rig::listen`] one of the keeper
//! of trunks.

mod rules;

pub use rules::{Mistake, set_mistake};

use crate::daemon::agent::seen;
use crate::daemon::links::Trunk;
use api::v1::SeenTrunk;
use dataplane::assembly::{BuildError, Monitor, PortSpec, Settings, build_by};
use dataplane::counters::Counts;
use dataplane::links::{Session, Timing};
use dataplane::plane::PlaneWriter;
use dataplane::port::Role;
use dataplane::table::FibTable;
use dataplane::worker::Worker;
use fib::action::PortId;
use fib::replica::{Limits, Replica};
use netio::{Burst, Device, DeviceCounters, NetError, Pool, Readiness};
use rules::{Mistaken, is_made};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The longest frame.
const MAX_FRAME: usize = 256;

/// Frames that wait: for the switch, and for the caller.
#[derive(Default)]
struct Queues {
    to_switch: VecDeque<Vec<u8>>,
    from_switch: VecDeque<Vec<u8>>,
}

/// The cable of a port.
#[derive(Clone, Default)]
struct Cable(Arc<Mutex<Queues>>);

impl Cable {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Near {
    cable: Cable,
    role: Role,
    counters: Arc<DeviceCounters>,
}

impl Device for Near {
    fn name(&self) -> &str {
        "memory"
    }

    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        let mut queues = self.cable.lock();
        let mut n = 0;
        while !out.is_full() && !queues.to_switch.is_empty() {
            let Some(mut packet) = pool.take() else { break };
            let Some(frame) = queues.to_switch.pop_front() else { break };
            match packet.fill(&frame) {
                Ok(()) => {
                    out.push(packet);
                    n += 1;
                }
                Err(_) => pool.put(packet),
            }
        }
        Ok(n)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        let mut queues = self.cable.lock();
        let n = frames.len();
        for packet in frames.drain(..) {
            let times = if self.role == Role::Host && is_made(Mistake::SentTwice) { 2 } else { 1 };
            queues.from_switch.extend(std::iter::repeat_n(packet.frame().to_vec(), times));
            pool.put(packet);
        }
        Ok(n)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Exhausted
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.counters.clone()
    }
}

/// See the module.
pub struct Rig {
    name: String,
    worker: Worker<FibTable, Mistaken>,
    monitor: Monitor,
    replica: Replica<PlaneWriter<FibTable>>,
    cables: BTreeMap<PortId, Cable>,
    trunks: Vec<(u8, PortId, Session)>,
}

impl Rig {
    /// A switch that starts as `own`, a number not 0 that no other start has, with these trunks and host ports, and holds nothing.
    /// `spread_seed` decides which flow takes which of several ways.
    /// # Errors
    /// [`BuildError`].
    pub fn new(
        name: &str,
        own: u64,
        spread_seed: u64,
        [trunks, hosts]: [&[PortId]; 2],
        now: Instant,
    ) -> Result<Self, BuildError> {
        let mut cables = BTreeMap::new();
        let ports = trunks.iter().map(|port| (*port, Role::Trunk)).chain(hosts.iter().map(|port| (*port, Role::Host)));
        let specs = ports.map(|(port, role)| {
            let cable: &Cable = cables.entry(port).or_default();
            PortSpec::with(port, role, Box::new(Near { cable: cable.clone(), role, counters: Arc::default() }))
        });
        let specs = specs.collect();
        let max_frame = MAX_FRAME - dataplane::shim::LEN;
        let settings = Settings { max_frame, spread_seed: Some(spread_seed), ..Settings::default() };
        let (mut workers, monitor, writer) = build_by(&settings, specs)?;
        let worker = workers.pop().ok_or(BuildError::NoWorkers)?;
        let session = |(index, port, _)| (index, port, Session::new(port, own, Timing::default(), now));
        let trunks = monitor.trunks().map(session).collect();
        Ok(Self {
            name: name.to_owned(),
            worker,
            monitor,
            replica: Replica::new(Limits::default(), writer),
            cables,
            trunks,
        })
    }

    /// What it holds.
    pub fn replica(&self) -> &Replica<PlaneWriter<FibTable>> {
        &self.replica
    }

    /// As [`Rig::replica`], to hand messages to.
    pub fn replica_mut(&mut self) -> &mut Replica<PlaneWriter<FibTable>> {
        &mut self.replica
    }

    /// Puts a frame on the cable of a port, towards the switch. Without such a port it is lost.
    pub fn put(&mut self, port: PortId, frame: Vec<u8>) {
        if let Some(cable) = self.cables.get(&port) {
            cable.lock().to_switch.push_back(frame);
        }
    }

    /// The worker forwards what is there. Returns the frames that left, with their ports.
    pub fn poll(&mut self) -> Vec<(PortId, Vec<u8>)> {
        while self.worker.poll_once() > 0 {}
        let mut out = Vec::new();
        for (port, cable) in &self.cables {
            out.extend(cable.lock().from_switch.drain(..).map(|frame| (*port, frame)));
        }
        out
    }

    /// Says hello at all trunks; the worker sends them in its next turn.
    pub fn say_hello(&mut self) {
        let hello = |(index, _, session): &(u8, PortId, Session)| (*index, session.hello(&self.name).encode());
        self.monitor.links().send(self.trunks.iter().map(hello));
    }

    /// The carrier of a trunk came or went. Whether that changed anything.
    pub fn carrier(&mut self, port: PortId, has_carrier: bool, now: Instant) -> bool {
        let before = self.seen();
        for (_, _, session) in self.trunks.iter_mut().filter(|(_, trunk, _)| *trunk == port) {
            session.carrier(has_carrier, now);
        }
        self.act(&before)
    }

    /// Takes the hellos that the worker received since the last time.
    pub fn listen(&mut self, now: Instant) {
        for (index, hello) in self.monitor.links().take_heard().0 {
            for (_, _, session) in self.trunks.iter_mut().filter(|(trunk, ..)| *trunk == index) {
                session.hear(&hello, now);
            }
        }
    }

    /// Looks at the time, and has the worker take alternates of trunks that are down. Whether anything changed since `before`, which
    /// the switch [saw](Rig::seen).
    pub fn judge(&mut self, before: &[SeenTrunk], now: Instant) -> bool {
        for (_, _, session) in &mut self.trunks {
            session.judge(now);
        }
        self.act(before)
    }

    fn act(&mut self, before: &[SeenTrunk]) -> bool {
        for (index, _, session) in &self.trunks {
            self.monitor.links().set_neighbour(*index, session.neighbour());
            self.monitor.links().set_down(*index, session.is_down());
        }
        self.seen() != before
    }

    /// What the controller is told of its trunks.
    pub fn seen(&self) -> Vec<SeenTrunk> {
        self.trunks.iter().map(|(_, port, session)| seen(&Trunk::of(*port, session))).collect()
    }

    /// Whether it takes a trunk for down.
    pub fn is_down(&self, port: PortId) -> bool {
        self.trunks.iter().any(|(_, trunk, session)| *trunk == port && session.is_down())
    }

    /// What its worker counted.
    pub fn counts(&self) -> Counts {
        self.worker.counters().snapshot()
    }
}

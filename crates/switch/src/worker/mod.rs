//! A worker: receives bursts on its ports, and sends every frame on, answers it, or drops it and says why.
//!
//! ```text
//!  port ─► burst of 32 ─► (flow stage) ─► parse ─► digests ─► valid? ─► values ─► act ─► staging ─► ports of exit
//!                           │        (host ports only)              │
//!                           └─► ARP, ND: answered on the same port   └─► never the port of entry; shim pushed,
//!                                                                        counted down, or taken off
//! ```
//! A worker shares nothing that changes on the fast path: it has its own receive queues, packets, counters and reader
//! of the FIB. It takes the published [`Plane`] once a burst. When nothing came it sleeps in poll(2) until a frame
//! does, with its reader offline, so that old versions of the FIB can be freed while it sleeps.
//!
//! The checks of the frame path:
//! - from a host, the name must be in the exact table of valid names;
//! - to a host, the exact table of local names must have the name at this very port. A wrong answer of the FIB can
//!   make a frame go astray and be dropped, but never reach a host that it is not for;
//! - never out of the port of entry; at most [`shim::INITIAL_HOPS`] switches.
//!
//! Limits: 254 ports a worker.

mod routed;

use crate::answer::answer;
use crate::counters::{DropReason, WorkerCounters};
use crate::flow::control::{SharedStage, lock};
use crate::flow::{Route, Tracking};
use crate::gateway::Router;
use crate::parse::{Names, envelope};
use crate::plane::{Plane, Shared};
use crate::port::{Port, Role};
use crate::shim;
use crate::table::Table;
use arrayvec::ArrayVec;
use fib::action::{Action, PortId};
use lookup::hash::Digest;
use netio::{BURST, Burst, NetError, Packet, Pool, Waiter, Waker};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Packets of a worker: what is received and staged at one time, many times over; those beyond are never touched.
const POOL_PACKETS: usize = 512;
/// How often a port that is down is tried.
const REVIVE_EVERY: Duration = Duration::from_secs(1);

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Sent out of the port with this index.
    Forward(u8),
    /// Sent back to where it came from, as an answer.
    Answer,
    /// Handed to the gateway, whose name it has.
    Route,
    Drop(DropReason),
}

const NO_PORT: u8 = u8::MAX;
/// Stands for the gateway where a port index is due: there are fewer ports.
const GATEWAY: u8 = NO_PORT - 1;

/// See the module.
pub struct Worker<T> {
    index: usize,
    ports: Vec<Port>,
    /// Index of a port by its id.
    port_index: Vec<u8>,
    pool: Pool,
    shared: Arc<Shared<T>>,
    /// The table of the generation that was taken last.
    table: Option<T>,
    generation: u64,
    counters: Arc<WorkerCounters>,
    /// Connection tracking, if frames go through it.
    stage: Option<SharedStage>,
    /// The way to the networks outside, if there is one.
    router: Option<Router>,
    tracking: Box<Tracking>,
    waiter: Waiter,
    n_down: usize,
    next_revival: Option<Instant>,
    // Scratch of one burst.
    burst: Burst,
    names: Names,
    digests: [Digest; BURST],
    values: [u64; BURST],
    fates: [Fate; BURST],
    /// Which packet of the burst a name belongs to.
    owners: [u8; BURST],
    /// Ports with staged frames.
    dirty: ArrayVec<u8, 255>,
}

impl<T: Table> Worker<T> {
    /// # Errors
    /// No descriptor to sleep on.
    pub(crate) fn new(
        index: usize,
        ports: Vec<Port>,
        max_frame: usize,
        shared: Arc<Shared<T>>,
        stage: Option<SharedStage>,
        router: Option<Router>,
    ) -> io::Result<Self> {
        let highest = ports.iter().map(|port| usize::from(port.id.0)).max().unwrap_or(0);
        let mut port_index = vec![NO_PORT; highest + 1];
        for (i, port) in ports.iter().enumerate() {
            port_index[usize::from(port.id.0)] = i as u8;
        }
        Ok(Self {
            index,
            ports,
            port_index,
            pool: Pool::new(POOL_PACKETS, max_frame),
            shared,
            table: None,
            generation: 0,
            counters: Arc::default(),
            stage,
            router,
            tracking: Box::default(),
            waiter: Waiter::new()?,
            n_down: 0,
            next_revival: None,
            burst: Burst::new(),
            names: Names::default(),
            digests: [Digest(0); BURST],
            values: [0; BURST],
            fates: [Fate::Drop(DropReason::Runt); BURST],
            owners: [0; BURST],
            dirty: ArrayVec::new(),
        })
    }

    /// The worker's counters.
    pub fn counters(&self) -> Arc<WorkerCounters> {
        self.counters.clone()
    }

    /// Wakes the worker out of its sleep.
    pub fn waker(&self) -> Waker {
        self.waiter.waker()
    }

    /// Handles at most one burst of every port; returns the frames received. Never sleeps.
    pub fn poll_once(&mut self) -> usize {
        if self.n_down > 0 {
            self.revive_ports();
        }
        let mut received = 0;
        for entry in 0..self.ports.len() {
            let port = &mut self.ports[entry];
            if !port.health.is_up() {
                continue;
            }
            match port.device.rx_burst(&mut self.pool, &mut self.burst) {
                Ok(0) => {}
                Ok(n) => {
                    received += n;
                    self.forward_burst(entry);
                }
                Err(error) => self.port_failed(entry, &error),
            }
        }
        received
    }

    /// Handles frames until `stop` is set (and the [`Worker::waker`] rung), asleep when there are none. `idle_polls`
    /// is how often in a row it looks in vain before it sleeps.
    /// # Errors
    /// poll(2) failed for another reason than a port.
    pub fn run(&mut self, stop: &AtomicBool, idle_polls: u32) -> io::Result<()> {
        let mut idle = 0;
        while !stop.load(Ordering::Relaxed) {
            if self.poll_once() > 0 {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle > idle_polls {
                self.sleep(None)?;
            }
        }
        Ok(())
    }

    /// Sleeps until a frame comes, the waker rings, a port that is down is to be tried again, or `at_most` has passed.
    /// # Errors
    /// As for [`Worker::run`].
    pub fn sleep(&mut self, at_most: Option<Duration>) -> io::Result<()> {
        if let Some(table) = &mut self.table {
            table.offline();
        }
        self.counters.sleeps.add(1);
        let revival = (self.n_down > 0).then_some(REVIVE_EVERY);
        let timeout = [at_most, revival].into_iter().flatten().min();
        let down: ArrayVec<bool, 255> = self.ports.iter().map(|port| !port.health.is_up()).collect();
        self.waiter.sleep(&mut self.ports, |i| down[i], timeout)?;
        Ok(())
    }

    fn forward_burst(&mut self, entry: usize) {
        let epoch = self.shared.epoch();
        let plane = self.shared.plane.load();
        self.follow(&plane);
        self.counters.received.add(self.burst.len() as u64);
        let role = self.ports[entry].role;
        let from_trunk = role == Role::Trunk;
        // Before addresses are translated, and with them those of the link.
        let to_us = self.router.as_ref().filter(|_| role == Role::Outside).map(|router| router.addressed(&self.burst));
        if self.stage.is_some() {
            self.track(entry, epoch);
        }
        let settled = to_us.map_or(0, |to_us| self.enter(entry, to_us));
        if self.stage.is_some() {
            self.parse::<true>(&plane, entry, from_trunk, settled);
        } else {
            self.parse::<false>(&plane, entry, from_trunk, settled);
        }
        if !self.names.is_empty() {
            self.decide(&plane, entry, from_trunk);
            self.teach(from_trunk);
        }
        let bare = if self.router.is_some() { self.leave(&plane, from_trunk) } else { 0 };
        self.distribute(entry, from_trunk, bare);
        self.ask_outside();
        self.flush();
    }

    /// Shows the burst to the flow stage.
    fn track(&mut self, entry: usize, epoch: u32) {
        let Some(stage) = &self.stage else { return };
        let Port { id, role, .. } = self.ports[entry];
        let mut stage = lock(stage);
        let times = (stage.clock(), epoch);
        stage.track(&mut self.tracking, &mut self.burst, (id, role), times, &self.shared.neighbours);
    }

    /// Tells flows where their packets left by their names.
    fn teach(&mut self, from_trunk: bool) {
        let Some(stage) = &self.stage else { return };
        let (names, owners, fates) = (&self.names, &self.owners, &self.fates);
        let mut routes = (0..names.len()).filter_map(|i| {
            let owner = usize::from(owners[i]);
            let learns = self.tracking.learns(owner) && names.name_len(i) <= Route::NAME_BYTES;
            match fates[owner] {
                Fate::Forward(exit) if learns => Some((owner, Route::new(names.word(i), from_trunk, exit))),
                _ => None,
            }
        });
        if let Some(first) = routes.next() {
            lock(stage).learn(&self.tracking, std::iter::once(first).chain(routes));
        }
    }

    /// Takes the reader that belongs to a new FIB.
    fn follow(&mut self, plane: &Plane<T>) {
        if plane.generation != self.generation {
            let mine = plane.tables.get(self.index);
            self.table = mine.and_then(|table| table.lock().unwrap_or_else(PoisonError::into_inner).take());
            self.generation = plane.generation;
        }
    }

    /// Fills `names` and `owners`, and the fates of all frames without a name, or whose flow knows where it leads.
    /// Those whose fates are `settled` are passed over.
    fn parse<const TRACKED: bool>(&mut self, plane: &Plane<T>, entry: usize, from_trunk: bool, settled: u32) {
        self.names.clear();
        let field = if self.table.is_some() { plane.field } else { Err(DropReason::NoFib) };
        for (i, packet) in self.burst.iter_mut().enumerate() {
            if TRACKED && self.tracking.refused >> i & 1 != 0 {
                self.fates[i] = Fate::Drop(self.tracking.reasons[i]);
                continue;
            }
            if settled >> i & 1 != 0 {
                continue;
            }
            let n = self.names.len();
            let parsed = envelope(packet.frame(), from_trunk).and_then(|type_at| {
                let frame = packet.frame();
                if frame[0] & 1 != 0 {
                    return match from_trunk {
                        true if frame[..6] == [0xff; 6] => Err(DropReason::Broadcast),
                        true => Err(DropReason::Multicast),
                        false => answer(packet, type_at, &self.shared.neighbours).map(|()| false),
                    };
                }
                field?.extract(frame, type_at, &mut self.names).map(|()| true)
            });
            match parsed {
                Ok(true) => {
                    if TRACKED && self.names.name_len(n) <= Route::NAME_BYTES {
                        let exit = self.tracking.routes[i].exit_of(self.names.word(n), from_trunk);
                        if let Some(exit) = exit.filter(|&exit| usize::from(exit) != entry) {
                            self.names.pop();
                            self.fates[i] = Fate::Forward(exit);
                            continue;
                        }
                    }
                    self.owners[n] = i as u8;
                }
                Ok(false) => self.fates[i] = Fate::Answer,
                Err(reason) => self.fates[i] = Fate::Drop(reason),
            }
        }
    }

    /// Sets the fates of all frames with a name.
    fn decide(&mut self, plane: &Plane<T>, entry: usize, from_trunk: bool) {
        let Some(table) = &mut self.table else { return };
        let n = self.names.len();
        table.digests(&self.names, &mut self.digests);
        let valid = if from_trunk { u32::MAX } else { table.members(&plane.valid, &self.names, &self.digests) };
        table.lookup_batch(&self.names, &self.digests, &mut self.values[..n]);
        for i in 0..n {
            let owner = usize::from(self.owners[i]);
            self.fates[owner] = if valid >> i & 1 == 0 {
                Fate::Drop(DropReason::Alien)
            } else {
                match self.exit_of(plane, entry, i) {
                    Ok(GATEWAY) => Fate::Route,
                    Ok(exit) => Fate::Forward(exit),
                    Err(reason) => Fate::Drop(reason),
                }
            };
        }
    }

    /// The port of exit of the `i`th name.
    #[inline]
    fn exit_of(&self, plane: &Plane<T>, entry: usize, i: usize) -> Result<u8, DropReason> {
        let local = || plane.local.get(&self.names, i, self.digests[i]).map(PortId);
        let id = match plane.actions.get(self.values[i] as usize) {
            Some(Action::Port(id)) => *id,
            Some(Action::Local) => local().ok_or(DropReason::NotLocal)?,
            Some(Action::Drop) => return Err(DropReason::NoRoute),
            Some(Action::Tunnel { .. } | Action::Punt) => return Err(DropReason::Unsupported),
            None => return Err(DropReason::NoAction),
        };
        let exit = self.port_index.get(usize::from(id.0)).copied().unwrap_or(NO_PORT);
        let Some(port) = self.ports.get(usize::from(exit)) else {
            let gateway = self.router.as_ref().filter(|router| router.port == id).ok_or(DropReason::NoPort)?;
            return if local() == Some(gateway.port) { Ok(GATEWAY) } else { Err(DropReason::NotLocal) };
        };
        if usize::from(exit) == entry {
            return Err(DropReason::InputPort);
        }
        match port.role {
            Role::Trunk => Ok(exit),
            Role::Host if local() == Some(id) => Ok(exit),
            Role::Host | Role::Outside => Err(DropReason::NotLocal),
        }
    }

    /// Moves the burst to where it goes, and puts the shims right; `bare` frames have none any more.
    fn distribute(&mut self, entry: usize, from_trunk: bool, bare: u32) {
        for (i, mut packet) in self.burst.drain(..).enumerate() {
            let (exit, changed) = match self.fates[i] {
                Fate::Forward(exit) => {
                    let to_trunk = self.ports[usize::from(exit)].role == Role::Trunk;
                    let has_shim = from_trunk && bare >> i & 1 == 0;
                    (usize::from(exit), change_shim(&mut packet, has_shim, to_trunk))
                }
                Fate::Answer => {
                    self.counters.answered.add(1);
                    (entry, Ok(()))
                }
                Fate::Drop(reason) => (entry, Err(reason)),
                Fate::Route => unreachable!("the gateway has given it another fate"),
            };
            if let Err(reason) = changed {
                self.counters.drop_frame(reason);
                self.pool.put(packet);
                continue;
            }
            let staged = &mut self.ports[exit].staged;
            if staged.is_empty() {
                self.dirty.push(exit as u8);
            }
            // One burst is staged at a time and a staging holds one: there is room.
            staged.push(packet);
        }
    }

    /// Sends what is staged; what a port does not take is dropped.
    fn flush(&mut self) {
        let mut sent = 0;
        while let Some(exit) = self.dirty.pop() {
            let exit = usize::from(exit);
            let port = &mut self.ports[exit];
            let before = port.staged.len();
            let reason = if port.health.is_up() {
                let result = port.device.tx_burst(&mut self.pool, &mut port.staged);
                let n = *result.as_ref().unwrap_or(&0);
                sent += n as u64;
                let refused = before - n - port.staged.len();
                if refused > 0 {
                    self.counters.drop_frames(DropReason::TxRefused, refused as u64);
                }
                match result {
                    Ok(_) => DropReason::TxFull,
                    Err(error) => {
                        self.port_failed(exit, &error);
                        DropReason::PortDown
                    }
                }
            } else {
                DropReason::PortDown
            };
            let left = self.ports[exit].staged.len() as u64;
            if left > 0 {
                self.counters.drop_frames(reason, left);
                self.pool.put_all(&mut self.ports[exit].staged);
            }
        }
        self.counters.sent.add(sent);
    }

    fn port_failed(&mut self, index: usize, error: &NetError) {
        let health = &self.ports[index].health;
        if health.is_up() {
            self.n_down += 1;
        }
        health.failed(error);
        self.next_revival.get_or_insert_with(|| Instant::now() + REVIVE_EVERY);
    }

    fn revive_ports(&mut self) {
        let now = Instant::now();
        if self.next_revival.is_some_and(|at| now < at) {
            return;
        }
        for port in self.ports.iter_mut().filter(|port| !port.health.is_up()) {
            match port.device.revive() {
                Ok(()) => {
                    port.health.revived();
                    self.n_down -= 1;
                }
                // Perhaps another reason than before: down at first, now gone.
                Err(error) => port.health.failed(&error),
            }
        }
        self.next_revival = (self.n_down > 0).then(|| now + REVIVE_EVERY);
    }
}

#[inline(always)]
fn change_shim(packet: &mut Packet, from_trunk: bool, to_trunk: bool) -> Result<(), DropReason> {
    let (done, otherwise) = match (from_trunk, to_trunk) {
        (true, true) => (shim::count_down(packet.frame_mut()), DropReason::HopLimit),
        (false, true) => (shim::push(packet), DropReason::NoHeadroom),
        (true, false) => (shim::pop(packet), DropReason::HopLimit),
        (false, false) => return Ok(()),
    };
    if done { Ok(()) } else { Err(otherwise) }
}

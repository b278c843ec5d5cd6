//! A worker receives bursts on its ports. It forwards every frame, answers it, or drops it and counts the reason.
//!
//! ```text
//!  port ─► burst of 32 ─► acl? source? ─► (flow stage) ─► parse ─► digests ─► valid? ─► values ─► act ─► staging ─► exit
//!                         (not trunks)       │                     (hosts)              │
//!                                            └─► ARP, ND: answered on the same port     └─► never the port of entry; shim
//!                                                                                           pushed, counted down, or taken off
//! ```
//! **Bursts in flight.** If a burst is full, more frames are waiting. Then the worker begins the lookups of the next
//! burst before it finishes those of this one, so that the memory system always has requests. Flows and names are looked
//! up one after the other, so with connection tracking two bursts are in flight: of one the flows come, of the burst
//! before it the names. A check of sources, which comes before both, has one more in flight. A burst that is not full is
//! finished at once, and so is every burst when no frame follows it.
//! Bursts are finished in the order of their reception. Each is forwarded by the plane that was published when it came.
//!
//! Workers share nothing that changes on the fast path: each has its own receive queues, packets, counters and reader
//! of the FIB. A worker loads the published [`Plane`] once a burst. If no frame came, it sleeps in poll(2) until one
//! does. Its reader is offline meanwhile, so that old versions of the FIB can be freed.
//!
//! The checks of the frame path:
//! - From a host, the frame must say truly who sent it ([`crate::source`]), and the name must be in the exact table of
//!   valid names.
//! - To a host, the exact table of local names must have the name at this very port. So a wrong answer of the FIB may
//!   lead a frame astray until it is dropped, but never to a host that it is not for.
//! - A frame never leaves by the port of entry, and enters at most [`INITIAL_HOPS`](crate::shim::INITIAL_HOPS) switches after the first.
//!
//! Limits: 254 ports a worker.

mod checking;
mod complaints;
mod copies;
mod everybody;
mod exits;
mod leads;
mod reports;
mod routed;
mod sources;
mod turns;
mod work;

use crate::alien::Aliens;
use crate::answer::answer_own_echo;
use crate::bits::PortSet;
use crate::counters::{DropReason, WorkerCounters};
use crate::dhcp::Dhcp;
use crate::flow::Route;
use crate::flow::control::{SharedStage, lock};
use crate::gateway::Router;
use crate::links::{is_chatter, lldp};
use crate::mistakes::{Mistake, mistaken};
use crate::parse::envelope;
use crate::plane::{Plane, Shared};
use crate::port::{Port, Role};
use crate::retry;
use crate::shim;
use crate::spread;
use crate::table::Table;
use crate::tap::{Seen, Tap};
use arrayvec::ArrayVec;
use copies::Copies;
use everybody::Entry;
use fib::action::PortId;
use fib::designs;
use fib::name::NameKind;
use leads::{Lead, Leads};
use netio::{NetError, Pool, Waiter, Waker, offload};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use work::Work;

/// Packets of a worker: many times what is received and staged at one time. Memory of packets that are never used is
/// never touched.
const POOL_PACKETS: usize = 512;

/// Packets for super-frames, beside those. While all are in use no more are received; those in flight are finished then.
const LARGE_PACKETS: usize = 64;

/// What the worker does with a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Sends it out of the port with this index.
    Forward(u8),
    /// Sends it out of the trunk with this index, with these [`shim::flags`] beside those that it has.
    Marked(u8, u8),
    /// Sends it, to an unknown name, out of the port with this index.
    Alien(u8),
    /// Sends it back out of the port it came from, as an answer.
    Answer,
    /// The keeper of trunks has what it says, or nobody is to have it.
    Hello,
    /// It is for everybody: copies of it are made.
    Copy,
    Drop(DropReason),
}

/// What a frame is found to be before anything is looked up.
enum Parsed {
    /// It has a name.
    Name,
    /// It was turned into an answer.
    Answer,
    /// See [`Fate::Hello`].
    Hello,
    /// See [`Fate::Copy`].
    Copy,
}

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

/// The index of each of a worker's ports, by the port's id.
struct PortIndex(Box<[Option<u8>]>);

impl PortIndex {
    fn new(ports: &[Port]) -> Self {
        let highest = ports.iter().map(|port| usize::from(port.id.0)).max().unwrap_or(0);
        let mut indices = vec![None; highest + 1];
        for (i, port) in (0..).zip(ports) {
            indices[usize::from(port.id.0)] = Some(i);
        }
        Self(indices.into())
    }

    #[inline]
    fn get(&self, id: PortId) -> Option<u8> {
        self.0.get(usize::from(id.0)).copied().flatten()
    }
}

/// See the module.
pub struct Worker<T> {
    index: usize,
    ports: Vec<Port>,
    port_index: PortIndex,
    pool: Pool,
    shared: Arc<Shared<T>>,
    /// The table of the last generation.
    table: Option<T>,
    generation: u64,
    counters: Arc<WorkerCounters>,
    /// Connection tracking, if frames go through it.
    stage: Option<SharedStage>,
    /// The gateway to networks outside, if there is one.
    router: Option<Router>,
    waiter: Waiter,
    n_down: usize,
    next_revival: Option<Instant>,
    /// The burst that was received last.
    work: Box<Work<T>>,
    /// The burst before it, if the check of its sources is in flight. Otherwise unused memory.
    checked: Box<Work<T>>,
    is_checking: bool,
    /// The burst before these, if the lookups of its flows are in flight. Otherwise unused memory.
    tracked: Box<Work<T>>,
    is_tracking: bool,
    /// The burst before these, if the lookups of its names are in flight. Otherwise unused memory.
    earlier: Box<Work<T>>,
    is_in_flight: bool,
    leads: Leads,
    aliens: Aliens,
    copies: Copies,
    /// Copies frames for people who look, while there are any, and the version of what they want.
    tap: Option<Box<Tap>>,
    tap_version: u32,
    trunks: PortSet,
    /// Ports at which frames may have waited for this process.
    catching_up: PortSet,
    /// Ports with staged frames.
    dirty: PortSet,
}

impl<T: Table> Worker<T> {
    /// # Errors
    /// The system has no descriptor to sleep on.
    pub(crate) fn new(
        index: usize,
        ports: Vec<Port>,
        max_frame: usize,
        shared: Arc<Shared<T>>,
        stage: Option<SharedStage>,
        router: Option<Router>,
        aliens: Aliens,
    ) -> io::Result<Self> {
        let mut trunks = PortSet::default();
        (0..).zip(&ports).filter(|(_, port)| port.role == Role::Trunk).for_each(|(i, _)| trunks.insert(i));
        let mut catching_up = PortSet::default();
        (0..).zip(&ports).for_each(|(i, _)| catching_up.insert(i));
        Ok(Self {
            index,
            port_index: PortIndex::new(&ports),
            ports,
            pool: Pool::with_large(POOL_PACKETS, max_frame, LARGE_PACKETS),
            shared,
            table: None,
            generation: 0,
            counters: Arc::default(),
            stage,
            router,
            waiter: Waiter::new()?,
            n_down: 0,
            next_revival: None,
            work: Work::new(),
            checked: Work::new(),
            is_checking: false,
            tracked: Work::new(),
            is_tracking: false,
            earlier: Work::new(),
            is_in_flight: false,
            leads: Leads::default(),
            aliens,
            copies: Copies::new(),
            tap: None,
            tap_version: 0,
            trunks,
            catching_up,
            dirty: PortSet::default(),
        })
    }

    /// The worker's counters.
    pub fn counters(&self) -> Arc<WorkerCounters> {
        self.counters.clone()
    }

    /// A handle that wakes the worker when it sleeps.
    pub fn waker(&self) -> Waker {
        self.waiter.waker()
    }

    /// Receives at most one burst of every port, and makes at most a burst of copies of what is for everybody; returns how many
    /// frames that were. Full bursts may stay in flight: one for
    /// names, one for flows if connections are tracked, and one for sources if these are checked. A call that receives
    /// nothing finishes them. Never sleeps.
    pub fn poll_once(&mut self) -> usize {
        if self.n_down > 0 {
            self.revive_ports(Instant::now());
        }
        if self.tap_version != self.shared.taps.version() {
            self.refresh_tap();
        }
        if self.index == 0 && self.shared.links.is_sending() {
            self.send_hellos();
        }
        let mut received = 0;
        for entry in 0..self.ports.len() {
            let port = &mut self.ports[entry];
            if !port.health.is_up() {
                continue;
            }
            match port.device.rx_burst(&mut self.pool, &mut self.work.burst) {
                Ok(0) => {}
                Ok(n) => {
                    received += n;
                    self.forward_burst(entry);
                }
                Err(error) => self.port_failed(entry, &error),
            }
        }
        if !self.copies.is_empty() {
            received += self.make_copies();
        }
        if received == 0 {
            self.finish();
        }
        if let Some(tap) = &mut self.tap {
            tap.polled();
        }
        received
    }

    /// Handles frames until `stop` is set (then ring the [`Worker::waker`]). Sleeps after `idle_polls` polls without a
    /// frame.
    /// # Errors
    /// poll(2) failed, and not because of a port.
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
        // What is in flight may be for everybody, and copies may stay in flight.
        self.finish();
        self.finish_copies();
        self.finish();
        Ok(())
    }

    /// Sleeps until a frame comes, the waker rings, a port that is down is to be tried again, or `at_most` has passed.
    /// # Errors
    /// See [`Worker::run`].
    pub fn sleep(&mut self, at_most: Option<Duration>) -> io::Result<()> {
        self.finish();
        if let Some(table) = &mut self.table {
            table.reader().offline();
        }
        if !self.copies.is_empty() {
            return Ok(());
        }
        self.counters.sleeps.add(1);
        let revival = self.next_revival.map(|at| at.saturating_duration_since(Instant::now()));
        let look = self.ports.iter().any(|port| !port.device.is_told()).then_some(retry::SHORTEST);
        let timeout = [at_most, revival, look].into_iter().flatten().min();
        let down: ArrayVec<bool, 255> = self.ports.iter().map(|port| !port.health.is_up()).collect();
        self.waiter.sleep(&mut self.ports, |i| down[i], timeout)?;
        Ok(())
    }

    fn forward_burst(&mut self, entry: usize) {
        let epoch = self.shared.epoch();
        let plane = self.shared.plane.load();
        self.refresh_table(&plane);
        self.counters.received.add(self.work.burst.len() as u64);
        let from_trunk = self.ports[entry].role == Role::Trunk;
        (self.work.entry, self.work.from_trunk, self.work.epoch) = (entry, from_trunk, epoch);
        (self.work.is_copied, self.work.has_waited) = (false, false);
        if self.catching_up.contains(entry as u8) {
            self.work.has_waited = self.ports[entry].device.has_waited();
            if !self.work.has_waited {
                self.catching_up.remove(entry as u8);
            }
        }
        if let Some(tap) = &mut self.tap {
            tap.see(&mut self.work.seen, entry, &self.work.burst);
        }
        // The gateway looks names up while it finishes a burst, so its bursts are finished one by one.
        let may_wait = self.work.burst.is_full() && self.router.is_none();
        if let Some(acl) = &self.ports[entry].acl
            && let Some((refused, reasons)) = acl.judge(&self.work.burst)
            && refused != 0
        {
            self.refuse(refused, &reasons);
            if self.work.burst.is_empty() {
                return;
            }
        }
        let is_checked = self.begin_sources(&plane);
        self.work.plane = Some(plane);
        if is_checked && may_wait {
            std::mem::swap(&mut self.work, &mut self.checked);
            if std::mem::replace(&mut self.is_checking, true) {
                self.track(true);
            }
        } else {
            self.forward_checked();
            self.track(may_wait);
        }
    }

    /// Finishes the check of the sources of the burst, and begins the lookups of its flows, or of its names. If it
    /// `may_wait`, these stay in flight.
    fn track(&mut self, may_wait: bool) {
        self.finish_sources();
        self.begin_flows();
        if self.stage.is_some() && may_wait {
            std::mem::swap(&mut self.work, &mut self.tracked);
            if std::mem::replace(&mut self.is_tracking, true) {
                self.forward(true);
            }
        } else {
            self.forward_tracked();
            self.forward(may_wait);
        }
    }

    /// Begins the lookups of the flows of the burst. Those of the burst before it advance: their lines have come, and
    /// their entries come while this burst is read.
    fn begin_flows(&mut self) {
        let Some(stage) = &self.stage else { return };
        let mut stage = lock(stage);
        if self.is_tracking {
            stage.advance(&mut self.tracked.tracking);
        }
        let Work { tracking, burst, from_trunk, epoch, is_copied, .. } = &mut *self.work;
        // The frame that they are copies of passed as one to everybody.
        match is_copied {
            true => tracking.pass(*epoch),
            false => stage.begin(tracking, burst, *from_trunk, *epoch),
        }
    }

    /// Forwards the burst whose sources are being checked, if there is one, up to the lookups of its flows or names.
    fn forward_checked(&mut self) {
        if self.is_checking {
            self.is_checking = false;
            std::mem::swap(&mut self.work, &mut self.checked);
            self.track(true);
            std::mem::swap(&mut self.work, &mut self.checked);
        }
    }

    /// Forwards the burst whose flows are in flight, if there is one, up to the lookups of its names.
    fn forward_tracked(&mut self) {
        if self.is_tracking {
            self.is_tracking = false;
            std::mem::swap(&mut self.work, &mut self.tracked);
            self.forward(true);
            std::mem::swap(&mut self.work, &mut self.tracked);
        }
    }

    /// Finishes the flows of the burst, and begins the lookups of its names. Finishes the burst before it. If this one
    /// `may_wait`, its lookups stay in flight.
    fn forward(&mut self, may_wait: bool) {
        let Some(plane) = self.work.plane.take() else { return };
        let (entry, from_trunk) = (self.work.entry, self.work.from_trunk);
        // This must happen before the flow stage translates addresses, which changes the MAC address too.
        let outside = self.router.as_ref().filter(|_| self.ports[entry].role == Role::Outside);
        let to_us = outside.map(|router| router.addressed(&self.work.burst));
        self.finish_flows();
        let decided = to_us.map_or(0, |to_us| self.route_inbound(entry, to_us));
        if self.stage.is_some() {
            self.parse::<true>(&plane, entry, from_trunk, decided);
        } else {
            self.parse::<false>(&plane, entry, from_trunk, decided);
        }
        if from_trunk && !self.work.names.is_empty() && !self.work.has_waited {
            self.shared.links.come(entry as u8);
        }
        self.begin_lookups(&plane, from_trunk);
        self.work.plane = Some(plane);
        self.finish_earlier();
        let has_phases = self.table.as_mut().is_some_and(|table| table.reader().has_phases());
        if has_phases && may_wait {
            std::mem::swap(&mut self.work, &mut self.earlier);
            self.is_in_flight = true;
        } else {
            self.finish_burst();
        }
    }

    /// Runs the burst through the last phase of the flow stage.
    fn finish_flows(&mut self) {
        let Some(stage) = &self.stage else { return };
        let Work { tracking, burst, entry, .. } = &mut *self.work;
        let mut stage = lock(stage);
        let now = stage.clock();
        stage.finish(tracking, burst, self.ports[*entry].id, now, &self.shared.neighbours);
        drop(stage);
        // It corrects checksums. Of those that are left to hardware only the sum of the addresses is there.
        burst.iter_mut().filter(|packet| !packet.offload().is_none()).for_each(offload::renew);
    }

    /// Finishes the bursts in flight.
    pub fn finish(&mut self) {
        self.forward_checked();
        self.forward_tracked();
        self.finish_earlier();
        if let Some(tap) = &mut self.tap {
            tap.hand_over();
        }
    }

    /// Finishes the burst whose names are in flight, if there is one.
    fn finish_earlier(&mut self) {
        if self.is_in_flight {
            self.is_in_flight = false;
            std::mem::swap(&mut self.work, &mut self.earlier);
            self.finish_burst();
            std::mem::swap(&mut self.work, &mut self.earlier);
        }
    }

    /// Finishes the lookups of the burst, and sends it.
    fn finish_burst(&mut self) {
        let Some(plane) = self.work.plane.take() else { return };
        let (entry, from_trunk) = (self.work.entry, self.work.from_trunk);
        let mut to_gateway = 0;
        if !self.work.names.is_empty() {
            to_gateway = self.decide(&plane, Some(entry), from_trunk);
            self.record_routes(from_trunk);
        }
        let bare = if to_gateway != 0 { self.route_outbound(&plane, to_gateway, from_trunk) } else { 0 };
        self.distribute(entry, from_trunk, bare);
        self.ask_outside();
        self.flush();
    }

    /// Records in the flow stage by which port the packets of each flow leave, so that later ones need no lookup.
    fn record_routes(&mut self, from_trunk: bool) {
        let Some(stage) = &self.stage else { return };
        let Work { names, owners, fates, tracking, .. } = &*self.work;
        let mut routes = (0..names.len()).filter_map(|i| {
            let owner = usize::from(owners[i]);
            let learns = tracking.learns(owner) && names.name_len(i) <= Route::NAME_BYTES;
            match fates[owner] {
                Fate::Forward(exit) if learns => Some((owner, Route::new(names.word(i), from_trunk, exit))),
                _ => None,
            }
        });
        if let Some(first) = routes.next() {
            lock(stage).learn(tracking, std::iter::once(first).chain(routes));
        }
    }

    /// Takes this worker's reader of the published FIB, if the FIB is another than before.
    fn refresh_table(&mut self, plane: &Plane<T>) {
        if plane.generation != self.generation {
            // Its lookups were begun by the old reader.
            self.finish();
            let mine = plane.tables.get(self.index);
            self.table = mine.and_then(|table| table.lock().unwrap_or_else(PoisonError::into_inner).take());
            self.generation = plane.generation;
        }
    }

    /// Opens or closes the tap of this worker, or has it copy other frames.
    #[cold]
    fn refresh_tap(&mut self) {
        self.tap_version = self.shared.taps.version();
        self.shared.taps.refresh(self.index, &mut self.tap);
        if self.tap.is_none() {
            // Of bursts in flight, too, so that the next tap finds none of them.
            for work in [&mut self.work, &mut self.checked, &mut self.tracked, &mut self.earlier] {
                work.seen = Seen::default();
            }
        }
    }

    /// Fills `names` and `owners`, and the fates of all frames without a name and of those whose flow knows the port
    /// of exit. It skips the frames whose bits are set in `decided`: they have a fate already.
    fn parse<const TRACKED: bool>(&mut self, plane: &Plane<T>, entry: usize, from_trunk: bool, decided: u32) {
        self.work.names.clear();
        let field = if self.table.is_some() { plane.field } else { Err(DropReason::NoFib) };
        let has_macs = field.is_ok_and(|field| field.kind() == NameKind::Mac);
        let (is_copied, has_waited) = (self.work.is_copied, self.work.has_waited);
        // A copy was judged when the frame itself came.
        let judges = has_macs && !is_copied;
        let server = self.ports[entry].dhcp.as_ref().filter(|_| judges).and_then(Dhcp::guarded);
        let answers_echoes = self.shared.neighbours.has_own() && !is_copied;
        for (i, packet) in self.work.burst.iter_mut().enumerate() {
            if TRACKED && self.work.tracking.refused >> i & 1 != 0 {
                self.work.fates[i] = Fate::Drop(self.work.tracking.reasons[i]);
                continue;
            }
            if decided >> i & 1 != 0 {
                continue;
            }
            let n = self.work.names.len();
            let parsed = envelope(packet.frame(), from_trunk).and_then(|type_at| {
                let frame = packet.frame();
                if frame[0] & 1 != 0 && from_trunk {
                    return match frame[..6] == [0xff; 6] {
                        true => Err(DropReason::Broadcast),
                        false if self.shared.links.hear(entry as u8, frame, has_waited) => Ok(Parsed::Hello),
                        false => Err(DropReason::Multicast),
                    };
                }
                let is_to_server = server.is_some_and(|server| frame.first_chunk() == Some(&server));
                if frame[0] & 1 != 0 || is_to_server {
                    let (shared, port) = (&*self.shared, &mut self.ports[entry]);
                    let hasher = self.table.as_ref().and_then(Table::hasher).filter(|_| has_macs);
                    let place = Entry { shared, plane, hasher, port, index: entry as u8, has_waited };
                    if is_to_server {
                        place.ask(frame, type_at)?;
                    } else if let Some(parsed) = place.hear(packet, type_at)? {
                        return Ok(parsed);
                    }
                    // It is for one, whose name is looked up.
                } else if answers_echoes && answer_own_echo(packet, type_at, from_trunk, &self.shared.neighbours) {
                    return Ok(Parsed::Answer);
                }
                field?.extract(packet.frame(), type_at, &mut self.work.names).map(|()| Parsed::Name)
            });
            match parsed {
                Ok(Parsed::Name) => {
                    if TRACKED && self.work.names.name_len(n) <= Route::NAME_BYTES {
                        let exit = self.work.tracking.routes[i].exit_of(self.work.names.word(n), from_trunk);
                        if let Some(exit) = exit.filter(|&exit| usize::from(exit) != entry) {
                            self.work.names.pop();
                            self.work.fates[i] = Fate::Forward(exit);
                            continue;
                        }
                    }
                    self.work.owners[n] = i as u8;
                }
                Ok(Parsed::Answer) => self.work.fates[i] = Fate::Answer,
                Ok(Parsed::Hello) => self.work.fates[i] = Fate::Hello,
                Ok(Parsed::Copy) => self.work.fates[i] = Fate::Copy,
                // No sign that frames come from no switch.
                Err(DropReason::NoShim) if lldp::is_lldp(packet.frame()) => {
                    self.shared.links.hear_lldp(entry as u8, packet.frame(), has_waited);
                    self.work.fates[i] = Fate::Hello;
                }
                // Nor is this.
                Err(DropReason::NoShim) if is_chatter(packet.frame()) => {
                    self.work.fates[i] = Fate::Drop(DropReason::KernelChatter);
                }
                Err(reason) => self.work.fates[i] = Fate::Drop(reason),
            }
        }
    }

    /// Begins the lookups of all names: their memory is fetched meanwhile.
    fn begin_lookups(&mut self, plane: &Plane<T>, from_trunk: bool) {
        let Some(table) = self.table.as_mut().filter(|_| !self.work.names.is_empty()) else { return };
        let work = &mut *self.work;
        table.digests(&work.names, &mut work.digests);
        if !from_trunk {
            table.begin_members(&plane.valid, &work.digests[..work.names.len()], &mut work.searches);
        }
        table.reader().begin(&work.keys());
    }

    /// Finishes the lookups, and sets the fates of all frames with a name; `entry` is none for frames that the gateway
    /// sends. Returns the frames that lead to the gateway, as a bit each. Their fate is to be dropped unless the gateway
    /// changes it.
    fn decide(&mut self, plane: &Plane<T>, entry: Option<usize>, from_trunk: bool) -> u32 {
        let Some(table) = &mut self.table else { return 0 };
        let work = &mut *self.work;
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
        self.counters.lookups.add(n as u64);
        if !has_phases {
            advance(table);
        }
        let valid = match from_trunk {
            true => u32::MAX,
            false => table.members(&plane.valid, &work.names, &work.digests, &work.searches),
        };
        self.leads.follow(&plane.actions, &self.shared.links, &self.ports, &self.port_index);
        let mut to_gateway = 0;
        for i in 0..n {
            let owner = usize::from(self.work.owners[i]);
            self.work.fates[owner] = if valid >> i & 1 == 0 {
                // A switch that does not have the exact table cannot tell, and a copy is for its name alone.
                let is_alien = plane.valid_held && !self.work.is_copied;
                self.fate_of_alien(entry.filter(|_| is_alien), i, DropReason::Alien)
            } else {
                match self.exit_of(plane, entry, i) {
                    Ok(Exit::Port(exit)) => Fate::Forward(exit),
                    Ok(Exit::Marked(exit, flags)) => Fate::Marked(exit, flags),
                    Ok(Exit::Gateway) => {
                        to_gateway |= 1 << owner;
                        Fate::Drop(DropReason::InputPort)
                    }
                    // A frame from a trunk was checked elsewhere. What the FIB drops may still be unknown.
                    Err(reason) if from_trunk && self.work.values[i] == 0 && !self.is_valid(plane, i) => {
                        self.fate_of_alien(entry, i, reason)
                    }
                    Err(reason) => Fate::Drop(reason),
                }
            };
        }
        to_gateway
    }

    /// Whether the exact table, if there is one, has the `i`th name.
    fn is_valid(&self, plane: &Plane<T>, i: usize) -> bool {
        plane.valid_held && plane.valid.get(&self.work.names, i, self.work.digests[i]).is_some()
    }

    /// What becomes of a frame to the `i`th name, which is unknown; `reason` is why it is dropped, if it is.
    #[cold]
    fn fate_of_alien(&self, entry: Option<usize>, i: usize, reason: DropReason) -> Fate {
        // Frames from networks outside and the gateway's own are for names that hosts have.
        let entry = entry.filter(|&entry| self.ports[entry].role != Role::Outside);
        let is_up = |exit: u8| self.ports[usize::from(exit)].health.is_up();
        match entry.zip(self.aliens.exit(self.work.digests[i], is_up)) {
            None => Fate::Drop(reason),
            Some((entry, exit)) if entry == usize::from(exit) => Fate::Drop(DropReason::InputPort),
            Some((_, exit)) => Fate::Alien(exit),
        }
    }

    /// Where the `i`th name leads.
    #[inline]
    fn exit_of(&self, plane: &Plane<T>, entry: Option<usize>, i: usize) -> Result<Exit, DropReason> {
        let local = || plane.local.get(&self.work.names, i, self.work.digests[i]).map(PortId);
        let id = match self.leads.get(self.work.values[i]) {
            Lead::Trunk(exit) => {
                return match entry == Some(usize::from(exit)) && !mistaken(Mistake::CirclesNotEnded) {
                    true => self.turn(usize::from(exit), None, i),
                    false => Ok(Exit::Port(exit)),
                };
            }
            Lead::Spread(spread) => {
                let flow = self.flow_of(entry, i);
                let exit = self.leads.trunk_of(spread, flow);
                return match entry {
                    Some(entry) if self.leads.are_parallel(entry, exit) => self.turn(entry, Some((spread, flow)), i),
                    _ => Ok(Exit::Port(exit)),
                };
            }
            Lead::Alternate(alternate, own) => return self.detour(entry, alternate, own, i),
            Lead::Port(id) => id,
            Lead::Local => local().ok_or(DropReason::NotLocal)?,
            Lead::Drop(reason) => return Err(reason),
        };
        let Some(exit) = self.port_index.get(id) else {
            let gateway = self.router.as_ref().filter(|router| router.port == id).ok_or(DropReason::NoPort)?;
            return if local() == Some(gateway.port) { Ok(Exit::Gateway) } else { Err(DropReason::NotLocal) };
        };
        if entry == Some(usize::from(exit)) {
            return Err(DropReason::InputPort);
        }
        match self.ports[usize::from(exit)].role {
            Role::Trunk => Ok(Exit::Port(exit)),
            Role::Host if local() == Some(id) => Ok(Exit::Port(exit)),
            Role::Host | Role::Outside => Err(DropReason::NotLocal),
        }
    }

    /// The flow of the frame with the `i`th name. What the gateway sends has no shim any more. Outlined, so that frames with one way
    /// do not pay for it.
    #[inline(never)]
    fn flow_of(&self, entry: Option<usize>, i: usize) -> u64 {
        let has_shim = self.work.from_trunk && entry.is_some();
        let frame = self.work.burst[usize::from(self.work.owners[i])].frame();
        spread::flow(frame, shim::AT + if has_shim { shim::LEN } else { 0 }, self.shared.spread_seed)
    }

    fn port_failed(&mut self, index: usize, error: &NetError) {
        let port = &mut self.ports[index];
        if !port.health.is_up() {
            // Two bursts of one call met the same failure.
            return;
        }
        self.n_down += 1;
        self.leads.forget();
        port.health.failed(error, port.retry.failed(Instant::now(), error.is_transient()));
        self.next_revival = self.earliest_revival();
    }

    /// Tries the ports that are due.
    fn revive_ports(&mut self, now: Instant) {
        if self.next_revival.is_some_and(|at| now < at) {
            return;
        }
        for port in self.ports.iter_mut().filter(|port| port.retry.due().is_some_and(|due| due <= now)) {
            match port.device.revive() {
                Ok(()) => {
                    port.retry.revived(now);
                    port.health.revived();
                    self.n_down -= 1;
                    self.leads.forget();
                }
                // The reason may have changed: the interface was down before, and is missing now.
                Err(error) => port.health.failed(&error, port.retry.failed(now, error.is_transient())),
            }
        }
        self.next_revival = self.earliest_revival();
    }

    fn earliest_revival(&self) -> Option<Instant> {
        self.ports.iter().filter_map(|port| port.retry.due()).min()
    }
}

//! A worker receives bursts on its ports. It forwards every frame, answers it, or drops it and counts the reason.
//!
//! ```text
//!  port ─► burst of 32 ─► access list ─► SourceCheck ─► Flows ──────► Names ──────► Act ─► port
//!                         (not trunks)   is the sender  drop packets  name, digest, send, answer, copy
//!                                        the one that   of no flow,   FIB, exact    or drop; push, count
//!                                        it says?       translate     tables        down or pop the shim
//! ```
//! The [`Path`] is that [pipeline](pipeline), in one type. A stage asks for memory when it begins with a burst, and reads it when it
//! finishes. If a burst is full, more frames are waiting. Then it waits in the stage until the next burst has begun there, so that the
//! memory system always has requests. A burst that is not full is finished at once, and so is every burst when no frame follows it.
//! Bursts are finished in the order of their reception. Each is forwarded by the plane that was published when it came. No burst
//! waits where a stage has nothing to do: without checks of sources, connection tracking or a FIB that fetches ahead.
//!
//! Workers share nothing that changes on the fast path: each has its own receive queues, packets, counters and reader
//! of the FIB. A worker loads the published [`Plane`] once a burst. If no frame came, it sleeps in poll(2) until one
//! does. Its reader is offline meanwhile, so that old versions of the FIB can be freed.
//!
//! The checks of the frame path:
//! - From a host, the frame must state its true sender ([`crate::source`]), and the name must be in the exact table of
//!   valid names.
//! - To a host, the exact table of local names must have the name at this very port. So a wrong answer of the FIB may
//!   lead a frame astray until it is dropped, but never to a host that it is not for.
//! - A frame never leaves by the port of entry, and enters at most [`INITIAL_HOPS`](crate::shim::INITIAL_HOPS) switches after the first.
//!
//! Limits: 254 ports a worker.

mod act;
mod check;
mod context;
mod copies;
mod everybody;
mod flows;
mod names;
mod pipeline;
mod ports;
mod reports;
pub mod rules;
mod sources;
mod work;

use crate::alien::Aliens;
use crate::counters::WorkerCounters;
use crate::flow::control::SharedStage;
use crate::gateway::Router;
use crate::plane::{Plane, Shared};
use crate::port::{Port, Role};
use crate::table::Table;
use crate::tap::Seen;
use act::Act;
use arc_swap::Guard;
use context::{Context, Flight};
use copies::Copies;
use flows::Flows;
use names::Names;
use netio::{Pool, Waiter, Waker};
use pipeline::{Rest, Step};
use ports::Ports;
use rules::{Correct, Rules};
use sources::SourceCheck;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use work::Work;

/// Packets of a worker: many times what is received and staged at one time. Memory of packets that are never used is
/// never touched.
const POOL_PACKETS: usize = 512;

/// Packets for super-frames, beside those. While all are in use no more are received; those in flight are finished then.
const LARGE_PACKETS: usize = 64;

/// The path of a burst: the stages, in order.
type Path<T, R> = Then<T, SourceCheck, Then<T, Option<Flows>, Then<T, Names<R>, Act<R>>>>;

/// A stage of the path, and what follows it.
type Then<T, Stage, Rest> = Step<Stage, Flight<T>, Rest>;

/// The most bursts on their way at one time: one that waits in each stage, and the one that comes.
const BURSTS: usize = 4;

/// See the module. It decides by the rules `R`.
pub struct Worker<T, R = Correct> {
    index: usize,
    context: Context<T>,
    path: Path<T, R>,
    /// The generation of the context's table.
    generation: u64,
    /// The version of the tap's settings.
    tap_version: u32,
    waiter: Waiter,
}

impl<T: Table, R: Rules> Worker<T, R> {
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
        let context = Context {
            shared,
            counters: Arc::default(),
            ports: Ports::new(ports),
            pool: Pool::with_large(POOL_PACKETS, max_frame, LARGE_PACKETS),
            table: None,
            router,
            copies: Copies::new(),
            tap: None,
            idle: (0..BURSTS).map(|_| Box::default()).collect(),
        };
        let names = Names::new(aliens, stage.clone());
        let path = Step::new(SourceCheck, Step::new(stage.map(Flows), Step::new(names, Act(PhantomData))));
        Ok(Self { index, context, path, generation: 0, tap_version: 0, waiter: Waiter::new()? })
    }

    /// The worker's counters.
    pub fn counters(&self) -> Arc<WorkerCounters> {
        self.context.counters.clone()
    }

    /// A handle that wakes the worker when it sleeps.
    pub fn waker(&self) -> Waker {
        self.waiter.waker()
    }

    /// Receives at most one burst of every port, and makes at most a burst of copies of broadcasts and multicasts; returns how many
    /// frames that were. Full bursts may stay in flight, one in each stage of the path. A call that receives nothing finishes them.
    /// Never sleeps.
    pub fn poll_once(&mut self) -> usize {
        self.context.ports.revive();
        if self.tap_version != self.context.shared.taps.version() {
            self.refresh_tap();
        }
        if self.index == 0 && self.context.shared.links.is_sending() {
            self.context.send_hellos();
        }
        let mut received = 0;
        for entry in 0..self.context.ports.len() {
            received += self.receive(entry);
        }
        if !self.context.copies.is_empty() {
            received += self.make_copies();
        }
        if received == 0 {
            self.finish();
        }
        if let Some(tap) = &mut self.context.tap {
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
        // Frames in flight may need copies, and copies may stay in flight.
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
        let Context { table, copies, counters, ports, .. } = &mut self.context;
        if let Some(table) = table {
            table.reader().offline();
        }
        if !copies.is_empty() {
            return Ok(());
        }
        counters.sleeps.add(1);
        ports.sleep(&self.waiter, at_most)
    }

    /// Finishes the bursts in flight.
    pub fn finish(&mut self) {
        self.path.drain(&mut self.context);
        if let Some(tap) = &mut self.context.tap {
            tap.hand_over();
        }
    }

    /// Receives a burst at a port, and sends it on its way. Returns the number of its frames.
    #[inline]
    fn receive(&mut self, entry: usize) -> usize {
        if !self.context.ports[entry].health.is_up() {
            return 0;
        }
        let mut work = self.context.take_idle();
        let Context { ports, pool, idle, .. } = &mut self.context;
        let received = ports[entry].device.rx_burst(pool, &mut work.burst);
        if let Ok(n @ 1..) = received {
            self.enter(entry, work);
            return n;
        }
        idle.push(work);
        if let Err(error) = received {
            ports.failed(entry, &error);
        }
        0
    }

    /// Sends a burst that came in at a port on its way.
    fn enter(&mut self, entry: usize, mut work: Box<Work>) {
        let (epoch, plane) = self.load_plane();
        let Context { ports, counters, tap, router, .. } = &mut self.context;
        counters.received.add(work.burst.len() as u64);
        (work.entry, work.from_trunk, work.epoch) = (entry, ports[entry].role == Role::Trunk, epoch);
        (work.is_copied, work.has_waited) = (false, ports.has_waited(entry));
        if let Some(tap) = tap {
            tap.see(&mut work.seen, entry, &work.burst);
        }
        // The gateway looks names up while it finishes a burst, so its bursts are finished one by one.
        let may_wait = work.burst.is_full() && router.is_none();
        self.pass(Flight { plane, work }, may_wait);
    }

    /// Passes on the frames of a burst that the access list of their port lets in.
    fn pass(&mut self, mut burst: Flight<T>, may_wait: bool) {
        let (context, work) = (&mut self.context, &mut burst.work);
        let entry = &context.ports[work.entry];
        if let Some(acl) = &entry.acl
            && let Some((refused, reasons)) = acl.judge(&work.burst)
            && refused != 0
        {
            context.refuse(work, refused, &reasons);
        }
        if work.burst.is_empty() {
            context.idle.push(burst.work);
            return;
        }
        // This comes now: the flow stage translates addresses, and with them the destination MAC address of a frame.
        let outside = context.router.as_ref().filter(|_| context.ports[work.entry].role == Role::Outside);
        work.to_us = outside.map(|router| router.addressed(&work.burst));
        self.path.pass(context, burst, may_wait);
    }

    /// The published plane, and the epoch before it was loaded. Takes this worker's reader of the FIB, if that was replaced.
    fn load_plane(&mut self) -> (u32, Guard<Arc<Plane<T>>>) {
        let epoch = self.context.shared.epoch();
        let plane = self.context.shared.plane.load();
        if plane.generation != self.generation {
            // Lookups in flight were begun by the old reader.
            self.finish();
            let mine = plane.tables.get(self.index);
            self.context.table = mine.and_then(|table| table.lock().unwrap_or_else(PoisonError::into_inner).take());
            self.generation = plane.generation;
        }
        (epoch, plane)
    }

    /// Opens or closes the tap of this worker, or changes which frames it copies.
    #[cold]
    fn refresh_tap(&mut self) {
        self.finish();
        self.tap_version = self.context.shared.taps.version();
        self.context.shared.taps.refresh(self.index, &mut self.context.tap);
        if self.context.tap.is_none() {
            // So that the next tap finds none of them.
            self.context.idle.iter_mut().for_each(|work| work.seen = Seen::default());
        }
    }
}

//! A data plane that runs: a thread for each worker.

use super::{BuildError, Monitor, PortSpec, Settings, Status, build};
use crate::counters::WorkerCounters;
use crate::plane::PlaneWriter;
use crate::table::FibTable;
use crate::worker::Worker;
use netio::Waker;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a switch that stops waits until its last frame is sent.
const LEAVE_WITHIN: Duration = Duration::from_millis(200);

/// The workers' progress when they were last asked for a sign of life.
#[derive(Debug, Default)]
pub struct Pulse {
    seen: Vec<u64>,
}

/// A running data plane. Stopped when dropped.
pub struct Dataplane {
    monitor: Monitor,
    stop: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Dataplane {
    /// Starts one thread a worker, named `worker-N`.
    /// # Errors
    /// [`BuildError`]; nothing runs then.
    pub fn start(settings: &Settings, ports: Vec<PortSpec>) -> Result<(Self, PlaneWriter<FibTable>), BuildError> {
        let (workers, monitor, writer) = build(settings, ports)?;
        Ok((Self::run(workers, monitor, settings.idle_polls)?, writer))
    }

    /// As [`Dataplane::start`], with the result of [`build`]. Frames that come before wait at the ports.
    /// # Errors
    /// The system refuses a thread; nothing runs then.
    pub fn run(workers: Vec<Worker<FibTable>>, monitor: Monitor, idle_polls: u32) -> Result<Self, BuildError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut plane = Self { monitor, stop, wakers: Vec::new(), threads: Vec::new() };
        for (i, mut worker) in workers.into_iter().enumerate() {
            plane.wakers.push(worker.waker());
            let stop = plane.stop.clone();
            let thread = std::thread::Builder::new().name(format!("worker-{i}"));
            // If this fails, dropping `plane` stops the workers that run.
            plane.threads.push(thread.spawn(move || worker.run(&stop, idle_polls))?);
        }
        Ok(plane)
    }

    /// Counters and ports.
    pub fn status(&self) -> Status {
        self.monitor.status()
    }

    /// The monitor that reads the counters.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Wakes the worker that sends hellos.
    pub fn wake_first(&self) {
        self.wakers.iter().take(1).for_each(Waker::wake);
    }

    /// Announces in LLDP that the switch leaves, and waits until the first worker has sent that, but not for long.
    pub fn take_leave(&self) {
        let Monitor { links, ports, .. } = &self.monitor;
        let mut bundles = Vec::new();
        for (index, place, frame) in links.lldp().leave() {
            match (place, ports.get(usize::from(index)).and_then(|port| port.bundle.as_ref())) {
                (Some(place), Some(bundle)) => {
                    bundle.send([(place, frame)]);
                    bundles.push(bundle);
                }
                _ => links.send([(index, frame)]),
            }
        }
        let (is_waiting, began) =
            (|| links.is_sending() || bundles.iter().any(|bundle| bundle.is_sending()), Instant::now());
        if is_waiting() {
            self.wake_first();
        }
        // A worker that has begun finishes its turn before it is stopped. That takes microseconds, and is not reported.
        while is_waiting() && began.elapsed() < LEAVE_WITHIN && self.workers_running() > 0 {
            std::thread::yield_now();
        }
    }

    /// Wakes all workers, so that they see at once what has changed.
    pub fn wake(&self) {
        self.wakers.iter().for_each(Waker::wake);
    }

    /// Workers that still run: all, unless one has panicked or poll(2) has failed.
    pub fn workers_running(&self) -> usize {
        self.threads.iter().filter(|thread| !thread.is_finished()).count()
    }

    /// Whether all workers run, and each has received frames or has slept since the previous question, if there was one. Wakes
    /// them all, so that one without frames has slept by the next question. Costs a system call a worker.
    pub fn beat(&self, pulse: &mut Pulse) -> bool {
        let done = |worker: &Arc<WorkerCounters>| worker.received.get().wrapping_add(worker.sleeps.get());
        let now: Vec<u64> = self.monitor.workers.iter().map(done).collect();
        self.wakers.iter().for_each(Waker::wake);
        let before = std::mem::replace(&mut pulse.seen, now);
        self.workers_running() == self.wakers.len() && before.iter().zip(&pulse.seen).all(|(before, now)| before != now)
    }

    /// Stops all workers and waits for them, which takes microseconds.
    /// # Errors
    /// The first failure that ended a worker before this call.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.wakers.iter().for_each(Waker::wake);
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

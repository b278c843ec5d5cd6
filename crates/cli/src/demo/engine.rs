//! The in-process network's engine: switches and stations over in-memory cables, run by one thread.
//!
//! ```text
//!   phases, prober ──► inbox: frames of hosts, messages for switches
//!                        └► engine, in turn: switches (replica, worker) ─ cables ─ stations (ARP, echo, judge)
//! ```

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dataplane::assembly::Monitor;
use dataplane::plane::PlaneWriter;
use dataplane::table::FibTable;
use dataplane::worker::Worker;
use fib::messages::Message;
use fib::replica::{Replica, Tables as _};
use netio::backend::loopback::Loopback;
use netio::{Burst, Device, DeviceCounters, NetError, Pool, Readiness};

use super::backend::Tables;
use super::frames::{Received, SNAP_LEN, receive};
use super::judge::Judge;
use super::layout::{Layout, Mac, Station};

/// The engine sleeps this long when there was nothing to do.
const REST: Duration = Duration::from_micros(50);

/// One end of a trunk. Frames sent into a cut cable are lost.
pub(super) struct Cable {
    pub(super) end: Loopback,
    pub(super) whole: Arc<AtomicBool>,
}

impl Device for Cable {
    fn name(&self) -> &str {
        self.end.name()
    }
    fn max_frame(&self) -> usize {
        self.end.max_frame()
    }
    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        self.end.rx_burst(pool, out)
    }
    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        if self.whole.load(Ordering::Relaxed) {
            return self.end.tx_burst(pool, frames);
        }
        let n = frames.len();
        pool.put_all(frames);
        Ok(n)
    }
    fn readiness(&mut self) -> Readiness<'_> {
        self.end.readiness()
    }
    fn counters(&self) -> Arc<DeviceCounters> {
        self.end.counters()
    }
}

/// Work for the engine.
pub(super) enum Input {
    /// A host sends a frame over the cable it uses.
    Frame { host: usize, frame: Vec<u8> },
    /// The controller's side sends a message.
    Message { switch: usize, message: Box<Message> },
    /// A request for the sizes of the switches' tables.
    Tables(Sender<Tables>),
}

/// State of a host's small stack.
#[derive(Debug, Default)]
pub(super) struct Stack {
    pub(super) neighbours: HashMap<Ipv4Addr, Mac>,
    /// Arrival times of echo replies, by sequence number.
    pub(super) echoed: HashMap<u16, Instant>,
}

/// State that the engine shares with the threads that give it work.
pub(super) struct Shared {
    inbox: Mutex<Vec<Input>>,
    posted: AtomicU64,
    applied: AtomicU64,
    fault: Mutex<Option<String>>,
    /// Which of its two cables each host uses.
    pub(super) cable: Vec<AtomicUsize>,
    /// Which of its two cables each host has plugged in.
    pub(super) plugged: Vec<[AtomicBool; 2]>,
    /// One per trunk: false while it is cut.
    pub(super) whole: Vec<Arc<AtomicBool>>,
    stacks: Mutex<Vec<Stack>>,
}

impl Shared {
    pub(super) fn new(layout: &Layout) -> Self {
        let hosts = || layout.hosts.iter();
        Self {
            inbox: Mutex::default(),
            posted: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            fault: Mutex::default(),
            cable: hosts().map(|_| AtomicUsize::new(0)).collect(),
            plugged: hosts().map(|_| [AtomicBool::new(true), AtomicBool::new(false)]).collect(),
            whole: layout.trunks.iter().map(|_| Arc::new(AtomicBool::new(true))).collect(),
            stacks: Mutex::new(hosts().map(|_| Stack::default()).collect()),
        }
    }

    pub(super) fn post(&self, input: Input) {
        if matches!(input, Input::Message { .. }) {
            self.posted.fetch_add(1, Ordering::Relaxed);
        }
        lock(&self.inbox).push(input);
    }

    /// Whether every posted message has been applied.
    pub(super) fn in_step(&self) -> bool {
        self.applied.load(Ordering::Acquire) == self.posted.load(Ordering::Relaxed)
    }

    /// What went wrong in the engine, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        lock(&self.fault).clone()
    }

    pub(super) fn stacks(&self) -> MutexGuard<'_, Vec<Stack>> {
        lock(&self.stacks)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A switch: its replica and its worker, on one thread.
pub(super) struct Unit {
    pub(super) replica: Replica<PlaneWriter>,
    pub(super) worker: Worker<FibTable>,
    pub(super) monitor: Monitor,
}

/// The far end of a port that has hosts behind it.
pub(super) struct Outlet {
    pub(super) station: Station,
    /// For a host: the index of this cable.
    pub(super) cable: Option<usize>,
    pub(super) end: Loopback,
}

/// Reports that the engine has ended, also on a panic.
struct FaultOnDrop<'a>(&'a Shared);

impl Drop for FaultOnDrop<'_> {
    fn drop(&mut self) {
        lock(&self.0.fault).get_or_insert_with(|| "the engine has ended".to_owned());
    }
}

/// See the module.
pub(super) struct Engine<'a> {
    pub(super) layout: &'a Layout,
    pub(super) shared: &'a Shared,
    pub(super) judge: &'a Judge,
    pub(super) units: Vec<Unit>,
    /// Both cables of host 0, of host 1, ..., then the far ends.
    pub(super) outlets: Vec<Outlet>,
}

impl Engine<'_> {
    /// Runs until `done`. Stores an error in [`Shared::fault`], so that no thread waits for the engine.
    pub(super) fn run(mut self, done: &AtomicBool) {
        let _ended = FaultOnDrop(self.shared);
        while !done.load(Ordering::Relaxed) {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => std::thread::sleep(REST),
                Err(e) => {
                    *lock(&self.shared.fault) = Some(format!("{e:#}"));
                    return;
                }
            }
        }
    }

    /// One round over everything. Returns whether there was anything to do.
    fn turn(&mut self) -> Result<bool> {
        let inputs = std::mem::take(&mut *lock(&self.shared.inbox));
        let mut worked = !inputs.is_empty();
        if inputs.iter().any(|input| matches!(input, Input::Message { .. })) {
            // An idle reader must not hold back the versions that the messages replace.
            for unit in &mut self.units {
                unit.worker.sleep(Some(Duration::ZERO))?;
            }
        }
        for input in inputs {
            self.take(input)?;
        }
        for unit in &mut self.units {
            worked |= unit.worker.poll_once() > 0;
        }
        for index in 0..self.outlets.len() {
            worked |= self.drain(index)?;
        }
        Ok(worked)
    }

    fn take(&mut self, input: Input) -> Result<()> {
        match input {
            Input::Frame { host, frame } => self.send(host, &frame)?,
            Input::Message { switch, message } => {
                let name = &self.layout.topology.switches[switch];
                self.units[switch].replica.apply(*message).with_context(|| format!("{name} refuses a message"))?;
                self.shared.applied.fetch_add(1, Ordering::Release);
            }
            Input::Tables(answer) => {
                // The requester may have given up.
                let _ = answer.send(self.tables());
            }
        }
        Ok(())
    }

    fn tables(&self) -> Tables {
        let mut tables = Tables::default();
        for unit in &self.units {
            let (valid, _) = unit.replica.tables().shared();
            tables.names = tables.names.max(valid.len() as u64);
            tables.image_bytes.push(unit.replica.fib().map_or(0, |fib| fib.size_bits().div_ceil(8)));
            for (reason, n) in unit.monitor.status().total.drops().filter(|&(_, n)| n > 0) {
                *tables.drops.entry(reason.name().to_owned()).or_default() += n;
            }
        }
        tables
    }

    /// A full cable loses the frame, as a real one does.
    fn send(&mut self, host: usize, frame: &[u8]) -> Result<()> {
        let cable = self.shared.cable[host].load(Ordering::Relaxed);
        self.outlets[2 * host + cable].end.send(frame)?;
        Ok(())
    }

    /// Judges and answers the frames that came out at one outlet.
    fn drain(&mut self, index: usize) -> Result<bool> {
        let mut replies = Vec::new();
        let outlet = &mut self.outlets[index];
        let station = outlet.station;
        let plugged = outlet.cable.is_none_or(|cable| self.shared.plugged[station][cable].load(Ordering::Relaxed));
        let mut worked = false;
        while let Some(reply) = outlet.end.recv(|frame| {
            if !plugged {
                return None;
            }
            self.judge.observe(station, [&frame[..frame.len().min(SNAP_LEN)]]);
            let host = self.layout.hosts.get(station)?;
            match receive((host.mac, host.ip), frame) {
                Received::ArpReply { ip, mac } => {
                    self.shared.stacks()[station].neighbours.insert(ip, mac);
                    None
                }
                Received::EchoReply { seq, .. } => {
                    self.shared.stacks()[station].echoed.insert(seq, Instant::now());
                    None
                }
                Received::EchoRequest { reply } => Some(reply),
                Received::Other => None,
            }
        })? {
            worked = true;
            replies.extend(reply);
        }
        for reply in replies {
            self.send(station, &reply)?;
        }
        Ok(worked)
    }
}

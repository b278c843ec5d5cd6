//! The forwarding bench: the real worker loop between in-memory ports, with or without a FIB.
//!
//! Every worker has its own thread, ports and traffic source, and shares the FIB, the exact tables and the plane, as in
//! production. The source writes the first 18 bytes of each frame (the destination from a list of names, the source,
//! and the shim where there is one) into a buffer that already holds the rest, as a network card leaves a frame in
//! memory. Nothing is copied, so frames of 1500 bytes cost what frames of 64 bytes cost. There are two kinds of port
//! ([`Wiring`]):
//!
//! - *rings*: loopback ports. In the thread of the worker, a source fills the far end of the port of entry, and a sink
//!   empties those of the ports of exit. The rate includes both.
//! - *bare*: the ports make frames and discard them. No port can cost less, so this best isolates the cost of the lookups
//!   from the rest.
//!
//! The *empty forwarder* is the same loop over [`EmptyTable`]: it parses frames, looks actions up, decrements hops and
//! sends, but it computes no digest, looks up no name and checks none at the ingress. The ratio of the two rates is the
//! cost of the lookups.
//!
//! With [`Connections`] the frames are TCP segments over IPv4, one connection for each destination, with 58 bytes of
//! headers. The same switch with and without its flow stage measures the cost of the stage.

mod ports;

use crate::acl::AccessList;
use crate::assembly::{BuildError, Monitor, PortSpec, Settings, build};
use crate::counters::Counts;
use crate::dhcp;
use crate::flow::rules::{Rule, Rules};
use crate::flow::{self, Flows};
use crate::groups::FRAMES_PER_SECOND;
use crate::links::Hello;
use crate::plane::PlaneWriter;
use crate::port::Role;
use crate::source::CheckSource;
use crate::table::{EmptyTable, FibTable, Table};
use crate::tap::{Reader, Wanted, records};
use fib::action::{Action, PortId, Ways};
use fib::name::{Name, NameKind};
use fib::replica::Exact;
use lookup::hash::Hasher;
use ports::{FarEnds, Source, ip_of};
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// The default of switches.
const HELLO_EVERY: Duration = Duration::from_millis(100);

/// Bursts before the measurement starts.
const WARM_UP_BURSTS: usize = 256;

/// The place of the measured switch in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the core: frames come from a trunk, with a shim, and leave by trunks. A frame costs one FIB lookup.
    Core,
    /// At the edge: frames come from hosts and leave by trunks. A frame costs the exact ingress check and one FIB
    /// lookup.
    Gateway,
}

/// The kind of the ports; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// Loopback ports, with a source and a sink at their far ends.
    Rings,
    /// Ports that make frames and discard them.
    Bare,
}

/// The subject of a measurement.
#[derive(Debug, Clone)]
pub struct Load {
    /// The place of the switch.
    pub place: Place,
    /// The kind of its ports.
    pub wiring: Wiring,
    /// Bytes of a frame as the host sent it, 60 to 9000; 64 is the usual minimum.
    pub frame_bytes: usize,
    /// Sources, each six bytes in a little-endian word: names at the port of entry, with IPv4 addresses. They take turns. If
    /// there are none, all frames have one source, which is not a name.
    pub sources: Arc<[u64]>,
    /// The switch's check of frame sources.
    pub check_source: CheckSource,
    /// Which frames may enter from hosts; if none, all.
    pub acl: Option<Arc<AccessList>>,
    /// Destinations, each six bytes in a little-endian word. They are sent in this order, repeatedly; every worker
    /// starts at another position. The list decides the distribution: uniform, Zipf, or unknown names.
    pub destinations: Arc<[u64]>,
    /// The number of ports of exit. The FIB's values are 1 to this number; 0 drops.
    pub n_exits: u16,
    /// Whether each value means all ports of exit as ways, instead of one. Then the flows decide where frames go. At most
    /// [`MAX_WAYS`](fib::action::MAX_WAYS) ports.
    pub spread: bool,
    /// Whether hellos leave by all ports of exit every 100 ms, and the port of entry learns, if its sources are checked.
    pub watched: bool,
    /// Whether it also notes senders, as a port that forgets does.
    pub forgets: bool,
    /// Workers, each on its own thread.
    pub workers: usize,
    /// Frames that each worker receives in the measured time, rounded up to a burst.
    pub frames: u64,
    /// If given, frames are segments of TCP connections, one for each entry of `destinations`.
    pub connections: Option<Connections>,
}

/// TCP connections that were open before the measurement started. They send in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Whether the switch tracks them.
    pub tracked: bool,
    /// After this many of their frames, one frame of a new connection follows.
    pub flood_after: Option<u32>,
    /// Whether a rule accepts the new connections.
    pub flood_accepted: bool,
}

impl Connections {
    fn settings(&self, n: usize) -> flow::Settings {
        let accept = |port| Rule { accept: true, ports: Some(port..=port), ..Rule::default() };
        let rules = if self.flood_accepted { vec![accept(80), accept(FLOOD_PORT)] } else { vec![accept(80)] };
        flow::Settings {
            rules: Rules { rules, accept_others: false },
            max_flows: (4 * n as u32).max(1 << 24),
            pick_up: true,
            ..flow::Settings::default()
        }
    }
}

/// The destination port of new connections.
const FLOOD_PORT: u16 = 81;

/// The result of a measurement.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Time from the start of the first worker until the last worker received its frames.
    pub elapsed: Duration,
    /// Frames received in that time.
    pub frames: u64,
    /// Counts of all workers, the warm-up included.
    pub counts: Counts,
    /// Frames sent by each port of exit, of all workers, with the warm-up. It is the checksum of where frames went.
    pub exits: Vec<u64>,
}

impl Measured {
    /// Received frames a second.
    pub fn rate_pps(&self) -> f64 {
        self.frames as f64 / self.elapsed.as_secs_f64()
    }
}

/// Frames that a tap at all ports copied during a measurement, and those it could not copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Frames that came in and frames that left.
    pub frames: u64,
    /// Frames for which there was no room.
    pub lost: u64,
}

/// As [`forward_with_fib`], with a tap at all ports, for all frames or for drops, and a thread that reads all that it copies.
/// # Errors
/// As for [`forward_with_fib`].
pub fn forward_tapped(
    load: &Load,
    hasher: &Hasher,
    fib: &dyn fib::designs::Table,
    valid: &[u64],
    drops_only: bool,
) -> Result<(Measured, Copied), BuildError> {
    let mut copied = Copied::default();
    let measured = forward(load, Some((drops_only, &mut copied)), |writer| put_fib(load, hasher, fib, valid, writer))?;
    Ok((measured, copied))
}

/// Measures with a FIB. At a gateway the `valid` names are put into the exact table first.
/// # Errors
/// [`BuildError`]: more exits than ports, no workers, or the system refused a thread.
pub fn forward_with_fib(
    load: &Load,
    hasher: &Hasher,
    fib: &dyn fib::designs::Table,
    valid: &[u64],
) -> Result<Measured, BuildError> {
    forward(load, None, |writer| put_fib(load, hasher, fib, valid, writer))
}

fn put_fib(
    load: &Load,
    hasher: &Hasher,
    fib: &dyn fib::designs::Table,
    valid: &[u64],
    writer: &mut PlaneWriter<FibTable>,
) {
    let kind = NameKind::Mac;
    writer.set_table(kind, hasher, || FibTable::new(kind, hasher.clone(), fib.reader()));
    if load.place == Place::Gateway {
        let name = |word: &u64| Name::from_bytes(kind, &word.to_le_bytes()[..6]).ok();
        let sources = || load.sources.iter().filter_map(name);
        let others = valid.iter().filter_map(name).map(|name| (name, None));
        let with_ip = (0..).zip(sources()).map(|(i, name)| (name, Some(Ipv4Addr::from_bits(ip_of(i)).into())));
        writer.valid().replace_with(others.chain(with_ip).collect());
        writer.local().replace_with(sources().map(|name| (name, PortId(0))).collect());
    }
}

/// Measures the empty forwarder.
/// # Errors
/// As for [`forward_with_fib`].
pub fn forward_empty(load: &Load, hasher: &Hasher) -> Result<Measured, BuildError> {
    forward(load, None, |writer: &mut PlaneWriter<EmptyTable>| {
        writer.set_table(NameKind::Mac, hasher, || EmptyTable::new(load.n_exits.into()));
    })
}

fn forward<T: Table + 'static>(
    load: &Load,
    tapped: Option<(bool, &mut Copied)>,
    set_up: impl FnOnce(&mut PlaneWriter<T>),
) -> Result<Measured, BuildError> {
    let entry_role = if load.place == Place::Core { Role::Trunk } else { Role::Host };
    let mut ports: Vec<PortSpec> = (0..=load.n_exits)
        .map(|id| PortSpec {
            id: PortId(id),
            role: if id == 0 { entry_role } else { Role::Trunk },
            acl: if id == 0 { load.acl.clone() } else { None },
            check_source: load.check_source,
            ra_trusted: false,
            learns: load.watched,
            notes_true: load.forgets,
            dhcp: dhcp::Settings::default(),
            group_frames_per_second: FRAMES_PER_SECOND,
            bundle: None,
            driver: "memory".to_owned().into(),
            devices: vec![],
        })
        .collect();
    let mut far_ends = vec![];
    for worker in 0..load.workers {
        let mut source = Some(Source::new(load, entry_role, worker));
        let mut far = FarEnds::new(load);
        for port in &mut ports {
            let source = if port.id.0 == 0 { source.take() } else { None };
            port.devices.push(far.near_end(load, source)?);
        }
        far_ends.push(far);
    }
    let tracked = load.connections.filter(|connections| connections.tracked);
    let flows = tracked.map(|connections| Flows::new(connections.settings(load.destinations.len()), load.workers));
    let flows = flows.transpose().map_err(io::Error::other)?;
    let max_frame = load.frame_bytes.max(2048);
    let settings = Settings { workers: load.workers, max_frame, flows, ..Settings::default() };
    let (workers, monitor, mut writer) = build::<T>(&settings, ports)?;
    let mut actions = vec![Action::Drop];
    let exits = || (1..=load.n_exits).map(PortId);
    match Ways::new(exits()).filter(|_| load.spread) {
        Some(ways) => actions.extend(exits().map(|_| Action::Spread { ways, alternate: None })),
        None => actions.extend(exits().map(Action::Port)),
    }
    writer.set_actions(&actions);
    set_up(&mut writer);
    let readers = tapped.as_ref().map_or_else(Vec::new, |&(drops_only, _)| {
        let mut wanted = Wanted::default();
        (0..=load.n_exits).for_each(|index| wanted.add(index as u8, drops_only, max_frame));
        monitor.taps().open(load.workers, wanted)
    });

    // All connections are opened in that time, even if there is a flood between them.
    let bursts = load.connections.map_or(0, |_| load.destinations.len().div_ceil(netio::BURST / 2));
    let warm_up = WARM_UP_BURSTS.max(bursts);
    let start = Barrier::new(load.workers);
    let (has_ended, mut copied) = (AtomicBool::new(false), Copied::default());
    let runs: Vec<(Instant, Instant, u64)> = std::thread::scope(|scope| {
        if load.watched {
            say_hello(&monitor, load.n_exits);
            scope.spawn(|| keep_until(&has_ended, &monitor, load.n_exits));
        }
        let reading = (!readers.is_empty()).then(|| scope.spawn(|| read_until(&has_ended, readers, load.n_exits)));
        let threads: Vec<_> = workers
            .into_iter()
            .zip(far_ends)
            .map(|(mut worker, mut far)| {
                let start = &start;
                scope.spawn(move || {
                    // Buffers, readers and branch predictors warm up before the clock starts.
                    for _ in 0..warm_up {
                        far.fill();
                        worker.poll_once();
                        far.empty();
                    }
                    start.wait();
                    let began = Instant::now();
                    let mut received = 0;
                    while received < load.frames {
                        far.fill();
                        received += worker.poll_once() as u64;
                        far.empty();
                    }
                    let ended = Instant::now();
                    worker.finish();
                    far.empty();
                    (began, ended, received)
                })
            })
            .collect();
        let runs = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        has_ended.store(true, Ordering::Release);
        copied = reading.and_then(|reading| reading.join().ok()).unwrap_or_default();
        runs
    });
    if let Some((_, to)) = tapped {
        *to = copied;
    }
    let began = runs.iter().map(|run| run.0).min();
    let ended = runs.iter().map(|run| run.1).max();
    let elapsed = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    let frames = runs.iter().map(|run| run.2).sum();
    let status = monitor.status();
    // Hellos leave by all ports of exit at the same time.
    let n_hellos = status.total.originated / u64::from(load.n_exits.max(1));
    let exits = status.ports[1..].iter().map(|port| port.counters.tx_frames - n_hellos).collect();
    Ok(Measured { elapsed, frames, counts: status.total, exits })
}

/// Sends hellos at all ports of exit, and takes what the ports learn, as the keepers of a switch do, until the workers have ended.
fn keep_until(has_ended: &AtomicBool, monitor: &Monitor, n_exits: u16) {
    while !has_ended.load(Ordering::Acquire) {
        std::thread::park_timeout(HELLO_EVERY);
        say_hello(monitor, n_exits);
        monitor.learner().take(usize::MAX);
    }
}

fn say_hello(monitor: &Monitor, n_exits: u16) {
    let (interval_ms, multiplier) = (HELLO_EVERY.as_millis() as u16, 3);
    let hello = |port| Hello {
        switch: "bench".to_owned(),
        port: PortId(port),
        session: 1,
        hears: None,
        cluster: 0,
        interval_ms,
        multiplier,
    };
    monitor.links().send((1..=n_exits).map(|port| (port as u8, hello(port).encode())));
}

/// Reads everything that the tap copies, as a capture does, until the workers have ended.
fn read_until(has_ended: &AtomicBool, readers: Vec<Reader>, n_exits: u16) -> Copied {
    let (mut copied, mut batch) = (Copied::default(), Vec::new());
    loop {
        // This reads the rest after the end.
        let is_last = has_ended.load(Ordering::Acquire);
        let mut has_read = false;
        for reader in &readers {
            has_read |= reader.read(|chunk| {
                for record in records(chunk) {
                    copied.frames += 1;
                    batch.extend_from_slice(record.bytes);
                }
                batch.clear();
            });
        }
        match has_read {
            true => {}
            false if is_last => break,
            false => std::thread::park_timeout(Duration::from_millis(2)),
        }
    }
    let lost = readers.iter().map(|reader| (0..=n_exits).map(|index| reader.lost(index as u8, false)).sum::<u64>());
    Copied { lost: lost.sum(), ..copied }
}

#[cfg(test)]
mod tests;

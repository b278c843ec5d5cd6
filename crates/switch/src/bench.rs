//! The forwarding bench: the real worker loop between in-memory ports, with a table or without.
//!
//! A [`Feed`] is a port that makes frames out of nothing and swallows what is sent to it. Receiving writes the first 16
//! bytes of each frame (destination from a list of names, source, and the shim where there is one) into a buffer that
//! holds the rest already, as a network card leaves a frame in the cache; sending recycles the buffer. So a frame of
//! 1500 bytes costs what one of 64 costs, as in a switch that forwards without copying. Every worker has its own feeds,
//! and shares the FIB, the exact tables and the plane, as in production.
//!
//! The *empty forwarder* is the same loop over [`EmptyTable`]: frames parsed, actions taken, shims counted down, frames
//! sent, but no digest, no lookup and no ingress check. The ratio of both is what the lookups cost.

use crate::counters::Counts;
use crate::dataplane::{BuildError, PortSpec, Settings, build};
use crate::plane::PlaneWriter;
use crate::shim;
use crate::table::{EmptyTable, FibTable, Table};
use crate::worker::Role;
use fib::action::{Action, PortId};
use fib::name::{Name, NameKind};
use fib::replica::Exact;
use lookup::hash::Hasher;
use lookup::othello::OthelloQuery;
use netio::{Burst, Device, DeviceCounters, NetError, Pool, Readiness};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Bursts before the clock starts.
const WARM_UP_BURSTS: usize = 256;

/// Where the measured switch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the core: frames come from a trunk, with a shim, and leave by trunks. One FIB lookup a frame.
    Core,
    /// At the edge: frames come from hosts and leave by trunks. The exact ingress check and one FIB lookup a frame.
    Gateway,
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct Load {
    /// Where the switch stands.
    pub place: Place,
    /// Bytes of a frame as the host sent it, 60 to 9000; 64 is the usual least.
    pub frame_bytes: usize,
    /// Destinations, each six bytes in a little-endian word, sent in this order, again and again. Every worker starts
    /// at another place. Uniform, Zipf, unknown: whatever the list says.
    pub destinations: Arc<[u64]>,
    /// Ports of exit; the FIB's values are 1 to this number (0 drops).
    pub n_exits: u16,
    /// Workers, each on a thread of its own.
    pub workers: usize,
    /// Frames that each worker receives before the clock is read again; rounded up to a burst.
    pub frames: u64,
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Time from the first worker's start until the last had its frames.
    pub elapsed: Duration,
    /// Frames received in that time.
    pub frames: u64,
    /// Counts of all workers, the warm-up included.
    pub counts: Counts,
    /// The same: frames each port of exit swallowed, added over workers: the checksum of where frames went.
    pub exits: Vec<u64>,
}

impl Measured {
    /// Frames a second, received.
    pub fn rate_pps(&self) -> f64 {
        self.frames as f64 / self.elapsed.as_secs_f64()
    }
}

/// Measures with a FIB. At a gateway `valid` names are put into the exact table first.
/// # Errors
/// [`BuildError`]: more exits than ports, no workers, or the system refused a thread.
pub fn forward_with_fib(
    load: &Load,
    hasher: &Hasher,
    fib: &OthelloQuery,
    valid: &[u64],
) -> Result<Measured, BuildError> {
    forward(load, |writer: &mut PlaneWriter<FibTable>| {
        let kind = NameKind::Mac;
        writer.set_table(kind, hasher, || FibTable::new(kind, hasher.clone(), fib.reader()));
        if load.place == Place::Gateway {
            let names = valid.iter().filter_map(|word| Name::from_bytes(kind, &word.to_le_bytes()[..6]).ok());
            writer.valid().replace(names.map(|name| (name, None)).collect());
        }
    })
}

/// Measures the empty forwarder.
/// # Errors
/// As for [`forward_with_fib`].
pub fn forward_empty(load: &Load, hasher: &Hasher) -> Result<Measured, BuildError> {
    forward(load, |writer: &mut PlaneWriter<EmptyTable>| {
        writer.set_table(NameKind::Mac, hasher, || EmptyTable::new(load.n_exits.into()));
    })
}

fn forward<T: Table + 'static>(load: &Load, set_up: impl FnOnce(&mut PlaneWriter<T>)) -> Result<Measured, BuildError> {
    let entry_role = if load.place == Place::Core { Role::Trunk } else { Role::Host };
    let mut ports: Vec<PortSpec> = (0..=load.n_exits)
        .map(|id| PortSpec { id: PortId(id), role: if id == 0 { entry_role } else { Role::Trunk }, devices: vec![] })
        .collect();
    let mut exits = vec![];
    for worker in 0..load.workers {
        for port in &mut ports {
            let frames = (port.id.0 == 0).then(|| Source::new(load, entry_role, worker));
            let feed = Feed { source: frames, counters: Arc::default() };
            exits.push((port.id.0, feed.counters.clone()));
            port.devices.push(Box::new(feed));
        }
    }
    let settings = Settings { workers: load.workers, max_frame: load.frame_bytes.max(2048), ..Settings::default() };
    let (workers, monitor, mut writer) = build::<T>(&settings, ports)?;
    let mut actions = vec![Action::Drop];
    actions.extend((1..=load.n_exits).map(|id| Action::Port(PortId(id))));
    writer.set_actions(&actions);
    set_up(&mut writer);

    let start = Barrier::new(load.workers);
    let runs: Vec<(Instant, Instant, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let start = &start;
                scope.spawn(move || {
                    // Buffers, readers and branch predictors warm up before the clock starts.
                    for _ in 0..WARM_UP_BURSTS {
                        worker.poll_once();
                    }
                    start.wait();
                    let began = Instant::now();
                    let mut received = 0;
                    while received < load.frames {
                        received += worker.poll_once() as u64;
                    }
                    (began, Instant::now(), received)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let began = runs.iter().map(|run| run.0).min();
    let ended = runs.iter().map(|run| run.1).max();
    let elapsed = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    let mut by_exit = vec![0; usize::from(load.n_exits)];
    for (id, counters) in exits.iter().filter(|(id, _)| *id > 0) {
        by_exit[usize::from(*id) - 1] += counters.tx_frames.get();
    }
    let frames = runs.iter().map(|run| run.2).sum();
    Ok(Measured { elapsed, frames, counts: monitor.status().total, exits: by_exit })
}

/// What a [`Feed`] makes frames of.
struct Source {
    destinations: Arc<[u64]>,
    next: usize,
    frame_len: usize,
    /// Bytes 6 to 16: source address, and shim or EtherType.
    head: [u8; 12],
}

impl Source {
    fn new(load: &Load, role: Role, worker: usize) -> Self {
        let mut head = [2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 0];
        if role == Role::Trunk {
            head[6..12].copy_from_slice(&[shim::ETHER_TYPE[0], shim::ETHER_TYPE[1], shim::INITIAL_HOPS, 0, 0x08, 0x00]);
        }
        let frame_len = load.frame_bytes + if role == Role::Trunk { shim::LEN } else { 0 };
        let next = load.destinations.len() * worker / load.workers.max(1);
        Self { destinations: load.destinations.clone(), next, frame_len, head }
    }
}

/// An in-memory port that frames come out of without end, or go into.
struct Feed {
    source: Option<Source>,
    counters: Arc<DeviceCounters>,
}

impl Device for Feed {
    fn name(&self) -> &str {
        "feed"
    }

    fn max_frame(&self) -> usize {
        netio::MAX_FRAME_LIMIT
    }

    #[inline]
    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        let Some(source) = &mut self.source else { return Ok(0) };
        let before = out.len();
        while !out.is_full() {
            let Some(mut packet) = pool.take() else { break };
            if packet.resize(source.frame_len).is_err() {
                pool.put(packet);
                break;
            }
            let Some(&destination) = source.destinations.get(source.next) else { break };
            source.next = if source.next + 1 == source.destinations.len() { 0 } else { source.next + 1 };
            let frame = packet.frame_mut();
            frame[..6].copy_from_slice(&destination.to_le_bytes()[..6]);
            frame[6..18].copy_from_slice(&source.head);
            out.push(packet);
        }
        let n = out.len() - before;
        self.counters.rx_frames.add(n as u64);
        Ok(n)
    }

    #[inline]
    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        let n = frames.len();
        self.counters.tx_frames.add(n as u64);
        pool.put_all(frames);
        Ok(n)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        if self.source.is_some() { Readiness::Ready } else { Readiness::Exhausted }
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.counters.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::DropReason;
    use lookup::hash::{Digest, Family, SecretKey};
    use lookup::othello::{Othello, Settings as TableSettings};
    use lookup::traits::Control;

    fn load(place: Place, workers: usize) -> (Load, Hasher, OthelloQuery, Vec<u64>) {
        let key = SecretKey::from_seed(5);
        let hasher = Hasher::new(Family::default(), &key);
        let names: Vec<u64> = (0..2000u64).map(|i| i << 16 | 2).collect();
        let entries: Vec<(Digest, u64)> =
            names.iter().map(|name| (hasher.digest(&name.to_le_bytes()[..6]), 1 + (name >> 16) % 4)).collect();
        let mut control = Othello::new(TableSettings::new(8, 4000, &key));
        control.insert_batch(&entries, &mut vec![]).unwrap();
        let load =
            Load { place, frame_bytes: 64, destinations: names.clone().into(), n_exits: 4, workers, frames: 6400 };
        (load, hasher, control.export(), names)
    }

    #[test]
    fn every_frame_goes_where_its_name_says() {
        for place in [Place::Core, Place::Gateway] {
            for workers in [1, 2] {
                let (load, hasher, fib, valid) = load(place, workers);
                let measured = forward_with_fib(&load, &hasher, &fib, &valid).unwrap();
                assert_eq!(measured.counts.dropped_total(), 0);
                assert_eq!(measured.exits.iter().sum::<u64>(), measured.counts.sent);
                let (least, most) = (measured.exits.iter().min().unwrap(), measured.exits.iter().max().unwrap());
                assert!(most - least <= 4 * workers as u64, "{:?}", measured.exits);
                assert!(measured.frames >= 6400 * workers as u64);
            }
        }
    }

    #[test]
    fn unknown_names_stop_at_the_gateway() {
        let (mut load, hasher, fib, valid) = load(Place::Gateway, 1);
        load.destinations = (0..500u64).map(|i| i << 24 | 0x04).collect();
        let measured = forward_with_fib(&load, &hasher, &fib, &valid).unwrap();
        assert_eq!(measured.counts.sent, 0);
        assert_eq!(measured.counts.dropped(DropReason::Alien), measured.counts.dropped_total());
    }

    #[test]
    fn the_empty_forwarder_sends_everything() {
        for place in [Place::Core, Place::Gateway] {
            let (load, hasher, ..) = load(place, 2);
            let measured = forward_empty(&load, &hasher).unwrap();
            assert_eq!(measured.counts.dropped_total(), 0);
            assert!(measured.frames >= 12_800 && measured.exits.iter().all(|&n| n > 0));
        }
    }
}

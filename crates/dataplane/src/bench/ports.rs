//! The ports of the bench: sources of frames, and their ends.

use super::{Connections, FLOOD_PORT, Load, Wiring};
use crate::assembly::BuildError;
use crate::port::Role;
use crate::shim;
use lookup::base::arena::LINE;
use lookup::base::prefetch::prefetch;
use lookup::hash::mix64;
use netio::backend::loopback::{self, Loopback};
use netio::{BURST, Burst, Device, DeviceCounters, NetError, Pool, Readiness};
use std::io;
use std::sync::Arc;

/// The IPv4 address of a source, by its place in the list.
pub(super) fn ip_of(source_index: usize) -> u32 {
    0x0a00_0000 | source_index as u32
}

/// Makes the frames.
pub(super) struct Source {
    destinations: Arc<[u64]>,
    next: usize,
    sources: Arc<[u64]>,
    next_source: usize,
    frame_len: usize,
    /// Bytes 6 to 18: source address, and shim and EtherType, or EtherType and the start of the IP header.
    head: [u8; 12],
    segments: Option<Segments>,
}

/// The headers of connections, if there are any.
struct Segments {
    /// The offset of the IP header.
    ip: usize,
    /// The IP and TCP headers.
    headers: [u8; 40],
    connections: Connections,
    until_flood: u32,
    /// The number of new connections so far.
    flood: u64,
}

impl Segments {
    fn new(connections: Connections, ip: usize, ip_bytes: usize, worker: usize) -> Self {
        let mut headers = [0; 40];
        headers[0] = 0x45;
        headers[2..4].copy_from_slice(&(ip_bytes as u16).to_be_bytes());
        (headers[8], headers[9], headers[32]) = (64, 6, 0x50);
        headers[16..20].copy_from_slice(&[192, 0, 2, 1]);
        headers[22..24].copy_from_slice(&80u16.to_be_bytes());
        let until_flood = connections.flood_after.unwrap_or(u32::MAX);
        Self { ip, headers, connections, until_flood, flood: (worker as u64) << 40 }
    }

    /// Writes the headers of connection `next`, or of a new connection: returns true then.
    #[inline]
    fn write(&mut self, frame: &mut [u8], next: usize) -> bool {
        let flood = self.until_flood == 0;
        let headers = &mut frame[self.ip..self.ip + 40];
        headers.copy_from_slice(&self.headers);
        let (address, port, flags) = if flood {
            self.until_flood = self.connections.flood_after.unwrap_or(u32::MAX);
            self.flood += 1;
            headers[22..24].copy_from_slice(&FLOOD_PORT.to_be_bytes());
            let random = mix64(self.flood);
            (random as u32 | 1 << 31, (random >> 32) as u16, 2)
        } else {
            self.until_flood -= 1;
            (0x0a00_0000 | next as u32, 40_000, 16)
        };
        headers[12..16].copy_from_slice(&address.to_be_bytes());
        headers[20..22].copy_from_slice(&port.to_be_bytes());
        headers[33] = flags;
        flood
    }
}

impl Source {
    pub(super) fn new(load: &Load, role: Role, worker: usize) -> Self {
        let mut head = [2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 0];
        if role == Role::Trunk {
            head[6..12].copy_from_slice(&[shim::ETHER_TYPE[0], shim::ETHER_TYPE[1], shim::INITIAL_HOPS, 0, 0x08, 0x00]);
        }
        if role == Role::Host {
            head[10..12].copy_from_slice(&((load.frame_bytes - 14) as u16).to_be_bytes());
        }
        let frame_len = load.frame_bytes + if role == Role::Trunk { shim::LEN } else { 0 };
        let next = load.destinations.len() * worker / load.workers.max(1);
        let ip = frame_len - load.frame_bytes + 14;
        let segments = load.connections.map(|connections| Segments::new(connections, ip, frame_len - ip, worker));
        let (destinations, sources) = (load.destinations.clone(), load.sources.clone());
        Self { destinations, next, sources, next_source: 0, frame_len, head, segments }
    }

    /// Fills the free space of `out` with frames.
    #[inline]
    fn fill(&mut self, pool: &mut Pool, out: &mut Burst) {
        // A network card would have put the frames into the cache, so the list must not cost a miss.
        let list = self.destinations.as_ptr().cast::<u8>().wrapping_add(8 * self.next);
        (0..8 * BURST).step_by(LINE).for_each(|at| prefetch(list.wrapping_add(FETCH_AHEAD + at)));
        while !out.is_full() {
            let Some(&destination) = self.destinations.get(self.next) else { break };
            let Some(mut packet) = pool.take() else { break };
            if packet.resize(self.frame_len).is_err() {
                pool.put(packet);
                break;
            }
            let frame = packet.frame_mut();
            frame[..6].copy_from_slice(&destination.to_le_bytes()[..6]);
            frame[6..18].copy_from_slice(&self.head);
            if let Some(source) = self.sources.get(self.next_source) {
                frame[6..12].copy_from_slice(&source.to_le_bytes()[..6]);
                frame[26..30].copy_from_slice(&ip_of(self.next_source).to_be_bytes());
                self.next_source = if self.next_source + 1 == self.sources.len() { 0 } else { self.next_source + 1 };
            }
            let flood = self.segments.as_mut().is_some_and(|segments| segments.write(frame, self.next));
            if !flood {
                self.next = if self.next + 1 == self.destinations.len() { 0 } else { self.next + 1 };
            }
            out.push(packet);
        }
    }
}

/// How far ahead the list of destinations is fetched.
const FETCH_AHEAD: usize = 2048;

/// The far ends of a worker's rings. There are none with bare ports.
pub(super) struct FarEnds {
    entry: Option<(Loopback, Source)>,
    exits: Vec<Loopback>,
    pool: Pool,
    burst: Burst,
}

impl FarEnds {
    pub(super) fn new(load: &Load) -> Self {
        let packets = if load.wiring == Wiring::Rings { 2 * netio::BURST } else { 0 };
        let max_frame = load.frame_bytes.max(2048);
        Self { entry: None, exits: vec![], pool: Pool::new(packets, max_frame), burst: Burst::new() }
    }

    /// Makes a port of the switch, and keeps its far end.
    pub(super) fn near_end(&mut self, load: &Load, source: Option<Source>) -> Result<Box<dyn Device>, BuildError> {
        if load.wiring == Wiring::Bare {
            return Ok(Box::new(Bare { source, counters: Arc::default() }));
        }
        let settings = loopback::Settings { ring_frames: 256, max_frame: load.frame_bytes.max(2048) };
        let (near, far) = loopback::pair("near", "far", &settings).map_err(io::Error::other)?;
        match source {
            Some(source) => self.entry = Some((far, source)),
            None => self.exits.push(far),
        }
        Ok(Box::new(near))
    }

    #[inline]
    pub(super) fn fill(&mut self) {
        if let Some((end, source)) = &mut self.entry {
            source.fill(&mut self.pool, &mut self.burst);
            // A full ring would mean that the worker is behind, which it never is in one thread.
            let _ = end.tx_burst(&mut self.pool, &mut self.burst);
            self.pool.put_all(&mut self.burst);
        }
    }

    #[inline]
    pub(super) fn empty(&mut self) {
        for end in &mut self.exits {
            let _ = end.rx_burst(&mut self.pool, &mut self.burst);
            self.pool.put_all(&mut self.burst);
        }
    }
}

/// A port that makes frames without end, or discards them.
struct Bare {
    source: Option<Source>,
    counters: Arc<DeviceCounters>,
}

impl Device for Bare {
    fn name(&self) -> &str {
        "bare"
    }

    fn max_frame(&self) -> usize {
        netio::MAX_FRAME_LIMIT
    }

    #[inline]
    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        let Some(source) = &mut self.source else { return Ok(0) };
        let before = out.len();
        source.fill(pool, out);
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

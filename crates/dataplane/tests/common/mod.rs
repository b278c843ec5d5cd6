//! A switch whose ports end in the test's hands.
#![allow(dead_code, unreachable_pub, reason = "every test takes what it needs")]

pub mod frames;
pub mod netns;

use dataplane::acl::AccessList;
use dataplane::assembly::{Monitor, PortSpec, Settings, build};
use dataplane::counters::{Counts, DropReason};
use dataplane::plane::PlaneWriter;
use dataplane::port::Role;
use dataplane::source::CheckSource;
use dataplane::table::FibTable;
use dataplane::worker::Worker;
use fib::action::{Action, PortId};
use fib::designs::Burst;
use fib::name::{Name, NameKind};
use fib::replica::Exact;
use lookup::hash::{Family, Hasher, SecretKey};
use lookup::othello::{Othello, OthelloQuery, Settings as TableSettings};
use lookup::traits::{BatchReader, Control, Query};
use netio::backend::loopback::{self, Loopback};
use netio::{Device, DeviceCounters, NetError, Pool, Readiness};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub const HOST_1: u16 = 1;
pub const HOST_2: u16 = 2;
pub const TRUNK_8: u16 = 8;
pub const TRUNK_9: u16 = 9;
/// There where the settings have a gateway.
pub const OUTSIDE_3: u16 = 3;

/// A reader of an Othello that is asked for the names of a burst.
pub struct ByDigest(pub lookup::othello::Reader);

impl BatchReader<Burst<'_>> for ByDigest {
    fn lookup_batch(&mut self, burst: &Burst<'_>, values: &mut [u64]) {
        self.0.lookup_batch(burst.digests, values);
    }

    fn has_phases(&self) -> bool {
        self.0.has_phases()
    }

    fn begin(&mut self, burst: &Burst<'_>) {
        self.0.begin(burst.digests);
    }

    fn finish(&mut self, burst: &Burst<'_>, values: &mut [u64]) {
        self.0.finish(burst.digests, values);
    }

    fn offline(&mut self) {
        self.0.offline();
    }
}

/// The switch's end of a port. What comes has waited for the switch as long as the test says so.
struct Near(Loopback, Arc<AtomicBool>);

impl Device for Near {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut netio::Burst) -> Result<usize, NetError> {
        self.0.rx_burst(pool, out)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut netio::Burst) -> Result<usize, NetError> {
        self.0.tx_burst(pool, frames)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.0.readiness()
    }

    fn woken(&mut self, fault: bool) {
        self.0.woken(fault);
    }

    fn has_waited(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.0.counters()
    }
}

/// One worker, two host ports (1 and 2), two trunks (8 and 9).
pub struct Rig {
    pub worker: Worker<FibTable>,
    pub writer: PlaneWriter<FibTable>,
    pub monitor: Monitor,
    pub ends: Vec<(u16, Loopback)>,
    /// Whether what comes has waited. Once it has not, nothing has any more.
    pub waits: Arc<AtomicBool>,
    pub kind: NameKind,
    pub hasher: Hasher,
    control: Othello,
    query: OthelloQuery,
}

pub fn mac(i: u64) -> Name {
    Name::from_bytes(NameKind::Mac, &[2, 0, 0, (i >> 16) as u8, (i >> 8) as u8, i as u8]).unwrap()
}

pub fn mac_bytes(i: u64) -> [u8; 6] {
    mac(i).as_bytes().try_into().unwrap()
}

impl Rig {
    pub fn new(kind: NameKind) -> Self {
        Self::with_settings(kind, &Settings::default())
    }

    pub fn with_settings(kind: NameKind, settings: &Settings) -> Self {
        let mut rig = Self::without_fib(kind, settings);
        rig.publish_fib();
        rig
    }

    pub fn without_fib(kind: NameKind, settings: &Settings) -> Self {
        Self::without_fib_or_trust(kind, settings, CheckSource::Off, None, |_| ())
    }

    /// Host ports check the sources of frames.
    pub fn with_check(kind: NameKind, settings: &Settings, check_source: CheckSource) -> Self {
        let mut rig = Self::without_fib_or_trust(kind, settings, check_source, None, |_| ());
        rig.publish_fib();
        rig
    }

    /// As [`Rig::with_check`] for MAC addresses, with ports that are changed before they are built.
    pub fn with_ports(check_source: CheckSource, change: impl Fn(&mut PortSpec)) -> Self {
        let mut rig = Self::without_fib_or_trust(NameKind::Mac, &Settings::default(), check_source, None, change);
        rig.publish_fib();
        rig
    }

    /// All ports have an access list; at trunks it is not used.
    pub fn with_acl(kind: NameKind, settings: &Settings, check_source: CheckSource, acl: Arc<AccessList>) -> Self {
        let mut rig = Self::without_fib_or_trust(kind, settings, check_source, Some(acl), |_| ());
        rig.publish_fib();
        rig
    }

    fn without_fib_or_trust(
        kind: NameKind,
        settings: &Settings,
        check_source: CheckSource,
        acl: Option<Arc<AccessList>>,
        change: impl Fn(&mut PortSpec),
    ) -> Self {
        let (mut ends, mut specs) = (vec![], vec![]);
        let waits = Arc::new(AtomicBool::new(false));
        let mut roles =
            vec![(HOST_1, Role::Host), (HOST_2, Role::Host), (TRUNK_8, Role::Trunk), (TRUNK_9, Role::Trunk)];
        roles.extend(settings.gateway.as_ref().map(|_| (OUTSIDE_3, Role::Outside)));
        for (id, role) in roles {
            let usual = loopback::Settings::default();
            let max_frame = if id == OUTSIDE_3 { 1514 } else { usual.max_frame };
            let sizes = loopback::Settings { max_frame, ..usual };
            let (near, far) = loopback::pair(&format!("port{id}"), "far", &sizes).unwrap();
            let near = Near(near, Arc::clone(&waits));
            let learns = check_source != CheckSource::Off;
            let mut spec = PortSpec { check_source, learns, acl: acl.clone(), ..PortSpec::new(id, role, near) };
            change(&mut spec);
            specs.push(spec);
            ends.push((id, far));
        }
        let (mut workers, monitor, mut writer) = build(settings, specs).unwrap();
        let ports = [HOST_1, HOST_2, TRUNK_8, TRUNK_9].map(|id| Action::Port(PortId(id)));
        let mut actions = vec![Action::Drop];
        actions.extend(ports);
        actions.extend(settings.gateway.as_ref().map(|gateway| Action::Port(gateway.port)));
        writer.set_actions(&actions);
        let key = SecretKey::from_seed(7);
        let control = Othello::new(TableSettings::new(8, 10_000, &key));
        let query = control.export();
        Self {
            worker: workers.pop().unwrap(),
            writer,
            monitor,
            ends,
            waits,
            kind,
            hasher: Hasher::new(Family::default(), &key),
            control,
            query,
        }
    }

    pub fn publish_fib(&mut self) {
        let (kind, hasher, query) = (self.kind, self.hasher.clone(), &self.query);
        self.writer
            .set_table(kind, &hasher, || FibTable::new(kind, hasher.clone(), Box::new(ByDigest(query.reader()))));
    }

    /// Another FIB in place of this one.
    pub fn take_fib_of(&mut self, other: Self) {
        (self.hasher, self.control, self.query) = (other.hasher, other.control, other.query);
        self.publish_fib();
    }

    /// Puts a value into the FIB: index of a row of the action table (1 to 4: ports 1, 2, 8, 9).
    pub fn route(&mut self, name: &Name, value: u64) {
        let mut updates = vec![];
        self.control.insert(self.hasher.digest(name.as_bytes()), value, &mut updates).unwrap();
        for update in &updates {
            self.query.apply(update).unwrap();
        }
    }

    pub fn unroute(&mut self, name: &Name) {
        let mut updates = vec![];
        assert!(self.control.remove(self.hasher.digest(name.as_bytes()), &mut updates));
        for update in &updates {
            self.query.apply(update).unwrap();
        }
    }

    /// Makes a name known: valid, routed, and local if its route is a host port.
    pub fn add(&mut self, name: &Name, value: u64) {
        self.writer.valid().put(name.clone(), None);
        self.route(name, value);
        if value <= 2 {
            self.writer.local().put(name.clone(), PortId(value as u16));
        }
    }

    pub fn send(&mut self, port: u16, frame: &[u8]) {
        let (_, end) = self.ends.iter_mut().find(|(id, _)| *id == port).unwrap();
        assert!(end.send(frame).unwrap());
    }

    /// Runs the worker until nothing comes any more, and collects what came out: (port, frame).
    pub fn run(&mut self) -> Vec<(u16, Vec<u8>)> {
        while self.worker.poll_once() > 0 {}
        let mut out = vec![];
        for (id, end) in &mut self.ends {
            while let Ok(Some(frame)) = end.recv(<[u8]>::to_vec) {
                out.push((*id, frame));
            }
        }
        let counts = self.counts();
        let all = counts.received + counts.originated;
        assert_eq!(
            all,
            counts.sent + counts.hellos + counts.groups + counts.dropped_total(),
            "every frame is accounted for"
        );
        out
    }

    pub fn exchange(&mut self, port: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        self.send(port, frame);
        self.run()
    }

    pub fn counts(&self) -> Counts {
        self.monitor.status().total
    }

    /// Sends a frame that must be dropped for exactly this reason.
    #[track_caller]
    pub fn assert_dropped(&mut self, port: u16, frame: &[u8], reason: DropReason) {
        let before = self.counts();
        let out = self.exchange(port, frame);
        assert!(out.is_empty(), "came out: {out:?}");
        let after = self.counts();
        assert_eq!(after.dropped_total(), before.dropped_total() + 1);
        let grown: Vec<_> = after.drops().filter(|&(r, n)| n > before.dropped(r)).map(|(r, _)| r.name()).collect();
        assert_eq!(grown, [reason.name()]);
    }
}

/// A page of a daemon.
pub fn page(status: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(status).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// An Ethernet frame with a made-up payload.
pub fn ethernet(destination: [u8; 6], source: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&destination[..], &source, &ether_type.to_be_bytes()].concat();
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

pub fn to_mac(i: u64) -> Vec<u8> {
    between(999, i)
}

pub fn between(from: u64, to: u64) -> Vec<u8> {
    ethernet(mac_bytes(to), mac_bytes(from), 0x0800, &[0x45; 46])
}

/// The frame as it looks between switches.
pub fn with_shim(frame: &[u8], hops: u8) -> Vec<u8> {
    with_flags(frame, hops, 0)
}

pub fn with_flags(frame: &[u8], hops: u8, flags: u8) -> Vec<u8> {
    [&frame[..12], &[0x88, 0xb5, hops, flags], &frame[12..]].concat()
}

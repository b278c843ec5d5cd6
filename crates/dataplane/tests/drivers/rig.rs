//! A switch of four ports over one driver, with the far end of every port in the test's hands.

use super::common::netns::{open_af_xdp, veth};
use super::common::{HOST_1, HOST_2, PATIENCE, TRUNK_8, TRUNK_9};
use super::fixtures::Scene;
use dataplane::acl::AccessList;
use dataplane::assembly::{self, Monitor, PortSpec, build};
use dataplane::counters::{Counts, DropReason};
use dataplane::kernel::{Kernel, Memory};
use dataplane::plane::PlaneWriter;
use dataplane::plane::ShownTo;
use dataplane::port::Role;
use dataplane::table::FibTable;
use dataplane::worker::Worker;
use fib::action::PortId;
use fib::designs::Design;
use fib::durable::Tenants;
use fib::network::{self, Network};
use fib::replica::{Exact, Limits, Replica};
use fib::rib::Attachment;
use fib::topology::End;
use lookup::hash::SecretKey;
use netio::backend::af_packet::{self, AfPacket};
use netio::backend::af_xdp::{self, AfXdp};
use netio::backend::loopback;
use netio::{Burst, Device, DeviceSnapshot, Packet, Pool};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

pub(crate) const PORTS: [u16; 4] = [HOST_1, HOST_2, TRUNK_8, TRUNK_9];
/// The longest frame that a far end sends or receives.
const LONGEST: usize = 4096;
/// Frames that may be on their way at one time: fewer than the shortest ring holds.
pub(crate) const WINDOW: usize = 64;

/// How the frames of a port come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Memory,
    AfPacket,
    AfXdp,
    /// AF_XDP, and the kernel forwards from trunks.
    Xdp,
    /// DPDK's driver for packet sockets.
    Dpdk,
}

/// A frame and a port.
pub(crate) type At = (u16, Vec<u8>);

/// What all counters say at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    /// Of the workers and the kernel together.
    pub(crate) all: Counts,
    /// Frames that the kernel sent.
    pub(crate) in_kernel: u64,
    pub(crate) devices: DeviceSnapshot,
}

impl Totals {
    /// The drops since `before`.
    pub(crate) fn drops_since(&self, before: &Self) -> Vec<(DropReason, u64)> {
        let grown = self.all.drops().map(|(reason, n)| (reason, n - before.all.dropped(reason)));
        grown.filter(|&(_, n)| n > 0).collect()
    }

    /// Frames that the devices dropped since `before`, by counter.
    pub(crate) fn lost_since(&self, before: &Self) -> Vec<(&'static str, u64)> {
        let lost = ["rx_oversized", "rx_overrun", "rx_malformed", "faults"];
        let grown = self.devices.fields().zip(before.devices.fields()).map(|((name, n), (_, was))| (name, n - was));
        grown.filter(|&(name, n)| n > 0 && lost.contains(&name)).collect()
    }
}

pub(crate) struct Rig {
    pub(crate) driver: Driver,
    worker: Worker<FibTable>,
    monitor: Monitor,
    _replica: Replica<PlaneWriter>,
    ends: Vec<(u16, Box<dyn Device>)>,
    pool: Pool,
    /// What came out so far, and how many frames since the start.
    out: Vec<At>,
    n_out: u64,
    n_markers: u32,
    n_sent: u64,
    _directory: tempfile::TempDir,
}

impl Rig {
    /// The switch of a scene. Unless the driver is [`Driver::Memory`], in a namespace of its own.
    pub(crate) fn new(driver: Driver, scene: &Scene) -> Self {
        Self::with(driver, scene, |device| device)
    }

    /// As [`Rig::new`], with every device of the switch `wrapped`.
    pub(crate) fn with(driver: Driver, scene: &Scene, wrapped: fn(Box<dyn Device>) -> Box<dyn Device>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let acl = scene.acl.map(|rules| {
            let path = directory.path().join("list.acl");
            std::fs::write(&path, rules).unwrap();
            AccessList::open(&path).unwrap()
        });
        let (hosts, trunks) = ([HOST_1, HOST_2].map(PortId), [TRUNK_8, TRUNK_9].map(PortId));
        let kernel = (driver == Driver::Xdp).then(|| Kernel::new(&trunks, &hosts, Memory::Best).unwrap());
        if driver != Driver::Memory {
            for (port, mtu) in PORTS.into_iter().zip(scene.mtus) {
                veth(&near(port), &far(port), mtu);
            }
            wait_for_carriers();
        }
        let (mut specs, mut ends) = (vec![], vec![]);
        for (port, mtu) in PORTS.into_iter().zip(scene.mtus) {
            let (device, end) = open_port(driver, port, mtu, kernel.as_ref());
            let role = if port < TRUNK_8 { Role::Host } else { Role::Trunk };
            let (check_source, acl) = (scene.check, acl.clone());
            specs.push(PortSpec { check_source, acl, ..PortSpec::with(PortId(port), role, wrapped(device)) });
            ends.push((port, end));
        }
        // The far ends have programs now, so the ports take what the kernel sends.
        if let Some(kernel) = &kernel {
            PORTS.into_iter().for_each(|port| kernel.look_at(PortId(port), true));
        }
        let settings = assembly::Settings {
            shown_to: kernel.clone().map_or(ShownTo::Nobody, ShownTo::Kernel),
            fixed_offset: scene.fixed_offset,
            ..assembly::Settings::default()
        };
        let (mut workers, monitor, writer) = build(&settings, specs).unwrap();
        let mut rig = Self {
            driver,
            worker: workers.remove(0),
            monitor,
            _replica: replica(scene, writer),
            ends,
            pool: Pool::new(4 * WINDOW, LONGEST),
            out: vec![],
            n_out: 0,
            n_markers: 0,
            n_sent: 0,
            _directory: directory,
        };
        // Devices are opened to the end with their first use, on the thread that uses them.
        rig.poll();
        rig
    }

    /// Sends a frame into a port; false if no frame such as this can be sent there.
    pub(crate) fn send(&mut self, port: u16, frame: &[u8]) -> bool {
        let (_, end) = self.ends.iter_mut().find(|(id, _)| *id == port).unwrap();
        let mut packet = Packet::new(LONGEST);
        packet.fill(frame).unwrap();
        let mut burst = Burst::from_iter([packet]);
        let sent = end.tx_burst(&mut Pool::new(0, LONGEST), &mut burst).unwrap();
        assert!(burst.is_empty(), "the far end of port {port} is full");
        self.n_sent += sent as u64;
        sent == 1
    }

    fn poll(&mut self) {
        while self.worker.poll_once() > 0 {}
        let mut burst = Burst::new();
        for (port, end) in &mut self.ends {
            while end.rx_burst(&mut self.pool, &mut burst).unwrap() > 0 {
                self.n_out += burst.len() as u64;
                self.out.extend(burst.iter().map(|packet| (*port, packet.frame().to_vec())));
                self.pool.put_all(&mut burst);
            }
        }
    }

    /// What the counters say.
    pub(crate) fn totals(&self) -> Totals {
        let status = self.monitor.status();
        let mut devices = DeviceSnapshot::default();
        status.ports.iter().for_each(|port| devices += port.counters);
        let in_kernel = status.kernel.map_or(0, |kernel| kernel.forwarded);
        Totals { all: status.total, in_kernel, devices }
    }

    /// Follows what was sent with a frame of each port whose way is known, waits until these and everything before them have
    /// come out, and returns everything: frames of a port keep their order.
    ///
    /// # Errors
    /// They do not come, or the counters do not add up.
    pub(crate) fn settle(&mut self, scene: &Scene, ports: &[u16]) -> Result<Vec<At>, String> {
        let mut markers = vec![];
        for good in scene.good.iter().filter(|good| ports.contains(&good.port)) {
            self.n_markers += 1;
            let number = [&[0xa5, 0x5a, 0xc3, 0x3c][..], &self.n_markers.to_be_bytes()].concat();
            let (exit, expected) = good.out();
            assert!(self.send(good.port, &[&good.frame[..], &number].concat()));
            markers.push((exit, [expected, &number].concat()));
        }
        let began = Instant::now();
        loop {
            self.poll();
            let missing = markers.iter().filter(|marker| !self.out.contains(marker)).count();
            let totals = self.totals();
            // Where nothing is sent on, there is no other end to wait for.
            let is_received = !markers.is_empty() || totals.all.received >= self.n_sent;
            if missing == 0 && is_received && self.n_out >= totals.all.sent {
                break;
            }
            if began.elapsed() > PATIENCE {
                let out = self.n_out;
                return Err(format!(
                    "{missing} of {} markers are missing; {out} frames came: {totals:?}",
                    markers.len()
                ));
            }
        }
        let Totals { all, devices, .. } = self.totals();
        let counted = [all.received + all.originated, devices.rx_frames, self.n_out, devices.tx_frames];
        if counted != [all.sent + all.hellos + all.groups + all.dropped_total(), all.received, all.sent, all.sent] {
            return Err(format!("the counters do not add up: {} frames came out, {all:?}, {devices:?}", self.n_out));
        }
        self.out.retain(|at| !markers.contains(at));
        Ok(std::mem::take(&mut self.out))
    }
}

fn near(port: u16) -> String {
    format!("near{port}")
}

fn far(port: u16) -> String {
    format!("far{port}")
}

/// The first interface of a pair that is up has no carrier: the kernel enables it later, and drops what is sent until then.
fn wait_for_carriers() {
    let began = Instant::now();
    loop {
        let output = Command::new("ip").args(["-o", "link"]).output().unwrap();
        if String::from_utf8_lossy(&output.stdout).matches("state UP").count() == 2 * PORTS.len() {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "no carrier");
    }
}

/// The switch's end of a port, and the test's.
fn open_port(
    driver: Driver,
    port: u16,
    mtu: usize,
    kernel: Option<&Arc<Kernel>>,
) -> (Box<dyn Device>, Box<dyn Device>) {
    let device: Box<dyn Device> = match driver {
        Driver::Memory => {
            let settings = loopback::Settings { max_frame: mtu + 18, ..loopback::Settings::default() };
            let (device, end) = loopback::pair(&near(port), &far(port), &settings).unwrap();
            return (Box::new(device), Box::new(end));
        }
        Driver::AfPacket => {
            // The list is of frames as they are on the wire.
            let offloads = af_packet::Offloads::TurnOff;
            let options = af_packet::Options { ring_frames: 256, offloads, ..af_packet::Options::default() };
            Box::new(AfPacket::open(&near(port), &options).unwrap())
        }
        Driver::AfXdp | Driver::Xdp => {
            let ahead =
                kernel.and_then(|kernel| kernel.place(PortId(port))).map(|place| place as Arc<dyn af_xdp::Ahead>);
            let options = af_xdp::Options { ring_frames: 256, ahead, ..af_xdp::Options::default() };
            Box::new(AfXdp::open(&near(port), &options).unwrap())
        }
        Driver::Dpdk => open_dpdk(port),
    };
    // XDP sees every frame as it is on the wire: packet sockets do not see those that end in a tag. And a veth takes what the
    // kernel redirects there only if its other end has a program, too.
    let end: Box<dyn Device> = Box::new(open_af_xdp(&far(port)));
    (device, end)
}

#[cfg(feature = "dpdk")]
fn open_dpdk(port: u16) -> Box<dyn Device> {
    use netio::backend::dpdk::{Dpdk, Eal, EalOptions, Options};
    use std::sync::atomic::{AtomicU32, Ordering};
    // All tests share one EAL, and no two devices have one name.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let arguments = ["--no-huge", "-m", "256"].map(str::to_owned).to_vec();
    let eal = Eal::start(&EalOptions { arguments, devices: vec![] }).unwrap();
    let device = format!("net_af_packet{},iface={}", NEXT.fetch_add(1, Ordering::Relaxed), near(port));
    Box::new(Dpdk::open(eal, &device, &Options::default()).unwrap_or_else(|error| panic!("{error}")))
}

#[cfg(not(feature = "dpdk"))]
fn open_dpdk(_: u16) -> Box<dyn Device> {
    unreachable!("no test asks for it")
}

/// What the controller tells the switch `s1` of a scene: hosts at ports 1 and 2, other switches behind 8 and 9.
fn replica(scene: &Scene, writer: PlaneWriter) -> Replica<PlaneWriter> {
    let design = Design::by_name("concise").unwrap();
    let settings = network::Settings {
        kind: scene.kind,
        max_names: 1000,
        gateway: design,
        core: design,
        ..network::Settings::new(7, SecretKey::from_seed(3))
    };
    let mut network = Network::new(settings, 1).unwrap();
    let (s1, _) = network.add_switch("s1", Tenants::All).unwrap();
    let end = |node, port| End { node, port: PortId(port) };
    let places = PORTS.map(|port| {
        let at = if port < TRUNK_8 {
            end(s1, port)
        } else {
            let (other, _) = network.add_switch(&format!("s{port}"), Tenants::All).unwrap();
            network.add_link(end(s1, port), end(other, 1), 1).unwrap();
            end(other, 2)
        };
        network.add_host_port(at).unwrap();
        (port, at)
    });
    let mut replica = Replica::new(Limits::default(), writer);
    if scene.has_no_fib {
        return replica;
    }
    for (name, port, ip) in &scene.names {
        let (_, at) = places.iter().find(|(id, _)| id == port).unwrap();
        network.add_name(name, Attachment { ip: *ip, ..Attachment::new(at.node, at.port) }).unwrap();
    }
    for message in network.attach(s1, &replica.report()).unwrap() {
        replica.apply(message).unwrap();
    }
    for name in &scene.removed {
        let effects = network.remove_name(name).unwrap();
        for (_, message) in effects.phases.into_iter().flatten().filter(|(node, _)| *node == s1) {
            replica.apply(message).unwrap();
        }
    }
    for name in &scene.not_local {
        replica.tables_mut().local().remove(name);
    }
    replica
}

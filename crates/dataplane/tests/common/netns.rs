//! Real interfaces, in a network namespace that ends with the test.

use super::PATIENCE;
use netio::backend::af_packet::{AfPacket, Options};
use netio::backend::af_xdp::{self, AfXdp};
use netio::testkit::enter_namespace;
use netio::{Burst, Device, Packet, Pool};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Instant;

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own. Sockets made there stay there, wherever they are used.
pub struct Namespace {
    jobs: mpsc::Sender<Job>,
    thread: i32,
}

impl Namespace {
    /// Where the caller may.
    pub fn new() -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        std::thread::spawn(move || {
            ready.send(enter_namespace().expect("root can make a network namespace")).unwrap();
            queue.into_iter().for_each(|job| job());
        });
        let namespace = Self { jobs, thread: is_ready.recv().unwrap() };
        namespace.inside(|| ip("link set lo up"));
        namespace
    }

    /// Runs `work` in it.
    pub fn inside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, is_done) = mpsc::channel();
        self.jobs.send(Box::new(move || done.send(work()).unwrap())).unwrap();
        is_done.recv().unwrap()
    }

    /// An interface in it that is up, with `far` at the other end, in the namespace of the caller. Its stack leaves checksums and
    /// the cutting of long segments to hardware that is not there, as in any container.
    pub fn link(&self, near: &str, far: &str) {
        ip(&format!("link add {far} type veth peer name {near} netns {}", self.thread));
        ip(&format!("link set {far} up"));
        let near = near.to_owned();
        self.inside(move || ip(&format!("link set {near} up")));
    }
}

pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn veth(near: &str, far: &str, mtu: usize) {
    ip(&format!("link add {near} mtu {mtu} type veth peer name {far} mtu {mtu}"));
    for name in [near, far] {
        // Where there is IPv6, the interface would send frames of its own.
        if Path::new("/proc/sys/net/ipv6").exists() {
            ip(&format!("link set {name} addrgenmode none"));
        }
        ip(&format!("link set {name} up"));
    }
}

pub fn open(name: &str) -> AfPacket {
    AfPacket::open(name, &Options { ring_frames: 256, ..Options::default() }).unwrap()
}

/// With a program at the interface, without which a veth takes nothing that the kernel redirects there.
pub fn open_af_xdp(name: &str) -> AfXdp {
    AfXdp::open(name, &af_xdp::Options { ring_frames: 256, ..af_xdp::Options::default() }).unwrap()
}

pub fn send(device: &mut impl Device, frame: &[u8]) {
    let mut burst = Burst::from_iter([Packet::from_frame(frame)]);
    assert_eq!(device.tx_burst(&mut Pool::new(0, 2048), &mut burst).unwrap(), 1);
}

pub fn receive(device: &mut impl Device) -> Vec<u8> {
    let (mut pool, mut burst, began) = (Pool::new(1, 2048), Burst::new(), Instant::now());
    while device.rx_burst(&mut pool, &mut burst).unwrap() == 0 {
        assert!(began.elapsed() < PATIENCE, "no frame after {PATIENCE:?}");
        std::thread::yield_now();
    }
    burst[0].frame().to_vec()
}

//! A Linux network interface as a port, before the kernel's stack: an AF_XDP socket for each worker.
//!
//! A program in the driver hands every frame to the socket of its receive queue. The kernel copies it once into memory
//! that we share with it, or the device writes it there itself (zero copy, where the driver can). We copy it once more
//! into a packet. Sending is a copy, and one system call a burst.
//!
//! Against [`af_packet`](super::af_packet): the kernel makes no socket buffer for frames that it receives, in drivers
//! that can do without, and the machine's own stack does not see them. What it costs:
//! - one worker per receive queue: `ethtool -L IF combined N`. The device's hash decides which queue a frame is in;
//! - frames of one page: an MTU of up to 3,500 bytes;
//! - nothing says which checksums a local sender (a veth peer, a guest) left to hardware. Those that look so, because their fields have the
//!   sums of pseudo-headers, are completed and counted in `rx_checksums`. While a program is at a veth the kernel cuts super-frames for
//!   it at the other end. Tags that a local sender leaves to the hardware are lost (`ethtool -K IF tx-vlan-hw-insert off` there).
//!
//! Nothing of the interface is changed but that it is promiscuous, and the program, both until the socket is closed.
//!
//! The program is attached by a link, which ends with the process. Another program on the interface is never replaced.
//!
//! Needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF; Linux 5.9. Limits: 64 queues; memory of a socket is
//! `ring_frames` * 8 KiB.

mod program;
mod socket;

use super::interface::{self, net_error};
use crate::{Burst, Device, DeviceCounters, NetError, Packet, Pool, Readiness, checksum};
use program::MAX_QUEUES;
pub use program::{Ahead, Attached};
use rustix::net::netdevice::name_to_index;
use socket::{CHUNK_BYTES, MAX_FRAME, Socket};
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

const ETHERNET_HEADER: usize = 14;
const VLAN_TAG: usize = 4;

/// How an interface is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Frames that wait at most, in each direction: a power of two.
    pub ring_frames: u32,
    /// Receive frames for any address, as a switch must.
    pub promiscuous: bool,
    /// Who has a program for frames before they come here.
    pub ahead: Option<Arc<dyn Ahead>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { ring_frames: 1024, promiscuous: true, ahead: None }
    }
}

/// The program of an interface, which its workers share. An interface that is created again under the same name gets a
/// new one.
type Group = Arc<Mutex<Option<(u32, Arc<Attached>)>>>;

/// One worker's queue of an interface. See the module.
#[derive(Debug)]
pub struct AfXdp {
    name: String,
    options: Options,
    queue: u32,
    n_workers: u32,
    group: Group,
    /// None until there is such an interface.
    open: Option<Open>,
    fault: bool,
    /// What went wrong after frames were in the ring: the next call returns it.
    failure: Option<io::Error>,
    counters: Arc<DeviceCounters>,
}

/// State that is lost with the interface.
#[derive(Debug)]
struct Open {
    /// Chunks that hold no frame to send.
    free: Vec<u64>,
    socket: Socket,
    program: Arc<Attached>,
    /// Keeps the interface in promiscuous mode, and answers questions about it.
    beside: interface::Promiscuous,
    ifindex: u32,
    max_frame: usize,
    /// Senders may leave checksums to hardware.
    is_virtual: bool,
    /// Frames that the kernel lost, as far as they are counted.
    lost: u64,
    /// Bursts since the last check.
    since: u32,
}

/// Bursts after which losses are counted.
const LOOK_EVERY: u32 = 256;

impl AfXdp {
    /// Opens an interface of this thread's network namespace for one worker.
    /// # Errors
    /// As for [`AfXdp::open_group`].
    pub fn open(interface: &str, options: &Options) -> Result<Self, NetError> {
        let mut members = Self::open_group(interface, options, 1)?;
        Ok(members.remove(0))
    }

    /// Opens an interface for `n_workers`, one for each receive queue.
    /// # Errors
    /// [`NetError::NoSuchInterface`], [`NetError::NotPermitted`], [`NetError::Down`] if the interface is not up,
    /// [`NetError::BadOption`] if it has another number of receive queues, too large an MTU or the program of another
    /// process, [`NetError::Io`].
    pub fn open_group(interface: &str, options: &Options, n_workers: usize) -> Result<Vec<Self>, NetError> {
        let mut members = Self::absent_group(interface, options, n_workers);
        members.iter_mut().try_for_each(Self::reopen)?;
        Ok(members)
    }

    /// An interface that is missing or down, for `n_workers`: the first use tries to open it and returns what is wrong;
    /// [`Device::revive`] opens it once it can.
    pub fn absent_group(interface: &str, options: &Options, n_workers: usize) -> Vec<Self> {
        let group = Group::default();
        let member = |queue| Self {
            name: interface.to_owned(),
            options: options.clone(),
            queue,
            n_workers: n_workers as u32,
            group: group.clone(),
            open: None,
            fault: false,
            failure: None,
            counters: Arc::default(),
        };
        (0..n_workers as u32).map(member).collect()
    }

    /// How frames come: `zero copy`, `copied in the driver` or `copied before the stack`; none without an interface.
    pub fn mode(&self) -> Option<&'static str> {
        self.open.as_ref().map(|open| match (open.socket.is_zero_copy(), open.program.is_in_driver()) {
            (true, _) => "zero copy",
            (false, true) => "copied in the driver",
            (false, false) => "copied before the stack",
        })
    }

    fn reopen(&mut self) -> Result<(), NetError> {
        // The old socket must be gone before another can have its queue.
        self.open = None;
        self.open = Some(Open::new(self)?);
        Ok(())
    }

    /// Opens the interface if it is not open yet, and returns what went wrong meanwhile.
    fn ensure_open(&mut self) -> Result<(), NetError> {
        if self.open.is_none() {
            self.reopen().inspect_err(|_| self.counters.faults.add(1))?;
        }
        match self.failure.take() {
            Some(failure) => Err(self.failed("use", failure)),
            None => Ok(()),
        }
    }

    fn failed(&self, action: &'static str, source: io::Error) -> NetError {
        self.counters.faults.add(1);
        net_error(&self.name, action, source)
    }
}

/// Tries again while something is taken, for half a second: what a socket or a process that has ended had is free a moment
/// later, without notice.
fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..50 {
        match attempt() {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                #[expect(clippy::disallowed_methods, reason = "there is no event to wait for")]
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            done => return done,
        }
    }
    attempt()
}

impl Open {
    fn new(member: &AfXdp) -> Result<Self, NetError> {
        let AfXdp { name, options, queue, n_workers, group, .. } = member;
        let fail = |action| move |e| net_error(name, action, e);
        let bad = |reason| NetError::BadOption { device: name.clone(), reason };
        let beside = interface::Promiscuous::new(name, options.promiscuous)?;
        let fd = beside.as_fd();
        let ifindex = name_to_index(fd, name).map_err(|e| fail("find the interface")(e.into()))?;
        interface::check_up(fd, name)?;
        let n_queues = interface::receive_queues(fd, name).map_err(fail("count the queues"))?;
        if n_queues != *n_workers || n_queues > MAX_QUEUES {
            return Err(bad(format!(
                "it has {n_queues} receive queues, and af_xdp needs one for each of the {n_workers} workers; \
                 ethtool -L {name} combined {n_workers}, or set workers = {n_queues}"
            )));
        }
        let max_frame = interface::mtu(fd, name).map_err(fail("read the MTU"))? + ETHERNET_HEADER;
        if max_frame + VLAN_TAG > MAX_FRAME {
            let most = MAX_FRAME - ETHERNET_HEADER - VLAN_TAG;
            return Err(bad(format!(
                "its MTU is {}, and af_xdp takes {most}; lower the MTU",
                max_frame - ETHERNET_HEADER
            )));
        }
        if !options.ring_frames.is_power_of_two() {
            return Err(bad(format!("ring_frames = {} is not a power of two", options.ring_frames)));
        }
        let program = {
            let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
            match &*group {
                Some((of, program)) if *of == ifindex => {
                    program.set_longest(max_frame + VLAN_TAG);
                    program.clone()
                }
                _ => {
                    let attached = patiently(|| Attached::to(ifindex, max_frame + VLAN_TAG)).map_err(|e| match e.raw_os_error() {
                        Some(libc::EBUSY | libc::EEXIST) => bad(format!(
                            "another XDP program is attached to it (`ip link show {name}`); detach that, or use af_packet"
                        )),
                        _ => fail("attach an XDP program")(e),
                    })?;
                    let program = Arc::new(attached);
                    *group = Some((ifindex, program.clone()));
                    program
                }
            }
        };
        let mut socket = Socket::new(options.ring_frames).map_err(fail("open an AF_XDP socket"))?;
        patiently(|| socket.bind(ifindex, *queue)).map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY) => bad(format!("another socket has its receive queue {queue}; use af_packet")),
            _ => fail("bind an AF_XDP socket")(e),
        })?;
        // The first half of the chunks is the kernel's, to receive into; the second is ours, to send.
        let chunks = |range: std::ops::Range<u32>| range.map(|at| u64::from(at) * CHUNK_BYTES as u64);
        chunks(0..options.ring_frames).for_each(|chunk| socket.fill.push(chunk));
        socket.fill.publish();
        let free = chunks(options.ring_frames..2 * options.ring_frames).collect();
        program.set(*queue, socket.as_fd()).map_err(fail("hand frames to an AF_XDP socket"))?;
        if let Some(ahead) = options.ahead.as_ref().filter(|_| *queue == 0) {
            ahead.attached(&program);
        }
        let is_virtual = interface::is_virtual(beside.as_fd(), name);
        Ok(Self { free, socket, program, beside, ifindex, max_frame, is_virtual, lost: 0, since: 0 })
    }

    /// Takes back the chunks whose frames were sent.
    fn complete(&mut self) {
        let n = self.socket.completion.waiting();
        self.free.extend((0..n).map(|_| self.socket.completion.pop()));
        if n > 0 {
            self.socket.completion.release();
        }
    }

    /// Has the kernel send what is in the ring.
    fn kick(&mut self) -> io::Result<()> {
        if !self.socket.tx.needs_wakeup() {
            return Ok(());
        }
        match self.socket.send() {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR)) => {
                Ok(())
            }
            done => done,
        }
    }
}

impl Device for AfXdp {
    fn name(&self) -> &str {
        &self.name
    }

    fn max_frame(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.max_frame)
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        self.ensure_open()?;
        if std::mem::take(&mut self.fault)
            && let Some(open) = &self.open
            && let Err(e) = open.socket.pending_error()
        {
            return Err(self.failed("receive", e));
        }
        let Self { open: Some(open), counters, .. } = self else { return Ok(0) };
        let (before, mut bytes) = (out.len(), 0);
        let n = open.socket.rx.waiting().min(out.remaining_capacity());
        let mut taken = 0;
        for _ in 0..n {
            let Some(mut packet) = pool.take() else { break };
            let frame = open.socket.rx.pop();
            taken += 1;
            let filled = open.socket.frame(&frame).is_some_and(|bytes| packet.fill(bytes).is_ok());
            if filled {
                if open.is_virtual && checksum::complete(packet.frame_mut()) {
                    counters.rx_checksums.add(1);
                }
                bytes += packet.len();
                out.push(packet);
            } else {
                counters.rx_oversized.add(1);
                pool.put(packet);
            }
            open.socket.fill.push(frame.addr - frame.addr % CHUNK_BYTES as u64);
        }
        if taken > 0 {
            open.socket.rx.release();
            open.socket.fill.publish();
        }
        if open.socket.fill.needs_wakeup() {
            open.socket.receive();
        }
        open.since += 1;
        if open.since >= LOOK_EVERY {
            let lost = open.socket.lost();
            counters.rx_overrun.add(lost - open.lost);
            (open.lost, open.since) = (lost, 0);
        }
        let n = out.len() - before;
        if n > 0 {
            counters.rx_frames.add(n as u64);
            counters.rx_bytes.add(bytes as u64);
        }
        Ok(n)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        self.ensure_open()?;
        let Self { open: Some(open), counters, .. } = self else { return Ok(0) };
        open.complete();
        // What the kernel did not take before goes first, and makes room.
        if open.free.len() < frames.len() {
            if let Err(e) = open.kick() {
                return Err(self.failed("send", e));
            }
            open.complete();
        }
        let longest = open.max_frame + VLAN_TAG;
        let is_bad = |packet: &Packet| !(ETHERNET_HEADER..=longest).contains(&packet.len());
        while let Some(at) = frames.iter().position(is_bad) {
            counters.tx_refused.add(1);
            pool.put(frames.remove(at));
        }
        let n = frames.len().min(open.free.len()).min(open.socket.tx.room());
        let mut bytes = 0;
        for packet in &frames[..n] {
            let address = open.free.pop().expect("so many are free");
            let len = packet.len();
            open.socket.chunk(address)[..len].copy_from_slice(packet.frame());
            open.socket.tx.push(libc::xdp_desc { addr: address, len: len as u32, options: 0 });
            bytes += len;
        }
        if n > 0 {
            open.socket.tx.publish();
            // They are in the ring, and go when the interface is back.
            self.failure = open.kick().err();
            counters.tx_frames.add(n as u64);
            counters.tx_bytes.add(bytes as u64);
            frames.drain(..n).for_each(|packet| pool.put(packet));
        }
        Ok(n)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        match &self.open {
            Some(open) if !self.fault && self.failure.is_none() && open.socket.rx.waiting() == 0 => {
                // The socket of an interface that goes down, or is deleted and made anew, is not told.
                let fd = open.beside.as_fd();
                let is_there = name_to_index(fd, &self.name).is_ok_and(|index| index == open.ifindex);
                if is_there && interface::is_up(fd, &self.name).unwrap_or(false) {
                    return Readiness::Descriptor(open.socket.as_fd());
                }
                self.failure = Some(io::Error::from_raw_os_error(libc::ENETDOWN));
                Readiness::Ready
            }
            _ => Readiness::Ready,
        }
    }

    fn woken(&mut self, fault: bool) {
        self.fault |= fault;
    }

    fn is_told(&self) -> bool {
        false
    }

    fn revive(&mut self) -> Result<(), NetError> {
        if let Some(open) = &self.open {
            let fd = open.beside.as_fd();
            let index =
                name_to_index(fd, &self.name).map_err(|e| net_error(&self.name, "find the interface", e.into()))?;
            if index == open.ifindex {
                let _ = open.socket.pending_error();
                return interface::check_up(fd, &self.name);
            }
        }
        // Another interface of the same name.
        self.reopen()
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.counters.clone()
    }
}

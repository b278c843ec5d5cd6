//! A port of DPDK: any device that EAL has a driver for, physical or virtual, as a queue for each worker.
//!
//! A burst is one call of the C shim `c/dpdk/ports.c` each way. A received frame stays in DPDK's buffer, which is lent to the
//! packet, and leaves in it by a port of DPDK: it is never copied. It is copied once if the port is of another kind, if the
//! buffer is not the frame's alone, or if many buffers are lent already: rings to send keep buffers until the next burst, and
//! no port may wait for another one's.
//!
//! **A worker polls.** DPDK's drivers wake no worker. As long as frames come, the port says that it is ready, and the worker
//! asks all its ports again. When none has come for [`BUSY`], it lets the worker sleep, at first for [`FIRST_NAP`], then
//! twice as long each time, up to [`Options::longest_nap`]. A timer ends the nap, or a frame at a port
//! of another kind, so that no port waits for a port of DPDK.
//!
//! **Interfaces of the kernel's** behind `net_af_packet` and `net_af_xdp` are looked at by name, as
//! [`af_packet`](super::af_packet) does: MTU, up or down, gone and made anew. As with [`af_xdp`](super::af_xdp), nothing
//! completes checksums that a local sender left to its hardware. Other devices are down when their driver says that they
//! have no link.
//!
//! **One EAL in a process**: [`Eal::start`]. It needs no privileges and no huge pages; devices may.
//!
//! Limits: a frame is in one buffer; tags that the device takes off come back as 802.1Q; a physical device that is pulled
//! out stays down until the process is started again.

mod eal;
mod port;
mod spec;
mod sys;

pub use eal::{Eal, EalError, EalOptions};

use crate::{Burst, Device, DeviceCounters, NetError, Packet, Pool, Readiness};
use port::Port;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use spec::Spec;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

const ETHERNET_HEADER: usize = 14;
const VLAN_TAG: usize = 4;

/// How long a worker polls after a frame before it may sleep: longer than the gap between bursts of one sender, and short
/// beside a turn of the scheduler, because workers of other switches may need the processor.
pub const BUSY: Duration = Duration::from_micros(50);
/// The first sleep after that.
pub const FIRST_NAP: Duration = Duration::from_micros(20);
/// Interval between checks whether an idle port is up.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Bursts after which one that is not idle is asked.
const LOOK_AFTER: u32 = 256;

/// How a port is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The MTU for a device. A device over a kernel interface has that interface's.
    pub mtu: u16,
    /// Bytes above the MTU that frames may have, where the device can: a shim.
    pub room: u16,
    /// Receive frames for any address, as a switch must.
    pub promiscuous: bool,
    /// Turn off, while it is open, what would make frames of an interface longer than the wire's or leave checksums incomplete.
    pub disable_offloads: bool,
    /// A directory in which to keep what was on, for [`restore_left`](super::found::restore_left) after a kill.
    pub keep: Option<PathBuf>,
    /// The longest that a frame may wait because the worker sleeps. Zero: it never sleeps.
    pub longest_nap: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let longest_nap = Duration::from_micros(200);
        Self { mtu: 1500, room: 0, promiscuous: true, disable_offloads: true, keep: None, longest_nap }
    }
}

/// The port that workers share, as long as one of them has it.
type Group = Arc<Mutex<Weak<Port>>>;

/// One worker's queue of a port. See the module.
#[derive(Debug)]
pub struct Dpdk {
    spec: Spec,
    options: Options,
    queue: u16,
    n_workers: usize,
    group: Group,
    /// None until there is such a device.
    open: Option<Open>,
    /// Findings between calls, for the next one.
    failure: Option<NetError>,
    idle: Idle,
    counters: Arc<DeviceCounters>,
}

/// State that is lost with the device. The queue comes first: it must be dropped before the port.
#[derive(Debug)]
struct Open {
    queue: sys::Queue,
    port: Arc<Port>,
    since: u32,
    looked: Instant,
    is_registered: bool,
    lost: u64,
    damaged: u64,
}

/// When the last frame came, how often the worker has slept since, and what ends a nap.
#[derive(Debug)]
struct Idle {
    since: Option<Instant>,
    naps: u32,
    timer: OwnedFd,
}

impl Dpdk {
    /// Opens a device, written as for EAL, for one worker.
    /// # Errors
    /// As for [`Dpdk::open_group`].
    pub fn open(eal: Eal, device: &str, options: &Options) -> Result<Self, NetError> {
        let mut members = Self::open_group(eal, device, options, 1)?;
        Ok(members.remove(0))
    }

    /// Opens a device for `n_workers`, a queue for each.
    /// # Errors
    /// [`NetError::BadOption`] for a device that EAL cannot use, with what it said, or one with fewer queues or a smaller
    /// MTU. Of interfaces of the kernel's also [`NetError::NoSuchInterface`], [`NetError::NotPermitted`],
    /// [`NetError::Down`], [`NetError::Io`].
    pub fn open_group(eal: Eal, device: &str, options: &Options, n_workers: usize) -> Result<Vec<Self>, NetError> {
        let mut members = Self::absent_group(eal, device, options, n_workers)?;
        members.iter_mut().try_for_each(Self::reopen)?;
        Ok(members)
    }

    /// A device whose interface is missing or down, for `n_workers`: the first use tries to open it and returns what is
    /// wrong; [`Device::revive`] opens it once it can.
    /// # Errors
    /// [`NetError::BadOption`] if no device is written so, [`NetError::Io`].
    pub fn absent_group(_: Eal, device: &str, options: &Options, n_workers: usize) -> Result<Vec<Self>, NetError> {
        let name = || device.to_owned();
        let spec = Spec::parse(device).map_err(|reason| NetError::BadOption { device: name(), reason })?;
        let group = Group::default();
        let member =
            |queue| {
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
                    .map_err(|e| NetError::Io { device: name(), action: "make a timer", source: e.into() })?;
                Ok(Self {
                    spec: spec.clone(),
                    options: options.clone(),
                    queue,
                    n_workers,
                    group: group.clone(),
                    open: None,
                    failure: None,
                    idle: Idle { since: None, naps: 0, timer },
                    counters: Arc::default(),
                })
            };
        (0..n_workers as u16).map(member).collect()
    }

    fn reopen(&mut self) -> Result<(), NetError> {
        // The port is closed with the last queue, and must be before its device is opened again.
        self.open = None;
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let port = match group.upgrade() {
            Some(port) if port.is_lost() => {
                let source = std::io::Error::other("the other workers have not given up the former interface yet");
                return Err(NetError::Down { device: self.spec.name().to_owned(), source });
            }
            Some(port) => port,
            None => {
                let port = Arc::new(Port::open(&self.spec, &self.options, self.n_workers)?);
                *group = Arc::downgrade(&port);
                port
            }
        };
        let queue = port.queues.queue(self.queue);
        let (since, looked) = (0, Instant::now());
        self.open = Some(Open { queue, port, since, looked, is_registered: false, lost: 0, damaged: 0 });
        Ok(())
    }

    /// Opens the device if it is not open yet, and returns what went wrong meanwhile.
    fn ensure_open(&mut self) -> Result<(), NetError> {
        if self.open.is_none() {
            self.reopen().inspect_err(|_| self.counters.faults.add(1))?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if !open.is_registered {
            sys::register_thread();
            open.is_registered = true;
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Looks whether the port is up, and counts what it has lost.
    fn look(&mut self) -> Result<(), NetError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        (open.since, open.looked) = (0, Instant::now());
        // The device counts for all its queues.
        if self.queue == 0 {
            let (lost, damaged) = open.queue.port().losses();
            self.counters.rx_overrun.add(lost.saturating_sub(open.lost));
            self.counters.rx_malformed.add(damaged.saturating_sub(open.damaged));
            (open.lost, open.damaged) = (lost, damaged);
        }
        open.port.check(&self.spec).inspect_err(|_| self.counters.faults.add(1))
    }
}

impl Device for Dpdk {
    fn name(&self) -> &str {
        self.spec.name()
    }

    fn max_frame(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.port.max_frame)
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        self.ensure_open()?;
        if self.open.as_ref().is_some_and(|open| open.since >= LOOK_AFTER) {
            self.look()?;
        }
        let Self { open: Some(open), counters, .. } = self else { return Ok(0) };
        open.since += 1;
        let (before, mut bytes) = (out.len(), 0);
        // A driver over a packet socket cuts off what is longer than a slot.
        let longest = open.port.max_frame + VLAN_TAG;
        let room = out.remaining_capacity().min(pool.available());
        let received = open.queue.receive(room, |frame| {
            let Some(mut packet) = pool.take() else { return };
            // One that a port of another kind cannot take in is not taken in here.
            let longest = longest.min(packet.capacity());
            if (1..=longest).contains(&frame.len()) && frame.put_into(&mut packet) {
                bytes += packet.len();
                out.push(packet);
            } else {
                counters.rx_oversized.add(1);
                pool.put(packet);
            }
        });
        let n = out.len() - before;
        if received > 0 {
            (self.idle.since, self.idle.naps) = (None, 0);
            counters.rx_frames.add(n as u64);
            counters.rx_bytes.add(bytes as u64);
        }
        Ok(n)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        self.ensure_open()?;
        // It would silently accept frames that go nowhere.
        if let Some(open) = self.open.as_ref().filter(|open| open.port.is_cheap_to_check()) {
            open.port.check(&self.spec).inspect_err(|_| self.counters.faults.add(1))?;
        }
        let Self { open: Some(open), counters, .. } = self else { return Ok(0) };
        let longest = open.port.max_frame + VLAN_TAG;
        let is_bad = |packet: &Packet| !(ETHERNET_HEADER..=longest).contains(&packet.len());
        while let Some(at) = frames.iter().position(is_bad) {
            counters.tx_refused.add(1);
            pool.put(frames.remove(at));
        }
        let (n, bytes) = open.queue.send(frames);
        if n < frames.len() {
            // Full, or without a link: the next look tells.
            open.since = LOOK_AFTER;
        }
        if n > 0 {
            counters.tx_frames.add(n as u64);
            counters.tx_bytes.add(bytes);
            frames.drain(..n).for_each(|packet| pool.put(packet));
        }
        Ok(n)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        let Some(open) = &self.open else { return Readiness::Ready };
        if self.failure.is_some() {
            return Readiness::Ready;
        }
        let now = Instant::now();
        if now - open.looked >= LOOK_EVERY
            && let Err(failure) = self.look()
        {
            self.failure = Some(failure);
            return Readiness::Ready;
        }
        let since = *self.idle.since.get_or_insert(now);
        if now - since < BUSY || self.options.longest_nap.is_zero() {
            return Readiness::Ready;
        }
        let nap = FIRST_NAP.saturating_mul(1 << self.idle.naps.min(16)).min(self.options.longest_nap);
        self.idle.naps = self.idle.naps.saturating_add(1);
        let value = Timespec { tv_sec: nap.as_secs() as i64, tv_nsec: nap.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        match rustix::time::timerfd_settime(&self.idle.timer, TimerfdTimerFlags::empty(), &once) {
            Ok(_) => Readiness::Descriptor(self.idle.timer.as_fd()),
            // Without a timer nothing would end the sleep.
            Err(_) => Readiness::Ready,
        }
    }

    fn revive(&mut self) -> Result<(), NetError> {
        self.failure = None;
        if let Some(open) = &self.open
            && !open.port.is_lost()
        {
            return open.port.check(&self.spec);
        }
        // Another interface of the same name.
        self.reopen()
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.counters.clone()
    }
}

//! A Linux network interface as a port: a packet socket with a kernel receive ring, and bursts of sends.
//!
//! **Receiving** goes through a TPACKET_V2 ring: the kernel writes each frame into a slot of shared memory, we copy it
//! once into a packet; a busy worker makes no system call. V3, the newer form, hands over *blocks* of frames when they
//! are full or a timer fires, at best every millisecond: it suits captures, not a switch. Measured over veth, one frame
//! at a time: V3 wakes poll(2) after 919 us (median), V2 after 14 us, and a path waits at every hop.
//!
//! **Sending** is one `sendmmsg` per burst, which bypasses the queueing discipline (`PACKET_QDISC_BYPASS`). A transmit
//! ring would save the copy, but lends its pages to the next holder of the frame. Over veth that is the peer's socket
//! buffer, while the slot is already reported free: reusing it would change data that a peer has not read yet.
//!
//! **Workers** share an interface through a fanout group: the kernel runs a small program over each frame that picks
//! the member by the two MAC addresses, which are first in tagged, shimmed and plain frames alike. A pair of hosts
//! stays with one worker, so its frames keep their order; one pair cannot use two workers.
//!
//! What else the kernel does to frames, and how this module handles it:
//! - it removes an 802.1Q/802.1ad tag: put back;
//! - a local sender (a veth peer) leaves TCP/UDP checksums to absent hardware: the header of virtio before each frame says so
//!   (`PACKET_VNET_HDR`), and the packet with it, or they are completed and counted in `rx_checksums` ([`Offloads`]);
//! - a local sender, or GRO, makes super-frames longer than the MTU. They do not fit a slot, so they wait in the socket's queue, from
//!   which each takes a system call, and leave by another such interface whole. Where the kernel cannot cut what the interface does not take
//!   (behind an EtherType that it does not know, or in a tunnel), they are cut here;
//! - segments of a TCP stream that come one by one and wait already are joined ([`crate::offload`]), as the kernel's GRO does for
//!   its own stack;
//! - frames that this machine sends out of the interface would be seen: ignored (`PACKET_IGNORE_OUTGOING`).
//!
//! The machine's own stack also sees the frames of the interface: give a port no addresses (nor IPv6 ones:
//! `ip link set IF addrgenmode none`), so that it neither answers nor sends anything.
//!
//! An interface that goes down or is deleted gives [`NetError::Down`]; [`Device::revive`] finds it again by name, even
//! after it was deleted and created again. A missing one can be waited for: [`AfPacket::absent_group`].
//!
//! **A socket may outlive the process**, with a [`Handover`]: another process keeps it, the kernel fills its ring meanwhile, and the next
//! process takes what waits there, in order, and forwards nothing twice. What waited longer than [`Options::max_wait`] is dropped
//! and counted in `rx_stale`. Frames that were copied out of the ring and not sent when a process was killed are lost: a burst.
//!
//! Needs CAP_NET_RAW, and CAP_NET_ADMIN for promiscuous mode. Limits: no hardware timestamps; memory of a ring is
//! `ring_frames` * 2 KiB for MTUs up to 1900 bytes.

mod handover;
mod receive;
mod ring;
mod sys;
mod transmit;

use super::found::Found;
use super::interface::{self, net_error};
pub use super::interface::{disable_offloads, driver_of, enable_gro, joining_offloads};
use crate::{Burst, Device, DeviceCounters, NetError, Pool, Readiness};
pub use handover::{Handover, Vault, inherited};
use receive::Judgement;
use ring::Ring;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use transmit::Whole;

const ETHERNET_HEADER: usize = 14;
const VLAN_TAG: usize = 4;
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// Of super-frames that wait.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Handling of the work that senders leave to hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offloads {
    /// Packets say what is left of them ([`Packet::offload`]), and the interface is left as it is. For a [`Pool`] with large
    /// packets.
    Carry,
    /// The interface's own are turned off while it is open. A checksum is completed when a frame comes, and super-frames are dropped and
    /// counted in `rx_oversized`.
    TurnOff,
}

/// How an interface is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Fewest frames that the receive ring holds.
    pub ring_frames: usize,
    /// Receive frames for any address, as a switch must.
    pub promiscuous: bool,
    /// Handling of super-frames and of checksums that are left to hardware.
    pub offloads: Offloads,
    /// The keeper of sockets for the next process, which also has those of the previous one.
    pub handover: Option<Arc<Handover>>,
    /// How long a frame may have waited for this process in a ring of the one before it, by the system's clock. One that is too old is
    /// worse than a lost one: its sender has sent it again, or has gone elsewhere.
    pub max_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let (handover, max_wait) = (None, Duration::from_secs(1));
        Self { ring_frames: 1024, promiscuous: true, offloads: Offloads::Carry, handover, max_wait }
    }
}

/// The fanout group that the workers of one interface share.
type Group = Arc<Mutex<Membership>>;

/// The number of a group and its interface, both 0 until the first worker has joined. An interface that is created
/// again under the same name gets a new group: the old one ends when its last socket is closed.
#[derive(Debug, Default)]
struct Membership {
    id: u16,
    ifindex: u32,
}

/// One worker's share of an interface. See the module.
#[derive(Debug)]
pub struct AfPacket {
    name: String,
    /// Which worker it is, and of how many.
    share: (usize, usize),
    options: Options,
    group: Option<Group>,
    /// None until there is such an interface.
    open: Option<Open>,
    fault: bool,
    /// What waits for this process, until it has been received.
    backlog: Option<Backlog>,
    /// Whether the burst received last is of it.
    has_waited: bool,
    counters: Arc<DeviceCounters>,
}

/// Frames that came before this process looked.
#[derive(Debug)]
struct Backlog {
    /// When it looked first; unknown until then.
    looked: Option<Duration>,
    /// So many may be left.
    n_left: usize,
}

/// State that is lost with the interface.
#[derive(Debug)]
struct Open {
    socket: OwnedFd,
    ring: Ring,
    max_frame: usize,
    carries: bool,
    /// Whether the first frame in the socket's queue may be of another slot than the first one whose frame is there.
    is_unsure: bool,
    whole: Whole,
    /// Turned on again when this is dropped.
    found: Option<Found>,
}

impl AfPacket {
    /// Opens an interface of this thread's network namespace for one worker.
    /// # Errors
    /// [`NetError::NoSuchInterface`], [`NetError::NotPermitted`], [`NetError::Down`] if the interface is not up,
    /// [`NetError::BadOption`], [`NetError::Io`].
    pub fn open(interface: &str, options: &Options) -> Result<Self, NetError> {
        Self::open_group(interface, options, 1).map(|mut members| members.remove(0))
    }

    /// Opens an interface for `n_workers`, each with its own ring, and every frame in exactly one ring.
    /// # Errors
    /// As for [`AfPacket::open`].
    pub fn open_group(interface: &str, options: &Options, n_workers: usize) -> Result<Vec<Self>, NetError> {
        if let Some(members) = options.handover.as_ref().and_then(|left| left.take_over(interface, options, n_workers))
        {
            return Ok(members);
        }
        let mut members = Self::absent_group(interface, options, n_workers);
        members.iter_mut().try_for_each(Self::open_anew)?;
        // Kept once all are open: a part of a group is useless.
        members.iter().for_each(Self::keep);
        Ok(members)
    }

    /// An interface that is missing or down, for `n_workers`: the first use tries to open it and returns what is wrong;
    /// [`Device::revive`] opens it once it can.
    pub fn absent_group(interface: &str, options: &Options, n_workers: usize) -> Vec<Self> {
        let group = (n_workers > 1).then(Group::default);
        (0..n_workers).map(|i| Self::absent(interface, (i, n_workers), options, group.clone())).collect()
    }

    /// Counts in these from now on: those of a device in whose place this one comes.
    pub fn count_in(&mut self, counters: Arc<DeviceCounters>) {
        self.counters = counters;
    }

    fn absent(interface: &str, share: (usize, usize), options: &Options, group: Option<Group>) -> Self {
        let (name, options) = (interface.to_owned(), options.clone());
        let (open, fault, backlog, has_waited, counters) = (None, false, None, false, Arc::default());
        Self { name, share, options, group, open, fault, backlog, has_waited, counters }
    }

    /// Goes on with what the process before had open.
    fn resume(&mut self, open: Open) {
        self.counters.rx_overrun.add(open.overruns());
        self.backlog = Some(Backlog { looked: None, n_left: open.ring.n_slots() });
        self.open = Some(open);
    }

    fn open_anew(&mut self) -> Result<(), NetError> {
        // Before what is opened looks at them.
        self.open.iter_mut().for_each(|open| open.found = None);
        self.open = Some(Open::new(&self.name, &self.options, self.group.as_ref())?);
        self.backlog = None;
        Ok(())
    }

    /// Has the socket kept for the next process, in the place of one that was kept before.
    fn keep(&self) {
        if let (Some(handover), Some(open)) = (&self.options.handover, &self.open) {
            handover.keep(&self.name, self.share, open.socket.as_fd());
        }
    }

    fn reopen(&mut self) -> Result<(), NetError> {
        self.open_anew()?;
        self.keep();
        Ok(())
    }

    /// Receives what waited for this process; 0 if nothing is left of it.
    #[cold]
    fn receive_waiting(&mut self, pool: &mut Pool, out: &mut Burst) -> usize {
        let Self { open: Some(open), counters, backlog, options, .. } = self else { return 0 };
        let Some(Backlog { looked, n_left }) = backlog else { return 0 };
        let now = now();
        let looked = *looked.get_or_insert(now);
        let oldest = now.saturating_sub(options.max_wait);
        let mut is_over = false;
        let (n, is_drained) = open.receive_each(pool, out, counters, false, |slot| {
            if slot.came >= looked || *n_left == 0 {
                is_over = true;
                return Judgement::Leave;
            }
            *n_left -= 1;
            if slot.came < oldest {
                counters.rx_stale.add(1);
                return Judgement::Drop;
            }
            Judgement::Take
        });
        counters.rx_waited.add(n as u64);
        if is_over || is_drained {
            *backlog = None;
        }
        n
    }

    /// Opens the interface if it is not open yet.
    fn ensure_open(&mut self) -> Result<(), NetError> {
        if self.open.is_none() {
            self.reopen().inspect_err(|_| self.counters.faults.add(1))?;
        }
        Ok(())
    }

    fn failed(&self, action: &'static str, source: io::Error) -> NetError {
        self.counters.faults.add(1);
        net_error(&self.name, action, source)
    }
}

/// The system's clock, by which the kernel stamps frames.
fn now() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the kernel stamps frames by this clock, which may be set")]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Open {
    /// The number of frames that the kernel had no slot for since the last call.
    fn overruns(&self) -> u64 {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let read = sys::get_option(self.socket.as_fd(), libc::PACKET_STATISTICS, &mut stats);
        read.map_or(0, |()| stats.tp_drops.into())
    }

    /// Returns and clears the error that is pending on the socket.
    fn pending_error(&self) -> io::Result<()> {
        rustix::net::sockopt::socket_error(&self.socket)??;
        Ok(())
    }

    /// The interface as it is to be. Its number, its longest frame without a tag, and the offloads that were turned off.
    fn prepare(fd: BorrowedFd<'_>, name: &str, options: &Options) -> Result<(u32, usize, Option<Found>), NetError> {
        let fail = |action| move |e| net_error(name, action, e);
        let ifindex =
            rustix::net::netdevice::name_to_index(fd, name).map_err(|e| fail("find the interface")(e.into()))?;
        interface::check_up(fd, name)?;
        let mut found = None;
        if options.offloads == Offloads::TurnOff {
            // Offloads that were on are turned on again when it is closed.
            found = Some(Found::turn_off(fd, name, None)?);
        }
        let max_frame = interface::mtu(fd, name).map_err(fail("read the MTU"))? + ETHERNET_HEADER;
        if max_frame + VLAN_TAG > crate::MAX_FRAME_LIMIT {
            let reason = format!(
                "its MTU is {}, but buffers have room for {}; lower the MTU",
                max_frame - 14,
                crate::MAX_FRAME_LIMIT - 18
            );
            return Err(NetError::BadOption { device: name.to_owned(), reason });
        }
        Ok((ifindex, max_frame, found))
    }

    fn new(name: &str, options: &Options, group: Option<&Group>) -> Result<Self, NetError> {
        let fail = |action| move |e| net_error(name, action, e);
        let socket = sys::socket().map_err(fail("open a packet socket"))?;
        let fd = socket.as_fd();
        let (ifindex, max_frame, found) = Self::prepare(fd, name, options)?;
        // These settings are passed on to the next process in a kept socket: `ring::VERSION`.
        let on: libc::c_int = 1;
        sys::set_option(fd, libc::PACKET_IGNORE_OUTGOING, &on).map_err(fail("ignore outgoing frames"))?;
        sys::set_option(fd, libc::PACKET_QDISC_BYPASS, &on).map_err(fail("bypass the queueing discipline"))?;
        // The unprivileged form is capped at net.core.wmem_max; a smaller buffer only means smaller bursts.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(fd, SEND_BUFFER_BYTES)
            .or_else(|_| rustix::net::sockopt::set_socket_send_buffer_size(fd, SEND_BUFFER_BYTES));
        sys::set_option(fd, libc::PACKET_VNET_HDR, &on).map_err(fail("ask for headers of virtio"))?;
        let carries = options.offloads == Offloads::Carry;
        if carries {
            // The privileged form is not capped; with less, super-frames are lost sooner.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(fd, RECEIVE_BUFFER_BYTES)
                .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(fd, RECEIVE_BUFFER_BYTES));
            sys::set_option(fd, libc::PACKET_COPY_THRESH, &on).map_err(fail("ask for long frames"))?;
        }
        let ring = Ring::new(fd, options.ring_frames.max(1), max_frame + VLAN_TAG).map_err(fail("set up the ring"))?;
        if options.promiscuous {
            interface::receive_all(fd, ifindex).map_err(fail("enter promiscuous mode"))?;
        }
        match group {
            None => sys::bind(fd, ifindex).map_err(fail("bind"))?,
            Some(group) => {
                // A socket must be bound to join the group. Until then it would receive all frames, including those of
                // the other members, so it takes none before it has joined.
                sys::refuse_all(fd).map_err(fail("attach a filter"))?;
                sys::bind(fd, ifindex).map_err(fail("bind"))?;
                join(&socket, ifindex, group).map_err(fail("join the fanout group"))?;
                sys::refuse_none(fd).map_err(fail("detach the filter"))?;
            }
        }
        Ok(Self { socket, ring, max_frame, carries, is_unsure: false, whole: Whole::default(), found })
    }
}

/// Joins the group of an interface's workers; the first one asks the kernel for a free number.
fn join(socket: &OwnedFd, ifindex: u32, group: &Group) -> io::Result<()> {
    const UNIQUE: u32 = libc::PACKET_FANOUT_FLAG_UNIQUEID;
    let fd = socket.as_fd();
    let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
    let kind = libc::PACKET_FANOUT_CBPF;
    if group.ifindex == ifindex {
        sys::set_option(fd, libc::PACKET_FANOUT, &(kind << 16 | u32::from(group.id)))?;
    } else {
        sys::set_option(fd, libc::PACKET_FANOUT, &((kind | UNIQUE) << 16))?;
        let mut answer: libc::c_uint = 0;
        sys::get_option(fd, libc::PACKET_FANOUT, &mut answer)?;
        *group = Membership { id: answer as u16, ifindex };
    }
    sys::set_fanout_program(fd, &mut fanout_program())
}

/// hash = (last 4 bytes of the destination ^ last 4 bytes of the source) * odd constant, its high half.
/// The kernel takes it modulo the number of members. Offsets are from the link-layer header.
fn fanout_program() -> [libc::sock_filter; 7] {
    let op = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let from_header = |offset: i32| (libc::SKF_LL_OFF + offset) as u32;
    [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, from_header(2)),
        op(libc::BPF_MISC | libc::BPF_TAX, 0),
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, from_header(8)),
        op(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        op(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, 0x9e37_79b1),
        op(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        op(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

impl Device for AfPacket {
    fn name(&self) -> &str {
        &self.name
    }

    fn max_frame(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.max_frame)
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        self.ensure_open()?;
        let fault = std::mem::take(&mut self.fault);
        let Self { open: Some(open), .. } = self else { return Ok(0) };
        if fault && let Err(e) = open.pending_error() {
            return Err(self.failed("receive", e));
        }
        if self.backlog.is_some() {
            let n = self.receive_waiting(pool, out);
            self.has_waited = n > 0;
            if n > 0 {
                return Ok(n);
            }
        }
        self.has_waited = false;
        let Self { open: Some(open), counters, .. } = self else { return Ok(0) };
        Ok(open.receive(pool, out, counters))
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        self.ensure_open()?;
        let Self { open: Some(open), counters, name, .. } = self else { return Ok(0) };
        let n_refused = counters.tx_refused.get();
        let outcome = open.send(pool, frames, counters);
        // The MTU may be another than when it was opened.
        if counters.tx_refused.get() != n_refused
            && let Ok(mtu) = interface::mtu(open.socket.as_fd(), name)
        {
            open.max_frame = mtu + ETHERNET_HEADER;
        }
        match outcome {
            (0, Some(error)) => Err(self.failed("send", error)),
            // The number sent is returned first; the next call gets the error again.
            (sent, _) => Ok(sent),
        }
    }

    fn takes_offloads(&self) -> bool {
        self.options.offloads == Offloads::Carry
    }

    fn readiness(&mut self) -> Readiness<'_> {
        match &self.open {
            Some(open) if !self.fault && !open.ring.is_ready() => Readiness::Descriptor(open.socket.as_fd()),
            _ => Readiness::Ready,
        }
    }

    fn woken(&mut self, fault: bool) {
        self.fault |= fault;
    }

    fn has_waited(&self) -> bool {
        self.has_waited
    }

    fn revive(&mut self) -> Result<(), NetError> {
        if let Some(open) = &self.open {
            let fd = open.socket.as_fd();
            let index = rustix::net::netdevice::name_to_index(fd, &self.name)
                .map_err(|e| net_error(&self.name, "find the interface", e.into()))?;
            if sys::bound_ifindex(fd).is_ok_and(|bound| bound == index as i32) {
                // The same interface: the kernel re-attaches the socket itself once the interface is up. The error of
                // its going down may still be pending on the socket, and would look like another failure.
                let _ = open.pending_error();
                return interface::check_up(fd, &self.name);
            }
        }
        // Another interface of the same name: a socket stays with the old one, so a new one is opened.
        self.reopen()
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.counters.clone()
    }
}

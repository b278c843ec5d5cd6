//! The trait that every source and sink of frames implements.

use crate::{Burst, DeviceCounters, Pool};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Why a device could not send or receive frames.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The interface is down or missing. The worker goes on with its other ports and calls [`Device::revive`] from time
    /// to time.
    #[error("{device} is down or missing ({source}); it is used again as soon as it is up (ip link set {device} up)")]
    Down {
        /// Name of the device.
        device: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The other end of an in-memory port was dropped.
    #[error("the other end of {device} is closed")]
    Closed {
        /// Name of the device.
        device: String,
    },
    /// A file is not a capture, or is damaged.
    #[error("{device}: record {record} cannot be read: {reason}")]
    Malformed {
        /// Name of the device.
        device: String,
        /// Number of the record, from 1; 0 is the file header.
        record: u64,
        /// The reason.
        reason: String,
    },
    /// The interface does not exist.
    #[error("there is no network interface {device}; `ip link` lists the interfaces of this network namespace")]
    NoSuchInterface {
        /// Name asked for.
        device: String,
    },
    /// The process may not do this.
    #[error("{action} on {device} needs CAP_NET_RAW and CAP_NET_ADMIN: run as root, or grant them with setcap")]
    NotPermitted {
        /// Name of the device.
        device: String,
        /// The action that was tried.
        action: &'static str,
    },
    /// A size or an option that the device cannot have.
    #[error("{device}: {reason}")]
    BadOption {
        /// Name of the device.
        device: String,
        /// Which one, and what would be valid.
        reason: String,
    },
    /// What all devices of a driver need cannot be had.
    #[error("{reason}")]
    Driver {
        /// Why, and what to do.
        reason: String,
    },
    /// Any other failure of the system.
    #[error("{action} on {device}: {source}")]
    Io {
        /// Name of the device.
        device: String,
        /// The action that was tried.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl NetError {
    /// Whether the device may work again later, so that the port is kept and revived.
    pub fn is_transient(&self) -> bool {
        matches!(self, NetError::Down { .. } | NetError::NoSuchInterface { .. })
    }
}

/// How a worker can wait for a device.
#[derive(Debug)]
pub enum Readiness<'a> {
    /// Frames are waiting already: do not sleep.
    Ready,
    /// Sleep in poll(2) until this descriptor is readable.
    Descriptor(BorrowedFd<'a>),
    /// No frame will ever come again (the end of a capture).
    Exhausted,
}

/// A source and sink of Ethernet frames, used by one thread.
///
/// # How a worker drives it
/// ```text
///  loop over the ports:  rx_burst ──► parse, look up, act ──► tx_burst on the ports of exit
///  nothing received:     readiness() of every port, poll(2), woken() ──► again
///  Err(Down):            count it, skip the port, revive() every second
/// ```
///
/// # Write your own backend
/// 1. **Receive.** Take empty packets from `pool` ([`Pool::take`]), write a frame into each ([`Packet::fill`], or
///    [`Packet::resize`] and then [`Packet::frame_mut`] when the frame comes in pieces; [`Packet::borrow`] when it may
///    stay where it is), push them to `out`. Return
///    how many. Stop at the room left in `out`, at an empty pool, or when no frame waits. Never block, never allocate.
///    A frame is what is on the wire from the destination address to the end of the payload: no preamble, no FCS; a
///    VLAN tag that the driver removed is put back.
/// 2. **Transmit.** Send frames from the front of `frames`, give their packets back to `pool`, and return how many were
///    sent. Frames that cannot be sent *now* (queue full) stay in `frames`: the worker counts and drops them. Frames
///    that can *never* be sent (too long) are dropped and counted in `tx_refused` here, and are not in the number
///    returned. Order is kept. After a failure in the middle the number sent comes first, the error at the next call.
/// 3. **Conserve buffers.** `pool.available()` plus the packets in bursts and in your own queues is constant. A
///    backend that keeps packets (an in-memory ring) returns an empty one for each that it keeps.
/// 4. **Sleep.** Before it sleeps the worker calls [`Device::readiness`] on every port, and [`Device::woken`] after.
///    A frame that arrives between the two must wake it: either the descriptor is level-triggered (a socket), or
///    `readiness` arms the wake-up first and looks at the queue after (a ring and an eventfd).
/// 5. **Fail typed.** A vanished interface is [`NetError::Down`]; the worker survives it. Frames that are in `out`
///    already are kept: return them first, and the error at the next call.
/// 6. **Count** in [`DeviceCounters`]; the status thread reads them while you write.
///
/// A complete backend, which returns every frame to where it came from:
/// ```
/// use fibula_netio::{Burst, Device, DeviceCounters, NetError, Packet, Pool, Readiness};
/// use std::sync::Arc;
///
/// /// Hands out what was sent to it, in order.
/// struct Echo { queue: std::collections::VecDeque<Packet>, counters: Arc<DeviceCounters> }
///
/// impl Device for Echo {
///     fn name(&self) -> &str { "echo" }
///     fn max_frame(&self) -> usize { 1514 }
///     fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
///         let before = out.len();
///         while !out.is_full() && let Some(packet) = self.queue.pop_front() {
///             self.counters.rx_frames.add(1);
///             self.counters.rx_bytes.add(packet.len() as u64);
///             out.push(packet);
///         }
///         let _ = pool; // its packets came from a pool when they were sent
///         Ok(out.len() - before)
///     }
///     fn tx_burst(&mut self, _pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
///         let room = 64 - self.queue.len();
///         let n = frames.len().min(room);
///         for packet in frames.drain(..n) {
///             self.counters.tx_frames.add(1);
///             self.counters.tx_bytes.add(packet.len() as u64);
///             self.queue.push_back(packet);
///         }
///         Ok(n)
///     }
///     fn readiness(&mut self) -> Readiness<'_> {
///         if self.queue.is_empty() { Readiness::Exhausted } else { Readiness::Ready }
///     }
///     fn counters(&self) -> Arc<DeviceCounters> { self.counters.clone() }
/// }
///
/// let mut echo = Echo { queue: Default::default(), counters: Default::default() };
/// let (mut pool, mut burst) = (Pool::new(8, 1514), Burst::new());
/// let mut packet = pool.take().unwrap();
/// packet.fill(b"hello, this is a frame")?;
/// burst.push(packet);
/// assert_eq!(echo.tx_burst(&mut pool, &mut burst).unwrap(), 1);
/// assert_eq!(echo.rx_burst(&mut pool, &mut burst).unwrap(), 1);
/// assert_eq!(burst[0].frame(), b"hello, this is a frame");
/// # Ok::<(), fibula_netio::FrameTooLong>(())
/// ```
///
/// [`Packet::borrow`]: crate::Packet::borrow
/// [`Packet::fill`]: crate::Packet::fill
/// [`Packet::resize`]: crate::Packet::resize
/// [`Packet::frame_mut`]: crate::Packet::frame_mut
pub trait Device: Send {
    /// Name for people: the interface, the file.
    fn name(&self) -> &str;

    /// The longest frame that can be sent, in bytes: MTU and Ethernet header, without VLAN tags; 0 as long as there is
    /// no interface to ask.
    fn max_frame(&self) -> usize;

    /// Receives frames into the room left in `out`; see the guide above.
    /// # Errors
    /// [`NetError::Down`] and similar; `out` is then unchanged, and `pool` has all other packets.
    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError>;

    /// Sends frames from the front of `frames`; see the guide above.
    /// # Errors
    /// [`NetError::Down`] and similar; none was sent, and all but those refused for good are still in `frames`.
    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError>;

    /// What to wait for before the next frame; called just before the thread sleeps.
    fn readiness(&mut self) -> Readiness<'_>;

    /// Tells the device that the sleep is over; `fault` says that poll(2) reported an error on its descriptor, which
    /// the next `rx_burst` then returns.
    fn woken(&mut self, fault: bool) {
        let _ = fault;
    }

    /// Whether the frames received last came before this process looked: it was not there, and they waited. They say what was so
    /// then. A device that says no once for frames says it for all that follow.
    fn has_waited(&self) -> bool {
        false
    }

    /// Whether a failure ends a sleep on the descriptor. Of a device that is not told, the worker asks
    /// [`Device::readiness`] every second.
    fn is_told(&self) -> bool {
        true
    }

    /// Whether what is sent now leaves by anything. A device that is several may have none of them to send by, and still receive.
    fn leads_on(&self) -> bool {
        true
    }

    /// Whether it sends frames of which something is [left to hardware](crate::offload::Offload). To one that does not,
    /// [`transmit`](crate::offload::transmit) gives segments and complete frames.
    fn takes_offloads(&self) -> bool {
        false
    }

    /// Tries to restore a failed device: reopens an interface that was deleted and created again.
    /// # Errors
    /// The reason why it is still unusable.
    fn revive(&mut self) -> Result<(), NetError> {
        Ok(())
    }

    /// The device's counts.
    fn counters(&self) -> Arc<DeviceCounters>;
}

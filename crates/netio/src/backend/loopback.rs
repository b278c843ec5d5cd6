//! In-memory ports in pairs: what is sent into one end comes out of the other, in order, and nowhere else.
//!
//! ```text
//!              frames  ──►  ring  ──►
//!   end a                                 end b        and the same in the other direction
//!              empties ◄──  ring  ◄──
//! ```
//! Cost: one move of a 24-byte handle into the ring and one out of it; the bytes of a frame do not move. Before a
//! receiver takes a frame, it returns an empty buffer. So a sender that finds room for a frame also finds an empty
//! buffer in exchange, every pool keeps its size, and nothing is ever allocated.
//!
//! With both ends in one thread it is deterministic. Between threads the rings are wait-free
//! single-producer single-consumer queues (`rtrb`); a receiver that sleeps is woken through an eventfd, which costs a
//! sender one fence per burst, and a system call only if the receiver sleeps.
//! Limits: a full ring refuses frames, as a NIC's queue does.

use crate::{Burst, Device, DeviceCounters, NetError, Packet, Pool, Readiness};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Sizes of a pair.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Frames that one direction holds before it refuses more.
    pub ring_frames: usize,
    /// Longest frame sent, in bytes, from the destination address to the end of the payload.
    pub max_frame: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { ring_frames: 256, max_frame: 2048 }
    }
}

/// Wakes the receiver of one direction.
#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    armed: AtomicBool,
}

impl Bell {
    fn new(device: &str) -> Result<Arc<Self>, NetError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| NetError::Io {
            device: device.to_owned(),
            action: "eventfd",
            source: e.into(),
        })?;
        Ok(Arc::new(Self { fd, armed: AtomicBool::new(false) }))
    }

    /// Called after frames were published. The fence orders that publication before the read of `armed`. The sleeper
    /// does it in reverse (arms, fence, checks the ring), so one of the two sees the other.
    fn ring_if_armed(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed) {
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

/// One end of a pair.
#[derive(Debug)]
pub struct Loopback {
    name: String,
    max_frame: usize,
    rx: Consumer<Packet>,
    rx_empties: Producer<Packet>,
    tx: Producer<Packet>,
    tx_empties: Consumer<Packet>,
    own_bell: Arc<Bell>,
    /// After the rings, since fields drop in this order: the peer is rung when it can see that the end is closed.
    peer_bell: LastRing,
    counters: Arc<DeviceCounters>,
}

/// Rings once more when dropped: a sleeping peer would wait forever for frames from a closed end.
#[derive(Debug)]
struct LastRing(Arc<Bell>);

impl Drop for LastRing {
    fn drop(&mut self) {
        self.0.ring_if_armed();
    }
}

/// Creates two joined ends.
/// # Errors
/// [`NetError::BadOption`] for a ring of no frames or frames above the limit; [`NetError::Io`] if the process is out
/// of descriptors (a pair needs two).
pub fn pair(name_a: &str, name_b: &str, settings: &Settings) -> Result<(Loopback, Loopback), NetError> {
    let bad = |reason: String| NetError::BadOption { device: name_a.to_owned(), reason };
    if settings.ring_frames == 0 {
        return Err(bad("a ring of 0 frames carries nothing; give it at least 1".into()));
    }
    if settings.max_frame > crate::MAX_FRAME_LIMIT {
        return Err(bad(format!(
            "max_frame is {} bytes; the largest is {}",
            settings.max_frame,
            crate::MAX_FRAME_LIMIT
        )));
    }
    let direction = || {
        let (frames_in, frames_out) = RingBuffer::new(settings.ring_frames);
        let (mut empties_in, empties_out) = RingBuffer::new(settings.ring_frames);
        for _ in 0..settings.ring_frames {
            empties_in.push(Packet::new(settings.max_frame)).expect("the ring has one place a frame");
        }
        (frames_in, frames_out, empties_in, empties_out)
    };
    let (a_tx, b_rx, b_rx_empties, a_tx_empties) = direction();
    let (b_tx, a_rx, a_rx_empties, b_tx_empties) = direction();
    let (bell_a, bell_b) = (Bell::new(name_a)?, Bell::new(name_b)?);
    Ok((
        Loopback {
            name: name_a.to_owned(),
            max_frame: settings.max_frame,
            rx: a_rx,
            rx_empties: a_rx_empties,
            tx: a_tx,
            tx_empties: a_tx_empties,
            own_bell: bell_a.clone(),
            peer_bell: LastRing(bell_b.clone()),
            counters: Arc::default(),
        },
        Loopback {
            name: name_b.to_owned(),
            max_frame: settings.max_frame,
            rx: b_rx,
            rx_empties: b_rx_empties,
            tx: b_tx,
            tx_empties: b_tx_empties,
            own_bell: bell_b,
            peer_bell: LastRing(bell_a),
            counters: Arc::default(),
        },
    ))
}

impl Loopback {
    /// Drops the frames that are too long for the peer, as an interface does.
    #[cold]
    fn refuse_long(&self, pool: &mut Pool, frames: &mut Burst) {
        for packet in std::mem::take(frames) {
            if packet.len() > self.max_frame {
                self.counters.tx_refused.add(1);
                pool.put(packet);
            } else {
                frames.push(packet);
            }
        }
    }

    fn closed(&self) -> NetError {
        self.counters.faults.add(1);
        NetError::Closed { device: self.name.clone() }
    }

    /// Sends a copy of one frame, for tests and for hosts that have no worker. Returns false when the ring is full.
    /// # Errors
    /// [`NetError::Closed`]; [`NetError::BadOption`] for a frame longer than the settings allow.
    pub fn send(&mut self, frame: &[u8]) -> Result<bool, NetError> {
        if self.tx.is_abandoned() {
            return Err(self.closed());
        }
        if frame.len() > self.max_frame {
            let reason = format!("a frame has {} bytes; the longest may have {}", frame.len(), self.max_frame);
            return Err(NetError::BadOption { device: self.name.clone(), reason });
        }
        if self.tx.is_full() {
            return Ok(false);
        }
        let Ok(mut packet) = self.tx_empties.pop() else { return Ok(false) };
        if packet.fill(frame).is_err() {
            // A buffer from a smaller pool came back: it is replaced, once.
            packet = Packet::new(self.max_frame);
            packet.fill(frame).expect("the buffer was made for the longest frame");
        }
        self.counters.tx_frames.add(1);
        self.counters.tx_bytes.add(frame.len() as u64);
        self.tx.push(packet).expect("the ring was not full and has one producer");
        self.peer_bell.0.ring_if_armed();
        Ok(true)
    }

    /// Receives one frame and hands it to `use_frame`, for tests and for hosts that have no worker. None when no frame
    /// waits.
    /// # Errors
    /// [`NetError::Closed`] when the other end is gone and everything it sent was received.
    pub fn recv<R>(&mut self, use_frame: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, NetError> {
        let Ok(packet) = self.rx.pop() else {
            return if self.rx.is_abandoned() && self.rx.is_empty() { Err(self.closed()) } else { Ok(None) };
        };
        self.counters.rx_frames.add(1);
        self.counters.rx_bytes.add(packet.len() as u64);
        let result = use_frame(packet.frame());
        // Here the frame is taken before its buffer is returned: a sender may find room for a frame but no empty
        // buffer, and treats the ring as full for that moment.
        let _ = self.rx_empties.push(packet);
        Ok(Some(result))
    }
}

impl Device for Loopback {
    fn name(&self) -> &str {
        &self.name
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        let n = self.rx.slots().min(out.remaining_capacity()).min(pool.available());
        if n == 0 {
            // `is_abandoned` is checked first: a frame sent just before the end closed is still received.
            return if self.rx.is_abandoned() && self.rx.is_empty() { Err(self.closed()) } else { Ok(0) };
        }
        let Ok(empties) = self.rx_empties.write_chunk_uninit(n) else { return Ok(0) };
        empties.fill_from_iter(std::iter::from_fn(|| pool.take()).take(n));
        let mut bytes = 0;
        for packet in self.rx.read_chunk(n).expect("as many frames were counted").into_iter() {
            bytes += packet.len();
            out.push(packet);
        }
        self.counters.rx_frames.add(n as u64);
        self.counters.rx_bytes.add(bytes as u64);
        Ok(n)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        if self.tx.is_abandoned() {
            return Err(self.closed());
        }
        if frames.iter().any(|packet| packet.len() > self.max_frame) {
            self.refuse_long(pool, frames);
        }
        let n = self.tx.slots().min(frames.len()).min(self.tx_empties.slots());
        if n == 0 {
            return Ok(0);
        }
        // Empties are taken before frames are published, so that the receiver finds room for those it returns.
        for packet in self.tx_empties.read_chunk(n).expect("as many empties were counted") {
            pool.put(packet);
        }
        let mut bytes = 0;
        let places = self.tx.write_chunk_uninit(n).expect("as many places were counted");
        places.fill_from_iter(frames.drain(..n).inspect(|packet| bytes += packet.len()));
        self.peer_bell.0.ring_if_armed();
        self.counters.tx_frames.add(n as u64);
        self.counters.tx_bytes.add(bytes as u64);
        Ok(n)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.own_bell.arm();
        // A closed end is Ready, since the next burst reports it: the caller may have seen an open and empty ring, and
        // the peer that closed since then did not ring a bell that was not armed.
        if !self.rx.is_empty() || self.rx.is_abandoned() {
            Readiness::Ready
        } else {
            Readiness::Descriptor(self.own_bell.fd.as_fd())
        }
    }

    fn woken(&mut self, _fault: bool) {
        self.own_bell.disarm();
    }

    /// # Errors
    /// [`NetError::Closed`] if the other end is closed: it cannot reopen.
    fn revive(&mut self) -> Result<(), NetError> {
        if self.rx.is_abandoned() { Err(NetError::Closed { device: self.name.clone() }) } else { Ok(()) }
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.counters.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(ring_frames: usize) -> (Loopback, Loopback) {
        pair("a", "b", &Settings { ring_frames, max_frame: 1514 }).unwrap()
    }

    #[test]
    fn frames_come_out_of_the_other_end_in_order_and_unmoved() {
        let (mut a, mut b) = ends(64);
        let (mut pool_a, mut pool_b) = (Pool::new(32, 1514), Pool::new(32, 1514));
        let mut burst = Burst::new();
        let mut addresses = vec![];
        for i in 0..10u8 {
            let mut packet = pool_a.take().unwrap();
            packet.fill(&[i; 60]).unwrap();
            addresses.push(packet.frame().as_ptr());
            burst.push(packet);
        }
        assert_eq!(a.tx_burst(&mut pool_a, &mut burst).unwrap(), 10);
        assert_eq!(b.rx_burst(&mut pool_b, &mut burst).unwrap(), 10);
        for (i, packet) in burst.iter().enumerate() {
            assert_eq!(packet.frame(), &[i as u8; 60]);
            assert_eq!(packet.frame().as_ptr(), addresses[i], "the bytes stayed where they were");
        }
        assert_eq!(a.rx_burst(&mut pool_a, &mut Burst::new()).unwrap(), 0, "nothing comes back");
        assert_eq!(a.counters().snapshot().tx_bytes, 600);
        assert_eq!(b.counters().snapshot().rx_frames, 10);
    }

    #[test]
    fn pools_keep_their_size_whatever_the_traffic() {
        let (mut a, mut b) = ends(16);
        let (mut pool_a, mut pool_b) = (Pool::new(40, 1514), Pool::new(40, 1514));
        let mut burst = Burst::new();
        for round in 0..1000usize {
            for i in 0..round % 32 {
                let mut packet = pool_a.take().unwrap();
                packet.fill(&[i as u8; 60]).unwrap();
                burst.push(packet);
            }
            a.tx_burst(&mut pool_a, &mut burst).unwrap();
            pool_a.put_all(&mut burst);
            assert_eq!(pool_a.available(), 40);
            if round % 3 == 0 {
                b.rx_burst(&mut pool_b, &mut burst).unwrap();
                pool_b.put_all(&mut burst);
                assert_eq!(pool_b.available(), 40);
            }
        }
    }

    #[test]
    fn a_full_ring_refuses_and_keeps_the_rest_in_order() {
        let (mut a, mut b) = ends(4);
        let mut pool = Pool::new(64, 1514);
        let mut burst: Burst = (0..6u8).map(|i| Packet::from_frame(&[i; 60])).collect();
        assert_eq!(a.tx_burst(&mut pool, &mut burst).unwrap(), 4);
        assert_eq!(burst.len(), 2);
        assert_eq!(burst[0].frame()[0], 4);
        assert!(!a.send(&[9; 60]).unwrap());
        let mut out = Burst::new();
        assert_eq!(b.rx_burst(&mut pool, &mut out).unwrap(), 4);
        assert_eq!(a.tx_burst(&mut pool, &mut burst).unwrap(), 2);
    }

    #[test]
    fn an_empty_pool_holds_frames_back_instead_of_losing_them() {
        let (mut a, mut b) = ends(8);
        assert!(a.send(&[1; 60]).unwrap());
        let mut out = Burst::new();
        assert_eq!(b.rx_burst(&mut Pool::new(0, 1514), &mut out).unwrap(), 0);
        assert_eq!(b.rx_burst(&mut Pool::new(1, 1514), &mut out).unwrap(), 1);
    }

    #[test]
    fn a_closed_end_is_a_typed_error_after_the_last_frame() {
        let (mut a, mut b) = ends(8);
        assert!(a.send(&[1; 60]).unwrap());
        drop(a);
        let (mut pool, mut out) = (Pool::new(8, 1514), Burst::new());
        assert_eq!(b.rx_burst(&mut pool, &mut out).unwrap(), 1);
        assert!(matches!(b.rx_burst(&mut pool, &mut out), Err(NetError::Closed { .. })));
        assert!(matches!(b.tx_burst(&mut pool, &mut out), Err(NetError::Closed { .. })));
        assert_eq!(out.len(), 1, "the frame that could not be sent is still there");
        assert!(matches!(b.revive(), Err(NetError::Closed { .. })));
    }

    #[test]
    fn frames_longer_than_the_cable_carries_are_refused_and_the_others_go() {
        let (mut a, mut b) = ends(8);
        let mut pool = Pool::new(0, 2048);
        let mut burst: Burst =
            [60, 1515, 1514, 2000].map(|len| Packet::from_frame(&vec![len as u8; len])).into_iter().collect();
        assert_eq!(a.tx_burst(&mut pool, &mut burst).unwrap(), 2);
        assert!(burst.is_empty());
        assert_eq!((pool.available(), a.counters().snapshot().tx_refused), (4, 2));
        assert_eq!(b.recv(<[u8]>::len).unwrap(), Some(60));
        assert_eq!(b.recv(<[u8]>::len).unwrap(), Some(1514));
    }

    #[test]
    fn an_end_that_closes_between_the_last_burst_and_the_sleep_prevents_the_sleep() {
        let (a, mut b) = ends(4);
        let (mut pool, mut burst) = (Pool::new(1, 1514), Burst::new());
        assert_eq!(b.rx_burst(&mut pool, &mut burst).unwrap(), 0);
        drop(a);
        assert!(matches!(b.readiness(), Readiness::Ready), "a sleep here would have no end");
        assert!(matches!(b.rx_burst(&mut pool, &mut burst), Err(NetError::Closed { .. })));
    }

    #[test]
    fn a_sleeper_always_hears_that_the_other_end_is_closed() {
        for _ in 0..500 {
            let (a, b) = ends(4);
            let closer = std::thread::spawn(move || drop(a));
            let mut devices = [Box::new(b) as Box<dyn Device>];
            let waiter = crate::Waiter::new().unwrap();
            let mut burst = Burst::new();
            // No limit: a wake-up that is lost, or comes before the closed end is visible, hangs here.
            while devices[0].rx_burst(&mut Pool::new(1, 1514), &mut burst).is_ok() {
                waiter.sleep(&mut devices, |_| false, None).unwrap();
            }
            closer.join().unwrap();
        }
    }

    #[test]
    fn settings_that_carry_nothing_are_refused() {
        assert!(matches!(pair("a", "b", &Settings { ring_frames: 0, max_frame: 60 }), Err(NetError::BadOption { .. })));
        let (mut a, _b) = ends(4);
        assert!(matches!(a.send(&[0; 1515]), Err(NetError::BadOption { .. })));
    }

    #[test]
    fn a_million_frames_between_two_threads_all_arrive_in_order() {
        const N: u64 = 1_000_000;
        let (mut a, b) = ends(128);
        let sender = std::thread::spawn(move || {
            let (mut pool, mut burst) = (Pool::new(32, 1514), Burst::new());
            let mut next = 0u64;
            while next < N || !burst.is_empty() {
                while next < N && !burst.is_full() {
                    let mut packet = pool.take().unwrap();
                    packet.fill(&next.to_le_bytes()).unwrap();
                    burst.push(packet);
                    next += 1;
                }
                if a.tx_burst(&mut pool, &mut burst).unwrap() == 0 {
                    std::thread::yield_now();
                }
            }
            a
        });
        let (mut pool, mut burst) = (Pool::new(32, 1514), Burst::new());
        let waiter = crate::Waiter::new().unwrap();
        let mut expected = 0u64;
        let mut devices: [Box<dyn Device>; 1] = [Box::new(b)];
        while expected < N {
            if devices[0].rx_burst(&mut pool, &mut burst).unwrap() == 0 {
                waiter.sleep(&mut devices, |_| false, None).unwrap();
            }
            for packet in burst.drain(..) {
                assert_eq!(packet.frame(), expected.to_le_bytes());
                expected += 1;
                pool.put(packet);
            }
        }
        sender.join().unwrap();
    }
}

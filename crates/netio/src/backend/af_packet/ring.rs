//! The receive ring: memory shared with the kernel, one slot per frame (TPACKET_V2).
//!
//! ```text
//!  block:   | slot | slot | .. | slot | rest |     a slot is a power of two less 32 bytes, a block a power of two
//!  slot:    | status u32 | len | snaplen | mac u16 | .. | stamp | vlan |  address  | pad | virtio | the frame .. |
//!           0                          ^ offset of the frame from the slot's start
//!  the last 32 bytes of the last block, where no slot is:
//!           | place u64 | version u32 | slot_bytes u32 | n_slots u32 | 0 .. |
//! ```
//! The kernel fills a slot whose status is KERNEL (0) and then sets USER; we read it and set KERNEL again. The status
//! word is the only synchronisation, so it is read with Acquire and written with Release. The header of virtio says what the sender left to
//! hardware ([`crate::offload`]). A frame that does not fit its slot is in the slot as far as it fits, and also waits in the socket's
//! queue, whole, if there is room (`PACKET_COPY_THRESH`): so super-frames take no memory before they come.
//!
//! **A ring outlives its reader** where another process keeps the socket, and the kernel goes on filling it. Nothing in the kernel says
//! where the next reader has to go on, and status words alone do not: of a ring that is empty or full all are alike. So the reader
//! notes its place in memory that the kernel never writes, the rest of a block that no slot fits into. Frames are copied, and then their
//! slots released, in steps between which the reader may be killed:
//!
//! 1. mark the oldest of them, the *gate*, with a bit of ours;
//! 2. note the place behind them, and how many they are;
//! 3. give the slots back, from the newest to the oldest;
//! 4. note that all are given back.
//!
//! A reader that is killed before 2 has taken none of them, one that is killed after it has taken all. The kernel fills slots in order
//! and enters none whose status is not KERNEL, so it cannot pass the gate, and none of the slots is filled anew before the last one is given
//! back. Whether the gate is marked thus tells the successor whether all were given back: if it is, it does step 3 again; if not, slots may
//! have other frames in them already, and it leaves them alone.
//!
//! What this costs is two stores a burst to the note, and one more to a line that step 3 writes as well.
#![expect(unsafe_code, reason = "maps memory that the kernel writes")]

use super::sys;
use crate::offload::HEADER_BYTES;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The kernel allocates a block at a time; 64 KiB is nearly always available in one piece.
const BLOCK_BYTES: usize = 1 << 16;
/// Bytes that the kernel puts before a frame: slot header, address, the header of virtio, and the alignment of the network header.
const SLOT_OVERHEAD: usize = 112;
/// What a slot lacks of a power of two. So a block of a power of two has as much left for each slot, and the header of a slot, which
/// has this many bytes, is in one cache line.
const SPARED_BYTES: usize = 32;
/// Of everything that a process leaves in a socket for the next one: this layout, options of the socket, the program of the fanout
/// group. Raise it when any of that changes; then what an earlier version left is not taken over.
const VERSION: u32 = 0xf1b0_0003;
/// Set in the status of the gate, beside what the kernel says of its frame. The kernel has no such bit, and compares a whole status
/// with KERNEL.
const TAKEN: u32 = 1 << 27;

/// Sizes of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    slot_bytes: usize,
    slots_a_block: usize,
    /// Its binary logarithm: no division for each frame.
    block_shift: u32,
    block_bytes: usize,
    n_slots: usize,
}

impl Shape {
    /// At least `n_frames` slots for frames of `max_frame` bytes.
    fn new(n_frames: usize, max_frame: usize) -> Self {
        let slot_bytes = (max_frame + SLOT_OVERHEAD + SPARED_BYTES).next_power_of_two().max(2048);
        let block_bytes = BLOCK_BYTES.max(slot_bytes);
        let slots_a_block = block_bytes / slot_bytes;
        let n_slots = n_frames.max(1).next_multiple_of(slots_a_block);
        let block_shift = slots_a_block.trailing_zeros();
        Self { slot_bytes: slot_bytes - SPARED_BYTES, slots_a_block, block_shift, block_bytes, n_slots }
    }

    fn n_blocks(self) -> usize {
        self.n_slots / self.slots_a_block
    }

    fn bytes(self) -> usize {
        self.n_blocks() * self.block_bytes
    }

    /// The start of a slot.
    fn slot_at(self, index: usize) -> usize {
        let (block, slot) = (index >> self.block_shift, index & (self.slots_a_block - 1));
        block * self.block_bytes + slot * self.slot_bytes
    }

    fn note_at(self) -> usize {
        self.bytes() - SPARED_BYTES
    }
}

/// Where a reader is: the slot that is next, and how many before it were taken and may not be given back yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    next: u32,
    taken: u32,
}

impl Place {
    fn pack(self) -> u64 {
        u64::from(self.taken) << 32 | u64::from(self.next)
    }

    fn unpack(word: u64) -> Self {
        Self { next: word as u32, taken: (word >> 32) as u32 }
    }
}

/// A mapped receive ring. It may be dropped before or after its socket: the mapping holds the memory.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    shape: Shape,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing in it is tied to a thread.
unsafe impl Send for Ring {}

/// A frame in the ring, valid until it is released.
pub(super) struct Slot<'a> {
    /// `TP_STATUS_*` bits.
    pub(super) status: u32,
    /// Length of the frame; longer than `bytes` if it did not fit.
    pub(super) len: usize,
    /// The work that the sender left to hardware.
    pub(super) left: [u8; HEADER_BYTES],
    /// The frame as far as it fits.
    pub(super) bytes: &'a [u8],
    pub(super) vlan_tci: u16,
    pub(super) vlan_tpid: u16,
    /// When it came, by the system's clock, since 1970.
    pub(super) came: Duration,
}

impl Slot<'_> {
    /// Whether frames have been lost since the count of them was read last.
    pub(super) fn tells_of_losses(&self) -> bool {
        self.status & libc::TP_STATUS_LOSING != 0
    }
}

/// Reasons why a ring that was left behind cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub(super) enum Misfit {
    #[error("their rings have other sizes than this configuration and the MTU ask for")]
    Sizes,
    #[error("another version of this program has opened them")]
    Version,
    #[error("a ring gives its reader a position without a slot")]
    Place,
    #[error("a ring cannot be mapped: {0}")]
    Io(#[from] io::Error),
}

impl Ring {
    /// Sets up a ring of at least `n_frames` slots on a socket that is not bound yet.
    pub(super) fn new(socket: BorrowedFd<'_>, n_frames: usize, max_frame: usize) -> io::Result<Self> {
        sys::set_option(socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        let shape = Shape::new(n_frames, max_frame);
        let request = libc::tpacket_req {
            tp_block_size: shape.block_bytes as u32,
            tp_block_nr: shape.n_blocks() as u32,
            tp_frame_size: shape.slot_bytes as u32,
            tp_frame_nr: shape.n_slots as u32,
        };
        sys::set_option(socket.as_fd(), libc::PACKET_RX_RING, &request)?;
        let ring = Self::map(socket, shape)?;
        for (word, value) in [(2, VERSION), (3, shape.slot_bytes as u32), (4, shape.n_slots as u32)] {
            ring.noted(word).store(value, Ordering::Relaxed);
        }
        ring.note(Place { next: 0, taken: 0 });
        Ok(ring)
    }

    /// Takes a ring over from a reader that has ended.
    pub(super) fn take_over(socket: BorrowedFd<'_>, n_frames: usize, max_frame: usize) -> Result<Self, Misfit> {
        let mut version: libc::c_int = 0;
        sys::get_option(socket, libc::PACKET_VERSION, &mut version)?;
        if version != libc::tpacket_versions::TPACKET_V2 as libc::c_int {
            return Err(Misfit::Version);
        }
        let shape = Shape::new(n_frames, max_frame);
        let mut ring = Self::map(socket, shape).map_err(|error| match error.raw_os_error() {
            // Of any other size than the ring has.
            Some(libc::EINVAL) => Misfit::Sizes,
            _ => error.into(),
        })?;
        ring.resume()?;
        Ok(ring)
    }

    fn map(socket: BorrowedFd<'_>, shape: Shape) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping of the socket's ring; no address asked. The kernel refuses any other size than the ring's.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                shape.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, shape, next: 0 })
    }

    /// Goes on where the reader before ended.
    fn resume(&mut self) -> Result<(), Misfit> {
        let noted = |word| self.noted(word).load(Ordering::Relaxed);
        if noted(2) != VERSION {
            return Err(Misfit::Version);
        }
        if (noted(3) as usize, noted(4) as usize) != (self.shape.slot_bytes, self.shape.n_slots) {
            return Err(Misfit::Sizes);
        }
        let Place { next, taken } = Place::unpack(self.place().load(Ordering::Acquire));
        let (next, taken) = (next as usize, taken as usize);
        if next >= self.shape.n_slots || taken > self.shape.n_slots {
            return Err(Misfit::Place);
        }
        self.next = next;
        let gate = self.shape.n_slots - taken;
        // Marked and not noted, it is the gate of the next release as well.
        if taken > 0 && self.status(gate).load(Ordering::Acquire) & TAKEN != 0 {
            self.give_back(gate, taken);
        }
        self.note(Place { next: next as u32, taken: 0 });
        Ok(())
    }

    /// A word of what is noted behind the slots.
    fn noted(&self, word: usize) -> &AtomicU32 {
        debug_assert!((2..SPARED_BYTES / 4).contains(&word));
        // SAFETY: the last `SPARED_BYTES` of the mapping, which starts at a page and ends at a multiple of 64 KiB; readers and writers
        // access these words atomically, and the kernel never does.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(self.shape.note_at() + 4 * word).cast::<u32>()) }
    }

    fn place(&self) -> &AtomicU64 {
        // SAFETY: as in `noted`, the first 8 of these bytes, at a multiple of 8.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(self.shape.note_at()).cast::<u64>()) }
    }

    fn note(&self, place: Place) {
        before_step();
        self.place().store(place.pack(), Ordering::Release);
    }

    /// The first byte of the slot that is `ahead` of the next one, `ahead` at most the number of slots.
    fn slot(&self, ahead: usize) -> *mut u8 {
        debug_assert!(ahead <= self.shape.n_slots && self.next < self.shape.n_slots);
        let index = self.next + ahead;
        let index = if index >= self.shape.n_slots { index - self.shape.n_slots } else { index };
        // SAFETY: a slot lies inside the mapping, which lives as long as `self`.
        unsafe { self.memory.as_ptr().add(self.shape.slot_at(index)) }
    }

    fn status(&self, ahead: usize) -> &AtomicU32 {
        // SAFETY: slots begin at multiples of 32 with their status, a u32 which both sides access atomically.
        unsafe { AtomicU32::from_ptr(self.slot(ahead).cast::<u32>()) }
    }

    fn set_status(&self, ahead: usize, status: u32) {
        before_step();
        self.status(ahead).store(status, Ordering::Release);
    }

    /// Frames that it holds at most.
    pub(super) fn n_slots(&self) -> usize {
        self.shape.n_slots
    }

    /// Whether a frame waits.
    pub(super) fn is_ready(&self) -> bool {
        self.status(0).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The frame that waits behind `ahead` others, if there is one. It is the same one until [`Ring::release`].
    pub(super) fn peek(&self, ahead: usize) -> Option<Slot<'_>> {
        if ahead >= self.shape.n_slots {
            return None;
        }
        let status = self.status(ahead).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let (slot, slot_bytes) = (self.slot(ahead), self.shape.slot_bytes);
        // SAFETY: as in `status`; the kernel does not write a slot that is ours, and a slot has room for the header.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let start = usize::from(header.tp_mac).clamp(HEADER_BYTES, slot_bytes);
        let kept = (header.tp_snaplen as usize).min(slot_bytes - start);
        // SAFETY: `start + kept` is at most the slot, which lies in the mapping; the borrow of `self` keeps `release`,
        // and with it the kernel's next write, away.
        let bytes = unsafe { std::slice::from_raw_parts(slot.add(start), kept) };
        // SAFETY: as above, the bytes before it: `start` is at least their number.
        let left = unsafe { slot.add(start - HEADER_BYTES).cast::<[u8; HEADER_BYTES]>().read() };
        Some(Slot {
            status,
            len: header.tp_len as usize,
            left,
            bytes,
            vlan_tci: header.tp_vlan_tci,
            vlan_tpid: header.tp_vlan_tpid,
            came: Duration::new(header.tp_sec.into(), header.tp_nsec.min(999_999_999)),
        })
    }

    /// Gives the slots of the first `n` waiting frames back to the kernel.
    /// # Panics
    /// If there are fewer slots.
    #[inline]
    pub(super) fn release(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        assert!(n <= self.shape.n_slots, "{n} frames of a ring of {} are released", self.shape.n_slots);
        let next = self.next + n;
        let next = if next >= self.shape.n_slots { next - self.shape.n_slots } else { next };
        self.set_status(0, self.status(0).load(Ordering::Relaxed) | TAKEN);
        self.note(Place { next: next as u32, taken: n as u32 });
        self.give_back(0, n);
        self.next = next;
        self.note(Place { next: next as u32, taken: 0 });
    }

    /// Gives `n` slots back, the first of which is `gate` ahead of the next one, and last.
    #[inline]
    fn give_back(&self, gate: usize, n: usize) {
        for ahead in (gate..gate + n).rev() {
            self.set_status(ahead, libc::TP_STATUS_KERNEL);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped; no slot can be borrowed any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.shape.bytes()) };
    }
}

#[cfg(not(test))]
#[inline(always)]
fn before_step() {}

#[cfg(test)]
use tests::before_step;

#[cfg(test)]
mod tests;

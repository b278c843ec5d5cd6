//! The receive ring: memory shared with the kernel, one slot per frame (TPACKET_V2).
//!
//! ```text
//!  slot i, at i * slot_bytes:   | status u32 | len | snaplen | mac u16 | .. | vlan |  address  | pad | the frame .. |
//!                               0                          ^ offset of the frame from the slot's start
//! ```
//! The kernel fills a slot whose status is KERNEL (0) and then sets USER; we read it and set KERNEL again. The status
//! word is the only synchronisation, so it is read with Acquire and written with Release.
#![expect(unsafe_code, reason = "maps memory that the kernel writes")]

use super::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel allocates a block at a time; 64 KiB is nearly always available in one piece.
const BLOCK_BYTES: usize = 1 << 16;
/// Bytes that the kernel puts before a frame: slot header, address, and the alignment of the network header.
const SLOT_OVERHEAD: usize = 96;

/// A mapped receive ring. It may be dropped before or after its socket: the mapping holds the memory.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    bytes: usize,
    slot_bytes: usize,
    n_slots: usize,
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
    /// The frame as far as it fits.
    pub(super) bytes: &'a [u8],
    pub(super) vlan_tci: u16,
    pub(super) vlan_tpid: u16,
}

impl Ring {
    /// Bytes of a slot for frames of `max_frame` bytes: a power of two, so that slots fill blocks without remainder.
    pub(super) fn slot_bytes_for(max_frame: usize) -> usize {
        (max_frame + SLOT_OVERHEAD).next_power_of_two().max(2048)
    }

    /// Sets up a ring of at least `n_frames` slots on a socket that is not bound yet.
    pub(super) fn new(socket: BorrowedFd<'_>, n_frames: usize, max_frame: usize) -> io::Result<Self> {
        sys::set_option(socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        let slot_bytes = Self::slot_bytes_for(max_frame);
        let block_bytes = BLOCK_BYTES.max(slot_bytes);
        let n_blocks = (n_frames * slot_bytes).div_ceil(block_bytes);
        let n_slots = n_blocks * (block_bytes / slot_bytes);
        let request = libc::tpacket_req {
            tp_block_size: block_bytes as u32,
            tp_block_nr: n_blocks as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: n_slots as u32,
        };
        sys::set_option(socket.as_fd(), libc::PACKET_RX_RING, &request)?;
        let bytes = n_blocks * block_bytes;
        // SAFETY: a fresh shared mapping of the ring that was set up just now, of exactly its size; no address asked.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
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
        Ok(Self { memory, bytes, slot_bytes, n_slots, next: 0 })
    }

    fn status(&self) -> &AtomicU32 {
        debug_assert!(self.next < self.n_slots);
        // SAFETY: slot `next` lies inside the mapping, which lives as long as `self` and is aligned to a page; a slot
        // starts at a multiple of 2048 with its status, a u32 which both sides access atomically.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(self.next * self.slot_bytes).cast::<u32>()) }
    }

    /// Whether a frame waits.
    pub(super) fn is_ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The waiting frame, if any. It is the same one until [`Ring::release`].
    pub(super) fn peek(&self) -> Option<Slot<'_>> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: as in `status`; the kernel does not write a slot that is ours, and a slot has room for the header.
        let header =
            unsafe { self.memory.as_ptr().add(self.next * self.slot_bytes).cast::<libc::tpacket2_hdr>().read() };
        let start = usize::from(header.tp_mac).min(self.slot_bytes);
        let kept = (header.tp_snaplen as usize).min(self.slot_bytes - start);
        // SAFETY: `start + kept` is at most the slot, which lies in the mapping; the borrow of `self` keeps `release`,
        // and with it the kernel's next write, away.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(self.next * self.slot_bytes + start), kept) };
        Some(Slot {
            status,
            len: header.tp_len as usize,
            bytes,
            vlan_tci: header.tp_vlan_tci,
            vlan_tpid: header.tp_vlan_tpid,
        })
    }

    /// Returns the slot of the waiting frame to the kernel.
    pub(super) fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = if self.next + 1 == self.n_slots { 0 } else { self.next + 1 };
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped; no slot can be borrowed any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

//! The receive ring: memory shared with the kernel, one slot per frame (TPACKET_V2).
//!
//! ```text
//!  block:   | slot | slot | .. | slot | rest |     a slot is a power of two less 32 bytes, a block a power of two
//!  slot:    | status u32 | len | snaplen | mac u16 | .. | stamp | vlan |  address  | pad | the frame .. |
//!           0                          ^ offset of the frame from the slot's start
//!  the last 32 bytes of the last block, where no slot is:
//!           | place u64 | version u32 | slot_bytes u32 | n_slots u32 | 0 .. |
//! ```
//! The kernel fills a slot whose status is KERNEL (0) and then sets USER; we read it and set KERNEL again. The status
//! word is the only synchronisation, so it is read with Acquire and written with Release.
//!
//! **A ring outlives its reader** where somebody else keeps the socket, and the kernel goes on filling it. Nothing in the kernel says
//! where the next reader has to go on, and status words alone do not: of a ring that is empty or full all are alike. So the reader
//! notes its place in memory that the kernel never writes, the rest of a block that no slot fits into. A burst is
//! taken in three steps: copy its frames, note the place behind them and how many they are, give their slots back. A reader that is
//! killed before the second step has taken none of them, one that is killed after it has taken all; its successor gives back what is
//! not given back yet.
#![expect(unsafe_code, reason = "maps memory that the kernel writes")]

use super::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The kernel allocates a block at a time; 64 KiB is nearly always available in one piece.
const BLOCK_BYTES: usize = 1 << 16;
/// Bytes that the kernel puts before a frame: slot header, address, and the alignment of the network header.
const SLOT_OVERHEAD: usize = 96;
/// What a slot lacks of a power of two. So a block of a power of two has as much left for each slot, and the header of a slot, which
/// has so many bytes, is in one cache line.
const SPARED_BYTES: usize = 32;
/// Of everything that a process leaves in a socket for the next one: this layout, options of the socket, the program of the fanout
/// group. Raise it when any of that changes; then what an earlier version left is not taken over.
const VERSION: u32 = 0xf1b0_0001;

/// Sizes of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    slot_bytes: usize,
    slots_a_block: usize,
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
        Self { slot_bytes: slot_bytes - SPARED_BYTES, slots_a_block, block_bytes, n_slots }
    }

    fn n_blocks(self) -> usize {
        self.n_slots / self.slots_a_block
    }

    fn bytes(self) -> usize {
        self.n_blocks() * self.block_bytes
    }

    /// Where a slot begins.
    fn slot_at(self, index: usize) -> usize {
        // Slots of a block are a power of two: no division for each frame.
        let (block, slot) = (index >> self.slots_a_block.trailing_zeros(), index & (self.slots_a_block - 1));
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
    /// The frame as far as it fits.
    pub(super) bytes: &'a [u8],
    pub(super) vlan_tci: u16,
    pub(super) vlan_tpid: u16,
    /// When it came, by the system's clock, since 1970.
    pub(super) came: Duration,
}

/// Why a ring that somebody left cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub(super) enum Misfit {
    #[error("their rings have other sizes than this configuration and the MTU ask for")]
    Sizes,
    #[error("another version of this program has opened them")]
    Version,
    #[error("a ring says that its reader is where no slot is")]
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
        for back in 1..=taken {
            self.status(self.shape.n_slots - back).store(libc::TP_STATUS_KERNEL, Ordering::Release);
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
        let start = usize::from(header.tp_mac).min(slot_bytes);
        let kept = (header.tp_snaplen as usize).min(slot_bytes - start);
        // SAFETY: `start + kept` is at most the slot, which lies in the mapping; the borrow of `self` keeps `release`,
        // and with it the kernel's next write, away.
        let bytes = unsafe { std::slice::from_raw_parts(slot.add(start), kept) };
        Some(Slot {
            status,
            len: header.tp_len as usize,
            bytes,
            vlan_tci: header.tp_vlan_tci,
            vlan_tpid: header.tp_vlan_tpid,
            came: Duration::new(header.tp_sec.into(), header.tp_nsec.min(999_999_999)),
        })
    }

    /// Gives the slots of the first `n` waiting frames back to the kernel.
    #[inline]
    pub(super) fn release(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        let next = self.next + n;
        let next = if next >= self.shape.n_slots { next - self.shape.n_slots } else { next };
        self.note(Place { next: next as u32, taken: n as u32 });
        for ahead in 0..n {
            self.status(ahead).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.next = next;
        self.note(Place { next: next as u32, taken: 0 });
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped; no slot can be borrowed any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.shape.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A ring in memory of this process, and the kernel's end of it, as `tpacket_rcv` has it.
    struct Model {
        memory: NonNull<u8>,
        shape: Shape,
        head: usize,
        next_frame: u32,
        dropped: u32,
    }

    impl Model {
        fn new(n_frames: usize) -> Self {
            let shape = Shape::new(n_frames, 1518);
            // SAFETY: a private mapping of memory that nobody else has.
            let memory = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    shape.bytes(),
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            assert_ne!(memory, libc::MAP_FAILED);
            let model =
                Self { memory: NonNull::new(memory.cast()).unwrap(), shape, head: 0, next_frame: 0, dropped: 0 };
            let ring = model.reader();
            for (word, value) in [(2, VERSION), (3, shape.slot_bytes as u32), (4, shape.n_slots as u32)] {
                ring.noted(word).store(value, Ordering::Relaxed);
            }
            Model::let_go(ring);
            model
        }

        /// A reader of the ring that does not know its place. It must be let go.
        fn reader(&self) -> Ring {
            Ring { memory: self.memory, shape: self.shape, next: 0 }
        }

        /// The reader ends, and the ring stays.
        fn let_go(reader: Ring) {
            std::mem::forget(reader);
        }

        fn successor(&self) -> Ring {
            let mut ring = self.reader();
            ring.resume().unwrap();
            ring
        }

        /// The kernel receives a frame with the next number in it.
        fn receive(&mut self) {
            let slot = self.shape.slot_at(self.head);
            // SAFETY: a slot of the mapping; the test has one thread.
            unsafe {
                let slot = self.memory.as_ptr().add(slot);
                let status = AtomicU32::from_ptr(slot.cast());
                if status.load(Ordering::Relaxed) != 0 {
                    self.dropped += 1;
                } else {
                    let mut header = slot.cast::<libc::tpacket2_hdr>().read();
                    (header.tp_len, header.tp_snaplen, header.tp_mac) = (60, 60, 80);
                    slot.cast::<libc::tpacket2_hdr>().write(header);
                    slot.add(80).cast::<[u8; 4]>().write(self.next_frame.to_be_bytes());
                    status.store(libc::TP_STATUS_USER, Ordering::Relaxed);
                    self.head = (self.head + 1) % self.shape.n_slots;
                }
            }
            self.next_frame += 1;
        }

        /// The numbers of the frames that wait, at most `n`.
        fn waiting(ring: &Ring, n: usize) -> Vec<u32> {
            let number = |slot: Slot<'_>| u32::from_be_bytes(slot.bytes[..4].try_into().unwrap());
            (0..n).map_while(|ahead| ring.peek(ahead).map(number)).collect()
        }

        /// As [`Model::waiting`], and they are taken.
        fn take(ring: &mut Ring, n: usize) -> Vec<u32> {
            let taken = Self::waiting(ring, n);
            ring.release(taken.len());
            taken
        }
    }

    impl Drop for Model {
        fn drop(&mut self) {
            // SAFETY: what was mapped above, and all readers are gone.
            unsafe { libc::munmap(self.memory.as_ptr().cast(), self.shape.bytes()) };
        }
    }

    #[test]
    fn a_slot_has_room_for_the_longest_frame_and_what_the_kernel_puts_before_it() {
        for max_frame in [60, 1518, 1522, 1900, 2000, 9018, 64_000, crate::MAX_FRAME_LIMIT] {
            let shape = Shape::new(100, max_frame);
            assert!(shape.slot_bytes >= max_frame + libc::TPACKET2_HDRLEN + 32, "{max_frame}");
            assert!(shape.slot_bytes.is_multiple_of(size_of::<libc::tpacket2_hdr>()), "a header is in one cache line");
            assert!(shape.slots_a_block.is_power_of_two() && shape.n_slots >= 100);
            // The kernel divides a block by slots without remainder itself, and wants exactly that many.
            assert_eq!(shape.block_bytes / shape.slot_bytes, shape.slots_a_block);
            let end = shape.slot_at(shape.n_slots - 1) + shape.slot_bytes;
            assert!(end <= shape.note_at(), "no slot is where the place is noted");
        }
        assert_eq!(Shape::new(1024, 1522).bytes(), 1024 * 2048);
    }

    #[test]
    fn a_successor_finds_its_place_in_an_empty_ring_wherever_that_is() {
        let mut model = Model::new(64);
        for n in [0, 1, 31, 32, 33, 63, 64, 7] {
            let mut ring = model.successor();
            (0..n).for_each(|_| model.receive());
            assert_eq!(Model::take(&mut ring, n).len(), n);
            Model::let_go(ring);
            let mut ring = model.successor();
            assert!(!ring.is_ready());
            let first = model.next_frame;
            model.receive();
            assert_eq!(Model::take(&mut ring, 9), [first]);
            Model::let_go(ring);
        }
    }

    #[test]
    fn a_successor_finds_its_place_in_a_full_ring_and_what_came_later_is_lost() {
        let mut model = Model::new(64);
        let mut ring = model.successor();
        (0..40).for_each(|_| model.receive());
        Model::take(&mut ring, 40);
        Model::let_go(ring);
        (0..100).for_each(|_| model.receive());
        let mut ring = model.successor();
        assert_eq!(Model::take(&mut ring, 200), (40..104).collect::<Vec<_>>());
        assert_eq!((model.dropped, Model::take(&mut ring, 200)), (36, vec![]));
        model.receive();
        assert_eq!(Model::take(&mut ring, 200), [140]);
        Model::let_go(ring);
    }

    #[test]
    fn frames_that_were_copied_and_not_noted_are_the_successor_s() {
        let mut model = Model::new(64);
        let ring = model.successor();
        (0..5).for_each(|_| model.receive());
        assert_eq!(Model::waiting(&ring, 32), [0, 1, 2, 3, 4]);
        Model::let_go(ring);
        let mut ring = model.successor();
        assert_eq!(Model::take(&mut ring, 32), [0, 1, 2, 3, 4]);
        Model::let_go(ring);
    }

    #[test]
    fn what_was_taken_and_not_given_back_is_given_back_by_the_successor_and_not_read_again() {
        for given_back in 0..=5 {
            let mut model = Model::new(64);
            let mut ring = model.successor();
            // Over the end of the ring.
            (0..61).for_each(|_| model.receive());
            Model::take(&mut ring, 61);
            (0..8).for_each(|_| model.receive());
            // It is killed in the middle of `release(5)`.
            ring.note(Place { next: 2, taken: 5 });
            (0..given_back).for_each(|ahead| ring.status(ahead).store(0, Ordering::Release));
            Model::let_go(ring);
            let mut ring = model.successor();
            assert_eq!(Model::take(&mut ring, 32), [66, 67, 68]);
            (0..64).for_each(|_| model.receive());
            assert_eq!(Model::take(&mut ring, 64).len(), 64, "every slot is the kernel's again");
            assert_eq!(model.dropped, 0);
            Model::let_go(ring);
        }
    }

    #[test]
    fn a_ring_that_says_what_cannot_be_is_not_taken_over() {
        let model = Model::new(64);
        let wrong = |word: usize, value: u32| {
            let mut ring = model.reader();
            let was = ring.noted(word).swap(value, Ordering::Relaxed);
            let refused = ring.resume().unwrap_err();
            ring.noted(word).store(was, Ordering::Relaxed);
            Model::let_go(ring);
            refused
        };
        assert!(matches!(wrong(2, 0), Misfit::Version), "a ring that nobody noted anything in");
        assert!(matches!(wrong(3, 2048), Misfit::Sizes));
        assert!(matches!(wrong(4, 128), Misfit::Sizes));
        for (next, taken) in [(64, 0), (0, 65), (u32::MAX, u32::MAX)] {
            let mut ring = model.reader();
            ring.note(Place { next, taken });
            assert!(matches!(ring.resume(), Err(Misfit::Place)), "{next} {taken}");
            Model::let_go(ring);
        }
    }

    proptest! {
        /// Whatever comes and is taken, and however often the reader is another, each frame is taken once and in order.
        #[test]
        fn each_frame_is_taken_once_and_in_order_over_any_number_of_readers(
            steps in prop::collection::vec((0_usize..70, 0_usize..70, any::<bool>()), 1..60),
        ) {
            let mut model = Model::new(64);
            let mut ring = model.successor();
            let (mut taken, mut lost) = (Vec::new(), 0);
            for (n_come, n_taken, ends) in steps {
                for _ in 0..n_come {
                    model.receive();
                }
                taken.extend(Model::take(&mut ring, n_taken));
                if ends {
                    Model::let_go(ring);
                    ring = model.successor();
                }
                lost = model.dropped;
            }
            taken.extend(Model::take(&mut ring, 64));
            Model::let_go(ring);
            prop_assert!(taken.is_sorted_by(|a, b| a < b));
            prop_assert_eq!(taken.len() as u32 + lost, model.next_frame);
        }
    }
}

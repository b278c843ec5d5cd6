//! Packets, bursts and pools: owned frame buffers that circulate between the ports of one worker.
//!
//! ```text
//!  bytes   0        base              start             end                       len
//!          | align  | headroom (64)   | the frame       | room to grow            |
//! ```
//! `base` aligns the frame to a cache line. A tag is prepended by moving the start down into the headroom, so that
//! only the addresses move and never the payload. Buffers are an odd number of cache lines long: a power of two would
//! put the headers of all buffers in the same few cache sets.
//!
//! A device may lend a packet a buffer of its own that has a frame in it ([`Packet::borrow`]). Then the frame is not copied,
//! and if it leaves by a device that knows the lender, it is not copied there either. Whatever empties the packet gives the
//! buffer back.
#![expect(unsafe_code, reason = "a lent buffer is memory of a device's, which no borrow of Rust's describes")]

use crate::offload::Offload;
use arrayvec::ArrayVec;
use std::ffi::c_void;
use std::ptr::NonNull;

/// Frames in one burst. At 32 the lookup's prefetching hides the memory latency (more gains nothing).
pub const BURST: usize = 32;

/// Free bytes in front of a fresh frame: room for tags that a switch adds.
pub const HEADROOM: usize = 64;

/// Largest frame that a buffer can be made for, other than a [large](Packet::large) one: a device may lend buffers whose offsets
/// have 16 bits.
pub const MAX_FRAME_LIMIT: usize = 65_000;

/// Bytes of the longest super-frame: an IP packet of 65,535 bytes behind an Ethernet header and three tags of 4 bytes.
pub const LARGEST_FRAME: usize = 65_535 + 14 + 12;

const CACHE_LINE: usize = 64;

/// Up to [`BURST`] packets, in order of arrival.
pub type Burst = ArrayVec<Packet, BURST>;

/// A frame does not fit into its target buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {got} bytes does not fit into a buffer of {max}; make the pool with a larger max_frame")]
pub struct FrameTooLong {
    /// Bytes of the frame.
    pub got: usize,
    /// Bytes the buffer has room for.
    pub max: usize,
}

/// Who lends buffers: a static, so that its address tells it from others.
#[derive(Debug)]
pub struct Lender {
    /// Takes a buffer back, by its token.
    /// # Safety
    /// The buffer is lent, and the caller uses it no more.
    pub give_back: unsafe fn(NonNull<c_void>),
}

/// A buffer that a device has lent to a packet.
#[derive(Debug, Clone, Copy)]
pub struct Loan {
    /// The buffer's first byte.
    pub bytes: NonNull<u8>,
    /// Its bytes.
    pub len: u16,
    /// The lender's name for it.
    pub token: NonNull<c_void>,
    /// Who has it back once the packet is emptied.
    pub lender: &'static Lender,
}

/// An owned frame buffer of fixed size, and the frame in it, or in a buffer that a device has lent. To move one moves a pointer.
#[derive(Debug)]
pub struct Packet(Box<Place>);

/// The buffers of a packet, and where the frame is. Fields are written one by one: a loan that is put together elsewhere and
/// then copied is read before its parts have reached the cache.
#[derive(Debug)]
struct Place {
    /// The buffer that the frame is in, and its length: the packet's own or a lent one.
    bytes: NonNull<u8>,
    len: u32,
    base: u32,
    start: u32,
    end: u32,
    /// The work that the sender of the frame left to hardware.
    offload: Offload,
    /// For a lent buffer.
    lender: Option<&'static Lender>,
    token: NonNull<c_void>,
    own: NonNull<[u8]>,
}

// SAFETY: `own` is this value's alone, and the lender has promised that any thread may use a lent buffer and give it back, see
// `Packet::borrow`.
unsafe impl Send for Place {}
// SAFETY: through a shared reference buffers are only read.
unsafe impl Sync for Place {}

impl Place {
    /// Gives a lent buffer back.
    #[inline]
    fn give_back(&mut self) {
        if let Some(lender) = self.lender.take() {
            // SAFETY: it is given back once, because a loan is in one packet at most, and this one has forgotten it.
            unsafe { (lender.give_back)(self.token) };
        }
    }

    /// Makes an empty frame of the own buffer.
    #[inline]
    fn reset(&mut self) {
        self.bytes = self.own.cast();
        // `Packet::new` bounds it.
        self.len = self.own.len() as u32;
        self.base = aligned(self.bytes);
        self.start = self.base + HEADROOM as u32;
        self.end = self.start;
        self.offload = Offload::default();
    }

    #[inline]
    fn buffer(&self) -> &[u8] {
        // SAFETY: the buffer belongs to the packet, or the lender keeps this many bytes valid and unused by others.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len as usize) }
    }

    #[inline]
    fn buffer_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and this value is borrowed for the time.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len as usize) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back();
        // SAFETY: it came from a box in `Packet::new`.
        drop(unsafe { Box::from_raw(self.own.as_ptr()) });
    }
}

impl Packet {
    /// An empty packet with room for frames of `max_frame` bytes behind [`HEADROOM`].
    /// # Panics
    /// If `max_frame` is above [`MAX_FRAME_LIMIT`].
    pub fn new(max_frame: usize) -> Self {
        assert!(max_frame <= MAX_FRAME_LIMIT, "frames of {max_frame} bytes; at most {MAX_FRAME_LIMIT}");
        Self::of_size(max_frame)
    }

    /// An empty packet with room for a super-frame of [`LARGEST_FRAME`] bytes.
    pub fn large() -> Self {
        Self::of_size(LARGEST_FRAME)
    }

    fn of_size(max_frame: usize) -> Self {
        let lines = (HEADROOM + max_frame).div_ceil(CACHE_LINE) | 1;
        let own = NonNull::from(Box::leak(vec![0u8; lines * CACHE_LINE + CACHE_LINE].into_boxed_slice()));
        let (bytes, token) = (own.cast(), own.cast());
        let offload = Offload::default();
        let mut place = Place { bytes, len: 0, base: 0, start: 0, end: 0, offload, lender: None, token, own };
        place.reset();
        Self(Box::new(place))
    }

    /// A packet with a copy of `frame`, for tests and tools.
    /// # Panics
    /// If `frame` is longer than [`MAX_FRAME_LIMIT`].
    pub fn from_frame(frame: &[u8]) -> Self {
        let mut packet = Self::new(frame.len().max(2048));
        packet.fill(frame).expect("the buffer was made for this frame");
        packet
    }

    /// The frame.
    #[inline]
    pub fn frame(&self) -> &[u8] {
        &self.0.buffer()[self.0.start as usize..self.0.end as usize]
    }

    /// The frame, mutable in place.
    #[inline]
    pub fn frame_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.0.start as usize, self.0.end as usize);
        &mut self.0.buffer_mut()[start..end]
    }

    /// Makes the bytes from `start` to `end` of a lent buffer the frame. Those before it are headroom. The packet's own buffer
    /// is unused until the packet is emptied, and the lent one is given back then.
    /// # Panics
    /// If the frame does not lie in the buffer.
    /// # Safety
    /// Until the lender's `give_back` is called with `token`, `len` bytes from `bytes` on are initialised and no one else's.
    /// Any thread may use them and make that call.
    // SAFETY: the caller keeps the contract.
    #[inline(always)]
    pub unsafe fn borrow(&mut self, loan: Loan, start: u16, end: u16) {
        assert!(start <= end && end <= loan.len, "a frame at {start}..{end} in {} bytes", loan.len);
        let place = &mut *self.0;
        place.give_back();
        (place.bytes, place.len) = (loan.bytes, loan.len.into());
        (place.base, place.start, place.end) = (0, start.into(), end.into());
        place.offload = Offload::default();
        (place.lender, place.token) = (Some(loan.lender), loan.token);
    }

    /// Who has lent the buffer in which the frame lies, if it is a lent one; what the buffer is to him; where in it the frame
    /// begins.
    #[inline]
    pub fn loan(&self) -> Option<(&'static Lender, NonNull<c_void>, u16)> {
        self.0.lender.map(|lender| (lender, self.0.token, self.0.start as u16))
    }

    /// Empties the packet, whose lent buffer the lender has again: it is not given back.
    #[inline]
    pub fn end_loan(&mut self) {
        self.0.lender = None;
        self.0.reset();
    }

    /// Bytes of the frame.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a packet is a buffer: emptiness is no question asked of it")]
    pub fn len(&self) -> usize {
        (self.0.end - self.0.start) as usize
    }

    /// Bytes that can be prepended to the frame.
    #[inline]
    pub fn headroom(&self) -> usize {
        (self.0.start - self.0.base) as usize
    }

    /// The longest frame that [`Packet::fill`] accepts.
    #[inline]
    pub fn capacity(&self) -> usize {
        let own = self.0.own;
        own.len() - aligned(own.cast()) as usize - HEADROOM
    }

    /// Makes the packet empty, with the full headroom of its own buffer. The bytes stay as they are.
    #[inline]
    pub fn reset(&mut self) {
        self.0.give_back();
        self.0.reset();
    }

    /// Replaces the frame by a copy of `frame`.
    /// # Errors
    /// [`FrameTooLong`]; the packet is then empty.
    #[inline]
    pub fn fill(&mut self, frame: &[u8]) -> Result<(), FrameTooLong> {
        self.resize(frame.len())?;
        self.frame_mut().copy_from_slice(frame);
        Ok(())
    }

    /// Empties the packet and gives it a frame of `len` bytes with the buffer's old content, which the caller
    /// overwrites: for backends that assemble a frame from pieces.
    /// # Errors
    /// [`FrameTooLong`]; the packet is then empty.
    #[inline]
    pub fn resize(&mut self, len: usize) -> Result<(), FrameTooLong> {
        self.reset();
        if len > self.capacity() {
            return Err(FrameTooLong { got: len, max: self.capacity() });
        }
        self.0.end = self.0.start + len as u32;
        Ok(())
    }

    /// Appends bytes to the frame, in the buffer where it is.
    /// # Errors
    /// [`FrameTooLong`]; the frame is as it was.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), FrameTooLong> {
        let end = self.0.end as usize;
        let Some(room) = self.0.buffer_mut()[end..].get_mut(..bytes.len()) else {
            return Err(FrameTooLong { got: self.len() + bytes.len(), max: self.capacity() });
        };
        room.copy_from_slice(bytes);
        self.0.end = (end + bytes.len()) as u32;
        Ok(())
    }

    /// Puts `N` bytes between the first `at` bytes of the frame and the rest, by moving those first bytes down.
    /// Costs a copy of `at` bytes. Returns false, and changes nothing, if the headroom is too small or the frame is
    /// shorter than `at`.
    #[inline]
    pub fn insert<const N: usize>(&mut self, at: usize, what: [u8; N]) -> bool {
        if N > self.headroom() || at > self.len() {
            return false;
        }
        let old = self.0.start as usize;
        let new = old - N;
        let bytes = self.0.buffer_mut();
        bytes.copy_within(old..old + at, new);
        bytes[new + at..new + at + N].copy_from_slice(&what);
        self.0.start = new as u32;
        self.0.offload.shift(at, N as i32);
        true
    }

    /// Removes `n` bytes after the first `at`, by moving those first bytes up. Returns false, and changes nothing, if
    /// the frame is shorter than `at + n`.
    #[inline]
    pub fn remove(&mut self, at: usize, n: usize) -> bool {
        if at + n > self.len() {
            return false;
        }
        let old = self.0.start as usize;
        self.0.buffer_mut().copy_within(old..old + at, old + n);
        self.0.start += n as u32;
        self.0.offload.shift(at, -(n as i32));
        true
    }

    /// The work that the sender of the frame left to hardware. Code that replaces the frame in place clears it.
    #[inline]
    pub fn offload(&self) -> Offload {
        self.0.offload
    }

    /// Says what of the frame is left to hardware.
    #[inline]
    pub fn set_offload(&mut self, offload: Offload) {
        self.0.offload = offload;
    }

    /// Bytes of the longest frame on a wire that this one becomes: itself, or a segment of a super-frame. This, not the length, is
    /// what an MTU bounds.
    #[inline]
    pub fn wire_len(&self) -> usize {
        self.0.offload.wire_len(self.frame())
    }

    /// Replaces the frame by a copy of the one of `other`, and of what is left to hardware of it.
    /// # Errors
    /// [`FrameTooLong`]; the packet is then empty.
    pub fn copy_of(&mut self, other: &Packet) -> Result<(), FrameTooLong> {
        self.fill(other.frame())?;
        self.0.offload = other.0.offload;
        Ok(())
    }

    /// Writes `head` in front of the frame, into the headroom, and returns both. The frame is as before. None, if there is too
    /// little headroom.
    #[inline]
    pub fn with_head<const N: usize>(&mut self, head: [u8; N]) -> Option<&[u8]> {
        let (start, end) = (self.0.start as usize, self.0.end as usize);
        if N > self.headroom() {
            return None;
        }
        let bytes = self.0.buffer_mut();
        bytes[start - N..start].copy_from_slice(&head);
        Some(&bytes[start - N..end])
    }

    /// Shortens the frame to `len` bytes; a larger `len` changes nothing.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.0.end = self.0.start + len as u32;
        }
    }
}

/// The first cache line of a buffer.
#[inline]
fn aligned(bytes: NonNull<u8>) -> u32 {
    bytes.align_offset(CACHE_LINE).min(CACHE_LINE) as u32
}

/// A worker's stock of empty packets: last in, first out, so that the buffers in use are those still in cache.
///
/// A pool has one owner and never allocates after its creation, but for large packets, once each. When it is empty nothing can be
/// received; frames then wait in (and overflow) the devices' own queues, which is the intended back-pressure.
#[derive(Debug)]
pub struct Pool {
    free: Vec<Packet>,
    /// For super-frames.
    large: Vec<Packet>,
    /// The total number of large buffers, and how many of them are not allocated yet.
    n_large: usize,
    unmade: usize,
    max_frame: usize,
}

impl Pool {
    /// A pool of `n_packets` buffers for frames of up to `max_frame` bytes.
    /// # Panics
    /// If `max_frame` is above [`MAX_FRAME_LIMIT`].
    pub fn new(n_packets: usize, max_frame: usize) -> Self {
        Self::with_large(n_packets, max_frame, 0)
    }

    /// As [`Pool::new`], with `n_large` buffers for super-frames beside them, of [`LARGEST_FRAME`] bytes. Each of these is made when it is
    /// first needed: where no super-frames come they take no memory.
    /// # Panics
    /// If `max_frame` is above [`MAX_FRAME_LIMIT`].
    pub fn with_large(n_packets: usize, max_frame: usize, n_large: usize) -> Self {
        let free = (0..n_packets).map(|_| Packet::new(max_frame)).collect();
        Self { free, large: Vec::with_capacity(n_large), n_large, unmade: n_large, max_frame }
    }

    /// Takes an empty packet, or none when all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<Packet> {
        self.free.pop()
    }

    /// Takes an empty large packet, or none when all are in use.
    #[inline]
    pub fn take_large(&mut self) -> Option<Packet> {
        self.large.pop().or_else(|| self.make_large())
    }

    #[cold]
    fn make_large(&mut self) -> Option<Packet> {
        self.unmade = self.unmade.checked_sub(1)?;
        Some(Packet::large())
    }

    /// Takes an empty packet with room for a frame of `len` bytes: a large one, if necessary. None when all are in use.
    #[inline]
    pub fn take_for(&mut self, len: usize) -> Option<Packet> {
        if len <= self.max_frame { self.free.pop() } else { self.take_large() }
    }

    /// Whether it was made with large packets.
    #[inline]
    pub fn has_large(&self) -> bool {
        self.n_large > 0
    }

    /// Gives a packet back, whatever is in it.
    #[inline]
    pub fn put(&mut self, mut packet: Packet) {
        packet.reset();
        if packet.capacity() < LARGEST_FRAME { &mut self.free } else { &mut self.large }.push(packet);
    }

    /// Gives back all packets of a burst.
    #[inline]
    pub fn put_all(&mut self, burst: &mut Burst) {
        for packet in burst.drain(..) {
            self.put(packet);
        }
    }

    /// Number of empty packets, other than large ones.
    #[inline]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Number of empty packets for super-frames.
    #[inline]
    pub fn available_large(&self) -> usize {
        self.large.len() + self.unmade
    }

    /// Longest frame its packets were made for, in bytes.
    pub fn max_frame(&self) -> usize {
        self.max_frame
    }
}

#[cfg(test)]
mod tests;

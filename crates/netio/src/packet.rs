//! Packets, bursts and pools: owned frame buffers that circulate between the ports of one worker.
//!
//! ```text
//!  bytes   0        base              start             end                       len
//!          | align  | headroom (64)   | the frame       | room to grow            |
//! ```
//! `base` aligns the frame to a cache line. A tag is prepended by moving the start down into the headroom, so that
//! only the addresses move and never the payload. Buffers are an odd number of cache lines long: a power of two would
//! put the headers of all buffers in the same few cache sets.

use arrayvec::ArrayVec;

/// Frames in one burst. At 32 the lookup's prefetching hides the memory latency (more gains nothing).
pub const BURST: usize = 32;

/// Free bytes in front of a fresh frame: room for tags that a switch adds.
pub const HEADROOM: usize = 64;

/// Largest frame that a buffer can be made for: offsets in a buffer have 16 bits.
pub const MAX_FRAME_LIMIT: usize = 65_000;

const CACHE_LINE: usize = 64;

/// Up to [`BURST`] packets, in order of arrival.
pub type Burst = ArrayVec<Packet, BURST>;

/// A frame does not fit into the buffer that it was to be copied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {got} bytes does not fit into a buffer of {max}; make the pool with a larger max_frame")]
pub struct FrameTooLong {
    /// Bytes of the frame.
    pub got: usize,
    /// Bytes the buffer has room for.
    pub max: usize,
}

/// An owned frame buffer of fixed size, and the frame in it.
#[derive(Debug)]
pub struct Packet {
    bytes: Box<[u8]>,
    base: u16,
    start: u16,
    end: u16,
}

impl Packet {
    /// An empty packet with room for frames of `max_frame` bytes behind [`HEADROOM`].
    /// # Panics
    /// If `max_frame` is above [`MAX_FRAME_LIMIT`].
    pub fn new(max_frame: usize) -> Self {
        assert!(max_frame <= MAX_FRAME_LIMIT, "frames of {max_frame} bytes; at most {MAX_FRAME_LIMIT}");
        let lines = (HEADROOM + max_frame).div_ceil(CACHE_LINE) | 1;
        let bytes = vec![0u8; lines * CACHE_LINE + CACHE_LINE].into_boxed_slice();
        let base = bytes.as_ptr().align_offset(CACHE_LINE).min(CACHE_LINE) as u16;
        let start = base + HEADROOM as u16;
        Self { bytes, base, start, end: start }
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
        &self.bytes[self.start as usize..self.end as usize]
    }

    /// The frame, mutable in place.
    #[inline]
    pub fn frame_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start as usize..self.end as usize]
    }

    /// Bytes of the frame.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a packet is a buffer: emptiness is no question asked of it")]
    pub fn len(&self) -> usize {
        usize::from(self.end - self.start)
    }

    /// Bytes that can be prepended to the frame.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.start - self.base)
    }

    /// The longest frame that [`Packet::fill`] accepts.
    #[inline]
    pub fn capacity(&self) -> usize {
        (self.bytes.len() - usize::from(self.base) - HEADROOM).min(MAX_FRAME_LIMIT)
    }

    /// Makes the packet empty, with its full headroom. The bytes stay as they are.
    #[inline]
    pub fn reset(&mut self) {
        self.start = self.base + HEADROOM as u16;
        self.end = self.start;
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
        self.end = self.start + len as u16;
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
        let old = usize::from(self.start);
        let new = old - N;
        self.bytes.copy_within(old..old + at, new);
        self.bytes[new + at..new + at + N].copy_from_slice(&what);
        self.start = new as u16;
        true
    }

    /// Removes `n` bytes after the first `at`, by moving those first bytes up. Returns false, and changes nothing, if
    /// the frame is shorter than `at + n`.
    #[inline]
    pub fn remove(&mut self, at: usize, n: usize) -> bool {
        if at + n > self.len() {
            return false;
        }
        let old = usize::from(self.start);
        self.bytes.copy_within(old..old + at, old + n);
        self.start += n as u16;
        true
    }

    /// Shortens the frame to `len` bytes; a larger `len` changes nothing.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.end = self.start + len as u16;
        }
    }
}

/// A worker's stock of empty packets: last in, first out, so that the buffers in use are those still in cache.
///
/// A pool has one owner and never allocates after its creation. When it is empty nothing can be received; frames then
/// wait in (and overflow) the devices' own queues, which is the intended back-pressure.
#[derive(Debug)]
pub struct Pool {
    free: Vec<Packet>,
    max_frame: usize,
}

impl Pool {
    /// A pool of `n_packets` buffers for frames of up to `max_frame` bytes.
    /// # Panics
    /// If `max_frame` is above [`MAX_FRAME_LIMIT`].
    pub fn new(n_packets: usize, max_frame: usize) -> Self {
        Self { free: (0..n_packets).map(|_| Packet::new(max_frame)).collect(), max_frame }
    }

    /// Takes an empty packet, or none when all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<Packet> {
        self.free.pop()
    }

    /// Gives a packet back, whatever is in it.
    #[inline]
    pub fn put(&mut self, mut packet: Packet) {
        packet.reset();
        self.free.push(packet);
    }

    /// Gives back all packets of a burst.
    #[inline]
    pub fn put_all(&mut self, burst: &mut Burst) {
        for packet in burst.drain(..) {
            self.put(packet);
        }
    }

    /// Number of empty packets.
    #[inline]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Longest frame its packets were made for, in bytes.
    pub fn max_frame(&self) -> usize {
        self.max_frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_starts_on_a_cache_line_with_full_headroom() {
        for max_frame in [60, 1514, 2048, 9000, MAX_FRAME_LIMIT] {
            let mut packet = Packet::new(max_frame);
            packet.resize(max_frame).unwrap();
            assert_eq!(packet.frame().as_ptr() as usize % CACHE_LINE, 0);
            assert_eq!(packet.headroom(), HEADROOM);
            assert_eq!(packet.len(), max_frame);
        }
    }

    #[test]
    fn a_tag_inserted_and_removed_leaves_the_frame_as_it_was() {
        let frame: Vec<u8> = (0..100).collect();
        let mut packet = Packet::from_frame(&frame);
        assert!(packet.insert(12, [0xaa, 0xbb, 0xcc, 0xdd]));
        assert_eq!(&packet.frame()[..18], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xaa, 0xbb, 0xcc, 0xdd, 12, 13]);
        assert!(packet.remove(12, 4));
        assert_eq!(packet.frame(), &frame[..]);
    }

    #[test]
    fn tags_stop_at_the_end_of_the_headroom() {
        let mut packet = Packet::from_frame(&[7; 20]);
        let n = (0..100).take_while(|_| packet.insert(12, [1, 2, 3, 4])).count();
        assert_eq!(n, HEADROOM / 4);
        assert_eq!(packet.len(), 20 + HEADROOM);
        assert!(!Packet::from_frame(&[7; 5]).insert(12, [0; 4]), "an insertion point behind the frame");
        assert!(!Packet::from_frame(&[7; 15]).remove(12, 4), "more than the frame has");
    }

    #[test]
    fn an_oversized_frame_is_refused_with_the_numbers() {
        let mut packet = Packet::new(64);
        let max = packet.capacity();
        assert_eq!(packet.fill(&vec![0; max + 1]), Err(FrameTooLong { got: max + 1, max }));
        assert_eq!(packet.len(), 0);
        assert!(packet.fill(&vec![0; max]).is_ok());
    }

    #[test]
    fn a_pool_runs_dry_and_recovers() {
        let mut pool = Pool::new(2, 1514);
        let a = pool.take().unwrap();
        let b = pool.take().unwrap();
        assert!(pool.take().is_none());
        pool.put(a);
        pool.put(b);
        assert_eq!(pool.available(), 2);
    }
}

//! An AF_XDP socket: memory for frames, and four rings between the kernel and us.
//!
//! ```text
//!            fill ──────► kernel ──────► rx          chunks that the kernel may write ► frames that it received
//!             tx  ──────► kernel ──────► completion  frames to send ► chunks that it has sent
//! ```
//! Each ring has a producer and a consumer index, 32 bits that wrap; an entry is at its index modulo the size.
#![expect(unsafe_code, reason = "maps memory and rings that the kernel reads and writes")]

use super::super::interface::check;
use libc::{c_int, c_void, socklen_t};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a chunk: a page, which XDP demands of frames in a driver anyway.
pub(super) const CHUNK_BYTES: usize = 4096;
/// Space that the kernel leaves free before a received frame.
const KERNEL_HEADROOM: usize = 256;
/// Space that it needs behind a frame that becomes a socket buffer: its `skb_shared_info`.
const KERNEL_TAIL: usize = 320;
/// The longest frame of a chunk.
pub(super) const MAX_FRAME: usize = CHUNK_BYTES - KERNEL_HEADROOM - KERNEL_TAIL;

/// A mapping, which ends with this value.
#[derive(Debug)]
struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize, fd: c_int, offset: i64, flags: c_int) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address: NonNull::new(address.cast()).expect("mmap never maps page zero unasked"), bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped; its owner is being dropped.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// One ring of entries of type `T`: chunk addresses, or descriptors of frames.
#[derive(Debug)]
pub(super) struct Ring<T> {
    mapping: Mapping,
    at: Offsets,
    mask: u32,
    /// Our index: of the next entry that we write or read.
    ours: u32,
    entry: PhantomData<T>,
}

/// Positions of the parts of a ring in its mapping.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

impl<T: Copy> Ring<T> {
    fn new(socket: &OwnedFd, at: &libc::xdp_ring_offset, n: u32, page: i64) -> io::Result<Self> {
        let at = Offsets {
            producer: at.producer as usize,
            consumer: at.consumer as usize,
            flags: at.flags as usize,
            entries: at.desc as usize,
        };
        let bytes = at.entries + n as usize * size_of::<T>();
        let mapping = Mapping::new(bytes, socket.as_raw_fd(), page, libc::MAP_SHARED | libc::MAP_POPULATE)?;
        Ok(Self { mapping, at, mask: n - 1, ours: 0, entry: PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the kernel says where its words are in the mapping, which lives as long as `self`; both sides access
        // them atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.address.as_ptr().add(offset).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: masked, so inside the entries of the mapping.
        unsafe { self.mapping.address.as_ptr().add(self.at.entries).cast::<T>().add((index & self.mask) as usize) }
    }

    /// For rings that we write: how many entries have room.
    pub(super) fn room(&self) -> usize {
        let consumed = self.word(self.at.consumer).load(Ordering::Acquire);
        (self.mask + 1 - self.ours.wrapping_sub(consumed)) as usize
    }

    /// Writes the next entry, for which there is room. The kernel sees it after [`Ring::publish`].
    pub(super) fn push(&mut self, entry: T) {
        // SAFETY: the kernel does not read an entry that is not published, and has read the one before.
        unsafe { self.entry(self.ours).write(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// Shows the kernel what was pushed.
    pub(super) fn publish(&self) {
        self.word(self.at.producer).store(self.ours, Ordering::Release);
    }

    /// For rings that we read: how many entries wait.
    pub(super) fn waiting(&self) -> usize {
        self.word(self.at.producer).load(Ordering::Acquire).wrapping_sub(self.ours) as usize
    }

    /// Reads the next entry, which waits. The kernel may write it again after [`Ring::release`].
    pub(super) fn pop(&mut self) -> T {
        // SAFETY: published by the kernel, which does not write it before it is released.
        let entry = unsafe { self.entry(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        entry
    }

    /// Gives the kernel back what was popped.
    pub(super) fn release(&self) {
        self.word(self.at.consumer).store(self.ours, Ordering::Release);
    }

    /// Whether the kernel must be notified of entries in the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.at.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A socket that is bound to a receive queue of an interface.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fill: Ring<u64>,
    pub(super) rx: Ring<libc::xdp_desc>,
    pub(super) tx: Ring<libc::xdp_desc>,
    pub(super) completion: Ring<u64>,
    memory: Mapping,
    fd: OwnedFd,
}

// SAFETY: the mappings belong to this value alone; nothing in them is tied to a thread.
unsafe impl Send for Socket {}

impl Socket {
    /// Makes a socket with `n` chunks for received frames and as many for frames to send; `n` is a power of two.
    pub(super) fn new(n: u32) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor was made just now and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let bytes = 2 * n as usize * CHUNK_BYTES;
        let memory = Mapping::new(bytes, -1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE)?;
        // The form of the first kernels: the longer one has fields of which nothing is used here.
        let umem = libc::xdp_umem_reg_v1 {
            addr: memory.address.as_ptr().addr() as u64,
            len: bytes as u64,
            chunk_size: CHUNK_BYTES as u32,
            headroom: 0,
        };
        set(&fd, libc::XDP_UMEM_REG, &umem)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
            set(&fd, ring, &n)?;
        }
        // SAFETY: all-zero bytes are valid offsets.
        let mut at: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        get(&fd, libc::XDP_MMAP_OFFSETS, &mut at)?;
        Ok(Self {
            fill: Ring::new(&fd, &at.fr, n, libc::XDP_UMEM_PGOFF_FILL_RING as i64)?,
            completion: Ring::new(&fd, &at.cr, n, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64)?,
            rx: Ring::new(&fd, &at.rx, n, libc::XDP_PGOFF_RX_RING)?,
            tx: Ring::new(&fd, &at.tx, n, libc::XDP_PGOFF_TX_RING)?,
            memory,
            fd,
        })
    }

    /// Binds it to a receive queue: without copies if the driver can, otherwise with.
    pub(super) fn bind(&self, ifindex: u32, queue: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let size = size_of::<libc::sockaddr_xdp>() as socklen_t;
        // SAFETY: `address` is a whole sockaddr_xdp, valid for reads during the call.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast::<libc::sockaddr>(), size) })?;
        Ok(())
    }

    /// Whether the driver reads and writes the chunks itself.
    pub(super) fn is_zero_copy(&self) -> bool {
        let mut options = libc::xdp_options { flags: 0 };
        get(&self.fd, libc::XDP_OPTIONS, &mut options).is_ok() && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
    }

    /// Frames that were lost since the socket was made, because there was no chunk for them or no room in the ring.
    pub(super) fn lost(&self) -> u64 {
        // SAFETY: all-zero bytes are valid statistics.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        let read = get(&self.fd, libc::XDP_STATISTICS, &mut statistics);
        read.map_or(0, |()| statistics.rx_dropped + statistics.rx_ring_full + statistics.rx_fill_ring_empty_descs)
    }

    /// The bytes of a received frame. The kernel's descriptor is checked: it must be within one chunk.
    pub(super) fn frame(&self, frame: &libc::xdp_desc) -> Option<&[u8]> {
        let (at, len) = (frame.addr as usize, frame.len as usize);
        let fits = at % CHUNK_BYTES + len <= CHUNK_BYTES && at + len <= self.memory.bytes;
        // SAFETY: inside the memory; the kernel does not write a chunk that it has handed over.
        fits.then(|| unsafe { std::slice::from_raw_parts(self.memory.address.as_ptr().add(at), len) })
    }

    /// The bytes of a chunk for a frame to send, which the kernel does not have.
    pub(super) fn chunk(&mut self, address: u64) -> &mut [u8] {
        let at = address as usize;
        assert!(at + CHUNK_BYTES <= self.memory.bytes, "a chunk outside the memory");
        // SAFETY: inside the memory; the caller has taken the chunk from those that the kernel gave back.
        unsafe { std::slice::from_raw_parts_mut(self.memory.address.as_ptr().add(at), CHUNK_BYTES) }
    }

    /// Has the kernel send what is in the ring: in copy mode up to 32 frames.
    pub(super) fn send(&self) -> io::Result<()> {
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: no data and no address.
        check(unsafe { libc::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0) } as c_int)?;
        Ok(())
    }

    /// Has the kernel look into the fill ring again.
    pub(super) fn receive(&self) {
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: no buffer and no address. Errors show at the next send, or in the pending error.
        unsafe { libc::recvfrom(fd, std::ptr::null_mut(), 0, flags, std::ptr::null_mut(), std::ptr::null_mut()) };
    }

    /// Returns and clears the error that is pending on the socket.
    pub(super) fn pending_error(&self) -> io::Result<()> {
        rustix::net::sockopt::socket_error(&self.fd)??;
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn set<T>(fd: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    let (value, size) = (std::ptr::from_ref(value).cast::<c_void>(), size_of::<T>() as socklen_t);
    // SAFETY: valid for reads of its size during the call; all uses are structures of integers.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, size) })?;
    Ok(())
}

fn get<T>(fd: &OwnedFd, option: c_int, value: &mut T) -> io::Result<()> {
    let mut size = size_of::<T>() as socklen_t;
    let value = std::ptr::from_mut(value).cast::<c_void>();
    // SAFETY: the kernel writes at most `size` bytes; all uses are structures of integers.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, &raw mut size) })?;
    Ok(())
}

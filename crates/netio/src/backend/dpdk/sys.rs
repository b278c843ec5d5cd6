//! The C shim (`c/dpdk/ports.c`), as Rust calls it.
#![expect(unsafe_code, reason = "DPDK is C, and its calls for bursts are inline functions that only C can make")]

use crate::{BURST, Burst, Lender, Loan, Packet};
use libc::{c_char, c_int};
use std::ffi::{CStr, CString, c_void};
use std::io;
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Mutex, PoisonError};

/// EAL lets one thread at a time open, close and describe ports.
static CONTROL: Mutex<()> = Mutex::new(());

enum Pool {}
enum Of {}
enum Mbuf {}

#[repr(C)]
struct RawPort {
    device: *const c_char,
    name: *const c_char,
    n_queues: u16,
    least_mtu: u16,
    mtu: u16,
    buffer_bytes: u32,
    n_kept: u32,
    promiscuous: c_int,
    failed: *const c_char,
    max_queues: u16,
    max_mtu: u16,
    port: u16,
    pool: *mut Pool,
    reserve: u32,
    of: *mut Of,
}

// FIBULA_DPDK_BURST
const _: () = assert!(BURST == 32);

#[repr(C)]
struct RawQueue {
    pool: *mut Pool,
    reserve: u32,
    port: u16,
    queue: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawFrame {
    mbuf: *mut Mbuf,
    is_lent: c_int,
    bytes: *mut u8,
    len: u32,
    start: u16,
    room: u16,
}

const NO_FRAME: RawFrame = RawFrame { mbuf: null_mut(), is_lent: 0, bytes: null_mut(), len: 0, start: 0, room: 0 };

unsafe extern "C" {
    fn fibula_dpdk_start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn fibula_dpdk_said(out: *mut c_char, room: usize) -> usize;
    fn fibula_dpdk_register() -> c_int;
    fn fibula_dpdk_unregister();
    fn fibula_dpdk_open(port: *mut RawPort) -> c_int;
    fn fibula_dpdk_close(port: *mut RawPort);
    fn fibula_dpdk_link(port: u16) -> c_int;
    fn fibula_dpdk_losses(port: u16, lost: *mut u64, damaged: *mut u64);
    fn fibula_dpdk_receive(queue: *mut RawQueue, frames: *mut RawFrame, n: u16) -> u16;
    fn fibula_dpdk_send(queue: *mut RawQueue, frames: *const RawFrame, n: u16) -> u16;
    fn fibula_dpdk_give_back(mbuf: *mut Mbuf);
}

fn check(status: c_int) -> io::Result<c_int> {
    if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(status) }
}

/// Starts EAL on this thread, which becomes its main one. Once in a process.
pub(super) fn start(arguments: &[CString]) -> io::Result<()> {
    let mut argv: Vec<*mut c_char> = arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
    argv.push(null_mut());
    // EAL keeps pointers to some of its arguments.
    let argv = argv.leak();
    // SAFETY: `argv` has as many strings as it says and a null behind them. EAL changes their order, and nothing else; they
    // live as long as the process, because the caller keeps them.
    check(unsafe { fibula_dpdk_start(arguments.len() as c_int, argv.as_mut_ptr()) }).map(drop)
}

/// What EAL and the drivers have said since the last call, in one line.
pub(super) fn said() -> String {
    let mut text = vec![0u8; 4096];
    // SAFETY: `text` has room for as many bytes as are said to fit.
    let n = unsafe { fibula_dpdk_said(text.as_mut_ptr().cast(), text.len()) };
    String::from_utf8_lossy(&text[..n])
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

/// Makes this thread one of EAL's until it ends. One that cannot be goes without a cache of buffers.
pub(super) fn register_thread() {
    struct Registered(bool);
    impl Drop for Registered {
        fn drop(&mut self) {
            if self.0 {
                // SAFETY: this thread was registered, and uses no port any more: its locals are gone.
                unsafe { fibula_dpdk_unregister() };
            }
        }
    }
    thread_local! {
        // SAFETY: no arguments; EAL runs, because ports are opened only then.
        static THREAD: Registered = Registered(unsafe { fibula_dpdk_register() } == 0);
    }
    THREAD.with(|_| ());
}

/// Options for opening a port.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) device: &'a str,
    pub(super) name: &'a str,
    pub(super) n_queues: u16,
    /// At least; 0 for what it has.
    pub(super) least_mtu: u16,
    /// At best.
    pub(super) mtu: u16,
    pub(super) buffer_bytes: u32,
    /// Buffers for each queue that the driver keeps for itself.
    pub(super) n_kept: u32,
    pub(super) promiscuous: bool,
}

/// The last step of opening a port, as the shim calls it.
pub(super) const STARTED: &str = "be started";

/// Why a port was not opened.
#[derive(Debug)]
pub(super) struct Refusal {
    /// It cannot…
    pub(super) step: String,
    pub(super) source: io::Error,
    pub(super) max_queues: u16,
    pub(super) max_mtu: u16,
    /// What EAL and the driver said.
    pub(super) said: String,
}

/// An open port; closed when dropped.
pub(super) struct Port(RawPort);

// SAFETY: the pointers are to what EAL owns, for all threads. Calls that change the port hold CONTROL; queues are apart.
unsafe impl Send for Port {}
// SAFETY: as above; a shared port is only asked for its link and its losses.
unsafe impl Sync for Port {}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("port", &self.0.port).finish_non_exhaustive()
    }
}

impl Port {
    pub(super) fn open(request: &Request<'_>) -> Result<Self, Refusal> {
        let refused =
            |source| Refusal { step: "be named".to_owned(), source, max_queues: 0, max_mtu: 0, said: String::new() };
        let text = |text: &str| CString::new(text).map_err(|e| refused(e.into()));
        let (device, name) = (text(request.device)?, text(request.name)?);
        let mut raw = RawPort {
            device: device.as_ptr(),
            name: name.as_ptr(),
            n_queues: request.n_queues,
            least_mtu: request.least_mtu,
            mtu: request.mtu,
            buffer_bytes: request.buffer_bytes,
            n_kept: request.n_kept,
            promiscuous: request.promiscuous.into(),
            failed: null(),
            max_queues: 0,
            max_mtu: 0,
            port: 0,
            pool: null_mut(),
            reserve: 0,
            of: null_mut(),
        };
        let _alone = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = said();
        // SAFETY: the strings live during the call, and nothing keeps them.
        let status = check(unsafe { fibula_dpdk_open(&raw mut raw) });
        let (device, failed) = (null(), raw.failed);
        (raw.device, raw.name) = (device, device);
        match status {
            Ok(_) => Ok(Self(raw)),
            Err(source) => {
                // SAFETY: where it is not null, it is a literal of the shim.
                let step =
                    (!failed.is_null()).then(|| unsafe { CStr::from_ptr(failed) }.to_string_lossy().into_owned());
                Err(Refusal {
                    step: step.unwrap_or_default(),
                    source,
                    max_queues: raw.max_queues,
                    max_mtu: raw.max_mtu,
                    said: said(),
                })
            }
        }
    }

    pub(super) fn max_queues(&self) -> u16 {
        self.0.max_queues
    }

    /// The requested MTU, as far as the device supports it.
    pub(super) fn mtu(&self) -> u16 {
        self.0.mtu
    }

    /// Whether it has a link; not, if it cannot say.
    pub(super) fn has_link(&self) -> bool {
        let _alone = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the port is open.
        check(unsafe { fibula_dpdk_link(self.0.port) }).is_ok_and(|link| link == 1)
    }

    /// Frames lost for want of room, and damaged ones, since it was opened.
    pub(super) fn losses(&self) -> (u64, u64) {
        let _alone = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lost, mut damaged) = (0, 0);
        // SAFETY: the port is open, and both are valid for writes.
        unsafe { fibula_dpdk_losses(self.0.port, &raw mut lost, &raw mut damaged) };
        (lost, damaged)
    }

    /// One of its queues, which can be taken once.
    pub(super) fn queue(self: &std::sync::Arc<Self>, queue: u16) -> Queue {
        let raw = RawQueue { pool: self.0.pool, reserve: self.0.reserve, port: self.0.port, queue };
        Queue { raw, port: self.clone() }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _alone = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it is open, and no queue is left: each holds the port.
        unsafe { fibula_dpdk_close(&raw mut self.0) };
    }
}

/// A queue of a port, each way.
#[derive(Debug)]
pub(super) struct Queue {
    raw: RawQueue,
    port: std::sync::Arc<Port>,
}

impl std::fmt::Debug for RawQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawQueue").field("port", &self.port).field("queue", &self.queue).finish_non_exhaustive()
    }
}

// SAFETY: its pool is for all threads, and no other value uses the queue.
unsafe impl Send for Queue {}

impl Queue {
    pub(super) fn port(&self) -> &Port {
        &self.port
    }

    /// Receives up to `n` frames and hands each to `take`.
    #[inline]
    pub(super) fn receive(&mut self, n: usize, mut take: impl FnMut(Received)) -> usize {
        let mut frames = [NO_FRAME; BURST];
        // SAFETY: there is room for a burst, the port is open, and only this value uses the queue.
        let got = unsafe { fibula_dpdk_receive(&raw mut self.raw, frames.as_mut_ptr(), n.min(BURST) as u16) };
        frames[..got.into()].iter().for_each(|&frame| take(Received(frame)));
        got.into()
    }

    /// Sends frames that are no longer than the buffers, from the first on. Returns how many the device took, and their bytes;
    /// their packets may be empty then.
    #[inline]
    pub(super) fn send(&mut self, frames: &mut Burst) -> (usize, u64) {
        let mut raw = [NO_FRAME; BURST];
        for (to, packet) in raw.iter_mut().zip(&*frames) {
            let len = packet.len() as u32;
            *to = match buffer_of(packet) {
                Some((mbuf, start)) => RawFrame { mbuf, start, len, ..NO_FRAME },
                None => RawFrame { bytes: packet.frame().as_ptr().cast_mut(), len, ..NO_FRAME },
            };
        }
        // SAFETY: this many frames are there, they live during the call and fit into buffers, as the caller ensures. Each buffer is
        // in one packet, and no one else's.
        let sent = unsafe { fibula_dpdk_send(&raw mut self.raw, raw.as_ptr(), frames.len() as u16) }.into();
        let mut bytes = 0;
        for (packet, raw) in frames.iter_mut().zip(&raw).take(sent) {
            bytes += u64::from(raw.len);
            if !raw.mbuf.is_null() {
                packet.end_loan();
            }
        }
        (sent, bytes)
    }
}

/// A frame in a buffer, which is given back when this is dropped.
pub(super) struct Received(RawFrame);

impl Received {
    /// Its bytes; 0 if they lie in several buffers.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len as usize
    }

    /// Puts the frame into a packet: in its buffer, if that is lent, or as a copy. Whether it has room there.
    #[inline]
    pub(super) fn put_into(self, packet: &mut Packet) -> bool {
        let frame = &self.0;
        let (Some(token), Some(bytes)) = (NonNull::new(frame.mbuf), NonNull::new(frame.bytes)) else { return false };
        let len = frame.len as usize;
        if frame.is_lent == 0 {
            // SAFETY: the buffer belongs to this value, and contains this many bytes of the frame.
            return packet.fill(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), len) }).is_ok();
        }
        // SAFETY: the frame begins so far behind the first byte of its buffer.
        let first = unsafe { bytes.sub(frame.start.into()) };
        let loan = Loan { bytes: first, len: frame.room, token: token.cast(), lender: &LENDER };
        let (start, end) = (frame.start, frame.start + len as u16);
        std::mem::forget(self);
        // SAFETY: the buffer belonged to this value alone; DPDK hands it out again only after it got it back, from any
        // thread.
        unsafe { packet.borrow(loan, start, end) };
        true
    }
}

impl Drop for Received {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the buffer is this value's.
        unsafe { fibula_dpdk_give_back(self.0.mbuf) };
    }
}

static LENDER: Lender = Lender { give_back };

/// Takes back a buffer that a packet had.
/// # Safety
/// See [`Lender::give_back`].
unsafe fn give_back(token: NonNull<c_void>) {
    // SAFETY: it is the buffer of a frame that was received, and the packet's no more.
    unsafe { fibula_dpdk_give_back(token.as_ptr().cast()) };
}

/// The buffer of DPDK's that the frame of a packet lies in, and where it begins there.
#[inline]
fn buffer_of(packet: &Packet) -> Option<(*mut Mbuf, u16)> {
    let (lender, token, start) = packet.loan()?;
    std::ptr::eq(lender, &raw const LENDER).then(|| (token.as_ptr().cast(), start))
}

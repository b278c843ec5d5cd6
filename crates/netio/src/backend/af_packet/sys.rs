//! The system calls that no crate wraps, each behind a safe function.
#![expect(unsafe_code, reason = "packet sockets, their options and interface ioctls have no safe binding")]

use libc::{c_int, c_uint, c_void, socklen_t};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::interface::check;
use crate::offload::HEADER_BYTES;
use crate::{BURST, Packet};

/// Types without padding or pointers that the kernel reads or fills as plain bytes.
pub(super) trait Plain: Copy {}
impl Plain for c_int {}
impl Plain for c_uint {}
impl Plain for u64 {}
impl Plain for libc::tpacket_req {}
impl Plain for libc::tpacket_stats {}

/// A raw packet socket that receives nothing until it is bound.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was made just now and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of level `SOL_PACKET`.
pub(super) fn set_option<T: Plain>(fd: BorrowedFd<'_>, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size for the duration of the call; `Plain` has no padding.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    })?;
    Ok(())
}

/// Reads an option of level `SOL_PACKET` over `value`.
pub(super) fn get_option<T: Plain>(fd: BorrowedFd<'_>, option: c_int, value: &mut T) -> io::Result<()> {
    get(fd, libc::SOL_PACKET, option, value)
}

/// What tells the network namespace of a socket from others. Kernels before 5.14 do not say.
pub(super) fn namespace_of(fd: BorrowedFd<'_>) -> io::Result<u64> {
    const SO_NETNS_COOKIE: c_int = 71;
    let mut cookie = 0_u64;
    get(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie)?;
    Ok(cookie)
}

/// Descriptors that are looked for in [`inherited`] at most.
pub(super) const MOST_INHERITED: usize = 1024;

/// Takes over the descriptor that is `index` behind the standard ones, if the process was started with it. Each is handed out once.
/// # Safety
/// The process that started this one must have given it that descriptor to own, so that no other code in the process
/// uses it.
pub(super) unsafe fn inherited(index: usize) -> Option<OwnedFd> {
    static TAKEN: [AtomicBool; MOST_INHERITED] = [const { AtomicBool::new(false) }; MOST_INHERITED];
    let fd = RawFd::try_from(index).ok()?.checked_add(libc::STDERR_FILENO + 1)?;
    if TAKEN.get(index)?.swap(true, Ordering::Relaxed) {
        return None;
    }
    // SAFETY: takes no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    // What this process opened itself is closed when it executes another program; what was there before it began cannot be.
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return None;
    }
    // SAFETY: takes no pointers.
    unsafe { libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC) };
    // SAFETY: the descriptor is open, it is this process's to own, and is handed out this one time.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn get<T: Plain>(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, and any bytes are a valid `Plain` of integers.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, std::ptr::from_mut(value).cast::<c_void>(), &raw mut len)
    })?;
    Ok(())
}

/// Hands the kernel the program that picks a member of a fanout group for each frame.
pub(super) fn set_fanout_program(fd: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    set_program(fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program)
}

/// Makes the socket receive no frame, until [`refuse_none`].
pub(super) fn refuse_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    let keep_0_bytes = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    set_program(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &mut [keep_0_bytes])
}

/// Makes the socket receive every frame again.
pub(super) fn refuse_none(fd: BorrowedFd<'_>) -> io::Result<()> {
    let unused: c_int = 0;
    // SAFETY: `unused` is valid for reads of its size for the duration of the call; the kernel ignores it.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DETACH_FILTER,
            (&raw const unused).cast::<c_void>(),
            size_of::<c_int>() as socklen_t,
        )
    })?;
    Ok(())
}

fn set_program(fd: BorrowedFd<'_>, level: c_int, option: c_int, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `program` points at `len` instructions, which the kernel copies and checks.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const program).cast::<c_void>(),
            size_of::<libc::sock_fprog>() as socklen_t,
        )
    })?;
    Ok(())
}

/// Binds to an interface and starts the reception of all protocols.
pub(super) fn bind(fd: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: ifindex as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `address` is a whole sockaddr_ll, valid for reads during the call.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            size_of::<libc::sockaddr_ll>() as socklen_t,
        )
    })?;
    Ok(())
}

/// The interface a socket is bound to; -1 once the interface has been deleted.
pub(super) fn bound_ifindex(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `address`.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast::<libc::sockaddr>(), &raw mut len) })?;
    Ok(address.sll_ifindex)
}

/// Sends frames without blocking, as many as go: one system call. The error is that of the first frame. Each has the header of virtio
/// in front of it.
pub(super) fn send_burst(fd: BorrowedFd<'_>, frames: &mut [Packet]) -> io::Result<usize> {
    let mut spare = [[0u8; HEADER_BYTES]; BURST];
    let mut pieces = [[NO_PIECE; 2]; BURST];
    // SAFETY: all-zero bytes are a valid mmsghdr: no name, no control data, no pieces.
    let mut messages: [libc::mmsghdr; BURST] = unsafe { std::mem::zeroed() };
    let n = frames.len().min(BURST);
    let of_frames = frames.iter_mut().zip(&mut spare).zip(pieces.iter_mut().zip(&mut messages));
    for ((packet, spare), (pieces, message)) in of_frames {
        let header = packet.offload().write(packet.frame());
        message.msg_hdr.msg_iovlen = match packet.with_head(header) {
            Some(both) => {
                pieces[0] = piece(both);
                1
            }
            None => {
                *spare = header;
                *pieces = [piece(spare), piece(packet.frame())];
                2
            }
        };
        message.msg_hdr.msg_iov = pieces.as_mut_ptr();
    }
    send_messages(fd, &mut messages[..n])
}

/// As [`send_burst`], frames of two pieces each, the first of which begins with the header of virtio.
pub(super) fn send_pieces(fd: BorrowedFd<'_>, frames: &[[&[u8]; 2]]) -> io::Result<usize> {
    let mut pieces = [[NO_PIECE; 2]; BURST];
    // SAFETY: as in `send_burst`.
    let mut messages: [libc::mmsghdr; BURST] = unsafe { std::mem::zeroed() };
    let n = frames.len().min(BURST);
    for ((frame, pieces), message) in frames.iter().zip(&mut pieces).zip(&mut messages) {
        *pieces = frame.map(piece);
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (pieces.as_mut_ptr(), 2);
    }
    send_messages(fd, &mut messages[..n])
}

const NO_PIECE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn piece(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() }
}

/// The messages point at pieces, and those at bytes, all of which are alive.
fn send_messages(fd: BorrowedFd<'_>, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (first, n) = (messages.as_mut_ptr(), messages.len() as c_uint);
    // SAFETY: both callers set up each message with pieces of their own and of their callers, alive until the call returns; the kernel
    // only reads them.
    let sent = check(unsafe { libc::sendmmsg(fd.as_raw_fd(), first, n, libc::MSG_DONTWAIT as _) })?;
    Ok(sent as usize)
}

/// Receives a frame from the socket's queue into pieces, one after the other, without blocking; or leaves it there, and only looks.
/// Returns its length, which may be more than the pieces have.
pub(super) fn receive(fd: BorrowedFd<'_>, pieces: &mut [&mut [u8]], only_looks: bool) -> io::Result<usize> {
    let mut parts = [NO_PIECE; 3];
    let n = pieces.len().min(parts.len());
    for (part, bytes) in parts.iter_mut().zip(pieces) {
        *part = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
    }
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), n as _);
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC | if only_looks { libc::MSG_PEEK } else { 0 };
    // SAFETY: the message points at pieces that are borrowed for the call, which writes at most their lengths.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
}

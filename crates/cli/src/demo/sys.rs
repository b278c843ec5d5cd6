//! System calls that have no safe wrapper elsewhere: packet sockets, and what a child does before its program.
//!
//! The sniffers are the demo's judge, so they share no code with the packet backends of the switches that they judge: a
//! plain AF_PACKET socket, one `recv` per frame, about 1 us each.
#![expect(unsafe_code, reason = "packet socket options and pre_exec have no safe interface")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use socket2::{Domain, Socket, Type};

use super::netns::enter_file;

/// Buffer for frames that wait to be judged. The kernel also counts its own overhead in it, some 2 KiB per full frame.
const SNIFFER_BUFFER_BYTES: libc::c_int = 64 << 20;

/// A packet socket on one interface. It stays in the network namespace in which it was opened, whichever thread uses
/// it.
#[derive(Debug)]
pub(super) struct PacketSocket(Socket);

impl PacketSocket {
    /// Receives every frame that comes in on `device`, whatever its destination, and none that goes out.
    pub(super) fn sniffer(device: &str) -> io::Result<Self> {
        // Protocol 0: nothing is received before the socket is bound, so no frame of another interface gets in.
        let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None)?;
        let index = bind(&socket, device, libc::ETH_P_ALL as u16)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &SNIFFER_BUFFER_BYTES)?;
        Ok(Self(socket))
    }

    /// Sends whole frames on `device`; receives nothing.
    pub(super) fn sender(device: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::PACKET, Type::RAW.cloexec(), None)?;
        bind(&socket, device, 0)?;
        Ok(Self(socket))
    }

    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).map(|_| ())
    }

    /// The next frame, cut to the size of `buffer`; `None` if none is waiting.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match io::Read::read(&mut &self.0, buffer) {
            Ok(n) => Ok(Some(&buffer[..n])),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            // The interface went down: the socket reports it once and continues when it is up again.
            Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Frames that the kernel could not queue here since the last call, which the judge missed.
    pub(super) fn take_missed(&self) -> io::Result<u64> {
        let mut stats = MaybeUninit::<libc::tpacket_stats>::zeroed();
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `stats`, which is that long.
        let rc = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                stats.as_mut_ptr().cast(),
                &mut len,
            )
        };
        check(rc)?;
        // SAFETY: all-zero is a valid value of this struct of integers, and the kernel wrote integers to it.
        Ok(u64::from(unsafe { stats.assume_init() }.tp_drops))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn check(rc: libc::c_int) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn bind(socket: &Socket, device: &str, protocol: u16) -> io::Result<libc::c_int> {
    let index = rustix::net::netdevice::name_to_index(socket, device)? as libc::c_int;
    // SAFETY: all-zero is a valid value of this struct of integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    // SAFETY: the pointer and the length describe `address`, which outlives the call.
    check(unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    })?;
    Ok(index)
}

fn set_option<T>(socket: &Socket, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which the kernel only reads.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}

/// Makes the child run in a network namespace.
pub(super) fn run_in(command: &mut Command, namespace: File) {
    // SAFETY: between fork and exec the closure makes one system call; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || enter_file(&namespace));
    }
}

/// Makes the kernel kill the child when the thread that spawned it ends, so that no child survives a `kill -9`.
pub(super) fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)));
    }
}

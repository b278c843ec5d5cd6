//! What every backend asks of a network interface: its number, flags and MTU, and its offloads turned off.
#![expect(unsafe_code, reason = "interface ioctls have no safe binding")]

use crate::NetError;
use libc::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The command of ethtool that turns receive coalescing on or off.
const SET_GRO: u32 = 0x2c;

pub(super) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A socket to ask about interfaces with. It receives nothing.
pub(super) fn socket() -> io::Result<OwnedFd> {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, flags, None)?)
}

/// Turns off segmentation, receive coalescing and transmit checksum offloads of an interface in this thread's network
/// namespace (what `ethtool -K IF tx off tso off gso off gro off lro off` does), as far as it has them. For a veth
/// whose peer is a port of a switch: the settings stay with the interface when it is moved to another namespace.
/// # Errors
/// [`NetError::NoSuchInterface`], [`NetError::NotPermitted`], [`NetError::Io`].
pub fn disable_offloads(interface: &str) -> Result<(), NetError> {
    let socket = socket().map_err(|e| net_error(interface, "open a socket", e))?;
    disable_offloads_with(socket.as_fd(), interface)
}

pub(super) fn disable_offloads_with(socket: BorrowedFd<'_>, interface: &str) -> Result<(), NetError> {
    const SET_TX_CHECKSUM: u32 = 0x17;
    const SET_TSO: u32 = 0x1f;
    const SET_GSO: u32 = 0x24;
    for command in [SET_TX_CHECKSUM, SET_TSO, SET_GSO, SET_GRO] {
        match ethtool_set(socket, interface, command, 0) {
            Err(e) if e.raw_os_error() != Some(libc::EOPNOTSUPP) => {
                return Err(net_error(interface, "turn offloads off", e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Turns receive coalescing of an interface on. For the peer of a veth to which an XDP program sends frames, if nothing else at
/// that peer takes them: without it, and without a program of its own, it drops them and counts nothing.
/// # Errors
/// As [`disable_offloads`].
pub fn enable_gro(interface: &str) -> Result<(), NetError> {
    let socket = socket().map_err(|e| net_error(interface, "open a socket", e))?;
    ethtool_set(socket.as_fd(), interface, SET_GRO, 1).map_err(|e| net_error(interface, "turn coalescing on", e))
}

/// Offloads of an interface that join or split frames, and are on: none may be where a switch forwards. A switch turns the
/// first three off at its own ports. `lro`, which is a matter of the driver, stays.
/// # Errors
/// System errors; an interface without such settings has none on.
pub fn joining_offloads(interface: &str) -> io::Result<Vec<&'static str>> {
    const GET_TSO: u32 = 0x1e;
    const GET_GSO: u32 = 0x23;
    const GET_GRO: u32 = 0x2b;
    const GET_FLAGS: u32 = 0x25;
    const FLAG_LRO: u32 = 1 << 15;
    let socket = socket()?;
    let mut on = Vec::new();
    for (name, command, mask) in
        [("tso", GET_TSO, 1), ("gso", GET_GSO, 1), ("gro", GET_GRO, 1), ("lro", GET_FLAGS, FLAG_LRO)]
    {
        match ethtool_get(socket.as_fd(), interface, command) {
            Ok(value) if value & mask != 0 => on.push(name),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(on)
}

/// Maps the system's errors to those that a caller can act on.
pub(super) fn net_error(interface: &str, action: &'static str, source: io::Error) -> NetError {
    let device = interface.to_owned();
    match source.raw_os_error() {
        Some(libc::ENETDOWN | libc::ENXIO) => NetError::Down { device, source },
        Some(libc::ENODEV) => NetError::NoSuchInterface { device },
        Some(libc::EPERM | libc::EACCES) => NetError::NotPermitted { device, action },
        _ => NetError::Io { device, action, source },
    }
}

/// The number of receive queues; one for an interface that does not say.
pub(super) fn receive_queues(fd: BorrowedFd<'_>, interface: &str) -> io::Result<u32> {
    const GET_CHANNELS: u32 = 0x3c;
    let mut request = request(interface).ok_or(io::ErrorKind::InvalidInput)?;
    // Command; most rx, tx, other and combined; rx, tx, other and combined.
    let mut payload = [0u32; 9];
    payload[0] = GET_CHANNELS;
    request.ifr_ifru.ifru_data = payload.as_mut_ptr().cast();
    match ioctl(fd, libc::SIOCETHTOOL, &mut request) {
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(e) => Err(e),
        Ok(()) => Ok((payload[5] + payload[8]).max(1)),
    }
}

/// Has an interface receive frames for any address, as long as this packet socket is open.
pub(super) fn receive_all(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let size = size_of::<libc::packet_mreq>() as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
    // SAFETY: `membership` is valid for reads of its size during the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const membership).cast(), size) })?;
    Ok(())
}

/// Whether an interface that was down is up again.
/// # Errors
/// [`NetError::Down`] if it is down; otherwise the reason why that is unknown.
pub(super) fn check_up(fd: BorrowedFd<'_>, interface: &str) -> Result<(), NetError> {
    match is_up(fd, interface) {
        Ok(true) => Ok(()),
        Ok(false) => Err(net_error(interface, "receive", io::Error::from_raw_os_error(libc::ENETDOWN))),
        Err(e) => Err(net_error(interface, "read the flags", e)),
    }
}

/// An interface that receives frames for any address for as long as this value exists, with a socket for requests about
/// it.
#[derive(Debug)]
pub(super) struct Promiscuous(OwnedFd);

impl Promiscuous {
    /// `on`: whether it is to receive frames for any address.
    pub(super) fn new(interface: &str, on: bool) -> Result<Self, NetError> {
        let fail = |action| move |e: io::Error| net_error(interface, action, e);
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(rustix::net::AddressFamily::PACKET, rustix::net::SocketType::RAW, flags, None)
                .map_err(|e| fail("open a packet socket")(e.into()))?;
        if on {
            let index = rustix::net::netdevice::name_to_index(&socket, interface)
                .map_err(|e| fail("find the interface")(e.into()))?;
            receive_all(socket.as_fd(), index).map_err(fail("enter promiscuous mode"))?;
        }
        Ok(Self(socket))
    }
}

impl AsFd for Promiscuous {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An interface request with a name in it. None if the name is too long for the kernel.
fn request(interface: &str) -> Option<libc::ifreq> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Some(request)
}

fn ioctl(fd: BorrowedFd<'_>, code: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every code used here takes an ifreq; pointers in it are set up by the caller and outlive the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), code as _, std::ptr::from_mut(request)) })?;
    Ok(())
}

/// MTU in bytes.
pub(super) fn mtu(fd: BorrowedFd<'_>, interface: &str) -> io::Result<usize> {
    let mut request = request(interface).ok_or(io::ErrorKind::InvalidInput)?;
    ioctl(fd, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: SIOCGIFMTU fills this member.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Whether the interface is administratively up.
pub(super) fn is_up(fd: BorrowedFd<'_>, interface: &str) -> io::Result<bool> {
    let mut request = request(interface).ok_or(io::ErrorKind::InvalidInput)?;
    ioctl(fd, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: SIOCGIFFLAGS fills this member.
    Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0)
}

/// Whether senders at the other end are stacks of this machine, which leave checksums to hardware that is not there: a veth, or a TAP of
/// a guest. An interface that does not say what it is is none.
pub(super) fn is_virtual(fd: BorrowedFd<'_>, interface: &str) -> bool {
    driver_with(fd, interface).is_some_and(|driver| matches!(&*driver, b"veth" | b"tun"))
}

/// The kernel's driver of an interface in this thread's network namespace, such as `veth`, or `tun` for a TAP; none if it does not say.
pub fn driver_of(interface: &str) -> Option<String> {
    let name = driver_with(socket().ok()?.as_fd(), interface)?;
    String::from_utf8(name).ok()
}

fn driver_with(fd: BorrowedFd<'_>, interface: &str) -> Option<Vec<u8>> {
    const GET_DRIVER: u32 = 3;
    let mut request = request(interface)?;
    // Command, name of the driver, and others that are not asked for.
    let mut payload = [0u32; 49];
    payload[0] = GET_DRIVER;
    request.ifr_ifru.ifru_data = payload.as_mut_ptr().cast();
    ioctl(fd, libc::SIOCETHTOOL, &mut request).ok()?;
    Some(payload[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect())
}

/// Reads one value through the ethtool ioctl.
pub(super) fn ethtool_get(fd: BorrowedFd<'_>, interface: &str, command: u32) -> io::Result<u32> {
    let mut request = request(interface).ok_or(io::ErrorKind::InvalidInput)?;
    let mut payload = [command, 0];
    request.ifr_ifru.ifru_data = payload.as_mut_ptr().cast();
    ioctl(fd, libc::SIOCETHTOOL, &mut request)?;
    Ok(payload[1])
}

/// Sets one value through the ethtool ioctl.
pub(super) fn ethtool_set(fd: BorrowedFd<'_>, interface: &str, command: u32, value: u32) -> io::Result<()> {
    let mut request = request(interface).ok_or(io::ErrorKind::InvalidInput)?;
    let mut payload = [command, value];
    request.ifr_ifru.ifru_data = payload.as_mut_ptr().cast();
    ioctl(fd, libc::SIOCETHTOOL, &mut request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_the_caller_can_do() {
        let kind = |code| net_error("eth9", "send", io::Error::from_raw_os_error(code));
        assert!(matches!(kind(libc::ENETDOWN), NetError::Down { .. }));
        assert!(matches!(kind(libc::ENXIO), NetError::Down { .. }));
        assert!(matches!(kind(libc::ENODEV), NetError::NoSuchInterface { .. }));
        assert!(matches!(kind(libc::EPERM), NetError::NotPermitted { .. }));
        assert!(matches!(kind(libc::EIO), NetError::Io { .. }));
        assert!(kind(libc::ENETDOWN).is_transient() && !kind(libc::EPERM).is_transient());
    }
}

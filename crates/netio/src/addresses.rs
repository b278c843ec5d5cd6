//! The addresses of interfaces, as the kernel says at once over netlink (rtnetlink(7)).
//!
//! Of the network namespace of the thread that asks. Unlike routes, addresses are there while an interface is down, too.

use crate::netlink::{MESSAGE_HEADER, attribute, messages, u16_at, u32_at};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::IpAddr;

/// Types of messages: NLMSG_ERROR, NLMSG_DONE, RTM_NEWADDR, RTM_GETADDR.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
/// NLM_F_REQUEST | NLM_F_DUMP.
const DUMP: u16 = 0x301;
/// Bytes of the header of an address in a message.
const ADDRESS_HEADER: usize = 8;
/// The attributes with the address: of this end, and where there is none, of both.
const LOCAL: u16 = 2;
const ADDRESS: u16 = 1;
/// Addresses that every interface gets by itself have the scope of the link (RT_SCOPE_LINK).
const LINK_SCOPE: u8 = 253;
/// Bytes that the kernel says at one time.
const AT_ONCE: usize = 64 << 10;

/// The addresses of the interface with this number, each with the length of its prefix; none that are valid on the link only. One
/// question to the kernel, about all interfaces.
/// # Errors
/// The error of the operating system.
pub fn addresses_of(ifindex: u32) -> io::Result<Vec<(IpAddr, u8)>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    // No protocol is that of routes and interfaces, NETLINK_ROUTE.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    let mut request = Vec::with_capacity(MESSAGE_HEADER + ADDRESS_HEADER);
    request.extend(((MESSAGE_HEADER + ADDRESS_HEADER) as u32).to_ne_bytes());
    request.extend(GET_ADDRESS.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.resize(MESSAGE_HEADER + ADDRESS_HEADER, 0);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let (mut found, mut buffer) = (Vec::new(), vec![0; AT_ONCE]);
    loop {
        // A part of the answer is there when the question is sent, and the next one when this is read.
        let n = match rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, n)) => n.min(AT_ONCE),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Ok(found),
            Err(error) => return Err(error.into()),
        };
        for message in messages(&buffer[..n]) {
            match u16_at(message, 4) {
                Some(DONE) => return Ok(found),
                Some(ERROR) => {
                    let error = u32_at(message, MESSAGE_HEADER).unwrap_or_default() as i32;
                    return Err(io::Error::from_raw_os_error(-error));
                }
                _ => found.extend(address_in(message, ifindex)),
            }
        }
    }
}

fn address_in(message: &[u8], ifindex: u32) -> Option<(IpAddr, u8)> {
    let header = message.get(MESSAGE_HEADER..)?;
    let (prefix, scope) = (*header.get(1)?, *header.get(3)?);
    if u16_at(message, 4)? != NEW_ADDRESS || u32_at(header, 4)? != ifindex || scope >= LINK_SCOPE {
        return None;
    }
    let attributes = header.get(ADDRESS_HEADER..)?;
    let bytes = attribute(attributes, LOCAL).or_else(|| attribute(attributes, ADDRESS))?;
    let ip: IpAddr = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        16 => <[u8; 16]>::try_from(bytes).ok()?.into(),
        _ => return None,
    };
    Some((ip, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::ATTRIBUTE_HEADER;

    fn message(ifindex: u32, scope: u8, kind: u16, address: &[u8]) -> Vec<u8> {
        let mut message = vec![0; MESSAGE_HEADER];
        message[4..6].copy_from_slice(&NEW_ADDRESS.to_ne_bytes());
        message.extend([2, 24, 0, scope]);
        message.extend(ifindex.to_ne_bytes());
        message.extend(((ATTRIBUTE_HEADER + address.len()) as u16).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(address);
        let len = message.len() as u32;
        message[..4].copy_from_slice(&len.to_ne_bytes());
        message
    }

    #[test]
    fn addresses_are_those_of_the_interface_and_of_more_than_its_link() {
        let ours = ("10.0.0.7".parse().unwrap(), 24);
        assert_eq!(address_in(&message(7, 0, LOCAL, &[10, 0, 0, 7]), 7), Some(ours));
        assert_eq!(address_in(&message(7, 0, ADDRESS, &[10, 0, 0, 7]), 7), Some(ours));
        assert_eq!(address_in(&message(8, 0, LOCAL, &[10, 0, 0, 7]), 7), None, "of another interface");
        assert_eq!(address_in(&message(7, LINK_SCOPE, LOCAL, &[169, 254, 0, 7]), 7), None);
        let whole = message(7, 0, LOCAL, &[10, 0, 0, 7]);
        for n in 0..whole.len() {
            assert_eq!(address_in(&whole[..n], 7), None, "{n} bytes of {}", whole.len());
        }
    }

    #[test]
    fn no_interface_has_the_number_0() {
        assert_eq!(addresses_of(0).unwrap(), []);
    }
}

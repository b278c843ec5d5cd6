//! Carriers of interfaces, with immediate notification of changes by the kernel over netlink (rtnetlink(7)).
//!
//! Of the network namespace of the thread that opens it. Interfaces are known by name; one that is deleted has no carrier.

use crate::netlink::{MESSAGE_HEADER, attribute, messages, u16_at, u32_at};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::time::Duration;

/// rtnetlink's group of changes of interfaces (RTMGRP_LINK).
const LINKS: u32 = 1;
/// Types of messages.
const NEW_LINK: u16 = 16;
const DELETED_LINK: u16 = 17;
const GET_LINK: u16 = 18;
/// NLM_F_REQUEST | NLM_F_DUMP.
const DUMP: u16 = 0x301;
/// IFF_UP, IFF_LOWER_UP.
const HAS_CARRIER: u32 = 1 | 1 << 16;
/// The attribute with the name.
const IFNAME: u16 = 3;
/// Bytes of the header of the interface in a message.
const LINK_HEADER: usize = 16;

/// Bytes that the kernel says at one time.
const AT_ONCE: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub struct Carriers {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Carriers {
    /// Opens it. Its first messages cover all existing interfaces.
    /// # Errors
    /// The error of the operating system.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // No protocol is that of routes and interfaces, NETLINK_ROUTE.
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        let carriers = Self { socket, buffer: vec![0; AT_ONCE] };
        carriers.ask_for_all()?;
        Ok(carriers)
    }

    fn ask_for_all(&self) -> io::Result<()> {
        let mut request = Vec::with_capacity(MESSAGE_HEADER + LINK_HEADER);
        request.extend(((MESSAGE_HEADER + LINK_HEADER) as u32).to_ne_bytes());
        request.extend(GET_LINK.to_ne_bytes());
        request.extend(DUMP.to_ne_bytes());
        request.resize(MESSAGE_HEADER + LINK_HEADER, 0);
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        Ok(())
    }

    /// The next changes: interfaces in order, each with whether it has a carrier now. Empty if nothing changes within
    /// the time.
    /// # Errors
    /// The error of the operating system.
    pub fn wait(&mut self, at_most: Duration) -> io::Result<Vec<(String, bool)>> {
        let mut changes = Vec::new();
        let at_most = Timespec::try_from(at_most).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut socket, Some(&at_most)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        loop {
            match rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((_, n)) => parse(&self.buffer[..n.min(AT_ONCE)], &mut changes),
                Err(Errno::AGAIN) => return Ok(changes),
                Err(Errno::INTR) => {}
                // More changed than the socket had room for: all is asked for again.
                Err(Errno::NOBUFS) => self.ask_for_all()?,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Adds what messages say. Malformed ones, which the kernel does not send, end it.
fn parse(bytes: &[u8], changes: &mut Vec<(String, bool)>) {
    changes.extend(messages(bytes).filter_map(change_in));
}

fn change_in(message: &[u8]) -> Option<(String, bool)> {
    let kind = u16_at(message, 4)?;
    let flags = u32_at(message, MESSAGE_HEADER + 8)?;
    if kind != NEW_LINK && kind != DELETED_LINK {
        return None;
    }
    let name = attribute(message.get(MESSAGE_HEADER + LINK_HEADER..)?, IFNAME)?;
    let name = name.split(|byte| *byte == 0).next()?;
    let has_carrier = kind == NEW_LINK && flags & HAS_CARRIER == HAS_CARRIER;
    Some((String::from_utf8_lossy(name).into_owned(), has_carrier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::ATTRIBUTE_HEADER;

    fn message(kind: u16, flags: u32, name: &[u8]) -> Vec<u8> {
        let mut attributes = Vec::new();
        // One before it, of an odd length.
        attributes.extend(5_u16.to_ne_bytes());
        attributes.extend(9_u16.to_ne_bytes());
        attributes.extend([1, 0, 0, 0]);
        attributes.extend(((ATTRIBUTE_HEADER + name.len()) as u16).to_ne_bytes());
        attributes.extend(IFNAME.to_ne_bytes());
        attributes.extend(name);
        attributes.resize(attributes.len().next_multiple_of(4), 0);
        let mut bytes = Vec::new();
        bytes.extend(((MESSAGE_HEADER + LINK_HEADER + attributes.len()) as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(MESSAGE_HEADER + 8, 0);
        bytes.extend(flags.to_ne_bytes());
        bytes.resize(MESSAGE_HEADER + LINK_HEADER, 0);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn messages_are_read_and_malformed_ones_end_it() {
        let mut bytes = message(NEW_LINK, HAS_CARRIER, b"eth0\0");
        bytes.extend(message(NEW_LINK, 1, b"eth1\0"));
        bytes.extend(message(99, HAS_CARRIER, b"no\0"));
        bytes.extend(message(DELETED_LINK, HAS_CARRIER, b"eth2\0"));
        let read = |bytes: &[u8]| {
            let mut changes = Vec::new();
            parse(bytes, &mut changes);
            changes
        };
        let all = [("eth0", true), ("eth1", false), ("eth2", false)].map(|(name, is)| (name.to_owned(), is));
        assert_eq!(read(&bytes), all);
        for end in 0..bytes.len() {
            let some = read(&bytes[..end]);
            assert!(all.starts_with(&some));
        }
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0xff;
            read(&wrong);
        }
    }
}

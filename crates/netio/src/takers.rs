//! Which interfaces take frames that a program redirects to them, as the kernel says over generic netlink (family `netdev`,
//! Linux 6.3). One that does not, such as a veth whose other end has neither a program nor GRO, loses them, and they are not
//! counted.
//!
//! This is so of a program in the driver: one in front of the stack sends to any interface.
//!
//! Of the network namespace of the thread that opens it.

use crate::netlink::{ATTRIBUTE_HEADER, MESSAGE_HEADER, attribute, messages, u16_at, u32_at};
use rustix::fd::OwnedFd;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;

/// The controller of families, its question for one, and attributes: a family's number and name.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// The family's question for an interface, and attributes: its number and what it can.
const GET_DEVICE: u8 = 1;
const INTERFACE: u16 = 1;
const FEATURES: u16 = 3;
/// The feature: it sends frames that are redirected to it (NETDEV_XDP_ACT_NDO_XMIT).
const TAKES: u64 = 1 << 2;
/// The type of a message with an error, and the flag of a question.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// Bytes of the header behind that of the message.
const GENERIC_HEADER: usize = 4;
/// Bytes of an answer at most.
const AT_ONCE: usize = 8 << 10;

/// See the module.
#[derive(Debug)]
pub struct Takers {
    socket: OwnedFd,
    family: u16,
    /// Of the last question.
    sequence: u32,
}

impl Takers {
    /// Opens it. None: this kernel does not say.
    /// # Errors
    /// The error of the operating system.
    pub fn open() -> io::Result<Option<Self>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        let mut takers = Self { socket, family: CONTROLLER, sequence: 0 };
        let answer = match takers.ask(GET_FAMILY, FAMILY_NAME, b"netdev\0") {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            answer => answer?,
        };
        let id = attribute(&answer, FAMILY_ID).and_then(|id| u16_at(id, 0));
        takers.family = id.ok_or_else(|| io::Error::other("the kernel gives the family netdev no number"))?;
        Ok(Some(takers))
    }

    /// Whether an interface takes redirected frames now.
    /// # Errors
    /// The error of the operating system; `ENODEV` without such an interface.
    pub fn takes(&mut self, ifindex: u32) -> io::Result<bool> {
        let answer = self.ask(GET_DEVICE, INTERFACE, &ifindex.to_ne_bytes())?;
        let features = attribute(&answer, FEATURES).and_then(|features| features.first_chunk());
        let features = features.ok_or_else(|| io::Error::other("the kernel does not say what the interface can"))?;
        Ok(u64::from_ne_bytes(*features) & TAKES != 0)
    }

    /// Asks with one attribute, and returns the attributes of the answer, which has come when the question is sent.
    fn ask(&mut self, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
        let len = ATTRIBUTE_HEADER + value.len();
        let mut question = Vec::with_capacity(MESSAGE_HEADER + GENERIC_HEADER + len + 3);
        question.extend(((MESSAGE_HEADER + GENERIC_HEADER + len.next_multiple_of(4)) as u32).to_ne_bytes());
        question.extend(self.family.to_ne_bytes());
        question.extend(REQUEST.to_ne_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        question.extend(self.sequence.to_ne_bytes());
        question.resize(MESSAGE_HEADER, 0);
        // The command, the version of the family, and two spare bytes.
        question.extend([command, 1, 0, 0]);
        question.extend((len as u16).to_ne_bytes());
        question.extend(kind.to_ne_bytes());
        question.extend(value);
        question.resize(question.len().next_multiple_of(4), 0);
        rustix::net::send(&self.socket, &question, SendFlags::empty())?;
        let mut answer = vec![0; AT_ONCE];
        loop {
            let (_, n) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            // One that was late is of another question.
            let mut ours =
                messages(&answer[..n.min(AT_ONCE)]).filter(|message| u32_at(message, 8) == Some(self.sequence));
            let Some(message) = ours.next() else { continue };
            if u16_at(message, 4) == Some(ERROR) {
                let error = u32_at(message, MESSAGE_HEADER).unwrap_or_default() as i32;
                return Err(io::Error::from_raw_os_error(-error));
            }
            return Ok(message.get(MESSAGE_HEADER + GENERIC_HEADER..).unwrap_or_default().to_vec());
        }
    }
}

//! Frames that interfaces lose before a device gets them, and maximum frame lengths, as the kernel reports on request
//! (rtnetlink(7)).
//!
//! Of the network namespace of the thread that opens it. The kernel counts since an interface was made; here it is counted since an
//! interface was first asked for, and on when one is made again under its name.
//!
//! Not counted: frames that an interface could not send because its queue was full. A device that sends is told so, and counts them.

use crate::netlink::{ATTRIBUTE_HEADER, MESSAGE_HEADER, attribute, messages, u16_at, u32_at};
use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::HashMap;
use std::io;

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
/// NLMSG_ERROR.
const REFUSED: u16 = 2;
/// NLM_F_REQUEST.
const REQUEST: u16 = 1;
/// Bytes of the header of the interface in a message.
const LINK_HEADER: usize = 16;
/// Attributes: the name, the MTU, and `struct rtnl_link_stats64`.
const IFNAME: u16 = 3;
const MTU: u16 = 4;
const STATS64: u16 = 23;
/// The longest name of an interface, with its end.
const NAME_BYTES: usize = 16;
/// Answers of an interface with many virtual functions are longer than most.
const AT_ONCE: usize = 64 << 10;

/// The losses of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Frames that came whole and were discarded: by the kernel, which found them too long or had no room, and by a card without room.
    pub rx_dropped: u64,
    /// Damaged frames.
    pub rx_errors: u64,
    /// Frames that it took and could not send.
    pub tx_errors: u64,
}

impl Losses {
    /// The increase; the whole value, if the count was reset.
    fn since(self, before: Self) -> Self {
        let more = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self {
            rx_dropped: more(self.rx_dropped, before.rx_dropped),
            rx_errors: more(self.rx_errors, before.rx_errors),
            tx_errors: more(self.tx_errors, before.tx_errors),
        }
    }
}

impl std::ops::AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.rx_dropped += other.rx_dropped;
        self.rx_errors += other.rx_errors;
        self.tx_errors += other.tx_errors;
    }
}

/// An interface, when it was asked for last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Losses since the first request.
    pub lost: Losses,
    /// The longest packet that it can carry; 0: the interface does not exist.
    pub mtu: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Statistics {
    socket: OwnedFd,
    sequence: u32,
    /// Of each interface what the kernel said last, and what is made of it.
    known: HashMap<String, (Losses, State)>,
    buffer: Vec<u8>,
}

impl Statistics {
    /// Opens it.
    /// # Errors
    /// The error of the operating system.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0, known: HashMap::new(), buffer: vec![0; AT_ONCE] })
    }

    /// Asks for an interface. One that is missing has lost what it had lost before.
    /// # Errors
    /// The error of the operating system.
    pub fn of(&mut self, interface: &str) -> io::Result<State> {
        let said = self.ask(interface)?;
        let Some((now, mtu)) = said else {
            let Some((last, state)) = self.known.get_mut(interface) else { return Ok(State::default()) };
            // The next one of its name counts from 0.
            (*last, state.mtu) = (Losses::default(), 0);
            return Ok(*state);
        };
        let (last, state) = self.known.entry(interface.to_owned()).or_insert((now, State::default()));
        state.lost += now.since(*last);
        (*last, state.mtu) = (now, mtu);
        Ok(*state)
    }

    fn ask(&mut self, interface: &str) -> io::Result<Option<(Losses, u32)>> {
        if interface.is_empty() || interface.len() >= NAME_BYTES || interface.contains('\0') {
            return Ok(None);
        }
        self.sequence = self.sequence.wrapping_add(1);
        rustix::net::send(&self.socket, &request(interface, self.sequence), SendFlags::empty())?;
        // The kernel answers before `send` returns.
        loop {
            let (_, n) = rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
            if let Some(answer) = answer_in(&self.buffer[..n.min(AT_ONCE)], self.sequence) {
                return Ok(answer);
            }
        }
    }
}

/// A question for one interface.
fn request(interface: &str, sequence: u32) -> Vec<u8> {
    let attribute_len = ATTRIBUTE_HEADER + interface.len() + 1;
    let len = MESSAGE_HEADER + LINK_HEADER + attribute_len.next_multiple_of(4);
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(GET_LINK.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.resize(MESSAGE_HEADER + LINK_HEADER, 0);
    bytes.extend((attribute_len as u16).to_ne_bytes());
    bytes.extend(IFNAME.to_ne_bytes());
    bytes.extend(interface.as_bytes());
    bytes.resize(len, 0);
    bytes
}

/// The answer to a request; the inner none means that the interface does not exist.
fn answer_in(bytes: &[u8], sequence: u32) -> Option<Option<(Losses, u32)>> {
    let message = messages(bytes).find(|message| u32_at(message, 8) == Some(sequence))?;
    match u16_at(message, 4)? {
        NEW_LINK => Some(losses_in(message)),
        REFUSED => Some(None),
        _ => None,
    }
}

/// ```text
///  8 bytes each: 4 rx_errors | 5 tx_errors | 6 rx_dropped | 15 rx_missed_errors
/// ```
fn losses_in(message: &[u8]) -> Option<(Losses, u32)> {
    let attributes = message.get(MESSAGE_HEADER + LINK_HEADER..)?;
    let counts = attribute(attributes, STATS64)?;
    let count = |at: usize| Some(u64::from_ne_bytes(counts.get(8 * at..8 * at + 8)?.try_into().ok()?));
    let losses =
        Losses { rx_dropped: count(6)?.saturating_add(count(15)?), rx_errors: count(4)?, tx_errors: count(5)? };
    Some((losses, attribute(attributes, MTU).and_then(|mtu| u32_at(mtu, 0)).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, sequence: u32, counts: &[u64], mtu: u32) -> Vec<u8> {
        let mut attributes = Vec::new();
        attributes.extend(8_u16.to_ne_bytes());
        attributes.extend(MTU.to_ne_bytes());
        attributes.extend(mtu.to_ne_bytes());
        attributes.extend(((ATTRIBUTE_HEADER + 8 * counts.len()) as u16).to_ne_bytes());
        attributes.extend(STATS64.to_ne_bytes());
        counts.iter().for_each(|count| attributes.extend(count.to_ne_bytes()));
        let mut bytes = Vec::new();
        bytes.extend(((MESSAGE_HEADER + LINK_HEADER + attributes.len()) as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(0_u16.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.resize(MESSAGE_HEADER + LINK_HEADER, 0);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn answers_are_read_and_cut_ones_are_none() {
        let counts: Vec<u64> = (0..24).map(|i| 100 + i).collect();
        let answer = message(NEW_LINK, 7, &counts, 1500);
        let losses = Losses { rx_dropped: 106 + 115, rx_errors: 104, tx_errors: 105 };
        assert_eq!(answer_in(&answer, 7), Some(Some((losses, 1500))));
        assert_eq!(answer_in(&answer, 8), None, "of another question");
        assert_eq!(answer_in(&message(REFUSED, 7, &[], 0), 7), Some(None));
        assert_eq!(answer_in(&message(NEW_LINK, 7, &counts[..10], 1500), 7), Some(None));
        for len in 0..answer.len() {
            assert!(!matches!(answer_in(&answer[..len], 7), Some(Some(_))), "{len} bytes");
        }
    }

    #[test]
    fn counting_that_begins_anew_goes_on() {
        let losses = |n| Losses { rx_dropped: n, rx_errors: 0, tx_errors: 0 };
        assert_eq!(losses(7).since(losses(5)), losses(2));
        assert_eq!(losses(3).since(losses(5)), losses(3));
    }

    #[test]
    fn the_loopback_interface_has_an_mtu_and_one_that_is_missing_has_none() {
        let mut statistics = Statistics::open().unwrap();
        assert!(statistics.of("lo").unwrap().mtu > 0);
        assert_eq!(statistics.of("lo").unwrap().lost, Losses::default());
        for missing in ["", "no-such-if", "longer-than-any-name"] {
            assert_eq!(statistics.of(missing).unwrap(), State::default(), "{missing}");
        }
    }
}

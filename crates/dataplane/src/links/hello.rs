//! The frame with which a switch announces itself at a trunk, with the neighbour that it hears.
//!
//! ```text
//!   0  destination 6       03:66:69:62:75:6c, a group that bridges forward: so one in between is noticed
//!   6  source 6            02, and the first 5 bytes of the session
//!  12  shim 4              88 B5, hops 1, flags 0
//!  16  type 2              88 B6
//!  18  version 1           1
//!  19  multiplier 1        hellos in a row that may be lost
//!  20  interval 2          milliseconds between two hellos
//!  22  port 2              of the sender
//!  24  session 8           random, another one after each start; not 0
//!  32  heard session 8     the neighbour that the sender hears at this port; 0: none
//!  40  heard port 2
//!  42  cluster 8           the network; 0: not known yet
//!  50  length 1            of the name, 1 to 255
//!  51  name                of the sender, UTF-8
//! ```
//! Numbers are little-endian. The frame is filled up with zeros to 60 bytes. `docs/formats/link-hellos.md` has the rules.

use crate::shim;
use fib::action::PortId;

/// The group that hellos are sent to.
pub const GROUP: [u8; 6] = [0x03, b'f', b'i', b'b', b'u', b'l'];
/// The EtherType after the shim; IEEE 802 sets it aside for local experiments, as that of the shim.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb6];
const VERSION: u8 = 1;
const NAME_AT: usize = 51;
/// The most bytes of a switch's name in a hello.
const MAX_NAME: usize = 255;
/// Bytes of the shortest frame of Ethernet.
const SHORTEST: usize = 60;

/// A hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The name of the sender.
    pub switch: String,
    /// The port that it left by.
    pub port: PortId,
    /// Distinguishes starts of the sender.
    pub session: u64,
    /// The session and the port that the sender hears at this port.
    pub hears: Option<(u64, PortId)>,
    /// The sender's network; 0 if the sender does not know it.
    pub cluster: u64,
    /// Milliseconds between two hellos.
    pub interval_ms: u16,
    /// Hellos in a row that may be lost.
    pub multiplier: u8,
}

impl Hello {
    /// The frame.
    pub fn encode(&self) -> Vec<u8> {
        let name = &self.switch.as_bytes()[..self.switch.floor_char_boundary(MAX_NAME)];
        let (heard, heard_port) = self.hears.unwrap_or_default();
        let mut frame = Vec::with_capacity(SHORTEST);
        frame.extend(GROUP);
        frame.push(2);
        frame.extend(&self.session.to_le_bytes()[..5]);
        frame.extend(shim::ETHER_TYPE);
        frame.extend([1, 0]);
        frame.extend(ETHER_TYPE);
        frame.extend([VERSION, self.multiplier]);
        frame.extend(self.interval_ms.to_le_bytes());
        frame.extend(self.port.0.to_le_bytes());
        frame.extend(self.session.to_le_bytes());
        frame.extend(heard.to_le_bytes());
        frame.extend(heard_port.0.to_le_bytes());
        frame.extend(self.cluster.to_le_bytes());
        frame.push(name.len() as u8);
        frame.extend(name);
        frame.resize(frame.len().max(SHORTEST), 0);
        frame
    }

    /// The hello in a frame; none in another frame, or in one that no switch sends.
    pub fn decode(frame: &[u8]) -> Option<Self> {
        let is_hello = frame.get(..6)? == GROUP && shim::is_present(frame) && frame.get(16..18)? == ETHER_TYPE;
        if !is_hello || *frame.get(18)? != VERSION {
            return None;
        }
        let u64_at = |at: usize| Some(u64::from_le_bytes(frame.get(at..at + 8)?.try_into().ok()?));
        let u16_at = |at: usize| Some(u16::from_le_bytes(frame.get(at..at + 2)?.try_into().ok()?));
        let heard = (u64_at(32)?, PortId(u16_at(40)?));
        let len = usize::from(*frame.get(NAME_AT - 1)?);
        let name = std::str::from_utf8(frame.get(NAME_AT..NAME_AT + len)?).ok()?;
        let hello = Self {
            switch: name.to_owned(),
            port: PortId(u16_at(22)?),
            session: u64_at(24)?,
            hears: Some(heard).filter(|heard| heard.0 != 0),
            cluster: u64_at(42)?,
            interval_ms: u16_at(20)?,
            multiplier: frame[19],
        };
        let is_name = !name.is_empty() && !name.chars().any(char::is_control);
        let is_sound = hello.session != 0 && hello.interval_ms != 0 && hello.multiplier != 0;
        (is_name && is_sound).then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(name: &str) -> Hello {
        Hello {
            switch: name.to_owned(),
            port: PortId(7),
            session: 0x0102_0304_0506_0708,
            hears: Some((9, PortId(513))),
            cluster: 5,
            interval_ms: 100,
            multiplier: 3,
        }
    }

    /// The bytes are a format: docs/formats/link-hellos.md.
    #[test]
    fn a_hello_has_these_bytes() {
        let mut bytes =
            vec![0x03, 0x66, 0x69, 0x62, 0x75, 0x6c, 2, 8, 7, 6, 5, 4, 0x88, 0xb5, 1, 0, 0x88, 0xb6, 1, 3, 100, 0];
        bytes.extend([
            7, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 2, 5, 0, 0, 0, 0, 0, 0, 0, 2, b's', b'1',
        ]);
        bytes.resize(60, 0);
        assert_eq!(hello("s1").encode(), bytes);
    }

    #[test]
    fn hellos_come_back_and_what_is_none_is_refused() {
        for name in ["s1", &"x".repeat(255)] {
            for hears in [None, Some((u64::MAX, PortId(u16::MAX)))] {
                let hello = Hello { hears, ..hello(name) };
                assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            }
        }
        // A longer name is cut between two letters.
        let long = Hello::decode(&hello(&"ü".repeat(200)).encode()).unwrap();
        assert_eq!(long.switch, "ü".repeat(127));
        let whole = hello("s1").encode();
        (0..53).for_each(|end| assert_eq!(Hello::decode(&whole[..end]), None, "{end} bytes"));
        for (at, byte) in [(0, 1), (5, 0), (12, 0), (16, 0), (18, 2), (19, 0), (50, 0), (50, 65), (51, 0xff), (51, 7)] {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            assert_eq!(Hello::decode(&wrong), None, "byte {at}");
        }
        for field in [20..22, 24..32] {
            let mut wrong = whole.clone();
            wrong[field].fill(0);
            assert_eq!(Hello::decode(&wrong), None);
        }
    }
}

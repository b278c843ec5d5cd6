//! Frames of the Slow Protocols that bundles know: LACPDUs and markers (IEEE 802.1AX, 6.4.2 and 6.5.3).
//!
//! ```text
//!   0  destination 6   01:80:c2:00:00:02, which no bridge forwards
//!   6  source 6
//!  12  type 2          88 09
//!  14  subtype 1       1: LACP                            2: marker
//!  15  version 1       1                                  1
//!  16  actor 20        1, 20, then an end                 16  marker 16       1 (response: 2), 16, then
//!  36  partner 20      2, 20, then an end                 18  port 2          of who asks
//!  56  collector 16    3, 16, most delay 2, zeros         20  system 6
//!  72  terminator 52   zeros                              26  transaction 4
//!                                                         30  zeros
//!  an end: system priority 2, system 6, key 2, port priority 2, port 2, state 1, zeros 3
//! ```
//! Numbers are big-endian. A frame has 124 bytes. Later versions are read for the same fields, as the standard requires.

use std::fmt;

/// The group that these frames are sent to.
pub const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x02];
/// The EtherType.
const ETHER_TYPE: [u8; 2] = [0x88, 0x09];
const LACP: u8 = 1;
const MARKER: u8 = 2;
const VERSION: u8 = 1;
const ACTOR_AT: usize = 16;
const PARTNER_AT: usize = 36;
const COLLECTOR_AT: usize = 56;
const END_LEN: u8 = 20;
const COLLECTOR_LEN: u8 = 16;
/// The types of a marker: the request, and its answer.
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const MARKER_LEN: u8 = 16;
const MARKER_END: usize = 32;
/// Bytes of a frame.
const LEN: usize = 124;

/// The bits of an end's state.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct State(pub u8);

impl State {
    /// It speaks first.
    pub const ACTIVE: u8 = 1;
    /// It wants to hear something each second.
    pub const SHORT: u8 = 1 << 1;
    /// The link may be one of several.
    pub const AGGREGATES: u8 = 1 << 2;
    /// The link is in the right bundle.
    pub const IN_SYNC: u8 = 1 << 3;
    /// Frames that come are taken.
    pub const COLLECTS: u8 = 1 << 4;
    /// Frames are sent.
    pub const DISTRIBUTES: u8 = 1 << 5;
    /// It has not heard its partner, and uses configured assumptions.
    pub const DEFAULTED: u8 = 1 << 6;
    /// It has not heard its partner for a while.
    pub const EXPIRED: u8 = 1 << 7;

    /// Whether all these bits are set.
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }

    /// Sets bits or clears them.
    pub fn set(&mut self, bits: u8, is_set: bool) {
        self.0 = if is_set { self.0 | bits } else { self.0 & !bits };
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, letter) in "ASGYCDFE".chars().enumerate() {
            write!(f, "{}", if self.0 >> at & 1 != 0 { letter } else { '-' })?;
        }
        Ok(())
    }
}

/// One end of a link, as a PDU has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// The priority of the system; which of two is smaller does not matter here.
    pub system_priority: u16,
    /// The switch.
    pub system: [u8; 6],
    /// Links of one system with one key may be bundled.
    pub key: u16,
    /// The priority of the port.
    pub port_priority: u16,
    /// The port's number within the system.
    pub port: u16,
    /// Its state bits.
    pub state: State,
}

impl End {
    /// The bundle that it can be part of: the same system, with the same key.
    pub fn bundle(&self) -> Partner {
        Partner { system_priority: self.system_priority, system: self.system, key: self.key }
    }

    fn encode(&self, frame: &mut Vec<u8>) {
        frame.extend(self.system_priority.to_be_bytes());
        frame.extend(self.system);
        frame.extend(self.key.to_be_bytes());
        frame.extend(self.port_priority.to_be_bytes());
        frame.extend(self.port.to_be_bytes());
        frame.extend([self.state.0, 0, 0, 0]);
    }

    /// Reads an end from 18 bytes, of which 15 count.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let u16_at = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        Some(Self {
            system_priority: u16_at(0)?,
            system: bytes.get(2..8)?.try_into().ok()?,
            key: u16_at(8)?,
            port_priority: u16_at(10)?,
            port: u16_at(12)?,
            state: State(*bytes.get(14)?),
        })
    }
}

/// The common partner of all links of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Partner {
    /// The priority of the system.
    pub system_priority: u16,
    /// The switch or server.
    pub system: [u8; 6],
    /// Its bundle.
    pub key: u16,
}

impl fmt::Display for Partner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.system;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} key {}", self.key)
    }
}

/// The information of an end: its identity, and its partner as it knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pdu {
    /// The sender.
    pub actor: End,
    /// The partner that it hears.
    pub partner: End,
}

/// A frame of the Slow Protocols.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Slow {
    /// A PDU of LACP.
    Lacp(Pdu),
    /// A request whether everything before it has come; with the frame to answer with.
    Marker(Vec<u8>),
    /// An answer, which was not asked for here, or another protocol of this group.
    Other,
}

/// Why a frame of LACP or with a marker is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It is too short.
    #[error("{got} bytes, with a minimum of {least}")]
    Short {
        /// Its bytes.
        got: usize,
        /// The bytes it must have.
        least: usize,
    },
    /// A field has an invalid value.
    #[error("{got:?} at byte {at}, where {expected:?} must be")]
    Field {
        /// Where.
        at: usize,
        /// The value there.
        got: [u8; 2],
        /// The required value.
        expected: [u8; 2],
    },
    /// A sender that is a group, or version 0.
    #[error("an impossible sender, or version 0")]
    Sender,
}

/// Whether a frame belongs to the Slow Protocols.
#[inline]
pub fn is_slow(frame: &[u8]) -> bool {
    frame.get(..6) == Some(&GROUP) && frame.get(12..14) == Some(&ETHER_TYPE)
}

impl Slow {
    /// Reads a frame that [`is_slow`]. `system` answers markers.
    /// # Errors
    /// [`Malformed`].
    pub fn decode(frame: &[u8], system: [u8; 6]) -> Result<Self, Malformed> {
        let need =
            |least: usize| (frame.len() >= least).then_some(()).ok_or(Malformed::Short { got: frame.len(), least });
        let expect = |at: usize, expected: [u8; 2]| {
            let got = [frame[at], frame[at + 1]];
            (got == expected).then_some(()).ok_or(Malformed::Field { at, got, expected })
        };
        need(16)?;
        match frame[14] {
            LACP => {
                need(COLLECTOR_AT)?;
                expect(ACTOR_AT, [1, END_LEN])?;
                expect(PARTNER_AT, [2, END_LEN])?;
                let end = |at: usize| End::decode(&frame[at + 2..at + usize::from(END_LEN)]);
                let (Some(actor), Some(partner)) = (end(ACTOR_AT), end(PARTNER_AT)) else {
                    return Err(Malformed::Short { got: frame.len(), least: COLLECTOR_AT });
                };
                if actor.system[0] & 1 != 0 || actor.system == [0; 6] || frame[15] == 0 {
                    return Err(Malformed::Sender);
                }
                Ok(Self::Lacp(Pdu { actor, partner }))
            }
            MARKER => {
                need(MARKER_END)?;
                if frame[16] == RESPONSE {
                    return Ok(Self::Other);
                }
                expect(16, [REQUEST, MARKER_LEN])?;
                let mut answer = header(system);
                answer.extend([MARKER, VERSION, RESPONSE, MARKER_LEN]);
                answer.extend(&frame[18..MARKER_END]);
                answer.resize(LEN, 0);
                Ok(Self::Marker(answer))
            }
            _ => Ok(Self::Other),
        }
    }
}

impl Pdu {
    /// The frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = header(self.actor.system);
        frame.extend([LACP, VERSION, 1, END_LEN]);
        self.actor.encode(&mut frame);
        frame.extend([2, END_LEN]);
        self.partner.encode(&mut frame);
        frame.extend([3, COLLECTOR_LEN]);
        frame.resize(LEN, 0);
        frame
    }
}

fn header(system: [u8; 6]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LEN);
    frame.extend(GROUP);
    frame.extend(system);
    frame.extend(ETHER_TYPE);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn pdu() -> Pdu {
        let actor = End {
            system_priority: 0x8000,
            system: [2, 1, 2, 3, 4, 5],
            key: 0x0102,
            port_priority: 0x8001,
            port: 0x0304,
            state: State(State::ACTIVE | State::AGGREGATES),
        };
        Pdu { actor, partner: End { system: [2, 9, 9, 9, 9, 9], state: State(0xff), ..actor } }
    }

    /// The bytes are those of the standard.
    #[test]
    fn a_pdu_has_these_bytes() {
        let mut bytes = vec![1, 0x80, 0xc2, 0, 0, 2, 2, 1, 2, 3, 4, 5, 0x88, 9, 1, 1];
        bytes.extend([1, 20, 0x80, 0, 2, 1, 2, 3, 4, 5, 1, 2, 0x80, 1, 3, 4, 5, 0, 0, 0]);
        bytes.extend([2, 20, 0x80, 0, 2, 9, 9, 9, 9, 9, 1, 2, 0x80, 1, 3, 4, 0xff, 0, 0, 0]);
        bytes.extend([3, 16]);
        bytes.resize(124, 0);
        assert_eq!(pdu().encode(), bytes);
        assert!(is_slow(&bytes));
        assert_eq!(Slow::decode(&bytes, OWN), Ok(Slow::Lacp(pdu())));
        bytes[15] = 2;
        assert_eq!(Slow::decode(&bytes, OWN), Ok(Slow::Lacp(pdu())), "a later version");
        assert_eq!(format!("{:?} {:?}", pdu().actor.state, State(0x3d)), "A-G----- A-GYCD--");
    }

    #[test]
    fn what_is_no_pdu_is_refused_with_what_is_wrong() {
        let whole = pdu().encode();
        for end in 14..56 {
            let got = Slow::decode(&whole[..end], OWN);
            assert!(matches!(got, Err(Malformed::Short { .. })), "{end} bytes: {got:?}");
        }
        for (at, byte) in [(15, 0), (16, 2), (17, 19), (22, 1), (36, 1), (37, 255)] {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            // A system's first byte with the group bit.
            wrong[20] |= u8::from(at == 22);
            assert!(Slow::decode(&wrong, OWN).is_err(), "byte {at}");
        }
        let mut other = whole.clone();
        other[14] = 3;
        assert_eq!(Slow::decode(&other, OWN), Ok(Slow::Other));
        assert!(!is_slow(&[]) && !is_slow(&[0; 60]));
    }

    #[test]
    fn a_marker_is_answered_and_an_answer_is_not() {
        let mut marker = header([2, 7, 7, 7, 7, 7]);
        marker.extend([2, 1, 1, 16, 0, 5, 2, 7, 7, 7, 7, 7, 1, 2, 3, 4, 0, 0]);
        marker.resize(124, 0);
        let Ok(Slow::Marker(answer)) = Slow::decode(&marker, OWN) else { panic!("a marker") };
        assert_eq!((answer.len(), &answer[..6], &answer[6..12]), (124, &GROUP[..], &OWN[..]));
        assert_eq!((answer[14..18].to_vec(), &answer[18..32]), (vec![2, 1, 2, 16], &marker[18..32]));
        assert_eq!(Slow::decode(&answer, OWN), Ok(Slow::Other));
        (16..32).for_each(|end| assert!(Slow::decode(&marker[..end], OWN).is_err(), "{end} bytes"));
        marker[17] = 15;
        assert!(Slow::decode(&marker, OWN).is_err());
    }
}

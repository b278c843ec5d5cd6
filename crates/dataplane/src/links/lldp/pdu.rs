//! The LLDP frame: writing and reading it.
//!
//! ```text
//!   0  destination 6   a group
//!   6  source 6
//!  12  type 2          88 CC
//!  14  fields          kind 7 bits | length of the value 9 bits | value
//!
//!  1  chassis    subtype 1 | identifier 1 to 255     these three come first, in this order, and once
//!  2  port       subtype 1 | identifier 1 to 255
//!  3  TTL        seconds 2; 0: the sender goes
//!  4  text of the port   5  name   6  description    0 to 255 each, each once at most
//!  7  capabilities       what it can do 2 | what it does 2, once at most
//!  8  address            length 1 | family 1 | address | numbering 1 | interface 4 | length of an OID 1 | OID
//!  127  of an organisation   its number 3 | subtype 1 | value
//!  0  end                no value; or the end of the frame
//! ```
//! Numbers are big-endian. Reading is bounded: a frame that differs from the above is refused as a whole, and [`MOST_ADDRESSES`] addresses
//! are kept. Texts are kept so that they are safe to show: other characters are escaped.

use super::{ETHER_TYPE, GROUP};
use fib::action::PortId;
use std::net::IpAddr;

/// The most addresses of a neighbour that are kept.
pub const MOST_ADDRESSES: usize = 4;

const END: u16 = 0;
const CHASSIS: u16 = 1;
const PORT: u16 = 2;
const TTL: u16 = 3;
const PORT_TEXT: u16 = 4;
const NAME: u16 = 5;
const DESCRIPTION: u16 = 6;
const CAPABILITIES: u16 = 7;
const ADDRESS: u16 = 8;
const ORGANISATION: u16 = 127;

/// The kinds of identifiers of a chassis, by subtype from 1 on, and of a port.
const CHASSIS_KINDS: [&str; 7] =
    ["component", "interface_alias", "port_component", "mac", "address", "interface", "local"];
const PORT_KINDS: [&str; 7] = ["interface_alias", "port_component", "mac", "address", "interface", "circuit", "local"];
const LOCALLY_ASSIGNED: u8 = 7;
const INTERFACE_NAME: u8 = 5;
/// Families of addresses (IANA).
const IPV4: u8 = 1;
const IPV6: u8 = 2;

/// The beginning of the description that a switch sends.
pub(super) const OURS: &str = "fibula ";

const BRIDGE: u16 = 1 << 2;
/// The bits of capabilities.
const CAPABILITY_NAMES: [&str; 11] =
    ["other", "repeater", "bridge", "wlan", "router", "telephone", "docsis", "station", "cvlan", "svlan", "relay"];

/// The Link Aggregation field, as IEEE 802.1AX has it, and as IEEE 802.3 had it, which many receivers read.
const AGGREGATION_FIELDS: [[u8; 4]; 2] = [[0x00, 0x80, 0xc2, 7], [0x00, 0x12, 0x0f, 3]];

/// Bytes of the longest text, or identifier.
const MAX_TEXT: usize = 255;
const SHORTEST: usize = 60;
const HEADER: usize = 14;

/// The membership of a port in a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aggregation {
    /// Whether frames leave by it.
    pub is_used: bool,
    /// The port that the bundle forms.
    pub port: PortId,
}

/// What a switch announces about itself at a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// Its name.
    pub switch: String,
    /// The sender of the frame.
    pub source: [u8; 6],
    /// The port.
    pub port: PortId,
    /// The role of the other end, as the configuration calls it.
    pub role: &'static str,
    /// Its interface.
    pub device: String,
    /// The address at which the switch can be managed, if there is one.
    pub address: Option<IpAddr>,
}

impl Own {
    /// The frame; its contents hold for `ttl_s`.
    pub fn encode(&self, ttl_s: u16, aggregation: Option<Aggregation>) -> Vec<u8> {
        let Self { switch, port, role, .. } = self;
        let mut frame = self.begin(ttl_s);
        put(&mut frame, PORT_TEXT, &text(&format!("port {port} of {switch}, {role}"), None));
        put(&mut frame, NAME, &text(switch, None));
        put(&mut frame, DESCRIPTION, &text(&[OURS, env!("CARGO_PKG_VERSION")].concat(), None));
        put(&mut frame, CAPABILITIES, &[BRIDGE.to_be_bytes(), BRIDGE.to_be_bytes()].concat());
        if let Some(address) = self.address {
            let (family, bytes) = match address {
                IpAddr::V4(ip) => (IPV4, ip.octets().to_vec()),
                IpAddr::V6(ip) => (IPV6, ip.octets().to_vec()),
            };
            // Its interface is not known (1), and has no OID.
            let value = [&[bytes.len() as u8 + 1, family][..], &bytes, &[1, 0, 0, 0, 0, 0]].concat();
            put(&mut frame, ADDRESS, &value);
        }
        for field in AGGREGATION_FIELDS.iter().filter(|_| aggregation.is_some()) {
            let Some(Aggregation { is_used, port }) = aggregation else { continue };
            let state = 1 | u8::from(is_used) << 1;
            put(&mut frame, ORGANISATION, &[&field[..], &[state], &u32::from(port.0).to_be_bytes()].concat());
        }
        end(frame)
    }

    /// The frame that announces that the switch leaves.
    pub fn farewell(&self) -> Vec<u8> {
        end(self.begin(0))
    }

    fn begin(&self, ttl_s: u16) -> Vec<u8> {
        let mut frame = Vec::with_capacity(SHORTEST);
        frame.extend(GROUP);
        frame.extend(self.source);
        frame.extend(ETHER_TYPE);
        put(&mut frame, CHASSIS, &text(&self.switch, Some(LOCALLY_ASSIGNED)));
        put(&mut frame, PORT, &text(&self.device, Some(INTERFACE_NAME)));
        put(&mut frame, TTL, &ttl_s.to_be_bytes());
        frame
    }
}

/// The bytes of a text or identifier.
fn text(text: &str, subtype: Option<u8>) -> Vec<u8> {
    let end = text.floor_char_boundary(MAX_TEXT);
    subtype.into_iter().chain(text[..end].bytes()).collect()
}

fn put(frame: &mut Vec<u8>, kind: u16, value: &[u8]) {
    frame.extend((kind << 9 | value.len() as u16).to_be_bytes());
    frame.extend(value);
}

fn end(mut frame: Vec<u8>) -> Vec<u8> {
    put(&mut frame, END, &[]);
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

/// The identifier of a chassis or port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Id {
    /// The kind of identifier.
    pub kind: &'static str,
    /// The identifier, for people.
    pub text: String,
}

/// A capability, and whether it is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capability {
    /// Its name.
    pub name: &'static str,
    /// Whether it is in use.
    pub is_on: bool,
}

/// What a neighbour announces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// The sender of the frame.
    pub source: [u8; 6],
    /// Its chassis.
    pub chassis: Id,
    /// The port that it sends from.
    pub port: Id,
    /// The seconds for which it holds; 0: the sender leaves.
    pub ttl_s: u16,
    /// Its description of the port.
    pub port_text: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Its capabilities.
    pub capabilities: Vec<Capability>,
    /// Its management addresses.
    pub addresses: Vec<IpAddr>,
}

/// Why a frame of LLDP is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It ends inside a field, or before a required field.
    #[error("it ends at byte {at}, inside a field, or before the three required fields")]
    Short {
        /// Where.
        at: usize,
    },
    /// A field where another is required, or one that is repeated.
    #[error("field {kind} at byte {at}, where it is not allowed")]
    Order {
        /// Its kind.
        kind: u16,
        /// Where it begins.
        at: usize,
    },
    /// A value that the field cannot have.
    #[error("field {kind} at byte {at} has an invalid value of {len} bytes")]
    Value {
        /// Its kind.
        kind: u16,
        /// Where it begins.
        at: usize,
        /// Bytes of the value.
        len: usize,
    },
    /// The sender is a group, or zero.
    #[error("an impossible sender")]
    Sender,
}

impl Said {
    /// Reads a frame that [is one of LLDP](super::is_lldp).
    /// # Errors
    /// [`Malformed`].
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let short = Malformed::Short { at: frame.len() };
        let source = *frame.get(6..12).and_then(<[u8]>::first_chunk::<6>).ok_or(short)?;
        if source[0] & 1 != 0 || source == [0; 6] {
            return Err(Malformed::Sender);
        }
        let mut fields = Fields { frame, at: HEADER };
        let mut required = |kind: u16| {
            let field = fields.next().unwrap_or(Err(short))?;
            if field.kind == kind { Ok(field) } else { Err(field.misplaced()) }
        };
        let [chassis, port, ttl] = [required(CHASSIS)?, required(PORT)?, required(TTL)?];
        let mut said = Self {
            source,
            chassis: chassis.id(&CHASSIS_KINDS, [4, 5])?,
            port: port.id(&PORT_KINDS, [3, 4])?,
            // A later version may have more bytes here.
            ttl_s: ttl.value.first_chunk().map(|ttl| u16::from_be_bytes(*ttl)).ok_or(ttl.wrong())?,
            port_text: None,
            name: None,
            description: None,
            capabilities: Vec::new(),
            addresses: Vec::new(),
        };
        let mut seen = 0_u32;
        for field in fields {
            let field = field?;
            if (CHASSIS..=TTL).contains(&field.kind) {
                return Err(field.misplaced());
            }
            if (PORT_TEXT..=CAPABILITIES).contains(&field.kind) {
                if seen >> field.kind & 1 != 0 {
                    return Err(field.misplaced());
                }
                seen |= 1 << field.kind;
            }
            match field.kind {
                PORT_TEXT => said.port_text = field.text()?,
                NAME => said.name = field.text()?,
                DESCRIPTION => said.description = field.text()?,
                CAPABILITIES => said.capabilities = field.capabilities()?,
                ADDRESS => {
                    let address = field.address()?.filter(|_| said.addresses.len() < MOST_ADDRESSES);
                    said.addresses.extend(address);
                }
                ORGANISATION if field.value.len() < 4 => return Err(field.wrong()),
                // A field of an organisation, or of a later version.
                _ => {}
            }
        }
        Ok(said)
    }

    /// Whether both are the same port of the same chassis.
    pub fn is_from_same(&self, other: &Self) -> bool {
        self.chassis == other.chassis && self.port == other.port
    }
}

/// The fields of a frame, up to the one that ends them.
struct Fields<'a> {
    frame: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.frame.get(self.at..).filter(|rest| !rest.is_empty())?;
        let at = std::mem::replace(&mut self.at, self.frame.len());
        let short = Malformed::Short { at: self.frame.len() };
        let Some((head, rest)) = rest.split_first_chunk() else { return Some(Err(short)) };
        let head = u16::from_be_bytes(*head);
        let (kind, len) = (head >> 9, usize::from(head & 0x1ff));
        if kind == END {
            return (len > 0).then_some(Err(Malformed::Value { kind, at, len }));
        }
        let Some(value) = rest.get(..len) else { return Some(Err(short)) };
        self.at = at + 2 + len;
        Some(Ok(Field { kind, at, value }))
    }
}

#[derive(Clone, Copy)]
struct Field<'a> {
    kind: u16,
    at: usize,
    value: &'a [u8],
}

impl Field<'_> {
    fn misplaced(&self) -> Malformed {
        Malformed::Order { kind: self.kind, at: self.at }
    }

    fn wrong(&self) -> Malformed {
        Malformed::Value { kind: self.kind, at: self.at, len: self.value.len() }
    }

    /// `is_mac` and `is_address`: the subtypes that are no texts.
    fn id(&self, kinds: &[&'static str; 7], [is_mac, is_address]: [u8; 2]) -> Result<Id, Malformed> {
        let (subtype, bytes) = self.value.split_first().ok_or(self.wrong())?;
        if bytes.is_empty() || bytes.len() > MAX_TEXT {
            return Err(self.wrong());
        }
        let kind = *kinds.get(usize::from(*subtype).wrapping_sub(1)).ok_or(self.wrong())?;
        let text = if *subtype == is_mac {
            <[u8; 6]>::try_from(bytes).map(|_| hex(bytes)).map_err(|_| self.wrong())?
        } else if *subtype == is_address {
            address(bytes).map(|ip| ip.to_string()).unwrap_or_else(|| hex(bytes))
        } else {
            plain(bytes)
        };
        Ok(Id { kind, text })
    }

    fn text(&self) -> Result<Option<String>, Malformed> {
        if self.value.len() > MAX_TEXT {
            return Err(self.wrong());
        }
        Ok(Some(plain(self.value)).filter(|text| !text.is_empty()))
    }

    fn capabilities(&self) -> Result<Vec<Capability>, Malformed> {
        let [a, b, c, d] = *self.value.first_chunk().ok_or(self.wrong())?;
        let (has, uses) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let of = |(bit, name): (usize, &&'static str)| {
            (has >> bit & 1 != 0).then_some(Capability { name, is_on: uses >> bit & 1 != 0 })
        };
        Ok(CAPABILITY_NAMES.iter().enumerate().filter_map(of).collect())
    }

    /// The address; none of a family other than IP.
    fn address(&self) -> Result<Option<IpAddr>, Malformed> {
        let (len, rest) = self.value.split_first().ok_or(self.wrong())?;
        let len = usize::from(*len);
        // Behind it: the numbering, the number of an interface, and the length of an OID, with that.
        let is_whole =
            (2..=32).contains(&len) && rest.get(len + 5).is_some_and(|oid| rest.len() >= len + 6 + usize::from(*oid));
        if is_whole { Ok(address(&rest[..len])) } else { Err(self.wrong()) }
    }
}

/// A family and an address of it.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.split_first()? {
        (&IPV4, ip) => <[u8; 4]>::try_from(ip).ok().map(IpAddr::from),
        (&IPV6, ip) => <[u8; 16]>::try_from(ip).ok().map(IpAddr::from),
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// A foreign text, made safe to show: no control characters, and nothing that reverses lines or hides letters.
fn plain(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut text = String::new();
    for letter in String::from_utf8_lossy(&bytes[..end]).chars() {
        match letter {
            '\'' | '"' => text.push(letter),
            _ => text.extend(letter.escape_debug()),
        }
    }
    text
}

#[cfg(test)]
mod tests;

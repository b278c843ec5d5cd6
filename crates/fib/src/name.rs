//! Flat names, by which frames are forwarded: as bytes of one kind and as text that round-trips.
//!
//! Cost: 24 bytes per name of up to 16 bytes (MAC, IPv4, IPv6, IPv4 5-tuple, TEID), else 24 bytes and one allocation.
//! A table holds names of one kind, so the kind is not hashed: the digest of a name is the digest of
//! [`Name::as_bytes`], which a switch reads from the frame without conversion (network byte order throughout).
//!
//! | kind | text | bytes |
//! |---|---|---|
//! | `mac` | `02:00:00:00:00:01`; read also as `02-00-00-00-00-01`, `0200.0000.0001` and `020000000001` | 6 |
//! | `ipv4` | `10.0.0.1` | 4 |
//! | `ipv6` | `fd00::1` | 16 |
//! | `5-tuple` | `10.0.0.1:80->10.0.0.2:443/tcp`, `[fd00::1]:80->[fd00::2]:443/udp` | 13 or 37: source, destination, protocol, source port, destination port |
//! | `teid` | `0x0000002a` or `42` | 4 |
//! | `fixed:N` | `0x` and 2 N hexadecimal digits | N, 1 to 64 |
//! | `text` | itself: UTF-8 without control characters | 1 to 4096 |
//!
//! Limits: [`MAX_FIXED`], [`MAX_TEXT`].

use lookup::base::visible::visible;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Longest fixed match field, in bytes: holds the 356-bit OpenFlow field of the papers.
pub const MAX_FIXED: usize = 64;
/// Longest text name, in bytes: the longest path name of Linux.
pub const MAX_TEXT: usize = 4096;
const INLINE: usize = 16;

/// The kind of name a table is keyed by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NameKind {
    /// Ethernet address, 6 bytes.
    Mac,
    /// IPv4 address, 4 bytes.
    Ipv4,
    /// IPv6 address, 16 bytes.
    Ipv6,
    /// Source, destination, protocol, ports: 13 bytes for IPv4, 37 for IPv6.
    FiveTuple,
    /// GTP-U tunnel endpoint identifier, 4 bytes.
    Teid,
    /// A match field of this many bytes, 1 to [`MAX_FIXED`].
    Fixed(u8),
    /// UTF-8 text of 1 to [`MAX_TEXT`] bytes.
    Text,
}

impl NameKind {
    /// The kind as two bytes: an id, and the width of a fixed field (0 for the other kinds).
    pub fn to_wire(self) -> [u8; 2] {
        match self {
            NameKind::Mac => [1, 0],
            NameKind::Ipv4 => [2, 0],
            NameKind::Ipv6 => [3, 0],
            NameKind::FiveTuple => [4, 0],
            NameKind::Teid => [5, 0],
            NameKind::Fixed(width) => [6, width],
            NameKind::Text => [7, 0],
        }
    }

    /// The inverse of [`NameKind::to_wire`]; `None` for bytes it never returns.
    pub fn from_wire(wire: [u8; 2]) -> Option<NameKind> {
        Some(match wire {
            [1, 0] => NameKind::Mac,
            [2, 0] => NameKind::Ipv4,
            [3, 0] => NameKind::Ipv6,
            [4, 0] => NameKind::FiveTuple,
            [5, 0] => NameKind::Teid,
            [6, width] if width >= 1 && usize::from(width) <= MAX_FIXED => NameKind::Fixed(width),
            [7, 0] => NameKind::Text,
            _ => return None,
        })
    }

    /// Bytes of a name, if all names of this kind have as many.
    pub fn width(self) -> Option<usize> {
        match self {
            NameKind::Mac => Some(6),
            NameKind::Ipv4 | NameKind::Teid => Some(4),
            NameKind::Ipv6 => Some(16),
            NameKind::Fixed(width) => Some(width.into()),
            NameKind::FiveTuple | NameKind::Text => None,
        }
    }

    /// A name of this kind as an example for messages.
    pub fn example(self) -> &'static str {
        match self {
            NameKind::Mac => "02:00:00:00:00:01",
            NameKind::Ipv4 => "10.0.0.1",
            NameKind::Ipv6 => "fd00::1",
            NameKind::FiveTuple => "10.0.0.1:80->10.0.0.2:443/tcp",
            NameKind::Teid => "0x0000002a",
            NameKind::Fixed(_) => "0x00ff (two hexadecimal digits a byte)",
            NameKind::Text => "/srv/video/intro.mp4",
        }
    }

    /// Refuses a length that no name of this kind has.
    /// # Errors
    /// [`NameError`].
    pub fn check_len(self, len: usize) -> Result<(), NameError> {
        let wrong = |expected: &'static str| NameError::WrongLength { kind: self, got: len, expected };
        match self {
            NameKind::Mac if len != 6 => Err(wrong("6")),
            NameKind::Ipv4 | NameKind::Teid if len != 4 => Err(wrong("4")),
            NameKind::Ipv6 if len != 16 => Err(wrong("16")),
            NameKind::FiveTuple if len != 13 && len != 37 => Err(wrong("13 or 37")),
            NameKind::Fixed(width) if !(1..=MAX_FIXED).contains(&usize::from(width)) => Err(wrong("1 to 64")),
            NameKind::Fixed(width) if len != usize::from(width) => Err(wrong("as many bytes as the kind says")),
            NameKind::Text if len == 0 => Err(NameError::Empty { kind: self }),
            NameKind::Text if len > MAX_TEXT => Err(NameError::TooLong { got: len, max: MAX_TEXT }),
            _ => Ok(()),
        }
    }

    fn accepts(self, bytes: &[u8]) -> Result<(), NameError> {
        self.check_len(bytes.len())?;
        if self == NameKind::Text {
            let text = std::str::from_utf8(bytes).map_err(|e| NameError::NotUtf8 { at: e.valid_up_to() })?;
            if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
                return Err(NameError::ControlCharacter { at });
            }
        }
        Ok(())
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameKind::Mac => f.write_str("mac"),
            NameKind::Ipv4 => f.write_str("ipv4"),
            NameKind::Ipv6 => f.write_str("ipv6"),
            NameKind::FiveTuple => f.write_str("5-tuple"),
            NameKind::Teid => f.write_str("teid"),
            NameKind::Fixed(width) => write!(f, "fixed:{width}"),
            NameKind::Text => f.write_str("text"),
        }
    }
}

impl FromStr for NameKind {
    type Err = NameError;
    fn from_str(text: &str) -> Result<NameKind, NameError> {
        let unknown = || NameError::UnknownKind { got: clip(text) };
        Ok(match text {
            "mac" => NameKind::Mac,
            "ipv4" => NameKind::Ipv4,
            "ipv6" => NameKind::Ipv6,
            "5-tuple" => NameKind::FiveTuple,
            "teid" => NameKind::Teid,
            "text" => NameKind::Text,
            _ => {
                let width: u8 = text.strip_prefix("fixed:").ok_or_else(unknown)?.parse().map_err(|_| unknown())?;
                NameKind::from_wire([6, width]).ok_or_else(unknown)?
            }
        })
    }
}

/// One flat name: bytes of a known kind.
///
/// Ordered by kind, then by bytes. Equality is that of the full name, never of a digest.
#[derive(Clone)]
pub struct Name(Repr);

// The kind is inside the variants, so that a name takes 24 bytes and not 32.
#[derive(Clone)]
enum Repr {
    Inline { kind: NameKind, len: u8, bytes: [u8; INLINE] },
    Boxed { kind: NameKind, bytes: Box<[u8]> },
}

impl Name {
    /// A name from its bytes, as a switch reads them from a frame.
    /// # Errors
    /// [`NameError`] if the bytes are not a name of this kind.
    pub fn from_bytes(kind: NameKind, bytes: &[u8]) -> Result<Name, NameError> {
        kind.accepts(bytes)?;
        Ok(Name(if bytes.len() <= INLINE {
            let mut inline = [0; INLINE];
            inline[..bytes.len()].copy_from_slice(bytes);
            Repr::Inline { kind, len: bytes.len() as u8, bytes: inline }
        } else {
            Repr::Boxed { kind, bytes: bytes.into() }
        }))
    }

    /// A name from its text; [`Name`]'s `Display` is the inverse.
    ///
    /// White space around the text is ignored, except for [`NameKind::Text`], where it belongs to the name.
    /// # Errors
    /// [`NameError`], which says what is wrong and what a valid name looks like.
    pub fn parse(kind: NameKind, text: &str) -> Result<Name, NameError> {
        if kind == NameKind::Text {
            return Name::from_bytes(kind, text.as_bytes());
        }
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(NameError::Empty { kind });
        }
        let malformed = |why| NameError::Malformed { kind, got: clip(trimmed), why };
        match kind {
            NameKind::Mac => Name::from_bytes(kind, &parse_mac(trimmed).map_err(malformed)?),
            NameKind::Ipv4 => {
                let ip: Ipv4Addr = trimmed.parse().map_err(|_| malformed("not four decimal numbers below 256"))?;
                Name::from_bytes(kind, &ip.octets())
            }
            NameKind::Ipv6 => {
                let ip: Ipv6Addr = trimmed.parse().map_err(|_| malformed("not eight groups of hexadecimal digits"))?;
                Name::from_bytes(kind, &ip.octets())
            }
            NameKind::FiveTuple => Name::from_bytes(kind, &parse_five_tuple(trimmed).map_err(malformed)?),
            NameKind::Teid => {
                let teid = match trimmed.strip_prefix("0x") {
                    Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u32::from_str_radix(hex, 16).ok(),
                    Some(_) => None,
                    None if trimmed.bytes().all(|b| b.is_ascii_digit()) => trimmed.parse().ok(),
                    None => None,
                };
                let teid = teid.ok_or_else(|| malformed("not a number of 32 bits"))?;
                Name::from_bytes(kind, &teid.to_be_bytes())
            }
            NameKind::Fixed(width) => {
                let bytes = parse_hex(trimmed.strip_prefix("0x").unwrap_or(trimmed)).map_err(malformed)?;
                if bytes.len() != usize::from(width) {
                    return Err(NameError::FieldWidth { got: bytes.len(), width });
                }
                Name::from_bytes(kind, &bytes)
            }
            NameKind::Text => unreachable!("handled above"),
        }
    }

    /// The kind of this name.
    pub fn kind(&self) -> NameKind {
        match &self.0 {
            Repr::Inline { kind, .. } | Repr::Boxed { kind, .. } => *kind,
        }
    }

    /// Bytes of heap memory: 0 for a name of up to 16 bytes.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Boxed { bytes, .. } => bytes.len(),
        }
    }

    /// The bytes that are hashed, in the order in which a frame carries them.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes, .. } => &bytes[..usize::from(*len)],
            Repr::Boxed { bytes, .. } => bytes,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.kind() == other.kind() && self.as_bytes() == other.as_bytes()
    }
}
impl Eq for Name {}
impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Name {
    fn cmp(&self, other: &Name) -> std::cmp::Ordering {
        self.kind().cmp(&other.kind()).then_with(|| self.as_bytes().cmp(other.as_bytes()))
    }
}
impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.kind())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.as_bytes();
        match self.kind() {
            NameKind::Mac => {
                write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2], b[3], b[4], b[5])
            }
            NameKind::Ipv4 | NameKind::Ipv6 => write!(f, "{}", ip_of(b)),
            NameKind::FiveTuple => {
                let ip_len = (b.len() - 5) / 2;
                let port = |at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
                let source = SocketAddr::new(ip_of(&b[..ip_len]), port(2 * ip_len + 1));
                let destination = SocketAddr::new(ip_of(&b[ip_len..2 * ip_len]), port(2 * ip_len + 3));
                write!(f, "{source}->{destination}/")?;
                let protocol = b[2 * ip_len];
                match PROTOCOLS.iter().find(|(_, number)| *number == protocol) {
                    Some((text, _)) => f.write_str(text),
                    None => write!(f, "{protocol}"),
                }
            }
            NameKind::Teid => write!(f, "0x{:08x}", u32::from_be_bytes([b[0], b[1], b[2], b[3]])),
            NameKind::Fixed(_) => {
                f.write_str("0x")?;
                b.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            // `accepts` admits only UTF-8.
            NameKind::Text => f.write_str(std::str::from_utf8(b).unwrap_or_default()),
        }
    }
}

const PROTOCOLS: [(&str, u8); 5] = [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmpv6", 58), ("sctp", 132)];

/// The address in 4 or 16 bytes. Every caller has checked the length.
fn ip_of(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => IpAddr::from(v4),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap_or_default()),
    }
}

/// Reads a MAC address: two digits a group with `:` or `-` between them, four with `.`, or twelve digits.
/// # Errors
/// The reason.
pub fn parse_mac(text: &str) -> Result<[u8; 6], &'static str> {
    let (separator, width, wrong) = match text.chars().find(|c| matches!(c, ':' | '-' | '.')) {
        Some('.') => ('.', 4, "a group between dots is not four hexadecimal digits"),
        Some(separator) => (separator, 2, "a group is not two hexadecimal digits"),
        None if text.len() == 12 => (':', 12, "not twelve hexadecimal digits"),
        None => return Err("fewer than six groups"),
    };
    let (mut mac, mut n_digits) = ([0; 6], 0);
    for group in text.split(separator) {
        if n_digits == 12 {
            return Err("more than six groups");
        }
        if group.len() != width || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong);
        }
        for digit in group.chars().filter_map(|c| c.to_digit(16)) {
            mac[n_digits / 2] = mac[n_digits / 2] << 4 | digit as u8;
            n_digits += 1;
        }
    }
    if n_digits < 12 { Err("fewer than six groups") } else { Ok(mac) }
}

fn parse_five_tuple(text: &str) -> Result<Vec<u8>, &'static str> {
    let (ends, protocol) = text.rsplit_once('/').ok_or("no '/protocol' at the end")?;
    let (source, destination) = ends.split_once("->").ok_or("no '->' between source and destination")?;
    let source: SocketAddr = source.trim().parse().map_err(|_| "the source is not address:port")?;
    let destination: SocketAddr = destination.trim().parse().map_err(|_| "the destination is not address:port")?;
    let protocol = protocol_number(protocol).ok_or("the protocol is neither a known name nor a number below 256")?;
    let mut bytes = Vec::with_capacity(37);
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => bytes.extend([a.octets(), b.octets()].concat()),
        (IpAddr::V6(a), IpAddr::V6(b)) => bytes.extend([a.octets(), b.octets()].concat()),
        _ => return Err("the addresses are of two IP versions"),
    }
    bytes.push(protocol);
    bytes.extend(source.port().to_be_bytes());
    bytes.extend(destination.port().to_be_bytes());
    Ok(bytes)
}

/// The number of an IP protocol, by name or number.
pub(crate) fn protocol_number(text: &str) -> Option<u8> {
    let known = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    known.map_or_else(|| text.parse().ok(), |(_, number)| Some(*number))
}

fn parse_hex(digits: &str) -> Result<Vec<u8>, &'static str> {
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err("not hexadecimal digits");
    }
    if !digits.len().is_multiple_of(2) {
        return Err("an odd number of hexadecimal digits");
    }
    if digits.len() > 2 * MAX_FIXED {
        return Err("longer than 64 bytes");
    }
    Ok((0..digits.len()).step_by(2).filter_map(|i| u8::from_str_radix(&digits[i..i + 2], 16).ok()).collect())
}

/// The start of a piece of input for a message: short enough, and with nothing that a terminal would obey or hide. It is for people:
/// whatever decides takes the whole text.
pub fn clip(text: &str) -> String {
    let (end, rest) = match text.char_indices().nth(CLIPPED_CHARS) {
        Some((end, _)) => (end, "…"),
        None => (text.len(), ""),
    };
    format!("{}{rest}", visible(&text[..end]))
}

/// Characters that [`clip`] keeps: every [label](is_label) is shown whole.
const CLIPPED_CHARS: usize = MAX_LABEL;

/// Whether a text can be the name of a switch, a host, a controller or an operator: 1 to [`MAX_LABEL`] of letters, digits, `-`, `_`
/// and `.`, not `-` or `.` first. So it is one word in a command, a file name and a part of a host's name in DNS.
pub fn is_label(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=MAX_LABEL).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with(['-', '.'])
}

/// The definition of a [label](is_label), for messages.
pub const LABELS: &str = "a name is 1 to 63 of letters, digits, `-`, `_` and `.`, not `-` or `.` first";

/// Longest name of a switch or a host, in bytes.
pub const MAX_LABEL: usize = 63;

/// Why text or bytes are not a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum NameError {
    /// The text does not have the form of its kind.
    #[error("`{got}` is no {kind} name: {why}; write for example `{}`", kind.example())]
    Malformed { kind: NameKind, got: String, why: &'static str },
    /// No text at all.
    #[error("an empty {kind} name; write for example `{}`", kind.example())]
    Empty { kind: NameKind },
    /// Bytes of another length than the kind has.
    #[error("{got} bytes are not a {kind} name, which has {expected}")]
    WrongLength { kind: NameKind, got: usize, expected: &'static str },
    /// A hexadecimal field of another width than the table's.
    #[error("the field has {got} bytes, the table's names have {width}: write {} hexadecimal digits", 2 * usize::from(*width))]
    FieldWidth { got: usize, width: u8 },
    /// A text name over [`MAX_TEXT`] bytes.
    #[error("the name has {got} bytes, the most is {max}; shorten it or hash it first")]
    TooLong { got: usize, max: usize },
    /// A text name that is not UTF-8.
    #[error("the name is not UTF-8 from byte {at} on; use a fixed:N field for binary names")]
    NotUtf8 { at: usize },
    /// A text name with a control character, which no list could carry.
    #[error("a control character at byte {at} of the name; use a fixed:N field for binary names")]
    ControlCharacter { at: usize },
    /// An unknown kind of name.
    #[error(
        "`{got}` is not a kind of name: use mac, ipv4, ipv6, 5-tuple, teid, fixed:N (N from 1 to 64 bytes) or text"
    )]
    UnknownKind { got: String },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_names_need_no_allocation_and_24_bytes() {
        assert_eq!(std::mem::size_of::<Name>(), 24);
    }

    #[test]
    fn examples_of_every_kind_parse() {
        for kind in [NameKind::Mac, NameKind::Ipv4, NameKind::Ipv6, NameKind::FiveTuple, NameKind::Teid, NameKind::Text]
        {
            let name = Name::parse(kind, kind.example()).unwrap();
            assert_eq!(name.to_string(), kind.example());
            assert_eq!(NameKind::from_wire(kind.to_wire()), Some(kind));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("fixed:45".parse(), Ok(NameKind::Fixed(45)));
    }

    #[test]
    fn bytes_are_those_of_the_frame() {
        let bytes = |kind, text| Name::parse(kind, text).unwrap().as_bytes().to_vec();
        for mac in ["02-00-00-00-0b-FF", "02:00:00:00:0b:ff", "0200.0000.0bff", "020000000BFF"] {
            assert_eq!(bytes(NameKind::Mac, mac), [2, 0, 0, 0, 0x0b, 255], "{mac}");
        }
        assert_eq!(bytes(NameKind::Teid, "258"), [0, 0, 1, 2]);
        assert_eq!(
            bytes(NameKind::FiveTuple, "1.2.3.4:80->5.6.7.8:443/17"),
            [1, 2, 3, 4, 5, 6, 7, 8, 17, 0, 80, 1, 187]
        );
        assert_eq!(bytes(NameKind::FiveTuple, "[::1]:1->[::2]:2/tcp").len(), 37);
        assert_eq!(bytes(NameKind::Fixed(2), "0xBEEF"), [0xbe, 0xef]);
    }

    #[test]
    fn malformed_names_are_refused_with_an_example() {
        let cases = [
            (NameKind::Mac, "02:00:00:00:00"),
            (NameKind::Mac, "02:00:00:00:00:01:02"),
            (NameKind::Mac, "02:00:00:00:00:0g"),
            (NameKind::Mac, "2:0:0:0:0:1"),
            (NameKind::Mac, "+2:00:00:00:00:01"),
            (NameKind::Mac, "02:00-00:00:00:01"),
            (NameKind::Mac, "0200.0000.00"),
            (NameKind::Mac, "0200.0000.0001.0002"),
            (NameKind::Mac, "02.00.00.00.00.01"),
            (NameKind::Mac, "02000000000g"),
            (NameKind::Mac, "02000000000"),
            (NameKind::Ipv4, "10.0.0.256"),
            (NameKind::Ipv6, "10.0.0.1"),
            (NameKind::FiveTuple, "10.0.0.1:80->[::1]:443/tcp"),
            (NameKind::FiveTuple, "10.0.0.1:80->10.0.0.2:443"),
            (NameKind::FiveTuple, "10.0.0.1->10.0.0.2:443/tcp"),
            (NameKind::FiveTuple, "10.0.0.1:80->10.0.0.2:443/256"),
            (NameKind::Teid, "0x100000000"),
            (NameKind::Teid, "-1"),
            (NameKind::Teid, "0x+1"),
            (NameKind::Fixed(2), "0xbee"),
            (NameKind::Fixed(2), "zz"),
        ];
        for (kind, text) in cases {
            let error = Name::parse(kind, text).unwrap_err().to_string();
            assert!(error.contains(kind.example()) && error.contains(text), "{error}");
        }
        assert_eq!(Name::parse(NameKind::Fixed(2), "0x00"), Err(NameError::FieldWidth { got: 1, width: 2 }));
        assert_eq!(Name::parse(NameKind::Mac, " "), Err(NameError::Empty { kind: NameKind::Mac }));
        assert_eq!(Name::parse(NameKind::Text, "a\nb"), Err(NameError::ControlCharacter { at: 1 }));
        assert_eq!(
            Name::parse(NameKind::Text, &"x".repeat(MAX_TEXT + 1)),
            Err(NameError::TooLong { got: MAX_TEXT + 1, max: MAX_TEXT })
        );
        assert!(Name::parse(NameKind::Text, &"x".repeat(MAX_TEXT)).is_ok());
        assert_eq!(Name::from_bytes(NameKind::Text, &[b'a', 0xff]), Err(NameError::NotUtf8 { at: 1 }));
        assert!(Name::from_bytes(NameKind::Mac, &[0; 7]).is_err());
        assert!(Name::from_bytes(NameKind::Fixed(0), &[]).is_err());
        for kind in ["", "MAC", "fixed:0", "fixed:65", "fixed:", "fixed"] {
            assert!(kind.parse::<NameKind>().is_err(), "{kind}");
        }
    }

    fn any_name() -> impl Strategy<Value = Name> {
        let fixed = |kind: NameKind, len: usize| {
            proptest::collection::vec(any::<u8>(), len).prop_map(move |b| Name::from_bytes(kind, &b).unwrap())
        };
        prop_oneof![
            fixed(NameKind::Mac, 6),
            fixed(NameKind::Ipv4, 4),
            fixed(NameKind::Ipv6, 16),
            fixed(NameKind::FiveTuple, 13),
            fixed(NameKind::FiveTuple, 37),
            fixed(NameKind::Teid, 4),
            (1u8..=64).prop_flat_map(move |width| fixed(NameKind::Fixed(width), usize::from(width))),
            "[^\\p{Cc}]{1,80}".prop_map(|text| Name::parse(NameKind::Text, &text).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn text_round_trips(name in any_name()) {
            prop_assert_eq!(Name::parse(name.kind(), &name.to_string()), Ok(name));
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,80}", width in 0u8..=70) {
            for kind in [NameKind::Mac, NameKind::Ipv4, NameKind::Ipv6, NameKind::FiveTuple, NameKind::Teid,
                         NameKind::Fixed(width), NameKind::Text] {
                if let Ok(name) = Name::parse(kind, &text) {
                    prop_assert_eq!(name.kind(), kind);
                }
            }
            let _ = text.parse::<NameKind>();
        }
    }
}

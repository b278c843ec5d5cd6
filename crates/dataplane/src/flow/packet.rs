//! Finds the flow that a frame belongs to: addresses, protocol, ports, and what its state machine needs.
//!
//! | packet | flow |
//! |---|---|
//! | TCP, UDP | addresses and ports |
//! | ICMP echo | addresses, the identifier as the port of the side that asks |
//! | ICMP error | the flow of the packet that it quotes |
//! | another protocol over IP | addresses and protocol, ports 0 |
//! | neighbour discovery, multicast listeners | none; it passes |
//! | a fragment | none: only the first fragment has ports, and fragments are not reassembled |
//! | not IP | none; it passes |
//!
//! The first VLAN tag is part of a flow, so two VLANs may use the same addresses. Every length is checked against the
//! bytes of the frame: no input causes a panic. Cost: the first one or two cache lines of the frame.

pub use crate::parse::ICMPV6;
use crate::parse::{MAX_EXTENSIONS, ether_type};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;
/// The protocol number of ICMP.
pub const ICMP: u8 = 1;
/// The code of "unreachable" that says that a packet is too large.
const FRAGMENTATION_NEEDED: u8 = 4;

/// An IPv4 or IPv6 address as a number; IPv4 as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Address(pub u128);

impl Address {
    /// Whether it is an IPv4 address.
    #[inline]
    pub fn is_v4(self) -> bool {
        self.0 >> 32 == 0xffff
    }

    #[inline]
    pub(crate) fn v4(bytes: [u8; 4]) -> Self {
        Self(0xffff << 32 | u128::from(u32::from_be_bytes(bytes)))
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::v4(ip.octets()),
            IpAddr::V6(ip) => Self(u128::from(ip)),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        if address.is_v4() {
            IpAddr::V4(Ipv4Addr::from(address.0 as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from(address.0))
        }
    }
}

/// One end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Endpoint {
    /// Its address.
    pub address: Address,
    /// Its port; for ICMP the identifier of the echo requests that it sends; 0 if the protocol has no ports.
    pub port: u16,
}

/// The header fields that all packets of one direction of a flow share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tuple {
    /// Their source.
    pub source: Endpoint,
    /// Their destination.
    pub destination: Endpoint,
    /// IP protocol number.
    pub protocol: u8,
    /// Number of the VLAN; 0 without a tag.
    pub vlan: u16,
}

impl Tuple {
    /// The other direction of an untranslated flow.
    pub fn reversed(&self) -> Self {
        Self { source: self.destination, destination: self.source, ..*self }
    }
}

/// The part of a TCP header that its state machine reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// FIN 1, SYN 2, RST 4, ACK 16.
    pub flags: u8,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// The next byte expected from the other side; valid with ACK.
    pub acknowledgement: u32,
    /// Bytes of payload.
    pub payload: u32,
}

/// The kind of a packet, as its flow sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP datagram.
    Udp,
    /// An ICMP echo request, or the reply to one.
    Echo {
        /// Whether it is the reply.
        reply: bool,
    },
    /// An ICMP error. The tuple is that of the quoted packet, reversed: the direction in which the error goes.
    Error {
        /// Whether it says that the destination does not take such packets: it is unreachable, for a reason other than the size.
        is_final: bool,
        /// The sequence number of the quoted TCP segment.
        sequence: u32,
    },
    /// Anything else over IP.
    Other,
}

/// A packet that belongs to a flow, and the offsets of its parts from the first byte of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The flow, in the direction of the packet.
    pub tuple: Tuple,
    /// Its kind.
    pub body: Body,
    /// The offset of the IP header.
    pub ip: u16,
    /// The offset of the header after it.
    pub transport: u16,
    /// The end of the packet, before any padding. A super-frame may end behind 65,535.
    pub end: u32,
}

impl Headers {
    /// Bytes of the packet, IP header included.
    pub fn ip_bytes(&self) -> u16 {
        (self.end - u32::from(self.ip)) as u16
    }
}

/// What a known flow needs of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brief {
    /// Its kind.
    pub body: Body,
    /// Bytes of the packet, IP header included.
    pub ip_bytes: u16,
}

impl From<&Headers> for Brief {
    fn from(headers: &Headers) -> Self {
        Self { body: headers.body, ip_bytes: headers.ip_bytes() }
    }
}

/// A common packet: TCP or UDP over IPv4, without tags, options and fragmentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usual {
    /// Address and port of each end: 48 bits.
    pub(crate) source: u64,
    pub(crate) destination: u64,
    pub(crate) protocol: u8,
    pub(crate) brief: Brief,
}

/// Reads a common packet with one check of its length. Returns none for other or malformed packets, which [`parse`]
/// then judges.
#[inline]
pub(crate) fn usual(frame: &[u8], type_at: usize) -> Option<Usual> {
    // EtherType, 20 bytes of IP and 20 of TCP. Shorter packets have padding after them.
    let head: &[u8; 42] = frame.get(type_at..)?.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let ip_bytes = half(4);
    let is_usual = word(0) >> 8 == 0x0008_0045 && half(8) & 0x3fff == 0 && frame[0] & 1 == 0;
    if !is_usual || type_at + 2 + usize::from(ip_bytes) > frame.len() {
        return None;
    }
    let body = match head[11] {
        TCP => {
            let header_bytes = 20 + u16::from(head[34] >> 4) * 4;
            if header_bytes < 40 || header_bytes > ip_bytes {
                return None;
            }
            let payload = u32::from(ip_bytes - header_bytes);
            Body::Tcp(Segment { flags: head[35], sequence: word(26), acknowledgement: word(30), payload })
        }
        UDP => {
            let length = half(26);
            if ip_bytes < 28 || length != 0 && (length < 8 || length > ip_bytes - 20) {
                return None;
            }
            Body::Udp
        }
        _ => return None,
    };
    Some(Usual {
        source: u64::from(word(14)) << 16 | u64::from(half(22)),
        destination: u64::from(word(18)) << 16 | u64::from(half(24)),
        protocol: head[11],
        brief: Brief { body, ip_bytes },
    })
}

/// The reason why a frame belongs to no flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untracked {
    /// It is not tracked: not IP, to a group, or neighbour discovery.
    Pass,
    /// A fragment.
    Fragment,
    /// More VLAN tags than are skipped.
    Tags,
    /// Headers that end early or contradict each other.
    Malformed,
}

type Parsed<T> = Result<T, Untracked>;

fn be16(bytes: &[u8], at: usize) -> Parsed<u16> {
    let two = bytes.get(at..at + 2).ok_or(Untracked::Malformed)?;
    Ok(u16::from_be_bytes([two[0], two[1]]))
}

fn be32(bytes: &[u8], at: usize) -> Parsed<u32> {
    let four = bytes.get(at..at + 4).and_then(|four| four.first_chunk().copied());
    four.map(u32::from_be_bytes).ok_or(Untracked::Malformed)
}

/// The IP packet of a frame, or one that an ICMP error quotes.
struct Network {
    source: Address,
    destination: Address,
    protocol: u8,
    transport: usize,
    /// The end according to its header. A quoted packet may be cut before it.
    end: usize,
    /// It is a later fragment, without a transport header.
    fragment: bool,
}

fn v4(frame: &[u8], ip: usize) -> Parsed<Network> {
    let header: &[u8; 20] = frame.get(ip..).and_then(<[u8]>::first_chunk).ok_or(Untracked::Malformed)?;
    let header_len = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4 || header_len < 20 || total < header_len {
        return Err(Untracked::Malformed);
    }
    let address = |at: usize| Address::v4([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Ok(Network {
        source: address(12),
        destination: address(16),
        protocol: header[9],
        transport: ip + header_len,
        end: ip + total,
        fragment: u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0,
    })
}

fn v6(frame: &[u8], ip: usize) -> Parsed<Network> {
    let header: &[u8; 40] = frame.get(ip..).and_then(<[u8]>::first_chunk).ok_or(Untracked::Malformed)?;
    let address = |at: usize| Address(u128::from_be_bytes(*header[at..].first_chunk().unwrap_or(&[0; 16])));
    let (source, destination) = (address(8), address(24));
    // An IPv6 header with an IPv4-mapped address would be taken for IPv4.
    if header[0] >> 4 != 6 || source.is_v4() || destination.is_v4() {
        return Err(Untracked::Malformed);
    }
    let end = ip + 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let (mut protocol, mut at, mut fragment) = (header[6], ip + 40, false);
    for _ in 0..MAX_EXTENSIONS {
        let units = |n: usize| Ok(usize::from(*frame.get(at + 1).ok_or(Untracked::Malformed)?) * n);
        let len = match protocol {
            0 | 43 | 60 => 8 + units(8)?,
            51 => 8 + units(4)?,
            44 => {
                fragment |= be16(frame, at + 2)? & 0xfff9 != 0;
                8
            }
            _ => return Ok(Network { source, destination, protocol, transport: at, end, fragment }),
        };
        if fragment {
            break;
        }
        protocol = *frame.get(at).ok_or(Untracked::Malformed)?;
        at += len;
    }
    match (fragment, protocol) {
        (false, 0 | 43 | 44 | 51 | 60) => Err(Untracked::Malformed),
        _ => Ok(Network { source, destination, protocol, transport: at, end, fragment }),
    }
}

/// Finds the flow of a frame. `type_at` is the offset of its own EtherType, from [`crate::parse::envelope`].
/// # Errors
/// The reason why it belongs to no flow.
pub fn parse(frame: &[u8], type_at: usize) -> Parsed<Headers> {
    if frame[0] & 1 != 0 {
        return Err(Untracked::Pass);
    }
    let (kind, ip) = ether_type(frame, type_at).map_err(|_| Untracked::Pass)?;
    let network = match kind {
        0x0800 => v4(frame, ip)?,
        0x86dd => v6(frame, ip)?,
        // The frame has more tags than are skipped. A host skips all of them, and would find an IP packet.
        0x8100 | 0x88a8 | 0x9100 => return Err(Untracked::Tags),
        _ => return Err(Untracked::Pass),
    };
    let vlan = if ip > type_at + 2 { be16(frame, type_at + 2)? & 0xfff } else { 0 };
    if network.fragment {
        return Err(Untracked::Fragment);
    }
    let packet = frame.get(..network.end).ok_or(Untracked::Malformed)?;
    let is_v4 = kind == 0x0800;
    let at = network.transport;
    let (ports, body) = match network.protocol {
        TCP => {
            let header = packet.get(at..).ok_or(Untracked::Malformed)?;
            let header: &[u8; 20] = header.first_chunk().ok_or(Untracked::Malformed)?;
            let data = at + usize::from(header[12] >> 4) * 4;
            if data < at + 20 || data > packet.len() {
                return Err(Untracked::Malformed);
            }
            let segment = Segment {
                flags: header[13],
                sequence: be32(header, 4)?,
                acknowledgement: be32(header, 8)?,
                payload: (packet.len() - data) as u32,
            };
            ((be16(header, 0)?, be16(header, 2)?), Body::Tcp(segment))
        }
        UDP => {
            let (ports, length) = ((be16(packet, at)?, be16(packet, at + 2)?), usize::from(be16(packet, at + 4)?));
            be16(packet, at + 6)?;
            if length != 0 && (length < 8 || at + length > packet.len()) {
                return Err(Untracked::Malformed);
            }
            (ports, Body::Udp)
        }
        ICMP if is_v4 => match icmp_kind(packet, at)? {
            8 => echo(packet, at, false)?,
            0 => echo(packet, at, true)?,
            3 | 4 | 5 | 11 | 12 => return error(packet, (ip, at, ICMP), vlan, v4),
            _ => ((0, 0), Body::Other),
        },
        ICMPV6 if !is_v4 => match icmp_kind(packet, at)? {
            128 => echo(packet, at, false)?,
            129 => echo(packet, at, true)?,
            1..=4 => return error(packet, (ip, at, ICMPV6), vlan, v6),
            130..=137 | 143 => return Err(Untracked::Pass),
            _ => ((0, 0), Body::Other),
        },
        _ => ((0, 0), Body::Other),
    };
    let tuple = Tuple {
        source: Endpoint { address: network.source, port: ports.0 },
        destination: Endpoint { address: network.destination, port: ports.1 },
        protocol: network.protocol,
        vlan,
    };
    Ok(Headers { tuple, body, ip: ip as u16, transport: at as u16, end: packet.len() as u32 })
}

impl Body {
    /// Whether it is a TCP segment that asks for a connection.
    #[inline]
    pub(super) fn is_syn(&self) -> bool {
        matches!(self, Body::Tcp(segment) if segment.flags & 0x17 == 2)
    }

    /// Whether it is an ICMP error.
    #[inline]
    pub(super) fn is_error(&self) -> bool {
        matches!(self, Body::Error { .. })
    }
}

fn icmp_kind(packet: &[u8], at: usize) -> Parsed<u8> {
    packet.get(at..at + 8).map(|header| header[0]).ok_or(Untracked::Malformed)
}

fn echo(packet: &[u8], at: usize, reply: bool) -> Parsed<((u16, u16), Body)> {
    let identifier = be16(packet, at + 4)?;
    Ok((if reply { (0, identifier) } else { (identifier, 0) }, Body::Echo { reply }))
}

/// An ICMP error belongs to the flow of the packet that it quotes.
fn error(
    packet: &[u8],
    (ip, at, protocol): (usize, usize, u8),
    vlan: u16,
    network: fn(&[u8], usize) -> Parsed<Network>,
) -> Parsed<Headers> {
    let quoted = network(packet, at + 8)?;
    if quoted.fragment {
        return Err(Untracked::Fragment);
    }
    let ports = quoted_ports(packet, &quoted)?;
    let (kind, code) = (packet[at], packet[at + 1]);
    let is_final = if protocol == ICMP { kind == 3 && code != FRAGMENTATION_NEEDED } else { kind == 1 };
    // Every error quotes eight bytes of the header.
    let sequence = if quoted.protocol == TCP { be32(packet, quoted.transport + 4).unwrap_or_default() } else { 0 };
    let tuple = Tuple {
        source: Endpoint { address: quoted.destination, port: ports.1 },
        destination: Endpoint { address: quoted.source, port: ports.0 },
        protocol: quoted.protocol,
        vlan,
    };
    Ok(Headers {
        tuple,
        body: Body::Error { is_final, sequence },
        ip: ip as u16,
        transport: at as u16,
        end: packet.len() as u32,
    })
}

fn quoted_ports(packet: &[u8], quoted: &Network) -> Parsed<(u16, u16)> {
    let at = quoted.transport;
    match quoted.protocol {
        TCP | UDP => Ok((be16(packet, at)?, be16(packet, at + 2)?)),
        ICMP | ICMPV6 => match *packet.get(at).ok_or(Untracked::Malformed)? {
            8 | 128 => Ok((be16(packet, at + 4)?, 0)),
            0 | 129 => Ok((0, be16(packet, at + 4)?)),
            // No host sends an error about an error.
            _ => Err(Untracked::Malformed),
        },
        _ => Ok((0, 0)),
    }
}

/// The offsets of the packet that an ICMP error quotes: of its IP header and of the header after it.
pub(crate) fn quoted(packet: &[u8], headers: &Headers) -> Option<(usize, usize)> {
    let ip = usize::from(headers.transport) + 8;
    let network = if headers.tuple.source.address.is_v4() { v4(packet, ip) } else { v6(packet, ip) };
    network.ok().map(|network| (ip, network.transport))
}

/// The addresses in a packet's own IP header. For an ICMP error they are not those of its flow.
pub(crate) fn addresses(frame: &[u8], headers: &Headers) -> Option<(Address, Address)> {
    let ip = usize::from(headers.ip);
    let network = if headers.tuple.source.address.is_v4() { v4(frame, ip) } else { v6(frame, ip) };
    network.ok().map(|network| (network.source, network.destination))
}

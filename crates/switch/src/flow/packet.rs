//! From a frame to the flow it belongs to: addresses, protocol, ports, and what its state machine needs.
//!
//! | packet | flow |
//! |---|---|
//! | TCP, UDP | addresses and ports |
//! | ICMP echo | addresses, the identifier as the port of the side that asks |
//! | ICMP error | the flow of the packet that it quotes |
//! | another protocol over IP | addresses and protocol, ports 0 |
//! | neighbour discovery, multicast listeners | none, passed as it is |
//! | a fragment | none: the ports of the later ones are in the first, and nothing is put together here |
//! | no IP | none, passed as it is |
//!
//! The first VLAN tag is part of a flow, so that the same addresses may be in use in two VLANs. Every length is checked
//! against the bytes that are there; no input makes it panic. Cost: the first one or two lines of the frame.

use crate::parse::{MAX_EXTENSIONS, ether_type};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;

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
    /// Its port; the identifier of the ICMP echos it sends; 0 where there are no ports.
    pub port: u16,
}

/// What packets of one direction of a flow have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tuple {
    /// Where they come from.
    pub source: Endpoint,
    /// Where they go to.
    pub destination: Endpoint,
    /// IP protocol number.
    pub protocol: u8,
    /// Number of the VLAN; 0 without a tag.
    pub vlan: u16,
}

impl Tuple {
    /// The other direction, if nobody translates.
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
    /// Next byte expected from the other side; meaningful with ACK.
    pub acknowledgement: u32,
    /// Bytes of payload.
    pub payload: u32,
}

/// What a packet is to its flow.
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
    /// An ICMP error. The tuple is that of the packet it quotes, turned round: the direction that the error goes.
    Error,
    /// Anything else over IP.
    Other,
}

/// A packet that belongs to a flow, and where its parts are. Positions count from the first byte of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The flow, in the direction of the packet.
    pub tuple: Tuple,
    /// What it is.
    pub body: Body,
    /// Where the IP header starts.
    pub ip: u16,
    /// Where the header behind it starts.
    pub transport: u16,
    /// Where the packet ends; padding follows.
    pub end: u16,
}

/// What a flow that is there needs of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brief {
    /// What it is.
    pub body: Body,
    /// Bytes of the packet, IP header included.
    pub ip_bytes: u16,
}

impl From<&Headers> for Brief {
    fn from(headers: &Headers) -> Self {
        Self { body: headers.body, ip_bytes: headers.end - headers.ip }
    }
}

/// A packet of the usual kind: TCP or UDP over IPv4, without tag, option and fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usual {
    /// Address and port of each end: 48 bits.
    pub(crate) source: u64,
    pub(crate) destination: u64,
    pub(crate) protocol: u8,
    pub(crate) brief: Brief,
}

/// Reads a packet of the usual kind with one check of its length; none if it is of another, or broken: then [`parse`] has
/// the say.
#[inline]
pub(crate) fn usual(frame: &[u8], type_at: usize) -> Option<Usual> {
    // EtherType, 20 bytes of IP, 20 of TCP: there is padding behind what is shorter.
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

/// Why a frame belongs to no flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untracked {
    /// None of ours: no IP, a group's, or what neighbours tell each other.
    Pass,
    /// A fragment.
    Fragment,
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

/// The IP packet of a frame, or one that an error quotes.
struct Network {
    source: Address,
    destination: Address,
    protocol: u8,
    transport: usize,
    /// Where it says that it ends; beyond the bytes there are, for a quoted one.
    end: usize,
    /// A later fragment: no transport header.
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
    // An address of the other family written as one of this would pass for it.
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

/// Finds the flow of a frame. `type_at` is where its own EtherType stands, as [`crate::parse::envelope`] found it.
/// # Errors
/// Why it belongs to none.
pub fn parse(frame: &[u8], type_at: usize) -> Parsed<Headers> {
    if frame[0] & 1 != 0 {
        return Err(Untracked::Pass);
    }
    let (kind, ip) = ether_type(frame, type_at).map_err(|_| Untracked::Pass)?;
    let network = match kind {
        0x0800 => v4(frame, ip)?,
        0x86dd => v6(frame, ip)?,
        // More tags than are looked behind: hosts strip as many as there are, and would find IP there.
        0x8100 | 0x88a8 | 0x9100 => return Err(Untracked::Malformed),
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
            3 | 4 | 5 | 11 | 12 => return error(packet, (ip, at), vlan, v4),
            _ => ((0, 0), Body::Other),
        },
        ICMPV6 if !is_v4 => match icmp_kind(packet, at)? {
            128 => echo(packet, at, false)?,
            129 => echo(packet, at, true)?,
            1..=4 => return error(packet, (ip, at), vlan, v6),
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
    Ok(Headers { tuple, body, ip: ip as u16, transport: at as u16, end: packet.len() as u16 })
}

fn icmp_kind(packet: &[u8], at: usize) -> Parsed<u8> {
    packet.get(at..at + 8).map(|header| header[0]).ok_or(Untracked::Malformed)
}

fn echo(packet: &[u8], at: usize, reply: bool) -> Parsed<((u16, u16), Body)> {
    let identifier = be16(packet, at + 4)?;
    Ok((if reply { (0, identifier) } else { (identifier, 0) }, Body::Echo { reply }))
}

/// An ICMP error: the quoted packet says which flow it is about.
fn error(
    packet: &[u8],
    (ip, at): (usize, usize),
    vlan: u16,
    network: fn(&[u8], usize) -> Parsed<Network>,
) -> Parsed<Headers> {
    let quoted = network(packet, at + 8)?;
    if quoted.fragment {
        return Err(Untracked::Fragment);
    }
    let ports = quoted_ports(packet, &quoted)?;
    let tuple = Tuple {
        source: Endpoint { address: quoted.destination, port: ports.1 },
        destination: Endpoint { address: quoted.source, port: ports.0 },
        protocol: quoted.protocol,
        vlan,
    };
    Ok(Headers { tuple, body: Body::Error, ip: ip as u16, transport: at as u16, end: packet.len() as u16 })
}

fn quoted_ports(packet: &[u8], quoted: &Network) -> Parsed<(u16, u16)> {
    let at = quoted.transport;
    match quoted.protocol {
        TCP | UDP => Ok((be16(packet, at)?, be16(packet, at + 2)?)),
        ICMP | ICMPV6 => match *packet.get(at).ok_or(Untracked::Malformed)? {
            8 | 128 => Ok((be16(packet, at + 4)?, 0)),
            0 | 129 => Ok((0, be16(packet, at + 4)?)),
            // An error about an error is sent by nobody.
            _ => Err(Untracked::Malformed),
        },
        _ => Ok((0, 0)),
    }
}

/// Where the packet that an ICMP error quotes has its parts: its IP header and the header behind it.
pub(crate) fn quoted(packet: &[u8], headers: &Headers) -> Option<(usize, usize)> {
    let ip = usize::from(headers.transport) + 8;
    let network = if headers.tuple.source.address.is_v4() { v4(packet, ip) } else { v6(packet, ip) };
    network.ok().map(|network| (ip, network.transport))
}

/// The addresses of a packet's own IP header: of an ICMP error these are not its flow's.
pub(crate) fn addresses(frame: &[u8], headers: &Headers) -> Option<(Address, Address)> {
    let ip = usize::from(headers.ip);
    let network = if headers.tuple.source.address.is_v4() { v4(frame, ip) } else { v6(frame, ip) };
    network.ok().map(|network| (network.source, network.destination))
}

//! Finds the name in a frame.
//!
//! | name kind | read from | otherwise |
//! |---|---|---|
//! | MAC | the destination address | broadcast and multicast addresses are not names |
//! | IPv4, IPv6 | the packet's destination | another protocol: [`DropReason::NoName`] |
//! | 5-tuple | addresses, protocol, and the ports of TCP, UDP, UDP-Lite, DCCP and SCTP (0 for others) | later fragments of those have no ports: [`DropReason::Fragment`] |
//! | TEID | GTP-U in UDP to port 2152 | [`DropReason::NoName`] |
//! | fixed | `width` bytes at an offset of the frame as the host sent it | [`DropReason::Truncated`] |
//!
//! Up to two VLAN tags (802.1Q, 802.1ad) before an IP packet are skipped; they are not part of names. At most
//! [`MAX_EXTENSIONS`] extension headers of IPv6 are skipped. Every length is checked against the bytes of the frame: no
//! input causes a panic, and a frame that ends early is [`DropReason::Truncated`]. Cost: the first cache line of the
//! frame.

use crate::counters::DropReason;
use crate::shim;
use fib::name::NameKind;
use netio::BURST;

/// Bytes of the longest name in a frame.
pub const MAX_NAME: usize = 64;
/// The most extension headers of an IPv6 packet that are skipped.
pub const MAX_EXTENSIONS: usize = 8;
/// The largest offset of a fixed field: the longest field then still ends inside a frame of 1514 bytes.
pub const MAX_FIXED_OFFSET: usize = 1514 - MAX_NAME;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
/// The protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// EtherTypes of tags.
pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const SERVICE_VLAN: u16 = 0x88a8;

const ETHERNET_HEADER: usize = 14;
const GTP_U_PORT: u16 = 2152;

/// Why the names of a table cannot be read from frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// Frames do not carry such names.
    #[error(
        "frames do not carry {kind} names, so all frames are dropped; a switch forwards by mac, ipv4, ipv6, 5-tuple, teid or fixed:N"
    )]
    NotInFrames {
        /// The kind asked for.
        kind: NameKind,
    },
    /// The offset of the field is not configured.
    #[error(
        "the controller's names are fixed:{width}, and this switch does not know where they start in a frame, so it \
         drops all frames; set fixed_offset (bytes from the start of the frame) in switch.toml and restart the switch"
    )]
    NoOffset {
        /// Bytes of the field.
        width: u8,
    },
    /// An offset is configured, but the names are not fixed fields. Frames are forwarded nevertheless.
    #[error(
        "fixed_offset = {offset} has no effect, because the controller's names are {kind}; remove it from switch.toml, or \
         check that this is the right controller"
    )]
    OffsetUnused {
        /// The kind of the names.
        kind: NameKind,
        /// The configured offset.
        offset: usize,
    },
}

/// The part of a frame that is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameField {
    kind: NameKind,
    fixed_offset: usize,
}

impl NameField {
    /// The field of a kind. `fixed_offset` counts from the first byte of the frame as the host sent it, and is used for
    /// [`NameKind::Fixed`] only.
    /// # Errors
    /// [`FieldError::NotInFrames`], [`FieldError::NoOffset`].
    pub fn new(kind: NameKind, fixed_offset: Option<usize>) -> Result<Self, FieldError> {
        match (kind, fixed_offset) {
            (NameKind::Text, _) => Err(FieldError::NotInFrames { kind }),
            (NameKind::Fixed(width), None) => Err(FieldError::NoOffset { width }),
            (_, offset) => Ok(Self { kind, fixed_offset: offset.unwrap_or(0) }),
        }
    }

    /// The kind of name.
    pub fn kind(self) -> NameKind {
        self.kind
    }

    /// Reads the name of `frame` and appends it to `names`. `type_at` is the offset of the frame's own EtherType: 12,
    /// or 16 after a shim. The caller has checked that the frame has an EtherType (see [`DropReason::Runt`]).
    /// # Errors
    /// The reason why the frame has no name; `names` is unchanged.
    #[inline]
    pub fn extract(self, frame: &[u8], type_at: usize, names: &mut Names) -> Result<(), DropReason> {
        match self.kind {
            NameKind::Mac => {
                let Some(first) = frame.first_chunk::<8>() else { return Err(DropReason::Runt) };
                names.push_word(u64::from_le_bytes(*first) & 0xffff_ffff_ffff, 6);
                Ok(())
            }
            _ => self.extract_inner(frame, type_at, names),
        }
    }

    fn extract_inner(self, frame: &[u8], type_at: usize, names: &mut Names) -> Result<(), DropReason> {
        match self.kind {
            NameKind::Fixed(width) => self.extract_fixed(frame, type_at, usize::from(width), names),
            NameKind::Ipv4 => match network(frame, type_at)? {
                Network::V4(ip) => names.push(&ip[16..20]),
                Network::V6(_) => Err(DropReason::NoName),
            },
            NameKind::Ipv6 => match network(frame, type_at)? {
                Network::V6(ip) => names.push(&ip[24..40]),
                Network::V4(_) => Err(DropReason::NoName),
            },
            NameKind::FiveTuple => {
                let transport = network(frame, type_at)?.transport()?;
                let mut tuple = [0u8; 37];
                let addresses = transport.addresses.len();
                tuple[..addresses].copy_from_slice(transport.addresses);
                tuple[addresses] = transport.protocol;
                tuple[addresses + 1..addresses + 5].copy_from_slice(&transport.ports()?);
                names.push(&tuple[..addresses + 5])
            }
            NameKind::Teid => {
                let transport = network(frame, type_at)?.transport()?;
                let udp = transport.payload;
                if transport.protocol != 17 {
                    return Err(DropReason::NoName);
                }
                if transport.later_fragment {
                    return Err(DropReason::Fragment);
                }
                let header = udp.get(..8).ok_or(DropReason::Truncated)?;
                if u16::from_be_bytes([header[2], header[3]]) != GTP_U_PORT {
                    return Err(DropReason::NoName);
                }
                let gtp = udp.get(8..16).ok_or(DropReason::Truncated)?;
                // Version 1, protocol type GTP (not GTP').
                if gtp[0] & 0xf0 != 0x30 {
                    return Err(DropReason::NoName);
                }
                names.push(&gtp[4..8])
            }
            NameKind::Mac | NameKind::Text => Err(DropReason::NoName),
        }
    }

    /// The field may be before a shim, after it, or on both sides.
    fn extract_fixed(self, frame: &[u8], type_at: usize, width: usize, names: &mut Names) -> Result<(), DropReason> {
        let shim_len = type_at - shim::AT;
        let mut field = [0u8; MAX_NAME];
        let before = shim::AT.saturating_sub(self.fixed_offset).min(width);
        let head = frame.get(self.fixed_offset..self.fixed_offset + before).unwrap_or_default();
        let behind = self.fixed_offset + before + shim_len;
        let tail = frame.get(behind..behind + width - before).ok_or(DropReason::Truncated)?;
        if head.len() != before {
            return Err(DropReason::Truncated);
        }
        field[..before].copy_from_slice(head);
        field[before..width].copy_from_slice(tail);
        names.push(&field[..width])
    }
}

/// An IP packet with a complete fixed header.
pub(crate) enum Network<'a> {
    V4(&'a [u8]),
    V6(&'a [u8]),
}

/// The bytes after the IP headers.
pub(crate) struct Transport<'a> {
    pub(crate) addresses: &'a [u8],
    pub(crate) protocol: u8,
    pub(crate) payload: &'a [u8],
    /// Whether it is a fragment of a packet.
    pub(crate) is_fragment: bool,
    /// Whether it is a fragment other than the first.
    pub(crate) later_fragment: bool,
}

fn be16(bytes: &[u8], at: usize) -> Result<u16, DropReason> {
    let two = bytes.get(at..at + 2).ok_or(DropReason::Truncated)?;
    Ok(u16::from_be_bytes([two[0], two[1]]))
}

/// The EtherType after up to two VLAN tags, and the offset of its payload.
pub(crate) fn ether_type(frame: &[u8], type_at: usize) -> Result<(u16, usize), DropReason> {
    let mut at = type_at;
    let mut ether_type = be16(frame, at)?;
    for _ in 0..2 {
        if matches!(ether_type, VLAN | SERVICE_VLAN) {
            at += 4;
            ether_type = be16(frame, at)?;
        }
    }
    Ok((ether_type, at + 2))
}

/// Whether a frame has a VLAN tag.
pub(crate) fn is_tagged(frame: &[u8], type_at: usize) -> bool {
    ether_type(frame, type_at).is_ok_and(|(_, at)| at > type_at + 2)
}

/// Finds the IP packet and cuts it to the length in its header, so that padding is not taken for payload.
pub(crate) fn network(frame: &[u8], type_at: usize) -> Result<Network<'_>, DropReason> {
    let (ether_type, at) = ether_type(frame, type_at)?;
    let packet = &frame[at..];
    match ether_type {
        IPV4 => {
            let header = packet.get(..20).ok_or(DropReason::Truncated)?;
            let header_len = usize::from(header[0] & 15) * 4;
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            if header[0] >> 4 != 4 || header_len < 20 || total < header_len {
                return Err(DropReason::NoName);
            }
            packet.get(..total).map(Network::V4).ok_or(DropReason::Truncated)
        }
        IPV6 => {
            let header = packet.get(..40).ok_or(DropReason::Truncated)?;
            if header[0] >> 4 != 6 {
                return Err(DropReason::NoName);
            }
            let total = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
            packet.get(..total).map(Network::V6).ok_or(DropReason::Truncated)
        }
        VLAN | SERVICE_VLAN => Err(DropReason::VlanTags),
        _ => Err(DropReason::NoName),
    }
}

impl<'a> Network<'a> {
    pub(crate) fn transport(&self) -> Result<Transport<'a>, DropReason> {
        match *self {
            Network::V4(ip) => Ok(Transport {
                addresses: &ip[12..20],
                protocol: ip[9],
                payload: &ip[usize::from(ip[0] & 15) * 4..],
                is_fragment: be16(ip, 6)? & 0x3fff != 0,
                later_fragment: be16(ip, 6)? & 0x1fff != 0,
            }),
            Network::V6(ip) => {
                let (mut protocol, mut at) = (ip[6], 40);
                let (mut is_fragment, mut later_fragment) = (false, false);
                for _ in 0..MAX_EXTENSIONS {
                    let units = |n| -> Result<usize, DropReason> {
                        Ok(usize::from(*ip.get(at + 1).ok_or(DropReason::Truncated)?) * n)
                    };
                    let len = match protocol {
                        0 | 43 | 60 => 8 + units(8)?,
                        51 => 8 + units(4)?,
                        44 => {
                            is_fragment = true;
                            later_fragment |= be16(ip, at + 2)? & 0xfff8 != 0;
                            8
                        }
                        _ => break,
                    };
                    protocol = ip[at];
                    at += len;
                    if later_fragment {
                        break;
                    }
                }
                let payload = ip.get(at..).ok_or(DropReason::Truncated)?;
                Ok(Transport { addresses: &ip[8..40], protocol, payload, is_fragment, later_fragment })
            }
        }
    }
}

/// Extension headers of IPv6 that are followed by others or by the payload.
const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];

impl Transport<'_> {
    /// Whether a packet has more extension headers than are skipped. A later fragment need not have them.
    pub(crate) fn ends_in_extension(&self) -> bool {
        !self.later_fragment && EXTENSIONS.contains(&self.protocol)
    }

    /// Source and destination, 0 if the protocol has no ports.
    pub(crate) fn ports(&self) -> Result<[u8; 4], DropReason> {
        const TCP: u8 = 6;
        const UDP: u8 = 17;
        const DCCP: u8 = 33;
        const SCTP: u8 = 132;
        const UDP_LITE: u8 = 136;
        match self.protocol {
            TCP | UDP | DCCP | SCTP | UDP_LITE if self.later_fragment => Err(DropReason::Fragment),
            // In a fragmented IPv6 packet the protocol may be after further headers, which only the first fragment has.
            other if self.later_fragment && EXTENSIONS.contains(&other) => Err(DropReason::Fragment),
            TCP | UDP | DCCP | SCTP | UDP_LITE => self.payload.first_chunk().copied().ok_or(DropReason::Truncated),
            _ => Ok([0; 4]),
        }
    }
}

/// Checks that a frame has two addresses and an EtherType, after a shim if it comes from a trunk. Returns the offset of
/// the EtherType.
#[inline]
pub fn envelope(frame: &[u8], from_trunk: bool) -> Result<usize, DropReason> {
    if frame.len() < ETHERNET_HEADER {
        return Err(DropReason::Runt);
    }
    if !from_trunk {
        return Ok(shim::AT);
    }
    if !shim::is_present(frame) {
        return Err(DropReason::NoShim);
    }
    Ok(shim::AT + shim::LEN)
}

/// The names of one burst. Names of up to 8 bytes are kept as words, little-endian and padded with zeros, as the
/// batched hash takes them. Longer names are kept as bytes.
#[derive(Debug, Clone)]
pub struct Names {
    len: usize,
    words: [u64; BURST],
    lens: [u8; BURST],
    bytes: [[u8; MAX_NAME]; BURST],
}

impl Default for Names {
    fn default() -> Self {
        Self { len: 0, words: [0; BURST], lens: [0; BURST], bytes: [[0; MAX_NAME]; BURST] }
    }
}

impl Names {
    /// Removes all names.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Removes the last name, if there is one.
    #[inline]
    pub fn pop(&mut self) {
        self.len = self.len.saturating_sub(1);
    }

    /// The number of names.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The names as words, for a table whose names all have at most 8 bytes.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }

    /// One name as a word; it is meaningful if the name has at most 8 bytes.
    #[inline]
    pub fn word(&self, i: usize) -> u64 {
        self.words[i]
    }

    /// The length of one name in bytes.
    #[inline]
    pub fn name_len(&self, i: usize) -> usize {
        usize::from(self.lens[i])
    }

    /// The length of all names, if they have the same length.
    #[inline]
    pub fn common_len(&self) -> Option<usize> {
        let lens = &self.lens[..self.len];
        let first = *lens.first()?;
        lens.iter().all(|&len| len == first).then_some(first.into())
    }

    /// The first 16 bytes of a name longer than 8 bytes, as two little-endian words.
    #[inline]
    pub fn pair(&self, i: usize) -> [u64; 2] {
        let (words, _) = self.bytes[i].as_chunks::<8>();
        [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
    }

    /// A name longer than 8 bytes, padded with zeros.
    #[inline]
    pub fn padded(&self, i: usize) -> &[u8; MAX_NAME] {
        &self.bytes[i]
    }

    #[inline]
    fn push_word(&mut self, word: u64, len: u8) {
        self.words[self.len] = word;
        self.lens[self.len] = len;
        self.len += 1;
    }

    /// Appends a name of 1 to 64 bytes.
    /// # Errors
    /// None. The result ends the calling function's chain.
    pub(crate) fn push(&mut self, name: &[u8]) -> Result<(), DropReason> {
        if name.len() <= 8 {
            let mut word = [0; 8];
            word[..name.len()].copy_from_slice(name);
            self.push_word(u64::from_le_bytes(word), name.len() as u8);
        } else {
            let field = &mut self.bytes[self.len];
            field[..name.len()].copy_from_slice(name);
            field[name.len()..].fill(0);
            self.lens[self.len] = name.len() as u8;
            self.len += 1;
        }
        Ok(())
    }

    /// Replaces all names by these, of `len` bytes each, which did not come from frames.
    /// # Panics
    /// If there are more than [`BURST`] names, or `len` is above 8.
    pub fn set_words(&mut self, words: &[u64], len: u8) {
        assert!(len <= 8, "a word holds no name of {len} bytes");
        self.len = words.len();
        self.words[..words.len()].copy_from_slice(words);
        self.lens[..words.len()].fill(len);
    }

    /// Appends a name that did not come from a frame.
    /// # Panics
    /// If there are [`BURST`] names already, or for a name longer than [`MAX_NAME`].
    pub fn push_name(&mut self, name: &[u8]) {
        let _ = self.push(name);
    }
}

//! Segments of a TCP stream that arrive one behind another, joined to the super-frame of which they are the segments.
//!
//! ```text
//!   in the ring:  | headers | bytes 0.. | | headers | bytes 1448.. | | headers | bytes 2896.. |
//!   one packet:   | headers | bytes 0..                 1448..                   2896..       |
//! ```
//! A sender whose offloads are off, or a wire, delivers segments one by one. Looking each up, sending each with its own headers, and
//! acknowledging each costs more than their bytes do. Only segments that wait already are joined, so joining delays none.
//!
//! Joining loses nothing: [`super::Segments`] makes exactly the frames that were joined out of the super-frame. So segments
//! differ only in what follows from their position (sequence number, IPv4 identification and length, checksums), PSH may be set in
//! the last one alone, and the last one alone may be shorter. Checksums are verified first, since the super-frame gets new ones.
//!
//! Source: Linux, `tcp_gro_receive`, which this follows; it also joins segments whose windows or identifications differ. Cost: one pass over
//! the bytes for the checksum, unless the kernel vouches for it.

use super::header::{DATA_VALID, HEADER_BYTES, NEEDS_CHECKSUM, NONE};
use super::segment::{MAX_HEADER, put};
use super::{Kind, Offload, layers, renew};
use crate::Packet;
use crate::checksum::{fold, sum};

/// Bytes of payload of the first segment. Shorter ones are messages of dialogues, not pieces of a stream.
const LEAST_PAYLOAD: usize = 256;
/// Of IPv6 and TCP behind the tags.
const LEAST_HEADERS: usize = 60;
/// With one more tag that the kernel took off, a large packet has room for it.
const MOST_BEFORE_IP: usize = 22;
/// Of an IP packet.
const LONGEST: usize = 65_535;
const TCP: u8 = 6;
/// Of the checksum, in the header.
const FIELD: usize = 16;
const FLAGS: usize = 13;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const ECE: u8 = 0x40;

/// A frame with a TCP segment that may be joined to others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    frame: &'a [u8],
    is_v4: bool,
    /// Where its headers begin, and its payload.
    ip: usize,
    tcp: usize,
    payload: usize,
    /// Whether its checksum was verified, or is left to hardware.
    is_vouched: bool,
}

impl<'a> Segment<'a> {
    /// The segment in a frame with this header of virtio, if it may be joined to others.
    #[inline]
    pub(crate) fn of(frame: &'a [u8], header: [u8; HEADER_BYTES]) -> Option<Self> {
        if frame.first().is_none_or(|byte| byte & 1 != 0) || header[1] != NONE {
            return None;
        }
        let (kind, ip) = layers::ethernet(frame, 0).ok()?;
        let half = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let is_v4 = kind == layers::IPV4;
        let least = if is_v4 { LEAST_HEADERS - 20 } else { LEAST_HEADERS };
        if ip > MOST_BEFORE_IP || frame.len() < ip + least {
            return None;
        }
        let (tcp, end) = match kind {
            layers::IPV4 if frame[ip] == 0x45 && frame[ip + 9] == TCP && half(ip + 6) & !0x4000 == 0 => {
                (ip + 20, ip + half(ip + 2))
            }
            layers::IPV6 if frame[ip] >> 4 == 6 && frame[ip + 6] == TCP => (ip + 40, ip + 40 + half(ip + 4)),
            _ => return None,
        };
        let header_len = 4 * usize::from(frame[tcp + 12] >> 4);
        let payload = tcp + header_len;
        let has_flags = frame[tcp + FLAGS] & !(PSH | ECE) == ACK;
        if !has_flags || header_len < 20 || payload > MAX_HEADER || payload >= end || end != frame.len() {
            return None;
        }
        let is_left = header[0] & NEEDS_CHECKSUM != 0;
        let is_vouched = is_left || header[0] & DATA_VALID != 0;
        let is_its = !is_left || Offload::left(header) == Offload::checksum(tcp as u16, FIELD as u16);
        is_its.then_some(Self { frame, is_v4, ip, tcp, payload, is_vouched })
    }

    fn sequence(&self) -> u32 {
        let at = self.tcp + 4;
        u32::from_be_bytes([self.frame[at], self.frame[at + 1], self.frame[at + 2], self.frame[at + 3]])
    }

    fn identification(&self) -> u16 {
        u16::from_be_bytes([self.frame[self.ip + 4], self.frame[self.ip + 5]])
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        &self.frame[self.payload..]
    }

    fn is_pushed(&self) -> bool {
        self.frame[self.tcp + FLAGS] & PSH != 0
    }

    /// Whether it is segment number `n` of the super-frame whose first segment is `first`.
    fn is_of(&self, first: &Self, n: usize) -> bool {
        let same = |from: usize, to: usize| self.frame[from..to] == first.frame[from..to];
        let (ip, tcp) = (self.ip, self.tcp);
        (self.is_v4, ip, tcp, self.payload) == (first.is_v4, first.ip, first.tcp, first.payload)
            && same(0, ip)
            && match self.is_v4 {
                true => {
                    let identification = first.identification().wrapping_add(n as u16);
                    same(ip, ip + 2)
                        && self.identification() == identification
                        && same(ip + 6, ip + 10)
                        && same(ip + 12, tcp + 4)
                }
                false => same(ip, ip + 4) && same(ip + 6, tcp + 4),
            }
            && self.sequence() == first.sequence().wrapping_add((n * first.payload().len()) as u32)
            && same(tcp + 8, tcp + FLAGS)
            && (self.frame[tcp + FLAGS] ^ first.frame[tcp + FLAGS]) & !PSH == 0
            && same(tcp + 14, tcp + FIELD)
            && same(tcp + 18, self.payload)
            && self.payload().len() <= first.payload().len()
    }

    /// Whether its checksums are right.
    fn is_right(&self) -> bool {
        let (ip, tcp, frame) = (self.ip, self.tcp, self.frame);
        if self.is_v4 && fold(sum(&frame[ip..tcp])) != 0xffff {
            return false;
        }
        if self.is_vouched {
            return true;
        }
        let addresses = if self.is_v4 { &frame[ip + 12..ip + 20] } else { &frame[ip + 8..ip + 40] };
        let pseudo_header = sum(addresses) + u64::from(TCP) + (frame.len() - tcp) as u64;
        fold(pseudo_header + sum(&frame[tcp..])) == 0xffff
    }
}

/// A super-frame to which segments are joined.
#[derive(Debug)]
pub(crate) struct Join<'a> {
    first: Segment<'a>,
    n_segments: usize,
    /// Bytes of the frame so far.
    len: usize,
    /// Whether nothing can follow.
    is_over: bool,
}

impl<'a> Join<'a> {
    /// Joins the second segment to the first one, if it follows.
    pub(crate) fn begin(first: Segment<'a>, second: &Segment<'_>) -> Option<Self> {
        let mut join = Self { first, n_segments: 1, len: first.frame.len(), is_over: first.is_pushed() };
        // The cheaper questions first.
        (first.payload().len() >= LEAST_PAYLOAD && second.is_of(&first, 1) && first.is_right() && join.takes(second))
            .then_some(join)
    }

    /// Joins the next segment, if it follows.
    pub(crate) fn takes(&mut self, next: &Segment<'_>) -> bool {
        let len = self.len + next.payload().len();
        if self.is_over
            || len - self.first.ip > LONGEST
            || !next.is_of(&self.first, self.n_segments)
            || !next.is_right()
        {
            return false;
        }
        self.n_segments += 1;
        self.len = len;
        self.is_over = next.is_pushed() || next.payload().len() < self.first.payload().len();
        true
    }

    /// How many segments there are.
    pub(crate) fn n_segments(&self) -> usize {
        self.n_segments
    }

    /// Writes lengths, checksums and PSH into the headers of the super-frame, whose last segment is `last`. `tag` bytes were inserted
    /// behind the addresses of the first segment.
    pub(crate) fn finish(&self, packet: &mut Packet, tag: usize, last: &Segment<'_>) {
        let Segment { is_v4, ip, tcp, .. } = self.first;
        let (ip, tcp) = (ip + tag, tcp + tag);
        let frame = packet.frame_mut();
        let len = frame.len() - ip;
        if is_v4 {
            put(frame, ip + 2, len as u16);
            put(frame, ip + 10, 0);
            let checksum = !fold(sum(&frame[ip..tcp]));
            put(frame, ip + 10, checksum);
        } else {
            put(frame, ip + 4, (len - 40) as u16);
        }
        frame[tcp + FLAGS] |= last.frame[last.tcp + FLAGS] & PSH;
        let kind = if is_v4 { Kind::TcpV4 } else { Kind::TcpV6 };
        let size = self.first.payload().len() as u16;
        packet.set_offload(Offload::checksum(tcp as u16, FIELD as u16).segments(kind, size));
        renew(packet);
    }
}

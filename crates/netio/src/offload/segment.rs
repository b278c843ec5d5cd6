//! The segments of a super-frame: its headers, each time with another length, identification, sequence number and checksum, and a
//! piece of its payload.
//!
//! ```text
//!   super-frame:  | Ethernet, IP, TCP | payload .......................................... |
//!   segment 0:    | headers'          | size bytes |
//!   segment 1:    | headers'          |            | size bytes |       .. the last one has what is left
//! ```
//! The checksum of a segment is first that of its pseudo-header, as in the super-frame: a device may complete it. It follows from
//! the one of the super-frame by the difference of lengths, so addresses are not looked at (a routing header has others).

use super::layers::{self, Layer, Layers};
use super::{Kind, Offload, put_checksum};
use crate::checksum::{fold, sum};
use crate::{FrameTooLong, Packet};

/// Bytes of the longest headers of a super-frame.
pub const MAX_HEADER: usize = 256;

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// A super-frame cannot be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a super-frame has headers that are not known, or no payload")]
pub struct Unsegmentable;

/// See the module.
#[derive(Debug)]
pub struct Segments<'a> {
    header: &'a [u8],
    payload: &'a [u8],
    offload: Offload,
    kind: Kind,
    layers: Layers,
}

impl<'a> Segments<'a> {
    /// The segments of a super-frame.
    /// # Errors
    /// Its headers are not known, or do not fit together.
    pub fn of(packet: &'a Packet) -> Result<Self, Unsegmentable> {
        Self::new(packet.frame(), packet.offload())
    }

    pub(super) fn new(frame: &'a [u8], offload: Offload) -> Result<Self, Unsegmentable> {
        let kind = offload.kind.filter(|_| offload.size > 0).ok_or(Unsegmentable)?;
        let start = usize::from(offload.start);
        let (least, field) = match kind {
            Kind::Udp => (start + 8, 6),
            Kind::TcpV4 | Kind::TcpV6 => (start + 20, 16),
        };
        let header_len = offload.header_len(kind, frame);
        if header_len < least || header_len > MAX_HEADER || offload.field != field {
            return Err(Unsegmentable);
        }
        let (header, payload) = frame.split_at_checked(header_len).ok_or(Unsegmentable)?;
        if payload.is_empty() {
            return Err(Unsegmentable);
        }
        let layers = layers::walk(frame, start).map_err(|_| Unsegmentable)?;
        Ok(Self { header, payload, offload, kind, layers })
    }

    /// Their number.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.payload.len().div_ceil(self.offload.size.into())
    }

    /// The rest of a segment after [`Segments::cut`].
    pub(crate) fn left(&self) -> Offload {
        Offload::checksum(self.offload.start, self.offload.field)
    }

    /// The headers of segment number `i`, written to the beginning of `header`, and its payload. The checksum of the transport
    /// header is left.
    /// # Panics
    /// If the segment does not exist.
    #[inline]
    pub fn cut<'h>(&self, i: usize, header: &'h mut [u8; MAX_HEADER]) -> (&'h mut [u8], &'a [u8]) {
        let size = usize::from(self.offload.size);
        let first = i * size;
        let payload = &self.payload[first..self.payload.len().min(first + size)];
        let is_last = first + payload.len() == self.payload.len();
        let header = &mut header[..self.header.len()];
        header.copy_from_slice(self.header);
        let start = usize::from(self.offload.start);
        let (end, all) = (header.len() + payload.len(), header.len() + self.payload.len());
        for layer in &self.layers.0 {
            match *layer {
                Layer::V4(at) => {
                    put(header, at + 2, (end - at) as u16);
                    let identification = u16::from_be_bytes([header[at + 4], header[at + 5]]).wrapping_add(i as u16);
                    put(header, at + 4, identification);
                    put(header, at + 10, 0);
                    let len = usize::from(header[at] & 15) * 4;
                    let checksum = !fold(sum(&header[at..at + len]));
                    put(header, at + 10, checksum);
                }
                Layer::V6(at) => put(header, at + 4, (end - at - 40) as u16),
                Layer::Udp(at) => {
                    put(header, at + 4, (end - at) as u16);
                    if header[at + 6..at + 8] != [0, 0] {
                        shorten(header, at + 6, all - at, end - at);
                    }
                }
            }
        }
        shorten(header, start + usize::from(self.offload.field), all - start, end - start);
        match self.kind {
            Kind::Udp => put(header, start + 4, (end - start) as u16),
            Kind::TcpV4 | Kind::TcpV6 => {
                let number = &mut header[start + 4..start + 8];
                let first =
                    (first as u32).wrapping_add(u32::from_be_bytes([number[0], number[1], number[2], number[3]]));
                number.copy_from_slice(&first.to_be_bytes());
                if !is_last {
                    header[start + 13] &= !FIN_PSH;
                }
                if i > 0 {
                    header[start + 13] &= !CWR;
                }
            }
        }
        (header, payload)
    }

    /// Completes the checksums of a segment of [`Segments::cut`] with what its payload adds to them.
    pub(crate) fn complete(&self, header: &mut [u8], payload: &[u8]) {
        let start = usize::from(self.offload.start);
        let mut all = sum(payload);
        // An odd byte at the end of the headers is the first of a word: headers of IP, TCP and UDP are even, and so are tunnels'.
        let finish = |header: &mut [u8], start: usize, field: usize, rest: u64| {
            let checksum = !fold(sum(&header[start..]) + rest);
            put(header, field, if checksum == 0 { 0xffff } else { checksum });
        };
        all = u64::from(fold(all));
        finish(header, start, start + usize::from(self.offload.field), all);
        for layer in self.layers.0.iter().rev() {
            if let Layer::Udp(at) = *layer
                && header[at + 6..at + 8] != [0, 0]
            {
                finish(header, at, at + 6, all);
            }
        }
    }

    /// Makes a packet segment number `i`, whose checksums are complete.
    /// # Errors
    /// [`FrameTooLong`].
    pub fn write(&self, i: usize, packet: &mut Packet) -> Result<(), FrameTooLong> {
        let mut buffer = [0; MAX_HEADER];
        let (header, payload) = self.cut(i, &mut buffer);
        packet.resize(header.len() + payload.len())?;
        let frame = packet.frame_mut();
        frame[..header.len()].copy_from_slice(header);
        frame[header.len()..].copy_from_slice(payload);
        let start = usize::from(self.offload.start);
        put_checksum(frame, start, start + usize::from(self.offload.field));
        for layer in self.layers.0.iter().rev() {
            if let Layer::Udp(at) = *layer
                && frame[at + 6..at + 8] != [0, 0]
            {
                put_checksum(frame, at, at + 6);
            }
        }
        Ok(())
    }
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Corrects the sum of a pseudo-header whose length is another now.
fn shorten(bytes: &mut [u8], field: usize, from: usize, to: usize) {
    let old = u16::from_be_bytes([bytes[field], bytes[field + 1]]);
    put(bytes, field, fold(u64::from(old) + u64::from(!fold(from as u64)) + to as u64));
}

//! The header of virtio's network devices, which packet sockets and TAP interfaces put before a frame.
//!
//! ```text
//!  0       1          2          4          6            8             10
//!  | flags | GSO type | header   | GSO size | sum starts | sum's field | the frame ..
//!  |       |          | bytes    |          |            | from there  |     numbers as this machine has them
//! ```

use super::{Kind, Offload, layers};
use crate::checksum;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 10;

pub(super) const NEEDS_CHECKSUM: u8 = 1;
/// The kernel has verified the checksum.
pub(super) const DATA_VALID: u8 = 2;
pub(super) const NONE: u8 = 0;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
/// Beside the type: the first segment alone says that the congestion window was reduced.
const ECN: u8 = 0x80;
const CWR: u8 = 0x80;

/// A header does not fit its frame, or has an unknown meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a header of virtio does not fit its frame")]
pub struct Malformed;

impl Offload {
    /// Reads the header of a frame, behind whose addresses `tag` bytes were inserted since. A super-frame whose checksum is not left has its pseudo-header's sum afterwards, as if it were.
    pub(crate) fn read(header: [u8; HEADER_BYTES], tag: usize, frame: &mut [u8]) -> Result<Self, Malformed> {
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let kind = match header[1] & !ECN {
            NONE => None,
            TCP_V4 => Some(Kind::TcpV4),
            TCP_V6 => Some(Kind::TcpV6),
            UDP => Some(Kind::Udp),
            _ => return Err(Malformed),
        };
        let (start, field) = match (header[0] & NEEDS_CHECKSUM != 0, kind) {
            (true, _) => (half(6).saturating_add(tag as u16), half(8)),
            (false, None) => return Ok(Self::default()),
            (false, Some(_)) => {
                let (start, field) = checksum::unfinish(frame).ok_or(Malformed)?;
                (start as u16, field as u16)
            }
        };
        if start == 0 || usize::from(start) + usize::from(field) + 2 > frame.len() {
            return Err(Malformed);
        }
        let offload = Self::checksum(start, field);
        match kind {
            None => Ok(offload),
            Some(kind) => {
                let offload = offload.segments(kind, half(4));
                if offload.size == 0 {
                    return Err(Malformed);
                }
                // A single segment is not a super-frame.
                let is_one = offload.header_len(kind, frame) + usize::from(offload.size) >= frame.len();
                Ok(if is_one { Self::checksum(start, field) } else { offload })
            }
        }
    }

    /// The checksum that a header says is left.
    pub(super) fn left(header: [u8; HEADER_BYTES]) -> Self {
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        Self::checksum(half(6), half(8))
    }

    /// The header that says this of a frame.
    #[inline]
    pub(crate) fn write(self, frame: &[u8]) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        if self.is_none() {
            return header;
        }
        let mut put = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        put(6, self.start);
        put(8, self.field);
        let mut kind_byte = NONE;
        if let Some(kind) = self.kind {
            // Without it the kernel would look for 64 KB in one piece.
            put(2, self.header_len(kind, frame) as u16);
            put(4, self.size);
            let flags = frame.get(usize::from(self.start) + 13).copied().unwrap_or_default();
            kind_byte = match kind {
                Kind::TcpV4 => TCP_V4,
                Kind::TcpV6 => TCP_V6,
                Kind::Udp => UDP,
            };
            if kind != Kind::Udp && flags & CWR != 0 {
                kind_byte |= ECN;
            }
        }
        header[0] = NEEDS_CHECKSUM;
        header[1] = kind_byte;
        header
    }

    /// Whether it is left of a TCP segment or a UDP datagram.
    #[inline]
    pub(crate) fn is_of_flow(self) -> bool {
        matches!(self.field, 6 | 16)
    }

    /// Whether the kernel finds the headers of the frame: there is no EtherType that it does not know, and no tunnel, of whose outer
    /// headers the header of virtio does not tell.
    pub(crate) fn is_plain(self, frame: &[u8]) -> bool {
        let ether_type = frame.get(12..14).and_then(|bytes| <[u8; 2]>::try_from(bytes).ok()).map(u16::from_be_bytes);
        // Behind others the kernel finds no headers.
        let is_known = ether_type.is_some_and(|it| matches!(it, 0x0800 | 0x86dd | 0x8100 | 0x88a8));
        is_known && layers::walk(frame, self.start.into()).is_ok_and(|layers| !layers.is_tunnel())
    }
}

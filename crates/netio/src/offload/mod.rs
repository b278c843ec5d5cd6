//! Work that senders leave to hardware: incomplete checksums, and super-frames, which must be cut into segments.
//!
//! ```text
//!   a host's stack ─► frame of up to 64 KB, checksum of the pseudo-header only ─► device that takes it so ─► another host's stack
//!                                                                             └► any other: segments, complete checksums
//! ```
//! A sender on a virtual link (veth, TAP) has no hardware, and sends what it would leave to it; a receiver on such a link takes it as
//! it is. So a super-frame is carried whole as far as can be, and its payload is neither cut nor summed. [`Offload`] says of a
//! packet what is left to do, [`transmit`] does it for a device that does not take it ([`Device::takes_offloads`]).
//!
//! | module | what |
//! |---|---|
//! | `header` | the header of virtio with which the kernel says this |
//! | `layers` | the IP headers of a frame, also in tunnels: their lengths change in segments |
//! | `segment` | segments of TCP and UDP |
//! | `join` | segments of TCP that arrive one behind another, joined again |
//!
//! Sources: Virtual I/O Device (VIRTIO) 1.2, 5.1.6 for the header; Linux, segmentation-offloads.rst for segments of TCP (RFC 9293), with ECN
//! (RFC 3168, 6.1.2), and UDP. Cost: nothing for a frame that is carried whole; else one pass over its bytes for checksums.
//! Limits: TCP and UDP over IPv4 and IPv6; tunnels of IP in IP, GRE without checksum, VXLAN and Geneve at their ports.

mod header;
mod join;
mod layers;
mod segment;

use crate::checksum::{fold, sum};
use crate::{BURST, Burst, Device, NetError, Packet, Pool};
pub use header::{HEADER_BYTES, Malformed};
pub(crate) use join::{Join, Segment};
pub use segment::{MAX_HEADER, Segments, Unsegmentable};

/// The kind of a super-frame's segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP, each segment a datagram.
    Udp,
}

/// The remaining work for a frame. Offsets are from its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// The offset of the bytes that the checksum covers; 0: it is complete.
    start: u16,
    /// The offset of the checksum from there.
    field: u16,
    /// Bytes of payload of each segment; 0 if there is one.
    size: u16,
    kind: Option<Kind>,
}

impl Offload {
    /// A checksum is left: over the bytes from `start` to the end, `field` bytes behind `start`, where the folded sum of the
    /// pseudo-header is now.
    pub fn checksum(start: u16, field: u16) -> Self {
        Self { start, field, ..Self::default() }
    }

    /// It is a super-frame: its payload is to be cut into pieces of `size` bytes, and the checksum of each is left as in
    /// [`Offload::checksum`].
    #[must_use]
    pub fn segments(self, kind: Kind, size: u16) -> Self {
        Self { size, kind: Some(kind), ..self }
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_none(self) -> bool {
        self.start == 0
    }

    /// What its segments are, if it is a super-frame.
    #[inline]
    pub fn kind(self) -> Option<Kind> {
        self.kind
    }

    /// The offset of the bytes that an incomplete checksum covers.
    #[inline]
    pub fn start(self) -> Option<usize> {
        (self.start != 0).then_some(self.start.into())
    }

    /// Whether the checksum in the header at `transport` is left.
    #[inline]
    pub fn is_left_at(self, transport: usize) -> bool {
        self.start != 0 && usize::from(self.start) == transport
    }

    /// `by` bytes were inserted at `at`, or removed if it is negative.
    #[inline]
    pub(crate) fn shift(&mut self, at: usize, by: i32) {
        if usize::from(self.start) > at {
            self.start = (i32::from(self.start) + by) as u16;
        }
    }

    #[inline]
    pub(crate) fn wire_len(self, frame: &[u8]) -> usize {
        match self.kind {
            None => frame.len(),
            Some(kind) => frame.len().min(self.header_len(kind, frame) + usize::from(self.size)),
        }
    }

    /// Bytes before the payload that is cut.
    fn header_len(self, kind: Kind, frame: &[u8]) -> usize {
        let start = usize::from(self.start);
        match kind {
            Kind::Udp => start + 8,
            Kind::TcpV4 | Kind::TcpV6 => start + 4 * usize::from(frame.get(start + 12).map_or(5, |byte| byte >> 4)),
        }
    }
}

/// Completes the checksum of a frame that is not a super-frame. Returns false and changes nothing if the frame says that the checksum is
/// behind its end.
pub fn complete(packet: &mut Packet) -> bool {
    let offload = packet.offload();
    let Some(start) = offload.start() else { return true };
    let is_done = put_checksum(packet.frame_mut(), start, start + usize::from(offload.field));
    if is_done {
        packet.set_offload(Offload::default());
    }
    is_done
}

/// Sets an incomplete checksum to the sum of the pseudo-header as it is now: after addresses of the packet have changed, however the
/// checksum was changed with them.
pub fn renew(packet: &mut Packet) {
    let left = packet.offload();
    let Some(start) = left.start().filter(|_| left.is_of_flow()) else { return };
    let frame = packet.frame_mut();
    let Ok(layers) = layers::walk(frame, start) else { return };
    let protocol = if left.field == 6 { 17 } else { 6 };
    layers.put_pseudo_header(frame, start, (start + usize::from(left.field), protocol), left.kind.is_some());
}

fn put_checksum(frame: &mut [u8], start: usize, field: usize) -> bool {
    if field + 2 > frame.len() {
        return false;
    }
    let checksum = !fold(sum(&frame[start..]));
    // In UDP an all-zero field means "no checksum"; in ones' complement the other zero is the same.
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Sends frames by a device as [`Device::tx_burst`] does, and first does what is left of those that the device does not take so. A
/// super-frame counts as one frame; it is sent when all its segments are.
/// # Errors
/// Those of [`Device::tx_burst`].
#[inline]
pub fn transmit(device: &mut dyn Device, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
    if device.takes_offloads() || frames.iter().all(|packet| packet.offload().is_none()) {
        return device.tx_burst(pool, frames);
    }
    transmit_finished(device, pool, frames)
}

/// See [`transmit`].
#[cold]
fn transmit_finished(device: &mut dyn Device, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
    let (mut sent, mut burst) = (0, Burst::new());
    while !frames.is_empty() {
        let n = frames.iter().take_while(|packet| packet.offload().kind().is_none()).count();
        for mut packet in frames.drain(..n) {
            if complete(&mut packet) {
                burst.push(packet);
            } else {
                device.counters().tx_refused.add(1);
                pool.put(packet);
            }
        }
        let result = device.tx_burst(pool, &mut burst);
        let is_left = !burst.is_empty();
        if is_left {
            burst.extend(frames.drain(..));
            std::mem::swap(&mut burst, frames);
        }
        match result {
            Ok(n) => sent += n,
            Err(_) if sent > 0 => return Ok(sent),
            Err(error) => return Err(error),
        }
        if is_left || frames.is_empty() {
            break;
        }
        match transmit_cut(device, pool, &frames[0]) {
            Ok(Cut::Sent) => sent += 1,
            Ok(Cut::Refused) => {}
            Ok(Cut::Full) => break,
            Err(_) if sent > 0 => break,
            Err(error) => return Err(error),
        }
        pool.put(frames.remove(0));
    }
    Ok(sent)
}

/// What became of a super-frame.
enum Cut {
    Sent,
    /// It can never be sent.
    Refused,
    /// Some of its segments could not be sent now.
    Full,
}

fn transmit_cut(device: &mut dyn Device, pool: &mut Pool, packet: &Packet) -> Result<Cut, NetError> {
    let Ok(segments) = Segments::of(packet) else {
        device.counters().tx_refused.add(1);
        return Ok(Cut::Refused);
    };
    let (mut burst, mut i, mut n_sent) = (Burst::new(), 0, 0);
    while i < segments.len() {
        while i < segments.len() && burst.len() < BURST {
            let Some(mut segment) = pool.take() else { break };
            if segments.write(i, &mut segment).is_err() {
                pool.put(segment);
                pool.put_all(&mut burst);
                device.counters().tx_refused.add(1);
                return Ok(Cut::Refused);
            }
            burst.push(segment);
            i += 1;
        }
        let n = burst.len();
        let result = device.tx_burst(pool, &mut burst);
        let is_stuck = n == 0 || !burst.is_empty();
        pool.put_all(&mut burst);
        n_sent += result?;
        if is_stuck {
            return Ok(Cut::Full);
        }
    }
    device.counters().tx_segments.add(n_sent as u64);
    Ok(if n_sent == 0 { Cut::Refused } else { Cut::Sent })
}

#[cfg(test)]
mod tests;

//! Sends frames, and cuts the super-frames that the kernel cannot cut and the interface does not take.
//!
//! Sends bypass the queueing discipline, and on that way the kernel refuses a super-frame that it would have to cut, with `ENOBUFS`. Then
//! those of the kind are cut here for a while: what an interface takes may change (`ethtool -K`, a program of XDP at the other end of a
//! veth). Their payload is not copied, and where the kernel knows the headers the sums are left to it.

use super::{Open, VLAN_TAG, sys};
use crate::offload::{self, Kind, MAX_HEADER, Segments};
use crate::{BURST, Burst, DeviceCounters, Packet, Pool};
use std::io;
use std::os::fd::AsFd;

/// Super-frames of a kind that are cut before one is tried whole again.
const TRY_EVERY: u32 = 4096;

/// How many super-frames of each kind must still be cut; 0: they are sent whole.
#[derive(Debug, Default)]
pub(super) struct Whole([u32; 3]);

impl Whole {
    fn of(&mut self, kind: Kind) -> &mut u32 {
        &mut self.0[kind as usize]
    }
}

impl Open {
    /// Sends frames from the front of `frames`, and drops those that can never be sent. Returns how many were sent, and the error that
    /// ended this.
    #[inline]
    pub(super) fn send(
        &mut self,
        pool: &mut Pool,
        frames: &mut Burst,
        counters: &DeviceCounters,
    ) -> (usize, Option<io::Error>) {
        let mut sent = 0;
        // Each round sends frames, drops one, has those of a kind cut from now on, or ends.
        for _ in 0..=BURST + 3 {
            if frames.is_empty() {
                break;
            }
            let n = match frames.iter().all(|packet| packet.offload().is_none()) {
                true => frames.len(),
                false => self.prepare_run(frames),
            };
            let result = match n {
                0 => self.send_cut(&frames[0], counters),
                _ => sys::send_burst(self.socket.as_fd(), &mut frames[..n]),
            };
            match result {
                Ok(n_sent) => {
                    let n_sent = n_sent.min(frames.len());
                    if n > 0 {
                        count(&frames[..n_sent], counters);
                    }
                    frames.drain(..n_sent).for_each(|packet| pool.put(packet));
                    sent += n_sent;
                }
                Err(e) => match (e.raw_os_error(), frames[0].offload().kind().filter(|_| n > 0)) {
                    (Some(libc::ENOBUFS | libc::EINVAL | libc::EPROTONOSUPPORT), Some(kind)) => {
                        *self.whole.of(kind) = TRY_EVERY
                    }
                    (Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM), _) => break,
                    (Some(libc::EINTR), _) => {}
                    // Longer than the MTU, or shorter than a header: it can never be sent.
                    (Some(libc::EMSGSIZE | libc::EINVAL), _) => {
                        counters.tx_refused.add(1);
                        frames.drain(..1).for_each(|packet| pool.put(packet));
                    }
                    _ => return (sent, Some(e)),
                },
            }
        }
        (sent, None)
    }

    /// The number of frames from the first on that are sent unchanged; 0 if the first one must be cut.
    #[cold]
    fn prepare_run(&mut self, frames: &mut Burst) -> usize {
        let longest = self.max_frame + VLAN_TAG;
        let whole = &mut self.whole;
        let mut goes_as_it_is = |packet: &mut Packet| {
            let left = packet.offload();
            if left.is_none() {
                return true;
            }
            let is_plain = left.is_plain(packet.frame());
            let Some(kind) = left.kind() else {
                // Anyone who is behind such headers may not know what is left.
                return is_plain || offload::complete(packet);
            };
            is_plain && *whole.of(kind) == 0 && packet.wire_len() <= longest
        };
        let others = frames.iter_mut().position(|packet| !goes_as_it_is(packet));
        others.unwrap_or(frames.len())
    }

    /// Sends the segments of a super-frame: all of them, or it counts as not sent.
    #[cold]
    fn send_cut(&mut self, packet: &Packet, counters: &DeviceCounters) -> io::Result<usize> {
        let left = packet.offload();
        let kind = left.kind().ok_or(io::ErrorKind::InvalidInput)?;
        let longest = self.max_frame + VLAN_TAG;
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        if packet.wire_len() > longest {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let tries = self.whole.of(kind);
        *tries = tries.saturating_sub(1);
        let segments = Segments::of(packet).map_err(|_| invalid())?;
        let is_plain = left.is_plain(packet.frame());
        let mut buffers = [[0; offload::HEADER_BYTES + MAX_HEADER]; BURST];
        let (mut i, mut bytes) = (0, 0);
        while i < segments.len() {
            let n = (segments.len() - i).min(BURST);
            let mut pieces: [[&[u8]; 2]; BURST] = [[&[], &[]]; BURST];
            for (at, (buffer, piece)) in buffers.iter_mut().zip(&mut pieces).take(n).enumerate() {
                let (head, rest) = buffer.split_at_mut(offload::HEADER_BYTES);
                let rest = rest.first_chunk_mut().ok_or_else(invalid)?;
                let (header, payload) = segments.cut(i + at, rest);
                let header_len = header.len();
                if is_plain {
                    head.copy_from_slice(&segments.left().write(header));
                } else {
                    segments.complete(header, payload);
                    head.fill(0);
                }
                *piece = [&buffer[..offload::HEADER_BYTES + header_len], payload];
            }
            let n_sent = sys::send_pieces(self.socket.as_fd(), &pieces[..n])?;
            for [header, payload] in &pieces[..n_sent] {
                bytes += header.len() - offload::HEADER_BYTES + payload.len();
            }
            i += n_sent;
        }
        counters.tx_frames.add(i as u64);
        counters.tx_bytes.add(bytes as u64);
        counters.tx_segments.add(i as u64);
        Ok(1)
    }
}

fn count(sent: &[Packet], counters: &DeviceCounters) {
    let bytes: usize = sent.iter().map(Packet::len).sum();
    counters.tx_frames.add(sent.len() as u64);
    counters.tx_bytes.add(bytes as u64);
    let n_super = sent.iter().filter(|packet| packet.offload().kind().is_some()).count();
    counters.tx_super.add(n_super as u64);
}

//! Frames from the ring, and those that did not fit their slots from the socket's queue.
//!
//! A slot whose frame is in the queue has `TP_STATUS_COPY`. Slots and queue are in the same order, so the first frame of the queue is of the
//! first such slot. A process that is killed between the queue and the note in the ring leaves a slot whose frame is gone: the next one
//! looks at the first frame, until slot and frame are of each other again.

use super::ring::{Ring, Slot};
use super::{Open, VLAN_TAG, sys};
use crate::offload::{self, HEADER_BYTES, Join, Offload, Segment};
use crate::{Burst, DeviceCounters, FrameTooLong, Packet, Pool};
use std::os::fd::{AsFd, BorrowedFd};

const ETHER_VLAN: u16 = 0x8100;
/// Super-frames of a burst: more would not be in the cache any more when they are sent.
const LONG_AT_ONCE: usize = 8;
/// This many bytes of a frame are compared with those in its slot: Ethernet, IP and TCP, whose numbers no two frames have in common.
const COMPARED: usize = 96;

/// The fate of a frame in the ring.
pub(super) enum Judgement {
    Take,
    Drop,
    /// It stays, and so do all behind it.
    Leave,
}

impl Open {
    /// Receives frames into the room left in `out`, and joins the segments of a stream among them if this port's packets may be
    /// super-frames. Returns how many.
    #[inline(always)]
    pub(super) fn receive(&mut self, pool: &mut Pool, out: &mut Burst, counters: &DeviceCounters) -> usize {
        let joins = self.carries && pool.has_large();
        self.receive_each(pool, out, counters, joins, |_| Judgement::Take).0
    }

    /// Receives frames, as `judge` says of each, into the room left in `out`. Returns how many, and whether none is left. Of those that
    /// are joined only the first is judged.
    #[inline(always)]
    pub(super) fn receive_each(
        &mut self,
        pool: &mut Pool,
        out: &mut Burst,
        counters: &DeviceCounters,
        joins: bool,
        mut judge: impl FnMut(&Slot<'_>) -> Judgement,
    ) -> (usize, bool) {
        let before = out.len();
        let (mut bytes, mut n_seen, mut n_long, mut losing, mut is_drained) = (0, 0, 0, false, false);
        while !out.is_full() && n_long < LONG_AT_ONCE {
            let Self { socket, ring, carries, is_unsure, .. } = self;
            let Some(slot) = ring.peek(n_seen) else {
                is_drained = true;
                break;
            };
            let is_long = slot.bytes.len() < slot.len;
            if joins
                && !is_long
                && let Some((packet, n)) = join(ring, (&slot, n_seen), pool)
            {
                losing |= (0..n).filter_map(|i| ring.peek(n_seen + i)).any(|slot| slot.tells_of_losses());
                counters.rx_super.add(1);
                counters.rx_joined.add(n as u64);
                bytes += packet.len();
                out.push(packet);
                n_long += 1;
                n_seen += n;
                continue;
            }
            // A slot may have room for more than a packet has.
            let is_large = is_long || slot.len + VLAN_TAG > pool.max_frame();
            let packet = if is_large && *carries && pool.has_large() { pool.take_large() } else { pool.take() };
            let Some(mut packet) = packet else { break };
            let judgement = judge(&slot);
            if matches!(judgement, Judgement::Leave) {
                pool.put(packet);
                break;
            }
            losing |= slot.tells_of_losses();
            let takes = matches!(judgement, Judgement::Take);
            let is_taken = if is_long {
                n_long += 1;
                let mut queue = Queue { socket: socket.as_fd(), ring, is_unsure };
                match *carries {
                    true => queue.take((&slot, n_seen), &mut packet, counters, takes),
                    false => {
                        counters.rx_oversized.add(1);
                        false
                    }
                }
            } else {
                takes && copy(&slot, &mut packet, counters, *carries)
            };
            if is_taken {
                bytes += packet.len();
                out.push(packet);
            } else {
                pool.put(packet);
            }
            n_seen += 1;
        }
        self.ring.release(n_seen);
        // Once per burst: while the ring overflows, every frame reports it, and reading the count is a system call.
        if losing {
            counters.rx_overrun.add(self.overruns());
        }
        let n = out.len() - before;
        if n > 0 {
            counters.rx_frames.add(n as u64);
            counters.rx_bytes.add(bytes as u64);
        }
        (n, is_drained)
    }
}

/// The super-frame whose segments are in this slot and those behind it, and how many they are. None if no others follow this one.
#[inline]
fn join(ring: &Ring, (slot, ahead): (&Slot<'_>, usize), pool: &mut Pool) -> Option<(Packet, usize)> {
    let first = Segment::of(slot.bytes, slot.left)?;
    join_to(ring, (slot, first, ahead), pool)
}

/// See [`join`].
#[inline(never)]
fn join_to(
    ring: &Ring,
    (slot, first, ahead): (&Slot<'_>, Segment<'_>, usize),
    pool: &mut Pool,
) -> Option<(Packet, usize)> {
    let tag = tag_of(slot);
    let following = |n: usize| {
        let next = ring.peek(ahead + n).filter(|next| next.bytes.len() == next.len && tag_of(next) == tag)?;
        Segment::of(next.bytes, next.left)
    };
    let mut last = following(1)?;
    let mut join = Join::begin(first, &last)?;
    let mut packet = pool.take_large()?;
    let is_written = put(slot.bytes, tag, &mut packet).is_ok() && packet.append(last.payload()).is_ok();
    if !is_written {
        pool.put(packet);
        return None;
    }
    while let Some(next) = following(join.n_segments())
        && join.takes(&next)
    {
        if packet.append(next.payload()).is_err() {
            debug_assert!(false, "a large packet has room for the longest super-frame");
            pool.put(packet);
            return None;
        }
        last = next;
    }
    join.finish(&mut packet, tag.map_or(0, |_| VLAN_TAG), &last);
    Some((packet, join.n_segments()))
}

/// The tag that the kernel took off the frame of a slot.
fn tag_of(slot: &Slot<'_>) -> Option<[u8; VLAN_TAG]> {
    if slot.status & libc::TP_STATUS_VLAN_VALID == 0 || slot.len < 12 {
        return None;
    }
    let known = slot.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [a, b] = if known { slot.vlan_tpid } else { ETHER_VLAN }.to_be_bytes();
    let [c, d] = slot.vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

/// Whether the kernel itself reads what is behind the tag that it took off. Otherwise it counts the frame as dropped, though packet sockets
/// got it (`__netif_receive_skb_core`).
fn is_of_kernel(untagged: &[u8]) -> bool {
    matches!(untagged.get(12..14), Some([0x08, 0x00 | 0x06] | [0x86, 0xdd]))
}

/// Copies a slot into a packet, with its tag. Returns false for a frame that was dropped.
fn copy(slot: &Slot<'_>, packet: &mut Packet, counters: &DeviceCounters, carries: bool) -> bool {
    let tag = tag_of(slot);
    if tag.is_some() && !is_of_kernel(slot.bytes) {
        counters.rx_twice.add(1);
    }
    if put(slot.bytes, tag, packet).is_err() {
        counters.rx_oversized.add(1);
        return false;
    }
    slot.left[..2] == [0, 0] || settle(slot, tag.map_or(0, |_| VLAN_TAG), packet, counters, carries)
}

/// Writes a frame into a packet, with the tag behind its addresses.
#[inline]
fn put(bytes: &[u8], tag: Option<[u8; VLAN_TAG]>, packet: &mut Packet) -> Result<(), FrameTooLong> {
    let Some(tag) = tag else { return packet.fill(bytes) };
    packet.resize(bytes.len() + VLAN_TAG)?;
    let frame = packet.frame_mut();
    frame[..12].copy_from_slice(&bytes[..12]);
    frame[12..16].copy_from_slice(&tag);
    frame[16..].copy_from_slice(&bytes[12..]);
    Ok(())
}

/// Has the packet say what is left of it. What others than the exit would have to see complete is completed. Returns false for a
/// frame that was dropped.
fn settle(slot: &Slot<'_>, tag: usize, packet: &mut Packet, counters: &DeviceCounters, carries: bool) -> bool {
    let Ok(left) = Offload::read(slot.left, tag, packet.frame_mut()) else {
        counters.rx_malformed.add(1);
        return false;
    };
    if left.is_none() {
        return true;
    }
    packet.set_offload(left);
    let is_super = left.kind().is_some();
    // A switch reads what is for groups, and what is neither TCP nor UDP, itself.
    let is_carried = carries && (is_super || packet.frame()[0] & 1 == 0 && left.is_of_flow());
    if is_carried {
        counters.rx_super.add(is_super.into());
    } else if offload::complete(packet) {
        counters.rx_checksums.add(1);
    }
    true
}

/// The frames that did not fit their slots.
struct Queue<'a> {
    socket: BorrowedFd<'a>,
    ring: &'a Ring,
    is_unsure: &'a mut bool,
}

impl Queue<'_> {
    /// Takes the frame of a slot, which is so far ahead in the ring, into a packet, or drops it. Returns false for a frame that was
    /// dropped.
    #[inline(never)]
    fn take(
        &mut self,
        (slot, ahead): (&Slot<'_>, usize),
        packet: &mut Packet,
        counters: &DeviceCounters,
        takes: bool,
    ) -> bool {
        if slot.status & libc::TP_STATUS_COPY == 0 || *self.is_unsure && !self.align(slot, ahead) {
            // There was no room for it, or it is gone.
            counters.rx_overrun.add(1);
            return false;
        }
        let tag = tag_of(slot);
        let tag_len = tag.map_or(0, |_| VLAN_TAG);
        if !takes || packet.resize(slot.len + tag_len).is_err() {
            self.discard();
            counters.rx_oversized.add(takes.into());
            return false;
        }
        let (mut header, frame) = ([0; HEADER_BYTES], packet.frame_mut());
        let got = match tag {
            None => sys::receive(self.socket, &mut [&mut header, frame], false),
            Some(tag) => {
                let (addresses, rest) = frame.split_at_mut(12);
                let (place, rest) = rest.split_at_mut(VLAN_TAG);
                place.copy_from_slice(&tag);
                sys::receive(self.socket, &mut [&mut header, addresses, rest], false)
            }
        };
        let is_its = got.is_ok_and(|got| got == HEADER_BYTES + slot.len) && {
            let (frame, n) = (packet.frame(), COMPARED.min(slot.bytes.len()));
            frame[..12] == slot.bytes[..12] && frame[12 + tag_len..n + tag_len] == slot.bytes[12..n]
        };
        if !is_its {
            *self.is_unsure = true;
            counters.rx_overrun.add(1);
            return false;
        }
        settle(slot, tag_len, packet, counters, true)
    }

    /// Makes the first frame of the queue the one of the slot. Returns false if that one is gone.
    #[cold]
    fn align(&mut self, slot: &Slot<'_>, ahead: usize) -> bool {
        // Each round ends or takes a frame away.
        for _ in 0..=self.ring.n_slots() {
            let mut start = [0; HEADER_BYTES + COMPARED];
            let Ok(got) = sys::receive(self.socket, &mut [&mut start], true) else { return false };
            let is_of = |slot: &Slot<'_>| {
                let n = COMPARED.min(slot.bytes.len());
                got == HEADER_BYTES + slot.len && start[HEADER_BYTES..HEADER_BYTES + n] == slot.bytes[..n]
            };
            if is_of(slot) {
                *self.is_unsure = false;
                return true;
            }
            let mut later = (ahead + 1..self.ring.n_slots()).map_while(|ahead| self.ring.peek(ahead));
            if later.any(|slot| slot.status & libc::TP_STATUS_COPY != 0 && is_of(&slot)) {
                return false;
            }
            self.discard();
        }
        false
    }

    fn discard(&self) {
        let mut nothing = [0; 1];
        let _ = sys::receive(self.socket, &mut [&mut nothing], false);
    }
}

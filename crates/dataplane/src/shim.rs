//! The four bytes that a frame carries between switches.
//!
//! ```text
//!   0            6            12           14      15       16
//!   | destination | source    | 0x88B5     | hops  | flags  | the frame's own EtherType, and the rest as it was
//! ```
//! IEEE 802 sets the EtherType 0x88B5 aside for local experiments. `hops` is the number of switches that the frame may
//! still enter. Ethernet has no such field, and a frame may go in a circle while tables change. `flags` says
//! whether the frame has left the shortest path ([`DETOUR`], [`TURNED`]), and whether it is a copy ([`COPY`]); the other five bits are sent as 0, ignored on receipt, and go
//! on as they came, for later versions. Earlier versions do so with all eight. Only trunk ports have the shim: the first switch pushes it and the last
//! one removes it. So hosts never see it, and nothing that a host sends is taken for one. The MTU of a trunk must be 4
//! bytes larger than that of hosts.

use netio::Packet;

/// The EtherType of frames between switches.
pub const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// Bytes of the shim.
pub const LEN: usize = 4;
/// Its offset: after the two addresses.
pub const AT: usize = 12;
/// The most switches that a frame may enter after the first: twice the diameter of any sensible network.
pub const INITIAL_HOPS: u8 = 64;

/// A bit of `flags`: a switch that had lost its ways sent the frame by its alternate. No second switch does so. Thus, however many links
/// and switches have failed, a frame leaves the shortest path once and does not circle because of it. A switch that gets it by its own
/// way sends it by another one, or else by its alternate, and leaves the bit as it is.
pub const DETOUR: u8 = 1;
/// A bit of `flags`: a switch got the frame by its own way to the destination, and sent it by another of several. After that none does.
pub const TURNED: u8 = 2;

/// A bit of `flags`: the frame is a copy of a broadcast or multicast. A flow stage on its way lets it pass, as it did with the original.
pub const COPY: u8 = 4;

/// Pushes a new shim into a frame that a host sent. False if there is no headroom.
#[inline]
pub fn push(packet: &mut Packet) -> bool {
    packet.insert(AT, [ETHER_TYPE[0], ETHER_TYPE[1], INITIAL_HOPS, 0])
}

/// Removes the shim of a frame that leaves for a host. The caller has checked that there is one. False if the frame was
/// not allowed to enter this switch.
#[inline]
pub fn pop(packet: &mut Packet) -> bool {
    packet.frame()[AT + 2] > 0 && packet.remove(AT, LEN)
}

/// Whether a frame from a trunk has a shim and an EtherType after it.
#[inline]
pub fn is_present(frame: &[u8]) -> bool {
    frame.len() >= AT + LEN + 2 && frame[AT..AT + 2] == ETHER_TYPE
}

/// Decrements the hops of a frame that goes on to another switch. False if it may not go on.
#[inline]
pub fn count_down(frame: &mut [u8]) -> bool {
    let hops = &mut frame[AT + 2];
    *hops = hops.saturating_sub(1);
    *hops > 0
}

/// The flags of a frame with a shim.
#[inline]
pub fn flags(frame: &[u8]) -> u8 {
    frame[AT + 3]
}

/// Sets flags of a frame with a shim, beside those that it has.
#[inline]
pub fn set_flags(frame: &mut [u8], flags: u8) {
    frame[AT + 3] |= flags;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_push_and_pop() {
        let frame: Vec<u8> = (0..64).collect();
        let mut packet = Packet::from_frame(&frame);
        assert!(push(&mut packet) && is_present(packet.frame()));
        assert_eq!(packet.len(), 68);
        assert_eq!(packet.frame()[16..18], [12, 13]);
        assert!(pop(&mut packet));
        assert_eq!(packet.frame(), frame);
    }

    #[test]
    fn a_frame_enters_as_many_switches_as_it_has_hops() {
        let mut packet = Packet::from_frame(&[0; 64]);
        push(&mut packet);
        let entered = (0..1000).take_while(|_| count_down(packet.frame_mut())).count();
        assert_eq!(entered, usize::from(INITIAL_HOPS) - 1);
        assert!(!count_down(packet.frame_mut()), "and never again");
    }
}

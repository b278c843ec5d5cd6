//! The four bytes that a frame carries between switches.
//!
//! ```text
//!   0            6            12           14      15       16
//!   | destination | source    | 0x88B5     | hops  | flags  | the frame's own EtherType, and the rest as it was
//! ```
//! 0x88B5 is the EtherType that IEEE 802 sets aside for local experiments. `hops` is the number of switches the frame
//! may still enter; Ethernet has no such field, and while tables are being changed a frame may go in a circle. `flags`
//! is sent as 0 and ignored on receipt: room for later versions. The shim exists on trunk ports only; it is pushed
//! where a frame enters the network and taken off where it leaves, so hosts never see it, and what a host sends is
//! never taken for one. Trunks need an MTU of 4 bytes more than hosts.

use netio::Packet;

/// Marks a frame between switches.
pub const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// Bytes of the shim.
pub const LEN: usize = 4;
/// Where it stands: after the two addresses.
pub const AT: usize = 12;
/// Switches that a frame may enter after the first: twice the diameter of any sensible network.
pub const INITIAL_HOPS: u8 = 64;

/// Puts a fresh shim into a frame that a host sent. False without the headroom for it.
#[inline]
pub fn push(packet: &mut Packet) -> bool {
    packet.insert(AT, [ETHER_TYPE[0], ETHER_TYPE[1], INITIAL_HOPS, 0])
}

/// Takes the shim off a frame that leaves for a host. The frame was checked to have one. False when the frame was not
/// allowed to enter this switch.
#[inline]
pub fn pop(packet: &mut Packet) -> bool {
    packet.frame()[AT + 2] > 0 && packet.remove(AT, LEN)
}

/// Whether a frame from a trunk carries a shim, and room for an EtherType behind it.
#[inline]
pub fn is_present(frame: &[u8]) -> bool {
    frame.len() >= AT + LEN + 2 && frame[AT..AT + 2] == ETHER_TYPE
}

/// Counts a frame down that goes on to another switch. False when it may not.
#[inline]
pub fn count_down(frame: &mut [u8]) -> bool {
    let hops = &mut frame[AT + 2];
    *hops = hops.saturating_sub(1);
    *hops > 0
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

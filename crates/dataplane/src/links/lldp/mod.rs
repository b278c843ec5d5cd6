//! LLDP (IEEE 802.1AB-2016): what a switch announces about itself at a port, and what its neighbours announce there.
//!
//! ```text
//!  worker, member ─► Ear: budget, then Said ─► keeper (Station) ─► neighbours ─► /status, the controller
//!                                                  └─► Own ─► outbox ─► worker, member
//! ```
//! LLDP decides nothing: between switches of fibula [hellos](super::Hello) do, and a forged frame changes only what
//! is shown of that port. A frame to one of its groups goes no further and reveals no host's place, whatever is in it.
//!
//! Bounds: an [`Ear`] reads few frames a second and counts the others; a [`Station`] keeps [`MOST_NEIGHBOURS`], each of less than 8 KiB.
//! Cost: none for other frames. A worker meets LLDP where it would drop a multicast, or the frame of a stranger.
//!
//! Limits: all three groups are received, and only that of the nearest bridge is sent to. Organisations' own fields are not read.

mod ear;
pub mod pdu;
mod station;

pub use ear::{Desk, Ear, Shown, Tally};
pub use pdu::{Aggregation, Capability, Id, Malformed, Own, Said};
pub use station::{MOST_NEIGHBOURS, Neighbour, Station};

/// The nearest bridge: a group that no bridge forwards.
pub const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
/// The last bytes of all groups of LLDP: of the nearest bridge, of the nearest that is more than a relay of two ports, and of the
/// nearest one of a customer. We are all of these.
const GROUPS: [u8; 3] = [0x0e, 0x03, 0x00];
/// The EtherType.
pub const ETHER_TYPE: [u8; 2] = [0x88, 0xcc];

/// Whether a frame is LLDP, from any sender.
pub fn is_lldp(frame: &[u8]) -> bool {
    frame.starts_with(&GROUP[..5])
        && frame.get(12..14) == Some(&ETHER_TYPE)
        && frame.get(5).is_some_and(|last| GROUPS.contains(last))
}

//! OGW, the Othello forwarder of a gateway: an Othello from a name to its place in an array of whole names.
//!
//! Cost: two reads of cells, and one of the name itself, compared in full; 98 to 112 bits per MAC address, see
//! `lookup::othello::gateway`.
//! Alien names are all dropped. A text of more than 63 bytes is an entry for every 53 bytes.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", sections IV.C, VII (OGW).

use super::keys::with_width;
use super::{Aliens, Design, Spec, Structure, cuckoo, halves_by_width};
use lookup::othello::gateway::{GatewaySkeleton, Settings};

/// The Othello forwarder with the names that it forwards.
pub static OGW: Design = Design {
    name: "ogw",
    summary: "an Othello from a name to its place in an array of whole names: OFW at a gateway",
    aliens: |_, _| Aliens::Dropped,
    fingerprint_bits: |_| 0,
    widened: |_, _, least| least,
    fingerprints: |_| 0..=0,
    is_static: false,
    halves: halves_by_width!(Gateway),
};

struct Gateway<const W: usize>;

impl<const W: usize> Structure for Gateway<W> {
    type Skeleton = GatewaySkeleton<W, u32>;
    fn settings(spec: &Spec) -> Settings {
        cuckoo::settings(spec)
    }
}

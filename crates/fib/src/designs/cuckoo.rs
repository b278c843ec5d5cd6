//! (2,4)-Cuckoo with whole names: the FIB of CuckooSwitch, and the gateway form of CFW.
//!
//! With whole names in the slots nothing collides, so a gateway's CFW needs no second level: the two are one structure.
//! Cost: two buckets per lookup; 67 bits per MAC address at load 0.95; one more line for names over 8 bytes.
//! Alien names are all dropped. A text of more than 63 bytes is an entry for every 53 bytes.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", sections II, VII (CGW).

use super::keys::{NameLayout, max_keys};
use super::{Aliens, Design, Spec, Structure};
use crate::halves_by_width;
use crate::model::designs::cuckoo;
use lookup::cuckoo::exact::{CuckooSkeleton, Settings};

/// Whole names in two buckets of four slots.
pub static CUCKOO: Design = Design {
    aliens: |_, _| Aliens::Dropped,
    ..Design::new(
        "cuckoo",
        "(2,4)-Cuckoo with whole names: choose it where no unknown name may pass, at several times the memory",
        halves_by_width!(Cuckoo),
        cuckoo,
    )
};

struct Cuckoo<const W: usize>;

impl<const W: usize> Structure for Cuckoo<W> {
    type Skeleton = CuckooSkeleton<W, u32>;
    fn settings(spec: &Spec) -> Settings {
        cuckoo_settings(spec)
    }
}

/// The settings of a cuckoo table of whole names.
pub fn cuckoo_settings(spec: &Spec) -> Settings {
    let max_names = max_keys(spec.kind, spec.max_names);
    Settings::new(NameLayout::of(spec.kind).bytes, spec.value_bits, max_names, spec.family, &spec.key)
}

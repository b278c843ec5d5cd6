//! (2,4)-Cuckoo with whole names: the FIB of CuckooSwitch, and the gateway form of CFW.
//!
//! With whole names in the slots nothing collides, so a gateway's CFW needs no second level: the two are one structure.
//! Cost: two buckets a lookup; 67 bits a MAC address at load 0.95, a line more for names over 8 bytes.
//! Alien names are dropped, every one. Texts of up to 63 bytes fit.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", sections II, VII (CGW).

use super::each::{self, Maker};
use super::keys::{Key, NameLayout, with_width};
use super::skeleton::Skeleton;
use super::table::{Served, Table, TableError};
use super::{Aliens, Design, RestoreError, Spec};
use lookup::cuckoo::exact::{Cuckoo, CuckooQuery, Settings};
use lookup::traits::{Control, InsertError};

/// Whole names in two buckets of four slots.
pub static CUCKOO: Design = Design {
    name: "cuckoo",
    summary: "(2,4)-Cuckoo with whole names: exact, and several times the memory; CFW at a gateway",
    aliens: |_| Aliens::Dropped,
    fingerprint_bits: |_| 0,
    fingerprints: |_| 0..=0,
    is_static: false,
    restarts_alike: false,
    skeleton,
    restore: |spec, _, names, threads| Ok::<_, RestoreError>(skeleton(spec, names, threads)?),
    table,
};

pub(super) fn settings(spec: &Spec) -> Settings {
    Settings::new(NameLayout::of(spec.kind).bytes, spec.value_bits, spec.max_names, spec.family, &spec.key)
}

fn skeleton(spec: &Spec, names: &[(Key<'_>, u32)], _threads: usize) -> Result<Box<dyn Skeleton>, InsertError> {
    fn of<const W: usize>(spec: &Spec, names: &[(Key<'_>, u32)]) -> Result<Box<dyn Skeleton>, InsertError> {
        let make = |settings: &Settings, entries: &[([u64; W], u64)]| {
            let mut control = Cuckoo::with_room(settings.clone(), entries.len());
            control.insert_batch(entries, &mut Vec::new()).map(|()| control)
        };
        each::skeleton::<Cuckoo<W>>(Maker { kind: spec.kind, settings: settings(spec), make, is_static: false }, names)
    }
    with_width!(spec.kind, W => of::<W>(spec, names))
}

fn table(spec: &Spec, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
    let (kind, settings) = (spec.kind, settings(spec));
    with_width!(kind, W => Served::<CuckooQuery<W>>::from_image(kind, &settings, image))
}

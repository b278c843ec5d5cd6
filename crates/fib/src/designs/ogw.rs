//! OGW, the Othello forwarder of a gateway: an Othello from a name to its place in an array of whole names.
//!
//! Cost: two reads of cells, and one of the name itself, compared to the end; 98 to 112 bits a MAC address, see
//! `lookup::othello::gateway`.
//! Alien names are dropped, every one. Texts of up to 63 bytes fit.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", sections IV.C, VII (OGW).

use super::each::{self, Maker};
use super::keys::{Key, with_width};
use super::skeleton::Skeleton;
use super::table::{Served, Table, TableError};
use super::{Aliens, Design, RestoreError, Spec, cuckoo};
use lookup::othello::gateway::{Gateway, GatewayQuery, Settings};
use lookup::traits::InsertError;

/// The Othello forwarder with the names that it forwards.
pub static OGW: Design = Design {
    name: "ogw",
    summary: "an Othello from a name to its place in an array of whole names: OFW at a gateway",
    aliens: |_| Aliens::Dropped,
    fingerprint_bits: |_| 0,
    fingerprints: |_| 0..=0,
    is_static: false,
    restarts_alike: false,
    skeleton,
    restore: |spec, _, names, threads| Ok::<_, RestoreError>(skeleton(spec, names, threads)?),
    table,
};

fn skeleton(spec: &Spec, names: &[(Key<'_>, u32)], _threads: usize) -> Result<Box<dyn Skeleton>, InsertError> {
    fn of<const W: usize>(spec: &Spec, names: &[(Key<'_>, u32)]) -> Result<Box<dyn Skeleton>, InsertError> {
        let make = |settings: &Settings, entries: &[([u64; W], u64)]| Gateway::build(settings.clone(), entries, 1);
        let settings = cuckoo::settings(spec);
        each::skeleton::<Gateway<W>>(Maker { kind: spec.kind, settings, make, is_static: false }, names)
    }
    with_width!(spec.kind, W => of::<W>(spec, names))
}

fn table(spec: &Spec, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
    let (kind, settings) = (spec.kind, cuckoo::settings(spec));
    with_width!(kind, W => Served::<GatewayQuery<W>>::from_image(kind, &settings, image))
}

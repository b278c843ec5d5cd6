//! Tuple Space Search with one tuple: flat names are exact rules.
//!
//! For rules with prefixes and wildcards see `lookup::tuple_space`; names need none, so this is what a packet
//! classifier costs as a FIB.
//! Cost: two buckets a lookup, 202 bits a name at load 0.95. Names of up to 13 bytes stand in the fields whole; of a
//! kind that has longer ones (five-tuples of IPv6 among them) the digests do.
//! Alien names are dropped, every one, but for digests that are equal by chance: n in 2^64.
//! Source: Table I of "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing".

use super::each::{self, Maker};
use super::keys::{Key, NameLayout};
use super::skeleton::Skeleton;
use super::table::{Served, Table, TableError};
use super::{Aliens, Design, RestoreError, Spec};
use crate::name::NameKind;
use lookup::alien::keyed::{DigestWords, Settings as Keyed};
use lookup::alien::{Digested, KeyedQuery};
use lookup::hash::Digest;
use lookup::traits::{Control, InsertError};
use lookup::tuple_space::{Settings, TupleSpace, TupleSpaceQuery};

type DigestSettings = Keyed<Settings, DigestWords<2>>;

/// Exact rules in one tuple.
pub static TSS: Design = Design {
    name: "tss",
    summary: "Tuple Space Search: names as exact rules over the fields of a five-tuple",
    aliens: |_| Aliens::Dropped,
    fingerprint_bits: |_| 0,
    fingerprints: |_| 0..=0,
    is_static: false,
    restarts_alike: false,
    skeleton,
    restore: |spec, _, names, threads| Ok::<_, RestoreError>(skeleton(spec, names, threads)?),
    table,
};

/// Bytes of the fields of a five-tuple.
const FIELD_BYTES: u8 = 13;

/// Names that do not fit the fields: their digests do.
type Digests = Digested<TupleSpace, 2>;

fn settings(spec: &Spec) -> Settings {
    Settings::new(spec.value_bits, 0, spec.max_names, spec.family, &spec.key)
}

fn fits(kind: NameKind) -> bool {
    NameLayout::of(kind).bytes <= FIELD_BYTES
}

fn skeleton(spec: &Spec, names: &[(Key<'_>, u32)], _threads: usize) -> Result<Box<dyn Skeleton>, InsertError> {
    let (kind, settings) = (spec.kind, settings(spec));
    if fits(kind) {
        let make = |settings: &Settings, entries: &[([u64; 2], u64)]| {
            let mut control = TupleSpace::new(settings.clone());
            control.insert_batch(entries, &mut Vec::new()).map(|()| control)
        };
        return each::skeleton::<TupleSpace>(Maker { kind, settings, make, is_static: false }, names);
    }
    let make = |settings: &DigestSettings, entries: &[(Digest, u64)]| {
        let mut control = Digests::new(TupleSpace::new(settings.table.clone()), DigestWords);
        control.insert_batch(entries, &mut Vec::new()).map(|()| control)
    };
    let settings = DigestSettings { table: settings, map: DigestWords };
    each::skeleton::<Digests>(Maker { kind, settings, make, is_static: false }, names)
}

fn table(spec: &Spec, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
    let (kind, settings) = (spec.kind, settings(spec));
    if fits(kind) {
        return Served::<TupleSpaceQuery>::from_image(kind, &settings, image);
    }
    let settings = DigestSettings { table: settings, map: DigestWords };
    Served::<KeyedQuery<TupleSpaceQuery, DigestWords<2>>>::from_image(kind, &settings, image)
}

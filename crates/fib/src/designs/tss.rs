//! Tuple Space Search over flat names: each is an exact rule, so there is one tuple.
//!
//! For rules with prefixes, ranges and wildcards see `lookup::rules`, or `lookup::tuple_space` for the structure of the
//! papers; names need none, so this is what a packet classifier costs as a FIB.
//! Cost: two buckets per lookup, 202 bits per name at load 0.95 for names that fit the fields of a five-tuple of IPv4, 13
//! bytes. One tuple is one hash table. So longer names, five-tuples of IPv4 and IPv6 together among them, are whole in the
//! table of [`cuckoo`](super::cuckoo), which has nothing more for them.
//! Alien names are all dropped.
//! Source: Table I of "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing".

use super::keys::NameLayout;
use super::{Aliens, CUCKOO, Design, Halves, Spec, Structure};
use crate::name::NameKind;
use lookup::tuple_space::{Settings, TupleSpaceSkeleton};

/// Exact rules in one tuple.
pub static TSS: Design = Design {
    name: "tss",
    summary: "Tuple Space Search: names as exact rules over the fields of a five-tuple",
    aliens: |_, _| Aliens::Dropped,
    fingerprint_bits: |_| 0,
    widened: |_, _, least| least,
    fingerprints: |_| 0..=0,
    is_static: false,
    halves: Halves {
        control: |spec, names, threads| (halves(spec).control)(spec, names, threads),
        restore: |spec, rows, names| (halves(spec).restore)(spec, rows, names),
        table: |spec, image| (halves(spec).table)(spec, image),
    },
};

/// Bytes of the fields of a five-tuple of IPv4.
const FIELD_BYTES: u8 = 13;

/// Whether names of this kind fit the fields.
pub(crate) fn fits_fields(kind: NameKind) -> bool {
    NameLayout::of(kind).bytes <= FIELD_BYTES
}

static OF_FIELDS: Halves = Halves::of::<Fields>();

fn halves(spec: &Spec) -> &'static Halves {
    if fits_fields(spec.kind) { &OF_FIELDS } else { &CUCKOO.halves }
}

/// Names in the fields.
struct Fields;

impl Structure for Fields {
    type Skeleton = TupleSpaceSkeleton<u32>;
    fn settings(spec: &Spec) -> Settings {
        Settings::new(spec.value_bits, 0, spec.max_names, spec.family, &spec.key)
    }
}

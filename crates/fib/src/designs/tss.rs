//! Tuple Space Search with one tuple: flat names are exact rules.
//!
//! For rules with prefixes and wildcards see `lookup::tuple_space`; names need none, so this is what a packet
//! classifier costs as a FIB.
//! Cost: two buckets per lookup, 202 bits per name at load 0.95. The fields hold names of up to 13 bytes whole. For a
//! kind with longer names (five-tuples of IPv6 among them) they hold the digests.
//! Alien names are dropped, except for digests that are equal by chance: n in 2^64.
//! Source: Table I of "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing".

use super::keys::NameLayout;
use super::{Aliens, Design, Halves, Spec, Structure};
use crate::name::NameKind;
use lookup::alien::Digested;
use lookup::alien::keyed::{self, DigestWords};
use lookup::traits::SettingsOf;
use lookup::tuple_space::{Settings, TupleSpaceSkeleton};

/// Exact rules in one tuple.
pub static TSS: Design = Design {
    name: "tss",
    summary: "Tuple Space Search: names as exact rules over the fields of a five-tuple",
    aliens,
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

/// Names that the fields hold whole leave no room for an alien; of digests, one may be equal by chance.
fn aliens(spec: &Spec, _: u32) -> Aliens {
    match holds_whole(spec.kind) {
        true => Aliens::Dropped,
        false => Aliens::DroppedBut { rate: spec.max_names as f64 * (-64f64).exp2() },
    }
}

/// Bytes of the fields of a five-tuple.
const FIELD_BYTES: u8 = 13;

/// Whether the fields hold names of this kind whole.
pub(crate) fn holds_whole(kind: NameKind) -> bool {
    NameLayout::of(kind).bytes <= FIELD_BYTES
}

/// The halves for names that fit the fields, or for their digests.
fn halves(spec: &Spec) -> Halves {
    if holds_whole(spec.kind) { Halves::of::<Whole>() } else { Halves::of::<Digests>() }
}

struct Whole;

impl Structure for Whole {
    type Skeleton = TupleSpaceSkeleton<u32>;
    fn settings(spec: &Spec) -> Settings {
        Settings::new(spec.value_bits, 0, spec.max_names, spec.family, &spec.key)
    }
}

/// For names that do not fit the fields: their digests do.
struct Digests;

impl Structure for Digests {
    type Skeleton = Digested<TupleSpaceSkeleton<u32>, 2>;
    fn settings(spec: &Spec) -> SettingsOf<Self::Skeleton> {
        keyed::Settings { table: Whole::settings(spec), map: DigestWords }
    }
}

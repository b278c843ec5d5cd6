//! A checksum of the name beside its action: with it, a design that gives aliens any action drops most of them.
//!
//! The structure is the design's own, with wider values: `action << r | checksum of the digest, r bits`. A lookup that
//! finds another checksum than that of its name is an alien's.
//! Cost: r bits per cell, so `concise` takes 2.33 r bits per name more, and `line` 1.2 r; no further read, except that a
//! bucket of `line` has two lines where action and checksum have more than 8 bits. The bits left over in a word go to
//! the checksum.
//! Alien names are dropped, except one in 2^r. A checksum proves nothing, so gateways also check names exactly. A removed
//! name is dropped as the design does it, and is an alien afterwards.
//! Source: "Concise with checksums", section VII.A of "Memory-efficient and Ultra-fast Network Lookup and Forwarding
//! using Othello Hashing".
//! Limits: action and checksum have at most 32 bits together.

use super::concise::Othello;
use super::fixed::Fixed;
use super::line::{Line, LineFast, LineSmall};
use super::{Aliens, Design, Halves, Spec, Structure};
use lookup::alien::checked::{self, Checked, Checksum, Marked};
use lookup::hash::Digest;
use lookup::line::LineSkeleton;
use lookup::othello::{Graph, Sharded};
use lookup::static_map::{Bloomier, Entries, SetSep, StaticMap};
use lookup::traits::{SettingsOf, Skeleton};
use std::marker::PhantomData;
use std::ops::RangeInclusive;

/// A structure of digests that can hold checksums: the same one, with them in what names carry.
trait Checkable: Structure<Skeleton: Skeleton<Key = Digest>> {
    type Marked: Skeleton<Key = Digest, Payload = Marked<u32>, Query = <Self::Skeleton as Skeleton>::Query>;
}

impl Checkable for Othello {
    type Marked = Graph<Sharded, Marked<u32>>;
}

impl Checkable for Line {
    type Marked = LineSkeleton<Marked<u32>>;
}

impl Checkable for LineFast {
    type Marked = LineSkeleton<Marked<u32>>;
}

impl Checkable for LineSmall {
    type Marked = LineSkeleton<Marked<u32>>;
}

impl<M: StaticMap<Key = Digest> + Send + Sync + 'static> Checkable for Fixed<M> {
    type Marked = Entries<M, Marked<u32>>;
}

/// A structure with checksums in its values.
struct Checksummed<S>(PhantomData<S>);

impl<S: Checkable> Structure for Checksummed<S> {
    type Skeleton = Checked<S::Marked>;
    fn settings(spec: &Spec) -> SettingsOf<Self::Skeleton> {
        let value_bits = spec.value_bits + spec.fingerprint_bits;
        let table = S::settings(&Spec { value_bits, fingerprint_bits: 0, ..spec.clone() });
        checked::Settings { table, checksum: Checksum::new(spec.fingerprint_bits, &spec.key) }
    }
}

/// Fewest bits of a checksum, unless a rate is wanted.
const BITS: u8 = 8;

fn checksums(value_bits: u8) -> RangeInclusive<u8> {
    1..=32 - value_bits
}

/// Bits beside a value that leave no room in a word for wider cells, at least `least`: cells do not straddle words.
pub(super) fn fill_word(value_bits: u8, least: u8) -> u8 {
    64 / (64 / (value_bits + least)) - value_bits
}

fn widened(value_bits: u8, least: u8) -> u8 {
    fill_word(value_bits, least).min(*checksums(value_bits).end())
}

/// `$widened` gives the bits of a checksum that take no more memory than the least that will do.
macro_rules! design {
    ($static:ident, $structure:ty, $name:literal, $is_static:literal, $widened:expr, $summary:literal) => {
        #[doc = $summary]
        pub static $static: Design = Design {
            name: $name,
            summary: $summary,
            aliens: |spec, _| Aliens::DroppedBut { rate: (-f64::from(spec.fingerprint_bits)).exp2() },
            fingerprint_bits: |value_bits| $widened(value_bits, BITS),
            widened: |value_bits, _, least| $widened(value_bits, least),
            fingerprints: checksums,
            is_static: $is_static,
            halves: Halves::of::<Checksummed<$structure>>(),
        };
    };
}

design!(CONCISE_CHECKSUM, Othello, "concise+checksum", false, widened, "concise with a checksum beside each action");
design!(LINE_CHECKSUM, Line, "line+checksum", false, widened, "line with a checksum beside each action");
design!(
    LINE_FAST_CHECKSUM,
    LineFast,
    "line-fast+checksum",
    false,
    widened,
    "line-fast with a checksum beside each action"
);
design!(
    LINE_SMALL_CHECKSUM,
    LineSmall,
    "line-small+checksum",
    false,
    widened,
    "line-small with a checksum beside each action"
);
design!(
    BLOOMIER_CHECKSUM,
    Fixed<Bloomier>,
    "bloomier+checksum",
    true,
    widened,
    "bloomier with a checksum beside each action; static"
);
// Its arrays are one per bit, so there are no words to fill.
design!(
    SETSEP_CHECKSUM,
    Fixed<SetSep>,
    "setsep+checksum",
    true,
    |_, least| least,
    "setsep with a checksum beside each action; static"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_take_what_cells_leave_of_a_word() {
        assert_eq!(widened(8, BITS), 8);
        assert_eq!(widened(6, 7), 10);
        assert_eq!(widened(16, BITS), 16);
        assert_eq!(widened(1, 32), 31);
    }
}

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
use super::line::{Line, LineFast, LineSmall};
use super::{Aliens, Design, Guard, Halves, Spec, Structure};
use crate::halves;
use crate::model::designs::{Demand, Figures};
use lookup::alien::checked::{self, Checked, Checksum, Marked};
use lookup::hash::Digest;
use lookup::line::LineSkeleton;
use lookup::othello::{Graph, Sharded};
use lookup::traits::{SettingsOf, Skeleton};
use std::marker::PhantomData;
use std::ops::RangeInclusive;

/// A structure of digests that can hold checksums: the same one, with them in what names carry.
pub trait Checkable: Structure<Skeleton: Skeleton<Key = Digest>> {
    /// It.
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

/// A structure with checksums in its values.
pub struct Checksummed<S>(PhantomData<S>);

impl<S: Checkable> Structure for Checksummed<S> {
    type Skeleton = Checked<S::Marked>;
    fn settings(spec: &Spec) -> SettingsOf<Self::Skeleton> {
        let value_bits = spec.value_bits + spec.fingerprint_bits;
        let table = S::settings(&Spec { value_bits, fingerprint_bits: 0, ..spec.clone() });
        checked::Settings { table, checksum: Checksum::new(spec.fingerprint_bits, &spec.key) }
    }
}

/// Fewest bits of a checksum, unless a rate is wanted.
pub const CHECKSUM_BITS: u8 = 8;

/// Bits that a checksum may have beside values of this many bits.
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

/// What a table with checksums costs: as one of the design itself, with wider values.
fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let r = spec.fingerprint_bits;
    let design = Guard::Checksum.inside(spec.design).expect("checksums are in a design");
    let wide = Demand { value_bits: demand.value_bits + u32::from(r), ..*demand };
    let inside = Spec { design, value_bits: spec.value_bits + r, fingerprint_bits: 0, ..spec.clone() };
    let parameters = format!("r={r}");
    Figures { parameters, l_f: r.into(), fp: (-f64::from(r)).exp2(), ..(design.figures)(&inside, &wide) }
}

impl Design {
    /// A design whose structure is [`Checksummed`]: its halves are `halves!(Checksummed<...>)`. It takes changes of single
    /// names.
    pub const fn with_checksums(
        name: &'static str,
        summary: &'static str,
        halves: fn(&Spec) -> &'static Halves,
    ) -> Design {
        Design {
            aliens: |spec, _| Aliens::DroppedBut { rate: (-f64::from(spec.fingerprint_bits)).exp2() },
            fingerprint_bits: |value_bits| widened(value_bits, CHECKSUM_BITS),
            widened: |value_bits, _, least| widened(value_bits, least),
            fingerprints: checksums,
            ..Design::new(name, summary, halves, figures)
        }
    }
}

/// Concise with checksums.
pub static CONCISE_CHECKSUM: Design = Design::with_checksums(
    "concise+checksum",
    "concise with a checksum beside each action, which holds a false-positive rate",
    halves!(Checksummed<Othello>),
);

/// The line design with checksums.
pub static LINE_CHECKSUM: Design = Design::with_checksums(
    "line+checksum",
    "line with a checksum beside each action, which holds a false-positive rate",
    halves!(Checksummed<Line>),
);

/// The line design with emptier lines, and checksums.
pub static LINE_FAST_CHECKSUM: Design = Design::with_checksums(
    "line-fast+checksum",
    "line-fast with a checksum beside each action, which holds a false-positive rate",
    halves!(Checksummed<LineFast>),
);

/// The line design with fuller lines, and checksums.
pub static LINE_SMALL_CHECKSUM: Design = Design::with_checksums(
    "line-small+checksum",
    "line-small with a checksum beside each action, which holds a false-positive rate",
    halves!(Checksummed<LineSmall>),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_take_what_cells_leave_of_a_word() {
        assert_eq!(widened(8, CHECKSUM_BITS), 8);
        assert_eq!(widened(6, 7), 10);
        assert_eq!(widened(16, CHECKSUM_BITS), 16);
        assert_eq!(widened(1, 32), 31);
    }
}

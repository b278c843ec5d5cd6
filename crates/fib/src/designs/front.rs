//! A Bloom filter of the names in front of a design: what it rejects is an alien's, is dropped, and costs no lookup.
//!
//! The table behind is the design's own, with the fingerprint that suits its values where it has one. Filter and table
//! follow every change: an insert comes to the table first, a removal to the filter first. The controller keeps counters,
//! so a removal clears bits; switches have bits only. The filter grows and shrinks with the names.
//! Cost: 1.44 b bits per name and a quarter to spare, and up to 8 bits of the filter per lookup of a name, two for most
//! aliens. Both halves are one part: a switch that missed a message is sent the whole table. The controller has counters
//! for each switch, five bits for each bit of the filter.
//! Alien names are dropped, except one in 2^b at most. So are removed names, which are aliens at once.
//! Source: section VII.A of "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing".
//! Differs: counters are in the controller, and the filter is rebuilt when the names outgrow it.

use super::cfw::Cfw;
use super::concise::Othello;
use super::fixed::Fixed;
use super::line::{Line, LineFast, LineSmall};
use super::summary_cache::SummaryCache;
use super::{Aliens, Design, Guard, Halves, Spec, Structure, bloom};
use lookup::alien::Filtered;
use lookup::alien::filtered;
use lookup::bloom_fib::{self, Form, Names, Policy, sizing};
use lookup::hash::{Digest, Purpose};
use lookup::static_map::{Bloomier, SetSep};
use lookup::traits::{SettingsOf, Skeleton};
use std::marker::PhantomData;

/// Largest share of alien names that may pass the filter, by default.
const FALSE_POSITIVES: f64 = 0.01;

/// A structure behind a Bloom filter of its names.
struct Fronted<S>(PhantomData<S>);

impl<S: Structure<Skeleton: Skeleton<Key = Digest>>> Structure for Fronted<S> {
    type Skeleton = Filtered<Names<()>, S::Skeleton>;
    fn settings(spec: &Spec) -> SettingsOf<Self::Skeleton> {
        filtered::Settings { filter: filter(spec), table: S::settings(&behind(spec)) }
    }
}

/// The filter: one of the names of a single port.
pub(crate) fn filter(spec: &Spec) -> bloom_fib::Settings {
    let policy = Policy::buffalo((-f64::from(spec.fingerprint_bits)).exp2(), 1);
    let settings = bloom_fib::Settings::new(1, spec.max_names, policy, Form::Separate, &spec.key);
    // Other positions than those of filters behind it.
    bloom_fib::Settings { seed: spec.key.derive(Purpose::Structure, 6), ..settings }
}

/// The table behind the filter.
pub(super) fn behind(spec: &Spec) -> Spec {
    let design = Guard::Bloom.inside(spec.design).expect("a filter is in front of a design");
    Spec { design, fingerprint_bits: (design.fingerprint_bits)(spec.value_bits), ..spec.clone() }
}

macro_rules! design {
    ($static:ident, $structure:ty, $name:literal, $is_static:literal, $summary:literal) => {
        #[doc = $summary]
        pub static $static: Design = Design {
            name: $name,
            summary: $summary,
            aliens: |spec, _| Aliens::DroppedBut { rate: (-f64::from(spec.fingerprint_bits)).exp2() },
            fingerprint_bits: |_| sizing::hashes_for_false_positives(FALSE_POSITIVES, 1),
            widened: |_, _, least| least,
            fingerprints: |_| bloom::FINGERPRINTS,
            is_static: $is_static,
            halves: Halves::of::<Fronted<$structure>>(),
        };
    };
}

design!(CONCISE_BLOOM, Othello, "concise+bloom", false, "concise behind a Bloom filter of the names");
design!(LINE_BLOOM, Line, "line+bloom", false, "line behind a Bloom filter of the names");
design!(LINE_FAST_BLOOM, LineFast, "line-fast+bloom", false, "line-fast behind a Bloom filter of the names");
design!(LINE_SMALL_BLOOM, LineSmall, "line-small+bloom", false, "line-small behind a Bloom filter of the names");
design!(OFW_BLOOM, Othello, "ofw+bloom", false, "ofw behind a Bloom filter of the names");
design!(CFW_BLOOM, Cfw, "cfw+bloom", false, "cfw behind a Bloom filter of the names");
design!(SUMMARY_BLOOM, SummaryCache, "summary-cache+bloom", false, "summary-cache behind a Bloom filter of the names");
design!(BLOOMIER_BLOOM, Fixed<Bloomier>, "bloomier+bloom", true, "bloomier behind a Bloom filter of the names; static");
design!(SETSEP_BLOOM, Fixed<SetSep>, "setsep+bloom", true, "setsep behind a Bloom filter of the names; static");

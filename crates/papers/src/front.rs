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

use crate::fixed::Fixed;
use crate::summary_cache::SummaryCache;
use crate::{bloom, filters};
use fib::designs::{Aliens, Cfw, Design, Guard, Halves, Line, LineFast, LineSmall, Othello, Spec, Structure};
use fib::halves;
use fib::model::designs::{Demand, Figures};
use fib::model::{Bfw, mcq};
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
fn filter(spec: &Spec) -> bloom_fib::Settings {
    let policy = Policy::buffalo((-f64::from(spec.fingerprint_bits)).exp2(), 1);
    let settings = bloom_fib::Settings::new(1, spec.max_names, policy, Form::Separate, &spec.key);
    // Other positions than those of filters behind it.
    bloom_fib::Settings { seed: spec.key.derive(Purpose::Structure, 6), ..settings }
}

/// The table behind the filter.
fn behind(spec: &Spec) -> Spec {
    let design = Guard::Bloom.inside(spec.design).expect("a filter is in front of a design");
    Spec { design, fingerprint_bits: (design.fingerprint_bits)(spec.value_bits), ..spec.clone() }
}

/// What they cost. A valid name costs both; an alien that is rejected, two positions or so of the filter, which is one of
/// all names, as of one port.
fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let behind = behind(spec);
    let row = (behind.design.figures)(&behind, demand);
    let one = Demand { n_actions: 1, value_bits: 1, ..*demand };
    let b = u32::from(spec.fingerprint_bits);
    let rates = Bfw::with_rate(one.symbols(), b.min(mcq::K_MAX), (-f64::from(b)).exp2());
    let filter = filters::of_filters(spec, &one, &filter(spec), format!("b={b}"), &rates);
    Figures {
        l_f: b,
        bits: filter.bits + row.bits,
        built_bits: filter.built_bits + row.built_bits,
        fast_bits: filter.fast_bits + row.fast_bits,
        lines: filter.lines + row.lines,
        lines_alien: filter.lines_alien + filter.fp * row.lines_alien,
        hashes: filter.hashes + row.hashes,
        hashes_alien: filter.hashes_alien + filter.fp * row.hashes_alien,
        fp: filter.fp * row.fp,
        cr: row.cr,
        updates: row.updates,
        ..filter
    }
}

/// The share of aliens that get an action from a design behind a filter that they pass.
fn past_filter(spec: &Spec, n_actions: u32) -> f64 {
    match behind(spec).aliens_of(n_actions) {
        Aliens::Arbitrary => 1.0,
        Aliens::DroppedBut { rate } => rate,
        Aliens::Dropped => 0.0,
    }
}

const fn design(name: &'static str, summary: &'static str, halves: fn(&Spec) -> &'static Halves) -> Design {
    Design {
        aliens: |spec, _| Aliens::DroppedBut { rate: (-f64::from(spec.fingerprint_bits)).exp2() },
        fingerprint_bits: |_| sizing::hashes_for_false_positives(FALSE_POSITIVES, 1),
        fingerprints: |_| bloom::FINGERPRINTS,
        past_words: past_filter,
        ..Design::new(name, summary, halves, figures)
    }
}

macro_rules! design {
    ($static:ident, $structure:ty, $name:literal, $summary:literal $(, $field:ident: $value:expr)*) => {
        #[doc = $summary]
        pub static $static: Design =
            Design { $($field: $value,)* ..design($name, $summary, halves!(Fronted<$structure>)) };
    };
}

design!(CONCISE_BLOOM, Othello, "concise+bloom", "concise behind a Bloom filter of the names");
design!(LINE_BLOOM, Line, "line+bloom", "line behind a Bloom filter of the names");
design!(LINE_FAST_BLOOM, LineFast, "line-fast+bloom", "line-fast behind a Bloom filter of the names");
design!(LINE_SMALL_BLOOM, LineSmall, "line-small+bloom", "line-small behind a Bloom filter of the names");
design!(OFW_BLOOM, Othello, "ofw+bloom", "ofw behind a Bloom filter of the names");
design!(CFW_BLOOM, Cfw, "cfw+bloom", "cfw behind a Bloom filter of the names");
// The words of both halves are filters, and say what passes both.
design!(
    SUMMARY_BLOOM,
    SummaryCache,
    "summary-cache+bloom",
    "summary-cache behind a Bloom filter of the names",
    tries_values: true,
    past_words: |_, _| 1.0
);
design!(
    BLOOMIER_BLOOM,
    Fixed<Bloomier>,
    "bloomier+bloom",
    "bloomier behind a Bloom filter of the names; static",
    is_static: true
);
design!(
    SETSEP_BLOOM,
    Fixed<SetSep>,
    "setsep+bloom",
    "setsep behind a Bloom filter of the names; static",
    is_static: true
);

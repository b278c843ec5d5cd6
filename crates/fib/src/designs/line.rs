//! The line design: one cache line per lookup, over one skeleton of names for all switches.
//!
//! Cost: one line per lookup, a second one for one name in fifty (`line-small`: in eighteen). 9.4 to 10.9 bits per name
//! for values of 8 bits; the design's name says how it trades memory against speed. A change of a name is a message of
//! one line.
//! Alien names get an arbitrary action, so gateways check names exactly at the ingress, and every switch checks the
//! names of its own hosts at the egress.
//! Source: none of the papers; docs/derivations/line.md.

use super::{Aliens, Design, Halves, Spec, Structure};
use lookup::line::{LineSkeleton, Settings, Trade};

macro_rules! design {
    ($static:ident, $structure:ident, $name:literal, $trade:ident, $summary:literal) => {
        #[doc = $summary]
        pub static $static: Design = Design {
            name: $name,
            summary: $summary,
            aliens: |_, _| Aliens::Arbitrary,
            fingerprint_bits: |_| 0,
            widened: |_, _, least| least,
            fingerprints: |_| 0..=0,
            is_static: false,
            halves: Halves::of::<$structure>(),
        };

        pub(super) struct $structure;

        impl Structure for $structure {
            type Skeleton = LineSkeleton;
            fn settings(spec: &Spec) -> Settings {
                Settings::new(spec.value_bits, spec.max_names, &spec.key).with_trade(Trade::$trade)
            }
        }
    };
}

design!(LINE, Line, "line", Balanced, "one cache line a lookup, half the memory of concise; exact checks at the edge");
design!(LINE_FAST, LineFast, "line-fast", Fast, "line with emptier lines: a little more memory, the cheapest changes");
design!(LINE_SMALL, LineSmall, "line-small", Small, "line with fuller lines and four cells a name: the least memory");

//! The line design: one cache line per lookup, over one skeleton of names for all switches.
//!
//! Cost: one line per lookup, a second one for one name in fifty (`line-small`: in eighteen). 9.4 to 10.9 bits per name
//! for values of 8 bits; the design's name says how it trades memory against speed. A change of a name is a message of
//! one line.
//! Alien names get an arbitrary action, so gateways check names exactly at the ingress, and every switch checks the
//! names of its own hosts at the egress.
//! Source: none of the papers; docs/derivations/line.md.

use super::{Design, Spec, Structure};
use crate::halves;
use crate::model::designs::line;
use lookup::line::{LineSkeleton, Settings, Trade};

macro_rules! design {
    ($static:ident, $structure:ident, $name:literal, $trade:ident, $summary:literal) => {
        #[doc = $summary]
        pub static $static: Design =
            Design::new($name, $summary, halves!($structure), |spec, demand| line(spec, demand, Trade::$trade));

        #[doc = concat!("The structure of `", $name, "`.")]
        pub struct $structure;

        impl Structure for $structure {
            type Skeleton = LineSkeleton;
            fn settings(spec: &Spec) -> Settings {
                Settings::new(spec.value_bits, spec.max_names, &spec.key).with_trade(Trade::$trade)
            }
        }
    };
}

design!(
    LINE,
    Line,
    "line",
    Balanced,
    "one cache line a lookup, half the memory of concise: choose it for tables larger than the cache"
);
design!(
    LINE_FAST,
    LineFast,
    "line-fast",
    Fast,
    "line with emptier lines: choose it where names change often, for a little more memory"
);
design!(
    LINE_SMALL,
    LineSmall,
    "line-small",
    Small,
    "line with fuller lines and four cells a name: choose it for the least memory"
);

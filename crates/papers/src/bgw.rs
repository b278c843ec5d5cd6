//! BGW, the Bloom forwarder of a gateway: BFW behind an exact table of full names.
//!
//! Cost: that of BFW, plus two buckets of whole names: 67 bits more per MAC address. A text of more than 63 bytes is an entry for every 53 bytes.
//! Alien names are all dropped.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", V.D, VII: a forwarder with full
//! key information; the paper does not say how this is stored.

use crate::{bfw, bloom};
use fib::designs::{Aliens, Design, NameLayout, Spec, Structure, max_keys};
use fib::halves_by_width;
use fib::model::Symbols;
use fib::model::designs::{Demand, Figures, of_cuckoo, slot_bits};
use lookup::alien::named::{self, NameHash};
use lookup::alien::{Filtered, Named, filtered};
use lookup::bloom_fib::Names;
use lookup::cuckoo::exact::{self, CuckooSkeleton};
use lookup::traits::SettingsOf;

/// The Bloom forwarder with full names in front.
pub static BGW: Design = Design {
    aliens: |_, _| Aliens::Dropped,
    fingerprint_bits: bloom::fingerprint_bits,
    widened: |_, n_actions, least| bloom::least_memory(n_actions, least, bfw::half_full_bits),
    fingerprints: |_| bloom::FINGERPRINTS,
    ..Design::new(
        "bgw",
        "BFW behind an exact table of whole names: BFW at a gateway",
        halves_by_width!(Gateway),
        figures,
    )
};

struct Gateway<const W: usize>;

impl<const W: usize> Structure for Gateway<W> {
    type Skeleton = Filtered<CuckooSkeleton<W, ()>, Named<Names, W>>;
    fn settings(spec: &Spec) -> SettingsOf<Self::Skeleton> {
        let name_bytes = NameLayout::of(spec.kind).bytes;
        let spec = &Spec { max_names: max_keys(spec.kind, spec.max_names), ..spec.clone() };
        let filter = exact::Settings::new(name_bytes, 1, spec.max_names, spec.family, &spec.key);
        let map = NameHash::new(name_bytes, spec.family, &spec.key);
        filtered::Settings { filter, table: named::Settings { table: bloom::settings(spec, bfw::policy(spec)), map } }
    }
}

/// Whole names in a cuckoo table, which says whether a name is valid, and behind it BFW.
fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let filters = bfw::figures(spec, demand);
    let names = of_cuckoo(spec, String::new(), Symbols { l_p: 1, ..demand.symbols() }, slot_bits(demand, 1));
    Figures {
        bits: names.bits + filters.bits,
        built_bits: names.built_bits + filters.built_bits,
        fast_bits: names.fast_bits + filters.fast_bits,
        lines: names.lines + filters.lines,
        lines_alien: names.lines_alien,
        hashes: names.hashes + filters.hashes,
        hashes_alien: names.hashes_alien,
        fp: 0.0,
        ..filters
    }
}

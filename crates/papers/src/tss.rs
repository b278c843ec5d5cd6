//! Tuple Space Search over flat names: each is an exact rule, so there is one tuple.
//!
//! For rules with prefixes, ranges and wildcards see `lookup::rules`, or `lookup::tuple_space` for the structure of the
//! papers; names need none, so this is what a packet classifier costs as a FIB.
//! Cost: two buckets per lookup, 202 bits per name at load 0.95 for names that fit the fields of a five-tuple of IPv4, 13
//! bytes. One tuple is one hash table. So longer names, five-tuples of IPv4 and IPv6 together among them, are whole in the
//! table of [x, which has nothing more for them.
//! Alien names are all dropped.
//! Source: Table I of "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing".

use fib::designs::{Aliens, CUCKOO, Design, Halves, NameLayout, Spec, Structure};
use fib::model::Symbols;
use fib::model::designs::{Demand, Figures, of_cuckoo};
use fib::name::NameKind;
use lookup::tuple_space::{Settings, TupleSpaceSkeleton};

/// Exact rules in one tuple.
pub static TSS: Design = Design {
    aliens: |_, _| Aliens::Dropped,
    ..Design::new(
        "tss",
        "Tuple Space Search: names as exact rules over the fields of a five-tuple",
        |spec| if fits_fields(spec.kind) { const { &Halves::of::<Fields>() } } else { (CUCKOO.halves)(spec) },
        figures,
    )
};

/// Bytes of the fields of a five-tuple of IPv4.
const FIELD_BYTES: u8 = 13;

/// Whether names of this kind fit the fields.
fn fits_fields(kind: NameKind) -> bool {
    NameLayout::of(kind).bytes <= FIELD_BYTES
}

/// Names in the fields.
struct Fields;

impl Structure for Fields {
    type Skeleton = TupleSpaceSkeleton<u32>;
    fn settings(spec: &Spec) -> Settings {
        Settings::new(spec.value_bits, 0, spec.max_names, spec.family, &spec.key)
    }
}

/// Bits of the fields of a five-tuple, which Tuple Space Search compares, and of a slot that holds them.
const TSS_BITS: (u32, f64) = (104, 192.0);

/// Names as exact rules: one tuple, and so one cuckoo table, over the fields of a five-tuple if the names fit them.
fn figures(spec: &Spec, demand: &Demand) -> Figures {
    if !fits_fields(demand.kind) {
        return Figures { parameters: "1 tuple".into(), ..(CUCKOO.figures)(spec, demand) };
    }
    let (fields, slot) = TSS_BITS;
    of_cuckoo(spec, "1 tuple".into(), Symbols { l_k: fields, ..demand.symbols() }, slot)
}

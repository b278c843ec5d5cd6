//! OGW, the Othello forwarder of a gateway: an Othello from a name to its place in an array of whole names.
//!
//! Cost: two reads of cells, and one of the name itself, compared in full; 98 to 112 bits per MAC address, see
//! `lookup::othello::gateway`.
//! Alien names are all dropped. A text of more than 63 bytes is an entry for every 53 bytes.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", sections IV.C, VII (OGW).

use fib::designs::{Aliens, Design, Spec, Structure, cuckoo_settings};
use fib::halves_by_width;
use fib::model::designs::{Demand, Figures, OTHELLO_CELLS, of_othello, slot_bits};
use fib::model::lines::expected_lines;
use fib::model::{Ofw, Symbols};
use lookup::othello::gateway::{GatewaySkeleton, Settings};

/// The Othello forwarder with the names that it forwards.
pub static OGW: Design = Design {
    aliens: |_, _| Aliens::Dropped,
    ..Design::new(
        "ogw",
        "an Othello from a name to its place in an array of whole names: OFW at a gateway",
        halves_by_width!(Gateway),
        figures,
    )
};

struct Gateway<const W: usize>;

impl<const W: usize> Structure for Gateway<W> {
    type Skeleton = GatewaySkeleton<W, u32>;
    fn settings(spec: &Spec) -> Settings {
        cuckoo_settings(spec)
    }
}

/// Bits of a cell, and slots per name: see `lookup::othello::gateway`.
const OGW_SIZES: (u32, f64) = (16, 1.14);

/// An Othello from a name to its slot, and the slots.
fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let s = demand.symbols();
    let (cell, slots) = OGW_SIZES;
    let index = Ofw::unrounded(Symbols { l_p: cell, ..s }, 0);
    let slot = s.l_k + s.l_p;
    let lines = index.c_m() - s.name_lines() + expected_lines(slot.into(), s.l_c);
    let bits = index.memory() + s.n_k * f64::from(slot);
    Figures {
        parameters: "exact".into(),
        bits,
        built_bits: s.n_k * (OTHELLO_CELLS * f64::from(cell) + slots * slot_bits(demand, demand.value_bits)),
        fast_bits: bits,
        lines,
        lines_alien: lines,
        fp: 0.0,
        ..of_othello(spec, String::new(), &index)
    }
}

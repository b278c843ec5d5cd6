//! The Bloomier filter: three cells XORed, the smallest design for names that do not change.
//!
//! Cost: three reads of cells per lookup, 1.23 l bits per name; any change sends the whole table.
//! Alien names get an arbitrary action. So do removed names, which are aliens at once.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section VI.

use crate::fixed::Fixed;
use fib::designs::{Checksummed, Design, Spec};
use fib::halves;
use fib::model::designs::{Demand, Figures, in_words, of_map};
use fib::model::mcq;
use lookup::static_map::Bloomier;

/// Bloomier filter: three cells from name to action; static.
pub static BLOOMIER: Design = Design {
    is_static: true,
    ..Design::new(
        "bloomier",
        "Bloomier filter: three cells from name to action; static",
        halves!(Fixed<Bloomier>),
        figures,
    )
};

/// Bloomier with checksums.
pub static BLOOMIER_CHECKSUM: Design = Design {
    is_static: true,
    ..Design::with_checksums(
        "bloomier+checksum",
        "bloomier with a checksum beside each action; static",
        halves!(Checksummed<Fixed<Bloomier>>),
    )
};

fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let bits = |cell: f64| mcq::bloomier_bits(demand.n_names.max(1), 1) * cell;
    let built_bits = bits(in_words(demand.value_bits));
    Figures { built_bits, ..of_map(spec, "1.23".into(), bits(demand.value_bits.into()), 3.0, 3.0) }
}

//! SetSep, of ScaleBricks: one hash function per group of names and bit of the action, found by trial.
//!
//! Cost: two lines per lookup, 0.5 + 1.5 l bits per name; any change sends the whole table, after a slow build.
//! Alien names get an arbitrary action. So do removed names, which are aliens at once.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections VI, VII.B.

use crate::fixed::Fixed;
use fib::designs::{CHECKSUM_BITS, Checksummed, Design, Spec};
use fib::halves;
use fib::model::designs::{Demand, Figures, of_map};
use fib::model::lines::expected_lines;
use fib::model::mcq;
use lookup::static_map::SetSep;

/// SetSep: hash functions that happen to be right for a group of names; static.
pub static SETSEP: Design = Design {
    is_static: true,
    ..Design::new(
        "setsep",
        "SetSep: hash functions that happen to be right for a group of names; static",
        halves!(Fixed<SetSep>),
        figures,
    )
};

/// SetSep with checksums.
pub static SETSEP_CHECKSUM: Design = Design {
    is_static: true,
    // Its arrays are one per bit, so there are no words to fill.
    fingerprint_bits: |_| CHECKSUM_BITS,
    widened: |_, _, least| least,
    ..Design::with_checksums(
        "setsep+checksum",
        "setsep with a checksum beside each action; static",
        halves!(Checksummed<Fixed<SetSep>>),
    )
};

fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let l = demand.value_bits;
    let record = expected_lines(24 * u64::from(l), demand.symbols().l_c);
    let bits = mcq::setsep_bits(demand.n_names.max(1), l);
    of_map(spec, format!("l={l}"), bits, 1.0 + record, mcq::setsep_calls(l).0.into())
}

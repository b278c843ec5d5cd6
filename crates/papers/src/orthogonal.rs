//! Orthogonal Bloom filters (OBF): one per bit of the action, and an exact table of the names they get wrong.
//!
//! Cost: 2 to 13 bits of each of l filters per lookup, 9.6 l bits per name; any change sends the whole table.
//! Alien names, including removed ones, are dropped unless a filter matches them.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section VI.

use crate::fixed::Fixed;
use fib::designs::{Aliens, Design, Spec};
use fib::halves;
use fib::model::designs::{Demand, EXCEPTION_BITS, Figures, of_map};
use fib::model::{Bfw, Symbols, mcq};
use lookup::static_map::{Orthogonal, orthogonal::RATE};

/// Orthogonal Bloom filters, one per bit of the action, and an exact table of their errors; static.
pub static OBF: Design = Design {
    aliens: |spec, _| Aliens::DroppedBut { rate: RATE * f64::from(spec.value_bits) },
    is_static: true,
    ..Design::new(
        "obf",
        "orthogonal Bloom filters, one a bit of the action, and an exact table of their errors; static",
        halves!(Fixed<Orthogonal>),
        figures,
    )
};

/// One filter per bit of the value, of the names that have it; an exact table holds the names that come out wrong.
fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let s = demand.symbols();
    let (f, n, l_p) = (mcq::WRONG, s.n_k, f64::from(s.l_p));
    // Bits that are one in a value, on average over all actions.
    let ones = (1..=s.d).map(|value| f64::from(value.count_ones())).sum::<f64>() / f64::from(s.d);
    let filter = Bfw::with_rate(Symbols { d: 1, ..s }, 13, f);
    let cr = 1.0 - (1.0 - f).powf(l_p - ones);
    let wrong = (n * cr).ceil();
    let exact = mcq::sorted_lines(wrong as u64, 64, s.l_c) as f64;
    let bits = ones * filter.fast_memory() + wrong * EXCEPTION_BITS;
    // A bit that is one reads all positions.
    let valid = ones * f64::from(filter.l) + (l_p - ones) * filter.c_t();
    let alien = l_p * ((1.0 - f) * filter.c_t() + f * f64::from(filter.l));
    Figures {
        lines_alien: alien + exact,
        hashes_alien: alien,
        fp: 1.0 - (1.0 - f).powf(l_p),
        cr: Some(cr),
        ..of_map(spec, format!("k={}", filter.l), bits, valid + exact, valid)
    }
}

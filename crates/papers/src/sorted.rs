//! Binary search over sorted whole names, as in the papers' comparison in Click.
//!
//! Cost: log2(n) / 3 lines per lookup for names of one word; 64 W + l bits per name of W words with a value of l bits;
//! any change sends the whole table.
//! Alien names are all dropped. A text of more than 63 bytes is an entry for every 53 bytes.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section VI.

use crate::fixed::Fixed;
use fib::designs::{Aliens, Design, NameLayout, Spec};
use fib::halves_by_width;
use fib::model::designs::{Demand, Figures, WORD, in_words, of_map};
use fib::model::mcq;
use lookup::static_map::Sorted;

/// Binary search over whole names; static.
pub static SORTED: Design = Design {
    aliens: |_, _| Aliens::Dropped,
    is_static: true,
    ..Design::new("sorted", "binary search over whole names; static", halves_by_width!(FixedNames), figures)
};

type FixedNames<const W: usize> = Fixed<Sorted<W>>;

/// Exact, so no alien passes; a name is found in the last line that is read.
fn figures(spec: &Spec, demand: &Demand) -> Figures {
    let s = demand.symbols();
    let (n, entry) = (demand.n_names.max(1), s.l_k + s.l_p);
    let lines = mcq::sorted_lines(n, entry, s.l_c) as f64;
    let name = f64::from(WORD) * NameLayout::of(demand.kind).width as f64;
    let built_bits = s.n_k * (name + in_words(s.l_p));
    Figures { fp: 0.0, built_bits, ..of_map(spec, "exact".into(), n as f64 * f64::from(entry), lines, 0.0) }
}

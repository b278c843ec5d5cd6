//! FIB designs of the papers that few should choose: static maps, Bloom forwarders, the Othello forwarder with whole names,
//! tuple space search, and Bloom filters in front of other designs.
//!
//! They are whole designs, like those of `fib`: controllers, switches, files and stores take them. The product is built
//! without them. `fibula-lab` adds them to the designs of `fib` at its start ([`add`]) and runs every command of `fibula`.
//! One file a design, with its structure, its figures and its promises; `docs/how-to/add-a-fib-design.md` says how to add
//! one.
//!
//! | module | what it is |
//! |---|---|
//! | `front` | designs behind a Bloom filter of the names |
//! | `bloom`, `filters` | what Bloom forwarders share, and what their filters cost |
//! | `fixed` | what static maps share, and static maps with checksums |
//! | the others | one design each |

mod bfw;
mod bgw;
mod bloom;
mod bloomier;
mod buffalo;
mod filters;
mod fixed;
mod front;
mod ogw;
mod orthogonal;
mod setsep;
mod sorted;
mod summary_cache;
mod tss;

pub use bfw::BFW;
pub use bgw::BGW;
pub use bloomier::{BLOOMIER, BLOOMIER_CHECKSUM};
pub use buffalo::BUFFALO;
pub use front::{
    BLOOMIER_BLOOM, CFW_BLOOM, CONCISE_BLOOM, LINE_BLOOM, LINE_FAST_BLOOM, LINE_SMALL_BLOOM, OFW_BLOOM, SETSEP_BLOOM,
    SUMMARY_BLOOM,
};
pub use ogw::OGW;
pub use orthogonal::OBF;
pub use setsep::{SETSEP, SETSEP_CHECKSUM};
pub use sorted::SORTED;
pub use summary_cache::SUMMARY_CACHE;
pub use tss::TSS;

use fib::designs::Design;

/// The designs of this crate.
pub static DESIGNS: &[&Design] = &[
    &OGW,
    &BFW,
    &BUFFALO,
    &SUMMARY_CACHE,
    &BGW,
    &BLOOMIER,
    &SETSEP,
    &SORTED,
    &OBF,
    &TSS,
    &BLOOMIER_CHECKSUM,
    &SETSEP_CHECKSUM,
    &CONCISE_BLOOM,
    &LINE_BLOOM,
    &LINE_FAST_BLOOM,
    &LINE_SMALL_BLOOM,
    &OFW_BLOOM,
    &CFW_BLOOM,
    &SUMMARY_BLOOM,
    &BLOOMIER_BLOOM,
    &SETSEP_BLOOM,
];

/// Adds the designs of this crate to those of `fib`, for the whole program. Call it before anything asks for designs.
pub fn add() {
    fib::designs::add(DESIGNS);
}

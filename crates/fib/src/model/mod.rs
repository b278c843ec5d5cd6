//! The model: what a forwarding structure costs, computed before one is built.
//!
//! | module | what | equations of "Re-designing Compact-structure based Forwarding" |
//! |---|---|---|
//! | [`bloom`] | BFW: memory, hash calls, lines, false positives, misdeliveries | V.A, (1), (2), (7) |
//! | [`cuckoo`] | CFW and (2,4)-Cuckoo: the same, and `E_eta` | V.A, (3), (4), (8) |
//! | [`othello`] | OFW and Concise: the same | V.A, (5), (6), (9) |
//! | [`lines`] | cache lines of cells and buckets: `C(C_b)`, `C_m,i` | undefined there |
//! | [`mcq`] | memory and most lines per query, as Othello's papers tabulate them | Table II, Table 1 |
//! | [`messages`] | bits of an update message | Table III |
//! | [`demand`] | names, actions, aliens wanted | |
//! | [`designs`] | every design for one demand, its parameters chosen | all of them |
//! | [`advice`] | which to take at a gateway and at a core node | V.D, VIII |
//!
//! Every function computes what the equation should say, and its doc says where the printed one differs; `printed`
//! modules hold the printed ones. What the papers leave undefined is derived in `docs/derivations/model.md`. Tests
//! check both against reference structures that count (`crates/fib/tests/model_counts`).
//!
//! Sources: Shi, Qian, Wang, "Re-designing Compact-structure based Forwarding for Programmable Networks", section V;
//! Yu, Belazzougui, Qian, Zhang, "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello
//! Hashing", section VI. Limits: names and aliens are random, and names equally spread over ports; a line that is read
//! twice counts twice; caches are not modelled.

pub mod advice;
pub mod bloom;
pub mod cuckoo;
pub mod demand;
pub mod designs;
pub mod lines;
pub mod mcq;
pub mod messages;
pub mod othello;

pub use bloom::Bfw;
pub use cuckoo::{Cfw, Cuckoo};
pub use othello::Ofw;

/// What all structures share: the papers' Table I. Lengths in bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Symbols {
    /// Valid names.
    pub n_k: f64,
    /// Links, or other actions.
    pub d: u32,
    /// Length of a port index.
    pub l_p: u32,
    /// Length of a name.
    pub l_k: u32,
    /// Length of a cache line; the papers give it no row.
    pub l_c: u64,
    /// Length of a counter of a counting filter.
    pub l_s: f64,
    /// Buckets that a name may be in.
    pub n_b: u32,
    /// Slots of a bucket.
    pub n_s: u32,
    /// Load factor of cuckoo tables.
    pub r_l: f64,
}

impl Default for Symbols {
    /// 10M MAC names, 32 ports, lines of 512 bits, counters of 4 bits, (2,4) tables at load 0.95.
    fn default() -> Self {
        Self { n_k: 1e7, d: 32, l_p: 5, l_k: 48, l_c: 512, l_s: 4.0, n_b: 2, n_s: 4, r_l: 0.95 }
    }
}

impl Symbols {
    /// `e_l = 1 / r_l`: slots per name.
    pub fn e_l(&self) -> f64 {
        1.0 / self.r_l
    }

    /// Lines of the name itself, `ceil(l_k / l_c)`: the first term of equations (2), (4) and (6).
    pub fn name_lines(&self) -> f64 {
        u64::from(self.l_k).div_ceil(self.l_c) as f64
    }
}

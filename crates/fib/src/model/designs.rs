//! Every design for one demand: its parameters chosen, and what it then costs.
//!
//! Memory is stated twice. [`Figures::bits`] is as in the papers' equations, before rounding. [`Figures::built_bits`]
//! is as in the structures of `lookup`: cells do not straddle words, slots are whole words (16 or 32 bits in a
//! Filtable), and an Othello has 2.42 cells per name. `fibula fib compare --measure` checks the latter against built
//! tables. Fingerprints are those with which the designs are built for the demand's rate. Two things are ours. Bloom forwarders have an
//! exact table of the names that their filters get wrong, counted in their memory and lines. Value 0 means drop, so
//! `d` actions are `d + 1` values.

pub use super::demand::Demand;
use super::{Cfw, Cuckoo, Ofw, Symbols};
use crate::designs::{self, Design, NameLayout, Spec};
use lookup::hash::{Family, SecretKey};
use lookup::line::Trade;

/// Bits of a slot of an exact table of digests: a digest and a word for the value.
pub const EXCEPTION_BITS: f64 = 128.0;
/// Bits of a word.
pub const WORD: u32 = 64;
/// Cells per name of a sharded Othello: 2.40, plus the rounding of shards to words and lines.
pub const OTHELLO_CELLS: f64 = 2.42;
/// Share of the names in a line table whose lookup reads the lines of a second bucket, by how full the buckets are.
const fn line_bumped(trade: Trade) -> f64 {
    match trade {
        Trade::Fast => 0.007,
        Trade::Balanced => 0.02,
        Trade::Small => 0.04,
    }
}

/// Most counters of 64 bits that readers check. There is one per bucket, rounded up to a power of two; they matter
/// where names are few.
const MAX_COUNTERS: f64 = 8192.0;
/// The cost of changing one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updates {
    /// A few cells, slots or bits.
    Cells,
    /// A rebuild of everything.
    Rebuild,
}

/// The computed figures of a design for a [`Demand`].
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The design's name.
    pub design: &'static str,
    /// Its parameters.
    pub parameters: String,
    /// Bits of its fingerprint, as [`Spec`](crate::designs::Spec) has them; 0 where it has none. For a Bloom filter,
    /// minus the binary logarithm of its false-positive rate.
    pub l_f: u32,
    /// Memory of the data plane by the papers' equations, in bits: M.
    pub bits: f64,
    /// Memory of the data plane with cells and slots as built, in bits.
    pub built_bits: f64,
    /// What lookups mostly read of M, in bits: M_f.
    pub fast_bits: f64,
    /// Cache lines of a lookup of a valid name, without the name's own: C_m.
    pub lines: f64,
    /// The same of an alien: C_m,e.
    pub lines_alien: f64,
    /// Hash calls of a valid name, as the papers count them, one per position: C_h.
    pub hashes: f64,
    /// The same of an alien: C_h,e.
    pub hashes_alien: f64,
    /// Share of aliens that get an action: FP.
    pub fp: f64,
    /// Whether the design can be built so that the demand's rate holds, also while names come and go.
    pub holds: bool,
    /// Share of valid names that filters get wrong: CR; none where there are no filters. An exact table holds those
    /// names, so no answer is wrong.
    pub cr: Option<f64>,
    /// The cost of a change.
    pub updates: Updates,
}

impl Figures {
    /// Whether few enough aliens pass.
    pub fn meets(&self, demand: &Demand) -> bool {
        // Filters are sized to the rate itself, up to rounding.
        self.holds && self.fp <= demand.fp * (1.0 + 1e-9)
    }
}

/// All designs for a demand, in the order of [`designs::all`].
pub fn all(demand: &Demand) -> Vec<Figures> {
    designs::all().map(|design| of(design, demand)).collect()
}

/// One design for a demand.
pub fn of(design: &'static Design, demand: &Demand) -> Figures {
    let Built { spec, holds } = built(design, demand);
    Figures { design: design.name, holds, ..(design.figures)(&spec, demand) }
}

/// A design as it is built for a demand.
#[derive(Debug)]
pub struct Built {
    /// What it is built with.
    pub spec: Spec,
    /// Whether the demand's rate holds.
    pub holds: bool,
}

/// How a design is built for the demand's rate; where it cannot hold it, with the longest fingerprint.
pub fn built(design: &'static Design, demand: &Demand) -> Built {
    let max_names = usize::try_from(demand.n_names).unwrap_or(usize::MAX);
    let (value_bits, key) = (demand.value_bits as u8, SecretKey::from_seed(0));
    let spec = Spec::new(design, demand.kind, Family::MulAdd, key, value_bits, max_names);
    match spec.clone().with_rate(demand.fp, demand.n_actions.max(1)) {
        Ok(spec) => Built { spec, holds: true },
        Err(_) => {
            let fingerprint_bits = *(design.fingerprints)(value_bits).end();
            Built { spec: Spec { fingerprint_bits, ..spec }, holds: false }
        }
    }
}

/// Bits that a cell of `cell` bits takes, given that cells do not straddle words.
pub fn in_words(cell: u32) -> f64 {
    f64::from(WORD) / f64::from((WORD / cell).max(1))
}

/// Two reads of cells, one of each side.
pub fn of_othello(spec: &Spec, parameters: String, o: &Ofw) -> Figures {
    let name = o.s.name_lines();
    Figures {
        design: spec.design.name,
        parameters,
        l_f: o.l_f,
        bits: o.memory(),
        built_bits: OTHELLO_CELLS * o.s.n_k * in_words(o.s.l_p + o.l_f),
        fast_bits: o.memory(),
        lines: o.c_m() - name,
        lines_alien: o.c_m_alien() - name,
        hashes: o.c_h(),
        hashes_alien: o.c_h_alien(),
        fp: o.fp(),
        holds: false,
        cr: None,
        updates: Updates::Cells,
    }
}

/// One Othello.
pub(crate) fn concise(spec: &Spec, demand: &Demand) -> Figures {
    of_othello(spec, format!("l={}", demand.value_bits), &Ofw::unrounded(demand.symbols(), 0))
}

/// Buckets of which a lookup reads one, and sometimes a second.
pub(crate) fn line(spec: &Spec, demand: &Demand, trade: Trade) -> Figures {
    let bits = demand.n_names.max(1) as f64 * trade.bits_a_name(demand.value_bits as u8);
    // The cells lie in equal parts of the bucket, the head beside the first. Of a name in another bucket the head says so.
    let lines = Trade::lines(demand.value_bits as u8).min(trade.cells_a_name().into());
    let lines = f64::from(lines) + line_bumped(trade);
    let hashes = 1.0 + f64::from(trade.cells_a_name());
    let parameters = format!("l={}, {} cells", demand.value_bits, trade.cells_a_name());
    Figures { updates: Updates::Cells, ..of_map(spec, parameters, bits, lines, hashes) }
}

/// An Othello with fingerprints in its cells.
pub(crate) fn ofw(spec: &Spec, demand: &Demand) -> Figures {
    let l_f = spec.fingerprint_bits.into();
    of_othello(spec, format!("l_f={l_f}"), &Ofw::unrounded(demand.symbols(), l_f))
}

/// Bits of a slot of an exact table: the words of a name, plus one where the value does not fit behind it.
pub fn slot_bits(demand: &Demand, value_bits: u32) -> f64 {
    let layout = NameLayout::of(demand.kind);
    let words = layout.width as u32;
    let last = (8 * u32::from(layout.bytes)).saturating_sub(WORD * (words - 1));
    f64::from(WORD * if last + value_bits <= WORD { words } else { words + 1 })
}

/// Slots of 16 or 32 bits.
pub(crate) fn cfw(spec: &Spec, demand: &Demand) -> Figures {
    let l_f: u32 = spec.fingerprint_bits.into();
    let slot = if demand.value_bits + l_f <= 16 { 16.0 } else { 32.0 };
    let c = Cfw { s: demand.symbols(), l_f };
    let (first, second) = (c.e_eta() * c.s.n_k, (1.0 - c.e_eta()) * c.s.n_k);
    let slots = (first * slot + second * EXCEPTION_BITS) * c.s.e_l();
    let name = c.s.name_lines();
    Figures {
        design: spec.design.name,
        parameters: format!("l_f={l_f}"),
        l_f,
        bits: c.memory(),
        built_bits: slots + counters(&c.s, first) + counters(&c.s, second),
        fast_bits: c.fast_memory(),
        lines: c.c_m() - name,
        lines_alien: c.c_m_alien() - name,
        hashes: c.c_h(),
        hashes_alien: c.c_h_alien(),
        fp: c.fp(),
        holds: false,
        cr: None,
        updates: Updates::Cells,
    }
}

/// Bits of the counters that readers of a cuckoo table of `n_names` check.
pub fn counters(s: &Symbols, n_names: f64) -> f64 {
    let buckets = (n_names * s.e_l() / f64::from(s.n_s)).ceil().max(1.0);
    f64::from(WORD) * buckets.log2().ceil().exp2().min(MAX_COUNTERS)
}

/// Whole names in two buckets of four slots.
pub(crate) fn cuckoo(spec: &Spec, demand: &Demand) -> Figures {
    of_cuckoo(spec, "(2,4)".into(), demand.symbols(), slot_bits(demand, demand.value_bits))
}

/// A cuckoo table whose slots are built with `slot` bits.
pub fn of_cuckoo(spec: &Spec, parameters: String, s: Symbols, slot: f64) -> Figures {
    let c = Cuckoo { s };
    let name = s.name_lines();
    Figures {
        design: spec.design.name,
        parameters,
        l_f: 0,
        bits: c.memory(),
        built_bits: s.e_l() * s.n_k * slot + counters(&s, s.n_k),
        fast_bits: c.memory(),
        lines: c.c_m() - name,
        lines_alien: c.c_m_alien() - name,
        hashes: c.c_h(),
        hashes_alien: c.c_h_alien(),
        fp: 0.0,
        holds: false,
        cr: None,
        updates: Updates::Cells,
    }
}

/// A map of so many bits that recognises no alien, and of which a lookup reads so many lines. Its changes are rebuilds.
pub fn of_map(spec: &Spec, parameters: String, bits: f64, lines: f64, hashes: f64) -> Figures {
    Figures {
        design: spec.design.name,
        parameters,
        l_f: 0,
        bits,
        built_bits: bits,
        fast_bits: bits,
        lines,
        lines_alien: lines,
        hashes,
        hashes_alien: hashes,
        fp: 1.0,
        holds: false,
        cr: None,
        updates: Updates::Rebuild,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::NameKind;
    use crate::testkit;

    fn demand() -> Demand {
        Demand::new(NameKind::Mac, 10_000_000, 32, 0.01)
    }

    fn of(demand: &Demand, design: &str) -> Figures {
        all(demand).into_iter().find(|figures| figures.design == design).unwrap()
    }

    #[test]
    fn parameters_are_the_least_that_meet_the_demand() {
        for fp in [0.3, 0.01, 1e-4] {
            let demand = Demand { fp, ..demand() };
            for design in ["ofw", "cfw", "cuckoo"] {
                let figures = of(&demand, design);
                assert!(figures.meets(&demand), "{design} at {fp}: {figures:?}");
            }
            assert!(!of(&demand, "concise").meets(&demand));
        }
        // 2^-6 / 3 is enough, and a word has four cells of 13 bits as well as of 16; 10 bits in two buckets of 3.8 names
        // are 0.74 %.
        assert_eq!((of(&demand(), "ofw").l_f, of(&demand(), "cfw").l_f), (10, 10));
        assert_eq!(of(&Demand { fp: 0.001, ..demand() }, "cfw").l_f, 24, "slots of 32 bits");
    }

    #[test]
    fn rows_are_those_of_tables_that_can_be_built() {
        testkit::every_design_has_a_row_that_it_can_be_built_with();
        testkit::figures_of_any_demand_are_numbers();
        testkit::memory_does_not_depend_on_the_length_of_names_but(&["cuckoo"]);
    }

    #[test]
    fn the_papers_ranking_comes_out() {
        // Section V.D: without aliens to mind, OFW with no fingerprint takes least; at 0.1 % CFW does.
        let bits = |fp: f64, design: &str| of(&Demand { fp, ..demand() }, design).bits;
        assert!(bits(0.01, "concise") < bits(0.01, "cfw"));
        assert!(bits(0.001, "cfw") < bits(0.001, "ofw"));
    }
}

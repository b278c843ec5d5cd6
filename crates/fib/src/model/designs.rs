//! Every design for one demand: its parameters chosen, and what it then costs.
//!
//! Sizes are the papers', before they are rounded to powers of two or to words, and differ by so much from a table that
//! is built: `fibula fib compare --measure` has both. Two things are ours: Bloom forwarders have an exact table of the
//! names that their filters get wrong, counted in their memory and lines; and value 0 means drop, so `d` actions are
//! `d + 1` values.

use super::{Bfw, Cfw, Cuckoo, Ofw, Symbols, mcq};
use crate::name::NameKind;

/// Bits of a slot of the exact table of a Bloom forwarder: a digest and a word for the value.
const EXCEPTION_BITS: f64 = 128.0;
/// Lines of a lookup in it: two buckets of four slots.
const EXCEPTION_LINES: f64 = 2.0;
/// Bits of a file name, where the length of names is open: those of Table II fill slots of 52 bytes.
const TEXT_BITS: u32 = 416;
/// Bits of a fingerprint at most.
const MAX_L_F: u32 = 24;
/// Hash functions of a filter at most.
const MAX_L: u32 = 32;
/// Bits a name and hash functions of Summary Cache, as its paper recommends.
const SUMMARY: (f64, u32) = (16.0, 4);

/// What is asked of a FIB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Kind of the names.
    pub kind: NameKind,
    /// Names.
    pub n_names: u64,
    /// Actions other than drop.
    pub n_actions: u32,
    /// Bits of a value.
    pub value_bits: u32,
    /// Share of alien names that may get an action.
    pub fp: f64,
}

impl Demand {
    /// A demand whose values have just the bits that drop and `n_actions` actions need.
    pub fn new(kind: NameKind, n_names: u64, n_actions: u32, fp: f64) -> Self {
        Self { kind, n_names, n_actions, value_bits: (u32::BITS - n_actions.leading_zeros()).max(1), fp }
    }

    /// Bits of a name; of a text, those of the papers' file names.
    pub fn name_bits(&self) -> u32 {
        match self.kind {
            NameKind::Mac => 48,
            NameKind::Ipv4 | NameKind::Teid => 32,
            NameKind::Ipv6 => 128,
            NameKind::FiveTuple => 104,
            NameKind::Fixed(bytes) => 8 * u32::from(bytes),
            NameKind::Text => TEXT_BITS,
        }
    }

    fn symbols(&self) -> Symbols {
        Symbols {
            n_k: self.n_names.max(1) as f64,
            d: self.n_actions.max(1),
            l_p: self.value_bits,
            l_k: self.name_bits(),
            ..Symbols::default()
        }
    }
}

/// What a change of one name costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updates {
    /// A few cells, slots or bits.
    Cells,
    /// Another build of everything.
    Rebuild,
}

/// A design for a [`Demand`]: computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The design's name.
    pub design: &'static str,
    /// Its parameters.
    pub parameters: String,
    /// Memory of the data plane, in bits: M.
    pub bits: f64,
    /// What lookups mostly read of it, in bits: M_f.
    pub fast_bits: f64,
    /// Cache lines of a lookup of a valid name, without the name's own: C_m.
    pub lines: f64,
    /// The same of an alien: C_m,e.
    pub lines_alien: f64,
    /// Hash calls of a valid name, as the papers count them: one a position: C_h.
    pub hashes: f64,
    /// The same of an alien: C_h,e.
    pub hashes_alien: f64,
    /// Share of aliens that get an action: FP.
    pub fp: f64,
    /// Share of valid names that the compact part gets wrong: CR. An exact table has them, so no answer is wrong.
    pub cr: f64,
    /// What a change costs.
    pub updates: Updates,
}

impl Figures {
    /// Whether few enough aliens pass.
    pub fn meets(&self, demand: &Demand) -> bool {
        // Filters are sized to the rate itself, up to rounding.
        self.fp <= demand.fp * (1.0 + 1e-9)
    }
}

/// All designs for a demand.
pub fn all(demand: &Demand) -> Vec<Figures> {
    let mut rows = vec![
        concise(demand),
        ofw(demand),
        cfw(demand),
        cuckoo(demand),
        bfw(demand),
        buffalo(demand),
        summary_cache(demand),
        bloomier(demand),
        setsep(demand),
        sorted(demand),
        orthogonal(demand),
    ];
    rows.extend(tss(demand));
    rows
}

fn of_othello(design: &'static str, parameters: String, o: &Ofw) -> Figures {
    let name = o.s.name_lines();
    Figures {
        design,
        parameters,
        bits: o.memory(),
        fast_bits: o.memory(),
        lines: o.c_m() - name,
        lines_alien: o.c_m_alien() - name,
        hashes: o.c_h(),
        hashes_alien: o.c_h_alien(),
        fp: o.fp(),
        cr: 0.0,
        updates: Updates::Cells,
    }
}

fn concise(demand: &Demand) -> Figures {
    of_othello("concise", format!("l={}", demand.value_bits), &Ofw::unrounded(demand.symbols(), 0))
}

/// The fewest bits of fingerprint with which few enough aliens pass.
fn ofw(demand: &Demand) -> Figures {
    let with = |l_f| Ofw::unrounded(demand.symbols(), l_f);
    let l_f = (1..MAX_L_F).find(|&l_f| with(l_f).fp() <= demand.fp).unwrap_or(MAX_L_F);
    of_othello("ofw", format!("l_f={l_f}"), &with(l_f))
}

/// The least memory with which few enough aliens pass.
fn cfw(demand: &Demand) -> Figures {
    let with = |l_f| Cfw { s: demand.symbols(), l_f };
    let fits = (6..MAX_L_F).map(with).filter(|c| c.fp() <= demand.fp);
    let c = fits.min_by(|a, b| a.memory().total_cmp(&b.memory())).unwrap_or(with(MAX_L_F));
    let name = c.s.name_lines();
    Figures {
        design: "cfw",
        parameters: format!("l_f={}", c.l_f),
        bits: c.memory(),
        fast_bits: c.fast_memory(),
        lines: c.c_m() - name,
        lines_alien: c.c_m_alien() - name,
        hashes: c.c_h(),
        hashes_alien: c.c_h_alien(),
        fp: c.fp(),
        cr: 0.0,
        updates: Updates::Cells,
    }
}

fn cuckoo(demand: &Demand) -> Figures {
    let c = Cuckoo { s: demand.symbols() };
    let name = c.s.name_lines();
    Figures {
        design: "cuckoo",
        parameters: "(2,4)".into(),
        bits: c.memory(),
        fast_bits: c.memory(),
        lines: c.c_m() - name,
        lines_alien: c.c_m_alien() - name,
        hashes: c.c_h(),
        hashes_alien: c.c_h_alien(),
        fp: 0.0,
        cr: 0.0,
        updates: Updates::Cells,
    }
}

/// Filters one after another, and the exact table, which every lookup asks.
fn of_filters(design: &'static str, parameters: String, b: &Bfw, has_counters: bool) -> Figures {
    let name = b.s.name_lines();
    let exceptions = b.cr() * b.s.n_k * b.s.e_l() * EXCEPTION_BITS;
    let filters = if has_counters { b.memory() } else { b.fast_memory() };
    Figures {
        design,
        parameters,
        bits: filters + exceptions,
        fast_bits: b.fast_memory() + exceptions,
        lines: b.c_m() - name + EXCEPTION_LINES,
        lines_alien: b.c_m_alien() - name + EXCEPTION_LINES,
        hashes: b.c_h() + EXCEPTION_LINES,
        hashes_alien: b.c_h_alien() + EXCEPTION_LINES,
        fp: b.fp(),
        cr: b.cr(),
        updates: Updates::Cells,
    }
}

/// Half-full filters with counters: the number of functions with the least memory.
fn bfw(demand: &Demand) -> Figures {
    let with = |l| {
        let b = Bfw { s: demand.symbols(), l, p: 0.5 };
        of_filters("bfw", format!("l={l}"), &b, true)
    };
    let fits = (1..MAX_L).map(with).filter(|figures| figures.fp <= demand.fp);
    fits.min_by(|a, b| a.bits.total_cmp(&b.bits)).unwrap_or(with(MAX_L))
}

/// Filters with at most eight functions and no counters, the bits of all ports at one position side by side: a lookup
/// reads them until no port is left, a name all eight.
fn buffalo(demand: &Demand) -> Figures {
    let s = demand.symbols();
    let f = -((-demand.fp.max(1e-12)).ln_1p() / f64::from(s.d)).exp_m1();
    let l = ((-f.log2()).round() as u32).clamp(1, mcq::K_MAX);
    let b = Bfw::with_rate(s, l, f);
    let row_lines = u64::from(s.d).div_ceil(s.l_c) as f64;
    // After j rows some port is left.
    let left = |j: u32| 1.0 - (1.0 - (1.0 - b.p).powi(j as i32)).powi(s.d as i32);
    let rows_alien: f64 = (0..l).map(left).sum();
    Figures {
        lines: f64::from(l) * row_lines + EXCEPTION_LINES,
        lines_alien: rows_alien * row_lines + EXCEPTION_LINES,
        hashes: f64::from(l) + EXCEPTION_LINES,
        hashes_alien: rows_alien + EXCEPTION_LINES,
        ..of_filters("buffalo", format!("k={l}"), &b, false)
    }
}

fn summary_cache(demand: &Demand) -> Figures {
    let (bits_a_name, l) = SUMMARY;
    let b = Bfw { s: demand.symbols(), l, p: (-f64::from(l) / bits_a_name).exp() };
    of_filters("summary-cache", format!("{bits_a_name} bits, k={l}"), &b, true)
}

/// What static maps have in common: no alien is known as one.
fn of_map(design: &'static str, parameters: String, bits: f64, lines: f64, hashes: f64) -> Figures {
    Figures {
        design,
        parameters,
        bits,
        fast_bits: bits,
        lines,
        lines_alien: lines,
        hashes,
        hashes_alien: hashes,
        fp: 1.0,
        cr: 0.0,
        updates: Updates::Rebuild,
    }
}

fn bloomier(demand: &Demand) -> Figures {
    let bits = mcq::bloomier_bits(demand.n_names.max(1), demand.value_bits);
    of_map("bloomier", "1.23".into(), bits, 3.0, 3.0)
}

fn setsep(demand: &Demand) -> Figures {
    let l = demand.value_bits;
    let record = super::lines::expected_lines(24 * u64::from(l), demand.symbols().l_c);
    let bits = mcq::setsep_bits(demand.n_names.max(1), l);
    of_map("setsep", format!("l={l}"), bits, 1.0 + record, mcq::setsep_calls(l).0.into())
}

/// Exact, so no alien passes; a name is found in the last line that is read.
fn sorted(demand: &Demand) -> Figures {
    let s = demand.symbols();
    let (n, entry) = (demand.n_names.max(1), s.l_k + s.l_p);
    let lines = mcq::sorted_lines(n, entry, s.l_c) as f64;
    Figures { fp: 0.0, ..of_map("sorted", "exact".into(), n as f64 * f64::from(entry), lines, 0.0) }
}

/// A filter a bit of the value, of the half of the names that have it; those that come out wrong in an exact table.
fn orthogonal(demand: &Demand) -> Figures {
    let s = demand.symbols();
    let (f, n, l_p) = (mcq::WRONG, s.n_k, f64::from(s.l_p));
    let filter = Bfw::with_rate(Symbols { n_k: n / 2.0, d: 1, ..s }, 13, f);
    let cr = 1.0 - (1.0 - f).powf(l_p / 2.0);
    let wrong = (n * cr).ceil();
    let exact = mcq::sorted_lines(wrong as u64, 64, s.l_c) as f64;
    let bits = l_p * filter.fast_memory() + wrong * EXCEPTION_BITS;
    // Half of the bits are one, and read all positions.
    let valid = l_p / 2.0 * (f64::from(filter.l) + filter.c_t());
    let alien = l_p * ((1.0 - f) * filter.c_t() + f * f64::from(filter.l));
    Figures {
        lines_alien: alien + exact,
        hashes_alien: alien,
        fp: 1.0 - (1.0 - f).powf(l_p),
        cr,
        ..of_map("orthogonal", format!("k={}", filter.l), bits, valid + exact, valid)
    }
}

/// Names of several fields: a hash table a combination of fields, all asked. Others have one field, and it is a cuckoo
/// table.
fn tss(demand: &Demand) -> Option<Figures> {
    const FIELDS: u32 = 5;
    let c = Cuckoo { s: demand.symbols() };
    let t = f64::from(FIELDS);
    let name = c.s.name_lines();
    (demand.kind == NameKind::FiveTuple).then(|| Figures {
        design: "tss",
        parameters: format!("t={FIELDS}"),
        // A valid name is in one of them, after half of the others.
        lines: (t - 1.0) / 2.0 * (c.c_m_alien() - name) + (c.c_m() - name),
        lines_alien: t * (c.c_m_alien() - name),
        hashes: (t - 1.0) / 2.0 * c.c_h_alien() + c.c_h(),
        hashes_alien: t * c.c_h_alien(),
        ..cuckoo(demand)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            for design in ["ofw", "cfw", "cuckoo", "bfw", "buffalo", "sorted"] {
                let figures = of(&demand, design);
                assert!(figures.meets(&demand), "{design} at {fp}: {figures:?}");
            }
            for design in ["concise", "bloomier", "setsep"] {
                assert!(!of(&demand, design).meets(&demand));
            }
        }
        // 2^-5 / 3 is 1.04 %, 2^-6 / 3 is enough; 10 bits in two buckets of 3.8 names are 0.74 %.
        assert_eq!((&*of(&demand(), "ofw").parameters, &*of(&demand(), "cfw").parameters), ("l_f=7", "l_f=10"));
    }

    #[test]
    fn values_have_room_for_drop() {
        let bits = |n| Demand::new(NameKind::Mac, 1, n, 0.5).value_bits;
        assert_eq!([1, 2, 3, 4, 31, 32, 255, 256, 65_535].map(bits), [1, 2, 2, 3, 5, 6, 8, 9, 16]);
    }

    #[test]
    fn memory_does_not_depend_on_the_length_of_names_where_none_are_kept() {
        let long = Demand { kind: NameKind::Fixed(64), ..demand() };
        for (short, long) in all(&demand()).into_iter().zip(all(&long)) {
            let keeps_names = ["cuckoo", "sorted", "cfw"].contains(&short.design);
            assert_eq!(short.bits < long.bits, keeps_names, "{}", short.design);
        }
    }

    #[test]
    fn figures_of_any_demand_are_numbers() {
        let kinds = [NameKind::Mac, NameKind::Ipv6, NameKind::FiveTuple, NameKind::Text, NameKind::Fixed(1)];
        for kind in kinds {
            for n in [0, 1, 1000, 1 << 36] {
                for n_actions in [1, 2, 300, 65_535] {
                    for fp in [0.0, 1e-9, 0.01, 0.999] {
                        let demand = Demand::new(kind, n, n_actions, fp);
                        for row in all(&demand) {
                            let numbers = [
                                row.bits,
                                row.fast_bits,
                                row.lines,
                                row.lines_alien,
                                row.hashes,
                                row.hashes_alien,
                                row.fp,
                                row.cr,
                            ];
                            assert!(numbers.iter().all(|x| x.is_finite() && *x >= 0.0), "{demand:?}: {row:?}");
                            assert!(row.bits > 0.0 && row.fp <= 1.0 && row.cr <= 1.0, "{demand:?}: {row:?}");
                            assert!(row.fast_bits <= row.bits * 1.000_001);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_papers_ranking_comes_out() {
        // Section V.D: without aliens to mind, OFW with no fingerprint takes least of the three; at 0.1 % CFW does.
        let bits = |fp: f64, design: &str| of(&Demand { fp, ..demand() }, design).bits;
        assert!(bits(0.01, "concise") < bits(0.01, "cfw").min(bits(0.01, "bfw")));
        assert!(bits(0.001, "cfw") < bits(0.001, "ofw").min(bits(0.001, "bfw")));
        assert!(of(&demand(), "bfw").lines > 8.0 * of(&demand(), "ofw").lines);
    }
}

//! Every design for one demand: its parameters chosen, and what it then costs.
//!
//! Memory is stated twice. [`Figures::bits`] is as in the papers' equations, before rounding. [`Figures::built_bits`]
//! is as in the structures of `lookup`: cells do not straddle words, slots are whole words (16 or 32 bits in a
//! Filtable), and an Othello has 2.42 cells per name. `fibula fib compare --measure` checks the latter against built
//! tables. Fingerprints are those with which the designs are built for the demand's rate. Two things are ours. Bloom forwarders have an
//! exact table of the names that their filters get wrong, counted in their memory and lines. Value 0 means drop, so
//! `d` actions are `d + 1` values.

pub use super::demand::Demand;
use super::lines::expected_lines;
use super::{Bfw, Cfw, Cuckoo, Ofw, Symbols, mcq};
use crate::designs::{self, Design, NameLayout, Spec};
use lookup::bloom_fib;
use lookup::hash::{Family, SecretKey};
use lookup::line::Trade;

/// Bits of a slot of the exact table of a Bloom forwarder: a digest and a word for the value.
const EXCEPTION_BITS: f64 = 128.0;
/// Slots of the smallest, and room in it as a multiple of the names.
const LEAST_SLOTS: f64 = 16.0;
const EXCEPTION_ROOM: f64 = 1.25;
/// Filters that stand for all where there are more.
const SAMPLED_FILTERS: u32 = 256;
/// Lines of a lookup in it: two buckets of four slots.
const EXCEPTION_LINES: f64 = 2.0;
/// Bits of a word.
const WORD: u32 = 64;
/// Bits per name and hash functions of Summary Cache, as its paper recommends.
const SUMMARY: (f64, u32) = (16.0, 4);
/// Cells per name of a sharded Othello: 2.40, plus the rounding of shards to words and lines.
const OTHELLO_CELLS: f64 = 2.42;
/// Share of the names in a line table whose lookup reads the lines of a second bucket, by how full the buckets are.
const fn line_bumped(trade: Trade) -> f64 {
    match trade {
        Trade::Fast => 0.007,
        Trade::Balanced => 0.02,
        Trade::Small => 0.04,
    }
}

/// Bits of a cell of OGW, and its slots per name: see `lookup::othello::gateway`.
const OGW: (u32, f64) = (16, 1.14);
/// Most counters of 64 bits that readers check. There is one per bucket, rounded up to a power of two; they matter
/// where names are few.
const MAX_COUNTERS: f64 = 8192.0;
/// Bits of the fields of a five-tuple, which Tuple Space Search compares, and of a slot that holds them.
const TSS_BITS: (u32, f64) = (104, 192.0);

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

/// All designs for a demand, in the order of [`DESIGNS`](crate::designs::DESIGNS).
pub fn all(demand: &Demand) -> Vec<Figures> {
    let mut rows = vec![
        concise(demand),
        line(demand, "line", Trade::Balanced),
        line(demand, "line-fast", Trade::Fast),
        line(demand, "line-small", Trade::Small),
        ofw(demand, fingerprint_bits(demand, &designs::OFW)),
        ogw(demand),
        cfw(demand, fingerprint_bits(demand, &designs::CFW)),
        cuckoo(demand),
        bfw(demand),
        buffalo(demand),
        summary_cache(demand),
        bgw(demand),
        bloomier(demand),
        setsep(demand),
        sorted(demand),
        orthogonal(demand),
        tss(demand),
        with_checksums(demand, &designs::CONCISE_CHECKSUM, concise),
        with_checksums(demand, &designs::LINE_CHECKSUM, |wide| line(wide, "line", Trade::Balanced)),
        with_checksums(demand, &designs::LINE_FAST_CHECKSUM, |wide| line(wide, "line-fast", Trade::Fast)),
        with_checksums(demand, &designs::LINE_SMALL_CHECKSUM, |wide| line(wide, "line-small", Trade::Small)),
        with_checksums(demand, &designs::BLOOMIER_CHECKSUM, bloomier),
        with_checksums(demand, &designs::SETSEP_CHECKSUM, setsep),
        behind_bloom(demand, &designs::CONCISE_BLOOM, concise(demand)),
        behind_bloom(demand, &designs::LINE_BLOOM, line(demand, "line", Trade::Balanced)),
        behind_bloom(demand, &designs::LINE_FAST_BLOOM, line(demand, "line-fast", Trade::Fast)),
        behind_bloom(demand, &designs::LINE_SMALL_BLOOM, line(demand, "line-small", Trade::Small)),
        behind_bloom(demand, &designs::OFW_BLOOM, ofw(demand, suited(demand, &designs::OFW))),
        behind_bloom(demand, &designs::CFW_BLOOM, cfw(demand, suited(demand, &designs::CFW))),
        behind_bloom(demand, &designs::SUMMARY_BLOOM, summary_cache(demand)),
        behind_bloom(demand, &designs::BLOOMIER_BLOOM, bloomier(demand)),
        behind_bloom(demand, &designs::SETSEP_BLOOM, setsep(demand)),
    ];
    for row in &mut rows {
        row.holds = Design::by_name(row.design).is_ok_and(|design| spec(demand, design).holds);
    }
    rows
}

/// A design as it is built for a demand.
struct Built {
    spec: Spec,
    /// Whether the demand's rate holds.
    holds: bool,
}

/// How a design is built for the demand's rate; where it cannot hold it, with the longest fingerprint.
fn spec(demand: &Demand, design: &'static Design) -> Built {
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

/// Bits of the fingerprint for which a design is built, for a demand.
fn fingerprint_bits(demand: &Demand, design: &'static Design) -> u32 {
    spec(demand, design).spec.fingerprint_bits.into()
}

/// Bits of the fingerprint that suits the values, whatever the rate.
fn suited(demand: &Demand, design: &'static Design) -> u32 {
    (design.fingerprint_bits)(demand.value_bits as u8).into()
}

/// Bits that a cell of `cell` bits takes, given that cells do not straddle words.
fn in_words(cell: u32) -> f64 {
    f64::from(WORD) / f64::from((WORD / cell).max(1))
}

fn of_othello(design: &'static str, parameters: String, o: &Ofw) -> Figures {
    let name = o.s.name_lines();
    Figures {
        design,
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

fn concise(demand: &Demand) -> Figures {
    of_othello("concise", format!("l={}", demand.value_bits), &Ofw::unrounded(demand.symbols(), 0))
}

/// Buckets of which a lookup reads one, and sometimes a second.
fn line(demand: &Demand, design: &'static str, trade: Trade) -> Figures {
    let bits = demand.n_names.max(1) as f64 * trade.bits_a_name(demand.value_bits as u8);
    // The cells lie in equal parts of the bucket, the head beside the first. Of a name in another bucket the head says so.
    let lines = Trade::lines(demand.value_bits as u8).min(trade.cells_a_name().into());
    let lines = f64::from(lines) + line_bumped(trade);
    let hashes = 1.0 + f64::from(trade.cells_a_name());
    let parameters = format!("l={}, {} cells", demand.value_bits, trade.cells_a_name());
    Figures { updates: Updates::Cells, ..of_map(design, parameters, bits, lines, hashes) }
}

fn ofw(demand: &Demand, l_f: u32) -> Figures {
    of_othello("ofw", format!("l_f={l_f}"), &Ofw::unrounded(demand.symbols(), l_f))
}

/// An Othello from a name to its slot, and the slots.
fn ogw(demand: &Demand) -> Figures {
    let s = demand.symbols();
    let (cell, slots) = OGW;
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
        ..of_othello("ogw", String::new(), &index)
    }
}

/// Bits of a slot of an exact table: the words of a name, plus one where the value does not fit behind it.
fn slot_bits(demand: &Demand, value_bits: u32) -> f64 {
    let layout = NameLayout::of(demand.kind);
    let words = layout.width as u32;
    let last = (8 * u32::from(layout.bytes)).saturating_sub(WORD * (words - 1));
    f64::from(WORD * if last + value_bits <= WORD { words } else { words + 1 })
}

/// Slots of 16 or 32 bits.
fn cfw(demand: &Demand, l_f: u32) -> Figures {
    let slot = if demand.value_bits + l_f <= 16 { 16.0 } else { 32.0 };
    let c = Cfw { s: demand.symbols(), l_f };
    let (first, second) = (c.e_eta() * c.s.n_k, (1.0 - c.e_eta()) * c.s.n_k);
    let slots = (first * slot + second * EXCEPTION_BITS) * c.s.e_l();
    let name = c.s.name_lines();
    Figures {
        design: "cfw",
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
fn counters(s: &Symbols, n_names: f64) -> f64 {
    let buckets = (n_names * s.e_l() / f64::from(s.n_s)).ceil().max(1.0);
    f64::from(WORD) * buckets.log2().ceil().exp2().min(MAX_COUNTERS)
}

fn cuckoo(demand: &Demand) -> Figures {
    let slot = slot_bits(demand, demand.value_bits);
    Figures { design: "cuckoo", ..of_cuckoo("(2,4)".into(), demand.symbols(), slot) }
}

/// A cuckoo table whose slots are built with `slot` bits.
fn of_cuckoo(parameters: String, s: Symbols, slot: f64) -> Figures {
    let c = Cuckoo { s };
    let name = s.name_lines();
    Figures {
        design: "cuckoo",
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

/// Filters queried in turn, and the exact table, which every lookup reads.
fn of_filters(demand: &Demand, design: &'static Design, parameters: String, b: &Bfw) -> Figures {
    let settings = designs::filters(&spec(demand, design).spec);
    of_built_filters(demand, design, &settings, parameters, b)
}

/// The same, given how they are built.
fn of_built_filters(
    demand: &Demand,
    design: &'static Design,
    settings: &bloom_fib::Settings,
    parameters: String,
    b: &Bfw,
) -> Figures {
    let name = b.s.name_lines();
    let exceptions = b.cr() * b.s.n_k * b.s.e_l() * EXCEPTION_BITS;
    let built = built_filters(demand, settings);
    let filters = if settings.policy.has_counters() { b.memory() } else { b.fast_memory() };
    Figures {
        design: design.name,
        parameters,
        l_f: 0,
        bits: filters + exceptions,
        built_bits: built.bits,
        fast_bits: b.fast_memory() + exceptions,
        lines: b.c_m() - name + EXCEPTION_LINES,
        lines_alien: b.c_m_alien() - name + EXCEPTION_LINES,
        hashes: b.c_h() + EXCEPTION_LINES,
        hashes_alien: b.c_h_alien() + EXCEPTION_LINES,
        fp: built.fp,
        holds: false,
        cr: Some(built.cr),
        updates: Updates::Cells,
    }
}

/// Filters and exact table as they are built.
struct BuiltFilters {
    bits: f64,
    /// Share of aliens that get an action from a new table.
    fp: f64,
    /// Share of names in the exact table.
    cr: f64,
}

/// What is built for names that choose their ports at random. A filter begins at a line and has room for the names that
/// fit one, so with few names a port it has more bits than they need, and fewer false positives.
fn built_filters(demand: &Demand, settings: &bloom_fib::Settings) -> BuiltFilters {
    let (n, d) = (demand.n_names.max(1) as f64, demand.n_actions.max(1));
    // There are filters up to the next power of two of ports, as far as values go. Ports are alike: where there are
    // many, some stand for all.
    let n_filters = d.next_power_of_two().min((1 << demand.value_bits) - 1).max(d);
    let (used, times) = match n_filters {
        ..=SAMPLED_FILTERS => (d, 1.0),
        _ => {
            let times = f64::from(n_filters) / f64::from(SAMPLED_FILTERS);
            ((f64::from(d) / times).round() as u32, times)
        }
    };
    let n_of: Vec<u64> = std::iter::once(0).chain(at_random(n / f64::from(d), used)).collect();
    let sample = bloom_fib::expected(settings, &n_of);
    let ln_none = sample.ln_none * times;
    // The filters before a name's own are any share of all.
    let cr = match times > 1.0 {
        false => sample.n_exceptions / n_of.iter().sum::<u64>().max(1) as f64,
        true if ln_none > -1e-9 => 0.0,
        true => 1.0 - ln_none.exp_m1() / ln_none,
    };
    let filters = sample.bits as f64 * times;
    let s = demand.symbols();
    let spare = cr * n * EXCEPTION_ROOM;
    let slots = (spare * s.e_l()).max(LEAST_SLOTS);
    BuiltFilters { bits: filters + slots * EXCEPTION_BITS + counters(&s, spare), fp: -ln_none.exp_m1(), cr }
}

/// Names of `n_ports` ports that each have `mean` on average, if chance distributes them: quantiles of a Poisson
/// distribution, and just the mean where that is nearly the same.
fn at_random(mean: f64, n_ports: u32) -> Vec<u64> {
    if mean > 1000.0 {
        return vec![mean.ceil() as u64; n_ports as usize];
    }
    let (mut names, mut share) = (0u64, (-mean).exp());
    let mut sum = share;
    let quantile = |port: u32| {
        let wanted = (f64::from(port) + 0.5) / f64::from(n_ports);
        while sum < wanted && (names as f64) < 3.0 * mean + 50.0 {
            names += 1;
            share *= mean / names as f64;
            sum += share;
        }
        names
    };
    (0..n_ports).map(quantile).collect()
}

/// Half-full filters with `l` functions and counters.
fn half_full(demand: &Demand, design: &'static Design) -> Figures {
    let l = fingerprint_bits(demand, design);
    let b = Bfw { s: demand.symbols(), l, p: 0.5 };
    Figures { l_f: l, ..of_filters(demand, design, format!("l={l}"), &b) }
}

/// As many functions as the design is built with.
fn bfw(demand: &Demand) -> Figures {
    half_full(demand, &designs::BFW)
}

/// Whole names in a cuckoo table, which says whether a name is valid, and behind it BFW.
fn bgw(demand: &Demand) -> Figures {
    let filters = half_full(demand, &designs::BGW);
    let names = of_cuckoo(String::new(), Symbols { l_p: 1, ..demand.symbols() }, slot_bits(demand, 1));
    Figures {
        design: "bgw",
        bits: names.bits + filters.bits,
        built_bits: names.built_bits + filters.built_bits,
        fast_bits: names.fast_bits + filters.fast_bits,
        lines: names.lines + filters.lines,
        lines_alien: names.lines_alien,
        hashes: names.hashes + filters.hashes,
        hashes_alien: names.hashes_alien,
        fp: 0.0,
        ..filters
    }
}

/// Filters of rate 2^-b, with at most eight functions and no counters. `lookup` queries them in turn, as in BFW.
fn buffalo(demand: &Demand) -> Figures {
    let b = fingerprint_bits(demand, &designs::BUFFALO);
    let l = b.min(mcq::K_MAX);
    let filters = Bfw::with_rate(demand.symbols(), l, 0.5f64.powi(b as i32));
    Figures { l_f: b, ..of_filters(demand, &designs::BUFFALO, format!("k={l}, f=2^-{b}"), &filters) }
}

fn summary_cache(demand: &Demand) -> Figures {
    let (bits_a_name, l) = SUMMARY;
    let b = Bfw { s: demand.symbols(), l, p: (-f64::from(l) / bits_a_name).exp() };
    of_filters(demand, &designs::SUMMARY_CACHE, format!("k={l}"), &b)
}

/// What static maps share: no alien is recognised.
fn of_map(design: &'static str, parameters: String, bits: f64, lines: f64, hashes: f64) -> Figures {
    Figures {
        design,
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

fn bloomier(demand: &Demand) -> Figures {
    let bits = |cell: f64| mcq::bloomier_bits(demand.n_names.max(1), 1) * cell;
    let built_bits = bits(in_words(demand.value_bits));
    Figures { built_bits, ..of_map("bloomier", "1.23".into(), bits(demand.value_bits.into()), 3.0, 3.0) }
}

fn setsep(demand: &Demand) -> Figures {
    let l = demand.value_bits;
    let record = expected_lines(24 * u64::from(l), demand.symbols().l_c);
    let bits = mcq::setsep_bits(demand.n_names.max(1), l);
    of_map("setsep", format!("l={l}"), bits, 1.0 + record, mcq::setsep_calls(l).0.into())
}

/// Exact, so no alien passes; a name is found in the last line that is read.
fn sorted(demand: &Demand) -> Figures {
    let s = demand.symbols();
    let (n, entry) = (demand.n_names.max(1), s.l_k + s.l_p);
    let lines = mcq::sorted_lines(n, entry, s.l_c) as f64;
    let name = f64::from(WORD) * NameLayout::of(demand.kind).width as f64;
    let built_bits = s.n_k * (name + in_words(s.l_p));
    Figures { fp: 0.0, built_bits, ..of_map("sorted", "exact".into(), n as f64 * f64::from(entry), lines, 0.0) }
}

/// One filter per bit of the value, of the names that have it; an exact table holds the names that come out wrong.
fn orthogonal(demand: &Demand) -> Figures {
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
        ..of_map("obf", format!("k={}", filter.l), bits, valid + exact, valid)
    }
}

/// Names as exact rules: one tuple, and so one cuckoo table, over the fields of a five-tuple if the names fit them.
fn tss(demand: &Demand) -> Figures {
    if !designs::fits_fields(demand.kind) {
        return Figures { design: "tss", parameters: "1 tuple".into(), ..cuckoo(demand) };
    }
    let (fields, slot) = TSS_BITS;
    let s = Symbols { l_k: fields, ..demand.symbols() };
    Figures { design: "tss", ..of_cuckoo("1 tuple".into(), s, slot) }
}

/// A design with checksums beside its actions: the same with wider values.
fn with_checksums(demand: &Demand, design: &'static Design, row: impl Fn(&Demand) -> Figures) -> Figures {
    let r = fingerprint_bits(demand, design);
    let row = row(&Demand { value_bits: demand.value_bits + r, ..*demand });
    let parameters = format!("r={r}");
    Figures { design: design.name, parameters, l_f: r, fp: (-f64::from(r)).exp2(), ..row }
}

/// A design behind a filter of all names, as of one port. A valid name costs both; an alien that is rejected, two
/// positions or so.
fn behind_bloom(demand: &Demand, design: &'static Design, row: Figures) -> Figures {
    let built = spec(demand, design).spec;
    let one = Demand { n_actions: 1, value_bits: 1, ..*demand };
    let b = u32::from(built.fingerprint_bits);
    let rates = Bfw::with_rate(one.symbols(), b.min(mcq::K_MAX), (-f64::from(b)).exp2());
    let filter = of_built_filters(&one, design, &designs::front(&built), format!("b={b}"), &rates);
    Figures {
        l_f: b,
        bits: filter.bits + row.bits,
        built_bits: filter.built_bits + row.built_bits,
        fast_bits: filter.fast_bits + row.fast_bits,
        lines: filter.lines + row.lines,
        lines_alien: filter.lines_alien + filter.fp * row.lines_alien,
        hashes: filter.hashes + row.hashes,
        hashes_alien: filter.hashes_alien + filter.fp * row.hashes_alien,
        fp: filter.fp * row.fp,
        cr: row.cr,
        updates: row.updates,
        ..filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::{DESIGNS, Design, Spec};
    use crate::name::{Name, NameKind};
    use lookup::hash::{Family, SecretKey};

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
        // 2^-6 / 3 is enough, and a word has four cells of 13 bits as well as of 16; 10 bits in two buckets of 3.8 names
        // are 0.74 %.
        assert_eq!((of(&demand(), "ofw").l_f, of(&demand(), "cfw").l_f), (10, 10));
        assert_eq!(of(&Demand { fp: 0.001, ..demand() }, "cfw").l_f, 24, "slots of 32 bits");
    }

    #[test]
    fn every_design_has_a_row_that_it_can_be_built_with() {
        let names: Vec<_> = all(&demand()).iter().map(|row| row.design).collect();
        assert_eq!(names, DESIGNS.iter().map(|design| design.name).collect::<Vec<_>>());
        for n_actions in [1, 2, 32, 300, 5000, 65_535] {
            for fp in [0.0, 1e-6, 0.01, 0.5, 0.999] {
                let demand = Demand::new(NameKind::Mac, 1000, n_actions, fp);
                for row in all(&demand) {
                    let design = Design::by_name(row.design).unwrap();
                    let key = SecretKey::from_seed(1);
                    let spec = Spec::new(design, demand.kind, Family::Wy, key, demand.value_bits as u8, 1000);
                    assert!(spec.with_fingerprint(row.l_f as u8).is_ok(), "{demand:?}: {row:?}");
                }
            }
        }
    }

    #[test]
    fn memory_does_not_depend_on_the_length_of_names_where_none_are_kept() {
        let long = Demand { kind: NameKind::Fixed(64), ..demand() };
        for (short, long) in all(&demand()).into_iter().zip(all(&long)) {
            let keeps_names = ["ogw", "cuckoo", "bgw", "sorted", "tss"].contains(&short.design);
            assert_eq!(short.built_bits < long.built_bits, keeps_names, "{}", short.design);
        }
    }

    /// With thousands of ports a filter has a few names, and more bits than they need.
    #[test]
    fn filters_have_the_size_that_is_computed_however_many_ports_there_are() {
        for (n, n_actions) in [(1000, 32), (50_000, 8), (20_000, 300), (8000, 3000)] {
            let demand = Demand { kind: NameKind::Ipv4, ..Demand::new(NameKind::Ipv4, n, n_actions, 0.01) };
            for design in [&designs::BFW, &designs::BUFFALO, &designs::SUMMARY_CACHE] {
                let row = of(&demand, design.name);
                let spec = spec(&demand, design).spec;
                let names: Vec<_> =
                    (0..n as u32).map(|i| Name::from_bytes(NameKind::Ipv4, &i.to_be_bytes()).unwrap()).collect();
                let keys = designs::keys(&spec.hasher(), names.iter());
                let value = |digest: u64| 1 + ((u128::from(digest) * u128::from(n_actions)) >> 64) as u16;
                let entries: Vec<_> =
                    keys.into_iter().map(|key| (key, value(lookup::hash::mix64(key.digest.0)))).collect();
                let built = spec.build(&entries, 1).unwrap().size_bits() as f64;
                let (computed, built) = (row.built_bits / n as f64, built / n as f64);
                println!("{}, {n} names, {n_actions} ports: {computed:.1} computed, {built:.1} built", design.name);
                assert!(
                    (0.9..1.1).contains(&(built / computed)),
                    "{}: {computed} computed, {built} built",
                    design.name
                );
            }
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
                                row.built_bits,
                                row.fast_bits,
                                row.lines,
                                row.lines_alien,
                                row.hashes,
                                row.hashes_alien,
                                row.fp,
                                row.cr.unwrap_or(0.0),
                            ];
                            assert!(numbers.iter().all(|x| x.is_finite() && *x >= 0.0), "{demand:?}: {row:?}");
                            assert!(
                                row.bits > 0.0 && row.fp <= 1.0 && row.cr.is_none_or(|cr| cr <= 1.0),
                                "{demand:?}: {row:?}"
                            );
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

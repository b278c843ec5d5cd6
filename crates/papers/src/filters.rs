//! What the filters of a Bloom forwarder cost, with the exact table of the names that they get wrong.

use fib::designs::Spec;
use fib::model::Bfw;
use fib::model::designs::{Demand, EXCEPTION_BITS, Figures, Updates, counters};
use lookup::bloom_fib;

/// Slots of the smallest exact table, and room in it as a multiple of the names.
const LEAST_SLOTS: f64 = 16.0;
const EXCEPTION_ROOM: f64 = 1.25;
/// Filters that stand for all where there are more.
const SAMPLED_FILTERS: u32 = 256;
/// Lines of a lookup in the exact table: two buckets of four slots.
const EXCEPTION_LINES: f64 = 2.0;

/// Filters queried in turn, and the exact table, which every lookup reads, given how they are built.
pub(crate) fn of_filters(
    spec: &Spec,
    demand: &Demand,
    settings: &bloom_fib::Settings,
    parameters: String,
    b: &Bfw,
) -> Figures {
    let name = b.s.name_lines();
    let exceptions = b.cr() * b.s.n_k * b.s.e_l() * EXCEPTION_BITS;
    let built = built_filters(demand, settings);
    let filters = if settings.policy.has_counters() { b.memory() } else { b.fast_memory() };
    Figures {
        design: spec.design.name,
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

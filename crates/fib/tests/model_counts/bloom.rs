//! BFW: d filters with l hash functions each, queried in turn; the first that says yes gives the port.

use std::collections::HashMap;

use fibula_fib::model::{Bfw, Symbols};
use lookup::testkit::Rng;

use super::{Counts, Measured, costs_hold, holds, measure, names, seed};

struct Filters {
    /// Bits of each filter.
    filters: Vec<Vec<bool>>,
    l: u64,
    counts: Counts,
}

impl Filters {
    /// Name `i` goes to port `i mod d`.
    fn build(names: &[u64], d: u32, l: u32, bits: usize) -> Self {
        let mut filters = vec![vec![false; bits]; d as usize];
        for (at, &name) in names.iter().enumerate() {
            let port = at % d as usize;
            for i in 0..l {
                let bit = super::hash(name, port as u64 * 64 + u64::from(i), bits as u64);
                filters[port][bit as usize] = true;
            }
        }
        Self { filters, l: l.into(), counts: Counts::default() }
    }

    fn says_yes(&self, port: usize, name: u64) -> bool {
        let filter = &self.filters[port];
        (0..self.l).all(|i| {
            let bit = self.counts.hash(name, port as u64 * 64 + i, filter.len() as u64);
            self.counts.read(1);
            filter[bit as usize]
        })
    }

    fn lookup(&self, name: u64) -> Option<usize> {
        (0..self.filters.len()).find(|&port| self.says_yes(port, name))
    }
}

fn check(d: u32, l: u32, p: f64) {
    const INSTANCES: usize = 24;
    let n_k = 500 * d as usize;
    let mut model = Bfw { s: Symbols { n_k: n_k as f64, d, ..Symbols::default() }, l, p };
    let bits = (model.m() / f64::from(d)).round() as usize;
    // The share of zeros with whole bits and 500 names per filter.
    model.p = (f64::from(l * 500) * (-1.0f64 / bits as f64).ln_1p()).exp();
    let mut rng = Rng::new(seed());
    let (mut valid, mut aliens) = (Vec::<Measured>::new(), Vec::<Measured>::new());
    let mut multi = Vec::new();
    for _ in 0..INSTANCES {
        let (live, others) = names(&mut rng, n_k, 20_000);
        let filters = Filters::build(&live, d, l, bits);
        let ports: HashMap<u64, usize> = live.iter().enumerate().map(|(at, &name)| (name, at % d as usize)).collect();
        let counts = &filters.counts;
        valid.push(measure(&live, 1.0, counts, |name| filters.lookup(name) != Some(ports[&name])));
        aliens.push(measure(&others, 1.0, counts, |name| filters.lookup(name).is_some()));
        let others_too = |name: u64| (0..d as usize).any(|port| port != ports[&name] && filters.says_yes(port, name));
        multi.push(measure(&live, 1.0, counts, others_too).wrong);
    }
    let what = format!("BFW, d = {d}, l = {l}, p = {:.3}", model.p);
    costs_hold(&format!("{what}, names"), &valid, model.c_h(), model.c_m());
    costs_hold(&format!("{what}, aliens"), &aliens, model.c_h_alien(), model.c_m_alien());
    holds(&format!("{what}, FP"), aliens.iter().map(|one| one.wrong), model.fp());
    holds(&format!("{what}, CR"), valid.iter().map(|one| one.wrong), model.cr());
    holds(&format!("{what}, multi-matches"), multi.into_iter(), model.multi_matches());
}

#[test]
fn filters_half_full_cost_what_equations_1_2_and_7_say() {
    check(32, 7, 0.5);
}

#[test]
fn filters_with_few_or_many_zeros_do_too() {
    check(8, 3, 0.4);
    check(16, 8, 0.75);
}

//! OFW: two arrays of cells, emptiness bits checked before anything else, lines counted as the cells lie in them.

use fibula_fib::model::{Ofw, Symbols};
use lookup::testkit::Rng;

use super::{Counts, Measured, costs_hold, hash, holds, measure, names, seed};

struct Cells {
    /// Value and fingerprint, and whether a name uses the cell.
    sides: [Vec<(u64, bool)>; 2],
    seed: u64,
    model: Ofw,
    counts: Counts,
}

impl Cells {
    /// Tries pairs of functions until the graph has no cycle, then colours it.
    fn build(names: &[(u64, u64)], model: Ofw) -> Self {
        let sizes = [model.m_a as u64, model.m_b as u64];
        let n_cells = (sizes[0] + sizes[1]) as usize;
        let real = model.l_f.saturating_sub(1);
        'seeds: for seed in 0.. {
            let mut parent: Vec<u32> = (0..n_cells as u32).collect();
            let mut edges = vec![Vec::new(); n_cells];
            for &(name, value) in names {
                let u = hash(name, 3 * seed, sizes[0]) as u32;
                let v = (sizes[0] + hash(name, 3 * seed + 1, sizes[1])) as u32;
                let (a, b) = (root(&mut parent, u), root(&mut parent, v));
                if a == b {
                    continue 'seeds;
                }
                parent[a as usize] = b;
                let content = value << real | hash(name, 3 * seed + 2, 1 << real);
                edges[u as usize].push((v, content));
                edges[v as usize].push((u, content));
            }
            let mut cells = vec![(0, false); n_cells];
            for start in 0..n_cells {
                let mut open = if cells[start].1 || edges[start].is_empty() { vec![] } else { vec![start] };
                open.iter().for_each(|&cell| cells[cell].1 = true);
                while let Some(cell) = open.pop() {
                    for &(next, content) in &edges[cell] {
                        if !cells[next as usize].1 {
                            cells[next as usize] = (cells[cell].0 ^ content, true);
                            open.push(next as usize);
                        }
                    }
                }
            }
            let second = cells.split_off(sizes[0] as usize);
            return Self { sides: [cells, second], seed, model, counts: Counts::default() };
        }
        unreachable!("one try in two succeeds");
    }

    /// Reads the cell of a name, and the lines that it lies in.
    fn cell(&self, side: usize, name: u64) -> (u64, bool) {
        let cells = &self.sides[side];
        let at = self.counts.hash(name, 3 * self.seed + side as u64, cells.len() as u64);
        let (len, l_c) = (u64::from(self.model.s.l_p + self.model.l_f), self.model.s.l_c);
        self.counts.read((at * len + len - 1) / l_c - at * len / l_c + 1);
        cells[at as usize]
    }

    fn lookup(&self, name: u64) -> Option<u64> {
        let tells_empty = self.model.l_f > 0;
        let a = self.cell(0, name);
        if tells_empty && !a.1 {
            return None;
        }
        let b = self.cell(1, name);
        if tells_empty && !b.1 {
            return None;
        }
        let real = self.model.l_f.saturating_sub(1);
        let content = a.0 ^ b.0;
        if real > 0 && content & ((1 << real) - 1) != self.counts.hash(name, 3 * self.seed + 2, 1 << real) {
            return None;
        }
        Some(content >> real)
    }
}

fn root(parent: &mut [u32], mut cell: u32) -> u32 {
    while parent[cell as usize] != cell {
        parent[cell as usize] = parent[parent[cell as usize] as usize];
        cell = parent[cell as usize];
    }
    cell
}

fn check(what: &str, model: Ofw) {
    const INSTANCES: usize = 24;
    let mut rng = Rng::new(seed());
    let (mut valid, mut aliens) = (Vec::<Measured>::new(), Vec::<Measured>::new());
    let mut empty = [Vec::new(), Vec::new()];
    for _ in 0..INSTANCES {
        let (live, others) = names(&mut rng, model.s.n_k as usize, 20_000);
        let entries: Vec<(u64, u64)> = live.iter().map(|&name| (name, name % (1 << model.s.l_p))).collect();
        let cells = Cells::build(&entries, model);
        let counts = &cells.counts;
        valid.push(measure(&live, 1.0, counts, |name| cells.lookup(name) != Some(name % (1 << model.s.l_p))));
        aliens.push(measure(&others, 1.0, counts, |name| cells.lookup(name).is_some()));
        for (empty, side) in empty.iter_mut().zip(&cells.sides) {
            empty.push(side.iter().filter(|cell| !cell.1).count() as f64 / side.len() as f64);
        }
    }
    assert!(valid.iter().all(|one| one.wrong == 0.0), "CR^o = 0");
    costs_hold(&format!("{what}, names"), &valid, model.c_h(), model.c_m());
    costs_hold(&format!("{what}, aliens"), &aliens, model.c_h_alien(), model.c_m_alien());
    holds(&format!("{what}, FP"), aliens.iter().map(|one| one.wrong), model.fp());
    let [a, b] = empty;
    holds(&format!("{what}, epsilon_a"), a.into_iter(), model.epsilon_a());
    holds(&format!("{what}, epsilon_b"), b.into_iter(), model.epsilon_b());
}

#[test]
fn cells_before_rounding_cost_what_equations_5_6_and_9_say() {
    let s = Symbols { n_k: 20_000.0, l_p: 8, ..Symbols::default() };
    check("OFW, l_f = 5", Ofw::unrounded(s, 5));
    check("OFW, the emptiness bit alone", Ofw::unrounded(s, 1));
}

#[test]
fn powers_of_two_and_concise_do_too() {
    let s = Symbols { n_k: 16_384.0, l_p: 8, ..Symbols::default() };
    check("OFW, powers of two", Ofw::option_2(s, 4));
    check("Concise", Ofw::option_2(s, 0));
}

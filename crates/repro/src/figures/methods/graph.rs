//! Random bipartite graphs, as names form them: how often they are acyclic, how large their components are, and how
//! often one more name closes a cycle.

use lookup::hash::{Digest, Family, Hasher, SecretKey};
use lookup::othello::{Option2, Sharded, Sides, Sizing};
use serde::Deserialize;

use super::{Method, Progress, Setting};
use crate::BenchError;
use crate::figures::catalogue::from_text;
use crate::figures::{Point, Series};
use crate::names::{NameSet, Random};

pub(super) const METHODS: &[Method] = &[
    Method {
        name: "acyclic",
        about: "share of hash function pairs under which names give an acyclic graph: theory, digest, crc32c",
        check: |setting| acyclic::check(setting).map(drop),
        run: acyclic::run,
        toy: "side = 256\ntries = 300",
    },
    Method {
        name: "chi",
        about: "mean size of the component of a random vertex in acyclic graphs: bound, p1, p99, mean",
        check: |setting| chi::check(setting).map(drop),
        run: chi::run,
        toy: "graphs = 5\nn_min = 2000\nn_max = 4000",
    },
    Method {
        name: "cycles",
        about: "n times the probability that an added name closes a cycle: concise-option2, concise, and `full` for equal \
                sides of which each cell has so many names",
        check: |setting| cycles::check(setting).map(drop),
        run: cycles::run,
        toy: "n = 4000\ngraphs = 3",
    },
];

/// Refuses series that a method does not have.
fn known(setting: &Setting, contestants: &[&str]) -> Result<(), BenchError> {
    match setting.contestants().into_iter().find(|name| !contestants.contains(&&**name)) {
        None => Ok(()),
        Some(name) => Err(BenchError::UnknownContestant { name, known: contestants.join(", ") }),
    }
}

fn refused<T>(text: String) -> Result<T, BenchError> {
    Err(BenchError::Setting(text))
}

/// The vertices of a digest in a table with tweak 0: `0..a` and `a..a + b`; see `docs/formats/othello.md`.
fn endpoints(digest: u64, sides: Sides) -> (u32, u32) {
    let mixed = digest.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = mixed ^ (mixed >> 32);
    let reduced = |half: u64, n: u32| ((half * u64::from(n)) >> 32) as u32;
    (reduced(mixed >> 32, sides.a), sides.a + reduced(mixed & 0xFFFF_FFFF, sides.b))
}

/// Components of a graph under construction: union by size, with path halving.
struct Components {
    parent: Vec<u32>,
    /// Vertices of the component of a root, on the first side and on the second.
    sizes: Vec<[u32; 2]>,
}

impl Components {
    /// `sides.a` and then `sides.b` isolated vertices.
    fn new(sides: Sides) -> Self {
        let side = |vertex: u32| if vertex < sides.a { [1, 0] } else { [0, 1] };
        Self { parent: (0..sides.cells()).collect(), sizes: (0..sides.cells()).map(side).collect() }
    }

    fn root(&mut self, mut vertex: u32) -> u32 {
        while self.parent[vertex as usize] != vertex {
            let above = self.parent[self.parent[vertex as usize] as usize];
            self.parent[vertex as usize] = above;
            vertex = above;
        }
        vertex
    }

    /// Adds an edge; returns false, with nothing done, if it would close a cycle.
    fn join(&mut self, (u, v): (u32, u32)) -> bool {
        let (mut large, mut small) = (self.root(u), self.root(v));
        if large == small {
            return false;
        }
        let size = |sizes: [u32; 2]| sizes[0] + sizes[1];
        if size(self.sizes[large as usize]) < size(self.sizes[small as usize]) {
            std::mem::swap(&mut large, &mut small);
        }
        self.parent[small as usize] = large;
        for side in 0..2 {
            self.sizes[large as usize][side] += self.sizes[small as usize][side];
        }
        true
    }

    /// Sizes of all components, by side.
    fn all(&self) -> impl Iterator<Item = [f64; 2]> {
        let roots = (0..).zip(&self.parent).filter(|&(vertex, &parent): &(u32, _)| vertex == parent);
        roots.map(|(root, _)| self.sizes[root as usize].map(f64::from))
    }
}

/// A random graph of `n` edges; edges that would close a cycle are left out.
fn acyclic_graph(n: usize, sides: Sides, random: &mut Random) -> Components {
    let mut components = Components::new(sides);
    let mut n_edges = 0;
    while n_edges < n {
        n_edges += usize::from(components.join(endpoints(random.next_u64(), sides)));
    }
    components
}

/// Theorem 1.
mod acyclic {
    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Parameters {
        /// Names per vertex of a side.
        c: f64,
        /// Vertices of each side: a power of two.
        side: u32,
        #[serde(deserialize_with = "from_text")]
        names: NameSet,
        /// Pairs of hash functions.
        tries: u32,
    }

    pub(super) fn check(setting: &Setting) -> Result<Parameters, BenchError> {
        known(setting, &["theory", "digest", "crc32c"])?;
        let parameters: Parameters = setting.parameters()?;
        let Parameters { c, side, tries, .. } = parameters;
        if !(0.0..1.0).contains(&c) || !side.is_power_of_two() || side > 1 << 24 || tries == 0 {
            return refused(format!(
                "c is {c}, with {side} vertices a side and {tries} tries; use c from 0 to 1, a power of two, and at least 1"
            ));
        }
        Ok(parameters)
    }

    pub(super) fn run(setting: &Setting, _: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
        let Parameters { c, side, names, tries } = check(setting)?;
        let (sides, len) = (Sides { a: side, b: side }, names.name_len());
        let names = names.generate((c * f64::from(side)).round() as usize, setting.seed);
        let share = |is_acyclic: &mut dyn FnMut(u64) -> bool| {
            let hits = (0..tries).filter(|&attempt| is_acyclic(setting.seed.wrapping_add(attempt.into()))).count();
            hits as f64 / f64::from(tries)
        };
        let value = |series: &Series| match series.contestant() {
            "theory" => (1.0 - c * c).sqrt(),
            "digest" => share(&mut |seed| {
                let hasher = Hasher::new(Family::MulAdd, &SecretKey::from_seed(seed));
                let mut digests = vec![Digest(0); names.len()];
                hasher.digest_words(&names, len, &mut digests);
                let mut graph = Components::new(sides);
                digests.iter().all(|digest| graph.join(endpoints(digest.0, sides)))
            }),
            _ => share(&mut |seed| {
                let seeds = Random::new(seed).next_u64();
                let position = |seed: u32, name: &[u8]| crc32c::crc32c_append(seed, name) & (side - 1);
                let mut graph = Components::new(sides);
                names.iter().all(|name| {
                    let name = &name.to_le_bytes()[..len];
                    graph.join((position(seeds as u32, name), side + position((seeds >> 32) as u32, name)))
                })
            }),
        };
        Ok(setting.series.iter().map(|series| Point::exact(&series.name, None, value(series))).collect())
    }
}

/// The susceptibility.
mod chi {
    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Parameters {
        /// `n (m_a + m_b) / (2 m_a m_b)`; give this or `c`.
        p: Option<f64>,
        /// `n / sqrt(m_a m_b)`.
        c: Option<f64>,
        graphs: usize,
        /// Minimum number of names.
        n_min: u64,
        /// Maximum number of names.
        n_max: u64,
    }

    pub(super) fn check(setting: &Setting) -> Result<Parameters, BenchError> {
        known(setting, &["bound", "p1", "p99", "mean"])?;
        let parameters: Parameters = setting.parameters()?;
        let Parameters { p, c, graphs, n_min, n_max } = parameters;
        let density = p.xor(c).filter(|density| (0.01..1.0).contains(density));
        if density.is_none() || graphs == 0 || n_min < 100 || n_min > n_max || n_max > 1 << 24 {
            return refused("p or c from 0.01 to 1, at least one graph, from 100 to 16M names".into());
        }
        Ok(parameters)
    }

    pub(super) fn run(setting: &Setting, _: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
        let Parameters { p, c, graphs, n_min, n_max } = check(setting)?;
        let mut random = Random::new(setting.seed);
        let mut sizes: Vec<f64> = (0..graphs)
            .map(|_| {
                let mut unit = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                let n = n_min as f64 * (n_max as f64 / n_min as f64).powf(unit());
                // m_a / m_b, from 1/2 to 2.
                let ratio = 4f64.powf(unit() - 0.5);
                let b = match (p, c) {
                    (Some(p), _) => n * (ratio + 1.0) / (2.0 * ratio * p),
                    (_, c) => n / (c.unwrap_or(1.0) * ratio.sqrt()),
                };
                let sides = Sides { a: (ratio * b).round() as u32, b: b.round() as u32 };
                let graph = acyclic_graph(n as usize, sides, &mut random);
                graph.all().map(|[a, b]| (a + b) * (a + b)).sum::<f64>() / f64::from(sides.cells())
            })
            .collect();
        sizes.sort_by(f64::total_cmp);
        let last = graphs - 1;
        let value = |series: &Series| match series.contestant() {
            "bound" => 1.0 / (1.0 - p.or(c).unwrap_or(0.0)),
            "p1" => sizes[(0.01 * last as f64).floor() as usize],
            "p99" => sizes[(0.99 * last as f64).ceil() as usize],
            _ => sizes.iter().sum::<f64>() / graphs as f64,
        };
        Ok(setting.series.iter().map(|series| Point::exact(&series.name, None, value(series))).collect())
    }
}

/// Case I of an addition.
mod cycles {
    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Parameters {
        n: usize,
        graphs: usize,
        /// Names a cell of a side, of `full`.
        #[serde(default)]
        full: Option<f64>,
    }

    /// Equal sides with a given number of names a cell.
    const FULL: &str = "full";

    /// Names that a shard was solved with, and names that it holds: up to 1.14 times as many before it is solved again,
    /// and 1,500 to 3,000 names.
    const SHARD: (usize, usize) = (2100, 2240);
    /// Cells per word, with values of 8 bits.
    const CELLS_PER_WORD: u32 = 8;

    pub(super) fn check(setting: &Setting) -> Result<Parameters, BenchError> {
        known(setting, &["concise-option2", "concise", FULL])?;
        let parameters: Parameters = setting.parameters()?;
        let has_full = setting.contestants().iter().any(|name| name == FULL);
        if has_full != parameters.full.is_some() || parameters.full.is_some_and(|full| !(0.01..=0.95).contains(&full)) {
            return refused(format!(
                "full = {:?}: from 0.01 to 0.95 names a cell, for `{FULL}` alone",
                parameters.full
            ));
        }
        if !(100..1 << 26).contains(&parameters.n) || parameters.graphs == 0 {
            return refused(format!("n = {}: from 100 to 64M names, and at least one graph", parameters.n));
        }
        Ok(parameters)
    }

    pub(super) fn run(setting: &Setting, _: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
        let Parameters { n, graphs, full } = check(setting)?;
        let mut random = Random::new(setting.seed);
        let mut point = |series: &Series| {
            let (n, sides) = match series.contestant() {
                FULL => {
                    let cells = (n as f64 / full.unwrap_or(1.0)).round() as u32;
                    (n, Sides { a: cells, b: cells })
                }
                "concise" => (SHARD.1, Sharded::sides(SHARD.0, CELLS_PER_WORD, 0)),
                _ => (n, Option2::sides(n, CELLS_PER_WORD, 0)),
            };
            let cycle = |graph: Components| {
                let pairs: f64 = graph.all().map(|[a, b]| a * b).sum();
                n as f64 * pairs / f64::from(sides.a) / f64::from(sides.b)
            };
            let sum: f64 = (0..graphs).map(|_| cycle(acyclic_graph(n, sides, &mut random))).sum();
            Point::exact(&series.name, None, sum / graphs as f64)
        };
        Ok(setting.series.iter().map(&mut point).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Silent;
    use super::*;

    fn setting(contestants: &[&str], parameters: &str) -> Setting {
        super::super::tests::setting(contestants, parameters, lookup::testkit::seed())
    }

    #[test]
    fn components_are_counted_by_side_and_cycles_refused() {
        let mut graph = Components::new(Sides { a: 3, b: 3 });
        assert!(graph.join((0, 3)) && graph.join((1, 3)) && graph.join((1, 4)));
        assert!(!graph.join((0, 4)) && !graph.join((0, 3)));
        let mut all: Vec<[f64; 2]> = graph.all().collect();
        all.sort_by(|x, y| x.partial_cmp(y).unwrap());
        assert_eq!(all, [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]);
    }

    #[test]
    fn digests_give_acyclic_graphs_as_often_as_theory_says_and_crcs_never() {
        let setting =
            setting(&["theory", "digest", "crc32c"], "c = 0.75\nside = 1024\nnames = \"uniform\"\ntries = 2000");
        let points = acyclic::run(&setting, &mut Silent).unwrap();
        let (theory, digest) = (points[0].y, points[1].y);
        // Five standard deviations of 2000 tries.
        assert!((theory - 0.6614).abs() < 1e-3 && (digest - theory).abs() < 0.053, "{digest} of {theory}");
        assert_eq!(points[2].y, 0.0);
    }

    #[test]
    fn fuller_sides_close_cycles_as_often_as_theory_says() {
        // c^2 / (1 - c^2) with c names a cell.
        for (full, expected) in [(0.5, 0.333), (0.75, 1.286)] {
            let setting = setting(&["full"], &format!("n = 100000\ngraphs = 4\nfull = {full}"));
            let y = cycles::run(&setting, &mut Silent).unwrap()[0].y;
            assert!((y / expected - 1.0).abs() < 0.1, "{full}: {y}, {expected} in theory");
        }
        let empty = setting(&["full"], "n = 1000\ngraphs = 1");
        assert!(cycles::run(&empty, &mut Silent).is_err(), "how full is not said");
    }

    #[test]
    fn components_are_no_larger_than_the_bound() {
        for density in ["p = 0.5", "c = 0.5"] {
            let text = format!("{density}\ngraphs = 30\nn_min = 3000\nn_max = 9000");
            let points = chi::run(&setting(&["bound", "p1", "mean", "p99"], &text), &mut Silent).unwrap();
            let [bound, p1, mean, p99] = [0, 1, 2, 3].map(|at| points[at].y);
            assert!((bound - 2.0).abs() < 1e-12 && p1 <= mean && mean <= p99, "{points:?}");
            assert!((1.7..2.02).contains(&mean), "{density}: {mean}");
        }
    }

    #[test]
    fn a_cycle_is_as_likely_as_the_papers_say() {
        let setting = setting(&["concise-option2", "concise"], "n = 100000\ngraphs = 100");
        let points = cycles::run(&setting, &mut Silent).unwrap();
        assert!((0.3..1.5).contains(&points[0].y), "{points:?}");
        // Sides of 1.2 cells per name that hold up to 1.14 times as many names.
        assert!((1.5..4.0).contains(&points[1].y), "{points:?}");
    }
}

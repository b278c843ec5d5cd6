//! Generated topologies: for tests, and where no real one is available.
//!
//! | spec | what |
//! |---|---|
//! | `ring:N` | a ring of N nodes |
//! | `fat-tree:K` | a fat tree of switches with K ports, K even: K^2/4 cores, K pods of K/2 aggregation and K/2 edge switches |
//! | `random:N` | N points in a square, linked if near each other: a random geometric graph |
//!
//! Source of the fat tree: Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center Network Architecture". The
//! radius of the random graph is the one at which one in a hundred graphs of a thousand points has an isolated
//! point (Penrose, "Random Geometric Graphs"); parts that are still apart are joined by the shortest link.

use super::graph::{Edge, Graph, GraphError};
use lookup::hash::Rng;

/// Most nodes of a generated topology.
const MOST: usize = 65_535;

impl Graph {
    /// The topology of such a spec; `seed` matters for random graphs.
    /// # Errors
    /// [`GraphError::Generated`].
    pub fn generate(spec: &str, seed: u64) -> Result<Graph, GraphError> {
        let wrong = || GraphError::Generated { got: spec.chars().take(40).collect() };
        let (kind, size) = spec.split_once(':').ok_or_else(wrong)?;
        let size: usize = size.parse().map_err(|_| wrong())?;
        match kind {
            "ring" if (2..=MOST).contains(&size) => Ok(ring(size)),
            "fat-tree" if (2..=228).contains(&size) && size.is_multiple_of(2) => Ok(fat_tree(size)),
            "random" if (2..=MOST).contains(&size) => Ok(random_geometric(size, seed)),
            _ => Err(wrong()),
        }
    }
}

fn ring(n: usize) -> Graph {
    let n_edges = if n == 2 { 1 } else { n };
    let edges = (0..n_edges).map(|a| Edge { a, b: (a + 1) % n, cost: 1 }).collect();
    Graph { name: format!("ring:{n}"), nodes: (0..n).map(|i| format!("s{i}")).collect(), edges }
}

fn fat_tree(k: usize) -> Graph {
    let half = k / 2;
    let mut nodes: Vec<String> = (0..half * half).map(|i| format!("core{i}")).collect();
    let mut edges = Vec::new();
    for pod in 0..k {
        let first = nodes.len();
        nodes.extend((0..half).map(|i| format!("pod{pod}-aggregation{i}")));
        nodes.extend((0..half).map(|i| format!("pod{pod}-edge{i}")));
        for aggregation in 0..half {
            let a = first + aggregation;
            edges.extend((0..half).map(|i| Edge { a, b: aggregation * half + i, cost: 1 }));
            edges.extend((0..half).map(|i| Edge { a, b: first + half + i, cost: 1 }));
        }
    }
    Graph { name: format!("fat-tree:{k}"), nodes, edges }
}

fn random_geometric(n: usize, seed: u64) -> Graph {
    let mut rng = Rng::new(seed);
    // Positions on a grid of 2^20 steps, so that distances are whole numbers on every machine.
    let side = 1u64 << 20;
    let points: Vec<(i64, i64)> = (0..n).map(|_| (rng.below(side) as i64, rng.below(side) as i64)).collect();
    let square = |a: usize, b: usize| {
        let (dx, dy) = (points[a].0 - points[b].0, points[a].1 - points[b].1);
        (dx * dx + dy * dy) as u64
    };
    // A point has ln n + 4.6 neighbours: none with probability 0.01 / n.
    let neighbours = (n as f64).ln() + 4.6;
    let radius = (side as f64) * (neighbours / (std::f64::consts::PI * n as f64)).sqrt();
    let reach = (radius * radius) as u64;
    let cost = |square: u64| (square.isqrt() >> 10).max(1) as u32;
    let mut edges = Vec::new();
    for a in 0..n {
        for b in a + 1..n {
            if square(a, b) <= reach {
                edges.push(Edge { a, b, cost: cost(square(a, b)) });
            }
        }
    }
    let nodes = (0..n).map(|i| format!("s{i}")).collect();
    let mut graph = Graph { name: format!("random:{n}"), nodes, edges };
    loop {
        let reached = graph.reached();
        let (inside, outside): (Vec<usize>, Vec<usize>) = (0..n).partition(|node| reached[*node]);
        let pairs = outside.iter().flat_map(|b| inside.iter().map(move |a| (*a, *b)));
        let Some((a, b)) = pairs.min_by_key(|(a, b)| (square(*a, *b), *a, *b)) else { return graph };
        graph.edges.push(Edge { a, b, cost: cost(square(a, b)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::testkit;

    #[test]
    fn generated_topologies_are_connected_and_as_large_as_asked_for() {
        let seed = testkit::seed();
        for (spec, n_nodes, n_edges) in [
            ("ring:2", 2, Some(1)),
            ("ring:9", 9, Some(9)),
            ("fat-tree:2", 5, Some(4)),
            ("fat-tree:4", 20, Some(32)),
            ("fat-tree:8", 80, Some(256)),
            ("random:2", 2, Some(1)),
            ("random:50", 50, None),
            ("random:300", 300, None),
        ] {
            let graph = Graph::generate(spec, seed).unwrap();
            assert_eq!(graph.nodes.len(), n_nodes, "{spec}");
            assert!(n_edges.is_none_or(|n| n == graph.edges.len()), "{spec}: {} links", graph.edges.len());
            assert!(graph.reached().iter().all(|reached| *reached), "{spec} is in pieces");
            assert_eq!(Graph::parse(&graph.to_text()).as_ref(), Ok(&graph), "{spec}");
            assert_eq!(Graph::generate(spec, seed), Ok(graph), "{spec}");
        }
    }

    #[test]
    fn switches_of_a_fat_tree_have_the_ports_of_one() {
        let degrees = Graph::generate("fat-tree:6", 0).unwrap().degrees();
        assert_eq!(degrees.iter().filter(|degree| **degree == 6).count(), 9 + 18);
        assert_eq!(degrees.iter().filter(|degree| **degree == 3).count(), 18);
    }

    #[test]
    fn other_specs_are_refused() {
        for spec in [
            "",
            "ring",
            "ring:",
            "ring:1",
            "ring:70000",
            "fat-tree:3",
            "fat-tree:0",
            "fat-tree:230",
            "fat-tree:5000000000",
            "star:4",
            "random:-1",
        ] {
            assert!(matches!(Graph::generate(spec, 0), Err(GraphError::Generated { .. })), "{spec}");
        }
    }
}

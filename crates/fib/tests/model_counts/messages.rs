//! The trees on both sides of an edge of an Othello: what an update message lists.

use fibula_fib::model::messages::Messages;
use lookup::testkit::Rng;

use super::{hash, holds, seed};

/// Cells on the side of the first array, with the edge of `at` taken out.
fn side(edges: &[Vec<(u32, u32)>], start: u32, at: u32) -> usize {
    let (mut open, mut size) = (vec![(start, at)], 0);
    while let Some((cell, from)) = open.pop() {
        size += 1;
        open.extend(edges[cell as usize].iter().filter(|edge| edge.1 != from).map(|&(next, edge)| (next, edge)));
    }
    size
}

/// Random graphs of these loads have few cycles; a graph with one is drawn again, as an Othello would.
fn forest(rng: &mut Rng, n: u32, m: u32) -> Vec<Vec<(u32, u32)>> {
    'tries: loop {
        let mut edges = vec![Vec::new(); 2 * m as usize];
        let mut parent: Vec<u32> = (0..2 * m).collect();
        for edge in 0..n {
            let name = rng.next_u64();
            let (u, v) = (hash(name, 0, m.into()) as u32, m + hash(name, 1, m.into()) as u32);
            let root = |mut cell: u32| {
                while parent[cell as usize] != cell {
                    cell = parent[cell as usize];
                }
                cell
            };
            let (a, b) = (root(u), root(v));
            if a == b {
                continue 'tries;
            }
            parent[a as usize] = b;
            edges[u as usize].push((v, edge));
            edges[v as usize].push((u, edge));
        }
        return edges;
    }
}

#[test]
fn changes_recolour_trees_of_chi_cells() {
    let mut rng = Rng::new(seed());
    let m = 16_384;
    for n in [9_375, 10_938] {
        let model = Messages { n_k: n.into(), m: m.into(), l: 8 };
        let (mut mean, mut single) = (Vec::new(), Vec::new());
        for _ in 0..16 {
            let edges = forest(&mut rng, n, m);
            let sizes: Vec<usize> = (0..m)
                .flat_map(|cell| edges[cell as usize].iter().map(move |&e| (cell, e)))
                .map(|(cell, (_, edge))| side(&edges, cell, edge))
                .collect();
            mean.push(sizes.iter().sum::<usize>() as f64 / sizes.len() as f64);
            single.push(sizes.iter().filter(|&&size| size == 1).count() as f64 / sizes.len() as f64);
        }
        holds(&format!("Othello, {n} names in {m} cells a side, cells a change"), mean.into_iter(), model.chi());
        holds(&format!("Othello, {n} names in {m} cells a side, one cell"), single.into_iter(), model.tree(1));
    }
}

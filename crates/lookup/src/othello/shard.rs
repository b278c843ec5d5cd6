//! One shard of an Othello's control half: an acyclic bipartite graph whose edges are names.
//!
//! A vertex is a cell, an edge `(u, v)` a name whose value is `cell[u] ^ cell[v]`. The graph holds no cells: with
//! **canonical colouring** the vertex of smallest index of every component has colour 0, so colours are a pure
//! function of (graph, tombstones, values) and any number of colourings share one graph.
//!
//! Solving: cells are peeled from the highest index down, a leaf at a time, following a chain only upwards. Then the
//! last vertex left of every component is its smallest, so the reverse of the peel order is at once the proof that
//! the graph is acyclic and a colouring order that starts from canonical roots. One pass over two small arrays:
//! about 10 ns a name and try.
//!
//! Tries: at 2.40 cells a name a tweak succeeds with probability 0.55; after every 16 failures the shard grows by a
//! twentieth; after [`MAX_TRIES`] up to [`MAX_STASH`] names that close cycles go to an exact stash. So the expected
//! number of tries is 1.8, and a shard that needs the stash is not seen unless an enemy knows the key.
//!
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section IV.B.
//! Differs: a removed name stays as a tombstone until the next rebuild; components are walked, not united (a
//! union-find cannot split, and calls most inserts cycles after a turnover of names).

use super::index::Index;
use super::sizing::{Sides, Sizing, TRIES_A_SIZE, TWEAKS};

/// Tweaks tried before names go to the stash.
pub(super) const MAX_TRIES: u32 = 64;
/// Names that a shard may keep outside its graph.
pub(super) const MAX_STASH: usize = 8;
/// The failed try after which equal digests are looked for; one shard in 600 gets there by bad luck.
const DUPLICATE_CHECK: u32 = 7;
/// A rebuild happens when more than one edge in so many is a tombstone (5 %).
const TOMBSTONE_SHARE: usize = 20;

/// What a name carries in the graph: its value, or an index to something that yields a value a switch.
pub trait Payload: Copy + Eq + Send + Sync + 'static {}
impl<T: Copy + Eq + Send + Sync + 'static> Payload for T {}

/// A name: 16 bytes with 16-bit indices and a 32-bit payload, four to a cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge<I, P> {
    pub(super) digest: u64,
    pub(super) payload: P,
    /// Next edge at the first and at the second vertex; the flag of the first marks a tombstone.
    next: [I; 2],
}

impl<I: Index, P> Edge<I, P> {
    pub(super) fn new(digest: u64, payload: P, tombstone: bool) -> Self {
        Self { digest, payload, next: [I::NONE.with_flag(tombstone), I::NONE] }
    }

    pub(super) fn is_tombstone(&self) -> bool {
        self.next[0].flag()
    }

    fn set_tombstone(&mut self, tombstone: bool) {
        self.next[0] = self.next[0].with_flag(tombstone);
    }

    /// What a lookup of this name must yield: nothing (drop) once removed.
    pub(super) fn value(&self) -> Option<P>
    where
        P: Copy,
    {
        (!self.is_tombstone()).then_some(self.payload)
    }
}

/// `child` gets its colour from `parent` over `edge`; orders are stored leaf first.
#[derive(Clone, Copy)]
pub(super) struct Peeled<I> {
    pub(super) child: I,
    pub(super) parent: I,
    pub(super) edge: I,
}

/// Memory that solving reuses from shard to shard.
#[derive(Clone)]
pub(super) struct Scratch<I: Index> {
    incidence: Vec<I::Incidence>,
    ends: Vec<(I, I)>,
    pub(super) order: Vec<Peeled<I>>,
}

impl<I: Index> Default for Scratch<I> {
    fn default() -> Self {
        Self { incidence: Vec::new(), ends: Vec::new(), order: Vec::new() }
    }
}

impl<I: Index> Scratch<I> {
    /// Peels the graph of `edges`; true when nothing is left, and then `order` is canonical.
    fn peel<P>(&mut self, edges: &[Edge<I, P>], sides: Sides, tweak: u16) -> bool {
        let cells = sides.cells() as usize;
        self.incidence.clear();
        self.incidence.resize(cells, I::Incidence::default());
        self.ends.clear();
        self.order.clear();
        self.order.reserve(edges.len());
        let incidence = &mut self.incidence[..cells];
        self.ends.extend(edges.iter().enumerate().map(|(index, edge)| {
            let (u, v) = sides.endpoints(edge.digest, tweak);
            I::attach(&mut incidence[u as usize], index);
            I::attach(&mut incidence[v as usize], index);
            (I::new(u as usize), I::new(v as usize))
        }));
        for start in (0..cells).rev() {
            let mut vertex = start;
            while I::degree(incidence[vertex]) == 1 {
                let edge = I::only_edge(incidence[vertex]);
                let (u, v) = self.ends[edge];
                let parent = if u.get() == vertex { v } else { u };
                incidence[vertex] = I::Incidence::default();
                I::detach(&mut incidence[parent.get()], edge);
                self.order.push(Peeled { child: I::new(vertex), parent, edge: I::new(edge) });
                // A smaller vertex is still to be visited by the outer loop, and must outlive this one.
                if parent.get() < start {
                    break;
                }
                vertex = parent.get();
            }
        }
        self.order.len() == edges.len()
    }

    /// Indices of the edges that the last, failed, peel left: they lie on or between cycles.
    fn left_over(&self, n_edges: usize) -> Vec<usize> {
        let mut peeled = vec![false; n_edges];
        for step in &self.order {
            peeled[step.edge.get()] = true;
        }
        (0..n_edges).filter(|&edge| !peeled[edge]).collect()
    }
}

/// A vertex reached by a walk: over `edge` from the `parent`-th of the walk.
#[derive(Clone, Copy)]
pub(super) struct Visit<I> {
    pub(super) vertex: u32,
    pub(super) parent: u32,
    pub(super) edge: I,
}

/// The names of one prefix of digests, and the graph that they form.
#[derive(Clone)]
pub(super) struct Shard<S: Sizing, P> {
    pub(super) prefix: u32,
    pub(super) depth: u8,
    pub(super) tweak: u16,
    pub(super) sides: Sides,
    pub(super) version: u64,
    pub(super) n_tombstones: usize,
    /// First edge at every vertex.
    heads: Vec<S::Index>,
    pub(super) edges: Vec<Edge<S::Index, P>>,
    /// Names outside the graph; they are not among `edges`.
    pub(super) stash: Vec<Edge<S::Index, P>>,
}

/// Where a name stands in its shard.
pub(super) enum Place {
    Edge(usize),
    Stash(usize),
}

/// No acyclic graph within the bound.
pub(super) struct NoSolution {
    pub(super) n_names: usize,
    /// A digest that two names share, when that is why.
    pub(super) duplicate: Option<u64>,
}

impl<S: Sizing, P: Payload> Shard<S, P> {
    /// A shard of `edges`, unsolved: call [`Shard::solve`].
    pub(super) fn unsolved(prefix: u32, depth: u8, tweak: u16, edges: Vec<Edge<S::Index, P>>) -> Self {
        let n_tombstones = edges.iter().filter(|edge| edge.is_tombstone()).count();
        let sides = Sides { a: 0, b: 0 };
        let (heads, stash) = (Vec::new(), Vec::new());
        Self { prefix, depth, tweak, sides, version: 0, n_tombstones, heads, edges, stash }
    }

    pub(super) fn n_live(&self) -> usize {
        self.edges.len() + self.stash.len() - self.n_tombstones
    }

    /// Names and tombstones, in the graph and in the stash.
    pub(super) fn all(&self) -> impl Iterator<Item = &Edge<S::Index, P>> {
        self.edges.iter().chain(&self.stash)
    }

    pub(super) fn endpoints(&self, digest: u64) -> (u32, u32) {
        self.sides.endpoints(digest, self.tweak)
    }

    /// Whether one more edge would leave the shard with fewer cells a name than its sizing allows.
    pub(super) fn is_full(&self) -> bool {
        let next = self.edges.len() as u64 + 1;
        next * S::MIN_MILLICELLS > u64::from(self.sides.cells()) * 1000 || next as usize >= S::Index::MAX_EDGES
    }

    /// Whether tombstones are due to go.
    pub(super) fn is_stale(&self) -> bool {
        self.n_tombstones * TOMBSTONE_SHARE > self.edges.len().max(TOMBSTONE_SHARE)
    }

    /// Finds a name: it hangs at its first vertex, so one short list is walked.
    pub(super) fn find(&self, digest: u64) -> Option<Place> {
        let (u, _) = self.endpoints(digest);
        let mut edge = self.heads[u as usize];
        while edge != S::Index::NONE {
            let found = &self.edges[edge.get()];
            if found.digest == digest {
                return Some(Place::Edge(edge.get()));
            }
            edge = found.next[0].unflagged();
        }
        self.stash.iter().position(|edge| edge.digest == digest).map(Place::Stash)
    }

    pub(super) fn edge_mut(&mut self, place: &Place) -> &mut Edge<S::Index, P> {
        match *place {
            Place::Edge(edge) => &mut self.edges[edge],
            Place::Stash(edge) => &mut self.stash[edge],
        }
    }

    /// Marks a name as removed, or as back.
    pub(super) fn set_tombstone(&mut self, place: &Place, tombstone: bool) {
        let edge = self.edge_mut(place);
        if edge.is_tombstone() != tombstone {
            edge.set_tombstone(tombstone);
            if tombstone {
                self.n_tombstones += 1;
            } else {
                self.n_tombstones -= 1;
            }
        }
    }

    /// Appends an edge that closes no cycle.
    pub(super) fn link(&mut self, edge: Edge<S::Index, P>) {
        self.edges.push(edge);
        self.thread(self.edges.len() - 1);
    }

    /// Puts an edge at the front of the lists of its two vertices.
    fn thread(&mut self, index: usize) {
        let edge = &mut self.edges[index];
        let (u, v) = self.sides.endpoints(edge.digest, self.tweak);
        let tombstone = edge.is_tombstone();
        edge.next = [self.heads[u as usize].with_flag(tombstone), self.heads[v as usize]];
        self.heads[u as usize] = S::Index::new(index);
        self.heads[v as usize] = S::Index::new(index);
    }

    /// Walks the component of `start` without crossing `barrier`, in breadth-first order, `start` first.
    pub(super) fn walk(&self, start: u32, barrier: S::Index, visits: &mut Vec<Visit<S::Index>>) {
        visits.clear();
        visits.push(Visit { vertex: start, parent: 0, edge: barrier });
        let mut at = 0;
        while at < visits.len() {
            let here = visits[at];
            let second_side = here.vertex >= self.sides.a;
            let mut index = self.heads[here.vertex as usize];
            while index != S::Index::NONE {
                let edge = &self.edges[index.get()];
                if index != here.edge && index != barrier {
                    let (u, v) = self.endpoints(edge.digest);
                    let vertex = if second_side { u } else { v };
                    visits.push(Visit { vertex, parent: at as u32, edge: index });
                }
                index = edge.next[usize::from(second_side)].unflagged();
            }
            at += 1;
        }
    }

    /// Finds a tweak and sizes for the edges of an unsolved shard, and threads the graph. `scratch.order` is then the
    /// shard's colouring order.
    ///
    /// About 10 ns a name and try.
    /// # Errors
    /// [`NoSolution`]: every bound was exhausted.
    pub(super) fn solve(&mut self, cells_per_word: u32, scratch: &mut Scratch<S::Index>) -> Result<(), NoSolution> {
        debug_assert!(self.stash.is_empty() && self.n_tombstones == 0);
        let n_names = self.edges.len();
        if n_names >= S::Index::MAX_EDGES {
            return Err(NoSolution { n_names, duplicate: None });
        }
        for tries in 0..MAX_TRIES {
            self.sides = S::sides(n_names, cells_per_word, tries);
            if scratch.peel(&self.edges, self.sides, self.tweak) {
                self.rethread();
                return Ok(());
            }
            // Equal digests close a cycle under every tweak: look for them once bad luck is improbable.
            if tries == DUPLICATE_CHECK
                && let Some(duplicate) = self.duplicate()
            {
                return Err(NoSolution { n_names, duplicate: Some(duplicate) });
            }
            self.tweak = (self.tweak + 1) % TWEAKS;
        }
        self.stash_cycles(scratch)
    }

    /// The way out when no tweak works: the names on cycles leave the graph.
    fn stash_cycles(&mut self, scratch: &mut Scratch<S::Index>) -> Result<(), NoSolution> {
        let n_names = self.edges.len();
        loop {
            if scratch.peel(&self.edges, self.sides, self.tweak) {
                self.rethread();
                return Ok(());
            }
            if self.stash.len() == MAX_STASH {
                return Err(NoSolution { n_names, duplicate: None });
            }
            let on_cycle = scratch.left_over(self.edges.len());
            self.stash.push(self.edges.swap_remove(on_cycle[0]));
        }
    }

    fn duplicate(&self) -> Option<u64> {
        let mut digests: Vec<u64> = self.edges.iter().map(|edge| edge.digest).collect();
        digests.sort_unstable();
        digests.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// Takes over a known solution: the tweak, sides and stash that a solve once found.
    /// # Errors
    /// [`NoSolution`] when the graph is not acyclic under it.
    pub(super) fn resume(&mut self, sides: Sides, scratch: &mut Scratch<S::Index>) -> Result<(), NoSolution> {
        if !scratch.peel(&self.edges, sides, self.tweak) {
            return Err(NoSolution { n_names: self.edges.len(), duplicate: None });
        }
        self.sides = sides;
        self.rethread();
        Ok(())
    }

    fn rethread(&mut self) {
        self.heads.clear();
        self.heads.resize(self.sides.cells() as usize, S::Index::NONE);
        for index in 0..self.edges.len() {
            self.thread(index);
        }
    }

    /// The colouring order of the shard as it stands, into `scratch.order` (leaf first).
    pub(super) fn order(&self, scratch: &mut Scratch<S::Index>) {
        let acyclic = scratch.peel(&self.edges, self.sides, self.tweak);
        debug_assert!(acyclic);
    }

    /// Heap bytes of the shard.
    pub(super) fn heap_bytes(&self) -> usize {
        self.heads.capacity() * size_of::<S::Index>()
            + (self.edges.capacity() + self.stash.capacity()) * size_of::<Edge<S::Index, P>>()
    }
}

const _: () = assert!(MAX_TRIES.is_multiple_of(TRIES_A_SIZE) && size_of::<Edge<u16, u32>>() == 16);

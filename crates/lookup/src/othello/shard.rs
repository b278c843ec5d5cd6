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

use super::Settings;
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

/// A name: 13 bytes with a 32-bit payload, 17 with a value. Packed, for most of the time that a build takes is spent on
/// touching memory for the first time.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed)]
pub(super) struct Edge<P> {
    pub(super) digest: u64,
    pub(super) payload: P,
    /// Bits [`TOMBSTONE`] and [`CHILD_IN_B`].
    flags: u8,
}

/// The name was removed.
const TOMBSTONE: u8 = 1;
/// The vertex that has its colour over this edge is the one in side B. Holds while the edges stand in their colouring
/// order, which is as long as a shard stays as it was solved.
const CHILD_IN_B: u8 = 2;

impl<P> Edge<P> {
    pub(super) fn new(digest: u64, payload: P, tombstone: bool) -> Self {
        Self { digest, payload, flags: if tombstone { TOMBSTONE } else { 0 } }
    }

    pub(super) fn is_tombstone(&self) -> bool {
        self.flags & TOMBSTONE != 0
    }

    /// What a lookup of this name must yield: nothing (drop) once removed.
    pub(super) fn value(&self) -> Option<P>
    where
        P: Copy,
    {
        (!self.is_tombstone()).then_some(self.payload)
    }
}

/// `child` gets its colour from `parent` over `edge`.
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
    /// A colouring order: parents before children.
    pub(super) order: Vec<Peeled<I>>,
}

impl<I: Index> Default for Scratch<I> {
    fn default() -> Self {
        Self { incidence: Vec::new(), ends: Vec::new(), order: Vec::new() }
    }
}

impl<I: Index> Scratch<I> {
    /// Peels the graph of `edges`; true when nothing is left, and then `order` is canonical.
    fn peel<P>(&mut self, edges: &[Edge<P>], sides: Sides, tweak: u16) -> bool {
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
        // Leaves came first; colours come from the roots.
        self.order.reverse();
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

/// A cell as a vertex of a rooted forest: the root of a component is its smallest vertex. 10 bytes with 16-bit indices.
///
/// Two vertices have an edge exactly where one is the parent of the other, so neither finding a name nor walking a
/// component needs lists of edges, and a step of a walk waits for one cache line.
#[derive(Clone, Copy)]
struct Vertex<I> {
    /// The edge to the parent; none at a root.
    up: I,
    /// The parent; a root itself.
    parent: I,
    /// Smallest vertex of the component.
    root: I,
    /// A child, or none.
    first_child: I,
    /// Another child of the same parent, or none.
    next_sibling: I,
}

impl<I: Index> Vertex<I> {
    fn isolated(vertex: usize) -> Self {
        let itself = I::new(vertex);
        Self { up: I::NONE, parent: itself, root: itself, first_child: I::NONE, next_sibling: I::NONE }
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
pub(super) struct Shard<S: Sizing, P: Payload> {
    pub(super) prefix: u32,
    pub(super) depth: u8,
    pub(super) tweak: u16,
    pub(super) sides: Sides,
    pub(super) version: u64,
    pub(super) n_tombstones: usize,
    vertices: Vec<Vertex<S::Index>>,
    pub(super) edges: Vec<Edge<P>>,
    /// The edges stand in a colouring order: nothing was linked since the shard was solved.
    in_order: bool,
    /// Names outside the graph; they are not among `edges`.
    pub(super) stash: Vec<Edge<P>>,
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
    pub(super) fn unsolved(prefix: u32, depth: u8, tweak: u16, edges: Vec<Edge<P>>) -> Self {
        let n_tombstones = edges.iter().filter(|edge| edge.is_tombstone()).count();
        let sides = Sides { a: 0, b: 0 };
        let (vertices, stash) = (Vec::new(), Vec::new());
        Self { prefix, depth, tweak, sides, version: 0, n_tombstones, vertices, edges, in_order: false, stash }
    }

    pub(super) fn n_live(&self) -> usize {
        self.edges.len() + self.stash.len() - self.n_tombstones
    }

    /// Names and tombstones, in the graph and in the stash.
    pub(super) fn all(&self) -> impl Iterator<Item = &Edge<P>> {
        self.edges.iter().chain(&self.stash)
    }

    pub(super) fn endpoints(&self, digest: u64) -> (u32, u32) {
        self.sides.endpoints(digest, self.tweak)
    }

    /// Whether one more edge would leave the shard with fewer cells a name than its sizing allows.
    pub(super) fn is_full(&self) -> bool {
        let next = self.edges.len() as u64 + 1;
        next * S::MIN_MILLICELLS > u64::from(self.sides.cells()) * 1000 || next as usize >= S::Index::NONE.get()
    }

    /// Whether tombstones are due to go.
    pub(super) fn is_stale(&self) -> bool {
        self.n_tombstones * TOMBSTONE_SHARE > self.edges.len().max(TOMBSTONE_SHARE)
    }

    /// Finds a name: its two vertices are parent and child by its edge, or it is in the stash, or it is not there.
    pub(super) fn find(&self, digest: u64) -> Option<Place> {
        let (u, v) = self.endpoints(digest);
        let (first, second) = (&self.vertices[u as usize], &self.vertices[v as usize]);
        let up = if second.parent.get() == u as usize {
            second.up
        } else if first.parent.get() == v as usize {
            first.up
        } else {
            S::Index::NONE
        };
        if up != S::Index::NONE && self.edges[up.get()].digest == digest {
            return Some(Place::Edge(up.get()));
        }
        self.stash.iter().position(|edge| edge.digest == digest).map(Place::Stash)
    }

    pub(super) fn edge_mut(&mut self, place: &Place) -> &mut Edge<P> {
        match *place {
            Place::Edge(edge) => &mut self.edges[edge],
            Place::Stash(edge) => &mut self.stash[edge],
        }
    }

    /// Marks a name as removed, or as back.
    pub(super) fn set_tombstone(&mut self, place: &Place, tombstone: bool) {
        let edge = self.edge_mut(place);
        if edge.is_tombstone() != tombstone {
            edge.flags ^= TOMBSTONE;
            if tombstone {
                self.n_tombstones += 1;
            } else {
                self.n_tombstones -= 1;
            }
        }
    }

    /// Appends an edge that closes no cycle, from `joint` to the component that `visits` walked, which now hangs there.
    pub(super) fn link(&mut self, edge: Edge<P>, joint: u32, visits: &[Visit<S::Index>]) {
        self.edges.push(edge);
        self.in_order = false;
        let root = self.vertices[joint as usize].root;
        for visit in visits {
            self.vertices[visit.vertex as usize].first_child = S::Index::NONE;
        }
        for (at, visit) in visits.iter().enumerate() {
            let (up, parent) = if at == 0 {
                (S::Index::new(self.edges.len() - 1), joint)
            } else {
                (visit.edge, visits[visit.parent as usize].vertex)
            };
            self.hang(visit.vertex as usize, parent as usize, up, root);
        }
    }

    /// Makes `vertex` a child of `parent` by the edge `up`.
    fn hang(&mut self, vertex: usize, parent: usize, up: S::Index, root: S::Index) {
        let next_sibling = std::mem::replace(&mut self.vertices[parent].first_child, S::Index::new(vertex));
        let child = &mut self.vertices[vertex];
        (child.up, child.parent, child.root, child.next_sibling) = (up, S::Index::new(parent), root, next_sibling);
    }

    /// Starts fetching what an insert of `digest` looks at first.
    pub(super) fn prefetch(&self, digest: u64) {
        let (u, v) = self.endpoints(digest);
        for vertex in [u, v] {
            super::kernel::prefetch(self.vertices.as_ptr().wrapping_add(vertex as usize).cast());
        }
    }

    /// The way from `start` to the root of its component: the edges, from the root's on.
    pub(super) fn path(&self, start: u32, path: &mut Vec<usize>) {
        path.clear();
        let mut vertex = &self.vertices[start as usize];
        while vertex.up != S::Index::NONE {
            path.push(vertex.up.get());
            vertex = &self.vertices[vertex.parent.get()];
        }
        path.reverse();
    }

    /// Whether no edge touches `vertex`.
    pub(super) fn is_isolated(&self, vertex: u32) -> bool {
        let vertex = &self.vertices[vertex as usize];
        vertex.up == S::Index::NONE && vertex.first_child == S::Index::NONE
    }

    /// The smallest vertex of the component of `vertex`.
    pub(super) fn root(&self, vertex: u32) -> u32 {
        self.vertices[vertex as usize].root.get() as u32
    }

    /// The ends of an edge of the graph: first the one nearer to the root.
    pub(super) fn parent_and_child(&self, edge: usize) -> (u32, u32) {
        let (u, v) = self.endpoints(self.edges[edge].digest);
        if self.vertices[u as usize].up == S::Index::new(edge) { (v, u) } else { (u, v) }
    }

    /// Walks what hangs at `start`, and with `whole` the rest of its component, too: breadth first, `start` first.
    pub(super) fn walk(&self, start: u32, whole: bool, visits: &mut Vec<Visit<S::Index>>) {
        visits.clear();
        visits.push(Visit { vertex: start, parent: 0, edge: S::Index::NONE });
        let mut at = 0;
        while at < visits.len() {
            let here = visits[at];
            let vertex = &self.vertices[here.vertex as usize];
            if whole && vertex.up != S::Index::NONE && vertex.up != here.edge {
                visits.push(Visit { vertex: vertex.parent.get() as u32, parent: at as u32, edge: vertex.up });
            }
            let mut child = vertex.first_child;
            while child != S::Index::NONE {
                let next = &self.vertices[child.get()];
                if next.up != here.edge {
                    visits.push(Visit { vertex: child.get() as u32, parent: at as u32, edge: next.up });
                }
                child = next.next_sibling;
            }
            at += 1;
        }
    }

    /// Finds a tweak and sizes for the edges of an unsolved shard, and roots the forest. `scratch.order` is then the
    /// shard's colouring order.
    ///
    /// About 10 ns a name and try.
    /// # Errors
    /// [`NoSolution`]: every bound was exhausted.
    pub(super) fn solve(&mut self, settings: &Settings, scratch: &mut Scratch<S::Index>) -> Result<(), NoSolution> {
        debug_assert!(self.stash.is_empty() && self.n_tombstones == 0);
        let n_names = self.edges.len();
        if n_names >= S::Index::NONE.get() {
            return Err(NoSolution { n_names, duplicate: None });
        }
        for tries in 0..MAX_TRIES {
            self.sides = S::sides(n_names.max(settings.least_names(self.depth)), settings.cells_per_word(), tries);
            if self.sides.cells() as usize > S::Index::NONE.get() {
                return Err(NoSolution { n_names, duplicate: self.duplicate() });
            }
            if scratch.peel(&self.edges, self.sides, self.tweak) {
                self.root_forest(scratch);
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
                self.root_forest(scratch);
                self.stash.sort_unstable_by_key(|edge| edge.digest);
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
        self.root_forest(scratch);
        Ok(())
    }

    /// Makes the forest of `scratch.order`, and puts the edges into that order: who colours the whole shard then reads
    /// them one after the other.
    fn root_forest(&mut self, scratch: &mut Scratch<S::Index>) {
        self.vertices.clear();
        self.vertices.extend((0..self.sides.cells() as usize).map(Vertex::isolated));
        let mut edges = Vec::with_capacity(self.edges.capacity());
        for (at, step) in scratch.order.iter_mut().enumerate() {
            let mut edge = self.edges[step.edge.get()];
            edge.flags &= !CHILD_IN_B;
            if step.child.get() >= self.sides.a as usize {
                edge.flags |= CHILD_IN_B;
            }
            edges.push(edge);
            step.edge = S::Index::new(at);
            let root = self.vertices[step.parent.get()].root;
            self.hang(step.child.get(), step.parent.get(), step.edge, root);
        }
        self.edges = edges;
        self.in_order = true;
    }

    /// A colouring order of the shard as it stands: that of its edges, or where something was linked since, from every
    /// vertex up to what stands in it already, turned round.
    ///
    /// About 3 ns a name from the edges, 15 from the vertices: those are read in the order of their indices, and their
    /// parents once more, in half the time of a walk from the roots over lists of children.
    pub(super) fn order(&self, order: &mut Vec<Peeled<S::Index>>) {
        order.clear();
        if self.in_order {
            order.extend(self.edges.iter().enumerate().map(|(at, edge)| {
                let (a, b) = self.endpoints(edge.digest);
                let (child, parent) = if edge.flags & CHILD_IN_B != 0 { (b, a) } else { (a, b) };
                Peeled {
                    child: S::Index::new(child as usize),
                    parent: S::Index::new(parent as usize),
                    edge: S::Index::new(at),
                }
            }));
            return;
        }
        order.reserve(self.edges.len());
        let mut placed = vec![false; self.vertices.len()];
        for start in 0..self.vertices.len() {
            let first = order.len();
            let mut child = start;
            loop {
                let vertex = &self.vertices[child];
                if vertex.up == S::Index::NONE || std::mem::replace(&mut placed[child], true) {
                    break;
                }
                order.push(Peeled { child: S::Index::new(child), parent: vertex.parent, edge: vertex.up });
                child = vertex.parent.get();
            }
            if order.len() > first + 1 {
                order[first..].reverse();
            }
        }
        debug_assert_eq!(order.len(), self.edges.len());
    }

    /// Heap bytes of the shard.
    pub(super) fn heap_bytes(&self) -> usize {
        self.vertices.capacity() * size_of::<Vertex<S::Index>>()
            + (self.edges.capacity() + self.stash.capacity()) * size_of::<Edge<P>>()
    }
}

const _: () = assert!(MAX_TRIES.is_multiple_of(TRIES_A_SIZE) && size_of::<Edge<u32>>() == 13);

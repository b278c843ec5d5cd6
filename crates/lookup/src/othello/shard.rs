//! One shard of an Othello's control half: an acyclic bipartite graph whose edges are names.
//!
//! A vertex is a cell. An edge `(u, v)` is a name whose value is `cell[u] ^ cell[v]`. The graph holds no cells. With
//! **canonical colouring** the smallest vertex of every component has colour 0. So colours are a pure function of
//! (graph, tombstones, values), and any number of colourings share one graph.
//!
//! Solving: cells are peeled from the highest index down. Each step removes a leaf, and then follows the chain as long
//! as vertices are higher than where it began. So the last vertex left of every component is its smallest one. The
//! reverse of the peel order proves that the graph is acyclic, and is a colouring order that starts from canonical
//! roots. Solving is one pass over two small arrays: about 10 ns per name and try.
//!
//! Tries: at 2.40 cells per name a tweak succeeds with probability 0.55. After every 16 failures the shard grows by a
//! twentieth. After [`MAX_TRIES`] failures, up to [`MAX_STASH`] names that close cycles go to an exact stash. So the
//! expected number of tries is 1.8, and a shard needs the stash only if an attacker knows the key.
//!
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section IV.B.
//! Differs: a removed name stays as a tombstone until the next rebuild. Components are walked and not kept in a
//! union-find, which cannot split components, and which would call most inserts cycles after a turnover of names.

use super::Settings;
use super::index::Index;
use super::sizing::{Sides, Sizing, TRIES_A_SIZE};
use crate::base::directory::Part;
use crate::base::part::{PartId, Payload};
use crate::hash::tweak::TWEAKS;

/// Tweaks tried before names go to the stash.
pub(super) const MAX_TRIES: u32 = 64;
/// The most names that a shard keeps outside its graph.
pub(super) const MAX_STASH: usize = 8;
/// The failed try after which equal digests are searched for. One shard in 600 gets there by bad luck.
const DUPLICATE_CHECK: u32 = 7;
/// A shard is rebuilt when more than one edge in this many is a tombstone (5 %).
const TOMBSTONE_SHARE: usize = 20;

/// A name: 13 bytes with a 32-bit payload, 17 with a value. It is packed, because a build spends most of its time on
/// the first write to memory.
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
/// The vertex that gets its colour over this edge is the one in side B. This is valid while the edges are in colouring
/// order, that is, until an edge is linked to the solved shard.
const CHILD_IN_B: u8 = 2;

impl<P> Edge<P> {
    pub(super) fn new(digest: u64, payload: P, tombstone: bool) -> Self {
        Self { digest, payload, flags: if tombstone { TOMBSTONE } else { 0 } }
    }

    pub(super) fn is_tombstone(&self) -> bool {
        self.flags & TOMBSTONE != 0
    }

    /// What a lookup of this name must yield. `None` (drop) once it is removed.
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
    /// Peels the graph of `edges`. Returns true if nothing is left. Then `order` is canonical.
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
                // The outer loop still has to visit a smaller vertex, which must outlive this one.
                if parent.get() < start {
                    break;
                }
                vertex = parent.get();
            }
        }
        // Leaves came first. Colours come from the roots.
        self.order.reverse();
        self.order.len() == edges.len()
    }

    /// The edges that the last peel, which failed, left. They lie on cycles or between them.
    fn left_over(&self, n_edges: usize) -> Vec<usize> {
        let mut peeled = vec![false; n_edges];
        for step in &self.order {
            peeled[step.edge.get()] = true;
        }
        (0..n_edges).filter(|&edge| !peeled[edge]).collect()
    }
}

/// A cell as a vertex of a rooted forest. The root of a component is its smallest vertex. 10 bytes with 16-bit indices.
///
/// Two vertices have an edge if and only if one is the parent of the other. So neither finding a name nor walking a
/// component needs lists of edges, and a step of a walk waits for one cache line.
#[derive(Clone, Copy)]
struct Vertex<I> {
    /// The edge to the parent. None at a root.
    up: I,
    /// The parent. A root is its own parent.
    parent: I,
    /// The smallest vertex of the component.
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

/// A vertex that a walk reached over `edge`, from the vertex of visit `parent`.
#[derive(Clone, Copy)]
pub(super) struct Visit<I> {
    pub(super) vertex: u32,
    pub(super) parent: u32,
    pub(super) edge: I,
}

/// The names of one prefix of digests, and the graph that they form.
#[derive(Clone)]
pub(super) struct Shard<S: Sizing, P: Payload> {
    pub(super) id: PartId,
    pub(super) tweak: u16,
    pub(super) sides: Sides,
    pub(super) version: u64,
    pub(super) n_tombstones: usize,
    vertices: Vec<Vertex<S::Index>>,
    pub(super) edges: Vec<Edge<P>>,
    /// How many edges are in colouring order: those that the shard was solved with. Those linked since come after them.
    n_solved: usize,
    /// Names outside the graph. They are not among `edges`.
    pub(super) stash: Vec<Edge<P>>,
}

/// Where a name is in its shard.
pub(super) enum Place {
    Edge(usize),
    Stash(usize),
}

/// No acyclic graph was found within the bounds.
pub(super) struct NoSolution {
    pub(super) n_names: usize,
    /// The digest that two names share, if that is the reason.
    pub(super) duplicate: Option<u64>,
}

impl<S: Sizing, P: Payload> Part for Shard<S, P> {
    fn id(&self) -> PartId {
        self.id
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn set_version(&mut self, version: u64) {
        self.version = version;
    }
}

impl<S: Sizing, P: Payload> Shard<S, P> {
    /// An unsolved shard of `edges`. Call [`Shard::solve`] next.
    pub(super) fn unsolved(id: PartId, tweak: u16, edges: Vec<Edge<P>>) -> Self {
        let n_tombstones = edges.iter().filter(|edge| edge.is_tombstone()).count();
        let sides = Sides { a: 0, b: 0 };
        let (vertices, stash) = (Vec::new(), Vec::new());
        Self { id, tweak, sides, version: 0, n_tombstones, vertices, edges, n_solved: 0, stash }
    }

    pub(super) fn n_live(&self) -> usize {
        self.edges.len() + self.stash.len() - self.n_tombstones
    }

    /// Names and tombstones, in the graph and in the stash.
    pub(super) fn all(&self) -> impl Iterator<Item = &Edge<P>> {
        self.edges.iter().chain(&self.stash)
    }

    /// The names that were linked since the shard was solved, in that order.
    pub(super) fn linked(&self) -> &[Edge<P>] {
        &self.edges[self.n_solved..]
    }

    pub(super) fn endpoints(&self, digest: u64) -> (u32, u32) {
        self.sides.endpoints(digest, self.tweak)
    }

    /// Whether with one more edge the shard would have fewer cells per name than its sizing allows.
    pub(super) fn is_full(&self) -> bool {
        let next = self.edges.len() as u64 + 1;
        next * S::MIN_MILLICELLS > u64::from(self.sides.cells()) * 1000 || next as usize >= S::Index::NONE.get()
    }

    /// Whether the shard has enough tombstones that it should be solved without them.
    pub(super) fn is_stale(&self) -> bool {
        self.n_tombstones * TOMBSTONE_SHARE > self.edges.len().max(TOMBSTONE_SHARE)
    }

    /// Finds a name. If it is in the graph, its edge joins its two vertices as parent and child. Otherwise it may be in
    /// the stash.
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

    /// Marks a name as removed, or as live again.
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

    /// Adds an edge that closes no cycle. It attaches the component that `visits` walked to `joint`.
    pub(super) fn link(&mut self, edge: Edge<P>, joint: u32, visits: &[Visit<S::Index>]) {
        self.edges.push(edge);
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

    /// Starts fetching what an insert of `digest` reads first.
    pub(super) fn prefetch(&self, digest: u64) {
        let (u, v) = self.endpoints(digest);
        for vertex in [u, v] {
            crate::base::prefetch::prefetch(self.vertices.as_ptr().wrapping_add(vertex as usize).cast());
        }
    }

    /// The path from the root of its component to `start`, as edges.
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

    /// The two vertices of an edge of the graph: the parent first.
    pub(super) fn parent_and_child(&self, edge: usize) -> (u32, u32) {
        let (u, v) = self.endpoints(self.edges[edge].digest);
        if self.vertices[u as usize].up == S::Index::new(edge) { (v, u) } else { (u, v) }
    }

    /// Walks the subtree at `start`, breadth first. With `whole` it walks the rest of the component too.
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

    /// Finds a tweak and sizes for the edges of an unsolved shard, and builds the rooted forest. Then `scratch.order`
    /// is the colouring order of the shard.
    ///
    /// It takes about 10 ns per name and try.
    /// # Errors
    /// [`NoSolution`]: every bound was exhausted.
    pub(super) fn solve(&mut self, settings: &Settings, scratch: &mut Scratch<S::Index>) -> Result<(), NoSolution> {
        debug_assert!(self.stash.is_empty() && self.n_tombstones == 0);
        let n_names = self.edges.len();
        if n_names >= S::Index::NONE.get() {
            return Err(NoSolution { n_names, duplicate: None });
        }
        for tries in 0..MAX_TRIES {
            self.sides = S::sides(n_names.max(settings.least_names(self.id.depth)), settings.cells_per_word(), tries);
            if self.sides.cells() as usize > S::Index::NONE.get() {
                return Err(NoSolution { n_names, duplicate: self.duplicate() });
            }
            if scratch.peel(&self.edges, self.sides, self.tweak) {
                self.root_forest(scratch);
                return Ok(());
            }
            // Equal digests close a cycle under every tweak. They are searched for once bad luck is improbable.
            if tries == DUPLICATE_CHECK
                && let Some(duplicate) = self.duplicate()
            {
                return Err(NoSolution { n_names, duplicate: Some(duplicate) });
            }
            self.tweak = (self.tweak + 1) % TWEAKS;
        }
        self.stash_cycles(scratch)
    }

    /// The fallback if no tweak works: names on cycles leave the graph.
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

    /// Builds the forest for a known solution: the tweak, sides and stash that a solve once found.
    /// # Errors
    /// [`NoSolution`] if the graph is not acyclic under it.
    pub(super) fn resume(&mut self, sides: Sides, scratch: &mut Scratch<S::Index>) -> Result<(), NoSolution> {
        if !scratch.peel(&self.edges, sides, self.tweak) {
            return Err(NoSolution { n_names: self.edges.len(), duplicate: None });
        }
        self.sides = sides;
        self.root_forest(scratch);
        Ok(())
    }

    /// Builds the forest of `scratch.order`, and puts the edges into that order. Then colouring the whole shard reads
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
        self.n_solved = edges.len();
        self.edges = edges;
    }

    /// A colouring order of the shard as it is. If no edge was linked since it was solved, that is the order of its
    /// edges. Otherwise each vertex is followed up to one that is already in the order, and the path is reversed.
    ///
    /// It takes about 3 ns per name from the edges, and 15 from the vertices. Those are read in the order of their
    /// indices, and their parents once more. A walk from the roots over lists of children takes twice as long.
    pub(super) fn order(&self, order: &mut Vec<Peeled<S::Index>>) {
        order.clear();
        if self.linked().is_empty() {
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

//! The shared graph: every name of a table, in shards; Phase I of the papers, once for a whole network.
//!
//! A graph knows which cells a name joins, not what they hold: that is a [`Colouring`](super::Colouring), one a
//! switch. A mutation returns a [`Change`], from which each colouring derives its own update message.
//!
//! Cost: 13 bytes an edge (32-bit payload) plus 10 bytes a cell: about 37 bytes a name. Insert: of the two components
//! that the edge joins the one with the larger root is walked, mostly the smaller; now and then one rebuilds its shard:
//! `fibula bench update --contestants latency` tells how long that takes. Above [`MAX_SHARD`] names a shard splits;
//! neighbours below [`MIN_SHARD`] merge.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections IV.B, V.A.
//! Limits: names with equal digests cannot both be in; see the module doc of `shard` for what bounds a rebuild.

use super::fingerprint::Check;
use super::index::Index;
use super::shard::{Edge, MAX_TRIES, NoSolution, Payload, Place, Scratch, Shard, Visit};
use super::sizing::{Sharded, Sides, Sizing, TWEAKS};
use super::{Settings, ShardId};
use crate::hash::{Digest, mix64};
use crate::partition::with_slack;
use crate::traits::InsertError;

/// A shard with more names splits in two when it is next solved.
pub const MAX_SHARD: usize = 3000;
/// Two neighbours that both have fewer names merge.
pub const MIN_SHARD: usize = 1000;
/// Most bits of a digest that the directory looks at: 2^24 shards.
pub const MAX_DEPTH: u8 = 24;

/// What a mutation did to the graph. It describes the latest mutation only: derive the updates of every colouring
/// from it before the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "every colouring of the graph must learn of the change"]
pub enum Change {
    /// Nothing: the name was in, with this payload, or was not there to be removed.
    None,
    /// Colours of one component changed; the steps are with the graph.
    Cells {
        /// Slot of the shard in the graph.
        slot: u32,
    },
    /// Shards were solved anew, split or merged, or their values are to be sent again.
    Shards {
        /// Slots of the new shards.
        slots: Vec<u32>,
        /// The shards that they replace, where these exist no more.
        replaced: Vec<ShardId>,
    },
}

/// One vertex whose colour changed: it is that of `parent` (an index into the steps) XOR the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<P> {
    pub(super) vertex: u32,
    pub(super) parent: u32,
    /// The edge to the parent.
    pub(super) edge: u32,
    /// Its payload; `None` is a removed name: drop.
    pub(super) payload: Option<P>,
    /// Fingerprint of its name, in its field.
    pub(super) fingerprint: u64,
}

/// How the changed colours differ from what they were.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delta<P> {
    /// The changed part had its root at this step.
    OldRoot(usize),
    /// One name changed its value from the first to the second.
    Altered(Option<P>, Option<P>),
}

/// The colours that the latest mutation changed: those of a part that hangs at `joint`.
#[derive(Clone)]
pub(super) struct Walk<I, P> {
    /// The vertex outside the changed part to which the first step has its edge.
    pub(super) joint: u32,
    pub(super) steps: Vec<Step<P>>,
    pub(super) delta: Delta<P>,
    /// One vertex changed, and no name but the new one touches it.
    pub(super) fresh: bool,
    /// No name but the new one touches the joint: it was isolated.
    pub(super) fresh_joint: bool,
    visits: Vec<Visit<I>>,
}

/// What a controller must keep to derive the same cells after a restart, besides names and tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardState {
    /// Which digests belong to the shard.
    pub id: ShardId,
    /// Cells of its two sides.
    pub sides: Sides,
    /// Its tweak.
    pub tweak: u16,
    /// Its version.
    pub version: u64,
    /// Digests of the names that it keeps outside its graph.
    pub stash: Vec<Digest>,
}

/// The names of a table as an acyclic bipartite graph, sharded by the first bits of their digests.
#[derive(Clone)]
pub struct Graph<S: Sizing = Sharded, P: Payload = u32> {
    settings: Settings,
    depth: u8,
    /// Slot of the shard of every prefix of `depth` bits.
    directory: Vec<u32>,
    shards: Vec<Option<Shard<S, P>>>,
    free_slots: Vec<u32>,
    n_live: usize,
    walk: Walk<S::Index, P>,
    scratch: Scratch<S::Index>,
}

/// `digest` shifted down to its first `depth` bits.
#[inline]
pub(crate) fn prefix_of(digest: u64, depth: u8) -> usize {
    // Two shifts, for a shift by 64 is not one.
    (digest >> 1 >> (63 - u32::from(depth))) as usize
}

impl<S: Sizing, P: Payload> Graph<S, P> {
    /// An empty graph.
    pub fn new(settings: Settings) -> Self {
        let mut scratch = Scratch::default();
        let mut root = Shard::unsolved(0, 0, 0, Vec::new());
        let solved = root.solve(&settings, &mut scratch);
        debug_assert!(solved.is_ok(), "no edges, no cycle");
        Self::assemble(settings, vec![root], scratch)
    }

    /// Puts shards that cover all digests behind a directory.
    pub(super) fn assemble(settings: Settings, shards: Vec<Shard<S, P>>, scratch: Scratch<S::Index>) -> Self {
        let depth = shards.iter().map(|shard| shard.depth).max().unwrap_or(0);
        let mut graph = Self {
            settings,
            depth,
            directory: vec![0; 1 << depth],
            n_live: shards.iter().map(Shard::n_live).sum(),
            shards: shards.into_iter().map(Some).collect(),
            free_slots: Vec::new(),
            walk: Walk {
                joint: 0,
                steps: Vec::new(),
                delta: Delta::OldRoot(0),
                fresh: false,
                fresh_joint: false,
                visits: Vec::new(),
            },
            scratch,
        };
        for slot in 0..graph.shards.len() {
            graph.point_to(slot as u32);
        }
        graph
    }

    /// Settings of the table.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Names that are in.
    pub fn len(&self) -> usize {
        self.n_live
    }

    /// Whether no name is in.
    pub fn is_empty(&self) -> bool {
        self.n_live == 0
    }

    /// The payload of a name.
    pub fn get(&self, digest: Digest) -> Option<P> {
        let shard = self.shard(self.slot(digest.0));
        match shard.find(digest.0)? {
            Place::Edge(edge) => shard.edges[edge].value(),
            Place::Stash(edge) => shard.stash[edge].value(),
        }
    }

    /// Whether a removed name still answers drop.
    pub fn has_tombstone(&self, digest: Digest) -> bool {
        let shard = self.shard(self.slot(digest.0));
        match shard.find(digest.0) {
            Some(Place::Edge(edge)) => shard.edges[edge].is_tombstone(),
            Some(Place::Stash(edge)) => shard.stash[edge].is_tombstone(),
            None => false,
        }
    }

    /// Inserts a name, or changes its payload.
    ///
    /// Amortised O(1): see the module doc.
    /// # Errors
    /// [`InsertError::TooManyNames`], [`InsertError::Unsolvable`]; the graph is unchanged.
    pub fn insert(&mut self, digest: Digest, payload: P) -> Result<Change, InsertError> {
        let slot = self.slot(digest.0);
        let max = self.settings.max_names;
        let full = self.n_live >= max;
        let shard = self.shards[slot as usize].as_mut().expect("the directory points to live slots");
        if let Some(place) = shard.find(digest.0) {
            let edge = shard.edge_mut(&place);
            let old = edge.value();
            if old == Some(payload) {
                return Ok(Change::None);
            }
            if old.is_none() && full {
                return Err(InsertError::TooManyNames { max });
            }
            edge.payload = payload;
            shard.set_tombstone(&place, false);
            self.n_live += usize::from(old.is_none());
            return Ok(self.altered(slot, &place, old));
        }
        if full {
            return Err(InsertError::TooManyNames { max });
        }
        let edge = Edge::new(digest.0, payload, false);
        if shard.is_full() || !self.walk.join(shard, &edge, self.settings.check()) {
            return self.resolve(&[slot], Some(edge));
        }
        shard.link(edge, self.walk.joint, &self.walk.visits);
        shard.version += 1;
        self.n_live += 1;
        Ok(Change::Cells { slot })
    }

    /// Removes a name: it answers drop as long as its tombstone stands, which counts as an edge until the shard is
    /// next solved. When more than 5 % of a shard are tombstones it is solved anew, without them.
    pub fn remove(&mut self, digest: Digest) -> Change {
        let slot = self.slot(digest.0);
        let shard = self.shards[slot as usize].as_mut().expect("the directory points to live slots");
        let Some(place) = shard.find(digest.0) else { return Change::None };
        let Some(old) = shard.edge_mut(&place).value() else { return Change::None };
        shard.set_tombstone(&place, true);
        self.n_live -= 1;
        if shard.is_stale() {
            let merged = self.mergeable(slot);
            let slots = [slot, merged.unwrap_or(slot)];
            let slots = if merged.is_some() { &slots[..] } else { &slots[..1] };
            // Solving may fail, tombstones may not get lost: then they stay, and the next removal tries again.
            if let Ok(change) = self.resolve(slots, None) {
                return change;
            }
        }
        self.altered(slot, &place, Some(old))
    }

    /// The neighbour that `slot` should merge with: both small, of one depth and one parent.
    fn mergeable(&self, slot: u32) -> Option<u32> {
        let shard = self.shard(slot);
        if shard.depth == 0 || shard.n_live() >= MIN_SHARD {
            return None;
        }
        let neighbour = self.directory[(shard.prefix as usize ^ 1) << (self.depth - shard.depth)];
        let other = self.shard(neighbour);
        (other.depth == shard.depth && other.n_live() < MIN_SHARD).then_some(neighbour)
    }

    /// The change when the name at `place` got another value.
    fn altered(&mut self, slot: u32, place: &Place, old: Option<P>) -> Change {
        let shard = self.shards[slot as usize].as_mut().expect("a live slot");
        shard.version += 1;
        match *place {
            Place::Edge(edge) => {
                self.walk.alter(shard, edge, old, self.settings.check());
                Change::Cells { slot }
            }
            Place::Stash(_) => Change::Shards { slots: vec![slot], replaced: Vec::new() },
        }
    }

    /// Inserts many names, or changes their payloads, by solving anew every shard that one of them belongs to; of
    /// equal digests the last wins.
    ///
    /// About 35 ns a name of every shard touched, and one message a shard.
    /// # Errors
    /// As for [`Graph::insert`]; the graph is unchanged.
    pub fn insert_batch(&mut self, entries: &[(Digest, P)]) -> Result<Change, InsertError> {
        if entries.is_empty() {
            return Ok(Change::None);
        }
        let mut sorted: Vec<&(Digest, P)> = entries.iter().collect();
        sorted.sort_by_key(|entry| entry.0);
        let mut plans = Vec::new();
        let mut added = 0;
        let mut scratch = std::mem::take(&mut self.scratch);
        for group in sorted.chunk_by(|a, b| self.slot(a.0.0) == self.slot(b.0.0)) {
            let slot = self.slot(group[0].0.0);
            let shard = self.shard(slot);
            let mut edges: Vec<_> = Vec::with_capacity(with_slack(shard.edges.len() + group.len()));
            let copies = shard.all().map(|edge| Edge::new(edge.digest, edge.payload, edge.is_tombstone()));
            edges.extend(copies);
            for run in group.chunk_by(|a, b| a.0 == b.0) {
                let &(digest, payload) = *run.last().expect("runs are not empty");
                let new = Edge::new(digest.0, payload, false);
                match shard.find(digest.0) {
                    Some(Place::Edge(at)) => edges[at] = new,
                    Some(Place::Stash(at)) => edges[shard.edges.len() + at] = new,
                    None => edges.push(new),
                }
            }
            edges.retain(|edge| !edge.is_tombstone());
            added += edges.len() - shard.n_live();
            match self.plan(&[slot], edges, &mut scratch) {
                Ok(plan) => plans.push(plan),
                Err(error) => {
                    self.scratch = scratch;
                    return Err(error);
                }
            }
        }
        self.scratch = scratch;
        let max = self.settings.max_names;
        if self.n_live + added > max {
            return Err(InsertError::TooManyNames { max });
        }
        self.n_live += added;
        Ok(self.commit(plans))
    }

    /// Gives every shard a new version, so that colourings whose values changed can send them all.
    pub fn touch(&mut self) -> Change {
        let slots: Vec<u32> = self.slots().map(|(slot, _)| slot).collect();
        for &slot in &slots {
            self.shards[slot as usize].as_mut().expect("a live slot").version += 1;
        }
        Change::Shards { slots, replaced: Vec::new() }
    }

    /// Solves anew the live names of `slots` (one shard, or two that merge) and `extra`.
    fn resolve(&mut self, slots: &[u32], extra: Option<Edge<P>>) -> Result<Change, InsertError> {
        let n_names: usize = slots.iter().map(|&slot| self.shard(slot).edges.len()).sum();
        let mut edges = Vec::with_capacity(with_slack(n_names));
        for &slot in slots {
            let live = |edge: &Edge<P>| Some(Edge::new(edge.digest, edge.value()?, false));
            edges.extend(self.shard(slot).all().filter_map(live));
        }
        let added = usize::from(extra.is_some());
        edges.extend(extra);
        let mut scratch = std::mem::take(&mut self.scratch);
        let plan = self.plan(slots, edges, &mut scratch);
        self.scratch = scratch;
        let plan = plan?;
        self.n_live += added;
        Ok(self.commit(vec![plan]))
    }

    /// Solves `edges` in the place of `slots`, without touching these.
    fn plan(
        &self,
        slots: &[u32],
        edges: Vec<Edge<P>>,
        scratch: &mut Scratch<S::Index>,
    ) -> Result<Plan<S, P>, InsertError> {
        let first = self.shard(slots[0]);
        let depth = first.depth - (slots.len() as u8 - 1);
        let prefix = first.prefix >> (slots.len() - 1);
        let tweak = (first.tweak + 1) % TWEAKS;
        let version = slots.iter().map(|&slot| self.shard(slot).version + 1).max().unwrap_or(1);
        let mut shards = Vec::with_capacity(2);
        let solver = Solver { settings: &self.settings };
        solver.solve_or_split(prefix, depth, tweak, edges, scratch, &mut |mut shard, _| {
            shard.version = version;
            shards.push(shard);
        })?;
        Ok(Plan { slots: slots.to_vec(), shards })
    }

    /// Puts solved shards in the place of others.
    fn commit(&mut self, plans: Vec<Plan<S, P>>) -> Change {
        let (mut slots, mut replaced) = (Vec::new(), Vec::new());
        for plan in plans {
            let first_new = slots.len();
            for &slot in &plan.slots {
                let old = self.shards[slot as usize].take().expect("a live slot");
                replaced.push(ShardId { prefix: old.prefix, depth: old.depth });
                self.free_slots.push(slot);
            }
            for shard in plan.shards {
                self.deepen(shard.depth);
                let id = ShardId { prefix: shard.prefix, depth: shard.depth };
                replaced.retain(|&old| old != id);
                let slot = self.free_slots.pop().unwrap_or(self.shards.len() as u32);
                if slot as usize == self.shards.len() {
                    self.shards.push(None);
                }
                self.shards[slot as usize] = Some(shard);
                slots.push(slot);
            }
            for &slot in &slots[first_new..] {
                self.point_to(slot);
            }
        }
        Change::Shards { slots, replaced }
    }

    /// Doubles the directory until it looks at `depth` bits.
    fn deepen(&mut self, depth: u8) {
        while self.depth < depth {
            self.directory = self.directory.iter().flat_map(|&slot| [slot, slot]).collect();
            self.depth += 1;
        }
    }

    fn point_to(&mut self, slot: u32) {
        let shard = self.shard(slot);
        let width = self.depth - shard.depth;
        let first = (shard.prefix as usize) << width;
        self.directory[first..first + (1 << width)].fill(slot);
    }

    #[inline]
    fn slot(&self, digest: u64) -> u32 {
        self.directory[prefix_of(digest, self.depth)]
    }

    /// The slot of a digest's shard, and the two cells that are read for it; their part of the graph is prefetched.
    pub(super) fn cells_of(&self, digest: Digest) -> (u32, [u32; 2]) {
        let slot = self.slot(digest.0);
        let shard = self.shard(slot);
        shard.prefetch(digest.0);
        let (u, v) = shard.endpoints(digest.0);
        (slot, [u, v])
    }

    pub(super) fn shard(&self, slot: u32) -> &Shard<S, P> {
        self.shards[slot as usize].as_ref().expect("a live slot")
    }

    /// Slots in use, each with its shard, in order of digests.
    pub(super) fn slots(&self) -> impl Iterator<Item = (u32, &Shard<S, P>)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let slot = *self.directory.get(at)?;
            let shard = self.shard(slot);
            at += 1 << (self.depth - shard.depth);
            Some((slot, shard))
        })
    }

    /// Slots are below this.
    pub(super) fn slot_limit(&self) -> usize {
        self.shards.len()
    }

    pub(super) fn last_walk(&self) -> &Walk<S::Index, P> {
        &self.walk
    }

    /// Every live name and its payload, shard by shard.
    pub fn iter(&self) -> impl Iterator<Item = (Digest, P)> {
        self.slots().flat_map(|(_, shard)| shard.all().filter_map(|e| Some((Digest(e.digest), e.value()?))))
    }

    /// Every tombstone, shard by shard.
    pub fn tombstones(&self) -> impl Iterator<Item = Digest> {
        self.slots().flat_map(|(_, shard)| shard.all().filter(|e| e.is_tombstone()).map(|e| Digest(e.digest)))
    }

    /// The tombstones of one shard, as slots name them in a [`Change`].
    pub fn tombstones_of(&self, slot: u32) -> impl Iterator<Item = Digest> {
        let shard = self.shard(slot);
        let tombstones = shard.all().filter(|edge| edge.is_tombstone());
        tombstones.map(|edge| Digest(edge.digest)).take(shard.n_tombstones)
    }

    /// The state of one shard, as slots name them in a [`Change`].
    pub fn shard_state(&self, slot: u32) -> ShardState {
        let shard = self.shard(slot);
        ShardState {
            id: ShardId { prefix: shard.prefix, depth: shard.depth },
            sides: shard.sides,
            tweak: shard.tweak,
            version: shard.version,
            stash: shard.stash.iter().map(|edge| Digest(edge.digest)).collect(),
        }
    }

    /// The states of all shards, in order of digests: with the names and the tombstones, what [`Graph::restore`] takes.
    pub fn shard_states(&self) -> impl Iterator<Item = ShardState> {
        self.slots().map(|(slot, _)| self.shard_state(slot))
    }

    /// The shard that a digest belongs to.
    pub fn shard_of(&self, digest: Digest) -> ShardId {
        let shard = self.shard(self.slot(digest.0));
        ShardId { prefix: shard.prefix, depth: shard.depth }
    }

    /// Shards of the graph.
    pub fn n_shards(&self) -> usize {
        self.shards.len() - self.free_slots.len()
    }

    /// Heap memory of the graph, in bytes.
    pub fn heap_bytes(&self) -> usize {
        let shards: usize = self.shards.iter().flatten().map(Shard::heap_bytes).sum();
        shards + self.shards.capacity() * size_of::<Option<Shard<S, P>>>() + self.directory.capacity() * 4
    }
}

/// Shards that are solved, and the slots that they are to replace.
struct Plan<S: Sizing, P: Payload> {
    slots: Vec<u32>,
    shards: Vec<Shard<S, P>>,
}

/// Solves sets of edges, splitting those that are too large.
pub(super) struct Solver<'a> {
    pub(super) settings: &'a Settings,
}

impl Solver<'_> {
    /// Solves `edges` as the shard `prefix`/`depth`, or as the shards below it, and hands over each with the scratch
    /// that holds its colouring order.
    pub(super) fn solve_or_split<S: Sizing, P: Payload>(
        &self,
        prefix: u32,
        depth: u8,
        tweak: u16,
        edges: Vec<Edge<P>>,
        scratch: &mut Scratch<S::Index>,
        done: &mut impl FnMut(Shard<S, P>, &mut Scratch<S::Index>),
    ) -> Result<(), InsertError> {
        if S::SHARDED && edges.len() > MAX_SHARD && depth < MAX_DEPTH {
            let one = |edge: &Edge<P>| edge.digest >> (63 - u32::from(depth)) & 1 != 0;
            let n_right = edges.iter().filter(|edge| one(edge)).count();
            let mut left = Vec::with_capacity(with_slack(edges.len() - n_right));
            let mut right = Vec::with_capacity(with_slack(n_right));
            for edge in edges {
                if one(&edge) { right.push(edge) } else { left.push(edge) }
            }
            self.solve_or_split(prefix * 2, depth + 1, tweak, left, scratch, done)?;
            return self.solve_or_split(prefix * 2 + 1, depth + 1, tweak, right, scratch, done);
        }
        let mut shard = Shard::unsolved(prefix, depth, tweak, edges);
        match shard.solve(self.settings, scratch) {
            Ok(()) => {
                done(shard, scratch);
                Ok(())
            }
            Err(NoSolution { duplicate: Some(digest), .. }) => Err(InsertError::DuplicateDigest { digest }),
            Err(NoSolution { n_names, .. }) => Err(InsertError::Unsolvable { n_names, tries: MAX_TRIES }),
        }
    }

    /// The tweak that a new shard starts from: keyed, so that an enemy cannot prepare cycles for it.
    pub(super) fn first_tweak(&self, prefix: usize) -> u16 {
        (mix64(self.settings.seed ^ prefix as u64) >> 49) as u16
    }
}

impl<I: Index, P: Payload> Walk<I, P> {
    /// Walks what a new edge joins; false when it would close a cycle.
    fn join<S: Sizing<Index = I>>(&mut self, shard: &Shard<S, P>, edge: &Edge<P>, check: Check) -> bool {
        let (u, v) = shard.endpoints(edge.digest);
        let (u_root, v_root) = (shard.root(u), shard.root(v));
        if u_root == v_root {
            return false;
        }
        // The component with the larger root gets new colours: more often than not it is the smaller one.
        let (joint, start, old_root) = if u_root < v_root { (u, v, v_root) } else { (v, u, u_root) };
        shard.walk(start, true, &mut self.visits);
        self.record(shard, joint, (shard.edges.len(), edge), check);
        let old_root = self.visits.iter().position(|visit| visit.vertex == old_root);
        self.delta = Delta::OldRoot(old_root.expect("a component has its root"));
        self.fresh = self.visits.len() == 1;
        self.fresh_joint = shard.is_isolated(joint);
        true
    }

    /// Walks what hangs below the edge whose value changed.
    fn alter<S: Sizing<Index = I>>(&mut self, shard: &Shard<S, P>, edge: usize, old: Option<P>, check: Check) {
        let (parent, child) = shard.parent_and_child(edge);
        shard.walk(child, false, &mut self.visits);
        self.record(shard, parent, (edge, &shard.edges[edge]), check);
        self.delta = Delta::Altered(old, shard.edges[edge].value());
        (self.fresh, self.fresh_joint) = (false, false);
    }

    /// Writes down the changed part: what `visits` walked, over `first` (which is or will be at that index) from `joint`.
    fn record<S: Sizing<Index = I>>(
        &mut self,
        shard: &Shard<S, P>,
        joint: u32,
        first: (usize, &Edge<P>),
        check: Check,
    ) {
        self.joint = joint;
        self.steps.clear();
        self.steps.extend(self.visits.iter().enumerate().map(|(at, visit)| {
            let (index, edge) = if at == 0 { first } else { (visit.edge.get(), &shard.edges[visit.edge.get()]) };
            Step {
                vertex: visit.vertex,
                parent: visit.parent,
                edge: index as u32,
                payload: edge.value(),
                fingerprint: check.fingerprint_of(edge.digest),
            }
        }));
    }
}

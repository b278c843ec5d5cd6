//! The shared graph: every name of a table, in shards. It is Phase I of the papers, once for a whole network.
//!
//! A graph determines which cells a name joins. It does not store what they hold: each switch has a [`Colouring`] for
//! that. A mutation returns a [`Change`], from which each colouring derives its own update message.
//!
//! Cost: 13 bytes per edge (32-bit payload) and 10 bytes per cell: about 37 bytes per name. An insert walks one of the
//! two components that the edge joins: the one with the larger root, which is mostly the smaller component. Sometimes
//! an insert rebuilds its shard; `fibula bench update --contestants latency` measures how long that takes. A shard of
//! more than [`MAX_SHARD`] names splits, unless its prefix is longer than the number of names explains: then it grows, from
//! [`CROWDED`] names on splits a few times more, and refuses more names than a shard can have, about 26,000. Neighbours with fewer than [`MIN_SHARD`] names merge.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections IV.B, V.A.
//! Limits: names with equal digests cannot both be in a table. The module doc of `shard` says what bounds a rebuild.

use std::collections::HashMap;

use super::colouring::{Colouring, fill};
use super::fingerprint::Check;
use super::index::Index;
use super::query::OthelloQuery;
use super::shard::{Edge, MAX_TRIES, NoSolution, Place, Scratch, Shard, Visit};
use super::sizing::{Sharded, Sizing};
use super::{Settings, rows};
use crate::base::crowd::{Crowd, Rule};
use crate::base::directory::{Directory, Plan, most_depth};
use crate::base::part::{Change, MAX_DEPTH, PartId, Payload};
use crate::base::partition::with_slack;
use crate::hash::tweak::TWEAKS;
use crate::hash::{Digest, mix64};
use crate::traits::{InsertError, Replicated, RestoreError, Row, Skeleton};

/// A shard with more names splits in two when it is next solved.
pub const MAX_SHARD: usize = 3000;
/// A shard with more names splits even if its prefix is long already: otherwise names that an attacker chose would fill it,
/// and names of others would be refused with them.
const CROWDED: usize = 20_000;
/// The most names that a shard can surely have: its cells are numbered by 16 bits.
const MOST_NAMES: usize = 24_000;
/// How many bits longer the prefix of such a shard may be. So the directory of a switch takes at most a byte a name.
const CROWDED_DEPTH: u8 = 4;
/// Two neighbours that both have fewer names merge.
pub const MIN_SHARD: usize = 1000;
/// A batch with at least this many changes per shard (on average over all shards) solves shards again and sends them
/// whole. A solve costs 25 ns for every name of a shard, and 10 KB. A single insert costs 1 us and 60 bytes.
const BULK: usize = 50;
/// The same threshold where only time counts. A solve costs about 35 ns for every name of the shard, and an insert
/// about 0.4 us if the shard is in the cache.
const BULK_ALONE: usize = 256;

/// One vertex whose colour changed. Its colour is that of `parent` (an index into the steps) XOR the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<P> {
    pub(super) vertex: u32,
    pub(super) parent: u32,
    /// The edge to the parent.
    pub(super) edge: u32,
    /// The edge's payload. `None` is a removed name: drop.
    pub(super) payload: Option<P>,
    /// The fingerprint of the edge's name, in its field.
    pub(super) fingerprint: u64,
}

/// How the changed colours differ from the old ones.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delta<P> {
    /// The changed part was a component whose root was the vertex of this step.
    OldRoot(usize),
    /// The value of one name changed from the first to the second.
    Altered(Option<P>, Option<P>),
}

/// The vertices whose colours the latest mutation changed. They are attached at `joint`.
#[derive(Clone)]
pub(super) struct Walk<I, P> {
    /// The vertex outside the changed part to which the first step's edge leads.
    pub(super) joint: u32,
    pub(super) steps: Vec<Step<P>>,
    pub(super) delta: Delta<P>,
    /// Only one vertex changed, and only the new name touches it.
    pub(super) fresh: bool,
    /// The joint was isolated: only the new name touches it.
    pub(super) fresh_joint: bool,
    visits: Vec<Visit<I>>,
}

/// The names of a table as an acyclic bipartite graph, sharded by the first bits of their digests.
#[derive(Clone)]
pub struct Graph<S: Sizing = Sharded, P: Payload = u32> {
    settings: Settings,
    shards: Directory<Shard<S, P>>,
    n_live: usize,
    walk: Walk<S::Index, P>,
    scratch: Scratch<S::Index>,
}

impl<S: Sizing, P: Payload> Graph<S, P> {
    /// An empty graph.
    pub fn new(settings: Settings) -> Self {
        let mut scratch = Scratch::default();
        let mut root = Shard::unsolved(PartId::WHOLE, 0, Vec::new());
        let solved = root.solve(&settings, &mut scratch);
        debug_assert!(solved.is_ok(), "no edges, no cycle");
        Self::assemble(settings, vec![root], scratch)
    }

    /// The graph of shards that cover all digests.
    pub(super) fn assemble(settings: Settings, shards: Vec<Shard<S, P>>, scratch: Scratch<S::Index>) -> Self {
        let n_live = shards.iter().map(Shard::n_live).sum();
        Self { settings, shards: Directory::of(shards), n_live, walk: Walk::default(), scratch }
    }

    /// The edge of `digest` in its shard, also if it is a tombstone.
    fn edge(&self, digest: Digest) -> Option<&Edge<P>> {
        let shard = self.shard(self.shards.slot(digest));
        Some(match shard.find(digest.0)? {
            Place::Edge(edge) => &shard.edges[edge],
            Place::Stash(edge) => &shard.stash[edge],
        })
    }

    /// The shard in `slot`, and those that it should merge with: each is small, and all before it together are.
    fn mergeable(&self, slot: u32) -> Vec<u32> {
        let mut n_before = 0;
        self.shards.chain(slot, |shard| {
            let n_live = shard.n_live();
            let is_small = n_live < MIN_SHARD && n_before < MIN_SHARD;
            n_before += n_live;
            is_small
        })
    }

    /// The change when the name at `place` got another value.
    fn altered(&mut self, slot: u32, place: &Place, old: Option<P>) -> Change {
        let shard = self.shards.part_mut(slot);
        shard.version += 1;
        match *place {
            Place::Edge(edge) => {
                self.walk.alter(shard, edge, old, self.settings.check());
                Change::Part { slot }
            }
            Place::Stash(_) => Change::Parts { slots: vec![slot], replaced: Vec::new() },
        }
    }

    /// Solves again the live names of `slots` (one shard, or two that merge) and `extra`.
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
        let n_names = self.n_live + added;
        let plan = self.plan(slots, edges, n_names, &mut scratch);
        self.scratch = scratch;
        let plan = plan?;
        self.n_live += added;
        Ok(self.shards.replace(vec![plan]))
    }

    /// Solves `edges` as shards that can replace those in `slots`, in a table of `n_names`. The old shards stay as they
    /// are.
    fn plan(
        &self,
        slots: &[u32],
        edges: Vec<Edge<P>>,
        n_names: usize,
        scratch: &mut Scratch<S::Index>,
    ) -> Result<Plan<Shard<S, P>>, InsertError> {
        let tweak = (self.shard(slots[0]).tweak + 1) % TWEAKS;
        let version = self.shards.next_version(slots);
        let mut parts = Vec::with_capacity(2);
        let solver = Solver { settings: &self.settings, most_depth: most_depth(n_names, MIN_SHARD) };
        solver.solve_or_split(self.shards.joined(slots), tweak, edges, scratch, &mut |mut shard, _| {
            shard.version = version;
            parts.push(shard);
        })?;
        Ok(Plan { slots: slots.to_vec(), parts })
    }

    /// The slot of a digest's shard, and the two cells that a lookup reads. Prefetches their vertices.
    pub(super) fn cells_of(&self, digest: Digest) -> (u32, [u32; 2]) {
        let slot = self.shards.slot(digest);
        let shard = self.shard(slot);
        shard.prefetch(digest.0);
        let (u, v) = shard.endpoints(digest.0);
        (slot, [u, v])
    }

    pub(super) fn shard(&self, slot: u32) -> &Shard<S, P> {
        self.shards.part(slot)
    }

    /// The shards, each in its slot.
    pub(super) fn shards(&self) -> &Directory<Shard<S, P>> {
        &self.shards
    }

    pub(super) fn last_walk(&self) -> &Walk<S::Index, P> {
        &self.walk
    }

    /// Every live name and its payload, shard by shard.
    pub fn iter(&self) -> impl Iterator<Item = (Digest, P)> {
        self.shards.iter().flat_map(|(_, shard)| shard.all().filter_map(|e| Some((Digest(e.digest), e.value()?))))
    }

    /// Every tombstone, shard by shard.
    pub fn tombstones(&self) -> impl Iterator<Item = Digest> {
        self.shards.iter().flat_map(|(_, shard)| shard.all().filter(|e| e.is_tombstone()).map(|e| Digest(e.digest)))
    }

    /// Shards of the graph.
    pub fn n_shards(&self) -> usize {
        self.shards.n_parts()
    }
}

impl<S: Sizing, P: Payload> Skeleton for Graph<S, P> {
    type Key = Digest;
    type Payload = P;
    type Query = OthelloQuery<S>;
    type View = Colouring;

    fn build(settings: &Settings, entries: &[(Digest, P)], threads: usize) -> Result<Self, InsertError> {
        Ok(Self::build_with(settings.clone(), entries, threads, |_, _| ())?.0)
    }

    fn build_filled(
        settings: &Settings,
        entries: &[(Digest, P)],
        threads: usize,
        value: impl Fn(P) -> u64 + Sync,
    ) -> Result<(Self, Colouring, OthelloQuery<S>), InsertError> {
        // The cells of a shard are filled while its edges are in the cache.
        let fill = |shard: &Shard<S, P>, scratch: &Scratch<S::Index>| fill(settings, shard, &scratch.order, &value);
        let (graph, images) = Self::build_with(settings.clone(), entries, threads, fill)?;
        let query = OthelloQuery::from_own(settings, &images);
        let colouring = Colouring::keeping(&graph, images);
        Ok((graph, colouring, query))
    }

    fn restore(settings: &Settings, rows: &[Row], entries: &[(Digest, P)]) -> Result<Self, RestoreError> {
        rows::restore(settings, rows, entries, &mut HashMap::new())
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn check(settings: &Settings, _: Digest, value: u64) -> Result<(), InsertError> {
        let value_bits = settings.value_bits;
        if value > settings.value_mask() { Err(InsertError::ValueTooWide { value, value_bits }) } else { Ok(()) }
    }

    /// Amortised O(1): see the module doc.
    fn insert(&mut self, digest: Digest, payload: P) -> Result<Change, InsertError> {
        let slot = self.shards.slot(digest);
        let max = self.settings.max_names;
        let full = self.n_live >= max;
        let shard = self.shards.part_mut(slot);
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
        if shard.is_full() || !self.walk.link(shard, edge, self.settings.check()) {
            return self.resolve(&[slot], Some(edge));
        }
        shard.version += 1;
        self.n_live += 1;
        Ok(Change::Part { slot })
    }

    /// Solves again every shard that one of the names belongs to. That costs about 35 ns for every name of these
    /// shards, and one message per shard. After an error the graph is unchanged.
    fn insert_batch(&mut self, entries: &[(Digest, P)]) -> Result<Change, InsertError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let n_names = self.n_live + entries.len();
        let planned = self.shards.plan_batch(entries, |slot, shard, entries| {
            let mut edges: Vec<_> = Vec::with_capacity(with_slack(shard.edges.len() + entries.len()));
            edges.extend(shard.all().map(|edge| Edge::new(edge.digest, edge.payload, edge.is_tombstone())));
            for &(digest, payload) in entries {
                let new = Edge::new(digest.0, payload, false);
                match shard.find(digest.0) {
                    Some(Place::Edge(at)) => edges[at] = new,
                    Some(Place::Stash(at)) => edges[shard.edges.len() + at] = new,
                    None => edges.push(new),
                }
            }
            edges.retain(|edge| !edge.is_tombstone());
            let added = edges.len() - shard.n_live();
            Ok((self.plan(&[slot], edges, n_names, &mut scratch)?, added))
        });
        self.scratch = scratch;
        let (plans, added) = planned?;
        let max = self.settings.max_names;
        if self.n_live + added > max {
            return Err(InsertError::TooManyNames { max });
        }
        self.n_live += added;
        Ok(self.shards.replace(plans))
    }

    fn crowds(&self, digests: &[Digest]) -> Vec<Crowd> {
        if !S::SHARDED {
            return Vec::new();
        }
        let rule = Rule {
            few: MAX_SHARD,
            most_depth: most_depth(self.n_live + digests.len(), MIN_SHARD),
            deeper: Some((CROWDED, CROWDED_DEPTH)),
            max: MOST_NAMES,
        };
        let live = |shard: &Shard<S, P>, digests: &mut Vec<u64>| {
            digests.extend(shard.all().filter(|edge| !edge.is_tombstone()).map(|edge| edge.digest));
        };
        self.shards.crowds(digests, rule, Shard::n_live, live)
    }

    /// The name answers drop as long as it has a tombstone. A tombstone counts as an edge until its shard is next
    /// solved. When more than 5 % of a shard are tombstones, it is solved again without them.
    fn remove(&mut self, digest: Digest) -> Change {
        let slot = self.shards.slot(digest);
        let shard = self.shards.part_mut(slot);
        let Some(place) = shard.find(digest.0) else { return Change::None };
        let Some(old) = shard.edge_mut(&place).value() else { return Change::None };
        shard.set_tombstone(&place, true);
        self.n_live -= 1;
        if shard.is_stale() {
            // Solving may fail, but tombstones must not get lost. Then they stay, and the next removal tries again.
            if let Ok(change) = self.resolve(&self.mergeable(slot), None) {
                return change;
            }
        }
        self.altered(slot, &place, Some(old))
    }

    fn touch(&mut self) -> Change {
        self.shards.touch()
    }

    fn get(&self, digest: Digest) -> Option<P> {
        self.edge(digest)?.value()
    }

    fn must_drop(&self, digest: Digest) -> bool {
        self.edge(digest).is_some_and(Edge::is_tombstone)
    }

    fn len(&self) -> usize {
        self.n_live
    }

    fn is_bulk(&self, n_changes: usize) -> bool {
        n_changes >= BULK * self.n_shards()
    }

    fn is_bulk_alone(&self, n_changes: usize) -> bool {
        n_changes > BULK_ALONE * self.n_shards()
    }

    fn part_id(&self, slot: u32) -> PartId {
        self.shard(slot).id
    }

    fn take_rows(&mut self, slots: &[u32], gone: &[PartId]) -> Vec<Row> {
        let changed = slots.iter().map(|&slot| rows::encode(self.shard(slot)));
        gone.iter().map(|&id| Row { key: id.to_key(), value: None }).chain(changed).collect()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(self.shards.iter().map(|(_, shard)| rows::encode(shard)))
    }

    fn heap_bytes(&self) -> usize {
        self.shards.iter().map(|(_, shard)| shard.heap_bytes()).sum::<usize>() + self.shards.heap_bytes()
    }
}

/// Solves sets of edges, and splits those that are too large.
pub(super) struct Solver<'a> {
    pub(super) settings: &'a Settings,
    /// The longest prefix of a shard.
    pub(super) most_depth: u8,
}

impl Solver<'_> {
    /// Solves `edges` as the shard `id`, or as shards of longer prefixes. Hands over each shard with the scratch memory
    /// that holds its colouring order.
    pub(super) fn solve_or_split<S: Sizing, P: Payload>(
        &self,
        id: PartId,
        tweak: u16,
        edges: Vec<Edge<P>>,
        scratch: &mut Scratch<S::Index>,
        done: &mut impl FnMut(Shard<S, P>, &mut Scratch<S::Index>),
    ) -> Result<(), InsertError> {
        let most_depth = match edges.len() {
            n if n > CROWDED => (self.most_depth + CROWDED_DEPTH).min(MAX_DEPTH),
            n if n > MAX_SHARD => self.most_depth,
            _ => 0,
        };
        if S::SHARDED && id.depth < most_depth {
            let one = |edge: &Edge<P>| id.next_bit(edge.digest);
            let n_right = edges.iter().filter(|edge| one(edge)).count();
            let mut left = Vec::with_capacity(with_slack(edges.len() - n_right));
            let mut right = Vec::with_capacity(with_slack(n_right));
            for edge in edges {
                if one(&edge) { right.push(edge) } else { left.push(edge) }
            }
            self.solve_or_split(id.half(0), tweak, left, scratch, done)?;
            return self.solve_or_split(id.half(1), tweak, right, scratch, done);
        }
        let mut shard = Shard::unsolved(id, tweak, edges);
        match shard.solve(self.settings, scratch) {
            Ok(()) => {
                done(shard, scratch);
                Ok(())
            }
            Err(NoSolution { duplicate: Some(digest), .. }) => Err(InsertError::DuplicateDigest { digest }),
            Err(NoSolution { n_names, .. }) if S::SHARDED && n_names > MAX_SHARD => {
                Err(InsertError::Crowded { part: id, n_names })
            }
            Err(NoSolution { n_names, .. }) => Err(InsertError::Unsolvable { n_names, tries: MAX_TRIES }),
        }
    }

    /// The first tweak of a new shard. It is keyed, so that an attacker cannot prepare names that form cycles.
    pub(super) fn first_tweak(&self, prefix: usize) -> u16 {
        (mix64(self.settings.seed ^ prefix as u64) >> 49) as u16
    }
}

impl<I: Index, P: Payload> Default for Walk<I, P> {
    fn default() -> Self {
        let (steps, visits) = (Vec::new(), Vec::new());
        Self { joint: 0, steps, delta: Delta::OldRoot(0), fresh: false, fresh_joint: false, visits }
    }
}

impl<I: Index, P: Payload> Walk<I, P> {
    /// Adds an edge to a shard. Returns false, and changes nothing, if it would close a cycle.
    pub(super) fn link<S: Sizing<Index = I>>(&mut self, shard: &mut Shard<S, P>, edge: Edge<P>, check: Check) -> bool {
        let joined = self.join(shard, &edge, check);
        if joined {
            shard.link(edge, self.joint, &self.visits);
        }
        joined
    }

    /// Walks the components that a new edge joins. Returns false if it would close a cycle.
    fn join<S: Sizing<Index = I>>(&mut self, shard: &Shard<S, P>, edge: &Edge<P>, check: Check) -> bool {
        let (u, v) = shard.endpoints(edge.digest);
        let (u_root, v_root) = (shard.root(u), shard.root(v));
        if u_root == v_root {
            return false;
        }
        // The component with the larger root gets new colours. It is mostly the smaller one.
        let (joint, start, old_root) = if u_root < v_root { (u, v, v_root) } else { (v, u, u_root) };
        shard.walk(start, true, &mut self.visits);
        self.record(shard, joint, (shard.edges.len(), edge), check);
        let old_root = self.visits.iter().position(|visit| visit.vertex == old_root);
        self.delta = Delta::OldRoot(old_root.expect("a component has its root"));
        self.fresh = self.visits.len() == 1;
        self.fresh_joint = shard.is_isolated(joint);
        true
    }

    /// Walks the subtree below the edge whose value changed.
    fn alter<S: Sizing<Index = I>>(&mut self, shard: &Shard<S, P>, edge: usize, old: Option<P>, check: Check) {
        let (parent, child) = shard.parent_and_child(edge);
        shard.walk(child, false, &mut self.visits);
        self.record(shard, parent, (edge, &shard.edges[edge]), check);
        self.delta = Delta::Altered(old, shard.edges[edge].value());
        (self.fresh, self.fresh_joint) = (false, false);
    }

    /// Records the changed part: what `visits` walked, from `joint` over the edge `first` (with the index that it has
    /// or will have).
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

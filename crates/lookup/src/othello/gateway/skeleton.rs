//! OGW, names and places: which slot each name has, and the cells that yield it. Both are the same at every switch.
//!
//! Cost: per name, about 36 bytes, the name and the payload. An insert or a removal costs as much as in the graph of an
//! Othello, and a digest of the name.

use super::query::GatewayQuery;
use super::rows::LinkedPages;
use super::update::SlotShard;
use super::view::GatewayView;
use super::{Settings, n_edges, othello_settings, rows};
use crate::base::part::{Change, PartId, Payload};
use crate::base::rows::ChangedParts;
use crate::base::undivided::is_bulk;
use crate::cuckoo::exact::{Layout, NameHash};
use crate::cuckoo::places::Hash;
use crate::hash::Digest;
use crate::othello::graph::Graph;
use crate::othello::shard::{Edge, Place};
use crate::othello::{Colouring, ShardImage, Sharded};
use crate::traits::{InsertError, RestoreError, Row, Skeleton};

/// The contents of a slot: the payload of an edge of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot<const W: usize, P> {
    pub(super) name: [u64; W],
    pub(super) payload: P,
}

impl<const W: usize, P: Default> Default for Slot<W, P> {
    fn default() -> Self {
        Self { name: [0; W], payload: P::default() }
    }
}

/// What the latest mutation did.
pub(super) enum Latest<const W: usize, P> {
    /// One name was inserted, removed, or got another payload.
    Name(NameChange<W, P>),
    /// Shards were rebuilt: each with its slot in the graph and its cells, and the ids that they replace.
    Shards(Vec<(u32, ShardImage)>, Vec<PartId>),
}

/// A name that was inserted, removed, or got another payload.
pub(super) struct NameChange<const W: usize, P> {
    /// Its shard.
    pub(super) id: PartId,
    /// Its slot in the shard.
    pub(super) slot: u32,
    pub(super) name: [u64; W],
    pub(super) old: Option<P>,
    pub(super) new: Option<P>,
    /// Cells that changed, with their new indices.
    pub(super) cells: Vec<(u32, u64)>,
    /// What the cells contribute to the change of their shard's digest.
    pub(super) cells_digest: u64,
}

/// Names with their payloads and their slots.
pub struct GatewaySkeleton<const W: usize, P: Payload = u32> {
    settings: Settings,
    hash: NameHash,
    pub(super) layout: Layout,
    pub(super) seed: u64,
    pub(super) graph: Graph<Sharded, Slot<W, P>>,
    /// The colouring by indices. Its digests start at 0, because only their differences are used.
    colouring: Colouring,
    pub(super) version: u64,
    pub(super) latest: Latest<W, P>,
    pub(super) changed: ChangedParts,
    pub(super) pages: LinkedPages,
}

/// What the two cells of an edge XOR to: its index.
fn index<P>(edge: u32, _payload: Option<P>) -> u64 {
    edge.into()
}

impl<const W: usize, P: Payload> GatewaySkeleton<W, P> {
    /// # Panics
    /// When names of `settings.name_bytes` do not fit into `W` words.
    pub(super) fn with_graph(settings: &Settings, graph: Graph<Sharded, Slot<W, P>>, version: u64) -> Self {
        Self {
            settings: settings.clone(),
            hash: NameHash::new(settings),
            layout: settings.layout::<W>(),
            seed: settings.seed(),
            graph,
            colouring: Colouring::none(),
            version,
            latest: Latest::Shards(Vec::new(), Vec::new()),
            changed: ChangedParts::default(),
            pages: LinkedPages::default(),
        }
    }

    /// Every name and its payload, shard by shard.
    pub fn iter(&self) -> impl Iterator<Item = ([u64; W], P)> + '_ {
        self.graph.iter().map(|(_, slot)| (slot.name, slot.payload))
    }

    /// The name's digest, and its payload if it is in the graph.
    fn find(&self, name: &[u64; W]) -> Result<(Digest, Option<P>), InsertError> {
        let digest = self.hash.digest(name);
        match self.graph.get(digest) {
            Some(slot) if slot.name != *name => Err(InsertError::DuplicateDigest { digest: digest.0 }),
            found => Ok((digest, found.map(|slot| slot.payload))),
        }
    }

    /// The cells of a shard, without a version: only the table has one.
    pub(super) fn cells(&self, slot: u32) -> ShardImage {
        let first_stashed = n_edges(self.graph.shard(slot).sides);
        let stashed = |at, _| (first_stashed + at) as u64;
        ShardImage { version: 0, ..Colouring::image_by_edge(&self.graph, slot, index, stashed) }
    }

    /// A shard, whole, with its `cells`.
    pub(super) fn with_slots(&self, slot: u32, cells: ShardImage, value: &impl Fn(P) -> u64) -> SlotShard {
        let shard = self.graph.shard(slot);
        let n_edges = n_edges(shard.sides);
        let mut slots = Vec::with_capacity((n_edges + shard.stash.len()) * self.layout.slot_words);
        let mut push = |edge: Option<&Edge<Slot<W, P>>>| match edge.and_then(Edge::value) {
            Some(Slot { name, payload }) => self.layout.encode(&name, value(payload), &mut slots),
            None => slots.extend(std::iter::repeat_n(0, self.layout.slot_words)),
        };
        (0..n_edges).for_each(|edge| push(shard.edges.get(edge)));
        shard.stash.iter().for_each(|edge| push(Some(edge)));
        SlotShard { cells, slots }
    }

    /// Keeps what views need to know about a change of the graph by which `name` got another payload.
    fn keep(&mut self, change: &Change, name: [u64; W], digest: Digest, old: Option<P>, new: Option<P>) -> Change {
        let slot = match *change {
            Change::None => return Change::None,
            Change::Part { slot } => slot,
            Change::Parts { ref slots, ref replaced } => return self.keep_shards(slots, replaced, change),
        };
        self.version += 1;
        self.changed.note(change, |slot| self.graph.part_id(slot));
        let before = self.colouring.digest(slot);
        let cells = self.colouring.recolour(&self.graph, slot, index).map_or(Vec::new(), |update| update.cells);
        let shard = self.graph.shard(slot);
        let Some(Place::Edge(edge)) = shard.find(digest.0) else { unreachable!("an edge was edited") };
        self.pages.note_linked(shard.id, shard.linked().len());
        let (id, cells_digest) = (shard.id, before ^ self.colouring.digest(slot));
        self.latest = Latest::Name(NameChange { id, slot: edge as u32, name, old, new, cells, cells_digest });
        Change::Part { slot: 0 }
    }

    fn keep_shards(&mut self, slots: &[u32], replaced: &[PartId], change: &Change) -> Change {
        self.version += 1;
        self.changed.note(change, |slot| self.graph.part_id(slot));
        let new = slots.iter().map(|&slot| self.graph.part_id(slot));
        replaced.iter().copied().chain(new).for_each(|id| self.pages.note_solved(id));
        let shards = slots.iter().map(|&slot| (slot, self.cells(slot))).collect();
        self.latest = Latest::Shards(shards, replaced.to_vec());
        Change::Part { slot: 0 }
    }
}

impl<const W: usize, P: Payload> Skeleton for GatewaySkeleton<W, P> {
    type Key = [u64; W];
    type Payload = P;
    type Query = GatewayQuery<W>;
    type View = GatewayView;

    fn build(settings: &Settings, entries: &[([u64; W], P)], threads: usize) -> Result<Self, InsertError> {
        let hash = NameHash::new(settings);
        let slot = |&(name, payload): &([u64; W], P)| (hash.digest(&name), Slot { name, payload });
        let slots: Vec<_> = entries.iter().map(slot).collect();
        let graph = Graph::build(&othello_settings(settings), &slots, threads)?;
        Ok(Self::with_graph(settings, graph, 0))
    }

    fn restore(settings: &Settings, rows: &[Row], entries: &[([u64; W], P)]) -> Result<Self, RestoreError> {
        rows::restore(settings, rows, entries)
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn check(settings: &Settings, name: [u64; W], value: u64) -> Result<(), InsertError> {
        let layout = settings.layout::<W>();
        if !layout.fits(&name) {
            return Err(InsertError::NameTooLong { name_bytes: settings.name_bytes.into() });
        }
        if value > layout.value_max() {
            return Err(InsertError::ValueTooWide { value, value_bits: settings.value_bits });
        }
        Ok(())
    }

    fn insert(&mut self, name: [u64; W], payload: P) -> Result<Change, InsertError> {
        let (digest, old) = self.find(&name)?;
        let change = self.graph.insert(digest, Slot { name, payload })?;
        Ok(self.keep(&change, name, digest, old, Some(payload)))
    }

    fn insert_batch(&mut self, entries: &[([u64; W], P)]) -> Result<Change, InsertError> {
        let slot = |&(name, payload): &([u64; W], P)| Ok((self.find(&name)?.0, Slot { name, payload }));
        let mut slots = entries.iter().map(slot).collect::<Result<Vec<_>, _>>()?;
        slots.sort_by_key(|entry| entry.0);
        if let Some(pair) = slots.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1.name != pair[1].1.name) {
            return Err(InsertError::DuplicateDigest { digest: pair[0].0.0 });
        }
        match self.graph.insert_batch(&slots)? {
            ref change @ Change::Parts { ref slots, ref replaced } => Ok(self.keep_shards(slots, replaced, change)),
            _ => Ok(Change::None),
        }
    }

    fn remove(&mut self, name: [u64; W]) -> Change {
        let Ok((digest, old @ Some(_))) = self.find(&name) else { return Change::None };
        let change = self.graph.remove(digest);
        self.keep(&change, name, digest, old, None)
    }

    fn touch(&mut self) -> Change {
        self.version += 1;
        Change::Parts { slots: vec![0], replaced: Vec::new() }
    }

    fn get(&self, name: [u64; W]) -> Option<P> {
        self.find(&name).ok()?.1
    }

    fn must_drop(&self, name: [u64; W]) -> bool {
        self.get(name).is_none()
    }

    fn len(&self) -> usize {
        self.graph.len()
    }

    fn is_bulk(&self, n_changes: usize) -> bool {
        is_bulk(n_changes, self.len())
    }

    fn part_id(&self, _slot: u32) -> PartId {
        PartId::WHOLE
    }

    fn take_rows(&mut self, _slots: &[u32], _gone: &[PartId]) -> Vec<Row> {
        rows::take(self)
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(rows::all(self))
    }

    fn heap_bytes(&self) -> usize {
        self.graph.heap_bytes()
    }
}

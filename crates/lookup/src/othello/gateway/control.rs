//! OGW, control half: the graph of all names, which slot each has, and the messages that changes cause.

use super::query::GatewayQuery;
use super::update::{NameUpdate, SlotShard, Update, WholeShards};
use super::{Settings, n_edges, othello_settings, slot_digest};
use crate::cuckoo::exact::{Layout, NameHash};
use crate::cuckoo::places::Hash;
use crate::othello::graph::{Change, Graph};
use crate::othello::shard::{Edge, Place};
use crate::othello::{Colouring, Sharded};
use crate::testkit::Subject;
use crate::traits::{Control, InsertError};

/// Control half of one table: about 60 bytes and the name a name.
///
/// ```
/// use fibula_lookup::hash::{Family, SecretKey};
/// use fibula_lookup::othello::gateway::{Gateway, Settings};
/// use fibula_lookup::traits::{Control, Query};
///
/// let settings = Settings::new(6, 16, 1000, Family::MulAdd, &SecretKey::from_seed(1));
/// let mut table = Gateway::<1>::new(settings);
/// let mut switch = table.export();
/// let mut updates = Vec::new();
/// table.insert([7], 42, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!((switch.lookup([7]), switch.lookup([8])), (42, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Gateway<const W: usize> {
    settings: Settings,
    layout: Layout,
    hash: NameHash,
    seed: u64,
    /// A name's payload is its place in `names`.
    graph: Graph<Sharded, u32>,
    colouring: Colouring,
    names: Vec<([u64; W], u64)>,
    free: Vec<u32>,
    /// Digest of cells and slots, by slot of the graph.
    digests: Vec<u64>,
    version: u64,
    digest: u64,
    words: Vec<u64>,
}

/// What an edge XORs to: its index.
fn index(edge: u32, _payload: Option<u32>) -> u64 {
    edge.into()
}

impl<const W: usize> Gateway<W> {
    /// An empty table.
    /// # Panics
    /// When names of `settings.name_bytes` do not fit into `W` words.
    pub fn new(settings: Settings) -> Self {
        let graph = Graph::new(othello_settings(&settings));
        Self::with_graph(settings, graph, Vec::new())
    }

    /// Builds a table of many names at once, on up to `threads` threads.
    /// # Errors
    /// As [`Control::insert`], and [`InsertError::DuplicateDigest`] for a name that is twice in `entries`.
    /// # Panics
    /// As [`Gateway::new`].
    pub fn build(settings: Settings, entries: &[([u64; W], u64)], threads: usize) -> Result<Self, InsertError> {
        let empty = Self::new(settings);
        entries.iter().try_for_each(|(name, value)| empty.check(name, *value))?;
        let digests: Vec<_> =
            entries.iter().zip(0..).map(|((name, _), payload)| (empty.hash.digest(name), payload)).collect();
        let graph = Graph::build(othello_settings(&empty.settings), &digests, threads)?;
        Ok(Self::with_graph(empty.settings, graph, entries.to_vec()))
    }

    fn with_graph(settings: Settings, graph: Graph<Sharded, u32>, names: Vec<([u64; W], u64)>) -> Self {
        let (layout, seed, hash) = (settings.layout::<W>(), settings.seed(), NameHash::new(&settings));
        let (colouring, free, digests, words) = (Colouring::none(), Vec::new(), Vec::new(), Vec::new());
        let mut table =
            Self { settings, layout, hash, seed, graph, colouring, names, free, digests, version: 0, digest: 0, words };
        let slots: Vec<u32> = table.graph.slots().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| drop(table.image(slot)));
        table.digest = table.sum();
        table
    }

    /// Settings of the table.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Version and digest.
    pub fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    /// The names that are in, with their values, shard by shard.
    pub fn iter(&self) -> impl Iterator<Item = ([u64; W], u64)> + '_ {
        self.graph.iter().map(|(_, payload)| self.names[payload as usize])
    }

    /// The whole table as a message: the answer to a switch that asks for it.
    pub fn whole(&self) -> Update<W> {
        let mut colouring = self.colouring.clone();
        let shards = self.graph.slots().map(|(slot, _)| self.shard(&mut colouring, slot)).collect();
        Update::Table(WholeShards { from: self.version, to: self.version, digest: self.digest, shards })
    }

    fn check(&self, name: &[u64; W], value: u64) -> Result<(), InsertError> {
        if !self.layout.fits(name) {
            return Err(InsertError::NameTooLong { name_bytes: self.settings.name_bytes.into() });
        }
        if value > self.layout.value_max() {
            return Err(InsertError::ValueTooWide { value, value_bits: self.settings.value_bits });
        }
        Ok(())
    }

    /// The payload of `name`: none where it is not in, or another name has its digest.
    fn payload(&self, name: &[u64; W]) -> Option<u32> {
        let payload = self.graph.get(self.hash.digest(name))?;
        (self.names[payload as usize].0 == *name).then_some(payload)
    }

    /// The shard of a slot of the graph, whole.
    fn shard(&self, colouring: &mut Colouring, slot: u32) -> SlotShard {
        let shard = self.graph.shard(slot);
        let first_stashed = n_edges(shard.sides);
        let mut cells = colouring.image_by_edge(&self.graph, slot, index, |at, _| (first_stashed + at) as u64);
        cells.version = 0;
        let mut slots = Vec::with_capacity((first_stashed + shard.stash.len()) * self.layout.slot_words);
        let mut push = |edge: Option<&Edge<u32>>| match edge.and_then(Edge::value) {
            Some(payload) => {
                let (name, value) = self.names[payload as usize];
                self.layout.encode(&name, value, &mut slots);
            }
            None => slots.extend(std::iter::repeat_n(0, self.layout.slot_words)),
        };
        (0..first_stashed).for_each(|edge| push(shard.edges.get(edge)));
        shard.stash.iter().for_each(|edge| push(Some(edge)));
        SlotShard { cells, slots }
    }

    /// As [`Gateway::shard`]; notes the digest.
    fn image(&mut self, slot: u32) -> SlotShard {
        let mut colouring = std::mem::replace(&mut self.colouring, Colouring::none());
        let shard = self.shard(&mut colouring, slot);
        self.colouring = colouring;
        self.digests.resize(self.digests.len().max(slot as usize + 1), 0);
        self.digests[slot as usize] = shard.digest(self.seed, self.layout.slot_words);
        shard
    }

    fn sum(&self) -> u64 {
        self.graph.slots().fold(0, |digest, (slot, _)| digest ^ self.digests[slot as usize])
    }

    /// Appends the update of a change: of one name, whose value was `old` and is `new`, or of whole shards.
    fn emit(
        &mut self,
        change: &Change,
        name: &[u64; W],
        (old, new): (Option<u64>, Option<u64>),
        updates: &mut Vec<Update<W>>,
    ) {
        let from = self.version;
        if let Change::Shards { slots, .. } = change {
            let shards = slots.iter().map(|&slot| self.image(slot)).collect();
            (self.version, self.digest) = (from + 1, self.sum());
            updates.push(Update::Shards(WholeShards { from, to: self.version, digest: self.digest, shards }));
            return;
        }
        let (slot, _) = self.graph.cells_of(self.hash.digest(name));
        let shard = self.graph.shard(slot);
        let id = crate::othello::ShardId { prefix: shard.prefix, depth: shard.depth };
        let place = match shard.find(self.hash.digest(name).0) {
            Some(Place::Edge(edge)) => edge,
            Some(Place::Stash(at)) => n_edges(shard.sides) + at,
            None => return,
        } as u32;
        let before = self.colouring.digest(slot);
        let recoloured = match change {
            Change::Cells { slot } => self.colouring.recolour(&self.graph, *slot, index),
            _ => None,
        };
        let mut delta = before ^ self.colouring.digest(slot);
        for value in [old, new].into_iter().flatten() {
            self.words.clear();
            self.layout.encode(name, value, &mut self.words);
            delta ^= slot_digest(self.seed, id, place, &self.words);
        }
        self.digests[slot as usize] ^= delta;
        self.digest ^= delta;
        self.version += 1;
        let (name, value) = new.map_or(([0; W], 0), |value| (*name, value));
        let cells = recoloured.map_or(Vec::new(), |update| update.cells);
        let (to, digest) = (self.version, self.digest);
        updates.push(Update::Name(NameUpdate { id, from, to, digest, slot: place, name, value, cells }));
    }
}

impl<const W: usize> Control for Gateway<W> {
    type Key = [u64; W];
    type Query = GatewayQuery<W>;

    fn insert(&mut self, name: [u64; W], value: u64, updates: &mut Vec<Update<W>>) -> Result<(), InsertError> {
        self.check(&name, value)?;
        let digest = self.hash.digest(&name);
        if let Some(payload) = self.graph.get(digest) {
            let entry = &mut self.names[payload as usize];
            if entry.0 != name {
                return Err(InsertError::DuplicateDigest { digest: digest.0 });
            }
            let old = std::mem::replace(&mut entry.1, value);
            if old != value {
                self.emit(&Change::None, &name, (Some(old), Some(value)), updates);
            }
            return Ok(());
        }
        let payload = self.free.last().copied().unwrap_or(self.names.len() as u32);
        let change = self.graph.insert(digest, payload)?;
        if payload as usize == self.names.len() {
            self.names.push((name, value));
        } else {
            self.free.pop();
            self.names[payload as usize] = (name, value);
        }
        self.emit(&change, &name, (None, Some(value)), updates);
        Ok(())
    }

    fn insert_batch(&mut self, entries: &[([u64; W], u64)], updates: &mut Vec<Update<W>>) -> Result<(), InsertError> {
        entries.iter().try_for_each(|&(name, value)| self.insert(name, value, updates))
    }

    fn remove(&mut self, name: [u64; W], updates: &mut Vec<Update<W>>) -> bool {
        let Some(payload) = self.payload(&name) else { return false };
        let old = self.names[payload as usize].1;
        let change = self.graph.remove(self.hash.digest(&name));
        self.free.push(payload);
        self.emit(&change, &name, (Some(old), None), updates);
        true
    }

    fn get(&self, name: [u64; W]) -> Option<u64> {
        Some(self.names[self.payload(&name)? as usize].1)
    }

    fn export(&self) -> GatewayQuery<W> {
        GatewayQuery::from_table(&self.settings, &self.whole())
            .unwrap_or_else(|error| panic!("no memory for a query structure of {} names: {error}", self.len()))
    }

    fn len(&self) -> usize {
        self.graph.len()
    }
}

impl<const W: usize> Subject for Gateway<W> {
    fn must_drop(&self, name: [u64; W]) -> bool {
        self.get(name).is_none()
    }

    fn may_forget(_update: &Update<W>) -> bool {
        false
    }
}

//! Othello, control half of one table: a graph of names and the one colouring that its query half holds.

use super::Settings;
use super::colouring::{Colouring, colour};
use super::graph::{Change, Graph};
use super::query::OthelloQuery;
use super::sizing::{Sharded, Sizing};
use super::update::{ShardImage, Update};
use crate::hash::Digest;
use crate::traits::{Control, InsertError};

/// Names a shard and batch from which solving the shard anew is cheaper than inserting them: a solve costs about 35 ns
/// a name of the shard, an insert in cache about 0.4 us.
const SOLVE_FROM: usize = 256;

/// Control half of one table whose names carry their values themselves; about 44 bytes a name with 16-bit indices.
///
/// ```
/// use fibula_lookup::hash::{Family, Hasher, SecretKey};
/// use fibula_lookup::othello::{Othello, OthelloQuery, Settings};
/// use fibula_lookup::traits::{Control, Query};
///
/// let key = SecretKey::from_seed(1);
/// let hasher = Hasher::new(Family::MulAdd, &key);
/// let mut table = Othello::new(Settings::new(8, 1000, &key));
/// let mut switch: OthelloQuery = table.export();
///
/// let mut updates = Vec::new();
/// let name = hasher.digest(b"\x02\0\0\0\0\x07");
/// table.insert(name, 42, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!(switch.lookup(name), 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Othello<S: Sizing = Sharded> {
    graph: Graph<S, u64>,
    colouring: Colouring,
}

impl<S: Sizing> Othello<S> {
    /// An empty table.
    pub fn new(settings: Settings) -> Self {
        let graph = Graph::new(settings);
        let images = Colouring::export(&graph, |value| value).1.shards();
        let colouring = Colouring::of_images(&graph, images);
        Self { graph, colouring }
    }

    /// Builds both halves of a table at once, on up to `threads` threads.
    /// # Errors
    /// [`InsertError::ValueTooWide`], and those of [`Graph::build`].
    pub fn build(
        settings: Settings,
        entries: &[(Digest, u64)],
        threads: usize,
    ) -> Result<(Self, OthelloQuery<S>), InsertError> {
        let (mask, value_bits) = (settings.value_mask(), settings.value_bits);
        if let Some(&(_, value)) = entries.iter().find(|&&(_, value)| value > mask) {
            return Err(InsertError::ValueTooWide { value, value_bits });
        }
        let painted = settings.clone();
        let (graph, images) = Graph::build_with(settings, entries, threads, |shard, scratch| {
            colour(&painted, shard, &scratch.order, |value| value)
        })?;
        let query = OthelloQuery::from_own(graph.settings(), &images);
        let colouring = Colouring::of_images(&graph, images);
        Ok((Self { graph, colouring }, query))
    }

    /// The names and their graph.
    pub fn graph(&self) -> &Graph<S, u64> {
        &self.graph
    }

    fn check(&self, value: u64) -> Result<(), InsertError> {
        let settings = self.graph.settings();
        if value > settings.value_mask() {
            return Err(InsertError::ValueTooWide { value, value_bits: settings.value_bits });
        }
        Ok(())
    }

    fn emit(&mut self, change: &Change, updates: &mut Vec<Update>) {
        self.colouring.updates(&self.graph, change, |value| value, updates);
    }
}

impl<S: Sizing> Control for Othello<S> {
    type Key = Digest;
    type Query = OthelloQuery<S>;

    fn insert(&mut self, key: Digest, value: u64, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.check(value)?;
        // What an insert waits for in a cold shard: both vertices and both cells, all at once.
        self.colouring.prefetch(&self.graph, key);
        let change = self.graph.insert(key, value)?;
        self.emit(&change, updates);
        Ok(())
    }

    fn insert_batch(&mut self, entries: &[(Digest, u64)], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        for &(_, value) in entries {
            self.check(value)?;
        }
        // Many new names a shard: solve each shard once. Few: one by one, in order of digests, so that every shard is
        // brought into the cache once; the sort is stable, so that of equal keys the last wins.
        if entries.len() > self.graph.n_shards() * SOLVE_FROM {
            let change = self.graph.insert_batch(entries)?;
            self.emit(&change, updates);
            return Ok(());
        }
        let mut order: Vec<u32> = (0..entries.len() as u32).collect();
        order.sort_by_key(|&index| entries[index as usize].0);
        for index in order {
            let (key, value) = entries[index as usize];
            self.insert(key, value, updates)?;
        }
        Ok(())
    }

    fn remove(&mut self, key: Digest, updates: &mut Vec<Update>) -> bool {
        let before = self.graph.len();
        let change = self.graph.remove(key);
        self.emit(&change, updates);
        self.graph.len() < before
    }

    fn get(&self, key: Digest) -> Option<u64> {
        self.graph.get(key)
    }

    fn export(&self) -> OthelloQuery<S> {
        let mut colouring = self.colouring.clone();
        let image = |(slot, _, version, _)| {
            // The version of the last update that was emitted: later ones changed no cell, and the next builds on it.
            ShardImage { version, ..colouring.image(&self.graph, slot, |value| value) }
        };
        let images: Vec<_> = self.colouring.held(&self.graph).map(image).collect();
        OthelloQuery::from_own(self.graph.settings(), &images)
    }

    fn len(&self) -> usize {
        self.graph.len()
    }
}

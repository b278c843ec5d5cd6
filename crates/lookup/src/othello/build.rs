//! Builds a graph from all its names at once: partition by digest, then one shard after another, in cache.
//!
//! Cost: see `fibula bench build`. The names are read once to count, then once for every slice of at most
//! [`MAX_STREAMS`] shards, and written once, to where they stay: first touching memory is a third of a build, so no copy
//! is made in between. Threads take slices; each shard is solved by the thread that wrote it.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::graph::{Graph, MAX_DEPTH, ShardState, Solver, prefix_of, with_slack};
use super::index::Index;
use super::shard::{Edge, MAX_STASH, NoSolution, Payload, Scratch, Shard};
use super::sizing::{Sizing, TWEAKS};
use super::{Settings, ShardId};
use crate::hash::Digest;
use crate::traits::InsertError;

/// Shards of a new table have at most so many names on average: room to grow, and none above the splitting point. A
/// power of two, for tables have one more often than not, and half as many names a shard cost 0.15 bits a name more.
const MEAN_SHARD: usize = 2048;
/// Shards that are written at once: their current lines fit the second-level cache, their pages the TLB.
const MAX_STREAMS: usize = 2048;

impl<S: Sizing, P: Payload> Graph<S, P> {
    /// Builds the graph of `entries` on up to `threads` threads.
    /// # Errors
    /// [`InsertError::TooManyNames`], [`InsertError::DuplicateDigest`], [`InsertError::Unsolvable`].
    pub fn build(settings: Settings, entries: &[(Digest, P)], threads: usize) -> Result<Self, InsertError> {
        Ok(Self::build_with(settings, entries, threads, |_, _| ())?.0)
    }

    /// As [`Graph::build`], and what `each` makes of every shard while its order is in the scratch, in order of digests.
    pub(super) fn build_with<T: Send>(
        settings: Settings,
        entries: &[(Digest, P)],
        threads: usize,
        each: impl Fn(&Shard<S, P>, &Scratch<S::Index>) -> T + Sync,
    ) -> Result<(Self, Vec<T>), InsertError> {
        if entries.len() > settings.max_names {
            return Err(InsertError::TooManyNames { max: settings.max_names });
        }
        let depth = first_depth::<S>(entries.len());
        let n_shards = 1usize << depth;
        let n_slices = threads.max(n_shards.div_ceil(MAX_STREAMS)).clamp(1, n_shards);
        let counts = count(entries, depth);
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        let work = || {
            let solver = Solver { settings: &settings };
            let mut scratch = Scratch::default();
            loop {
                let slice = next.fetch_add(1, Ordering::Relaxed);
                if slice >= n_slices {
                    return;
                }
                let prefixes = slice * n_shards / n_slices..(slice + 1) * n_shards / n_slices;
                let mut solved = Vec::new();
                let shards = shards_of(entries, depth, prefixes.clone(), &counts);
                let outcome = prefixes.zip(shards).try_for_each(|(prefix, edges)| {
                    let tweak = solver.first_tweak(prefix);
                    solver.solve_or_split(prefix as u32, depth, tweak, edges, &mut scratch, &mut |shard, scratch| {
                        let made = each(&shard, scratch);
                        solved.push((shard, made));
                    })
                });
                results.lock().expect("no panic in a worker").push((slice, outcome.map(|()| solved)));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(n_slices) {
                scope.spawn(work);
            }
            work();
        });
        let mut results = results.into_inner().expect("no panic in a worker");
        results.sort_unstable_by_key(|&(slice, _)| slice);
        let (mut shards, mut made) = (Vec::new(), Vec::new());
        for (_, solved) in results {
            for (shard, value) in solved? {
                shards.push(shard);
                made.push(value);
            }
        }
        Ok((Self::assemble(settings, shards, Scratch::default()), made))
    }

    /// Puts together what a controller stored: the same graph, so that every colouring has the same cells.
    ///
    /// `states` in order of digests, `live` and `tombstones` in any order.
    /// # Errors
    /// [`RestoreError`]: the parts do not belong together.
    pub fn restore(
        settings: Settings,
        states: &[ShardState],
        live: &[(Digest, P)],
        tombstones: &[(Digest, P)],
    ) -> Result<Self, RestoreError> {
        let depth = states.iter().map(|state| state.id.depth).max().ok_or(RestoreError::NoShards)?;
        if depth > MAX_DEPTH {
            return Err(RestoreError::Directory);
        }
        let mut owner = Vec::with_capacity(1 << depth);
        for (index, state) in states.iter().enumerate() {
            let entries = state.id.entries(depth);
            if entries.start != owner.len() || entries.end > 1 << depth {
                return Err(RestoreError::Directory);
            }
            owner.resize(entries.end, index);
        }
        if owner.len() != 1 << depth {
            return Err(RestoreError::Directory);
        }
        let mut edges: Vec<Vec<Edge<P>>> = vec![Vec::new(); states.len()];
        let mut stashes = edges.clone();
        let all = live.iter().map(|entry| (entry, false)).chain(tombstones.iter().map(|entry| (entry, true)));
        for (&(digest, payload), tombstone) in all {
            let index = owner[prefix_of(digest.0, depth)];
            let to = if states[index].stash.contains(&digest) { &mut stashes } else { &mut edges };
            to[index].push(Edge::new(digest.0, payload, tombstone));
        }
        stashes.iter_mut().for_each(|stash| stash.sort_unstable_by_key(|edge| edge.digest));
        let mut scratch = Scratch::default();
        let mut shards = Vec::with_capacity(states.len());
        for ((state, edges), stash) in states.iter().zip(edges).zip(stashes) {
            let ShardId { prefix, depth } = state.id;
            let out_of_range = !S::allows(state.sides, settings.cells_per_word())
                || state.sides.cells() as usize > S::Index::NONE.get()
                || edges.len() >= S::Index::NONE.get()
                || state.tweak >= TWEAKS
                || stash.len() > MAX_STASH
                || (depth > 0 && !S::SHARDED);
            if out_of_range {
                return Err(RestoreError::OutOfRange { prefix, depth });
            }
            let mut shard = Shard::unsolved(prefix, depth, state.tweak, edges);
            shard.n_tombstones += stash.iter().filter(|edge| edge.is_tombstone()).count();
            (shard.stash, shard.version) = (stash, state.version);
            shard.resume(state.sides, &mut scratch).map_err(|NoSolution { n_names, .. }| RestoreError::Cyclic {
                prefix,
                depth,
                n_names,
            })?;
            shards.push(shard);
        }
        Ok(Self::assemble(settings, shards, scratch))
    }
}

/// Why stored parts make no graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// No shard at all.
    #[error("the store names no shard: restore it from a backup")]
    NoShards,
    /// Shards overlap, or leave a gap.
    #[error("the stored shards do not cover all digests exactly once: restore the store from a backup")]
    Directory,
    /// A shard's sizes, tweak or stash are outside what this table can have.
    #[error("shard {prefix:#x}/{depth} has sizes, a tweak or a stash out of range: restore the store from a backup")]
    OutOfRange {
        /// Prefix of the shard.
        prefix: u32,
        /// Bits of the prefix.
        depth: u8,
    },
    /// The stored names close a cycle under the stored tweak.
    #[error(
        "the {n_names} stored names of shard {prefix:#x}/{depth} do not fit its tweak: restore the store from a backup"
    )]
    Cyclic {
        /// Prefix of the shard.
        prefix: u32,
        /// Bits of the prefix.
        depth: u8,
        /// Names found for it.
        n_names: usize,
    },
}

/// Depth of a new table of `n_names`.
fn first_depth<S: Sizing>(n_names: usize) -> u8 {
    if !S::SHARDED {
        return 0;
    }
    (0..MAX_DEPTH).find(|&depth| n_names >> depth <= MEAN_SHARD).unwrap_or(MAX_DEPTH)
}

/// Names of every prefix of `depth` bits.
fn count<P: Payload>(entries: &[(Digest, P)], depth: u8) -> Vec<u32> {
    let mut counts = vec![0; 1 << depth];
    for &(digest, _) in entries {
        counts[prefix_of(digest.0, depth)] += 1;
    }
    counts
}

/// The edges of every shard of `prefixes`, with room for the inserts to come.
fn shards_of<P: Payload>(
    entries: &[(Digest, P)],
    depth: u8,
    prefixes: Range<usize>,
    counts: &[u32],
) -> Vec<Vec<Edge<P>>> {
    let n_names = counts[prefixes.clone()].iter();
    let mut shards: Vec<_> = n_names.map(|&n_names| Vec::with_capacity(with_slack(n_names as usize))).collect();
    for &(digest, payload) in entries {
        // A prefix below the range wraps to a large number.
        if let Some(shard) = shards.get_mut(prefix_of(digest.0, depth).wrapping_sub(prefixes.start)) {
            shard.push(Edge::new(digest.0, payload, false));
        }
    }
    shards
}

//! Builds a graph from all its names at once, and puts together what a controller stored of one.
//!
//! Cost: see `fibula bench build`; how names are dealt out to shards is in [`crate::partition`].

use super::graph::{Graph, MAX_DEPTH, ShardState, Solver, prefix_of};
use super::index::Index;
use super::shard::{Edge, MAX_STASH, NoSolution, Payload, Scratch, Shard};
use super::sizing::{Sizing, TWEAKS};
use super::{Settings, ShardId};
use crate::hash::Digest;
use crate::partition;
use crate::traits::InsertError;

/// Shards of a new table have at most so many names on average: room to grow, and none above the splitting point. A
/// power of two, for tables have one more often than not, and half as many names a shard cost 0.15 bits a name more.
const MEAN_SHARD: usize = 2048;
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
        let edge = |digest: Digest, payload| Edge::new(digest.0, payload, false);
        let solver = Solver { settings: &settings };
        let solved = partition::solve(entries, depth, threads, edge, |prefix, edges, scratch| {
            let mut solved = Vec::with_capacity(1);
            let tweak = solver.first_tweak(prefix as usize);
            solver.solve_or_split(prefix, depth, tweak, edges, scratch, &mut |shard, scratch| {
                let made = each(&shard, scratch);
                solved.push((shard, made));
            })?;
            Ok(solved)
        })?;
        let (shards, made) = solved.into_iter().flatten().unzip();
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
    if S::SHARDED { partition::depth(n_names, MEAN_SHARD) } else { 0 }
}

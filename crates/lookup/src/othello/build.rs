//! Builds a graph from all its names at once.
//!
//! Cost: see `fibula bench build`. [`crate::base::partition`] distributes the names over shards.

use super::Settings;
use super::graph::{Graph, MIN_SHARD, Solver};
use super::shard::{Edge, Scratch, Shard};
use super::sizing::Sizing;
use crate::base::directory::most_depth;
use crate::base::part::{PartId, Payload};
use crate::base::partition;
use crate::hash::Digest;
use crate::traits::InsertError;

/// The most names per shard, on average, of a new table. Shards can grow, and none is above the splitting point. It is
/// a power of two because most tables have a power of two of names; half as many names per shard cost 0.15 bits more
/// per name.
const MEAN_SHARD: usize = 2048;
impl<S: Sizing, P: Payload> Graph<S, P> {
    /// The graph of `entries`, on up to `threads` threads, and the result of `each` for every shard, in the order of
    /// digests. `each` runs while the shard's order is in the scratch memory.
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
        let solver = Solver { settings: &settings, most_depth: most_depth(entries.len(), MIN_SHARD) };
        let solved = partition::solve(entries, depth, threads, edge, |prefix, edges, scratch| {
            let mut solved = Vec::with_capacity(1);
            let tweak = solver.first_tweak(prefix as usize);
            solver.solve_or_split(PartId { prefix, depth }, tweak, edges, scratch, &mut |shard, scratch| {
                let made = each(&shard, scratch);
                solved.push((shard, made));
            })?;
            Ok(solved)
        })?;
        let (shards, made) = solved.into_iter().flatten().unzip();
        Ok((Self::assemble(settings, shards, Scratch::default()), made))
    }
}

/// The depth of a new table of `n_names`.
fn first_depth<S: Sizing>(n_names: usize) -> u8 {
    if S::SHARDED { partition::depth(n_names, MEAN_SHARD) } else { 0 }
}

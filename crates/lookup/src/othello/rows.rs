//! What a store keeps for a graph besides the names: one row per shard. Rows and names together restore the graph.
//!
//! ```text
//! key:   | prefix 4, left-aligned, big-endian | depth 1 |
//! value: | cells of both sides 4 4 | tweak 2 | version 8 | stashed names | tombstones |     little-endian
//! names: | count 4 | digest 8 each |
//! ```

use std::collections::HashMap;

use super::Settings;
use super::graph::{Graph, Walk};
use super::index::Index;
use super::shard::{Edge, MAX_STASH, NoSolution, Scratch, Shard};
use super::sizing::{Sides, Sizing};
use crate::base::bytes::{Bytes, DecodeError};
use crate::base::directory::owners;
use crate::base::part::{PartId, Payload, prefix_of};
use crate::base::partition::with_slack;
use crate::hash::Digest;
use crate::hash::tweak::TWEAKS;
use crate::traits::{RestoreError, Row};

/// The row of a shard.
pub(super) fn encode<S: Sizing, P: Payload>(shard: &Shard<S, P>) -> Row {
    let mut tombstones: Vec<u64> = Vec::with_capacity(shard.n_tombstones);
    if shard.n_tombstones > 0 {
        tombstones.extend(shard.all().filter(|edge| edge.is_tombstone()).map(|edge| edge.digest));
        tombstones.sort_unstable();
    }
    let stash: Vec<u64> = shard.stash.iter().map(|edge| edge.digest).collect();
    let mut value = Vec::with_capacity(26 + 8 * (stash.len() + tombstones.len()));
    value.extend(shard.sides.a.to_le_bytes());
    value.extend(shard.sides.b.to_le_bytes());
    value.extend(shard.tweak.to_le_bytes());
    value.extend(shard.version.to_le_bytes());
    for digests in [stash, tombstones] {
        value.extend((digests.len() as u32).to_le_bytes());
        digests.iter().for_each(|digest| value.extend(digest.to_le_bytes()));
    }
    Row { key: shard.id.to_key(), value: Some(value) }
}

/// A decoded row.
struct State {
    id: PartId,
    sides: Sides,
    tweak: u16,
    version: u64,
    stash: Vec<u64>,
    tombstones: Vec<u64>,
}

fn decode(row: &Row) -> Result<State, DecodeError> {
    let id = PartId::from_key(&row.key)?;
    let mut bytes = Bytes(row.value.as_deref().unwrap_or_default());
    let sides = Sides { a: bytes.u32()?, b: bytes.u32()? };
    let (tweak, version) = (bytes.u16()?, bytes.u64()?);
    let mut digests = || {
        let count = bytes.count(8)?;
        (0..count).map(|_| Ok(bytes.u64()?)).collect::<Result<Vec<_>, DecodeError>>()
    };
    let (stash, tombstones) = (digests()?, digests()?);
    bytes.end()?;
    Ok(State { id, sides, tweak, version, stash, tombstones })
}

/// The graph of `rows` and `live` names. It is the stored one, so every colouring has the same cells.
///
/// The edges of a shard are in another order, unless `linked` has the names that were linked since it was solved. The
/// names used are removed from `linked`.
pub(super) fn restore<S: Sizing, P: Payload>(
    settings: &Settings,
    rows: &[Row],
    live: &[(Digest, P)],
    linked: &mut HashMap<PartId, Vec<u64>>,
) -> Result<Graph<S, P>, RestoreError> {
    let mut states = rows.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    states.sort_by_key(|state| state.id.span().start);
    let ids: Vec<PartId> = states.iter().map(|state| state.id).collect();
    let (depth, owners) = owners(&ids).ok_or(RestoreError::Parts)?;
    let mut n_edges: Vec<usize> = states.iter().map(|state| state.tombstones.len()).collect();
    live.iter().for_each(|(digest, _)| n_edges[owners[prefix_of(digest.0, depth)]] += 1);
    let mut edges: Vec<Vec<Edge<P>>> = n_edges.iter().map(|&n| Vec::with_capacity(with_slack(n))).collect();
    let mut stashes: Vec<Vec<Edge<P>>> = vec![Vec::new(); states.len()];
    let gone = states.iter().flat_map(|state| &state.tombstones).map(|&digest| Edge::new(digest, P::default(), true));
    for edge in live.iter().map(|&(digest, payload)| Edge::new(digest.0, payload, false)).chain(gone) {
        let index = owners[prefix_of(edge.digest, depth)];
        let to = if states[index].stash.contains(&{ edge.digest }) { &mut stashes } else { &mut edges };
        to[index].push(edge);
    }
    stashes.iter_mut().for_each(|stash| stash.sort_unstable_by_key(|edge| edge.digest));
    let (mut scratch, mut walk) = (Scratch::default(), Walk::default());
    let mut shards = Vec::with_capacity(states.len());
    for ((state, edges), stash) in states.iter().zip(edges).zip(stashes) {
        let part = state.id;
        let out_of_range = !S::allows(state.sides, settings.cells_per_word())
            || state.sides.cells() as usize > S::Index::NONE.get()
            || edges.len() >= S::Index::NONE.get()
            || state.tweak >= TWEAKS
            || stash.len() > MAX_STASH
            || (part.depth > 0 && !S::SHARDED);
        if out_of_range {
            return Err(RestoreError::OutOfRange { part });
        }
        let misplaced = RestoreError::Places { part, n_names: edges.len() };
        let linked = linked.remove(&part).unwrap_or_default();
        let mut later: HashMap<u64, Option<Edge<P>>> = linked.iter().map(|&digest| (digest, None)).collect();
        let mut solved = Vec::with_capacity(edges.capacity());
        for edge in edges {
            match later.get_mut(&{ edge.digest }) {
                Some(place @ None) => *place = Some(edge),
                _ => solved.push(edge),
            }
        }
        let mut shard = Shard::unsolved(part, state.tweak, solved);
        (shard.stash, shard.version) = (stash, state.version);
        shard.resume(state.sides, &mut scratch).map_err(|NoSolution { .. }| misplaced.clone())?;
        for digest in linked {
            let edge = later.get_mut(&digest).and_then(Option::take).ok_or(misplaced.clone())?;
            if !walk.link(&mut shard, edge, settings.check()) {
                return Err(misplaced);
            }
        }
        shard.n_tombstones = shard.all().filter(|edge| edge.is_tombstone()).count();
        shards.push(shard);
    }
    Ok(Graph::assemble(settings.clone(), shards, scratch))
}

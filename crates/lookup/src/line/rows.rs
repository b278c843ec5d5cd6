//! What a store keeps for a skeleton besides the names: one row per group. Rows and names together restore the
//! skeleton.
//!
//! ```text
//! key:   | prefix 4, left-aligned, big-endian | depth 1 |
//! value: | version 8 | buckets of each level 2 2 2 | tweak 1, threshold 1 of every bucket |     little-endian
//! ```

use super::Settings;
use super::assign::{Entry, Rules};
use super::group::Group;
use super::layout::{LEVELS, MAX_SECOND};
use super::skeleton::LineSkeleton;
use crate::base::bytes::{Bytes, DecodeError};
use crate::base::directory::owners;
use crate::base::part::{PartId, Payload, prefix_of};
use crate::hash::Digest;
use crate::traits::{RestoreError, Row};

/// The row of a group.
pub(super) fn encode<P: Payload>(group: &Group<P>) -> Row {
    let mut value = Vec::with_capacity(14 + 2 * group.buckets.len());
    value.extend(group.version.to_le_bytes());
    group.n_buckets.iter().for_each(|n| value.extend(n.to_le_bytes()));
    group.buckets.iter().for_each(|bucket| value.extend([bucket.tweak, bucket.threshold]));
    Row { key: group.id.to_key(), value: Some(value) }
}

/// A decoded row.
struct State<'a> {
    id: PartId,
    version: u64,
    n_buckets: [u16; LEVELS],
    /// Tweak and threshold of every bucket.
    headers: &'a [[u8; 2]],
}

fn decode(row: &Row) -> Result<State<'_>, DecodeError> {
    let id = PartId::from_key(&row.key)?;
    let mut bytes = Bytes(row.value.as_deref().unwrap_or_default());
    let version = bytes.u64()?;
    let n_buckets = [bytes.u16()?, bytes.u16()?, bytes.u16()?];
    let n_all: usize = n_buckets.iter().map(|&n| usize::from(n)).sum();
    let (headers, _) = bytes.take(2 * n_all)?.as_chunks();
    bytes.end()?;
    Ok(State { id, version, n_buckets, headers })
}

/// The skeleton of `rows` and `names`. It has the same buckets as the stored one, so every view has the same cells.
pub(super) fn restore<P: Payload>(
    settings: &Settings,
    rows: &[Row],
    names: &[(Digest, P)],
) -> Result<LineSkeleton<P>, RestoreError> {
    let mut states = rows.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    states.sort_by_key(|state| state.id.span().start);
    let ids: Vec<PartId> = states.iter().map(|state| state.id).collect();
    let (depth, owners) = owners(&ids).ok_or(RestoreError::Parts)?;
    let mut n_names = vec![0; states.len()];
    names.iter().for_each(|(digest, _)| n_names[owners[prefix_of(digest.0, depth)]] += 1);
    let mut lists: Vec<Vec<_>> = n_names.into_iter().map(Vec::with_capacity).collect();
    for &(digest, payload) in names {
        lists[owners[prefix_of(digest.0, depth)]].push(Entry { digest: digest.0, payload });
    }
    let rules = Rules::new(settings);
    let mut groups = Vec::with_capacity(states.len());
    for (State { id, version, n_buckets, headers }, names) in states.into_iter().zip(lists) {
        let [first, second, third] = n_buckets;
        if first == 0 || second > MAX_SECOND || third > 1 {
            return Err(RestoreError::OutOfRange { part: id });
        }
        let group = Group::resume(rules, (id, version, n_buckets), headers, &names);
        groups.push(group.map_err(|_| RestoreError::Places { part: id, n_names: names.len() })?);
    }
    Ok(LineSkeleton::assemble(settings, groups))
}

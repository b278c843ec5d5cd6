//! What a store keeps for an OGW besides the names: the rows of its graph, the order in which names were linked, and
//! the version.
//!
//! The slot of a name is the index of its edge. A solve puts edges into an order that follows from the names. Names
//! linked later come after them in order of arrival, which is stored in pages. An insert writes one page.
//! ```text
//! version, key: | 0 |                                        value: | version 8 |
//! shard:        as for an Othello
//! page, key:    | key of its shard 5 | page 2, big-endian |  value: | digest 8 of each name, 64 except on the last |
//! ```

use std::collections::{BTreeSet, HashMap};

use super::skeleton::{GatewaySkeleton, Slot};
use super::{Settings, n_edges, othello_settings};
use crate::base::part::{PartId, Payload};
use crate::base::rows::{read_version, version_row};
use crate::cuckoo::exact::NameHash;
use crate::cuckoo::places::Hash;
use crate::hash::Digest;
use crate::othello::rows::restore as restore_graph;
use crate::traits::{RestoreError, Row, Skeleton};

/// Names per page.
const PAGE: usize = 64;
/// Bytes of the key of a version, and of a shard.
const VERSION_BYTES: usize = 1;
const SHARD_BYTES: usize = 5;

/// How many names were linked, and which of their pages changed since rows were last taken.
#[derive(Debug, Default)]
pub(super) struct LinkedPages {
    n_linked: HashMap<PartId, usize>,
    changed: BTreeSet<(PartId, usize)>,
}

impl LinkedPages {
    /// Notes that `n_linked` names of a shard are linked: as many as before, or one more.
    pub(super) fn note_linked(&mut self, id: PartId, n_linked: usize) {
        if n_linked > 0 && self.n_linked.insert(id, n_linked) != Some(n_linked) {
            self.changed.insert((id, (n_linked - 1) / PAGE));
        }
    }

    /// Notes that no name of a shard is linked, or that the shard is gone.
    pub(super) fn note_solved(&mut self, id: PartId) {
        let n_linked = self.n_linked.remove(&id).unwrap_or(0);
        self.changed.extend((0..n_linked.div_ceil(PAGE)).map(|page| (id, page)));
    }
}

/// The row of a page, or a row that deletes the page if it no longer exists.
fn page_row<const W: usize, P: Payload>(skeleton: &GatewaySkeleton<W, P>, id: PartId, page: usize) -> Row {
    let directory = skeleton.graph.shards();
    let shard = directory.part(directory.slot(Digest(id.span().start << 32)));
    let names = if shard.id == id { shard.linked().chunks(PAGE).nth(page) } else { None };
    let value = names.map(|names| names.iter().flat_map(|edge| { edge.digest }.to_le_bytes()).collect());
    let mut key = id.to_key();
    key.extend((page as u16).to_be_bytes());
    Row { key, value }
}

/// The rows that changed since the last call.
pub(super) fn take<const W: usize, P: Payload>(skeleton: &mut GatewaySkeleton<W, P>) -> Vec<Row> {
    let (slots, gone) = skeleton.changed.take();
    let pages = std::mem::take(&mut skeleton.pages.changed);
    let mut rows = vec![version_row(skeleton.version)];
    rows.extend(skeleton.graph.take_rows(&slots, &gone));
    rows.extend(pages.into_iter().map(|(id, page)| page_row(skeleton, id, page)));
    rows
}

/// All rows.
pub(super) fn all<const W: usize, P: Payload>(skeleton: &GatewaySkeleton<W, P>) -> impl Iterator<Item = Row> + '_ {
    let pages = skeleton.graph.shards().iter().flat_map(move |(_, shard)| {
        (0..shard.linked().len().div_ceil(PAGE)).map(move |page| page_row(skeleton, shard.id, page))
    });
    std::iter::once(version_row(skeleton.version)).chain(skeleton.graph.rows()).chain(pages)
}

/// Restores the skeleton from rows and names.
pub(super) fn restore<const W: usize, P: Payload>(
    settings: &Settings,
    rows: &[Row],
    entries: &[([u64; W], P)],
) -> Result<GatewaySkeleton<W, P>, RestoreError> {
    let version = read_version(rows)?;
    let (mut linked, mut shards) = (HashMap::<PartId, Vec<u64>>::new(), Vec::new());
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    for row in sorted {
        match row.key.len() {
            VERSION_BYTES => {}
            SHARD_BYTES => shards.push(row.clone()),
            _ => read_page(row, &mut linked)?,
        }
    }
    let n_linked: HashMap<PartId, usize> = linked.iter().map(|(&id, names)| (id, names.len())).collect();
    let hash = NameHash::new(settings);
    let slots: Vec<_> = entries.iter().map(|&(name, payload)| (hash.digest(&name), Slot { name, payload })).collect();
    let graph = restore_graph(&othello_settings(settings), &shards, &slots, &mut linked)?;
    if !linked.is_empty() {
        return Err(RestoreError::Parts);
    }
    for (_, shard) in graph.shards().iter() {
        if shard.edges.len() > n_edges(shard.sides) {
            return Err(RestoreError::Places { part: shard.id, n_names: shard.edges.len() });
        }
    }
    let mut skeleton = GatewaySkeleton::with_graph(settings, graph, version);
    skeleton.pages.n_linked = n_linked;
    Ok(skeleton)
}

/// Appends the names of a page to those of earlier pages.
fn read_page(row: &Row, linked: &mut HashMap<PartId, Vec<u64>>) -> Result<(), RestoreError> {
    let (id, page) = row.key.split_at_checked(SHARD_BYTES).ok_or(RestoreError::Parts)?;
    let id = PartId::from_key(id)?;
    let names = linked.entry(id).or_default();
    let value = row.value.as_deref().unwrap_or_default();
    let (digests, rest) = value.as_chunks::<8>();
    let is_next = page.try_into().map(u16::from_be_bytes).is_ok_and(|page| usize::from(page) * PAGE == names.len());
    if !is_next || digests.is_empty() || digests.len() > PAGE || !rest.is_empty() {
        return Err(RestoreError::OutOfRange { part: id });
    }
    names.extend(digests.iter().map(|digest| u64::from_le_bytes(*digest)));
    Ok(())
}

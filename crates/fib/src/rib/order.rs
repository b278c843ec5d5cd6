//! The numbers of names in the order of the names, in chunks.
//!
//! Cost: 4 to 8 bytes a name, and 0.5 for the map of chunks. An insert or a removal finds its chunk in the map, its
//! place by halving, and moves at most [`CHUNK`] numbers.

use super::entries::Entries;
use crate::name::Name;
use std::collections::BTreeMap;

/// The most numbers of a chunk. A full one splits in two.
const CHUNK: usize = 512;
/// A chunk with fewer numbers is joined to the one before it, if the two fit into half a chunk.
const SMALL: usize = CHUNK / 8;

/// Numbers in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Each chunk has a name as its key, and no name in it is before its key. The key of the first is `None`.
    chunks: BTreeMap<Option<Name>, Vec<u32>>,
}

/// The position of a name in its chunk, whether it is there or not.
fn place(chunk: &[u32], entries: &Entries, name: &Name) -> Result<usize, usize> {
    chunk.binary_search_by(|&number| entries.bytes(number).cmp(name.as_bytes()))
}

fn push(chunk: &mut Vec<u32>, at: usize, number: u32) {
    if chunk.len() == chunk.capacity() {
        chunk.reserve_exact(CHUNK / 8);
    }
    chunk.insert(at, number);
}

impl Order {
    /// The key of the chunk that has a name, or would have it.
    fn key_of(&self, name: &Name) -> Option<Name> {
        self.chunks.range(..=Some(name.clone())).next_back().and_then(|(key, _)| key.clone())
    }

    /// Adds the number of a new name.
    pub(super) fn insert(&mut self, entries: &Entries, name: &Name, number: u32) {
        // Names that come in their order fill one chunk after the other.
        if let Some(mut last) = self.chunks.last_entry()
            && last.get().last().is_some_and(|&last| entries.bytes(last) < name.as_bytes())
        {
            let chunk = last.get_mut();
            if chunk.len() + 1 < CHUNK {
                push(chunk, chunk.len(), number);
            } else {
                chunk.shrink_to_fit();
                self.chunks.insert(Some(name.clone()), vec![number]);
            }
            return;
        }
        let chunk = self.chunks.entry(self.key_of(name)).or_default();
        let at = place(chunk, entries, name).unwrap_or_else(|at| at);
        push(chunk, at, number);
        if chunk.len() == CHUNK {
            let upper = chunk.split_off(CHUNK / 2);
            chunk.shrink_to_fit();
            self.chunks.insert(Some(entries.name(upper[0])), upper);
        }
    }

    /// Removes the number of an existing name.
    pub(super) fn remove(&mut self, entries: &Entries, name: &Name) {
        let key = self.key_of(name);
        let Some(chunk) = self.chunks.get_mut(&key) else { return };
        if let Ok(at) = place(chunk, entries, name) {
            chunk.remove(at);
        }
        let n_left = chunk.len();
        if n_left >= SMALL {
            return;
        }
        let before = self.chunks.range(..&key).next_back().map(|(key, chunk)| (key.clone(), chunk.len()));
        if let Some((before, len)) = before
            && (n_left == 0 || len + n_left <= CHUNK / 2)
        {
            let left = self.chunks.remove(&key).unwrap_or_default();
            self.chunks.entry(before).or_default().extend(left);
        }
    }

    /// The numbers of the names after `after`, in order; all of them without one.
    pub(super) fn after(&self, entries: &Entries, after: Option<&Name>) -> impl Iterator<Item = u32> {
        let first = after.and_then(|after| self.key_of(after));
        let skip = after.and_then(|after| {
            let chunk = self.chunks.get(&first)?;
            Some(place(chunk, entries, after).map_or_else(|at| at, |at| at + 1))
        });
        self.chunks.range(first..).flat_map(|(_, chunk)| chunk.iter().copied()).skip(skip.unwrap_or(0))
    }

    /// Bytes of heap memory: the chunks, and an entry of the map for each with as much again for its nodes.
    pub(super) fn heap_bytes(&self) -> usize {
        let chunks: usize = self
            .chunks
            .iter()
            .map(|(key, chunk)| chunk.capacity() * 4 + key.as_ref().map_or(0, Name::heap_bytes))
            .sum();
        chunks + self.chunks.len() * 2 * size_of::<(Option<Name>, Vec<u32>)>()
    }
}

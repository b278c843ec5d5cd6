//! All rows that are left in a damaged file of SQLite.
//!
//! The tree of the rows is walked from its root. Where a page cannot be read, or does not fit between its neighbours, is a
//! gap. Pages below it are found by elimination: they are neither in the rest of the tree nor free. A row counts if its
//! checksum is right and it lies where the tree, or a gap of it, has room for it. So a free page, which may have rows of
//! another day, is not read, unless both the tree and the list of free pages are damaged at the right places.

use super::pages::{Cell, Key, Node, PAGE, Pages, word};
use crate::store::seal::Seal;
use std::collections::{BTreeMap, HashSet};
use std::io;

/// The root of the table of the rows: the second table that a new store gets.
const ROOT: u32 = 3;

/// Deeper than a tree of 2^32 pages.
const MAX_DEPTH: usize = 20;

/// Keys between which rows may be missing; `None`: from the first, to the last.
pub(super) type Gap = (Option<Key>, Option<Key>);

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) rows: BTreeMap<Key, Vec<u8>>,
    pub(super) seal: Option<Seal>,
    /// In order, apart from each other.
    pub(super) gaps: Vec<Gap>,
    /// Rows whose checksums are wrong: as far as they can be read, they had these kinds and keys.
    pub(super) damaged: Vec<Key>,
}

/// # Errors
/// The disk cannot read the file.
pub(super) fn read(pages: &Pages) -> io::Result<Found> {
    let mut walk = Walk { pages, found: Found::default(), seen: HashSet::new() };
    walk.down(ROOT, (None, None), 0)?;
    walk.adopt()?;
    let Walk { mut found, .. } = walk;
    found.gaps = merged(found.gaps);
    Ok(found)
}

struct Walk<'a> {
    pages: &'a Pages,
    found: Found,
    /// Pages of the tree, and those in which their records go on.
    seen: HashSet<u32>,
}

impl Walk<'_> {
    fn down(&mut self, number: u32, bounds: Gap, depth: usize) -> io::Result<()> {
        let in_range = (ROOT..=self.pages.count).contains(&number);
        let node =
            if in_range && depth < MAX_DEPTH && !self.seen.contains(&number) { self.pages.node(number)? } else { None };
        let Some(Node { cells, right, is_inner, is_whole, overflow }) = node else {
            self.found.gaps.push(bounds);
            return Ok(());
        };
        let good = |key: &Key| is_within(key, &bounds);
        let keys: Vec<Option<&Key>> = cells.iter().map(|(_, cell)| key_of(cell)).collect();
        if keys.iter().flatten().next().is_some() && !keys.iter().flatten().any(|key| good(key)) {
            // A page of elsewhere.
            self.found.gaps.push(bounds);
            return Ok(());
        }
        self.seen.insert(number);
        self.seen.extend(overflow);
        let in_order = keys.iter().flatten().is_sorted_by(|before, key| before < key);
        if !is_whole || !in_order {
            self.found.gaps.push(bounds.clone());
        }
        // The first good key from each cell on.
        let mut next = vec![bounds.1.clone(); cells.len() + 1];
        for (i, key) in keys.iter().enumerate().rev() {
            next[i] = key.filter(|key| good(key)).cloned().or_else(|| next[i + 1].clone());
        }
        let mut after = bounds.0.clone();
        for (i, (child, cell)) in cells.into_iter().enumerate() {
            match child {
                Some(child) => self.down(child, (after.clone(), next[i].clone()), depth + 1)?,
                None if is_inner => self.found.gaps.push((after.clone(), next[i].clone())),
                None => {}
            }
            let key = key_of(&cell).filter(|key| good(key) && after.as_ref() < Some(key)).cloned();
            match (cell, &key) {
                (Cell::Row(key, value), Some(_)) => drop(self.found.rows.insert(key, value)),
                (Cell::Seal(seal), _) => self.found.seal = Some(seal),
                (cell, _) => {
                    if let Cell::Damaged(Some(key)) = cell {
                        self.found.damaged.push(key);
                    }
                    self.found.gaps.push((after.clone(), next[i + 1].clone()));
                }
            }
            after = key.or(after);
        }
        match right {
            Some(right) => self.down(right, (after, bounds.1), depth + 1),
            None => Ok(()),
        }
    }

    /// Reads the pages that are nowhere in the tree, and not free either, if the tree has gaps.
    fn adopt(&mut self) -> io::Result<()> {
        if self.found.gaps.is_empty() {
            return Ok(());
        }
        let Some(free) = self.free()? else { return Ok(()) };
        for number in ROOT..=self.pages.count {
            if free.contains(&number) || self.seen.contains(&number) {
                continue;
            }
            for (_, cell) in self.pages.node(number)?.into_iter().flat_map(|node| node.cells) {
                match cell {
                    Cell::Row(key, value) if self.found.gaps.iter().any(|gap| is_within(&key, gap)) => {
                        self.found.rows.entry(key).or_insert(value);
                    }
                    Cell::Seal(seal) => self.found.seal = self.found.seal.or(Some(seal)),
                    Cell::Damaged(Some(key)) => self.found.damaged.push(key),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The free pages, if the list of them is whole.
    fn free(&self) -> io::Result<Option<HashSet<u32>>> {
        let first = self.pages.read(1)?;
        let (mut trunk, count) = (word(&first[..], 32), word(&first[..], 36) as usize);
        let mut free = HashSet::new();
        while trunk != 0 {
            let page = self.pages.read(trunk)?;
            let n_leaves = (word(&page[..], 4) as usize).min(PAGE / 4 - 2);
            let leaves = (0..n_leaves).map(|i| word(&page[..], 8 + 4 * i));
            for number in leaves.chain([trunk]) {
                let is_free = number > ROOT && number <= self.pages.count && !self.seen.contains(&number);
                if !is_free || !free.insert(number) {
                    return Ok(None);
                }
            }
            trunk = word(&page[..], 0);
        }
        Ok((free.len() == count).then_some(free))
    }
}

fn key_of(cell: &Cell) -> Option<&Key> {
    static SEAL: Key = (crate::store::seal::SEAL_ROW, Vec::new());
    match cell {
        Cell::Row(key, _) => Some(key),
        Cell::Seal(_) => Some(&SEAL),
        Cell::Damaged(_) => None,
    }
}

pub(super) fn is_within(key: &Key, (after, before): &Gap) -> bool {
    after.as_ref().is_none_or(|after| after < key) && before.as_ref().is_none_or(|before| key < before)
}

/// Gaps that overlap, or that only a row separates which may be one of another place, become one.
fn merged(mut gaps: Vec<Gap>) -> Vec<Gap> {
    gaps.sort();
    let mut merged: Vec<Gap> = Vec::new();
    for gap in gaps {
        match merged.last_mut() {
            Some((_, before)) if before.is_none() || gap.0 < *before => {
                if before.is_some() && (gap.1.is_none() || gap.1 > *before) {
                    *before = gap.1;
                }
            }
            _ => merged.push(gap),
        }
    }
    merged
}

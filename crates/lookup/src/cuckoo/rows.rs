//! The rows of slots that a store keeps besides the names: pages of 64 slots, with the digests of the names in them.
//!
//! ```text
//! key of the header: | 0 |     value: defined by the table
//! key of a page:     | table 1, from 1 | page 4, big-endian |
//! value of a page:   | occupied 8, one bit per slot | digest 8 of each occupied slot |      little-endian
//! ```
//! A page without a name has no row.

use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::part::PartId;
use crate::traits::{RestoreError, Row};

/// Slots per page.
const PAGE: usize = 64;
/// The key of the header.
const HEADER: &[u8] = &[0];

/// The pages that changed since their rows were taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirtyPages {
    is_dirty: Vec<bool>,
    /// The numbers of the dirty pages.
    pages: Vec<u32>,
}

impl DirtyPages {
    /// All pages of a table of `n_slots`, and of the table it replaces, whose dirty pages are `self`.
    pub(crate) fn replaced(&self, n_slots: usize) -> Self {
        let n_pages = n_slots.div_ceil(PAGE).max(self.is_dirty.len());
        Self { is_dirty: vec![true; n_pages], pages: (0..n_pages as u32).collect() }
    }

    /// Marks the page of a slot.
    #[inline]
    pub(crate) fn mark(&mut self, slot: u32) {
        let page = slot as usize / PAGE;
        if !std::mem::replace(&mut self.is_dirty[page], true) {
            self.pages.push(page as u32);
        }
    }

    /// The marked pages, which are unmarked by this; `n_slots` is the current size of the table.
    pub(crate) fn take(&mut self, n_slots: usize) -> Vec<u32> {
        self.pages.iter().for_each(|&page| self.is_dirty[page as usize] = false);
        self.is_dirty.truncate(n_slots.div_ceil(PAGE));
        std::mem::take(&mut self.pages)
    }
}

/// The row of the header.
pub(crate) fn header(value: Vec<u8>) -> Row {
    Row { key: HEADER.to_vec(), value: Some(value) }
}

/// The row of a page of a table of `n_slots`; `digest` is that of the name in a slot.
pub(crate) fn page(table: u8, page: u32, n_slots: usize, digest: impl Fn(u32) -> Option<u64>) -> Row {
    let mut key = vec![table];
    key.extend(page.to_be_bytes());
    let (mut occupied, mut value) = (0u64, vec![0; 8]);
    for (bit, slot) in (page as usize * PAGE..n_slots).take(PAGE).enumerate() {
        if let Some(digest) = digest(slot as u32) {
            occupied |= 1 << bit;
            value.extend(digest.to_le_bytes());
        }
    }
    value[..8].copy_from_slice(&occupied.to_le_bytes());
    Row { key, value: (occupied != 0).then_some(value) }
}

/// The rows of all pages of a table of `n_slots` that have names.
pub(crate) fn pages(table: u8, n_slots: usize, digest: impl Fn(u32) -> Option<u64>) -> impl Iterator<Item = Row> {
    let pages = 0..n_slots.div_ceil(PAGE) as u32;
    pages.map(move |number| page(table, number, n_slots, &digest)).filter(|row| row.value.is_some())
}

/// The value of the header among `rows`.
pub(crate) fn find_header(rows: &[Row]) -> Result<Bytes<'_>, RestoreError> {
    let row = rows.iter().find(|row| row.key == HEADER).ok_or(RestoreError::Parts)?;
    Ok(Bytes(row.value.as_deref().unwrap_or_default()))
}

/// Whether a row is not a page, or is a page within a table of `n_slots`.
pub(crate) fn is_in(row: &Row, n_slots: usize) -> bool {
    let page = row.key.get(1..).and_then(|page| page.try_into().ok()).map(u32::from_be_bytes);
    page.is_none_or(|page| (page as usize) < n_slots.div_ceil(PAGE))
}

/// A slot of a table: the table's index, the slot, and the digest of the name in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredSlot {
    pub(crate) table: usize,
    pub(crate) slot: u32,
    pub(crate) digest: u64,
}

/// The slots in the pages among `rows`, for tables with `n_slots` each.
pub(crate) fn read_pages(rows: &[Row], n_slots: &[usize]) -> Result<Vec<StoredSlot>, RestoreError> {
    let mut slots = Vec::new();
    for row in rows.iter().filter(|row| row.key != HEADER) {
        let mut key = Bytes(&row.key);
        let (table, page) = (key.u8()?, u32::from_be_bytes(key.array()?));
        key.end()?;
        let table = usize::from(table).wrapping_sub(1);
        let n_slots = *n_slots.get(table).ok_or(RestoreError::OutOfRange { part: PartId::WHOLE })?;
        let mut bytes = Bytes(row.value.as_deref().unwrap_or_default());
        let mut occupied = bytes.u64()?;
        while occupied != 0 {
            let slot = u64::from(page) * PAGE as u64 + u64::from(occupied.trailing_zeros());
            occupied &= occupied - 1;
            let slot = at_most("slot", slot, (n_slots as u64).saturating_sub(1))? as u32;
            slots.push(StoredSlot { table, slot, digest: bytes.u64()? });
        }
        bytes.end()?;
    }
    Ok(slots)
}

/// A count of mutations or tries in a header, refused if it is so high that counting on could overflow.
pub(crate) fn read_count(bytes: &mut Bytes) -> Result<u64, DecodeError> {
    at_most("count", bytes.u64()?, u64::MAX >> 1)
}

/// Pairs each name with its slot.
/// # Errors
/// [`RestoreError::Places`]: a name has no slot or two, or a slot has no name.
pub(crate) fn join<T>(
    mut slots: Vec<StoredSlot>,
    mut names: Vec<(u64, T)>,
) -> Result<impl Iterator<Item = (StoredSlot, T)>, RestoreError> {
    slots.sort_unstable_by_key(|slot| slot.digest);
    names.sort_unstable_by_key(|name| name.0);
    let once = slots.is_sorted_by(|a, b| a.digest < b.digest);
    let same = slots.len() == names.len() && slots.iter().zip(&names).all(|(slot, name)| slot.digest == name.0);
    if !(once && same) {
        return Err(misplaced(names.len()));
    }
    Ok(slots.into_iter().zip(names).map(|(slot, (_, name))| (slot, name)))
}

/// The error for `n_names` names that do not match the slots of their rows.
pub(crate) fn misplaced(n_names: usize) -> RestoreError {
    RestoreError::Places { part: PartId::WHOLE, n_names }
}

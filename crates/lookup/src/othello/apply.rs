//! How updates take effect on a query structure.
//!
//! An update is checked before anything is stored: its version, its bounds, and the digest of the shard after it. Then
//! cells that no other name reads are stored one by one, and all other cells as one edit in place. Whole shards are
//! written elsewhere and published.

use std::collections::HashMap;

use super::cell_prf;
use super::query::OthelloQuery;
use super::sizing::Sizing;
use super::update::{CellsUpdate, ShardImage};
use crate::base::cells::value_mask;
use crate::base::prefetch::prefetch;
use crate::traits::{Applied, ApplyError};

/// The most cells that are prefetched for one update. The mean is 3.
const MOST_CELLS: usize = 12;

/// The values that an update has already given to cells that it names again.
pub(super) struct Earlier<'a> {
    cells: &'a [(u32, u64)],
    /// By cell, if there are too many to compare each with each.
    last: Option<HashMap<u32, u64>>,
}

impl<'a> Earlier<'a> {
    /// With more cells a map is faster.
    const FEW: usize = 16;

    pub(super) fn new(cells: &'a [(u32, u64)]) -> Self {
        Self { cells, last: None }
    }

    /// The present value of the cell at `at`, if the update named it before.
    pub(super) fn value(&mut self, at: usize) -> Option<u64> {
        let (cell, value) = self.cells[at];
        if self.cells.len() > Self::FEW {
            return self.last.get_or_insert_with(HashMap::new).insert(cell, value);
        }
        self.cells[..at].iter().rev().find(|earlier| earlier.0 == cell).map(|earlier| earlier.1)
    }
}

impl<S: Sizing> OthelloQuery<S> {
    pub(super) fn apply_cells(&mut self, update: &CellsUpdate) -> Result<Applied, ApplyError> {
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        let Some((slot, &held)) = self.shards.parts().find(update.id) else {
            return malformed("the update is for a shard that is not here");
        };
        if update.to <= held.version {
            return Ok(Applied::AlreadyThere);
        }
        if held.id != update.id || update.from != held.version {
            return Err(ApplyError::Gap { part: update.id, current: held.version, from: update.from });
        }
        let (n_cells, mask) = (held.geometry.sides.cells(), value_mask(self.settings.cell_bits()));
        if update.cells.iter().any(|&(cell, value)| cell >= n_cells || value > mask) {
            return malformed("a cell or its value is out of range");
        }
        // The digest is checked before anything is stored. If a cell comes twice, its last value counts.
        let mut digest = held.digest;
        let seed = self.settings.seed;
        let mut earlier = Earlier::new(&update.cells);
        for (at, &(cell, value)) in update.cells.iter().enumerate() {
            let old = earlier.value(at).unwrap_or_else(|| self.cell(&held, cell));
            digest ^= cell_prf(seed, cell, old) ^ cell_prf(seed, cell, value);
        }
        ApplyError::check_digest(update.id, digest, update.digest)?;
        if update.fresh && update.cells.len() <= 2 {
            // A reader drops the new name until the last cell is stored.
            update.cells.iter().for_each(|&cell| self.store(held.geometry, cell));
        } else {
            self.edit_in_place(&held, &update.cells);
        }
        self.shards.note(slot, update.to, digest);
        Ok(Applied::Applied)
    }

    /// Starts fetching the cells of an update.
    pub(super) fn prefetch_cells(&self, update: &CellsUpdate) {
        let Some((_, held)) = self.shards.parts().find(update.id) else { return };
        let last = held.geometry.sides.cells() - 1;
        for &(cell, _) in update.cells.iter().take(MOST_CELLS) {
            // The update is not checked yet.
            prefetch(self.place(held.geometry, cell.min(last)).0.cast_const());
        }
    }

    pub(super) fn apply_shards(&mut self, images: &[ShardImage]) -> Result<Applied, ApplyError> {
        for image in images {
            self.check(image, true)?;
        }
        let held_version = |image: &ShardImage| self.shards.parts().newest(image.id);
        let stale = |image: &&ShardImage| held_version(image) >= Some(image.version);
        let n_stale = images.iter().filter(stale).count();
        if n_stale == images.len() {
            return Ok(Applied::AlreadyThere);
        }
        // A message that is older than a part of what is held must not take that part back.
        let newer = |image: &&ShardImage| held_version(image) > Some(image.version);
        if let Some(image) = images.iter().find(newer) {
            let current = held_version(image).expect("it is newer");
            return Err(ApplyError::Gap { part: image.id, current, from: image.version });
        }
        self.install(images)?;
        Ok(Applied::Applied)
    }
}

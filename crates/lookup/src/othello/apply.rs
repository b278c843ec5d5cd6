//! How updates take effect on a query structure: one, or many at once.
//!
//! An update is checked before anything is stored: its version, its bounds, and the digest of the shard after it. Then
//! cells that no other name reads are stored in place. All other changes go into a copy of the shard, which is
//! published as a whole. [`OthelloQuery::apply_all`] makes one copy for all updates of a shard. In a table that is
//! edited in place, it prefetches the cells of the next updates while it applies one.
//!
//! Cost (10M names, updates that change a live name): one at a time 2.5 us, or 3.2 with fingerprints of 8 bits, most of
//! it for the copy; 0.3 to 0.5 us in batches of twenty per shard, 1 us with two. Edited in place: 0.5 us one at a time,
//! 0.2 to 0.35 us in batches of 64 and more.

use std::collections::{HashMap, HashSet};

use super::cell_prf;
use super::query::{Held, OthelloQuery, Publication};
use super::sizing::Sizing;
use super::update::{CellsUpdate, ShardImage, Update};
use crate::base::cells::value_mask;
use crate::base::part::{MAX_DEPTH, PartId};
use crate::base::prefetch::prefetch;
use crate::traits::{Applied, ApplyError, Query};

/// Messages that are prefetched ahead of the one that is applied.
const PREFETCH: usize = 8;
/// The most cells that are prefetched for one update. The mean is 3.
const MOST_CELLS: usize = 12;

/// A copy of a shard that is being edited and is not published yet.
struct Open {
    slot: u32,
    held: Held,
}

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

/// The shard that an update is for, if it is for one only.
fn one_shard(update: &Update) -> Option<PartId> {
    match update {
        Update::Cells(update) => Some(update.id),
        Update::Shards(images) => {
            if let [image] = &images[..] {
                Some(image.id)
            } else {
                None
            }
        }
    }
}

/// Keys below `n_keys` and their positions, sorted by key and then by position: a counting sort. Larger keys count as
/// the last one.
fn grouped(keys: impl Iterator<Item = u64> + Clone, n_keys: usize) -> Vec<(u32, u32)> {
    let key_of = |key: u64| key.min(n_keys as u64 - 1) as usize;
    let mut starts = vec![0u32; n_keys + 1];
    keys.clone().for_each(|key| starts[key_of(key) + 1] += 1);
    for key in 0..n_keys {
        starts[key + 1] += starts[key];
    }
    let mut order = vec![(0, 0); starts[n_keys] as usize];
    for (at, key) in keys.enumerate() {
        let key = key_of(key);
        order[starts[key] as usize] = (key as u32, at as u32);
        starts[key] += 1;
    }
    order
}

impl<S: Sizing> OthelloQuery<S> {
    pub(super) fn apply_cells(&mut self, update: &CellsUpdate) -> Result<Applied, ApplyError> {
        let mut open = None;
        let applied = self.apply_to(update, &mut open);
        self.close(open);
        applied
    }

    /// Applies one update. If it needs a copy of its shard, the copy stays `open` for more updates of that shard.
    fn apply_to(&mut self, update: &CellsUpdate, open: &mut Option<Open>) -> Result<Applied, ApplyError> {
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        let Some((slot, &found)) = self.shards.parts().find(update.id) else {
            return malformed("the update is for a shard that is not here");
        };
        let held = open.as_ref().map_or(found, |open| open.held);
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
        let new = Held { version: update.to, digest, ..held };
        if let Some(open) = open {
            open.held = new;
            self.edit(&new, &update.cells);
            return Ok(Applied::Applied);
        }
        if update.fresh && update.cells.len() <= 2 {
            // A reader drops the new name until the last cell is stored.
            update.cells.iter().for_each(|&cell| self.store(held.geometry, cell));
        } else if self.publication() == Publication::Sequenced {
            self.edit_in_place(&held, &update.cells);
        } else {
            let held = self.copy(new)?;
            self.edit(&held, &update.cells);
            *open = Some(Open { slot, held });
            return Ok(Applied::Applied);
        }
        self.shards.note(slot, new.version, new.digest);
        Ok(Applied::Applied)
    }

    /// Publishes the new version of an open shard, and retires the old one.
    fn close(&mut self, open: Option<Open>) {
        let Some(Open { slot, held }) = open else { return };
        self.shards.replace(slot, held);
    }

    /// Applies many updates, and publishes one version of a shard for all its updates in a row, instead of one for
    /// each. Updates of one shard keep their order. Those of different shards may not.
    ///
    /// If every shard has many updates this saves most of the time, which goes into copies of shards. Otherwise it
    /// costs a sort. A table that is edited in place applies them in their order. Returns how many took effect.
    /// # Errors
    /// As for [`Query::apply`]. After an error, later updates of that shard are not applied. Those of other shards are,
    /// up to the next split or merge.
    pub fn apply_all(&mut self, updates: &[Update]) -> Result<usize, ApplyError> {
        if self.publication() == Publication::Sequenced {
            return self.apply_in_turn(updates);
        }
        let (mut rest, mut n_applied) = (updates, 0);
        while let Some(first) = rest.first() {
            // Splits and merges change which shards there are. They end a run.
            let n_run = rest.iter().take_while(|update| self.is_for_one(update)).count();
            n_applied += match n_run {
                0 => usize::from(self.apply(first)? == Applied::Applied),
                _ => self.apply_by_shard(&rest[..n_run])?,
            };
            rest = &rest[n_run.max(1)..];
        }
        Ok(n_applied)
    }

    /// Whether an update is for one shard that is held and that stays.
    fn is_for_one(&self, update: &Update) -> bool {
        one_shard(update).is_some_and(|id| self.held_of(id).is_some_and(|held| held.id == id))
    }

    /// The shard held at the first digest of `id`, unless `id` is longer than the directory's depth.
    fn held_of(&self, id: PartId) -> Option<&Held> {
        self.shards.parts().find(id).map(|(_, held)| held)
    }

    /// Applies updates in their order, for a table that is edited in place. Of each shard, it applies updates up to the
    /// first that is refused.
    fn apply_in_turn(&mut self, updates: &[Update]) -> Result<usize, ApplyError> {
        let (mut n_applied, mut outcome) = (0, Ok(()));
        let mut refused = HashSet::new();
        // Each update waits for its cells only. Those of the next updates are prefetched meanwhile, and before them the
        // messages that say which cells these are.
        let mut n_found = 0;
        let mut n_fetched = 0;
        for (index, update) in updates.iter().enumerate() {
            while n_found < updates.len().min(index + 2 * PREFETCH) {
                self.prefetch_shard(&updates[n_found]);
                n_found += 1;
            }
            while n_fetched < updates.len().min(index + PREFETCH) {
                self.prefetch_cells(&updates[n_fetched]);
                n_fetched += 1;
            }
            if !self.is_for_one(update) {
                // A split or merge changes which shards there are.
                outcome?;
                refused.clear();
                outcome = Ok(());
                n_applied += usize::from(self.apply(update)? == Applied::Applied);
                continue;
            }
            let id = one_shard(update).expect("it is for one");
            if !refused.is_empty() && refused.contains(&id) {
                continue;
            }
            match self.apply(update) {
                Ok(applied) => n_applied += usize::from(applied == Applied::Applied),
                Err(error) => {
                    refused.insert(id);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome.map(|()| n_applied)
    }

    /// Prefetches the record of an update's shard, and the update's list of cells.
    fn prefetch_shard(&self, update: &Update) {
        if let Update::Cells(update) = update
            && let Some(held) = self.held_of(update.id)
        {
            prefetch((&raw const *held).cast());
            prefetch(update.cells.as_ptr().cast());
        }
    }

    /// Prefetches the sequence counter and the cells of an update.
    fn prefetch_cells(&self, update: &Update) {
        if let Update::Cells(update) = update
            && let Some(held) = self.held_of(update.id)
        {
            prefetch(self.header(held.geometry).cast_const());
            let n_cells = held.geometry.sides.cells();
            for &(cell, _) in update.cells.iter().take(MOST_CELLS) {
                prefetch(self.place(held.geometry, cell.min(n_cells)).0.cast_const());
            }
        }
    }

    /// Applies updates that leave the directory as it is, shard by shard. Of each shard, it applies updates up to the
    /// first that is refused.
    fn apply_by_shard(&mut self, run: &[Update]) -> Result<usize, ApplyError> {
        let depth = self.shards.parts().depth();
        let shift = MAX_DEPTH - depth;
        let key = |update: &Update| {
            let id = one_shard(update).unwrap_or(PartId { prefix: 0, depth: 0 });
            u64::from(id.prefix) << (MAX_DEPTH - id.depth.min(MAX_DEPTH)) >> shift
        };
        let order = grouped(run.iter().map(key), 1 << depth);
        let (mut n_applied, mut outcome) = (0, Ok(()));
        let (mut open, mut skipped) = (None, None);
        for (index, &(key, at)) in order.iter().enumerate() {
            // Messages that are read out of order are cache misses. First the message is prefetched, then what it
            // points to.
            if let Some(&(_, far)) = order.get(index + 2 * PREFETCH) {
                prefetch((&raw const run[far as usize]).cast());
            }
            if let Some(&(_, near)) = order.get(index + PREFETCH)
                && let Update::Cells(update) = &run[near as usize]
            {
                prefetch(update.cells.as_ptr().cast());
            }
            if skipped != Some(key) {
                let applied = match &run[at as usize] {
                    Update::Cells(update) => self.apply_to(update, &mut open),
                    Update::Shards(images) => {
                        self.close(open.take());
                        self.apply_shards(images)
                    }
                };
                match applied {
                    Ok(applied) => n_applied += usize::from(applied == Applied::Applied),
                    Err(error) => {
                        skipped = Some(key);
                        outcome = outcome.and(Err(error));
                    }
                }
            }
            if order.get(index + 1).is_none_or(|next| next.0 != key) {
                self.close(open.take());
            }
        }
        outcome.map(|()| n_applied)
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

//! What a query structure refuses: shards from outside are checked here against everything that readers rely on.

use super::query::OthelloQuery;
use super::sizing::{Sizing, TWEAKS};
use super::update::{MAX_STASH, ShardImage};
use super::{Settings, ShardId, cell_prf, colouring};
use crate::cells::{Cells, CellsVisitor, with_cells};
use crate::hash::Digest;
use crate::traits::ApplyError;

/// Checks a shard from outside against everything that readers rely on.
pub(super) fn check<S: Sizing>(settings: &Settings, image: &ShardImage, prove_digest: bool) -> Result<(), ApplyError> {
    let malformed = |reason| Err(ApplyError::Malformed { reason });
    let cells_per_word = settings.cells_per_word();
    if !S::allows(image.sides, cells_per_word) {
        return malformed("a shard has sides that this table's sizing does not allow");
    }
    if image.words.len() as u32 != image.sides.cells() / cells_per_word || image.stash.len() > MAX_STASH {
        return malformed("a shard has another number of words than its sides say, or too large a stash");
    }
    if image.id.depth > super::graph::MAX_DEPTH
        || image.id.prefix >> image.id.depth != 0
        || (!S::SHARDED && image.id.depth != 0)
        || image.tweak >= TWEAKS
    {
        return malformed("a shard has a prefix or tweak out of range");
    }
    let mask = settings.value_mask();
    if image.stash.iter().any(|&(_, value)| value > mask) {
        return malformed("a stashed value is wider than a cell");
    }
    if prove_digest {
        let got = digest_of(settings, image);
        if got != image.digest {
            let ShardId { prefix, depth } = image.id;
            return Err(ApplyError::WrongDigest { prefix, depth, got, expected: image.digest });
        }
    }
    Ok(())
}

impl<S: Sizing> OthelloQuery<S> {
    /// As [`check`], with this table's settings.
    pub(super) fn check(&self, image: &ShardImage, prove_digest: bool) -> Result<(), ApplyError> {
        check::<S>(self.settings(), image, prove_digest)
    }

    /// Refuses images that do not cover whole shards exactly once.
    pub(super) fn covered(&self, images: &[ShardImage], depth: u8) -> Result<(), ApplyError> {
        let malformed = ApplyError::Malformed { reason: "the shards do not replace whole shards exactly once" };
        let mut ranges: Vec<_> = images.iter().map(|image| image.id.entries(depth)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        if ranges.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return Err(malformed);
        }
        if self.is_new() {
            let all = ranges.windows(2).all(|pair| pair[0].end == pair[1].start);
            let ends = (ranges.first().map(|range| range.start), ranges.last().map(|range| range.end));
            return if all && ends == (Some(0), Some(1 << depth)) { Ok(()) } else { Err(malformed) };
        }
        // Every held shard that a range touches must be covered to both its ends.
        let mut at = 0;
        while at < ranges.len() {
            let held = self.held_at(ranges[at].start >> (depth - self.depth())).id.entries(depth);
            let mut end = held.start.min(ranges[at].start);
            if ranges[at].start != held.start {
                return Err(malformed);
            }
            while end < held.end {
                match ranges.get(at) {
                    Some(range) if range.start == end => end = range.end,
                    _ => return Err(malformed),
                }
                at += 1;
                // A merge covers several held shards: go on to the end of the last.
                if end > held.end {
                    let last = self.held_at((end - 1) >> (depth - self.depth())).id.entries(depth);
                    if last.end != end {
                        return Err(malformed);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The digest of a shard, from all its cells.
fn digest_of(settings: &Settings, image: &ShardImage) -> u64 {
    struct Sum(u64, u32);
    impl CellsVisitor for Sum {
        type Output = u64;
        fn visit(self, cells: impl Cells) -> u64 {
            (0..self.1).fold(0, |digest, cell| digest ^ cell_prf(self.0, cell, cells.get(cell as usize)))
        }
    }
    let mut words = image.words.clone();
    let cells = with_cells(&mut words, settings.cell_bits(), Sum(settings.seed, image.sides.cells()))
        ^ colouring::geometry_prf(settings.seed, image.id, image.sides, image.tweak);
    let stash = |digest, &(name, value): &(Digest, u64)| digest ^ colouring::stash_prf(settings.seed, name, value);
    image.stash.iter().fold(cells, stash)
}

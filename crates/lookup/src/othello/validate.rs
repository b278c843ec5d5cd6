//! What a query structure refuses. Everything that readers rely on is checked in shards that come from outside.

use super::query::OthelloQuery;
use super::sizing::Sizing;
use super::update::{MAX_STASH, ShardImage};
use super::{Settings, cell_prf, colouring};
use crate::base::cells::{Cells, CellsVisitor, with_cells};
use crate::hash::Digest;
use crate::hash::tweak::TWEAKS;
use crate::traits::ApplyError;

/// Checks everything about a shard that readers rely on. The shard comes from outside.
pub(super) fn check<S: Sizing>(settings: &Settings, image: &ShardImage, prove_digest: bool) -> Result<(), ApplyError> {
    let malformed = |reason| Err(ApplyError::Malformed { reason });
    let cells_per_word = settings.cells_per_word();
    if !S::allows(image.sides, cells_per_word) {
        return malformed("a shard has sides that this table's sizing does not allow");
    }
    if image.words.len() as u32 != image.sides.cells() / cells_per_word || image.stash.len() > MAX_STASH {
        return malformed("a shard has another number of words than its sides say, or too large a stash");
    }
    if image.id.depth > crate::base::part::MAX_DEPTH
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
        ApplyError::check_digest(image.id, got, image.digest)?;
    }
    Ok(())
}

impl<S: Sizing> OthelloQuery<S> {
    /// As [`check`], with this table's settings.
    pub(super) fn check(&self, image: &ShardImage, prove_digest: bool) -> Result<(), ApplyError> {
        check::<S>(&self.settings, image, prove_digest)
    }
}

/// Computes the digest of a shard from all its cells.
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

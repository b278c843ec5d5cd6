//! The messages that cross the seam: absolute cell values or whole shards, with versions and a digest.
//!
//! Values are absolute, so a duplicate is harmless. The from- and to-versions show a gap. The digest of the shard after
//! the update shows that both sides agree. Bytes: `docs/formats/othello.md`.

use super::sizing::{MAX_SIDE, Sides};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::cells::cells_per_word;
use crate::base::part::{HeldPart, MAX_PARTS, PartId};
use crate::hash::Digest;
use crate::hash::tweak::TWEAKS;
use crate::traits::Image;

/// The most names that a shard holds outside its graph. It is a bound of the format.
pub const MAX_STASH: usize = super::shard::MAX_STASH;

/// An update of an Othello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Some cells of one shard changed.
    Cells(CellsUpdate),
    /// These shards replace those that held their digests: a rebuild, a split, a merge, or a resync.
    Shards(Vec<ShardImage>),
}

/// Some cells of one shard, by their new values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellsUpdate {
    /// The shard.
    pub id: PartId,
    /// The version that this update builds on.
    pub from: u64,
    /// The version after it.
    pub to: u64,
    /// Digest of the shard after it.
    pub digest: u64,
    /// Whether no name but the new one reads the changed cells, so that each may be stored in place. There is one such
    /// cell, or two if both were isolated and have emptiness indicators to set.
    pub fresh: bool,
    /// Cells with their new values. Both sides are in one index space.
    pub cells: Vec<(u32, u64)>,
}

/// A whole shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardImage {
    /// Which digests belong to it.
    pub id: PartId,
    /// Its version.
    pub version: u64,
    /// Cells of its two sides.
    pub sides: Sides,
    /// Its tweak.
    pub tweak: u16,
    /// The digest of its cells and stash.
    pub digest: u64,
    /// Names outside the graph, with their values.
    pub stash: Vec<(Digest, u64)>,
    /// Its cells.
    pub words: Vec<u64>,
}

impl Image for ShardImage {
    fn held(&self) -> HeldPart {
        HeldPart { id: self.id, version: self.version, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { version, ..self }
    }

    fn n_bytes(&self) -> usize {
        self.words.len() * 8
    }
}

impl ShardImage {
    /// Appends the bytes of the image.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        out.push(self.stash.len() as u8);
        out.extend(self.tweak.to_le_bytes());
        out.extend(self.sides.a.to_le_bytes());
        out.extend(self.sides.b.to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend(self.digest.to_le_bytes());
        for (digest, value) in &self.stash {
            out.extend(digest.0.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        out.extend_from_slice(bytemuck::cast_slice(&self.words));
    }

    /// Decodes an image of cells of `cell_bits` bits. Lengths are checked before anything is allocated.
    pub(crate) fn decode(bytes: &mut Bytes, cell_bits: u8) -> Result<Self, DecodeError> {
        let id = PartId::decode(bytes)?;
        let n_stash = at_most("stash entries", bytes.u8()?.into(), MAX_STASH as u64)?;
        let tweak = at_most("tweak", bytes.u16()?.into(), u64::from(TWEAKS) - 1)? as u16;
        let a = at_most("cells of the first side", bytes.u32()?.into(), MAX_SIDE.into())? as u32;
        let b = at_most("cells of the second side", bytes.u32()?.into(), MAX_SIDE.into())? as u32;
        let (version, digest) = (bytes.u64()?, bytes.u64()?);
        let mut stash = Vec::with_capacity(n_stash as usize);
        for _ in 0..n_stash {
            stash.push((Digest(bytes.u64()?), bytes.u64()?));
        }
        let sides = Sides { a, b };
        let n_words = sides.cells().div_ceil(cells_per_word(cell_bits)) as usize;
        let cells = bytes.take(n_words * 8)?;
        let words = cells.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
        Ok(Self { id, version, sides, tweak, digest, stash, words })
    }
}

impl Update {
    /// Appends the bytes of the update of a table with cells of `cell_bits` bits.
    pub fn encode(&self, cell_bits: u8, out: &mut Vec<u8>) {
        match self {
            Self::Cells(update) => {
                out.push(if update.fresh { 1 } else { 0 });
                update.id.encode(out);
                out.extend(update.from.to_le_bytes());
                out.extend(update.to.to_le_bytes());
                out.extend(update.digest.to_le_bytes());
                out.extend((update.cells.len() as u32).to_le_bytes());
                let value_bytes = usize::from(cell_bits).div_ceil(8);
                for (cell, value) in &update.cells {
                    out.extend(cell.to_le_bytes());
                    out.extend_from_slice(&value.to_le_bytes()[..value_bytes]);
                }
            }
            Self::Shards(shards) => {
                out.push(2);
                out.extend((shards.len() as u32).to_le_bytes());
                for shard in shards {
                    shard.encode(out);
                }
            }
        }
    }

    /// Decodes an update for a table with cells of `cell_bits` bits
    /// ([`Settings::cell_bits`](super::Settings::cell_bits)).
    /// # Errors
    /// [`DecodeError`]; lengths are checked against the bytes present before anything is allocated.
    pub fn decode(bytes: &[u8], cell_bits: u8) -> Result<Self, DecodeError> {
        Self::decode_into(bytes, cell_bits, Vec::new())
    }

    /// As [`Update::decode`], in place of an update that is no longer needed, whose memory for cells is used again.
    /// # Errors
    /// [`DecodeError`]; then this is an update of no cells.
    pub fn decode_over(&mut self, bytes: &[u8], cell_bits: u8) -> Result<(), DecodeError> {
        let cells = match std::mem::replace(self, Self::Shards(Vec::new())) {
            Self::Cells(update) => update.cells,
            Self::Shards(_) => Vec::new(),
        };
        *self = Self::decode_into(bytes, cell_bits, cells)?;
        Ok(())
    }

    /// Decodes an update. Its cells, if it has any, replace those in `cells`.
    fn decode_into(bytes: &[u8], cell_bits: u8, mut cells: Vec<(u32, u64)>) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let kind = at_most("kind of update", bytes.u8()?.into(), 2)?;
        let update = if kind == 2 {
            let n_shards = at_most("shards", bytes.u32()?.into(), MAX_PARTS as u64)?;
            let mut shards = Vec::new();
            for _ in 0..n_shards {
                shards.push(ShardImage::decode(&mut bytes, cell_bits)?);
            }
            Self::Shards(shards)
        } else {
            let id = PartId::decode(&mut bytes)?;
            let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let value_bytes = usize::from(cell_bits).div_ceil(8);
            let n_cells = bytes.u32()? as usize;
            let entries = bytes.take(n_cells.saturating_mul(4 + value_bytes))?;
            cells.clear();
            match value_bytes {
                1 => get_cells::<5>(entries, &mut cells),
                2 => get_cells::<6>(entries, &mut cells),
                3 => get_cells::<7>(entries, &mut cells),
                4 => get_cells::<8>(entries, &mut cells),
                5 => get_cells::<9>(entries, &mut cells),
                6 => get_cells::<10>(entries, &mut cells),
                7 => get_cells::<11>(entries, &mut cells),
                _ => get_cells::<12>(entries, &mut cells),
            }
            Self::Cells(CellsUpdate { id, from, to, digest, fresh: kind == 1, cells })
        };
        bytes.end()?;
        Ok(update)
    }
}

/// Appends the cells of an update, each of `ENTRY` bytes: 4 of its number, the others of its value. The length is a
/// constant, so that no cell costs the call of a copy.
fn get_cells<const ENTRY: usize>(entries: &[u8], cells: &mut Vec<(u32, u64)>) {
    let (entries, _) = entries.as_chunks::<ENTRY>();
    cells.extend(entries.iter().map(|entry| {
        let mut word = [0; 16];
        word[..ENTRY].copy_from_slice(entry);
        let word = u128::from_le_bytes(word);
        (word as u32, (word >> 32) as u64)
    }));
}

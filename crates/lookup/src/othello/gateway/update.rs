//! The message that crosses the seam: a name in its slot with the cells that yield the slot, or whole shards.
//!
//! Contents are absolute, so a duplicate is harmless. Versions (of the whole table) show a gap. The digest of the table
//! after the update shows that both sides agree.
//! ```text
//! kind 0: | 0 | prefix 4 | depth 1 | from 8 | to 8 | digest 8 | slot 4 | name name_bytes | value value_bytes
//!         | n 4 | n x (cell 4, index 2) |
//! kind 1: | 1 | from 8 | to 8 | digest 8 | n 4 | n x (shard as in an update of an Othello, slots 4, words) |
//! kind 2: as kind 1, all shards in order of digests; `from` is ignored
//! ```
//! All integers are little-endian. A slot of name zero and value zero is empty.

use super::Settings;
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::part::{MAX_PARTS, PartId};
use crate::cuckoo::exact;
use crate::othello::ShardImage;

/// An update of an OGW.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update<const W: usize> {
    /// One name was inserted, removed, or got another value.
    Name(NameUpdate<W>),
    /// Shards were solved again, split or merged.
    Shards(WholeShards),
    /// All shards.
    Table(WholeShards),
}

/// One slot and some cells of one shard, by their new contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameUpdate<const W: usize> {
    /// The shard.
    pub id: PartId,
    /// The version of the table that this update builds on.
    pub from: u64,
    /// The version after it.
    pub to: u64,
    /// Digest of the table after it.
    pub digest: u64,
    /// The slot of the name.
    pub slot: u32,
    /// The name; zero with value zero empties the slot.
    pub name: [u64; W],
    /// Its value.
    pub value: u64,
    /// Cells with their new indices. Both sides are in one index space.
    pub cells: Vec<(u32, u64)>,
}

/// Whole shards, which replace those that held their digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeShards {
    /// The version of the table that this update builds on.
    pub from: u64,
    /// The version after it.
    pub to: u64,
    /// Digest of the table after it.
    pub digest: u64,
    /// The shards.
    pub shards: Vec<SlotShard>,
}

/// A whole shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotShard {
    /// Its cells. The version is 0, because only the table has one.
    pub cells: ShardImage,
    /// Its slots.
    pub slots: Vec<u64>,
}

impl<const W: usize> Update<W> {
    /// Appends the bytes of the update.
    pub fn encode(&self, settings: &Settings, out: &mut Vec<u8>) {
        match self {
            Self::Name(update) => {
                out.push(0);
                update.id.encode(out);
                out.extend([update.from, update.to, update.digest].map(u64::to_le_bytes).as_flattened());
                out.extend(update.slot.to_le_bytes());
                out.extend_from_slice(&bytemuck::cast_slice(&update.name)[..settings.name_bytes.into()]);
                out.extend_from_slice(&update.value.to_le_bytes()[..usize::from(settings.value_bits).div_ceil(8)]);
                out.extend((update.cells.len() as u32).to_le_bytes());
                for &(cell, index) in &update.cells {
                    out.extend(cell.to_le_bytes());
                    out.extend((index as u16).to_le_bytes());
                }
            }
            Self::Shards(whole) => whole.encode(1, out),
            Self::Table(whole) => whole.encode(2, out),
        }
    }

    /// Decodes an update.
    /// # Errors
    /// [`DecodeError`]; lengths are checked against the bytes present before anything is allocated.
    pub fn decode(bytes: &[u8], settings: &Settings) -> Result<Self, DecodeError> {
        Self::decode_into(bytes, settings, Vec::new())
    }

    /// As [`Update::decode`], in place of an update that is no longer needed, whose memory for cells is used again.
    /// # Errors
    /// [`DecodeError`]; then this is an update of no shards.
    pub fn decode_over(&mut self, bytes: &[u8], settings: &Settings) -> Result<(), DecodeError> {
        let nothing = WholeShards { from: 0, to: 0, digest: 0, shards: Vec::new() };
        let cells = match std::mem::replace(self, Self::Shards(nothing)) {
            Self::Name(update) => update.cells,
            Self::Shards(_) | Self::Table(_) => Vec::new(),
        };
        *self = Self::decode_into(bytes, settings, cells)?;
        Ok(())
    }

    /// Decodes an update. Its cells, if it has any, replace those in `cells`.
    fn decode_into(bytes: &[u8], settings: &Settings, mut cells: Vec<(u32, u64)>) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let update = match at_most("kind of update", bytes.u8()?.into(), 2)? {
            0 => {
                let id = PartId::decode(&mut bytes)?;
                let (from, to, digest, slot) = (bytes.u64()?, bytes.u64()?, bytes.u64()?, bytes.u32()?);
                let name = exact::name(bytes.take(settings.name_bytes.into())?);
                let name = name.expect("the length of names was checked against W");
                let mut value = [0; 8];
                let value_bytes = usize::from(settings.value_bits).div_ceil(8);
                value[..value_bytes].copy_from_slice(bytes.take(value_bytes)?);
                cells.clear();
                for _ in 0..bytes.count(6)? {
                    cells.push((bytes.u32()?, bytes.u16()?.into()));
                }
                let value = u64::from_le_bytes(value);
                Self::Name(NameUpdate { id, from, to, digest, slot, name, value, cells })
            }
            1 => Self::Shards(WholeShards::decode(&mut bytes)?),
            _ => Self::Table(WholeShards::decode(&mut bytes)?),
        };
        bytes.end()?;
        Ok(update)
    }
}

impl WholeShards {
    fn encode(&self, kind: u8, out: &mut Vec<u8>) {
        out.push(kind);
        out.extend([self.from, self.to, self.digest].map(u64::to_le_bytes).as_flattened());
        out.extend((self.shards.len() as u32).to_le_bytes());
        for shard in &self.shards {
            shard.cells.encode(out);
            out.extend((shard.slots.len() as u32).to_le_bytes());
            out.extend_from_slice(bytemuck::cast_slice(&shard.slots));
        }
    }

    fn decode(bytes: &mut Bytes) -> Result<Self, DecodeError> {
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let n_shards = at_most("shards", bytes.u32()?.into(), MAX_PARTS as u64)?;
        let mut shards = Vec::new();
        for _ in 0..n_shards {
            let cells = ShardImage::decode(bytes, super::INDEX_BITS)?;
            let n_words = bytes.count(8)?;
            let words = bytes.take(n_words * 8)?.chunks_exact(8);
            let slots = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
            shards.push(SlotShard { cells, slots });
        }
        Ok(Self { from, to, digest, shards })
    }
}

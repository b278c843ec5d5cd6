//! The message that crosses the seam: slots by their new contents, or the whole table.
//!
//! Contents are absolute, so a duplicate is harmless; versions reveal a gap; the digest of the table after the update
//! shows that both sides agree. Writes are in the order in which readers may see them.
//!
//! Bytes: `docs/formats/cuckoo.md`.

use super::{Layout, Settings};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::part::{HeldPart, PartId};
use crate::cuckoo::{MAX_BUCKETS, SLOTS};
use crate::traits;

/// Maximum number of writes in one message: far above the longest chain of moves.
pub const MAX_WRITES: usize = 1024;

/// An update of a (2,4)-Cuckoo table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update<const W: usize> {
    /// Some slots changed.
    Slots(SlotsUpdate<W>),
    /// The table has another size or tweak, or many of its slots changed.
    Table(TableImage),
}

/// Some slots, by their new contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotsUpdate<const W: usize> {
    /// The version that this update builds on.
    pub from: u64,
    /// The version after this update.
    pub to: u64,
    /// Digest of the table after this update.
    pub digest: u64,
    /// The writes, in order.
    pub writes: Vec<SlotWrite<W>>,
}

/// A slot's new contents; name zero with value zero empties it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotWrite<const W: usize> {
    /// The slot.
    pub slot: u32,
    /// Its name.
    pub name: [u64; W],
    /// Its value.
    pub value: u64,
}

/// A whole table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableImage {
    /// Its version.
    pub version: u64,
    /// Its digest.
    pub digest: u64,
    /// Its tweak.
    pub tweak: u64,
    /// Its buckets.
    pub n_buckets: u32,
    /// Its slots.
    pub words: Vec<u64>,
}

impl traits::Image for TableImage {
    fn held(&self) -> HeldPart {
        HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { version, ..self }
    }

    fn n_bytes(&self) -> usize {
        self.words.len() * 8
    }
}

impl TableImage {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.version.to_le_bytes());
        out.extend(self.digest.to_le_bytes());
        out.extend(self.tweak.to_le_bytes());
        out.extend(self.n_buckets.to_le_bytes());
        out.extend_from_slice(bytemuck::cast_slice(&self.words));
    }

    pub(crate) fn decode(bytes: &mut Bytes, layout: Layout) -> Result<Self, DecodeError> {
        let (version, digest, tweak) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let n_buckets = at_most("buckets", bytes.u32()?.into(), MAX_BUCKETS.into())? as u32;
        let words = bytes.take(n_buckets as usize * SLOTS * layout.slot_words * 8)?;
        let words = words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
        Ok(Self { version, digest, tweak, n_buckets, words })
    }
}

impl<const W: usize> Update<W> {
    /// Appends the bytes of the update.
    pub fn encode(&self, settings: &Settings, out: &mut Vec<u8>) {
        match self {
            Self::Slots(update) => {
                out.push(0);
                out.extend(update.from.to_le_bytes());
                out.extend(update.to.to_le_bytes());
                out.extend(update.digest.to_le_bytes());
                out.extend((update.writes.len() as u32).to_le_bytes());
                let value_bytes = usize::from(settings.value_bits).div_ceil(8);
                for write in &update.writes {
                    out.extend(write.slot.to_le_bytes());
                    out.extend_from_slice(&bytemuck::cast_slice(&write.name)[..settings.name_bytes.into()]);
                    out.extend_from_slice(&write.value.to_le_bytes()[..value_bytes]);
                }
            }
            Self::Table(image) => {
                out.push(1);
                image.encode(out);
            }
        }
    }

    /// Reads an update.
    /// # Errors
    /// [`DecodeError`]; lengths are checked against the remaining bytes before anything is allocated.
    pub fn decode(bytes: &[u8], settings: &Settings) -> Result<Self, DecodeError> {
        Self::decode_into(bytes, settings, Vec::new())
    }

    /// As [`Update::decode`], in place of an update that is no longer needed, whose memory for writes is used again.
    /// # Errors
    /// [`DecodeError`]; then this is an update of no slots.
    pub fn decode_over(&mut self, bytes: &[u8], settings: &Settings) -> Result<(), DecodeError> {
        let nothing = SlotsUpdate { from: 0, to: 0, digest: 0, writes: Vec::new() };
        let writes = match std::mem::replace(self, Self::Slots(nothing)) {
            Self::Slots(update) => update.writes,
            Self::Table(_) => Vec::new(),
        };
        *self = Self::decode_into(bytes, settings, writes)?;
        Ok(())
    }

    /// Reads an update. Its writes, if it has any, replace those in `writes`.
    fn decode_into(bytes: &[u8], settings: &Settings, mut writes: Vec<SlotWrite<W>>) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let update = if at_most("kind of update", bytes.u8()?.into(), 1)? == 1 {
            Self::Table(TableImage::decode(&mut bytes, settings.layout::<W>())?)
        } else {
            let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let n_writes = at_most("writes", bytes.u32()?.into(), MAX_WRITES as u64)?;
            let value_bytes = usize::from(settings.value_bits).div_ceil(8);
            writes.clear();
            for _ in 0..n_writes {
                let slot = bytes.u32()?;
                let name = super::name(bytes.take(settings.name_bytes.into())?);
                let name = name.expect("the length of names was checked against W");
                let mut value = [0; 8];
                value[..value_bytes].copy_from_slice(bytes.take(value_bytes)?);
                writes.push(SlotWrite { slot, name, value: u64::from_le_bytes(value) });
            }
            Self::Slots(SlotsUpdate { from, to, digest, writes })
        };
        bytes.end()?;
        Ok(update)
    }
}

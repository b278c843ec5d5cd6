//! The message that crosses the seam: slots of both levels by their new contents, a new level 2, or the whole table.
//!
//! Contents are absolute, so a duplicate is harmless; versions reveal a gap; the digest of the table after the update
//! shows that both sides agree. Writes are in the order in which readers may see them, after the new level 2, if any.
//!
//! Bytes: `docs/formats/cuckoo.md`.

use super::Settings;
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::part::{HeldPart, PartId};
use crate::cuckoo::MAX_BUCKETS;
use crate::cuckoo::exact::TableImage;
use crate::hash::Digest;
use crate::traits;

/// Maximum number of writes in one message: far above what one mutation needs.
pub const MAX_WRITES: usize = 4096;

/// An update of a Cuckoo Filtable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Some slots changed, or level 2 did.
    Slots(SlotsUpdate),
    /// Everything.
    Table(Image),
}

/// Some slots, by their new contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotsUpdate {
    /// The version that this update builds on.
    pub from: u64,
    /// The version after this update.
    pub to: u64,
    /// Digest of both levels after this update.
    pub digest: u64,
    /// Level 2, if its size changed; then no write is to it.
    pub second: Option<TableImage>,
    /// The writes, in order.
    pub writes: Vec<Write>,
}

/// A slot's new contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// In level 1: fingerprint and value, zero to empty it.
    First {
        /// The slot.
        slot: u32,
        /// Its contents.
        word: u32,
    },
    /// In level 2: digest zero and value zero to empty it.
    Second {
        /// The slot.
        slot: u32,
        /// Its name.
        name: Digest,
        /// Its value.
        value: u64,
    },
}

/// A whole table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its version.
    pub version: u64,
    /// Digest of both levels.
    pub digest: u64,
    /// Tweak of level 1.
    pub tweak: u64,
    /// Buckets of level 1.
    pub n_buckets: u32,
    /// Level 1.
    pub first: Vec<u64>,
    /// Level 2.
    pub second: TableImage,
}

impl traits::Image for Image {
    fn held(&self) -> HeldPart {
        HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { version, second: self.second.under(version), ..self }
    }

    fn n_bytes(&self) -> usize {
        (self.first.len() + self.second.words.len()) * 8
    }
}

impl Update {
    /// Appends the bytes of the update.
    pub fn encode(&self, settings: &Settings, out: &mut Vec<u8>) {
        match self {
            Self::Slots(update) => {
                out.push(update.second.is_some().into());
                out.extend(update.from.to_le_bytes());
                out.extend(update.to.to_le_bytes());
                out.extend(update.digest.to_le_bytes());
                out.extend((update.writes.len() as u32).to_le_bytes());
                let slot_bytes = settings.format().slot_bits as usize / 8;
                for write in &update.writes {
                    match write {
                        Write::First { slot, word } => {
                            out.push(0);
                            out.extend(slot.to_le_bytes());
                            out.extend_from_slice(&word.to_le_bytes()[..slot_bytes]);
                        }
                        Write::Second { slot, name, value } => {
                            out.push(1);
                            out.extend(slot.to_le_bytes());
                            out.extend(name.0.to_le_bytes());
                            out.extend((*value as u32).to_le_bytes());
                        }
                    }
                }
                if let Some(second) = &update.second {
                    second.encode(out);
                }
            }
            Self::Table(image) => {
                out.push(2);
                out.extend(image.version.to_le_bytes());
                out.extend(image.digest.to_le_bytes());
                out.extend(image.tweak.to_le_bytes());
                out.extend(image.n_buckets.to_le_bytes());
                out.extend_from_slice(bytemuck::cast_slice(&image.first));
                image.second.encode(out);
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
        let nothing = SlotsUpdate { from: 0, to: 0, digest: 0, second: None, writes: Vec::new() };
        let writes = match std::mem::replace(self, Self::Slots(nothing)) {
            Self::Slots(update) => update.writes,
            Self::Table(_) => Vec::new(),
        };
        *self = Self::decode_into(bytes, settings, writes)?;
        Ok(())
    }

    /// Reads an update. Its writes, if it has any, replace those in `writes`.
    fn decode_into(bytes: &[u8], settings: &Settings, mut writes: Vec<Write>) -> Result<Self, DecodeError> {
        let (mut bytes, format) = (Bytes(bytes), settings.format());
        let kind = at_most("kind of update", bytes.u8()?.into(), 2)?;
        if kind == 2 {
            let (version, digest, tweak) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let n_buckets = at_most("buckets", bytes.u32()?.into(), MAX_BUCKETS.into())? as u32;
            let words = bytes.take(n_buckets as usize * format.bucket_words() * 8)?;
            let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("8 bytes"));
            let first = words.chunks_exact(8).map(word).collect();
            let second = TableImage::decode(&mut bytes, settings.second_layout())?;
            bytes.end()?;
            return Ok(Self::Table(Image { version, digest, tweak, n_buckets, first, second }));
        }
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let n_writes = at_most("writes", bytes.u32()?.into(), MAX_WRITES as u64)?;
        let is_short = format.slot_bits == 16;
        writes.clear();
        for _ in 0..n_writes {
            let level = at_most("level", bytes.u8()?.into(), 1)?;
            let slot = bytes.u32()?;
            writes.push(if level == 0 {
                let word = if is_short { bytes.u16()?.into() } else { bytes.u32()? };
                Write::First { slot, word }
            } else {
                Write::Second { slot, name: Digest(bytes.u64()?), value: bytes.u32()?.into() }
            });
        }
        let second = (kind == 1).then(|| TableImage::decode(&mut bytes, settings.second_layout())).transpose()?;
        bytes.end()?;
        Ok(Self::Slots(SlotsUpdate { from, to, digest, second, writes }))
    }
}

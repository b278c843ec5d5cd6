//! The message that crosses the seam: bits or counters and slots by their new contents, or the whole table.
//!
//! Contents are absolute, so a duplicate is harmless; versions reveal a gap; the digest of the table after the update
//! shows that both sides agree. Readers see an update whole or not at all, so the order of its writes is free.
//!
//! Bytes: `docs/formats/bloom-forwarders.md`.

use super::plan::{MAX_CELLS, Plan, PortShape};
use super::{COUNTER_BITS, Settings};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::part::{HeldPart, PartId};
use crate::cuckoo::exact::{SlotWrite, TableImage};
use crate::traits;

/// Maximum number of cells that one message changes: twice those of a name that moves.
pub const MAX_CELL_WRITES: usize = 128;
/// Maximum number of slots that one message writes; beyond that the exact table is sent whole.
pub const MAX_SLOT_WRITES: usize = 1024;
/// Bytes of a cell with its count.
pub const CELL_BYTES: usize = 5;
/// Bytes of a payload.
const PAYLOAD_BYTES: usize = 3;

/// An update of a Bloom forwarder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Some cells and slots changed.
    Cells(CellsUpdate),
    /// The filters have other sizes, or many names changed.
    Table(Image),
}

/// Some cells and slots, by their new contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellsUpdate {
    /// The version that this update builds on.
    pub from: u64,
    /// The version after this update.
    pub to: u64,
    /// Digest of the table after this update.
    pub digest: u64,
    /// The cells, ascending.
    pub cells: Vec<CellWrite>,
    /// Slots of the exact table; of several writes to one slot the last takes effect.
    pub slots: Vec<SlotWrite<1>>,
    /// A new exact table that replaces the current one.
    pub second: Option<TableImage>,
}

/// A counter's new value, or a bit's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellWrite {
    /// The cell's index over all filters.
    pub cell: u64,
    /// Its count; 0 or 1 where the data plane has no counters.
    pub count: u8,
}

/// A whole table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its version.
    pub version: u64,
    /// Its digest.
    pub digest: u64,
    /// Its filters.
    pub plan: Plan,
    /// Their bits.
    pub bits: Vec<u64>,
    /// Their counters, 16 per word; empty if the data plane has none.
    pub counters: Vec<u64>,
    /// The exact table.
    pub second: TableImage,
}

impl traits::Image for Image {
    fn held(&self) -> HeldPart {
        HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { version, second: TableImage { version, ..self.second }, ..self }
    }

    fn n_bytes(&self) -> usize {
        (self.bits.len() + self.counters.len() + self.second.words.len()) * 8
    }
}

impl Update {
    /// Appends the bytes of the update.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Cells(update) => {
                out.push(update.second.is_some().into());
                out.extend(update.from.to_le_bytes());
                out.extend(update.to.to_le_bytes());
                out.extend(update.digest.to_le_bytes());
                out.extend((update.cells.len() as u16).to_le_bytes());
                for write in &update.cells {
                    let packed = write.cell << COUNTER_BITS | u64::from(write.count);
                    out.extend_from_slice(&packed.to_le_bytes()[..CELL_BYTES]);
                }
                out.extend((update.slots.len() as u32).to_le_bytes());
                for write in &update.slots {
                    out.extend(write.slot.to_le_bytes());
                    out.extend(write.name[0].to_le_bytes());
                    out.extend_from_slice(&write.value.to_le_bytes()[..PAYLOAD_BYTES]);
                }
                if let Some(second) = &update.second {
                    second.encode(out);
                }
            }
            Self::Table(image) => {
                out.push(2);
                out.extend(image.version.to_le_bytes());
                out.extend(image.digest.to_le_bytes());
                out.extend((image.plan.n_ports() as u32).to_le_bytes());
                for port in image.plan.ports() {
                    out.extend(port.bits.to_le_bytes());
                    out.push(port.hashes);
                }
                out.extend_from_slice(bytemuck::cast_slice(&image.bits));
                out.extend_from_slice(bytemuck::cast_slice(&image.counters));
                image.second.encode(out);
            }
        }
    }

    /// Reads an update.
    /// # Errors
    /// [`DecodeError`]; lengths are checked against the remaining bytes before anything is allocated.
    pub fn decode(bytes: &[u8], settings: &Settings) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let kind = at_most("kind of update", bytes.u8()?.into(), 2)?;
        if kind == 2 {
            let image = decode_image(&mut bytes, settings)?;
            bytes.end()?;
            return Ok(Self::Table(image));
        }
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let n_cells = at_most("cells", bytes.u16()?.into(), MAX_CELL_WRITES as u64)?;
        let mut cells = Vec::new();
        for _ in 0..n_cells {
            let packed = wide(bytes.take(CELL_BYTES)?);
            let count = (packed & ((1 << COUNTER_BITS) - 1)) as u8;
            cells.push(CellWrite { cell: packed >> COUNTER_BITS, count });
        }
        let n_slots = at_most("slots", bytes.u32()?.into(), MAX_SLOT_WRITES as u64)?;
        let mut slots = Vec::new();
        for _ in 0..n_slots {
            let (slot, name) = (bytes.u32()?, [bytes.u64()?]);
            slots.push(SlotWrite { slot, name, value: wide(bytes.take(PAYLOAD_BYTES)?) });
        }
        let layout = settings.second_layout();
        let second = (kind == 1).then(|| TableImage::decode(&mut bytes, layout)).transpose()?;
        bytes.end()?;
        Ok(Self::Cells(CellsUpdate { from, to, digest, cells, slots, second }))
    }
}

fn decode_image(bytes: &mut Bytes, settings: &Settings) -> Result<Image, DecodeError> {
    let (version, digest) = (bytes.u64()?, bytes.u64()?);
    let n_ports = bytes.count(5)?;
    let mut ports = Vec::with_capacity(n_ports);
    for _ in 0..n_ports {
        ports.push(PortShape { bits: bytes.u32()?, hashes: bytes.u8()? });
    }
    at_most("ports", n_ports as u64, settings.max_value())?;
    let plan = Plan::new(settings.form, ports);
    let n_cells = at_most("bits of all filters", plan.n_cells(), MAX_CELLS)?;
    let mut words = |n_words: u64| -> Result<Vec<u64>, DecodeError> {
        Ok(bytes.take(n_words as usize * 8)?.chunks_exact(8).map(wide).collect())
    };
    let bits = words(n_cells.div_ceil(64))?;
    let n_counters = if settings.policy.has_counters() { n_cells.div_ceil(64 / COUNTER_BITS) } else { 0 };
    let counters = words(n_counters)?;
    let second = TableImage::decode(bytes, settings.second_layout())?;
    Ok(Image { version, digest, plan, bits, counters, second })
}

/// The little-endian integer in up to 8 bytes.
fn wide(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |wide, &byte| wide << 8 | u64::from(byte))
}

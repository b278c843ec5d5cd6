//! The message that crosses the seam: the slots that changed, each with its run, and the tables.
//!
//! Contents are absolute, versions reveal a gap, and the digest is that of everything after the update.
//! ```text
//! kind 0: | 0 | from 8 | to 8 | digest 8 | n 4 | n x (table 2, mask 5, present 1, priority 4)
//!         | n 4 | n x (number of the slot 4, slot 8, words of its run, 8 each) |
//! kind 1: | 1 | version 8 | digest 8 | n 4 | n x (table 2, mask 5, priority 4)
//!         | room for rules 4 | n 4 | n slots, 8 each | n 4 | n words of rules, 8 each |
//! ```
//! All integers are little-endian. A mask is the bits of the source, the destination, the source port and the destination
//! port, and whether the protocol counts.

use super::layout::{LINE_SLOTS, Slot, rule_words};
use super::mask::Mask;
use super::places::room_for;
use super::rule::PRIORITY_BITS;
use crate::base::bytes::{Bytes, DecodeError, at_most};

/// An update of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// One change of the rules.
    Change(Change),
    /// All rules.
    Whole(Image),
}

/// One change of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version that it builds on.
    pub from: u64,
    /// The version after it.
    pub to: u64,
    /// Digest of everything after it.
    pub digest: u64,
    /// The tables whose highest priority changed; none if a table has no rule left.
    pub tables: Vec<(u16, Mask, Option<u32>)>,
    /// Slots in ascending order, each with its run.
    pub slots: Vec<SlotWrite>,
}

/// A slot, and its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotWrite {
    /// Its number.
    pub index: u32,
    /// Its contents.
    pub slot: u64,
    /// The words of the rules that it points to.
    pub run: Vec<u64>,
}

/// All rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The version.
    pub version: u64,
    /// The digest.
    pub digest: u64,
    /// The tables, each with the highest priority of its rules.
    pub tables: Vec<(u16, Mask, u32)>,
    /// How many rules there is room for.
    pub capacity: u32,
    /// The slots.
    pub slots: Vec<u64>,
    /// The rules, and what was between them. All behind is 0.
    pub words: Vec<u64>,
}

fn put_mask(out: &mut Vec<u8>, id: u16, mask: Mask) {
    out.extend(id.to_le_bytes());
    out.extend(mask.bytes());
}

fn take_mask<const W: usize>(bytes: &mut Bytes<'_>) -> Result<(u16, Mask), DecodeError> {
    let (id, mask) = (bytes.u16()?, Mask::of_bytes::<W>(bytes.array()?));
    Ok((id, mask.ok_or(DecodeError::Malformed { reason: "a mask has more bits than its field" })?))
}

fn take_priority(bytes: &mut Bytes<'_>) -> Result<u32, DecodeError> {
    Ok(at_most("priority", bytes.u32()?.into(), (1 << PRIORITY_BITS) - 1)? as u32)
}

fn take_words(bytes: &mut Bytes<'_>, n: usize) -> Result<Vec<u64>, DecodeError> {
    let taken = bytes.take(n.saturating_mul(8))?;
    Ok(taken.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect())
}

impl Update {
    /// Appends the bytes of the update.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let word = |n: usize| (n as u32).to_le_bytes();
        match self {
            Self::Change(change) => {
                out.push(0);
                out.extend([change.from, change.to, change.digest].map(u64::to_le_bytes).as_flattened());
                out.extend(word(change.tables.len()));
                for &(id, mask, highest) in &change.tables {
                    put_mask(out, id, mask);
                    out.push(highest.is_some().into());
                    out.extend(highest.unwrap_or(0).to_le_bytes());
                }
                out.extend(word(change.slots.len()));
                for write in &change.slots {
                    out.extend(write.index.to_le_bytes());
                    out.extend(write.slot.to_le_bytes());
                    write.run.iter().for_each(|word| out.extend(word.to_le_bytes()));
                }
            }
            Self::Whole(image) => {
                out.push(1);
                out.extend([image.version, image.digest].map(u64::to_le_bytes).as_flattened());
                out.extend(word(image.tables.len()));
                for &(id, mask, highest) in &image.tables {
                    put_mask(out, id, mask);
                    out.extend(highest.to_le_bytes());
                }
                out.extend(image.capacity.to_le_bytes());
                for words in [&image.slots, &image.words] {
                    out.extend(word(words.len()));
                    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
                }
            }
        }
    }

    /// Reads an update of rules over flows with `W` words of addresses.
    /// # Errors
    /// [`DecodeError`]; lengths are checked against the remaining bytes before anything is allocated.
    pub fn decode<const W: usize>(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let update = if at_most("kind of update", bytes.u8()?.into(), 1)? == 1 {
            let (version, digest) = (bytes.u64()?, bytes.u64()?);
            let mut tables = Vec::with_capacity(bytes.count(11)?);
            for _ in 0..tables.capacity() {
                let (id, mask) = take_mask::<W>(&mut bytes)?;
                tables.push((id, mask, take_priority(&mut bytes)?));
            }
            let capacity = bytes.u32()?;
            let n_slots = bytes.count(8)?;
            let slots = take_words(&mut bytes, n_slots)?;
            let n_words = bytes.count(8)?;
            Self::Whole(Image { version, digest, tables, capacity, slots, words: take_words(&mut bytes, n_words)? })
        } else {
            let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let n_tables = bytes.count(12)?;
            let mut tables = Vec::with_capacity(n_tables);
            for _ in 0..n_tables {
                let (id, mask) = take_mask::<W>(&mut bytes)?;
                let present = at_most("presence", bytes.u8()?.into(), 1)? == 1;
                let highest = take_priority(&mut bytes)?;
                tables.push((id, mask, present.then_some(highest)));
            }
            let n_slots = bytes.count(12)?;
            let mut slots = Vec::with_capacity(n_slots);
            for _ in 0..n_slots {
                let (index, slot) = (bytes.u32()?, bytes.u64()?);
                let run = take_words(&mut bytes, Slot(slot).n_rules() * rule_words::<W>())?;
                slots.push(SlotWrite { index, slot, run });
            }
            Self::Change(Change { from, to, digest, tables, slots })
        };
        bytes.end()?;
        Ok(update)
    }
}

impl Image {
    /// Whether its parts fit each other.
    pub(super) fn check<const W: usize>(&self) -> Result<(), &'static str> {
        let n_words = self.capacity as usize * rule_words::<W>();
        if self.slots.is_empty() || !self.slots.len().is_multiple_of(LINE_SLOTS) || self.words.len() > n_words {
            return Err("slots do not fill lines, or there are more rules than room");
        }
        // No memory must be reserved for rules that never come.
        if self.capacity as usize > room_for(self.words.len() / rule_words::<W>()) {
            return Err("there is more room than its rules need");
        }
        if self.slots.iter().any(|&slot| slot != 0 && Slot(slot).words::<W>().end > self.words.len()) {
            return Err("a run ends behind the rules");
        }
        Ok(())
    }
}

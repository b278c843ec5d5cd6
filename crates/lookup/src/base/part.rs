//! Parts. A part has a version of its own: it is a shard, a group, or the whole structure.

use std::fmt;
use std::ops::Range;

use super::bytes::{Bytes, DecodeError, at_most};

/// The most bits of a digest that a directory looks at. So there are at most 2^24 parts.
pub const MAX_DEPTH: u8 = 24;
/// The most parts of a structure, and of a message.
pub const MAX_PARTS: usize = 1 << MAX_DEPTH;

/// A part of a structure: the names whose digests begin with the `depth` bits of `prefix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartId {
    /// The bits.
    pub prefix: u32,
    /// How many bits.
    pub depth: u8,
}

impl PartId {
    /// All names: the only part of a structure that is not divided.
    pub const WHOLE: Self = Self { prefix: 0, depth: 0 };

    /// The entries of the part in a directory that looks at `depth` bits.
    pub(crate) fn entries(self, depth: u8) -> Range<usize> {
        let width = depth - self.depth;
        (self.prefix as usize) << width..(self.prefix as usize + 1) << width
    }

    /// The digests of the part, as a range of their first 32 bits.
    pub fn span(self) -> Range<u64> {
        let width = 32 - u32::from(self.depth);
        u64::from(self.prefix) << width..(u64::from(self.prefix) + 1) << width
    }

    /// The half of the part whose next bit is `bit`.
    pub(crate) fn half(self, bit: u32) -> Self {
        Self { prefix: self.prefix * 2 + bit, depth: self.depth + 1 }
    }

    /// The bit of a digest that says to which half of the part it belongs.
    #[inline]
    pub(crate) fn next_bit(self, digest: u64) -> bool {
        digest >> (63 - u32::from(self.depth)) & 1 != 0
    }

    /// The key of the part's row in a store. It begins with the prefix, left-aligned, so keys sort in the order of
    /// digests.
    pub(crate) fn to_key(self) -> Vec<u8> {
        let aligned = self.span().start as u32;
        let mut key = aligned.to_be_bytes().to_vec();
        key.push(self.depth);
        key
    }

    /// The part of a key that [`PartId::to_key`] made.
    pub(crate) fn from_key(key: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(key);
        let aligned = u32::from_be_bytes(bytes.array()?);
        let depth = at_most("depth of a part", bytes.u8()?.into(), MAX_DEPTH.into())? as u8;
        bytes.end()?;
        Ok(Self { prefix: (u64::from(aligned) >> (32 - u32::from(depth))) as u32, depth })
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.extend(self.prefix.to_le_bytes());
        out.push(self.depth);
    }

    pub(crate) fn decode(bytes: &mut Bytes) -> Result<Self, DecodeError> {
        let (prefix, depth) = (bytes.u32()?, bytes.u8()?);
        at_most("depth", depth.into(), MAX_DEPTH.into())?;
        at_most("prefix", prefix.into(), (1 << depth) - 1)?;
        Ok(Self { prefix, depth })
    }
}

impl fmt::Display for PartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::WHOLE {
            f.write_str("the table")
        } else {
            write!(f, "part {:#x}/{}", self.prefix, self.depth)
        }
    }
}

/// What a name carries in a skeleton: its value, or a number that maps to a value at each switch.
pub trait Payload: Copy + Default + Eq + Send + Sync + 'static {}
impl<T: Copy + Default + Eq + Send + Sync + 'static> Payload for T {}

/// Version and digest of a part. They are equal on both sides of the seam if and only if both have the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPart {
    /// The part.
    pub id: PartId,
    /// Counts its changes.
    pub version: u64,
    /// Digest of its words.
    pub digest: u64,
}

/// What a mutation did to a skeleton. It describes the latest mutation only: every view must see it before the next
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "every view of the skeleton must learn of the change"]
pub enum Change {
    /// Nothing changed: an inserted name already had this payload, or a removed name was absent.
    None,
    /// One part was edited. The skeleton keeps what changed in it.
    Part {
        /// Slot of the part in the skeleton.
        slot: u32,
    },
    /// Parts were rebuilt, split or merged, or their values must be sent again.
    Parts {
        /// Slots of the new parts.
        slots: Vec<u32>,
        /// The parts that they replace and that no longer exist.
        replaced: Vec<PartId>,
    },
}

impl Change {
    /// The structure was rebuilt, or its values must be sent again, and it is not divided into parts.
    pub(crate) fn whole() -> Self {
        Self::Parts { slots: vec![0], replaced: Vec::new() }
    }
}

/// The first `depth` bits of `digest`, as a number.
#[inline]
pub(crate) fn prefix_of(digest: u64, depth: u8) -> usize {
    // Two shifts, because a shift by 64 would overflow.
    (digest >> 1 >> (63 - u32::from(depth))) as usize
}

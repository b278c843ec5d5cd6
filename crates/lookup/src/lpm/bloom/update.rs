//! The message that crosses the seam: bits of the filter that flip, and the table's own message.
//!
//! Versions reveal a gap. The digest is that of the filter after the update: the XOR of a PRF of every bit that is one,
//! and of the lengths with the table's version. The table's message has the table's digest.
//! ```text
//! | from 8 | to 8 | digest 8 | lengths 3 x 8 | bits that become one 4 | zero 4 | bits, 8 each ... | table's message ... |
//! ```
//! All integers are little-endian. For length `l` bit `l % 64` of word `l / 64` is set. The table's message is that of
//! a (2,4)-Cuckoo ([`exact::Update`]); its names have 5 bytes for IPv4 and 17 for IPv6, address and length. A remote
//! query half starts as the export of an empty table with the same settings, and applies every update from the first
//! on.

use super::query::Lengths;
use crate::base::bytes::{Bytes, DecodeError};
use crate::cuckoo::exact;
use crate::hash::mix64;

/// Bits by their new contents, and the update of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<const W: usize> {
    /// The version that this update builds on.
    pub from: u64,
    /// The version after this update.
    pub to: u64,
    /// The digest of the filter, the lengths and the table's version after this update.
    pub digest: u64,
    /// The lengths that entries have afterwards.
    pub lengths: Lengths,
    /// Bits that become one, before anything else.
    pub set: Vec<u64>,
    /// Bits that become zero, after everything else.
    pub clear: Vec<u64>,
    /// The update of the hash table.
    pub table: exact::Update<W>,
}

impl<const W: usize> Update<W> {
    /// The version of the table after this update.
    pub(super) fn table_version(&self) -> u64 {
        match &self.table {
            exact::Update::Slots(update) => update.to,
            exact::Update::Table(image) => image.version,
        }
    }

    /// Appends the bytes of the update; `table` is [`Settings::table`](super::Settings::table).
    pub fn encode(&self, table: &exact::Settings, out: &mut Vec<u8>) {
        out.extend([self.from, self.to, self.digest].map(u64::to_le_bytes).as_flattened());
        out.extend(self.lengths.map(u64::to_le_bytes).as_flattened());
        out.extend([self.set.len() as u32, self.clear.len() as u32].map(u32::to_le_bytes).as_flattened());
        self.set.iter().chain(&self.clear).for_each(|bit| out.extend(bit.to_le_bytes()));
        self.table.encode(table, out);
    }

    /// Reads an update.
    /// # Errors
    /// [`DecodeError`]; lengths are checked against the remaining bytes before anything is allocated. Bits are checked
    /// where they are applied.
    pub fn decode(bytes: &[u8], table: &exact::Settings) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let lengths = [bytes.u64()?, bytes.u64()?, bytes.u64()?];
        let (n_set, n_clear) = (bytes.u32()? as usize, bytes.u32()? as usize);
        let mut bits = |n: usize| {
            let bits = bytes.take(n.saturating_mul(8))?.chunks_exact(8);
            Ok::<_, DecodeError>(bits.map(|bit| u64::from_le_bytes(bit.try_into().expect("8 bytes"))).collect())
        };
        let (set, clear) = (bits(n_set)?, bits(n_clear)?);
        Ok(Self { from, to, digest, lengths, set, clear, table: exact::Update::decode(bytes.0, table)? })
    }
}

/// The contribution of a one bit to the digest.
pub(super) fn bit_prf(seed: u64, bit: u64) -> u64 {
    mix64(seed ^ mix64(bit + 1))
}

/// The contribution of the lengths and the table's version to the digest: 0 in an empty table.
pub(super) fn rest_prf(seed: u64, lengths: Lengths, table_version: u64) -> u64 {
    if (lengths, table_version) == (Lengths::default(), 0) {
        return 0;
    }
    lengths.iter().fold(mix64(!seed ^ table_version), |hash, &word| mix64(hash ^ word))
}

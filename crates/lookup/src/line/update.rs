//! The messages that cross the seam: whole buckets, levels or groups, with versions and a digest.
//!
//! Buckets are absolute, so a duplicate is harmless. The from- and to-versions show a gap. The digest of the group
//! after the update shows that both sides agree. Bytes: `docs/formats/line.md`.

use super::layout::{Geometry, LEVELS, Layout, MAX_SECOND};
use super::{MAX_STASH, Settings};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::part::{HeldPart, MAX_PARTS, PartId};
use crate::hash::{Digest, mix64};
use crate::traits::Image;

/// An update of a line table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Some buckets of one group changed, mostly one.
    Buckets(BucketsUpdate),
    /// The levels above the first were rebuilt: they have another number of buckets or another stash.
    Levels(LevelsUpdate),
    /// These groups replace those that held their digests: a build, a split, a merge, or a resync.
    Groups(Vec<GroupImage>),
}

/// Some buckets of one group, by their new contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketsUpdate {
    /// The group.
    pub id: PartId,
    /// The version that this update builds on.
    pub from: u64,
    /// The version after it.
    pub to: u64,
    /// Digest of the group after it.
    pub digest: u64,
    /// The numbers of the buckets, each once.
    pub indices: Vec<u32>,
    /// Their words, one bucket after the other.
    pub words: Vec<u64>,
}

/// New upper levels of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelsUpdate {
    /// Versions, digest, and the buckets of the first level that changed with them, if any.
    pub first: BucketsUpdate,
    /// Buckets of the second and third level after the update.
    pub n_upper: [u16; LEVELS - 1],
    /// Names outside the buckets after the update, with their values.
    pub stash: Vec<(Digest, u64)>,
    /// The buckets of the upper levels.
    pub words: Vec<u64>,
}

/// A whole group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupImage {
    /// Which digests belong to it.
    pub id: PartId,
    /// Its version.
    pub version: u64,
    /// Buckets of each level.
    pub n_buckets: [u16; LEVELS],
    /// Digest of its buckets and stash.
    pub digest: u64,
    /// Names outside the buckets, with their values.
    pub stash: Vec<(Digest, u64)>,
    /// Its buckets.
    pub words: Vec<u64>,
}

impl Image for GroupImage {
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

/// The contribution of a bucket to the digest of its group. An update proves the XOR of all contributions.
#[inline]
pub(super) fn bucket_prf(seed: u64, index: usize, words: &[u64]) -> u64 {
    let start = mix64(seed.wrapping_add((index as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93)));
    // Two chains of folded multiplications, because a single chain would wait eight times for its product.
    let fold = |sum: u64, word: u64| {
        let product = u128::from(sum ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        (product >> 64) as u64 ^ product as u64
    };
    let (halves, _) = words.as_chunks::<2>();
    let (even, odd) =
        halves.iter().fold((start, !start.rotate_left(32)), |(even, odd), &[a, b]| (fold(even, a), fold(odd, b)));
    mix64(even ^ mix64(odd))
}

/// The contribution of a group's id and sizes to its digest.
pub(super) fn geometry_prf(seed: u64, id: PartId, n_buckets: [u16; LEVELS]) -> u64 {
    let place = mix64(seed ^ (u64::from(id.prefix) << 8 | u64::from(id.depth)));
    mix64(place ^ n_buckets.iter().fold(0, |sum, &n| sum << 16 | u64::from(n)))
}

/// The contribution of a stashed name to the digest of its group.
pub(super) fn stash_prf(seed: u64, name: Digest, value: u64) -> u64 {
    mix64(mix64(seed ^ name.0).wrapping_add(value))
}

impl GroupImage {
    /// The digest of the contents.
    pub(super) fn prove(&self, settings: &Settings) -> u64 {
        let seed = settings.seed;
        let buckets = self.words.chunks_exact(settings.layout().n_words()).enumerate();
        let buckets = buckets.fold(0, |sum, (index, words)| sum ^ bucket_prf(seed, index, words));
        let stash = self.stash.iter().fold(0, |sum, &(name, value)| sum ^ stash_prf(seed, name, value));
        geometry_prf(seed, self.id, self.n_buckets) ^ buckets ^ stash
    }

    /// The geometry of the group, before it has a place in the arena.
    pub(super) fn geometry(&self) -> Geometry {
        Geometry { offset_lines: 0, n_buckets: self.n_buckets, stash: !self.stash.is_empty() }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        out.push(self.stash.len() as u8);
        self.n_buckets.iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(self.version.to_le_bytes());
        out.extend(self.digest.to_le_bytes());
        put_stash(&self.stash, out);
        put_words(&self.words, out);
    }

    fn decode(bytes: &mut Bytes, layout: Layout) -> Result<Self, DecodeError> {
        let id = PartId::decode(bytes)?;
        let n_stash = get_n_stash(bytes)?;
        let n_first = bytes.u16()?;
        let [second, third] = get_n_upper(bytes)?;
        let n_buckets = [n_first, second, third];
        let (version, digest) = (bytes.u64()?, bytes.u64()?);
        let stash = get_stash(bytes, n_stash)?;
        let n_all: usize = n_buckets.iter().map(|&n| usize::from(n)).sum();
        let words = get_words(bytes, n_all * layout.n_words())?;
        Ok(Self { id, version, n_buckets, digest, stash, words })
    }
}

impl BucketsUpdate {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        out.extend(self.from.to_le_bytes());
        out.extend(self.to.to_le_bytes());
        out.extend(self.digest.to_le_bytes());
        out.extend((self.indices.len() as u32).to_le_bytes());
        self.indices.iter().for_each(|index| out.extend(index.to_le_bytes()));
        put_words(&self.words, out);
    }

    fn decode(bytes: &mut Bytes, layout: Layout) -> Result<Self, DecodeError> {
        let id = PartId::decode(bytes)?;
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let n = bytes.count(4 + layout.bytes())?;
        let mut indices = Vec::with_capacity(n);
        for _ in 0..n {
            indices.push(bytes.u32()?);
        }
        let words = get_words(bytes, n * layout.n_words())?;
        Ok(Self { id, from, to, digest, indices, words })
    }
}

impl LevelsUpdate {
    fn encode(&self, out: &mut Vec<u8>) {
        self.first.encode(out);
        out.push(self.stash.len() as u8);
        self.n_upper.iter().for_each(|n| out.extend(n.to_le_bytes()));
        put_stash(&self.stash, out);
        put_words(&self.words, out);
    }

    fn decode(bytes: &mut Bytes, layout: Layout) -> Result<Self, DecodeError> {
        let first = BucketsUpdate::decode(bytes, layout)?;
        let n_stash = get_n_stash(bytes)?;
        let n_upper = get_n_upper(bytes)?;
        let stash = get_stash(bytes, n_stash)?;
        let n_words = n_upper.iter().map(|&n| usize::from(n)).sum::<usize>() * layout.n_words();
        Ok(Self { first, n_upper, stash, words: get_words(bytes, n_words)? })
    }
}

fn get_n_stash(bytes: &mut Bytes) -> Result<u64, DecodeError> {
    at_most("stash entries", bytes.u8()?.into(), MAX_STASH as u64)
}

fn get_n_upper(bytes: &mut Bytes) -> Result<[u16; LEVELS - 1], DecodeError> {
    let (second, third) = (bytes.u16()?, bytes.u16()?);
    at_most("buckets of the second level", second.into(), MAX_SECOND.into())?;
    at_most("buckets of the third level", third.into(), 1)?;
    Ok([second, third])
}

fn put_stash(stash: &[(Digest, u64)], out: &mut Vec<u8>) {
    for (digest, value) in stash {
        out.extend(digest.0.to_le_bytes());
        out.extend(value.to_le_bytes());
    }
}

fn get_stash(bytes: &mut Bytes, n: u64) -> Result<Vec<(Digest, u64)>, DecodeError> {
    (0..n).map(|_| Ok((Digest(bytes.u64()?), bytes.u64()?))).collect()
}

fn put_words(words: &[u64], out: &mut Vec<u8>) {
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
}

fn get_words(bytes: &mut Bytes, n_words: usize) -> Result<Vec<u64>, DecodeError> {
    let (words, _) = bytes.take(n_words.saturating_mul(8))?.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

impl Update {
    /// Appends the bytes of the update.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Buckets(update) => {
                out.push(0);
                update.encode(out);
            }
            Self::Groups(groups) => {
                out.push(1);
                out.extend((groups.len() as u32).to_le_bytes());
                groups.iter().for_each(|group| group.encode(out));
            }
            Self::Levels(update) => {
                out.push(2);
                update.encode(out);
            }
        }
    }

    /// Decodes an update of a table with these settings.
    /// # Errors
    /// [`DecodeError`]; lengths are checked against the bytes present before anything is allocated.
    pub fn decode(settings: &Settings, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let layout = settings.layout();
        let update = match at_most("kind of update", bytes.u8()?.into(), 2)? {
            0 => Self::Buckets(BucketsUpdate::decode(&mut bytes, layout)?),
            1 => {
                let n_groups = at_most("groups", bytes.u32()?.into(), MAX_PARTS as u64)?;
                let mut groups = Vec::new();
                for _ in 0..n_groups {
                    groups.push(GroupImage::decode(&mut bytes, layout)?);
                }
                Self::Groups(groups)
            }
            _ => Self::Levels(LevelsUpdate::decode(&mut bytes, layout)?),
        };
        bytes.end()?;
        Ok(update)
    }
}

//! The message that crosses the seam: the changes of the hash table and of the order of tuples.
//!
//! Contents are absolute, versions reveal a gap, and the digest is that of hash table and tuples after the update.
//!
//! Bytes: `docs/formats/cuckoo.md`.

use super::tuple::Tuple;
use super::{Settings, tuple_prf};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::part::{HeldPart, PartId};
use crate::cuckoo::exact::{self, TableImage};
use crate::traits;

/// An update of a tuple space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// One change of the rules.
    Change(Change),
    /// The whole tuple space.
    Whole(Image),
}

/// One change of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version that this update builds on.
    pub from: u64,
    /// The version after this update.
    pub to: u64,
    /// Digest of everything after this update.
    pub digest: u64,
    /// The tuples whose highest priority changed, with the new one; none if the tuple has no rule left.
    pub tuples: Vec<(Tuple, Option<u32>)>,
    /// The update of the hash table.
    pub table: Option<exact::Update<2>>,
}

/// A whole tuple space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its version.
    pub version: u64,
    /// Its digest.
    pub digest: u64,
    /// The tuples that have rules, each with its highest priority, in order of their codes.
    pub tuples: Vec<(Tuple, u32)>,
    /// The hash table.
    pub table: TableImage,
}

impl Update {
    /// Appends the bytes of the update.
    pub fn encode(&self, settings: &Settings, out: &mut Vec<u8>) {
        match self {
            Self::Change(change) => {
                out.push(0);
                out.extend([change.from, change.to, change.digest].map(u64::to_le_bytes).as_flattened());
                out.extend((change.tuples.len() as u32).to_le_bytes());
                for (tuple, highest) in &change.tuples {
                    out.extend(tuple.code().to_le_bytes());
                    out.push(highest.is_some().into());
                    out.extend(highest.unwrap_or(0).to_le_bytes());
                }
                out.push(change.table.is_some().into());
                if let Some(table) = &change.table {
                    table.encode(&settings.table, out);
                }
            }
            Self::Whole(image) => {
                out.push(1);
                out.extend([image.version, image.digest].map(u64::to_le_bytes).as_flattened());
                out.extend((image.tuples.len() as u32).to_le_bytes());
                for (tuple, highest) in &image.tuples {
                    out.extend(tuple.code().to_le_bytes());
                    out.extend(highest.to_le_bytes());
                }
                exact::Update::<2>::Table(image.table.clone()).encode(&settings.table, out);
            }
        }
    }

    /// Reads an update.
    /// # Errors
    /// [`DecodeError`]; lengths are checked against the remaining bytes before anything is allocated.
    pub fn decode(settings: &Settings, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        if at_most("kind of update", bytes.u8()?.into(), 1)? == 1 {
            let (version, digest) = (bytes.u64()?, bytes.u64()?);
            let n_tuples = bytes.count(6)?;
            let mut tuples = Vec::with_capacity(n_tuples);
            for _ in 0..n_tuples {
                tuples.push((decode_tuple(&mut bytes)?, decode_priority(settings, &mut bytes)?));
            }
            let unsorted = !tuples.is_sorted_by(|(a, _), (b, _)| a.code() < b.code());
            at_most("tuples out of order", unsorted.into(), 0)?;
            return match exact::Update::<2>::decode(bytes.0, &settings.table)? {
                exact::Update::Table(table) => Ok(Self::Whole(Image { version, digest, tuples, table })),
                exact::Update::Slots(_) => Err(DecodeError::OutOfRange { field: "missing tables", value: 1, max: 0 }),
            };
        }
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let n_tuples = bytes.count(7)?;
        let mut tuples = Vec::with_capacity(n_tuples);
        for _ in 0..n_tuples {
            let (tuple, present) = (decode_tuple(&mut bytes)?, at_most("presence", bytes.u8()?.into(), 1)?);
            let highest = decode_priority(settings, &mut bytes)?;
            tuples.push((tuple, (present == 1).then_some(highest)));
        }
        let table = match at_most("presence", bytes.u8()?.into(), 1)? {
            1 => Some(exact::Update::<2>::decode(bytes.0, &settings.table)?),
            _ => bytes.end().map(|()| None)?,
        };
        Ok(Self::Change(Change { from, to, digest, tuples, table }))
    }
}

impl traits::Image for Image {
    fn held(&self) -> HeldPart {
        HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { version, table: self.table.under(version), ..self }
    }

    fn n_bytes(&self) -> usize {
        self.table.n_bytes()
    }
}

impl Image {
    /// The digest computed from its contents.
    pub(super) fn computed_digest(&self, settings: &Settings) -> u64 {
        let seed = settings.seed();
        let tuples = self.tuples.iter().map(|&(tuple, highest)| tuple_prf(seed, tuple, highest));
        tuples.fold(self.table.digest, |digest, prf| digest ^ prf)
    }
}

fn decode_tuple(bytes: &mut Bytes) -> Result<Tuple, DecodeError> {
    let code = bytes.u16()?;
    let unknown =
        DecodeError::OutOfRange { field: "code of a tuple", value: code.into(), max: Tuple::EXACT.code().into() };
    Tuple::from_code(code).ok_or(unknown)
}

fn decode_priority(settings: &Settings, bytes: &mut Bytes) -> Result<u32, DecodeError> {
    Ok(at_most("priority", bytes.u32()?.into(), settings.priority_max().into())? as u32)
}

//! A query structure as bytes: to a file or over the network, and back, on any machine.
//!
//! ```text
//!  0  "fibulaFI"                 8   magic
//!  8  format version             2   1
//! 10  structure                  1   1 = Othello (this table), 2 = Bloom filter (bloom::image)
//! 11  sizing                     1   0 sharded, 1 option1, 2 option2
//! 12  bits of a value            1   1 to 64
//! 13  hash family                1   see hash::Family::id
//! 14  bits of a fingerprint      1   0 = none; with the value at most 64
//! 15  flags                      1   bit 0: aliens are spread
//! 16  secret key                32
//! 48  seed of tweaks and digests 8
//! 56  most names                 8
//! 64  number of shards           4
//! 68  zero                       4
//! 72  shards                         as in an update: docs/formats/othello.md
//!  …  checksum                   8   XXH3-64 of everything before
//! ```
//! All integers are little-endian. The image carries the secret key, without which names cannot be hashed: keep it as
//! you keep the key. It is taken by the writer, of one moment.
//!
//! Cost: about 1 GB/s each way. Bounds are checked before anything is allocated for them.

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::{Bytes, BytesError};
use crate::hash::{Family, FamilyError, SecretKey};
use crate::othello::update::{DecodeError, MAX_SHARDS, at_most};
use crate::othello::{OthelloQuery, Settings, ShardImage, Sizing};
use crate::traits::ApplyError;

/// The first bytes of an image.
pub const MAGIC: [u8; 8] = *b"fibulaFI";
/// The version of the format that is written; older ones that can be read: none yet.
pub const FORMAT: u16 = 1;
/// Bytes before the shards.
pub const HEADER_BYTES: usize = 72;
/// Structure number of the Othello.
const OTHELLO: u8 = 1;

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`Sizing::ID`].
    pub sizing: u8,
    /// How names were hashed.
    pub family: Family,
    /// The key that they were hashed with.
    pub key: SecretKey,
    /// Widths of values and fingerprints, limits and seed.
    pub settings: Settings,
    /// Shards that follow.
    pub n_shards: u32,
}

/// Why bytes are no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The first bytes are something else.
    #[error("this is no fibula image: it starts with {found:02x?}")]
    NotAnImage {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// Written by another version.
    #[error("the image has format {found}, this program reads format {FORMAT}: write it again with this version")]
    UnknownFormat {
        /// The format found.
        found: u16,
    },
    /// Another structure than the one asked for.
    #[error("the image holds structure {structure}, expected structure {expected}: name an image of that structure")]
    OtherStructure {
        /// Structure found.
        structure: u8,
        /// Structure asked for.
        expected: u8,
    },
    /// Another sizing of the structure, or another layout, than the one asked for.
    #[error("the image holds its structure in variant {variant}, expected variant {expected}")]
    OtherVariant {
        /// Variant found.
        variant: u8,
        /// Variant asked for.
        expected: u8,
    },
    /// Bytes were changed or lost.
    #[error("the image is damaged: checksum {computed:#018x}, {stored:#018x} stored: fetch or build it again")]
    WrongChecksum {
        /// Of the bytes as they are.
        computed: u64,
        /// As written.
        stored: u64,
    },
    /// Hashed in a way that this program does not know.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// A field makes no sense, or bytes are missing.
    #[error("the image is damaged: {0}")]
    Decode(#[from] DecodeError),
    /// The shards make no table.
    #[error("the image is damaged: {0}")]
    Shards(#[from] ApplyError),
}

/// Writes an image of `query`, whose names are hashed by `family` under `key`.
pub fn encode<S: Sizing>(query: &OthelloQuery<S>, family: Family, key: &SecretKey) -> Vec<u8> {
    let (settings, shards) = (query.settings(), query.shards());
    let mut out =
        Vec::with_capacity(HEADER_BYTES + shards.iter().map(|shard| shard.words.len() * 8 + 48).sum::<usize>());
    out.extend(MAGIC);
    out.extend(FORMAT.to_le_bytes());
    out.extend([
        OTHELLO,
        S::ID,
        settings.value_bits,
        family.id(),
        settings.fingerprint_bits,
        u8::from(settings.spread),
    ]);
    out.extend(key.as_bytes());
    out.extend(settings.seed.to_le_bytes());
    out.extend((settings.max_names as u64).to_le_bytes());
    out.extend((shards.len() as u32).to_le_bytes());
    out.extend([0; 4]);
    for shard in &shards {
        shard.encode(&mut out);
    }
    seal(out)
}

/// Appends the checksum.
pub(crate) fn seal(mut image: Vec<u8>) -> Vec<u8> {
    image.extend(xxh3_64(&image).to_le_bytes());
    image
}

/// Everything before the checksum, if that is right.
pub(crate) fn unseal(image: &[u8]) -> Result<&[u8], ImageError> {
    let Some((body, checksum)) = image.split_last_chunk::<8>() else {
        return Err(BytesError::Truncated { needed: 8, left: image.len() }.into());
    };
    let (computed, stored) = (xxh3_64(body), u64::from_le_bytes(*checksum));
    if computed == stored { Ok(body) } else { Err(ImageError::WrongChecksum { computed, stored }) }
}

/// What follows magic, version and the number of the structure, which must be these.
pub(crate) fn after_magic(image: &[u8], structure: u8) -> Result<Bytes<'_>, ImageError> {
    if !image.starts_with(&MAGIC) {
        return Err(ImageError::NotAnImage { found: image[..image.len().min(8)].to_vec() });
    }
    let mut bytes = Bytes(&image[8..]);
    let found = bytes.u16()?;
    if found != FORMAT {
        return Err(ImageError::UnknownFormat { found });
    }
    let (found, expected) = (bytes.u8()?, structure);
    if found == expected { Ok(bytes) } else { Err(ImageError::OtherStructure { structure: found, expected }) }
}

impl From<BytesError> for ImageError {
    fn from(error: BytesError) -> ImageError {
        DecodeError::from(error).into()
    }
}

/// Reads the header, without looking at the rest.
/// # Errors
/// [`ImageError`].
pub fn header(image: &[u8]) -> Result<Header, ImageError> {
    let mut bytes = after_magic(image, OTHELLO)?;
    let sizing = bytes.u8()?;
    let value_bits = bytes.u8()?;
    if value_bits == 0 {
        return Err(DecodeError::OutOfRange { field: "bits of a value", value: 0, max: 64 }.into());
    }
    at_most("bits of a value", value_bits.into(), 64)?;
    let family = Family::from_id(bytes.u8()?)?;
    let fingerprint_bits = at_most("bits of a fingerprint", bytes.u8()?.into(), u64::from(64 - value_bits))? as u8;
    // Aliens are either spread or dropped.
    let spread = at_most("flags", bytes.u8()?.into(), u64::from(fingerprint_bits == 0))? != 0;
    let key = SecretKey::from_bytes(bytes.array()?);
    let seed = bytes.u64()?;
    let max_names = at_most("most names", bytes.u64()?, Settings::MAX_NAMES as u64)? as usize;
    let n_shards = at_most("shards", bytes.u32()?.into(), MAX_SHARDS as u64)? as u32;
    at_most("reserved bytes", bytes.u32()?.into(), 0)?;
    let settings = Settings { value_bits, fingerprint_bits, spread, max_names, seed };
    Ok(Header { sizing, family, key, settings, n_shards })
}

/// Reads an image.
/// # Errors
/// [`ImageError`]: everything that readers rely on is checked.
pub fn decode<S: Sizing>(image: &[u8]) -> Result<(Header, OthelloQuery<S>), ImageError> {
    let header = header(image)?;
    if header.sizing != S::ID {
        return Err(ImageError::OtherVariant { variant: header.sizing, expected: S::ID });
    }
    let mut bytes = Bytes(unseal(image)?);
    bytes.take(HEADER_BYTES)?;
    let mut shards = Vec::new();
    for _ in 0..header.n_shards {
        shards.push(ShardImage::decode(&mut bytes, header.settings.cell_bits())?);
    }
    bytes.end()?;
    let query = OthelloQuery::from_shards(&header.settings, &shards)?;
    Ok((header, query))
}

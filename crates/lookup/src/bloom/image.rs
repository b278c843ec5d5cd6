//! Serialises a filter, for a file or the network; any machine can read it.
//!
//! ```text
//!  0  "fibulaFI"                 8   magic
//!  8  format version             2   1
//! 10  structure                  1   2 = Bloom filter
//! 11  layout                     1   's' standard, 'p' partitioned, 'b' blocked, 'o' one-hashing, 'a' address-hashing,
//!                                    'd' double-hashing
//! 12  positions per name         1   1 to 32
//! 13  hash family                1   see hash::Family::id
//! 14  bits per counter           1   0 = no counters, 4 or 8
//! 15  zero                       1
//! 16  secret key                32
//! 48  seed of positions          8
//! 56  names that were inserted   8   as far as the writer knows
//! 64  kind of the names          2   the writer's business, not interpreted here
//! 66  zero                       6
//! 72  bits                       8
//! 80  the bits                       words of 8 bytes, from the lowest bit; beyond the last bit zero
//!  …  the counters                   likewise, where there are any
//!  …  checksum                   8   XXH3-64 of everything before
//! ```
//! All integers are little-endian. The image contains the secret key, without which names cannot be hashed: protect it
//! like the key.
//!
//! Cost: about 1 GB/s each way. Bounds are checked before anything is allocated for them.

use xxhash_rust::xxh3::xxh3_64;

use super::{Bloom, CounterBits, Counting, Layout, Shape};
use crate::base::bytes::{Bytes, BytesError, DecodeError, at_most};
use crate::hash::{Family, FamilyError, SecretKey};
use crate::traits::ApplyError;

/// The first bytes of an image.
pub const MAGIC: [u8; 8] = *b"fibulaFI";
/// The version of the format.
pub const FORMAT: u16 = 1;
/// Bytes before the bits.
pub const HEADER_BYTES: usize = 80;
/// Structure number of Bloom filters.
const BLOOM: u8 = 2;

/// Why bytes are not an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The first bytes are something else.
    #[error("this is not a fibula image: it starts with {found:02x?}")]
    NotAnImage {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// Written in another version of the format.
    #[error("the image has format {found}, this program reads format {FORMAT}: write it again with this version")]
    UnknownFormat {
        /// The format found.
        found: u16,
    },
    /// Not the structure that was asked for.
    #[error("the image holds structure {structure}, expected structure {expected}: name an image of that structure")]
    OtherStructure {
        /// Structure found.
        structure: u8,
        /// Structure asked for.
        expected: u8,
    },
    /// Not the sizing or the layout that was asked for.
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
        /// Computed over the bytes as they are.
        computed: u64,
        /// The one in the image.
        stored: u64,
    },
    /// Hashed in a way that this program does not support.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// A field makes no sense, or bytes are missing.
    #[error("the image is damaged: {0}")]
    Decode(#[from] DecodeError),
    /// The bits are not those of a valid filter.
    #[error("the image is damaged: {0}")]
    Bits(#[from] ApplyError),
}

/// The fields of an image's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// First letter of [`Layout::NAME`].
    pub layout: u8,
    /// Positions per name.
    pub n_hashes: u32,
    /// How names were hashed.
    pub family: Family,
    /// Width of the counters, where there are any.
    pub counters: Option<CounterBits>,
    /// The key that names were hashed with.
    pub key: SecretKey,
    /// Seed of the positions.
    pub seed: u64,
    /// Names that were inserted, as far as the writer knew.
    pub n_names: u64,
    /// What names look like: a number that the writer chooses.
    pub kind: u16,
    /// Bits of the filter.
    pub bits: u64,
}

impl Header {
    /// The header of a filter whose names are hashed by `family` under `key`.
    pub fn new<L: Layout>(filter: &Bloom<L>, family: Family, key: &SecretKey, n_names: u64, kind: u16) -> Self {
        Self {
            layout: L::NAME.as_bytes()[0],
            n_hashes: filter.shape().n_hashes(),
            family,
            counters: None,
            key: key.clone(),
            seed: filter.places().seed(),
            n_names,
            kind,
            bits: filter.shape().bits(),
        }
    }

    fn encode(&self, bytes_after: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + bytes_after + 8);
        out.extend(MAGIC);
        out.extend(FORMAT.to_le_bytes());
        let counters = self.counters.map_or(0, |bits| bits as u8);
        out.extend([BLOOM, self.layout, self.n_hashes as u8, self.family.id(), counters, 0]);
        out.extend(self.key.as_bytes());
        out.extend(self.seed.to_le_bytes());
        out.extend(self.n_names.to_le_bytes());
        out.extend(self.kind.to_le_bytes());
        out.extend([0; 6]);
        out.extend(self.bits.to_le_bytes());
        out
    }

    fn check_layout<L: Layout>(&self) -> Result<(), ImageError> {
        let expected = L::NAME.as_bytes()[0];
        let found = self.layout;
        if found == expected { Ok(()) } else { Err(ImageError::OtherVariant { variant: found, expected }) }
    }
}

/// Writes an image of a filter; [`Header::new`] makes `header`.
pub fn encode<L: Layout>(filter: &Bloom<L>, header: &Header) -> Vec<u8> {
    let words = filter.words();
    let mut out = Header { counters: None, ..header.clone() }.encode(words.len() * 8);
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    seal(out)
}

/// Writes an image of a filter with its counters.
pub fn encode_counting<L: Layout>(counting: &Counting<L>, header: &Header) -> Vec<u8> {
    let words = [counting.filter().words(), counting.counters()];
    let counters = Some(counting.counter_bits());
    let mut out = Header { counters, ..header.clone() }.encode((words[0].len() + words[1].len()) * 8);
    words.into_iter().flatten().for_each(|word| out.extend(word.to_le_bytes()));
    seal(out)
}

/// Reads the header only.
/// # Errors
/// [`ImageError`].
pub fn header(image: &[u8]) -> Result<Header, ImageError> {
    let mut bytes = after_magic(image, BLOOM)?;
    let layout = bytes.u8()?;
    let n_hashes = u32::from(bytes.u8()?);
    let family = Family::from_id(bytes.u8()?)?;
    let counters = match bytes.u8()? {
        0 => None,
        4 => Some(CounterBits::Four),
        8 => Some(CounterBits::Eight),
        other => {
            return Err(DecodeError::OutOfRange { field: "bits of a counter", value: other.into(), max: 8 }.into());
        }
    };
    at_most("reserved bytes", bytes.u8()?.into(), 0)?;
    let key = SecretKey::from_bytes(bytes.array()?);
    let (seed, n_names, kind) = (bytes.u64()?, bytes.u64()?, bytes.u16()?);
    let reserved = u64::from(bytes.u16()?) | u64::from(bytes.u32()?);
    at_most("reserved bytes", reserved, 0)?;
    Ok(Header { layout, n_hashes, family, counters, key, seed, n_names, kind, bits: bytes.u64()? })
}

/// Reads the filter of an image; counters, if present, are checked and discarded.
/// # Errors
/// [`ImageError`]: also for an image of another layout.
pub fn decode<L: Layout>(image: &[u8]) -> Result<(Header, Bloom<L>), ImageError> {
    let (header, filter, mut rest) = read(image)?;
    match header.counters {
        Some(bits) => {
            let counting = counters(filter, bits, &mut rest)?;
            Ok((header, counting.into_filter()))
        }
        None => {
            rest.end()?;
            Ok((header, filter))
        }
    }
}

/// Reads a filter with its counters.
/// # Errors
/// [`ImageError`]: also for an image of another layout, or without counters.
pub fn decode_counting<L: Layout>(image: &[u8]) -> Result<(Header, Counting<L>), ImageError> {
    let (header, filter, mut rest) = read(image)?;
    let bits = header.counters;
    let bits = bits.ok_or(DecodeError::OutOfRange { field: "bits of a counter", value: 0, max: 8 })?;
    let counting = counters(filter, bits, &mut rest)?;
    Ok((header, counting))
}

fn read<L: Layout>(image: &[u8]) -> Result<(Header, Bloom<L>, Bytes<'_>), ImageError> {
    let header = header(image)?;
    header.check_layout::<L>()?;
    let mut bytes = Bytes(unseal(image)?);
    bytes.take(HEADER_BYTES)?;
    let words = words(&mut bytes, header.bits)?;
    let shape = Shape::new(header.bits, header.n_hashes).ok().filter(|shape| shape.bits() == header.bits);
    let max = super::MAX_BITS;
    let shape = shape.ok_or(DecodeError::OutOfRange { field: "bits of a filter", value: header.bits, max })?;
    Ok((header.clone(), Bloom::from_words(shape, header.seed, words)?, bytes))
}

fn counters<L: Layout>(filter: Bloom<L>, bits: CounterBits, bytes: &mut Bytes) -> Result<Counting<L>, ImageError> {
    let words = words(bytes, filter.shape().bits() * bits as u64)?;
    bytes.end()?;
    Ok(Counting::from_words(filter, bits, words)?)
}

/// The words that hold `bits` bits; an error if they are missing.
fn words<'a>(bytes: &mut Bytes<'a>, bits: u64) -> Result<impl ExactSizeIterator<Item = u64> + use<'a>, ImageError> {
    let n_bytes = usize::try_from(bits.div_ceil(64).saturating_mul(8)).unwrap_or(usize::MAX);
    let words = bytes.take(n_bytes)?.as_chunks::<8>().0.iter();
    Ok(words.map(|word| u64::from_le_bytes(*word)))
}

/// Appends the checksum.
fn seal(mut image: Vec<u8>) -> Vec<u8> {
    image.extend(xxh3_64(&image).to_le_bytes());
    image
}

/// Everything before the checksum, if the checksum is right.
fn unseal(image: &[u8]) -> Result<&[u8], ImageError> {
    let Some((body, checksum)) = image.split_last_chunk::<8>() else {
        return Err(BytesError::Truncated { needed: 8, left: image.len() }.into());
    };
    let (computed, stored) = (xxh3_64(body), u64::from_le_bytes(*checksum));
    if computed == stored { Ok(body) } else { Err(ImageError::WrongChecksum { computed, stored }) }
}

/// What follows the magic, the version and the structure number, which are checked.
fn after_magic(image: &[u8], structure: u8) -> Result<Bytes<'_>, ImageError> {
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

//! Prefixes behind a one-hashing filter as bytes, for a [file](crate::lpm::file).
//!
//! ```text
//! | key 32 | entries 8 | bits 8 | version 8 | digest 8 | lengths 3 x 8 | words of the filter | update 1 of the table |
//! ```
//! All integers are little-endian. Version, digest, lengths and the table's update are as in [`update`](super::update).

use super::query::BloomLpmQuery;
use super::update::{bit_prf, rest_prf};
use super::{BloomLpm, Keyed, Membership, Settings, Steps};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::part::PartId;
use crate::bloom::{OneHashing, Shape};
use crate::cuckoo::exact::{self, CuckooQuery};
use crate::hash::{Family, SecretKey};
use crate::lpm::file::FileError;
use crate::lpm::prefix::{Address, Prefix};
use crate::traits::{ApplyError, Control, InsertError, Undivided};

/// Positions per entry, as in the paper.
const N_HASHES: u32 = 10;
/// The most bits of a filter in a file: those of 2^27 entries.
const MAX_BITS: u64 = 1 << 31;

/// Which lengths entries have; see [`Steps`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// [`Steps::every`]: the paper's basic configuration.
    Basic,
    /// [`Steps::few`]: leaf-pushed, the paper's optimised configuration.
    Few,
}

impl Pushed {
    fn steps<A: Address>(self) -> Steps {
        match self {
            Self::Basic => Steps::every::<A>(),
            Self::Few => Steps::few::<A>(),
        }
    }
}

/// Filters whose size is that of their entries.
pub type Filter = Keyed<OneHashing>;

fn settings<A: Address>(
    pushed: Pushed,
    (n_entries, bits): (usize, u64),
    key: &SecretKey,
) -> Result<Settings<Filter>, DecodeError> {
    let bits = at_most("bits of a filter", bits, MAX_BITS)?;
    let shape = Shape::new(bits, N_HASHES);
    let shape = shape.map_err(|_| DecodeError::OutOfRange { field: "bits of a filter", value: bits, max: MAX_BITS })?;
    let (family, key) = (Family::MulAdd, key.clone());
    let filter = Filter::new(shape, family, &key);
    Ok(Settings { steps: pushed.steps::<A>(), filter, max_entries: n_entries, family, key })
}

/// Builds the table of `routes` under `key`, and appends its bytes.
/// # Errors
/// [`InsertError`], for a next hop of more than 15 bits.
/// # Panics
/// When there are more than 2^27 entries.
pub fn build<A: Address, const W: usize>(
    pushed: Pushed,
    routes: &[(Prefix<A>, u64)],
    key: &SecretKey,
    out: &mut Vec<u8>,
) -> Result<(), InsertError> {
    let n_entries = pushed.steps::<A>().count_entries(routes.iter().map(|&(prefix, _)| prefix));
    // As many bits as make ten positions the best number.
    let bits = ((n_entries.max(64) * N_HASHES as usize) as f64 / std::f64::consts::LN_2) as u64;
    let settings = settings::<A>(pushed, (n_entries, bits), key).unwrap_or_else(|error| panic!("{error}"));
    let table = settings.table::<A>();
    let mut control = BloomLpm::<A, Filter, W>::new(settings);
    let mut updates = Vec::new();
    for &(prefix, hop) in routes {
        control.insert(prefix, hop, &mut updates)?;
        updates.clear();
    }
    out.extend(key.as_bytes());
    out.extend([n_entries as u64, bits].map(u64::to_le_bytes).as_flattened());
    control.export().put(&table, out);
    Ok(())
}

/// Reads a table.
/// # Errors
/// [`FileError::Decode`] or [`FileError::Table`]; everything that lookups rely on is checked.
pub fn decode<A: Address, const W: usize>(
    pushed: Pushed,
    bytes: &[u8],
) -> Result<BloomLpmQuery<A, Filter, W>, FileError> {
    let mut bytes = Bytes(bytes);
    let key = SecretKey::from_bytes(bytes.take(32)?.try_into().expect("32 bytes"));
    let n_entries = at_most("entries", bytes.u64()?, 1 << 27)? as usize;
    let bits = bytes.u64()?;
    let settings = settings::<A>(pushed, (n_entries, bits), &key)?;
    let (version, digest) = (bytes.u64()?, bytes.u64()?);
    let lengths = [bytes.u64()?, bytes.u64()?, bytes.u64()?];
    let n_bits = <Filter as Membership<A>>::n_bits(&settings.filter);
    let words = bytes.take(n_bits.div_ceil(64) as usize * 8)?;
    let words: Vec<u64> = words.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
    let table = settings.table::<A>();
    let exact::Update::Table(image) = exact::Update::<W>::decode(bytes.0, &table)? else {
        return Err(DecodeError::OutOfRange { field: "missing tables", value: 1, max: 0 }.into());
    };
    let (seed, mut got) = (table.seed(), rest_prf(table.seed(), lengths, image.version));
    for (at, &word) in (0..).zip(&words) {
        let ones = (0..64).filter(|bit| word >> bit & 1 != 0).map(|bit| at * 64 + bit);
        got = ones.fold(got, |got, bit| got ^ bit_prf(seed, bit));
    }
    ApplyError::check_digest(PartId::WHOLE, got, digest)?;
    at_most(
        "lengths of prefixes",
        (0..192).rev().find(|len| lengths[len / 64] >> (len % 64) & 1 != 0).unwrap_or(0) as u64,
        A::BITS.into(),
    )?;
    let table = CuckooQuery::from_image(&table, &image)?;
    Ok(BloomLpmQuery::new(&settings, &words, lengths, table, (version, digest)))
}

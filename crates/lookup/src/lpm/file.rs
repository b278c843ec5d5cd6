//! Prefix tables as a file: both versions of IP, and the names of their next hops.
//!
//! ```text
//!  0  "fibulaLP"          8   magic
//!  8  format version      2   2
//! 10  bytes of a leaf     1   2, or 4 for more than 32,767 next hops
//! 11  design              1   0 trie, 1 behind a Bloom filter, 2 the same, leaf-pushed; these have leaves of 2 bytes
//! 12  next hops           4   number 0, no route, has no name here
//! 16  seed of digests     8
//! 24  prefixes            8   IPv4
//! 32  prefixes            8   IPv6
//! 40  bytes of the table  8   IPv4
//! 48  bytes of the table  8   IPv6
//! 56  next hops               each: length 2, UTF-8
//!  …  tables                  whole updates, or images: docs/formats/prefixes.md
//!  …  checksum            8   XXH3-64 of everything before
//! ```
//! All integers are little-endian. Bounds are checked before anything is allocated for them.

use xxhash_rust::xxh3::xxh3_64;

use super::bloom::BloomLpmQuery;
use super::bloom::image::{self, Filter, Pushed};
use super::prefix::{Address, Prefix};
use super::trie::{Leaf, PrefixTrie, PrefixTrieQuery, Settings, Update};
use crate::base::bytes::{Bytes, BytesError, DecodeError, at_most};
use crate::hash::SecretKey;
use crate::traits::ApplyError;
use crate::traits::{Control, InsertError, Query, Undivided};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"fibulaLP";
/// The version of the format.
pub const FORMAT: u16 = 2;

/// What a file holds.
pub struct PrefixFile {
    /// Names of the next hops, from number 1 on.
    pub hops: Vec<String>,
    /// How entries were pushed, if the tables are behind Bloom filters; none: tries.
    pub pushed: Option<Pushed>,
    /// The table of IPv4.
    pub ipv4: Table<u32>,
    /// The table of IPv6.
    pub ipv6: Table<u128>,
}

/// The table of one version of IP.
pub struct Table<A> {
    /// How many prefixes it was built from.
    pub n_prefixes: u64,
    half: Box<dyn Half<A>>,
}

/// What a table is made of, with the bytes of each part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parts {
    /// Of a trie, as in [`PrefixTrieQuery::size_bytes`].
    Trie {
        /// Nodes of the top.
        top: u64,
        /// Chunks.
        chunks: u64,
        /// Leaves.
        leaves: u64,
    },
    /// Behind a Bloom filter.
    Bloom {
        /// The filter.
        filter: u64,
        /// The hash table.
        table: u64,
    },
}

/// The data-plane half of a table.
trait Half<A>: Send + Sync {
    fn lookup_batch(&self, addresses: &[A], numbers: &mut [u64]);
    fn parts(&self) -> Parts;
}

impl<A: Address, L: Leaf> Half<A> for PrefixTrieQuery<A, L> {
    fn lookup_batch(&self, addresses: &[A], numbers: &mut [u64]) {
        Query::lookup_batch(self, addresses, numbers);
    }

    fn parts(&self) -> Parts {
        let [top, chunks, leaves] = self.size_bytes();
        Parts::Trie { top, chunks, leaves }
    }
}

impl<A: Address, const W: usize> Half<A> for BloomLpmQuery<A, Filter, W> {
    fn lookup_batch(&self, addresses: &[A], numbers: &mut [u64]) {
        Query::lookup_batch(self, addresses, numbers);
    }

    fn parts(&self) -> Parts {
        let [filter, table] = self.size_bytes();
        Parts::Bloom { filter, table }
    }
}

impl<A: Address> Table<A> {
    /// The numbers of the next hops of `addresses`, 0 for no route.
    /// # Panics
    /// When `numbers` is shorter than `addresses`.
    pub fn lookup_batch(&self, addresses: &[A], numbers: &mut [u64]) {
        self.half.lookup_batch(addresses, numbers);
    }

    /// The number of the next hop of an address, 0 for no route.
    pub fn lookup(&self, address: A) -> u64 {
        let mut number = [0];
        self.lookup_batch(&[address], &mut number);
        number[0]
    }

    /// Its parts, with their sizes.
    pub fn parts(&self) -> Parts {
        self.half.parts()
    }
}

/// Why bytes are not such a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The first bytes are something else.
    #[error("this is not a file of prefixes: it starts with {found:02x?}")]
    NotPrefixes {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// Written in another version of the format.
    #[error("the file has format {found}, this program reads format {FORMAT}: build it again with this version")]
    UnknownFormat {
        /// The format found.
        found: u16,
    },
    /// Bytes were changed or lost.
    #[error("the file is damaged: checksum {computed:#018x}, {stored:#018x} stored: build it again")]
    WrongChecksum {
        /// Computed over the bytes as they are.
        computed: u64,
        /// The one in the file.
        stored: u64,
    },
    /// A field makes no sense, or bytes are missing.
    #[error("the file is damaged: {0}")]
    Decode(#[from] DecodeError),
    /// The nodes are not those of a valid table.
    #[error("the file is damaged: {0}")]
    Table(#[from] ApplyError),
}

impl From<BytesError> for FileError {
    fn from(error: BytesError) -> Self {
        DecodeError::from(error).into()
    }
}

impl PrefixFile {
    /// The name of a next hop; none for 0.
    pub fn hop(&self, number: u64) -> Option<&str> {
        self.hops.get((number as usize).checked_sub(1)?).map(String::as_str)
    }
}

/// Writes the tables of these whole updates, which have the same settings.
/// # Panics
/// When there are more next hops than leaves of this width have numbers, or one has a name of 64 KiB.
pub fn encode<L: Leaf>(
    settings: &Settings,
    hops: &[String],
    (ipv4, n_ipv4): (&Update<u32, L>, u64),
    (ipv6, n_ipv6): (&Update<u128, L>, u64),
) -> Vec<u8> {
    assert!(hops.len() <= L::MAX_HOP as usize, "{} next hops", hops.len());
    let (mut table_4, mut table_6) = (Vec::new(), Vec::new());
    ipv4.encode(&mut table_4);
    ipv6.encode(&mut table_6);
    assemble([L::BYTES as u8, 0], settings.seed, hops, (table_4, n_ipv4), (table_6, n_ipv6))
}

/// Builds and writes tries, with leaves that are as wide as the number of next hops asks for.
/// # Errors
/// [`InsertError`]; also for a number beyond 2^24.
/// # Panics
/// When there are more than 2^24 next hops or more prefixes than [`Settings::MAX_PREFIXES`], or a next hop has a name of
/// 64 KiB.
pub fn encode_trie(
    key: &SecretKey,
    hops: &[String],
    ipv4: &[(Prefix<u32>, u64)],
    ipv6: &[(Prefix<u128>, u64)],
) -> Result<Vec<u8>, InsertError> {
    // Tables of few next hops have leaves of half the size.
    if hops.len() <= u16::MAX_HOP as usize {
        encode_leaves::<u16>(key, hops, ipv4, ipv6)
    } else {
        encode_leaves::<u32>(key, hops, ipv4, ipv6)
    }
}

fn encode_leaves<L: Leaf>(
    key: &SecretKey,
    hops: &[String],
    ipv4: &[(Prefix<u32>, u64)],
    ipv6: &[(Prefix<u128>, u64)],
) -> Result<Vec<u8>, InsertError> {
    let settings = Settings::new(ipv4.len().max(ipv6.len()), key);
    let (table_4, table_6) = (whole::<u32, L>(&settings, ipv4)?, whole::<u128, L>(&settings, ipv6)?);
    Ok(encode(&settings, hops, (&table_4, ipv4.len() as u64), (&table_6, ipv6.len() as u64)))
}

fn whole<A: Address, L: Leaf>(settings: &Settings, routes: &[(Prefix<A>, u64)]) -> Result<Update<A, L>, InsertError> {
    let mut trie = PrefixTrie::<A, L>::empty(settings.clone());
    trie.insert_batch(routes, &mut Vec::new())?;
    Ok(trie.whole())
}

/// Builds and writes tables behind Bloom filters.
/// # Errors
/// [`InsertError`], for the number of a next hop of more than 15 bits.
/// # Panics
/// When a next hop has a name of 64 KiB.
pub fn encode_bloom(
    pushed: Pushed,
    key: &SecretKey,
    hops: &[String],
    ipv4: &[(Prefix<u32>, u64)],
    ipv6: &[(Prefix<u128>, u64)],
) -> Result<Vec<u8>, InsertError> {
    let (mut table_4, mut table_6) = (Vec::new(), Vec::new());
    image::build::<u32, 1>(pushed, ipv4, key, &mut table_4)?;
    image::build::<u128, 3>(pushed, ipv6, key, &mut table_6)?;
    let design = if pushed == Pushed::Basic { 1 } else { 2 };
    Ok(assemble([2, design], 0, hops, (table_4, ipv4.len() as u64), (table_6, ipv6.len() as u64)))
}

fn assemble(
    form: [u8; 2],
    seed: u64,
    hops: &[String],
    (table_4, n_ipv4): (Vec<u8>, u64),
    (table_6, n_ipv6): (Vec<u8>, u64),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + table_4.len() + table_6.len());
    out.extend(MAGIC);
    out.extend(FORMAT.to_le_bytes());
    out.extend(form);
    out.extend((hops.len() as u32).to_le_bytes());
    for field in [seed, n_ipv4, n_ipv6, table_4.len() as u64, table_6.len() as u64] {
        out.extend(field.to_le_bytes());
    }
    for hop in hops {
        out.extend(u16::try_from(hop.len()).expect("names of next hops are short").to_le_bytes());
        out.extend(hop.as_bytes());
    }
    out.extend(table_4);
    out.extend(table_6);
    out.extend(xxh3_64(&out).to_le_bytes());
    out
}

/// Reads a file.
/// # Errors
/// [`FileError`]; everything that lookups rely on is checked.
pub fn decode(file: &[u8]) -> Result<PrefixFile, FileError> {
    if !file.starts_with(&MAGIC) {
        return Err(FileError::NotPrefixes { found: file[..file.len().min(8)].to_vec() });
    }
    let mut bytes = Bytes(&file[8..]);
    let found = bytes.u16()?;
    if found != FORMAT {
        return Err(FileError::UnknownFormat { found });
    }
    let Some((body, checksum)) = file.split_last_chunk::<8>() else {
        return Err(BytesError::Truncated { needed: 8, left: file.len() }.into());
    };
    let (computed, stored) = (xxh3_64(body), u64::from_le_bytes(*checksum));
    if computed != stored {
        return Err(FileError::WrongChecksum { computed, stored });
    }
    let mut bytes = Bytes(&body[10..]);
    let form = [bytes.u8()?, bytes.u8()?];
    let n_hops = bytes.count(2)?;
    let seed = bytes.u64()?;
    let most = Settings::MAX_PREFIXES as u64;
    let n_ipv4 = at_most("prefixes", bytes.u64()?, most)?;
    let n_ipv6 = at_most("prefixes", bytes.u64()?, most)?;
    let (len_4, len_6) = (bytes.u64()? as usize, bytes.u64()? as usize);
    let mut hops = Vec::with_capacity(n_hops);
    for _ in 0..n_hops {
        let len = bytes.u16()?.into();
        let not_text = |_| DecodeError::OutOfRange { field: "names that are no UTF-8", value: 1, max: 0 };
        hops.push(String::from_utf8(bytes.take(len)?.to_vec()).map_err(not_text)?);
    }
    let (table_4, table_6) = (bytes.take(len_4)?, bytes.take(len_6)?);
    bytes.end()?;
    let ipv4 = table::<u32, 1>(table_4, form, seed, n_ipv4)?;
    let ipv6 = table::<u128, 3>(table_6, form, seed, n_ipv6)?;
    let pushed = [None, Some(Pushed::Basic), Some(Pushed::Few)].into_iter().nth(form[1].into()).flatten();
    Ok(PrefixFile { hops, pushed, ipv4, ipv6 })
}

fn table<A: Address, const W: usize>(
    bytes: &[u8],
    form: [u8; 2],
    seed: u64,
    n_prefixes: u64,
) -> Result<Table<A>, FileError> {
    let settings = Settings { max_prefixes: n_prefixes as usize, seed };
    let half: Box<dyn Half<A>> = match form {
        [2, 0] => Box::new(PrefixTrieQuery::<A>::from_image(&settings, &Update::decode(bytes)?)?),
        [4, 0] => Box::new(PrefixTrieQuery::<A, u32>::from_image(&settings, &Update::decode(bytes)?)?),
        [2, 1] => Box::new(image::decode::<A, W>(Pushed::Basic, bytes)?),
        [2, 2] => Box::new(image::decode::<A, W>(Pushed::Few, bytes)?),
        [2 | 4, value] => {
            return Err(DecodeError::OutOfRange { field: "number of a design", value: value.into(), max: 2 }.into());
        }
        [value, _] => {
            return Err(DecodeError::OutOfRange { field: "bytes of a leaf", value: value.into(), max: 4 }.into());
        }
    };
    Ok(Table { n_prefixes, half })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lpm::PrefixTrie;
    use crate::traits::Control;

    fn file<L: Leaf>() -> Vec<u8> {
        let settings = Settings::new(3, &SecretKey::from_seed(1));
        let mut ipv4 = PrefixTrie::<u32, L>::empty(settings.clone());
        let mut ipv6 = PrefixTrie::<u128, L>::empty(settings.clone());
        let mut updates = Vec::new();
        ipv4.insert("10.0.0.0/8".parse().unwrap(), 1, &mut updates).unwrap();
        ipv4.insert("10.1.2.3/32".parse().unwrap(), 2, &mut updates).unwrap();
        ipv6.insert("2001:db8::/32".parse().unwrap(), 2, &mut Vec::new()).unwrap();
        encode(&settings, &["a".into(), "b".into()], (&ipv4.whole(), 2), (&ipv6.whole(), 1))
    }

    fn bloom(pushed: Pushed) -> Vec<u8> {
        let ipv4 = [("10.0.0.0/8".parse().unwrap(), 1), ("10.1.2.3/32".parse().unwrap(), 2)];
        let ipv6 = [("2001:db8::/32".parse().unwrap(), 2)];
        encode_bloom(pushed, &SecretKey::from_seed(1), &["a".into(), "b".into()], &ipv4, &ipv6).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        for file in [file::<u16>(), file::<u32>(), bloom(Pushed::Basic), bloom(Pushed::Few)] {
            let file = decode(&file).ok().unwrap();
            assert_eq!((file.ipv4.n_prefixes, file.ipv6.n_prefixes), (2, 1));
            let answers = [0x0a01_0203, 0x0a01_0204, 0x0b00_0000].map(|address| file.hop(file.ipv4.lookup(address)));
            assert_eq!(answers, [Some("b"), Some("a"), None]);
            assert_eq!(file.hop(file.ipv6.lookup(0x2001_0db8 << 96)), Some("b"));
        }
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let good = file::<u32>();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&good[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn a_checksum_that_fits_does_not_make_nonsense_a_table() {
        for (good, at) in
            [file::<u16>(), bloom(Pushed::Few)].iter().flat_map(|file| (8..file.len() - 8).map(move |at| (file, at)))
        {
            let mut bad = good[..good.len() - 8].to_vec();
            bad[at] = bad[at].wrapping_add(0x81);
            bad.extend(xxh3_64(&bad).to_le_bytes());
            // Names and counts may differ, but not the tables, which have digests. Nothing panics.
            let _ = decode(&bad);
        }
    }
}

//! Orthogonal Bloom filters (OBF): one filter per bit of the value holds the names in which the bit is one.
//!
//! A false positive flips a bit of a live name's value. All names are known when the filters are built, so names with
//! wrong values go to an exact table, which takes precedence: no name that was built in gets a wrong value. In the
//! paper's comparison such names got one.
//!
//! Cost: l filters, each 2 lines for a zero and k = 13 for a one, and a search in the exact table, which has about l/2
//! names in 10,000; 9.6 l bits per name for random values.
//! Alien names: mostly 0; each bit is one with probability [`RATE`].
//! Source: the OBFs of "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section
//! VI: an Othello with one Bloom filter per bit, of at most 0.01 % false positives. Differs: the exact table.
//! Limits: no two names with one digest. Updates: none.

use super::{MAX_NAMES, Settings, Sorted, StaticMap, put_words};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::prefetch::BURST;
use crate::bloom::{Bloom, Layout, Shape, Standard};
use crate::hash::{Digest, mix64};
use crate::traits::{Build, InsertError};

/// False-positive rate of each filter.
pub const RATE: f64 = 1e-4;

/// A static map from digests to values.
#[derive(Clone, Debug)]
pub struct Orthogonal<L: Layout = Standard> {
    /// One filter per bit of the value.
    filters: Vec<Bloom<L>>,
    /// Names for which the filters give a wrong value.
    exact: Sorted<1>,
    n_names: usize,
}

impl<L: Layout> Orthogonal<L> {
    /// Number of names.
    pub fn len(&self) -> usize {
        self.n_names
    }

    /// Whether no name is in.
    pub fn is_empty(&self) -> bool {
        self.n_names == 0
    }

    /// Number of names in the exact table, for which a filter is wrong.
    pub fn n_exact(&self) -> usize {
        self.exact.len()
    }
}

/// The seed of the filter of a bit.
fn seed_of(settings: &Settings, bit: u8) -> u64 {
    mix64(settings.seed.wrapping_add(bit.into()))
}

/// The number of the filters' layout in images: the first letter of its name.
fn layout_id<L: Layout>() -> u8 {
    L::NAME.as_bytes()[0]
}

fn decode_filter<L: Layout>(settings: &Settings, bit: u8, bytes: &mut Bytes) -> Result<Bloom<L>, DecodeError> {
    let (bits, n_hashes) = (bytes.u64()?, bytes.u8()?);
    let words = bytes.take(usize::try_from(bits.div_ceil(64).saturating_mul(8)).unwrap_or(usize::MAX))?;
    let shape = Shape::new(bits, n_hashes.into()).ok().filter(|shape| shape.bits() == bits);
    let max = crate::bloom::MAX_BITS;
    let shape = shape.ok_or(DecodeError::OutOfRange { field: "bits of a filter", value: bits, max })?;
    let words = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    Bloom::from_words(shape, seed_of(settings, bit), words).map_err(|_| DecodeError::OutOfRange {
        field: "bits beyond the end of a filter",
        value: 1,
        max: 0,
    })
}

/// The filters' answers, right or wrong.
fn filtered<L: Layout>(filters: &[Bloom<L>], digests: &[Digest], values: &mut [u64]) {
    for (digests, values) in digests.chunks(BURST).zip(values.chunks_mut(BURST)) {
        values.fill(0);
        let mut present = [false; BURST];
        for (bit, filter) in filters.iter().enumerate() {
            filter.lookup_batch(digests, &mut present);
            for (value, present) in values.iter_mut().zip(present) {
                *value |= u64::from(present) << bit;
            }
        }
    }
}

impl<L: Layout> StaticMap for Orthogonal<L> {
    fn lookup(&self, digest: Digest) -> u64 {
        let bits = self.filters.iter().enumerate().map(|(bit, filter)| u64::from(filter.lookup(digest)) << bit);
        self.exact.get(&[digest.0]).unwrap_or_else(|| bits.sum())
    }

    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        let values = &mut values[..digests.len()];
        filtered(&self.filters, digests, values);
        for (digest, value) in digests.iter().zip(values) {
            if let Some(exact) = self.exact.get(&[digest.0]) {
                *value = exact;
            }
        }
    }

    fn size_bits(&self) -> u64 {
        self.filters.iter().map(Bloom::size_bits).sum::<u64>() + self.exact.size_bits()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.n_names as u64).to_le_bytes());
        out.push(layout_id::<L>());
        for filter in &self.filters {
            out.extend(filter.shape().bits().to_le_bytes());
            out.push(filter.shape().n_hashes() as u8);
            put_words(filter.words(), out);
        }
        self.exact.encode(out);
    }

    fn decode(settings: &Settings, bytes: &mut Bytes) -> Result<Self, DecodeError> {
        let n_names = at_most("names", bytes.u64()?, MAX_NAMES)? as usize;
        let id = bytes.u8()?;
        if id != layout_id::<L>() {
            return Err(DecodeError::OutOfRange { field: "layout", value: id.into(), max: layout_id::<L>().into() });
        }
        let filters = (0..settings.value_bits).map(|bit| decode_filter(settings, bit, bytes));
        let filters = filters.collect::<Result<_, _>>()?;
        Ok(Self { filters, exact: Sorted::decode(settings, bytes)?, n_names })
    }
}

impl<L: Layout> Build for Orthogonal<L> {
    type Key = Digest;
    type Settings = Settings;

    fn build(settings: &Settings, entries: &[(Digest, u64)], threads: usize) -> Result<Self, InsertError> {
        settings.check(entries)?;
        let mut digests: Vec<_> = entries.iter().map(|&(digest, _)| digest).collect();
        digests.sort_unstable();
        if let Some(pair) = digests.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(InsertError::DuplicateDigest { digest: pair[0].0 });
        }
        let filter_of = |bit: u8| {
            let members = || entries.iter().filter(move |(_, value)| value >> bit & 1 != 0);
            let shape = Shape::for_names(members().count() as u64, RATE).expect("2^35 names and more fit a filter");
            let mut filter = Bloom::<L>::new(shape, seed_of(settings, bit));
            members().for_each(|&(digest, _)| filter.insert(digest));
            filter
        };
        let bits: Vec<u8> = (0..settings.value_bits).collect();
        let filters: Vec<Bloom<L>> = std::thread::scope(|scope| {
            let share = bits.len().div_ceil(threads.max(1));
            let work = |bits: &[u8]| bits.iter().map(|&bit| filter_of(bit)).collect::<Vec<_>>();
            let shares: Vec<_> = bits.chunks(share).map(|bits| scope.spawn(move || work(bits))).collect();
            shares.into_iter().flat_map(|share| share.join().expect("no panic in a worker")).collect()
        });
        let mut wrong = Vec::new();
        for entries in entries.chunks(BURST) {
            let (mut digests, mut values) = ([Digest::default(); BURST], [0; BURST]);
            digests.iter_mut().zip(entries).for_each(|(digest, entry)| *digest = entry.0);
            filtered(&filters, &digests[..entries.len()], &mut values[..entries.len()]);
            let is_wrong = entries.iter().zip(values).filter(|((_, value), filtered)| value != filtered);
            wrong.extend(is_wrong.map(|(&(digest, value), _)| ([digest.0], value)));
        }
        let exact = Sorted::build(settings, &wrong, threads)?;
        Ok(Self { filters, exact, n_names: entries.len() })
    }
}

//! The query half: the filter's bits, the hash table, and the lengths that entries have.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls the search that is compiled for another processor")
)]

#[cfg(target_arch = "x86_64")]
use crate::base::processor::{Kernel, Vectors};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::update::{Update, bit_prf, rest_prf};
use super::{Membership, Settings, name};
use crate::base::atomic_words::AtomicWords;
use crate::base::part::PartId;
use crate::base::prefetch::BURST;
use crate::cuckoo::exact::{self, CuckooQuery};
use crate::lpm::prefix::{Address, Prefix};
use crate::publish::seq_lock::SeqLock;
use crate::traits::Undivided;
use crate::traits::{Applied, ApplyError, BatchReader, Query};

/// Words of a bit set of lengths.
const LENGTH_WORDS: usize = 3;
/// Possible lengths: 0 to 128.
const MAX_LENGTHS: usize = 129;

/// The lengths that entries have: length `l` is bit `l % 64` of word `l / 64`.
pub(super) type Lengths = [u64; LENGTH_WORDS];

/// What readers and the writer share besides the hash table.
struct Shared<F> {
    filter: F,
    words: AtomicWords,
    lengths: [AtomicU64; LENGTH_WORDS],
    seq_lock: SeqLock,
}

impl<F> Shared<F> {
    #[inline(always)]
    fn is_one(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize].load(Relaxed) >> (bit % 64) & 1 != 0
    }

    /// Called by the one writer only.
    fn put(&self, bit: u64, one: bool) {
        let word = &self.words[(bit / 64) as usize];
        word.store(word.load(Relaxed) & !(1 << (bit % 64)) | u64::from(one) << (bit % 64), Relaxed);
    }

    fn lengths(&self) -> Lengths {
        std::array::from_fn(|at| self.lengths[at].load(Relaxed))
    }

    fn put_lengths(&self, lengths: Lengths) {
        self.lengths.iter().zip(lengths).for_each(|(word, lengths)| word.store(lengths, Relaxed));
    }

    /// Values of up to a burst of addresses; `look_up` is the hash table. Returns the number of table lookups.
    ///
    /// Until no address is left: each tests its next lengths in the filter, as many as make a burst in total, up to its
    /// first positive. Then all are looked up in the table at once; false positives continue after that length.
    #[inline]
    fn search<A: Address, const W: usize>(
        &self,
        addresses: &[A],
        values: &mut [u64],
        look_up: impl FnMut(&[[u64; W]], &mut [u64]),
    ) -> usize
    where
        F: Membership<A>,
    {
        #[cfg(target_arch = "x86_64")]
        if Kernel::get().vectors() >= Vectors::Avx2 {
            // SAFETY: the processor has BMI1 and BMI2.
            return unsafe { self.search_bmi2(addresses, values, look_up) };
        }
        self.search_anywhere(addresses, values, look_up)
    }

    /// The same search, compiled for processors whose shifts and multiplications leave the flags alone.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2")]
    fn search_bmi2<A: Address, const W: usize>(
        &self,
        addresses: &[A],
        values: &mut [u64],
        look_up: impl FnMut(&[[u64; W]], &mut [u64]),
    ) -> usize
    where
        F: Membership<A>,
    {
        self.search_anywhere(addresses, values, look_up)
    }

    #[inline(always)]
    fn search_anywhere<A: Address, const W: usize>(
        &self,
        addresses: &[A],
        values: &mut [u64],
        mut look_up: impl FnMut(&[[u64; W]], &mut [u64]),
    ) -> usize
    where
        F: Membership<A>,
    {
        values.fill(0);
        let (lengths, n_lengths, n_filtered) = self.longest_first();
        // The index in `lengths` at which an address continues.
        let mut next = [0u8; BURST];
        let mut open: [u8; BURST] = std::array::from_fn(|index| index as u8);
        let (mut n_open, mut n_asked) = (addresses.len(), 0);
        // The tests: prefixes, the addresses that they belong to, and the indices of their lengths.
        let mut prefixes = [Prefix::of(A::default(), 0); BURST];
        let (mut owners, mut places) = ([0u8; BURST], [0u8; BURST]);
        let (mut sent, mut names, mut found) = ([0u8; BURST], [[0; W]; BURST], [0; BURST]);
        while n_open > 0 {
            let mut n_sent = 0;
            while n_open > 0 {
                let n_each = (BURST / n_open).min(F::AT_ONCE) as u8;
                let mut n = 0;
                for &index in &open[..n_open] {
                    let address = addresses[usize::from(index)];
                    let from = next[usize::from(index)];
                    for at in from..(from + n_each).min(n_filtered) {
                        prefixes[n] = Prefix::of(address, lengths[usize::from(at)]);
                        (owners[n], places[n]) = (index, at);
                        n += 1;
                    }
                }
                let mut positive = self.filter.positives(&self.words, &prefixes[..n]);
                // The first positive of each address, which is written last.
                let mut first = [u8::MAX; BURST];
                while positive != 0 {
                    let test = positive.ilog2() as usize;
                    positive ^= 1 << test;
                    first[usize::from(owners[test])] = places[test];
                }
                let mut n_left = 0;
                for place in 0..n_open {
                    let index = open[place];
                    let (first, next) = (first[usize::from(index)], &mut next[usize::from(index)]);
                    let behind = (*next + n_each).min(n_filtered);
                    // The default route needs no filter: if there is one, it matches.
                    let is_sent = first != u8::MAX || behind == n_filtered && n_filtered < n_lengths;
                    *next = first.min(behind) + u8::from(is_sent);
                    (sent[n_sent], open[n_left]) = (index, index);
                    n_sent += usize::from(is_sent);
                    n_left += usize::from(!is_sent && behind < n_filtered);
                }
                n_open = n_left;
            }
            for (name_of, &index) in names.iter_mut().zip(&sent[..n_sent]) {
                let len = lengths[usize::from(next[usize::from(index)] - 1)];
                *name_of = name(Prefix::of(addresses[usize::from(index)], len));
            }
            look_up(&names[..n_sent], &mut found[..n_sent]);
            n_asked += n_sent;
            for (&index, &found) in sent[..n_sent].iter().zip(&found) {
                values[usize::from(index)] = found & 0x7FFF;
                open[n_open] = index;
                n_open += usize::from(found == 0 && next[usize::from(index)] < n_lengths);
            }
        }
        n_asked
    }

    /// The lengths that entries have, their number, and how many of them are tested in the filter: all except the
    /// default route's, which is the last.
    #[inline(always)]
    fn longest_first(&self) -> ([u8; MAX_LENGTHS], u8, u8) {
        let (mut lengths, mut n) = ([0; MAX_LENGTHS], 0);
        for (at, word) in self.lengths.iter().enumerate().rev() {
            let mut bits = word.load(Relaxed);
            while bits != 0 && n < MAX_LENGTHS {
                let bit = bits.ilog2();
                bits ^= 1 << bit;
                lengths[n] = at as u8 * 64 + bit as u8;
                n += 1;
            }
        }
        let has_default = n > 0 && lengths[n - 1] == 0;
        (lengths, n as u8, n as u8 - u8::from(has_default))
    }
}

/// Query half of prefixes behind a filter, and the handle of its one writer.
pub struct BloomLpmQuery<A, F, const W: usize> {
    shared: Arc<Shared<F>>,
    table: CuckooQuery<W>,
    version: u64,
    /// See [`Update`].
    digest: u64,
    address: std::marker::PhantomData<A>,
}

impl<A: Address, F: Membership<A>, const W: usize> BloomLpmQuery<A, F, W> {
    pub(super) fn new(
        settings: &Settings<F>,
        words: &[u64],
        lengths: Lengths,
        table: CuckooQuery<W>,
        (version, digest): (u64, u64),
    ) -> Self {
        let shared = Shared {
            filter: settings.filter.clone(),
            words: AtomicWords::filled(words).unwrap_or_else(|error| panic!("no memory for a filter: {error}")),
            lengths: Default::default(),
            seq_lock: SeqLock::default(),
        };
        shared.put_lengths(lengths);
        Self { shared: Arc::new(shared), table, version, digest, address: std::marker::PhantomData }
    }

    /// As [`Query::lookup_batch`]; returns the number of table lookups.
    /// # Panics
    /// When `values` is shorter than `addresses`.
    pub fn lookup_counted(&self, addresses: &[A], values: &mut [u64]) -> usize {
        let values = &mut values[..addresses.len()];
        let bursts = addresses.chunks(BURST).zip(values.chunks_mut(BURST));
        let ask = |names: &[[u64; W]], found: &mut [u64]| self.table.lookup_batch(names, found);
        bursts.map(|(addresses, values)| self.shared.search(addresses, values, ask)).sum()
    }

    /// The digest after an update, if the update fits filter and lengths.
    fn digest_after(&self, update: &Update<W>, lengths: Lengths) -> Result<u64, ApplyError> {
        let malformed = |reason| Err(ApplyError::Malformed { reason });
        let (n_bits, seed) = (self.shared.filter.n_bits(), self.table.settings().seed());
        if update.set.iter().chain(&update.clear).any(|&bit| bit >= n_bits) {
            return malformed("a bit is beyond the end of the filter");
        }
        if (A::BITS as usize + 1..64 * LENGTH_WORDS).any(|len| update.lengths[len / 64] >> (len % 64) & 1 != 0) {
            return malformed("a length is beyond that of an address");
        }
        if update.set.iter().any(|&bit| self.shared.is_one(bit))
            || !update.clear.iter().all(|&bit| self.shared.is_one(bit))
        {
            return malformed("a bit turns that has its new value already");
        }
        let turned = update.set.iter().chain(&update.clear).fold(0, |digest, &bit| digest ^ bit_prf(seed, bit));
        let (before, after) = (self.table.held().0, update.table_version());
        let got = self.digest ^ turned ^ rest_prf(seed, lengths, before) ^ rest_prf(seed, update.lengths, after);
        let expected = update.digest;
        ApplyError::check_digest(PartId::WHOLE, got, expected)
    }

    /// Appends version, digest, lengths, filter and table; `table` is [`Settings::table`].
    pub(super) fn put(&self, table: &exact::Settings, out: &mut Vec<u8>) {
        out.extend([self.version, self.digest].map(u64::to_le_bytes).as_flattened());
        out.extend(self.shared.lengths().map(u64::to_le_bytes).as_flattened());
        self.shared.words.iter().for_each(|word| out.extend(word.load(Relaxed).to_le_bytes()));
        exact::Update::<W>::Table(self.table.image()).encode(table, out);
    }

    /// Memory of filter and hash table, in bytes.
    pub fn size_bytes(&self) -> [u64; 2] {
        [self.filter_bytes(), self.table.size_bits() / 8]
    }

    /// Version, and digests of the filter and of the table.
    pub fn held(&self) -> (u64, u64, u64) {
        (self.version, self.digest, self.table.held().1)
    }

    /// Whether the filter is positive for a prefix.
    pub fn may_hold(&self, prefix: Prefix<A>) -> bool {
        self.shared.filter.bits_of(prefix).all(|bit| self.shared.is_one(bit))
    }

    /// Lengths that entries have.
    pub fn n_lengths(&self) -> u32 {
        self.shared.lengths.iter().map(|word| word.load(Relaxed).count_ones()).sum()
    }

    /// Memory of the filter, in bytes.
    pub fn filter_bytes(&self) -> u64 {
        self.shared.words.len() as u64 * 8
    }

    /// The probability that a prefix with uniform bits is positive, from the share of bits that are one.
    pub fn fill_rate(&self) -> f64 {
        let ones: u64 = self.shared.words.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum();
        (ones as f64 / self.shared.filter.n_bits() as f64).powi(self.shared.filter.n_hashes() as i32)
    }

    /// A reader for another thread.
    pub fn reader(&self) -> Reader<A, F, W> {
        let address = std::marker::PhantomData;
        Reader { shared: Arc::clone(&self.shared), table: self.table.reader(), address }
    }
}

impl<A: Address, F: Membership<A>, const W: usize> Query for BloomLpmQuery<A, F, W> {
    type Key = A;
    type Update = Update<W>;

    fn lookup(&self, address: A) -> u64 {
        let mut value = [0];
        self.lookup_counted(&[address], &mut value);
        value[0]
    }

    fn lookup_batch(&self, addresses: &[A], values: &mut [u64]) {
        self.lookup_counted(addresses, values);
    }

    /// New bits first, then the table, then cleared bits: at no time does an entry have a bit that is zero.
    fn apply(&mut self, update: &Update<W>) -> Result<Applied, ApplyError> {
        if update.to <= self.version {
            return Ok(Applied::AlreadyThere);
        }
        ApplyError::check_version(PartId::WHOLE, self.version, update.from)?;
        let (shared, lengths) = (Arc::clone(&self.shared), self.shared.lengths());
        let digest = self.digest_after(update, lengths)?;
        update.set.iter().for_each(|&bit| shared.put(bit, true));
        shared.put_lengths(std::array::from_fn(|at| lengths[at] | update.lengths[at]));
        // A whole new table publishes itself; readers of the old one retry.
        let applied = match &update.table {
            exact::Update::Table(_) => self.table.apply(&update.table),
            exact::Update::Slots(_) => shared.seq_lock.write(|| self.table.apply(&update.table)),
        };
        if applied != Ok(Applied::Applied) {
            update.set.iter().for_each(|&bit| shared.put(bit, false));
            shared.put_lengths(lengths);
            return applied.and(Err(ApplyError::Malformed { reason: "the table has a later version than the filter" }));
        }
        shared.seq_lock.write(|| {
            update.clear.iter().for_each(|&bit| shared.put(bit, false));
            shared.put_lengths(update.lengths);
        });
        (self.version, self.digest) = (update.to, digest);
        Ok(Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        self.filter_bytes() * 8 + self.table.size_bits() + 64 * LENGTH_WORDS as u64
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<A, F, const W: usize> {
    shared: Arc<Shared<F>>,
    table: exact::Reader<W>,
    address: std::marker::PhantomData<A>,
}

impl<A: Address, F: Membership<A>, const W: usize> BatchReader<[A]> for Reader<A, F, W> {
    fn lookup_batch(&mut self, addresses: &[A], values: &mut [u64]) {
        let values = &mut values[..addresses.len()];
        let Self { shared, table, .. } = self;
        for (addresses, values) in addresses.chunks(BURST).zip(values.chunks_mut(BURST)) {
            shared.seq_lock.read(|| {
                let table = table.pin();
                shared.search(addresses, values, |names: &[[u64; W]], found: &mut [u64]| {
                    table.lookup_batch(names, found);
                });
            });
        }
    }

    fn offline(&mut self) {
        self.table.offline();
    }
}

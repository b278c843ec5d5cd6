//! The query half: the filter's bits, the hash table, and which lengths there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::control::Update;
use super::{Membership, Settings, name};
use crate::cuckoo::exact::{self, CuckooQuery};
use crate::lpm::prefix::{Address, Prefix};
use crate::publish::meeting::Meeting;
use crate::traits::{Applied, ApplyError, BatchReader, Query};

/// Addresses of a burst.
const BURST: usize = 32;
/// Words that have a bit for each length.
const LENGTH_WORDS: usize = 3;

/// The lengths that entries have: of length `l` bit `l % 64` of word `l / 64`.
pub(super) type Lengths = [u64; LENGTH_WORDS];

/// What readers and the writer share besides the hash table.
struct Shared<F> {
    filter: F,
    words: Box<[AtomicU64]>,
    lengths: [AtomicU64; LENGTH_WORDS],
    meeting: Meeting,
}

impl<F> Shared<F> {
    #[inline(always)]
    fn is_one(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize].load(Relaxed) >> (bit % 64) & 1 != 0
    }

    /// For the one writer.
    fn put(&self, bit: u64, one: bool) {
        let word = &self.words[(bit / 64) as usize];
        word.store(word.load(Relaxed) & !(1 << (bit % 64)) | u64::from(one) << (bit % 64), Relaxed);
    }

    fn put_lengths(&self, lengths: Lengths) {
        self.lengths.iter().zip(lengths).for_each(|(word, lengths)| word.store(lengths, Relaxed));
    }

    /// The values of up to a burst of addresses; `look_up` is the hash table. How often it was asked.
    #[inline]
    fn search<A: Address, const W: usize>(
        &self,
        addresses: &[A],
        values: &mut [u64],
        mut look_up: impl FnMut(&[[u64; W]], &mut [u64]),
    ) -> usize
    where
        F: Membership<A>,
    {
        values.fill(0);
        let mut open: [u8; BURST] = std::array::from_fn(|index| index as u8);
        let (mut n_open, mut n_asked) = (addresses.len(), 0);
        for at in (0..LENGTH_WORDS).rev() {
            let mut lengths = self.lengths[at].load(Relaxed);
            while lengths != 0 && n_open > 0 {
                let len = lengths.ilog2();
                lengths ^= 1 << len;
                let len = at as u8 * 64 + len as u8;
                let (mut names, mut asked, mut found) = ([[0; W]; BURST], [0u8; BURST], [0; BURST]);
                let mut n = 0;
                for (place, &index) in open[..n_open].iter().enumerate() {
                    let prefix = Prefix::of(addresses[usize::from(index)], len);
                    // The default route needs no filter: where it is, it matches.
                    let may_be = len == 0 || self.filter.bits_of(prefix).all(|bit| self.is_one(bit));
                    (names[n], asked[n]) = (name(prefix), place as u8);
                    n += usize::from(may_be);
                }
                if n == 0 {
                    continue;
                }
                look_up(&names[..n], &mut found[..n]);
                n_asked += n;
                for (&place, &found) in asked[..n].iter().zip(&found[..n]) {
                    let index = &mut open[usize::from(place)];
                    if found != 0 {
                        values[usize::from(*index)] = found & 0x7FFF;
                        *index = u8::MAX;
                    }
                }
                let mut n_left = 0;
                for place in 0..n_open {
                    open[n_left] = open[place];
                    n_left += usize::from(open[place] != u8::MAX);
                }
                n_open = n_left;
            }
        }
        n_asked
    }
}

/// Query half of prefixes behind a filter, and the handle of its one writer.
pub struct BloomLpmQuery<A, F, const W: usize> {
    shared: Arc<Shared<F>>,
    table: CuckooQuery<W>,
    version: u64,
    address: std::marker::PhantomData<A>,
}

impl<A: Address, F: Membership<A>, const W: usize> BloomLpmQuery<A, F, W> {
    pub(super) fn new(
        settings: &Settings<F>,
        words: &[u64],
        lengths: Lengths,
        table: CuckooQuery<W>,
        version: u64,
    ) -> Self {
        let shared = Shared {
            filter: settings.filter.clone(),
            words: words.iter().map(|&word| AtomicU64::new(word)).collect(),
            lengths: Default::default(),
            meeting: Meeting::default(),
        };
        shared.put_lengths(lengths);
        Self { shared: Arc::new(shared), table, version, address: std::marker::PhantomData }
    }

    /// As [`Query::lookup_batch`], and how often the hash table was asked.
    /// # Panics
    /// When `values` is shorter than `addresses`.
    pub fn lookup_counted(&self, addresses: &[A], values: &mut [u64]) -> usize {
        let values = &mut values[..addresses.len()];
        let bursts = addresses.chunks(BURST).zip(values.chunks_mut(BURST));
        let ask = |names: &[[u64; W]], found: &mut [u64]| self.table.lookup_batch(names, found);
        bursts.map(|(addresses, values)| self.shared.search(addresses, values, ask)).sum()
    }

    /// Whether the filter takes a prefix for one that is in.
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

    /// The probability that a prefix whose bits are uniform is taken for one that is in, by the share of bits that are.
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

    /// New bits first, then the table, then bits that go: at no time is an entry behind a bit that is zero.
    fn apply(&mut self, update: &Update<W>) -> Result<Applied, ApplyError> {
        if update.to <= self.version {
            return Ok(Applied::AlreadyThere);
        }
        if update.from != self.version {
            return Err(ApplyError::Gap { prefix: 0, depth: 0, current: self.version, from: update.from });
        }
        let n_bits = self.shared.filter.n_bits();
        if update.set.iter().chain(&update.clear).any(|&bit| bit >= n_bits) {
            return Err(ApplyError::Malformed { reason: "a bit is beyond the end of the filter" });
        }
        let shared = Arc::clone(&self.shared);
        update.set.iter().for_each(|&bit| shared.put(bit, true));
        shared.put_lengths(std::array::from_fn(|at| shared.lengths[at].load(Relaxed) | update.lengths[at]));
        // A table that is new as a whole is published by itself; readers of the old one look again.
        let is_small = |table: &exact::Update<W>| matches!(table, exact::Update::Slots(_));
        let n_large = update.table.iter().rposition(|table| !is_small(table)).map_or(0, |last| last + 1);
        for table in &update.table[..n_large] {
            self.table.apply(table)?;
        }
        shared.meeting.write(|| {
            for table in &update.table[n_large..] {
                self.table.apply(table)?;
            }
            update.clear.iter().for_each(|&bit| shared.put(bit, false));
            shared.put_lengths(update.lengths);
            Ok(())
        })?;
        self.version = update.to;
        Ok(Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        self.filter_bytes() * 8 + self.table.size_bits() + 64 * LENGTH_WORDS as u64
    }
}

/// A thread's access to prefixes behind a filter, beside their writer.
pub struct Reader<A, F, const W: usize> {
    shared: Arc<Shared<F>>,
    table: exact::Reader<W>,
    address: std::marker::PhantomData<A>,
}

impl<A: Address, F: Membership<A>, const W: usize> BatchReader for Reader<A, F, W> {
    type Key = A;

    fn lookup_batch(&mut self, addresses: &[A], values: &mut [u64]) {
        let values = &mut values[..addresses.len()];
        let Self { shared, table, .. } = self;
        for (addresses, values) in addresses.chunks(BURST).zip(values.chunks_mut(BURST)) {
            shared.meeting.read(|| {
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

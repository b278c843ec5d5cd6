//! A set of names that changes, as a Bloom filter: counters and exact members left of the seam, bits right of it.
//!
//! The size is that of the most names there may be, and stays; so bits are stored in place, one word at a time, beside
//! readers. A name that is in before and after an update is never missed: all its bits stay one.
//! Counters are the control half's business, and so are removals of names that are not in, which would take the bits of
//! others away: the control half knows its members exactly, at 8 to 16 bytes a name beside 4 bits a bit.
//!
//! Cost: as [`Bloom`](crate::bloom); updates of 8 bytes a bit that turned, k a name at most.
//! Alien names: value 1 with the filter's false-positive rate, 0 otherwise. Members have the value 1, no other.
//! Source: as [`Counting`]; counters beside the control half instead of the filter, as Summary Cache has them.
//! ```text
//! kind 0: | 0 | from 8 | to 8 | digest 8 | n 4 | n x (2 bit + value, 8) |
//! kind 1: | 1 | version 8 | digest 8 | words |
//! ```

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::BURST;
use crate::bloom::{BitChange, CounterBits, Counting, Layout, MAX_HASHES, Places, Shape, Standard};
use crate::bytes::Bytes;
use crate::cuckoo::words::Words;
use crate::hash::{Digest, Purpose, SecretKey, mix64};
use crate::othello::prefetch;
use crate::othello::update::{DecodeError, at_most};
use crate::testkit::Subject;
use crate::traits::{Applied, ApplyError, BatchReader, Control, InsertError, Query, Replicated};

/// Positions that are read before the others are computed: half the aliens end at each.
const FIRST: usize = 2;
/// Multiplier between the bits of the digest: odd.
const STEP: u64 = 0xD6E8_FEB8_6659_FD93;

/// What a set is built with; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings<L = Standard> {
    /// Bits of the filter, and positions of a name.
    pub shape: Shape<L>,
    /// Names that the set takes at most: those that the shape is meant for.
    pub max_names: usize,
    /// Keys positions.
    pub seed: u64,
}

impl<L: Layout> Settings<L> {
    /// The smallest filter in which `max_names` have a false-positive rate of at most `rate`.
    /// # Panics
    /// When `rate` is not between 0 and 1, or the filter would have more bits than there may be.
    pub fn new(max_names: usize, rate: f64, key: &SecretKey) -> Self {
        let shape = Shape::for_names(max_names as u64, rate)
            .unwrap_or_else(|error| panic!("no filter of {max_names} names with rate {rate}: {error}"));
        Self { shape, max_names, seed: key.derive(Purpose::Structure, 4) }
    }

    fn n_words(&self) -> usize {
        self.shape.bits().div_ceil(64) as usize
    }

    /// What a bit that is one contributes to the digest.
    fn prf(&self, bit: u64) -> u64 {
        mix64(!self.seed ^ (bit + 1).wrapping_mul(STEP))
    }

    fn digest_of(&self, words: &[u64]) -> u64 {
        let ones = |word: u64| (0..64).filter(move |bit| word >> bit & 1 != 0);
        let bits = (0..).step_by(64).zip(words).flat_map(|(at, &word)| ones(word).map(move |bit| at + bit));
        bits.fold(0, |digest, bit| digest ^ self.prf(bit))
    }
}

/// An update of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Some bits turned.
    Bits {
        /// The version that this update builds on.
        from: u64,
        /// The version after it.
        to: u64,
        /// Digest of the filter after it.
        digest: u64,
        /// The bits, by their new values.
        changes: Vec<BitChange>,
    },
    /// The whole filter.
    Whole {
        /// Its version.
        version: u64,
        /// Its digest.
        digest: u64,
        /// Its bits.
        words: Vec<u64>,
    },
}

/// Control half of a set.
pub struct BloomSet<L: Layout = Standard> {
    settings: Settings<L>,
    counting: Counting<L>,
    members: HashSet<Digest>,
    version: u64,
    digest: u64,
}

impl<L: Layout> BloomSet<L> {
    /// An empty set.
    pub fn new(settings: Settings<L>) -> Self {
        let counting = Counting::new(settings.shape, CounterBits::Four, settings.seed);
        Self { settings, counting, members: HashSet::new(), version: 0, digest: 0 }
    }

    /// The filter of the names that are in.
    pub fn filter(&self) -> &crate::bloom::Bloom<L> {
        self.counting.filter()
    }

    fn check(&self, value: u64) -> Result<(), InsertError> {
        if value == 1 { Ok(()) } else { Err(InsertError::ValueTooWide { value, value_bits: 1 }) }
    }

    fn add(&mut self, digest: Digest, changes: &mut Vec<BitChange>) -> Result<(), InsertError> {
        let max = self.settings.max_names;
        if self.members.contains(&digest) {
            return Ok(());
        }
        if self.members.len() >= max {
            return Err(InsertError::TooManyNames { max });
        }
        self.members.insert(digest);
        self.counting.insert(digest, changes);
        Ok(())
    }

    fn emit(&mut self, changes: Vec<BitChange>, updates: &mut Vec<Update>) {
        if changes.is_empty() {
            return;
        }
        self.digest = changes.iter().fold(self.digest, |digest, change| digest ^ self.settings.prf(change.bit));
        let from = self.version;
        self.version += 1;
        // Many bits are shorter as the whole filter.
        let update = if changes.len() < self.settings.n_words() {
            Update::Bits { from, to: self.version, digest: self.digest, changes }
        } else {
            self.whole()
        };
        updates.push(update);
    }

    fn whole(&self) -> Update {
        Update::Whole { version: self.version, digest: self.digest, words: self.filter().words().to_vec() }
    }
}

impl<L: Layout> Control for BloomSet<L> {
    type Key = Digest;
    type Query = BloomSetQuery<L>;

    /// `value` is 1.
    fn insert(&mut self, digest: Digest, value: u64, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.insert_batch(&[(digest, value)], updates)
    }

    /// One update for all.
    fn insert_batch(&mut self, entries: &[(Digest, u64)], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        entries.iter().try_for_each(|&(_, value)| self.check(value))?;
        let mut changes = Vec::new();
        let added = entries.iter().try_for_each(|&(digest, _)| self.add(digest, &mut changes));
        self.emit(changes, updates);
        added
    }

    fn remove(&mut self, digest: Digest, updates: &mut Vec<Update>) -> bool {
        let was_there = self.members.remove(&digest);
        if was_there {
            let mut changes = Vec::new();
            self.counting.remove(digest, &mut changes).expect("every member has its counters");
            self.emit(changes, updates);
        }
        was_there
    }

    fn get(&self, digest: Digest) -> Option<u64> {
        self.members.contains(&digest).then_some(1)
    }

    fn export(&self) -> BloomSetQuery<L> {
        BloomSetQuery::from_whole(&self.settings, &self.whole())
            .unwrap_or_else(|error| panic!("no memory for a filter of {} words: {error}", self.settings.n_words()))
    }

    fn len(&self) -> usize {
        self.members.len()
    }
}

impl<L: Layout> Subject for BloomSet<L> {
    fn must_drop(&self, _digest: Digest) -> bool {
        false
    }

    fn may_forget(_update: &Update) -> bool {
        true
    }
}

/// Query half of a set, and the handle of its one writer.
pub struct BloomSetQuery<L: Layout = Standard> {
    bits: Bits<L>,
    version: u64,
    digest: u64,
}

/// What readers share: words that are written in place.
struct Bits<L: Layout> {
    settings: Settings<L>,
    places: Places<L>,
    words: Arc<Words>,
}

/// Whether all of `bits` are one: reads them all, for a branch a bit would be mispredicted more often than it saves.
#[inline(always)]
fn are_ones(words: &[AtomicU64], bits: impl Iterator<Item = u64>) -> bool {
    bits.fold(1, |ones, bit| ones & words[(bit / 64) as usize].load(Ordering::Relaxed) >> (bit % 64)) & 1 != 0
}

impl<L: Layout> Bits<L> {
    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        let values = &mut values[..digests.len()];
        let mut positions = [0; BURST * MAX_HASHES as usize];
        for (digests, values) in digests.chunks(BURST).zip(values.chunks_mut(BURST)) {
            if L::ONE_LINE {
                self.burst_in_lines(digests, values);
            } else {
                self.burst(digests, values, &mut positions);
            }
        }
    }

    /// A burst where a name has one line: all lines are fetched, then read.
    #[inline]
    fn burst_in_lines(&self, digests: &[Digest], values: &mut [u64]) {
        for &digest in digests {
            self.prefetch(self.places.of(digest).take(1));
        }
        for (value, &digest) in values.iter_mut().zip(digests) {
            *value = are_ones(&self.words, self.places.of(digest)).into();
        }
    }

    /// A burst: the first two bits of all names are fetched and read, then the others of those still in question.
    #[inline]
    fn burst(&self, digests: &[Digest], values: &mut [u64], positions: &mut [u64]) {
        let mut first = [[0; FIRST]; BURST];
        for (first, &digest) in first.iter_mut().zip(digests) {
            // With one position a name it counts twice.
            let mut bits = self.places.of(digest);
            let one = bits.next().unwrap_or(0);
            *first = [one, bits.next().unwrap_or(one)];
            self.prefetch(first.iter().copied());
        }
        let (mut waiting, mut n_waiting) = ([0u8; BURST], 0);
        for (index, (value, first)) in values.iter_mut().zip(first).enumerate() {
            let present = are_ones(&self.words, first.into_iter());
            *value = present.into();
            waiting[n_waiting] = index as u8;
            n_waiting += usize::from(present);
        }
        let n_rest = (self.settings.shape.n_hashes() as usize).saturating_sub(FIRST);
        if n_rest == 0 {
            return;
        }
        for (&index, rest) in waiting[..n_waiting].iter().zip(positions.chunks_exact_mut(n_rest)) {
            let bits = self.places.of(digests[usize::from(index)]).skip(FIRST);
            rest.iter_mut().zip(bits).for_each(|(rest, bit)| *rest = bit);
            self.prefetch(rest.iter().copied());
        }
        for (&index, rest) in waiting[..n_waiting].iter().zip(positions.chunks_exact(n_rest)) {
            values[usize::from(index)] = are_ones(&self.words, rest.iter().copied()).into();
        }
    }

    #[inline(always)]
    fn prefetch(&self, bits: impl Iterator<Item = u64>) {
        bits.for_each(|bit| prefetch(self.words.as_ptr().wrapping_add((bit / 64) as usize).cast()));
    }

    fn word(&self, bit: u64) -> &AtomicU64 {
        &self.words[(bit / 64) as usize]
    }

    fn clone_handle(&self) -> Self {
        Self { settings: self.settings.clone(), places: self.places.clone(), words: Arc::clone(&self.words) }
    }
}

impl<L: Layout> BloomSetQuery<L> {
    fn apply_bits(&mut self, changes: &[BitChange], digest: u64) -> Result<(), ApplyError> {
        let bits = &self.bits;
        if changes.iter().any(|change| change.bit >= bits.settings.shape.bits()) {
            return Err(ApplyError::Malformed { reason: "a bit is beyond the end of the filter" });
        }
        let turns = changes.iter().filter(|change| {
            bits.word(change.bit).load(Ordering::Relaxed) >> (change.bit % 64) & 1 != u64::from(change.one)
        });
        let got = turns.fold(self.digest, |digest, change| digest ^ bits.settings.prf(change.bit));
        if got != digest {
            return Err(ApplyError::WrongDigest { prefix: 0, depth: 0, got, expected: digest });
        }
        for change in changes {
            // One store a word: there is one writer.
            let word = bits.word(change.bit);
            let others = word.load(Ordering::Relaxed) & !(1 << (change.bit % 64));
            word.store(others | u64::from(change.one) << (change.bit % 64), Ordering::Relaxed);
        }
        Ok(())
    }

    fn check_whole(settings: &Settings<L>, words: &[u64], digest: u64) -> Result<(), ApplyError> {
        let spare = words.len() as u64 * 64 - settings.shape.bits().min(words.len() as u64 * 64);
        let beyond = words.last().is_some_and(|&last| spare > 0 && last >> (64 - spare.min(63)) != 0);
        if words.len() != settings.n_words() || beyond {
            return Err(ApplyError::Malformed { reason: "the words of the filter are not those of its size" });
        }
        let got = settings.digest_of(words);
        if got == digest { Ok(()) } else { Err(ApplyError::WrongDigest { prefix: 0, depth: 0, got, expected: digest }) }
    }
}

impl<L: Layout> Query for BloomSetQuery<L> {
    type Key = Digest;
    type Update = Update;

    fn lookup(&self, digest: Digest) -> u64 {
        are_ones(&self.bits.words, self.bits.places.of(digest)).into()
    }

    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        self.bits.lookup_batch(digests, values);
    }

    fn apply(&mut self, update: &Update) -> Result<Applied, ApplyError> {
        let current = self.version;
        let (to, digest) = Self::held_after(update);
        if to <= current {
            return Ok(Applied::AlreadyThere);
        }
        match update {
            Update::Bits { from, .. } if *from != current => {
                return Err(ApplyError::Gap { prefix: 0, depth: 0, current, from: *from });
            }
            Update::Bits { changes, .. } => self.apply_bits(changes, digest)?,
            Update::Whole { .. } => self.overwrite(update)?,
        }
        (self.version, self.digest) = (to, digest);
        Ok(Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        self.bits.words.len() as u64 * 64
    }
}

impl<L: Layout> Replicated for BloomSetQuery<L> {
    type Settings = Settings<L>;
    type Reader = Reader<L>;

    fn settings(&self) -> &Settings<L> {
        &self.bits.settings
    }

    fn encode_update(_settings: &Settings<L>, update: &Update, out: &mut Vec<u8>) {
        match update {
            Update::Bits { from, to, digest, changes } => {
                out.push(0);
                out.extend([*from, *to, *digest].map(u64::to_le_bytes).as_flattened());
                out.extend((changes.len() as u32).to_le_bytes());
                for change in changes {
                    out.extend((change.bit << 1 | u64::from(change.one)).to_le_bytes());
                }
            }
            Update::Whole { version, digest, words } => {
                out.push(1);
                out.extend([*version, *digest].map(u64::to_le_bytes).as_flattened());
                out.extend_from_slice(bytemuck::cast_slice(words));
            }
        }
    }

    fn decode_update(settings: &Settings<L>, bytes: &[u8]) -> Result<Update, DecodeError> {
        let mut bytes = Bytes(bytes);
        let update = if at_most("kind of update", bytes.u8()?.into(), 1)? == 0 {
            let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let n_changes = bytes.count(8)?;
            let change = |word: u64| BitChange { bit: word >> 1, one: word & 1 != 0 };
            let changes = (0..n_changes).map(|_| bytes.u64().map(change)).collect::<Result<_, _>>()?;
            Update::Bits { from, to, digest, changes }
        } else {
            let (version, digest) = (bytes.u64()?, bytes.u64()?);
            let words = bytes.take(settings.n_words() * 8)?.as_chunks::<8>().0;
            Update::Whole { version, digest, words: words.iter().map(|word| u64::from_le_bytes(*word)).collect() }
        };
        bytes.end()?;
        Ok(update)
    }

    fn is_whole(update: &Update) -> bool {
        matches!(update, Update::Whole { .. })
    }

    fn held_after(update: &Update) -> (u64, u64) {
        match update {
            Update::Bits { to: version, digest, .. } | Update::Whole { version, digest, .. } => (*version, *digest),
        }
    }

    fn from_whole(settings: &Settings<L>, update: &Update) -> Result<Self, ApplyError> {
        let Update::Whole { version, digest, words } = update else {
            return Err(ApplyError::Malformed { reason: "bits came where a whole filter was due" });
        };
        Self::check_whole(settings, words, *digest)?;
        let places = Places::new(settings.shape, settings.seed);
        let bits = Bits { settings: settings.clone(), places, words: Arc::new(Words::filled(words)?) };
        Ok(Self { bits, version: *version, digest: *digest })
    }

    /// In place, word by word: what is in before and after is never missed meanwhile.
    fn overwrite(&mut self, update: &Update) -> Result<(), ApplyError> {
        let Update::Whole { version, digest, words } = update else {
            return Err(ApplyError::Malformed { reason: "bits came where a whole filter was due" });
        };
        Self::check_whole(&self.bits.settings, words, *digest)?;
        for (to, &from) in self.bits.words.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        (self.version, self.digest) = (*version, *digest);
        Ok(())
    }

    fn whole(&self) -> Update {
        let words = self.bits.words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        Update::Whole { version: self.version, digest: self.digest, words }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    fn reader(&self) -> Reader<L> {
        Reader(self.bits.clone_handle())
    }
}

/// A thread's access to a set beside its writer.
pub struct Reader<L: Layout>(Bits<L>);

impl<L: Layout> BatchReader for Reader<L> {
    type Key = Digest;

    #[inline]
    fn lookup_batch(&mut self, digests: &[Digest], values: &mut [u64]) {
        self.0.lookup_batch(digests, values);
    }

    /// Nothing waits for readers of words that stay where they are.
    fn offline(&mut self) {}
}

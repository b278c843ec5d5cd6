//! A mutable set of names as a Bloom filter: counters and exact members left of the seam, bits right of it.
//!
//! The filter is sized for the maximum number of names and never resized, so bits are stored in place, one word at a
//! time, while readers read. A name that is in before and after an update is never missed: all its bits stay one. The
//! control half keeps the counters. Removing a name that is not in would clear bits of other names, so the control half
//! also keeps its members exactly, at 8 to 16 bytes per name besides the 4-bit counters.
//!
//! Cost: as [`Bloom`](crate::bloom); updates of 8 bytes per flipped bit, at most k bits per name.
//! Alien names: value 1 with the filter's false-positive rate, 0 otherwise. Members always have the value 1.
//! Source: as [`Counting`]; counters are in the control half instead of the filter, as in Summary Cache.
//! ```text
//! kind 0: | 0 | from 8 | to 8 | digest 8 | n 4 | n x (2 bit + value, 8) |
//! kind 1: | 1 | version 8 | digest 8 | words |
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::filtered::Filter;
use crate::base::atomic_words::AtomicWords;
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::prefetch::BURST;
use crate::bloom::burst::{Memory, bursts};
use crate::bloom::{BitChange, CounterBits, Counting, Layout, Places, Shape, Standard};
use crate::hash::{Digest, Purpose, SecretKey, mix64};
use crate::traits::{
    Applied, ApplyError, BatchReader, Change, HeldPart, Image, InsertError, PartId, Payload, Query, RestoreError, Row,
    Skeleton, Undivided, View,
};

/// Odd multiplier of a bit's number, before the mix that gives its share of the digest.
const STEP: u64 = 0xD6E8_FEB8_6659_FD93;

/// What a set is built with; the same on both sides of the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings<L = Standard> {
    /// Bits of the filter, and positions per name.
    pub shape: Shape<L>,
    /// The most names that the set takes: the number that the shape is meant for.
    pub max_names: usize,
    /// Seed of the positions.
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

    /// The contribution of a one bit to the digest.
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
    /// Some bits flipped.
    Bits {
        /// The version that this update builds on.
        from: u64,
        /// The version that this update produces.
        to: u64,
        /// Digest of the filter after the update.
        digest: u64,
        /// The flipped bits with their new values.
        changes: Vec<BitChange>,
    },
    /// The whole filter.
    Whole(Whole),
}

/// All bits of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    version: u64,
    digest: u64,
    words: Vec<u64>,
}

impl Image for Whole {
    fn held(&self) -> HeldPart {
        HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { version, ..self }
    }

    fn n_bytes(&self) -> usize {
        self.words.len() * 8
    }
}

/// The members of a set, and the filter of them: a skeleton whose names have one value, 1, at every switch.
///
/// Counters that were saturated before a restart are recounted from the members.
pub struct BloomSet<L: Layout = Standard, P = ()> {
    settings: Settings<L>,
    counting: Counting<L>,
    members: HashMap<Digest, P>,
    version: u64,
    digest: u64,
    /// The bits that the latest mutation flipped.
    turned: Vec<BitChange>,
}

impl<L: Layout, P: Payload> BloomSet<L, P> {
    /// The filter of the names that are in.
    pub fn filter(&self) -> &crate::bloom::Bloom<L> {
        self.counting.filter()
    }

    fn add(&mut self, digest: Digest, payload: P) {
        if self.members.insert(digest, payload).is_none() {
            self.counting.insert(digest, &mut self.turned);
        }
    }

    /// The change to report: none if no bit flipped.
    fn changed(&mut self) -> Change {
        if self.turned.is_empty() {
            return Change::None;
        }
        self.digest = self.turned.iter().fold(self.digest, |digest, change| digest ^ self.settings.prf(change.bit));
        self.version += 1;
        Change::Part { slot: 0 }
    }

    fn whole(&self) -> Whole {
        Whole { version: self.version, digest: self.digest, words: self.filter().words().to_vec() }
    }
}

impl<L: Layout, P: Payload> Skeleton for BloomSet<L, P> {
    type Key = Digest;
    type Payload = P;
    type Query = BloomSetQuery<L>;
    type View = SetView;

    fn build(settings: &Settings<L>, entries: &[(Digest, P)], _: usize) -> Result<Self, InsertError> {
        let mut set = Self {
            settings: settings.clone(),
            counting: Counting::new(settings.shape, CounterBits::Four, settings.seed),
            members: HashMap::new(),
            version: 0,
            digest: 0,
            turned: Vec::new(),
        };
        _ = set.insert_batch(entries)?;
        set.version = 0;
        Ok(set)
    }

    /// The one row holds the version.
    fn restore(settings: &Settings<L>, rows: &[Row], entries: &[(Digest, P)]) -> Result<Self, RestoreError> {
        let [row] = rows else { return Err(RestoreError::Parts) };
        let mut bytes = Bytes(row.value.as_deref().unwrap_or_default());
        let version = bytes.u64()?;
        bytes.end()?;
        Ok(Self { version, ..Self::build(settings, entries, 1)? })
    }

    fn settings(&self) -> &Settings<L> {
        &self.settings
    }

    /// Only the value 1 is valid.
    fn check(_: &Settings<L>, _: Digest, value: u64) -> Result<(), InsertError> {
        if value == 1 { Ok(()) } else { Err(InsertError::ValueTooWide { value, value_bits: 1 }) }
    }

    fn insert(&mut self, digest: Digest, payload: P) -> Result<Change, InsertError> {
        self.insert_batch(&[(digest, payload)])
    }

    /// One update for the whole batch.
    fn insert_batch(&mut self, entries: &[(Digest, P)]) -> Result<Change, InsertError> {
        let max = self.settings.max_names;
        let new: HashSet<Digest> =
            entries.iter().map(|entry| entry.0).filter(|&name| self.get(name).is_none()).collect();
        if self.len() + new.len() > max {
            return Err(InsertError::TooManyNames { max });
        }
        self.turned.clear();
        entries.iter().for_each(|&(digest, payload)| self.add(digest, payload));
        Ok(self.changed())
    }

    fn remove(&mut self, digest: Digest) -> Change {
        self.turned.clear();
        if self.members.remove(&digest).is_some() {
            self.counting.remove(digest, &mut self.turned).expect("every member has its counters");
        }
        self.changed()
    }

    fn touch(&mut self) -> Change {
        self.version += 1;
        Change::Parts { slots: vec![0], replaced: Vec::new() }
    }

    fn get(&self, digest: Digest) -> Option<P> {
        self.members.get(&digest).copied()
    }

    fn must_drop(&self, _: Digest) -> bool {
        false
    }

    fn len(&self) -> usize {
        self.members.len()
    }

    fn is_bulk(&self, n_changes: usize) -> bool {
        n_changes > 1
    }

    fn part_id(&self, _: u32) -> PartId {
        PartId::WHOLE
    }

    fn take_rows(&mut self, _: &[u32], _: &[PartId]) -> Vec<Row> {
        self.rows().collect()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        let value = Some(self.version.to_le_bytes().to_vec());
        Box::new(std::iter::once(Row { key: PartId::WHOLE.to_key(), value }))
    }

    fn heap_bytes(&self) -> usize {
        let counters = self.counting.counters().len() * 8 + self.filter().words().len() * 8;
        self.members.capacity() * (size_of::<(Digest, P)>() + 1) + counters
    }
}

/// What one switch has of a set.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetView {
    version: u64,
    digest: u64,
}

impl<L: Layout, P: Payload> View<BloomSet<L, P>> for SetView {
    fn export(set: &BloomSet<L, P>, _: impl Fn(P) -> u64) -> Result<(Self, Vec<Whole>), InsertError> {
        Ok((Self { version: set.version, digest: set.digest }, vec![set.whole()]))
    }

    fn updates(
        &mut self,
        set: &BloomSet<L, P>,
        change: &Change,
        _: impl Fn(P) -> u64,
        updates: &mut Vec<Update>,
    ) -> Result<(), InsertError> {
        if *change == Change::None {
            return Ok(());
        }
        let from = self.version;
        *self = Self { version: set.version, digest: set.digest };
        // When many bits flipped, the whole filter is shorter.
        let is_short = matches!(change, Change::Part { .. }) && set.turned.len() < set.settings.n_words();
        updates.push(if is_short {
            Update::Bits { from, to: set.version, digest: set.digest, changes: set.turned.clone() }
        } else {
            Update::Whole(set.whole())
        });
        Ok(())
    }

    fn image(&self, set: &BloomSet<L, P>, _: u32, _: impl Fn(P) -> u64) -> Result<Whole, InsertError> {
        Ok(set.whole())
    }

    fn note(&mut self, _: &BloomSet<L, P>, _: u32, image: &Whole) {
        (self.version, self.digest) = (image.version, image.digest);
    }

    fn held(&self, _: &BloomSet<L, P>) -> Vec<(u32, HeldPart)> {
        vec![(0, HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest })]
    }

    fn set_version(&mut self, _: u32, version: u64) {
        self.version = version;
    }
}

/// Query half of a set, and the handle of its one writer.
pub struct BloomSetQuery<L: Layout = Standard> {
    bits: Bits<L>,
    version: u64,
    digest: u64,
}

/// What writer and readers share: words that are written in place.
struct Bits<L: Layout> {
    settings: Settings<L>,
    places: Places<L>,
    words: Arc<AtomicWords>,
}

impl<L: Layout> Bits<L> {
    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        let values = &mut values[..digests.len()];
        bursts(&self.places, &*self.words, digests, |from, positive| {
            for (place, value) in values[from..].iter_mut().take(BURST).enumerate() {
                *value = u64::from(positive >> place & 1);
            }
        });
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
        ApplyError::check_digest(PartId::WHOLE, got, digest)?;
        for change in changes {
            // One store per word is enough: there is one writer.
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
        ApplyError::check_digest(PartId::WHOLE, got, digest).map(drop)
    }
}

impl<L: Layout> Query for BloomSetQuery<L> {
    type Key = Digest;
    type Update = Update;

    fn lookup(&self, digest: Digest) -> u64 {
        self.bits.words.are_ones(self.bits.places.of(digest)).into()
    }

    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        self.bits.lookup_batch(digests, values);
    }

    fn apply(&mut self, update: &Update) -> Result<Applied, ApplyError> {
        let current = self.version;
        match update {
            Update::Bits { to, .. } if *to <= current => return Ok(Applied::AlreadyThere),
            Update::Whole(whole) if whole.version <= current => return Ok(Applied::AlreadyThere),
            Update::Bits { from, to, digest, changes } => {
                ApplyError::check_version(PartId::WHOLE, current, *from)?;
                self.apply_bits(changes, *digest)?;
                (self.version, self.digest) = (*to, *digest);
            }
            Update::Whole(whole) => self.overwrite(whole)?,
        }
        Ok(Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        self.bits.words.len() as u64 * 64
    }
}

impl<L: Layout> Undivided for BloomSetQuery<L> {
    type Settings = Settings<L>;
    type Image = Whole;
    type Reader = Reader<L>;

    fn settings(&self) -> Settings<L> {
        self.bits.settings.clone()
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
            Update::Whole(Whole { version, digest, words }) => {
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
            Update::Whole(Whole {
                version,
                digest,
                words: words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
            })
        };
        bytes.end()?;
        Ok(update)
    }

    fn update_of(image: Whole) -> Update {
        Update::Whole(image)
    }

    fn image_of(update: &Update) -> Option<&Whole> {
        if let Update::Whole(whole) = update { Some(whole) } else { None }
    }

    fn from_image(settings: &Settings<L>, image: &Whole) -> Result<Self, ApplyError> {
        Self::check_whole(settings, &image.words, image.digest)?;
        let places = Places::new(settings.shape, settings.seed);
        let bits = Bits { settings: settings.clone(), places, words: Arc::new(AtomicWords::filled(&image.words)?) };
        Ok(Self { bits, version: image.version, digest: image.digest })
    }

    /// Overwrites word by word, in place: a name that is in before and after is never missed meanwhile.
    fn overwrite(&mut self, image: &Whole) -> Result<(), ApplyError> {
        Self::check_whole(&self.bits.settings, &image.words, image.digest)?;
        for (to, &from) in self.bits.words.iter().zip(&image.words) {
            to.store(from, Ordering::Relaxed);
        }
        (self.version, self.digest) = (image.version, image.digest);
        Ok(())
    }

    fn image(&self) -> Whole {
        let words = self.bits.words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        Whole { version: self.version, digest: self.digest, words }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    fn reader(&self) -> Reader<L> {
        Reader(self.bits.clone_handle())
    }
}

impl<L: Layout> Filter for BloomSetQuery<L> {
    fn digest_after(update: &Update) -> u64 {
        match update {
            Update::Bits { digest, .. } | Update::Whole(Whole { digest, .. }) => *digest,
        }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<L: Layout>(Bits<L>);

impl<L: Layout> BatchReader<[Digest]> for Reader<L> {
    #[inline]
    fn lookup_batch(&mut self, digests: &[Digest], values: &mut [u64]) {
        self.0.lookup_batch(digests, values);
    }

    /// The writer never waits for readers: the words stay where they are.
    fn offline(&mut self) {}
}

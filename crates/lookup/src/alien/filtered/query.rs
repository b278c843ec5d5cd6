//! The half of words of a filter and a table.

use super::{Filter, Pair, Settings, Update, What, both, digest_of_all, named};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::prefetch::BURST;
use crate::traits::{Applied, ApplyError, BatchReader, Image, PartId, Query, Replicated, Undivided};

/// Query half.
pub struct FilteredQuery<F, T> {
    filter: F,
    table: T,
    version: u64,
}

impl<F: Filter, T: Replicated<Key = F::Key>> FilteredQuery<F, T> {
    /// The filter: its value is 1 for names that pass.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// The table.
    pub fn table(&self) -> &T {
        &self.table
    }
}

/// Looks up in the table those `keys` whose value is not 0, and leaves 0 for the others.
#[inline]
fn look_up_passed<K: Copy>(keys: &[K], values: &mut [u64], mut look_up: impl FnMut(&[K], &mut [u64])) {
    // Compacts the keys that passed without a branch, looks them up as one burst, and scatters the answers.
    let Some(&first) = keys.first() else { return };
    let (mut passed, mut at, mut n_passed) = ([first; BURST], [0u8; BURST], 0);
    for (index, (&key, &passes)) in keys.iter().zip(&*values).enumerate() {
        (passed[n_passed], at[n_passed]) = (key, index as u8);
        n_passed += usize::from(passes != 0);
    }
    if n_passed == keys.len() {
        return look_up(keys, values);
    }
    let mut found = [0; BURST];
    look_up(&passed[..n_passed], &mut found[..n_passed]);
    values.fill(0);
    for (&found, &index) in found[..n_passed].iter().zip(&at) {
        values[usize::from(index)] = found;
    }
}

/// Refuses an update that a half has already applied: by the versions of the pair it must be new.
fn part_applied(applied: Applied) -> Result<(), ApplyError> {
    match applied {
        Applied::Applied => Ok(()),
        Applied::AlreadyThere => Err(ApplyError::Malformed { reason: "an update of a pair whose half has it already" }),
    }
}

impl<F: Filter, T: Replicated<Key = F::Key>> Query for FilteredQuery<F, T> {
    type Key = F::Key;
    type Update = Update<F::Update, T::Update, F::Image, T::Image>;

    fn lookup(&self, key: F::Key) -> u64 {
        if self.filter.lookup(key) == 0 { 0 } else { self.table.lookup(key) }
    }

    fn lookup_batch(&self, keys: &[F::Key], values: &mut [u64]) {
        let values = &mut values[..keys.len()];
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            self.filter.lookup_batch(keys, values);
            look_up_passed(keys, values, |keys, values| self.table.lookup_batch(keys, values));
        }
    }

    fn apply(&mut self, update: &Self::Update) -> Result<Applied, ApplyError> {
        let Update { from, to, digest: expected, what } = update;
        let current = self.version;
        if *to <= current {
            return Ok(Applied::AlreadyThere);
        }
        if !matches!(what, What::Both(_)) {
            ApplyError::check_version(PartId::WHOLE, current, *from)?;
        }
        let filter_digest = match what {
            What::Filter(update) => F::digest_after(update),
            What::Both(pair) => digest_of_all(pair.filter.iter().map(Image::held)),
            What::Table(_) => digest_of_all(self.filter.held().into_iter()),
        };
        ApplyError::check_digest(PartId::WHOLE, named(filter_digest, *to), *expected)?;
        match what {
            What::Filter(update) => part_applied(self.filter.apply(update)?)?,
            What::Table(update) => part_applied(self.table.apply(update)?)?,
            What::Both(pair) => return Undivided::overwrite(self, pair).map(|()| Applied::Applied),
        }
        self.version = *to;
        Ok(Applied::Applied)
    }

    fn prefetch_update(&self, update: &Self::Update) {
        match &update.what {
            What::Filter(update) => self.filter.prefetch_update(update),
            What::Table(update) => self.table.prefetch_update(update),
            What::Both(_) => {}
        }
    }

    fn alien_rate(&self) -> Option<f64> {
        Some(self.filter.alien_rate()? * self.table.alien_rate().unwrap_or(1.0))
    }

    fn size_bits(&self) -> u64 {
        self.filter.size_bits() + self.table.size_bits()
    }
}

impl<F: Filter, T: Replicated<Key = F::Key>> Undivided for FilteredQuery<F, T> {
    type Settings = Settings<F::Settings, T::Settings>;
    type Image = Pair<F::Image, T::Image>;
    type Reader = Reader<F::Reader, T::Reader>;

    fn settings(&self) -> Self::Settings {
        Settings { filter: self.filter.settings(), table: self.table.settings() }
    }

    fn encode_update(settings: &Self::Settings, update: &Self::Update, out: &mut Vec<u8>) {
        out.extend([update.from, update.to, update.digest].map(u64::to_le_bytes).as_flattened());
        match &update.what {
            What::Filter(update) => {
                out.push(0);
                F::encode_update(&settings.filter, update, out);
            }
            What::Table(update) => {
                out.push(1);
                T::encode_update(&settings.table, update, out);
            }
            What::Both(pair) => {
                out.push(2);
                let length_at = out.len();
                out.extend([0; 8]);
                F::encode_update(&settings.filter, &F::update_of(pair.filter.clone()), out);
                let length = (out.len() - length_at - 8) as u64;
                out[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
                T::encode_update(&settings.table, &T::update_of(pair.table.clone()), out);
            }
        }
    }

    fn decode_update(settings: &Self::Settings, bytes: &[u8]) -> Result<Self::Update, DecodeError> {
        let mut bytes = Bytes(bytes);
        let (from, to, digest) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let what = match at_most("kind of update", bytes.u8()?.into(), 2)? {
            0 => What::Filter(F::decode_update(&settings.filter, bytes.0)?),
            1 => What::Table(T::decode_update(&settings.table, bytes.0)?),
            _ => {
                let length = usize::try_from(bytes.u64()?).unwrap_or(usize::MAX);
                let filter = F::decode_update(&settings.filter, bytes.take(length)?)?;
                let table = T::decode_update(&settings.table, bytes.0)?;
                let not_whole = DecodeError::OutOfRange { field: "kind of update", value: 2, max: 1 };
                let (Some(filter), Some(table)) = (F::images_of(&filter), T::images_of(&table)) else {
                    return Err(not_whole);
                };
                What::Both(Pair { version: to, filter: filter.to_vec(), table: table.to_vec() })
            }
        };
        Ok(Update { from, to, digest, what })
    }

    fn update_of(pair: Self::Image) -> Self::Update {
        let digest = named(digest_of_all(pair.filter.iter().map(Image::held)), pair.version);
        Update { from: 0, to: pair.version, digest, what: What::Both(pair) }
    }

    fn image_of(update: &Self::Update) -> Option<&Self::Image> {
        if let What::Both(pair) = &update.what { Some(pair) } else { None }
    }

    fn from_image(settings: &Self::Settings, pair: &Self::Image) -> Result<Self, ApplyError> {
        let filter = F::from_images(&settings.filter, &pair.filter)?;
        let table = T::from_images(&settings.table, &pair.table)?;
        Ok(Self { filter, table, version: pair.version })
    }

    /// Overwrites both halves or neither.
    fn overwrite(&mut self, pair: &Self::Image) -> Result<(), ApplyError> {
        let before = self.filter.images();
        self.filter.overwrite(&pair.filter)?;
        self.table.overwrite(&pair.table).inspect_err(|_| {
            // The filter's own earlier image is valid, so this cannot fail.
            _ = self.filter.overwrite(&before);
        })?;
        self.version = pair.version;
        Ok(())
    }

    fn image(&self) -> Self::Image {
        Pair { version: self.version, filter: self.filter.images(), table: self.table.images() }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, both(self.filter.held().into_iter(), self.table.held().into_iter()))
    }

    fn reader(&self) -> Self::Reader {
        Reader { filter: self.filter.reader(), table: self.table.reader() }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<F, T> {
    filter: F,
    table: T,
}

impl<K: Copy, F: BatchReader<[K]>, T: BatchReader<[K]>> BatchReader<[K]> for Reader<F, T> {
    fn lookup_batch(&mut self, keys: &[K], values: &mut [u64]) {
        let values = &mut values[..keys.len()];
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            self.filter.lookup_batch(keys, values);
            look_up_passed(keys, values, |keys, values| self.table.lookup_batch(keys, values));
        }
    }

    fn offline(&mut self) {
        self.filter.offline();
        self.table.offline();
    }
}

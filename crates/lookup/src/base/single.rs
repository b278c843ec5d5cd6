//! The control half of one table: a skeleton whose payloads are the values, and its only view.

use super::part::{Change, HeldPart};
use crate::traits::{Control, Image, ImageOf, InsertError, Replicated, SettingsOf, Skeleton, UpdateOf, View};

/// Control half of one table whose names carry their values themselves.
pub struct Single<S: Skeleton<Payload = u64>> {
    skeleton: S,
    view: S::View,
}

impl<S: Skeleton<Payload = u64>> Single<S> {
    /// An empty table.
    /// # Panics
    /// When the settings admit no empty table, which is a bug.
    pub fn new(settings: SettingsOf<S>) -> Self {
        Self::build(settings, &[], 1).unwrap_or_else(|error| panic!("a table without names: {error}")).0
    }

    /// Builds both halves of a table at once, on up to `threads` threads.
    /// # Errors
    /// [`InsertError`].
    pub fn build(
        settings: SettingsOf<S>,
        entries: &[(S::Key, u64)],
        threads: usize,
    ) -> Result<(Self, S::Query), InsertError> {
        entries.iter().try_for_each(|&(key, value)| S::check(&settings, key, value))?;
        let (skeleton, view, query) = S::build_filled(&settings, entries, threads, |value| value)?;
        Ok((Self { skeleton, view }, query))
    }

    /// A table whose `view` records what its query half holds.
    pub(crate) fn of(skeleton: S, view: S::View) -> Self {
        Self { skeleton, view }
    }

    /// The names and their places.
    pub fn skeleton(&self) -> &S {
        &self.skeleton
    }

    /// The record of what its query half holds.
    pub fn view(&self) -> &S::View {
        &self.view
    }

    /// Settings of the table.
    pub fn settings(&self) -> &SettingsOf<S> {
        self.skeleton.settings()
    }

    /// All parts, in the order of digests: the answer to a switch that asks for them.
    pub fn images(&self) -> Vec<ImageOf<S>> {
        let image = |(slot, held): (u32, HeldPart)| {
            // Under the version of the last update that was emitted: later versions changed no word, and the next
            // update builds on it.
            let image = self.view.image(&self.skeleton, slot, |value| value);
            image.unwrap_or_else(|error| panic!("an image of what was built before: {error}")).under(held.version)
        };
        self.view.held(&self.skeleton).into_iter().map(image).collect()
    }

    /// The present values of the keys of `entries`.
    fn before(&self, entries: &[(S::Key, u64)]) -> Vec<(S::Key, Option<u64>)> {
        entries.iter().map(|&(key, _)| (key, self.skeleton.get(key))).collect()
    }

    /// Restores values. The view did not see the new ones, so it need not see this.
    fn restore(&mut self, before: Vec<(S::Key, Option<u64>)>) {
        for (key, value) in before {
            _ = match value {
                Some(value) => self.skeleton.insert(key, value),
                None => Ok(self.skeleton.remove(key)),
            };
        }
    }

    /// Makes a change that [`Control`] does not offer, and appends its updates.
    pub(crate) fn mutate(
        &mut self,
        mutate: impl FnOnce(&mut S) -> Result<Change, InsertError>,
        updates: &mut Vec<UpdateOf<S>>,
    ) -> Result<(), InsertError> {
        let change = mutate(&mut self.skeleton)?;
        self.emit(&change, updates)
    }

    /// As [`Single::mutate`], for many names. If it fails, some of them may be inserted, so everything is sent again.
    pub(crate) fn mutate_batch(
        &mut self,
        mutate: impl FnOnce(&mut S) -> Result<Change, InsertError>,
        updates: &mut Vec<UpdateOf<S>>,
    ) -> Result<(), InsertError> {
        let (change, made) = match mutate(&mut self.skeleton) {
            Ok(change) => (change, Ok(())),
            Err(error) => (self.skeleton.touch(), Err(error)),
        };
        self.emit(&change, updates).and(made)
    }

    fn emit(&mut self, change: &Change, updates: &mut Vec<UpdateOf<S>>) -> Result<(), InsertError> {
        self.view.updates(&self.skeleton, change, |value| value, updates)
    }
}

impl<S: Skeleton<Payload = u64>> Control for Single<S> {
    type Key = S::Key;
    type Query = S::Query;

    fn insert(&mut self, key: S::Key, value: u64, updates: &mut Vec<UpdateOf<S>>) -> Result<(), InsertError> {
        S::check(self.settings(), key, value)?;
        self.view.prefetch(&self.skeleton, key);
        let before = if S::View::MAY_FAIL { self.before(&[(key, value)]) } else { Vec::new() };
        let change = self.skeleton.insert(key, value)?;
        let told = self.emit(&change, updates);
        if told.is_err() {
            self.restore(before);
        }
        told
    }

    fn insert_batch(&mut self, entries: &[(S::Key, u64)], updates: &mut Vec<UpdateOf<S>>) -> Result<(), InsertError> {
        entries.iter().try_for_each(|&(key, value)| S::check(self.settings(), key, value))?;
        if self.skeleton.is_bulk_alone(entries.len()) {
            let before: Vec<_> = if S::View::MAY_FAIL { self.before(entries) } else { Vec::new() };
            let change = self.skeleton.insert_batch(entries).or_else(|error| {
                if !S::Query::DIVIDED {
                    let change = self.skeleton.touch();
                    self.emit(&change, updates)?;
                }
                Err(error)
            })?;
            let told = self.emit(&change, updates);
            if told.is_err() {
                self.restore(before);
            }
            return told;
        }
        // In the order of digests, so that every part is brought into the cache once. The sort is stable, so of equal
        // keys the last one wins.
        let mut order: Vec<u32> = (0..entries.len() as u32).collect();
        order.sort_by_key(|&index| entries[index as usize].0);
        order.into_iter().try_for_each(|index| {
            let (key, value) = entries[index as usize];
            self.insert(key, value, updates)
        })
    }

    fn remove(&mut self, key: S::Key, updates: &mut Vec<UpdateOf<S>>) -> bool {
        let before = self.skeleton.len();
        let change = self.skeleton.remove(key);
        // If the update fails, the view is unchanged until the next change. For it, the removed name is an alien.
        _ = self.emit(&change, updates);
        self.skeleton.len() < before
    }

    fn get(&self, key: S::Key) -> Option<u64> {
        self.skeleton.get(key)
    }

    fn export(&self) -> S::Query {
        S::Query::from_own(self.settings(), &self.images())
    }

    fn len(&self) -> usize {
        self.skeleton.len()
    }
}

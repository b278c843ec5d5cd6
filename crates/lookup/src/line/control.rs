//! Control half of one table: a skeleton of names that carry their values, and the one view that its query half holds.

use super::Settings;
use super::lines::Lines;
use super::query::LineQuery;
use super::update::{GroupImage, Update};
use super::view::{self, View};
use crate::hash::Digest;
use crate::othello::Change;
use crate::traits::{Control, InsertError};

/// Names a group and batch from which building groups anew is cheaper than inserting.
const BUILD_FROM: usize = 100;

/// Control half of one table whose names carry their values themselves; about 27 bytes a name.
///
/// ```
/// use fibula_lookup::hash::{Family, Hasher, SecretKey};
/// use fibula_lookup::line::{LineTable, Settings};
/// use fibula_lookup::traits::{Control, Query};
///
/// let key = SecretKey::from_seed(1);
/// let hasher = Hasher::new(Family::MulAdd, &key);
/// let mut table = LineTable::new(Settings::new(8, 1000, &key));
/// let mut switch = table.export();
///
/// let mut updates = Vec::new();
/// let name = hasher.digest(b"\x02\0\0\0\0\x07");
/// table.insert(name, 42, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!(switch.lookup(name), 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LineTable {
    lines: Lines<u64>,
    view: View,
}

impl LineTable {
    /// An empty table.
    pub fn new(settings: Settings) -> Self {
        let lines = Lines::new(settings);
        let view = View::export(&lines, |value| value).0;
        Self { lines, view }
    }

    /// Builds both halves of a table at once, on up to `threads` threads.
    /// # Errors
    /// [`InsertError::ValueTooWide`], and those of [`Lines::build`].
    pub fn build(
        settings: Settings,
        entries: &[(Digest, u64)],
        threads: usize,
    ) -> Result<(Self, LineQuery), InsertError> {
        let (mask, value_bits) = (settings.layout().value_mask(), settings.value_bits);
        if let Some(&(_, value)) = entries.iter().find(|&&(_, value)| value > mask) {
            return Err(InsertError::ValueTooWide { value, value_bits });
        }
        let painted = settings.clone();
        let (lines, images) =
            Lines::build_with(settings, entries, threads, |group| view::image(&painted, group, |value| value))?;
        let query = LineQuery::from_own(lines.settings(), &images);
        let view = View::of_images(&lines, &images);
        Ok((Self { lines, view }, query))
    }

    /// The names and their groups.
    pub fn lines(&self) -> &Lines<u64> {
        &self.lines
    }

    fn check(&self, value: u64) -> Result<(), InsertError> {
        let settings = self.lines.settings();
        if value > settings.layout().value_mask() {
            return Err(InsertError::ValueTooWide { value, value_bits: settings.value_bits });
        }
        Ok(())
    }

    fn emit(&mut self, change: &Change, updates: &mut Vec<Update>) {
        self.view.updates(&self.lines, change, |value| value, updates);
    }
}

impl Control for LineTable {
    type Key = Digest;
    type Query = LineQuery;

    fn insert(&mut self, key: Digest, value: u64, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.check(value)?;
        let change = self.lines.insert(key, value)?;
        self.emit(&change, updates);
        Ok(())
    }

    fn insert_batch(&mut self, entries: &[(Digest, u64)], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        for &(_, value) in entries {
            self.check(value)?;
        }
        if entries.len() > self.lines.n_groups() * BUILD_FROM {
            let change = self.lines.insert_batch(entries)?;
            self.emit(&change, updates);
            return Ok(());
        }
        // In order of digests, so that every group is brought into the cache once; the sort is stable, so that of equal
        // keys the last wins.
        let mut order: Vec<&(Digest, u64)> = entries.iter().collect();
        order.sort_by_key(|entry| entry.0);
        for &&(key, value) in &order {
            self.insert(key, value, updates)?;
        }
        Ok(())
    }

    fn remove(&mut self, key: Digest, updates: &mut Vec<Update>) -> bool {
        let before = self.lines.len();
        let change = self.lines.remove(key);
        self.emit(&change, updates);
        self.lines.len() < before
    }

    fn get(&self, key: Digest) -> Option<u64> {
        self.lines.get(key)
    }

    fn export(&self) -> LineQuery {
        let settings = self.lines.settings();
        let image = |(slot, _, version, _)| {
            // The version of the last update that was emitted: later ones changed no cell, and the next builds on it.
            GroupImage { version, ..view::image(settings, self.lines.group(slot), |value| value) }
        };
        let images: Vec<_> = self.view.held(&self.lines).map(image).collect();
        LineQuery::from_own(settings, &images)
    }

    fn len(&self) -> usize {
        self.lines.len()
    }
}

//! Cuckoo Filtable, control half of one table: a skeleton whose names carry their values, and the one view of it.

use super::Settings;
use super::query::FiltableQuery;
use super::skeleton::{Change, Skeleton};
use super::update::Update;
use super::view::View;
use crate::hash::Digest;
use crate::testkit::Subject;
use crate::traits::{Control, InsertError};

/// A batch of at least this share of the names that are in is one rebuild instead of messages.
const REBUILD_SHARE: usize = 4;

/// Control half of one table; about 60 bytes a name.
///
/// ```
/// use fibula_lookup::cuckoo::filtable::{Filtable, Settings};
/// use fibula_lookup::hash::{Family, Hasher, SecretKey};
/// use fibula_lookup::traits::{Control, Query};
///
/// let key = SecretKey::from_seed(1);
/// let hasher = Hasher::new(Family::MulAdd, &key);
/// let mut table = Filtable::new(Settings::new(6, 10, 1000, &key));
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
pub struct Filtable {
    skeleton: Skeleton<u64>,
    view: View,
}

impl Filtable {
    /// An empty table.
    pub fn new(settings: Settings) -> Self {
        Self::with_room(settings, 0)
    }

    /// An empty table with room for `n_names`, so that it does not grow before.
    pub fn with_room(settings: Settings, n_names: usize) -> Self {
        Self { skeleton: Skeleton::new(settings, n_names), view: View::default() }
    }

    /// The names and their places.
    pub fn skeleton(&self) -> &Skeleton<u64> {
        &self.skeleton
    }

    fn check(&self, value: u64) -> Result<(), InsertError> {
        let settings = self.skeleton.settings();
        if value > settings.max_value() {
            return Err(InsertError::ValueTooWide { value, value_bits: settings.value_bits });
        }
        Ok(())
    }

    fn emit(&mut self, change: &Change<u64>, updates: &mut Vec<Update>) {
        self.view.updates(&self.skeleton, change, |value| value, updates);
    }
}

impl Control for Filtable {
    type Key = Digest;
    type Query = FiltableQuery;

    fn insert(&mut self, key: Digest, value: u64, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.check(value)?;
        let change = self.skeleton.insert(key, value)?;
        self.emit(&change, updates);
        Ok(())
    }

    fn insert_batch(&mut self, entries: &[(Digest, u64)], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        for &(_, value) in entries {
            self.check(value)?;
        }
        if entries.len() < 4 || entries.len() * REBUILD_SHARE < self.skeleton.len() {
            return entries.iter().try_for_each(|&(key, value)| self.insert(key, value, updates));
        }
        let (change, inserted) = self.skeleton.insert_batch(entries);
        self.emit(&change, updates);
        inserted
    }

    fn remove(&mut self, key: Digest, updates: &mut Vec<Update>) -> bool {
        let (change, was_there) = self.skeleton.remove(key);
        self.emit(&change, updates);
        was_there
    }

    fn get(&self, key: Digest) -> Option<u64> {
        self.skeleton.get(key)
    }

    fn export(&self) -> FiltableQuery {
        let mut view = self.view;
        let image = view.same_image(&self.skeleton, |value| value);
        FiltableQuery::from_image(self.skeleton.settings(), &image)
            .unwrap_or_else(|error| panic!("no memory for a query structure: {error}"))
    }

    fn len(&self) -> usize {
        self.skeleton.len()
    }
}

impl Subject for Filtable {
    fn must_drop(&self, key: Digest) -> bool {
        self.skeleton.has_tombstone(key)
    }

    fn may_forget(_update: &Update) -> bool {
        // A removal forgets the oldest tombstone: what must still drop is what `must_drop` says.
        true
    }
}

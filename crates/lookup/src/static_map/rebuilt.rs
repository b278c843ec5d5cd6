//! A control structure over any static map: every batch of changes builds the map anew, and the update is all of it.
//!
//! So static maps run in a network as any other structure does, and what that costs is plain to see: a build of all
//! names (20 ns to a microsecond each) and a message as long as the table **for every change**, where an Othello sends
//! some ten bytes. Put changes together: [`Rebuilt::change`] and `insert_batch` build once. Meant for tables that are
//! filled once, for small ones, and for comparisons.
//!
//! An update is absolute (version n, the whole map), so a gap does no harm and there is nothing to ask for: whatever
//! is newer is taken over, by one pointer, while readers finish their bursts on the version before.
//! Memory: entries in the control half, 32 bytes a name and the last map; two maps in the query half while readers
//! change over.
//! Alien names: as in the map. **Removed names are aliens at once**: there is no tombstone. [`Sorted`](super::Sorted)
//! drops them, orthogonal filters mostly, and a Bloomier filter or SetSep answers an arbitrary value, the old one with
//! a probability of 2^-l: revoke at the ingress.
//! ```text
//! update: | version 8 | digest 8, XXH3-64 of the map's bytes under the settings' seed | bytes of the map |
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Settings, StaticMap};
use crate::bytes::Bytes;
use crate::othello::update::{DecodeError, at_most};
use crate::publish::current::{Current, Follower};
use crate::testkit::Subject;
use crate::traits::{Applied, ApplyError, BatchReader, Control, InsertError, Query, Replicated};

/// A version of the map: the update. Cheap to clone.
pub struct Version<M> {
    version: u64,
    digest: u64,
    map: Arc<M>,
}

impl<M: StaticMap> Version<M> {
    fn new(version: u64, map: M, settings: &Settings) -> Self {
        let mut bytes = Vec::new();
        map.encode(&mut bytes);
        Self { version, digest: xxh3_64_with_seed(&bytes, settings.seed), map: Arc::new(map) }
    }

    /// The map.
    pub fn map(&self) -> &M {
        &self.map
    }

    /// Its number, from 0 for the empty map on.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Appends the bytes of the update.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.version.to_le_bytes());
        out.extend(self.digest.to_le_bytes());
        self.map.encode(out);
    }

    /// Reads an update.
    /// # Errors
    /// [`DecodeError`]; also when the bytes do not have the digest that they name.
    pub fn decode(settings: &Settings, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let (version, digest) = (bytes.u64()?, bytes.u64()?);
        at_most("wrong digests", u64::from(xxh3_64_with_seed(bytes.0, settings.seed) != digest), 0)?;
        let map = M::decode(settings, &mut bytes)?;
        bytes.end()?;
        Ok(Self { version, digest, map: Arc::new(map) })
    }
}

impl<M> Clone for Version<M> {
    fn clone(&self) -> Self {
        Self { version: self.version, digest: self.digest, map: Arc::clone(&self.map) }
    }
}

impl<M> fmt::Debug for Version<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({}, {:#018x})", self.version, self.digest)
    }
}

/// Control half of a static map.
///
/// ```
/// use fibula_lookup::hash::{Digest, SecretKey};
/// use fibula_lookup::static_map::{Bloomier, Rebuilt, Settings};
/// use fibula_lookup::traits::{Control, Query};
///
/// let mut table = Rebuilt::<Bloomier>::new(Settings::new(8, &SecretKey::from_seed(1)), 1_000, 1);
/// let mut switch = table.export();
/// let mut updates = Vec::new();
/// table.insert_batch(&[(Digest(7), 42), (Digest(8), 43)], &mut updates)?;
/// assert_eq!(updates.len(), 1);
/// switch.apply(&updates[0])?;
/// assert_eq!(switch.lookup(Digest(8)), 43);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rebuilt<M: StaticMap> {
    settings: Settings,
    max_names: usize,
    threads: usize,
    /// In order, so that the same names make the same map, whatever came before.
    entries: BTreeMap<M::Key, u64>,
    latest: Version<M>,
}

impl<M: StaticMap> Rebuilt<M>
where
    M::Key: Ord,
{
    /// An empty table for at most `max_names` names, built on up to `threads` threads.
    pub fn new(settings: Settings, max_names: usize, threads: usize) -> Self {
        let empty = M::build(&settings, &[], 1).unwrap_or_else(|error| panic!("no names make no map: {error}"));
        let latest = Version::new(0, empty, &settings);
        Self { settings, max_names, threads, entries: BTreeMap::new(), latest }
    }

    /// Inserts, alters and removes (value `None`) all of `changes` in order, by one build and one update; none of
    /// either where nothing changes.
    /// # Errors
    /// [`InsertError`]; the structure and `updates` are unchanged.
    pub fn change(
        &mut self,
        changes: &[(M::Key, Option<u64>)],
        updates: &mut Vec<Version<M>>,
    ) -> Result<(), InsertError> {
        let undo = self.edit(changes);
        if undo.iter().zip(changes).all(|((_, old), (_, new))| old == new) {
            return Ok(());
        }
        let built = self.build();
        if built.is_err() {
            for (key, old) in undo.into_iter().rev() {
                self.set(key, old);
            }
        }
        updates.push(built?);
        Ok(())
    }

    /// The keys and values that are in, in order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (M::Key, u64)> + '_ {
        self.entries.iter().map(|(&key, &value)| (key, value))
    }

    fn set(&mut self, key: M::Key, value: Option<u64>) -> Option<u64> {
        match value {
            Some(value) => self.entries.insert(key, value),
            None => self.entries.remove(&key),
        }
    }

    /// Makes the changes, and says what was there before each.
    fn edit(&mut self, changes: &[(M::Key, Option<u64>)]) -> Vec<(M::Key, Option<u64>)> {
        changes.iter().map(|&(key, value)| (key, self.set(key, value))).collect()
    }

    /// The next version.
    fn build(&mut self) -> Result<Version<M>, InsertError> {
        if self.entries.len() > self.max_names {
            return Err(InsertError::TooManyNames { max: self.max_names });
        }
        let entries: Vec<_> = self.iter().collect();
        let map = M::build(&self.settings, &entries, self.threads)?;
        self.latest = Version::new(self.latest.version + 1, map, &self.settings);
        Ok(self.latest.clone())
    }
}

impl<M: StaticMap + Send + Sync + 'static> Control for Rebuilt<M>
where
    M::Key: Ord + Send,
{
    type Key = M::Key;
    type Query = RebuiltQuery<M>;

    /// One build of all names.
    fn insert(&mut self, key: M::Key, value: u64, updates: &mut Vec<Version<M>>) -> Result<(), InsertError> {
        self.change(&[(key, Some(value))], updates)
    }

    /// One build of all names, and one update; on an error none of the batch is in.
    fn insert_batch(&mut self, entries: &[(M::Key, u64)], updates: &mut Vec<Version<M>>) -> Result<(), InsertError> {
        let changes: Vec<_> = entries.iter().map(|&(key, value)| (key, Some(value))).collect();
        self.change(&changes, updates)
    }

    /// One build of all names. Should it find no solution within its bounds, which takes hundreds of unlucky tries, the
    /// version before stands until the next change.
    fn remove(&mut self, key: M::Key, updates: &mut Vec<Version<M>>) -> bool {
        let was_there = self.set(key, None).is_some();
        if was_there {
            updates.extend(self.build());
        }
        was_there
    }

    fn get(&self, key: M::Key) -> Option<u64> {
        self.entries.get(&key).copied()
    }

    fn export(&self) -> RebuiltQuery<M> {
        RebuiltQuery::new(&self.settings, &self.latest)
    }

    fn len(&self) -> usize {
        self.entries.len()
    }
}

impl<M: StaticMap + Send + Sync + 'static> Subject for Rebuilt<M>
where
    M::Key: Ord + Send,
{
    fn must_drop(&self, key: M::Key) -> bool {
        M::EXACT && self.get(key).is_none()
    }

    fn may_forget(_update: &Version<M>) -> bool {
        true
    }
}

/// Query half of a static map, and the handle of its one writer.
pub struct RebuiltQuery<M: Send + Sync> {
    current: Current<Arc<M>>,
    settings: Settings,
    version: u64,
    digest: u64,
}

impl<M: StaticMap + Send + Sync> RebuiltQuery<M> {
    /// The query structure that holds `version`.
    pub fn new(settings: &Settings, version: &Version<M>) -> Self {
        let Version { version, digest, map } = version.clone();
        Self { current: Current::new(map), settings: settings.clone(), version, digest }
    }

    /// The map held.
    pub fn map(&self) -> &M {
        self.current.get()
    }

    fn take_over(&mut self, update: &Version<M>) -> Result<(), ApplyError> {
        let bytes = (self.map().size_bits() / 8) as usize;
        self.current.replace(Arc::clone(&update.map), bytes)?;
        (self.version, self.digest) = (update.version, update.digest);
        Ok(())
    }
}

impl<M: StaticMap + Send + Sync> Query for RebuiltQuery<M> {
    type Key = M::Key;
    type Update = Version<M>;

    fn lookup(&self, key: M::Key) -> u64 {
        self.map().lookup(key)
    }

    fn lookup_batch(&self, keys: &[M::Key], values: &mut [u64]) {
        self.map().lookup_batch(keys, values);
    }

    fn apply(&mut self, update: &Version<M>) -> Result<Applied, ApplyError> {
        if update.version <= self.version {
            return Ok(Applied::AlreadyThere);
        }
        self.take_over(update).map(|()| Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        self.map().size_bits()
    }
}

impl<M: StaticMap + Send + Sync + 'static> Replicated for RebuiltQuery<M>
where
    M::Key: Send,
{
    type Settings = Settings;
    type Reader = Reader<M>;

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn encode_update(_settings: &Settings, update: &Version<M>, out: &mut Vec<u8>) {
        update.encode(out);
    }

    fn decode_update(settings: &Settings, bytes: &[u8]) -> Result<Version<M>, DecodeError> {
        Version::decode(settings, bytes)
    }

    fn is_whole(_update: &Version<M>) -> bool {
        true
    }

    fn held_after(update: &Version<M>) -> (u64, u64) {
        (update.version, update.digest)
    }

    fn from_whole(settings: &Settings, update: &Version<M>) -> Result<Self, ApplyError> {
        Ok(Self::new(settings, update))
    }

    fn overwrite(&mut self, update: &Version<M>) -> Result<(), ApplyError> {
        self.take_over(update)
    }

    fn whole(&self) -> Version<M> {
        Version { version: self.version, digest: self.digest, map: Arc::clone(self.current.get()) }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    fn reader(&self) -> Reader<M> {
        Reader { follower: self.current.reader() }
    }
}

/// A thread's access to the map beside its writer.
pub struct Reader<M> {
    follower: Follower<Arc<M>>,
}

impl<M: StaticMap + Send + Sync + 'static> BatchReader for Reader<M>
where
    M::Key: Send,
{
    type Key = M::Key;

    #[inline]
    fn lookup_batch(&mut self, keys: &[M::Key], values: &mut [u64]) {
        let (map, _pin) = self.follower.pin();
        map.lookup_batch(keys, values);
    }

    fn offline(&mut self) {
        self.follower.offline();
    }
}

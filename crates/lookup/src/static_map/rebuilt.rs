//! A control structure over any static map: every batch of changes rebuilds the map, and the update is the whole map.
//!
//! So static maps run in a network like any other structure, at a plainly visible cost: a build of all names (20 ns to
//! a microsecond each) and a message as long as the table **for every change and switch**, where an Othello sends some
//! ten bytes. Batch changes: a batch is one build. Meant for tables that are filled once, for small ones, and for
//! comparisons.
//!
//! An update is absolute (version n, the whole map), so a gap is harmless and nothing needs to be requested. Any newer
//! update is published by one pointer, while readers finish their bursts on the version before.
//! Memory: entries in the control half, 32 bytes per name; two maps in the query half while readers change over.
//! Alien names: as in the map. **Removed names are aliens at once**: there is no tombstone. [`Sorted`](super::Sorted)
//! drops them, orthogonal filters mostly do, and a Bloomier filter or SetSep returns an arbitrary value, which is the
//! old one with probability 2^-l: revoke at the ingress.
//! ```text
//! update: | version 8 | digest 8, XXH3-64 of the map's bytes under the settings' seed | bytes of the map |
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Settings, StaticMap};
use crate::base::bytes::{Bytes, DecodeError};
use crate::base::part::{Change, HeldPart, PartId, Payload};
use crate::base::rows::{read_version, version_row};
use crate::publish::rcu::{RcuCell, RcuReader};
use crate::traits::{
    Applied, ApplyError, BatchReader, Image, InsertError, Query, RestoreError, Row, Single, Skeleton, Undivided, View,
};

/// Maximum number of threads of a build.
const MAX_THREADS: usize = 8;
/// Builds of fewer names use one thread.
const MIN_PARALLEL: usize = 10_000;

/// A version of the map, which is both update and image. Cheap to clone.
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

    /// Its number; 0 is the empty map.
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
    /// [`DecodeError`]; also when the bytes do not match the digest that they state.
    pub fn decode(settings: &Settings, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = Bytes(bytes);
        let (version, digest) = (bytes.u64()?, bytes.u64()?);
        let got = xxh3_64_with_seed(bytes.0, settings.seed);
        if got != digest {
            return Err(DecodeError::WrongDigest { got, expected: digest });
        }
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

impl<M: StaticMap + Send + Sync + 'static> Image for Version<M> {
    fn held(&self) -> HeldPart {
        HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest }
    }

    fn under(self, version: u64) -> Self {
        Self { version, ..self }
    }

    fn n_bytes(&self) -> usize {
        (self.map.size_bits() / 8) as usize
    }
}

/// Versions are equal if their numbers and digests are.
impl<M> PartialEq for Version<M> {
    fn eq(&self, other: &Self) -> bool {
        (self.version, self.digest) == (other.version, other.digest)
    }
}

impl<M> fmt::Debug for Version<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({}, {:#018x})", self.version, self.digest)
    }
}

/// Control half of a static map whose names carry their values.
///
/// ```
/// use fibula_lookup::hash::{Digest, SecretKey};
/// use fibula_lookup::static_map::{Bloomier, Rebuilt, Settings};
/// use fibula_lookup::traits::{Control, Query};
///
/// let mut table = Rebuilt::<Bloomier>::new(Settings::new(8, &SecretKey::from_seed(1)));
/// let mut switch = table.export();
/// let mut updates = Vec::new();
/// table.insert_batch(&[(Digest(7), 42), (Digest(8), 43)], &mut updates)?;
/// assert_eq!(updates.len(), 1);
/// switch.apply(&updates[0])?;
/// assert_eq!(switch.lookup(Digest(8)), 43);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Rebuilt<M> = Single<Entries<M, u64>>;

/// Names with one payload each: the state that switches with static maps share.
pub struct Entries<M: StaticMap, P: Payload = u32> {
    settings: Settings,
    /// Ordered, so that the same names make the same map, whatever the history.
    names: BTreeMap<M::Key, P>,
    version: u64,
    /// Whether the latest mutation removed a name.
    removed: bool,
}

impl<M: StaticMap<Key: Ord>, P: Payload> Entries<M, P> {
    /// The names with their payloads, in order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (M::Key, P)> + '_ {
        self.names.iter().map(|(&key, &payload)| (key, payload))
    }

    /// The map of a switch.
    fn build_map(&self, value: impl Fn(P) -> u64) -> Result<Version<M>, InsertError> {
        let entries: Vec<_> = self.iter().map(|(key, payload)| (key, value(payload))).collect();
        let cores = if entries.len() < MIN_PARALLEL { 1 } else { available_parallelism().map_or(1, NonZero::get) };
        let map = M::build(&self.settings, &entries, cores.min(MAX_THREADS))?;
        Ok(Version::new(self.version, map, &self.settings))
    }
}

impl<M, P: Payload> Skeleton for Entries<M, P>
where
    M: StaticMap<Key: Ord + Send + Sync> + Send + Sync + 'static,
{
    type Key = M::Key;
    type Payload = P;
    type Query = RebuiltQuery<M>;
    type View = MapView;

    /// Of equal names the last takes effect.
    fn build(settings: &Settings, entries: &[(M::Key, P)], _threads: usize) -> Result<Self, InsertError> {
        let names = entries.iter().copied().collect();
        Ok(Self { settings: settings.clone(), names, version: 0, removed: false })
    }

    fn restore(settings: &Settings, rows: &[Row], entries: &[(M::Key, P)]) -> Result<Self, RestoreError> {
        let version = read_version(rows)?;
        Ok(Self { version, ..Self::build(settings, entries, 1)? })
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn check(settings: &Settings, key: M::Key, value: u64) -> Result<(), InsertError> {
        settings.check(&[(key, value)])
    }

    fn insert(&mut self, key: M::Key, payload: P) -> Result<Change, InsertError> {
        self.insert_batch(&[(key, payload)])
    }

    fn insert_batch(&mut self, entries: &[(M::Key, P)]) -> Result<Change, InsertError> {
        let mut changed = false;
        for &(key, payload) in entries {
            changed |= self.names.insert(key, payload) != Some(payload);
        }
        Ok(if changed { self.touch() } else { Change::None })
    }

    fn remove(&mut self, key: M::Key) -> Change {
        if self.names.remove(&key).is_none() {
            return Change::None;
        }
        let change = self.touch();
        self.removed = true;
        change
    }

    fn touch(&mut self) -> Change {
        self.version += 1;
        self.removed = false;
        Change::Parts { slots: vec![0], replaced: Vec::new() }
    }

    fn get(&self, key: M::Key) -> Option<P> {
        self.names.get(&key).copied()
    }

    fn must_drop(&self, key: M::Key) -> bool {
        M::EXACT && self.get(key).is_none()
    }

    fn len(&self) -> usize {
        self.names.len()
    }

    /// Changes made in one batch need only one build.
    fn is_bulk(&self, _n_changes: usize) -> bool {
        true
    }

    fn part_id(&self, _slot: u32) -> PartId {
        PartId::WHOLE
    }

    fn take_rows(&mut self, slots: &[u32], _gone: &[PartId]) -> Vec<Row> {
        slots.iter().take(1).map(|_| version_row(self.version)).collect()
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        Box::new(std::iter::once(version_row(self.version)))
    }

    fn heap_bytes(&self) -> usize {
        self.names.len() * size_of::<(M::Key, P)>()
    }
}

/// What one switch has of the names: the version of its map.
#[derive(Clone, Copy, Debug)]
pub struct MapView {
    version: u64,
    digest: u64,
}

impl<M, P: Payload> View<Entries<M, P>> for MapView
where
    M: StaticMap<Key: Ord + Send + Sync> + Send + Sync + 'static,
{
    const MAY_FAIL: bool = true;

    fn export(names: &Entries<M, P>, value: impl Fn(P) -> u64) -> Result<(Self, Vec<Version<M>>), InsertError> {
        let image = names.build_map(value)?;
        Ok((Self { version: image.version, digest: image.digest }, vec![image]))
    }

    /// If a removal leaves names for which no map is found within the bounds, which takes hundreds of unlucky tries,
    /// then the previous version is kept until the next change.
    fn updates(
        &mut self,
        names: &Entries<M, P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Version<M>>,
    ) -> Result<(), InsertError> {
        if *change == Change::None {
            return Ok(());
        }
        match names.build_map(value) {
            Ok(version) if version.digest == self.digest => {}
            Ok(version) => {
                self.note(names, 0, &version);
                updates.push(version);
            }
            Err(_) if names.removed => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn image(&self, names: &Entries<M, P>, _slot: u32, value: impl Fn(P) -> u64) -> Result<Version<M>, InsertError> {
        names.build_map(value)
    }

    fn note(&mut self, _: &Entries<M, P>, _slot: u32, image: &Version<M>) {
        *self = Self { version: image.version, digest: image.digest };
    }

    fn held(&self, _names: &Entries<M, P>) -> Vec<(u32, HeldPart)> {
        vec![(0, HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest })]
    }

    fn set_version(&mut self, _slot: u32, version: u64) {
        self.version = version;
    }
}

/// Query half of a static map, and the handle of its one writer.
pub struct RebuiltQuery<M: Send + Sync> {
    current: RcuCell<Arc<M>>,
    settings: Settings,
    version: u64,
    digest: u64,
}

impl<M: StaticMap + Send + Sync> RebuiltQuery<M> {
    /// The current map.
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

impl<M> Undivided for RebuiltQuery<M>
where
    M: StaticMap<Key: Send> + Send + Sync + 'static,
{
    type Settings = Settings;
    type Image = Version<M>;
    type Reader = Reader<M>;

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn encode_update(_settings: &Settings, update: &Version<M>, out: &mut Vec<u8>) {
        update.encode(out);
    }

    fn decode_update(settings: &Settings, bytes: &[u8]) -> Result<Version<M>, DecodeError> {
        Version::decode(settings, bytes)
    }

    fn update_of(image: Version<M>) -> Version<M> {
        image
    }

    fn image_of(update: &Version<M>) -> Option<&Version<M>> {
        Some(update)
    }

    fn from_image(settings: &Settings, image: &Version<M>) -> Result<Self, ApplyError> {
        let Version { version, digest, map } = image.clone();
        Ok(Self { current: RcuCell::new(map), settings: settings.clone(), version, digest })
    }

    fn overwrite(&mut self, image: &Version<M>) -> Result<(), ApplyError> {
        self.take_over(image)
    }

    fn image(&self) -> Version<M> {
        Version { version: self.version, digest: self.digest, map: Arc::clone(self.current.get()) }
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    fn reader(&self) -> Reader<M> {
        Reader { reader: self.current.reader() }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<M> {
    reader: RcuReader<Arc<M>>,
}

impl<M: StaticMap + Send + Sync + 'static> BatchReader<[M::Key]> for Reader<M>
where
    M::Key: Send,
{
    #[inline]
    fn lookup_batch(&mut self, keys: &[M::Key], values: &mut [u64]) {
        let (map, _pin) = self.reader.pin();
        map.lookup_batch(keys, values);
    }

    fn offline(&mut self) {
        self.reader.offline();
    }
}

//! The query half: words only, changed in place concurrently with readers.

use std::sync::Arc;

use super::kernel::{lookup, lookup_burst, prefetch_top};
use super::leaf::Leaf;
use super::tables::Tables;
use super::update::Update;
use super::{Settings, TOP_NODES};
use crate::base::arena::{LINE, Lines};
use crate::base::bytes::DecodeError;
use crate::base::part::PartId;
use crate::base::prefetch::{BURST, in_bursts};
use crate::lpm::prefix::Address;
use crate::publish::seq_lock::SeqLock;
use crate::traits::{Applied, ApplyError, BatchReader, Query, Undivided};

/// What readers and the writer share.
pub(super) struct Shared<L> {
    pub(super) tables: Tables<L>,
    pub(super) seq_lock: SeqLock,
}

impl<L: Leaf> Shared<L> {
    fn lookup_batch<A: Address>(&self, addresses: &[A], values: &mut [u64]) {
        in_bursts(
            addresses,
            values,
            |addresses, ()| prefetch_top(&self.tables, addresses),
            |addresses, (), values| self.finish(addresses, values),
        );
    }

    /// The next hops of a burst, all of one moment.
    fn finish<A: Address>(&self, addresses: &[A], values: &mut [u64]) {
        self.seq_lock.read(|| lookup_burst(&self.tables, addresses, values));
    }
}

/// Query half of a trie of prefixes, and the handle of its one writer.
pub struct PrefixTrieQuery<A, L = u16> {
    pub(super) shared: Arc<Shared<L>>,
    pub(super) free_leaves: Lines,
    pub(super) free_chunks: Lines,
    pub(super) settings: Settings,
    /// Shared leaves, up to that of the largest next hop so far.
    pub(super) n_shared: u32,
    version: u64,
    pub(super) digest: u64,
    address: std::marker::PhantomData<A>,
}

impl<A: Address, L: Leaf> PrefixTrieQuery<A, L> {
    /// A table without a route.
    fn empty(settings: &Settings) -> Result<Self, ApplyError> {
        let (tables, free_leaves, free_chunks) = Tables::<L>::reserve::<A>(settings)
            .map_err(|_| ApplyError::ArenaFull { needed_bytes: settings.max_prefixes * LINE, limit_bytes: 0 })?;
        Ok(Self {
            shared: Arc::new(Shared { tables, seq_lock: SeqLock::default() }),
            free_leaves,
            free_chunks,
            settings: settings.clone(),
            n_shared: L::N_FILLED,
            version: 0,
            digest: 0,
            address: std::marker::PhantomData,
        })
    }

    /// A table from the whole update of its own control half, which is not checked.
    /// # Errors
    /// [`ApplyError::ArenaFull`].
    pub(super) fn from_own(settings: &Settings, whole: &Update<A, L>) -> Result<Self, ApplyError> {
        let mut query = Self::empty(settings)?;
        query.fill(whole)?;
        (query.version, query.digest) = (whole.to, whole.digest);
        Ok(query)
    }

    /// Memory of the nodes of the top, of the chunks and of the leaves, in bytes. The first is constant.
    pub fn size_bytes(&self) -> [u64; 3] {
        let unused = u64::from(L::MAX_HOP + 1 - self.n_shared);
        let leaves = (self.free_leaves.used() - unused) * L::BYTES as u64;
        [u64::from(TOP_NODES) * 16, self.free_chunks.used() * LINE as u64, leaves]
    }

    /// Bytes on huge pages, if the operating system reports it.
    pub fn huge_page_bytes(&self) -> Option<usize> {
        self.shared.tables.huge_page_bytes()
    }
}

impl<A: Address, L: Leaf> Query for PrefixTrieQuery<A, L> {
    type Key = A;
    type Update = Update<A, L>;

    fn lookup(&self, address: A) -> u64 {
        lookup(&self.shared.tables, address).bits().into()
    }

    fn lookup_batch(&self, addresses: &[A], values: &mut [u64]) {
        self.shared.lookup_batch(addresses, values);
    }

    fn apply(&mut self, update: &Update<A, L>) -> Result<Applied, ApplyError> {
        if update.to <= self.version {
            return Ok(Applied::AlreadyThere);
        }
        if !update.whole && update.from != self.version {
            return Err(ApplyError::Gap { part: PartId::WHOLE, current: self.version, from: update.from });
        }
        self.take_over(update)?;
        (self.version, self.digest) = (update.to, update.digest);
        Ok(Applied::Applied)
    }

    fn size_bits(&self) -> u64 {
        self.size_bytes().iter().sum::<u64>() * 8
    }
}

impl<A: Address, L: Leaf> Undivided for PrefixTrieQuery<A, L> {
    type Settings = Settings;
    type Image = Update<A, L>;
    type Reader = Reader<A, L>;

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn encode_update(_settings: &Settings, update: &Update<A, L>, out: &mut Vec<u8>) {
        update.encode(out);
    }

    fn decode_update(_settings: &Settings, bytes: &[u8]) -> Result<Update<A, L>, DecodeError> {
        Update::decode(bytes)
    }

    fn update_of(image: Update<A, L>) -> Update<A, L> {
        image
    }

    fn image_of(update: &Update<A, L>) -> Option<&Update<A, L>> {
        update.whole.then_some(update)
    }

    fn from_image(settings: &Settings, image: &Update<A, L>) -> Result<Self, ApplyError> {
        let mut query = Self::empty(settings)?;
        query.overwrite(image)?;
        Ok(query)
    }

    fn overwrite(&mut self, image: &Update<A, L>) -> Result<(), ApplyError> {
        if !image.whole {
            return Err(ApplyError::Malformed { reason: "a change came where the whole was due" });
        }
        self.take_over(image)?;
        (self.version, self.digest) = (image.to, image.digest);
        Ok(())
    }

    fn image(&self) -> Update<A, L> {
        self.read_whole(self.version)
    }

    fn held(&self) -> (u64, u64) {
        (self.version, self.digest)
    }

    fn reader(&self) -> Reader<A, L> {
        Reader { shared: Arc::clone(&self.shared), address: std::marker::PhantomData }
    }
}

/// A reader thread's handle, used concurrently with the writer.
pub struct Reader<A, L = u16> {
    shared: Arc<Shared<L>>,
    address: std::marker::PhantomData<A>,
}

impl<A: Address, L: Leaf> BatchReader<[A]> for Reader<A, L> {
    fn lookup_batch(&mut self, addresses: &[A], values: &mut [u64]) {
        self.shared.lookup_batch(addresses, values);
    }

    fn has_phases(&self) -> bool {
        true
    }

    /// Starts fetching the nodes of the top. [`finish`](BatchReader::finish) finds them by the addresses again.
    fn begin(&mut self, addresses: &[A]) {
        assert!(addresses.len() <= BURST, "a burst has at most {BURST} addresses");
        prefetch_top(&self.shared.tables, addresses);
    }

    fn finish(&mut self, addresses: &[A], values: &mut [u64]) {
        self.shared.finish(addresses, values);
    }

    fn offline(&mut self) {}
}

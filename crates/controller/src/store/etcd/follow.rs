//! Following the leader: the rows as of a commit, and the replication log of every commit after it.

use super::client::{Client, PATIENCE};
use super::codec::{Seal, Telling};
use super::keys::Keys;
use super::pages::{PAGE_ROWS, Pages, paged};
use super::{EtcdOptions, Fault, lead};
use crate::store::{RowChange, StoreError};
use api::etcd::v3::event::EventType;
use api::etcd::v3::{Event, RangeRequest, WatchResponse};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tonic::{Status, Streaming};

/// After this long without an event etcd is asked whether there was one: a member that is cut off from the others sends none.
const SILENCE: Duration = Duration::from_secs(1);

/// Interval between checks whether a commit is applied in full.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Reads what another controller commits. Needs the runtime in which it was made.
#[derive(Debug)]
pub struct Follower {
    pub(super) client: Client,
    pub(super) keys: Keys,
    pub(super) runtime: Handle,
}

/// A commit, as followers see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// The term of the leader.
    pub term: u64,
    /// Its number: one more than that of the commit before.
    pub number: u64,
    /// Its entry in the replication log; empty if there is none, so all rows are to be read again.
    pub told: Vec<u8>,
}

/// A point from which commits can be followed: the rows as of this revision are those of this commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The term of the last commit.
    pub term: u64,
    /// The number of the last commit.
    pub number: u64,
    revision: i64,
}

impl Follower {
    /// Connects to no member yet.
    /// # Errors
    /// The files of TLS, or an address that is none.
    pub fn new(options: &EtcdOptions) -> Result<Follower, StoreError> {
        let tls = lead::credentials(options)?;
        let client = Client::new(options.address.clone(), tls.as_ref())?;
        let keys = Keys::new(&options.address.prefix);
        Ok(Follower { client, keys, runtime: Handle::current() })
    }

    /// The last commit, as most members of etcd know it.
    /// # Errors
    /// [`StoreError`]: etcd does not answer within `patience`, or refuses.
    pub async fn last_commit(&self, patience: Duration) -> Result<Position, StoreError> {
        Ok(self.seal(patience).await?.1)
    }

    pub(super) async fn seal(&self, patience: Duration) -> Result<(Seal, Position), StoreError> {
        let request = RangeRequest { key: self.keys.seal(), ..RangeRequest::default() };
        let found = self.client.range_within(request, patience).await?;
        let revision = found.header.map_or(0, |header| header.revision);
        let seal = match found.kvs.first() {
            Some(kv) => Seal::decode(&kv.value).ok_or_else(|| self.no_seal())?,
            None => Seal::default(),
        };
        Ok((seal, Position { term: seal.term, number: seal.n_commits, revision }))
    }

    fn no_seal(&self) -> StoreError {
        self.client.failed(Fault::Other, format!("{} is not a seal of this version of fibula", self.keys.shown("seal")))
    }

    /// A commit whose rows are all in place.
    /// # Errors
    /// As of [`Follower::last_commit`]; or a big commit is not applied, and there is no leader that would do it.
    pub async fn position(&self) -> Result<Position, StoreError> {
        let began = std::time::Instant::now();
        loop {
            let (seal, position) = self.seal(PATIENCE).await?;
            if seal.journal_bytes == 0 {
                return Ok(position);
            }
            if began.elapsed() > PATIENCE {
                return Err(self
                    .client
                    .failed(Fault::Other, "a big commit is not applied: the one that leads is gone"));
            }
            #[expect(clippy::disallowed_methods, reason = "how often it is looked at")]
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The rows as of a position, in the order of kind and key. Blocks, so it must not be called from a task. An error if etcd
    /// has compacted what was there then: take another position.
    pub fn rows(&self, position: Position) -> impl Iterator<Item = Result<RowChange, StoreError>> {
        let pages = Pages::new(&self.keys, &[], None, PAGE_ROWS);
        paged(&self.client.address, pages, move |(key, range_end)| {
            let range = RangeRequest { key, range_end, limit: PAGE_ROWS as i64, revision: position.revision };
            self.runtime.block_on(self.client.range(range))
        })
    }

    /// Follows the commits after a position.
    pub fn watch(self: &Arc<Follower>, from: Position) -> Watching {
        Watching {
            follower: Arc::clone(self),
            stream: None,
            revision: from.revision,
            last: from.number,
            telling: Telling::default(),
            events: Vec::new().into_iter(),
        }
    }
}

/// The commits after a position, in their order.
#[derive(Debug)]
pub struct Watching {
    pub(super) follower: Arc<Follower>,
    stream: Option<Streaming<WatchResponse>>,
    /// The position of the last event that was taken.
    pub(super) revision: i64,
    /// The number of the last commit.
    last: u64,
    telling: Telling,
    pub(super) events: std::vec::IntoIter<Event>,
}

impl Watching {
    /// The number of the last commit that came.
    pub fn number(&self) -> u64 {
        self.last
    }

    /// The next commit. Waits while there is none, and while etcd does not answer. May be dropped without loss.
    /// # Errors
    /// [`StoreError`]: the next commit is gone from etcd, which was compacted meanwhile, or set back to a backup.
    pub async fn next(&mut self) -> Result<Commit, StoreError> {
        loop {
            while let Some(event) = self.events.next() {
                if let Some(commit) = self.take(event)? {
                    return Ok(commit);
                }
            }
            if let Err(error) = self.fetch().await {
                self.stream = None;
                if !matches!(&error, StoreError::Etcd { fault: Fault::Unreachable, .. }) {
                    return Err(error);
                }
                tracing::debug!(%error, "etcd is asked again");
                #[expect(clippy::disallowed_methods, reason = "the pause before it is asked again")]
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }

    pub(super) fn take(&mut self, event: Event) -> Result<Option<Commit>, StoreError> {
        let follower = &*self.follower;
        let kind = event.r#type();
        let Some(kv) = event.kv else { return Ok(None) };
        self.revision = kv.mod_revision;
        if kv.key != follower.keys.seal() {
            if kind == EventType::Put {
                self.telling.take(&kv.value);
            }
            return Ok(None);
        }
        let seal = Seal::decode(&kv.value).filter(|_| kind == EventType::Put).ok_or_else(|| follower.no_seal())?;
        // When the rows of a big commit are in place, the seal is put once more.
        if seal.n_commits == self.last {
            return Ok(None);
        }
        if seal.n_commits != self.last + 1 {
            let what =
                format!("commit {} came after {}: it was set back, or is another one", seal.n_commits, self.last);
            return Err(follower.client.failed(Fault::Other, what));
        }
        self.last = seal.n_commits;
        Ok(Some(Commit { term: seal.term, number: seal.n_commits, told: self.telling.of(&seal) }))
    }

    /// Waits for more events.
    async fn fetch(&mut self) -> Result<(), StoreError> {
        let follower = &*self.follower;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(follower.client.watch(follower.keys.followed(), self.revision + 1).await?),
        };
        let response = match tokio::time::timeout(SILENCE, stream.message()).await {
            Ok(Ok(Some(response))) => response,
            Ok(Ok(None)) => return Err(follower.client.failed(Fault::Unreachable, "it ended the watch")),
            Ok(Err(status)) => return Err(follower.client.broken(&status)),
            Err(_) => {
                let position = follower.last_commit(SILENCE).await?;
                if position.number == self.last {
                    return Ok(());
                }
                if position.number < self.last || position.revision < self.revision {
                    return Err(follower.client.failed(Fault::Other, "it was set back"));
                }
                // Something just came, or this member is cut off from the others. What was not taken comes again.
                return Err(follower.client.broken(&Status::unavailable("it sends no events")));
            }
        };
        if response.canceled {
            let what = match response.compact_revision {
                0 => format!("it ended the watch: {}", response.cancel_reason),
                at => format!("what followed revision {} is compacted, up to {at}", self.revision),
            };
            return Err(follower.client.failed(Fault::Other, what));
        }
        self.events = response.events.into_iter();
        Ok(())
    }
}

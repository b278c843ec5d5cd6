//! The store in etcd, for several controllers, one of which leads.
//!
//! Each row is a key. One key, the seal, has the term of the leader and the number of commits. **Every transaction compares
//! the whole seal** with that of the leader's last commit, and every commit and every new leader replaces it. So no controller
//! writes after another has taken the lead, even if it believes that it still leads, and a late copy of a request does nothing.
//! The lease decides when another may lead; the correctness of what is written depends on no clock and no lease.
//!
//! A commit of few rows is one transaction. A bigger one is written as a journal first, in parts; a transaction that puts
//! the journal's length and fingerprint into the seal makes it valid, all at once; then its rows are put, and a
//! transaction takes it out of the seal. The next leader finishes a journal that the seal names, and removes any other.
//!
//! Cost: one request to etcd for a commit of few rows, which is a sync of the disk on most members. A row costs etcd some
//! 200 bytes of memory besides its key; each change leaves the row before it in etcd's file until etcd compacts.

mod address;
mod client;
mod codec;
mod follow;
mod keys;
mod lead;
#[cfg(feature = "kit")]
mod model;
mod pages;

pub use address::EtcdAddress;
pub use client::Fault;
pub use follow::{Commit, Follower, Position, Watching};
pub use lead::{Candidate, Leader};
#[cfg(feature = "kit")]
pub use model::{Failure, Followed, Model};

use super::{RowChange, Store, StoreError};
use api::etcd::v3::response_op::Response;
use api::etcd::v3::{RangeResponse, RequestOp, TxnRequest, TxnResponse};
use api::seam::{Mistake, mistaken};
use bytes::Bytes;
use client::Client;
use codec::{CHUNK, Seal};
use keys::{Keys, delete, put, range};
use lead::{Background, Lease, not_leader};
use pages::{PAGE_ROWS, Pages, Width, after, paged};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Operations of one transaction besides that of the seal; etcd takes 128 by default.
const MAX_OPS: usize = 120;

/// Bytes of the keys and values of one transaction; etcd takes 1.5 MiB by default.
const MAX_BYTES: usize = 1 << 20;

/// Transactions of one big commit that are under way together: they share syncs.
const UNDER_WAY: usize = 16;

/// An etcd, and the credentials for it.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The members and the prefix.
    pub address: EtcdAddress,
    /// Certificates; without them the connections are open.
    pub tls: Option<EtcdTls>,
}

/// The section `[etcd]`: files in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdTls {
    /// The authority that signed the certificates of etcd's members.
    pub ca: PathBuf,
    /// Our certificate, where etcd asks for one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

impl EtcdTls {
    pub(super) fn pair(&self) -> Option<(&Path, &Path)> {
        self.cert.as_deref().zip(self.key.as_deref())
    }
}

/// The store of the controller that leads.
#[derive(Debug)]
pub struct EtcdStore {
    client: Arc<Client>,
    keys: Keys,
    background: Background,
    lease: i64,
    #[cfg(feature = "kit")]
    keeping: Option<tokio::task::AbortHandle>,
    lost: watch::Receiver<Option<String>>,
    /// As of the last commit, once its journal is applied.
    seal: Seal,
    /// Applies the journal of the last commit.
    applying: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
    /// How far apart the rows of the last read were.
    width: Mutex<Option<Width>>,
    term: u64,
}

impl EtcdStore {
    /// Finishes what the previous leader left, and keeps the lease from now on.
    fn opened(candidate: Candidate, lease: Lease) -> Result<EtcdStore, StoreError> {
        let Candidate { client, background, .. } = candidate;
        let Lease { id: lease, seal } = lease;
        let (losing, lost) = watch::channel(None);
        // In a simulation the caller extends it.
        #[cfg(feature = "kit")]
        let kept = client.model.is_none();
        #[cfg(not(feature = "kit"))]
        let kept = true;
        let keeping = background
            .get()
            .filter(|_| kept)
            .map(|runtime| runtime.spawn(lead::keep(Arc::clone(&client), lease, losing)));
        #[cfg(feature = "kit")]
        let keeping = keeping.map(|task| task.abort_handle());
        #[cfg(not(feature = "kit"))]
        drop(keeping);
        let keys = Keys::new(&client.address.prefix);
        let term = seal.term;
        let mut store = EtcdStore {
            client,
            keys,
            background,
            lease,
            #[cfg(feature = "kit")]
            keeping,
            lost,
            seal,
            applying: Mutex::default(),
            width: Mutex::default(),
            term,
        };
        store.recover()?;
        Ok(store)
    }

    /// Carries out the journal that the seal names, and removes parts of any other.
    fn recover(&mut self) -> Result<(), StoreError> {
        if mistaken(Mistake::JournalThrownAway) {
            self.seal = without_journal(self.seal);
        }
        if self.seal.journal_bytes == 0 {
            let (from, to) = self.keys.journal();
            return self.guarded(vec![delete(from, to)]).map(drop);
        }
        let mut journal = Vec::new();
        let (mut from, to) = self.keys.journal();
        loop {
            let found = self.range((from, to.clone()), 1)?;
            let Some(kv) = found.kvs.last() else { break };
            from = after(&kv.key).into();
            journal.extend_from_slice(&kv.value);
            if !found.more {
                break;
            }
        }
        let changes = codec::changes(&journal).filter(|_| self.seal.is_of(&journal));
        let Some(changes) = changes else {
            return Err(self.damaged("the journal of the last commit is not what its seal says"));
        };
        tracing::warn!(rows = changes.len(), "the leader before left a commit half applied; it is finished");
        let work = self.apply(self.seal, self.row_ops(&changes)?);
        self.block_on(work)?;
        self.seal = without_journal(self.seal);
        Ok(())
    }

    /// Resolves when this controller no longer leads.
    pub fn lost(&self) -> impl Future<Output = StoreError> + Send + use<> {
        let (mut lost, store) = (self.lost.clone(), self.client.address.to_string());
        async move {
            let why = lost.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
            StoreError::LostLead { store, why: why.unwrap_or_default() }
        }
    }

    /// Stops extending the lease, as a paused process does.
    #[cfg(feature = "kit")]
    pub fn pause(&self) {
        if let Some(keeping) = &self.keeping {
            keeping.abort();
        }
    }

    /// The lease that it leads by.
    #[cfg(feature = "kit")]
    pub fn lease(&self) -> i64 {
        self.lease
    }

    /// Lets this many more transactions through, and no more.
    #[cfg(feature = "kit")]
    pub fn cut_after(&self, n_transactions: usize) {
        self.client.left.store(n_transactions, std::sync::atomic::Ordering::Relaxed);
    }

    fn block_on<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        match self.background.get() {
            Some(runtime) => runtime.block_on(work),
            None => Err(self.client.failed(Fault::Other, "it has no runtime")),
        }
    }

    fn damaged(&self, what: &str) -> StoreError {
        StoreError::Damaged { path: self.client.address.to_string().into(), what: what.to_owned() }
    }

    /// Carries out operations if the seal is as of our last commit.
    fn guarded(&self, success: Vec<RequestOp>) -> Result<TxnResponse, StoreError> {
        self.block_on(guarded(&self.client, &self.keys, self.seal.encode(), None, success))
    }

    /// The contents of a range.
    fn range(&self, keys: (Bytes, Bytes), limit: usize) -> Result<RangeResponse, StoreError> {
        match self.guarded(vec![range(keys, limit as i64)])?.responses.into_iter().next().and_then(|op| op.response) {
            Some(Response::ResponseRange(range)) => Ok(range),
            _ => Err(self.client.failed(Fault::Other, "it answered something else than was asked")),
        }
    }

    /// An operation for each row, with each row only once: etcd takes no key twice.
    fn row_ops(&self, changes: &[RowChange]) -> Result<Vec<(usize, RequestOp)>, StoreError> {
        let last: BTreeMap<(u8, &[u8]), &RowChange> =
            changes.iter().map(|change| ((change.kind, &change.key[..]), change)).collect();
        let scratch = &mut Vec::new();
        let op = |change: &RowChange| {
            let key = self.keys.row(change.kind, &change.key);
            let op = match &change.value {
                Some(value) => put(key.clone(), codec::sealed_value(change.kind, &change.key, value, scratch), 0),
                None => delete(key.clone(), Bytes::new()),
            };
            let bytes = key.len() + change.value.as_ref().map_or(0, Vec::len) + 32;
            if bytes > MAX_BYTES {
                let what = format!("a row of kind {} has {bytes} bytes", change.kind);
                return Err(self.client.failed(Fault::TooLarge, what));
            }
            Ok((bytes, op))
        };
        last.into_values().map(op).collect()
    }

    /// Puts the rows of the journal that the seal names, and takes it out of the seal.
    fn apply(
        &self,
        seal: Seal,
        ops: Vec<(usize, RequestOp)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (client, keys) = (Arc::clone(&self.client), self.keys.clone());
        async move {
            all_of(&client, &keys, seal, in_transactions(ops)).await?;
            let next = without_journal(seal);
            let (from, to) = keys.journal();
            let success = vec![keys.put_seal(&next), delete(from, to)];
            guarded(&client, &keys, seal.encode(), Some(next), success).await.map(drop)
        }
    }

    /// Waits until the journal of the last commit is applied.
    fn settle(&self) -> Result<(), StoreError> {
        let applying = self.applying.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(applying) = applying else { return Ok(()) };
        let failed = |error: tokio::task::JoinError| self.client.failed(Fault::Other, error.to_string());
        self.block_on(async { applying.await.map_err(failed)? })
    }
}

fn without_journal(seal: Seal) -> Seal {
    Seal { journal_bytes: 0, journal_fingerprint: 0, ..seal }
}

/// Groups operations so that each is within etcd's limits.
fn in_transactions(ops: Vec<(usize, RequestOp)>) -> Vec<Vec<RequestOp>> {
    let mut transactions: Vec<Vec<RequestOp>> = Vec::new();
    let mut size = 0;
    for (bytes, op) in ops {
        size += bytes;
        match transactions.last_mut().filter(|last| last.len() < MAX_OPS && size <= MAX_BYTES) {
            Some(last) => last.push(op),
            None => {
                size = bytes;
                transactions.push(vec![op]);
            }
        }
    }
    transactions
}

/// Carries out transactions in any order, several at a time.
async fn all_of(
    client: &Arc<Client>,
    keys: &Keys,
    seal: Seal,
    transactions: Vec<Vec<RequestOp>>,
) -> Result<(), StoreError> {
    let mut under_way = JoinSet::new();
    let joined = |joined: Result<Result<(), StoreError>, tokio::task::JoinError>| {
        joined.map_err(|error| client.failed(Fault::Other, error.to_string()))?
    };
    for success in transactions {
        if under_way.len() >= UNDER_WAY
            && let Some(done) = under_way.join_next().await
        {
            joined(done)?;
        }
        let (client, keys) = (Arc::clone(client), keys.clone());
        under_way.spawn(async move { guarded(&client, &keys, seal.encode(), None, success).await.map(drop) });
    }
    while let Some(done) = under_way.join_next().await {
        joined(done)?;
    }
    Ok(())
}

/// Carries out operations if the seal is `seal`. `next`: the seal that they put.
async fn guarded(
    client: &Client,
    keys: &Keys,
    seal: Vec<u8>,
    next: Option<Seal>,
    success: Vec<RequestOp>,
) -> Result<TxnResponse, StoreError> {
    let failure = vec![range((keys.seal(), Bytes::new()), 0)];
    let compare = if mistaken(Mistake::GuardLeftOut) { vec![] } else { vec![keys.seal_is(Some(seal))] };
    let response = client.txn(TxnRequest { compare, success, failure }).await?;
    if response.succeeded || mistaken(Mistake::FailedGuardIsSuccess) {
        return Ok(response);
    }
    // An earlier attempt, whose answer was lost, may have done it.
    let found = match response.responses.first().and_then(|op| op.response.as_ref()) {
        Some(Response::ResponseRange(range)) => range.kvs.first().and_then(|kv| Seal::decode(&kv.value)),
        _ => None,
    };
    if next.is_some() && found == next {
        return Ok(response);
    }
    let leader = lead::leader(client, keys).await.ok().flatten();
    Err(not_leader(client, leader.as_ref().map(|(leader, _)| leader)))
}

impl Store for EtcdStore {
    fn rows(&self) -> Box<dyn Iterator<Item = Result<RowChange, StoreError>> + '_> {
        let mut settled = Some(self.settle());
        let pages = Pages::new(&self.keys, &[], None, PAGE_ROWS);
        Box::new(paged(&self.client.address, pages, move |keys| {
            settled.take().unwrap_or(Ok(()))?;
            self.range(keys, PAGE_ROWS)
        }))
    }

    fn rows_after(&self, after_row: Option<(u8, &[u8])>, n_rows: usize) -> Result<Vec<RowChange>, StoreError> {
        self.settle()?;
        let from = after_row.map_or(Vec::new(), |(kind, key)| after(&[&[kind], key].concat()));
        let mut width = self.width.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pages = Pages::new(&self.keys, &from, *width, PAGE_ROWS.min(n_rows));
        let mut rows = Vec::new();
        while let Some(keys) = pages.range()
            && rows.len() < n_rows
        {
            let found = self.range(keys, PAGE_ROWS.min(n_rows - rows.len()))?;
            rows.extend(pages.take(&self.client.address, &found)?);
        }
        *width = pages.width();
        Ok(rows)
    }

    fn commit(&mut self, changes: &[RowChange]) -> Result<(), StoreError> {
        self.commit_told(changes, &[])
    }

    /// A failure may leave the changes applied, or not: the store is of no more use, and the next leader has what etcd
    /// holds.
    fn commit_told(&mut self, changes: &[RowChange], told: &[u8]) -> Result<(), StoreError> {
        self.settle()?;
        let ops = self.row_ops(changes)?;
        let next = Seal { term: self.term, n_commits: self.seal.n_commits + 1, ..self.seal };
        let told_ops = self.keys.put_told(&next, told);
        let bytes: usize = ops.iter().map(|(bytes, _)| bytes).sum();
        if ops.len() <= MAX_OPS && bytes + told.len() <= MAX_BYTES {
            let mut success: Vec<RequestOp> = ops.into_iter().map(|(_, op)| op).collect();
            // It comes before the seal, so that followers see it first.
            success.extend(told_ops);
            success.push(self.keys.put_seal(&next));
            self.block_on(guarded(&self.client, &self.keys, self.seal.encode(), Some(next), success))?;
            self.seal = next;
            return Ok(());
        }
        let journal = codec::journal(changes.iter());
        if mistaken(Mistake::JournalNamedFirst) {
            let named = next.with_journal(&journal);
            let success = vec![self.keys.put_seal(&named)];
            self.block_on(guarded(&self.client, &self.keys, self.seal.encode(), Some(named), success))?;
            self.seal = named;
        }
        let parts = journal.chunks(CHUNK).zip(0_u32..);
        let parts = parts.map(|(part, i)| vec![put(self.keys.journal_part(i), part.to_vec(), 0)]).collect();
        self.block_on(all_of(&self.client, &self.keys, self.seal, parts))?;
        // In their order.
        for op in told_ops {
            self.guarded(vec![op])?;
        }
        let next = next.with_journal(&journal);
        let success = vec![self.keys.put_seal(&next)];
        self.block_on(guarded(&self.client, &self.keys, self.seal.encode(), Some(next), success))?;
        self.seal = without_journal(next);
        let work = self.apply(next, ops);
        let applying = self.background.get().map(|runtime| runtime.spawn(work));
        *self.applying.lock().unwrap_or_else(PoisonError::into_inner) = applying;
        Ok(())
    }

    fn has_followers(&self) -> bool {
        true
    }

    fn n_commits(&self) -> u64 {
        self.seal.n_commits
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn set_term(&mut self, term: u64) {
        self.term = term;
    }

    /// Gives up the lead, so that another controller takes it at once.
    fn close(&mut self) -> Result<(), StoreError> {
        let settled = self.settle();
        self.block_on(self.client.revoke(self.lease)).and(settled)
    }
}

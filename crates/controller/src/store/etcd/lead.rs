//! Chooses the leader: the controller whose lease the leader's key hangs on.

use super::client::{Client, PATIENCE};
use super::codec::Seal;
use super::keys::{Keys, put};
use super::{EtcdOptions, EtcdStore, EtcdTls, Fault};
use crate::store::{NOTHING, StoreError};
use api::etcd::v3::{KeyValue, RangeRequest, TxnRequest};
use api::seam::{Mistake, mistaken};
use api::tls::Foreign;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// After this long without a sign of life of the leader the next one may lead. The least that etcd grants with its default
/// election timeout.
const TTL: Duration = Duration::from_secs(2);

/// How often the leader extends its lease, and how often the others check it.
const KEEP_EVERY: Duration = Duration::from_millis(400);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The contents of the leader's key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leader {
    /// Identifies this run of the controller.
    pub id: String,
    /// Where its gRPC listens.
    pub address: String,
}

impl Display for Leader {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} (id {})", self.address, self.id)
    }
}

/// The runtime of the connections: the lease is kept while the thread that writes is busy. It may be dropped anywhere.
#[derive(Debug)]
pub(super) struct Background(Option<Runtime>);

impl Background {
    #[cfg(feature = "kit")]
    pub(super) fn of(runtime: Runtime) -> Background {
        Background(Some(runtime))
    }

    pub(super) fn get(&self) -> Option<&Runtime> {
        self.0.as_ref()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A controller that wants to lead.
#[derive(Debug)]
pub struct Candidate {
    pub(super) client: Arc<Client>,
    pub(super) background: Background,
    pub(super) me: Leader,
}

/// A lease with the leader's key on it.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: i64,
    pub(super) seal: Seal,
}

impl Candidate {
    /// Connects to no member yet.
    /// # Errors
    /// The files of TLS, or an address that is none.
    pub fn new(options: &EtcdOptions, listens_at: &str) -> Result<Candidate, StoreError> {
        let tls = credentials(options)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(|error| unusable(options, error.to_string()))?;
        let client = {
            let _inside = runtime.enter();
            Client::new(options.address.clone(), tls.as_ref())
        };
        let background = Background(Some(runtime));
        let me = Leader { id: format!("{:016x}", rand::random::<u64>()), address: listens_at.to_owned() };
        Ok(Candidate { client: Arc::new(client?), background, me })
    }

    /// Waits until no other controller leads, and leads. Calls `told` with each other leader that is found.
    /// # Errors
    /// [`StoreError`]: etcd does not answer, or refuses.
    pub async fn lead(self, told: impl Fn(&Leader) + Send + 'static) -> Result<EtcdStore, StoreError> {
        let (client, me) = (Arc::clone(&self.client), self.me.clone());
        let waiting = self.background.get().map(|runtime| runtime.spawn(async move { wait(&client, &me, told).await }));
        let lease = match waiting {
            Some(waiting) => Aborted(waiting).await?,
            None => return Err(self.client.failed(Fault::Other, "it has no runtime")),
        };
        // The rest also talks to etcd, and blocks.
        let opened = tokio::task::spawn_blocking(move || EtcdStore::opened(self, lease)).await;
        opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// As [`Candidate::lead`], for at most `patience`, outside of any runtime.
    /// # Errors
    /// As of [`Candidate::lead`]; [`StoreError::NotLeader`] while another leads.
    pub fn lead_within(self, patience: Duration) -> Result<EtcdStore, StoreError> {
        let Some(runtime) = self.background.get() else {
            return Err(self.client.failed(Fault::Other, "it has no runtime"));
        };
        let other = Arc::new(std::sync::Mutex::new(None));
        let seen = Arc::clone(&other);
        let told = move |leader: &Leader| {
            *seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(leader.clone())
        };
        let lease =
            runtime.block_on(async { tokio::time::timeout(patience, wait(&self.client, &self.me, told)).await });
        match lease {
            Ok(lease) => EtcdStore::opened(self, lease?),
            Err(_) => {
                let leader = other.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                Err(not_leader(&self.client, leader.as_ref()))
            }
        }
    }
}

fn unusable(options: &EtcdOptions, what: String) -> StoreError {
    StoreError::Etcd { store: options.address.to_string(), fault: Fault::Other, what }
}

/// The credentials shown to etcd.
pub(super) fn credentials(options: &EtcdOptions) -> Result<Option<Arc<Foreign>>, StoreError> {
    let load = |tls: &EtcdTls| Foreign::load(&tls.ca, tls.pair()).map_err(|error| unusable(options, error.to_string()));
    options.tls.as_ref().map(load).transpose()
}

/// A task that ends once its result is no longer awaited.
struct Aborted<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Aborted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Future for Aborted<T> {
    type Output = T;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<T> {
        let joined = std::pin::Pin::new(&mut self.0).poll(context);
        joined.map(|joined| joined.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())))
    }
}

pub(super) fn not_leader(client: &Client, leader: Option<&Leader>) -> StoreError {
    let leader = leader.map_or("another one led, or may lead now".to_owned(), |leader| format!("{leader} leads"));
    StoreError::NotLeader { store: client.address.to_string(), leader }
}

async fn wait(client: &Client, me: &Leader, told: impl Fn(&Leader)) -> Result<Lease, StoreError> {
    let keys = Keys::new(&client.address.prefix);
    let mut last = None;
    loop {
        match leader(client, &keys).await? {
            None => {
                if let Some(lease) = try_lead(client, &keys, me).await? {
                    return Ok(lease);
                }
            }
            Some((leader, _)) if last.as_ref() == Some(&leader) => {}
            Some((leader, _)) => {
                told(&leader);
                last = Some(leader);
            }
        }
        #[expect(clippy::disallowed_methods, reason = "how often the leader's key is looked at")]
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The leader, and the key that says so.
pub(super) async fn leader(client: &Client, keys: &Keys) -> Result<Option<(Leader, KeyValue)>, StoreError> {
    let found = client.range(RangeRequest { key: keys.leader(), ..RangeRequest::default() }).await?;
    Ok(found.kvs.into_iter().next().map(|kv| {
        let unknown = || Leader { id: "unknown".to_owned(), address: "unknown".to_owned() };
        (serde_json::from_slice(&kv.value).unwrap_or_else(|_| unknown()), kv)
    }))
}

/// Takes the lead, with a term of its own, unless another does.
pub(super) async fn try_lead(client: &Client, keys: &Keys, me: &Leader) -> Result<Option<Lease>, StoreError> {
    let found = client.range(RangeRequest { key: keys.seal(), ..RangeRequest::default() }).await?;
    let before = found.kvs.first().map(|kv| &kv.value);
    let seal = match before {
        Some(bytes) => {
            let damaged = || {
                client.failed(Fault::Other, format!("{} is not a seal of this version of fibula", keys.shown("seal")))
            };
            Seal::decode(bytes).ok_or_else(damaged)?
        }
        None => {
            // Rows without a seal do not belong to a new store: if it began anew, their changes would be ignored.
            let (key, range_end) = keys.rows();
            let rows = client.range(RangeRequest { key, range_end, limit: 1, ..RangeRequest::default() }).await?;
            if !rows.kvs.is_empty() {
                let what = format!("{} is missing, and there are rows", keys.shown("seal"));
                return Err(StoreError::Damaged { path: client.address.to_string().into(), what });
            }
            Seal::default()
        }
    };
    let lease = client.grant(TTL).await?;
    let seal = Seal { term: seal.term + 1, n_commits: seal.n_commits + 1, ..seal };
    let told = serde_json::to_vec(me).unwrap_or_default();
    let compare = vec![keys.is_absent(keys.leader()), keys.seal_is(before.map(|bytes| bytes.to_vec()))];
    let mut success = keys.put_told(&seal, NOTHING);
    success.push(put(keys.leader(), told, lease));
    if !mistaken(Mistake::LeadKeepsSeal) {
        success.push(keys.put_seal(&seal));
    }
    if let Err(error) = client.txn(TxnRequest { compare, success, failure: Vec::new() }).await {
        let expired = matches!(&error, StoreError::Etcd { what, .. } if what.contains("lease not found"));
        return if expired { Ok(None) } else { Err(error) };
    }
    // The answer to an earlier attempt may have been lost.
    match leader(client, keys).await? {
        Some((_, kv)) if kv.lease == lease => Ok(Some(Lease { id: lease, seal })),
        _ => {
            let _ = client.revoke(lease).await;
            Ok(None)
        }
    }
}

/// Extends the lease until it is lost; then says why.
pub(super) async fn keep(client: Arc<Client>, lease: i64, lost: watch::Sender<Option<String>>) {
    let mut alive = Instant::now();
    let why = loop {
        #[expect(clippy::disallowed_methods, reason = "how often the lease is extended")]
        tokio::time::sleep(KEEP_EVERY).await;
        let asked = Instant::now();
        match client.keep_alive(lease, TTL / 4).await {
            Ok(true) => alive = asked,
            Ok(false) => break "its lease ran out".to_owned(),
            // Every write is guarded, so there is no hurry: etcd may be choosing a leader of its own.
            Err(error) if alive.elapsed() < PATIENCE => tracing::debug!(%error, "the lease is not extended yet"),
            Err(error) => break format!("it could not extend its lease: {error}"),
        }
    };
    let _ = lost.send(Some(why));
}

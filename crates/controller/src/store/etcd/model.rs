//! What replaces etcd in a simulation, and what the simulation does with candidates and followers.

use super::client::Client;
use super::follow::Position;
use super::keys::Keys;
use super::lead::{Background, leader, try_lead};
use super::{Candidate, Commit, EtcdAddress, EtcdStore, Follower, Leader, Watching};
use crate::store::StoreError;
use api::etcd::v3::{Event, RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tonic::Status;

/// Why a request has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// This member does not answer: the next one is asked the same.
    Unavailable(&'static str),
    /// No other member is asked.
    Lost(&'static str),
    /// etcd refuses.
    Refused(&'static str),
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        match failure {
            Failure::Unavailable(why) => Status::unavailable(why),
            Failure::Lost(why) => Status::internal(why),
            Failure::Refused(why) => Status::not_found(why),
        }
    }
}

/// An etcd, as one controller reaches it. A request is one to one of its members.
#[allow(missing_docs, reason = "the requests of etcd")]
pub trait Model: Debug + Send + Sync {
    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Failure>;
    fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Failure>;
    fn grant(&self, ttl: Duration) -> Result<i64, Failure>;
    fn revoke(&self, lease: i64) -> Result<(), Failure>;
    /// The events of a range from this revision on.
    fn events(&self, key: &[u8], range_end: &[u8], start_revision: i64) -> Vec<Event>;
}

/// Tasks go on in this thread alone, when it waits.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime without threads")
}

fn client(runtime: &Runtime, address: &EtcdAddress, model: &Arc<dyn Model>) -> Client {
    let _inside = runtime.enter();
    let mut client = Client::new(address.clone(), None).expect("members that nobody asks");
    client.model = Some(Arc::clone(model));
    client
}

impl Candidate {
    /// A candidate of a simulation.
    pub fn simulated(address: &EtcdAddress, model: &Arc<dyn Model>, id: String) -> Candidate {
        let runtime = runtime();
        let client = Arc::new(client(&runtime, address, model));
        let me = Leader { address: id.clone(), id };
        Candidate { client, background: Background::of(runtime), me }
    }

    /// Leads, unless another does.
    /// # Errors
    /// [`StoreError`]: etcd refuses.
    pub fn lead_now(&self) -> Result<Option<EtcdStore>, StoreError> {
        let keys = Keys::new(&self.client.address.prefix);
        let leads = async {
            match leader(&self.client, &keys).await? {
                Some(_) => Ok(None),
                None => try_lead(&self.client, &keys, &self.me).await,
            }
        };
        let runtime = self.background.get().expect("it is simulated");
        let Some(lease) = runtime.block_on(leads)? else { return Ok(None) };
        let background = Background::of(self::runtime());
        let candidate = Candidate { client: Arc::clone(&self.client), background, me: self.me.clone() };
        EtcdStore::opened(candidate, lease).map(Some)
    }
}

/// A [`Follower`] with the thread that it runs in.
#[derive(Debug)]
pub struct Followed {
    /// It.
    pub follower: Arc<Follower>,
    runtime: Runtime,
}

impl Followed {
    /// A follower of a simulation.
    pub fn new(address: &EtcdAddress, model: &Arc<dyn Model>) -> Followed {
        let runtime = runtime();
        let client = client(&runtime, address, model);
        let keys = Keys::new(&address.prefix);
        Followed { follower: Arc::new(Follower { client, keys, runtime: runtime.handle().clone() }), runtime }
    }

    /// A commit whose rows are all in place; none while they are not.
    /// # Errors
    /// [`StoreError`]: etcd refuses.
    pub fn position_now(&self) -> Result<Option<Position>, StoreError> {
        let (seal, position) = self.runtime.block_on(self.follower.seal(Duration::from_secs(1)))?;
        Ok(Some(position).filter(|_| seal.journal_bytes == 0))
    }
}

impl Watching {
    /// The next commit, if there is one.
    /// # Errors
    /// As of [`Watching::next`].
    pub fn next_now(&mut self) -> Result<Option<Commit>, StoreError> {
        loop {
            while let Some(event) = self.events.next() {
                if let Some(commit) = self.take(event)? {
                    return Ok(Some(commit));
                }
            }
            let Some(model) = &self.follower.client.model else { return Ok(None) };
            let (key, range_end) = self.follower.keys.followed();
            let events = model.events(&key, &range_end, self.revision + 1);
            if events.is_empty() {
                return Ok(None);
            }
            self.events = events.into_iter();
        }
    }
}

//! Requests to etcd: the next member is asked when one does not answer, for a limited time.
//!
//! A transaction may be sent again: all of ours compare the seal, which every commit and every new leader replaces. So a copy
//! that arrives later than that does nothing, and one that arrives before puts what is there.

use super::EtcdAddress;
use crate::store::StoreError;
use api::etcd::v3::kv_client::KvClient;
use api::etcd::v3::lease_client::LeaseClient;
use api::etcd::v3::request_op::Request;
use api::etcd::v3::watch_client::WatchClient;
use api::etcd::v3::watch_request::RequestUnion;
use api::etcd::v3::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest,
    TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use api::tls::Foreign;
use bytes::Bytes;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// How long one member may take for an answer before the next is asked. A new leader of etcd's own takes about a second.
const ANSWER: Duration = Duration::from_secs(2);

/// As [`ANSWER`] and [`PATIENCE`], for a page of rows: etcd counts all rows of the range, which may be all of ten million.
const PAGE_ANSWER: Duration = Duration::from_secs(10);
const PAGE_PATIENCE: Duration = Duration::from_secs(30);

/// Pause after all members failed.
const PAUSE: Duration = Duration::from_millis(100);

/// How long etcd as a whole may take before a controller gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);

/// The problem with an etcd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// No member answers, or they have no quorum.
    Unreachable,
    /// Its quota is used up, and the alarm NOSPACE set.
    NoSpace,
    /// It does not let us read or write there.
    Denied,
    /// A request is beyond its limits.
    TooLarge,
    /// Anything else.
    Other,
}

impl Fault {
    fn of(status: &Status) -> Fault {
        let says = |words: &str| status.message().contains(words);
        match status.code() {
            _ if says("database space exceeded") => Fault::NoSpace,
            _ if says("request is too large") || says("too many operations") => Fault::TooLarge,
            Code::PermissionDenied | Code::Unauthenticated => Fault::Denied,
            _ if says("user name is empty") => Fault::Denied,
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Fault::Unreachable,
            // The transport's own errors: a connection that broke.
            Code::Unknown | Code::Internal if std::error::Error::source(status).is_some() => Fault::Unreachable,
            _ => Fault::Other,
        }
    }

    pub(in crate::store) fn advice(self) -> &'static str {
        match self {
            Fault::Unreachable => {
                "check with `etcdctl endpoint health --cluster` that more than half of the members run; with TLS, check that [etcd] names the right ca, cert and key, and that they are valid. Nothing acknowledged is lost"
            }
            Fault::NoSpace => {
                "compact and defragment it, then `etcdctl alarm disarm`; enable automatic compaction (--auto-compaction-retention), or give it a larger --quota-backend-bytes. Nothing acknowledged is lost"
            }
            Fault::Denied => "let the user of our certificate read and write the keys under the prefix",
            Fault::TooLarge => {
                "a row or a group of rows is larger than it takes: start etcd with its defaults of --max-txn-ops and --max-request-bytes, or more"
            }
            Fault::Other => "see etcd's log",
        }
    }
}

/// The members, one of which is asked.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) address: EtcdAddress,
    channels: Vec<Channel>,
    tls: Option<Arc<Foreign>>,
    #[cfg(feature = "kit")]
    pub(super) model: Option<Arc<dyn super::Model>>,
    current: AtomicUsize,
    /// Transactions that a test lets through.
    #[cfg(feature = "kit")]
    pub(super) left: AtomicUsize,
}

impl Client {
    /// Needs a runtime around it, in which its connections live.
    pub(super) fn new(address: EtcdAddress, tls: Option<&Arc<Foreign>>) -> Result<Client, StoreError> {
        let channel = |member: &String| api::etcd::channel(member, tls, ANSWER);
        let channels: Result<Vec<Channel>, String> = address.members.iter().map(channel).collect();
        match channels {
            Ok(channels) => Ok(Client {
                address,
                channels,
                tls: tls.cloned(),
                #[cfg(feature = "kit")]
                model: None,
                current: AtomicUsize::new(0),
                #[cfg(feature = "kit")]
                left: AtomicUsize::new(usize::MAX),
            }),
            Err(what) => Err(StoreError::Etcd { store: address.to_string(), fault: Fault::Other, what }),
        }
    }

    pub(super) fn failed(&self, fault: Fault, what: impl Into<String>) -> StoreError {
        StoreError::Etcd { store: self.address.to_string(), fault, what: what.into() }
    }

    /// Asks one member after the other until one answers.
    async fn ask<T, F: Future<Output = Result<T, Status>>>(
        &self,
        patience: Duration,
        request: impl Fn(Channel) -> F,
    ) -> Result<T, StoreError> {
        self.ask_within(ANSWER, patience, request).await
    }

    /// As [`Client::ask`], where a member may take this long for an answer.
    async fn ask_within<T, F: Future<Output = Result<T, Status>>>(
        &self,
        answer_within: Duration,
        patience: Duration,
        request: impl Fn(Channel) -> F,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let mut n_failed = 0;
        loop {
            let at = self.current.load(Relaxed) % self.channels.len();
            let answer = tokio::time::timeout(answer_within.min(patience), request(self.channels[at].clone())).await;
            let status = match answer {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("it does not answer"),
            };
            let fault = Fault::of(&status);
            if fault != Fault::Unreachable || began.elapsed() >= patience {
                let member = &self.address.members[at];
                let refusal = match &self.tls {
                    Some(tls) if fault == Fault::Unreachable => api::etcd::why_refused(member, tls).await,
                    _ => None,
                };
                let mut what = format!("{member}: {}", refusal.unwrap_or_else(|| api::client::reason(&status)));
                if fault == Fault::Unreachable {
                    let _ = write!(what, " (tried for {:.1} s)", began.elapsed().as_secs_f32());
                }
                return Err(self.failed(fault, what));
            }
            tracing::debug!(member = self.address.members[at], %status, "a member of etcd does not answer");
            let _ = self.current.compare_exchange(at, (at + 1) % self.channels.len(), Relaxed, Relaxed);
            n_failed += 1;
            if n_failed % self.channels.len() == 0 {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a member that refuses at once is not asked without pause"
                )]
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        let patience = if request.limit > 0 { PAGE_PATIENCE } else { PATIENCE };
        self.range_within(request, patience).await
    }

    pub(super) async fn range_within(
        &self,
        request: RangeRequest,
        patience: Duration,
    ) -> Result<RangeResponse, StoreError> {
        #[cfg(feature = "kit")]
        if let Some(model) = &self.model {
            return self.ask(patience, async |_| Ok(model.range(&request)?)).await;
        }
        let ask = async |channel| Ok(kv(channel).range(request.clone()).await?.into_inner());
        let answer_within = if request.limit > 0 { PAGE_ANSWER } else { ANSWER };
        self.ask_within(answer_within, patience, ask).await
    }

    /// The events of a range from a revision on.
    pub(super) async fn watch(
        &self,
        (key, range_end): (Bytes, Bytes),
        start_revision: i64,
    ) -> Result<Streaming<WatchResponse>, StoreError> {
        let create = WatchCreateRequest { key, range_end, start_revision };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let ask = async |channel| {
            // The stream of requests stays open.
            let requests = tokio_stream::once(request.clone()).chain(tokio_stream::pending());
            let mut client = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
            Ok(client.watch(requests).await?.into_inner())
        };
        self.ask(PATIENCE, ask).await
    }

    /// A stream broke: the next member is asked.
    pub(super) fn broken(&self, status: &Status) -> StoreError {
        let at = self.current.fetch_add(1, Relaxed) % self.channels.len();
        let what = format!("{}: {}", self.address.members[at], api::client::reason(status));
        self.failed(Fault::of(status), what)
    }

    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        #[cfg(feature = "kit")]
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            return Err(self.failed(Fault::Other, "cut by the test"));
        }
        #[cfg(feature = "kit")]
        if let Some(model) = &self.model {
            return self.ask(PATIENCE, async |_| Ok(model.txn(&request)?)).await;
        }
        let ask = async |channel| Ok(kv(channel).txn(request.clone()).await?.into_inner());
        if matches!(&request.success[..], [RequestOp { request: Some(Request::RequestRange(_)) }]) {
            return self.ask_within(PAGE_ANSWER, PAGE_PATIENCE, ask).await;
        }
        self.ask(PATIENCE, ask).await
    }

    /// A new lease.
    pub(super) async fn grant(&self, ttl: Duration) -> Result<i64, StoreError> {
        #[cfg(feature = "kit")]
        if let Some(model) = &self.model {
            return self.ask(PATIENCE, async |_| Ok(model.grant(ttl)?)).await;
        }
        let request = LeaseGrantRequest { ttl: ttl.as_secs() as i64 };
        let ask = async |channel| Ok(LeaseClient::new(channel).lease_grant(request).await?.into_inner());
        Ok(self.ask(PATIENCE, ask).await?.id)
    }

    pub(super) async fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        let request = LeaseRevokeRequest { id: lease };
        #[cfg(feature = "kit")]
        if let Some(model) = &self.model {
            return self.ask(PATIENCE, async |_| Ok(model.revoke(lease)?)).await;
        }
        let ask = async |channel| LeaseClient::new(channel).lease_revoke(request).await.map(drop);
        self.ask(Duration::from_millis(500), ask).await
    }

    /// Extends a lease. False: there is none any more.
    pub(super) async fn keep_alive(&self, lease: i64, patience: Duration) -> Result<bool, StoreError> {
        let ask = async |channel| {
            let requests = tokio_stream::once(LeaseKeepAliveRequest { id: lease });
            let mut answers = LeaseClient::new(channel).lease_keep_alive(requests).await?.into_inner();
            let answer = answers.message().await?;
            Ok(answer.ok_or_else(|| Status::unavailable("no answer to a keep-alive"))?.ttl > 0)
        };
        self.ask(patience, ask).await
    }
}

/// A page of rows may be larger than tonic's limit; etcd's own limits bound it.
fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(usize::MAX)
}

//! The northbound service: converts requests in the operator's terms to [`Change`]s, and back.

mod accept;
mod drain;
mod lists;
mod log;
mod looking;
mod relayed;
mod replace;
mod streams;
mod verify;

use crate::core::change::{Change, Refusal, State};
use crate::core::groups::{self};
use crate::core::owner::Seen;
use crate::core::summary::summary;
use crate::shell::job::{Ended, Job, Jobs};
use crate::shell::relay::Relays;
use crate::shell::shared::Shared;
use crate::shell::telemetry::Telemetry;
use crate::shell::trail;
use crate::wire::status::{status_of, waits};
use crate::wire::{end, listed};
use api::audit::Audit;
use api::crash::step;
use api::gate::Peer;
use api::limits::Answering;
use api::seam::{Mistake, mistaken, now};
use api::v1;
use api::v1::northbound_server::Northbound;
use drain::What;
use fib::topology::End;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// Most names of a page, and the default.
const MAX_PAGE: usize = 10_000;
const DEFAULT_PAGE: usize = 1_000;

/// A row of an answer in memory, with its texts, and encoded.
const ROW_BYTES: usize = 400;

#[derive(Clone)]
pub(crate) struct North {
    pub(crate) jobs: Jobs,
    pub(crate) shared: Arc<Shared>,
    /// The configured delivery of multicasts.
    pub(crate) groups: Arc<groups::Settings>,
    /// Questions to switches that are not answered yet.
    pub(crate) relays: Arc<Relays>,
    /// Locks for work that is done one at a time.
    pub(crate) alone: Arc<Alone>,
    pub(crate) max_names: usize,
    pub(crate) audit: Arc<Audit>,
    pub(crate) telemetry: Option<Arc<Telemetry>>,
}

/// Locks for work that one request does at a time.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    /// Held while all names are looked at.
    scanning: tokio::sync::Mutex<()>,
    /// Held while a complete list of names is received.
    replacing: Arc<tokio::sync::Mutex<()>>,
    /// Held while something is drained.
    draining: tokio::sync::Mutex<()>,
}

/// How long a question may wait until this controller knows what another has committed.
const READ_PATIENCE: Duration = Duration::from_secs(1);

type Answer<T> = Result<Response<T>, Status>;
type StreamOf<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl North {
    /// Makes a change. Records it before answering.
    async fn change(&self, peer: &Peer, change: Change) -> Result<v1::Changed, Status> {
        let (what, detail) = summary(&change);
        let changed = self.make(what, change).await;
        let end = changed.as_ref().map(|changed| (changed.changed, changed.unchanged)).map_err(Status::message);
        if mistaken(Mistake::AuditedAfterAnswer)
            && let Ok(counts) = end
        {
            let (audit, peer) = (Arc::clone(&self.audit), peer.clone());
            tokio::spawn(async move { audit.change(&peer, what, &detail, Ok(counts)) });
        } else {
            self.audit.change(peer, what, &detail, end);
        }
        step("request.answer", || changed)
    }

    async fn make(&self, what: &'static str, change: Change) -> Result<v1::Changed, Status> {
        let trace = self.telemetry.as_ref().and_then(|telemetry| telemetry.begin(what));
        let input = |reply| match trace {
            Some(trace) => Job::Traced { change, reply, trace },
            None => Job::change(change, reply),
        };
        let answer = self.jobs.answer(input).await.map_err(|Ended| status_of(&Refusal::Stopping))?;
        let changed = answer.map_err(|e| self.refused(&e))?;
        Ok(v1::Changed { changed: changed.changed, unchanged: changed.unchanged, ..v1::Changed::default() })
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Status> {
        self.read_seen(|state, _| read(state)).await
    }

    /// As [`North::read`], including what switches see.
    pub(crate) async fn read_seen<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State, &mut Seen) -> T + Send + 'static,
    ) -> Result<T, Status> {
        // While etcd does not answer, what is known here is better than nothing.
        let _ = self.shared.lead.up_to_date(READ_PATIENCE).await;
        self.shared.reads.ask(&self.jobs, read).await.ok_or_else(|| status_of(&Refusal::Stopping))
    }

    /// A refusal as a gRPC status. A switch that waits to be accepted is told apart from an unknown one.
    pub(crate) fn refused(&self, refusal: &Refusal) -> Status {
        let mut status = status_of(refusal);
        if let Some(switch) =
            refusal.unknown_switch().filter(|switch| self.shared.known.pending.lock().waits(switch, now()))
        {
            let metadata = std::mem::take(status.metadata_mut());
            status = Status::with_metadata(status.code(), waits(switch), metadata);
        }
        status
    }

    /// Reserves room for an answer before it is made: for this many rows, or for as many as `size` says there are.
    fn reserve<T>(&self, request: &Request<T>, rows: usize, size: &AtomicU64) -> Result<(), Status> {
        let there = usize::try_from(size.load(Relaxed)).unwrap_or(usize::MAX);
        Answering::reserve(request, rows.min(there).saturating_add(1).saturating_mul(ROW_BYTES))
    }

    async fn page(&self, after: String, limit: usize, learnt: bool) -> Result<v1::NamePage, Status> {
        let page = self.read(move |state| {
            let after = if after.is_empty() { None } else { Some(state.parse(&after)?) };
            let rib = state.network.rib();
            let mut names: Vec<v1::NameRecord> = if learnt {
                let at = |name| rib.get(name).map(|attachment| listed(state, name, &attachment));
                state.hosts.learnt.after(after.as_ref()).take(limit + 1).filter_map(at).collect()
            } else {
                let page = rib.page(after.as_ref(), limit + 1);
                page.map(|(name, attachment)| listed(state, &name, &attachment)).collect()
            };
            let more = names.len() > limit;
            names.truncate(limit);
            Ok(v1::NamePage { names, more })
        });
        page.await?.map_err(|e: Refusal| status_of(&e))
    }
}

#[tonic::async_trait]
impl Northbound for North {
    async fn get_status(&self, _: Request<v1::GetStatusRequest>) -> Answer<v1::Status> {
        let settings = self.read(|state| state.network.settings().clone()).await?;
        let (shared, sizes) = (&self.shared, &self.shared.sizes);
        Ok(Response::new(v1::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name_kind: settings.kind.to_string(),
            value_mode: settings.mode.to_string(),
            hash: settings.family.to_string(),
            names: sizes.names.load(Relaxed),
            max_names: self.max_names as u64,
            switches: sizes.switches.load(Relaxed),
            connected: shared.connected().len() as u64,
            hosts: sizes.hosts.load(Relaxed),
            links: sizes.links.load(Relaxed),
            changes: shared.totals.changes.load(Relaxed),
            transactions: shared.totals.transactions.load(Relaxed),
            messages: shared.totals.messages.load(Relaxed),
            message_bytes: shared.totals.message_bytes.load(Relaxed),
            resyncs: shared.totals.resyncs.load(Relaxed),
            uptime_seconds: shared.started.elapsed().as_secs_f64(),
            pending_pushes: shared.progress.pending_pushes.load(Relaxed),
            leader: shared.lead.leader().map(|leader| leader.address).unwrap_or_default(),
            drained: shared.lead.drained.load(Relaxed),
            position: shared.lead.followed_to(),
            last_event: shared.events.last(),
        }))
    }

    async fn put_names(&self, request: Request<v1::PutNamesRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        self.change(&peer, request.into_inner().try_into()?).await.map(Response::new)
    }

    async fn remove_names(&self, request: Request<v1::RemoveNamesRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        self.change(&peer, request.into_inner().into()).await.map(Response::new)
    }

    async fn get_name(&self, request: Request<v1::GetNameRequest>) -> Answer<v1::NameRecord> {
        let v1::GetNameRequest { name: text, ip } = request.into_inner();
        let ip: Option<IpAddr> = match &*ip {
            ip if !text.is_empty() || ip.is_empty() => None,
            ip => Some(ip.parse().map_err(|_| Status::invalid_argument("the address is not an IP address"))?),
        };
        let record = self.read(move |state| {
            let rib = state.network.rib();
            let name = match ip {
                Some(ip) => state.holder(ip).ok_or(Refusal::UnknownAddress { ip })?,
                None => state.find(&text)?,
            };
            let attachment = rib.get(&name).ok_or(Refusal::UnknownName { name: text })?;
            Ok(listed(state, &name, &attachment))
        });
        record.await?.map(Response::new).map_err(|e: Refusal| status_of(&e))
    }

    async fn list_names(&self, request: Request<v1::ListNamesRequest>) -> Answer<v1::NamePage> {
        let asked = request.get_ref().limit as usize;
        self.reserve(&request, if asked == 0 { DEFAULT_PAGE } else { asked.min(MAX_PAGE) }, &self.shared.sizes.names)?;
        let v1::ListNamesRequest { after, limit, learnt, prefix, host, ip } = request.into_inner();
        let limit = if limit == 0 { DEFAULT_PAGE } else { (limit as usize).min(MAX_PAGE) };
        let page = match (&*prefix, &*host, learnt) {
            ("", "", _) if ip.is_empty() => self.page(after, limit, learnt).await,
            ("", _, false) => self.names_where(host, &ip, after, limit).await,
            (_, "", false) if after.is_empty() && ip.is_empty() => self.search(prefix, limit).await,
            _ => Err(Status::invalid_argument(
                "ask for a prefix, for a host and addresses, or for learnt names, not for two of them; a search by prefix has one page",
            )),
        };
        page.map(Response::new)
    }

    async fn trace(&self, request: Request<v1::TraceRequest>) -> Answer<v1::TraceReply> {
        self.paths(request.into_inner()).await.map(Response::new)
    }

    async fn rekey(&self, request: Request<v1::RekeyRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let rekeyed = self.jobs.answer(Job::rekey).await.unwrap_or(Err(Refusal::Stopping));
        let rekeyed = rekeyed.map_err(|refusal| status_of(&refusal));
        let end = rekeyed.as_ref().map(|changed| (changed.changed, changed.unchanged)).map_err(Status::message);
        self.audit.change(&peer, "rekey", "another hash key", end);
        rekeyed.map(|changed| Response::new(v1::Changed { changed: changed.changed, ..v1::Changed::default() }))
    }

    type BackupStream = StreamOf<v1::BackupPart>;

    /// Recorded when it begins: the hash key leaves the controller with the first parts.
    async fn backup(&self, request: Request<v1::BackupRequest>) -> Answer<Self::BackupStream> {
        self.copy(request).await
    }

    type ImportNamesStream = StreamOf<v1::ImportProgress>;

    async fn import_names(&self, request: Request<Streaming<v1::NameBatch>>) -> Answer<Self::ImportNamesStream> {
        self.import(request).await
    }

    type ReplaceNamesStream = StreamOf<v1::NameDifferences>;

    async fn replace_names(
        &self,
        request: Request<Streaming<v1::ReplaceNamesRequest>>,
    ) -> Answer<Self::ReplaceNamesStream> {
        let peer = Peer::of(&request)?;
        Ok(self.replace(peer, request.into_inner()))
    }

    type ExportNamesStream = StreamOf<v1::NameBatch>;

    async fn export_names(&self, request: Request<v1::ExportNamesRequest>) -> Answer<Self::ExportNamesStream> {
        self.export(request).await
    }

    async fn add_switch(&self, request: Request<v1::AddSwitchRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        self.change(&peer, request.into_inner().into()).await.map(Response::new)
    }

    async fn add_switches(&self, request: Request<v1::AddSwitchesRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        self.change(&peer, Change::AddSwitches { names: request.into_inner().names }).await.map(Response::new)
    }

    async fn remove_switch(&self, request: Request<v1::RemoveSwitchRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        self.change(&peer, request.into_inner().into()).await.map(Response::new)
    }

    async fn list_switches(&self, request: Request<v1::ListSwitchesRequest>) -> Answer<v1::SwitchList> {
        self.switches(request).await
    }

    async fn get_switch(&self, request: Request<v1::GetSwitchRequest>) -> Answer<v1::SwitchDetails> {
        self.reserve(&request, usize::MAX, &self.shared.sizes.hosts)?;
        self.details(request.into_inner().name).await.map(Response::new)
    }

    type WatchStream = StreamOf<v1::Event>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        self.events(request.into_inner(), std::future::pending())
    }

    async fn accept_switches(&self, request: Request<v1::AcceptSwitchesRequest>) -> Answer<v1::Changed> {
        self.accept_some_switches(request).await
    }

    async fn set_drained(&self, request: Request<v1::SetDrainedRequest>) -> Answer<v1::SetDrainedReply> {
        self.drain_all(request).await
    }

    async fn show_audit(&self, request: Request<v1::ShowAuditRequest>) -> Answer<v1::AuditPage> {
        Answering::reserve(&request, 2 * ROW_BYTES * trail::limit_of(request.get_ref()))?;
        trail::page(self.audit.path().to_owned(), request.into_inner()).await.map(Response::new)
    }

    async fn verify_switch(&self, request: Request<v1::VerifySwitchRequest>) -> Answer<v1::VerifySwitchReply> {
        self.verify(&request.into_inner().name).await.map(Response::new)
    }

    async fn get_log(&self, request: Request<v1::GetLogRequest>) -> Answer<v1::LogState> {
        self.log(&request.into_inner().switch).await.map(Response::new)
    }

    async fn set_log(&self, request: Request<v1::SetLogRequest>) -> Answer<v1::LogState> {
        let peer = Peer::of(&request)?;
        let (north, request) = (self.clone(), request.into_inner());
        // Runs to its end, with its record in the audit trail, even if the caller is gone.
        let changed = tokio::spawn(async move { north.change_log(&peer, request).await }).await;
        let changed = changed.unwrap_or_else(|_| {
            Err(Status::internal("the change ended before it was recorded; see the log of the controller"))
        });
        changed.map(Response::new)
    }

    async fn add_host(&self, request: Request<v1::Host>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let hosts = v1::HostList { hosts: vec![request.into_inner()], ..v1::HostList::default() };
        self.change(&peer, hosts.try_into()?).await.map(Response::new)
    }

    async fn add_hosts(&self, request: Request<v1::HostList>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        self.change(&peer, request.into_inner().try_into()?).await.map(Response::new)
    }

    async fn rename_host(&self, request: Request<v1::RenameHostRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        self.change(&peer, request.into_inner().into()).await.map(Response::new)
    }

    async fn remove_host(&self, request: Request<v1::RemoveHostRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        self.change(&peer, request.into_inner().into()).await.map(Response::new)
    }

    async fn list_hosts(&self, request: Request<v1::ListHostsRequest>) -> Answer<v1::HostList> {
        self.hosts(request).await
    }

    async fn list_groups(&self, request: Request<v1::ListGroupsRequest>) -> Answer<v1::GroupList> {
        self.groups_of(request).await
    }

    async fn accept_hosts(&self, request: Request<v1::AcceptHostsRequest>) -> Answer<v1::Changed> {
        self.accept_some_hosts(request).await
    }

    async fn forget_host(&self, request: Request<v1::ForgetHostRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let host = request.into_inner().name;
        let names = self.read(move |state| {
            let end = state.hosts.end(&host)?;
            Ok(state.hosts.learnt.at(end).map(ToString::to_string).collect())
        });
        let names = names.await?.map_err(|refusal: Refusal| status_of(&refusal))?;
        // A switch that was removed meanwhile is forgotten as well.
        self.change(&peer, Change::RemoveNames { names, ignore_missing: true }).await.map(Response::new)
    }

    async fn add_link(&self, request: Request<v1::Link>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        // An operator who adds a link declares it.
        let link = v1::Link { found: false, ..request.into_inner() };
        self.change(&peer, link.try_into()?).await.map(Response::new)
    }

    async fn add_links(&self, request: Request<v1::LinkList>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let mut list = request.into_inner();
        list.links.iter_mut().for_each(|link| link.found = false);
        self.change(&peer, list.try_into()?).await.map(Response::new)
    }

    async fn set_link(&self, request: Request<v1::SetLinkRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let (place, is_drain) = (end(request.end.clone())?, request.raised.is_some());
        let is_found = move |state: &State| {
            let end = End { node: state.node(&place.switch).ok()?, port: place.port };
            Some(state.network.topology().link(end).ok()?.found)
        };
        let was_found = self.read(is_found).await?.unwrap_or(false);
        let changed = self.change(&peer, request.try_into()?).await?;
        // A link whose length alone is raised for a drain stays as it was found.
        let declared = u64::from(was_found && changed.changed > 0 && !is_drain);
        Ok(Response::new(v1::Changed { declared, ..changed }))
    }

    async fn drain_link(&self, request: Request<v1::DrainLinkRequest>) -> Answer<v1::Drained> {
        let peer = Peer::of(&request)?;
        let v1::DrainLinkRequest { end: one, undo } = request.into_inner();
        self.drain(&peer, What::Link(end(one)?), undo).await.map(Response::new)
    }

    async fn drain_switch(&self, request: Request<v1::DrainSwitchRequest>) -> Answer<v1::Drained> {
        let peer = Peer::of(&request)?;
        let v1::DrainSwitchRequest { name, undo } = request.into_inner();
        self.drain(&peer, What::Switch(name), undo).await.map(Response::new)
    }

    async fn remove_link(&self, request: Request<v1::RemoveLinkRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        self.change(&peer, request.into_inner().try_into()?).await.map(Response::new)
    }

    async fn list_links(&self, request: Request<v1::ListLinksRequest>) -> Answer<v1::LinkList> {
        self.links(request).await
    }

    async fn accept_links(&self, request: Request<v1::AcceptLinksRequest>) -> Answer<v1::Changed> {
        self.accept_all_links(request).await
    }
}

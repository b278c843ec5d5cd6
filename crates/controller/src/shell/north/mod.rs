//! The northbound service: converts requests in the operator's terms to [`Change`]s, and back.

mod drain;
mod log;
mod looking;
mod relayed;
mod replace;
mod verify;

use crate::core::change::{Change, Place, Refusal, State, raised};
use crate::core::groups::{self, Mdns, Unknown};
use crate::core::learning::{Decided, MAX_UNKNOWN};
use crate::core::subscriptions::Asked;
use crate::core::summary::summary;
use crate::shell::job::{Ended, Input, Jobs, Task};
use crate::shell::north::drain::What;
use crate::shell::relay::Relays;
use crate::shell::shared::Shared;
use crate::shell::telemetry::Telemetry;
use crate::shell::trail;
use crate::wire::status::{status_of, waits};
use crate::wire::{end, host, listed, switch, weight_of};
use api::audit::Audit;
use api::crash::step;
use api::gate::Peer;
use api::limits::Answering;
use api::seam::{Mistake, mistaken, now};
use api::v1;
use api::v1::northbound_server::Northbound;
use fib::network::NetworkError;
use fib::topology::{End, Wanted, check_weight};
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
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
    /// For whom multicasts are, as configured.
    pub(crate) groups: Arc<groups::Settings>,
    /// What is asked of switches.
    pub(crate) relays: Arc<Relays>,
    /// Held by what is done one at a time.
    pub(crate) alone: Arc<Alone>,
    pub(crate) max_names: usize,
    pub(crate) audit: Arc<Audit>,
    pub(crate) telemetry: Option<Arc<Telemetry>>,
}

/// What is done by one request at a time.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    /// Held while all names are looked at.
    scanning: tokio::sync::Mutex<()>,
    /// Held while names that are to be the only ones come.
    replacing: Arc<tokio::sync::Mutex<()>>,
    /// Held while something is drained.
    draining: tokio::sync::Mutex<()>,
}

/// How long a question may wait until this controller knows what another has committed.
const READ_PATIENCE: Duration = Duration::from_secs(1);

type Answer<T> = Result<Response<T>, Status>;
type StreamOf<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl North {
    /// Makes a change. It is recorded before it is answered.
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
            Some(trace) => Input::Traced { change, reply, trace },
            None => Input::Change { change, reply },
        };
        let answer = self.jobs.answer(input).await.map_err(|Ended| status_of(&Refusal::Stopping))?;
        let changed = answer.map_err(|e| self.refused(&e))?;
        Ok(v1::Changed { changed: changed.changed, unchanged: changed.unchanged, ..v1::Changed::default() })
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
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

    /// Reserves room for an answer of so many rows, of which there are as many as a size says, before it is made.
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
        let rekeyed = self.jobs.answer(|reply| Task::Rekey { reply }).await.unwrap_or(Err(Refusal::Stopping));
        let rekeyed = rekeyed.map_err(|refusal| status_of(&refusal));
        let end = rekeyed.as_ref().map(|changed| (changed.changed, changed.unchanged)).map_err(Status::message);
        self.audit.change(&peer, "rekey", "another hash key", end);
        rekeyed.map(|changed| Response::new(v1::Changed { changed: changed.changed, ..v1::Changed::default() }))
    }

    type BackupStream = StreamOf<v1::BackupPart>;

    /// Recorded when it begins: the hash key leaves the controller with the first parts.
    async fn backup(&self, request: Request<v1::BackupRequest>) -> Answer<Self::BackupStream> {
        let peer = Peer::of(&request)?;
        let begun = self.jobs.answer(|reply| Task::Backup { reply }).await.unwrap_or(Err(Refusal::Stopping));
        let begun = begun.map_err(|refusal| status_of(&refusal));
        let end = begun.as_ref().map(|_| (0, 0)).map_err(Status::message);
        self.audit.change(&peer, "backup", "the whole store, with the hash key", end);
        let mut made = begun?;
        let (parts, answers) = mpsc::channel(1);
        let jobs = self.jobs.clone();
        tokio::spawn(async move {
            while let Some(part) = made.recv().await {
                let part = part.map(v1::BackupPart::from).map_err(|refusal| status_of(&refusal));
                if parts.send(part).await.is_err() {
                    made.close();
                }
                let _ = jobs.wake();
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    type ImportNamesStream = StreamOf<v1::ImportProgress>;

    async fn import_names(&self, request: Request<Streaming<v1::NameBatch>>) -> Answer<Self::ImportNamesStream> {
        let peer = Peer::of(&request)?;
        let mut batches = request.into_inner();
        let north = self.clone();
        let (progress, answers) = mpsc::channel(4);
        // A batch is read while the one before it is committed.
        let (read, mut changes) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(batch) = batches.next().await {
                let change = batch.and_then(|batch| Ok((batch.names.len() as u64, Change::try_from(batch)?)));
                let failed = change.is_err();
                if read.send(change).await.is_err() || failed {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            let mut committed = 0;
            while let Some(change) = changes.recv().await {
                let imported = async {
                    let (n_names, change) = change?;
                    committed += n_names;
                    let changed = north.change(&peer, change).await?;
                    Ok::<_, Status>(v1::ImportProgress { committed, changed: Some(changed) })
                };
                let imported = imported.await;
                let failed = imported.is_err();
                if progress.send(imported).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
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
        self.reserve(&request, 4 * MAX_PAGE, &self.shared.sizes.names)?;
        let north = self.clone();
        let (pages, answers) = mpsc::channel(2);
        tokio::spawn(async move {
            let mut after = String::new();
            loop {
                let page = north.page(after.clone(), MAX_PAGE, false).await;
                let more = page.as_ref().is_ok_and(|page| page.more);
                if let Some(last) = page.as_ref().ok().and_then(|page| page.names.last()) {
                    after.clone_from(&last.name);
                }
                let batch = page.map(|page| v1::NameBatch { names: page.names });
                if pages.send(batch).await.is_err() || !more {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
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
        self.reserve(&request, usize::MAX, &self.shared.sizes.switches)?;
        let shared = Arc::clone(&self.shared);
        let (mut switches, pending) = self
            .read(move |state| {
                let mut hosts = BTreeMap::new();
                for (_, end) in state.hosts.iter() {
                    *hosts.entry(end.node).or_insert(0) += 1;
                }
                let sharing = state.network.sharing();
                let topology = state.network.topology();
                let switch =
                    |(id, node)| switch(&state.network, id, node, hosts.get(&id).copied().unwrap_or(0), &sharing);
                let names: HashSet<&str> = topology.nodes().map(|(_, node)| &*node.name).collect();
                let pending = shared.known.pending.lock().list(|name| names.contains(name), now());
                (topology.nodes().map(switch).collect::<Vec<_>>(), pending)
            })
            .await?;
        let connected: BTreeMap<u32, _> = self.shared.connected().into_iter().map(|c| (c.node.0, c)).collect();
        for switch in &mut switches {
            match connected.get(&switch.id) {
                Some(connected) => self.fill(switch, connected),
                None => self.fill_from_elsewhere(switch),
            }
        }
        Ok(Response::new(v1::SwitchList {
            switches,
            pending,
            troubles: self.shared.known.duplicates.lock().troubles(now()),
        }))
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
        let peer = Peer::of(&request)?;
        let mut names = request.into_inner().names;
        let shared = Arc::clone(&self.shared);
        let pending = self.read(move |state| {
            shared.known.pending.lock().list(|name| state.network.topology().node_by_name(name).is_some(), now())
        });
        let pending: Vec<String> = pending.await?.into_iter().map(|switch| switch.name).collect();
        if let Some(name) = names.iter().find(|name| !pending.contains(name)) {
            let why = format!(
                "no switch `{}` waits to be accepted; `fibula switch pending` lists those that do, and `fibula switch add` adds one \
                 in advance",
                fib::name::clip(name)
            );
            return Err(Status::not_found(why));
        }
        if names.is_empty() {
            names = pending;
        }
        self.change(&peer, Change::AddSwitches { names }).await.map(Response::new)
    }

    async fn set_drained(&self, request: Request<v1::SetDrainedRequest>) -> Answer<v1::SetDrainedReply> {
        let peer = Peer::of(&request)?;
        let drained = request.into_inner().drained;
        let result = if drained && !self.shared.lead.has_others() {
            Err(
                "there is no other controller for the switches, because the store is a file: stop this one instead, or move the store to etcd with `fibula store copy`",
            )
        } else {
            self.shared.lead.drained.store(drained, Relaxed);
            Ok(self.shared.sessions().len() as u64)
        };
        if result.is_ok() && drained {
            self.shared.end_sessions();
        }
        let what = if drained { "drain" } else { "resume" };
        self.audit.change(&peer, what, "", result.map(|_| (1, 0)));
        let switches = result.map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::SetDrainedReply { switches }))
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
        // To its end, with its line in the audit trail, even if nobody waits for it any more.
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
        self.reserve(&request, usize::MAX, &self.shared.sizes.hosts)?;
        let shared = Arc::clone(&self.shared);
        let list = self.read(move |state| {
            let latest = state.hosts.learnt.latest();
            let hosts = state.hosts.iter().map(|at| {
                let (latest_ms, name) = latest.get(&at.1).map_or((0, None), |(ms, name)| (*ms, Some(name)));
                v1::Host { latest: name.map(ToString::to_string).unwrap_or_default(), latest_ms, ..host(state, at) }
            });
            let hosts = hosts.collect();
            let (unknown, _) = shared.known.learning.lock().unknown(state, now(), MAX_UNKNOWN);
            let troubles = shared.known.learning.lock().troubles(now());
            v1::HostList { hosts, unknown, troubles, conflicts: shared.known.learning.lock().conflicts(state, now()) }
        });
        Ok(Response::new(list.await?))
    }

    async fn list_groups(&self, request: Request<v1::ListGroupsRequest>) -> Answer<v1::GroupList> {
        self.reserve(&request, Asked::limit(request.get_ref(), MAX_PAGE), &self.shared.sizes.names)?;
        let ask = request.into_inner();
        let limit = Asked::limit(&ask, MAX_PAGE);
        let shared = Arc::clone(&self.shared);
        let settings = Arc::clone(&self.groups);
        let list = self.read(move |state| {
            let asked = Asked::read(state, &ask).map_err(|refusal| status_of(&refusal))?;
            let (subscribed, more) = shared.known.subscriptions.lock().page(state, &asked, limit);
            let rib = state.network.rib();
            rib.watch(&settings.tenants);
            let most = settings.max_names as usize;
            let crowded = settings.tenants.iter().copied().filter(|tenant| rib.len_of(*tenant) > most).collect();
            let tenant = ask.tenant.filter(|tenant| settings.tenants.contains(tenant));
            let members = tenant.and_then(|tenant| rib.names_of(tenant, most)?.ok());
            Ok::<_, Status>(v1::GroupList {
                subscribed,
                tenants: settings.tenants.iter().copied().collect(),
                snooping: settings.snooping,
                floods_unknown: settings.unknown_multicast == Unknown::Flood,
                mdns_for_all: settings.mdns == Mdns::All,
                more,
                crowded,
                members: members.map(|names| shared.known.subscriptions.lock().members(&names)),
            })
        });
        list.await?.map(Response::new)
    }

    async fn accept_hosts(&self, request: Request<v1::AcceptHostsRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let texts = request.into_inner().names;
        let shared = Arc::clone(&self.shared);
        let decided = self.read(move |state| {
            let names = texts.iter().map(|text| state.parse(text)).collect::<Result<Vec<_>, _>>();
            let names = names.map_err(|refusal| status_of(&refusal))?;
            shared.known.learning.lock().accept(state, &names, now()).map_err(Status::not_found)
        });
        let Decided { hosts, records, left, .. } = decided.await??;
        if !hosts.is_empty() {
            self.change(&peer, Change::AddHosts { hosts }).await?;
        }
        let at_ms = api::clock::unix_ms();
        let changed = self.change(&peer, Change::Learn { records, at_ms, more: Vec::new() }).await?;
        // What is above the quotas is listed still.
        Ok(Response::new(v1::Changed { left, ..changed }))
    }

    async fn forget_host(&self, request: Request<v1::ForgetHostRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let host = request.into_inner().name;
        let names = self.read(move |state| {
            let end = state.hosts.end(&host)?;
            Ok(state.hosts.learnt.at(end).map(ToString::to_string).collect())
        });
        let names = names.await?.map_err(|refusal: Refusal| status_of(&refusal))?;
        // One that was removed meanwhile is forgotten as well.
        self.change(&peer, Change::RemoveNames { names, ignore_missing: true }).await.map(Response::new)
    }

    async fn add_link(&self, request: Request<v1::Link>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        // Whoever adds a link declares it.
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
        self.reserve(&request, usize::MAX, &self.shared.sizes.links)?;
        let (shared, north) = (Arc::clone(&self.shared), self.clone());
        let list = self.read(move |state| {
            let end = |end| {
                let Place { switch, port } = state.place(end);
                Some(v1::LinkEnd { switch, port: port.0.into() })
            };
            let link = |link: &fib::topology::Link| {
                let fib::topology::Link { a, b, cost, weight, up, cut, found, .. } = *link;
                let (weight, raised, drained) = (Some(weight.into()), raised(link), link.raised > 0);
                let (a, b) = (end(a), end(b));
                let mut link = v1::Link { a, b, cost, raised, up, cut, load: None, weight, drained, found };
                link.load = north.load(&link, |name| state.network.topology().node_by_name(name));
                link
            };
            let topology = state.network.topology();
            let found = shared.known.trunks.lock().found(&state.network);
            let link_found = |(a, b)| v1::Link {
                a: end(a),
                b: end(b),
                cost: 1,
                weight: Some(1),
                found: true,
                ..v1::Link::default()
            };
            let found = found.into_iter().map(link_found);
            v1::LinkList {
                links: topology.links().map(link).collect(),
                found: found.collect(),
                troubles: shared.known.trunks.lock().troubles(state, now()),
            }
        });
        Ok(Response::new(list.await?))
    }

    async fn accept_links(&self, request: Request<v1::AcceptLinksRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let v1::AcceptLinksRequest { cost, weight } = request.into_inner();
        let wanted = Wanted { cost: cost.max(1), weight: weight_of(weight), up: true, found: true };
        // Also where there is nothing to add.
        check_weight(wanted.weight).map_err(|error| status_of(&NetworkError::from(error).into()))?;
        let shared = Arc::clone(&self.shared);
        let found = self.read(move |state| {
            let link = |(a, b)| (state.place(a), state.place(b), wanted);
            shared.known.trunks.lock().found(&state.network).into_iter().map(link).collect()
        });
        self.change(&peer, Change::AddLinks { links: found.await? }).await.map(Response::new)
    }
}

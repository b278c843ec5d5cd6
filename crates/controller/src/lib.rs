//! The controller: a thin shell around [`fib::network`], with a durable store and northbound and southbound services.
//!
//! ```text
//! operators ─ north ─┐           ┌─ store (commit) ─ then ─┐
//!                    ├─ writer ──┤                         ├─ push ─ session ─ south ─ switches
//! switches ── south ─┘ (1 thread)└─ fib::network (effects) ┘   (phases)  (bounded)
//!                        ↑
//!          follow: what another controller commits, while that one leads
//! ```
//! Promises: a change is answered only after it is committed. A switch is sent only what is committed. A restarted
//! controller sends a switch only what it lacks. A slow or absent switch delays nothing by more than one phase timeout.
//! Limits: one controller at a time commits to a store (the lock of its file, or a lease in etcd); the RIB is in memory.

mod audit;
mod away;
mod backup;
pub mod change;
pub mod config;
mod counters;
mod elsewhere;
mod events;
mod follow;
pub mod groups;
mod history;
pub mod hosts;
#[cfg(feature = "kit")]
pub mod kit;
pub mod learning;
pub mod learnt;
mod log;
mod newcomers;
mod north;
mod push;
mod reads;
mod relay;
mod reload;
mod session;
mod shared;
mod south;
mod status;
pub mod store;
mod subscriptions;
mod telemetry;
mod told;
mod trace;
mod trunks;
mod twins;
mod verify;
mod web;
mod writer;

pub use events::KINDS as EVENT_KINDS;

use crate::change::State;
use crate::config::{Config, Place};
use crate::follow::Begun;
use crate::hosts::{HOST_ROW, HostError, Hosts};
use crate::learnt::LEARNT_ROW;
use crate::shared::Shared;
use crate::store::{NOTHING, RowChange, SqliteStore, Store, StoreError};
use crate::telemetry::Telemetry;
use crate::writer::{Job, Writer};
use api::MAX_MESSAGE_BYTES;
use api::address::Address;
use api::audit::Audit;
use api::gate::{Gate, GateLayer};
use api::limits::{Guard, Limits, raise_descriptors};
use api::tls::{Tls, TlsError};
use api::v1::captures_server::CapturesServer;
use api::v1::flows_server::FlowsServer;
use api::v1::northbound_server::NorthboundServer;
use api::v1::southbound_server::SouthboundServer;
use fib::network::{Network, NetworkError, RestoreError, Settings};
use lookup::hash::SecretKey;
use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tonic::transport::Server;

/// Jobs that may wait for the writer; requests beyond wait in their connections.
const QUEUED_JOBS: usize = 4096;

/// Lists of messages that may wait for the pusher; beyond, the writer waits.
const QUEUED_PUSHES: usize = 64;

/// How often it is looked for learnt names that have been silent for too long.
const FORGET_EVERY: Duration = Duration::from_secs(5);

/// How often changes of names are an event.
const SAY_NAMES_EVERY: Duration = Duration::from_secs(1);

/// How long to wait for a store that is in use.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// How often an idle connection is probed, and how long the answer may take.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store does not hold a network, or not one of this configuration.
    #[error("the store does not fit the configuration: {0}")]
    Restore(#[from] RestoreError),
    /// This controller would commit what the one that leads does not, or not yet.
    #[error(
        "the store has other tables or values than this controller would give its switches: the one that leads has not converted a store of an earlier version yet, or is of that version, or has another [design]; run the same version and the same [design] on all controllers"
    )]
    OtherDesigns,
    /// Nothing is committed yet.
    #[error("the store is empty")]
    Empty,
    /// A host in the store is damaged.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The settings are invalid.
    #[error("no network can be made from the configuration: {0}")]
    Network(#[from] NetworkError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The record of changes cannot be written.
    #[error("cannot write the audit trail {path}: {error}; see that its directory may be written, or set [audit] file")]
    Audit {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// An address is in use, or not of this machine.
    #[error(
        "cannot listen on {address}: {error}; choose an address of this machine and a free port, or the path of a socket in a directory that this user may write"
    )]
    Listen {
        /// The address.
        address: Address,
        /// Why.
        error: std::io::Error,
    },
}

impl StartError {
    /// As the end of a controller that runs.
    fn into_store_error(self) -> StoreError {
        match self {
            StartError::Store(error) => error,
            error => StoreError::Unusable { what: error.to_string() },
        }
    }
}

/// Tells whether the writer of a controller works.
#[derive(Clone)]
pub struct Pulse {
    jobs: mpsc::Sender<Job>,
}

impl Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse").finish_non_exhaustive()
    }
}

impl Pulse {
    /// Returns true when the writer has committed what waited before this question; false, when it has ended. A writer that
    /// hangs, at a disk for example, never answers.
    pub async fn beat(&self) -> bool {
        Job::ask(&self.jobs, |_| ()).await.is_some()
    }
}

type Lost = Pin<Box<dyn Future<Output = StoreError> + Send>>;

/// A running controller. Dropping it leaves it running; [`Controller::stop`] ends it.
pub struct Controller {
    address: Address,
    status_address: Option<Address>,
    jobs: mpsc::Sender<Job>,
    written: oneshot::Receiver<Result<(), StoreError>>,
    /// Resolves when another controller may lead.
    lost: Lost,
    live: reload::Live,
    server: tokio::task::JoinHandle<()>,
}

impl Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Controller {
    /// Opens the store, restores the network and serves. Needs a runtime of several threads. With a store in etcd it follows
    /// the controller that leads, and leads when there is none. A first one waits until either can be; meanwhile only
    /// `/status` and `/metrics` are served.
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let tls = config.tls.as_ref().map(|files| Tls::load_for(files, None)).transpose()?;
        let telemetry =
            config.telemetry.as_ref().map(|settings| Telemetry::start(settings, &config.listen.to_string()));
        let telemetry = telemetry.transpose()?;
        // Cluster 0 would mean none.
        let settings = config.network(rand::random::<u64>().max(1), SecretKey::random());
        let opened = match &config.store {
            Place::File(path) => {
                let open = || restore(settings.clone(), Box::new(SqliteStore::open(path, STORE_PATIENCE)?));
                Some(tokio::task::block_in_place(open)?)
            }
            Place::Etcd(_) => None,
        };
        let connections = raise_descriptors(config.limits.connections, 1 + usize::from(config.status.is_some()));
        let limits = Limits { connections, ..config.limits.clone() };
        let guard = Guard::new(limits.clone());
        let path = config.audit_path();
        let audit = Audit::open(&config.audit, &path).map_err(|error| StartError::Audit { path, error })?;
        Audit::keep_synced(&audit);
        let witness = Arc::clone(&audit);
        let gate = Gate::new(tls, config.insecure, guard, Some(Box::new(move |attempt| witness.attempt(attempt))));
        let listen = async || {
            let listener = gate.listen(&config.listen, false).await;
            listener.map_err(|error| StartError::Listen { address: config.listen.clone(), error })
        };
        // Whoever knows nothing yet does not listen: switches and operators go on to another controller.
        let listener = match &config.store {
            Place::File(_) => Some(listen().await?),
            Place::Etcd(_) => None,
        };

        let shared = Shared::new();
        shared.trunks.set_auto(config.auto_links);
        shared.newcomers.set_auto(config.auto_switches);
        shared.learning.set(config.learn.clone());
        let is_open = config.insecure && !config.metrics_open;
        let dashboard = web::Web::new(Arc::clone(&gate), is_open, config.dashboard);
        let status_address = match &config.status {
            Some(status) => {
                let (shared, gate, audit) = (Arc::clone(&shared), Arc::clone(&gate), Arc::clone(&audit));
                let page =
                    Arc::new(status::Page { shared, gate: Arc::clone(&gate), audit, telemetry: telemetry.clone() });
                let pages = web::router(Arc::clone(&dashboard));
                let bound = api::status::serve_with(status, &gate, config.metrics_open, page, pages).await;
                Some(bound.map_err(|error| StartError::Listen { address: status.clone(), error })?)
            }
            None => None,
        };
        let (losing, losable) = oneshot::channel::<Lost>();
        let (state, store, following) = match (&config.store, opened) {
            (Place::Etcd(address), _) => match follow::begin(&config, address, settings, &shared).await? {
                Begun::Leads { state, store, lost } => {
                    let _ = losing.send(lost);
                    (state, Some(store), None)
                }
                Begun::Follows { state, following } => (state, None, Some((following, losing))),
            },
            (Place::File(_), Some((state, store))) => (state, Some(store), None),
            (Place::File(_), None) => unreachable!("it was opened above"),
        };
        let listener = match listener {
            Some(listener) => listener,
            None => listen().await?,
        };
        let address = listener.address().clone();

        let (jobs, waiting_jobs) = mpsc::channel(QUEUED_JOBS);
        let (pushes, waiting_pushes) = mpsc::channel(QUEUED_PUSHES);
        let phase_timeout = Duration::from_millis(config.phase_timeout_ms);
        let pending = Arc::clone(&shared);
        tokio::spawn(async move { push::push(waiting_pushes, phase_timeout, &pending.pending_pushes).await });

        let backlog = config.switch_backlog_bytes;
        let mut writer = Writer::new(state, store, Arc::clone(&shared), pushes, backlog, config.rates.clone());
        let (ended, written) = oneshot::channel();
        if let Some((following, losing)) = following {
            tokio::spawn(following.run(jobs.clone(), losing));
        }
        // Sent before the writer is dropped: dropping a table of millions is slow, and the process may end meanwhile.
        tokio::task::spawn_blocking(move || ended.send(writer.run(waiting_jobs)));

        let (parked, release) = (Arc::clone(&shared), jobs.clone());
        tokio::spawn(async move {
            loop {
                parked.parked.notified().await;
                #[expect(clippy::disallowed_methods, reason = "the writer is to have been idle for so long")]
                tokio::time::sleep(writer::QUIET).await;
                if release.send(Job::Release).await.is_err() {
                    return;
                }
            }
        });

        let forget = jobs.clone();
        tokio::spawn(async move {
            loop {
                #[expect(clippy::disallowed_methods, reason = "how often it is looked for silent names")]
                tokio::time::sleep(FORGET_EVERY).await;
                if forget.send(Job::Forget).await.is_err() {
                    return;
                }
            }
        });

        let _ = shared.groups.set(config.groups.clone());
        tokio::spawn(groups::tell(config.groups.clone(), jobs.clone(), Arc::clone(&shared)));

        let seen = Arc::clone(&shared);
        tokio::spawn(async move {
            loop {
                #[expect(clippy::disallowed_methods, reason = "between two values of a curve")]
                tokio::time::sleep(history::EVERY).await;
                seen.note_history();
            }
        });

        let told = Arc::clone(&shared);
        tokio::spawn(async move {
            loop {
                #[expect(clippy::disallowed_methods, reason = "how often changes of names are an event")]
                tokio::time::sleep(SAY_NAMES_EVERY).await;
                told.events.say_names();
            }
        });

        let handled = Arc::clone(&shared);
        // A change is about a hundred bytes of text and rows.
        let traffic = move || handled.message_bytes.load(Relaxed) + 100 * handled.changes.load(Relaxed);
        tokio::spawn(api::memory::keep_small(traffic));

        let live = reload::Live {
            shared: Arc::clone(&shared),
            gate: Arc::clone(&gate),
            audit: Arc::clone(&audit),
            jobs: jobs.clone(),
        };
        let known = Arc::clone(&shared);
        let north = north::North { jobs: jobs.clone(), shared, max_names: config.max_names, audit, telemetry };
        dashboard.serve(north.clone());
        let text = format!("serves, version {}", env!("CARGO_PKG_VERSION"));
        known.events.note("controller", events::Level::Info, "this controller", text);
        let south = south::South {
            jobs: jobs.clone(),
            gate: Arc::clone(&gate),
            throttle: Arc::default(),
            shared: known,
            seeing: Default::default(),
        };
        let (flows, captures) = (FlowsServer::new(north.clone()), CapturesServer::new(north.clone()));
        let serving = Server::builder()
            .initial_stream_window_size(limits.window_bytes)
            .initial_connection_window_size(limits.window_bytes)
            .max_concurrent_streams(limits.streams)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .layer(listener.limits())
            .layer(GateLayer(gate))
            .add_service(
                NorthboundServer::new(north)
                    .max_decoding_message_size(limits.message_bytes)
                    .max_encoding_message_size(MAX_MESSAGE_BYTES),
            )
            .add_service(
                SouthboundServer::new(south)
                    .max_decoding_message_size(config.report_bytes())
                    .max_encoding_message_size(MAX_MESSAGE_BYTES),
            )
            .add_service(flows.max_encoding_message_size(MAX_MESSAGE_BYTES))
            .add_service(captures.max_encoding_message_size(MAX_MESSAGE_BYTES))
            .serve_with_incoming(listener);
        let server = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the gRPC server ended");
            }
        });
        let lost: Lost = Box::pin(async {
            match losable.await {
                Ok(lost) => lost.await,
                // It never led, or leads on a file.
                Err(_) => std::future::pending().await,
            }
        });
        Ok(Self { address, status_address, jobs, written, lost, live, server })
    }

    /// Where gRPC listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Where `/metrics` and `/status` listen.
    pub fn status_address(&self) -> Option<&Address> {
        self.status_address.as_ref()
    }

    /// What tells whether it works.
    pub fn pulse(&self) -> Pulse {
        Pulse { jobs: self.jobs.clone() }
    }

    /// Returns when the writer ended by itself, which happens only when the store fails, or when this controller no longer
    /// leads: then the process is to end, and to start again as one that follows.
    /// # Errors
    /// [`StoreError`].
    pub async fn ended(&mut self) -> Result<(), StoreError> {
        tokio::select! {
            written = &mut self.written => written.unwrap_or(Ok(())),
            error = &mut self.lost => Err(error),
        }
    }

    /// Finishes all requests so far, ends all streams and stops serving.
    /// # Errors
    /// [`StoreError`] if the last commit failed.
    pub async fn stop(mut self) -> Result<(), StoreError> {
        let _ = self.jobs.send(Job::Stop).await;
        let written = (&mut self.written).await.unwrap_or(Ok(()));
        self.server.abort();
        written
    }
}

/// What the rows of a store make.
struct Read {
    /// With the rows that have to be committed because the configuration has changed; none if there are no rows.
    network: Option<(Network, Vec<RowChange>)>,
    hosts: Hosts,
    n_rows: u64,
}

fn read(
    settings: Settings,
    term: u64,
    rows: impl Iterator<Item = Result<RowChange, StoreError>>,
) -> Result<Read, StartError> {
    let mut hosts = Hosts::default();
    let mut failure: Option<StoreError> = None;
    let mut n_rows = 0_u64;
    let rows = rows.map_while(|row| match row {
        Ok(row) => {
            n_rows += 1;
            Some(row)
        }
        Err(error) => {
            failure = Some(error);
            None
        }
    });
    let mut host_rows = Vec::new();
    let network_rows = rows.filter_map(|row| {
        if !matches!(row.kind, HOST_ROW | LEARNT_ROW) {
            return Some(row);
        }
        host_rows.push(row);
        None
    });
    let mut network_rows = network_rows.peekable();
    let network = if network_rows.peek().is_some() {
        Some(Network::restore(settings, term, network_rows))
    } else {
        drop(network_rows);
        None
    };
    // A store that fails half way looks like a damaged network, so the first failure is reported.
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let network = network.transpose()?;
    for row in host_rows {
        let value = row.value.as_deref().unwrap_or_default();
        match &network {
            Some((network, _)) if row.kind == LEARNT_ROW => hosts.learnt.restore(network, &row.key, value),
            _ => hosts.restore(&row.key, value)?,
        }
    }
    Ok(Read { network, hosts, n_rows })
}

/// Why a store lacks rows at a start, in words, by their kinds: tables have the kind 6, switches 2.
fn why_other_tables(rows: &[RowChange]) -> &'static str {
    let are_there = |kind| rows.iter().any(|row| row.kind == kind);
    if are_there(6) {
        "the configuration names other FIB designs, or another rate, than the store: switches get other tables"
    } else if are_there(2) {
        "an earlier version gave switches no values of their own, or the design did not: switches get their FIBs once more"
    } else {
        "the store has no rows of the tables, as one that was salvaged: switches get their FIBs once more"
    }
}

/// The network in the store; a new one, committed, if the store is empty.
fn restore(settings: Settings, mut store: Box<dyn Store>) -> Result<(State, Box<dyn Store>), StartError> {
    let started = std::time::Instant::now();
    let term = store.term();
    let Read { network, hosts, n_rows } = read(settings.clone(), term, store.rows())?;
    let network = match network {
        Some((network, rows)) => {
            if !rows.is_empty() {
                tracing::info!(rows = rows.len(), "{}", why_other_tables(&rows));
            }
            // Also without rows: the term of this start must be durable.
            store.commit_told(&rows, if rows.is_empty() { NOTHING } else { &[] })?;
            network
        }
        None => {
            let network = Network::new(settings, term)?;
            store.commit(&network.rows().collect::<Vec<_>>())?;
            network
        }
    };
    tracing::info!(
        rows = n_rows,
        names = network.rib().len(),
        switches = network.topology().nodes().count(),
        term,
        seconds = started.elapsed().as_secs_f32(),
        "state restored"
    );
    Ok((State { network, hosts }, store))
}

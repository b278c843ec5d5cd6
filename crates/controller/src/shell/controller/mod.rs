//! A controller that runs: starts the writer and the services, in steps, and stops them.

mod reload;

use crate::core::change::State;
use crate::core::happened::Level;
use crate::core::history;
use crate::core::owner::{Input, QUIET, Task};
use crate::shell::config::{Config, Place};
use crate::shell::follow::{self, Begun, Following, Lost};
use crate::shell::job::{Job, Jobs, QUEUED_JOBS};
use crate::shell::north::North;
use crate::shell::restore::{StartError, restore};
use crate::shell::shared::Shared;
use crate::shell::south::South;
use crate::shell::telemetry::Telemetry;
use crate::shell::writer::Writer;
use crate::shell::{groups, push, status, web};
use crate::store::{SqliteStore, Store, StoreError};
use api::MAX_MESSAGE_BYTES;
use api::address::Address;
use api::audit::Audit;
use api::gate::{Gate, GateLayer, Listener};
use api::limits::{Guard, Limits, raise_descriptors};
use api::tls::Tls;
use api::v1::captures_server::CapturesServer;
use api::v1::flows_server::FlowsServer;
use api::v1::northbound_server::NorthboundServer;
use api::v1::southbound_server::SouthboundServer;
use fib::network::Settings;
use lookup::hash::SecretKey;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::Server;

/// Lists of messages that may wait for the pusher; beyond, the writer waits.
const QUEUED_PUSHES: usize = 64;

/// Interval between sweeps for learnt names that have been silent for too long.
const FORGET_EVERY: Duration = Duration::from_secs(5);

/// Interval between events about changes of names.
const SAY_NAMES_EVERY: Duration = Duration::from_secs(1);

/// How long to wait for a store that is in use.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// How often an idle connection is probed, and how long the answer may take.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Tells whether the writer of a controller works.
#[derive(Clone)]
pub struct Pulse {
    jobs: Jobs,
}

impl Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse").finish_non_exhaustive()
    }
}

impl Pulse {
    /// Returns true once the writer has committed everything that waited before this question; false, once it has ended. A writer that
    /// hangs, at a disk for example, never answers.
    pub async fn beat(&self) -> bool {
        self.jobs.ask(|_| ()).await.is_some()
    }
}

/// A running controller. Dropping it leaves it running; [`Controller::stop`] ends it.
pub struct Controller {
    address: Address,
    status_address: Option<Address>,
    jobs: Jobs,
    written: oneshot::Receiver<Result<(), StoreError>>,
    /// Resolves when another controller may lead.
    lost: Lost,
    live: reload::Live,
    server: JoinHandle<()>,
}

impl Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What every service of a controller needs.
struct House {
    config: Config,
    limits: Limits,
    telemetry: Option<Arc<Telemetry>>,
    audit: Arc<Audit>,
    gate: Arc<Gate>,
    shared: Arc<Shared>,
}

/// How a controller begins with its store.
struct Begin {
    state: State,
    store: Option<Box<dyn Store>>,
    /// How it begins while another controller leads.
    following: Option<(Box<Following>, oneshot::Sender<Lost>)>,
    lost: Lost,
}

impl Controller {
    /// Opens the store, restores the network and serves. Needs a runtime of several threads. With a store in etcd it follows
    /// the controller that leads, and leads when there is none. At first it waits until either is possible; meanwhile it serves only
    /// `/status` and `/metrics`.
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let tls = config.tls.as_ref().map(|files| Tls::load_for(files, None)).transpose()?;
        let instance = config.listen.to_string();
        let telemetry = config.telemetry.as_ref().map(|settings| Telemetry::start(settings, &instance)).transpose()?;
        // Cluster 0 would mean none.
        let settings = config.network(rand::random::<u64>().max(1), SecretKey::random());
        // A file is opened, and its network restored, before anything listens.
        let opened = match &config.store {
            Place::File(path) => {
                let open = || restore(settings.clone(), Box::new(SqliteStore::open(path, STORE_PATIENCE)?));
                Some(tokio::task::block_in_place(open)?)
            }
            Place::Etcd(_) => None,
        };
        let house = House::new(config, tls, telemetry)?;
        // A controller that knows nothing yet does not listen: switches and operators go on to another one.
        let listener = match &opened {
            Some(_) => Some(house.listen().await?),
            None => None,
        };
        let dashboard = house.dashboard();
        let status_address = house.serve_status(&dashboard).await?;
        let Begin { state, store, following, lost } = house.begin(opened, settings).await?;
        let listener = match listener {
            Some(listener) => listener,
            None => house.listen().await?,
        };
        let address = listener.address().clone();

        let (jobs, written) = house.start_writer(state, store, following);
        house.start_timers(&jobs);
        let north = house.north(&jobs);
        dashboard.serve(north.clone());
        let text = format!("serves, version {}", env!("CARGO_PKG_VERSION"));
        house.shared.events.note("controller", Level::Info, "this controller", text);
        let server = house.serve(listener, north, &jobs);
        let House { shared, gate, audit, .. } = house;
        let live = reload::Live { shared, gate, audit, jobs: jobs.clone() };
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

    /// Tells whether the writer works.
    pub fn pulse(&self) -> Pulse {
        Pulse { jobs: self.jobs.clone() }
    }

    /// Returns when the writer ended on its own, which happens only when the store fails, or when this controller no longer
    /// leads. Then the process is to end, and to start again as one that follows.
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

impl House {
    /// The gate for connections, the audit trail, and what is shared, as configured.
    fn new(config: Config, tls: Option<Arc<Tls>>, telemetry: Option<Arc<Telemetry>>) -> Result<House, StartError> {
        let connections = raise_descriptors(config.limits.connections, 1 + usize::from(config.status.is_some()));
        let limits = Limits { connections, ..config.limits.clone() };
        let guard = Guard::new(limits.clone());
        let path = config.audit_path();
        let audit = Audit::open(&config.audit, &path).map_err(|error| StartError::Audit { path, error })?;
        Audit::keep_synced(&audit);
        let witness = Arc::clone(&audit);
        let gate = Gate::new(tls, config.insecure, guard, Some(Box::new(move |attempt| witness.attempt(attempt))));
        let shared = Shared::new();
        shared.known.pending.lock().set_auto(config.auto_switches);
        Ok(House { config, limits, telemetry, audit, gate, shared })
    }

    /// Listens for operators and switches.
    async fn listen(&self) -> Result<Listener, StartError> {
        let address = &self.config.listen;
        let listener = self.gate.listen(address, false).await;
        listener.map_err(|error| StartError::Listen { address: address.clone(), error })
    }

    /// The page for browsers.
    fn dashboard(&self) -> Arc<web::Web> {
        let is_open = self.config.insecure && !self.config.metrics_open;
        web::Web::new(Arc::clone(&self.gate), is_open, self.config.dashboard)
    }

    /// Serves `/status`, `/metrics` and the page, if they are configured. Returns where.
    async fn serve_status(&self, dashboard: &Arc<web::Web>) -> Result<Option<Address>, StartError> {
        let Some(address) = &self.config.status else { return Ok(None) };
        let page = Arc::new(status::Page {
            shared: Arc::clone(&self.shared),
            gate: Arc::clone(&self.gate),
            audit: Arc::clone(&self.audit),
            telemetry: self.telemetry.clone(),
        });
        let pages = web::router(Arc::clone(dashboard));
        let bound = api::status::serve_with(address, &self.gate, self.config.metrics_open, page, pages).await;
        bound.map(Some).map_err(|error| StartError::Listen { address: address.clone(), error })
    }

    /// Leads with the store that was opened; with one in etcd leads or follows, as soon as either can be.
    async fn begin(&self, opened: Option<(State, Box<dyn Store>)>, settings: Settings) -> Result<Begin, StartError> {
        let never = || -> Lost { Box::pin(std::future::pending()) };
        let address = match (opened, &self.config.store) {
            (Some((state, store)), _) => {
                return Ok(Begin { state, store: Some(store), following: None, lost: never() });
            }
            (None, Place::Etcd(address)) => address,
            (None, Place::File(path)) => {
                let what = format!("{} is not open", path.display());
                return Err(StoreError::Unusable { what }.into());
            }
        };
        Ok(match follow::begin(&self.config, address, settings, &self.shared).await? {
            Begun::Leads { state, store, lost } => Begin { state, store: Some(store), following: None, lost },
            Begun::Follows { state, following } => {
                let (losing, losable) = oneshot::channel::<Lost>();
                let lost: Lost = Box::pin(async {
                    match losable.await {
                        Ok(lost) => lost.await,
                        // It never led.
                        Err(_) => std::future::pending().await,
                    }
                });
                Begin { state, store: None, following: Some((following, losing)), lost }
            }
        })
    }

    /// Starts the writer and the pusher, and follows another controller if there is one. Returns the way to the writer, and its end.
    fn start_writer(
        &self,
        state: State,
        store: Option<Box<dyn Store>>,
        following: Option<(Box<Following>, oneshot::Sender<Lost>)>,
    ) -> (Jobs, oneshot::Receiver<Result<(), StoreError>>) {
        let (jobs, waiting_jobs) = Jobs::channel(QUEUED_JOBS);
        let (pushes, waiting_pushes) = mpsc::channel(QUEUED_PUSHES);
        let phase_timeout = Duration::from_millis(self.config.phase_timeout_ms);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move { push::push(waiting_pushes, phase_timeout, &shared.progress.pending_pushes).await });

        let (backlog, rates) = (self.config.switch_backlog_bytes, self.config.rates.clone());
        let mut writer = Writer::new(state, store, Arc::clone(&self.shared), pushes, backlog, rates);
        writer.owner.seen.trunks.set_auto(self.config.auto_links);
        writer.owner.seen.learning.set(self.config.learn.clone());
        let (ended, written) = oneshot::channel();
        if let Some((following, losing)) = following {
            tokio::spawn(following.run(jobs.clone(), losing));
        }
        // Sent before the writer is dropped: dropping a table of millions is slow, and the process may end meanwhile.
        tokio::task::spawn_blocking(move || ended.send(writer.run(waiting_jobs)));
        (jobs, written)
    }

    /// Starts periodic work.
    fn start_timers(&self, jobs: &Jobs) {
        let (shared, release) = (Arc::clone(&self.shared), jobs.clone());
        tokio::spawn(async move {
            loop {
                shared.progress.parked.notified().await;
                pause(QUIET).await;
                if release.send(Task::Release).await.is_err() {
                    return;
                }
            }
        });
        let forget = jobs.clone();
        tokio::spawn(async move {
            loop {
                pause(FORGET_EVERY).await;
                if forget.send(Input::Forget).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(groups::tell(self.config.groups.clone(), jobs.clone(), Arc::clone(&self.shared)));
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            loop {
                pause(history::EVERY).await;
                shared.note_history();
            }
        });
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            loop {
                pause(SAY_NAMES_EVERY).await;
                shared.events.say_names();
            }
        });
        let shared = Arc::clone(&self.shared);
        // A change is about a hundred bytes of text and rows.
        let traffic = move || shared.totals.message_bytes.load(Relaxed) + 100 * shared.totals.changes.load(Relaxed);
        tokio::spawn(api::memory::keep_small(traffic));
    }

    /// The northbound service.
    fn north(&self, jobs: &Jobs) -> North {
        North {
            jobs: jobs.clone(),
            shared: Arc::clone(&self.shared),
            groups: Arc::new(self.config.groups.clone()),
            relays: Arc::default(),
            alone: Arc::default(),
            max_names: self.config.max_names,
            audit: Arc::clone(&self.audit),
            telemetry: self.telemetry.clone(),
        }
    }

    /// Serves operators and switches.
    fn serve(&self, listener: Listener, north: North, jobs: &Jobs) -> JoinHandle<()> {
        let south = South {
            jobs: jobs.clone(),
            gate: Arc::clone(&self.gate),
            throttle: Arc::default(),
            shared: Arc::clone(&self.shared),
            relays: Arc::clone(&north.relays),
            seeing: Default::default(),
        };
        let (limits, flows, captures) =
            (&self.limits, FlowsServer::new(north.clone()), CapturesServer::new(north.clone()));
        let serving = Server::builder()
            .initial_stream_window_size(limits.window_bytes)
            .initial_connection_window_size(limits.window_bytes)
            .max_concurrent_streams(limits.streams)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .layer(listener.limits())
            .layer(GateLayer(Arc::clone(&self.gate)))
            .add_service(
                NorthboundServer::new(north)
                    .max_decoding_message_size(limits.message_bytes)
                    .max_encoding_message_size(MAX_MESSAGE_BYTES),
            )
            .add_service(
                SouthboundServer::new(south)
                    .max_decoding_message_size(self.config.report_bytes())
                    .max_encoding_message_size(MAX_MESSAGE_BYTES),
            )
            .add_service(flows.max_encoding_message_size(MAX_MESSAGE_BYTES))
            .add_service(captures.max_encoding_message_size(MAX_MESSAGE_BYTES))
            .serve_with_incoming(listener);
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the gRPC server ended");
            }
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "how often something is done is what these times say")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

//! The daemon: ports and workers, a replica kept in step by the controller, a saved image, a status page.
//!
//! ```text
//! controller ─► agent ─► replica ─► plane ─► workers ◄─► ports
//!                           └─► saved image (after changes settle, and at the end)
//! ```
//! It forwards with the saved image from the first moment, whether a controller answers or not, and keeps forwarding
//! when the controller goes away. A port whose device disappears, or is missing at the start, is kept and counted, and
//! used when the device is there. The packet sockets of the previous process are taken over with the frames that wait
//! in them.

mod about;
pub mod agent;
mod bundles;
mod capture;
mod checks;
pub mod config;
mod controllers;
pub mod dpdk;
mod driver;
mod flows;
mod late;
mod leader;
mod learn;
pub mod links;
mod lldp;
mod log;
mod lookup;
mod others;
mod ports;
#[cfg(test)]
mod reasons;
mod relay;
mod reload;
pub mod saved;
mod shared;
mod status;
mod strays;
mod subscriptions;
mod trunk;
mod unheard;

pub use lookup::threads as lookup_threads;
pub use ports::lost_offloads;

use agent::Shared;
use api::address::Address;
use api::audit::Audit;
use api::gate::Gate;
use api::limits::{self, Guard, raise_descriptors};
use api::tls::{Tls, TlsError};
use config::{AccessLists, Config};
use dataplane::acl::{AclStatus, Difference};
use dataplane::assembly::{self, BuildError, Dataplane, LONGEST_FRAME, PortStatus, Pulse};
use dataplane::directory::Directory;
use dataplane::flow::Flows;
use dataplane::flow::export::Export;
use dataplane::flow::stage::StageError;
use dataplane::kernel::Kernel;
use dataplane::plane::{PlaneWriter, ShownTo};
use dataplane::port::Failure;
use dataplane::share::Share;
use fib::replica::{Limits, ReadError, Replica};
use netio::NetError;
use netio::backend::af_packet::Handover;
use saved::{SavedImage, Saver};
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use unheard::Unheard;

/// Buffers hold frames of this many bytes at least: a port that is missing at the start may come with jumbo frames.
const BUFFER_BYTES: usize = 9216;
/// Bytes that a frame may have above the MTU and the header.
const VLAN_TAG_BYTES: usize = 4;

/// Interval at which ports are checked for the log, and the files of access lists for changes.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Why a switch does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A port cannot be opened, for another reason than that its device is missing or down.
    #[error(transparent)]
    Ports(#[from] NetError),
    /// The workers cannot be started.
    #[error(transparent)]
    Plane(#[from] BuildError),
    /// The state directory is not usable.
    #[error(
        "cannot use the state directory {path}: {source}; check its permissions, or set state_dir to another directory"
    )]
    State {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The record of changes cannot be written.
    #[error(
        "cannot write the audit trail {path}: {source}; make sure that its directory is writable, or set [audit] file"
    )]
    Audit {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Connection tracking cannot be started.
    #[error(transparent)]
    Flows(#[from] StageError),
    /// `[flow]` is wrong.
    #[error("{0}")]
    Config(String),
    /// Flows that end cannot be written out.
    #[error("cannot write flows to {path}: {source}; check its permissions, or set flow.export to another file")]
    Export {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An address to listen on is taken or not ours.
    #[error(
        "cannot listen on {address}: {source}; choose an address of this machine and a free port, or the path of a socket in a directory that this user may write"
    )]
    Listen {
        /// The address.
        address: Address,
        /// Why.
        source: std::io::Error,
    },
}

/// A running switch.
pub struct Switch {
    plane: Arc<Dataplane>,
    shared: Arc<Shared<PlaneWriter>>,
    saver: Saver,
    status_address: Option<Address>,
    lookup_address: Option<Address>,
    flow_address: Option<Address>,
    control_address: Option<Address>,
    keeper: Option<(flows::Keeper, tokio::task::JoinHandle<()>)>,
    live: reload::Live,
    /// The agent, the saver, and what gives memory back.
    background: Vec<tokio::task::JoinHandle<()>>,
}

impl Switch {
    /// Opens the ports, takes the saved image into service and starts to look for the controller.
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_after(config, None).await
    }

    /// As [`Switch::start`], with the packet sockets of the switch before, which go on receiving while there is none.
    /// # Errors
    /// As there.
    pub async fn start_after(config: Config, left: Option<Arc<Handover>>) -> Result<Self, StartError> {
        let state_error = |source| StartError::State { path: config.state_dir.clone(), source };
        let saved = tokio::task::block_in_place(|| SavedImage::new(&config.state_dir)).map_err(state_error)?;
        let image = saved.open().map_err(state_error)?;
        let tls = config.tls.as_ref().map(|files| Tls::load_for(files, Some(&config.name))).transpose()?;
        let path = config.audit_path();
        let audit = Audit::open(&config.audit, &path).map_err(|source| StartError::Audit { path, source })?;
        Audit::keep_synced(&audit);
        let witness = Arc::clone(&audit);
        let connections = raise_descriptors(config.limits.connections, config.n_listeners());
        let guard = Guard::new(limits::Limits { connections, ..config.limits.clone() });
        let gate =
            Gate::new(tls.clone(), config.insecure, guard, Some(Box::new(move |attempt| witness.attempt(attempt))));
        let flows = start_flows(&config)?;
        let lists = tokio::task::block_in_place(|| config.access_lists()).map_err(StartError::Config)?;
        let Started { plane, replica, directory, kernel } =
            tokio::task::block_in_place(|| start_plane(&config, &lists, flows.as_ref(), &saved, image, left.as_ref()))?;
        let shared = Shared::with_groups(replica, plane.monitor().groups().clone());
        let (plane, saver) = (Arc::new(plane), Saver::new(saved));

        let listens = |address: &Address| {
            let address = address.clone();
            move |source| StartError::Listen { address, source }
        };
        let lookup_address = match (&config.lookup, &directory) {
            (Some(address), Some(directory)) => {
                let bound = api::lookup::serve(address, &gate, Arc::new(lookup::Answers(Arc::clone(directory)))).await;
                Some(bound.map_err(listens(address))?)
            }
            _ => None,
        };
        let status_address = match &config.status {
            Some(address) => {
                let (name, weak) = (config.name.clone(), Arc::downgrade(&plane));
                let page = status::Page {
                    name,
                    shared: Arc::clone(&shared),
                    saver: saver.clone(),
                    plane: weak,
                    directory,
                    flows: flows.clone(),
                    gate: Arc::clone(&gate),
                    audit: Arc::clone(&audit),
                };
                let bound = api::status::serve(address, &gate, config.metrics_open, Arc::new(page)).await;
                Some(bound.map_err(listens(address))?)
            }
            None => None,
        };
        let flow_address = match (config.flow.as_ref().and_then(|flow| flow.control.as_ref()), &flows) {
            (Some(address), Some(flows)) => {
                let control = flows::Control { flows: flows.clone(), audit: Arc::clone(&audit) };
                let bound = api::flow::serve(address, &gate, control).await;
                Some(bound.map_err(listens(address))?)
            }
            _ => None,
        };
        let in_kernel = if kernel.is_some() { config.kernel_ports().concat() } else { vec![] };
        let control =
            capture::Control::new(config.name.clone(), config.fixed_offset, &plane, &in_kernel, Arc::clone(&audit));
        let relay = relay::Relay {
            captures: control.clone(),
            flows: flows.clone().map(|flows| flows::Control { flows, audit: Arc::clone(&audit) }),
        };
        let control_address = match &config.control {
            Some(address) => {
                let bound = api::capture::serve(address, &gate, control).await;
                Some(bound.map_err(listens(address))?)
            }
            None => None,
        };
        let checks = flows.as_ref().map(|flows| checks::Checks::new(&config.name, flows));
        if let (Some(checks), Some(flows)) = (&checks, &flows) {
            checks.follow(&flows.settings().virtuals);
        }
        let live = reload::Live {
            gate: Arc::clone(&gate),
            audit: Arc::clone(&audit),
            flows: flows.clone(),
            checks: checks.clone(),
            export: config.flow.as_ref().and_then(|flow| flow.export.clone()),
        };
        let keeper = match flows {
            Some(flows) => {
                let path = live.export.clone();
                let export = path.map(|path| Export::open(&path).map_err(|source| StartError::Export { path, source }));
                let keeper = flows::Keeper::new(flows, export.transpose()?).map_err(BuildError::from)?;
                Some((keeper.clone(), tokio::spawn(keeper.run(config.name.clone()))))
            }
            None => None,
        };
        let keeper_of_links = links::Keeper::new(&config, &plane, kernel.clone(), Arc::clone(&shared));
        keeper_of_links.start().map_err(BuildError::from)?;
        tokio::spawn(watch_ports(config.name.clone(), Arc::downgrade(&plane), kernel));
        tokio::spawn(watch_lists(config.name.clone(), Arc::downgrade(&plane)));
        let saving = tokio::spawn(saver.clone().run(Arc::clone(&shared), shared.changes()));
        let received = Arc::downgrade(&shared);
        let keeper_of_memory = tokio::spawn(api::memory::keep_small(move || {
            received.upgrade().map_or(0, |shared| shared.status().received_bytes)
        }));
        if let Some(teller) = learn::Teller::new(&config, tls.as_ref(), plane.monitor().learner()) {
            tokio::spawn(teller.run(Arc::clone(&shared)));
        }
        if let Some(keeper) = subscriptions::Keeper::new(&plane, Arc::clone(&shared)) {
            tokio::spawn(keeper.run());
        }
        let (about_plane, relay) = (Arc::downgrade(&plane), Arc::new(relay));
        let about = Arc::new(status::About { shared: Arc::clone(&shared), plane: about_plane, checks, relay });
        let agent = tokio::spawn(agent::run(config.name, config.controller, tls, Arc::clone(&shared), about));
        let background = vec![agent, saving, keeper_of_memory];
        Ok(Self {
            plane,
            shared,
            saver,
            status_address,
            lookup_address,
            flow_address,
            control_address,
            keeper,
            live,
            background,
        })
    }

    /// Where `/metrics` and `/status` listen.
    pub fn status_address(&self) -> Option<&Address> {
        self.status_address.as_ref()
    }

    /// Where questions about names are answered.
    pub fn lookup_address(&self) -> Option<&Address> {
        self.lookup_address.as_ref()
    }

    /// Where `fibula flow` reaches it.
    pub fn flow_address(&self) -> Option<&Address> {
        self.flow_address.as_ref()
    }

    /// Where `fibula capture` reaches it.
    pub fn control_address(&self) -> Option<&Address> {
        self.control_address.as_ref()
    }

    /// Whether it works: its workers do (see [`Dataplane::beat`]), and what the controller changes can be changed. Waits until
    /// a change that is being made is done.
    pub async fn beat(&self, pulse: &mut Pulse) -> bool {
        let shared = Arc::clone(&self.shared);
        let is_free = tokio::task::spawn_blocking(move || drop(shared.replica())).await.is_ok();
        is_free && self.plane.beat(pulse)
    }

    /// Saves what is not saved yet, and stops forwarding.
    pub async fn stop(self) {
        for task in self.background {
            task.abort();
            let _ = task.await;
        }
        if let Some((_, task)) = &self.keeper {
            task.abort();
        }
        if let Some(checks) = &self.live.checks {
            checks.stop();
        }
        tokio::task::block_in_place(|| {
            // Behind a save that is under way. Frames are forwarded meanwhile: an image of millions of names takes seconds.
            self.saver.save(&self.shared, false);
            self.plane.take_leave();
            // The status page holds it for moments only; then that moment's end stops the workers.
            if let Some(Err(error)) = Arc::into_inner(self.plane).map(Dataplane::stop) {
                tracing::error!(%error, "a worker thread had ended before the switch was stopped");
            }
            if let Some(Err(error)) = self.keeper.map(|(keeper, _)| keeper.finish()) {
                tracing::error!(%error, "the last flows cannot be written");
            }
        });
    }
}

/// Workers, what a controller changes, and what look-ups are answered from.
struct Started {
    plane: Dataplane,
    replica: Replica<PlaneWriter>,
    directory: Option<Arc<Directory>>,
    kernel: Option<Arc<Kernel>>,
}

/// What tracks connections, if anything is to.
fn start_flows(config: &Config) -> Result<Option<Flows>, StartError> {
    let settings = config.flow_settings().map_err(StartError::Config)?;
    Ok(settings.map(|settings| Flows::new(settings, config.workers)).transpose()?)
}

/// Starts the workers and gives them what the saved image holds; nothing, if there is none that can be used.
fn start_plane(
    config: &Config,
    lists: &AccessLists,
    flows: Option<&Flows>,
    saved: &SavedImage,
    image: Option<File>,
    left: Option<&Arc<Handover>>,
) -> Result<Started, StartError> {
    let switch = &config.name;
    let (ports, kernel) = ports::open(config, lists, left)?;
    let longest = ports.iter().flat_map(|port| &port.devices).map(|device| device.max_frame() + VLAN_TAG_BYTES).max();
    let settings = assembly::Settings {
        workers: config.workers,
        fixed_offset: config.fixed_offset,
        aliens: config.aliens().map_err(StartError::Config)?,
        flows: flows.cloned(),
        gateway: config.gateway_settings().map_err(StartError::Config)?,
        shown_to: match (&kernel, &config.share) {
            (Some(kernel), _) => ShownTo::Kernel(kernel.clone()),
            (None, Some(path)) => ShownTo::Programs(Share::at(path.clone())),
            (None, None) => ShownTo::Nobody,
        },
        subscriptions: config.subscriptions,
        max_frame: longest.unwrap_or(0).clamp(BUFFER_BYTES, LONGEST_FRAME),
        ..assembly::Settings::default()
    };
    let (workers, monitor, mut writer) = assembly::build(&settings, ports)?;
    let run = || Dataplane::run(workers, monitor, settings.idle_polls);
    let directory = config.lookup.as_ref().map(|_| Arc::new(writer.directory(lookup::threads())));
    let limits = Limits { max_table_bytes: config.max_table_bytes, ..Limits::default() };
    let Some(mut image) = image else {
        tracing::info!(switch, "no saved image; all frames are dropped until a controller answers");
        return Ok(Started { plane: run()?, replica: Replica::new(limits, writer), directory, kernel });
    };
    // Frames that come meanwhile wait at the ports: workers without a table would drop them.
    match Replica::read(limits, writer, &mut image) {
        Ok(replica) => {
            tracing::info!(switch, version = replica.change(), "serving the saved image");
            Ok(Started { plane: run()?, replica, directory, kernel })
        }
        Err(ReadError::Read(source)) => Err(StartError::State { path: saved.path(), source }),
        Err(error) => {
            tracing::error!(switch, %error, "the saved image cannot be used; it is renamed to image.bad, and the controller sends a new one");
            if left.is_some() {
                tracing::warn!(
                    switch,
                    "frames that waited at the ports are lost: there is no table to forward them by"
                );
            }
            if let Err(error) = saved.set_aside() {
                tracing::error!(switch, %error, "the saved image cannot be renamed to image.bad");
            }
            // Opened anew: there is no table to forward the waiting frames by.
            drop(run);
            start_plane(config, lists, flows, saved, None, left)
        }
    }
}

/// Reads access lists again that change, as long as the plane is there.
async fn watch_lists(switch: String, plane: Weak<Dataplane>) {
    let mut tick = tokio::time::interval(WATCH_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(lists) = plane.upgrade().map(|plane| plane.monitor().access_lists()) else { return };
        for list in lists {
            match tokio::task::block_in_place(|| list.reload()) {
                Ok(Some(Difference { changed, removed, built_anew })) => {
                    let AclStatus { path, rules, .. } = list.status();
                    let acl = path.display();
                    tracing::info!(switch, %acl, rules, changed, removed, built_anew, "access list read again");
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(switch, %error, "the changed access list is not used; the previous one stays in use")
                }
            }
        }
    }
}

/// Logs ports that are missing, go down and come back, as long as the plane is there (the workers count and revive them
/// themselves), workers that end, and ports with DHCP clients that no server hears.
async fn watch_ports(switch: String, plane: Weak<Dataplane>, kernel: Option<Arc<Kernel>>) {
    let (mut reasons, mut were_running) = (HashMap::<_, Option<String>>::new(), 0);
    let mut unheard = Unheard::default();
    let mut tick = tokio::time::interval(WATCH_EVERY);
    loop {
        tick.tick().await;
        let Some(plane) = plane.upgrade() else { return };
        unheard.say(&switch, plane.monitor(), Instant::now());
        let running = plane.workers_running();
        if running < std::mem::replace(&mut were_running, running) {
            tracing::error!(switch, running, "a worker thread has ended and its frames are lost; restart the switch");
        }
        for PortStatus { id, device, up, last_failure, .. } in plane.status().ports {
            if let Some(kernel) = &kernel {
                kernel.look_at(id, up);
            }
            let now = if up { None } else { last_failure };
            let before = reasons.insert(id, now.as_ref().map(|failure| failure.error.clone())).flatten();
            match (before, now) {
                // The reason may be another than before: missing, and then with too few queues.
                (before, Some(Failure { error, wait, .. })) if before.as_ref() != Some(&error) => {
                    let seconds = wait.as_secs();
                    tracing::warn!(switch, port = %id, device, error, "the port cannot be used; trying again in {seconds} s");
                }
                (Some(_), None) => tracing::info!(switch, port = %id, device, "port is up"),
                _ => {}
            }
        }
    }
}

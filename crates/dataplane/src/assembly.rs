//! The data plane as a whole: checks that ports and workers fit together, starts, monitors and stops them.
//!
//! [`build`] returns the workers to callers that run them themselves (tests, an in-process network, one thread for many
//! switches). [`Dataplane::start`] runs each worker on its own thread.

mod monitor;
mod running;

pub use monitor::{Monitor, PortStatus, Status};
pub use running::{Dataplane, Pulse};

use crate::acl::{self, AccessList, PortAcl};
use crate::alien;
use crate::bundle::Bundle;
use crate::dhcp::{self, Dhcp};
use crate::exact::MAX_VALUE;
use crate::flow::Flows;
use crate::gateway::{self, Gateway};
use crate::groups::{self, Gate, Groups};
use crate::known::{Known, Notes};
use crate::neighbours::Neighbours;
use crate::parse::MAX_FIXED_OFFSET;
use crate::plane::{PlaneWriter, ShownTo};
use crate::port::{DriverText, Port, PortHealth, Role};
use crate::retry::Retry;
use crate::shim;
use crate::source::CheckSource;
use crate::subscriptions::{self, Allowance, Subscriptions};
use crate::table::Table;
use crate::worker::Worker;
use crate::worker::rules::{Correct, Rules};
use fib::action::PortId;
use lookup::hash::{Purpose, SecretKey};
use monitor::WatchedPort;
use netio::statistics::Statistics;
use netio::{Burst, Device};
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex};

/// The most ports of a switch.
pub const MAX_PORTS: usize = 254;

/// The largest [`Settings::max_frame`]: a buffer must also have room for the shim.
pub const LONGEST_FRAME: usize = netio::MAX_FRAME_LIMIT - shim::LEN;

/// The settings of a data plane.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Workers, each with a device of every port.
    pub workers: usize,
    /// How many polls without a frame a worker makes before it sleeps. Use few where cores are shared. With a core for
    /// each worker, millions mean that it never sleeps.
    pub idle_polls: u32,
    /// The longest frame of a host, in bytes. Buffers also have room for the shim.
    pub max_frame: usize,
    /// Where fixed fields start in a frame as the host sent it, in bytes. Only names of that kind need it.
    pub fixed_offset: Option<usize>,
    /// Connection tracking, if frames go through it.
    pub flows: Option<Flows>,
    /// The gateway to other networks, if it is one.
    pub gateway: Option<gateway::Settings>,
    /// Decides what to do with frames to unknown names.
    pub aliens: alien::Policy,
    /// Readers of the table other than the workers.
    pub shown_to: ShownTo,
    /// Limits on what hosts may say about the groups that they want.
    pub subscriptions: subscriptions::Limits,
    /// The seed that decides which of several ways a flow takes; none: it is drawn at random.
    pub spread_seed: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        let (flows, gateway, aliens, shown_to) = (None, None, alien::Policy::Drop, ShownTo::Nobody);
        let subscriptions = subscriptions::Limits::default();
        Self {
            workers: 1,
            idle_polls: 2,
            max_frame: 2048,
            fixed_offset: None,
            flows,
            gateway,
            aliens,
            shown_to,
            subscriptions,
            spread_seed: None,
        }
    }
}

/// The specification of a port: one device for each worker.
pub struct PortSpec {
    /// Its number, which actions refer to.
    pub id: PortId,
    /// What is at its other end.
    pub role: Role,
    /// Which frames may enter, unless it is a trunk; if none, all.
    pub acl: Option<Arc<AccessList>>,
    /// The check of frame sources, if it is a host port.
    pub check_source: CheckSource,
    /// Whether an IPv6 router is there, if it is a host port: its advertisements pass the check of sources.
    pub ra_trusted: bool,
    /// Whether sources that are not names there are noted for the controller, if sources are checked.
    pub learns: bool,
    /// Whether sources that are names there are noted as well, in each [period](crate::learn::Learner::begin_period).
    pub notes_true: bool,
    /// Limits on what its hosts may do with DHCP, if it is a host port and names are MAC addresses.
    pub dhcp: dhcp::Settings,
    /// The broadcasts and multicasts that its hosts may send a second, with each worker, if it is a host port; 0: none.
    pub group_frames_per_second: u32,
    /// The members of its devices, if it is a bundle.
    pub bundle: Option<Arc<Bundle>>,
    /// How its frames are received, for people.
    pub driver: DriverText,
    /// One device for each worker, in the order of workers.
    pub devices: Vec<Box<dyn Device>>,
}

impl PortSpec {
    /// A port for one worker, without an access list and a check of sources.
    pub fn new(id: u16, role: Role, device: impl Device + 'static) -> Self {
        Self::with(PortId(id), role, Box::new(device))
    }

    /// As [`PortSpec::new`], of any device.
    pub fn with(id: PortId, role: Role, device: Box<dyn Device>) -> Self {
        let driver = DriverText::from("memory".to_owned());
        Self {
            id,
            role,
            acl: None,
            check_source: CheckSource::Off,
            ra_trusted: false,
            learns: false,
            notes_true: false,
            dhcp: dhcp::Settings::default(),
            group_frames_per_second: groups::FRAMES_PER_SECOND,
            bundle: None,
            driver,
            devices: vec![device],
        }
    }
}

/// Why a data plane cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There are no workers.
    #[error("0 workers forward nothing; set workers to at least 1")]
    NoWorkers,
    /// Fixed fields start too late to fit into the longest frame.
    #[error("fixed_offset is {got}; the largest is {MAX_FIXED_OFFSET}")]
    FixedOffset {
        /// The configured offset.
        got: usize,
    },
    /// Frames longer than a buffer can hold.
    #[error("max_frame is {got} bytes; the largest is {LONGEST_FRAME}")]
    MaxFrame {
        /// The configured length.
        got: usize,
    },
    /// More ports than a worker can index.
    #[error("{got} ports are too many; a switch has at most {MAX_PORTS}")]
    TooManyPorts {
        /// The number of ports given.
        got: usize,
    },
    /// A port number that does not fit into a table entry.
    #[error("port id {0} is too large; the largest is {MAX_VALUE}")]
    PortIdTooLarge(PortId),
    /// Two ports with one number.
    #[error("two ports have the id {0}; give each its own")]
    DuplicatePort(PortId),
    /// A port to networks outside that the gateway does not know, or a port of the gateway that does not exist.
    #[error("port {0} has only one of role = 'outside' and a section [[gateway.outside]]; give it both, or neither")]
    Outside(PortId),
    /// The gateway's name is at a port with a device.
    #[error("gateway.port is {0}, which is a port with a device; choose a number that no port has")]
    GatewayPort(PortId),
    /// An invalid server of unknown names, or an invalid port for them.
    #[error("port {port}, for frames to unknown names, {why}; choose another")]
    Alien {
        /// The port.
        port: PortId,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The gateway's routes do not fit its tables.
    #[error("the gateway's routes do not fit its table: {0}; aggregate prefixes or next hops")]
    Routes(#[from] lookup::traits::InsertError),
    /// A port does not have exactly one device for each worker.
    #[error("port {port} has {got} devices for {workers} workers; open one device for each worker")]
    Devices {
        /// The port.
        port: PortId,
        /// Devices given.
        got: usize,
        /// Workers to serve.
        workers: usize,
    },
    /// Frames with a shim do not fit the trunks.
    #[error(
        "trunk {trunk} sends frames of at most {trunk_max} bytes, but host port {host} receives {host_max} bytes and the \
         shim adds 4; raise the MTU at both ends of the trunk (ip link set DEVICE mtu N)"
    )]
    TrunkTooSmall {
        /// The trunk.
        trunk: PortId,
        /// The longest frame that it can send, in bytes.
        trunk_max: usize,
        /// The host port with the longest frames.
        host: PortId,
        /// The longest frame that it can receive, in bytes.
        host_max: usize,
    },
    /// The operating system refused something.
    #[error("a worker thread cannot be started: {0}")]
    Io(#[from] io::Error),
}

/// A data plane that does not run yet: its workers, the monitor of its counters, and the writer of its plane.
pub type Parts<T, R = Correct> = (Vec<Worker<T, R>>, Monitor, PlaneWriter<T>);

/// Makes workers for the ports, without running them. The plane has no FIB yet, so it drops everything.
/// # Errors
/// [`BuildError`].
pub fn build<T: Table>(settings: &Settings, ports: Vec<PortSpec>) -> Result<Parts<T>, BuildError> {
    build_by(settings, ports)
}

/// As [`build`], with workers that follow other rules.
/// # Errors
/// [`BuildError`].
pub fn build_by<T: Table, R: Rules>(settings: &Settings, ports: Vec<PortSpec>) -> Result<Parts<T, R>, BuildError> {
    if settings.workers == 0 {
        return Err(BuildError::NoWorkers);
    }
    if let Some(got) = settings.fixed_offset.filter(|&at| at > MAX_FIXED_OFFSET) {
        return Err(BuildError::FixedOffset { got });
    }
    if settings.max_frame > LONGEST_FRAME {
        return Err(BuildError::MaxFrame { got: settings.max_frame });
    }
    if ports.len() > MAX_PORTS {
        return Err(BuildError::TooManyPorts { got: ports.len() });
    }
    for (i, port) in ports.iter().enumerate() {
        if port.id.0 > MAX_VALUE {
            return Err(BuildError::PortIdTooLarge(port.id));
        }
        if ports[..i].iter().any(|other| other.id == port.id) {
            return Err(BuildError::DuplicatePort(port.id));
        }
        if port.devices.len() != settings.workers {
            let (got, workers) = (port.devices.len(), settings.workers);
            return Err(BuildError::Devices { port: port.id, got, workers });
        }
    }
    let gateway = settings.gateway.as_ref().map(|gateway| set_up(gateway, &ports)).transpose()?;
    let outside = ports.iter().find(|port| port.role == Role::Outside);
    if let Some(port) = outside.filter(|_| gateway.is_none()) {
        return Err(BuildError::Outside(port.id));
    }
    let roles: Vec<_> = ports.iter().map(|port| (port.id, port.role)).collect();
    let aliens = settings.aliens.over(&roles).map_err(|(port, why)| BuildError::Alien { port, why })?;
    let own = settings.flows.as_ref().map(|flows| flows.own_addresses().collect()).unwrap_or_default();
    let (neighbours, shown_to) = (Neighbours::with_own(own), settings.shown_to.clone());
    let n_hosts = ports.iter().filter(|port| port.role == Role::Host).count();
    let heard = Subscriptions::new(settings.subscriptions, n_hosts);
    let limits = heard.limits();
    let groups = Groups::new(Some(heard));
    let neighbours = neighbours.with_more(Arc::clone(groups.addresses()));
    let spread_seed = settings.spread_seed.unwrap_or_else(|| SecretKey::random().derive(Purpose::Structure, 0));
    let (n_workers, offset, has_ports) = (settings.workers, settings.fixed_offset, !ports.is_empty());
    let (shared, writer) = PlaneWriter::new(n_workers, offset, has_ports, neighbours, shown_to, groups, spread_seed);
    let mut queues: Vec<Vec<Port>> = (0..settings.workers).map(|_| Vec::new()).collect();
    let mut watched = Vec::new();
    for port in ports {
        let check_source = if port.role == Role::Host { port.check_source } else { CheckSource::Off };
        // Frames from a trunk were judged where they entered.
        let slot = (port.role != Role::Trunk).then(|| acl::Slot::new(port.acl));
        let (mut devices, mut judges) = (Vec::new(), Vec::new());
        for (queue, device) in queues.iter_mut().zip(port.devices) {
            let health = Arc::new(PortHealth::new());
            devices.push((device.name().to_owned(), device.counters(), health.clone()));
            let (staged, known) = (Burst::new(), Known::new());
            let acl = slot.clone().map(|slot| PortAcl { slot, counters: Arc::default() });
            judges.extend(acl.as_ref().map(|acl| acl.counters.clone()));
            let (id, role, learns, ra_trusted, retry) =
                (port.id, port.role, port.learns, port.ra_trusted, Retry::new());
            let notes = port.notes_true.then(Notes::new);
            let dhcp = (port.role == Role::Host).then(|| Dhcp::new(port.dhcp));
            let may_speak = port.role == Role::Host;
            let group_gate = Gate::new(if may_speak { port.group_frames_per_second } else { 0 });
            queue.push(Port {
                id,
                role,
                acl,
                check_source,
                ra_trusted,
                learns,
                notes,
                dhcp,
                group_gate,
                allowance: Allowance::new(limits),
                device,
                health,
                retry,
                staged,
                known,
            });
        }
        let acl = slot.map(|slot| (slot, judges));
        let (id, role, bundle, driver) = (port.id, port.role, port.bundle, port.driver);
        watched.push(WatchedPort { id, role, acl, check_source, bundle, driver, devices });
    }
    let workers = queues
        .into_iter()
        .enumerate()
        .map(|(i, ports)| {
            let stage = settings.flows.as_ref().map(|flows| flows.stage(i));
            let router = gateway.as_ref().map(Gateway::router);
            Worker::new(i, ports, settings.max_frame + shim::LEN, shared.clone(), stage, router, aliens.clone())
        })
        .collect::<io::Result<Vec<_>>>()?;
    let counters = workers.iter().map(Worker::counters).collect();
    let kernel = settings.shown_to.kernel().cloned();
    let (links, learner, taps) = (shared.links.clone(), shared.learner.clone(), shared.taps.clone());
    let groups = shared.groups.clone();
    let statistics = Statistics::open().ok().map(Mutex::new);
    let monitor =
        Monitor { ports: watched, workers: counters, kernel, links, learner, groups, taps, statistics, gateway };
    // Earlier losses of interfaces do not count.
    monitor.status();
    Ok((workers, monitor, writer))
}

/// Makes the gateway, and checks that its ports exist.
fn set_up(settings: &gateway::Settings, ports: &[PortSpec]) -> Result<Gateway, BuildError> {
    if ports.iter().any(|port| port.id == settings.port) {
        return Err(BuildError::GatewayPort(settings.port));
    }
    let there: HashSet<PortId> = ports.iter().filter(|port| port.role == Role::Outside).map(|port| port.id).collect();
    let known: HashSet<PortId> = settings.outside.iter().map(|outside| outside.port).collect();
    if let Some(&port) = there.symmetric_difference(&known).next() {
        return Err(BuildError::Outside(port));
    }
    Ok(Gateway::new(settings)?)
}

/// Checks that the frames of hosts fit the trunks when the shim is added. Ports whose device is missing are not
/// checked.
/// # Errors
/// [`BuildError::TrunkTooSmall`], with the ports and the sizes.
pub fn check_mtus(ports: &[PortSpec]) -> Result<(), BuildError> {
    let max_of = |port: &PortSpec| port.devices.iter().map(|device| device.max_frame()).min().unwrap_or(usize::MAX);
    let hosts = ports.iter().filter(|port| port.role != Role::Trunk);
    let Some((host, host_max)) = hosts.map(|port| (port.id, max_of(port))).max_by_key(|&(_, max)| max) else {
        return Ok(());
    };
    for port in ports.iter().filter(|port| port.role == Role::Trunk) {
        let trunk_max = max_of(port);
        if trunk_max > 0 && host_max > 0 && trunk_max < host_max + shim::LEN {
            return Err(BuildError::TrunkTooSmall { trunk: port.id, trunk_max, host, host_max });
        }
    }
    Ok(())
}

//! The data plane as a whole: checks that ports and workers fit each other, starts, watches and stops them.
//!
//! [`build`] returns the workers to callers that run them themselves (tests, an in-process network, one thread for many
//! switches). [`Dataplane::start`] runs each worker on its own thread.

use crate::acl::{self, AccessList, AclCounters, AclStatus, PortAcl};
use crate::alien;
use crate::bundle::{Bundle, MemberStatus};
use crate::counters::{Counts, WorkerCounters};
use crate::dhcp::{self, Dhcp};
use crate::exact::MAX_VALUE;
use crate::flow::Flows;
use crate::gateway::{self, Gateway};
use crate::groups::{self, Gate, Groups};
use crate::kernel::{Kernel, KernelStatus};
use crate::known::{Known, Notes};
use crate::learn::{self, Learner};
use crate::links::Links;
use crate::losses;
use crate::neighbours::Neighbours;
use crate::parse::MAX_FIXED_OFFSET;
use crate::plane::{PlaneWriter, ShownTo};
use crate::port::{DriverText, Failure, Port, PortHealth, Role};
use crate::retry::Retry;
use crate::shim;
use crate::source::CheckSource;
use crate::subscriptions::{self, Allowance, Subscriptions};
use crate::table::{FibTable, Table};
use crate::tap::Taps;
use crate::worker::Worker;
use crate::worker::rules::{Correct, Rules};
use fib::action::PortId;
use lookup::hash::{Purpose, SecretKey};
use netio::statistics::{Losses, Statistics};
use netio::{Burst, Device, DeviceCounters, DeviceSnapshot, Waker};
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most ports of a switch.
pub const MAX_PORTS: usize = 254;

/// The largest [`Settings::max_frame`]: a buffer must also have room for the shim.
pub const LONGEST_FRAME: usize = netio::MAX_FRAME_LIMIT - shim::LEN;

/// How long a switch that stops waits for its last words.
const LEAVE_WITHIN: Duration = Duration::from_millis(200);

/// How a data plane runs.
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
    /// What becomes of frames to unknown names.
    pub aliens: alien::Policy,
    /// Who reads the table besides the workers.
    pub shown_to: ShownTo,
    /// What hosts may say of the groups that they want.
    pub subscriptions: subscriptions::Limits,
    /// Decides which flow takes which of several ways; none: it is drawn at random.
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
    /// Its number, which actions name.
    pub id: PortId,
    /// What is at its other end.
    pub role: Role,
    /// Which frames may enter, unless it is a trunk; all, if none.
    pub acl: Option<Arc<AccessList>>,
    /// What is checked of the sources of frames, if it is a host port.
    pub check_source: CheckSource,
    /// Whether an IPv6 router is there, if it is a host port: its advertisements pass the check of sources.
    pub ra_trusted: bool,
    /// Whether sources that are no names there are noted for the controller, if sources are checked.
    pub learns: bool,
    /// Whether those that are names there are noted as well, in each [period](crate::learn::Learner::begin_period).
    pub notes_true: bool,
    /// What its hosts may do with DHCP, if it is a host port and names are MAC addresses.
    pub dhcp: dhcp::Settings,
    /// Frames to everybody that its hosts may send a second, with each worker, if it is a host port; 0: none.
    pub group_frames_per_second: u32,
    /// The members of its devices, if it is a bundle.
    pub bundle: Option<Arc<Bundle>>,
    /// How its frames come, for people.
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
    /// Fixed fields start so late that they do not fit into the longest frame.
    #[error("fixed_offset is {got}; the largest is {MAX_FIXED_OFFSET}")]
    FixedOffset {
        /// The offset that was asked for.
        got: usize,
    },
    /// Frames longer than a buffer can hold.
    #[error("max_frame is {got} bytes; the largest is {LONGEST_FRAME}")]
    MaxFrame {
        /// What was asked for.
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
    /// A server of unknown names, or the port for them, that cannot be one.
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
    /// A port has not one device for each worker.
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
        /// What it can send, in bytes.
        trunk_max: usize,
        /// The host port with the longest frames.
        host: PortId,
        /// What it can receive, in bytes.
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

/// As [`build`], with workers that decide by other rules.
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
        // What comes through a trunk was judged where it entered.
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
    // What interfaces lost before does not count.
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

struct WatchedPort {
    id: PortId,
    role: Role,
    acl: Option<(Arc<acl::Slot>, Vec<Arc<AclCounters>>)>,
    check_source: CheckSource,
    bundle: Option<Arc<Bundle>>,
    driver: DriverText,
    devices: Vec<(String, Arc<DeviceCounters>, Arc<PortHealth>)>,
}

impl WatchedPort {
    fn is_up(&self) -> bool {
        let is_open = self.bundle.as_ref().is_none_or(|bundle| bundle.is_open());
        is_open && self.devices.iter().all(|(.., health)| health.is_up())
    }
}

/// Reads the counters of a data plane, from any thread.
pub struct Monitor {
    ports: Vec<WatchedPort>,
    workers: Vec<Arc<WorkerCounters>>,
    kernel: Option<Arc<Kernel>>,
    links: Arc<Links>,
    learner: Arc<Learner>,
    groups: Arc<Groups>,
    taps: Arc<Taps>,
    /// Of the interfaces; none: the system has no socket to ask by.
    statistics: Option<Mutex<Statistics>>,
    gateway: Option<Gateway>,
}

/// A data plane at one moment.
#[derive(Debug, Clone)]
pub struct Status {
    /// Counts of all workers together, and of what the kernel received and sent for them.
    pub total: Counts,
    /// Counts a worker.
    pub workers: Vec<Counts>,
    /// What forwards in the kernel, if anything is to.
    pub kernel: Option<KernelStatus>,
    /// What was noted at ports that learn.
    pub learnt: learn::Counts,
    /// What hosts said of the groups that they want, if it is heard.
    pub subscriptions: Option<subscriptions::Counts>,
    /// Its ports, in the order given.
    pub ports: Vec<PortStatus>,
}

/// A port at one moment.
#[derive(Debug, Clone)]
pub struct PortStatus {
    /// Its number.
    pub id: PortId,
    /// What is at its other end.
    pub role: Role,
    /// Its access list, if it has one, and the packets that this let in and kept out.
    pub acl: Option<(AclStatus, [u64; 2])>,
    /// What is checked of the sources of frames, as far as the kind of names allows it.
    pub check_source: CheckSource,
    /// Name of its device.
    pub device: String,
    /// Its members, if it is a bundle.
    pub members: Vec<MemberStatus>,
    /// How its frames come, and why not as configured, if so.
    pub driver: String,
    /// Whether all workers can use it, and a member of it sends if it is a bundle.
    pub up: bool,
    /// The last failure: of a worker that cannot use it, if there is one. It is kept when the port works again.
    pub last_failure: Option<Failure>,
    /// What its devices counted.
    pub counters: DeviceSnapshot,
    /// What its interfaces lost before the devices had it.
    pub lost: Losses,
    /// The longest packet that its interfaces take now; 0: nobody knows.
    pub mtu: u32,
    /// What it has to be so that frames of hosts fit with the shim, if it is a trunk; 0: nobody knows.
    pub mtu_needed: u32,
}

impl PortStatus {
    /// Whether it is a trunk that does not take the longest frames of hosts: its MTU was lowered, or theirs raised, while the switch
    /// ran.
    pub fn is_too_small(&self) -> bool {
        0 < self.mtu && self.mtu < self.mtu_needed
    }

    /// What was lost at it so far, by name, in the order of [`losses::names`], zeros included.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let not_taken = self.members.iter().map(|member| member.counts.not_taken).sum();
        losses::of(&self.counters, not_taken, &self.lost)
    }
}

impl Status {
    /// Every reason to drop a frame with its count, in a fixed order, zeros included: those of workers, and then
    /// [what no worker saw](losses).
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let of_workers = self.total.drops().map(|(reason, n)| (reason.name(), n));
        let mut lost: Vec<_> = losses::names().map(|name| (name, 0)).collect();
        for port in &self.ports {
            lost.iter_mut().zip(port.losses()).for_each(|((_, sum), (_, n))| *sum += n);
        }
        of_workers.chain(lost)
    }
}

impl Monitor {
    /// Replaces the routes of the gateway, if it is one, by those of `settings`: every burst that begins later is routed by them.
    /// Nothing else of `settings` is taken.
    /// # Errors
    /// There are more next hops or routes than a table holds; the routes before stay.
    pub fn reroute(&self, settings: &gateway::Settings) -> Result<(), lookup::traits::InsertError> {
        self.gateway.as_ref().map_or(Ok(()), |gateway| gateway.reroute(settings))
    }

    /// What the workers share with the keeper of trunks.
    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// What the workers saw at ports that learn.
    pub fn learner(&self) -> &Arc<Learner> {
        &self.learner
    }

    /// Who hears what hosts say to everybody.
    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Copies of frames, for people who look.
    pub fn taps(&self) -> &Arc<Taps> {
        &self.taps
    }

    /// All ports: the index, the number, and the name of the device of each.
    pub fn ports(&self) -> impl Iterator<Item = (u8, PortId, &str)> {
        (0..).zip(&self.ports).map(|(i, port)| (i, port.id, port.devices.first().map_or("", |(name, ..)| name)))
    }

    /// The bundles, and the index of each among the ports.
    pub fn bundles(&self) -> impl Iterator<Item = (u8, &Arc<Bundle>)> {
        (0..).zip(&self.ports).filter_map(|(i, port)| Some((i, port.bundle.as_ref()?)))
    }

    /// The trunks: the index, the number, and the name of the device of each.
    pub fn trunks(&self) -> impl Iterator<Item = (u8, PortId, &str)> {
        self.ports().zip(&self.ports).filter(|(_, port)| port.role == Role::Trunk).map(|(of, _)| of)
    }

    /// The host ports: the index and the number of each, and whether all workers can use it.
    pub fn host_ports(&self) -> impl Iterator<Item = (u8, PortId, bool)> {
        let hosts = (0..).zip(&self.ports).filter(|(_, port)| port.role == Role::Host);
        hosts.map(|(index, port)| (index, port.id, port.is_up()))
    }

    /// What the interfaces of a port lost, and the smallest of their MTUs, as far as anybody knows.
    fn interfaces(&self, port: &WatchedPort, members: &[MemberStatus]) -> (Losses, u32) {
        let mut lost = (Losses::default(), 0);
        let is_asked = ["af_packet", "af_xdp", "xdp"].iter().any(|driver| port.driver.get().starts_with(driver));
        let Some(statistics) = self.statistics.as_ref().filter(|_| is_asked) else { return lost };
        let mut statistics = statistics.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ask = |interface: &str| {
            let Ok(state) = statistics.of(interface) else { return };
            lost.0 += state.lost;
            lost.1 = if lost.1 == 0 || state.mtu == 0 { lost.1.max(state.mtu) } else { lost.1.min(state.mtu) };
        };
        match members {
            [] => port.devices.first().into_iter().for_each(|(name, ..)| ask(name)),
            members => members.iter().for_each(|member| ask(&member.device)),
        }
        lost
    }

    /// The access list of a port, if it has one.
    pub fn access_list(&self, id: PortId) -> Option<Arc<AccessList>> {
        self.ports.iter().find(|port| port.id == id)?.acl.as_ref()?.0.get()
    }

    /// The access lists of all ports, each once.
    pub fn access_lists(&self) -> Vec<Arc<AccessList>> {
        let mut lists: Vec<Arc<AccessList>> = Vec::new();
        for list in self.ports.iter().filter_map(|port| port.acl.as_ref()?.0.get()) {
            if !lists.iter().any(|other| Arc::ptr_eq(other, &list)) {
                lists.push(list);
            }
        }
        lists
    }

    /// Puts an access list, or none, in the place of the one that a port has. A burst is judged by one of both. Returns whether the
    /// port can have one: a trunk cannot, nor one that is not there.
    pub fn set_access_list(&self, id: PortId, list: Option<Arc<AccessList>>) -> bool {
        let slot = self.ports.iter().find(|port| port.id == id).and_then(|port| port.acl.as_ref());
        slot.map(|(slot, _)| slot.set(list)).is_some()
    }

    /// Reads all counters. They may be of moments a burst apart.
    pub fn status(&self) -> Status {
        let workers: Vec<Counts> = self.workers.iter().map(|counters| counters.snapshot()).collect();
        let mut total = Counts::default();
        workers.iter().for_each(|&counts| total += counts);
        let kernel = self.kernel.as_ref().map(|kernel| kernel.status());
        let forwarded = kernel.as_ref().map_or(0, |kernel| kernel.forwarded);
        (total.received, total.sent) = (total.received + forwarded, total.sent + forwarded);
        let ports = self.ports.iter().map(|port| {
            let mut counters = DeviceSnapshot::default();
            port.devices.iter().for_each(|(_, device, _)| counters += device.snapshot());
            let members = port.bundle.as_ref().map(|bundle| bundle.status()).unwrap_or_default();
            members.iter().for_each(|member| counters += member.counters);
            counters += self.kernel.as_ref().and_then(|kernel| kernel.counters(port.id)).unwrap_or_default();
            let (mut lost, mtu) = self.interfaces(port, &members);
            lost.rx_dropped = lost.rx_dropped.saturating_sub(counters.rx_twice);
            PortStatus {
                lost,
                mtu,
                mtu_needed: 0,
                id: port.id,
                role: port.role,
                acl: port.acl.as_ref().and_then(|(slot, judges)| {
                    let sum = |count: fn(&AclCounters) -> u64| judges.iter().map(|counters| count(counters)).sum();
                    Some((slot.get()?.status(), [sum(|c| c.permitted.get()), sum(|c| c.denied.get())]))
                }),
                check_source: port.check_source,
                driver: port.driver.get(),
                device: port.devices.first().map(|(name, ..)| name.clone()).unwrap_or_default(),
                up: port.is_up(),
                members,
                last_failure: {
                    let healths = || port.devices.iter().map(|(.., health)| health);
                    let down = healths().find(|health| !health.is_up());
                    down.and_then(|health| health.last_failure()).or_else(|| healths().find_map(|h| h.last_failure()))
                },
                counters,
            }
        });
        let mut ports: Vec<PortStatus> = ports.collect();
        let longest = ports.iter().filter(|port| port.role != Role::Trunk).map(|port| port.mtu).max().unwrap_or(0);
        let needed = if longest > 0 { longest + shim::LEN as u32 } else { 0 };
        ports.iter_mut().filter(|port| port.role == Role::Trunk).for_each(|trunk| trunk.mtu_needed = needed);
        let subscriptions = self.groups.subscriptions().map(subscriptions::Subscriptions::counts);
        Status { total, kernel, ports, learnt: self.learner.counts(), subscriptions, workers }
    }
}

/// What the workers had done when they were last asked for a sign of life.
#[derive(Debug, Default)]
pub struct Pulse {
    seen: Vec<u64>,
}

/// A running data plane. Stopped when dropped.
pub struct Dataplane {
    monitor: Monitor,
    stop: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Dataplane {
    /// Starts one thread a worker, named `worker-N`.
    /// # Errors
    /// [`BuildError`]; nothing runs then.
    pub fn start(settings: &Settings, ports: Vec<PortSpec>) -> Result<(Self, PlaneWriter<FibTable>), BuildError> {
        let (workers, monitor, writer) = build(settings, ports)?;
        Ok((Self::run(workers, monitor, settings.idle_polls)?, writer))
    }

    /// As [`Dataplane::start`], with what [`build`] made. What comes before waits at the ports.
    /// # Errors
    /// The system refuses a thread; nothing runs then.
    pub fn run(workers: Vec<Worker<FibTable>>, monitor: Monitor, idle_polls: u32) -> Result<Self, BuildError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut plane = Self { monitor, stop, wakers: Vec::new(), threads: Vec::new() };
        for (i, mut worker) in workers.into_iter().enumerate() {
            plane.wakers.push(worker.waker());
            let stop = plane.stop.clone();
            let thread = std::thread::Builder::new().name(format!("worker-{i}"));
            // If this fails, dropping `plane` stops the workers that run.
            plane.threads.push(thread.spawn(move || worker.run(&stop, idle_polls))?);
        }
        Ok(plane)
    }

    /// Counters and ports.
    pub fn status(&self) -> Status {
        self.monitor.status()
    }

    /// What reads the counters.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Wakes the worker that sends hellos.
    pub fn wake_first(&self) {
        self.wakers.iter().take(1).for_each(Waker::wake);
    }

    /// Says in LLDP that the switch goes, and waits until the first worker has sent that, though not for long.
    pub fn take_leave(&self) {
        let Monitor { links, ports, .. } = &self.monitor;
        let mut bundles = Vec::new();
        for (index, place, frame) in links.lldp().leave() {
            match (place, ports.get(usize::from(index)).and_then(|port| port.bundle.as_ref())) {
                (Some(place), Some(bundle)) => {
                    bundle.send([(place, frame)]);
                    bundles.push(bundle);
                }
                _ => links.send([(index, frame)]),
            }
        }
        let (is_waiting, began) =
            (|| links.is_sending() || bundles.iter().any(|bundle| bundle.is_sending()), Instant::now());
        if is_waiting() {
            self.wake_first();
        }
        // A worker that has begun ends its turn before it is stopped. It takes microseconds, of which nobody is told.
        while is_waiting() && began.elapsed() < LEAVE_WITHIN && self.workers_running() > 0 {
            std::thread::yield_now();
        }
    }

    /// Wakes all workers, so that they see at once what has changed.
    pub fn wake(&self) {
        self.wakers.iter().for_each(Waker::wake);
    }

    /// Workers that still run: all, unless one has panicked or poll(2) has failed.
    pub fn workers_running(&self) -> usize {
        self.threads.iter().filter(|thread| !thread.is_finished()).count()
    }

    /// Whether all workers run, and each has received frames or has slept since the question before, if there was one. Wakes
    /// them all, so that one without frames has slept by the next question. Costs a system call a worker.
    pub fn beat(&self, pulse: &mut Pulse) -> bool {
        let done = |worker: &Arc<WorkerCounters>| worker.received.get().wrapping_add(worker.sleeps.get());
        let now: Vec<u64> = self.monitor.workers.iter().map(done).collect();
        self.wakers.iter().for_each(Waker::wake);
        let before = std::mem::replace(&mut pulse.seen, now);
        self.workers_running() == self.wakers.len() && before.iter().zip(&pulse.seen).all(|(before, now)| before != now)
    }

    /// Stops all workers and waits for them, which takes microseconds.
    /// # Errors
    /// The first failure that ended a worker before this call.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.wakers.iter().for_each(Waker::wake);
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

//! Reads the counters of a data plane, from any thread, and changes what can change while it runs.

use crate::acl::{self, AccessList, AclCounters, AclStatus};
use crate::bundle::{Bundle, MemberStatus};
use crate::counters::{Counts, WorkerCounters};
use crate::gateway::{self, Gateway};
use crate::groups::Groups;
use crate::kernel::{Kernel, KernelStatus};
use crate::learn::{self, Learner};
use crate::links::Links;
use crate::losses;
use crate::port::{DriverText, Failure, PortHealth, Role};
use crate::shim;
use crate::source::CheckSource;
use crate::subscriptions;
use crate::tap::Taps;
use fib::action::PortId;
use netio::statistics::{Losses, Statistics};
use netio::{DeviceCounters, DeviceSnapshot};
use std::sync::{Arc, Mutex, PoisonError};

/// A port, with everything that is read of it.
pub(super) struct WatchedPort {
    pub(super) id: PortId,
    pub(super) role: Role,
    pub(super) acl: Option<(Arc<acl::Slot>, Vec<Arc<AclCounters>>)>,
    pub(super) check_source: CheckSource,
    pub(super) bundle: Option<Arc<Bundle>>,
    pub(super) driver: DriverText,
    pub(super) devices: Vec<(String, Arc<DeviceCounters>, Arc<PortHealth>)>,
}

impl WatchedPort {
    fn is_up(&self) -> bool {
        let is_open = self.bundle.as_ref().is_none_or(|bundle| bundle.is_open());
        is_open && self.devices.iter().all(|(.., health)| health.is_up())
    }
}

/// Reads the counters of a data plane, from any thread.
pub struct Monitor {
    pub(super) ports: Vec<WatchedPort>,
    pub(super) workers: Vec<Arc<WorkerCounters>>,
    pub(super) kernel: Option<Arc<Kernel>>,
    pub(super) links: Arc<Links>,
    pub(super) learner: Arc<Learner>,
    pub(super) groups: Arc<Groups>,
    pub(super) taps: Arc<Taps>,
    /// Statistics of the interfaces; none if the system has no socket to ask by.
    pub(super) statistics: Option<Mutex<Statistics>>,
    pub(super) gateway: Option<Gateway>,
}

/// A data plane at one moment.
#[derive(Debug, Clone)]
pub struct Status {
    /// Counts of all workers together, and of what the kernel received and sent for them.
    pub total: Counts,
    /// Counts a worker.
    pub workers: Vec<Counts>,
    /// The status of forwarding in the kernel, if that is wanted.
    pub kernel: Option<KernelStatus>,
    /// What was noted at ports that learn.
    pub learnt: learn::Counts,
    /// What hosts reported of the groups that they want, if the switch listens for that.
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
    /// The check of frame sources, as far as the kind of names allows one.
    pub check_source: CheckSource,
    /// Name of its device.
    pub device: String,
    /// Its members, if it is a bundle.
    pub members: Vec<MemberStatus>,
    /// How its frames are received, and why not as configured, if so.
    pub driver: String,
    /// Whether all workers can use it, and a member of it sends if it is a bundle.
    pub up: bool,
    /// The last failure: of a worker that cannot use it, if there is one. It is kept when the port works again.
    pub last_failure: Option<Failure>,
    /// What its devices counted.
    pub counters: DeviceSnapshot,
    /// What its interfaces lost before the devices received it.
    pub lost: Losses,
    /// The longest packet that its interfaces take now; 0 if unknown.
    pub mtu: u32,
    /// The MTU that it needs so that frames of hosts fit with the shim, if it is a trunk; 0 if unknown.
    pub mtu_needed: u32,
}

impl PortStatus {
    /// Whether it is a trunk that does not take the longest frames of hosts: its MTU was lowered, or theirs raised, while the switch
    /// ran.
    pub fn is_too_small(&self) -> bool {
        0 < self.mtu && self.mtu < self.mtu_needed
    }

    /// Its losses so far, by name, in the order of [`losses::names`], zeros included.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let not_taken = self.members.iter().map(|member| member.counts.not_taken).sum();
        losses::of(&self.counters, not_taken, &self.lost)
    }
}

impl Status {
    /// Every reason to drop a frame with its count, in a fixed order, zeros included: those of workers, and then
    /// [those that no worker sees](losses).
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
    /// Replaces the routes of the gateway, if it is one, with those of `settings`: every burst that begins later is routed by them.
    /// Ignores the rest of `settings`.
    /// # Errors
    /// There are more next hops or routes than a table holds; the previous routes stay.
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

    /// The members that receive broadcasts and multicasts.
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

    /// The losses of the interfaces of a port, and the smallest of their MTUs, as far as they are known.
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

    /// Replaces the access list of a port, or removes it. A burst is judged by one of the two. Returns whether the
    /// port can have one: a trunk cannot, nor can a port that does not exist.
    pub fn set_access_list(&self, id: PortId, list: Option<Arc<AccessList>>) -> bool {
        let slot = self.ports.iter().find(|port| port.id == id).and_then(|port| port.acl.as_ref());
        slot.map(|(slot, _)| slot.set(list)).is_some()
    }

    /// Reads all counters. They may be a burst apart in time.
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

//! The device of a bundle: one worker's devices of all members, as one.
//!
//! A member whose device fails is left out and tried again as a port is; the bundle goes on with the others, and fails when all have
//! failed. Frames that a device could not send when it failed leave by the others at once.

use super::{Bundle, MAX_MEMBERS};
use crate::port::{PortHealth, Role};
use crate::retry::Retry;
use crate::shim;
use crate::spread::{self, Slots};
use arrayvec::ArrayVec;
use fib::action::PortId;
use netio::{Burst, Device, DeviceCounters, NetError, Pool, Readiness, Several, offload};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The place of a member.
type Place = u8;

struct Member {
    device: Box<dyn Device>,
    health: Arc<PortHealth>,
    retry: Retry,
    staged: Burst,
}

/// Where frames leave.
enum Exits {
    None,
    One(Place),
    Spread(Box<Slots>),
}

/// See the module.
pub struct BundleDevice {
    name: String,
    bundle: Arc<Bundle>,
    /// Sends the keeper's frames.
    is_first: bool,
    members: Vec<Member>,
    n_failed: usize,
    /// The member that is polled first.
    next: usize,
    /// The member that the last burst came from.
    source: usize,
    /// Members at which frames may wait that came before this process looked, as a bit each.
    behind: u32,
    /// The decision that `exits` follow.
    version: u32,
    exits: Exits,
    ears: Several,
    counters: Arc<DeviceCounters>,
}

impl BundleDevice {
    /// The devices of worker number `worker`, in the order of members.
    /// # Errors
    /// The system has no descriptor to wait with.
    pub fn new(bundle: Arc<Bundle>, worker: usize, devices: Vec<Box<dyn Device>>) -> io::Result<Self> {
        let ends = bundle.members.iter().zip(devices).filter_map(|(member, device)| {
            let (_, health) = member.workers.get(worker)?;
            Some(Member { device, health: Arc::clone(health), retry: Retry::new(), staged: Burst::new() })
        });
        let members = ends.collect();
        let name = bundle.devices().collect::<Vec<_>>().join("+");
        let (is_first, n_failed, next, source, version) = (worker == 0, 0, 0, 0, 0);
        let behind = (1 << bundle.devices().len()) - 1;
        let (exits, ears, counters) = (Exits::None, Several::new()?, Arc::default());
        Ok(Self { name, bundle, is_first, members, n_failed, next, source, behind, version, exits, ears, counters })
    }

    /// Follows the decision of the keeper, and failures here.
    fn follow(&mut self) {
        self.version = self.bundle.version();
        let sends = |place: &Place| {
            let place = usize::from(*place);
            self.bundle.sends(place) && self.members[place].health.is_up()
        };
        // Numbers of members in place of ports: flows are mixed with a number other than that of ways.
        let open: ArrayVec<(PortId, Place), MAX_MEMBERS> =
            (0..self.members.len() as Place).filter(sends).map(|place| (PortId(place.into()), place)).collect();
        self.exits = match open[..] {
            [] => Exits::None,
            [(_, place)] => Exits::One(place),
            _ => Exits::Spread(Box::new(Slots::new(&open))),
        };
    }

    fn failed(&mut self, place: usize, error: &NetError) {
        self.behind &= !(1 << place);
        let member = &mut self.members[place];
        if member.health.is_up() {
            self.n_failed += 1;
            tracing::warn!(port = %self.bundle.port, "the bundle continues without a member: {error}");
        }
        member.health.failed(error, member.retry.failed(Instant::now(), error.is_transient()));
        // A device that is opened again has another descriptor.
        self.ears.forget();
        self.follow();
    }

    /// Tries the members that are due, or all.
    #[cold]
    fn revive_members(&mut self, all: bool) {
        let now = Instant::now();
        let mut has_revived = false;
        for member in self.members.iter_mut().filter(|member| member.retry.due().is_some_and(|due| all || due <= now)) {
            match member.device.revive() {
                Ok(()) => {
                    member.retry.revived(now);
                    member.health.revived();
                    self.n_failed -= 1;
                    has_revived = true;
                }
                Err(error) => member.health.failed(&error, member.retry.failed(now, error.is_transient())),
            }
        }
        if has_revived {
            self.ears.forget();
            self.follow();
        }
    }

    /// Whether any member works.
    fn check(&self) -> Result<(), NetError> {
        match self.bundle.devices().next().filter(|_| self.n_failed == self.members.len()) {
            Some(device) => Err(NetError::Down {
                device: device.to_owned(),
                source: io::Error::other("as are all other members of its bundle"),
            }),
            None => Ok(()),
        }
    }

    #[cold]
    fn send_said(&mut self, pool: &mut Pool) {
        for (place, frame) in self.bundle.take_frames() {
            let place = usize::from(place);
            let Some(member) = self.members.get_mut(place).filter(|member| member.health.is_up()) else { continue };
            let Some(mut packet) = pool.take() else { return };
            let mut burst = Burst::new();
            if packet.fill(&frame).is_ok() {
                burst.push(packet);
                if let Err(error) = member.device.tx_burst(pool, &mut burst) {
                    self.failed(place, &error);
                }
            } else {
                pool.put(packet);
            }
            pool.put_all(&mut burst);
        }
    }

    /// Takes out of a member's received frames those that are not for the worker.
    fn sift(&mut self, place: usize, pool: &mut Pool, out: &mut Burst, before: usize) {
        // Frames that came while this switch restarted came at a member that took frames then.
        let has_waited = self.members[place].device.has_waited();
        let takes = self.bundle.takes(place) || has_waited;
        let is_for_worker = |frame: &[u8]| takes && frame.first().is_none_or(|first| first & 1 == 0);
        if out[before..].iter().all(|packet| is_for_worker(packet.frame())) {
            return;
        }
        let mut not_taken = 0;
        let mut kept = Burst::new();
        for packet in out.drain(before..) {
            if self.bundle.hear(place, packet.frame(), has_waited) {
                pool.put(packet);
            } else if takes {
                kept.push(packet);
            } else {
                not_taken += 1;
                pool.put(packet);
            }
        }
        out.extend(kept);
        if not_taken > 0 {
            self.bundle.members[place].tally.not_taken.fetch_add(not_taken, Relaxed);
        }
    }

    /// Sends the frames by the members of their flows. What is left is in `frames`. Returns whether a member failed.
    fn distribute(&mut self, pool: &mut Pool, frames: &mut Burst) -> (usize, bool) {
        match &self.exits {
            Exits::None => return (0, false),
            Exits::One(place) => self.members[usize::from(*place)].staged.extend(frames.drain(..)),
            Exits::Spread(slots) => {
                let shim = if self.bundle.role == Role::Trunk { shim::LEN } else { 0 };
                for packet in frames.drain(..) {
                    let place = slots.port(spread::flow(packet.frame(), shim::AT + shim, self.bundle.seed));
                    self.members[usize::from(place)].staged.push(packet);
                }
            }
        }
        let (mut sent, mut has_failed) = (0, false);
        for place in 0..self.members.len() {
            let member = &mut self.members[place];
            if member.staged.is_empty() {
                continue;
            }
            let result = offload::transmit(&mut *member.device, pool, &mut member.staged);
            frames.extend(member.staged.drain(..));
            match result {
                Ok(n) => sent += n,
                Err(error) => {
                    has_failed = true;
                    self.failed(place, &error);
                }
            }
        }
        (sent, has_failed)
    }
}

impl Device for BundleDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn max_frame(&self) -> usize {
        // The smallest of the devices that are there.
        let known = self.members.iter().map(|member| member.device.max_frame()).filter(|max| *max > 0);
        known.min().unwrap_or(0)
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        if self.n_failed > 0 {
            self.revive_members(false);
        }
        if self.is_first && self.bundle.is_sending.load(Relaxed) {
            self.send_said(pool);
        }
        let (before, n) = (out.len(), self.members.len());
        for _ in 0..n {
            let place = self.next;
            self.next = if place + 1 == n { 0 } else { place + 1 };
            let member = &mut self.members[place];
            if !member.health.is_up() {
                continue;
            }
            let result = member.device.rx_burst(pool, out);
            if self.behind >> place & 1 != 0 && !member.device.has_waited() {
                self.behind &= !(1 << place);
            }
            match result {
                Ok(0) => {}
                Ok(_) => {
                    self.sift(place, pool, out, before);
                    if out.len() > before {
                        self.source = place;
                        break;
                    }
                }
                Err(error) => self.failed(place, &error),
            }
        }
        if out.len() == before {
            self.check()?;
        }
        Ok(out.len() - before)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        if self.version != self.bundle.version() {
            self.follow();
        }
        let (mut sent, has_failed) = self.distribute(pool, frames);
        if has_failed {
            sent += self.distribute(pool, frames).0;
        }
        Ok(sent)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        for (place, member) in self.members.iter_mut().enumerate() {
            if !member.health.is_up() {
                continue;
            }
            match member.device.readiness() {
                Readiness::Ready => return Readiness::Ready,
                Readiness::Descriptor(descriptor) => {
                    if self.ears.add(place, descriptor).is_err() {
                        return Readiness::Ready;
                    }
                }
                Readiness::Exhausted => {}
            }
        }
        Readiness::Descriptor(self.ears.descriptor())
    }

    fn woken(&mut self, _: bool) {
        let faults = self.ears.faults();
        for (place, member) in self.members.iter_mut().enumerate().filter(|(_, member)| member.health.is_up()) {
            member.device.woken(faults >> place & 1 != 0);
        }
    }

    fn has_waited(&self) -> bool {
        // Callers stop at the first refusal, so it must not come before all members have been asked.
        self.behind != 0 || self.members[self.source].device.has_waited()
    }

    fn is_told(&self) -> bool {
        self.members.iter().all(|member| member.health.is_up() && member.device.is_told())
    }

    fn revive(&mut self) -> Result<(), NetError> {
        self.revive_members(true);
        self.check()
    }

    /// Gives its members what they take.
    fn takes_offloads(&self) -> bool {
        true
    }

    fn leads_on(&self) -> bool {
        !matches!(self.exits, Exits::None)
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        Arc::clone(&self.counters)
    }
}

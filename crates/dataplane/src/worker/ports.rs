//! The ports of a worker: by index and by number, those that failed, and those with frames to send.

use crate::bits::PortSet;
use crate::port::{Port, Role};
use crate::retry;
use arrayvec::ArrayVec;
use fib::action::PortId;
use netio::{NetError, Packet, Waiter};
use std::io;
use std::ops::{Index, IndexMut};
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Ports {
    all: Vec<Port>,
    by_id: Box<[Option<u8>]>,
    trunks: PortSet,
    /// Ports at which frames may have waited for this process.
    catching_up: PortSet,
    /// Ports with staged frames.
    staging: PortSet,
    n_down: usize,
    next_revival: Option<Instant>,
    /// Counts failures and revivals of ports.
    n_changes: u32,
}

impl Ports {
    pub(super) fn new(all: Vec<Port>) -> Self {
        let highest = all.iter().map(|port| usize::from(port.id.0)).max().unwrap_or(0);
        let mut by_id = vec![None; highest + 1];
        let (mut trunks, mut catching_up) = (PortSet::default(), PortSet::default());
        for (i, port) in (0..).zip(&all) {
            by_id[usize::from(port.id.0)] = Some(i);
            catching_up.insert(i);
            if port.role == Role::Trunk {
                trunks.insert(i);
            }
        }
        let (staging, by_id) = (PortSet::default(), by_id.into());
        Self { all, by_id, trunks, catching_up, staging, n_down: 0, next_revival: None, n_changes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get_mut(&mut self, index: u8) -> Option<&mut Port> {
        self.all.get_mut(usize::from(index))
    }

    /// The index of the port with a number.
    #[inline]
    pub(super) fn index_of(&self, id: PortId) -> Option<u8> {
        self.by_id.get(usize::from(id.0)).copied().flatten()
    }

    #[inline]
    pub(super) fn is_trunk(&self, index: u8) -> bool {
        self.trunks.contains(index)
    }

    /// The longest frame that the port with a number sends; 0: there is no such port.
    pub(super) fn longest(&self, id: PortId) -> usize {
        self.index_of(id).map_or(0, |index| self[usize::from(index)].device.max_frame())
    }

    /// Whether frames that came in at a port may have waited for this process.
    #[inline]
    pub(super) fn has_waited(&mut self, index: usize) -> bool {
        if !self.catching_up.contains(index as u8) {
            return false;
        }
        let has_waited = self[index].device.has_waited();
        if !has_waited {
            self.catching_up.remove(index as u8);
        }
        has_waited
    }

    /// Stages a frame that leaves by a port, which has room for it.
    #[inline]
    pub(super) fn stage(&mut self, index: u8, packet: Packet) {
        self.staging.insert(index);
        self[usize::from(index)].staged.push(packet);
    }

    /// Takes the next port with staged frames.
    #[inline]
    pub(super) fn next_staging(&mut self) -> Option<usize> {
        self.staging.pop().map(usize::from)
    }

    /// A number that changes with each failure and each revival.
    #[inline]
    pub(super) fn n_changes(&self) -> u32 {
        self.n_changes
    }

    pub(super) fn failed(&mut self, index: usize, error: &NetError) {
        let port = &mut self[index];
        if !port.health.is_up() {
            // Two bursts of one call met the same failure.
            return;
        }
        port.health.failed(error, port.retry.failed(Instant::now(), error.is_transient()));
        self.n_down += 1;
        self.n_changes = self.n_changes.wrapping_add(1);
        self.next_revival = self.earliest_revival();
    }

    /// Tries the ports that are due.
    #[inline]
    pub(super) fn revive(&mut self) {
        if self.n_down > 0 {
            self.revive_due(Instant::now());
        }
    }

    fn revive_due(&mut self, now: Instant) {
        if self.next_revival.is_some_and(|at| now < at) {
            return;
        }
        for port in self.all.iter_mut().filter(|port| port.retry.due().is_some_and(|due| due <= now)) {
            match port.device.revive() {
                Ok(()) => {
                    port.retry.revived(now);
                    port.health.revived();
                    self.n_down -= 1;
                    self.n_changes = self.n_changes.wrapping_add(1);
                }
                // The reason may have changed: the interface was down before, and is missing now.
                Err(error) => port.health.failed(&error, port.retry.failed(now, error.is_transient())),
            }
        }
        self.next_revival = self.earliest_revival();
    }

    fn earliest_revival(&self) -> Option<Instant> {
        self.all.iter().filter_map(|port| port.retry.due()).min()
    }

    /// Sleeps until a frame comes, `waiter` is woken, a port is to be tried again, or `at_most` has passed.
    /// # Errors
    /// poll(2) failed, and not because of a port.
    pub(super) fn sleep(&mut self, waiter: &Waiter, at_most: Option<Duration>) -> io::Result<()> {
        let revival = self.next_revival.map(|at| at.saturating_duration_since(Instant::now()));
        let look = self.all.iter().any(|port| !port.device.is_told()).then_some(retry::SHORTEST);
        let timeout = [at_most, revival, look].into_iter().flatten().min();
        let down: ArrayVec<bool, 255> = self.all.iter().map(|port| !port.health.is_up()).collect();
        waiter.sleep(&mut self.all, |i| down[i], timeout)?;
        Ok(())
    }
}

impl Index<usize> for Ports {
    type Output = Port;

    #[inline]
    fn index(&self, index: usize) -> &Port {
        &self.all[index]
    }
}

impl IndexMut<usize> for Ports {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Port {
        &mut self.all[index]
    }
}

//! The network that a demo runs on: [`Backend`] sends frames and moves cables, [`Control`] speaks to the controller.
//!
//! There are two: processes and network namespaces ([`super::privileged`]), and one process with in-memory ports
//! ([`super::inprocess`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::hosts::{Bulk, Pings};
use super::judge::Judge;
use super::layout::{End, Mac};

/// Set when the demo is to end early.
pub(super) type Stop = AtomicBool;

/// Sets a flag when it is dropped, also by a panic, so that a thread which runs until then ends and its scope can end.
pub(super) struct SetOnDrop<'a>(pub(super) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits, but not longer than until `stop` is set.
pub(super) fn pause(duration: Duration, stop: &Stop) {
    let until = Instant::now() + duration;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

/// Frames, hosts and cables. Shared by the threads of a phase.
pub(super) trait Backend: Sync {
    /// Sends a datagram of a host to another, by the sender's own stack.
    fn send_datagram(&self, from: usize, to: usize, payload: &[u8]);
    /// Puts a whole frame on the cable that the host uses.
    fn send_frame(&self, from: usize, frame: &[u8]);
    /// Every host pings every other.
    fn ping_all(&self, stop: &Stop) -> Result<Pings>;
    /// Whether there is a TCP stack.
    fn has_tcp(&self) -> bool;
    /// Bulk TCP until then, at most `bytes_a_second` a flow if given.
    fn tcp(&self, n_flows: usize, bytes_a_second: Option<u64>, until: Instant, stop: &Stop) -> Result<Bulk>;
    /// Bulk UDP until then, every datagram a probe.
    fn udp(&self, n_flows: usize, judge: &Judge, until: Instant, stop: &Stop) -> Result<Bulk>;
    /// Plugs in the cable that the host does not use, and uses it from now on: its index in `Host::ends`.
    fn plug_other(&self, host: usize) -> Result<usize>;
    /// Pulls the cable that the host does not use.
    fn unplug_other(&self, host: usize) -> Result<()>;
    /// Cuts or restores a trunk.
    fn set_trunk(&self, link: usize, up: bool) -> Result<()>;
}

/// Where a name is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Put {
    pub(super) mac: Mac,
    pub(super) at: End,
    /// Index of the host whose address ARP is to answer with this name.
    pub(super) host: Option<usize>,
}

/// The controller.
pub(super) trait Control {
    /// Starts the switches, which get what the controller knows by then as whole images.
    fn start_switches(&mut self) -> Result<()>;
    /// Adds names, or moves them.
    fn put(&mut self, names: &[Put]) -> Result<()>;
    /// Removes names.
    fn remove(&mut self, names: &[Mac]) -> Result<()>;
    /// Takes a link into or out of use.
    fn set_link(&mut self, link: usize, up: bool) -> Result<()>;
    /// Waits until both ends of a restored trunk are in use again.
    fn wait_trunk(&mut self, link: usize, stop: &Stop) -> Result<()>;
    /// Waits until every switch has confirmed everything so far; an error after a bounded time, or when a part of the
    /// network ended.
    fn wait_in_step(&mut self, stop: &Stop) -> Result<()>;
    /// What the switches hold.
    fn tables(&mut self) -> Result<Tables>;
}

/// Sizes of what the switches hold.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Tables {
    /// Names in the compact table of every switch.
    pub(super) names: u64,
    /// Bytes of the image of each switch.
    pub(super) image_bytes: Vec<u64>,
    /// Frames that the switches dropped, by reason.
    pub(super) drops: BTreeMap<String, u64>,
}

impl Tables {
    /// Bits a name, of the largest image.
    pub(super) fn bits_a_name(&self) -> f64 {
        let largest = self.image_bytes.iter().max().copied().unwrap_or_default();
        if self.names == 0 { 0.0 } else { largest as f64 * 8.0 / self.names as f64 }
    }
}

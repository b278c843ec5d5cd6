//! The network that a demo runs on: [`Backend`] sends frames and moves cables, [`Control`] talks to the controller.
//!
//! There are two: processes in network namespaces ([`super::privileged`]), and one process with in-memory ports
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

/// Sets a flag when it is dropped, also on a panic, so that a thread that runs until the flag is set ends, and its
/// scope with it.
pub(super) struct SetOnDrop<'a>(pub(super) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for `duration`, or until `stop` is set.
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

/// How a trunk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its cable is pulled: both ends lose their carriers.
    Pulled,
    /// It drops every frame, and both ends keep their carriers.
    Silent,
}

/// Frames, hosts and cables. Shared by the threads of a phase.
pub(super) trait Backend: Sync {
    /// Sends a datagram from one host to another through the sender's own stack.
    fn send_datagram(&self, from: usize, to: usize, payload: &[u8]);
    /// Puts a whole frame on the cable that the host uses.
    fn send_frame(&self, from: usize, frame: &[u8]);
    /// Every host pings every other.
    fn ping_all(&self, stop: &Stop) -> Result<Pings>;
    /// Whether there is a TCP stack.
    fn has_tcp(&self) -> bool;
    /// Bulk TCP until `until`, at most `bytes_a_second` per flow if given.
    fn tcp(&self, n_flows: usize, bytes_a_second: Option<u64>, until: Instant, stop: &Stop) -> Result<Bulk>;
    /// Bulk UDP until `until`; every datagram is a probe.
    fn udp(&self, n_flows: usize, judge: &Judge, until: Instant, stop: &Stop) -> Result<Bulk>;
    /// Plugs in the cable that the host does not use, and switches to it. Returns its index in `Host::ends`.
    fn plug_other(&self, host: usize) -> Result<usize>;
    /// Pulls the cable that the host does not use.
    fn unplug_other(&self, host: usize) -> Result<()>;
    /// Pulls the cable that the host uses, and plugs in the other one. Returns its index in `Host::ends`.
    fn carry_over(&self, host: usize) -> Result<usize>;
    /// Cuts or restores a trunk.
    fn set_trunk(&self, link: usize, fault: Fault, up: bool) -> Result<()>;
}

/// Where a name is to be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Put {
    pub(super) mac: Mac,
    pub(super) at: End,
    /// Index of the host for whose address ARP answers with this name.
    pub(super) host: Option<usize>,
}

/// The controller.
pub(super) trait Control {
    /// Starts the switches. They get what the controller knows so far as whole images.
    fn start_switches(&mut self, stop: &Stop) -> Result<()>;
    /// Adds names, or moves them.
    fn put(&mut self, names: &[Put]) -> Result<()>;
    /// Removes names.
    fn remove(&mut self, names: &[Mac]) -> Result<()>;
    /// Kills a controller that follows and serves switches, if there are two that follow. When it was killed.
    fn lose_follower(&mut self) -> Result<Option<Instant>> {
        Ok(None)
    }
    /// Kills the controller that leads, if there are others, and puts names. How long it took until that was acknowledged.
    fn lose_leader(&mut self, names: &[Put], stop: &Stop) -> Result<Option<Duration>> {
        let _ = (names, stop);
        Ok(None)
    }
    /// After the cable of a link was pulled or plugged in, returns when the controller knows: because the switches told it,
    /// or, where they do not watch their cables, because it is told here.
    fn link_changed(&mut self, link: usize, up: bool, stop: &Stop) -> Result<()>;
    /// Lets no path of others lead through a switch any more, step by step, or lets them again. How many changes of paths that took;
    /// none: there is no other path, or it is unknown whether all switches have confirmed a step.
    fn drain(&mut self, switch: usize, undo: bool, stop: &Stop) -> Result<Option<u32>>;
    /// Waits until every switch has confirmed all changes so far. Fails after a bounded time, or when a part of the
    /// network has ended.
    fn wait_in_step(&mut self, stop: &Stop) -> Result<()>;
    /// Sizes of the switches' tables.
    fn tables(&mut self) -> Result<Tables>;
}

/// Sizes of the switches' tables.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Tables {
    /// Names in the compact table of every switch.
    pub(super) names: u64,
    /// Bytes of the image of each switch.
    pub(super) image_bytes: Vec<u64>,
    /// Frames that the switches dropped, by reason.
    pub(super) drops: BTreeMap<String, u64>,
    /// Frames that came faster than the switches took them, and never reached one.
    pub(super) overrun: u64,
    /// Frames that the kernel forwarded for them, if it is to.
    pub(super) in_kernel: Option<u64>,
    /// Why it does not, for the first switch where it does not.
    pub(super) not_in_kernel: Option<String>,
    /// Bytes of memory for each name, by part, of the switch that takes the most and of the controller. Only a network
    /// of processes has them.
    pub(super) switch_memory: BTreeMap<String, f64>,
    pub(super) controller_memory: BTreeMap<String, f64>,
}

/// The bytes for each name in a status page.
pub(super) fn bytes_a_name(status: &serde_json::Value) -> BTreeMap<String, f64> {
    let parts = status["memory"]["bytes_per_name"].as_object().into_iter().flatten();
    parts.filter_map(|(part, bytes)| Some((part.clone(), bytes.as_f64()?))).collect()
}

impl Tables {
    /// Bits per name of the largest image.
    pub(super) fn bits_a_name(&self) -> f64 {
        let largest = self.image_bytes.iter().max().copied().unwrap_or_default();
        if self.names == 0 { 0.0 } else { largest as f64 * 8.0 / self.names as f64 }
    }
}

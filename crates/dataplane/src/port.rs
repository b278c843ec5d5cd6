//! Ports: the role of a port, its health, and the end that a worker has of it.

use crate::acl::PortAcl;
use crate::dhcp::Dhcp;
use crate::groups::Gate;
use crate::known::{Known, Notes};
use crate::retry::Retry;
use crate::source::CheckSource;
use crate::subscriptions::Allowance;
use fib::action::PortId;
use netio::{Burst, Device, NetError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is at the other end of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A host: frames have no shim, and names are checked in both directions.
    Host,
    /// Another switch: frames have a shim.
    Trunk,
    /// Other IP networks: frames to and from the gateway.
    Outside,
}

/// How the frames of a port are received, for people. Its devices may change it.
#[derive(Debug, Clone, Default)]
pub struct DriverText(Arc<Mutex<String>>);

impl DriverText {
    /// The present text.
    pub fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the text.
    pub fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl From<String> for DriverText {
    fn from(text: String) -> Self {
        Self(Arc::new(Mutex::new(text)))
    }
}

/// Whether a port works. Any thread may read it.
#[derive(Debug)]
pub struct PortHealth {
    up: AtomicBool,
    last_failure: Mutex<Option<Failure>>,
}

/// Why a port is down, or was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason, from the last try.
    pub error: String,
    /// How often it has failed since it worked: once when it went down, then with each try.
    pub times: u32,
    /// How long after the failure it is tried again.
    pub wait: Duration,
}

impl PortHealth {
    pub(crate) fn new() -> Self {
        Self { up: AtomicBool::new(true), last_failure: Mutex::new(None) }
    }

    /// Whether the port works.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// The last failure. It is kept when the port works again.
    pub fn last_failure(&self) -> Option<Failure> {
        self.failure().clone()
    }

    fn failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn revived(&self) {
        self.up.store(true, Ordering::Relaxed);
    }

    /// Notes that it failed, and is tried again after `wait`.
    pub(crate) fn failed(&self, error: &NetError, wait: Duration) {
        let was_up = self.up.swap(false, Ordering::Relaxed);
        let mut last = self.failure();
        let times = last.as_ref().filter(|_| !was_up).map_or(0, |failure| failure.times);
        *last = Some(Failure { error: error.to_string(), times: times + 1, wait });
    }
}

/// One worker's end of a port.
pub(crate) struct Port {
    pub(crate) id: PortId,
    pub(crate) role: Role,
    pub(crate) acl: Option<PortAcl>,
    pub(crate) check_source: CheckSource,
    /// Whether an IPv6 router is there, which advertises itself.
    pub(crate) ra_trusted: bool,
    /// Whether untrue sources are noted.
    pub(crate) learns: bool,
    /// True sources that were noted; none: they are not noted.
    pub(crate) notes: Option<Notes>,
    /// Where broadcasts of DHCP go.
    pub(crate) dhcp: Option<Dhcp>,
    /// The limits for copying its frames; none: nothing is copied.
    pub(crate) group_gate: Option<Gate>,
    /// Limits on what its hosts may say of multicast groups.
    pub(crate) allowance: Allowance,
    pub(crate) device: Box<dyn Device>,
    pub(crate) health: Arc<PortHealth>,
    pub(crate) retry: Retry,
    pub(crate) staged: Burst,
    /// True sources of its frames.
    pub(crate) known: Known,
}

impl AsMut<dyn Device> for Port {
    fn as_mut(&mut self) -> &mut (dyn Device + 'static) {
        &mut *self.device
    }
}

//! Ports: the role of a port, its health, and the end that a worker has of it.

use crate::acl::PortAcl;
use crate::source::CheckSource;
use crate::worker::known::Known;
use fib::action::PortId;
use netio::{Burst, Device, NetError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

/// Whether a port works. Any thread may read it.
#[derive(Debug)]
pub struct PortHealth {
    up: AtomicBool,
    last_error: Mutex<Option<String>>,
}

impl PortHealth {
    pub(crate) fn new() -> Self {
        Self { up: AtomicBool::new(true), last_error: Mutex::new(None) }
    }

    /// Whether the port works.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// The last failure. It is kept when the port works again.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn revived(&self) {
        self.up.store(true, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, error: &NetError) {
        self.up.store(false, Ordering::Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }
}

/// One worker's end of a port.
pub(crate) struct Port {
    pub(crate) id: PortId,
    pub(crate) role: Role,
    pub(crate) acl: Option<PortAcl>,
    pub(crate) check_source: CheckSource,
    pub(crate) device: Box<dyn Device>,
    pub(crate) health: Arc<PortHealth>,
    pub(crate) staged: Burst,
    /// Sources of its frames that are true.
    pub(crate) known: Known,
}

impl AsMut<dyn Device> for Port {
    fn as_mut(&mut self) -> &mut (dyn Device + 'static) {
        &mut *self.device
    }
}

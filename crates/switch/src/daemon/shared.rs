//! A replica and the status of its link, as the parts of a switch share them.

use super::trunk::Trunk;
use api::clock;
use api::v1::{Standing, Subscriptions, Verified};
use dataplane::groups::Groups;
use fib::messages::Uplink;
use fib::replica::{Replica, Tables};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch;

/// Which controller serves a switch, and how that one last found it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Served {
    /// As it is called in the configuration; none: none does.
    pub(super) by: Option<String>,
    pub(super) standing: Standing,
}

/// What an agent tells about itself.
#[derive(Clone, Debug, Serialize)]
pub struct LinkStatus {
    /// Whether the stream is up.
    pub connected: bool,
    /// When it came up or went down.
    pub since: SystemTime,
    /// Why it went down; empty at first.
    pub last_error: String,
    /// The latest change of the network that is served.
    pub serving_change: u64,
    /// Streams begun.
    pub connects: u64,
    /// Messages that changed something.
    pub applied: u64,
    /// Messages that were here already.
    pub duplicates: u64,
    /// Why the controller's tables are more than this switch may hold; empty if they are not.
    pub cannot_follow: String,
    /// Messages that did not fit.
    pub refused: u64,
    /// Reports sent because of them.
    pub resyncs: u64,
    /// Bytes of messages received.
    pub received_bytes: u64,
    /// Times that all digests were computed again, and tables that were not as their digest said.
    pub verifications: u64,
    /// See `verifications`.
    pub damaged_tables: u64,
}

impl Default for LinkStatus {
    fn default() -> Self {
        Self {
            connected: false,
            since: clock::now(),
            last_error: String::new(),
            serving_change: 0,
            connects: 0,
            applied: 0,
            duplicates: 0,
            cannot_follow: String::new(),
            refused: 0,
            resyncs: 0,
            received_bytes: 0,
            verifications: 0,
            damaged_tables: 0,
        }
    }
}

/// A replica, its link status and a count of its changes, shared between the agent, the saver and the status page.
pub struct Shared<T: Tables> {
    pub(super) replica: Mutex<Replica<T>>,
    pub(super) status: Mutex<LinkStatus>,
    pub(super) n_changes: watch::Sender<u64>,
    pub(super) unsaved: AtomicBool,
    /// Messages that wait for the replica.
    pub(super) n_waiting: AtomicU32,
    /// The network that the replica is of; 0: not known yet.
    pub(super) cluster: AtomicU64,
    /// The state of the trunks; none until it is known.
    pub(super) trunks: watch::Sender<Option<Vec<Trunk>>>,
    /// Which controller serves this switch, and how.
    pub(super) served: watch::Sender<Served>,
    /// Who receives the broadcasts and multicasts of hosts, and which of them hosts here want.
    pub(super) groups: Arc<Groups>,
    pub(super) subscriptions: watch::Sender<Subscriptions>,
}

impl<T: Tables> Shared<T> {
    /// Shares `replica`.
    pub fn new(replica: Replica<T>) -> Arc<Self> {
        Self::with_groups(replica, Arc::default())
    }

    /// As [`Shared::new`], with what workers read of groups.
    pub fn with_groups(replica: Replica<T>, groups: Arc<Groups>) -> Arc<Self> {
        let cluster = replica.cluster();
        let status = LinkStatus { serving_change: replica.change(), ..LinkStatus::default() };
        Arc::new(Self {
            replica: Mutex::new(replica),
            status: Mutex::new(status),
            n_changes: watch::Sender::new(0),
            unsaved: AtomicBool::new(false),
            n_waiting: AtomicU32::new(0),
            cluster: AtomicU64::new(cluster),
            trunks: watch::Sender::new(None),
            served: watch::Sender::new(Served::default()),
            groups,
            subscriptions: watch::Sender::new(Subscriptions::default()),
        })
    }

    /// Who receives the broadcasts and multicasts of hosts.
    pub fn groups(&self) -> Arc<Groups> {
        Arc::clone(&self.groups)
    }

    /// What hosts here want of multicasts, as the controller is told.
    pub fn subscriptions(&self) -> watch::Receiver<Subscriptions> {
        self.subscriptions.subscribe()
    }

    /// Says what hosts here want of multicasts, to the controller as well.
    pub fn set_subscriptions(&self, subscriptions: Subscriptions) {
        self.subscriptions.send_replace(subscriptions);
    }

    /// Which controller serves this switch, and how that one found it last.
    pub(in crate::daemon) fn served(&self) -> watch::Receiver<Served> {
        self.served.subscribe()
    }

    /// The network that the replica is of; 0: not known yet. Does not wait for the replica.
    pub fn cluster(&self) -> u64 {
        self.cluster.load(Relaxed)
    }

    /// The state of the trunks.
    pub fn trunks(&self) -> Vec<Trunk> {
        self.trunks.borrow().clone().unwrap_or_default()
    }

    /// Says what is seen at the trunks, to the controller as well.
    pub fn set_trunks(&self, trunks: Vec<Trunk>) {
        self.trunks.send_replace(Some(trunks));
    }

    /// The replica, locked: hold it shortly, messages wait meanwhile.
    pub fn replica(&self) -> MutexGuard<'_, Replica<T>> {
        self.replica.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Shared::replica`], for a message: a save that holds the replica gives way.
    pub(super) fn replica_for_message(&self) -> MutexGuard<'_, Replica<T>> {
        self.n_waiting.fetch_add(1, Relaxed);
        let replica = self.replica();
        self.n_waiting.fetch_sub(1, Relaxed);
        replica
    }

    /// Whether a message waits for the replica.
    pub fn is_awaited(&self) -> bool {
        self.n_waiting.load(Relaxed) > 0
    }

    /// The link's status now.
    pub fn status(&self) -> LinkStatus {
        self.lock_status().clone()
    }

    /// Counts the messages that changed the replica.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.n_changes.subscribe()
    }

    /// Marks the replica as changed: it is to be saved.
    pub fn changed(&self) {
        self.unsaved.store(true, Relaxed);
        self.n_changes.send_modify(|n| *n += 1);
    }

    /// If the replica changed since the last call, saves it with `save` and counts it as saved;
    /// [`Shared::keep_unsaved`] takes that back.
    pub fn take_unsaved<R>(&self, save: impl FnOnce(&Replica<T>) -> R) -> Option<R> {
        let replica = self.replica();
        self.unsaved.swap(false, Relaxed).then(|| save(&replica))
    }

    /// Notes that what was taken could not be saved.
    pub fn keep_unsaved(&self) {
        self.unsaved.store(true, Relaxed);
    }

    pub(super) fn lock_status(&self) -> MutexGuard<'_, LinkStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes all digests again.
    pub fn verify(&self, verify: u64) -> Verified {
        let found = self.replica().verify();
        {
            let mut status = self.lock_status();
            status.verifications += 1;
            status.damaged_tables += found.damage.len() as u64;
        }
        Verified { verify, report: Uplink::Report(found.report).encode().into(), damage: found.damage }
    }

    /// A report of what the switch holds, as it is sent.
    pub fn report(&self) -> Vec<u8> {
        Uplink::Report(self.replica().report()).encode()
    }
}

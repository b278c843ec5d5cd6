//! State shared by the writer, the pusher, the services and the status page: counters and the connected switches.

use crate::session::Session;
use fib::topology::NodeId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// Counters since the start, sizes as of the last commit, sessions as of now.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) started: Instant,
    pub(crate) changes: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) message_bytes: AtomicU64,
    pub(crate) resyncs: AtomicU64,
    /// Lists that the pusher has but has not yet queued for their switches.
    pub(crate) pending_pushes: AtomicU64,
    /// Notified when switches are parked that may be released after some time.
    pub(crate) parked: Notify,
    pub(crate) sizes: Sizes,
    sessions: Mutex<BTreeMap<NodeId, (String, Arc<Session>)>>,
}

/// The sizes of the network.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) names: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) links: AtomicU64,
    pub(crate) hosts: AtomicU64,
    /// Bytes of the names with their places, and of the skeletons with the views.
    pub(crate) rib_bytes: AtomicU64,
    pub(crate) skeleton_bytes: AtomicU64,
}

/// A connected switch.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) sent_messages: u64,
    pub(crate) acked_messages: u64,
    pub(crate) sent_bytes: u64,
    /// Whether everything committed so far is sent and acknowledged.
    pub(crate) in_step: bool,
}

impl Shared {
    pub(crate) fn new() -> Arc<Shared> {
        Arc::new(Shared {
            started: Instant::now(),
            changes: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            message_bytes: AtomicU64::new(0),
            resyncs: AtomicU64::new(0),
            pending_pushes: AtomicU64::new(0),
            parked: Notify::new(),
            sizes: Sizes::default(),
            sessions: Mutex::new(BTreeMap::new()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, (String, Arc<Session>)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session; ends an earlier one of the same switch.
    pub(crate) fn insert_session(&self, name: &str, session: &Arc<Session>) {
        if let Some((_, before)) = self.lock().insert(session.node(), (name.to_owned(), Arc::clone(session))) {
            before.end();
        }
    }

    /// Removes a session, unless another has replaced it.
    pub(crate) fn remove_session(&self, session: &Arc<Session>) -> bool {
        let mut sessions = self.lock();
        let is_current = sessions.get(&session.node()).is_some_and(|(_, current)| Arc::ptr_eq(current, session));
        if is_current {
            sessions.remove(&session.node());
        }
        is_current
    }

    pub(crate) fn session(&self, node: NodeId) -> Option<Arc<Session>> {
        self.lock().get(&node).map(|(_, session)| Arc::clone(session))
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.lock().values().map(|(_, session)| Arc::clone(session)).collect()
    }

    pub(crate) fn end_sessions(&self) {
        for session in self.sessions() {
            session.end();
        }
    }

    pub(crate) fn connected(&self) -> Vec<Connected> {
        // Read before the sessions: a push that is queued in between makes a switch look late, never in step too soon.
        let nothing_pending = self.pending_pushes.load(Acquire) == 0;
        let state = |(node, (name, session)): (&NodeId, &(String, Arc<Session>))| {
            let (sent_messages, acked_messages, sent_bytes) = session.progress();
            let told_all = nothing_pending && !session.is_parked() && !session.is_ended();
            let in_step = told_all && sent_messages == acked_messages;
            Connected { node: *node, name: name.clone(), sent_messages, acked_messages, sent_bytes, in_step }
        };
        self.lock().iter().map(state).collect()
    }
}

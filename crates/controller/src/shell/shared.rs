//! State that the writer, the pusher, the services and the status page share: the sessions, the counters, and what is known of switches.

use crate::core::duplicates::DuplicateNames;
use crate::core::elsewhere::{Elsewhere, There};
use crate::core::happened::Level;
use crate::core::history::History;
use crate::core::learning::Counts;
use crate::core::pending::PendingSwitches;
use crate::core::presence::{Absent, Connected, Presence};
use crate::core::session::Line;
use crate::core::subscriptions::Subscriptions;
use crate::shell::events::Events;
use crate::shell::guarded::Guarded;
use crate::shell::lead::Lead;
use crate::shell::reads::Reads;
use crate::shell::session::Session;
use crate::store::Leader;
use api::status::Histogram;
use api::v1;
use api::v1::Standing;
use fib::topology::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;
use tokio::sync::Notify;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) started: Instant,
    /// Since the start.
    pub(crate) totals: Totals,
    /// As of the last commit.
    pub(crate) sizes: Sizes,
    /// How far the messages of what is committed have got.
    pub(crate) progress: Progress,
    /// What is known of switches, and of their wishes.
    pub(crate) known: Known,
    /// Events, in words.
    pub(crate) events: Events,
    /// Questions to the writer.
    pub(crate) reads: Reads,
    /// Who leads, and how far this controller follows.
    pub(crate) lead: Lead,
    sessions: Guarded<BTreeMap<NodeId, (String, Arc<Session>)>>,
}

/// What was done since the start.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) changes: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) message_bytes: AtomicU64,
    pub(crate) resyncs: AtomicU64,
    /// Changes refused because a tenant was too fast, and reports that had to wait.
    pub(crate) too_fast: AtomicU64,
    pub(crate) reports_delayed: AtomicU64,
    /// From a message to its acknowledgement, for one message of a switch at a time.
    pub(crate) update_times: Histogram,
}

/// How far the messages of what is committed have got.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Groups of changes committed, and those whose messages are made.
    pub(crate) committed: AtomicU64,
    pub(crate) made: AtomicU64,
    /// Lists that the pusher has but has not yet queued for their switches.
    pub(crate) pending_pushes: AtomicU64,
    /// Notified when switches are parked that may be released after some time.
    pub(crate) parked: Notify,
    /// Whether the writer waits until less waits for the switches.
    pub(crate) wants_room: AtomicBool,
}

/// What is known of switches, and of their wishes, each decided by its module in [`crate::core`].
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// What names want of multicasts.
    pub(crate) subscriptions: Guarded<Subscriptions>,
    /// Notified when that changed.
    pub(crate) subscriptions_changed: Notify,
    /// Switches that wait to be accepted.
    pub(crate) pending: Guarded<PendingSwitches>,
    /// Switches that claim the same name.
    pub(crate) duplicates: Guarded<DuplicateNames>,
    /// Switches that are not connected.
    pub(crate) presence: Guarded<Presence>,
    /// Switches that are connected to other controllers.
    pub(crate) elsewhere: Guarded<Elsewhere>,
    /// The traffic of switches in the last hour.
    pub(crate) history: Guarded<History>,
}

impl Known {
    /// Takes a switch's list of what its names want; none: it does not learn that.
    pub(crate) fn hear_subscriptions(&self, node: NodeId, said: Option<v1::Subscriptions>) {
        let is_news = self.subscriptions.lock().hear(node, said);
        if is_news {
            self.subscriptions_changed.notify_one();
        }
    }
}

/// The sizes of the network.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) names: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) links: AtomicU64,
    pub(crate) hosts: AtomicU64,
    /// The number of names that are learnt.
    pub(crate) learnt: AtomicU64,
    /// The outcome of what switches saw at host ports, and how much of it is listed.
    pub(crate) seen: Guarded<(Counts, usize)>,
    /// How many parts of tables changes of names made anew, by design.
    pub(crate) rebuilt: Guarded<BTreeMap<&'static str, u64>>,
    /// Destinations that share a value at a switch; switches without any are left out.
    pub(crate) sharing: Guarded<BTreeMap<NodeId, usize>>,
    /// Bytes of the names with their places, and of the skeletons with the views.
    pub(crate) rib_bytes: AtomicU64,
    pub(crate) skeleton_bytes: AtomicU64,
}

impl Shared {
    pub(crate) fn new() -> Arc<Shared> {
        Arc::new(Shared {
            started: Instant::now(),
            totals: Totals::default(),
            sizes: Sizes::default(),
            progress: Progress::default(),
            known: Known::default(),
            events: Events::default(),
            reads: Reads::default(),
            lead: Lead::new(),
            sessions: Guarded::default(),
        })
    }

    /// Notes who leads; none if this controller does.
    pub(crate) fn set_leader(&self, leader: Option<Leader>) {
        let text = leader.as_ref().map_or_else(|| "leads".to_owned(), |leader| format!("follows {leader}"));
        self.events.note("controller", Level::Info, "this controller", text);
        self.lead.set_leader(leader);
    }

    /// Whether another controller serves a switch, and this one does not.
    pub(crate) fn there(&self, node: NodeId) -> Option<There> {
        if self.session(node).is_some() { None } else { self.known.elsewhere.lock().get(node, api::seam::now()) }
    }

    /// The standing of a switch that this controller serves: in step as of a commit that was made before the call, or not.
    pub(crate) fn standing(&self, session: &Session) -> Standing {
        // As in `connected`; what is committed meanwhile counts for the next time.
        let position = self.lead.last_commit();
        let is_told = !session.lock().is_parked();
        let all_made = self.progress.made.load(Acquire) >= self.progress.committed.load(Acquire);
        let session = session.lock();
        let (sent_messages, acknowledged_messages, sent_bytes) = session.progress();
        let cannot_follow = session.stuck().unwrap_or_default().to_owned();
        let in_step = session.is_in_step(is_told, all_made);
        Standing { in_step, position, cannot_follow, sent_messages, acknowledged_messages, sent_bytes }
    }

    /// The state here may differ from the one that was committed.
    pub(crate) fn stray(&self, why: &str) {
        tracing::warn!(why, "this controller cannot follow; it reads all rows again, and its switches reconnect");
        self.lead.strayed.fetch_add(1, Relaxed);
        self.lead.set_position(None);
        self.end_sessions();
    }

    /// Adds a session; ends an earlier one of the same switch. It has been behind for as long as the switch has.
    pub(crate) fn insert_session(&self, name: &str, session: &Arc<Session>) {
        let node = session.lock().node();
        self.known.elsewhere.lock().forget(node);
        let before = self.sessions.lock().insert(node, (name.to_owned(), Arc::clone(session)));
        if let Some((name, before)) = before {
            let all_made = self.progress.made.load(Acquire) >= self.progress.committed.load(Acquire);
            let was_in_step = before.with(|before| !before.is_parked() && before.serves_all_made() && all_made);
            self.leave(name, &before, was_in_step);
            before.lock().end();
        }
        let in_step_at = self.known.presence.lock().in_step_at(node);
        if let Some(at) = in_step_at {
            session.lock().said().set_in_step_at(at);
        }
    }

    /// What is reported of a switch whose session ends.
    fn leave(&self, name: String, session: &Session, was_in_step: bool) {
        let last = state_of(name, session, was_in_step, 0);
        self.known.presence.lock().leave(&last, self.totals.transactions.load(Relaxed), api::seam::now());
    }

    /// The switches that are known and not among `connected`.
    pub(crate) fn absent(&self, connected: &[Connected]) -> Vec<Absent> {
        self.known.presence.lock().absent(connected, self.totals.transactions.load(Relaxed), api::seam::now())
    }

    /// Removes a session, unless another has replaced it.
    pub(crate) fn remove_session(&self, session: &Arc<Session>, was_in_step: bool) {
        let node = session.lock().node();
        let mut sessions = self.sessions.lock();
        let is_current = sessions.get(&node).is_some_and(|(_, current)| current.is(session));
        let removed = if is_current { sessions.remove(&node) } else { None };
        drop(sessions);
        if let Some((name, session)) = removed {
            self.leave(name, &session, was_in_step);
        }
    }

    pub(crate) fn session(&self, node: NodeId) -> Option<Arc<Session>> {
        self.sessions.lock().get(&node).map(|(_, session)| Arc::clone(session))
    }

    /// Whether a switch of this name is connected.
    pub(crate) fn serves(&self, name: &str) -> bool {
        self.sessions.lock().values().any(|(of, session)| of == name && !session.lock().is_ended())
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().map(|(_, session)| Arc::clone(session)).collect()
    }

    /// Notes what comes into each switch that is connected.
    pub(crate) fn note_history(&self) {
        let now = api::seam::now();
        let all: Vec<_> =
            self.sessions.lock().values().map(|(name, session)| (name.clone(), Arc::clone(session))).collect();
        let rates =
            all.into_iter().map(|(name, session)| (name, session.lock().said().rates(now).map(|rates| rates.bytes_in)));
        self.known.history.lock().add(rates);
    }

    pub(crate) fn end_sessions(&self) {
        for session in self.sessions() {
            session.lock().end();
        }
    }

    /// The switches that are connected, and whether they are in step.
    ///
    /// The order of reading makes the claim true. A change that was committed before has made its messages, or its switch
    /// was parked. A switch is released only after the messages with all that it lacks are made. So a switch that is not
    /// parked, when after that no committed change is without its messages, and when after that it serves all made for
    /// it, serves every change committed before the first of these.
    pub(crate) fn connected(&self) -> Vec<Connected> {
        let session =
            |(name, session): &(String, Arc<Session>)| (name.clone(), Arc::clone(session), !session.lock().is_parked());
        let sessions: Vec<_> = self.sessions.lock().values().map(session).collect();
        let committed = self.progress.committed.load(Acquire);
        let sharing = self.sizes.sharing.lock().clone();
        let all_made = self.progress.made.load(Acquire) >= committed;
        let state = |(name, session, told): (String, Arc<Session>, bool)| {
            let (node, in_step) = session.with(|session| (session.node(), session.is_in_step(told, all_made)));
            let sharing = sharing.get(&node).map_or(0, |n| *n as u64);
            state_of(name, &session, in_step, sharing)
        };
        sessions.into_iter().map(state).collect()
    }
}

/// What is reported of a switch with a session; `in_step` counts only what it can follow.
fn state_of(name: String, session: &Session, in_step: bool, sharing: u64) -> Connected {
    let mut session = session.lock();
    let (sent_messages, acked_messages, sent_bytes) = session.progress();
    let cannot_follow = session.stuck().map(str::to_owned);
    let in_step = in_step && cannot_follow.is_none();
    let behind = session.said().behind(in_step, api::seam::now());
    Connected {
        node: session.node(),
        name,
        sent_messages,
        acked_messages,
        sent_bytes,
        in_step,
        cannot_follow,
        behind,
        sharing,
    }
}

//! State shared by the writer, the pusher, the services and the status page: counters and the connected switches.

use crate::away::{Absent, Away};
use crate::change::Refusal;
use crate::elsewhere::{Elsewhere, There};
use crate::events::{Events, Level};
use crate::groups;
use crate::history::History;
use crate::learning::Learning;
use crate::newcomers::Newcomers;
use crate::reads::Reads;
use crate::relay::Relays;
use crate::session::Session;
use crate::store::{Follower, Leader};
use crate::subscriptions::Subscriptions;
use crate::trunks::Trunks;
use crate::twins::Twins;
use api::seam::{Mistake, mistaken};
use api::status::Histogram;
use api::v1::Standing;
use fib::topology::NodeId;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Counters since the start, sizes as of the last commit, sessions as of now.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) started: Instant,
    pub(crate) changes: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) message_bytes: AtomicU64,
    pub(crate) resyncs: AtomicU64,
    /// Groups of changes committed, and those whose messages are made.
    pub(crate) committed: AtomicU64,
    pub(crate) made: AtomicU64,
    /// Changes refused because a tenant was too fast, and reports that had to wait.
    pub(crate) too_fast: AtomicU64,
    pub(crate) reports_delayed: AtomicU64,
    /// Lists that the pusher has but has not yet queued for their switches.
    pub(crate) pending_pushes: AtomicU64,
    /// Notified when switches are parked that may be released after some time.
    pub(crate) parked: Notify,
    /// Whether the writer waits until less waits for the switches.
    pub(crate) wants_room: AtomicBool,
    pub(crate) sizes: Sizes,
    /// What switches see at their trunks.
    pub(crate) trunks: Trunks,
    /// What they see at their host ports.
    pub(crate) learning: Learning,
    /// What names want of multicasts.
    pub(crate) subscriptions: Subscriptions,
    /// For whom multicasts are, as configured.
    pub(crate) groups: OnceLock<groups::Settings>,
    /// What happened, in words.
    pub(crate) events: Events,
    /// From a message to its acknowledgement, for one message of a switch at a time.
    pub(crate) update_times: Histogram,
    /// Questions to the writer.
    pub(crate) reads: Reads,
    /// Held while all names are looked at.
    pub(crate) scanning: tokio::sync::Mutex<()>,
    /// Held while names that are to be the only ones come.
    pub(crate) replacing: Arc<tokio::sync::Mutex<()>>,
    /// Held while something is drained.
    pub(crate) draining: tokio::sync::Mutex<()>,
    /// Switches that wait to be accepted.
    pub(crate) newcomers: Newcomers,
    /// Switches that say the same name.
    pub(crate) twins: Twins,
    /// Switches that are not connected.
    pub(crate) away: Away,
    /// Switches that are connected to other controllers.
    pub(crate) elsewhere: Elsewhere,
    /// What operators ask switches.
    pub(crate) relays: Relays,
    /// The number of the last commit of this controller, while it leads.
    committed_to: AtomicU64,
    /// What they carried in the last hour.
    pub(crate) history: History,
    /// The controller that leads while this one follows.
    leader: watch::Sender<Option<Leader>>,
    /// What this one follows by, once it does.
    follower: Mutex<Option<Arc<Follower>>>,
    /// The number of the last commit that is carried out here. None: unknown, so nothing is carried out until all rows are
    /// read.
    position: watch::Sender<Option<u64>>,
    /// Whether switches are sent on to other controllers.
    pub(crate) drained: AtomicBool,
    /// How often all rows had to be read again.
    pub(crate) strayed: AtomicU64,
    sessions: Mutex<BTreeMap<NodeId, (String, Arc<Session>)>>,
}

/// The sizes of the network.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) names: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) links: AtomicU64,
    pub(crate) hosts: AtomicU64,
    /// Of the names, those that switches found.
    pub(crate) learnt: AtomicU64,
    /// Parts of tables that changes of names made anew, by design.
    pub(crate) rebuilt: Mutex<BTreeMap<&'static str, u64>>,
    /// Of them, those in networks that were replaced.
    pub(crate) rebuilt_before: Mutex<BTreeMap<&'static str, u64>>,
    /// Destinations that share a value at a switch; of switches at which there are none, nothing.
    pub(crate) sharing: Mutex<BTreeMap<NodeId, usize>>,
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
    /// Whether the switch serves everything that was committed when the status was asked for.
    pub(crate) in_step: bool,
    /// Why it cannot hold what it should; none if it can.
    pub(crate) cannot_follow: Option<String>,
    /// How long it has not been in step, as far as it was looked.
    pub(crate) behind: Duration,
    /// Destinations that share a value with others there.
    pub(crate) sharing: u64,
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
            committed: AtomicU64::new(0),
            made: AtomicU64::new(0),
            too_fast: AtomicU64::new(0),
            reports_delayed: AtomicU64::new(0),
            pending_pushes: AtomicU64::new(0),
            parked: Notify::new(),
            wants_room: AtomicBool::new(false),
            sizes: Sizes::default(),
            trunks: Trunks::default(),
            learning: Learning::default(),
            subscriptions: Subscriptions::default(),
            reads: Reads::default(),
            groups: OnceLock::new(),
            events: Events::default(),
            update_times: Histogram::default(),
            scanning: tokio::sync::Mutex::new(()),
            replacing: Arc::default(),
            draining: tokio::sync::Mutex::new(()),
            newcomers: Newcomers::default(),
            twins: Twins::default(),
            away: Away::default(),
            elsewhere: Elsewhere::default(),
            relays: Relays::default(),
            committed_to: AtomicU64::new(0),
            history: History::default(),
            leader: watch::Sender::new(None),
            follower: Mutex::default(),
            position: watch::Sender::new(None),
            drained: AtomicBool::new(false),
            strayed: AtomicU64::new(0),
            sessions: Mutex::new(BTreeMap::new()),
        })
    }

    pub(crate) fn set_leader(&self, leader: Option<Leader>) {
        let text = leader.as_ref().map_or_else(|| "leads".to_owned(), |leader| format!("follows {leader}"));
        self.events.note("controller", Level::Info, "this controller", text);
        self.leader.send_replace(leader);
    }

    pub(crate) fn leader(&self) -> Option<Leader> {
        self.leader.borrow().clone()
    }

    /// Returns when another controller is known to lead.
    pub(crate) async fn until_another_leads(&self) {
        let _ = self.leader.subscribe().wait_for(Option::is_some).await;
    }

    /// The refusal of what only the one that leads does.
    pub(crate) fn not_leader(&self) -> Refusal {
        let leader = self.leader().map_or_else(|| "another controller".to_owned(), |leader| leader.to_string());
        Refusal::NotLeader { leader }
    }

    /// Whether other controllers may serve the switches of this one.
    pub(crate) fn has_others(&self) -> bool {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(crate) fn set_follower(&self, follower: &Arc<Follower>) {
        *self.follower.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(follower));
    }

    pub(crate) fn position(&self) -> Option<u64> {
        *self.position.borrow()
    }

    /// As [`Shared::position`], while another controller leads.
    pub(crate) fn followed_to(&self) -> Option<u64> {
        self.position().filter(|_| self.leader().is_some())
    }

    /// The number of the last commit that is carried out here, or made here. None: it is not known, or nobody follows.
    pub(crate) fn last_commit(&self) -> Option<u64> {
        match self.leader() {
            Some(_) => self.position(),
            None => self.has_others().then(|| self.committed_to.load(Relaxed)),
        }
    }

    pub(crate) fn set_committed_to(&self, number: u64) {
        self.committed_to.store(number, Relaxed);
    }

    /// A switch that another controller serves, and not this one.
    pub(crate) fn there(&self, node: NodeId) -> Option<There> {
        if self.session(node).is_some() { None } else { self.elsewhere.get(node, api::seam::now()) }
    }

    /// How a switch is found that this controller serves: in step as of a commit that was made before the call, or not.
    pub(crate) fn standing(&self, session: &Session) -> Standing {
        // As in `connected`; what is committed meanwhile counts for the next time.
        let position = self.last_commit();
        let is_told = !session.is_parked();
        let all_made = self.made.load(Acquire) >= self.committed.load(Acquire);
        let (sent_messages, acknowledged_messages, sent_bytes) = session.progress();
        let cannot_follow = session.stuck().unwrap_or_default();
        let in_step =
            is_told && all_made && session.serves_all_made() && !session.is_ended() && cannot_follow.is_empty();
        Standing { in_step, position, cannot_follow, sent_messages, acknowledged_messages, sent_bytes }
    }

    pub(crate) fn set_position(&self, number: Option<u64>) {
        self.position.send_replace(number);
    }

    /// The state here is not the one that was committed, or may not be.
    pub(crate) fn stray(&self, why: &str) {
        tracing::warn!(why, "this controller cannot follow; it reads all rows again, and its switches connect anew");
        self.strayed.fetch_add(1, Relaxed);
        self.set_position(None);
        self.end_sessions();
    }

    /// Returns when this controller has strayed.
    pub(crate) async fn until_strayed(&self) {
        let _ = self.position.subscribe().wait_for(Option::is_none).await;
    }

    /// Returns when this controller follows again.
    pub(crate) async fn until_followed(&self) {
        let _ = self.position.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns when this controller knows everything that was committed before the call. At once, if it leads.
    /// # Errors
    /// [`Refusal::NotUpToDate`] after `patience`.
    pub(crate) async fn up_to_date(&self, patience: Duration) -> Result<(), Refusal> {
        let follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(follower) = follower.filter(|_| self.leader().is_some()) else { return Ok(()) };
        let known = async {
            let last = follower.last_commit(patience).await.ok()?.number;
            let is_there = |position: &Option<u64>| position.is_some_and(|position| position >= last);
            self.position.subscribe().wait_for(is_there).await.ok().map(drop)
        };
        match tokio::time::timeout(patience, known).await {
            Ok(Some(())) => Ok(()),
            _ => Err(Refusal::NotUpToDate),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, (String, Arc<Session>)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session; ends an earlier one of the same switch. It has been behind for as long as the switch has.
    pub(crate) fn insert_session(&self, name: &str, session: &Arc<Session>) {
        self.elsewhere.forget(session.node());
        let before = self.lock().insert(session.node(), (name.to_owned(), Arc::clone(session)));
        if let Some((name, before)) = before {
            self.leave(name, &before);
            before.end();
        }
        if let Some(at) = self.away.in_step_at(session.node()) {
            session.said().set_in_step_at(at);
        }
    }

    /// What is told of a switch whose session ends.
    fn leave(&self, name: String, session: &Arc<Session>) {
        let was_in_step = !session.is_parked()
            && session.serves_all_made()
            && self.made.load(Acquire) >= self.committed.load(Acquire);
        let last = state_of(name, session, was_in_step, 0);
        self.away.leave(&last, self.transactions.load(Relaxed), api::seam::now());
    }

    /// The switches that are known and not among `connected`.
    pub(crate) fn absent(&self, connected: &[Connected]) -> Vec<Absent> {
        self.away.absent(connected, self.transactions.load(Relaxed), api::seam::now())
    }

    /// Removes a session, unless another has replaced it.
    pub(crate) fn remove_session(&self, session: &Arc<Session>) -> bool {
        let mut sessions = self.lock();
        let is_current = sessions.get(&session.node()).is_some_and(|(_, current)| Arc::ptr_eq(current, session))
            || mistaken(Mistake::DetachRemovesNewer);
        let removed = if is_current { sessions.remove(&session.node()) } else { None };
        drop(sessions);
        if let Some((name, session)) = removed {
            self.leave(name, &session);
        }
        is_current
    }

    pub(crate) fn session(&self, node: NodeId) -> Option<Arc<Session>> {
        self.lock().get(&node).map(|(_, session)| Arc::clone(session))
    }

    /// Whether a switch of this name is connected.
    pub(crate) fn serves(&self, name: &str) -> bool {
        self.lock().values().any(|(of, session)| of == name && !session.is_ended())
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.lock().values().map(|(_, session)| Arc::clone(session)).collect()
    }

    /// Notes what comes into each switch that is connected.
    pub(crate) fn note_history(&self) {
        let now = api::seam::now();
        let all: Vec<_> = self.lock().values().map(|(name, session)| (name.clone(), Arc::clone(session))).collect();
        self.history
            .add(all.into_iter().map(|(name, session)| (name, session.said().rates(now).map(|rates| rates.bytes_in))));
    }

    pub(crate) fn end_sessions(&self) {
        for session in self.sessions() {
            session.end();
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
            |(name, session): &(String, Arc<Session>)| (name.clone(), Arc::clone(session), !session.is_parked());
        let sessions: Vec<_> = self.lock().values().map(session).collect();
        let committed = self.committed.load(Acquire);
        let sharing = self.sizes.sharing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all_made = self.made.load(Acquire) >= committed || mistaken(Mistake::StatusIgnoresMaking);
        let state = |(name, session, told): (String, Arc<Session>, bool)| {
            let in_step = told && all_made && session.serves_all_made() && !session.is_ended();
            let sharing = sharing.get(&session.node()).map_or(0, |n| *n as u64);
            state_of(name, &session, in_step, sharing)
        };
        sessions.into_iter().map(state).collect()
    }
}

/// What is told of a switch with a session; `in_step`: as far as it can follow at all.
fn state_of(name: String, session: &Session, in_step: bool, sharing: u64) -> Connected {
    let (sent_messages, acked_messages, sent_bytes) = session.progress();
    let cannot_follow = session.stuck();
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

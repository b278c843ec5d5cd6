//! The controller that leads, and how far this one follows.

use crate::core::change::Refusal;
use crate::shell::guarded::Guarded;
use crate::store::{Follower, Leader};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use tokio::sync::watch;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lead {
    /// The controller that leads while this one follows.
    leader: watch::Sender<Option<Leader>>,
    /// How this controller follows, once it does.
    follower: Guarded<Option<Arc<Follower>>>,
    /// The number of the last commit that is carried out here. None: unknown, so nothing is carried out until all rows are
    /// read.
    position: watch::Sender<Option<u64>>,
    /// The number of the last commit of this controller, while it leads.
    committed_to: AtomicU64,
    /// Whether switches are sent on to other controllers.
    pub(crate) drained: AtomicBool,
    /// How often all rows had to be read again.
    pub(crate) strayed: AtomicU64,
}

impl Lead {
    pub(crate) fn new() -> Lead {
        Lead {
            leader: watch::Sender::new(None),
            follower: Guarded::default(),
            position: watch::Sender::new(None),
            committed_to: AtomicU64::new(0),
            drained: AtomicBool::new(false),
            strayed: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_leader(&self, leader: Option<Leader>) {
        self.leader.send_replace(leader);
    }

    pub(crate) fn leader(&self) -> Option<Leader> {
        self.leader.borrow().clone()
    }

    /// Returns when another controller is known to lead.
    pub(crate) async fn until_another_leads(&self) {
        let _ = self.leader.subscribe().wait_for(Option::is_some).await;
    }

    /// The refusal of requests that only the leader serves.
    pub(crate) fn not_leader(&self) -> Refusal {
        Refusal::NotLeader { leader: self.leader_name() }
    }

    /// The name of the leader.
    pub(crate) fn leader_name(&self) -> String {
        self.leader().map_or_else(|| "another controller".to_owned(), |leader| leader.to_string())
    }

    /// Whether other controllers may serve the switches of this one.
    pub(crate) fn has_others(&self) -> bool {
        self.follower.lock().is_some()
    }

    pub(crate) fn set_follower(&self, follower: &Arc<Follower>) {
        *self.follower.lock() = Some(Arc::clone(follower));
    }

    pub(crate) fn position(&self) -> Option<u64> {
        *self.position.borrow()
    }

    /// As [`Lead::position`], while another controller leads.
    pub(crate) fn followed_to(&self) -> Option<u64> {
        self.position().filter(|_| self.leader().is_some())
    }

    /// The number of the last commit that is carried out or made here. None if it is unknown, or no controller follows.
    pub(crate) fn last_commit(&self) -> Option<u64> {
        match self.leader() {
            Some(_) => self.position(),
            None => self.has_others().then(|| self.committed_to.load(Relaxed)),
        }
    }

    pub(crate) fn set_committed_to(&self, number: u64) {
        self.committed_to.store(number, Relaxed);
    }

    pub(crate) fn set_position(&self, number: Option<u64>) {
        self.position.send_replace(number);
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
        let follower = self.follower.lock().clone();
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
}

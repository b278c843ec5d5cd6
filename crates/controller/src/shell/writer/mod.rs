//! The one thread that has the [owner](crate::core::owner) of the network, and the store.
//!
//! It takes what waits in its queue, and handles each turn as the owner's contract says: commits its rows, then hands out answers,
//! messages and events. Reads run after the commit, so they see durable state only; they have a queue of their own, so that they hold
//! up no change: see [`reads`](crate::shell::reads).
//!
//! If the store fails, memory is ahead of it: the group is answered with the failure, and the thread and the controller
//! end. A restart has the state of the last commit, which is all that was ever sent.

mod hand_out;
mod publish;
#[cfg(test)]
mod tests;

use crate::core::change::State;
use crate::core::owner::{self, BULK_NAMES, Bounds, Input, Taken};
use crate::core::pace::Rates;
use crate::core::push::Outgoing;
use crate::shell::backup::{Copied, TURN_ROWS};
use crate::shell::job::{Job, Ticket};
use crate::shell::reads::TURN_READS;
use crate::shell::restore::{StartError, restore};
use crate::shell::session::Session;
use crate::shell::shared::Shared;
use crate::shell::telemetry::Trace;
use crate::store::{NOTHING, RowChange, Store, StoreError};
use api::seam::now;
use api::throttle::Throttle;
use fib::durable::VIEW;
use fib::network::{NetworkError, Rekeyed, Settings};
use lookup::hash::SecretKey;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError::{Disconnected, Empty};

/// Holes that batches leave are given back at most this often: the next batch has to ask for the pages again.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

/// Rows of views that are read at a time.
const PAGE_ROWS: usize = 2048;

type Owner = owner::Owner<Arc<Session>, Ticket>;

pub(crate) struct Writer {
    pub(crate) owner: Owner,
    /// None while another controller leads.
    store: Option<Copied>,
    shared: Arc<Shared>,
    pushes: mpsc::Sender<Vec<Outgoing<Arc<Session>>>>,
    /// Traces of the changes of the group, in their order.
    traces: Vec<Trace>,
    /// Tables with another hash key.
    building: Option<JoinHandle<Result<Rekeyed, NetworkError>>>,
    /// Rows of this turn's groups.
    n_rows: usize,
    /// Findings of switches that were already logged.
    found_lines: Throttle,
    /// When holes were last given back.
    gave_back: Option<Instant>,
    published: publish::Published,
}

/// Ends the answers to questions when the writer ends, for whatever reason.
struct Answers(Arc<Shared>);

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.reads.close();
    }
}

impl Writer {
    /// A writer that sends what it makes for switches to `pushes`. Without a store it follows another controller.
    pub(crate) fn new(
        state: State,
        store: Option<Box<dyn Store>>,
        shared: Arc<Shared>,
        pushes: mpsc::Sender<Vec<Outgoing<Arc<Session>>>>,
        switch_backlog_bytes: usize,
        rates: Rates,
    ) -> Writer {
        let bounds = Bounds::new(switch_backlog_bytes, SecretKey::random);
        let owner = if store.is_some() {
            Owner::leading(state, bounds, rates, now())
        } else {
            Owner::following(state, shared.lead.position(), bounds, rates, now())
        };
        let published = publish::Published::at(owner.position());
        Writer {
            owner,
            store: store.map(Copied::new),
            shared,
            pushes,
            traces: Vec::new(),
            building: None,
            n_rows: 0,
            found_lines: Throttle::of_frames(),
            gave_back: None,
            published,
        }
    }

    /// Runs until a [`Job::Stop`], or until all senders are gone.
    pub(crate) fn run(&mut self, mut jobs: mpsc::Receiver<Job>) -> Result<(), StoreError> {
        self.publish_sizes();
        let answers = Answers(Arc::clone(&self.shared));
        loop {
            let is_copied = self.store.as_ref().is_some_and(Copied::may_go_on);
            let is_built = self.building.as_ref().is_some_and(JoinHandle::is_finished);
            let first = if self.owner.may_go_on(now()) || is_built || is_copied || answers.0.reads.wait() {
                jobs.try_recv()
            } else {
                jobs.blocking_recv().ok_or(Disconnected)
            };
            let stop = match first {
                Ok(first) => self.turn(first, || jobs.try_recv().ok())?,
                Err(Empty) => self.go_on_alone().map(|()| false)?,
                Err(Disconnected) => true,
            };
            if stop {
                break;
            }
        }
        self.store.as_mut().map_or(Ok(()), Copied::close)
    }

    /// Takes what waits as one group: the first job and those from `next`. Returns whether to stop.
    pub(crate) fn turn(&mut self, first: Job, mut next: impl FnMut() -> Option<Job>) -> Result<bool, StoreError> {
        let (mut job, mut stop, mut leads) = (Some(first), false, None);
        self.prepare();
        while let Some(one) = job.take() {
            match one {
                Job::Input(input) => _ = self.owner.take(input, now()),
                Job::Traced { change, reply, trace } => {
                    let input = |is_traced| Input::Change { change, ticket: Ticket::Change(reply), is_traced };
                    self.trace(input, *trace);
                }
                // With a group of its own.
                Job::Lead { store, settings } => {
                    leads = Some((store, settings));
                    break;
                }
                Job::Stop => stop = true,
            }
            job = if self.owner.is_full() { None } else { next() };
        }
        let done = self.round().and_then(|()| leads.map_or(Ok(()), |(store, settings)| self.lead(store, *settings)));
        // Memory is ahead of the store: no switch may be sent what it lacks of that.
        done.inspect_err(|_| self.shared.end_sessions())?;
        if let Some(store) = &self.store {
            self.shared.lead.set_committed_to(store.n_commits());
        }
        let n_rows = std::mem::take(&mut self.n_rows);
        if n_rows >= BULK_NAMES && self.gave_back.is_none_or(|at| now() - at >= GIVE_BACK_EVERY) {
            // Between what stays, a batch leaves holes of a hundred bytes a name and more, in several arenas. What the last
            // batches leave is given back when it is quiet (`api::memory::keep_small`).
            api::memory::give_back();
            self.gave_back = Some(now());
        }
        self.go_on_with_copies(TURN_ROWS.max(n_rows));
        if stop {
            self.shared.end_sessions();
        }
        Ok(stop)
    }

    /// A turn without a job: goes on with questions, with the answer to a report, with copies of the store and with a rekey.
    pub(crate) fn go_on_alone(&mut self) -> Result<(), StoreError> {
        self.shared.reads.answer(&self.owner.state, &mut self.owner.seen, TURN_READS);
        self.prepare();
        self.owner.go_on();
        self.round().inspect_err(|_| self.shared.end_sessions())?;
        self.go_on_with_copies(TURN_ROWS);
        Ok(())
    }

    fn go_on_with_copies(&mut self, n_rows: usize) {
        if let Some(store) = &mut self.store {
            store.go_on(n_rows);
        }
    }

    /// Tells the owner what it may need to know in this round.
    fn prepare(&mut self) {
        match &self.store {
            Some(store) => self.owner.set_tells(store.has_followers()),
            None => self.owner.set_leader(self.shared.lead.leader_name()),
        }
        if let Some(building) = self.building.take_if(|building| building.is_finished()) {
            let built = building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.owner.rekeyed(built);
        }
    }

    /// Takes a change that is traced. Only the leader makes the trace.
    fn trace(&mut self, input: impl FnOnce(bool) -> Input<Arc<Session>, Ticket>, mut trace: Trace) {
        if !self.owner.leads() {
            self.owner.take(input(false), now());
            return;
        }
        trace.taken();
        match self.owner.take(input(true), now()) {
            Taken::Applied(changed) => {
                trace.applied(changed.changed, changed.unchanged, self.owner.state.network.change());
                self.traces.push(trace);
            }
            Taken::Refused => trace.refused(),
            Taken::Other => {}
        }
    }

    /// Commits and hands out the turns of a round.
    fn round(&mut self) -> Result<(), StoreError> {
        let mut began = now();
        while let Some(turn) = self.owner.next(began) {
            self.hand_out(turn)?;
            let now = now();
            self.owner.took(now - began, now);
            began = now;
        }
        self.publish_wishes();
        Ok(())
    }

    /// Leads from now on. Attached switches stay attached, if this controller has followed to the end.
    fn lead(&mut self, mut store: Box<dyn Store>, settings: Settings) -> Result<(), StoreError> {
        if self.owner.has_followed_to(store.n_commits()) {
            let rows = self.owner.lead(store.term(), view_rows(&*store)?);
            store.commit_told(&rows, NOTHING)?;
        } else {
            tracing::warn!("this controller leads before it has followed to the end: it reads all rows");
            let (state, restored) = restore(settings, store).map_err(StartError::into_store_error)?;
            self.owner.lead_anew(state);
            store = restored;
        }
        self.store = Some(Copied::new(store));
        self.shared.set_leader(None);
        self.prepare();
        self.owner.take(Input::SeeAll, now());
        self.round()
    }
}

/// The rows of views in a store.
#[cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations use it"))]
pub fn view_rows(store: &dyn Store) -> Result<Vec<RowChange>, StoreError> {
    let mut rows: Vec<RowChange> = Vec::new();
    loop {
        let after = rows.last().map_or((VIEW, &[][..]), |row| (VIEW, &row.key));
        let page = store.rows_after(Some(after), PAGE_ROWS)?;
        let n_rows = page.len();
        let of_views = page.into_iter().take_while(|row| row.kind == VIEW);
        let n_before = rows.len();
        rows.extend(of_views);
        if n_rows < PAGE_ROWS || rows.len() - n_before < n_rows {
            return Ok(rows);
        }
    }
}

//! The one thread that owns the network and the store.
//!
//! It takes what waits in its queue as a group. Each change is applied in memory or refused, all rows are committed in
//! one transaction, then requesters are answered and messages go to the pusher. So concurrent requests share the cost
//! of an fsync, and nothing is acknowledged or pushed before it is durable. Reads run after the commit, so they see
//! durable state only; they have a queue of their own, so that they hold up no change: see [`reads`](crate::shell::reads).
//!
//! **Bulk.** With a batch that changes most shards, every attached switch would be sent nearly its whole FIB, again and
//! again while an import runs. So the switches are parked before such a batch: it costs the graph alone, is committed
//! and answered. When the import pauses, or occasionally while it runs, every switch is sent what it lacks by then. A
//! switch for which too much waits is treated the same way: see [`session`](crate::shell::session).
//!
//! **Many at once.** After an outage all switches may connect together, each for a whole image. Images are made while
//! less than [`WAITING_BYTES`] waits for all switches, one at a time and in turns of [`TURN_NAMES`]; the other switches
//! wait, unanswered, for room. The switch that
//! holds the most for too long while others wait is cut off, and is served last when it connects again.
//!
//! **Following.** While another controller leads, changes come from what it has committed, and nothing is committed here:
//! see `writer/follow.rs`. Everything else is the same.
//!
//! If the store fails, memory is ahead of it: the group is answered with the failure, and the thread and the controller
//! end. A restart has the state of the last commit, which is all that anyone was sent.

use crate::core::change::{Change, Changed, Outcome, Refusal, State};
use crate::core::happened::Happened;
use crate::core::pace::{Pace, Rates, TooFast};
use crate::shell::backup::{Copied, TURN_ROWS};
use crate::shell::job::{Attached, Input, Job, Task};
use crate::shell::push::Outgoing;
use crate::shell::reads::TURN_READS;
use crate::shell::session::Session;
use crate::shell::shared::Shared;
use crate::shell::telemetry::Traced;
use crate::shell::writer::reports::Answer;
use crate::store::{RowChange, Store, StoreError};
use crate::wire::record_of;
use crate::wire::replication::Recording;
use api::crash::step;
use api::seam::{Mistake, Moment, mistaken, now};
use api::throttle::Throttle;
use bytes::Bytes;
use fib::messages::{Body, Message, Report};
use fib::network::Effects;
use fib::topology::NodeId;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TryRecvError::{Disconnected, Empty};
use tokio::sync::{mpsc, oneshot};

/// Most jobs taken together.
const MAX_GROUP_JOBS: usize = 1024;

/// Rows after which a group is closed: an import's batch is a transaction of its own.
const MAX_GROUP_ROWS: usize = 20_000;

/// Fewest names of a bulk batch. Smaller batches keep the phases of single changes.
const BULK_NAMES: usize = 10_000;

/// Parked switches are updated after this long without a bulk batch.
pub(crate) const QUIET: Duration = Duration::from_millis(200);

/// How often parked switches are updated while bulk batches come; less often where that takes long: at most a fifth of
/// the writer's time.
const BULK_PERIOD: Duration = Duration::from_secs(20);

/// Most bytes that wait for all switches together while an image is made; so memory is this and one image. An
/// acknowledgement tells the writer that there may be room again, so it is enough for any rate.
const WAITING_BYTES: usize = 8 << 20;

/// Names that are read for answers to reports between two groups of changes: some 2 ms.
const TURN_NAMES: usize = 8192;

/// Holes that batches leave are given back this often at most: the next batch has to ask for the pages again.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

/// Memory is counted this often at most.
const COUNT_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Writer {
    pub(crate) state: State,
    /// None while another controller leads.
    pub(crate) store: Option<Copied>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) pushes: mpsc::Sender<Vec<Outgoing>>,
    pub(crate) switch_backlog_bytes: usize,
    /// Switches that the network makes no messages for, and what they hold after acknowledging all messages made.
    parked: BTreeMap<NodeId, Parked>,
    /// Reports that wait for room to be answered, the oldest first. Nothing else is made for these switches.
    unanswered: VecDeque<(Arc<Session>, Report)>,
    /// The answer to a report that is being made.
    answer: Option<Answer>,
    /// The switch whose view is being made for an answer, and the time that it took so far.
    preparing: Option<(NodeId, Duration)>,
    /// The rekey in progress.
    rekey: Option<rekey::InProgress>,
    /// Names that are read for answers in one turn.
    pub(crate) turn_names: usize,
    /// Most bytes that may wait for all switches.
    pub(crate) waiting_bytes: usize,
    /// Fewest names of a bulk batch.
    pub(crate) bulk_names: usize,
    /// Since when there has been no room for any switch.
    no_room_since: Option<Instant>,
    /// When the last bulk batch was done.
    last_bulk: Option<Instant>,
    /// The earliest time to update the parked switches while bulk batches come.
    due: Instant,
    /// How often peers may do what.
    pace: Pace,
    /// What switches found and was logged.
    found_lines: Throttle,
    /// When holes were last given back.
    gave_back: Option<Instant>,
    /// When memory was last counted.
    counted_at: Cell<Option<Instant>>,
    /// When values were last counted, in changes of routes.
    values_counted_at: Cell<Option<u64>>,
}

/// A switch that the network makes no messages for.
struct Parked {
    session: Arc<Session>,
    /// What it holds once it has acknowledged all messages made.
    report: Report,
    /// It is sent what it lacks when it has acknowledged these, whatever becomes of the others, as if it had asked.
    alone: bool,
}

/// What a group has collected before its commit.
#[derive(Default)]
struct Group {
    rows: Vec<RowChange>,
    effects: Vec<Effects>,
    replies: Vec<(oneshot::Sender<Result<Changed, Refusal>>, Changed)>,
    /// Switches of other controllers whose reports are taken.
    seen: Vec<oneshot::Sender<()>>,
    /// What those that follow are told; none: to read all rows.
    recording: Option<Recording>,
    after: Vec<Task>,
    /// What there is to say, once it is committed.
    happened: Vec<Happened>,
    /// Changes whose way is traced.
    traced: Vec<Traced>,
    rekey: bool,
    stop: bool,
    /// Something changed that frames depend on now, so parked switches do not wait.
    urgent: bool,
}

/// Ends the answers to questions when the writer ends, however that is.
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
        pushes: mpsc::Sender<Vec<Outgoing>>,
        switch_backlog_bytes: usize,
        rates: Rates,
    ) -> Writer {
        let due = now();
        Writer {
            state,
            store: store.map(Copied::new),
            shared,
            pushes,
            switch_backlog_bytes,
            parked: BTreeMap::new(),
            unanswered: VecDeque::new(),
            answer: None,
            preparing: None,
            rekey: None,
            turn_names: TURN_NAMES,
            waiting_bytes: WAITING_BYTES,
            bulk_names: BULK_NAMES,
            no_room_since: None,
            last_bulk: None,
            due,
            pace: Pace::new(rates),
            found_lines: Throttle::of_frames(),
            gave_back: None,
            counted_at: Cell::new(None),
            values_counted_at: Cell::new(None),
        }
    }

    /// Runs until a [`Input::Stop`], or until all senders are gone.
    pub(crate) fn run(&mut self, mut jobs: mpsc::Receiver<Job>) -> Result<(), StoreError> {
        self.publish_sizes();
        let answers = Answers(Arc::clone(&self.shared));
        loop {
            let is_copied = self.store.as_ref().is_some_and(Copied::may_go_on);
            let first = if self.may_go_on() || self.may_rekey() || is_copied || answers.0.reads.wait() {
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

    /// Takes what waits as one group, the first job and those that `next` has. Returns whether to stop.
    pub(crate) fn turn(&mut self, first: Job, mut next: impl FnMut() -> Option<Job>) -> Result<bool, StoreError> {
        let mut group = Group::default();
        self.park(Session::is_over_limit);
        self.take(first, &mut group)?;
        let mut n_jobs = 1;
        while n_jobs < MAX_GROUP_JOBS
            && group.rows.len() < MAX_GROUP_ROWS
            && let Some(job) = next()
        {
            self.take(job, &mut group)?;
            n_jobs += 1;
        }
        let (stop, urgent) = (group.stop, group.urgent);
        // As many names as were changed: an import does not keep switches waiting.
        let n_names = self.turn_names.max(group.rows.len());
        let n_rows = TURN_ROWS.max(group.rows.len());
        let is_bulk = group.rows.len() >= BULK_NAMES;
        if let Err(error) = self.finish(group).and_then(|()| self.go_on_with_rekey(n_names)) {
            // Memory is ahead of the store: no switch may be sent what it lacks of that.
            self.shared.end_sessions();
            return Err(error);
        }
        if is_bulk && self.gave_back.is_none_or(|at| now() - at >= GIVE_BACK_EVERY) {
            // Between what stays, a batch leaves holes of a hundred bytes a name and more, in several arenas. What the last
            // batches leave is given back when it is quiet (`api::memory::keep_small`).
            api::memory::give_back();
            self.gave_back = Some(now());
        }
        self.shared.reads.answer(&self.state, TURN_READS);
        if let Some(store) = &self.store {
            self.shared.lead.set_committed_to(store.n_commits());
        }
        self.answer_reports(n_names);
        self.go_on_with_copies(n_rows);
        self.release(urgent);
        if stop {
            self.shared.end_sessions();
        }
        Ok(stop)
    }

    /// A turn without a job: goes on with questions, with the answer to a report, with copies of the store and with a rekey.
    pub(crate) fn go_on_alone(&mut self) -> Result<(), StoreError> {
        self.shared.reads.answer(&self.state, TURN_READS);
        self.answer_reports(self.turn_names);
        self.go_on_with_copies(TURN_ROWS);
        self.go_on_with_rekey(self.turn_names).inspect_err(|_| self.shared.end_sessions())
    }

    fn go_on_with_copies(&mut self, n_rows: usize) {
        if let Some(store) = &mut self.store {
            store.go_on(n_rows);
        }
    }

    /// A moment at which a simulation looks, or lets the process end.
    fn at(&self, moment: Moment) {
        #[cfg(feature = "kit")]
        watched::pass(moment, self);
        #[cfg(not(feature = "kit"))]
        let _ = moment;
    }

    fn take(&mut self, job: Job, group: &mut Group) -> Result<(), StoreError> {
        match job {
            Job::Input(input) => self.decide(input, group),
            Job::Task(task) => {
                group.after.push(task);
                Ok(())
            }
        }
    }

    /// Decides upon what may change the state, and adds what follows to the group.
    fn decide(&mut self, input: Input, group: &mut Group) -> Result<(), StoreError> {
        match input {
            Input::Change { reply, .. } if self.store.is_none() => _ = reply.send(Err(self.shared.lead.not_leader())),
            Input::Change { change, reply } => {
                let change = match self.state.settle(change) {
                    Ok(change) => change,
                    Err(refusal) => {
                        let _ = reply.send(Err(refusal));
                        return Ok(());
                    }
                };
                if self.pace.limits_tenants()
                    && let Err(refused) = self.pace.take(&self.state.tenants_of(&change), now())
                {
                    self.shared.totals.too_fast.fetch_add(1, Relaxed);
                    let TooFast { tenant, what, per_second, wait } = refused;
                    let wait_ms = wait.as_millis() + 1;
                    let _ = reply.send(Err(Refusal::TooFast { tenant, what, per_second, wait_ms }));
                    return Ok(());
                }
                let has_followers = self.store.as_ref().is_some_and(Copied::has_followers);
                let record = has_followers.then(|| record_of(&change)).flatten();
                let first_row = group.rows.len();
                let joined = found::joined(&change);
                let outcome = self.carry_out(change, group);
                let leaves_traces = match &outcome {
                    Ok(_) => group.rows.len() > first_row,
                    Err(refusal) => refusal.may_leave_traces(),
                };
                if let Some(record) = record.filter(|_| leaves_traces) {
                    group.recording.get_or_insert_default().add(record, &group.rows[first_row..]);
                }
                match outcome {
                    Ok(changed) => {
                        group.replies.push((reply, changed));
                        self.see_joined(&joined, group)?;
                    }
                    Err(refusal) => {
                        group.rekey |= refusal.is_collision();
                        let _ = reply.send(Err(refusal));
                    }
                }
            }
            // Whoever leads makes the trace.
            Input::Traced { change, reply, .. } if self.store.is_none() => {
                self.decide(Input::Change { change, reply }, group)?;
            }
            Input::Traced { change, reply, mut trace } => {
                trace.taken();
                let (n_carried_out, first) = (group.replies.len(), group.effects.len());
                self.decide(Input::Change { change, reply }, group)?;
                match group.replies.get(n_carried_out) {
                    Some((_, done)) => {
                        trace.applied(done.changed, done.unchanged, self.state.network.change());
                        group.traced.push(Traced { trace, effects: first..group.effects.len() });
                    }
                    None => trace.refused(),
                }
            }
            Input::Trunks { switch, trunks, reply } => {
                // One that was removed meanwhile has no links.
                if let Ok(node) = self.state.node(&switch) {
                    self.shared.known.trunks.lock().report(node, trunks, now());
                    self.see(node, group)?;
                }
                group.seen.extend(reply.filter(|_| self.store.is_some()).map(|(reply, _)| reply));
            }
            Input::Hosts { switch, hosts, forgetful, turn, reply } => {
                self.learn(&switch, (&hosts, &forgetful), group)?;
                drop(turn);
                group.seen.push(reply);
            }
            Input::Forget => self.forget(group)?,
            Input::Follow(commit) => self.follow(&commit, group),
            Input::Replace { state, number } => self.replace(*state, number),
            Input::Lead { store, settings } => {
                self.lead(store, *settings)?;
                // What was heard while another one led.
                let reported = self.shared.known.trunks.lock().nodes();
                for node in reported {
                    self.see(node, group)?;
                }
            }
            Input::Stop => group.stop = true,
        }
        Ok(())
    }

    /// Applies a change, whole or not at all, and adds what it caused to the group.
    fn carry_out(&mut self, change: Change, group: &mut Group) -> Result<Changed, Refusal> {
        let n_names = change.n_names();
        // A simulation has few names: what is bulk is up to it.
        let is_bulk = self.bulk_names < BULK_NAMES || self.state.network.is_bulk(n_names);
        let bulk = n_names >= self.bulk_names && is_bulk;
        if bulk {
            self.park(|_| true);
        }
        let happened = Happened::of(
            &change,
            |place| self.state.far_end(place),
            |name| self.state.host_of(name).map(str::to_owned),
        );
        let outcome = self.state.carry_out(change);
        self.at(Moment::Changed);
        if bulk {
            self.last_bulk = Some(now());
        }
        let Outcome { changed, rows, mut effects } = outcome?;
        group.urgent |= n_names == 0;
        group.happened.extend(happened.changed(changed.changed));
        group.rows.extend(rows);
        effects.iter_mut().for_each(|effects| group.rows.append(&mut effects.durable));
        group.effects.extend(effects);
        Ok(changed)
    }

    /// Parks the switches that `which` selects: from here on no messages are made for them.
    fn park(&mut self, which: impl Fn(&Session) -> bool) {
        let attached = self.shared.sessions().into_iter().filter(|session| which(session) && !session.is_parked());
        for session in attached {
            let node = session.node();
            let Some(report) = self.state.network.held(node) else { continue };
            if self.parked.is_empty() {
                self.due = now() + BULK_PERIOD;
            }
            session.set_parked(true);
            self.state.network.detach(node);
            self.parked.insert(node, Parked { session, report, alone: false });
        }
    }

    /// Sends the parked switches what they lack, if it is time, except those that have not caught up yet.
    fn release(&mut self, urgent: bool) {
        let is_alone = |(_, parked): &(&NodeId, &Parked)| parked.alone && parked.session.is_caught_up();
        let alone: Vec<NodeId> = self.parked.iter().filter(is_alone).map(|(node, _)| *node).collect();
        for node in alone {
            if let Some(Parked { session, report, .. }) = self.parked.remove(&node) {
                self.unanswered.push_back((session, report));
            }
        }
        let start = now();
        let is_quiet = self.last_bulk.is_none_or(|last| start - last >= QUIET);
        let is_time = urgent || is_quiet || start >= self.due;
        let is_ready = |session: &Session| is_time && session.is_caught_up() && !mistaken(Mistake::NeverReleased);
        let ready = self.parked.iter().filter(|(_, parked)| !parked.alone && is_ready(&parked.session));
        let ready: Vec<NodeId> = ready.map(|(node, _)| *node).collect();
        let mut outgoing = Vec::new();
        let mut is_full = false;
        for node in ready {
            is_full = !self.has_room();
            if is_full {
                break;
            }
            let Some(Parked { session, report, .. }) = self.parked.remove(&node) else { continue };
            if session.is_ended() {
                continue;
            }
            if mistaken(Mistake::InStepBeforeMessages) {
                session.set_parked(false);
            }
            let attached = self.attach_lacking(&session, &report);
            self.keep_view_rows();
            self.at(Moment::Attached);
            match attached {
                Ok(lacks) => {
                    let lacks = self.state.network.messages(lacks).filter(|_| !mistaken(Mistake::ReleaseSendsNothing));
                    outgoing.extend(lacks.map(|message| {
                        let phase = phase_of(&message.body);
                        Outgoing { phase, session: Arc::clone(&session), message: self.encode(&session, &message) }
                    }));
                    // Not before its messages are made: until then it would look in step.
                    session.set_parked(false);
                }
                // The switch was removed meanwhile.
                Err(_) => session.end(),
            }
        }
        if !outgoing.is_empty() {
            self.shared.progress.pending_pushes.fetch_add(1, AcqRel);
            let _ = self.pushes.blocking_send(outgoing);
            self.at(Moment::Sent);
            self.due = now() + BULK_PERIOD.max((now() - start) * 4);
        }
        if is_full {
            self.due = start;
            self.shared.progress.wants_room.store(true, Release);
        }
        // What waits may be dropped, for example because an answer covers it: then no acknowledgement brings a turn.
        let is_to_be_seen = |parked: &Parked| !is_time && !parked.alone || !parked.session.awaits_acknowledgement();
        if is_full || self.parked.values().any(is_to_be_seen) {
            self.shared.progress.parked.notify_one();
        }
    }

    /// Commits the group, then answers, pushes, and does the jobs that waited for the commit.
    fn finish(&mut self, mut group: Group) -> Result<(), StoreError> {
        if mistaken(Mistake::SentBeforeCommit) {
            self.push(std::mem::take(&mut group.effects));
            self.at(Moment::Made);
        }
        #[cfg(feature = "crash-points")]
        if mistaken(Mistake::CommitsPutOff) {
            thread_local! {
                static PUT_OFF: Cell<Vec<RowChange>> = const { Cell::new(Vec::new()) };
            }
            group.rows = PUT_OFF.replace(group.rows);
        }
        if self.store.is_some() && (!group.rows.is_empty() || group.recording.is_some()) {
            let told = group.recording.take().map(Recording::encode).unwrap_or_default();
            self.at(Moment::Committing);
            let committed = self.store.as_mut().map_or(Ok(()), |store| store.commit(&group.rows, &told));
            if let Err(error) = committed {
                let reason = error.to_string();
                for (reply, _) in group.replies {
                    let _ = reply.send(Err(Refusal::StoreFailed { reason: reason.clone() }));
                }
                return Err(error);
            }
            self.shared.totals.transactions.fetch_add(1, Relaxed);
            self.at(Moment::Committed);
            // The messages are made next, and need the room.
            group.rows = Vec::new();
        }
        group.traced.iter_mut().for_each(|traced| traced.trace.committed());
        group.seen.into_iter().for_each(|reply| _ = reply.send(()));
        self.shared.progress.committed.fetch_add(1, AcqRel);
        group.happened.into_iter().for_each(|happened| self.shared.events.note_change(happened));
        self.publish_sizes();
        self.shared.progress.pending_pushes.fetch_add(1, AcqRel);
        for (reply, changed) in group.replies {
            self.shared.totals.changes.fetch_add(changed.changed, Relaxed);
            let _ = step("writer.answer", || reply.send(Ok(changed)));
            self.at(Moment::Answered);
        }
        let traced = self.awaited(group.traced, &group.effects);
        self.push(group.effects);
        traced.into_iter().for_each(|(trace, awaited)| trace.pushed(awaited));
        self.at(Moment::Made);
        if group.rekey {
            self.begin_rekey(None);
        }
        for task in group.after {
            self.after_commit(task);
        }
        Ok(())
    }

    fn push(&mut self, effects: Vec<Effects>) {
        for session in self.shared.sessions() {
            self.state.network.acknowledge(session.node(), session.acked_change());
            if self.state.network.topology().node(session.node()).is_err() {
                tracing::info!(switch = %session.node(), "the switch was removed; its stream ends");
                session.end();
            }
        }
        let mut outgoing = Vec::new();
        for Effects { phases, .. } in effects {
            for (phase, messages) in phases.into_iter().enumerate() {
                for (node, message) in messages {
                    if let Some(session) = self.shared.session(node) {
                        let message = self.encode(&session, &message);
                        outgoing.push(Outgoing { phase, session, message });
                    }
                }
            }
        }
        self.shared.progress.made.fetch_add(1, AcqRel);
        if outgoing.is_empty() {
            self.shared.progress.pending_pushes.fetch_sub(1, AcqRel);
        } else {
            // Waits while the pusher is busy: this is the back-pressure on changes.
            let _ = step("writer.push", || self.pushes.blocking_send(outgoing));
        }
    }

    fn after_commit(&mut self, task: Task) {
        match task {
            Task::Read(read) => read(&self.state),
            Task::Attach { switch, report, weighs_ways, reply } => {
                let attached = self.attach(&switch, report, weighs_ways);
                if let Err(Ok(unwanted)) = reply.send(attached) {
                    self.detach(&unwanted.session);
                }
            }
            Task::Resync { session } => {
                if let Some(report) = session.take_report().filter(|_| !session.is_ended()) {
                    self.resync(&session, report);
                }
            }
            Task::Detach { session } => self.detach(&session),
            Task::Rekey { reply } if self.store.is_none() => _ = reply.send(Err(self.shared.lead.not_leader())),
            Task::Rekey { reply } => self.begin_rekey(Some(reply)),
            Task::Backup { reply } => {
                let begun = self.store.as_mut().map_or_else(|| Err(self.shared.lead.not_leader()), Copied::begin);
                let _ = reply.send(begun);
            }
            Task::Stuck { session } => self.set_stuck(&session),
            // Done after every group.
            Task::Release => {}
            Task::Rates(rates) => self.pace.set_rates(rates),
        }
    }

    /// Encodes a message for the pusher, and reserves its bytes.
    fn encode(&self, session: &Session, message: &Message) -> Bytes {
        let bytes = self.bytes_of(message);
        session.reserve(bytes.len(), message.change);
        bytes
    }

    fn bytes_of(&self, message: &Message) -> Bytes {
        let bytes = Bytes::from(message.encode());
        self.shared.totals.messages.fetch_add(1, Relaxed);
        self.shared.totals.message_bytes.fetch_add(bytes.len() as u64, Relaxed);
        bytes
    }

    /// Parts that were made anew here, also in networks that were replaced.
    fn parts_rebuilt(&self) -> BTreeMap<&'static str, u64> {
        let mut all = self.shared.sizes.rebuilt_before.lock().clone();
        for (design, n) in self.state.network.parts_rebuilt() {
            *all.entry(design).or_default() += n;
        }
        all
    }

    fn publish_sizes(&self) {
        let State { network, hosts } = &self.state;
        let sizes = &self.shared.sizes;
        sizes.names.store(network.rib().len() as u64, Relaxed);
        sizes.switches.store(network.topology().nodes().count() as u64, Relaxed);
        self.shared.known.presence.lock().set_known(
            network.topology(),
            self.shared.totals.transactions.load(Relaxed),
            now(),
        );
        sizes.links.store(network.topology().links().count() as u64, Relaxed);
        sizes.hosts.store(hosts.iter().len() as u64, Relaxed);
        sizes.learnt.store(hosts.learnt.len() as u64, Relaxed);
        let rebuilt = self.parts_rebuilt();
        *sizes.rebuilt.lock() = rebuilt;
        if self.values_counted_at.replace(Some(network.n_reroutes())) != Some(network.n_reroutes()) {
            *sizes.sharing.lock() = network.sharing();
        }
        // Counting takes time in proportion to the names. So the bytes may be a second old, if changes came since.
        if self.counted_at.get().is_none_or(|at| now() - at >= COUNT_EVERY) {
            self.counted_at.set(Some(now()));
            sizes.rib_bytes.store(network.rib().heap_bytes() as u64, Relaxed);
            sizes.skeleton_bytes.store(network.skeleton_bytes() as u64, Relaxed);
        }
    }
}

/// The phase of a message with what a switch lacks: names are local at their switch before frames are sent there, and
/// valid last.
fn phase_of(body: &Body) -> usize {
    match body {
        Body::Valid(_) => 2,
        Body::Image { .. } | Body::Updates { .. } | Body::Resync { .. } => 1,
        _ => 0,
    }
}

mod follow;
mod found;
mod rekey;
mod reports;
#[cfg(test)]
mod tests;
mod traced;
#[cfg(feature = "kit")]
mod watched;

#[cfg(feature = "kit")]
pub use watched::{Sight, StreamId, watch};

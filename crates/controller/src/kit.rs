//! The controller's decisions without its services, for simulations and fuzzing. The product is built without.
//!
//! A [`Shell`] is a controller whose threads, channels and connections are the caller's: the writer takes a turn, the pusher
//! goes on, and messages come and go when the caller says so. The time is that of [`api::seam`].

pub use crate::shell::writer::{Sight, StreamId, watch};

use crate::core::change::{Change, Changed, Outcome, Refusal, State};
use crate::core::hosts::Hosts;
use crate::core::pace::Rates;
use crate::core::verify;
use crate::shell::backup::Copied;
use crate::shell::follow::state_at;
use crate::shell::guarded::Guarded;
use crate::shell::job::{Attached, Input, Job, Task};
use crate::shell::push::{Outgoing, Phases, Sent, is_awaited};
use crate::shell::report::decode;
use crate::shell::restore::{StartError, restore};
use crate::shell::session::{Outbox, Session};
use crate::shell::shared::Shared;
use crate::shell::south::{self, Heard};
use crate::shell::writer::{QUIET, Writer};
use crate::store::{Commit, Follower, Position, RowChange, Store, StoreError};
use api::seam::now;
use api::throttle::Throttle;
use api::v1::from_switch::Body;
use api::v1::{SeenTrunk, ToSwitch};
use fib::network::{Effects, Network, Settings};
use fib::topology::{End, NodeId};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

/// What a change did.
#[derive(Debug)]
pub struct Done {
    /// How many objects.
    pub changed: Changed,
    /// The rows to commit first.
    pub rows: Vec<RowChange>,
    /// The messages to send then, with their rows taken out.
    pub effects: Vec<Effects>,
}

/// Carries out a change as the writer does, without committing it.
/// # Errors
/// [`Refusal`]; nothing changed.
pub fn carry_out(state: &mut State, change: Change) -> Result<Done, Refusal> {
    let Outcome { changed, mut rows, mut effects } = state.carry_out(change)?;
    effects.iter_mut().for_each(|effects| rows.append(&mut effects.durable));
    Ok(Done { changed, rows, effects })
}

/// What switches see at their trunks, and which links are cut by it.
#[derive(Debug, Default)]
pub struct Trunks(Guarded<crate::core::trunks::Trunks>);

impl Trunks {
    /// A switch reports. Returns its links that are otherwise than the network has them: an end of each, and whether it is cut.
    pub fn report(&self, network: &Network, node: NodeId, trunks: Vec<SeenTrunk>) -> Vec<(End, bool)> {
        let mut trunks_seen = self.0.lock();
        trunks_seen.report(node, trunks, now());
        trunks_seen.changed_at(network, node)
    }
}

/// The error of a disk without room.
pub fn disk_full(path: &str) -> StoreError {
    let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
    StoreError::Failed { path: path.into(), error: rusqlite::Error::SqliteFailure(error, None) }
}

/// How a shell differs from a controller with a configuration file.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Most bytes that wait for a switch.
    pub switch_backlog_bytes: usize,
    /// Most bytes that wait for all.
    pub waiting_bytes: usize,
    /// Fewest names of a bulk batch.
    pub bulk_names: usize,
    /// How long a phase waits for late switches.
    pub phase_timeout: Duration,
    /// Names that are read for answers to reports between two turns.
    pub turn_names: usize,
}

/// An answer that is to come.
#[derive(Debug)]
pub struct Answer<T>(oneshot::Receiver<Result<T, Refusal>>);

impl<T> Answer<T> {
    /// The answer, once it is there. The controller that stops, or is dropped, answers so.
    pub fn poll(&mut self) -> Option<Result<T, Refusal>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(Refusal::Stopping)),
        }
    }
}

/// The answer to a hello.
pub struct Welcome(Answer<Attached>);

impl Welcome {
    /// The controller's end of the stream, once it is there.
    pub fn poll(&mut self) -> Option<Result<Stream, Refusal>> {
        self.0.poll().map(|attached| attached.map(|Attached { session, outbox }| Stream { session, outbox }))
    }
}

impl std::fmt::Debug for Welcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Welcome").finish_non_exhaustive()
    }
}

/// The controller's end of the stream of a switch.
#[derive(Debug)]
pub struct Stream {
    session: Arc<Session>,
    outbox: Outbox,
}

/// What a stream has.
#[derive(Debug)]
pub enum Next {
    /// A message for the switch.
    Message(Box<ToSwitch>),
    /// Nothing yet.
    Nothing,
    /// The controller ended it.
    Ended,
}

impl Stream {
    /// Its id.
    pub fn id(&self) -> StreamId {
        StreamId::of(&self.session)
    }

    /// The switch.
    pub fn node(&self) -> NodeId {
        self.session.node()
    }

    /// The last change all of whose messages are acknowledged; 0: none.
    pub fn acked_change(&self) -> u64 {
        self.session.acked_change()
    }

    /// Takes what the transport takes next.
    pub fn take(&mut self) -> Next {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(self.outbox.next()).poll(&mut context) {
            Poll::Ready(Some(message)) => Next::Message(Box::new(message)),
            Poll::Ready(None) => Next::Ended,
            Poll::Pending => Next::Nothing,
        }
    }
}

/// A verification that has begun.
#[derive(Debug)]
pub struct Verifying {
    before: verify::Parts,
    answer: oneshot::Receiver<api::v1::Verified>,
}

/// What came of a verification.
#[derive(Debug)]
pub enum Verdict {
    /// The switch has what it should.
    Same,
    /// This part is another one.
    Differs(String),
    /// Too much changed meanwhile: it would be asked again.
    Open,
}

/// A controller without threads.
pub struct Shell {
    writer: Writer,
    jobs: VecDeque<Job>,
    pushes: mpsc::Receiver<Vec<Outgoing>>,
    phases: Phases,
    /// Lists that `phases` are of.
    n_lists: u64,
    awaited: Sent,
    deadline: Instant,
    phase_timeout: Duration,
    throttle: Throttle,
}

impl std::fmt::Debug for Shell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shell").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

/// Lists of messages that may wait for the pusher. Nobody takes them while the writer has its turn, so it must not wait.
const ROOM: usize = 1 << 20;

impl Shell {
    /// Restores the network in the store, as a start of the controller does. `settings` are those of a new network.
    /// # Errors
    /// [`StartError`].
    pub fn start(settings: Settings, store: Box<dyn Store>, bounds: &Bounds) -> Result<Shell, StartError> {
        let (state, store) = restore(settings, store)?;
        Ok(Shell::of(state, Some(store), bounds))
    }

    /// The network as of a commit of another controller, which this one follows.
    /// # Errors
    /// [`StartError`].
    pub fn follow(
        settings: Settings,
        follower: &Follower,
        position: Position,
        bounds: &Bounds,
    ) -> Result<Shell, StartError> {
        let shell = Shell::of(state_at(settings, follower, position)?, None, bounds);
        shell.writer.shared.lead.set_position(Some(position.number));
        Ok(shell)
    }

    fn of(state: State, store: Option<Box<dyn Store>>, bounds: &Bounds) -> Shell {
        let (sender, pushes) = mpsc::channel(ROOM);
        let backlog = bounds.switch_backlog_bytes;
        let mut writer = Writer::new(state, store, Shared::new(), sender, backlog, Rates::default());
        (writer.waiting_bytes, writer.bulk_names) = (bounds.waiting_bytes, bounds.bulk_names);
        writer.turn_names = bounds.turn_names;
        Shell {
            writer,
            jobs: VecDeque::new(),
            pushes,
            phases: Phases::default(),
            n_lists: 0,
            awaited: Sent::new(),
            deadline: now(),
            phase_timeout: bounds.phase_timeout,
            throttle: Throttle::default(),
        }
    }

    /// A commit of the controller that leads.
    pub fn commit(&mut self, commit: Commit) {
        self.jobs.push_back(Input::Follow(commit).into());
    }

    /// The number of the last commit that was carried out while this controller followed; none if it has strayed.
    pub fn position(&self) -> Option<u64> {
        self.writer.shared.lead.position()
    }

    /// Reads all rows again.
    /// # Errors
    /// [`StartError`].
    pub fn read_again(&mut self, settings: Settings, follower: &Follower, at: Position) -> Result<(), StartError> {
        let state = Box::new(state_at(settings, follower, at)?);
        self.jobs.push_back(Input::Replace { state, number: at.number }.into());
        Ok(())
    }

    /// Leads, with this store.
    pub fn lead(&mut self, store: Box<dyn Store>, settings: Settings) {
        self.jobs.push_back(Input::Lead { store, settings: Box::new(settings) }.into());
    }

    /// What the store does beside its owner goes on to its end: it applies the last big commit.
    /// # Errors
    /// [`StoreError`].
    pub fn settle(&mut self) -> Result<(), StoreError> {
        self.writer.store.as_ref().map_or(Ok(()), Copied::settle)
    }

    /// Gives the lead back.
    /// # Errors
    /// [`StoreError`].
    pub fn close(&mut self) -> Result<(), StoreError> {
        self.writer.store.as_mut().map_or(Ok(()), |store| store.close())
    }

    /// The rows that make this state.
    pub fn rows(&self) -> impl Iterator<Item = RowChange> {
        let State { network, hosts } = &self.writer.state;
        let host = |(name, end)| Hosts::default().insert(name, end);
        network.rows().chain(hosts.iter().map(host)).chain(hosts.learnt.rows())
    }

    /// The network, as the writer has it.
    pub fn network(&self) -> &Network {
        &self.writer.state.network
    }

    /// The network, to ask it what a switch lacks.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.writer.state.network
    }

    /// As the writer and the status have it.
    pub fn sight(&self) -> Sight<'_> {
        Sight::of(&self.writer)
    }

    /// Whether there is something to do for the writer.
    pub fn has_work(&mut self) -> bool {
        !self.jobs.is_empty() || self.writer.may_go_on() || self.writer.may_rekey()
    }

    /// A change for the writer.
    pub fn change(&mut self, change: Change) -> Answer<Changed> {
        let (reply, answer) = oneshot::channel();
        self.jobs.push_back(Input::Change { change, reply }.into());
        Answer(answer)
    }

    /// An operator asks for another hash key.
    pub fn rekey(&mut self) -> Answer<Changed> {
        let (reply, answer) = oneshot::channel();
        self.jobs.push_back(Task::Rekey { reply }.into());
        Answer(answer)
    }

    /// Begins to verify a switch. None while nothing is made for it, it does not have the answer to its report, or another
    /// verification is waited for.
    pub fn verify(&self, stream: &Stream) -> Option<Verifying> {
        let before = verify::parts(&self.network().held(stream.node())?);
        if !stream.session.is_reconciled() {
            return None;
        }
        Some(Verifying { before, answer: stream.session.verify()? })
    }

    /// What came of a verification, once the answer of the switch is there.
    pub fn verdict(&self, stream: &Stream, verifying: &mut Verifying) -> Option<Verdict> {
        let verified = verifying.answer.try_recv().ok()?;
        if !verified.damage.is_empty() {
            return Some(Verdict::Differs(verified.damage.join("; ")));
        }
        let Ok(report) = decode(&verified.report) else {
            return Some(Verdict::Differs("a report that cannot be read".to_owned()));
        };
        let theirs = verify::parts(&report);
        let after = self.network().held(stream.node()).map(|report| verify::parts(&report));
        let compared = after.and_then(|after| verify::compare(&verifying.before, &theirs, &after));
        Some(compared.map_or(Verdict::Open, |parts| {
            match parts.into_iter().find(|part| part.digest != part.expected_digest) {
                Some(part) => Verdict::Differs(part.part),
                None => Verdict::Same,
            }
        }))
    }

    /// A switch says hello, with its report.
    /// # Errors
    /// Why it is no report.
    pub fn hello(&mut self, switch: &str, report: &[u8]) -> Result<Welcome, String> {
        let report = decode(report)?;
        let (reply, answer) = oneshot::channel();
        self.jobs.push_back(Task::Attach { switch: switch.to_owned(), report, weighs_ways: true, reply }.into());
        Ok(Welcome(Answer(answer)))
    }

    /// A switch says something later.
    /// # Errors
    /// Why its stream ends.
    pub fn hear(&mut self, switch: &str, stream: &Stream, body: Body) -> Result<(), String> {
        let heard = south::hear(switch, &stream.session, &self.writer.shared, &self.throttle, Some(body))?;
        if let Heard::Job(job) = heard {
            self.jobs.push_back(job);
        }
        Ok(())
    }

    /// The connection of a stream ended.
    pub fn hang_up(&mut self, stream: Stream) {
        stream.session.end();
        self.jobs.push_back(Task::Detach { session: Arc::clone(&stream.session) }.into());
    }

    /// The writer takes a turn, with at most so many jobs. False: there was nothing to do.
    /// # Errors
    /// [`StoreError`]: the controller ends.
    pub fn turn(&mut self, most: usize) -> Result<bool, StoreError> {
        let Some(first) = self.jobs.pop_front() else {
            let may_go_on = self.writer.may_go_on() || self.writer.may_rekey();
            if may_go_on {
                self.writer.go_on_alone()?;
            }
            return Ok(may_go_on);
        };
        let mut left = most.saturating_sub(1);
        self.writer.turn(first, || {
            left = left.checked_sub(1)?;
            self.jobs.pop_front()
        })?;
        Ok(true)
    }

    /// Whether switches wait that may be released when nothing happens for [`Shell::quiet`]. Asks once.
    pub fn has_parked(&self) -> bool {
        let parked = pin!(self.writer.shared.progress.parked.notified());
        parked.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// How long that is.
    pub fn quiet() -> Duration {
        QUIET
    }

    /// Nothing happened for so long.
    pub fn release(&mut self) {
        self.jobs.push_back(Task::Release.into());
    }

    /// The pusher goes on as far as it can. Returns after how long it goes on without the switches that it waits for;
    /// `None`: it waits for the writer.
    pub fn push(&mut self) -> Option<Duration> {
        loop {
            self.awaited.retain(|(session, sequence)| is_awaited(session, *sequence));
            if !self.awaited.is_empty() {
                if now() < self.deadline {
                    return Some(self.deadline - now());
                }
                self.awaited.drain(..).for_each(|(session, _)| self.phases.give_up(&session));
            }
            if let Some(sent) = self.phases.send_next() {
                (self.awaited, self.deadline) = (sent, now() + self.phase_timeout);
                continue;
            }
            self.writer.shared.progress.pending_pushes.fetch_sub(std::mem::take(&mut self.n_lists), AcqRel);
            let mut lists = Vec::new();
            while let Ok(list) = self.pushes.try_recv().map_err(|error| assert_eq!(error, TryRecvError::Empty)) {
                lists.push(list);
            }
            if lists.is_empty() {
                return None;
            }
            self.n_lists = lists.len() as u64;
            self.phases = Phases::of(lists.into_iter().flatten());
        }
    }
}

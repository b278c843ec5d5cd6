//! What the writer is asked for, and by which way.
//!
//! Two queues in one, so that their order stays that of the requests. An [`Input`] is decided upon before its group is committed, and
//! its rows are part of that commit. A [`Task`] is done after the commit, so it sees durable state only.

use crate::core::change::{Change, Changed, Refusal, State};
use crate::core::pace::Rates;
use crate::shell::backup::Parts;
use crate::shell::session::{Outbox, Session};
use crate::shell::telemetry::Trace;
use crate::shell::turns::Turn;
use crate::store::{Commit, Store};
use api::v1::{ForgetfulPort, SeenHost, SeenTrunk};
use fib::messages::Report;
use fib::network::Settings;
use std::sync::Arc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Jobs that may wait for the writer; requests beyond wait in their connections.
pub(crate) const QUEUED_JOBS: usize = 4096;

/// A request to the writer.
pub(crate) enum Job {
    Input(Input),
    Task(Task),
}

/// What changes the state, or may: it is part of a group that is committed.
pub(crate) enum Input {
    Change {
        change: Change,
        reply: oneshot::Sender<Result<Changed, Refusal>>,
    },
    /// A change whose way is traced.
    Traced {
        change: Change,
        reply: oneshot::Sender<Result<Changed, Refusal>>,
        trace: Box<Trace>,
    },
    /// The switch said what it sees at its trunks.
    Trunks {
        switch: String,
        trunks: Vec<SeenTrunk>,
        /// For the switch of another controller: answered when what follows from it is committed.
        reply: Option<(oneshot::Sender<()>, Turn)>,
    },
    /// The switch saw sources at its ports that are no names there.
    Hosts {
        switch: String,
        hosts: Vec<SeenHost>,
        /// Its ports that forget.
        forgetful: Vec<ForgetfulPort>,
        /// Until it is done, the switch may not ask again.
        turn: Turn,
        /// Answered when what follows from it is committed.
        reply: oneshot::Sender<()>,
    },
    /// Forget learnt names that have been silent for too long.
    Forget,
    /// Carry out what the controller that leads has committed.
    Follow(Commit),
    /// Go on with the state as of the commit of this number: the commits could not be followed.
    Replace {
        state: Box<State>,
        number: u64,
    },
    /// Lead from now on, with this store. The settings are those of a network that has to be read from it.
    Lead {
        store: Box<dyn Store>,
        settings: Box<Settings>,
    },
    Stop,
}

/// What is done with the state as it is committed.
pub(crate) enum Task {
    Read(Box<dyn FnOnce(&State) + Send>),
    Attach {
        switch: String,
        report: Report,
        weighs_ways: bool,
        reply: oneshot::Sender<Result<Attached, Refusal>>,
    },
    /// The switch sent a report, which its session has.
    Resync {
        session: Arc<Session>,
    },
    Detach {
        session: Arc<Session>,
    },
    /// The switch cannot hold what it is sent: nothing is made for it until it reports again.
    Stuck {
        session: Arc<Session>,
    },
    /// Choose another hash key.
    Rekey {
        reply: oneshot::Sender<Result<Changed, Refusal>>,
    },
    /// Begin a copy of the store.
    Backup {
        reply: oneshot::Sender<Result<Parts, Refusal>>,
    },
    /// Send parked switches what they lack, if it is time, and go on with what there is room for by now.
    Release,
    /// Let peers cause this much from now on.
    Rates(Rates),
}

/// A switch's stream, ready to be served.
pub(crate) struct Attached {
    pub(crate) session: Arc<Session>,
    pub(crate) outbox: Outbox,
}

impl From<Input> for Job {
    fn from(input: Input) -> Job {
        Job::Input(input)
    }
}

impl From<Task> for Job {
    fn from(task: Task) -> Job {
        Job::Task(task)
    }
}

/// The writer has ended.
#[derive(Debug)]
pub(crate) struct Ended;

/// The way to the writer.
#[derive(Clone, Debug)]
pub(crate) struct Jobs(mpsc::Sender<Job>);

impl Jobs {
    /// A way with room for so many, and the end that the writer takes its jobs from.
    pub(crate) fn channel(room: usize) -> (Jobs, mpsc::Receiver<Job>) {
        let (jobs, waiting) = mpsc::channel(room);
        (Jobs(jobs), waiting)
    }

    /// Hands a job over, as soon as there is room.
    pub(crate) async fn send(&self, job: impl Into<Job>) -> Result<(), Ended> {
        self.0.send(job.into()).await.map_err(|_| Ended)
    }

    /// Has the writer go on with what may wait. Where there is no room for this job, it has others, and looks after them.
    pub(crate) fn wake(&self) -> Result<(), Ended> {
        match self.0.try_send(Task::Release.into()) {
            Err(TrySendError::Closed(_)) => Err(Ended),
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
        }
    }

    /// Hands a job over and waits for its answer.
    pub(crate) async fn answer<T, J: Into<Job>>(&self, job: impl FnOnce(oneshot::Sender<T>) -> J) -> Result<T, Ended> {
        let (reply, answer) = oneshot::channel();
        self.send(job(reply)).await?;
        answer.await.map_err(|_| Ended)
    }

    /// Asks the writer, in its turn; none if it has ended.
    pub(crate) async fn ask<T: Send + 'static>(&self, read: impl FnOnce(&State) -> T + Send + 'static) -> Option<T> {
        let read = |reply: oneshot::Sender<T>| Task::Read(Box::new(move |state| _ = reply.send(read(state))));
        self.answer(read).await.ok()
    }

    /// Whether the writer has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns when the writer has ended.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

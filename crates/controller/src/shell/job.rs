//! Requests to the writer, and the channel for them.

use crate::core::change::{Change, Changed, Refusal, State};
use crate::core::owner::{Input, Seen, Task};
use crate::shell::backup::Parts;
use crate::shell::session::{Outbox, Session};
use crate::shell::telemetry::Trace;
use crate::shell::turns::Turn;
use crate::store::Store;
use fib::messages::Report;
use fib::network::Settings;
use std::sync::Arc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Jobs that may wait for the writer; further requests wait in their connections.
pub(crate) const QUEUED_JOBS: usize = 4096;

/// A request to the writer.
pub(crate) enum Job {
    /// For the owner.
    Input(Input<Arc<Session>, Ticket>),
    /// A change whose way is traced.
    Traced {
        change: Change,
        reply: Reply<Changed>,
        trace: Box<Trace>,
    },
    /// Lead from now on, with this store. The settings are those of a network that has to be read from it.
    Lead {
        store: Box<dyn Store>,
        settings: Box<Settings>,
    },
    Stop,
}

/// The way of an answer that may be a refusal.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// A question about the state as it is committed, and what switches see.
pub(crate) type Read = Box<dyn FnOnce(&State, &mut Seen) + Send>;

/// What each request waits for.
pub(crate) enum Ticket {
    Change(Reply<Changed>),
    /// A switch that reported what it sees. It may not report more until it is answered.
    Seen(oneshot::Sender<()>, Turn),
    Attach {
        switch: String,
        reply: Reply<Attached>,
    },
    Read(Read),
    /// A copy of the store is to begin.
    Backup(Reply<Parts>),
}

/// A switch's stream, ready to be served.
pub(crate) struct Attached {
    pub(crate) session: Arc<Session>,
    pub(crate) outbox: Outbox,
}

impl Job {
    /// A change.
    pub(crate) fn change(change: Change, reply: Reply<Changed>) -> Job {
        Job::Input(Input::Change { change, ticket: Ticket::Change(reply), is_traced: false })
    }

    /// Begin to serve a switch.
    pub(crate) fn attach(switch: String, report: Report, weighs_ways: bool, reply: Reply<Attached>) -> Job {
        let ticket = Ticket::Attach { switch: switch.clone(), reply };
        Task::Attach { switch, report, weighs_ways, ticket }.into()
    }

    /// Choose another hash key.
    pub(crate) fn rekey(reply: Reply<Changed>) -> Job {
        Task::Rekey(Ticket::Change(reply)).into()
    }

    /// Begin a copy of the store.
    pub(crate) fn backup(reply: Reply<Parts>) -> Job {
        Task::Durable(Ticket::Backup(reply)).into()
    }
}

impl From<Input<Arc<Session>, Ticket>> for Job {
    fn from(input: Input<Arc<Session>, Ticket>) -> Job {
        Job::Input(input)
    }
}

impl From<Task<Arc<Session>, Ticket>> for Job {
    fn from(task: Task<Arc<Session>, Ticket>) -> Job {
        Job::Input(Input::Task(task))
    }
}

/// The writer has ended.
#[derive(Debug)]
pub(crate) struct Ended;

/// The way to the writer.
#[derive(Clone, Debug)]
pub(crate) struct Jobs(mpsc::Sender<Job>);

impl Jobs {
    /// A channel with room for this many jobs, and the end that the writer takes them from.
    pub(crate) fn channel(room: usize) -> (Jobs, mpsc::Receiver<Job>) {
        let (jobs, waiting) = mpsc::channel(room);
        (Jobs(jobs), waiting)
    }

    /// Hands over a job, once there is room.
    pub(crate) async fn send(&self, job: impl Into<Job>) -> Result<(), Ended> {
        self.0.send(job.into()).await.map_err(|_| Ended)
    }

    /// Has the writer go on with what may wait. If there is no room for this job, the writer has others, and looks after that anyway.
    pub(crate) fn wake(&self) -> Result<(), Ended> {
        match self.0.try_send(Task::Release.into()) {
            Err(TrySendError::Closed(_)) => Err(Ended),
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
        }
    }

    /// Hands over a job and waits for its answer.
    pub(crate) async fn answer<T, J: Into<Job>>(&self, job: impl FnOnce(oneshot::Sender<T>) -> J) -> Result<T, Ended> {
        let (reply, answer) = oneshot::channel();
        self.send(job(reply)).await?;
        answer.await.map_err(|_| Ended)
    }

    /// Asks the writer, in its turn; none if it has ended.
    pub(crate) async fn ask<T: Send + 'static>(&self, read: impl FnOnce(&State) -> T + Send + 'static) -> Option<T> {
        self.look(|state, _| read(state)).await
    }

    /// As [`Jobs::ask`], including what switches see.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State, &mut Seen) -> T + Send + 'static,
    ) -> Option<T> {
        let read = |reply: oneshot::Sender<T>| {
            let read: Read = Box::new(move |state, seen| _ = reply.send(read(state, seen)));
            Task::Durable(Ticket::Read(read))
        };
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

//! The one thread that owns the network and the store.
//!
//! It takes what waits in its queue as a group: each change is carried out in memory or refused, all rows are
//! committed in one transaction, then requesters are answered and messages go to the pusher. So the cost of an fsync is
//! shared by whoever asked meanwhile, nothing is acknowledged or pushed before it is durable, and reads, which run
//! after the commit, see durable state only.
//!
//! If the store fails, memory is ahead of it: the group is answered with the failure and the thread ends, and the
//! controller with it. A restart has the state of the last commit, which is all that anybody was told.

use crate::change::{Change, Changed, Outcome, Refusal, State};
use crate::push::Outgoing;
use crate::session::{Outbox, Session};
use crate::shared::Shared;
use crate::store::{Store, StoreError};
use bytes::Bytes;
use fib::messages::{Message, Uplink};
use fib::network::{Effects, NetworkError};
use fib::rib::RibError;
use fib::topology::NodeId;
use lookup::hash::SecretKey;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use tokio::sync::{mpsc, oneshot};

/// Jobs taken together at most.
const MAX_GROUP_JOBS: usize = 1024;

/// Rows after which a group is closed: an import's batch is a transaction of its own.
const MAX_GROUP_ROWS: usize = 20_000;

/// Hash keys tried before the old one is kept. A second collision of millions of names has a chance of one in a million.
const MAX_KEYS: usize = 4;

/// What the writer can be asked.
pub(crate) enum Job {
    Change { change: Change, reply: oneshot::Sender<Result<Changed, Refusal>> },
    Read(Box<dyn FnOnce(&State) + Send>),
    Attach { switch: String, report: Bytes, reply: oneshot::Sender<Result<Attached, AttachError>> },
    Resync { session: Arc<Session>, report: Bytes },
    Detach { session: Arc<Session> },
    Stop,
}

/// A switch's stream, ready to be served.
pub(crate) struct Attached {
    pub(crate) session: Arc<Session>,
    pub(crate) outbox: Outbox,
    pub(crate) n_missing: usize,
}

/// Why a switch is turned away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the report of switch `{switch}` is malformed: {reason}")]
    BadReport { switch: String, reason: String },
}

pub(crate) struct Writer {
    pub(crate) state: State,
    pub(crate) store: Box<dyn Store>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) pushes: mpsc::Sender<Vec<Outgoing>>,
    pub(crate) switch_backlog_bytes: usize,
}

/// What a group has gathered until its commit.
#[derive(Default)]
struct Group {
    rows: Vec<crate::store::RowChange>,
    effects: Vec<Effects>,
    replies: Vec<(oneshot::Sender<Result<Changed, Refusal>>, Changed)>,
    after: Vec<Job>,
    rekey: bool,
    stop: bool,
}

impl Writer {
    /// Works until told to stop, or until nobody is left who could ask.
    pub(crate) fn run(&mut self, mut jobs: mpsc::Receiver<Job>) -> Result<(), StoreError> {
        self.publish_sizes();
        while let Some(first) = jobs.blocking_recv() {
            let mut group = Group::default();
            self.take(first, &mut group);
            let mut n_jobs = 1;
            while n_jobs < MAX_GROUP_JOBS
                && group.rows.len() < MAX_GROUP_ROWS
                && let Ok(job) = jobs.try_recv()
            {
                self.take(job, &mut group);
                n_jobs += 1;
            }
            let stop = group.stop;
            let finished = self.finish(group);
            if stop || finished.is_err() {
                self.shared.end_sessions();
                return finished;
            }
        }
        Ok(())
    }

    fn take(&mut self, job: Job, group: &mut Group) {
        match job {
            Job::Change { change, reply } => match self.state.carry_out(change) {
                Ok(Outcome { changed, rows, mut effects }) => {
                    group.rows.extend(rows);
                    effects.iter_mut().for_each(|effects| group.rows.append(&mut effects.durable));
                    group.effects.extend(effects);
                    group.replies.push((reply, changed));
                }
                Err(refusal) => {
                    group.rekey |= is_collision(&refusal);
                    let _ = reply.send(Err(refusal));
                }
            },
            Job::Stop => group.stop = true,
            later => group.after.push(later),
        }
    }

    /// Commits the group, then answers, pushes and does what had to wait for the commit.
    fn finish(&mut self, group: Group) -> Result<(), StoreError> {
        if !group.rows.is_empty() {
            if let Err(error) = self.store.commit(&group.rows) {
                let reason = error.to_string();
                for (reply, _) in group.replies {
                    let _ = reply.send(Err(Refusal::StoreFailed { reason: reason.clone() }));
                }
                return Err(error);
            }
            self.shared.transactions.fetch_add(1, Relaxed);
        }
        self.publish_sizes();
        // Before the answers: whoever got one must not see the switches in step with the state before.
        self.shared.pending_pushes.fetch_add(1, AcqRel);
        for (reply, changed) in group.replies {
            self.shared.changes.fetch_add(changed.changed, Relaxed);
            let _ = reply.send(Ok(changed));
        }
        self.push(group.effects);
        if group.rekey {
            self.rekey()?;
        }
        for job in group.after {
            self.after_commit(job);
        }
        Ok(())
    }

    /// Takes another hash key, so that the name that was refused can be added: it was told to try again.
    fn rekey(&mut self) -> Result<(), StoreError> {
        tracing::warn!(names = self.state.network.rib().len(), "two names have one digest, taking another hash key");
        for _ in 0..MAX_KEYS {
            match self.state.network.rekey(SecretKey::random()) {
                Ok(mut effects) => {
                    let rows = std::mem::take(&mut effects.durable);
                    return self.finish(Group { rows, effects: vec![effects], ..Group::default() });
                }
                Err(error) => tracing::warn!(%error, "this hash key does not do, trying another"),
            }
        }
        tracing::error!(keys = MAX_KEYS, "no hash key does, staying with the old one");
        Ok(())
    }

    fn push(&mut self, effects: Vec<Effects>) {
        for session in self.shared.sessions() {
            self.state.network.acknowledge(session.node(), session.acked_change());
            if self.state.network.topology().node(session.node()).is_err() {
                tracing::info!(switch = %session.node(), "switch was removed, its stream ends");
                session.end();
            }
        }
        let mut outgoing = Vec::new();
        for Effects { phases, change, .. } in effects {
            for (phase, messages) in phases.into_iter().enumerate() {
                for (node, message) in messages {
                    if let Some(session) = self.shared.session(node) {
                        outgoing.push(Outgoing { phase, session, message: self.encode(&message), change });
                    }
                }
            }
        }
        if outgoing.is_empty() {
            self.shared.pending_pushes.fetch_sub(1, AcqRel);
        } else {
            // Waits while the pusher is busy: that is the back-pressure on whoever makes changes.
            let _ = self.pushes.blocking_send(outgoing);
        }
    }

    fn after_commit(&mut self, job: Job) {
        match job {
            Job::Read(read) => read(&self.state),
            Job::Attach { switch, report, reply } => {
                let attached = self.attach(&switch, &report);
                if let Err(Ok(unwanted)) = reply.send(attached) {
                    self.detach(&unwanted.session);
                }
            }
            Job::Resync { session, report } => {
                if !session.is_ended() {
                    self.resync(&session, &report);
                }
            }
            Job::Detach { session } => self.detach(&session),
            Job::Change { .. } | Job::Stop => unreachable!("taken before the commit"),
        }
    }

    fn attach(&mut self, switch: &str, report: &[u8]) -> Result<Attached, AttachError> {
        let node = self.state.node(switch)?;
        let missing = self.missing(node, switch, report)?;
        let (session, outbox) = Session::new(node, self.switch_backlog_bytes);
        let n_missing = missing.len();
        session.send_image(missing, self.state.network.change());
        self.shared.insert_session(switch, &session);
        Ok(Attached { session, outbox, n_missing })
    }

    fn resync(&mut self, session: &Arc<Session>, report: &[u8]) {
        let switch = self.state.place(fib::topology::End { node: session.node(), port: Default::default() }).switch;
        match self.missing(session.node(), &switch, report) {
            Ok(missing) => {
                self.shared.resyncs.fetch_add(1, Relaxed);
                tracing::info!(switch, messages = missing.len(), "resync");
                if missing.is_empty() {
                    // It has everything, also what is still queued for it.
                    session.acknowledge(u64::MAX);
                }
                session.send_image(missing, self.state.network.change());
            }
            Err(error) => {
                tracing::warn!(switch, %error, "resync refused, stream ended");
                session.end();
            }
        }
    }

    /// The messages that bring a switch up to date, and the start of its being kept so.
    fn missing(&mut self, node: NodeId, switch: &str, report: &[u8]) -> Result<Vec<Bytes>, AttachError> {
        let malformed = |reason| AttachError::BadReport { switch: switch.to_owned(), reason };
        let report = match Uplink::decode(report).map_err(|e| malformed(e.to_string()))? {
            Uplink::Report(report) => report,
            Uplink::Ack { .. } => return Err(malformed("it is an acknowledgement".to_owned())),
        };
        let messages = self.state.network.attach(node, &report).map_err(|e| self.state.explain(e.into()))?;
        Ok(messages.iter().map(|message| self.encode(message)).collect())
    }

    fn detach(&mut self, session: &Arc<Session>) {
        session.end();
        if self.shared.remove_session(session) {
            self.state.network.detach(session.node());
        }
    }

    fn encode(&self, message: &Message) -> Bytes {
        let bytes = Bytes::from(message.encode());
        self.shared.messages.fetch_add(1, Relaxed);
        self.shared.message_bytes.fetch_add(bytes.len() as u64, Relaxed);
        bytes
    }

    fn publish_sizes(&self) {
        let State { network, hosts } = &self.state;
        let sizes = &self.shared.sizes;
        sizes.names.store(network.rib().len() as u64, Relaxed);
        sizes.switches.store(network.topology().nodes().count() as u64, Relaxed);
        sizes.links.store(network.topology().links().count() as u64, Relaxed);
        sizes.hosts.store(hosts.iter().len() as u64, Relaxed);
    }
}

fn is_collision(refusal: &Refusal) -> bool {
    fn is_collision(error: &NetworkError) -> bool {
        match error {
            NetworkError::Rib(RibError::DigestCollision { .. }) => true,
            NetworkError::Batch { source, .. } => is_collision(source),
            _ => false,
        }
    }
    matches!(refusal, Refusal::Network { source, .. } if is_collision(source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Place, Record};
    use crate::hosts::Hosts;
    use crate::store::RowChange;
    use fib::action::PortId;
    use fib::network::{Network, Settings};
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

    /// A store in memory that counts its commits, and fails from the one that is told on.
    #[derive(Clone)]
    struct MemoryStore {
        rows: Arc<Mutex<Rows>>,
        n_commits: Arc<Mutex<usize>>,
        fails_from: usize,
    }

    impl Store for MemoryStore {
        fn rows(&self) -> Box<dyn Iterator<Item = Result<RowChange, StoreError>> + '_> {
            let rows = self.rows.lock().unwrap().clone();
            let row = |((kind, key), value)| Ok(RowChange { kind, key, value: Some(value) });
            Box::new(rows.into_iter().map(row))
        }

        fn commit(&mut self, changes: &[RowChange]) -> Result<(), StoreError> {
            let mut n_commits = self.n_commits.lock().unwrap();
            if *n_commits >= self.fails_from {
                let source = rusqlite::Error::InvalidQuery;
                return Err(StoreError::Failed { path: "memory".into(), source });
            }
            *n_commits += 1;
            let mut rows = self.rows.lock().unwrap();
            for RowChange { kind, key, value } in changes.iter().cloned() {
                match value {
                    Some(value) => drop(rows.insert((kind, key), value)),
                    None => drop(rows.remove(&(kind, key))),
                }
            }
            Ok(())
        }

        fn term(&self) -> u64 {
            1
        }
    }

    struct Bench {
        writer: Writer,
        store: MemoryStore,
        pushes: mpsc::Receiver<Vec<Outgoing>>,
    }

    /// A writer over a network with switch s1 and host h1, which the store has.
    fn bench(fails_from: usize) -> Bench {
        let network = Network::new(Settings::new(7, SecretKey::from_seed(1)), 1).unwrap();
        let mut state = State { network, hosts: Hosts::default() };
        state.carry_out(Change::AddSwitch { name: "s1".to_owned(), tenants: vec![] }).unwrap();
        let place = Place { switch: "s1".to_owned(), port: PortId(1) };
        state.carry_out(Change::AddHost { name: "h1".to_owned(), place }).unwrap();
        let rows = state.network.rows().map(|row| ((row.kind, row.key), row.value.unwrap())).collect();
        let store = MemoryStore { rows: Arc::new(Mutex::new(rows)), n_commits: Arc::default(), fails_from };
        let (pushes, receiver) = mpsc::channel(16);
        let shared = Shared::new();
        let writer = Writer { state, store: Box::new(store.clone()), shared, pushes, switch_backlog_bytes: 1 << 20 };
        Bench { writer, store, pushes: receiver }
    }

    fn put(index: u8) -> (Job, oneshot::Receiver<Result<Changed, Refusal>>) {
        let (reply, answer) = oneshot::channel();
        let name = format!("02:00:00:00:00:{index:02x}");
        let records = vec![Record { name, host: "h1".to_owned(), tenant: 0, ip: None }];
        (Job::Change { change: Change::PutNames { records, only_new: true }, reply }, answer)
    }

    fn rows_of(network: &Network) -> Rows {
        network.rows().map(|row| ((row.kind, row.key), row.value.unwrap())).collect()
    }

    #[test]
    fn requests_that_wait_together_share_one_transaction() {
        let Bench { mut writer, store, .. } = bench(usize::MAX);
        let (jobs, receiver) = mpsc::channel(16);
        let (waiting, answers): (Vec<_>, Vec<_>) = (0..10).map(put).unzip();
        waiting.into_iter().for_each(|job| jobs.try_send(job).map_err(|_| ()).unwrap());
        drop(jobs);
        writer.run(receiver).unwrap();
        assert_eq!(*store.n_commits.lock().unwrap(), 1);
        for answer in answers {
            assert_eq!(answer.blocking_recv().unwrap().unwrap(), Changed { changed: 1, unchanged: 0 });
        }
    }

    #[test]
    fn failed_commit_is_answered_and_ends_the_writer() {
        let Bench { mut writer, store, mut pushes } = bench(1);
        let (jobs, receiver) = mpsc::channel(16);
        let running = std::thread::spawn(move || writer.run(receiver));
        let (job, answer) = put(1);
        jobs.blocking_send(job).map_err(|_| ()).unwrap();
        answer.blocking_recv().unwrap().unwrap();
        let (job, answer) = put(2);
        jobs.blocking_send(job).map_err(|_| ()).unwrap();
        assert!(matches!(answer.blocking_recv().unwrap(), Err(Refusal::StoreFailed { .. })));
        assert!(matches!(running.join().unwrap(), Err(StoreError::Failed { .. })));
        assert!(pushes.blocking_recv().is_none(), "nobody is connected, and the writer is gone");
        let restored = Network::restore(Settings::new(7, SecretKey::from_seed(2)), 2, store.rows().map(Result::unwrap));
        assert_eq!(restored.unwrap().rib().len(), 1, "what was acknowledged, and nothing else");
    }

    #[test]
    fn rekeyed_network_is_committed_whole() {
        let Bench { mut writer, store, .. } = bench(usize::MAX);
        for index in 0..100 {
            let mut group = Group::default();
            writer.take(put(index).0, &mut group);
            writer.finish(group).unwrap();
        }
        let key = writer.state.network.settings().key.clone();
        writer.rekey().unwrap();
        assert_ne!(writer.state.network.settings().key.as_bytes(), key.as_bytes());
        assert!(*store.rows.lock().unwrap() == rows_of(&writer.state.network));
    }
}

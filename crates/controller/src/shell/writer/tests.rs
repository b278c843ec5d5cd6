//! A writer over a store in memory, with a switch in the same thread.

use super::*;
use crate::core::change::{Change, Changed, Place, Record, Refusal};
use crate::hosts::Hosts;
use crate::shell::job::{Attached, Reply};
use fib::action::PortId;
use fib::network::Network;
use fib::replica::{Limits, MemoryTables, Replica};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;

/// The output of a future that is ready.
trait NowOrNever: Future + Sized {
    fn now_or_never(self) -> Option<Self::Output> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(self).poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }
}
impl<F: Future> NowOrNever for F {}

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

/// A store in memory that counts its commits, and fails from a given commit on.
#[derive(Clone)]
struct MemoryStore {
    rows: Arc<Mutex<Rows>>,
    n_commits: Arc<Mutex<usize>>,
    term: Arc<Mutex<u64>>,
    fails_from: Arc<AtomicUsize>,
}

impl Store for MemoryStore {
    fn rows(&self) -> Box<dyn Iterator<Item = Result<RowChange, StoreError>> + '_> {
        let rows = self.rows.lock().unwrap().clone();
        let row = |((kind, key), value)| Ok(RowChange { kind, key, value: Some(value) });
        Box::new(rows.into_iter().map(row))
    }

    fn commit(&mut self, changes: &[RowChange]) -> Result<(), StoreError> {
        let mut n_commits = self.n_commits.lock().unwrap();
        if *n_commits >= self.fails_from.load(Relaxed) {
            let error = rusqlite::Error::InvalidQuery;
            return Err(StoreError::Failed { path: "memory".into(), error });
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
        *self.term.lock().unwrap()
    }

    fn set_term(&mut self, term: u64) {
        *self.term.lock().unwrap() = term;
    }
}

struct Bench {
    writer: Writer,
    store: MemoryStore,
    pushes: mpsc::Receiver<Vec<Outgoing<Arc<Session>>>>,
}

/// A writer over a network with switch s1 and host h1, both in the store.
fn bench(fails_from: usize) -> Bench {
    let network = Network::new(Settings::new(7, SecretKey::from_seed(1)), 1).unwrap();
    let mut state = State { network, hosts: Hosts::default() };
    state.carry_out(Change::AddSwitch { name: "s1".to_owned(), tenants: vec![] }).unwrap();
    let place = Place { switch: "s1".to_owned(), port: PortId(1) };
    state.carry_out(Change::AddHosts { hosts: vec![("h1".to_owned(), place)] }).unwrap();
    let rows = state.network.rows().map(|row| ((row.kind, row.key), row.value.unwrap())).collect();
    let store = MemoryStore {
        rows: Arc::new(Mutex::new(rows)),
        n_commits: Arc::default(),
        term: Arc::default(),
        fails_from: Arc::new(AtomicUsize::new(fails_from)),
    };
    let (pushes, receiver) = mpsc::channel(16);
    let shared = Shared::new();
    let writer = Writer::new(state, Some(Box::new(store.clone())), shared, pushes, 1 << 20, Rates::default());
    Bench { writer, store, pushes: receiver }
}

fn change(change: Change) -> (Job, oneshot::Receiver<Result<Changed, Refusal>>) {
    let (reply, answer): (Reply<Changed>, _) = oneshot::channel();
    (Job::change(change, reply), answer)
}

fn record(name: String) -> Record {
    Record { name, host: "h1".to_owned(), tenant: 0, ip: None }
}

fn put(index: u8) -> (Job, oneshot::Receiver<Result<Changed, Refusal>>) {
    let records = vec![record(format!("02:00:00:00:00:{index:02x}"))];
    change(Change::PutNames { records, only_new: true })
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
    assert_eq!(restored.unwrap().0.rib().len(), 1, "what was acknowledged, and nothing else");
}

/// Attaches the switch and sends it all that it lacks.
fn attach(bench: &mut Bench, replica: &mut Replica<MemoryTables>) -> Attached {
    let (reply, welcome) = oneshot::channel();
    bench.writer.turn(Job::attach("s1".to_owned(), replica.report(), true, reply), || None).unwrap();
    let mut attached = welcome.now_or_never().unwrap().unwrap().ok().unwrap();
    drain(bench, &mut attached, replica);
    attached
}

/// Applies everything in the replica's stream, and acknowledges it.
fn drain(bench: &mut Bench, attached: &mut Attached, replica: &mut Replica<MemoryTables>) {
    while let Ok(outgoing) = bench.pushes.try_recv() {
        outgoing.into_iter().for_each(|o| _ = o.line.lock().send(o.message, now()));
    }
    while let Some(Some(next)) = attached.outbox.next().now_or_never() {
        replica.receive(&next.message).unwrap();
        attached.session.lock().acknowledge(next.sequence);
    }
}

#[test]
fn in_step_is_not_said_while_a_parked_switch_is_released() {
    let mut bench = bench(usize::MAX);
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut attached = attach(&mut bench, &mut replica);
    let shared = Arc::clone(&bench.writer.shared);
    let serves_all = |bench: &Bench, replica: &Replica<MemoryTables>| {
        bench.writer.owner.state.network.held(fib::topology::NodeId(1)).unwrap() == replica.report()
    };
    assert!(shared.connected()[0].in_step && serves_all(&bench, &replica));
    for batch in 0..2_u32 {
        let name = |i: u32| format!("02:01:{batch:02x}:{:02x}:{:02x}:{:02x}", i >> 16, i >> 8 & 255, i & 255);
        let records = (0..20_000).map(|i| record(name(i))).collect();
        bench.writer.turn(change(Change::PutNames { records, only_new: true }).0, || None).unwrap();
    }
    // From here on, until its messages are delivered below, the switch serves the state before the import.
    let released = std::sync::atomic::AtomicBool::new(false);
    let n_claims = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut n_claims = 0;
            while !released.load(Relaxed) {
                n_claims += usize::from(shared.connected()[0].in_step);
            }
            n_claims
        });
        // What is not a name does not wait.
        let place = Place { switch: "s1".to_owned(), port: PortId(2) };
        let urgent = change(Change::AddHosts { hosts: vec![("h2".to_owned(), place)] });
        bench.writer.turn(urgent.0, || None).unwrap();
        released.store(true, Relaxed);
        watcher.join().unwrap()
    });
    assert_eq!(n_claims, 0);
    assert!(!attached.session.lock().is_parked() && !shared.connected()[0].in_step);
    drain(&mut bench, &mut attached, &mut replica);
    assert!(shared.connected()[0].in_step && serves_all(&bench, &replica));
}

#[test]
fn switch_whose_welcome_nobody_waits_for_is_detached() {
    let mut bench = bench(usize::MAX);
    let report = Replica::new(Limits::default(), MemoryTables::default()).report();
    let (reply, welcome) = oneshot::channel();
    drop(welcome);
    bench.writer.turn(Job::attach("s1".to_owned(), report, true, reply), || None).unwrap();
    assert!(bench.writer.shared.sessions().is_empty());
    assert!(!bench.writer.owner.state.network.is_attached(fib::topology::NodeId(1)));
}

mod reads;

//! A writer over a store in memory, with a switch in the same thread.

use super::*;
use crate::core::change::{Place, Record};
use crate::core::hosts::{HOST_ROW, Hosts};
use crate::store::RowChange;
use fib::action::PortId;
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::topology::Wanted;
use lookup::hash::SecretKey;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};

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
    pushes: mpsc::Receiver<Vec<Outgoing>>,
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
    let mut writer = Writer::new(state, Some(Box::new(store.clone())), shared, pushes, 1 << 20, Rates::default());
    writer.turn_names = usize::MAX;
    Bench { writer, store, pushes: receiver }
}

fn put(index: u8) -> (Job, oneshot::Receiver<Result<Changed, Refusal>>) {
    let (reply, answer) = oneshot::channel();
    let name = format!("02:00:00:00:00:{index:02x}");
    let records = vec![Record { name, host: "h1".to_owned(), tenant: 0, ip: None }];
    (Input::Change { change: Change::PutNames { records, only_new: true }, reply }.into(), answer)
}

fn rows_of(network: &Network) -> Rows {
    network.rows().map(|row| ((row.kind, row.key), row.value.unwrap())).collect()
}

/// The rows of a store that are the network's.
fn network_rows(store: &MemoryStore) -> Rows {
    let mut rows = store.rows.lock().unwrap().clone();
    rows.retain(|(kind, _), _| *kind != HOST_ROW);
    rows
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

#[test]
fn switches_are_sent_nothing_that_could_not_be_committed() {
    let mut bench = bench(usize::MAX);
    bench.writer.state.carry_out(Change::AddSwitch { name: "s2".to_owned(), tenants: vec![] }).unwrap();
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut parked = attach(&mut bench.writer, &replica);
    drain(&mut bench, &mut parked, &mut replica);
    bench.writer.park(|_| true);
    let (hello, mut welcome) = oneshot::channel();
    let report = Replica::new(Limits::default(), MemoryTables::default()).report();
    let hello = Task::Attach { switch: "s2".to_owned(), report, weighs_ways: true, reply: hello };
    bench.writer.turn(hello.into(), || None).unwrap();
    let waits = welcome.try_recv().ok().unwrap().ok().unwrap();
    bench.writer.resync(&waits.session, replica.report());
    let sent = bench.writer.shared.totals.messages.load(Relaxed);
    bench.store.fails_from.store(0, Relaxed);
    let place = Place { switch: "s1".to_owned(), port: PortId(2) };
    let change = Change::AddHosts { hosts: vec![("h2".to_owned(), place)] };
    let urgent = Input::Change { change, reply: oneshot::channel().0 };
    bench.writer.turn(urgent.into(), || None).unwrap_err();
    assert_eq!(bench.writer.shared.totals.messages.load(Relaxed), sent, "messages made");
    assert!(bench.pushes.try_recv().is_err());
    assert!(parked.session.is_ended() && waits.session.is_ended());
}

/// Makes a change, and gives its messages to the sessions.
fn change(bench: &mut Bench, change: Change) {
    let mut group = Group::default();
    bench.writer.decide(Input::Change { change, reply: oneshot::channel().0 }, &mut group).unwrap();
    bench.writer.finish(group).unwrap();
    while let Ok(outgoing) = bench.pushes.try_recv() {
        outgoing.into_iter().for_each(|o| _ = o.session.send(o.message));
    }
}

/// Puts or removes one of 6,000 names, at one of two hosts.
fn random_change(rng: &mut lookup::hash::Rng) -> Change {
    let i = rng.below(6_000);
    let name = format!("02:01:00:00:{:02x}:{:02x}", i >> 8, i & 255);
    if rng.below(3) == 0 {
        return Change::RemoveNames { names: vec![name], ignore_missing: true };
    }
    let records = vec![Record { name, host: format!("h{}", 1 + rng.below(2)), tenant: 0, ip: None }];
    Change::PutNames { records, only_new: false }
}

/// Host h2 beside h1.
fn add_second_host(bench: &mut Bench) {
    let place = Place { switch: "s1".to_owned(), port: PortId(2) };
    change(bench, Change::AddHosts { hosts: vec![("h2".to_owned(), place)] });
}

fn attach(writer: &mut Writer, replica: &Replica<MemoryTables>) -> Attached {
    attach_as(writer, "s1", replica.report())
}

/// Attaches a switch, and goes on with answers for a turn.
fn attach_as(writer: &mut Writer, switch: &str, report: Report) -> Attached {
    let attached = writer.attach(switch, report, true).unwrap();
    writer.answer_reports(writer.turn_names);
    attached
}

/// Applies everything in the replica's stream, and acknowledges what a switch acknowledges. Returns the number of messages.
fn drain(bench: &mut Bench, attached: &mut Attached, replica: &mut Replica<MemoryTables>) -> usize {
    while let Ok(outgoing) = bench.pushes.try_recv() {
        for Outgoing { session, message, .. } in outgoing {
            session.send(message);
        }
    }
    let mut n_messages = 0;
    while let Some(Some(next)) = attached.outbox.next().now_or_never() {
        replica.receive(&next.message).unwrap();
        if next.answered == attached.session.n_reports() {
            attached.session.acknowledge(next.sequence);
        }
        n_messages += 1;
    }
    n_messages
}

fn import(writer: &mut Writer, from: u32, n: u32) {
    let record = |i: u32| {
        let [a, b, c, d] = i.to_be_bytes();
        let name = format!("02:01:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
        Record { name, host: "h1".to_owned(), tenant: 0, ip: None }
    };
    let (reply, answer) = oneshot::channel();
    let records = (from..from + n).map(record).collect();
    let mut group = Group::default();
    writer.decide(Input::Change { change: Change::PutNames { records, only_new: true }, reply }, &mut group).unwrap();
    writer.finish(group).unwrap();
    assert_eq!(answer.blocking_recv().unwrap().unwrap().changed, u64::from(n));
}

#[test]
fn import_of_many_batches_is_sent_to_a_switch_once() {
    let mut bench = bench(usize::MAX);
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut attached = attach(&mut bench.writer, &replica);
    drain(&mut bench, &mut attached, &mut replica);
    for batch in 0..5 {
        import(&mut bench.writer, batch * 20_000, 20_000);
        assert!(!bench.writer.shared.connected()[0].in_step);
    }
    assert_eq!(drain(&mut bench, &mut attached, &mut replica), 0, "nothing while the import runs");
    bench.writer.release(true);
    drain(&mut bench, &mut attached, &mut replica);
    assert_eq!(replica.report(), bench.writer.state.network.held(NodeId(1)).unwrap());
    assert_eq!(replica.tables().valid.len(), 100_000);
    assert!(bench.writer.shared.connected()[0].in_step);
}

/// What the switch serves, as it would report it.
fn serves_all(bench: &Bench, replica: &Replica<MemoryTables>) -> bool {
    bench.writer.state.network.held(NodeId(1)).is_some_and(|held| held == replica.report())
}

#[test]
fn in_step_is_not_said_while_a_parked_switch_is_released() {
    let mut bench = bench(usize::MAX);
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut attached = attach(&mut bench.writer, &replica);
    drain(&mut bench, &mut attached, &mut replica);
    assert!(bench.writer.shared.connected()[0].in_step && serves_all(&bench, &replica));
    for batch in 0..2 {
        import(&mut bench.writer, batch * 20_000, 20_000);
    }
    // From here on, until its messages are delivered below, the switch serves the state before the import.
    let shared = Arc::clone(&bench.writer.shared);
    let released = std::sync::atomic::AtomicBool::new(false);
    let n_claims = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut n_claims = 0;
            while !released.load(Relaxed) {
                n_claims += usize::from(shared.connected()[0].in_step);
            }
            n_claims
        });
        bench.writer.release(true);
        released.store(true, Relaxed);
        watcher.join().unwrap()
    });
    assert_eq!(n_claims, 0);
    assert!(!bench.writer.shared.connected()[0].in_step);
    drain(&mut bench, &mut attached, &mut replica);
    assert!(bench.writer.shared.connected()[0].in_step && serves_all(&bench, &replica));
}

#[test]
fn in_step_is_said_when_all_is_served_whatever_other_switches_do() {
    let mut bench = bench(usize::MAX);
    bench.writer.state.carry_out(Change::AddSwitch { name: "s2".to_owned(), tenants: vec![] }).unwrap();
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let shared = Arc::clone(&bench.writer.shared);
    let in_step = || shared.connected().iter().map(|c| c.in_step).collect::<Vec<_>>();

    let mut first = attach(&mut bench.writer, &replica);
    let second = attach_as(&mut bench.writer, "s2", replica.report());
    assert_eq!(in_step(), [false, false], "they are sent images");
    drain(&mut bench, &mut first, &mut replica);
    assert_eq!(in_step(), [true, false]);
    let mut group = Group::default();
    bench.writer.take(put(1).0, &mut group).unwrap();
    bench.writer.finish(group).unwrap();
    assert_eq!(in_step(), [false, false], "the messages are made and not queued");
    let mut lists = Vec::new();
    while let Ok(list) = bench.pushes.try_recv() {
        lists.extend(list);
    }
    let (own, others): (Vec<_>, Vec<_>) = lists.into_iter().partition(|o| o.session.node() == NodeId(1));
    own.into_iter().for_each(|o| _ = o.session.send(o.message));
    assert_eq!(in_step(), [false, false], "queued and not acknowledged");
    drain(&mut bench, &mut first, &mut replica);
    assert!(serves_all(&bench, &replica));
    assert_eq!(in_step(), [true, false], "the pusher still waits with those of the other switch");
    drop((second, others));
}

#[test]
fn switch_that_saw_a_later_term_is_served_under_one_after_it() {
    let mut bench = bench(usize::MAX);
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut attached = attach(&mut bench.writer, &replica);
    drain(&mut bench, &mut attached, &mut replica);
    let ahead = fib::messages::Report { term: 2_000_000_000, ..replica.report() };
    attached = attach_as(&mut bench.writer, "s1", ahead.clone());
    assert_eq!(bench.store.term(), 2_000_000_001, "durable before anything is sent under it");
    let mut group = Group::default();
    bench.writer.take(put(1).0, &mut group).unwrap();
    bench.writer.finish(group).unwrap();
    drain(&mut bench, &mut attached, &mut replica);
    assert_eq!(replica.report().term, 2_000_000_001);
    let invented = fib::messages::Report { term: u64::MAX, ..ahead };
    let refused = bench.writer.attach("s1", invented, true).err().unwrap();
    assert!(matches!(refused, Refusal::TermTooLate { got: u64::MAX, .. }), "{refused}");
    assert_eq!(bench.store.term(), 2_000_000_001);
}

#[test]
fn switch_that_lags_gets_the_newest_state_once_and_costs_its_limit() {
    let mut bench = bench(usize::MAX);
    bench.writer.switch_backlog_bytes = 2_000;
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut attached = attach(&mut bench.writer, &replica);
    drain(&mut bench, &mut attached, &mut replica);
    for index in 0..=255 {
        bench.writer.park(Session::is_over_limit);
        let mut group = Group::default();
        bench.writer.take(put(index).0, &mut group).unwrap();
        bench.writer.finish(group).unwrap();
        while let Ok(outgoing) = bench.pushes.try_recv() {
            outgoing.into_iter().for_each(|o| _ = o.session.send(o.message));
        }
        bench.writer.release(false);
    }
    let n_waiting = drain(&mut bench, &mut attached, &mut replica);
    assert!(n_waiting < 100, "{n_waiting} messages");
    bench.writer.release(false);
    let n_missing = drain(&mut bench, &mut attached, &mut replica);
    assert!(n_missing < 10, "{n_missing} messages");
    assert_eq!(replica.tables().local.len(), 256);
    assert_eq!(replica.report(), bench.writer.state.network.held(NodeId(1)).unwrap());
}

#[test]
fn parked_switch_that_connects_again_is_told_by_its_new_stream_only() {
    let mut bench = bench(usize::MAX);
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut first = attach(&mut bench.writer, &replica);
    import(&mut bench.writer, 0, 20_000);
    let mut second = attach(&mut bench.writer, &replica);
    bench.writer.release(true);
    assert!(first.session.is_ended() && first.outbox.next().now_or_never() == Some(None));
    drain(&mut bench, &mut second, &mut replica);
    assert_eq!(replica.report(), bench.writer.state.network.held(NodeId(1)).unwrap());
    bench.writer.detach(&first.session);
    assert!(bench.writer.state.network.is_attached(NodeId(1)), "the end of the first stream is no news");
}

#[test]
fn images_are_made_while_there_is_room_and_the_others_come_later() {
    let mut bench = bench(usize::MAX);
    for name in ["s2", "s3"] {
        bench.writer.state.carry_out(Change::AddSwitch { name: name.to_owned(), tenants: vec![] }).unwrap();
    }
    import(&mut bench.writer, 0, 20_000);
    bench.writer.waiting_bytes = 1;
    let mut replicas = [1, 2, 3].map(|_| Replica::new(Limits::default(), MemoryTables::default()));
    let mut streams =
        [("s1", 0), ("s2", 1), ("s3", 2)].map(|(name, i)| attach_as(&mut bench.writer, name, replicas[i].report()));
    let backlogs = |streams: &[Attached; 3]| streams.each_ref().map(|stream| stream.session.backlog_bytes() > 0);
    assert_eq!(backlogs(&streams), [true, false, false]);
    import(&mut bench.writer, 20_000, 20_000);
    assert_eq!(backlogs(&streams), [true, false, false], "nothing is made for those that wait");
    // One message at a time: each fills the room.
    while !bench.writer.shared.connected().iter().all(|switch| switch.in_step) {
        let n_messages: usize = (0..3).map(|i| drain(&mut bench, &mut streams[i], &mut replicas[i])).sum();
        bench.writer.answer_reports(usize::MAX);
        bench.writer.release(true);
        assert!(n_messages > 0, "somebody is sent something in each round");
    }
    for (i, replica) in replicas.iter().enumerate() {
        assert_eq!(replica.report(), bench.writer.state.network.held(NodeId(i as u32 + 1)).unwrap());
    }
}

/// Names come, move and go while the answer is made, 100 names a turn.
#[test]
fn answer_in_turns_is_the_state_when_it_began_and_changes_follow_it() {
    let mut rng = lookup::hash::Rng::new(lookup::testkit::seed());
    let mut bench = bench(usize::MAX);
    add_second_host(&mut bench);
    import(&mut bench.writer, 0, 3_000);
    bench.writer.turn_names = 100;
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut attached = attach(&mut bench.writer, &replica);
    let mut n_turns = 0;
    while bench.writer.answer.is_some() || bench.writer.preparing.is_some() {
        assert!(!bench.writer.shared.connected()[0].in_step);
        for _ in 0..20 {
            change(&mut bench, random_change(&mut rng));
        }
        // The switch takes what there is, at some turns.
        if rng.below(4) == 0 {
            drain(&mut bench, &mut attached, &mut replica);
        }
        bench.writer.answer_reports(100);
        n_turns += 1;
    }
    assert!(n_turns > 50, "{n_turns}");
    drain(&mut bench, &mut attached, &mut replica);
    assert_eq!(replica.report(), bench.writer.state.network.held(NodeId(1)).unwrap());
    assert!(bench.writer.shared.connected()[0].in_step && serves_all(&bench, &replica));
    assert_eq!(bench.writer.state.network.n_changed_since_reading(), 0);
}

#[test]
fn switch_that_asks_again_during_an_answer_is_answered_anew() {
    let mut bench = bench(usize::MAX);
    import(&mut bench.writer, 0, 3_000);
    bench.writer.turn_names = 100;
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut attached = attach(&mut bench.writer, &replica);
    while bench.writer.answer.is_none() {
        bench.writer.answer_reports(100);
    }
    let (session, report) = (Arc::clone(&attached.session), replica.report());
    bench.writer.resync(&session, report);
    import(&mut bench.writer, 3_000, 10);
    bench.writer.answer_reports(usize::MAX);
    drain(&mut bench, &mut attached, &mut replica);
    assert_eq!(replica.report(), bench.writer.state.network.held(NodeId(1)).unwrap());
    assert!(bench.writer.shared.connected()[0].in_step && serves_all(&bench, &replica));
}

#[test]
fn parked_switch_is_seen_again_when_what_waits_for_it_is_dropped() {
    let mut bench = bench(usize::MAX);
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut attached = attach(&mut bench.writer, &replica);
    drain(&mut bench, &mut attached, &mut replica);
    import(&mut bench.writer, 0, BULK_NAMES as u32);
    assert!(attached.session.is_parked());
    // It is taken from the stream after the writer looked, and nothing acknowledges it.
    let verifying = attached.session.verify().unwrap();
    bench.writer.last_bulk = None;
    bench.writer.release(false);
    assert!(attached.session.is_parked() && !attached.session.is_caught_up());
    assert!(bench.writer.shared.progress.parked.notified().now_or_never().is_some(), "the writer looks again");
    assert_ne!(attached.outbox.next().now_or_never().unwrap().unwrap().verify, 0);
    bench.writer.release(false);
    drain(&mut bench, &mut attached, &mut replica);
    assert!(bench.writer.shared.connected()[0].in_step && serves_all(&bench, &replica));
    drop(verifying);
}

#[test]
fn who_holds_the_most_for_too_long_while_others_wait_is_cut_off() {
    let mut bench = bench(usize::MAX);
    bench.writer.state.carry_out(Change::AddSwitch { name: "s2".to_owned(), tenants: vec![] }).unwrap();
    bench.writer.waiting_bytes = 1;
    let replica = Replica::new(Limits::default(), MemoryTables::default());
    let report = replica.report();
    let idle = attach_as(&mut bench.writer, "s1", report.clone());
    let next = attach_as(&mut bench.writer, "s2", report);
    bench.writer.answer_reports(usize::MAX);
    assert!(!idle.session.is_ended() && next.session.backlog_bytes() == 0);
    bench.writer.no_room_since = Instant::now().checked_sub(reports::ROOM_PATIENCE);
    bench.writer.answer_reports(usize::MAX);
    assert!(idle.session.is_ended());
    bench.writer.answer_reports(usize::MAX);
    assert!(!next.session.is_ended() && next.session.backlog_bytes() > 0);
}

#[test]
fn link_whose_cost_and_state_change_together_is_never_routed_over_meanwhile() {
    let Bench { mut writer, .. } = bench(usize::MAX);
    let place = |switch: &str, port| Place { switch: switch.to_owned(), port: PortId(port) };
    let mut change = |change| writer.state.carry_out(change).unwrap();
    for name in ["s2", "s3"] {
        change(Change::AddSwitch { name: name.to_owned(), tenants: vec![] });
    }
    for (a, b, up) in [("s1", "s2", false), ("s1", "s3", true), ("s3", "s2", true)] {
        let port = |other: &str| u16::from(other.as_bytes()[1]);
        let wanted = Wanted { up, ..Wanted::default() };
        change(Change::AddLink { a: place(a, port(b)), b: place(b, port(a)), wanted });
    }
    change(Change::AddHosts { hosts: vec![("h2".to_owned(), place("s2", 1))] });
    let records = vec![Record { name: "02:00:00:00:00:01".to_owned(), host: "h2".to_owned(), tenant: 0, ip: None }];
    change(Change::PutNames { records, only_new: true });
    let replica = Replica::new(Limits::default(), MemoryTables::default());
    let _stream = attach(&mut writer, &replica);
    let end = place("s1", u16::from(b'2'));
    for (up, cost) in [(true, 9), (false, 1), (true, 9)] {
        let set = Change::SetLink { end: end.clone(), cost: Some(cost), weight: None, raised: None, up: Some(up) };
        let outcome = writer.state.carry_out(set).unwrap();
        assert_eq!(outcome.changed.changed, 1);
        // Alternates may be others; the ways are in the FIB.
        let of_fib = |(_, message): &&(_, Message)| !matches!(message.body, Body::Actions { .. });
        let n_messages = outcome.effects.iter().flat_map(Effects::messages).filter(of_fib).count();
        assert_eq!(n_messages, 0, "the way over s3 is the shortest before and after: up {up}, cost {cost}");
    }
}

#[test]
fn parts_that_were_made_anew_stay_counted_when_the_network_is_replaced() {
    let Bench { mut writer, .. } = bench(usize::MAX);
    writer.store = None;
    let counted = |writer: &Writer| {
        writer.publish_sizes();
        writer.shared.sizes.rebuilt.lock().values().sum::<u64>()
    };
    let mut last = 0;
    for number in 1..4 {
        for i in 0..2000 {
            let name = format!("02:00:00:00:{:02x}:{:02x}", i >> 8, i & 255);
            let records = vec![Record { name, host: "h1".to_owned(), tenant: 0, ip: None }];
            writer.state.carry_out(Change::PutNames { records, only_new: true }).unwrap();
        }
        let now = counted(&writer);
        assert!(now > last, "{now} after {last}");
        last = now;
        writer.replace(bench(usize::MAX).writer.state, number);
        assert!(counted(&writer) >= last, "{} after {last}", counted(&writer));
    }
}

mod reads;
mod rekey;

//! An owner over a store in memory, with switches in the same thread.

use super::*;
use crate::core::change::{Change, Changed, Place, Record, Refusal};
use crate::core::push::Outgoing;
use crate::core::session::{Next, Session};
use crate::core::single::Stream;
use crate::hosts::{HOST_ROW, Hosts};
use fib::action::PortId;
use fib::durable::RowChange;
use fib::messages::Body;
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::topology::Wanted;
use lookup::hash::SecretKey;

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

/// The driver: a store in memory that fails from a given commit on, and what was handed out.
struct Bench {
    owner: Owner<Stream, u64>,
    now: Instant,
    rows: Rows,
    n_commits: usize,
    fails_from: usize,
    term: u64,
    pushes: Vec<Outgoing<Stream>>,
    answers: BTreeMap<u64, Result<Changed, Refusal>>,
    attached: BTreeMap<u64, Stream>,
    next_ticket: u64,
    n_messages: u64,
}

/// A network with switch s1 and host h1, both in the store.
fn bench() -> Bench {
    let network = Network::new(Settings::new(7, SecretKey::from_seed(1)), 1).unwrap();
    let mut state = State { network, hosts: Hosts::default() };
    state.carry_out(Change::AddSwitch { name: "s1".to_owned(), tenants: vec![] }).unwrap();
    let place = Place { switch: "s1".to_owned(), port: PortId(1) };
    state.carry_out(Change::AddHosts { hosts: vec![("h1".to_owned(), place)] }).unwrap();
    let rows = rows_of(&state.network);
    let now = Instant::now();
    let bounds = Bounds { turn_names: usize::MAX, ..Bounds::new(1 << 20, || SecretKey::from_seed(77)) };
    Bench {
        owner: Owner::leading(state, bounds, Rates::default(), now),
        now,
        rows,
        n_commits: 0,
        fails_from: usize::MAX,
        term: 1,
        pushes: Vec::new(),
        answers: BTreeMap::new(),
        attached: BTreeMap::new(),
        next_ticket: 0,
        n_messages: 0,
    }
}

impl Bench {
    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn commit(&mut self, rows: &[RowChange]) -> Result<(), &'static str> {
        if rows.is_empty() {
            return Ok(());
        }
        if self.n_commits >= self.fails_from {
            return Err("the disk is full");
        }
        self.n_commits += 1;
        for RowChange { kind, key, value } in rows.iter().cloned() {
            match value {
                Some(value) => drop(self.rows.insert((kind, key), value)),
                None => drop(self.rows.remove(&(kind, key))),
            }
        }
        Ok(())
    }

    fn hand_out(&mut self, turn: Turn<Stream, u64>) -> Result<(), &'static str> {
        self.answers.extend(turn.refused.into_iter().map(|(ticket, refusal)| (ticket, Err(refusal))));
        if let Some(term) = turn.raise_term {
            self.term = term;
            self.owner.raised(Ok(()));
        }
        self.commit(&turn.rows)?;
        self.commit(&turn.views)?;
        self.n_messages += turn.counts.messages;
        for answer in turn.answers {
            match answer {
                Answer::Changed(ticket, changed) => _ = self.answers.insert(ticket, Ok(changed)),
                Answer::Attached(ticket, stream) => _ = self.attached.insert(ticket, stream),
                Answer::Durable(_) | Answer::Left { .. } => {}
            }
        }
        self.pushes.extend(turn.outgoing);
        if let Some(rekey) = turn.build {
            self.owner.rekeyed(rekey.build(1));
        }
        Ok(())
    }

    /// Commits and hands out what is left of the round.
    fn round(&mut self) -> Result<(), &'static str> {
        while let Some(turn) = self.owner.next(self.now) {
            self.hand_out(turn).inspect_err(|_| self.owner.end_sessions())?;
            self.owner.took(Duration::ZERO, self.now);
        }
        Ok(())
    }

    /// Does these stages and nothing else.
    fn stages(&mut self, stages: impl Into<VecDeque<Stage>>) {
        self.owner.stages = stages.into();
        self.round().unwrap();
    }

    /// A whole round with these inputs.
    fn take(&mut self, inputs: impl IntoIterator<Item = Input<Stream, u64>>) -> Result<(), &'static str> {
        inputs.into_iter().for_each(|input| _ = self.owner.take(input, self.now));
        self.round()
    }

    /// Does one task and nothing else.
    fn task(&mut self, task: Task<Stream, u64>) {
        self.owner.group.tasks.push_back(task);
        loop {
            let turn = self.owner.do_task(self.now).unwrap();
            let is_done = turn.raise_term.is_none();
            self.hand_out(turn).unwrap();
            if is_done {
                break;
            }
        }
        self.owner.stages.clear();
    }

    /// Makes a change, and gives its messages to the sessions.
    fn change(&mut self, change: Change) -> Result<Changed, Refusal> {
        let ticket = self.ticket();
        self.owner.decide(Input::Change { change, ticket, is_traced: false }, self.now);
        self.stages([Stage::Commit, Stage::Messages]);
        self.answers.remove(&ticket).unwrap()
    }

    /// The messages of the pusher go to the sessions.
    fn send(&mut self) {
        let now = self.now;
        self.pushes.drain(..).for_each(|o| _ = o.line.with(|session| session.send(o.message, now)));
    }

    fn answer_reports(&mut self, n_names: usize) {
        self.stages([Stage::Reports(n_names)]);
    }

    fn release(&mut self, urgent: bool) {
        self.owner.group.urgent = urgent;
        self.stages([Stage::Release]);
    }

    fn rekey(&mut self) -> u64 {
        let ticket = self.ticket();
        let refused = self.owner.begin_rekey(Some(ticket), self.now);
        self.answers.extend(refused.map(|(ticket, refusal)| (ticket, Err(refusal))));
        ticket
    }

    fn go_on_with_rekey(&mut self, n_names: usize) {
        self.stages([Stage::Rekey(n_names)]);
    }

    /// Says hello for a switch; nothing is answered yet.
    fn hello(&mut self, switch: &str, report: Report) -> Result<Stream, Refusal> {
        let ticket = self.ticket();
        self.task(Task::Attach { switch: switch.to_owned(), report, weighs_ways: true, ticket });
        match self.answers.remove(&ticket) {
            Some(refused) => Err(refused.unwrap_err()),
            None => Ok(self.attached.remove(&ticket).unwrap()),
        }
    }

    /// Attaches a switch, and goes on with answers for a turn.
    fn attach_as(&mut self, switch: &str, report: Report) -> Stream {
        let stream = self.hello(switch, report).unwrap();
        self.answer_reports(self.owner.bounds.turn_names);
        stream
    }

    fn attach(&mut self, replica: &Replica<MemoryTables>) -> Stream {
        self.attach_as("s1", replica.report())
    }

    /// A switch asks for what it lacks.
    fn resync(&mut self, stream: &Stream, report: Report) {
        stream.with(|session| session.ask(report));
        self.task(Task::Resync(stream.clone()));
    }

    /// Applies everything in the replica's stream, and acknowledges it as a switch does. Returns the number of messages.
    fn drain(&mut self, stream: &Stream, replica: &mut Replica<MemoryTables>) -> usize {
        self.send();
        let mut n_messages = 0;
        while let Next::Message(next) = stream.with(Session::take) {
            replica.receive(&next.message).unwrap();
            if next.answered == stream.with(|session| session.n_reports()) {
                stream.with(|session| session.acknowledge(next.sequence));
            }
            n_messages += 1;
        }
        n_messages
    }

    fn import(&mut self, from: u32, n: u32) {
        let record = |i: u32| {
            let [a, b, c, d] = i.to_be_bytes();
            record(format!("02:01:{a:02x}:{b:02x}:{c:02x}:{d:02x}"), "h1")
        };
        let records = (from..from + n).map(record).collect();
        assert_eq!(self.change_and_keep(Change::PutNames { records, only_new: true }).changed, u64::from(n));
    }

    /// Makes a change; its messages stay with the pusher.
    fn change_and_keep(&mut self, change: Change) -> Changed {
        self.change(change).unwrap()
    }

    fn in_step(&self) -> Vec<bool> {
        let all_made = self.owner.progress.is_all_made();
        let is_in_step = |line: &Stream| line.with(|session| session.is_in_step(!session.is_parked(), all_made));
        self.owner.lines.values().map(is_in_step).collect()
    }

    /// Whether the switch serves what it should.
    fn serves_all(&self, node: u32, replica: &Replica<MemoryTables>) -> bool {
        self.owner.state.network.held(NodeId(node)).is_some_and(|held| held == replica.report())
    }

    /// Host h2 beside h1.
    fn add_second_host(&mut self) {
        let place = Place { switch: "s1".to_owned(), port: PortId(2) };
        self.change(Change::AddHosts { hosts: vec![("h2".to_owned(), place)] }).unwrap();
        self.send();
    }

    fn add_switch(&mut self, name: &str) {
        self.owner.state.carry_out(Change::AddSwitch { name: name.to_owned(), tenants: vec![] }).unwrap();
    }

    /// The rows of the store that are the network's.
    fn network_rows(&self) -> Rows {
        let is_network = |((kind, _), _): &(&(u8, Vec<u8>), &Vec<u8>)| *kind != HOST_ROW;
        self.rows.iter().filter(is_network).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

fn replica() -> Replica<MemoryTables> {
    Replica::new(Limits::default(), MemoryTables::default())
}

fn record(name: String, host: &str) -> Record {
    Record { name, host: host.to_owned(), tenant: 0, ip: None }
}

fn put(index: u8) -> Change {
    Change::PutNames { records: vec![record(format!("02:00:00:00:00:{index:02x}"), "h1")], only_new: true }
}

fn rows_of(network: &Network) -> Rows {
    network.rows().map(|row| ((row.kind, row.key), row.value.unwrap())).collect()
}

/// Puts or removes one of 6,000 names, at one of two hosts.
fn random_change(rng: &mut lookup::hash::Rng) -> Change {
    let i = rng.below(6_000);
    let name = format!("02:01:00:00:{:02x}:{:02x}", i >> 8, i & 255);
    if rng.below(3) == 0 {
        return Change::RemoveNames { names: vec![name], ignore_missing: true };
    }
    Change::PutNames { records: vec![record(name, &format!("h{}", 1 + rng.below(2)))], only_new: false }
}

fn is_parked(stream: &Stream) -> bool {
    stream.with(|session| session.is_parked())
}

fn is_ended(stream: &Stream) -> bool {
    stream.with(|session| session.is_ended())
}

fn backlog(stream: &Stream) -> usize {
    stream.with(|session| session.backlog_bytes())
}

#[test]
fn inputs_that_are_taken_together_are_one_turn_of_rows() {
    let mut bench = bench();
    let inputs = (0..10).map(|i| Input::Change { change: put(i), ticket: i.into(), is_traced: false });
    bench.take(inputs.collect::<Vec<_>>()).unwrap();
    assert_eq!(bench.n_commits, 1);
    let done = Changed { changed: 1, unchanged: 0 };
    assert!((0..10).all(|ticket| bench.answers[&ticket].as_ref().unwrap() == &done));
}

#[test]
fn switches_are_sent_nothing_that_could_not_be_committed() {
    let mut bench = bench();
    bench.add_switch("s2");
    let mut served = replica();
    let parked = bench.attach(&served);
    bench.drain(&parked, &mut served);
    bench.owner.park(|_| true, bench.now);
    let waits = bench.attach_as("s2", replica().report());
    bench.resync(&waits, served.report());
    let sent = bench.n_messages;
    bench.fails_from = 0;
    let place = Place { switch: "s1".to_owned(), port: PortId(2) };
    let change = Change::AddHosts { hosts: vec![("h2".to_owned(), place)] };
    bench.take([Input::Change { change, ticket: 99, is_traced: false }]).unwrap_err();
    assert_eq!(bench.n_messages, sent, "messages made");
    assert!(bench.pushes.is_empty());
    assert!(is_ended(&parked) && is_ended(&waits));
}

#[test]
fn in_step_is_said_when_all_is_served_whatever_other_switches_do() {
    let mut bench = bench();
    bench.add_switch("s2");
    let mut replica = replica();
    let first = bench.attach(&replica);
    let _second = bench.attach_as("s2", self::replica().report());
    assert_eq!(bench.in_step(), [false, false], "they are sent images");
    bench.drain(&first, &mut replica);
    assert_eq!(bench.in_step(), [true, false]);
    bench.change(put(1)).unwrap();
    assert_eq!(bench.in_step(), [false, false], "the messages are made and not queued");
    let (own, others): (Vec<_>, Vec<_>) = bench.pushes.drain(..).partition(|o| o.node == NodeId(1));
    bench.pushes = own;
    bench.send();
    assert_eq!(bench.in_step(), [false, false], "queued and not acknowledged");
    bench.drain(&first, &mut replica);
    assert!(bench.serves_all(1, &replica));
    assert_eq!(bench.in_step(), [true, false], "the pusher still waits with those of the other switch");
    drop(others);
}

#[test]
fn switch_that_saw_a_later_term_is_served_under_one_after_it() {
    let mut bench = bench();
    let mut replica = replica();
    let mut stream = bench.attach(&replica);
    bench.drain(&stream, &mut replica);
    let ahead = Report { term: 2_000_000_000, ..replica.report() };
    stream = bench.attach_as("s1", ahead.clone());
    assert_eq!(bench.term, 2_000_000_001, "durable before anything is sent under it");
    bench.change(put(1)).unwrap();
    bench.drain(&stream, &mut replica);
    assert_eq!(replica.report().term, 2_000_000_001);
    let refused = bench.hello("s1", Report { term: u64::MAX, ..ahead }).unwrap_err();
    assert!(matches!(refused, Refusal::TermTooLate { got: u64::MAX, .. }), "{refused}");
    assert_eq!(bench.term, 2_000_000_001);
}

#[test]
fn term_that_cannot_be_made_durable_is_a_refusal() {
    let mut bench = bench();
    let replica = replica();
    let ahead = Report { term: 7, ..replica.report() };
    let attach = Task::Attach { switch: "s1".to_owned(), report: ahead, weighs_ways: true, ticket: 5 };
    bench.owner.take(Input::Task(attach), bench.now);
    while let Some(turn) = bench.owner.next(bench.now) {
        if turn.raise_term == Some(8) {
            bench.owner.raised(Err("the disk is full".to_owned()));
        }
        bench.answers.extend(turn.refused.into_iter().map(|(ticket, refusal)| (ticket, Err(refusal))));
    }
    assert!(matches!(bench.answers[&5], Err(Refusal::StoreFailed { .. })));
    assert_eq!((bench.owner.state.network.term(), bench.owner.lines.len()), (1, 0));
}

/// Names come, move and go while the answer is made, 100 names a turn.
#[test]
fn answer_in_turns_is_the_state_when_it_began_and_changes_follow_it() {
    let mut rng = lookup::hash::Rng::new(lookup::testkit::seed());
    let mut bench = bench();
    bench.add_second_host();
    bench.import(0, 3_000);
    bench.owner.bounds.turn_names = 100;
    let mut replica = replica();
    let stream = bench.attach(&replica);
    let mut n_turns = 0;
    while bench.owner.answer.is_some() || bench.owner.preparing.is_some() {
        assert_eq!(bench.in_step(), [false]);
        for _ in 0..20 {
            bench.change(random_change(&mut rng)).unwrap();
            bench.send();
        }
        // The switch takes what there is, at some turns.
        if rng.below(4) == 0 {
            bench.drain(&stream, &mut replica);
        }
        bench.answer_reports(100);
        n_turns += 1;
    }
    assert!(n_turns > 50, "{n_turns}");
    bench.drain(&stream, &mut replica);
    assert!(bench.in_step()[0] && bench.serves_all(1, &replica));
    assert_eq!(bench.owner.state.network.n_changed_since_reading(), 0);
}

#[test]
fn switch_that_asks_again_during_an_answer_is_answered_anew() {
    let mut bench = bench();
    bench.import(0, 3_000);
    bench.owner.bounds.turn_names = 100;
    let mut replica = replica();
    let stream = bench.attach(&replica);
    while bench.owner.answer.is_none() {
        bench.answer_reports(100);
    }
    bench.resync(&stream, replica.report());
    bench.import(3_000, 10);
    bench.answer_reports(usize::MAX);
    bench.drain(&stream, &mut replica);
    assert!(bench.in_step()[0] && bench.serves_all(1, &replica));
}

#[test]
fn link_whose_cost_and_state_change_together_is_never_routed_over_meanwhile() {
    let mut bench = bench();
    let place = |switch: &str, port| Place { switch: switch.to_owned(), port: PortId(port) };
    let mut change = |change| bench.owner.state.carry_out(change).unwrap();
    for name in ["s2", "s3"] {
        change(Change::AddSwitch { name: name.to_owned(), tenants: vec![] });
    }
    for (a, b, up) in [("s1", "s2", false), ("s1", "s3", true), ("s3", "s2", true)] {
        let port = |other: &str| u16::from(other.as_bytes()[1]);
        let wanted = Wanted { up, ..Wanted::default() };
        change(Change::AddLink { a: place(a, port(b)), b: place(b, port(a)), wanted });
    }
    change(Change::AddHosts { hosts: vec![("h2".to_owned(), place("s2", 1))] });
    change(Change::PutNames { records: vec![record("02:00:00:00:00:01".to_owned(), "h2")], only_new: true });
    let _stream = bench.attach(&replica());
    let end = place("s1", u16::from(b'2'));
    for (up, cost) in [(true, 9), (false, 1), (true, 9)] {
        let set = Change::SetLink { end: end.clone(), cost: Some(cost), weight: None, raised: None, up: Some(up) };
        let outcome = bench.owner.state.carry_out(set).unwrap();
        assert_eq!(outcome.changed.changed, 1);
        // Alternates may differ; the ways are in the FIB.
        let of_fib = |(_, message): &&(_, fib::messages::Message)| !matches!(message.body, Body::Actions { .. });
        let n_messages = outcome.effects.iter().flat_map(Effects::messages).filter(of_fib).count();
        assert_eq!(n_messages, 0, "the way over s3 is the shortest before and after: up {up}, cost {cost}");
    }
}

#[test]
fn parts_that_were_made_anew_stay_counted_when_the_network_is_replaced() {
    let mut bench = bench();
    bench.owner.leads = false;
    let counted = |bench: &Bench| bench.owner.parts_rebuilt().values().sum::<u64>();
    let mut last = 0;
    for number in 1..4 {
        for i in 0..2000 {
            let records = vec![record(format!("02:00:00:00:{:02x}:{:02x}", i >> 8, i & 255), "h1")];
            bench.owner.state.carry_out(Change::PutNames { records, only_new: true }).unwrap();
        }
        let now = counted(&bench);
        assert!(now > last, "{now} after {last}");
        last = now;
        bench.owner.replace(self::bench().owner.state, number);
        assert!(counted(&bench) >= last, "{} after {last}", counted(&bench));
    }
}

mod parked;
mod rekey;

//! The one owner of the network: it decides what changes, and says what follows, turn by turn.
//!
//! ```text
//! take(input)…  ─►  next() ─► Turn { rows, answers, outgoing, events }  ─►  the driver commits the rows, then hands out the rest
//!                     ▲                                                      │
//!                     └──────────────────────────────────────────────────────┘   until there is no next turn
//! ```
//! What waits is taken as a group: each change is applied in memory or refused, and all rows are one turn's. Then follow, each a turn
//! of its own, the group's messages, what is done with the state as it is committed, a part of a rekey, answers to reports, and
//! the release of parked switches. **The driver commits a turn's rows before it hands out anything of it, and before it asks for the
//! next turn.** So nothing is acknowledged or sent before it is durable, and each turn begins with durable state. Concurrent requests
//! share the cost of a commit. If a commit fails, memory is ahead of the store: the driver ends, and with it this value.
//!
//! The time is an argument. Handles of the driver (tickets, for what is to be answered, and [`Line`]s) are handed back as they are.
//!
//! **Bulk.** With a batch that changes most shards, every attached switch would be sent nearly its whole FIB, again and
//! again while an import runs. So the switches are parked before such a batch: it costs the graph alone, is committed
//! and answered. When the import pauses, or occasionally while it runs, every switch is sent what it lacks by then. A
//! switch for which too much waits is treated the same way: see [`session`](crate::core::session).
//!
//! **Many at once.** After an outage all switches may connect together, each for a whole image. Images are made while
//! less than [`Bounds::waiting_bytes`] waits for all switches, one at a time and in turns of [`Bounds::turn_names`]; the other switches
//! wait, unanswered, for room. The switch that holds the most for too long while others wait is cut off, and is served last when it
//! connects again.
//!
//! **Following.** While another controller leads, changes come from what it has committed, and turns have no rows:
//! see `owner/follow.rs`. Everything else is the same.

#![cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations drive it"))]

mod decide;
mod follow;
mod found;
mod rekey;
mod release;
mod reports;
mod task;
#[cfg(test)]
mod tests;
mod turn;
#[cfg(feature = "kit")]
mod watched;

pub use turn::{Answer, Bounds, Followed, Input, Kind, Taken, Task, Told, Turn};
pub(crate) use turn::{Awaited, Event, Followable};
#[cfg(feature = "kit")]
pub use watched::{Sight, watch};

use crate::core::change::State;
use crate::core::learning::Learning;
use crate::core::pace::{Pace, Rates};
use crate::core::session::Line;
use crate::core::trunks::Trunks;
use api::seam::{Mistake, Moment, mistaken};
use fib::messages::Report;
use fib::network::Effects;
use fib::topology::NodeId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Inputs after which a group is closed.
const MAX_GROUP: usize = 1024;

/// Rows after which a group is closed: an import's batch is a transaction of its own.
const MAX_GROUP_ROWS: usize = 20_000;

/// The fewest names of a bulk batch. Smaller batches keep the phases of single changes.
pub(crate) const BULK_NAMES: usize = 10_000;

/// Parked switches are updated after this long without a bulk batch.
pub(crate) const QUIET: Duration = Duration::from_millis(200);

/// Interval between updates of parked switches while bulk batches come; longer where updates take long: at most a fifth of
/// the owner's time.
const BULK_PERIOD: Duration = Duration::from_secs(20);

/// What switches see of the network.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// At their trunks.
    pub(crate) trunks: Trunks,
    /// At their host ports.
    pub(crate) learning: Learning,
}

/// See the module.
pub struct Owner<L, T> {
    /// The network and its hosts.
    pub state: State,
    pub(crate) seen: Seen,
    pub(crate) bounds: Bounds,
    /// Whether this controller leads, and so may change what is stored.
    leads: bool,
    /// The name of the controller that leads.
    leader: String,
    /// Whether turns include what was changed, for controllers that follow.
    tells: bool,
    /// The number of the last commit that is carried out here while another one leads. None: unknown, so nothing is carried out until
    /// all rows are read.
    position: Option<u64>,
    /// The switches that are served.
    lines: BTreeMap<NodeId, L>,
    /// Switches that the network makes no messages for, and what they hold after acknowledging all messages made.
    parked: BTreeMap<NodeId, Parked<L>>,
    /// Reports that wait for room to be answered, the oldest first. Nothing else is made for these switches.
    unanswered: VecDeque<(L, Report)>,
    /// The answer to a report that is being made.
    answer: Option<reports::InProgress<L>>,
    /// The switch whose view is being made for an answer, and the time that this has taken so far.
    preparing: Option<(NodeId, Duration)>,
    /// What the last turn was for, until its driver says how long it took.
    work: Option<Work>,
    /// The switch whose report requires a later term to be made durable, and the term that it saw; or why that failed.
    raising: Option<(String, u64)>,
    not_raised: Option<String>,
    /// A report of a session that waits until that term is durable.
    resyncing: Option<(L, Report)>,
    /// The rekey in progress.
    rekey: Option<rekey::InProgress<T>>,
    /// How many parts of tables changes of names made anew, by design, in networks that were replaced.
    rebuilt_before: BTreeMap<&'static str, u64>,
    /// Since when there has been no room for any switch.
    no_room_since: Option<Instant>,
    /// When the last bulk batch was done.
    last_bulk: Option<Instant>,
    /// The earliest time to update the parked switches while bulk batches come.
    due: Instant,
    /// Limits on how often peers may cause work.
    pace: Pace,
    /// Groups of changes that were committed, and those whose messages are made.
    progress: Progress,
    /// Whether an acknowledgement is to bring a turn, because less may wait for switches soon.
    wants_room: bool,
    /// Whether switches are parked that may be released after some time.
    wants_release: bool,
    group: Group<L, T>,
    /// The remaining steps of this round.
    stages: VecDeque<Stage>,
}

/// How far the messages of what is committed have got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) committed: u64,
    pub(crate) made: u64,
}

impl Progress {
    /// Whether all messages of what is committed are made.
    pub(crate) fn is_all_made(self) -> bool {
        self.made >= self.committed || mistaken(Mistake::StatusIgnoresMaking)
    }
}

/// A switch that the network makes no messages for.
#[derive(Debug)]
struct Parked<L> {
    line: L,
    /// What it holds once it has acknowledged all messages made.
    report: Report,
    /// Whether it is sent what it lacks once it has acknowledged these, whatever happens to the others, as if it had asked.
    alone: bool,
}

/// What a round has collected.
struct Group<L, T> {
    /// The turn of its commit.
    turn: Turn<L, T>,
    effects: Vec<Effects>,
    /// The effects of each change that is traced.
    traced: Vec<Range<usize>>,
    tasks: VecDeque<Task<L, T>>,
    n_inputs: usize,
    n_rows: usize,
    is_bulk: bool,
    rekey: bool,
    /// Whether something changed that frames depend on now, so that parked switches do not wait.
    urgent: bool,
}

impl<L, T> Default for Group<L, T> {
    fn default() -> Self {
        Group {
            turn: Turn { kind: Kind::Group, ..Turn::default() },
            effects: Vec::new(),
            traced: Vec::new(),
            tasks: VecDeque::new(),
            n_inputs: 0,
            n_rows: 0,
            is_bulk: false,
            rekey: false,
            urgent: false,
        }
    }
}

/// Work whose time is to be known.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// The answer to the report of a switch.
    Answer { node: NodeId, before: Duration },
    /// What parked switches lack.
    Release,
}

/// A step of a round; each is one turn, or none if there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The group's rows and answers.
    Commit,
    /// Its messages.
    Messages,
    /// What is done after the commit, one by one.
    Tasks,
    /// A part of the rekey in progress, with at most this many names.
    Rekey(usize),
    /// Answers to reports, with this many names left.
    Reports(usize),
    Release,
}

impl<L: Line, T> Owner<L, T> {
    /// The owner of the state of a controller that leads.
    pub fn leading(state: State, bounds: Bounds, rates: Rates, now: Instant) -> Owner<L, T> {
        Owner {
            state,
            seen: Seen::default(),
            bounds,
            leads: true,
            leader: String::new(),
            tells: false,
            position: None,
            lines: BTreeMap::new(),
            parked: BTreeMap::new(),
            unanswered: VecDeque::new(),
            answer: None,
            preparing: None,
            work: None,
            raising: None,
            not_raised: None,
            resyncing: None,
            rekey: None,
            rebuilt_before: BTreeMap::new(),
            no_room_since: None,
            last_bulk: None,
            due: now,
            pace: Pace::new(rates),
            progress: Progress::default(),
            wants_room: false,
            wants_release: false,
            group: Group::default(),
            stages: VecDeque::new(),
        }
    }

    /// The owner of the state as of the commit of this number, for a controller that follows. None: to read all rows again.
    pub fn following(state: State, position: Option<u64>, bounds: Bounds, rates: Rates, now: Instant) -> Owner<L, T> {
        Owner { leads: false, position, ..Owner::leading(state, bounds, rates, now) }
    }

    /// See the field.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// See the field.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Sets the name of the controller that leads while this one follows.
    pub(crate) fn set_leader(&mut self, leader: String) {
        self.leader = leader;
    }

    /// Sets whether others follow: then turns include what was changed.
    pub fn set_tells(&mut self, tells: bool) {
        self.tells = tells;
    }

    /// See [`Progress`].
    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// How many parts of tables changes of names made anew, by design, including in networks that were replaced.
    pub(crate) fn parts_rebuilt(&self) -> BTreeMap<&'static str, u64> {
        let mut all = self.rebuilt_before.clone();
        for (design, n) in self.state.network.parts_rebuilt() {
            *all.entry(design).or_default() += n;
        }
        all
    }

    /// Whether an acknowledgement is to bring a turn, because it may make room. True only once.
    pub fn take_wants_room(&mut self) -> bool {
        std::mem::take(&mut self.wants_room)
    }

    /// Whether parked or waiting switches may be served if nothing happens for [`QUIET`]. True only once.
    pub fn take_wants_release(&mut self) -> bool {
        std::mem::take(&mut self.wants_release)
    }

    /// Whether there is work to do without further input.
    pub fn may_go_on(&mut self, now: Instant) -> bool {
        self.may_answer(now) || self.may_rekey()
    }

    /// Takes an input into the group of the next round, unless that round has begun.
    pub fn take(&mut self, input: Input<L, T>, now: Instant) -> Taken {
        if self.group.n_inputs == 0 {
            self.park(|session| session.is_over_limit(), now);
            self.stages = if mistaken(Mistake::SentBeforeCommit) {
                [Stage::Messages, Stage::Commit].into()
            } else {
                [Stage::Commit, Stage::Messages].into()
            };
            self.stages.push_back(Stage::Tasks);
        }
        self.group.n_inputs += 1;
        match input {
            Input::Task(task) => {
                self.group.tasks.push_back(task);
                Taken::Other
            }
            input => self.decide(input, now),
        }
    }

    /// Whether the group is to be closed.
    pub fn is_full(&self) -> bool {
        self.group.n_inputs >= MAX_GROUP || self.group.turn.rows.len() >= MAX_GROUP_ROWS
    }

    /// Begins a round without a group: it goes on with answers to reports, and with a rekey.
    pub fn go_on(&mut self) {
        self.stages = [Stage::Reports(self.bounds.turn_names), Stage::Rekey(self.bounds.turn_names)].into();
    }

    /// The next turn of this round. The driver must have committed and handed out the previous one.
    pub fn next(&mut self, now: Instant) -> Option<Turn<L, T>> {
        while let Some(stage) = self.stages.pop_front() {
            let turn = match stage {
                Stage::Commit => Some(self.close_group()),
                Stage::Messages => Some(self.make_messages(now)),
                Stage::Tasks => self.do_task(now),
                Stage::Rekey(n_names) => self.go_on_with_rekey(n_names, now),
                Stage::Reports(n_names) => self.answer_reports(n_names, now),
                Stage::Release => self.release(now),
            };
            if turn.is_some() {
                return turn;
            }
        }
        None
    }

    /// Notes how long the driver took for the last turn and what it handed out of it.
    pub fn took(&mut self, time: Duration, now: Instant) {
        match self.work.take() {
            Some(Work::Answer { node, before }) => self.worked(node, before, time, now),
            Some(Work::Release) => self.due = now + BULK_PERIOD.max(time * 4),
            None => {}
        }
    }

    /// The rows of the group, and its answers.
    fn close_group(&mut self) -> Turn<L, T> {
        self.group.n_rows = self.group.turn.rows.len();
        self.progress.committed += 1;
        let next = Turn { kind: Kind::Group, ..Turn::default() };
        std::mem::replace(&mut self.group.turn, next)
    }

    /// Makes the messages of the group, from what changed.
    fn make_messages(&mut self, now: Instant) -> Turn<L, T> {
        if std::mem::take(&mut self.group.is_bulk) {
            self.last_bulk = Some(now);
        }
        let (effects, traced) = (std::mem::take(&mut self.group.effects), std::mem::take(&mut self.group.traced));
        let awaited = self.awaited(traced, &effects);
        for (node, line) in &self.lines {
            let acked_change = line.with(|session| session.acked_change());
            self.state.network.acknowledge(*node, acked_change);
            if self.state.network.topology().node(*node).is_err() && !line.with(|session| session.is_ended()) {
                tracing::info!(switch = %node, "the switch was removed; its stream ends");
                line.with(|session| session.end());
            }
        }
        let mut turn = Turn { awaited, kind: Kind::Messages, ..Turn::default() };
        for Effects { phases, .. } in effects {
            for (phase, messages) in phases.into_iter().enumerate() {
                for (node, message) in messages {
                    if let Some(line) = self.lines.get(&node) {
                        turn.push(phase, line, &message);
                    }
                }
            }
        }
        self.progress.made += 1;
        if std::mem::take(&mut self.group.rekey) {
            turn.refused.extend(self.begin_rekey(None, now));
        }
        turn
    }

    /// Ends the round of a group: what follows has its size.
    fn end_group(&mut self) {
        // As many names as were changed: an import does not keep switches waiting.
        let n_names = self.bounds.turn_names.max(self.group.n_rows);
        (self.group.n_inputs, self.group.n_rows) = (0, 0);
        self.stages.extend([Stage::Rekey(n_names), Stage::Reports(n_names), Stage::Release]);
    }

    /// The switches that will acknowledge each of these changes: those that are sent part of it now, and those for which nothing
    /// is made now and that are sent it later, with whatever else they lack.
    fn awaited(&self, traced: Vec<Range<usize>>, effects: &[Effects]) -> Vec<Vec<Awaited<L>>> {
        if traced.is_empty() {
            return Vec::new();
        }
        let last = self.state.network.change();
        let later = self.parked.values().map(|parked| &parked.line);
        let later = later.chain(self.unanswered.iter().map(|(line, _)| line));
        let later: Vec<(NodeId, u64)> = later.map(|line| (line.with(|session| session.node()), last)).collect();
        let of = |range: Range<usize>| {
            let mut awaited = BTreeMap::<NodeId, u64>::new();
            let messages = effects.get(range).into_iter().flatten().flat_map(|effects| &effects.phases).flatten();
            let messages = messages.map(|(node, message)| (*node, message.change));
            for (node, change) in messages.chain(later.iter().copied()) {
                let known = awaited.entry(node).or_default();
                *known = change.max(*known);
            }
            awaited.into_iter().filter_map(|(node, change)| self.await_one(node, change)).collect()
        };
        traced.into_iter().map(of).collect()
    }

    fn await_one(&self, node: NodeId, change: u64) -> Option<Awaited<L>> {
        let switch = self.state.network.topology().node(node).ok()?.name.clone();
        Some(Awaited { switch, line: self.lines.get(&node)?.clone(), change })
    }

    /// Ends all streams.
    pub fn end_sessions(&self) {
        self.lines.values().for_each(|line| line.with(|session| session.end()));
    }

    /// Whether another image may be made.
    fn has_room(&self) -> bool {
        let waiting = self.lines.values().map(|line| line.with(|session| session.backlog_bytes()));
        waiting.sum::<usize>() < self.bounds.waiting_bytes
    }

    fn name_of(&self, node: NodeId) -> String {
        self.state.place(fib::topology::End { node, port: Default::default() }).switch
    }

    /// A moment at which a simulation looks, or lets the process end.
    pub fn at(&self, moment: Moment) {
        #[cfg(feature = "kit")]
        watched::pass(moment, self);
        #[cfg(not(feature = "kit"))]
        let _ = moment;
    }
}

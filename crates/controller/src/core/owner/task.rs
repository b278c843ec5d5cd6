//! Tasks that are done with the committed state.

use super::{Answer, Owner, Stage, Task, Turn};
use crate::core::change::Refusal;
use crate::core::session::{Line, Session};
use api::seam::{Mistake, mistaken};
use fib::messages::Report;
use std::time::Instant;

/// The latest term of a switch that a controller outdoes. Terms count starts, so only a switch that makes terms up reports a
/// later one; it must not use them up.
const MAX_TERM: u64 = 1 << 48;

impl<L: Line, T> Owner<L, T> {
    /// Does the next task of the round; none once all are done.
    pub(super) fn do_task(&mut self, now: Instant) -> Option<Turn<L, T>> {
        let Some(task) = self.group.tasks.pop_front() else {
            self.end_group();
            return None;
        };
        self.stages.push_front(Stage::Tasks);
        let mut turn = Turn::default();
        match task {
            Task::Durable(ticket) => turn.answers.push(Answer::Durable(ticket)),
            Task::Attach { switch, report, weighs_ways, ticket } => {
                match self.check_attach(&switch, &report) {
                    Ok(Term::Outdone(term)) => {
                        // The task follows once the term is durable, or cannot be.
                        self.group.tasks.push_front(Task::Attach { switch, report, weighs_ways, ticket });
                        turn.raise_term = Some(term);
                    }
                    Ok(Term::Enough) => match self.attach(&switch, report, weighs_ways, now, &mut turn) {
                        Ok(line) => turn.answers.push(Answer::Attached(ticket, line)),
                        Err(refusal) => turn.refused.push((ticket, refusal)),
                    },
                    Err(refusal) => turn.refused.push((ticket, refusal)),
                }
            }
            Task::Resync(line) => self.resync(line, now, &mut turn),
            Task::Detach(line) => self.detach(&line, &mut turn, now),
            Task::Stuck(line) => self.set_stuck(&line, now),
            Task::Rekey(ticket) if !self.leads => {
                turn.refused.push((ticket, Refusal::NotLeader { leader: self.leader.clone() }));
            }
            Task::Rekey(ticket) => turn.refused.extend(self.begin_rekey(Some(ticket), now)),
            // Done after every group.
            Task::Release => {}
            Task::Rates(rates) => self.pace.set_rates(rates),
        }
        Some(turn)
    }

    fn check_attach(&mut self, switch: &str, report: &Report) -> Result<Term, Refusal> {
        if !self.leads && self.position.is_none() {
            return Err(Refusal::NotUpToDate);
        }
        let node = self.state.node(switch)?;
        self.state.network.check_report(node, report).map_err(|error| self.state.explain(error.into()))?;
        self.outdo(switch, report.term)
    }

    fn attach(
        &mut self,
        switch: &str,
        report: Report,
        weighs_ways: bool,
        now: Instant,
        turn: &mut Turn<L, T>,
    ) -> Result<L, Refusal> {
        let node = self.state.node(switch)?;
        let mut session = Session::new(node, self.bounds.switch_backlog_bytes);
        session.said().set_weighs_ways(weighs_ways);
        let line = L::open(session);
        if let Some(before) = self.lines.insert(node, line.clone()) {
            before.with(|session| session.end());
        }
        self.answer_later(&line, report, now, turn);
        Ok(line)
    }

    /// Takes a term after one that a switch has seen: this store was set back, or another controller runs on a copy of it. With
    /// an earlier term its messages would be refused for ever.
    fn outdo(&mut self, switch: &str, seen: u64) -> Result<Term, Refusal> {
        if let Some(reason) = self.not_raised.take() {
            return Err(Refusal::StoreFailed { reason });
        }
        if seen <= self.state.network.term() || mistaken(Mistake::TermNotOutdone) {
            return Ok(Term::Enough);
        }
        if !self.leads {
            return Err(Refusal::NotUpToDate);
        }
        if seen > MAX_TERM {
            return Err(Refusal::TermTooLate { switch: switch.to_owned(), got: seen, max: MAX_TERM });
        }
        self.raising = Some((switch.to_owned(), seen));
        Ok(Term::Outdone(seen + 1))
    }

    /// Takes the driver's answer whether the requested term is durable, or why not.
    pub fn raised(&mut self, raised: Result<(), String>) {
        let Some((switch, seen)) = self.raising.take() else { return };
        match raised {
            Ok(()) => {
                let term = self.state.network.term();
                self.state.network.raise_term(seen + 1);
                tracing::warn!(
                    switch,
                    seen,
                    term,
                    now = seen + 1,
                    "the switch was served by a later controller: this store is from a backup, or another controller runs on a copy of it, which must be stopped"
                );
            }
            Err(reason) => self.not_raised = Some(reason),
        }
    }

    fn resync(&mut self, line: L, now: Instant, turn: &mut Turn<L, T>) {
        let asked = line.with(|session| session.take_report().filter(|_| !session.is_ended()));
        // It may wait until a later term is durable.
        let report = self.resyncing.take().filter(|(of, _)| of.is(&line)).map(|(_, report)| report);
        let Some(report) = asked.or(report) else { return };
        let switch = self.name_of(line.with(|session| session.node()));
        match self.outdo(&switch, report.term) {
            Ok(Term::Enough) => self.answer_later(&line, report, now, turn),
            Ok(Term::Outdone(term)) => {
                self.resyncing = Some((line.clone(), report));
                self.group.tasks.push_front(Task::Resync(line));
                turn.raise_term = Some(term);
            }
            Err(error) => {
                tracing::warn!(switch, %error, "the switch cannot be brought up to date; its stream ends");
                line.with(|session| session.end());
            }
        }
    }

    /// Queues a report last; no other message is made for its switch until it is answered.
    fn answer_later(&mut self, line: &L, report: Report, now: Instant, turn: &mut Turn<L, T>) {
        self.give_up(line, now);
        let node = line.with(|session| session.node());
        self.parked.remove(&node);
        let n_waiting = self.unanswered.len();
        self.unanswered.retain(|(waiting, _)| waiting.with(|session| session.node()) != node);
        if self.unanswered.len() < n_waiting {
            turn.counts.delayed += 1;
        }
        line.with(|session| session.set_parked(true));
        // It is sent the whole difference. Until then it does not count as attached, not even for a rekey: what it holds is what it
        // reported, not what was sent to it.
        self.state.network.detach(node);
        self.unanswered.push_back((line.clone(), report));
    }

    /// Makes no messages for a switch that cannot hold them.
    fn set_stuck(&mut self, line: &L, now: Instant) {
        let (node, is_stuck) = line.with(|session| (session.node(), session.stuck().is_some()));
        if is_stuck && self.lines.get(&node).is_some_and(|current| current.is(line)) {
            self.give_up(line, now);
            self.parked.remove(&node);
            line.with(|session| session.set_parked(true));
            self.state.network.detach(node);
        }
    }

    fn detach(&mut self, line: &L, turn: &mut Turn<L, T>, now: Instant) {
        // This comes before its answer is given up: that it waited for one means that it was not in step.
        let (node, was_in_step) = line.with(|session| {
            let was_in_step = !session.is_parked() && session.serves_all_made() && self.progress.is_all_made();
            session.end();
            (session.node(), was_in_step)
        });
        self.give_up(line, now);
        if self.lines.get(&node).is_some_and(|current| current.is(line)) || mistaken(Mistake::DetachRemovesNewer) {
            self.lines.remove(&node);
            self.parked.remove(&node);
            self.unanswered.retain(|(waiting, _)| !waiting.is(line));
            self.state.network.detach(node);
            turn.answers.push(Answer::Left { line: line.clone(), was_in_step });
        }
    }
}

/// Whether this controller's term is later than that of a switch.
enum Term {
    Enough,
    /// The term is to be raised to this one.
    Outdone(u64),
}

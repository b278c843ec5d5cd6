//! Reports of switches: answered in order while there is room, otherwise later.
//!
//! An answer may be a whole table. It is made in turns, one answer at a time, and between the turns the writer serves
//! everybody else. First the view of the switch is made, then the answer begins. The names are read as they were then.
//! Later changes make messages for the switch as for others, and these wait in the session until the answer is queued
//! whole.

use super::{Attached, Writer};
use crate::core::change::Refusal;
use crate::shell::session::Session;
use crate::store::NOTHING;
use api::seam::{Mistake, Moment, mistaken, now};
use fib::messages::Report;
use fib::network::{Lacks, NetworkError, Next};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

/// How long switches may wait for room until the one that holds the most is cut off.
pub(super) const ROOM_PATIENCE: Duration = Duration::from_secs(60);

/// The latest term of a switch that a controller outdoes. Terms count starts, so only a switch that invents terms says
/// more; it must not use them up.
const MAX_TERM: u64 = 1 << 48;

/// Names that are read for an answer before room is looked for again.
const NAMES_AT_ONCE: usize = 1024;

/// Names that may change while an answer is in progress; then the rest of it is made at once.
const MOST_CHANGED: usize = 100_000;

/// An answer to a report that is being made.
pub(super) struct Answer {
    session: Arc<Session>,
    lacks: Lacks,
    n_messages: u64,
    /// The time that it took so far.
    took: Duration,
}

impl Writer {
    pub(super) fn attach(&mut self, switch: &str, report: Report, weighs_ways: bool) -> Result<Attached, Refusal> {
        if self.store.is_none() && self.shared.lead.position().is_none() {
            return Err(Refusal::NotUpToDate);
        }
        let node = self.state.node(switch)?;
        self.state.network.check_report(node, &report).map_err(|e| self.state.explain(e.into()))?;
        self.outdo(switch, report.term)?;
        let (session, outbox) = Session::new(node, self.switch_backlog_bytes);
        session.said().set_weighs_ways(weighs_ways);
        self.shared.insert_session(switch, &session);
        self.answer_later(&session, report);
        Ok(Attached { session, outbox })
    }

    /// Takes a term after one that a switch has seen: this store was set back, or its copy has another controller. With
    /// an earlier term its messages would be refused for ever.
    fn outdo(&mut self, switch: &str, seen: u64) -> Result<(), Refusal> {
        let term = self.state.network.term();
        if seen <= term || mistaken(Mistake::TermNotOutdone) {
            return Ok(());
        }
        let Some(store) = &mut self.store else { return Err(Refusal::NotUpToDate) };
        if seen > MAX_TERM {
            return Err(Refusal::TermTooLate { switch: switch.to_owned(), got: seen, max: MAX_TERM });
        }
        let raised = store.raise_term(seen + 1);
        raised.map_err(|error| Refusal::StoreFailed { reason: error.to_string() })?;
        self.state.network.raise_term(seen + 1);
        tracing::warn!(
            switch,
            seen,
            term,
            now = seen + 1,
            "the switch was served by a later controller: this store is from a backup, or another controller runs on a copy of it, which must be stopped"
        );
        Ok(())
    }

    pub(super) fn resync(&mut self, session: &Arc<Session>, report: Report) {
        let switch = self.name_of(session);
        if let Err(error) = self.outdo(&switch, report.term) {
            tracing::warn!(switch, %error, "the switch cannot be brought up to date; its stream ends");
            return session.end();
        }
        self.answer_later(session, report);
    }

    /// Queues a report last; no other message is made for its switch until it is answered.
    fn answer_later(&mut self, session: &Arc<Session>, report: Report) {
        let node = session.node();
        self.give_up(session);
        self.parked.remove(&node);
        let n_waiting = self.unanswered.len();
        self.unanswered.retain(|(waiting, _)| waiting.node() != node);
        if self.unanswered.len() < n_waiting {
            self.shared.totals.reports_delayed.fetch_add(1, Relaxed);
        }
        session.set_parked(true);
        // It is sent the whole difference. Until then it is no attached switch, for a rekey either: what it holds is what it
        // reported, not what was sent to it.
        self.state.network.detach(node);
        self.unanswered.push_back((Arc::clone(session), report));
    }

    /// Answers reports while there is room, except those of switches that report too often, and reads about `n_names`
    /// names for it. The rest is done in later turns.
    pub(super) fn answer_reports(&mut self, mut n_names: usize) {
        self.unanswered.retain(|(session, _)| !session.is_ended());
        if self.state.network.n_changed_since_reading() > MOST_CHANGED {
            // Whatever the room: what is remembered for the answer grows with every change.
            self.go_on(&mut usize::MAX.clone(), true);
        }
        while n_names > 0 && (self.go_on(&mut n_names, false) || self.begin_next(&mut n_names)) {}
        if self.unanswered.is_empty() && self.answer.is_none() {
            self.no_room_since = None;
            return;
        }
        self.shared.progress.parked.notify_one();
        if self.has_room() {
            self.no_room_since = None;
            return;
        }
        self.shared.progress.wants_room.store(true, Release);
        let now = now();
        if now - *self.no_room_since.get_or_insert(now) >= ROOM_PATIENCE {
            self.no_room_since = None;
            if let Some(largest) = self.shared.sessions().iter().max_by_key(|session| session.backlog_bytes()) {
                let waits = self.unanswered.len();
                tracing::warn!(switch = %self.name_of(largest), waits, "the switch reads too slowly while others wait; its stream ends");
                largest.end();
            }
        }
    }

    /// Whether there is something to do for a switch that nothing else has to happen for.
    pub(crate) fn may_go_on(&mut self) -> bool {
        if let Some(Answer { session, .. }) = &self.answer {
            return session.is_ended() || self.has_room();
        }
        if self.preparing.is_some() {
            return self.has_room();
        }
        let at = now();
        let (pace, mut waiting) = (&mut self.pace, self.unanswered.iter());
        waiting.any(|(session, _)| pace.may_answer(session.node(), at)) && self.has_room()
    }

    /// Begins the answer to the first report that may be answered. Whether there was one.
    fn begin_next(&mut self, n_names: &mut usize) -> bool {
        if self.answer.is_some() || !self.has_room() {
            return false;
        }
        let began = now();
        let of_prepared =
            |(session, _): &(Arc<Session>, _)| Some(session.node()) == self.preparing.map(|(node, _)| node);
        let prepared = self.unanswered.iter().position(of_prepared);
        if prepared.is_none() && self.preparing.take().is_some() {
            self.state.network.forget_prepared();
        }
        let pace = &mut self.pace;
        let may_answer = |(session, _): &(Arc<Session>, _)| pace.may_answer(session.node(), began);
        let Some(at) = prepared.or_else(|| self.unanswered.iter().position(may_answer)) else { return false };
        let node = self.unanswered[at].0.node();
        let (_, before) = self.preparing.take().unwrap_or((node, Duration::ZERO));
        // What cannot be made is found out again below, and said.
        if !self.state.network.prepare_view(node, n_names).unwrap_or(true) {
            self.preparing = Some((node, before + (now() - began)));
            return false;
        }
        let Some((session, report)) = self.unanswered.remove(at) else { return false };
        self.begin(&session, &report);
        let took = before + (now() - began);
        match &mut self.answer {
            Some(answer) => answer.took = took,
            None => self.pace.answered(node, took, now()),
        }
        // A view may have been made at once, which takes about as long as this; otherwise the parts were compared, and
        // those that the switch lacks put into messages.
        *n_names = n_names.saturating_sub(self.state.network.rib().len() / 4);
        true
    }

    /// What a switch lacks, in words that it knows.
    pub(super) fn attach_lacking(&mut self, session: &Session, report: &Report) -> Result<Lacks, NetworkError> {
        let (network, node) = (&mut self.state.network, session.node());
        network.set_weighs(node, session.said().weighs_ways());
        network.attach_lacking(node, report)
    }

    fn begin(&mut self, session: &Arc<Session>, report: &Report) {
        let attached = self.attach_lacking(session, report);
        self.keep_view_rows();
        self.at(Moment::Attached);
        match attached {
            Ok(mut lacks) => {
                if lacks.is_empty() {
                    // It has everything, including what is still queued for it.
                    session.acknowledge(u64::MAX);
                }
                session.begin_answer(self.state.network.change());
                // Not before: until then it would look in step.
                session.set_parked(false);
                if mistaken(Mistake::ReportAnsweredWithNothing) && report.table != 0 {
                    return session.end_answer();
                }
                self.state.network.begin_reading(&mut lacks);
                let session = Arc::clone(session);
                self.answer = Some(Answer { session, lacks, n_messages: 0, took: Duration::ZERO });
            }
            Err(error) => {
                let error = self.state.explain(error.into());
                tracing::warn!(switch = self.name_of(session), %error, "the report of the switch is refused; its stream ends");
                session.end();
            }
        }
    }

    /// Goes on with the answer that is in progress, if there is room. Whether it is done.
    fn go_on(&mut self, n_names: &mut usize, without_room: bool) -> bool {
        let Some(mut answer) = self.answer.take() else { return false };
        let began = now();
        let is_done = loop {
            if answer.session.is_ended() {
                break true;
            }
            if *n_names == 0 || !(without_room || self.has_room()) {
                break false;
            }
            let mut piece = NAMES_AT_ONCE.min(*n_names);
            let before = piece;
            match self.state.network.next_message(&mut answer.lacks, &mut piece) {
                Next::Message(message) => {
                    answer.session.answer(self.bytes_of(&message));
                    answer.n_messages += 1;
                    piece = 0;
                }
                Next::Later => {}
                Next::End => break true,
            }
            *n_names = n_names.saturating_sub(before - piece);
        };
        answer.took += now() - began;
        if is_done {
            let Answer { session, n_messages, took, .. } = answer;
            session.end_answer();
            self.at(Moment::Sent);
            self.state.network.end_reading();
            self.pace.answered(session.node(), took, now());
            tracing::info!(switch = self.name_of(&session), messages = n_messages, "report answered");
        } else {
            self.answer = Some(answer);
        }
        is_done
    }

    /// Gives up the answer that is in progress, if it is for the switch of `session`.
    fn give_up(&mut self, session: &Arc<Session>) {
        if let Some(answer) = self.answer.take_if(|answer| Arc::ptr_eq(&answer.session, session)) {
            session.give_up_answer();
            self.state.network.end_reading();
            self.pace.answered(session.node(), answer.took, now());
        }
    }

    /// Stores the designs' rows of the tables of switches that attached or detached. Without them a restarted
    /// controller sends such a switch its whole table again. One that follows stores them when it leads.
    pub(super) fn keep_view_rows(&mut self) {
        let rows = self.state.network.take_view_rows();
        if let Some(store) = &mut self.store
            && !rows.is_empty()
            && let Err(error) = store.commit(&rows, NOTHING)
        {
            tracing::error!(%error, "the state of a switch's table is not stored: after a restart the table is sent again");
        }
    }

    fn name_of(&self, session: &Session) -> String {
        self.state.place(fib::topology::End { node: session.node(), port: Default::default() }).switch
    }

    /// Whether another image may be made.
    pub(super) fn has_room(&self) -> bool {
        self.shared.sessions().iter().map(|session| session.backlog_bytes()).sum::<usize>() < self.waiting_bytes
    }

    /// Makes no messages for a switch that cannot hold them.
    pub(super) fn set_stuck(&mut self, session: &Arc<Session>) {
        let is_current = self.shared.session(session.node()).is_some_and(|current| Arc::ptr_eq(&current, session));
        if is_current && session.stuck().is_some() {
            self.give_up(session);
            self.parked.remove(&session.node());
            session.set_parked(true);
            self.state.network.detach(session.node());
        }
    }

    pub(super) fn detach(&mut self, session: &Arc<Session>) {
        session.end();
        // Before its answer is given up: that it waited for one says that it was not in step.
        let is_current = self.shared.remove_session(session);
        self.give_up(session);
        if is_current {
            self.parked.remove(&session.node());
            self.unanswered.retain(|(waiting, _)| !Arc::ptr_eq(waiting, session));
            self.state.network.detach(session.node());
        }
    }
}

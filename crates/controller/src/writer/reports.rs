//! Reports of switches: answered in order while there is room, otherwise later.

use super::{Attached, Writer};
use crate::change::Refusal;
use crate::session::Session;
use bytes::Bytes;
use fib::messages::Report;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long switches may wait for room until the one that holds the most is cut off.
pub(super) const ROOM_PATIENCE: Duration = Duration::from_secs(60);

/// The latest term of a switch that a controller outdoes. Terms count starts, so only a switch that invents terms says
/// more; it must not use them up.
const MAX_TERM: u64 = 1 << 48;

impl Writer {
    pub(super) fn attach(&mut self, switch: &str, report: Report) -> Result<Attached, Refusal> {
        let node = self.state.node(switch)?;
        self.state.network.check_report(node, &report).map_err(|e| self.state.explain(e.into()))?;
        self.outdo(switch, report.term)?;
        let (session, outbox) = Session::new(node, self.switch_backlog_bytes);
        self.shared.insert_session(switch, &session);
        self.answer_later(&session, report);
        self.answer_reports();
        Ok(Attached { session, outbox })
    }

    /// Takes a term after one that a switch has seen: this store was set back, or its copy has another controller. With
    /// an earlier term its messages would be refused for ever.
    fn outdo(&mut self, switch: &str, seen: u64) -> Result<(), Refusal> {
        let term = self.state.network.term();
        if seen <= term {
            return Ok(());
        }
        if seen > MAX_TERM {
            return Err(Refusal::TermTooLate { switch: switch.to_owned(), got: seen, max: MAX_TERM });
        }
        let raised = self.store.raise_term(seen + 1);
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
        self.shared.resyncs.fetch_add(1, Relaxed);
        self.answer_later(session, report);
        self.answer_reports();
    }

    /// Queues a report last; no other message is made for its switch until it is answered.
    fn answer_later(&mut self, session: &Arc<Session>, report: Report) {
        let node = session.node();
        self.parked.remove(&node);
        let n_waiting = self.unanswered.len();
        self.unanswered.retain(|(waiting, _)| waiting.node() != node);
        if self.unanswered.len() < n_waiting {
            self.shared.reports_delayed.fetch_add(1, Relaxed);
        }
        session.set_parked(true);
        self.unanswered.push_back((Arc::clone(session), report));
    }

    /// Answers reports while there is room, except those of switches that report too often.
    pub(super) fn answer_reports(&mut self) {
        self.unanswered.retain(|(session, _)| !session.is_ended());
        let mut at = 0;
        while at < self.unanswered.len() && self.has_room() {
            self.no_room_since = None;
            let began = Instant::now();
            if !self.pace.may_answer(self.unanswered[at].0.node(), began) {
                at += 1;
                continue;
            }
            if let Some((session, report)) = self.unanswered.remove(at) {
                self.answer(&session, &report);
                let now = Instant::now();
                self.pace.answered(session.node(), now - began, now);
            }
        }
        // These are sent the whole difference later.
        for (session, _) in &self.unanswered {
            self.state.network.detach(session.node());
        }
        if self.unanswered.is_empty() {
            self.no_room_since = None;
            return;
        }
        self.shared.parked.notify_one();
        if self.has_room() {
            return;
        }
        let now = Instant::now();
        if now - *self.no_room_since.get_or_insert(now) >= ROOM_PATIENCE {
            self.no_room_since = None;
            if let Some(largest) = self.shared.sessions().iter().max_by_key(|session| session.backlog_bytes()) {
                let waits = self.unanswered.len();
                tracing::warn!(switch = %self.name_of(largest), waits, "the switch reads too slowly while others wait; its stream ends");
                largest.end();
            }
        }
    }

    fn answer(&mut self, session: &Session, report: &Report) {
        let switch = self.name_of(session);
        let attached = self.state.network.attach_lacking(session.node(), report);
        self.keep_view_rows();
        match attached {
            Ok(missing) => {
                if missing.is_empty() {
                    // It has everything, including what is still queued for it.
                    session.acknowledge(u64::MAX);
                }
                let messages = self.state.network.messages(missing);
                let missing: Vec<Bytes> = messages.map(|message| self.bytes_of(&message)).collect();
                tracing::info!(switch, messages = missing.len(), "report answered");
                session.send_image(missing, self.state.network.change());
                // Not before its messages are queued: until then it would look in step.
                session.set_parked(false);
            }
            Err(error) => {
                let error = self.state.explain(error.into());
                tracing::warn!(switch, %error, "the report of the switch is refused; its stream ends");
                session.end();
            }
        }
    }

    /// Stores the designs' rows of the tables of switches that attached or detached. Without them a restarted
    /// controller sends such a switch its whole table again.
    pub(super) fn keep_view_rows(&mut self) {
        let rows = self.state.network.take_view_rows();
        if !rows.is_empty()
            && let Err(error) = self.store.commit(&rows)
        {
            tracing::error!(%error, "the state of a switch's table is not stored: after a restart it is sent anew");
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
            self.parked.remove(&session.node());
            session.set_parked(true);
            self.state.network.detach(session.node());
        }
    }

    pub(super) fn detach(&mut self, session: &Arc<Session>) {
        session.end();
        if self.shared.remove_session(session) {
            self.parked.remove(&session.node());
            self.unanswered.retain(|(waiting, _)| !Arc::ptr_eq(waiting, session));
            self.state.network.detach(session.node());
        }
    }
}

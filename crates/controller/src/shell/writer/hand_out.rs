//! Commits a turn of the owner, and hands it out.

use super::{Owner, Writer};
use crate::core::change::Refusal;
use crate::core::owner::{Answer, Event, Kind, Told, Turn};
use crate::shell::backup::Copied;
use crate::shell::job::{Attached, Ticket};
use crate::shell::reads::TURN_READS;
use crate::shell::session::{Outbox, Session};
use crate::store::{NOTHING, RowChange, StoreError};
use crate::wire::replication::told;
use api::crash::step;
#[cfg(feature = "crash-points")]
use api::seam::{Mistake, mistaken};
use fib::network::Rekey;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

impl Writer {
    /// Commits a turn; then answers, tells and sends what follows from it.
    pub(super) fn hand_out(&mut self, mut turn: Turn<Arc<Session>, Ticket>) -> Result<(), StoreError> {
        turn.refused.drain(..).for_each(|(ticket, refusal)| refuse(ticket, refusal));
        if let Some(term) = turn.raise_term {
            let raised = self.store.as_mut().map_or(Ok(()), |store| store.raise_term(term));
            self.owner.raised(raised.map_err(|error| error.to_string()));
        }
        #[cfg(feature = "crash-points")]
        if turn.kind == Kind::Group && mistaken(Mistake::CommitsPutOff) {
            thread_local! {
                static PUT_OFF: std::cell::Cell<Vec<RowChange>> = const { std::cell::Cell::new(Vec::new()) };
            }
            turn.rows = PUT_OFF.replace(turn.rows);
        }
        if let Err(error) = self.commit(&turn.rows, &turn.told) {
            let reason = error.to_string();
            for answer in turn.answers {
                if let Answer::Changed(ticket, _) = answer {
                    refuse(ticket, Refusal::StoreFailed { reason: reason.clone() });
                }
            }
            return Err(error);
        }
        self.n_rows += turn.rows.len();
        // The messages are made next, and need the room.
        turn.rows = Vec::new();
        if let Some(store) = &mut self.store
            && !turn.views.is_empty()
            && let Err(error) = store.commit(&turn.views, NOTHING)
        {
            tracing::error!(%error, "the state of a switch's table is not stored: after a restart the table is sent again");
        }
        if turn.is_replaced {
            self.published.forget_values();
        }
        let replaced = std::mem::take(&mut turn.discarded);
        if !replaced.is_empty() {
            std::thread::spawn(move || drop(replaced));
        }
        self.publish_turn(&turn);
        turn.events.drain(..).for_each(|event| self.note(event));
        if turn.kind == Kind::Group {
            self.traces.iter_mut().for_each(|trace| trace.committed());
            self.publish_sizes();
            self.shared.progress.pending_pushes.fetch_add(1, AcqRel);
        }
        turn.answers.into_iter().for_each(|answer| self.answer(answer));
        self.push(turn.kind, turn.outgoing);
        if turn.kind == Kind::Messages {
            let traces = std::mem::take(&mut self.traces);
            traces.into_iter().zip(turn.awaited).for_each(|(trace, awaited)| trace.pushed(awaited));
            self.shared.reads.answer(&self.owner.state, &mut self.owner.seen, TURN_READS);
        }
        if let Some(rekey) = turn.build {
            self.build(rekey);
        }
        Ok(())
    }

    /// Commits rows, and tells followers what they came from.
    fn commit(&mut self, rows: &[RowChange], changes: &[Told]) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let told = told(changes, rows);
        if rows.is_empty() && told.is_none() {
            return Ok(());
        }
        // None: to read all rows.
        store.commit(rows, &told.unwrap_or_default())?;
        self.shared.totals.transactions.fetch_add(1, Relaxed);
        Ok(())
    }

    fn note(&self, event: Event) {
        const FOUND: &str = "switches found what is not as it was";
        match event {
            Event::Changed(happened) => self.shared.events.note_change(happened),
            Event::Host { level, name, text } => self.shared.events.note("host", level, name, text),
            Event::Found { what, detail, is_frequent: true } => tracing::debug!(what, detail, "{FOUND}"),
            // Flapping hosts must not fill the log.
            Event::Found { what, detail, .. } => {
                if let Some(unsaid) = self.found_lines.pass() {
                    tracing::info!(what, detail, unsaid, "{FOUND}");
                }
            }
        }
    }

    fn answer(&mut self, answer: Answer<Arc<Session>, Ticket>) {
        match answer {
            Answer::Changed(Ticket::Change(reply), changed) => {
                self.shared.totals.changes.fetch_add(changed.changed, Relaxed);
                let _ = step("writer.answer", || reply.send(Ok(changed)));
            }
            Answer::Attached(Ticket::Attach { switch, reply }, session) => {
                self.shared.insert_session(&switch, &session);
                let outbox = Outbox::of(&session);
                if let Err(Ok(unwanted)) = reply.send(Ok(Attached { session, outbox })) {
                    detach(&mut self.owner, &unwanted.session);
                }
            }
            Answer::Durable(Ticket::Read(read)) => read(&self.owner.state, &mut self.owner.seen),
            Answer::Durable(Ticket::Backup(reply)) => {
                let begun = self.store.as_mut().map_or_else(|| Err(self.shared.lead.not_leader()), Copied::begin);
                let _ = reply.send(begun);
            }
            Answer::Durable(Ticket::Seen(reply, turn)) => {
                // Done before the switch learns that it may report more.
                drop(turn);
                let _ = reply.send(());
            }
            Answer::Left { line, was_in_step } => self.shared.remove_session(&line, was_in_step),
            // A ticket of another kind than its question's: this never happens.
            Answer::Changed(..) | Answer::Attached(..) | Answer::Durable(_) => {}
        }
    }

    fn push(&self, kind: Kind, outgoing: Vec<crate::core::push::Outgoing<Arc<Session>>>) {
        let pending = &self.shared.progress.pending_pushes;
        if outgoing.is_empty() {
            if kind == Kind::Messages {
                pending.fetch_sub(1, AcqRel);
            }
        } else if kind == Kind::Messages {
            // Waits while the pusher is busy: this is the back-pressure on changes.
            let _ = step("writer.push", || self.pushes.blocking_send(outgoing));
        } else {
            pending.fetch_add(1, AcqRel);
            let _ = self.pushes.blocking_send(outgoing);
        }
    }

    /// Builds tables with another hash key in the background.
    fn build(&mut self, rekey: Rekey) {
        let shared = Arc::clone(&self.shared);
        self.building = Some(std::thread::spawn(move || {
            let built = rekey.build(1);
            shared.progress.parked.notify_one();
            built
        }));
    }
}

/// Notes that no one waits for the stream of this switch any more.
fn detach(owner: &mut Owner, session: &Arc<Session>) {
    let task = crate::core::owner::Task::Detach(Arc::clone(session));
    owner.take(crate::core::owner::Input::Task(task), api::seam::now());
}

fn refuse(ticket: Ticket, refusal: Refusal) {
    match ticket {
        Ticket::Change(reply) => _ = reply.send(Err(refusal)),
        Ticket::Attach { reply, .. } => _ = reply.send(Err(refusal)),
        Ticket::Backup(reply) => _ = reply.send(Err(refusal)),
        // These are not refused.
        Ticket::Seen(..) | Ticket::Read(_) => {}
    }
}

//! Reports of switches: answered in order while there is room, otherwise later.
//!
//! An answer may be a whole table. It is made in turns, one answer at a time, and between the turns the owner serves everything
//! else. First the view of the switch is made, then the answer begins. The names are read as they were at that time.
//! Later changes make messages for the switch as for others, and these wait in the session until the answer is queued
//! whole.

use super::{Kind, Owner, Stage, Turn, Work};
use crate::core::session::Line;
use api::seam::{Mistake, Moment, mistaken};
use fib::messages::Report;
use fib::network::{Lacks, Next};
use fib::topology::NodeId;
use std::time::{Duration, Instant};

/// How long switches may wait for room before the one that holds the most is cut off.
pub(super) const ROOM_PATIENCE: Duration = Duration::from_secs(60);

/// Names that are read for an answer before room is looked for again.
const NAMES_AT_ONCE: usize = 1024;

/// How many names may change while an answer is in progress; beyond, the rest of it is made at once.
const MOST_CHANGED: usize = 100_000;

/// An answer to a report that is being made.
pub(super) struct InProgress<L> {
    line: L,
    node: NodeId,
    lacks: Lacks,
    n_messages: u64,
    /// The time that it has taken so far.
    took: Duration,
}

impl<L: Line, T> Owner<L, T> {
    /// Answers reports while there is room, except those of switches that report too often, and reads about `n_names`
    /// names for that. Each turn is one answer, or a part of one. The rest is done in later rounds.
    pub(super) fn answer_reports(&mut self, mut n_names: usize, now: Instant) -> Option<Turn<L, T>> {
        self.unanswered.retain(|(line, _)| !line.with(|session| session.is_ended()));
        let mut turn = Turn::default();
        let goes_on = if self.state.network.n_changed_since_reading() > MOST_CHANGED && self.answer.is_some() {
            // Regardless of room: what is remembered for the answer grows with every change.
            self.continue_answer(&mut usize::MAX.clone(), true, &mut turn, now)
        } else if n_names == 0 {
            false
        } else if self.answer.is_some() {
            self.continue_answer(&mut n_names, false, &mut turn, now)
        } else {
            self.begin_next(&mut n_names, &mut turn, now)
        };
        if goes_on {
            self.stages.push_front(Stage::Reports(n_names));
        } else {
            self.look_for_room(now);
        }
        (self.work.is_some() || !turn.views.is_empty()).then_some(turn)
    }

    /// Cuts off the switch that holds the most, if others have waited for room for too long.
    fn look_for_room(&mut self, now: Instant) {
        if self.unanswered.is_empty() && self.answer.is_none() {
            self.no_room_since = None;
            return;
        }
        self.wants_release = true;
        if self.has_room() {
            self.no_room_since = None;
            return;
        }
        self.wants_room = true;
        if now.saturating_duration_since(*self.no_room_since.get_or_insert(now)) < ROOM_PATIENCE {
            return;
        }
        self.no_room_since = None;
        let largest = self.lines.iter().max_by_key(|(_, line)| line.with(|session| session.backlog_bytes()));
        if let Some((node, largest)) = largest {
            let waits = self.unanswered.len();
            tracing::warn!(switch = %self.name_of(*node), waits, "the switch reads too slowly while others wait; its stream ends");
            largest.with(|session| session.end());
        }
    }

    /// Whether there is work to do for a switch without further input.
    pub(super) fn may_answer(&mut self, now: Instant) -> bool {
        if let Some(InProgress { line, .. }) = &self.answer {
            return line.with(|session| session.is_ended()) || self.has_room();
        }
        if self.preparing.is_some() {
            return self.has_room();
        }
        let (pace, mut waiting) = (&mut self.pace, self.unanswered.iter());
        waiting.any(|(line, _)| pace.may_answer(line.with(|session| session.node()), now)) && self.has_room()
    }

    /// Begins the answer to the first report that may be answered. Returns whether there was one.
    fn begin_next(&mut self, n_names: &mut usize, turn: &mut Turn<L, T>, now: Instant) -> bool {
        if !self.has_room() {
            return false;
        }
        let node_of = |(line, _): &(L, Report)| line.with(|session| session.node());
        let preparing = self.preparing.map(|(node, _)| node);
        let prepared = self.unanswered.iter().position(|waiting| Some(node_of(waiting)) == preparing);
        if prepared.is_none() && self.preparing.take().is_some() {
            self.state.network.forget_prepared();
        }
        let pace = &mut self.pace;
        let may_answer = |waiting: &(L, Report)| pace.may_answer(node_of(waiting), now);
        let Some(at) = prepared.or_else(|| self.unanswered.iter().position(may_answer)) else { return false };
        let node = node_of(&self.unanswered[at]);
        let (_, before) = self.preparing.take().unwrap_or((node, Duration::ZERO));
        self.work = Some(Work::Answer { node, before });
        // An answer that cannot be made fails again below, where the failure is reported.
        if !self.state.network.prepare_view(node, n_names).unwrap_or(true) {
            self.preparing = Some((node, before));
            return false;
        }
        let Some((line, report)) = self.unanswered.remove(at) else { return false };
        self.begin(&line, &report, before, turn, now);
        // A view may have been made at once, which takes about as long as this; otherwise the parts were compared, and
        // those that the switch lacks put into messages.
        *n_names = n_names.saturating_sub(self.state.network.rib().len() / 4);
        true
    }

    fn begin(&mut self, line: &L, report: &Report, took: Duration, turn: &mut Turn<L, T>, now: Instant) {
        let attached = self.attach_lacking(line, report);
        turn.views.append(&mut self.view_rows());
        self.at(Moment::Attached);
        match attached {
            Ok(mut lacks) => {
                let has_all = lacks.is_empty();
                let change = self.state.network.change();
                let is_mistaken = mistaken(Mistake::ReportAnsweredWithNothing) && report.table != 0;
                let node = line.with(|session| {
                    if has_all {
                        // It has everything, including what is still queued for it.
                        session.acknowledge(u64::MAX);
                    }
                    session.begin_answer(change);
                    // Only now: until then it would look in step.
                    session.set_parked(false);
                    if is_mistaken {
                        session.end_answer(now);
                    }
                    session.node()
                });
                if !is_mistaken {
                    self.state.network.begin_reading(&mut lacks);
                    self.answer = Some(InProgress { line: line.clone(), node, lacks, n_messages: 0, took });
                }
            }
            Err(error) => {
                let error = self.state.explain(error.into());
                let switch = self.name_of(line.with(|session| session.node()));
                tracing::warn!(switch, %error, "the report of the switch is refused; its stream ends");
                line.with(|session| session.end());
            }
        }
    }

    /// Goes on with the answer that is in progress, if there is room. Returns whether it is done.
    fn continue_answer(
        &mut self,
        n_names: &mut usize,
        without_room: bool,
        turn: &mut Turn<L, T>,
        now: Instant,
    ) -> bool {
        let Some(mut answer) = self.answer.take() else { return false };
        self.work = Some(Work::Answer { node: answer.node, before: answer.took });
        let is_done = loop {
            if answer.line.with(|session| session.is_ended()) {
                break true;
            }
            if *n_names == 0 || !(without_room || self.has_room()) {
                break false;
            }
            let mut piece = NAMES_AT_ONCE.min(*n_names);
            let before = piece;
            match self.state.network.next_message(&mut answer.lacks, &mut piece) {
                Next::Message(message) => {
                    let bytes = turn.encode(&message);
                    answer.line.with(|session| session.answer(bytes, now));
                    answer.n_messages += 1;
                    piece = 0;
                }
                Next::Later => {}
                Next::End => break true,
            }
            *n_names = n_names.saturating_sub(before - piece);
        };
        if is_done {
            answer.line.with(|session| session.end_answer(now));
            turn.kind = Kind::Sent;
            self.state.network.end_reading();
            tracing::info!(switch = self.name_of(answer.node), messages = answer.n_messages, "report answered");
        } else {
            self.answer = Some(answer);
        }
        is_done
    }

    /// Notes the time that some work for an answer took, and `before`, the time of the work before it.
    pub(super) fn worked(&mut self, node: NodeId, before: Duration, time: Duration, now: Instant) {
        match (&mut self.answer, &mut self.preparing) {
            (Some(answer), _) if answer.node == node => answer.took += time,
            (_, Some((preparing, took))) if *preparing == node => *took += time,
            _ => self.pace.answered(node, before + time, now),
        }
    }

    /// Gives up the answer that is in progress, if it is for this session.
    pub(super) fn give_up(&mut self, line: &L, now: Instant) {
        if let Some(answer) = self.answer.take_if(|answer| answer.line.is(line)) {
            line.with(|session| session.give_up_answer());
            self.state.network.end_reading();
            self.pace.answered(answer.node, answer.took, now);
        }
    }
}

//! Parks switches, and releases them. A parked switch gets no messages one by one, but all that it lacks, once, when it is time.

use super::{BULK_PERIOD, Kind, Owner, Parked, QUIET, Turn, Work};
use crate::core::session::{Line, Session};
use api::seam::{Mistake, Moment, mistaken};
use fib::messages::{Body, Report};
use fib::network::{Lacks, NetworkError};
use fib::topology::NodeId;
use std::time::Instant;

impl<L: Line, T> Owner<L, T> {
    /// Parks the switches that `which` selects: from here on no messages are made for them.
    pub(super) fn park(&mut self, which: impl Fn(&Session) -> bool, now: Instant) {
        for (node, line) in &self.lines {
            if !line.with(|session| which(session) && !session.is_parked()) {
                continue;
            }
            let Some(report) = self.state.network.held(*node) else { continue };
            if self.parked.is_empty() {
                self.due = now + BULK_PERIOD;
            }
            line.with(|session| session.set_parked(true));
            self.state.network.detach(*node);
            self.parked.insert(*node, Parked { line: line.clone(), report, alone: false });
        }
    }

    /// Sends the parked switches what they lack, if it is time, except those that have not caught up yet.
    pub(super) fn release(&mut self, now: Instant) -> Option<Turn<L, T>> {
        // Only the last part of a round uses that up.
        let urgent = self.stages.is_empty() && std::mem::take(&mut self.group.urgent);
        let is_caught_up = |parked: &Parked<L>| parked.line.with(|session| session.is_caught_up());
        let is_alone = |(_, parked): &(&NodeId, &Parked<L>)| parked.alone && is_caught_up(parked);
        let alone: Vec<NodeId> = self.parked.iter().filter(is_alone).map(|(node, _)| *node).collect();
        for node in alone {
            if let Some(Parked { line, report, .. }) = self.parked.remove(&node) {
                self.unanswered.push_back((line, report));
            }
        }
        let is_quiet = self.last_bulk.is_none_or(|last| now.saturating_duration_since(last) >= QUIET);
        let is_time = urgent || is_quiet || now >= self.due;
        let is_ready = |parked: &Parked<L>| is_time && is_caught_up(parked) && !mistaken(Mistake::NeverReleased);
        let ready = self.parked.iter().filter(|(_, parked)| !parked.alone && is_ready(parked));
        let ready: Vec<NodeId> = ready.map(|(node, _)| *node).collect();
        let mut turn = Turn::default();
        let mut is_full = false;
        for node in ready {
            is_full = !self.has_room();
            if is_full {
                break;
            }
            let Some(Parked { line, report, .. }) = self.parked.remove(&node) else { continue };
            if !line.with(|session| session.is_ended()) {
                self.release_one(&line, &report, &mut turn);
            }
        }
        if is_full {
            self.due = now;
            self.wants_room = true;
        }
        // What waits may be dropped, for example because an answer covers it: then no acknowledgement brings a turn.
        let is_to_be_seen = |parked: &Parked<L>| {
            !is_time && !parked.alone || !parked.line.with(|session| session.awaits_acknowledgement())
        };
        self.wants_release |= is_full || self.parked.values().any(is_to_be_seen);
        if !turn.outgoing.is_empty() {
            turn.kind = Kind::Sent;
            self.work = (!is_full).then_some(Work::Release);
        }
        (!turn.outgoing.is_empty() || !turn.views.is_empty()).then_some(turn)
    }

    fn release_one(&mut self, line: &L, report: &Report, turn: &mut Turn<L, T>) {
        if mistaken(Mistake::InStepBeforeMessages) {
            line.with(|session| session.set_parked(false));
        }
        let attached = self.attach_lacking(line, report);
        turn.views.append(&mut self.view_rows());
        self.at(Moment::Attached);
        match attached {
            Ok(lacks) => {
                let lacks = self.state.network.messages(lacks).filter(|_| !mistaken(Mistake::ReleaseSendsNothing));
                for message in lacks {
                    turn.push(phase_of(&message.body), line, &message);
                }
                // Only once its messages are made: until then it would look in step.
                line.with(|session| session.set_parked(false));
            }
            // The switch was removed meanwhile.
            Err(_) => line.with(|session| session.end()),
        }
    }

    /// What a switch lacks, in the form that it supports.
    pub(super) fn attach_lacking(&mut self, line: &L, report: &Report) -> Result<Lacks, NetworkError> {
        let (node, weighs_ways) = line.with(|session| (session.node(), session.said().weighs_ways()));
        self.state.network.set_weighs(node, weighs_ways);
        self.state.network.attach_lacking(node, report)
    }

    /// The designs' rows of the tables of switches that attached or detached. A controller that follows stores them when it leads.
    pub(super) fn view_rows(&mut self) -> Vec<fib::durable::RowChange> {
        let rows = self.state.network.take_view_rows();
        if self.leads { rows } else { Vec::new() }
    }
}

/// The phase of a message with what a switch lacks: names are local at their switch before frames are sent there, and
/// valid last.
fn phase_of(body: &Body) -> usize {
    match body {
        Body::Valid(_) => 2,
        Body::Image { .. } | Body::Updates { .. } | Body::Resync { .. } => 1,
        _ => 0,
    }
}

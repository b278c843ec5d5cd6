//! Decides on inputs that may change the state, and adds what follows to the group.

use super::{Answer, BULK_NAMES, Event, Input, Owner, Taken, Told};
use crate::core::change::{Change, Changed, Outcome, Refusal};
use crate::core::happened::Happened;
use crate::core::pace::TooFast;
use crate::core::session::Line;
use api::seam::Moment;
use fib::durable::RowChange;
use fib::network::Effects;
use std::time::Instant;

/// What a change did to the state.
pub(super) struct Applied {
    pub(super) changed: Changed,
    /// Whether frames depend on it now.
    pub(super) urgent: bool,
    pub(super) rows: Vec<RowChange>,
    /// The effects without their rows.
    pub(super) effects: Vec<Effects>,
    pub(super) happened: Option<Happened>,
}

impl<L: Line, T> Owner<L, T> {
    /// Decides on an input, apart from tasks.
    pub(super) fn decide(&mut self, input: Input<L, T>, now: Instant) -> Taken {
        match input {
            Input::Change { change, ticket, is_traced } => return self.answer_change(change, ticket, is_traced, now),
            Input::Trunks { switch, trunks, ticket } => {
                // One that was removed meanwhile has no links.
                if let Ok(node) = self.state.node(&switch) {
                    self.seen.trunks.report(node, trunks, now);
                    self.see(node, now);
                }
                let seen = ticket.filter(|_| self.leads).map(Answer::Durable);
                self.group.turn.answers.extend(seen);
            }
            Input::Hosts { switch, hosts, forgetful, at_ms, ticket } => {
                self.learn(&switch, (&hosts, &forgetful), at_ms, now);
                self.group.turn.answers.push(Answer::Durable(ticket));
            }
            Input::Forget => self.forget(now),
            Input::Follow(commit) => self.follow(commit, now),
            Input::Strayed => {
                self.position = None;
                self.end_sessions();
            }
            Input::Replace { state, number } => self.replace(*state, number),
            Input::SeeAll => {
                for node in self.seen.trunks.nodes() {
                    self.see(node, now);
                }
            }
            Input::Task(task) => self.group.tasks.push_back(task),
        }
        Taken::Other
    }

    fn answer_change(&mut self, change: Change, ticket: T, is_traced: bool, now: Instant) -> Taken {
        let first = self.group.effects.len();
        match self.change(change, now) {
            Ok(changed) => {
                self.group.turn.answers.push(Answer::Changed(ticket, changed));
                // Only the controller that leads makes the trace.
                if is_traced {
                    self.group.traced.push(first..self.group.effects.len());
                }
                Taken::Applied(changed)
            }
            Err(refusal) => {
                self.group.turn.refused.push((ticket, refusal));
                Taken::Refused
            }
        }
    }

    /// Carries out a change, if this controller leads and no tenant exceeds its rate.
    pub(super) fn change(&mut self, change: Change, now: Instant) -> Result<Changed, Refusal> {
        if !self.leads {
            return Err(Refusal::NotLeader { leader: self.leader.clone() });
        }
        let change = self.state.settle(change)?;
        if self.pace.limits_tenants()
            && let Err(refused) = self.pace.take(&self.state.tenants_of(&change), now)
        {
            self.group.turn.counts.too_fast += 1;
            let TooFast { tenant, what, per_second, wait } = refused;
            return Err(Refusal::TooFast { tenant, what, per_second, wait_ms: wait.as_millis() + 1 });
        }
        let told = self.tells.then(|| change.clone());
        let first = self.group.turn.rows.len();
        let joined = super::found::joined(&change);
        let outcome = self.carry_out(change, now);
        let rows = first..self.group.turn.rows.len();
        let leaves_traces = match &outcome {
            Ok(_) => !rows.is_empty(),
            Err(refusal) => refusal.may_leave_traces(),
        };
        let told = told.filter(|_| leaves_traces).map(|change| Told { change, rows });
        self.group.turn.told.extend(told);
        match &outcome {
            Ok(_) => self.see_joined(&joined, now),
            Err(refusal) => self.group.rekey |= refusal.is_collision(),
        }
        outcome
    }

    /// Applies a change, whole or not at all, and adds what it caused to the group.
    fn carry_out(&mut self, change: Change, now: Instant) -> Result<Changed, Refusal> {
        let Applied { changed, urgent, rows, effects, happened } = self.apply(change, now)?;
        self.group.urgent |= urgent;
        self.group.turn.events.extend(happened.map(Event::Changed));
        self.group.turn.rows.extend(rows);
        self.group.effects.extend(effects);
        Ok(changed)
    }

    /// Applies a change, whole or not at all.
    pub(super) fn apply(&mut self, change: Change, now: Instant) -> Result<Applied, Refusal> {
        let n_names = change.n_names();
        // A simulation has few names, so it sets what counts as bulk.
        let is_bulk = self.bounds.bulk_names < BULK_NAMES || self.state.network.is_bulk(n_names);
        if n_names >= self.bounds.bulk_names && is_bulk {
            self.park(|_| true, now);
            self.group.is_bulk = true;
        }
        let state = &self.state;
        let happened =
            Happened::of(&change, |place| state.far_end(place), |name| state.host_of(name).map(str::to_owned));
        let outcome = self.state.carry_out(change);
        self.at(Moment::Changed);
        let Outcome { changed, mut rows, mut effects } = outcome?;
        effects.iter_mut().for_each(|effects| rows.append(&mut effects.durable));
        Ok(Applied { changed, urgent: n_names == 0, rows, effects, happened: happened.changed(changed.changed) })
    }
}

//! Following the commits of another controller, and taking the lead.
//!
//! The changes of a commit are carried out as the leader did. If the resulting rows differ from those that were committed, or the commit
//! does not say what was changed, this controller has strayed: its streams end, and it goes on once it has read all rows again.

use super::{Event, Followable, Followed, Owner};
use crate::core::change::State;
use crate::core::session::Line;
use api::seam::{Mistake, mistaken};
use fib::durable::RowChange;
use std::time::Instant;

impl<L: Line, T> Owner<L, T> {
    /// Carries out what was committed.
    pub(super) fn follow(&mut self, commit: Followed, now: Instant) {
        let Followed { number, term, what } = commit;
        let Some(last) = self.position.filter(|last| !self.leads && number > *last) else { return };
        if number != last + 1 {
            return self.stray(format!("commit {number} came after {last}"));
        }
        self.state.network.raise_term(term);
        let (changes, are_committed) = match what {
            Followable::Nothing => (Vec::new(), None),
            Followable::Changes(changes, are_committed) => (changes, Some(are_committed)),
            Followable::Unknown if mistaken(Mistake::UntoldIsNothing) => (Vec::new(), None),
            Followable::Unknown => return self.stray("a commit does not say what was changed".to_owned()),
        };
        // What was refused there is refused here.
        let applied: Vec<_> = changes.into_iter().filter_map(|change| self.apply(change, now).ok()).collect();
        let rows: Vec<RowChange> = applied.iter().flat_map(|applied| &applied.rows).cloned().collect();
        if are_committed.is_some_and(|are_committed| !are_committed(&rows)) && !mistaken(Mistake::FollowsBlindly) {
            return self.stray("changes had another result here than where they were committed".to_owned());
        }
        for applied in applied {
            self.group.urgent |= applied.urgent;
            self.group.effects.extend(applied.effects);
            self.group.turn.events.extend(applied.happened.map(Event::Changed));
        }
        self.position = Some(number);
    }

    /// The state here may differ from the one that was committed.
    fn stray(&mut self, why: String) {
        self.position = None;
        self.end_sessions();
        self.group.turn.strayed.push(why);
    }

    /// Goes on with another state, that of the commit of this number.
    pub(super) fn replace(&mut self, state: State, number: u64) {
        if !self.leads {
            self.take_state(state);
            self.position = Some(number);
        }
    }

    fn take_state(&mut self, state: State) {
        self.end_sessions();
        self.parked.clear();
        self.unanswered.clear();
        (self.answer, self.preparing, self.rekey) = (None, None, None);
        // What was counted stays counted.
        self.rebuilt_before = self.parts_rebuilt();
        let before = std::mem::replace(&mut self.state, state);
        self.group.turn.discarded.push(Box::new(before));
        self.group.turn.is_replaced = true;
    }

    /// Whether all is carried out here up to the commit of this number, so that this controller may lead with its state.
    pub fn has_followed_to(&self, number: u64) -> bool {
        self.position == Some(number) || mistaken(Mistake::LeadsBehind)
    }

    /// Leads from now on, with the state that was followed. The rows to commit: those of views that are in the store are of the switches
    /// that were attached to the one that led before. What was heard meanwhile is carried out by
    /// [`Input::SeeAll`](super::Input::SeeAll).
    pub fn lead(&mut self, term: u64, views: Vec<RowChange>) -> Vec<RowChange> {
        self.state.network.raise_term(term);
        let _ = self.state.network.take_view_rows();
        self.leads = true;
        views.into_iter().map(RowChange::delete).chain(self.state.network.view_rows()).collect()
    }

    /// Leads from now on, with the state in the store: this controller has not followed to the end. It is committed.
    pub fn lead_anew(&mut self, state: State) {
        self.take_state(state);
        self.leads = true;
    }
}

//! Following the commits of another controller, and taking the lead.
//!
//! The changes of a commit are carried out as they were there. When their rows are not those that were committed, or it is not
//! said what was changed, this controller has strayed: its streams end, and it goes on when it has read all rows again.

use super::{Copied, Group, Writer};
use crate::core::change::State;
use crate::shell::restore::{StartError, restore};
use crate::store::{Commit, NOTHING, RowChange, Store, StoreError, Sum};
use crate::wire::replication::{Record, add_rows};
use api::seam::{Mistake, mistaken};
use fib::durable::VIEW;
use fib::network::Settings;

/// Rows of views that are read at a time.
const PAGE_ROWS: usize = 2048;

impl Writer {
    /// Carries out what was committed.
    pub(super) fn follow(&mut self, commit: &Commit, group: &mut Group) {
        let Some(last) = self.shared.lead.position().filter(|last| self.store.is_none() && commit.number > *last)
        else {
            return;
        };
        if commit.number != last + 1 {
            return self.shared.stray(&format!("commit {} came after {last}", commit.number));
        }
        self.state.network.raise_term(commit.term);
        let (changes, expected) = match Record::decode(&commit.told) {
            Some(Record::Nothing) => return self.shared.lead.set_position(Some(commit.number)),
            Some(Record::Changes(changes, sum)) => (changes, sum),
            None if mistaken(Mistake::UntoldIsNothing) => return self.shared.lead.set_position(Some(commit.number)),
            None => return self.shared.stray("a commit does not say what was changed"),
        };
        let mut carried_out = Group::default();
        for change in changes {
            // What was refused there is refused here.
            let _ = self.carry_out(change, &mut carried_out);
        }
        let mut sum = Sum::default();
        add_rows(&mut sum, &carried_out.rows, &mut Vec::new());
        if sum.digest.to_le_bytes() != expected && !mistaken(Mistake::FollowsBlindly) {
            return self.shared.stray("changes had another result here than where they were committed");
        }
        group.urgent |= carried_out.urgent;
        group.effects.append(&mut carried_out.effects);
        group.happened.append(&mut carried_out.happened);
        self.shared.lead.set_position(Some(commit.number));
    }

    /// Goes on with another state, that of the commit of this number.
    pub(super) fn replace(&mut self, state: State, number: u64) {
        if self.store.is_some() {
            return;
        }
        self.take_state(state);
        self.shared.lead.set_position(Some(number));
    }

    fn take_state(&mut self, state: State) {
        self.shared.end_sessions();
        self.parked.clear();
        self.unanswered.clear();
        (self.answer, self.preparing, self.rekey) = (None, None, None);
        self.values_counted_at.set(None);
        // What was counted stays counted.
        let rebuilt = self.parts_rebuilt();
        *self.shared.sizes.rebuilt_before.lock() = rebuilt;
        let before = std::mem::replace(&mut self.state, state);
        // To drop millions of names takes long.
        std::thread::spawn(move || drop(before));
    }

    /// Leads from now on. Switches that are attached stay so, if this controller has followed to the end.
    pub(super) fn lead(&mut self, mut store: Box<dyn Store>, settings: Settings) -> Result<(), StoreError> {
        if self.shared.lead.position() == Some(store.n_commits()) || mistaken(Mistake::LeadsBehind) {
            self.state.network.raise_term(store.term());
            // Those that are there are of the switches that were attached to the one before.
            let mut rows: Vec<RowChange> = view_rows(&*store)?.into_iter().map(RowChange::delete).collect();
            let _ = self.state.network.take_view_rows();
            rows.extend(self.state.network.view_rows());
            store.commit_told(&rows, NOTHING)?;
        } else {
            tracing::warn!("this controller leads before it has followed to the end: it reads all rows");
            let (state, restored) = restore(settings, store).map_err(StartError::into_store_error)?;
            self.take_state(state);
            store = restored;
        }
        self.store = Some(Copied::new(store));
        self.shared.set_leader(None);
        Ok(())
    }
}

/// The rows of views in a store.
fn view_rows(store: &dyn Store) -> Result<Vec<RowChange>, StoreError> {
    let mut rows: Vec<RowChange> = Vec::new();
    loop {
        let after = rows.last().map_or((VIEW, &[][..]), |row| (VIEW, &row.key));
        let page = store.rows_after(Some(after), PAGE_ROWS)?;
        let n_rows = page.len();
        let of_views = page.into_iter().take_while(|row| row.kind == VIEW);
        let n_before = rows.len();
        rows.extend(of_views);
        if n_rows < PAGE_ROWS || rows.len() - n_before < n_rows {
            return Ok(rows);
        }
    }
}

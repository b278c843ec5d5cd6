//! Another hash key, prepared beside changes.
//!
//! The names are copied in turns, the driver builds the tables beside, and names that changed meanwhile are
//! changed in the new tables before they replace the old ones: see [`fib::network::Rekey`]. Then every switch is sent its
//! new table as if it had asked for it, one at a time, and serves the old one until then.

use super::{Answer, Kind, Owner, Parked, Stage, Turn};
use crate::core::change::{Changed, Refusal};
use crate::core::session::Line;
use api::seam::{Mistake, mistaken};
use fib::network::{NetworkError, Rekey, Rekeyed, Replaced};
use fib::rib::RibError;
use std::time::Instant;

/// Hash keys that are tried before the old one is kept. A second collision of millions of names has a chance of one in a million.
const MAX_KEYS: usize = 4;

/// A rekey in progress.
pub(super) struct InProgress<T> {
    stage: Making,
    n_keys: usize,
    began: Instant,
    /// The operator who asked for it.
    ticket: Option<T>,
}

enum Making {
    /// Names are copied.
    Copy(Rekey),
    /// The driver builds the tables.
    Build,
    Built(Box<Result<Rekeyed, NetworkError>>),
}

impl<L: Line, T> Owner<L, T> {
    /// Begins a rekey, if none is in progress and it is time; otherwise the ticket comes back with the reason. Without a ticket the
    /// controller starts it on its own.
    pub(super) fn begin_rekey(&mut self, ticket: Option<T>, now: Instant) -> Option<(T, Refusal)> {
        let refusal = match &self.rekey {
            Some(_) => Some(Refusal::RekeyInProgress),
            None => self.pace.rekey(ticket.is_some(), now).err().map(|wait| Refusal::RekeyTooSoon {
                wait_s: wait.as_secs().saturating_add(1),
                every_s: self.pace.rekey_pause().as_secs(),
            }),
        };
        if let Some(refusal) = refusal {
            return ticket.map(|ticket| (ticket, refusal));
        }
        tracing::warn!(
            names = self.state.network.rib().len(),
            by_itself = ticket.is_none(),
            "choosing another hash key; every switch will be sent a new table"
        );
        let stage = self.copy();
        self.rekey = Some(InProgress { stage, n_keys: 1, began: now, ticket });
        None
    }

    fn copy(&mut self) -> Making {
        Making::Copy(self.state.network.begin_rekey((self.bounds.new_key)()))
    }

    /// Whether there is work to do for the rekey.
    pub(super) fn may_rekey(&self) -> bool {
        self.rekey.as_ref().is_some_and(|rekey| !matches!(rekey.stage, Making::Build))
    }

    /// Takes the tables that the driver was asked to build.
    pub fn rekeyed(&mut self, built: Result<Rekeyed, NetworkError>) {
        // The rekey may have been given up meanwhile.
        if let Some(rekey) = self.rekey.as_mut().filter(|rekey| matches!(rekey.stage, Making::Build)) {
            rekey.stage = Making::Built(Box::new(built));
        }
    }

    /// Goes on with the rekey in progress: copies at most `n_names` names, or replaces the tables if the new ones are
    /// built.
    pub(super) fn go_on_with_rekey(&mut self, n_names: usize, now: Instant) -> Option<Turn<L, T>> {
        let InProgress { stage, n_keys, began, ticket } = self.rekey.take()?;
        let built = match stage {
            Making::Copy(mut rekey) => {
                let is_copied = self.state.network.copy_names(&mut rekey, n_names);
                let (stage, build) = if is_copied { (Making::Build, Some(rekey)) } else { (Making::Copy(rekey), None) };
                self.rekey = Some(InProgress { stage, n_keys, began, ticket });
                return build.map(|rekey| Turn { build: Some(rekey), ..Turn::default() });
            }
            Making::Build => {
                self.rekey = Some(InProgress { stage, n_keys, began, ticket });
                return None;
            }
            Making::Built(built) => *built,
        };
        let Replaced { mut effects, attached, discarded } =
            match built.and_then(|rekeyed| self.state.network.finish_rekey(rekeyed)) {
                Ok(replaced) => replaced,
                Err(error) if n_keys < MAX_KEYS && is_worth_another(&error) => {
                    tracing::warn!(%error, "this hash key failed; trying another");
                    let stage = self.copy();
                    self.rekey = Some(InProgress { stage, n_keys: n_keys + 1, began, ticket });
                    return None;
                }
                Err(error) => {
                    self.state.network.give_up_rekey();
                    tracing::error!(%error, keys = n_keys, "no hash key worked; the old one is kept");
                    let refused = ticket.map(|ticket| (ticket, error.into())).into_iter().collect();
                    return Some(Turn { refused, ..Turn::default() });
                }
            };
        let mut rows = std::mem::take(&mut effects.durable);
        if mistaken(Mistake::RekeyNotStored) {
            rows.clear();
        }
        for (node, report) in attached {
            if let Some(line) = self.lines.get(&node).filter(|_| !mistaken(Mistake::RekeyLeavesSwitches)) {
                line.with(|session| session.set_parked(true));
                self.parked.insert(node, Parked { line: line.clone(), report, alone: true });
            }
        }
        // As a group of its own.
        self.group.effects.push(effects);
        self.progress.committed += 1;
        self.stages.push_front(Stage::Release);
        self.stages.push_front(Stage::Messages);
        let changed = Changed { changed: self.state.network.rib().len() as u64, unchanged: 0 };
        let answers = ticket.map(|ticket| Answer::Changed(ticket, changed)).into_iter().collect();
        let seconds = now.saturating_duration_since(began).as_secs_f32();
        tracing::warn!(seconds, "the hash key has changed");
        Some(Turn { rows, answers, discarded: vec![discarded], kind: Kind::Group, ..Turn::default() })
    }
}

/// Whether another key may succeed where this one failed.
fn is_worth_another(error: &NetworkError) -> bool {
    matches!(
        error,
        NetworkError::Rib(RibError::DigestCollision { .. })
            | NetworkError::Graph(_)
            | NetworkError::Crowded { .. }
            | NetworkError::Overtaken
    )
}

//! Another hash key, prepared beside changes.
//!
//! The names are copied in turns, the tables are built on a thread of their own, and names that changed meanwhile are
//! changed in the new tables before they replace the old ones: see [`fib::network::Rekey`]. Then every switch is sent its
//! new table as if it had asked for it, one at a time, and serves the old one until then.

use super::{Group, Parked, Writer};
use crate::core::change::{Changed, Refusal};
use crate::store::StoreError;
use api::seam::{Mistake, mistaken, now, simulated};
use fib::network::{NetworkError, Rekey, Rekeyed, Replaced};
use fib::rib::RibError;
use lookup::hash::SecretKey;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::oneshot;

/// Hash keys tried before the old one is kept. A second collision of millions of names has a chance of one in a million.
const MAX_KEYS: usize = 4;

/// A rekey in progress.
pub(super) struct InProgress {
    stage: Stage,
    n_keys: usize,
    began: Instant,
    /// The operator who asked for it.
    reply: Option<Reply>,
}

enum Stage {
    Copy(Rekey),
    Build(JoinHandle<Result<Rekeyed, NetworkError>>),
}

pub(super) type Reply = oneshot::Sender<Result<Changed, Refusal>>;

impl Writer {
    /// Begins a rekey, if none is in progress and it is time. Without `reply` the controller does it by itself.
    pub(super) fn begin_rekey(&mut self, reply: Option<Reply>) {
        let refusal = match &self.rekey {
            Some(_) => Some(Refusal::RekeyInProgress),
            None => self.pace.rekey(reply.is_some(), now()).err().map(|wait| Refusal::RekeyTooSoon {
                wait_s: wait.as_secs().saturating_add(1),
                every_s: self.pace.rekey_pause().as_secs(),
            }),
        };
        if let Some(refusal) = refusal {
            reply.map(|reply| reply.send(Err(refusal)));
            return;
        }
        tracing::warn!(
            names = self.state.network.rib().len(),
            by_itself = reply.is_none(),
            "choosing another hash key; every switch will be sent a new table"
        );
        let stage = Stage::Copy(self.state.network.begin_rekey(new_key()));
        self.rekey = Some(InProgress { stage, n_keys: 1, began: now(), reply });
    }

    /// Whether there is something to do for the rekey.
    pub(crate) fn may_rekey(&self) -> bool {
        match &self.rekey {
            Some(InProgress { stage: Stage::Copy(_), .. }) => true,
            Some(InProgress { stage: Stage::Build(building), .. }) => is_to_be_joined(building),
            None => false,
        }
    }

    /// Goes on with the rekey in progress: copies at most `n_names` names, or replaces the tables if the new ones are
    /// built.
    pub(super) fn go_on_with_rekey(&mut self, n_names: usize) -> Result<(), StoreError> {
        let Some(InProgress { stage, n_keys, began, reply }) = self.rekey.take() else { return Ok(()) };
        let mut go_on = |stage, n_keys, reply| self.rekey = Some(InProgress { stage, n_keys, began, reply });
        let built = match stage {
            Stage::Copy(mut rekey) => {
                if !self.state.network.copy_names(&mut rekey, n_names) {
                    go_on(Stage::Copy(rekey), n_keys, reply);
                    return Ok(());
                }
                // In a simulation the writer waits for the tables, and when they are ready must not show.
                let shared = simulated().is_none().then(|| Arc::clone(&self.shared));
                let building = std::thread::spawn(move || {
                    let built = rekey.build(1);
                    shared.inspect(|shared| shared.progress.parked.notify_one());
                    built
                });
                go_on(Stage::Build(building), n_keys, reply);
                return Ok(());
            }
            Stage::Build(building) if !is_to_be_joined(&building) => {
                go_on(Stage::Build(building), n_keys, reply);
                return Ok(());
            }
            Stage::Build(building) => building.join(),
        };
        let replaced = match built {
            Ok(built) => built.and_then(|rekeyed| self.state.network.finish_rekey(rekeyed)),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let Replaced { mut effects, attached, discarded } = match replaced {
            Ok(replaced) => replaced,
            Err(error) if n_keys < MAX_KEYS && is_worth_another(&error) => {
                tracing::warn!(%error, "this hash key failed; trying another");
                let stage = Stage::Copy(self.state.network.begin_rekey(new_key()));
                self.rekey = Some(InProgress { stage, n_keys: n_keys + 1, began, reply });
                return Ok(());
            }
            Err(error) => {
                self.state.network.give_up_rekey();
                tracing::error!(%error, keys = n_keys, "no hash key worked; the old one is kept");
                reply.map(|reply| reply.send(Err(error.into())));
                return Ok(());
            }
        };
        let mut rows = std::mem::take(&mut effects.durable);
        if mistaken(Mistake::RekeyNotStored) {
            rows.clear();
        }
        let changed = Changed { changed: self.state.network.rib().len() as u64, unchanged: 0 };
        let replies = reply.map(|reply| (reply, changed)).into_iter().collect();
        for (node, report) in attached {
            if mistaken(Mistake::RekeyLeavesSwitches) {
                continue;
            }
            if let Some(session) = self.shared.session(node) {
                session.set_parked(true);
                self.parked.insert(node, Parked { session, report, alone: true });
            }
        }
        self.finish(Group { rows, effects: vec![effects], replies, ..Group::default() })?;
        // To drop millions of names takes long.
        std::thread::spawn(move || drop(discarded));
        tracing::warn!(seconds = (now() - began).as_secs_f32(), "the hash key has changed");
        self.release(false);
        Ok(())
    }
}

/// A random key; in a simulation one that follows from the time.
fn new_key() -> SecretKey {
    simulated().map_or_else(SecretKey::random, |time| SecretKey::from_seed(time.as_nanos() as u64))
}

/// Whether the tables are built. A simulation waits for them: when they are must follow from its seed.
fn is_to_be_joined<T>(building: &JoinHandle<T>) -> bool {
    building.is_finished() || simulated().is_some()
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

//! A controller on a store in etcd: it follows the one that leads, and leads when there is none.
//!
//! ```text
//! begin ─┬─ another leads: read all rows ─► follow its commits ─► it is gone: catch up ─► lead
//!        └─ no leader ───────────────────────────────────────────────────────────────────► lead
//! ```
//! A controller that led and lost the lead ends, and begins anew: its memory may be ahead of what was committed.

use crate::core::change::State;
use crate::core::owner::Input;
use crate::shell::config::Config;
use crate::shell::job::{Job, Jobs};
use crate::shell::restore::{Read, StartError, read, restore};
use crate::shell::shared::Shared;
use crate::store::{
    Candidate, EtcdAddress, EtcdOptions, EtcdStore, Follower, Leader, Position, Store, StoreError, Watching,
};
use crate::wire::replication::followed;
use fib::network::Settings;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Pause after rows could not be read, or etcd could not be asked who leads.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest pause before rows are read again that the leader may yet update. Reading them takes seconds at a million names.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a controller that is to lead waits for the commits of its predecessor.
const CATCH_UP: Duration = Duration::from_secs(3);

/// Resolves when another controller may lead.
pub(crate) type Lost = Pin<Box<dyn Future<Output = StoreError> + Send>>;

type Leading = Pin<Box<dyn Future<Output = Result<EtcdStore, StoreError>> + Send>>;

/// How a controller begins.
pub(crate) enum Begun {
    /// It leads.
    Leads { state: State, store: Box<dyn Store>, lost: Lost },
    /// It follows.
    Follows { state: State, following: Box<Following> },
}

/// A controller that follows another one.
pub(crate) struct Following {
    options: EtcdOptions,
    listens_at: String,
    settings: Settings,
    follower: Arc<Follower>,
    watching: Watching,
    /// Resolves when this controller leads.
    leading: Leading,
    shared: Arc<Shared>,
}

/// Waits until this controller leads, or can follow the one that does.
pub(crate) async fn begin(
    config: &Config,
    address: &EtcdAddress,
    settings: Settings,
    shared: &Arc<Shared>,
) -> Result<Begun, StartError> {
    let options = EtcdOptions { address: address.clone(), tls: config.etcd.clone() };
    if options.tls.is_none() {
        tracing::warn!(store = %address, "the connections to etcd are unencrypted: anyone on the path can read the names and the secret hash key; set [etcd] ca, cert and key");
    }
    let listens_at = config.listen.to_string();
    let mut leading = lead(&options, &listens_at, shared)?;
    let follower = Arc::new(Follower::new(&options)?);
    let (mut may_follow, mut wait) = (true, Duration::ZERO);
    loop {
        let state = async {
            pause(wait).await;
            shared.lead.until_another_leads().await;
            read_state(&follower, &settings).await
        };
        tokio::select! {
            store = &mut leading => {
                let store = store?;
                let lost = Box::pin(store.lost());
                let (state, store) = tokio::task::block_in_place(|| restore(settings, Box::new(store)))?;
                shared.set_leader(None);
                shared.lead.set_follower(&follower);
                return Ok(Begun::Leads { state, store, lost });
            }
            read = state, if may_follow => match read {
                Ok((state, position)) => {
                    let watching = follower.watch(position);
                    shared.lead.set_position(Some(position.number));
                    shared.lead.set_follower(&follower);
                    let (settings, shared) = (settings, Arc::clone(shared));
                    let following = Following { options, listens_at, settings, follower, watching, leading, shared };
                    return Ok(Begun::Follows { state, following: Box::new(following) });
                }
                Err(error) => match pause_after(&error, wait) {
                    Some(pause) => {
                        if !matches!(error, StartError::Empty) {
                            tracing::warn!(%error, "this controller cannot follow yet");
                        }
                        wait = pause;
                    }
                    None => {
                        tracing::error!(%error, "this controller cannot follow: it serves no requests until it leads");
                        may_follow = false;
                    }
                },
            },
        }
    }
}

/// The pause before reading rows again that a controller cannot follow; none if they never can be. `before` is the previous pause.
fn pause_after(error: &StartError, before: Duration) -> Option<Duration> {
    match error {
        StartError::Empty | StartError::Store(_) => Some(PAUSE),
        // The leader may lead without having committed them yet, or another controller will lead.
        StartError::OtherDesigns => Some((before * 2).clamp(PAUSE, LONGEST_PAUSE)),
        _ => None,
    }
}

#[expect(clippy::disallowed_methods, reason = "the pause before etcd is asked again")]
fn pause(time: Duration) -> tokio::time::Sleep {
    tokio::time::sleep(time)
}

/// Resolves when no other controller leads, and this one does. Dropping it gives up the lead.
fn lead(options: &EtcdOptions, listens_at: &str, shared: &Arc<Shared>) -> Result<Leading, StoreError> {
    let candidate = Candidate::new(options, listens_at)?;
    let shared = Arc::clone(shared);
    let told = move |leader: &Leader| {
        tracing::info!(%leader, "another controller leads");
        shared.set_leader(Some(leader.clone()));
    };
    Ok(Box::pin(async move {
        let store = candidate.lead(told).await?;
        tracing::info!(term = store.term(), "this controller leads");
        Ok(store)
    }))
}

/// The network as of a commit.
async fn read_state(follower: &Arc<Follower>, settings: &Settings) -> Result<(State, Position), StartError> {
    let position = follower.position().await?;
    let (follower, settings) = (Arc::clone(follower), settings.clone());
    let read = tokio::task::spawn_blocking(move || Ok((state_at(settings, &follower, position)?, position)));
    read.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// The network as of this commit. Blocks.
#[cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations use it"))]
pub fn state_at(settings: Settings, follower: &Follower, position: Position) -> Result<State, StartError> {
    let began = Instant::now();
    let Read { network, hosts, n_rows } = read(settings, position.term, follower.rows(position))?;
    let (network, rows) = network.ok_or(StartError::Empty)?;
    if !rows.is_empty() {
        return Err(StartError::OtherDesigns);
    }
    tracing::info!(
        rows = n_rows,
        names = network.rib().len(),
        commit = position.number,
        seconds = began.elapsed().as_secs_f32(),
        "state read; this controller follows"
    );
    Ok(State { network, hosts })
}

impl Following {
    /// Follows, until this controller leads or ends. Passes to `losing` what resolves once it no longer leads.
    pub(crate) async fn run(mut self, jobs: Jobs, losing: oneshot::Sender<Lost>) {
        loop {
            tokio::select! {
                () = jobs.closed() => return,
                store = &mut self.leading => match store {
                    Ok(store) => {
                        let lost: Lost = Box::pin(store.lost());
                        self.take_over(store, &jobs).await;
                        let _ = losing.send(lost);
                        return;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "this controller cannot lead; it stays as it is, and tries again");
                        pause(PAUSE).await;
                        match lead(&self.options, &self.listens_at, &self.shared) {
                            Ok(leading) => self.leading = leading,
                            Err(error) => {
                                tracing::error!(%error, "this controller can no longer lead");
                                self.leading = Box::pin(std::future::pending());
                            }
                        }
                    }
                },
                () = self.shared.lead.until_strayed() => self.read_again(&jobs).await,
                commit = self.watching.next() => match commit {
                    Ok(commit) => _ = jobs.send(Input::Follow(followed(commit))).await,
                    Err(error) => {
                        self.shared.stray(&error.to_string());
                        let _ = jobs.send(Input::Strayed).await;
                    }
                },
            }
        }
    }

    /// Reads all rows again.
    async fn read_again(&mut self, jobs: &Jobs) {
        match read_state(&self.follower, &self.settings).await {
            Ok((state, position)) => {
                self.watching = self.follower.watch(position);
                let replace = Input::Replace { state: Box::new(state), number: position.number };
                let _ = jobs.send(replace).await;
                // Otherwise they would be read once more.
                let _ = tokio::time::timeout(CATCH_UP, self.shared.lead.until_followed()).await;
            }
            Err(error) => {
                tracing::warn!(%error, "the rows cannot be read; this controller serves no switches until they are");
                pause(PAUSE).await;
            }
        }
    }

    /// Carries out what the predecessor committed, and leads.
    async fn take_over(&mut self, store: EtcdStore, jobs: &Jobs) {
        let last = store.n_commits();
        let caught_up = async {
            while self.watching.number() < last {
                let commit = self.watching.next().await?;
                let _ = jobs.send(Input::Follow(followed(commit))).await;
            }
            Ok::<(), StoreError>(())
        };
        match tokio::time::timeout(CATCH_UP, caught_up).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last commits cannot be followed"),
            Err(_) => tracing::warn!("the last commits did not come in time"),
        }
        let lead = Job::Lead { store: Box::new(store), settings: Box::new(self.settings.clone()) };
        let _ = jobs.send(lead).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::network::RestoreError;

    /// After an upgrade all start together. One leads, and takes seconds to update the rows; the others must not give up meanwhile.
    #[test]
    fn rows_that_the_leader_may_bring_up_to_date_are_read_again_ever_more_seldom() {
        let mut pauses = vec![Duration::ZERO];
        for _ in 0..20 {
            pauses.push(pause_after(&StartError::OtherDesigns, pauses[pauses.len() - 1]).unwrap());
        }
        assert_eq!((pauses[1], pauses[2], pauses[20]), (PAUSE, 2 * PAUSE, LONGEST_PAUSE));
        assert!(pauses.is_sorted());
        assert_eq!(pause_after(&StartError::Empty, LONGEST_PAUSE), Some(PAUSE));
        assert_eq!(pause_after(&StartError::Restore(RestoreError::NoNetwork), PAUSE), None, "no commit mends it");
    }
}

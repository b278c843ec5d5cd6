//! Mistakes that `fibula` can be told to make, which the rounds must find.

use crate::site::{self, Of};
use crate::world::World;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A mistake, by its name in `api::seam`, and the process that is killed to find it.
pub(crate) const ALL: &[(&str, Of)] = &[
    // The rows of a change are committed with those of the next one, and answered for before.
    ("CommitsPutOff", Of::Controller),
    // A certificate authority counts as made before its key is written.
    ("AuthorityBeforeKey", Of::Pki),
    // Half the rows of a transaction are committed by themselves.
    ("CommittedInHalves", Of::Controller),
    // The seal over the rows is written after they are committed.
    ("SealedAfterCommit", Of::Controller),
    // SQLite has transactions that the log has not.
    ("LogNotWritten", Of::Controller),
    // A change is answered before it is on record.
    ("AuditedAfterAnswer", Of::Controller),
    // A backup is written under its own name.
    ("CopyInPlace", Of::Backup),
    // The parts of a new store look like all of it.
    ("PartsLookWhole", Of::Repair),
    // The image of a switch is written over the old one.
    ("ImageInPlace", Of::Switch),
    // The image of a switch stays as it was, and counts as saved.
    ("ImageNotReplaced", Of::Switch),
    // A holder has a certificate before the authority has it on record.
    ("HeldBeforeRecord", Of::Pki),
];

/// Rounds in which a mistake must be found.
pub(crate) const MOST_ROUNDS: u64 = 400;

/// The round in which a mistake is found. Rounds are those that kill such a process, in the order of a campaign.
pub(crate) async fn found(mistake: &'static str, of: Of, seed: u64) -> Option<u64> {
    let made = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&made);
    let rounds = tokio::spawn(async move {
        let mut world = World::new(seed, None, Some(mistake));
        let sites: Vec<_> = site::all().into_iter().filter(|crash| crash.of == of).collect();
        for crash in sites.iter().cycle().take(MOST_ROUNDS as usize) {
            counter.fetch_add(1, Relaxed);
            world.round(crash).await;
        }
        world.settle().await;
    });
    let ended = rounds.await;
    ended.is_err().then(|| made.load(Relaxed))
}

//! What others see of the owner: counters and sizes, as of the last commit.

use super::Writer;
use crate::core::change::State;
use crate::core::owner::Turn;
use crate::shell::job::Ticket;
use crate::shell::session::Session;
use api::seam::now;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

/// Memory is counted at most this often.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What was published.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// How far this controller followed.
    position: Option<u64>,
    /// When memory was last counted.
    counted_at: Option<Instant>,
    /// When values were last counted, in changes of routes.
    values_counted_at: Option<u64>,
}

impl Published {
    /// The state for a controller that has followed up to a commit.
    pub(super) fn at(position: Option<u64>) -> Published {
        Published { position, ..Published::default() }
    }

    /// Has values counted again, because the network was replaced.
    pub(super) fn forget_values(&mut self) {
        self.values_counted_at = None;
    }
}

impl Writer {
    /// Publishes what a turn did, before it is answered.
    pub(super) fn publish_turn(&mut self, turn: &Turn<Arc<Session>, Ticket>) {
        let (totals, progress) = (&self.shared.totals, &self.shared.progress);
        totals.messages.fetch_add(turn.counts.messages, Relaxed);
        totals.message_bytes.fetch_add(turn.counts.message_bytes, Relaxed);
        totals.too_fast.fetch_add(turn.counts.too_fast, Relaxed);
        totals.reports_delayed.fetch_add(turn.counts.delayed, Relaxed);
        let now = self.owner.progress();
        progress.committed.store(now.committed, Release);
        progress.made.store(now.made, Release);
        turn.strayed.iter().for_each(|why| self.shared.stray(why));
        let position = self.owner.position();
        if std::mem::replace(&mut self.published.position, position) != position {
            self.shared.lead.set_position(position);
        }
    }

    /// Publishes what the owner waits for.
    pub(super) fn publish_wishes(&mut self) {
        if self.owner.take_wants_room() {
            self.shared.progress.wants_room.store(true, Release);
        }
        if self.owner.take_wants_release() {
            self.shared.progress.parked.notify_one();
        }
    }

    pub(super) fn publish_sizes(&mut self) {
        let State { network, hosts } = &self.owner.state;
        let sizes = &self.shared.sizes;
        sizes.names.store(network.rib().len() as u64, Relaxed);
        sizes.switches.store(network.topology().nodes().count() as u64, Relaxed);
        self.shared.known.presence.lock().set_known(
            network.topology(),
            self.shared.totals.transactions.load(Relaxed),
            now(),
        );
        sizes.links.store(network.topology().links().count() as u64, Relaxed);
        sizes.hosts.store(hosts.iter().len() as u64, Relaxed);
        sizes.learnt.store(hosts.learnt.len() as u64, Relaxed);
        *sizes.seen.lock() = self.owner.seen.learning.counts();
        *sizes.rebuilt.lock() = self.owner.parts_rebuilt();
        let n_reroutes = Some(network.n_reroutes());
        if std::mem::replace(&mut self.published.values_counted_at, n_reroutes) != n_reroutes {
            *sizes.sharing.lock() = network.sharing();
        }
        // Counting takes time in proportion to the names. So the bytes may be a second old, if changes came since.
        if self.published.counted_at.is_none_or(|at| now() - at >= COUNT_EVERY) {
            self.published.counted_at = Some(now());
            sizes.rib_bytes.store(network.rib().heap_bytes() as u64, Relaxed);
            sizes.skeleton_bytes.store(network.skeleton_bytes() as u64, Relaxed);
        }
    }
}

//! Data that all steps on the path of a frame work with.

use super::copies::Copies;
use super::ports::Ports;
use super::work::Work;
use crate::counters::{DropReason, WorkerCounters};
use crate::gateway::Router;
use crate::plane::{Plane, Shared};
use crate::tap::{At, Seen, Tap, Verdict};
use arc_swap::Guard;
use netio::{BURST, Pool};
use std::sync::Arc;

/// A burst on its way, with the plane that it is forwarded by.
pub(super) struct Flight<T> {
    pub(super) plane: Guard<Arc<Plane<T>>>,
    pub(super) work: Box<Work>,
}

/// See the module.
pub(super) struct Context<T> {
    pub(super) shared: Arc<Shared<T>>,
    pub(super) counters: Arc<WorkerCounters>,
    pub(super) ports: Ports,
    pub(super) pool: Pool,
    /// The table of the last generation.
    pub(super) table: Option<T>,
    /// The gateway to networks outside, if there is one.
    pub(super) router: Option<Router>,
    /// Broadcasts and multicasts.
    pub(super) copies: Copies,
    /// Copies frames for people who look, while there are any.
    pub(super) tap: Option<Box<Tap>>,
    /// Memory of bursts that are not on their way.
    pub(super) idle: Vec<Box<Work>>,
}

impl<T> Context<T> {
    /// Memory for a burst.
    #[inline]
    pub(super) fn take_idle(&mut self) -> Box<Work> {
        self.idle.pop().unwrap_or_default()
    }

    /// Drops the frames `wrong` of a burst, and counts them by their reasons.
    #[inline(never)]
    pub(super) fn refuse(&mut self, work: &mut Work, wrong: u32, reasons: &[DropReason; BURST]) {
        for (i, packet) in std::mem::take(&mut work.burst).into_iter().enumerate() {
            if wrong >> i & 1 == 0 {
                work.burst.push(packet);
            } else {
                self.counters.drop_frame(reasons[i]);
                self.tell(&work.seen, i, work.entry, packet.frame(), Verdict::Dropped(reasons[i]));
                self.pool.put(packet);
            }
        }
        if self.tap.is_some() {
            work.seen.remove(wrong);
        }
    }

    /// Tells the tap, if there is one, the fate of the `i`th frame of a burst that came in at `entry`, which looks like `now`.
    #[inline]
    pub(super) fn tell(&mut self, seen: &Seen, i: usize, entry: usize, now: &[u8], verdict: Verdict) {
        if let Some(tap) = &mut self.tap {
            tap.tell(seen, i, At::of_entry(entry, &self.ports[entry]), now, verdict);
        }
    }
}

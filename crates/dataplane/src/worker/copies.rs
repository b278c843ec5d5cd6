//! Copies of broadcasts and multicasts: see [`crate::groups`].
//!
//! ```text
//!  distribute: Fate::Copy ─► waiting ─► after a poll: a burst of copies ─► access list, names, exits, like frames that came in
//! ```
//! The source of the frame itself was checked when it came.

mod making;

use crate::budget::Budget;
use crate::groups::{ALL_COPIES_PER_SECOND, COPIES_PER_SECOND, Groups, group_of, sender};
use crate::mac::Mac;
use crate::shim;
use netio::Packet;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Frames that wait until all their copies are made, in total and of one port: at most so many packets of the pool are lent.
const MOST_WAITING: usize = 64;
const MOST_OF_A_PORT: usize = 16;

/// A frame whose copies are made.
struct Waiting {
    entry: usize,
    frame: Packet,
    sender: Mac,
    tenant: u32,
    /// The names that have a copy.
    names: Arc<[Mac]>,
    /// The next name to have a copy.
    next: usize,
}

/// The broadcasts and multicasts of a worker.
pub(super) struct Copies {
    waiting: VecDeque<Waiting>,
    /// The budget of copies for each tenant, and in total.
    budgets: HashMap<u32, Budget>,
    of_all: Budget,
}

impl Copies {
    pub(super) fn new() -> Self {
        let of_all = Budget::full(ALL_COPIES_PER_SECOND, Instant::now());
        Self { waiting: VecDeque::new(), budgets: HashMap::new(), of_all }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps a frame that came in at a port, until its copies are made, and lends it.
    /// # Errors
    /// The frame, if too many wait already, its sender is no longer a member, or it has no receivers any more.
    #[cold]
    pub(super) fn keep(&mut self, groups: &Groups, entry: usize, frame: Packet) -> Result<&Packet, Packet> {
        let heard_by = |sender: Mac| {
            let tenant = groups.of(sender)?;
            let names = tenant.audience(sender, group_of(frame.frame(), shim::AT))?;
            Some((sender, tenant.id, Arc::clone(names)))
        };
        let group = sender(frame.frame()).and_then(heard_by);
        let n_of_port = self.waiting.iter().filter(|waiting| waiting.entry == entry).count();
        let has_room = self.waiting.len() < MOST_WAITING && n_of_port < MOST_OF_A_PORT;
        let Some((sender, tenant, names)) = group.filter(|_| has_room) else { return Err(frame) };
        self.waiting.push_back(Waiting { entry, frame, sender, tenant, names, next: 0 });
        Ok(&self.waiting[self.waiting.len() - 1].frame)
    }

    /// All copies of a frame are made, or none: otherwise the end of a list would receive nothing in a storm.
    fn may_copy(&mut self, tenant: u32, n: usize, now: Instant) -> bool {
        let of_tenant = self.budgets.entry(tenant).or_insert_with(|| Budget::full(COPIES_PER_SECOND, now));
        let may = of_tenant.has(n, now) && self.of_all.has(n, now);
        may && of_tenant.take_many(n, now) && self.of_all.take_many(n, now)
    }
}

//! Copies of frames to everybody: see [`crate::groups`].
//!
//! ```text
//!  distribute: Fate::Copy ─► waiting ─► after a poll: a burst of copies ─► access list, names, exits, like frames that came in
//! ```
//! The source of the frame itself was checked when it came.

use super::Worker;
use crate::budget::Budget;
use crate::counters::DropReason;
use crate::groups::{ALL_COPIES_PER_SECOND, COPIES_PER_SECOND, Groups, group_of, sender};
use crate::mac::Mac;
use crate::shim;
use crate::table::Table;
use crate::tap::{At, Seen, Verdict};
use fib::action::PortId;
use netio::Packet;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Frames that wait until all their copies are made, in all and of one port: so many packets of the pool are lent at most.
const MOST_WAITING: usize = 64;
const MOST_OF_A_PORT: usize = 16;

/// A frame whose copies are made.
struct Waiting {
    entry: usize,
    frame: Packet,
    sender: Mac,
    tenant: u32,
    /// The names that have one.
    names: Arc<[Mac]>,
    /// The next name to have a copy.
    next: usize,
}

/// The frames to everybody of a worker.
pub(super) struct Copies {
    waiting: VecDeque<Waiting>,
    /// What may be copied for each tenant, and for all.
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
    /// The frame, if too many wait already, its sender is no member any more, or nobody wants it any more.
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

    /// All copies of a frame, or none: otherwise those at the end of a list would hear nothing in a storm.
    fn may_copy(&mut self, tenant: u32, n: usize, now: Instant) -> bool {
        let of_tenant = self.budgets.entry(tenant).or_insert_with(|| Budget::full(COPIES_PER_SECOND, now));
        let may = of_tenant.has(n, now) && self.of_all.has(n, now);
        may && of_tenant.take_many(n, now) && self.of_all.take_many(n, now)
    }
}

impl<T: Table> Worker<T> {
    /// Makes copies of a frame that waits, at most a burst, and forwards them. Frames take turns, so that those of a large tenant
    /// hold up no others. Returns how much it did; 0 if nothing can be done now.
    #[cold]
    pub(super) fn make_copies(&mut self) -> usize {
        let epoch = self.shared.epoch();
        let shared = Arc::clone(&self.shared);
        let plane = shared.plane.load();
        self.refresh_table(&plane);
        let Some(mut waiting) = self.copies.waiting.pop_front() else { return 0 };
        let (entry, here) = (waiting.entry, self.ports[waiting.entry].id);
        let hasher = self.table.as_ref().and_then(Table::hasher).filter(|_| plane.field.is_ok()).cloned();
        let is_here = |name: &Mac| {
            let digest = hasher.as_ref().map(|hasher| hasher.digest(name));
            digest.and_then(|digest| plane.local.get_bytes(name, digest)).map(PortId) == Some(here)
        };
        // The source may not have been checked, or moved since.
        let refusal = match &hasher {
            None => Some(DropReason::NoFib),
            Some(_) if !is_here(&waiting.sender) => Some(DropReason::SourceMac),
            // Only now is it known that its tenant is to pay for it.
            Some(_)
                if waiting.next == 0 && !self.copies.may_copy(waiting.tenant, waiting.names.len(), Instant::now()) =>
            {
                Some(DropReason::GroupRate)
            }
            Some(_) => None,
        };
        if let Some(reason) = refusal {
            self.end_copies(waiting, Some(reason));
            return 1;
        }
        let first = waiting.next;
        while let Some(&name) = waiting.names.get(waiting.next).filter(|_| !self.work.burst.is_full()) {
            // Hosts behind the same port heard the frame itself.
            if name != waiting.sender && !is_here(&name) {
                let copy = self.pool.take_for(waiting.frame.len());
                // Super-frames that wait may have all the packets that there are for them, and then none would go on.
                if copy.is_none() && waiting.frame.offload().kind().is_some() {
                    self.drop_for_all(entry, &waiting.frame, DropReason::NoHeadroom);
                    waiting.next += 1;
                    continue;
                }
                let Some(mut copy) = copy else { break };
                self.counters.originated.add(1);
                match copy.copy_of(&waiting.frame) {
                    Ok(()) => {
                        copy.frame_mut()[..6].copy_from_slice(&name);
                        self.work.burst.push(copy);
                    }
                    Err(_) => {
                        self.drop_for_all(entry, &waiting.frame, DropReason::NoHeadroom);
                        self.pool.put(copy);
                    }
                }
            }
            waiting.next += 1;
        }
        let (n, goes_on) = (self.work.burst.len(), waiting.next > first);
        self.counters.copies.add(n as u64);
        match waiting.next < waiting.names.len() {
            true => self.copies.waiting.push_back(waiting),
            false => self.end_copies(waiting, None),
        }
        if n > 0 {
            (self.work.entry, self.work.from_trunk, self.work.epoch) = (entry, false, epoch);
            // A tap shows them where they leave.
            (self.work.is_copied, self.work.has_waited, self.work.seen) = (true, false, Seen::default());
            if let Some(acl) = &self.ports[entry].acl
                && let Some((refused, reasons)) = acl.judge(&self.work.burst)
                && refused != 0
            {
                self.refuse(refused, &reasons);
            }
            if !self.work.burst.is_empty() {
                self.work.plane = Some(plane);
                self.forward_checked();
                self.track(false);
            }
        }
        n.max(goes_on.into())
    }

    /// A frame has all its copies, or gets no more of them, for a reason.
    fn end_copies(&mut self, Waiting { entry, frame, next, .. }: Waiting, reason: Option<DropReason>) {
        match reason.filter(|_| next == 0) {
            None => self.counters.groups.add(1),
            Some(reason) => self.drop_for_all(entry, &frame, reason),
        }
        self.pool.put(frame);
    }

    /// Drops a frame to everybody, or one of its copies, which a tap shows as the frame came.
    fn drop_for_all(&mut self, entry: usize, frame: &Packet, reason: DropReason) {
        self.counters.drop_frame(reason);
        if let Some(tap) = &mut self.tap {
            let at = At::of_entry(entry, &self.ports[entry]);
            tap.tell(&Seen::default(), 0, at, frame.frame(), Verdict::Dropped(reason));
        }
    }

    /// Makes all copies that wait.
    pub(super) fn finish_copies(&mut self) {
        while !self.copies.is_empty() && self.make_copies() > 0 {}
        while let Some(waiting) = self.copies.waiting.pop_front() {
            self.end_copies(waiting, Some(DropReason::GroupRate));
        }
    }
}

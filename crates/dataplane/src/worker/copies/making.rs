//! Makes the copies of broadcasts and multicasts.

use super::Waiting;
use crate::counters::DropReason;
use crate::mac::Mac;
use crate::table::Table;
use crate::tap::{Seen, Verdict};
use crate::worker::Worker;
use crate::worker::context::{Context, Flight};
use crate::worker::rules::Rules;
use fib::action::PortId;
use netio::Packet;
use std::time::Instant;

impl<T: Table, R: Rules> Worker<T, R> {
    /// Makes copies of a frame that waits, at most a burst, and forwards them. Frames take turns, so that those of a large tenant
    /// hold up no others. Returns how much it did; 0 if nothing can be done now.
    #[cold]
    pub(in crate::worker) fn make_copies(&mut self) -> usize {
        let (epoch, plane) = self.load_plane();
        let context = &mut self.context;
        let Some(mut waiting) = context.copies.waiting.pop_front() else { return 0 };
        let (entry, here) = (waiting.entry, context.ports[waiting.entry].id);
        let hasher = context.table.as_ref().and_then(Table::hasher).filter(|_| plane.field.is_ok()).cloned();
        let is_here = |name: &Mac| {
            let digest = hasher.as_ref().map(|hasher| hasher.digest(name));
            digest.and_then(|digest| plane.local.get_bytes(name, digest)).map(PortId) == Some(here)
        };
        // The source may not have been checked, or moved since.
        let refusal = match &hasher {
            None => Some(DropReason::NoFib),
            Some(_) if !is_here(&waiting.sender) => Some(DropReason::SourceMac),
            // Only now is it known that its tenant pays for it.
            Some(_)
                if waiting.next == 0
                    && !context.copies.may_copy(waiting.tenant, waiting.names.len(), Instant::now()) =>
            {
                Some(DropReason::GroupRate)
            }
            Some(_) => None,
        };
        if let Some(reason) = refusal {
            context.end_copies(waiting, Some(reason));
            return 1;
        }
        let first = waiting.next;
        let mut work = context.take_idle();
        while let Some(&name) = waiting.names.get(waiting.next).filter(|_| !work.burst.is_full()) {
            // Hosts behind the same port received the frame itself.
            if name != waiting.sender && !is_here(&name) {
                let copy = context.pool.take_for(waiting.frame.len());
                // Waiting super-frames may hold all the packets that there are for them, and then none would go on.
                if copy.is_none() && waiting.frame.offload().kind().is_some() {
                    context.drop_for_all(entry, &waiting.frame, DropReason::NoHeadroom);
                    waiting.next += 1;
                    continue;
                }
                let Some(mut copy) = copy else { break };
                context.counters.originated.add(1);
                match copy.copy_of(&waiting.frame) {
                    Ok(()) => {
                        copy.frame_mut()[..6].copy_from_slice(&name);
                        work.burst.push(copy);
                    }
                    Err(_) => {
                        context.drop_for_all(entry, &waiting.frame, DropReason::NoHeadroom);
                        context.pool.put(copy);
                    }
                }
            }
            waiting.next += 1;
        }
        let (n, goes_on) = (work.burst.len(), waiting.next > first);
        context.counters.copies.add(n as u64);
        match waiting.next < waiting.names.len() {
            true => context.copies.waiting.push_back(waiting),
            false => context.end_copies(waiting, None),
        }
        (work.entry, work.from_trunk, work.epoch) = (entry, false, epoch);
        // A tap shows them where they leave.
        (work.is_copied, work.has_waited, work.seen) = (true, false, Seen::default());
        self.pass(Flight { plane, work }, false);
        n.max(goes_on.into())
    }

    /// Makes all copies that wait.
    pub(in crate::worker) fn finish_copies(&mut self) {
        while !self.context.copies.is_empty() && self.make_copies() > 0 {}
        while let Some(waiting) = self.context.copies.waiting.pop_front() {
            self.context.end_copies(waiting, Some(DropReason::GroupRate));
        }
    }
}

impl<T> Context<T> {
    /// Ends a frame that has all its copies, or gets no more of them, for a reason.
    fn end_copies(&mut self, Waiting { entry, frame, next, .. }: Waiting, reason: Option<DropReason>) {
        match reason.filter(|_| next == 0) {
            None => self.counters.groups.add(1),
            Some(reason) => self.drop_for_all(entry, &frame, reason),
        }
        self.pool.put(frame);
    }

    /// Drops a broadcast or multicast, or one of its copies, which a tap shows as the frame came.
    fn drop_for_all(&mut self, entry: usize, frame: &Packet, reason: DropReason) {
        self.counters.drop_frame(reason);
        self.tell(&Seen::default(), 0, entry, frame.frame(), Verdict::Dropped(reason));
    }
}

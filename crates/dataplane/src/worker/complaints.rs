//! How a gateway tells senders of packets that it does not send on: by an [error](crate::gateway::errors) in the place of each.
//!
//! An error goes back the way on which its packet came: through the flow stage, which translates what the error quotes as it translated
//! the packet, then by the route to its destination. If the stage knows no such flow, there is no error.

use super::Worker;
use crate::bits::ones;
use crate::flow::control::lock;
use crate::gateway::{Outcome, Side};
use crate::table::Table;
use crate::tap::{At, Verdict};
use netio::Burst;

impl<T: Table> Worker<T> {
    /// Puts errors into the places of packets that the router did not send on, of those whose bits are set in `which`; they have no
    /// shim. Each has an outcome of its own then. The packets are counted as dropped.
    #[cold]
    pub(super) fn complain(&mut self, which: u32, from: Side) {
        let Some(router) = &mut self.router else { return };
        let entry = self.work.entry;
        for i in ones(which & router.troubled) {
            let Outcome::Drop(reason) = router.outcomes[i] else { continue };
            let Some(mut error) = self.pool.take() else { return };
            let told = router.complain(self.work.burst[i].frame(), i, from, &mut error) && {
                let mut alone = Burst::new();
                alone.push(error);
                let passes = self.stage.as_ref().is_none_or(|stage| {
                    let (mut stage, tracking) = (lock(stage), router.tracking());
                    let now = stage.clock();
                    stage.begin(tracking, &alone, false, self.work.epoch);
                    stage.finish(tracking, &mut alone, self.ports[entry].id, now, &self.shared.neighbours);
                    tracking.refused == 0
                });
                let Some(back) = alone.pop() else { return };
                error = back;
                passes && router.send_own(&mut error, i, &self.shared.neighbours)
            };
            if !told {
                router.outcomes[i] = Outcome::Drop(reason);
                self.pool.put(error);
                continue;
            }
            if let Some(tap) = &mut self.tap {
                let at = At::of_entry(entry, &self.ports[entry]);
                tap.tell(&self.work.seen, i, at, self.work.burst[i].frame(), Verdict::Dropped(reason));
                self.work.seen.forget(i);
            }
            self.counters.drop_frame(reason);
            self.counters.originated.add(1);
            std::mem::swap(&mut self.work.burst[i], &mut error);
            self.pool.put(error);
        }
    }
}

//! How a gateway tells senders about packets that it does not send on: by an [error](crate::gateway::errors) in the place of each.
//!
//! An error goes back the way its packet came: through the flow stage, which translates what the error quotes as it translated
//! the packet, then by the route to its destination. If the stage knows no such flow, there is no error.

use super::Names;
use crate::bits::ones;
use crate::flow::control::lock;
use crate::gateway::{Outcome, Side};
use crate::tap::{At, Verdict};
use crate::worker::context::Context;
use crate::worker::rules::Rules;
use crate::worker::work::Work;
use netio::Burst;

impl<R: Rules> Names<R> {
    /// Puts errors into the places of packets that the router did not send on, of those whose bits are set in `which`; they have no
    /// shim. Each error has a fate of its own then. The packets are counted as dropped.
    #[cold]
    pub(super) fn complain<T>(&self, context: &mut Context<T>, work: &mut Work, which: u32, from: Side) {
        let Context { router: Some(router), pool, ports, shared, counters, tap, .. } = context else { return };
        let entry = work.entry;
        for i in ones(which & router.troubled) {
            let Outcome::Drop(reason) = router.outcomes[i] else { continue };
            let Some(mut error) = pool.take() else { return };
            let told = router.complain(work.burst[i].frame(), i, from, &mut error) && {
                let mut alone = Burst::new();
                alone.push(error);
                let passes = self.flows.as_ref().is_none_or(|stage| {
                    let (mut stage, tracking) = (lock(stage), router.tracking());
                    let now = stage.clock();
                    stage.begin(tracking, &alone, false, work.epoch);
                    stage.finish(tracking, &mut alone, ports[entry].id, now, &shared.neighbours);
                    tracking.refused == 0
                });
                let Some(back) = alone.pop() else { return };
                error = back;
                passes && router.send_own(&mut error, i, &shared.neighbours)
            };
            if !told {
                router.outcomes[i] = Outcome::Drop(reason);
                pool.put(error);
                continue;
            }
            if let Some(tap) = &mut *tap {
                let at = At::of_entry(entry, &ports[entry]);
                tap.tell(&work.seen, i, at, work.burst[i].frame(), Verdict::Dropped(reason));
                work.seen.forget(i);
            }
            counters.drop_frame(reason);
            counters.originated.add(1);
            std::mem::swap(&mut work.burst[i], &mut error);
            pool.put(error);
        }
    }
}

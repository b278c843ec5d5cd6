//! A worker's handling of connections: see [`crate::flow`].

use super::context::{Context, Flight};
use super::pipeline::Stage;
use super::work::Work;
use crate::flow::control::{SharedStage, lock};
use netio::offload;

/// The stage that drops packets of no connection, and rewrites those of translated ones.
pub(super) struct Flows(pub(super) SharedStage);

impl<T> Stage<Context<T>, Flight<T>> for Flows {
    /// Asks for the lines of the flows. Those of the burst before have come: its entries are asked for.
    fn begin(&mut self, _: &mut Context<T>, burst: &mut Flight<T>, before: Option<&mut Flight<T>>) -> bool {
        let mut stage = lock(&self.0);
        if let Some(before) = before {
            stage.advance(&mut before.work.tracking);
        }
        let Work { tracking, burst, from_trunk, epoch, is_copied, .. } = &mut *burst.work;
        // The original frame passed as a broadcast or multicast.
        match is_copied {
            true => tracking.pass(*epoch),
            false => stage.begin(tracking, burst, *from_trunk, *epoch),
        }
        true
    }

    fn finish(&mut self, context: &mut Context<T>, burst: &mut Flight<T>) {
        let Work { tracking, burst, entry, .. } = &mut *burst.work;
        let mut stage = lock(&self.0);
        let now = stage.clock();
        stage.finish(tracking, burst, context.ports[*entry].id, now, &context.shared.neighbours);
        drop(stage);
        // It corrects checksums. Those that are left to hardware contain only the sum of the addresses.
        burst.iter_mut().filter(|packet| !packet.offload().is_none()).for_each(offload::renew);
    }
}

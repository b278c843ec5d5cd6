//! Which switches a traced change concerns.

use super::Writer;
use crate::shell::session::Session;
use crate::shell::telemetry::{Awaited, Trace, Traced};
use fib::network::Effects;
use fib::topology::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Writer {
    /// The switches that will acknowledge each of these changes: those that are sent something of it, and those for which nothing
    /// is made now and that are sent it later, with what else they lack.
    pub(super) fn awaited(&self, traced: Vec<Traced>, effects: &[Effects]) -> Vec<(Box<Trace>, Vec<Awaited>)> {
        if traced.is_empty() {
            return Vec::new();
        }
        let last = self.state.network.change();
        let later = self.parked.values().map(|parked| &parked.session);
        let later = later.chain(self.unanswered.iter().map(|(session, _)| session));
        let later: Vec<(NodeId, u64)> = later.map(|session| (session.node(), last)).collect();
        let of = |Traced { trace, effects: range }: Traced| {
            let mut awaited = BTreeMap::<NodeId, u64>::new();
            let messages = effects.get(range).into_iter().flatten().flat_map(|effects| &effects.phases).flatten();
            let messages = messages.map(|(node, message)| (*node, message.change));
            for (node, change) in messages.chain(later.iter().copied()) {
                let known = awaited.entry(node).or_default();
                *known = change.max(*known);
            }
            (trace, awaited.into_iter().filter_map(|(node, change)| self.await_one(node, change)).collect())
        };
        traced.into_iter().map(of).collect()
    }

    fn await_one(&self, node: NodeId, change: u64) -> Option<Awaited> {
        let session: Arc<Session> = self.shared.session(node)?;
        let switch = self.state.network.topology().node(node).ok()?.name.clone();
        Some(Awaited { switch, session, change })
    }
}

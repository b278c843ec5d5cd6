//! Switches that other controllers of the same store serve, by the switches' own reports.
//!
//! A switch has one controller. Every two seconds it tells the others which one serves it, what it counted, and its standing with the
//! one that serves it. So each controller can answer for all switches, relying on the certificates of the switches alone: controllers
//! do not ask each other. A report holds for some seconds. It decides only what is shown.

use crate::core::counters::Said;
use api::v1::{Counters, MemoryUse, SeeSwitchRequest, Standing, Switch};
use fib::name::clip;
use fib::topology::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the report of a switch holds: three times the interval between reports.
const HOLDS_FOR: Duration = Duration::from_secs(7);

/// Characters that are kept of a reason, and of an address.
const MAX_TEXT: usize = 300;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(BTreeMap<NodeId, There>);

/// A switch that another controller serves.
#[derive(Clone, Debug)]
pub(crate) struct There {
    at: Instant,
    /// The controller that serves it, as the switch calls it.
    pub(crate) served_by: String,
    standing: Standing,
    said: Arc<Said>,
}

impl Elsewhere {
    /// Replaces what a switch reported. Returns whether another controller serves it than before.
    pub(crate) fn hear(&mut self, node: NodeId, request: SeeSwitchRequest, now: Instant) -> bool {
        let SeeSwitchRequest { served_by, standing, counters, memory, .. } = request;
        let there = &mut self.0;
        there.retain(|_, there| now.saturating_duration_since(there.at) < HOLDS_FOR);
        if served_by.is_empty() {
            there.remove(&node);
            return false;
        }
        let mut standing = standing.unwrap_or_default();
        standing.cannot_follow = standing.cannot_follow.chars().take(MAX_TEXT).collect();
        let served_by: String = clip(&served_by).chars().take(MAX_TEXT).collect();
        let before = there.get(&node);
        let is_new = before.is_none_or(|before| before.served_by != served_by);
        let mut said = before.map(|before| Arc::clone(&before.said)).unwrap_or_default();
        if let Some(counters) = counters {
            let _ = Arc::make_mut(&mut said).set_counters(counters, now);
        }
        if let Some(memory) = memory {
            Arc::make_mut(&mut said).set_memory(memory);
        }
        there.insert(node, There { at: now, served_by, standing, said });
        is_new
    }

    /// Notes that a switch is served here from now on.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// The report of a switch, if it still holds.
    pub(crate) fn get(&self, node: NodeId, now: Instant) -> Option<There> {
        self.0.get(&node).filter(|there| now.saturating_duration_since(there.at) < HOLDS_FOR).cloned()
    }
}

impl There {
    /// Whether it serves everything that is committed, which is known up to a commit.
    pub(crate) fn is_in_step(&self, position: Option<u64>) -> bool {
        let Standing { in_step, position: at, .. } = &self.standing;
        *in_step
            && self.cannot_follow().is_none()
            && at.is_some_and(|at| position.is_some_and(|position| at >= position))
    }

    /// Why it cannot hold what it should.
    pub(crate) fn cannot_follow(&self) -> Option<&str> {
        Some(&*self.standing.cannot_follow).filter(|why| !why.is_empty())
    }

    /// Adds what is known to a switch.
    pub(crate) fn fill(&self, switch: &mut Switch, position: Option<u64>, now: Instant) {
        switch.connected = true;
        switch.served_by.clone_from(&self.served_by);
        switch.in_step = self.is_in_step(position);
        self.standing.cannot_follow.clone_into(&mut switch.cannot_follow);
        switch.sent_messages = self.standing.sent_messages;
        switch.acknowledged_messages = self.standing.acknowledged_messages;
        switch.sent_bytes = self.standing.sent_bytes;
        switch.memory = self.memory();
        switch.rates = self.said.rates(now);
    }

    fn memory(&self) -> Option<MemoryUse> {
        self.said.memory()
    }

    pub(crate) fn counters(&self, now: Instant) -> Option<Counters> {
        self.said.counters(now)
    }

    pub(crate) fn load(&self, port: u16) -> Option<(f64, f64)> {
        self.said.load(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(served_by: &str, in_step: bool, position: Option<u64>) -> SeeSwitchRequest {
        let standing = Standing { in_step, position, sent_messages: 7, ..Standing::default() };
        SeeSwitchRequest { served_by: served_by.to_owned(), standing: Some(standing), ..SeeSwitchRequest::default() }
    }

    #[test]
    fn what_a_switch_says_holds_for_some_seconds_and_until_it_says_otherwise() {
        let (mut elsewhere, start, node) = (Elsewhere::default(), Instant::now(), NodeId(3));
        assert!(elsewhere.hear(node, request("a", true, Some(5)), start));
        assert!(!elsewhere.hear(node, request("a", true, Some(6)), start), "it is the same controller");
        assert!(elsewhere.hear(node, request("b", true, Some(6)), start));
        assert_eq!(elsewhere.get(node, start).unwrap().served_by, "b");
        assert!(elsewhere.get(NodeId(4), start).is_none());
        assert!(elsewhere.get(node, start + HOLDS_FOR).is_none());
        elsewhere.hear(node, request("", false, None), start);
        assert!(elsewhere.get(node, start).is_none(), "nobody serves it");
        elsewhere.hear(node, request("a", true, Some(5)), start);
        elsewhere.forget(node);
        assert!(elsewhere.get(node, start).is_none());
    }

    #[test]
    fn it_is_in_step_only_as_of_the_last_commit_that_is_known_here() {
        let (mut elsewhere, now) = (Elsewhere::default(), Instant::now());
        let mut in_step = |said: bool, at, position| {
            elsewhere.hear(NodeId(1), request("a", said, at), now);
            let mut switch = Switch::default();
            let there = elsewhere.get(NodeId(1), now).unwrap();
            there.fill(&mut switch, position, now);
            assert!(switch.connected && switch.sent_messages == 7 && switch.served_by == "a");
            switch.in_step
        };
        assert!(in_step(true, Some(5), Some(5)) && in_step(true, Some(6), Some(5)));
        assert!(!in_step(true, Some(4), Some(5)), "something was committed since");
        assert!(!in_step(false, Some(5), Some(5)) && !in_step(true, None, Some(5)) && !in_step(true, Some(5), None));
        let mut full = request("a", true, Some(5));
        full.standing.as_mut().unwrap().cannot_follow = "full".to_owned();
        elsewhere.hear(NodeId(1), full, now);
        assert!(!elsewhere.get(NodeId(1), now).unwrap().is_in_step(Some(5)));
    }
}

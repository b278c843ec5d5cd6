//! Which switches are connected, and how, and which are not: how long each has been out of step, and how many versions it lacks.
//!
//! A switch that leaves takes its session with it. What must go on counting meanwhile is kept here, by switch: some tens of bytes
//! each. It begins with the controller, which cannot know what was before.

use fib::topology::{NodeId, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// All switches that are known.
#[derive(Debug, Default)]
pub(crate) struct Presence(BTreeMap<NodeId, Known>);

#[derive(Debug)]
struct Known {
    name: String,
    left: Left,
}

/// The state of a switch when it left, or became known.
#[derive(Clone, Copy, Debug)]
struct Left {
    in_step_at: Instant,
    /// Messages that it had not acknowledged.
    unacknowledged: u64,
    /// Transactions that had been committed by then.
    transactions: u64,
}

/// A connected switch and its state.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) sent_messages: u64,
    pub(crate) acked_messages: u64,
    pub(crate) sent_bytes: u64,
    /// Whether the switch serves everything that was committed when the status was asked for.
    pub(crate) in_step: bool,
    /// Why it cannot hold what it should; none if it can.
    pub(crate) cannot_follow: Option<String>,
    /// Time since it was last seen in step.
    pub(crate) behind: Duration,
    /// Destinations that share a value with others there.
    pub(crate) sharing: u64,
}

/// A switch that is not connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Absent {
    pub(crate) name: String,
    /// How long it has been out of step.
    pub(crate) behind: Duration,
    /// Messages that it had not acknowledged, and transactions since.
    pub(crate) lacks: u64,
}

impl Presence {
    /// Notes which switches there are. Costs a comparison of each name while they are the same.
    pub(crate) fn set_known(&mut self, topology: &Topology, transactions: u64, now: Instant) {
        let known = &mut self.0;
        let are_same = known.len() == topology.nodes().count()
            && known.iter().zip(topology.nodes()).all(|((a, known), (b, node))| *a == b && known.name == node.name);
        if are_same {
            return;
        }
        let mut before = std::mem::take(known);
        *known = topology
            .nodes()
            .map(|(id, node)| {
                let kept = before.remove(&id).filter(|known| known.name == node.name);
                let left = Left { in_step_at: now, unacknowledged: 0, transactions };
                (id, kept.unwrap_or_else(|| Known { name: node.name.clone(), left }))
            })
            .collect();
    }

    /// Notes that a switch leaves, and its state at the end.
    pub(crate) fn leave(&mut self, switch: &Connected, transactions: u64, now: Instant) {
        if let Some(known) = self.0.get_mut(&switch.node) {
            let in_step_at = now.checked_sub(switch.behind).unwrap_or(now);
            let unacknowledged = switch.sent_messages.saturating_sub(switch.acked_messages);
            known.left = Left { in_step_at, unacknowledged, transactions };
        }
    }

    /// Since when a switch that comes back has been out of step; `None` if it was not here before.
    pub(crate) fn in_step_at(&self, node: NodeId) -> Option<Instant> {
        self.0.get(&node).map(|known| known.left.in_step_at)
    }

    /// The switches that are not among `connected`, by name.
    pub(crate) fn absent(&self, connected: &[Connected], transactions: u64, now: Instant) -> Vec<Absent> {
        let here: BTreeSet<NodeId> = connected.iter().map(|switch| switch.node).collect();
        let known = &self.0;
        let away = known.iter().filter(|(id, _)| !here.contains(id));
        let absent = away.map(|(_, Known { name, left })| Absent {
            name: name.clone(),
            behind: now.saturating_duration_since(left.in_step_at),
            lacks: left.unacknowledged + transactions.saturating_sub(left.transactions),
        });
        absent.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::topology::Node;

    fn topology(names: &[&str]) -> Topology {
        let mut topology = Topology::default();
        for (id, name) in (1..).zip(names) {
            topology.add_node(NodeId(id), Node { name: (*name).to_owned(), transit: true }).unwrap();
        }
        topology
    }

    #[test]
    fn a_switch_that_is_away_falls_behind_and_one_that_comes_back_goes_on_from_there() {
        let (mut presence, start) = (Presence::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        presence.set_known(&topology(&["s1"]), 10, at(0));
        let s1 = NodeId(1);
        let of =
            |name: &str, seconds, lacks| Absent { name: name.to_owned(), behind: Duration::from_secs(seconds), lacks };
        assert_eq!(presence.absent(&[], 13, at(5)), [of("s1", 5, 3)]);

        // In step until 20, and gone at 24 with two messages on their way.
        let switch = Connected {
            node: s1,
            name: "s1".to_owned(),
            sent_messages: 9,
            acked_messages: 7,
            sent_bytes: 0,
            in_step: false,
            cannot_follow: None,
            behind: Duration::from_secs(4),
            sharing: 0,
        };
        assert_eq!(presence.absent(std::slice::from_ref(&switch), 20, at(22)), []);
        presence.leave(&switch, 20, at(24));
        assert_eq!(presence.absent(&[], 20, at(24)), [of("s1", 4, 2)]);
        assert_eq!(presence.absent(&[], 25, at(60)), [of("s1", 40, 7)]);
        assert_eq!(presence.in_step_at(s1), Some(at(20)));

        // Others come and go.
        presence.set_known(&topology(&["s1", "s2"]), 25, at(61));
        assert_eq!(presence.absent(&[], 25, at(61)), [of("s1", 41, 7), of("s2", 0, 0)]);
        presence.set_known(&topology(&["s3"]), 26, at(62));
        assert_eq!(presence.absent(&[], 27, at(63)), [of("s3", 1, 1)], "the number of s1, and another name");
    }
}

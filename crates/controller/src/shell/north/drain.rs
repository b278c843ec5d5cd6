//! Drains: takes a link or a switch out of the paths, and back, without losing a frame.
//!
//! [`fib::topology::Goal`] chooses the next step such that no frames go in circles. Here each step is a change like others,
//! and the next one waits until every switch has confirmed its tables.
//!
//! The added length of links marks what is drained, and is in the store: a drained link is down and longer by [`DRAINED`],
//! and of a drained switch each link that is not down is longer by something ([`crate::core::change::is_drained`]). To that end those over which no path of
//! others led are made longer too, at the end, each by one step: that moves no path of others.

use super::North;
use crate::core::change::{Change, DRAINED, Place, Refusal, State};
use crate::core::session::Line;
use crate::wire::status::status_of;
use api::gate::Peer;
use api::seam::now;
use api::v1;
use api::words::counted;
use fib::network::NetworkError;
use fib::topology::{End, Goal, MOST_STEPS, Needed, NodeId, Topology};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tonic::Status;

/// How long a switch may take to confirm its tables.
const CONFIRM_WITHIN: Duration = Duration::from_secs(60);

/// Interval between checks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What is to be drained, in the operator's terms.
#[derive(Clone)]
pub(super) enum What {
    Link(Place),
    Switch(String),
}

impl What {
    fn goal(&self, state: &State) -> Result<Goal, Refusal> {
        Ok(match self {
            What::Link(place) => {
                let end = End { node: state.node(&place.switch)?, port: place.port };
                state.network.topology().link(end).map_err(NetworkError::from)?;
                Goal::Link(end)
            }
            What::Switch(name) => Goal::Switch(state.node(name)?),
        })
    }
}

/// The network between two steps.
struct Now {
    topology: Topology,
    goal: Goal,
    /// Host ports of the switch.
    hosts: u64,
    /// Whether a link is drained, rather than a switch.
    is_drained: bool,
}

impl Now {
    /// A link of the switch to be drained that is not longer yet, and the length to add.
    fn unmarked(&self) -> Option<(End, u32)> {
        let Goal::Switch(node) = self.goal else { return None };
        let mut of_switch = self.topology.links_of(node).map(|(_, _, link)| link);
        let unmarked = of_switch.find(|link| link.up && link.raised == 0)?;
        // As long as the shortest one, or less: see `fib::topology::drain`.
        let step = self.topology.links().filter(|link| link.carries()).map(|link| link.cost).min().unwrap_or(1);
        Some((unmarked.a, step))
    }
}

impl North {
    /// Takes something out of the paths, or back into them. The audit trail has the request once, however many steps it takes.
    pub(super) async fn drain(&self, peer: &Peer, what: What, undo: bool) -> Result<v1::Drained, Status> {
        let (name, of) = match &what {
            What::Link(end) => {
                (if undo { "undrain_link" } else { "drain_link" }, format!("{}:{}", end.switch, end.port))
            }
            What::Switch(name) => (if undo { "undrain_switch" } else { "drain_switch" }, name.clone()),
        };
        let made = AtomicU64::new(0);
        let drained = self.take_steps(&made, what, undo).await;
        let made = made.into_inner();
        let end = drained.as_ref().map(|_| (made, u64::from(made == 0))).map_err(Status::message);
        let detail = match (&drained, made) {
            (Err(_), made) if made > 0 => format!("{of}, after {}", counted(made, "change", "changes")),
            _ => of,
        };
        self.audit.change(peer, name, &detail, end);
        drained
    }

    async fn take_steps(&self, made: &AtomicU64, what: What, undo: bool) -> Result<v1::Drained, Status> {
        if self.shared.lead.leader().is_some() {
            return Err(status_of(&self.shared.lead.not_leader()));
        }
        // Each step is for one lengthened link, and no other.
        let Ok(_alone) = self.alone.draining.try_lock() else {
            return Err(Status::failed_precondition("another drain is under way; ask again when it is done"));
        };
        let mut steps = 0;
        let mut now = self.look(&what).await?;
        self.until_confirmed(&now.topology).await?;
        if let (Goal::Link(end), true) = (now.goal, undo)
            && now.topology.link(end).is_ok_and(|link| !link.up)
        {
            let topology = now.topology.clone();
            let raised = block(move || topology.raise_to_begin(end)).await?;
            self.set(made, &now, end, Some(raised), Some(true)).await?;
            now = self.look(&what).await?;
        }
        loop {
            let (topology, goal) = (now.topology.clone(), now.goal);
            let next =
                block(move || if undo { Ok(topology.next_lower(goal)) } else { topology.next_raise(goal) }).await?;
            let Some((end, raised)) = next.map_err(|needed| self.needed(&now, needed))? else { break };
            steps += 1;
            if steps > MOST_STEPS {
                let why = format!(
                    "{MOST_STEPS} steps have not been enough: the costs of links differ too much; use `fibula link set`"
                );
                return Err(Status::resource_exhausted(why));
            }
            self.set(made, &now, end, Some(raised), None).await?;
            let before = now.topology;
            now = self.look(&what).await?;
            if let (Goal::Switch(_), true) = (now.goal, undo) {
                // Only the mark of the drain is taken back, and no path changes.
                let after = now.topology.clone();
                steps -= u32::from(block(move || has_same_ways(&before, &after)).await?);
            }
        }
        while let (Some((end, raised)), false) = (now.unmarked(), undo) {
            self.set(made, &now, end, Some(raised), None).await?;
            now = self.look(&what).await?;
        }
        if let (Goal::Link(end), false, false) = (now.goal, undo, now.is_drained) {
            self.set(made, &now, end, Some(DRAINED), Some(false)).await?;
        }
        Ok(v1::Drained { steps, hosts: now.hosts })
    }

    async fn look(&self, what: &What) -> Result<Now, Status> {
        let what = what.clone();
        let read = self.read(move |state| {
            let goal = what.goal(state)?;
            let is_there = |end: &End| goal == Goal::Switch(end.node);
            let hosts = state.network.host_ports().filter(is_there).count() as u64;
            let mut topology = state.network.topology().clone();
            let drained: Vec<End> = topology.links().filter(|link| link.raised == DRAINED).map(|link| link.a).collect();
            let is_drained =
                matches!(goal, Goal::Link(end) if topology.link(end).is_ok_and(|link| drained.contains(&link.a)));
            // They are down, so no step is for them.
            for end in drained {
                topology.set_raised(end, 0).map_err(NetworkError::from)?;
            }
            Ok(Now { topology, goal, hosts, is_drained })
        });
        read.await?.map_err(|refusal: Refusal| self.refused(&refusal))
    }

    /// Changes a link, and waits until every switch has its new tables.
    async fn set(
        &self,
        made: &AtomicU64,
        now: &Now,
        end: End,
        raised: Option<u32>,
        up: Option<bool>,
    ) -> Result<(), Status> {
        let switch = name_of(&now.topology, end.node);
        let change = Change::SetLink { end: Place { switch, port: end.port }, cost: None, weight: None, raised, up };
        let changed = self.make("drain", change).await?;
        made.fetch_add(changed.changed, Relaxed);
        self.until_confirmed(&now.topology).await
    }

    /// Waits until every switch serves all that was committed before.
    async fn until_confirmed(&self, topology: &Topology) -> Result<(), Status> {
        let began = now();
        let change = self.read(|state| state.network.change()).await?;
        let mut behind: BTreeSet<NodeId> = topology.nodes().map(|(node, _)| node).collect();
        loop {
            // A switch that was in step at any moment since then has it, whatever was changed later.
            for switch in self.shared.connected() {
                let session = self.shared.session(switch.node);
                let has_it = || {
                    session.is_some_and(|session| {
                        session.with(|session| !session.is_ended() && session.acked_change() >= change)
                    })
                };
                if switch.in_step || has_it() {
                    behind.remove(&switch.node);
                }
            }
            // There is no wait for a switch that is not connected, and one that was removed has no frames any more.
            let away: Vec<NodeId> =
                behind.iter().copied().filter(|node| self.shared.session(*node).is_none()).collect();
            if !away.is_empty() {
                let is_removed = move |state: &State, node: &NodeId| state.network.topology().node(*node).is_err();
                let removed = self.read(move |state| away.into_iter().filter(|node| is_removed(state, node)).collect());
                let removed: Vec<NodeId> = removed.await?;
                removed.iter().for_each(|node| _ = behind.remove(node));
            }
            let Some(first) = behind.first() else { return Ok(()) };
            let is_away = behind.iter().find(|node| self.shared.session(**node).is_none());
            if is_away.is_some() || now() - began > CONFIRM_WITHIN {
                let first = is_away.unwrap_or(first);
                let (name, others) = (name_of(topology, *first), behind.len() - 1);
                let others = if others == 0 { String::new() } else { format!(" and {others} others") };
                return Err(Status::failed_precondition(format!(
                    "switch `{name}`{others} may still send frames by tables that are older: it is not connected to this controller, or \
                     has not confirmed the last change. Nothing more was changed; ask again when `fibula switch list` says that it is in step"
                )));
            }
            #[expect(clippy::disallowed_methods, reason = "switches confirm when they do")]
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn needed(&self, now: &Now, Needed { from, to }: Needed) -> Status {
        let [from, to] = [from, to].map(|node| name_of(&now.topology, node));
        let what = match now.goal {
            Goal::Link(_) => "that link",
            Goal::Switch(_) => "that switch",
        };
        Status::failed_precondition(format!(
            "`{from}` reaches `{to}` over {what} alone, so it cannot be drained: add another path first"
        ))
    }
}

async fn block<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|_| status_of(&Refusal::Stopping))
}

/// Whether each switch sends to each other one as before.
fn has_same_ways(before: &Topology, after: &Topology) -> bool {
    let [one, other] = [before, after].map(Topology::routes);
    let nodes: Vec<NodeId> = after.nodes().map(|(node, _)| node).collect();
    let is_same = |from: NodeId| nodes.iter().all(|to| one.hop(from, *to) == other.hop(from, *to));
    nodes.iter().all(|from| is_same(*from))
}

fn name_of(topology: &Topology, node: NodeId) -> String {
    topology.node(node).map_or_else(|_| node.to_string(), |node| node.name.clone())
}

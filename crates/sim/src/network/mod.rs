//! Networks of forwarders: each node of a topology is a switch, fed by one controller over a lossy channel.
//!
//! The controller is [`fib::network`]; a switch is [`fib::replica`] with the query structure of the design. Messages
//! travel as the bytes that daemons exchange; packets are walked hop by hop through the replicas' lookups. Only the
//! wires are simulated: how long a message takes, and which are late, duplicated or lost.
//!
//! ```text
//!            ┌ late, twice, lost ┐
//! Network ───┤ ...               ├──► Replica ──► lookup ──► action ──► next node, host, drop
//!     ▲      └ in order          ┘       │
//!     └────────────── report ────────────┘ after a gap
//! ```
//! 1. Names are attached to the gateways, the nodes with the fewest links; their exact tables hold every valid name.
//! 2. Every switch attaches, empty, and gets what it lacks. Packets are sent ([`Report::before`]).
//! 3. Names come, move and go, links fail and recover; meanwhile packets are sent ([`Report::during`]). From here on
//!    every other packet is for one of the last 64 names that changed.
//! 4. Messages run out ([`Report::after`]). A loss that no later message reveals stays.
//! 5. Every switch reports once, as after a lost connection, and is sent what it lacks ([`Report::healed`]).
//!
//! **Without changes** the switches exist one at a time: each attaches, answers for every packet and is dropped. The
//! packets are walked afterwards through these answers. So one replica at a time is in memory, however many nodes.
//!
//! Cost: with changes all replicas are in memory at once: their FIBs, and one list of the valid names for all
//! gateways; egress mode needs one view, port mode one per node. A change costs one message to every node.
//! A packet takes no time: it sees all switches as they are at one tick.
//!
//! Differs from the daemons: the controller does not gather changes while it waits; its wait for the switches of a phase
//! ends when the last of them has the message, not when the acknowledgement is back.
//!
//! Everything follows from the seed. Limits: 65,535 nodes, 32,767 links per node.

mod exact;
mod generate;
mod graph;
mod live;
mod report;
mod still;
mod walk;
mod world;

pub use graph::{Edge, Graph, GraphError};
pub use report::{Aliens, FibBytes, Report, Tally, Traffic};

use fib::designs::{CONCISE, Design};
use fib::messages::ValueMode;
use fib::network::NetworkError;
use fib::replica::ReplicaError;
use fib::topology::NodeId;

/// What is simulated on a topology.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the values of FIBs mean.
    pub mode: ValueMode,
    /// The design of gateways.
    pub gateway: &'static Design,
    /// The design of the other switches.
    pub core: &'static Design,
    /// Initial number of names.
    pub names: usize,
    /// Concentration of names on few gateways: the share of the r-th is proportional to 1/r^zipf. 0: uniform.
    pub zipf: f64,
    /// Number of gateways; 0: every node is one.
    pub gateways: usize,
    /// Ports with hosts at every gateway.
    pub host_ports: u16,
    /// Packets for valid names before and after the changes; as many for aliens through gateways and as many past them.
    pub packets: usize,
    /// Hops after which a packet counts as looped.
    pub hop_limit: u32,
    /// Changes of names.
    pub name_changes: usize,
    /// Changes of links among them: one fails, then recovers, and so on. An even number leaves all up.
    pub link_changes: usize,
    /// Ticks between bursts of packets during the changes.
    pub probe_ticks: u64,
    /// Packets for valid names each time, and as many for aliens each way.
    pub probe_packets: usize,
    /// Behaviour of the wires.
    pub wires: Wires,
    /// Seed of all randomness.
    pub seed: u64,
}

impl Scenario {
    /// This many names, in Concise with egress values everywhere, uniform over all nodes, and no changes.
    pub fn new(names: usize, seed: u64) -> Scenario {
        Scenario {
            mode: ValueMode::Egress,
            gateway: &CONCISE,
            core: &CONCISE,
            names,
            zipf: 0.0,
            gateways: 0,
            host_ports: 4,
            packets: 10_000,
            hop_limit: 64,
            name_changes: 0,
            link_changes: 0,
            probe_ticks: 3,
            probe_packets: 100,
            wires: Wires::default(),
            seed,
        }
    }
}

/// The behaviour of the wires between the controller and a switch.
///
/// Shares are of messages, drawn for each switch from its own sequence. Messages to a switch stay in order, except late
/// ones.
#[derive(Clone, PartialEq, Debug)]
pub struct Wires {
    /// A switch is 1 to this many ticks away, always the same.
    pub latency_ticks: u64,
    /// Share of messages that are delayed, and overtaken by later ones.
    pub late: f64,
    /// Share that is delivered twice.
    pub duplicated: f64,
    /// Share that is lost.
    pub lost: f64,
    /// A late message, or a second copy, arrives 1 to this many ticks later.
    pub late_ticks: u64,
    /// The controller waits this long for the switches of a phase.
    pub timeout_ticks: u64,
    /// Further lost messages: a node's index, and the index of one of its messages after the first image, from 0.
    pub drops: Vec<(usize, u64)>,
}

impl Default for Wires {
    /// At most 4 ticks away, without faults.
    fn default() -> Wires {
        Wires {
            latency_ticks: 4,
            late: 0.0,
            duplicated: 0.0,
            lost: 0.0,
            late_ticks: 10,
            timeout_ticks: 12,
            drops: Vec::new(),
        }
    }
}

/// The progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stage {
    /// Switches and links exist; names do not yet.
    Wired,
    /// The controller has all names.
    Named,
    /// Switches receive their tables.
    Attached {
        /// Switches that have theirs.
        switches: usize,
    },
    /// Names move, and links fail.
    Changed {
        /// Changes so far.
        changes: usize,
    },
    /// All switches reported, and have what they lacked.
    Healed,
}

/// Why there is no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum SimError {
    /// An invalid scenario.
    #[error("{why}: correct the scenario")]
    Scenario { why: &'static str },
    /// The controller refused something.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A switch refused a message for good.
    #[error("switch {node} refuses a message: {source}")]
    Replica { node: NodeId, source: ReplicaError },
}

/// Runs a scenario on a topology; `stage` is called with its progress.
/// # Errors
/// [`SimError`].
pub fn run(graph: &Graph, scenario: &Scenario, stage: &mut dyn FnMut(Stage)) -> Result<Report, SimError> {
    let shares = [scenario.wires.late, scenario.wires.duplicated, scenario.wires.lost];
    let wrong = |why| Err(SimError::Scenario { why });
    if graph.nodes.len() < 2 || graph.nodes.len() > 65_535 {
        return wrong("the topology has less than 2 or more than 65,535 nodes");
    }
    if shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
        return wrong("a share of messages is not between 0 and 1");
    }
    if !(0.0..=10.0).contains(&scenario.zipf) {
        return wrong("the exponent of zipf is not between 0 and 10");
    }
    if scenario.names == 0 || scenario.host_ports == 0 || scenario.probe_ticks == 0 {
        return wrong("one of names, host_ports and probe_ticks is 0");
    }
    let wires = &scenario.wires;
    if [wires.latency_ticks, wires.late_ticks, wires.timeout_ticks].contains(&0) {
        return wrong("one of latency_ticks, late_ticks and timeout_ticks is 0");
    }
    let mut world = world::World::new(graph, scenario, stage)?;
    if scenario.name_changes + scenario.link_changes == 0 {
        still::run(&mut world, scenario, stage)
    } else {
        live::run(&mut world, scenario, stage)
    }
}

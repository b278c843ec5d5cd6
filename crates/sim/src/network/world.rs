//! A network on a topology, its names, and its changes.

use super::{Graph, Report, Scenario, SimError, Stage, Traffic};
use fib::action::PortId;
use fib::messages::{Body, Message, ValueMode};
use fib::name::{Name, NameKind};
use fib::network::{Effects, Network, NetworkError, Settings};
use fib::rib::Attachment;
use fib::topology::{End, NodeId, Wanted};
use lookup::hash::{Rng, SecretKey};

/// First host port of a switch; links have the ports from 1 up to here.
pub(super) const HOSTS: u16 = 0x8000;
/// First number of an alien; names that are or will be valid have lower numbers.
const ALIENS: u64 = 1 << 39;
/// Number of recently changed names that packets are sent for during changes.
const RECENT: usize = 64;

/// A locally administered MAC address per number below 2^40, all different, in no order.
pub(super) fn name(number: u64) -> Name {
    let scattered = number.wrapping_mul(0x9E_3779_B97F) & ((1 << 40) - 1);
    let bytes = (0x02 << 40 | scattered).to_be_bytes();
    Name::from_bytes(NameKind::Mac, &bytes[2..]).expect("six bytes are a MAC address")
}

/// The controller, and what the simulation knows in addition.
pub(super) struct World {
    pub(super) network: Network,
    /// Ids of the nodes, ascending, in the order of the topology.
    pub(super) nodes: Vec<NodeId>,
    /// Gateways among them, by index, in the order of their share of names.
    pub(super) gateways: Vec<usize>,
    /// Running sums of the gateways' weights.
    weights: Vec<f64>,
    host_ports: u16,
    /// Numbers of the names that are valid.
    live: Vec<u64>,
    /// The number of the next new name.
    next: u64,
    /// Recently changed names, with the ports that they hung off before.
    recent: std::collections::VecDeque<(Name, Option<End>)>,
    /// The link that is down.
    down: Option<End>,
    pub(super) rng: Rng,
}

/// A packet for a name, and where it enters the network.
pub(super) struct Packet {
    pub(super) name: Name,
    pub(super) from: usize,
    pub(super) kind: Kind,
    /// The port that the name hung off before its recent change.
    pub(super) former: Option<End>,
}

/// How a packet is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Its name is valid when it is sent.
    Valid,
    /// Its name is not valid, and its gateway checks it.
    Checked,
    /// Its name is not valid, and no gateway checks it.
    Unchecked,
}

impl World {
    pub(super) fn new(graph: &Graph, scenario: &Scenario, stage: &mut dyn FnMut(Stage)) -> Result<World, SimError> {
        let mut rng = Rng::new(scenario.seed);
        let degrees = graph.degrees();
        let n_gateways = match scenario.gateways {
            0 => graph.nodes.len(),
            n if n <= graph.nodes.len() => n,
            _ => return Err(SimError::Scenario { why: "there are more gateways than nodes" }),
        };
        let most_links = degrees.iter().copied().max().unwrap_or(0);
        if most_links >= usize::from(HOSTS) || scenario.host_ports > HOSTS - 1 {
            return Err(SimError::Scenario { why: "a node has more than 32,767 links or host ports" });
        }
        let mut gateways: Vec<usize> = (0..graph.nodes.len()).collect();
        gateways.sort_by_key(|node| degrees[*node]);
        gateways.truncate(n_gateways);
        shuffle(&mut gateways, &mut rng);
        let mut sum = 0.0;
        let share = |rank: usize| (rank as f64).powf(-scenario.zipf);
        let weights = (1..=n_gateways).map(|rank| (sum += share(rank), sum).1).collect();

        let largest = match scenario.mode {
            ValueMode::Egress => graph.nodes.len(),
            ValueMode::Port => most_links + usize::from(scenario.host_ports),
        };
        let key = SecretKey::from_seed(scenario.seed);
        let settings = Settings {
            mode: scenario.mode,
            value_bits: (usize::BITS - largest.leading_zeros()) as u8,
            max_names: scenario.names + scenario.name_changes,
            gateway: scenario.gateway,
            core: scenario.core,
            ..Settings::new(scenario.seed | 1, key)
        };
        let mut network = Network::new(settings, 1)?;
        let names: Vec<&str> = graph.nodes.iter().map(String::as_str).collect();
        let (nodes, _) = network.add_switches(&names)?;
        let mut ports = vec![0; nodes.len()];
        let mut end = |node: usize| {
            ports[node] += 1;
            End { node: nodes[node], port: PortId(ports[node]) }
        };
        let links: Vec<_> = graph
            .edges
            .iter()
            .map(|edge| (end(edge.a), end(edge.b), Wanted { cost: edge.cost, ..Wanted::default() }))
            .collect();
        network.add_links(&links)?;
        let hosts = |node: &usize| {
            let node = nodes[*node];
            (0..scenario.host_ports).map(move |i| End { node, port: PortId(HOSTS + i) })
        };
        let hosts: Vec<End> = gateways.iter().flat_map(hosts).collect();
        network.add_host_ports(&hosts)?;
        stage(Stage::Wired);

        let mut world = World {
            network,
            nodes,
            gateways,
            weights,
            host_ports: scenario.host_ports,
            live: (0..scenario.names as u64).collect(),
            next: scenario.names as u64,
            recent: std::collections::VecDeque::new(),
            down: None,
            rng,
        };
        let names: Vec<_> = (0..world.next).map(|number| (name(number), world.place())).collect();
        world.network.put_names(&names)?;
        stage(Stage::Named);
        Ok(world)
    }

    /// The report's fixed part.
    pub(super) fn report(&self) -> Report {
        Report {
            nodes: self.nodes.len(),
            links: self.network.topology().links().count(),
            gateways: self.gateways.len(),
            names: self.live.len(),
            skeleton_bytes: self.network.skeleton_bytes() as u64,
            ..Report::default()
        }
    }

    /// The index of a node.
    pub(super) fn index(&self, node: NodeId) -> usize {
        self.nodes.binary_search(&node).expect("the network has the nodes that it was given")
    }

    /// A place for a name, by the gateways' weights.
    fn place(&mut self) -> Attachment {
        let total = self.weights.last().copied().unwrap_or(0.0);
        let at = self.rng.below(1 << 53) as f64 / (1u64 << 53) as f64 * total;
        let rank = self.weights.partition_point(|sum| *sum <= at).min(self.gateways.len() - 1);
        let port = HOSTS + self.rng.below(self.host_ports.into()) as u16;
        Attachment::new(self.nodes[self.gateways[rank]], PortId(port))
    }

    /// Adds, moves or removes a name.
    pub(super) fn change_name(&mut self) -> Result<Effects, NetworkError> {
        let at = self.rng.below(self.live.len() as u64) as usize;
        let (kind, place) = (self.rng.below(3), self.place());
        let (changed, effects) = match kind {
            0 => {
                let new = name(self.next);
                let effects = self.network.add_name(&new, place)?;
                self.live.push(self.next);
                self.next += 1;
                ((new, None), effects)
            }
            1 if self.live.len() > 1 => {
                let gone = name(self.live.swap_remove(at));
                let former = self.network.rib().get(&gone).map(|at| at.end());
                ((gone.clone(), former), self.network.remove_name(&gone)?)
            }
            _ => {
                let moved = name(self.live[at]);
                let former = self.network.rib().get(&moved).map(|at| at.end());
                ((moved.clone(), former), self.network.set_name(&moved, place)?)
            }
        };
        self.recent.push_back(changed);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        Ok(effects)
    }

    /// A link fails, or the one that failed recovers.
    pub(super) fn change_link(&mut self) -> Result<Effects, NetworkError> {
        let end = match self.down.take() {
            Some(end) => return self.network.set_link_up(end, true),
            None => {
                let at = self.rng.below(self.network.topology().links().count() as u64) as usize;
                self.network.topology().links().nth(at).expect("there are so many links").a
            }
        };
        self.down = Some(end);
        self.network.set_link_up(end, false)
    }

    /// `n` packets of each kind; with `recent` every other one for a name that changed lately.
    pub(super) fn packets(&mut self, n: usize, recent: bool) -> Vec<Packet> {
        let mut packets = Vec::with_capacity(3 * n);
        for i in 0..3 * n {
            let any_node = self.rng.below(self.nodes.len() as u64) as usize;
            let gateway = self.gateways[self.rng.below(self.gateways.len() as u64) as usize];
            let past_check = i % 3 == 2;
            let from = if past_check { any_node } else { gateway };
            let alien = if past_check { Kind::Unchecked } else { Kind::Checked };
            let changed = match self.recent.len() as u64 {
                0 => None,
                n if recent && i % 2 == 0 => self.recent.get(self.rng.below(n) as usize).cloned(),
                _ => None,
            };
            packets.push(match changed {
                Some((name, former)) if self.network.rib().get(&name).is_some() => {
                    Packet { name, from: gateway, kind: Kind::Valid, former }
                }
                Some((name, former)) => Packet { name, from, kind: alien, former },
                None if i % 3 == 0 => {
                    let number = self.live[self.rng.below(self.live.len() as u64) as usize];
                    Packet { name: name(number), from, kind: Kind::Valid, former: None }
                }
                None => {
                    let number = ALIENS + self.rng.below(ALIENS);
                    Packet { name: name(number), from, kind: alien, former: None }
                }
            });
        }
        packets
    }
}

fn shuffle(list: &mut [usize], rng: &mut Rng) {
    for i in (1..list.len()).rev() {
        list.swap(i, rng.below(i as u64 + 1) as usize);
    }
}

impl Traffic {
    /// Counts a message; returns its bytes.
    pub(super) fn send(&mut self, message: &Message) -> Vec<u8> {
        let bytes = message.encode();
        self.messages += 1;
        let kind = match message.body {
            Body::Actions { .. } => &mut self.action_bytes,
            Body::Valid(_) => &mut self.valid_bytes,
            Body::Local(_) => &mut self.local_bytes,
            _ => &mut self.fib_bytes,
        };
        *kind += bytes.len() as u64;
        bytes
    }
}

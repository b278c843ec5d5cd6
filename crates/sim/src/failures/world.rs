//! The network, the controller, and the order of events.

use super::{Alone, How, Mutant, Outcome, Scenario, Stage, Violation};
use crate::network::Edge;
use api::seam;
use controller::kit::Trunks;
use fib::action::PortId;
use fib::messages::Body;
use fib::name::{Name, NameKind};
use fib::network::{Effects, Network, NetworkError, Settings};
use fib::rib::Attachment;
use fib::topology::{End, NodeId, Wanted};
use lookup::hash::{Rng, SecretKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use switch::kit::Rig;

/// The host port of every switch that has one; trunks have the numbers after it.
pub(super) const HOST: PortId = PortId(1);
/// Between two rounds of hellos, as switches say them if nothing else is configured.
const ROUND: Duration = Duration::from_millis(100);
/// Rounds after which a fault is known at both ends: three hellos missed each way, and the rounds that were begun.
pub(super) const KNOWN_AFTER: u32 = 9;
/// Rounds after which a link that fell once or twice is up again.
const UP_AFTER: u32 = 40;
/// More events than any run needs.
const MOST_EVENTS: u64 = 100_000;
/// Names that move meanwhile, and are not probed.
const N_RESTLESS: u64 = 3;

/// A message on its way to a switch.
struct Letter {
    bytes: Vec<u8>,
    /// Whether it follows from a link.
    is_of_link: bool,
}

/// Messages that are sent together, and whether they follow from a link.
struct Phase {
    messages: Vec<(NodeId, Vec<u8>)>,
    is_of_link: bool,
}

pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario<'a>,
    pub(super) rng: Rng,
    began: Instant,
    now: Instant,
    network: Network,
    trunks: Trunks,
    nodes: Vec<NodeId>,
    pub(super) rigs: Vec<Rig>,
    /// By switch and port: the link, and whether it is the first end (0) or the second.
    pub(super) cables: BTreeMap<(usize, PortId), (usize, usize)>,
    /// The ends of links: switch and port.
    pub(super) ends: Vec<[(usize, PortId); 2]>,
    /// Whether a link carries frames from its first end, and from its second.
    pub(super) carries: Vec<[bool; 2]>,
    /// Switches with hosts.
    pub(super) edge: Vec<usize>,
    /// Ends whose carrier comes or goes.
    carriers: Vec<(usize, PortId, bool)>,
    /// Switches that have something to report.
    reports: BTreeSet<usize>,
    /// Those that say hello at once, because they see something else.
    hasty: BTreeSet<usize>,
    /// In which order switches say hello, and whose turn is next.
    order: Vec<usize>,
    turn: usize,
    /// Those that are not sent yet.
    phases: VecDeque<Phase>,
    letters: Vec<VecDeque<Letter>>,
    /// Action tables that switches had.
    old: Vec<(usize, Vec<u8>)>,
    /// Rounds of hellos since the last change of a cable or of what a switch sees.
    quiet: u32,
    must_be_quiet: u32,
    /// Rounds since the last cut.
    pub(super) rounds: u32,
    pub(super) n_cuts: usize,
    /// Whether a switch has a table that follows from a link.
    pub(super) is_rerouted: bool,
    n_moves: u32,
    /// Pace of each kind of event: in some runs switches are slow, in others the controller.
    paces: [u64; 4],
    pub(super) outcome: Outcome,
}

/// The name at a switch. It never moves.
pub(super) fn name_at(switch: usize) -> Name {
    Name::from_bytes(NameKind::Mac, &[2, 0, 0, 1, 0, switch as u8]).expect("six bytes are a MAC address")
}

fn restless(number: u64) -> Name {
    Name::from_bytes(NameKind::Mac, &[2, 0, 0, 2, 0, number as u8]).expect("six bytes are a MAC address")
}

fn refused(error: &NetworkError) -> Violation {
    Violation::Controller { why: error.to_string() }
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario<'a>) -> Result<World<'a>, Violation> {
        let (graph, mut rng) = (scenario.graph, Rng::new(scenario.seed));
        let n = graph.nodes.len();
        let settings = Settings {
            mode: scenario.mode,
            max_names: 256,
            ..Settings::new(scenario.seed | 1, SecretKey::from_seed(scenario.seed))
        };
        let mut network = Network::new(settings, 1).map_err(|error| refused(&error))?;
        let names: Vec<&str> = graph.nodes.iter().map(String::as_str).collect();
        let (nodes, _) = network.add_switches(&names).map_err(|error| refused(&error))?;
        let mut ports = vec![HOST.0; n];
        let mut port = |node: usize| {
            ports[node] += 1;
            (node, PortId(ports[node]))
        };
        let ends: Vec<_> = graph.edges.iter().map(|edge| [port(edge.a), port(edge.b)]).collect();
        let end = |(node, port): (usize, PortId)| End { node: nodes[node], port };
        // In half of the runs flows are divided unevenly.
        let weight = |i: usize| if scenario.seed & 1 == 0 { 1 } else { 1 + (i % 3) as u8 };
        let wanted = |(i, edge): (usize, &Edge)| Wanted { cost: edge.cost, weight: weight(i), ..Wanted::default() };
        let links: Vec<_> = ends
            .iter()
            .zip(graph.edges.iter().enumerate())
            .map(|([a, b], edge)| (end(*a), end(*b), wanted(edge)))
            .collect();
        network.add_links(&links).map_err(|error| refused(&error))?;
        let edge: Vec<usize> = (0..n).filter(|node| !scenario.core.contains(node)).collect();
        let hosts: Vec<End> = edge.iter().map(|node| end((*node, HOST))).collect();
        network.add_host_ports(&hosts).map_err(|error| refused(&error))?;
        let at = |node: usize| Attachment::new(nodes[node], HOST);
        let stable = edge.iter().map(|node| (name_at(*node), at(*node)));
        let moving = (0..N_RESTLESS).map(|i| (restless(i), at(edge[i as usize % edge.len()])));
        network.put_names(&stable.chain(moving).collect::<Vec<_>>()).map_err(|error| refused(&error))?;

        seam::set_time(Some(Duration::ZERO));
        let now = seam::now();
        let mut rigs = Vec::with_capacity(n);
        for (i, name) in graph.nodes.iter().enumerate() {
            let seed = rng.next_u64();
            let of_node = ends.iter().flatten().filter(|(node, _)| *node == i);
            let trunks: Vec<PortId> = of_node.map(|(_, port)| *port).collect();
            let hosts: &[PortId] = if edge.contains(&i) { &[HOST] } else { &[] };
            let mut rig =
                Rig::new(name, i as u64 + 1, seed, [&trunks, hosts], now).expect("the ports have different numbers");
            for message in network.attach(nodes[i], &rig.replica().report()).map_err(|error| refused(&error))? {
                rig.replica_mut()
                    .apply(message)
                    .map_err(|error| Violation::Refused { switch: i, why: error.to_string() })?;
            }
            rigs.push(rig);
        }
        let cables = (0..).zip(&ends).flat_map(|(link, [a, b])| [(*a, (link, 0)), (*b, (link, 1))]).collect();
        let carries = vec![[true; 2]; ends.len()];
        // The worst orders are those in which one party is much slower than another.
        let paces = [(); 4].map(|()| [1, 4, 16][rng.below(3) as usize]);
        let mut order: Vec<usize> = (0..n).collect();
        (1..n).for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
        Ok(World {
            scenario,
            rng,
            began: now,
            now,
            network,
            trunks: Trunks::default(),
            nodes,
            letters: (0..n).map(|_| VecDeque::new()).collect(),
            rigs,
            cables,
            ends,
            carries,
            edge,
            carriers: Vec::new(),
            reports: BTreeSet::new(),
            hasty: BTreeSet::new(),
            order,
            turn: 0,
            phases: VecDeque::new(),
            old: Vec::new(),
            quiet: 0,
            must_be_quiet: KNOWN_AFTER,
            rounds: 0,
            n_cuts: 0,
            is_rerouted: false,
            n_moves: 0,
            paces,
            outcome: Outcome { runs: 1, ..Outcome::default() },
        })
    }

    pub(super) fn run(mut self) -> Result<Outcome, Violation> {
        let cuts = &self.scenario.cuts;
        let first = cuts.first().filter(|_| self.scenario.from_start);
        if let Some((link, how)) = first {
            self.cut(*link, *how);
        }
        self.settle()?;
        for (i, (link, how)) in cuts.iter().enumerate() {
            if i > 0 || first.is_none() {
                self.cut(*link, *how);
            }
            self.look()?;
            if i + 1 < cuts.len() {
                self.wait_for_next()?;
                *self.outcome.met.entry(self.stage(*link)).or_default() += 1;
            }
        }
        self.settle()?;
        if self.scenario.repaired {
            self.must_be_quiet = UP_AFTER;
            for (link, _) in cuts {
                self.repair(*link);
                for _ in 0..self.rng.below(40) {
                    self.step()?;
                }
            }
            self.settle()?;
        }
        Ok(self.outcome)
    }

    /// Cuts all links, and lets hellos and carriers alone tell of it.
    pub(super) fn run_alone(mut self) -> Result<Alone, Violation> {
        self.settle()?;
        for (link, how) in &self.scenario.cuts {
            self.cut(*link, *how);
        }
        while let Some((node, port, has_carrier)) = self.carriers.pop() {
            self.rigs[node].carrier(port, has_carrier, self.now);
        }
        while self.quiet < self.must_be_quiet {
            self.say_next_hello()?;
        }
        self.check_alone()
    }

    /// Lets the scenario's stage come, or some events pass: often few, so that much is under way.
    fn wait_for_next(&mut self) -> Result<(), Violation> {
        let n = self.rigs.len() as u64;
        let longest = [2, 8, 24, 80, 8 * n][self.rng.below(5) as usize];
        let mut left = self.rng.below(longest);
        loop {
            let is_time = match self.scenario.when {
                Some(stage) => self.stage(self.scenario.cuts[0].0) >= stage,
                None => left == 0,
            };
            if is_time {
                return Ok(());
            }
            if self.has_run_out() {
                return self.settle();
            }
            self.step()?;
            left = left.saturating_sub(1);
        }
    }

    /// The stage of the cut of a link, the only one so far.
    fn stage(&self, link: usize) -> Stage {
        let is_on_its_way = self.phases.iter().any(|phase| phase.is_of_link)
            || self.letters.iter().flatten().any(|letter| letter.is_of_link);
        if self.has_run_out() {
            return Stage::Over;
        }
        if self.is_rerouted && is_on_its_way {
            return Stage::Between;
        }
        if is_on_its_way {
            return Stage::Answered;
        }
        if self.is_rerouted {
            return Stage::Over;
        }
        match self.ends[link].map(|(node, port)| self.rigs[node].is_down(port)) {
            [false, false] => Stage::Unknown,
            [true, true] => Stage::Unreported,
            _ => Stage::OneEndKnows,
        }
    }

    fn cut(&mut self, link: usize, how: How) {
        match how {
            How::Pulled | How::Silent => self.carries[link] = [false; 2],
            How::OneWay(end) => self.carries[link][end] = false,
        }
        if how == How::Pulled {
            let unplugged = self.ends[link].map(|(node, port)| (node, port, false));
            self.carriers.extend(unplugged);
        }
        self.n_cuts += 1;
        (self.quiet, self.rounds) = (0, 0);
    }

    fn repair(&mut self, link: usize) {
        self.carries[link] = [true; 2];
        let plugged = self.ends[link].map(|(node, port)| (node, port, true));
        self.carriers.extend(plugged);
        self.quiet = 0;
    }

    fn has_run_out(&self) -> bool {
        let is_sent = self.phases.is_empty() && self.letters.iter().all(VecDeque::is_empty);
        let is_told = self.carriers.is_empty() && self.reports.is_empty() && self.hasty.is_empty();
        is_told && is_sent && self.quiet >= self.must_be_quiet
    }

    /// Lets all run out, and checks what must hold then.
    fn settle(&mut self) -> Result<(), Violation> {
        let begin = self.outcome.events;
        while !self.has_run_out() {
            self.step()?;
            if self.outcome.events - begin > MOST_EVENTS {
                return Err(Violation::NotSettled { events: MOST_EVENTS });
            }
        }
        // An old message may come at any time.
        if !self.old.is_empty() && self.rng.below(2) == 0 {
            self.repeat()?;
        }
        self.check_settled()
    }

    /// One event, and now and then a probe of what becomes of frames.
    fn step(&mut self) -> Result<(), Violation> {
        self.outcome.events += 1;
        let waiting: Vec<usize> = (0..self.letters.len()).filter(|i| !self.letters[*i].is_empty()).collect();
        // The controller sends the next phase when all have confirmed the last one, or it has waited long enough.
        if !self.phases.is_empty() && (waiting.is_empty() || self.rng.below(40) == 0) {
            self.send_phase();
        }
        let [carriers, hellos, reports, letters] = self.paces;
        let chances = [
            if self.carriers.is_empty() { 0 } else { carriers },
            // Each says so once in an interval.
            hellos * self.order.len() as u64,
            if self.reports.is_empty() { 0 } else { reports },
            if waiting.is_empty() { 0 } else { letters * waiting.len() as u64 },
            u64::from(!self.old.is_empty() && self.n_cuts > 0),
            u64::from(self.n_moves < 4 && self.n_cuts > 0),
            if self.hasty.is_empty() { 0 } else { carriers * self.order.len() as u64 },
        ];
        let mut at = self.rng.below(chances.iter().sum());
        let kind = chances.iter().position(|chance| {
            let is_it = at < *chance;
            at = at.saturating_sub(*chance);
            is_it
        });
        let n = self.order.len() as u64;
        let mut looks = self.rng.below(2) == 0;
        match kind {
            Some(0) => {
                let (node, port, has_carrier) =
                    self.carriers.swap_remove(self.rng.below(self.carriers.len() as u64) as usize);
                if self.rigs[node].carrier(port, has_carrier, self.now) {
                    self.has_seen(node);
                }
            }
            Some(2) => self.report()?,
            Some(3) => {
                let node = waiting[self.rng.below(waiting.len() as u64) as usize];
                if let Some(letter) = self.letters[node].pop_front() {
                    self.deliver(node, &letter.bytes)?;
                    self.is_rerouted |= letter.is_of_link;
                    if is_actions(&letter.bytes) {
                        self.old.push((node, letter.bytes));
                    }
                }
            }
            Some(4) => self.repeat()?,
            Some(5) => {
                self.n_moves += 1;
                let name = restless(self.rng.below(N_RESTLESS));
                let node = self.edge[self.rng.below(self.edge.len() as u64) as usize];
                let effects = self.network.set_name(&name, Attachment::new(self.nodes[node], HOST));
                self.enqueue(effects.map_err(|error| refused(&error))?, false);
            }
            Some(6) => {
                if let Some(node) = self.hasty.pop_first() {
                    self.say_hello(node)?;
                }
            }
            // Most change nothing.
            _ => looks &= self.say_next_hello()? || self.rng.below(n) == 0,
        }
        if looks { self.look() } else { Ok(()) }
    }

    /// A switch sees something else at its trunks.
    fn has_seen(&mut self, node: usize) {
        self.quiet = 0;
        self.hasty.insert(node);
        if self.scenario.mutant != Some(Mutant::ReportsLost) {
            self.reports.insert(node);
        }
    }

    /// It is the turn of the next switch to say hello. Returns whether any switch sees a change then.
    fn say_next_hello(&mut self) -> Result<bool, Violation> {
        let node = self.order[self.turn];
        self.now += ROUND / self.order.len() as u32;
        seam::set_time(Some(self.now - self.began));
        self.turn = (self.turn + 1) % self.order.len();
        if self.turn == 0 {
            self.quiet += 1;
            self.rounds += 1;
        }
        self.say_hello(node)
    }

    /// A switch says hello; it looks at its trunks, and so do those who hear it.
    fn say_hello(&mut self, node: usize) -> Result<bool, Violation> {
        self.rigs[node].say_hello();
        self.carry(&mut Vec::new())?;
        let edges = &self.scenario.graph.edges;
        let ends = edges.iter().filter(|edge| edge.a == node || edge.b == node).map(|edge| edge.a + edge.b - node);
        let mut is_news = false;
        for looks in std::iter::once(node).chain(ends) {
            let before = self.rigs[looks].seen();
            self.rigs[looks].listen(self.now);
            if self.rigs[looks].judge(&before, self.now) {
                self.has_seen(looks);
                is_news = true;
            }
        }
        Ok(is_news)
    }

    /// The controller hears of what a switch sees, and does what follows.
    fn report(&mut self) -> Result<(), Violation> {
        let at = self.rng.below(self.reports.len() as u64) as usize;
        let Some(node) = self.reports.iter().nth(at).copied() else { return Ok(()) };
        self.reports.remove(&node);
        let changed = {
            let (node, seen) = (self.nodes[node], self.rigs[node].seen());
            self.trunks.report(node, seen, api::seam::now());
            self.trunks.changed_at(&self.network, node)
        };
        if !changed.is_empty() {
            let effects = self.network.set_cut(&changed).map_err(|error| refused(&error))?;
            self.enqueue(effects, true);
        }
        Ok(())
    }

    fn enqueue(&mut self, effects: Effects, is_of_link: bool) {
        for phase in effects.phases {
            let messages = phase.into_iter().map(|(node, message)| (node, message.encode())).collect();
            self.phases.push_back(Phase { messages, is_of_link });
        }
    }

    fn send_phase(&mut self) {
        let Some(Phase { messages, is_of_link }) = self.phases.pop_front() else { return };
        for (id, bytes) in messages {
            let node =
                self.nodes.iter().position(|node| *node == id).expect("messages are for switches that are there");
            self.letters[node].push_back(Letter { bytes, is_of_link });
        }
    }

    /// A switch gets a message that it has had.
    fn repeat(&mut self) -> Result<(), Violation> {
        let (node, bytes) = self.old[self.rng.below(self.old.len() as u64) as usize].clone();
        self.deliver(node, &bytes)
    }

    fn deliver(&mut self, node: usize, bytes: &[u8]) -> Result<(), Violation> {
        let received = self.rigs[node].replica_mut().receive(bytes);
        let received = received.map_err(|error| Violation::Refused { switch: node, why: error.to_string() })?;
        self.network.acknowledge(self.nodes[node], received.change);
        Ok(())
    }
}

fn is_actions(bytes: &[u8]) -> bool {
    fib::messages::Message::decode(bytes).is_ok_and(|message| matches!(message.body, Body::Actions { .. }))
}

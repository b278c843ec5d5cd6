//! A network that changes: the controller, the wires and the switches, event by event.

use super::exact::{Held, Shelf};
use super::report::{Tally, Traffic};
use super::still::{self, Switch};
use super::walk::{self, Switches};
use super::world::{Packet, World};
use super::{Report, Scenario, SimError, Stage, Wires};
use fib::action::PortId;
use fib::messages::{self, Message};
use fib::replica::{Exact, Replica};
use fib::topology::NodeId;
use lookup::hash::Rng;
use std::collections::{BTreeMap, VecDeque};

/// What happens at a tick.
enum Event {
    /// The controller sends the next phase, or makes the next change.
    Controller,
    /// Packets are sent.
    Probe,
    /// A message arrives at a switch.
    Arrival { node: usize, bytes: Vec<u8> },
    /// A switch's report arrives at the controller.
    Report { node: usize, report: messages::Report },
    /// The answer to a report has arrived, or never will.
    Answered { node: usize },
}

/// The wire to a switch.
struct Wire {
    latency: u64,
    /// Messages sent so far.
    sent: u64,
    rng: Rng,
    /// Whether a report or its answer is in transit.
    reporting: bool,
}

struct Live<'a> {
    world: &'a mut World,
    scenario: &'a Scenario,
    switches: Vec<Switch>,
    wires: Vec<Wire>,
    /// Events by tick, in the order in which they were scheduled.
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    tick: u64,
    /// The phases of a change that are still to be sent.
    phases: VecDeque<Vec<(NodeId, Message)>>,
    changes_left: usize,
    report: Report,
}

/// The switches in their present state, and packets.
struct Now<'a> {
    switches: &'a [Switch],
    packets: &'a [Packet],
}

impl Switches for Now<'_> {
    fn admits(&self, node: usize, packet: usize) -> bool {
        self.switches[node].tables().valid.get(&self.packets[packet].name).is_some()
    }

    fn port(&self, node: usize, packet: usize) -> Option<PortId> {
        still::ports(&self.switches[node], &self.packets[packet..=packet]).next().flatten()
    }
}

pub(super) fn run(world: &mut World, scenario: &Scenario, stage: &mut dyn FnMut(Stage)) -> Result<Report, SimError> {
    let mut report = world.report();
    let shelf = Shelf::default();
    let mut switches: Vec<Replica<Held>> = Vec::with_capacity(world.nodes.len());
    for node in 0..world.nodes.len() {
        switches.push(still::attach(world, node, &shelf, &mut report)?);
        still::measure(&switches[node], world.gateways.contains(&node), &mut report);
        stage(Stage::Attached { switches: node + 1 });
    }
    let wires = (0..world.nodes.len() as u64).map(|node| {
        let mut rng = Rng::new(scenario.seed ^ (node + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Wire { latency: 1 + rng.below(scenario.wires.latency_ticks), sent: 0, rng, reporting: false }
    });
    let mut live = Live {
        wires: wires.collect(),
        world,
        scenario,
        switches,
        events: BTreeMap::new(),
        scheduled: 0,
        tick: 0,
        phases: VecDeque::new(),
        changes_left: scenario.name_changes + scenario.link_changes,
        report,
    };
    live.report.before = live.probe(scenario.packets, false);
    live.play(stage)?;
    live.report.after = live.probe(scenario.packets, true);
    live.heal()?;
    live.report.healed = live.probe(scenario.packets, true);
    stage(Stage::Healed);
    Ok(live.report)
}

impl Live<'_> {
    fn schedule(&mut self, at: u64, event: Event) {
        self.events.insert((at, self.scheduled), event);
        self.scheduled += 1;
    }

    /// Plays all changes, until no message is in transit.
    fn play(&mut self, stage: &mut dyn FnMut(Stage)) -> Result<(), SimError> {
        self.schedule(1, Event::Controller);
        self.schedule(1 + self.scenario.probe_ticks, Event::Probe);
        while let Some(((tick, _), event)) = self.events.pop_first() {
            self.tick = tick;
            match event {
                Event::Controller => self.control(stage)?,
                Event::Probe => {
                    let tally = self.probe(self.scenario.probe_packets, true);
                    self.report.during.add(&tally);
                    if !self.events.is_empty() {
                        self.schedule(tick + self.scenario.probe_ticks, Event::Probe);
                    }
                }
                Event::Arrival { node, bytes } => self.arrive(node, &bytes)?,
                Event::Report { node, report } => self.answer(node, &report)?,
                Event::Answered { node } => self.wires[node].reporting = false,
            }
        }
        self.report.ticks = self.tick;
        Ok(())
    }

    /// Sends the next phase of a change, or makes the next change.
    fn control(&mut self, stage: &mut dyn FnMut(Stage)) -> Result<(), SimError> {
        if self.phases.is_empty() {
            if self.changes_left == 0 {
                return Ok(());
            }
            self.phases = self.change()?.into();
            stage(Stage::Changed { changes: self.report.changes as usize });
        }
        let phase = self.phases.pop_front().unwrap_or_default();
        let mut all_there = self.tick + 1;
        for (node, message) in phase {
            let bytes = self.report.updates.send(&message);
            let arrival = self.send(self.world.index(node), bytes);
            all_there = all_there.max(arrival.unwrap_or(u64::MAX));
        }
        // The last phase is not waited for.
        let timeout = self.tick + self.scenario.wires.timeout_ticks;
        let next = if self.phases.is_empty() { self.tick + 1 } else { all_there.min(timeout) };
        self.schedule(next, Event::Controller);
        Ok(())
    }

    /// Changes of links are evenly spaced among those of names.
    fn change(&mut self) -> Result<Vec<Vec<(NodeId, Message)>>, SimError> {
        let (links, all) = (self.scenario.link_changes, self.scenario.link_changes + self.scenario.name_changes);
        let done = all - self.changes_left;
        self.changes_left -= 1;
        self.report.changes += 1;
        let is_link = (done + 1) * links / all > done * links / all;
        let effects = if is_link { self.world.change_link()? } else { self.world.change_name()? };
        Ok(effects.phases)
    }

    /// Puts a message on the wire; returns the tick at which it arrives, if it does.
    fn send(&mut self, node: usize, bytes: Vec<u8>) -> Option<u64> {
        let Wires { late, duplicated, lost, late_ticks, ref drops, .. } = self.scenario.wires;
        let wire = &mut self.wires[node];
        // Every message takes the same number of draws, so that one fault does not shift the others.
        let [is_late, is_duplicated, is_lost] = [late, duplicated, lost].map(|share| chance(&mut wire.rng, share));
        let [delay, again] = [(); 2].map(|()| 1 + wire.rng.below(late_ticks));
        let nth = wire.sent;
        wire.sent += 1;
        let in_order = self.tick + wire.latency;
        if is_lost || drops.contains(&(node, nth)) {
            self.report.lost += 1;
            return None;
        }
        let arrival = if is_late { in_order + delay } else { in_order };
        self.report.late += u64::from(is_late);
        if is_duplicated {
            self.report.duplicated += 1;
            self.schedule(arrival + again, Event::Arrival { node, bytes: bytes.clone() });
        }
        self.schedule(arrival, Event::Arrival { node, bytes });
        Some(arrival)
    }

    fn arrive(&mut self, node: usize, bytes: &[u8]) -> Result<(), SimError> {
        let id = self.world.nodes[node];
        match self.switches[node].receive(bytes) {
            Ok(received) => {
                self.report.repeated += u64::from(!received.applied);
                self.world.network.acknowledge(id, received.change);
            }
            Err(error) if error.needs_resync() => {
                self.report.refused += 1;
                if !std::mem::replace(&mut self.wires[node].reporting, true) {
                    let report = self.switches[node].report();
                    self.schedule(self.tick + self.wires[node].latency, Event::Report { node, report });
                }
            }
            Err(source) => return Err(SimError::Replica { node: id, source }),
        }
        Ok(())
    }

    fn answer(&mut self, node: usize, report: &messages::Report) -> Result<(), SimError> {
        self.report.reports += 1;
        for message in self.world.network.attach(self.world.nodes[node], report)? {
            let bytes = self.report.resyncs.send(&message);
            self.send(node, bytes);
        }
        self.schedule(self.tick + self.wires[node].latency, Event::Answered { node });
        Ok(())
    }

    /// Every switch reports, and is sent what it lacks, without losses.
    fn heal(&mut self) -> Result<(), SimError> {
        for (node, switch) in self.switches.iter_mut().enumerate() {
            let id = self.world.nodes[node];
            let lacking = self.world.network.attach(id, &switch.report())?;
            self.report.behind += u64::from(!lacking.is_empty());
            let mut traffic = Traffic::default();
            std::mem::swap(&mut traffic, &mut self.report.healing);
            for message in lacking {
                let bytes = traffic.send(&message);
                switch.receive(&bytes).map_err(|source| SimError::Replica { node: id, source })?;
            }
            self.report.healing = traffic;
        }
        Ok(())
    }

    fn probe(&mut self, n: usize, recent: bool) -> Tally {
        let packets = self.world.packets(n, recent);
        let now = Now { switches: &self.switches, packets: &packets };
        walk::send(self.world, &packets, &now, self.scenario.hop_limit)
    }
}

fn chance(rng: &mut Rng, share: f64) -> bool {
    (rng.below(1 << 53) as f64) < share * (1u64 << 53) as f64
}

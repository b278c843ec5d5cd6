//! Frames from every host to every other one: what becomes of them, and what must become of them.

use super::world::{HOST, KNOWN_AFTER, World, name_at};
use super::{Alone, Mutant, Violation};
use dataplane::shim;
use fib::action::Action;
use std::collections::BTreeMap;

/// An EtherType for experiments that is not the shim's.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb6];
/// Frames of each host to each name when all has run out, of different flows.
const FLOWS: u8 = 3;
/// What a switch does with a frame that loops.
const CIRCLES: [&str; 2] = ["hop_limit", "input_port"];

/// A frame on its way.
#[derive(Default)]
pub(super) struct Frame {
    from: usize,
    to: usize,
    hops: u32,
    length: u64,
    /// Where it arrived.
    arrived: bool,
    /// The switch that sent it into a cable that carries nothing, and whether it knew that.
    lost: Option<(usize, bool)>,
}

fn bytes_of(from: usize, to: usize, flow: u8, id: usize) -> Vec<u8> {
    let mut frame = name_at(to).as_bytes().to_vec();
    frame.extend([2, 0, 0, 9, flow, from as u8]);
    frame.extend(ETHER_TYPE);
    frame.extend((id as u32).to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// The number in a frame; none in a hello.
fn id_of(frame: &[u8]) -> Option<usize> {
    let at = if frame.get(12..14) == Some(&shim::ETHER_TYPE) { shim::AT + shim::LEN } else { shim::AT };
    let rest = frame.get(at..)?.strip_prefix(&ETHER_TYPE)?;
    Some(u32::from_be_bytes(*rest.first_chunk()?) as usize)
}

impl World<'_> {
    /// Sends a frame from every host to every name and sees what becomes of it, in the present state.
    pub(super) fn look(&mut self) -> Result<(), Violation> {
        let flow = self.rng.below(u64::from(FLOWS)) as u8;
        let (frames, dropped) = self.send([flow])?;
        if self.n_cuts == 1 && !self.is_rerouted {
            if let Some((reason, n)) = dropped.iter().find(|(_, n)| **n > 0) {
                return Err(Violation::DroppedEarly { n: *n, reason });
            }
            for frame in &frames {
                let Some((at, knows)) = frame.lost else { continue };
                if !knows && self.rounds < KNOWN_AFTER {
                    continue;
                }
                let to = frame.to;
                match self.rigs[at].replica().action(&name_at(to)) {
                    Action::Port(_) => {}
                    _ if !knows => return Err(Violation::NotNoticed { at, to }),
                    Action::Spread { .. } => return Err(Violation::DownWayTaken { at, to }),
                    _ => return Err(Violation::AlternateNotTaken { at, to }),
                }
            }
        }
        Ok(())
    }

    /// What becomes of frames when only the ends of the links that were cut know it.
    pub(super) fn check_alone(&mut self) -> Result<Alone, Violation> {
        let (frames, dropped) = self.send(0..FLOWS)?;
        if let Some(n) = dropped.get("hop_limit") {
            return Err(Violation::Circle { n: *n });
        }
        let distances: BTreeMap<usize, Vec<Option<u64>>> =
            self.edge.iter().map(|to| (*to, self.distances(*to))).collect();
        let mut alone = Alone::default();
        for frame in frames.iter().filter(|frame| distances[&frame.to][frame.from].is_some()) {
            alone.joined += 1;
            alone.arrived += u64::from(frame.arrived);
        }
        Ok(alone)
    }

    /// What must hold when nothing is under way.
    pub(super) fn check_settled(&mut self) -> Result<(), Violation> {
        let (frames, dropped) = self.send(0..FLOWS)?;
        let distances: BTreeMap<usize, Vec<Option<u64>>> =
            self.edge.iter().map(|to| (*to, self.distances(*to))).collect();
        let mut unreachable = 0;
        for Frame { from, to, arrived, length, hops, .. } in frames {
            match distances[&to][from] {
                Some(shortest) if arrived && length != shortest => {
                    return Err(Violation::Detour { from, to, took: length, shortest });
                }
                Some(_) if !arrived => return Err(Violation::BlackHole { from, to }),
                Some(_) => {}
                None if arrived => return Err(Violation::NoPath { from, to }),
                None if hops > 0 => return Err(Violation::DroppedLate { from, to, hops }),
                None => unreachable += 1,
            }
        }
        let is_right =
            dropped.iter().all(|(reason, _)| *reason == "no_route") && dropped.values().sum::<u64>() == unreachable;
        if !is_right {
            return Err(Violation::Dropped { unreachable, dropped: dropped.into_iter().collect() });
        }
        Ok(())
    }

    /// How far each switch is from one over the links that carry frames both ways. By relaxation, until nothing changes: it has nothing
    /// in common with what computes routes.
    fn distances(&self, to: usize) -> Vec<Option<u64>> {
        let mut distances = vec![None; self.rigs.len()];
        distances[to] = Some(0);
        loop {
            let mut changed = false;
            let links =
                self.scenario.graph.edges.iter().zip(&self.carries).filter(|(_, carries)| **carries == [true; 2]);
            for (edge, _) in links {
                for (near, far) in [(edge.a, edge.b), (edge.b, edge.a)] {
                    let through = distances[far].map(|distance: u64| distance + u64::from(edge.cost));
                    if through.is_some_and(|through| distances[near].is_none_or(|known| through < known)) {
                        distances[near] = through;
                        changed = true;
                    }
                }
            }
            if !changed {
                return distances;
            }
        }
    }

    /// Sends frames of these flows between all hosts. Returns what became of them, and how many were dropped for which reason.
    fn send(
        &mut self,
        flows: impl IntoIterator<Item = u8>,
    ) -> Result<(Vec<Frame>, BTreeMap<&'static str, u64>), Violation> {
        let mut frames = Vec::new();
        let before: Vec<_> = self.rigs.iter().map(|rig| rig.counts()).collect();
        for flow in flows {
            for from in &self.edge {
                for to in self.edge.iter().filter(|to| *to != from) {
                    self.rigs[*from].put(HOST, bytes_of(*from, *to, flow, frames.len()));
                    frames.push(Frame { from: *from, to: *to, ..Frame::default() });
                }
            }
        }
        self.carry(&mut frames)?;
        let mut dropped: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (rig, before) in self.rigs.iter().zip(&before) {
            for ((reason, now), (_, before)) in
                rig.counts().drops().zip(before.drops()).filter(|(now, was)| now.1 > was.1)
            {
                *dropped.entry(reason.name()).or_default() += now - before;
            }
        }
        let count = |which: &dyn Fn(&Frame) -> bool| frames.iter().filter(|frame| which(frame)).count() as u64;
        let (sent, delivered) = (frames.len() as u64, count(&|frame| frame.arrived));
        let (lost, n_dropped) = (count(&|frame| frame.lost.is_some()), dropped.values().sum());
        if sent != delivered + lost + n_dropped {
            return Err(Violation::Uncounted { sent, delivered, lost, dropped: n_dropped });
        }
        let looped = CIRCLES.iter().filter_map(|reason| dropped.get(reason)).sum::<u64>();
        let outcome = &mut self.outcome;
        outcome.probes += 1;
        outcome.sent += sent;
        outcome.delivered += delivered;
        outcome.lost += lost;
        outcome.looped += looped;
        outcome.probes_with_circles += u64::from(looped > 0);
        dropped.iter().for_each(|(reason, n)| *outcome.dropped.entry(reason).or_default() += n);
        let arrived = frames.iter().filter(|frame| frame.arrived);
        outcome.most_hops = arrived.map(|frame| frame.hops).max().unwrap_or(0).max(outcome.most_hops);
        Ok((frames, dropped))
    }

    /// Has workers forward and cables carry, until no frame is on its way.
    pub(super) fn carry(&mut self, frames: &mut [Frame]) -> Result<(), Violation> {
        loop {
            let mut is_moving = false;
            for at in 0..self.rigs.len() {
                for (port, bytes) in self.rigs[at].poll() {
                    is_moving = true;
                    let frame = id_of(&bytes).and_then(|id| frames.get_mut(id));
                    let Some((link, end)) = self.cables.get(&(at, port)).copied() else {
                        if let Some(frame) = frame {
                            arrive(frame, at, self.scenario.mutant, &self.edge)?;
                        }
                        continue;
                    };
                    if !self.carries[link][end] {
                        if let Some(frame) = frame {
                            frame.lost = Some((at, self.rigs[at].is_down(port)));
                        }
                        continue;
                    }
                    if let Some(frame) = frame {
                        frame.hops += 1;
                        frame.length += u64::from(self.scenario.graph.edges[link].cost);
                        if frame.hops > u32::from(shim::INITIAL_HOPS) + 1 {
                            return Err(Violation::Endless { from: frame.from, to: frame.to, hops: frame.hops });
                        }
                    }
                    let (far, far_port) = self.ends[link][1 - end];
                    self.rigs[far].put(far_port, bytes);
                }
            }
            if !is_moving {
                return Ok(());
            }
        }
    }
}

/// A frame comes to the host at a switch.
fn arrive(frame: &mut Frame, at: usize, mutant: Option<Mutant>, edge: &[usize]) -> Result<(), Violation> {
    let Frame { from, to, .. } = *frame;
    let is_exchanged = |switch| edge[..2].contains(&switch);
    // Which host has the name, and is at this port.
    let at = match mutant {
        Some(Mutant::HostsExchanged) if is_exchanged(at) => edge[0] + edge[1] - at,
        _ => at,
    };
    if at != to {
        return Err(Violation::Misdelivered { from, to, at });
    }
    if std::mem::replace(&mut frame.arrived, true) {
        return Err(Violation::Twice { from, to });
    }
    Ok(())
}

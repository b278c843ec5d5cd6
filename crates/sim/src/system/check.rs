//! What must hold: what switches may answer, what the status says, where frames arrive, and how it ends.

use super::Violation;
use super::operators::{HOSTS, NAMES, name, switch_name};
use super::watch::Claim;
use super::world::System;
use crate::site::Site;
use fib::action::Action;
use fib::topology::End;

impl System {
    /// Checks what the status said, the switch that an event touched, one of the others in turn, and frames.
    pub(super) fn check_all(&mut self) -> Result<(), Violation> {
        if let Some(found) = self.found.take() {
            return Err(found);
        }
        if let Some(controller) = &self.controller {
            self.watched.lock().claim(&controller.sight());
        }
        let claims = std::mem::take(&mut self.watched.lock().claims);
        claims.into_iter().try_for_each(|claim| self.check_claim(&claim))?;
        let Some(controller) = self.controller.take() else { return Ok(()) };
        let checked = self.check_switches(&controller);
        self.controller = Some(controller);
        checked
    }

    fn check_switches(&mut self, controller: &Site) -> Result<(), Violation> {
        let committed = self.watched.lock().committed;
        let turn = self.outcome.events as usize % self.switches.len();
        for i in self.touched.take().into_iter().chain([turn]) {
            self.check_switch(i, self.switches[i].since, committed)?;
        }
        // Often enough to see each state, and seldom enough to see many.
        if self.outcome.events.is_multiple_of(4) { self.check_frames(controller, committed) } else { Ok(()) }
    }

    /// A switch that the status calls in step answers as of the last answered change. From then on it is known to.
    fn check_claim(&mut self, claim: &Claim) -> Result<(), Violation> {
        let is_of = |i: &usize| {
            let link = self.switches[*i].agent.as_ref().and_then(|agent| agent.link);
            link.and_then(|link| self.links[link].above.as_ref()).is_some_and(|stream| stream.id() == claim.stream)
        };
        // The status cannot know yet of a switch that is gone, or that has begun another stream.
        let Some(i) = (0..self.switches.len()).find(is_of) else { return Ok(()) };
        self.outcome.claims += 1;
        let Claim { answered: change, committed, .. } = *claim;
        let checked = self.check_switch(i, change, committed.max(change));
        checked.map_err(|why| Violation::NotInStep { switch: i, change, why: Box::new(why) })?;
        let since = &mut self.switches[i].since;
        *since = change.max(*since);
        Ok(())
    }

    /// A switch answers for every name as was right at some change of these.
    fn check_switch(&mut self, i: usize, since: u64, until: u64) -> Result<(), Violation> {
        let Some(agent) = self.switches[i].agent.as_ref().filter(|_| since > 0) else { return Ok(()) };
        let (watch, replica) = (self.watched.lock(), agent.shared.replica());
        let is_gateway = replica.header().is_some_and(|header| header.gateway);
        for n in 0..NAMES {
            let rights = watch.history.between(i, n, since, until);
            let name = name(n);
            self.outcome.checks += 1;
            let wrong = |got: String| Violation::WrongAnswer {
                switch: i,
                name: n,
                got,
                since,
                until,
                allowed: format!("{rights:?}"),
            };
            if rights.is_empty() {
                continue;
            }
            // For a name that does not exist, or that it may not have heard of, any answer is right.
            if rights.iter().all(|(_, right)| right.action.is_some()) {
                let got = replica.action(&name);
                if !watch.history.allows(i, n, got, since, until) {
                    return Err(wrong(format!("{got:?}")));
                }
            }
            let local = replica.tables().local.get(&name).copied();
            if rights.iter().all(|(_, right)| right.local != local) {
                return Err(wrong(format!("local port {local:?}")));
            }
            let valid = replica.tables().valid.contains_key(&name);
            if is_gateway && rights.iter().all(|(_, right)| right.gateway && right.action.is_some() != valid) {
                return Err(wrong(format!("valid: {valid}")));
            }
        }
        Ok(())
    }

    /// A frame for a name that nothing has changed lately arrives.
    fn check_frames(&mut self, controller: &Site, committed: u64) -> Result<(), Violation> {
        let n_switches = self.switches.len();
        let from = self.random.below(n_switches as u64) as usize;
        let since = self.switches.iter().map(|switch| switch.since).min().unwrap_or(0);
        if since == 0 || self.switches.iter().any(|switch| switch.agent.is_none()) {
            return Ok(());
        }
        let network = controller.network();
        let topology = network.topology();
        let watch = self.watched.lock();
        for n in 0..NAMES {
            let is_stable = |i| {
                let rights = watch.history.between(i, n, since, committed);
                rights.len() == 1 && rights[0].1.action.is_some()
            };
            let Some(place) = network.rib().get(&name(n)).filter(|_| (0..n_switches).all(is_stable)) else { continue };
            self.outcome.frames += 1;
            let frame = |fate| Err(Violation::Frame { name: n, from, fate });
            let (mut at, mut hops) = (from, 0);
            while let (Some(agent), Some(node)) = (&self.switches[at].agent, topology.node_by_name(&switch_name(at))) {
                let replica = agent.shared.replica();
                let local = replica.tables().local.get(&name(n)).copied();
                let port = match replica.action(&name(n)) {
                    Action::Local => local,
                    Action::Port(port) if port.0 >= HOSTS => local.filter(|local| *local == port),
                    // Of several ways another one at each hop, and for each name.
                    other => other.port_for((n + hops) as u64),
                };
                let Some(port) = port else {
                    let reachable = network.action(node, &name(n)) != Action::Drop;
                    if reachable { return frame("is dropped") } else { break }
                };
                let out = End { node, port };
                if port.0 >= HOSTS {
                    if out == place.end() { break } else { return frame("arrives at the wrong host") }
                }
                let Some(link) = topology.link(out).ok().filter(|link| link.carries()) else {
                    return frame("leaves by no link");
                };
                let far = if link.a == out { link.b } else { link.a };
                let is_far = |i: &usize| topology.node_by_name(&switch_name(*i)) == Some(far.node);
                let Some(next) = (0..n_switches).find(is_far) else { return frame("leaves the network") };
                (at, hops) = (next, hops + 1);
                if hops > n_switches {
                    return frame("loops");
                }
            }
        }
        Ok(())
    }

    /// After the faults all is well.
    pub(super) fn check_converged(&mut self) -> Result<(), Violation> {
        let not = |why: String| Violation::NotConverged { why };
        let Some(mut controller) = self.controller.take() else {
            return Err(not("the controller does not run".to_owned()));
        };
        let in_step = controller.sight().in_step;
        let change = controller.network().change();
        for i in 0..self.switches.len() {
            let Some(agent) = &self.switches[i].agent else { return Err(not(format!("switch {i} does not run"))) };
            let stream = agent.link.and_then(|link| self.links[link].above.as_ref()).map(|stream| stream.id());
            if stream.is_none_or(|stream| !in_step.contains(&stream)) {
                return Err(not(format!("switch {i} is not in step")));
            }
            let report = agent.shared.replica().report();
            let Some(node) = controller.network().topology().node_by_name(&switch_name(i)) else {
                return Err(not(format!("switch {i} is not in the network")));
            };
            let lacks = controller.network_mut().attach(node, &report);
            let lacks = lacks.map(|lacks| lacks.into_iter().map(|message| message.body).collect::<Vec<_>>());
            if !lacks.as_ref().is_ok_and(|lacks| lacks.is_empty()) {
                return Err(not(format!("switch {i} lacks something: {lacks:?}")));
            }
            self.check_switch(i, change, change)?;
            let replica = agent_of(self, i);
            self.outcome.trace(replica);
        }
        Ok(())
    }
}

/// A number over all answers of a switch.
fn agent_of(system: &System, i: usize) -> u64 {
    let Some(agent) = &system.switches[i].agent else { return 0 };
    let replica = agent.shared.replica();
    (0..NAMES).fold(0, |sum, n| {
        let code = match replica.action(&name(n)) {
            Action::Local => 1,
            other => other.port().map_or(0, |port| u64::from(port.0) + 2),
        };
        crate::random::mix64(sum ^ code)
    })
}

//! A switch on the scheduler: its connections, and the image that it saves.

use super::operators::switch_name;
use super::world::{Event, System};
use super::{Mutant, Violation};
use api::v1::from_switch::Body;
use api::v1::{Ack, ToSwitch};
use fib::replica::{Limits, MemoryTables, Replica};
use std::sync::Arc;
use switch::daemon::agent::{Following, Shared, Step};

/// The pauses before attempts to connect double from the first to the last, in milliseconds.
const PAUSES: (u64, u64) = (200, 5_000);

/// A running switch.
pub(super) struct Agent {
    pub(super) shared: Arc<Shared<MemoryTables>>,
    following: Following,
    pub(super) link: Option<usize>,
    pause: u64,
    saving: bool,
    /// Whether it may hold little.
    small: bool,
}

/// A switch, running or not.
#[derive(Default)]
pub(super) struct Switch {
    pub(super) agent: Option<Agent>,
    /// Everything up to this change is known to have taken effect; 0: nothing is known.
    pub(super) since: u64,
    pub(super) cut_until: u64,
    /// The saved image, and what was known to have taken effect then.
    image: Option<(Vec<u8>, u64)>,
    start_small: bool,
}

impl Switch {
    /// Changes have another meaning from now on.
    pub(super) fn forget(&mut self) {
        self.since = 0;
        if let Some((_, since)) = &mut self.image {
            *since = 0;
        }
    }
}

impl System {
    pub(super) fn start_switch(&mut self, i: usize) -> Result<(), Violation> {
        let switch = &mut self.switches[i];
        if switch.agent.is_some() {
            return Ok(());
        }
        let small = std::mem::take(&mut switch.start_small);
        let limits = if small { Limits { max_names: 4, ..Limits::default() } } else { Limits::default() };
        let empty = || Replica::new(limits, MemoryTables::default());
        let (replica, since) = match &switch.image {
            // A switch with little room begins with nothing.
            Some((image, since)) if !small => {
                let loaded = Replica::load(limits, MemoryTables::default(), image);
                (loaded.map_err(|error| Violation::Image { switch: i, why: error.to_string() })?, *since)
            }
            _ => (empty(), 0),
        };
        switch.since = since;
        let (shared, following) = (Shared::new(replica), Following::default());
        switch.agent = Some(Agent { shared, following, link: None, pause: PAUSES.0, saving: false, small });
        let pause = self.random.below(20);
        self.schedule(pause, Event::Connect { switch: i });
        Ok(())
    }

    pub(super) fn crash_switch(&mut self, i: usize, kind: &'static str) {
        let Some(agent) = self.switches[i].agent.take() else { return };
        *self.outcome.crashes.entry(kind).or_default() += 1;
        if let Some(link) = agent.link {
            self.break_link(link);
        }
        // Now and then it comes back with little room.
        self.switches[i].start_small = self.watched.lock().wild && !agent.small && self.random.below(12) == 0;
        let pause = 1 + self.random.below(300);
        self.schedule(pause, Event::StartSwitch { switch: i });
    }

    /// Switches with little room get more.
    pub(super) fn make_room(&mut self) {
        for i in 0..self.switches.len() {
            self.switches[i].start_small = false;
            if self.switches[i].agent.as_ref().is_some_and(|agent| agent.small) {
                self.crash_switch(i, "switch for more room");
            }
        }
    }

    pub(super) fn connect(&mut self, i: usize) {
        let new = self.controller.as_ref().map(|_| self.generation);
        let old = self.old.as_ref().map(|old| old.generation);
        // A switch may reach either of two.
        let reached = if self.random.below(3) == 0 { old.or(new) } else { new.or(old) };
        let now = self.now;
        let switch = &mut self.switches[i];
        let Some(agent) = switch.agent.as_mut().filter(|agent| agent.link.is_none()) else { return };
        let Some(generation) = reached.filter(|_| now >= switch.cut_until) else {
            let pause = agent.pause - agent.pause * self.random.below(1000) / 4000;
            agent.pause = (agent.pause * 2).min(PAUSES.1);
            return self.schedule(pause, Event::Connect { switch: i });
        };
        (agent.pause, agent.following) = (PAUSES.0, Following::default());
        let report = agent.shared.report();
        let link = self.open_link(i, generation);
        if let Some(agent) = &mut self.switches[i].agent {
            agent.link = Some(link);
        }
        self.send_hello(link, report);
    }

    pub(super) fn broken_below(&mut self, link: usize) {
        let i = self.links[link].switch;
        let Some(agent) = self.switches[i].agent.as_mut().filter(|agent| agent.link == Some(link)) else { return };
        agent.link = None;
        let pause = agent.pause - agent.pause * self.random.below(1000) / 4000;
        self.schedule(pause, Event::Connect { switch: i });
    }

    /// A message arrives: it takes effect and is acknowledged, or the switch reports.
    pub(super) fn down(&mut self, link: usize, message: ToSwitch) {
        let i = self.links[link].switch;
        self.links[link].on_the_way = self.links[link].on_the_way.saturating_sub(1);
        // The messages that a broken connection still held are lost with it.
        if !self.links[link].lossy && self.is_followed(link) {
            if self.is(Mutant::AcknowledgedBeforeApplied) {
                self.send_up(link, Body::Ack(Ack { sequence: message.sequence }));
                return self.schedule(15, Event::Late { link, message });
            }
            if self.watched.point("message arrives") {
                self.crash_switch(i, "switch at a point");
            } else {
                self.receive(link, message);
            }
        }
        self.pump();
    }

    pub(super) fn is_followed(&self, link: usize) -> bool {
        self.switches[self.links[link].switch].agent.as_ref().is_some_and(|agent| agent.link == Some(link))
    }

    pub(super) fn receive(&mut self, link: usize, message: ToSwitch) {
        let i = self.links[link].switch;
        self.touched = Some(i);
        if self.scenario.log {
            eprintln!("{} s{i} {:?}", self.now, fib::messages::Message::decode(&message.message));
        }
        let Some(agent) = &mut self.switches[i].agent else { return };
        if message.verify != 0 {
            let verified = agent.shared.verify(message.verify);
            return self.send_up(link, Body::Verified(verified));
        }
        let step = agent.following.receive(&switch_name(i), message, &agent.shared);
        // Also when it has been stopped since: what it sent may arrive.
        if self.replaced.contains(&self.links[link].generation) {
            // Its state may come from changes that the other controller never made.
            self.switches[i].forget();
        }
        let Some(agent) = &mut self.switches[i].agent else { return };
        if !std::mem::replace(&mut agent.saving, true) {
            let pause = 10 + self.random.below(100);
            self.schedule(pause, Event::Save { switch: i });
        }
        if self.scenario.log {
            eprintln!("{} s{i} {step:?}", self.now);
        }
        if self.watched.point("message taken in") {
            return self.crash_switch(i, "switch at a point");
        }
        match step {
            Ok(Step::Nothing) => {}
            Ok(Step::Acknowledge(sequence)) => self.send_up(link, Body::Ack(Ack { sequence })),
            Ok(Step::Report(resync)) => self.send_up(link, Body::Resync(resync)),
            Ok(Step::Refuse(refused, pause)) => {
                self.send_up(link, Body::Refused(refused));
                self.schedule(pause.as_millis() as u64, Event::Retry { link });
            }
            Err(_) => {
                self.break_link(link);
                self.broken_below(link);
            }
        }
    }

    /// A switch that had no room asks again.
    pub(super) fn retry(&mut self, link: usize) {
        let i = self.links[link].switch;
        if let Some(agent) = self.switches[i].agent.as_mut().filter(|agent| agent.link == Some(link)) {
            let resync = agent.following.retry(&agent.shared);
            self.send_up(link, Body::Resync(resync));
        }
    }

    /// Writes the image: to another name, synced, renamed. A crash at any step leaves the old one or the new one.
    pub(super) fn save(&mut self, i: usize) {
        let (in_place, unsynced) = (self.is(Mutant::ImageInPlace), self.is(Mutant::ImageRenamedUnsynced));
        let switch = &mut self.switches[i];
        let Some(agent) = switch.agent.as_mut().filter(|agent| agent.saving) else { return };
        agent.saving = false;
        let Some(image) = agent.shared.take_unsaved(|replica| replica.save()) else { return };
        let (new, old) = ((image, switch.since), switch.image.clone());
        let torn = (new.0[..new.0.len() * 2 / 3].to_vec(), new.1);
        let steps = [
            ("image begins", old.clone()),
            ("image written", if in_place { Some(torn.clone()) } else { old.clone() }),
            ("image synced", old),
            ("image renamed", Some(if unsynced { torn } else { new.clone() })),
        ];
        let crash_at = if self.watched.lock().wild { self.random.below(40) } else { u64::MAX };
        for (step, (point, left)) in (0..).zip(steps) {
            if self.watched.point(point) || crash_at == step {
                self.switches[i].image = left;
                return self.crash_switch(i, "switch while it saves");
            }
        }
        self.switches[i].image = Some(new);
    }
}
